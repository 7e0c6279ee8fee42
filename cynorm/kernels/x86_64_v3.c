/* AVX2, FMA, F16C */
#define CYNORM_ISA_NAME "x86-64-v3"
#define CYNORM_ISA_TABLE cynorm_kernels_x86_64_v3
#include "../../include/cynorm/kernels.h"
