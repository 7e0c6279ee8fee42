/* LRN: windows of cells that lie in a row, summed in scratch, in lrn.h's order, where they reach further than registers do.
 * A template, see types.h. */

/* Where vectors are shorter than with AVX-512. */
#define CYNORM_FAR_SERVES (CYNORM_VBYTES < 64)
/* The most cells on either side of a window; elements of rows that are worked on at once. */
enum { CYNORM_FAR = 16, CYNORM_ROW_STRIP = 1024 };

#if CYNORM_FAR_SERVES
/* Windows that reach further: the rows of a strip lie in scratch, each between zeros or, where it goes on, its own cells
 * there. S_4 is made of all at once; other sums of the tree are made of these as they are needed, since loads are cheaper
 * than stores. */
enum { CYNORM_FAR_REALS = CYNORM_ROW_STRIP + 4 * CYNORM_FAR + 2 * VL };
typedef struct {
    const real *cells;          /* three before it are read, but not used */
    int64_t pitch, rows, first; /* reals from a row to the next; rows; reals to the first cell whose sum is asked for */
    real fours[CYNORM_FAR_REALS] __attribute__((aligned(64)));
} far_t;

/* The window of n cells, a constant, that ends at `at`. */
CYNORM_INLINE vec FN(far_sum)(const far_t *f, int64_t at, int n) {
    const int low = n & 3;
    vec sum = FN(first_cells)(f->cells + at, 1, low);
    FN(add_fours)(&sum, f->fours + at - low, 1, n, 1);
    return sum;
}

CYNORM_INLINE void FN(far_sums_of)(const far_t *f, int64_t right, int64_t width, vec *out, int64_t gap, int omegas,
                                   const coefficients *q, int n) {
    const coefficients copy = *q; /* which no store might alias */
    for (int64_t i = 0; i < f->rows; i++, out += gap) {
        const int64_t at = i * f->pitch + f->first + right;
        for (int64_t v = 0; v < width; v++) {
            const vec sum = FN(far_sum)(f, at + v * VL, n);
            *out++ = omegas ? FN(omega_of)(&copy, sum, VL) : sum;
        }
    }
}

/* out = the sums of windows, or omega, of `width` vectors of each row, `gap` vectors between rows */
CYNORM_INLINE void FN(far_sums)(far_t *f, int64_t left, int64_t right, int64_t width, vec *out, int64_t gap, int omegas,
                                const coefficients *q) {
    const int64_t end = f->first + f->rows * f->pitch;
    const real *c = f->cells;
#pragma GCC unroll 2
    for (int64_t i = 0; i < end; i += VL, c += VL)
        FN(store)(f->fours + i, FN(four_cells)(c, 1));
#define CASE(n) case n: FN(far_sums_of)(f, right, width, out, gap, omegas, q, n); break;
#define CASES(n) CASE(n) CASE(n + 1) CASE(n + 2) CASE(n + 3)
    switch (left + right + 1) {
        CASE(2) CASE(3) CASES(4) CASES(8) CASES(12) CASES(16) CASES(20) CASES(24) CASES(28) CASE(32) CASE(33)
    }
#undef CASES
#undef CASE
}
#endif
