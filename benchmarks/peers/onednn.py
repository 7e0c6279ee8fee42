"""oneDNN driven through ctypes: LRN and batch normalization on NumPy arrays.

The library is ``libdnnl.so.3`` of the ``onednn-cpu-gomp`` wheel, or whatever file the environment
variable ``CYNORM_ONEDNN_LIBRARY`` names. Nothing here needs cynorm.

    src = MemoryDescriptor.of(array)
    problem = Lrn("forward_training", src, local_size=5)
    dst, workspace = np.empty_like(array), problem.new_workspace()
    problem.execute({"src": array, "dst": dst, "workspace": workspace})

A problem that oneDNN does not implement raises `Refused`.
"""

import ctypes
import functools
import math
import os
import sys
import weakref
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from pathlib import Path

import numpy as np

from benchmarks.peers import Prepared, Refused
from benchmarks.problems import FLAGS as FLAG_NAMES

LIBRARY_VARIABLE = "CYNORM_ONEDNN_LIBRARY"

# Enumerations of dnnl_types.h, fixed through the whole 3.x series.
DATA_TYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "int32": 4, "int8": 5, "uint8": 6, "float64": 7}
PROP_KINDS = {"forward_training": 64, "forward_inference": 96, "backward": 128, "backward_data": 160}
LRN_ALGORITHMS = {"across_channels": 0xAFF, "within_channel": 0xBFF}
FLAGS = {"use_global_stats": 1, "use_scale": 2, "use_shift": 4, "fuse_norm_relu": 8, "fuse_norm_add_relu": 16}
ARGUMENTS = {"src": 1, "src_1": 2, "dst": 17, "mean": 49, "variance": 50, "scale": 51, "shift": 52}
ARGUMENTS |= {"workspace": 64, "diff_src": 129, "diff_src_1": 130, "diff_dst": 145}
ARGUMENTS |= {"diff_scale": 255, "diff_shift": 256}
_STATUS = "success out_of_memory invalid_arguments unimplemented last_impl_reached runtime_error".split()
_QUERY_MEMORY_CONSUMPTION, _QUERY_IMPLEMENTATION, _QUERY_WORKSPACE = 6, 8, 135
_ENGINE_CPU = 1
_MAX_FORMAT_TAG = 2000


class _Argument(ctypes.Structure):
    _fields_ = [("arg", c_int), ("memory", c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    ]


def library_path():
    """Path of the library to load, or None where there is none."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return Path(named)
    folders = [Path(sys.prefix) / "lib", Path(sys.prefix) / "Library" / "bin", Path(sys.base_prefix) / "lib"]
    names = ["libdnnl.so.3", "libdnnl.3.dylib", "dnnl.dll"]
    return next((folder / name for folder in folders for name in names if (folder / name).exists()), None)


def available():
    """Whether oneDNN can be loaded here."""
    return library_path() is not None


@functools.cache
def _library():
    path = library_path()
    if path is None:
        raise ImportError(
            f"oneDNN not found: pip install onednn-cpu-gomp, or set {LIBRARY_VARIABLE} to libdnnl.so.3"
        )
    library = ctypes.CDLL(str(path))
    # h stands for a handle to be filled in, p for any other pointer, l for an int64.
    types = {"h": POINTER(c_void_p), "p": c_void_p, "i": c_int, "u": c_uint, "l": c_int64}
    types |= {"z": c_size_t, "f": c_float}
    signatures = {
        "dnnl_engine_create": "hiz",
        "dnnl_stream_create": "hpu",
        "dnnl_stream_wait": "p",
        "dnnl_memory_desc_create_with_strides": "hipip",
        "dnnl_memory_desc_create_with_tag": "hipii",
        "dnnl_memory_desc_destroy": "p",
        "dnnl_memory_create": "hppp",
        "dnnl_memory_destroy": "p",
        "dnnl_primitive_create": "hp",
        "dnnl_primitive_destroy": "p",
        "dnnl_primitive_execute": "ppip",
        "dnnl_primitive_desc_destroy": "p",
        "dnnl_primitive_desc_query": "piip",
        "dnnl_lrn_forward_primitive_desc_create": "hpiipplfffp",
        "dnnl_lrn_backward_primitive_desc_create": "hpippplfffpp",
        "dnnl_batch_normalization_forward_primitive_desc_create": "hpippfup",
        "dnnl_batch_normalization_backward_primitive_desc_create": "hpipppfupp",
    }
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.argtypes = [types[letter] for letter in arguments]
        if not name.endswith("destroy"):
            function.restype = _check
    library.dnnl_memory_desc_get_size.argtypes = [c_void_p]
    library.dnnl_memory_desc_get_size.restype = c_size_t
    library.dnnl_primitive_desc_query_md.argtypes = [c_void_p, c_int, c_int]
    library.dnnl_primitive_desc_query_md.restype = c_void_p
    library.dnnl_fmt_tag2str.restype = c_char_p
    library.dnnl_version.restype = POINTER(_Version)
    return library


def _check(status):
    if status == 0:
        return
    name = _STATUS[status] if status < len(_STATUS) else str(status)
    if name in ("unimplemented", "invalid_arguments"):
        raise Refused(name)
    raise MemoryError(name) if name == "out_of_memory" else RuntimeError(f"oneDNN: {name}")


def _create(constructor, destroy, owner, *arguments):
    """Handle made by a dnnl_*_create function, destroyed together with `owner`."""
    handle = c_void_p()
    constructor(byref(handle), *arguments)
    weakref.finalize(owner, destroy, handle)
    return handle


@functools.cache
def _engine_and_stream():
    library = _library()
    engine, stream = c_void_p(), c_void_p()
    library.dnnl_engine_create(byref(engine), _ENGINE_CPU, 0)
    library.dnnl_stream_create(byref(stream), engine, 1)
    return engine, stream


@functools.cache
def _format_tag(name):
    """Value of a format tag by its name (the values differ between versions, the names do not)."""
    to_name = _library().dnnl_fmt_tag2str
    for value in range(1, _MAX_FORMAT_TAG):
        if to_name(value) == name.encode():
            return value
    raise Refused(f"tag {name}")


def version():
    """Version of the library, such as "3.2.0"."""
    number = _library().dnnl_version().contents
    return f"{number.major}.{number.minor}.{number.patch}"


def set_num_threads(count):
    """Set the number of threads of the OpenMP runtime that oneDNN is linked with."""
    _library().omp_set_num_threads(c_int(count))


class MemoryDescriptor:
    """Dimensions, data type and memory order of a tensor.

    Parameters
    ----------
    dims : sequence of int
        Logical dimensions N, C, then the spatial ones.
    dtype : NumPy dtype
    strides : sequence of int, optional
        In elements.
    tag : str, optional
        oneDNN's name of a format, such as "abcd", "acdb" or "aBcd16b"; exclusive with `strides`.
        Without either the tensor is dense in the order of `dims`.

    Raises
    ------
    Refused
        The data type, tag or strides are none of oneDNN's.
    """

    def __init__(self, dims, dtype, strides=None, tag=None):
        dtype = np.dtype(dtype)
        if dtype.name not in DATA_TYPES:
            raise Refused(f"data type {dtype.name}")
        self.dims, self.dtype = tuple(dims), dtype
        dims_vector = (c_int64 * len(self.dims))(*self.dims)
        library = _library()
        arguments = (len(self.dims), dims_vector, DATA_TYPES[dtype.name])
        if tag is not None:
            if strides is not None:
                raise ValueError("give strides or tag, not both")
            constructor, layout = library.dnnl_memory_desc_create_with_tag, _format_tag(tag)
        else:
            if strides is None:
                strides = np.cumprod((1,) + self.dims[:0:-1])[::-1]
            constructor, layout = (
                library.dnnl_memory_desc_create_with_strides,
                (c_int64 * len(self.dims))(*strides),
            )
        self._handle = _create(constructor, library.dnnl_memory_desc_destroy, self, *arguments, layout)

    @classmethod
    def of(cls, array):
        """Descriptor of a NumPy array whose axes are N, C and the spatial ones, with its own strides."""
        return cls(array.shape, array.dtype, [stride // array.itemsize for stride in array.strides])

    @property
    def nbytes(self):
        return _library().dnnl_memory_desc_get_size(self._handle)


class _Problem:
    """A primitive with its descriptor; subclasses make the descriptor and name the arguments' descriptors."""

    def __init__(self, constructor, *arguments, arrays):
        library = _library()
        self._arrays = arrays
        self._descriptor = _create(
            constructor, library.dnnl_primitive_desc_destroy, self, _engine_and_stream()[0], *arguments
        )
        self._workspace_md = library.dnnl_primitive_desc_query_md(self._descriptor, _QUERY_WORKSPACE, 0)
        self._primitive = None

    def _query(self, what, result):
        _library().dnnl_primitive_desc_query(self._descriptor, what, 0, byref(result))
        return result.value

    @property
    def implementation(self):
        """Name of the implementation that oneDNN chose, such as "jit:avx512_core"."""
        return self._query(_QUERY_IMPLEMENTATION, c_char_p()).decode()

    @property
    def workspace_nbytes(self):
        """Bytes that forward leaves for backward; 0 where there is nothing to keep."""
        return _library().dnnl_memory_desc_get_size(self._workspace_md) if self._workspace_md else 0

    @property
    def scratch_nbytes(self):
        """Bytes of scratch memory that the library says it takes besides its arguments."""
        return self._query(_QUERY_MEMORY_CONSUMPTION, c_int64())

    def new_workspace(self):
        """Buffer for the argument "workspace", or None where the problem has none."""
        # np.full touches every page, so that no first run is charged with it.
        return np.full(self.workspace_nbytes, 0, np.uint8) if self.workspace_nbytes else None

    def bind(self, arrays):
        """A function of no arguments that runs the problem on `arrays`, as `execute` does.

        Binding once keeps the set-up out of what is timed.
        """
        library = _library()
        engine, stream = _engine_and_stream()
        if self._primitive is None:
            self._primitive = _create(
                library.dnnl_primitive_create, library.dnnl_primitive_destroy, self, self._descriptor
            )
        bound = _Bound()
        given = {name: array for name, array in arrays.items() if array is not None}
        vector = (_Argument * len(given))()
        for slot, (name, array) in zip(vector, given.items(), strict=True):
            memory = _create(
                library.dnnl_memory_create,
                library.dnnl_memory_destroy,
                bound,
                self._memory_descriptor(name, array),
                engine,
                c_void_p(array.ctypes.data),
            )
            slot.arg, slot.memory = ARGUMENTS[name], memory
        execute, wait = library.dnnl_primitive_execute, library.dnnl_stream_wait
        primitive, count = self._primitive, len(given)

        def run(_alive=(self, bound, given)):
            execute(primitive, stream, count, vector)
            wait(stream)

        return run

    def _memory_descriptor(self, name, array):
        if name not in ARGUMENTS:
            raise ValueError(f"arrays has {name!r}; allowed are {', '.join(ARGUMENTS)}")
        if name == "workspace":
            if array.nbytes < self.workspace_nbytes:
                raise ValueError(f"workspace has {array.nbytes} bytes; {self.workspace_nbytes} are needed")
            return self._workspace_md
        descriptor = self._arrays[name]
        # A blocked array holds the padding as well.
        sizes = math.prod(descriptor.dims), descriptor.nbytes // descriptor.dtype.itemsize
        if array.dtype != descriptor.dtype or array.size not in sizes:
            raise ValueError(
                f"{name} has dtype {array.dtype} and {array.size} elements; the problem was made for "
                f"{descriptor.dtype} and {sizes[0]} elements"
            )
        return descriptor._handle

    def execute(self, arrays):
        """Run the problem.

        Parameters
        ----------
        arrays : dict of str to ndarray
            Keyed by argument: src, dst, diff_dst, diff_src, workspace, and for batch normalization also mean,
            variance, scale, shift, diff_scale, diff_shift. Each lies in memory as its descriptor says;
            outputs are written in place. None stands for an absent argument.
        """
        self.bind(arrays)()


class _Bound:
    """Owner of the memory handles of one binding."""


class Lrn(_Problem):
    """Local response normalization.

    Parameters
    ----------
    prop_kind : {"forward_training", "forward_inference", "backward"}
    src : MemoryDescriptor
    dst, diff_src, diff_dst : MemoryDescriptor, optional
        As `src` where not given.
    algorithm : {"across_channels", "within_channel"}

    Raises
    ------
    Refused
    """

    def __init__(
        self,
        prop_kind,
        src,
        *,
        algorithm="across_channels",
        local_size=5,
        alpha=1e-4,
        beta=0.75,
        k=1.0,
        dst=None,
        diff_src=None,
        diff_dst=None,
    ):
        library = _library()
        dst, diff_dst, diff_src = dst or src, diff_dst or src, diff_src or src
        kind, parameters = LRN_ALGORITHMS[algorithm], (local_size, alpha, beta, k)
        arrays = {"src": src, "dst": dst, "diff_src": diff_src, "diff_dst": diff_dst}
        if prop_kind == "backward":
            # The hint is a forward problem: it fixes the workspace that backward will read.
            named = dict(zip(("local_size", "alpha", "beta", "k"), parameters, strict=True))
            self._hint = Lrn("forward_training", src, algorithm=algorithm, dst=dst, **named)
            create, descriptors = library.dnnl_lrn_backward_primitive_desc_create, (diff_src, diff_dst, src)
            leading, hint = (kind,), (self._hint._descriptor,)
        else:
            create, descriptors = library.dnnl_lrn_forward_primitive_desc_create, (src, dst)
            leading, hint = (PROP_KINDS[prop_kind], kind), ()
        handles = [descriptor._handle for descriptor in descriptors]
        super().__init__(create, *leading, *handles, *parameters, *hint, None, arrays=arrays)
        if prop_kind == "backward" and local_size < 3 and self.implementation.startswith("lrn_jit"):
            raise Refused("this implementation crashes for local sizes 1 and 2")


class BatchNorm(_Problem):
    """Batch normalization per channel; statistics, scale and shift are float32 vectors.

    Parameters
    ----------
    prop_kind : {"forward_training", "forward_inference", "backward", "backward_data"}
        "backward_data" gives no gradients of scale and shift.
    src : MemoryDescriptor
    epsilon : float
    flags : iterable of str
        From use_global_stats, use_scale, use_shift, fuse_norm_relu, fuse_norm_add_relu (which has the
        further arguments src_1 and diff_src_1).
    dst, diff_src, diff_dst : MemoryDescriptor, optional
        As `src` where not given.

    Raises
    ------
    Refused
    """

    def __init__(self, prop_kind, src, *, epsilon=1e-5, flags=(), dst=None, diff_src=None, diff_dst=None):
        library = _library()
        flags = tuple(flags)
        dst, diff_dst, diff_src = dst or src, diff_dst or src, diff_src or src
        vector = MemoryDescriptor((src.dims[1],), np.float32)
        arrays = {"src": src, "dst": dst, "diff_src": diff_src, "diff_dst": diff_dst}
        arrays |= {"src_1": dst, "diff_src_1": diff_dst}
        arrays |= dict.fromkeys(("mean", "variance", "scale", "shift", "diff_scale", "diff_shift"), vector)
        if prop_kind.startswith("backward"):
            self._hint = BatchNorm("forward_training", src, epsilon=epsilon, flags=flags, dst=dst)
            create = library.dnnl_batch_normalization_backward_primitive_desc_create
            descriptors, hint = (diff_src, diff_dst, src), (self._hint._descriptor,)
        else:
            create = library.dnnl_batch_normalization_forward_primitive_desc_create
            descriptors, hint = (src, dst), ()
        handles = [descriptor._handle for descriptor in descriptors]
        bits = sum(FLAGS[flag] for flag in flags)
        super().__init__(create, PROP_KINDS[prop_kind], *handles, epsilon, bits, *hint, None, arrays=arrays)


def prepare(problem, arrays):
    """Prepare a problem of the suite (`benchmarks.problems.Problem`) on its arrays."""

    def describe(name):
        if not problem.layout.block:
            return MemoryDescriptor.of(arrays[name])
        tag = f"aB{'cde'[: len(problem.shape) - 2]}{problem.layout.block}b"
        return MemoryDescriptor(problem.shape, problem.dtype, tag=tag)

    forward_kind = "forward_inference" if problem.direction == "FWD_I" else "forward_training"
    src, dst = describe("src"), describe("dst")
    values = problem.parameters
    if problem.driver == "lrn":
        make, backward_kind = Lrn, "backward"
        common = {name: values[name] for name in ("alpha", "beta", "k")}
        common |= {"algorithm": problem.region, "local_size": values["ls"], "dst": dst}
    else:
        # A fused ReLU in inference is the same as the post-operation.
        letters = set(problem.flags) | ({"R"} if problem.post_ops == "relu" else set())
        make, backward_kind = BatchNorm, "backward" if problem.with_parameter_gradients else "backward_data"
        common = {"epsilon": values["eps"], "flags": [FLAG_NAMES[letter] for letter in letters], "dst": dst}
    forward = make(forward_kind, src, **common)
    problem.filter_implementation(forward.implementation)
    workspace = forward.new_workspace()
    inputs = {"src": arrays["src"], "dst": arrays["dst"], "workspace": workspace}
    vectors = ("src_1", "scale", "shift") + (("mean", "variance") if _has_statistics(problem) else ())
    inputs |= {name: arrays[name] for name in vectors if arrays.get(name) is not None}
    if problem.is_forward:
        return Prepared(
            forward.bind(inputs), forward.implementation, forward.workspace_nbytes, forward.scratch_nbytes
        )
    backward = make(
        backward_kind, src, diff_src=describe("diff_src"), diff_dst=describe("diff_dst"), **common
    )
    problem.filter_implementation(backward.implementation)
    forward.execute(inputs)
    del inputs["dst"]
    inputs.pop("shift", None)
    inputs |= {name: arrays[name] for name in ("diff_dst", "diff_src")}
    if problem.with_parameter_gradients:
        wanted = {"diff_scale": "scale", "diff_shift": "shift"}
        inputs |= {
            name: arrays[name] for name, parameter in wanted.items() if arrays.get(parameter) is not None
        }
    return Prepared(
        backward.bind(inputs), backward.implementation, backward.workspace_nbytes, backward.scratch_nbytes
    )


def _has_statistics(problem):
    """Whether mean and variance are arguments: inputs when given, outputs of training, else absent."""
    return problem.driver == "bnorm" and ("G" in problem.flags or problem.direction != "FWD_I")
