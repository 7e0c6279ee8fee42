/* The architecture's own minimum: SSE2 on x86-64, NEON on aarch64. */
#if defined(__x86_64__)
#define CYNORM_ISA_NAME "x86-64"
#elif defined(__aarch64__)
#define CYNORM_ISA_NAME "aarch64"
#else
#define CYNORM_ISA_NAME "generic"
#endif
#define CYNORM_ISA_TABLE(what) cynorm_##what##_baseline
#include "../../include/cynorm/kernels.h"
