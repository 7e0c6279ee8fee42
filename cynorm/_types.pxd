"""include/cynorm/cynorm.h, for Cython."""

from libc.stdint cimport int64_t


cdef extern from "cynorm/cynorm.h" nogil:
    ctypedef enum cynorm_dtype:
        CYNORM_F32, CYNORM_F64, CYNORM_F16, CYNORM_BF16, CYNORM_S8, CYNORM_DTYPES

    int64_t cynorm_itemsize(int dtype)

    ctypedef struct cynorm_tensor:
        char *data
        int dtype
        int ndim
        int64_t shape[8]
        int64_t strides[8]

    cynorm_tensor cynorm_dense(void *data, int dtype, int ndim, const int64_t *shape)

    ctypedef enum cynorm_status:
        CYNORM_OK, CYNORM_NO_MEMORY, CYNORM_BAD_TENSOR, CYNORM_MISMATCH, CYNORM_BAD_PARAMETER

    ctypedef enum cynorm_layout:
        CYNORM_CHANNELS_FIRST, CYNORM_CHANNELS_LAST, CYNORM_BLOCKED_8, CYNORM_BLOCKED_16

    ctypedef enum cynorm_window:
        CYNORM_WINDOW_ONEDNN, CYNORM_WINDOW_ONNX, CYNORM_WINDOW_TORCH

    ctypedef struct cynorm_lrn:
        double k, alpha, beta
        int64_t left, right
        int within_channel, spatial, channel_axis, spatial_axis, block
        int64_t channels

    void cynorm_lrn_set_window(cynorm_lrn *p, int64_t local_size, cynorm_window window)
    cynorm_lrn cynorm_lrn_make(int within_channel, int64_t local_size, double alpha, double beta, double k,
                               cynorm_layout layout, int ndim)

    ctypedef enum cynorm_activation:
        CYNORM_IDENTITY, CYNORM_RELU, CYNORM_ELU, CYNORM_CELU, CYNORM_SCALED_ELU, CYNORM_HARD_SIGMOID
        CYNORM_LEAKY_RELU, CYNORM_LINEAR, CYNORM_PARAMETRIC_SOFTPLUS, CYNORM_SCALED_TANH, CYNORM_SIGMOID
        CYNORM_SOFTPLUS, CYNORM_SOFTSIGN, CYNORM_TANH, CYNORM_THRESHOLDED_RELU, CYNORM_SHRINK

    enum:
        CYNORM_ACTIVATIONS

    ctypedef enum cynorm_bn_pass:
        CYNORM_BN_FORWARD_TRAINING, CYNORM_BN_FORWARD_INFERENCE, CYNORM_BN_BACKWARD_TRAINING
        CYNORM_BN_BACKWARD_INFERENCE

    enum:
        CYNORM_BN_SRC, CYNORM_BN_ADD, CYNORM_BN_DIFF_DST, CYNORM_BN_DST, CYNORM_BN_DIFF_ADD, CYNORM_BN_VALUE
        CYNORM_BN_MASK, CYNORM_BN_VIEWS

    enum:
        CYNORM_BN_SCALE, CYNORM_BN_SHIFT, CYNORM_BN_MEAN, CYNORM_BN_MEAN_LOW, CYNORM_BN_VARIANCE, CYNORM_BN_RSTD
        CYNORM_BN_RUNNING_MEAN, CYNORM_BN_RUNNING_VARIANCE, CYNORM_BN_KEPT_MEAN, CYNORM_BN_KEPT_SHIFT
        CYNORM_BN_DIFF_SCALE, CYNORM_BN_DIFF_SHIFT, CYNORM_BN_PARAMETERS

    ctypedef struct cynorm_bn:
        double epsilon
        int activation
        double parameter[2]
        double momentum
        int unbiased_running

    ctypedef struct cynorm_bn_call:
        cynorm_bn_pass kind
        unsigned reduced
        const cynorm_tensor *data[7]
        const cynorm_tensor *parameter[12]

    cynorm_bn cynorm_bn_make(double epsilon, cynorm_activation activation)
    cynorm_bn_call cynorm_bn_call_make(cynorm_bn_pass kind, unsigned reduced)
    unsigned cynorm_bn_reduced(cynorm_layout layout, int ndim)
    cynorm_tensor cynorm_bn_vector(void *data, int dtype, const cynorm_tensor *src, cynorm_layout layout)

    ctypedef struct cynorm_api:
        int version
        int (*lrn_forward)(const cynorm_lrn *, const cynorm_tensor *, const cynorm_tensor *, const cynorm_tensor *,
                           int) noexcept nogil
        int (*lrn_backward)(const cynorm_lrn *, const cynorm_tensor *, const cynorm_tensor *, const cynorm_tensor *,
                            const cynorm_tensor *, const cynorm_tensor *, int) noexcept nogil
        int (*batch_norm)(const cynorm_bn *, const cynorm_bn_call *, int) noexcept nogil
        int64_t (*batch_norm_mask)(const cynorm_bn *, const cynorm_bn_call *, int64_t *) noexcept nogil

    enum:
        CYNORM_API_VERSION
