from cynorm._types cimport cynorm_tensor


cdef object checked_cache(object cache)

cdef class Workspace:
    cdef readonly str cache
    cdef dict memory         # {name: bytes that grow and never shrink}
    cdef dict views          # {name: the last array of them}
    cdef dict parts          # {name: array}, what the last forward kept
    cdef object owner        # the parameters of the operator that the last forward bound it to
    cdef cynorm_tensor src   # that call's, but for its memory
    cdef bint training       # and whether it was one of training
    cdef object notes        # whatever else the operator remembers of it
    cdef int busy
    cdef object __weakref__

    cdef int acquire(self) except -1
    cdef void release(self) noexcept
    cdef int begin(self, const cynorm_tensor *src, bint training=*) except -1
    cdef object part(self, str name, tuple shape, object dtype)
    cdef object part_like(self, str name, const cynorm_tensor *t)
    cdef int match(self, object owner, const cynorm_tensor *src, bint training=*) except -1

cdef Workspace checked_workspace(object workspace)
