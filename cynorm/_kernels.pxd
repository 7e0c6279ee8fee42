"""include/cynorm/tiles.h, for Cython."""

from cynorm._types cimport cynorm_activation
from libc.stdint cimport int64_t


cdef extern from "cynorm/tiles.h" nogil:
    ctypedef struct cynorm_lrn_view:
        char *data
        int64_t streamed
        int64_t stride[3]
        int dtype

    enum:
        CYNORM_COLUMN_SLABS, CYNORM_COPIED_PLANE, CYNORM_LRN_COLUMNS, CYNORM_LRN_CHANNELS, CYNORM_LRN_LINES,
        CYNORM_LRN_COPIED, CYNORM_LRN_VOLUMES, CYNORM_REACH, CYNORM_SUM_DIRECT, CYNORM_TRANSPOSED_MOST,
        CYNORM_TRANSPOSED_PIXELS

    ctypedef struct cynorm_lrn_window:
        int64_t step, left, right

    ctypedef struct cynorm_lrn_tile:
        double k, alpha, beta
        int64_t extent, begin, end, part, left, right
        int64_t count[3]
        int64_t pitch[3]
        int64_t origin, size, missing, behind
        int64_t grouped, last_group
        int64_t before, after
        int64_t reach_terms[3][2]
        int64_t reach_src[3][2]
        cynorm_lrn_window window[2]
        int windows
        int64_t rows
        int trees
        int far_lines
        int cut
        int streaming, followed
        cynorm_lrn_view src, diff_dst, y, dst, omega
        cynorm_lrn_view view[5]
        void *scratch

    enum:
        CYNORM_BN_KEPT_AHEAD, CYNORM_BN_SCRATCH, CYNORM_BN_PACKED

    ctypedef struct cynorm_bn_view:
        char *data
        int64_t stride[3]
        int64_t block
        int dtype, packed

    ctypedef struct cynorm_bn_tile:
        int kept_inner
        int64_t count[3]
        int64_t repeat, split, blocks, row
        int packs
        cynorm_bn_view view[7]
        int64_t bit
        cynorm_bn_view gradient
        const void *center
        const void *norm
        const void *gain
        const void *bias
        const void *slope
        const void *offset
        void *sums
        int64_t next[2]
        int64_t jump[2]
        int64_t last_images
        cynorm_activation activation
        double parameter[2]
        int streaming, training, fetches
        void *scratch

    ctypedef struct cynorm_bn_unit:
        int kept_inner
        int64_t n, spread, repeat, count
        double epsilon
        char *sums
        int64_t chunks, chunk_bytes, part_bytes
        const void *scale
        const void *shift
        void *mean
        void *mean_low
        void *variance
        void *rstd
        void *diff_scale
        void *diff_shift
        void *center
        void *norm
        void *gain
        void *bias
        void *slope
        void *offset

    ctypedef struct cynorm_real_kernels:
        size_t (*lrn_scratch)(const cynorm_lrn_tile *) noexcept nogil
        int (*lrn_taken_by)(const cynorm_lrn_tile *) noexcept nogil
        void (*lrn)(const cynorm_lrn_tile *) noexcept nogil
        int64_t lrn_plane_reach
        int64_t lrn_fewest
        int64_t (*bn_sums_bytes)(int, int64_t) noexcept nogil
        void (*bn_sums)(const cynorm_bn_tile *) noexcept nogil
        void (*bn_apply)(const cynorm_bn_tile *, const cynorm_bn_tile *) noexcept nogil
        void (*bn_statistics)(const cynorm_bn_unit *) noexcept nogil
        void (*bn_coefficients)(const cynorm_bn_unit *) noexcept nogil
        void (*bn_gradients)(const cynorm_bn_unit *, int) noexcept nogil
        void (*load_row)(void *, const char *, int, int64_t, int64_t) noexcept nogil
        void (*store_row)(char *, const void *, int, int64_t, int64_t) noexcept nogil

    ctypedef struct cynorm_kernels:
        const char *name
        const cynorm_real_kernels *real[2]
        double (*bandwidth)(char *, const char **, int, int64_t, int) noexcept nogil
        void (*fence)() noexcept nogil
