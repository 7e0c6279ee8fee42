"""TensorFlow's LRN and fused batch normalization on NumPy arrays: ``tf.raw_ops``, argument by argument.

The operators take and return what ``tf.raw_ops.LRN``, ``LRNGrad``, ``FusedBatchNormV3`` and
``FusedBatchNormGradV3`` take and return, with their defaults, and word their complaints as TensorFlow's CPU
kernels do (as ValueError and TypeError). ``docs/conventions.md`` lists what differs: above all, inputs are
NumPy's arrays, of the types named and of no other, and numbers are finite; bfloat16, which TensorFlow's schema
lists but no CPU kernel of its LRN serves, runs; and half types are computed in float32 and rounded once,
whereas TensorFlow's LRN accumulates half in half.

`name` is accepted everywhere and has no effect. `out` and `num_threads` are this library's; `out` may be an
input itself; otherwise it must share no memory with an input.

Source: the pages of ``tf.raw_ops`` on tensorflow.org, and the CPU kernels' sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import cynorm
from cynorm._messages import shown
from cynorm._parameters import finite, flag, index, share
from cynorm._tensor import checked, remembered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cynorm._typing import Array

__all__ = [
    "FusedBatchNorm",
    "FusedBatchNormGrad",
    "fused_batch_norm",
    "fused_batch_norm_grad",
    "lrn",
    "lrn_grad",
]

_INT_MAX = 2**31 - 1
_DATA_FORMATS = ("NHWC", "NCHW", "NDHWC", "NCDHW")

# TensorFlow's names, for its error texts.
_TYPE_NAMES = {"float16": "half", "bfloat16": "bfloat16", "float32": "float", "float64": "double"}
_DATA_TYPES = ("float16", "bfloat16", "float32")
_PARAMETER_TYPES = ("float32",)

_FLOAT = np.dtype(np.float32)
# What an absent statistic is on the way in, and an unused reserve space on the way out.
_EMPTY = np.zeros(0, _FLOAT)


class FusedBatchNorm(NamedTuple):
    """Outputs of :func:`fused_batch_norm`."""

    y: Array
    batch_mean: Array
    batch_variance: Array
    reserve_space_1: Array
    reserve_space_2: Array
    reserve_space_3: Array


class FusedBatchNormGrad(NamedTuple):
    """Outputs of :func:`fused_batch_norm_grad`."""

    x_backprop: Array
    scale_backprop: Array
    offset_backprop: Array
    reserve_space_4: Array
    reserve_space_5: Array


def lrn(
    input: Array,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
    *,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """``tf.raw_ops.LRN``: local response normalization across the last axis.

    ``output = input / (bias + alpha * sqr_sum) ** beta``, where ``sqr_sum`` adds the squares of the
    `depth_radius` channels on either side and of the channel itself; alpha is not divided by their number.

    Parameters
    ----------
    input : (N, H, W, C) array of float16, bfloat16 or float32
        4-D input, in any memory order.
    depth_radius : int
        0 or more, below 2**31 - 1; beyond C every channel sums all.
    bias, alpha, beta : float
        Offset, scale factor and exponent: finite.
    out : array, optional
        Where to write: shape and dtype of `input`; may be `input` itself.
    num_threads : int, optional
        As for :meth:`cynorm.LRN.forward`.

    Returns
    -------
    output : (N, H, W, C) array
        `out`, or a new array in the memory order of `input`.

    Raises
    ------
    ValueError
        If `input` is not 4-D ("in must be 4-dimensional"), `depth_radius` is negative or 2**31 - 1 and above
        ("depth_radius = -1 larger than int max"), another number is not finite, or `out` does not fit.
    TypeError
        If `input` has another dtype or is no NumPy array, or an argument is of another kind.

    Examples
    --------
    >>> import numpy as np
    >>> lrn(np.float32([[[[1, 2, 3]]]]), depth_radius=1, beta=1).round(3)
    array([[[[0.167, 0.133, 0.214]]]], dtype=float32)
    """
    _verify_lrn((input, out))
    return _lrn(depth_radius, bias, alpha, beta).forward(input, out, num_threads=num_threads)


def lrn_grad(
    input_grads: Array,
    input_image: Array,
    output_image: Array,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
    *,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """``tf.raw_ops.LRNGrad``: the gradient of :func:`lrn`.

    As in TensorFlow, the normalizer is computed from `input_image`, but the second term uses `output_image`
    as it is given::

        norm = bias + alpha * sqr_sum(input_image)
        output[k] = sum(
            input_grads[j] * ((j == k) * norm[j] ** -beta
                              - 2 * alpha * beta * input_image[k] * output_image[j] / norm[j])
            for j in the window of k
        )

    Parameters
    ----------
    input_grads, input_image, output_image : (N, H, W, C) array of float16, bfloat16 or float32
        The incoming gradient, what :func:`lrn` was given and what it returned; each may have its own memory
        order.
    depth_radius, bias, alpha, beta
        As in :func:`lrn`.
    out : array, optional
        Where to write: shape and dtype of `input_grads`; may be one of the three inputs itself.
    num_threads : int, optional
        As for :meth:`cynorm.LRN.backward`.

    Returns
    -------
    output : (N, H, W, C) array
        The gradient of `input_image`.

    Raises
    ------
    ValueError
        "inputs must be 4-dimensional", "input_grads, input_image, and out_image should have the same
        shape", or as :func:`lrn` for numbers and `out`.
    TypeError
        If the dtypes differ or are others, or as :func:`lrn`.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.float32([[[[1, 2, 3]]]])
    >>> lrn_grad(x, x, lrn(x, 1, beta=1), 1, beta=1).round(3)
    array([[[[ 0.076, -0.233, -0.168]]]], dtype=float32)
    """
    _verify_lrn_grad((input_grads, input_image, output_image, out))
    op = _lrn(depth_radius, bias, alpha, beta)
    return op.backward(input_grads, input_image, out, dst=output_image, num_threads=num_threads)


def fused_batch_norm(
    x: Array,
    scale: Array,
    offset: Array,
    mean: Array | None = None,
    variance: Array | None = None,
    epsilon: float = 0.0001,
    exponential_avg_factor: float = 1.0,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
    *,
    out: Array | None = None,
    num_threads: int | None = None,
) -> FusedBatchNorm:
    """``tf.raw_ops.FusedBatchNormV3``: batch normalization, training or inference.

    Parameters
    ----------
    x : 4-D or 5-D array of float16, bfloat16 or float32
        Input, its axes as `data_format` says, in any memory order.
    scale, offset : (C,) float32 array
        Scale and offset of the normalized `x`.
    mean, variance : (C,) float32 array, optional
        Inference: the population statistics. Training with ``exponential_avg_factor != 1``: the running
        statistics, which the results continue. Otherwise unused, and may be None or empty.
    epsilon : float
        Added to the variance: finite, at least 0.
    exponential_avg_factor : float
        Share of this batch in `batch_mean` and `batch_variance`, in training: within [0, 1].
    data_format : {"NHWC", "NCHW", "NDHWC", "NCDHW"}
        Meaning of the axes.
    is_training : bool
        Training (the statistics of `x`) or inference (`mean` and `variance`).
    out : array, optional
        Where to write `y`: shape and dtype of `x`; may be `x` itself.
    num_threads : int, optional
        As for :class:`cynorm.BatchNorm`.

    Returns
    -------
    y : array
        Shape and dtype of `x`.
    batch_mean, batch_variance : (C,) float32 array
        Training: ``(1 - f) * mean + f * m`` and ``(1 - f) * variance + f * v * M / max(M - 1, 1)``, f being
        `exponential_avg_factor`, M the number of elements per channel, m and v their mean and population
        variance: with Bessel's correction, ready to be kept as running statistics. NaN for an empty `x`.
        Inference: `mean` and `variance`.
    reserve_space_1, reserve_space_2 : (C,) float32 array
        Training: m and v, *without* the correction, for :func:`fused_batch_norm_grad`. Inference: `mean`
        and `variance`.
    reserve_space_3 : (0,) float32 array
        A placeholder, as TensorFlow's CPU kernels return, some of them with shape ().

    Raises
    ------
    TypeError, ValueError
        With TensorFlow's texts, such as "scale must have the same number of elements as the channels of x,
        got 3 and 4"; nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.float32([1, 3]).reshape(2, 1, 1, 1)
    >>> result = fused_batch_norm(x, np.float32([1]), np.float32([0]), epsilon=0)
    >>> result.y.ravel(), result.batch_variance, result.reserve_space_2
    (array([-1.,  1.], dtype=float32), array([2.], dtype=float32), array([1.], dtype=float32))
    """
    mean = _EMPTY if mean is None else mean
    variance = _EMPTY if variance is None else variance
    is_training = _bool("is_training", is_training)
    if type(exponential_avg_factor) is not float or not 0 <= exponential_avg_factor <= 1:
        exponential_avg_factor = _float("exponential_avg_factor", exponential_avg_factor, share)
    if not is_training:
        reads_statistics = "When is_training=false"
    elif exponential_avg_factor != 1:
        reads_statistics = "When exponential_avg_factor != 1"
    else:
        reads_statistics = ""
    arrays = x, scale, offset, mean, variance, out
    bn = _batch_norm(arrays, data_format, epsilon, reads_statistics)
    if not is_training:
        y = bn.forward_inference(x, mean, variance, scale, offset, out=out, num_threads=num_threads)
        return FusedBatchNorm(y, mean.copy(), variance.copy(), mean.copy(), variance.copy(), _EMPTY[:0])
    # Running statistics that take the whole of this batch are its own, with Bessel's correction.
    if reads_statistics:
        batch_mean, batch_variance = mean.copy(), variance.copy()
    else:
        batch_mean, batch_variance = np.zeros(scale.shape, _FLOAT), np.zeros(scale.shape, _FLOAT)
    y, saved_mean, saved_variance = bn.forward_training(
        x,
        scale,
        offset,
        out=out,
        running_mean=batch_mean,
        running_variance=batch_variance,
        momentum=exponential_avg_factor,
        num_threads=num_threads,
    )
    if not x.size:
        batch_mean.fill(np.nan)
        batch_variance.fill(np.nan)
    return FusedBatchNorm(y, batch_mean, batch_variance, saved_mean, saved_variance, _EMPTY[:0])


def fused_batch_norm_grad(
    y_backprop: Array,
    x: Array,
    scale: Array,
    reserve_space_1: Array,
    reserve_space_2: Array,
    reserve_space_3: Array | None = None,
    epsilon: float = 0.0001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
    *,
    out: Array | None = None,
    num_threads: int | None = None,
) -> FusedBatchNormGrad:
    """``tf.raw_ops.FusedBatchNormGradV3``: the gradient of :func:`fused_batch_norm`.

    Parameters
    ----------
    y_backprop, x : 4-D or 5-D array of float16, bfloat16 or float32
        The gradient of `y`, and what :func:`fused_batch_norm` was given.
    scale : (C,) float32 array
        What :func:`fused_batch_norm` was given.
    reserve_space_1, reserve_space_2 : (C,) float32 array
        What it returned under these names: mean and (population) variance of the batch in training, the
        population statistics in inference.
    reserve_space_3 : array, optional
        Unused, as on TensorFlow's CPU.
    epsilon, data_format, is_training
        As in :func:`fused_batch_norm`.
    out : array, optional
        Where to write `x_backprop`: shape and dtype of `x`; may be `y_backprop` itself.
    num_threads : int, optional
        As for :class:`cynorm.BatchNorm`.

    Returns
    -------
    x_backprop : array
        Shape and dtype of `x`. Training differentiates through the statistics; inference takes them as
        constants.
    scale_backprop, offset_backprop : (C,) float32 array
        The gradients of `scale` and `offset`.
    reserve_space_4, reserve_space_5 : (0,) float32 array
        Placeholders.

    Raises
    ------
    TypeError, ValueError
        With TensorFlow's texts, such as "reserve_space_1 must have the same number of elements as the
        channels of x, got 3 and 4"; nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.float32([1, 3]).reshape(2, 1, 1, 1)
    >>> one = np.float32([1])
    >>> forward = fused_batch_norm(x, one, one, epsilon=0)
    >>> grads = fused_batch_norm_grad(x, x, one, *forward[3:], epsilon=0)
    >>> grads.x_backprop.ravel(), grads.scale_backprop, grads.offset_backprop
    (array([0., 0.], dtype=float32), array([2.], dtype=float32), array([4.], dtype=float32))
    """
    arrays = y_backprop, x, scale, reserve_space_1, reserve_space_2, out
    bn = _batch_norm_grad(arrays, data_format, epsilon)
    backward = bn.backward_training if _bool("is_training", is_training) else bn.backward_inference
    grads = backward(
        y_backprop, x, scale=scale, mean=reserve_space_1, variance=reserve_space_2, out=out, num_threads=num_threads
    )
    return FusedBatchNormGrad(grads.diff_src, grads.diff_scale, grads.diff_shift, _EMPTY[:0], _EMPTY[:0])


@remembered
def _lrn(depth_radius: int, bias: float, alpha: float, beta: float) -> cynorm.LRN:
    try:
        radius = index(depth_radius)
    except TypeError:
        raise _other_kind("int", "depth_radius", depth_radius) from None
    if not 0 <= radius < _INT_MAX:
        raise ValueError(f"depth_radius = {shown(radius)} larger than int max, or below 0")
    parameters = _float("alpha", alpha), _float("beta", beta), _float("bias", bias)
    return cynorm.LRN(2 * radius + 1, *parameters, layout="NHWC", divisor=1)


@checked(("input", "out"), outputs=1, optional=("out",))
def _verify_lrn(arrays: tuple[Array, Array | None]) -> None:
    input, out = arrays
    _verify_attribute("T", input.dtype, _DATA_TYPES)
    if input.ndim != 4:
        raise ValueError(f"in must be 4-dimensional{_debug_string(input.shape)}")
    _verify_out(out, "input", input)


@checked(("input_grads", "input_image", "output_image", "out"), outputs=1, optional=("out",))
def _verify_lrn_grad(arrays: tuple[Array, Array, Array, Array | None]) -> None:
    input_grads, input_image, output_image, out = arrays
    _verify_attribute("T", input_grads.dtype, _DATA_TYPES)
    _verify_same_type("LRNGrad", 1, input_image, input_grads)
    _verify_same_type("LRNGrad", 2, output_image, input_grads)
    shapes = "".join(_debug_string(array.shape) for array in (input_grads, input_image, output_image))
    if input_grads.ndim != 4 or input_image.ndim != 4:
        raise ValueError(f"inputs must be 4-dimensional{shapes}")
    if not input_grads.shape == input_image.shape == output_image.shape:
        raise ValueError(f"input_grads, input_image, and out_image should have the same shape{shapes}")
    _verify_out(out, "input_grads", input_grads)


@checked(("x", "scale", "offset", "mean", "variance", "out"), outputs=1, optional=("out",))
def _batch_norm(
    arrays: tuple[Array, Array, Array, Array, Array, Array | None],
    data_format: str,
    epsilon: float,
    reads_statistics: str,
) -> cynorm.BatchNorm:
    """Check the arguments of :func:`fused_batch_norm`; return the operator to call with them."""
    x, scale, offset, mean, variance, out = arrays
    channels = _verify_image(data_format, x)
    _verify_vector("scale", scale)
    _verify_vector("offset", offset)
    _verify_vector("estimated_mean", mean)
    _verify_vector("estimated_variance", variance)
    _verify_length("scale", scale, channels)
    _verify_length("offset", offset, channels)
    if reads_statistics:
        _verify_length(f"{reads_statistics}, mean", mean, channels)
        _verify_length(f"{reads_statistics}, variance", variance, channels)
    _verify_out(out, "x", x)
    return _make(data_format, epsilon)


@checked(
    ("y_backprop", "x", "scale", "reserve_space_1", "reserve_space_2", "out"), outputs=1, optional=("out",)
)
def _batch_norm_grad(
    arrays: tuple[Array, Array, Array, Array, Array, Array | None],
    data_format: str,
    epsilon: float,
) -> cynorm.BatchNorm:
    """Likewise for :func:`fused_batch_norm_grad`."""
    y_backprop, x, scale, reserve_space_1, reserve_space_2, out = arrays
    _verify_image(data_format, y_backprop)
    channels = _verify_image(data_format, x)
    _verify_same_type("FusedBatchNormGradV3", 1, x, y_backprop)
    _verify_vector("scale", scale)
    _verify_vector("saved mean", reserve_space_1)
    _verify_vector("saved variance", reserve_space_2)
    if x.shape != y_backprop.shape:
        raise ValueError(
            f"x and y_backprop must have same shape, but x has shape {_debug_string(x.shape)} "
            f"and y_backprop has shape {_debug_string(y_backprop.shape)}"
        )
    _verify_length("scale", scale, channels)
    _verify_length("reserve_space_1", reserve_space_1, channels)
    _verify_length("reserve_space_2", reserve_space_2, channels)
    _verify_out(out, "x", x)
    return _make(data_format, epsilon)


def _verify_image(data_format: str, x: Array) -> int:
    """Check an input of batch normalization; return its number of channels."""
    if not isinstance(data_format, str):
        raise _other_kind("string", "data_format", data_format)
    if data_format not in _DATA_FORMATS:
        raise ValueError(_not_allowed("data_format", f'"{data_format}"', [f'"{f}"' for f in _DATA_FORMATS]))
    _verify_attribute("T", x.dtype, _DATA_TYPES)
    if x.ndim != len(data_format):
        raise ValueError(f"input must be {len(data_format)}-dimensional{_debug_string(x.shape)}")
    channels: int = x.shape[data_format.index("C")]
    return channels


def _verify_vector(name: str, vector: Array) -> None:
    _verify_attribute("U", vector.dtype, _PARAMETER_TYPES)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be 1-dimensional{_debug_string(vector.shape)}")


def _verify_length(name: str, vector: Array, channels: int) -> None:
    if len(vector) != channels:
        raise ValueError(
            f"{name} must have the same number of elements as the channels of x, "
            f"got {len(vector)} and {channels}"
        )


def _verify_out(out: Array | None, name: str, like: Array) -> None:
    """`out` is not TensorFlow's argument, and this complaint is not TensorFlow's text."""
    if out is None:
        return
    if out.shape != like.shape:
        raise ValueError(f"out must have the shape of {name}, {like.shape}, got {out.shape}")
    if out.dtype != like.dtype:
        raise TypeError(f"out must have the dtype of {name}, {like.dtype}, got {out.dtype}")


def _make(data_format: str, epsilon: float) -> cynorm.BatchNorm:
    return cynorm.BatchNorm(epsilon=_float("epsilon", epsilon), layout=data_format)


def _float(name: str, value: float, check: Callable[[str, float], float] = finite) -> float:
    try:
        return check(name, value)
    except TypeError:
        raise _other_kind("float", name, value) from None


def _bool(name: str, value: bool) -> bool:
    if value is True or value is False:
        return value
    try:
        return flag(name, value)
    except TypeError:
        raise _other_kind("bool", name, value) from None


def _other_kind(kind: str, name: str, value: object) -> TypeError:
    return TypeError(f"Expected {kind} for argument '{name}' not {shown(value)}.")


def _verify_attribute(attribute: str, dtype: np.dtype[Any], allowed: tuple[str, ...]) -> None:
    if str(dtype) not in allowed:
        raise TypeError(_not_allowed(attribute, _type_name(dtype), [_TYPE_NAMES[t] for t in allowed]))


def _not_allowed(attribute: str, given: str, allowed: Iterable[str]) -> str:
    return (
        f"Value for attr '{attribute}' of {given} is not in the list of allowed values: {', '.join(allowed)}"
    )


def _verify_same_type(op: str, index: int, given: Array, expected: Array) -> None:
    if given.dtype != expected.dtype:
        raise TypeError(
            f"cannot compute {op} as input #{index}(zero-based) was expected to be a "
            f"{_type_name(expected.dtype)} tensor but is a {_type_name(given.dtype)} tensor"
        )


def _type_name(dtype: np.dtype[Any]) -> str:
    return _TYPE_NAMES.get(str(dtype), str(dtype))


def _debug_string(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"
