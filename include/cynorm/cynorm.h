/* cynorm: what the Cython layer and the kernels of each instruction set agree on. */

#ifndef CYNORM_H
#define CYNORM_H

#include <stddef.h>
#include <stdint.h>

/* Storage types. Arithmetic is double for CYNORM_F64 and float for all others. */
typedef enum { CYNORM_F32, CYNORM_F64, CYNORM_F16, CYNORM_BF16, CYNORM_S8, CYNORM_DTYPES } cynorm_dtype;

static inline int64_t cynorm_itemsize(int dtype) {
    static const int8_t sizes[CYNORM_DTYPES] = {4, 8, 2, 2, 1};
    return sizes[dtype];
}

/* An array in memory: strides in bytes, of any sign; 1 to 8 dimensions. */
typedef struct {
    char *data;
    int dtype;
    int ndim;
    int64_t shape[8], strides[8];
} cynorm_tensor;

/* ---- LRN: one tile; lrn.h says how it is computed ---- */

/* One tensor as a tile sees it: `data` is slab 0 of the streamed axis at the tile's output origin; strides in bytes.
 * data is NULL where the tensor is absent. */
typedef struct {
    char *data;
    int64_t streamed, stride[3];
    int dtype;
} cynorm_lrn_view;

/* A window inside a slab: left and right neighbours, `step` apart in the flat slab. */
typedef struct { int64_t step, left, right; } cynorm_lrn_window;

typedef struct {
    double k, alpha, beta; /* alpha divided by the window's cells already */
    /* the streamed axis: its extent, the outputs [begin, end) of this tile, its window */
    int64_t extent, begin, end, left, right;
    /* a slab: outputs per level (level 0 innermost), flat distance between entries of a level, flat position of the
     * first output, flat size; how many entries of level 0 are missing from the last of level 1 (blocked channels) */
    int64_t count[3], pitch[3], origin, size, missing;
    /* where the streamed axis is groups of a level's entries: that level, else -1, and its count in the last slab */
    int64_t grouped, last_group;
    /* how far the terms of backward, and the squares, reach beyond the outputs (before, after), cut at the tensor */
    int64_t reach_terms[3][2], reach_src[3][2];
    cynorm_lrn_window window[2];
    int windows;
    int cut;       /* whether a level with a window is cut, so that the reaches may be more than 0 */
    int streaming; /* whether dst bypasses the cache */
    cynorm_lrn_view src, diff_dst, y, dst, omega;
    void *scratch; /* lrn_scratch() bytes, aligned to 64 */
} cynorm_lrn_tile;

/* ---- BN: one tile, and the statistics of one unit; batch_norm.h says how they are computed ---- */

typedef enum {
    CYNORM_IDENTITY, CYNORM_RELU, CYNORM_ELU, CYNORM_CELU, CYNORM_SCALED_ELU, CYNORM_HARD_SIGMOID, CYNORM_LEAKY_RELU,
    CYNORM_LINEAR, CYNORM_PARAMETRIC_SOFTPLUS, CYNORM_SCALED_TANH, CYNORM_SIGMOID, CYNORM_SOFTPLUS, CYNORM_SOFTSIGN,
    CYNORM_TANH, CYNORM_THRESHOLDED_RELU, CYNORM_SHRINK
} cynorm_activation;

/* VALUE is what the activation is applied to, kept from forward; the last is the mask, one bit per element. */
enum {
    CYNORM_BN_SRC, CYNORM_BN_ADD, CYNORM_BN_DIFF_DST, CYNORM_BN_DST, CYNORM_BN_DIFF_ADD, CYNORM_BN_VALUE, CYNORM_BN_MASK,
    CYNORM_BN_VIEWS
};

/* Strides of an element, a row and a group; in bytes, the mask's in bits. data is NULL where the tensor is absent. */
typedef struct {
    char *data;
    int64_t stride[3];
    int dtype;
} cynorm_bn_view;

typedef struct {
    int kept_inner;    /* whether each element of a row has its own statistics, or each row of a group */
    int64_t count[3];  /* elements of a row, rows of a group (1 where kept_inner), groups */
    cynorm_bn_view view[CYNORM_BN_VIEWS];
    int64_t bit;       /* where in the mask the tile begins; in forward a multiple of 8, as its strides of rows are */
    const void *center, *center_low, *gain, *bias, *slope, *offset; /* coefficients, see batch_norm.h */
    void *sums;
    int64_t next[2];   /* how far the next unit of the thread is, of src and of diff_dst; 0 where that is not known */
    cynorm_activation activation;
    double parameter[3];
    int streaming;     /* whether the outputs bypass the cache */
    void *scratch;     /* CYNORM_BN_SCRATCH bytes, aligned to 64 */
} cynorm_bn_tile;

enum { CYNORM_BN_SCRATCH = 96 << 10 };

/* The statistics of one unit: n of them, each with `repeat` coefficients n apart. Arrays are of reals. */
typedef struct {
    int kept_inner;
    int64_t n, repeat, count;       /* count: elements that each statistic is of */
    double epsilon;
    char *sums;
    int64_t chunks, chunk_bytes;    /* of sums */
    const void *scale, *shift;      /* NULL: 1, 0 */
    void *mean, *mean_low, *variance, *rstd, *diff_scale, *diff_shift;
    void *center, *center_low, *gain, *bias, *slope, *offset;
} cynorm_bn_unit;

/* ---- the table each instruction set exports; an index of 0 computes in float, 1 in double ---- */

typedef struct {
    size_t (*lrn_scratch)(const cynorm_lrn_tile *, int backward);
    void (*lrn_forward)(const cynorm_lrn_tile *);
    void (*lrn_backward)(const cynorm_lrn_tile *);
    int64_t (*bn_sums_bytes)(int kept_inner, int64_t n);
    void (*bn_sums)(const cynorm_bn_tile *);
    void (*bn_apply)(const cynorm_bn_tile *);
    void (*bn_statistics)(const cynorm_bn_unit *);
    void (*bn_coefficients)(const cynorm_bn_unit *);
    void (*bn_gradients)(const cynorm_bn_unit *, int training);
    /* n elements of storage, `stride` bytes apart <-> reals; load_row writes whole vectors */
    void (*load_row)(void *, const char *, int dtype, int64_t n, int64_t stride);
    void (*store_row)(char *, const void *, int dtype, int64_t n, int64_t stride);
} cynorm_real_kernels;

typedef struct {
    const char *name;
    cynorm_real_kernels real[2];
    /* The machine's limit: out = in[0] (+ in[1]) or, without out, a sum of in[0]; n bytes each, streaming stores or not. */
    double (*bandwidth)(char *out, const char *const *in, int reads, int64_t n, int streaming);
    void (*fence)(void); /* orders streaming stores before whatever follows */
} cynorm_kernels;

#endif
