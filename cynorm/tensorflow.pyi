from typing import Any, NamedTuple

from cynorm._interop import _Array, _Tensor

__all__ = [
    "FusedBatchNorm",
    "FusedBatchNormGrad",
    "fused_batch_norm",
    "fused_batch_norm_grad",
    "lrn",
    "lrn_grad",
]

class FusedBatchNorm(NamedTuple):
    y: _Array
    batch_mean: _Array
    batch_variance: _Array
    reserve_space_1: _Array
    reserve_space_2: _Array
    reserve_space_3: _Array

class FusedBatchNormGrad(NamedTuple):
    x_backprop: _Array
    scale_backprop: _Array
    offset_backprop: _Array
    reserve_space_4: _Array
    reserve_space_5: _Array

def lrn(
    input: _Tensor,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
    *,
    out: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
def lrn_grad(
    input_grads: _Tensor,
    input_image: _Tensor,
    output_image: _Tensor,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
    *,
    out: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
def fused_batch_norm(
    x: _Tensor,
    scale: _Tensor,
    offset: _Tensor,
    mean: _Tensor | None = None,
    variance: _Tensor | None = None,
    epsilon: float = 0.0001,
    exponential_avg_factor: float = 1.0,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
    *,
    out: Any = None,
    num_threads: int | None = None,
) -> FusedBatchNorm: ...
def fused_batch_norm_grad(
    y_backprop: _Tensor,
    x: _Tensor,
    scale: _Tensor,
    reserve_space_1: _Tensor,
    reserve_space_2: _Tensor,
    reserve_space_3: _Tensor | None = None,
    epsilon: float = 0.0001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
    *,
    out: Any = None,
    num_threads: int | None = None,
) -> FusedBatchNormGrad: ...
