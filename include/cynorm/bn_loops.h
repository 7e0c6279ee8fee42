/* Batch norm: the loops over rows that make sums and results, and activations. A template, see types.h; the formulas are
 * batch_norm.h's. */

/* ---- activations ---- */

/* The switch lies outside the loop over a row; p are the parameters. */
#define EACH_ACTIVATION(kind, CASE)                                                                          \
    switch (kind) {                                                                                          \
    case CYNORM_IDENTITY: case CYNORM_RELU: break; /* made with the results */                               \
    CASE(CYNORM_ELU, FN(select)(x >= 0, x, p[0] * FN(expm1)(x)), FN(select)(x >= 0, one, p[0] * FN(exp)(x))) \
    CASE(CYNORM_CELU, FN(select)(x >= 0, x, p[0] * FN(expm1)(x / p[0])),                                     \
         FN(select)(x >= 0, one, FN(exp)(x / p[0])))                                                         \
    CASE(CYNORM_SCALED_ELU, p[1] * FN(select)(x > 0, x, p[0] * FN(expm1)(x)),                                \
         p[1] * FN(select)(x > 0, one, p[0] * FN(exp)(x)))                                                   \
    CASE(CYNORM_HARD_SIGMOID, FN(clip)(p[0] * x + p[1], zero, one),                                          \
         FN(select)((p[0] * x + p[1] > 0) & (p[0] * x + p[1] < 1), p[0], zero))                              \
    CASE(CYNORM_LEAKY_RELU, FN(select)(x >= 0, x, p[0] * x), FN(select)(x >= 0, one, p[0]))                  \
    CASE(CYNORM_LINEAR, p[0] * x + p[1], p[0])                                                               \
    CASE(CYNORM_PARAMETRIC_SOFTPLUS, p[0] * FN(softplus)(p[1] * x), p[0] * (p[1] * FN(sigmoid)(p[1] * x)))     \
    CASE(CYNORM_SCALED_TANH, p[0] * FN(tanh)(p[1] * x), p[0] * (p[1] * (4 * FN(bell)(2 * p[1] * x))))          \
    CASE(CYNORM_SIGMOID, FN(sigmoid)(x), FN(bell)(x))                                                        \
    CASE(CYNORM_SOFTPLUS, FN(select)(p[0] * x > 40, x, FN(softplus)(p[0] * x) / p[0]), FN(sigmoid)(p[0] * x)) \
    CASE(CYNORM_SOFTSIGN, x / (1 + FN(abs)(x)), 1 / (1 + FN(abs)(x)) / (1 + FN(abs)(x)))                     \
    CASE(CYNORM_TANH, FN(tanh)(x), 4 * FN(bell)(2 * x))                                                      \
    CASE(CYNORM_THRESHOLDED_RELU, FN(select)(x <= p[0], zero, x), FN(select)(x > p[0], one, zero))           \
    CASE(CYNORM_SHRINK, FN(select)(x > p[1], x - p[0], FN(select)(x < -p[1], x + p[0], FN(select)(x == x, zero, x))), \
         FN(select)(FN(abs)(x) > p[1], one, zero))                                                           \
    }

#define PARAMETERS(t) {FN(splat)((real)(t)->parameter[0]), FN(splat)((real)(t)->parameter[1])}

/* Of the vectors x of a row. */
#define CASE_OF(kind, from, result, to)                                                                      \
    case kind:                                                                                               \
        for (int64_t i = 0; i < n; i += VL) {                                                                \
            const int64_t m = n - i < VL ? n - i : VL;                                                       \
            const vec x = FN(load_n)((from) + i, m);                                                         \
            (void)x;                                                                                         \
            FN(store_n)((to) + i, result, m);                                                                \
        }                                                                                                    \
        break;

static void FN(activate)(const cynorm_bn_tile *t, real *row, int64_t n) {
    const vec p[2] = PARAMETERS(t), zero = {0}, one = FN(splat)(1);
#define CASE(kind, value, derivative) CASE_OF(kind, row, value, row)
    EACH_ACTIVATION(t->activation, CASE)
#undef CASE
}

/* out = g * activation'(value); out, g and value may be the same. */
static void FN(activate_backward)(const cynorm_bn_tile *t, real *out, const real *g, const real *value,
                                  int64_t n) {
    const vec p[2] = PARAMETERS(t), zero = {0}, one = FN(splat)(1);
#define CASE(kind, value_, derivative) CASE_OF(kind, value, FN(load_n)(g + i, m) * (derivative), out)
    EACH_ACTIVATION(t->activation, CASE)
#undef CASE
}

#undef CASE_OF
#undef EACH_ACTIVATION
#undef PARAMETERS

/* Else GCC leaves loops with long bodies as they are, and tests in each turn what is constant there. */
#define EACH_COLUMN _Pragma("GCC unroll 4") for (int k = 0; k < columns; k++)

/* ---- sums ---- */

/* How many bytes the sums of a tile with n columns, or n rows in a group, take. */
static int64_t FN(bn_sums_bytes)(int kept_inner, int64_t n) {
    return (kept_inner ? (n + VL - 1) / VL : n) * 2 * (int64_t)sizeof(wide);
}

/* Whether the wide halves of a forward call's sums are of even and of odd elements, see wide_split. */
CYNORM_INLINE int FN(is_split)(int64_t m, int backward, int dtype) {
    return dtype == CYNORM_BF16 && !backward && m == VL;
}

/* Whether sums are of runs of products, see sum_products. */
CYNORM_INLINE int FN(in_runs)(int backward, int dtype) { return backward && cynorm_itemsize(dtype) == 2; }

/* What m elements add to two sums: w and w * d, where d is x - center, and w is g, or d; `bit`: where in the mask they begin. */
CYNORM_INLINE void FN(sum_vector)(wide *first, wide *second, const char *x, const char *g, const unsigned char *mask, int64_t bit,
                                  wide center, int64_t m, int backward, int masked, int dtype) {
    wide d;
#if !CYNORM_DOUBLE
    if (FN(is_split)(m, backward, dtype)) d = FN(wide_split)(x);
    else
#endif
    d = FN(wide_get)(x, dtype, m);
    if (dtype != CYNORM_BF16) d = FN(wide_minus)(d, center); /* else it is 0 */
    if (m < VL) d = FN(wide_part)(d, m); /* no element, no term */
    wide w = d;
    if (backward && masked) w = FN(wide_of)(FN(get_passed)(g, mask, bit, dtype, m, CYNORM_BN_IN_ORDER));
    else if (backward) w = FN(wide_get)(g, dtype, m);
    *first = FN(wide_add)(*first, w);
    *second = FN(wide_fma)(w, d, *second);
}

/* Likewise of m elements from the i-th of row r. */
CYNORM_INLINE void FN(sum_part)(wide *first, wide *second, const cynorm_bn_rows *in, int64_t r, int64_t i, wide center, int64_t m,
                                int backward, int masked, int dtype) {
    const int64_t at = i * cynorm_itemsize(dtype);
    const char *g = backward ? in->g + r * in->g_step + at : NULL;
    FN(sum_vector)(first, second, in->x + r * in->x_step + at, g, in->mask, in->bit + r * in->bit_step + i, center, m, backward,
                   masked, dtype);
}

/* Likewise of half types, backward, in reals: d and d * ((x - center) * norm), d being g as the mask leaves it. */
CYNORM_INLINE void FN(sum_products)(vec *first, vec *second, const cynorm_bn_rows *in, int64_t r, int64_t i,
                                    vec center, vec norm, int64_t m, int half, int masked, int dtype) {
    const int64_t at = i * cynorm_itemsize(dtype);
    const char *x = in->x + r * in->x_step + at, *g = in->g + r * in->g_step + at;
    vec xhat = (FN(get_in)(x, dtype, m, half) - center) * norm;
    const vec d = masked ? FN(get_passed)(g, in->mask, in->bit + r * in->bit_step + i, dtype, m, half)
                         : FN(get_in)(g, dtype, m, half);
    if (m < VL) xhat = FN(part)(xhat, (vec){0}, m);
    *first += d;
    *second = FN(fma)(d, xhat, *second);
}

/* Adds a run of these to the sums of d and d * (x - center); inverse: 1 / norm. */
CYNORM_INLINE void FN(add_run)(wide *first, wide *second, vec d, vec product, wide inverse) {
    *first = FN(wide_add)(*first, FN(wide_of)(d));
    *second = FN(wide_fma)(FN(wide_of)(product), inverse, *second);
}

/* One of the sums of a vector of columns, as they are added up: split, or of the columns of a half. */
CYNORM_INLINE wide FN(sums_half)(const wide *sums, int half, int split) {
#if !CYNORM_DOUBLE
    const cynorm_vec_f64 *v = sums->half;
    if (split) return (wide){{every_other_f64(v[0], v[1], 0), every_other_f64(v[0], v[1], 1)}};
    /* the two sums of a vector lie together: sums[2] is the next vector's */
    if (half != CYNORM_BN_IN_ORDER) return FN(wide_every_other)(sums[0], sums[2], half);
#endif
    (void)half, (void)split;
    return sums[0];
}

/* The inverse: those of the k-th vector. */
CYNORM_INLINE wide FN(sums_in_order)(const wide *v, int k, int half, int split) {
#if !CYNORM_DOUBLE
    const cynorm_vec_f64 e = v[k].half[0], o = v[k].half[1];
    if (split) return (wide){{interleave_f64(e, o, 0), interleave_f64(e, o, 1)}};
    if (half != CYNORM_BN_IN_ORDER) return FN(wide_interleave)(v[k - half], v[k - half + 1], half);
#endif
    (void)half, (void)split;
    return v[k];
}

/* Ahead of the i-th element of a kept row. */
CYNORM_INLINE void FN(prefetch_kept)(const cynorm_bn_rows *in, int64_t row, int64_t i, int x, int g, int dtype) {
    const int64_t at = i * cynorm_itemsize(dtype);
    const int jump = row >= in->turn;
    if (x) __builtin_prefetch(in->x + row * in->x_step + at + in->x_ahead.by + (jump ? in->x_ahead.jump : 0));
    if (g) __builtin_prefetch(in->g + row * in->g_step + at + in->g_ahead.by + (jump ? in->g_ahead.jump : 0));
}

/* Adds rows to the sums of some vectors of columns, which stay in registers. */
CYNORM_INLINE void FN(sum_columns)(wide *sums, const cynorm_bn_rows *in, const real *center, const real *norm,
                                   int64_t row, int64_t rows, int64_t i, int columns, int64_t m, int backward,
                                   int masked, int dtype) {
    cynorm_bn_rows now = *in;
    wide first[CYNORM_BN_SUM_COLUMNS], second[CYNORM_BN_SUM_COLUMNS];
    vec c[CYNORM_BN_SUM_COLUMNS], factor[CYNORM_BN_SUM_COLUMNS];
    const int split = FN(is_split)(m, backward, dtype), runs = FN(in_runs)(backward, dtype), in_halves = runs ? columns : 1;
    /* what is prefetched: equally far ahead of each row or, of long ones, the next rows in the order of memory */
    const int in_order = in->n > CYNORM_BN_SUM_COLUMNS * VL;
    const int64_t size = cynorm_itemsize(dtype), from = (in_order ? i * rows : i) * size;
    const int64_t x_next = in_order ? columns * VL * size : in->x_step, g_next = in_order ? columns * VL * size : in->g_step;
    sums += i / VL * 2;
    EACH_COLUMN {
        const int half = FN(half_of)(k, in_halves, dtype), at = FN(start_of)(k, half);
        first[k] = FN(sums_half)(sums + at / VL * 2, half, split);
        second[k] = FN(sums_half)(sums + at / VL * 2 + 1, half, split);
        c[k] = FN(load_half)(center + i + at, half);
        if (runs) factor[k] = FN(load_half)(norm + i + at, half);
    }
    for (; now.images; cynorm_bn_next_image(&now)) {
        const char *x = now.x + row * now.x_step + from + now.x_ahead.by;
        const char *g = backward ? now.g + row * now.g_step + from + now.g_ahead.by : x;
        for (int64_t r = 0, end; r < rows; r = end) {
            vec part[2][CYNORM_BN_SUM_COLUMNS] = {{{0}}};
            end = runs && rows - r > CYNORM_BN_RUN ? r + CYNORM_BN_RUN : rows;
            for (; r < end; r++, x += x_next, g += g_next) {
                if (r == now.turn) x += now.x_ahead.jump, g += now.g_ahead.jump;
                EACH_COLUMN {
                    const int half = FN(half_of)(k, in_halves, dtype);
                    const int64_t at = i + FN(start_of)(k, half), ahead = k * VL * size;
                    if (ahead % 64 == 0) __builtin_prefetch(x + ahead);
                    if (ahead % 64 == 0 && backward) __builtin_prefetch(g + ahead);
                    if (runs)
                        FN(sum_products)(&part[0][k], &part[1][k], &now, row + r, at, c[k], factor[k], m, half,
                                         masked, dtype);
                    else FN(sum_part)(&first[k], &second[k], &now, row + r, at, FN(wide_of)(c[k]), m, backward, masked, dtype);
                }
            }
            EACH_COLUMN if (runs)
                FN(add_run)(&first[k], &second[k], part[0][k], part[1][k], FN(wide_of)(1 / factor[k]));
        }
    }
    EACH_COLUMN {
        const int half = FN(half_of)(k, in_halves, dtype);
        sums[2 * k] = FN(sums_in_order)(first, k, half, split);
        sums[2 * k + 1] = FN(sums_in_order)(second, k, half, split);
    }
}

/* Adds some rows of reals to the sums in memory, one vector of columns after the other. */
CYNORM_INLINE void FN(sum_in_memory)(wide *sums, cynorm_bn_rows in, const real *center, int64_t row, int rows, int backward,
                                     int masked) {
    const int line = 64 / sizeof(real);
    const char *x = in.x + row * in.x_step, *g = backward ? in.g + row * in.g_step : x;
    int64_t bit = in.bit + row * in.bit_step, left = in.n;
#define ADD(m)                                                                                               \
    do {                                                                                                     \
        const wide c = FN(wide_get)((const char *)center, CYNORM_COMPUTE, VL);                               \
        wide first = sums[0], second = sums[1];                                                              \
        for (int k = 0; k < rows; k++)                                                                       \
            FN(sum_vector)(&first, &second, x + k * in.x_step, g + k * in.g_step, in.mask, bit + k * in.bit_step, c, m, \
                           backward, masked, CYNORM_COMPUTE);                                                \
        sums[0] = first, sums[1] = second;                                                                   \
        sums += 2, center += VL, bit += VL, left -= VL;                                                      \
        x += VL * sizeof(real), g += VL * sizeof(real);                                                      \
    } while (0)
    while (left >= line) {
        for (int k = 0; k < rows; k++) __builtin_prefetch(x + k * in.x_step + in.x_ahead.by);
        for (int k = 0; k < rows && backward; k++) __builtin_prefetch(g + k * in.g_step + in.g_ahead.by);
        for (int j = 0; j < line; j += VL) ADD(VL);
    }
    while (left > 0) ADD(left < VL ? left : VL);
#undef ADD
}

CYNORM_INLINE void FN(sum_kept)(wide *sums, cynorm_bn_rows in, const real *center, const real *norm, int backward,
                                int masked, int dtype) {
    const int64_t block = CYNORM_BN_SUM_COLUMNS * VL;
    if (dtype == CYNORM_COMPUTE && in.n > block) {
        int64_t r = 0;
#define ADD(rows) FN(sum_in_memory)(sums, in, center, r, rows, backward, masked)
        for (; r + 4 <= in.count && in.together >= 4; r += 4) ADD(4);
        for (; r + 2 <= in.count && in.together >= 2; r += 2) ADD(2);
        for (; r < in.count; r++) ADD(1);
#undef ADD
        return;
    }
    for (int64_t r = 0, rows; r < in.count; r += rows) {
        rows = in.count - r < in.together ? in.count - r : in.together;
        int64_t i = 0;
#define ADD(columns, m) \
    FN(sum_columns)(sums, &in, center, norm, r, rows, i, columns, m, backward, masked, dtype)
        for (; i + block <= in.n; i += block) ADD(CYNORM_BN_SUM_COLUMNS, VL);
        for (; i + 2 * VL <= in.n; i += 2 * VL) ADD(2, VL);
        for (; i + VL <= in.n; i += VL) ADD(1, VL);
        if (i < in.n) ADD(1, in.n - i);
#undef ADD
    }
}

/* Prefetches ahead of n elements from the i-th of row r, of x and, where it is read, of g: into the second-level cache, where
 * results find them again. */
CYNORM_INLINE void FN(prefetch_reduced)(const cynorm_bn_rows *in, int64_t r, int64_t i, int64_t n, int g, int dtype) {
    const int64_t size = cynorm_itemsize(dtype);
    for (int64_t at = i * size; at < (i + n) * size; at += 64) {
        __builtin_prefetch(cynorm_bn_later(in->x + r * in->x_step + at, &in->x_ahead), 0, 2);
        if (g) __builtin_prefetch(cynorm_bn_later(in->g + r * in->g_step + at, &in->g_ahead), 0, 2);
    }
}

/* Adds each row to the two sums of its statistic, in two chains. */
CYNORM_INLINE void FN(sum_reduced)(wide *sums, cynorm_bn_rows in, const real *center, const real *norm, int backward,
                                   int masked, int dtype) {
    const int runs = FN(in_runs)(backward, dtype), step = 2 * VL;
    const int half = FN(half_of)(0, 2, dtype), other = FN(half_of)(1, 2, dtype);
    const int64_t left = in.n % VL; /* of each row, so that masks are the same */
    const int fetches = in.x_ahead.by || (backward && in.g_ahead.by);
    for (int64_t r = 0; r < in.count; r++, sums += 2) {
        wide first[2] = {sums[0]}, second[2] = {sums[1]};
        const vec c = FN(splat)(center[r]), factor = FN(splat)(runs ? norm[r] : 1);
        const wide pivot = FN(wide_splat)(center[r]), inverse = FN(wide_splat)(runs ? 1 / norm[r] : 1);
        for (int64_t i = 0, end; i < in.n; i = end) {
            vec part[2][2] = {{{0}}};
#define ADD(k, at, m, half)                                                                                  \
    if (runs)                                                                                                \
        FN(sum_products)(&part[0][k], &part[1][k], &in, r, (at) + FN(start_of)(k, half), c, factor, m, half, \
                         masked, dtype);                                                                     \
    else FN(sum_part)(&first[k], &second[k], &in, r, (at) + (k) * VL, pivot, m, backward, masked, dtype)
            end = runs && in.n - i > CYNORM_BN_RUN * step ? i + CYNORM_BN_RUN * step : in.n;
            for (; i + step <= end; i += step) {
                if (fetches) FN(prefetch_reduced)(&in, r, i, step, backward, dtype);
                ADD(0, i, VL, half);
                ADD(1, i, VL, other);
            }
            if (fetches) FN(prefetch_reduced)(&in, r, i, end - i, backward, dtype);
            if (i + VL <= end) {
                ADD(0, i, VL, CYNORM_BN_IN_ORDER);
                i += VL;
            }
            if (i < end) {
                ADD(1, i - VL, left, CYNORM_BN_IN_ORDER);
            }
#undef ADD
            if (runs) FN(add_run)(&first[0], &second[0], part[0][0] + part[0][1], part[1][0] + part[1][1], inverse);
        }
        sums[0] = FN(wide_add)(first[0], first[1]);
        sums[1] = FN(wide_add)(second[0], second[1]);
    }
}

/* ---- results ---- */

typedef struct {
    char *out;
    int64_t step;               /* from row to row, in bytes */
    const real *coefficient[4]; /* CENTER, FACTOR, TERM, GAIN; NULL: 1, or the form has none */
    unsigned char *mask;        /* where ReLU's bits go, or NULL: from `bit` on, rows bit_step apart */
    int64_t bit, bit_step;
    int64_t image, bit_image; /* from image to image, in bytes, of the mask in bits */
    int ahead, streaming;     /* whether inputs are prefetched, and out bypasses the cache */
} line;

static inline void FN(next_image)(line *l, cynorm_bn_rows *in) {
    cynorm_bn_next_image(in);
    l->out += l->image;
    l->bit += l->bit_image;
}

/* The coefficients of a vector of columns, or of row r, that the form has. */
CYNORM_INLINE void FN(coefficients)(vec *c, const line *l, int64_t at, int kept, int form) {
    for (int which = 0; which < 4; which++) {
        const real *p = l->coefficient[which];
        const int gain = which == CYNORM_GAIN;
        if (gain ? form < CYNORM_GRADIENT : form == CYNORM_SCALE) continue;
        c[which] = form == CYNORM_SCALE && !p ? FN(splat)(1) : kept ? FN(load)(p + at) : FN(splat)(p[at]);
    }
}

/* m elements from the i-th of row r:
 *     NORMALIZE      (x - center) * factor + term
 *     NORMALIZE_ADD  (x - center) * factor + term + g
 *     GRADIENT       gain * (g + term + (x - center) * factor)
 *     SCALE          gain * g
 * Gated: forward, ReLU follows, and *bits are those of what passes; backward, the mask comes first. */
CYNORM_INLINE vec FN(combine_vector)(const line *l, const cynorm_bn_rows *in, const vec *c, int64_t r,
                                     int64_t i, int64_t m, int half, uint64_t *bits, int ahead, int kept,
                                     int form, int gated, int dtype) {
    int64_t at = i * cynorm_itemsize(dtype);
    const char *x = in->x + r * in->x_step + at, *g = form != CYNORM_NORMALIZE ? in->g + r * in->g_step + at : NULL;
    int backward = form == CYNORM_GRADIENT || form == CYNORM_SCALE;
    vec y = {0};
    if (form != CYNORM_NORMALIZE) {
        if (ahead && !kept && half != 1) cynorm_bn_fetch(g, &in->g_ahead);
        y = backward && gated ? FN(get_passed)(g, in->mask, in->bit + r * in->bit_step + i, dtype, m, half)
                              : FN(get_in)(g, dtype, m, half);
    }
    if (ahead && !kept && half != 1 && form != CYNORM_SCALE) cynorm_bn_fetch(x, &in->x_ahead);
    if (form == CYNORM_GRADIENT) y += c[CYNORM_TERM];
    if (form != CYNORM_SCALE) {
        vec d = FN(get_in)(x, dtype, m, half) - c[CYNORM_CENTER], factor = c[CYNORM_FACTOR];
        if (form == CYNORM_GRADIENT) y = FN(fma)(d, factor, y);
        if (form == CYNORM_NORMALIZE) y = FN(fma)(d, factor, c[CYNORM_TERM]);
        if (form == CYNORM_NORMALIZE_ADD) y += FN(fma)(d, factor, c[CYNORM_TERM]);
    }
    if (backward) y *= c[CYNORM_GAIN];
    if (!backward && gated) {
        if (l->mask) *bits = FN(mask_bits)(y > 0) & ((1u << m) - 1);
        y = dtype == CYNORM_S8 ? FN(larger)(y, (vec){0}) : FN(select)(y <= 0, (vec){0}, y); /* of int8, NaN will be 0 */
    }
    return y;
}

/* The columns of a row from the i-th on: `columns` vectors or, if that is 0, the few before `end`. `held`: coefficients, of the
 * row or, where elements are kept, of each vector; or NULL. */
CYNORM_INLINE void FN(combine_columns)(const line *l, const cynorm_bn_rows *in, vec (*held)[4],
                                       int64_t r, int64_t i, int columns, int64_t end, int ahead, int kept, int form,
                                       int gated, int dtype) {
    const int size = (int)cynorm_itemsize(dtype), per_line = 64 / size / VL;
    vec own[4], y[CYNORM_BN_COLUMNS];
    char *out = l->out + r * l->step + i * size;
    uint64_t bits = 0, passed = 0;
    EACH_COLUMN {
        const int half = FN(half_of)(k, columns, dtype), at = FN(start_of)(k, half);
        if (kept && ahead && k * VL * size % 64 == 0)
            FN(prefetch_kept)(in, r, i + k * VL, form != CYNORM_SCALE, form != CYNORM_NORMALIZE, dtype);
        if (!held) FN(coefficients)(own, l, i + k * VL, kept, form);
        y[k] = FN(combine_vector)(l, in, held ? held[kept ? k : 0] : own, r, i + at, VL, half, &passed, ahead,
                                  kept, form, gated, dtype);
#if !CYNORM_DOUBLE
        if (half != CYNORM_BN_IN_ORDER) {
            bits |= (uint64_t)cynorm_spread_bits((unsigned)passed) << (at + half);
            if (half) FN(put_halves)(out + at * size, y[k - 1], y[k], ahead && l->streaming);
            continue;
        }
#endif
        bits |= passed << k * VL;
        if (dtype == CYNORM_S8 && columns == 4) continue;
        if (!ahead || !l->streaming) FN(put)(out + k * VL * size, y[k], dtype, VL);
        else if (per_line > columns) FN(put_streaming)(out + k * VL * size, y[k], dtype);
        else if (k % per_line == per_line - 1)
            FN(put_line)(out + (k + 1 - per_line) * VL * size, y + k + 1 - per_line, dtype, 1);
    }
#if !CYNORM_DOUBLE
    if (dtype == CYNORM_S8 && columns == 4) FN(put_four_s8)(out, y, !gated, ahead && l->streaming);
#endif
    const int64_t left = columns ? 0 : end - i;
    for (int64_t j = 0; j < left; j += VL) {
        int64_t m = left - j < VL ? left - j : VL;
        if (!held) FN(coefficients)(own, l, i + j, kept, form);
        y[0] = FN(combine_vector)(l, in, held ? held[0] : own, r, i + j, m, CYNORM_BN_IN_ORDER, &passed,
                                  ahead, kept, form, gated, dtype);
        bits |= passed << j;
        FN(put_or_stream)(out + j * size, y[0], dtype, m, ahead && l->streaming);
    }
    if (form < CYNORM_GRADIENT && gated && l->mask) {
        const int64_t n = columns ? columns * VL : left, joined = l->bit_step == in->n ? in->n : 0; /* rows are one run of bits */
        cynorm_put_bits(l->mask, l->bit + r * l->bit_step + i, bits, n, r * joined + i,
                        (in->count - 1 - r) * joined + in->n - i - n);
    }
}

/* Arguments by value, so that the compiler knows that stores do not change them. What bypasses the cache begins with a line: rows
 * of one statistic each from the first line in them on, others as they are given. */
CYNORM_INLINE void FN(combine_rows)(line l, cynorm_bn_rows in, int ahead, int kept, int form, int gated,
                                    int dtype) {
    const int64_t block = CYNORM_BN_COLUMNS * VL;
    vec held[2 * CYNORM_BN_COLUMNS][4];
#define EACH_ROW                                    \
    for (; in.images; FN(next_image)(&l, &in))      \
        for (int64_t r = 0; r < in.count; r++)
#define COMBINE(l, held, i, columns, end) \
    FN(combine_columns)(l, &in, held, r, i, columns, end, ahead, kept, form, gated, dtype)
#define COMBINE_HELD(columns, more) /* all coefficients stay in registers */                                 \
    do {                                                                                                     \
        for (int k = 0; k < columns + more; k++) FN(coefficients)(held[k], &l, k * VL, kept, form);          \
        EACH_ROW {                                                                                           \
            COMBINE(&l, held, 0, columns, in.n);                                                             \
            if (more) COMBINE(&l, held + columns, columns * VL, more, in.n);                                 \
        }                                                                                                    \
        return;                                                                                              \
    } while (0)
#if CYNORM_VBYTES == 64 /* of which there are 32 */
    if (kept && in.n == 2 * block) COMBINE_HELD(CYNORM_BN_COLUMNS, CYNORM_BN_COLUMNS);
    if (kept && in.n == block + 2 * VL) COMBINE_HELD(CYNORM_BN_COLUMNS, 2);
#endif
    if (kept && in.n == block) COMBINE_HELD(CYNORM_BN_COLUMNS, 0);
    if (kept && in.n == 2 * VL) COMBINE_HELD(2, 0);
    if (kept && in.n == VL) COMBINE_HELD(1, 0);
    EACH_ROW {
        line plain = l; /* of parts of lines, which other rows share: half a line past the cache would be a write of its own */
        plain.streaming = 0;
        int64_t i = 0, lines = in.n; /* up to where there are whole lines */
        if (!kept) FN(coefficients)(held[0], &l, r, kept, form);
        if (!kept && ahead && l.streaming) {
            char *row = l.out + r * l.step;
            const int64_t size = cynorm_itemsize(dtype), to_line = (-(intptr_t)row & 63) / size;
            if (to_line) {
                i = to_line < in.n ? to_line : in.n;
                __builtin_prefetch(row + in.n * size, 1); /* the rest of the last line is the next row's */
                COMBINE(&plain, held, 0, 0, i);
            }
            lines -= (in.n - i) % (64 / size);
        }
        for (; i + block <= lines; i += block) COMBINE(&l, kept ? NULL : held, i, CYNORM_BN_COLUMNS, in.n);
        if (i + 2 * VL <= lines) {
            COMBINE(&l, kept ? NULL : held, i, 2, in.n);
            i += 2 * VL;
        }
        if (i < lines) COMBINE(&l, kept ? NULL : held, i, 0, lines);
        if (lines < in.n) COMBINE(&plain, held, lines, 0, in.n);
    }
#undef COMBINE
#undef COMBINE_HELD
#undef EACH_ROW
}

/* ---- the loops above, for each storage type and case a function of its own: in one, pointers spill ---- */

typedef void FN(sum_loop)(wide *, const cynorm_bn_rows *, const real *center, const real *norm);
typedef void FN(combine_loop)(const line *, const cynorm_bn_rows *);

#define CYNORM_BN_SUM(T, rows, kept, backward, masked)                                                       \
    static __attribute__((noinline)) void FN(sum_##T##_##kept##backward##masked)(                            \
        wide *sums, const cynorm_bn_rows *in, const real *center, const real *norm) {                        \
        FN(rows)(sums, *in, center, norm, backward, masked, CYNORM_##T);                                     \
    }
#define CYNORM_BN_COMBINE(T, form, kept, gated)                                                              \
    static __attribute__((noinline)) void FN(combine_##T##_##form##kept##gated)(                             \
        const line *l, const cynorm_bn_rows *in) {                                                           \
        if (l->ahead) FN(combine_rows)(*l, *in, 1, kept, form, gated, CYNORM_##T);                           \
        else FN(combine_rows)(*l, *in, 0, kept, form, gated, CYNORM_##T);                                    \
    }
#define CYNORM_BN_FORM(T, form)                                                                              \
    CYNORM_BN_COMBINE(T, form, 0, 0)                                                                         \
    CYNORM_BN_COMBINE(T, form, 0, 1)                                                                         \
    CYNORM_BN_COMBINE(T, form, 1, 0)                                                                         \
    CYNORM_BN_COMBINE(T, form, 1, 1)
#define CYNORM_BN_FORM_OF(T, form)                                                                           \
    {{FN(combine_##T##_##form##00), FN(combine_##T##_##form##01)},                                           \
     {FN(combine_##T##_##form##10), FN(combine_##T##_##form##11)}}

/* sums: [type][kept][nothing else, diff_dst, diff_dst and mask]; combinations: [type][form][kept][gated] */
#define CYNORM_BN_LOOPS(T)                                                                                   \
    CYNORM_BN_SUM(T, sum_reduced, 0, 0, 0)                                                                   \
    CYNORM_BN_SUM(T, sum_reduced, 0, 1, 0)                                                                   \
    CYNORM_BN_SUM(T, sum_reduced, 0, 1, 1)                                                                   \
    CYNORM_BN_SUM(T, sum_kept, 1, 0, 0)                                                                      \
    CYNORM_BN_SUM(T, sum_kept, 1, 1, 0)                                                                      \
    CYNORM_BN_SUM(T, sum_kept, 1, 1, 1)                                                                      \
    CYNORM_BN_FORM(T, 0)                                                                                     \
    CYNORM_BN_FORM(T, 1)                                                                                     \
    CYNORM_BN_FORM(T, 2)                                                                                     \
    CYNORM_BN_FORM(T, 3)
#define CYNORM_BN_SUMS_OF(T)                                                                                 \
    [CYNORM_##T] = {{FN(sum_##T##_000), FN(sum_##T##_010), FN(sum_##T##_011)},                               \
                    {FN(sum_##T##_100), FN(sum_##T##_110), FN(sum_##T##_111)}},
#define CYNORM_BN_FORMS_OF(T)                                                                                \
    [CYNORM_##T] = {CYNORM_BN_FORM_OF(T, 0), CYNORM_BN_FORM_OF(T, 1), CYNORM_BN_FORM_OF(T, 2), CYNORM_BN_FORM_OF(T, 3)},
CYNORM_TYPES(CYNORM_BN_LOOPS)
static FN(sum_loop) *const FN(sum_loops)[][2][3] = {CYNORM_TYPES(CYNORM_BN_SUMS_OF)};
#if CYNORM_DOUBLE
#define CYNORM_BN_FORMS_OF_S8
#else /* inference alone */
CYNORM_BN_FORM(S8, 0)
CYNORM_BN_FORM(S8, 1)
#define CYNORM_BN_FORMS_OF_S8 [CYNORM_S8] = {CYNORM_BN_FORM_OF(S8, 0), CYNORM_BN_FORM_OF(S8, 1)}
#endif
static FN(combine_loop) *const FN(combine_loops)[][4][2][2] = {CYNORM_TYPES(CYNORM_BN_FORMS_OF) CYNORM_BN_FORMS_OF_S8};
#undef CYNORM_BN_FORMS_OF_S8
#undef CYNORM_BN_LOOPS
#undef CYNORM_BN_SUMS_OF
#undef CYNORM_BN_FORMS_OF
#undef CYNORM_BN_FORM_OF
#undef CYNORM_BN_FORM
#undef CYNORM_BN_COMBINE
#undef CYNORM_BN_SUM
#undef EACH_COLUMN
