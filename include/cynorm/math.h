/* Vector arithmetic that belongs to no operator: fma, estimates, x^-beta. A template, see types.h. */

/* ---- what differs between instruction sets; of the min and max of two, the second is the answer beside a NaN, so that
 * clip keeps one; CYNORM_ESTIMATES: their bits, or 0 ---- */

#if defined(__AVX512F__)
#if CYNORM_DOUBLE
#define CYNORM_MM(op) _mm512_##op##_pd
#else
#define CYNORM_MM(op) _mm512_##op##_ps
#endif
static inline vec FN(fma)(vec a, vec b, vec c) { return (vec)CYNORM_MM(fmadd)(a, b, c); }
static inline vec FN(sqrt)(vec x) { return (vec)CYNORM_MM(sqrt)(x); }
static inline vec FN(rsqrt_estimate)(vec x) { return (vec)CYNORM_MM(rsqrt14)(x); }
static inline vec FN(reciprocal_estimate)(vec x) { return (vec)CYNORM_MM(rcp14)(x); }
static inline vec FN(clip)(vec x, vec low, vec high) { return (vec)CYNORM_MM(min)(high, CYNORM_MM(max)(low, x)); }
#undef CYNORM_MM
#define CYNORM_ESTIMATES 14
#elif defined(__SSE2__)
#if CYNORM_DOUBLE && defined(__AVX__)
#define CYNORM_MM(op) _mm256_##op##_pd
#elif CYNORM_DOUBLE
#define CYNORM_MM(op) _mm_##op##_pd
#elif defined(__AVX__)
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
static inline vec FN(clip)(vec x, vec low, vec high) { return (vec)CYNORM_MM(min)(high, CYNORM_MM(max)(low, x)); }
#if CYNORM_DOUBLE
#define CYNORM_ESTIMATES 0
#else
static inline vec FN(rsqrt_estimate)(vec x) { return (vec)CYNORM_MM(rsqrt)(x); }
static inline vec FN(reciprocal_estimate)(vec x) { return (vec)CYNORM_MM(rcp)(x); }
#define CYNORM_ESTIMATES 11
#endif
#undef CYNORM_MM
#else
static inline vec FN(fma)(vec a, vec b, vec c) {
#ifdef __FP_FAST_FMA
    for (int i = 0; i < VL; i++) c[i] = CYNORM_DOUBLE ? __builtin_fma(a[i], b[i], c[i]) : __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}
static inline vec FN(sqrt)(vec x) {
    for (int i = 0; i < VL; i++) x[i] = CYNORM_DOUBLE ? __builtin_sqrt(x[i]) : __builtin_sqrtf(x[i]);
    return x;
}
static inline vec FN(clip)(vec x, vec low, vec high) {
    return FN(select)(x < low, low, FN(select)(x > high, high, x));
}
#define CYNORM_ESTIMATES 0
#endif

#if CYNORM_DOUBLE
#define CYNORM_MANTISSA 52
#define CYNORM_BITS_MIN 0x0010000000000000
#define CYNORM_BITS_INF 0x7ff0000000000000
#define CYNORM_BITS_SQRT_HALF 0x3fe6a09e667f3bcd
#define CYNORM_BITS_MAGIC 0x4338000000000000
#define CYNORM_MAGIC 0x1.8p52
#define CYNORM_BIAS 1023
#else
#define CYNORM_MANTISSA 23
#define CYNORM_BITS_MIN 0x00800000
#define CYNORM_BITS_INF 0x7f800000
#define CYNORM_BITS_SQRT_HALF 0x3f3504f3
#define CYNORM_BITS_MAGIC 0x4b400000
#define CYNORM_MAGIC 0x1.8p23f
#define CYNORM_BIAS 127
#endif

/* Whether any lane is other than a positive, normal, finite number. */
static inline int FN(any_abnormal)(vec x) {
    uvec offset = (uvec)x - CYNORM_BITS_MIN;
#if defined(__AVX512F__) && CYNORM_DOUBLE
    return _mm512_cmpge_epu64_mask((__m512i)offset, _mm512_set1_epi64(CYNORM_BITS_INF - CYNORM_BITS_MIN)) != 0;
#elif defined(__AVX512F__)
    return _mm512_cmpge_epu32_mask((__m512i)offset, _mm512_set1_epi32(CYNORM_BITS_INF - CYNORM_BITS_MIN)) != 0;
#else
    uvec bad = (uvec)(offset >= CYNORM_BITS_INF - CYNORM_BITS_MIN);
#if defined(__AVX__)
    return _mm256_movemask_epi8((__m256i)bad) != 0;
#elif defined(__SSE2__)
    return _mm_movemask_epi8((__m128i)bad) != 0;
#else
    uint_r any = 0;
    for (int i = 0; i < VL; i++) any |= bad[i];
    return any != 0;
#endif
#endif
}

/* ---- estimates refined by a Newton step of second order; arguments positive, normal, finite. Without fma the residual
 * is not worth having, and true roots and quotients serve. ---- */

#if CYNORM_ESTIMATES && !defined(__FMA__)
#undef CYNORM_ESTIMATES
#define CYNORM_ESTIMATES 0
#endif

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

/* a * x^-3/4 by y ~ x^-1/2 and z ~ (x*y)^-1/2: y * z = x^-3/4 * (1-d)^1/4 * (1-e)^1/2, d = 1 - x*y^2, e = 1 - x*y*z^2.
 * Where the estimates have 14 bits, the squares of d and e are not worth having, and 1/x = y^2 * (1 + d + ...). */
CYNORM_INLINE vec FN(times_rsqrt_3_4)(vec a, vec x, int dtype, vec *reciprocal) {
#if CYNORM_ESTIMATES
    vec one = FN(splat)(1), y = FN(rsqrt_estimate)(x), u = x * y, z = FN(rsqrt_estimate)(u), w = y * z;
    if (FN(steps)(dtype) == 1 && CYNORM_ESTIMATES >= 14) {
        vec d = FN(fma)(-u, y, one), e = FN(fma)(-(u * z), z, one), square = y * y;
        *reciprocal = FN(fma)(square, d, square);
        return a * FN(fma)(w, FN(fma)(e, FN(splat)(0.5), d * 0.25f), w);
    }
    /* in one joint step: e = 1 - x^3 w^4; w * (1-e)^-1/4. t = x*w*w first: no product of it leaves the range of x */
    for (int step = 0; step < FN(steps)(dtype); step++) {
        vec t = (x * w) * w, e = FN(fma)(-(x * t), t, one);
        w = FN(fma)(w * e, FN(fma)(e, FN(splat)(0.15625), FN(splat)(0.25)), w);
    }
#else
    vec s = FN(sqrt)(x), cube = x * s, w = 1 / FN(sqrt)(cube);
    if (__builtin_expect(FN(any_abnormal)(cube), 0)) /* x^3/2 left the range: one rounding more, in those lanes */
        w = FN(select)((cube >= (vec)((ivec){0} + CYNORM_BITS_MIN)) & (cube < (vec)((ivec){0} + CYNORM_BITS_INF)), w, 1 / (s * FN(sqrt)(s)));
#endif
    *reciprocal = FN(reciprocal)(x, dtype);
    return a * w;
}

/* ---- x^-beta for any beta ---- */

/* a*b - p, where p = a*b rounded */
static inline vec FN(product_error)(vec a, vec b, vec p) {
#if defined(__FMA__) || defined(__FP_FAST_FMA)
    return FN(fma)(a, b, -p);
#else
    const real split = CYNORM_DOUBLE ? 0x1p27 + 1 : 0x1p12f + 1;
    vec ah = a * split, bh = b * split;
    ah -= ah - a;
    bh -= bh - b;
    vec al = a - ah, bl = b - bh;
    return al * bl - (((p - ah * bh) - al * bh) - ah * bl);
#endif
}

static inline vec FN(polynomial)(vec x, const real *c, int degree) {
    vec y[2] = {FN(splat)(c[degree]), FN(splat)(c[degree - 1])}, square = x * x; /* every other power: two short chains */
#pragma GCC unroll 32
    for (int i = degree - 2; i >= 0; i--) y[(degree - i) & 1] = FN(fma)(y[(degree - i) & 1], square, FN(splat)(c[i]));
    return FN(fma)(x, y[(degree - 1) & 1], y[degree & 1]);
}

#if CYNORM_DOUBLE
/* (log2(1+f) - f/ln 2) / f^2 on [sqrt(1/2) - 1, sqrt(2) - 1] and (2^r - 1) / r on [-1/2, 1/2], near-minimax */
static const real FN(log2_poly)[] = {
    -0.7213475204444817, 0.4808983469629879, -0.3606737602222437, 0.28853900817775274,
    -0.2404491734805174, 0.20609929156232548, -0.18033688024401134, 0.16029944852123057,
    -0.14426949482351814, 0.13115410796472543, -0.1202249576124127, 0.11097653547593604,
    -0.10304073727173449, 0.09617018859832474, -0.09029559049992468, 0.08512057523098189,
    -0.07916952859539197, 0.07282013167448312, -0.07468855785795736, 0.08645170942201384,
    -0.07754264385890679, 0.032578471039801014};
static const real FN(exp2_poly)[] = {
    0.6931471805599453, 0.24022650695910097, 0.0555041086648216, 0.009618129107606888,
    0.0013333558146416936, 0.0001540353044173605, 1.525273382983612e-05, 1.321544258792169e-06,
    1.0178062445845774e-07, 7.072585949269223e-09, 4.4549605981865186e-10};
#define CYNORM_LOG2_E_LOW 2.0355273740931033e-17
#define CYNORM_EXP2_LIMIT 2044
#else
static const real FN(log2_poly)[] = {
    -0.7213475108146667f, 0.4808982014656067f, -0.3606739044189453f, 0.2885598838329315f,
    -0.24046172201633453f, 0.20532894134521484f, -0.17919448018074036f, 0.17041310667991638f,
    -0.1667364239692688f, 0.09765637665987015f};
static const real FN(exp2_poly)[] = {
    0.6931471824645996f, 0.24022650718688965f, 0.055503569543361664f, 0.009618083015084267f,
    0.0013390863314270973f, 0.00015453163359779865f};
#define CYNORM_LOG2_E_LOW 1.9259629911e-8f
#define CYNORM_EXP2_LIMIT 252
#endif
#define CYNORM_LOG2_E ((real)1.4426950408889634074)
#define CYNORM_DEGREE(c) ((int)(sizeof(c) / sizeof(c[0])) - 1)

/* x * 2^e, e a whole number; in two halves, so that subnormal and overflowing results come out right */
static inline vec FN(scale)(vec x, vec e) {
#if defined(__AVX512F__) && CYNORM_DOUBLE
    return (vec)_mm512_scalef_pd((__m512d)x, (__m512d)e);
#elif defined(__AVX512F__)
    return (vec)_mm512_scalef_ps((__m512)x, (__m512)e);
#else
    ivec i = (ivec)(e + CYNORM_MAGIC) - CYNORM_BITS_MAGIC, half = i >> 1;
    return x * (vec)((half + CYNORM_BIAS) << CYNORM_MANTISSA) * (vec)((i - half + CYNORM_BIAS) << CYNORM_MANTISSA);
#endif
}

/* 2^(y * log2 x), the logarithm and its product with y = y_high + y_low carried in two parts. */
static inline vec FN(power_any)(vec x, real y_high, real y_low) {
    /* x = 2^e * (1+f), 1+f in [sqrt(1/2), sqrt(2)) */
    ivec bits = (ivec)x - CYNORM_BITS_SQRT_HALF;
    ivec exponent = bits >> CYNORM_MANTISSA;
    vec f = (vec)((bits & (((sint_r)1 << CYNORM_MANTISSA) - 1)) + CYNORM_BITS_SQRT_HALF) - 1;
    vec e = (vec)(exponent + CYNORM_BITS_MAGIC) - CYNORM_MAGIC;
    /* log2(1+f) = f/ln 2 + f^2 * polynomial = high + low, both sums kept whole */
    vec c = FN(splat)(CYNORM_LOG2_E), linear = f * c;
    vec curved = f * f * FN(polynomial)(f, FN(log2_poly), CYNORM_DEGREE(FN(log2_poly)));
    vec high = linear + curved;
    vec low = FN(fma)(f, FN(splat)(CYNORM_LOG2_E_LOW), FN(product_error)(f, c, linear) + (curved - (high - linear)));
    /* y * (e + high + low) = s + rest; a fast two-sum, for e is 0 or greater than high */
    vec y = FN(splat)(y_high);
    vec ye = y * e, yh = y * high, s = ye + yh;
    vec rest = (yh - (s - ye)) + FN(product_error)(y, e, ye) + FN(product_error)(y, high, yh);
    rest = FN(fma)(y, low, FN(fma)(FN(splat)(y_low), e + high, rest));
    s = FN(clip)(s, FN(splat)(-CYNORM_EXP2_LIMIT), FN(splat)(CYNORM_EXP2_LIMIT));
    vec whole = (s + CYNORM_MAGIC) - CYNORM_MAGIC, r = (s - whole) + rest;
    vec p = FN(fma)(r, FN(polynomial)(r, FN(exp2_poly), CYNORM_DEGREE(FN(exp2_poly))), FN(splat)(1));
    return FN(scale)(p, whole);
}

#ifndef CYNORM_BETA_KINDS
#define CYNORM_BETA_KINDS
/* The exponents with a kernel of their own; each loop over a row is compiled once per kind. */
enum { CYNORM_BETA_HALF, CYNORM_BETA_THREE_QUARTERS, CYNORM_BETA_ONE, CYNORM_BETA_ZERO, CYNORM_BETA_ANY };

static inline int cynorm_beta_kind(double beta) {
    if (beta == 0.5) return CYNORM_BETA_HALF;
    if (beta == 0.75) return CYNORM_BETA_THREE_QUARTERS;
    if (beta == 1.0) return CYNORM_BETA_ONE;
    return beta == 0.0 ? CYNORM_BETA_ZERO : CYNORM_BETA_ANY;
}
#endif

/* Negative, zero, subnormal and infinite bases, and NaN: libm's answer in these lanes alone, so that none other changes. */
static __attribute__((noinline)) vec FN(mend_power)(vec a, vec x, vec product, double y) {
    for (int i = 0; i < VL; i++)
        if (FN(any_abnormal)(FN(splat)(x[i]))) product[i] = a[i] * (real)pow((double)x[i], y);
    return product;
}

static __attribute__((noinline)) vec FN(mend_reciprocal)(vec x, vec reciprocal) {
    for (int i = 0; i < VL; i++)
        if (FN(any_abnormal)(FN(splat)(x[i]))) reciprocal[i] = 1 / x[i];
    return reciprocal;
}

/* a * x^-beta and, where asked for, 1/x, of any x */
CYNORM_INLINE vec FN(times_power)(vec a, vec x, int kind, double beta, int dtype, vec *reciprocal) {
    vec r = {0}, product;
    if (kind == CYNORM_BETA_THREE_QUARTERS) product = FN(times_rsqrt_3_4)(a, x, dtype, &r);
    else {
        r = FN(reciprocal)(x, dtype);
        product = a * (kind == CYNORM_BETA_HALF ? FN(rsqrt)(x, dtype)
                       : kind == CYNORM_BETA_ONE ? r
                       : kind == CYNORM_BETA_ZERO ? FN(splat)(1)
                       : FN(power_any)(x, (real)-beta, (real)(-beta - (real)-beta)));
    }
    if (__builtin_expect(FN(any_abnormal)(x), 0)) {
        product = FN(mend_power)(a, x, product, -beta);
        if (reciprocal) r = FN(mend_reciprocal)(x, r);
    }
    if (reciprocal) *reciprocal = r;
    return product;
}

/* ---- masks as bits ---- */

/* Bit i: whether lane i is true. */
static inline unsigned FN(mask_bits)(ivec mask) {
#if defined(__AVX512DQ__) && CYNORM_DOUBLE
    return _mm512_movepi64_mask((__m512i)mask);
#elif defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX__) && CYNORM_DOUBLE
    return (unsigned)_mm256_movemask_pd((__m256d)mask);
#elif defined(__AVX__)
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
#if defined(__AVX512F__) && CYNORM_DOUBLE
    return (vec)_mm512_maskz_mov_pd((__mmask8)bits, (__m512d)v);
#elif defined(__AVX512F__)
    return (vec)_mm512_maskz_mov_ps((__mmask16)bits, (__m512)v);
#else
    ivec lane;
    for (int i = 0; i < VL; i++) lane[i] = (sint_r)1 << i;
    return (vec)((ivec)v & ((((sint_r)bits - (ivec){0}) & lane) != 0));
#endif
}
