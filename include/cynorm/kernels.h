/* All kernels of one instruction set, the one that the compiler's flags select. A file of cynorm/kernels/ defines
 * CYNORM_ISA_NAME and CYNORM_ISA_TABLE and includes this; everything but the tables is static. It is compiled twice, as either
 * takes minutes: with CYNORM_KERNELS 64 for the table of double, with 32 for that of float, and of both. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "tiles.h"

/* Bytes of a vector: 64 and 32 stand for all that AVX-512 and AVX2, and what comes with them, can do. */
#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define CYNORM_VBYTES 64
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define CYNORM_VBYTES 32
#else
#define CYNORM_VBYTES 16
#endif
#define CYNORM_PICKS (CYNORM_VBYTES >= 32) /* whether lanes of two vectors can be picked by number */

/* Inlined wherever it is called, so that constants among its arguments specialise it. */
#define CYNORM_INLINE static inline __attribute__((always_inline))

#include "stream.h"
#include "transpose.h"

/* double first: the sums of float are made in it */
#define CYNORM_DOUBLE 1
#include "real.h"
#undef CYNORM_DOUBLE
#if CYNORM_KERNELS == 32
#define CYNORM_DOUBLE 0
#include "real.h"
#undef CYNORM_DOUBLE
#endif

#define CYNORM_REAL_KERNELS(suffix)                                                                                 \
    {lrn_scratch_##suffix, lrn_taken_by_##suffix, lrn_##suffix, lrn_plane_reach_##suffix, lrn_fewest_##suffix,      \
     bn_sums_bytes_##suffix, bn_sums_##suffix, bn_apply_##suffix,                                                   \
     bn_statistics_##suffix, bn_coefficients_##suffix, bn_gradients_##suffix,                                       \
     load_row_##suffix, store_row_##suffix}

extern const cynorm_real_kernels CYNORM_ISA_TABLE(f64);
#if CYNORM_KERNELS == 64
const cynorm_real_kernels CYNORM_ISA_TABLE(f64) = CYNORM_REAL_KERNELS(f64);
#else
static const cynorm_real_kernels CYNORM_ISA_TABLE(f32) = CYNORM_REAL_KERNELS(f32);
const cynorm_kernels CYNORM_ISA_TABLE(kernels) = {
    CYNORM_ISA_NAME, {&CYNORM_ISA_TABLE(f32), &CYNORM_ISA_TABLE(f64)}, cynorm_bandwidth, cynorm_fence};
#endif
