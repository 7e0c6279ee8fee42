from collections.abc import Sequence

from numpy.typing import DTypeLike

from cynorm._typing import Out, Tensor
from cynorm._workspace import Workspace
from cynorm.layout import Axes
from cynorm.lrn import LRN

class Problem:
    def __init__(self, owner: LRN, axes: Axes, window: int, alpha: float) -> None: ...
    def forward(
        self, owner: LRN, src: Tensor, out: Out | None, given_workspace: Workspace | None, num_threads: int | None
    ) -> Out: ...
    def backward(
        self,
        owner: LRN,
        diff_dst: Tensor,
        src: Tensor,
        out: Out | None,
        given_workspace: Workspace | None,
        num_threads: int | None,
        dst: Tensor | None,
    ) -> Out: ...
    def workspace_nbytes(self, shape: Sequence[int], dtype: DTypeLike, cache: str) -> int: ...
    def implementation(self, src: Tensor) -> str: ...
