/* LRN by columns with a window of 3 or 5 slabs, which registers hold. A template, see types.h; columns are lrn_column.h's. */

#if CYNORM_COLUMNS

/* A sliding window: its latest cell, S_2 of that cell and of the one before, S_4. */
typedef struct { vec cell, pair, earlier, four; } sliding_t;

CYNORM_INLINE vec FN(slide)(sliding_t *s, vec cell, int reach) {
    const vec sum = cell + (reach == 1 ? s->pair : s->four), pair = cell + s->cell;
    s->four = pair + s->earlier;
    s->earlier = s->pair, s->pair = pair, s->cell = cell;
    return sum;
}

enum { CYNORM_COLUMN_STEP = 2 }; /* slabs at a time */

typedef struct {
    sliding_t squares, sums;
    vec earlier[CYNORM_REACH]; /* diff_dst * omega^-beta of what is not finished */
    vec omega[CYNORM_COLUMN_STEP], terms[CYNORM_COLUMN_STEP], weighted[CYNORM_COLUMN_STEP]; /* what a stage leaves for the next */
} column_passing_t;

#define EACH_SLAB _Pragma("GCC unroll 2") for (int j = 0; j < slabs; j++)

/* The stages, each of `slabs` slabs, which exist or do not: omegas, of the newest; */
CYNORM_INLINE void FN(column_omegas)(const column_t *b, column_passing_t *p, place_t *at, slice_t of, int reach, int slabs,
                                     int exist) {
    EACH_SLAB {
        vec x = {0};
        if (exist)
            x = FN(column_read)(at->newest + j * b->src_step, at->src_ahead + j * b->src_step, b->src_step, of, CYNORM_EVEN);
        p->omega[j] = FN(omega_of)(&b->q, FN(slide)(&p->squares, x * x, reach), of.n);
    }
    FN(omegas_go_on)(b, at, slabs);
}

/* terms; */
CYNORM_INLINE void FN(column_terms)(const column_t *b, column_passing_t *p, place_t *at, slice_t of, int kind, int slabs,
                                    int exist) {
    vec x[CYNORM_COLUMN_STEP], g[CYNORM_COLUMN_STEP];
    EACH_SLAB {
        p->terms[j] = p->weighted[j] = (vec){0};
        if (!exist) continue;
        g[j] = FN(column_read)(at->diff_dst + j * b->diff_step, at->diff_ahead + j * b->diff_step, b->diff_step, of, CYNORM_ODD);
        x[j] = FN(column_get)(at->middle + j * b->src_step, of);
    }
    if (exist) FN(terms_of)(&b->q, p->terms, p->omega, g, x, NULL, slabs, kind, p->weighted, NULL);
    FN(terms_go_on)(b, at, slabs);
}

/* Results, backward; */
CYNORM_INLINE void FN(column_results)(const column_t *b, column_passing_t *p, place_t *at, slice_t of, int reach, int slabs,
                                      int exist, int way) {
    EACH_SLAB {
        const vec sum = FN(slide)(&p->sums, p->terms[j], reach), weighted = p->earlier[0];
        if (reach > 1) p->earlier[0] = p->earlier[1];
        p->earlier[reach - 1] = p->weighted[j];
        if (!exist) continue;
        const vec x = FN(column_get)(at->finished + j * b->src_step, of);
        FN(column_leave)(at->dst + j * b->dst_step, at->before + j * 64, at->even + j * 64, at->lanes + j,
                         FN(diff_src_of)(&b->q, x, sum, weighted), of, way);
    }
    FN(results_go_on)(b, at, slabs);
}

/* or forward. */
CYNORM_INLINE void FN(column_powers)(const column_t *b, column_passing_t *p, place_t *at, slice_t of, int kind, int slabs,
                                     int exist, int way) {
    vec x[CYNORM_COLUMN_STEP], out[CYNORM_COLUMN_STEP];
    if (exist) {
        EACH_SLAB x[j] = FN(column_get)(at->finished + j * b->src_step, of);
        FN(times_powers)(out, x, p->omega, slabs, kind, b->q.beta, of.dtype, NULL, NULL);
        EACH_SLAB FN(column_leave)(at->dst + j * b->dst_step, at->before + j * 64, at->even + j * 64, at->lanes + j, out[j],
                                   of, way);
    }
    FN(results_go_on)(b, at, slabs);
}

/* Slab c is read, the slab `reach` before it gets its term, the slab another `reach` before is finished, or gets its power: at the
 * ends of a column, one slab at a time; else by steps, each stage a step after the one before, so that data that come late hold up
 * nothing else. */
CYNORM_INLINE void FN(column)(const column_t *b, int64_t from, slice_t of, int backward, int reach, int kind, int way) {
    enum { STEP = CYNORM_COLUMN_STEP };
    const int64_t all = (1 + backward) * reach, begin = b->finish[0] + all, end = b->finish[1] + all;
    const int64_t under_way = (1 + backward) * STEP;
    int64_t c = b->first;
    place_t at = FN(place_of)(b, from, c, reach, all);
    column_passing_t p = {{{0}}};
#define OMEGAS(slabs, exist) FN(column_omegas)(b, &p, &at, of, reach, slabs, exist)
#define TERMS(slabs, exist) FN(column_terms)(b, &p, &at, of, kind, slabs, exist)
#define RESULTS(slabs, exist)                                                          \
    do {                                                                               \
        if (backward) FN(column_results)(b, &p, &at, of, reach, slabs, exist, way);    \
        else FN(column_powers)(b, &p, &at, of, kind, slabs, exist, way);               \
    } while (0)
#define ONE(finishes)                                                                  \
    do {                                                                               \
        if (c < b->end) OMEGAS(1, 1);                                                  \
        else OMEGAS(1, 0);                                                             \
        if (!backward) {}                                                              \
        else if (c - reach >= b->terms[0] && c - reach < b->terms[1]) TERMS(1, 1);     \
        else TERMS(1, 0);                                                              \
        RESULTS(1, finishes);                                                          \
    } while (0)
    for (; c < begin; c++) ONE(0);
    if (c + under_way <= b->end) {
        OMEGAS(STEP, 1);
        if (backward) {
            TERMS(STEP, 1);
            OMEGAS(STEP, 1);
        }
        for (c += under_way; c + STEP <= b->end; c += STEP) {
            /* a register for each, in place of sums of some, which take more instructions than there is time for */
            __asm__("" : "+r"(at.newest), "+r"(at.finished), "+r"(at.src_ahead), "+r"(at.dst), "+r"(at.before), "+r"(at.lanes));
            if (backward) __asm__("" : "+r"(at.middle), "+r"(at.diff_dst), "+r"(at.diff_ahead));
            if (of.part != CYNORM_ALL) __asm__("" : "+r"(at.even));
            RESULTS(STEP, 1);
            if (backward) TERMS(STEP, 1);
            OMEGAS(STEP, 1);
        }
        RESULTS(STEP, 1);
        if (backward) {
            TERMS(STEP, 1);
            RESULTS(STEP, 1);
        }
    }
    for (; c < end; c++) ONE(1);
#undef OMEGAS
#undef TERMS
#undef RESULTS
#undef ONE
}

/* A line of each slab. */
CYNORM_INLINE void FN(column_of_lines)(const column_t *b, int64_t from, int dtype, int backward, int reach, int kind, int way) {
    if (FN(is_line)(dtype)) FN(column)(b, from, (slice_t){dtype, CYNORM_ALL, VL}, backward, reach, kind, way);
    else {
        FN(column)(b, from, (slice_t){dtype, CYNORM_EVEN, VL}, backward, reach, kind, CYNORM_COLUMN_PLAIN);
        FN(column)(b, from, (slice_t){dtype, CYNORM_ODD, VL}, backward, reach, kind, way);
    }
}

/* ---- compiled loops ---- */

/* What is given is copied, since the stores of dst might alias it. */
#define CYNORM_COLUMN_LOOP(T, direction, reach, name, kind, way)                                                             \
    static __attribute__((noinline)) void FN(column_##T##_##direction##reach##name##_##way)(const column_t *given,           \
                                                                                            int64_t from, int64_t to) {      \
        const column_t b = *given;                                                                                           \
        const int beta = kind, backward = #direction[0] == 'b';                                                              \
        for (; from + 64 <= to; from += 64)                                                                                  \
            FN(column_of_lines)(&b, from, CYNORM_##T, backward, reach, beta, CYNORM_COLUMN_##way);                           \
        for (; CYNORM_COLUMN_##way == CYNORM_COLUMN_PLAIN && from < to; from += VL * b.size) {                               \
            const int64_t left = (to - from) / b.size, n = left < VL ? left : VL;                                            \
            FN(column)(&b, from, (slice_t){CYNORM_##T, CYNORM_ALL, n}, backward, reach, beta, CYNORM_COLUMN_PLAIN);          \
        }                                                                                                                    \
    }
#define CYNORM_COLUMN_CACHED(T, direction, reach, name, kind, together) CYNORM_COLUMN_LOOP(T, direction, reach, name, kind, PLAIN)
#define CYNORM_COLUMN_WAYS(T, direction, reach, name, kind, together)                                                        \
    CYNORM_COLUMN_LOOP(T, direction, reach, name, kind, PLAIN)                                                               \
    CYNORM_COLUMN_LOOP(T, direction, reach, name, kind, LINES)                                                               \
    CYNORM_COLUMN_LOOP(T, direction, reach, name, kind, ACROSS)
#define CYNORM_BOTH_REACHES(EXPONENTS, LOOPS, T, direction)                                                                  \
    EXPONENTS(LOOPS, T, direction, 1)                                                                                        \
    EXPONENTS(LOOPS, T, direction, 2)
CYNORM_BOTH_REACHES(CYNORM_SPECIAL_EXPONENTS, CYNORM_COLUMN_CACHED, F32, forward)
CYNORM_BOTH_REACHES(CYNORM_EXPONENTS, CYNORM_COLUMN_WAYS, F32, backward)
CYNORM_BOTH_REACHES(CYNORM_SPECIAL_EXPONENTS, CYNORM_COLUMN_WAYS, F16, backward)
CYNORM_BOTH_REACHES(CYNORM_SPECIAL_EXPONENTS, CYNORM_COLUMN_WAYS, BF16, backward)
#define CYNORM_WAYS_OF(name) {FN(name##_PLAIN), FN(name##_LINES), FN(name##_ACROSS)}
#define CYNORM_CACHED_OF(name) {{FN(name##special_PLAIN)}, {FN(name##usual_PLAIN)}}
#define CYNORM_SPECIAL_OF(name) {CYNORM_WAYS_OF(name##special), CYNORM_WAYS_OF(name##usual)}
#define CYNORM_ALL_OF(name) {CYNORM_WAYS_OF(name##special), CYNORM_WAYS_OF(name##usual), CYNORM_WAYS_OF(name##any)}
static const column_loop FN(column_loops)[CYNORM_DTYPES][2][2][3][3] = { /* exponents in the order of loop_of_beta */
    [CYNORM_F32] = {{CYNORM_CACHED_OF(column_F32_forward1), CYNORM_CACHED_OF(column_F32_forward2)},
                    {CYNORM_ALL_OF(column_F32_backward1), CYNORM_ALL_OF(column_F32_backward2)}},
    [CYNORM_F16] = {[1] = {CYNORM_SPECIAL_OF(column_F16_backward1), CYNORM_SPECIAL_OF(column_F16_backward2)}},
    [CYNORM_BF16] = {[1] = {CYNORM_SPECIAL_OF(column_BF16_backward1), CYNORM_SPECIAL_OF(column_BF16_backward2)}}};
#undef CYNORM_COLUMN_LOOP
#undef CYNORM_COLUMN_CACHED
#undef CYNORM_COLUMN_WAYS
#undef CYNORM_BOTH_REACHES
#undef CYNORM_WAYS_OF
#undef CYNORM_CACHED_OF
#undef CYNORM_SPECIAL_OF
#undef CYNORM_ALL_OF

#undef EACH_SLAB

#endif
