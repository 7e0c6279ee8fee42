/* LRN with a window of 3, 5, 7 or 9 cells along level 0 and along the stream: planes whose rows lie one after the other. Or along
 * level 1, where channels, level 0, do not fill vectors, or pixels of a row are few: the channels of a row's pixels are its cells,
 * and a window's cells are as far apart as pixels. A template, see types.h; formulas and tiles are lrn.h's.
 *
 * A window's rows are summed first, into scratch, and these sums are then added. The rows of scratch lie side by side as those
 * of memory do: a window's rows are steps of a row apart, and loops across rows go by whole vectors and lines of the plane,
 * wherever its rows begin.
 *
 * Volumes go by the same loops: there each `row` is a plane, and its sums are those of windows along its rows and across them. */

/* Bytes that reads of planes run ahead; elements of planes worked on at once; up to so many pixels of a row are few. */
enum { CYNORM_AHEAD = 8192, CYNORM_PLANE = 16384, CYNORM_FEW_PIXELS = CYNORM_VBYTES == 64 ? 13 : 20 };

typedef struct {
    int64_t width, apart; /* of a row; from one cell of a window to the next */
    int64_t height;       /* rows of a row that is a plane, else 0 */
    const char *from; /* sums along rows: of what, how many rows, bytes from one to the next; to where */
    int64_t rows, pitch;
    real *out, *cells; /* cells of a row, where they are apart, or sums along a plane's rows, with zeros on both sides */
    const char *src, *diff_dst; /* across rows: of a run, `length` elements */
    char *dst;
    real *sums, *weighted; /* the sums along rows, from the first row of the first window on */
    int64_t length;
    int64_t src_ahead, diff_ahead;
    coefficients q;
    int streaming;
    char *line; /* of dst, while it is not whole: made from its byte `made` up to where `waits` points in dst */
    char *waits;
    int64_t made;
} plane_t;

/* The sum of a window's cells, of which p is the first. */
CYNORM_INLINE vec FN(sum_apart)(const real *p, int64_t apart, int reach) {
    vec cell[2 * CYNORM_PLANE_REACH + 1];
#pragma GCC unroll 16
    for (int j = 0; j <= 2 * reach; j++) cell[j] = FN(load)(p + j * apart);
    return FN(sum_cells)(cell, reach);
}

/* The next cells of a row: squares of src, or terms. */
CYNORM_INLINE vec FN(cells)(const plane_t *p, const char *row, int64_t n, int dtype, int terms) {
    if (terms) return FN(part)(FN(load)((const real *)row), (vec){0}, n);
    __builtin_prefetch(row + p->src_ahead, 0, 2);
    const vec x = FN(get)(row, dtype, n);
    return x * x;
}

/* The window sums along rows; what is stored beyond the end of a row lies where the next one begins. */
CYNORM_INLINE void FN(plane_rows)(const plane_t *p, int dtype, int reach, int terms) {
    const int64_t last = (p->width - 1) % VL + 1, whole = p->width - last;
    const int64_t vector = VL * (terms ? (int64_t)sizeof(real) : cynorm_itemsize(dtype));
    const char *from = p->from;
    real *out = p->out;
    for (int64_t r = 0; r < p->rows; r++, from += p->pitch, out += p->width) {
        const char *row = from;
        sums_t sums = FN(row_begins)(FN(cells)(p, row, whole ? VL : last, dtype, terms), reach);
        for (int64_t j = 0; j < whole; j += VL) {
            row += vector;
            FN(store)(out + j, FN(row_sum)(&sums, FN(cells)(p, row, j + VL < whole ? VL : last, dtype, terms), reach));
        }
        FN(store)(out + whole, FN(row_sum)(&sums, (vec){0}, reach));
    }
}

/* The same where a window's cells are apart. */
CYNORM_INLINE void FN(plane_rows_apart)(const plane_t *p, int dtype, int reach, int terms) {
    const int64_t vector = VL * (terms ? (int64_t)sizeof(real) : cynorm_itemsize(dtype));
    const char *from = p->from;
    real *out = p->out;
    for (int64_t r = 0; r < p->rows; r++, from += p->pitch, out += p->width) {
        const char *row = from;
        for (int64_t j = 0; j < p->width; j += VL, row += vector)
            FN(store)(p->cells + j, FN(cells)(p, row, j + VL < p->width ? VL : p->width - j, dtype, terms));
        const real *first = p->cells - reach * p->apart;
        for (int64_t j = 0; j < p->width; j += VL, first += VL) FN(store)(out + j, FN(sum_apart)(first, p->apart, reach));
    }
}

/* Of a row that is a plane, the sums of these sums across its rows. */
CYNORM_INLINE void FN(plane_columns)(const plane_t *p, int reach) {
    const real *first = p->cells - reach * p->width;
    for (int64_t i = 0; i < p->length; i += VL) FN(store)(p->out + i, FN(sum_apart)(first + i, p->width, reach));
}

/* Omegas are made a step before they are used, so that no step is one long chain, and powers are taken two at once. */
CYNORM_INLINE vec FN(plane_omega)(const plane_t *p, int64_t i, int reach) {
    return FN(omega_of)(&p->q, FN(sum_apart)(p->sums + i, p->width, reach), VL);
}

/* In place of the sums, `count` vectors of terms, of n lanes. Without `mends`, writes nothing and returns 0 where a power is to be
 * mended. */
CYNORM_INLINE int FN(plane_term)(const plane_t *p, const vec *omegas, int64_t i, int64_t n, int count, int dtype, int kind,
                                 int mends) {
    vec omega[2], x[2], g[2], term[2], weighted[2], told = {0};
    for (int k = 0; k < count; k++) {
        const int64_t at = (i + k * VL) * cynorm_itemsize(dtype);
        x[k] = FN(get)(p->src + at, dtype, n), g[k] = FN(get)(p->diff_dst + at, dtype, n);
        __builtin_prefetch(p->diff_dst + at + p->diff_ahead, 0, 2);
        omega[k] = FN(part)(omegas[k], FN(splat)(1), n);
    }
    FN(terms_of)(&p->q, term, omega, g, x, NULL, count, kind, weighted, mends ? NULL : &told);
    if (!mends && __builtin_expect(FN(told_to_mend)(told, kind, p->q.beta), 0)) return 0;
    for (int k = 0; k < count; k++) {
        FN(store)(p->weighted + i + k * VL, weighted[k]);
        FN(store_n)(p->sums + i + k * VL, term[k], n);
    }
    return 1;
}

/* Terms by twos from element i on, until a power is to be mended (CYNORM_UNMENDED); returns where it stops. */
typedef int64_t FN(cynorm_unmended)(const plane_t *, int64_t i);
CYNORM_INLINE int64_t FN(unmended_terms)(const plane_t *p, int64_t i, int dtype, int reach) {
    vec omega[2], next[2];
    for (int k = 0; k < 2; k++) omega[k] = FN(plane_omega)(p, i + k * VL, reach);
    for (; i + 4 * VL <= p->length; i += 2 * VL) {
        for (int k = 0; k < 2; k++) next[k] = FN(plane_omega)(p, i + (2 + k) * VL, reach);
        if (!FN(plane_term)(p, omega, i, VL, 2, dtype, CYNORM_BETA_THREE_QUARTERS, 0)) break;
        for (int k = 0; k < 2; k++) omega[k] = next[k];
    }
    return i;
}

/* Terms, whose sums are finished apart from them. */
CYNORM_INLINE void FN(plane_backward)(plane_t *pieces, const plane_t *p, int dtype, int reach, int kind,
                                      FN(cynorm_unmended) *unmended) {
    /* first up to where stores of weighted are aligned */
    int64_t i = (-(intptr_t)p->weighted & (VL * sizeof(real) - 1)) / sizeof(real);
    if (i > p->length) i = p->length;
    vec omega[2] = {FN(plane_omega)(p, 0, reach)}, next[2];
    if (i) {
        FN(plane_term)(p, omega, 0, i, 1, dtype, kind, 1);
        omega[0] = FN(plane_omega)(p, i, reach);
    }
    if (i + 4 * VL <= p->length) omega[1] = FN(plane_omega)(p, i + VL, reach);
    for (; i + 4 * VL <= p->length; i += 2 * VL) {
        if (unmended) {
            i = unmended(pieces, i);
            for (int k = 0; k < 2; k++) omega[k] = FN(plane_omega)(p, i + k * VL, reach);
            if (i + 4 * VL > p->length) break;
        }
        for (int k = 0; k < 2; k++) next[k] = FN(plane_omega)(p, i + (2 + k) * VL, reach);
        FN(plane_term)(p, omega, i, VL, 2, dtype, kind, 1);
        for (int k = 0; k < 2; k++) omega[k] = next[k];
    }
    for (; i + VL <= p->length; i += VL) {
        next[0] = FN(plane_omega)(p, i + VL, reach);
        FN(plane_term)(p, omega, i, VL, 1, dtype, kind, 1);
        omega[0] = next[0];
    }
    if (i < p->length) FN(plane_term)(p, omega, i, p->length - i, 1, dtype, kind, 1);
}

/* `count` vectors of dst, of n lanes, from omega or, backward, from their sums of terms. */
CYNORM_INLINE void FN(plane_result)(vec *out, const plane_t *p, const vec *omegas, int64_t i, int64_t n, int count, int dtype,
                                    int reach, int kind, int backward) {
    vec x[2], omega[2];
    for (int k = 0; k < count; k++) {
        const int64_t at = i + k * VL;
        x[k] = FN(get)(p->src + at * cynorm_itemsize(dtype), dtype, n);
        if (backward)
            out[k] = FN(diff_src_of)(&p->q, x[k], FN(sum_apart)(p->sums + at, p->width, reach), FN(load)(p->weighted + at));
        else omega[k] = FN(part)(omegas[k], FN(splat)(1), n);
    }
    if (!backward) FN(times_powers)(out, x, omega, count, kind, p->q.beta, dtype, NULL, NULL);
}

/* A line of dst that ends before it is whole. */
static void FN(put_unfinished)(plane_t *p) {
    if (!p->waits) return;
    const int64_t end = ((intptr_t)p->waits - 1) % 64 + 1;
    memcpy(p->waits - end + p->made, p->line + p->made, (size_t)(end - p->made));
    p->waits = NULL;
}

/* Less than a line of dst: it waits for the rest, which the next run begins with. */
static __attribute__((noinline)) void FN(put_piece)(plane_t *p, char *dst, vec v, int dtype, int64_t n) {
    const int64_t size = cynorm_itemsize(dtype), at = (intptr_t)dst & 63, end = at + n * size;
    if (!p->streaming) {
        FN(put)(dst, v, dtype, n);
        return;
    }
    if (p->waits != dst) FN(put_unfinished)(p), p->made = at;
    FN(put)(p->line + at, v, dtype, n);
    p->waits = dst + n * size;
    if (end < 64) return;
    if (p->made) FN(put_unfinished)(p);
    else cynorm_stream_copy(dst - at, p->line, 64);
    p->waits = NULL;
}

/* `pieces` is what waits from run to run; p is a copy, to which nothing is stored. */
CYNORM_INLINE void FN(plane_finish)(plane_t *pieces, const plane_t *p, int dtype, int reach, int kind,
                                    int backward) {
    const int64_t size = cynorm_itemsize(dtype), line = 64 / size, head = (-(intptr_t)p->dst & 63) / size;
    const int64_t lines = line < 2 * VL ? 2 * VL : line; /* so many that powers go two by two */
    vec omega[2] = {{0}}, next[2] = {{0}}, out[CYNORM_DOUBLE ? 16 / VL : 32 / VL];
    int64_t i = 0;
    while (i < p->length) {
        if (i >= head && i + line <= p->length) {
            const int64_t by_two = backward ? -1 : p->length - lines - 2 * VL; /* the last one that begins two omegas ahead */
            if (!backward) omega[0] = FN(plane_omega)(p, i, reach);
            if (i <= by_two) omega[1] = FN(plane_omega)(p, i + VL, reach);
            for (; i <= by_two; i += lines) {
                for (int64_t v = 0; v < lines; v += 2 * VL) {
                    for (int k = 0; k < 2; k++) next[k] = FN(plane_omega)(p, i + v + (2 + k) * VL, reach);
                    FN(plane_result)(out + v / VL, p, omega, i + v, VL, 2, dtype, reach, kind, backward);
                    for (int k = 0; k < 2; k++) omega[k] = next[k];
                }
                for (int64_t v = 0; v < lines; v += line)
                    FN(put_line)(p->dst + (i + v) * size, out + v / VL, dtype, p->streaming);
            }
            for (; i + line <= p->length; i += line) {
                for (int64_t v = 0; v < line; v += VL) {
                    if (!backward) next[0] = FN(plane_omega)(p, i + v + VL, reach);
                    FN(plane_result)(out + v / VL, p, omega, i + v, VL, 1, dtype, reach, kind, backward);
                    omega[0] = next[0];
                }
                FN(put_line)(p->dst + i * size, out, dtype, p->streaming);
            }
            continue;
        }
        const int64_t left = (i < head && head < p->length ? head : p->length) - i, n = left < VL ? left : VL;
        if (!backward) omega[0] = FN(plane_omega)(p, i, reach);
        FN(plane_result)(out, p, omega, i, n, 1, dtype, reach, kind, backward);
        FN(put_piece)(pieces, p->dst + i * size, out[0], dtype, n);
        i += n;
    }
}

/* ---- compiled loops ---- */

/* A vector's neighbours are in the vectors beside it. */
enum { FN(lrn_plane_reach) = CYNORM_PLANE_REACH < VL ? CYNORM_PLANE_REACH : VL };

/* Of planes; sums of squares along rows, and what sums of terms finish, need no exponent. */
#define CYNORM_PLANE(T, direction, reach, name, kind, together)                                                \
    static __attribute__((noinline)) void FN(planes_##T##_##direction##reach##name)(plane_t *given) {          \
        const plane_t p = *given;                                                                              \
        if (reach > VL) return;                                                                                \
        const int beta = kind;                                                                                 \
        if (#direction[0] == 'f') /* where stopping gains nothing */                                           \
            FN(plane_finish)(given, &p, CYNORM_##T, reach, beta, 0);                                           \
        else                                                                                                   \
            FN(plane_backward)(given, &p, CYNORM_##T, reach, beta,                                             \
                               CYNORM_UNMENDED(#name[0] == 'u', FN(unmended_##T##reach)));                     \
    }
#define CYNORM_PLANES(T, reach)                                                                                \
    static __attribute__((noinline)) int64_t FN(unmended_##T##reach)(const plane_t *given, int64_t i) {        \
        const plane_t p = *given;                                                                              \
        return reach <= VL ? FN(unmended_terms)(&p, i, CYNORM_##T, reach) : i;                                 \
    }                                                                                                          \
    CYNORM_EXPONENTS(CYNORM_PLANE, T, forward, reach)                                                          \
    CYNORM_EXPONENTS(CYNORM_PLANE, T, backward, reach)                                                         \
    static __attribute__((noinline)) void FN(plane_squares_##T##reach)(plane_t *given) {                       \
        const plane_t p = *given;                                                                              \
        if (p.apart > 1) FN(plane_rows_apart)(&p, CYNORM_##T, reach, 0);                                       \
        else if (reach <= VL) FN(plane_rows)(&p, CYNORM_##T, reach, 0);                                        \
    }                                                                                                          \
    static __attribute__((noinline)) void FN(plane_results_##T##reach)(plane_t *given) {                       \
        const plane_t p = *given;                                                                              \
        if (reach <= VL) FN(plane_finish)(given, &p, CYNORM_##T, reach, CYNORM_BETA_ZERO, 1);                  \
    }
#define CYNORM_PLANE_TERMS(reach)                                                                              \
    static __attribute__((noinline)) void FN(plane_terms##reach)(plane_t *given) {                             \
        const plane_t p = *given;                                                                              \
        if (p.apart > 1) FN(plane_rows_apart)(&p, CYNORM_COMPUTE, reach, 1);                                   \
        else if (reach <= VL) FN(plane_rows)(&p, CYNORM_COMPUTE, reach, 1);                                    \
    }                                                                                                          \
    static __attribute__((noinline)) void FN(plane_columns##reach)(plane_t *given) {                           \
        const plane_t p = *given;                                                                              \
        if (reach <= VL) FN(plane_columns)(&p, reach);                                                         \
    }
#define CYNORM_ALL_PLANES(T) CYNORM_PLANES(T, 1) CYNORM_PLANES(T, 2) CYNORM_PLANES(T, 3) CYNORM_PLANES(T, 4)
#define CYNORM_PLANES_OF(T, reach)                                                                             \
    {{CYNORM_POWERS_OF(planes_##T##_forward##reach), CYNORM_POWERS_OF(planes_##T##_backward##reach)},          \
     FN(plane_squares_##T##reach), FN(plane_results_##T##reach)}
#define CYNORM_PLANE_TABLE(T)                                                                                  \
    [CYNORM_##T] = {CYNORM_PLANES_OF(T, 1), CYNORM_PLANES_OF(T, 2), CYNORM_PLANES_OF(T, 3), CYNORM_PLANES_OF(T, 4)},
CYNORM_TYPES(CYNORM_ALL_PLANES)
CYNORM_PLANE_TERMS(1)
CYNORM_PLANE_TERMS(2)
CYNORM_PLANE_TERMS(3)
CYNORM_PLANE_TERMS(4)
static const struct { void (*loops[2][3])(plane_t *), (*squares)(plane_t *), (*results)(plane_t *); }
FN(plane_loops)[][CYNORM_PLANE_REACH] = {CYNORM_TYPES(CYNORM_PLANE_TABLE)};
static void (*const FN(plane_terms)[CYNORM_PLANE_REACH])(plane_t *) = {
    FN(plane_terms1), FN(plane_terms2), FN(plane_terms3), FN(plane_terms4)};
static void (*const FN(plane_columns_of)[CYNORM_PLANE_REACH])(plane_t *) = {
    FN(plane_columns1), FN(plane_columns2), FN(plane_columns3), FN(plane_columns4)};
#undef CYNORM_PLANE
#undef CYNORM_PLANES
#undef CYNORM_PLANE_TERMS
#undef CYNORM_ALL_PLANES
#undef CYNORM_PLANES_OF
#undef CYNORM_PLANE_TABLE

/* ---- tiles ---- */

/* Elements from one cell of a window along a row to the next, and of a row. */
static int64_t FN(plane_apart)(const cynorm_lrn_tile *t) { return FN(by_pixels)(t) ? t->count[0] : 1; }
static int64_t FN(plane_width)(const cynorm_lrn_tile *t) { return t->count[0] * (FN(by_pixels)(t) ? t->count[1] : 1); }
/* Whether rows of pixels, whose channels follow on, are faster as rows of a plane than by vectors of channels: where vectors are
 * half empty, or the ends of rows are much of the work, up to what scratch holds; where less so, in the caches. */
static int FN(pixels_as_rows)(const cynorm_lrn_tile *t) {
    const int64_t channels = t->count[0], pixels = t->count[1], lanes = (channels + VL - 1) / VL * VL;
    const int64_t most = 2 * channels <= lanes || pixels <= 8 ? 2 * CYNORM_PLANE
                       : 8 * channels <= 7 * lanes || pixels <= CYNORM_FEW_PIXELS ? CYNORM_PLANE / 4 : 0;
    return channels * pixels * t->left <= most && !t->rows && FN(pixels_follow)(t);
}

/* Rows of planes that are worked on at once, of so many elements, where a row is a plane as few as scratch asks for; reals of
 * scratch for these and the rows around, and for `cells`. */
static int64_t FN(plane_step)(const cynorm_lrn_tile *t) {
    const int64_t rows = CYNORM_PLANE / FN(plane_width)(t), least = (t->rows ? 1 : 4) * t->left, all = t->extent;
    return all < least ? all : rows < least ? least : rows < all ? rows : all;
}
static int64_t FN(plane_reals)(const cynorm_lrn_tile *t, int around) {
    return ((FN(plane_step)(t) + around * t->left) * FN(plane_width)(t) + 3 * VL - 1) / VL * VL;
}
static int64_t FN(plane_margin)(const cynorm_lrn_tile *t) {
    return (t->left * (t->rows ? t->count[0] / t->rows : FN(plane_apart)(t)) + VL - 1) / VL * VL;
}
static int64_t FN(plane_cells)(const cynorm_lrn_tile *t) {
    return FN(plane_apart)(t) > 1 || t->rows ? 2 * FN(plane_margin)(t) + (FN(plane_width)(t) + 2 * VL) / VL * VL : 0;
}
static size_t FN(planes_scratch)(const cynorm_lrn_tile *t, int backward) {
    const int64_t each = FN(plane_reals)(t, 2), reals = FN(plane_cells)(t) + (backward ? FN(plane_reals)(t, 4) + 2 * each : each);
    return (size_t)(64 + reals * (int64_t)sizeof(real));
}

/* The same sums for rows that are planes, of elements of `size` bytes. */
static void FN(sums_of_planes)(const plane_t *p, void (*run)(plane_t *), int reach, int64_t size) {
    const int64_t width = p->width / p->height;
    plane_t rows = *p, sums = *p;
    rows.width = sums.width = width, rows.pitch = width * size, rows.rows = p->height;
    rows.out = p->cells, sums.length = p->width;
    for (int64_t r = 0; r < p->rows; r++, rows.from += p->pitch, sums.out += p->width) {
        run(&rows);
        memset(p->cells + p->width, 0, (size_t)(reach * width) * sizeof(real)); /* as the last row's end lies there */
        FN(plane_columns_of)[reach - 1](&sums);
    }
}

/* Sums along rows [begin, end) of a plane whose row 0 is `data`; missing rows are zeros. */
static void FN(sums_along)(plane_t *p, void (*run)(plane_t *), int reach, int64_t size, const char *data, int64_t pitch,
                           int64_t begin, int64_t end, int64_t extent, real *out) {
    const int64_t from = begin > 0 ? begin : 0, to = end < extent ? end : extent;
    const int64_t before = from - begin, after = end - (to > from ? to : from);
    const int64_t row = p->width * (int64_t)sizeof(real);
    p->from = data + from * pitch, p->pitch = pitch, p->rows = to - from, p->out = out + before * p->width;
    memset(out, 0, (size_t)(before * row));
    if (p->height) FN(sums_of_planes)(p, run, reach, size);
    else if (p->rows > 0) run(p);
    memset(out + (end - after - begin) * p->width, 0, (size_t)(after * row));
}

/* Rows in runs of as many as lie side by side. */
static void FN(run_rows)(plane_t *p, void (*run)(plane_t *), const cynorm_lrn_tile *t, int64_t rows,
                         int together) {
    for (int64_t n; rows > 0; rows -= n) {
        n = together ? rows : 1;
        p->length = n * p->width;
        run(p);
        p->src += n * t->src.streamed, p->diff_dst += n * t->diff_dst.streamed, p->dst += n * t->dst.streamed;
        p->sums += p->length, p->weighted += p->length;
    }
}

/* Planes one after the other, some rows at a time. */
static void FN(lrn_planes)(const cynorm_lrn_tile *t, int backward) {
    const int dtype = t->src.dtype, reach = (int)t->left, around = (1 + backward) * reach;
    const int64_t size = cynorm_itemsize(dtype), width = FN(plane_width)(t), row = width * size;
    const int level = FN(plane_apart)(t) > 1 ? 2 : 1; /* the first that is not of a row */
    const int64_t step = FN(plane_step)(t), ahead = CYNORM_AHEAD / row;
    const int together = t->src.streamed == row && t->dst.streamed == row &&
                         (!backward || t->diff_dst.streamed == row);
    const int64_t run_bytes = together ? (t->end - t->begin) * row : row;
    const int64_t window = 2 * reach * width * (int64_t)sizeof(real); /* what the next rows need of these */
    void (*squares_along)(plane_t *) = FN(plane_loops)[dtype][reach - 1].squares;
    void (*run)(plane_t *) = FN(plane_loops)[dtype][reach - 1].loops[backward][FN(loop_of_beta)(t, 1)];
    void (*finish)(plane_t *) = backward ? FN(plane_loops)[dtype][reach - 1].results : run;
    real *const cells = (real *)((char *)t->scratch + 64), *const square_sums = cells + FN(plane_cells)(t);
    real *const term_sums = square_sums + FN(plane_reals)(t, 2 + 2 * backward);
    real *const all_weighted = term_sums + FN(plane_reals)(t, 2);
    plane_t p = {.width = width, .apart = FN(plane_apart)(t), .height = t->rows, .cells = cells + FN(plane_margin)(t),
                 .q = FN(coefficients_of)(t), .line = t->scratch,
                 .src_ahead = t->rows ? CYNORM_AHEAD : ahead * t->src.streamed,
                 .diff_ahead = t->rows ? CYNORM_AHEAD : ahead * t->diff_dst.streamed};
    p.streaming = t->streaming &&
                  (run_bytes >= CYNORM_STREAM_LEAST || (together && t->dst.stride[level] == run_bytes));
    memset(cells, 0, (size_t)FN(plane_cells)(t) * sizeof(real));
    for (int64_t plane = 0; plane < (level == 1 ? t->count[1] : 1) * t->count[2]; plane++) {
        const int64_t i1 = level == 1 ? plane % t->count[1] : 0, i2 = level == 1 ? plane / t->count[1] : plane;
#define MEMORY(name) (t->name.data + i1 * t->name.stride[1] + i2 * t->name.stride[2])
        const char *src = MEMORY(src), *diff_dst = MEMORY(diff_dst);
        char *dst = MEMORY(dst);
#undef MEMORY
        int64_t squares = t->begin - around, terms = t->begin - reach; /* the next rows */
        const real *old_squares = NULL, *old_terms = NULL, *old_weighted = NULL;
        for (int64_t a = t->begin, b; a < t->end; a = b) {
            b = a + step < t->end ? a + step : t->end;
            const int64_t first = backward ? terms : a; /* row whose window is the first of the sums */
/* where the vectors of a row begin as those of dst do */
#define AS_DST(kept, row) ((kept) + (((intptr_t)dst / size + (row) * width) & (VL - 1)))
            real *sums = AS_DST(square_sums, first), *sums_of_terms = AS_DST(term_sums, a);
            real *weighted = AS_DST(all_weighted, a - reach);
            if (old_squares) memmove(sums, old_squares, (size_t)window);
            FN(sums_along)(&p, squares_along, reach, size, src, t->src.streamed, squares, b + around,
                           t->extent, sums + (squares - first + reach) * width);
            if (backward) {
                const int64_t from = terms > 0 ? terms : 0, to = b + reach < t->extent ? b + reach : t->extent;
                const char *made = (const char *)(sums - first * width); /* what would be the terms of row 0 */
                if (old_terms) memmove(sums_of_terms, old_terms, (size_t)window);
                if (old_weighted) memmove(weighted, old_weighted, (size_t)window);
                p.src = src + from * t->src.streamed, p.diff_dst = diff_dst + from * t->diff_dst.streamed;
                p.sums = sums + (from - first) * width, p.weighted = weighted + (from - a + reach) * width;
                FN(run_rows)(&p, run, t, to - from, together);
                FN(sums_along)(&p, FN(plane_terms)[reach - 1], reach, sizeof(real), made, width * (int64_t)sizeof(real), terms,
                               b + reach, t->extent, sums_of_terms + (terms - a + reach) * width);
                old_terms = sums_of_terms + (b - a) * width, old_weighted = weighted + (b - a) * width;
            }
            p.src = src + a * t->src.streamed, p.dst = dst + a * t->dst.streamed;
            p.sums = backward ? sums_of_terms : sums, p.weighted = weighted + reach * width;
            FN(run_rows)(&p, finish, t, b - a, together);
            squares = b + around, terms = b + reach;
            old_squares = sums + ((backward ? terms : b) - first) * width;
        }
#undef AS_DST
    }
    FN(put_unfinished)(&p);
}
