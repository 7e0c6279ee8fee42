from collections.abc import Sequence
from typing import Literal, NoReturn, TypeVar, overload

from numpy.typing import DTypeLike

from cynorm._interop import _Array, _Tensor
from cynorm._workspace import Workspace

_T = TypeVar("_T")
_Region = Literal["across_channels", "within_channel"]
_Window = Literal["onednn", "onnx", "torch"]

class LRN:
    def __init__(
        self,
        local_size: int = 5,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
        *,
        region: _Region = "across_channels",
        layout: str = "NCHW",
        channels: int | None = None,
        window: _Window = "onednn",
        divisor: float | None = None,
    ) -> None: ...
    @property
    def local_size(self) -> int: ...
    @property
    def alpha(self) -> float: ...
    @property
    def beta(self) -> float: ...
    @property
    def k(self) -> float: ...
    @property
    def region(self) -> _Region: ...
    @property
    def layout(self) -> str: ...
    @property
    def channels(self) -> int | None: ...
    @property
    def window(self) -> _Window: ...
    @property
    def divisor(self) -> float | None: ...
    @overload
    def forward(
        self,
        src: _Tensor,
        out: None = None,
        workspace: Workspace | None = None,
        num_threads: int | None = None,
    ) -> _Array: ...
    @overload
    def forward(
        self,
        src: _Tensor,
        out: _T,
        workspace: Workspace | None = None,
        num_threads: int | None = None,
    ) -> _T: ...
    @overload
    def backward(
        self,
        diff_dst: _Tensor,
        src: _Tensor,
        out: None = None,
        workspace: Workspace | None = None,
        num_threads: int | None = None,
        *,
        dst: _Tensor | None = None,
    ) -> _Array: ...
    @overload
    def backward(
        self,
        diff_dst: _Tensor,
        src: _Tensor,
        out: _T,
        workspace: Workspace | None = None,
        num_threads: int | None = None,
        *,
        dst: _Tensor | None = None,
    ) -> _T: ...
    def workspace_nbytes(
        self, shape: Sequence[int], dtype: DTypeLike, cache: Literal["auto", "always", "never"] = "auto"
    ) -> int: ...
    def implementation(self, src: _Tensor) -> str: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __setattr__(self, name: str, value: object) -> NoReturn: ...
    def __delattr__(self, name: str) -> NoReturn: ...

@overload
def lrn(
    src: _Tensor,
    local_size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    region: _Region = "across_channels",
    layout: str = "NCHW",
    channels: int | None = None,
    window: _Window = "onednn",
    divisor: float | None = None,
    out: None = None,
    workspace: Workspace | None = None,
    num_threads: int | None = None,
) -> _Array: ...
@overload
def lrn(
    src: _Tensor,
    local_size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    region: _Region = "across_channels",
    layout: str = "NCHW",
    channels: int | None = None,
    window: _Window = "onednn",
    divisor: float | None = None,
    out: _T,
    workspace: Workspace | None = None,
    num_threads: int | None = None,
) -> _T: ...
@overload
def lrn_backward(
    diff_dst: _Tensor,
    src: _Tensor,
    local_size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    region: _Region = "across_channels",
    layout: str = "NCHW",
    channels: int | None = None,
    window: _Window = "onednn",
    divisor: float | None = None,
    out: None = None,
    workspace: Workspace | None = None,
    num_threads: int | None = None,
    dst: _Tensor | None = None,
) -> _Array: ...
@overload
def lrn_backward(
    diff_dst: _Tensor,
    src: _Tensor,
    local_size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    region: _Region = "across_channels",
    layout: str = "NCHW",
    channels: int | None = None,
    window: _Window = "onednn",
    divisor: float | None = None,
    out: _T,
    workspace: Workspace | None = None,
    num_threads: int | None = None,
    dst: _Tensor | None = None,
) -> _T: ...
