/* LRN with windows of 3 or 5 slabs along the stream. A template, see types.h; formulas and tiles are lrn.h's.
 *
 * CYNORM_BLOCK slabs are worked on at a time, a vector of each, in registers; what the next block needs of this one waits in
 * scratch, in the order of its use. For how rows of dst leave that do not begin at a line of memory, see lrn_stage.h. */

enum { CYNORM_BLOCK = 4 }; /* slabs */
enum { CYNORM_BLOCKS_LATE = CYNORM_VBYTES == 64 }; /* whether there are registers for stages that are late */
/* What loops take for granted, to have fewer instructions: nothing; or that the block belongs to dst, whose rows are stored as
 * they are, or lie across lines. */
enum { CYNORM_BLOCKS_ANY, CYNORM_BLOCKS_PLAIN, CYNORM_BLOCKS_SEAMED };

typedef struct {
    const char *src[CYNORM_BLOCK + 2 * CYNORM_REACH], *diff_dst[CYNORM_BLOCK];
    char *dst[CYNORM_BLOCK];
    ivec exists[CYNORM_BLOCK]; /* whether the slab of the term exists, */
    int edge;                  /* and whether one is missing */
    real *kept;                /* forward: squares of `reach` slabs; backward: terms of twice as many, weighted of as many */
    int64_t length, src_ahead, diff_ahead; /* elements of a slab; bytes to what is prefetched */
    coefficients q;
    int streaming;           /* whether dst goes past the cache as it is made */
    int finish;              /* whether any slab of the block belongs to dst, or only what is kept of it counts */
    int seamed;              /* whether dst lies across lines, */
    seam_t *seam;            /* these; else: */
    const cynorm_late *late; /* dst of the block before */
} block_t;

/* dst on its way to memory: of each slab the even vector of a pair, and what lies across lines. */
typedef struct { vec even[CYNORM_BLOCK]; seam_t seam[CYNORM_BLOCK]; } leaving_t;

CYNORM_INLINE void FN(open_leaving)(const block_t *b, leaving_t *l, int way) {
#pragma GCC unroll 8
    for (int j = 0; way == CYNORM_BLOCKS_SEAMED && j < CYNORM_BLOCK; j++) l->seam[j] = b->seam[j];
}

CYNORM_INLINE void FN(close_leaving)(const block_t *b, const leaving_t *l, int dtype, int way) {
#pragma GCC unroll 8
    for (int j = 0; way == CYNORM_BLOCKS_SEAMED && j < CYNORM_BLOCK; j++)
        FN(close_seam)(&l->seam[j], b->length * cynorm_itemsize(dtype));
}

CYNORM_INLINE void FN(leave)(const block_t *b, leaving_t *l, int j, int64_t at, vec v, int dtype, int64_t n, int part,
                             int way) {
    if (way == CYNORM_BLOCKS_SEAMED) FN(put_seamed)(&l->seam[j], at, v, n);
    else FN(put_part)(b->dst[j] + at, v, dtype, n, way == CYNORM_BLOCKS_ANY && b->streaming, part, &l->even[j]);
}

/* Steps from `step` on, until a power is to be mended (CYNORM_UNMENDED); returns how many steps lie before that one. */
typedef int64_t FN(cynorm_steps)(const block_t *, int64_t step);

/* dst of slabs c to c+3, and squares kept for the next block, which wait until it is known whether a power is to be mended */
typedef struct { vec out[CYNORM_BLOCK], kept[CYNORM_REACH]; } waiting_t;

/* dst of slabs c to c+3, from src of slabs c to c+3+reach and the squares kept of those before; with `w`, dst waits there.
 * `together`: for how many slabs powers are taken at once. */
CYNORM_INLINE void FN(block_forward)(const block_t *b, int64_t i, int64_t n, int dtype, int reach, int kind, int together, int part,
                                     leaving_t *l, int way, waiting_t *w, vec *told) {
    const int64_t at = i * cynorm_itemsize(dtype);
    real *kept = b->kept + (i + (part == CYNORM_ODD) * VL) * reach;
    vec x[CYNORM_BLOCK + CYNORM_REACH], s[CYNORM_BLOCK + 2 * CYNORM_REACH];
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++) s[j] = FN(load)(kept + j * VL);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK + reach; j++) {
        x[j] = FN(get_part)(b->src[j] + at, dtype, n, part);
        s[reach + j] = x[j] * x[j];
    }
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++)
        if (w) w->kept[j] = s[CYNORM_BLOCK + j];
        else FN(store)(kept + j * VL, s[CYNORM_BLOCK + j]);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j += together) {
        vec omega[CYNORM_BLOCK], out[CYNORM_BLOCK];
#pragma GCC unroll 8
        for (int k = 0; k < together; k++) {
            if (part != CYNORM_ODD) __builtin_prefetch(b->src[reach + j + k] + at + b->src_ahead, 0, 2);
            omega[k] = FN(omega_of)(&b->q, FN(sum_cells)(s + j + k, reach), n);
        }
        if (way == CYNORM_BLOCKS_ANY && !b->finish) continue;
        FN(times_powers)(out, x + j, omega, together, kind, b->q.beta, dtype, NULL, told);
#pragma GCC unroll 8
        for (int k = 0; k < together; k++)
            if (w) w->out[j + k] = out[k];
            else FN(leave)(b, l, j + k, at, out[k], dtype, n, part, way);
    }
}

CYNORM_INLINE void FN(wait_is_over)(const block_t *b, const waiting_t *w, int64_t i, int dtype, int reach, int part, leaving_t *l,
                                    int way) {
    real *kept = b->kept + (i + (part == CYNORM_ODD) * VL) * reach;
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++) FN(store)(kept + j * VL, w->kept[j]);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j++)
        if (way != CYNORM_BLOCKS_ANY || b->finish)
            FN(leave)(b, l, j, i * cynorm_itemsize(dtype), w->out[j], dtype, VL, part, way);
}

/* A step is a vector of each slab or, by halves, the even and the odd elements of two. */
CYNORM_INLINE int64_t FN(steps_forward)(const block_t *b, int64_t step, int dtype, int reach, int kind, int together, int way) {
    const int halves = dtype == CYNORM_BF16, one = halves ? CYNORM_EVEN : CYNORM_ALL;
    const int64_t length = VL * (1 + halves), steps = b->length / length;
    leaving_t l;
    for (; step < steps; step++) {
        const int64_t i = step * length;
        waiting_t w, odd;
        vec told = {0};
        cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * cynorm_itemsize(dtype));
        FN(block_forward)(b, i, VL, dtype, reach, kind, together, one, &l, way, &w, &told);
        if (halves) FN(block_forward)(b, i, VL, dtype, reach, kind, together, CYNORM_ODD, &l, way, &odd, &told);
        if (__builtin_expect(FN(told_to_mend)(told, kind, b->q.beta), 0)) break;
        FN(wait_is_over)(b, &w, i, dtype, reach, one, &l, way);
        if (halves) FN(wait_is_over)(b, &odd, i, dtype, reach, CYNORM_ODD, &l, way);
    }
    return step;
}

CYNORM_INLINE void FN(blocks_forward)(const block_t *given, const block_t *b, int dtype, int reach, int kind, int together,
                                      int way, FN(cynorm_steps) *unmended) {
    const int halves = dtype == CYNORM_BF16, one = halves ? CYNORM_EVEN : CYNORM_ALL;
    const int64_t size = cynorm_itemsize(dtype), length = VL * (1 + halves), steps = b->length / length;
    leaving_t l = {0};
    int64_t i = 0;
    FN(open_leaving)(b, &l, way);
    for (int64_t step = 0; step < steps; step++, i += length) {
        if (unmended) {
            step = unmended(given, step), i = step * length;
            if (step == steps) break;
        }
        if (way != CYNORM_BLOCKS_SEAMED) cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * size);
        FN(block_forward)(b, i, VL, dtype, reach, kind, together, one, &l, way, NULL, NULL);
        if (halves) FN(block_forward)(b, i, VL, dtype, reach, kind, together, CYNORM_ODD, &l, way, NULL, NULL);
    }
    if (halves && i + VL <= b->length) {
        if (way != CYNORM_BLOCKS_SEAMED) cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * size);
        FN(block_forward)(b, i, VL, dtype, reach, kind, together, CYNORM_ALL, &l, way, NULL, NULL);
        i += VL;
    }
    if (i < b->length) FN(block_forward)(b, i, b->length - i, dtype, reach, kind, 1, CYNORM_ALL, &l, way, NULL, NULL);
    FN(close_leaving)(b, &l, dtype, way);
}

/* Backward: diff_src of slabs c to c+3, from src of slabs c to c+3+2*reach, diff_dst of slabs c+reach to c+3+reach, in
 * three stages, which hand this on. */
typedef struct { vec omega[CYNORM_BLOCK], terms[CYNORM_BLOCK], weighted[CYNORM_BLOCK]; } passing_t;

/* A vector of src of each slab but the last ones, for the stages after the first, or NULL: lines of slabs that lie a power of two
 * apart do not stay in the first-level cache until these stages read them again. */
typedef struct { vec x[CYNORM_BLOCK + CYNORM_REACH]; } again_t;

/* `asks`: whether to ask for what is ahead. */
CYNORM_INLINE void FN(block_omegas)(const block_t *b, passing_t *p, again_t *again, int64_t i, int64_t n, int dtype,
                                    int reach, int part, int asks) {
    const int64_t at = i * cynorm_itemsize(dtype);
    vec s[CYNORM_BLOCK + 2 * CYNORM_REACH];
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK + 2 * reach; j++) {
        const vec x = FN(get_part)(b->src[j] + at, dtype, n, part);
        if (again && j < CYNORM_BLOCK + reach) again->x[j] = x;
        s[j] = x * x;
    }
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j++) {
        if (asks) __builtin_prefetch(b->src[2 * reach + j] + at + b->src_ahead, 0, 2);
        p->omega[j] = FN(omega_of)(&b->q, FN(sum_cells)(s + j, reach), n);
    }
}

CYNORM_INLINE void FN(block_terms)(const block_t *b, passing_t *p, const again_t *again, int64_t i, int64_t n, int dtype,
                                   int reach, int kind, int together, int part, int asks, vec *told) {
    const int64_t at = i * cynorm_itemsize(dtype);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j += together) {
        vec g[CYNORM_BLOCK], x[CYNORM_BLOCK];
#pragma GCC unroll 8
        for (int k = 0; k < together; k++) {
            if (asks) __builtin_prefetch(b->diff_dst[j + k] + at + b->diff_ahead, 0, 2);
            g[k] = FN(get_part)(b->diff_dst[j + k] + at, dtype, n, part);
            x[k] = again ? again->x[reach + j + k] : FN(get_part)(b->src[reach + j + k] + at, dtype, n, part);
        }
        FN(terms_of)(&b->q, p->terms + j, p->omega + j, g, x, NULL, together, kind, p->weighted + j, told);
    }
    if (__builtin_expect(b->edge, 0))
#pragma GCC unroll 8
        for (int j = 0; j < CYNORM_BLOCK; j++) p->terms[j] = (vec)((ivec)p->terms[j] & b->exists[j]);
}

CYNORM_INLINE void FN(block_finish)(const block_t *b, const passing_t *p, const again_t *again, int64_t i, int64_t n,
                                    int dtype, int reach, int part, leaving_t *l, int way) {
    const int64_t at = i * cynorm_itemsize(dtype);
    real *kept = b->kept + (i + (part == CYNORM_ODD) * VL) * 3 * reach;
    vec terms[CYNORM_BLOCK + 2 * CYNORM_REACH], weighted[CYNORM_BLOCK + CYNORM_REACH];
#pragma GCC unroll 8
    for (int j = 0; j < 2 * reach; j++) terms[j] = FN(load)(kept + j * VL);
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++) weighted[j] = FN(load)(kept + (2 * reach + j) * VL);
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j++) terms[2 * reach + j] = p->terms[j], weighted[reach + j] = p->weighted[j];
#pragma GCC unroll 8
    for (int j = 0; j < 2 * reach; j++) FN(store)(kept + j * VL, terms[CYNORM_BLOCK + j]);
#pragma GCC unroll 8
    for (int j = 0; j < reach; j++) FN(store)(kept + (2 * reach + j) * VL, weighted[CYNORM_BLOCK + j]);
    if (way == CYNORM_BLOCKS_ANY && !b->finish) return;
#pragma GCC unroll 8
    for (int j = 0; j < CYNORM_BLOCK; j++) {
        const vec x = again ? again->x[j] : FN(get_part)(b->src[j] + at, dtype, n, part);
        const vec out = FN(diff_src_of)(&b->q, x, FN(sum_cells)(terms + j, reach), weighted[j]);
        FN(leave)(b, l, j, at, out, dtype, n, part, way);
    }
}

CYNORM_INLINE void FN(block_backward)(const block_t *b, leaving_t *l, int64_t i, int64_t n, int dtype, int reach, int kind,
                                      int together, int way) {
    passing_t p;
    FN(block_omegas)(b, &p, NULL, i, n, dtype, reach, CYNORM_ALL, 1);
    FN(block_terms)(b, &p, NULL, i, n, dtype, reach, kind, together, CYNORM_ALL, 1, NULL);
    FN(block_finish)(b, &p, NULL, i, n, dtype, reach, CYNORM_ALL, l, way);
}

/* Where memory is the limit, each stage of a vector runs a step after the one before: data that come late hold up nothing else. */
CYNORM_INLINE int64_t FN(blocks_backward_late)(const block_t *b, leaving_t *l, int dtype, int reach, int kind, int together,
                                               int way) {
    const int64_t steps = b->length / VL;
    passing_t p = {{{0}}};
    again_t again[4];
    for (int64_t t = 0; t < steps + 2; t++) {
        if (way != CYNORM_BLOCKS_SEAMED) cynorm_send_late(b->late, 0, CYNORM_BLOCK, t * VL * cynorm_itemsize(dtype));
        if (t >= 2) FN(block_finish)(b, &p, &again[(t - 2) & 3], (t - 2) * VL, VL, dtype, reach, CYNORM_ALL, l, way);
        if (t >= 1 && t <= steps)
            FN(block_terms)(b, &p, &again[(t - 1) & 3], (t - 1) * VL, VL, dtype, reach, kind, together, CYNORM_ALL, 1, NULL);
        if (t < steps) FN(block_omegas)(b, &p, &again[t & 3], t * VL, VL, dtype, reach, CYNORM_ALL, 1);
    }
    return steps * VL;
}

/* Where arithmetic is the limit, the stages of two vectors of each slab side by side: addresses are taken and lines asked for once.
 * Without `mends`, writes nothing and returns 0 where a power is to be mended. */
CYNORM_INLINE int FN(block_pair)(const block_t *b, leaving_t *l, int64_t i, int dtype, int reach, int kind, int together, int way,
                                 int mends) {
    const int halves = dtype == CYNORM_BF16, one = halves ? CYNORM_EVEN : CYNORM_ALL, other = halves ? CYNORM_ODD : CYNORM_ALL;
    const int64_t size = cynorm_itemsize(dtype), next = halves ? i : i + VL;
    passing_t p, q;
    vec told = {0};
    if (way != CYNORM_BLOCKS_SEAMED) cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * size);
    if (way != CYNORM_BLOCKS_SEAMED && !halves) cynorm_send_late(b->late, 0, CYNORM_BLOCK, (i + VL) * size);
    FN(block_omegas)(b, &p, NULL, i, VL, dtype, reach, one, 1);
    FN(block_omegas)(b, &q, NULL, next, VL, dtype, reach, other, 0);
    FN(block_terms)(b, &p, NULL, i, VL, dtype, reach, kind, together, one, 1, mends ? NULL : &told);
    FN(block_terms)(b, &q, NULL, next, VL, dtype, reach, kind, together, other, 0, mends ? NULL : &told);
    if (!mends && __builtin_expect(FN(told_to_mend)(told, kind, b->q.beta), 0)) return 0;
    FN(block_finish)(b, &p, NULL, i, VL, dtype, reach, one, l, way);
    FN(block_finish)(b, &q, NULL, next, VL, dtype, reach, other, l, way);
    return 1;
}

CYNORM_INLINE int64_t FN(steps_backward)(const block_t *b, int64_t pair, int dtype, int reach, int kind, int together, int way) {
    const int64_t pairs = b->length / (2 * VL);
    leaving_t l;
    while (pair < pairs && FN(block_pair)(b, &l, pair * (2 * VL), dtype, reach, kind, together, way, 0)) pair++;
    return pair;
}

CYNORM_INLINE int64_t FN(blocks_backward_abreast)(const block_t *given, const block_t *b, leaving_t *l, int dtype, int reach,
                                                  int kind, int together, int way, FN(cynorm_steps) *unmended) {
    const int64_t pairs = b->length / (2 * VL);
    for (int64_t pair = 0; pair < pairs; pair++) {
        if (unmended && (pair = unmended(given, pair)) == pairs) break;
        FN(block_pair)(b, l, pair * (2 * VL), dtype, reach, kind, together, way, 1);
    }
    return pairs * (2 * VL);
}

CYNORM_INLINE void FN(blocks_backward)(const block_t *given, const block_t *b, int dtype, int reach, int kind, int together,
                                       int way, FN(cynorm_steps) *unmended) {
    const int64_t size = cynorm_itemsize(dtype);
    leaving_t l = {0};
    int64_t i;
    FN(open_leaving)(b, &l, way);
    if (CYNORM_BLOCKS_LATE && dtype == CYNORM_COMPUTE)
        i = FN(blocks_backward_late)(b, &l, dtype, reach, kind, together, way);
    else i = FN(blocks_backward_abreast)(given, b, &l, dtype, reach, kind, together, way, unmended);
    if (i + VL <= b->length) {
        if (way != CYNORM_BLOCKS_SEAMED) cynorm_send_late(b->late, 0, CYNORM_BLOCK, i * size);
        FN(block_backward)(b, &l, i, VL, dtype, reach, kind, together, way);
        i += VL;
    }
    if (i < b->length) FN(block_backward)(b, &l, i, b->length - i, dtype, reach, kind, 1, way);
    FN(close_leaving)(b, &l, dtype, way);
}

/* ---- compiled loops ---- */

/* What is given is copied, since the stores of dst might alias it; to registers, so that no copy is passed on. */
#define CYNORM_BLOCK_STEPS(T, direction, reach, name, kind, together, way)                                     \
    static __attribute__((noinline)) int64_t FN(steps_##T##_##direction##reach##name##_##way)(                 \
        const block_t *given, int64_t step) {                                                                  \
        const block_t b = *given;                                                                              \
        return FN(steps_##direction)(&b, step, CYNORM_##T, reach, kind, together, CYNORM_BLOCKS_##way);        \
    }
/* For any exponent, only float's forward: in others, more vectors wait than there are registers, or nothing is gained. */
#define CYNORM_BLOCK_STOPS(T, direction, name)                                                                 \
    (#name[0] == 'u' || (#name[0] == 'a' && #direction[0] == 'f' && CYNORM_##T == CYNORM_COMPUTE))
#define CYNORM_BLOCK_LOOP(T, direction, reach, name, kind, together)                                           \
    CYNORM_BLOCK_STEPS(T, direction, reach, name, kind, together, ANY)                                         \
    CYNORM_BLOCK_STEPS(T, direction, reach, name, kind, together, PLAIN)                                       \
    static __attribute__((noinline)) void FN(block_##T##_##direction##reach##name)(const block_t *given) {     \
        const block_t b = *given;                                                                              \
        const int beta = kind;                                                                                 \
        if (FN(is_line)(CYNORM_##T) && b.seamed)                                                               \
            FN(blocks_##direction)(given, &b, CYNORM_##T, reach, beta, together, CYNORM_BLOCKS_SEAMED, NULL);  \
        else if (b.finish && !b.streaming)                                                                     \
            FN(blocks_##direction)(given, &b, CYNORM_##T, reach, beta, together, CYNORM_BLOCKS_PLAIN,          \
                                   CYNORM_UNMENDED(CYNORM_BLOCK_STOPS(T, direction, name),                     \
                                                   FN(steps_##T##_##direction##reach##name##_PLAIN)));         \
        else                                                                                                   \
            FN(blocks_##direction)(given, &b, CYNORM_##T, reach, beta, together, CYNORM_BLOCKS_ANY,            \
                                   CYNORM_UNMENDED(CYNORM_BLOCK_STOPS(T, direction, name),                     \
                                                   FN(steps_##T##_##direction##reach##name##_ANY)));           \
    }
CYNORM_TYPES(CYNORM_REACHES, CYNORM_BLOCK_LOOP)
static void (*const FN(block_loops)[][2][2][3])(const block_t *) = {CYNORM_TYPES(CYNORM_REACHES_OF, block)};
#undef CYNORM_BLOCK_LOOP
#undef CYNORM_BLOCK_STOPS
#undef CYNORM_BLOCK_STEPS

/* ---- tiles ---- */

/* Bytes of what is kept between blocks. */
static int64_t FN(kept_bytes)(const cynorm_lrn_tile *t, int backward) {
    const int64_t slabs = (backward ? 3 : 1) * t->left;
    return FN(whole_lines)((t->count[0] + CYNORM_OVERLAP + VL) * slabs * (int64_t)sizeof(real));
}

static size_t FN(blocks_scratch)(const cynorm_lrn_tile *t, int backward) {
    return (size_t)(FN(kept_bytes)(t, backward) + (1 + CYNORM_BLOCK) * FN(row_bytes)(t) +
                    2 * FN(stage_bytes)(t, CYNORM_BLOCK));
}

/* The operands, except dst, of the block at slab c; missing slabs are zeros. */
static void FN(set_block)(block_t *b, const cynorm_lrn_tile *t, const char *src, const char *diff_dst, int64_t c,
                          const char *zeros) {
    const int reach = (int)t->left, slabs = CYNORM_BLOCK + (diff_dst ? 2 : 1) * reach;
    b->edge = 0;
    for (int j = 0; j < slabs; j++)
        b->src[j] = c + j >= 0 && c + j < t->extent ? src + (c + j) * t->src.streamed : zeros;
    for (int j = 0; diff_dst && j < CYNORM_BLOCK; j++) {
        const int64_t v = c + reach + j;
        const int exists = v >= 0 && v < t->extent;
        b->edge |= !exists;
        b->exists[j] = (ivec){0} - exists;
        b->diff_dst[j] = exists ? diff_dst + v * t->diff_dst.streamed : zeros;
    }
}

static void FN(run_blocks)(const cynorm_lrn_tile *t, int backward, int64_t src_at, int64_t diff_at, int64_t dst_at) {
    const int dtype = t->src.dtype;
    const int64_t size = cynorm_itemsize(dtype), pitch = FN(row_bytes)(t);
    const int64_t earlier = backward || t->begin > 0; /* what is kept for the first block comes from the one before it */
    char *zeros = (char *)t->scratch + FN(kept_bytes)(t, backward), *unused = zeros + pitch; /* rows that are no one's */
    out_t out;
    FN(open_stage)(&out, t, t->dst.data + dst_at, CYNORM_BLOCK, 1, unused + CYNORM_BLOCK * pitch);
    seam_t seam[CYNORM_BLOCK];
    block_t b; /* = {0} would be mostly zeros that are never read */
    b.kept = t->scratch, b.length = out.row / size, b.q = FN(coefficients_of)(t), b.streaming = out.streaming;
    b.src_ahead = CYNORM_BLOCK * t->src.streamed, b.diff_ahead = CYNORM_BLOCK * t->diff_dst.streamed;
    b.seam = seam, b.late = &out.late;
    void (*run)(const block_t *) = FN(block_loops)[dtype][backward][t->left - 1][FN(loop_of_beta)(t, 1)];
    const char *src = t->src.data + src_at - out.overlap;
    const char *diff_dst = backward ? t->diff_dst.data + diff_at - out.overlap : NULL;
    memset(t->scratch, 0, (size_t)(unused - (char *)t->scratch));
    for (int64_t c = t->begin - CYNORM_BLOCK * earlier; c < t->end; c += CYNORM_BLOCK) {
        FN(set_block)(&b, t, src, diff_dst, c, zeros);
        b.finish = c >= t->begin;
        for (int j = 0; j < CYNORM_BLOCK; j++)
            b.dst[j] = b.finish && c + j < t->end ? FN(row_of_dst)(&out, c + j) : unused + j * pitch;
        b.seamed = b.finish && out.seamed;
        for (int j = 0; b.seamed && j < CYNORM_BLOCK; j++) FN(open_seam)(&seam[j], &out, b.dst[j]);
        run(&b);
        if (b.finish) FN(leave_stage)(&out, c + CYNORM_BLOCK < t->end ? c + CYNORM_BLOCK : t->end);
    }
}

static void FN(lrn_blocks)(const cynorm_lrn_tile *t, int backward) { FN(each_run)(t, backward, FN(run_blocks)); }
