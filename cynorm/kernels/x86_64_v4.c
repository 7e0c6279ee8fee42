/* AVX-512 F, BW, CD, DQ, VL */
#define CYNORM_ISA_NAME "x86-64-v4"
#define CYNORM_ISA_TABLE(what) cynorm_##what##_x86_64_v4
#include "../../include/cynorm/kernels.h"
