/* Local response normalization of one tile. A template, see types.h.
 *
 *     omega_i    = k + alpha * sum_{j in W(i)} src_j^2                            (alpha is already divided)
 *     dst_i      = src_i * omega_i^-beta
 *     diff_src_i = diff_dst_i * omega_i^-beta - 2 alpha beta src_i * sum_{j : i in W(j)} t_j
 *     t_j        = diff_dst_j * src_j * omega_j^(-beta-1)         (or diff_dst_j * y_j / omega_j, with y the dst given)
 *
 * A tile streams along one axis (channels of plain memory, rows of an image, groups of pixels), a slab at a time. A
 * slab has three levels in memory and is flat in scratch, its margins zero, so that a window inside it, along whatever
 * axis, is a sum of shifted copies; a window along the streamed axis is a sum over a ring of slabs.
 *
 * One loop over the elements of a slab (step_run) reads squares of the newest slab, finishes an older one and, in
 * backward, takes the terms t of one in between, so that reads and arithmetic overlap; what bypasses the cache is staged
 * in scratch and streams out a slab at a time, in whole lines (stream_slab). Each part works one slab later than its window
 * would allow: no load then waits for a store of the same loop.
 *
 * Every window of n is summed as the same binary tree, whatever the traversal: S_1 = squares,
 * S_2m[e] = S_m[e] + S_m[e-m], and the sum that ends at e is S_m[e - lower bits of n] over the bits m of n, lowest
 * first. Nothing is ever subtracted, so a NaN or an inf stays within its windows, and the error grows with log2 n.
 */

#ifndef CYNORM_LRN_H
#define CYNORM_LRN_H
enum { CYNORM_SUM_DIRECT = 8, CYNORM_SUM_LEVELS = 62 };

/* Where step_run finds one operand: its first element, the distance between entries of levels 1 and 2 in bytes. */
typedef struct { char *data; int64_t pitch[2]; } cynorm_operand;
#endif

/* ---- sums of rows ---- */

/* S_m that ends at p[0]; p[j] is j steps earlier. m is a constant. */
static inline __attribute__((always_inline)) vec FN(tree)(const real *const *p, int64_t i, int m) {
    if (m == 1) return FN(load)(p[0] + i);
    if (m == 2) return FN(load)(p[0] + i) + FN(load)(p[1] + i);
    if (m == 4) return FN(tree)(p, i, 2) + FN(tree)(p + 2, i, 2);
    return FN(tree)(p, i, 4) + FN(tree)(p + 4, i, 4);
}

/* The window sum of p[0] (latest) to p[n-1] at i; n is a constant of at most CYNORM_SUM_DIRECT. */
static inline __attribute__((always_inline)) vec FN(tree_sum)(const real *const *p, int64_t i, int n) {
    int low = n & -n, done = low;
    vec sum = FN(tree)(p, i, low);
    for (int m = low * 2; m <= n; m *= 2)
        if (n & m) {
            sum += FN(tree)(p + done, i, m);
            done += m;
        }
    return sum;
}

static inline __attribute__((always_inline)) void FN(sum_direct)(real *out, const real *const *p, int n, int64_t length) {
    for (int64_t i = 0; i < length; i += VL) FN(store)(out + i, FN(tree_sum)(p, i, n));
}

/* out = the window sum of the n rows p[0] (latest) to p[n-1], n <= CYNORM_SUM_DIRECT */
static void FN(sum_window)(real *out, const real *const *p, int64_t n, int64_t length) {
    switch (n) {
    case 1: FN(sum_direct)(out, p, 1, length); break;
    case 2: FN(sum_direct)(out, p, 2, length); break;
    case 3: FN(sum_direct)(out, p, 3, length); break;
    case 4: FN(sum_direct)(out, p, 4, length); break;
    case 5: FN(sum_direct)(out, p, 5, length); break;
    case 6: FN(sum_direct)(out, p, 6, length); break;
    case 7: FN(sum_direct)(out, p, 7, length); break;
    case 8: FN(sum_direct)(out, p, 8, length); break;
    }
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

/* out[i] = sum of in[i - left*step .. i + right*step] at every flat i where that lies in the slab */
static void FN(window_in_slab)(real *out, const real *in, real *spare[2], const cynorm_lrn_window *w, int64_t size) {
    const real *p[CYNORM_SUM_LEVELS];
    int64_t n = w->left + w->right + 1, last = w->right * w->step;
    int64_t from = w->left * w->step, length = size - from - last;
    if (n <= CYNORM_SUM_DIRECT) {
        for (int64_t j = 0; j < n; j++) p[j] = in + from + last - j * w->step;
        FN(sum_window)(out + from, p, n, length);
        return;
    }
    const real *level = in;
    int64_t offset = 0;
    int filled = 0;
    for (int64_t m = 1; m <= n; m *= 2) {
        if (n & m) {
            const real *pieces[2] = {out + from, level + from + last - offset * w->step};
            if (filled) FN(sum_rows)(out + from, pieces, 2, length);
            else FN(sum_rows)(out + from, pieces + 1, 1, length);
            filled = 1;
            offset += m;
        }
        if (2 * m <= n) {
            int64_t first = (2 * m - 1) * w->step;
            real *next = level == spare[0] ? spare[1] : spare[0];
            const real *pair[2] = {level + first, level + first - m * w->step};
            FN(sum_rows)(next + first, pair, 2, size - first);
            level = next;
        }
    }
}

/* ---- windows along the streamed axis ---- */

#define ring FN(cynorm_ring)
typedef struct { real *base; int64_t depth, size; } ring;

static inline real *FN(slot)(const ring *r, int64_t u) { return r->base + u % r->depth * r->size; }

#define streamed_sum FN(cynorm_streamed_sum)
typedef struct { int64_t n; ring level[CYNORM_SUM_LEVELS]; } streamed_sum;

/* After S_1 of slab u is in its slot: the higher levels, where there are any. */
static void FN(sum_push)(const streamed_sum *s, int64_t u) {
    if (s->n <= CYNORM_SUM_DIRECT) return;
    for (int64_t m = 1, l = 0; 2 * m <= s->n && m <= u; m *= 2, l++) {
        const real *pair[2] = {FN(slot)(&s->level[l], u), FN(slot)(&s->level[l], u - m)};
        FN(sum_rows)(FN(slot)(&s->level[l + 1], u), pair, 2, s->level[l].size);
    }
}

/* The slabs of the window that ends with slab u. */
static void FN(window_slots)(const streamed_sum *s, int64_t u, const real **p) {
    for (int64_t j = 0; j < s->n; j++) p[j] = FN(slot)(&s->level[0], u - j);
}

/* out = the sum over the window that ends with slab u */
static void FN(sum_get)(const streamed_sum *s, int64_t u, real *out) {
    const real *p[CYNORM_SUM_LEVELS];
    if (s->n <= CYNORM_SUM_DIRECT) {
        FN(window_slots)(s, u, p);
        FN(sum_window)(out, p, s->n, s->level[0].size);
        return;
    }
    int64_t pieces = 0, offset = 0;
    for (int64_t m = 1, l = 0; m <= s->n; m *= 2, l++)
        if (s->n & m) {
            p[pieces++] = FN(slot)(&s->level[l], u - offset);
            offset += m;
        }
    FN(sum_rows)(out, p, pieces, s->level[0].size);
}

/* ---- the part of a slab that a step works on ---- */

#define region FN(cynorm_region)
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
    r.last = r.to[0] - r.from[0] - t->missing;
    return r;
}

static cynorm_operand FN(operand_in_memory)(const cynorm_lrn_view *m, const region *r, int64_t v) {
    cynorm_operand o = {m->data + v * m->streamed, {m->stride[1], m->stride[2]}};
    for (int i = 0; i < 3; i++) o.data += r->from[i] * m->stride[i];
    return o;
}

static cynorm_operand FN(operand_in_scratch)(const cynorm_lrn_tile *t, const real *slab, const region *r) {
    cynorm_operand o = {(char *)(slab + r->flat), {t->pitch[1] * (int64_t)sizeof(real), t->pitch[2] * (int64_t)sizeof(real)}};
    return o;
}

/* ---- packing: slabs of memory that the loop cannot read or write in place ---- */

static void FN(load_slab)(real *slab, const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v) {
    cynorm_operand o = FN(operand_in_memory)(m, r, v);
    for (int64_t i2 = r->from[2]; i2 < r->to[2]; i2++)
        for (int64_t i1 = r->from[1]; i1 < r->to[1]; i1++) {
            int64_t at = (i2 - r->from[2]) * t->pitch[2] + (i1 - r->from[1]) * t->pitch[1];
            const char *p = o.data + (i2 - r->from[2]) * o.pitch[1] + (i1 - r->from[1]) * o.pitch[0];
            FN(load_row)(slab + r->flat + at, p, m->dtype, i1 == r->to[1] - 1 ? r->last : r->to[0] - r->from[0], m->stride[0]);
        }
}

static void FN(store_slab)(const real *slab, const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v) {
    cynorm_operand o = FN(operand_in_memory)(m, r, v);
    for (int64_t i2 = r->from[2]; i2 < r->to[2]; i2++)
        for (int64_t i1 = r->from[1]; i1 < r->to[1]; i1++) {
            int64_t at = (i2 - r->from[2]) * t->pitch[2] + (i1 - r->from[1]) * t->pitch[1];
            char *p = o.data + (i2 - r->from[2]) * o.pitch[1] + (i1 - r->from[1]) * o.pitch[0];
            FN(store_row)(p, slab + r->flat + at, m->dtype, i1 == r->to[1] - 1 ? r->last : r->to[0] - r->from[0], m->stride[0]);
        }
}

/* ---- the loop ---- */

/* What a run's loop uses; pointers are to the run's first element. */
#define run_t FN(cynorm_lrn_run)
typedef struct {
    const char *newest, *src, *diff_dst, *middle_src, *middle_diff, *y;
    char *dst;
    const real *square_sum[CYNORM_SUM_DIRECT], *term_sum[CYNORM_SUM_DIRECT], *omega_in, *weights;
    real *squares_out, *weights_out, *terms_out, *omega_out;
    vec k, alpha, c;
    double beta;
    int64_t src_ahead, diff_ahead; /* bytes from a slab to the next, which is prefetched */
    int parts, kind;
} run_t;

enum { FN(SQUARES) = 1, FN(TERMS) = 2, FN(FINISH) = 4 };

/* What the runs of a slab have in common: where its operands begin in memory, and all the rest. */
#define loop FN(cynorm_lrn_loop)
typedef struct {
    cynorm_operand newest, middle_src, middle_diff, y, src, diff_dst, dst;
    int64_t pitch[2], rows[2], length, last; /* of scratch; entries of levels 1 and 2; of level 0 */
    run_t run;
} loop;

/* Terms are kept scaled: beside a huge src they would underflow before they are multiplied by it again. */
#define CYNORM_TERM_SCALE ((real)(CYNORM_DOUBLE ? 0x1p256 : 0x1p40))

/* n elements from element j on; n is VL or, at a run's end and before dst is aligned, less. */
static inline __attribute__((always_inline)) void FN(step)(const run_t *r, int64_t j, int64_t n, int dtype, int window, int backward,
                                                           int parts, int kind) {
    const int64_t b = j * cynorm_itemsize(dtype);
    if (parts & FN(FINISH)) {
        vec x = FN(get)(r->src + b, dtype, n), out;
        if (backward) {
            vec second = (r->c * x) * FN(tree_sum)(r->term_sum, j, window) * (1 / CYNORM_TERM_SCALE);
            out = FN(fma)(FN(get)(r->diff_dst + b, dtype, n), FN(load)(r->weights + j), -second);
        } else {
            vec omega = FN(part)(FN(fma)(r->alpha, FN(tree_sum)(r->square_sum, j, window), r->k), FN(splat)(1), n);
            if (r->omega_out) FN(store)(r->omega_out + j, omega);
            out = x * FN(power_minus)(omega, kind, r->beta);
        }
        FN(put)(r->dst + b, out, dtype, n);
    }
    if (backward && parts & FN(TERMS)) {
        vec omega = r->omega_in ? FN(load)(r->omega_in + j) : FN(fma)(r->alpha, FN(tree_sum)(r->square_sum, j, window), r->k);
        omega = FN(part)(omega, FN(splat)(1), n); /* lanes past n stay on the fast path */
        __builtin_prefetch(r->middle_diff + b + r->diff_ahead, 0, 3);
        vec w = FN(power_minus)(omega, kind, r->beta), g = FN(get)(r->middle_diff + b, dtype, n);
        vec gy = g * (r->y ? FN(get)(r->y + b, dtype, n) : w * FN(get)(r->middle_src + b, dtype, n));
        FN(store)(r->weights_out + j, w);
        FN(store)(r->terms_out + j, FN(part)(gy * CYNORM_TERM_SCALE * FN(reciprocal_any)(omega), (vec){0}, n));
    }
    if (parts & FN(SQUARES)) {
        __builtin_prefetch(r->newest + b + r->src_ahead, 0, 3);
        vec x = FN(get)(r->newest + b, dtype, n);
        FN(store)(r->squares_out + j, x * x);
    }
}

/* A run's loop, entry (i1, i2) of levels 1 and 2: whole vectors, then a partial one. All that the loop uses is copied out of *l, one by one, since its stores might alias that. */
static inline __attribute__((always_inline)) void FN(step_run)(const loop *l, int64_t i1, int64_t i2, int64_t length, int dtype,
                                                               int window, int backward, int parts, int kind) {
    const int64_t at = i1 * l->pitch[0] + i2 * l->pitch[1];
    run_t r;
#define MEMORY(name) r.name = l->name.data + i1 * l->name.pitch[0] + i2 * l->name.pitch[1]
#define SCRATCH(name) r.name = l->run.name + at
    MEMORY(newest), MEMORY(src), MEMORY(dst);
    SCRATCH(squares_out);
    for (int i = 0; i < window; i++) SCRATCH(square_sum[i]);
    r.omega_out = l->run.omega_out ? l->run.omega_out + at : NULL;
    if (backward) {
        MEMORY(diff_dst), MEMORY(middle_src), MEMORY(middle_diff);
        SCRATCH(weights_out), SCRATCH(terms_out), SCRATCH(weights);
        for (int i = 0; i < window; i++) SCRATCH(term_sum[i]);
        r.y = l->y.data ? l->y.data + i1 * l->y.pitch[0] + i2 * l->y.pitch[1] : NULL;
        r.omega_in = l->run.omega_in ? l->run.omega_in + at : NULL;
    }
#undef MEMORY
#undef SCRATCH
    r.k = l->run.k, r.alpha = l->run.alpha, r.c = l->run.c, r.beta = l->run.beta;
    r.src_ahead = l->run.src_ahead, r.diff_ahead = l->run.diff_ahead;
    int64_t j = 0;
    for (; j + VL <= length; j += VL) FN(step)(&r, j, VL, dtype, window, backward, parts, kind);
    if (j < length) FN(step)(&r, j, length - j, dtype, window, backward, parts, kind);
}

/* Compiled for each storage type, for windows of 5, of 3 and summed beforehand, and, where all parts are there and
 * beta is 3/4, with both known. */
static inline __attribute__((always_inline)) void FN(step_slab)(const loop *l, int dtype, int window, int backward) {
    const int all = backward ? FN(SQUARES) | FN(TERMS) | FN(FINISH) : FN(SQUARES) | FN(FINISH);
    const int usual = window > 1 && l->run.parts == all && l->run.kind == CYNORM_BETA_THREE_QUARTERS;
    for (int64_t i2 = 0; i2 < l->rows[1]; i2++)
        for (int64_t i1 = 0; i1 < l->rows[0]; i1++) {
            const int64_t length = i1 == l->rows[0] - 1 ? l->last : l->length;
            if (usual) FN(step_run)(l, i1, i2, length, dtype, window, backward, all, CYNORM_BETA_THREE_QUARTERS);
            else FN(step_run)(l, i1, i2, length, dtype, window, backward, l->run.parts, l->run.kind);
        }
}

static inline __attribute__((always_inline)) void FN(step_window)(const loop *l, int dtype, int window, int backward) {
    if (window == 5) FN(step_slab)(l, dtype, 5, backward);
    else if (window == 3) FN(step_slab)(l, dtype, 3, backward);
    else FN(step_slab)(l, dtype, 1, backward);
}

static inline __attribute__((always_inline)) void FN(step_dtype)(const loop *l, int dtype, int window, int backward) {
#if !CYNORM_DOUBLE
    if (dtype == CYNORM_BF16) FN(step_window)(l, CYNORM_BF16, window, backward);
    else if (dtype == CYNORM_F16) FN(step_window)(l, CYNORM_F16, window, backward);
    else
#endif
        FN(step_window)(l, CYNORM_COMPUTE, window, backward);
    (void)dtype;
}

static void FN(run_forward)(const loop *l, int dtype, int window) { FN(step_dtype)(l, dtype, window, 0); }
static void FN(run_backward)(const loop *l, int dtype, int window) { FN(step_dtype)(l, dtype, window, 1); }

/* ---- scratch ---- */

#define state FN(cynorm_lrn_state)
typedef struct {
    const cynorm_lrn_tile *t;
    int backward, packed, kind;
    int window;      /* the one that the loop sums itself; 1 where sums come ready */
    int inner;       /* whether the windows inside the slab are summed before the loop */
    streamed_sum squares, terms;
    ring src, diff_dst, weights;                           /* the last slabs; src and diff_dst where they are packed */
    real *squares_slab, *terms_slab, *between, *spare[2];  /* for windows inside the slab; the first two keep zero margins */
    real *square_sum, *term_sum, *dst, *omega, *y;
    size_t used;                                           /* bytes */
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
    if (n <= CYNORM_SUM_DIRECT) sum->level[0] = FN(carve_ring)(s, scratch, n + 1, size);
    else
        for (int64_t m = 1, l = 0; m <= n; m *= 2, l++) sum->level[l] = FN(carve_ring)(s, scratch, m + 2, size);
}

static int FN(in_place)(const cynorm_lrn_tile *t, const cynorm_lrn_view *m) {
    return !m->data || (m->stride[0] == cynorm_itemsize(m->dtype) && (t->count[0] >= VL || t->count[1] * t->count[2] == 1));
}

/* Slabs end with a spare vector, so that whole vectors may be stored at a run's end. */
static void FN(lay_out)(const cynorm_lrn_tile *t, int backward, char *scratch, state *s) {
    int64_t n = t->left + t->right + 1, size = (t->size + 2 * VL - 1) / VL * VL;
    memset(s, 0, sizeof *s);
    s->t = t;
    s->backward = backward;
    s->kind = cynorm_beta_kind(t->beta);
    s->packed = !(FN(in_place)(t, &t->src) && FN(in_place)(t, &t->diff_dst) && FN(in_place)(t, &t->y) && FN(in_place)(t, &t->dst));
    int64_t within = t->windows == 1 ? t->window[0].left + t->window[0].right + 1 : 0;
    s->inner = t->windows && !(n == 1 && (within == 3 || within == 5) && !t->cut);
    int64_t in_loop = t->windows && !s->inner ? within : n;
    s->window = in_loop == 3 || in_loop == 5 ? (int)in_loop : 1;
    FN(carve_sum)(s, &s->squares, scratch, n, size);
    if (s->packed) s->src = FN(carve_ring)(s, scratch, t->right + 2 + (backward ? t->left + 1 : 0), size);
    if (backward) {
        FN(carve_sum)(s, &s->terms, scratch, n, size);
        s->weights = FN(carve_ring)(s, scratch, t->left + 2, size);
        if (s->packed) s->diff_dst = FN(carve_ring)(s, scratch, t->left + 2, size);
    }
    real **slab[] = {&s->squares_slab, &s->between, &s->spare[0], &s->spare[1], &s->terms_slab};
    if (s->inner)
        for (int i = 0; i < 4 + backward; i++) *slab[i] = FN(carve)(s, scratch, size);
    real **row[] = {&s->square_sum, &s->dst, &s->omega, &s->y, &s->term_sum};
    for (int i = 0; i < 4 + backward; i++) *row[i] = FN(carve)(s, scratch, size);
}

static size_t FN(lrn_scratch)(const cynorm_lrn_tile *t, int backward) {
    state s;
    FN(lay_out)(t, backward, NULL, &s);
    return s.used;
}

/* ---- stages ---- */

/* Where the loop finds view m of slab v: in memory, or packed in `slab`. */
static cynorm_operand FN(operand)(const state *s, const cynorm_lrn_view *m, const real *slab, const region *r, int64_t v) {
    return s->packed ? FN(operand_in_scratch)(s->t, slab, r) : FN(operand_in_memory)(m, r, v);
}

/* A slab of dst that bypasses the cache is written to scratch first, row after row, in its own type: lines then leave
 * whole and in a row. */
static cynorm_operand FN(stage)(const state *s, const region *r) {
    int64_t row = (r->to[0] - r->from[0]) * cynorm_itemsize(s->t->dst.dtype);
    cynorm_operand o = {(char *)s->dst, {row, row * (r->to[1] - r->from[1])}};
    return o;
}

static void FN(stream_slab)(const state *s, const region *r, int64_t v) {
    const cynorm_operand from = FN(stage)(s, r), to = FN(operand_in_memory)(&s->t->dst, r, v);
    const int64_t next = s->t->dst.streamed;
    int64_t rows1 = r->to[1] - r->from[1], rows2 = r->to[2] - r->from[2], row = from.pitch[0], last = r->last * cynorm_itemsize(s->t->dst.dtype);
    if (last == row && (rows1 == 1 || to.pitch[0] == row)) row = last = rows1 * row, rows1 = 1;
    if (rows1 == 1 && last == row && (rows2 == 1 || to.pitch[1] == row)) row = last = rows2 * row, rows2 = 1;
    for (int64_t i2 = 0; i2 < rows2; i2++)
        for (int64_t i1 = 0; i1 < rows1; i1++) {
            char *p = to.data + i1 * to.pitch[0] + i2 * to.pitch[1];
            const int64_t n = i1 == rows1 - 1 ? last : row;
            cynorm_stream_copy(p, from.data + i1 * from.pitch[0] + i2 * from.pitch[1], n);
            __builtin_prefetch(p + next, 1, 3); /* the lines shared with other rows are read: ask for them early */
            __builtin_prefetch(p + next + n, 1, 3);
        }
}

/* The windows inside the slab, from `in` (zero margins) to `out`; mirrored for the terms of backward. */
static void FN(inner_windows)(const state *s, real *out, const real *in, int mirrored) {
    const cynorm_lrn_tile *t = s->t;
    for (int k = 0; k < t->windows; k++) {
        cynorm_lrn_window w = t->window[k];
        if (mirrored) w.left = t->window[k].right, w.right = t->window[k].left;
        real *to = k == t->windows - 1 ? out : s->between, *spare[2] = {s->spare[0], s->spare[1]};
        FN(window_in_slab)(to, in, spare, &w, t->size);
        in = to;
    }
}

/* The rows whose sum at any flat position is the window's, or one row with that sum ready where the loop does not sum. */
static void FN(window_rows)(const state *s, const streamed_sum *sum, int64_t slab, int64_t end, int mirrored, real *ready,
                            int64_t flat, const real **p) {
    const cynorm_lrn_window *w = &s->t->window[0];
    if (s->t->windows && !s->inner) {
        int64_t right = mirrored ? w->left : w->right;
        for (int64_t j = 0; j < s->window; j++) p[j] = FN(slot)(&sum->level[0], slab) + (right - j) * w->step + flat;
    } else if (sum->n == s->window) {
        for (int64_t j = 0; j < sum->n; j++) p[j] = FN(slot)(&sum->level[0], end - j) + flat;
    } else {
        FN(sum_get)(sum, end, ready);
        p[0] = ready + flat;
    }
}

/* The loop over region r; rows of level 1 merge where nothing lies between them anywhere. */
static void FN(run)(const state *s, loop *l, const region *r, int parts) {
    const int dtype = s->packed ? CYNORM_COMPUTE : s->t->src.dtype;
    l->length = r->to[0] - r->from[0], l->last = r->last;
    l->rows[0] = r->to[1] - r->from[1], l->rows[1] = r->to[2] - r->from[2];
    l->run.parts = parts;
    if (l->rows[0] > 1 && l->pitch[0] == l->length && l->last == l->length) {
        const int squares = parts & FN(SQUARES), terms = parts & FN(TERMS), finish = parts & FN(FINISH);
        const cynorm_operand *o[] = {&l->newest, &l->middle_src, &l->middle_diff, &l->y, &l->src, &l->diff_dst, &l->dst};
        const int used[] = {squares, terms, terms, terms && l->y.data, finish, finish && s->backward, finish};
        int merge = 1;
        for (int i = 0; i < 7; i++) merge &= !used[i] || o[i]->pitch[0] == l->length * cynorm_itemsize(dtype);
        if (merge) l->length = l->last = l->length * l->rows[0], l->rows[0] = 1;
    }
    (s->backward ? FN(run_backward) : FN(run_forward))(l, dtype, s->window);
}

static int FN(same_shape)(const region *a, const region *b) {
    return a->to[0] - a->from[0] == b->to[0] - b->from[0] && a->to[1] - a->from[1] == b->to[1] - b->from[1] &&
           a->to[2] - a->from[2] == b->to[2] - b->from[2];
}

static void FN(zero_slab)(real *slab, const ring *like) { memset(slab, 0, (size_t)like->size * sizeof(real)); }

/* Slab v gives its squares, the slab `right`+1 before it its terms, and the one another `left`+1 before that is finished;
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
    loop l;
    memset(&l, 0, sizeof l);
    run_t *run = &l.run;
    const int staged = t->streaming && !s.packed;
    run->k = FN(splat)((real)t->k);
    run->alpha = FN(splat)((real)t->alpha);
    run->c = FN(splat)((real)(2 * t->alpha * t->beta));
    run->beta = t->beta;
    run->kind = cynorm_beta_kind(t->beta);
    run->src_ahead = t->src.streamed;
    run->diff_ahead = t->diff_dst.streamed;
    l.pitch[0] = t->pitch[1], l.pitch[1] = t->pitch[2];

    for (int64_t v = first; v < squares_end + 1 + backward; v++) {
        const int64_t j = v - t->right - 1, i = backward ? j - t->left - 1 : j, u = v - first, uj = j - first, ut = j - terms_first;
        const int newest = v < squares_end && v >= 0 && v < t->extent;
        const int squares = newest && !kept, finish = i >= t->begin;
        const int middle = backward && j >= terms_first && j < t->end + t->left, terms = middle && j >= 0 && j < t->extent;
        region loaded, between, output;
        if (newest) {
            loaded = FN(region_of)(t, t->reach_src, v);
            real *x = s.packed ? FN(slot)(&s.src, u) : NULL;
            if (s.packed) FN(load_slab)(x, t, &t->src, &loaded, v);
            l.newest = FN(operand)(&s, &t->src, x, &loaded, v);
            run->squares_out = (s.inner ? s.squares_slab : FN(slot)(slots, u)) + loaded.flat;
        } else if (v < squares_end) {
            FN(zero_slab)(FN(slot)(slots, u), slots);
        }
        if (terms) {
            between = FN(region_of)(t, t->reach_terms, j);

            real *x = NULL, *g = NULL;
            if (s.packed) {
                x = FN(slot)(&s.src, uj), g = FN(slot)(&s.diff_dst, uj);
                FN(load_slab)(g, t, &t->diff_dst, &between, j);
                if (t->y.data) FN(load_slab)(s.y, t, &t->y, &between, j);
            }
            l.middle_src = FN(operand)(&s, &t->src, x, &between, j);
            l.middle_diff = FN(operand)(&s, &t->diff_dst, g, &between, j);
            if (t->y.data) l.y = FN(operand)(&s, &t->y, s.y, &between, j);
            if (kept) {
                FN(load_slab)(s.omega, t, &t->omega, &between, j);
                run->omega_in = s.omega + between.flat;
            } else {
                FN(window_rows)(&s, &s.squares, uj, u - 1, 0, s.square_sum, between.flat, run->square_sum);
            }
            run->weights_out = FN(slot)(&s.weights, uj) + between.flat;
            run->terms_out = (s.inner ? s.terms_slab : FN(slot)(&s.terms.level[0], ut)) + between.flat;
        } else if (middle) {
            FN(zero_slab)(FN(slot)(&s.terms.level[0], ut), slots);
        }
        if (finish) {
            output = FN(region_of)(t, NULL, i);
            l.src = FN(operand)(&s, &t->src, s.packed ? FN(slot)(&s.src, i - first) : NULL, &output, i);
            l.dst = staged ? FN(stage)(&s, &output) : FN(operand)(&s, &t->dst, s.dst, &output, i);
            if (backward) {
                l.diff_dst = FN(operand)(&s, &t->diff_dst, s.packed ? FN(slot)(&s.diff_dst, i - first) : NULL, &output, i);
                run->weights = FN(slot)(&s.weights, i - first) + output.flat;
                FN(window_rows)(&s, &s.terms, i - terms_first, ut - 1, 1, s.term_sum, output.flat, run->term_sum);
            } else {
                FN(window_rows)(&s, &s.squares, uj, u - 1, 0, s.square_sum, output.flat, run->square_sum);
                run->omega_out = t->omega.data ? s.omega + output.flat : NULL;
            }
        }

        const region *any = finish ? &output : terms ? &between : &loaded;
        const int parts = squares * FN(SQUARES) | terms * FN(TERMS) | finish * FN(FINISH);
        if (!s.inner && (!squares || FN(same_shape)(any, &loaded)) && (!terms || FN(same_shape)(any, &between))) {
            if (parts) FN(run)(&s, &l, any, parts);
        } else {
            if (finish) FN(run)(&s, &l, &output, FN(FINISH));
            if (terms) FN(run)(&s, &l, &between, FN(TERMS));
            if (squares) FN(run)(&s, &l, &loaded, FN(SQUARES));
        }

        if (finish && staged) FN(stream_slab)(&s, &output, i);
        if (finish && s.packed) FN(store_slab)(s.dst, t, &t->dst, &output, i);
        if (finish && !backward && t->omega.data) FN(store_slab)(s.omega, t, &t->omega, &output, i);
        if (s.inner && squares) FN(inner_windows)(&s, FN(slot)(slots, u), s.squares_slab, 0);
        if (s.inner && terms) FN(inner_windows)(&s, FN(slot)(&s.terms.level[0], ut), s.terms_slab, 1);
        if (v < squares_end && !kept) FN(sum_push)(&s.squares, u);
        if (middle) FN(sum_push)(&s.terms, ut);
    }
}

static void FN(lrn_forward)(const cynorm_lrn_tile *t) { FN(lrn_tile)(t, 0); }
static void FN(lrn_backward)(const cynorm_lrn_tile *t) { FN(lrn_tile)(t, 1); }

#undef ring
#undef streamed_sum
#undef region
#undef state
#undef loop
#undef run_t
#undef CYNORM_TERM_SCALE
