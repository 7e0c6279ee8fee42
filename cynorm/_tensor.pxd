from cynorm._kernels cimport cynorm_tensor
from libc.stdint cimport int64_t

cdef object describe(object obj, str name, cynorm_tensor *t, bint integers=*)
cdef object describe_parameter(object obj, str name, cynorm_tensor *t, const cynorm_tensor *src)
cdef object describe_output(object out, str name, cynorm_tensor *t, bint integers=*)
cdef object empty_like(object array, cynorm_tensor *t)
cdef object new_array(tuple shape, object dtype)
cdef bint same_shape(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil
cdef bint same_kind(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil
cdef int check_same(const cynorm_tensor *t, str name, const cynorm_tensor *other, str other_name) except -1
cdef int check_overlap(object out, object array, str name, bint same_allowed, str out_name=*) except -1
cdef int check_outputs(tuple arrays, tuple names, int inputs) except -1
cdef bint same_memory(const cynorm_tensor *a, const cynorm_tensor *b) noexcept nogil
cdef tuple shape_of(const cynorm_tensor *t)
cdef object real_dtype(int code)
cdef int check_layout(const cynorm_tensor *t, str name, str layout, int ndim, int channel_axis, int block,
                      int64_t channels) except -1
cdef void zero_padding(const cynorm_tensor *dst, int64_t valid) noexcept nogil
cdef int describe_shape(object shape, object dtype, cynorm_tensor *t) except -1
cdef int64_t elements_of(const cynorm_tensor *t) noexcept nogil
cdef int64_t total_bytes(const cynorm_tensor *t) noexcept nogil
cdef void *aligned(void *p) noexcept nogil
