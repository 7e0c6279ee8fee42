/* The tables built for this architecture, best first, and whether this machine (CPU and OS) can run each. */

#include "../../include/cynorm/tiles.h"

extern const cynorm_kernels cynorm_kernels_baseline;

#if defined(__x86_64__)

#include <cpuid.h>

extern const cynorm_kernels cynorm_kernels_x86_64_v3, cynorm_kernels_x86_64_v4;

static const cynorm_kernels *const cynorm_tables[] = {&cynorm_kernels_x86_64_v4, &cynorm_kernels_x86_64_v3,
                                                      &cynorm_kernels_baseline};

/* The parts of x86-64-v3 for which compilers' runtimes have no common name. */
static int cynorm_has_rest_of_v3(void) {
    unsigned a, b, basic, extended, d;
    return __get_cpuid(1, &a, &b, &basic, &d) && basic & bit_F16C && basic & bit_MOVBE &&
           __get_cpuid(0x80000001, &a, &b, &extended, &d) && extended & bit_LZCNT;
}

/* The compiler's runtime asks XGETBV too: an AVX that the OS does not save counts as absent. */
static int cynorm_table_runs(int i) {
    __builtin_cpu_init();
    int v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2") && cynorm_has_rest_of_v3();
    if (i == 0)
        return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    return i == 1 ? v3 : 1;
}

/* Whether memory is fetched as fast by lines that lie planes apart as along rows. An Intel core fetches rows ahead by itself, into
 * its second-level cache; all else waits for one of the first-level cache's 16 fill buffers. */
static int cynorm_fetches_far_lines(void) {
    __builtin_cpu_init();
    return !__builtin_cpu_is("intel");
}

#else

static const cynorm_kernels *const cynorm_tables[] = {&cynorm_kernels_baseline};
static int cynorm_table_runs(int i) { return i == 0; }
static int cynorm_fetches_far_lines(void) { return 1; }

#endif

enum { CYNORM_TABLES = sizeof(cynorm_tables) / sizeof(cynorm_tables[0]) };

/* ---- libgomp hangs in the child of a process that has used it: after such a fork, one thread ---- */

static int cynorm_threads_forbidden, cynorm_threads_used;
#if defined(_WIN32)
static void cynorm_watch_fork(void) {}
#else
#include <pthread.h>
static void cynorm_after_fork(void) { cynorm_threads_forbidden = cynorm_threads_used; }
static void cynorm_watch_fork(void) { pthread_atfork(NULL, NULL, cynorm_after_fork); }
#endif
