"""Local response normalization: parameters, their checks, and what the documentation promises."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cynorm import _lrn
from cynorm._parameters import Immutable, choice, documented, finite, integer
from cynorm.layout import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from cynorm._typing import Cache, Out, Region, Tensor, Window
    from cynorm._workspace import Workspace

_REGIONS: tuple[Region, ...] = ("across_channels", "within_channel")
_WINDOWS: tuple[Window, ...] = ("onednn", "onnx", "torch")  # in the order of cynorm_window in cynorm.h


class LRN(Immutable):
    """Local response normalization, forward and backward.

    Each element is divided by a power of the mean square of its neighbourhood::

        omega = k + alpha / divisor * sum(src[window] ** 2)
        dst   = src * omega ** -beta

    Parameters
    ----------
    local_size : int
        Number n of cells of the window along each of its axes, at least 1; it may be larger than the tensor. Where n is
        even, see `window`: by default n-1 cells are summed.
    alpha, beta, k : float
        Any finite numbers. For data other than float64, alpha / divisor and k are rounded to float32, and to infinity
        beyond its range.
    region : {"across_channels", "within_channel"}
        Whether the window lies along the channels, or is a box over all the spatial axes (0 to 3 of them).
    layout : str
        What the axes of the arrays mean: NC, NCW, NCHW, NCDHW, NWC, NHWC, NDHWC, or blocked: nCw8c, nChw8c, nCdhw8c,
        nCw16c, nChw16c, nCdhw16c, whose arrays have shape (N, blocks, spatial..., block). The order in memory is
        whatever the strides say; every order runs without a copy of the tensor.
    channels : int, optional
        Number of channels, for a blocked layout whose last block is not full. The rest of that block is read as zero
        and written as zero.
    window : {"onednn", "onnx", "torch"}
        Where an even window lies. In this order: n/2-1 cells on both sides (and still divided by n), n/2-1 left and n/2
        right, or n/2 left and n/2-1 right.
    divisor : float, optional
        What alpha is divided by: not 0, and alpha / divisor finite. Default: n or, within a channel, n to the power of the
        number of spatial axes; at the borders, too, and where n is even.

    Raises
    ------
    TypeError, ValueError
        If a parameter is not one of the above.

    Notes
    -----
    An array may be anything that shares its memory by DLPack, `__array_interface__` or the buffer protocol, such as
    PyTorch's tensors. Where it is only read, it may also be a nested list of floats, which NumPy makes float64. Results
    are NumPy's.

    An LRN holds parameters only: it is immutable, hashable and picklable, and any number of threads may share one.
    float16 and bfloat16 are computed in float32 and rounded once at the end. Results do not depend on the number of
    threads. For windows of fewer than 10 cells they do not depend on the memory order either; wider windows are summed
    in the order that suits it, so their last bits may differ.

    Source: Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional Neural Networks" (2012),
    in oneDNN's form.

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> lrn = cynorm.LRN(local_size=3, alpha=3.0, beta=0.5)
    >>> src = np.array([[1.0, 2.0, 2.0, 0.0]]).reshape(1, 4, 1, 1)
    >>> lrn.forward(src).ravel().round(4).tolist()     # omega: 6, 10, 9, 5
    [0.4082, 0.6325, 0.6667, 0.0]
    """

    __slots__ = ("local_size", "alpha", "beta", "k", "region", "layout", "channels", "window", "divisor", "_problem")
    local_size: int
    alpha: float
    beta: float
    k: float
    region: Region
    layout: str
    channels: int | None
    window: Window
    divisor: float | None
    _problem: _lrn.Problem

    def __init__(
        self,
        local_size: int = 5,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
        *,
        region: Region = "across_channels",
        layout: str = "NCHW",
        channels: int | None = None,
        window: Window = "onednn",
        divisor: float | None = None,
    ) -> None:
        layout, axes = parse(layout)
        self._keep(
            local_size=integer("local_size", local_size),
            alpha=finite("alpha", alpha),
            beta=finite("beta", beta),
            k=finite("k", k),
            region=choice("region", region, _REGIONS),
            layout=layout,
            channels=None if channels is None else integer("channels", channels),
            window=choice("window", window, _WINDOWS),
            divisor=None if divisor is None else finite("divisor", divisor),
        )
        if self.divisor == 0:
            raise ValueError("divisor must not be 0, got 0")
        cells = self.local_size if region == "across_channels" else self.local_size**axes.spatial
        alpha = self.alpha / (cells if self.divisor is None else self.divisor)
        if not math.isfinite(alpha):
            raise ValueError(f"alpha / divisor must be finite, got alpha={self.alpha!r} and divisor={divisor!r}")
        self._keep(_problem=_lrn.Problem(self, axes, _WINDOWS.index(window), alpha))

    def forward(
        self,
        src: Tensor,
        out: Out | None = None,
        workspace: Workspace | None = None,
        num_threads: int | None = None,
    ) -> Out:
        """Normalize src.

        Parameters
        ----------
        src : array of float32, float64, float16 or bfloat16
            Axes as `layout` says, any strides.
        out : array, optional
            Where to write: of src's shape and dtype, any strides. It may be src itself (but `backward` needs src as it
            was); otherwise it must not overlap src. Default: a new array in src's memory order.
        workspace : Workspace, optional
            Keeps what is worth keeping for `backward`.
        num_threads : int, optional
            Threads for this call; default: `get_num_threads()`.

        Returns
        -------
        dst : array
            `out`, or the new array.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit; nothing has been written then.
        RuntimeError
            If another call, on another thread, is using the workspace.
        MemoryError
            If there is no memory for the result, the workspace or the scratch of the kernels; `out` may have been written to.

        Examples
        --------
        >>> import cynorm, numpy as np
        >>> src = np.ones((1, 8, 2, 2))
        >>> dst = cynorm.LRN(alpha=5.0, beta=1.0).forward(src)
        >>> dst[0, :, 0, 0].round(3).tolist()
        [0.25, 0.2, 0.167, 0.167, 0.167, 0.167, 0.2, 0.25]
        """
        return self._problem.forward(self, src, out, workspace, num_threads)

    def backward(
        self,
        diff_dst: Tensor,
        src: Tensor,
        out: Out | None = None,
        workspace: Workspace | None = None,
        num_threads: int | None = None,
        *,
        dst: Tensor | None = None,
    ) -> Out:
        """The gradient with respect to src::

            diff_src = diff_dst * omega ** -beta
                       - 2 * alpha * beta / divisor * src * sum(diff_dst * src * omega ** (-beta - 1))

        where the sum is over all cells whose window holds this one.

        Parameters
        ----------
        diff_dst : array
            The gradient with respect to dst, of src's shape and dtype; its memory order may differ.
        src : array
            What `forward` was given.
        out : array, optional
            Where to write: it may be diff_dst, src or dst itself, and must not overlap them otherwise.
        workspace : Workspace, optional
            The one that `forward` filled for the same parameters, shape and dtype. Without a workspace everything is
            recomputed from src, with the same result (to the last bit for float32 and float64).
        num_threads : int, optional
            Threads for this call; default: `get_num_threads()`.
        dst : array, optional
            TensorFlow's convention: this stands for ``src * omega ** -beta`` in the sum.

        Returns
        -------
        diff_src : array
            `out`, or a new array in src's memory order.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit, or the workspace is of another call; nothing has been written then.
        RuntimeError, MemoryError
            As in `forward`.

        Examples
        --------
        >>> import cynorm, numpy as np
        >>> src = np.full((1, 1, 1, 1), 2.0)
        >>> lrn = cynorm.LRN(local_size=1, alpha=1.0, beta=1.0)     # dst = x / (1 + x^2)
        >>> round(lrn.backward(np.ones_like(src), src).item(), 12)  # (1 - x^2) / (1 + x^2)^2
        -0.12
        """
        return self._problem.backward(self, diff_dst, src, out, workspace, num_threads, dst)

    def workspace_nbytes(self, shape: Sequence[int], dtype: DTypeLike, cache: Cache = "auto") -> int:
        """Bytes that a `Workspace` takes for a forward call on such a tensor.

        Parameters
        ----------
        shape : tuple of int
            Of src.
        dtype : dtype or str
            Of src; "bfloat16" too.
        cache : {"auto", "always", "never"}
            That of the workspace.

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
        >>> cynorm.LRN().workspace_nbytes((1, 8, 4, 4), "float32", cache="always")
        512
        """
        return self._problem.workspace_nbytes(shape, dtype, cache)

    def implementation(self, src: Tensor) -> str:
        """The kernel that `forward` runs for such an array.

        Parameters
        ----------
        src : array
            As for `forward`; its elements are not looked at.

        Returns
        -------
        str
            Operator and region, traversal, dtype and instruction set, with colons between. The traversal is "plain" or
            "channels_last", by what lies innermost as the kernel takes the array; the kernel transposes few channels
            (across channels), and planes that are narrow, or small for a wide window (within). It is "blocked" where
            windows cross blocks of channels, "pointwise" where windows have no axis, "empty" for an array without
            elements. Where src repeats elements (strides of 0), out's memory order may call for another traversal.

        Raises
        ------
        TypeError, ValueError
            If `forward` would refuse the array.

        Examples
        --------
        >>> import cynorm, numpy as np
        >>> cynorm.LRN().implementation(np.ones((1, 8, 4, 4), np.float32)).rsplit(":", 1)[0]
        'lrn_across:plain:f32'
        """
        return self._problem.implementation(src)


@documented(LRN, LRN.forward)
def lrn(
    src: Tensor,
    local_size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    region: Region = "across_channels",
    layout: str = "NCHW",
    channels: int | None = None,
    window: Window = "onednn",
    divisor: float | None = None,
    out: Out | None = None,
    workspace: Workspace | None = None,
    num_threads: int | None = None,
) -> Out:
    """`LRN(...).forward(src, ...)` in one call.

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> cynorm.lrn(np.ones((1, 3, 3, 1)), region="within_channel", layout="NHWC").shape
    (1, 3, 3, 1)
    """
    operator = LRN(local_size, alpha, beta, k, region=region, layout=layout, channels=channels, window=window,
                   divisor=divisor)
    return operator.forward(src, out, workspace, num_threads)


@documented(LRN, LRN.backward)
def lrn_backward(
    diff_dst: Tensor,
    src: Tensor,
    local_size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    region: Region = "across_channels",
    layout: str = "NCHW",
    channels: int | None = None,
    window: Window = "onednn",
    divisor: float | None = None,
    out: Out | None = None,
    workspace: Workspace | None = None,
    num_threads: int | None = None,
    dst: Tensor | None = None,
) -> Out:
    """`LRN(...).backward(diff_dst, src, ...)` in one call.

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> src = np.ones((2, 8, 3, 3), np.float32)
    >>> cynorm.lrn_backward(np.ones_like(src), src).shape
    (2, 8, 3, 3)
    """
    operator = LRN(local_size, alpha, beta, k, region=region, layout=layout, channels=channels, window=window,
                   divisor=divisor)
    return operator.backward(diff_dst, src, out, workspace, num_threads, dst=dst)
