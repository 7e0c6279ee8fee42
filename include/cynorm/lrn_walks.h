/* LRN with a window of 3 or 5 cells along level 1 and along the stream: channels innermost, planes beside each other.
 * A template, see types.h; formulas and tiles are lrn.h's.
 *
 * A row of level 1 is taken at a time, by walks over its entries, one vector of level 0 each: the cells beside a vector are
 * the walk's last ones, and the sums along it wait in scratch for the rows that follow. Squares, terms and what these finish
 * have loops of their own, short enough for the core to look several vectors ahead. Rows whose sums do not fit the first-level
 * cache go by parts: one part of some rows, then the next part of these. Where a vector of reals is half a line, two walks go side
 * by side.
 *
 * Where a vector is a line, and entries of dst follow on but do not begin at lines, walks do: one then goes along where the
 * last channels of an entry lie beside the first ones of the next, from the first channels of a row to the last ones. */

enum {
    /* the most rows, and bytes of them, that a walk takes before the next walk does: past the cache, in the cache */
    CYNORM_WALK_MOST = 4, CYNORM_WALK = 1 << 17,
    CYNORM_WALK_MOST_CACHED = 32, CYNORM_WALK_CACHED = 1 << 18,
    /* bytes of scratch that a walk keeps of a row: beyond this many, rows go by parts; those of a part past the cache; beyond
     * this many, where there are no parts, a walk takes only one row */
    CYNORM_WALK_NEAR = 32768, CYNORM_WALK_PART = 26624, CYNORM_WALK_FAR = 45056,
    /* steps that each stage takes in turn past the cache; where lines that leave, far apart, have few buffers */
    CYNORM_WALK_PIECE = CYNORM_VBYTES == 64 ? 32 : 16, CYNORM_WALK_SCATTERED = 4,
    /* lines that rows of a block share with each other */
    CYNORM_WALK_LINES = CYNORM_WALK_MOST + 1
};

/* How many walks go side by side; whether rows may go by parts. */
enum { CYNORM_WALKS_BESIDE = CYNORM_VBYTES == 32 ? 2 : 1, CYNORM_WALK_PARTS = CYNORM_VBYTES == 64 };
#define CYNORM_EACH_WALK _Pragma("GCC unroll 2") for (int k = 0; k < count; k++)

/* What a walk keeps from step to step, and a row leaves for its next part: of the sums along it, the cell before, and sums of
 * pairs that end there, one before, ...; what weighted_out is late by. */
typedef struct { vec squares[4], terms[4], weighted[CYNORM_REACH]; } walked_t;

typedef struct {
    const char *newest, *middle, *src, *diff_dst; /* src of three slabs, diff_dst of the second; NULL where there is no such slab */
    char *dst;
    int64_t src_step, diff_step, dst_step;        /* bytes from an entry to the next */
    const char *src_ahead, *diff_ahead;           /* what is prefetched, of the next slab */
    int64_t src_ahead_step, diff_ahead_step;
    int64_t entries, lanes;
    int64_t lead; /* lanes that belong to the entry before, or 0: the first step has none of these, the last only these */
    vec *line_before, *line_after; /* what is there of the lines that the row shares with the row before it, or after it */
    int before_there, after_there; /* whether that is the other row's part; else this row's is to be left there */
    /* rows of scratch: sums of squares and of terms of the slabs of a window, the newest last */
    real *squares[2 * CYNORM_REACH + 1], *terms[2 * CYNORM_REACH + 1], *weighted_out;
    const real *weighted;
    int64_t piece;  /* steps that each stage takes at a time */
    int64_t from, to;        /* of a row by parts, the steps of this part */
    const walked_t *before;  /* of the part before, else zeros; NULL: rows do not go by parts */
    walked_t *after;         /* for the next one */
    int64_t beside; /* from these rows to those of the walk that goes beside this one, if any does */
    coefficients q;
    int streaming;
} walk_t;

CYNORM_INLINE int FN(at_edge)(const walk_t *w, int64_t p, int straddles) { return straddles && (!p || p == w->entries - 1); }
CYNORM_INLINE vec FN(get_step)(const walk_t *w, int64_t p, const char *x, int dtype, int64_t n, int straddles) {
    return FN(at_edge)(w, p, straddles) ? FN(get_edge)(w->lead, p > 0, x) : FN(get)(x, dtype, n);
}

/* Prefetches for step p stand in the loop that takes longest: all at once, in the loop for squares, they would hold up the reads
 * that it waits for. */
CYNORM_INLINE void FN(fetch_src)(const walk_t *w, int64_t p) { __builtin_prefetch(w->src_ahead + p * w->src_ahead_step, 0, 2); }
CYNORM_INLINE void FN(fetch_diff)(const walk_t *w, int64_t p) { __builtin_prefetch(w->diff_ahead + p * w->diff_ahead_step, 0, 2); }

/* The window sum that `next` completes; *s: the cell before it, and sums of pairs that end there, one before, ... */
CYNORM_INLINE vec FN(walk_sum)(vec *s, vec next, int reach) {
    vec sum = next + (reach == 1 ? s[1] : s[1] + s[3]);
    s[3] = s[2], s[2] = s[1], s[1] = next + s[0], s[0] = next;
    return sum;
}

/* Sums of a part of a row end before what its next part reads. So does `weighted`, but only because it is stored late:
 * its slot may be that of a row which finishes in the next part. */
CYNORM_INLINE void FN(store_weighted)(const walk_t *w, walked_t *s, int64_t at, vec v, int reach, int parts) {
    if (!parts) {
        FN(store)(w->weighted_out + at, v);
        return;
    }
    FN(store)(w->weighted_out + at - reach * VL, s->weighted[CYNORM_REACH - reach]);
    s->weighted[0] = s->weighted[1], s->weighted[1] = v;
}

CYNORM_INLINE vec FN(sum_slabs)(real *const *rows, int64_t at, int reach) {
    vec cell[2 * CYNORM_REACH + 1];
#pragma GCC unroll 8
    for (int j = 0; j <= 2 * reach; j++) cell[j] = FN(load)(rows[j] + at);
    return FN(sum_cells)(cell, reach);
}

/* Steps [from, to) of `count` walks side by side; sums along a walk come `reach` steps late, so that a row of scratch begins
 * with `reach` sums that are no one's, and past the last entry there are `reach` more steps. s: what walk_sum keeps. */
CYNORM_INLINE void FN(walk_squares)(const walk_t *w, walked_t *s, int64_t from, int64_t to, int count, int64_t n, int dtype,
                                    int reach, int straddles) {
    const int64_t vector = VL * cynorm_itemsize(dtype), end = to < w->entries ? to : w->entries;
    real *out = w->squares[2 * reach] - reach * VL;
    int64_t p = from;
    for (; p < end; p++) {
        const char *x = w->newest + p * w->src_step;
        CYNORM_EACH_WALK {
            const vec next = FN(get_step)(w, p, x + k * vector, dtype, n, straddles);
            FN(store)(out + k * w->beside + p * VL, FN(walk_sum)(s[k].squares, next * next, reach));
        }
    }
    for (; p < to; p++) CYNORM_EACH_WALK FN(store)(out + k * w->beside + p * VL, FN(walk_sum)(s[k].squares, (vec){0}, reach));
}

CYNORM_INLINE void FN(walk_terms)(const walk_t *w, walked_t *s, int64_t from, int64_t to, int count, int64_t n, int dtype,
                                  int reach, int kind, int straddles, int parts) {
    const int64_t vector = VL * cynorm_itemsize(dtype), end = to < w->entries ? to : w->entries;
    real *out = w->terms[2 * reach] - reach * VL;
    vec omega[2], x[2], g[2], term[2], weighted[2];
    int64_t p = from;
    for (; p < end; p++) {
        const char *src = w->middle + p * w->src_step, *diff_dst = w->diff_dst + p * w->diff_step;
        FN(fetch_src)(w, p);
        FN(fetch_diff)(w, p);
        CYNORM_EACH_WALK {
            omega[k] = FN(omega_of)(&w->q, FN(sum_slabs)(w->squares, k * w->beside + p * VL, reach), n);
            x[k] = FN(get_step)(w, p, src + k * vector, dtype, n, straddles);
            g[k] = FN(get_step)(w, p, diff_dst + k * vector, dtype, n, straddles);
        }
        FN(terms_of)(&w->q, term, omega, g, x, NULL, count, kind, weighted, NULL);
        if (FN(at_edge)(w, p, straddles)) term[0] = FN(part_of_edge)(w->lead, p > 0, term[0]);
        CYNORM_EACH_WALK {
            FN(store_weighted)(w, &s[k], k * w->beside + p * VL, weighted[k], reach, parts);
            FN(store)(out + k * w->beside + p * VL, FN(walk_sum)(s[k].terms, FN(part)(term[k], (vec){0}, n), reach));
        }
    }
    for (; p < to; p++) CYNORM_EACH_WALK {
        if (parts) FN(store_weighted)(w, &s[k], k * w->beside + p * VL, (vec){0}, reach, parts);
        FN(store)(out + k * w->beside + p * VL, FN(walk_sum)(s[k].terms, (vec){0}, reach));
    }
}

CYNORM_INLINE void FN(walk_finish)(const walk_t *w, int64_t from, int64_t to, int count, int64_t n, int dtype, int reach,
                                   int kind, int backward, int straddles) {
    const int64_t vector = VL * cynorm_itemsize(dtype);
    vec x[2], sum[2], out[2];
    for (int64_t p = from; p < to; p++) {
        const char *src = w->src + p * w->src_step;
        char *dst = w->dst + p * w->dst_step;
        if (!backward) FN(fetch_src)(w, p);
        CYNORM_EACH_WALK {
            x[k] = FN(get_step)(w, p, src + k * vector, dtype, n, straddles);
            sum[k] = FN(sum_slabs)(backward ? w->terms : w->squares, k * w->beside + p * VL, reach);
            if (backward) out[k] = FN(diff_src_of)(&w->q, x[k], sum[k], FN(load)(w->weighted + k * w->beside + p * VL));
            else sum[k] = FN(omega_of)(&w->q, sum[k], n);
        }
        if (!backward) FN(times_powers)(out, x, sum, count, kind, w->q.beta, dtype, NULL, NULL);
        if (FN(at_edge)(w, p, straddles)) FN(put_edge)(w->lead, p > 0, dst, out[0], p ? w->line_after : w->line_before,
                                              p ? w->after_there : w->before_there);
        else CYNORM_EACH_WALK FN(put_or_stream)(dst + k * vector, out[k], dtype, n, w->streaming);
    }
}

/* All of a row, or one of its parts; by pieces, where memory is the limit, so that it is read and written all the time and not
 * by turns. */
CYNORM_INLINE void FN(walk)(const walk_t *w, int count, int64_t n, int dtype, int reach, int kind, int backward,
                            int straddles, int parts) {
    const int64_t squares = w->entries + reach, late = (1 + backward) * reach, steps = w->entries + late;
    const int64_t begin = parts ? w->from : 0, end = parts ? w->to : steps; /* constants keep loops short */
    walked_t s[2] = {{{{0}}}};
    if (parts) s[0] = *w->before;
    for (int64_t from = begin, to; from < end; from = to) {
        to = from + w->piece < end ? from + w->piece : end;
        const int64_t of_terms = from > reach ? from - reach : 0, done = from > late ? from - late : 0;
        if (w->newest && !(backward ? w->middle : w->src)) /* the first rows: no other loop fetches */
            for (int64_t p = from; p < to && p < w->entries; p++) FN(fetch_src)(w, p);
        if (w->newest) FN(walk_squares)(w, s, from, to < squares ? to : squares, count, n, dtype, reach, straddles);
        if (backward && w->middle)
            FN(walk_terms)(w, s, of_terms, to - reach, count, n, dtype, reach, kind, straddles, parts);
        if (w->src) FN(walk_finish)(w, done, to - late, count, n, dtype, reach, kind, backward, straddles);
    }
    if (parts && end < steps) *w->after = s[0];
}

CYNORM_INLINE void FN(walk_forward)(const walk_t *w, int count, int64_t n, int dtype, int reach, int kind, int straddles) {
    FN(walk)(w, count, n, dtype, reach, kind, 0, straddles, 0);
}

CYNORM_INLINE void FN(walk_backward)(const walk_t *w, int count, int64_t n, int dtype, int reach, int kind, int straddles) {
    if (CYNORM_WALK_PARTS && w->before) FN(walk)(w, 1, n, dtype, reach, kind, 1, straddles, 1);
    else FN(walk)(w, count, n, dtype, reach, kind, 1, straddles, 0);
}

/* ---- compiled loops ---- */

#define CYNORM_WALK_LOOP(T, direction, reach, name, kind, together)                                            \
    static __attribute__((noinline)) void FN(walks_##T##_##direction##reach##name)(const walk_t *given) {      \
        const walk_t w = *given;                                                                               \
        const int beta = kind;                                                                                 \
        if (CYNORM_WALKS_BESIDE > 1 && w.beside) FN(walk_##direction)(&w, 2, VL, CYNORM_##T, reach, beta, 0);  \
        else if (FN(is_line)(CYNORM_##T) && w.lead)                                                            \
            FN(walk_##direction)(&w, 1, VL, CYNORM_##T, reach, beta, 1);                                       \
        else if (w.lanes == VL) FN(walk_##direction)(&w, 1, VL, CYNORM_##T, reach, beta, 0);                   \
        else FN(walk_##direction)(&w, 1, w.lanes, CYNORM_##T, reach, beta, 0);                                 \
    }
CYNORM_TYPES(CYNORM_REACHES, CYNORM_WALK_LOOP)
static void (*const FN(walk_loops)[][2][2][3])(const walk_t *) = {CYNORM_TYPES(CYNORM_REACHES_OF, walks)};
#undef CYNORM_WALK_LOOP

/* ---- tiles ---- */

/* Rows of scratch for each walk, reals of a row, bytes of all. */
static int64_t FN(walk_rows)(const cynorm_lrn_tile *t, int backward) {
    return (backward ? 5 : 2) * t->left + (backward ? 3 : 1);
}
static int64_t FN(walk_row)(const cynorm_lrn_tile *t) { return (t->count[1] + 1 + t->left) * VL; }
static int64_t FN(walk_bytes)(const cynorm_lrn_tile *t, int backward) {
    return (t->count[0] + VL - 1) / VL * FN(walk_rows)(t, backward) * FN(walk_row)(t) * (int64_t)sizeof(real);
}
/* What rows leave for their next parts, what first parts begin with, parts of lines. */
enum { CYNORM_WALKED = (CYNORM_WALK_MOST_CACHED + 1) * (int)sizeof(walked_t) + CYNORM_WALK_LINES * CYNORM_VBYTES };
static size_t FN(walks_scratch)(const cynorm_lrn_tile *t, int backward) {
    return (size_t)(CYNORM_WALKED + FN(walk_bytes)(t, backward) + FN(row_bytes)(t) * t->count[1]);
}

/* Row v of an operand at data, to be prefetched, of a tile that reads `beyond` rows to either side of its own; past the last one
 * a row of the next image, if there is any. */
static const char *FN(walk_ahead)(const cynorm_lrn_tile *t, const cynorm_lrn_view *view, const char *data, int64_t v,
                                  int64_t beyond, int more) {
    const int64_t from = t->begin > beyond ? t->begin - beyond : 0, end = t->end + beyond;
    return FN(row_ahead)(data, view->streamed, v, from, end < t->extent ? end : t->extent, more ? view->stride[2] : 0);
}

/* Zeros in a row of scratch of a missing slab, where this part's steps, which come `late`, would leave sums. */
static void FN(clear_sums)(const walk_t *w, real *row, int64_t late) {
    const int64_t from = w->from > late ? w->from - late : 0, to = w->to - late < w->entries ? w->to - late : w->entries;
    if (to > from) memset(row + from * VL, 0, (size_t)(to - from) * VL * sizeof(real));
}

/* The walks of a row, over each vector of level 0, keep their own rows of scratch, and take a block of rows one after the
 * other, while the first-level cache holds these. */
static void FN(lrn_walks)(const cynorm_lrn_tile *t, int backward) {
    const int dtype = t->src.dtype, reach = (int)t->left, window = 2 * reach + 1;
    const int64_t size = cynorm_itemsize(dtype), vector = VL * size, entry = t->count[0] * size, row = entry * t->count[1];
    const int64_t walks = (t->count[0] + VL - 1) / VL, full = t->count[0] / VL;
    const int64_t late = (1 + backward) * reach, first = t->begin - late;
    const int64_t kept = FN(walk_row)(t), kept_of_walk = FN(walk_rows)(t, backward) * kept;
    const int64_t lead = FN(lead_of)(t, backward);
    const int by_lines = lead || FN(by_lines)(t, entry, CYNORM_WALKS_BESIDE * vector, 0);
    const int joined = lead && t->streaming && t->dst.streamed == row;
    const int staged = t->streaming && !by_lines && t->dst.stride[1] == entry && row >= CYNORM_STREAM_LEAST;
    walked_t *walked = (walked_t *)t->scratch, *none = walked + CYNORM_WALK_MOST_CACHED;
    vec *lines = (vec *)(none + 1);
    real *scratch = (real *)(lines + CYNORM_WALK_LINES);
    char *stage = (char *)scratch + FN(walk_bytes)(t, backward);
    const int64_t fit = (t->streaming ? CYNORM_WALK : CYNORM_WALK_CACHED) / row;
    const int64_t most = t->streaming ? CYNORM_WALK_MOST : CYNORM_WALK_MOST_CACHED;
    /* powers of any exponent take longer than what does not fit that cache; rows that go one by one gain nothing */
    const int64_t bytes = backward ? kept_of_walk * (int64_t)sizeof(real) : 0;
    const int parts = CYNORM_WALK_PARTS && bytes > CYNORM_WALK_NEAR && !staged && cynorm_beta_kind(t->beta) != CYNORM_BETA_ANY;
    const int far = bytes > CYNORM_WALK_FAR && !parts && CYNORM_WALKS_BESIDE == 1;
    const int64_t block = staged || far || fit < 1 ? 1 : fit < most ? fit : most; /* rows */
    const int pieces = t->streaming && (CYNORM_WALKS_BESIDE > 1 ? dtype == CYNORM_COMPUTE : CYNORM_VBYTES == 64);
    walk_t w = {.src_step = t->src.stride[1], .diff_step = t->diff_dst.stride[1], .dst_step = t->dst.stride[1],
                .q = FN(coefficients_of)(t), .streaming = t->streaming && by_lines};
    const int scattered = backward && !t->far_lines && w.streaming && FN(is_line)(dtype) && entry > CYNORM_VBYTES;
    const int64_t piece = scattered ? CYNORM_WALK_SCATTERED : CYNORM_WALK_PIECE;
    memset(none, 0, sizeof *none);
    /* a walk's share of what is prefetched; of entries that follow on, in the order of memory: the core's own prefetchers
     * run ahead of that */
    const int64_t share = entry / walks;
#define AHEAD(name, row)                                                                                       \
    w.name##_ahead = (row) + walk * (w.name##_step == entry ? share * t->count[1] : vector);                   \
    w.name##_ahead_step = w.name##_step == entry ? share * count : w.name##_step
    void (*run)(const walk_t *) = FN(walk_loops)[dtype][backward][reach - 1][FN(loop_of_beta)(t, 1)];
    for (int64_t i2 = 0; i2 < t->count[2]; i2++) {
        const char *src = t->src.data + i2 * t->src.stride[2];
        const char *diff_dst = backward ? t->diff_dst.data + i2 * t->diff_dst.stride[2] : NULL;
        char *dst = t->dst.data + i2 * t->dst.stride[2];
        const int more = t->streaming && i2 + 1 < t->count[2] + t->followed; /* in the cache it gains nothing */
        for (int64_t begin = first, end; begin < t->end + late; begin = end) {
            end = begin + block < t->end + late ? begin + block : t->end + late;
            for (int64_t walk = 0, count; walk < walks; walk += count) {
                real *rows = scratch + walk * kept_of_walk, *terms_rows = rows + window * kept;
                const int64_t at = walk * vector - lead * size;
                w.lanes = walk < full ? VL : t->count[0] - walk * VL;
                w.lead = walk || t->before ? 0 : lead, w.entries = t->count[1] + (w.lead > 0);
                count = walk + CYNORM_WALKS_BESIDE <= full ? CYNORM_WALKS_BESIDE : 1;
                w.beside = count > 1 ? kept_of_walk : 0;
                const int64_t steps = w.entries + late;
                const int64_t kept_of_part = t->streaming ? CYNORM_WALK_PART : CYNORM_WALK_NEAR;
                const int64_t part = parts ? steps / (1 + bytes / kept_of_part) + 1 : steps;
                w.piece = pieces ? piece : steps;
                for (w.from = 0; w.from < steps; w.from = w.to) {
                    w.to = w.from + part < steps ? w.from + part : steps;
                    int64_t slot = (begin - first + 1) % window, weighted = (begin - first) % (reach + 1);
                    for (int64_t v = begin; v < end; v++) {
                        const int64_t middle = v - reach, done = v - late;
                        const int squares = v >= 0 && v < t->extent, finish = done >= t->begin;
                        const int terms = backward && middle >= 0 && middle < t->extent && middle >= t->begin - reach;
                        for (int j = 0; j < window; j++, slot = slot + 1 < window ? slot + 1 : 0) {
                            w.squares[j] = rows + slot * kept + reach * VL;
                            w.terms[j] = terms_rows + slot * kept + reach * VL;
                        }
                        slot = slot + 1 < window ? slot + 1 : 0;
                        w.weighted_out = terms_rows + (window + weighted) * kept + reach * VL;
                        weighted = weighted < reach ? weighted + 1 : 0;
                        w.weighted = terms_rows + (window + weighted) * kept + reach * VL;
                        w.newest = squares ? src + v * t->src.streamed + at : NULL;
                        w.middle = terms ? src + middle * t->src.streamed + at : NULL;
                        w.diff_dst = terms ? diff_dst + middle * t->diff_dst.streamed + at : NULL;
                        w.src = finish ? src + done * t->src.streamed + at : NULL;
                        w.dst = (staged ? stage : dst + done * t->dst.streamed) + at;
                        if (w.lead) {
                            const int before = joined && done > t->begin, after = joined && finish && done + 1 < t->end;
                            w.line_before = before ? lines + done % CYNORM_WALK_LINES : NULL;
                            w.line_after = after ? lines + (done + 1) % CYNORM_WALK_LINES : NULL;
                            /* a row goes before the next one, but for its last part */
                            w.before_there = part == steps || v == begin, w.after_there = part < steps && v + 1 < end;
                        }
                        w.after = walked + (v - begin), w.before = part == steps ? NULL : w.from ? w.after : none;
                        AHEAD(src, FN(walk_ahead)(t, &t->src, src, v + block, late, more));
                        if (backward) {
                            AHEAD(diff, FN(walk_ahead)(t, &t->diff_dst, diff_dst, middle + block, reach, more));
                        }
                        for (int k = 0; k < count; k++) {
                            const int64_t beside = k * kept_of_walk;
                            if (!squares) FN(clear_sums)(&w, w.squares[2 * reach] + beside, reach);
                            if (backward && !terms) FN(clear_sums)(&w, w.terms[2 * reach] + beside, late);
                        }
                        run(&w);
                    }
                }
            }
            if (staged && begin - late >= t->begin) cynorm_stream_copy(dst + (begin - late) * t->dst.streamed, stage, row);
        }
    }
#undef AHEAD
}

#undef CYNORM_EACH_WALK
