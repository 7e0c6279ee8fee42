/* Elements moved from one memory order to another, whatever they stand for: only their size matters. */

enum { CYNORM_LANE = 16 }; /* bytes: what instructions interleave in, however wide the vector */

/* n elements, `to_stride` and `from_stride` bytes apart. */
static void cynorm_copy_elements(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                                 int64_t n, int64_t size) {
    for (int64_t i = 0; i < n; i++, to += to_stride, from += from_stride)
        switch (size) {
        case 1: memcpy(to, from, 1); break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        default: memcpy(to, from, 8); break;
        }
}

#ifdef __SSE2__

#if CYNORM_VBYTES == 64
#define CYNORM_MM(op) _mm512_##op
typedef __m512i cynorm_bytes;
#elif CYNORM_VBYTES == 32
#define CYNORM_MM(op) _mm256_##op
typedef __m256i cynorm_bytes;
#else
#define CYNORM_MM(op) _mm_##op
typedef __m128i cynorm_bytes;
#endif

/* The first 16 bytes of rows i, i + stride, i + 2 stride..., in a lane each; past row n - 1, of that one. */
CYNORM_INLINE cynorm_bytes cynorm_load_lanes(const char *p, int64_t step, int i, int stride, int n) {
#define ROW(k) (i + (k) * stride < n ? i + (k) * stride : n - 1)
#define LANE(k) _mm_loadu_si128((const __m128i *)(p + ROW(k) * step))
#if CYNORM_VBYTES == 64
    __m512i v = _mm512_inserti32x4(_mm512_castsi128_si512(LANE(0)), LANE(1), 1);
    return _mm512_inserti32x4(_mm512_inserti32x4(v, LANE(2), 2), LANE(3), 3);
#elif CYNORM_VBYTES == 32
    return _mm256_inserti128_si256(_mm256_castsi128_si256(LANE(0)), LANE(1), 1);
#else
    (void)stride;
    return LANE(0);
#endif
#undef LANE
#undef ROW
}

/* The lower or the upper halves of each lane of a and b, interleaved by elements. */
CYNORM_INLINE cynorm_bytes cynorm_interleave(cynorm_bytes a, cynorm_bytes b, int upper, int size) {
    switch (size) {
    case 1: return upper ? CYNORM_MM(unpackhi_epi8)(a, b) : CYNORM_MM(unpacklo_epi8)(a, b);
    case 2: return upper ? CYNORM_MM(unpackhi_epi16)(a, b) : CYNORM_MM(unpacklo_epi16)(a, b);
    case 4: return upper ? CYNORM_MM(unpackhi_epi32)(a, b) : CYNORM_MM(unpacklo_epi32)(a, b);
    default: return upper ? CYNORM_MM(unpackhi_epi64)(a, b) : CYNORM_MM(unpacklo_epi64)(a, b);
    }
}

#undef CYNORM_MM

/* The first n bytes of v. */
CYNORM_INLINE void cynorm_store_bytes(char *p, cynorm_bytes v, int n) {
#ifdef __AVX512BW__
    if (n < CYNORM_VBYTES) {
        _mm512_mask_storeu_epi8(p, ((__mmask64)1 << n) - 1, v);
        return;
    }
#endif
    memcpy(p, &v, (size_t)n);
}

/* to[c][r] = from[r][c] of n rows, at most a vector of them, and a lane of columns. Each stage rotates
 * the bits of an element's row and column, written side by side, by one. */
CYNORM_INLINE void cynorm_transpose_block(char *to, int64_t to_step, const char *from, int64_t from_step,
                                          int n, int size) {
    const int columns = CYNORM_LANE / size;
    cynorm_bytes v[CYNORM_LANE], w[CYNORM_LANE];
    for (int i = 0; i < columns; i++) v[i] = cynorm_load_lanes(from, from_step, i, columns, n);
    for (int done = 1; done < columns; done *= 2) {
        for (int i = 0; i < columns; i++)
            w[i] = cynorm_interleave(v[i / 2], v[(i + columns) / 2], i % 2, size);
        for (int i = 0; i < columns; i++) v[i] = w[i];
    }
    for (int i = 0; i < columns; i++) cynorm_store_bytes(to + i * to_step, v[i], n * size);
}

#else

CYNORM_INLINE void cynorm_transpose_block(char *to, int64_t to_step, const char *from, int64_t from_step,
                                          int n, int size) {
    for (int i = 0; i < CYNORM_LANE / size; i++)
        cynorm_copy_elements(to + i * to_step, size, from + i * size, from_step, n, size);
}

#endif

/* Last blocks overlap those before: nothing past a row is read. What is too narrow goes by elements. */
CYNORM_INLINE void cynorm_transpose_sized(char *to, int64_t to_step, const char *from, int64_t from_step,
                                          int64_t rows, int64_t columns, int64_t ahead, int size) {
    const int most = CYNORM_VBYTES / size, wide = CYNORM_LANE / size, line = 64 / size;
    if (columns < wide) {
        for (int64_t c = 0; c < columns; c++)
            cynorm_copy_elements(to + c * to_step, size, from + c * size, from_step, rows, size);
        return;
    }
    for (int64_t r = 0; r < rows; r += most) {
        const int64_t row = rows < most ? 0 : r < rows - most ? r : rows - most;
        for (int64_t c = 0; c < columns; c += wide) {
            const int64_t column = c < columns - wide ? c : columns - wide;
            const char *in = from + row * from_step + column * size;
            if (ahead && c % line == 0)
                for (int64_t i = row; i < row + most && i < rows; i++)
                    __builtin_prefetch(from + i * from_step + c * size + ahead, 0, 2);
            char *out = to + column * to_step + row * size;
            if (rows < most) cynorm_transpose_block(out, to_step, in, from_step, (int)rows, size);
            else cynorm_transpose_block(out, to_step, in, from_step, most, size);
        }
    }
}

/* to[c][r] = from[r][c]: the elements of a row follow on, both here and there; rows are a step apart.
 * What lies `ahead` of what is read is prefetched, unless that is 0. */
static void cynorm_transpose(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t rows,
                             int64_t columns, int64_t ahead, int64_t size) {
    switch (size) {
    case 1: cynorm_transpose_sized(to, to_step, from, from_step, rows, columns, ahead, 1); break;
    case 2: cynorm_transpose_sized(to, to_step, from, from_step, rows, columns, ahead, 2); break;
    case 4: cynorm_transpose_sized(to, to_step, from, from_step, rows, columns, ahead, 4); break;
    default: cynorm_transpose_sized(to, to_step, from, from_step, rows, columns, ahead, 8); break;
    }
}

/* The same past the cache, by whole lines; `stage` holds 64 bytes for each row. */
static void cynorm_transpose_past_cache(char *to, int64_t to_step, const char *from, int64_t from_step,
                                        int64_t rows, int64_t columns, int64_t size, char *stage) {
    const int64_t most = 64 / size, length = rows * size;
    for (int64_t c = 0; c < columns; c += most) {
        const int64_t n = columns - c < most ? columns - c : most;
        cynorm_transpose(stage, length, from + c * size, from_step, rows, n, 0, size);
        const int64_t together = to_step == length ? n : 1;
        for (int64_t i = 0; i < n; i += together)
            cynorm_stream_copy(to + (c + i) * to_step, stage + i * length, length * together);
    }
}

static int64_t cynorm_stage_pitch(int64_t length) { return (length + 63) / 64 * 64 + 64; }

/* The same, of rows that go on from call to call, of 64 bytes or more but for the last: what has not filled a line yet
 * waits in the row's stage, of cynorm_stage_pitch(the longest) bytes. */
static void cynorm_transpose_on_past_cache(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t rows,
                                           int64_t columns, int64_t size, char *stage, int64_t pitch, int first, int last) {
    const int64_t most = 64 / size, length = rows * size;
    for (int64_t c = 0; c < columns; c += most) {
        const int64_t n = columns - c < most ? columns - c : most;
        char *row = stage + c * pitch + 64;
        cynorm_transpose(row, pitch, from + c * size, from_step, rows, n, 0, size);
        for (int64_t i = 0; i < n; i++, row += pitch) {
            char *p = to + (c + i) * to_step, waiting[64];
            const int64_t before = first ? 0 : (intptr_t)p & 63, after = last ? 0 : (intptr_t)(p + length) & 63;
            cynorm_stream_copy(p - before, row - before, before + length - after);
            memcpy(waiting, row + length - 64, 64); /* which may reach into those that wait already */
            memcpy(row - 64, waiting, 64);
        }
    }
}

/* An axis of elements to be moved: how many there are, and bytes from one to the next on either side. */
typedef struct { int64_t n, from, to; } cynorm_axis;

enum { CYNORM_REORDER_STAGE = 16 << 10 };

/* n bytes, whose number is often one of few. */
CYNORM_INLINE void cynorm_copy_run(char *to, const char *from, int64_t n) {
    if (n == 64) memcpy(to, from, 64);
    else if (n == 32) memcpy(to, from, 32);
    else if (n == 16) memcpy(to, from, 16);
    else memcpy(to, from, (size_t)n);
}

static inline int64_t cynorm_distance(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Merges axes that follow on; sorts by strides on the side of `to`, those of one element last. */
static void cynorm_sort_axes(cynorm_axis *axis) {
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            if (i != j && axis[j].n > 1 && axis[j].from == axis[i].n * axis[i].from &&
                axis[j].to == axis[i].n * axis[i].to) {
                axis[i].n *= axis[j].n;
                axis[j].n = 1;
            }
    for (int i = 1; i < 3; i++)
        for (int j = i; j > 0; j--) {
            cynorm_axis *a = &axis[j - 1], *b = &axis[j], other = *a;
            if (b->n == 1 || (a->n > 1 && cynorm_distance(a->to) <= cynorm_distance(b->to))) break;
            *a = *b;
            *b = other;
        }
}

/* Elements along sorted axes. What lies `ahead` of what is read is prefetched, unless that is 0. */
static void cynorm_reorder(char *to, const char *from, const cynorm_axis axis[3], int64_t ahead,
                           int64_t size) {
    const cynorm_axis *a = &axis[0], *b = &axis[1], *c = &axis[2];
    if (c->n > 1 && c->from == size) b = &axis[2], c = &axis[1];
    const int along = a->from == size && a->to == size;
    const int across = a->n > 1 && b->n > 1 && b->from == size && a->to == size;
    for (int64_t k = 0; k < c->n; k++, to += c->to, from += c->from) {
        if (across && !along) {
            cynorm_transpose(to, b->to, from, a->from, a->n, b->n, ahead, size);
            continue;
        }
        for (int64_t j = 0; j < b->n; j++) {
            char *out = to + j * b->to;
            const char *p = from + j * b->from;
            if (!along) {
                cynorm_copy_elements(out, a->to, p, a->from, a->n, size);
                continue;
            }
            for (int64_t i = 0; ahead && i < a->n * size; i += 64) __builtin_prefetch(p + i + ahead, 0, 2);
            cynorm_copy_run(out, p, a->n * size);
        }
    }
}

/* The same past the cache, as far as there are whole lines; `stage` holds CYNORM_REORDER_STAGE bytes. */
static void cynorm_reorder_past_cache(char *to, const char *from, const cynorm_axis axis[3], int64_t size,
                                      char *stage) {
    const cynorm_axis *a = &axis[0], *b = &axis[1], *c = &axis[2];
    if (a->to != size) {
        cynorm_reorder(to, from, axis, 0, size);
        return;
    }
    const int64_t lanes = 64 / size, most = CYNORM_REORDER_STAGE / (lanes * size);
    const int64_t piece = a->n < most ? a->n : most, follows = piece == a->n && b->to == a->n * size;
    int64_t rows = CYNORM_REORDER_STAGE / (piece * size);
    if (rows > lanes) rows -= rows % lanes;
    for (int64_t k = 0; k < c->n; k++, to += c->to, from += c->from)
        for (int64_t j = 0, m; j < b->n; j += m) {
            m = b->n - j < rows ? b->n - j : rows;
            for (int64_t i = 0, n; i < a->n; i += n) {
                n = a->n - i < piece ? a->n - i : piece;
                char *out = to + j * b->to + i * size;
                const char *p = from + j * b->from + i * a->from;
                if (a->from == size && !follows) {
                    for (int64_t r = 0; r < m; r++)
                        cynorm_stream_copy(out + r * b->to, p + r * b->from, n * size);
                    continue;
                }
                const cynorm_axis part[3] = {{n, a->from, size}, {m, b->from, n * size}, {1, 0, 0}};
                cynorm_reorder(stage, p, part, 0, size);
                const int64_t together = follows ? m : 1;
                for (int64_t r = 0; r < m; r += together)
                    cynorm_stream_copy(out + r * b->to, stage + r * n * size, n * size * together);
            }
        }
}
