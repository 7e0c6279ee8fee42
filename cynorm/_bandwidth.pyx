# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""One pass over memory on all threads: what `bandwidth.py` times."""

from cython.parallel cimport prange

from cynorm._dispatch cimport kernels, team_size
from libc.stdint cimport int64_t


def sweep(signed char[::1] out, const signed char[::1] first, const signed char[::1] second, int64_t chunk,
          bint streaming, int num_threads):
    """out = first (+ second), or a read of first where out is None; chunk, a multiple of 256, divides their length."""
    cdef int64_t n = first.shape[0], i
    cdef int reads = 2 if second is not None else 1, team = team_size(num_threads, n)
    cdef char *o = <char *>&out[0] if out is not None else NULL
    cdef const char *a = <const char *>&first[0]
    cdef const char *b = <const char *>&second[0] if second is not None else NULL
    for i in prange(n / chunk, nogil=True, schedule="static", num_threads=team):
        one_chunk(o, a, b, reads, i * chunk, chunk, streaming)


cdef void one_chunk(char *out, const char *a, const char *b, int reads, int64_t at, int64_t chunk,
                    bint streaming) noexcept nogil:
    cdef const char *both[2]
    both[0] = a + at
    both[1] = b + at if b != NULL else NULL
    kernels().bandwidth(out + at if out != NULL else NULL, both, reads, chunk, streaming)
    if streaming:
        kernels().fence()
