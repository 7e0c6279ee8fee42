from cynorm._kernels cimport cynorm_kernels
from libc.stdint cimport int64_t

cdef const cynorm_kernels *kernels() noexcept nogil
cdef bint fetches_far_lines() noexcept nogil
cdef int team_size(int requested, int64_t nbytes) noexcept nogil
cdef int requested_threads(object num_threads) except -1
