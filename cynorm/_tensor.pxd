# cython: language_level=3, cdivision=True
from cynorm._types cimport CYNORM_F32, CYNORM_F64, cynorm_tensor
from libc.stdint cimport int64_t

cdef enum:
    ELEMENT_BITS = 56               # no machine has addresses for more elements

cdef object describe(object obj, str name, cynorm_tensor *t, bint integers=*)
cdef object describe_parameter(object obj, str name, cynorm_tensor *t, const cynorm_tensor *src)
cdef object output_array(object out, str name)
cdef object empty_like(object array, cynorm_tensor *t)
cdef object describe_like(object obj, str name, const cynorm_tensor *src, cynorm_tensor *t)
cdef object output_like(object out, str name, object array, const cynorm_tensor *src, cynorm_tensor *t)
cdef int check_memory(int status) except -1
cdef object new_array(tuple shape, object dtype)
cdef object new_array_like(object a)
cdef bint same_shape(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil
cdef bint same_kind(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil
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


cdef inline int real_of(int dtype) noexcept nogil:
    """What a data type is computed in,"""
    return CYNORM_F64 if dtype == CYNORM_F64 else CYNORM_F32


cdef inline int64_t real_size(int dtype) noexcept nogil:
    """and its bytes."""
    return 8 if dtype == CYNORM_F64 else 4


cdef extern from *:
    """
    /* Few are stores of a known size that may overlap: a call of memset, which a loop would become, takes longer. */
    static inline void cynorm_clear_bytes(char *p, int64_t n) {
    #define CYNORM_CLEAR(size) if (n >= size) { memset(p, 0, size); memset(p + n - size, 0, size); return; }
        if (n > 128) { memset(p, 0, (size_t)n); return; }
        CYNORM_CLEAR(64) CYNORM_CLEAR(32) CYNORM_CLEAR(16) CYNORM_CLEAR(8)
        CYNORM_CLEAR(4) CYNORM_CLEAR(2) CYNORM_CLEAR(1)
    #undef CYNORM_CLEAR
    }
    """
    void clear_bytes "cynorm_clear_bytes"(char *p, int64_t n) nogil
