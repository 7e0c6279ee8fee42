/* Batch norm: from sums to statistics and coefficients, as many at a time as a vector holds doubles. A template, see types.h;
 * the formulas are batch_norm.h's. */

#define doubles cynorm_vec_f64

static inline doubles FN(rounded)(doubles v) { return CYNORM_DOUBLE ? v : cynorm_as_float(v); }

/* Reals from the k-th of an array on; lanes past the last statistic hold whatever follows, and are not used. */
static inline doubles FN(reals_at)(const void *array, int64_t k) {
    return get_f64((const char *)((const real *)array + k), CYNORM_COMPUTE, CYNORM_BN_LANES);
}

static inline void FN(put_reals)(void *array, int64_t k, int64_t n, doubles v) {
    put_f64((char *)((real *)array + k), v, CYNORM_COMPUTE, n);
}

/* The first of the two sums of a column. */
static inline const double *FN(column_sums)(const wide *sums, int64_t at) {
    return (const double *)(sums + at / VL * 2) + at % VL;
}

/* Sums `which` (0 or 1) of n statistics from k on; the two of a vector follow each other. */
static inline cynorm_exact FN(sums_of)(const cynorm_bn_unit *u, int64_t k, int64_t n, int which) {
    const wide *sums = (const wide *)u->sums + which;
    if (u->kept_inner) {
        double high[CYNORM_BN_LANES] = {0}, low[CYNORM_BN_LANES] = {0};
        cynorm_exact sum = {{0}, {0}};
        for (int64_t j = 0; j < u->repeat; j++) {
            const int64_t at = (j * u->n + k) * u->spread;
            if (u->spread == 1 && at % VL + CYNORM_BN_LANES <= VL) {
                const double *lane = FN(column_sums)(sums, at);
                doubles row = load_f64(lane);
                if (CYNORM_DOUBLE) sum = cynorm_exact_add(sum, (cynorm_exact){row, load_f64(lane + VL)});
                else sum.high += row;
                continue;
            }
            for (int64_t column = 0; column < u->spread; column++) {
                for (int64_t i = 0; i < n; i++) {
                    const double *lane = FN(column_sums)(sums, at + i * u->spread + column);
                    high[i] = CYNORM_DOUBLE ? *lane : high[i] + *lane;
                    if (CYNORM_DOUBLE) low[i] = lane[VL];
                }
                if (CYNORM_DOUBLE) sum = cynorm_exact_add(sum, (cynorm_exact){load_f64(high), load_f64(low)});
            }
        }
        if (!CYNORM_DOUBLE) sum.high += load_f64(high);
        return sum;
    }
    cynorm_exact lanes[CYNORM_BN_LANES];
#pragma GCC unroll 8
    for (int64_t i = 0; i < CYNORM_BN_LANES; i++) {
        const wide *w = sums + (k + (i < n ? i : 0)) * 2;
#if CYNORM_DOUBLE
        lanes[i] = (cynorm_exact){w->high, w->low};
#else
        lanes[i] = (cynorm_exact){w->half[0] + w->half[1], {0}};
#endif
    }
    return cynorm_sums_of_lanes(lanes, CYNORM_DOUBLE);
}

/* The sums of all chunks, in order, into those of the first. */
static void FN(merge_chunks)(const cynorm_bn_unit *u) {
    for (int64_t c = 1; c < u->chunks; c++)
        for (int64_t i = 0; i < u->part_bytes; i += sizeof(wide)) {
            wide *to = (wide *)(u->sums + i);
            *to = FN(wide_add)(*to, *(const wide *)(u->sums + c * u->chunk_bytes + i));
        }
}

static inline void FN(put_coefficients)(const cynorm_bn_unit *u, void *array, int64_t k, int64_t n, doubles v) {
    v = select_f64(v == v, v, splat_f64(NAN)); /* see round_bf16 */
    for (int64_t j = 0; j < u->repeat; j++) {
        const int64_t at = k + j * u->n;
        if (u->spread == 1) FN(put_reals)(array, at, n, v);
        else for (int64_t i = 0; i < n; i++)
            for (int64_t column = 0; column < u->spread; column++)
                ((real *)array)[(at + i) * u->spread + column] = (real)v[i];
    }
}

/* Mean, in two parts, and rstd of n statistics from the k-th on -> coefficients of the forward formula. */
static inline void FN(put_forward)(const cynorm_bn_unit *u, int64_t k, int64_t n, doubles mean, doubles low, doubles rstd) {
    const doubles least = splat_f64(0x1p-126);
    doubles gain = FN(rounded)(u->scale ? FN(reals_at)(u->scale, k) * rstd : rstd);
    doubles bias = u->shift ? FN(reals_at)(u->shift, k) : (doubles){0};
    FN(put_reals)(u->rstd, k, n, rstd);
    FN(put_coefficients)(u, u->center, k, n, mean);
    FN(put_coefficients)(u, u->norm, k, n, select_f64(rstd < least, least, rstd));
    FN(put_coefficients)(u, u->gain, k, n, gain);
    FN(put_coefficients)(u, u->bias, k, n, select_f64(low == 0, bias, bias - low * gain)); /* gain may be infinite */
}

/* The centers of n statistics from the k-th on. */
static inline doubles FN(center_at)(const cynorm_bn_unit *u, int64_t k, int64_t n) {
    doubles v = {0};
    if (u->spread == 1) return FN(reals_at)(u->center, k);
    for (int64_t i = 0; i < n; i++) v[i] = ((const real *)u->center)[(k + i) * u->spread];
    return v;
}

/* Sums of x - p and of its square -> mean and variance, and coefficients, which use a variance that reals may have no room for.
 *
 *     shift = sum(x - p) / M,  mean = p + shift,  variance = sum((x - p)^2) / M - shift^2
 */
static void FN(bn_statistics)(const cynorm_bn_unit *u) {
    const doubles count = splat_f64((double)u->count), inverse = splat_f64(1 / (double)u->count);
    FN(merge_chunks)(u);
    for (int64_t k = 0; k < u->n; k += CYNORM_BN_LANES) {
        const int64_t n = cynorm_bn_lanes(u, k);
        cynorm_exact pivot = {FN(center_at)(u, k, n), {0}};
        cynorm_exact shift = cynorm_exact_divide(FN(sums_of)(u, k, n, 0), count, inverse);
        cynorm_exact squares = cynorm_exact_divide(FN(sums_of)(u, k, n, 1), count, inverse);
        cynorm_exact mean = cynorm_exact_add(pivot, shift);
        cynorm_exact square = cynorm_exact_multiply(shift, shift);
        doubles variance = cynorm_exact_add(squares, cynorm_exact_minus(square)).high;
        doubles low = (mean.high - FN(rounded)(mean.high)) + mean.low;
        variance = select_f64(variance < 0, (doubles){0}, variance);
        /* infinity - infinity, where the square of a finite mean overflows too */
        variance = select_f64(cynorm_is_finite(shift.high) & (squares.high == INFINITY), squares.high, variance);
        FN(put_reals)(u->mean, k, n, mean.high);
        FN(put_reals)(u->mean_low, k, n, low);
        FN(put_reals)(u->variance, k, n, variance);
        FN(put_forward)(u, k, n, mean.high, low, cynorm_exact_rsqrt(variance + splat_f64(u->epsilon)));
    }
}

/* Mean and variance (or, without it, rstd) -> coefficients. */
static void FN(bn_coefficients)(const cynorm_bn_unit *u) {
    for (int64_t k = 0; k < u->n; k += CYNORM_BN_LANES) {
        doubles rstd = u->variance ? cynorm_exact_rsqrt(FN(reals_at)(u->variance, k) + splat_f64(u->epsilon))
                                   : FN(reals_at)(u->rstd, k);
        FN(put_forward)(u, k, cynorm_bn_lanes(u, k), FN(reals_at)(u->mean, k), FN(reals_at)(u->mean_low, k), rstd);
    }
}

/* Sums of backward -> gradients of the parameters, and coefficients of diff_src; low: what the center lacks of the mean.
 *
 *     diff_shift = sum(d),  diff_scale = (sum(d * (x - center)) - low * sum(d)) * rstd
 *     slope = -diff_scale * rstd / M,  offset = -diff_shift / M - low * slope
 */
static void FN(bn_gradients)(const cynorm_bn_unit *u, int training) {
    const doubles count = splat_f64((double)u->count), inverse = splat_f64(1 / (double)u->count);
    FN(merge_chunks)(u);
    for (int64_t k = 0; k < u->n; k += CYNORM_BN_LANES) {
        const int64_t n = cynorm_bn_lanes(u, k);
        cynorm_exact sum = FN(sums_of)(u, k, n, 0), product = FN(sums_of)(u, k, n, 1);
        cynorm_exact low = {FN(reals_at)(u->mean_low, k), {0}};
        /* of x - center, which still has the low part of the mean */
        cynorm_exact less = cynorm_exact_add(product, cynorm_exact_minus(cynorm_exact_multiply(low, sum)));
        doubles rstd = FN(reals_at)(u->rstd, k), shift = sum.high;
        doubles scale = select_f64(cynorm_is_finite(shift), less.high, product.high) * rstd; /* where the sum is finite */
        FN(put_reals)(u->diff_shift, k, n, shift);
        FN(put_reals)(u->diff_scale, k, n, scale);
        if (!training) continue;
        doubles slope = cynorm_quotient(-scale * rstd, count, inverse);
        FN(put_coefficients)(u, u->slope, k, n, slope);
        FN(put_coefficients)(u, u->offset, k, n, cynorm_quotient(-shift, count, inverse) - low.high * slope);
    }
}

#undef doubles
