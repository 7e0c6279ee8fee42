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

/* Elements that are packed or converted at a time, and rows whose columns are summed together. */
enum { CYNORM_BN_ROW = 512, CYNORM_BN_ROWS = 8 };

/* The forms that a result can have, see combine. */
enum { CYNORM_NORMALIZE, CYNORM_NORMALIZE_ADD, CYNORM_GRADIENT, CYNORM_SCALE };

enum { CYNORM_CENTER, CYNORM_FACTOR, CYNORM_TERM, CYNORM_GAIN };

/* Bytes that rows of one statistic each, which lie far apart, are prefetched ahead, into the second-level cache. Rows of
 * kept elements follow on, and the processor itself does better there. */
enum { CYNORM_BN_AHEAD = 4096 };

/* Where to prefetch while reading at p: `by` ahead, and `jump` further where that is past `end`. */
typedef struct {
    int64_t by, jump;
    const char *end;
} cynorm_bn_ahead;

static inline void cynorm_bn_prefetch(const char *p, const cynorm_bn_ahead *a) {
    p += a->by;
    if (p >= a->end) p += a->jump;
    __builtin_prefetch(p, 0, 2);
}

/* Rows of one storage type, each contiguous, `step` apart in bytes (the mask's in bits); NULL where absent. */
typedef struct {
    const char *x, *g;
    const unsigned char *mask;
    int64_t x_step, g_step, bit, bit_step;
    cynorm_bn_ahead x_ahead, g_ahead;
} cynorm_bn_rows;

/* 16 bits from a position; memory of the mask ends 4 bytes later than its bits. */
static inline unsigned cynorm_bits_at(const unsigned char *mask, int64_t bit) {
    uint32_t word;
    memcpy(&word, mask + (bit >> 3), sizeof word);
    return word >> (bit & 7) & 0xffff;
}

/* n elements `stride` bytes apart -> contiguous, or back. */
static void cynorm_pack(char *contiguous, char *strided, int64_t n, int64_t stride, int64_t itemsize, int back) {
    for (int64_t i = 0; i < n; i++, contiguous += itemsize, strided += stride) {
        char *to = back ? strided : contiguous;
        const char *from = back ? contiguous : strided;
        switch (itemsize) {
        case 1: memcpy(to, from, 1); break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        default: memcpy(to, from, 8); break;
        }
    }
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
static inline wide FN(wide_of)(vec v) { return (wide){v, {0}}; }
static inline wide FN(wide_get)(const char *p, int dtype, int64_t n) { return FN(wide_of)(FN(get)(p, dtype, n)); }
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

#else

typedef struct { cynorm_vec_f64 half[2]; } wide;

/* VL / 2 floats of memory; the generic conversion would take 256 bits at a time. */
static inline cynorm_vec_f64 FN(half_get)(const real *p) {
#ifdef __AVX512F__
    return (cynorm_vec_f64)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#else
    return load_f32_f64(p);
#endif
}
static inline wide FN(wide_of)(vec v) {
#ifdef __AVX512DQ__
    return (wide){{(cynorm_vec_f64)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v)),
                   (cynorm_vec_f64)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1))}};
#else
    real part[VL];
    FN(store)(part, v);
    return (wide){{FN(half_get)(part), FN(half_get)(part + VL / 2)}};
#endif
}
static inline __attribute__((always_inline)) wide FN(wide_get)(const char *p, int dtype, int64_t n) {
    if (n < VL || dtype != CYNORM_F32) return FN(wide_of)(FN(get)(p, dtype, n));
    return (wide){{FN(half_get)((const real *)p), FN(half_get)((const real *)p + VL / 2)}};
}
static inline wide FN(wide_pair)(const real *high, const real *low) {
    return (wide){{FN(half_get)(high) + FN(half_get)(low), FN(half_get)(high + VL / 2) + FN(half_get)(low + VL / 2)}};
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

/* ---- sums ---- */

/* How many bytes the sums of a tile take that has n columns, or n rows in a group. */
static int64_t FN(bn_sums_bytes)(int kept_inner, int64_t n) {
    return (kept_inner ? (n + VL - 1) / VL : n) * 2 * (int64_t)sizeof(wide);
}

/* What m elements from the i-th of row r add to two sums: w and w * d, where d = x - center and w = g, or d itself. */
static inline __attribute__((always_inline)) void FN(sum_vector)(wide *first, wide *second, const cynorm_bn_rows *in, int64_t r,
                                                                 int64_t i, wide center, int64_t m, int kept, int backward,
                                                                 int masked, int dtype) {
    int64_t at = i * cynorm_itemsize(dtype);
    const char *x = in->x + r * in->x_step + at;
    if (!kept) cynorm_bn_prefetch(x, &in->x_ahead);
    wide d = FN(wide_minus)(FN(wide_get)(x, dtype, m), center), w = d;
    if (backward) {
        const char *g = in->g + r * in->g_step + at;
        if (!kept) cynorm_bn_prefetch(g, &in->g_ahead);
        if (masked) {
            unsigned bits = cynorm_bits_at(in->mask, in->bit + r * in->bit_step + i);
            w = FN(wide_of)(FN(where_bits)(bits, FN(get)(g, dtype, m)));
        } else {
            w = FN(wide_get)(g, dtype, m);
        }
    } else if (m < VL) {
        w = d = FN(wide_part)(d, m); /* no element, no term */
    }
    *first = FN(wide_add)(*first, w);
    *second = FN(wide_fma)(w, d, *second);
}

/* Adds rows to the sums of their columns, one column of vectors at a time. */
static inline __attribute__((always_inline)) void FN(sum_columns)(wide *sums, cynorm_bn_rows in, int64_t count, const real *center,
                                                                  const real *center_low, int64_t n, int backward, int masked,
                                                                  int dtype) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL, sums += 2) {
        wide first = sums[0], second = sums[1], c = FN(wide_pair)(center + i, center_low + i);
        for (int64_t r = 0; r < count; r++) FN(sum_vector)(&first, &second, &in, r, i, c, VL, 1, backward, masked, dtype);
        sums[0] = first;
        sums[1] = second;
    }
    if (i == n) return;
    wide c = FN(wide_pair)(center + i, center_low + i);
    for (int64_t r = 0; r < count; r++) FN(sum_vector)(&sums[0], &sums[1], &in, r, i, c, n - i, 1, backward, masked, dtype);
}

/* Adds a row to the two sums of its statistic, in two chains. */
static inline __attribute__((always_inline)) void FN(sum_row)(wide *sums, cynorm_bn_rows in, const real *center,
                                                              const real *center_low, int64_t n, int backward, int masked,
                                                              int dtype) {
    wide first[2] = {sums[0]}, second[2] = {sums[1]}, c = FN(wide_splat)(*center, *center_low);
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        FN(sum_vector)(&first[0], &second[0], &in, 0, i, c, VL, 0, backward, masked, dtype);
        FN(sum_vector)(&first[1], &second[1], &in, 0, i + VL, c, VL, 0, backward, masked, dtype);
    }
    if (i + VL <= n) {
        FN(sum_vector)(&first[0], &second[0], &in, 0, i, c, VL, 0, backward, masked, dtype);
        i += VL;
    }
    if (i < n) FN(sum_vector)(&first[1], &second[1], &in, 0, i, c, n - i, 0, backward, masked, dtype);
    sums[0] = FN(wide_add)(first[0], first[1]);
    sums[1] = FN(wide_add)(second[0], second[1]);
}

/* ---- results ---- */

#define line FN(cynorm_bn_line)
typedef struct {
    char *out;
    const real *coefficient[4]; /* CENTER, FACTOR, TERM, GAIN; NULL where the form has none */
    unsigned char *mask; /* where ReLU's bits go, from `bit` on, or NULL */
    int64_t bit, n;
    int streaming;
} line;

/* Bits on their way to the mask, 16 at a time. A byte that other rows have bits in too is zero to begin with. */
#define bits_out FN(cynorm_bits_out)
typedef struct {
    unsigned char *to;
    uint64_t word;
    int count, shared; /* bits in word; whether those of the first byte are not all of this row */
} bits_out;

static inline void FN(put_byte)(bits_out *b, int whole) {
    if (whole && !b->shared) *b->to = (unsigned char)b->word;
    else __atomic_fetch_or(b->to, (unsigned char)b->word, __ATOMIC_RELAXED);
    b->shared = 0;
    b->to++;
    b->word >>= 8;
    b->count -= 8;
}

static inline void FN(put_bits)(bits_out *b, unsigned bits, int n) {
    b->word |= (uint64_t)bits << b->count;
    b->count += n;
    if (b->count < 16) return;
    if (b->shared) FN(put_byte)(b, 0);
    else {
        memcpy(b->to, &b->word, 2);
        b->to += 2;
        b->word >>= 16;
        b->count -= 16;
    }
}

/* m elements from the i-th:
 *     NORMALIZE      (x - center) * factor + term
 *     NORMALIZE_ADD  (x - center) * factor + term + g
 *     GRADIENT       gain * (g + term + (x - center) * factor)
 *     SCALE          gain * g
 * Gated: forward, ReLU follows; backward, the mask comes first. */
static inline __attribute__((always_inline)) void FN(combine_vector)(const line *l, const cynorm_bn_rows *in, bits_out *bits,
                                                                     const vec *row, int64_t i, int64_t m, int streaming,
                                                                     int kept, int form, int gated, int dtype) {
#define COEFFICIENT(which) (kept ? FN(load)(l->coefficient[which] + i) : row[which])
    int64_t at = i * cynorm_itemsize(dtype);
    int backward = form == CYNORM_GRADIENT || form == CYNORM_SCALE;
    vec y = {0};
    if (form != CYNORM_NORMALIZE) {
        if (streaming && !kept) cynorm_bn_prefetch(in->g + at, &in->g_ahead);
        y = FN(get)(in->g + at, dtype, m);
    }
    if (streaming && !kept && form != CYNORM_SCALE) cynorm_bn_prefetch(in->x + at, &in->x_ahead);
    if (backward && gated) y = FN(where_bits)(cynorm_bits_at(in->mask, in->bit + i), y);
    if (form == CYNORM_GRADIENT) y += COEFFICIENT(CYNORM_TERM);
    if (form != CYNORM_SCALE) {
        vec d = FN(get)(in->x + at, dtype, m) - COEFFICIENT(CYNORM_CENTER), factor = COEFFICIENT(CYNORM_FACTOR);
        if (form == CYNORM_GRADIENT) y = FN(fma)(d, factor, y);
        if (form == CYNORM_NORMALIZE) y = FN(fma)(d, factor, COEFFICIENT(CYNORM_TERM));
        if (form == CYNORM_NORMALIZE_ADD) y += FN(fma)(d, factor, COEFFICIENT(CYNORM_TERM));
    }
    if (backward) y *= COEFFICIENT(CYNORM_GAIN);
    if (!backward && gated) {
        if (bits->to) FN(put_bits)(bits, FN(mask_bits)(y > 0) & ((1u << m) - 1), (int)m);
        y = FN(select)(y <= 0, (vec){0}, y);
    }
    if (streaming) FN(put_streaming)(l->out + at, y, dtype);
    else FN(put)(l->out + at, y, dtype, m);
#undef COEFFICIENT
}

static inline __attribute__((always_inline)) void FN(combine)(line l, cynorm_bn_rows in, int kept, int form, int gated, int dtype) {
    bits_out bits = {l.mask ? l.mask + l.bit / 8 : NULL, 0, (int)(l.bit % 8), l.bit % 8 != 0};
    vec row[4] = {{0}};
    if (!kept)
        for (int c = 0; c < 4; c++)
            if (l.coefficient[c]) row[c] = FN(splat)(*l.coefficient[c]);
    int64_t itemsize = cynorm_itemsize(dtype), i = 0;
    if (l.streaming) {
        int64_t head = (-(intptr_t)l.out & (VL * itemsize - 1)) / itemsize;
        if (head > l.n) head = l.n;
        if (head) FN(combine_vector)(&l, &in, &bits, row, 0, head, 0, kept, form, gated, dtype);
        for (i = head; i + VL <= l.n; i += VL) FN(combine_vector)(&l, &in, &bits, row, i, VL, 1, kept, form, gated, dtype);
    } else {
        for (; i + VL <= l.n; i += VL) FN(combine_vector)(&l, &in, &bits, row, i, VL, 0, kept, form, gated, dtype);
    }
    if (i < l.n) FN(combine_vector)(&l, &in, &bits, row, i, l.n - i, 0, kept, form, gated, dtype);
    while (bits.to && bits.count > 0) FN(put_byte)(&bits, bits.count >= 8);
}

/* ---- the loops above, once per storage type and case ---- */

#define CYNORM_BN_LOOPS(T, DTYPE)                                                                                        \
    static void FN(sum_##T)(wide *sums, cynorm_bn_rows in, int64_t count, const real *center, const real *low, int64_t n, \
                            int kept) {                                                                                  \
        switch (kept * 3 + (in.mask ? 2 : in.g ? 1 : 0)) {                                                               \
        case 0: FN(sum_row)(sums, in, center, low, n, 0, 0, DTYPE); break;                                               \
        case 1: FN(sum_row)(sums, in, center, low, n, 1, 0, DTYPE); break;                                               \
        case 2: FN(sum_row)(sums, in, center, low, n, 1, 1, DTYPE); break;                                               \
        case 3: FN(sum_columns)(sums, in, count, center, low, n, 0, 0, DTYPE); break;                                    \
        case 4: FN(sum_columns)(sums, in, count, center, low, n, 1, 0, DTYPE); break;                                    \
        case 5: FN(sum_columns)(sums, in, count, center, low, n, 1, 1, DTYPE); break;                                    \
        }                                                                                                                \
    }                                                                                                                    \
    static void FN(combine_##T)(const line *l, const cynorm_bn_rows *in, int kept, int form, int gated) {                \
        switch (kept * 8 + gated * 4 + form) {                                                                           \
        case 0: FN(combine)(*l, *in, 0, 0, 0, DTYPE); break;                                                             \
        case 1: FN(combine)(*l, *in, 0, 1, 0, DTYPE); break;                                                             \
        case 2: FN(combine)(*l, *in, 0, 2, 0, DTYPE); break;                                                             \
        case 3: FN(combine)(*l, *in, 0, 3, 0, DTYPE); break;                                                             \
        case 4: FN(combine)(*l, *in, 0, 0, 1, DTYPE); break;                                                             \
        case 5: FN(combine)(*l, *in, 0, 1, 1, DTYPE); break;                                                             \
        case 6: FN(combine)(*l, *in, 0, 2, 1, DTYPE); break;                                                             \
        case 7: FN(combine)(*l, *in, 0, 3, 1, DTYPE); break;                                                             \
        case 8: FN(combine)(*l, *in, 1, 0, 0, DTYPE); break;                                                             \
        case 9: FN(combine)(*l, *in, 1, 1, 0, DTYPE); break;                                                             \
        case 10: FN(combine)(*l, *in, 1, 2, 0, DTYPE); break;                                                            \
        case 11: FN(combine)(*l, *in, 1, 3, 0, DTYPE); break;                                                            \
        case 12: FN(combine)(*l, *in, 1, 0, 1, DTYPE); break;                                                            \
        case 13: FN(combine)(*l, *in, 1, 1, 1, DTYPE); break;                                                            \
        case 14: FN(combine)(*l, *in, 1, 2, 1, DTYPE); break;                                                            \
        case 15: FN(combine)(*l, *in, 1, 3, 1, DTYPE); break;                                                            \
        }                                                                                                                \
    }

#if CYNORM_DOUBLE
CYNORM_BN_LOOPS(f64, CYNORM_F64)
#define EACH_DTYPE(dtype, call, ...) (void)(dtype), FN(call##_f64)(__VA_ARGS__)
#else
CYNORM_BN_LOOPS(f32, CYNORM_F32)
CYNORM_BN_LOOPS(f16, CYNORM_F16)
CYNORM_BN_LOOPS(bf16, CYNORM_BF16)
#define EACH_DTYPE(dtype, call, ...)                                            \
    switch (dtype) {                                                            \
    case CYNORM_F16: FN(call##_f16)(__VA_ARGS__); break;                        \
    case CYNORM_BF16: FN(call##_bf16)(__VA_ARGS__); break;                      \
    default: FN(call##_f32)(__VA_ARGS__); break;                                \
    }
#endif
#undef CYNORM_BN_LOOPS

/* ---- rows of a tile ---- */

#define scratch_t FN(cynorm_bn_scratch)
typedef struct {
    char x[CYNORM_BN_ROWS][CYNORM_BN_ROW * sizeof(real)], g[CYNORM_BN_ROWS][CYNORM_BN_ROW * sizeof(real)];
    char out[CYNORM_BN_ROW * sizeof(real)];
    real value[CYNORM_BN_ROW];
    unsigned char bits[CYNORM_BN_ROWS][CYNORM_BN_ROW / 8 + 8];
} scratch_t;

_Static_assert(sizeof(scratch_t) <= CYNORM_BN_SCRATCH, "scratch");

static inline char *FN(element)(const cynorm_bn_view *v, int64_t group, int64_t row, int64_t i) {
    return v->data + group * v->stride[2] + row * v->stride[1] + i * v->stride[0];
}

/* Whether rows are used as reals: an activation other than ReLU is computed by the row, and so is all of int8. */
static inline int FN(as_reals)(const cynorm_bn_tile *t) {
    return t->activation > CYNORM_RELU || t->view[CYNORM_BN_SRC].dtype == CYNORM_S8;
}

static inline int FN(contiguous)(const cynorm_bn_view *v) {
    return !v->data || v->stride[0] == cynorm_itemsize(v->dtype);
}

/* Whether all rows can be used where they lie. */
static int FN(rows_in_place)(const cynorm_bn_tile *t) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    for (int i = 0; i < CYNORM_BN_MASK; i++)
        if (!FN(contiguous)(&t->view[i])) return 0;
    return !FN(as_reals)(t) && (!mask->data || mask->stride[0] == 1 || t->count[0] == 1);
}

/* A row of a view, contiguous: memory itself, or a copy, converted where rows are reals. */
static const char *FN(view_row)(const cynorm_bn_tile *t, const cynorm_bn_view *v, int64_t group, int64_t row, int64_t i, int64_t n,
                                char *copy) {
    char *p = FN(element)(v, group, row, i);
    if (FN(as_reals)(t) && (v->dtype != CYNORM_COMPUTE || !FN(contiguous)(v))) {
        FN(load_row)((real *)copy, p, v->dtype, n, v->stride[0]);
        return copy;
    }
    if (FN(contiguous)(v)) return p;
    cynorm_pack(copy, p, n, v->stride[0], cynorm_itemsize(v->dtype), 0);
    return copy;
}

/* Coefficient at an element; NULL stays NULL. */
static inline const real *FN(coefficient)(const cynorm_bn_tile *t, const void *p, int64_t row, int64_t i) {
    return p ? (const real *)p + (t->kept_inner ? i : row) : NULL;
}

/* diff_dst times the derivative of an activation other than ReLU, as reals. */
static void FN(gradient_row)(const cynorm_bn_tile *t, scratch_t *s, real *out, const char *x, const char *g, int64_t group,
                             int64_t row, int64_t i, int64_t n) {
    const cynorm_bn_view *kept = &t->view[CYNORM_BN_VALUE];
    const real *value = s->value;
    if (kept->data) {
        value = (const real *)FN(view_row)(t, kept, group, row, i, n, (char *)s->value);
    } else {
        line l = {(char *)s->value, {FN(coefficient)(t, t->center, row, i), FN(coefficient)(t, t->gain, row, i),
                  FN(coefficient)(t, t->bias, row, i), NULL}, NULL, 0, n, 0};
        cynorm_bn_rows in = {.x = x};
        EACH_DTYPE(CYNORM_COMPUTE, combine, &l, &in, t->kept_inner, CYNORM_NORMALIZE, 0);
    }
    FN(activate_backward)(t, out, (const real *)g, value, n);
}

/* Ahead of a row: in the next unit, where its place is known, else further in this tile. */
static cynorm_bn_ahead FN(ahead_of)(const cynorm_bn_tile *t, const cynorm_bn_view *v, int64_t next, int64_t group, int64_t row) {
    int64_t bytes = t->count[0] * cynorm_itemsize(v->dtype);
    if (next) return (cynorm_bn_ahead){next, 0, (const char *)UINTPTR_MAX};
    /* the rows of a group may follow on; then the next group */
    int64_t last = v->stride[1] == bytes ? t->count[1] - 1 : row;
    const char *end = FN(element)(v, group, last, 0) + bytes;
    const char *start = last + 1 < t->count[1] ? FN(element)(v, group, last + 1, 0) : FN(element)(v, group + 1, 0, 0);
    return (cynorm_bn_ahead){CYNORM_BN_AHEAD, start - end, end};
}

/* `count` rows of src, from group on, and of diff_dst with its mask, or of add. */
static cynorm_bn_rows FN(input_rows)(const cynorm_bn_tile *t, scratch_t *s, const cynorm_bn_view *other, int64_t group, int64_t row,
                                     int64_t i, int64_t n, int64_t count) {
    const cynorm_bn_view *src = &t->view[CYNORM_BN_SRC], *mask = &t->view[CYNORM_BN_MASK];
    int backward = t->view[CYNORM_BN_DIFF_DST].data != NULL, smooth = backward && t->activation > CYNORM_RELU;
    cynorm_bn_rows in = {.x_step = src->stride[2], .g_step = other->stride[2], .bit_step = mask->stride[2]};
    if (!t->kept_inner) {
        in.x_ahead = FN(ahead_of)(t, src, t->next[0], group, row);
        in.g_ahead = FN(ahead_of)(t, other, t->next[1], group, row);
    }
    for (int64_t r = 0; r < count; r++) {
        const char *x = FN(view_row)(t, src, group + r, row, i, n, s->x[r]);
        if (r == 0) in.x = x;
        if (x == s->x[r]) in.x_step = sizeof s->x[r];
        if (!other->data) continue;
        const char *g = FN(view_row)(t, other, group + r, row, i, n, s->g[r]);
        if (smooth) {
            FN(gradient_row)(t, s, (real *)s->g[r], x, g, group + r, row, i, n);
            g = s->g[r];
        }
        if (r == 0) in.g = g;
        if (g == s->g[r]) in.g_step = sizeof s->g[r];
        if (!backward || !mask->data) continue;
        in.bit = t->bit + group * mask->stride[2] + row * mask->stride[1] + i * mask->stride[0];
        in.mask = (const unsigned char *)mask->data;
        if (mask->stride[0] == 1) continue;
        for (int64_t j = 0; j < n; j++) {
            unsigned bit = cynorm_bits_at(in.mask, in.bit + r * mask->stride[2] + j * mask->stride[0]) & 1;
            s->bits[r][j / 8] = (unsigned char)((j % 8 ? s->bits[r][j / 8] : 0) | bit << j % 8);
        }
    }
    if (in.mask && mask->stride[0] != 1) {
        in.mask = s->bits[0];
        in.bit = 0;
        in.bit_step = 8 * sizeof s->bits[0];
    }
    return in;
}

static void FN(bn_sums)(const cynorm_bn_tile *t) {
    scratch_t *s = t->scratch;
    int64_t most = t->kept_inner ? CYNORM_BN_ROWS : 1;
    int64_t piece = !t->kept_inner && FN(rows_in_place)(t) ? t->count[0] : CYNORM_BN_ROW;
    int dtype = FN(as_reals)(t) ? CYNORM_COMPUTE : t->view[CYNORM_BN_SRC].dtype;
    for (int64_t group = 0; group < t->count[2]; group += most) {
        int64_t count = t->count[2] - group < most ? t->count[2] - group : most;
        for (int64_t row = 0; row < t->count[1]; row++)
            for (int64_t i = 0; i < t->count[0]; i += piece) {
                int64_t n = t->count[0] - i < piece ? t->count[0] - i : piece;
                cynorm_bn_rows in = FN(input_rows)(t, s, &t->view[CYNORM_BN_DIFF_DST], group, row, i, n, count);
                wide *sums = (wide *)t->sums + (t->kept_inner ? i / VL : row) * 2;
                EACH_DTYPE(dtype, sum, sums, in, count, FN(coefficient)(t, t->center, row, i),
                           FN(coefficient)(t, t->center_low, row, i), n, t->kept_inner);
            }
    }
}

/* A row of reals or of storage, as computed, to where it belongs. */
static void FN(put_row)(const cynorm_bn_tile *t, const cynorm_bn_view *v, char *p, int64_t n, char *row) {
    if (p == row) return;
    if (FN(as_reals)(t)) FN(store_row)(p, (const real *)row, v->dtype, n, v->stride[0]);
    else cynorm_pack(row, p, n, v->stride[0], cynorm_itemsize(v->dtype), 1);
}

/* diff_add: diff_dst as the mask or the activation leaves it. */
static void FN(put_diff_add)(const cynorm_bn_tile *t, scratch_t *s, const cynorm_bn_rows *in, int64_t group, int64_t row, int64_t i,
                             int64_t n, int dtype, int gated) {
    const cynorm_bn_view *v = &t->view[CYNORM_BN_DIFF_ADD];
    char *p = FN(element)(v, group, row, i);
    int direct = FN(contiguous)(v) && dtype == v->dtype;
    const real one = 1;
    line l = {direct ? p : s->out, {NULL, NULL, NULL, &one}, NULL, 0, n, t->streaming && direct};
    EACH_DTYPE(dtype, combine, &l, in, 0, CYNORM_SCALE, gated);
    FN(put_row)(t, v, p, n, l.out);
}

static void FN(bn_apply)(const cynorm_bn_tile *t) {
    scratch_t *s = t->scratch;
    const cynorm_bn_view *v = t->view, *dst = &v[CYNORM_BN_DST], *mask = &v[CYNORM_BN_MASK];
    int backward = v[CYNORM_BN_DIFF_DST].data != NULL, reals = FN(as_reals)(t), form = CYNORM_NORMALIZE;
    if (v[CYNORM_BN_ADD].data) form = CYNORM_NORMALIZE_ADD;
    if (backward) form = t->slope ? CYNORM_GRADIENT : CYNORM_SCALE;
    int gated = backward ? mask->data != NULL : t->activation == CYNORM_RELU;
    int64_t piece = FN(rows_in_place)(t) ? t->count[0] : CYNORM_BN_ROW;
    int dtype = reals ? CYNORM_COMPUTE : dst->dtype;
    for (int64_t group = 0; group < t->count[2]; group++)
        for (int64_t row = 0; row < t->count[1]; row++)
            for (int64_t i = 0; i < t->count[0]; i += piece) {
                int64_t n = t->count[0] - i < piece ? t->count[0] - i : piece;
                cynorm_bn_rows in = FN(input_rows)(t, s, &v[backward ? CYNORM_BN_DIFF_DST : CYNORM_BN_ADD], group, row, i, n, 1);
                char *p = FN(element)(dst, group, row, i);
                int direct = FN(contiguous)(dst) && (!reals || dst->dtype == CYNORM_COMPUTE);
                line l = {direct ? p : s->out, {FN(coefficient)(t, t->center, row, i),
                          FN(coefficient)(t, backward ? t->slope : t->gain, row, i),
                          FN(coefficient)(t, backward ? t->offset : t->bias, row, i), FN(coefficient)(t, t->gain, row, i)}, NULL, 0, n,
                          t->streaming && direct && !reals};
                if (v[CYNORM_BN_DIFF_ADD].data) FN(put_diff_add)(t, s, &in, group, row, i, n, dtype, gated);
                if (!backward && mask->data) {
                    l.mask = (unsigned char *)mask->data;
                    l.bit = t->bit + group * mask->stride[2] + row * mask->stride[1] + i;
                }
                EACH_DTYPE(dtype, combine, &l, &in, t->kept_inner, form, gated);
                if (!backward && t->activation > CYNORM_RELU) {
                    if (v[CYNORM_BN_VALUE].data) {
                        char *z = FN(element)(&v[CYNORM_BN_VALUE], group, row, i);
                        FN(store_row)(z, (const real *)l.out, v[CYNORM_BN_VALUE].dtype, n, v[CYNORM_BN_VALUE].stride[0]);
                    }
                    FN(activate)(t, (real *)l.out, n);
                }
                FN(put_row)(t, dst, p, n, l.out);
            }
}

#undef line
#undef bits_out
#undef scratch_t
#undef EACH_DTYPE

/* ---- from sums to coefficients ---- */

/* Sum `which` (0 or 1) of statistic k, lanes in a fixed order. */
static cynorm_exact FN(sum_of)(const cynorm_bn_unit *u, int64_t k, int which) {
    int64_t first = u->kept_inner ? k : k * VL, step = u->kept_inner ? u->n : 1, lanes = u->kept_inner ? u->repeat : VL;
    cynorm_exact sum = {0, 0};
    for (int64_t j = 0, lane = first; j < lanes; j++, lane += step) {
        /* the two sums of a vector follow each other */
        const double *p = (const double *)u->sums + (lane / VL * 2 + which) * (int64_t)(sizeof(wide) / sizeof(double)) + lane % VL;
#if CYNORM_DOUBLE
        sum = cynorm_exact_add(sum, (cynorm_exact){p[0], p[VL]});
#else
        sum.high += *p;
#endif
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
