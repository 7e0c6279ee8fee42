# cython: language_level=3
"""Memory of other libraries as NumPy arrays, without a copy."""

import sys

import numpy as np

cimport numpy as cnp
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

# DLPack's ABI, https://dmlc.github.io/dlpack/latest/c_api.html; before version 1.0 a capsule held the first struct only
cdef enum:
    DL_READ_ONLY = 1
    DL_COPIED = 2
    DL_MAJOR = 1

# The devices whose memory the CPU reads: itself, pinned for CUDA or for ROCm, CUDA's managed.
cdef tuple ON_HOST = (1, 3, 11, 13)

ctypedef struct DLDataType:
    uint8_t code, bits
    uint16_t lanes

ctypedef struct DLTensor:
    void *data
    int32_t device_type, device_id
    int32_t ndim
    DLDataType dtype
    int64_t *shape
    int64_t *strides         # in elements; NULL: C order
    uint64_t byte_offset

ctypedef struct DLManagedTensor:
    DLTensor tensor
    void *context
    void (*deleter)(DLManagedTensor *) noexcept

ctypedef struct DLManagedTensorVersioned:
    uint32_t major, minor
    void *context
    void (*deleter)(DLManagedTensorVersioned *) noexcept
    uint64_t flags
    DLTensor tensor

# (code, bits) -> NumPy's typestr; bfloat16 goes by way of an integer of its size.
cdef dict TYPES = {
    (code, 8 * size): f"{'=' if size > 1 else '|'}{letter}{size}"
    for code, letter, sizes in (
        (0, "i", (1, 2, 4, 8)), (1, "u", (1, 2, 4, 8)), (2, "f", (2, 4, 8)), (4, "u", (2,)), (5, "c", (8, 16)),
        (6, "b", (1,)))
    for size in sizes
}
cdef enum:
    DL_BFLOAT = 4


cdef class Borrowed:
    """A DLPack tensor that NumPy can look at; given back when the last array of it is gone."""

    cdef DLManagedTensor *plain
    cdef DLManagedTensorVersioned *versioned
    cdef readonly dict __array_interface__
    cdef bint bfloat16, copied

    def __cinit__(self, capsule):
        cdef DLTensor *t
        cdef bint read_only = False
        if PyCapsule_IsValid(capsule, "dltensor_versioned"):
            self.versioned = <DLManagedTensorVersioned *>PyCapsule_GetPointer(capsule, "dltensor_versioned")
            PyCapsule_SetName(capsule, "used_dltensor_versioned")
            if self.versioned.major != DL_MAJOR:
                raise BufferError(f"DLPack {self.versioned.major} is not DLPack {DL_MAJOR}")
            read_only = self.versioned.flags & DL_READ_ONLY
            self.copied = self.versioned.flags & DL_COPIED
            t = &self.versioned.tensor
        else:
            self.plain = <DLManagedTensor *>PyCapsule_GetPointer(capsule, "dltensor")
            PyCapsule_SetName(capsule, "used_dltensor")
            t = &self.plain.tensor
        typestr = TYPES.get((t.dtype.code, t.dtype.bits))
        if typestr is None or t.dtype.lanes != 1:
            raise BufferError(f"DLPack data type of code {t.dtype.code}, {t.dtype.bits} bits and {t.dtype.lanes} lanes "
                              "is none of float32, float64, float16, bfloat16 and int8")
        self.bfloat16 = t.dtype.code == DL_BFLOAT
        strides = None
        if t.strides != NULL:
            strides = tuple([t.strides[i] * (t.dtype.bits // 8) for i in range(t.ndim)])
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple([t.shape[i] for i in range(t.ndim)]),
            "typestr": typestr,
            "data": (<uintptr_t>t.data + t.byte_offset, bool(read_only)),
            "strides": strides,
        }

    def __dealloc__(self):
        if self.plain != NULL and self.plain.deleter != NULL:
            self.plain.deleter(self.plain)
        if self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)


def from_dlpack(obj, writing):
    """An array of a DLPack tensor's own memory: NumPy's from_dlpack, for bfloat16 and for writing too."""
    cdef Borrowed borrowed
    if hasattr(obj, "is_neg") and obj.is_neg():  # PyTorch hands out the memory all the same
        raise BufferError("its elements are stored with the other sign; resolve_neg() copies them")
    device = obj.__dlpack_device__()
    if device[0] not in ON_HOST:
        raise BufferError(f"its memory is on device {tuple(map(int, device))}, not on the CPU; copy it there first")
    try:
        capsule = obj.__dlpack__(max_version=(DL_MAJOR, 0))
    except TypeError:  # it speaks DLPack as it was before 1.0
        capsule = obj.__dlpack__()
    borrowed = Borrowed(capsule)
    if writing and borrowed.copied:
        raise BufferError("what is written would be lost in a copy")
    # older PyTorch hands out memory that may be written; JAX and TensorFlow still hand out memory that must not change
    if writing and borrowed.plain != NULL and not hasattr(obj, "is_neg"):
        raise BufferError("what DLPack before 1.0 hands out is not known to be writable, as JAX's and TensorFlow's is "
                          "not; pass a NumPy array")
    array = np.asarray(borrowed)
    if borrowed.bfloat16:
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            raise BufferError("NumPy has bfloat16 from ml_dtypes alone (pip install ml_dtypes)") from None
        array = array.view(bfloat16)
    return array


cdef object from_torch(object tensor):
    """The same of a torch.Tensor by its numpy(), in a tenth of the time; bfloat16 by way of an integer of its size."""
    torch = sys.modules["torch"]
    if tensor.dtype is not torch.bfloat16:
        return tensor.numpy()
    from ml_dtypes import bfloat16
    return tensor.view(torch.int16).numpy().view(bfloat16)


cdef object as_array(object obj, str name, bint writing):
    """An array as it is; whatever speaks DLPack, an array interface or the buffer protocol, as one of its own memory.

    To be read, anything else that NumPy makes an array of will do: nested lists of numbers, objects with __array__.
    """
    if isinstance(obj, cnp.ndarray):
        return obj
    if obj is None:
        raise TypeError(f"{name} must be an array, got None")
    if type(obj).__module__ == "torch":
        try:
            return from_torch(obj)
        except (ImportError, RuntimeError, TypeError):  # DLPack refuses the same, and says why
            pass
    shares = hasattr(obj, "__array_interface__") or hasattr(obj, "__array_struct__")
    if hasattr(obj, "__dlpack__") and not shares:
        try:
            return from_dlpack(obj, writing)
        except MemoryError:
            raise
        except Exception as error:
            raise TypeError(f"{name} must share its memory, got {type(obj).__name__} that does not: {error}") from error
    if writing and not shares and not PyObject_CheckBuffer(obj):
        raise TypeError(f"{name} must be an array, or share its memory by DLPack, __array_interface__ or the buffer "
                        f"protocol, got {type(obj).__name__}")
    try:
        array = np.asarray(obj)
    except MemoryError:
        raise
    except Exception as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name} must be an array of numbers, got {type(obj).__name__}: {error}") from None
    if array.ndim == 0 and array.dtype.kind in "OSU":  # NumPy makes one of anything
        raise TypeError(f"{name} must be an array of numbers, got {type(obj).__name__}")
    return array
