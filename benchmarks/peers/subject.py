"""cynorm itself, by the same functions as its peers."""

from functools import partial

import cynorm
from benchmarks.peers import Prepared, Refused

_PLAIN = ("NC", "NCW", "NCHW", "NCDHW")
_BLOCKED = {1: "nCw", 2: "nChw", 3: "nCdhw"}


def available():
    return True


def version():
    return f"{cynorm.__version__} {cynorm.isa()}"


def set_num_threads(count):
    cynorm.set_num_threads(count)


def prepare(problem, arrays):
    """Prepare a problem; a ValueError or TypeError of cynorm becomes a refusal."""
    try:
        return (_lrn if problem.driver == "lrn" else _batch_norm)(problem, arrays)
    except (TypeError, ValueError) as error:
        raise Refused(str(error)) from error


def _layout(problem):
    """The keyword arguments that say what the axes of the arrays mean."""
    spatial, block = len(problem.shape) - 2, problem.layout.block
    if not block:
        return {"layout": _PLAIN[spatial]}
    if spatial not in _BLOCKED:
        raise Refused("blocked layouts have one to three spatial axes")
    return {"layout": f"{_BLOCKED[spatial]}{block}c", "channels": problem.shape[1]}


def _lrn(problem, arrays):
    values = problem.parameters
    lrn = cynorm.LRN(
        values["ls"], values["alpha"], values["beta"], values["k"], region=problem.region, **_layout(problem)
    )
    src, dst, workspace = arrays["src"], arrays["dst"], cynorm.Workspace()
    name = lrn.implementation(src)
    if problem.direction == "FWD_I":
        return Prepared(partial(lrn.forward, src, dst), name)
    forward = partial(lrn.forward, src, dst, workspace)
    forward()
    if problem.is_forward:
        return Prepared(forward, name, workspace.nbytes)
    backward = partial(lrn.backward, arrays["diff_dst"], src, arrays["diff_src"], workspace)
    return Prepared(backward, name, workspace.nbytes)


def _batch_norm(problem, arrays):
    norm = cynorm.BatchNorm(
        epsilon=problem.parameters["eps"], activation="relu" if problem.relu else None, **_layout(problem)
    )
    src, dst, scale, shift = (arrays[name] for name in ("src", "dst", "scale", "shift"))
    given = (arrays["mean"], arrays["variance"]) if "G" in problem.flags else None
    name = norm.implementation(src)
    workspace = None if problem.direction == "FWD_I" else cynorm.Workspace()
    common = {"add": arrays.get("src_1"), "out": dst, "workspace": workspace}
    if given:
        forward, outputs = (
            partial(norm.forward_inference, src, *given, scale, shift, **common),
            lambda result: {},
        )
    else:
        forward, outputs = partial(norm.forward_training, src, scale, shift, **common), _statistics
    forward()
    nbytes = workspace.nbytes if workspace else 0
    if problem.is_forward:
        return Prepared(forward, name, nbytes, outputs=outputs)
    common = {"shift": shift, "out": arrays["diff_src"], "workspace": workspace}
    if given:
        backward = partial(norm.backward_inference, arrays["diff_dst"], src, *given, scale, **common)
    else:
        backward = partial(norm.backward_training, arrays["diff_dst"], src, scale, **common)
    return Prepared(backward, name, nbytes, outputs=_gradients)


def _statistics(result):
    return {"mean": result[1].ravel(), "variance": result[2].ravel()}


def _gradients(result):
    return {"diff_scale": result.diff_scale.ravel(), "diff_shift": result.diff_shift.ravel()}
