/* AVX2, FMA, F16C */
#define CYNORM_ISA_NAME "x86-64-v3"
#define CYNORM_ISA_TABLE(what) cynorm_##what##_x86_64_v3
#include "../../include/cynorm/kernels.h"
