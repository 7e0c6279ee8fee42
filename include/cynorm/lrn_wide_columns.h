/* LRN by columns with a window of 7 to 31 slabs, an odd number. A template, see types.h; columns are lrn_column.h's, trees lrn.h's.
 *
 * Registers do not hold what such windows reach over. It is kept in a ring of places, a slab each, which the loop's body takes one
 * after another, so that each place is a constant there. At the beginning of a column, until all stages have work and the slabs
 * that are left are a multiple of the ring, the places change hands instead. */

#if CYNORM_COLUMNS

enum { CYNORM_WIDE_REACH = 15 };
enum { CYNORM_WIDE_STEP = 2, CYNORM_WIDE_MOST = 16 }; /* slabs of a step; of the largest ring */
/* Slabs of a ring, and of the loop's body. */
#define CYNORM_WIDE_RING(window) ((window) < CYNORM_WIDE_MOST ? 8 : CYNORM_WIDE_MOST)
/* Slabs from one stage to the next: as far as the window reaches, by whole steps, and a step more: none waits for another. */
#define CYNORM_LATE(reach) ((reach) + ((reach) & 1) + 2)

/* Whether `slabs` slabs are whole steps and keep all stages at work at once. */
static int FN(whole_steps)(int64_t slabs, int64_t reach, int backward) {
    return slabs % CYNORM_WIDE_STEP == 0 && slabs >= (1 + backward) * CYNORM_LATE(reach);
}

/* What is kept of a slab: S_4, S_8 and S_16 of its squares and of its terms, diff_dst * omega^-beta. */
typedef struct { vec four[2], eight[2], sixteen[2], weighted; } kept_t;

/* What stays in registers: the latest cell, S_2 of the latest two, S_4. */
typedef struct { vec cell, pair[CYNORM_WIDE_STEP], four; } tree_t;

/* What a stage leaves for the next; for an odd reach, with one slab of the step before. */
typedef struct {
    tree_t squares, sums;
    vec omega[CYNORM_WIDE_STEP + 1], terms[CYNORM_WIDE_STEP + 1], weighted[CYNORM_WIDE_STEP];
} wide_t;

#define EACH_SLAB _Pragma("GCC unroll 2") for (int j = 0; j < CYNORM_WIDE_STEP; j++)
/* Of the slab `back` before a step's first one; q: places of the step, of the one before, ... */
#define KEPT(back) q[((back) + 1) / 2 & (CYNORM_WIDE_RING(window) / 2 - 1)][(back) & 1]

/* The window sums of two slabs, from their cells: squares or terms. */
CYNORM_INLINE void FN(slide_wide)(tree_t *s, kept_t *const *q, const vec *cell, vec *sum, int window, int terms) {
    vec two[CYNORM_WIDE_STEP], four[CYNORM_WIDE_STEP], eight[CYNORM_WIDE_STEP], sixteen[CYNORM_WIDE_STEP];
    EACH_SLAB {
        two[j] = cell[j] + (j ? cell[0] : s->cell);
        four[j] = two[j] + s->pair[j];
        if (window >= 8) eight[j] = four[j] + KEPT(4 - j).four[terms];
        if (window & 16) sixteen[j] = eight[j] + KEPT(8 - j).eight[terms];
    }
    EACH_SLAB {
        int done = 1 - j;
        sum[j] = cell[j];
        if (window & 2) sum[j] += done ? s->pair[1] : two[0], done += 2;
        if (window & 4) sum[j] += !done ? four[0] : done == 1 ? s->four : KEPT(done).four[terms], done += 4;
        if (window & 8) sum[j] += !done ? eight[0] : KEPT(done).eight[terms], done += 8;
        if (window & 16) sum[j] += !done ? sixteen[0] : KEPT(done).sixteen[terms];
    }
    EACH_SLAB {
        q[0][j].four[terms] = four[j];
        if (window >= 8) q[0][j].eight[terms] = eight[j];
        if (window & 16) q[0][j].sixteen[terms] = sixteen[j];
        s->pair[j] = two[j];
    }
    s->cell = cell[1], s->four = four[1];
}

CYNORM_INLINE void FN(pass_on)(vec *to, const vec *from, int odd) {
    if (odd) to[0] = to[2];
    EACH_SLAB to[odd + j] = from[j];
}

/* Which slabs of a stage exist: none, and nothing is left to do; none, those of a range, all. */
enum { CYNORM_SLABS_IDLE, CYNORM_SLABS_NONE, CYNORM_SLABS_SOME, CYNORM_SLABS_ALL };
CYNORM_INLINE int FN(exists)(int which, int64_t v, int64_t from, int64_t to) {
    return which == CYNORM_SLABS_ALL || (which == CYNORM_SLABS_SOME && v >= from && v < to);
}

/* The stages, of slabs v and v + 1: omegas; */
CYNORM_INLINE void FN(wide_omegas)(const column_t *b, wide_t *p, kept_t *const *q, place_t *at, slice_t of, int window, int which,
                                   int64_t v) {
    vec cell[CYNORM_WIDE_STEP], sum[CYNORM_WIDE_STEP], omega[CYNORM_WIDE_STEP];
    if (which == CYNORM_SLABS_IDLE) return;
    EACH_SLAB {
        cell[j] = (vec){0};
        if (!FN(exists)(which, v + j, b->first, b->end)) continue;
        const vec x = FN(column_read)(at->newest + j * b->src_step, at->src_ahead + j * b->src_step, b->src_step, of, CYNORM_ALL);
        cell[j] = x * x;
    }
    FN(slide_wide)(&p->squares, q, cell, sum, window, 0);
    EACH_SLAB omega[j] = FN(omega_of)(&b->q, sum[j], of.n);
    FN(pass_on)(p->omega, omega, window / 2 & 1);
    FN(omegas_go_on)(b, at, CYNORM_WIDE_STEP);
}

/* terms; */
CYNORM_INLINE void FN(wide_terms)(const column_t *b, wide_t *p, place_t *at, slice_t of, int window, int kind, int which,
                                  int64_t v) {
    vec x[CYNORM_WIDE_STEP], g[CYNORM_WIDE_STEP], terms[CYNORM_WIDE_STEP];
    EACH_SLAB {
        x[j] = g[j] = (vec){0};
        if (!FN(exists)(which, v + j, b->terms[0], b->terms[1])) continue;
        g[j] = FN(column_read)(at->diff_dst + j * b->diff_step, at->diff_ahead + j * b->diff_step, b->diff_step, of, CYNORM_ALL);
        x[j] = FN(column_get)(at->middle + j * b->src_step, of);
    }
    if (which == CYNORM_SLABS_ALL) FN(terms_of)(&b->q, terms, p->omega, g, x, NULL, CYNORM_WIDE_STEP, kind, p->weighted, NULL);
    else EACH_SLAB {
        terms[j] = p->weighted[j] = (vec){0};
        if (FN(exists)(which, v + j, b->terms[0], b->terms[1]))
            terms[j] = FN(term_of)(&b->q, p->omega[j], g[j], x[j], NULL, kind, &p->weighted[j]);
    }
    FN(pass_on)(p->terms, terms, window / 2 & 1);
    FN(terms_go_on)(b, at, CYNORM_WIDE_STEP);
}

/* results: backward, of terms; forward, of omegas. */
CYNORM_INLINE void FN(wide_results)(const column_t *b, wide_t *p, kept_t *const *q, place_t *at, slice_t of, int backward,
                                    int window, int kind, int way, int which, int64_t v) {
    enum { STEP = CYNORM_WIDE_STEP };
    vec x[STEP], sum[STEP], weighted[STEP], out[STEP];
    if (backward && which != CYNORM_SLABS_IDLE) {
        FN(slide_wide)(&p->sums, q, p->terms, sum, window, 1);
        EACH_SLAB weighted[j] = KEPT(CYNORM_LATE(window / 2) - STEP - j).weighted;
        EACH_SLAB q[0][j].weighted = p->weighted[j];
    }
    EACH_SLAB {
        x[j] = (vec){0};
        if (!FN(exists)(which, v + j, b->finish[0], b->finish[1])) continue;
        x[j] = FN(column_get)(at->finished + j * b->src_step, of);
    }
    if (!backward && which == CYNORM_SLABS_ALL)
        FN(times_powers)(out, x, p->omega, STEP, kind, b->q.beta, CYNORM_COMPUTE, NULL, NULL);
    EACH_SLAB {
        if (!FN(exists)(which, v + j, b->finish[0], b->finish[1])) continue;
        if (backward) out[j] = FN(diff_src_of)(&b->q, x[j], sum[j], weighted[j]);
        else if (which == CYNORM_SLABS_SOME) out[j] = FN(times_power)(x[j], p->omega[j], kind, b->q.beta, CYNORM_COMPUTE);
        FN(column_leave)(at->dst + j * b->dst_step, at->before + j * 64, NULL, at->lanes + j, out[j], of, way);
    }
    FN(results_go_on)(b, at, STEP);
}

/* All stages, each a step after the one before; slab c is the newest. */
CYNORM_INLINE void FN(wide_step)(const column_t *b, wide_t *p, kept_t *const *q, place_t *at, slice_t of, int backward, int window,
                                 int kind, int way, int newest, int middle, int finished, int64_t c) {
    const int late = CYNORM_LATE(window / 2);
    __asm__("" : "+r"(at->newest), "+r"(at->finished), "+r"(at->src_ahead), "+r"(at->dst), "+r"(at->before), "+r"(at->lanes));
    if (backward) __asm__("" : "+r"(at->middle), "+r"(at->diff_dst), "+r"(at->diff_ahead));
    FN(wide_results)(b, p, q, at, of, backward, window, kind, way, finished, c - (1 + backward) * late);
    if (backward) FN(wide_terms)(b, p, at, of, window, kind, middle, c - late);
    FN(wide_omegas)(b, p, q, at, of, window, newest, c);
}

/* A column, whose stages ask which slabs exist, or do not ask. */
CYNORM_INLINE void FN(wide_column)(const column_t *b, int64_t from, slice_t of, int backward, int window, int kind, int way,
                                   int ask) {
    enum { STEP = CYNORM_WIDE_STEP };
    const int ring_slabs = CYNORM_WIDE_RING(window);
    const int late = CYNORM_LATE(window / 2), all = (1 + backward) * late; /* slabs between a slab's square and its result */
    int64_t c = b->first;
    kept_t kept[CYNORM_WIDE_MOST], *q[CYNORM_WIDE_MOST / STEP];
    wide_t p = {{{0}}};
    place_t at = FN(place_of)(b, from, c, late, all);
#pragma GCC unroll 16
    for (int j = 0; j < ring_slabs; j++)
#pragma GCC unroll 2
        for (int k = 0; k <= backward; k++) {
            kept[j].four[k] = (vec){0};
            if (window >= 8) kept[j].eight[k] = (vec){0};
            if (window & 16) kept[j].sixteen[k] = (vec){0};
        }
#define PLACE(v) (kept + ((v) & (ring_slabs - 1)))
#define ONE(places, newest, middle, finished)                                                 \
    FN(wide_step)(b, &p, places, &at, of, backward, window, kind, way, CYNORM_SLABS_##newest, \
                  CYNORM_SLABS_##middle, CYNORM_SLABS_##finished, c)
#define STEPS(until, newest, middle, finished)                                                                              \
    for (; c < (until); c += STEP) {                                                                                        \
        ONE(q, newest, middle, finished);                                                                                   \
        kept_t *next = q[ring_slabs / STEP - 1];                                                                            \
        _Pragma("GCC unroll 8") for (int k = ring_slabs / STEP - 1; k > 0; k--) q[k] = q[k - 1];                            \
        q[0] = next;                                                                                                        \
    }
#define FIXED(v, count, newest, middle, finished)                                                                           \
    _Pragma("GCC unroll 10") for (int k = 0; k < (count); k += STEP, c += STEP) {                                           \
        kept_t *places[CYNORM_WIDE_MOST / STEP];                                                                            \
        _Pragma("GCC unroll 8") for (int i = 0; i < ring_slabs / STEP; i++) places[i] = PLACE((v) + k - i * STEP);          \
        ONE(places, newest, middle, finished);                                                                              \
    }
    const int64_t first = ask ? 0 : all + (b->end - all) % ring_slabs; /* where the loop begins, with the first place */
    for (int k = 0; k < ring_slabs / STEP; k++) q[k] = PLACE(-first - k * STEP);
    if (ask) {
        STEPS(b->finish[1] + all, SOME, SOME, SOME)
        return;
    }
    STEPS(late, ALL, NONE, IDLE)
    if (backward) STEPS(all, ALL, ALL, NONE)
    STEPS(first, ALL, ALL, ALL)
    while (c < b->end) FIXED(0, ring_slabs, ALL, ALL, ALL)
    FIXED(0, late, NONE, ALL, ALL)
    if (backward) FIXED(late, late, IDLE, NONE, ALL)
#undef PLACE
#undef ONE
#undef STEPS
#undef FIXED
}

/* ---- compiled loops; what is given is copied, since the stores of dst might alias it ---- */

/* Of a part of a line, of some of the slabs, of any exponent. */
#define CYNORM_WIDE_ASKING(window, direction, backward)                                                                     \
    static __attribute__((noinline)) void FN(wide_##direction##window)(const column_t *given, int64_t from, int64_t to,     \
                                                                       int way) {                                           \
        const column_t b = *given;                                                                                          \
        const int beta = cynorm_beta_kind(b.q.beta);                                                                        \
        for (; from < to; from += 64) {                                                                                     \
            const int64_t lanes = from + 64 < to ? VL : (to - from) / (int64_t)sizeof(real);                                \
            const slice_t some = {CYNORM_COMPUTE, CYNORM_ALL, lanes};                                                       \
            FN(wide_column)(&b, from, some, backward, window, beta, way, 1);                                                \
        }                                                                                                                   \
    }
#define CYNORM_WIDE_LOOP(window, name, direction, backward, kind, way)                                                    \
    static __attribute__((noinline)) void FN(wide_##direction##window##name##_##way)(const column_t *given, int64_t from, \
                                                                                    int64_t to) {                         \
        const column_t b = *given;                                                                                        \
        const int beta = kind;                                                                                            \
        const int whole =                                                                                                 \
            !b.first && !b.finish[0] && b.finish[1] == b.end && FN(whole_steps)(b.end, window / 2, backward);             \
        for (; whole && from + 64 <= to; from += 64)                                                                      \
            FN(wide_column)(&b, from, (slice_t){CYNORM_COMPUTE, CYNORM_ALL, VL}, backward, window, beta,                  \
                            CYNORM_COLUMN_##way, 0);                                                                      \
        if (from < to) FN(wide_##direction##window)(&b, from, to, CYNORM_COLUMN_##way);                                   \
    }
#define CYNORM_WIDE_WAYS(T, direction, window, name, kind, together)                                                        \
    CYNORM_WIDE_LOOP(window, name, forward, 0, kind, PLAIN)                                                                 \
    CYNORM_WIDE_LOOP(window, name, forward, 0, kind, ACROSS)                                                                \
    CYNORM_WIDE_LOOP(window, name, backward, 1, kind, PLAIN)                                                                \
    CYNORM_WIDE_LOOP(window, name, backward, 1, kind, ACROSS)
#define CYNORM_WIDE(each) \
    each(7) each(9) each(11) each(13) each(15) each(17) each(19) each(21) each(23) each(25) each(27) each(29) each(31)
#define CYNORM_WIDE_ALL(window)                                                                                             \
    CYNORM_WIDE_ASKING(window, forward, 0)                                                                                  \
    CYNORM_WIDE_ASKING(window, backward, 1)                                                                                 \
    CYNORM_EXPONENTS(CYNORM_WIDE_WAYS, , , window)
#define CYNORM_WIDE_WAYS_OF(name) {[CYNORM_COLUMN_PLAIN] = FN(name##_PLAIN), [CYNORM_COLUMN_ACROSS] = FN(name##_ACROSS)}
#define CYNORM_WIDE_POWERS_OF(name) \
    {CYNORM_WIDE_WAYS_OF(name##special), CYNORM_WIDE_WAYS_OF(name##usual), CYNORM_WIDE_WAYS_OF(name##any)}
#define CYNORM_WIDE_OF(window) \
    [window / 2 - CYNORM_REACH - 1] = {CYNORM_WIDE_POWERS_OF(wide_forward##window), CYNORM_WIDE_POWERS_OF(wide_backward##window)},
CYNORM_WIDE(CYNORM_WIDE_ALL)
static const column_loop FN(wide_loops)[][2][3][3] = {CYNORM_WIDE(CYNORM_WIDE_OF)}; /* exponents in the order of loop_of_beta */
#undef CYNORM_WIDE_ASKING
#undef CYNORM_WIDE_LOOP
#undef CYNORM_WIDE_WAYS
#undef CYNORM_WIDE
#undef CYNORM_WIDE_ALL
#undef CYNORM_WIDE_WAYS_OF
#undef CYNORM_WIDE_POWERS_OF
#undef CYNORM_WIDE_OF

#undef EACH_SLAB
#undef KEPT

#endif
