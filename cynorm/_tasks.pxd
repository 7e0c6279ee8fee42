# cython: language_level=3, cdivision=True
"""The tasks of a call, shared out among a team of threads.

Each thread has its share, the same in every phase and in every call, so that it finds in its cache what it has had
before, and no line that another one writes. Then it takes what others have left of theirs, unless their caches hold
it: a task would have to come back the next time, which makes its owner late, who loses it again.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    static inline void cynorm_barrier(void) {
    #pragma omp barrier
    }
    #else
    static inline int omp_get_num_threads(void) { return 1; }
    static inline int omp_get_thread_num(void) { return 0; }
    static inline void cynorm_barrier(void) {}
    #endif
    /* Of the calling thread, how numbers are rounded and whether subnormal ones are taken for 0. */
    #if defined(__x86_64__)
    static inline uint64_t cynorm_float_mode(void) { return __builtin_ia32_stmxcsr(); }
    static inline void cynorm_set_float_mode(uint64_t mode) { __builtin_ia32_ldmxcsr((unsigned)mode); }
    #elif defined(__aarch64__)
    static inline uint64_t cynorm_float_mode(void) {
        uint64_t mode;
        __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
        return mode;
    }
    static inline void cynorm_set_float_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
    #else
    static inline uint64_t cynorm_float_mode(void) { return 0; }
    static inline void cynorm_set_float_mode(uint64_t mode) { (void)mode; }
    #endif
    static inline int64_t cynorm_count(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL); }
    """
    int omp_get_num_threads() nogil
    int omp_get_thread_num() nogil
    void cynorm_barrier() nogil
    int64_t cynorm_count(int64_t *counter) nogil
    uint64_t cynorm_float_mode() nogil
    void cynorm_set_float_mode(uint64_t mode) nogil

# The tasks of a share that have been begun: how many in all (not counted where threads keep to their shares), from its
# front by its owner, from its end by others.
ctypedef struct share_t:
    int64_t begun, front, end
    int64_t apart[13]               # two lines of the cache, wherever it begins: no two threads write to one

ctypedef struct tasks_t:
    int64_t count
    bint separate                   # threads keep to their shares
    share_t *share                  # of each thread in every phase
    share_t alone[2]                # where one thread has them all
    uint64_t float_mode             # of the thread that called: all compute alike


cdef inline int open_tasks(tasks_t *tasks, int64_t count, int phases, int team, bint cached) noexcept nogil:
    """-1 where memory cannot be had."""
    tasks.count = count
    tasks.separate = cached or team == 1
    tasks.float_mode = cynorm_float_mode()
    tasks.share = tasks.alone
    memset(tasks.alone, 0, sizeof(tasks.alone))
    if team > 1:
        tasks.share = <share_t *>calloc(phases * team, sizeof(share_t))
    return -1 if tasks.share == NULL else 0


cdef inline void close_tasks(tasks_t *tasks) noexcept nogil:
    if tasks.share != tasks.alone:
        free(tasks.share)


cdef inline int64_t next_task(const tasks_t *tasks, int phase, int me, int team, int *passed) noexcept nogil:
    """A task that no one has begun, or -1; *passed, how many shares this thread found empty, begins at 0. Phases
    after the first go through a share from its end: what came last is still in the cache."""
    cdef int64_t begin, end, task
    cdef int owner
    cdef share_t *share
    while passed[0] < (1 if tasks.separate else team):
        owner = (me + passed[0]) % team
        share = &tasks.share[phase * team + owner]
        begin = tasks.count * owner // team
        end = tasks.count * (owner + 1) // team
        # counting by several threads waits until all that this one has written is in the cache
        if (share.front if tasks.separate else cynorm_count(&share.begun)) < end - begin:
            if owner == me:
                task = begin + share.front
                share.front += 1
            else:
                task = end - 1 - cynorm_count(&share.end)
            return begin + end - 1 - task if phase > 0 else task
        passed[0] += 1
    return -1
