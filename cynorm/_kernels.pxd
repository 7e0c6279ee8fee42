"""The contract of include/cynorm/cynorm.h, for Cython."""

from libc.stdint cimport int64_t


cdef extern from "cynorm/cynorm.h" nogil:
    ctypedef enum cynorm_dtype:
        CYNORM_F32, CYNORM_F64, CYNORM_F16, CYNORM_BF16, CYNORM_S8, CYNORM_DTYPES

    int64_t cynorm_itemsize(int dtype)

    ctypedef struct cynorm_tensor:
        char *data
        int dtype
        int ndim
        int64_t shape[8]
        int64_t strides[8]

    ctypedef struct cynorm_lrn_view:
        char *data
        int64_t streamed
        int64_t stride[3]
        int dtype

    ctypedef struct cynorm_lrn_window:
        int64_t step, left, right

    ctypedef struct cynorm_lrn_tile:
        double k, alpha, beta
        int64_t extent, begin, end, left, right
        int64_t count[3]
        int64_t pitch[3]
        int64_t origin, size, missing
        int64_t grouped, last_group
        int64_t reach_terms[3][2]
        int64_t reach_src[3][2]
        cynorm_lrn_window window[2]
        int windows
        int cut
        int streaming
        cynorm_lrn_view src, diff_dst, y, dst, omega
        void *scratch

    ctypedef struct cynorm_real_kernels:
        size_t (*lrn_scratch)(const cynorm_lrn_tile *, int) noexcept nogil
        void (*lrn_forward)(const cynorm_lrn_tile *) noexcept nogil
        void (*lrn_backward)(const cynorm_lrn_tile *) noexcept nogil

    ctypedef struct cynorm_kernels:
        const char *name
        cynorm_real_kernels real[2]
        double (*bandwidth)(char *, const char **, int, int64_t, int) noexcept nogil
        void (*fence)() noexcept nogil
