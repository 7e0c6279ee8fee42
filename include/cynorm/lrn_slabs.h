/* LRN with a window of many slabs along the stream. A template, see types.h; formulas, tiles and trees are lrn.h's.
 *
 * CYNORM_SLABS slabs are worked on at a time, in strips of CYNORM_STRIP vectors: loops for window sums, terms and
 * results follow one another, each short enough for the core to look several vectors ahead, and hand their rows on
 * in the first-level cache. A strip is also what memory has the time of: reads are asked for all along.
 *
 * With B = CYNORM_SLABS, a block makes S_2, S_4 up to S_B in registers, from the S_1 to S_B/2 that the last block
 * left, and of the sums above these keeps S_B alone, of as many blocks before it as a window reaches over: S_2B and S_4B
 * are added up from it. All of it is replaced in place, line by line as it is read: stores elsewhere would each wait
 * for a line of the second-level cache. */

#ifndef CYNORM_LRN_SLABS_H
#define CYNORM_LRN_SLABS_H
/* Slabs of a block: their sums fit the registers. The widest window; blocks that it reaches over; most vectors of a strip. */
#ifdef __AVX512F__
enum { CYNORM_SLABS = 8 };
#else
enum { CYNORM_SLABS = 4 };
#endif
enum { CYNORM_SLABS_MOST = 8 * CYNORM_SLABS - 1, CYNORM_BLOCKS = 8, CYNORM_STRIP = 8 };
#endif

/* Sums of squares, or of terms. */
#define slab_sums FN(cynorm_lrn_slab_sums)
typedef struct {
    int64_t n;             /* slabs of the window */
    int64_t pitch;         /* reals from a vector's S_B to those of the next */
    real *kept;            /* by vectors: S_1 to S_B/2 of the last slabs of the block before */
    int blocks;            /* before this one that a window reaches over */
    real *block[CYNORM_BLOCKS]; /* by vectors: S_B of the block before, of the one before that, ... */
} slab_sums;

#define slabs_t FN(cynorm_lrn_slabs)
typedef struct {
    /* rows of memory of the block's slabs: the newest, those of which terms are made, those that are finished */
    const char *newest[CYNORM_SLABS], *middle[CYNORM_SLABS], *diff_dst[CYNORM_SLABS], *src[CYNORM_SLABS];
    char *dst[CYNORM_SLABS];
    real *weighted_out[CYNORM_SLABS];
    real *weighted[CYNORM_SLABS];
    int terms[2], finish[2];              /* which of the slabs have terms, which are finished: from, to */
    int64_t src_ahead, diff_ahead;        /* bytes to what is prefetched */
    slab_sums squares, term_sums;
    coefficients q;
    int streaming;
    const cynorm_late *late;              /* dst of the block before */
    real strip[CYNORM_SLABS][CYNORM_STRIP * VL] __attribute__((aligned(64))); /* window sums, or terms */
} slabs_t;

/* S_B of slab j of the block `back` blocks ago, or, where j < 0, of the one before that; `own`: of this one. */
CYNORM_INLINE vec FN(of_block)(const slab_sums *s, const vec *own, int64_t at, int j, int64_t back) {
    if (own && !back && j >= 0) return own[j];
    return FN(load)(s->block[back - (j >= 0)] + at + (j & (CYNORM_SLABS - 1)) * VL);
}

/* S_m likewise; m = B, 2B or 4B. */
CYNORM_INLINE vec FN(of_blocks)(const slab_sums *s, const vec *own, int64_t at, int j, int64_t back, int m) {
    vec sum = FN(of_block)(s, own, at, j, back);
    if (m >= 2 * CYNORM_SLABS) sum += FN(of_block)(s, NULL, at, j, back + 1);
    if (m >= 4 * CYNORM_SLABS) sum += FN(of_block)(s, NULL, at, j, back + 2) + FN(of_block)(s, NULL, at, j, back + 3);
    return sum;
}

/* The window sums of a vector of each slab, from its cells and what is kept; low = n mod B is a constant. */
CYNORM_INLINE void FN(sum_slabs_at)(const slab_sums *s, int64_t vector, vec *cells, vec *sum, int low) {
    real *kept = s->kept + vector * ((CYNORM_SLABS - 1) * VL);
    const int64_t at = vector * s->pitch;
    vec level[2 * CYNORM_SLABS]; /* S_m of slab j is level[B + j] */
    int offset = 0;
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_SLABS; j++) level[CYNORM_SLABS + j] = cells[j], sum[j] = FN(splat)((real)-0.0);
#pragma GCC unroll 8
    for (int m = 1; m < CYNORM_SLABS; m *= 2) {
#pragma GCC unroll 8
        for (int j = 0; j < m; j++) {
            level[CYNORM_SLABS - m + j] = FN(load)(kept + j * VL);
            FN(store)(kept + j * VL, level[2 * CYNORM_SLABS - m + j]);
        }
        kept += m * VL;
#pragma GCC unroll 8
        for (int j = 0; j < CYNORM_SLABS; j++)
            if (low & m) sum[j] = offset ? sum[j] + level[CYNORM_SLABS + j - offset] : level[CYNORM_SLABS + j];
        if (low & m) offset += m;
#pragma GCC unroll 8
        for (int j = CYNORM_SLABS - 1; j >= 0; j--) level[CYNORM_SLABS + j] += level[CYNORM_SLABS + j - m];
    }
    if (s->n < CYNORM_SLABS) return;
    const vec *own = level + CYNORM_SLABS;
    int64_t back = 0;
#pragma GCC unroll 8
    for (int m = CYNORM_SLABS; m <= 4 * CYNORM_SLABS; m *= 2) {
        if (!(s->n & m)) continue;
        if (!back) {
#pragma GCC unroll 8
            for (int j = 0; j < CYNORM_SLABS; j++) sum[j] += FN(of_blocks)(s, own, at, j - low, 0, m);
        } else {
#pragma GCC unroll 8
            for (int j = 0; j < CYNORM_SLABS; j++) sum[j] += FN(of_blocks)(s, NULL, at, j - low, back, m);
        }
        back += m / CYNORM_SLABS;
    }
    if (!s->blocks) return;
    const int all = s->n >= 2 * CYNORM_SLABS; /* else the next block reads the last `low` alone, and none after it */
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_SLABS; j++)
        if (all || j >= CYNORM_SLABS - low) FN(store)(s->block[s->blocks - 1] + at + j * VL, own[j]);
}

/* Window sums of a strip's `vectors` from element i on; of n lanes. */
CYNORM_INLINE void FN(sum_squares)(slabs_t *b, int64_t i, int64_t vectors, int64_t n, int dtype, int low) {
    const slab_sums s = b->squares;
    for (int64_t v = 0; v < vectors; v++) {
        const int64_t at = (i + v * VL) * cynorm_itemsize(dtype);
        vec cell[CYNORM_SLABS], sum[CYNORM_SLABS];
#pragma GCC unroll 8
        for (int j = 0; j < CYNORM_SLABS; j++) {
            __builtin_prefetch(b->newest[j] + at + b->src_ahead, 0, 2);
            cell[j] = FN(get)(b->newest[j] + at, dtype, n);
            cell[j] *= cell[j];
        }
        FN(sum_slabs_at)(&s, i / VL + v, cell, sum, low);
#pragma GCC unroll 8
        for (int j = 0; j < CYNORM_SLABS; j++) FN(store)(b->strip[j] + v * VL, sum[j]);
    }
}

CYNORM_INLINE void FN(sum_terms)(slabs_t *b, int64_t i, int64_t vectors, int low) {
    const slab_sums s = b->term_sums;
    for (int64_t v = 0; v < vectors; v++) {
        vec cell[CYNORM_SLABS], sum[CYNORM_SLABS];
#pragma GCC unroll 8
        for (int j = 0; j < CYNORM_SLABS; j++) cell[j] = FN(load)(b->strip[j] + v * VL);
        FN(sum_slabs_at)(&s, i / VL + v, cell, sum, low);
#pragma GCC unroll 8
        for (int j = 0; j < CYNORM_SLABS; j++) FN(store)(b->strip[j] + v * VL, sum[j]);
    }
}

/* ---- a row of one slab: its terms, its dst, its diff_src, from window sums ---- */

enum { FN(SLAB_TERMS), FN(SLAB_FORWARD), FN(SLAB_BACKWARD) };

#define slab_row FN(cynorm_lrn_slab_row)
typedef struct {
    const char *src, *diff_dst;
    char *dst;
    real *strip, *weighted; /* from i on, and from the row's first element on */
    int64_t diff_ahead;
    coefficients q;
    int streaming;
    const cynorm_late *late; /* piece `row` of it leaves with the row */
    int row;
} slab_row;

/* `together` vectors of it, the first v vectors on from element i; of n lanes. */
CYNORM_INLINE void FN(slab_vectors)(const slab_row *r, int64_t i, int64_t v, int64_t n, int dtype, int stage, int kind,
                                    int together) {
    const int64_t size = cynorm_itemsize(dtype), element = i + v * VL;
    real *strip = r->strip + v * VL, *weighted_row = r->weighted + element;
    vec x[CYNORM_TOGETHER], g[CYNORM_TOGETHER], omega[CYNORM_TOGETHER], out[CYNORM_TOGETHER], weighted[CYNORM_TOGETHER];
#pragma GCC unroll 4
    for (int k = 0; k < together; k++) {
        const int64_t at = (element + k * VL) * size;
        const vec sum = FN(load)(strip + k * VL);
        x[k] = FN(get)(r->src + at, dtype, n);
        if (stage == FN(SLAB_TERMS)) {
            __builtin_prefetch(r->diff_dst + at + r->diff_ahead, 0, 2);
            g[k] = FN(get)(r->diff_dst + at, dtype, n);
        }
        if (stage == FN(SLAB_BACKWARD)) out[k] = FN(diff_src_of)(&r->q, x[k], sum, FN(load)(weighted_row + k * VL));
        else omega[k] = FN(omega_of)(&r->q, sum, n);
    }
    if (stage == FN(SLAB_TERMS)) FN(terms_of)(&r->q, out, omega, g, x, NULL, together, kind, weighted);
    if (stage == FN(SLAB_FORWARD)) FN(times_powers)(out, x, omega, together, kind, r->q.beta, dtype, NULL);
#pragma GCC unroll 4
    for (int k = 0; k < together; k++) {
        char *dst = r->dst + (element + k * VL) * size;
        if (stage != FN(SLAB_TERMS)) cynorm_send_late(r->late, r->row, r->row + 1, (element + k * VL) * size);
        if (stage == FN(SLAB_TERMS)) {
            FN(store)(weighted_row + k * VL, weighted[k]);
            FN(store)(strip + k * VL, FN(part)(out[k], (vec){0}, n));
        } else if (r->streaming && n == VL) FN(put_streaming)(dst, out[k], dtype);
        else FN(put)(dst, out[k], dtype, n);
    }
}

CYNORM_INLINE void FN(slab_rows)(slabs_t *b, int64_t i, int64_t vectors, int64_t n, int dtype, int stage, int kind,
                                 int together) {
    const int terms = stage == FN(SLAB_TERMS), *range = terms ? b->terms : b->finish;
    for (int j = range[0], end = range[1]; j < end; j++) {
        const slab_row r = {terms ? b->middle[j] : b->src[j], b->diff_dst[j], b->dst[j], b->strip[j],
                            terms ? b->weighted_out[j] : b->weighted[j], b->diff_ahead, b->q, b->streaming,
                            b->late, j};
        int64_t v = 0;
        if (n < VL) FN(slab_vectors)(&r, i, v++, n, dtype, stage, kind, 1);
        for (; v + together <= vectors; v += together) FN(slab_vectors)(&r, i, v, VL, dtype, stage, kind, together);
        for (; v < vectors; v++) FN(slab_vectors)(&r, i, v, VL, dtype, stage, kind, 1);
    }
    for (int64_t v = 0; !terms && range[1] < CYNORM_SLABS && v < vectors; v++)
        cynorm_send_late(b->late, range[1], CYNORM_SLABS, (i + v * VL) * cynorm_itemsize(dtype));
}

/* ---- compiled: sums for each storage type and n mod B; terms and results for each, with beta 3/4, with 1/2, 1
 * and 0, and any. Of n lanes: where these are no vector, `vectors` is 1. ---- */

#define CYNORM_SLAB_LOOP(name, ...)                                                                                    \
    static __attribute__((noinline)) void FN(slab_##name)(slabs_t *b, int64_t i, int64_t vectors, int64_t n) {         \
        __VA_ARGS__;                                                                                                   \
    }
#define CYNORM_SQUARES(T, low)                                                                                         \
    CYNORM_SLAB_LOOP(squares_##T##_##low, if (n == VL) FN(sum_squares)(b, i, vectors, VL, CYNORM_##T, low);            \
                                          else FN(sum_squares)(b, i, 1, n, CYNORM_##T, low))
#define CYNORM_SUMS(T, low) CYNORM_SLAB_LOOP(sums_##low, (void)n; FN(sum_terms)(b, i, vectors, low))
#if defined(__AVX512F__)
#define CYNORM_LOWS(each, T) each(T, 0) each(T, 1) each(T, 2) each(T, 3) each(T, 4) each(T, 5) each(T, 6) each(T, 7)
#else
#define CYNORM_LOWS(each, T) each(T, 0) each(T, 1) each(T, 2) each(T, 3)
#endif
#define CYNORM_SLAB_POWERS(T, name, stage, kind, together)                                                             \
    CYNORM_SLAB_LOOP(stage##_##T##_##name, const int beta = kind;                                                      \
                     FN(slab_rows)(b, i, vectors, n, CYNORM_##T, FN(SLAB_##stage), beta, together))
#define CYNORM_SLAB_LOOPS(T)                                                                                           \
    CYNORM_LOWS(CYNORM_SQUARES, T)                                                                                     \
    CYNORM_SLAB_POWERS(T, usual, TERMS, CYNORM_BETA_THREE_QUARTERS, 1)                                                 \
    CYNORM_SLAB_POWERS(T, special, TERMS, cynorm_special_beta(b->q.beta), 1)                                           \
    CYNORM_SLAB_POWERS(T, any, TERMS, CYNORM_BETA_ANY, CYNORM_TOGETHER)                                                \
    CYNORM_SLAB_POWERS(T, usual, FORWARD, CYNORM_BETA_THREE_QUARTERS, 2)                                               \
    CYNORM_SLAB_POWERS(T, special, FORWARD, cynorm_special_beta(b->q.beta), 1)                                         \
    CYNORM_SLAB_POWERS(T, any, FORWARD, CYNORM_BETA_ANY, CYNORM_TOGETHER)                                              \
    CYNORM_SLAB_POWERS(T, none, BACKWARD, CYNORM_BETA_ZERO, 1)
#define CYNORM_SQUARES_OF(T, low) FN(slab_squares_##T##_##low),
#define CYNORM_SUMS_OF(T, low) FN(slab_sums_##low),
#define CYNORM_SLAB_CHOICE(T, stage)                                                                                   \
    {FN(slab_##stage##_##T##_special), FN(slab_##stage##_##T##_usual), FN(slab_##stage##_##T##_any)}
#define CYNORM_SLAB_CHOICES(T)                                                                                         \
    [CYNORM_##T] = {{CYNORM_LOWS(CYNORM_SQUARES_OF, T)}, CYNORM_SLAB_CHOICE(T, TERMS), CYNORM_SLAB_CHOICE(T, FORWARD), \
                    FN(slab_BACKWARD_##T##_none)}
#define slab_loop FN(cynorm_lrn_slab_loop)
typedef void (*slab_loop)(slabs_t *, int64_t i, int64_t vectors, int64_t n);
CYNORM_LOWS(CYNORM_SUMS, )
#if CYNORM_DOUBLE
CYNORM_SLAB_LOOPS(F64)
#else
CYNORM_SLAB_LOOPS(F32)
CYNORM_SLAB_LOOPS(F16)
CYNORM_SLAB_LOOPS(BF16)
#endif
static const slab_loop FN(slab_term_sums)[CYNORM_SLABS] = {CYNORM_LOWS(CYNORM_SUMS_OF, )};
static const struct { slab_loop squares[CYNORM_SLABS], terms[3], forward[3], backward; } FN(slab_loops)[] = {
#if CYNORM_DOUBLE
    CYNORM_SLAB_CHOICES(F64)
#else
    CYNORM_SLAB_CHOICES(F32), CYNORM_SLAB_CHOICES(F16), CYNORM_SLAB_CHOICES(BF16)
#endif
};
#undef CYNORM_SLAB_LOOP
#undef CYNORM_SQUARES
#undef CYNORM_SUMS
#undef CYNORM_LOWS
#undef CYNORM_SLAB_POWERS
#undef CYNORM_SLAB_LOOPS
#undef CYNORM_SQUARES_OF
#undef CYNORM_SUMS_OF
#undef CYNORM_SLAB_CHOICE
#undef CYNORM_SLAB_CHOICES

/* ---- tiles ---- */

/* Vectors of a slab. */
static int64_t FN(slab_length)(const cynorm_lrn_tile *t) { return (t->count[0] + CYNORM_OVERLAP + VL - 1) / VL; }

/* Blocks before one whose S_B a window needs. */
static int FN(slab_blocks)(const cynorm_lrn_tile *t) { return (int)((t->left + t->right) / CYNORM_SLABS); }

/* Reals of a slab_sums. */
static int64_t FN(slab_sums_size)(const cynorm_lrn_tile *t) {
    return FN(slab_length)(t) * ((1 + FN(slab_blocks)(t)) * CYNORM_SLABS * VL);
}

/* Bytes of scratch: a slabs_t, sums, a row of zeros, backward rows of weighted, dst. */
static size_t FN(slabs_scratch)(const cynorm_lrn_tile *t, int backward) {
    const int64_t rows = 1 + (backward ? t->left + CYNORM_SLABS : 0), row = FN(slab_length)(t) * VL + VL;
    const int64_t reals = (1 + backward) * FN(slab_sums_size)(t) + rows * row;
    return sizeof(slabs_t) + (size_t)(reals * (int64_t)sizeof(real) + 2 * FN(stage_bytes)(t, CYNORM_SLABS));
}

/* Whether this serves a tile whose rows are contiguous, windows along the stream alone. In planes smaller than a vector,
 * lrn.h's loop goes from one to the next; the end of a larger one has to write the line that it shares with the tile before. */
static int FN(slabs_serve)(const cynorm_lrn_tile *t) {
    const int64_t n = t->left + t->right + 1;
    return (t->count[0] >= VL || t->before) && n > 1 && n <= CYNORM_SLABS_MOST;
}

static slab_sums FN(slab_sums_in)(const cynorm_lrn_tile *t, real *scratch) {
    slab_sums s = {.n = t->left + t->right + 1, .blocks = FN(slab_blocks)(t), .kept = scratch};
    s.pitch = s.blocks * CYNORM_SLABS * VL;
    memset(scratch, 0, (size_t)FN(slab_sums_size)(t) * sizeof(real));
    for (int q = 0; q < s.blocks; q++) s.block[q] = scratch + (FN(slab_length)(t) + q) * (CYNORM_SLABS * VL);
    return s;
}

/* The block that was replaced is the last one now. */
static void FN(turn_blocks)(slab_sums *s) {
    real *last = s->blocks ? s->block[s->blocks - 1] : NULL;
    for (int q = s->blocks - 1; q > 0; q--) s->block[q] = s->block[q - 1];
    s->block[0] = last;
}

/* Which of the CYNORM_SLABS slabs from `first` on lie in [begin, end). */
static void FN(slab_range)(int *range, int64_t first, int64_t begin, int64_t end) {
    for (int i = 0; i < 2; i++) {
        const int64_t at = (i ? end : begin) - first;
        range[i] = at < 0 ? 0 : at > CYNORM_SLABS ? CYNORM_SLABS : (int)at;
    }
}

/* Slab c gives its squares, the slab `right` before it its terms, and the one another `left` before that is finished;
 * forward has no terms. */
static void FN(run_by_slabs)(const cynorm_lrn_tile *t, int backward, int64_t src_at, int64_t diff_at, int64_t dst_at) {
    const int64_t size = cynorm_itemsize(t->src.dtype), row = FN(slab_length)(t) * VL + VL;
    const int64_t weighted_rows = t->left + CYNORM_SLABS, late = t->right + (backward ? t->left : 0);
    const int64_t terms_begin = t->begin > t->right ? t->begin - t->right : 0;
    const int64_t terms_end = t->end + t->left < t->extent ? t->end + t->left : t->extent;
    const int64_t least = t->begin - t->left - (backward ? t->right : 0), needed = least < 0 ? 0 : least;
    /* the first slab that is finished is the first of its block */
    const int64_t first = t->begin + late - (t->begin + late - needed + CYNORM_SLABS - 1) / CYNORM_SLABS * CYNORM_SLABS;
    const int kind = cynorm_beta_kind(t->beta), dtype = t->src.dtype;
    const int power = kind == CYNORM_BETA_ANY ? 2 : kind == CYNORM_BETA_THREE_QUARTERS;
    slabs_t *b = t->scratch;
    real *sums = (real *)(b + 1), *zeros = sums + (1 + backward) * FN(slab_sums_size)(t), *weighted = zeros + row;
    out_t out;
    FN(open_stage)(&out, t, t->dst.data + dst_at, CYNORM_SLABS, (char *)(weighted + (backward ? weighted_rows * row : 0)));
    const char *src = t->src.data + src_at - out.overlap;
    const char *diff_dst = backward ? t->diff_dst.data + diff_at - out.overlap : NULL;
    b->q = FN(coefficients_of)(t);
    b->src_ahead = CYNORM_SLABS * t->src.streamed, b->diff_ahead = CYNORM_SLABS * t->diff_dst.streamed;
    b->squares = FN(slab_sums_in)(t, sums);
    if (backward) b->term_sums = FN(slab_sums_in)(t, sums + FN(slab_sums_size)(t));
    memset(zeros, 0, (size_t)row * sizeof(real));
    b->streaming = out.streaming, b->late = &out.late;
    const int64_t n = b->squares.n, length = out.row / size;
    const slab_loop squares = FN(slab_loops)[dtype].squares[n % CYNORM_SLABS];
    const slab_loop make_terms = FN(slab_loops)[dtype].terms[power], sum_terms = FN(slab_term_sums)[n % CYNORM_SLABS];
    const slab_loop finish = backward ? FN(slab_loops)[dtype].backward : FN(slab_loops)[dtype].forward[power];
    for (int64_t c = first, turn = 0; c - late < t->end; c += CYNORM_SLABS, turn += CYNORM_SLABS) {
        const int64_t middle = c - t->right, done = c - late;
        FN(slab_range)(b->terms, middle, terms_begin, terms_end);
        FN(slab_range)(b->finish, done, t->begin, t->end);
        const int sums_of_terms = backward && middle + CYNORM_SLABS > terms_begin, finishes = done >= t->begin;
        if (turn >= weighted_rows) turn -= weighted_rows;
        for (int j = 0; j < CYNORM_SLABS; j++) {
            const int64_t slot = turn + j < weighted_rows ? turn + j : turn + j - weighted_rows;
            const int64_t earlier = slot + CYNORM_SLABS; /* by `left`, around the ring */
            b->newest[j] = c + j >= 0 && c + j < t->extent ? src + (c + j) * t->src.streamed : (const char *)zeros;
            b->middle[j] = src + (middle + j) * t->src.streamed;
            b->diff_dst[j] = diff_dst + (middle + j) * t->diff_dst.streamed;
            b->src[j] = src + (done + j) * t->src.streamed;
            b->dst[j] = finishes && j < b->finish[1] ? FN(row_of_dst)(&out, done + j) : NULL;
            b->weighted_out[j] = weighted + slot * row;
            b->weighted[j] = weighted + (earlier < weighted_rows ? earlier : earlier - weighted_rows) * row;
        }
        for (int64_t i = 0, vectors; i < length; i += vectors * VL) {
            const int64_t left = length - i, whole = left / VL, strips = (whole + CYNORM_STRIP - 1) / CYNORM_STRIP;
            const int64_t lanes = whole ? VL : left;
            vectors = whole ? (whole + strips - 1) / strips : 1;
            if (!backward || middle < terms_end) squares(b, i, vectors, lanes);
            if (sums_of_terms) {
                make_terms(b, i, vectors, lanes);
                for (int j = 0; j < CYNORM_SLABS; j++)
                    if (j < b->terms[0] || j >= b->terms[1]) memset(b->strip[j], 0, (size_t)(vectors * VL) * sizeof(real));
                sum_terms(b, i, vectors, lanes);
            }
            if (finishes) finish(b, i, vectors, lanes);
        }
        FN(turn_blocks)(&b->squares);
        if (backward) FN(turn_blocks)(&b->term_sums);
        if (finishes) FN(leave_stage)(&out, done + b->finish[1]);
    }
}

/* Each run of level 0 by itself: what lies beside it in levels 1 and 2 begins as many bytes from the first one. */
static void FN(each_run)(const cynorm_lrn_tile *t, int backward,
                         void (*work)(const cynorm_lrn_tile *, int, int64_t src_at, int64_t diff_at, int64_t dst_at)) {
    for (int64_t i2 = 0; i2 < t->count[2]; i2++)
        for (int64_t i1 = 0; i1 < t->count[1]; i1++) {
#define AT(name) i1 * t->name.stride[1] + i2 * t->name.stride[2]
            work(t, backward, AT(src), AT(diff_dst), AT(dst));
#undef AT
        }
}

#undef slab_sums
#undef slabs_t
#undef slab_row
#undef slab_loop
