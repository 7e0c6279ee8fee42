from cynorm._types cimport cynorm_bn, cynorm_bn_call, cynorm_lrn, cynorm_tensor
from libc.stdint cimport int64_t

cdef int lrn_forward(const cynorm_lrn *p, const cynorm_tensor *src, const cynorm_tensor *dst,
                     const cynorm_tensor *omega, int num_threads) noexcept nogil
cdef int lrn_backward(const cynorm_lrn *p, const cynorm_tensor *diff_dst, const cynorm_tensor *src,
                      const cynorm_tensor *dst, const cynorm_tensor *diff_src, const cynorm_tensor *omega,
                      int num_threads) noexcept nogil
cdef int batch_norm(const cynorm_bn *p, const cynorm_bn_call *call, int num_threads) noexcept nogil
cdef int64_t batch_norm_mask(const cynorm_bn *p, const cynorm_bn_call *call, int64_t *strides) noexcept nogil
