/* Local response normalization of one tile. A template, see types.h.
 *
 *     omega_i    = k + alpha * sum_{j in W(i)} src_j^2                            (alpha is already divided)
 *     dst_i      = src_i * omega_i^-beta
 *     diff_src_i = diff_dst_i * omega_i^-beta - 2 alpha beta src_i * sum_{j : i in W(j)} t_j
 *     t_j        = diff_dst_j * src_j * omega_j^(-beta-1)   (or diff_dst_j * y_j / omega_j, y being the dst given)
 *
 * A tile streams along one axis (channels of plain memory, rows of an image, groups of pixels), a slab at a time.
 * A slab has three levels in memory and is flat in scratch, with zero margins, so that a window inside it, along
 * any axis, is a sum of shifted copies; a window along the streamed axis is a sum over a ring of slabs.
 *
 * One loop over a slab (step_rows) reads squares of the newest slab, finishes an older one and, in backward, takes
 * the terms t of one in between, so that reads and arithmetic overlap. Each part works one slab later than its
 * window would allow: no load then waits for a store of the same loop. dst is finished by whole lines of memory,
 * whatever rows they lie in, so that it can bypass the cache; the lines that a span shares with others are asked for
 * a slab ahead, like all that is read.
 *
 * Every window of n is summed as the same binary tree, whatever the loop: S_1 = squares, S_2m[e] = S_m[e] + S_m[e-m],
 * and the sum that ends at e is S_m[e - lower bits of n] over the bits m of n, lowest first. Windows of many slabs
 * (by_blocks), unless columns may serve the tensor (t->trees), are sums by blocks instead, of B = CYNORM_SLABS slabs: (the
 * end of a block + the whole blocks after it, latest first) + the beginning of another, each a tree; blocks of squares
 * begin at slab t->right, those of terms at 0, or any multiple of B from there, whatever a tile is. Nothing is ever
 * subtracted, so a NaN or an inf stays within its windows, and the error grows with log2 n, or log2 B + n / B.
 */

enum { CYNORM_SUM_LEVELS = 62 };
/* Slabs of a block: their sums fit the registers. The narrowest window that is summed by blocks, where that takes less time. */
enum { CYNORM_SLABS = CYNORM_VBYTES == 64 ? 8 : 4, CYNORM_BY_BLOCKS = 10 };
enum { CYNORM_SLABS_MOST = 8 * CYNORM_SLABS - 1 }; /* the widest */

/* Bytes: in a shorter span, the lines shared with others cost more than bypassing the cache saves. */
enum { CYNORM_STREAM_LEAST = 1024 };

/* Where the loop finds one operand: its first element, the distance between entries of levels 1 and 2 in bytes. */
typedef struct { char *data; int64_t pitch[2]; } cynorm_operand;

/* ---- the formulas ---- */

/* Terms are kept scaled by a power of two: beside a huge src, x, they are about x^(-1-2 beta) and would underflow before they are
 * multiplied by x again; the larger beta, the more so (none does with beta 3/4, src of 1e18 and diff_dst of 1e-6, at any alpha).
 * With a negative beta, what they give is itself large. Beside a tiny src they overflow where k is 0: then half of the exponent
 * is taken. They are scaled by 2 * alpha * beta, too, which so takes no instruction of its own; their product is at most 2^most. */
typedef struct { vec k, alpha, scale, unscale; double beta; } coefficients;

static coefficients FN(coefficients_of)(const cynorm_lrn_tile *t) {
    const double c = 2 * t->alpha * t->beta, share = fmin(fmax(t->beta - 1 / 3., 0), 0.5);
    const int usual = (int)(share * (CYNORM_BIAS + 1)) / (t->k == 0 ? 2 : 1), most = CYNORM_DOUBLE ? 900 : 100;
    int e;
    (void)frexp(c, &e);
    if (e < most - usual) e = most - usual;
    return (coefficients){FN(splat)((real)t->k), FN(splat)((real)t->alpha), FN(splat)((real)ldexp(c, most - e)),
                          FN(splat)((real)-ldexp(1, e - most)), t->beta};
}

/* omega of a window's squares; lanes past n stay on the fast path */
CYNORM_INLINE vec FN(omega_of)(const coefficients *q, vec sum, int64_t n) {
    return FN(part)(FN(fma)(q->alpha, sum, q->k), FN(splat)(1), n);
}

/* t, scaled, and diff_dst * omega^-beta, of n vectors; y is the dst given, or NULL; told: as in times_powers. Values
 * that cancel need more than the precision of storage. */
CYNORM_INLINE void FN(terms_of)(const coefficients *q, vec *term, const vec *omega, const vec *g, const vec *x,
                                const vec *y, int n, int kind, vec *weighted, vec *told) {
    vec reciprocal[CYNORM_TOGETHER];
    FN(times_powers)(weighted, g, omega, n, kind, q->beta, CYNORM_COMPUTE, reciprocal, told);
    CYNORM_EACH term[k] = (y ? g[k] : weighted[k]) * ((y ? y[k] : x[k]) * reciprocal[k] * q->scale);
}

CYNORM_INLINE vec FN(term_of)(const coefficients *q, vec omega, vec g, vec x, const vec *y, int kind,
                              vec *weighted) {
    vec term;
    FN(terms_of)(q, &term, &omega, &g, &x, y, 1, kind, weighted, NULL);
    return term;
}

/* sum: of the terms, scaled */
CYNORM_INLINE vec FN(diff_src_of)(const coefficients *q, vec x, vec sum, vec weighted) {
    return FN(fma)(x * sum, q->unscale, weighted);
}

/* ---- sums of rows ---- */

/* S_m that ends at p[0]; p[j] is j steps earlier. m is a constant. */
CYNORM_INLINE vec FN(tree)(const real *const *p, int64_t i, int m) {
    if (m == 1) return FN(load)(p[0] + i);
    if (m == 2) return FN(load)(p[0] + i) + FN(load)(p[1] + i);
    if (m == 4) return FN(tree)(p, i, 2) + FN(tree)(p + 2, i, 2);
    return FN(tree)(p, i, 4) + FN(tree)(p + 4, i, 4);
}

/* The window sum of p[0] (latest) to p[n-1] at i; n is a constant of at most CYNORM_SUM_DIRECT. */
CYNORM_INLINE vec FN(tree_sum)(const real *const *p, int64_t i, int n) {
    const int low = n & -n;
    vec sum = FN(tree)(p, i, low);
    if (n & 2 & ~low) sum += FN(tree)(p + 1, i, 2);
    if (n & 4 & ~low) sum += FN(tree)(p + (n & 3), i, 4);
    return sum;
}

CYNORM_INLINE void FN(sum_direct)(real *out, const real *const *p, int n, int64_t length) {
    for (int64_t i = 0; i < length; i += VL) FN(store)(out + i, FN(tree_sum)(p, i, n));
}

/* out = the window sum of the n rows p[0] (latest) to p[n-1], n <= CYNORM_SUM_DIRECT */
static void FN(sum_window)(real *out, const real *const *p, int64_t n, int64_t length) {
#define CASE(n) case n: FN(sum_direct)(out, p, n, length); break;
    switch (n) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
#undef CASE
}

/* out = p[0] + p[1] + ... in this order */
static void FN(sum_rows)(real *out, const real *const *p, int64_t n, int64_t length) {
    for (int64_t i = 0; i < length; i += VL) {
        vec sum = FN(load)(p[0] + i);
        for (int64_t j = 1; j < n; j++) sum += FN(load)(p[j] + i);
        FN(store)(out + i, sum);
    }
}

/* ---- windows inside a slab ---- */

/* level[l] = S_(2^l) of S_1 in `in`, from l = 1 on, two at a time; the window's cells are `unit` apart. */
static void FN(levels_in_slab)(const real *in, real *const *level, int64_t n, int64_t unit, int64_t size) {
    for (int64_t m = 1, l = 1; 2 * m <= n; m *= 4, l += 2) {
        const int64_t step = m * unit, begin = (2 * m - 1) * unit, both = 4 * m <= n ? begin + 2 * step : size;
        real *twice = level[l], *four_times = level[l + 1];
        for (int64_t e = begin; e < both; e += VL)
            FN(store)(twice + e, FN(load)(in + e) + FN(load)(in + e - step));
        for (int64_t e = both; e < size; e += VL) {
            vec later = FN(load)(in + e) + FN(load)(in + e - step);
            vec earlier = FN(load)(in + e - 2 * step) + FN(load)(in + e - 3 * step);
            FN(store)(twice + e, later);
            FN(store)(four_times + e, later + earlier);
        }
        in = four_times;
    }
}

/* The rows whose sum is the window that ends `last` reals on. Returns how many. */
static int FN(pieces_in_slab)(const real **p, const real *in, real *const *level, int64_t n, int64_t unit,
                              int64_t last) {
    int rows = 0;
    int64_t offset = 0;
    for (int64_t m = 1, l = 0; m <= n; m *= 2, l++)
        if (n & m) {
            p[rows++] = (l ? level[l] : in) + last - offset * unit;
            offset += m;
        }
    return rows;
}

/* out[i] = sum of in[i - left*step .. i + right*step] at every flat i where these lie in the slab */
static void FN(window_in_slab)(real *out, const real *in, real *const *level, const cynorm_lrn_window *w,
                               int64_t size) {
    const real *p[CYNORM_SUM_LEVELS];
    int64_t n = w->left + w->right + 1, last = w->right * w->step;
    int64_t from = w->left * w->step, length = size - from - last;
    if (n <= CYNORM_SUM_DIRECT) {
        for (int64_t j = 0; j < n; j++) p[j] = in + from + last - j * w->step;
        FN(sum_window)(out + from, p, n, length);
    } else {
        FN(levels_in_slab)(in, level, n, w->step, size);
        FN(sum_rows)(out + from, p, FN(pieces_in_slab)(p, in, level, n, w->step, from + last), length);
    }
}

/* ---- windows along the streamed axis ---- */

static int FN(by_blocks)(const cynorm_lrn_tile *t) {
    const int64_t n = t->left + t->right + 1;
    return !t->trees && n >= CYNORM_BY_BLOCKS && n <= CYNORM_SLABS_MOST;
}

/* The place in its own block of the slab that lies u after the beginning of a block, or before it. */
static inline int FN(place_in_block)(int64_t u) { return (int)(u & (CYNORM_SLABS - 1)); }

typedef struct { real *base; int64_t depth, size; } ring;

static inline real *FN(slot)(const ring *r, int64_t u) { return r->base + u % r->depth * r->size; }

typedef struct {
    int64_t n;
    int by_blocks;
    ring level[CYNORM_SUM_LEVELS]; /* of a tree; by blocks, the cells alone */
    ring ends;                     /* of blocks: the sum from each slab to the end of its block */
    int64_t phase;                 /* slabs from the beginning of a block to slab 0 */
} streamed_sum;

/* After S_1 of slab u is in its slot: the ends of its block, if u is the last one there. */
static void FN(push_ends)(const streamed_sum *s, int64_t u) {
    const real *p[CYNORM_SUM_DIRECT];
    if (FN(place_in_block)(u + 1 + s->phase)) return;
    for (int64_t i = u < CYNORM_SLABS ? 0 : u + 1 - CYNORM_SLABS; i <= u; i++) {
        for (int64_t j = i; j <= u; j++) p[j - i] = FN(slot)(&s->level[0], j);
        FN(sum_window)(FN(slot)(&s->ends, i), p, u + 1 - i, s->level[0].size);
    }
}

/* out = the sum, by blocks, of the window that ends with slab u */
static void FN(sum_by_blocks)(real *out, const streamed_sum *s, int64_t u) {
    const real *p[CYNORM_SUM_DIRECT];
    const int64_t beginning = FN(place_in_block)(u + s->phase) + 1, first = u + 1 - s->n;
    int whole = 0;
    for (int64_t j = 0; j < beginning; j++) p[j] = FN(slot)(&s->level[0], u - j);
    FN(sum_window)(out, p, beginning, s->level[0].size);
    for (int64_t block = u + 1 - beginning - CYNORM_SLABS; block > first; block -= CYNORM_SLABS)
        p[whole++] = FN(slot)(&s->ends, block);
    const real *end = FN(slot)(&s->ends, first);
    for (int64_t i = 0; i < s->level[0].size; i += VL) {
        vec between = FN(splat)((real)-0.0);
        for (int b = 0; b < whole; b++) between += FN(load)(p[b] + i);
        FN(store)(out + i, (FN(load)(end + i) + between) + FN(load)(out + i));
    }
}

/* After S_1 of slab u is in its slot: the higher levels, where there are any. */
static void FN(sum_push)(const streamed_sum *s, int64_t u) {
    if (s->n <= CYNORM_SUM_DIRECT) return;
    if (s->by_blocks) {
        FN(push_ends)(s, u);
        return;
    }
    const real *level = FN(slot)(&s->level[0], u), *before[CYNORM_SUM_LEVELS];
    real *out[CYNORM_SUM_LEVELS];
    int levels = 0;
    for (int64_t m = 1; 2 * m <= s->n && m <= u; m *= 2, levels++) {
        before[levels] = FN(slot)(&s->level[levels], u - m);
        out[levels] = FN(slot)(&s->level[levels + 1], u);
    }
    for (int64_t i = 0; i < s->level[0].size; i += VL) {
        vec sum = FN(load)(level + i);
        for (int l = 0; l < levels; l++) {
            sum += FN(load)(before[l] + i);
            FN(store)(out[l] + i, sum);
        }
    }
}

/* The slabs of the window that ends with slab u, n <= CYNORM_SUM_DIRECT. */
static void FN(window_slots)(const streamed_sum *s, int64_t u, const real **p) {
    const ring *r = &s->level[0];
    int64_t slot = u % r->depth; /* one division: these take as long as a vector's work */
    for (int64_t j = 0; j < s->n; j++) {
        p[j] = r->base + slot * r->size;
        slot = slot ? slot - 1 : r->depth - 1;
    }
}

/* ---- the part of a slab that a step works on ---- */

typedef struct {
    int64_t from[3], to[3]; /* entries per level, 0 being the first output */
    int64_t flat;           /* flat position of entry (from, from, from) */
    int64_t last;           /* length of the last entry of level 1 */
} region;

/* The outputs of slab v, widened at each level. */
static region FN(region_of)(const cynorm_lrn_tile *t, const int64_t reach[3][2], int64_t v) {
    region r;
    r.flat = t->origin;
    for (int i = 0; i < 3; i++) {
        int64_t count = i == t->grouped && v == t->extent - 1 ? t->last_group : t->count[i];
        r.from[i] = reach ? -reach[i][0] : 0;
        r.to[i] = count + (reach ? reach[i][1] : 0);
        r.flat += r.from[i] * t->pitch[i];
    }
    r.last = r.to[0] - r.from[0] - ((reach ? reach[1][1] : 0) == t->behind ? t->missing : 0);
    return r;
}

static cynorm_operand FN(operand_in_memory)(const cynorm_lrn_view *m, const region *r, int64_t v) {
    cynorm_operand o = {m->data + v * m->streamed, {m->stride[1], m->stride[2]}};
    for (int i = 0; i < 3; i++) o.data += r->from[i] * m->stride[i];
    return o;
}

static cynorm_operand FN(operand_in_scratch)(const cynorm_lrn_tile *t, const real *slab, const region *r,
                                             int dtype) {
    const int64_t size = cynorm_itemsize(dtype);
    return (cynorm_operand){(char *)slab + r->flat * size, {t->pitch[1] * size, t->pitch[2] * size}};
}

/* ---- packing: slabs of memory that the loop cannot read or write in place, as they are stored ---- */

/* How many runs of memory a slab of dst has that may go on in the next slab. */
static int64_t FN(unpacked_rows)(const cynorm_lrn_tile *t) {
    int64_t rows = t->count[0] * t->count[1] * t->count[2];
    for (int i = 0; i < 3; i++)
        if (t->dst.stride[i] == cynorm_itemsize(t->dst.dtype)) return rows / t->count[i];
    return 0;
}

/* From memory to scratch, or back, past the cache by way of `stage`, if that is given. */
static void FN(move)(real *slab, const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v, int back,
                     char *stage) {
    const cynorm_operand memory = FN(operand_in_memory)(m, r, v);
    const cynorm_operand scratch = FN(operand_in_scratch)(t, slab, r, m->dtype);
    const int64_t size = cynorm_itemsize(m->dtype), row = r->to[0] - r->from[0], rows = r->to[1] - r->from[1];
    const int ragged = r->last < row; /* the last row goes by itself */
    for (int64_t i1 = 0, n; i1 < rows; i1 += n) {
        n = ragged && i1 + 1 < rows ? rows - 1 : rows - i1;
        cynorm_slab s = {{memory.data + i1 * memory.pitch[0], scratch.data + i1 * scratch.pitch[0]},
                         {{i1 + n == rows ? r->last : row, {m->stride[0], size}},
                          {n, {memory.pitch[0], scratch.pitch[0]}},
                          {r->to[2] - r->from[2], {memory.pitch[1], scratch.pitch[1]}}},
                         size, m->streamed};
        for (int i = 0; i < 3 && back && !ragged; i++)
            if (m->streamed == t->count[i] * m->stride[i])
                s.axis[i].before = (v - t->begin) * t->count[i], s.axis[i].after = (t->end - 1 - v) * t->count[i];
        if (back) cynorm_unpack(&s, stage, FN(unpacked_rows)(t));
        else cynorm_pack(&s);
    }
}

static void FN(pack)(real *slab, const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v) {
    FN(move)(slab, t, m, r, v, 0, NULL);
}

static void FN(unpack)(real *slab, const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v, char *stage) {
    FN(move)(slab, t, m, r, v, 1, stage);
}

/* ---- the loop ---- */

/* What the loop uses of a row of a slab, except to finish: memory by the row's first element, scratch by that of the slab's
 * first row. */
typedef struct {
    const char *newest, *middle_src, *middle_diff, *y;
    const real *square_sum[CYNORM_SUM_LEVELS], *term_sum[CYNORM_SUM_LEVELS], *omega_in, *weighted;
    int square_rows, term_rows; /* how many of these, where the window is not a constant */
    real *squares_out, *weighted_out, *terms_out, *omega_out;
    coefficients q;
    int64_t src_ahead, diff_ahead, dst_ahead; /* bytes from a slab to the next, which is prefetched */
    int parts, kind, streaming;
} run_t;

enum { CYNORM_PART_SQUARES = 1, CYNORM_PART_TERMS = 2, CYNORM_PART_FINISH = 4 };

/* What the loop works on: where its operands begin in memory, and all the rest. */
typedef struct {
    cynorm_operand newest, middle_src, middle_diff, y, src, dst;
    int64_t pitch[2], rows[2], length, last; /* of scratch; entries of levels 1 and 2; of level 0 */
    int flat;     /* whether src and dst have no gap between rows of level 1 */
    int adjacent; /* whether windows are of adjacent reals */
    run_t run;
} loop;

/* The sum of a window of 3 or 5, or of as many rows as there are, in their order. */
CYNORM_INLINE vec FN(window_sum)(const real *const *p, int rows, int64_t at, int window) {
    if (window > 1) return FN(tree_sum)(p, at, window);
    vec sum = FN(load)(p[0] + at);
    for (int i = 1; i < rows; i++) sum += FN(load)(p[i] + at);
    return sum;
}

/* Each part takes the VL elements from j on, or the n < VL that are left there. Terms and squares go by the rows of
 * a slab: `at` is where the row lies in scratch. */

CYNORM_INLINE void FN(terms)(const run_t *r, int64_t at, int64_t j, int64_t n, int dtype, int window,
                             int kind) {
    const int64_t b = j * cynorm_itemsize(dtype);
    vec omega = r->omega_in ? FN(part)(FN(load)(r->omega_in + at + j), FN(splat)(1), n)
                            : FN(omega_of)(&r->q, FN(window_sum)(r->square_sum, r->square_rows, at + j, window), n);
    vec g = FN(get)(r->middle_diff + b, dtype, n), x = FN(get)(r->middle_src + b, dtype, n), weighted;
    vec y = r->y ? FN(get)(r->y + b, dtype, n) : x;
    vec term = FN(term_of)(&r->q, omega, g, x, r->y ? &y : NULL, kind, &weighted);
    FN(store)(r->weighted_out + at + j, weighted);
    FN(store)(r->terms_out + at + j, FN(part)(term, (vec){0}, n));
}

CYNORM_INLINE void FN(squares)(const run_t *r, int64_t at, int64_t j, int64_t n, int dtype) {
    vec x = FN(get)(r->newest + j * cynorm_itemsize(dtype), dtype, n);
    FN(store)(r->squares_out + at + j, x * x);
}

/* The part that finishes goes by spans: a row or, where rows lie side by side in memory, all of them. It reads nothing
 * that the other parts write, so that it need not keep step with them, and writes dst by whole lines. */
typedef struct {
    const char *src;
    char *dst;
    int64_t done, end;               /* elements */
    int64_t at, left;                /* where the next lies in scratch, how many of the row's elements are left there */
    int64_t row, gap;                /* how many a row has, and what lies between two rows */
} span_t;

/* The window sums of the span's next n elements, of which those after the first `left` belong to the next row. */
CYNORM_INLINE vec FN(from_rows)(const span_t *s, int64_t n, const real *const *p, int rows, int window) {
    vec sum = FN(window_sum)(p, rows, s->at, window);
    if (s->left < n) sum = FN(part)(sum, FN(window_sum)(p, rows, s->at + s->gap, window), s->left);
    return sum;
}

/* The next n elements of the span. */
CYNORM_INLINE vec FN(finish)(const run_t *r, span_t *s, int64_t n, int dtype, int window, int backward,
                             int kind) {
    vec x = FN(get)(s->src + s->done * cynorm_itemsize(dtype), dtype, n), out;
    if (backward) {
        vec sum = FN(from_rows)(s, n, r->term_sum, r->term_rows, window);
        out = FN(diff_src_of)(&r->q, x, sum, FN(from_rows)(s, n, &r->weighted, 1, 1));
    } else {
        vec omega = FN(omega_of)(&r->q, FN(from_rows)(s, n, r->square_sum, r->square_rows, window), n);
        if (r->omega_out) {
            /* the next row first: this spoils the end of the row before it */
            if (s->left < n) FN(store_n)(r->omega_out + s->at + s->gap, omega, n);
            FN(store_n)(r->omega_out + s->at, omega, s->left < n ? s->left : n);
        }
        out = FN(times_power)(x, omega, kind, r->q.beta, dtype);
    }
    s->done += n, s->at += n, s->left -= n;
    if (s->left <= 0) s->at += s->gap, s->left += s->row;
    return out;
}

CYNORM_INLINE void FN(finish_line)(const run_t *r, span_t *s, int dtype, int window, int backward, int kind) {
    const int64_t size = cynorm_itemsize(dtype), at = s->done * size;
    vec out[CYNORM_DOUBLE ? 8 / VL : 32 / VL];
    for (int v = 0; v < 64 / size / VL; v++) out[v] = FN(finish)(r, s, VL, dtype, window, backward, kind);
    FN(put_line)(s->dst + at, out, dtype, r->streaming);
}

CYNORM_INLINE void FN(finish_until)(const run_t *r, span_t *s, int64_t end, int dtype, int window,
                                    int backward, int kind) {
    while (s->done < end) {
        char *p = s->dst + s->done * cynorm_itemsize(dtype);
        const int64_t n = end - s->done < VL ? end - s->done : VL;
        FN(put)(p, FN(finish)(r, s, n, dtype, window, backward, kind), dtype, n);
    }
}

CYNORM_INLINE void FN(step_row)(const run_t *r, span_t *s, int64_t at, int64_t length, int dtype, int window,
                                int backward, int parts, int kind) {
    const int64_t size = cynorm_itemsize(dtype), line = 64 / size;
    const int finish = parts & CYNORM_PART_FINISH, squares = parts & CYNORM_PART_SQUARES;
    const int terms = backward && parts & CYNORM_PART_TERMS;
    int64_t j = 0;
    for (; j + line <= length; j += line) {
        if (finish && s->done + line <= s->end) FN(finish_line)(r, s, dtype, window, backward, kind);
        if (terms) {
            __builtin_prefetch(r->middle_diff + j * size + r->diff_ahead, 0, 2);
            for (int64_t v = 0; v < line; v += VL) FN(terms)(r, at, j + v, VL, dtype, window, kind);
        }
        if (squares) {
            __builtin_prefetch(r->newest + j * size + r->src_ahead, 0, 2);
            for (int64_t v = 0; v < line; v += VL) FN(squares)(r, at, j + v, VL, dtype);
        }
    }
    if (j == length) return;
    if (finish && s->done + line <= s->end) FN(finish_line)(r, s, dtype, window, backward, kind);
    for (; j < length; j += VL) {
        const int64_t n = length - j < VL ? length - j : VL;
        if (terms) FN(terms)(r, at, j, n, dtype, window, kind);
        if (squares) FN(squares)(r, at, j, n, dtype);
    }
}

/* Adjacent rows are taken from the first one, so that the loop needs one pointer for them. */
CYNORM_INLINE void FN(copy_rows)(const real **to, const real *const *from, int n, int adjacent) {
    for (int i = 0; i < n; i++) to[i] = adjacent ? from[0] - i : from[i];
}

/* The rows of a slab. All that the loop uses is copied out of *l, one by one, since its stores might alias *l. */
CYNORM_INLINE void FN(step_rows)(const loop *l, int dtype, int window, int adjacent, int backward, int parts,
                                 int kind) {
    const int64_t size = cynorm_itemsize(dtype);
    const int finish = parts & CYNORM_PART_FINISH;
    run_t r;
    span_t s = {0};
    r.squares_out = l->run.squares_out, r.omega_out = l->run.omega_out;
    r.square_rows = l->run.square_rows, r.term_rows = l->run.term_rows;
    FN(copy_rows)(r.square_sum, l->run.square_sum, window > 1 ? window : r.square_rows, adjacent);
    if (backward) {
        r.weighted_out = l->run.weighted_out, r.terms_out = l->run.terms_out, r.weighted = l->run.weighted;
        FN(copy_rows)(r.term_sum, l->run.term_sum, window > 1 ? window : r.term_rows, adjacent);
        r.omega_in = l->run.omega_in;
    }
    r.q = l->run.q;
    r.src_ahead = l->run.src_ahead, r.diff_ahead = l->run.diff_ahead, r.dst_ahead = l->run.dst_ahead;
    r.streaming = l->run.streaming;
    for (int64_t i2 = 0; i2 < l->rows[1]; i2++)
        for (int64_t i1 = 0; i1 < l->rows[0]; i1++) {
            const int64_t at = i1 * l->pitch[0] + i2 * l->pitch[1];
            const int64_t length = i1 == l->rows[0] - 1 ? l->last : l->length;
#define MEMORY(name) l->name.data + i1 * l->name.pitch[0] + i2 * l->name.pitch[1]
            r.newest = MEMORY(newest);
            if (backward) {
                r.middle_src = MEMORY(middle_src), r.middle_diff = MEMORY(middle_diff);
                r.y = l->y.data ? MEMORY(y) : NULL;
            }
            if (finish && (i1 == 0 || !l->flat)) {
                int64_t head = 0;
                s = (span_t){.src = MEMORY(src), .dst = MEMORY(dst), .end = l->flat ? l->length * l->rows[0] : length,
                             .at = at, .left = length, .row = length, .gap = l->pitch[0] - length};
                if (r.streaming) {
                    head = (-(intptr_t)s.dst & 63) / size;
                    /* the lines shared with other spans are read: ask for them early */
                    __builtin_prefetch(s.dst + r.dst_ahead, 1, 3);
                    __builtin_prefetch(s.dst + r.dst_ahead + s.end * size - 1, 1, 3);
                }
                FN(finish_until)(&r, &s, head < s.end ? head : s.end, dtype, window, backward, kind);
            }
#undef MEMORY
            FN(step_row)(&r, &s, at, length, dtype, window, backward, parts, kind);
            if (finish && (i1 == l->rows[0] - 1 || !l->flat))
                FN(finish_until)(&r, &s, s.end, dtype, window, backward, kind);
        }
}

/* The loop is compiled for each storage type; for windows of 5 and of 3, of adjacent reals or of slabs, and for all
 * others; and, where all parts are there and beta is 3/4, with both known. Each is a function of its own: in one, the
 * compiler would run out of registers. */
#define CYNORM_ALL_PARTS(backward) (CYNORM_PART_SQUARES | CYNORM_PART_FINISH | (backward ? CYNORM_PART_TERMS : 0))
#define CYNORM_LOOP(T, window, adjacent, backward)                                                                        \
    static __attribute__((noinline)) void FN(usual_##T##_##window##_##adjacent##_##backward)(const loop *l) {             \
        FN(step_rows)(l, CYNORM_##T, window, adjacent, backward, CYNORM_ALL_PARTS(backward), CYNORM_BETA_THREE_QUARTERS); \
    }                                                                                                                     \
    static __attribute__((noinline)) void FN(any_##T##_##window##_##adjacent##_##backward)(const loop *l) {               \
        FN(step_rows)(l, CYNORM_##T, window, adjacent, backward, l->run.parts, l->run.kind);                              \
    }
#define CYNORM_LOOPS(T, backward)                                                                                  \
    CYNORM_LOOP(T, 5, 0, backward)                                                                                 \
    CYNORM_LOOP(T, 5, 1, backward)                                                                                 \
    CYNORM_LOOP(T, 3, 0, backward)                                                                                 \
    CYNORM_LOOP(T, 3, 1, backward)                                                                                 \
    CYNORM_LOOP(T, 1, 0, backward)                                                                                 \
    static void FN(run_##T##_##backward)(const loop *l, int window) {                                              \
        const int usual = l->run.parts == CYNORM_ALL_PARTS(backward) && l->run.kind == CYNORM_BETA_THREE_QUARTERS; \
        void (*const loops[3][2][2])(const loop *) = {                                                             \
            {{FN(any_##T##_1_0_##backward), FN(usual_##T##_1_0_##backward)}},                                      \
            {{FN(any_##T##_3_0_##backward), FN(usual_##T##_3_0_##backward)},                                       \
             {FN(any_##T##_3_1_##backward), FN(usual_##T##_3_1_##backward)}},                                      \
            {{FN(any_##T##_5_0_##backward), FN(usual_##T##_5_0_##backward)},                                       \
             {FN(any_##T##_5_1_##backward), FN(usual_##T##_5_1_##backward)}}};                                     \
        loops[window / 2][window > 1 && l->adjacent][usual](l);                                                    \
    }
#define CYNORM_LOOPS_BOTH_WAYS(T) CYNORM_LOOPS(T, 0) CYNORM_LOOPS(T, 1)
#define CYNORM_RUNS_OF(T) [CYNORM_##T] = {FN(run_##T##_0), FN(run_##T##_1)},
CYNORM_TYPES(CYNORM_LOOPS_BOTH_WAYS)
static void (*const FN(run_loop)[][2])(const loop *, int) = {CYNORM_TYPES(CYNORM_RUNS_OF)};
#undef CYNORM_LOOPS
#undef CYNORM_LOOP
#undef CYNORM_ALL_PARTS
#undef CYNORM_LOOPS_BOTH_WAYS
#undef CYNORM_RUNS_OF

/* ---- scratch ---- */

typedef struct {
    const cynorm_lrn_tile *t;
    int backward;
    int window;      /* the one that the loop sums itself; 1 where sums come ready */
    int inner;       /* whether the windows inside the slab are summed before the loop */
    int64_t levels;  /* else, the size of the window of which only the levels are */
    streamed_sum squares, terms;
    ring src, weighted; /* the last slabs: src where it is packed, diff_dst * omega^-beta */
    real *diff_dst, *y, *dst; /* a slab of each that is packed, else NULL */
    char *stage;              /* rows of dst on their way past the cache */
    real *level[2][CYNORM_SUM_LEVELS];         /* of a wide window inside the slab, of squares and of terms */
    real *squares_slab, *terms_slab, *between; /* for windows summed before the loop; zero margins in the first two */
    real *square_sum, *term_sum, *omega;
    size_t used;                               /* bytes */
} state;

static real *FN(carve)(state *s, char *scratch, int64_t reals) {
    real *p = (real *)(scratch + s->used);
    s->used += ((size_t)reals * sizeof(real) + 63) / 64 * 64;
    return p;
}

static ring FN(carve_ring)(state *s, char *scratch, int64_t depth, int64_t size) {
    ring r = {FN(carve)(s, scratch, depth * size), depth, size};
    return r;
}

static void FN(carve_sum)(state *s, streamed_sum *sum, char *scratch, int64_t n, int64_t size) {
    sum->n = n;
    sum->by_blocks = FN(by_blocks)(s->t);
    if (n <= CYNORM_SUM_DIRECT) sum->level[0] = FN(carve_ring)(s, scratch, n + 1, size);
    else if (sum->by_blocks) {
        sum->level[0] = FN(carve_ring)(s, scratch, CYNORM_SLABS + 2, size);
        sum->ends = FN(carve_ring)(s, scratch, n + CYNORM_SLABS, size);
    } else
        for (int64_t m = 1, l = 0; m <= n; m *= 2, l++) sum->level[l] = FN(carve_ring)(s, scratch, m + 2, size);
}

static int FN(in_place)(const cynorm_lrn_tile *t, const cynorm_lrn_view *m) {
    return !m->data || (m->stride[0] == cynorm_itemsize(m->dtype) && (t->count[0] >= VL || t->count[1] * t->count[2] == 1));
}

/* Whether all rows begin at multiples of so many bytes, a power of two. */
static int FN(multiple_of)(const cynorm_lrn_view *m, int64_t bytes) {
    return !(((intptr_t)m->data | m->streamed | m->stride[1] | m->stride[2]) & (bytes - 1));
}

/* Slabs end with a spare vector, so that whole vectors may be stored at a run's end. */
static void FN(lay_out)(const cynorm_lrn_tile *t, int backward, char *scratch, state *s) {
    int64_t n = t->left + t->right + 1, size = (t->size + 2 * VL - 1) / VL * VL;
    memset(s, 0, sizeof *s);
    s->t = t;
    s->backward = backward;
    int64_t within = t->windows == 1 ? t->window[0].left + t->window[0].right + 1 : 0;
    s->levels = n == 1 && within > CYNORM_SUM_DIRECT && !t->cut ? within : 0;
    s->inner = t->windows && !s->levels && !(n == 1 && (within == 3 || within == 5) && !t->cut);
    int64_t in_loop = t->windows && !s->inner ? within : n;
    s->window = in_loop == 3 || in_loop == 5 ? (int)in_loop : 1;
    FN(carve_sum)(s, &s->squares, scratch, n, size);
    if (!FN(in_place)(t, &t->src))
        s->src = FN(carve_ring)(s, scratch, t->right + 2 + (backward ? t->left + 1 : 0), size);
    if (!FN(in_place)(t, &t->diff_dst)) s->diff_dst = FN(carve)(s, scratch, size);
    if (!FN(in_place)(t, &t->y)) s->y = FN(carve)(s, scratch, size);
    if (!FN(in_place)(t, &t->dst)) s->dst = FN(carve)(s, scratch, size);
    if (backward) {
        FN(carve_sum)(s, &s->terms, scratch, n, size);
        s->weighted = FN(carve_ring)(s, scratch, t->left + 2, size);
    }
    if (s->inner) s->squares_slab = FN(carve)(s, scratch, size);
    if (s->inner && backward) s->terms_slab = FN(carve)(s, scratch, size);
    if (t->windows > 1) s->between = FN(carve)(s, scratch, size);
    int64_t widest = 0;
    for (int k = 0; k < t->windows; k++) {
        int64_t cells = t->window[k].left + t->window[k].right + 1;
        if (cells > widest) widest = cells;
    }
    if (widest > CYNORM_SUM_DIRECT)
        for (int64_t m = 2, l = 1; m <= widest; m *= 2, l++) {
            s->level[0][l] = s->level[1][l] = FN(carve)(s, scratch, size);
            if (s->levels && backward) s->level[1][l] = FN(carve)(s, scratch, size); /* the loop reads both */
        }
    s->square_sum = FN(carve)(s, scratch, size);
    if (t->omega.data) s->omega = FN(carve)(s, scratch, size);
    if (backward) s->term_sum = FN(carve)(s, scratch, size);
    const int64_t stage = s->dst ? cynorm_unpack_bytes(FN(unpacked_rows)(t)) : 0;
    s->stage = (char *)FN(carve)(s, scratch, stage / (int64_t)sizeof(real));
}

static size_t FN(tile_scratch)(const cynorm_lrn_tile *t, int backward) {
    state s;
    FN(lay_out)(t, backward, NULL, &s);
    return s.used;
}

/* ---- stages ---- */

/* Where the loop finds view m of slab v: packed in `slab`, or, without one, in memory. */
static cynorm_operand FN(operand)(const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const real *slab,
                                  const region *r, int64_t v) {
    return slab ? FN(operand_in_scratch)(t, slab, r, m->dtype) : FN(operand_in_memory)(m, r, v);
}

/* The windows inside the slab, from `in` (zero margins) to `out`; mirrored for the terms of backward. */
static void FN(inner_windows)(const state *s, real *out, const real *in, int mirrored) {
    const cynorm_lrn_tile *t = s->t;
    for (int k = 0; k < t->windows; k++) {
        cynorm_lrn_window w = t->window[k];
        if (mirrored) w.left = t->window[k].right, w.right = t->window[k].left;
        real *to = k == t->windows - 1 ? out : s->between;
        FN(window_in_slab)(to, in, s->level[mirrored], &w, t->size);
        in = to;
    }
}

/* The rows whose sum at any flat position is the window's: its cells, the levels that make it up, or one row with the sum
 * where the loop does not sum. Returns how many. */
static int FN(window_rows)(const state *s, const streamed_sum *sum, int64_t slab, int64_t end, int mirrored, real *ready,
                           int64_t flat, const real **p) {
    const cynorm_lrn_window *w = &s->t->window[0];
    const int inside = s->t->windows && !s->inner;
    const real *first = FN(slot)(&sum->level[0], slab);
    const int64_t last = flat + (inside ? (mirrored ? w->left : w->right) * w->step : 0), n = sum->n;
    if (s->window > 1 && inside) {
        for (int j = 0; j < s->window; j++) p[j] = first + last - j * w->step;
        return s->window;
    }
    if (inside) return FN(pieces_in_slab)(p, first, s->level[mirrored], s->levels, w->step, last);
    if (n <= CYNORM_SUM_DIRECT) {
        FN(window_slots)(sum, end, p);
        if (s->window == 1 && n > 1) {
            FN(sum_window)(ready, p, n, sum->level[0].size);
            p[0] = ready;
        }
        for (int j = 0; j < s->window; j++) p[j] += flat;
        return s->window;
    }
    if (sum->by_blocks) {
        FN(sum_by_blocks)(ready, sum, end);
        p[0] = ready + flat;
        return 1;
    }
    int rows = 0;
    int64_t offset = 0;
    for (int64_t m = 1, l = 0; m <= n; m *= 2, l++)
        if (n & m) {
            p[rows++] = FN(slot)(&sum->level[l], end - offset) + flat;
            offset += m;
        }
    return rows;
}

/* The loop over region r; rows of level 1 merge where nothing lies between them anywhere. */
static void FN(run)(const state *s, loop *l, const region *r, int parts) {
    const int dtype = s->t->src.dtype;
    l->length = r->to[0] - r->from[0], l->last = r->last;
    l->rows[0] = r->to[1] - r->from[1], l->rows[1] = r->to[2] - r->from[2];
    l->run.parts = parts;
    if (l->rows[0] > 1 && l->pitch[0] == l->length && l->last == l->length) {
        const int squares = parts & CYNORM_PART_SQUARES, terms = parts & CYNORM_PART_TERMS, finish = parts & CYNORM_PART_FINISH;
        const cynorm_operand *o[] = {&l->newest, &l->middle_src, &l->middle_diff, &l->y, &l->src, &l->dst};
        const int used[] = {squares, terms, terms, terms && l->y.data, finish, finish};
        int merge = 1;
        for (int i = 0; i < 6; i++) merge &= !used[i] || o[i]->pitch[0] == l->length * cynorm_itemsize(dtype);
        if (merge) l->length = l->last = l->length * l->rows[0], l->rows[0] = 1;
    }
    const int64_t row = l->length * cynorm_itemsize(dtype);
    l->flat = l->last == l->length && l->src.pitch[0] == row && l->dst.pitch[0] == row;
    l->run.streaming = s->t->streaming && !s->dst && row * (l->flat ? l->rows[0] : 1) >= CYNORM_STREAM_LEAST;
    FN(run_loop)[dtype][s->backward](l, s->window);
}

/* Whether every row of dst begins and ends at a line, and the `bytes` stored at once are a line; or half of one, if the other half
 * `follows`: the core joins these. */
static int FN(by_lines)(const cynorm_lrn_tile *t, int64_t row, int64_t bytes, int follows) {
    return FN(multiple_of)(&t->dst, 64) && !(row & 63) && (bytes == 64 || (follows && bytes == 32 && CYNORM_VBYTES == 32));
}

static int FN(same_shape)(const region *a, const region *b) {
    return a->to[0] - a->from[0] == b->to[0] - b->from[0] && a->to[1] - a->from[1] == b->to[1] - b->from[1] &&
           a->to[2] - a->from[2] == b->to[2] - b->from[2];
}

static void FN(zero_slab)(real *slab, const ring *like) { memset(slab, 0, (size_t)like->size * sizeof(real)); }

/* Slab v gives its squares, the slab `right`+1 before it its terms, and the slab another `left`+1 before is finished;
 * forward has no terms. */
static void FN(lrn_tile)(const cynorm_lrn_tile *t, int backward) {
    state s;
    FN(lay_out)(t, backward, t->scratch, &s);
    const ring *slots = &s.squares.level[0];
    const int kept = backward && t->omega.data != NULL;
    const int64_t around = t->left + t->right, first = t->begin - (backward ? around : t->left);
    const int64_t squares_end = t->end + (backward ? around : t->right), terms_first = t->begin - t->right;
    if (s.inner) {
        FN(zero_slab)(s.squares_slab, slots);
        if (backward) FN(zero_slab)(s.terms_slab, slots);
    } else if (t->windows) { /* the margins of the slots themselves */
        memset(slots->base, 0, (size_t)(slots->depth * slots->size) * sizeof(real));
        if (backward) memset(s.terms.level[0].base, 0, (size_t)(slots->depth * slots->size) * sizeof(real));
    }
    s.squares.phase = first - t->right, s.terms.phase = terms_first; /* as slabs are counted from these */
    loop l;
    memset(&l, 0, sizeof l);
    run_t *run = &l.run;
    run->q = FN(coefficients_of)(t);
    run->kind = cynorm_beta_kind(t->beta);
    run->src_ahead = s.src.base ? 0 : t->src.streamed;
    run->diff_ahead = s.diff_dst ? 0 : t->diff_dst.streamed;
    run->dst_ahead = t->dst.streamed;
    l.adjacent = t->windows && !s.inner && t->window[0].step == 1;
    l.pitch[0] = t->pitch[1], l.pitch[1] = t->pitch[2];

    for (int64_t v = first; v < squares_end + 1 + backward; v++) {
        const int64_t j = v - t->right - 1, i = backward ? j - t->left - 1 : j;
        const int64_t u = v - first, uj = j - first, ut = j - terms_first;
        const int newest = v < squares_end && v >= 0 && v < t->extent;
        const int squares = newest && !kept, finish = i >= t->begin;
        const int middle = backward && j >= terms_first && j < t->end + t->left;
        const int terms = middle && j >= 0 && j < t->extent;
        region loaded, between, output;
        if (newest) {
            loaded = FN(region_of)(t, t->reach_src, v);
            real *x = s.src.base ? FN(slot)(&s.src, u) : NULL;
            if (x) FN(pack)(x, t, &t->src, &loaded, v);
            l.newest = FN(operand)(t, &t->src, x, &loaded, v);
            run->squares_out = (s.inner ? s.squares_slab : FN(slot)(slots, u)) + loaded.flat;
        } else if (v < squares_end) {
            FN(zero_slab)(FN(slot)(slots, u), slots);
        }
        if (terms) {
            between = FN(region_of)(t, t->reach_terms, j);
            if (s.diff_dst) FN(pack)(s.diff_dst, t, &t->diff_dst, &between, j);
            if (s.y) FN(pack)(s.y, t, &t->y, &between, j);
            l.middle_src = FN(operand)(t, &t->src, s.src.base ? FN(slot)(&s.src, uj) : NULL, &between, j);
            l.middle_diff = FN(operand)(t, &t->diff_dst, s.diff_dst, &between, j);
            if (t->y.data) l.y = FN(operand)(t, &t->y, s.y, &between, j);
            if (kept) {
                FN(pack)(s.omega, t, &t->omega, &between, j);
                run->omega_in = s.omega + between.flat;
            } else {
                run->square_rows =
                    FN(window_rows)(&s, &s.squares, uj, u - 1, 0, s.square_sum, between.flat, run->square_sum);
            }
            run->weighted_out = FN(slot)(&s.weighted, uj) + between.flat;
            run->terms_out = (s.inner ? s.terms_slab : FN(slot)(&s.terms.level[0], ut)) + between.flat;
        } else if (middle) {
            FN(zero_slab)(FN(slot)(&s.terms.level[0], ut), slots);
        }
        if (finish) {
            output = FN(region_of)(t, NULL, i);
            l.src = FN(operand)(t, &t->src, s.src.base ? FN(slot)(&s.src, i - first) : NULL, &output, i);
            l.dst = FN(operand)(t, &t->dst, s.dst, &output, i);
            if (backward) {
                run->weighted = FN(slot)(&s.weighted, i - first) + output.flat;
                run->term_rows = FN(window_rows)(&s, &s.terms, i - terms_first, ut - 1, 1, s.term_sum, output.flat,
                                                 run->term_sum);
            } else {
                run->square_rows =
                    FN(window_rows)(&s, &s.squares, uj, u - 1, 0, s.square_sum, output.flat, run->square_sum);
                run->omega_out = t->omega.data ? s.omega + output.flat : NULL;
            }
        }

        const region *any = finish ? &output : terms ? &between : &loaded;
        const int parts = squares * CYNORM_PART_SQUARES | terms * CYNORM_PART_TERMS | finish * CYNORM_PART_FINISH;
        if ((!squares || FN(same_shape)(any, &loaded)) && (!terms || FN(same_shape)(any, &between))) {
            if (parts) FN(run)(&s, &l, any, parts);
        } else {
            if (finish) FN(run)(&s, &l, &output, CYNORM_PART_FINISH);
            if (terms) FN(run)(&s, &l, &between, CYNORM_PART_TERMS);
            if (squares) FN(run)(&s, &l, &loaded, CYNORM_PART_SQUARES);
        }

        if (finish && s.dst) FN(unpack)(s.dst, t, &t->dst, &output, i, t->streaming ? s.stage : NULL);
        if (finish && !backward && t->omega.data) FN(unpack)(s.omega, t, &t->omega, &output, i, NULL);
        if (s.inner && squares) FN(inner_windows)(&s, FN(slot)(slots, u), s.squares_slab, 0);
        if (s.inner && terms) FN(inner_windows)(&s, FN(slot)(&s.terms.level[0], ut), s.terms_slab, 1);
        if (s.levels) { /* likewise, but the loop adds up the pieces */
            const int64_t step = t->window[0].step;
            const real *x = FN(slot)(slots, u), *g = terms ? FN(slot)(&s.terms.level[0], ut) : NULL;
            if (squares) FN(levels_in_slab)(x, s.level[0], s.levels, step, t->size);
            if (terms) FN(levels_in_slab)(g, s.level[1], s.levels, step, t->size);
        }
        if (v < squares_end && !kept) FN(sum_push)(&s.squares, u);
        if (middle) FN(sum_push)(&s.terms, ut);
    }
}
