cdef object as_array(object obj, str name, bint writing)
