from cynorm._kernels cimport cynorm_tensor
from libc.stdint cimport int64_t

ctypedef struct lrn_problem:
    double k, alpha, beta        # alpha divided by the window's cells
    int64_t left, right          # the window along each of its axes
    bint within_channel
    int spatial                  # number of spatial axes, 0 to 3
    int channel_axis             # of an array; the spatial axes follow one another from spatial_axis
    int spatial_axis
    int block                    # channels per block, the array's last axis; 0 where channels are not blocked
    int64_t channels             # 0: as many as the array holds

cdef int lrn_forward(const lrn_problem *p, const cynorm_tensor *src, const cynorm_tensor *dst,
                     const cynorm_tensor *omega, int num_threads) noexcept nogil
cdef int lrn_backward(const lrn_problem *p, const cynorm_tensor *diff_dst, const cynorm_tensor *src,
                      const cynorm_tensor *y, const cynorm_tensor *diff_src, const cynorm_tensor *omega,
                      int num_threads) noexcept nogil
