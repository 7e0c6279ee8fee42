/* Batch normalization: sums over a tile, what follows from them, and the result for a tile. A template, see types.h.
 *
 *     forward    value = (src - mean) * gain + bias (+ add),  gain = scale * rstd,  bias = shift;  dst = activation(value)
 *     backward   d = diff_dst * activation'(value) = diff_add
 *                diff_shift = sum(d),  diff_scale = sum(d * (src - mean)) * rstd
 *     training   diff_src = gain * (d - diff_shift / M - (src - mean) * rstd * diff_scale / M)
 *                         = gain * (d + offset + (src - mean) * slope)
 *     inference  diff_src = gain * d
 *
 * Statistics are sums over x - pivot and its square, the pivot being any one element p of those summed. Then
 * (p - mean)^2 <= M * variance, so that the shift costs no more than log2 M bits, and a constant has variance 0. Sums are
 * held in twice the precision: double for float, pairs of double for double. The mean is kept as two reals: center
 * is the high one, and src - center, which is exact where it matters, comes first; the low one is part of bias and offset.
 *
 * A row's elements have one statistic each (kept_inner), or share that of their row; coefficients lie accordingly. The
 * lanes of the sums follow the elements of a row, or else are VL partial sums per row of a group.
 */

#ifndef CYNORM_BATCH_NORM_H
#define CYNORM_BATCH_NORM_H

enum { CYNORM_BN_ROW = 512, CYNORM_BN_ROWS = 8, CYNORM_BN_SINK = 8192 };

/* The forms that a result can have, see combine. */
enum { CYNORM_NORMALIZE, CYNORM_NORMALIZE_ADD, CYNORM_GRADIENT, CYNORM_SCALE };

/* Collects output that follows on in memory, so that whole lines can bypass the cache. */
typedef struct {
    char *at, *buffer;
    int64_t fill;
} cynorm_sink;

static void cynorm_sink_flush(cynorm_sink *s, int all) {
    int64_t n = s->fill, part = (int64_t)((uintptr_t)(s->at + n) & 63);
    if (!all && n >= part) n -= part;
    cynorm_stream_copy(s->at, s->buffer, n);
    s->at += n;
    s->fill -= n;
    memmove(s->buffer, s->buffer + n, (size_t)s->fill);
}

/* Where to put n bytes that are meant for p. */
static char *cynorm_sink_room(cynorm_sink *s, char *p, int64_t n) {
    if (s->at + s->fill != p) {
        cynorm_sink_flush(s, 1);
        s->at = p;
    } else if (s->fill + n > CYNORM_BN_SINK) {
        cynorm_sink_flush(s, 0);
    }
    char *room = s->buffer + s->fill;
    s->fill += n;
    return room;
}

/* A number of twice double's precision, high + low. */
typedef struct { double high, low; } cynorm_exact;

static inline cynorm_exact cynorm_exact_add(cynorm_exact a, cynorm_exact b) {
    double s = a.high + b.high, t = s - a.high;
    double low = (a.high - (s - t)) + (b.high - t) + (a.low + b.low), high = s + low;
    return (cynorm_exact){high, low - (high - s)};
}

static inline cynorm_exact cynorm_exact_multiply(cynorm_exact a, cynorm_exact b) {
    double p = a.high * b.high;
    return (cynorm_exact){p, fma(a.high, b.high, -p) + (a.high * b.low + a.low * b.high)};
}

static inline cynorm_exact cynorm_exact_divide(cynorm_exact a, double n) {
    double q = a.high / n;
    return (cynorm_exact){q, (fma(-q, n, a.high) + a.low) / n};
}

static inline cynorm_exact cynorm_exact_minus(cynorm_exact a) { return (cynorm_exact){-a.high, -a.low}; }

#endif

/* ---- numbers of twice the precision ---- */

#define wide FN(cynorm_wide)

#if CYNORM_DOUBLE

typedef struct { vec high, low; } wide; /* of value high + low */

static inline wide FN(two_sum)(vec a, vec b) {
    vec s = a + b, t = s - a;
    return (wide){s, (a - (s - t)) + (b - t)};
}
static inline wide FN(wide_load)(const real *p) { return (wide){FN(load)(p), {0}}; }
static inline wide FN(wide_pair)(const real *high, const real *low) { return (wide){FN(load)(high), FN(load)(low)}; }
static inline wide FN(wide_splat)(real high, real low) { return (wide){FN(splat)(high), FN(splat)(low)}; }
static inline wide FN(wide_add)(wide a, wide b) {
    wide s = FN(two_sum)(a.high, b.high);
    s.low += a.low + b.low;
    return s;
}
static inline wide FN(wide_minus)(wide a, wide b) {
    b.high = -b.high;
    b.low = -b.low;
    return FN(wide_add)(a, b);
}
static inline wide FN(wide_fma)(wide a, wide b, wide c) {
    vec p = a.high * b.high;
    wide s = FN(two_sum)(c.high, p);
    s.low += c.low + (FN(product_error)(a.high, b.high, p) + FN(fma)(a.high, b.low, a.low * b.high));
    return s;
}
static inline wide FN(wide_part)(wide v, int64_t n) {
    return (wide){FN(part)(v.high, (vec){0}, n), FN(part)(v.low, (vec){0}, n)};
}
/* Lane i of an array of wide vectors, in doubles. */
static inline cynorm_exact FN(wide_lane)(const double *sums, int64_t i) {
    const double *v = sums + i / VL * 2 * VL + i % VL;
    return (cynorm_exact){v[0], v[VL]};
}

#else

typedef struct { cynorm_vec_f64 half[2]; } wide;

static inline wide FN(wide_load)(const real *p) { return (wide){{load_f32_f64(p), load_f32_f64(p + VL / 2)}}; }
static inline wide FN(wide_pair)(const real *high, const real *low) {
    return (wide){{load_f32_f64(high) + load_f32_f64(low), load_f32_f64(high + VL / 2) + load_f32_f64(low + VL / 2)}};
}
static inline wide FN(wide_splat)(real high, real low) {
    cynorm_vec_f64 v = splat_f64((double)high + low);
    return (wide){{v, v}};
}
static inline wide FN(wide_add)(wide a, wide b) { return (wide){{a.half[0] + b.half[0], a.half[1] + b.half[1]}}; }
static inline wide FN(wide_minus)(wide a, wide b) { return (wide){{a.half[0] - b.half[0], a.half[1] - b.half[1]}}; }
static inline wide FN(wide_fma)(wide a, wide b, wide c) {
    return (wide){{fma_f64(a.half[0], b.half[0], c.half[0]), fma_f64(a.half[1], b.half[1], c.half[1])}};
}
static inline wide FN(wide_part)(wide v, int64_t n) {
    int64_t first = n < VL / 2 ? n : VL / 2;
    return (wide){{part_f64(v.half[0], (cynorm_vec_f64){0}, first), part_f64(v.half[1], (cynorm_vec_f64){0}, n - first)}};
}
static inline cynorm_exact FN(wide_lane)(const double *sums, int64_t i) { return (cynorm_exact){sums[i], 0}; }

#endif

/* ---- activations ---- */

/* The switch lies outside the loop over a row; p are the parameters. */
#define EACH_ACTIVATION(kind, CASE)                                                                                   \
    switch (kind) {                                                                                                   \
    case CYNORM_IDENTITY: break;                                                                                      \
    CASE(CYNORM_RELU, FN(select)(x <= 0, zero, x), FN(select)(x > 0, one, zero))                                      \
    CASE(CYNORM_ELU, FN(select)(x >= 0, x, p[0] * FN(expm1)(x)), FN(select)(x >= 0, one, p[0] * FN(exp)(x)))          \
    CASE(CYNORM_CELU, FN(select)(x >= 0, x, p[0] * FN(expm1)(x / p[0])), FN(select)(x >= 0, one, FN(exp)(x / p[0])))  \
    CASE(CYNORM_SCALED_ELU, p[1] * FN(select)(x > 0, x, p[0] * FN(expm1)(x)),                                         \
         p[1] * FN(select)(x > 0, one, p[0] * FN(exp)(x)))                                                            \
    CASE(CYNORM_HARD_SIGMOID, FN(clip)(p[0] * x + p[1], zero, one),                                                   \
         FN(select)((p[0] * x + p[1] > 0) & (p[0] * x + p[1] < 1), p[0], zero))                                       \
    CASE(CYNORM_LEAKY_RELU, FN(select)(x >= 0, x, p[0] * x), FN(select)(x >= 0, one, p[0]))                           \
    CASE(CYNORM_LINEAR, p[0] * x + p[1], p[0])                                                                        \
    CASE(CYNORM_PARAMETRIC_SOFTPLUS, p[0] * FN(softplus)(p[1] * x), p[0] * p[1] * FN(sigmoid)(p[1] * x))              \
    CASE(CYNORM_SCALED_TANH, p[0] * FN(tanh)(p[1] * x), p[0] * p[1] * (4 * FN(bell)(2 * p[1] * x)))                   \
    CASE(CYNORM_SIGMOID, FN(sigmoid)(x), FN(bell)(x))                                                                 \
    CASE(CYNORM_SOFTPLUS, FN(softplus)(p[0] * x) / p[0], FN(sigmoid)(p[0] * x))                                       \
    CASE(CYNORM_SOFTSIGN, x / (1 + FN(abs)(x)), 1 / ((1 + FN(abs)(x)) * (1 + FN(abs)(x))))                            \
    CASE(CYNORM_TANH, FN(tanh)(x), 4 * FN(bell)(2 * x))                                                               \
    CASE(CYNORM_THRESHOLDED_RELU, FN(select)(x > p[0], x, zero), FN(select)(x > p[0], one, zero))                     \
    CASE(CYNORM_SHRINK, FN(select)(x < -p[1], x + p[0], FN(select)(x > p[1], x - p[0], zero)),                        \
         FN(select)(FN(abs)(x) > p[1], one, zero))                                                                    \
    }

static inline vec FN(clip)(vec x, vec low, vec high) {
    return FN(select)(x < low, low, FN(select)(x > high, high, x));
}

#define PARAMETERS(t) {FN(splat)((real)(t)->parameter[0]), FN(splat)((real)(t)->parameter[1])}

static void FN(activate)(const cynorm_bn_tile *t, real *row, int64_t n) {
    vec p[2] = PARAMETERS(t), zero = {0}, one = FN(splat)(1);
#define CASE(kind, value, derivative)                                           \
    case kind:                                                                  \
        for (int64_t i = 0; i < n; i += VL) {                                   \
            int64_t m = n - i < VL ? n - i : VL;                                \
            vec x = FN(load_n)(row + i, m);                                     \
            FN(store_n)(row + i, value, m);                                     \
        }                                                                       \
        break;
    EACH_ACTIVATION(t->activation, CASE)
#undef CASE
    (void)one;
}

/* out = g * activation'(value); out, g and value may be the same. */
static void FN(activate_backward)(const cynorm_bn_tile *t, real *out, const real *g, const real *value, int64_t n) {
    vec p[2] = PARAMETERS(t), zero = {0}, one = FN(splat)(1);
#define CASE(kind, value_, derivative)                                          \
    case kind:                                                                  \
        for (int64_t i = 0; i < n; i += VL) {                                   \
            int64_t m = n - i < VL ? n - i : VL;                                \
            vec x = FN(load_n)(value + i, m);                                   \
            (void)x;                                                            \
            FN(store_n)(out + i, FN(load_n)(g + i, m) * (derivative), m);       \
        }                                                                       \
        break;
    EACH_ACTIVATION(t->activation, CASE)
#undef CASE
}

#undef EACH_ACTIVATION
#undef PARAMETERS

/* ---- the mask of ReLU: one bit per element ---- */

/* row = max(row, 0); the bits of what was positive to `bits`, whole bytes, where that is not NULL */
static void FN(relu)(real *row, unsigned char *bits, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        unsigned word = 0;
        for (int64_t j = i; j < n && j < i + 16; j += VL) {
            int64_t m = n - j < VL ? n - j : VL;
            vec x = FN(load_n)(row + j, m);
            word |= FN(mask_bits)(x > 0) << (j - i);
            FN(store_n)(row + j, FN(select)(x <= 0, (vec){0}, x), m);
        }
        if (!bits) continue;
        bits[i / 8] = (unsigned char)word;
        if (n - i > 8) bits[i / 8 + 1] = (unsigned char)(word >> 8);
    }
}

/* 16 bits from a position; memory of the mask ends 4 bytes later than its bits. */
static inline unsigned FN(bits_at)(const unsigned char *mask, int64_t bit) {
    uint32_t word;
    memcpy(&word, mask + (bit >> 3), sizeof word);
    return word >> (bit & 7) & 0xffff;
}

/* out = g where the mask has a bit, else 0; out may be g. */
static void FN(relu_backward)(real *out, const real *g, const unsigned char *mask, int64_t bit, int64_t stride, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        unsigned word = 0;
        if (stride == 1) word = FN(bits_at)(mask, bit + i);
        else
            for (int64_t j = i; j < n && j < i + 16; j++) word |= (FN(bits_at)(mask, bit + j * stride) & 1) << (j - i);
        for (int64_t j = i; j < n && j < i + 16; j += VL) {
            int64_t m = n - j < VL ? n - j : VL;
            FN(store_n)(out + j, FN(where_bits)(word >> (j - i), FN(load_n)(g + j, m)), m);
        }
    }
}

/* ---- rows ---- */

static inline char *FN(element)(const cynorm_bn_view *v, int64_t group, int64_t row, int64_t i) {
    return v->data + group * v->stride[2] + row * v->stride[1] + i * v->stride[0];
}

static inline int FN(row_is_real)(const cynorm_bn_view *v) {
    return v->dtype == CYNORM_COMPUTE && v->stride[0] == sizeof(real);
}

/* n elements of a view: memory itself where its type and order allow, else a copy. */
static const real *FN(view_row)(const cynorm_bn_view *v, int64_t group, int64_t row, int64_t i, int64_t n, real *copy) {
    const char *p = FN(element)(v, group, row, i);
    if (FN(row_is_real)(v)) return (const real *)p;
    FN(load_row)(copy, p, v->dtype, n, v->stride[0]);
    return copy;
}

/* The four forms of a result; `kept` and `form` are constants. */
static inline __attribute__((always_inline)) void FN(combine)(real *out, const real *x, const real *g, const real *center,
                                                              const real *factor, const real *term, const real *gain, int64_t n,
                                                              int kept, int form) {
#define COEFFICIENT(c) (kept ? FN(load)((c) + i) : FN(splat)((c)[0]))
    for (int64_t i = 0; i < n; i += VL) {
        int64_t m = n - i < VL ? n - i : VL;
        vec y = (vec){0};
        if (form != CYNORM_NORMALIZE) y = FN(load_n)(g + i, m);
        if (form == CYNORM_GRADIENT) y += COEFFICIENT(term);
        if (form != CYNORM_SCALE) {
            vec d = FN(load_n)(x + i, m) - COEFFICIENT(center);
            if (form == CYNORM_GRADIENT) y = FN(fma)(d, COEFFICIENT(factor), y);
            else y += FN(fma)(d, COEFFICIENT(factor), COEFFICIENT(term));
        }
        if (form == CYNORM_GRADIENT || form == CYNORM_SCALE) y *= COEFFICIENT(gain);
        FN(store_n)(out + i, y, m);
    }
#undef COEFFICIENT
}

#define COMBINE(kept, form) FN(combine)(out, x, g, center, factor, term, gain, n, kept, form)
#define COMBINE_EACH(kept)                                                      \
    switch (form) {                                                             \
    case CYNORM_NORMALIZE: COMBINE(kept, CYNORM_NORMALIZE); break;                    \
    case CYNORM_NORMALIZE_ADD: COMBINE(kept, CYNORM_NORMALIZE_ADD); break;            \
    case CYNORM_GRADIENT: COMBINE(kept, CYNORM_GRADIENT); break;                      \
    default: COMBINE(kept, CYNORM_SCALE); break;                                   \
    }

/* out = (x - center) * factor + term (+ g), or gain * (g + term + (x - center) * factor), or gain * g */
static void FN(combine_row)(real *out, const real *x, const real *g, const real *center, const real *factor, const real *term,
                            const real *gain, int64_t n, int kept, int form) {
    if (kept) {
        COMBINE_EACH(1)
    } else {
        COMBINE_EACH(0)
    }
}

#undef COMBINE
#undef COMBINE_EACH

/* Coefficient at an element; NULL stays NULL. */
static inline const real *FN(at_row)(const void *p, const cynorm_bn_tile *t, int64_t row, int64_t i) {
    return p ? (const real *)p + (t->kept_inner ? i : row) : NULL;
}

/* diff_dst before the activation; x is the row of src. */
static const real *FN(gradient_row)(const cynorm_bn_tile *t, int64_t group, int64_t row, int64_t i, int64_t n, const real *x,
                                    real *copy, real *value) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK], *kept = &t->view[CYNORM_BN_VALUE];
    const real *g = FN(view_row)(&t->view[CYNORM_BN_DIFF_DST], group, row, i, n, copy);
    if (mask->data) {
        int64_t bit = t->bit + group * mask->stride[2] + row * mask->stride[1] + i * mask->stride[0];
        FN(relu_backward)(copy, g, (const unsigned char *)mask->data, bit, mask->stride[0], n);
        return copy;
    }
    if (t->activation == CYNORM_IDENTITY) return g;
    const real *z = value;
    if (kept->data)
        z = FN(view_row)(kept, group, row, i, n, value);
    else
        FN(combine_row)(value, x, NULL, FN(at_row)(t->center, t, row, i), FN(at_row)(t->gain, t, row, i),
                        FN(at_row)(t->bias, t, row, i), NULL, n, t->kept_inner, CYNORM_NORMALIZE);
    FN(activate_backward)(t, copy, g, z, n);
    return copy;
}

/* ---- scratch ---- */

#define rows FN(cynorm_bn_rows)
typedef struct {
    real x[CYNORM_BN_ROWS][CYNORM_BN_ROW], g[CYNORM_BN_ROWS][CYNORM_BN_ROW], out[CYNORM_BN_ROW], value[CYNORM_BN_ROW];
    char sink[2][CYNORM_BN_SINK];
} rows;

_Static_assert(sizeof(rows) <= CYNORM_BN_SCRATCH, "scratch");

/* ---- sums ---- */

static int64_t FN(bn_sums_bytes)(int kept_inner, int64_t n) {
    return (kept_inner ? (n + VL - 1) / VL : n) * 2 * (int64_t)sizeof(wide);
}

/* What a vector of a row adds to the two sums: w and w * d. Lanes past n add 0. */
static inline __attribute__((always_inline)) void FN(sum_vector)(wide *first, wide *second, const real *x, const real *g, wide c,
                                                                 int64_t n) {
    real part[2][VL];
    if (n < VL) {
        FN(store)(part[0], FN(load_part)(x, n));
        x = part[0];
        if (g) FN(store)(part[1], FN(load_part)(g, n));
        if (g) g = part[1];
    }
    wide d = FN(wide_minus)(FN(wide_load)(x), c);
    if (n < VL && !g) d = FN(wide_part)(d, n);
    wide w = g ? FN(wide_load)(g) : d;
    *first = FN(wide_add)(*first, w);
    *second = FN(wide_fma)(w, d, *second);
}

/* Adds a few rows to the sums of their columns; g NULL: of x - center itself. */
static void FN(sum_columns)(wide *sums, const real *const *x, const real *const *g, const real *center, const real *center_low,
                            int64_t count, int64_t n) {
    for (int64_t i = 0; i < n; i += VL, sums += 2) {
        wide first = sums[0], second = sums[1], c = FN(wide_pair)(center + i, center_low + i);
        if (n - i >= VL)
            for (int64_t r = 0; r < count; r++) FN(sum_vector)(&first, &second, x[r] + i, g ? g[r] + i : NULL, c, VL);
        else
            for (int64_t r = 0; r < count; r++) FN(sum_vector)(&first, &second, x[r] + i, g ? g[r] + i : NULL, c, n - i);
        sums[0] = first;
        sums[1] = second;
    }
}

/* Adds a row to the two sums of its statistic, in two chains. */
static void FN(sum_row)(wide *sums, const real *x, const real *g, wide c, int64_t n) {
    wide first[2] = {sums[0]}, second[2] = {sums[1]};
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL)
        for (int j = 0; j < 2; j++)
            FN(sum_vector)(&first[j], &second[j], x + i + j * VL, g ? g + i + j * VL : NULL, c, VL);
    for (; i < n; i += VL) FN(sum_vector)(first, second, x + i, g ? g + i : NULL, c, n - i < VL ? n - i : VL);
    sums[0] = FN(wide_add)(first[0], first[1]);
    sums[1] = FN(wide_add)(second[0], second[1]);
}

static void FN(bn_sums)(const cynorm_bn_tile *t) {
    rows *s = t->scratch;
    const cynorm_bn_view *src = &t->view[CYNORM_BN_SRC];
    int backward = t->view[CYNORM_BN_DIFF_DST].data != NULL;
    int64_t n = t->count[0];
    for (int64_t group = 0; group < t->count[2]; group += t->kept_inner ? CYNORM_BN_ROWS : 1) {
        int64_t together = t->count[2] - group < CYNORM_BN_ROWS ? t->count[2] - group : CYNORM_BN_ROWS;
        for (int64_t row = 0; row < t->count[1]; row++) {
            for (int64_t i = 0; i < n; i += CYNORM_BN_ROW) {
                int64_t m = n - i < CYNORM_BN_ROW ? n - i : CYNORM_BN_ROW;
                const real *x[CYNORM_BN_ROWS], *g[CYNORM_BN_ROWS] = {NULL};
                for (int64_t r = 0; r < (t->kept_inner ? together : 1); r++) {
                    x[r] = FN(view_row)(src, group + r, row, i, m, s->x[r]);
                    if (backward) g[r] = FN(gradient_row)(t, group + r, row, i, m, x[r], s->g[r], s->value);
                }
                const real *center = FN(at_row)(t->center, t, row, i), *low = FN(at_row)(t->center_low, t, row, i);
                if (t->kept_inner)
                    FN(sum_columns)((wide *)t->sums + i / VL * 2, x, backward ? g : NULL, center, low, together, m);
                else
                    FN(sum_row)((wide *)t->sums + row * 2, x[0], g[0], FN(wide_splat)(*center, *low), m);
            }
        }
    }
}

/* ---- results ---- */

/* Where n elements of an output are to be computed: in memory, in the sink, or in `row`, to be stored by put_row. */
static real *FN(output_row)(const cynorm_bn_tile *t, const cynorm_bn_view *v, cynorm_sink *sink, char *p, int64_t n, real *row) {
    if (!FN(row_is_real)(v)) return row;
    return (real *)(t->streaming ? cynorm_sink_room(sink, p, n * (int64_t)sizeof(real)) : p);
}

static void FN(put_row)(const cynorm_bn_tile *t, const cynorm_bn_view *v, cynorm_sink *sink, char *p, int64_t n, const real *row) {
    int64_t itemsize = cynorm_itemsize(v->dtype);
    if (FN(row_is_real)(v)) return;
    if (t->streaming && v->stride[0] == itemsize) p = cynorm_sink_room(sink, p, n * itemsize);
    FN(store_row)(p, row, v->dtype, n, v->stride[0]);
}

static void FN(bn_apply)(const cynorm_bn_tile *t) {
    rows *s = t->scratch;
    const cynorm_bn_view *v = t->view, *dst = &v[CYNORM_BN_DST], *diff_add = &v[CYNORM_BN_DIFF_ADD], *mask = &v[CYNORM_BN_MASK];
    cynorm_sink sink[2] = {{NULL, s->sink[0], 0}, {NULL, s->sink[1], 0}};
    int backward = v[CYNORM_BN_DIFF_DST].data != NULL, form = CYNORM_NORMALIZE;
    if (v[CYNORM_BN_ADD].data) form = CYNORM_NORMALIZE_ADD;
    if (backward) form = t->slope ? CYNORM_GRADIENT : CYNORM_SCALE;
    const void *factor = backward ? t->slope : t->gain, *term = backward ? t->offset : t->bias;
    int reads_src = form != CYNORM_SCALE || (t->activation > CYNORM_RELU && !v[CYNORM_BN_VALUE].data);
    for (int64_t group = 0; group < t->count[2]; group++)
        for (int64_t row = 0; row < t->count[1]; row++)
            for (int64_t i = 0; i < t->count[0]; i += CYNORM_BN_ROW) {
                int64_t n = t->count[0] - i < CYNORM_BN_ROW ? t->count[0] - i : CYNORM_BN_ROW;
                const real *x = reads_src ? FN(view_row)(&v[CYNORM_BN_SRC], group, row, i, n, s->x[0]) : NULL, *g = NULL;
                if (backward) g = FN(gradient_row)(t, group, row, i, n, x, s->g[0], s->value);
                else if (form == CYNORM_NORMALIZE_ADD) g = FN(view_row)(&v[CYNORM_BN_ADD], group, row, i, n, s->g[0]);
                char *p = FN(element)(dst, group, row, i), *q = FN(element)(diff_add, group, row, i);
                if (diff_add->data) {
                    real *out = FN(output_row)(t, diff_add, &sink[1], q, n, s->g[1]);
                    memcpy(out, g, (size_t)n * sizeof(real));
                    FN(put_row)(t, diff_add, &sink[1], q, n, out);
                }
                real *out = FN(output_row)(t, dst, &sink[0], p, n, s->out);
                FN(combine_row)(out, x, g, FN(at_row)(t->center, t, row, i), FN(at_row)(factor, t, row, i),
                                FN(at_row)(term, t, row, i), FN(at_row)(t->gain, t, row, i), n, t->kept_inner, form);
                if (!backward) {
                    if (v[CYNORM_BN_VALUE].data) {
                        char *z = FN(element)(&v[CYNORM_BN_VALUE], group, row, i);
                        FN(store_row)(z, out, v[CYNORM_BN_VALUE].dtype, n, v[CYNORM_BN_VALUE].stride[0]);
                    }
                    if (t->activation == CYNORM_RELU) {
                        int64_t bit = t->bit + group * mask->stride[2] + row * mask->stride[1] + i;
                        FN(relu)(out, mask->data ? (unsigned char *)mask->data + bit / 8 : NULL, n);
                    } else if (t->activation != CYNORM_IDENTITY) {
                        FN(activate)(t, out, n);
                    }
                }
                FN(put_row)(t, dst, &sink[0], p, n, out);
            }
    cynorm_sink_flush(&sink[0], 1);
    cynorm_sink_flush(&sink[1], 1);
}

/* ---- from sums to coefficients ---- */

/* Sum `which` (0 or 1) of statistic k, lanes in a fixed order. */
static cynorm_exact FN(sum_of)(const cynorm_bn_unit *u, int64_t k, int which) {
    cynorm_exact sum = {0, 0};
    int64_t lanes = u->kept_inner ? u->repeat : VL;
    for (int64_t j = 0; j < lanes; j++) {
        int64_t lane = u->kept_inner ? k + j * u->n : k * VL + j;
        /* the two sums of a vector follow each other */
        sum = cynorm_exact_add(sum, FN(wide_lane)((const double *)u->sums, (lane / VL * 2 + which) * VL + lane % VL));
    }
    return sum;
}

/* The sums of all chunks, one after another, into those of the first. */
static void FN(merge_chunks)(const cynorm_bn_unit *u) {
    for (int64_t c = 1; c < u->chunks; c++)
        for (int64_t i = 0; i < u->chunk_bytes; i += sizeof(wide)) {
            wide *to = (wide *)(u->sums + i);
            *to = FN(wide_add)(*to, *(const wide *)(u->sums + c * u->chunk_bytes + i));
        }
}

static inline void FN(set_coefficient)(const cynorm_bn_unit *u, void *array, int64_t k, real value) {
    for (int64_t j = 0; j < u->repeat; j++) ((real *)array)[k + j * u->n] = value;
}

/* Sums about the center -> mean and variance. */
static void FN(bn_statistics)(const cynorm_bn_unit *u) {
    FN(merge_chunks)(u);
    for (int64_t k = 0; k < u->n; k++) {
        cynorm_exact pivot = {((const real *)u->center)[k], 0};
        cynorm_exact shift = cynorm_exact_divide(FN(sum_of)(u, k, 0), (double)u->count);
        cynorm_exact squares = cynorm_exact_divide(FN(sum_of)(u, k, 1), (double)u->count);
        cynorm_exact mean = cynorm_exact_add(pivot, shift);
        cynorm_exact variance = cynorm_exact_add(squares, cynorm_exact_minus(cynorm_exact_multiply(shift, shift)));
        real high = (real)mean.high;
        ((real *)u->mean)[k] = high;
        ((real *)u->mean_low)[k] = (real)((mean.high - high) + mean.low);
        ((real *)u->variance)[k] = (real)(variance.high < 0 ? 0 : variance.high);
    }
}

/* Mean and variance (or, without it, rstd) -> coefficients of the forward formula. */
static void FN(bn_coefficients)(const cynorm_bn_unit *u) {
    const real *mean = u->mean, *mean_low = u->mean_low, *variance = u->variance, *scale = u->scale, *shift = u->shift;
    real *kept = u->rstd;
    for (int64_t k = 0; k < u->n; k++) {
        double rstd = variance ? 1 / sqrt((double)variance[k] + u->epsilon) : (double)kept[k];
        real gain = (real)(scale ? (double)scale[k] * rstd : rstd);
        double bias = shift ? (double)shift[k] : 0;
        kept[k] = (real)rstd;
        FN(set_coefficient)(u, u->center, k, mean[k]);
        FN(set_coefficient)(u, u->center_low, k, mean_low[k]);
        FN(set_coefficient)(u, u->gain, k, gain);
        FN(set_coefficient)(u, u->bias, k, (real)(bias - (double)mean_low[k] * gain));
    }
}

/* Sums of backward -> gradients of the parameters, and coefficients of diff_src. */
static void FN(bn_gradients)(const cynorm_bn_unit *u, int training) {
    FN(merge_chunks)(u);
    const real *mean_low = u->mean_low, *rstd = u->rstd;
    for (int64_t k = 0; k < u->n; k++) {
        double shift = FN(sum_of)(u, k, 0).high, scale = FN(sum_of)(u, k, 1).high * rstd[k];
        ((real *)u->diff_shift)[k] = (real)shift;
        ((real *)u->diff_scale)[k] = (real)scale;
        if (!training) continue;
        double slope = -scale * rstd[k] / (double)u->count;
        FN(set_coefficient)(u, u->slope, k, (real)slope);
        FN(set_coefficient)(u, u->offset, k, (real)(-shift / (double)u->count - mean_low[k] * slope));
    }
}

static void FN(bn_load_row)(void *dst, const char *src, int dtype, int64_t n, int64_t stride) {
    FN(load_row)(dst, src, dtype, n, stride);
}

static void FN(bn_store_row)(char *dst, const void *src, int dtype, int64_t n, int64_t stride) {
    FN(store_row)(dst, src, dtype, n, stride);
}

#undef wide
#undef rows
