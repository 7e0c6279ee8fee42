# cython: language_level=3
"""NumPy arrays as cynorm_tensor, and the checks that every operator makes of them."""

cimport numpy as cnp
import numpy as np

from cynorm._kernels cimport (
    CYNORM_BF16, CYNORM_DTYPES, CYNORM_F16, CYNORM_F32, CYNORM_F64, CYNORM_S8, cynorm_itemsize,
    cynorm_tensor,
)
from libc.stdint cimport int64_t

cnp.import_array()

cdef int bfloat16_number = -1  # ml_dtypes' type number, once an array of it has been seen


cdef extern from "numpy/arrayobject.h":
    """
    static PyObject *cynorm_new_like(PyArrayObject *a) { return PyArray_NewLikeArray(a, NPY_KEEPORDER, NULL, 0); }
    """
    const int NPY_USERDEF
    object cynorm_new_like(cnp.ndarray a)

cdef enum:
    UNKNOWN = CYNORM_DTYPES


cdef int code_of(cnp.ndarray array) except -1:
    """The cynorm_dtype of an array's elements in native byte order, or UNKNOWN."""
    global bfloat16_number
    cdef int number = cnp.PyArray_TYPE(array)
    if not cnp.PyArray_ISNOTSWAPPED(array):
        return UNKNOWN
    if number == cnp.NPY_FLOAT32:
        return CYNORM_F32
    if number == cnp.NPY_FLOAT64:
        return CYNORM_F64
    if number == cnp.NPY_FLOAT16:
        return CYNORM_F16
    if number == cnp.NPY_INT8:
        return CYNORM_S8
    if number == bfloat16_number:
        return CYNORM_BF16
    if number >= NPY_USERDEF and array.dtype.name == "bfloat16":
        bfloat16_number = number
        return CYNORM_BF16
    return UNKNOWN


cdef int dtype_code(object dtype) except -1:
    """The cynorm_dtype of anything that NumPy takes for a dtype; "bfloat16" needs ml_dtypes."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return CYNORM_BF16
    cdef int code = code_of(np.empty(0, dtype))
    if code >= CYNORM_S8:
        raise TypeError(f"dtype must be float32, float64, float16 or bfloat16, got {np.dtype(dtype)}")
    return code


cdef object real_dtype(int code):
    if code == CYNORM_F64:
        return np.dtype(np.float64)
    return np.dtype(np.float32)


cdef object describe(object obj, str name, cynorm_tensor *t):
    """Fill t from obj and return obj as an array (itself, where it is one)."""
    cdef cnp.ndarray a
    cdef int i
    if isinstance(obj, np.ndarray):
        a = obj
    else:
        a = as_array(obj, name)
    t.dtype = code_of(a)
    if t.dtype >= CYNORM_S8:
        refuse_dtype(a, name)
    t.ndim = cnp.PyArray_NDIM(a)
    if t.ndim < 1 or t.ndim > 8:
        raise ValueError(f"{name} must have 1 to 8 dimensions, got {t.ndim}")
    t.data = <char *>cnp.PyArray_DATA(a)
    for i in range(t.ndim):
        t.shape[i] = cnp.PyArray_DIM(a, i)
        t.strides[i] = cnp.PyArray_STRIDE(a, i)
    return a


def as_array(obj, name):
    """Whatever speaks the buffer protocol, an array interface or DLPack, or nested lists of numbers, as an array."""
    if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array_interface__"):
        return np.from_dlpack(obj)
    try:
        return np.asarray(obj)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None


def refuse_dtype(array, name):
    allowed = "float32, float64, float16 or bfloat16, in native byte order"
    raise TypeError(f"{name} must be {allowed}, got {array.dtype!r}")


cdef int describe_output(object out, str name, cynorm_tensor *t) except -1:
    """Fill t from an array to be written to."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, got {type(out).__name__}")
    describe(out, name, t)
    if not cnp.PyArray_ISWRITEABLE(out):
        raise ValueError(f"{name} must be writable, got a read-only array")
    cdef int64_t reach = cynorm_itemsize(t.dtype)
    cdef int done = 0, axis, i
    # elements overlap unless each stride, smallest first, steps over all the smaller ones
    while done != (1 << t.ndim) - 1:
        axis = -1
        for i in range(t.ndim):
            if not done >> i & 1 and (axis < 0 or abs(t.strides[i]) < abs(t.strides[axis])):
                axis = i
        done |= 1 << axis
        if t.shape[axis] == 0:
            return 0
        if t.shape[axis] > 1:
            if abs(t.strides[axis]) < reach:
                raise ValueError(f"{name} must not overlap itself, got strides {out.strides} for shape {out.shape}")
            reach += abs(t.strides[axis]) * (t.shape[axis] - 1)
    return 0


cdef object empty_like(object array, cynorm_tensor *t):
    """A new array of the same shape, dtype and memory order, described in t."""
    cdef object out = cynorm_new_like(array)
    describe(out, "out", t)
    return out


cdef tuple shape_of(const cynorm_tensor *t):
    return tuple([t.shape[i] for i in range(t.ndim)])


cdef int check_same(const cynorm_tensor *t, str name, const cynorm_tensor *other, str other_name) except -1:
    cdef int i
    cdef bint same = t.ndim == other.ndim
    if same:
        for i in range(t.ndim):
            same = same and t.shape[i] == other.shape[i]
    if not same:
        raise ValueError(f"{name} must have {other_name}'s shape {shape_of(other)}, got {shape_of(t)}")
    if t.dtype != other.dtype:
        raise TypeError(f"{name} must have {other_name}'s dtype {dtype_name(other.dtype)}, got {dtype_name(t.dtype)}")
    return 0


def dtype_name(int code):
    return ("float32", "float64", "float16", "bfloat16", "int8")[code]


cdef bint same_memory(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil:
    cdef int i
    if a.data != b.data:
        return False
    for i in range(a.ndim):
        if a.shape[i] > 1 and a.strides[i] != b.strides[i]:
            return False
    return True


cdef void bounds(const cynorm_tensor *t, char **low, char **high) noexcept nogil:
    cdef int i
    low[0] = t.data
    high[0] = t.data + cynorm_itemsize(t.dtype)
    for i in range(t.ndim):
        if t.strides[i] < 0:
            low[0] += t.strides[i] * (t.shape[i] - 1)
        else:
            high[0] += t.strides[i] * (t.shape[i] - 1)


cdef int check_overlap(object out, const cynorm_tensor *t, object array, const cynorm_tensor *other, str name,
                       bint same_allowed) except -1:
    """Refuse an output that shares memory with an input, other than being the same elements in the same places."""
    cdef char *low
    cdef char *high
    cdef char *other_low
    cdef char *other_high
    bounds(t, &low, &high)
    bounds(other, &other_low, &other_high)
    if low >= other_high or other_low >= high or (same_allowed and same_memory(t, other)):
        return 0
    try:
        shared = np.shares_memory(out, array, max_work=1 << 16)
    except Exception:  # too hard to decide: NumPy's TooHardError, whose home has moved between versions
        shared = True
    if shared:
        how = "be the same array or" if same_allowed else ""
        raise ValueError(f"out must {how + ' ' if how else ''}not overlap {name}, got {describe_memory(out)} and "
                         f"{describe_memory(array)}")
    return 0


def describe_memory(array):
    return f"memory at {array.__array_interface__['data'][0]:#x} with strides {array.strides}"
