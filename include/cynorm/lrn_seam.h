/* LRN: dst past the cache, where lines of memory begin within its vectors: a line is the end of one vector and what begins the
 * next. A template, see types.h. */

/* A run of dst: a row, or rows that follow one another. What is stored at once, `bytes`, is a line or half of one. */
#define seam_t FN(cynorm_lrn_seam)
typedef struct {
    vec before;    /* the vector before, as it is stored */
    ivec lanes;    /* of two vectors, those of a line */
    int64_t first; /* reals of a vector that come before the next line */
} seam_t;

/* Whether vectors of that type are lines. */
CYNORM_INLINE int FN(is_line)(int dtype) { return VL * cynorm_itemsize(dtype) == 64; }

CYNORM_INLINE vec FN(line_of)(const seam_t *s, vec next, int64_t bytes) {
#if defined(__AVX512F__) && !CYNORM_DOUBLE
    if (bytes == 32) {
#define HALF(v) _mm512_castsi512_si256((__m512i)(v))
        return (vec)_mm512_castsi256_si512(_mm256_permutex2var_epi32(HALF(s->before), HALF(s->lanes), HALF(next)));
#undef HALF
    }
#endif
#if CYNORM_PICKS
    (void)bytes;
    return FN(picked)(s->before, next, s->lanes);
#else
    (void)s, (void)bytes;
    return next;
#endif
}

static void FN(open_seam)(seam_t *s, const char *dst, int64_t bytes) {
    s->before = (vec){0};
    s->first = (bytes - ((intptr_t)dst & (bytes - 1))) / (int64_t)sizeof(real);
#if CYNORM_PICKS
    s->lanes = FN(lanes_from)(s->first);
#endif
}

/* v, as it is stored, for p, which lies in the line at `line`; where the run begins, so many reals up to the next line. */
CYNORM_INLINE void FN(put_seamed)(seam_t *s, char *p, char *line, vec v, int begins, int64_t head, int64_t bytes) {
    const vec whole = FN(line_of)(s, v, bytes);
    if (__builtin_expect(begins, 0)) FN(put)(p, v, CYNORM_COMPUTE, head);
    else cynorm_stream(line, &whole, (size_t)bytes);
    s->before = v;
}

/* The end of a run, behind whose last vector at `end` n reals are left; `tail`: whether what is no whole line is written. */
CYNORM_INLINE void FN(close_seam)(seam_t *s, char *end, vec rest, int64_t n, int tail, int64_t bytes) {
    const int64_t lanes = bytes / (int64_t)sizeof(real);
    int64_t left = lanes - s->first + n;
    char *p = end - (lanes - s->first) * (int64_t)sizeof(real);
    if (left >= lanes) {
        const vec whole = FN(line_of)(s, rest, bytes);
        cynorm_stream(p, &whole, (size_t)bytes);
        s->before = rest, p += bytes, left -= lanes;
    }
    if (tail) FN(put)(p, FN(line_of)(s, rest, bytes), CYNORM_COMPUTE, left);
}
