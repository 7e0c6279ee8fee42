/* Between cynorm's own modules, and free to change: tiles, which kernels take, and the table of kernels of an instruction set. */

#ifndef CYNORM_TILES_H
#define CYNORM_TILES_H

#include <cynorm/cynorm.h>

/* ---- LRN: one tile; lrn.h says how it is computed ---- */

/* One tensor as a tile sees it: `data` is slab 0 of the streamed axis at the tile's output origin; strides in bytes.
 * data is NULL where the tensor is absent. */
typedef struct {
    char *data;
    int64_t streamed, stride[3];
    int dtype;
} cynorm_lrn_view;

/* The views of a tile; loops take all but the last as operands. */
enum {
    CYNORM_LRN_SRC, CYNORM_LRN_DIFF_DST, CYNORM_LRN_Y, CYNORM_LRN_DST, CYNORM_LRN_OMEGA, CYNORM_LRN_VIEWS,
    CYNORM_LRN_OPERANDS = CYNORM_LRN_OMEGA
};

/* A window inside a slab: left and right neighbours, `step` apart in the flat slab. */
typedef struct { int64_t step, left, right; } cynorm_lrn_window;

/* The widest window that is summed cell by cell; a wider one is made of sums of 2, 4, 8, ... cells. */
enum { CYNORM_SUM_DIRECT = 8 };
enum { CYNORM_REACH = 2 }; /* the most cells on either side, where windows are constants of loops */
enum { CYNORM_COLUMN_SLABS = 512 }; /* the most of a column */

/* How much of an operand is copied at most, where its rows are not contiguous. */
enum {
    CYNORM_TRANSPOSED_MOST = 1024,   /* slabs, windows along the stream alone */
    CYNORM_TRANSPOSED_PIXELS = 4096, /* pixels of a plane, channels innermost */
    CYNORM_COPIED_PLANE = 1 << 18,   /* bytes of a part of a plane, windows along rows and the stream */
};

typedef struct {
    double k, alpha, beta; /* alpha divided by the window's cells already */
    /* the streamed axis: its extent, the outputs [begin, end) of this tile, how many a tile has at most, its window */
    int64_t extent, begin, end, part, left, right;
    /* a slab: outputs per level (level 0 innermost), flat distance between entries of a level, flat position of the
     * first output, flat size; how many entries of level 0 are missing from the last of level 1 (blocked channels), and how many
     * entries of level 1 lie behind the tile's */
    int64_t count[3], pitch[3], origin, size, missing, behind;
    /* where the streamed axis is groups of a level's entries: that level, else -1, and its count in the last slab */
    int64_t grouped, last_group;
    /* entries of level 0 that tiles on either side have, where each has a line of memory or more */
    int64_t before, after;
    /* how far the terms of backward, and the squares, reach beyond the outputs (before, after), cut at the tensor */
    int64_t reach_terms[3][2], reach_src[3][2];
    cynorm_lrn_window window[2];
    int windows;
    int64_t rows;  /* where level 0, or 1, is a plane, with window[0] along its rows, window[1] across them: so many; else 0 */
    int trees;     /* whether windows along the stream are trees, however wide */
    int far_lines; /* whether the machine fetches lines that lie slabs apart as fast as those of a row */
    int cut;       /* whether a level with a window is cut, so that the reaches may be more than 0 */
    int streaming; /* whether dst bypasses the cache */
    int followed;  /* whether the next tile, most likely of the same thread, has the next entries of level 2; never in place */
    union {
        struct { cynorm_lrn_view src, diff_dst, y, dst, omega; };
        cynorm_lrn_view view[CYNORM_LRN_VIEWS];
    };
    void *scratch; /* lrn_scratch() bytes, aligned to 64 */
} cynorm_lrn_tile;

/* What takes a tile: lines of pixels that go through all slabs, or vectors of channels that go along rows of pixels, one after the
 * other, so that rows need not be cut, and, of LINES, parts of channels write to no line of dst in common, though these begin at no
 * pixel; or loops of planes by way of copies, or of volumes. */
enum { CYNORM_LRN_COLUMNS = 1, CYNORM_LRN_CHANNELS, CYNORM_LRN_LINES, CYNORM_LRN_COPIED, CYNORM_LRN_VOLUMES };

/* ---- BN: one tile, and the statistics of one unit; batch_norm.h says how they are computed ---- */

/* Strides of an element, a row and a group, as counts of a tile; in bytes, the mask's in bits. data is NULL where
 * the tensor is absent. Statistics may be of several blocks, `block` apart. A packed view does not lie in rows as they
 * are used: it is read by way of a copy that does, or written from one. */
typedef struct {
    char *data;
    int64_t stride[3], block;
    int dtype, packed;
} cynorm_bn_view;

typedef struct {
    int kept_inner;    /* whether each element of a row has its own statistics, or each row of a group */
    int64_t count[3];  /* elements of a row, rows of a group, groups; kept_inner: of a row, images, rows of each */
    int64_t repeat;    /* how many of the data's groups make one group, whose kept row is so many times as long */
    int64_t split;     /* statistics of a block, or all */
    int64_t blocks;    /* more than 1: rows are of one block, as they are `block` apart in all views, */
    int64_t row;       /* and this is how many coefficients one has */
    int packs;         /* how many views are packed */
    cynorm_bn_view view[CYNORM_BN_VIEWS];
    int64_t bit;       /* where in the mask the tile begins */
    cynorm_bn_view gradient; /* of reals: diff_dst as an activation other than ReLU leaves it, which sums leave for results */
    const void *center, *norm, *gain, *bias, *slope, *offset; /* coefficients, see batch_norm.h */
    void *sums;
    int64_t next[2];   /* how far ahead what is fetched next lies, of src and of diff_dst; 0: this tile's next rows; */
    int64_t jump[2];   /* and how much further, in the last images */
    int64_t last_images;
    cynorm_activation activation;
    double parameter[2];
    int streaming;     /* whether the outputs bypass the cache */
    int training;      /* whether statistics are the data's own, or their gradients */
    int fetches;       /* whether sums of rows of one statistic each fetch ahead what they read */
    void *scratch;     /* CYNORM_BN_SCRATCH bytes, and CYNORM_BN_PACKED for each packed view, aligned to 64 */
} cynorm_bn_tile;

/* A packed view has a slab, and what its way past the cache takes: cynorm_unpack_bytes of so many rows. */
enum {
    CYNORM_UNPACK_STAGE = 16 << 10, /* bytes; see transpose.h */
    CYNORM_BN_KEPT_AHEAD = 3072, /* bytes of kept rows that are fetched ahead, in the first-level cache */
    CYNORM_BN_SCRATCH = 96 << 10,
    CYNORM_BN_SLAB = 96 << 10,
    CYNORM_BN_SLAB_ROWS = 768,
    CYNORM_BN_PACKED = CYNORM_BN_SLAB + CYNORM_BN_SLAB_ROWS * 64 + CYNORM_UNPACK_STAGE
};

/* The statistics of one unit: n of them, each with `spread` coefficients side by side, and so `repeat` times. Arrays are of
 * reals. */
typedef struct {
    int kept_inner;
    int64_t n, spread, repeat, count;       /* count: elements that each statistic is of */
    double epsilon;
    char *sums;
    int64_t chunks, chunk_bytes;    /* from the sums of one to those of the next; */
    int64_t part_bytes;             /* so many of a chunk's are of these statistics */
    const void *scale, *shift;      /* NULL: 1, 0 */
    void *mean, *mean_low, *variance, *rstd, *diff_scale, *diff_shift;
    void *center, *norm, *gain, *bias, *slope, *offset;
} cynorm_bn_unit;

/* ---- the table each instruction set exports; an index of 0 computes in float, 1 in double ---- */

typedef struct {
    size_t (*lrn_scratch)(const cynorm_lrn_tile *);
    int (*lrn_taken_by)(const cynorm_lrn_tile *); /* one of CYNORM_LRN_COLUMNS to CYNORM_LRN_VOLUMES, or 0 */
    void (*lrn)(const cynorm_lrn_tile *);         /* forward or, where there is diff_dst, backward */
    int64_t lrn_plane_reach; /* the most cells on either side of a window over planes that has loops of its own */
    int64_t lrn_fewest;      /* pixels of fewer channels have loops only as rows, which these copy if they do not follow on */
    int64_t (*bn_sums_bytes)(int kept_inner, int64_t n);
    void (*bn_sums)(const cynorm_bn_tile *);
    void (*bn_apply)(const cynorm_bn_tile *, const cynorm_bn_tile *beside); /* NULL, or whose sums are taken meanwhile */
    void (*bn_statistics)(const cynorm_bn_unit *);
    void (*bn_coefficients)(const cynorm_bn_unit *);
    void (*bn_gradients)(const cynorm_bn_unit *, int training);
    /* n elements of storage, `stride` bytes apart <-> reals; load_row writes whole vectors */
    void (*load_row)(void *, const char *, int dtype, int64_t n, int64_t stride);
    void (*store_row)(char *, const void *, int dtype, int64_t n, int64_t stride);
} cynorm_real_kernels;

typedef struct {
    const char *name;
    const cynorm_real_kernels *real[2]; /* of float, which half types are computed in; of double */
    /* The machine's limit: out = in[0] (+ in[1]) or, without out, a sum of in[0]; n bytes each, streaming stores or not. */
    double (*bandwidth)(char *out, const char *const *in, int reads, int64_t n, int streaming);
    void (*fence)(void); /* orders streaming stores before whatever follows */
} cynorm_kernels;

#endif
