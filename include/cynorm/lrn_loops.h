/* LRN: what the loops of the headers that follow have in common. A template, see types.h. */

/* Loops are functions of their own for each storage type, direction and reach, and for exponents: `usual`, 3/4; `special`, 1/2,
 * 1, 0, those that are libm's, and 3/4 where `usual` asks for whole vectors and there are others; `any`, the rest.
 * each(T, direction, reach, name, kind, together) defines one; `together` is for how many vectors powers are taken at once:
 * where the kind is no constant, it is tested once for all of these. */
#define CYNORM_SPECIAL_EXPONENTS(each, T, direction, reach)                                                    \
    each(T, direction, reach, usual, CYNORM_BETA_THREE_QUARTERS, 2)                                            \
    each(T, direction, reach, special, cynorm_special_beta(given->q.beta), CYNORM_TOGETHER)
#define CYNORM_EXPONENTS(each, T, direction, reach)                                                            \
    CYNORM_SPECIAL_EXPONENTS(each, T, direction, reach)                                                        \
    each(T, direction, reach, any, CYNORM_BETA_ANY, CYNORM_TOGETHER)
#define CYNORM_REACHES(T, each)                                                                                \
    CYNORM_EXPONENTS(each, T, forward, 1)                                                                      \
    CYNORM_EXPONENTS(each, T, forward, 2)                                                                      \
    CYNORM_EXPONENTS(each, T, backward, 1)                                                                     \
    CYNORM_EXPONENTS(each, T, backward, 2)
/* And the tables of them: of exponents in the order of loop_of_beta; of all. */
#define CYNORM_POWERS_OF(name) {FN(name##special), FN(name##usual), FN(name##any)}
#define CYNORM_REACHES_OF(T, what)                                                                             \
    [CYNORM_##T] = {{CYNORM_POWERS_OF(what##_##T##_forward1), CYNORM_POWERS_OF(what##_##T##_forward2)},        \
                    {CYNORM_POWERS_OF(what##_##T##_backward1), CYNORM_POWERS_OF(what##_##T##_backward2)}},

/* With AVX2, where powers tell: a loop that stops before the first power to be mended. So it has no calls, around which nothing
 * would stay in registers, and fewer branches, which the compiler moves nothing across. It returns where it stops; what is there
 * goes by the loop that mends, and then the former goes on. */
#define CYNORM_UNMENDED(stops, loop) (CYNORM_ESTIMATES_TELL && (stops) ? (loop) : NULL)

/* Which of the compiled loops; the usual one may ask for whole vectors. */
static int FN(loop_of_beta)(const cynorm_lrn_tile *t, int whole) {
    const int kind = cynorm_beta_kind(t->beta);
    return kind == CYNORM_BETA_ANY ? 2 : kind == CYNORM_BETA_THREE_QUARTERS && whole;
}

static int FN(contiguous)(const cynorm_lrn_view *m) { return !m->data || m->stride[0] == cynorm_itemsize(m->dtype); }

/* Blocked memory: a row goes through its blocks. */
static int FN(joint)(const cynorm_lrn_tile *t) { return t->windows && t->pitch[1] == t->count[0]; }

/* The cells on either side where loops are compiled for them, else 0. */
static int FN(constant_reach)(const cynorm_lrn_window *w) {
    return w->left == w->right && w->left <= CYNORM_REACH ? (int)w->left : 0;
}

/* Row v, to be prefetched, of those [from, to) at data that a tile reads; past the last one a row of the next run, `next` bytes
 * further, or the last one, if there is none. Never a row that is not read: another thread may be writing to it. */
static const char *FN(row_ahead)(const char *data, int64_t step, int64_t v, int64_t from, int64_t to, int64_t next) {
    if (v >= to && next) data += next, v -= to - from;
    return data + (v < from ? from : v < to ? v : to - 1) * step;
}

/* Each run of level 0 by itself, with the bytes by which it lies apart from the first one, along levels 1 and 2. */
static void FN(each_run)(const cynorm_lrn_tile *t, int backward,
                         void (*work)(const cynorm_lrn_tile *, int, int64_t src_at, int64_t diff_at, int64_t dst_at)) {
    for (int64_t i2 = 0; i2 < t->count[2]; i2++)
        for (int64_t i1 = 0; i1 < t->count[1]; i1++) {
#define AT(name) i1 * t->name.stride[1] + i2 * t->name.stride[2]
            work(t, backward, AT(src), AT(diff_dst), AT(dst));
#undef AT
        }
}
