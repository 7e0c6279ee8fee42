# cython: language_level=3, boundscheck=False, wraparound=False
"""The public C API: what cynorm.h promises to check, and the capsule for C extensions."""

from cpython.pycapsule cimport PyCapsule_New
from libc.math cimport isfinite
from cynorm cimport _batch_norm, _lrn
from cynorm._types cimport (
    CYNORM_ACTIVATIONS, CYNORM_API_VERSION, CYNORM_BAD_PARAMETER, CYNORM_BAD_TENSOR, CYNORM_BN_ADD,
    CYNORM_BN_BACKWARD_INFERENCE, CYNORM_BN_DIFF_ADD, CYNORM_BN_DIFF_DST, CYNORM_BN_DIFF_SCALE, CYNORM_BN_DIFF_SHIFT,
    CYNORM_BN_DST, CYNORM_BN_FORWARD_INFERENCE, CYNORM_BN_FORWARD_TRAINING, CYNORM_BN_KEPT_MEAN, CYNORM_BN_KEPT_SHIFT,
    CYNORM_BN_MASK, CYNORM_BN_MEAN, CYNORM_BN_MEAN_LOW, CYNORM_BN_PARAMETERS, CYNORM_BN_RSTD, CYNORM_BN_RUNNING_MEAN,
    CYNORM_BN_RUNNING_VARIANCE, CYNORM_BN_SHIFT, CYNORM_BN_SRC, CYNORM_BN_VALUE, CYNORM_BN_VARIANCE, CYNORM_BN_VIEWS,
    CYNORM_CELU, CYNORM_IDENTITY, CYNORM_MISMATCH, CYNORM_NO_MEMORY, CYNORM_OK, CYNORM_RELU, CYNORM_S8, CYNORM_SOFTPLUS,
    cynorm_api, cynorm_bn, cynorm_bn_call,
)
from cynorm._tensor cimport real_of, same_shape


cdef int check_tensor(const cynorm_tensor *t, bint integers) noexcept nogil:
    cdef int i
    cdef int64_t elements = 1
    cdef bint empty = False
    if t == NULL or not 1 <= t.ndim <= 8:
        return CYNORM_BAD_TENSOR
    if not 0 <= t.dtype < CYNORM_S8 and not (integers and t.dtype == CYNORM_S8):
        return CYNORM_BAD_TENSOR
    for i in range(t.ndim):
        if t.shape[i] < 0 or t.shape[i] > 0 and elements > (<int64_t>1 << 62) // t.shape[i]:
            return CYNORM_BAD_TENSOR
        elements *= t.shape[i] if t.shape[i] > 0 else 1
        empty |= t.shape[i] == 0
    return CYNORM_BAD_TENSOR if t.data == NULL and not empty else CYNORM_OK


cdef int check_like(const cynorm_tensor *t, const cynorm_tensor *src, int dtype) noexcept nogil:
    """A tensor of src's shape and of a given data type."""
    cdef int status = check_tensor(t, True)
    if status != CYNORM_OK:
        return status
    return CYNORM_OK if t.dtype == dtype and same_shape(t, src) else CYNORM_MISMATCH


# ---- LRN ----

cdef int check_lrn(const cynorm_lrn *p, const cynorm_tensor *src) noexcept nogil:
    cdef int status = check_tensor(src, False)
    cdef int64_t held, last = <int64_t>p.spatial_axis + p.spatial
    if status != CYNORM_OK:
        return status
    if p.left < 0 or p.right < 0 or p.channels < 0 or p.block < 0:
        return CYNORM_BAD_PARAMETER
    if not 0 <= p.spatial <= 3 or not 0 <= p.within_channel <= 1:
        return CYNORM_BAD_PARAMETER
    if not (isfinite(p.alpha) and isfinite(p.beta) and isfinite(p.k)):
        return CYNORM_BAD_PARAMETER
    if src.ndim != 2 + p.spatial + (p.block > 0) or not 1 <= p.channel_axis < src.ndim:
        return CYNORM_MISMATCH
    if p.spatial > 0 and (p.spatial_axis < 1 or last > src.ndim or p.spatial_axis <= p.channel_axis < last):
        return CYNORM_MISMATCH
    if p.block > 0:
        held = src.shape[p.channel_axis] * p.block
        if p.channel_axis != 1 or p.spatial > 0 and p.spatial_axis != 2 or src.shape[src.ndim - 1] != p.block:
            return CYNORM_MISMATCH
        if p.channels > 0 and not held - p.block < p.channels <= held:
            return CYNORM_MISMATCH
    elif p.channels > 0 and src.shape[p.channel_axis] != p.channels:
        return CYNORM_MISMATCH
    return CYNORM_OK


cdef int run_lrn(const cynorm_lrn *p, const cynorm_tensor *const *views, bint backward, int num_threads) noexcept nogil:
    cdef const cynorm_tensor *src = views[_lrn.SRC]
    cdef int i, status = check_lrn(p, src)
    for i in range(_lrn.VIEWS):
        if status == CYNORM_OK and (views[i] != NULL or i == _lrn.DST or i == _lrn.DIFF_DST and backward):
            status = check_like(views[i], src, real_of(src.dtype) if i == _lrn.OMEGA else src.dtype)
    if status != CYNORM_OK:
        return status
    return CYNORM_NO_MEMORY if _lrn.lrn_run(p, views, backward, NULL, num_threads) < 0 else CYNORM_OK


cdef int lrn_forward(const cynorm_lrn *p, const cynorm_tensor *src, const cynorm_tensor *dst,
                     const cynorm_tensor *omega, int num_threads) noexcept nogil:
    cdef const cynorm_tensor **views = [src, NULL, NULL, dst, omega]
    return run_lrn(p, views, False, num_threads)


cdef int lrn_backward(const cynorm_lrn *p, const cynorm_tensor *diff_dst, const cynorm_tensor *src,
                      const cynorm_tensor *dst, const cynorm_tensor *diff_src, const cynorm_tensor *omega,
                      int num_threads) noexcept nogil:
    cdef const cynorm_tensor **views = [src, diff_dst, dst, diff_src, omega]
    return run_lrn(p, views, True, num_threads)


# ---- BN ----

cdef cynorm_bn_call used_of(const cynorm_bn *p, const cynorm_bn_call *call) noexcept nogil:
    """The call without the tensors that its pass, or its activation, does not use."""
    cdef cynorm_bn_call used = call[0]
    if call.kind in (CYNORM_BN_FORWARD_TRAINING, CYNORM_BN_FORWARD_INFERENCE):
        used.data[CYNORM_BN_DIFF_DST] = used.data[CYNORM_BN_DIFF_ADD] = NULL
        used.parameter[CYNORM_BN_DIFF_SCALE] = used.parameter[CYNORM_BN_DIFF_SHIFT] = NULL
    else:
        used.data[CYNORM_BN_ADD] = NULL
    if call.kind != CYNORM_BN_FORWARD_TRAINING:
        used.parameter[CYNORM_BN_RUNNING_MEAN] = used.parameter[CYNORM_BN_RUNNING_VARIANCE] = NULL
        used.parameter[CYNORM_BN_KEPT_MEAN] = used.parameter[CYNORM_BN_KEPT_SHIFT] = NULL
    if call.kind == CYNORM_BN_FORWARD_INFERENCE:
        used.parameter[CYNORM_BN_MEAN_LOW] = used.parameter[CYNORM_BN_RSTD] = NULL
    if p.activation != CYNORM_RELU:
        used.data[CYNORM_BN_MASK] = NULL
    if p.activation in (CYNORM_IDENTITY, CYNORM_RELU):
        used.data[CYNORM_BN_VALUE] = NULL
    return used


cdef int check_batch_norm(const cynorm_bn *p, const cynorm_bn_call *call) noexcept nogil:
    cdef const cynorm_tensor *src = call.data[CYNORM_BN_SRC]
    cdef const cynorm_tensor *t
    cdef bint backward = call.kind not in (CYNORM_BN_FORWARD_TRAINING, CYNORM_BN_FORWARD_INFERENCE)
    cdef bint running
    cdef int i, status = check_tensor(src, call.kind == CYNORM_BN_FORWARD_INFERENCE)
    if status != CYNORM_OK:
        return status
    if not (p.epsilon >= 0 and isfinite(p.epsilon)) or not 0 <= p.activation < CYNORM_ACTIVATIONS:
        return CYNORM_BAD_PARAMETER
    if not (isfinite(p.parameter[0]) and isfinite(p.parameter[1])):
        return CYNORM_BAD_PARAMETER
    if p.activation in (CYNORM_CELU, CYNORM_SOFTPLUS) and p.parameter[0] == 0:
        return CYNORM_BAD_PARAMETER
    running = call.parameter[CYNORM_BN_RUNNING_MEAN] != NULL or call.parameter[CYNORM_BN_RUNNING_VARIANCE] != NULL
    if running and not 0 <= p.momentum <= 1:
        return CYNORM_BAD_PARAMETER
    if not 0 <= call.kind <= CYNORM_BN_BACKWARD_INFERENCE or call.reduced >> src.ndim:
        return CYNORM_BAD_PARAMETER
    if call.data[CYNORM_BN_DST] == NULL or (backward and call.data[CYNORM_BN_DIFF_DST] == NULL):
        return CYNORM_BAD_TENSOR
    if backward and p.activation == CYNORM_RELU and call.data[CYNORM_BN_MASK] == NULL:
        return CYNORM_BAD_TENSOR
    for i in range(CYNORM_BN_VIEWS):
        t = call.data[i]
        if t != NULL:
            status = check_like(t, src, real_of(src.dtype) if i == CYNORM_BN_VALUE else src.dtype)
            if status != CYNORM_OK:
                return status
    return check_statistics(call, src)


cdef int check_statistics(const cynorm_bn_call *call, const cynorm_tensor *src) noexcept nogil:
    cdef const cynorm_tensor **given = <const cynorm_tensor **>call.parameter
    cdef int i, a
    cdef int64_t statistics = 1
    cdef bint exact = given[CYNORM_BN_MEAN_LOW] != NULL and given[CYNORM_BN_RSTD] != NULL
    if call.kind != CYNORM_BN_FORWARD_TRAINING:
        if given[CYNORM_BN_MEAN] == NULL:
            return CYNORM_BAD_TENSOR
        if given[CYNORM_BN_VARIANCE] == NULL and (call.kind == CYNORM_BN_FORWARD_INFERENCE or not exact):
            return CYNORM_BAD_TENSOR
    if given[CYNORM_BN_KEPT_SHIFT] != NULL and given[CYNORM_BN_SHIFT] == NULL:
        return CYNORM_BAD_TENSOR
    for a in range(src.ndim):
        if not call.reduced >> a & 1:
            statistics *= src.shape[a]
    for i in range(CYNORM_BN_PARAMETERS):
        if given[i] == NULL:
            continue
        if given[i].data == NULL and statistics > 0:
            return CYNORM_BAD_TENSOR
        if not same_shape(given[i], src) or given[i].dtype not in (src.dtype, real_of(src.dtype)):
            return CYNORM_MISMATCH
        for a in range(src.ndim):
            if call.reduced >> a & 1 and src.shape[a] > 1 and given[i].strides[a] != 0:
                return CYNORM_MISMATCH
    return CYNORM_OK


cdef int batch_norm(const cynorm_bn *p, const cynorm_bn_call *call, int num_threads) noexcept nogil:
    cdef cynorm_bn_call used = used_of(p, call)
    cdef int status = check_batch_norm(p, &used)
    if status != CYNORM_OK:
        return status
    return CYNORM_NO_MEMORY if _batch_norm.bn_run(p, &used, 0, num_threads) < 0 else CYNORM_OK


cdef int64_t batch_norm_mask(const cynorm_bn *p, const cynorm_bn_call *call, int64_t *strides) noexcept nogil:
    cdef cynorm_bn_call used = used_of(p, call)
    cdef int status = check_batch_norm(p, &used)
    return status if status != CYNORM_OK else _batch_norm.bn_mask(p, &used, strides)


cdef cynorm_api api
api.version = CYNORM_API_VERSION
api.lrn_forward = lrn_forward
api.lrn_backward = lrn_backward
api.batch_norm = batch_norm
api.batch_norm_mask = batch_norm_mask
_C_API = PyCapsule_New(&api, "cynorm._C_API", NULL)
