"""oneDNN's LRN and batch normalization primitives on NumPy arrays, in the manner of its C++ API.

Descriptors, enumerations, flags and execution arguments keep oneDNN's names and values.

>>> import numpy as np
>>> from cynorm.onednn import *
>>> md = memory_desc((2, 16, 7, 7), data_type.f32, "nhwc")
>>> pd = lrn_forward.primitive_desc(
...     prop_kind.forward_training, algorithm.lrn_across_channels, md, md, local_size=5, alpha=1e-4, beta=0.75, k=1)
>>> src, dst = md.wrap(np.ones(2 * 7 * 7 * 16, np.float32)), md.empty()
>>> lrn_forward(pd).execute({DNNL_ARG_SRC: src, DNNL_ARG_DST: dst})

A training step of batch normalization with ReLU, whose backward primitive takes the workspace:

>>> from cynorm import Workspace
>>> flags, workspace = normalization_flags.fuse_norm_relu, Workspace()
>>> pd = batch_normalization_forward.primitive_desc(prop_kind.forward_training, md, md, 1e-5, flags)
>>> mean, variance = pd.mean_desc.empty(), pd.variance_desc.empty()
>>> batch_normalization_forward(pd).execute({
...     DNNL_ARG_SRC: src, DNNL_ARG_DST: dst, DNNL_ARG_MEAN: mean, DNNL_ARG_VARIANCE: variance,
...     DNNL_ARG_WORKSPACE: workspace})
>>> backward = batch_normalization_backward.primitive_desc(
...     prop_kind.backward, md, md, md, 1e-5, flags, hint_fwd_pd=pd)
>>> diff_src = md.empty()
>>> batch_normalization_backward(backward).execute({
...     DNNL_ARG_SRC: src, DNNL_ARG_DIFF_DST: dst, DNNL_ARG_MEAN: mean, DNNL_ARG_VARIANCE: variance,
...     DNNL_ARG_DIFF_SRC: diff_src, DNNL_ARG_WORKSPACE: workspace})

The differences follow from NumPy. There are no engines and no streams: `execute` returns when it is done. A
memory argument is an array of its descriptor's shape and type, whatever its strides: `memory_desc.empty`
makes one in the descriptor's format, `memory_desc.wrap` looks at an existing buffer as one. The workspace is
a `cynorm.Workspace`. Queries are attributes. A status other than success is a ValueError or TypeError. And
f16, f64 and nearly every pair of formats run on every CPU.

Source: oneDNN's developer guide, "Local Response Normalization (LRN)" and "Batch Normalization".
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

import cynorm
from cynorm._messages import shown
from cynorm._parameters import MOST, finite, index, integer, integers
from cynorm._tensor import checked, keyword_arguments, remembered
from cynorm._workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsIndex, TypeVar

    from cynorm._typing import Array

    _Kind = TypeVar("_Kind", bound=IntEnum)

__all__ = [
    "DNNL_ARG_DIFF_DST",
    "DNNL_ARG_DIFF_SCALE",
    "DNNL_ARG_DIFF_SHIFT",
    "DNNL_ARG_DIFF_SRC",
    "DNNL_ARG_DIFF_SRC_1",
    "DNNL_ARG_DST",
    "DNNL_ARG_MEAN",
    "DNNL_ARG_SCALE",
    "DNNL_ARG_SHIFT",
    "DNNL_ARG_SRC",
    "DNNL_ARG_SRC_1",
    "DNNL_ARG_VARIANCE",
    "DNNL_ARG_WORKSPACE",
    "algorithm",
    "batch_normalization_backward",
    "batch_normalization_forward",
    "data_type",
    "lrn_backward",
    "lrn_forward",
    "memory_desc",
    "normalization_flags",
    "prop_kind",
]

DNNL_ARG_SRC = 1
DNNL_ARG_SRC_1 = 2
DNNL_ARG_DST = 17
DNNL_ARG_MEAN = 49
DNNL_ARG_VARIANCE = 50
DNNL_ARG_SCALE = 51
DNNL_ARG_SHIFT = 52
DNNL_ARG_WORKSPACE = 64
DNNL_ARG_DIFF_SRC = 129
DNNL_ARG_DIFF_SRC_1 = 130
DNNL_ARG_DIFF_DST = 145
DNNL_ARG_DIFF_SCALE = 255
DNNL_ARG_DIFF_SHIFT = 256

_ARG_NAMES = {value: name for name, value in globals().items() if name.startswith("DNNL_ARG_")}


class data_type(IntEnum):
    """Type of an element."""

    undef = 0
    f16 = 1
    bf16 = 2
    f32 = 3
    s8 = 5
    u8 = 6
    f64 = 7


class prop_kind(IntEnum):
    """Kind of propagation; backward_data is without the gradients of scale and shift."""

    forward_training = 64
    forward = 64
    forward_inference = 96
    backward = 128
    backward_data = 160


class algorithm(IntEnum):
    """Kind of LRN."""

    lrn_across_channels = 0xAFF
    lrn_within_channel = 0xBFF


class normalization_flags(IntFlag):
    """What a batch normalization does besides normalizing."""

    none = 0x0
    use_global_stats = 0x1
    use_scale = 0x2
    use_shift = 0x4
    fuse_norm_relu = 0x8
    fuse_norm_add_relu = 0x10


_DTYPE_NAMES = {
    data_type.f16: "float16",
    data_type.bf16: "bfloat16",
    data_type.f32: "float32",
    data_type.s8: "int8",
    data_type.u8: "uint8",
    data_type.f64: "float64",
}


def _dtype(kind: data_type) -> np.dtype[Any]:
    if kind == data_type.undef:
        raise ValueError("data_type must be that of an element, got undef, as in a descriptor that is_zero")
    if kind == data_type.bf16:
        try:
            import ml_dtypes  # noqa: F401  registers "bfloat16" with NumPy
        except ImportError:
            raise TypeError("data_type must be one that NumPy has, got bf16, which it has from ml_dtypes alone "
                            "(pip install ml_dtypes)") from None
    return np.dtype(_DTYPE_NAMES[kind])


@dataclass(frozen=True)
class memory_desc:
    """Dimensions, element type and memory format of a tensor, without its data.

    Parameters
    ----------
    dims : tuple of int
        Logical dimensions, in oneDNN's order whatever the format: N, C, then the spatial ones.
    data_type : data_type
        Type of an element.
    format : str or tuple of int
        A format tag or the strides in elements. Tags are oneDNN's: permutations of letters such as
        ``"abcd"`` and ``"acdb"``, those with a block of channels such as ``"aBcd8b"``, and the aliases that
        name the dimensions, such as ``"nchw"``, ``"nhwc"`` and ``"nChw8c"``. ``"any"`` leaves the choice to
        the primitive, which takes the format of its source.

    Attributes
    ----------
    strides : tuple of int
        Strides in elements; that of the channels is from block to block. None for ``"any"``.
    inner_blk : int
        Channels in a block, which lie together in memory; 1 for a plain format.

    Examples
    --------
    >>> memory_desc((2, 16, 7, 5), data_type.f32, "nhwc").strides
    (560, 1, 80, 16)
    >>> memory_desc((2, 12, 7, 5), data_type.f32, "nChw8c").shape
    (2, 2, 7, 5, 8)
    """

    dims: tuple[int, ...]
    data_type: data_type
    format: InitVar[str | tuple[int, ...]]
    strides: tuple[int, ...] | None = field(init=False)
    inner_blk: int = field(init=False)

    def __post_init__(self, format: str | tuple[int, ...]) -> None:
        dims = _sizes("dims", self.dims)
        names = ", ".join(kind.name for kind in data_type)
        kind = _kind("data_type", self.data_type, tuple(data_type), f"one of {names}")
        block = 1
        if not isinstance(format, str):
            if not isinstance(format, Iterable):
                raise TypeError(f"format must be 'any', strides or a tag such as 'nchw', got {shown(format)}")
            strides = _sizes("format", format)
            if len(strides) != len(dims):
                raise ValueError(
                    f"format must have one stride for each of the {len(dims)} dims, got {strides}"
                )
        elif format == "any":
            strides = None
        else:
            order, block = _parse_tag(format, len(dims))
            strides = _dense_strides(_array_shape(dims, block)[: len(dims)], order, block)
        values = {"dims": dims, "data_type": kind, "strides": strides, "inner_blk": block}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def padded_dims(self) -> tuple[int, ...]:
        """`dims`, the channels rounded up to whole blocks."""
        return tuple(
            -(-n // self.inner_blk) * self.inner_blk if i == 1 else n for i, n in enumerate(self.dims)
        )

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of an array of this descriptor: `dims`, or (N, blocks, spatial..., `inner_blk`)."""
        return _array_shape(self.dims, self.inner_blk)

    @functools.cached_property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of an element."""
        return _dtype(self.data_type)

    @functools.cached_property
    def byte_strides(self) -> tuple[int, ...]:
        """Strides of an array of this descriptor."""
        if self.strides is None:
            raise ValueError("format must be a tag or strides, got 'any'")
        inner = (1,) if self.inner_blk > 1 else ()
        return tuple(stride * self.dtype.itemsize for stride in self.strides + inner)

    @property
    def is_zero(self) -> bool:
        """Whether there is nothing to describe, as when no workspace is needed."""
        return self.data_type == data_type.undef

    def get_size(self) -> int:
        """Bytes that the tensor spans in memory, padding and the gap after its last slice included.

        Examples
        --------
        >>> memory_desc((2, 3), data_type.f32, (4, 1)).get_size()
        32
        """
        if self.is_zero or 0 in self.shape:
            return 0
        axes = [(n, stride) for n, stride in zip(self.shape, self.byte_strides, strict=True) if n > 1]
        last = sum((n - 1) * stride for n, stride in axes) + self.dtype.itemsize
        return max([last, *(n * stride for n, stride in axes)])

    def empty(self) -> Array:
        """A new array of this descriptor, uninitialized.

        Raises
        ------
        ValueError
            If the format is left open.
        """
        return self.wrap(np.empty(self.get_size(), np.uint8))

    def wrap(self, buffer: bytes | bytearray | memoryview | Array) -> Array:
        """A buffer's memory as an array of this descriptor.

        Parameters
        ----------
        buffer : bytes, bytearray, memoryview or array
            Contiguous, of `get_size()` bytes at least. An array is of the descriptor's type, or of bytes, in C order;
            if it has the descriptor's shape, it must have the descriptor's strides as well; its `reshape(-1)` need not.

        Raises
        ------
        TypeError, ValueError
            If the buffer is none, has other elements or another order, or is too short, or if the format is left open.

        Examples
        --------
        >>> memory_desc((2, 3), data_type.f32, "ba").wrap(np.arange(6, dtype=np.float32)).tolist()
        [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
        """
        strides, nbytes = self.byte_strides, self.get_size()
        if isinstance(buffer, np.ma.MaskedArray):
            raise TypeError("buffer must not be a masked array, whose mask would be ignored: pass its .data")
        if not isinstance(buffer, np.ndarray):
            try:
                buffer = np.asarray(memoryview(buffer))
            except TypeError:
                raise TypeError(f"buffer must be bytes, a bytearray, a memoryview or a NumPy array, got {shown(buffer)}") from None
        if buffer.dtype != self.dtype and buffer.dtype.itemsize > 1:
            raise TypeError(f"buffer must be of {self.dtype} or bytes, got an array of {buffer.dtype}")
        if buffer.ndim > 1 and buffer.shape == self.shape:
            pairs = zip(self.shape, buffer.strides, strides, strict=True)
            if buffer.dtype == self.dtype and all(n < 2 or own == wanted for n, own, wanted in pairs):
                return buffer.view()
            raise ValueError(
                f"buffer of the descriptor's shape must be of {self.dtype}, with strides {strides}, "
                f"got {buffer.dtype}, {buffer.strides}; its reshape(-1) is memory as it is"
            )
        if not buffer.flags.c_contiguous:
            raise ValueError(f"buffer must be contiguous, got {shown(buffer)}")
        if buffer.nbytes < nbytes:
            raise ValueError(f"buffer must hold at least {nbytes} bytes, got {buffer.nbytes}")
        return np.ndarray(self.shape, self.dtype, buffer, strides=strides)


def _kind(name: str, value: Any, kinds: tuple[_Kind, ...], allowed: str = "") -> _Kind:
    """The kind that a value is, or is the number of."""
    allowed = allowed or " or ".join(kind.name for kind in kinds)
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be {allowed}, got {shown(value)}") from None
    if number not in kinds:
        raise ValueError(f"{name} must be {allowed}, got {shown(value)}")
    return kinds[kinds.index(number)]


def _sizes(name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    sizes = integers(name, values)
    if any(size < 0 for size in sizes):
        raise ValueError(f"{name} must not be negative, got {shown(sizes)}")
    if any(size > MOST for size in sizes):
        raise ValueError(f"{name} must be at most {MOST}, got {shown(sizes)}")
    return sizes


def _array_shape(dims: tuple[int, ...], block: int) -> tuple[int, ...]:
    if block == 1:
        return dims
    n, c, *spatial = dims
    return (n, -(-c // block), *spatial, block)


# oneDNN's letters for N, C, D, H and W in a tensor of so many dimensions.
_NAMED_DIMS = {1: "x", 2: "nc", 3: "ncw", 4: "nchw", 5: "ncdhw"}


def _parse_tag(tag: str, ndims: int) -> tuple[list[int], int]:
    """Return the axes of a format tag, slowest first, and the channels in a block."""
    if not 1 <= ndims <= 5:
        raise ValueError(f"format must be 'any' or strides for {ndims} dims, as tags are of 1 to 5, got {tag!r}")
    letters = "abcde"[:ndims]
    named = _NAMED_DIMS[ndims]
    lettered = tag
    if ("n" in tag or ndims == 1) and not set("abe").intersection(tag.lower()):
        lettered = tag.translate(str.maketrans(named + named.upper(), letters + letters.upper()))
    match = re.fullmatch(r"([a-eB]+?)(?:(8|16)b)?", lettered)
    if not match or sorted(match[1].lower()) != list(letters) or ("B" in match[1]) != bool(match[2]):
        blocks = f" or, with blocks of 8 or 16 channels, {letters.replace('b', 'B') + '8b'!r}" if ndims > 1 else ""
        raise ValueError(
            f"format must be 'any', strides or a tag of {ndims} dims such as {letters!r}, {named!r}{blocks}, got {tag!r}"
        )
    return [letters.index(letter) for letter in match[1].lower()], int(match[2] or 1)


def _dense_strides(dims: tuple[int, ...], order: list[int], innermost: int) -> tuple[int, ...]:
    strides = [0] * len(dims)
    stride = innermost
    for axis in reversed(order):
        strides[axis] = stride
        stride *= max(dims[axis], 1)
    return tuple(strides)


_NO_MEMORY = memory_desc((), data_type.undef, ())


def _workspace_desc(pd: _Descriptor, **options: Any) -> memory_desc:
    shape = _array_shape(pd.src_desc.dims, pd._geometry.block)
    nbytes = pd._op.workspace_nbytes(shape, pd.src_desc.dtype, **options)
    return memory_desc((nbytes,), data_type.u8, "a") if nbytes else _NO_MEMORY


def _require_type(desc: memory_desc, allowed: tuple[data_type, ...], besides: str = "") -> None:
    if desc.data_type not in allowed:
        names = ", ".join(kind.name for kind in allowed)
        raise TypeError(f"src_desc must be of type {names}{besides}, got {desc.data_type.name}")


def _require_hint(pd: Any, primitive: Any, *names: str) -> None:
    """Check that the forward primitive of the hint did what this one differentiates."""
    if not isinstance(pd.hint_fwd_pd, primitive.primitive_desc):
        raise TypeError(
            f"hint_fwd_pd must be a {primitive.primitive_desc.__qualname__}, got {shown(pd.hint_fwd_pd)}"
        )
    for name in names:
        if getattr(pd, name) != getattr(pd.hint_fwd_pd, name):
            raise ValueError(
                f"{name} must be hint_fwd_pd's {getattr(pd.hint_fwd_pd, name)!r}, got {getattr(pd, name)!r}"
            )
    forward, own = pd.hint_fwd_pd.src_desc, pd.src_desc
    if (forward.dims, forward.data_type) != (own.dims, own.data_type):
        raise ValueError(f"src_desc must have the dims and type of hint_fwd_pd's, {forward}, got {own}")


class _Geometry:
    """The one layout in which the kernels see all tensors of a primitive.

    Plain formats differ in strides only. As soon as one tensor is blocked, the plain ones are seen in
    blocks too, as strided views; so the channels must fill the blocks.
    """

    def __init__(self, *descs: memory_desc) -> None:
        blocks = {desc.inner_blk for desc in descs}
        self.block = max(blocks)
        dims = descs[0].dims
        if not 2 <= len(dims) <= 5:
            raise ValueError(f"src_desc must have 2 to 5 dims, got {dims}")
        if self.block > 1 and len(dims) == 2:
            raise ValueError(f"formats must be plain without spatial dims: unimplemented for blocks of {self.block}, dims {dims}")
        self.channels = dims[1] if dims[1] % self.block else None
        if blocks - {1, self.block} or (len(blocks) > 1 and self.channels):
            formats = ", ".join(f"blocks of {block}" if block > 1 else "plain" for block in sorted(blocks))
            raise ValueError(
                f"formats must be plain or in blocks of one size, and where both occur, the channels a multiple of it: "
                f"unimplemented for {formats} of {dims[1]} channels"
            )
        spatial = ("", "W", "HW", "DHW")[len(dims) - 2]
        self.layout = f"NC{spatial}" if self.block == 1 else f"nC{spatial.lower()}{self.block}c"

        # Tensors of as many dimensions are plain and to be seen in blocks; 0: none are.
        self.plain_ndim = len(dims) if len(blocks) > 1 else 0

    def arguments(self, keywords: tuple[str, ...], arrays: tuple[Array, ...]) -> dict[str, Any]:
        """Arrays by keyword, tensors as they are seen in this layout."""
        return keyword_arguments(keywords, arrays, self.plain_ndim, self.block)


class _Call(NamedTuple):
    """The call of the core that a primitive comes down to; its arguments: (index, descriptor) by keyword."""

    method: Callable[..., Any]
    inputs: dict[str, tuple[int, memory_desc]]
    outputs: dict[str, tuple[int, memory_desc]]
    takes_workspace: bool


class _primitive:
    """What all primitives share: how they take their arguments and report the one at fault."""

    primitive_desc: Any
    _apart: ClassVar[tuple[tuple[str, str], ...]] = ()  # keywords of an input and of an output that may not be that

    def __init__(self, primitive_desc: Any) -> None:
        if not isinstance(primitive_desc, self.primitive_desc):
            raise TypeError(
                f"primitive_desc must be a {self.primitive_desc.__qualname__}, got {shown(primitive_desc)}"
            )
        self._pd = primitive_desc
        self._geometry = primitive_desc._geometry
        call = primitive_desc._call()
        arguments = call.inputs | call.outputs
        indices = [index for index, _ in arguments.values()]
        self._method, self._takes_workspace = call.method, call.takes_workspace
        self._keywords = tuple(arguments)
        self._take = operator.itemgetter(*indices)
        self._descs = [desc for _, desc in arguments.values()]
        self._names = tuple(_ARG_NAMES[index] for index in indices)
        apart = [tuple(map(self._keywords.index, pair)) for pair in self._apart if pair[1] in self._keywords]
        self._check = checked(self._names, outputs=len(call.outputs), apart=tuple(apart))(self._verify)

    def get_primitive_desc(self) -> Any:
        """Return the descriptor this primitive was made from."""
        return self._pd

    def execute(self, args: Mapping[int, Any]) -> None:
        """Run the primitive.

        Parameters
        ----------
        args : dict
            The arguments of this class by index, for instance ``{DNNL_ARG_SRC: src, DNNL_ARG_DST: dst}``:
            arrays of the shape and type that their descriptors say. Their strides are their own. An array
            that is written may be one that is read, as oneDNN allows; otherwise it must share no memory with
            another. Arguments of other indices are ignored.

        Raises
        ------
        TypeError, ValueError
            Naming the argument, what it is and what its descriptor says, or if the workspace is that of
            another call; nothing is written.
        RuntimeError, MemoryError
            As for :meth:`cynorm.LRN.forward`.
        """
        if type(args) is not dict and not isinstance(args, Mapping):
            raise TypeError(f"args must be a dict of arrays by index, got {type(args).__name__}")
        try:
            arrays = self._take(args)
        except KeyError as missing:
            (index,) = missing.args
            raise ValueError(f"args must hold {_ARG_NAMES[index]} ({index}), got {shown(list(args))}") from None
        self._check(arrays)
        given = self._geometry.arguments(self._keywords, arrays)
        if self._takes_workspace:
            given["workspace"] = self._workspace(args.get(DNNL_ARG_WORKSPACE))
        self._method(**given)

    def _workspace(self, workspace: Workspace | None) -> Workspace | None:
        if workspace is None:
            nbytes = self._pd.workspace_desc.get_size()
            if nbytes:
                raise ValueError(
                    f"args must hold DNNL_ARG_WORKSPACE ({DNNL_ARG_WORKSPACE}), of {nbytes} bytes"
                )
        elif not isinstance(workspace, Workspace):
            raise TypeError(f"DNNL_ARG_WORKSPACE must be a cynorm.Workspace, got {type(workspace).__name__}")
        return workspace

    def _verify(self, arrays: tuple[Array, ...]) -> None:
        for name, desc, array in zip(self._names, self._descs, arrays, strict=True):
            if array.dtype != desc.dtype:
                raise TypeError(f"{name} must be {desc.dtype} as its descriptor says, got {array.dtype}")
            if array.shape != desc.shape:
                raise ValueError(
                    f"{name} must have shape {desc.shape} as its descriptor says, got {array.shape}"
                )


class _Descriptor:
    """What all primitive descriptors share: tensors of the same dims and type, and a core operator."""

    _tensors: ClassVar[tuple[str, ...]]  # fields, the source first
    src_desc: memory_desc
    _geometry: _Geometry
    _op: cynorm.LRN | cynorm.BatchNorm

    def _verify(self) -> None:
        raise NotImplementedError

    def _make_op(self) -> cynorm.LRN | cynorm.BatchNorm:
        raise NotImplementedError

    def __post_init__(self) -> None:
        for name in self._tensors:
            if not isinstance(getattr(self, name), memory_desc):
                raise TypeError(f"{name} must be a memory_desc, got {type(getattr(self, name)).__name__}")
        self._verify()
        source = self.src_desc
        if source.strides is None:
            raise ValueError("src_desc must have a format, got 'any'")
        for name in self._tensors[1:]:
            desc = getattr(self, name)
            if desc.dims != source.dims:
                raise ValueError(f"{name} must have the dims of src_desc, {source.dims}, got {desc.dims}")
            if desc.data_type != source.data_type:
                expected, given = source.data_type.name, desc.data_type.name
                raise TypeError(f"{name} must be {expected} as src_desc is, got {given}")
            if desc.strides is None:
                object.__setattr__(self, name, source)
        object.__setattr__(self, "_geometry", _Geometry(*(getattr(self, name) for name in self._tensors)))
        object.__setattr__(self, "_op", self._make_op())

    @functools.cached_property
    def impl_info_str(self) -> str:
        """Name of the implementation, such as ``"lrn_across:plain:f32:x86-64-v4"``."""
        # One element stands for all, as none is looked at.
        shape, strides = self.src_desc.shape, self.src_desc.byte_strides
        src = np.lib.stride_tricks.as_strided(np.empty(1, self.src_desc.dtype), shape, strides)
        return self._op.implementation(**self._geometry.arguments(("src",), (src,)))


# Equal parameters share one operator, so that a workspace is recognized at a glance.
_lrn: Callable[..., cynorm.LRN] = remembered(cynorm.LRN)
_batch_norm: Callable[..., cynorm.BatchNorm] = remembered(cynorm.BatchNorm)

_FLOATS = (data_type.f32, data_type.bf16, data_type.f16, data_type.f64)
_FORWARD = (prop_kind.forward_training, prop_kind.forward_inference)
_BACKWARD = (prop_kind.backward, prop_kind.backward_data)


class _LrnDescriptor(_Descriptor):
    algorithm: algorithm
    local_size: int
    alpha: float
    beta: float
    k: float
    _op: cynorm.LRN

    def _verify(self) -> None:
        object.__setattr__(self, "algorithm", _kind("algorithm", self.algorithm, tuple(algorithm)))
        object.__setattr__(self, "local_size", integer("local_size", self.local_size))
        for name in ("alpha", "beta", "k"):
            object.__setattr__(self, name, finite(name, getattr(self, name)))
        _require_type(self.src_desc, _FLOATS)

    def _make_op(self) -> cynorm.LRN:
        return _lrn(
            self.local_size,
            self.alpha,
            self.beta,
            self.k,
            region="across_channels" if self.algorithm == algorithm.lrn_across_channels else "within_channel",
            layout=self._geometry.layout,
            channels=self._geometry.channels,
        )


class lrn_forward(_primitive):
    """Local response normalization, forward.

    `execute` reads DNNL_ARG_SRC and writes DNNL_ARG_DST. In training it also takes DNNL_ARG_WORKSPACE, a
    :class:`cynorm.Workspace`. The workspace is needed only if `workspace_desc` is not zero; if it is given
    needlessly, it is bound all the same, so that backward can tell it from others.

    An even `local_size` has the window of oneDNN's reference: ``local_size / 2 - 1`` elements on either
    side; the divisor stays `local_size`.
    """

    @dataclass(frozen=True)
    class primitive_desc(_LrnDescriptor):
        """Descriptor of an :class:`lrn_forward`.

        Parameters
        ----------
        prop_kind : prop_kind
            forward_training or forward_inference.
        algorithm : algorithm
            lrn_across_channels or lrn_within_channel.
        src_desc, dst_desc : memory_desc
            Of the same dims (2 to 5) and type (f32, bf16, f16, f64), each in its own format. `dst_desc` may
            leave the format open.
        local_size : int
            Elements in the window (across channels) or along each side of it (within a channel).
        alpha, beta, k : float
            Parameters of the formula: finite; k is 1 unless given.

        Attributes
        ----------
        workspace_desc : memory_desc
            The bytes that a default :class:`cynorm.Workspace` will hold after `execute`. Zero (`is_zero`)
            in inference, and where recomputing is cheaper than keeping anything: then no workspace is needed.
        impl_info_str : str
            Name of the implementation.

        Raises
        ------
        TypeError, ValueError
            Naming the parameter, its value and what is allowed.

        Examples
        --------
        >>> md = memory_desc((2, 16, 7, 7), data_type.f32, "nhwc")
        >>> pd = lrn_forward.primitive_desc(
        ...     prop_kind.forward_inference, algorithm.lrn_across_channels, md, md, 5, 1e-4, 0.75, 1
        ... )
        >>> src, dst = md.empty(), md.empty()
        >>> src[...] = 1
        >>> lrn_forward(pd).execute({DNNL_ARG_SRC: src, DNNL_ARG_DST: dst})
        >>> round(float(dst[0, 0, 0, 0]), 6)
        0.999955
        """

        prop_kind: prop_kind
        algorithm: algorithm
        src_desc: memory_desc
        dst_desc: memory_desc
        local_size: int
        alpha: float
        beta: float
        k: float = 1.0

        _tensors = ("src_desc", "dst_desc")

        def _verify(self) -> None:
            object.__setattr__(self, "prop_kind", _kind("prop_kind", self.prop_kind, _FORWARD))
            super()._verify()

        @functools.cached_property
        def workspace_desc(self) -> memory_desc:
            return _workspace_desc(self) if self.prop_kind == prop_kind.forward_training else _NO_MEMORY

        def _call(self) -> _Call:
            return _Call(
                self._op.forward,
                inputs={"src": (DNNL_ARG_SRC, self.src_desc)},
                outputs={"out": (DNNL_ARG_DST, self.dst_desc)},
                takes_workspace=self.prop_kind == prop_kind.forward_training,
            )


class lrn_backward(_primitive):
    """Local response normalization, backward: the gradient of :class:`lrn_forward`.

    `execute` reads DNNL_ARG_SRC and DNNL_ARG_DIFF_DST, writes DNNL_ARG_DIFF_SRC, and takes
    DNNL_ARG_WORKSPACE as the forward primitive left it. The workspace is needed only if `workspace_desc` is
    not zero.

    Examples
    --------
    >>> md = memory_desc((1, 1), data_type.f32, "nc")
    >>> kind, parameters = algorithm.lrn_across_channels, {"local_size": 1, "alpha": 1, "beta": 1, "k": 1}
    >>> forward = lrn_forward.primitive_desc(prop_kind.forward_training, kind, md, md, **parameters)
    >>> pd = lrn_backward.primitive_desc(kind, md, md, md, **parameters, hint_fwd_pd=forward)
    >>> diff_src = md.empty()
    >>> lrn_backward(pd).execute({
    ...     DNNL_ARG_SRC: np.float32([[2]]), DNNL_ARG_DIFF_DST: np.float32([[1]]), DNNL_ARG_DIFF_SRC: diff_src
    ... })
    >>> round(float(diff_src[0, 0]), 6)  # (1 - x^2) / (1 + x^2)^2
    -0.12
    """

    @dataclass(frozen=True)
    class primitive_desc(_LrnDescriptor):
        """Descriptor of an :class:`lrn_backward`.

        Parameters
        ----------
        algorithm : algorithm
            lrn_across_channels or lrn_within_channel.
        diff_src_desc, diff_dst_desc, src_desc : memory_desc
            Of the same dims and type, each in its own format. The first two may leave the format open.
        local_size, alpha, beta, k
            As of the forward primitive.
        hint_fwd_pd : lrn_forward.primitive_desc
            The forward primitive.

        Attributes
        ----------
        workspace_desc : memory_desc
            That of `hint_fwd_pd`; zero also where the formats of the two differ in blocks, so that
            they cannot share one.
        impl_info_str : str
            Name of the implementation.

        Raises
        ------
        TypeError, ValueError
            Naming the parameter, its value and what is allowed.
        """

        algorithm: algorithm
        diff_src_desc: memory_desc
        diff_dst_desc: memory_desc
        src_desc: memory_desc
        local_size: int
        alpha: float
        beta: float
        k: float
        hint_fwd_pd: lrn_forward.primitive_desc

        _tensors = ("src_desc", "diff_dst_desc", "diff_src_desc")

        def _verify(self) -> None:
            super()._verify()
            _require_hint(self, lrn_forward, "algorithm", "local_size", "alpha", "beta", "k")

        @property
        def workspace_desc(self) -> memory_desc:
            return self.hint_fwd_pd.workspace_desc if self._op == self.hint_fwd_pd._op else _NO_MEMORY

        def _call(self) -> _Call:
            return _Call(
                self._op.backward,
                inputs={
                    "src": (DNNL_ARG_SRC, self.src_desc),
                    "diff_dst": (DNNL_ARG_DIFF_DST, self.diff_dst_desc),
                },
                outputs={"out": (DNNL_ARG_DIFF_SRC, self.diff_src_desc)},
                takes_workspace=self._op == self.hint_fwd_pd._op,
            )


class _BatchNormalizationDescriptor(_Descriptor):
    epsilon: float
    flags: normalization_flags
    _op: cynorm.BatchNorm

    def _verify_parameters(self) -> None:
        object.__setattr__(self, "epsilon", finite("epsilon", self.epsilon, 0))
        allowed = f"made of {', '.join(str(flag.name) for flag in normalization_flags if flag)}"
        try:
            number = index(self.flags)
        except TypeError:
            raise TypeError(f"flags must be {allowed}, got {shown(self.flags)}") from None
        if number & ~sum(normalization_flags):
            raise ValueError(f"flags must be {allowed}, got {shown(self.flags)}")
        flags = normalization_flags(number)
        if normalization_flags.fuse_norm_relu in flags and normalization_flags.fuse_norm_add_relu in flags:
            raise ValueError(f"flags must not have both fuse_norm_relu and fuse_norm_add_relu, got {shown(self.flags)}")
        object.__setattr__(self, "flags", flags)

    @property
    def _fuses_relu(self) -> bool:
        return bool(self.flags & (normalization_flags.fuse_norm_relu | normalization_flags.fuse_norm_add_relu))

    def _make_op(self) -> cynorm.BatchNorm:
        return _batch_norm(
            epsilon=self.epsilon,
            layout=self._geometry.layout,
            channels=self._geometry.channels,
            activation="relu" if self._fuses_relu else None,
        )

    @functools.cached_property
    def weights_desc(self) -> memory_desc:
        """Of scale, shift and statistics: one value per channel, f32, or f64 for f64 data."""
        kind = data_type.f64 if self.src_desc.data_type == data_type.f64 else data_type.f32
        return memory_desc(self.src_desc.dims[1:2], kind, "a")

    @property
    def mean_desc(self) -> memory_desc:
        return self.weights_desc

    @property
    def variance_desc(self) -> memory_desc:
        return self.weights_desc


class batch_normalization_forward(_primitive):
    """Batch normalization, forward.

    `execute` reads DNNL_ARG_SRC, DNNL_ARG_SCALE, DNNL_ARG_SHIFT and DNNL_ARG_SRC_1 (what fuse_norm_add_relu
    adds) as the flags ask for them, and writes DNNL_ARG_DST. DNNL_ARG_MEAN and DNNL_ARG_VARIANCE are read
    with use_global_stats; without it, training writes them and inference leaves them alone. Training with a
    fused ReLU needs DNNL_ARG_WORKSPACE, a :class:`cynorm.Workspace`.

    Examples
    --------
    >>> md = memory_desc((2, 1), data_type.f32, "nc")
    >>> pd = batch_normalization_forward.primitive_desc(prop_kind.forward_training, md, md, epsilon=0.0)
    >>> dst, mean, variance = md.empty(), pd.mean_desc.empty(), pd.variance_desc.empty()
    >>> batch_normalization_forward(pd).execute({
    ...     DNNL_ARG_SRC: np.float32([[1], [5]]), DNNL_ARG_DST: dst,
    ...     DNNL_ARG_MEAN: mean, DNNL_ARG_VARIANCE: variance,
    ... })
    >>> dst.ravel().tolist(), mean.tolist(), variance.tolist()
    ([-1.0, 1.0], [3.0], [4.0])
    """

    @dataclass(frozen=True)
    class primitive_desc(_BatchNormalizationDescriptor):
        """Descriptor of a :class:`batch_normalization_forward`.

        Parameters
        ----------
        prop_kind : prop_kind
            forward_training or forward_inference.
        src_desc, dst_desc : memory_desc
            Of the same dims (2 to 5) and type (f32, bf16, f16, f64; s8 in inference with use_global_stats),
            each in its own format. `dst_desc` may leave the format open.
        epsilon : float
            Added to the variance: finite, at least 0.
        flags : normalization_flags
            use_global_stats: take mean and variance instead of computing them. use_scale, use_shift.
            fuse_norm_relu: apply ReLU. fuse_norm_add_relu: add DNNL_ARG_SRC_1 (in the format of
            `src_desc`), then apply ReLU.

        Attributes
        ----------
        weights_desc, mean_desc, variance_desc : memory_desc
            Of scale and shift, and of the statistics.
        workspace_desc : memory_desc
            The bytes that a new :class:`cynorm.Workspace` will hold after `execute`. Zero (`is_zero`),
            and not needed, unless ReLU is fused in training.
        impl_info_str : str
            Name of the implementation.

        Raises
        ------
        TypeError, ValueError
            Naming the parameter, its value and what is allowed.
        """

        prop_kind: prop_kind
        src_desc: memory_desc
        dst_desc: memory_desc
        epsilon: float
        flags: normalization_flags = normalization_flags.none

        _tensors = ("src_desc", "dst_desc")

        def _verify(self) -> None:
            object.__setattr__(self, "prop_kind", _kind("prop_kind", self.prop_kind, _FORWARD))
            self._verify_parameters()
            inference = self.prop_kind == prop_kind.forward_inference
            quantizable = inference and normalization_flags.use_global_stats in self.flags
            if quantizable:
                _require_type(self.src_desc, (*_FLOATS, data_type.s8))
            else:
                _require_type(self.src_desc, _FLOATS, " (s8 in forward_inference with use_global_stats)")

        @functools.cached_property
        def workspace_desc(self) -> memory_desc:
            kept = self.prop_kind == prop_kind.forward_training and self._fuses_relu
            training = normalization_flags.use_global_stats not in self.flags
            return _workspace_desc(self, training=training) if kept else _NO_MEMORY

        def _call(self) -> _Call:
            inputs = {"src": (DNNL_ARG_SRC, self.src_desc)}
            outputs = {"out": (DNNL_ARG_DST, self.dst_desc)}
            if normalization_flags.use_scale in self.flags:
                inputs["scale"] = DNNL_ARG_SCALE, self.weights_desc
            if normalization_flags.use_shift in self.flags:
                inputs["shift"] = DNNL_ARG_SHIFT, self.weights_desc
            if normalization_flags.fuse_norm_add_relu in self.flags:
                inputs["add"] = DNNL_ARG_SRC_1, self.src_desc
            method: Callable[..., Any] = self._op.forward_training
            if normalization_flags.use_global_stats in self.flags:
                method = self._op.forward_inference
                inputs["mean"] = DNNL_ARG_MEAN, self.mean_desc
                inputs["variance"] = DNNL_ARG_VARIANCE, self.variance_desc
            elif self.prop_kind == prop_kind.forward_training:
                outputs["out_mean"] = DNNL_ARG_MEAN, self.mean_desc
                outputs["out_variance"] = DNNL_ARG_VARIANCE, self.variance_desc
            return _Call(method, inputs, outputs, takes_workspace=not self.workspace_desc.is_zero)


class batch_normalization_backward(_primitive):
    """Batch normalization, backward: the gradients of :class:`batch_normalization_forward`.

    `execute` reads DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE and, with use_scale,
    DNNL_ARG_SCALE. It writes DNNL_ARG_DIFF_SRC; DNNL_ARG_DIFF_SCALE and DNNL_ARG_DIFF_SHIFT as flags and
    prop_kind ask for them; with fuse_norm_add_relu DNNL_ARG_DIFF_SRC_1 (in the format of `diff_src_desc`; it
    may be DNNL_ARG_DIFF_DST, but not DNNL_ARG_SRC). With a fused ReLU it needs DNNL_ARG_WORKSPACE as the
    forward primitive left it.

    Examples
    --------
    >>> md = memory_desc((2, 1), data_type.f32, "nc")
    >>> flags = normalization_flags.use_shift
    >>> forward = batch_normalization_forward.primitive_desc(prop_kind.forward_training, md, md, 0.0, flags)
    >>> pd = batch_normalization_backward.primitive_desc(
    ...     prop_kind.backward, md, md, md, 0.0, flags, hint_fwd_pd=forward
    ... )
    >>> diff_src, diff_shift = md.empty(), pd.diff_weights_desc.empty()
    >>> batch_normalization_backward(pd).execute({
    ...     DNNL_ARG_SRC: np.float32([[1], [5]]), DNNL_ARG_DIFF_DST: np.float32([[1], [2]]),
    ...     DNNL_ARG_MEAN: np.float32([3]), DNNL_ARG_VARIANCE: np.float32([4]),
    ...     DNNL_ARG_DIFF_SRC: diff_src, DNNL_ARG_DIFF_SHIFT: diff_shift,
    ... })
    >>> diff_src.ravel().tolist(), diff_shift.tolist()
    ([0.0, 0.0], [3.0])
    """

    _apart = (("src", "out_add"),)

    @dataclass(frozen=True)
    class primitive_desc(_BatchNormalizationDescriptor):
        """Descriptor of a :class:`batch_normalization_backward`.

        Parameters
        ----------
        prop_kind : prop_kind
            backward: the gradients of scale and shift too, where the flags have them. backward_data: of src
            alone.
        diff_src_desc, diff_dst_desc, src_desc : memory_desc
            Of the same dims and type, each in its own format. The first two may leave the format open.
        epsilon, flags
            As of the forward primitive.
        hint_fwd_pd : batch_normalization_forward.primitive_desc
            The forward primitive, in training.

        Attributes
        ----------
        weights_desc, diff_weights_desc, mean_desc, variance_desc : memory_desc
            Of scale and shift, of their gradients, and of the statistics.
        workspace_desc : memory_desc
            That of `hint_fwd_pd`.
        impl_info_str : str
            Name of the implementation.

        Raises
        ------
        TypeError, ValueError
            Naming the parameter, its value and what is allowed.
        """

        prop_kind: prop_kind
        diff_src_desc: memory_desc
        diff_dst_desc: memory_desc
        src_desc: memory_desc
        epsilon: float
        flags: normalization_flags
        hint_fwd_pd: batch_normalization_forward.primitive_desc

        _tensors = ("src_desc", "diff_dst_desc", "diff_src_desc")

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.workspace_desc.is_zero and self._op != self.hint_fwd_pd._op:
                raise ValueError(
                    f"formats must have the blocks of hint_fwd_pd's, {self.hint_fwd_pd._geometry.layout}, which fill the "
                    f"workspace: unimplemented for {self._geometry.layout}"
                )

        def _verify(self) -> None:
            object.__setattr__(self, "prop_kind", _kind("prop_kind", self.prop_kind, _BACKWARD))
            self._verify_parameters()
            _require_type(self.src_desc, _FLOATS)
            _require_hint(self, batch_normalization_forward, "epsilon", "flags")
            _kind("prop_kind of hint_fwd_pd", self.hint_fwd_pd.prop_kind, _FORWARD[:1])

        @property
        def workspace_desc(self) -> memory_desc:
            return self.hint_fwd_pd.workspace_desc

        @property
        def diff_weights_desc(self) -> memory_desc:
            return self.weights_desc

        def _call(self) -> _Call:
            inputs = {
                "src": (DNNL_ARG_SRC, self.src_desc),
                "diff_dst": (DNNL_ARG_DIFF_DST, self.diff_dst_desc),
                "mean": (DNNL_ARG_MEAN, self.mean_desc),
                "variance": (DNNL_ARG_VARIANCE, self.variance_desc),
            }
            outputs = {"out": (DNNL_ARG_DIFF_SRC, self.diff_src_desc)}
            with_weights = self.prop_kind == prop_kind.backward
            if normalization_flags.use_scale in self.flags:
                inputs["scale"] = DNNL_ARG_SCALE, self.weights_desc
                if with_weights:
                    outputs["out_scale"] = DNNL_ARG_DIFF_SCALE, self.diff_weights_desc
            if normalization_flags.use_shift in self.flags and with_weights:
                outputs["out_shift"] = DNNL_ARG_DIFF_SHIFT, self.diff_weights_desc
            if normalization_flags.fuse_norm_add_relu in self.flags:
                outputs["out_add"] = DNNL_ARG_DIFF_SRC_1, self.diff_src_desc
            constant = normalization_flags.use_global_stats in self.flags
            method = self._op.backward_inference if constant else self._op.backward_training
            return _Call(method, inputs, outputs, takes_workspace=not self.workspace_desc.is_zero)
