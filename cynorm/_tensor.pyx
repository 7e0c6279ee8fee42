# cython: language_level=3
"""NumPy arrays as cynorm_tensor, and the checks that every operator makes of them."""

import math
from functools import lru_cache, wraps

cimport numpy as cnp
import numpy as np

from cynorm._messages import shown
from cynorm._parameters import integers as integers_of

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cynorm._interop cimport as_array
from cynorm._types cimport (
    CYNORM_BF16, CYNORM_DTYPES, CYNORM_F16, CYNORM_F32, CYNORM_F64, CYNORM_S8, cynorm_itemsize,
    cynorm_tensor,
)
from libc.stdint cimport int64_t
from libc.stdlib cimport llabs  # as abs of an int64_t would be Python's
from libc.string cimport memset

cnp.import_array()

cdef object MOST_ELEMENTS = <int64_t>1 << ELEMENT_BITS
cdef object MOST_INTERLEAVED = 1 << 20  # elements that are looked at one by one
cdef int bfloat16_number = -1  # ml_dtypes' type number, once an array of it has been seen


cdef extern from "numpy/arrayobject.h":
    """
    /* A new array of a's shape, dtype and memory order. NumPy's large arrays begin 16 bytes past a cache line; where
     * outputs may bypass the cache, which takes whole lines, this one begins with one. */
    static PyObject *cynorm_new_like(PyArrayObject *a) {
        PyArrayObject *like = (PyArrayObject *)PyArray_NewLikeArray(a, NPY_KEEPORDER, NULL, 0), *memory;
        npy_intp strides[8], room;
        if (like == NULL || PyArray_NBYTES(like) < 1 << 21) return (PyObject *)like;
        room = PyArray_NBYTES(like) + 63;
        memcpy(strides, PyArray_STRIDES(like), PyArray_NDIM(like) * sizeof *strides);
        Py_DECREF(like);
        memory = (PyArrayObject *)PyArray_SimpleNew(1, &room, NPY_INT8);
        if (memory == NULL) return NULL;
        Py_INCREF(PyArray_DESCR(a));
        like = (PyArrayObject *)PyArray_NewFromDescr(
            &PyArray_Type, PyArray_DESCR(a), PyArray_NDIM(a), PyArray_DIMS(a), strides,
            PyArray_BYTES(memory) + (-(npy_intp)PyArray_BYTES(memory) & 63), NPY_ARRAY_WRITEABLE, NULL);
        if (like == NULL) Py_DECREF(memory);
        else if (PyArray_SetBaseObject(like, (PyObject *)memory) < 0) Py_CLEAR(like);
        return (PyObject *)like;
    }
    static PyObject *cynorm_new(PyArray_Descr *dtype, int ndim, npy_intp *shape) {
        Py_INCREF(dtype);
        return PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, shape, NULL, NULL, 0, NULL);
    }
    static PyObject *cynorm_view(PyArrayObject *a, int ndim, npy_intp *shape, npy_intp *strides) {
        PyArray_Descr *dtype = PyArray_DESCR(a);
        PyObject *view;
        Py_INCREF(dtype);
        view = PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, shape, strides, PyArray_DATA(a),
                                    PyArray_FLAGS(a) & NPY_ARRAY_WRITEABLE, NULL);
        if (view == NULL) return NULL;
        Py_INCREF(a);
        if (PyArray_SetBaseObject((PyArrayObject *)view, (PyObject *)a) < 0) Py_CLEAR(view);
        return view;
    }
    """
    const int NPY_USERDEF
    object cynorm_new_like(cnp.ndarray a)
    object cynorm_new(cnp.dtype dtype, int ndim, cnp.npy_intp *shape)
    object cynorm_view(cnp.ndarray a, int ndim, cnp.npy_intp *shape, cnp.npy_intp *strides)

cdef enum:
    UNKNOWN = CYNORM_DTYPES
    MOST_ARRAYS = 16                # of a call


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


cdef int dtype_code(object dtype, bint integers) except -1:
    """The cynorm_dtype of anything that NumPy takes for a dtype; "bfloat16" needs ml_dtypes; `integers` allows int8."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return CYNORM_BF16
    cdef int code = UNKNOWN
    try:
        if dtype is None:  # NumPy's default
            raise TypeError
        dtype = np.dtype(dtype)
        if dtype.subdtype is None:
            code = code_of(np.empty(0, dtype))
    except (TypeError, ValueError, SyntaxError):  # NumPy knows none of this name
        pass
    if not is_taken(code, integers):
        raise TypeError(f"dtype must be NumPy's {taken(integers)}, got {str(dtype)!r}")
    return code


cdef bint is_taken(int code, bint integers) noexcept:
    return code < CYNORM_S8 or integers and code == CYNORM_S8


cdef str taken(bint integers):
    return f"float32, float64, float16{', int8' if integers else ''} or bfloat16, in native byte order"


cdef int describe_shape(object shape, object dtype, cynorm_tensor *t, bint integers=False) except -1:
    """Fill t, but for its memory, from arguments of these names; `integers` allows int8."""
    cdef int i
    extents = integers_of("shape", shape)
    if not 1 <= len(extents) <= 8 or min(extents) < 0:
        raise ValueError(f"shape must have 1 to 8 extents of at least 0, got {shown(extents)}")
    if max(*extents, math.prod(extents)) >= MOST_ELEMENTS:
        raise ValueError(f"shape's extents, and their product, must be less than {MOST_ELEMENTS}, got {shown(extents)}")
    t.dtype = dtype_code(dtype, integers)
    t.ndim = len(extents)
    for i in range(t.ndim):
        t.shape[i] = extents[i]
    return 0


cdef int64_t elements_of(const cynorm_tensor *t) noexcept nogil:
    cdef int64_t n = 1
    cdef int i
    for i in range(t.ndim):
        n *= t.shape[i]
    return n


cdef object FLOAT32 = np.dtype(np.float32), FLOAT64 = np.dtype(np.float64)


cdef object real_dtype(int code):
    return FLOAT64 if code == CYNORM_F64 else FLOAT32


cdef object describe(object obj, str name, cynorm_tensor *t, bint integers=False):
    """Fill t from obj and return obj as an array (itself, where it is one); `integers` allows int8."""
    cdef cnp.ndarray a = as_array(obj, name, False)
    t.dtype = code_of(a)
    if not is_taken(t.dtype, integers):
        raise TypeError(f"{name} must be {taken(integers)}, got {a.dtype!r}")
    return fill(t, a, name)


cdef object describe_parameter(object obj, str name, cynorm_tensor *t, const cynorm_tensor *src):
    """Likewise from what goes with src: of reals, or of src's own dtype, unless that is int8."""
    cdef cnp.ndarray a = as_array(obj, name, False)
    cdef int real = real_of(src.dtype)
    if (isinstance(obj, (list, tuple)) or cnp.PyArray_NDIM(a) == 0) and a.dtype.kind in "if":  # Python's are of no size
        a = a.astype(real_dtype(src.dtype))
    t.dtype = code_of(a)
    if t.dtype != real and (t.dtype != src.dtype or t.dtype == CYNORM_S8):
        other = "" if src.dtype in (real, CYNORM_S8) else " or src's own dtype"
        raise TypeError(f"{name} must be {real_dtype(src.dtype)}{other} for src of {dtype_name(src.dtype)}, "
                        f"in native byte order, got {a.dtype!r}")
    return fill(t, a, name)


cdef bint masked(object array):
    return not cnp.PyArray_CheckExact(array) and isinstance(array, np.ma.MaskedArray)


cdef int refuse_masked(str name) except -1:
    raise TypeError(f"{name} must not be a masked array, whose mask would be ignored: pass its .data"
                    " or, where it is only read, filled()")


cdef object fill(cynorm_tensor *t, cnp.ndarray a, str name):
    """Fill t, except its dtype, from a, and return a."""
    cdef int i
    if masked(a):
        refuse_masked(name)
    t.ndim = cnp.PyArray_NDIM(a)
    if t.ndim > 8:
        raise ValueError(f"{name} must have at most 8 dimensions, got {t.ndim}")
    t.data = <char *>cnp.PyArray_DATA(a)
    for i in range(t.ndim):
        t.shape[i] = cnp.PyArray_DIM(a, i)
        t.strides[i] = cnp.PyArray_STRIDE(a, i)
    return a


cdef object describe_like(object obj, str name, const cynorm_tensor *src, cynorm_tensor *t):
    """As `describe`, of what has src's shape and dtype."""
    cdef cnp.ndarray a = as_array(obj, name, False)
    t.dtype = code_of(a)
    if t.dtype != src.dtype:
        native = "" if cnp.PyArray_ISNOTSWAPPED(a) else ", in native byte order"
        raise TypeError(f"{name} must have src's dtype {dtype_name(src.dtype)}{native}, got {a.dtype!r}")
    fill(t, a, name)
    if not same_shape(t, src):
        raise ValueError(f"{name} must have src's shape {shape_of(src)}, got {shape_of(t)}")
    return a


cdef object output_array(object out, str name):
    """An array of the memory of `out` (itself, where it is one), which may be written to."""
    out = as_array(out, name, True)
    if not cnp.PyArray_ISWRITEABLE(out):
        raise ValueError(f"{name} must be writable, got a read-only array")
    check_apart_itself(out, name)
    return out


cdef bint interleaved(object array) except -1:
    """Whether elements lie apart although strides do not step over smaller ones; no, if too many to be looked at."""
    if array.size > MOST_INTERLEAVED:
        return False
    offsets = np.zeros(1, np.int64)
    for extent, stride in zip(array.shape, array.strides):
        offsets = np.add.outer(offsets, np.arange(extent) * stride).ravel()
    offsets.sort()
    return bool((np.diff(offsets) >= array.itemsize).all())


cdef int check_apart_itself(object out, str name) except -1:
    """Refuse an output whose elements share memory; what has more than 8 dimensions is refused when it is described."""
    cdef cnp.ndarray a = out
    cdef int64_t reach = cnp.PyArray_ITEMSIZE(a)
    cdef int ndim = cnp.PyArray_NDIM(a), done = 0, axis, i
    cdef cnp.npy_intp *shape = cnp.PyArray_DIMS(a)
    cdef cnp.npy_intp *strides = cnp.PyArray_STRIDES(a)
    if cnp.PyArray_IS_C_CONTIGUOUS(a) or cnp.PyArray_SIZE(a) == 0 or ndim > 8:
        return 0
    # elements are apart where each stride, smallest first, steps over all the smaller ones
    while done != (1 << ndim) - 1:
        axis = -1
        for i in range(ndim):
            if not done >> i & 1 and (axis < 0 or llabs(strides[i]) < llabs(strides[axis])):
                axis = i
        done |= 1 << axis
        if shape[axis] > 1:
            if llabs(strides[axis]) < reach:
                if interleaved(out):
                    return 0
                nor = "" if out.size <= MOST_INTERLEAVED else f", nor interleave more than {MOST_INTERLEAVED} elements"
                raise ValueError(
                    f"{name} must not overlap itself{nor}, got strides {out.strides} for shape {out.shape}")
            reach += llabs(strides[axis]) * (shape[axis] - 1)
    return 0


cdef object empty_like(object array, cynorm_tensor *t):
    """A new array of the same shape, dtype and memory order, described in t."""
    cdef object out = cynorm_new_like(array)
    describe(out, "out", t, True)
    return out


cdef object output_like(object out, str name, object array, const cynorm_tensor *src, cynorm_tensor *t):
    """Fill t from where to write a tensor like src: `out` or, where that is None, a new array in the memory order of
    `array`, which is src. Returns an array of that memory."""
    if out is None:
        return empty_like(array, t)
    return describe_like(output_array(out, name), name, src, t)


cdef int check_memory(int status) except -1:
    if status < 0:
        raise MemoryError("no memory for the scratch of the kernels")
    return 0


cdef object new_array(tuple shape, object dtype):
    """Uninitialised and C-contiguous: `numpy.empty`, without its arguments' way through Python."""
    cdef cnp.npy_intp extents[8]
    cdef int i
    for i in range(len(shape)):
        extents[i] = shape[i]
    return cynorm_new(dtype, len(shape), extents)


cdef object new_array_like(object array):
    """Likewise, of the shape and dtype of another."""
    cdef cnp.ndarray a = array
    return cynorm_new(<cnp.dtype>cnp.PyArray_DESCR(a), cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a))


cdef tuple shape_of(const cynorm_tensor *t):
    return tuple([t.shape[i] for i in range(t.ndim)])


cdef bint same_shape(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil:
    cdef int i
    if a.ndim != b.ndim:
        return False
    for i in range(a.ndim):
        if a.shape[i] != b.shape[i]:
            return False
    return True


cdef bint same_kind(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil:
    return a.dtype == b.dtype and same_shape(a, b)


cdef object dtype_name(int code):
    return ("float32", "float64", "float16", "bfloat16", "int8")[code]


cdef object short_name(int code):
    return ("f32", "f64", "f16", "bf16", "s8")[code]


cdef bint same_memory(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil:
    cdef int i
    if a.data != b.data:
        return False
    for i in range(a.ndim):
        if a.shape[i] > 1 and a.strides[i] != b.strides[i]:
            return False
    return True


cdef void bounds(cnp.ndarray a, char **low, char **high) noexcept:
    """Where an array's memory begins and ends; both NULL where it has no elements."""
    cdef int64_t reach
    cdef int axis
    low[0] = <char *>cnp.PyArray_DATA(a)
    high[0] = low[0] + cnp.PyArray_ITEMSIZE(a)
    for axis in range(cnp.PyArray_NDIM(a)):
        if cnp.PyArray_DIM(a, axis) == 0:
            low[0] = high[0] = NULL
            return
        reach = cnp.PyArray_STRIDE(a, axis) * (cnp.PyArray_DIM(a, axis) - 1)
        if reach < 0:
            low[0] += reach
        else:
            high[0] += reach


cdef bint same_place(cnp.ndarray a, cnp.ndarray b) noexcept:
    cdef int i
    if (cnp.PyArray_DATA(a) != cnp.PyArray_DATA(b) or cnp.PyArray_NDIM(a) != cnp.PyArray_NDIM(b)
            or cnp.PyArray_ITEMSIZE(a) != cnp.PyArray_ITEMSIZE(b)):
        return False
    for i in range(cnp.PyArray_NDIM(a)):
        if cnp.PyArray_DIM(a, i) != cnp.PyArray_DIM(b, i):
            return False
        if cnp.PyArray_DIM(a, i) > 1 and cnp.PyArray_STRIDE(a, i) != cnp.PyArray_STRIDE(b, i):
            return False
    return True


cdef int refuse_shared(object out, str out_name, object array, str name, bint same_allowed) except -1:
    """Refuse an output that shares memory with another array, as far as can be told without much work."""
    try:
        shared = np.shares_memory(out, array, max_work=1 << 16)
    except Exception:  # too hard to decide: NumPy's TooHardError, whose home has moved between versions
        shared = True
    if shared:
        how = "be the same array or not overlap" if same_allowed and out.shape == array.shape else "not overlap"
        got = f"{describe_memory(out)} and {describe_memory(array)}"
        raise ValueError(f"{out_name} must {how} {name}, got {got}")
    return 0


cdef str describe_memory(object array):
    return f"memory at {array.__array_interface__['data'][0]:#x} with strides {array.strides}"


cdef int check_outputs(tuple arrays, tuple names, int inputs) except -1:
    """Of arrays (None: absent), the first of which are inputs: refuse an output that shares memory with
    another, unless it is an input itself."""
    cdef char *low[MOST_ARRAYS]
    cdef char *high[MOST_ARRAYS]
    cdef int count = len(arrays), i, j
    for i in range(count):
        low[i] = high[i] = NULL
        if arrays[i] is not None:
            bounds(arrays[i], &low[i], &high[i])
    for i in range(inputs, count):
        for j in range(i):
            if low[i] >= high[j] or low[j] >= high[i]:
                continue
            if j >= inputs or not same_place(arrays[i], arrays[j]):
                refuse_shared(arrays[i], names[i], arrays[j], names[j], j < inputs)
    return 0


cdef object kinds(tuple arrays):
    """What `checked` remembers a check by; None where one of them is no array, or masked."""
    cdef Py_ssize_t count = 0
    cdef int i
    cdef int64_t *p
    cdef cnp.ndarray a
    for array in arrays:
        if isinstance(array, cnp.ndarray) and not masked(array):
            count += cnp.PyArray_NDIM(array)
        elif array is not None:
            return None
    key = PyBytes_FromStringAndSize(NULL, (count + len(arrays)) * sizeof(int64_t))
    p = <int64_t *>PyBytes_AS_STRING(key)
    for array in arrays:
        p[0] = 0
        if array is not None:
            a = array
            p[0] = cnp.PyArray_TYPE(a) << 9 | cnp.PyArray_ISNOTSWAPPED(a) << 8 | cnp.PyArray_ISWRITEABLE(a) << 7 | (
                cnp.PyArray_NDIM(a) + 1)
            for i in range(cnp.PyArray_NDIM(a)):
                p += 1
                p[0] = cnp.PyArray_DIM(a, i)
        p += 1
    return key


def checked(tuple names not None, int outputs, tuple optional not None=(), tuple apart not None=()):
    """Decorate ``check(arrays, *attributes)``, which looks only at the dtypes and shapes of its arrays:
    it runs once for each kind of them, and what it returned is remembered. Each must be an array, or None
    where its name is among `optional`. The last ones are outputs: they must be writable and share no memory,
    but each may be an input itself, unless the places of both are a pair of `apart`."""
    cdef int inputs = len(names) - outputs

    def decorate(check):
        cdef dict remembered = {}

        @wraps(check)
        def remembering(tuple arrays not None, *attributes):
            kind = kinds(arrays)
            key = kind, attributes, tuple([type(attribute) for attribute in attributes])
            result = remembered
            if kind is not None:
                try:
                    result = remembered.get(key, remembered)
                except (TypeError, ValueError):  # what cannot be hashed: check says what is wrong, if anything is
                    kind = None
            if result is remembered:
                for i, array in enumerate(arrays):
                    if not isinstance(array, np.ndarray) and not (array is None and names[i] in optional):
                        hint = f" (pass {names[i]}.numpy())" if hasattr(array, "numpy") else ""
                        raise TypeError(f"{names[i]} must be a NumPy array, got {type(array).__name__}{hint}")
                    if masked(array):
                        refuse_masked(names[i])
                    if i >= inputs and array is not None and not array.flags.writeable:
                        raise ValueError(f"{names[i]} must be writable, got a read-only array")
                result = check(arrays, *attributes)
                if len(remembered) >= 1024:
                    remembered.clear()
                if kind is not None:
                    remembered[key] = result
            for i in range(inputs, len(arrays)):
                if arrays[i] is not None:
                    check_apart_itself(arrays[i], names[i])
            check_outputs(arrays, names, inputs)
            for i, j in apart:
                check_outputs((arrays[i], arrays[j]), (names[i], names[j]), 0)
            return result

        return remembering

    return decorate


def remembered(make):
    """Decorate ``make(...)``, which makes an operator of its parameters: equal ones of equal types share one.
    What cannot be hashed is left to `make`, which says what is wrong with it, if anything is."""
    cached = lru_cache(maxsize=256, typed=True)(make)

    @wraps(make)
    def remembering(*arguments, **named):
        try:
            hash((arguments, *named.values()))
        except (TypeError, ValueError):
            return make(*arguments, **named)
        return cached(*arguments, **named)

    return remembering


def keyword_arguments(tuple keywords not None, tuple arrays not None, int plain_ndim, int block):
    """Arrays by keyword; those of plain_ndim dimensions, (N, C, ...), as (N, C / block, ..., block)."""
    cdef dict arguments = {}
    cdef int i
    for i in range(len(keywords)):
        array = arrays[i]
        arguments[keywords[i]] = blocked(array, block) if cnp.PyArray_NDIM(array) == plain_ndim else array
    return arguments


cdef object blocked(cnp.ndarray array, int block):
    """A view without a copy."""
    cdef cnp.npy_intp shape[9]
    cdef cnp.npy_intp strides[9]
    cdef int ndim = cnp.PyArray_NDIM(array), i
    for i in range(ndim):
        shape[i] = cnp.PyArray_DIM(array, i)
        strides[i] = cnp.PyArray_STRIDE(array, i)
    shape[ndim] = block
    strides[ndim] = strides[1]
    shape[1] //= block
    strides[1] *= block
    return cynorm_view(array, ndim + 1, shape, strides)


cdef int check_layout(const cynorm_tensor *t, str name, str layout, int ndim, int channel_axis, int block,
                      int64_t channels) except -1:
    """Refuse a tensor of other dimensions than the layout's; channels 0: as many as it holds."""
    cdef int64_t held
    if t.ndim != ndim:
        from cynorm.layout import LAYOUTS
        one_image = t.ndim == ndim - 1 and (not block or t.ndim > 0 and t.shape[t.ndim - 1] == block)
        batch = "(1, *shape)" if name == "shape" else f"{name}[None]"
        others = ", ".join([other for other in LAYOUTS if LAYOUTS[other].ndim == t.ndim])
        raise ValueError(f"{name} must have {ndim} dimensions for layout {layout!r}, got {t.ndim}"
                         + (f"; layouts of {t.ndim} are {others}" if others else "")
                         + (f"; of one image without a batch pass {batch}" if one_image else ""))
    if block:
        if t.shape[t.ndim - 1] != block:
            raise ValueError(f"{name}'s last axis must be {block} channels for layout {layout!r}, "
                             f"got shape {shape_of(t)}")
        held = t.shape[1] * block
        if channels and not held - block < channels <= held:
            raise ValueError(f"{name} must hold channels={channels} in blocks of {block}, got shape {shape_of(t)}")
    elif channels and t.shape[channel_axis] != channels:
        raise ValueError(f"{name} must have channels={channels}, got shape {shape_of(t)}")
    return 0


cdef void zero_elements(const cynorm_tensor *t, int axis, char *p) noexcept nogil:
    """Zero the elements along this axis and the following ones, from p on."""
    cdef int64_t itemsize = cynorm_itemsize(t.dtype), i
    if axis == t.ndim:
        memset(p, 0, itemsize)
        return
    if axis == t.ndim - 1 and t.strides[axis] == itemsize:
        memset(p, 0, itemsize * t.shape[axis])
        return
    for i in range(t.shape[axis]):
        zero_elements(t, axis + 1, p + i * t.strides[axis])


cdef void zero_padding(const cynorm_tensor *dst, int64_t valid) noexcept nogil:
    """Write zeros to the channels past the last valid one of the last block."""
    cdef cynorm_tensor t = dst[0]
    cdef int last = t.ndim - 1
    if t.shape[1] == 0:
        return
    t.data += (t.shape[1] - 1) * t.strides[1] + valid * t.strides[last]
    t.shape[1] = 1
    t.shape[last] -= valid
    zero_elements(&t, 0, t.data)


cdef int64_t total_bytes(const cynorm_tensor *t) noexcept nogil:
    return elements_of(t) * cynorm_itemsize(t.dtype)


cdef bint whole_elements(const cynorm_tensor *t) noexcept nogil:
    """Whether every element lies at a multiple of its size, as stores past the cache ask for."""
    cdef int64_t bits = <int64_t>(<size_t>t.data)
    cdef int i
    for i in range(t.ndim):
        if t.shape[i] > 1:
            bits |= t.strides[i]
    return bits % cynorm_itemsize(t.dtype) == 0


cdef void *aligned(void *p) noexcept nogil:
    return <void *>((<size_t>p + 63) & ~<size_t>63)
