/* LRN backward with a window of 3 or 5 slabs along the stream, where a vector is a line of memory. A template, see types.h;
 * formulas, tiles and trees are lrn.h's.
 *
 * A column is a line of each slab. It goes through all slabs before the next one does, so that what windows reach over stays in
 * registers, and a line is read from beyond the first-level cache once. Where columns do not lie at lines, dst leaves by lines
 * that are the end of one vector and what begins the next. */

#ifndef CYNORM_LRN_COLUMNS_H
#define CYNORM_LRN_COLUMNS_H
enum { CYNORM_COLUMN_SLABS = 512 };      /* the most of a column */
enum { CYNORM_COLUMN_AHEAD = 64 << 10 }; /* bytes that are asked for before they are read: some columns of all slabs, */
enum { CYNORM_COLUMN_NEAR = 4 };         /* and, into the first-level cache, slabs of the column */
/* How dst leaves: as it is; by lines, past the cache; by lines that lie across vectors. */
enum { CYNORM_COLUMN_PLAIN, CYNORM_COLUMN_LINES, CYNORM_COLUMN_ACROSS };
#endif

#if defined(__AVX512F__) && !CYNORM_DOUBLE /* whose powers gain nothing by it */

#define column_t FN(cynorm_lrn_column)
typedef struct {
    const char *src, *diff_dst;            /* slab 0 */
    char *dst;
    int64_t src_step, diff_step, dst_step; /* bytes from a slab to the next */
    int64_t row;                           /* bytes of a slab */
    int64_t first, end;                    /* slabs that are read: from, to */
    int64_t terms[2], finish[2];           /* which have terms, are finished: from, to */
    int64_t ahead, src_run, diff_run;      /* bytes to what is asked for; from this run to the next one, or 0 */
    coefficients q;
    /* Of slab 0, those of others follow: a line for the vector before, one for what ends a row; from which word on the vector
     * before leaves with the next. */
    char *before, *rest;
    int32_t *lanes;
} column_t;

/* Where each stage is in memory. */
#define place_t FN(cynorm_lrn_column_place)
typedef struct {
    const char *newest, *middle, *finished, *diff_dst, *src_ahead, *diff_ahead;
    char *dst, *before;
    const int32_t *lanes;
} place_t;

/* `at` bytes into rows, where slab c is the newest. */
CYNORM_INLINE place_t FN(place_of)(const column_t *b, int64_t at, int64_t c, int reach) {
    const int64_t middle = c - reach, finished = middle - reach, ahead = at + b->ahead, past = ahead - b->row;
    return (place_t){.newest = b->src + at + c * b->src_step,
                     .middle = b->src + at + middle * b->src_step,
                     .finished = b->src + at + finished * b->src_step,
                     .diff_dst = b->diff_dst + at + middle * b->diff_step,
                     .src_ahead = b->src + c * b->src_step + (past < 0 ? ahead : past + b->src_run),
                     .diff_ahead = b->diff_dst + middle * b->diff_step + (past < 0 ? ahead : past + b->diff_run),
                     .dst = b->dst + at + finished * b->dst_step,
                     .before = b->before + finished * 64,
                     .lanes = b->lanes + finished};
}

/* n lanes of dst. */
CYNORM_INLINE void FN(column_leave)(char *dst, char *before, const int32_t *lanes, vec out, int64_t n, int way) {
    if (way == CYNORM_COLUMN_PLAIN) FN(put)(dst, out, CYNORM_COMPUTE, n);
    else if (way == CYNORM_COLUMN_LINES) cynorm_stream(dst, &out, 64);
    else {
        ivec lane;
        for (int i = 0; i < VL; i++) lane[i] = i;
        const vec line = FN(picked)(FN(load)((const real *)before), out, lane + *lanes);
        cynorm_stream((char *)((intptr_t)dst & -64), &line, 64);
        FN(store)((real *)before, out);
    }
}

/* A window that goes on: its latest cell, S_2 of that and of the one before, S_4. */
#define sliding_t FN(cynorm_lrn_sliding)
typedef struct { vec cell, pair, earlier, four; } sliding_t;

CYNORM_INLINE vec FN(slide)(sliding_t *s, vec cell, int reach) {
    const vec sum = cell + (reach == 1 ? s->pair : s->four), pair = cell + s->cell;
    s->four = pair + s->earlier;
    s->earlier = s->pair, s->pair = pair, s->cell = cell;
    return sum;
}

enum { FN(COLUMN_STEP) = 2 }; /* slabs at a time */

#define passing_t FN(cynorm_lrn_column_passing)
typedef struct {
    sliding_t squares, sums;
    vec earlier[CYNORM_REACH]; /* diff_dst * omega^-beta of what is not finished */
    vec omega[FN(COLUMN_STEP)], terms[FN(COLUMN_STEP)], weighted[FN(COLUMN_STEP)]; /* what a stage leaves for the next */
} passing_t;

#define EACH_SLAB _Pragma("GCC unroll 2") for (int j = 0; j < slabs; j++)

/* The stages, each of so many slabs, which exist or do not: omegas, of the newest; */
CYNORM_INLINE void FN(column_omegas)(const column_t *b, passing_t *p, place_t *at, int64_t n, int reach, int slabs, int exist) {
    EACH_SLAB {
        const char *src = at->newest + j * b->src_step;
        vec x = {0};
        if (exist) {
            x = FN(get)(src, CYNORM_COMPUTE, n);
            __builtin_prefetch(at->src_ahead + j * b->src_step, 0, 2);
            __builtin_prefetch(src + CYNORM_COLUMN_NEAR * b->src_step + 63, 0, 3); /* what the column before has not read */
        }
        p->omega[j] = FN(omega_of)(&b->q, FN(slide)(&p->squares, x * x, reach), n);
    }
    at->newest += slabs * b->src_step, at->src_ahead += slabs * b->src_step;
}

/* terms; */
CYNORM_INLINE void FN(column_terms)(const column_t *b, passing_t *p, place_t *at, int64_t n, int kind, int slabs, int exist) {
    vec x[FN(COLUMN_STEP)], g[FN(COLUMN_STEP)];
    EACH_SLAB {
        const char *diff_dst = at->diff_dst + j * b->diff_step;
        p->terms[j] = p->weighted[j] = (vec){0};
        if (!exist) continue;
        g[j] = FN(get)(diff_dst, CYNORM_COMPUTE, n);
        x[j] = FN(get)(at->middle + j * b->src_step, CYNORM_COMPUTE, n);
        __builtin_prefetch(at->diff_ahead + j * b->diff_step, 0, 2);
        __builtin_prefetch(diff_dst + CYNORM_COLUMN_NEAR * b->diff_step + 63, 0, 3);
    }
    if (exist) FN(terms_of)(&b->q, p->terms, p->omega, g, x, NULL, slabs, kind, p->weighted);
    at->middle += slabs * b->src_step;
    at->diff_dst += slabs * b->diff_step, at->diff_ahead += slabs * b->diff_step;
}

/* results. */
CYNORM_INLINE void FN(column_results)(const column_t *b, passing_t *p, place_t *at, int64_t n, int reach, int slabs, int exist,
                                      int way) {
    EACH_SLAB {
        const vec sum = FN(slide)(&p->sums, p->terms[j], reach), weighted = p->earlier[0];
        if (reach > 1) p->earlier[0] = p->earlier[1];
        p->earlier[reach - 1] = p->weighted[j];
        if (!exist) continue;
        const vec x = FN(get)(at->finished + j * b->src_step, CYNORM_COMPUTE, n);
        FN(column_leave)(at->dst + j * b->dst_step, at->before + j * 64, at->lanes + j,
                         FN(diff_src_of)(&b->q, x, sum, weighted), n, way);
    }
    at->finished += slabs * b->src_step;
    at->dst += slabs * b->dst_step, at->before += slabs * 64, at->lanes += slabs;
}

/* Slab c is read, the one `reach` before it has a term, the one as many before that is finished: at the ends of a column one slab
 * at a time; else by steps, each stage a step after the one before, so that what comes late holds up nothing else. */
CYNORM_INLINE void FN(column)(const column_t *b, int64_t from, int64_t n, int reach, int kind, int way) {
    enum { STEP = FN(COLUMN_STEP) };
    const int64_t begin = b->finish[0] + 2 * reach, end = b->finish[1] + 2 * reach;
    int64_t c = b->first;
    place_t at = FN(place_of)(b, from, c, reach);
    passing_t p = {{{0}}};
#define OMEGAS(slabs, exist) FN(column_omegas)(b, &p, &at, n, reach, slabs, exist)
#define TERMS(slabs, exist) FN(column_terms)(b, &p, &at, n, kind, slabs, exist)
#define RESULTS(slabs, exist) FN(column_results)(b, &p, &at, n, reach, slabs, exist, way)
#define ONE(finishes)                                                                  \
    do {                                                                               \
        if (c < b->end) OMEGAS(1, 1);                                                  \
        else OMEGAS(1, 0);                                                             \
        if (c - reach >= b->terms[0] && c - reach < b->terms[1]) TERMS(1, 1);          \
        else TERMS(1, 0);                                                              \
        RESULTS(1, finishes);                                                          \
    } while (0)
    for (; c < begin; c++) ONE(0);
    if (c + 2 * STEP <= b->end) {
        OMEGAS(STEP, 1);
        TERMS(STEP, 1);
        OMEGAS(STEP, 1);
        for (c += 2 * STEP; c + STEP <= b->end; c += STEP) {
            /* a register for each, in place of sums of some, which take more instructions than there is time for */
            __asm__("" : "+r"(at.newest), "+r"(at.middle), "+r"(at.finished), "+r"(at.diff_dst), "+r"(at.src_ahead),
                         "+r"(at.diff_ahead), "+r"(at.dst), "+r"(at.before), "+r"(at.lanes));
            RESULTS(STEP, 1);
            TERMS(STEP, 1);
            OMEGAS(STEP, 1);
        }
        RESULTS(STEP, 1);
        TERMS(STEP, 1);
        RESULTS(STEP, 1);
    }
    for (; c < end; c++) ONE(1);
#undef OMEGAS
#undef TERMS
#undef RESULTS
#undef ONE
}

/* ---- compiled loops: columns [from, to), in bytes; the last one of PLAIN may be of less than a line ---- */

#define column_loop FN(cynorm_lrn_column_loop)
typedef void (*column_loop)(const column_t *, int64_t from, int64_t to);

/* What is given is copied, since the stores of dst might alias it. */
#define CYNORM_COLUMN_LOOP(reach, name, kind, way)                                                                          \
    static __attribute__((noinline)) void FN(column_##reach##name##_##way)(const column_t *given, int64_t from, int64_t to) { \
        const column_t b = *given;                                                                                          \
        const int beta = kind;                                                                                              \
        for (; from + 64 <= to; from += 64) FN(column)(&b, from, VL, reach, beta, CYNORM_COLUMN_##way);                     \
        if (CYNORM_COLUMN_##way == CYNORM_COLUMN_PLAIN && from < to)                                                        \
            FN(column)(&b, from, (to - from) / (int64_t)sizeof(real), reach, beta, CYNORM_COLUMN_PLAIN);                    \
    }
#define CYNORM_COLUMN_WAYS(T, direction, reach, name, kind, together)                                                       \
    CYNORM_COLUMN_LOOP(reach, name, kind, PLAIN)                                                                            \
    CYNORM_COLUMN_LOOP(reach, name, kind, LINES)                                                                            \
    CYNORM_COLUMN_LOOP(reach, name, kind, ACROSS)
CYNORM_EXPONENTS(CYNORM_COLUMN_WAYS, , , 1)
CYNORM_EXPONENTS(CYNORM_COLUMN_WAYS, , , 2)
#define CYNORM_WAYS_OF(name) {FN(name##_PLAIN), FN(name##_LINES), FN(name##_ACROSS)}
static const column_loop FN(column_loops)[2][3][3] = { /* exponents in the order of loop_of_beta */
    {CYNORM_WAYS_OF(column_1special), CYNORM_WAYS_OF(column_1usual), CYNORM_WAYS_OF(column_1any)},
    {CYNORM_WAYS_OF(column_2special), CYNORM_WAYS_OF(column_2usual), CYNORM_WAYS_OF(column_2any)}};
#undef CYNORM_COLUMN_LOOP
#undef CYNORM_COLUMN_WAYS
#undef CYNORM_WAYS_OF

/* ---- rows ---- */

/* Of rows that do not begin at lines the first vectors, of which what ends a line is written at once, and what ends the rows go
 * by scratch. */
static void FN(columns_across)(const column_t *given, const column_loop *loop) {
    const int64_t lines = given->row & -64;
    column_t b = *given;
    b.dst = b.before, b.dst_step = 64;
    loop[CYNORM_COLUMN_PLAIN](&b, 0, 64);
    for (int64_t v = b.finish[0]; v < b.finish[1]; v++) {
        char *dst = given->dst + v * given->dst_step;
        const int64_t head = 64 - ((intptr_t)dst & 63);
        memcpy(dst, b.before + v * 64, (size_t)head);
        b.lanes[v] = (int32_t)(head / 4);
    }
    loop[CYNORM_COLUMN_ACROSS](given, 64, lines);
    b.dst = b.rest - lines;
    if (lines < b.row) loop[CYNORM_COLUMN_PLAIN](&b, lines, b.row);
    for (int64_t v = b.finish[0]; v < b.finish[1]; v++) {
        char *dst = given->dst + v * given->dst_step + lines, last[128];
        const int64_t waits = (intptr_t)dst & 63;
        memcpy(last, b.before + v * 64, 64);
        memcpy(last + 64, b.rest + v * 64, 64);
        cynorm_stream_copy(dst - waits, last + 64 - waits, waits + b.row - lines);
    }
}

static void FN(run_columns)(const cynorm_lrn_tile *t, int backward, int64_t src_at, int64_t diff_at, int64_t dst_at) {
    const int64_t reach = t->left, least = t->begin - 2 * reach, most = t->end + 2 * reach;
    column_t b = {.src = t->src.data + src_at, .diff_dst = t->diff_dst.data + diff_at, .dst = t->dst.data + dst_at,
                  .src_step = t->src.streamed, .diff_step = t->diff_dst.streamed, .dst_step = t->dst.streamed,
                  .row = t->count[0] * (int64_t)sizeof(real), .first = least < 0 ? 0 : least,
                  .end = most < t->extent ? most : t->extent, .finish = {t->begin, t->end}, .q = FN(coefficients_of)(t),
                  .before = t->scratch};
    const column_loop *loop = FN(column_loops)[reach - 1][FN(loop_of_beta)(t, 1)];
    const int64_t lines = b.row & -64;
    (void)backward;
    if (t->dst.data != t->src.data && t->dst.data != t->diff_dst.data) { /* else another thread may be writing to it */
        b.src_run = t->count[1] > 1 ? t->src.stride[1] : t->extent * t->src.streamed;
        b.diff_run = t->count[1] > 1 ? t->diff_dst.stride[1] : t->extent * t->diff_dst.streamed;
    }
    b.terms[0] = t->begin > reach ? t->begin - reach : 0;
    b.terms[1] = t->end + reach < t->extent ? t->end + reach : t->extent;
    b.ahead = (CYNORM_COLUMN_AHEAD / (2 * 64 * (b.end - b.first)) + 1) * 64;
    b.rest = b.before + t->extent * 64;
    b.lanes = (int32_t *)(b.rest + t->extent * 64);
    if (t->streaming && !FN(by_lines)(t, b.row, 64)) {
        FN(columns_across)(&b, loop);
        return;
    }
    loop[t->streaming ? CYNORM_COLUMN_LINES : CYNORM_COLUMN_PLAIN](&b, 0, lines);
    if (lines < b.row) loop[CYNORM_COLUMN_PLAIN](&b, lines, b.row);
}

/* ---- tiles ---- */

static size_t FN(columns_scratch)(const cynorm_lrn_tile *t) { return (size_t)(t->extent * (64 + 64 + 4)); }

/* Whether the lines of a column, `step` bytes apart, find room in the caches: in the first one, what is 4 KB apart has the same
 * sets. */
static int FN(spread)(int64_t slabs, int64_t step) {
    for (int64_t period = 512; period <= 4096; period *= 2) {
        const int64_t past = step & (period - 1);
        if ((past < 64 || period - past < 64) && slabs * period > (period == 512 ? 1 << 16 : 1 << 15)) return 0;
    }
    return slabs <= CYNORM_COLUMN_SLABS;
}

/* Whether this serves a tile whose rows are contiguous, and whose windows are of 3 or 5 slabs. */
static int FN(columns_serve)(const cynorm_lrn_tile *t) {
    if (!t->diff_dst.data || !FN(is_line)(t->src.dtype) || t->count[0] < VL) return 0;
    if (t->streaming && (t->count[0] * (int64_t)sizeof(real) < CYNORM_STREAM_LEAST || !FN(of_whole_elements)(&t->dst))) return 0;
    return FN(spread)(t->extent, t->src.streamed) && FN(spread)(t->extent, t->diff_dst.streamed);
}

static void FN(lrn_columns)(const cynorm_lrn_tile *t, int backward) { FN(each_run)(t, backward, FN(run_columns)); }

#undef column_t
#undef place_t
#undef sliding_t
#undef passing_t
#undef column_loop
#undef EACH_SLAB

#else

static size_t FN(columns_scratch)(const cynorm_lrn_tile *t) { return (void)t, (size_t)0; }
static int FN(columns_serve)(const cynorm_lrn_tile *t) { return (void)t, 0; }
static void FN(lrn_columns)(const cynorm_lrn_tile *t, int backward) { (void)t, (void)backward; }

#endif
