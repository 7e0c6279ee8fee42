/* LRN with a window of many slabs along the stream. A template, see types.h; formulas, tiles and trees are lrn.h's.
 *
 * CYNORM_SLABS slabs are worked on at a time, in strips of up to CYNORM_STRIP vectors: loops for window sums, terms and
 * results follow one another, each short enough for the core to look several vectors ahead, and hand their rows on
 * in the first-level cache. Memory, too, has the time of a strip: reads are asked for all along.
 *
 * Wide windows are sums by blocks: the ends of each block are kept, the sums from each slab to the block's last, for as many blocks
 * as a window reaches over. Each is read once as the beginning of a window; those from a block's first slab on are whole blocks.
 *
 * Other windows are trees. With B = CYNORM_SLABS, a block makes S_2, S_4 up to S_B in registers, from the S_1 to S_B/2 that the
 * last block left, and keeps only S_B. All of this is replaced in place, line by line as it is read: stores elsewhere would each
 * wait for a line of the second-level cache.
 *
 * Windows that also lie along rows are summed along rows first, by the same means: in planes, each row's vectors follow
 * one another (lrn_window.h); where channels are innermost, a row is taken one vector of channels at a time, and its
 * windows are trees, of S_4 of each of its pixels. Pixels of few channels are rows as those of planes are; there, in volumes, whose
 * rows are planes, and where windows reach a vector or more, trees are made of S_4 of each cell, in memory. A strip is then just a
 * row. */

enum { CYNORM_WINDOW_BLOCKS = 8, CYNORM_STRIP = 16 }; /* the most of a window; vectors of a strip, at most */
/* From so many channels on, their vectors, even if mostly empty, are worth loops of their own. */
enum { FN(lrn_fewest) = VL < 6 ? VL : 6 };

/* Sums of squares, or of terms. */
typedef struct {
    int64_t n;             /* slabs of the window */
    int64_t pitch;         /* reals from what is kept of a vector to that of the next one */
    int blocks;            /* before this one that a window reaches over */
    real *block[CYNORM_WINDOW_BLOCKS]; /* by vectors: ends, or S_B, of the block before, of the one before that, ... */
    real *kept;            /* of trees, by vectors: S_1 to S_B/2 of the last slabs of the block before */
} slab_sums;

typedef struct {
    /* rows of memory of the block's slabs: the newest, those of which terms are made, those that are finished */
    const char *newest[CYNORM_SLABS], *middle[CYNORM_SLABS], *diff_dst[CYNORM_SLABS], *src[CYNORM_SLABS];
    char *dst[CYNORM_SLABS];
    real *weighted_out[CYNORM_SLABS];
    real *weighted[CYNORM_SLABS];
    int read[2], terms[2], finish[2];     /* which of the slabs are read, have terms, are finished: from, to */
    int64_t src_step, diff_step, dst_step; /* bytes from a vector of a slab to the next */
    int64_t src_ahead;                    /* bytes from the newest rows to what is prefetched with them; or, */
    /* where windows lie along rows, what is, with those whose powers are taken if vectors are lines, as that takes longest; of
     * diff_dst with terms, wherever windows lie */
    const char *src_next[CYNORM_SLABS], *diff_next[CYNORM_SLABS];
    slab_sums squares, term_sums;
    real *cells;                          /* what one loop leaves for the next: squares or terms, their window sums */
    int64_t pitch;                        /* reals from a slab's cells to those of the next */
    coefficients q;
    int streaming, seamed;                /* how dst leaves: lrn_stage.h */
    int64_t most;                         /* vectors of a strip: fewer past the cache, where reads and writes take turns */
    seam_t seam[CYNORM_SLABS];
    const cynorm_late *late;              /* dst of the block before */
    vec line;                             /* what the last row along a seam has of the line in which the next row begins */
    real strip[CYNORM_SLABS][CYNORM_STRIP * VL] __attribute__((aligned(64)));
} slabs_t;

#define EACH_SLAB _Pragma("GCC unroll 8") for (int j = 0; j < CYNORM_SLABS; j++)

/* ---- sums by blocks ---- */

/* The window sums of a vector of each slab, from its cells and what is kept. With n - 1 = q B + r, windows begin q blocks
 * before this one, those of the first r slabs one earlier; r is a constant. */
CYNORM_INLINE void FN(block_sums_at)(const slab_sums *s, int64_t vector, const vec *cell, vec *sum, int r) {
    const int64_t at = vector * s->pitch, q = (s->n - 1) / CYNORM_SLABS;
    vec beginning[CYNORM_SLABS], end[CYNORM_SLABS]; /* to slab j, and from it */
    EACH_SLAB beginning[j] = end[j] = cell[j];
#pragma GCC unroll 3
    for (int m = 1; m < CYNORM_SLABS; m *= 2) {
        EACH_SLAB if (j & m) beginning[j] += beginning[(j & -m) - 1];
        EACH_SLAB if (!(j & m)) end[j] += end[(j & -m) + m];
    }
    vec between = FN(splat)((real)-0.0);
    for (int64_t b = 1; b < q; b++) between += FN(load)(s->block[b - 1] + at);
    const real *later = s->block[q - 1] + at, *earlier = r ? s->block[q] + at : NULL;
    const vec longer = between + FN(load)(later);
    EACH_SLAB sum[j] = (j < r ? FN(load)(earlier + (CYNORM_SLABS + j - r) * VL) + longer
                              : FN(load)(later + (j - r) * VL) + between) + beginning[j];
    EACH_SLAB FN(store)(s->block[s->blocks - 1] + at + j * VL, end[j]);
}

/* ---- trees ---- */

/* S_B of slab j of the block `back` blocks ago, or, where j < 0, of the one before that; `own`: of this one. */
CYNORM_INLINE vec FN(of_block)(const slab_sums *s, const vec *own, int64_t at, int j, int64_t back) {
    if (own && !back && j >= 0) return own[j];
    return FN(load)(s->block[back - (j >= 0)] + at + (j & (CYNORM_SLABS - 1)) * VL);
}

/* S_2B likewise, made of these. */
CYNORM_INLINE vec FN(pair_of)(const slab_sums *s, const vec *own, int64_t at, int j, int64_t back) {
    return FN(of_block)(s, own, at, j, back) + FN(of_block)(s, NULL, at, j, back + 1);
}

/* Adds to the sums of a window's `low` latest slabs what the window has before them; `own`: S_B of this block, then kept. */
CYNORM_INLINE void FN(add_blocks)(const slab_sums *s, int64_t at, const vec *own, vec *sum, int low) {
    if (s->n & CYNORM_SLABS) {
        EACH_SLAB sum[j] += FN(of_block)(s, own, at, j - low, 0);
        if (s->n & 2 * CYNORM_SLABS) EACH_SLAB sum[j] += FN(pair_of)(s, NULL, at, j - low, 1);
    } else EACH_SLAB sum[j] += FN(pair_of)(s, own, at, j - low, 0);
    if (!s->blocks) return;
    const int all = s->n >= 2 * CYNORM_SLABS; /* else only the next block reads any, the last `low` */
    EACH_SLAB if (all || j >= CYNORM_SLABS - low) FN(store)(s->block[s->blocks - 1] + at + j * VL, own[j]);
}

/* The window sums of a vector of each slab, from its cells and what is kept; low = n mod B is a constant. */
CYNORM_INLINE void FN(sum_slabs_at)(const slab_sums *s, int64_t vector, vec *cells, vec *sum, int low) {
    real *kept = s->kept + vector * ((CYNORM_SLABS - 1) * VL);
    const int64_t at = vector * s->pitch;
    vec level[2 * CYNORM_SLABS]; /* S_m of slab j is level[B + j] */
    int offset = 0;
    EACH_SLAB level[CYNORM_SLABS + j] = cells[j], sum[j] = FN(splat)((real)-0.0);
#pragma GCC unroll 8
    for (int m = 1; m < CYNORM_SLABS; m *= 2) {
#pragma GCC unroll 8
        for (int j = 0; j < m; j++) {
            level[CYNORM_SLABS - m + j] = FN(load)(kept + j * VL);
            FN(store)(kept + j * VL, level[2 * CYNORM_SLABS - m + j]);
        }
        kept += m * VL;
        EACH_SLAB if (low & m) sum[j] = offset ? sum[j] + level[CYNORM_SLABS + j - offset] : level[CYNORM_SLABS + j];
        if (low & m) offset += m;
#pragma GCC unroll 8
        for (int j = CYNORM_SLABS - 1; j >= 0; j--) level[CYNORM_SLABS + j] += level[CYNORM_SLABS + j - m];
    }
    if (s->n < CYNORM_SLABS) return;
    FN(add_blocks)(s, at, level + CYNORM_SLABS, sum, low);
}

/* The block that was replaced is the last one now. */
static void FN(turn_blocks)(slab_sums *s) {
    real *last = s->blocks ? s->block[s->blocks - 1] : NULL;
    for (int q = s->blocks - 1; q > 0; q--) s->block[q] = s->block[q - 1];
    s->block[0] = last;
}

/* The window sums of a vector of each slab; low is n mod B of a tree, else n - 1 mod B. */
CYNORM_INLINE void FN(window_sums_at)(const slab_sums *s, int64_t vector, vec *cell, vec *sum, int tree, int low) {
    if (tree) FN(sum_slabs_at)(s, vector, cell, sum, low);
    else FN(block_sums_at)(s, vector, cell, sum, low);
}

/* Window sums of a strip's `vectors` from element i on; of n lanes. */
CYNORM_INLINE void FN(sum_squares)(slabs_t *b, int64_t i, int64_t vectors, int64_t n, int dtype, int tree, int low) {
    const slab_sums s = b->squares;
    for (int64_t v = 0; v < vectors; v++) {
        const int64_t at = (i + v * VL) * cynorm_itemsize(dtype);
        vec cell[CYNORM_SLABS], sum[CYNORM_SLABS];
        EACH_SLAB {
            __builtin_prefetch(b->newest[j] + at + b->src_ahead, 0, 2);
            cell[j] = FN(get)(b->newest[j] + at, dtype, n);
            cell[j] *= cell[j];
        }
        FN(window_sums_at)(&s, i / VL + v, cell, sum, tree, low);
        EACH_SLAB FN(store)(b->strip[j] + v * VL, sum[j]);
    }
}

/* In place of cells. */
CYNORM_INLINE void FN(sum_strip)(const slab_sums *given, real *cells, int64_t pitch, int64_t i, int64_t vectors, int tree,
                                 int low) {
    const slab_sums s = *given;
    for (int64_t v = 0; v < vectors; v++) {
        vec cell[CYNORM_SLABS], sum[CYNORM_SLABS];
        EACH_SLAB cell[j] = FN(load)(cells + j * pitch + v * VL);
        FN(window_sums_at)(&s, i / VL + v, cell, sum, tree, low);
        EACH_SLAB FN(store)(cells + j * pitch + v * VL, sum[j]);
    }
}

/* ---- a row of one slab: its terms, its dst, its diff_src, from window sums ---- */

enum { CYNORM_SLAB_TERMS, CYNORM_SLAB_FORWARD, CYNORM_SLAB_BACKWARD };

typedef struct {
    const char *src, *diff_dst; /* these and the next three from i on */
    char *dst;
    real *cells, *weighted;
    const char *src_next, *diff_next; /* what is prefetched, likewise; NULL: nothing of src */
    int64_t src_step, diff_step, dst_step;
    coefficients q;
    int streaming;
    const cynorm_late *late; /* piece `row` of it leaves with the row */
    int row;
} slab_row;

/* `together` vectors of the row, from v vectors after element i on; of n lanes. */
CYNORM_INLINE void FN(slab_vectors)(const slab_row *r, seam_t *seam, int64_t i, int64_t v, int64_t n, int dtype, int stage,
                                    int kind, int together, int seamed) {
    const int64_t size = cynorm_itemsize(dtype);
    real *cells = r->cells + v * VL, *weighted_row = r->weighted + v * VL;
    vec x[CYNORM_TOGETHER], g[CYNORM_TOGETHER], omega[CYNORM_TOGETHER], out[CYNORM_TOGETHER], weighted[CYNORM_TOGETHER];
#pragma GCC unroll 4
    for (int k = 0; k < together; k++) {
        const vec sum = FN(load)(cells + k * VL);
        x[k] = FN(get)(r->src + (v + k) * r->src_step, dtype, n);
        if (FN(is_line)(dtype) && stage != CYNORM_SLAB_BACKWARD && r->src_next)
            __builtin_prefetch(r->src_next + (v + k) * r->src_step, 0, 2);
        if (stage == CYNORM_SLAB_TERMS) {
            __builtin_prefetch(r->diff_next + (v + k) * r->diff_step, 0, 2);
            g[k] = FN(get)(r->diff_dst + (v + k) * r->diff_step, dtype, n);
        }
        if (stage == CYNORM_SLAB_BACKWARD) out[k] = FN(diff_src_of)(&r->q, x[k], sum, FN(load)(weighted_row + k * VL));
        else omega[k] = FN(omega_of)(&r->q, sum, n);
    }
    if (stage == CYNORM_SLAB_TERMS) FN(terms_of)(&r->q, out, omega, g, x, NULL, together, kind, weighted, NULL);
    if (stage == CYNORM_SLAB_FORWARD) FN(times_powers)(out, x, omega, together, kind, r->q.beta, dtype, NULL, NULL);
#pragma GCC unroll 4
    for (int k = 0; k < together; k++) {
        char *dst = r->dst + (v + k) * r->dst_step;
        if (stage != CYNORM_SLAB_TERMS && !seamed) cynorm_send_late(r->late, r->row, r->row + 1, (i + (v + k) * VL) * size);
        if (stage == CYNORM_SLAB_TERMS) {
            FN(store)(weighted_row + k * VL, weighted[k]);
            FN(store)(cells + k * VL, FN(part)(out[k], (vec){0}, n));
        } else if (seamed) FN(put_seamed)(seam, (i + (v + k) * VL) * size, out[k], n);
        else FN(put_or_stream)(dst, out[k], dtype, n, r->streaming);
    }
}

CYNORM_INLINE void FN(slab_rows)(slabs_t *b, int64_t i, int64_t whole, int64_t others, int64_t n, int dtype, int stage,
                                 int kind, int together, int seamed) {
    const int64_t vectors = whole + others;
    const int terms = stage == CYNORM_SLAB_TERMS, *range = terms ? b->terms : b->finish;
    for (int j = range[0], end = range[1]; j < end; j++) {
        const int64_t at = i / VL;
        const slab_row r = {(terms ? b->middle[j] : b->src[j]) + at * b->src_step,
                            terms ? b->diff_dst[j] + at * b->diff_step : NULL,
                            terms ? NULL : b->dst[j] + at * b->dst_step,
                            b->cells + j * b->pitch, (terms ? b->weighted_out[j] : b->weighted[j]) + i,
                            b->src_next[j] ? b->src_next[j] + at * b->src_step : NULL,
                            terms ? b->diff_next[j] + at * b->diff_step : NULL,
                            b->src_step, b->diff_step, b->dst_step, b->q, b->streaming, b->late, j};
        seam_t seam = {0};
        if (seamed) seam = b->seam[j];
        int64_t v = 0;
#define SOME(n, count) FN(slab_vectors)(&r, &seam, i, v, n, dtype, stage, kind, count, seamed)
        for (; v + together <= whole; v += together) SOME(VL, together);
        for (; v < whole; v++) SOME(VL, 1);
        for (; v < vectors; v++) SOME(n, 1);
#undef SOME
        if (seamed) b->seam[j].before = seam.before, b->seam[j].rest = seam.rest;
    }
    for (int64_t v = 0; !terms && !seamed && range[1] - range[0] < CYNORM_SLABS && v < vectors; v++) {
        const int64_t at = (i + v * VL) * cynorm_itemsize(dtype);
        cynorm_send_late(b->late, 0, range[0], at);
        cynorm_send_late(b->late, range[1], CYNORM_SLABS, at);
    }
}

/* ---- windows along the rows of a block, in place of the cells ---- */

/* The square of a vector of n lanes, which asks for another one of a row to come, unless powers do. */
CYNORM_INLINE vec FN(square_of)(const char *src, const char *ahead, int dtype, int64_t n) {
    if (!FN(is_line)(dtype)) __builtin_prefetch(ahead, 0, 2);
    const vec x = FN(get)(src, dtype, n);
    return x * x;
}

#if CYNORM_PICKS
/* Of a plane: rows of vectors, one of zeros behind each. */
CYNORM_INLINE void FN(sum_along_lanes)(real *cells, int64_t vectors, const window_t *given, int mirrored, int reach) {
    if (reach < -VL) return; /* no such window */
    const window_t window = *given;
    sums_t s = {0};
    real *out = cells - FN(late)(reach) * VL;
    for (int64_t v = 0; v < vectors; v++)
        FN(store)(out + v * VL, FN(wide_sum)(&s, FN(load)(cells + v * VL), &window, reach, mirrored));
    for (int64_t v = vectors; v < vectors + FN(late)(reach); v++)
        FN(store)(out + v * VL, FN(wide_sum)(&s, (vec){0}, &window, reach, mirrored));
}
#endif

/* Of rows whose pixels are vectors. S_4 of each pixel of a row is kept, of which the tree's higher levels are made. */
enum { CYNORM_PIXELS = 4 }; /* at a time */
typedef struct { vec cell, two, before; } pixels_t; /* S_1 and S_2 of the latest pixel, S_2 of the one before */

/* A row: its cells, in whose place sums go, and S_4 of its pixels, n - 1 vectors of zeros before them, pixels + right behind. Of
 * squares, too: where its pixels lie, of so many lanes, and what is prefetched with them; `edges` at either end are cells. */
typedef struct {
    real *cells, *fours;
    int64_t pixels, right, n;
    const char *src, *ahead;
    int64_t step, lanes, edges;
} pixel_row;
enum { CYNORM_NO_PIXELS, CYNORM_PIXELS_OF_CELLS, CYNORM_PIXELS_OF_SRC }; /* what the row's pixels are made of */

/* `count` pixels from p on; beyond the row there are none. If `ends`, windows of n end there. */
CYNORM_INLINE void FN(sum_pixels)(pixels_t *s, const pixel_row *row, int64_t p, int dtype, int64_t lanes, int low, int count,
                                  int given, int ends) {
    vec cell[CYNORM_PIXELS], two[CYNORM_PIXELS], sum[CYNORM_PIXELS];
    real *cells = row->cells + p * VL, *fours = row->fours + p * VL;
    const int64_t n = row->n;
#define EACH_PIXEL _Pragma("GCC unroll 4") for (int j = 0; j < count; j++)
    EACH_PIXEL {
        const int64_t at = (p + j) * row->step;
        cell[j] = given == CYNORM_PIXELS_OF_SRC     ? FN(square_of)(row->src + at, row->ahead + at, dtype, lanes)
                  : given == CYNORM_PIXELS_OF_CELLS ? FN(load)(cells + j * VL)
                                                    : (vec){0};
    }
    EACH_PIXEL two[j] = cell[j] + (j ? cell[j - 1] : s->cell);
    EACH_PIXEL FN(store)(fours + j * VL, two[j] + (j > 1 ? two[j - 2] : j ? s->two : s->before));
    if (ends) {
        EACH_PIXEL sum[j] = low == 0 ? FN(splat)((real)-0.0) : low == 2 ? two[j] : cell[j];
        if (low == 3) EACH_PIXEL sum[j] += j ? two[j - 1] : s->two;
        FN(add_fours)(sum, fours - low * VL, VL, n, count);
        EACH_PIXEL FN(store)(cells + (j - row->right) * VL, sum[j]);
    }
#undef EACH_PIXEL
    s->before = count > 1 ? two[count - 2] : s->two;
    s->two = two[count - 1], s->cell = cell[count - 1];
}

/* The pixels of a row, of src or of cells. */
CYNORM_INLINE void FN(sum_along_pixels)(const pixel_row *of, int dtype, int64_t lanes, int low, int given) {
    const pixel_row row = *of;
    const int64_t pixels = row.pixels, right = row.right, edges = given == CYNORM_PIXELS_OF_SRC ? row.edges : 0;
    pixels_t s = {0};
    int64_t p = 0;
#define SOME(count, given, ends) FN(sum_pixels)(&s, &row, p, dtype, lanes, low, count, given, ends)
#define BEYOND(end, ends)                                                                                              \
    for (; p + CYNORM_PIXELS <= (end); p += CYNORM_PIXELS) SOME(CYNORM_PIXELS, CYNORM_NO_PIXELS, ends);                \
    for (; p < (end); p++) SOME(1, CYNORM_NO_PIXELS, ends)
#define PIXELS(end, given, ends)                                                                                       \
    do {                                                                                                               \
        const int64_t most = (end) < pixels - edges ? (end) : pixels - edges;                                          \
        for (; p < edges && p < (end); p++) SOME(1, CYNORM_PIXELS_OF_CELLS, ends);                                     \
        for (; p + CYNORM_PIXELS <= most; p += CYNORM_PIXELS) SOME(CYNORM_PIXELS, given, ends);                        \
        for (; p < most; p++) SOME(1, given, ends);                                                                    \
        for (; edges && p < (end); p++) SOME(1, CYNORM_PIXELS_OF_CELLS, ends);                                         \
    } while (0)
    PIXELS(right < pixels ? right : pixels, given, 0);
    PIXELS(pixels, given, 1);
    BEYOND(right, 0);
    BEYOND(pixels + right, 1);
#undef BEYOND
#undef PIXELS
#undef SOME
}

/* A row of cells between zeros, those of a window `apart` reals from each other; S_4 of each, behind n - 1 such steps of zeros;
 * where the sums of its vectors go. */
typedef struct {
    const real *cells;
    real *fours, *sums;
    int64_t vectors, apart, right, n;
} cell_row;

CYNORM_INLINE void FN(sum_along_cells)(const cell_row *of, int low) {
    const cell_row row = *of;
    const int64_t late = row.right * row.apart;
    for (int64_t i = 0; row.n >= 4 && i < row.vectors * VL + late; i += VL)
        FN(store)(row.fours + i, FN(four_cells)(row.cells + i, row.apart));
    const real *cell = row.cells + late, *four = row.fours + late - low * row.apart;
    int64_t v = 0;
#define SOME(count)                                                                                                    \
    do {                                                                                                               \
        vec sum[count];                                                                                                \
        _Pragma("GCC unroll 4") for (int j = 0; j < count; j++)                                                        \
            sum[j] = FN(first_cells)(cell + (v + j) * VL, row.apart, low);                                             \
        FN(add_fours)(sum, four + v * VL, row.apart, row.n, count);                                                    \
        _Pragma("GCC unroll 4") for (int j = 0; j < count; j++) FN(store)(row.sums + (v + j) * VL, sum[j]);            \
    } while (0)
    for (; v + CYNORM_PIXELS <= row.vectors; v += CYNORM_PIXELS) SOME(CYNORM_PIXELS);
    for (; v < row.vectors; v++) SOME(1);
#undef SOME
}

/* The squares of a row of a plane, whose vectors have n lanes. */
CYNORM_INLINE void FN(square_row)(real *cells, const char *src, const char *ahead, int64_t step, int64_t vectors, int64_t n,
                                  int dtype) {
    for (int64_t v = 0; v < vectors; v++, src += step, ahead += step)
        FN(store)(cells + v * VL, FN(square_of)(src, ahead, dtype, n));
}

/* ---- compiled: sums of squares for each storage type, by either way; terms and results for each and its exponents
 * (lrn_loops.h); of whole vectors, and of others of n lanes. ---- */

#define CYNORM_SLAB_LOOP(name, ...)                                                                                    \
    static __attribute__((noinline)) void FN(slab_##name)(slabs_t *b, int64_t i, int64_t whole, int64_t others,        \
                                                         int64_t n) {                                                  \
        __VA_ARGS__;                                                                                                   \
    }
/* Loops of sums, by the way they take and by low. */
#define CYNORM_SQUARES(T, tree, low)                                                                                   \
    CYNORM_SLAB_LOOP(squares_##T##_##tree##_##low,                                                                     \
                     if (whole) FN(sum_squares)(b, i, whole, VL, CYNORM_##T, tree, low);                               \
                     if (others) FN(sum_squares)(b, i + whole * VL, 1, n, CYNORM_##T, tree, low))
#define CYNORM_SUMS(T, tree, low)                                                                                      \
    static __attribute__((noinline)) void FN(sums_##tree##_##low)(const slab_sums *s, real *cells, int64_t pitch,      \
                                                                  int64_t i, int64_t vectors) {                        \
        FN(sum_strip)(s, cells, pitch, i, vectors, tree, low);                                                         \
    }
#define CYNORM_PIXEL_SUMS(low)                                                                                         \
    static __attribute__((noinline)) void FN(pixel_sums_##low)(const pixel_row *row) {                                 \
        FN(sum_along_pixels)(row, CYNORM_COMPUTE, VL, low, CYNORM_PIXELS_OF_CELLS);                                    \
    }
#define CYNORM_CELL_SUMS(low)                                                                                          \
    static __attribute__((noinline)) void FN(cell_sums_##low)(const cell_row *row) { FN(sum_along_cells)(row, low); }
#define CYNORM_PIXEL_SQUARES(T, low)                                                                                   \
    static __attribute__((noinline)) void FN(pixel_squares_##T##_##low)(const pixel_row *row) {                        \
        if (row->lanes >= VL) FN(sum_along_pixels)(row, CYNORM_##T, VL, low, CYNORM_PIXELS_OF_SRC);                    \
        else FN(sum_along_pixels)(row, CYNORM_##T, row->lanes, low, CYNORM_PIXELS_OF_SRC);                             \
    }
#define CYNORM_LANE_SUMS(bit)                                                                                          \
    static __attribute__((noinline)) void FN(lane_sums_##bit)(real *cells, int64_t vectors, const window_t *w,         \
                                                               int mirrored) {                                         \
        FN(sum_along_lanes)(cells, vectors, w, mirrored, -bit);                                                        \
    }
#if CYNORM_VBYTES == 64
#define CYNORM_LOWS(each, T, tree)                                                                                     \
    each(T, tree, 0) each(T, tree, 1) each(T, tree, 2) each(T, tree, 3)                                                \
    each(T, tree, 4) each(T, tree, 5) each(T, tree, 6) each(T, tree, 7)
#else
#define CYNORM_LOWS(each, T, tree) each(T, tree, 0) each(T, tree, 1) each(T, tree, 2) each(T, tree, 3)
#endif
#define CYNORM_SLAB_POWERS(T, name, stage, kind, together)                                                             \
    CYNORM_SLAB_LOOP(stage##_##T##_##name, const int beta = kind;                                                      \
                     if (FN(is_line)(CYNORM_##T) && CYNORM_SLAB_##stage != CYNORM_SLAB_TERMS && b->seamed)             \
                         FN(slab_rows)(b, i, whole, others, n, CYNORM_##T, CYNORM_SLAB_##stage, beta, together, 1);    \
                     else FN(slab_rows)(b, i, whole, others, n, CYNORM_##T, CYNORM_SLAB_##stage, beta, together, 0))
#define CYNORM_SLAB_LOOPS(T)                                                                                           \
    CYNORM_LOWS(CYNORM_SQUARES, T, 0)                                                                                  \
    CYNORM_LOWS(CYNORM_SQUARES, T, 1)                                                                                  \
    static __attribute__((noinline)) void FN(square_row_##T)(real *cells, const char *src, const char *ahead,          \
                                                             int64_t step, int64_t vectors, int64_t n) {               \
        if (n == VL) FN(square_row)(cells, src, ahead, step, vectors, VL, CYNORM_##T);                                 \
        else FN(square_row)(cells, src, ahead, step, vectors, n, CYNORM_##T);                                          \
    }                                                                                                                  \
    CYNORM_PIXEL_SQUARES(T, 0)                                                                                         \
    CYNORM_PIXEL_SQUARES(T, 1)                                                                                         \
    CYNORM_PIXEL_SQUARES(T, 2)                                                                                         \
    CYNORM_PIXEL_SQUARES(T, 3)                                                                                         \
    CYNORM_SLAB_POWERS(T, usual, TERMS, CYNORM_BETA_THREE_QUARTERS, 1)                                                 \
    CYNORM_SLAB_POWERS(T, special, TERMS, cynorm_special_beta(b->q.beta), CYNORM_TOGETHER)                             \
    CYNORM_SLAB_POWERS(T, any, TERMS, CYNORM_BETA_ANY, CYNORM_TOGETHER)                                                \
    CYNORM_SLAB_POWERS(T, usual, FORWARD, CYNORM_BETA_THREE_QUARTERS, 2)                                               \
    CYNORM_SLAB_POWERS(T, special, FORWARD, cynorm_special_beta(b->q.beta), CYNORM_TOGETHER)                           \
    CYNORM_SLAB_POWERS(T, any, FORWARD, CYNORM_BETA_ANY, CYNORM_TOGETHER)                                              \
    CYNORM_SLAB_POWERS(T, none, BACKWARD, CYNORM_BETA_ZERO, 1)
#define CYNORM_SQUARES_OF(T, tree, low) FN(slab_squares_##T##_##tree##_##low),
#define CYNORM_SUMS_OF(T, tree, low) FN(sums_##tree##_##low),
#define CYNORM_SLAB_CHOICES(T)                                                                                         \
    [CYNORM_##T] = {{{CYNORM_LOWS(CYNORM_SQUARES_OF, T, 0)}, {CYNORM_LOWS(CYNORM_SQUARES_OF, T, 1)}},                  \
                    CYNORM_POWERS_OF(slab_TERMS_##T##_), CYNORM_POWERS_OF(slab_FORWARD_##T##_),                        \
                    FN(slab_BACKWARD_##T##_none), FN(square_row_##T),                                                  \
                    {FN(pixel_squares_##T##_0), FN(pixel_squares_##T##_1), FN(pixel_squares_##T##_2), FN(pixel_squares_##T##_3)}},
typedef void (*slab_loop)(slabs_t *, int64_t i, int64_t whole, int64_t others, int64_t n);
typedef void (*pixel_loop)(const pixel_row *);
CYNORM_TYPES(CYNORM_SLAB_LOOPS)
CYNORM_LOWS(CYNORM_SUMS, , 0)
CYNORM_LOWS(CYNORM_SUMS, , 1)
CYNORM_PIXEL_SUMS(0)
CYNORM_PIXEL_SUMS(1)
CYNORM_PIXEL_SUMS(2)
CYNORM_PIXEL_SUMS(3)
CYNORM_CELL_SUMS(0)
CYNORM_CELL_SUMS(1)
CYNORM_CELL_SUMS(2)
CYNORM_CELL_SUMS(3)
static void (*const FN(strip_sums)[2][CYNORM_SLABS])(const slab_sums *, real *, int64_t, int64_t, int64_t) = {
    {CYNORM_LOWS(CYNORM_SUMS_OF, , 0)}, {CYNORM_LOWS(CYNORM_SUMS_OF, , 1)}};
static const pixel_loop FN(pixel_sums)[] = {
    FN(pixel_sums_0), FN(pixel_sums_1), FN(pixel_sums_2), FN(pixel_sums_3)};
static void (*const FN(cell_sums)[])(const cell_row *) = {
    FN(cell_sums_0), FN(cell_sums_1), FN(cell_sums_2), FN(cell_sums_3)};
#if CYNORM_PICKS /* by the highest bit of n */
CYNORM_LANE_SUMS(2)
CYNORM_LANE_SUMS(4)
CYNORM_LANE_SUMS(8)
CYNORM_LANE_SUMS(16)
static void (*const FN(lane_sums)[])(real *, int64_t, const window_t *, int) = {
    FN(lane_sums_2), FN(lane_sums_4), FN(lane_sums_8), FN(lane_sums_16)};
#endif
static const struct {
    slab_loop squares[2][CYNORM_SLABS], terms[3], forward[3], backward;
    void (*square_row)(real *, const char *, const char *, int64_t, int64_t, int64_t);
    pixel_loop pixel_squares[4];
} FN(slab_loops)[] = {CYNORM_TYPES(CYNORM_SLAB_CHOICES)};
#undef CYNORM_SLAB_LOOP
#undef CYNORM_SQUARES
#undef CYNORM_SUMS
#undef CYNORM_PIXEL_SUMS
#undef CYNORM_CELL_SUMS
#undef CYNORM_PIXEL_SQUARES
#undef CYNORM_LOWS
#undef CYNORM_SLAB_POWERS
#undef CYNORM_SLAB_LOOPS
#undef CYNORM_SQUARES_OF
#undef CYNORM_SUMS_OF
#undef CYNORM_LANE_SUMS
#undef CYNORM_SLAB_CHOICES

/* ---- tiles ---- */

/* Whether windows lie along level 1, pixels; else windows of rows, if any, lie along level 0. */
static int FN(by_pixels)(const cynorm_lrn_tile *t) { return t->windows && t->window[0].step > 1 && t->count[1] > 1; }

/* Whether windows lie along pixels, and channels fill their vectors well enough. */
static int FN(channels_serve)(const cynorm_lrn_tile *t) {
    return t->window[0].step == t->pitch[1] && t->count[0] >= FN(lrn_fewest);
}

/* Whether channels are too few for all other loops along pixels: rows are copied, one by one, where they do not lie plain. */
static int FN(few_channels)(const cynorm_lrn_tile *t) { return FN(by_pixels)(t) && t->count[0] < FN(lrn_fewest); }

/* Whether the rows of an operand lie as loops take them: contiguous; of few channels, their pixels, too. */
static int FN(lies_plain)(const cynorm_lrn_tile *t, int i) {
    const cynorm_lrn_view *m = &t->view[i];
    return !m->data || (FN(contiguous)(m) && (!FN(few_channels)(t) || m->stride[1] == t->count[0] * m->stride[0]));
}

/* Whether pixels, and the channels of each, follow on in all operands, but for those that have to be copied first. */
static int FN(pixels_follow)(const cynorm_lrn_tile *t) {
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) {
        const cynorm_lrn_view *m = &t->view[i];
        if (m->data && FN(lies_plain)(t, i) && m->stride[1] != t->count[0] * cynorm_itemsize(m->dtype)) return 0;
    }
    return t->window[0].step == t->count[0];
}

/* The tile or, where vectors of channels would be a quarter empty, one whose rows are its pixels, with windows along level 0: of
 * more than a vector's channels, only if rows are no longer than this. */
enum { CYNORM_PIXELS_AS_ROW = 24 << 10 };
static cynorm_lrn_tile FN(by_rows)(const cynorm_lrn_tile *t) {
    cynorm_lrn_tile rows = *t;
    const int64_t channels = t->count[0], lanes = (channels + VL - 1) / VL * VL, row = channels * t->count[1];
    const int few = 4 * channels <= 3 * lanes && (channels < VL || row * (int64_t)sizeof(real) <= CYNORM_PIXELS_AS_ROW);
    if (FN(by_pixels)(t) && (few || !FN(channels_serve)(t)) && FN(pixels_follow)(t)) rows.count[0] = row, rows.count[1] = 1;
    return rows;
}

/* Whether the windows of rows are summed in memory: those that reach further than a vector, which registers hold, or, of planes in
 * place of rows, two ways. */
static int FN(in_memory)(const cynorm_lrn_tile *t) {
    const cynorm_lrn_window *w = &t->window[0];
    return !FN(by_pixels)(t) && !(CYNORM_PICKS && w->step == 1 && w->left < VL && w->right < VL && !t->rows);
}

/* Vectors of a slab; of pixels, with room for a seam. */
static int64_t FN(slab_length)(const cynorm_lrn_tile *t) {
    return FN(by_pixels)(t) ? t->count[1] + 1 : (t->count[0] + (t->windows ? VL : CYNORM_OVERLAP) + VL - 1) / VL;
}

/* Cells of a window; of how many earlier blocks it needs S_B; reals of a slab_sums. */
static int64_t FN(slabs_of)(const cynorm_lrn_tile *t) { return t->left + t->right + 1; }
static int64_t FN(window_cells)(const cynorm_lrn_window *w) { return w->left + w->right + 1; }
static int FN(slab_blocks)(int64_t n, int tree) {
    return (int)((n - 1 + (tree ? 0 : CYNORM_SLABS - 1)) / CYNORM_SLABS);
}
static int64_t FN(slab_sums_size)(int64_t n, int64_t vectors, int tree) {
    return vectors * ((tree + FN(slab_blocks)(n, tree)) * CYNORM_SLABS * VL);
}

enum { CYNORM_CELLS_MARGIN = CYNORM_PIECES * VL }; /* in front, as sums are late */
/* From a cell of a window along rows to the next one; across the rows of a plane that is a row. */
static int64_t FN(apart)(const cynorm_lrn_tile *t, int across) {
    return across ? t->count[0] / t->rows : FN(by_pixels)(t) ? VL : t->window[0].step;
}
/* Zeros on either side of a row, or plane, of which sums are made in memory, and its reals with these. */
static int64_t FN(row_margin)(const cynorm_lrn_tile *t, int across) {
    return (FN(window_cells)(&t->window[across]) * FN(apart)(t, across) + VL - 1) / VL * VL;
}
static int64_t FN(row_reals)(const cynorm_lrn_tile *t, int across) {
    const int64_t row = t->rows && !across ? (FN(apart)(t, 1) + 2 * VL - 1) / VL * VL : FN(slab_length)(t) * VL;
    return 2 * FN(row_margin)(t, across) + row;
}
/* Bytes of scratch for cells of whole rows, for those of one between zeros, and for its S_4; likewise for a plane. */
static int64_t FN(along_bytes)(const cynorm_lrn_tile *t) {
    const int64_t cells = CYNORM_CELLS_MARGIN + CYNORM_SLABS * FN(slab_length)(t) * VL;
    const int64_t reals = (1 + FN(in_memory)(t)) * FN(row_reals)(t, 0) + (t->rows ? 2 * FN(row_reals)(t, 1) : 0);
    return FN(whole_lines)((cells + reals) * (int64_t)sizeof(real));
}

/* How many rows of an operand are kept as copies, if it asks for these: of src, all that is read once more; of others, a block. */
static int64_t FN(rows_copied)(const cynorm_lrn_tile *t, int backward, int i) {
    if (!FN(few_channels)(t) || FN(lies_plain)(t, i)) return 0;
    return CYNORM_SLABS + (i == CYNORM_LRN_SRC ? t->right + (backward ? t->left : 0) : 0);
}

/* Bytes of scratch: a slabs_t, sums, a row of zeros, backward rows of weighted, dst; copies of rows. */
static size_t FN(slabs_scratch)(const cynorm_lrn_tile *given, int backward) {
    const cynorm_lrn_tile tile = FN(by_rows)(given), *t = &tile;
    const int64_t length = FN(slab_length)(t), rows = 1 + (backward ? t->left + CYNORM_SLABS : 0), n = FN(slabs_of)(t);
    int64_t copied = 0;
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) copied += FN(rows_copied)(given, backward, i) * FN(row_bytes)(t);
    const int64_t reals =
        (1 + backward) * FN(slab_sums_size)(n, length, !FN(by_blocks)(t)) + rows * (length + 1) * VL;
    return sizeof(slabs_t) + (size_t)((t->windows ? FN(along_bytes)(t) : 0) + reals * (int64_t)sizeof(real) +
                                      2 * FN(stage_bytes)(t, CYNORM_SLABS) + copied);
}

/* Whether this serves a tile whose rows are contiguous, or will be as copies. In planes smaller than a vector, lrn.h's loop goes
 * from one to the next; the end of a larger plane has to write the line that it shares with the tile before. */
static int FN(slabs_serve)(const cynorm_lrn_tile *t) {
    const cynorm_lrn_window *w = &t->window[0];
    const int64_t n = FN(slabs_of)(t);
    if (n == 1 || n > CYNORM_SLABS_MOST) return 0;
    if (!t->windows) return t->count[0] >= VL || t->before;
    for (int i = 0; i < 1 + (t->rows > 0); i++)
        if (FN(window_cells)(&w[i]) == 1 || FN(window_cells)(&w[i]) > CYNORM_SLABS_MOST) return 0;
    if (w->step == 1) return t->rows || !FN(in_memory)(t) || FN(window_cells)(w) > 4; /* narrower ones gain nothing from S_4 */
    return FN(channels_serve)(t) || FN(pixels_follow)(t);
}

static slab_sums FN(slab_sums_in)(real *scratch, int64_t n, int64_t vectors, int tree) {
    slab_sums s = {.n = n, .blocks = FN(slab_blocks)(n, tree), .kept = tree ? scratch : NULL};
    s.pitch = s.blocks * CYNORM_SLABS * VL;
    memset(scratch, 0, (size_t)FN(slab_sums_size)(n, vectors, tree) * sizeof(real));
    for (int q = 0; q < s.blocks; q++) s.block[q] = scratch + (tree * vectors + q) * (CYNORM_SLABS * VL);
    return s;
}

/* Which of the CYNORM_SLABS slabs from `first` on lie in [begin, end). */
static void FN(slab_range)(int *range, int64_t first, int64_t begin, int64_t end) {
    for (int i = 0; i < 2; i++) {
        const int64_t at = (i ? end : begin) - first;
        range[i] = at < 0 ? 0 : at > CYNORM_SLABS ? CYNORM_SLABS : (int)at;
    }
}

/* What windows along rows need. */
typedef struct {
    real *cells;                   /* rows of vectors; in planes, with one of zeros behind each */
    int64_t pitch;                 /* reals from a row to the next */
    int64_t whole, vectors, lanes; /* of a row: whole vectors, all; lanes of the others */
    int64_t lead;                  /* of pixels along a seam (lrn_stage.h), else 0 */
    int at_lines;                  /* whether vectors are lines of dst, and leave past the cache */
    int pixels;                    /* whether these are vectors */
    const cynorm_lrn_window *window; /* and, in volumes, the one across the rows of a plane */
    int64_t n;                     /* cells of the first */
    real *fours;                   /* S_4 of a row's pixels, or of its cells: */
    real *row;                     /* these, between zeros, where their windows are summed in memory, else NULL; */
    int64_t width, height;         /* so many at a time, as rows of a plane: the sums along these, and their S_4 */
    real *plane, *plane_fours;
    window_t in_lanes;
} along_t;

static along_t FN(along)(const cynorm_lrn_tile *t) {
    along_t a = {(real *)t->scratch + CYNORM_CELLS_MARGIN, FN(slab_length)(t) * VL, .window = t->window};
    a.n = FN(window_cells)(a.window);
    const int64_t margin = FN(row_margin)(t, 0), reals = FN(row_reals)(t, 0);
    const int in_memory = FN(in_memory)(t);
    a.fours = a.cells + CYNORM_SLABS * a.pitch + margin, a.row = in_memory ? a.fours + reals : NULL;
    memset(a.fours - margin, 0, (size_t)(in_memory ? 2 * reals : margin) * sizeof(real));
    a.height = t->rows ? t->rows : 1, a.width = t->count[0] / a.height;
    if (t->rows) {
        a.plane = a.row - margin + reals + FN(row_margin)(t, 1), a.plane_fours = a.plane + FN(row_reals)(t, 1);
        memset(a.plane - FN(row_margin)(t, 1), 0, (size_t)(2 * FN(row_reals)(t, 1)) * sizeof(real));
    }
    if (FN(by_pixels)(t)) {
        a.pixels = 1, a.vectors = a.whole = t->count[1];
        return a;
    }
    a.whole = t->count[0] / VL, a.vectors = (t->count[0] + VL - 1) / VL, a.lanes = t->count[0] % VL;
#if CYNORM_PICKS
    if (!in_memory) a.in_lanes = FN(window_of)(&t->window[0]);
#endif
    return a;
}

/* Windows along the lanes of rows, in place of the cells. */
static void FN(sum_lanes_of)(const along_t *a, const int *rows, int mirrored) {
#if CYNORM_PICKS
    for (int j = rows[0]; j < rows[1]; j++) FN(store)(a->cells + j * a->pitch + a->vectors * VL, (vec){0});
    FN(lane_sums)[62 - __builtin_clzll((uint64_t)a->n)](a->cells + rows[0] * a->pitch, (rows[1] - rows[0]) * a->pitch / VL,
                                                        &a->in_lanes, mirrored);
#else
    (void)a, (void)rows, (void)mirrored;
#endif
}

/* An operand whose rows are copied, one after another, into a ring of `depth` rows, or none; rows of so many pixels. */
typedef struct {
    const cynorm_lrn_view *view;
    char *rows;
    int64_t depth, pitch, channels, pixels;
} copied_rows;

static char *FN(copy_of)(const copied_rows *c, int64_t v) { return c->rows + (v + c->depth) % c->depth * c->pitch; }
static const char *FN(row_of)(const copied_rows *c, const char *data, int64_t v) {
    return c->depth ? FN(copy_of)(c, v) : data + v * c->view->streamed;
}

/* Those of the rows from `first` on that are in range, from memory, of which row 0 lies at `data`, or back to it. */
static void FN(move_rows)(const copied_rows *c, const char *data, int64_t first, const int *range, int back) {
    const int64_t size = cynorm_itemsize(c->view->dtype);
    for (int64_t v = first + range[0]; c->depth && v < first + range[1]; v++) {
        cynorm_slab slab = {{(char *)data + v * c->view->streamed, FN(copy_of)(c, v)},
                            {{c->channels, {c->view->stride[0], size}, 0, 0},
                             {c->pixels, {c->view->stride[1], c->channels * size}, 0, 0},
                             {.n = 1}},
                            size, 0};
        if (back) cynorm_unpack(&slab, NULL, 0);
        else cynorm_pack(&slab);
    }
}

/* What a block takes: the loops for its cells, which of its sums the windows need, whether any slab is finished. */
typedef struct {
    slab_loop squares, terms, finish;
    void (*sums)(const slab_sums *, real *, int64_t pitch, int64_t i, int64_t vectors);
    void (*square_row)(real *, const char *, const char *, int64_t, int64_t, int64_t);
    const pixel_loop *pixel_squares;
    int squares_needed, terms_needed, finishes;
} work_t;

/* The squares of a row of a plane, of so many cells. */
static void FN(squares_of)(const slabs_t *b, const work_t *w, real *cells, const char *src, const char *ahead, int64_t count) {
    const int64_t step = b->src_step, whole = count / VL, done = whole * step;
    w->square_row(cells, src, ahead, step, whole, VL);
    w->square_row(cells + whole * VL, src + done, ahead + done, step, (count + VL - 1) / VL - whole, count % VL);
}

/* The sums of a row's vectors in memory, of windows as given or mirrored, whose cells are `apart`. */
static void FN(sum_windows)(const cynorm_lrn_window *w, int mirrored, int64_t apart, const real *cells, real *fours, real *sums,
                            int64_t vectors) {
    const int64_t n = FN(window_cells)(w);
    FN(cell_sums)[n % 4](&(cell_row){cells, fours, sums, vectors, apart, mirrored ? w->left : w->right, n});
}

/* In place of the cells of a row, or plane, windows of squares or, without `w`, mirrored ones of the cells. */
static void FN(windows_in_memory)(const slabs_t *b, const work_t *w, const along_t *a, real *cells, const char *src,
                                  const char *ahead) {
    real *sums = a->height > 1 ? a->plane : cells;
    for (int64_t r = 0, at = 0; r < a->height; r++, at += a->width) {
        const int64_t byte = at * (b->src_step / VL);
        if (w) FN(squares_of)(b, w, a->row, src + byte, ahead + byte, a->width);
        else memcpy(a->row, cells + at, (size_t)a->width * sizeof(real));
        FN(sum_windows)(a->window, !w, a->window->step, a->row, a->fours, sums + at, (a->width + VL - 1) / VL);
    }
    if (a->height == 1) return;
    FN(store)(a->plane + a->height * a->width, (vec){0}); /* as the end of the last row lies there */
    FN(sum_windows)(a->window + 1, !w, a->width, a->plane, a->plane_fours, cells, a->vectors);
}

/* Windows of squares, of the rows that have them. */
static void FN(squares_along)(const slabs_t *b, const work_t *w, const along_t *a) {
    const int64_t step = b->src_step;
    for (int j = b->read[0]; j < b->read[1]; j++) {
        const char *newest = b->newest[j], *ahead = b->src_next[j];
        real *row = a->cells + j * a->pitch;
        if (!a->pixels) {
            if (a->row) FN(windows_in_memory)(b, w, a, row, newest, ahead);
            else FN(squares_of)(b, w, row, newest, ahead, a->width);
            continue;
        }
        for (int last = 0; a->lead && last < 2; last++) {
            const int64_t at = last ? a->whole - 1 : 0;
            const vec x = FN(get_edge)(a->lead, last, newest + at * step);
            FN(store)(row + at * VL, x * x);
        }
        w->pixel_squares[a->n % 4](&(pixel_row){row, a->fours, a->vectors, a->window->right, a->n, newest, ahead, step, a->lanes,
                                                a->lead > 0});
    }
    if (!a->pixels && !a->row) FN(sum_lanes_of)(a, b->read, 0);
}

/* Mirrored windows of terms, of the rows that have them. */
static void FN(terms_along)(const slabs_t *b, const along_t *a) {
    if (!a->pixels && !a->row) FN(sum_lanes_of)(a, b->terms, 1);
    else for (int j = b->terms[0]; j < b->terms[1]; j++) {
        real *cells = a->cells + j * a->pitch;
        if (a->row) FN(windows_in_memory)(b, NULL, a, cells, NULL, NULL);
        else FN(pixel_sums)[a->n % 4](&(pixel_row){cells, a->fours, a->vectors, a->window->left, a->n, .edges = 0});
    }
}

/* The ends of rows along a seam, which the loops for terms and results leave out. */
static __attribute__((noinline)) void FN(slab_edges)(slabs_t *b, const along_t *a, const cynorm_lrn_tile *t, int64_t done,
                                                    int stage) {
    const int kind = cynorm_beta_kind(b->q.beta), terms = stage == CYNORM_SLAB_TERMS, *range = terms ? b->terms : b->finish;
    const int joined = t->streaming && t->dst.streamed == t->count[1] * t->dst.stride[1];
    for (int j = range[0]; j < range[1]; j++)
        for (int last = 0; last < 2; last++) {
            const int64_t at = last ? a->whole - 1 : 0, other = done + j + (last ? 1 : -1);
            real *cell = b->cells + j * b->pitch + at * VL;
            const vec sum = FN(load)(cell), omega = FN(omega_of)(&b->q, sum, VL);
            const vec x = FN(get_edge)(a->lead, last, (terms ? b->middle[j] : b->src[j]) + at * b->src_step);
            vec out, weighted;
            if (terms) {
                const vec g = FN(get_edge)(a->lead, last, b->diff_dst[j] + at * b->diff_step);
                out = FN(term_of)(&b->q, omega, g, x, NULL, kind, &weighted);
                FN(store)(b->weighted_out[j] + at * VL, weighted);
                FN(store)(cell, FN(part_of_edge)(a->lead, last, out));
                continue;
            }
            if (stage == CYNORM_SLAB_BACKWARD) out = FN(diff_src_of)(&b->q, x, sum, FN(load)(b->weighted[j] + at * VL));
            else out = FN(times_power)(x, omega, kind, b->q.beta, CYNORM_COMPUTE);
            FN(put_edge)(a->lead, last, b->dst[j] + at * b->dst_step, out,
                         joined && other >= t->begin && other < t->end ? &b->line : NULL, !last);
        }
}

/* Clear slabs that have no cells: outside the tensor, or of no concern to the tile. */
static void FN(clear_others)(const slabs_t *b, const int *rows, int64_t vectors) {
    for (int j = 0; j < CYNORM_SLABS; j++)
        if (j < rows[0] || j >= rows[1]) memset(b->cells + j * b->pitch, 0, (size_t)(vectors * VL) * sizeof(real));
}

/* A block by strips of its rows, of `length` elements. */
static void FN(block_by_strips)(slabs_t *b, const work_t *w, int64_t length) {
    for (int64_t i = 0, vectors; i < length; i += vectors * VL) {
        const int64_t left = length - i, all = left / VL, strips = (all + b->most - 1) / b->most;
        const int64_t whole = all ? (all + strips - 1) / strips : 0;
        vectors = all ? whole : 1;
        if (w->squares_needed) w->squares(b, i, whole, !all, left);
        if (w->terms_needed) {
            w->terms(b, i, whole, !all, left);
            FN(clear_others)(b, b->terms, vectors);
            w->sums(&b->term_sums, b->cells, b->pitch, i, vectors);
        }
        if (w->finishes) w->finish(b, i, whole, !all, left);
    }
}

/* Of rows along which windows lie, all vectors but the edges of a seam. */
static void FN(work_along)(slabs_t *b, slab_loop work, const along_t *a) {
    const int edge = a->lead > 0;
    b->cells += edge * VL;
    work(b, edge * VL, a->whole - 2 * edge, a->vectors - a->whole, a->lanes);
    b->cells -= edge * VL;
}

/* A block by whole rows, along which windows lie. */
static void FN(block_by_rows)(slabs_t *b, const work_t *w, const along_t *a, const cynorm_lrn_tile *t, int64_t done,
                              int backward) {
    if (w->squares_needed) {
        FN(squares_along)(b, w, a);
        FN(clear_others)(b, b->read, a->vectors);
        w->sums(&b->squares, a->cells, a->pitch, 0, a->vectors);
    }
    if (w->terms_needed) {
        FN(work_along)(b, w->terms, a);
        if (a->lead) FN(slab_edges)(b, a, t, done, CYNORM_SLAB_TERMS);
        FN(terms_along)(b, a);
        FN(clear_others)(b, b->terms, a->vectors);
        w->sums(&b->term_sums, a->cells, a->pitch, 0, a->vectors);
    }
    if (w->finishes) FN(work_along)(b, w->finish, a);
    if (w->finishes && a->lead) FN(slab_edges)(b, a, t, done, backward ? CYNORM_SLAB_BACKWARD : CYNORM_SLAB_FORWARD);
}

/* A run of slabs, by where it begins in each tensor, in bytes. */
typedef struct { int64_t src, diff_dst, dst; } run_at;

/* Slab c gives its squares, the slab `right` before it its terms, and the slab another `left` before is finished;
 * forward has no terms. `along`: of windows along rows, or NULL. */
static void FN(run_slabs)(const cynorm_lrn_tile *t, const along_t *along, const copied_rows *copied, int backward, run_at at,
                          run_at next) {
    const copied_rows *src_rows = &copied[CYNORM_LRN_SRC], *diff_rows = &copied[CYNORM_LRN_DIFF_DST];
    const copied_rows *dst_rows = &copied[CYNORM_LRN_DST];
    const int64_t size = cynorm_itemsize(t->src.dtype), vectors = FN(slab_length)(t), row = (vectors + 1) * VL;
    const int64_t n = FN(slabs_of)(t);
    const int tree = !FN(by_blocks)(t), low = (int)((tree ? n : n - 1) % CYNORM_SLABS);
    const int64_t sums_size = FN(slab_sums_size)(n, vectors, tree);
    const int64_t weighted_rows = t->left + CYNORM_SLABS, late = t->right + (backward ? t->left : 0);
    const int64_t terms_begin = t->begin > t->right ? t->begin - t->right : 0;
    const int64_t terms_end = t->end + t->left < t->extent ? t->end + t->left : t->extent;
    const int64_t read_end = t->end + late < t->extent ? t->end + late : t->extent;
    const int64_t least = t->begin - t->left - (backward ? t->right : 0), needed = least < 0 ? 0 : least;
    const int64_t first = needed - FN(place_in_block)(needed - t->right); /* where lrn.h's blocks begin */
    const int dtype = t->src.dtype, pixels = FN(by_pixels)(t), power = FN(loop_of_beta)(t, 1);
    slabs_t *b = (slabs_t *)((char *)t->scratch + (along ? FN(along_bytes)(t) : 0));
    real *sums = (real *)(b + 1), *zeros = sums + (1 + backward) * sums_size, *weighted = zeros + row;
    out_t out;
    FN(open_stage)(&out, t, t->dst.data + at.dst, CYNORM_SLABS, !pixels,
                   (char *)(weighted + (backward ? weighted_rows * row : 0)));
    const char *src = t->src.data + at.src - out.overlap;
    const char *diff_dst = backward ? t->diff_dst.data + at.diff_dst - out.overlap : NULL;
    work_t work = {FN(slab_loops)[dtype].squares[tree][low], FN(slab_loops)[dtype].terms[power],
                   backward ? FN(slab_loops)[dtype].backward : FN(slab_loops)[dtype].forward[power],
                   FN(strip_sums)[tree][low], FN(slab_loops)[dtype].square_row, FN(slab_loops)[dtype].pixel_squares, 0, 0, 0};
    b->q = FN(coefficients_of)(t);
    b->src_step = pixels ? t->src.stride[1] : VL * size;
    b->diff_step = pixels ? t->diff_dst.stride[1] : VL * size;
    b->dst_step = pixels ? t->dst.stride[1] : VL * size;
    b->src_ahead = CYNORM_SLABS * t->src.streamed;
    memset(b->src_next, 0, sizeof b->src_next);
    b->squares = FN(slab_sums_in)(sums, n, vectors, tree);
    if (backward) b->term_sums = FN(slab_sums_in)(sums + sums_size, n, vectors, tree);
    if (!along) memset(zeros, 0, (size_t)row * sizeof(real));
    b->streaming = out.streaming || (pixels && along->at_lines), b->seamed = out.seamed, b->late = &out.late;
    b->most = t->streaming ? CYNORM_STRIP / 2 : CYNORM_STRIP;
    b->cells = along ? along->cells : b->strip[0], b->pitch = along ? along->pitch : CYNORM_STRIP * VL;
    for (int64_t c = first, turn = 0; c - late < t->end; c += CYNORM_SLABS, turn += CYNORM_SLABS) {
        const int64_t middle = c - t->right, done = c - late;
        FN(slab_range)(b->read, c, 0, t->extent);
        FN(slab_range)(b->terms, middle, terms_begin, terms_end);
        FN(slab_range)(b->finish, done, t->begin, t->end);
        work.squares_needed = !backward || middle < terms_end;
        work.terms_needed = backward && middle + CYNORM_SLABS > terms_begin;
        work.finishes = b->finish[0] < b->finish[1];
        if (work.squares_needed) FN(move_rows)(src_rows, src, c, b->read, 0);
        if (work.terms_needed) FN(move_rows)(diff_rows, diff_dst, middle, b->terms, 0);
        if (turn >= weighted_rows) turn -= weighted_rows;
        for (int j = 0; j < CYNORM_SLABS; j++) {
            const int64_t slot = turn + j < weighted_rows ? turn + j : turn + j - weighted_rows;
            const int64_t earlier = slot + CYNORM_SLABS; /* by `left`, around the ring */
            const int reads = j >= b->read[0] && j < b->read[1], finishes = j >= b->finish[0] && j < b->finish[1];
            b->newest[j] = reads ? FN(row_of)(src_rows, src, c + j) : (const char *)zeros;
            b->middle[j] = FN(row_of)(src_rows, src, middle + j);
            b->diff_dst[j] = FN(row_of)(diff_rows, diff_dst, middle + j);
            b->src[j] = FN(row_of)(src_rows, src, done + j);
            b->dst[j] = !finishes ? NULL : dst_rows->depth ? FN(copy_of)(dst_rows, done + j) : FN(row_of_dst)(&out, done + j);
            if (along) b->src_next[j] = src_rows->depth ? b->newest[j]
                                      : FN(row_ahead)(src, t->src.streamed, c + j + CYNORM_SLABS, needed, read_end,
                                                      next.src - at.src);
            if (backward) b->diff_next[j] = diff_rows->depth ? b->diff_dst[j]
                                          : FN(row_ahead)(diff_dst, t->diff_dst.streamed, middle + j + CYNORM_SLABS,
                                                          terms_begin, terms_end, next.diff_dst - at.diff_dst);
            b->weighted_out[j] = weighted + slot * row;
            b->weighted[j] = weighted + (earlier < weighted_rows ? earlier : earlier - weighted_rows) * row;
        }
        for (int j = b->finish[0]; out.seamed && j < b->finish[1]; j++) FN(open_seam)(&b->seam[j], &out, b->dst[j]);
        if (along) FN(block_by_rows)(b, &work, along, t, done, backward);
        else FN(block_by_strips)(b, &work, out.row / size);
        FN(turn_blocks)(&b->squares);
        if (backward) FN(turn_blocks)(&b->term_sums);
        for (int j = b->finish[0]; out.seamed && j < b->finish[1]; j++) FN(close_seam)(&b->seam[j], out.row);
        if (work.finishes) FN(leave_stage)(&out, done + b->finish[1]);
        FN(move_rows)(dst_rows, t->dst.data + at.dst, done, b->finish, 1);
    }
}

/* Each run of level 0 by itself, and each vector of channels whose pixels have windows. */
static void FN(lrn_slabs)(const cynorm_lrn_tile *given, int backward) {
    cynorm_lrn_tile tile = FN(by_rows)(given);
    const cynorm_lrn_tile *t = &tile;
    copied_rows copied[CYNORM_LRN_OPERANDS];
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) {
        const int64_t rows = FN(rows_copied)(given, backward, i), pitch = FN(row_bytes)(t);
        copied[i] = (copied_rows){&t->view[i], tile.scratch, rows, pitch, given->count[0], given->count[1]};
        tile.scratch = copied[i].rows + rows * pitch;
        if (i == CYNORM_LRN_DST && rows) tile.streaming = 0;
    }
    const int pixels = FN(by_pixels)(t);
    const int64_t size = cynorm_itemsize(t->src.dtype), runs = pixels ? 1 : t->count[1], step = pixels ? VL : t->count[0];
    const int64_t lead = pixels ? FN(lead_of)(t, backward) : 0;
    along_t along = {0};
    if (t->windows) along = FN(along)(t);
    for (int64_t i2 = 0; i2 < t->count[2]; i2++)
        for (int64_t i1 = 0; i1 < runs; i1++)
            for (int64_t i = -lead; i < t->count[0] - lead; i += step) {
                if (pixels) {
                    along.lanes = t->count[0] - i, along.lead = i < 0 && !t->before ? lead : 0;
                    along.at_lines = lead > 0 && t->streaming;
                    along.vectors = t->count[1] + (along.lead > 0), along.whole = along.lanes < VL ? 0 : along.vectors;
                }
#define AT(name, i, i1, i2) (i) * size + (i1) * t->name.stride[1] + (i2) * t->name.stride[2]
#define RUN(i, i1, i2) (run_at){AT(src, i, i1, i2), AT(diff_dst, i, i1, i2), AT(dst, i, i1, i2)}
                const run_at at = RUN(i, i1, i2);
                const run_at next = i + step < t->count[0] - lead        ? RUN(i + step, i1, i2)
                                    : i1 + 1 < runs                      ? RUN(-lead, i1 + 1, i2)
                                    : i2 + 1 < t->count[2] + t->followed ? RUN(-lead, 0, i2 + 1)
                                                                         : at;
                FN(run_slabs)(t, t->windows ? &along : NULL, copied, backward, at, next);
#undef RUN
#undef AT
            }
}

#undef EACH_SLAB
