"""Batch normalization: parameters, their checks, and what the documentation promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cynorm import _batch_norm
from cynorm._batch_norm import BatchNormGradients
from cynorm._messages import shown
from cynorm._parameters import Immutable, choice, documented, finite, flag, integer, integers, share
from cynorm.layout import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import DTypeLike

    from cynorm._typing import Array, Cache, Out, Tensor
    from cynorm._workspace import Workspace

__all__ = [
    "Activation",
    "BatchNorm",
    "BatchNormGradients",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_inference",
    "batch_norm_inference_backward",
]

BatchNormGradients.__module__ = "cynorm"  # where it is found, to be pickled
BatchNormGradients.__doc__ = """What `BatchNorm.backward_training` and `backward_inference` return, a named tuple.

diff_src has src's shape and dtype. diff_scale and diff_shift have one element per statistic, in the shape and dtype of scale and
shift or, without these, in float32 (float64 for float64 data). diff_add is like diff_src, or None where the forward call had no
`add`.
"""

# Every activation: its parameters, in the kernels' order, and their defaults. The place in this list is its number.
_ACTIVATIONS: dict[str, dict[str, float]] = {
    "identity": {},
    "relu": {},
    "elu": {"alpha": 1.0},
    "celu": {"alpha": 1.0},
    "scaled_elu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "leaky_relu": {"alpha": 0.01},
    "linear": {"alpha": 1.0, "beta": 0.0},
    "parametric_softplus": {"alpha": 1.0, "beta": 1.0},
    "scaled_tanh": {"alpha": 1.0, "beta": 1.0},
    "sigmoid": {},
    "softplus": {"steepness": 1.0},
    "softsign": {},
    "tanh": {},
    "thresholded_relu": {"alpha": 1.0},
    "shrink": {"bias": 0.0, "threshold": 0.5},
}
_NONZERO = (("celu", "alpha"), ("softplus", "steepness"))


class Activation(Immutable):
    """A function applied to each element of a result; the names and parameters are DirectML's.

    Parameters
    ----------
    name : str
        One of the following, x being the element::

            identity              x
            relu                  max(x, 0)
            elu                   x if x >= 0 else alpha * (exp(x) - 1)
            celu                  max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))
            scaled_elu            gamma * (x if x > 0 else alpha * (exp(x) - 1))
            hard_sigmoid          max(0, min(alpha * x + beta, 1))
            leaky_relu            x if x >= 0 else alpha * x
            linear                alpha * x + beta
            parametric_softplus   alpha * log(1 + exp(beta * x))
            scaled_tanh           alpha * tanh(beta * x)
            sigmoid               1 / (1 + exp(-x))
            softplus              log(1 + exp(steepness * x)) / steepness
            softsign              x / (1 + abs(x))
            tanh                  tanh(x)
            thresholded_relu      0 if x <= alpha else x
            shrink                x - bias if x > threshold else x + bias if x < -threshold else 0 (but NaN if x is)

    **parameters : float
        The function's parameters. Defaults: alpha 1, beta 1, steepness 1, but hard_sigmoid alpha 0.2, beta 0.5;
        leaky_relu alpha 0.01; linear beta 0; scaled_elu alpha 1.6732632, gamma 1.050701; shrink bias 0, threshold 0.5.
        For data other than float64 they are rounded to float32, and to infinity beyond its range.

    Attributes
    ----------
    name : str
        As given.
    parameters : tuple of (str, float)
        Each parameter and its value, the defaults too.

    Raises
    ------
    TypeError, ValueError
        If there is no such function or parameter, or a parameter is not finite, or celu's alpha or softplus's steepness
        is 0.

    Examples
    --------
    >>> import cynorm
    >>> cynorm.Activation("leaky_relu", alpha=0.1)
    Activation(name='leaky_relu', alpha=0.1)
    """

    __slots__ = ("name", "parameters")
    name: str
    parameters: tuple[tuple[str, float], ...]

    def __init__(self, name: str, **parameters: float) -> None:
        name = choice("activation", name, tuple(_ACTIVATIONS))
        defaults = _ACTIVATIONS[name]
        for parameter in parameters:
            if parameter not in defaults:
                allowed = ", ".join(defaults) or "no parameters"
                raise TypeError(f"activation {name!r} takes {allowed}, got {parameter!r}")
        values = {key: finite(key, parameters.get(key, default)) for key, default in defaults.items()}
        for key, value in values.items():
            if value == 0 and (name, key) in _NONZERO:
                raise ValueError(f"{key} of activation {name!r} must not be 0, got {value!r}")
        self._keep(name=name, parameters=tuple(values.items()))

    def _arguments(self) -> tuple[tuple[str, Any], ...]:
        return (("name", self.name), *self.parameters)


class BatchNorm(Immutable):
    """Batch normalization, forward and backward, in training and in inference.

    Each element is centred and divided by the standard deviation, taken over the reduced axes::

        dst = scale * (src - mean) / sqrt(variance + epsilon) + shift

    Parameters
    ----------
    epsilon : float
        Finite, at least 0. With 0 (or, except for float64 data, less than 1e-77), a statistic of variance 0 gives NaN,
        or in inference an infinity where src is not the mean.
    layout : str, optional
        What the axes of the arrays mean: statistics are per channel. NC, NCW, NCHW (the default), NCDHW, NWC, NHWC, NDHWC,
        or blocked: nCw8c, nChw8c, nCdhw8c, nCw16c, nChw16c, nCdhw16c, whose arrays have shape (N, blocks, spatial...,
        block). The order in memory is whatever the strides say; every order runs without a copy of the tensor.
    axes : int or iterable of int, optional
        The axes that statistics are taken over, in place of `layout`; arrays may then have 1 to 8 dimensions. Negative
        axes count from the end. An empty tuple makes each element a statistic of its own.
    channels : int, optional
        Number of channels, for a blocked layout whose last block is not full. The rest of that block is read as zero
        and written as zero.
    activation : str, Activation, or None
        Applied to the result. A name, such as "relu", stands for the `Activation` with its default parameters.

    Raises
    ------
    TypeError, ValueError
        If a parameter is not one of the above.

    Notes
    -----
    Parameters and statistics (scale, shift, mean, variance, the running ones) are arrays with one element per
    statistic. They have src's dimensions with the reduced axes of size 1, or, where one axis is left (with `layout`:
    the channels), shape (C,). Their dtype is float32 (float64 for float64 data) or that of the data. With blocks and
    `channels`, they may have the padding's channels, too. Arrays that are only read may be lists: of numbers for
    parameters; of floats, which NumPy makes float64, for src and for arrays that have to be like it. An array may be
    anything that shares its memory by DLPack, `__array_interface__` or the buffer protocol, such as PyTorch's tensors;
    results are NumPy's.

    A BatchNorm holds parameters only: it is immutable, hashable and picklable, and any number of threads may share one.
    Two are equal if they were given the same parameters: one with axes (0, 2, 3) does not equal one with layout "NCHW".
    float16 and bfloat16 are computed in float32 and rounded once at the end. Results do not depend on the number of
    threads. The last bits of half types' gradients may depend on the memory order.

    Where the reduced axes hold no element (an empty batch), mean, variance and gradients are 0 and running statistics
    stay as they are; where they hold one element, variance is 0.

    Source: Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
    Shift" (2015).

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> bn = cynorm.BatchNorm(epsilon=0.0)
    >>> src = np.array([[1, 3], [10, 30]], np.float32).reshape(1, 2, 1, 2)
    >>> dst, mean, variance = bn.forward_training(src)
    >>> dst.ravel().tolist(), mean.tolist(), variance.tolist()
    ([-1.0, 1.0, -1.0, 1.0], [2.0, 20.0], [1.0, 100.0])
    """

    __slots__ = ("epsilon", "layout", "axes", "channels", "activation", "_problem")
    epsilon: float
    layout: str | None
    axes: tuple[int, ...] | None
    channels: int | None
    activation: Activation | None
    _problem: _batch_norm.Problem

    def __init__(
        self,
        *,
        epsilon: float = 1e-5,
        layout: str | None = None,
        axes: int | Iterable[int] | None = None,
        channels: int | None = None,
        activation: str | Activation | None = None,
    ) -> None:
        parsed = None
        if axes is None:
            layout, parsed = parse("NCHW" if layout is None else layout)
        else:
            for name, value in (("layout", layout), ("channels", channels)):
                if value is not None:
                    raise ValueError(f"{name} must be None where axes are given, got {shown(value)}")
            axes = _axes(axes)
        if isinstance(activation, str):
            activation = Activation(activation)
        if activation is not None and not isinstance(activation, Activation):
            names = ", ".join(map(repr, _ACTIVATIONS))
            raise TypeError(f"activation must be an Activation, None or one of {names}, got {shown(activation)}")
        self._keep(
            epsilon=finite("epsilon", epsilon, 0),
            layout=layout,
            axes=axes,
            channels=None if channels is None else integer("channels", channels),
            activation=activation,
        )
        name, values = (activation.name, dict(activation.parameters)) if activation else ("identity", {})
        self._keep(_problem=_batch_norm.Problem(self, parsed, list(_ACTIVATIONS).index(name), list(values.values())))

    def forward_training(
        self,
        src: Tensor,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
        *,
        add: Tensor | None = None,
        out: Out | None = None,
        out_mean: Any = None,
        out_variance: Any = None,
        workspace: Workspace | None = None,
        running_mean: Any = None,
        running_variance: Any = None,
        momentum: float = 0.1,
        unbiased_running: bool = True,
        num_threads: int | None = None,
    ) -> tuple[Out, Array, Array]:
        """Normalize src with its own statistics.

        Parameters
        ----------
        src : array of float32, float64, float16 or bfloat16
            Any strides.
        scale, shift : array, optional
            One element per statistic; default: 1 and 0.
        add : array, optional
            Of src's shape and dtype: added before the activation.
        out : array, optional
            Where to write dst: of src's shape and dtype, any strides. It may be src (but `backward_training` needs src
            as it was) or add itself; otherwise it must overlap no array of the call. Default: a new array in src's
            memory order.
        out_mean, out_variance : array, optional
            Where to write mean and variance: of a parameter's shape and dtype, any strides. No two arrays that are
            written may overlap, and none may overlap src or add, except as `out` may.
        workspace : Workspace, optional
            Keeps what `backward_training` needs: mean and 1/sqrt(variance + epsilon); for ReLU one bit per element; for
            other activations the shift, or, with `add` or `cache="always"`, the value before the activation.
        running_mean, running_variance : array, optional
            Updated in place, ``running = (1 - momentum) * running + momentum * new``, whatever their strides.
        momentum : float
            In PyTorch's sense: the weight of the new value, within [0, 1]. ONNX and Keras give the weight of the old
            value, 1 - momentum.
        unbiased_running : bool
            Whether, of M elements, running_variance takes the variance divided by M - 1 (PyTorch) in place of M (ONNX,
            Keras 3); of one element it takes 0.
        num_threads : int, optional
            Threads for this call; default: `get_num_threads()`.

        Returns
        -------
        dst : array
            `out`, or the new array.
        mean, variance : array
            `out_mean` and `out_variance`, or new arrays of float32 (float64 for float64 data), of shape (C,)
            or, with `axes`, of src's dimensions with the reduced ones of size 1. The variance is that of the
            population, divided by M.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit; nothing has been written then.
        RuntimeError
            If another call, on another thread, is using the workspace.
        MemoryError
            If there is no memory for results, the workspace or the scratch of the kernels; `out` may have been written to.

        Examples
        --------
        >>> import cynorm, numpy as np
        >>> bn = cynorm.BatchNorm(epsilon=0.0, axes=(0,), activation="relu")
        >>> src = np.array([[1.0, 5.0], [3.0, 9.0]])
        >>> dst, mean, variance = bn.forward_training(src, shift=np.array([0.0, 2.0]))
        >>> dst.tolist(), mean.tolist(), variance.tolist()
        ([[0.0, 1.0], [1.0, 3.0]], [[2.0, 7.0]], [[1.0, 4.0]])
        """
        if type(momentum) is not float or not 0 <= momentum <= 1:
            momentum = share("momentum", momentum)
        if unbiased_running is not True and unbiased_running is not False:
            unbiased_running = flag("unbiased_running", unbiased_running)
        return self._problem.forward(self, True, src, out_mean, out_variance, scale, shift, add, out, workspace,
                                     running_mean, running_variance, momentum, unbiased_running, num_threads)

    def forward_inference(
        self,
        src: Tensor,
        mean: Tensor,
        variance: Tensor,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
        *,
        add: Tensor | None = None,
        out: Out | None = None,
        workspace: Workspace | None = None,
        running_mean: None = None,
        running_variance: None = None,
        num_threads: int | None = None,
    ) -> Out:
        """Normalize src with given statistics.

        Parameters
        ----------
        src : array of float32, float64, float16, bfloat16 or int8
            Any strides. int8 results are rounded half to even and saturated, and NaN becomes 0; parameters are float32
            with int8 data.
        mean, variance : array
            Each has shape (C,), or as many dimensions as src, each of size 1 or src's: every parameter broadcasts on
            its own.
        scale, shift : array, optional
            Likewise. Default: 1 and 0.
        add, out
            As in `forward_training`.
        workspace : Workspace, optional
            Keeps what `backward_inference` needs: for ReLU one bit per element, for other activations the value before
            the activation. Nothing for int8, which has no backward.
        running_mean, running_variance : None
            Running statistics are given as `mean` and `variance`; only `forward_training` updates any.
        num_threads
            As in `forward_training`.

        Returns
        -------
        dst : array
            `out`, or a new array in src's memory order.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit; nothing has been written then.
        RuntimeError, MemoryError
            As in `forward_training`.

        Examples
        --------
        >>> import cynorm, numpy as np
        >>> bn = cynorm.BatchNorm(epsilon=0.0, layout="NC")
        >>> bn.forward_inference(np.float32([[3, 5]]), np.float32([1, 1]), np.float32([4, 16])).tolist()
        [[1.0, 1.0]]
        """
        return self._problem.forward(self, False, src, mean, variance, scale, shift, add, out, workspace,
                                     running_mean, running_variance, 0.0, False, num_threads)[0]

    def backward_training(
        self,
        diff_dst: Tensor,
        src: Tensor,
        scale: Tensor | None = None,
        *,
        shift: Tensor | None = None,
        mean: Tensor | None = None,
        variance: Tensor | None = None,
        workspace: Workspace | None = None,
        out: Any = None,
        out_scale: Any = None,
        out_shift: Any = None,
        out_add: Any = None,
        num_threads: int | None = None,
    ) -> BatchNormGradients:
        """The gradients of `forward_training`, of M elements per statistic::

            diff_add   = diff_dst * activation'                           (d below)
            diff_shift = sum(d)
            diff_scale = sum(d * (src - mean)) * rstd,                    rstd = 1 / sqrt(variance + epsilon)
            diff_src   = scale * rstd * (d - diff_shift / M - (src - mean) * rstd * diff_scale / M)

        Parameters
        ----------
        diff_dst : array
            The gradient with respect to dst, of src's shape and dtype; its memory order may differ.
        src : array
            What the forward call was given.
        scale : array, optional
            What the forward call was given: diff_src is proportional to it.
        shift : array, optional
            What the forward call was given, or None if it had none. Without a workspace any activation needs it (ReLU
            needs the workspace); with one it only tells the shape and dtype of diff_shift.
        mean, variance : array, optional
            What the forward call returned, if there is no workspace. If there is one, they replace its own, which are
            more exact: with a deviation of a millionth of the mean, a mean in float32 is off by some percent of the
            deviation.
        workspace : Workspace, optional
            The one that the forward call filled. ReLU needs it, and so does a forward call with `add`: without a
            workspace, diff_src is that of a call without `add`.
        out : array, optional
            Where to write diff_src: it may be diff_dst or src itself, and must not overlap them otherwise.
        out_scale, out_shift : array, optional
            Where to write diff_scale and diff_shift: of a parameter's shape and dtype, any strides. No two
            arrays that are written may overlap.
        out_add : array, optional
            Where to write diff_add, after a forward call that was given `add`: of src's shape and dtype, any strides.
            It may be diff_dst itself, unless `out` is; otherwise it must overlap no array of the call.
        num_threads : int, optional
            Threads for this call; default: `get_num_threads()`.

        Returns
        -------
        BatchNormGradients
            A named tuple: diff_src, which is `out` or a new array in src's memory order; diff_scale, which is
            `out_scale` or a new array of scale's shape and dtype; diff_shift, which is `out_shift` or a new array of
            shift's shape and dtype, or of scale's where no shift is given; diff_add, which is `out_add` or a new array
            in src's memory order, but None unless the forward call that filled the workspace was given `add`.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit, or the workspace is of another call; nothing has been written then.
        RuntimeError, MemoryError
            As in `forward_training`.

        Examples
        --------
        >>> import cynorm, numpy as np
        >>> bn, workspace = cynorm.BatchNorm(epsilon=0.0, layout="NC"), cynorm.Workspace()
        >>> src = np.array([[1.0], [2.0], [6.0]])
        >>> dst, _, _ = bn.forward_training(src, workspace=workspace)
        >>> grads = bn.backward_training(np.array([[1.0], [0.0], [0.0]]), src, workspace=workspace)
        >>> grads.diff_src.ravel().round(4).tolist(), grads.diff_shift.tolist()
        ([0.1763, -0.2204, 0.0441], [1.0])
        """
        return self._problem.backward(self, True, diff_dst, src, mean, variance, scale, shift, workspace, out,
                                      out_scale, out_shift, out_add, num_threads)

    def backward_inference(
        self,
        diff_dst: Tensor,
        src: Tensor,
        mean: Tensor,
        variance: Tensor,
        scale: Tensor | None = None,
        *,
        shift: Tensor | None = None,
        workspace: Workspace | None = None,
        out: Any = None,
        out_scale: Any = None,
        out_shift: Any = None,
        out_add: Any = None,
        num_threads: int | None = None,
    ) -> BatchNormGradients:
        """The gradients of `forward_inference`, whose statistics are constants::

            diff_src = scale / sqrt(variance + epsilon) * d

        and diff_scale, diff_shift and diff_add as in `backward_training`, d being diff_dst * activation'.

        Parameters
        ----------
        diff_dst, src : array
            The gradient with respect to dst, and what the forward call was given: of one shape and dtype.
        mean, variance : array
            What the forward call was given, with one element per statistic.
        scale, shift
            As in `backward_training`.
        workspace, out, out_scale, out_shift, out_add, num_threads
            As in `backward_training`.

        Returns
        -------
        BatchNormGradients
            As in `backward_training`.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit, or the workspace is of another call; nothing has been written then.
        RuntimeError, MemoryError
            As in `forward_training`.

        Examples
        --------
        >>> import cynorm, numpy as np
        >>> bn = cynorm.BatchNorm(epsilon=0.0, layout="NC")
        >>> grads = bn.backward_inference(np.float32([[8]]), np.float32([[3]]), np.float32([1]), np.float32([16]))
        >>> grads.diff_src.tolist(), grads.diff_scale.tolist(), grads.diff_shift.tolist()
        ([[2.0]], [4.0], [8.0])
        """
        return self._problem.backward(self, False, diff_dst, src, mean, variance, scale, shift, workspace, out,
                                      out_scale, out_shift, out_add, num_threads)

    def workspace_nbytes(
        self, shape: Sequence[int], dtype: DTypeLike, cache: Cache = "auto", training: bool = True
    ) -> int:
        """Bytes that a `Workspace` takes for `forward_training`, with a shift and without `add`, or `forward_inference`.

        Parameters
        ----------
        shape : tuple of int
            Of src.
        dtype : dtype or str
            Of src; "bfloat16" too. For int8, in inference, nothing is kept.
        cache : {"auto", "always", "never"}
            That of the workspace.
        training : bool
            Whether the call is `forward_training`.

        Returns
        -------
        int

        Raises
        ------
        TypeError, ValueError
            If an argument is none of these, or the shape does not suit the layout.

        Examples
        --------
        >>> import cynorm
        >>> cynorm.BatchNorm().workspace_nbytes((1, 8, 4, 4), "float32")
        96
        """
        return self._problem.workspace_nbytes(shape, dtype, cache, flag("training", training))

    def implementation(self, src: Tensor) -> str:
        """The kernel that training, and as a rule inference, runs for such an array.

        Parameters
        ----------
        src : array
            As for `forward_inference`; its elements are not looked at.

        Returns
        -------
        str
            Operator, traversal, dtype and instruction set, with colons between. The traversal is "reduced_innermost" or
            "kept_innermost", by which axes lie innermost in memory: those that statistics are taken over, or those that
            are kept. Small planes of many channels, and short rows with gaps between them, are also taken as
            "kept_innermost"; in inference, small planes of few images are taken as they lie.

        Raises
        ------
        TypeError, ValueError
            If `forward_inference` would refuse the array.

        Examples
        --------
        >>> import cynorm, numpy as np
        >>> cynorm.BatchNorm().implementation(np.ones((1, 8, 4, 4), np.float32)).rsplit(":", 1)[0]
        'batch_norm:reduced_innermost:f32'
        """
        return self._problem.implementation(src)

    def _arguments(self) -> tuple[tuple[str, Any], ...]:
        hidden = ("axes",) if self.axes is None else ("layout", "channels")
        return tuple(pair for pair in super()._arguments() if pair[0] not in hidden)


def _axes(axes: int | Iterable[int]) -> tuple[int, ...]:
    numbers = integers("axes", axes, alone=True)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"axes must not repeat, got {shown(axes)}")
    for axis in numbers:
        if not -8 <= axis < 8:
            raise ValueError(f"axes must lie within 8 dimensions, got {shown(axes)}")
    return tuple(sorted(numbers))


@documented(BatchNorm, BatchNorm.forward_training)
def batch_norm(
    src: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
    layout: str | None = None,
    axes: int | Iterable[int] | None = None,
    channels: int | None = None,
    activation: str | Activation | None = None,
    add: Tensor | None = None,
    out: Out | None = None,
    out_mean: Any = None,
    out_variance: Any = None,
    workspace: Workspace | None = None,
    running_mean: Any = None,
    running_variance: Any = None,
    momentum: float = 0.1,
    unbiased_running: bool = True,
    num_threads: int | None = None,
) -> tuple[Out, Array, Array]:
    """`BatchNorm(...).forward_training(src, ...)` in one call: training, with src's own statistics.

    `batch_norm_inference` normalizes with given statistics, as PyTorch's `batch_norm` does unless it is told otherwise.

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> dst, mean, variance = cynorm.batch_norm(np.ones((2, 3, 4, 4), np.float32))
    >>> mean.tolist(), variance.tolist()
    ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    """
    bn = BatchNorm(epsilon=epsilon, layout=layout, axes=axes, channels=channels, activation=activation)
    return bn.forward_training(src, scale, shift, add=add, out=out, out_mean=out_mean,
                               out_variance=out_variance, workspace=workspace, running_mean=running_mean,
                               running_variance=running_variance, momentum=momentum,
                               unbiased_running=unbiased_running, num_threads=num_threads)


@documented(BatchNorm, BatchNorm.backward_training)
def batch_norm_backward(
    diff_dst: Tensor,
    src: Tensor,
    scale: Tensor | None = None,
    *,
    shift: Tensor | None = None,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
    epsilon: float = 1e-5,
    layout: str | None = None,
    axes: int | Iterable[int] | None = None,
    channels: int | None = None,
    activation: str | Activation | None = None,
    workspace: Workspace | None = None,
    out: Any = None,
    out_scale: Any = None,
    out_shift: Any = None,
    out_add: Any = None,
    num_threads: int | None = None,
) -> BatchNormGradients:
    """`BatchNorm(...).backward_training(diff_dst, src, ...)` in one call.

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> src = np.arange(4, dtype=np.float32).reshape(2, 1, 1, 2)
    >>> _, mean, variance = cynorm.batch_norm(src)
    >>> cynorm.batch_norm_backward(np.ones_like(src), src, mean=mean, variance=variance).diff_shift
    array([4.], dtype=float32)
    """
    bn = BatchNorm(epsilon=epsilon, layout=layout, axes=axes, channels=channels, activation=activation)
    return bn.backward_training(diff_dst, src, scale, shift=shift, mean=mean, variance=variance, workspace=workspace,
                                out=out, out_scale=out_scale, out_shift=out_shift, out_add=out_add,
                                num_threads=num_threads)


@documented(BatchNorm, BatchNorm.forward_inference)
def batch_norm_inference(
    src: Tensor,
    mean: Tensor,
    variance: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
    layout: str | None = None,
    axes: int | Iterable[int] | None = None,
    channels: int | None = None,
    activation: str | Activation | None = None,
    add: Tensor | None = None,
    out: Out | None = None,
    workspace: Workspace | None = None,
    running_mean: None = None,
    running_variance: None = None,
    num_threads: int | None = None,
) -> Out:
    """`BatchNorm(...).forward_inference(src, mean, variance, ...)` in one call.

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> one = np.ones(3, np.float32)
    >>> dst = cynorm.batch_norm_inference(np.ones((2, 3, 4, 4), np.float32), one, one, shift=5 * one)
    >>> dst.shape, dst.max().item()
    ((2, 3, 4, 4), 5.0)
    """
    bn = BatchNorm(epsilon=epsilon, layout=layout, axes=axes, channels=channels, activation=activation)
    return bn.forward_inference(src, mean, variance, scale, shift, add=add, out=out, workspace=workspace,
                                running_mean=running_mean, running_variance=running_variance, num_threads=num_threads)


@documented(BatchNorm, BatchNorm.backward_inference)
def batch_norm_inference_backward(
    diff_dst: Tensor,
    src: Tensor,
    mean: Tensor,
    variance: Tensor,
    scale: Tensor | None = None,
    *,
    shift: Tensor | None = None,
    epsilon: float = 1e-5,
    layout: str | None = None,
    axes: int | Iterable[int] | None = None,
    channels: int | None = None,
    activation: str | Activation | None = None,
    workspace: Workspace | None = None,
    out: Any = None,
    out_scale: Any = None,
    out_shift: Any = None,
    out_add: Any = None,
    num_threads: int | None = None,
) -> BatchNormGradients:
    """`BatchNorm(...).backward_inference(diff_dst, src, mean, variance, ...)` in one call.

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> src, one = np.ones((2, 3, 4, 4), np.float32), np.ones(3, np.float32)
    >>> cynorm.batch_norm_inference_backward(src, src, one, one).diff_shift
    array([32., 32., 32.], dtype=float32)
    """
    bn = BatchNorm(epsilon=epsilon, layout=layout, axes=axes, channels=channels, activation=activation)
    return bn.backward_inference(diff_dst, src, mean, variance, scale, shift=shift, workspace=workspace, out=out,
                                 out_scale=out_scale, out_shift=out_shift, out_add=out_add, num_threads=num_threads)
