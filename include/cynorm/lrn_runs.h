/* LRN with windows of 3 or 5 cells along level 0, where all rows follow one another in memory. A template, see types.h;
 * formulas and tiles are lrn.h's.
 *
 * All rows are one run of vectors, which begin where dst can take them: at lines. Rows need not, as NumPy's arrays do not:
 * a row then ends within a vector in which the next begins. In each row, one vector keeps windows from what lies across the
 * row's end (edge_t); the others know of no rows. */

/* The end of a row: vectors before the next one that asks for an edge, and that edge. */
typedef struct { int64_t left; const edge_t *edge; } row_end_t;
/* A run, between two calls of its loop. */
typedef struct {
    rows_t r;
    int64_t whole, rest;            /* vectors of a row, and what is left of it: lanes */
    int alike;                      /* see go_on */
    row_end_t squares_end, terms_end;
    vec squares[2][2], terms[2][2]; /* of sums_t, before and at */
    edge_t edge[VL + 2];            /* where a row ends so many lanes on from a vector's first one */
    vec *scratch;
} rowrun_t;
typedef void run_loop_t(rowrun_t *, int64_t n, const char *src, const char *diff_dst, char *dst);

/* From the end of a row to that of the next. `early`: windows reach from the last lane of a vector to the second one of the
 * next, so that where a row ends in the first lane of the next, the vector before it asks for an edge, too. */
CYNORM_INLINE void FN(next_end)(row_end_t *end, const rowrun_t *u, int64_t whole, int64_t rest, int early) {
    const edge_t *const now = end->edge, *const last = u->edge + VL;
    end->edge += rest, end->left = whole - 1;
    if (__builtin_expect(end->edge <= last && (!early || end->edge > u->edge + 1), 1)) return;
    if (early && now > last) {
        end->edge = u->edge + 1, end->left = 0;
        return;
    }
    if (end->edge > last) end->edge -= VL, end->left++;
    if (early && end->edge == u->edge + 1) end->edge += VL, end->left--;
}

/* Vectors of scratch that a loop goes on with before what it still needs is moved to the front; from an omega to its power,
 * from a term to its sum, so that no chain is longer than a core sees ahead. */
enum { CYNORM_RUN_STRIP = 48, CYNORM_RUN_LAG = 8, CYNORM_RUN_TERM_LAG = 6 };
_Static_assert(CYNORM_STRIP_MARGIN + CYNORM_RUN_STRIP + CYNORM_RUN_LAG + CYNORM_RUN_TERM_LAG + 2 * CYNORM_TOGETHER <=
                   CYNORM_STRIP_VECTORS,
               "of scratch, what a strip makes and what the one before left");

/* dst of n vectors or, backward, of as many from the one before on. Sums, powers and results of different vectors share a
 * loop: stores past the cache, of which a burst would wait for memory, leave evenly between loads. `alike`: all rows end in
 * the same lane, and dst goes past the cache; the instructions saved then count. */
CYNORM_INLINE void FN(go_on)(rowrun_t *u, int64_t n, const char *src, const char *diff, char *dst, int dtype, int backward,
                             int reach, int kind, int together, int halves, int alike) {
    rows_t copy = u->r;
    const rows_t *const r = &copy; /* which no store might alias */
    const int64_t whole = u->whole, rest = u->rest;
    const edge_t edge = *u->squares_end.edge;
    const int early = reach == 2 && !halves;
    /* of scratch: vectors that the loop goes on by */
    const int unit = halves || together == 4 ? 4 : 2, steps = halves ? 2 : unit;
    /* and the most that it leaves for the next strip */
    const int most_terms = backward ? CYNORM_RUN_TERM_LAG + unit : -1 - halves;
    const int most = CYNORM_RUN_LAG + unit + (backward ? most_terms : 0);
    row_end_t squares_end = u->squares_end, terms_end = u->terms_end;
    sums_t squares, terms;
    vec next[2], sum[2], out[2], x[2], later[2];
    vec *const begin = u->scratch, *omega = begin, *done = begin, *term = begin;
    copy.src_step = copy.diff_step = copy.dst_step = FN(bytes_at_once)(dtype, halves);
    if (alike) copy.streaming = 1;
    const char *of_done = src, *of_term = src - r->src_step;
    src += r->src_step;
    if (backward) dst -= r->src_step;
    EACH_HALF squares.before[h] = u->squares[0][h], squares.at[h] = u->squares[1][h];
    EACH_HALF terms.before[h] = u->terms[0][h], terms.at[h] = u->terms[1][h];
#define LOAD(x) EACH_HALF x[h] = FN(get_of_some)(of_term, 0, h, dtype, VL, halves); of_term += r->src_step
    if (backward) {
        LOAD(x);
    }
#define OMEGA(edge)                                                                                            \
    EACH_HALF next[h] = FN(get_of_some)(src, 0, h, dtype, VL, halves);                                         \
    EACH_HALF next[h] *= next[h];                                                                              \
    __builtin_prefetch(src + r->src_ahead, 0, 2);                                                              \
    src += r->src_step;                                                                                        \
    FN(narrow_sums)(sum, &squares, next, reach, halves, edge);                                                 \
    EACH_HALF *omega++ = FN(omega_of)(&r->q, sum[h], VL)
#define POWERS(count)                                                                                          \
    if (backward) FN(terms_of_some)(r, of_done, diff, NULL, done, 1, VL, count, dtype, kind, halves, 0, 1);    \
    else FN(powers_of_some)(r, NULL, of_done, dst, done, 1, VL, count, dtype, kind, halves, 0, 1);             \
    done += count, of_done += (halves ? 1 : count) * r->src_step;                                              \
    if (backward) diff += (halves ? 1 : count) * r->diff_step;                                                 \
    else dst += (halves ? 1 : count) * r->dst_step
#define RESULT(edge)                                                                                                      \
    FN(narrow_sums)(sum, &terms, term, reach, halves, edge);                                                              \
    LOAD(later); /* behind a store that it seems to overlap, 4 KB apart, it would wait for that */                        \
    EACH_HALF out[h] = FN(diff_src_of)(&r->q, x[h], sum[h], term[CYNORM_ROW_WEIGHTED - 1 - halves + h]), x[h] = later[h]; \
    FN(put_of_some)(dst, 0, out, 1 + halves, dtype, VL, r->streaming, halves);                                            \
    dst += r->dst_step, term += 1 + halves
#define AT_END(what, end)                                                                                      \
    what(alike ? &edge : end.edge);                                                                            \
    if (alike) end.left = whole - 1;                                                                           \
    else FN(next_end)(&end, u, whole, rest, early)
#define ONE(what, end)                                                                                         \
    if (end.left) {                                                                                            \
        what(NULL);                                                                                            \
        end.left--;                                                                                            \
    } else {                                                                                                   \
        AT_END(what, end);                                                                                     \
    }
/* by two, so that what is kept of one need not move for the next */
#define TWO(what, end)                                                                                         \
    if (__builtin_expect(end.left > 1, 1)) {                                                                   \
        what(NULL);                                                                                            \
        what(NULL);                                                                                            \
        end.left -= 2;                                                                                         \
    } else if (end.left) {                                                                                     \
        what(NULL);                                                                                            \
        AT_END(what, end);                                                                                     \
    } else {                                                                                                   \
        AT_END(what, end);                                                                                     \
        ONE(what, end)                                                                                         \
    }
    for (int64_t count; n; n -= count) {
        count = n < CYNORM_RUN_STRIP / (1 + halves) ? n : CYNORM_RUN_STRIP / (1 + halves);
        int64_t i = count;
#pragma GCC unroll 1
        for (; i >= steps; i -= steps) {
            KEEP(src);
            KEEP(omega);
            TWO(OMEGA, squares_end)
            if (steps == 4) {
                TWO(OMEGA, squares_end)
            }
            if (omega - done >= CYNORM_RUN_LAG + unit) {
                KEEP(done);
                KEEP(of_done);
                POWERS(together);
                if (together < unit) {
                    POWERS(together);
                }
            }
            if (backward && done - term >= CYNORM_RUN_TERM_LAG + unit) {
                KEEP(term);
                KEEP(of_term);
                KEEP(dst);
                TWO(RESULT, terms_end)
                if (steps == 4) {
                    TWO(RESULT, terms_end)
                }
            }
        }
        for (; i; i--) ONE(OMEGA, squares_end)
        if (n > count) {
            vec *const first = backward ? term : done;
#pragma GCC unroll 32
            for (int j = 0; j < most; j++) begin[j] = first[j];
#pragma GCC unroll 32
            for (int j = -1 - halves; j < most_terms; j++) begin[CYNORM_ROW_WEIGHTED + j] = first[CYNORM_ROW_WEIGHTED + j];
            omega -= first - begin, done -= first - begin, term = begin;
        }
    }
    while (omega - done >= together) {
        POWERS(together);
    }
#pragma GCC unroll 1
    while (done < omega) {
        POWERS(1 + halves);
    }
#pragma GCC unroll 1
    while (backward && term < done) ONE(RESULT, terms_end)
    for (int j = 1; backward && j <= 1 + halves; j++) begin[CYNORM_ROW_WEIGHTED - j] = term[CYNORM_ROW_WEIGHTED - j];
    EACH_HALF u->squares[0][h] = squares.before[h], u->squares[1][h] = squares.at[h];
    EACH_HALF u->terms[0][h] = terms.before[h], u->terms[1][h] = terms.at[h];
    u->squares_end = squares_end, u->terms_end = terms_end;
#undef LOAD
#undef OMEGA
#undef POWERS
#undef RESULT
#undef AT_END
#undef ONE
#undef TWO
}
#undef KEEP

/* ---- compiled loops ---- */

#define CYNORM_RUN(T, direction, reach, name, kind, together)                                                     \
    static __attribute__((noinline)) void FN(run_##T##_##direction##reach##name)(                                 \
        rowrun_t *u, int64_t n, const char *src, const char *diff, char *dst) {                                   \
        const rows_t *given = &u->r;                                                                              \
        const int beta = kind, backward = #direction[0] == 'b', any = #name[0] == 'a';                            \
        const int usual = #name[0] == 'u';                                                                        \
        if (CYNORM_##T == CYNORM_BF16 && usual && given->halves && u->alike)                                      \
            FN(go_on)(u, n, src, diff, dst, CYNORM_##T, backward, reach, beta, 2, 1, 1);                          \
        else if (CYNORM_##T == CYNORM_BF16 && usual && given->halves)                                             \
            FN(go_on)(u, n, src, diff, dst, CYNORM_##T, backward, reach, beta, 2, 1, 0);                          \
        else if (usual && u->alike)                                                                               \
            FN(go_on)(u, n, src, diff, dst, CYNORM_##T, backward, reach, beta, 2, 0, 1);                          \
        else FN(go_on)(u, n, src, diff, dst, CYNORM_##T, backward, reach, beta, any ? CYNORM_TOGETHER : 2, 0, 0); \
    }
CYNORM_TYPES(CYNORM_REACHES, CYNORM_RUN)
static run_loop_t *const FN(run_loops)[][2][2][3] = {CYNORM_TYPES(CYNORM_REACHES_OF, run)};
#undef CYNORM_RUN

/* ---- tiles ---- */

/* How a tile's rows are a run: bytes of a vector, of its first vector that come before the run, of the run, lanes of a row. */
typedef struct { int64_t step, before, bytes, lanes; int halves; } run_shape_t;

static run_shape_t FN(run_shape)(const cynorm_lrn_tile *t) {
    const int dtype = t->src.dtype;
    const int64_t row = t->count[0] * cynorm_itemsize(dtype), dst = (intptr_t)t->dst.data + t->begin * t->dst.streamed;
    run_shape_t s = {.halves = dtype == CYNORM_BF16 && t->count[0] >= 2 * VL && FN(loop_of_beta)(t, 1) == 1 && !((dst | row) & 3)};
    s.step = FN(bytes_at_once)(dtype, s.halves);
    s.before = dst & (s.step - 1) ? dst & (s.step - 1) : s.step;
    s.bytes = row * (t->end - t->begin) * t->count[1];
    if (t->grouped == 1 && t->end == t->extent) s.bytes -= row * (t->count[1] - t->last_group);
    s.lanes = t->count[0] / (1 + s.halves);
    return s;
}

static int FN(runs_serve)(const cynorm_lrn_tile *t) {
    const int dtype = t->src.dtype, backward = t->diff_dst.data != NULL;
    const int64_t reach = FN(constant_reach)(&t->window[0]), row = t->count[0] * cynorm_itemsize(dtype);
    if (!reach || t->cut || FN(joint)(t) || t->y.data || t->count[2] > 1) return 0;
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) {
        const cynorm_lrn_view *m = &t->view[i];
        if (!m->data) continue;
        if (!FN(contiguous)(m) || (t->count[1] > 1 && m->stride[1] != row)) return 0;
        if (t->end - t->begin > 1 && m->streamed != t->count[1] * row) return 0;
    }
    const run_shape_t s = FN(run_shape)(t);
    const int64_t cell = cynorm_itemsize(dtype) * (1 + s.halves), first = s.before / cell;
    if (s.before % cell || s.lanes < VL || s.bytes < 4 * s.step) return 0;
    if (!s.halves && (first < reach || (s.lanes == VL && first == 1))) return 0;
    /* where rows are whole vectors, strips of them are as fast in the cache, backward if lanes can be picked, and take less to
     * set up; and they are faster with powers for which there are too few registers here */
    const int power = FN(loop_of_beta)(t, 1), half = dtype != CYNORM_COMPUTE, few = CYNORM_VBYTES == 32 && !CYNORM_DOUBLE;
    const int strips = ((half || few) && power == 2) || (half && few && power == 0 && backward);
    const int cached = !t->streaming && ((backward && CYNORM_PICKS) || s.bytes < 256 * s.step);
    return s.lanes % VL || !(strips || cached);
}

/* The ends of a run, as many vectors as its windows reach there, with zeros beyond. */
enum { CYNORM_RUN_END = 5 * CYNORM_VBYTES };
typedef struct {
    char src[CYNORM_RUN_END], diff_dst[CYNORM_RUN_END], dst[CYNORM_RUN_END];
} __attribute__((aligned(64))) run_end_t; /* as stores past the cache ask for */

static void FN(lrn_runs)(const cynorm_lrn_tile *t, int backward) {
    const int dtype = t->src.dtype, reach = FN(constant_reach)(&t->window[0]);
    const run_shape_t s = FN(run_shape)(t);
    const int halves = s.halves;
    const int64_t step = s.step, before = s.before, first = before / cynorm_itemsize(dtype) / (1 + halves);
    const int64_t last = (before + s.bytes - 1) / step, tail = before + s.bytes - last * step;
    run_loop_t *const run = FN(run_loops)[dtype][backward][reach - 1][FN(loop_of_beta)(t, 1)];
    vec scratch[2 * CYNORM_STRIP_VECTORS];
    rowrun_t u = {.r = {.q = FN(coefficients_of)(t), .src_ahead = CYNORM_ROW_AHEAD, .diff_ahead = CYNORM_ROW_AHEAD,
                        .halves = halves, .streaming = t->streaming},
                  .whole = s.lanes / VL, .rest = s.lanes % VL, .alike = t->streaming && s.lanes % VL == 0 && first > 1,
                  .squares_end = {0, u.edge + first}, .terms_end = {1, u.edge + first},
                  .scratch = scratch + CYNORM_STRIP_MARGIN};
    run_end_t end = {{0}};
    for (int i = 1; i < VL + 2; i++) u.edge[i] = FN(edge_at)(i);
#define AT(name, v) (t->name.data + t->begin * t->name.streamed - before + (v) * step)
#define END(name, v) (end.name + (v) * step)
#define LEAVE(v, from, skip, n)                                                                                \
    if (t->streaming) cynorm_stream_copy(AT(dst, v) + (skip), END(dst, from) + (skip), n);                     \
    else memcpy(AT(dst, v) + (skip), END(dst, from) + (skip), (size_t)(n))
    /* vectors 0 and 1, and 2 for their windows */
    memcpy(END(src, 1) + before, AT(src, 0) + before, (size_t)(3 * step - before));
    if (backward) memcpy(END(diff_dst, 1) + before, AT(diff_dst, 0) + before, (size_t)(2 * step - before));
    EACH_HALF {
        const vec x = FN(get_of_some)(END(src, 1), 0, h, dtype, VL, halves);
        u.squares[1][h] = x * x, u.scratch[CYNORM_ROW_WEIGHTED - 1 - h] = (vec){0};
    }
    run(&u, 2, END(src, 1), END(diff_dst, 1), END(dst, 1));
    LEAVE(0, 1, before, (2 - backward) * step - before);
    run(&u, last - 3, AT(src, 2), backward ? AT(diff_dst, 2) : NULL, AT(dst, 2));
    /* the last two, and the one before for its dst; behind them zeros */
    end = (run_end_t){{0}};
    memcpy(END(src, 0), AT(src, last - 2), (size_t)(2 * step + tail));
    if (backward) memcpy(END(diff_dst, 1), AT(diff_dst, last - 1), (size_t)(step + tail));
    run(&u, 3, END(src, 1), END(diff_dst, 1), END(dst, 1));
    const int64_t from = 1 - backward;
    LEAVE(last - 2 + from, from, 0, (2 - from) * step + tail);
#undef AT
#undef END
#undef LEAVE
}

#undef EACH_HALF
