/* Elements moved from one memory order to another, whatever they stand for: only their size matters. */

enum { CYNORM_LANE = 16 }; /* bytes within which instructions interleave, however wide the vector */

/* n elements, `to_step` and `from_step` bytes apart. The steps of the most common slices, [::-1] and [::2], are
 * constants, of which compilers make vectors. */
#define ARGUMENTS char *restrict to, int64_t to_step, const char *restrict from, int64_t from_step, int64_t n
#define CYNORM_COPY(size)                                                                                    \
    CYNORM_INLINE void cynorm_copy_each_##size(ARGUMENTS) {                                                  \
        _Pragma("GCC unroll 4") for (int64_t i = 0; i < n; i++)                                              \
            memcpy(to + i * to_step, from + i * from_step, size);                                            \
    }                                                                                                        \
    static void cynorm_copy_##size(ARGUMENTS) {                                                              \
        if (to_step < 0) {                                                                                   \
            to += (n - 1) * to_step, from += (n - 1) * from_step;                                            \
            to_step = -to_step, from_step = -from_step;                                                      \
        }                                                                                                    \
        if (to_step == size && from_step == -size) cynorm_copy_each_##size(to, size, from, -size, n);        \
        else if (to_step == size && from_step == 2 * size) cynorm_copy_each_##size(to, size, from, 2 * size, n); \
        else cynorm_copy_each_##size(to, to_step, from, from_step, n);                                       \
    }
CYNORM_COPY(1)
CYNORM_COPY(2)
CYNORM_COPY(4)
CYNORM_COPY(8)
#undef ARGUMENTS
#undef CYNORM_COPY

static void cynorm_copy_elements(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, int64_t size) {
    switch (size) {
    case 1: cynorm_copy_1(to, to_step, from, from_step, n); break;
    case 2: cynorm_copy_2(to, to_step, from, from_step, n); break;
    case 4: cynorm_copy_4(to, to_step, from, from_step, n); break;
    default: cynorm_copy_8(to, to_step, from, from_step, n);
    }
}

#ifdef __SSE2__

/* to[c][r] = from[r][c] of as many rows as a vector of `lanes` lanes holds, and of a lane of columns. Lane k
 * of vector i begins as row i + k * columns; each stage rotates the bits of an element's row and column,
 * written side by side, by one. The asm hides how far lanes are apart: GCC would keep a register per row.
 * Where not all of a lane's rows are given, others stand in for them; columns that are not kept are not written. */
#define CYNORM_TRANSPOSE_LANES(lanes, vector, mm, LOAD, STORE)                                               \
    CYNORM_INLINE vector cynorm_interleave_##lanes(vector a, vector b, int upper, int size) {                \
        switch (size) {                                                                                      \
        case 1: return upper ? mm##_unpackhi_epi8(a, b) : mm##_unpacklo_epi8(a, b);                          \
        case 2: return upper ? mm##_unpackhi_epi16(a, b) : mm##_unpacklo_epi16(a, b);                        \
        case 4: return upper ? mm##_unpackhi_epi32(a, b) : mm##_unpacklo_epi32(a, b);                        \
        default: return upper ? mm##_unpackhi_epi64(a, b) : mm##_unpacklo_epi64(a, b);                       \
        }                                                                                                    \
    }                                                                                                        \
    CYNORM_INLINE void cynorm_transpose_lanes_##lanes(                                                       \
        char *to, int64_t to_step, const char *from, int64_t from_step, int size, int given, int kept) {     \
        const int columns = CYNORM_LANE / size;                                                              \
        vector v[CYNORM_LANE], w[CYNORM_LANE];                                                               \
        const char *row[lanes];                                                                              \
        for (int k = 0; k < lanes; k++, from += columns * from_step) {                                       \
            row[k] = from;                                                                                   \
            __asm__("" : "+r"(row[k]));                                                                      \
        }                                                                                                    \
        for (int i = 0; i < columns; i++) v[i] = LOAD(i < given ? i : 0);                                    \
        for (int done = 1; done < columns; done *= 2) {                                                      \
            for (int i = 0; i < columns; i++)                                                                \
                w[i] = cynorm_interleave_##lanes(v[i / 2], v[(i + columns) / 2], i % 2, size);               \
            for (int i = 0; i < columns; i++) v[i] = w[i];                                                   \
        }                                                                                                    \
        for (int i = 0; i < columns; i++, to += to_step)                                                     \
            if (i < kept) STORE((void *)to, v[i]);                                                           \
    }

#define LANE(i, k) _mm_loadu_si128((const __m128i *)(row[k] + (i) * from_step))
#define LOAD(i) LANE(i, 0)
CYNORM_TRANSPOSE_LANES(1, __m128i, _mm, LOAD, _mm_storeu_si128)
#undef LOAD
#if CYNORM_VBYTES >= 32
#define LOAD(i) _mm256_inserti128_si256(_mm256_castsi128_si256(LANE(i, 0)), LANE(i, 1), 1)
CYNORM_TRANSPOSE_LANES(2, __m256i, _mm256, LOAD, _mm256_storeu_si256)
#undef LOAD
#endif
#if CYNORM_VBYTES == 64
#define INSERT(v, i, k) _mm512_inserti32x4(v, LANE(i, k), k)
#define LOAD(i) INSERT(INSERT(INSERT(_mm512_castsi128_si512(LANE(i, 0)), i, 1), i, 2), i, 3)
CYNORM_TRANSPOSE_LANES(4, __m512i, _mm512, LOAD, _mm512_storeu_si512)
#undef INSERT
#undef LOAD
#endif
#undef LANE
#undef CYNORM_TRANSPOSE_LANES

/* n rows, by vectors of `piece` bytes of them: a lane, two lanes or four; `given` of a lane's rows, `kept` of its columns. */
CYNORM_INLINE void cynorm_transpose_block(char *to, int64_t to_step, const char *from, int64_t from_step,
                                          int n, int size, int piece, int given, int kept) {
    for (int done = 0; done < n * size; done += piece, to += piece, from += piece / size * from_step) {
#if CYNORM_VBYTES == 64
        if (piece == 64) cynorm_transpose_lanes_4(to, to_step, from, from_step, size, given, kept);
#endif
#if CYNORM_VBYTES >= 32
        if (piece == 32) cynorm_transpose_lanes_2(to, to_step, from, from_step, size, given, kept);
#endif
        if (piece == 16) cynorm_transpose_lanes_1(to, to_step, from, from_step, size, given, kept);
    }
}

#else

CYNORM_INLINE void cynorm_transpose_block(char *to, int64_t to_step, const char *from, int64_t from_step,
                                          int n, int size, int piece, int given, int kept) {
    const int rows = given < CYNORM_LANE / size ? given : n;
    (void)piece;
    for (int i = 0; i < kept; i++)
        cynorm_copy_elements(to + i * to_step, size, from + i * size, from_step, rows, size);
}

#endif

/* n rows at a time, of n or more. The last blocks overlap those before: nothing past a row is read. */
CYNORM_INLINE void cynorm_transpose_rows(char *to, int64_t to_step, const char *from, int64_t from_step,
                                         int64_t rows, int64_t columns, int64_t ahead, int size, int n, int piece) {
    const int wide = CYNORM_LANE / size, line = 64 / size;
    for (int64_t r = 0; r < rows; r += n) {
        const int64_t row = r < rows - n ? r : rows - n;
        const char *in = from + row * from_step;
        char *out = to + row * size;
        for (int64_t c = 0; c < columns; c += line) {
            const int64_t end = columns - c < line ? columns - c : line;
            for (int64_t i = 0; ahead && i < n; i++) __builtin_prefetch(in + i * from_step + ahead, 0, 2);
            for (int64_t k = wide; k <= end; k += wide, in += CYNORM_LANE, out += wide * to_step)
                cynorm_transpose_block(out, to_step, in, from_step, n, size, piece, wide, wide);
        }
        const int64_t over = columns % wide ? wide - columns % wide : 0;
        if (over)
            cynorm_transpose_block(out - over * to_step, to_step, in - over * size, from_step, n, size, piece, wide, wide);
    }
}

static inline int64_t cynorm_distance(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Fewer columns than a lane, in rows at most a lane apart: a lane of each row is read, but not of rows that have no other behind
 * them where that lane ends. */
CYNORM_INLINE void cynorm_split_rows(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t rows, int64_t columns,
                                     int size) {
    const int n = CYNORM_VBYTES / size;
    const int64_t apart = cynorm_distance(from_step), over = (CYNORM_LANE - columns * size + apart - 1) / apart;
    const int64_t first = from_step > 0 ? 0 : over < rows ? over : rows, whole = from_step < 0 ? rows : rows - over;
    int64_t r = first;
    for (; r + n <= whole; r += n)
        cynorm_transpose_block(to + r * size, to_step, from + r * from_step, from_step, n, size, CYNORM_VBYTES, CYNORM_LANE / size,
                               (int)columns);
    for (int64_t c = 0; c < columns; c++) {
        cynorm_copy_elements(to + c * to_step, size, from + c * size, from_step, first, size);
        cynorm_copy_elements(to + c * to_step + r * size, size, from + c * size + r * from_step, from_step, rows - r, size);
    }
}

/* Fewer rows than a lane, and columns that follow on where they are written: a lane of each, whose end the next one overwrites. */
CYNORM_INLINE void cynorm_join_rows(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t rows, int64_t columns,
                                    int size) {
    const int n = CYNORM_LANE / size;
    const int64_t whole = columns - (CYNORM_LANE - 1) / to_step;
    int64_t c = 0;
    for (; c + n <= whole; c += n)
        cynorm_transpose_block(to + c * to_step, to_step, from + c * size, from_step, n, size, CYNORM_LANE, (int)rows, n);
    for (int64_t r = 0; r < rows; r++)
        cynorm_copy_elements(to + r * size + c * to_step, to_step, from + r * from_step + c * size, size, columns - c, size);
}

/* A line of rows at a time or, where there are fewer, half of one or a quarter: channels of a block; by vectors as wide as can be
 * or, where these would lie across lines, and further apart than what is read, by the shortest, which seldom do. Each is a function
 * of its own, or pointers spill. */
#define ARGUMENTS                                                                                            \
    char *to, int64_t to_step, const char *from, int64_t from_step, int64_t rows, int64_t columns,           \
        int64_t ahead
#define CYNORM_TRANSPOSE(size, bytes, way, piece)                                                            \
    static __attribute__((noinline)) void cynorm_transpose_##size##_##bytes##_##way(ARGUMENTS) {             \
        cynorm_transpose_rows(to, to_step, from, from_step, rows, columns, ahead, size, bytes / size, piece); \
    }
#define CYNORM_TRANSPOSE_BOTH_WAYS(size, bytes)                                                              \
    CYNORM_TRANSPOSE(size, bytes, wide, bytes < CYNORM_VBYTES ? bytes : CYNORM_VBYTES)                       \
    CYNORM_TRANSPOSE(size, bytes, short, CYNORM_LANE)
#define CYNORM_TRANSPOSE_SIZE(size)                                                                          \
    CYNORM_TRANSPOSE_BOTH_WAYS(size, 16) CYNORM_TRANSPOSE_BOTH_WAYS(size, 32) CYNORM_TRANSPOSE_BOTH_WAYS(size, 64)
CYNORM_TRANSPOSE_SIZE(1)
CYNORM_TRANSPOSE_SIZE(2)
CYNORM_TRANSPOSE_SIZE(4)
CYNORM_TRANSPOSE_SIZE(8)
#undef CYNORM_TRANSPOSE_SIZE
#undef CYNORM_TRANSPOSE_BOTH_WAYS
#undef CYNORM_TRANSPOSE
#define CYNORM_NARROW(way, size)                                                                             \
    static __attribute__((noinline)) void cynorm_##way##_##size(ARGUMENTS) {                                 \
        (void)ahead;                                                                                         \
        cynorm_##way##_rows(to, to_step, from, from_step, rows, columns, size);                              \
    }
CYNORM_NARROW(split, 1)
CYNORM_NARROW(split, 2)
CYNORM_NARROW(split, 4)
CYNORM_NARROW(join, 1)
CYNORM_NARROW(join, 2)
CYNORM_NARROW(join, 4)
#undef CYNORM_NARROW

/* to[c][r] = from[r][c]: the elements of a row follow on, both here and there; rows are a step apart. The first prefetches what
 * lies `ahead` of its reads, unless that is 0. */
typedef void cynorm_transposition(ARGUMENTS, int64_t size);

/* 16 bytes of each, or more. */
static void cynorm_transpose(ARGUMENTS, int64_t size) {
    const int64_t bytes = rows * size;
    const int across = CYNORM_VBYTES > CYNORM_LANE && ((intptr_t)to | to_step) & 63;
#define OF(size, way)                                                                                        \
    (bytes < 32 ? cynorm_transpose_##size##_16_##way                                                         \
     : bytes < 64 ? cynorm_transpose_##size##_32_##way : cynorm_transpose_##size##_64_##way)
#define BY(way) (size == 1 ? OF(1, way) : size == 2 ? OF(2, way) : size == 4 ? OF(4, way) : OF(8, way))
    (across && to_step > from_step ? BY(short) : BY(wide))(to, to_step, from, from_step, rows, columns, ahead);
#undef BY
#undef OF
}
static void cynorm_split(ARGUMENTS, int64_t size) {
    (size == 1 ? cynorm_split_1 : size == 2 ? cynorm_split_2 : cynorm_split_4)(to, to_step, from, from_step, rows, columns, ahead);
}
static void cynorm_join(ARGUMENTS, int64_t size) {
    (size == 1 ? cynorm_join_1 : size == 2 ? cynorm_join_2 : cynorm_join_4)(to, to_step, from, from_step, rows, columns, ahead);
}
#undef ARGUMENTS

/* ---- slabs: what a kernel works on at a time, in scratch where memory has another order ---- */

enum { CYNORM_MEMORY, CYNORM_SCRATCH };

/* An axis of a slab: how many elements, and bytes from one to the next on either side; how many elements of
 * it are in slabs that came before, and in those to come. */
typedef struct { int64_t n, step[2], before, after; } cynorm_axis;

/* Elements along axes in any order, which lie in memory from at[0] on, and in scratch from at[1] on. */
typedef struct {
    char *at[2];
    cynorm_axis axis[3];
    int64_t size, next; /* bytes of an element; from this slab of memory to the next */
} cynorm_slab;

static inline int cynorm_is_single(const cynorm_axis *a) { return a->n + a->before + a->after == 1; }

/* Merges axes that follow on; sorts by steps on one side, those of a single element last. */
static void cynorm_sort_axes(cynorm_axis axis[3], int side) {
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            cynorm_axis *inner = &axis[i], *outer = &axis[j];
            if (i == j || cynorm_is_single(outer) || inner->before + inner->after > 0 ||
                outer->step[0] != inner->n * inner->step[0] || outer->step[1] != inner->n * inner->step[1])
                continue;
            outer->before *= inner->n, outer->after *= inner->n;
            *inner = (cynorm_axis){inner->n * outer->n, {inner->step[0], inner->step[1]}, outer->before,
                                   outer->after};
            *outer = (cynorm_axis){.n = 1};
        }
    for (int i = 1; i < 3; i++)
        for (int j = i; j > 0; j--) {
            cynorm_axis *a = &axis[j - 1], *b = &axis[j], other = *a;
            if (cynorm_is_single(b) ||
                (!cynorm_is_single(a) && cynorm_distance(a->step[side]) <= cynorm_distance(b->step[side])))
                break;
            *a = *b;
            *b = other;
        }
}

/* Runs of n bytes along axes b and c; each as two parts of `part` bytes, which may overlap, unless that is 0. */
CYNORM_INLINE void cynorm_copy_runs(char *to, const char *from, const cynorm_axis *b, const cynorm_axis *c,
                                    int side, int64_t ahead, int64_t n, int64_t part) {
    for (int64_t k = 0; k < c->n; k++, to += c->step[side], from += c->step[!side]) {
        char *out = to;
        const char *in = from;
        for (int64_t j = 0; j < b->n; j++, out += b->step[side], in += b->step[!side]) {
            for (int64_t i = 0; ahead && i < n; i += 64) __builtin_prefetch(in + i + ahead, 0, 2);
            if (part) {
                char last[32];
                memcpy(last, in + n - part, (size_t)part);
                memcpy(out, in, (size_t)part);
                memcpy(out + n - part, last, (size_t)part);
            } else {
                memcpy(out, in, (size_t)n);
            }
        }
    }
}

/* Turn an axis: from its last element on. */
static void cynorm_reverse(cynorm_axis *a, char **to, const char **from, int side) {
    *to += (a->n - 1) * a->step[side];
    *from += (a->n - 1) * a->step[!side];
    a->step[0] = -a->step[0], a->step[1] = -a->step[1];
}

/* What makes rows, written on `side` as they lie there, of columns, read as they lie on the other side; NULL if nothing does. */
static cynorm_transposition *cynorm_transposition_of(const cynorm_axis *row, const cynorm_axis *column, int side, int64_t size) {
    const int64_t row_bytes = row->n * size, column_bytes = column->n * size, apart = cynorm_distance(row->step[!side]);
    if (cynorm_distance(column->step[!side]) != size || cynorm_distance(row->step[side]) != size) return NULL;
    if (row->n == 1 || column->n == 1 || (row_bytes < CYNORM_LANE && column_bytes < CYNORM_LANE)) return NULL;
    if (row_bytes < CYNORM_LANE) return column->step[side] == row->n * column->step[!side] ? cynorm_join : NULL;
    if (column_bytes < CYNORM_LANE) return apart >= column_bytes && apart <= CYNORM_LANE ? cynorm_split : NULL;
    return cynorm_transpose;
}

/* The elements of a slab, whose axes are sorted for the side that they are written to. */
static void cynorm_reorder(const cynorm_slab *s, int side, int64_t ahead) {
    const cynorm_axis *a = &s->axis[0], *b = &s->axis[1], *c = &s->axis[2];
    const int64_t size = s->size, bytes = a->n * size;
    char *to = s->at[side];
    const char *from = s->at[!side];
    if (a->step[0] == size && a->step[1] == size) {
        /* pixels of a block of channels, often; a few channels */
        if (bytes == 16) cynorm_copy_runs(to, from, b, c, side, ahead, 16, 0);
        else if (bytes == 32) cynorm_copy_runs(to, from, b, c, side, ahead, 32, 0);
        else if (bytes == 64) cynorm_copy_runs(to, from, b, c, side, ahead, 64, 0);
        else if (bytes >= 64 || bytes < 2) cynorm_copy_runs(to, from, b, c, side, ahead, bytes, 0);
        else if (bytes > 32) cynorm_copy_runs(to, from, b, c, side, ahead, bytes, 32);
        else if (bytes > 16) cynorm_copy_runs(to, from, b, c, side, ahead, bytes, 16);
        else if (bytes >= 8) cynorm_copy_runs(to, from, b, c, side, ahead, bytes, 8);
        else if (bytes >= 4) cynorm_copy_runs(to, from, b, c, side, ahead, bytes, 4);
        else cynorm_copy_runs(to, from, b, c, side, ahead, bytes, 2);
        return;
    }
    if (c->n > 1 && cynorm_distance(c->step[!side]) == size) b = &s->axis[2], c = &s->axis[1];
    cynorm_transposition *transpose = cynorm_transposition_of(a, b, side, size);
    if (transpose) {
        cynorm_axis row = *a, column = *b; /* forwards, where they are read and where they are written */
        if (row.step[side] < 0) cynorm_reverse(&row, &to, &from, side);
        if (column.step[!side] < 0) cynorm_reverse(&column, &to, &from, side);
        for (int64_t k = 0; k < c->n; k++, to += c->step[side], from += c->step[!side])
            transpose(to, column.step[side], from, row.step[!side], row.n, column.n, ahead, size);
        return;
    }
    if (a->n < 8 && a->n < b->n) { /* the longer one is the inner loop */
        const cynorm_axis *longer = b;
        b = a;
        a = longer;
    }
    for (int64_t k = 0; k < c->n; k++, to += c->step[side], from += c->step[!side])
        for (int64_t j = 0; j < b->n; j++)
            cynorm_copy_elements(to + j * b->step[side], a->step[side], from + j * b->step[!side], a->step[!side], a->n, size);
}

/* From memory to scratch. */
static void cynorm_pack(cynorm_slab *s) {
    cynorm_sort_axes(s->axis, CYNORM_SCRATCH);
    cynorm_reorder(s, CYNORM_SCRATCH, s->next);
}

/* For rows on their way past the cache: of each row, what has not filled a line; and some whole rows. */
static inline int64_t cynorm_unpack_bytes(int64_t rows) { return rows * 64 + CYNORM_UNPACK_STAGE; }

/* n bytes of a row past the cache, after `done` that went before: those that did not fill a line lie before
 * `from`, and what does not fill one now goes to `carry`, unless the row ends. */
CYNORM_INLINE void cynorm_stream_on(char *to, const char *from, int64_t n, char *carry, int64_t done,
                                    int last) {
    const int64_t begin = (intptr_t)to & 63, end = (intptr_t)(to + n) & 63;
    const int64_t before = done < begin ? done : begin, after = last ? 0 : done + n < end ? done + n : end;
    cynorm_stream_copy(to - before, from - before, before + n - after);
    if (after) memcpy(carry, from + n - 64, 64);
}

/* From scratch to memory; past the cache, where `stage` is given, by whole lines as far as there are any. It
 * holds cynorm_unpack_bytes(rows): as many rows may go on from slab to slab. */
static void cynorm_unpack(cynorm_slab *s, char *stage, int64_t rows) {
    enum { MEMORY = CYNORM_MEMORY, SCRATCH = CYNORM_SCRATCH };
    const cynorm_axis *axis = s->axis, none = {.n = 1};
    cynorm_sort_axes(s->axis, MEMORY);
    if (!stage || axis[0].step[MEMORY] != s->size) {
        cynorm_reorder(s, MEMORY, 0);
        return;
    }
    /* a row is all that follows on: entries along x, of the axes within it; one for each of y and z */
    int joined = 1;
    while (joined < 3 && !cynorm_is_single(&axis[joined]) &&
           axis[joined].step[MEMORY] == axis[joined - 1].n * axis[joined - 1].step[MEMORY] &&
           axis[joined].step[MEMORY] <= CYNORM_UNPACK_STAGE / 4)
        joined++;
    const cynorm_axis *x = &axis[joined - 1];
    const cynorm_axis *y = joined < 3 ? &axis[joined] : &none, *z = joined < 2 ? &axis[2] : &none;
    /* as many entries at a time, of as many rows, as fit the stage: vectors of rows, for transposing */
    const int64_t entry = x->step[MEMORY], lanes = 64 / s->size, abreast = y->n < lanes ? y->n : lanes;
    int64_t most = (CYNORM_UNPACK_STAGE / abreast - 128) / entry;
    most = most < 1 ? 1 : most < x->n ? most : x->n;
    const int64_t pitch = (most * entry + 63) / 64 * 64 + 64;
    int64_t turns = CYNORM_UNPACK_STAGE / pitch;
    if (turns > lanes) turns -= turns % lanes;
    const int goes_on = y->n * z->n <= rows;
    for (int64_t k = 0; k < z->n; k++)
        for (int64_t j = 0, m; j < y->n; j += m) {
            m = y->n - j < turns ? y->n - j : turns;
            for (int64_t i = 0, n; i < x->n; i += n) {
                n = x->n - i < most ? x->n - i : most;
                char *carry = stage + (k * y->n + j) * 64, *staged = stage + rows * 64 + 64;
                /* now: the rest of a line, which comes later, does not wait for these */
                for (int64_t r = 0; r < m && goes_on; r++)
                    memcpy(staged + r * pitch - 64, carry + r * 64, 64);
                cynorm_slab part = {{staged, s->at[SCRATCH] + i * x->step[SCRATCH] + j * y->step[SCRATCH] +
                                                 k * z->step[SCRATCH]},
                                    {axis[0], joined > 1 ? axis[1] : none, joined > 2 ? axis[2] : none},
                                    s->size, 0};
                part.axis[joined - 1].n = n;
                if (joined < 3) part.axis[joined] = (cynorm_axis){m, {pitch, y->step[SCRATCH]}, 0, 0};
                cynorm_reorder(&part, MEMORY, 0);
                char *to = s->at[MEMORY] + i * entry + j * y->step[MEMORY] + k * z->step[MEMORY];
                const int64_t done = goes_on ? (x->before + i) * entry : 0;
                const int last = !goes_on || (i + n == x->n && !x->after);
                for (int64_t r = 0; r < m; r++, to += y->step[MEMORY], staged += pitch, carry += 64)
                    cynorm_stream_on(to, staged, n * entry, carry, done, last);
            }
        }
}
