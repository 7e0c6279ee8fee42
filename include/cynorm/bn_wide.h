/* Batch norm: numbers of twice the precision, of which sums are made, and the even and the odd elements of memory. A template,
 * see types.h. */

#if CYNORM_DOUBLE

typedef struct { vec high, low; } wide; /* of value high + low */

static inline wide FN(two_sum)(vec a, vec b) {
    vec s = a + b, t = s - a;
    return (wide){s, (a - (s - t)) + (b - t)};
}
static inline wide FN(wide_of)(vec v) { return (wide){v, {0}}; }
static inline wide FN(wide_splat)(real x) { return FN(wide_of)(FN(splat)(x)); }
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

static inline wide FN(wide_of)(vec v) {
#if CYNORM_VBYTES == 64
    return (wide){{(cynorm_vec_f64)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v)),
                   (cynorm_vec_f64)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1))}};
#elif CYNORM_VBYTES == 32
    return (wide){{(cynorm_vec_f64)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v)),
                   (cynorm_vec_f64)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1))}};
#else
    real part[VL];
    FN(store)(part, v);
    return (wide){{load_f32_f64(part), load_f32_f64(part + VL / 2)}};
#endif
}
static inline wide FN(wide_splat)(real x) { return (wide){{splat_f64(x), splat_f64(x)}}; }
static inline wide FN(wide_add)(wide a, wide b) {
    return (wide){{a.half[0] + b.half[0], a.half[1] + b.half[1]}};
}
static inline wide FN(wide_minus)(wide a, wide b) {
#ifdef __FMA__
    /* the same number from other pipes: those of additions have more to do */
    const cynorm_vec_f64 one = splat_f64(1);
    return (wide){{fma_f64(a.half[0], one, -b.half[0]), fma_f64(a.half[1], one, -b.half[1])}};
#else
    return (wide){{a.half[0] - b.half[0], a.half[1] - b.half[1]}};
#endif
}
static inline wide FN(wide_fma)(wide a, wide b, wide c) {
    return (wide){{fma_f64(a.half[0], b.half[0], c.half[0]), fma_f64(a.half[1], b.half[1], c.half[1])}};
}
static inline wide FN(wide_part)(wide v, int64_t n) {
    int64_t first = n < VL / 2 ? n : VL / 2;
    cynorm_vec_f64 zero = {0};
    return (wide){{part_f64(v.half[0], zero, first), part_f64(v.half[1], zero, n - first)}};
}

#endif

/* ---- the even and the odd elements of memory ---- */

/* Two vectors of bfloat16 that lie side by side are taken as the even elements and the odd ones, for which no
 * lane has to be moved: `half` is 0 or 1 for such vectors, IN_ORDER for others. The half of the k-th of columns: */
CYNORM_INLINE int FN(half_of)(int k, int columns, int dtype) {
    return dtype == CYNORM_BF16 && columns % 2 == 0 ? k & 1 : CYNORM_BN_IN_ORDER;
}

/* and where the memory that has it begins. */
CYNORM_INLINE int FN(start_of)(int k, int half) { return (half == 1 ? k - 1 : k) * VL; }

#if !CYNORM_DOUBLE

static inline wide FN(wide_every_other)(wide a, wide b, int odd) {
    return (wide){{every_other_f64(a.half[0], a.half[1], odd), every_other_f64(b.half[0], b.half[1], odd)}};
}

static inline wide FN(wide_interleave)(wide even, wide odd, int second) {
    const cynorm_vec_f64 e = even.half[second], o = odd.half[second];
    return (wide){{interleave_f64(e, o, 0), interleave_f64(e, o, 1)}};
}

/* Of VL elements of bfloat16, the even ones and the odd ones. */
static inline wide FN(wide_split)(const char *p) {
#if CYNORM_VBYTES == 64
    const __m256i v = _mm256_loadu_si256((const __m256i *)p), high = _mm256_set1_epi32((int)0xffff0000);
    return (wide){{(cynorm_vec_f64)_mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(v, 16))),
                   (cynorm_vec_f64)_mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_and_si256(v, high)))}};
#elif CYNORM_VBYTES == 32
    const __m128i v = _mm_loadu_si128((const __m128i *)p), high = _mm_set1_epi32((int)0xffff0000);
    return (wide){{(cynorm_vec_f64)_mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(v, 16))),
                   (cynorm_vec_f64)_mm256_cvtps_pd(_mm_castsi128_ps(_mm_and_si128(v, high)))}};
#else
    uint32_t v __attribute__((vector_size(CYNORM_VBYTES / 2)));
    memcpy(&v, p, sizeof v);
    return (wide){{__builtin_convertvector((halfvec)(v << 16), cynorm_vec_f64),
                   __builtin_convertvector((halfvec)(v & 0xffff0000), cynorm_vec_f64)}};
#endif
}

#endif

/* The vector at p or, of the two there, the elements of one half. */
CYNORM_INLINE vec FN(load_half)(const real *p, int half) {
    return half == CYNORM_BN_IN_ORDER ? FN(load)(p) : FN(every_other)(FN(load)(p), FN(load)(p + VL), half);
}

/* m elements, or VL in a half. */
CYNORM_INLINE vec FN(get_in)(const char *p, int dtype, int64_t m, int half) {
#if !CYNORM_DOUBLE
    if (half != CYNORM_BN_IN_ORDER) return FN(get_half)(p, half);
#endif
    (void)half;
    return FN(get)(p, dtype, m);
}

CYNORM_INLINE wide FN(wide_get)(const char *p, int dtype, int64_t m) {
#if !CYNORM_DOUBLE
    if (m == VL && dtype == CYNORM_F32)
        return (wide){{load_f32_f64(p), load_f32_f64((const real *)p + VL / 2)}};
#endif
    return FN(wide_of)(FN(get)(p, dtype, m));
}

/* Likewise of elements whose bits of the mask, from `bit` on, are set; other elements are 0. */
CYNORM_INLINE vec FN(get_passed)(const char *p, const unsigned char *mask, int64_t bit, int dtype, int64_t m, int half) {
    unsigned bits = half == CYNORM_BN_IN_ORDER || VL <= 8 ? cynorm_bits_at(mask, bit) : cynorm_twice_bits_at(mask, bit);
#if !CYNORM_DOUBLE && CYNORM_VBYTES == 64
    if (half != CYNORM_BN_IN_ORDER) return FN(half_of_both)((uvec)_mm512_maskz_loadu_epi16(bits, p), half);
#endif
    if (half != CYNORM_BN_IN_ORDER) bits = cynorm_every_other_bit(bits >> half);
    return FN(where_bits)(bits, FN(get_in)(p, dtype, m, half));
}
