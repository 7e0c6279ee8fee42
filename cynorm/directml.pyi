from typing import Any, NamedTuple

from cynorm._interop import _Array, _Tensor
from cynorm.batch_norm import Activation

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

class BatchNormalizationTraining(NamedTuple):
    output: _Array
    output_mean: _Array
    output_variance: _Array

class BatchNormalizationGrad(NamedTuple):
    output_gradient: _Array
    output_scale_gradient: _Array
    output_bias_gradient: _Array

def local_response_normalization(
    input: _Tensor,
    *,
    cross_channel: bool,
    local_size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
    divisor: float | None = None,
    out: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
def local_response_normalization_grad(
    input: _Tensor,
    input_gradient: _Tensor,
    *,
    cross_channel: bool,
    local_size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
    divisor: float | None = None,
    out: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
def batch_normalization(
    input: _Tensor,
    mean: _Tensor,
    variance: _Tensor,
    scale: _Tensor,
    bias: _Tensor,
    *,
    spatial: bool = True,
    epsilon: float,
    fused_activation: str | Activation | None = None,
    out: Any = None,
    num_threads: int | None = None,
) -> _Array: ...
def batch_normalization_training(
    input: _Tensor,
    scale: _Tensor,
    bias: _Tensor,
    fused_add: _Tensor | None = None,
    *,
    epsilon: float,
    fused_activation: str | Activation | None = None,
    out: Any = None,
    num_threads: int | None = None,
) -> BatchNormalizationTraining: ...
def batch_normalization_grad(
    input: _Tensor,
    input_gradient: _Tensor,
    mean: _Tensor,
    variance: _Tensor,
    scale: _Tensor,
    *,
    epsilon: float,
    out: Any = None,
    num_threads: int | None = None,
) -> BatchNormalizationGrad: ...
def batch_normalization_training_grad(
    input: _Tensor,
    input_gradient: _Tensor,
    mean: _Tensor,
    variance: _Tensor,
    scale: _Tensor,
    *,
    epsilon: float,
    out: Any = None,
    num_threads: int | None = None,
) -> BatchNormalizationGrad: ...
