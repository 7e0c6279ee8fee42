/* Batch normalization: sums over a tile, what follows from them, and its result. A template, see types.h.
 *
 *     forward    value = (src - mean) * gain + bias (+ add),  gain = scale * rstd,  bias = shift
 *                dst = activation(value)
 *     backward   d = diff_dst * activation'(value) = diff_add
 *                diff_shift = sum(d),  diff_scale = sum(d * (src - mean)) * rstd
 *     training   diff_src = gain * (d - diff_shift / M - (src - mean) * rstd * diff_scale / M)
 *                         = gain * (d + offset + (src - mean) * slope)
 *     inference  diff_src = gain * d
 *
 * Statistics are sums over x - pivot and its square, the pivot being any one element p of those summed. Then
 * (p - mean)^2 <= M * variance, so that the shift costs no more than log2 M bits, and a constant has variance
 * 0. The pivot of bfloat16 is 0: a square has 16 bits, so that sums over numbers of one sign within a factor
 * of 2 are exact up to M = 2^35, and where any two are further apart, mean^2 <= 8 M * variance.
 *
 * Sums are held in twice the precision: double for float, pairs of double for double. So are all their terms, but for
 * gradients of half types, whose results have fewer bits: these take CYNORM_BN_RUN terms in reals at a time, d and
 * d * ((src - center) * norm), from which norm is taken again: rstd, or the least of which 1 / norm is finite, so that no
 * product overflows that the result has room for.
 *
 * The mean is kept as two reals: center is the high one, and src - center, which is exact where it matters, comes first;
 * the low one is part of bias and offset, and taken from diff_scale by way of diff_shift.
 *
 * A tile is worked on in blocks of rows. A row's elements have one statistic each (kept_inner), or share that
 * of their row; coefficients lie accordingly. The lanes of the sums follow the elements of a row, or else are
 * VL partial sums per row of a group.
 */

#ifndef CYNORM_BATCH_NORM_H
#define CYNORM_BATCH_NORM_H

enum {
    CYNORM_BN_ROW = 512,         /* elements of a row that are converted at a time */
    CYNORM_BN_STAGE = 16 << 10,  /* bytes of a block that is converted or staged, in the first-level cache; */
    CYNORM_BN_SHORT_STAGE = 4096, /* of short kept rows that are staged: while a block leaves, all else waits */
    CYNORM_BN_SHORT = 256,       /* bytes of such a row at most */
    CYNORM_BN_COLUMNS = 4,       /* vectors of columns that are combined together, */
    CYNORM_BN_SUM_COLUMNS = CYNORM_VBYTES == 64 ? 4 : 2, /* and summed together: sums stay in registers; */
    CYNORM_BN_RUN = 16,          /* as many terms of a half type's gradient are added before they are widened */
    CYNORM_BN_PAIRED = 128,      /* rows at least that are taken by twos */
    CYNORM_BN_AHEAD = 4096,      /* bytes that rows of one statistic each are prefetched ahead, */
    CYNORM_BN_KEPT_AHEAD = 2048, /* and kept rows, as long as they are read one after another, and results; */
    CYNORM_BN_TOGETHER = 65536,  /* longer ones are summed by columns, in groups of about as many bytes */
    CYNORM_BN_LEAST = 16,        /* and as many rows at least, while the next group is prefetched; */
    CYNORM_BN_WIDEST = 4096,     /* so many elements of one are combined at a time: in the order of memory, */
    CYNORM_BN_WIDE = 1024,       /* or, in the cache, so few that its first level keeps their coefficients */
    CYNORM_BN_IN_ORDER = -1      /* see half_of */
};

/* The forms that a result can have, see combine_vector. */
enum { CYNORM_NORMALIZE, CYNORM_NORMALIZE_ADD, CYNORM_GRADIENT, CYNORM_SCALE };

enum { CYNORM_CENTER, CYNORM_FACTOR, CYNORM_TERM, CYNORM_GAIN };

/* Where to prefetch to the second-level cache while reading at p: `by` ahead, `jump` further past `end`, or, of kept
 * rows, in the last images. */
typedef struct {
    int64_t by, jump;
    const char *end;
} cynorm_bn_ahead;

static inline void cynorm_bn_prefetch(const char *p, const cynorm_bn_ahead *a) {
    p += a->by;
    if (p >= a->end) p += a->jump;
    __builtin_prefetch(p, 0, 2);
}

/* `count` rows of n elements of one storage type, each contiguous, `step` apart in bytes (the mask's in
 * bits), and so `images` times, `image` apart; NULL where absent. */
typedef struct {
    const char *x, *g;
    const unsigned char *mask;
    int64_t x_step, g_step, bit, bit_step, n, count;
    int64_t x_image, g_image, bit_image, images, last_images;
    int64_t together; /* how many kept rows are summed by columns in turn */
    cynorm_bn_ahead x_ahead, g_ahead;
} cynorm_bn_rows;

static inline void cynorm_bn_next_image(cynorm_bn_rows *in) {
    if (--in->images == in->last_images) {
        in->x_ahead.by += in->x_ahead.jump;
        in->g_ahead.by += in->g_ahead.jump;
    }
    in->x += in->x_image;
    in->g += in->g_image;
    in->bit += in->bit_image;
}

/* ---- bits of the mask ---- */

/* 16 bits from a position; memory of the mask ends 4 bytes later than its bits. */
static inline unsigned cynorm_bits_at(const unsigned char *mask, int64_t bit) {
    uint32_t word;
    memcpy(&word, mask + (bit >> 3), sizeof word);
    return word >> (bit & 7) & 0xffff;
}

/* Bits 0, 2, 4, ... together. */
static inline unsigned cynorm_every_other_bit(unsigned bits) {
#ifdef __BMI2__
    return _pext_u32(bits, 0x55555555);
#else
    bits &= 0x55555555;
    bits = (bits | bits >> 1) & 0x33333333;
    bits = (bits | bits >> 2) & 0x0f0f0f0f;
    bits = (bits | bits >> 4) & 0x00ff00ff;
    return (bits | bits >> 8) & 0xffff;
#endif
}

/* 16 bits apart: the inverse. */
static inline unsigned cynorm_spread_bits(unsigned bits) {
#ifdef __BMI2__
    return _pdep_u32(bits, 0x55555555);
#else
    bits = (bits | bits << 8) & 0x00ff00ff;
    bits = (bits | bits << 4) & 0x0f0f0f0f;
    bits = (bits | bits << 2) & 0x33333333;
    return (bits | bits << 1) & 0x55555555;
#endif
}

/* n bits, 64 at most, to a position. Bytes that are not all of these bits are shared with other rows, perhaps
 * of other threads, and zero to begin with. */
static inline void cynorm_put_bits(unsigned char *mask, int64_t bit, uint64_t bits, int64_t n) {
    unsigned char *p = mask + (bit >> 3);
    int64_t first = -bit & 7;
    if (first) {
        __atomic_fetch_or(p++, (unsigned char)(bits << (bit & 7)), __ATOMIC_RELAXED);
        bits >>= first;
        n -= first;
    }
    if (n <= 0) return;
    memcpy(p, &bits, (size_t)(n >> 3));
    if (n & 7) __atomic_fetch_or(p + (n >> 3), (unsigned char)(bits >> (n & ~7)), __ATOMIC_RELAXED);
}

/* ---- blocks of a tile: rows that are worked on together ---- */

/* Rows are those of a group, or, where elements are kept, one of each of several groups of an image. */
typedef struct {
    int64_t of;            /* which of the tile's blocks of statistics */
    int64_t group, row, i; /* the first element; where elements are kept, `row` is its image */
    int64_t count, n;      /* rows, elements of each */
    int64_t rows, piece;   /* the most of them */
    int64_t images;        /* 1, or, of short rows, all */
} cynorm_bn_block;

/* The next block; 0 where there is none. */
static int cynorm_bn_next(const cynorm_bn_tile *t, cynorm_bn_block *b) {
    const int kept = t->kept_inner;
    int64_t *row = kept ? &b->group : &b->row, *outer = kept ? &b->row : &b->group;
    b->i += b->n;
    if (b->i == t->count[0]) {
        b->i = 0;
        *row += b->count;
    }
    if (*row == t->count[1 + kept]) {
        *row = 0;
        *outer += b->images;
    }
    if (*outer == t->count[2 - kept]) {
        *outer = 0;
        if (++b->of == t->blocks) return 0;
    }
    int64_t n = t->count[0] - b->i, count = t->count[1 + kept] - *row;
    b->n = n < b->piece ? n : b->piece;
    b->count = count < b->rows ? count : b->rows;
    return 1;
}

static inline char *cynorm_bn_at(const cynorm_bn_view *v, const cynorm_bn_block *b) {
    return v->data + b->of * v->block + b->group * v->stride[2] + b->row * v->stride[1] + b->i * v->stride[0];
}

/* From row to row of a block. */
static inline int64_t cynorm_bn_step(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    return v->stride[t->kept_inner ? 2 : 1];
}

static inline int64_t cynorm_bn_bit(const cynorm_bn_tile *t, const cynorm_bn_block *b) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    return t->bit + b->of * mask->block + b->group * mask->stride[2] + b->row * mask->stride[1] + b->i * mask->stride[0];
}

/* Row r of a block, as a block. */
static inline cynorm_bn_block cynorm_bn_row_of(const cynorm_bn_tile *t, const cynorm_bn_block *b, int64_t r) {
    cynorm_bn_block one = *b;
    one.count = 1;
    if (t->kept_inner) one.group += r;
    else one.row += r;
    return one;
}

/* Whether all rows of a view begin with a cache line. */
static inline int cynorm_bn_lines(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    return !v->data || (((intptr_t)v->data | (t->count[1] > 1 ? v->stride[1] : 0) |
                         (t->count[2] > 1 ? v->stride[2] : 0)) & 63) == 0;
}

/* Ahead of a block: in the next unit, where its place is known, else in this tile's next group. */
static cynorm_bn_ahead cynorm_bn_ahead_of(const cynorm_bn_tile *t, const cynorm_bn_view *v, int64_t next,
                                          const cynorm_bn_block *b) {
    int64_t bytes = t->count[0] * cynorm_itemsize(v->dtype);
    if (next) return (cynorm_bn_ahead){next, 0, (const char *)UINTPTR_MAX};
    /* the rows of a group may follow on */
    int64_t last = v->stride[1] == bytes ? t->count[1] - 1 : b->row;
    const char *group = v->data + b->group * v->stride[2], *end = group + last * v->stride[1] + bytes;
    const char *start = group + (last + 1 < t->count[1] ? (last + 1) * v->stride[1] : v->stride[2]);
    return (cynorm_bn_ahead){CYNORM_BN_AHEAD, start - end, end};
}

/* Whether a block has a piece of each of some kept rows. */
static inline int cynorm_bn_cut(const cynorm_bn_tile *t, const cynorm_bn_block *b) {
    return t->kept_inner && b->n < t->count[0];
}

/* How far ahead of rows: in memory, or, where they are cut, in the next one. */
static int64_t cynorm_bn_rows_ahead(const cynorm_bn_tile *t, const cynorm_bn_view *v, int64_t next,
                                    const cynorm_bn_block *b) {
    if (next) return next;
    return cynorm_bn_cut(t, b) ? v->stride[2] : CYNORM_BN_KEPT_AHEAD;
}

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
#if defined(__AVX512DQ__)
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
 * lane has to be moved: `half` is 0 or 1 of such vectors, IN_ORDER of others. That of the k-th of columns: */
CYNORM_INLINE int FN(half_of)(int k, int columns, int dtype) {
    return dtype == CYNORM_BF16 && columns % 2 == 0 ? k & 1 : CYNORM_BN_IN_ORDER;
}

/* and where the memory begins that has it. */
CYNORM_INLINE int FN(start_of)(int k, int half) { return (half == 1 ? k - 1 : k) * VL; }

/* Of two vectors that lie side by side, the elements of one half. */
static inline vec FN(every_other)(vec a, vec b, int odd) {
#ifdef __AVX512F__
    ivec from;
    for (int i = 0; i < VL; i++) from[i] = 2 * i + odd;
#if CYNORM_DOUBLE
    return (vec)_mm512_permutex2var_pd((__m512d)a, (__m512i)from, (__m512d)b);
#else
    return (vec)_mm512_permutex2var_ps((__m512)a, (__m512i)from, (__m512)b);
#endif
#else
    vec v;
    for (int i = 0; i < VL; i++) v[i] = i < VL / 2 ? a[(2 * i + odd) % VL] : b[(2 * i + odd) % VL];
    return v;
#endif
}

#if CYNORM_DOUBLE

/* From even and odd elements, the first vector of those in order, or the second. */
static inline vec FN(interleave)(vec even, vec odd, int second) {
#ifdef __AVX512F__
    ivec from;
    for (int i = 0; i < VL; i++) from[i] = (second * VL + i) / 2 + i % 2 * VL;
    return (vec)_mm512_permutex2var_pd((__m512d)even, (__m512i)from, (__m512d)odd);
#else
    vec v;
    for (int i = 0; i < VL; i++) v[i] = (i % 2 ? odd : even)[(second * VL + i) / 2];
    return v;
#endif
}

#else

static inline wide FN(wide_every_other)(wide a, wide b, int odd) {
    return (wide){{every_other_f64(a.half[0], a.half[1], odd), every_other_f64(b.half[0], b.half[1], odd)}};
}

static inline wide FN(wide_interleave)(wide even, wide odd, int second) {
    const cynorm_vec_f64 e = even.half[second], o = odd.half[second];
    return (wide){{interleave_f64(e, o, 0), interleave_f64(e, o, 1)}};
}

/* Of VL elements of bfloat16, the even ones and the odd ones. */
static inline wide FN(wide_split)(const char *p) {
#ifdef __AVX512F__
    const __m256i v = _mm256_loadu_si256((const __m256i *)p), high = _mm256_set1_epi32(-1 << 16);
    return (wide){{(cynorm_vec_f64)_mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(v, 16))),
                   (cynorm_vec_f64)_mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_and_si256(v, high)))}};
#elif defined(__AVX2__)
    const __m128i v = _mm_loadu_si128((const __m128i *)p), high = _mm_set1_epi32(-1 << 16);
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

/* The vector of a row of reals that belongs to elements from the i-th on. */
CYNORM_INLINE vec FN(load_half)(const real *p, int half) {
    return half == CYNORM_BN_IN_ORDER ? FN(load)(p) : FN(every_other)(FN(load)(p), FN(load)(p + VL), half);
}

/* m elements, or VL in a half. */
CYNORM_INLINE vec FN(get_in)(const char *p, int dtype, int64_t m, int half) {
#if !CYNORM_DOUBLE
    if (half != CYNORM_BN_IN_ORDER) return FN(get_half)(p, half);
#endif
    return FN(get)(p, dtype, m);
}

CYNORM_INLINE wide FN(wide_get)(const char *p, int dtype, int64_t m) {
#if !CYNORM_DOUBLE
    if (m == VL && dtype == CYNORM_F32)
        return (wide){{load_f32_f64(p), load_f32_f64((const real *)p + VL / 2)}};
#endif
    return FN(wide_of)(FN(get)(p, dtype, m));
}

/* The bits of the mask that belong to them. */
CYNORM_INLINE unsigned FN(bits_in)(const unsigned char *mask, int64_t bit, int half) {
    unsigned bits = cynorm_bits_at(mask, bit);
    if (half == CYNORM_BN_IN_ORDER) return bits;
    if (VL > 8) bits |= cynorm_bits_at(mask, bit + 16) << 16;
    return cynorm_every_other_bit(bits >> half);
}

/* ---- activations ---- */

/* The switch lies outside the loop over a row; p are the parameters. */
#define EACH_ACTIVATION(kind, CASE)                                                                          \
    switch (kind) {                                                                                          \
    case CYNORM_IDENTITY: break;                                                                             \
    CASE(CYNORM_RELU, FN(select)(x <= 0, zero, x), FN(select)(x > 0, one, zero))                             \
    CASE(CYNORM_ELU, FN(select)(x >= 0, x, p[0] * FN(expm1)(x)), FN(select)(x >= 0, one, p[0] * FN(exp)(x))) \
    CASE(CYNORM_CELU, FN(select)(x >= 0, x, p[0] * FN(expm1)(x / p[0])),                                     \
         FN(select)(x >= 0, one, FN(exp)(x / p[0])))                                                         \
    CASE(CYNORM_SCALED_ELU, p[1] * FN(select)(x > 0, x, p[0] * FN(expm1)(x)),                                \
         p[1] * FN(select)(x > 0, one, p[0] * FN(exp)(x)))                                                   \
    CASE(CYNORM_HARD_SIGMOID, FN(clip)(p[0] * x + p[1], zero, one),                                          \
         FN(select)((p[0] * x + p[1] > 0) & (p[0] * x + p[1] < 1), p[0], zero))                              \
    CASE(CYNORM_LEAKY_RELU, FN(select)(x >= 0, x, p[0] * x), FN(select)(x >= 0, one, p[0]))                  \
    CASE(CYNORM_LINEAR, p[0] * x + p[1], p[0])                                                               \
    CASE(CYNORM_PARAMETRIC_SOFTPLUS, p[0] * FN(softplus)(p[1] * x), p[0] * p[1] * FN(sigmoid)(p[1] * x))     \
    CASE(CYNORM_SCALED_TANH, p[0] * FN(tanh)(p[1] * x), p[0] * p[1] * (4 * FN(bell)(2 * p[1] * x)))          \
    CASE(CYNORM_SIGMOID, FN(sigmoid)(x), FN(bell)(x))                                                        \
    CASE(CYNORM_SOFTPLUS, FN(softplus)(p[0] * x) / p[0], FN(sigmoid)(p[0] * x))                              \
    CASE(CYNORM_SOFTSIGN, x / (1 + FN(abs)(x)), 1 / ((1 + FN(abs)(x)) * (1 + FN(abs)(x))))                   \
    CASE(CYNORM_TANH, FN(tanh)(x), 4 * FN(bell)(2 * x))                                                      \
    CASE(CYNORM_THRESHOLDED_RELU, FN(select)(x > p[0], x, zero), FN(select)(x > p[0], one, zero))            \
    CASE(CYNORM_SHRINK, FN(select)(x > p[1], x - p[0], FN(select)(x < -p[1], x + p[0], zero)),               \
         FN(select)(FN(abs)(x) > p[1], one, zero))                                                           \
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
static void FN(activate_backward)(const cynorm_bn_tile *t, real *out, const real *g, const real *value,
                                  int64_t n) {
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

/* Whether the wide halves of a forward call's sums are of even and of odd elements, see wide_split. */
CYNORM_INLINE int FN(is_split)(int64_t m, int backward, int dtype) {
    return dtype == CYNORM_BF16 && !backward && m == VL;
}

/* Whether sums are of runs of products, see sum_products. */
CYNORM_INLINE int FN(in_runs)(int backward, int dtype) { return backward && cynorm_itemsize(dtype) == 2; }

/* What m elements from the i-th of row r add to two sums: w and w * d, d being x - center and w g, or d. */
CYNORM_INLINE void FN(sum_vector)(wide *first, wide *second, const cynorm_bn_rows *in, int64_t r, int64_t i,
                                  vec center, int64_t m, int backward, int masked, int dtype) {
    const int64_t at = i * cynorm_itemsize(dtype);
    const char *x = in->x + r * in->x_step + at;
    wide d;
#if !CYNORM_DOUBLE
    if (FN(is_split)(m, backward, dtype)) d = FN(wide_split)(x);
    else
#endif
    d = FN(wide_get)(x, dtype, m);
    if (dtype != CYNORM_BF16) d = FN(wide_minus)(d, FN(wide_of)(center)); /* else it is 0 */
    wide w = d;
    if (backward) {
        const char *g = in->g + r * in->g_step + at;
        if (masked) {
            const unsigned bits = FN(bits_in)(in->mask, in->bit + r * in->bit_step + i, CYNORM_BN_IN_ORDER);
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

/* Likewise of half types, backward, in reals: d and d * ((x - center) * norm), d being g as the mask leaves it. */
CYNORM_INLINE void FN(sum_products)(vec *first, vec *second, const cynorm_bn_rows *in, int64_t r, int64_t i,
                                    vec center, vec norm, int64_t m, int half, int masked, int dtype) {
    const int64_t at = i * cynorm_itemsize(dtype);
    const char *x = in->x + r * in->x_step + at, *g = in->g + r * in->g_step + at;
    vec xhat = (FN(get_in)(x, dtype, m, half) - center) * norm, d = FN(get_in)(g, dtype, m, half);
    if (masked) d = FN(where_bits)(FN(bits_in)(in->mask, in->bit + r * in->bit_step + i, half), d);
    if (m < VL) xhat = FN(part)(xhat, (vec){0}, m);
    *first += d;
    *second = FN(fma)(d, xhat, *second);
}

/* Adds a run of them to the sums, of d and d * (x - center). */
CYNORM_INLINE void FN(add_run)(wide *first, wide *second, vec d, vec product, vec norm) {
    *first = FN(wide_add)(*first, FN(wide_of)(d));
    *second = FN(wide_fma)(FN(wide_of)(product), FN(wide_of)(1 / norm), *second);
}

/* One of the sums of a vector of columns, as they are added up: split, or of the columns of a half. */
CYNORM_INLINE wide FN(sums_half)(const wide *sums, int half, int split) {
#if !CYNORM_DOUBLE
    const cynorm_vec_f64 *v = sums->half;
    if (split) return (wide){{every_other_f64(v[0], v[1], 0), every_other_f64(v[0], v[1], 1)}};
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

/* The memory of kept rows, in its own order, ahead of those from `row` on; `done` elements are done. */
CYNORM_INLINE void FN(prefetch_kept)(const cynorm_bn_rows *in, int64_t row, int64_t done, int x, int g,
                                     int dtype) {
    int64_t at = done * cynorm_itemsize(dtype);
    if (x) __builtin_prefetch(in->x + row * in->x_step + at + in->x_ahead.by, 0, 2);
    if (g) __builtin_prefetch(in->g + row * in->g_step + at + in->g_ahead.by, 0, 2);
}

/* Adds rows to the sums of some vectors of columns, which stay in registers. */
CYNORM_INLINE void FN(sum_columns)(wide *sums, const cynorm_bn_rows *in, const real *center, const real *norm,
                                   int64_t row, int64_t rows, int64_t i, int columns, int64_t m, int backward,
                                   int masked, int dtype) {
    cynorm_bn_rows now = *in;
    wide first[CYNORM_BN_SUM_COLUMNS], second[CYNORM_BN_SUM_COLUMNS];
    vec c[CYNORM_BN_SUM_COLUMNS], factor[CYNORM_BN_SUM_COLUMNS];
    const int split = FN(is_split)(m, backward, dtype), runs = FN(in_runs)(backward, dtype), in_halves = runs ? columns : 1;
    sums += i / VL * 2;
    for (int k = 0; k < columns; k++) {
        const int half = FN(half_of)(k, in_halves, dtype), at = FN(start_of)(k, half);
        first[k] = FN(sums_half)(sums + at / VL * 2, half, split);
        second[k] = FN(sums_half)(sums + at / VL * 2 + 1, half, split);
        c[k] = FN(load_half)(center + i + at, half);
        if (runs) factor[k] = FN(load_half)(norm + i + at, half);
    }
    for (; now.images; cynorm_bn_next_image(&now))
        for (int64_t r = 0, end; r < rows; r = end) {
            vec part[2][CYNORM_BN_SUM_COLUMNS] = {{{0}}};
            end = runs && rows - r > CYNORM_BN_RUN ? r + CYNORM_BN_RUN : rows;
            for (; r < end; r++)
                for (int k = 0; k < columns; k++) {
                    const int half = FN(half_of)(k, in_halves, dtype);
                    const int64_t at = i + FN(start_of)(k, half);
                    if (k * VL * cynorm_itemsize(dtype) % 64 == 0)
                        FN(prefetch_kept)(&now, row, i * rows + (r * columns + k) * VL, 1, backward, dtype);
                    if (runs)
                        FN(sum_products)(&part[0][k], &part[1][k], &now, row + r, at, c[k], factor[k], m, half,
                                         masked, dtype);
                    else FN(sum_vector)(&first[k], &second[k], &now, row + r, at, c[k], m, backward, masked, dtype);
                }
            for (int k = 0; k < columns && runs; k++)
                FN(add_run)(&first[k], &second[k], part[0][k], part[1][k], factor[k]);
        }
    for (int k = 0; k < columns; k++) {
        const int half = FN(half_of)(k, in_halves, dtype);
        sums[2 * k] = FN(sums_in_order)(first, k, half, split);
        sums[2 * k + 1] = FN(sums_in_order)(second, k, half, split);
    }
}

CYNORM_INLINE void FN(sum_kept)(wide *sums, cynorm_bn_rows in, const real *center, const real *norm, int backward,
                                int masked, int dtype) {
    int64_t block = CYNORM_BN_SUM_COLUMNS * VL;
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

/* Ahead of n elements from the i-th of row r, of x and, where it is read, of g. */
CYNORM_INLINE void FN(prefetch_reduced)(const cynorm_bn_rows *in, int64_t r, int64_t i, int64_t n, int g, int dtype) {
    const int64_t size = cynorm_itemsize(dtype);
    for (int64_t at = i * size; at < (i + n) * size; at += 64) {
        cynorm_bn_prefetch(in->x + r * in->x_step + at, &in->x_ahead);
        if (g) cynorm_bn_prefetch(in->g + r * in->g_step + at, &in->g_ahead);
    }
}

/* Adds each row to the two sums of its statistic, in two chains. */
CYNORM_INLINE void FN(sum_reduced)(wide *sums, cynorm_bn_rows in, const real *center, const real *norm, int backward,
                                   int masked, int dtype) {
    const int runs = FN(in_runs)(backward, dtype), step = 2 * VL;
    const int half = FN(half_of)(0, 2, dtype), other = FN(half_of)(1, 2, dtype);
    for (int64_t r = 0; r < in.count; r++, sums += 2) {
        wide first[2] = {sums[0]}, second[2] = {sums[1]};
        const vec c = FN(splat)(center[r]), factor = FN(splat)(runs ? norm[r] : 1);
        for (int64_t i = 0, end; i < in.n; i = end) {
            vec part[2][2] = {{{0}}};
#define ADD(k, at, m, half)                                                                                  \
    if (runs)                                                                                                \
        FN(sum_products)(&part[0][k], &part[1][k], &in, r, (at) + FN(start_of)(k, half), c, factor, m, half, \
                         masked, dtype);                                                                     \
    else FN(sum_vector)(&first[k], &second[k], &in, r, (at) + (k) * VL, c, m, backward, masked, dtype)
            end = runs && in.n - i > CYNORM_BN_RUN * step ? i + CYNORM_BN_RUN * step : in.n;
            for (; i + step <= end; i += step) {
                FN(prefetch_reduced)(&in, r, i, step, backward, dtype);
                ADD(0, i, VL, half);
                ADD(1, i, VL, other);
            }
            FN(prefetch_reduced)(&in, r, i, end - i, backward, dtype);
            if (i + VL <= end) {
                ADD(0, i, VL, CYNORM_BN_IN_ORDER);
                i += VL;
            }
            if (i < end) {
                ADD(1, i - VL, end - i, CYNORM_BN_IN_ORDER);
            }
#undef ADD
            if (runs) FN(add_run)(&first[0], &second[0], part[0][0] + part[0][1], part[1][0] + part[1][1], factor);
        }
        sums[0] = FN(wide_add)(first[0], first[1]);
        sums[1] = FN(wide_add)(second[0], second[1]);
    }
}

/* ---- results ---- */

#define line FN(cynorm_bn_line)
typedef struct {
    char *out;
    int64_t step;               /* from row to row, in bytes */
    const real *coefficient[4]; /* CENTER, FACTOR, TERM, GAIN; NULL: 1, or the form has none */
    unsigned char *mask;        /* where ReLU's bits go, or NULL: from `bit` on, rows bit_step apart */
    int64_t bit, bit_step;
    int64_t image, bit_image;     /* from image to image, in bytes, of the mask in bits */
    int ahead, streaming;         /* whether inputs are prefetched, and out bypasses the cache */
    int64_t out_ahead, out_jump;  /* how far ahead it is fetched, if it is; in the last images, further */
} line;

static inline void FN(next_image)(line *l, cynorm_bn_rows *in) {
    cynorm_bn_next_image(in);
    if (in->images == in->last_images) l->out_ahead += l->out_jump;
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
    const char *x = in->x + r * in->x_step + at, *g = in->g + r * in->g_step + at;
    int backward = form == CYNORM_GRADIENT || form == CYNORM_SCALE;
    vec y = {0};
    if (form != CYNORM_NORMALIZE) {
        if (ahead && !kept && half != 1) cynorm_bn_prefetch(g, &in->g_ahead);
        y = FN(get_in)(g, dtype, m, half);
    }
    if (ahead && !kept && half != 1 && form != CYNORM_SCALE) cynorm_bn_prefetch(x, &in->x_ahead);
    if (backward && gated) y = FN(where_bits)(FN(bits_in)(in->mask, in->bit + r * in->bit_step + i, half), y);
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
        y = FN(select)(y <= 0, (vec){0}, y);
    }
    return y;
}

/* The columns of a row from the i-th on: `columns` vectors, or, given 0, as many as are left, fewer than
 * two. `held`: coefficients, of the row or, where elements are kept, of each vector; or NULL. */
CYNORM_INLINE void FN(combine_columns)(const line *l, const cynorm_bn_rows *in, vec (*held)[4],
                                       int64_t r, int64_t i, int columns, int ahead, int kept, int form,
                                       int gated, int dtype) {
    const int size = (int)cynorm_itemsize(dtype), per_line = 64 / size / VL;
    vec own[4], y[CYNORM_BN_COLUMNS];
    char *out = l->out + r * l->step + i * size;
    uint64_t bits = 0, passed = 0;
    for (int k = 0; k < columns; k++) {
        const int half = FN(half_of)(k, columns, dtype), at = FN(start_of)(k, half);
        if (kept && ahead && k * VL * size % 64 == 0)
            FN(prefetch_kept)(in, r, i + k * VL, form != CYNORM_SCALE, form != CYNORM_NORMALIZE, dtype);
        if (l->out_ahead && k * VL * size % 64 == 0)
            __builtin_prefetch(out + k * VL * size + l->out_ahead, 1, 2);
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
        if (!ahead || !l->streaming) FN(put)(out + k * VL * size, y[k], dtype, VL);
        else if (per_line > columns) FN(put_streaming)(out + k * VL * size, y[k], dtype);
        else if (k % per_line == per_line - 1)
            FN(put_line)(out + (k + 1 - per_line) * VL * size, y + k + 1 - per_line, dtype, 1);
    }
    int64_t left = columns ? 0 : in->n - i;
    for (int64_t j = 0; j < left; j += VL) {
        int64_t m = left - j < VL ? left - j : VL;
        if (!held) FN(coefficients)(own, l, i + j, kept, form);
        y[0] = FN(combine_vector)(l, in, held ? held[0] : own, r, i + j, m, CYNORM_BN_IN_ORDER, &passed,
                                  ahead, kept, form, gated, dtype);
        bits |= passed << j;
        if (ahead && l->streaming && m == VL) FN(put_streaming)(out + j * size, y[0], dtype);
        else FN(put)(out + j * size, y[0], dtype, m);
    }
    if (form < CYNORM_GRADIENT && gated && l->mask)
        cynorm_put_bits(l->mask, l->bit + r * l->bit_step + i, bits, columns ? columns * VL : left);
}

/* By value, so that the compiler knows them unchanged by what is stored. */
CYNORM_INLINE void FN(combine_rows)(line l, cynorm_bn_rows in, int ahead, int kept, int form, int gated,
                                    int dtype) {
    const int64_t block = CYNORM_BN_COLUMNS * VL;
    vec held[CYNORM_BN_COLUMNS][4];
#define EACH_ROW                                    \
    for (; in.images; FN(next_image)(&l, &in))      \
        for (int64_t r = 0; r < in.count; r++)
#define COMBINE(held, i, columns) \
    FN(combine_columns)(&l, &in, held, r, i, columns, ahead, kept, form, gated, dtype)
#define COMBINE_HELD(columns) /* all coefficients stay in registers */                                       \
    do {                                                                                                     \
        for (int k = 0; k < columns; k++) FN(coefficients)(held[k], &l, k * VL, kept, form);                 \
        EACH_ROW COMBINE(held, 0, columns);                                                                  \
        return;                                                                                              \
    } while (0)
    if (kept && in.n == block) COMBINE_HELD(CYNORM_BN_COLUMNS);
    if (kept && in.n == 2 * VL) COMBINE_HELD(2);
    if (kept && in.n == VL) COMBINE_HELD(1);
    EACH_ROW {
        int64_t i = 0;
        if (!kept) FN(coefficients)(held[0], &l, r, kept, form);
        for (; i + block <= in.n; i += block) COMBINE(kept ? NULL : held, i, CYNORM_BN_COLUMNS);
        if (i + 2 * VL <= in.n) {
            COMBINE(kept ? NULL : held, i, 2);
            i += 2 * VL;
        }
        if (i < in.n) COMBINE(kept ? NULL : held, i, 0);
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

/* sums: [kept][nothing else, diff_dst, diff_dst and mask]; combinations: [form][kept][gated] */
#define CYNORM_BN_LOOPS(T)                                                                                   \
    CYNORM_BN_SUM(T, sum_reduced, 0, 0, 0)                                                                   \
    CYNORM_BN_SUM(T, sum_reduced, 0, 1, 0)                                                                   \
    CYNORM_BN_SUM(T, sum_reduced, 0, 1, 1)                                                                   \
    CYNORM_BN_SUM(T, sum_kept, 1, 0, 0)                                                                      \
    CYNORM_BN_SUM(T, sum_kept, 1, 1, 0)                                                                      \
    CYNORM_BN_SUM(T, sum_kept, 1, 1, 1)                                                                      \
    static FN(sum_loop) *const FN(sum_##T)[2][3] = {                                                         \
        {FN(sum_##T##_000), FN(sum_##T##_010), FN(sum_##T##_011)},                                           \
        {FN(sum_##T##_100), FN(sum_##T##_110), FN(sum_##T##_111)}};                                          \
    CYNORM_BN_FORM(T, 0)                                                                                     \
    CYNORM_BN_FORM(T, 1)                                                                                     \
    CYNORM_BN_FORM(T, 2)                                                                                     \
    CYNORM_BN_FORM(T, 3)                                                                                     \
    static FN(combine_loop) *const FN(combine_##T)[4][2][2] = {                                              \
        CYNORM_BN_FORM_OF(T, 0), CYNORM_BN_FORM_OF(T, 1), CYNORM_BN_FORM_OF(T, 2), CYNORM_BN_FORM_OF(T, 3)};

#if CYNORM_DOUBLE
CYNORM_BN_LOOPS(F64)
#define BY_DTYPE(dtype, loops) ((void)(dtype), FN(loops##_F64))
#else
CYNORM_BN_LOOPS(F32)
CYNORM_BN_LOOPS(F16)
CYNORM_BN_LOOPS(BF16)
#define BY_DTYPE(dtype, loops) \
    (dtype == CYNORM_F16 ? FN(loops##_F16) : dtype == CYNORM_BF16 ? FN(loops##_BF16) : FN(loops##_F32))
#endif
#undef CYNORM_BN_LOOPS
#undef CYNORM_BN_FORM_OF
#undef CYNORM_BN_FORM
#undef CYNORM_BN_COMBINE
#undef CYNORM_BN_SUM

/* ---- blocks of a tile ---- */

#define scratch_t FN(cynorm_bn_scratch)
typedef struct {
    union {
        struct { char x[CYNORM_BN_STAGE], g[CYNORM_BN_STAGE]; };
        float halves[4][CYNORM_BN_WIDEST]; /* coefficients of bfloat16, whose rows are used as they are */
    };
    char out[CYNORM_BN_STAGE];
    real value[CYNORM_BN_ROW];
    unsigned char bits[CYNORM_BN_STAGE / 2];
} scratch_t;

_Static_assert(sizeof(scratch_t) <= CYNORM_BN_SCRATCH, "scratch");
_Static_assert(CYNORM_BN_SLAB + CYNORM_BN_SLAB_ROWS * 64 + CYNORM_UNPACK_STAGE <= CYNORM_BN_PACKED, "slab");

/* Whether rows are used as reals: an activation other than ReLU is computed by the row, so is all of int8. */
static inline int FN(as_reals)(const cynorm_bn_tile *t) {
    return t->activation > CYNORM_RELU || t->view[CYNORM_BN_SRC].dtype == CYNORM_S8;
}

/* Whether rows of a view can be used as they are. */
static inline int FN(is_ready)(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    return !v->data || !FN(as_reals)(t) || v->dtype == CYNORM_COMPUTE;
}

/* Bytes from row to row of a copy. */
static inline int64_t FN(copy_step)(const cynorm_bn_tile *t, const cynorm_bn_block *b) {
    return b->piece * cynorm_itemsize(FN(as_reals)(t) ? CYNORM_COMPUTE : t->view[CYNORM_BN_SRC].dtype);
}

/* The rows of a block: memory itself, or a copy that is converted. */
static const char *FN(view_rows)(const cynorm_bn_tile *t, const cynorm_bn_view *v, const cynorm_bn_block *b,
                                 char *copy, int64_t *step) {
    char *p = cynorm_bn_at(v, b);
    *step = cynorm_bn_step(t, v);
    if (FN(is_ready)(t, v)) return p;
    int64_t row = FN(copy_step)(t, b);
    for (int64_t r = 0; r < b->count; r++)
        FN(load_row)((real *)(copy + r * row), p + r * *step, v->dtype, b->n, cynorm_itemsize(v->dtype));
    *step = row;
    return copy;
}

/* Coefficients of a block; NULL stays NULL. */
static inline const real *FN(coefficient)(const cynorm_bn_tile *t, const void *p, const cynorm_bn_block *b) {
    return p ? (const real *)p + b->of * t->row + (t->kept_inner ? b->i : b->row) : NULL;
}

/* out = g times the derivative of an activation other than ReLU, of one row of reals. */
static void FN(gradient_row)(const cynorm_bn_tile *t, scratch_t *s, real *out, const char *x, const char *g,
                             const cynorm_bn_block *b) {
    const cynorm_bn_view *kept = &t->view[CYNORM_BN_VALUE];
    const real *value = s->value;
    int64_t step;
    if (kept->data) {
        value = (const real *)FN(view_rows)(t, kept, b, (char *)s->value, &step);
    } else {
        line l = {.out = (char *)s->value, .coefficient = {FN(coefficient)(t, t->center, b),
                  FN(coefficient)(t, t->gain, b), FN(coefficient)(t, t->bias, b)}};
        cynorm_bn_rows in = {.x = x, .n = b->n, .count = 1, .images = 1};
        BY_DTYPE(CYNORM_COMPUTE, combine)[CYNORM_NORMALIZE][t->kept_inner][0](&l, &in);
    }
    FN(activate_backward)(t, out, (const real *)g, value, b->n);
}

/* The rows of src, and of diff_dst with its mask, or of add; `sums`: of which sums are taken. */
static cynorm_bn_rows FN(input_rows)(const cynorm_bn_tile *t, scratch_t *s, const cynorm_bn_view *other,
                                     const cynorm_bn_block *b, int sums) {
    const cynorm_bn_view *src = &t->view[CYNORM_BN_SRC], *mask = &t->view[CYNORM_BN_MASK];
    int backward = t->view[CYNORM_BN_DIFF_DST].data != NULL;
    cynorm_bn_rows in = {.n = b->n, .count = b->count, .x_image = src->stride[1], .g_image = other->stride[1],
                         .bit_image = mask->stride[1], .images = b->images};
    const cynorm_bn_ahead here = {0, 0, (const char *)UINTPTR_MAX};
    in.x = FN(view_rows)(t, src, b, s->x, &in.x_step);
    in.together = b->count;
    if (!t->kept_inner) {
        in.x_ahead = cynorm_bn_ahead_of(t, src, t->next[0], b);
        in.g_ahead = cynorm_bn_ahead_of(t, other, t->next[1], b);
    } else if (sums && b->n > CYNORM_BN_SUM_COLUMNS * VL) {
        in.together = CYNORM_BN_TOGETHER / (b->n * cynorm_itemsize(src->dtype));
        if (in.together < CYNORM_BN_LEAST) in.together = CYNORM_BN_LEAST;
        in.x_ahead.by = in.together * in.x_step;
        in.g_ahead.by = in.together * other->stride[2];
    } else {
        in.x_ahead.by = cynorm_bn_rows_ahead(t, src, t->next[0], b);
        in.g_ahead.by = cynorm_bn_rows_ahead(t, other, t->next[1], b);
        in.x_ahead.jump = t->jump[0];
        in.g_ahead.jump = t->jump[1];
        in.last_images = t->last_images;
    }
    if (in.x == s->x || src->packed) in.x_ahead = here;
    if (!other->data) return in;
    in.g = FN(view_rows)(t, other, b, s->g, &in.g_step);
    if (in.g == s->g || other->packed) in.g_ahead = here; /* the copy is */
    if (backward && t->activation > CYNORM_RELU) {
        int64_t row = FN(copy_step)(t, b);
        for (int64_t r = 0; r < b->count; r++) {
            cynorm_bn_block one = cynorm_bn_row_of(t, b, r);
            FN(gradient_row)(t, s, (real *)(s->g + r * row), in.x + r * in.x_step, in.g + r * in.g_step,
                             &one);
        }
        in.g = s->g;
        in.g_step = row;
    }
    if (!backward || !mask->data) return in;
    in.mask = (const unsigned char *)mask->data;
    in.bit = cynorm_bn_bit(t, b);
    in.bit_step = cynorm_bn_step(t, mask);
    if (mask->stride[0] == 1 || t->count[0] == 1) return in;
    int64_t row = b->piece / 8 + 8; /* bytes: more than are used may be read */
    for (int64_t r = 0; r < b->count; r++)
        for (int64_t j = 0; j < b->n; j++) {
            unsigned bit = cynorm_bits_at(in.mask, in.bit + r * in.bit_step + j * mask->stride[0]) & 1;
            unsigned char *byte = s->bits + r * row + j / 8;
            *byte = (unsigned char)((j % 8 ? *byte : 0) | bit << j % 8);
        }
    in.mask = s->bits;
    in.bit = 0;
    in.bit_step = 8 * row;
    return in;
}

/* How a tile is cut into blocks, whose rows have `most` elements at most; `staged`: its results do not go to
 * memory as they are computed. */
static cynorm_bn_block FN(blocks)(const cynorm_bn_tile *t, int64_t most, int staged, int dtype) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    cynorm_bn_block b = {.piece = t->count[0] < most ? t->count[0] : most,
                         .rows = t->kept_inner ? t->count[2] : t->count[1], .images = 1};
    const int64_t size = cynorm_itemsize(dtype), row = t->count[0] * size;
    const int is_short = t->kept_inner && staged && !FN(as_reals)(t) && row <= CYNORM_BN_SHORT;
    const int64_t stage = (is_short ? CYNORM_BN_SHORT_STAGE : CYNORM_BN_STAGE) / size;
    if (FN(as_reals)(t) || (mask->data && mask->stride[0] != 1 && t->count[0] > 1)) {
        b.piece = CYNORM_BN_ROW;
        staged = 1;
    } else if (staged && b.piece > stage) {
        b.piece = stage;
    }
    if (staged && b.rows > stage / b.piece) b.rows = stage > b.piece ? stage / b.piece : 1;
    /* sums of all columns stay in registers from image to image */
    const int is_held = b.piece <= VL || b.piece == 2 * VL || b.piece == CYNORM_BN_SUM_COLUMNS * VL;
    if (t->kept_inner && !staged && is_held) b.images = t->count[1];
    return b;
}

/* Whether kept rows are of bfloat16, a vector each, follow on in memory, as do those of `l`, if any, and are enough of
 * them: two are taken as one, whose halves need no lane moved. */
static int FN(in_pairs)(const cynorm_bn_tile *t, const cynorm_bn_rows *in, const line *l, int dtype) {
    const int64_t row = VL * cynorm_itemsize(dtype);
    return t->kept_inner && dtype == CYNORM_BF16 && in->n == VL && in->count > 1 &&
           in->count * in->images >= CYNORM_BN_PAIRED && in->x_step == row &&
           (!in->g || in->g_step == row) && (!in->mask || in->bit_step == VL) &&
           (!l || (l->step == row && (!l->mask || l->bit_step == VL)));
}

/* The pairs of `in`, which is left with a last row, or none. */
static cynorm_bn_rows FN(take_pairs)(cynorm_bn_rows *in) {
    cynorm_bn_rows pairs = *in;
    const int64_t rows = in->count / 2 * 2;
    pairs.n *= 2, pairs.count /= 2, pairs.together = pairs.count;
    pairs.x_step *= 2, pairs.g_step *= 2, pairs.bit_step *= 2;
    in->count -= rows;
    in->x += rows * in->x_step, in->bit += rows * in->bit_step;
    if (in->g) in->g += rows * in->g_step;
    return pairs;
}

static void FN(sum_tile)(const cynorm_bn_tile *t) {
    const cynorm_bn_view *src = &t->view[CYNORM_BN_SRC];
    int dtype = FN(as_reals)(t) ? CYNORM_COMPUTE : src->dtype;
    cynorm_bn_block b = FN(blocks)(t, t->count[0], 0, dtype);
    while (cynorm_bn_next(t, &b)) {
        cynorm_bn_rows in = FN(input_rows)(t, t->scratch, &t->view[CYNORM_BN_DIFF_DST], &b, 1);
        wide *sums = (wide *)((char *)t->sums + b.of * FN(bn_sums_bytes)(t->kept_inner, t->row));
        sums += (t->kept_inner ? b.i / VL : b.row) * 2;
        if (t->streaming && !t->kept_inner && !in.g) in.x_ahead.by *= 2; /* as many bytes as of two inputs */
        const real *center = FN(coefficient)(t, t->center, &b);
        const real *norm = FN(coefficient)(t, t->norm, &b);
        FN(sum_loop) *loop = BY_DTYPE(dtype, sum)[t->kept_inner][in.mask ? 2 : in.g ? 1 : 0];
        if (FN(in_pairs)(t, &in, NULL, dtype)) {
            const cynorm_bn_rows pairs = FN(take_pairs)(&in);
            wide of_pairs[4] = {0};
            real twice[2][2 * VL];
            for (int j = 0; j < 2; j++) {
                FN(store)(twice[0] + j * VL, FN(load)(center));
                FN(store)(twice[1] + j * VL, FN(load)(norm));
            }
            loop(of_pairs, &pairs, twice[0], twice[1]);
            for (int j = 0; j < 4; j++) sums[j % 2] = FN(wide_add)(sums[j % 2], of_pairs[j]);
        }
        if (in.count) loop(sums, &in, center, norm);
    }
}

/* Whether a result goes to memory as it is computed: not where it is converted, packed or has more done to
 * it, nor where it should bypass the cache, which takes whole lines. */
static int FN(direct)(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    if (!FN(is_ready)(t, v)) return 0;
    return !t->streaming || v->packed || (t->activation <= CYNORM_RELU && cynorm_bn_lines(t, v));
}

/* The rows of a block, from where they have been computed to where they belong. */
static void FN(put_rows)(const cynorm_bn_tile *t, const cynorm_bn_view *v, const cynorm_bn_block *b,
                         const line *l) {
    char *p = cynorm_bn_at(v, b);
    if (l->out == p) return;
    int64_t size = cynorm_itemsize(v->dtype), step = cynorm_bn_step(t, v);
    int64_t bytes = b->n * size, count = b->count;
    int whole = FN(is_ready)(t, v);
    if (whole && step == bytes) {
        bytes *= count;
        count = 1;
    }
    for (int64_t r = 0; r < count; r++) {
        char *row = l->out + r * l->step, *to = p + r * step;
        if (whole) cynorm_stream_copy(to, row, bytes);
        else FN(store_row)(to, (const real *)row, v->dtype, b->n, size);
    }
}

/* A line whose rows lie in memory, where that can be, or in scratch. */
static line FN(line_to)(const cynorm_bn_tile *t, scratch_t *s, const cynorm_bn_view *v,
                        const cynorm_bn_block *b, int dtype) {
    if (!FN(direct)(t, v)) return (line){s->out, b->n * cynorm_itemsize(dtype), .ahead = t->streaming};
    return (line){cynorm_bn_at(v, b), cynorm_bn_step(t, v), .ahead = t->streaming || cynorm_bn_cut(t, b),
                  .streaming = t->streaming && !v->packed, .image = v->stride[1],
                  .out_ahead = t->fetching && !v->packed ? cynorm_bn_rows_ahead(t, v, t->next[2], b) : 0,
                  .out_jump = t->fetching ? t->jump[2] : 0};
}

#if !CYNORM_DOUBLE
/* Coefficients in the order in which blocks of columns of bfloat16 take them, see half_of; `done`: they were
 * brought into it before. */
static void FN(halve)(line *l, scratch_t *s, int64_t n, int done) {
    const int64_t whole = n / (2 * VL) * (2 * VL);
    for (int which = 0; which < 4; which++) {
        const real *from = l->coefficient[which];
        real *to = s->halves[which];
        if (!from) continue;
        l->coefficient[which] = to;
        if (done) continue;
        for (int64_t i = 0; i < whole; i += 2 * VL) {
            FN(store)(to + i, FN(load_half)(from + i, 0));
            FN(store)(to + i + VL, FN(load_half)(from + i, 1));
        }
        memcpy(to + whole, from + whole, (size_t)(n - whole) * sizeof(real));
    }
}
#endif

/* The results of rows, and of pairs of them. */
static void FN(combine)(const cynorm_bn_tile *t, line l, cynorm_bn_rows in, int form, int gated, int dtype) {
    FN(combine_loop) *loop = BY_DTYPE(dtype, combine)[form][t->kept_inner][gated];
    if (FN(in_pairs)(t, &in, &l, dtype)) {
        const cynorm_bn_rows pairs = FN(take_pairs)(&in);
        const int64_t rows = pairs.count * 2;
        line two = l;
        real twice[4][2 * VL];
        for (int which = 0; which < 4; which++) {
            if (!l.coefficient[which]) continue;
            const vec c = FN(load)(l.coefficient[which]);
            for (int half = 0; half < 2; half++) FN(store)(twice[which] + half * VL, FN(every_other)(c, c, half));
            two.coefficient[which] = twice[which];
        }
        two.step *= 2, two.bit_step *= 2;
        loop(&two, &pairs);
        l.out += rows * l.step, l.bit += rows * l.bit_step;
    }
    if (in.count) loop(&l, &in);
}

static void FN(apply_tile)(const cynorm_bn_tile *t) {
    scratch_t *s = t->scratch;
    const cynorm_bn_view *v = t->view, *dst = &v[CYNORM_BN_DST], *mask = &v[CYNORM_BN_MASK];
    const cynorm_bn_view *diff_add = &v[CYNORM_BN_DIFF_ADD], *value = &v[CYNORM_BN_VALUE];
    int backward = v[CYNORM_BN_DIFF_DST].data != NULL, form = CYNORM_NORMALIZE;
    if (v[CYNORM_BN_ADD].data) form = CYNORM_NORMALIZE_ADD;
    if (backward) form = t->slope ? CYNORM_GRADIENT : CYNORM_SCALE;
    int gated = backward ? mask->data != NULL : t->activation == CYNORM_RELU;
    int dtype = FN(as_reals)(t) ? CYNORM_COMPUTE : dst->dtype;
    int64_t most = !t->kept_inner ? t->count[0] : t->streaming ? CYNORM_BN_WIDEST : CYNORM_BN_WIDE;
    cynorm_bn_block b = FN(blocks)(t, most, !FN(direct)(t, dst) || !FN(direct)(t, diff_add), dtype);
#if !CYNORM_DOUBLE
    int64_t halved = -1; /* from which element on coefficients are in the order of halves */
#endif
    while (cynorm_bn_next(t, &b)) {
        cynorm_bn_rows in = FN(input_rows)(t, s, &v[backward ? CYNORM_BN_DIFF_DST : CYNORM_BN_ADD], &b, 0);
        if (diff_add->data) { /* diff_dst as the mask or the activation leaves it */
            line l = FN(line_to)(t, s, diff_add, &b, dtype);
            FN(combine)(t, l, in, CYNORM_SCALE, gated, dtype);
            FN(put_rows)(t, diff_add, &b, &l);
        }
        line l = FN(line_to)(t, s, dst, &b, dtype);
        l.coefficient[CYNORM_CENTER] = FN(coefficient)(t, t->center, &b);
        l.coefficient[CYNORM_FACTOR] = FN(coefficient)(t, backward ? t->slope : t->gain, &b);
        l.coefficient[CYNORM_TERM] = FN(coefficient)(t, backward ? t->offset : t->bias, &b);
        l.coefficient[CYNORM_GAIN] = FN(coefficient)(t, t->gain, &b);
#if !CYNORM_DOUBLE
        const int64_t first = b.of * t->row + b.i;
        if (t->kept_inner && dtype == CYNORM_BF16) FN(halve)(&l, s, b.n, first == halved), halved = first;
#endif
        if (!backward && mask->data) {
            l.mask = (unsigned char *)mask->data;
            l.bit = cynorm_bn_bit(t, &b);
            l.bit_step = cynorm_bn_step(t, mask);
            l.bit_image = mask->stride[1];
        }
        FN(combine)(t, l, in, form, gated, dtype);
        for (int64_t r = 0; r < b.count && !backward && t->activation > CYNORM_RELU; r++) {
            real *row = (real *)(l.out + r * l.step);
            if (value->data) {
                cynorm_bn_block one = cynorm_bn_row_of(t, &b, r);
                FN(store_row)(cynorm_bn_at(value, &one), row, value->dtype, b.n, value->stride[0]);
            }
            FN(activate)(t, row, b.n);
        }
        FN(put_rows)(t, dst, &b, &l);
    }
}

/* ---- slabs of a tile, which are as much as is packed at a time ---- */

#define slab_t FN(cynorm_bn_slab)
/* As many elements of each statistic, from the `at`-th on, of a group. */
typedef struct {
    const cynorm_bn_tile *t;
    cynorm_bn_tile tile; /* in which copies stand for packed views */
    int64_t statistics, group, at, n, all; /* of so many */
} slab_t;

/* Bytes (of the mask, bits) from one element of a statistic to the next. */
static inline int64_t FN(slab_step)(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    return t->kept_inner ? v->stride[2] / t->repeat : v->stride[0];
}

static inline char *FN(slab_at)(const slab_t *s, const cynorm_bn_view *v) {
    return v->data + s->group * v->stride[2] + s->at * FN(slab_step)(s->t, v);
}

/* The elements of a slab from a view to its copy, or back. */
static void FN(move_slab)(const slab_t *s, int k, int pack) {
    const cynorm_bn_tile *t = s->t;
    const cynorm_bn_view *v = &t->view[k], *copy = &s->tile.view[k];
    const int kept = t->kept_inner;
    const int64_t split = s->statistics < t->split ? s->statistics : t->split, step = FN(slab_step)(t, v);
    cynorm_slab slab = {{FN(slab_at)(s, v), copy->data},
                        {{split, {v->stride[!kept], copy->stride[!kept]}},
                         {s->statistics / split, {v->block, copy->block}},
                         {s->n, {step, FN(slab_step)(t, copy)}, s->at, s->all - s->at - s->n}},
                        cynorm_itemsize(v->dtype), s->n * step};
    if (pack) cynorm_pack(&slab);
    else cynorm_unpack(&slab, t->streaming ? copy->data + CYNORM_BN_SLAB : NULL, CYNORM_BN_SLAB_ROWS);
}

/* Whether a call writes to a view. */
static inline int FN(is_output)(const cynorm_bn_tile *t, int k) {
    return k == CYNORM_BN_DST || k == CYNORM_BN_DIFF_ADD ||
           (k == CYNORM_BN_VALUE && !t->view[CYNORM_BN_DIFF_DST].data);
}

/* The tile of a slab: packed views are of copies, one after another in scratch. */
static cynorm_bn_tile FN(slab_tile)(const slab_t *s) {
    const cynorm_bn_tile *t = s->t;
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    const int kept = t->kept_inner;
    char *copy = (char *)t->scratch + CYNORM_BN_SCRATCH;
    cynorm_bn_tile tile = *t;
    tile.count[kept ? 2 : 0] = kept ? s->n / t->repeat : s->n;
    if (!kept) tile.count[2] = 1;
    tile.bit += s->group * mask->stride[2] + s->at * FN(slab_step)(t, mask);
    tile.next[0] = s->n * FN(slab_step)(t, &t->view[CYNORM_BN_SRC]);
    tile.next[1] = s->n * FN(slab_step)(t, &t->view[CYNORM_BN_DIFF_DST]);
    for (int k = 0; k < CYNORM_BN_MASK; k++) {
        cynorm_bn_view *v = &tile.view[k];
        const int64_t size = cynorm_itemsize(v->dtype);
        if (!v->data) continue;
        v->data = v->packed ? copy : FN(slab_at)(s, v);
        if (!v->packed) continue;
        copy += CYNORM_BN_PACKED;
        v->stride[0] = size;
        /* whole lines of memory, and rows not all in the same set of the cache */
        v->stride[1] = (s->n * size + 63) / 64 * 64 + 64;
        v->stride[2] = t->count[0] * size;
        v->block = t->split * (!kept ? v->stride[1] : t->blocks > 1 ? s->n * size : size);
    }
    return tile;
}

/* Whether a call's results do not wait for its sums: those of backward inference. */
static inline int FN(at_once)(const cynorm_bn_tile *t) { return t->view[CYNORM_BN_DIFF_DST].data && !t->slope; }

/* Runs a tile by slabs, between packing what is read of packed views and unpacking what they are given. */
static void FN(by_slabs)(const cynorm_bn_tile *t, int sums, int apply) {
    const int kept = t->kept_inner;
    slab_t s = {.t = t, .statistics = kept ? t->count[0] / t->repeat * t->blocks : t->count[1],
                .all = kept ? t->count[2] * t->repeat : t->count[0]};
    int64_t widest = 1;
    for (int k = 0; k < CYNORM_BN_MASK; k++)
        if (t->view[k].packed && cynorm_itemsize(t->view[k].dtype) > widest)
            widest = cynorm_itemsize(t->view[k].dtype);
    int64_t piece = (CYNORM_BN_SLAB / s.statistics - 128) / widest;
    piece = piece > 64 ? piece / 64 * 64 : 16;
    if (kept) piece = piece > t->repeat ? piece / t->repeat * t->repeat : t->repeat;
    for (s.group = 0; s.group < (kept ? 1 : t->count[2]); s.group++)
        for (s.at = 0; s.at < s.all; s.at += s.n) {
            s.n = s.all - s.at < piece ? s.all - s.at : piece;
            s.tile = FN(slab_tile)(&s);
            for (int k = 0; k < CYNORM_BN_MASK; k++)
                if (t->view[k].packed && !FN(is_output)(t, k) && (apply || k != CYNORM_BN_ADD))
                    FN(move_slab)(&s, k, 1);
            if (sums) FN(sum_tile)(&s.tile);
            if (apply) FN(apply_tile)(&s.tile);
            for (int k = 0; k < CYNORM_BN_MASK && apply; k++)
                if (t->view[k].packed && FN(is_output)(t, k)) FN(move_slab)(&s, k, 0);
        }
}

static void FN(bn_sums)(const cynorm_bn_tile *t) {
    if (t->packs) FN(by_slabs)(t, 1, FN(at_once)(t));
    else FN(sum_tile)(t);
}

static void FN(bn_apply)(const cynorm_bn_tile *t) {
    if (!t->packs) FN(apply_tile)(t);
    else if (!FN(at_once)(t)) FN(by_slabs)(t, 0, 1);
}

#undef line
#undef scratch_t
#undef slab_t
#undef BY_DTYPE

/* ---- from sums to coefficients, of as many statistics at a time as a vector holds doubles ---- */

#if CYNORM_DOUBLE

enum { CYNORM_BN_LANES = VL };

/* Numbers of twice double's precision, high + low, or high alone where that is infinite or NaN. */
typedef struct { vec high, low; } cynorm_exact;

static inline ivec cynorm_is_finite(vec v) { return v - v == 0; }

static inline cynorm_exact cynorm_exact_add(cynorm_exact a, cynorm_exact b) {
    vec s = a.high + b.high, t = s - a.high;
    vec low = (a.high - (s - t)) + (b.high - t) + (a.low + b.low), high = FN(select)(cynorm_is_finite(s), s + low, s);
    return (cynorm_exact){high, low - (high - s)};
}

/* a * b + c, rounded once. */
static inline vec cynorm_exact_fma(vec a, vec b, vec c) {
#if defined(__FMA__) || defined(__FP_FAST_FMA)
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

/* a / n, given 1 / n as well; exact where a is a multiple of n, so that a constant has variance 0. */
static inline cynorm_exact cynorm_exact_divide(cynorm_exact a, vec n, vec inverse) {
    vec q = a.high / n;
    return (cynorm_exact){q, (cynorm_exact_fma(-q, n, a.high) + a.low) * inverse};
}

static inline cynorm_exact cynorm_exact_minus(cynorm_exact a) { return (cynorm_exact){-a.high, -a.low}; }

/* How many statistics there are from k on. */
static inline int64_t cynorm_bn_lanes(const cynorm_bn_unit *u, int64_t k) {
    return u->n - k < CYNORM_BN_LANES ? u->n - k : CYNORM_BN_LANES;
}

/* Rounded to float and back. */
static inline vec cynorm_as_float(vec v) {
    float half[VL];
    store_f32_f64(half, v);
    return load_f32_f64(half);
}

#endif

#define doubles cynorm_vec_f64

static inline doubles FN(rounded)(doubles v) { return CYNORM_DOUBLE ? v : cynorm_as_float(v); }

/* Reals from the k-th of an array on; lanes past the last statistic hold whatever follows, and are not used. */
static inline doubles FN(reals_at)(const void *array, int64_t k) {
    return get_f64((const char *)((const real *)array + k), CYNORM_COMPUTE, CYNORM_BN_LANES);
}

static inline void FN(put_reals)(void *array, int64_t k, int64_t n, doubles v) {
    real *to = (real *)array + k;
    if (n == CYNORM_BN_LANES) put_f64((char *)to, v, CYNORM_COMPUTE, n);
    else for (int64_t i = 0; i < n; i++) to[i] = (real)v[i];
}

#if !CYNORM_DOUBLE
/* The sum of all lanes: the upper half is added to the lower one until one is left. */
static inline double FN(across)(const wide *w) {
    doubles v = w->half[0] + w->half[1];
#pragma GCC unroll 8
    for (int width = CYNORM_BN_LANES / 2; width; width /= 2) {
        doubles upper;
#pragma GCC unroll 8
        for (int i = 0; i < CYNORM_BN_LANES; i++) upper[i] = v[(i + width) % CYNORM_BN_LANES];
        v += upper;
    }
    return v[0];
}
#endif

/* The first of the two sums of a column. */
static inline const double *FN(column_sums)(const wide *sums, int64_t at) {
    return (const double *)(sums + at / VL * 2) + at % VL;
}

/* Sums `which` (0 or 1) of n statistics from k on; the two of a vector follow each other. */
static inline cynorm_exact FN(sums_of)(const cynorm_bn_unit *u, int64_t k, int64_t n, int which) {
    const wide *sums = (const wide *)u->sums + which;
    double high[CYNORM_BN_LANES] = {0}, low[CYNORM_BN_LANES] = {0};
    cynorm_exact sum = {{0}, {0}};
    if (u->kept_inner) {
        for (int64_t j = 0; j < u->repeat; j++) {
            const int64_t at = (j * u->n + k) * u->spread;
            if (u->spread == 1 && at % VL + CYNORM_BN_LANES <= VL) {
                const double *lane = FN(column_sums)(sums, at);
                doubles row = load_f64(lane);
                if (CYNORM_DOUBLE) sum = cynorm_exact_add(sum, (cynorm_exact){row, load_f64(lane + VL)});
                else sum.high += row;
                continue;
            }
            for (int64_t column = 0; column < u->spread; column++) {
                for (int64_t i = 0; i < n; i++) {
                    const double *lane = FN(column_sums)(sums, at + i * u->spread + column);
                    high[i] = CYNORM_DOUBLE ? *lane : high[i] + *lane;
                    if (CYNORM_DOUBLE) low[i] = lane[VL];
                }
                if (CYNORM_DOUBLE) sum = cynorm_exact_add(sum, (cynorm_exact){load_f64(high), load_f64(low)});
            }
        }
        if (!CYNORM_DOUBLE) sum.high += load_f64(high);
        return sum;
    }
#if CYNORM_DOUBLE
    for (int j = 0; j < VL; j++) {
        for (int64_t i = 0; i < n; i++) {
            const double *lane = (const double *)(sums + (k + i) * 2) + j;
            high[i] = *lane;
            low[i] = lane[VL];
        }
        sum = cynorm_exact_add(sum, (cynorm_exact){load_f64(high), load_f64(low)});
    }
#else
    for (int64_t i = 0; i < n; i++) high[i] = FN(across)(sums + (k + i) * 2);
    sum.high = load_f64(high);
#endif
    return sum;
}

/* The sums of all chunks, one after another, into those of the first. */
static void FN(merge_chunks)(const cynorm_bn_unit *u) {
    for (int64_t c = 1; c < u->chunks; c++)
        for (int64_t i = 0; i < u->part_bytes; i += sizeof(wide)) {
            wide *to = (wide *)(u->sums + i);
            *to = FN(wide_add)(*to, *(const wide *)(u->sums + c * u->chunk_bytes + i));
        }
}

static inline void FN(put_coefficients)(const cynorm_bn_unit *u, void *array, int64_t k, int64_t n, doubles v) {
    v = select_f64(v == v, v, splat_f64(NAN)); /* see round_quiet_bf16 */
    for (int64_t j = 0; j < u->repeat; j++) {
        const int64_t at = k + j * u->n;
        if (u->spread == 1) FN(put_reals)(array, at, n, v);
        else for (int64_t i = 0; i < n; i++)
            for (int64_t column = 0; column < u->spread; column++)
                ((real *)array)[(at + i) * u->spread + column] = (real)v[i];
    }
}

/* Mean, in two parts, and rstd of n statistics from the k-th on -> coefficients of the forward formula. */
static inline void FN(put_forward)(const cynorm_bn_unit *u, int64_t k, int64_t n, doubles mean, doubles low, doubles rstd) {
    const doubles least = splat_f64(0x1p-126);
    doubles gain = FN(rounded)(u->scale ? FN(reals_at)(u->scale, k) * rstd : rstd);
    doubles bias = u->shift ? FN(reals_at)(u->shift, k) : (doubles){0};
    FN(put_reals)(u->rstd, k, n, rstd);
    FN(put_coefficients)(u, u->center, k, n, mean);
    FN(put_coefficients)(u, u->norm, k, n, select_f64(rstd < least, least, rstd));
    FN(put_coefficients)(u, u->gain, k, n, gain);
    FN(put_coefficients)(u, u->bias, k, n, select_f64(low == 0, bias, bias - low * gain)); /* gain may be infinite */
}

/* The centers of n statistics from the k-th on. */
static inline doubles FN(center_at)(const cynorm_bn_unit *u, int64_t k, int64_t n) {
    doubles v = {0};
    if (u->spread == 1) return FN(reals_at)(u->center, k);
    for (int64_t i = 0; i < n; i++) v[i] = ((const real *)u->center)[(k + i) * u->spread];
    return v;
}

/* Sums about the center -> mean and variance, and coefficients: these of a variance that reals may have no room for. */
static void FN(bn_statistics)(const cynorm_bn_unit *u) {
    const doubles count = splat_f64((double)u->count), inverse = splat_f64(1 / (double)u->count);
    FN(merge_chunks)(u);
    for (int64_t k = 0; k < u->n; k += CYNORM_BN_LANES) {
        const int64_t n = cynorm_bn_lanes(u, k);
        cynorm_exact pivot = {FN(center_at)(u, k, n), {0}};
        cynorm_exact shift = cynorm_exact_divide(FN(sums_of)(u, k, n, 0), count, inverse);
        cynorm_exact squares = cynorm_exact_divide(FN(sums_of)(u, k, n, 1), count, inverse);
        cynorm_exact mean = cynorm_exact_add(pivot, shift);
        cynorm_exact square = cynorm_exact_multiply(shift, shift);
        doubles variance = cynorm_exact_add(squares, cynorm_exact_minus(square)).high;
        doubles low = (mean.high - FN(rounded)(mean.high)) + mean.low;
        variance = select_f64(variance < 0, (doubles){0}, variance);
        variance = select_f64(cynorm_is_finite(shift.high) & (squares.high == INFINITY), squares.high, variance);
        FN(put_reals)(u->mean, k, n, mean.high);
        FN(put_reals)(u->mean_low, k, n, low);
        FN(put_reals)(u->variance, k, n, variance);
        FN(put_forward)(u, k, n, mean.high, low, 1 / sqrt_f64(variance + splat_f64(u->epsilon)));
    }
}

/* Mean and variance (or, without it, rstd) -> coefficients. */
static void FN(bn_coefficients)(const cynorm_bn_unit *u) {
    for (int64_t k = 0; k < u->n; k += CYNORM_BN_LANES) {
        doubles rstd = u->variance ? 1 / sqrt_f64(FN(reals_at)(u->variance, k) + splat_f64(u->epsilon))
                                   : FN(reals_at)(u->rstd, k);
        FN(put_forward)(u, k, cynorm_bn_lanes(u, k), FN(reals_at)(u->mean, k), FN(reals_at)(u->mean_low, k), rstd);
    }
}

/* Sums of backward -> gradients of the parameters, and coefficients of diff_src. */
static void FN(bn_gradients)(const cynorm_bn_unit *u, int training) {
    const doubles count = splat_f64((double)u->count);
    FN(merge_chunks)(u);
    for (int64_t k = 0; k < u->n; k += CYNORM_BN_LANES) {
        const int64_t n = cynorm_bn_lanes(u, k);
        cynorm_exact sum = FN(sums_of)(u, k, n, 0), product = FN(sums_of)(u, k, n, 1);
        cynorm_exact low = {FN(reals_at)(u->mean_low, k), {0}};
        /* of x - center, which has the low part of the mean yet */
        cynorm_exact less = cynorm_exact_add(product, cynorm_exact_minus(cynorm_exact_multiply(low, sum)));
        doubles rstd = FN(reals_at)(u->rstd, k), shift = sum.high;
        doubles scale = select_f64(cynorm_is_finite(shift), less.high, product.high) * rstd; /* where the sum is finite */
        FN(put_reals)(u->diff_shift, k, n, shift);
        FN(put_reals)(u->diff_scale, k, n, scale);
        if (!training) continue;
        doubles slope = -scale * rstd / count;
        FN(put_coefficients)(u, u->slope, k, n, slope);
        FN(put_coefficients)(u, u->offset, k, n, -shift / count - low.high * slope);
    }
}

static void FN(bn_load_row)(void *dst, const char *src, int dtype, int64_t n, int64_t stride) {
    FN(load_row)(dst, src, dtype, n, stride);
}

static void FN(bn_store_row)(char *dst, const void *src, int dtype, int64_t n, int64_t stride) {
    FN(store_row)(dst, src, dtype, n, stride);
}

#undef wide
#undef doubles
