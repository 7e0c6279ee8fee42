"""The arrays of a problem, in its memory layout, and what fills them."""

import math

import numpy as np

from benchmarks.problems import DIGITS, Unsupported

_ALIGNMENT = 64
_PATTERN = 1 << 20


def aligned_empty(shape, dtype):
    """An uninitialized C-contiguous array that starts on a cache line."""
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def allocate(problem, side="src"):
    """A zeroed array of the problem, each page touched.

    Plain and channels-last tensors are (N, C, spatial...) views of their memory; blocked ones are
    (N, ceil(C / b), spatial..., b). `side`, "src" or "dst", chooses among the two halves of --strides.
    """
    layout, shape = problem.layout, problem.shape
    strides = _strides(problem, side)
    if strides:
        extent = (
            1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
            if min(shape)
            else 0
        )
        memory = aligned_empty((extent,), problem.dtype)
        memory.fill(0)
        steps = [stride * problem.dtype.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(memory, shape, steps)
    if layout.block:
        shape = (shape[0], -(-shape[1] // layout.block), *shape[2:], layout.block)
        order = tuple(range(len(shape)))
    else:
        order = layout.order
    memory = aligned_empty([shape[axis] for axis in order], problem.dtype)
    memory.fill(0)
    return memory.transpose(np.argsort(order))


def _strides(problem, side):
    if not problem.strides:
        return None
    text = problem.strides.split(":")[side == "dst"]
    strides = [int(stride) for stride in text.split("x")] if text else None
    if strides and len(strides) != len(problem.shape):
        raise Unsupported(f"strides {problem.strides}: {len(problem.shape)} dimensions are expected")
    return strides


def logical(array, problem):
    """(N, C, spatial...) from an array of the problem: a view, or of a blocked one a copy without padding."""
    if not problem.layout.block:
        return array
    n, blocks, *spatial, block = array.shape
    return np.moveaxis(array, -1, 2).reshape(n, blocks * block, *spatial)[:, : problem.shape[1]]


def store(array, values, problem):
    """Write (N, C, spatial...) `values` into an array of the problem."""
    if not problem.layout.block:
        array[...] = values
        return
    n, blocks, *spatial, block = array.shape
    padded = np.zeros((n, blocks * block, *spatial), array.dtype)
    padded[:, : problem.shape[1]] = values
    array[...] = np.moveaxis(padded.reshape(n, blocks, block, *spatial), 2, -1)


def make(problem, fill):
    """All arrays of a problem, filled by `fill`, keyed by oneDNN's names of the arguments.

    Parameters
    ----------
    problem : Problem
    fill : callable
        ``fill(problem, name)`` gives the values of an input: src, src_1 and diff_dst as (N, C, spatial...),
        mean, variance, scale and shift as vectors over the channels.

    Returns
    -------
    dict of str to ndarray
    """
    arrays = {"src": allocate(problem)}
    store(arrays["src"], fill(problem, "src"), problem)
    arrays["dst"] = arrays["src"] if problem.inplace and problem.is_forward else allocate(problem, "dst")
    if not problem.is_forward:
        arrays["diff_dst"] = allocate(problem, "dst")
        store(arrays["diff_dst"], fill(problem, "diff_dst"), problem)
        arrays["diff_src"] = arrays["diff_dst"] if problem.inplace else allocate(problem)
    if problem.driver == "lrn":
        return arrays
    if "A" in problem.flags:
        arrays["src_1"] = allocate(problem, "dst")
        store(arrays["src_1"], fill(problem, "src_1"), problem)
    channels = problem.shape[1]
    parameter = np.float64 if problem.dtype == np.float64 else np.float32
    for name in ("mean", "variance", "scale", "shift", "diff_scale", "diff_shift"):
        arrays[name] = np.zeros(channels, parameter)
    if "G" in problem.flags:
        arrays["mean"][:], arrays["variance"][:] = fill(problem, "mean"), fill(problem, "variance")
    for flag, name in (("C", "scale"), ("H", "shift")):
        if flag in problem.flags:
            arrays[name][:] = fill(problem, name)
        else:
            arrays[name] = None
    return arrays


def random_fill(problem, name):
    """Normally distributed tensors, which repeat after a million values, and parameters about one."""
    seed = ["src", "src_1", "diff_dst", "mean", "variance", "scale", "shift"].index(name)
    generator = np.random.default_rng(seed)
    if name in ("mean", "shift"):
        return 0.5 * generator.standard_normal(problem.shape[1])
    if name in ("variance", "scale"):
        return generator.uniform(0.5, 1.5, problem.shape[1])
    spread = 32 if problem.dtype == np.int8 else 1
    pattern = spread * generator.standard_normal(_PATTERN, np.float32)
    return np.resize(pattern.astype(problem.dtype), problem.shape)


def benchdnn_fill(problem, name):
    """benchdnn's own values for its correctness mode.

    LRN: small integers. Batch normalization: values about a mean that is a power of two, such that mean and
    variance come out exact in any order of summation; where too many are summed for that, most are zero.
    The sparse diff_dst has benchdnn's distribution, not its very sequence.
    """
    if problem.driver == "lrn":
        step, start = {"src": (1091, 1637), "diff_dst": (1279, 1009)}[name]
        index = np.arange(math.prod(problem.shape), dtype=np.int64)
        return ((step * index + start) % 16 - 8).reshape(problem.shape)
    return _batch_norm_fill(problem, name)


def _batch_norm_fill(problem, name):
    mb, channels, *spatial = problem.shape
    given = "G" in problem.flags
    channel = np.arange(channels)
    power = 2.0 ** (channel % 7)
    alg, flex_bits, density = _exactness(problem)
    mean = 0.25 * power if alg == 1 or given else np.zeros(channels)
    match name:
        case "mean":
            return mean
        case "variance":
            return 2.0 * (channel % 7)
        case "scale":
            return power * (1 if given else 1 / 8)
        case "shift":
            return (channel % 3 - 1) * power * (1 if given else 1 / 512)
        case "diff_dst":
            generator = np.random.default_rng(1)
            nonzero = generator.random(problem.shape) < max(
                0.05, min(1.0, 20 / max(1, math.prod(problem.shape)))
            )
            return np.where(nonzero, generator.integers(-2, 3, problem.shape), 0)
    points = math.prod(spatial)
    number = np.arange(mb)[:, None, None] * points + channel[:, None] * 478 + np.arange(points)
    mean = mean[:, None]
    if given:
        src = (number % 65 - 32).astype(np.float64)
    else:
        sign = np.where(number % 2 == 0, 1, -1)
        fraction = sign * ((number // 2 * 1637) & ((1 << flex_bits) - 1)) / float(1 << flex_bits)
        if alg == 0:
            src = np.where(_coin(number // 2 * 257, density), fraction, 0.0)
        else:
            src = mean * (1 + fraction)
        if (mb * points) % 2 and points:
            src[-1, :, -1] = mean[:, 0]
    src = src.astype(problem.dtype)
    if name == "src_1":
        if given:
            src = number % 17 - 8
        else:
            exponent = (np.arange(mb)[:, None, None] + channel[:, None] + np.arange(points)) % 5
            src = np.where(src == 0, 1.0, np.where(src < mean, -1.0, 1.0) / (2.0 * 2.0**exponent))
    return src.reshape(problem.shape)


def _exactness(problem):
    """(algorithm, bits that may vary, density): algorithm 1 has means of 2^x, 0 has zero means and zeros."""
    exact_bits = DIGITS[problem.dt]
    count = max(1, problem.shape[0] * math.prod(problem.shape[2:]))
    free_bits = int((exact_bits - math.ceil(math.log2(count))) / 2 - 1)
    asked = {"alg_0": 0, "alg_1": 1}.get(problem.check_alg)
    alg = (1 if free_bits >= 3 else 0) if asked is None else asked
    if alg == 1:
        return 1, max(min(exact_bits, free_bits), 1), 1.0
    flex_bits = min(6, exact_bits // 2)
    return 0, flex_bits, 2.0 ** (exact_bits - 2 * flex_bits) / count


def _coin(seed, probability):
    return seed * 753737 % 1000003 < probability * 1000003
