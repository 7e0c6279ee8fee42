/* LRN of one tile: which of the loops takes it, and what is copied before and after. A template, see types.h.
 *
 * Each way sums a tile's windows in lrn.h's order, and so gives the bits that lrn.h's own loop would. */

enum {
    CYNORM_KIND_ANY, CYNORM_KIND_BLOCKS, CYNORM_KIND_COLUMNS, CYNORM_KIND_ROWS, CYNORM_KIND_RUNS, CYNORM_KIND_PLANES,
    CYNORM_KIND_WALKS, CYNORM_KIND_SLABS
};

/* Whether operands that are not contiguous along level 0 may be copied, the tile's part as a whole, before and after the kernel:
 * transposed, as a rule. */
static int FN(copyable)(const cynorm_lrn_tile *t) {
    const int64_t row = t->count[0] * cynorm_itemsize(t->dst.dtype);
    if (FN(by_pixels)(t)) return !FN(few_channels)(t) && t->extent * t->count[1] <= CYNORM_TRANSPOSED_PIXELS;
    if (t->windows) return (t->left || t->right) && t->part * row <= CYNORM_COPIED_PLANE;
    return t->count[1] * t->count[2] == 1 && t->extent <= CYNORM_TRANSPOSED_MOST;
}

/* Whether rows of src, diff_dst and dst lie so. */
static int FN(plain)(const cynorm_lrn_tile *t) {
    return FN(lies_plain)(t, CYNORM_LRN_SRC) && FN(lies_plain)(t, CYNORM_LRN_DIFF_DST) && FN(lies_plain)(t, CYNORM_LRN_DST);
}

/* Which loops serve a tile; lrn.h's own serve ANY. Windows that lie
 *     along level 0                    RUNS      3 and 5, where rows follow on, as a rule (runs_serve)
 *                                      ROWS      else any that registers or scratch hold, along parts of rows too
 *     along the stream                 COLUMNS   3 to 31 slabs (columns_serve); BLOCKS: 3 and 5 else;
 *                                                SLABS: any up to CYNORM_SLABS_MOST
 *     along level 0 and the stream     PLANES    3 to 9 cells, as many as a vector reaches; SLABS, likewise
 *     both ways in level 0, and so     PLANES    the same; SLABS, likewise
 *     along level 1 and the stream     PLANES    the same, where pixels_as_rows; WALKS: 3 and 5 else, of channels that fill
 *                                                vectors; SLABS, likewise */
static int FN(kind_of)(const cynorm_lrn_tile *t) {
    const cynorm_lrn_window *w = &t->window[0];
    if (t->omega.data || t->windows > 1 || (t->rows && !(t->windows && t->left + t->right))) return CYNORM_KIND_ANY;
    const int reach = t->windows ? FN(constant_reach)(w) : 0;
    if (t->windows && w->step == 1 && !t->left && !t->right && !(t->cut && FN(joint)(t)))
        return FN(runs_serve)(t) ? CYNORM_KIND_RUNS
             : reach || FN(in_registers)(w) || FN(far)(w) ? CYNORM_KIND_ROWS : CYNORM_KIND_ANY;
    if (t->cut) return CYNORM_KIND_ANY;
    const int plain = FN(plain)(t), by_copied_rows = !plain && FN(few_channels)(t);
    if (t->y.data || (!plain && !by_copied_rows && !FN(copyable)(t))) return CYNORM_KIND_ANY;
    if (by_copied_rows) return FN(slabs_serve)(t) ? CYNORM_KIND_SLABS : CYNORM_KIND_ANY;
    int square = t->left && t->left == t->right;
    for (int i = 0; i < t->windows + (t->rows > 0); i++) square = square && w[i].left == t->left && w[i].right == t->left;
    if (square && t->windows && t->left <= FN(lrn_plane_reach) && (w->step == 1 || FN(pixels_as_rows)(t)))
        return CYNORM_KIND_PLANES;
    if (square && !t->windows && plain && FN(columns_serve)(t)) return CYNORM_KIND_COLUMNS;
    if (!square || t->left > CYNORM_REACH) return FN(slabs_serve)(t) ? CYNORM_KIND_SLABS : CYNORM_KIND_ANY;
    if (!t->windows) return CYNORM_KIND_BLOCKS;
    return FN(channels_serve)(t) ? CYNORM_KIND_WALKS : FN(slabs_serve)(t) ? CYNORM_KIND_SLABS : CYNORM_KIND_ANY;
}

/* Bytes of scratch, and the loops, of each kind. */
static const struct {
    size_t (*scratch)(const cynorm_lrn_tile *, int backward);
    void (*run)(const cynorm_lrn_tile *, int backward);
} FN(kinds)[] = {
    [CYNORM_KIND_ANY] = {FN(tile_scratch), FN(lrn_tile)},
    [CYNORM_KIND_BLOCKS] = {FN(blocks_scratch), FN(lrn_blocks)},
    [CYNORM_KIND_COLUMNS] = {FN(columns_scratch), FN(lrn_columns)},
    [CYNORM_KIND_ROWS] = {FN(rows_scratch), FN(lrn_rows)},
    [CYNORM_KIND_RUNS] = {FN(rows_scratch), FN(lrn_runs)}, /* the last of a tensor's tiles may be too short */
    [CYNORM_KIND_PLANES] = {FN(planes_scratch), FN(lrn_planes)},
    [CYNORM_KIND_WALKS] = {FN(walks_scratch), FN(lrn_walks)},
    [CYNORM_KIND_SLABS] = {FN(slabs_scratch), FN(lrn_slabs)},
};

static int FN(lrn_taken_by)(const cynorm_lrn_tile *t) {
    const int kind = FN(kind_of)(t);
    if (kind == CYNORM_KIND_COLUMNS) return CYNORM_LRN_COLUMNS;
    if (kind == CYNORM_KIND_ANY || !t->windows) return 0;
    if (!FN(plain)(t) && !FN(few_channels)(t)) return !FN(by_pixels)(t) && FN(copyable)(t) ? CYNORM_LRN_COPIED : 0;
    if (t->rows) return CYNORM_LRN_VOLUMES;
    if (!FN(by_pixels)(t)) return 0;
    return kind != CYNORM_KIND_PLANES && FN(lead_of)(t, t->diff_dst.data != NULL) ? CYNORM_LRN_LINES : CYNORM_LRN_CHANNELS;
}

/* ---- operands whose rows are not contiguous, copied before the loop and after ---- */

/* y never is: tiles with y are not copyable, or go to lrn_tile. */
static int FN(is_copied)(const cynorm_lrn_tile *t, int kind, int i) {
    return kind != CYNORM_KIND_ANY && !FN(lies_plain)(t, i) && FN(copyable)(t);
}

/* A copied operand: its slabs [first, end), which the tile's windows reach; bytes from slab to slab, from entry to entry of
 * level 1, and in all. A slab is the tile's row of dst, with room for the line before it, which dst may ask for; or the pixels of
 * all of level 1, without such room; planes follow one another. */
typedef struct { int64_t first, end, slab, entry, all; } copied_t;

static copied_t FN(copied)(const cynorm_lrn_tile *t, int kind) {
    const int backward = t->diff_dst.data != NULL;
    const int64_t row = t->count[0] * cynorm_itemsize(t->dst.dtype), around = kind == CYNORM_KIND_PLANES ? 0 : CYNORM_BLOCK_MOST;
    const int64_t reach = (1 + backward) * (around ? t->left + t->right : t->left) + around, most = t->part + 2 * reach;
    const int64_t slabs = most < t->extent ? most : t->extent;
    copied_t c = {t->begin > reach ? t->begin - reach : 0, t->end + reach < t->extent ? t->end + reach : t->extent,
                  t->windows ? t->count[1] * row : FN(row_bytes)(t), row, 0};
    c.all = FN(whole_lines)(slabs * c.slab);
    if (t->windows && t->window[0].step == 1) c.slab = row, c.entry = slabs * row;
    return c;
}

static size_t FN(lrn_scratch)(const cynorm_lrn_tile *t) {
    const int kind = FN(kind_of)(t);
    int64_t bytes = FN(is_copied)(t, kind, CYNORM_LRN_DST) ? cynorm_unpack_bytes(0) : 0;
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++)
        if (FN(is_copied)(t, kind, i)) bytes += FN(copied)(t, kind).all;
    return (size_t)bytes + FN(kinds)[kind].scratch(t, t->diff_dst.data != NULL);
}

/* Slabs [begin, end) of an operand, elements [-before, count) of each, as it lies in memory and in scratch. */
static cynorm_slab FN(copied_slab)(const cynorm_lrn_tile *t, const copied_t *c, const cynorm_lrn_view *m, char *scratch,
                                   int64_t before, int64_t begin, int64_t end) {
    const int64_t size = cynorm_itemsize(m->dtype);
    return (cynorm_slab){{m->data + begin * m->streamed - before * m->stride[0], scratch},
                         {{before + t->count[0], {m->stride[0], size}},
                          {end - begin, {m->streamed, c->slab}},
                          {t->windows ? t->count[1] : 1, {m->stride[1], c->entry}}},
                         size, 0};
}

/* The tile, with those operands in scratch whose rows are not contiguous, transposed there and back: its `kind` stays, as some
 * kinds leave the line between two tiles to the next tile. */
static void FN(lrn_copied)(const cynorm_lrn_tile *t, int kind) {
    cynorm_lrn_tile u = *t;
    const int64_t size = cynorm_itemsize(t->dst.dtype);
    const copied_t c = FN(copied)(t, kind);
    char *free = t->scratch, *stage = free;
    if (FN(is_copied)(t, kind, CYNORM_LRN_DST)) free += cynorm_unpack_bytes(0), u.streaming = 0;
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) {
        if (!FN(is_copied)(t, kind, i)) continue;
        const int64_t before = i != CYNORM_LRN_DST && t->streaming && t->before && !t->windows ? 64 / size : 0;
        cynorm_slab slab = FN(copied_slab)(t, &c, &t->view[i], free, before, c.first, c.end);
        if (i != CYNORM_LRN_DST) cynorm_pack(&slab);
        u.view[i] = (cynorm_lrn_view){free + before * size - c.first * c.slab, c.slab, {size, c.entry}, t->dst.dtype};
        free += c.all;
    }
    u.scratch = free;
    FN(kinds)[kind].run(&u, t->diff_dst.data != NULL);
    if (!FN(is_copied)(t, kind, CYNORM_LRN_DST)) return;
    cynorm_slab slab = FN(copied_slab)(t, &c, &t->dst, u.dst.data + t->begin * c.slab, 0, t->begin, t->end);
    cynorm_unpack(&slab, t->streaming ? stage : NULL, 0);
}

/* Forward or, where there is diff_dst, backward. */
static void FN(lrn)(const cynorm_lrn_tile *t) {
    const int kind = FN(kind_of)(t);
    if (kind == CYNORM_KIND_ANY || FN(plain)(t) || !FN(copyable)(t)) {
        FN(kinds)[kind].run(t, t->diff_dst.data != NULL);
        return;
    }
    cynorm_lrn_tile u = *t;
    u.count[2] = 1;
    for (int64_t i2 = 0; i2 < t->count[2]; i2++) {
        FN(lrn_copied)(&u, kind);
        for (int i = 0; i < CYNORM_LRN_OPERANDS; i++)
            if (u.view[i].data) u.view[i].data += u.view[i].stride[2];
    }
}
