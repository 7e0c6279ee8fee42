"""PyTorch: its local_response_norm and the native batch norm, into given outputs where it can."""

import importlib.util

import numpy as np

from benchmarks.peers import Prepared, Refused


def available():
    return importlib.util.find_spec("torch") is not None


def version():
    return _torch().__version__


def set_num_threads(count):
    _torch().set_num_threads(count)


def _torch():
    import torch

    return torch


def tensor(array):
    """A tensor on the memory of `array`; None for None."""
    if array is None:
        return None
    torch = _torch()
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def prepare(problem, arrays):
    """Prepare a problem; what PyTorch raises at its first run becomes a refusal."""
    if problem.layout.block:
        raise Refused("blocked layouts")
    try:
        prepared = (_lrn if problem.driver == "lrn" else _batch_norm)(problem, arrays)
        prepared.run()
    except (RuntimeError, TypeError, ValueError) as error:
        raise Refused(str(error).splitlines()[0][:80]) from error
    return prepared


def _lrn(problem, arrays):
    torch = _torch()
    values = problem.parameters
    if problem.alg == "WITHIN":
        raise Refused("within channel")
    if values["ls"] % 2 == 0:
        raise Refused("another window for even sizes")
    if len(problem.shape) < 3:
        raise Refused("no spatial axis")

    def forward(src):
        return torch.nn.functional.local_response_norm(
            src, values["ls"], values["alpha"], values["beta"], values["k"]
        )

    src = tensor(arrays["src"])
    name = "local_response_norm"
    if problem.is_forward:

        def run():
            with torch.no_grad():
                return forward(src)

        return Prepared(run, name)
    leaf = src.detach().requires_grad_()
    dst, diff_dst = forward(leaf), tensor(arrays["diff_dst"])
    return Prepared(lambda: torch.autograd.grad(dst, leaf, diff_dst, retain_graph=True), name)


def _batch_norm(problem, arrays):
    torch = _torch()
    if problem.inplace:
        raise Refused("in place")
    tensors = {name: tensor(array) for name, array in arrays.items()}
    src, dst = tensors["src"], tensors["dst"]
    # Absent parameters are given as ones and zeros: without them there is no gradient with given outputs.
    scale = torch.ones(problem.shape[1]) if tensors["scale"] is None else tensors["scale"]
    shift = torch.zeros(problem.shape[1]) if tensors["shift"] is None else tensors["shift"]
    given, epsilon, add = "G" in problem.flags, problem.parameters["eps"], tensors.get("src_1")
    running = (tensors["mean"], tensors["variance"]) if given else (None, None)
    save_mean, save_rstd = (torch.empty(0 if given else problem.shape[1]) for _ in range(2))
    forward_out, backward_out = (
        torch.ops.aten.native_batch_norm.out,
        torch.ops.aten.native_batch_norm_backward.out,
    )

    def forward():
        with torch.no_grad():
            forward_out(
                src,
                scale,
                shift,
                *running,
                not given,
                0.1,
                epsilon,
                out=dst,
                save_mean=save_mean,
                save_invstd=save_rstd,
            )
            if add is not None:
                dst.add_(add)
            if problem.relu:
                dst.relu_()

    forward()
    if problem.is_forward:
        return Prepared(forward, "native_batch_norm")
    diff_src, diff_dst = tensors["diff_src"], tensors["diff_dst"]
    diff_scale, diff_shift = tensors["diff_scale"], tensors["diff_shift"]

    def backward():
        gradient = torch.ops.aten.threshold_backward(diff_dst, dst, 0) if problem.relu else diff_dst
        backward_out(
            gradient,
            src,
            scale,
            *running,
            save_mean,
            save_rstd,
            not given,
            epsilon,
            [True] * 3,
            out0=diff_src,
            out1=diff_scale,
            out2=diff_shift,
        )

    return Prepared(backward, "native_batch_norm_backward")
