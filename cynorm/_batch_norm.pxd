from cynorm._types cimport cynorm_bn, cynorm_bn_call
from libc.stdint cimport int64_t

# Bytes of the mask that a forward call may keep, and its strides in bits along the axes of the data.
cdef int64_t bn_mask(const cynorm_bn *p, const cynorm_bn_call *call, int64_t *strides) noexcept nogil
# `valid`: how many channels of the last block there are, if not all.
# Nothing is checked here. -1 where memory cannot be had.
cdef int bn_run(const cynorm_bn *p, const cynorm_bn_call *call, int64_t valid, int num_threads) noexcept nogil
