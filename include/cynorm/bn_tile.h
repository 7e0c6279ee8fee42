/* Batch norm of one tile, by blocks of rows: what they lie in, what is converted and staged for them, what is packed. A template,
 * see types.h. */

typedef struct {
    union {
        struct { char x[CYNORM_BN_STAGE], g[CYNORM_BN_STAGE]; };
        float halves[4][CYNORM_BN_WIDEST]; /* coefficients of bfloat16, whose rows are used as they are */
    };
    char out[CYNORM_BN_STAGE];
    unsigned char bits[CYNORM_BN_STAGE / 2];
} scratch_t;

enum { CYNORM_BN_BETWEEN = CYNORM_BN_STAGE / 4 / sizeof(real) }; /* elements whose coefficients fit `out` */

_Static_assert(sizeof(scratch_t) <= CYNORM_BN_SCRATCH, "scratch");

/* Whether rows are used as reals: an activation other than ReLU is computed by the row. */
static inline int FN(as_reals)(const cynorm_bn_tile *t) { return t->activation > CYNORM_RELU; }

/* Whether rows of a view can be used as they are. */
static inline int FN(is_ready)(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    return !FN(as_reals)(t) || v->dtype == CYNORM_COMPUTE;
}

/* Rows of n elements, `count` of them: one where the bytes from each to the next, in two places, are those of its elements. */
static inline void FN(join_rows)(int64_t *n, int64_t *count, int64_t step, int64_t size, int64_t other_step, int64_t other_size) {
    if (step != *n * size || other_step != *n * other_size) return;
    *n *= *count;
    *count = 1;
}

/* The rows of a block: memory itself, or a copy that is converted. */
static const char *FN(view_rows)(const cynorm_bn_tile *t, const cynorm_bn_view *v, const cynorm_bn_block *b,
                                 char *copy, int64_t *step) {
    char *p = cynorm_bn_at(v, b);
    *step = cynorm_bn_step(t, v);
    if (FN(is_ready)(t, v)) return p;
    const int64_t row = b->n * (int64_t)sizeof(real), size = cynorm_itemsize(v->dtype);
    int64_t n = b->n, count = b->count;
    FN(join_rows)(&n, &count, *step, size, row, sizeof(real));
    for (int64_t r = 0; r < count; r++) FN(load_row)((real *)(copy + r * row), p + r * *step, v->dtype, n, size);
    *step = row;
    return copy;
}

/* Coefficients of a block; NULL stays NULL. */
static inline const real *FN(coefficient)(const cynorm_bn_tile *t, const void *p, const cynorm_bn_block *b) {
    return p ? (const real *)p + b->of * t->row + (t->kept_inner ? b->i : b->row) : NULL;
}

/* What is asked for while a block's rows are read: of kept rows that are summed some at a time, the next ones; else what
 * batch_norm.h says. */
static void FN(look_ahead)(cynorm_bn_rows *in, const cynorm_bn_tile *t, const cynorm_bn_view *other, const cynorm_bn_block *b,
                           int sums) {
    const cynorm_bn_view *src = &t->view[CYNORM_BN_SRC];
    const int64_t row = b->n * cynorm_itemsize(src->dtype);
    in->together = in->turn = b->count;
    if (!t->kept_inner) {
        if (sums && !t->fetches) return;
        cynorm_bn_ahead_of(&in->x_ahead, t, src, t->next[0], b);
        cynorm_bn_ahead_of(&in->g_ahead, t, other, t->next[1], b);
    } else if (sums && b->n > CYNORM_BN_SUM_COLUMNS * VL) {
        int64_t ahead = CYNORM_BN_TOGETHER / row > CYNORM_BN_LEAST ? CYNORM_BN_TOGETHER / row : CYNORM_BN_LEAST;
        in->together = ahead;
        if (src->dtype == CYNORM_COMPUTE) { /* what is not cut, from DRAM in the order of memory */
            in->together = t->streaming && !cynorm_bn_cut(t, b) ? 1 : 4;
            ahead = CYNORM_BN_PIECE / row > in->together ? CYNORM_BN_PIECE / row : in->together;
            if (in->together * row > CYNORM_BN_PIECES) ahead = 0; /* they fill the first-level cache */
        }
        in->x_ahead.by = ahead * in->x_step;
        in->g_ahead.by = ahead * other->stride[2];
    } else {
        const int64_t ahead = cynorm_bn_rows_ahead(b, row);
        cynorm_bn_rows_next(&in->x_ahead, t, src, t->next[0], b, ahead);
        cynorm_bn_rows_next(&in->g_ahead, t, other, t->next[1], b, ahead);
        in->turn -= ahead;
        in->last_jump[0] = t->jump[0];
        in->last_jump[1] = t->jump[1];
        in->last_images = t->last_images;
    }
}

/* diff_dst as an activation other than ReLU leaves it, a copy: made, or `left` by sums. */
static void FN(gradient_rows)(cynorm_bn_rows *in, const cynorm_bn_tile *t, scratch_t *s, const cynorm_bn_block *b, int left) {
    const cynorm_bn_view *kept = &t->view[CYNORM_BN_VALUE], *gradient = &t->gradient;
    const int64_t size = sizeof(real), row = gradient->data ? cynorm_bn_step(t, gradient) : b->n * size;
    const int64_t value_row = kept->data ? cynorm_bn_step(t, kept) : b->n * size;
    const char *value = kept->data ? cynorm_bn_at(kept, b) : s->out; /* no results are in it yet */
    char *copy = gradient->data ? cynorm_bn_at(gradient, b) : s->g;
    if (!left && !kept->data) {
        line l = {.out = s->out, .step = value_row, .coefficient = {FN(coefficient)(t, t->center, b),
                  FN(coefficient)(t, t->gain, b), FN(coefficient)(t, t->bias, b)}};
        cynorm_bn_rows rows = {.x = in->x, .x_step = in->x_step, .n = b->n, .count = b->count, .images = 1};
        FN(combine_loops)[CYNORM_COMPUTE][CYNORM_NORMALIZE][t->kept_inner][0](&l, &rows);
    }
    int64_t n = b->n, count = left ? 0 : b->count;
    if (in->g_step == row) FN(join_rows)(&n, &count, row, size, value_row, size);
    for (int64_t r = 0; r < count; r++)
        FN(activate_backward)(t, (real *)(copy + r * row), (const real *)(in->g + r * in->g_step),
                              (const real *)(value + r * value_row), n);
    in->g = copy;
    in->g_step = row;
}

/* The bits of a block's elements, a copy where they do not follow one another. */
static void FN(mask_rows)(cynorm_bn_rows *in, const cynorm_bn_tile *t, scratch_t *s, const cynorm_bn_block *b) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    in->mask = (const unsigned char *)mask->data;
    in->bit = cynorm_bn_bit(t, b);
    in->bit_step = cynorm_bn_step(t, mask);
    if (mask->stride[0] == 1 || t->count[0] == 1) return;
    const int64_t row = b->piece / 8 + 8; /* bytes: more than are used may be read */
    for (int64_t r = 0; r < b->count; r++)
        for (int64_t j = 0; j < b->n; j++) {
            unsigned bit = cynorm_bits_at(in->mask, in->bit + r * in->bit_step + j * mask->stride[0]) & 1;
            unsigned char *byte = s->bits + r * row + j / 8;
            *byte = (unsigned char)((j % 8 ? *byte : 0) | bit << j % 8);
        }
    in->mask = s->bits;
    in->bit = 0;
    in->bit_step = 8 * row;
}

/* The rows of src, and of diff_dst with its mask, or of add; `sums`: whether sums are taken of them. */
static void FN(input_rows)(cynorm_bn_rows *in, const cynorm_bn_tile *t, scratch_t *s, const cynorm_bn_view *other,
                           const cynorm_bn_block *b, int sums) {
    const cynorm_bn_view *src = &t->view[CYNORM_BN_SRC], *mask = &t->view[CYNORM_BN_MASK];
    const int backward = t->view[CYNORM_BN_DIFF_DST].data != NULL;
    const cynorm_bn_ahead nothing = {0}; /* copies are in the cache */
    *in = (cynorm_bn_rows){.n = b->n, .count = b->count, .x_image = src->stride[1], .g_image = other->stride[1],
                           .bit_image = mask->stride[1], .images = b->images};
    in->x = FN(view_rows)(t, src, b, s->x, &in->x_step);
    FN(look_ahead)(in, t, other, b, sums);
    if (in->x == s->x || src->packed) in->x_ahead = nothing;
    if (!other->data) return;
    const int copies = backward && t->activation > CYNORM_RELU, left = copies && t->gradient.data && !sums;
    if (!left) in->g = FN(view_rows)(t, other, b, s->g, &in->g_step);
    if (in->g == s->g || copies || other->packed) in->g_ahead = nothing;
    if (copies) FN(gradient_rows)(in, t, s, b, left);
    if (backward && mask->data) FN(mask_rows)(in, t, s, b);
}

/* How a tile is cut into blocks, whose rows have `most` elements at most; `staged`: its results do not go to
 * memory as they are computed. */
static cynorm_bn_block FN(blocks)(const cynorm_bn_tile *t, int64_t most, int staged, int dtype) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    cynorm_bn_block b = {.piece = t->count[0] < most ? t->count[0] : most,
                         .rows = t->kept_inner ? t->count[2] : t->count[1], .images = 1};
    const int64_t size = cynorm_itemsize(dtype), row = t->count[0] * size;
    const int is_short = t->kept_inner && staged && !FN(as_reals)(t) && row <= CYNORM_BN_SHORT;
    const int64_t stage = (is_short ? CYNORM_BN_SHORT_STAGE : CYNORM_BN_STAGE) / size;
    if (FN(as_reals)(t) || (mask->data && mask->stride[0] != 1 && t->count[0] > 1)) {
        const int64_t whole = (t->count[0] + 15) / 16 * 16; /* room for a copy's last whole vector, and for bytes of a mask */
        b.piece = whole < CYNORM_BN_ROW ? whole : CYNORM_BN_ROW;
        staged = 1;
    } else if (staged && b.piece > stage) {
        b.piece = stage;
    }
    if (staged && b.rows > stage / b.piece) b.rows = stage > b.piece ? stage / b.piece : 1;
    /* sums of all columns stay in registers from image to image */
    const int is_held = b.piece <= VL || b.piece == 2 * VL || b.piece == CYNORM_BN_SUM_COLUMNS * VL;
    if (t->kept_inner && !staged && is_held) b.images = t->count[1];
    return b;
}

/* Whether kept rows are of bfloat16, are a vector each, follow on in memory, as do those of `l`, if any, and are enough:
 * then two are taken as one, whose halves need no lane moved. */
static int FN(in_pairs)(const cynorm_bn_tile *t, const cynorm_bn_rows *in, const line *l, int dtype) {
    const int64_t row = VL * cynorm_itemsize(dtype);
    return t->kept_inner && dtype == CYNORM_BF16 && in->n == VL && in->count > 1 &&
           in->count * in->images >= CYNORM_BN_PAIRED && in->x_step == row &&
           (!in->g || in->g_step == row) && (!in->mask || in->bit_step == VL) &&
           (!l || (l->step == row && (!l->mask || l->bit_step == VL)));
}

/* The pairs of `in`, which is left with a last row, or none. */
static cynorm_bn_rows FN(take_pairs)(cynorm_bn_rows *in) {
    cynorm_bn_rows pairs = *in;
    const int64_t rows = in->count / 2 * 2;
    pairs.n *= 2, pairs.count /= 2, pairs.turn /= 2, pairs.together = pairs.count;
    pairs.x_step *= 2, pairs.g_step *= 2, pairs.bit_step *= 2;
    in->count -= rows;
    in->x += rows * in->x_step, in->bit += rows * in->bit_step;
    if (in->g) in->g += rows * in->g_step;
    return pairs;
}

/* How rows of src are used. */
static inline int FN(dtype_of)(const cynorm_bn_tile *t) { return FN(as_reals)(t) ? CYNORM_COMPUTE : t->view[CYNORM_BN_SRC].dtype; }

/* How a tile is cut into blocks of which sums are taken. */
static cynorm_bn_block FN(sum_blocks)(const cynorm_bn_tile *t) {
    const int dtype = FN(dtype_of)(t);
    int64_t most = t->count[0];
    if (t->kept_inner && dtype == CYNORM_COMPUTE) { /* pieces that differ little, of whole vectors */
        const int64_t vectors = (most + VL - 1) / VL, pieces = (vectors * CYNORM_VBYTES - 1) / CYNORM_BN_PIECE + 1;
        most = (vectors + pieces - 1) / pieces * VL;
    }
    return FN(blocks)(t, most, 0, dtype);
}

/* Adds the next block to the sums; 0 where there is none. */
static int FN(sum_next)(const cynorm_bn_tile *t, cynorm_bn_block *b) {
    const int dtype = FN(dtype_of)(t);
    if (!cynorm_bn_next(t, b)) return 0;
    cynorm_bn_rows in;
    FN(input_rows)(&in, t, t->scratch, &t->view[CYNORM_BN_DIFF_DST], b, 1);
    wide *sums = (wide *)((char *)t->sums + b->of * FN(bn_sums_bytes)(t->kept_inner, t->row));
    sums += (t->kept_inner ? b->i / VL : b->row) * 2;
    if (t->streaming && !t->kept_inner && !in.g) in.x_ahead.by *= 2; /* as many bytes as of two inputs */
    const real *center = FN(coefficient)(t, t->center, b);
    const real *norm = FN(coefficient)(t, t->norm, b);
    FN(sum_loop) *loop = FN(sum_loops)[dtype][t->kept_inner][in.mask ? 2 : in.g ? 1 : 0];
    if (FN(in_pairs)(t, &in, NULL, dtype)) {
        const cynorm_bn_rows pairs = FN(take_pairs)(&in);
        wide of_pairs[4] = {0};
        real twice[2][2 * VL];
        for (int j = 0; j < 2; j++) {
            FN(store)(twice[0] + j * VL, FN(load)(center));
            FN(store)(twice[1] + j * VL, FN(load)(norm));
        }
        loop(of_pairs, &pairs, twice[0], twice[1]);
        for (int j = 0; j < 4; j++) sums[j % 2] = FN(wide_add)(sums[j % 2], of_pairs[j]);
    }
    if (in.count) loop(sums, &in, center, norm);
    return 1;
}

static void FN(sum_tile)(const cynorm_bn_tile *t) {
    cynorm_bn_block b = FN(sum_blocks)(t);
    while (FN(sum_next)(t, &b)) {}
}

/* Whether rows of all that is used follow one another. */
static int FN(follow_on)(const cynorm_bn_tile *t) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    for (int k = 0; k < CYNORM_BN_MASK; k++) {
        const cynorm_bn_view *v = &t->view[k];
        if (v->data && v->stride[2] != t->count[0] * cynorm_itemsize(v->dtype)) return 0;
    }
    return !mask->data || (mask->stride[0] == 1 && mask->stride[2] == t->count[0]);
}

/* Whether results that do not begin with a line can still leave by whole lines, except for parts of few: those of long rows of
 * one statistic each (combine_rows), and of kept rows of whole lines that follow one another, in images that begin alike
 * (combine_between), whose bits of a mask, if any, begin with a byte. */
static int FN(leaves_by_lines)(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    const int64_t size = cynorm_itemsize(v->dtype), row = t->count[0] * size;
    const int makes_mask = mask->data && !t->view[CYNORM_BN_DIFF_DST].data;
    if (!t->kept_inner)
        return cynorm_bn_multiple_of(t, v, size) && row >= (t->training ? CYNORM_BN_SPLIT_TRAINING : CYNORM_BN_SPLIT);
    if (row & 63 || (t->count[1] > 1 && v->stride[1] & 63) || !cynorm_bn_multiple_of(t, v, makes_mask ? 8 * size : size)) return 0;
    return t->count[0] <= CYNORM_BN_BETWEEN && t->count[2] >= 8 && FN(follow_on)(t);
}

/* Whether rows are computed where they end up, a packed view's in its copy: not where they are converted, nor where they bypass
 * the cache and need more done to them, or cannot leave by whole lines. */
static int FN(direct)(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    if (!v->data) return 1;
    if (!FN(is_ready)(t, v)) return 0;
    return !t->streaming || v->packed ||
           (t->activation <= CYNORM_RELU && (cynorm_bn_multiple_of(t, v, 64) || FN(leaves_by_lines)(t, v)));
}

/* The rows of a block, from where they have been computed to where they belong. */
static void FN(put_rows)(const cynorm_bn_tile *t, const cynorm_bn_view *v, const cynorm_bn_block *b,
                         const line *l) {
    char *p = cynorm_bn_at(v, b);
    if (l->out == p) return;
    int64_t size = cynorm_itemsize(v->dtype), step = cynorm_bn_step(t, v);
    int64_t n = b->n, count = b->count;
    const int whole = FN(is_ready)(t, v);
    FN(join_rows)(&n, &count, step, size, l->step, whole ? size : (int64_t)sizeof(real));
    for (int64_t r = 0; r < count; r++) {
        char *row = l->out + r * l->step, *to = p + r * step;
        if (whole) cynorm_stream_copy(to, row, n * size);
        else FN(store_row)(to, (const real *)row, v->dtype, n, size);
    }
}

/* A line whose rows lie in memory, if `direct`, or in scratch. */
static line FN(line_to)(const cynorm_bn_tile *t, scratch_t *s, const cynorm_bn_view *v,
                        const cynorm_bn_block *b, int direct, int dtype) {
    if (!direct) return (line){s->out, b->n * cynorm_itemsize(dtype), .ahead = t->streaming};
    return (line){cynorm_bn_at(v, b), cynorm_bn_step(t, v), .ahead = t->streaming,
                  .streaming = t->streaming && !v->packed, .image = v->stride[1]};
}

/* Whether a line of view v is for combine_between: past the cache; forward also in the cache, where a vector is a line, and else
 * each of what is read and written would lie across two, if an image's rows are worth the calls for its ends. */
static inline int FN(between)(const cynorm_bn_tile *t, const cynorm_bn_view *v, const line *l) {
    if (!t->kept_inner || !((intptr_t)l->out & 63)) return 0;
    if (t->streaming) return l->streaming;
    const int64_t image = t->count[0] * t->count[2] * cynorm_itemsize(v->dtype);
    return image >= CYNORM_BN_MANY && FN(is_line)(v->dtype) && !v->packed && !t->view[CYNORM_BN_DIFF_DST].data &&
           !FN(as_reals)(t) && FN(leaves_by_lines)(t, v);
}

/* Coefficients in the order in which blocks of columns of bfloat16 take them, see half_of; `done`: they
 * are in that order already. */
static void FN(halve)(line *l, scratch_t *s, int64_t n, int done) {
    const int64_t whole = n / (2 * VL) * (2 * VL);
    for (int which = 0; which < 4; which++) {
        const real *from = l->coefficient[which];
        real *to = (real *)s->halves[which];
        if (!from) continue;
        l->coefficient[which] = to;
        if (done) continue;
        for (int64_t i = 0; i < whole; i += 2 * VL) {
            FN(store)(to + i, FN(load_half)(from + i, 0));
            FN(store)(to + i + VL, FN(load_half)(from + i, 1));
        }
        memcpy(to + whole, from + whole, (size_t)(n - whole) * sizeof(real));
    }
}

/* The results of rows, and of pairs of them. */
static void FN(combine)(const cynorm_bn_tile *t, const line *given, const cynorm_bn_rows *rows, int form, int gated, int dtype) {
    FN(combine_loop) *loop = FN(combine_loops)[dtype][form][t->kept_inner][gated];
    if (!FN(in_pairs)(t, rows, given, dtype)) {
        loop(given, rows);
        return;
    }
    cynorm_bn_rows in = *rows;
    const cynorm_bn_rows pairs = FN(take_pairs)(&in);
    line l = *given, two = l;
    real twice[4][2 * VL];
    for (int which = 0; which < 4; which++) {
        if (!l.coefficient[which]) continue;
        const vec c = FN(load)(l.coefficient[which]);
        for (int half = 0; half < 2; half++) FN(store)(twice[which] + half * VL, FN(every_other)(c, c, half));
        two.coefficient[which] = twice[which];
    }
    two.step *= 2, two.bit_step *= 2;
    loop(&two, &pairs);
    l.out += pairs.count * two.step, l.bit += pairs.count * two.bit_step;
    if (in.count) loop(&l, &in);
}

/* Kept rows, which follow one another: `count` of them from element `from` on, or the part [from, to) of one. */
static void FN(combine_part)(const cynorm_bn_tile *t, scratch_t *s, const line *whole, const cynorm_bn_rows *rows, int64_t row,
                             int64_t from, int64_t to, int64_t count, int form, int gated, int dtype) {
    const int64_t size = cynorm_itemsize(dtype), n = rows->n, at = row * n + from;
    const int is_part = to - from < n;
    line l = *whole;
    cynorm_bn_rows in = *rows;
    l.out += at * size, l.bit += at, in.x += at * size, in.bit += at;
    if (in.g) in.g += at * size;
    l.streaming = whole->streaming && !is_part;
    in.n = to - from, in.count = count, in.images = 1;
    for (int which = 0; which < 4; which++) {
        const real *c = whole->coefficient[which];
        real *rotated = (real *)s->out + which * CYNORM_BN_BETWEEN;
        if (!c) continue;
        l.coefficient[which] = c + from;
        if (is_part) continue;
        l.coefficient[which] = memcpy(rotated, c + from, (size_t)(n - from) * sizeof(real));
        memcpy(rotated + n - from, c, (size_t)from * sizeof(real));
    }
    if (dtype == CYNORM_BF16) FN(halve)(&l, s, in.n, 0);
    FN(combine)(t, &l, &in, form, gated, dtype);
}

/* Kept rows of whole lines that do not begin with one: rows that do so lie between a part of the first row and one of the last. */
static void FN(combine_between)(const cynorm_bn_tile *t, scratch_t *s, line l, cynorm_bn_rows in, int form, int gated, int dtype) {
    const int64_t head = (-(intptr_t)l.out & 63) / cynorm_itemsize(dtype), last = in.count - 1;
    for (; in.images; FN(next_image)(&l, &in)) {
        FN(combine_part)(t, s, &l, &in, 0, 0, head, 1, form, gated, dtype);
        FN(combine_part)(t, s, &l, &in, 0, head, head + in.n, last, form, gated, dtype);
        FN(combine_part)(t, s, &l, &in, last, head, in.n, 1, form, gated, dtype);
    }
}

/* Results that lie in memory or in scratch, as an activation other than ReLU leaves them; what they were is kept, if asked for. */
static void FN(activate_rows)(const cynorm_bn_tile *t, const line *l, const cynorm_bn_block *b) {
    const cynorm_bn_view *kept = &t->view[CYNORM_BN_VALUE];
    const int64_t size = sizeof(real), step = kept->data ? cynorm_bn_step(t, kept) : l->step;
    char *value = kept->data ? cynorm_bn_at(kept, b) : NULL;
    int64_t n = b->n, count = b->count;
    FN(join_rows)(&n, &count, l->step, size, step, size);
    for (int64_t r = 0; r < count; r++) {
        real *row = (real *)(l->out + r * l->step);
        if (value) memcpy(value + r * step, row, (size_t)(n * size));
        FN(activate)(t, row, n);
    }
}

/* Block by block, and between these, if any, the blocks of `beside`, whose sums are taken: they read memory while results leave. */
static void FN(apply_tile)(const cynorm_bn_tile *t, const cynorm_bn_tile *beside) {
    scratch_t *s = t->scratch;
    const cynorm_bn_view *v = t->view, *dst = &v[CYNORM_BN_DST], *mask = &v[CYNORM_BN_MASK];
    const cynorm_bn_view *diff_add = &v[CYNORM_BN_DIFF_ADD];
    int backward = v[CYNORM_BN_DIFF_DST].data != NULL, form = CYNORM_NORMALIZE;
    if (v[CYNORM_BN_ADD].data) form = CYNORM_NORMALIZE_ADD;
    if (backward) form = t->slope ? CYNORM_GRADIENT : CYNORM_SCALE;
    int gated = backward ? mask->data != NULL : t->activation == CYNORM_RELU;
    const int dtype = FN(dtype_of)(t);
    int64_t most = !t->kept_inner ? t->count[0] : t->streaming ? CYNORM_BN_WIDEST : CYNORM_BN_WIDE;
    const int direct = FN(direct)(t, dst), add_direct = FN(direct)(t, diff_add);
    cynorm_bn_block b = FN(blocks)(t, most, !direct || !add_direct, dtype), summed = {0};
    if (beside) summed = FN(sum_blocks)(beside);
    int64_t halved = -1; /* from which element on coefficients are in the order of halves */
    while (cynorm_bn_next(t, &b)) {
        cynorm_bn_rows in;
        FN(input_rows)(&in, t, s, &v[backward ? CYNORM_BN_DIFF_DST : CYNORM_BN_ADD], &b, 0);
        if (diff_add->data) { /* diff_dst as the mask or the activation leaves it */
            line l = FN(line_to)(t, s, diff_add, &b, add_direct, dtype);
            if (FN(between)(t, diff_add, &l)) FN(combine_between)(t, s, l, in, CYNORM_SCALE, gated, dtype);
            else FN(combine)(t, &l, &in, CYNORM_SCALE, gated, dtype);
            FN(put_rows)(t, diff_add, &b, &l);
        }
        line l = FN(line_to)(t, s, dst, &b, direct, dtype);
        l.coefficient[CYNORM_CENTER] = FN(coefficient)(t, t->center, &b);
        l.coefficient[CYNORM_FACTOR] = FN(coefficient)(t, backward ? t->slope : t->gain, &b);
        l.coefficient[CYNORM_TERM] = FN(coefficient)(t, backward ? t->offset : t->bias, &b);
        l.coefficient[CYNORM_GAIN] = FN(coefficient)(t, t->gain, &b);
        if (!backward && mask->data) {
            l.mask = (unsigned char *)mask->data;
            l.bit = cynorm_bn_bit(t, &b);
            l.bit_step = cynorm_bn_step(t, mask);
            l.bit_image = mask->stride[1];
        }
        if (FN(between)(t, dst, &l)) {
            FN(combine_between)(t, s, l, in, form, gated, dtype);
            continue;
        }
        const int64_t first = b.of * t->row + b.i;
        if (t->kept_inner && dtype == CYNORM_BF16) FN(halve)(&l, s, b.n, first == halved), halved = first;
        FN(combine)(t, &l, &in, form, gated, dtype);
        if (!backward && FN(as_reals)(t)) FN(activate_rows)(t, &l, &b);
        FN(put_rows)(t, dst, &b, &l);
        if (beside && !FN(sum_next)(beside, &summed)) beside = NULL;
    }
    while (beside && FN(sum_next)(beside, &summed)) {}
}

/* ---- slabs of a tile, which are as much as is packed at a time ---- */

/* n elements of each statistic, from the `at`-th on, of a group; or all of some groups. */
typedef struct {
    const cynorm_bn_tile *t;
    cynorm_bn_tile tile; /* in which copies stand for packed views */
    int64_t statistics, group, groups, most, at, n, all; /* of at most `most` groups; of `all` elements */
} slab_t;

/* Bytes (of the mask, bits) from one element of a statistic to the next. */
static inline int64_t FN(slab_step)(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    return t->kept_inner ? v->stride[2] / t->repeat : v->stride[0];
}

/* From a slab to the next. */
static inline int64_t FN(slab_next)(const slab_t *s, const cynorm_bn_view *v) {
    return s->most > 1 ? s->groups * v->stride[2] : s->n * FN(slab_step)(s->t, v);
}

static inline char *FN(slab_at)(const slab_t *s, const cynorm_bn_view *v) {
    return v->data + s->group * v->stride[2] + s->at * FN(slab_step)(s->t, v);
}

/* The elements of a slab from a view to its copy, or back. */
static void FN(move_slab)(const slab_t *s, int k, int pack) {
    const cynorm_bn_tile *t = s->t;
    const cynorm_bn_view *v = &t->view[k], *copy = &s->tile.view[k];
    const int kept = t->kept_inner;
    const int64_t split = s->statistics < t->split ? s->statistics : t->split, step = FN(slab_step)(t, v);
    cynorm_slab slab = {{FN(slab_at)(s, v), copy->data},
                        {{split, {v->stride[!kept], copy->stride[!kept]}},
                         {s->statistics / split, {v->block, copy->block}},
                         {s->n, {step, FN(slab_step)(t, copy)}, s->at, s->all - s->at - s->n}},
                        cynorm_itemsize(v->dtype), FN(slab_next)(s, v)};
    if (s->most > 1) /* of one block */
        slab.axis[1] = (cynorm_axis){s->groups, {v->stride[2], s->n * slab.size}, s->group, t->count[2] - s->group - s->groups};
    if (pack) cynorm_pack(&slab);
    else cynorm_unpack(&slab, t->streaming ? copy->data + CYNORM_BN_SLAB : NULL, CYNORM_BN_SLAB_ROWS);
}

/* Whether a call writes to a view. */
static inline int FN(is_output)(const cynorm_bn_tile *t, int k) {
    return k == CYNORM_BN_DST || k == CYNORM_BN_DIFF_ADD ||
           (k == CYNORM_BN_VALUE && !t->view[CYNORM_BN_DIFF_DST].data);
}

/* The tile of a slab: packed views are of copies, one after another in scratch. */
static cynorm_bn_tile FN(slab_tile)(const slab_t *s) {
    const cynorm_bn_tile *t = s->t;
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    const int kept = t->kept_inner;
    char *copy = (char *)t->scratch + CYNORM_BN_SCRATCH;
    cynorm_bn_tile tile = *t;
    const int64_t row = s->n * s->groups;
    tile.count[kept ? 2 : 0] = kept ? s->n / t->repeat : row;
    if (!kept) tile.count[2] = 1;
    tile.bit += s->group * mask->stride[2] + s->at * FN(slab_step)(t, mask);
    tile.next[0] = FN(slab_next)(s, &t->view[CYNORM_BN_SRC]);
    tile.next[1] = FN(slab_next)(s, &t->view[CYNORM_BN_DIFF_DST]);
    for (int k = 0; k < CYNORM_BN_MASK; k++) {
        cynorm_bn_view *v = &tile.view[k];
        const int64_t size = cynorm_itemsize(v->dtype);
        if (!v->data) continue;
        v->data = v->packed ? copy : FN(slab_at)(s, v);
        if (!v->packed) continue;
        copy += CYNORM_BN_PACKED;
        v->stride[0] = size;
        /* whole lines of memory, and rows not all in the same set of the cache */
        v->stride[1] = (row * size + 63) / 64 * 64 + 64;
        v->stride[2] = t->count[0] * size;
        v->block = t->split * (!kept ? v->stride[1] : t->blocks > 1 ? row * size : size);
    }
    return tile;
}

/* Whether a call's results do not wait for its sums: those of backward inference. */
static inline int FN(at_once)(const cynorm_bn_tile *t) { return t->view[CYNORM_BN_DIFF_DST].data && !t->slope; }

/* Whether rows of one block go on from group to group in all that is not packed, so that a slab may be of several groups. */
static int FN(joins_groups)(const slab_t *s) {
    const cynorm_bn_tile *t = s->t;
    if (t->kept_inner || t->split < s->statistics) return 0;
    for (int k = 0; k < CYNORM_BN_VIEWS; k++) {
        const cynorm_bn_view *v = &t->view[k];
        if (v->data && !v->packed && v->stride[2] != t->count[0] * v->stride[0]) return 0;
    }
    return 1;
}

/* Runs a tile by slabs, between packing what is read of packed views and unpacking what is written to them. */
static void FN(by_slabs)(const cynorm_bn_tile *t, int sums, int apply) {
    const int kept = t->kept_inner;
    slab_t s = {.t = t, .statistics = kept ? t->count[0] / t->repeat * t->blocks : t->count[1],
                .all = kept ? t->count[2] * t->repeat : t->count[0]};
    int64_t widest = 1;
    for (int k = 0; k < CYNORM_BN_MASK; k++)
        if (t->view[k].packed && cynorm_itemsize(t->view[k].dtype) > widest)
            widest = cynorm_itemsize(t->view[k].dtype);
    /* whole lines of each row, but for the one that lies between rows (slab_tile) */
    int64_t piece = (CYNORM_BN_SLAB / 64 / s.statistics - 1) * 64 / widest;
    piece = piece >= 64 ? piece / 64 * 64 : piece >= 16 ? piece / 16 * 16 : 16;
    if (kept) piece = piece > t->repeat ? piece / t->repeat * t->repeat : t->repeat;
    const int64_t groups = kept ? 1 : t->count[2];
    s.most = FN(joins_groups)(&s) && piece > s.all ? piece / s.all : 1;
    for (s.group = 0; s.group < groups; s.group += s.groups) {
        s.groups = groups - s.group < s.most ? groups - s.group : s.most;
        for (s.at = 0; s.at < s.all; s.at += s.n) {
            s.n = s.all - s.at < piece ? s.all - s.at : piece;
            s.tile = FN(slab_tile)(&s);
            for (int k = 0; k < CYNORM_BN_MASK; k++)
                if (t->view[k].packed && !FN(is_output)(t, k) && (apply || k != CYNORM_BN_ADD))
                    FN(move_slab)(&s, k, 1);
            if (sums) FN(sum_tile)(&s.tile);
            if (apply) FN(apply_tile)(&s.tile, NULL);
            for (int k = 0; k < CYNORM_BN_MASK && apply; k++)
                if (t->view[k].packed && FN(is_output)(t, k)) FN(move_slab)(&s, k, 0);
        }
    }
}

static void FN(bn_sums)(const cynorm_bn_tile *t) {
    if (t->packs) FN(by_slabs)(t, 1, FN(at_once)(t));
    else FN(sum_tile)(t);
}

static void FN(bn_apply)(const cynorm_bn_tile *t, const cynorm_bn_tile *beside) {
    if (!t->packs) FN(apply_tile)(t, beside);
    else if (!FN(at_once)(t)) FN(by_slabs)(t, 0, 1);
}
