/* LRN: windows of cells that lie in a row, summed in lrn.h's order in registers or, where cells are in memory, of S_4 of each
 * there. A template, see types.h. */

enum { CYNORM_PLANE_REACH = 4 }; /* as CYNORM_REACH, in planes */
enum { CYNORM_PIECES = 5 }; /* S_1 to S_16, of the windows that reach less than a vector either way */

/* The sum of a window, its latest cell last. */
CYNORM_INLINE vec FN(sum_cells)(const vec *cell, int reach) {
    if (reach == 1) return cell[2] + (cell[1] + cell[0]);
    const vec first = (cell[3] + cell[2]) + (cell[1] + cell[0]);
    if (reach == 2) return cell[4] + first;
    if (reach == 3) return (cell[6] + (cell[5] + cell[4])) + first;
    return cell[8] + (((cell[7] + cell[6]) + (cell[5] + cell[4])) + first);
}

typedef struct {
    int64_t n;
    ivec piece[CYNORM_PIECES]; /* lanes of S_m as far back as the bits of n below m say */
    ivec window[2];            /* from sums that end at a cell to those around it, and mirrored */
} window_t;

/* Lanes `by` further on, of three vectors that follow one another; |by| <= VL. */
CYNORM_INLINE vec FN(shifted)(vec before, vec at, vec after, int by) {
    const vec first = by < 0 ? before : at, second = by < 0 ? at : after;
#if CYNORM_VBYTES == 64 && !defined(__clang__) /* the compiler would take an instruction more */
#if CYNORM_DOUBLE
    return (vec)_mm512_alignr_epi64((__m512i)second, (__m512i)first, by < 0 ? VL + by : by);
#else
    return (vec)_mm512_alignr_epi32((__m512i)second, (__m512i)first, by < 0 ? VL + by : by);
#endif
#endif
    ivec lane;
    for (int i = 0; i < VL; i++) lane[i] = i + (by < 0 ? VL + by : by);
    return FN(lanes_of)(first, second, lane);
}

#if CYNORM_PICKS
/* What `picked` takes for lanes `by` on in two vectors that follow one another; 0 <= by <= VL. */
static ivec FN(lanes_from)(int64_t by) {
    ivec lane;
#if CYNORM_VBYTES == 64
    for (int i = 0; i < VL; i++) lane[i] = (sint_r)(i + by);
#else
    const int words = (int)sizeof(real) / 4;
    int32_t word[8];
    for (int i = 0; i < 8; i++) {
        const int at = i + (int)by * words;
        word[i] = (at & 7) | (at < 8 ? 0 : INT32_MIN); /* the sign says which vector */
    }
    memcpy(&lane, word, sizeof lane);
#endif
    return lane;
}

CYNORM_INLINE vec FN(picked)(vec first, vec second, ivec lane) {
#if CYNORM_VBYTES == 64
    return FN(permuted)(first, lane, second);
#else
    const __m256 a = _mm256_permutevar8x32_ps((__m256)first, (__m256i)lane);
    const __m256 b = _mm256_permutevar8x32_ps((__m256)second, (__m256i)lane);
    return (vec)_mm256_blendv_ps(a, b, (__m256)lane);
#endif
}

static window_t FN(window_of)(const cynorm_lrn_window *w) {
    window_t out = {.n = w->left + w->right + 1, .window = {FN(lanes_from)(w->right), FN(lanes_from)(w->left)}};
    for (int64_t l = 0, m = 1; m <= VL; l++, m *= 2) out.piece[l] = FN(lanes_from)(VL - (out.n & (m - 1)));
    return out;
}
#endif

#define EACH_HALF _Pragma("GCC unroll 2") for (int h = 0; h <= halves; h++)

/* What the window sums of a row need of the vectors before: cells or, of a window of five, the sums of two neighbours;
 * total[0]: the last complete sums of a wide window. */
typedef struct { vec before[CYNORM_PIECES], at[CYNORM_PIECES], total[CYNORM_PIECES]; } sums_t;

/* Where a row's last cell lies within a vector, and the next row follows on: the lanes whose next cell is of the same row,
 * and those whose next but one is. */
typedef struct { ivec next, second; } edge_t;

/* Where the row's cells are the first n lanes. */
static edge_t FN(edge_at)(int64_t n) {
    return (edge_t){~FN(first)(n) | FN(first)(n - 1), ~FN(first)(n) | FN(first)(n - 2)};
}

/* Takes the next vector of cells; makes the window sums of the one before, in which a row may end (else `edge` is NULL). Of a
 * window of five, the sum of the two earliest cells is that of the middle and the next one, shifted. By halves, an even
 * cell's neighbours are odd. What later cells find of earlier ones has nothing of the row that ended, but its zeros. */
CYNORM_INLINE void FN(narrow_sums)(vec *sum, sums_t *s, const vec *next, int reach, int halves, const edge_t *edge) {
#define WITHIN(v, which) (edge ? (vec)((ivec)(v) & edge->which) : (v))
#define BEGINNING(v, which, first) (edge ? (vec)(((ivec)(v) & edge->which) | ((ivec)(first) & ~edge->next)) : (v))
    const vec at[2] = {s->at[0], s->at[halves]};
    vec pair[2], up[2], within[2], before[2];
    EACH_HALF up[h] = FN(shifted)(at[h], at[h], next[h], 1), within[h] = WITHIN(up[h], next);
    if (reach == 1) {
        EACH_HALF before[h] = WITHIN(at[h], next);
        const vec down = FN(shifted)(s->before[halves], before[halves], before[halves], -1);
        sum[0] = (halves ? at[1] : within[0]) + (at[0] + down);
        if (halves) sum[1] = within[0] + (at[1] + at[0]);
    } else if (halves) {
        pair[0] = at[1] + at[0], pair[1] = within[0] + at[1];
        before[0] = WITHIN(pair[0], next), before[1] = BEGINNING(pair[1], next, up[0]);
        EACH_HALF sum[h] = within[h] + (pair[h] + FN(shifted)(s->before[h], before[h], before[h], -1));
    } else {
        pair[0] = within[0] + at[0];
        before[0] = BEGINNING(pair[0], second, up[0]);
        sum[0] = WITHIN(FN(shifted)(at[0], at[0], next[0], 2), second) +
                 (pair[0] + FN(shifted)(s->before[0], before[0], before[0], -2));
    }
    EACH_HALF s->before[h] = before[h], s->at[h] = next[h];
#undef WITHIN
#undef BEGINNING
}

/* The same for the rows of planes, one by one, and windows of up to nine cells: from a row's first vector on, behind its last one
 * zeros. S_2 and S_4 are made of the next vector by where they end, and kept of two. */
CYNORM_INLINE sums_t FN(row_begins)(vec cells, int reach) {
    const vec none = {0};
    sums_t s = {.at = {cells}};
    if (reach == 2) s.before[0] = FN(shifted)(none, none, cells, 1); /* S_2 of the first cell and of none */
    if (reach > 2) s.at[1] = cells + FN(shifted)(none, cells, none, -1);
    if (reach > 3) s.at[2] = s.at[1] + FN(shifted)(none, s.at[1], none, -2);
    return s;
}
CYNORM_INLINE vec FN(row_sum)(sums_t *s, vec next, int reach) {
    vec sum;
    if (reach <= 2) {
        FN(narrow_sums)(&sum, s, &next, reach, 0, NULL);
        return sum;
    }
    const vec *at = s->at, *before = s->before, last = FN(shifted)(at[0], at[0], next, reach);
    const vec two = next + FN(shifted)(at[0], next, next, -1), four = two + FN(shifted)(at[1], two, two, -2);
    if (reach == 3) sum = (last + FN(shifted)(at[1], at[1], two, 2)) + (at[1] + FN(shifted)(before[1], at[1], two, -2));
    else sum = last + (FN(shifted)(at[2], at[2], four, 3) + FN(shifted)(before[2], at[2], four, -1));
    s->before[1] = at[1], s->before[2] = at[2];
    s->at[0] = next, s->at[1] = two, s->at[2] = four;
    return sum;
}

/* Of a window whose highest bit is -reach, the number of that bit; how many steps late its sums are. */
CYNORM_INLINE int FN(highest)(int reach) { return reach == -16 ? 4 : reach == -8 ? 3 : reach == -4 ? 2 : 1; }
CYNORM_INLINE int FN(late)(int reach) { return reach > 0 ? 1 : FN(highest)(reach) + 1; }

/* The same for such a window, of the vector `late` steps ago: each S_2m is made of the S_m of the last step, so that no step
 * is one long chain, and with it the sums of the pieces up to 2m, by where they end; in the end these are shifted to where
 * the windows lie. */
CYNORM_INLINE vec FN(wide_sum)(sums_t *s, vec next, const window_t *w, int reach, int mirrored) {
#if CYNORM_PICKS
    const int highest = FN(highest)(reach);
    const vec sum = FN(picked)(s->total[0], s->total[highest], w->window[mirrored]);
    s->total[0] = s->total[highest];
#pragma GCC unroll 8
    for (int l = highest - 1; l >= 0; l--) {
        const vec level = l ? s->at[l] : next;
        const vec twice = level + FN(shifted)(s->before[l], level, level, -(1 << l));
        /* -0 changes nothing that is added to it */
        vec total = l ? s->total[l] : w->n & 1 ? next : FN(splat)((real)-0.0);
        if (l + 1 == highest || w->n & 2 << l) total += FN(picked)(s->at[l + 1], twice, w->piece[l + 1]);
        s->before[l] = level, s->at[l + 1] = twice, s->total[l + 1] = total;
    }
    return sum;
#else
    (void)s, (void)w, (void)reach, (void)mirrored;
    return next;
#endif
}

/* ---- in memory, where a window's cells are `apart` reals from each other ---- */

#define CYNORM_CELL(back) FN(load)(cell - (back) * apart)
/* S_4 that ends at a cell. */
CYNORM_INLINE vec FN(four_cells)(const real *cell, int64_t apart) {
    return (CYNORM_CELL(0) + CYNORM_CELL(1)) + (CYNORM_CELL(2) + CYNORM_CELL(3));
}

/* The first pieces of a window, its n % 4 latest cells. */
CYNORM_INLINE vec FN(first_cells)(const real *cell, int64_t apart, int low) {
    if (low == 1) return CYNORM_CELL(0);
    if (low == 2) return CYNORM_CELL(0) + CYNORM_CELL(1);
    if (low == 3) return CYNORM_CELL(0) + (CYNORM_CELL(1) + CYNORM_CELL(2));
    return FN(splat)((real)-0.0); /* changes nothing that is added to it */
}
#undef CYNORM_CELL

/* Adds the others to the sums of `count` vectors: of S_4, the latest for the first vector at `four`. */
CYNORM_INLINE void FN(add_fours)(vec *sum, const real *four, int64_t apart, int64_t n, int count) {
#define EACH_SUM _Pragma("GCC unroll 4") for (int j = 0; j < count; j++)
#define S_4(back) FN(load)(four + j * VL - (back) * apart)
#define S_8(back) (S_4(back) + S_4((back) + 4))
#define S_16(back) (S_8(back) + S_8((back) + 8))
    if (n & 4) {
        EACH_SUM sum[j] += S_4(0);
        four -= 4 * apart;
    }
    if (n & 8) {
        EACH_SUM sum[j] += S_8(0);
        four -= 8 * apart;
    }
    if (n & 16) {
        EACH_SUM sum[j] += S_16(0);
        four -= 16 * apart;
    }
    if (n & 32) EACH_SUM sum[j] += S_16(0) + S_16(16);
#undef S_4
#undef S_8
#undef S_16
#undef EACH_SUM
}
