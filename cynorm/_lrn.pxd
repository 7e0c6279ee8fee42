from cynorm._types cimport cynorm_lrn, cynorm_tensor

# What a call's tensors are, NULL where absent; Y is dst as backward is given it.
cdef enum:
    SRC, DIFF_DST, Y, DST, OMEGA, VIEWS

# -1 where memory cannot be had; nothing is checked here. *order, or NULL: forward tells backward how it summed omega.
cdef int lrn_run(const cynorm_lrn *p, const cynorm_tensor *const *views, bint backward, int *order,
                 int num_threads) noexcept nogil
