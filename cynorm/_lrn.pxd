from cynorm._types cimport cynorm_lrn, cynorm_tensor

# -1 where memory cannot be had; nothing is checked here. *order, or NULL: forward tells backward how it summed omega.
cdef int lrn_forward(const cynorm_lrn *p, const cynorm_tensor *src, const cynorm_tensor *dst,
                     const cynorm_tensor *omega, int *order, int num_threads) noexcept nogil
cdef int lrn_backward(const cynorm_lrn *p, const cynorm_tensor *diff_dst, const cynorm_tensor *src,
                      const cynorm_tensor *y, const cynorm_tensor *diff_src, const cynorm_tensor *omega,
                      int *order, int num_threads) noexcept nogil
