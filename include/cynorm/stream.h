/* Memory moved past the cache, and the measure of how fast this machine can move it. */

typedef float cynorm_vector __attribute__((vector_size(CYNORM_VBYTES)));

static inline cynorm_vector cynorm_load_vector(const char *p) {
    cynorm_vector v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Store n bytes (a constant: 8 to 64) past the cache, where there are vectors of as many, to an address aligned to them. */
CYNORM_INLINE void cynorm_stream(char *p, const void *v, size_t n) {
#if CYNORM_VBYTES == 64
    if (n == 64) {
        _mm512_stream_si512((__m512i *)p, _mm512_loadu_si512(v));
        return;
    }
#endif
#if CYNORM_VBYTES >= 32
    if (n == 32) {
        _mm256_stream_si256((__m256i *)p, _mm256_loadu_si256((const __m256i *)v));
        return;
    }
#endif
#ifdef __SSE2__
    if (n == 16) {
        _mm_stream_si128((__m128i *)p, _mm_loadu_si128((const __m128i *)v));
        return;
    }
#endif
    memcpy(p, v, n);
}

/* A line, to where a line of dst begins. */
CYNORM_INLINE void cynorm_stream_line(char *dst, const char *src) {
    for (int j = 0; j < 64; j += CYNORM_VBYTES) cynorm_stream(dst + j, src + j, CYNORM_VBYTES);
}

/* Whole lines of dst bypass the cache; loads need no alignment. */
static inline void cynorm_stream_copy(char *dst, const char *src, int64_t n) {
    int64_t i = -(intptr_t)dst & 63;
    if (i > n) i = n;
    if (i) memcpy(dst, src, (size_t)i);
    for (; i + 64 <= n; i += 64) cynorm_stream_line(dst + i, src + i);
    if (i < n) memcpy(dst + i, src + i, (size_t)(n - i));
}

static inline void cynorm_fence(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* n is a multiple of 256, the pointers of 64. */
static inline double cynorm_bandwidth(char *out, const char *const *in, int reads, int64_t n, int streaming) {
    if (!out) {
        cynorm_vector sum[4] = {{0}};
        for (int64_t i = 0; i < n; i += 4 * CYNORM_VBYTES)
            for (int j = 0; j < 4; j++) sum[j] += cynorm_load_vector(in[0] + i + j * CYNORM_VBYTES);
        cynorm_vector all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        return all[0];
    }
    for (int64_t i = 0; i < n; i += CYNORM_VBYTES) {
        cynorm_vector v = cynorm_load_vector(in[0] + i);
        if (reads > 1) v += cynorm_load_vector(in[1] + i);
        if (streaming) cynorm_stream(out + i, &v, sizeof v);
        else memcpy(out + i, &v, sizeof v);
    }
    return 0;
}
