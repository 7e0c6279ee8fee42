"""What the operators mean, in plain NumPy: the oracle of the tests.

Every function works on canonical arrays, ``(N, C, *spatial)``, and computes in a format wider than its
input: float64 for float32, float16 and bfloat16, extended precision for float64. `to_canonical` and
`from_canonical` translate from and to every memory layout. Nothing here is fast, and nothing here is shared
with the library.
"""

import math
import re

import numpy as np

# ------------------------------------------------------------------------------------------------------------
# Numbers

try:
    import ml_dtypes
except ImportError:
    DTYPES = tuple(map(np.dtype, ("float32", "float64", "float16")))
    finfo = np.finfo
else:
    DTYPES = tuple(map(np.dtype, ("float32", "float64", "float16", ml_dtypes.bfloat16)))
    finfo = ml_dtypes.finfo


def wide(array):
    """`array` in the format the oracle computes in."""
    array = np.asarray(array)
    return array.astype(np.longdouble if array.dtype in (np.float64, np.longdouble) else np.float64)


def compute_dtype(dtype):
    """The type that arithmetic on `dtype` is done in: float64 for float64, float32 for all others."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def ulp(value, dtype):
    """The distance between neighbours of `dtype` at `value`; for subnormals, the smallest of them."""
    info = finfo(dtype)
    value = wide(value)
    _, exponent = np.frexp(value)
    exponent = np.where(value == 0, info.minexp, np.maximum(exponent - 1, info.minexp))
    return np.ldexp(np.ones_like(value), exponent - info.nmant)


def tolerance(expected, magnitude, dtype, ulps):
    """`ulps` of `magnitude` in the type computed in; half types, rounded once more, 1 ulp of their own.

    Where terms of that magnitude cancel, the type that half types are computed in bounds them too.
    """
    computed = ulps * ulp(magnitude, compute_dtype(dtype))
    if dtype.itemsize == 2:
        return np.maximum(ulp(expected, dtype), computed + ulp(expected, dtype) / 2)
    return computed


def loose_tolerance(magnitude, dtype, steps):
    """`steps` ulp of `magnitude` in the type computed in, and 1 ulp of `dtype` for its rounding."""
    return steps * ulp(magnitude, compute_dtype(dtype)) + ulp(magnitude, dtype)


def assert_within(got, expected, tolerance, what="result"):
    """Every element of `got` lies within `tolerance` of `expected`; NaN is near NaN only."""
    dtype = got.dtype
    got = wide(got)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    # An infinity counts as the first power of two that overflows, so that rounding up to it is no error.
    top = np.ldexp(got.dtype.type(1), int(finfo(dtype).maxexp))
    got, expected = np.clip(got, -top, top), np.clip(expected, -top, top)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - expected) <= np.broadcast_to(tolerance, got.shape)
    wrong = ~(near | (np.isnan(got) & np.isnan(expected)))
    if wrong.any():
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = np.where(wrong, np.abs(got - expected) / tolerance, 0)
        worst = np.unravel_index(np.argmax(np.where(np.isnan(excess), np.inf, excess)), got.shape)
        raise AssertionError(
            f"{what}: {wrong.sum()} of {wrong.size} elements wrong; at {tuple(map(int, worst))} "
            f"got {got[worst]!r}, expected {expected[worst]!r}, {excess[worst]:.3g} times the tolerance"
        )


# ------------------------------------------------------------------------------------------------------------
# Layouts

PLAIN = ("NC", "NCW", "NCHW", "NCDHW")
CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")
BLOCKED = ("nCw8c", "nChw8c", "nCdhw8c", "nCw16c", "nChw16c", "nCdhw16c")
LAYOUTS = PLAIN + CHANNELS_LAST + BLOCKED


def spatial_ndim(layout):
    """How many spatial axes a layout has."""
    return len(re.sub(r"[^WHD]", "", layout.upper()))


def block_size(layout):
    """How many channels a block of the layout holds; 0 when it is not blocked."""
    digits = re.sub(r"\D", "", layout)
    return int(digits) if digits else 0


def to_canonical(array, layout, channels=None):
    """``(N, C, *spatial)`` from an array in `layout`; the padding of a blocked one is dropped."""
    if layout in PLAIN:
        return array
    if layout in CHANNELS_LAST:
        return np.moveaxis(array, -1, 1)
    lanes = np.moveaxis(array, -1, 2)
    n, blocks, block, *spatial = lanes.shape
    return lanes.reshape(n, blocks * block, *spatial)[:, :channels]


def from_canonical(array, layout, padding=0.0):
    """An array in `layout`, and so in memory, from ``(N, C, *spatial)``; lanes beyond C of blocks hold `padding`."""
    if layout in PLAIN:
        return array
    if layout in CHANNELS_LAST:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1))
    block = block_size(layout)
    n, channels, *spatial = array.shape
    blocks = -(-channels // block)
    lanes = np.full((n, blocks * block, *spatial), padding, array.dtype)
    lanes[:, :channels] = array
    return np.ascontiguousarray(np.moveaxis(lanes.reshape(n, blocks, block, *spatial), 2, -1))


# ------------------------------------------------------------------------------------------------------------
# Local response normalization


def window_reach(local_size, window):
    """How far the window of an element reaches to its left and to its right."""
    if local_size % 2:
        return (local_size - 1) // 2, (local_size - 1) // 2
    half = local_size // 2
    return {"onednn": (half - 1, half - 1), "onnx": (half - 1, half), "torch": (half, half - 1)}[window]


def window_sum(array, axes, left, right):
    """sum_{-left <= s <= right} array[i + s] along each of `axes`, clipped at the borders."""
    for axis in axes:
        extent = array.shape[axis]
        lines = np.moveaxis(array, axis, 0)
        total = np.zeros_like(lines)
        for shift in range(max(-left, -extent), min(right, extent) + 1):
            here = slice(max(0, -shift), max(0, extent - max(0, shift)))
            there = slice(max(0, shift), max(0, extent + min(0, shift)))
            total[here] += lines[there]
        array = np.moveaxis(total, 0, axis)
    return array


def window_axes(ndim, region):
    """The axes of a canonical array that the window extends over."""
    return (1,) if region == "across_channels" else tuple(range(2, ndim))


def lrn_coefficient(ndim, local_size, alpha, region, divisor):
    """alpha / divisor, where the divisor is by default the number of cells of the full window."""
    if divisor is None:
        divisor = local_size ** len(window_axes(ndim, region))
    return alpha / divisor


def lrn_omega(
    src,
    local_size=5,
    alpha=1e-4,
    beta=0.75,
    k=1.0,
    *,
    region="across_channels",
    window="onednn",
    divisor=None,
):
    """omega_i = k + (alpha / divisor) * sum_{j in W(i)} src_j^2"""
    src = wide(src)
    coefficient = lrn_coefficient(src.ndim, local_size, alpha, region, divisor)
    left, right = window_reach(local_size, window)
    return k + coefficient * window_sum(src**2, window_axes(src.ndim, region), left, right)


def lrn_forward(src, **parameters):
    """dst_i = src_i * omega_i^-beta"""
    omega = lrn_omega(src, **parameters)
    with np.errstate(all="ignore"):
        return wide(src) * omega ** -parameters.get("beta", 0.75)


def lrn_backward_terms(
    diff_dst,
    src,
    local_size=5,
    alpha=1e-4,
    beta=0.75,
    k=1.0,
    *,
    region="across_channels",
    window="onednn",
    divisor=None,
    dst=None,
):
    """The two terms of diff_src, which is the first minus the second, and the magnitude of what is summed:

        c           = 2 * alpha * beta / divisor
        first_i     = diff_dst_i * omega_i^-beta
        second_i    = c * src_i * sum_{j: i in W(j)} t_j
        magnitude_i = |first_i| + |c * src_i| * sum_{j: i in W(j)} |t_j|
        t_j         = diff_dst_j * src_j * omega_j^(-beta-1), or diff_dst_j * dst_j / omega_j where dst is given (TensorFlow)

    j runs over the mirrored window.
    """
    omega = lrn_omega(src, local_size, alpha, beta, k, region=region, window=window, divisor=divisor)
    src, diff_dst = wide(src), wide(diff_dst)
    coefficient = 2 * beta * lrn_coefficient(src.ndim, local_size, alpha, region, divisor)
    left, right = window_reach(local_size, window)
    axes = window_axes(src.ndim, region)
    with np.errstate(all="ignore"):
        exponent = -omega.dtype.type(beta) - 1  # which double would round
        summand = diff_dst * src * omega**exponent if dst is None else diff_dst * wide(dst) / omega
        first = diff_dst * omega**-beta
        second = coefficient * src * window_sum(summand, axes, right, left)
        magnitude = np.abs(first) + np.abs(coefficient * src) * window_sum(np.abs(summand), axes, right, left)
    return first, second, magnitude


def lrn_backward(diff_dst, src, **parameters):
    """diff_src_i = diff_dst_i * omega_i^-beta
    - (2 * alpha * beta / divisor) * src_i * sum_{j: i in W(j)} diff_dst_j * src_j * omega_j^(-beta-1)
    """
    first, second, _ = lrn_backward_terms(diff_dst, src, **parameters)
    with np.errstate(invalid="ignore"):
        return first - second


# ------------------------------------------------------------------------------------------------------------
# Batch normalization: statistics over the axes `axes`, parameters with those axes kept at size 1


def batch_norm_statistics(src, axes):
    """mean = sum(src) / M, variance = sum((src - mean)^2) / M, over M elements each; 0 for an empty sum."""
    src = wide(src)
    count = math.prod(src.shape[axis] for axis in axes)
    mean = src.sum(axes, keepdims=True) / max(count, 1)
    # A second pass over the residuals removes the rounding of the first.
    mean = mean + (src - mean).sum(axes, keepdims=True) / max(count, 1)
    variance = ((src - mean) ** 2).sum(axes, keepdims=True) / max(count, 1)
    return mean, variance


def batch_norm_apply(src, mean, variance, scale=1.0, shift=0.0, *, epsilon=1e-5, add=0.0):
    """scale * (src - mean) / sqrt(variance + epsilon) + shift + add, and the magnitude of its terms."""
    normalized = (wide(src) - wide(mean)) / np.sqrt(wide(variance) + epsilon)
    product, shift, add = wide(scale) * normalized, wide(shift), wide(add)
    return product + shift + add, np.abs(product) + np.abs(shift) + np.abs(add)


def batch_norm_training(src, axes, scale=1.0, shift=0.0, *, epsilon=1e-5, add=0.0):
    """The value before the activation, with the batch's own statistics: (value, mean, variance)."""
    mean, variance = batch_norm_statistics(src, axes)
    value, _ = batch_norm_apply(src, mean, variance, scale, shift, epsilon=epsilon, add=add)
    return value, mean, variance


def batch_norm_backward(diff_dst, src, axes, mean, variance, scale=1.0, *, epsilon=1e-5, training=True):
    """The gradients (diff_src, diff_scale, diff_shift), and the magnitudes of what is summed in each:

        diff_shift = sum(diff_dst)
        diff_scale = sum(diff_dst * (src - mean)) * rstd
        training:  diff_src = scale * rstd * (diff_dst - diff_shift/M - (src - mean) * rstd * diff_scale/M)
        inference: diff_src = scale * rstd * diff_dst

    `diff_dst` is the gradient before the activation: `activation_gradient` times the incoming one.
    """
    src, diff_dst, scale = wide(src), wide(diff_dst), wide(scale)
    rstd = 1 / np.sqrt(wide(variance) + epsilon)
    count = max(math.prod(src.shape[axis] for axis in axes), 1)
    normalized = (src - wide(mean)) * rstd
    products = diff_dst * normalized
    diff_shift = diff_dst.sum(axes, keepdims=True)
    diff_scale = products.sum(axes, keepdims=True)
    terms = [diff_dst]
    if training:
        terms += [-diff_shift / count, -normalized * diff_scale / count]
    gradients = scale * rstd * sum(terms), diff_scale, diff_shift
    magnitudes = (
        np.abs(scale * rstd) * sum(map(np.abs, terms)),
        np.abs(products).sum(axes, keepdims=True),
        np.abs(diff_dst).sum(axes, keepdims=True),
    )
    return gradients, magnitudes


# ------------------------------------------------------------------------------------------------------------
# Activations, as DirectML defines them


def activation(name, x, *, alpha=None, beta=None, gamma=None, steepness=None, bias=None, threshold=None):
    """The activation `name` of x."""
    x = wide(x)
    with np.errstate(over="ignore"):
        match name:
            case None | "identity":
                return x
            case "relu":
                return np.maximum(x, 0)
            case "elu":
                return np.where(x >= 0, x, alpha * np.expm1(x))
            case "celu":
                return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))
            case "scaled_elu":
                return gamma * np.where(x > 0, x, alpha * np.expm1(x))
            case "hard_sigmoid":
                return np.clip(alpha * x + beta, 0, 1)
            case "leaky_relu":
                return np.where(x >= 0, x, alpha * x)
            case "linear":
                return alpha * x + beta
            case "parametric_softplus":
                return alpha * np.logaddexp(0, beta * x)
            case "scaled_tanh":
                return alpha * np.tanh(beta * x)
            case "sigmoid":
                return 1 / (1 + np.exp(-x))
            case "softplus":
                return np.logaddexp(0, steepness * x) / steepness
            case "softsign":
                return x / (1 + np.abs(x))
            case "tanh":
                return np.tanh(x)
            case "thresholded_relu":
                return np.where(x > alpha, x, 0)
            case "shrink":
                return np.where(x > threshold, x - bias, np.where(x < -threshold, x + bias, 0))
    raise ValueError(name)


def activation_gradient(
    name, x, *, alpha=None, beta=None, gamma=None, steepness=None, bias=None, threshold=None
):
    """The derivative of `activation` at x."""
    x = wide(x)
    one, zero = np.ones_like(x), np.zeros_like(x)
    with np.errstate(over="ignore"):
        match name:
            case None | "identity":
                return one
            case "relu":
                return np.where(x > 0, one, zero)
            case "elu":
                return np.where(x >= 0, one, alpha * np.exp(x))
            case "celu":
                return np.where(x >= 0, one, np.exp(x / alpha))
            case "scaled_elu":
                return gamma * np.where(x > 0, one, alpha * np.exp(x))
            case "hard_sigmoid":
                inside = alpha * x + beta
                return np.where((inside > 0) & (inside < 1), alpha * one, zero)
            case "leaky_relu":
                return np.where(x >= 0, one, alpha * one)
            case "linear":
                return alpha * one
            case "parametric_softplus":
                return alpha * beta / (1 + np.exp(-beta * x))
            case "scaled_tanh":
                return alpha * beta * (1 - np.tanh(beta * x) ** 2)
            case "sigmoid":
                return 1 / (1 + np.exp(-x)) / (1 + np.exp(x))
            case "softplus":
                return 1 / (1 + np.exp(-steepness * x))
            case "softsign":
                return 1 / (1 + np.abs(x)) ** 2
            case "tanh":
                return 1 - np.tanh(x) ** 2
            case "thresholded_relu":
                return np.where(x > alpha, one, zero)
            case "shrink":
                return np.where(np.abs(x) > threshold, one, zero)
    raise ValueError(name)
