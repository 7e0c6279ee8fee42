/* Vector arithmetic that belongs to no operator: fma, estimates, x^-beta. A template, see types.h. */

/* ---- what differs between instruction sets; min and max give the second operand if either is a NaN, so that clip keeps a
 * NaN; CYNORM_ESTIMATES: the bits that estimates have at least, or 0 ---- */

#if defined(__SSE2__)
#if CYNORM_DOUBLE && CYNORM_VBYTES == 64
#define CYNORM_MM(op) _mm512_##op##_pd
#elif CYNORM_VBYTES == 64
#define CYNORM_MM(op) _mm512_##op##_ps
#elif CYNORM_DOUBLE && CYNORM_VBYTES == 32
#define CYNORM_MM(op) _mm256_##op##_pd
#elif CYNORM_DOUBLE
#define CYNORM_MM(op) _mm_##op##_pd
#elif CYNORM_VBYTES == 32
#define CYNORM_MM(op) _mm256_##op##_ps
#else
#define CYNORM_MM(op) _mm_##op##_ps
#endif
#ifdef __FMA__
static inline vec FN(fma)(vec a, vec b, vec c) { return (vec)CYNORM_MM(fmadd)(a, b, c); }
#else
static inline vec FN(fma)(vec a, vec b, vec c) { return a * b + c; }
#endif
static inline vec FN(sqrt)(vec x) { return (vec)CYNORM_MM(sqrt)(x); }
static inline vec FN(larger)(vec x, vec y) { return (vec)CYNORM_MM(max)(x, y); }
static inline vec FN(clip)(vec x, vec low, vec high) { return (vec)CYNORM_MM(min)(high, CYNORM_MM(max)(low, x)); }
#if CYNORM_VBYTES == 64
static inline vec FN(rsqrt_estimate)(vec x) { return (vec)CYNORM_MM(rsqrt14)(x); }
static inline vec FN(reciprocal_estimate)(vec x) { return (vec)CYNORM_MM(rcp14)(x); }
#define CYNORM_ESTIMATES 14
#elif CYNORM_DOUBLE || !defined(__FMA__) /* without FMA, the residual of an estimate is not worth having */
#define CYNORM_ESTIMATES 0
#else
static inline vec FN(rsqrt_estimate)(vec x) { return (vec)CYNORM_MM(rsqrt)(x); }
static inline vec FN(reciprocal_estimate)(vec x) { return (vec)CYNORM_MM(rcp)(x); }
#define CYNORM_ESTIMATES 11
#endif
#undef CYNORM_MM
#else
static inline vec FN(fma)(vec a, vec b, vec c) {
#if defined(__aarch64__) && CYNORM_DOUBLE /* where GCC makes scalars of a fifth of loops over lanes like those below */
    return (vec)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#elif defined(__aarch64__)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(__FP_FAST_FMA)
    vec sum = c;
    for (int i = 0; i < VL; i++) sum[i] = CYNORM_DOUBLE ? __builtin_fma(a[i], b[i], c[i]) : __builtin_fmaf(a[i], b[i], c[i]);
    return sum;
#else
    return a * b + c;
#endif
}
static inline vec FN(sqrt)(vec x) {
    for (int i = 0; i < VL; i++) x[i] = CYNORM_DOUBLE ? __builtin_sqrt(x[i]) : __builtin_sqrtf(x[i]);
    return x;
}
static inline vec FN(larger)(vec x, vec y) { return FN(select)(x > y, x, y); }
static inline vec FN(clip)(vec x, vec low, vec high) {
    return FN(select)(x < low, low, FN(select)(x > high, high, x));
}
#define CYNORM_ESTIMATES 0
#endif

#if CYNORM_DOUBLE
#define CYNORM_MANTISSA 52
#define CYNORM_BITS_MIN 0x0010000000000000
#define CYNORM_BITS_INF 0x7ff0000000000000
#define CYNORM_BITS_MAGIC 0x4338000000000000
#define CYNORM_MAGIC 0x1.8p52
#define CYNORM_BIAS 1023
#else
#define CYNORM_MANTISSA 23
#define CYNORM_BITS_MIN 0x00800000
#define CYNORM_BITS_INF 0x7f800000
#define CYNORM_BITS_MAGIC 0x4b400000
#define CYNORM_MAGIC 0x1.8p23f
#define CYNORM_BIAS 127
#endif

/* ---- masks as bits ---- */

/* Bit i: whether lane i is true. */
static inline unsigned FN(mask_bits)(ivec mask) {
#if CYNORM_VBYTES == 64 && CYNORM_DOUBLE
    return _mm512_movepi64_mask((__m512i)mask);
#elif CYNORM_VBYTES == 64
    return _mm512_movepi32_mask((__m512i)mask);
#elif CYNORM_VBYTES == 32 && CYNORM_DOUBLE
    return (unsigned)_mm256_movemask_pd((__m256d)mask);
#elif CYNORM_VBYTES == 32
    return (unsigned)_mm256_movemask_ps((__m256)mask);
#elif defined(__SSE2__) && CYNORM_DOUBLE
    return (unsigned)_mm_movemask_pd((__m128d)mask);
#elif defined(__SSE2__)
    return (unsigned)_mm_movemask_ps((__m128)mask);
#else
    unsigned bits = 0;
    for (int i = 0; i < VL; i++) bits |= (unsigned)(mask[i] & 1) << i;
    return bits;
#endif
}

/* v where a bit is set, else 0 */
static inline vec FN(where_bits)(unsigned bits, vec v) {
#if CYNORM_VBYTES == 64 && CYNORM_DOUBLE
    return (vec)_mm512_maskz_mov_pd((__mmask8)bits, (__m512d)v);
#elif CYNORM_VBYTES == 64
    return (vec)_mm512_maskz_mov_ps((__mmask16)bits, (__m512)v);
#else
    ivec lane;
    for (int i = 0; i < VL; i++) lane[i] = (sint_r)1 << i;
    return (vec)((ivec)v & ((((sint_r)bits - (ivec){0}) & lane) != 0));
#endif
}

/* ---- what is asked of lanes ---- */

static inline vec FN(abs)(vec x) { return (vec)((ivec)x & ~((ivec)(-(vec){0}))); }

/* Whether any lane of two vectors is not a positive, normal, finite number or, except with AVX-512, is so large that the
 * estimate of its reciprocal is flushed to 0. */
static inline int FN(either_abnormal)(vec x, vec y) {
#if CYNORM_VBYTES == 64 && CYNORM_DOUBLE
    return !_kortestz_mask8_u8(_mm512_fpclass_pd_mask((__m512d)x, 0xff), _mm512_fpclass_pd_mask((__m512d)y, 0xff));
#elif CYNORM_VBYTES == 64 /* every class of other numbers */
    return !_kortestz_mask16_u8(_mm512_fpclass_ps_mask((__m512)x, 0xff), _mm512_fpclass_ps_mask((__m512)y, 0xff));
#else
    const uint_r count = CYNORM_BITS_INF - CYNORM_BITS_MIN - ((uint_r)2 << CYNORM_MANTISSA); /* of numbers from the least on */
    return FN(mask_bits)((ivec)((uvec)x - CYNORM_BITS_MIN >= count) | (ivec)((uvec)y - CYNORM_BITS_MIN >= count)) != 0;
#endif
}

static inline int FN(any_abnormal)(vec x) { return FN(either_abnormal)(x, x); }

/* ---- estimates refined by a Newton step of second order; arguments positive, normal, finite ---- */

/* Newton steps to the precision of a data type. */
CYNORM_INLINE int FN(steps)(int dtype) {
    if (dtype == CYNORM_BF16 || (dtype == CYNORM_F16 && CYNORM_ESTIMATES >= 14)) return 0;
    return CYNORM_DOUBLE ? 2 : 1;
}

CYNORM_INLINE vec FN(reciprocal)(vec x, int dtype) {
#if CYNORM_ESTIMATES
    vec one = FN(splat)(1), r = FN(reciprocal_estimate)(x);
    if (!FN(steps)(dtype)) return r;
    if (CYNORM_DOUBLE) r = FN(fma)(r, FN(fma)(-x, r, one), r);
    vec e = FN(fma)(-x, r, one);
    return FN(fma)(r, FN(fma)(e, e, e), r);
#else
    (void)dtype;
    return 1 / x;
#endif
}

/* x^-1/2: y with e = 1 - x*y^2 small is y * (1-e)^-1/2 = y * (1 + e/2 + 3/8 e^2 + ...) */
CYNORM_INLINE vec FN(rsqrt)(vec x, int dtype) {
#if CYNORM_ESTIMATES
    vec y = FN(rsqrt_estimate)(x);
    for (int step = 0; step < FN(steps)(dtype); step++) {
        vec e = FN(fma)(-(x * y), y, FN(splat)(1));
        y = FN(fma)(y * e, FN(fma)(e, FN(splat)(0.375), FN(splat)(0.5)), y);
    }
    return y;
#else
    (void)dtype;
    return 1 / FN(sqrt)(x);
#endif
}

/* y ~ x^-1/2, z ~ y^-1/2 or, where no residual of them is taken, (x*y)^-1/2, and w ~ x^-3/4 */
typedef struct { vec y, z, w; } FN(estimated);
CYNORM_INLINE FN(estimated) FN(estimates_of)(vec x, int dtype) {
    FN(estimated) of = {{0}};
#if CYNORM_ESTIMATES
    of.y = FN(rsqrt_estimate)(x);
    of.z = FN(rsqrt_estimate)(FN(steps)(dtype) == 1 ? of.y : x * of.y);
    of.w = FN(steps)(dtype) == 1 ? of.y * of.y * of.z : of.y * of.z;
#else
    (void)x, (void)dtype;
#endif
    return of;
}

/* a * x^-3/4: with d = 1 - x*y^2 and e = 1 - y*z^2, which do not wait for each other,
 * 1/x = y^2 * (1-d)^-1 = y^2 * (1 + d + ...) and x^-3/4 = y^2 * z * (1-d)^-3/4 * (1-e)^-1/2 = y^2 * z * (1 + d*3/4 + e/2 + ...).
 * Squares are worth having where the estimates are of 12 bits and results of 24: d + d^2 in place of d, and e/2 times the sum.
 * `exact`: with what y^2 * z lost in rounding. */
CYNORM_INLINE vec FN(times_rsqrt_3_4)(vec a, vec x, FN(estimated) of, int dtype, int exact, vec *reciprocal) {
#if CYNORM_ESTIMATES
    vec one = FN(splat)(1), w = of.w;
    if (FN(steps)(dtype) == 1) {
        const int squares = CYNORM_ESTIMATES < 14 && dtype == CYNORM_COMPUTE;
        vec square = of.y * of.y;
        vec half_z = (vec)((ivec)of.z - ((sint_r)1 << CYNORM_MANTISSA)); /* not in the pipes that multiply */
        vec d = FN(fma)(-x, square, one), half_e = FN(fma)(-(of.y * of.z), half_z, FN(splat)(0.5));
        if (squares) d = FN(fma)(d, d, d);
        *reciprocal = FN(fma)(d, square, square);
        vec sum = FN(fma)(d, FN(splat)(0.75), half_e);
        if (squares) sum = FN(fma)(sum, half_e, sum);
        if (exact) return a * (w + FN(fma)(sum, w, FN(fma)(square, of.z, -w)));
        return a * FN(fma)(sum, w, w);
    }
    /* in one joint step: e = 1 - x^3 w^4; w * (1-e)^-1/4. t = x*w*w first: no product of it leaves the range of x */
    for (int step = 0; step < FN(steps)(dtype); step++) {
        vec t = (x * w) * w, e = FN(fma)(-(x * t), t, one);
        w = FN(fma)(w * e, FN(fma)(e, FN(splat)(0.15625), FN(splat)(0.25)), w);
    }
    *reciprocal = FN(reciprocal)(x, dtype);
    return a * w;
#else
    vec root = FN(sqrt)(x), cube = x * root, power = FN(sqrt)(cube); /* x^1/2, x^3/2, x^3/4 */
    (void)of, (void)exact;
    if (__builtin_expect(FN(any_abnormal)(cube), 0)) /* x^3/2 left the range: one rounding more, in those lanes */
        power = FN(select)((cube >= (vec)((ivec){0} + CYNORM_BITS_MIN)) & (cube < (vec)((ivec){0} + CYNORM_BITS_INF)), power,
                           root * FN(sqrt)(root));
    *reciprocal = FN(reciprocal)(x, dtype);
    return a / power;
#endif
}

/* ---- x^-beta for any beta ---- */

/* a*b - p, where p = a*b rounded */
static inline vec FN(product_error)(vec a, vec b, vec p) {
#if defined(__FMA__) || defined(__FP_FAST_FMA)
    return FN(fma)(a, b, -p);
#else
    const ivec low_half = (ivec){0} + (((sint_r)1 << (CYNORM_DOUBLE ? 27 : 12)) - 1);
    const vec ah = (vec)((ivec)a & ~low_half), bh = (vec)((ivec)b & ~low_half), al = a - ah, bl = b - bh;
    return al * bl - (((p - ah * bh) - al * bh) - ah * bl);
#endif
}

static inline vec FN(polynomial)(vec x, const real *c, int degree) {
    vec y[2] = {FN(splat)(c[degree]), FN(splat)(c[degree - 1])}, square = x * x; /* every other power: two short chains */
#pragma GCC unroll 32
    for (int i = degree - 2; i >= 0; i--) y[(degree - i) & 1] = FN(fma)(y[(degree - i) & 1], square, FN(splat)(c[i]));
    return FN(fma)(x, y[(degree - 1) & 1], y[degree & 1]);
}

/* log2(1+z) / z on [-0.0333, 0.0333], of float on [-1/16, 1/16], and (2^r - 1) / r on [-1/2, 1/2], near-minimax, the former of the
 * error times z */
#if CYNORM_DOUBLE
static const real FN(log2_poly)[] = {
    1.4426950408889634, -0.7213475204444684, 0.4808983469630793, -0.36067376034642984, 0.2885390081258099,
    -0.2404488236817214, 0.20609906750444063, -0.18072076430426914, 0.16063564087541854};
static const real FN(exp2_poly)[] = {
    0.6931471805599453, 0.24022650695910097, 0.0555041086648216, 0.009618129107606888,
    0.0013333558146416936, 0.0001540353044173605, 1.525273382983612e-05, 1.321544258792169e-06,
    1.0178062445845774e-07, 7.072585949269223e-09, 4.4549605981865186e-10};
#else
static const real FN(log2_poly)[] = {
    1.4426950216293335f, -0.7213466763496399f, 0.480922639369964f, -0.3616610169410706f, 0.2820972502231598f};
static const real FN(exp2_poly)[] = {
    0.6931471824645996f, 0.24022650718688965f, 0.055503569543361664f, 0.009618083015084267f,
    0.0013390863314270973f, 0.00015453163359779865f};
#endif
/* Of each 1 + j/16, in float of every other one: the reciprocal q, in so few bits that m * q - 1 is exact for m next to it, and
 * -log2(q) - j/16. Those of 1 are exact, so that logarithms of numbers near 1 keep their digits. */
#if CYNORM_DOUBLE
#define CYNORM_PARTS 4 /* log2 of their number */
static const real FN(reciprocals)[16] __attribute__((aligned(64))) = {
    1, 60 / 64., 57 / 64., 54 / 64., 51 / 64., 49 / 64., 47 / 64., 45 / 64.,
    43 / 64., 41 / 64., 39 / 64., 38 / 64., 37 / 64., 35 / 64., 34 / 64., 33 / 64.};
static const real FN(logarithms)[16] __attribute__((aligned(64))) = {
    0, 0.030609404391481472, 0.04210998583525832, 0.057612497836531454, 0.07757465802850441, 0.07279015588479179,
    0.07041114832236263, 0.07064690367032529, 0.07373524529790206, 0.07994799538191631, 0.08959778113775166, 0.06457248655641451,
    0.040546634371050216, 0.05821698305503355, 0.03753715874966059, 0.018105880641546564};
#else
#define CYNORM_PARTS 3
static const real FN(reciprocals)[8] __attribute__((aligned(32))) = {
    1, 57 / 64.f, 51 / 64.f, 47 / 64.f, 43 / 64.f, 39 / 64.f, 37 / 64.f, 34 / 64.f};
static const real FN(logarithms)[8] __attribute__((aligned(32))) = {
    0, 0.04210998583525832f, 0.07757465802850441f, 0.07041114832236263f,
    0.07373524529790206f, 0.08959778113775166f, 0.040546634371050216f, 0.03753715874966059f};
#endif
#define CYNORM_LOG2_E ((real)1.4426950408889634074)
#define CYNORM_DEGREE(c) ((int)(sizeof(c) / sizeof(c[0])) - 1)

/* table[i mod 2^CYNORM_PARTS] */
static inline vec FN(lookup)(const real *table, ivec i) {
#if CYNORM_VBYTES == 64 && CYNORM_DOUBLE
    return (vec)_mm512_permutex2var_pd(_mm512_load_pd(table), (__m512i)i, _mm512_load_pd(table + 8));
#elif CYNORM_VBYTES == 64
    return (vec)_mm512_permutexvar_ps((__m512i)i, _mm512_broadcast_f32x8(_mm256_load_ps(table)));
#elif CYNORM_VBYTES == 32 && !CYNORM_DOUBLE
    return (vec)_mm256_permutevar8x32_ps(_mm256_load_ps(table), (__m256i)i);
#else
    vec v;
    for (int k = 0; k < VL; k++) v[k] = table[i[k] & ((1 << CYNORM_PARTS) - 1)];
    return v;
#endif
}

/* m * q - 1, rounded once, for q of so few bits that its product with half of m's bits is exact */
static inline vec FN(times_less_one)(vec m, vec q) {
#if defined(__FMA__) || defined(__FP_FAST_FMA)
    return FN(fma)(m, q, FN(splat)(-1));
#else
    vec high = (vec)((ivec)m & ~((ivec){0} + 0xfff));
    return (high * q - 1) + (m - high) * q;
#endif
}

/* x * 2^e, e a whole number up to 2 * (CYNORM_BIAS - 1) either way; in two halves, so that subnormal and overflowing results come
 * out right. */
static inline vec FN(scale)(vec x, vec e) {
#if CYNORM_VBYTES == 64 && CYNORM_DOUBLE
    return (vec)_mm512_scalef_pd((__m512d)x, (__m512d)e);
#elif CYNORM_VBYTES == 64
    return (vec)_mm512_scalef_ps((__m512)x, (__m512)e);
#else
    ivec i = (ivec)(e + CYNORM_MAGIC) - CYNORM_BITS_MAGIC, half = i >> 1;
    return x * (vec)((half + CYNORM_BIAS) << CYNORM_MANTISSA) * (vec)((i - half + CYNORM_BIAS) << CYNORM_MANTISSA);
#endif
}

/* Several vectors at once, where a chain of instructions is longer than a core sees ahead: each step is taken for all of
 * them before the next. */
#define CYNORM_TOGETHER 4 /* at most */
#define CYNORM_EACH _Pragma("GCC unroll 4") for (int k = 0; k < n; k++)

CYNORM_INLINE void FN(polynomials)(vec *y, const vec *x, int n, const real *c, int degree) {
    CYNORM_EACH y[k] = FN(splat)(c[degree]);
#pragma GCC unroll 32
    for (int i = degree - 1; i >= 0; i--) CYNORM_EACH y[k] = FN(fma)(y[k], x[k], FN(splat)(c[i]));
}

/* x = 2^e * m, m next to 1 + j * 2^-CYNORM_PARTS, from half a part below 1 on: m, and e * 2^CYNORM_PARTS + j as a whole number, and
 * as part of log2 x. If x is no positive, normal, finite number, the latter is CYNORM_BIAS - 1 or more, either way. */
CYNORM_INLINE ivec FN(bits_above)(vec x) { /* 1, and half a part */
    const sint_r one = (sint_r)CYNORM_BIAS << CYNORM_MANTISSA, half_part = (sint_r)1 << (CYNORM_MANTISSA - CYNORM_PARTS - 1);
    return (ivec)x - (one - half_part);
}
CYNORM_INLINE vec FN(mantissa_of)(vec x) {
    return (vec)((ivec)x - (FN(bits_above)(x) >> CYNORM_MANTISSA << CYNORM_MANTISSA));
}
CYNORM_INLINE ivec FN(parts_of)(vec x) { return FN(bits_above)(x) >> (CYNORM_MANTISSA - CYNORM_PARTS); }
CYNORM_INLINE vec FN(log2_of_parts)(ivec parts) {
    const sint_r magic = CYNORM_BITS_MAGIC - ((sint_r)CYNORM_PARTS << CYNORM_MANTISSA); /* the bits of CYNORM_MAGIC in parts */
    return (vec)(parts + magic) - CYNORM_MAGIC / (1 << CYNORM_PARTS);
}

/* 2^(y * log2 x) of n vectors, |y| <= CYNORM_BETA_MOST, if in range. log2 x = a + b, a whole number of parts and a rest of less
 * than 1/6. y_high has so few bits that y_high * a is exact, and the rest of y * log2 x is small, so that no sum need be
 * carried in two parts. */
CYNORM_INLINE void FN(powers_any)(vec *p, const vec *x, int n, double y, int dtype) {
    const int spare = dtype == CYNORM_BF16 ? 2 : dtype == CYNORM_F16; /* terms of either polynomial that such results do not need */
    const ivec low_bits = (ivec){0} + (((sint_r)1 << (CYNORM_DOUBLE ? 15 : 12)) - 1);
    const vec y_all = FN(splat)((real)y), y_high = (vec)((ivec)y_all & ~low_bits);
    const vec y_low = FN(splat)((real)(y - (double)y_high[0]));
    ivec i[CYNORM_TOGETHER];
    vec z[CYNORM_TOGETHER], a[CYNORM_TOGETHER], b[CYNORM_TOGETHER], rest[CYNORM_TOGETHER];
    vec moved[CYNORM_TOGETHER], r[CYNORM_TOGETHER];
    CYNORM_EACH i[k] = FN(parts_of)(x[k]);
    CYNORM_EACH z[k] = FN(times_less_one)(FN(mantissa_of)(x[k]), FN(lookup)(FN(reciprocals), i[k]));
    CYNORM_EACH a[k] = FN(log2_of_parts)(i[k]);
    FN(polynomials)(b, z, n, FN(log2_poly), CYNORM_DEGREE(FN(log2_poly)) - spare);
    CYNORM_EACH b[k] = FN(fma)(z[k], b[k], FN(lookup)(FN(logarithms), i[k]));
    CYNORM_EACH rest[k] = FN(fma)(y_all, b[k], y_low * a[k]);
    CYNORM_EACH moved[k] = FN(fma)(y_high, a[k], rest[k]) + CYNORM_MAGIC; /* its bits end in a whole number, next to y * log2 x */
    CYNORM_EACH r[k] = FN(fma)(y_high, a[k], CYNORM_MAGIC - moved[k]) + rest[k];
    FN(polynomials)(p, r, n, FN(exp2_poly), CYNORM_DEGREE(FN(exp2_poly)) - spare);
    CYNORM_EACH p[k] = FN(fma)(p[k], r[k], FN(splat)(1));
    CYNORM_EACH p[k] = (vec)((ivec)p[k] + ((ivec)moved[k] << CYNORM_MANTISSA));
}

#ifndef CYNORM_BETA_KINDS
#define CYNORM_BETA_KINDS
#define CYNORM_BETA_MOST 128 /* beyond it, rounding of the logarithm would spoil its powers */
/* The exponents with a kernel of their own; those that are libm's; and all others. */
enum { CYNORM_BETA_HALF, CYNORM_BETA_THREE_QUARTERS, CYNORM_BETA_ONE, CYNORM_BETA_ZERO, CYNORM_BETA_HUGE, CYNORM_BETA_ANY };

static inline int cynorm_beta_kind(double beta) {
    if (beta == 0.5) return CYNORM_BETA_HALF;
    if (beta == 0.75) return CYNORM_BETA_THREE_QUARTERS;
    if (beta == 1.0) return CYNORM_BETA_ONE;
    if (beta == 0.0) return CYNORM_BETA_ZERO;
    return fabs(beta) <= CYNORM_BETA_MOST ? CYNORM_BETA_ANY : CYNORM_BETA_HUGE;
}

/* The same where it is known not to be CYNORM_BETA_ANY, which saves that kind's code. */
static inline int cynorm_special_beta(double beta) {
    const int kind = cynorm_beta_kind(beta);
    if (kind == CYNORM_BETA_ANY) __builtin_unreachable();
    return kind;
}
#endif

/* Where the estimates w of exponent 3/4 tell whether a power is to be mended: their sum, of fewer than 2^33 vectors, is not
 * finite if and only if a base is no positive, normal, finite number. This takes fewer instructions than testing each two
 * bases, and a loop may test late. AVX-512's estimates take subnormal numbers, too. From 2^126 on, y^2 is subnormal: where
 * subnormal numbers are flushed to 0, so are the power and 1/x, with either. */
#define CYNORM_ESTIMATES_TELL (CYNORM_VBYTES == 32 && CYNORM_ESTIMATES && !CYNORM_DOUBLE)
static inline int FN(not_finite)(vec estimates) {
#if CYNORM_ESTIMATES_TELL
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)estimates, (__m256)FN(splat)(INFINITY), _CMP_NLT_UQ)) != 0;
#else
    (void)estimates;
    return 0;
#endif
}

/* Whether powers tell if one of them is to be mended; what they tell: their estimates or, for any exponent, the logarithms of their
 * bases' parts, less than 1/6 from the bases' own (powers_any); what two of them tell; and whether one is to be mended. Up to
 * `most`, powers are in range, whatever they are rounded to. */
CYNORM_INLINE int FN(powers_tell)(int kind) {
    return kind == CYNORM_BETA_ANY || (CYNORM_ESTIMATES_TELL && kind == CYNORM_BETA_THREE_QUARTERS);
}
CYNORM_INLINE vec FN(told_of)(vec x, int kind) {
    if (kind == CYNORM_BETA_ANY) return FN(abs)(FN(log2_of_parts)(FN(parts_of)(x)));
    return FN(estimates_of)(x, CYNORM_COMPUTE).w;
}
CYNORM_INLINE vec FN(told_of_both)(vec x, vec y, int kind) { return kind == CYNORM_BETA_ANY ? FN(larger)(x, y) : x + y; }
CYNORM_INLINE int FN(told_to_mend)(vec told, int kind, double beta) {
    if (kind != CYNORM_BETA_ANY) return FN(not_finite)(told);
    const double most = (CYNORM_BIAS - 2) / (fabs(beta) > 1 ? fabs(beta) : 1) - 1 / 6.;
    return FN(mask_bits)(told > FN(splat)((real)most)) != 0;
}

/* Whether the power of any lane of two vectors is to be mended: negative, zero, subnormal and infinite bases, NaN, and bases
 * whose power is out of range, though its product with a may not be. */
CYNORM_INLINE int FN(either_to_mend)(vec x, vec y, int kind, double beta) {
    if (kind == CYNORM_BETA_HUGE) return 1;
    if (!FN(powers_tell)(kind)) return FN(either_abnormal)(x, y);
    return FN(told_to_mend)(FN(told_of_both)(FN(told_of)(x, kind), FN(told_of)(y, kind), kind), kind, beta);
}

/* product = a * x^-beta: libm's answer, only in the lanes to mend, so that no other lane changes. */
static __attribute__((noinline)) vec FN(mend_power)(vec a, vec x, vec product, double beta) {
    for (int i = 0; i < VL; i++) {
        if (!FN(either_to_mend)(FN(splat)(x[i]), FN(splat)(x[i]), cynorm_beta_kind(beta), beta)) continue;
        /* by the root, whose square may leave the range where the product does not; of negative bases the sign, or NaN, is pow's */
        const double root = pow(fabs((double)x[i]), -beta / 2), power = signbit(x[i]) ? pow((double)x[i], -beta) : 1;
        product[i] = (real)(a[i] * root * (power == power ? copysign(root, power) : power));
    }
    return product;
}

/* Likewise 1/x, which may be in range where the power is not. */
static __attribute__((noinline)) vec FN(mend_reciprocal)(vec x, vec reciprocal, double beta) {
    const int kind = cynorm_beta_kind(beta);
    for (int i = 0; i < VL; i++) {
        const vec all = FN(splat)(x[i]);
        const int usual = kind == CYNORM_BETA_THREE_QUARTERS;
        if (usual ? FN(either_to_mend)(all, all, kind, beta) : FN(any_abnormal)(all)) reciprocal[i] = 1 / x[i];
    }
    return reciprocal;
}

CYNORM_INLINE void FN(mend)(vec *out, vec a, vec x, int both, vec *reciprocal, double beta) {
    *out = FN(mend_power)(a, x, *out, beta);
    if (both) *reciprocal = FN(mend_reciprocal)(x, *reciprocal, beta);
}

/* out = a * x^-beta of n vectors and, if asked for, 1/x, for any x; or, where powers tell and `told` is given, for x that are not
 * to be mended: `told` is then what all of them tell. */
CYNORM_INLINE void FN(times_powers)(vec *out, const vec *a, const vec *x, int n, int kind, double beta, int dtype,
                                    vec *reciprocal, vec *told) {
    vec r[CYNORM_TOGETHER], own = {0};
    if (kind == CYNORM_BETA_THREE_QUARTERS) CYNORM_EACH {
        const FN(estimated) of = FN(estimates_of)(x[k], dtype);
        out[k] = FN(times_rsqrt_3_4)(a[k], x[k], of, dtype, !reciprocal && dtype == CYNORM_COMPUTE, &r[k]);
        own = k ? own + of.w : of.w;
    } else if (kind == CYNORM_BETA_HALF) CYNORM_EACH {
        const vec y = FN(rsqrt)(x[k], dtype);
        r[k] = y * y, out[k] = a[k] * y;
    } else {
        if (kind == CYNORM_BETA_ANY) {
            FN(powers_any)(out, x, n, -beta, dtype);
            CYNORM_EACH own = FN(told_of_both)(own, FN(told_of)(x[k], kind), kind);
        }
        CYNORM_EACH r[k] = FN(reciprocal)(x[k], dtype);
        CYNORM_EACH out[k] = a[k] * (kind == CYNORM_BETA_ONE ? r[k]
                                     : kind == CYNORM_BETA_ZERO ? FN(splat)(1)
                                     : kind == CYNORM_BETA_ANY ? out[k]
                                     : x[k]); /* to be mended */
    }
    if (FN(powers_tell)(kind)) {
        if (told) *told = FN(told_of_both)(*told, own, kind);
        else if (__builtin_expect(FN(told_to_mend)(own, kind, beta), 0))
            CYNORM_EACH FN(mend)(&out[k], a[k], x[k], reciprocal != NULL, &r[k], beta);
    } else {
#pragma GCC unroll 2
        for (int j = 0; j < n; j += 2) {
            const int both = j + 1 < n;
            if (!__builtin_expect(FN(either_to_mend)(x[j], x[j + both], kind, beta), 0)) continue;
#pragma GCC unroll 2
            for (int k = j; k <= j + both; k++) FN(mend)(&out[k], a[k], x[k], reciprocal != NULL, &r[k], beta);
        }
    }
    if (reciprocal) CYNORM_EACH reciprocal[k] = r[k];
}

CYNORM_INLINE vec FN(times_power)(vec a, vec x, int kind, double beta, int dtype) {
    vec out;
    FN(times_powers)(&out, &a, &x, 1, kind, beta, dtype, NULL, NULL);
    return out;
}
