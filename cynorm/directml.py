"""DirectML's normalization operators on NumPy arrays, field by field.

One function per ``DML_*_OPERATOR_DESC``: its input tensors are the positional arguments, its other fields
keywords, its output tensors the results and, where wanted, ``out=``. The documents' tensor constraints are
checked; their data types are FLOAT32 and FLOAT16, to which this module adds bfloat16 and float64. Any
memory order will do: DirectML's Strides are the arrays' own.

An array that is written to (`out`) may be an input itself; otherwise it must share memory neither with an
input nor with another output. Source: the pages of the structures on learn.microsoft.com, under Direct
Machine Learning.

Where a document contradicts itself or its users, the function's docstring tells what the document says and
what happens here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import cynorm
from cynorm._messages import shown
from cynorm._parameters import choice, finite, flag
from cynorm._tensor import checked, remembered
from cynorm.batch_norm import _ACTIVATIONS

if TYPE_CHECKING:
    from typing import TypeAlias

    from cynorm._typing import Array

    _Three: TypeAlias = tuple[Array | None, Array | None, Array | None]

__all__ = [
    "BatchNormalizationGrad",
    "BatchNormalizationTraining",
    "batch_normalization",
    "batch_normalization_grad",
    "batch_normalization_training",
    "batch_normalization_training_grad",
    "local_response_normalization",
    "local_response_normalization_grad",
]

_DATA_TYPES = ("float32", "float16", "bfloat16", "float64")


class BatchNormalizationTraining(NamedTuple):
    """Outputs of :func:`batch_normalization_training`."""

    output: Array
    output_mean: Array
    output_variance: Array


class BatchNormalizationGrad(NamedTuple):
    """Outputs of :func:`batch_normalization_grad` and :func:`batch_normalization_training_grad`."""

    output_gradient: Array
    output_scale_gradient: Array
    output_bias_gradient: Array


class _Constraints:
    """The "Tensor constraints" and "Tensor support" of one document.

    Parameters
    ----------
    dimension_counts : (int, int)
        Fewest and most dimensions.
    data : tuple of str
        The arguments of InputDimensions, the input first.
    parameters : tuple of str
        The arguments whose dimensions are each 1 or the input's.
    outputs : tuple of str
        The arguments that are written: first one of InputDimensions, then those of the parameters' Sizes.
    same_sizes : bool
        Whether all parameters have the same Sizes.

    Attributes
    ----------
    check : function
        Takes a tuple of arrays: data, parameters, outputs; returns the axes along which parameters have size
        1.
    """

    def __init__(
        self,
        dimension_counts: tuple[int, int],
        data: tuple[str, ...],
        parameters: tuple[str, ...] = (),
        outputs: tuple[str, ...] = ("out",),
        same_sizes: bool = True,
    ) -> None:
        self._fewest, self._most = dimension_counts
        self._names = (*data, *parameters, *outputs)
        self._data = (*data, outputs[0])
        self._same_sizes = same_sizes
        self.check = checked(self._names, len(outputs), ("fused_add", *outputs))(self._verify)

    def _verify(self, tensors: tuple[Array | None, ...]) -> tuple[int, ...]:
        given = [
            (name, t.shape, t.dtype) for name, t in zip(self._names, tensors, strict=True) if t is not None
        ]
        data = [tensor for tensor in given if tensor[0] in self._data]
        parameters = [tensor for tensor in given if tensor[0] not in self._data]
        name, sizes, data_type = data[0]
        if data_type.name not in _DATA_TYPES or not data_type.isnative:
            raise TypeError(
                f"{name} must have one of the data types {', '.join(_DATA_TYPES)}, in native byte order, "
                f"got {data_type!r}"
            )
        if not self._fewest <= len(sizes) <= self._most:
            allowed = self._most if self._fewest == self._most else f"{self._fewest} to {self._most}"
            raise ValueError(f"{name} must have {allowed} dimensions, got {len(sizes)}: {sizes}")
        for other, _, other_type in data + parameters:
            if other_type != data_type:
                raise TypeError(f"{other} must have the DataType of {name}, {data_type}, got {other_type}")
        for other, other_sizes, _ in data:
            if other_sizes != sizes:
                raise ValueError(f"{other} must have the Sizes of {name}, {sizes}, got {other_sizes}")
        for other, other_sizes, _ in parameters:
            if len(other_sizes) != len(sizes):
                raise ValueError(
                    f"{other} must have the DimensionCount of {name}, {len(sizes)}, got {other_sizes}"
                )
            if any(m not in (1, n) for m, n in zip(other_sizes, sizes, strict=True)):
                raise ValueError(
                    f"dimensions of {other} must be 1 or those of {name}, {sizes}, got {other_sizes}"
                )
            first, first_sizes, _ = parameters[0]
            if self._same_sizes and other_sizes != first_sizes:
                raise ValueError(f"{other} must have the Sizes of {first}, {first_sizes}, got {other_sizes}")
        return tuple(axis for axis, size in enumerate(parameters[0][1]) if size == 1) if parameters else ()


_THREE = ("out[0]", "out[1]", "out[2]")
_LRN = _Constraints((4, 4), ("input",))
_LRN_GRAD = _Constraints((4, 4), ("input", "input_gradient"))
_BN = _Constraints((1, 8), ("input",), ("mean", "variance", "scale", "bias"), same_sizes=False)
_BN_TRAINING = _Constraints((1, 8), ("input", "fused_add"), ("scale", "bias"), _THREE)
_BN_GRAD = _Constraints((1, 8), ("input", "input_gradient"), ("mean", "variance", "scale"), _THREE)


@remembered
def _lrn(
    cross_channel: bool, local_size: int, alpha: float, beta: float, bias: float, divisor: float | None
) -> cynorm.LRN:
    return cynorm.LRN(
        local_size,
        alpha,
        beta,
        finite("bias", bias),
        region="across_channels" if flag("cross_channel", cross_channel) else "within_channel",
        window="onnx",
        divisor=local_size if divisor is None else divisor,
    )


@remembered
def _batch_norm(
    axes: tuple[int, ...], epsilon: float, fused_activation: str | cynorm.Activation | None = None
) -> cynorm.BatchNorm:
    if isinstance(fused_activation, str):
        name = fused_activation.lower().removeprefix("dml_operator_activation_")
        # a name of neither kind is shown as it was given
        fused_activation = choice("fused_activation", name if name in _ACTIVATIONS else fused_activation, tuple(_ACTIVATIONS))
    elif not isinstance(fused_activation, cynorm.Activation | None):
        raise TypeError(f"fused_activation must be an Activation, its name or None, got {shown(fused_activation)}")
    return cynorm.BatchNorm(epsilon=epsilon, axes=axes, activation=fused_activation)


def local_response_normalization(
    input: Array,
    *,
    cross_channel: bool,
    local_size: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 1.0,
    divisor: float | None = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """DML_LOCAL_RESPONSE_NORMALIZATION_OPERATOR_DESC.

    ``output = input / (bias + (alpha / divisor) * sum(x**2 for x in the local region)) ** beta``

    Parameters
    ----------
    input : (N, C, H, W) array of float32, float16, bfloat16 or float64
        InputTensor.
    cross_channel : bool
        CrossChannel. True: the region is `local_size` channels at one position. False: `local_size` x
        `local_size` positions of one channel. The gradient's document explains LocalSize the other way round
        ("if CrossChannel is TRUE, then this is the width and height of the local region"), against its own
        explanation of CrossChannel and against every public caller; so here that explanation is read as
        swapped.
    local_size : int
        LocalSize, at least 1. An even size reaches one element further to the right: ``floor((local_size -
        1) / 2)`` elements on the left, ``ceil((local_size - 1) / 2)`` on the right. The region is clipped
        at the borders.
    alpha, beta, bias : float
        Alpha, Beta, Bias: finite.
    divisor : float, optional
        What alpha is divided by. The document says LocalSize in both cases, and so does the default. Across
        channels that is the number of elements in the region. Within a channel it is not, and no public
        caller shows what DirectML does there: pass ``local_size**2`` for the convention of Caffe and
        oneDNN.
    out : array, optional
        OutputTensor: Sizes and DataType of `input`, any strides; may be `input` itself.
    num_threads : int, optional
        As for :meth:`cynorm.LRN.forward`.

    Returns
    -------
    output : (N, C, H, W) array
        `out`, or a new array in the memory order of `input`.

    Raises
    ------
    TypeError, ValueError
        If a tensor breaks the document's constraints or a field is out of its range; nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.full((1, 3, 1, 1), 2, np.float32)
    >>> local_response_normalization(x, cross_channel=True, local_size=3, alpha=3, beta=1).ravel().round(3)
    array([0.222, 0.154, 0.222], dtype=float32)
    """
    _LRN.check((input, out))
    lrn = _lrn(cross_channel, local_size, alpha, beta, bias, divisor)
    return lrn.forward(input, out, num_threads=num_threads)


def local_response_normalization_grad(
    input: Array,
    input_gradient: Array,
    *,
    cross_channel: bool,
    local_size: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 1.0,
    divisor: float | None = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """DML_LOCAL_RESPONSE_NORMALIZATION_GRAD_OPERATOR_DESC.

    The gradient of :func:`local_response_normalization`.

    For even sizes the backward region is the mirror of the forward one, as the derivative demands.

    Parameters
    ----------
    input : (N, C, H, W) array of float32, float16, bfloat16 or float64
        InputTensor.
    input_gradient : (N, C, H, W) array
        InputGradientTensor, the incoming gradient: Sizes and DataType of `input`.
    cross_channel, local_size, alpha, beta, bias, divisor
        As in :func:`local_response_normalization`, which also tells how the document's sentence on
        CrossChannel and LocalSize is read.
    out : array, optional
        OutputGradientTensor: Sizes and DataType of `input`; may be `input` or `input_gradient` itself.
    num_threads : int, optional
        As for :meth:`cynorm.LRN.backward`.

    Returns
    -------
    output_gradient : (N, C, H, W) array
        `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        If a tensor breaks the document's constraints or a field is out of its range; nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.full((1, 3, 1, 1), 2, np.float32)
    >>> gradient = local_response_normalization_grad(x, x, cross_channel=True, local_size=1, alpha=1, beta=1)
    >>> gradient.ravel().round(3)
    array([-0.24, -0.24, -0.24], dtype=float32)
    """
    _LRN_GRAD.check((input, input_gradient, out))
    lrn = _lrn(cross_channel, local_size, alpha, beta, bias, divisor)
    return lrn.backward(input_gradient, input, out, num_threads=num_threads)


def batch_normalization(
    input: Array,
    mean: Array,
    variance: Array,
    scale: Array,
    bias: Array,
    *,
    spatial: bool = True,
    epsilon: float,
    fused_activation: str | cynorm.Activation | None = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """DML_BATCH_NORMALIZATION_OPERATOR_DESC: normalization with given statistics.

    ``output = fused_activation(scale * ((input - mean) / sqrt(variance + epsilon)) + bias)``

    Parameters
    ----------
    input : array of 1 to 8 dimensions, float32, float16, bfloat16 or float64
        InputTensor.
    mean, variance, scale, bias : array
        MeanTensor, VarianceTensor, ScaleTensor, BiasTensor: DataType and DimensionCount of `input`, each
        dimension 1 or that of `input`. Each broadcasts on its own.
    spatial : bool
        Spatial: deprecated in the document, and without effect.
    epsilon : float
        Epsilon: finite, at least 0.
    fused_activation : str or cynorm.Activation, optional
        FusedActivation. A str stands for the activation with its default parameters and may be DirectML's
        name, such as ``"DML_OPERATOR_ACTIVATION_RELU"``; else fields are given in lower case, as in
        ``cynorm.Activation("leaky_relu", alpha=0.1)``.
    out : array, optional
        OutputTensor: Sizes and DataType of `input`; may be `input` itself.
    num_threads : int, optional
        As for :meth:`cynorm.BatchNorm.forward_inference`.

    Returns
    -------
    output : array
        `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        If a tensor breaks the document's constraints or a field is out of its range; nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 1), np.float32)
    >>> batch_normalization(np.float32([[3, 5]]), one, 3 * one, 2 * one, one, epsilon=1)
    array([[3., 5.]], dtype=float32)
    """
    axes = _BN.check((input, mean, variance, scale, bias, out))
    flag("spatial", spatial)
    bn = _batch_norm(axes, epsilon, fused_activation)
    return bn.forward_inference(input, mean, variance, scale, bias, out=out, num_threads=num_threads)


def batch_normalization_training(
    input: Array,
    scale: Array,
    bias: Array,
    fused_add: Array | None = None,
    *,
    epsilon: float,
    fused_activation: str | cynorm.Activation | None = None,
    out: _Three | None = None,
    num_threads: int | None = None,
) -> BatchNormalizationTraining:
    """DML_BATCH_NORMALIZATION_TRAINING_OPERATOR_DESC: normalization with the statistics of the input itself.

    ``output = fused_activation(scale * ((input - mean) / sqrt(variance + epsilon)) + bias + fused_add)``

    Mean and (population) variance are taken over the dimensions in which `scale` and `bias` have size 1.

    Parameters
    ----------
    input : array of 1 to 8 dimensions, float32, float16, bfloat16 or float64
        InputTensor.
    scale, bias : array
        ScaleTensor, BiasTensor: DataType and DimensionCount of `input`, the same Sizes as each other, each
        dimension 1 or that of `input`.
    fused_add : array, optional
        FusedAddTensor: Sizes and DataType of `input`.
    epsilon : float
        Epsilon: finite, at least 0.
    fused_activation : str or cynorm.Activation, optional
        FusedActivation, as in :func:`batch_normalization`.
    out : tuple of 3 arrays or None, optional
        OutputTensor, of the Sizes of `input`; OutputMeanTensor and OutputVarianceTensor, of the Sizes of
        `scale`; all of the DataType of `input`. None entries are allocated.
    num_threads : int, optional
        As for :meth:`cynorm.BatchNorm.forward_training`.

    Returns
    -------
    BatchNormalizationTraining
        output, output_mean, output_variance.

    Raises
    ------
    TypeError, ValueError
        If a tensor breaks the document's constraints or a field is out of its range; nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 1), np.float32)
    >>> batch_normalization_training(np.float32([[3, 5]]), 2 * one, one, epsilon=0).output
    array([[-1.,  3.]], dtype=float32)
    """
    out_data, out_mean, out_variance = _three(out)
    axes = _BN_TRAINING.check((input, fused_add, scale, bias, out_data, out_mean, out_variance))
    bn = _batch_norm(axes, epsilon, fused_activation)
    return BatchNormalizationTraining(
        *bn.forward_training(
            input,
            scale,
            bias,
            add=fused_add,
            out=out_data,
            out_mean=np.empty(scale.shape, scale.dtype) if out_mean is None else out_mean,
            out_variance=np.empty(scale.shape, scale.dtype) if out_variance is None else out_variance,
            num_threads=num_threads,
        )
    )


def batch_normalization_grad(
    input: Array,
    input_gradient: Array,
    mean: Array,
    variance: Array,
    scale: Array,
    *,
    epsilon: float,
    out: _Three | None = None,
    num_threads: int | None = None,
) -> BatchNormalizationGrad:
    """DML_BATCH_NORMALIZATION_GRAD_OPERATOR_DESC: the gradient of :func:`batch_normalization`.

    The statistics are constants here; sums run over the dimensions in which the parameters have size 1::

        output_gradient = input_gradient * (scale / sqrt(variance + epsilon))
        output_scale_gradient = sum(input_gradient * (input - mean) / sqrt(variance + epsilon))
        output_bias_gradient = sum(input_gradient)

    Parameters
    ----------
    input : array of 1 to 8 dimensions, float32, float16, bfloat16 or float64
        InputTensor.
    input_gradient : array
        InputGradientTensor: Sizes and DataType of `input`.
    mean, variance, scale : array
        MeanTensor, VarianceTensor, ScaleTensor: DataType and DimensionCount of `input`, all of the same
        Sizes, each dimension 1 or that of `input`.
    epsilon : float
        Epsilon: finite, at least 0.
    out : tuple of 3 arrays or None, optional
        OutputGradientTensor, of the Sizes of `input`; OutputScaleGradientTensor and
        OutputBiasGradientTensor, of the Sizes of `mean`; all of the DataType of `input`. None entries are
        allocated.
    num_threads : int, optional
        As for :meth:`cynorm.BatchNorm.backward_inference`.

    Returns
    -------
    BatchNormalizationGrad
        output_gradient, output_scale_gradient, output_bias_gradient.

    Raises
    ------
    TypeError, ValueError
        If a tensor breaks the document's constraints or a field is out of its range; nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 1), np.float32)
    >>> x = np.float32([[3, 5]])
    >>> batch_normalization_grad(x, x, 4 * one, one, one, epsilon=3).output_scale_gradient
    array([[1.]], dtype=float32)
    """
    return _gradients(False, input, input_gradient, mean, variance, scale, epsilon, out, num_threads)


def batch_normalization_training_grad(
    input: Array,
    input_gradient: Array,
    mean: Array,
    variance: Array,
    scale: Array,
    *,
    epsilon: float,
    out: _Three | None = None,
    num_threads: int | None = None,
) -> BatchNormalizationGrad:
    """DML_BATCH_NORMALIZATION_TRAINING_GRAD_OPERATOR_DESC.

    The gradient of :func:`batch_normalization_training`.

    Sums and means run over the dimensions in which the parameters have size 1::

        output_gradient = scale / sqrt(variance + epsilon) * (
            input_gradient - mean(input_gradient)
            - (input - mean) * mean(input_gradient * (input - mean)) / (variance + epsilon)
        )
        output_scale_gradient = sum(input_gradient * (input - mean) / sqrt(variance + epsilon))
        output_bias_gradient = sum(input_gradient)

    The document defines ``InputCentered = InputCentered - mean(InputCentered)``, a name defined by itself.
    It is read as ``Input - mean(Input)``, the only reading under which the result is the gradient of the
    forward operator.

    The document also centres the input with ``mean(Input)`` in the first output but with MeanTensor in the
    second. The two agree, but for the rounding of MeanTensor, if that is what the forward operator returned;
    here MeanTensor is used in both, which spares a pass over the input.

    Parameters
    ----------
    input, input_gradient, mean, variance, scale, epsilon, out, num_threads
        As in :func:`batch_normalization_grad`, `mean` and `variance` being those that
        :func:`batch_normalization_training` returned.

    Returns
    -------
    BatchNormalizationGrad
        output_gradient, output_scale_gradient, output_bias_gradient.

    Raises
    ------
    TypeError, ValueError
        If a tensor breaks the document's constraints or a field is out of its range; nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 1), np.float32)
    >>> x = np.float32([[3, 5]])
    >>> batch_normalization_training_grad(x, x * x, 4 * one, one, one, epsilon=3).output_bias_gradient
    array([[34.]], dtype=float32)
    """
    return _gradients(True, input, input_gradient, mean, variance, scale, epsilon, out, num_threads)


def _gradients(
    training: bool,
    input: Array,
    input_gradient: Array,
    mean: Array,
    variance: Array,
    scale: Array,
    epsilon: float,
    out: _Three | None,
    num_threads: int | None,
) -> BatchNormalizationGrad:
    out_data, out_scale, out_bias = _three(out)
    axes = _BN_GRAD.check((input, input_gradient, mean, variance, scale, out_data, out_scale, out_bias))
    bn = _batch_norm(axes, epsilon)
    backward = bn.backward_training if training else bn.backward_inference
    grads = backward(
        input_gradient,
        input,
        scale=scale,
        mean=mean,
        variance=variance,
        out=out_data,
        out_scale=out_scale,
        out_shift=out_bias,
        num_threads=num_threads,
    )
    return BatchNormalizationGrad(grads.diff_src, grads.diff_scale, grads.diff_shift)


def _three(out: _Three | None) -> _Three:
    """Unpack ``out=`` of an operator with three outputs."""
    if out is None:
        return None, None, None
    if not isinstance(out, tuple):
        raise TypeError(f"out must be a tuple of 3 arrays or None, got {type(out).__name__}")
    if len(out) != 3:
        raise ValueError(f"out must be a tuple of 3 arrays or None, got one of {len(out)}")
    return out
