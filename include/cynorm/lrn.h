/* Local response normalization of one tile. A template, see types.h.
 *
 *     omega_i    = k + alpha * sum_{j in W(i)} src_j^2                            (alpha is already divided)
 *     dst_i      = src_i * omega_i^-beta
 *     diff_src_i = diff_dst_i * omega_i^-beta - 2 alpha beta src_i * sum_{j : i in W(j)} t_j
 *     t_j        = diff_dst_j * src_j * omega_j^(-beta-1)         (or diff_dst_j * y_j / omega_j, with y the dst given)
 *
 * A tile streams along one axis (channels of plain memory, rows of an image), a slab at a time. A slab has three levels
 * in memory and is flat in scratch, its margins zero, so that a window inside it, along whatever axis, is a sum of
 * shifted copies. The window along the streamed axis is a sum over a ring of the last slabs. Squares go in at the front;
 * omega follows `right` slabs later; in backward, diff_src another `left` slabs later, for the mirrored window.
 *
 * Every window of n is summed as the same binary tree, whatever the traversal: S_1 = squares,
 * S_2m[e] = S_m[e] + S_m[e-m], and the sum that ends at e is S_m[e - lower bits of n] over the bits m of n, lowest
 * first. Nothing is ever subtracted, so a NaN or an inf stays within its windows, and the error grows with log2 n.
 */

#ifndef CYNORM_LRN_H
#define CYNORM_LRN_H
enum { CYNORM_SUM_DIRECT = 8, CYNORM_SUM_LEVELS = 62, CYNORM_PREFETCH_ROWS = 4 };
#endif

/* ---- sums of rows ---- */

/* S_m that ends at p[0]; p[j] is j steps earlier. m is a constant. */
static inline __attribute__((always_inline)) vec FN(tree)(const real *const *p, int64_t i, int m) {
    if (m == 1) return FN(load)(p[0] + i);
    if (m == 2) return FN(load)(p[0] + i) + FN(load)(p[1] + i);
    if (m == 4) return FN(tree)(p, i, 2) + FN(tree)(p + 2, i, 2);
    return FN(tree)(p, i, 4) + FN(tree)(p + 4, i, 4);
}

static inline __attribute__((always_inline)) void FN(sum_direct)(real *out, const real *const *p, int n, int64_t length) {
    for (int64_t i = 0; i < length; i += VL) {
        int low = n & -n, done = low;
        vec sum = FN(tree)(p, i, low);
        for (int m = low * 2; m <= n; m *= 2)
            if (n & m) {
                sum += FN(tree)(p + done, i, m);
                done += m;
            }
        FN(store)(out + i, sum);
    }
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

/* After S_1 of slab u is in its slot: the higher levels. */
static void FN(sum_push)(const streamed_sum *s, int64_t u) {
    if (s->n <= CYNORM_SUM_DIRECT) return;
    for (int64_t m = 1, l = 0; 2 * m <= s->n && m <= u; m *= 2, l++) {
        const real *pair[2] = {FN(slot)(&s->level[l], u), FN(slot)(&s->level[l], u - m)};
        FN(sum_rows)(FN(slot)(&s->level[l + 1], u), pair, 2, s->level[l].size);
    }
}

/* The window that ends with slab u, `length` reals from flat `at`; the result lies in scratch, `out` or a slot. */
static const real *FN(sum_get)(const streamed_sum *s, int64_t u, int64_t at, int64_t length, real *out) {
    const real *p[CYNORM_SUM_LEVELS];
    if (s->n == 1) return FN(slot)(&s->level[0], u) + at;
    if (s->n <= CYNORM_SUM_DIRECT) {
        for (int64_t j = 0; j < s->n; j++) p[j] = FN(slot)(&s->level[0], u - j) + at;
        FN(sum_window)(out, p, s->n, length);
        return out;
    }
    int64_t pieces = 0, offset = 0;
    for (int64_t m = 1, l = 0; m <= s->n; m *= 2, l++)
        if (s->n & m) {
            p[pieces++] = FN(slot)(&s->level[l], u - offset) + at;
            offset += m;
        }
    FN(sum_rows)(out, p, pieces, length);
    return out;
}

/* ---- runs: a slab's stretches that are contiguous in scratch ---- */

#define region FN(cynorm_region)
typedef struct { int64_t from2, to2, from1, to1, from0, length; int merged; } region;

/* The output region of a slab, widened at each level; whole rows of level 1 merge where scratch has no gap. */
static region FN(region_of)(const cynorm_lrn_tile *t, const int64_t widen[3][2]) {
    region r = {-widen[2][0], t->count[2] + widen[2][1], -widen[1][0], t->count[1] + widen[1][1],
                -widen[0][0], t->count[0] + widen[0][0] + widen[0][1], 0};
    r.merged = t->pitch[1] == r.length;
    return r;
}

static inline int64_t FN(run_length)(const cynorm_lrn_tile *t, const region *r) {
    return r->merged ? (r->to1 - r->from1) * r->length - (t->count[0] - t->last) : r->length;
}

static inline int64_t FN(flat)(const cynorm_lrn_tile *t, const region *r, int64_t i2, int64_t i1) {
    return t->origin + i2 * t->pitch[2] + i1 * t->pitch[1] + r->from0;
}

#define FOR_RUNS(r) \
    for (int64_t i2 = (r).from2; i2 < (r).to2; i2++) \
        for (int64_t i1 = (r).from1; i1 < ((r).merged ? (r).from1 + 1 : (r).to1); i1++)

static inline char *FN(address)(const cynorm_lrn_view *m, const region *r, int64_t v, int64_t i2, int64_t i1) {
    return m->data + v * m->streamed + i2 * m->stride[2] + i1 * m->stride[1] + r->from0 * m->stride[0];
}

/* Whether a run lies in memory as it would in scratch. */
static inline int FN(in_place)(const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t itemsize) {
    return m->stride[0] == itemsize &&
           (!r->merged || r->to1 - r->from1 == 1 || m->stride[1] == r->length * itemsize);
}

/* Memory -> scratch for one run (merged runs may be in pieces in memory). */
static void FN(load_run)(real *out, const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v, int64_t i2,
                         int64_t i1) {
    const char *p = FN(address)(m, r, v, i2, i1);
    if (FN(in_place)(t, m, r, cynorm_itemsize(m->dtype))) {
        FN(load_row)(out, p, m->dtype, FN(run_length)(t, r), m->stride[0]);
        return;
    }
    for (int64_t j = i1; j < (r->merged ? r->to1 : i1 + 1); j++, p += m->stride[1], out += t->pitch[1])
        FN(load_row)(out, p, m->dtype, r->merged && j == r->to1 - 1 ? t->last : r->length, m->stride[0]);
}

/* Scratch -> memory for one run; past the cache where the output will not fit it. */
static void FN(store_run)(const real *run, const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v, int64_t i2,
                          int64_t i1, real *spare) {
    char *p = FN(address)(m, r, v, i2, i1);
    int64_t itemsize = cynorm_itemsize(m->dtype);
    if (FN(in_place)(t, m, r, itemsize)) {
        int64_t n = FN(run_length)(t, r);
        if (!t->streaming) {
            FN(store_row)(p, run, m->dtype, n, itemsize);
        } else if (itemsize == sizeof(real)) {
            cynorm_stream_copy(p, (const char *)run, n * itemsize);
        } else {
            FN(store_row)((char *)spare, run, m->dtype, n, itemsize);
            cynorm_stream_copy(p, (const char *)spare, n * itemsize);
        }
        return;
    }
    for (int64_t j = i1; j < (r->merged ? r->to1 : i1 + 1); j++, p += m->stride[1], run += t->pitch[1])
        FN(store_row)(p, run, m->dtype, r->merged && j == r->to1 - 1 ? t->last : r->length, m->stride[0]);
}

/* ---- arithmetic on runs; memory may be read and written in place, so partial vectors stay within n ---- */

static void FN(square)(real *out, const real *x, int64_t n) {
    for (int64_t i = 0; i < n; i += VL) {
        vec v = FN(load_n)(x + i, n - i < VL ? n - i : VL);
        FN(store)(out + i, v * v);
    }
}

#define EACH_BETA(kind, call)                                                   \
    switch (kind) {                                                             \
    case CYNORM_BETA_HALF: call(CYNORM_BETA_HALF); break;                       \
    case CYNORM_BETA_THREE_QUARTERS: call(CYNORM_BETA_THREE_QUARTERS); break;   \
    case CYNORM_BETA_ONE: call(CYNORM_BETA_ONE); break;                         \
    case CYNORM_BETA_ZERO: call(CYNORM_BETA_ZERO); break;                       \
    default: call(CYNORM_BETA_ANY); break;                                      \
    }

/* omega = k + alpha * sum; lanes past n become 1, so that they stay on the fast path */
static inline vec FN(omega)(vec k, vec alpha, const real *sum, int64_t n) {
    return FN(part)(FN(fma)(alpha, FN(load)(sum), k), FN(splat)(1), n);
}

static inline __attribute__((always_inline)) void FN(forward_run)(const cynorm_lrn_tile *t, real *dst, real *omega_out, const real *x,
                                                                  const real *sum, int64_t n, int kind) {
    vec k = FN(splat)((real)t->k), alpha = FN(splat)((real)t->alpha);
    double beta = t->beta;
    for (int64_t i = 0; i < n; i += VL) {
        int64_t m = n - i < VL ? n - i : VL;
        vec omega = FN(omega)(k, alpha, sum + i, m);
        if (omega_out) FN(store)(omega_out + i, omega);
        FN(store_n)(dst + i, FN(load_n)(x + i, m) * FN(power_minus)(omega, kind, beta), m);
    }
}

/* w = omega^-beta and t, from the window sum, or from omega itself where a workspace has kept it */
static inline __attribute__((always_inline)) void FN(terms_run)(const cynorm_lrn_tile *t, real *w_out, real *t_out, const real *g,
                                                                const real *x, const real *y, const real *sum, const real *kept,
                                                                int64_t n, int kind) {
    vec k = FN(splat)((real)t->k), alpha = FN(splat)((real)t->alpha);
    double beta = t->beta;
    for (int64_t i = 0; i < n; i += VL) {
        int64_t m = n - i < VL ? n - i : VL;
        vec omega = kept ? FN(part)(FN(load)(kept + i), FN(splat)(1), m) : FN(omega)(k, alpha, sum + i, m);
        vec w = FN(power_minus)(omega, kind, beta);
        vec gy = FN(load_n)(g + i, m) * (y ? FN(load_n)(y + i, m) : w * FN(load_n)(x + i, m));
        FN(store)(w_out + i, w);
        FN(store)(t_out + i, FN(part)(gy * FN(reciprocal_any)(omega), (vec){0}, m));
    }
}

static void FN(gradient_run)(const cynorm_lrn_tile *t, real *out, const real *g, const real *x, const real *w, const real *sum, int64_t n) {
    vec c = FN(splat)((real)(2 * t->alpha * t->beta));
    for (int64_t i = 0; i < n; i += VL) {
        int64_t m = n - i < VL ? n - i : VL;
        vec second = (c * FN(load_n)(x + i, m)) * FN(load)(sum + i);
        FN(store_n)(out + i, FN(fma)(FN(load_n)(g + i, m), FN(load)(w + i), -second), m);
    }
}

/* ---- scratch ---- */

#define state FN(cynorm_lrn_state)
typedef struct {
    streamed_sum squares, terms;
    ring src, diff_dst, weight;                /* the last slabs; src and diff_dst where memory cannot be read in place */
    real *squares_slab, *terms_slab, *inner, *spare[2];    /* for windows inside the slab; the first two keep zero margins */
    real *sum, *out, *packed, *omega, *y;                  /* one run each */
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
    if (n <= CYNORM_SUM_DIRECT) sum->level[0] = FN(carve_ring)(s, scratch, n, size);
    else
        for (int64_t m = 1, l = 0; m <= n; m *= 2, l++) sum->level[l] = FN(carve_ring)(s, scratch, m + 1, size);
}

/* Slot sizes end with a spare vector, so that whole vectors may be stored at a run's end. */
static void FN(lay_out)(const cynorm_lrn_tile *t, int backward, char *scratch, state *s) {
    int64_t n = t->left + t->right + 1, size = (t->size + 2 * VL - 1) / VL * VL;
    s->used = 0;
    FN(carve_sum)(s, &s->squares, scratch, n, size);
    s->src = FN(carve_ring)(s, scratch, backward ? n : t->right + 1, size);
    if (backward) {
        FN(carve_sum)(s, &s->terms, scratch, n, size);
        s->diff_dst = FN(carve_ring)(s, scratch, t->left + 1, size);
        s->weight = FN(carve_ring)(s, scratch, t->left + 1, size);
    }
    if (t->windows) {
        real **slab[] = {&s->squares_slab, &s->inner, &s->spare[0], &s->spare[1], &s->terms_slab};
        for (int i = 0; i < 4 + backward; i++) *slab[i] = FN(carve)(s, scratch, size);
    }
    real **run[] = {&s->sum, &s->out, &s->packed, &s->omega, &s->y};
    for (int i = 0; i < 5; i++) *run[i] = FN(carve)(s, scratch, size);
}

static size_t FN(lrn_scratch)(const cynorm_lrn_tile *t, int backward) {
    state s;
    FN(lay_out)(t, backward, NULL, &s);
    return s.used;
}

/* ---- stages ---- */

/* The run of view m at slab v: memory itself where its type and order allow, else a copy in scratch. */
static const real *FN(run_of)(const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v, int64_t i2, int64_t i1,
                              real *copy, int load) {
    if (m->dtype == CYNORM_COMPUTE && FN(in_place)(t, m, r, sizeof(real))) return (const real *)FN(address)(m, r, v, i2, i1);
    if (load) FN(load_run)(copy, t, m, r, v, i2, i1);
    return copy;
}

static void FN(prefetch)(const cynorm_lrn_tile *t, const cynorm_lrn_view *m, const region *r, int64_t v) {
    int64_t itemsize = cynorm_itemsize(m->dtype), bytes = FN(run_length)(t, r) * itemsize;
    if (v >= t->extent || !FN(in_place)(t, m, r, itemsize)) return;
    FOR_RUNS(*r) {
        const char *p = FN(address)(m, r, v, i2, i1);
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(p + b);
    }
}

/* The windows inside the slab, from `in` (zero margins) to `out`; mirrored for the terms of backward. */
static void FN(inner_windows)(const cynorm_lrn_tile *t, state *s, real *out, const real *in, int mirrored) {
    for (int k = 0; k < t->windows; k++) {
        cynorm_lrn_window w = t->window[k];
        if (mirrored) w.left = t->window[k].right, w.right = t->window[k].left;
        real *to = k == t->windows - 1 ? out : s->inner;
        FN(window_in_slab)(to, in, s->spare, &w, t->size);
        in = to;
    }
}

static void FN(zero_slot)(const ring *r, int64_t u) { memset(FN(slot)(r, u), 0, (size_t)r->size * sizeof(real)); }

/* Slab v, number u of this tile: its squares, summed over the inner windows, into the streamed sum. */
static void FN(push_squares)(const cynorm_lrn_tile *t, state *s, const region *r, int64_t v, int64_t u) {
    real *sums = FN(slot)(&s->squares.level[0], u), *squares = t->windows ? s->squares_slab : sums;
    if (v < 0 || v >= t->extent) {
        FN(zero_slot)(&s->squares.level[0], u);
    } else {
        FN(prefetch)(t, &t->src, r, v + CYNORM_PREFETCH_ROWS);
        FOR_RUNS(*r) {
            int64_t at = FN(flat)(t, r, i2, i1);
            const real *x = FN(run_of)(t, &t->src, r, v, i2, i1, FN(slot)(&s->src, u) + at, 1);
            FN(square)(squares + at, x, FN(run_length)(t, r));
        }
        FN(inner_windows)(t, s, sums, squares, 0);
    }
    FN(sum_push)(&s->squares, u);
}

static const int64_t FN(no_reach)[3][2] = {{0, 0}, {0, 0}, {0, 0}};

static void FN(lrn_forward)(const cynorm_lrn_tile *t) {
    state s;
    FN(lay_out)(t, 0, t->scratch, &s);
    if (t->windows) memset(s.squares_slab, 0, (size_t)s.squares.level[0].size * sizeof(real));
    region loaded = FN(region_of)(t, t->reach_src), output = FN(region_of)(t, FN(no_reach));
    int64_t n = FN(run_length)(t, &output), first = t->begin - t->left;
    int direct = t->dst.dtype == CYNORM_COMPUTE && !t->streaming && FN(in_place)(t, &t->dst, &output, sizeof(real));
    int kind = cynorm_beta_kind(t->beta);
    real *omega = t->omega.data ? s.omega : NULL;
    for (int64_t v = first; v < t->end + t->right; v++) {
        FN(push_squares)(t, &s, &loaded, v, v - first);
        int64_t i = v - t->right;
        if (i < t->begin) continue;
        FOR_RUNS(output) {
            int64_t at = FN(flat)(t, &output, i2, i1);
            const real *x = FN(run_of)(t, &t->src, &output, i, i2, i1, FN(slot)(&s.src, i - first) + at, 0);
            const real *sum = FN(sum_get)(&s.squares, v - first, at, n, s.sum);
            real *dst = direct ? (real *)FN(address)(&t->dst, &output, i, i2, i1) : s.out;
#define CALL(kind) FN(forward_run)(t, dst, omega, x, sum, n, kind)
            EACH_BETA(kind, CALL)
#undef CALL
            if (!direct) FN(store_run)(dst, t, &t->dst, &output, i, i2, i1, s.packed);
            if (omega) FN(store_run)(omega, t, &t->omega, &output, i, i2, i1, s.packed);
        }
    }
}

static void FN(lrn_backward)(const cynorm_lrn_tile *t) {
    state s;
    FN(lay_out)(t, 1, t->scratch, &s);
    if (t->windows) {
        memset(s.squares_slab, 0, (size_t)s.squares.level[0].size * sizeof(real));
        memset(s.terms_slab, 0, (size_t)s.squares.level[0].size * sizeof(real));
    }
    region loaded = FN(region_of)(t, t->reach_src), middle = FN(region_of)(t, t->reach_terms);
    region output = FN(region_of)(t, FN(no_reach));
    int64_t n = FN(run_length)(t, &output), first = t->begin - t->right - t->left;
    int direct = t->dst.dtype == CYNORM_COMPUTE && !t->streaming && FN(in_place)(t, &t->dst, &output, sizeof(real));
    int kind = cynorm_beta_kind(t->beta), kept = t->omega.data != NULL;
    for (int64_t v = first; v < t->end + t->left + t->right; v++) {
        if (!kept) FN(push_squares)(t, &s, &loaded, v, v - first);
        int64_t j = v - t->right, u = v - t->begin;
        if (u < 0) continue;
        if (j < 0 || j >= t->extent) {
            FN(zero_slot)(&s.terms.level[0], u);
        } else {
            real *sums = FN(slot)(&s.terms.level[0], u), *terms = t->windows ? s.terms_slab : sums;
            FN(prefetch)(t, &t->diff_dst, &middle, j + CYNORM_PREFETCH_ROWS);
            FOR_RUNS(middle) {
                int64_t at = FN(flat)(t, &middle, i2, i1), m = FN(run_length)(t, &middle);
                const real *x = FN(run_of)(t, &t->src, &middle, j, i2, i1, FN(slot)(&s.src, j - first) + at, kept);
                const real *g = FN(run_of)(t, &t->diff_dst, &middle, j, i2, i1, FN(slot)(&s.diff_dst, u) + at, 1);
                const real *y = t->y.data ? FN(run_of)(t, &t->y, &middle, j, i2, i1, s.y, 1) : NULL;
                const real *sum = kept ? NULL : FN(sum_get)(&s.squares, v - first, at, m, s.sum);
                if (kept) FN(load_run)(s.omega, t, &t->omega, &middle, j, i2, i1);
                real *w = FN(slot)(&s.weight, u) + at;
#define CALL(kind) FN(terms_run)(t, w, terms + at, g, x, y, sum, kept ? s.omega : NULL, m, kind)
                EACH_BETA(kind, CALL)
#undef CALL
            }
            FN(inner_windows)(t, &s, sums, terms, 1);
        }
        FN(sum_push)(&s.terms, u);
        int64_t i = j - t->left, ui = u - t->left;
        if (i < t->begin) continue;
        FOR_RUNS(output) {
            int64_t at = FN(flat)(t, &output, i2, i1);
            const real *x = FN(run_of)(t, &t->src, &output, i, i2, i1, FN(slot)(&s.src, i - first) + at, 0);
            const real *g = FN(run_of)(t, &t->diff_dst, &output, i, i2, i1, FN(slot)(&s.diff_dst, ui) + at, 0);
            const real *sum = FN(sum_get)(&s.terms, u, at, n, s.sum);
            real *out = direct ? (real *)FN(address)(&t->dst, &output, i, i2, i1) : s.out;
            FN(gradient_run)(t, out, g, x, FN(slot)(&s.weight, ui) + at, sum, n);
            if (!direct) FN(store_run)(out, t, &t->dst, &output, i, i2, i1, s.packed);
        }
    }
}

#undef ring
#undef streamed_sum
#undef region
#undef state
#undef FOR_RUNS
#undef EACH_BETA
