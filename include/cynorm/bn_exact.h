/* Batch norm: vectors of doubles, and of numbers of twice their precision, in which statistics are made, whatever the data's type.
 * Part of the pass for double, see real.h. */

enum { CYNORM_BN_LANES = VL };

/* Numbers of twice double's precision, high + low, or high alone where that is infinite or NaN. */
typedef struct { vec high, low; } cynorm_exact;

static inline ivec cynorm_is_finite(vec v) { return v - v == 0; }

static inline cynorm_exact cynorm_exact_add(cynorm_exact a, cynorm_exact b) {
    vec s = a.high + b.high, t = s - a.high;
    vec low = (a.high - (s - t)) + (b.high - t) + (a.low + b.low), high = FN(select)(cynorm_is_finite(s), s + low, s);
    return (cynorm_exact){high, low - (high - s)};
}

#if defined(__FMA__) || defined(__FP_FAST_FMA)
#define CYNORM_FUSES 1
#else
#define CYNORM_FUSES 0
#endif

/* a * b + c, rounded once. */
static inline vec cynorm_exact_fma(vec a, vec b, vec c) {
#if CYNORM_FUSES
    return FN(fma)(a, b, c);
#else
    for (int i = 0; i < VL; i++) c[i] = fma(a[i], b[i], c[i]);
    return c;
#endif
}

static inline cynorm_exact cynorm_exact_multiply(cynorm_exact a, cynorm_exact b) {
    vec p = a.high * b.high;
    return (cynorm_exact){p, cynorm_exact_fma(a.high, b.high, -p) + (a.high * b.low + a.low * b.high)};
}

/* a / n, rounded as a division rounds it, given 1 / n as well, which is quicker. */
static inline vec cynorm_quotient(vec a, vec n, vec inverse) {
    if (!CYNORM_FUSES) return a / n;
    const vec q = a * inverse;
    return FN(select)(cynorm_is_finite(q), FN(fma)(FN(fma)(-q, n, a), inverse, q), q);
}

/* v^-1/2. */
static inline vec cynorm_exact_rsqrt(vec v) {
    if (!CYNORM_ESTIMATES || __builtin_expect(FN(any_abnormal)(v), 0)) return 1 / FN(sqrt)(v);
    return FN(rsqrt)(v, CYNORM_COMPUTE);
}

/* a / n, given 1 / n as well; exact where a is a multiple of n, so that a constant has variance 0. */
static inline cynorm_exact cynorm_exact_divide(cynorm_exact a, vec n, vec inverse) {
    vec q = cynorm_quotient(a.high, n, inverse);
    return (cynorm_exact){q, (cynorm_exact_fma(-q, n, a.high) + a.low) * inverse};
}

static inline cynorm_exact cynorm_exact_minus(cynorm_exact a) { return (cynorm_exact){-a.high, -a.low}; }

/* How many statistics there are from k on. */
static inline int64_t cynorm_bn_lanes(const cynorm_bn_unit *u, int64_t k) {
    return u->n - k < CYNORM_BN_LANES ? u->n - k : CYNORM_BN_LANES;
}

/* Of n vectors, in which a sum has n lanes, its upper half added to its lower one: half as many, the sums one after another;
 * `exact`: of both parts of numbers, or of `high` alone. */
CYNORM_INLINE void cynorm_halve_lanes(cynorm_exact *v, int n, int exact) {
#pragma GCC unroll 4
    for (int i = 0; i < n / 2; i++) {
        const cynorm_exact *a = &v[2 * i], *b = a + 1;
        ivec lower;
#pragma GCC unroll 8
        for (int j = 0; j < VL; j++) lower[j] = 2 * j / n * n + j % (n / 2);
        const ivec upper = lower + n / 2;
        cynorm_exact first = {FN(lanes_of)(a->high, b->high, lower), {0}}, second = {FN(lanes_of)(a->high, b->high, upper), {0}};
        if (exact) {
            first.low = FN(lanes_of)(a->low, b->low, lower), second.low = FN(lanes_of)(a->low, b->low, upper);
            v[i] = cynorm_exact_add(first, second);
        } else {
            v[i].high = first.high + second.high;
        }
    }
}

/* The sum of all lanes of each of VL vectors, which are spoilt. */
static inline cynorm_exact cynorm_sums_of_lanes(cynorm_exact *v, int exact) {
    if (VL >= 8) cynorm_halve_lanes(v, 8, exact);
    if (VL >= 4) cynorm_halve_lanes(v, 4, exact);
    cynorm_halve_lanes(v, 2, exact);
    return v[0];
}

/* Rounded to float and back. */
static inline vec cynorm_as_float(vec v) {
    float half[VL];
    store_f32_f64(half, v);
    return load_f32_f64(half);
}
