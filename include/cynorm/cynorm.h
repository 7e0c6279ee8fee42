/* cynorm: local response normalization (LRN) and batch normalization (BN) on the CPU, for C and Cython.
 *
 *   C        const cynorm_api *cynorm = cynorm_import();               (once, with the GIL; NULL: a Python error is set)
 *            int status = cynorm->lrn_forward(&lrn, &src, &dst, NULL, 0);
 *   Cython   cimport cynorm
 *            with nogil: status = cynorm.lrn_forward(&lrn, &src, &dst, NULL, 0)
 *
 * The include path is cynorm.get_include(); Python.h comes before this header where cynorm_import is called. There is nothing to
 * link with: the functions are those of a Python process that has cynorm installed. examples/cython_extension is a whole package.
 *
 * Tensors     The caller's memory, described by a cynorm_tensor: nothing is kept or freed. Any strides, in bytes and of
 *             any sign. Elements are aligned to their size; more alignment is not needed. Extents may be 0.
 * Overlap     An output is one of the inputs exactly, or shares no byte with any; BN's DIFF_ADD may be DIFF_DST, but no other
 *             input. Outputs share no byte with each other, nor do the elements of an output.
 * Threads     Every function may be called from any number of threads at once, without the GIL, as long as no call writes what
 *             another reads or writes. num_threads is how many threads this call may use itself; 0: the default of
 *             cynorm.set_num_threads. Results are the same bits for any number of threads.
 * Errors      A cynorm_status. Nothing is written unless it is CYNORM_OK, or CYNORM_NO_MEMORY, which leaves outputs undefined.
 *             What a status says is checked. That strides stay within memory, and the rules above, cannot be checked.
 */

#ifndef CYNORM_H
#define CYNORM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum {
    CYNORM_OK = 0,
    CYNORM_NO_MEMORY = -1,     /* for scratch */
    CYNORM_BAD_TENSOR = -2,    /* a required tensor is NULL, or its data, dimensions, extents or data type are not allowed */
    CYNORM_MISMATCH = -3,      /* tensors differ in what they must share: shape, data type, or the dimensions of a layout */
    CYNORM_BAD_PARAMETER = -4  /* of the operator */
} cynorm_status;

/* Storage types. Arithmetic is double for CYNORM_F64 and float for all others; int8 only for BN's forward inference. */
typedef enum { CYNORM_F32, CYNORM_F64, CYNORM_F16, CYNORM_BF16, CYNORM_S8, CYNORM_DTYPES } cynorm_dtype;

static inline int64_t cynorm_itemsize(int dtype) {
    static const int8_t sizes[CYNORM_DTYPES] = {4, 8, 2, 2, 1};
    return sizes[dtype];
}

enum { CYNORM_MAX_NDIM = 8 };

/* An array in memory: strides in bytes, of any sign; 1 to 8 dimensions. */
typedef struct {
    char *data;
    int dtype; /* a cynorm_dtype */
    int ndim;
    int64_t shape[CYNORM_MAX_NDIM], strides[CYNORM_MAX_NDIM];
} cynorm_tensor;

/* A tensor in C order. */
static inline cynorm_tensor cynorm_dense(void *data, int dtype, int ndim, const int64_t *shape) {
    cynorm_tensor t;
    int64_t stride = cynorm_itemsize(dtype);
    memset(&t, 0, sizeof t);
    t.data = (char *)data;
    t.dtype = dtype;
    t.ndim = ndim;
    for (int i = ndim - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.strides[i] = stride;
        stride *= shape[i];
    }
    return t;
}

/* What the axes of a tensor mean; axis 0 is the batch, and the order in memory is whatever the strides say. */
typedef enum {
    CYNORM_CHANNELS_FIRST = 0, /* N, C, spatial... */
    CYNORM_CHANNELS_LAST = 1,  /* N, spatial..., C */
    CYNORM_BLOCKED_8 = 8,      /* N, ceil(C / 8), spatial..., 8 */
    CYNORM_BLOCKED_16 = 16     /* N, ceil(C / 16), spatial..., 16 */
} cynorm_layout;

/* ---- LRN: dst = src * omega^-beta, omega = k + alpha / divisor * sum of src^2 over the window ---- */

typedef struct {
    double k, alpha, beta; /* alpha divided by the divisor */
    int64_t left, right;   /* cells of the window before and after its element, along each of its axes */
    int within_channel;    /* the window: 0 along the channels, 1 a box over the spatial axes */
    int spatial;           /* number of spatial axes, 0 to 3 */
    int channel_axis, spatial_axis; /* spatial axes follow one another from spatial_axis */
    int block;             /* channels per block, the last axis; 0 where channels are not blocked */
    int64_t channels;      /* 0: as many as the tensor holds; else the last block's past them are read and written as zero */
} cynorm_lrn;

/* Where a window of even size lies: n/2-1 cells on both sides, n/2-1 before and n/2 after, or n/2 before and n/2-1 after.
 * In this order, that of cynorm.LRN's names. */
typedef enum { CYNORM_WINDOW_ONEDNN, CYNORM_WINDOW_ONNX, CYNORM_WINDOW_TORCH } cynorm_window;

static inline void cynorm_lrn_set_window(cynorm_lrn *p, int64_t local_size, cynorm_window window) {
    p->left = window == CYNORM_WINDOW_TORCH ? local_size / 2 : (local_size - 1) / 2;
    p->right = window == CYNORM_WINDOW_ONNX ? local_size / 2 : (local_size - 1) / 2;
}

/* An LRN of tensors of ndim dimensions, with a window as oneDNN's and alpha divided by its cells. */
static inline cynorm_lrn cynorm_lrn_make(int within_channel, int64_t local_size, double alpha, double beta, double k,
                                         cynorm_layout layout, int ndim) {
    cynorm_lrn p;
    int blocked = layout == CYNORM_BLOCKED_8 || layout == CYNORM_BLOCKED_16;
    memset(&p, 0, sizeof p);
    p.k = k;
    p.beta = beta;
    p.within_channel = within_channel;
    p.spatial = ndim - 2 - blocked;
    p.channel_axis = layout == CYNORM_CHANNELS_LAST ? ndim - 1 : 1;
    p.spatial_axis = layout == CYNORM_CHANNELS_LAST ? 1 : 2;
    p.block = blocked ? (int)layout : 0;
    p.alpha = alpha;
    for (int i = 0; i < (within_channel ? p.spatial : 1); i++) p.alpha /= (double)local_size;
    cynorm_lrn_set_window(&p, local_size, CYNORM_WINDOW_ONEDNN);
    return p;
}

/* ---- BN: dst = activation(scale * (src - mean) / sqrt(variance + epsilon) + shift + add) ---- */

typedef enum {
    CYNORM_IDENTITY, CYNORM_RELU, CYNORM_ELU, CYNORM_CELU, CYNORM_SCALED_ELU, CYNORM_HARD_SIGMOID, CYNORM_LEAKY_RELU,
    CYNORM_LINEAR, CYNORM_PARAMETRIC_SOFTPLUS, CYNORM_SCALED_TANH, CYNORM_SIGMOID, CYNORM_SOFTPLUS, CYNORM_SOFTSIGN,
    CYNORM_TANH, CYNORM_THRESHOLDED_RELU, CYNORM_SHRINK
} cynorm_activation;
enum { CYNORM_ACTIVATIONS = CYNORM_SHRINK + 1 }; /* how many; no enumerator, of which switches would want a case */

typedef struct {
    double epsilon;
    int activation;       /* a cynorm_activation */
    double parameter[2];  /* of the activation, in the order of cynorm.Activation's documentation; finite, 0 where it has fewer */
    double momentum;      /* running = (1 - momentum) * running + momentum * new, from 0 to 1, where these are given */
    int unbiased_running; /* whether the running variance takes the variance divided by M - 1 in place of M */
} cynorm_bn;

typedef enum {
    CYNORM_BN_FORWARD_TRAINING, CYNORM_BN_FORWARD_INFERENCE, CYNORM_BN_BACKWARD_TRAINING, CYNORM_BN_BACKWARD_INFERENCE
} cynorm_bn_pass;

/* Tensors of the data's shape. DST is diff_src in backward. Forward writes, where given, for backward: MASK, of ReLU, one bit per
 * element; VALUE, of any other activation but the identity: what it is applied to, in reals. */
enum {
    CYNORM_BN_SRC, CYNORM_BN_ADD, CYNORM_BN_DIFF_DST, CYNORM_BN_DST, CYNORM_BN_DIFF_ADD, CYNORM_BN_VALUE, CYNORM_BN_MASK,
    CYNORM_BN_VIEWS
};

/* Tensors with one element per statistic: of the data's dimensions, and of stride 0 where they do not vary. Of reals
 * (double for double data, float else) or of the data's own type. MEAN_LOW is what MEAN lacks of the exact mean, RSTD
 * 1/sqrt(variance + epsilon), KEPT_MEAN and KEPT_SHIFT (to be given only where SHIFT is) copies: forward training writes them,
 * where given, for backward. Channels of the last block past those in use are channels like others. */
enum {
    CYNORM_BN_SCALE, CYNORM_BN_SHIFT, CYNORM_BN_MEAN, CYNORM_BN_MEAN_LOW, CYNORM_BN_VARIANCE, CYNORM_BN_RSTD,
    CYNORM_BN_RUNNING_MEAN, CYNORM_BN_RUNNING_VARIANCE, CYNORM_BN_KEPT_MEAN, CYNORM_BN_KEPT_SHIFT,
    CYNORM_BN_DIFF_SCALE, CYNORM_BN_DIFF_SHIFT, CYNORM_BN_PARAMETERS
};

/* One call; NULL where a tensor is absent. Tensors that a pass or an activation does not use are not looked at.
 *
 *                        must be given                              written besides DST, where given
 *   forward training     SRC DST                                    MEAN VARIANCE RUNNING_*, MEAN_LOW RSTD KEPT_*, MASK VALUE
 *   forward inference    SRC DST MEAN VARIANCE                      MASK VALUE
 *   backward (either)    SRC DST DIFF_DST, MEAN and VARIANCE        DIFF_SCALE DIFF_SHIFT DIFF_ADD
 *                        or, more exactly, MEAN, MEAN_LOW
 *                        and RSTD alone; ReLU: MASK;
 *                        all but this and the identity:
 *                        VALUE, or SHIFT as forward had
 *                        it, if without ADD
 * SCALE and SHIFT are 1 and 0 where they are absent; backward takes SCALE as forward had it.
 */
typedef struct {
    cynorm_bn_pass kind;
    unsigned reduced; /* bit a: the statistics are over axis a; in forward inference: no parameter varies along it */
    const cynorm_tensor *data[CYNORM_BN_VIEWS];
    const cynorm_tensor *parameter[CYNORM_BN_PARAMETERS];
} cynorm_bn_call;

/* A batch normalization with PyTorch's momentum, and the parameters that cynorm.Activation has by default. */
static inline cynorm_bn cynorm_bn_make(double epsilon, cynorm_activation activation) {
    static const double defaults[CYNORM_ACTIVATIONS][2] = {
        {0, 0}, {0, 0}, {1, 0}, {1, 0}, {1.67326319217681884765625, 1.05070102214813232421875}, {0.2, 0.5}, {0.01, 0},
        {1, 0}, {1, 1}, {1, 1}, {0, 0}, {1, 0}, {0, 0}, {0, 0}, {1, 0}, {0, 0.5}};
    cynorm_bn p;
    memset(&p, 0, sizeof p);
    p.epsilon = epsilon;
    p.activation = activation;
    if ((unsigned)activation < CYNORM_ACTIVATIONS) memcpy(p.parameter, defaults[activation], sizeof p.parameter);
    p.momentum = 0.1;
    p.unbiased_running = 1;
    return p;
}

/* A call without any tensor yet. */
static inline cynorm_bn_call cynorm_bn_call_make(cynorm_bn_pass kind, unsigned reduced) {
    cynorm_bn_call call;
    memset(&call, 0, sizeof call);
    call.kind = kind;
    call.reduced = reduced;
    return call;
}

/* The reduced axes of a layout, as bits: all but the channels. */
static inline unsigned cynorm_bn_reduced(cynorm_layout layout, int ndim) {
    unsigned all = (1u << ndim) - 1;
    if (layout == CYNORM_CHANNELS_FIRST) return all & ~2u;
    if (layout == CYNORM_CHANNELS_LAST) return all >> 1;
    return all >> 1 & ~2u;
}

/* A vector of channels, contiguous, as a tensor with one element per statistic: with blocks, of as many as these hold. */
static inline cynorm_tensor cynorm_bn_vector(void *data, int dtype, const cynorm_tensor *src, cynorm_layout layout) {
    cynorm_tensor t = *src;
    int64_t size = cynorm_itemsize(dtype);
    t.data = (char *)data;
    t.dtype = dtype;
    memset(t.strides, 0, sizeof t.strides);
    t.strides[layout == CYNORM_CHANNELS_FIRST ? 1 : src->ndim - 1] = size;
    if (layout == CYNORM_BLOCKED_8 || layout == CYNORM_BLOCKED_16) t.strides[1] = size * (int64_t)layout;
    return t;
}

/* ---- the functions, as the capsule cynorm._C_API holds them ---- */

enum { CYNORM_API_VERSION = 1 };

typedef struct {
    int version; /* members are only ever added, at the end; the version counts the times */
    /* omega, of src's shape and of reals, is optional: forward writes it, except for a last block's padding, and backward need not
     * recompute it where it is given. */
    int (*lrn_forward)(const cynorm_lrn *, const cynorm_tensor *src, const cynorm_tensor *dst, const cynorm_tensor *omega,
                       int num_threads);
    /* dst is optional: given, it stands for src * omega^-beta, as in TensorFlow. */
    int (*lrn_backward)(const cynorm_lrn *, const cynorm_tensor *diff_dst, const cynorm_tensor *src,
                        const cynorm_tensor *dst, const cynorm_tensor *diff_src, const cynorm_tensor *omega,
                        int num_threads);
    int (*batch_norm)(const cynorm_bn *, const cynorm_bn_call *, int num_threads);
    /* Bytes of the MASK of a forward call that is complete but for it, or a negative cynorm_status; fills in the strides of its
     * tensor, as many as SRC has dimensions: their unit, unlike any other's, is the bit. Its other members, except data, are those
     * of SRC. */
    int64_t (*batch_norm_mask)(const cynorm_bn *, const cynorm_bn_call *, int64_t *strides);
} cynorm_api;

#ifdef Py_PYTHON_H
static inline const cynorm_api *cynorm_import(void) {
    const cynorm_api *api = (const cynorm_api *)PyCapsule_Import("cynorm._C_API", 0);
    if (api && api->version < CYNORM_API_VERSION) {
        PyErr_Format(PyExc_ImportError, "cynorm's C API is version %d, but version %d is needed", api->version,
                     CYNORM_API_VERSION);
        return NULL;
    }
    return api;
}
#endif

#endif
