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

/* ---- the table each instruction set exports; an index of 0 computes in float, 1 in double ---- */

typedef struct {
    size_t (*lrn_scratch)(const cynorm_lrn_tile *, int backward);
    void (*lrn_forward)(const cynorm_lrn_tile *);
    void (*lrn_backward)(const cynorm_lrn_tile *);
} cynorm_real_kernels;

typedef struct {
    const char *name;
    cynorm_real_kernels real[2];
    /* The machine's limit: out = in[0] (+ in[1]) or, without out, a sum of in[0]; n bytes each, streaming stores or not. */
    double (*bandwidth)(char *out, const char *const *in, int reads, int64_t n, int streaming);
    void (*fence)(void); /* orders streaming stores before whatever follows */
} cynorm_kernels;

#endif
