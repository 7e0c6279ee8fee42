/* AVX-512 F, BW, CD, DQ, VL */
#define CYNORM_ISA_NAME "x86-64-v4"
#define CYNORM_ISA_TABLE cynorm_kernels_x86_64_v4
#include "../../include/cynorm/kernels.h"
