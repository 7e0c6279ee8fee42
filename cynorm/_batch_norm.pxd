from cynorm._kernels cimport cynorm_tensor
from libc.stdint cimport int64_t

cdef enum bn_pass:
    FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD_TRAINING, BACKWARD_INFERENCE

# Tensors with one element per statistic: of the data's dimensions, and of stride 0 where they do not vary.
cdef enum:
    SCALE, SHIFT, MEAN, MEAN_LOW, VARIANCE, RSTD, RUNNING_MEAN, RUNNING_VARIANCE, KEPT_MEAN, KEPT_SHIFT
    DIFF_SCALE, DIFF_SHIFT, PARAMETERS

ctypedef struct bn_problem:
    double epsilon
    int activation                # a cynorm_activation
    double parameter[2]           # of the activation
    double momentum
    bint unbiased_running

# One call; NULL where a tensor is absent. Forward training writes MEAN, VARIANCE and the running statistics, and
# KEPT_MEAN, MEAN_LOW, RSTD and KEPT_SHIFT for backward, which takes MEAN and VARIANCE, or MEAN, MEAN_LOW and RSTD.
ctypedef struct bn_call:
    bn_pass kind
    unsigned reduced              # bit a: whether the statistics are over axis a of the data
    const cynorm_tensor *data[7]  # by CYNORM_BN_SRC...; the mask's has strides in bits
    const cynorm_tensor *parameter[12]

# Bytes of the mask that a forward call may keep, and its strides in bits along the axes of the data.
cdef int64_t bn_mask(const bn_problem *p, const bn_call *call, int64_t *strides) noexcept nogil
cdef int bn_run(const bn_problem *p, const bn_call *call, int num_threads) noexcept nogil
