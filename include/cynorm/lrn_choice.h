/* LRN of one tile: which of the loops takes it, and what is transposed before and after. A template, see types.h.
 *
 * Each way sums a tile's windows in lrn.h's order, and so gives the bits that lrn.h's own loop would. */

enum {
    CYNORM_KIND_BLOCKS = 1, CYNORM_KIND_COLUMNS, CYNORM_KIND_ROWS, CYNORM_KIND_RUNS, CYNORM_KIND_PLANES, CYNORM_KIND_WALKS,
    CYNORM_KIND_SLABS
};

/* Whether what is not contiguous along level 0 may be copied, the tile's part of it whole, before the kernel and after: transposed,
 * as a rule. */
static int FN(transposable)(const cynorm_lrn_tile *t) {
    if (t->windows && t->window[0].step > 1) return t->extent * t->count[1] <= CYNORM_TRANSPOSED_PIXELS;
    if (t->windows) return (t->left || t->right) && t->extent * t->count[0] * cynorm_itemsize(t->dst.dtype) <= CYNORM_COPIED_PLANE;
    return t->count[1] * t->count[2] == 1 && t->extent <= CYNORM_TRANSPOSED_MOST;
}

/* Whether rows of src, diff_dst and dst are contiguous. */
static int FN(plain)(const cynorm_lrn_tile *t) {
    return FN(contiguous)(&t->src) && FN(contiguous)(&t->diff_dst) && FN(contiguous)(&t->dst);
}

/* Which of the loops serve a tile, if any. Windows that lie
 *     along level 0                    RUNS      3 and 5, where rows follow on, as a rule (runs_serve)
 *                                      ROWS      else any that registers or scratch hold
 *     along the stream                 COLUMNS   3 to 31 slabs (columns_serve); BLOCKS: 3 and 5 else;
 *                                                SLABS: any up to CYNORM_SLABS_MOST
 *     along level 0 and the stream     PLANES    3 to 9 cells, as many as a vector reaches; SLABS, likewise
 *     along level 1 and the stream     WALKS     3 and 5; SLABS, likewise */
static int FN(kind_of)(const cynorm_lrn_tile *t) {
    const cynorm_lrn_window *w = &t->window[0];
    if (t->omega.data || t->cut || t->windows > 1) return 0;
    const int reach = t->windows ? FN(constant_reach)(w) : 0;
    if (t->windows && w->step == 1 && !t->left && !t->right)
        return FN(runs_serve)(t) ? CYNORM_KIND_RUNS : reach || FN(in_registers)(w) || FN(far)(w) ? CYNORM_KIND_ROWS : 0;
    const int plain = FN(plain)(t);
    if (t->y.data || (!plain && !FN(transposable)(t))) return 0;
    const int square = t->left && t->left == t->right && (!t->windows || (w->left == t->left && w->right == t->left));
    if (square && t->windows && w->step == 1 && t->left <= FN(lrn_plane_reach)) return CYNORM_KIND_PLANES;
    if (square && !t->windows && plain && FN(columns_serve)(t)) return CYNORM_KIND_COLUMNS;
    if (!square || t->left > CYNORM_REACH) return FN(slabs_serve)(t) ? CYNORM_KIND_SLABS : 0;
    if (!t->windows) return CYNORM_KIND_BLOCKS;
    return FN(channels_serve)(t) ? CYNORM_KIND_WALKS : 0;
}

static size_t FN(kernel_scratch)(const cynorm_lrn_tile *t, int kind, int backward) {
    switch (kind) {
    case CYNORM_KIND_BLOCKS: return FN(blocks_scratch)(t, backward);
    case CYNORM_KIND_COLUMNS: return FN(columns_scratch)(t);
    case CYNORM_KIND_RUNS: /* the last of a tensor's tiles may be too short */
    case CYNORM_KIND_ROWS: return FN(rows_scratch)(t);
    case CYNORM_KIND_PLANES: return FN(planes_scratch)(t, backward);
    case CYNORM_KIND_WALKS: return FN(walks_scratch)(t, backward);
    case CYNORM_KIND_SLABS: return FN(slabs_scratch)(t, backward);
    default: return FN(tile_scratch)(t, backward);
    }
}

static int FN(lrn_taken_by)(const cynorm_lrn_tile *t) {
    const int kind = FN(kind_of)(t);
    if (kind == CYNORM_KIND_COLUMNS) return CYNORM_LRN_COLUMNS;
    const int by_channels = kind == CYNORM_KIND_WALKS || (kind == CYNORM_KIND_SLABS && FN(by_pixels)(t));
    return FN(plain)(t) && by_channels ? CYNORM_LRN_CHANNELS : 0;
}

static void FN(run_kernel)(const cynorm_lrn_tile *t, int kind, int backward) {
    switch (kind) {
    case CYNORM_KIND_BLOCKS: FN(lrn_blocks)(t, backward); break;
    case CYNORM_KIND_COLUMNS: FN(lrn_columns)(t, backward); break;
    case CYNORM_KIND_ROWS: FN(lrn_rows)(t, backward); break;
    case CYNORM_KIND_RUNS: FN(lrn_runs)(t, backward); break;
    case CYNORM_KIND_PLANES: FN(lrn_planes)(t, backward); break;
    case CYNORM_KIND_WALKS: FN(lrn_walks)(t, backward); break;
    case CYNORM_KIND_SLABS: FN(lrn_slabs)(t, backward); break;
    default: FN(lrn_tile)(t, backward);
    }
}

/* ---- windows along the stream, of tensors in different memory orders ---- */

/* y never is: what takes it is not transposable, or lrn_tile. */
static int FN(transposed)(const cynorm_lrn_tile *t, int kind, int i) {
    return kind && !FN(contiguous)(FN(view)(t, i)) && FN(transposable)(t);
}

/* Bytes of a copied operand from slab to slab and from entry to entry of level 1, and in all: a slab is a row of dst, the tile's,
 * with room for the line before it that dst may ask for; or pixels of all of level 1, without; planes follow one another. */
typedef struct { int64_t slab, entry, all; } copied_t;

static copied_t FN(copied)(const cynorm_lrn_tile *t) {
    const int64_t row = t->count[0] * cynorm_itemsize(t->dst.dtype);
    copied_t c = {t->windows ? t->count[1] * row : FN(row_bytes)(t), row, 0};
    c.all = FN(whole_lines)(t->extent * c.slab);
    if (t->windows && t->window[0].step == 1) c.slab = row, c.entry = t->extent * row;
    return c;
}

static size_t FN(lrn_scratch)(const cynorm_lrn_tile *t, int backward) {
    const int kind = FN(kind_of)(t);
    int64_t bytes = FN(transposed)(t, kind, CYNORM_LRN_DST) ? cynorm_unpack_bytes(0) : 0;
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++)
        if (FN(transposed)(t, kind, i)) bytes += FN(copied)(t).all;
    return (size_t)bytes + FN(kernel_scratch)(t, kind, backward);
}

/* Slabs [begin, end) of an operand, elements [-before, count) of each, as it lies in memory and in scratch. */
static cynorm_slab FN(transposed_slab)(const cynorm_lrn_tile *t, const cynorm_lrn_view *m, char *scratch, int64_t before,
                                       int64_t begin, int64_t end) {
    const int64_t size = cynorm_itemsize(m->dtype);
    const copied_t c = FN(copied)(t);
    return (cynorm_slab){{m->data + begin * m->streamed - before * m->stride[0], scratch},
                         {{before + t->count[0], {m->stride[0], size}},
                          {end - begin, {m->streamed, c.slab}},
                          {t->windows ? t->count[1] : 1, {m->stride[1], c.entry}}},
                         size, 0};
}

/* The tile with operands in scratch where their rows are not contiguous, transposed there and back: its `kind` stays, as some
 * leave the line between two tiles to the next one. */
static void FN(lrn_transposed)(const cynorm_lrn_tile *t, int kind, int backward) {
    cynorm_lrn_tile u = *t;
    cynorm_lrn_view *const view[] = {&u.src, &u.diff_dst, &u.y, &u.dst};
    const int64_t size = cynorm_itemsize(t->dst.dtype);
    const copied_t c = FN(copied)(t);
    const int64_t reach = (1 + backward) * (t->left + t->right) + CYNORM_BLOCK_MOST;
    const int64_t first = t->begin > reach ? t->begin - reach : 0;
    const int64_t end = t->end + reach < t->extent ? t->end + reach : t->extent;
    char *free = t->scratch, *stage = free;
    if (FN(transposed)(t, kind, CYNORM_LRN_DST)) free += cynorm_unpack_bytes(0), u.streaming = 0;
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) {
        if (!FN(transposed)(t, kind, i)) continue;
        const int64_t before = i != CYNORM_LRN_DST && t->streaming && t->before && !t->windows ? 64 / size : 0;
        cynorm_slab slab = FN(transposed_slab)(t, view[i], free, before, first, end);
        if (i != CYNORM_LRN_DST) cynorm_pack(&slab);
        *view[i] = (cynorm_lrn_view){free + before * size - first * c.slab, c.slab, {size, c.entry}, t->dst.dtype};
        free += c.all;
    }
    u.scratch = free;
    FN(run_kernel)(&u, kind, backward);
    if (!FN(transposed)(t, kind, CYNORM_LRN_DST)) return;
    cynorm_slab slab = FN(transposed_slab)(t, &t->dst, u.dst.data + t->begin * c.slab, 0, t->begin, t->end);
    cynorm_unpack(&slab, t->streaming ? stage : NULL, 0);
}

static void FN(lrn)(const cynorm_lrn_tile *t, int backward) {
    cynorm_lrn_tile u = *t;
    cynorm_lrn_view *const view[] = {&u.src, &u.diff_dst, &u.y, &u.dst};
    const int kind = FN(kind_of)(t);
    int transposes = 0;
    for (int i = 0; i < CYNORM_LRN_OPERANDS; i++) transposes |= FN(transposed)(t, kind, i);
    if (!transposes) {
        FN(run_kernel)(t, kind, backward);
        return;
    }
    u.count[2] = 1;
    for (int64_t i2 = 0; i2 < t->count[2]; i2++) {
        FN(lrn_transposed)(&u, kind, backward);
        for (int i = 0; i < CYNORM_LRN_OPERANDS; i++)
            if (view[i]->data) view[i]->data += view[i]->stride[2];
    }
}

static void FN(lrn_forward)(const cynorm_lrn_tile *t) { FN(lrn)(t, 0); }
static void FN(lrn_backward)(const cynorm_lrn_tile *t) { FN(lrn)(t, 1); }

#undef EACH_HALF
