"""Correctness: what a library computed, against the float64 oracle of the tests.

Two yardsticks. benchdnn's: its fill, its thresholds. The project's: random values, and a tolerance in
units of the last place (ulp) of the output's type at the magnitude of the terms that make up the result.
"""

import functools
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import tensors
from benchmarks.problems import DIGITS

_ORACLE = Path(__file__).parent.parent / "tests" / "reference.py"
_CHUNK = 1 << 22


@dataclass
class Result:
    """How one output compares.

    Attributes
    ----------
    output : str
        dst, mean, diff_src, ...
    wrong, total : int
        Elements outside the threshold, elements in all.
    ulp : float
        The largest error in ulp at the magnitude of the terms.
    """

    output: str
    wrong: int
    total: int
    ulp: float


@functools.cache
def oracle():
    """The module tests/reference.py of the checkout."""
    if not _ORACLE.exists():
        raise FileNotFoundError(f"the float64 oracle {_ORACLE} is part of the source checkout")
    spec = importlib.util.spec_from_file_location("cynorm_reference", _ORACLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exact(problem, arrays, part):
    """The outputs of a problem in float64: name -> (value, magnitude of its terms), for a part of the tensor.

    `part` indexes (N, C, spatial...): some images for LRN, some channels for batch normalization.
    """
    views = {
        name: tensors.logical(array, problem)[part]
        for name, array in arrays.items()
        if name in ("src", "src_1", "dst", "diff_dst", "diff_src")
    }
    return (_exact_lrn if problem.driver == "lrn" else _exact_batch_norm)(problem, arrays, views, part)


def _exact_lrn(problem, arrays, views, part):
    values = problem.parameters
    parameters = {
        "local_size": values["ls"],
        "alpha": values["alpha"],
        "beta": values["beta"],
        "k": values["k"],
        "region": problem.region,
    }
    if problem.is_forward:
        dst = oracle().lrn_forward(views["src"], **parameters)
        return {"dst": (dst, np.abs(dst))}
    first, second, magnitude = oracle().lrn_backward_terms(views["diff_dst"], views["src"], **parameters)
    return {"diff_src": (first - second, magnitude)}


def _exact_batch_norm(problem, arrays, views, part):
    reference, epsilon = oracle(), problem.parameters["eps"]
    axes = (0, *range(2, len(problem.shape)))
    keep = (1, -1) + (1,) * (len(problem.shape) - 2)
    vectors = {
        name: np.asarray(arrays[name], np.float64)[part[1]].reshape(keep)
        for name in ("mean", "variance", "scale", "shift")
        if arrays[name] is not None
    }
    scale, shift = vectors.get("scale", 1.0), vectors.get("shift", 0.0)
    given = "G" in problem.flags
    mean, variance = vectors["mean"], vectors["variance"]
    if not given:
        mean, variance = reference.batch_norm_statistics(views["src"], axes)
    if problem.is_forward:
        add = views.get("src_1", 0.0)
        dst, magnitude = reference.batch_norm_apply(
            views["src"], mean, variance, scale, shift, epsilon=epsilon, add=add
        )
        results = {"dst": (np.maximum(dst, 0) if problem.relu else dst, magnitude)}
        if not given and problem.direction != "FWD_I":
            results |= {
                "mean": (mean.ravel(), np.abs(mean.ravel())),
                "variance": (variance.ravel(), variance.ravel()),
            }
        return results
    diff_dst = reference.wide(views["diff_dst"])
    if problem.relu:
        diff_dst = np.where(views["dst"] > 0, diff_dst, 0)
    gradients, magnitudes = reference.batch_norm_backward(
        diff_dst, views["src"], axes, mean, variance, scale, epsilon=epsilon, training=not given
    )
    results = {"diff_src": (gradients[0], magnitudes[0])}
    if problem.with_parameter_gradients:
        for name, flag, gradient, magnitude in zip(
            ("diff_scale", "diff_shift"), "CH", gradients[1:], magnitudes[1:], strict=True
        ):
            if flag in problem.flags:
                results[name] = (gradient.ravel(), magnitude.ravel())
    return results


def parts(problem, most=_CHUNK):
    """Index tuples that cut a problem into pieces of about `most` elements, for the oracle one by one."""
    axis = 0 if problem.driver == "lrn" else 1
    extent = problem.shape[axis]
    step = max(1, most * extent // max(1, math.prod(problem.shape)))
    for start in range(0, extent, step):
        yield (slice(None),) * axis + (slice(start, start + step),)


def _output(name, problem, arrays, part):
    if arrays[name].ndim == 1 and problem.driver == "bnorm":
        return arrays[name][part[1]]
    return tensors.logical(arrays[name], problem)[part]


def inputs(problem, arrays):
    """`arrays` with copies of what a run in place overwrites, to be taken before the run."""
    return arrays | {
        name: arrays[name].copy() for name in ("src", "diff_dst") if problem.inplace and name in arrays
    }


def restore(problem, given, arrays):
    """Put back what preparing a problem in place has overwritten."""
    for name in ("src", "diff_dst") if problem.inplace else ():
        if name in arrays:
            arrays[name][...] = given[name]


def error_in_ulp(problem, given, arrays, most=_CHUNK):
    """The largest error of all outputs in `arrays`, in ulp, over the first `most` elements."""
    worst = 0.0
    part = next(parts(problem, most), None)
    for name, (expected, magnitude) in exact(problem, given, part).items() if part else ():
        worst = max(worst, _ulp(_output(name, problem, arrays, part), expected, magnitude).max(initial=0.0))
    return float(worst)


def _ulp(got, expected, magnitude):
    dtype, expected = got.dtype, np.asarray(expected, np.float64)
    if dtype == np.int8:
        return np.abs(got - np.clip(np.rint(expected), -128, 127))
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - expected) / oracle().ulp(magnitude, dtype).astype(np.float64)
    return np.where(np.isnan(error), np.inf, error)


def tolerance(problem, name):
    """The project's own bound on an output, in ulp at the magnitude of its terms."""
    if problem.dt in ("f16", "bf16") and name in ("dst", "diff_src"):
        return 1.0
    if problem.driver == "bnorm":
        return {"mean": 2.0, "variance": 2.0, "dst": 1.0 if problem.dt == "s8" else 4.0}.get(name, 16.0)
    axes = 1 if problem.alg == "ACROSS" else len(problem.shape) - 2
    window = problem.parameters["ls"] ** axes
    growth = max(1.0, math.log2(max(window, 1)) / 4)
    return (4.0 if problem.is_forward else 8.0) * growth


def compare_own(problem, given, arrays):
    """Results of the comparison by the project's tolerances."""
    counts = {}
    for part in parts(problem):
        for name, (expected, magnitude) in exact(problem, given, part).items():
            error = _ulp(_output(name, problem, arrays, part), expected, magnitude)
            result = counts.setdefault(name, Result(name, 0, 0, 0.0))
            result.wrong += int((error > tolerance(problem, name)).sum())
            result.total += error.size
            result.ulp = max(result.ulp, float(error.max(initial=0.0)))
    return list(counts.values())


def threshold(problem, name):
    """benchdnn's threshold for an output: a relative error, or for backward batch norm one of the L2 norm."""
    if problem.driver == "lrn":
        axes = 1 if problem.alg == "ACROSS" else len(problem.shape) - 2
        epsilon = 2.0 ** (1 - DIGITS[problem.dt])
        return problem.parameters["ls"] ** axes * 3 * epsilon
    coefficient = 2.0 ** max(0, 24 - DIGITS[problem.dt])
    if name in ("diff_scale", "diff_shift"):
        return coefficient * 5e-6
    return coefficient * 6e-7 if name in ("dst", "diff_src") else 0.0


def compare_benchdnn(problem, given, arrays):
    """Results of the comparison by benchdnn's rules."""
    by_norm = problem.driver == "bnorm" and not problem.is_forward
    counts, norms = {}, {}
    for part in parts(problem):
        for name, (expected, magnitude) in exact(problem, given, part).items():
            got = _output(name, problem, arrays, part)
            result = counts.setdefault(name, Result(name, 0, 1 if by_norm else 0, 0.0))
            result.ulp = max(result.ulp, float(_ulp(got, expected, magnitude).max(initial=0.0)))
            got, expected = got.astype(np.float64), _rounded(expected, got.dtype)
            if by_norm:
                sums = norms.setdefault(name, np.zeros(2))
                sums += ((got - expected) ** 2).sum(), (expected**2).sum()
                continue
            result.wrong += int((~_close(problem, name, given, part, got, expected)).sum())
            result.total += got.size
    for name, (difference, norm) in norms.items():
        counts[name].wrong = int(
            not math.sqrt(difference) <= threshold(problem, name) * math.sqrt(norm or 1.0)
        )
    return list(counts.values())


def _rounded(expected, dtype):
    if dtype == np.int8:
        expected = np.clip(np.rint(expected), -128, 127)
    with np.errstate(over="ignore"):
        return np.asarray(expected).astype(dtype).astype(np.float64)


def _close(problem, name, given, part, got, expected):
    limit = threshold(problem, name)
    difference, size = np.abs(got - expected), np.abs(expected)
    with np.errstate(invalid="ignore", divide="ignore"):
        close = difference <= limit * np.where(size > 1e-5, size, 1.0)
        close |= (size <= 1e-5) & (difference < np.finfo(np.float32).eps)
        if problem.dt == "f16":
            close |= (got == expected) | (np.isnan(got) & np.isnan(expected))
        if name == "dst" and problem.driver == "bnorm" and given["shift"] is not None:
            # Where the product cancels against the shift, the error of the product counts.
            shift = given["shift"][part[1]].reshape((-1,) + (1,) * (got.ndim - 2))
            product = np.abs(expected - shift)
            cancels = product > np.where(size > np.finfo(np.float32).tiny, size, 1.0)
            close |= cancels & (difference <= limit * np.where(product > 0, product, 1.0))
    return close
