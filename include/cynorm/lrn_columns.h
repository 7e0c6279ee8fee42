/* LRN along the stream by columns: their rows, and which tiles they serve. A template, see types.h; columns are lrn_column.h's. */

#if CYNORM_COLUMNS

/* ---- rows ---- */

/* Of rows that do not begin at lines, the first vectors and the ends of rows go by scratch; of the first vectors, what ends a line
 * is written at once. */
static void FN(columns_across)(const column_t *given, const column_loop *loop) {
    const int64_t lines = given->row & -64;
    column_t b = *given;
    b.dst = b.before, b.dst_step = 64;
    loop[CYNORM_COLUMN_PLAIN](&b, 0, 64);
    for (int64_t v = b.finish[0]; v < b.finish[1]; v++) {
        char *dst = given->dst + v * given->dst_step;
        const int64_t head = 64 - ((intptr_t)dst & 63);
        memcpy(dst, b.before + v * 64, (size_t)head);
        b.lanes[v] = (int32_t)(head / b.size);
    }
    loop[CYNORM_COLUMN_ACROSS](given, 64, lines);
    b.dst = b.rest - lines;
    if (lines < b.row) loop[CYNORM_COLUMN_PLAIN](&b, lines, b.row);
    for (int64_t v = b.finish[0]; v < b.finish[1]; v++) {
        char *dst = given->dst + v * given->dst_step + lines, last[128];
        const int64_t waits = (intptr_t)dst & 63;
        memcpy(last, b.before + v * 64, 64);
        memcpy(last + 64, b.rest + v * 64, 64);
        cynorm_stream_copy(dst - waits, last + 64 - waits, waits + b.row - lines);
    }
}

static void FN(run_columns)(const cynorm_lrn_tile *t, int backward, int64_t src_at, int64_t diff_at, int64_t dst_at) {
    const int64_t reach = t->left, all = (1 + backward) * reach, least = t->begin - all, most = t->end + all;
    const int64_t size = cynorm_itemsize(t->src.dtype);
    column_t b = {.src = t->src.data + src_at, .diff_dst = backward ? t->diff_dst.data + diff_at : t->src.data,
                  .dst = t->dst.data + dst_at,
                  .src_step = t->src.streamed, .diff_step = t->diff_dst.streamed, .dst_step = t->dst.streamed,
                  .row = t->count[0] * size, .size = size, .first = least < 0 ? 0 : least,
                  .end = most < t->extent ? most : t->extent, .finish = {t->begin, t->end}, .q = FN(coefficients_of)(t),
                  .before = t->scratch};
    const int wide = reach > CYNORM_REACH, beta = FN(loop_of_beta)(t, 1);
    const column_loop *loop = wide ? FN(wide_loops)[reach - CYNORM_REACH - 1][backward][beta]
                                   : FN(column_loops)[t->src.dtype][backward][reach - 1][beta];
    const int64_t lines = b.row & -64;
    if (t->dst.data != t->src.data && t->dst.data != t->diff_dst.data) { /* else another thread may be writing to it */
        b.src_run = t->count[1] > 1 ? t->src.stride[1] : t->extent * t->src.streamed;
        b.diff_run = t->count[1] > 1 ? t->diff_dst.stride[1] : t->extent * t->diff_dst.streamed;
    }
    b.terms[0] = t->begin > reach ? t->begin - reach : 0;
    b.terms[1] = t->end + reach < t->extent ? t->end + reach : t->extent;
    b.ahead = (CYNORM_COLUMN_AHEAD / (2 * 64 * (b.end - b.first)) + 1) * 64;
    b.rest = b.before + t->extent * 64;
    b.even = b.rest + t->extent * 64;
    b.lanes = (int32_t *)(b.even + t->extent * 64);
    if (t->streaming && (wide || !FN(by_lines)(t, b.row, 64, 0))) {
        FN(columns_across)(&b, loop);
        return;
    }
    loop[t->streaming ? CYNORM_COLUMN_LINES : CYNORM_COLUMN_PLAIN](&b, 0, lines);
    if (lines < b.row) loop[CYNORM_COLUMN_PLAIN](&b, lines, b.row);
}

/* ---- tiles ---- */

static size_t FN(columns_scratch)(const cynorm_lrn_tile *t, int backward) {
    (void)backward;
    return (size_t)(t->extent * (64 + 64 + 64 + 4));
}

/* Whether the lines of a column, `step` bytes apart, find room in the caches: in the first-level cache, lines 4 KB apart share
 * sets. */
static int FN(spread)(int64_t slabs, int64_t step) {
    for (int64_t period = 512; period <= 4096; period *= 2) {
        const int64_t past = step & (period - 1);
        if ((past < 64 || period - past < 64) && slabs * period > (period == 512 ? 1 << 16 : 1 << 15)) return 0;
    }
    return slabs <= CYNORM_COLUMN_SLABS;
}

/* Whether this serves a tile whose rows are contiguous, and whose windows reach equally far both ways. Narrow windows gain by it
 * where far lines are fetched fast and there is a loop for them, and wide ones of float32 where slabs are whole steps. */
static int FN(columns_serve)(const cynorm_lrn_tile *t) {
    const int backward = t->diff_dst.data != NULL, wide = t->left > CYNORM_REACH, line = FN(is_line)(t->src.dtype);
    const int64_t row = t->count[0] * cynorm_itemsize(t->src.dtype);
    const int way = t->streaming ? CYNORM_COLUMN_LINES : CYNORM_COLUMN_PLAIN;
    if (!wide && !t->far_lines) return 0;
    if (!wide && !FN(column_loops)[t->src.dtype][backward][0][FN(loop_of_beta)(t, 1)][way]) return 0;
    if (wide && (t->left > CYNORM_WIDE_REACH || !line || FN(by_blocks)(t))) return 0;
    if (wide && !FN(whole_steps)(t->extent, t->left, backward)) return 0;
    if (row < (t->streaming ? CYNORM_STREAM_LEAST : 64)) return 0;
    return FN(spread)(t->extent, t->src.streamed) && (!backward || FN(spread)(t->extent, t->diff_dst.streamed));
}

static void FN(lrn_columns)(const cynorm_lrn_tile *t, int backward) { FN(each_run)(t, backward, FN(run_columns)); }

#else

static size_t FN(columns_scratch)(const cynorm_lrn_tile *t, int backward) { return (void)t, (void)backward, (size_t)0; }
static int FN(columns_serve)(const cynorm_lrn_tile *t) { return (void)t, 0; }
static void FN(lrn_columns)(const cynorm_lrn_tile *t, int backward) { (void)t, (void)backward; }

#endif
#undef CYNORM_COLUMNS
