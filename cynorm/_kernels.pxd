"""include/cynorm/cynorm.h and tiles.h, for Cython."""

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


cdef extern from "cynorm/tiles.h" nogil:
    ctypedef struct cynorm_lrn_view:
        char *data
        int64_t streamed
        int64_t stride[3]
        int dtype

    enum:
        CYNORM_LRN_COLUMNS, CYNORM_LRN_CHANNELS, CYNORM_SUM_DIRECT, CYNORM_TRANSPOSED_MOST, CYNORM_TRANSPOSED_PIXELS

    ctypedef struct cynorm_lrn_window:
        int64_t step, left, right

    ctypedef struct cynorm_lrn_tile:
        double k, alpha, beta
        int64_t extent, begin, end, left, right
        int64_t count[3]
        int64_t pitch[3]
        int64_t origin, size, missing, behind
        int64_t grouped, last_group
        int64_t before, after
        int64_t reach_terms[3][2]
        int64_t reach_src[3][2]
        cynorm_lrn_window window[2]
        int windows
        int trees
        int cut
        int streaming
        cynorm_lrn_view src, diff_dst, y, dst, omega
        void *scratch

    enum:
        CYNORM_BN_KEPT_AHEAD, CYNORM_BN_SCRATCH, CYNORM_BN_PACKED

    ctypedef struct cynorm_bn_view:
        char *data
        int64_t stride[3]
        int64_t block
        int dtype, packed

    ctypedef struct cynorm_bn_tile:
        int kept_inner
        int64_t count[3]
        int64_t repeat, split, blocks, row
        int packs
        cynorm_bn_view view[7]
        int64_t bit
        const void *center
        const void *norm
        const void *gain
        const void *bias
        const void *slope
        const void *offset
        void *sums
        int64_t next[2]
        int64_t jump[2]
        int64_t last_images
        cynorm_activation activation
        double parameter[2]
        int streaming, training
        void *scratch

    ctypedef struct cynorm_bn_unit:
        int kept_inner
        int64_t n, spread, repeat, count
        double epsilon
        char *sums
        int64_t chunks, chunk_bytes, part_bytes
        const void *scale
        const void *shift
        void *mean
        void *mean_low
        void *variance
        void *rstd
        void *diff_scale
        void *diff_shift
        void *center
        void *norm
        void *gain
        void *bias
        void *slope
        void *offset

    ctypedef struct cynorm_real_kernels:
        size_t (*lrn_scratch)(const cynorm_lrn_tile *, int) noexcept nogil
        int (*lrn_taken_by)(const cynorm_lrn_tile *) noexcept nogil
        void (*lrn_forward)(const cynorm_lrn_tile *) noexcept nogil
        void (*lrn_backward)(const cynorm_lrn_tile *) noexcept nogil
        int64_t lrn_plane_reach
        int64_t (*bn_sums_bytes)(int, int64_t) noexcept nogil
        void (*bn_sums)(const cynorm_bn_tile *) noexcept nogil
        void (*bn_apply)(const cynorm_bn_tile *, const cynorm_bn_tile *) noexcept nogil
        void (*bn_statistics)(const cynorm_bn_unit *) noexcept nogil
        void (*bn_coefficients)(const cynorm_bn_unit *) noexcept nogil
        void (*bn_gradients)(const cynorm_bn_unit *, int) noexcept nogil
        void (*load_row)(void *, const char *, int, int64_t, int64_t) noexcept nogil
        void (*store_row)(char *, const void *, int, int64_t, int64_t) noexcept nogil

    ctypedef struct cynorm_kernels:
        const char *name
        const cynorm_real_kernels *real[2]
        double (*bandwidth)(char *, const char **, int, int64_t, int) noexcept nogil
        void (*fence)() noexcept nogil
