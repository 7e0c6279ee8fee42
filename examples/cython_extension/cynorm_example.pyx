# cython: language_level=3
"""One layer of a network without a Python object in it: batch normalization with ReLU, then LRN across channels."""

cimport cynorm
from libc.stdint cimport int64_t


cdef int layer(float *memory, const int64_t *shape, float *scale, float *shift, float *mean, float *variance,
               int num_threads) noexcept nogil:
    """Normalize N x C x H x W floats in place; mean and variance receive the statistics, C each. A cynorm_status."""
    cdef cynorm.cynorm_tensor x = cynorm.cynorm_dense(memory, cynorm.CYNORM_F32, 4, shape)
    cdef cynorm.cynorm_tensor vectors[4]
    cdef cynorm.cynorm_bn bn
    cdef cynorm.cynorm_bn_call call
    cdef cynorm.cynorm_lrn lrn
    cdef int status
    vectors[0] = cynorm.cynorm_bn_vector(scale, cynorm.CYNORM_F32, &x, cynorm.CYNORM_CHANNELS_FIRST)
    vectors[1] = cynorm.cynorm_bn_vector(shift, cynorm.CYNORM_F32, &x, cynorm.CYNORM_CHANNELS_FIRST)
    vectors[2] = cynorm.cynorm_bn_vector(mean, cynorm.CYNORM_F32, &x, cynorm.CYNORM_CHANNELS_FIRST)
    vectors[3] = cynorm.cynorm_bn_vector(variance, cynorm.CYNORM_F32, &x, cynorm.CYNORM_CHANNELS_FIRST)
    bn = cynorm.cynorm_bn_make(1e-5, cynorm.CYNORM_RELU)
    call = cynorm.cynorm_bn_call_make(cynorm.CYNORM_BN_FORWARD_TRAINING,
                                      cynorm.cynorm_bn_reduced(cynorm.CYNORM_CHANNELS_FIRST, 4))
    call.data[cynorm.CYNORM_BN_SRC] = &x
    call.data[cynorm.CYNORM_BN_DST] = &x
    call.parameter[cynorm.CYNORM_BN_SCALE] = &vectors[0]
    call.parameter[cynorm.CYNORM_BN_SHIFT] = &vectors[1]
    call.parameter[cynorm.CYNORM_BN_MEAN] = &vectors[2]
    call.parameter[cynorm.CYNORM_BN_VARIANCE] = &vectors[3]
    status = cynorm.batch_norm(&bn, &call, num_threads)
    if status != cynorm.CYNORM_OK:
        return status
    lrn = cynorm.cynorm_lrn_make(False, 5, 1e-4, 0.75, 1.0, cynorm.CYNORM_CHANNELS_FIRST, 4)
    return cynorm.lrn_forward(&lrn, &x, &x, NULL, num_threads)


def normalize(float[:, :, :, ::1] x, float[::1] scale, float[::1] shift, float[::1] mean, float[::1] variance,
              int num_threads=0):
    """Run the layer on x in place."""
    cdef int status
    cdef int64_t[4] shape = [x.shape[0], x.shape[1], x.shape[2], x.shape[3]]
    if not scale.shape[0] == shift.shape[0] == mean.shape[0] == variance.shape[0] == x.shape[1]:
        raise ValueError("scale, shift, mean and variance must have one element per channel")
    if x.size == 0:
        return
    with nogil:
        status = layer(&x[0, 0, 0, 0], shape, &scale[0], &shift[0], &mean[0], &variance[0], num_threads)
    if status != cynorm.CYNORM_OK:
        raise RuntimeError(f"cynorm failed with status {status}")
