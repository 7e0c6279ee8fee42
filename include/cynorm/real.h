/* One pass of the kernel templates for one compute type, with the operators or, in double for the sums of float, without;
 * kernels.h includes this for float and for double. */

/* CYNORM_TYPES: the storage types that are computed in it; whatever is compiled for each goes by this list. */
#if CYNORM_DOUBLE
#define real double
#define sint_r int64_t
#define uint_r uint64_t
#define vec cynorm_vec_f64
#define ivec cynorm_ivec_f64
#define uvec cynorm_uvec_f64
#define FN(name) name##_f64
#define CYNORM_COMPUTE CYNORM_F64
#define CYNORM_TYPES(each, ...) each(F64, ##__VA_ARGS__)
#else
#define real float
#define sint_r int32_t
#define uint_r uint32_t
#define vec cynorm_vec_f32
#define ivec cynorm_ivec_f32
#define uvec cynorm_uvec_f32
#define FN(name) name##_f32
#define CYNORM_COMPUTE CYNORM_F32
#define CYNORM_TYPES(each, ...) each(F32, ##__VA_ARGS__) each(F16, ##__VA_ARGS__) each(BF16, ##__VA_ARGS__)
#endif
#define VL ((int)(CYNORM_VBYTES / sizeof(real)))

#include "types.h"
#include "math.h"
#if CYNORM_DOUBLE
#include "bn_exact.h"
#endif
#if !CYNORM_DOUBLE || CYNORM_KERNELS == 64
#include "activation.h"
#include "lrn.h"
#include "lrn_window.h"
#include "lrn_stage.h"
#include "lrn_far.h"
#include "lrn_loops.h"
#include "lrn_blocks.h"
#include "lrn_column.h"
#include "lrn_narrow_columns.h"
#include "lrn_wide_columns.h"
#include "lrn_columns.h"
#include "lrn_slabs.h"
#include "lrn_rows.h"
#include "lrn_runs.h"
#include "lrn_planes.h"
#include "lrn_walks.h"
#include "lrn_choice.h"
#include "batch_norm.h"
#include "bn_wide.h"
#include "bn_loops.h"
#include "bn_tile.h"
#include "bn_statistics.h"
#endif

/* of math.h */
#undef CYNORM_ESTIMATES
#undef CYNORM_ESTIMATES_TELL
#undef CYNORM_MANTISSA
#undef CYNORM_BITS_MIN
#undef CYNORM_BITS_INF
#undef CYNORM_BITS_MAGIC
#undef CYNORM_MAGIC
#undef CYNORM_BIAS
#undef CYNORM_PARTS
#undef CYNORM_LOG2_E
#undef CYNORM_DEGREE
#undef CYNORM_TOGETHER
#undef CYNORM_EACH

#undef real
#undef sint_r
#undef uint_r
#undef vec
#undef ivec
#undef uvec
#undef FN
#undef CYNORM_COMPUTE
#undef CYNORM_TYPES
#undef VL
