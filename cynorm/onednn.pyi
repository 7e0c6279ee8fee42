import functools
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

from numpy import dtype
from typing_extensions import Buffer

from cynorm._interop import _Array

__all__ = [
    "DNNL_ARG_SRC",
    "DNNL_ARG_SRC_1",
    "DNNL_ARG_DST",
    "DNNL_ARG_MEAN",
    "DNNL_ARG_VARIANCE",
    "DNNL_ARG_SCALE",
    "DNNL_ARG_SHIFT",
    "DNNL_ARG_WORKSPACE",
    "DNNL_ARG_DIFF_SRC",
    "DNNL_ARG_DIFF_SRC_1",
    "DNNL_ARG_DIFF_DST",
    "DNNL_ARG_DIFF_SCALE",
    "DNNL_ARG_DIFF_SHIFT",
    "data_type",
    "prop_kind",
    "algorithm",
    "normalization_flags",
    "memory_desc",
    "lrn_forward",
    "lrn_backward",
    "batch_normalization_forward",
    "batch_normalization_backward",
]

DNNL_ARG_SRC: int
DNNL_ARG_SRC_1: int
DNNL_ARG_DST: int
DNNL_ARG_MEAN: int
DNNL_ARG_VARIANCE: int
DNNL_ARG_SCALE: int
DNNL_ARG_SHIFT: int
DNNL_ARG_WORKSPACE: int
DNNL_ARG_DIFF_SRC: int
DNNL_ARG_DIFF_SRC_1: int
DNNL_ARG_DIFF_DST: int
DNNL_ARG_DIFF_SCALE: int
DNNL_ARG_DIFF_SHIFT: int

class data_type(IntEnum):
    undef = 0
    f16 = 1
    bf16 = 2
    f32 = 3
    s8 = 5
    u8 = 6
    f64 = 7

class prop_kind(IntEnum):
    forward_training = 64
    forward_inference = 96
    backward = 128
    backward_data = 160

class algorithm(IntEnum):
    lrn_across_channels = 2815
    lrn_within_channel = 3071

class normalization_flags(IntFlag):
    none = 0
    use_global_stats = 1
    use_scale = 2
    use_shift = 4
    fuse_norm_relu = 8
    fuse_norm_add_relu = 16

@dataclass(frozen=True)
class memory_desc:
    dims: tuple[int, ...]
    data_type: data_type
    format: InitVar[str | tuple[int, ...]]
    strides: tuple[int, ...] | None = field(init=False)
    inner_blk: int = field(init=False)
    def __post_init__(self, format: str | tuple[int, ...]) -> None: ...
    @property
    def padded_dims(self) -> tuple[int, ...]: ...
    @functools.cached_property
    def shape(self) -> tuple[int, ...]: ...
    @functools.cached_property
    def dtype(self) -> dtype[Any]: ...
    @functools.cached_property
    def byte_strides(self) -> tuple[int, ...]: ...
    @property
    def is_zero(self) -> bool: ...
    def get_size(self) -> int: ...
    def empty(self) -> _Array: ...
    def wrap(self, buffer: Buffer) -> _Array: ...

class _primitive:
    def __init__(self, primitive_desc: Any) -> None: ...
    def get_primitive_desc(self) -> Any: ...
    def execute(self, args: Mapping[int, Any]) -> None: ...

class _Descriptor:
    @functools.cached_property
    def impl_info_str(self) -> str: ...

class _LrnDescriptor(_Descriptor): ...

class lrn_forward(_primitive):
    @dataclass(frozen=True)
    class primitive_desc(_LrnDescriptor):
        prop_kind: prop_kind
        algorithm: algorithm
        src_desc: memory_desc
        dst_desc: memory_desc
        local_size: int
        alpha: float
        beta: float
        k: float = ...
        @functools.cached_property
        def workspace_desc(self) -> memory_desc: ...

class lrn_backward(_primitive):
    @dataclass(frozen=True)
    class primitive_desc(_LrnDescriptor):
        algorithm: algorithm
        diff_src_desc: memory_desc
        diff_dst_desc: memory_desc
        src_desc: memory_desc
        local_size: int
        alpha: float
        beta: float
        k: float
        hint_fwd_pd: lrn_forward.primitive_desc
        @property
        def workspace_desc(self) -> memory_desc: ...

class _BatchNormalizationDescriptor(_Descriptor):
    @functools.cached_property
    def weights_desc(self) -> memory_desc: ...
    @property
    def mean_desc(self) -> memory_desc: ...
    @property
    def variance_desc(self) -> memory_desc: ...

class batch_normalization_forward(_primitive):
    @dataclass(frozen=True)
    class primitive_desc(_BatchNormalizationDescriptor):
        prop_kind: prop_kind
        src_desc: memory_desc
        dst_desc: memory_desc
        epsilon: float
        flags: normalization_flags = ...
        @functools.cached_property
        def workspace_desc(self) -> memory_desc: ...

class batch_normalization_backward(_primitive):
    @dataclass(frozen=True)
    class primitive_desc(_BatchNormalizationDescriptor):
        prop_kind: prop_kind
        diff_src_desc: memory_desc
        diff_dst_desc: memory_desc
        src_desc: memory_desc
        epsilon: float
        flags: normalization_flags
        hint_fwd_pd: batch_normalization_forward.primitive_desc
        @property
        def workspace_desc(self) -> memory_desc: ...
