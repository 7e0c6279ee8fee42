from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import DTypeLike

from cynorm._typing import Array, Out, Tensor
from cynorm._workspace import Workspace
from cynorm.batch_norm import BatchNorm
from cynorm.layout import Axes

class BatchNormGradients(NamedTuple):
    diff_src: Array
    diff_scale: Array
    diff_shift: Array
    diff_add: Array | None

class Problem:
    def __init__(
        self, owner: BatchNorm, layout: Axes | None, activation: int, parameters: list[float]
    ) -> None: ...
    def forward(
        self,
        owner: BatchNorm,
        training: bool,
        src: Tensor,
        mean: Tensor | None,
        variance: Tensor | None,
        scale: Tensor | None,
        shift: Tensor | None,
        add: Tensor | None,
        out: Out | None,
        given_workspace: Workspace | None,
        running_mean: Tensor | None,
        running_variance: Tensor | None,
        momentum: float,
        unbiased_running: bool,
        num_threads: int | None,
    ) -> tuple[Out, Array, Array]: ...
    # out and its like, where they are given, are what diff_src and its like are, whatever their type
    def backward(
        self,
        owner: BatchNorm,
        training: bool,
        diff_dst: Tensor,
        src: Tensor,
        mean: Tensor | None,
        variance: Tensor | None,
        scale: Tensor | None,
        shift: Tensor | None,
        given_workspace: Workspace | None,
        out: Any,
        out_scale: Any,
        out_shift: Any,
        out_add: Any,
        num_threads: int | None,
    ) -> BatchNormGradients: ...
    def workspace_nbytes(
        self, shape: Sequence[int], dtype: DTypeLike, cache: str, training: bool
    ) -> int: ...
    def implementation(self, src: Tensor) -> str: ...
