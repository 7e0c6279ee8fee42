/* Storage <-> compute conversion, and the vector every kernel is written in.
 *
 * A template: real.h includes it once with CYNORM_DOUBLE 0 (compute in float: f32, f16, bf16, s8) and once with
 * CYNORM_DOUBLE 1 (compute in double: f64). FN(name) is `name` with the compute type's suffix. The headers of operators are
 * templates likewise, but an object has one or the other of each: their types and constants need no suffix.
 *
 * To add a data type: see CONTRIBUTING.md.
 */

#ifndef CYNORM_TYPES_H
#define CYNORM_TYPES_H
/* Where elements stand by themselves, two vectors of bfloat16 are taken at a time: the even and the odd elements; with AVX-512
 * also two of float16, one after the other. */
enum { CYNORM_EVEN, CYNORM_ODD, CYNORM_ALL };

/* Fewer than 16 bytes, by whole words that may overlap: through memory, a read would wait for what was just written in parts. */
typedef uint64_t cynorm_some __attribute__((vector_size(16)));

#define CYNORM_WORD(bits)                                                                                              \
    static inline uint64_t cynorm_load##bits(const char *p) {                                                          \
        uint##bits##_t word;                                                                                           \
        memcpy(&word, p, sizeof word);                                                                                 \
        return word;                                                                                                   \
    }                                                                                                                  \
    static inline void cynorm_store##bits(char *p, uint64_t word) {                                                    \
        const uint##bits##_t some = (uint##bits##_t)word;                                                              \
        memcpy(p, &some, sizeof some);                                                                                 \
    }
CYNORM_WORD(16)
CYNORM_WORD(32)
CYNORM_WORD(64)
#undef CYNORM_WORD

/* The other bytes are zero. */
static inline cynorm_some cynorm_load_some(const char *p, int64_t bytes) {
    if (bytes > 8) return (cynorm_some){cynorm_load64(p), cynorm_load64(p + bytes - 8) >> 8 * (16 - bytes)};
    if (bytes == 8) return (cynorm_some){cynorm_load64(p), 0};
    if (bytes >= 4) return (cynorm_some){cynorm_load32(p) | cynorm_load32(p + bytes - 4) << 8 * (bytes - 4), 0};
    if (bytes >= 2) return (cynorm_some){cynorm_load16(p) | cynorm_load16(p + bytes - 2) << 8 * (bytes - 2), 0};
    return (cynorm_some){bytes ? (unsigned char)*p : 0, 0};
}

static inline void cynorm_store_some(char *p, cynorm_some some, int64_t bytes) {
    const uint64_t low = some[0];
    if (bytes > 8) {
        cynorm_store64(p, low);
        cynorm_store64(p + bytes - 8, low >> 8 * (bytes - 8) | some[1] << 8 * (16 - bytes));
    } else if (bytes == 8) {
        cynorm_store64(p, low);
    } else if (bytes >= 4) {
        cynorm_store32(p, low);
        cynorm_store32(p + bytes - 4, low >> 8 * (bytes - 4));
    } else if (bytes >= 2) {
        cynorm_store16(p, low);
        cynorm_store16(p + bytes - 2, low >> 8 * (bytes - 2));
    } else if (bytes) {
        *p = (char)low;
    }
}

#endif

typedef real vec __attribute__((vector_size(CYNORM_VBYTES)));
typedef uint_r uvec __attribute__((vector_size(CYNORM_VBYTES)));
typedef sint_r ivec __attribute__((vector_size(CYNORM_VBYTES)));

static inline vec FN(splat)(real x) { return x - (vec){0}; }

static inline vec FN(load)(const real *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void FN(store)(real *p, vec v) { memcpy(p, &v, sizeof v); }

static inline vec FN(select)(ivec mask, vec yes, vec no) {
    return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask));
}

/* All bits of the first n lanes. */
static inline ivec FN(first)(int64_t n) {
    ivec lane;
    for (int i = 0; i < VL; i++) lane[i] = i;
    return lane < (sint_r)n - (ivec){0};
}

/* The first n lanes of v; the others from `rest`. */
static inline vec FN(part)(vec v, vec rest, int64_t n) { return n == VL ? v : FN(select)(FN(first)(n), v, rest); }

/* ---- some elements of two vectors ---- */

#if CYNORM_VBYTES == 64
/* Lane i: element from[i] of a followed by b. */
CYNORM_INLINE vec FN(permuted)(vec a, ivec from, vec b) {
#if CYNORM_DOUBLE
    return (vec)_mm512_permutex2var_pd((__m512d)a, (__m512i)from, (__m512d)b);
#else
    return (vec)_mm512_permutex2var_ps((__m512)a, (__m512i)from, (__m512)b);
#endif
}
#endif

/* The even or the odd elements of two vectors that lie side by side. */
static inline vec FN(every_other)(vec a, vec b, int odd) {
#if CYNORM_VBYTES == 64
    ivec from;
    for (int i = 0; i < VL; i++) from[i] = 2 * i + odd;
    return FN(permuted)(a, from, b);
#else
    vec v;
    for (int i = 0; i < VL; i++) v[i] = i < VL / 2 ? a[(2 * i + odd) % VL] : b[(2 * i + odd) % VL];
    return v;
#endif
}

/* Lanes of two vectors, those of the second being VL and more: of constant numbers one instruction. */
CYNORM_INLINE vec FN(lanes_of)(vec first, vec second, ivec lane) {
#ifdef __clang__ /* which makes one shuffle of these */
    vec out;
    for (int i = 0; i < VL; i++) out[i] = lane[i] < VL ? first[lane[i]] : second[lane[i] - VL];
    return out;
#else
    return __builtin_shuffle(first, second, lane);
#endif
}

#if CYNORM_DOUBLE

/* From even and odd elements, the first or the second vector of all elements in order. */
static inline vec FN(interleave)(vec even, vec odd, int second) {
#if CYNORM_VBYTES == 64
    ivec from;
    for (int i = 0; i < VL; i++) from[i] = (second * VL + i) / 2 + i % 2 * VL;
    return FN(permuted)(even, from, odd);
#else
    vec v;
    for (int i = 0; i < VL; i++) v[i] = (i % 2 ? odd : even)[(second * VL + i) / 2];
    return v;
#endif
}

#endif

/* ---- load/store pairs: VL elements of storage <-> one vector ---- */

#if CYNORM_DOUBLE
typedef float halfvec __attribute__((vector_size(CYNORM_VBYTES / 2)));
#endif

/* float to double and back: the compiler's own conversions take 256 bits at a time, by way of memory. */
static inline vec FN(load_f32)(const void *p) {
#if CYNORM_DOUBLE && CYNORM_VBYTES == 64
    return (vec)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif CYNORM_DOUBLE && CYNORM_VBYTES == 32
    return (vec)_mm256_cvtps_pd(_mm_loadu_ps(p));
#elif CYNORM_DOUBLE
    halfvec half;
    memcpy(&half, p, sizeof half);
    return __builtin_convertvector(half, vec);
#else
    return FN(load)(p);
#endif
}

static inline void FN(store_f32)(void *p, vec v) {
#if CYNORM_DOUBLE && CYNORM_VBYTES == 64
    _mm256_storeu_ps(p, _mm512_cvtpd_ps((__m512d)v));
#elif CYNORM_DOUBLE && CYNORM_VBYTES == 32
    _mm_storeu_ps(p, _mm256_cvtpd_ps((__m256d)v));
#elif CYNORM_DOUBLE
    halfvec half = __builtin_convertvector(v, halfvec);
    memcpy(p, &half, sizeof half);
#else
    FN(store)(p, v);
#endif
}

#if CYNORM_DOUBLE

static inline vec FN(load_f64)(const void *p) { return FN(load)(p); }
static inline void FN(store_f64)(void *p, vec v) { FN(store)(p, v); }

#else

typedef uint16_t hvec __attribute__((vector_size(CYNORM_VBYTES / 2)));
typedef int8_t bvec __attribute__((vector_size(CYNORM_VBYTES / 4)));

/* 16-bit lanes to 32 bits, and back if they have their sign in the high halves; the compiler's own conversions take two to four
 * times the instructions. */
static inline uvec FN(widen)(const void *p) {
#if CYNORM_VBYTES == 64
    return (uvec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
#elif CYNORM_VBYTES == 16 && defined(__SSE2__)
    return (uvec)_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)p), _mm_setzero_si128());
#else
    hvec h;
    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, uvec);
#endif
}

static inline hvec FN(narrow)(ivec i) {
#if CYNORM_VBYTES == 16 && defined(__SSE2__)
    hvec h;
    _mm_storel_epi64((__m128i *)&h, _mm_packs_epi32((__m128i)i, (__m128i)i));
    return h;
#else
    return __builtin_convertvector(i, hvec);
#endif
}

static inline vec FN(load_bf16)(const void *p) {
#if CYNORM_VBYTES == 32
    /* each half of the vector takes half of what both are given: one shuffle, in place of widening and a shift */
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return (vec)_mm256_shuffle_epi8(both, _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7,
                                                           -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15));
#elif CYNORM_VBYTES == 16 && defined(__SSE2__)
    return (vec)_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)p));
#else
    return (vec)(FN(widen)(p) << 16);
#endif
}

/* Round to nearest even, into the high half of each lane. NaNs have zeros in the low half, as NaNs of arithmetic and of
 * bfloat16 do, so that none overflows. */
static inline uvec FN(round_bf16)(vec v) {
    uvec u = (uvec)v;
#if CYNORM_VBYTES == 64
    /* 0x7fff + last = -(-0x8000 | !last) */
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(-0x8000);
    return u - (uvec)_mm512_ternarylogic_epi32((__m512i)(u >> 16), one, half, 0xae);
#else
    return u + 0x7fff + ((u >> 16) & 1);
#endif
}

#if CYNORM_VBYTES == 64
/* The high halves of two vectors, in one permutation. */
static inline __m512i FN(high_halves)(uvec first, uvec second) {
    static const uint16_t odd[32] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return _mm512_permutex2var_epi16((__m512i)first, _mm512_loadu_si512(odd), (__m512i)second);
}
#endif

static inline hvec FN(pack_bf16)(vec v) {
#if CYNORM_VBYTES == 64
    const __m256i odd = _mm256_setr_epi16(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return (hvec)_mm512_castsi512_si256(_mm512_permutexvar_epi16(_mm512_castsi256_si512(odd), (__m512i)FN(round_bf16)(v)));
#elif CYNORM_VBYTES == 32
    const __m256i high = _mm256_setr_epi8(2, 3, 6, 7, 10, 11, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1,
                                          2, 3, 6, 7, 10, 11, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i halves = _mm256_shuffle_epi8((__m256i)FN(round_bf16)(v), high);
    return (hvec)_mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 0x08));
#else
    return FN(narrow)((ivec)FN(round_bf16)(v) >> 16);
#endif
}

#if CYNORM_VBYTES == 64

static inline vec FN(load_f16)(const void *p) {
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline hvec FN(pack_f16)(vec v) { return (hvec)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT); }

#elif CYNORM_VBYTES == 32

static inline vec FN(load_f16)(const void *p) {
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline hvec FN(pack_f16)(vec v) { return (hvec)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }

#else

/* Rebias the exponent by a multiplication, which makes subnormals right as well. */
static inline vec FN(load_f16)(const void *p) {
    uvec u = FN(widen)(p);
    uvec magnitude = (u & 0x7fff) << 13;
    uvec special = (uvec)((ivec)magnitude >= 0x7c00 << 13) & 0x7f800000; /* SSE2 compares only signed numbers */
    vec v = (vec)magnitude * 0x1p112f;
    return (vec)((uvec)v | special | (u & 0x8000) << 16);
}

/* Round to nearest even: normals by integer, subnormals by adding 0.5, whose last place is that of the subnormals. */
static inline hvec FN(pack_f16)(vec v) {
    uvec u = (uvec)v, sign = u & 0x80000000;
    u ^= sign;
    uvec normal = (u - 0x38000000 + 0xfff + ((u >> 13) & 1)) >> 13;
    uvec subnormal = (uvec)((vec)u + 0.5f) - 0x3f000000;
    uvec huge = 0x7c00 | ((uvec)((ivec)u > 0x7f800000) & 0x200);
    uvec is_huge = (uvec)((ivec)u >= 0x477ff000), is_small = (uvec)((ivec)u < 0x38800000);
    uvec r = (is_huge & huge) | (~is_huge & ((is_small & subnormal) | (~is_small & normal)));
    return FN(narrow)((ivec)r | (ivec)sign >> 16);
}

#endif

/* With any NaN, as a caller's parameters may have. */
static inline void FN(store_bf16)(void *p, vec v) {
    hvec h = FN(pack_bf16)(FN(select)(v == v, v, FN(splat)(NAN)));
    memcpy(p, &h, sizeof h);
}

static inline void FN(store_f16)(void *p, vec v) {
    hvec h = FN(pack_f16)(v);
    memcpy(p, &h, sizeof h);
}

static inline hvec FN(pack_half)(vec v, int dtype) { return dtype == CYNORM_F16 ? FN(pack_f16)(v) : FN(pack_bf16)(v); }

/* GCC 12 converts these lane by lane, if it is left to __builtin_convertvector. */
static inline vec FN(load_s8)(const void *p) {
#if CYNORM_VBYTES == 64
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif CYNORM_VBYTES == 32
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#elif defined(__SSE2__)
    int32_t four;
    memcpy(&four, p, sizeof four);
    __m128i twice = _mm_cvtsi32_si128(four);
    twice = _mm_unpacklo_epi8(twice, twice);
    return (vec)_mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(twice, twice), 24));
#else
    bvec b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(__builtin_convertvector(b, ivec), vec);
#endif
}

/* Rounded half to even, NaN, if there may be any, being 0; to be saturated: what is below all integers becomes the least one. */
CYNORM_INLINE ivec FN(round_s8)(vec v, int may_be_nan) {
#ifdef __SSE2__
    const vec most = FN(splat)(127);
#endif
#if CYNORM_VBYTES == 64
    const __mmask16 numbers = may_be_nan ? _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_ORD_Q) : (__mmask16)-1;
    return (ivec)_mm512_maskz_cvtps_epi32(numbers, _mm512_min_ps((__m512)most, (__m512)v));
#elif CYNORM_VBYTES == 32
    const ivec i = (ivec)_mm256_cvtps_epi32(_mm256_min_ps((__m256)most, (__m256)v));
    return may_be_nan ? i & (v == v) : i;
#elif defined(__SSE2__)
    const ivec i = (ivec)_mm_cvtps_epi32(_mm_min_ps((__m128)most, (__m128)v));
    return may_be_nan ? i & (v == v) : i;
#else
    (void)may_be_nan;
    v = FN(select)(v < -128.0f, FN(splat)(-128.0f), v);
    v = FN(select)(v > 127.0f, FN(splat)(127.0f), v);
    return ((ivec)(v + 0x1.8p23f) - 0x4b400000) & (v == v); /* 1.5*2^23 leaves the rounded integer in the low bits */
#endif
}

static inline bvec FN(pack_s8)(vec v) {
    const ivec i = FN(round_s8)(v, 1);
#if CYNORM_VBYTES == 64
    return (bvec)_mm512_cvtsepi32_epi8((__m512i)i);
#elif defined(__SSE2__)
    bvec b;
#if CYNORM_VBYTES == 32
    const __m128i shorts = _mm_packs_epi32(_mm256_castsi256_si128((__m256i)i), _mm256_extracti128_si256((__m256i)i, 1));
#else
    const __m128i shorts = _mm_packs_epi32((__m128i)i, (__m128i)i);
#endif
    const __m128i bytes = _mm_packs_epi16(shorts, shorts);
    memcpy(&b, &bytes, sizeof b);
    return b;
#else
    return __builtin_convertvector(i, bvec);
#endif
}

static inline void FN(store_s8)(void *p, vec v) {
    bvec b = FN(pack_s8)(v);
    memcpy(p, &b, sizeof b);
}

#endif

/* ---- one vector of any storage, or its first n elements; dtype is a constant where these are inlined ---- */

#if CYNORM_VBYTES == 64
static inline vec FN(masked_load)(const char *p, int64_t n) {
#if CYNORM_DOUBLE
    return (vec)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p);
#else
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#endif
}

static inline void FN(masked_store)(char *p, int64_t n, vec v) {
#if CYNORM_DOUBLE
    _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v);
#else
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#endif
}
#elif CYNORM_VBYTES == 32
static inline vec FN(masked_load)(const char *p, int64_t n) {
#if CYNORM_DOUBLE
    return (vec)_mm256_maskload_pd((const double *)p, (__m256i)FN(first)(n));
#else
    return (vec)_mm256_maskload_ps((const float *)p, (__m256i)FN(first)(n));
#endif
}

/* By powers of two: AMD's cores without AVX-512 take longer for a masked store than for all of these. */
static inline void FN(masked_store)(char *p, int64_t n, vec v) {
#if CYNORM_DOUBLE
    __m128d left = _mm256_castpd256_pd128((__m256d)v);
    if (n & 2) {
        _mm_storeu_pd((double *)p, left);
        left = _mm256_extractf128_pd((__m256d)v, 1), p += 16;
    }
    if (n & 1) _mm_store_sd((double *)p, left);
#else
    __m128 left = _mm256_castps256_ps128((__m256)v);
    if (n & 4) {
        _mm_storeu_ps((float *)p, left);
        left = _mm256_extractf128_ps((__m256)v, 1), p += 16;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)p, left);
        left = _mm_movehl_ps(left, left), p += 8;
    }
    if (n & 1) _mm_store_ss((float *)p, left);
#endif
}
#endif

CYNORM_INLINE vec FN(get)(const char *p, int dtype, int64_t n) {
    char part[CYNORM_VBYTES];
#if CYNORM_VBYTES >= 32
    if (n < VL && dtype == CYNORM_COMPUTE) return FN(masked_load)(p, n);
#endif
#if CYNORM_VBYTES == 64
    if (n < VL && cynorm_itemsize(dtype) == 2) {
        _mm256_storeu_si256((__m256i *)part, _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
        p = part;
        n = VL;
    }
#endif
    if (n < VL) { /* at most 16 bytes: masks take the rest, and float is read whole to be double */
        const cynorm_some some = cynorm_load_some(p, n * cynorm_itemsize(dtype));
        memcpy(part, &some, sizeof some);
        p = part;
    }
#if CYNORM_DOUBLE
    return dtype == CYNORM_F64 ? FN(load_f64)(p) : FN(load_f32)(p);
#else
    if (dtype == CYNORM_F16) return FN(load_f16)(p);
    if (dtype == CYNORM_BF16) return FN(load_bf16)(p);
    if (dtype == CYNORM_S8) return FN(load_s8)(p);
    return FN(load_f32)(p);
#endif
}

CYNORM_INLINE void FN(put)(char *p, vec v, int dtype, int64_t n) {
#if CYNORM_VBYTES >= 32
    if (n < VL && dtype == CYNORM_COMPUTE) {
        FN(masked_store)(p, n, v);
        return;
    }
#endif
#if !CYNORM_DOUBLE
    if (cynorm_itemsize(dtype) == 2) {
        const hvec h = FN(pack_half)(v, dtype);
        if (n == VL) {
            memcpy(p, &h, sizeof h);
            return;
        }
#if CYNORM_VBYTES == 64
        _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), (__m256i)h);
#else
        cynorm_some some = {0};
        memcpy(&some, &h, sizeof h);
        cynorm_store_some(p, some, 2 * n);
#endif
        return;
    }
#endif
    char part[CYNORM_VBYTES], *to = n < VL ? part : p;
    if (dtype == CYNORM_COMPUTE) FN(store)((real *)to, v);
#if CYNORM_DOUBLE
    else FN(store_f32)(to, v);
#else
    else FN(store_s8)(to, v);
#endif
    if (n < VL && VL * cynorm_itemsize(dtype) <= 16) {
        cynorm_some some;
        memcpy(&some, part, sizeof some);
        cynorm_store_some(p, some, n * cynorm_itemsize(dtype));
    } else if (n < VL) {
        memcpy(p, part, (size_t)(n * cynorm_itemsize(dtype)));
    }
}

/* The same of reals. */
static inline vec FN(load_n)(const real *p, int64_t n) { return FN(get)((const char *)p, CYNORM_COMPUTE, n); }
static inline void FN(store_n)(real *p, vec v, int64_t n) { FN(put)((char *)p, v, CYNORM_COMPUTE, n); }

/* The same past the cache; p is aligned to the vector's storage. */
CYNORM_INLINE void FN(put_streaming)(char *p, vec v, int dtype) {
#if !CYNORM_DOUBLE
    if (cynorm_itemsize(dtype) == 2) {
        const hvec h = FN(pack_half)(v, dtype);
        cynorm_stream(p, &h, sizeof h);
        return;
    }
    if (dtype == CYNORM_S8) {
        const bvec b = FN(pack_s8)(v);
        cynorm_stream(p, &b, sizeof b);
        return;
    }
#endif
    (void)dtype;
    cynorm_stream(p, &v, sizeof v);
}

#if !CYNORM_DOUBLE
#if CYNORM_VBYTES == 64
/* Each 32-bit lane's halves moved up and down by bytes, as an Intel core shifts bits on the pipe that its estimates need. */
static inline __m512i FN(half_up)(void) {
    return _mm512_broadcast_i32x4(_mm_setr_epi8(-1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13));
}
static inline __m512i FN(half_down)(void) {
    return _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, -1, -1, 6, 7, -1, -1, 10, 11, -1, -1, 14, 15, -1, -1));
}
#endif

/* bfloat16 where the order of elements does not matter: the even or the odd ones of twice as many as a vector holds. No lane is
 * moved. */
CYNORM_INLINE vec FN(half_of_both)(uvec both, int odd) {
#if CYNORM_VBYTES == 64
    if (!odd) return (vec)_mm512_shuffle_epi8((__m512i)both, FN(half_up)());
#endif
    return (vec)(odd ? both & 0xffff0000 : both << 16);
}

CYNORM_INLINE vec FN(get_half)(const char *p, int odd) {
    uvec both;
    memcpy(&both, p, sizeof both);
    return FN(half_of_both)(both, odd);
}

/* The inverse of get_half. */
CYNORM_INLINE uvec FN(halves)(vec even, vec odd) {
#if CYNORM_VBYTES == 64
    /* Both at once, by 16 bits: a high half is one more where the low one + 0x7fff + (the high one & 1) has a 17th bit, which an
     * average of 16-bit numbers has as its 16th. */
    const __m512i high = _mm512_mask_shuffle_epi8((__m512i)odd, 0x3333333333333333, (__m512i)even, FN(half_down)());
    const __m512i low = _mm512_mask_shuffle_epi8((__m512i)even, 0xcccccccccccccccc, (__m512i)odd, FN(half_up)());
    const __m512i more = _mm512_ternarylogic_epi32(high, _mm512_set1_epi16(1), _mm512_set1_epi16(0x7ffe), 0xea);
    return (uvec)_mm512_sub_epi16(high, _mm512_srai_epi16(_mm512_avg_epu16(low, more), 15));
#elif CYNORM_VBYTES == 32
    return (uvec)_mm256_blend_epi16((__m256i)(FN(round_bf16)(even) >> 16), (__m256i)FN(round_bf16)(odd), 0xaa);
#else
    return FN(round_bf16)(even) >> 16 | (FN(round_bf16)(odd) & 0xffff0000);
#endif
}

CYNORM_INLINE void FN(put_halves)(char *p, vec even, vec odd, int streaming) {
    const uvec both = FN(halves)(even, odd);
    if (streaming) cynorm_stream(p, &both, sizeof both);
    else memcpy(p, &both, sizeof both);
}
#endif

/* Whether vectors of that type are lines. */
CYNORM_INLINE int FN(is_line)(int dtype) { return VL * cynorm_itemsize(dtype) == 64; }

/* Past the cache, if asked to and the vector is whole. */
CYNORM_INLINE void FN(put_or_stream)(char *p, vec v, int dtype, int64_t n, int streaming) {
    if (streaming && n == VL) FN(put_streaming)(p, v, dtype);
    else FN(put)(p, v, dtype, n);
}

#if !CYNORM_DOUBLE
/* int8 of four vectors, which fill one. */
CYNORM_INLINE void FN(put_four_s8)(char *p, const vec *v, int may_be_nan, int streaming) {
#ifdef __SSE2__
    ivec i[4];
    for (int k = 0; k < 4; k++) i[k] = FN(round_s8)(v[k], may_be_nan);
#if CYNORM_VBYTES == 64
    const __m512i low = _mm512_packs_epi32((__m512i)i[0], (__m512i)i[1]), high = _mm512_packs_epi32((__m512i)i[2], (__m512i)i[3]);
    const __m512i bytes = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                                   _mm512_packs_epi16(low, high));
#elif CYNORM_VBYTES == 32
    const __m256i low = _mm256_packs_epi32((__m256i)i[0], (__m256i)i[1]), high = _mm256_packs_epi32((__m256i)i[2], (__m256i)i[3]);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#else
    const __m128i low = _mm_packs_epi32((__m128i)i[0], (__m128i)i[1]), high = _mm_packs_epi32((__m128i)i[2], (__m128i)i[3]);
    const __m128i bytes = _mm_packs_epi16(low, high);
#endif
    if (streaming) cynorm_stream(p, &bytes, sizeof bytes);
    else memcpy(p, &bytes, sizeof bytes);
#else
    (void)may_be_nan;
    for (int k = 0; k < 4; k++) FN(put_or_stream)(p + k * VL, v[k], CYNORM_S8, VL, streaming);
#endif
}
#endif

CYNORM_INLINE vec FN(get_part)(const char *p, int dtype, int64_t n, int part) {
#if !CYNORM_DOUBLE
#if CYNORM_VBYTES == 64
    if (part != CYNORM_ALL && dtype == CYNORM_F16) return FN(load_f16)(p + (part == CYNORM_ODD) * (int)sizeof(hvec));
#endif
    if (part != CYNORM_ALL) return FN(get_half)(p, part == CYNORM_ODD);
#endif
    (void)part;
    return FN(get)(p, dtype, n);
}

/* Of bfloat16, the even elements wait for the odd ones. */
CYNORM_INLINE void FN(put_part)(char *p, vec v, int dtype, int64_t n, int streaming, int part, vec *even) {
#if !CYNORM_DOUBLE
    if (part == CYNORM_EVEN) *even = v;
    else if (part == CYNORM_ODD) FN(put_halves)(p, *even, v, streaming);
    else
#endif
    FN(put_or_stream)(p, v, dtype, n, streaming);
    (void)even, (void)part;
}

#if !CYNORM_DOUBLE && CYNORM_VBYTES == 64
static inline __m512i FN(both_f16)(vec first, vec second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512((__m256i)FN(pack_f16)(first)), (__m256i)FN(pack_f16)(second), 1);
}

/* The inverse of get_part: the line that both parts make up. */
CYNORM_INLINE vec FN(line_of_parts)(vec even, vec odd, int dtype) {
    return dtype == CYNORM_BF16 ? (vec)FN(halves)(even, odd) : (vec)FN(both_f16)(even, odd);
}
#endif

/* A line of memory, 64 bytes, from as many vectors as it takes; where it bypasses the cache, p is aligned to a line. */
CYNORM_INLINE void FN(put_line)(char *p, const vec *v, int dtype, int streaming) {
    const int size = (int)cynorm_itemsize(dtype), vectors = 64 / size / VL;
#if !CYNORM_DOUBLE && CYNORM_VBYTES == 64
    /* two vectors of half the size leave as one: a line that is written in parts leaves the core in parts */
    if (size == 2) {
        __m512i both = dtype == CYNORM_BF16 ? FN(high_halves)(FN(round_bf16)(v[0]), FN(round_bf16)(v[1]))
                                            : FN(both_f16)(v[0], v[1]);
        if (streaming) _mm512_stream_si512((__m512i *)p, both);
        else _mm512_storeu_si512(p, both);
        return;
    }
#endif
    for (int i = 0; i < vectors; i++) FN(put_or_stream)(p + i * VL * size, v[i], dtype, VL, streaming);
}

/* ---- rows: n elements of storage, `stride` bytes apart <-> n contiguous reals of scratch ---- */

/* Whole vectors, then a part; lanes of scratch past n, up to the end of its vector, become zero. */
#define CYNORM_ROWS_OF(D, T, bytes)                                                                  \
    static void FN(load_row_##T)(real *dst, const char *src, int64_t n, int64_t stride) {            \
        char part[VL * bytes];                                                                       \
        int64_t i = 0;                                                                               \
        if (stride == bytes)                                                                         \
            for (; i + VL <= n; i += VL) FN(store)(dst + i, FN(load_##T)(src + i * bytes));          \
        for (; i < n; i += VL) {                                                                     \
            int64_t m = n - i < VL ? n - i : VL;                                                     \
            if (m < VL) memset(part, 0, sizeof part);                                                \
            for (int64_t j = 0; j < m; j++) memcpy(part + j * bytes, src + (i + j) * stride, bytes); \
            FN(store)(dst + i, FN(load_##T)(part));                                                  \
        }                                                                                            \
    }                                                                                                \
    static void FN(store_row_##T)(char *dst, const real *src, int64_t n, int64_t stride) {           \
        char part[VL * bytes];                                                                       \
        int64_t i = 0;                                                                               \
        if (stride == bytes)                                                                         \
            for (; i + VL <= n; i += VL) FN(store_##T)(dst + i * bytes, FN(load)(src + i));          \
        for (; i < n; i += VL) {                                                                     \
            int64_t m = n - i < VL ? n - i : VL;                                                     \
            FN(store_##T)(part, FN(load_n)(src + i, m));                                             \
            for (int64_t j = 0; j < m; j++) memcpy(dst + (i + j) * stride, part + j * bytes, bytes); \
        }                                                                                            \
    }

/* of all that rows are converted from and to */
#if CYNORM_DOUBLE
#define CYNORM_ROW_TYPES(each) each(F64, f64, 8)
#else
#define CYNORM_ROW_TYPES(each) each(F32, f32, 4) each(F16, f16, 2) each(BF16, bf16, 2) each(S8, s8, 1)
#endif
CYNORM_ROW_TYPES(CYNORM_ROWS_OF)
#undef CYNORM_ROWS_OF

static inline void FN(load_row)(void *dst, const char *src, int dtype, int64_t n, int64_t stride) {
#define CASE(D, T, bytes) case CYNORM_##D: FN(load_row_##T)(dst, src, n, stride); break;
    switch (dtype) { CYNORM_ROW_TYPES(CASE) }
#undef CASE
}

static inline void FN(store_row)(char *dst, const void *src, int dtype, int64_t n, int64_t stride) {
#define CASE(D, T, bytes) case CYNORM_##D: FN(store_row_##T)(dst, src, n, stride); break;
    switch (dtype) { CYNORM_ROW_TYPES(CASE) }
#undef CASE
}
#undef CYNORM_ROW_TYPES
