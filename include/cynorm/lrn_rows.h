/* LRN with windows along level 0. A template, see types.h; formulas and tiles are lrn.h's.
 *
 * The vectors of a row follow one another, and the cells beside a vector are shifted in from its neighbours (lrn_window.h):
 * this serves any window that reaches less than a vector to either side, if lanes can be picked by number. Where vectors are
 * shorter than AVX-512's, wider windows are summed in scratch (lrn_far.h).
 *
 * Past the cache, a row that does not begin at a line leaves by lines that are the end of one vector and the beginning of the next
 * (across_t), where vectors are whole and lanes can be picked; else rows are made in scratch and copied. */

enum { CYNORM_ROW_AHEAD = 6144 }; /* bytes to what is prefetched */
enum { CYNORM_FAR_WINDOW = 6 }; /* among the loops for windows, the one for those that reach further than registers */

typedef struct { int64_t row, rows, from, to, most; } strip_t; /* vectors [from, to) of rows; most: how many rows */
/* dst past the cache, where lines begin within its vectors: a line is the end of one and the beginning of the next. */
typedef struct {
    vec before;                 /* the vector before, as it is stored */
    ivec lanes;                 /* of both vectors, those of a line */
    int64_t first;              /* how many of a vector come before the next line */
    char *begin, *end;          /* of the run: rows that follow one another */
} across_t;
struct FN(cynorm_lrn_rows);
typedef void row_loop_t(const struct FN(cynorm_lrn_rows) *, const strip_t *, int64_t from, int64_t to, vec *);
typedef struct FN(cynorm_lrn_rows) {
    const char *src, *diff_dst, *y;
    char *dst;
    /* bytes from a vector of a row to the next, from a row to the next, to what is prefetched */
    int64_t src_step, diff_step, y_step, dst_step, src_pitch, diff_pitch, y_pitch, dst_pitch, src_ahead, diff_ahead, y_ahead;
    int64_t rows, vectors, last, strip; /* vectors of a row, lanes of its last one; vectors at once */
    window_t window; /* where its reach is no constant */
    int64_t left, right, margin; /* of it; vectors that windows reach beyond a strip */
    coefficients q;
    int streaming, halves; /* whether "a vector" is two that lie side by side, their even elements and their odd ones */
    int whole; /* whether all vectors are */
    int src_flat, diff_flat, y_flat, dst_flat; /* whether rows follow one another as vectors do */
    int columns, keeps; /* whether loops that know no window may go by columns, and leave src in scratch for results */
    int late; /* of a wide window: how many steps its sums are late; else 0 */
    int64_t gap; /* vectors of zeros behind each row in scratch, for windows that are late or, backward, summed in scratch */
    across_t *across; /* or NULL */
    row_loop_t *omegas, *powers, *results; /* `powers`: of omega, into dst or, backward, into terms */
} rows_t;

/* So that the compiler goes on with a pointer where a loop leaves it, instead of making it anew. */
#define KEEP(p) __asm__("" : "+r"(p))

/* Otherwise, a loop of this becomes a call of memset. */
CYNORM_INLINE void FN(zero)(vec *p) {
    *p = (vec){0};
    KEEP(p);
}

/* ---- strips ---- */

/* Rows go by strips: several rows or, of a long one, vectors [from, to). Window sums, powers and results have loops
 * of their own, so short that the core looks several vectors ahead; what one loop leaves for the next lies in the
 * first-level cache, row after row. Where strips meet in a row, what the windows reach is made twice. Sums of a wide
 * window are late and run on from row to row: a vector of zeros lies behind each row, and no window reaches across it.
 * The number of instructions is the limit, including those that move registers and count vectors. */
enum { CYNORM_STRIP_MARGIN = 2 * CYNORM_PIECES }; /* more than windows reach and sums are late */
enum { CYNORM_STRIP_VECTORS = 2 * CYNORM_ROW_STRIP / VL + 2 * CYNORM_STRIP_MARGIN };
/* from a term to what its diff_dst adds to diff_src, and to its src */
enum { CYNORM_ROW_WEIGHTED = CYNORM_STRIP_VECTORS, CYNORM_ROW_SRC = 2 * CYNORM_STRIP_VECTORS };

CYNORM_INLINE strip_t FN(strips_of)(const rows_t *r) {
    const int64_t each = r->vectors + r->margin;
    return (strip_t){0, 0, 0, r->vectors, each < r->strip ? r->strip / each : 1};
}

CYNORM_INLINE int FN(next_strip)(strip_t *s, const rows_t *r) {
    s->from = s->to;
    if (s->from == r->vectors) s->row += s->rows, s->from = 0;
    s->rows = r->rows - s->row < s->most ? r->rows - s->row : s->most;
    s->to = r->vectors - s->from < r->strip ? r->vectors : s->from + r->strip;
    return s->rows > 0;
}

/* ---- vectors, one or some at once ---- */

/* Lanes of vector v of a row; `whole` says that all vectors are. */
CYNORM_INLINE int64_t FN(lanes)(const rows_t *r, int64_t v, int whole) {
    return whole || v < r->vectors - 1 ? VL : r->last;
}

/* Several vectors at once: by halves, the even and the odd elements of the one at p; else that one and the next ones. */
CYNORM_INLINE vec FN(get_of_some)(const char *p, int64_t step, int k, int dtype, int64_t n, int halves) {
    return halves ? FN(get_part)(p, dtype, n, k ? CYNORM_ODD : CYNORM_EVEN) : FN(get)(p + k * step, dtype, n);
}

CYNORM_INLINE void FN(put_of_some)(char *p, int64_t step, const vec *v, int count, int dtype, int64_t n, int streaming,
                                  int halves) {
    vec even;
    for (int k = 0; k < count; k++) {
        const int part = !halves ? CYNORM_ALL : k ? CYNORM_ODD : CYNORM_EVEN;
        FN(put_part)(p + (halves ? 0 : k * step), v[k], dtype, n, streaming, part, &even);
    }
}

/* ---- dst past the cache, where lines begin within its vectors ---- */

/* Bytes that the loops store at once; whether these may lie across lines. */
CYNORM_INLINE int64_t FN(bytes_at_once)(int dtype, int halves) { return VL * cynorm_itemsize(dtype) * (1 + halves); }
CYNORM_INLINE int FN(may_cross)(int dtype, int halves) {
    return CYNORM_PICKS && (CYNORM_VBYTES == 64 || FN(bytes_at_once)(dtype, halves) == CYNORM_VBYTES);
}

#if CYNORM_PICKS
/* A result of a half type, or two by halves, as they are stored. */
CYNORM_INLINE vec FN(stored)(const vec *out, int dtype, int halves) {
#if !CYNORM_DOUBLE
    if (halves) return (vec)FN(halves)(out[0], out[1]);
#if CYNORM_VBYTES == 64
    if (cynorm_itemsize(dtype) == 2) return (vec)_mm512_castsi256_si512((__m256i)FN(pack_half)(out[0], dtype));
#endif
#endif
    (void)dtype, (void)halves;
    return out[0];
}

/* The `bytes` of a line, or of half of one, that end a stored vector and begin the next. */
CYNORM_INLINE vec FN(across_of)(const across_t *a, vec next, int64_t bytes) {
#if CYNORM_VBYTES == 64 && !CYNORM_DOUBLE
    if (bytes == 32) {
#define HALF(v) _mm512_castsi512_si256((__m512i)(v))
        return (vec)_mm512_castsi256_si512(_mm256_permutex2var_epi32(HALF(a->before), HALF(a->lanes), HALF(next)));
#undef HALF
    }
#endif
    (void)bytes;
    return FN(picked)(a->before, next, a->lanes);
}
#endif

CYNORM_INLINE void FN(put_across)(across_t *a, char *p, const vec *out, int dtype, int halves) {
#if CYNORM_PICKS
    const int64_t bytes = FN(bytes_at_once)(dtype, halves);
    const vec v = FN(stored)(out, dtype, halves), line = FN(across_of)(a, v, bytes);
    if (__builtin_expect(p == a->begin, 0)) FN(put)(p, v, CYNORM_COMPUTE, a->first);
    else cynorm_stream((char *)((intptr_t)p & -bytes), &line, (size_t)bytes);
    a->before = v;
#else
    (void)a, (void)p, (void)out, (void)dtype, (void)halves;
#endif
}

/* Before a row at dst, or none: unless it follows on, store what the last vector has beyond its last line, and begin a new run. */
static void FN(go_across)(across_t *a, char *dst, int64_t bytes) {
#if CYNORM_PICKS
    const int64_t size = (int64_t)sizeof(real), lanes = bytes / size, left = lanes - a->first;
    if (dst && dst == a->end) return;
    if (a->end) FN(put)(a->end - left * size, FN(across_of)(a, a->before, bytes), CYNORM_COMPUTE, left);
    a->first = (-(intptr_t)dst & (bytes - 1)) / size;
    if (!a->first) a->first = lanes;
    a->lanes = FN(lanes_from)(a->first);
    a->begin = dst;
#else
    (void)a, (void)dst, (void)bytes;
#endif
}

/* ---- powers and terms, whose loops know no window ---- */

/* Loops that know no window take vectors as they lie in memory, by lines: all rows, where they follow one another; else rows
 * or, with blocks of channels, columns: then steps and pitches change places. Blocks often lie a multiple of 4 KB apart: along
 * a row, each load would wait for the store before it, on which it seems to depend. So results take src from scratch. */
typedef struct {
    int64_t first, lines, from, vectors, full; /* of the operands; of a line, and how many of these are whole */
    int64_t line, apart; /* in scratch, from a line to the next, from a vector to the next */
} lines_t;

/* From a row to the next in scratch. */
CYNORM_INLINE int64_t FN(row_in_scratch)(const rows_t *r, int64_t from, int64_t to) { return to - from + r->gap; }

CYNORM_INLINE lines_t FN(rows_as_lines)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, int flat, int whole,
                                        int halves) {
    const int64_t width = to - from, full = whole || r->whole || to < r->vectors ? width : width - 1;
    if (flat) return (lines_t){s->row, 1, from, s->rows * width, s->rows * width, 0, 1};
    return (lines_t){s->row, s->rows, from, width, full, FN(row_in_scratch)(r, from, to) + width * halves, 1};
}

CYNORM_INLINE lines_t FN(columns_as_lines)(rows_t *r, const strip_t *s, int64_t from, int64_t to) {
#define TURN(name)                                                                                             \
    const int64_t name = r->name##_step;                                                                       \
    r->name##_step = r->name##_pitch, r->name##_pitch = name
    TURN(src);
    TURN(diff);
    TURN(dst);
#undef TURN
    return (lines_t){from, to - from, s->row, s->rows, s->rows, 1, FN(row_in_scratch)(r, from, to)};
}

/* Whether loops that know no window go by columns. */
CYNORM_INLINE int FN(by_columns)(const rows_t *r, const strip_t *s) { return r->columns && s->rows > 1; }

/* Without `mends`, writes nothing and returns 0 where a power is to be mended. */
CYNORM_INLINE int FN(powers_of_some)(const rows_t *r, across_t *across, const char *src, char *dst, const vec *omega,
                                    int64_t apart, int64_t n, int count, int dtype, int kind, int halves, int crossing, int mends) {
    vec x[CYNORM_TOGETHER], all[CYNORM_TOGETHER], out[CYNORM_TOGETHER], told = {0};
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) {
        if (!k || !halves) __builtin_prefetch(src + k * r->src_step + r->src_ahead, 0, 2);
        x[k] = FN(get_of_some)(src, r->src_step, k, dtype, n, halves);
        all[k] = FN(part)(omega[k * apart], FN(splat)(1), n);
    }
    FN(times_powers)(out, x, all, count, kind, r->q.beta, dtype, NULL, mends ? NULL : &told);
    if (!mends && __builtin_expect(FN(told_to_mend)(told, kind, r->q.beta), 0)) return 0;
    if (crossing)
        for (int k = 0; k < count; k += 1 + halves) FN(put_across)(across, dst + k * r->dst_step, out + k, dtype, halves);
    else FN(put_of_some)(dst, r->dst_step, out, count, dtype, n, r->streaming, halves);
    return 1;
}

CYNORM_INLINE int FN(terms_of_some)(const rows_t *r, const char *src, const char *diff, const char *y, vec *term,
                                   int64_t apart, int64_t n, int count, int dtype, int kind, int halves, int keeps, int mends) {
    vec x[CYNORM_TOGETHER], g[CYNORM_TOGETHER], omega[CYNORM_TOGETHER], given[CYNORM_TOGETHER];
    vec t[CYNORM_TOGETHER], weighted[CYNORM_TOGETHER], told = {0};
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) {
        if (!k || !halves) {
            __builtin_prefetch(src + k * r->src_step + r->src_ahead, 0, 2);
            __builtin_prefetch(diff + k * r->diff_step + r->diff_ahead, 0, 2);
        }
        x[k] = FN(get_of_some)(src, r->src_step, k, dtype, n, halves);
        g[k] = FN(get_of_some)(diff, r->diff_step, k, dtype, n, halves);
        omega[k] = FN(part)(term[k * apart], FN(splat)(1), n);
        if (y) __builtin_prefetch(y + k * r->y_step + r->y_ahead, 0, 2);
        given[k] = y ? FN(get)(y + k * r->y_step, dtype, n) : x[k];
    }
    FN(terms_of)(&r->q, t, omega, g, x, y ? given : NULL, count, kind, weighted, mends ? NULL : &told);
    if (!mends && __builtin_expect(FN(told_to_mend)(told, kind, r->q.beta), 0)) return 0;
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) {
        term[k * apart] = FN(part)(t[k], (vec){0}, n);
        term[CYNORM_ROW_WEIGHTED + k * apart] = weighted[k];
        if (keeps) term[CYNORM_ROW_SRC + k * apart] = x[k];
    }
    return 1;
}

/* Of whole vectors that follow one another in scratch, by `count`, those before a power to be mended (CYNORM_UNMENDED): makes their
 * terms or, without diff_dst, dst. Returns how many. */
typedef int64_t FN(unmended_rows)(const rows_t *, const char *src, const char *diff, char *dst, vec *at, int64_t vectors);
CYNORM_INLINE int64_t FN(rows_before_mended)(const rows_t *given, const char *src, const char *diff, char *dst, vec *at,
                                             int64_t vectors, int count, int dtype, int kind, int terms) {
    const rows_t copy = *given, *r = &copy;
    int64_t v = 0;
    for (; v + count <= vectors; v += count) {
        const int all = terms ? FN(terms_of_some)(r, src, diff, NULL, at, 1, VL, count, dtype, kind, 0, 0, 0)
                               : FN(powers_of_some)(r, NULL, src, dst, at, 1, VL, count, dtype, kind, 0, 0, 0);
        if (!all) break;
        src += count * r->src_step, at += count;
        if (terms) diff += count * r->diff_step;
        else dst += count * r->dst_step;
    }
    return v;
}

/* dst of vectors [from, to) of the strip's rows; `crossing`: r->across */
CYNORM_INLINE void FN(powers_of)(const rows_t *given, const strip_t *s, int64_t from, int64_t to, vec *omega,
                                 int dtype, int kind, int whole, int halves, int columns, int crossing,
                                 FN(unmended_rows) *unmended) {
    rows_t copy = *given;
    const lines_t l = columns ? FN(columns_as_lines)(&copy, s, from, to)
                              : FN(rows_as_lines)(&copy, s, from, to, given->src_flat && given->dst_flat, whole, halves);
    const rows_t *r = &copy;
    const int64_t apart = columns ? l.apart : 1;
    across_t across = {.end = NULL};
    if (crossing) across = *r->across;
    for (int64_t i = 0; i < l.lines; i++) {
        const char *src = r->src + (l.first + i) * r->src_pitch + l.from * r->src_step;
        char *dst = r->dst + (l.first + i) * r->dst_pitch + l.from * r->dst_step;
        vec *at = omega + i * l.line;
        int64_t v = unmended ? unmended(given, src, NULL, dst, at, l.full) : 0;
        src += v * r->src_step, dst += v * r->dst_step, at += v;
#define ADVANCE(count)                                                                                         \
    for (int k = 0; k < (halves ? 1 : count); k++) v++, src += r->src_step, dst += r->dst_step;                \
    at += (count) * apart
#define SOME(until, n, count)                                                                                  \
    while (v < (until)) {                                                                                      \
        FN(powers_of_some)(r, &across, src, dst, at, apart, n, count, dtype, kind, halves, crossing, 1);       \
        ADVANCE(count);                                                                                        \
    }
        if (!halves && kind == CYNORM_BETA_ANY) SOME(l.full - 3, VL, CYNORM_TOGETHER) /* a longer chain */
        if (!halves) SOME(l.full - 1, VL, 2)
        SOME(l.vectors, whole || v < l.full ? VL : r->last, 1 + halves)
#undef ADVANCE
#undef SOME
    }
    if (crossing) *r->across = across;
}

CYNORM_INLINE void FN(strip_powers)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, vec *omega,
                                    int dtype, int kind, int whole, int halves, int columns, FN(unmended_rows) *unmended) {
    if (FN(may_cross)(dtype, halves) && !columns && r->across)
        FN(powers_of)(r, s, from, to, omega, dtype, kind, whole, halves, columns, 1, NULL);
    else FN(powers_of)(r, s, from, to, omega, dtype, kind, whole, halves, columns, 0, unmended);
}

/* In place of omega, the terms of vectors [from, to) of the strip's rows. */
CYNORM_INLINE void FN(strip_terms)(const rows_t *given, const strip_t *s, int64_t from, int64_t to, vec *term,
                                   int dtype, int kind, int whole, int halves, int columns, FN(unmended_rows) *unmended) {
    const int flat = given->src_flat && given->diff_flat && (whole || !given->y || given->y_flat);
    rows_t copy = *given;
    const lines_t l = columns ? FN(columns_as_lines)(&copy, s, from, to)
                              : FN(rows_as_lines)(&copy, s, from, to, flat, whole, halves);
    const rows_t *r = &copy;
    const int keeps = columns && dtype == CYNORM_COMPUTE;
    const int64_t apart = columns ? l.apart : 1;
    for (int64_t i = 0; i < l.lines; i++) {
        const char *src = r->src + (l.first + i) * r->src_pitch + l.from * r->src_step;
        const char *diff = r->diff_dst + (l.first + i) * r->diff_pitch + l.from * r->diff_step;
        const char *y = whole || !r->y ? NULL : r->y + (l.first + i) * r->y_pitch + l.from * r->y_step;
        vec *at = term + i * l.line;
        int64_t v = unmended && !y ? unmended(given, src, diff, NULL, at, l.full) : 0;
        src += v * r->src_step, diff += v * r->diff_step, at += v;
#define ADVANCE(count)                                                                                         \
    for (int k = 0; k < (halves ? 1 : count); k++) v++, src += r->src_step, diff += r->diff_step;              \
    if (y) y += (count) * r->y_step;                                                                           \
    at += (count) * apart
#define SOME(until, n, count)                                                                                  \
    while (v < (until)) {                                                                                      \
        FN(terms_of_some)(r, src, diff, y, at, apart, n, count, dtype, kind, halves, keeps, 1);                \
        ADVANCE(count);                                                                                        \
    }
        if (!halves && kind == CYNORM_BETA_ANY) SOME(l.full - 3, VL, CYNORM_TOGETHER)
        if (!halves) SOME(l.full - 1, VL, 2)
        SOME(l.vectors, whole || v < l.full ? VL : r->last, 1 + halves)
#undef ADVANCE
#undef SOME
    }
    if (!r->gap) return;
    const int64_t row = FN(row_in_scratch)(r, from, to), end = s->rows * row;
    for (int64_t i = -r->gap; i < end; i += row)
        for (int64_t j = 0; j < r->gap; j++) FN(zero)(term + i + j);
    for (int j = 0; j < r->late; j++) term[end + j] = (vec){0};
}

/* ---- window sums, and results ---- */

/* omega of vectors [from, to) of the strip's rows; vectors before and behind these are spoilt. */
CYNORM_INLINE void FN(strip_omegas)(const rows_t *given, const strip_t *of, int64_t from, int64_t to, vec *omega, int dtype,
                                    int reach, int whole, int halves) {
    const rows_t copy = *given, *r = &copy; /* which no store might alias */
    const strip_t strip = *of, *s = &strip;
    const int64_t begin = from - (from > 0), end = to + (to < r->vectors); /* of the windows */
    sums_t sums = {0};
    vec next[2], sum[2];
    omega += begin - from - (reach > 0 ? 0 : FN(late)(reach)) + (begin - from) * halves;
#define NEXT                                                                                                   \
    EACH_HALF next[h] = FN(get_of_some)(src, 0, h, dtype, FN(lanes)(r, v, whole), halves);                     \
    EACH_HALF next[h] *= next[h];                                                                              \
    src += r->src_step, v++
#define SUM                                                                                                    \
    if (reach > 0) FN(narrow_sums)(sum, &sums, next, reach, halves, NULL);                                     \
    else sum[0] = FN(wide_sum)(&sums, next[0], &r->window, reach, 0)
#define PUT EACH_HALF *omega++ = FN(omega_of)(&r->q, sum[h], VL)
    const char *src = r->src + s->row * r->src_pitch + begin * r->src_step;
    const int64_t src_gap = r->src_pitch - (end - begin) * r->src_step, steps = end - begin - (reach > 0);
    for (int64_t i = 0; i < s->rows; i++, src += src_gap) {
        int64_t v = begin;
        if (reach > 0) {
            NEXT;
            SUM;
        }
#pragma GCC unroll 1
        for (int64_t j = steps >> 1; j; j--) { /* by two vectors: what is kept of one need not move for the next */
            KEEP(src);
            KEEP(omega);
            NEXT;
            SUM;
            PUT;
            NEXT;
            SUM;
            PUT;
        }
        if (steps & 1) {
            NEXT;
            SUM;
            PUT;
        }
        EACH_HALF next[h] = (vec){0};
        if (to == r->vectors) {
            SUM;
            PUT;
        }
    }
    for (int j = 1; j < FN(late)(reach); j++) {
        SUM;
        PUT;
    }
#undef NEXT
#undef SUM
#undef PUT
}

/* dst of the strip, whose terms begin at vector `from`; `crossing`: r->across */
CYNORM_INLINE void FN(results_of)(const rows_t *given, const strip_t *of, int64_t from, const vec *term, int dtype,
                                  int reach, int whole, int halves, int streaming, int crossing) {
    const rows_t copy = *given, *r = &copy;
    const strip_t strip = *of, *s = &strip;
    sums_t sums = {0};
    vec sum[2], out[2];
    across_t across = {.end = NULL};
    if (crossing) across = *r->across;
#define SUM(cells)                                                                                             \
    if (reach > 0) FN(narrow_sums)(sum, &sums, cells, reach, halves, NULL);                                    \
    else sum[0] = FN(wide_sum)(&sums, (cells)[0], &r->window, reach, 1)
#define NEXT                                                                                                   \
    SUM(term);                                                                                                 \
    term += 1 + halves
#define PUT(at)                                                                                                \
    EACH_HALF {                                                                                                \
        const vec x = FN(get_of_some)(src, 0, h, dtype, FN(lanes)(r, v, whole), halves);                       \
        out[h] = FN(diff_src_of)(&r->q, x, sum[h], (at)[CYNORM_ROW_WEIGHTED + h]);                             \
    }                                                                                                          \
    if (crossing) FN(put_across)(&across, dst, out, dtype, halves);                                            \
    else FN(put_of_some)(dst, 0, out, 1 + halves, dtype, FN(lanes)(r, v, whole), streaming, halves);           \
    src += r->src_step, dst += r->dst_step, v++
#define PUT_LATE PUT(term - (1 + FN(late)(reach)) * (1 + halves))
    const int64_t vectors = s->to - s->from, steps = vectors - (reach > 0 && s->to == r->vectors);
    const int64_t src_gap = r->src_pitch - vectors * r->src_step, dst_gap = r->dst_pitch - vectors * r->dst_step;
    const char *src = r->src + s->row * r->src_pitch + s->from * r->src_step;
    char *dst = r->dst + s->row * r->dst_pitch + s->from * r->dst_step;
    if (reach < 0)
        for (int64_t v = from - FN(late)(reach); v < s->from; v++) {
            NEXT;
        }
    for (int64_t i = 0; i < s->rows; i++, src += src_gap, dst += dst_gap) {
        int64_t v = s->from;
        if (reach > 0) {
            NEXT;
            if (from < s->from) {
                NEXT;
            }
        }
#pragma GCC unroll 1
        for (int64_t j = steps >> 1; j; j--) {
            KEEP(src);
            KEEP(dst);
            KEEP(term);
            NEXT;
            PUT_LATE;
            NEXT;
            PUT_LATE;
        }
        if (steps & 1) {
            NEXT;
            PUT_LATE;
        }
        if (reach < 0) {
            NEXT; /* of the zeros */
        } else if (s->to == r->vectors) {
            const vec zeros[2] = {{0}};
            SUM(zeros);
            PUT(term - (1 + halves));
        }
    }
    if (crossing) *r->across = across;
#undef SUM
#undef NEXT
#undef PUT
#undef PUT_LATE
}

CYNORM_INLINE void FN(strip_results)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, const vec *term,
                                     int dtype, int reach, int whole, int halves) {
    if (FN(may_cross)(dtype, halves) && whole && r->across)
        FN(results_of)(r, s, from, term, dtype, reach, whole, halves, 1, 1);
    else if (r->streaming) FN(results_of)(r, s, from, term, dtype, reach, whole, halves, 1, 0);
    else FN(results_of)(r, s, from, term, dtype, reach, whole, halves, 0, 0);
    (void)to;
}

/* ---- the same for windows that are summed in scratch ---- */

#if CYNORM_FAR_SERVES
static __attribute__((noinline)) void FN(far_to_omegas)(far_t *f, const rows_t *r, int64_t width, vec *out) {
    FN(far_sums)(f, r->left, r->right, width, out, r->gap, 1, &r->q);
}
static __attribute__((noinline)) void FN(far_to_sums)(far_t *f, const rows_t *r, int64_t width, vec *out) {
    FN(far_sums)(f, r->right, r->left, width, out, 0, 0, &r->q);
}

/* omega of vectors [from, to) of the strip's rows */
CYNORM_INLINE void FN(far_omegas)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, vec *omega, int dtype, int whole) {
    far_t f;
    vec squares[2 + CYNORM_FAR_REALS / VL], *out = squares + 2;
    const int64_t gap = r->margin, begin = from > gap ? from - gap : 0, end = r->vectors - to > gap ? to + gap : r->vectors;
    const int64_t step = r->src_step;
    f.cells = (const real *)out, f.pitch = (to - from + gap) * VL, f.rows = s->rows, f.first = gap * VL;
    for (int64_t i = 0; i < s->rows; i++) {
        const char *src = r->src + (s->row + i) * r->src_pitch + begin * step;
        for (int64_t v = from - gap; v < begin; v++) FN(zero)(out++);
#pragma GCC unroll 2
        for (int64_t v = begin; v < end; v++, src += step) {
            const vec x = FN(get)(src, dtype, FN(lanes)(r, v, whole));
            *out++ = x * x;
        }
    }
    for (int64_t v = end; v < to + gap; v++) FN(zero)(out++);
    FN(far_to_omegas)(&f, r, to - from, omega);
}

/* dst of the strip, whose terms begin at vector `from` and end at `to` */
CYNORM_INLINE void FN(far_results)(const rows_t *given, const strip_t *s, int64_t from, int64_t to, vec *term, int dtype,
                                   int whole) {
    far_t f;
    vec sums[CYNORM_STRIP_VECTORS], *sum = sums;
    const rows_t copy = *given, *r = &copy;
    const int64_t gap = r->gap, width = s->to - s->from, before = s->from - from, pitch = FN(row_in_scratch)(r, from, to);
    f.cells = (const real *)(term - gap), f.pitch = pitch * VL, f.rows = s->rows, f.first = (gap + before) * VL;
    FN(far_to_sums)(&f, given, width, sums);
    const vec *weighted = term + CYNORM_ROW_WEIGHTED + before;
    across_t across = {.end = NULL};
    if (r->across) across = *r->across;
    for (int64_t i = 0; i < s->rows; i++, weighted += pitch - width) {
        const char *src = r->src + (s->row + i) * r->src_pitch + s->from * r->src_step;
        char *dst = r->dst + (s->row + i) * r->dst_pitch + s->from * r->dst_step;
        for (int64_t v = s->from; v < s->to; v++, src += r->src_step, dst += r->dst_step) {
            const int64_t n = FN(lanes)(r, v, whole);
            const vec out = FN(diff_src_of)(&r->q, FN(get)(src, dtype, n), *sum++, *weighted++);
            if (FN(may_cross)(dtype, 0) && r->across) FN(put_across)(&across, dst, &out, dtype, 0);
            else FN(put_or_stream)(dst, out, dtype, n, r->streaming);
        }
    }
    if (r->across) *r->across = across;
}
#endif

/* ---- all of a strip ---- */

/* Omegas of a strip, then powers. */
static void FN(strip_to_powers)(const rows_t *r, const strip_t *s, int64_t from, int64_t to, vec *at) {
    r->omegas(r, s, from, to, at);
    r->powers(r, s, from, to, at);
}

static void FN(rows_forward)(const rows_t *r) {
    vec scratch[CYNORM_STRIP_VECTORS], *const omega = scratch + CYNORM_STRIP_MARGIN;
    for (strip_t s = FN(strips_of)(r); FN(next_strip)(&s, r);) FN(strip_to_powers)(r, &s, s.from, s.to, omega);
}

static void FN(rows_backward)(const rows_t *r) {
    vec scratch[3 * CYNORM_STRIP_VECTORS], *const term = scratch + CYNORM_STRIP_MARGIN;
    rows_t kept = *r; /* whose src is in scratch */
    kept.src_step = sizeof(vec);
    for (strip_t s = FN(strips_of)(r); FN(next_strip)(&s, r);) {
        const int64_t from = s.from > r->margin ? s.from - r->margin : 0; /* what windows reach */
        const int64_t to = r->vectors - s.to > r->margin ? s.to + r->margin : r->vectors;
        FN(strip_to_powers)(r, &s, from, to, term);
        const int in_scratch = r->keeps && FN(by_columns)(r, &s);
        if (in_scratch) {
            kept.src_pitch = FN(row_in_scratch)(r, from, to) * kept.src_step;
            kept.src = (const char *)(term + CYNORM_ROW_SRC) - s.row * kept.src_pitch - from * kept.src_step;
        }
        r->results(in_scratch ? &kept : r, &s, from, to, term);
    }
}

/* ---- compiled loops ---- */

/* Loops of rows: for powers, which know no window, and for sums, which know no exponent. */
#define CYNORM_ROW_LOOP(name)                                                                                  \
    static __attribute__((noinline)) void FN(row_##name)(const rows_t *given, const strip_t *s, int64_t from,  \
                                                         int64_t to, vec *at)
#define CYNORM_ROW_POWERS(T, what, name, kind, whole, unmended)                                                \
    CYNORM_ROW_LOOP(what##_##T##name) {                                                                        \
        const int beta = kind;                                                                                 \
        if (CYNORM_##T == CYNORM_BF16 && whole && given->halves)                                               \
            FN(strip_##what)(given, s, from, to, at, CYNORM_##T, beta, whole, 1, 0, NULL);                     \
        else if (FN(by_columns)(given, s))                                                                     \
            FN(strip_##what)(given, s, from, to, at, CYNORM_##T, beta, 1, 0, 1, NULL);                         \
        else FN(strip_##what)(given, s, from, to, at, CYNORM_##T, beta, whole, 0, 0, unmended);                \
    }
#define CYNORM_ROW_UNMENDED(T, what, name, kind, together)                                                     \
    static __attribute__((noinline)) int64_t FN(unmended_##what##_##T##name)(                                  \
        const rows_t *r, const char *src, const char *diff, char *dst, vec *at, int64_t vectors) {             \
        const int terms = #what[0] == 't';                                                                     \
        return FN(rows_before_mended)(r, src, diff, dst, at, vectors, together, CYNORM_##T, kind, terms);      \
    }
#define CYNORM_ROW_KINDS(T, what)                                                                              \
    CYNORM_ROW_UNMENDED(T, what, usual, CYNORM_BETA_THREE_QUARTERS, 2)                                         \
    CYNORM_ROW_UNMENDED(T, what, any, CYNORM_BETA_ANY, CYNORM_TOGETHER)                                        \
    CYNORM_ROW_POWERS(T, what, special, cynorm_special_beta(given->q.beta), 0, NULL)                           \
    CYNORM_ROW_POWERS(T, what, usual, CYNORM_BETA_THREE_QUARTERS, 1,                                           \
                      CYNORM_UNMENDED(1, FN(unmended_##what##_##T##usual)))                                    \
    CYNORM_ROW_POWERS(T, what, any, CYNORM_BETA_ANY, 0, CYNORM_UNMENDED(1, FN(unmended_##what##_##T##any)))
#define CYNORM_ROW_SUMS(T, what, name, reach)                                                                  \
    CYNORM_ROW_LOOP(what##_##T##name) {                                                                        \
        const int least = CYNORM_FAR_SERVES ? -4 : -VL;                                                        \
        if (CYNORM_##T == CYNORM_BF16 && reach > 0 && given->halves)                                           \
            FN(strip_##what)(given, s, from, to, at, CYNORM_##T, reach, 1, 1);                                 \
        else if (reach >= least && given->whole)                                                               \
            FN(strip_##what)(given, s, from, to, at, CYNORM_##T, reach, 1, 0);                                 \
        else if (reach >= least) FN(strip_##what)(given, s, from, to, at, CYNORM_##T, reach, 0, 0);            \
    }
#define CYNORM_ROWS(T)                                                                                         \
    CYNORM_ROW_KINDS(T, powers)                                                                                \
    CYNORM_ROW_KINDS(T, terms)                                                                                 \
    CYNORM_WINDOWS(T, omegas)                                                                                  \
    CYNORM_WINDOWS(T, results)
#if CYNORM_FAR_SERVES
#define CYNORM_ROW_FAR(T, what)                                                                                \
    CYNORM_ROW_LOOP(what##_##T##_far) {                                                                        \
        if (given->whole) FN(far_##what)(given, s, from, to, at, CYNORM_##T, 1);                               \
        else FN(far_##what)(given, s, from, to, at, CYNORM_##T, 0);                                            \
    }
#define CYNORM_FAR_OF(what) [CYNORM_FAR_WINDOW] = FN(row_##what##_far)
#else
#define CYNORM_ROW_FAR(T, what)
#define CYNORM_FAR_OF(what) [CYNORM_FAR_WINDOW] = NULL
#endif
#if CYNORM_PICKS
#define CYNORM_WINDOWS(T, what)                                                                                \
    CYNORM_ROW_FAR(T, what)                                                                                    \
    CYNORM_ROW_SUMS(T, what, 1, 1)                                                                             \
    CYNORM_ROW_SUMS(T, what, 2, 2)                                                                             \
    CYNORM_ROW_SUMS(T, what, _2, -2)                                                                           \
    CYNORM_ROW_SUMS(T, what, _4, -4)                                                                           \
    CYNORM_ROW_SUMS(T, what, _8, -8)                                                                           \
    CYNORM_ROW_SUMS(T, what, _16, -16)
#define CYNORM_WINDOWS_OF(what)                                                                                \
    {FN(row_##what##1), FN(row_##what##2), FN(row_##what##_2),                                                 \
     FN(row_##what##_4), FN(row_##what##_8), FN(row_##what##_16), CYNORM_FAR_OF(what)}
#else
#define CYNORM_WINDOWS(T, what)                                                                                \
    CYNORM_ROW_FAR(T, what)                                                                                    \
    CYNORM_ROW_SUMS(T, what, 1, 1)                                                                             \
    CYNORM_ROW_SUMS(T, what, 2, 2)
#define CYNORM_WINDOWS_OF(what) {FN(row_##what##1), FN(row_##what##2), CYNORM_FAR_OF(what)}
#endif
#define CYNORM_ROWS_OF(T)                                                                                      \
    [CYNORM_##T] = {{CYNORM_POWERS_OF(row_powers_##T), CYNORM_POWERS_OF(row_terms_##T)},                       \
                    CYNORM_WINDOWS_OF(omegas_##T), CYNORM_WINDOWS_OF(results_##T)},
CYNORM_TYPES(CYNORM_ROWS)
static const struct {
    row_loop_t *powers[2][3], *omegas[CYNORM_FAR_WINDOW + 1], *results[CYNORM_FAR_WINDOW + 1];
} FN(row_loops)[] = {CYNORM_TYPES(CYNORM_ROWS_OF)};
#undef CYNORM_ROW_LOOP
#undef CYNORM_ROW_POWERS
#undef CYNORM_ROW_KINDS
#undef CYNORM_ROW_UNMENDED
#undef CYNORM_ROW_SUMS
#undef CYNORM_ROW_FAR
#undef CYNORM_ROWS
#undef CYNORM_ROWS_OF
#undef CYNORM_WINDOWS
#undef CYNORM_WINDOWS_OF
#undef CYNORM_FAR_OF

/* ---- tiles ---- */

/* Vectors of a strip by columns: at least four rows of them, but at most twice as many as in other strips. */
static int64_t FN(strip_of_columns)(const rows_t *r) {
    const int64_t least = CYNORM_ROW_STRIP / VL, rows = 4 * (r->vectors + r->margin);
    return rows < least ? least : rows < 2 * least ? rows : 2 * least;
}

/* Whether the sums of a window in a row, where it is no constant, are made in registers; or in scratch, which wins from 7
 * cells on. */
static int FN(in_registers)(const cynorm_lrn_window *w) {
    const int64_t others = w->left + w->right;
    return CYNORM_PICKS && w->left < VL && w->right < VL && others && (!CYNORM_FAR_SERVES || others < 6);
}
static int FN(far)(const cynorm_lrn_window *w) {
    return CYNORM_FAR_SERVES && w->left <= CYNORM_FAR && w->right <= CYNORM_FAR && w->left + w->right;
}

/* Elements of a row. Of a row that is cut, with what windows reach beside the tile's part: there, results lack what is further
 * on, and stay in scratch. */
static int64_t FN(cells_of)(const cynorm_lrn_tile *t) {
    if (t->cut) return t->reach_src[0][0] + t->count[0] + t->reach_src[0][1];
    return FN(joint)(t) ? t->count[0] * t->count[1] - t->missing : t->count[0];
}

/* Whether the loop cannot take an operand as it lies: its vectors are not contiguous, or not whole blocks; it is dst, and rows are
 * cut; or dst takes its place, and the next strip of a row reads some of it again. */
static int FN(packed)(const cynorm_lrn_tile *t, int i) {
    const cynorm_lrn_view *m = &t->view[i];
    if (!m->data) return 0;
    return !FN(contiguous)(m) || (t->cut && i == CYNORM_LRN_DST) || (FN(joint)(t) && t->count[0] != VL) ||
           (i != CYNORM_LRN_DST && m->data == t->dst.data && !t->cut && FN(cells_of)(t) > CYNORM_ROW_STRIP - 2 * CYNORM_FAR);
}

/* Whether dst past the cache may leave by lines that lie across vectors, if it begins at whole reals. */
static int FN(rows_may_cross)(const cynorm_lrn_tile *t, int halves) {
    return FN(may_cross)(t->dst.dtype, halves) && !FN(joint)(t) && FN(cells_of)(t) % VL == 0;
}

/* Bytes of the rows of dst until they are copied, wherever they begin, or of what unpacking them takes. */
static int64_t FN(rows_stage)(const cynorm_lrn_tile *t) {
    const int64_t entries = t->count[0] * t->count[1] * (FN(joint)(t) ? t->count[2] : 1);
    if (FN(packed)(t, CYNORM_LRN_DST)) return cynorm_unpack_bytes(FN(unpacked_rows)(t));
    if (!t->streaming || (t->dst.dtype == CYNORM_COMPUTE && FN(rows_may_cross)(t, 0))) return 0;
    return FN(whole_lines)(entries * cynorm_itemsize(t->dst.dtype));
}

static int64_t FN(slab_bytes)(const cynorm_lrn_tile *t) {
    return FN(whole_lines)((t->size + VL) * cynorm_itemsize(t->dst.dtype));
}

static size_t FN(rows_scratch)(const cynorm_lrn_tile *t, int backward) {
    (void)backward;
    int64_t bytes = FN(rows_stage)(t);
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) bytes += FN(packed)(t, i) ? FN(slab_bytes)(t) : 0;
    return (size_t)bytes;
}

/* Rows that the loop cannot read or write in place are packed, a slab at a time. */
static void FN(lrn_rows)(const cynorm_lrn_tile *t, int backward) {
    const int dtype = t->src.dtype, reach = FN(constant_reach)(&t->window[0]), joint = FN(joint)(t), level = joint ? 2 : 1;
    const int64_t size = cynorm_itemsize(dtype), row = t->count[0] * size, cells = FN(cells_of)(t);
    const int whole = cells % VL == 0 && !t->y.data, loop = FN(loop_of_beta)(t, whole);
    const int halves = dtype == CYNORM_BF16 && loop == 1 && reach && !joint && cells % (2 * VL) == 0;
    const int64_t lanes = halves ? 2 * VL : VL, vector = lanes * size, ahead = CYNORM_ROW_AHEAD / (cells * size) + 1;
    char *stage = t->scratch, *slab[CYNORM_LRN_OPERANDS], *free = stage + FN(rows_stage)(t);
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) {
        slab[i] = FN(packed)(t, i) ? free : NULL;
        if (slab[i]) free += FN(slab_bytes)(t);
    }
    const int by_lines = FN(by_lines)(t, row, vector, 1);
    /* rows follow on, but do not begin at lines */
    const int apart = t->streaming && !by_lines && !slab[CYNORM_LRN_DST] && t->dst.stride[level] == row;
    const int crossing = apart && FN(rows_may_cross)(t, halves) && FN(multiple_of)(&t->dst, sizeof(real));
    const int staged = apart && !crossing;
    across_t across = {.end = NULL};
    rows_t r = {.vectors = (cells + lanes - 1) / lanes, .q = FN(coefficients_of)(t), .halves = halves,
                .streaming = t->streaming && by_lines && !slab[CYNORM_LRN_DST], .across = crossing ? &across : NULL};
/* so many rows on in this slab or, where it has fewer, in the next one */
#define AHEAD(name) (ahead < t->count[level] ? ahead * t->name.stride[level] : t->name.streamed)
    if (!slab[CYNORM_LRN_SRC]) r.src_ahead = AHEAD(src);
    if (!slab[CYNORM_LRN_DIFF_DST]) r.diff_ahead = AHEAD(diff_dst);
    if (!slab[CYNORM_LRN_Y]) r.y_ahead = AHEAD(y);
#undef AHEAD
    r.last = cells - (r.vectors - 1) * lanes;
    r.whole = cells % VL == 0;
    int window = reach - 1;
    r.margin = 1;
    if (!reach && FN(in_registers)(&t->window[0])) {
#if CYNORM_PICKS
        r.window = FN(window_of)(&t->window[0]);
        r.late = window = 64 - __builtin_clzll((uint64_t)r.window.n); /* one more than its tree has levels */
        r.gap = 1;
#endif
    } else if (!reach) {
        r.left = t->window[0].left, r.right = t->window[0].right, window = CYNORM_FAR_WINDOW;
        r.margin = ((r.left > r.right ? r.left : r.right) + VL - 1) / VL;
        r.gap = backward ? r.margin : 0;
    }
    r.columns = joint && whole;
    r.keeps = r.columns && dtype == CYNORM_COMPUTE;
    r.omegas = FN(row_loops)[dtype].omegas[window];
    r.powers = FN(row_loops)[dtype].powers[backward][loop];
    r.results = FN(row_loops)[dtype].results[window];
    for (int64_t v = t->begin; v < t->end; v++) {
        const region all = FN(region_of)(t, t->cut ? t->reach_src : NULL, v), part = FN(region_of)(t, NULL, v);
        cynorm_operand o[CYNORM_LRN_OPERANDS] = {0};
        int64_t step[CYNORM_LRN_OPERANDS] = {0};
        for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) {
            const cynorm_lrn_view *m = &t->view[i];
            if (!m->data) continue;
            if (slab[i] && i != CYNORM_LRN_DST) FN(pack)((real *)slab[i], t, m, &all, v);
            o[i] = FN(operand)(t, m, (real *)slab[i], &all, v);
            step[i] = joint && !slab[i] ? o[i].pitch[0] : vector;
        }
        const cynorm_operand dst = o[CYNORM_LRN_DST];
        r.rows = all.to[level];
        if (staged) {
            o[CYNORM_LRN_DST] = (cynorm_operand){stage, {joint ? r.rows * row : row, joint ? row : 0}};
            if (joint) step[CYNORM_LRN_DST] = r.rows * row;
        }
        for (int64_t i2 = 0; i2 < (joint ? 1 : all.to[2]); i2++) {
#define OPERAND(name, short, i)                                                                                \
    r.name = o[i].data ? o[i].data + i2 * o[i].pitch[1] : NULL, r.short##_step = step[i],                      \
    r.short##_pitch = o[i].pitch[level - 1],                                                                   \
    r.short##_flat = r.whole && !r.gap && r.short##_pitch == r.vectors * r.short##_step
            OPERAND(src, src, CYNORM_LRN_SRC);
            OPERAND(diff_dst, diff, CYNORM_LRN_DIFF_DST);
            OPERAND(y, y, CYNORM_LRN_Y);
            OPERAND(dst, dst, CYNORM_LRN_DST);
#undef OPERAND
            r.strip = CYNORM_ROW_STRIP / lanes;
            if (window == CYNORM_FAR_WINDOW) r.strip -= 2 * r.margin;
            else if (r.columns) r.strip = FN(strip_of_columns)(&r);
            if (crossing) FN(go_across)(&across, r.dst, vector);
            if (backward) FN(rows_backward)(&r);
            else FN(rows_forward)(&r);
            if (crossing) across.end = r.dst + r.rows * row;
            for (int64_t i1 = 0; staged && i1 < (joint ? all.to[1] : 1); i1++)
                cynorm_stream_copy(dst.data + i2 * dst.pitch[1] + i1 * dst.pitch[0], stage + i1 * r.rows * row, r.rows * row);
        }
        if (slab[CYNORM_LRN_DST]) FN(unpack)((real *)slab[CYNORM_LRN_DST], t, &t->dst, &part, v, t->streaming ? stage : NULL);
    }
    if (crossing) FN(go_across)(&across, NULL, vector);
}
