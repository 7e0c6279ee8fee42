# cython: language_level=3
"""What a forward call leaves for its backward."""

from inspect import Parameter, Signature

cimport numpy as cnp

import numpy as np

from cynorm._messages import shown
from cynorm._parameters import Immutable, choice

from cynorm._types cimport cynorm_itemsize, cynorm_tensor
from cynorm._tensor cimport dtype_name, real_dtype, same_kind, shape_of
from libc.stdint cimport int64_t

cdef extern from *:
    """
    static int cynorm_take(int *flag) { return !__atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE); }
    static void cynorm_give(int *flag) { __atomic_store_n(flag, 0, __ATOMIC_RELEASE); }
    """
    bint cynorm_take(int *flag) nogil
    void cynorm_give(int *flag) nogil


cdef object checked_cache(object cache):
    return choice("cache", cache, ("auto", "always", "never"))


cdef Workspace checked_workspace(object workspace):
    """The workspace argument of a call, or None."""
    if workspace is not None and not isinstance(workspace, Workspace):
        raise TypeError(f"workspace must be a cynorm.Workspace or None, got {shown(workspace)} "
                        f"of type {type(workspace).__name__}")
    return workspace


cdef object kind_of(const cynorm_tensor *src):
    return f"shape {shape_of(src)}, {dtype_name(src.dtype)}"


cdef bint has_shape(cnp.ndarray array, tuple shape) except -1:
    cdef int i
    if cnp.PyArray_NDIM(array) != len(shape):
        return False
    for i in range(cnp.PyArray_NDIM(array)):
        if cnp.PyArray_DIM(array, i) != <int64_t>shape[i]:
            return False
    return True


cdef bint lies_like(cnp.ndarray array, const cynorm_tensor *t) except -1:
    """Whether an array of reals has a tensor's shape and strides."""
    cdef int64_t itemsize = cynorm_itemsize(t.dtype), size = cnp.PyArray_ITEMSIZE(array)
    cdef int i
    if cnp.PyArray_NDIM(array) != t.ndim or array.dtype is not real_dtype(t.dtype):
        return False
    for i in range(t.ndim):
        if cnp.PyArray_DIM(array, i) != t.shape[i]:
            return False
        if t.shape[i] > 1 and cnp.PyArray_STRIDE(array, i) * itemsize != t.strides[i] * size:
            return False
    return True


cdef class Workspace:
    """Memory that carries forward intermediates to the backward call that follows.

    Each forward call binds it to that call's operator, parameters, shape and dtype; a backward call that does not match
    raises. It is reusable: for each kind of its contents it grows to the largest call, and never shrinks. One call at a
    time may use it. Two layers alike need one each: which of them filled it is not noticed.

    Parameters
    ----------
    cache : {"auto", "always", "never"}
        Whether intermediates that backward could also recompute are kept. "auto" keeps them where reading them back
        measured faster than recomputing: nowhere so far, so that it does what "never" does. LRN's float32 and float64
        results are the same either way, others to rounding: where an activation has a kink, the derivative may be that
        of its other side. What an activation but ReLU was applied to in inference is kept in any case: a backward
        call that is given `shift` needs no workspace for it.

    Attributes
    ----------
    cache : str
        As given.
    nbytes : int
        Bytes held.
    contents : tuple of str
        Names of the intermediates that the last forward kept, empty where backward recomputes: "omega" (LRN);
        "statistics", "mask" (ReLU's bits) or "value" (what the activation was applied to) of batch normalization.

    Raises
    ------
    TypeError, ValueError
        If `cache` is none of these.

    Notes
    -----
    A copy, or what is unpickled, is an empty workspace with the same `cache`.

    Examples
    --------
    >>> import cynorm, numpy as np
    >>> src = np.ones((1, 8, 4, 4), np.float32)
    >>> lrn, workspace = cynorm.LRN(), cynorm.Workspace(cache="always")
    >>> dst = lrn.forward(src, workspace=workspace)
    >>> workspace.contents, workspace.nbytes
    (('omega',), 512)
    >>> diff_src = lrn.backward(np.ones_like(src), src, workspace=workspace)
    """

    __signature__ = Signature([Parameter("cache", Parameter.POSITIONAL_OR_KEYWORD, default="auto")])

    def __cinit__(self, *arguments, **named):
        self.cache = "auto"
        self.memory = {}
        self.views = {}
        self.parts = {}

    def __init__(self, cache="auto"):
        self.cache = checked_cache(cache)

    @property
    def nbytes(self):
        """Bytes held."""
        return sum([memory.nbytes for memory in self.memory.values()])

    @property
    def contents(self):
        """Names of the intermediates that the last forward kept."""
        return tuple(self.parts)

    def __repr__(self):
        return f"<cynorm.Workspace cache={self.cache!r} nbytes={self.nbytes} contents={self.contents}>"

    def __reduce__(self):
        return type(self), (self.cache,)  # what it holds belongs to a call of this process

    cdef int acquire(self) except -1:
        if not cynorm_take(&self.busy):
            raise RuntimeError("workspace is in use by another call")
        return 0

    cdef void release(self) noexcept:
        cynorm_give(&self.busy)

    cdef int begin(self, const cynorm_tensor *src, bint training=False) except -1:
        """Start a forward call: forget the last one. `owner` is set once it has been successful."""
        self.parts.clear()
        self.owner = None
        self.src = src[0]
        self.training = training
        self.notes = None
        return 0

    cdef object part(self, str name, tuple shape, object dtype):
        """An uninitialised array, C-contiguous, kept under this name until the next forward."""
        cdef cnp.ndarray array = self.views.get(name)
        if array is None or array.descr is not dtype or not has_shape(array, shape):
            count = dtype.itemsize
            for n in shape:
                count *= n
            memory = self.memory.get(name)
            if memory is None or memory.nbytes < count:
                memory = self.memory[name] = np.empty(count, np.uint8)
            array = self.views[name] = memory[:count].view(dtype).reshape(shape)
        self.parts[name] = array
        return array

    cdef object part_like(self, str name, const cynorm_tensor *t):
        """A part of reals of a tensor's shape, in its memory order."""
        array = self.views.get(name)
        if array is None or not lies_like(array, t):
            shape = shape_of(t)
            strides = [-abs(t.strides[i]) for i in range(t.ndim)]
            order = sorted(range(t.ndim), key=strides.__getitem__)
            self.views.pop(name, None)  # part() would take an array of this shape, whatever its order
            array = self.part(name, tuple([shape[i] for i in order]), real_dtype(t.dtype)).transpose(np.argsort(order))
            self.views[name] = array
        self.parts[name] = array
        return array

    cdef int match(self, object owner, const cynorm_tensor *src, bint training=False) except -1:
        """Refuse a backward call other than that of the last forward."""
        if self.owner is None:
            raise ValueError("workspace holds no forward call; pass it to forward first")
        if self.owner is not owner and not Immutable.__eq__(self.owner, owner):  # whatever a subclass makes of it
            raise ValueError(f"workspace was filled by {self.owner}, got a backward of {owner}")
        if not same_kind(&self.src, src) or self.training != training:
            filled, got = kind_of(&self.src), kind_of(src)
            if self.training != training:
                filled += ", in training" if self.training else ", in inference"
                got += ", in training" if training else ", in inference"
            raise ValueError(f"workspace was filled by a forward of {filled}, got a backward of {got}")
        return 0
