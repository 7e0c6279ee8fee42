/* Exponentials, and the functions made of them that activations need. A template, see types.h.
 *
 * All are within 2.5 ulp and take any argument: infinities and NaN, results that overflow or are subnormal.
 */

/* (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2] and (log2(1+f) - f/ln 2) / f^2 on [sqrt(1/2) - 1, sqrt(2) - 1],
 * near-minimax */
#if CYNORM_DOUBLE
static const real FN(exp_poly)[] = {
    0.5, 0.16666666666666669, 0.04166666666666667, 0.008333333333326025, 0.001388888888888367,
    0.00019841269875205077, 2.4801587325822283e-05, 2.75572549134867e-06, 2.7557273295539724e-07,
    2.5105419192016337e-08, 2.091483135138041e-09};
static const real FN(log1p_poly)[] = {
    -0.7213475204444817, 0.4808983469629879, -0.3606737602222437, 0.28853900817775274,
    -0.2404491734805174, 0.20609929156232548, -0.18033688024401134, 0.16029944852123057,
    -0.14426949482351814, 0.13115410796472543, -0.1202249576124127, 0.11097653547593604,
    -0.10304073727173449, 0.09617018859832474, -0.09029559049992468, 0.08512057523098189,
    -0.07916952859539197, 0.07282013167448312, -0.07468855785795736, 0.08645170942201384,
    -0.07754264385890679, 0.032578471039801014};
#define CYNORM_LN_2_HIGH 0x1.62e42fefp-1 /* times any exponent, exact */
#define CYNORM_LN_2_LOW 7.440617110012397e-11
#define CYNORM_EXP_MIN -746.0 /* e^x rounds to 0 */
#define CYNORM_EXP_MAX 709.9  /* e^x is infinite, its exponent at most that of the largest number plus 1 */
#define CYNORM_EXPM1_MIN -40.0 /* e^x - 1 rounds to -1 */
#define CYNORM_TANH_MAX 20.0   /* tanh x rounds to 1 */
#else
static const real FN(exp_poly)[] = {
    0.5f, 0.1666666716337204f, 0.04166662320494652f, 0.00833331048488617f, 0.0013933820882812142f,
    0.00019891180272679776f};
static const real FN(log1p_poly)[] = {
    -0.7213475108146667f, 0.4808982014656067f, -0.3606739044189453f, 0.2885598838329315f,
    -0.24046172201633453f, 0.20532894134521484f, -0.17919448018074036f, 0.17041310667991638f,
    -0.1667364239692688f, 0.09765637665987015f};
#define CYNORM_LN_2_HIGH 0.693359375f
#define CYNORM_LN_2_LOW -0.00021219444170128554f
#define CYNORM_EXP_MIN -104.0f
#define CYNORM_EXP_MAX 88.8f
#define CYNORM_EXPM1_MIN -18.0f
#define CYNORM_TANH_MAX 10.0f
#endif

/* x = exponent * ln 2 + r, |r| <= ln 2 / 2; returns r, rounded, and e^r - 1 - r plus r's error in *rest. */
static inline vec FN(exp_reduce)(vec x, vec *exponent, vec *rest) {
    vec n = FN(fma)(x, FN(splat)(CYNORM_LOG2_E), FN(splat)(CYNORM_MAGIC)) - CYNORM_MAGIC;
    vec high = FN(fma)(-n, FN(splat)(CYNORM_LN_2_HIGH), x), low = n * CYNORM_LN_2_LOW, r = high - low;
    *exponent = n;
    *rest = FN(fma)(r * r, FN(polynomial)(r, FN(exp_poly), CYNORM_DEGREE(FN(exp_poly))), (high - r) - low);
    return r;
}

/* Of x in [CYNORM_EXP_MIN, CYNORM_EXP_MAX], or NaN. */
static inline vec FN(exp_within)(vec x) {
    vec exponent, rest, r = FN(exp_reduce)(x, &exponent, &rest);
    return FN(scale)(1 + (r + rest), exponent);
}

static inline vec FN(exp)(vec x) { return FN(exp_within)(FN(clip)(x, FN(splat)(CYNORM_EXP_MIN), FN(splat)(CYNORM_EXP_MAX))); }

/* e^-|x| */
static inline vec FN(exp_of_minus_abs)(vec x) {
    const vec falling = (vec)((ivec)x | (ivec)(-(vec){0}));
    return FN(exp_within)(FN(larger)(FN(splat)(CYNORM_EXP_MIN), falling));
}

/* e^x - 1 = 2 * (2^n (r + rest) + 2^n - 1/2), n being the exponent less 1, so that 2^n does not overflow. */
static inline vec FN(expm1)(vec x) {
    vec exponent, rest, clipped = FN(clip)(x, FN(splat)(CYNORM_EXPM1_MIN), FN(splat)(CYNORM_EXP_MAX));
    vec r = FN(exp_reduce)(clipped, &exponent, &rest);
    vec half = FN(scale)(FN(splat)((real)0.5), exponent);
    return 2 * FN(fma)(half, rest, FN(fma)(half, r, half - (real)0.5));
}

/* log(1 + x), of x in [0, 1] alone: 1 + x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)) */
static inline vec FN(log1p)(vec x) {
    ivec large = x > (real)0.41421356237309504880;
    vec f = FN(select)(large, (x - 1) * (real)0.5, x);
    vec curved = f * f * (real)0.69314718055994530942 *
                 FN(polynomial)(f, FN(log1p_poly), CYNORM_DEGREE(FN(log1p_poly)));
    return FN(select)(large, CYNORM_LN_2_HIGH + (f + (curved + CYNORM_LN_2_LOW)), f + curved);
}

/* (e^2x - 1) / (e^2x + 1), of the magnitude */
static inline vec FN(tanh)(vec x) {
    vec t = FN(expm1)(2 * FN(clip)(FN(abs)(x), (vec){0}, FN(splat)(CYNORM_TANH_MAX)));
    return (vec)((ivec)(t / (t + 2)) | ((ivec)x & (ivec)(-(vec){0})));
}

/* 1 / (1 + e^-x), by an exponential that does not overflow */
static inline vec FN(sigmoid)(vec x) {
    vec e = FN(exp_of_minus_abs)(x);
    return FN(select)(x < 0, e, FN(splat)(1)) / (1 + e);
}

/* log(1 + e^x) */
static inline vec FN(softplus)(vec x) {
    return FN(select)(x <= 0, (vec){0}, x) + FN(log1p)(FN(exp_of_minus_abs)(x));
}

/* e^x / (1 + e^x)^2, the derivative of sigmoid; the divisor as 1 + e (2 + e), which is rounded less */
static inline vec FN(bell)(vec x) {
    vec e = FN(exp_of_minus_abs)(x);
    return e / FN(fma)(e, e + 2, FN(splat)(1));
}

#undef CYNORM_LN_2_HIGH
#undef CYNORM_LN_2_LOW
#undef CYNORM_EXP_MIN
#undef CYNORM_EXP_MAX
#undef CYNORM_EXPM1_MIN
#undef CYNORM_TANH_MAX
