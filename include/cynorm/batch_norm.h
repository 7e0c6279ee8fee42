/* Batch normalization: sums over a tile, what follows from them, and its result.
 *
 *     forward    value = (src - mean) * gain + bias (+ add),  gain = scale * rstd,  bias = shift
 *                dst = activation(value)
 *     backward   d = diff_dst * activation'(value) = diff_add
 *                diff_shift = sum(d),  diff_scale = sum(d * (src - mean)) * rstd
 *     training   diff_src = gain * (d - diff_shift / M - (src - mean) * rstd * diff_scale / M)
 *                         = gain * (d + offset + (src - mean) * slope)
 *     inference  diff_src = gain * d
 *
 * Statistics are sums over x - pivot and its square, the pivot being one element p of those summed. Then
 * (p - mean)^2 <= M * variance, so that the shift costs no more than log2 M bits, and a constant has variance
 * 0. Of many elements it is the median of three: sums of so many like terms lose digits as well, and with a
 * p far from all others, both losses would cost too many. The pivot of bfloat16 is 0: a square has 16 bits, so that sums
 * over numbers of one sign within a factor of 2 are exact up to M = 2^35, and where any two are further apart,
 * mean^2 <= 8 M * variance.
 *
 * Sums are held in twice the precision: double for float, pairs of double for double. So are all their terms, except for
 * gradients of half types, whose results have fewer bits: these take CYNORM_BN_RUN terms in reals at a time, d and
 * d * ((src - center) * norm), and norm is divided out afterwards, so that no product overflows that the result has room for.
 * norm is rstd, or the least normal number, whose reciprocal is finite.
 *
 * The mean is kept as two reals: center is the high one, and src - center, which is exact where it matters, comes first;
 * the low one is part of bias and offset, and taken from diff_scale by way of diff_shift.
 *
 * A tile is worked on in blocks of rows (bn_tile.h). A row's elements have one statistic each (kept_inner), or share that
 * of their row; coefficients lie accordingly. The lanes of the sums follow the elements of a row, or else are VL partial
 * sums per row of a group (bn_loops.h). bn_statistics.h makes statistics and coefficients of them.
 *
 * Here is what is the same for all types: sizes, where rows lie and what is read ahead of them, bits of the mask. */

enum {
    CYNORM_BN_ROW = 512,         /* elements of a row that are converted at a time */
    CYNORM_BN_STAGE = 16 << 10,  /* bytes of a block that is converted or staged, in the first-level cache; */
    CYNORM_BN_SHORT_STAGE = 4096, /* of short kept rows that are staged: while a block leaves, all else waits */
    CYNORM_BN_SHORT = 2048,      /* the most bytes of such a row */
    CYNORM_BN_SPLIT = 2048,      /* bytes: from this many on, rows that do not begin with a line are not staged, */
    CYNORM_BN_SPLIT_TRAINING = 6144, /* or, where sums have brought them into the cache */
    CYNORM_BN_MANY = 1 << 16,    /* bytes of an image's kept rows in the cache, from which on these begin with a line */
    CYNORM_BN_COLUMNS = 4,       /* vectors of columns that are combined together, */
    CYNORM_BN_SUM_COLUMNS = CYNORM_VBYTES == 64 ? 4 : 2, /* and summed together: sums stay in registers; */
    CYNORM_BN_RUN = 16,          /* terms of a half type's gradient that are added before they are widened */
    CYNORM_BN_PAIRED = 128,      /* the fewest rows that are taken by twos */
    CYNORM_BN_AHEAD = 4096,      /* bytes that are prefetched ahead of rows of one statistic each; */
    CYNORM_BN_PIECE = 4096,      /* the most bytes of a kept row's piece: sums stay in the first-level cache; four rows */
    CYNORM_BN_PIECES = 8192,     /* add to them together, of at most this many bytes while the next are prefetched */
    CYNORM_BN_TOGETHER = 65536,  /* half types are summed by columns, in groups of about this many bytes */
    CYNORM_BN_LEAST = 16,        /* and at least this many rows, while the next group is prefetched */
    CYNORM_BN_WIDEST = 4096,     /* elements of a kept row that are combined at a time: in the order of memory, */
    CYNORM_BN_WIDE = 1024,       /* or, in the cache, so few that its first level keeps their coefficients */
    CYNORM_BN_IN_ORDER = -1      /* see half_of */
};

/* The forms that a result can have, see combine_vector. */
enum { CYNORM_NORMALIZE, CYNORM_NORMALIZE_ADD, CYNORM_GRADIENT, CYNORM_SCALE };

enum { CYNORM_CENTER, CYNORM_FACTOR, CYNORM_TERM, CYNORM_GAIN };

/* Where to prefetch while reading at p: `by` ahead, and `jump` further past `end`, or, of kept rows, from one of them on;
 * `elsewhere`: in the tile beside this one. */
typedef struct {
    int64_t by, jump;
    const char *end;
    int elsewhere;
} cynorm_bn_ahead;

static inline const char *cynorm_bn_later(const char *p, const cynorm_bn_ahead *a) {
    p += a->by;
    return p >= a->end ? p + a->jump : p;
}

/* For results: into the first-level cache; what is elsewhere, which is read a block later, into the second. */
CYNORM_INLINE void cynorm_bn_fetch(const char *p, const cynorm_bn_ahead *a) {
    if (a->elsewhere) __builtin_prefetch(p + a->by, 0, 2);
    else __builtin_prefetch(cynorm_bn_later(p, a));
}

/* `count` rows of n elements of one storage type, each contiguous, `step` apart in bytes (the mask's in
 * bits), and so `images` times, `image` apart; NULL where absent. */
typedef struct {
    const char *x, *g;
    const unsigned char *mask;
    int64_t x_step, g_step, bit, bit_step, n, count;
    int64_t x_image, g_image, bit_image, images, last_images;
    cynorm_bn_ahead x_ahead, g_ahead;
    int64_t turn, last_jump[2]; /* from which kept row on they jump, and how much further in the last images */
    int64_t together; /* how many kept rows are summed together */
} cynorm_bn_rows;

static inline void cynorm_bn_next_image(cynorm_bn_rows *in) {
    if (--in->images == in->last_images) {
        in->x_ahead.jump += in->last_jump[0];
        in->g_ahead.jump += in->last_jump[1];
    }
    in->x += in->x_image;
    in->g += in->g_image;
    in->bit += in->bit_image;
}

/* ---- bits of the mask ---- */

/* 16 bits from a position; memory of the mask ends 4 bytes later than its bits. */
static inline unsigned cynorm_bits_at(const unsigned char *mask, int64_t bit) {
    uint32_t word;
    memcpy(&word, mask + (bit >> 3), sizeof word);
    return word >> (bit & 7) & 0xffff;
}

/* 32 bits, all of elements: no more than 4 bytes past the mask's are read. */
static inline unsigned cynorm_twice_bits_at(const unsigned char *mask, int64_t bit) {
    uint64_t word;
    memcpy(&word, mask + (bit >> 3), sizeof word);
    return (unsigned)(word >> (bit & 7));
}

/* Bits 0, 2, 4, ... together. */
static inline unsigned cynorm_every_other_bit(unsigned bits) {
#ifdef __BMI2__
    return _pext_u32(bits, 0x55555555);
#else
    bits &= 0x55555555;
    bits = (bits | bits >> 1) & 0x33333333;
    bits = (bits | bits >> 2) & 0x0f0f0f0f;
    bits = (bits | bits >> 4) & 0x00ff00ff;
    return (bits | bits >> 8) & 0xffff;
#endif
}

/* 16 bits apart: the inverse. */
static inline unsigned cynorm_spread_bits(unsigned bits) {
#ifdef __BMI2__
    return _pdep_u32(bits, 0x55555555);
#else
    bits = (bits | bits << 8) & 0x00ff00ff;
    bits = (bits | bits << 4) & 0x0f0f0f0f;
    bits = (bits | bits << 2) & 0x33333333;
    return (bits | bits << 1) & 0x55555555;
#endif
}

/* Puts n bits, 64 at most, at a position, of a run that has `before` bits before these and `after` after, and is put in order.
 * Its first and last bytes, where it shares them with what other threads may write, are zero to begin with and added to
 * atomically: only these, as an atomic operation waits until all stores before it, and all that leaves past the cache, are done. */
static inline void cynorm_put_bits(unsigned char *mask, int64_t bit, uint64_t bits, int64_t n, int64_t before, int64_t after) {
    unsigned char *p = mask + (bit >> 3);
    const int begins = before < (bit & 7), ends = after < (-(bit + n) & 7);
    int64_t first = -bit & 7;
    if (!begins && n + after >= 72) { /* so many are the run's, and not put yet: a word and a byte */
        const int at = bit & 7;
        const uint64_t word = bits << at | (*p & ((1u << at) - 1));
        memcpy(p, &word, sizeof word);
        if (at + n > 64) p[8] = (unsigned char)(bits >> 1 >> (63 - at));
        return;
    }
    if (first) {
        const unsigned char some = (unsigned char)(bits << (bit & 7));
        if (begins || (ends && n < first)) __atomic_fetch_or(p, some, __ATOMIC_RELAXED);
        else *p |= some;
        p++;
        bits >>= first;
        n -= first;
    }
    if (n <= 0) return;
    memcpy(p, &bits, (size_t)(n >> 3));
    if (!(n & 7)) return;
    const unsigned char last = (unsigned char)(bits >> (n & ~7));
    if (ends) __atomic_fetch_or(p + (n >> 3), last, __ATOMIC_RELAXED);
    else p[n >> 3] = last;
}

/* ---- blocks of a tile: rows that are worked on together ---- */

/* Rows are those of a group, or, where elements are kept, one of each of several groups of an image. */
typedef struct {
    int64_t of;            /* which of the tile's blocks of statistics */
    int64_t group, row, i; /* the first element; where elements are kept, `row` is its image */
    int64_t count, n;      /* rows, elements of each */
    int64_t rows, piece;   /* the most of them */
    int64_t images;        /* 1, or, of short rows, all */
} cynorm_bn_block;

/* The next block; 0 where there is none. */
static int cynorm_bn_next(const cynorm_bn_tile *t, cynorm_bn_block *b) {
    const int kept = t->kept_inner;
    int64_t *row = kept ? &b->group : &b->row, *outer = kept ? &b->row : &b->group;
    b->i += b->n;
    if (b->i == t->count[0]) {
        b->i = 0;
        *row += b->count;
    }
    if (*row == t->count[1 + kept]) {
        *row = 0;
        *outer += b->images;
    }
    if (*outer == t->count[2 - kept]) {
        *outer = 0;
        if (++b->of == t->blocks) return 0;
    }
    int64_t n = t->count[0] - b->i, count = t->count[1 + kept] - *row;
    b->n = n < b->piece ? n : b->piece;
    b->count = count < b->rows ? count : b->rows;
    return 1;
}

static inline char *cynorm_bn_at(const cynorm_bn_view *v, const cynorm_bn_block *b) {
    return v->data + b->of * v->block + b->group * v->stride[2] + b->row * v->stride[1] + b->i * v->stride[0];
}

/* From row to row of a block. */
static inline int64_t cynorm_bn_step(const cynorm_bn_tile *t, const cynorm_bn_view *v) {
    return v->stride[t->kept_inner ? 2 : 1];
}

static inline int64_t cynorm_bn_bit(const cynorm_bn_tile *t, const cynorm_bn_block *b) {
    const cynorm_bn_view *mask = &t->view[CYNORM_BN_MASK];
    return t->bit + b->of * mask->block + b->group * mask->stride[2] + b->row * mask->stride[1] + b->i * mask->stride[0];
}

/* Whether all rows of a view begin at multiples of so many bytes, a power of two. */
static inline int cynorm_bn_multiple_of(const cynorm_bn_tile *t, const cynorm_bn_view *v, int64_t bytes) {
    const int64_t starts = (intptr_t)v->data | (t->count[1] > 1 ? v->stride[1] : 0) | (t->count[2] > 1 ? v->stride[2] : 0) |
                           (t->blocks > 1 ? v->block : 0);
    return !(starts & (bytes - 1));
}

/* Ahead of a block: in what is packed next, or in the tile beside this one, else in this tile's next group. Written where it is
 * read: what a function returns is copied by vectors, which would wait for its fields to leave the core. */
static void cynorm_bn_ahead_of(cynorm_bn_ahead *a, const cynorm_bn_tile *t, const cynorm_bn_view *v, int64_t next,
                               const cynorm_bn_block *b) {
    int64_t bytes = t->count[0] * cynorm_itemsize(v->dtype);
    /* the rows of a group may follow on */
    int64_t last = v->stride[1] == bytes ? t->count[1] - 1 : b->row;
    const char *group = v->data + b->group * v->stride[2], *end = group + last * v->stride[1] + bytes;
    const char *start = group + (last + 1 < t->count[1] ? (last + 1) * v->stride[1] : v->stride[2]);
    a->by = next ? next : CYNORM_BN_AHEAD;
    a->jump = next ? 0 : start - end;
    a->end = end;
    a->elsewhere = next && !t->packs;
}

/* Whether a block has a piece of each of some kept rows. */
static inline int cynorm_bn_cut(const cynorm_bn_tile *t, const cynorm_bn_block *b) {
    return t->kept_inner && b->n < t->count[0];
}

/* How many kept rows of so many bytes are prefetched before they are read. */
static inline int64_t cynorm_bn_rows_ahead(const cynorm_bn_block *b, int64_t bytes) {
    const int64_t rows = (CYNORM_BN_KEPT_AHEAD + bytes - 1) / bytes;
    return rows < b->count ? rows : b->count;
}

/* Ahead of a block's kept rows: in the next row, where they are cut; in what is packed next; `rows` rows further, for the last
 * ones in the next image, or further images. */
static void cynorm_bn_rows_next(cynorm_bn_ahead *a, const cynorm_bn_tile *t, const cynorm_bn_view *v, int64_t next,
                                const cynorm_bn_block *b, int64_t rows) {
    const int64_t step = v->stride[2], near = cynorm_bn_cut(t, b) ? step : t->packs ? next : 0;
    a->by = near ? near : rows * step;
    a->jump = near || b->images == 1 ? 0 : next - b->count * step;
}
