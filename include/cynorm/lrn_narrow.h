/* LRN with a window that registers hold. A template, see types.h; formulas and tiles are lrn.h's. At the end, the choice
 * between this, lrn_slabs.h and lrn.h, and what is transposed before and after.
 *
 * Where a window of 3 or 5 cells lies along the stream, BLOCK slabs are worked on at a time, a vector of each;
 * what the next block needs of this one waits in scratch, in the order of its use. Where a window lies along
 * level 0, the vectors of a row follow one another, and the cells beside a vector are shifted in from its
 * neighbours: any window that reaches less than a vector to either side, if lanes can be picked by number.
 * Where vectors are shorter than with AVX-512, wider ones are summed in scratch.
 * Where a window of 3, 5, 7 or 9 lies along level 0 and the stream, its rows are summed so first, into scratch, and then
 * added. Where one of 3 or 5 lies along level 1 (and the stream), the cells beside a vector are the vectors before. A window's
 * sum is made in lrn.h's order, so that each way gives the bits that lrn.h's own loop would.
 *
 * dst bypasses the cache by whole lines. Rows that do not begin at one are made in scratch and copied (lrn_stage.h). */

#ifndef CYNORM_LRN_NARROW_H
#define CYNORM_LRN_NARROW_H
enum { CYNORM_BLOCK = 4 }; /* slabs */
/* Whether there are registers for stages that are late. */
#ifdef __AVX512F__
enum { CYNORM_BLOCKS_LATE = 1 };
#else
enum { CYNORM_BLOCKS_LATE = 0 };
#endif
/* Bytes that reads of planes run ahead; elements of planes worked on at once. */
enum { CYNORM_AHEAD = 8192, CYNORM_PLANE = 16384 };
/* Elements of rows worked on at once; bytes of src, where stores bypass the cache; bytes to what is prefetched to the
 * first level, and about as many to the second; vectors from a sum to the power that is taken in the same step. */
enum { CYNORM_ROW_STRIP = 1024, CYNORM_ROW_STRIP_BYTES = 2048, CYNORM_ROW_NEAR = 512, CYNORM_ROW_AHEAD = 8192 };
enum { CYNORM_ROW_LAG = 8 };
/* The most cells on either side of a window in rows whose sums are made in scratch, where vectors are shorter; its number among
 * the loops. */
enum { CYNORM_FAR = 16, CYNORM_FAR_WINDOW = 6 };
#define CYNORM_FAR_SERVES (CYNORM_VBYTES < 64)
/* The most rows, and bytes of them, that a walk takes at a time; entries of a row, where memory is the limit. */
enum { CYNORM_WALK_MOST = 4, CYNORM_WALK = 1 << 17, CYNORM_WALK_PIECE = 16 };
#endif

CYNORM_INLINE void FN(put_narrow)(char *p, vec v, int dtype, int64_t n, int streaming) {
    if (streaming && n == VL) FN(put_streaming)(p, v, dtype);
    else FN(put)(p, v, dtype, n);
}

/* ---- windows along the stream ---- */

#define block_t FN(cynorm_lrn_block)
typedef struct {
    const char *src[CYNORM_BLOCK + 2 * CYNORM_REACH], *diff_dst[CYNORM_BLOCK];
    char *dst[CYNORM_BLOCK];
    ivec exists[CYNORM_BLOCK]; /* whether there is a slab for the term to be of, */
    int edge;                  /* and whether one is missing */
    real *kept;                /* forward: squares of `reach` slabs; backward: terms of twice as many, weighted of as many */
    int64_t length, src_ahead, diff_ahead; /* elements of a slab; bytes to what is prefetched */
    coefficients q;
    int streaming, finish; /* whether any slab of the block belongs to dst, or only what is kept of it counts */
    const cynorm_late *late; /* dst of the block before */
} block_t;

/* Elements stand by themselves here, so that two vectors of bfloat16 are taken at a time: the even and the odd ones. */
enum { FN(EVEN), FN(ODD), FN(ALL) };

CYNORM_INLINE vec FN(get_part)(const char *p, int dtype, int64_t n, int part) {
#if !CYNORM_DOUBLE
    if (part != FN(ALL)) return FN(get_half)(p, part == FN(ODD));
#endif
    (void)part;
    return FN(get)(p, dtype, n);
}

/* What is even waits for what is odd. */
CYNORM_INLINE void FN(put_part)(char *p, vec v, int dtype, int64_t n, int streaming, int part, vec *even) {
#if !CYNORM_DOUBLE
    if (part == FN(EVEN)) *even = v;
    else if (part == FN(ODD)) FN(put_halves)(p, *even, v, streaming);
    else
#endif
    FN(put_narrow)(p, v, dtype, n, streaming);
    (void)even, (void)part;
}

/* `together`: of how many slabs powers are taken at once; `even`: what put_part keeps of each. */

/* dst of slabs c to c+3, from src of slabs c to c+3+reach and the squares kept of those before */
CYNORM_INLINE void FN(block_forward)(const block_t *b, int64_t i, int64_t n, int dtype, int reach, int kind,
                                     int together, int part, vec *even) {
    const int64_t at = i * cynorm_itemsize(dtype);
    real *kept = b->kept + (i + (part == FN(ODD)) * VL) * reach;
    vec x[CYNORM_BLOCK + CYNORM_REACH], s[CYNORM_BLOCK + 2 * CYNORM_REACH];
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++) s[j] = FN(load)(kept + j * VL);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK + reach; j++) {
        x[j] = FN(get_part)(b->src[j] + at, dtype, n, part);
        s[reach + j] = x[j] * x[j];
    }
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++) FN(store)(kept + j * VL, s[CYNORM_BLOCK + j]);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j += together) {
        vec omega[CYNORM_BLOCK], out[CYNORM_BLOCK];
#pragma GCC unroll 8
        for (int k = 0; k < together; k++) {
            if (part != FN(ODD)) __builtin_prefetch(b->src[reach + j + k] + at + b->src_ahead, 0, 2);
            omega[k] = FN(omega_of)(&b->q, FN(sum_cells)(s + j + k, reach), n);
        }
        if (!b->finish) continue;
        FN(times_powers)(out, x + j, omega, together, kind, b->q.beta, dtype, NULL);
#pragma GCC unroll 8
        for (int k = 0; k < together; k++)
            FN(put_part)(b->dst[j + k] + at, out[k], dtype, n, b->streaming, part, &even[j + k]);
    }
}

CYNORM_INLINE void FN(blocks_forward)(const block_t *b, int dtype, int reach, int kind, int together) {
    const int64_t size = cynorm_itemsize(dtype);
    vec even[CYNORM_BLOCK] = {0};
    int64_t i = 0;
    if (dtype == CYNORM_BF16)
        for (; i + 2 * VL <= b->length; i += 2 * VL) {
            cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * size);
            FN(block_forward)(b, i, VL, dtype, reach, kind, together, FN(EVEN), even);
            FN(block_forward)(b, i, VL, dtype, reach, kind, together, FN(ODD), even);
        }
    for (; i + VL <= b->length; i += VL) {
        cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * size);
        FN(block_forward)(b, i, VL, dtype, reach, kind, together, FN(ALL), even);
    }
    if (i < b->length) FN(block_forward)(b, i, b->length - i, dtype, reach, kind, 1, FN(ALL), even);
}

/* Backward: diff_src of slabs c to c+3, from src of slabs c to c+3+2*reach, diff_dst of slabs c+reach to c+3+reach, in
 * three stages, which hand this on. */
#define passing_t FN(cynorm_lrn_passing)
typedef struct { vec omega[CYNORM_BLOCK], terms[CYNORM_BLOCK], weighted[CYNORM_BLOCK]; } passing_t;

CYNORM_INLINE void FN(block_omegas)(const block_t *b, passing_t *p, int64_t i, int64_t n, int dtype, int reach,
                                    int part) {
    const int64_t at = i * cynorm_itemsize(dtype);
    vec s[CYNORM_BLOCK + 2 * CYNORM_REACH];
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK + 2 * reach; j++) {
        const vec x = FN(get_part)(b->src[j] + at, dtype, n, part);
        s[j] = x * x;
    }
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j++) {
        if (part != FN(ODD)) __builtin_prefetch(b->src[2 * reach + j] + at + b->src_ahead, 0, 2);
        p->omega[j] = FN(omega_of)(&b->q, FN(sum_cells)(s + j, reach), n);
    }
}

CYNORM_INLINE void FN(block_terms)(const block_t *b, passing_t *p, int64_t i, int64_t n, int dtype, int reach, int kind,
                                   int together, int part) {
    const int64_t at = i * cynorm_itemsize(dtype);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j += together) {
        vec g[CYNORM_BLOCK], x[CYNORM_BLOCK];
#pragma GCC unroll 8
        for (int k = 0; k < together; k++) {
            if (part != FN(ODD)) __builtin_prefetch(b->diff_dst[j + k] + at + b->diff_ahead, 0, 2);
            g[k] = FN(get_part)(b->diff_dst[j + k] + at, dtype, n, part);
            x[k] = FN(get_part)(b->src[reach + j + k] + at, dtype, n, part);
        }
        FN(terms_of)(&b->q, p->terms + j, p->omega + j, g, x, NULL, together, kind, p->weighted + j);
    }
    if (__builtin_expect(b->edge, 0))
#pragma GCC unroll 8
        for (int j = 0; j < CYNORM_BLOCK; j++) p->terms[j] = (vec)((ivec)p->terms[j] & b->exists[j]);
}

CYNORM_INLINE void FN(block_finish)(const block_t *b, const passing_t *p, int64_t i, int64_t n, int dtype, int reach,
                                    int part, vec *even) {
    const int64_t at = i * cynorm_itemsize(dtype);
    real *kept = b->kept + (i + (part == FN(ODD)) * VL) * 3 * reach;
    vec terms[CYNORM_BLOCK + 2 * CYNORM_REACH], weighted[CYNORM_BLOCK + CYNORM_REACH];
#pragma GCC unroll 8
    for (int j = 0; j < 2 * reach; j++) terms[j] = FN(load)(kept + j * VL);
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++) weighted[j] = FN(load)(kept + (2 * reach + j) * VL);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j++) terms[2 * reach + j] = p->terms[j], weighted[reach + j] = p->weighted[j];
#pragma GCC unroll 8
    for (int j = 0; j < 2 * reach; j++) FN(store)(kept + j * VL, terms[CYNORM_BLOCK + j]);
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++) FN(store)(kept + (2 * reach + j) * VL, weighted[CYNORM_BLOCK + j]);
    if (!b->finish) return;
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j++) {
        const vec x = FN(get_part)(b->src[j] + at, dtype, n, part);
        const vec out = FN(diff_src_of)(&b->q, x, FN(sum_cells)(terms + j, reach), weighted[j]);
        FN(put_part)(b->dst[j] + at, out, dtype, n, b->streaming, part, even + j);
    }
}

CYNORM_INLINE void FN(block_backward)(const block_t *b, int64_t i, int64_t n, int dtype, int reach, int kind,
                                      int together) {
    passing_t p;
    FN(block_omegas)(b, &p, i, n, dtype, reach, FN(ALL));
    FN(block_terms)(b, &p, i, n, dtype, reach, kind, together, FN(ALL));
    FN(block_finish)(b, &p, i, n, dtype, reach, FN(ALL), NULL);
}

/* Where memory is the limit, the stages of a vector, each a step after the one before: what comes late holds up nothing else. */
CYNORM_INLINE int64_t FN(blocks_backward_late)(const block_t *b, int dtype, int reach, int kind, int together) {
    const int64_t steps = b->length / VL;
    passing_t p = {{{0}}};
    for (int64_t t = 0; t < steps + 2; t++) {
        cynorm_send_late(b->late, 0, CYNORM_BLOCK, t * VL * cynorm_itemsize(dtype));
        if (t >= 2) FN(block_finish)(b, &p, (t - 2) * VL, VL, dtype, reach, FN(ALL), NULL);
        if (t >= 1 && t <= steps) FN(block_terms)(b, &p, (t - 1) * VL, VL, dtype, reach, kind, together, FN(ALL));
        if (t < steps) FN(block_omegas)(b, &p, t * VL, VL, dtype, reach, FN(ALL));
    }
    return steps * VL;
}

/* Where arithmetic is, those of two vectors of each slab side by side: their addresses are taken once. */
CYNORM_INLINE int64_t FN(blocks_backward_abreast)(const block_t *b, int dtype, int reach, int kind, int together) {
    const int halves = dtype == CYNORM_BF16, one = halves ? FN(EVEN) : FN(ALL), other = halves ? FN(ODD) : FN(ALL);
    const int64_t size = cynorm_itemsize(dtype), apart = halves ? 0 : VL;
    passing_t p, q;
    vec even[CYNORM_BLOCK];
    int64_t i = 0;
    for (; i + 2 * VL <= b->length; i += 2 * VL) {
        cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * size);
        if (!halves) cynorm_send_late(b->late, 0, CYNORM_BLOCK, (i + VL) * size);
        FN(block_omegas)(b, &p, i, VL, dtype, reach, one);
        FN(block_omegas)(b, &q, i + apart, VL, dtype, reach, other);
        FN(block_terms)(b, &p, i, VL, dtype, reach, kind, together, one);
        FN(block_terms)(b, &q, i + apart, VL, dtype, reach, kind, together, other);
        FN(block_finish)(b, &p, i, VL, dtype, reach, one, even);
        FN(block_finish)(b, &q, i + apart, VL, dtype, reach, other, even);
    }
    return i;
}

CYNORM_INLINE void FN(blocks_backward)(const block_t *b, int dtype, int reach, int kind, int together) {
    int64_t i;
    if (CYNORM_BLOCKS_LATE && dtype == CYNORM_COMPUTE) i = FN(blocks_backward_late)(b, dtype, reach, kind, together);
    else i = FN(blocks_backward_abreast)(b, dtype, reach, kind, together);
    if (i + VL <= b->length) {
        cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * cynorm_itemsize(dtype));
        FN(block_backward)(b, i, VL, dtype, reach, kind, together);
        i += VL;
    }
    if (i < b->length) FN(block_backward)(b, i, b->length - i, dtype, reach, kind, 1);
}

/* ---- windows along level 0 ---- */

#define rows_t FN(cynorm_lrn_rows)
#define row_loop_t FN(cynorm_lrn_row_loop)
#define strip_t FN(cynorm_lrn_row_strip)
typedef struct { int64_t row, rows, from, to, most; } strip_t; /* vectors [from, to) of rows; most: how many rows */
/* dst past the cache, where lines begin within its vectors: a line is the end of one and what begins the next. */
#define across_t FN(cynorm_lrn_across)
typedef struct {
    vec before;                 /* the vector before, as it is stored */
    ivec lanes;                 /* of both, those of a line */
    int64_t first;              /* how many of a vector come before the next line */
    char *begin, *end;          /* of the run: rows that follow one another */
} across_t;
struct FN(cynorm_lrn_rows);
typedef void row_loop_t(const struct FN(cynorm_lrn_rows) *, const strip_t *, int64_t from, int64_t to, vec *);
typedef struct FN(cynorm_lrn_rows) {
    const char *src, *diff_dst, *y;
    char *dst;
    /* bytes from a vector of a row to the next, from a row to the next, to the slab that is prefetched */
    int64_t src_step, diff_step, y_step, dst_step, src_pitch, diff_pitch, y_pitch, dst_pitch, src_ahead, diff_ahead;
    int64_t rows, vectors, last, strip; /* vectors of a row, lanes of its last one; vectors at once */
    window_t window; /* where its reach is no constant */
    int64_t left, right, margin; /* of it; vectors that windows reach beyond a strip */
    coefficients q;
    int streaming, halves; /* whether "a vector" is two that lie side by side, their even elements and their odd ones */
    int whole; /* whether all vectors are */
    int src_flat, diff_flat, y_flat, dst_flat; /* whether rows follow one another as vectors do */
    int columns; /* whether loops that know no window may go by columns */
    int late; /* of a wide window: how many steps its sums are */
    across_t *across; /* or NULL */
    row_loop_t *omegas, *powers, *results; /* `powers`: of omega, into dst or, backward, into terms */
    row_loop_t *both;                      /* omegas and powers at once, or NULL */
} rows_t;

/* Rows go by strips: some of them or, of a long one, vectors [from, to). Window sums, powers and results have
 * loops of their own, so short that the core looks several vectors ahead, or the first two one loop (omegas_and); what
 * one leaves for the next lies in the first-level cache, row after row. Where strips meet in a row, what the windows reach
 * is made twice. Sums of a wide window, which are late, run on from row to row: there a vector of zeros lies behind each,
 * which none reaches across.
 * How many instructions there are is the limit, those that move registers and count vectors too. */
enum { FN(STRIP_MARGIN) = 2 * CYNORM_PIECES }; /* more than windows reach and sums are late */
enum { FN(STRIP_VECTORS) = CYNORM_ROW_STRIP / VL + 2 * FN(STRIP_MARGIN) };
enum { FN(WEIGHTED) = FN(STRIP_VECTORS) }; /* from a term to what its diff_dst adds to diff_src */

CYNORM_INLINE strip_t FN(strips_of)(const rows_t *r) {
    const int64_t each = r->vectors + r->margin;
    return (strip_t){0, 0, 0, r->vectors, each < r->strip ? r->strip / each : 1};
}

CYNORM_INLINE int FN(next_strip)(strip_t *s, const rows_t *r) {
    s->from = s->to;
    if (s->from == r->vectors) s->row += s->rows, s->from = 0;
    s->rows = r->rows - s->row < s->most ? r->rows - s->row : s->most;
    s->to = r->vectors - s->from < r->strip ? r->vectors : s->from + r->strip;
    return s->rows > 0;
}

/* Lanes of vector v of a row; `whole` says that all vectors are. */
CYNORM_INLINE int64_t FN(lanes)(const rows_t *r, int64_t v, int whole) {
    return whole || v < r->vectors - 1 ? VL : r->last;
}

/* Several vectors at once: by halves two, the even and the odd elements of the one at p; else that and the next ones. */
CYNORM_INLINE vec FN(get_of_some)(const char *p, int64_t step, int k, int dtype, int64_t n, int halves) {
    return halves ? FN(get_part)(p, dtype, n, k ? FN(ODD) : FN(EVEN)) : FN(get)(p + k * step, dtype, n);
}

CYNORM_INLINE void FN(put_of_some)(char *p, int64_t step, const vec *v, int count, int dtype, int64_t n, int streaming,
                                  int halves) {
    vec even;
    for (int k = 0; k < count; k++) {
        const int part = !halves ? FN(ALL) : k ? FN(ODD) : FN(EVEN);
        FN(put_part)(p + (halves ? 0 : k * step), v[k], dtype, n, streaming, part, &even);
    }
}

/* Bytes that the loops store at once; whether these may lie across lines. */
CYNORM_INLINE int64_t FN(bytes_at_once)(int dtype, int halves) { return VL * cynorm_itemsize(dtype) * (1 + halves); }
CYNORM_INLINE int FN(may_cross)(int dtype, int halves) {
    return CYNORM_PICKS && (CYNORM_VBYTES == 64 || FN(bytes_at_once)(dtype, halves) == CYNORM_VBYTES);
}

#if CYNORM_PICKS
/* A result of a half type, or two by halves, as they are stored. */
CYNORM_INLINE vec FN(stored)(const vec *out, int dtype, int halves) {
#if !CYNORM_DOUBLE
    if (halves) return (vec)FN(halves)(out[0], out[1]);
#ifdef __AVX512F__
    if (dtype == CYNORM_BF16) return (vec)_mm512_castsi256_si512((__m256i)FN(pack_bf16)(out[0]));
    if (dtype == CYNORM_F16) return (vec)_mm512_castsi256_si512((__m256i)FN(pack_f16)(out[0]));
#endif
#endif
    (void)dtype, (void)halves;
    return out[0];
}

/* The `bytes` of a line, or of half of one, that end a stored vector and begin the next. */
CYNORM_INLINE vec FN(across_of)(const across_t *a, vec next, int64_t bytes) {
#if defined(__AVX512F__) && !CYNORM_DOUBLE
    if (bytes == 32) {
#define HALF(v) _mm512_castsi512_si256((__m512i)(v))
        return (vec)_mm512_castsi256_si512(_mm256_permutex2var_epi32(HALF(a->before), HALF(a->lanes), HALF(next)));
#undef HALF
    }
#endif
    (void)bytes;
    return FN(picked)(a->before, next, a->lanes);
}
#endif

CYNORM_INLINE void FN(put_across)(across_t *a, char *p, const vec *out, int dtype, int halves) {
#if CYNORM_PICKS
    const int64_t bytes = FN(bytes_at_once)(dtype, halves);
    const vec v = FN(stored)(out, dtype, halves), line = FN(across_of)(a, v, bytes);
    if (__builtin_expect(p == a->begin, 0)) FN(put)(p, v, CYNORM_COMPUTE, a->first);
    else cynorm_stream((char *)((intptr_t)p & -bytes), &line, (size_t)bytes);
    a->before = v;
#else
    (void)a, (void)p, (void)out, (void)dtype, (void)halves;
#endif
}

/* Before a row at dst, or none: unless it follows on, what the last vector has beyond its last line, and a new run. */
static void FN(go_across)(across_t *a, char *dst, int64_t bytes) {
#if CYNORM_PICKS
    const int64_t size = (int64_t)sizeof(real), lanes = bytes / size, left = lanes - a->first;
    if (dst && dst == a->end) return;
    if (a->end) FN(put)(a->end - left * size, FN(across_of)(a, a->before, bytes), CYNORM_COMPUTE, left);
    a->first = (-(intptr_t)dst & (bytes - 1)) / size;
    if (!a->first) a->first = lanes;
    a->lanes = FN(lanes_from)(a->first);
    a->begin = dst;
#else
    (void)a, (void)dst, (void)bytes;
#endif
}

/* So that the compiler goes on with a pointer where a loop leaves it, instead of making it anew. */
#define KEEP(p) __asm__("" : "+r"(p))

/* Loops that know no window take vectors as they lie in memory, by lines: all rows, where these follow one another; else
 * rows or, where these are shorter, columns: then steps and pitches change places. */
#define lines_t FN(cynorm_lrn_lines)
typedef struct {
    int64_t first, lines, from, vectors, full; /* of the operands; of a line, and as many of these are whole */
    int64_t line, apart; /* in scratch, from a line to the next, from a vector to the next */
} lines_t;

CYNORM_INLINE lines_t FN(rows_as_lines)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, int flat, int whole,
                                        int halves) {
    const int64_t width = to - from, full = whole || r->whole || to < r->vectors ? width : width - 1;
    if (flat) return (lines_t){s->row, 1, from, s->rows * width, s->rows * width, 0, 1};
    return (lines_t){s->row, s->rows, from, width, full, width * (1 + halves) + (r->late > 0), 1};
}

CYNORM_INLINE lines_t FN(columns_as_lines)(rows_t *r, const strip_t *s, int64_t from, int64_t to) {
#define TURN(name)                                                                                             \
    const int64_t name = r->name##_step;                                                                       \
    r->name##_step = r->name##_pitch, r->name##_pitch = name
    TURN(src);
    TURN(diff);
    TURN(dst);
#undef TURN
    return (lines_t){from, to - from, s->row, s->rows, s->rows, 1, to - from};
}

/* Whether the loops for whole vectors go by columns. */
CYNORM_INLINE int FN(by_columns)(const rows_t *r, const strip_t *s, int64_t from, int64_t to) {
    return r->columns && to - from < s->rows;
}

CYNORM_INLINE void FN(powers_of_some)(const rows_t *r, across_t *across, const char *src, char *dst, const vec *omega,
                                     int64_t apart, int64_t n, int count, int dtype, int kind, int halves, int crossing) {
    vec x[CYNORM_TOGETHER], all[CYNORM_TOGETHER], out[CYNORM_TOGETHER];
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) {
        x[k] = FN(get_of_some)(src, r->src_step, k, dtype, n, halves);
        all[k] = FN(part)(omega[k * apart], FN(splat)(1), n);
    }
    FN(times_powers)(out, x, all, count, kind, r->q.beta, dtype, NULL);
    if (crossing)
        for (int k = 0; k < count; k += 1 + halves) FN(put_across)(across, dst + k * r->dst_step, out + k, dtype, halves);
    else FN(put_of_some)(dst, r->dst_step, out, count, dtype, n, r->streaming, halves);
}

/* dst of vectors [from, to) of the strip's rows; `crossing`: r->across */
CYNORM_INLINE void FN(powers_of)(const rows_t *given, const strip_t *s, int64_t from, int64_t to, const vec *omega,
                                 int dtype, int kind, int whole, int halves, int columns, int crossing) {
    rows_t copy = *given;
    const lines_t l = columns ? FN(columns_as_lines)(&copy, s, from, to)
                              : FN(rows_as_lines)(&copy, s, from, to, given->src_flat && given->dst_flat, whole, halves);
    const rows_t *r = &copy;
    const int64_t apart = columns ? l.apart : 1;
    across_t across = {.end = NULL};
    if (crossing) across = *r->across;
    for (int64_t i = 0; i < l.lines; i++) {
        const char *src = r->src + (l.first + i) * r->src_pitch + l.from * r->src_step;
        char *dst = r->dst + (l.first + i) * r->dst_pitch + l.from * r->dst_step;
        const vec *at = omega + i * l.line;
        int64_t v = 0;
#define ADVANCE(count)                                                                                         \
    for (int k = 0; k < (halves ? 1 : count); k++) v++, src += r->src_step, dst += r->dst_step;                \
    at += (count) * apart
#define SOME(until, n, count)                                                                                   \
    while (v < (until)) {                                                                                      \
        FN(powers_of_some)(r, &across, src, dst, at, apart, n, count, dtype, kind, halves, crossing);           \
        ADVANCE(count);                                                                                        \
    }
        if (!halves && kind == CYNORM_BETA_ANY) SOME(l.full - 3, VL, CYNORM_TOGETHER) /* a longer chain */
        if (!halves) SOME(l.full - 1, VL, 2)
        SOME(l.vectors, whole || v < l.full ? VL : r->last, 1 + halves)
#undef ADVANCE
#undef SOME
    }
    if (crossing) *r->across = across;
}

CYNORM_INLINE void FN(strip_powers)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, const vec *omega,
                                    int dtype, int kind, int whole, int halves, int columns) {
    if (FN(may_cross)(dtype, halves) && !columns && r->across)
        FN(powers_of)(r, s, from, to, omega, dtype, kind, whole, halves, columns, 1);
    else FN(powers_of)(r, s, from, to, omega, dtype, kind, whole, halves, columns, 0);
}

CYNORM_INLINE void FN(terms_of_some)(const rows_t *r, const char *src, const char *diff, const char *y, vec *term,
                                    int64_t apart, int64_t n, int count, int dtype, int kind, int halves) {
    vec x[CYNORM_TOGETHER], g[CYNORM_TOGETHER], omega[CYNORM_TOGETHER], given[CYNORM_TOGETHER];
    vec t[CYNORM_TOGETHER], weighted[CYNORM_TOGETHER];
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) {
        if (!k || !halves) {
            __builtin_prefetch(diff + k * r->diff_step + r->diff_ahead, 0, 2);
            __builtin_prefetch(diff + k * r->diff_step + CYNORM_ROW_NEAR, 0, 3);
        }
        x[k] = FN(get_of_some)(src, r->src_step, k, dtype, n, halves);
        g[k] = FN(get_of_some)(diff, r->diff_step, k, dtype, n, halves);
        omega[k] = FN(part)(term[k * apart], FN(splat)(1), n);
        given[k] = y ? FN(get)(y, dtype, n) : x[k];
    }
    FN(terms_of)(&r->q, t, omega, g, x, y ? given : NULL, count, kind, weighted);
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) {
        term[k * apart] = FN(part)(t[k], (vec){0}, n);
        term[FN(WEIGHTED) + k * apart] = weighted[k];
    }
}

/* In place of omega, the terms of vectors [from, to) of the strip's rows. */
CYNORM_INLINE void FN(strip_terms)(const rows_t *given, const strip_t *s, int64_t from, int64_t to, vec *term,
                                   int dtype, int kind, int whole, int halves, int columns) {
    const int flat = given->src_flat && given->diff_flat && (whole || !given->y || given->y_flat);
    rows_t copy = *given;
    const lines_t l = columns ? FN(columns_as_lines)(&copy, s, from, to)
                              : FN(rows_as_lines)(&copy, s, from, to, flat, whole, halves);
    const rows_t *r = &copy;
    const int64_t apart = columns ? l.apart : 1;
    for (int64_t i = 0; i < l.lines; i++) {
        const char *src = r->src + (l.first + i) * r->src_pitch + l.from * r->src_step;
        const char *diff = r->diff_dst + (l.first + i) * r->diff_pitch + l.from * r->diff_step;
        const char *y = whole || !r->y ? NULL : r->y + (l.first + i) * r->y_pitch + l.from * r->y_step;
        vec *at = term + i * l.line;
        int64_t v = 0;
#define ADVANCE(count)                                                                                         \
    for (int k = 0; k < (halves ? 1 : count); k++) v++, src += r->src_step, diff += r->diff_step;              \
    if (y) y += r->y_step;                                                                                     \
    at += (count) * apart
#define SOME(until, n, count)                                                                                   \
    while (v < (until)) {                                                                                      \
        FN(terms_of_some)(r, src, diff, y, at, apart, n, count, dtype, kind, halves);                           \
        ADVANCE(count);                                                                                        \
    }
        if (!halves && !y && kind == CYNORM_BETA_ANY) SOME(l.full - 3, VL, CYNORM_TOGETHER)
        if (!halves && !y) SOME(l.full - 1, VL, 2)
        SOME(l.vectors, whole || v < l.full ? VL : r->last, 1 + halves)
#undef ADVANCE
#undef SOME
        if (r->late) *at = (vec){0};
    }
    for (int j = 0; j < r->late; j++) term[l.lines * l.line + j] = (vec){0};
}

/* Whether sums and powers may share a loop, for which there are registers, or whose divider leaves time; terms of half types
 * lose. */
CYNORM_INLINE int FN(may_share)(int dtype, int backward) {
    return dtype == CYNORM_COMPUTE ? CYNORM_BLOCKS_LATE || !CYNORM_ESTIMATES : CYNORM_BLOCKS_LATE && !backward;
}

/* What else the loop for omegas does. */
enum { FN(ALONE), FN(AND_POWERS), FN(AND_TERMS) };

/* omega of vectors [from, to) of the strip's rows; other vectors before it and behind it are spoilt. `more`: powers into dst,
 * or terms in place of omega, where rows are whole and follow one another in memory; of what was left CYNORM_ROW_LAG vectors
 * before, so that no chain is longer than a core sees ahead. `crossing`: r->across */
CYNORM_INLINE void FN(omegas_and)(int more, const rows_t *given, const strip_t *of, int64_t from, int64_t to, vec *omega,
                                  int dtype, int reach, int kind, int whole, int halves, int crossing) {
    const rows_t copy = *given, *r = &copy; /* which no store might alias */
    const strip_t strip = *of, *s = &strip;
    const int64_t begin = from - (from > 0), end = to + (to < r->vectors); /* of the windows */
    sums_t sums = {0};
    vec next[2], sum[2];
    vec *done = omega, *const last = omega + s->rows * (to - from) * (1 + halves);
    const char *of_done = r->src + s->row * r->src_pitch + from * r->src_step;
    const char *diff = more == FN(AND_TERMS) ? r->diff_dst + s->row * r->diff_pitch + from * r->diff_step : NULL;
    char *dst = more == FN(AND_POWERS) ? r->dst + s->row * r->dst_pitch + from * r->dst_step : NULL;
    across_t across = {.end = NULL};
    if (crossing) across = *r->across;
    omega += begin - from - (reach > 0 ? 0 : FN(late)(reach)) + (begin - from) * halves;
#define NEXT                                                                                                   \
    EACH_HALF next[h] = FN(get_of_some)(src, 0, h, dtype, FN(lanes)(r, v, whole), halves);                      \
    EACH_HALF next[h] *= next[h];                                                                              \
    __builtin_prefetch(src + r->src_ahead, 0, 2);                                                              \
    __builtin_prefetch(src + CYNORM_ROW_NEAR, 0, 3);                                                           \
    src += r->src_step, v++
#define SUM                                                                                                    \
    if (reach > 0) FN(narrow_sums)(sum, &sums, next, reach, halves);                                           \
    else sum[0] = FN(wide_sum)(&sums, next[0], &r->window, reach, 0)
#define PUT EACH_HALF *omega++ = FN(omega_of)(&r->q, sum[h], VL)
#define MORE(count)                                                                                            \
    if (more == FN(AND_TERMS)) FN(terms_of_some)(r, of_done, diff, NULL, done, 1, VL, count, dtype, kind, halves); \
    else FN(powers_of_some)(r, &across, of_done, dst, done, 1, VL, count, dtype, kind, halves, crossing);       \
    done += count, of_done += (halves ? 1 : count) * r->src_step;                                              \
    if (more == FN(AND_TERMS)) diff += (halves ? 1 : count) * r->diff_step;                                    \
    else dst += (halves ? 1 : count) * r->dst_step
#define MAY_DO_MORE (more && omega - done >= CYNORM_ROW_LAG + 2 + 2 * halves)
    const char *src = r->src + s->row * r->src_pitch + begin * r->src_step;
    const int64_t src_gap = r->src_pitch - (end - begin) * r->src_step, steps = end - begin - (reach > 0);
    for (int64_t i = 0; i < s->rows; i++, src += src_gap) {
        int64_t v = begin;
        if (reach > 0) {
            NEXT;
            SUM;
        }
#pragma GCC unroll 1
        for (int64_t j = steps >> 1; j; j--) { /* by two vectors: what is kept of one need not move for the next */
            KEEP(src);
            KEEP(omega);
            NEXT;
            SUM;
            PUT;
            NEXT;
            SUM;
            PUT;
            if (!MAY_DO_MORE) continue;
            KEEP(done);
            MORE(2);
            if (halves) {
                MORE(2);
            }
        }
        if (steps & 1) {
            NEXT;
            SUM;
            PUT;
        }
        EACH_HALF next[h] = (vec){0};
        if (to == r->vectors) {
            SUM;
            PUT;
        }
        while (MAY_DO_MORE) {
            MORE(2);
        }
    }
    for (int j = 1; j < FN(late)(reach); j++) {
        SUM;
        PUT;
    }
    while (more && done < last - 1) {
        MORE(2);
    }
    if (more && !halves && done < last) {
        MORE(1);
    }
    if (crossing) *r->across = across;
#undef NEXT
#undef SUM
#undef PUT
#undef MORE
#undef MAY_DO_MORE
}

CYNORM_INLINE void FN(strip_omegas)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, vec *omega, int dtype,
                                    int reach, int whole, int halves) {
    FN(omegas_and)(FN(ALONE), r, s, from, to, omega, dtype, reach, 0, whole, halves, 0);
}

/* dst of the strip, whose terms begin at vector `from` and end at `to`; `crossing`: r->across */
CYNORM_INLINE void FN(results_of)(const rows_t *given, const strip_t *of, int64_t from, int64_t to, const vec *term,
                                  int dtype, int reach, int whole, int halves, int streaming, int crossing) {
    const rows_t copy = *given, *r = &copy;
    const strip_t strip = *of, *s = &strip;
    sums_t sums = {0};
    vec sum[2], out[2];
    across_t across = {.end = NULL};
    if (crossing) across = *r->across;
    (void)to;
#define SUM(cells)                                                                                             \
    if (reach > 0) FN(narrow_sums)(sum, &sums, cells, reach, halves);                                          \
    else sum[0] = FN(wide_sum)(&sums, (cells)[0], &r->window, reach, 1)
#define NEXT                                                                                                   \
    SUM(term);                                                                                                 \
    term += 1 + halves
#define PUT(at)                                                                                                \
    EACH_HALF {                                                                                                \
        const vec x = FN(get_of_some)(src, 0, h, dtype, FN(lanes)(r, v, whole), halves);                        \
        out[h] = FN(diff_src_of)(&r->q, x, sum[h], (at)[FN(WEIGHTED) + h]);                                    \
    }                                                                                                          \
    if (crossing) FN(put_across)(&across, dst, out, dtype, halves);                                            \
    else FN(put_of_some)(dst, 0, out, 1 + halves, dtype, FN(lanes)(r, v, whole), streaming, halves);            \
    src += r->src_step, dst += r->dst_step, v++
#define PUT_LATE PUT(term - (1 + FN(late)(reach)) * (1 + halves))
    const int64_t vectors = s->to - s->from, steps = vectors - (reach > 0 && s->to == r->vectors);
    const int64_t src_gap = r->src_pitch - vectors * r->src_step, dst_gap = r->dst_pitch - vectors * r->dst_step;
    const char *src = r->src + s->row * r->src_pitch + s->from * r->src_step;
    char *dst = r->dst + s->row * r->dst_pitch + s->from * r->dst_step;
    if (reach < 0)
        for (int64_t v = from - FN(late)(reach); v < s->from; v++) {
            NEXT;
        }
    for (int64_t i = 0; i < s->rows; i++, src += src_gap, dst += dst_gap) {
        int64_t v = s->from;
        if (reach > 0) {
            NEXT;
            if (from < s->from) {
                NEXT;
            }
        }
#pragma GCC unroll 1
        for (int64_t j = steps >> 1; j; j--) {
            KEEP(src);
            KEEP(dst);
            KEEP(term);
            NEXT;
            PUT_LATE;
            NEXT;
            PUT_LATE;
        }
        if (steps & 1) {
            NEXT;
            PUT_LATE;
        }
        if (reach < 0) {
            NEXT; /* of the zeros */
        } else if (s->to == r->vectors) {
            const vec zeros[2] = {{0}};
            SUM(zeros);
            PUT(term - (1 + halves));
        }
    }
    if (crossing) *r->across = across;
#undef SUM
#undef NEXT
#undef PUT
#undef PUT_LATE
}

CYNORM_INLINE void FN(strip_results)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, const vec *term,
                                     int dtype, int reach, int whole, int halves) {
    if (FN(may_cross)(dtype, halves) && whole && r->across)
        FN(results_of)(r, s, from, to, term, dtype, reach, whole, halves, 1, 1);
    else if (r->streaming) FN(results_of)(r, s, from, to, term, dtype, reach, whole, halves, 1, 0);
    else FN(results_of)(r, s, from, to, term, dtype, reach, whole, halves, 0, 0);
}

#if CYNORM_FAR_SERVES
/* Windows that reach further: the rows of a strip lie in scratch, each between zeros or, where it goes on, what cells it has
 * there. Of all at once S_4 is made; other sums of the tree are made of these as they are needed, since loads are cheaper than
 * stores. */
#define far_t FN(cynorm_lrn_far)
enum { FN(FAR_REALS) = CYNORM_ROW_STRIP + 4 * CYNORM_FAR + 2 * VL };
typedef struct {
    real cells[VL + FN(FAR_REALS)], fours[FN(FAR_REALS)]; /* the former from VL on: what lies before is read, but not used */
    int64_t pitch, rows, first; /* reals from a row to the next; rows; reals to the first cell whose sum is asked for */
} __attribute__((aligned(64))) far_t;

/* S_m that ends at `at`, m a constant of 4 or more */
CYNORM_INLINE vec FN(far_tree)(const real *fours, int64_t at, int m) {
    if (m == 4) return FN(load)(fours + at);
    if (m == 8) return FN(load)(fours + at) + FN(load)(fours + at - 4);
    if (m == 16) return FN(far_tree)(fours, at, 8) + FN(far_tree)(fours, at - 8, 8);
    return FN(far_tree)(fours, at, 16) + FN(far_tree)(fours, at - 16, 16);
}

/* The window of n cells, a constant, that ends at `at`. */
CYNORM_INLINE vec FN(far_sum)(const far_t *f, int64_t at, int n) {
    const real *cell = f->cells + VL + at;
    int done = n & 3;
    vec sum = {0};
    if (done == 1) sum = FN(load)(cell);
    if (done == 2) sum = FN(load)(cell) + FN(load)(cell - 1);
    if (done == 3) sum = FN(load)(cell) + (FN(load)(cell - 1) + FN(load)(cell - 2));
#pragma GCC unroll 4
    for (int m = 4; m <= 32; m *= 2)
        if (n & m) {
            const vec piece = FN(far_tree)(f->fours, at - done, m);
            sum = done ? sum + piece : piece;
            done += m;
        }
    return sum;
}

CYNORM_INLINE void FN(far_sums_of)(const far_t *f, int64_t right, int64_t width, vec *out, int omegas,
                                   const coefficients *q, int n) {
    const coefficients copy = *q; /* which no store might alias */
    for (int64_t i = 0; i < f->rows; i++) {
        const int64_t at = i * f->pitch + f->first + right;
        for (int64_t v = 0; v < width; v++) {
            const vec sum = FN(far_sum)(f, at + v * VL, n);
            *out++ = omegas ? FN(omega_of)(&copy, sum, VL) : sum;
        }
    }
}

/* out = the sums of windows, or omega, of `width` vectors of each row */
CYNORM_INLINE void FN(far_sums)(far_t *f, int64_t left, int64_t right, int64_t width, vec *out, int omegas,
                                const coefficients *q) {
    for (int64_t i = 0; i < f->first + f->rows * f->pitch; i += VL) {
        const real *c = f->cells + VL + i;
        FN(store)(f->fours + i, (FN(load)(c) + FN(load)(c - 1)) + (FN(load)(c - 2) + FN(load)(c - 3)));
    }
#define CASE(n) case n: FN(far_sums_of)(f, right, width, out, omegas, q, n); break;
#define CASES(n) CASE(n) CASE(n + 1) CASE(n + 2) CASE(n + 3)
    switch (left + right + 1) {
        CASE(2) CASE(3) CASES(4) CASES(8) CASES(12) CASES(16) CASES(20) CASES(24) CASES(28) CASE(32) CASE(33)
    }
#undef CASES
#undef CASE
}

static __attribute__((noinline)) void FN(far_to_omegas)(far_t *f, const rows_t *r, int64_t width, vec *out) {
    FN(far_sums)(f, r->left, r->right, width, out, 1, &r->q);
}
static __attribute__((noinline)) void FN(far_to_sums)(far_t *f, const rows_t *r, int64_t width, vec *out) {
    FN(far_sums)(f, r->right, r->left, width, out, 0, &r->q);
}

/* omega of vectors [from, to) of the strip's rows */
CYNORM_INLINE void FN(far_omegas)(const rows_t *given, const strip_t *s, int64_t from, int64_t to, vec *omega, int dtype,
                                  int whole) {
    far_t f;
    const rows_t copy = *given, *r = &copy; /* which no store might alias */
    const int64_t gap = r->margin, begin = from > gap ? from - gap : 0, end = r->vectors - to > gap ? to + gap : r->vectors;
    f.pitch = (to - from + gap) * VL, f.rows = s->rows, f.first = gap * VL;
    for (int64_t i = 0; i < s->rows; i++) {
        const char *src = r->src + (s->row + i) * r->src_pitch + begin * r->src_step;
        real *out = f.cells + VL + i * f.pitch;
        for (int64_t v = from - gap; v < begin; v++, out += VL) FN(store)(out, (vec){0});
        for (int64_t v = begin; v < end; v++, out += VL, src += r->src_step) {
            __builtin_prefetch(src + r->src_ahead, 0, 2);
            __builtin_prefetch(src + CYNORM_ROW_NEAR, 0, 3);
            const vec x = FN(get)(src, dtype, FN(lanes)(r, v, whole));
            FN(store)(out, x * x);
        }
        for (int64_t v = end; v < to + gap; v++, out += VL) FN(store)(out, (vec){0});
    }
    FN(far_to_omegas)(&f, r, to - from, omega);
}

/* dst of the strip, whose terms begin at vector `from` and end at `to` */
CYNORM_INLINE void FN(far_results)(const rows_t *given, const strip_t *s, int64_t from, int64_t to, vec *term, int dtype,
                                   int whole) {
    far_t f;
    const rows_t copy = *given, *r = &copy;
    const int64_t gap = r->margin, width = s->to - s->from, before = s->from - from;
    f.pitch = (to - from + gap) * VL, f.rows = s->rows, f.first = (gap + before) * VL;
    for (int64_t i = 0; i < s->rows; i++) {
        real *out = f.cells + VL + i * f.pitch;
        memset(out, 0, (size_t)(gap * VL) * sizeof(real));
        memcpy(out + gap * VL, term + i * (to - from), (size_t)(to - from) * sizeof(vec));
    }
    memset(f.cells + VL + s->rows * f.pitch, 0, (size_t)(gap * VL) * sizeof(real));
    FN(far_to_sums)(&f, r, width, term);
    const vec *weighted = term + FN(WEIGHTED) + before;
    across_t across = {.end = NULL};
    if (r->across) across = *r->across;
    for (int64_t i = 0; i < s->rows; i++, weighted += to - from - width) {
        const char *src = r->src + (s->row + i) * r->src_pitch + s->from * r->src_step;
        char *dst = r->dst + (s->row + i) * r->dst_pitch + s->from * r->dst_step;
        for (int64_t v = s->from; v < s->to; v++, src += r->src_step, dst += r->dst_step) {
            const int64_t n = FN(lanes)(r, v, whole);
            const vec out = FN(diff_src_of)(&r->q, FN(get)(src, dtype, n), *term++, *weighted++);
            if (FN(may_cross)(dtype, 0) && r->across) FN(put_across)(&across, dst, &out, dtype, 0);
            else FN(put_narrow)(dst, out, dtype, n, r->streaming);
        }
    }
    if (r->across) *r->across = across;
}
#undef far_t
#endif

/* Omegas of a strip, then powers. */
static void FN(strip_to_powers)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, vec *at) {
    if (r->both) {
        r->both(r, s, from, to, at);
        return;
    }
    r->omegas(r, s, from, to, at);
    r->powers(r, s, from, to, at);
}

static void FN(rows_forward)(const rows_t *r) {
    vec scratch[FN(STRIP_VECTORS)], *const omega = scratch + FN(STRIP_MARGIN);
    for (strip_t s = FN(strips_of)(r); FN(next_strip)(&s, r);) FN(strip_to_powers)(r, &s, s.from, s.to, omega);
}

static void FN(rows_backward)(const rows_t *r) {
    vec scratch[2 * FN(STRIP_VECTORS)], *const term = scratch + FN(STRIP_MARGIN);
    for (strip_t s = FN(strips_of)(r); FN(next_strip)(&s, r);) {
        const int64_t from = s.from > r->margin ? s.from - r->margin : 0; /* what windows reach */
        const int64_t to = r->vectors - s.to > r->margin ? s.to + r->margin : r->vectors;
        FN(strip_to_powers)(r, &s, from, to, term);
        r->results(r, &s, from, to, term);
    }
}
#undef EACH_HALF
#undef KEEP

/* ---- windows along level 0 and the stream: planes whose rows lie one after the other ---- */

/* The rows of scratch lie side by side as those of memory do: a window's rows are as many steps of a row apart,
 * and what goes across them goes by whole vectors and lines of the plane, wherever its rows begin. */
#define plane_t FN(cynorm_lrn_plane)
typedef struct {
    int64_t width;
    const char *from; /* sums along rows: of what, how many rows, bytes from one to the next; to where */
    int64_t rows, pitch;
    real *out;
    const char *src, *diff_dst; /* across rows: of a run, `length` elements */
    char *dst;
    real *sums, *weighted; /* the sums along rows, from the first row of the first window on */
    int64_t length;
    int64_t src_ahead, diff_ahead;
    coefficients q;
    int streaming;
    char *line; /* of dst, while it is not whole: made from byte `made` of it up to where `waits` is in dst */
    char *waits;
    int64_t made;
} plane_t;

CYNORM_INLINE vec FN(sum_rows_apart)(const real *p, int64_t width, int reach) {
    vec cell[2 * CYNORM_PLANE_REACH + 1];
#pragma GCC unroll 16
    for (int j = 0; j <= 2 * reach; j++) cell[j] = FN(load)(p + j * width);
    return FN(sum_cells)(cell, reach);
}

/* The next cells of a row: squares of src, or terms. */
CYNORM_INLINE vec FN(cells)(const plane_t *p, const char *row, int64_t n, int dtype, int terms) {
    if (terms) return FN(part)(FN(load)((const real *)row), (vec){0}, n);
    __builtin_prefetch(row + p->src_ahead, 0, 2);
    const vec x = FN(get)(row, dtype, n);
    return x * x;
}

/* The window sums along rows; what is stored beyond the end of one is the beginning of the next. */
CYNORM_INLINE void FN(plane_rows)(const plane_t *p, int dtype, int reach, int terms) {
    const int64_t last = (p->width - 1) % VL + 1, whole = p->width - last;
    const int64_t vector = VL * (terms ? (int64_t)sizeof(real) : cynorm_itemsize(dtype));
    const char *from = p->from;
    real *out = p->out;
    for (int64_t r = 0; r < p->rows; r++, from += p->pitch, out += p->width) {
        const char *row = from;
        vec before = {0}, at = FN(cells)(p, row, whole ? VL : last, dtype, terms);
        for (int64_t j = 0; j < whole; j += VL) {
            row += vector;
            const vec after = FN(cells)(p, row, j + VL < whole ? VL : last, dtype, terms);
            FN(store)(out + j, FN(sum_across)(before, at, after, reach));
            before = at, at = after;
        }
        FN(store)(out + whole, FN(sum_across)(before, at, (vec){0}, reach));
    }
}

/* Omegas are made a step before they are used, so that no step is one long chain, and powers are taken two at once. */
CYNORM_INLINE vec FN(plane_omega)(const plane_t *p, int64_t i, int reach) {
    return FN(omega_of)(&p->q, FN(sum_rows_apart)(p->sums + i, p->width, reach), VL);
}

/* In place of the sums, `count` vectors of terms, of n lanes. */
CYNORM_INLINE void FN(plane_term)(const plane_t *p, const vec *omegas, int64_t i, int64_t n, int count, int dtype, int kind) {
    vec omega[2], x[2], g[2], term[2], weighted[2];
    for (int k = 0; k < count; k++) {
        const int64_t at = (i + k * VL) * cynorm_itemsize(dtype);
        x[k] = FN(get)(p->src + at, dtype, n), g[k] = FN(get)(p->diff_dst + at, dtype, n);
        __builtin_prefetch(p->diff_dst + at + p->diff_ahead, 0, 2);
        omega[k] = FN(part)(omegas[k], FN(splat)(1), n);
    }
    FN(terms_of)(&p->q, term, omega, g, x, NULL, count, kind, weighted);
    for (int k = 0; k < count; k++) {
        FN(store)(p->weighted + i + k * VL, weighted[k]);
        FN(store_n)(p->sums + i + k * VL, term[k], n);
    }
}

/* Terms, whose sums are finished apart from them. */
CYNORM_INLINE void FN(plane_backward)(plane_t *pieces, const plane_t *p, int dtype, int reach, int kind) {
    (void)pieces;
    int64_t i = (-(intptr_t)p->weighted & (VL * sizeof(real) - 1)) / sizeof(real);
    if (i > p->length) i = p->length;
    vec omega[2] = {FN(plane_omega)(p, 0, reach)}, next[2];
    if (i) {
        FN(plane_term)(p, omega, 0, i, 1, dtype, kind);
        omega[0] = FN(plane_omega)(p, i, reach);
    }
    if (i + 4 * VL <= p->length) omega[1] = FN(plane_omega)(p, i + VL, reach);
    for (; i + 4 * VL <= p->length; i += 2 * VL) {
        for (int k = 0; k < 2; k++) next[k] = FN(plane_omega)(p, i + (2 + k) * VL, reach);
        FN(plane_term)(p, omega, i, VL, 2, dtype, kind);
        for (int k = 0; k < 2; k++) omega[k] = next[k];
    }
    for (; i + VL <= p->length; i += VL) {
        next[0] = FN(plane_omega)(p, i + VL, reach);
        FN(plane_term)(p, omega, i, VL, 1, dtype, kind);
        omega[0] = next[0];
    }
    if (i < p->length) FN(plane_term)(p, omega, i, p->length - i, 1, dtype, kind);
}

/* `count` vectors of dst, of n lanes, from omega or, backward, from their sums of terms. */
CYNORM_INLINE void FN(plane_result)(vec *out, const plane_t *p, const vec *omegas, int64_t i, int64_t n, int count, int dtype,
                                    int reach, int kind, int backward) {
    vec x[2], omega[2];
    for (int k = 0; k < count; k++) {
        const int64_t at = i + k * VL;
        x[k] = FN(get)(p->src + at * cynorm_itemsize(dtype), dtype, n);
        if (backward)
            out[k] = FN(diff_src_of)(&p->q, x[k], FN(sum_rows_apart)(p->sums + at, p->width, reach), FN(load)(p->weighted + at));
        else omega[k] = FN(part)(omegas[k], FN(splat)(1), n);
    }
    if (!backward) FN(times_powers)(out, x, omega, count, kind, p->q.beta, dtype, NULL);
}

/* A line of dst that ends before it is whole. */
static void FN(put_unfinished)(plane_t *p) {
    if (!p->waits) return;
    const int64_t end = ((intptr_t)p->waits - 1) % 64 + 1;
    memcpy(p->waits - end + p->made, p->line + p->made, (size_t)(end - p->made));
    p->waits = NULL;
}

/* Less than a line of dst: it waits for the rest, which the next run begins with. */
static __attribute__((noinline)) void FN(put_piece)(plane_t *p, char *dst, vec v, int dtype, int64_t n) {
    const int64_t size = cynorm_itemsize(dtype), at = (intptr_t)dst & 63, end = at + n * size;
    if (!p->streaming) {
        FN(put)(dst, v, dtype, n);
        return;
    }
    if (p->waits != dst) FN(put_unfinished)(p), p->made = at;
    FN(put)(p->line + at, v, dtype, n);
    p->waits = dst + n * size;
    if (end < 64) return;
    if (p->made) FN(put_unfinished)(p);
    else cynorm_stream_copy(dst - at, p->line, 64);
    p->waits = NULL;
}

/* `pieces` is what waits from run to run; p, of which nothing is stored, a copy. */
CYNORM_INLINE void FN(plane_finish)(plane_t *pieces, const plane_t *p, int dtype, int reach, int kind,
                                    int backward) {
    const int64_t size = cynorm_itemsize(dtype), line = 64 / size, whole = !((intptr_t)p->dst & (size - 1));
    const int64_t head = whole ? (-(intptr_t)p->dst & 63) / size : 0;
    const int64_t lines = line < 2 * VL ? 2 * VL : line; /* so many that powers go two by two */
    vec omega[2] = {{0}}, next[2] = {{0}}, out[CYNORM_DOUBLE ? 16 / VL : 32 / VL];
    int64_t i = 0;
    while (i < p->length) {
        if (i >= head && i + line <= p->length) {
            const int64_t by_two = backward ? -1 : p->length - lines - 2 * VL; /* the last one that begins two omegas ahead */
            if (!backward) omega[0] = FN(plane_omega)(p, i, reach);
            if (i <= by_two) omega[1] = FN(plane_omega)(p, i + VL, reach);
            for (; i <= by_two; i += lines) {
                for (int64_t v = 0; v < lines; v += 2 * VL) {
                    for (int k = 0; k < 2; k++) next[k] = FN(plane_omega)(p, i + v + (2 + k) * VL, reach);
                    FN(plane_result)(out + v / VL, p, omega, i + v, VL, 2, dtype, reach, kind, backward);
                    for (int k = 0; k < 2; k++) omega[k] = next[k];
                }
                for (int64_t v = 0; v < lines; v += line)
                    FN(put_line)(p->dst + (i + v) * size, out + v / VL, dtype, p->streaming);
            }
            for (; i + line <= p->length; i += line) {
                for (int64_t v = 0; v < line; v += VL) {
                    if (!backward) next[0] = FN(plane_omega)(p, i + v + VL, reach);
                    FN(plane_result)(out + v / VL, p, omega, i + v, VL, 1, dtype, reach, kind, backward);
                    omega[0] = next[0];
                }
                FN(put_line)(p->dst + i * size, out, dtype, p->streaming);
            }
            continue;
        }
        const int64_t left = (i < head && head < p->length ? head : p->length) - i, n = left < VL ? left : VL;
        if (!backward) omega[0] = FN(plane_omega)(p, i, reach);
        FN(plane_result)(out, p, omega, i, n, 1, dtype, reach, kind, backward);
        FN(put_piece)(pieces, p->dst + i * size, out[0], dtype, n);
        i += n;
    }
}

CYNORM_INLINE void FN(plane_forward)(plane_t *pieces, const plane_t *p, int dtype, int reach, int kind) {
    FN(plane_finish)(pieces, p, dtype, reach, kind, 0);
}

/* ---- windows along the stream and along level 1: channels innermost, planes beside each other ---- */

/* A row of level 1 at a time, by walks over its entries, one vector of level 0 each: the cells beside a vector are the
 * walk's last ones, and the sums along it wait in scratch for the rows that follow. Squares, terms and what these finish
 * have loops of their own, short enough for the core to look several vectors ahead. Where a vector of reals is half a line,
 * two walks go side by side. */
enum { FN(BESIDE) = CYNORM_VBYTES == 32 ? 2 : 1 };
#define CYNORM_EACH_WALK _Pragma("GCC unroll 2") for (int k = 0; k < count; k++)
#define walk_t FN(cynorm_lrn_walk)
typedef struct {
    const char *newest, *middle, *src, *diff_dst; /* src of three slabs, diff_dst of the second; NULL where there is no such */
    char *dst;
    int64_t src_step, diff_step, dst_step;        /* bytes from an entry to the next */
    const char *src_ahead, *diff_ahead;           /* what is prefetched, of the next slab */
    int64_t src_ahead_step, diff_ahead_step;
    int64_t entries, lanes;
    /* rows of scratch: sums of squares and of terms of the slabs of a window, the newest last */
    real *squares[2 * CYNORM_REACH + 1], *terms[2 * CYNORM_REACH + 1], *weighted_out;
    const real *weighted;
    int64_t piece;  /* steps that each stage takes at a time */
    int64_t beside; /* from these to the rows of the walk that goes beside this one, if any does */
    coefficients q;
    int streaming;
} walk_t;

/* The window sum that `next` completes; *s: the cell before it, and sums of pairs that end there, one before, ... */
CYNORM_INLINE vec FN(walk_sum)(vec *s, vec next, int reach) {
    vec sum = next + (reach == 1 ? s[1] : s[1] + s[3]);
    s[3] = s[2], s[2] = s[1], s[1] = next + s[0], s[0] = next;
    return sum;
}

CYNORM_INLINE vec FN(sum_slabs)(real *const *rows, int64_t at, int reach) {
    vec cell[2 * CYNORM_REACH + 1];
#pragma GCC unroll 8
    for (int j = 0; j <= 2 * reach; j++) cell[j] = FN(load)(rows[j] + at);
    return FN(sum_cells)(cell, reach);
}

/* Steps [from, to) of a walk, of `count` of them side by side; sums along it come `reach` steps late, so that a row of scratch
 * begins with as many that are no one's, and past the last entry there are as many steps more. s: what walk_sum keeps. */
CYNORM_INLINE void FN(walk_squares)(const walk_t *w, vec (*s)[4], int64_t from, int64_t to, int count, int64_t n, int dtype,
                                    int reach) {
    const int64_t vector = VL * cynorm_itemsize(dtype), end = to < w->entries ? to : w->entries;
    real *out = w->squares[2 * reach] - reach * VL;
    int64_t p = from;
    for (; p < end; p++) {
        const char *x = w->newest + p * w->src_step;
        __builtin_prefetch(w->src_ahead + p * w->src_ahead_step, 0, 2);
        CYNORM_EACH_WALK {
            const vec next = FN(get)(x + k * vector, dtype, n);
            FN(store)(out + k * w->beside + p * VL, FN(walk_sum)(s[k], next * next, reach));
        }
    }
    for (; p < to; p++) CYNORM_EACH_WALK FN(store)(out + k * w->beside + p * VL, FN(walk_sum)(s[k], (vec){0}, reach));
}

CYNORM_INLINE void FN(walk_terms)(const walk_t *w, vec (*s)[4], int64_t from, int64_t to, int count, int64_t n, int dtype,
                                  int reach, int kind) {
    const int64_t vector = VL * cynorm_itemsize(dtype), end = to < w->entries ? to : w->entries;
    real *out = w->terms[2 * reach] - reach * VL;
    vec omega[2], x[2], g[2], term[2], weighted[2];
    int64_t p = from;
    for (; p < end; p++) {
        const char *src = w->middle + p * w->src_step, *diff_dst = w->diff_dst + p * w->diff_step;
        __builtin_prefetch(w->diff_ahead + p * w->diff_ahead_step, 0, 2);
        CYNORM_EACH_WALK {
            omega[k] = FN(omega_of)(&w->q, FN(sum_slabs)(w->squares, k * w->beside + p * VL, reach), n);
            x[k] = FN(get)(src + k * vector, dtype, n), g[k] = FN(get)(diff_dst + k * vector, dtype, n);
        }
        FN(terms_of)(&w->q, term, omega, g, x, NULL, count, kind, weighted);
        CYNORM_EACH_WALK {
            FN(store)(w->weighted_out + k * w->beside + p * VL, weighted[k]);
            FN(store)(out + k * w->beside + p * VL, FN(walk_sum)(s[k], FN(part)(term[k], (vec){0}, n), reach));
        }
    }
    for (; p < to; p++) CYNORM_EACH_WALK FN(store)(out + k * w->beside + p * VL, FN(walk_sum)(s[k], (vec){0}, reach));
}

CYNORM_INLINE void FN(walk_finish)(const walk_t *w, int64_t from, int64_t to, int count, int64_t n, int dtype, int reach,
                                   int kind, int backward) {
    const int64_t vector = VL * cynorm_itemsize(dtype);
    vec x[2], sum[2], out[2];
    for (int64_t p = from; p < to; p++) {
        const char *src = w->src + p * w->src_step;
        char *dst = w->dst + p * w->dst_step;
        CYNORM_EACH_WALK {
            x[k] = FN(get)(src + k * vector, dtype, n);
            sum[k] = FN(sum_slabs)(backward ? w->terms : w->squares, k * w->beside + p * VL, reach);
            if (backward) out[k] = FN(diff_src_of)(&w->q, x[k], sum[k], FN(load)(w->weighted + k * w->beside + p * VL));
            else sum[k] = FN(omega_of)(&w->q, sum[k], n);
        }
        if (!backward) FN(times_powers)(out, x, sum, count, kind, w->q.beta, dtype, NULL);
        CYNORM_EACH_WALK FN(put_narrow)(dst + k * vector, out[k], dtype, n, w->streaming);
    }
}

/* By pieces of a row, where memory is the limit, so that it is read and written all the time and not by turns. */
CYNORM_INLINE void FN(walk)(const walk_t *w, int count, int64_t n, int dtype, int reach, int kind, int backward) {
    const int64_t squares = w->entries + reach, late = (1 + backward) * reach, steps = w->entries + late;
    vec s[2][4] = {{{0}}}, t[2][4] = {{{0}}};
    for (int64_t from = 0, to; from < steps; from = to) {
        to = from + w->piece < steps ? from + w->piece : steps;
        const int64_t of_terms = from > reach ? from - reach : 0, done = from > late ? from - late : 0;
        if (w->newest) FN(walk_squares)(w, s, from, to < squares ? to : squares, count, n, dtype, reach);
        if (backward && w->middle) FN(walk_terms)(w, t, of_terms, to - reach, count, n, dtype, reach, kind);
        if (w->src) FN(walk_finish)(w, done, to - late, count, n, dtype, reach, kind, backward);
    }
}

CYNORM_INLINE void FN(walk_forward)(const walk_t *w, int count, int64_t n, int dtype, int reach, int kind) {
    FN(walk)(w, count, n, dtype, reach, kind, 0);
}

CYNORM_INLINE void FN(walk_backward)(const walk_t *w, int count, int64_t n, int dtype, int reach, int kind) {
    FN(walk)(w, count, n, dtype, reach, kind, 1);
}

/* ---- compiled for each storage type, direction and reach; with beta 3/4, with 1/2, 1 and 0, and any ---- */

/* What is given is copied, since the stores of dst might alias it. */
#define CYNORM_NARROW(T, direction, reach, name, kind, together)                                               \
    static __attribute__((noinline)) void FN(block_##T##_##direction##reach##name)(const block_t *given) {     \
        const block_t b = *given;                                                                              \
        const int beta = kind;                                                                                 \
        FN(blocks_##direction)(&b, CYNORM_##T, reach, beta, together);                                         \
    }                                                                                                          \
    static __attribute__((noinline)) void FN(walks_##T##_##direction##reach##name)(const walk_t *given) {      \
        const walk_t w = *given;                                                                               \
        const int beta = kind;                                                                                 \
        if (FN(BESIDE) > 1 && w.beside) FN(walk_##direction)(&w, 2, VL, CYNORM_##T, reach, beta);              \
        else if (w.lanes == VL) FN(walk_##direction)(&w, 1, VL, CYNORM_##T, reach, beta);                      \
        else FN(walk_##direction)(&w, 1, w.lanes, CYNORM_##T, reach, beta);                                    \
    }
/* Loops of rows: for powers, which know no window, and for sums, which know no exponent. */
#define CYNORM_ROW_LOOP(name)                                                                                  \
    static __attribute__((noinline)) void FN(row_##name)(const rows_t *given, const strip_t *s, int64_t from,  \
                                                         int64_t to, vec *at)
#define CYNORM_ROW_POWERS(T, what, name, kind, whole)                                                          \
    CYNORM_ROW_LOOP(what##_##T##name) {                                                                        \
        const int beta = kind;                                                                                 \
        if (CYNORM_##T == CYNORM_BF16 && whole && given->halves)                                               \
            FN(strip_##what)(given, s, from, to, at, CYNORM_##T, beta, whole, 1, 0);                           \
        else if (whole && FN(by_columns)(given, s, from, to))                                                  \
            FN(strip_##what)(given, s, from, to, at, CYNORM_##T, beta, whole, 0, 1);                           \
        else FN(strip_##what)(given, s, from, to, at, CYNORM_##T, beta, whole, 0, 0);                          \
    }
#define CYNORM_ROW_SUMS(T, what, reach)                                                                        \
    CYNORM_ROW_LOOP(what##_##T##reach) {                                                                       \
        const int cells = FN(reach_##reach);                                                                   \
        if (CYNORM_##T == CYNORM_BF16 && cells > 0 && given->halves)                                           \
            FN(strip_##what)(given, s, from, to, at, CYNORM_##T, cells, 1, 1);                                 \
        else if (cells >= -VL && given->whole)                                                                 \
            FN(strip_##what)(given, s, from, to, at, CYNORM_##T, cells, 1, 0);                                 \
        else if (cells >= -VL) FN(strip_##what)(given, s, from, to, at, CYNORM_##T, cells, 0, 0);              \
    }
#define CYNORM_ROW_BOTH(T, direction, reach, more)                                                             \
    CYNORM_ROW_LOOP(both_##T##_##direction##reach) {                                                           \
        const int beta = CYNORM_BETA_THREE_QUARTERS;                                                           \
        if (!FN(may_share)(CYNORM_##T, more == FN(AND_TERMS))) __builtin_unreachable();                        \
        if (CYNORM_##T == CYNORM_BF16 && given->halves && given->across)                                       \
            FN(omegas_and)(more, given, s, from, to, at, CYNORM_##T, reach, beta, 1, 1, 1);                    \
        else if (CYNORM_##T == CYNORM_BF16 && given->halves)                                                   \
            FN(omegas_and)(more, given, s, from, to, at, CYNORM_##T, reach, beta, 1, 1, 0);                    \
        else if (more == FN(AND_POWERS) && FN(may_cross)(CYNORM_##T, 0) && given->across)                      \
            FN(omegas_and)(more, given, s, from, to, at, CYNORM_##T, reach, beta, 1, 0, 1);                    \
        else FN(omegas_and)(more, given, s, from, to, at, CYNORM_##T, reach, beta, 1, 0, 0);                   \
    }
#define CYNORM_ROWS(T)                                                                                         \
    CYNORM_ROW_POWERS(T, powers, special, cynorm_special_beta(given->q.beta), 0)                               \
    CYNORM_ROW_POWERS(T, powers, usual, CYNORM_BETA_THREE_QUARTERS, 1)                                         \
    CYNORM_ROW_POWERS(T, powers, any, CYNORM_BETA_ANY, 0)                                                      \
    CYNORM_ROW_POWERS(T, terms, special, cynorm_special_beta(given->q.beta), 0)                                \
    CYNORM_ROW_POWERS(T, terms, usual, CYNORM_BETA_THREE_QUARTERS, 1)                                          \
    CYNORM_ROW_POWERS(T, terms, any, CYNORM_BETA_ANY, 0)                                                       \
    CYNORM_ROW_BOTH(T, forward, 1, FN(AND_POWERS))                                                             \
    CYNORM_ROW_BOTH(T, forward, 2, FN(AND_POWERS))                                                             \
    CYNORM_ROW_BOTH(T, backward, 1, FN(AND_TERMS))                                                             \
    CYNORM_ROW_BOTH(T, backward, 2, FN(AND_TERMS))                                                             \
    CYNORM_WINDOWS(T, omegas)                                                                                  \
    CYNORM_WINDOWS(T, results)
/* A vector's neighbours are in the ones beside it. */
enum { FN(lrn_plane_reach) = CYNORM_PLANE_REACH < VL ? CYNORM_PLANE_REACH : VL };

/* Of planes: sums along rows of squares, and what sums of terms finish, need no exponent. */
#define CYNORM_PLANE(T, direction, reach, name, kind)                                                          \
    static __attribute__((noinline)) void FN(planes_##T##_##direction##reach##name)(plane_t *given) {          \
        const plane_t p = *given;                                                                              \
        if (reach > VL) return;                                                                                \
        const int beta = kind;                                                                                 \
        FN(plane_##direction)(given, &p, CYNORM_##T, reach, beta);                                             \
    }
#define CYNORM_PLANES(T, reach)                                                                                \
    CYNORM_PLANE(T, forward, reach, usual, CYNORM_BETA_THREE_QUARTERS)                                         \
    CYNORM_PLANE(T, forward, reach, special, cynorm_special_beta(given->q.beta))                               \
    CYNORM_PLANE(T, forward, reach, any, CYNORM_BETA_ANY)                                                      \
    CYNORM_PLANE(T, backward, reach, usual, CYNORM_BETA_THREE_QUARTERS)                                        \
    CYNORM_PLANE(T, backward, reach, special, cynorm_special_beta(given->q.beta))                              \
    CYNORM_PLANE(T, backward, reach, any, CYNORM_BETA_ANY)                                                     \
    static __attribute__((noinline)) void FN(plane_squares_##T##reach)(plane_t *given) {                       \
        const plane_t p = *given;                                                                              \
        if (reach <= VL) FN(plane_rows)(&p, CYNORM_##T, reach, 0);                                             \
    }                                                                                                          \
    static __attribute__((noinline)) void FN(plane_results_##T##reach)(plane_t *given) {                       \
        const plane_t p = *given;                                                                              \
        if (reach <= VL) FN(plane_finish)(given, &p, CYNORM_##T, reach, CYNORM_BETA_ZERO, 1);                  \
    }
#if CYNORM_FAR_SERVES
#define CYNORM_ROW_FAR(T, what)                                                                                \
    CYNORM_ROW_LOOP(what##_##T##_far) {                                                                        \
        if (given->whole) FN(far_##what)(given, s, from, to, at, CYNORM_##T, 1);                               \
        else FN(far_##what)(given, s, from, to, at, CYNORM_##T, 0);                                            \
    }
#define CYNORM_FAR_OF(what) [CYNORM_FAR_WINDOW] = FN(row_##what##_far)
#else
#define CYNORM_ROW_FAR(T, what)
#define CYNORM_FAR_OF(what) [CYNORM_FAR_WINDOW] = NULL
#endif
#if CYNORM_PICKS
#define CYNORM_WINDOWS(T, what)                                                                                \
    CYNORM_ROW_FAR(T, what)                                                                                    \
    CYNORM_ROW_SUMS(T, what, 1)                                                                                \
    CYNORM_ROW_SUMS(T, what, 2)                                                                                \
    CYNORM_ROW_SUMS(T, what, _2)                                                                               \
    CYNORM_ROW_SUMS(T, what, _4)                                                                               \
    CYNORM_ROW_SUMS(T, what, _8)                                                                               \
    CYNORM_ROW_SUMS(T, what, _16)
#define CYNORM_WINDOWS_OF(what)                                                                                \
    {FN(row_##what##1), FN(row_##what##2), FN(row_##what##_2),                                                 \
     FN(row_##what##_4), FN(row_##what##_8), FN(row_##what##_16), CYNORM_FAR_OF(what)}
enum { FN(reach_1) = 1, FN(reach_2) = 2, FN(reach__2) = -2, FN(reach__4) = -4, FN(reach__8) = -8, FN(reach__16) = -16 };
#else
#define CYNORM_WINDOWS(T, what)                                                                                \
    CYNORM_ROW_FAR(T, what)                                                                                    \
    CYNORM_ROW_SUMS(T, what, 1)                                                                                \
    CYNORM_ROW_SUMS(T, what, 2)
#define CYNORM_WINDOWS_OF(what) {FN(row_##what##1), FN(row_##what##2), CYNORM_FAR_OF(what)}
enum { FN(reach_1) = 1, FN(reach_2) = 2 };
#endif
#define CYNORM_EXPONENTS(T, direction, reach)                                                                  \
    CYNORM_NARROW(T, direction, reach, usual, CYNORM_BETA_THREE_QUARTERS, 2)                                   \
    CYNORM_NARROW(T, direction, reach, special, cynorm_special_beta(given->q.beta), 1)                         \
    CYNORM_NARROW(T, direction, reach, any, CYNORM_BETA_ANY, CYNORM_TOGETHER)
#define CYNORM_NARROWS(T)                                                                                      \
    CYNORM_EXPONENTS(T, forward, 1)                                                                            \
    CYNORM_EXPONENTS(T, forward, 2)                                                                            \
    CYNORM_EXPONENTS(T, backward, 1)                                                                           \
    CYNORM_EXPONENTS(T, backward, 2)                                                                           \
    CYNORM_PLANES(T, 1)                                                                                        \
    CYNORM_PLANES(T, 2)                                                                                        \
    CYNORM_PLANES(T, 3)                                                                                        \
    CYNORM_PLANES(T, 4)                                                                                        \
    CYNORM_ROWS(T)
#define CYNORM_CHOICE(what, T, direction, reach)                                                               \
    {FN(what##_##T##_##direction##reach##special), FN(what##_##T##_##direction##reach##usual),                 \
     FN(what##_##T##_##direction##reach##any)}
#define CYNORM_CHOICES_OF(what, T)                                                                             \
    {{CYNORM_CHOICE(what, T, forward, 1), CYNORM_CHOICE(what, T, forward, 2)},                                 \
     {CYNORM_CHOICE(what, T, backward, 1), CYNORM_CHOICE(what, T, backward, 2)}}
#if CYNORM_DOUBLE
CYNORM_NARROWS(F64)
#define CYNORM_CHOICES(what) [CYNORM_F64] = CYNORM_CHOICES_OF(what, F64)
#else
CYNORM_NARROWS(F32)
CYNORM_NARROWS(F16)
CYNORM_NARROWS(BF16)
#define CYNORM_CHOICES(what)                                                                                   \
    [CYNORM_F32] = CYNORM_CHOICES_OF(what, F32), [CYNORM_F16] = CYNORM_CHOICES_OF(what, F16),                    \
    [CYNORM_BF16] = CYNORM_CHOICES_OF(what, BF16)
#endif
static void (*const FN(block_loops)[][2][2][3])(const block_t *) = {CYNORM_CHOICES(block)};
#define CYNORM_PLANE_TERMS(reach)                                                                              \
    static __attribute__((noinline)) void FN(plane_terms##reach)(plane_t *given) {                             \
        const plane_t p = *given;                                                                              \
        if (reach <= VL) FN(plane_rows)(&p, CYNORM_COMPUTE, reach, 1);                                         \
    }
CYNORM_PLANE_TERMS(1)
CYNORM_PLANE_TERMS(2)
CYNORM_PLANE_TERMS(3)
CYNORM_PLANE_TERMS(4)
static void (*const FN(plane_terms)[CYNORM_PLANE_REACH])(plane_t *) = {
    FN(plane_terms1), FN(plane_terms2), FN(plane_terms3), FN(plane_terms4)};
#define CYNORM_PLANES_OF(T, reach)                                                                             \
    {{CYNORM_CHOICE(planes, T, forward, reach), CYNORM_CHOICE(planes, T, backward, reach)},                    \
     FN(plane_squares_##T##reach), FN(plane_results_##T##reach)}
#define CYNORM_ALL_PLANES(T)                                                                                   \
    [CYNORM_##T] = {CYNORM_PLANES_OF(T, 1), CYNORM_PLANES_OF(T, 2), CYNORM_PLANES_OF(T, 3), CYNORM_PLANES_OF(T, 4)}
static const struct { void (*loops[2][3])(plane_t *), (*squares)(plane_t *), (*results)(plane_t *); }
FN(plane_loops)[][CYNORM_PLANE_REACH] = {
#if CYNORM_DOUBLE
    CYNORM_ALL_PLANES(F64)
#else
    CYNORM_ALL_PLANES(F32), CYNORM_ALL_PLANES(F16), CYNORM_ALL_PLANES(BF16)
#endif
};
#define CYNORM_EXPONENTS_OF(what) {FN(row_##what##special), FN(row_##what##usual), FN(row_##what##any)}
#define CYNORM_ROWS_OF(T)                                                                                      \
    [CYNORM_##T] = {{CYNORM_EXPONENTS_OF(powers_##T), CYNORM_EXPONENTS_OF(terms_##T)},                         \
                    CYNORM_WINDOWS_OF(omegas_##T), CYNORM_WINDOWS_OF(results_##T),                            \
                    {{FN(row_both_##T##_forward1), FN(row_both_##T##_forward2)},                               \
                     {FN(row_both_##T##_backward1), FN(row_both_##T##_backward2)}}}
static const struct {
    row_loop_t *powers[2][3], *omegas[CYNORM_FAR_WINDOW + 1], *results[CYNORM_FAR_WINDOW + 1], *both[2][2];
} FN(row_loops)[] = {
#if CYNORM_DOUBLE
    CYNORM_ROWS_OF(F64)
#else
    CYNORM_ROWS_OF(F32), CYNORM_ROWS_OF(F16), CYNORM_ROWS_OF(BF16)
#endif
};
static void (*const FN(walk_loops)[][2][2][3])(const walk_t *) = {CYNORM_CHOICES(walks)};
#undef CYNORM_NARROW
#undef CYNORM_PLANE
#undef CYNORM_PLANES
#undef CYNORM_PLANE_TERMS
#undef CYNORM_PLANES_OF
#undef CYNORM_ALL_PLANES
#undef CYNORM_ROWS
#undef CYNORM_ROWS_OF
#undef CYNORM_ROW_LOOP
#undef CYNORM_ROW_POWERS
#undef CYNORM_ROW_SUMS
#undef CYNORM_WINDOWS
#undef CYNORM_WINDOWS_OF
#undef CYNORM_EXPONENTS_OF
#undef CYNORM_EXPONENTS
#undef CYNORM_NARROWS
#undef CYNORM_CHOICE
#undef CYNORM_CHOICES
#undef CYNORM_CHOICES_OF

/* ---- tiles ---- */

enum { FN(BLOCKS) = 1, FN(ROWS), FN(PLANES), FN(WALKS), FN(SLABS) };

static int FN(contiguous)(const cynorm_lrn_view *m) { return !m->data || m->stride[0] == cynorm_itemsize(m->dtype); }

/* Blocked memory: a row goes through its blocks. */
static int FN(joint)(const cynorm_lrn_tile *t) { return t->windows && t->pitch[1] == t->count[0]; }

/* The cells on either side where loops are compiled for them, else 0. */
static int FN(constant_reach)(const cynorm_lrn_window *w) {
    return w->left == w->right && w->left <= CYNORM_REACH ? (int)w->left : 0;
}

/* Whether what does not lie along level 0 may be transposed, the tile's part of it whole, before the kernel and after. */
static int FN(transposable)(const cynorm_lrn_tile *t) {
    if (t->windows) return t->windows == 1 && t->window[0].step > 1 && t->extent * t->count[1] <= CYNORM_TRANSPOSED_PIXELS;
    return t->count[1] * t->count[2] == 1 && t->extent <= CYNORM_TRANSPOSED_MOST;
}

/* Whether the sums of a window in a row, where it is no constant, are made in registers; or in scratch, which wins from 10
 * cells on. */
static int FN(in_registers)(const cynorm_lrn_window *w) {
    const int64_t others = w->left + w->right;
    return CYNORM_PICKS && w->left < VL && w->right < VL && others && (!CYNORM_FAR_SERVES || others < 9);
}
static int FN(far)(const cynorm_lrn_window *w) {
    return CYNORM_FAR_SERVES && w->left <= CYNORM_FAR && w->right <= CYNORM_FAR && w->left + w->right;
}

/* Which of the loops serve a tile, if any. */
static int FN(narrow_kind)(const cynorm_lrn_tile *t) {
    const cynorm_lrn_window *w = &t->window[0];
    if (t->omega.data || t->cut || t->windows > 1) return 0;
    const int reach = t->windows ? FN(constant_reach)(w) : 0;
    if (t->windows && w->step == 1 && !t->left && !t->right)
        return reach || FN(in_registers)(w) || FN(far)(w) ? FN(ROWS) : 0;
    const int plain = FN(contiguous)(&t->src) && FN(contiguous)(&t->diff_dst) && FN(contiguous)(&t->dst);
    if (t->y.data || (!plain && !FN(transposable)(t))) return 0;
    const int square = t->left && t->left == t->right && (!t->windows || (w->left == t->left && w->right == t->left));
    if (square && t->windows && w->step == 1 && t->left <= FN(lrn_plane_reach)) return FN(PLANES);
    if (!square || t->left > CYNORM_REACH) return FN(slabs_serve)(t) ? FN(SLABS) : 0;
    if (!t->windows) return FN(BLOCKS);
    return FN(channels_serve)(t) ? FN(WALKS) : 0;
}

/* Bytes of what is kept between blocks. */
static int64_t FN(kept_bytes)(const cynorm_lrn_tile *t, int backward) {
    const int64_t slabs = (backward ? 3 : 1) * t->left;
    return FN(whole_lines)((t->count[0] + CYNORM_OVERLAP + VL) * slabs * (int64_t)sizeof(real));
}

/* Rows of planes that are worked on at once, of so many elements; reals of scratch for these and the rows around. */
static int64_t FN(plane_step)(const cynorm_lrn_tile *t) {
    const int64_t rows = CYNORM_PLANE / t->count[0], least = 4 * t->left, all = t->extent;
    return all < least ? all : rows < least ? least : rows < all ? rows : all;
}
static int64_t FN(plane_reals)(const cynorm_lrn_tile *t, int around) {
    return ((FN(plane_step)(t) + around * t->left) * t->count[0] + 3 * VL - 1) / VL * VL;
}
static int64_t FN(plane_bytes)(const cynorm_lrn_tile *t, int backward) {
    const int64_t each = FN(plane_reals)(t, 2), reals = backward ? FN(plane_reals)(t, 4) + 2 * each : each;
    return 64 + reals * (int64_t)sizeof(real);
}

/* Rows of scratch for each walk, reals of a row, bytes of all. */
static int64_t FN(walk_rows)(const cynorm_lrn_tile *t, int backward) {
    return (backward ? 5 : 2) * t->left + (backward ? 3 : 1);
}
static int64_t FN(walk_row)(const cynorm_lrn_tile *t) { return (t->count[1] + t->left) * VL; }
static int64_t FN(walk_bytes)(const cynorm_lrn_tile *t, int backward) {
    return (t->count[0] + VL - 1) / VL * FN(walk_rows)(t, backward) * FN(walk_row)(t) * (int64_t)sizeof(real);
}

/* ---- of rows ---- */

enum { FN(SRC), FN(DIFF_DST), FN(Y), FN(DST), FN(OPERANDS) };

static const cynorm_lrn_view *FN(view)(const cynorm_lrn_tile *t, int i) {
    return i == FN(SRC) ? &t->src : i == FN(DIFF_DST) ? &t->diff_dst : i == FN(Y) ? &t->y : &t->dst;
}

/* Elements of a row. */
static int64_t FN(cells_of)(const cynorm_lrn_tile *t) {
    return FN(joint)(t) ? t->count[0] * t->count[1] - t->missing : t->count[0];
}

/* Whether the loop cannot take an operand as it lies: its vectors are not contiguous, or not whole blocks; or dst takes its
 * place, and the next strip of a row reads some of it again. */
static int FN(packed)(const cynorm_lrn_tile *t, int i) {
    const cynorm_lrn_view *m = FN(view)(t, i);
    if (!m->data) return 0;
    return !FN(contiguous)(m) || (FN(joint)(t) && t->count[0] != VL) ||
           (i != FN(DST) && m->data == t->dst.data && FN(cells_of)(t) > CYNORM_ROW_STRIP - 2 * CYNORM_FAR);
}

/* Rows of dst until they are copied, or are packed. */
static int64_t FN(rows_stage)(const cynorm_lrn_tile *t) {
    const int64_t entries = t->count[0] * t->count[1] * (FN(joint)(t) ? t->count[2] : 1);
    if (FN(packed)(t, FN(DST))) return cynorm_unpack_bytes(FN(unpacked_rows)(t));
    return FN(whole_lines)(entries * cynorm_itemsize(t->dst.dtype));
}

static int64_t FN(slab_bytes)(const cynorm_lrn_tile *t) {
    return FN(whole_lines)((t->size + VL) * cynorm_itemsize(t->dst.dtype));
}

static size_t FN(kernel_scratch)(const cynorm_lrn_tile *t, int backward) {
    switch (FN(narrow_kind)(t)) {
    case FN(BLOCKS):
        return (size_t)(FN(kept_bytes)(t, backward) + (1 + CYNORM_BLOCK) * FN(row_bytes)(t) +
                        2 * FN(stage_bytes)(t, CYNORM_BLOCK));
    case FN(PLANES): return (size_t)FN(plane_bytes)(t, backward);
    case FN(WALKS): return (size_t)(FN(walk_bytes)(t, backward) + FN(row_bytes)(t) * t->count[1]);
    case FN(ROWS): {
        int64_t bytes = FN(rows_stage)(t);
        for (int i = 0; i < FN(OPERANDS); i++) bytes += FN(packed)(t, i) ? FN(slab_bytes)(t) : 0;
        return (size_t)bytes;
    }
    case FN(SLABS): return FN(slabs_scratch)(t, backward);
    default: return FN(tile_scratch)(t, backward);
    }
}

/* Which of the compiled loops; the usual one may ask for whole vectors. */
static int FN(loop_of_beta)(const cynorm_lrn_tile *t, int whole) {
    const int kind = cynorm_beta_kind(t->beta);
    return kind == CYNORM_BETA_ANY ? 2 : kind == CYNORM_BETA_THREE_QUARTERS && whole;
}

/* The operands of the block at slab c but for dst; slabs that are not there are zeros. */
static void FN(set_block)(block_t *b, const cynorm_lrn_tile *t, const char *src, const char *diff_dst, int64_t c,
                          const char *zeros) {
    const int reach = (int)t->left, slabs = CYNORM_BLOCK + (diff_dst ? 2 : 1) * reach;
    b->edge = 0;
    for (int j = 0; j < slabs; j++)
        b->src[j] = c + j >= 0 && c + j < t->extent ? src + (c + j) * t->src.streamed : zeros;
    for (int j = 0; diff_dst && j < CYNORM_BLOCK; j++) {
        const int64_t v = c + reach + j;
        const int exists = v >= 0 && v < t->extent;
        b->edge |= !exists;
        b->exists[j] = (ivec){0} - exists;
        b->diff_dst[j] = exists ? diff_dst + v * t->diff_dst.streamed : zeros;
    }
}

static void FN(run_by_blocks)(const cynorm_lrn_tile *t, int backward, int64_t src_at, int64_t diff_at, int64_t dst_at) {
    const int dtype = t->src.dtype;
    const int64_t size = cynorm_itemsize(dtype), pitch = FN(row_bytes)(t);
    const int64_t earlier = backward || t->begin > 0; /* what is kept for the first comes of the one before it */
    char *zeros = (char *)t->scratch + FN(kept_bytes)(t, backward), *unused = zeros + pitch; /* rows that are no one's */
    out_t out;
    FN(open_stage)(&out, t, t->dst.data + dst_at, CYNORM_BLOCK, 1, unused + CYNORM_BLOCK * pitch);
    block_t b = {.kept = t->scratch, .length = out.row / size, .q = FN(coefficients_of)(t), .late = &out.late,
                 .src_ahead = CYNORM_BLOCK * t->src.streamed, .diff_ahead = CYNORM_BLOCK * t->diff_dst.streamed,
                 .streaming = out.streaming};
    void (*run)(const block_t *) = FN(block_loops)[dtype][backward][t->left - 1][FN(loop_of_beta)(t, 1)];
    const char *src = t->src.data + src_at - out.overlap;
    const char *diff_dst = backward ? t->diff_dst.data + diff_at - out.overlap : NULL;
    memset(t->scratch, 0, (size_t)(unused - (char *)t->scratch));
    for (int64_t c = t->begin - CYNORM_BLOCK * earlier; c < t->end; c += CYNORM_BLOCK) {
        FN(set_block)(&b, t, src, diff_dst, c, zeros);
        b.finish = c >= t->begin;
        for (int j = 0; j < CYNORM_BLOCK; j++)
            b.dst[j] = b.finish && c + j < t->end ? FN(row_of_dst)(&out, c + j) : unused + j * pitch;
        run(&b);
        if (b.finish) FN(leave_stage)(&out, c + CYNORM_BLOCK < t->end ? c + CYNORM_BLOCK : t->end);
    }
}

/* Sums along rows [begin, end) of a plane whose row 0 is `data`; rows that are not there are zeros. */
static void FN(sums_along)(plane_t *p, void (*run)(plane_t *), const char *data, int64_t pitch, int64_t begin,
                           int64_t end, int64_t extent, real *out) {
    const int64_t from = begin > 0 ? begin : 0, to = end < extent ? end : extent;
    const int64_t before = from - begin, after = end - (to > from ? to : from);
    const int64_t row = p->width * (int64_t)sizeof(real);
    p->from = data + from * pitch, p->pitch = pitch, p->rows = to - from, p->out = out + before * p->width;
    memset(out, 0, (size_t)(before * row));
    if (p->rows > 0) run(p);
    memset(out + (end - after - begin) * p->width, 0, (size_t)(after * row));
}

/* Rows in runs of as many as lie side by side. */
static void FN(run_rows)(plane_t *p, void (*run)(plane_t *), const cynorm_lrn_tile *t, int64_t rows,
                         int together) {
    for (int64_t n; rows > 0; rows -= n) {
        n = together ? rows : 1;
        p->length = n * p->width;
        run(p);
        p->src += n * t->src.streamed, p->diff_dst += n * t->diff_dst.streamed, p->dst += n * t->dst.streamed;
        p->sums += p->length, p->weighted += p->length;
    }
}

/* Planes one after the other, some rows at a time. */
static void FN(narrow_planes)(const cynorm_lrn_tile *t, int backward) {
    const int dtype = t->src.dtype, reach = (int)t->left, around = (1 + backward) * reach;
    const int64_t size = cynorm_itemsize(dtype), width = t->count[0], row = width * size;
    const int64_t step = FN(plane_step)(t), ahead = CYNORM_AHEAD / row;
    const int together = t->src.streamed == row && t->dst.streamed == row &&
                         (!backward || t->diff_dst.streamed == row);
    const int64_t run_bytes = together ? (t->end - t->begin) * row : row;
    const int64_t window = 2 * reach * width * (int64_t)sizeof(real); /* what the next rows need of these */
    void (*squares_along)(plane_t *) = FN(plane_loops)[dtype][reach - 1].squares;
    void (*run)(plane_t *) = FN(plane_loops)[dtype][reach - 1].loops[backward][FN(loop_of_beta)(t, 1)];
    void (*finish)(plane_t *) = backward ? FN(plane_loops)[dtype][reach - 1].results : run;
    real *const square_sums = (real *)((char *)t->scratch + 64);
    real *const term_sums = square_sums + FN(plane_reals)(t, 2 + 2 * backward);
    real *const all_weighted = term_sums + FN(plane_reals)(t, 2);
    plane_t p = {.width = width, .q = FN(coefficients_of)(t), .line = t->scratch,
                 .src_ahead = ahead * t->src.streamed, .diff_ahead = ahead * t->diff_dst.streamed};
    p.streaming = t->streaming && FN(of_whole_elements)(&t->dst) &&
                  (run_bytes >= CYNORM_STREAM_LEAST || (together && t->dst.stride[1] == run_bytes));
    for (int64_t plane = 0; plane < t->count[1] * t->count[2]; plane++) {
        const int64_t i1 = plane % t->count[1], i2 = plane / t->count[1];
#define MEMORY(name) (t->name.data + i1 * t->name.stride[1] + i2 * t->name.stride[2])
        const char *src = MEMORY(src), *diff_dst = MEMORY(diff_dst);
        char *dst = MEMORY(dst);
#undef MEMORY
        int64_t squares = t->begin - around, terms = t->begin - reach; /* the next rows */
        const real *old_squares = NULL, *old_terms = NULL, *old_weighted = NULL;
        for (int64_t a = t->begin, b; a < t->end; a = b) {
            b = a + step < t->end ? a + step : t->end;
            const int64_t first = backward ? terms : a; /* row whose window is the first of the sums */
/* where the vectors of a row begin as those of dst do */
#define AS_DST(kept, row) ((kept) + (((intptr_t)dst / size + (row) * width) & (VL - 1)))
            real *sums = AS_DST(square_sums, first), *sums_of_terms = AS_DST(term_sums, a);
            real *weighted = AS_DST(all_weighted, a - reach);
            if (old_squares) memmove(sums, old_squares, (size_t)window);
            FN(sums_along)(&p, squares_along, src, t->src.streamed, squares, b + around,
                           t->extent, sums + (squares - first + reach) * width);
            if (backward) {
                const int64_t from = terms > 0 ? terms : 0, to = b + reach < t->extent ? b + reach : t->extent;
                const char *made = (const char *)(sums - first * width); /* what would be the terms of row 0 */
                if (old_terms) memmove(sums_of_terms, old_terms, (size_t)window);
                if (old_weighted) memmove(weighted, old_weighted, (size_t)window);
                p.src = src + from * t->src.streamed, p.diff_dst = diff_dst + from * t->diff_dst.streamed;
                p.sums = sums + (from - first) * width, p.weighted = weighted + (from - a + reach) * width;
                FN(run_rows)(&p, run, t, to - from, together);
                FN(sums_along)(&p, FN(plane_terms)[reach - 1], made, width * (int64_t)sizeof(real), terms, b + reach,
                               t->extent, sums_of_terms + (terms - a + reach) * width);
                old_terms = sums_of_terms + (b - a) * width, old_weighted = weighted + (b - a) * width;
            }
            p.src = src + a * t->src.streamed, p.dst = dst + a * t->dst.streamed;
            p.sums = backward ? sums_of_terms : sums, p.weighted = weighted + reach * width;
            FN(run_rows)(&p, finish, t, b - a, together);
            squares = b + around, terms = b + reach;
            old_squares = sums + ((backward ? terms : b) - first) * width;
        }
#undef AS_DST
    }
    FN(put_unfinished)(&p);
}

/* Rows that the loop cannot read or write in place are packed, a slab at a time. */
static void FN(narrow_rows)(const cynorm_lrn_tile *t, int backward) {
    const int dtype = t->src.dtype, reach = FN(constant_reach)(&t->window[0]), joint = FN(joint)(t), level = joint ? 2 : 1;
    const int64_t size = cynorm_itemsize(dtype), row = t->count[0] * size, cells = FN(cells_of)(t);
    const int whole = cells % VL == 0 && !t->y.data, loop = FN(loop_of_beta)(t, whole);
    const int halves = dtype == CYNORM_BF16 && loop == 1 && reach && !joint && cells % (2 * VL) == 0;
    const int64_t lanes = halves ? 2 * VL : VL, vector = lanes * size, ahead = CYNORM_ROW_AHEAD / (cells * size) + 1;
    char *stage = t->scratch, *slab[FN(OPERANDS)], *free = stage + FN(rows_stage)(t);
    for (int i = 0; i < FN(OPERANDS); i++) {
        slab[i] = FN(packed)(t, i) ? free : NULL;
        if (slab[i]) free += FN(slab_bytes)(t);
    }
    const int streaming = t->streaming && FN(of_whole_elements)(&t->dst), by_lines = FN(by_lines)(t, row, vector);
    /* rows follow on, but do not begin at lines */
    const int apart = streaming && !by_lines && !slab[FN(DST)] && t->dst.stride[level] == row;
    const int crossing = apart && FN(may_cross)(dtype, halves) && !joint && cells % VL == 0 &&
                         FN(multiple_of)(&t->dst, sizeof(real)), staged = apart && !crossing;
    across_t across = {.end = NULL};
    rows_t r = {.vectors = (cells + lanes - 1) / lanes, .q = FN(coefficients_of)(t), .halves = halves,
                .streaming = t->streaming && by_lines && !slab[FN(DST)], .across = crossing ? &across : NULL};
#define AHEAD(name) (ahead < t->count[level] ? ahead * t->name.stride[level] : t->name.streamed)
    if (!slab[FN(SRC)]) r.src_ahead = AHEAD(src);
    if (!slab[FN(DIFF_DST)]) r.diff_ahead = AHEAD(diff_dst);
#undef AHEAD
    r.last = cells - (r.vectors - 1) * lanes;
    r.whole = cells % VL == 0;
    int window = reach - 1;
    const int may_share = FN(may_share)(dtype, backward) && t->streaming && loop == 1 && reach;
    r.margin = 1;
    if (!reach && FN(in_registers)(&t->window[0])) {
#if CYNORM_PICKS
        r.window = FN(window_of)(&t->window[0]);
        r.late = window = 64 - __builtin_clzll((uint64_t)r.window.n); /* one more than its tree has levels */
#endif
    } else if (!reach) {
        r.left = t->window[0].left, r.right = t->window[0].right, window = CYNORM_FAR_WINDOW;
        r.margin = ((r.left > r.right ? r.left : r.right) + VL - 1) / VL;
    }
    r.columns = joint && !r.late;
    r.omegas = FN(row_loops)[dtype].omegas[window];
    r.powers = FN(row_loops)[dtype].powers[backward][loop];
    r.results = FN(row_loops)[dtype].results[window];
    for (int64_t v = t->begin; v < t->end; v++) {
        const region all = FN(region_of)(t, NULL, v);
        cynorm_operand o[FN(OPERANDS)] = {0};
        int64_t step[FN(OPERANDS)] = {0};
        for (int i = 0; i < FN(OPERANDS); i++) {
            const cynorm_lrn_view *m = FN(view)(t, i);
            if (!m->data) continue;
            if (slab[i] && i != FN(DST)) FN(pack)((real *)slab[i], t, m, &all, v, NULL, 0);
            o[i] = FN(operand)(t, m, (real *)slab[i], &all, v);
            step[i] = joint && !slab[i] ? o[i].pitch[0] : vector;
        }
        const cynorm_operand dst = o[FN(DST)];
        r.rows = all.to[level];
        if (staged) {
            o[FN(DST)] = (cynorm_operand){stage, {joint ? r.rows * row : row, joint ? row : 0}};
            if (joint) step[FN(DST)] = r.rows * row;
        }
        for (int64_t i2 = 0; i2 < (joint ? 1 : all.to[2]); i2++) {
#define OPERAND(name, short, i)                                                                               \
    r.name = o[i].data ? o[i].data + i2 * o[i].pitch[1] : NULL, r.short##_step = step[i],                      \
    r.short##_pitch = o[i].pitch[level - 1],                                                                   \
    r.short##_flat = r.whole && !r.late && r.short##_pitch == r.vectors * r.short##_step
            OPERAND(src, src, FN(SRC));
            OPERAND(diff_dst, diff, FN(DIFF_DST));
            OPERAND(y, y, FN(Y));
            OPERAND(dst, dst, FN(DST));
#undef OPERAND
            const int one_loop = may_share && r.src_flat && (backward ? r.diff_flat : r.dst_flat);
            r.both = one_loop ? FN(row_loops)[dtype].both[backward][window] : NULL;
            r.strip = (t->streaming && !one_loop ? CYNORM_ROW_STRIP_BYTES / size : CYNORM_ROW_STRIP) / lanes;
            if (window == CYNORM_FAR_WINDOW) r.strip -= 2 * r.margin;
            if (crossing) FN(go_across)(&across, r.dst, vector);
            if (backward) FN(rows_backward)(&r);
            else FN(rows_forward)(&r);
            if (crossing) across.end = r.dst + r.rows * row;
            for (int64_t i1 = 0; staged && i1 < (joint ? all.to[1] : 1); i1++)
                cynorm_stream_copy(dst.data + i2 * dst.pitch[1] + i1 * dst.pitch[0], stage + i1 * r.rows * row, r.rows * row);
        }
        if (slab[FN(DST)]) FN(pack)((real *)slab[FN(DST)], t, &t->dst, &all, v, stage, streaming);
    }
    if (crossing) FN(go_across)(&across, NULL, vector);
}

/* The walks of a row, over each vector of level 0, keep their own rows of scratch, and take a block of rows one after the
 * other, while the first-level cache holds these. */
static void FN(narrow_walks)(const cynorm_lrn_tile *t, int backward) {
    const int dtype = t->src.dtype, reach = (int)t->left, window = 2 * reach + 1;
    const int64_t size = cynorm_itemsize(dtype), vector = VL * size, entry = t->count[0] * size, row = entry * t->count[1];
    const int64_t walks = (t->count[0] + VL - 1) / VL, full = t->count[0] / VL;
    const int64_t late = (1 + backward) * reach, first = t->begin - late;
    const int64_t kept = FN(walk_row)(t), kept_of_walk = FN(walk_rows)(t, backward) * kept;
    const int by_lines = FN(by_lines)(t, entry, vector);
    const int staged = t->streaming && !by_lines && t->dst.stride[1] == entry && row >= CYNORM_STREAM_LEAST;
    char *stage = (char *)t->scratch + FN(walk_bytes)(t, backward);
    const int64_t fit = CYNORM_WALK / row, most = fit < CYNORM_WALK_MOST ? fit : CYNORM_WALK_MOST;
    const int alone = FN(BESIDE) == 1 && (backward || vector < 64), pieces = FN(BESIDE) > 1 && dtype == CYNORM_COMPUTE;
    const int64_t block = staged || alone || most < 1 ? 1 : most; /* rows */
    walk_t w = {.src_step = t->src.stride[1], .diff_step = t->diff_dst.stride[1], .dst_step = t->dst.stride[1],
                .entries = t->count[1], .piece = t->streaming && pieces ? CYNORM_WALK_PIECE : t->count[1] + late,
                .q = FN(coefficients_of)(t), .streaming = t->streaming && by_lines};
    /* a walk's share of what is prefetched; of entries that follow on, in the order of memory: the core's own prefetchers
     * run ahead of that */
    const int64_t share = entry / walks;
#define AHEAD(name, row)                                                                                       \
    w.name##_ahead = (row) + walk * (w.name##_step == entry ? share * w.entries : vector);                     \
    w.name##_ahead_step = w.name##_step == entry ? share * count : w.name##_step
    void (*run)(const walk_t *) = FN(walk_loops)[dtype][backward][reach - 1][FN(loop_of_beta)(t, 1)];
    for (int64_t i2 = 0; i2 < t->count[2]; i2++) {
        const char *src = t->src.data + i2 * t->src.stride[2];
        const char *diff_dst = backward ? t->diff_dst.data + i2 * t->diff_dst.stride[2] : NULL;
        char *dst = t->dst.data + i2 * t->dst.stride[2];
        for (int64_t begin = first, end; begin < t->end + late; begin = end) {
            end = begin + block < t->end + late ? begin + block : t->end + late;
            for (int64_t walk = 0, count; walk < walks; walk += count) {
                real *rows = (real *)t->scratch + walk * kept_of_walk, *terms_rows = rows + window * kept;
                w.lanes = walk < full ? VL : t->count[0] - walk * VL;
                count = walk + FN(BESIDE) <= full ? FN(BESIDE) : 1;
                w.beside = count > 1 ? kept_of_walk : 0;
                for (int64_t v = begin; v < end; v++) {
                    const int64_t turn = v - first, middle = v - reach, done = v - late;
                    const int squares = v >= 0 && v < t->extent, finish = done >= t->begin;
                    const int terms = backward && middle >= 0 && middle < t->extent && middle >= t->begin - reach;
                    for (int j = 0; j < window; j++) {
                        const int64_t slot = (turn + 1 + j) % window * kept + reach * VL;
                        w.squares[j] = rows + slot, w.terms[j] = terms_rows + slot;
                    }
                    w.weighted_out = terms_rows + (window + turn % (reach + 1)) * kept;
                    w.weighted = terms_rows + (window + (turn + 1) % (reach + 1)) * kept;
                    w.newest = squares ? src + v * t->src.streamed + walk * vector : NULL;
                    w.middle = terms ? src + middle * t->src.streamed + walk * vector : NULL;
                    w.diff_dst = terms ? diff_dst + middle * t->diff_dst.streamed + walk * vector : NULL;
                    w.src = finish ? src + done * t->src.streamed + walk * vector : NULL;
                    w.dst = (staged ? stage : dst + done * t->dst.streamed) + walk * vector;
                    AHEAD(src, src + (v + block) * t->src.streamed);
                    if (backward) {
                        AHEAD(diff, diff_dst + (middle + block) * t->diff_dst.streamed);
                    }
                    /* slabs that are not there have no squares and no terms */
                    for (int k = 0; k < count; k++) {
                        const size_t bytes = (size_t)(kept - reach * VL) * sizeof(real);
                        if (!squares) memset(w.squares[2 * reach] + k * kept_of_walk, 0, bytes);
                        if (backward && !terms) memset(w.terms[2 * reach] + k * kept_of_walk, 0, bytes);
                    }
                    run(&w);
                }
            }
            if (staged && begin - late >= t->begin) cynorm_stream_copy(dst + (begin - late) * t->dst.streamed, stage, row);
        }
    }
#undef AHEAD
}

static void FN(run_kernel)(const cynorm_lrn_tile *t, int backward) {
    switch (FN(narrow_kind)(t)) {
    case FN(BLOCKS): FN(each_run)(t, backward, FN(run_by_blocks)); break;
    case FN(ROWS): FN(narrow_rows)(t, backward); break;
    case FN(PLANES): FN(narrow_planes)(t, backward); break;
    case FN(WALKS): FN(narrow_walks)(t, backward); break;
    case FN(SLABS): FN(narrow_slabs)(t, backward); break;
    default: FN(lrn_tile)(t, backward);
    }
}

/* ---- windows along the stream, of tensors in different memory orders ---- */

static int FN(transposed)(const cynorm_lrn_tile *t, int i) {
    return !FN(contiguous)(FN(view)(t, i)) && FN(transposable)(t) && FN(narrow_kind)(t);
}

/* Bytes of a slab of a transposed operand: rows of dst, the tile's, each with room for the line before it that dst may ask for;
 * or pixels, without. */
static int64_t FN(transposed_bytes)(const cynorm_lrn_tile *t) {
    return t->windows ? t->count[0] * t->count[1] * cynorm_itemsize(t->dst.dtype) : FN(row_bytes)(t);
}

static size_t FN(lrn_scratch)(const cynorm_lrn_tile *t, int backward) {
    int64_t bytes = FN(transposed)(t, FN(DST)) ? cynorm_unpack_bytes(0) : 0;
    for (int i = 0; i < FN(OPERANDS); i++)
        if (FN(transposed)(t, i)) bytes += FN(whole_lines)(t->extent * FN(transposed_bytes)(t));
    return (size_t)bytes + FN(kernel_scratch)(t, backward);
}

/* Slabs [begin, end) of an operand, elements [-before, count) of each, as it lies in memory and in scratch. */
static cynorm_slab FN(transposed_slab)(const cynorm_lrn_tile *t, const cynorm_lrn_view *m, char *scratch, int64_t before,
                                       int64_t begin, int64_t end) {
    const int64_t size = cynorm_itemsize(m->dtype);
    return (cynorm_slab){{m->data + begin * m->streamed - before * m->stride[0], scratch},
                         {{before + t->count[0], {m->stride[0], size}},
                          {end - begin, {m->streamed, FN(transposed_bytes)(t)}},
                          {t->windows ? t->count[1] : 1, {m->stride[1], t->count[0] * size}}},
                         size, 0};
}

/* The tile with operands in scratch where their rows are not contiguous, transposed there and back. */
static void FN(lrn_transposed)(const cynorm_lrn_tile *t, int backward) {
    cynorm_lrn_tile u = *t;
    cynorm_lrn_view *const view[] = {&u.src, &u.diff_dst, &u.y, &u.dst};
    const int64_t size = cynorm_itemsize(t->dst.dtype), pitch = FN(transposed_bytes)(t);
    const int64_t reach = (1 + backward) * (t->left + t->right) + CYNORM_BLOCK_MOST;
    const int64_t first = t->begin > reach ? t->begin - reach : 0;
    const int64_t end = t->end + reach < t->extent ? t->end + reach : t->extent;
    char *free = t->scratch, *stage = free;
    if (FN(transposed)(t, FN(DST))) free += cynorm_unpack_bytes(0), u.streaming = 0;
    for (int i = 0; i < FN(OPERANDS); i++) {
        if (!FN(transposed)(t, i)) continue;
        const int64_t before = i != FN(DST) && t->streaming && t->before && !t->windows ? 64 / size : 0;
        cynorm_slab slab = FN(transposed_slab)(t, view[i], free, before, first, end);
        if (i != FN(DST)) cynorm_pack(&slab);
        *view[i] = (cynorm_lrn_view){free + before * size - first * pitch, pitch, {size, t->count[0] * size}, t->dst.dtype};
        free += FN(whole_lines)(t->extent * pitch);
    }
    u.scratch = free;
    FN(run_kernel)(&u, backward);
    if (!FN(transposed)(t, FN(DST))) return;
    cynorm_slab slab = FN(transposed_slab)(t, &t->dst, u.dst.data + t->begin * pitch, 0, t->begin, t->end);
    cynorm_unpack(&slab, t->streaming && FN(of_whole_elements)(&t->dst) ? stage : NULL, 0);
}

static void FN(lrn)(const cynorm_lrn_tile *t, int backward) {
    cynorm_lrn_tile u = *t;
    cynorm_lrn_view *const view[] = {&u.src, &u.diff_dst, &u.y, &u.dst};
    int transposes = 0;
    for (int i = 0; i < FN(OPERANDS); i++) transposes |= FN(transposed)(t, i);
    if (!transposes) {
        FN(run_kernel)(t, backward);
        return;
    }
    u.count[2] = 1;
    for (int64_t i2 = 0; i2 < t->count[2]; i2++) {
        FN(lrn_transposed)(&u, backward);
        for (int i = 0; i < FN(OPERANDS); i++)
            if (view[i]->data) view[i]->data += view[i]->stride[2];
    }
}

static void FN(lrn_forward)(const cynorm_lrn_tile *t) { FN(lrn)(t, 0); }
static void FN(lrn_backward)(const cynorm_lrn_tile *t) { FN(lrn)(t, 1); }

#undef out_t
#undef block_t
#undef rows_t
#undef row_loop_t
#undef walk_t
#undef plane_t
#undef window_t
#undef sums_t
#undef across_t
#undef strip_t
#undef lines_t
#undef region
#undef coefficients
