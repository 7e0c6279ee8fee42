/* LRN: rows of dst on their way past the cache, a block of slabs at a time. A template, see types.h.
 *
 * Rows that begin and end at lines leave as they are made, and so do long ones where a vector is as long as a line: a line
 * is then the end of one vector and the beginning of the next (seam_t). Others are made in a stage. Stores past the cache wait for
 * memory, and nothing else runs while a burst of them waits, so that a stage's lines leave one by one while the next
 * block is worked on. A line that two tiles share is made whole by the later tile, which begins a line earlier. */

/* The most slabs of a block; bytes of dst that wait for more slabs; the most elements of a line. */
enum { CYNORM_BLOCK_MOST = 8, CYNORM_STAGE = 8192, CYNORM_OVERLAP = 32 };
typedef struct { char *dst; const char *src; int64_t n; } cynorm_piece; /* bytes to be copied */
/* What leaves beside the next block's arithmetic: as many bytes, whole lines, of each piece. */
typedef struct { cynorm_piece piece[CYNORM_BLOCK_MOST]; int64_t bytes; } cynorm_late;

/* Of pieces [begin, end) the line at byte `at`, where one begins there. */
CYNORM_INLINE void cynorm_send_late(const cynorm_late *late, int begin, int end, int64_t at) {
    if (at & 63 || at >= late->bytes) return;
#pragma GCC unroll 8
    for (int j = begin; j < end; j++) cynorm_stream_line(late->piece[j].dst + at, late->piece[j].src + at);
}

typedef struct {
    const cynorm_lrn_tile *t;
    int slabs;              /* of a block */
    int streaming, seamed, staged; /* whether dst goes past the cache as it is made, across lines, or through the stage */
    int together;           /* whether rows lie side by side: short ones then leave by several blocks at once */
    int64_t overlap, row;   /* bytes that a row begins before the tile's; of a row, */
    int64_t pitch;          /* and from one to the next in the stage */
    int64_t most, sent;     /* slabs that the stage holds; the first of them */
    char *dst, *stage, *other; /* one stage is filled while the other is sent */
    cynorm_late late;
} out_t;

/* A row of dst whose vectors lie across lines. */
typedef struct {
    char *line;          /* beginning of the line that the row begins in */
    ivec lanes;          /* of two vectors that follow one another, those of a line */
    int64_t first;       /* lanes of the first one in that line */
    int head, tail;      /* whether parts of lines, at the row's ends, are written */
    vec before, rest;    /* the vector before; elements that are no whole vector */
} seam_t;

static void FN(open_seam)(seam_t *s, const out_t *o, char *dst) {
#if CYNORM_VBYTES == 64
    const int64_t past = (intptr_t)dst & 63;
    s->line = dst - past, s->first = VL - past / (int64_t)sizeof(real);
    s->lanes = FN(lanes_from)(s->first);
    s->head = !o->t->before, s->tail = !o->t->after;
    s->before = s->rest = (vec){0};
#else
    (void)s, (void)o, (void)dst;
#endif
}

/* n lanes of v, at byte `at` of the row; after all that comes before. */
CYNORM_INLINE void FN(put_seamed)(seam_t *s, int64_t at, vec v, int64_t n) {
#if CYNORM_VBYTES == 64
    if (n < VL) {
        s->rest = v;
        return;
    }
    const vec line = FN(picked)(s->before, v, s->lanes);
    if (at) cynorm_stream(s->line + at, &line, CYNORM_VBYTES);
    else if (s->head) FN(put)(s->line + CYNORM_VBYTES - s->first * (int64_t)sizeof(real), v, CYNORM_COMPUTE, s->first);
    s->before = v;
#else
    (void)s, (void)at, (void)v, (void)n;
#endif
}

/* The end of a row of so many bytes. */
CYNORM_INLINE void FN(close_seam)(const seam_t *s, int64_t row) {
#if CYNORM_VBYTES == 64
    const int64_t at = row & -64, n = (row & 63) / (int64_t)sizeof(real);
    vec line = FN(picked)(s->before, s->rest, s->lanes);
    int64_t left = VL - s->first + n;
    char *p = s->line + at;
    if (left >= VL) {
        cynorm_stream(p, &line, CYNORM_VBYTES);
        line = FN(picked)(s->rest, s->rest, s->lanes), p += CYNORM_VBYTES, left -= VL;
    }
    if (s->tail) FN(put)(p, line, CYNORM_COMPUTE, left);
#else
    (void)s, (void)row;
#endif
}

/* Whole lines, and one to spare, for what begins up to a line earlier, and for whole vectors at the end. */
static int64_t FN(whole_lines)(int64_t bytes) { return (bytes + 63) / 64 * 64 + 64; }

/* Bytes of scratch of a row of dst. */
static int64_t FN(row_bytes)(const cynorm_lrn_tile *t) {
    return FN(whole_lines)((t->count[0] + CYNORM_OVERLAP) * cynorm_itemsize(t->dst.dtype));
}
/* Whether rows may go through the stage: short ones, and those of half types, whose lines are two vectors and gain nothing from
 * seams; with AVX2, likewise, all. */
static int FN(may_stage)(const cynorm_lrn_tile *t) {
    return t->streaming && !(FN(is_line)(t->dst.dtype) && t->count[0] * cynorm_itemsize(t->dst.dtype) >= CYNORM_STREAM_LEAST);
}
static int64_t FN(stage_bytes)(const cynorm_lrn_tile *t, int slabs) {
    return FN(may_stage)(t) ? slabs * FN(row_bytes)(t) + CYNORM_STAGE : 0;
}

/* The plane whose dst is given; `rows`: whether its slabs are rows of memory, whose vectors follow one another:
 * only these go through the stage. */
static void FN(open_stage)(out_t *o, const cynorm_lrn_tile *t, char *dst, int slabs, int rows, char *scratch) {
    const int64_t size = cynorm_itemsize(t->dst.dtype), row = t->count[0] * size, before = t->before * size;
    const int by_lines = FN(by_lines)(t, row, VL * size, rows), alone = !t->before && !t->after;
    o->t = t, o->slabs = slabs;
    o->together = alone && t->dst.streamed == row;
    o->streaming = t->streaming && by_lines;
    o->staged = rows && t->streaming && !by_lines && (o->together || before + row + t->after * size >= CYNORM_STREAM_LEAST);
    o->overlap = o->staged && t->before ? 64 : 0;
    o->row = row + o->overlap;
    o->seamed = o->staged && !FN(may_stage)(t);
    if (o->seamed) o->staged = 0;
    o->most = o->together && CYNORM_STAGE >= 2 * slabs * o->row ? CYNORM_STAGE / o->row : slabs;
    o->pitch = o->most > slabs ? o->row : (o->row + 63) / 64 * 64;
    o->sent = t->begin;
    o->dst = dst - o->overlap;
    o->stage = scratch, o->other = scratch + FN(stage_bytes)(t, slabs);
    o->late.bytes = 0;
}

/* Where dst of slab v is made. */
static char *FN(row_of_dst)(const out_t *o, int64_t v) {
    char *at = o->dst + v * o->t->dst.streamed;
    if (!o->staged && !o->seamed) return at;
    if (!o->t->before) __builtin_prefetch(at, 1); /* lines that are written in part */
    if (!o->t->after) __builtin_prefetch(at + o->row - 1, 1);
    return o->staged ? o->stage + (v - o->sent) * o->pitch : at;
}

/* Up to `late` bytes of each piece, whole lines, leave while the next block is worked on, the rest now. */
static void FN(send)(out_t *o, int64_t late) {
    for (int j = 0; j < o->slabs; j++) {
        cynorm_piece *p = &o->late.piece[j];
        const int64_t head = -(intptr_t)p->dst & 63, n = head < p->n ? head : p->n;
        cynorm_stream_copy(p->dst, p->src, n);
        p->dst += n, p->src += n, p->n -= n;
        if (late > p->n / 64 * 64) late = p->n / 64 * 64;
    }
    for (int j = 0; j < o->slabs; j++) {
        const cynorm_piece *p = &o->late.piece[j];
        cynorm_stream_copy(p->dst + late, p->src + late, p->n - late);
    }
    o->late.bytes = late;
}

/* The line of dst of which a row in the stage has the first `n` bytes, and the next row the others. */
static void FN(send_joint)(char *line, const char *row_end, const char *next, int64_t n) {
    char both[128] __attribute__((aligned(64)));
    memcpy(both, row_end - 64, 64);
    memcpy(both + 64, next, 64);
    cynorm_stream_line(line, both + 64 - n);
}

/* After a block, by which dst is made up to slab `done`: what the stage holds, as pieces. Each row is one, except for lines that it
 * shares with the next row where rows lie side by side; short rows that do are all one piece of memory, cut where lines
 * begin. */
static void FN(leave_stage)(out_t *o, int64_t done) {
    const cynorm_lrn_tile *t = o->t;
    const int64_t slabs = done - o->sent, row = o->row;
    char *dst = o->dst + o->sent * t->dst.streamed, *stage = o->stage;
    o->late.bytes = 0;
    if (!o->staged || (done < t->end && slabs + o->slabs <= o->most)) return;
    for (int64_t j = 0, sent = 0; j < o->slabs; j++, dst += t->dst.streamed, stage += o->pitch) {
        int64_t from = 0, to = j < slabs ? row : 0;
        if (o->together && o->most == o->slabs) {
            if (j && to) from = -(intptr_t)dst & 63;
            if (j < slabs - 1) {
                const int64_t n = (intptr_t)(dst + row) & 63;
                to -= n;
                if (n) FN(send_joint)(dst + to, stage + row, stage + o->pitch, n);
            }
        } else if (o->together) {
            char *first = dst - j * row;
            const int64_t end = slabs * row * (j + 1) / o->slabs, cut = end - ((intptr_t)(first + end) & 63);
            from = sent - j * row, to = (j == o->slabs - 1 ? end : cut > sent ? cut : sent) - j * row;
            sent = to + j * row;
        } else if (to) {
            if (o->overlap) from = o->overlap - ((intptr_t)(dst + o->overlap) & 63);
            if (t->after) to -= (intptr_t)(dst + row) & 63;
        }
        o->late.piece[j] = (cynorm_piece){dst + from, stage + from, to - from};
    }
    FN(send)(o, done < t->end ? row & -64 : 0);
    stage = o->stage, o->stage = o->other, o->other = stage;
    o->sent = done;
}

/* ---- channels innermost, a vector of them at each entry: where entries of dst follow on but do not begin at lines, vectors do.
 * One row of vectors then goes along where the last channels of an entry lie beside the first ones of the next: it has one entry
 * more, and at either end only a part of its lanes. ---- */

/* Lanes by which vectors begin before their entries, which are whole lines, and follow on in all operands; else 0. Of entries that
 * are cut, each part has its own lines; the first one has those where two entries meet. */
static int64_t FN(lead_of)(const cynorm_lrn_tile *t, int backward) {
    const int64_t entry = (t->before + t->count[0] + t->after) * (int64_t)sizeof(real);
    const int64_t lines = entry | t->dst.streamed | t->dst.stride[2];
    if (!FN(is_line)(t->dst.dtype) || lines & 63 || (!t->streaming && entry <= 2 * CYNORM_VBYTES)) return 0;
    if (t->src.stride[1] != entry || t->dst.stride[1] != entry || (backward && t->diff_dst.stride[1] != entry)) return 0;
    return ((intptr_t)t->dst.data & 63) / (int64_t)sizeof(real);
}

/* At an end of such a row, the first or the last, the lanes that it has of the vector at x; the others are zero. */
static inline vec FN(get_edge)(int64_t lead, int last, const char *x) {
#if CYNORM_VBYTES == 64 && CYNORM_DOUBLE
    return (vec)_mm512_maskz_loadu_pd((__mmask8)(last ? (1u << lead) - 1 : -1u << lead), x);
#elif CYNORM_VBYTES == 64
    return (vec)_mm512_maskz_loadu_ps((__mmask16)(last ? (1u << lead) - 1 : -1u << lead), x);
#else /* no lead */
    (void)lead, (void)last;
    return FN(load)((const real *)x);
#endif
}
static inline vec FN(part_of_edge)(int64_t lead, int last, vec v) {
    const ivec before = FN(first)(lead);
    return (vec)((ivec)v & (last ? before : ~before));
}

/* Stores those lanes of v to dst; or, past the cache, where the rest of the line belongs to the row after or before, to *line,
 * which holds them until both are there. */
static __attribute__((noinline)) void FN(put_edge)(int64_t lead, int last, char *dst, vec v, vec *line, int there) {
    const int64_t from = last ? 0 : lead, to = last ? lead : VL, size = (int64_t)sizeof(real);
    if (!line) {
        memcpy(dst + from * size, (const char *)&v + from * size, (size_t)((to - from) * size));
    } else if (!there) {
        *line = v;
    } else {
        v = last ? FN(select)(FN(first)(lead), v, *line) : FN(select)(FN(first)(lead), *line, v);
        cynorm_stream(dst, &v, CYNORM_VBYTES);
    }
}
