# cython: language_level=3
"""What loops are chosen by, the kernel table above all, and the number of threads: what a program may change."""

import os
from contextlib import contextmanager

from cynorm._messages import hint, shown
from cynorm._parameters import index

from cynorm._kernels cimport cynorm_kernels
from libc.stdint cimport int64_t

cdef extern from "kernels/tables.h" nogil:
    const cynorm_kernels *cynorm_tables[]
    const int CYNORM_TABLES
    int cynorm_table_runs(int i)
    int cynorm_fetches_far_lines()
    int cynorm_threads_forbidden, cynorm_threads_used
    void cynorm_watch_fork()

cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    #define CYNORM_OPENMP _OPENMP
    #else
    static int omp_get_max_threads(void) { return 1; }
    static int omp_get_num_procs(void) { return 1; }
    #define CYNORM_OPENMP 0
    #endif

    #if defined(__clang__)
    #define CYNORM_COMPILER __VERSION__
    #else
    #define CYNORM_COMPILER "GCC " __VERSION__
    #endif
    """
    int omp_get_max_threads() nogil
    int omp_get_num_procs() nogil
    const int CYNORM_OPENMP
    const char *CYNORM_COMPILER
    const char *CYNORM_FLAGS         # given by setup.py

cdef const cynorm_kernels *table = NULL
cdef bint far_lines = cynorm_fetches_far_lines()
cdef int threads = 0  # 0: whatever OpenMP would use

# Below this much data a team costs more than it saves. More threads than TEAM, and than some for each CPU, gain
# nothing, and OpenMP ends a process that cannot create them.
cdef enum:
    SERIAL_BYTES = 1 << 16
    MOST_THREADS = 1 << 16
    TEAM = 64


cdef const cynorm_kernels *kernels() noexcept nogil:
    return table


cdef bint fetches_far_lines() noexcept nogil:
    return far_lines


cdef int team_size(int requested, int64_t nbytes) noexcept nogil:
    """How many threads a call whose src has nbytes gets; `requested` 0 asks for the default."""
    global cynorm_threads_used
    cdef int n = requested if requested > 0 else get_threads()
    if nbytes < SERIAL_BYTES or cynorm_threads_forbidden:
        return 1
    if n > TEAM:
        n = max(TEAM, min(n, 4 * omp_get_num_procs()))
    if n > 1:
        cynorm_threads_used = 1
    return n


cdef int get_threads() noexcept nogil:
    return 1 if cynorm_threads_forbidden else threads if threads > 0 else omp_get_max_threads()


cdef int requested_threads(object num_threads) except -1:
    """The num_threads argument of a call, checked; 0 for None."""
    return 0 if num_threads is None else checked_threads(num_threads, "num_threads")


cpdef int checked_threads(object threads, str name) except -1:
    """A number of threads, as any argument says it."""
    try:
        number = index(threads)
    except TypeError:
        raise TypeError(f"{name} must be an integer of at least 1 or None, got {shown(threads)}") from None
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {shown(threads)}")
    if number > MOST_THREADS:
        raise ValueError(f"{name} must be at most {MOST_THREADS}, got {shown(threads)}")
    return number


def set_num_threads(n):
    """Set how many threads each later call uses, in the whole process.

    Parameters
    ----------
    n : int or None
        From 1 to 65536; a call uses at most 64, or 4 for each CPU where that is more. None goes back to OpenMP's
        default: ``OMP_NUM_THREADS``, else the CPUs this process may use, unless another library that shares OpenMP,
        as PyTorch may, has set another for the calling thread.

    Raises
    ------
    TypeError, ValueError
        If `n` is no integer, or out of that range.

    Notes
    -----
    Results are the same to the last bit for any number of threads. Small calls run on the calling thread alone, and
    so do all in a process forked from one in which cynorm has used threads.

    Examples
    --------
    >>> import cynorm
    >>> cynorm.set_num_threads(1)
    >>> cynorm.get_num_threads()
    1
    >>> cynorm.set_num_threads(None)
    """
    global threads
    threads = 0 if n is None else checked_threads(n, "n")


def get_num_threads():
    """The number of threads a call uses at most when it does not say.

    Examples
    --------
    >>> import cynorm
    >>> cynorm.get_num_threads() >= 1
    True
    """
    return get_threads()


def available_isas():
    """The instruction sets that are built in and that this machine can run, plainest first.

    Examples
    --------
    >>> import cynorm
    >>> cynorm.isa() in cynorm.available_isas()
    True
    """
    return tuple(cynorm_tables[i].name.decode() for i in reversed(range(CYNORM_TABLES)) if cynorm_table_runs(i))


def built_isas():
    """The instruction sets that are built in, plainest first."""
    return tuple(cynorm_tables[i].name.decode() for i in reversed(range(CYNORM_TABLES)))


def isa():
    """The instruction set in force, for example ``"x86-64-v4"``; the environment's ``CYNORM_ISA`` forces one.

    Examples
    --------
    >>> import cynorm
    >>> isinstance(cynorm.isa(), str)
    True
    """
    return table.name.decode()


def build():
    """The compiler, its flags and OpenMP's version, for `cynorm.config`."""
    flags = dict(item.split(": ") for item in CYNORM_FLAGS.decode().split("; "))
    return {"compiler": CYNORM_COMPILER.decode(), "flags": flags, "openmp": CYNORM_OPENMP or None}


def _select(name):
    global table
    for i in range(CYNORM_TABLES):
        if cynorm_table_runs(i) and (name is None or cynorm_tables[i].name.decode() == name):
            table = cynorm_tables[i]
            return
    isas = available_isas()
    raise ValueError(f"CYNORM_ISA must be one of {', '.join(isas)} on this machine, got {name!r}{hint(name, isas)}")


@contextmanager
def use_isa(name):
    """Run the block on another instruction set; for tests, and not while other threads compute."""
    before = isa()
    _select(name)
    try:
        yield
    finally:
        _select(before)


@contextmanager
def use_far_lines(fetches):
    """Run the block as on a machine that fetches far lines as fast as rows, or on another; for tests, likewise."""
    global far_lines
    before, far_lines = far_lines, fetches
    try:
        yield
    finally:
        far_lines = before


_select(os.environ.get("CYNORM_ISA") or None)
cynorm_watch_fork()
