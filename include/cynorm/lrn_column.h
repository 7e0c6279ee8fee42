/* LRN along the stream by columns: what a column is, and how it leaves. A template, see types.h; formulas, tiles and trees are
 * lrn.h's.
 *
 * A column is a line of each slab. It goes through all slabs before the next one does, so that what windows reach over stays in
 * registers and the first-level cache, and a line is read only once from beyond these. Half types, whose lines are two vectors,
 * go through all slabs twice, once for each vector; what is made of the first waits for the second. Where columns do not lie at
 * lines, dst leaves by lines that are the end of one column and the beginning of the next. */

enum { CYNORM_COLUMN_AHEAD = 64 << 10 }; /* bytes that are asked for before they are read: some columns of all slabs, */
enum { CYNORM_COLUMN_NEAR = 4 };         /* and, into the first-level cache, slabs of the column */
/* How dst leaves: as it is; by lines, past the cache; by lines that lie across vectors. */
enum { CYNORM_COLUMN_PLAIN, CYNORM_COLUMN_LINES, CYNORM_COLUMN_ACROSS };

#define CYNORM_COLUMNS (CYNORM_VBYTES == 64 && !CYNORM_DOUBLE) /* double gains nothing by it */

#if CYNORM_COLUMNS

typedef struct {
    const char *src, *diff_dst;            /* slab 0 */
    char *dst;
    int64_t src_step, diff_step, dst_step; /* bytes from a slab to the next */
    int64_t row, size;                     /* bytes of a slab, of an element */
    int64_t first, end;                    /* slabs that are read: from, to */
    int64_t terms[2], finish[2];           /* which have terms, are finished: from, to */
    int64_t ahead, src_run, diff_run;      /* bytes to what is asked for; from this run to the next one, or 0 */
    coefficients q;
    /* Of slab 0, followed by those of the other slabs: a line for the column before, one for the end of a row, a vector of results
     * that wait for the rest of their line; from which element on the column before leaves with the next. */
    char *before, *rest, *even;
    int32_t *lanes;
} column_t;

/* Of a line of each slab the vector that is worked on: n elements, or all of a part. */
typedef struct { int dtype, part; int64_t n; } slice_t;

/* Where each stage is in memory. */
typedef struct {
    const char *newest, *middle, *finished, *diff_dst, *src_ahead, *diff_ahead;
    char *dst, *before, *even;
    const int32_t *lanes;
} place_t;

/* `at` bytes into rows, where slab c is the newest, terms are made `late` slabs late, and results `all`. */
CYNORM_INLINE place_t FN(place_of)(const column_t *b, int64_t at, int64_t c, int late, int all) {
    const int64_t middle = c - late, finished = c - all, ahead = at + b->ahead, past = ahead - b->row;
    return (place_t){.newest = b->src + at + c * b->src_step,
                     .middle = b->src + at + middle * b->src_step,
                     .finished = b->src + at + finished * b->src_step,
                     .diff_dst = b->diff_dst + at + middle * b->diff_step,
                     .src_ahead = b->src + c * b->src_step + (past < 0 ? ahead : past + b->src_run),
                     .diff_ahead = b->diff_dst + middle * b->diff_step + (past < 0 ? ahead : past + b->diff_run),
                     .dst = b->dst + at + finished * b->dst_step,
                     .before = b->before + finished * 64,
                     .even = b->even + finished * 64,
                     .lanes = b->lanes + finished};
}

/* A slab's part of the column. */
CYNORM_INLINE vec FN(column_get)(const char *slab, slice_t of) { return FN(get_part)(slab, of.dtype, of.n, of.part); }

/* The same, where slabs are `step` bytes apart; asks for what is ahead, if all of the line or its part `asks` is worked on, and
 * for what the column before has not read of a slab that is near. */
CYNORM_INLINE vec FN(column_read)(const char *slab, const char *ahead, int64_t step, slice_t of, int asks) {
    const vec v = FN(column_get)(slab, of);
    if (of.part == CYNORM_ALL || of.part == asks) __builtin_prefetch(ahead, 0, 2);
    __builtin_prefetch(slab + CYNORM_COLUMN_NEAR * step + 63, 0, 3);
    return v;
}

/* Each stage goes on by `slabs` slabs. */
CYNORM_INLINE void FN(omegas_go_on)(const column_t *b, place_t *at, int slabs) {
    at->newest += slabs * b->src_step, at->src_ahead += slabs * b->src_step;
}
CYNORM_INLINE void FN(terms_go_on)(const column_t *b, place_t *at, int slabs) {
    at->middle += slabs * b->src_step;
    at->diff_dst += slabs * b->diff_step, at->diff_ahead += slabs * b->diff_step;
}
CYNORM_INLINE void FN(results_go_on)(const column_t *b, place_t *at, int slabs) {
    at->finished += slabs * b->src_step;
    at->dst += slabs * b->dst_step, at->before += slabs * 64, at->even += slabs * 64, at->lanes += slabs;
}

/* 64 bytes of two lines that follow one another, from an element of the first one on. */
CYNORM_INLINE vec FN(line_across)(vec before, vec line, int32_t from, int dtype) {
    if (FN(is_line)(dtype)) {
        ivec lane;
        for (int i = 0; i < VL; i++) lane[i] = i;
        return FN(picked)(before, line, lane + from);
    }
    uint16_t __attribute__((vector_size(64))) lane;
    for (int i = 0; i < 2 * VL; i++) lane[i] = (uint16_t)i;
    return (vec)_mm512_permutex2var_epi16((__m512i)before, (__m512i)(lane + (uint16_t)from), (__m512i)line);
}

/* The column's part of dst, or what waits of it. */
CYNORM_INLINE void FN(column_leave)(char *dst, char *before, char *even, const int32_t *lanes, vec out, slice_t of, int way) {
    if (of.part == CYNORM_EVEN) {
        FN(store)((real *)even, out);
        return;
    }
    if (of.part == CYNORM_ODD) out = FN(line_of_parts)(FN(load)((const real *)even), out, of.dtype);
    if (way == CYNORM_COLUMN_PLAIN && of.part == CYNORM_ALL) FN(put)(dst, out, of.dtype, of.n);
    else if (way == CYNORM_COLUMN_PLAIN) memcpy(dst, &out, 64);
    else if (way == CYNORM_COLUMN_LINES) cynorm_stream(dst, &out, 64);
    else {
        const vec line = FN(line_across)(FN(load)((const real *)before), out, *lanes, of.dtype);
        cynorm_stream((char *)((intptr_t)dst & -64), &line, 64);
        FN(store)((real *)before, out);
    }
}

/* A loop over columns [from, to), in bytes; the last one of PLAIN may be of less than a line. */
typedef void (*column_loop)(const column_t *, int64_t from, int64_t to);

#endif
