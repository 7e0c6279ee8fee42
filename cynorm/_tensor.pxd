# cython: language_level=3, cdivision=True
from cynorm._types cimport CYNORM_F64, cynorm_tensor
from libc.stdint cimport int64_t
from libc.string cimport memset

cdef object describe(object obj, str name, cynorm_tensor *t, bint integers=*)
cdef object describe_parameter(object obj, str name, cynorm_tensor *t, const cynorm_tensor *src)
cdef object describe_output(object out, str name, cynorm_tensor *t, bint integers=*)
cdef object empty_like(object array, cynorm_tensor *t)
cdef object new_array(tuple shape, object dtype)
cdef bint same_shape(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil
cdef bint same_kind(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil
cdef int check_same(const cynorm_tensor *t, str name, const cynorm_tensor *other, str other_name) except -1
cdef int check_outputs(tuple arrays, tuple names, int inputs) except -1
cdef bint same_memory(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil
cdef tuple shape_of(const cynorm_tensor *t)
cdef object real_dtype(int code)
cdef object dtype_name(int code)
cdef object short_name(int code)
cdef int check_layout(const cynorm_tensor *t, str name, str layout, int ndim, int channel_axis, int block,
                      int64_t channels) except -1
cdef void zero_padding(const cynorm_tensor *dst, int64_t valid) noexcept nogil
cdef int describe_shape(object shape, object dtype, cynorm_tensor *t, bint integers=*) except -1
cdef int64_t elements_of(const cynorm_tensor *t) noexcept nogil
cdef int64_t total_bytes(const cynorm_tensor *t) noexcept nogil
cdef bint whole_elements(const cynorm_tensor *t) noexcept nogil
cdef void *aligned(void *p) noexcept nogil


cdef inline int64_t ceil_div(int64_t a, int64_t b) noexcept nogil:
    return (a + b - 1) // b


cdef inline int64_t round_up(int64_t a, int64_t b) noexcept nogil:
    return ceil_div(a, b) * b


cdef inline int64_t real_size(int dtype) noexcept nogil:
    """Bytes of what a data type is computed in."""
    return 8 if dtype == CYNORM_F64 else 4


cdef inline void clear_bytes(char *p, int64_t n) noexcept nogil:
    """Few are stores of a known size that may overlap: a call of memset, which a loop would become, takes longer."""
    if n > 128:
        memset(p, 0, n)
    elif n >= 64:
        memset(p, 0, 64)
        memset(p + n - 64, 0, 64)
    elif n >= 32:
        memset(p, 0, 32)
        memset(p + n - 32, 0, 32)
    elif n >= 16:
        memset(p, 0, 16)
        memset(p + n - 16, 0, 16)
    elif n >= 8:
        memset(p, 0, 8)
        memset(p + n - 8, 0, 8)
    elif n >= 4:
        memset(p, 0, 4)
        memset(p + n - 4, 0, 4)
    elif n >= 2:
        memset(p, 0, 2)
        memset(p + n - 2, 0, 2)
    elif n > 0:
        p[0] = 0
