from collections.abc import Iterable, Sequence
from typing import Any, Literal, NoReturn, TypeVar, overload

from numpy.typing import DTypeLike

from cynorm._batch_norm import BatchNormGradients as BatchNormGradients
from cynorm._interop import _Array, _Tensor
from cynorm._workspace import Workspace

__all__ = ["Activation", "BatchNorm", "BatchNormGradients", "batch_norm", "batch_norm_backward"]

_T = TypeVar("_T")

class _Immutable:
    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __setattr__(self, name: str, value: object) -> NoReturn: ...
    def __delattr__(self, name: str) -> NoReturn: ...

class Activation(_Immutable):
    def __init__(self, name: str, **parameters: float) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> tuple[tuple[str, float], ...]: ...

class BatchNorm(_Immutable):
    def __init__(
        self,
        epsilon: float = 1e-5,
        *,
        layout: str = "NCHW",
        axes: int | Iterable[int] | None = None,
        channels: int | None = None,
        activation: str | Activation | None = None,
    ) -> None: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def layout(self) -> str | None: ...
    @property
    def axes(self) -> tuple[int, ...] | None: ...
    @property
    def channels(self) -> int | None: ...
    @property
    def activation(self) -> Activation | None: ...
    @overload
    def forward_training(
        self,
        src: _Tensor,
        scale: _Tensor | None = None,
        shift: _Tensor | None = None,
        *,
        add: _Tensor | None = None,
        out: None = None,
        workspace: Workspace | None = None,
        running_mean: _Tensor | None = None,
        running_variance: _Tensor | None = None,
        momentum: float = 0.1,
        unbiased_running: bool = True,
        num_threads: int | None = None,
    ) -> tuple[_Array, _Array, _Array]: ...
    @overload
    def forward_training(
        self,
        src: _Tensor,
        scale: _Tensor | None = None,
        shift: _Tensor | None = None,
        *,
        add: _Tensor | None = None,
        out: _T,
        workspace: Workspace | None = None,
        running_mean: _Tensor | None = None,
        running_variance: _Tensor | None = None,
        momentum: float = 0.1,
        unbiased_running: bool = True,
        num_threads: int | None = None,
    ) -> tuple[_T, _Array, _Array]: ...
    @overload
    def forward_inference(
        self,
        src: _Tensor,
        mean: _Tensor,
        variance: _Tensor,
        scale: _Tensor | None = None,
        shift: _Tensor | None = None,
        *,
        add: _Tensor | None = None,
        out: None = None,
        workspace: Workspace | None = None,
        num_threads: int | None = None,
    ) -> _Array: ...
    @overload
    def forward_inference(
        self,
        src: _Tensor,
        mean: _Tensor,
        variance: _Tensor,
        scale: _Tensor | None = None,
        shift: _Tensor | None = None,
        *,
        add: _Tensor | None = None,
        out: _T,
        workspace: Workspace | None = None,
        num_threads: int | None = None,
    ) -> _T: ...
    # out and out_add, where they are given, are what diff_src and diff_add are, whatever their type
    def backward_training(
        self,
        diff_dst: _Tensor,
        src: _Tensor,
        scale: _Tensor | None = None,
        *,
        shift: _Tensor | None = None,
        mean: _Tensor | None = None,
        variance: _Tensor | None = None,
        workspace: Workspace | None = None,
        out: Any = None,
        out_add: Any = None,
        num_threads: int | None = None,
    ) -> BatchNormGradients: ...
    def backward_inference(
        self,
        diff_dst: _Tensor,
        src: _Tensor,
        mean: _Tensor,
        variance: _Tensor,
        scale: _Tensor | None = None,
        *,
        shift: _Tensor | None = None,
        workspace: Workspace | None = None,
        out: Any = None,
        out_add: Any = None,
        num_threads: int | None = None,
    ) -> BatchNormGradients: ...
    def workspace_nbytes(
        self,
        shape: Sequence[int],
        dtype: DTypeLike,
        cache: Literal["auto", "always", "never"] = "auto",
        training: bool = True,
    ) -> int: ...
    def implementation(self, src: _Tensor) -> str: ...

@overload
def batch_norm(
    src: _Tensor,
    scale: _Tensor | None = None,
    shift: _Tensor | None = None,
    *,
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    axes: int | Iterable[int] | None = None,
    channels: int | None = None,
    activation: str | Activation | None = None,
    add: _Tensor | None = None,
    out: None = None,
    workspace: Workspace | None = None,
    running_mean: _Tensor | None = None,
    running_variance: _Tensor | None = None,
    momentum: float = 0.1,
    unbiased_running: bool = True,
    num_threads: int | None = None,
) -> tuple[_Array, _Array, _Array]: ...
@overload
def batch_norm(
    src: _Tensor,
    scale: _Tensor | None = None,
    shift: _Tensor | None = None,
    *,
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    axes: int | Iterable[int] | None = None,
    channels: int | None = None,
    activation: str | Activation | None = None,
    add: _Tensor | None = None,
    out: _T,
    workspace: Workspace | None = None,
    running_mean: _Tensor | None = None,
    running_variance: _Tensor | None = None,
    momentum: float = 0.1,
    unbiased_running: bool = True,
    num_threads: int | None = None,
) -> tuple[_T, _Array, _Array]: ...
def batch_norm_backward(
    diff_dst: _Tensor,
    src: _Tensor,
    scale: _Tensor | None = None,
    *,
    shift: _Tensor | None = None,
    mean: _Tensor | None = None,
    variance: _Tensor | None = None,
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    axes: int | Iterable[int] | None = None,
    channels: int | None = None,
    activation: str | Activation | None = None,
    workspace: Workspace | None = None,
    out: Any = None,
    out_add: Any = None,
    num_threads: int | None = None,
) -> BatchNormGradients: ...
