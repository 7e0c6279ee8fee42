# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Batch normalization over arrays: which tiles a call is made of, in which order, by which thread.

The axes of a call are either reduced (statistics are over them) or kept; those that follow on in memory are
merged. The innermost one is a row:

    reduced innermost   row: reduced axis   group: innermost kept axis   groups: next reduced axis   (NCHW)
    kept innermost      row: kept axis      -                            groups: first reduced axis  (NHWC)

Where reduced rows are small planes, there are many of them and the kept axis follows on, both are one kept row: a
statistic then has as many columns as a plane has elements, which are summed on their own first (`spread_rows`).
Likewise where there are gaps between many reduced rows, each a kept row of its own. Where small planes are few, the
kept axis is taken as the innermost one, though it is packed for that (`turn_short_rows`). Short kept rows with gaps are
packed as well (`pack_gaps`).

The rest of the kept axes, and the row or group where it is cut, enumerate the units: statistics that are worked out
together. The rest of the reduced axes, and the groups where they are cut, enumerate the chunks of a unit. A unit of
one chunk is summed and applied in one go, so that its second pass finds it in the cache, or applied while the next
unit is summed (`run_beside`); likewise any chunk of inference's gradient, which does not wait for sums. Else all
chunks are summed, then all are applied, last first: those of a unit, where threads share units evenly, or those of
the whole call. The thread that sums a unit's last chunk works out its statistics. Cuts depend on the shape alone,
and the sums of chunks are added in order. Several short units are joined into one (`join_short_units`). Gradients
through other activations than ReLU are left by sums for results, if there is room (`place_gradient`).

Tensors of one call may differ in memory order. Axes are then in the order of the tensor that leaves the fewest others
to be packed; kernels pack these by slabs of a tile. Units are then wide, and channels in blocks are taken with the
blocks that follow (`join_blocks`), so that slabs use whole runs of memory.
"""

from collections import namedtuple

cimport numpy as cnp
import numpy as np
from cython.parallel cimport parallel

from cynorm._dispatch import isa
from cynorm._messages import shown

from cynorm._dispatch cimport fetches_far_lines, kernels, requested_threads, team_size
from cynorm._interop cimport as_array
from cynorm._kernels cimport (
    CYNORM_BN_KEPT_AHEAD, CYNORM_BN_PACKED, CYNORM_BN_SCRATCH, cynorm_bn_tile, cynorm_bn_unit, cynorm_bn_view,
    cynorm_real_kernels,
)
from cynorm._tasks cimport (
    close_tasks, cynorm_barrier, cynorm_count, cynorm_float_mode, cynorm_set_float_mode, next_task, omp_get_num_threads,
    omp_get_thread_num, open_tasks, tasks_t,
)
from cynorm._tensor cimport (
    ELEMENT_BITS, aligned, ceil_div, check_layout, check_memory, check_outputs, clear_bytes, describe, describe_like,
    describe_parameter, describe_shape, elements_of, empty_like, new_array, new_array_like, output_array, output_like,
    real_dtype, real_size, round_up, same_memory, shape_of, short_name, total_bytes, zero_padding,
)
from cynorm._types cimport (
    CYNORM_BF16, CYNORM_BN_ADD, CYNORM_BN_DIFF_ADD, CYNORM_BN_DIFF_DST, CYNORM_BN_DST, CYNORM_BN_MASK, CYNORM_BN_SRC,
    CYNORM_BN_VALUE, CYNORM_F64, CYNORM_IDENTITY, CYNORM_RELU, CYNORM_S8, cynorm_activation, cynorm_bn, cynorm_bn_call,
    cynorm_bn_pass, cynorm_itemsize, cynorm_tensor,
)
from cynorm._types cimport (
    CYNORM_BN_FORWARD_TRAINING as FORWARD_TRAINING,
    CYNORM_BN_FORWARD_INFERENCE as FORWARD_INFERENCE,
    CYNORM_BN_BACKWARD_TRAINING as BACKWARD_TRAINING,
    CYNORM_BN_BACKWARD_INFERENCE as BACKWARD_INFERENCE,
    CYNORM_BN_SCALE as SCALE,
    CYNORM_BN_SHIFT as SHIFT,
    CYNORM_BN_MEAN as MEAN,
    CYNORM_BN_MEAN_LOW as MEAN_LOW,
    CYNORM_BN_VARIANCE as VARIANCE,
    CYNORM_BN_RSTD as RSTD,
    CYNORM_BN_RUNNING_MEAN as RUNNING_MEAN,
    CYNORM_BN_RUNNING_VARIANCE as RUNNING_VARIANCE,
    CYNORM_BN_KEPT_MEAN as KEPT_MEAN,
    CYNORM_BN_KEPT_SHIFT as KEPT_SHIFT,
    CYNORM_BN_DIFF_SCALE as DIFF_SCALE,
    CYNORM_BN_DIFF_SHIFT as DIFF_SHIFT,
    CYNORM_BN_PARAMETERS as PARAMETERS,
    CYNORM_BN_VIEWS as VIEWS,
)
from cynorm._workspace cimport Workspace, checked_cache, checked_workspace
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, llabs, malloc
from libc.string cimport memmove, memset

cdef enum:
    AXES = 8
    LINE = 64                       # bytes
    VECTOR = 16                     # statistics: pieces of rows have whole vectors
    ROW = 4096                      # elements: a longer kept row is cut
    BLOCK = 64                      # elements: a shorter kept row is repeated, as kernels take this many,
    SHORT_BLOCK = 16                # or, in blocks too short to leave the cache, this few
    REPEATED = 5 << 10              # bytes: the most reals of repeated rows, twice as many in inference
    SHORT_UNIT = 1 << 14            # bytes: the largest unit of several blocks,
    JOINED_UNIT = 1 << 17           # or, where enough units are left: TASKS
    GROUP = 8192                    # bytes: short reduced rows are grouped to about this length,
    RUN = 1 << 18                   # likewise all rows of inference, which visits nothing twice,
    UNIT = 1 << 19                  # as long as a unit stays within this;
    FEWEST_UNITS = 16               # if so many are left, units are as large as JOINED_UNIT
    GRADIENT = 1 << 20              # bytes: the most reals that sums leave for results: of a unit, or of all chunks
    SPREAD = 49                     # elements: the longest reduced row that is a part of a kept one,
    SPREAD_WIDE = 8                 # for float64,
    SPREAD_IMAGES = 8               # where images are at least this many, and as many as elements,
    SPREAD_SHORT = 32               # or twice SPREAD_IMAGES if elements are no more than this;
    SPREAD_COLUMNS = 512            # pieces of these have at least this many columns
    ALONE = 512                     # elements: the longest reduced row that is a kept one of one statistic,
    ALONE_LEAST = 8                 # and the shortest, unless there are as many as GAPPED_ROWS;
    ALONE_ROWS = 48                 # of at least this many rows, and as many as elements;
    GAPPED = 10                     # elements: shorter kept rows with gaps between them are packed,
    GAPPED_ROWS = 512               # if there are at least this many
    TURNED = 12                     # elements: the longest reduced row that is turned into parts of kept ones,
    TURNED_BYTES = 16               # and the fewest bytes of one
    PACKED_ROW = 128                # statistics: the fewest of those; packed kept rows no shorter are not repeated
    ACROSS = 1024                   # bytes: the most of a unit's statistics where views are packed;
    SHORT = 256                     # fewer than this are joined by the next axis of statistics
    LARGE = 1 << 22                 # bytes moved: from this many on, tensors exceed any core's second-level cache
    ROW_PART = 1024                 # elements: pieces of reduced rows are multiples of this
    CHUNK = 1 << 16                 # a chunk has at least this many bytes of reals
    CHUNK_ROWS = 64                 # likewise elements of each statistic
    FAR_PIVOT = 1 << 14             # elements of a statistic: from this many on, its pivot is looked for
    FEWEST_ROWS = 32                # of so many rows, but too few for two chunks, long ones of whole lines are cut
    PART = 1 << 12                  # to about this many bytes of reals
    MERGE = 8                       # rows of a chunk for each chunk, where one thread adds up sums as long as rows
    TASKS = 64                      # chunks are cut to have about this many tasks
    FEW_TASKS = 8                   # this many are enough where a unit fits the cache
    STREAMING = 1 << 23             # bytes moved, from which on outputs bypass the cache: the least,
    MOST_STREAMING = 3 << 23        # and the most; in between, three quarters of the last level of cache
    EVENLY = 4                      # units of each thread: with fewer, one that is held up would hold up all
    BESIDE = 1 << 21                # bytes: the most that sums of a unit read, if it leaves while the next is summed,
    BESIDE_NEAR = 1 << 20           # where both have to fit the second-level cache, as the next level is far away
    PREPARED = 64                   # statistics: units of fewer leave what follows from given ones to one call for all
    SUMS = 1                        # the steps of a task
    FINISH = 2
    COMBINE = 4
    PHASES = 2

cdef extern from *:
    """
    #ifndef _WIN32
    #include <unistd.h>
    #endif
    static int64_t cynorm_last_cache(void) {
    #ifdef _SC_LEVEL3_CACHE_SIZE
        return sysconf(_SC_LEVEL3_CACHE_SIZE);
    #else
        return 0;
    #endif
    }
    """
    int64_t cynorm_last_cache() nogil

# A call that moves fewer bytes leaves its output in the cache for whoever reads it. Virtual machines may report a
# cache of which they have only a part: hence the bounds.
cdef int64_t streaming_from = min(max(cynorm_last_cache() // 4 * 3, STREAMING), MOST_STREAMING)

# Arrays of one real per statistic: a parameter's has its number. Coefficients, one array each, have the numbers of
# parameters that are copies, and further ones; arrays from DIFF_SCALE on are for backward.
cdef enum:
    CENTER = RUNNING_MEAN
    NORM, GAIN, BIAS
    SLOPE = PARAMETERS
    OFFSET, ARRAYS

# The rows of the part "statistics" of a workspace.
cdef enum:
    MEAN_ROW, MEAN_LOW_ROW, RSTD_ROW, SHIFT_ROW, KEPT

# How many arrays a call reads, and the names of these and of those that it writes to.
cdef enum:
    FORWARD_INPUTS = 4
    INFERENCE_INPUTS = 6
    BACKWARD_INPUTS = 6
cdef tuple FORWARD_ARRAYS = (
    "src", "add", "scale", "shift", "out", "out_mean", "out_variance", "running_mean", "running_variance")
cdef tuple INFERENCE_ARRAYS = ("src", "add", "scale", "shift", "mean", "variance", "out")
cdef tuple BACKWARD_ARRAYS = (
    "src", "diff_dst", "scale", "shift", "mean", "variance", "out", "out_add", "out_scale", "out_shift")

# How arguments name parameters; forward training's mean and variance are out_mean and out_variance.
cdef tuple NAMES = ("scale", "shift", "mean", None, "variance", None, "running_mean", "running_variance", None, None,
                    "out_scale", "out_shift")

# What a workspace holds, as tensors of a call.
ctypedef struct kept_t:
    cynorm_tensor mask, value
    cynorm_tensor row[KEPT]

BatchNormGradients = namedtuple("BatchNormGradients", ("diff_src", "diff_scale", "diff_shift", "diff_add"))

ctypedef struct axis_t:
    int64_t extent
    int64_t stride[VIEWS]
    bint kept

ctypedef struct plan_t:
    cynorm_bn_pass kind
    cynorm_bn_tile tile             # all but what differs between tiles
    int inner_axes[AXES]            # the data's axes of extent other than 1, innermost first
    int64_t inner_extent[AXES]
    int inner_count
    int owner[AXES]                 # which merged axis each of these belongs to
    axis_t merged[AXES]
    int merged_count
    axis_t row, group, groups
    int64_t split                   # statistics of a block, where a tile's are of several blocks, else 0
    axis_t kept[AXES]               # the others, innermost first
    axis_t reduced[AXES]
    int kepts, reduceds
    int64_t itemsize, real          # bytes of an element of src, and of what it is computed in
    int64_t statistics, count       # their number, and how many elements each is of
    int64_t spread                  # elements of a row that share a statistic where they are kept
    int64_t repeat                  # groups taken as one row, where rows are short and follow on
    int64_t cut, cuts               # of the kept row or the group: statistics of a unit
    int64_t units
    int64_t blocks_extent, last_blocks  # entries of the axis of a tile's blocks: all, and those of its last tile
    int64_t row_cut, row_cuts       # of the reduced row
    int64_t groups_cut, groups_cuts
    int64_t others, others_cut, others_cuts     # all further reduced axes together
    int64_t chunks
    int64_t sums_bytes              # of one chunk
    int64_t parts                   # of these, and of coefficients: those of blocks may follow on
    int64_t padding                 # statistics at the end of the last unit whose results are zeros
    int64_t gradient                # bytes of the gradient that a chunk's sums leave for its results, or 0
    int64_t task_bytes              # of a chunk's sums and gradient
    int packing                     # how often a view is packed or unpacked
    bint cached                     # tensors so small that they stay in the second-level cache

ctypedef struct state_t:
    const plan_t *plan
    int steps[PHASES]               # what is done to all tasks before the next phase begins
    int phases
    bint by_units                   # all chunks of a unit are one task
    bint beside                     # the next unit is summed while the results of one leave
    bint prepared                   # what follows from given statistics is made before, not with each unit
    tasks_t tasks
    int64_t *summed                 # chunks of each unit
    double epsilon
    char *array[ARRAYS]
    char *sums                      # of all chunks; NULL where each unit is one chunk, or nothing is summed


cdef int64_t even_part(int64_t whole, int64_t most) noexcept nogil:
    """How many at a time, so that parts differ little."""
    return ceil_div(whole, ceil_div(whole, most))


# ---- plan ----

cdef bint follows_on_in(int view, const axis_t *outer, const axis_t *inner) noexcept nogil:
    return outer.stride[view] == inner.stride[view] * inner.extent


cdef bint follows_on(const axis_t *outer, const axis_t *inner) noexcept nogil:
    cdef int i
    for i in range(VIEWS):
        if not follows_on_in(i, outer, inner):
            return False
    return True


cdef bint spreads(int64_t n, int64_t count, int dtype) noexcept nogil:
    """Whether reduced rows of n elements may be parts of kept ones, where a statistic is of `count` elements."""
    cdef int64_t images = min(n, 2 * SPREAD_IMAGES) if n <= SPREAD_SHORT else n
    return n <= (SPREAD_WIDE if dtype == CYNORM_F64 else SPREAD) and count >= n * max(images, SPREAD_IMAGES)


cdef void turn_short_rows(const cynorm_bn_call *call, const cynorm_tensor *src, plan_t *plan) noexcept nogil:
    """Of the axes, innermost first, put the first kept one before short reduced ones. No other tensor plays a part in
    this, as masks are in this order."""
    cdef int64_t n = 1, count = 1
    cdef int before = 0, axis, i
    while before < plan.inner_count and call.reduced >> plan.inner_axes[before] & 1:
        n *= src.shape[plan.inner_axes[before]]
        before += 1
    if before == plan.inner_count or call.kind not in (FORWARD_TRAINING, BACKWARD_TRAINING):
        return
    for i in range(src.ndim):
        if call.reduced >> i & 1:
            count *= src.shape[i]
    axis = plan.inner_axes[before]
    if (n > TURNED or n * cynorm_itemsize(src.dtype) < TURNED_BYTES or src.shape[axis] < PACKED_ROW
            or spreads(n, count, src.dtype)):
        return
    for i in range(before, 0, -1):
        plan.inner_axes[i] = plan.inner_axes[i - 1]
    plan.inner_axes[0] = axis


cdef void merge_axes(const cynorm_bn_call *call, int lead, plan_t *plan) noexcept nogil:
    cdef const cynorm_tensor *src = call.data[lead]
    cdef int a, i, j
    cdef axis_t axis
    for a in range(src.ndim - 1, -1, -1):
        if src.shape[a] == 1:
            continue
        j = plan.inner_count
        while j > 0 and llabs(src.strides[plan.inner_axes[j - 1]]) > llabs(src.strides[a]):
            plan.inner_axes[j] = plan.inner_axes[j - 1]
            j -= 1
        plan.inner_axes[j] = a
        plan.inner_count += 1
    turn_short_rows(call, src, plan)
    for i in range(plan.inner_count):
        a = plan.inner_axes[i]
        axis.extent = plan.inner_extent[i] = src.shape[a]
        axis.kept = not call.reduced >> a & 1
        for j in range(VIEWS):
            axis.stride[j] = call.data[j].strides[a] if call.data[j] != NULL else 0
        j = plan.merged_count - 1
        if j >= 0 and plan.merged[j].kept == axis.kept and follows_on(&axis, &plan.merged[j]):
            plan.merged[j].extent *= axis.extent
        else:
            j += 1
            plan.merged[j] = axis
            plan.merged_count += 1
        plan.owner[i] = j


cdef void place_axes(plan_t *plan) noexcept nogil:
    cdef int i
    cdef const axis_t *axis
    plan.row.extent = plan.group.extent = plan.groups.extent = 1
    plan.statistics = plan.count = 1
    for i in range(plan.merged_count):
        axis = &plan.merged[i]
        if axis.kept:
            plan.statistics *= axis.extent
        else:
            plan.count *= axis.extent
        if i == 0:
            plan.row = axis[0]
            plan.tile.kept_inner = axis.kept
        elif axis.kept and not plan.row.kept and plan.group.extent == 1:
            plan.group = axis[0]
        elif not axis.kept and plan.groups.extent == 1:
            plan.groups = axis[0]
        elif axis.kept:
            plan.kept[plan.kepts] = axis[0]
            plan.kepts += 1
        else:
            plan.reduced[plan.reduceds] = axis[0]
            plan.reduceds += 1


cdef const axis_t *statistics_axis(const plan_t *plan) noexcept nogil:
    """The tile's axis of statistics."""
    return &plan.row if plan.tile.kept_inner else &plan.group


cdef int64_t extent_of_statistics(const plan_t *plan) noexcept nogil:
    return statistics_axis(plan).extent / plan.spread


cdef bint stays_alone(const plan_t *plan, int lead) noexcept nogil:
    """Whether reduced rows may be kept ones of one statistic each: all are of one, or the rows of one lie together."""
    cdef int64_t n = plan.row.extent
    if n > ALONE or plan.count < n * max(n, ALONE_ROWS) or plan.count == 0:
        return False
    return plan.group.extent == 1 or (
        plan.groups.extent > 1 and llabs(plan.group.stride[lead]) > llabs(plan.groups.stride[lead])
        and (plan.groups.extent >= GAPPED_ROWS or (plan.tile.packs == 0 and n >= ALONE_LEAST)))


cdef void spread_rows(plan_t *plan, int lead) noexcept nogil:
    """Many reduced rows, so short that each is mostly overhead, become parts of kept ones; or, where there are gaps
    between them, kept ones of their own."""
    cdef int64_t n = plan.row.extent
    cdef int i
    if plan.tile.kept_inner or plan.split:
        return
    if (plan.tile.packs == 0 and plan.group.extent > 1 and follows_on(&plan.group, &plan.row)
            and spreads(n, plan.count, plan.tile.view[CYNORM_BN_SRC].dtype)):
        plan.row.extent *= plan.group.extent
    elif stays_alone(plan, lead):
        if plan.group.extent > 1:
            for i in range(plan.kepts, 0, -1):
                plan.kept[i] = plan.kept[i - 1]
            plan.kept[0] = plan.group
            plan.kepts += 1
    else:
        return
    plan.spread = n
    plan.group.extent = 1
    plan.tile.kept_inner = True


cdef void take_blocks(plan_t *plan, int64_t count) noexcept nogil:
    """Give a tile `count` entries of the next axis of statistics, which then no longer enumerate units."""
    cdef axis_t *blocks = &plan.kept[0]
    cdef int i
    for i in range(VIEWS):
        plan.tile.view[i].block = blocks.stride[i]
    plan.blocks_extent = blocks.extent
    plan.last_blocks = (blocks.extent - 1) % count + 1
    if count < blocks.extent:
        blocks.extent = ceil_div(blocks.extent, count)
        for i in range(VIEWS):
            blocks.stride[i] *= count
        return
    plan.kepts -= 1
    for i in range(plan.kepts):
        plan.kept[i] = plan.kept[i + 1]


cdef int64_t block_bytes(const plan_t *plan) noexcept nogil:
    """Bytes of a block of kept rows."""
    return plan.row.extent * (plan.count / plan.spread) * plan.itemsize


cdef void join_short_units(plan_t *plan) noexcept nogil:
    """Make tasks of several blocks where one block is hardly worth its calls."""
    cdef int64_t unit = block_bytes(plan), count
    if not plan.tile.kept_inner or plan.tile.packs or plan.kepts == 0 or plan.row.extent > ROW:
        return
    count = max(SHORT_UNIT / unit, min(JOINED_UNIT / unit, plan.kept[0].extent / TASKS))
    if count < 2:
        return
    count = even_part(plan.kept[0].extent, count)
    plan.tile.blocks = count
    take_blocks(plan, count)


cdef void pack(plan_t *plan, int view) noexcept nogil:
    """A view's rows are to be copied."""
    if plan.tile.view[view].packed:
        return
    plan.tile.view[view].packed = True
    plan.tile.packs += 1
    plan.packing += 2 if view in (CYNORM_BN_SRC, CYNORM_BN_DIFF_DST) and plan.kind != FORWARD_INFERENCE else 1


cdef void pack_gaps(plan_t *plan) noexcept nogil:
    """Pack short kept rows with gaps between them, so that several are taken as one."""
    cdef int i
    if (not plan.tile.kept_inner or plan.split or plan.tile.blocks > 1 or plan.row.extent >= GAPPED
            or plan.groups.extent < GAPPED_ROWS):
        return
    for i in range(CYNORM_BN_MASK):
        if plan.tile.view[i].data != NULL and not follows_on_in(i, &plan.groups, &plan.row):
            pack(plan, i)


cdef void join_blocks(plan_t *plan, int lead) noexcept nogil:
    """Where views differ in whether the next axis of statistics follows on from the tile's short one, the next
    axis joins it; where the two are apart in the leading view, the next axis is one of blocks."""
    cdef axis_t *axis = <axis_t *>statistics_axis(plan)
    cdef axis_t *blocks = &plan.kept[0]
    cdef int64_t itemsize = cynorm_itemsize(plan.tile.view[lead].dtype), count
    cdef bint any_follows = False
    cdef bint part = follows_on_in(lead, blocks, axis) and follows_on_in(CYNORM_BN_MASK, blocks, axis)
    cdef int i
    if axis.extent * itemsize >= SHORT or axis.extent * blocks.extent == 0:
        return
    for i in range(CYNORM_BN_MASK):
        if plan.tile.view[i].data == NULL:
            continue
        if follows_on_in(i, blocks, axis):
            any_follows = any_follows or axis.stride[i] == itemsize
        elif part and not plan.tile.kept_inner and not plan.tile.view[i].packed:
            return
    if not part and not (any_follows and plan.tile.kept_inner):
        return
    for i in range(CYNORM_BN_MASK):
        if plan.tile.view[i].data != NULL and follows_on_in(i, blocks, axis) != part:
            pack(plan, i)
    if part:
        plan.split = axis.extent
        axis.extent *= blocks.extent
        count = blocks.extent
    else:
        count = even_part(blocks.extent, across(itemsize) / axis.extent)
        plan.tile.blocks = count
    take_blocks(plan, count)


cdef void arrange(const cynorm_bn_call *call, int lead, plan_t *plan) noexcept nogil:
    """The axes of a call, in the memory order of one of its tensors."""
    cdef cynorm_bn_view *view
    cdef int i
    memset(plan, 0, sizeof(plan_t))
    plan.kind = call.kind
    plan.itemsize = cynorm_itemsize(call.data[CYNORM_BN_SRC].dtype)
    plan.real = real_size(call.data[CYNORM_BN_SRC].dtype)
    merge_axes(call, lead, plan)
    place_axes(plan)
    plan.tile.blocks = plan.spread = 1
    for i in range(VIEWS):
        if call.data[i] == NULL:
            continue
        view = &plan.tile.view[i]
        view.data = call.data[i].data
        view.dtype = call.data[i].dtype
        if i != CYNORM_BN_MASK and plan.row.stride[i] != cynorm_itemsize(view.dtype):
            pack(plan, i)
    if plan.kepts > 0:
        join_blocks(plan, lead)
    spread_rows(plan, lead)
    pack_gaps(plan)


cdef bint repeats(const plan_t *plan) noexcept nogil:
    """Whether kept rows follow on, from group to group, in all views that are not packed."""
    cdef int i
    if plan.groups.extent == 1:
        return False
    for i in range(VIEWS):
        if not plan.tile.view[i].packed and not follows_on_in(i, &plan.groups, &plan.row):
            return False
    return True


cdef int64_t across(int64_t itemsize) noexcept nogil:
    """The most statistics of a unit where views are packed."""
    return ACROSS / max(itemsize, 2)


cdef int64_t groups_of_a_row(const plan_t *plan) noexcept nogil:
    """How many groups of kept rows, which follow on, are taken as one row: enough to make whole vectors, if
    coefficients, repeated as well, stay in the first-level cache; fewer, if none is then left over."""
    cdef int64_t n = plan.row.extent, groups = plan.groups.extent, least = BLOCK, whole = VECTOR, repeat = 1, fewer
    cdef int64_t most = REPEATED << (plan.kind == FORWARD_INFERENCE)
    if not repeats(plan) or plan.tile.packs and n >= PACKED_ROW:
        return 1
    if plan.tile.packs == 0 and plan.tile.blocks > 1 and plan.tile.blocks * block_bytes(plan) <= SHORT_UNIT:
        least = SHORT_BLOCK
    while n * repeat % whole or n * repeat < least:
        repeat *= 2
    if plan.itemsize == 2 and BLOCK <= n * repeat < 2 * BLOCK:
        whole *= 2  # vectors of half types go by twos, which longer rows gain too little from
        if n * repeat % whole:
            repeat *= 2
    fewer = repeat
    while n * fewer / 2 % whole == 0 and groups % fewer:
        fewer /= 2
    if groups % fewer == 0:
        repeat = fewer
    return min(groups, repeat) if n * repeat * plan.real <= most else 1


cdef int64_t statistics_of_a_unit(const plan_t *plan) noexcept nogil:
    """Of each block, if it has several."""
    cdef int64_t n = plan.row.extent, extent = extent_of_statistics(plan), itemsize = plan.itemsize, cut, columns
    cdef int i
    if plan.repeat > 1 or plan.tile.blocks > 1:  # whole rows
        cut = extent
    elif plan.spread > 1:
        columns = min(ROW, max(SPREAD_COLUMNS, UNIT / (plan.count / plan.spread * itemsize)))
        cut = min(extent, max(columns / plan.spread / VECTOR, 1) * VECTOR)
    elif plan.tile.kept_inner:
        cut = ROW
        if FEWEST_ROWS <= plan.count < 2 * CHUNK_ROWS and extent * itemsize % LINE == 0:
            columns = ceil_div(extent, min(FEW_TASKS, ceil_div(extent * plan.real, PART)))
            cut = min(cut, round_up(columns, VECTOR))
        cut = min(extent, cut)
    else:
        cut = max(1, min(GROUP / (n * itemsize), UNIT / (plan.count * itemsize)))
        cut = max(cut, min(JOINED_UNIT / (plan.count * itemsize), plan.statistics / FEWEST_UNITS))
        if plan.kind == FORWARD_INFERENCE:  # in the order of memory
            cut = max(cut, min(RUN / (n * itemsize), plan.statistics * plan.count / n / TASKS))
        for i in range(CYNORM_BN_MASK):
            if llabs(plan.group.stride[i]) < llabs(plan.row.stride[i]):
                cut = across(itemsize)  # whole runs of memory that lies the other way round
        cut = min(cut, extent)
    if plan.tile.packs and cut > across(itemsize):
        cut = round_up(even_part(extent, across(itemsize)), LINE / itemsize)
    return round_up(cut, plan.split) if plan.split else cut


cdef int64_t wanted_chunks(const plan_t *plan) noexcept nogil:
    """How many chunks a unit should have, so that threads have tasks, and sums are worth adding up."""
    cdef int64_t unit = plan.cut * plan.tile.blocks * plan.count, rows = plan.count / plan.spread, wanted, power = 1
    cdef int64_t tasks = FEW_TASKS if unit * plan.itemsize <= UNIT else TASKS
    if plan.units >= tasks:
        return 1
    wanted = max(1, min(ceil_div(tasks, plan.units), unit * plan.real / CHUNK, rows / CHUNK_ROWS))
    if not plan.tile.kept_inner:
        return wanted
    while 2 * power <= wanted and 4 * power * power * MERGE <= rows:
        power *= 2  # chunks that a power of two of threads shares evenly
    return power


cdef void choose_cuts(plan_t *plan) noexcept nogil:
    """Units, and their chunks: for chunks, axes are cut outermost first."""
    cdef int64_t wanted
    cdef int i
    plan.repeat = 1
    if plan.statistics == 0 or plan.count == 0:
        return
    join_short_units(plan)
    if plan.tile.kept_inner:
        plan.repeat = groups_of_a_row(plan)
    plan.cut = statistics_of_a_unit(plan)
    plan.units = plan.cuts = ceil_div(extent_of_statistics(plan), plan.cut)
    for i in range(plan.kepts):
        plan.units *= plan.kept[i].extent
    plan.others = 1
    for i in range(plan.reduceds):
        plan.others *= plan.reduced[i].extent
    wanted = wanted_chunks(plan)
    plan.others_cut = ceil_div(plan.others, wanted)
    plan.others_cuts = ceil_div(plan.others, plan.others_cut)
    wanted = ceil_div(wanted, plan.others_cuts)
    plan.groups_cut = min(plan.groups.extent, round_up(ceil_div(plan.groups.extent, wanted), plan.repeat))
    plan.groups_cuts = ceil_div(plan.groups.extent, plan.groups_cut)
    wanted = ceil_div(wanted, plan.groups_cuts)
    plan.row_cut = plan.row.extent
    if not plan.tile.kept_inner:
        plan.row_cut = min(plan.row_cut, round_up(ceil_div(plan.row_cut, wanted), ROW_PART))
    plan.row_cuts = ceil_div(plan.row.extent, plan.row_cut)
    plan.chunks = plan.others_cuts * plan.groups_cuts * plan.row_cuts


cdef int64_t elements_of_a_task(const plan_t *plan) noexcept nogil:
    """At most."""
    cdef int64_t rows = plan.spread if plan.tile.kept_inner else plan.row_cut
    return plan.tile.blocks * plan.cut * rows * plan.groups_cut * plan.others_cut


cdef const cynorm_real_kernels *kernels_of(const plan_t *plan) noexcept nogil:
    return kernels().real[plan.real == sizeof(double)]


cdef void make_plan(const cynorm_bn *p, const cynorm_bn_call *call, plan_t *plan) noexcept nogil:
    cdef cynorm_bn_tile *t = &plan.tile
    cdef plan_t other
    cdef int64_t nbytes = 0
    cdef int i
    cdef bint in_place = False
    arrange(call, CYNORM_BN_SRC, plan)
    for i in range(CYNORM_BN_SRC + 1, CYNORM_BN_MASK):
        # the mask is in src's order
        if plan.packing > 0 and call.data[i] != NULL and p.activation != CYNORM_RELU:
            arrange(call, i, &other)
            if other.packing < plan.packing:
                plan[0] = other
    choose_cuts(plan)
    for i in range(VIEWS):
        if call.data[i] == NULL:
            continue
        t.view[i].stride[0] = plan.row.stride[i]
        t.view[i].stride[1] = plan.reduced[0].stride[i] if t.kept_inner else plan.group.stride[i]
        t.view[i].stride[2] = plan.groups.stride[i]
        if i != CYNORM_BN_MASK:
            nbytes += total_bytes(call.data[i])
        if i in (CYNORM_BN_SRC, CYNORM_BN_ADD, CYNORM_BN_DIFF_DST):
            in_place = in_place or same_memory(call.data[i], call.data[CYNORM_BN_DST]) or (
                call.data[CYNORM_BN_DIFF_ADD] != NULL
                and same_memory(call.data[i], call.data[CYNORM_BN_DIFF_ADD]))
    t.streaming = nbytes >= streaming_from and not in_place
    t.training = plan.kind in (FORWARD_TRAINING, BACKWARD_TRAINING)
    # in the cache, Intel's cores fetch rows by themselves, and sums of two tensors have no room for prefetches
    t.fetches = nbytes >= streaming_from or plan.kind == FORWARD_TRAINING or fetches_far_lines()
    plan.cached = nbytes < LARGE
    t.activation = <cynorm_activation>p.activation
    t.parameter[0] = p.parameter[0]
    t.parameter[1] = p.parameter[1]
    t.split = plan.split or plan.cut * plan.spread
    t.repeat = plan.repeat
    t.row = plan.cut * plan.spread * plan.repeat
    plan.sums_bytes = t.blocks * kernels_of(plan).bn_sums_bytes(t.kept_inner, t.row)
    if plan.kind >= BACKWARD_TRAINING and p.activation > CYNORM_RELU and t.packs == 0:
        plan.gradient = elements_of_a_task(plan) * plan.real
        if plan.gradient * (1 if plan.chunks == 1 else plan.units * plan.chunks) > GRADIENT:
            plan.gradient = 0
    plan.task_bytes = round_up(plan.sums_bytes + plan.gradient, LINE)
    plan.parts = t.blocks
    if plan.repeat == 1 and kernels_of(plan).bn_sums_bytes(t.kept_inner, t.row + 1) > plan.sums_bytes / t.blocks:
        plan.parts = 1  # rows fill their vectors


cdef bint ends_in_padding(const cynorm_bn_call *call, const plan_t *plan) noexcept nogil:
    """Whether a block's last channels, if they are padding, are the last ones of the last unit, all in one row."""
    cdef const cynorm_tensor *src = call.data[CYNORM_BN_SRC]
    cdef int last = src.ndim - 1, a
    for a in range(src.ndim):  # in inference, parameters may vary along other axes than channels
        if src.shape[a] != 1 and (call.reduced >> a & 1) == (a == 1 or a == last):
            return False
    return (plan.tile.kept_inner and plan.tile.packs == 0 and plan.spread == 1 and plan.cuts == 1
            and plan.inner_axes[0] == last and (plan.kepts == 0 or plan.row.extent == plan.inner_extent[0]))


cdef int64_t bn_mask(const cynorm_bn *p, const cynorm_bn_call *call, int64_t *strides) noexcept nogil:
    """One bit after another, in src's memory order."""
    cdef plan_t plan
    cdef int64_t merged[AXES]
    cdef int64_t bits
    cdef int i, j
    make_plan(p, call, &plan)
    bits = 1
    for i in range(plan.merged_count):
        merged[i] = bits
        bits *= plan.merged[i].extent
    memset(strides, 0, call.data[CYNORM_BN_SRC].ndim * sizeof(int64_t))
    for i in range(plan.inner_count):
        j = plan.owner[i]
        strides[plan.inner_axes[i]] = merged[j]
        merged[j] *= plan.inner_extent[i]
    return mask_bytes(bits)


cdef int64_t mask_bytes(int64_t bits) noexcept nogil:
    """Any 4 bytes that hold a bit may be read at once."""
    return ceil_div(bits, 8) + 4


# ---- parameters ----

cdef void each_parameter(const plan_t *plan, const cynorm_tensor *t, char *array, bint store) noexcept nogil:
    """Copy between a tensor and an array of reals, in the order of the plan's statistics."""
    cdef const cynorm_real_kernels *k = kernels_of(plan)
    cdef int64_t size = plan.real
    cdef int64_t index[AXES]
    cdef int64_t extent[AXES]
    cdef int64_t stride[AXES]
    cdef int axes = 0, i
    cdef char *p = t.data
    cdef int64_t done = 0, step
    index[0] = 0
    extent[0] = 1
    stride[0] = 0
    for i in range(plan.inner_count):
        if not plan.merged[plan.owner[i]].kept:
            continue
        step = t.strides[plan.inner_axes[i]]
        if axes > 0 and step == stride[axes - 1] * extent[axes - 1]:
            extent[axes - 1] *= plan.inner_extent[i]
            continue
        index[axes] = 0
        extent[axes] = plan.inner_extent[i]
        stride[axes] = step
        axes += 1
    while done < plan.statistics:
        if store:
            k.store_row(p, array + done * size, t.dtype, extent[0], stride[0])
        else:
            k.load_row(array + done * size, p, t.dtype, extent[0], stride[0])
        done += extent[0]
        for i in range(1, axes):
            index[i] += 1
            p += stride[i]
            if index[i] < extent[i]:
                break
            index[i] = 0
            p -= stride[i] * extent[i]


cdef void load_parameter(const state_t *s, const cynorm_tensor *t, int array) noexcept nogil:
    if t != NULL:
        each_parameter(s.plan, t, s.array[array], False)


cdef void store_parameter(const state_t *s, const cynorm_tensor *t, int array) noexcept nogil:
    if t != NULL:
        each_parameter(s.plan, t, s.array[array], True)


cdef double get_real(const state_t *s, int array, int64_t i) noexcept nogil:
    if s.plan.real == sizeof(double):
        return (<double *>s.array[array])[i]
    return (<float *>s.array[array])[i]


cdef void put_real(const state_t *s, int array, int64_t i, double value) noexcept nogil:
    if s.plan.real == sizeof(double):
        (<double *>s.array[array])[i] = value
    else:
        (<float *>s.array[array])[i] = <float>value


cdef void update_running(const cynorm_bn *p, const state_t *s, const cynorm_tensor *t, int array,
                         double factor) noexcept nogil:
    """running = (1 - momentum) * running + momentum * factor * new, by way of an array no longer needed."""
    cdef int64_t i
    cdef double momentum = p.momentum
    if t == NULL:
        return
    load_parameter(s, t, NORM)
    for i in range(s.plan.statistics):
        put_real(s, NORM, i, (1 - momentum) * get_real(s, NORM, i) + momentum * factor * get_real(s, array, i))
    store_parameter(s, t, NORM)


cdef void choose_pivots(const state_t *s, const cynorm_bn_call *call) noexcept nogil:
    """One element of each statistic: the first or, if there are many, the median of the first, a middle one and the
    last. A pivot far from all other elements would leave too few digits of their variance."""
    cdef cynorm_tensor t = call.data[CYNORM_BN_SRC][0]
    cdef int64_t i
    cdef int last, a
    load_parameter(s, &t, CENTER)
    if s.plan.count < FAR_PIVOT:
        return
    for last in range(2):
        for a in range(t.ndim):
            if call.reduced >> a & 1:
                t.data += t.strides[a] * (t.shape[a] - 1 - t.shape[a] / 2 if last else t.shape[a] / 2)
        load_parameter(s, &t, VARIANCE if last else MEAN)  # arrays that are not needed yet
    for i in range(s.plan.statistics):
        put_real(s, CENTER, i, median(get_real(s, CENTER, i), get_real(s, MEAN, i), get_real(s, VARIANCE, i)))


cdef double median(double a, double b, double c) noexcept nogil:
    return max(min(a, b), min(max(a, b), c))


cdef void repeat_rows(const plan_t *plan, char *array) noexcept nogil:
    """From one value per statistic to one per column, and `repeat` copies of each row, in place."""
    cdef int64_t size = plan.real, nbytes = plan.row.extent * size, i, j
    if plan.spread > 1:
        for i in range(plan.statistics - 1, -1, -1):
            for j in range(plan.spread - 1, -1, -1):
                memmove(array + (i * plan.spread + j) * size, array + i * size, size)
    if plan.repeat == 1:
        return
    for i in range(plan.statistics * plan.spread / plan.row.extent - 1, -1, -1):
        for j in range(plan.repeat - 1, -1, -1):
            memmove(array + (i * plan.repeat + j) * nbytes, array + i * nbytes, nbytes)


# ---- tasks ----

cdef void shift(cynorm_bn_tile *t, const axis_t *axis, int64_t by) noexcept nogil:
    cdef int i
    for i in range(CYNORM_BN_MASK):
        t.view[i].data += by * axis.stride[i]  # absent tensors: NULL, 0
    t.bit += by * axis.stride[CYNORM_BN_MASK]


cdef void shift_statistics(const plan_t *plan, cynorm_bn_tile *t, int64_t by) noexcept nogil:
    """Likewise along the axis of statistics, which may be of blocks: these may even all be one."""
    cdef const axis_t *axis = statistics_axis(plan)
    cdef int i
    shift(t, axis, by * plan.spread)
    if not plan.split:
        return
    for i in range(CYNORM_BN_MASK):
        t.view[i].data += by / plan.split * (t.view[i].block - plan.split * axis.stride[i])


cdef void shift_all(cynorm_bn_tile *t, const axis_t *axes, int count, int64_t index, int sign) noexcept nogil:
    """To a place along several axes together, or back."""
    cdef int i
    for i in range(count):
        shift(t, &axes[i], index % axes[i].extent * sign)
        index /= axes[i].extent


cdef void turn(cynorm_bn_tile *t, const axis_t *groups, int64_t last) noexcept nogil:
    """The order of groups, from the first to the last or back."""
    cdef int i
    shift(t, groups, last)
    for i in range(VIEWS):
        t.view[i].stride[2] = -t.view[i].stride[2]


cdef int64_t blocks_of(const plan_t *plan, int64_t unit) noexcept nogil:
    """How many blocks a unit has."""
    if plan.tile.blocks == 1 or (unit + 1) % ceil_div(plan.blocks_extent, plan.tile.blocks):
        return plan.tile.blocks
    return plan.last_blocks


cdef int64_t unit_position(const plan_t *plan, int64_t unit, int64_t *n) noexcept nogil:
    """The first statistic of a unit, and their number."""
    cdef int64_t extent = extent_of_statistics(plan), at = unit % plan.cuts * plan.cut, tiles
    if plan.tile.blocks == 1:
        n[0] = min(plan.cut, extent - at)
        return unit / plan.cuts * extent + at
    # units of several blocks are not cut
    tiles = ceil_div(plan.blocks_extent, plan.tile.blocks)
    n[0] = extent * blocks_of(plan, unit)
    return (unit / tiles * plan.blocks_extent + unit % tiles * plan.tile.blocks) * extent


cdef void finish(const state_t *s, int64_t first, int64_t n, char *sums) noexcept nogil:
    """Coefficients of n statistics, from the sums of their unit or from what is given."""
    cdef const plan_t *plan = s.plan
    cdef const cynorm_real_kernels *k = kernels_of(plan)
    cdef cynorm_bn_unit u
    cdef int64_t one = first * plan.real, each = one * plan.repeat * plan.spread
    u.n = n
    u.kept_inner = plan.tile.kept_inner
    u.repeat = plan.repeat
    u.spread = plan.spread
    u.count = plan.count
    u.epsilon = s.epsilon
    u.sums = sums
    u.chunks = plan.chunks
    u.chunk_bytes = plan.task_bytes
    u.part_bytes = plan.sums_bytes / plan.parts
    u.scale = s.array[SCALE] + one if s.array[SCALE] != NULL else NULL
    u.shift = s.array[SHIFT] + one if s.array[SHIFT] != NULL else NULL
    u.mean = s.array[MEAN] + one
    u.mean_low = s.array[MEAN_LOW] + one
    u.variance = s.array[VARIANCE] + one if s.array[VARIANCE] != NULL else NULL
    u.rstd = s.array[RSTD] + one
    u.center = s.array[CENTER] + each
    u.norm = s.array[NORM] + each
    u.gain = s.array[GAIN] + each
    u.bias = s.array[BIAS] + each
    if plan.kind >= BACKWARD_TRAINING and sums != NULL:
        u.diff_scale = s.array[DIFF_SCALE] + one
        u.diff_shift = s.array[DIFF_SHIFT] + one
        u.slope = s.array[SLOPE] + each
        u.offset = s.array[OFFSET] + each
        k.bn_gradients(&u, plan.kind == BACKWARD_TRAINING)
    elif plan.kind == FORWARD_TRAINING:
        k.bn_statistics(&u)
    else:
        k.bn_coefficients(&u)


cdef void finish_unit(const state_t *s, int64_t unit, char *sums) noexcept nogil:
    """Likewise of a unit."""
    cdef int64_t parts = 1 if s.plan.parts == 1 else blocks_of(s.plan, unit), n, i
    cdef int64_t first = unit_position(s.plan, unit, &n)
    n /= parts
    for i in range(parts):
        finish(s, first + i * n, n, sums)
        if sums != NULL:
            sums += s.plan.sums_bytes / s.plan.parts


cdef void fetch_ahead(cynorm_bn_tile *t, const plan_t *plan, int which, int view) noexcept nogil:
    """Fetch `last_images` images ahead; while the last ones are read, the first ones of the next unit are fetched."""
    cdef const axis_t *images = &plan.reduced[0]
    cdef int64_t next_one = t.view[view].block if t.blocks > 1 else plan.kept[0].stride[view]
    t.next[which] = t.last_images * images.stride[view]
    if plan.others_cut == images.extent:
        t.jump[which] = next_one - images.extent * images.stride[view]


cdef void clear_padding(const plan_t *plan, const cynorm_bn_tile *t, int view, int64_t n, int64_t count,
                        int64_t images) noexcept nogil:
    """At the end of the last block's rows, of n elements each; each image has `count` of them."""
    cdef const cynorm_bn_view *v = &t.view[view]
    cdef int64_t size = cynorm_itemsize(v.dtype), nbytes = plan.padding * size, i, j
    cdef char *p
    if v.data == NULL:
        return
    for i in range(images):
        p = v.data + (t.blocks - 1) * v.block + i * plan.reduced[0].stride[view] + n * size - nbytes
        for j in range(count):
            clear_bytes(p + j * plan.groups.stride[view], nbytes)


cdef void place(const state_t *s, int64_t unit, int64_t chunk, char *sums, void *scratch,
                cynorm_bn_tile *t) noexcept nogil:
    """A chunk of a unit as a tile: its groups, at the first of all further reduced entries; `visit` goes to its own."""
    cdef const plan_t *plan = s.plan
    cdef int64_t n, at, each = unit_position(plan, unit, &n) * plan.repeat * plan.spread * plan.real
    memmove(t, &plan.tile, sizeof(cynorm_bn_tile))  # an assignment is two `rep movs`
    t.scratch = scratch
    t.sums = sums
    t.center = s.array[CENTER] + each
    t.norm = s.array[NORM] + each
    t.gain = s.array[GAIN] + each
    t.bias = s.array[BIAS] + each
    if plan.kind == BACKWARD_TRAINING:
        t.slope = s.array[SLOPE] + each
        t.offset = s.array[OFFSET] + each
    if plan.gradient > 0:
        t.gradient.data = sums + plan.sums_bytes
    t.count[1] = 1
    t.blocks = blocks_of(plan, unit)
    shift_statistics(plan, t, unit % plan.cuts * plan.cut)
    if t.kept_inner:
        t.count[0] = n / t.blocks * plan.spread
    else:
        t.count[1] = n
        at = chunk % plan.row_cuts * plan.row_cut
        shift(t, &plan.row, at)
        t.count[0] = min(plan.row_cut, plan.row.extent - at)
    shift_all(t, plan.kept, plan.kepts, unit / plan.cuts, 1)
    at = chunk / plan.row_cuts % plan.groups_cuts * plan.groups_cut
    shift(t, &plan.groups, at)
    t.count[2] = min(plan.groups_cut, plan.groups.extent - at)


cdef char *place_gradient(const plan_t *plan, cynorm_bn_tile *t) noexcept nogil:
    """Rows one after another, as the step comes to them; where they end."""
    cdef cynorm_bn_view *v = &t.gradient
    cdef int rows = 2 if t.kept_inner else 1
    v.stride[0] = plan.real
    v.stride[rows] = t.count[0] * plan.real
    v.stride[3 - rows] = v.stride[rows] * t.count[rows]
    v.block = v.stride[3 - rows] * t.count[3 - rows]
    return v.data + t.blocks * v.block


cdef void take_step(const plan_t *plan, cynorm_bn_tile *t, int step, int64_t n, int64_t groups,
                    int64_t repeat) noexcept nogil:
    """One step over `groups` groups of n elements each, `repeat` of which are a row."""
    cdef const cynorm_real_kernels *k = kernels_of(plan)
    cdef char *next_gradient = NULL
    cdef int i
    t.repeat = repeat
    t.count[0] = n * repeat
    t.count[2] = groups / repeat
    for i in range(VIEWS):
        t.view[i].stride[2] = plan.groups.stride[i] * repeat
    if t.gradient.data != NULL:
        next_gradient = place_gradient(plan, t)
    if step == SUMS:
        k.bn_sums(t)
    elif plan.kind == FORWARD_INFERENCE or t.kept_inner or t.packs or t.gradient.data != NULL:  # in the order of sums
        k.bn_apply(t, NULL)
    else:  # last group first: its data, summed last, are still in the cache
        turn(t, &plan.groups, groups - 1)
        k.bn_apply(t, NULL)
        turn(t, &plan.groups, 1 - groups)
    t.gradient.data = next_gradient


cdef void visit(const state_t *s, int64_t unit, int64_t chunk, int step, char *sums, void *scratch) noexcept nogil:
    """One step over a chunk of a unit."""
    cdef const plan_t *plan = s.plan
    cdef cynorm_bn_tile t
    cdef int64_t n, other, end, count, whole, slab, images = 1
    cdef bint by_images = plan.tile.kept_inner and plan.tile.packs == 0 and plan.reduceds > 0
    place(s, unit, chunk, sums, scratch, &t)
    n = t.count[0]
    count = t.count[2]
    whole = count - count % plan.repeat
    slab = count * n * cynorm_itemsize(t.view[CYNORM_BN_SRC].dtype)
    if by_images:
        t.last_images = min(ceil_div(CYNORM_BN_KEPT_AHEAD, slab), plan.reduced[0].extent - 1)
        fetch_ahead(&t, plan, 0, CYNORM_BN_SRC)
        fetch_ahead(&t, plan, 1, CYNORM_BN_DIFF_DST)
    other = chunk / (plan.row_cuts * plan.groups_cuts) * plan.others_cut
    end = min(other + plan.others_cut, plan.others)
    while other < end:
        if by_images:
            t.count[1] = images = min(end - other, plan.reduced[0].extent - other % plan.reduced[0].extent)
        shift_all(&t, plan.reduced, plan.reduceds, other, 1)
        if whole > 0:
            take_step(plan, &t, step, n, whole, plan.repeat)
        if count > whole:
            shift(&t, &plan.groups, whole)
            take_step(plan, &t, step, n, count - whole, count - whole)
            shift(&t, &plan.groups, -whole)
        if plan.padding and step == COMBINE and unit == plan.units - 1:
            clear_padding(plan, &t, CYNORM_BN_DST, n, count, images)
            clear_padding(plan, &t, CYNORM_BN_DIFF_ADD, n, count, images)
        shift_all(&t, plan.reduced, plan.reduceds, other, -1)
        other += images


cdef int64_t scratch_bytes(const plan_t *plan) noexcept nogil:
    return CYNORM_BN_SCRATCH + plan.tile.packs * CYNORM_BN_PACKED


cdef void run_task(const state_t *s, int64_t task, int steps, char *scratch) noexcept nogil:
    cdef const plan_t *plan = s.plan
    cdef int64_t unit = task / plan.chunks, chunk = task % plan.chunks
    cdef char *sums = scratch + scratch_bytes(plan)
    if s.sums != NULL:
        sums = s.sums + task * plan.task_bytes
    if not s.prepared:
        finish_unit(s, unit, NULL)
    if steps & SUMS:
        memset(sums, 0, plan.sums_bytes)
        visit(s, unit, chunk, SUMS, sums, scratch)
    if steps & FINISH and (plan.chunks == 1 or cynorm_count(&s.summed[unit]) == plan.chunks - 1):
        finish_unit(s, unit, sums - chunk * plan.task_bytes)
    if steps & COMBINE:
        visit(s, unit, chunk, COMBINE, sums, scratch)


cdef void run_unit(const state_t *s, int64_t unit, char *scratch) noexcept nogil:
    """All steps over its chunks: what was summed last is applied first."""
    cdef int64_t task
    cdef int64_t begin = unit * s.plan.chunks
    for task in range(begin, begin + s.plan.chunks):
        run_task(s, task, SUMS | FINISH, scratch)
    for task in range(begin + s.plan.chunks - 1, begin - 1, -1):
        run_task(s, task, COMBINE, scratch)


cdef void begin_unit(const state_t *s, int64_t unit, char *sums, char *scratch, cynorm_bn_tile *t) noexcept nogil:
    if not s.prepared:
        finish_unit(s, unit, NULL)
    memset(sums, 0, s.plan.sums_bytes)
    place(s, unit, 0, sums, scratch, t)


cdef void run_beside(const state_t *s, int me, int team, char *scratch) noexcept nogil:
    """One thread's units, of one chunk each: while the results of one leave, the next is summed."""
    cdef const cynorm_real_kernels *k = kernels_of(s.plan)
    cdef cynorm_bn_tile t, next_one
    cdef char *sums = scratch + scratch_bytes(s.plan)
    cdef int64_t unit
    cdef int passed = 0
    unit = next_task(&s.tasks, 0, me, team, &passed)
    if unit < 0:
        return
    begin_unit(s, unit, sums, scratch, &t)
    k.bn_sums(&t)
    while True:
        finish_unit(s, unit, sums)
        unit = next_task(&s.tasks, 0, me, team, &passed)
        if unit < 0:
            k.bn_apply(&t, NULL)
            return
        begin_unit(s, unit, sums, scratch, &next_one)
        t.next[0] = next_one.view[CYNORM_BN_SRC].data - t.view[CYNORM_BN_SRC].data
        t.next[1] = next_one.view[CYNORM_BN_DIFF_DST].data - t.view[CYNORM_BN_DIFF_DST].data
        k.bn_apply(&t, &next_one)
        memmove(&t, &next_one, sizeof(cynorm_bn_tile))


cdef void run_steps(const state_t *s, int me, int team, char *scratch) noexcept nogil:
    """One thread's tasks, in all phases."""
    cdef int64_t task
    cdef int p, passed
    for p in range(s.phases):
        if p > 0 and team > 1:
            cynorm_barrier()
        passed = 0
        while scratch != NULL:
            task = next_task(&s.tasks, p, me, team, &passed)
            if task < 0:
                break
            if s.by_units:
                run_unit(s, task, scratch)
            else:
                run_task(s, task, s.steps[p], scratch)


cdef void work(const state_t *s, int me, int team, char *scratch) noexcept nogil:
    """One thread's part; without `scratch` it only meets the others."""
    if not s.beside:
        run_steps(s, me, team, scratch)
    elif scratch != NULL:
        run_beside(s, me, team, scratch)
    if s.plan.tile.streaming:
        kernels().fence()


cdef int run_share(const state_t *shared, int me, int team) noexcept nogil:
    """Likewise with scratch of its own; -1 where memory for it cannot be had."""
    cdef plan_t plan
    cdef state_t s
    cdef uint64_t own = cynorm_float_mode()
    cdef bint sums_here = shared.sums == NULL and shared.plan.kind != FORWARD_INFERENCE
    cdef int64_t task_bytes = shared.plan.task_bytes if sums_here else 0
    cdef void *scratch = malloc(scratch_bytes(shared.plan) + LINE + task_bytes)
    if team > 1:  # copies: the calling thread writes to its stack, next to what is shared
        memmove(&plan, shared.plan, sizeof(plan_t))
        memmove(&s, shared, sizeof(state_t))
        s.plan = &plan
        shared = &s
    cynorm_set_float_mode(shared.tasks.float_mode)
    work(shared, me, team, <char *>aligned(scratch))
    cynorm_set_float_mode(own)
    free(scratch)
    return -1 if scratch == NULL else 0


cdef int run_phases(state_t *s, int team) noexcept nogil:
    """-1 where memory cannot be had."""
    cdef int status = 0
    cdef int *failed = &status
    s.summed = <int64_t *>calloc(s.plan.units, sizeof(int64_t))
    if s.summed == NULL:
        return -1
    if open_tasks(&s.tasks, s.plan.units * (1 if s.by_units else s.plan.chunks), s.phases, team, s.plan.cached) < 0:
        free(s.summed)
        return -1
    if team == 1:
        status = run_share(s, 0, 1)
    else:
        with parallel(num_threads=team):
            if run_share(s, omp_get_thread_num(), omp_get_num_threads()) < 0:
                failed[0] = -1
    close_tasks(&s.tasks)
    free(s.summed)
    return status


cdef bint leaves_beside_sums(const plan_t *plan) noexcept nogil:
    """Whether a unit leaves while the next one is summed: each is one tile, as its rows are of one statistic each, and
    what its sums read stays in the cache until it leaves."""
    cdef int64_t read = plan.cut * plan.count * plan.itemsize * (1 if plan.kind == FORWARD_TRAINING else 2)
    return (plan.kind != FORWARD_INFERENCE and plan.tile.streaming and not plan.tile.kept_inner
            and plan.tile.packs == 0 and plan.chunks == plan.others == 1 and plan.tile.activation <= CYNORM_RELU
            and read <= (BESIDE if fetches_far_lines() else BESIDE_NEAR))


cdef int run_plan(state_t *s, int team) noexcept nogil:
    cdef const plan_t *plan = s.plan
    cdef int64_t unit
    s.phases = 1
    team = min(team, plan.units * plan.chunks)
    s.by_units = (plan.chunks > 1 and plan.units % team == 0 and plan.units >= EVENLY * team
                  and plan.tile.training)
    s.beside = leaves_beside_sums(plan)
    if plan.kind == FORWARD_INFERENCE:
        s.steps[0] = COMBINE
    elif plan.chunks == 1 or s.by_units or plan.kind == BACKWARD_INFERENCE:
        s.steps[0] = SUMS | FINISH | COMBINE
    else:
        s.phases = 2
        s.steps[0] = SUMS | FINISH
        s.steps[1] = COMBINE
    s.prepared = plan.kind == FORWARD_TRAINING
    if not s.prepared and (plan.chunks > 1 or plan.cut * plan.tile.blocks < PREPARED):
        s.prepared = True
        if plan.repeat == 1:
            finish(s, 0, plan.statistics, NULL)
        else:
            for unit in range(plan.units):
                finish_unit(s, unit, NULL)
    return run_phases(s, team)


# ---- calls ----

cdef bint shares_bytes(const plan_t *plan) noexcept nogil:
    """Whether a byte of the mask may have bits of two rows, or of two units: each adds its own bits to zeros."""
    cdef int64_t row = plan.row.extent * (plan.groups.extent if plan.repeat > 1 else 1)
    return row % 8 != 0 or (plan.tile.kept_inner and plan.cuts > 1 and plan.cut * plan.spread % 8 != 0)


cdef void store_results(const cynorm_bn *p, const cynorm_bn_call *call, const state_t *s) noexcept nogil:
    """What a call writes besides tensors of the data's shape."""
    cdef const cynorm_tensor **t = <const cynorm_tensor **>call.parameter
    cdef int64_t count = s.plan.count
    cdef double factor = count / (count - 1.0) if count > 1 and p.unbiased_running else 1
    cdef int i
    if call.kind == FORWARD_TRAINING:
        for i in range(MEAN, RSTD + 1):
            store_parameter(s, t[i], i)
        store_parameter(s, t[KEPT_MEAN], MEAN)
        store_parameter(s, t[KEPT_SHIFT], SHIFT)
        if count > 0:
            update_running(p, s, t[RUNNING_MEAN], MEAN, 1)
            update_running(p, s, t[RUNNING_VARIANCE], VARIANCE, factor)
    elif call.kind != FORWARD_INFERENCE:
        store_parameter(s, t[DIFF_SCALE], DIFF_SCALE)
        store_parameter(s, t[DIFF_SHIFT], DIFF_SHIFT)


cdef char *open_arrays(state_t *s, const cynorm_bn_call *call) noexcept nogil:
    """A place for each array, and in it what is given; NULL where memory cannot be had."""
    cdef const cynorm_tensor **t = <const cynorm_tensor **>call.parameter
    cdef const plan_t *plan = s.plan
    cdef int64_t length[ARRAYS]
    cdef int64_t room[ARRAYS]
    cdef int64_t total = LINE, used
    cdef int arrays = ARRAYS if call.kind in (BACKWARD_TRAINING, BACKWARD_INFERENCE) else DIFF_SCALE, i
    cdef char *memory
    cdef char *p
    for i in range(arrays):
        length[i] = plan.statistics * plan.real
        if i in (CENTER, NORM, GAIN, BIAS, SLOPE, OFFSET):
            length[i] *= plan.repeat * plan.spread
        # load_row writes whole vectors, and coefficients are read by whole vectors
        room[i] = round_up(length[i] + VECTOR * plan.real, LINE)
        total += room[i]
    memory = <char *>malloc(total)
    if memory == NULL:
        return NULL
    p = <char *>aligned(memory)
    for i in range(arrays):
        s.array[i] = p
        used = 0 if plan.count == 0 or i in (MEAN_LOW, CENTER) else length[i]  # zeros, unless they are given or chosen
        clear_bytes(p + used, room[i] - used)
        p += room[i]
    for i in range(RSTD + 1):
        if i < MEAN or call.kind != FORWARD_TRAINING:
            load_parameter(s, t[i], i)
            if t[i] == NULL and i in (SCALE, SHIFT, VARIANCE):
                s.array[i] = NULL
    return memory


cdef int bn_run(const cynorm_bn *p, const cynorm_bn_call *call, int64_t valid, int num_threads) noexcept nogil:
    """`valid`: how many channels of the last block there are, if not all. -1 where memory cannot be had."""
    cdef plan_t plan
    cdef state_t s
    cdef bint forward = call.kind in (FORWARD_TRAINING, FORWARD_INFERENCE), few
    cdef int64_t nbytes = total_bytes(call.data[CYNORM_BN_SRC])
    cdef char *memory
    cdef char *sums = NULL
    cdef int status = 0
    make_plan(p, call, &plan)
    if plan.statistics == 0 or nbytes == 0 and call.kind == FORWARD_INFERENCE:
        return 0
    if plan.statistics >> ELEMENT_BITS:  # of no elements: bytes of so many would overflow
        return -1
    if valid and ends_in_padding(call, &plan):
        plan.padding = plan.inner_extent[0] - valid
    if forward and call.data[CYNORM_BN_MASK] != NULL and shares_bytes(&plan):
        memset(call.data[CYNORM_BN_MASK].data, 0, ceil_div(plan.statistics * plan.count, 8))
    s.plan = &plan
    s.epsilon = p.epsilon
    s.sums = NULL
    memory = open_arrays(&s, call)
    if memory == NULL:
        return -1
    if nbytes > 0:
        if call.kind == FORWARD_TRAINING and call.data[CYNORM_BN_SRC].dtype != CYNORM_BF16:
            choose_pivots(&s, call)
            repeat_rows(&plan, s.array[CENTER])
        if plan.chunks > 1 and call.kind != FORWARD_INFERENCE:
            sums = <char *>malloc(plan.units * plan.chunks * plan.task_bytes + LINE)
            if sums == NULL:
                free(memory)
                return -1
            s.sums = <char *>aligned(sums)
        # of floats, inference does so little with a byte that a second thread takes twice as many to be worth it
        few = call.kind == FORWARD_INFERENCE and plan.itemsize > 1
        status = run_plan(&s, team_size(num_threads, nbytes / 2 if few else nbytes))
        free(sums)
    if valid and not plan.padding:
        zero_padding(call.data[CYNORM_BN_DST], valid)
        if call.data[CYNORM_BN_DIFF_ADD] != NULL:
            zero_padding(call.data[CYNORM_BN_DIFF_ADD], valid)
    if status == 0:
        store_results(p, call, &s)
    free(memory)
    return status


# ---- Python ----

cdef int refuse_running(str name, object given, str which) except -1:
    if given is not None:
        raise TypeError(f"{name} must be None in inference, which takes running statistics as its {which} "
                        f"and updates none, got {shown(given)}")
    return 0


cdef class Problem:
    """A batch normalization's parameters as the kernels take them."""

    cdef cynorm_bn p
    cdef tuple axes                 # the reduced axes, or None where a layout gives them
    cdef str layout
    cdef int ndim, channel_axis, block
    cdef int64_t channels

    def __init__(self, owner, layout, activation, parameters):
        cdef int i
        self.axes = owner.axes
        self.layout = owner.layout
        self.p.epsilon = owner.epsilon
        self.p.activation = activation
        for i in range(len(parameters)):
            self.p.parameter[i] = parameters[i]
        if layout is not None:
            self.ndim = layout.ndim
            self.channel_axis = layout.channel
            self.block = layout.block
            self.channels = owner.channels or 0

    cdef unsigned reduced(self, const cynorm_tensor *src, str name) except? 0:
        """Check a tensor's dimensions; returns the axes that the statistics are over."""
        cdef unsigned axes = 0
        cdef int a
        if self.axes is None:
            check_layout(src, name, self.layout, self.ndim, self.channel_axis, self.block,
                         self.channels)
            axes = ((1 << src.ndim) - 1) & ~(1 << self.channel_axis)
            return axes & ~(1 << (src.ndim - 1)) if self.block else axes
        if src.ndim == 0:
            raise ValueError(f"{name} must have 1 to 8 dimensions, got 0")
        for axis in self.axes:
            if not -src.ndim <= axis < src.ndim:
                raise ValueError(f"axes must lie within {name}'s {src.ndim} dimensions, got {axis}")
            a = axis % src.ndim
            if axes >> a & 1:
                raise ValueError(
                    f"axes must not repeat, got {a} and {a - src.ndim} for {name} of {src.ndim} dimensions")
            axes |= 1 << a
        return axes

    cdef int64_t valid(self) noexcept:
        """Channels of the last block that exist, or 0 where it is full."""
        return self.channels % self.block if self.block else 0

    cdef tuple statistics_shape(self, const cynorm_tensor *src, unsigned reduced):
        if self.axes is None:
            return (src.shape[1] * self.block if self.block else src.shape[self.channel_axis],)
        return keep_dims(src, reduced)

    cdef object parameter(self, object array, str name, const cynorm_tensor *src, unsigned reduced,
                          cynorm_tensor *t, unsigned *constant=NULL):
        """Fill t from an array with one element per statistic, or, given `constant`, of any shape that
        broadcasts: bits of the axes it varies along are cleared there. Returns what t describes: the array,
        or, where channels are padded, a padded copy."""
        cdef int a
        array = describe_parameter(array, name, t, src)
        if t.ndim == 1 and src.ndim > 1 and self.valid() and t.shape[0] == self.channels:
            padded = np.zeros(src.shape[1] * self.block, array.dtype)
            padded[:self.channels] = array
            array = describe(padded, name, t)
        if not self.along_axes(t, src, reduced, constant):
            shape = (self.channels,) if self.channels else self.statistics_shape(src, reduced)
            kept = keep_dims(src, reduced)
            either = "" if shape == kept else f" or {kept}"
            a = single_axis(reduced, src.ndim)
            if self.axes is not None and a >= 0 and src.ndim > 1:
                either = f" or {(src.shape[a],)}"
            if constant != NULL:
                either += f", or {src.ndim} dimensions, each 1 or that of {shape_of(src)}"
            raise ValueError(f"{name} must have shape {shape}{either}, got {array.shape}")
        return array

    cdef object given(self, object array, int which, const cynorm_tensor *src, unsigned reduced, cynorm_tensor *t,
                      cynorm_bn_call *call, unsigned *constant=NULL):
        """As `parameter`, and give the parameter to the call; None where there is none."""
        if array is None:
            return None
        call.parameter[which] = &t[which]
        return self.parameter(array, NAMES[which], src, reduced, &t[which], constant)

    cdef object whole(self, object given, str name, object array):
        """The memory of what was given for a parameter, of which `array` may be a padded copy."""
        if given is None or not self.valid():
            return array
        return as_array(given, name, False)

    cdef bint along_axes(self, cynorm_tensor *t, const cynorm_tensor *src, unsigned reduced,
                         unsigned *constant) noexcept:
        """Turn the strides of t, of a parameter's shape, into those along src's axes; `constant` as in `parameter`.
        Returns whether t has such a shape."""
        cdef int a
        cdef int64_t stride
        cdef unsigned varies = 0
        if t.ndim == 1 and src.ndim > 1:
            a = self.channel_axis if self.axes is None else single_axis(reduced, src.ndim)
            if a < 0 or t.shape[0] != src.shape[a] * max(self.block, 1):
                return False
            stride = t.strides[0]
            memset(t.strides, 0, sizeof(t.strides))
            t.strides[a] = stride * max(self.block, 1)
            varies = 1 << a
            if self.block:
                t.strides[src.ndim - 1] = stride
                varies |= 1 << (src.ndim - 1)
        elif t.ndim != src.ndim:
            return False
        else:
            for a in range(t.ndim):
                if t.shape[a] == src.shape[a] != 1 and (constant != NULL or not reduced >> a & 1):
                    varies |= 1 << a
                elif t.shape[a] == 1 and (constant != NULL or reduced >> a & 1 or src.shape[a] == 1):
                    t.strides[a] = 0
                else:
                    return False
        if constant != NULL:
            constant[0] &= ~varies
        return True

    cdef object output(self, object out, str name, object like, const cynorm_tensor *src, unsigned reduced,
                       cynorm_tensor *t):
        """Fill t from the array that one value per statistic is written to: `out` or, if that is None, a new
        array, of the shape and dtype of `like`, or of reals. Returns what t describes, as `parameter` does."""
        if out is None:
            if like is None:
                out = new_array(self.statistics_shape(src, reduced), real_dtype(src.dtype))
            else:
                out = new_array_like(like)
        return self.parameter(out, name, src, reduced, t)

    cdef object clear_parameter(self, object array):
        """Zeros where an array of one element per statistic has padding."""
        valid = self.valid()
        if valid and array.ndim == 1:
            array[self.channels:] = 0
        elif valid:
            array[:, -1:, ..., valid:] = 0

    cdef object finished(self, object given, object out, object array, object like=None):
        """What a call returns once it has written to `array`: what it was `given`, whose memory is `out`, or an array
        of the length of `like`."""
        self.clear_parameter(array)
        if given is None:
            if self.valid() and array.ndim == 1 and (like is None or like.size == self.channels):
                return array[:self.channels]
            return array
        if array is not out:
            out[...] = array[:self.channels]
        return given

    cdef int rows(self, object part, const cynorm_tensor *src, unsigned reduced, cynorm_tensor *t) except -1:
        """Fill as many tensors as a part of the workspace has rows, of one real per statistic. Returns their number."""
        cdef int rows, a, i
        cdef int64_t row, step
        describe(part, "workspace", t)
        rows, row, step = t.shape[0], t.strides[0], t.strides[1]
        if self.axes is None:
            t.ndim, t.shape[0] = 1, t.shape[1]
            t.strides[0] = step
        else:
            t.ndim = src.ndim
            for a in range(src.ndim - 1, -1, -1):
                t.shape[a] = 1 if reduced >> a & 1 else src.shape[a]
                t.strides[a] = step
                step *= t.shape[a]
        self.along_axes(t, src, reduced, NULL)
        for i in range(1, rows):
            t[i] = t[0]
            t[i].data += i * row
        return rows

    cdef object keep(self, Workspace workspace, const cynorm_bn *p, unsigned reduced, bint has_add, bint has_scale,
                     bint has_shift, cynorm_bn_call *call, kept_t *kept):
        """Begin a workspace: what the forward call is to leave there. Notes what that call was given, and the
        mask's strides."""
        cdef const cynorm_tensor *src = call.data[CYNORM_BN_SRC]
        cdef bint training = call.kind == FORWARD_TRAINING, keeps_shift = False
        bits = None
        workspace.begin(src, training)
        if src.dtype == CYNORM_S8 or p.activation == CYNORM_IDENTITY:  # int8 has no backward
            pass
        elif p.activation == CYNORM_RELU:
            kept.mask = src[0]
            part = workspace.part("mask", (bn_mask(p, call, kept.mask.strides),), np.dtype(np.uint8))
            kept.mask.data = address(part)
            call.data[CYNORM_BN_MASK] = &kept.mask
            bits = tuple([kept.mask.strides[i] for i in range(src.ndim)])
        elif has_add or not training or workspace.cache == "always":
            describe(workspace.part_like("value", src), "workspace", &kept.value)
            call.data[CYNORM_BN_VALUE] = &kept.value
        else:
            keeps_shift = has_shift
        if training:
            shape = SHIFT_ROW + keeps_shift, elements_of(call.parameter[MEAN])
            self.rows(workspace.part("statistics", shape, real_dtype(src.dtype)), src, reduced, kept.row)
            call.parameter[KEPT_MEAN] = &kept.row[MEAN_ROW]
            call.parameter[MEAN_LOW] = &kept.row[MEAN_LOW_ROW]
            call.parameter[RSTD] = &kept.row[RSTD_ROW]
            if keeps_shift:
                call.parameter[KEPT_SHIFT] = &kept.row[SHIFT_ROW]
        workspace.notes = has_add, has_scale, has_shift, bits

    cdef bint recall(self, Workspace workspace, owner, unsigned reduced, bint has_scale, bint has_shift,
                     cynorm_bn_call *call, kept_t *kept) except -1:
        """What the forward call has left there, for a backward call like it. Returns whether that had an `add`."""
        cdef const cynorm_tensor *src = call.data[CYNORM_BN_SRC]
        cdef int rows, i
        workspace.match(owner, src, call.kind == BACKWARD_TRAINING)
        had_add, had_scale, had_shift, bits = workspace.notes
        if had_scale and not has_scale:
            raise ValueError("scale must be given, as it was to the forward call, got None")
        if has_scale and not had_scale or has_shift and not had_shift:
            name = "scale" if has_scale and not had_scale else "shift"
            raise ValueError(f"{name} must be None, as it was in the forward call, got an array")
        if call.kind == BACKWARD_TRAINING:
            rows = self.rows(workspace.parts["statistics"], src, reduced, kept.row)
            if call.parameter[MEAN] == NULL:
                call.parameter[MEAN] = &kept.row[MEAN_ROW]
                call.parameter[MEAN_LOW] = &kept.row[MEAN_LOW_ROW]
                call.parameter[RSTD] = &kept.row[RSTD_ROW]
            if rows > SHIFT_ROW:
                call.parameter[SHIFT] = &kept.row[SHIFT_ROW]  # whatever has become of the one given
        if "mask" in workspace.parts:
            kept.mask = src[0]
            kept.mask.data = address(workspace.parts["mask"])
            for i in range(src.ndim):
                kept.mask.strides[i] = bits[i]
            call.data[CYNORM_BN_MASK] = &kept.mask
        if "value" in workspace.parts:
            describe(workspace.parts["value"], "workspace", &kept.value)
            call.data[CYNORM_BN_VALUE] = &kept.value
        return had_add

    def workspace_nbytes(self, shape, dtype, cache, training):
        cdef cynorm_tensor src
        cdef int64_t elements, statistics = 1, size, parts = 0
        checked_cache(cache)
        describe_shape(shape, dtype, &src, not training)
        elements = elements_of(&src)
        size = real_size(src.dtype)
        for extent in self.statistics_shape(&src, self.reduced(&src, "shape")):
            statistics *= extent
        if src.dtype == CYNORM_S8:
            return 0
        if training:
            parts = SHIFT_ROW
        if self.p.activation == CYNORM_RELU:
            return parts * statistics * size + mask_bytes(elements)
        if self.p.activation == CYNORM_IDENTITY:
            return parts * statistics * size
        if cache == "always" or not training:
            return (parts * statistics + elements) * size
        return (parts + 1) * statistics * size

    def implementation(self, src):
        cdef cynorm_tensor t
        cdef cynorm_bn_call call
        cdef plan_t plan
        memset(&call, 0, sizeof(cynorm_bn_call))
        describe(src, "src", &t, True)
        call.reduced = self.reduced(&t, "src")
        call.data[CYNORM_BN_SRC] = call.data[CYNORM_BN_DST] = &t
        make_plan(&self.p, &call, &plan)
        traversal = "kept_innermost" if plan.tile.kept_inner else "reduced_innermost"
        return f"batch_norm:{traversal}:{short_name(t.dtype)}:{isa()}"

    def forward(self, owner, bint training, src, mean, variance, scale, shift, add, out, given_workspace,
                running_mean, running_variance, double momentum, bint unbiased_running, num_threads):
        cdef Workspace workspace = checked_workspace(given_workspace)
        cdef cynorm_tensor x, d, a
        cdef cynorm_tensor t[PARAMETERS]
        cdef kept_t kept
        cdef cynorm_bn_call call
        cdef cynorm_bn p = self.p
        cdef unsigned reduced
        cdef unsigned *constant = NULL
        cdef int threads = requested_threads(num_threads), status
        cdef int64_t valid
        memset(&call, 0, sizeof(cynorm_bn_call))
        src = describe(src, "src", &x, not training)
        call.kind = FORWARD_TRAINING if training else FORWARD_INFERENCE
        call.data[CYNORM_BN_SRC] = &x
        call.data[CYNORM_BN_DST] = &d
        call.reduced = reduced = self.reduced(&x, "src")
        valid = self.valid()
        given_mean, given_variance, given_scale, given_shift = mean, variance, scale, shift
        out_mean = out_variance = None
        if training:
            p.momentum = momentum
            p.unbiased_running = unbiased_running
            out_mean = optional_output(mean, "out_mean")
            out_variance = optional_output(variance, "out_variance")
            mean = self.output(out_mean, "out_mean", None, &x, reduced, &t[MEAN])
            variance = self.output(out_variance, "out_variance", None, &x, reduced, &t[VARIANCE])
        else:
            refuse_running("running_mean", running_mean, "mean")
            refuse_running("running_variance", running_variance, "variance")
            call.reduced = (1 << x.ndim) - 1
            constant = &call.reduced
            mean = self.parameter(mean, "mean", &x, reduced, &t[MEAN], constant)
            variance = self.parameter(variance, "variance", &x, reduced, &t[VARIANCE], constant)
        scale = self.given(scale, SCALE, &x, reduced, t, &call, constant)
        shift = self.given(shift, SHIFT, &x, reduced, t, &call, constant)
        running_mean = optional_output(running_mean, "running_mean")
        new_mean = self.given(running_mean, RUNNING_MEAN, &x, reduced, t, &call)
        running_variance = optional_output(running_variance, "running_variance")
        new_variance = self.given(running_variance, RUNNING_VARIANCE, &x, reduced, t, &call)
        if add is not None:
            add = describe_like(add, "add", &x, &a)
            call.data[CYNORM_BN_ADD] = &a
        array = output_like(out, "out", src, &x, &d)
        whole_scale, whole_shift = self.whole(given_scale, "scale", scale), self.whole(given_shift, "shift", shift)
        if training:
            check_outputs((src, add, whole_scale, whole_shift, array, out_mean, out_variance, running_mean,
                           running_variance), FORWARD_ARRAYS, FORWARD_INPUTS)
        elif out is not None:
            check_outputs((src, add, whole_scale, whole_shift, self.whole(given_mean, "mean", mean),
                           self.whole(given_variance, "variance", variance), array), INFERENCE_ARRAYS, INFERENCE_INPUTS)
        call.parameter[MEAN] = &t[MEAN]
        call.parameter[VARIANCE] = &t[VARIANCE]
        if workspace is not None:
            workspace.acquire()
        try:
            if workspace is not None:
                self.keep(workspace, &p, reduced, add is not None, scale is not None, shift is not None, &call, &kept)
            with nogil:
                status = bn_run(&p, &call, valid, threads)
            check_memory(status)
            if workspace is not None and x.dtype != CYNORM_S8:
                workspace.owner = owner
        finally:
            if workspace is not None:
                workspace.release()
        if valid:
            if running_mean is not None:
                self.finished(running_mean, running_mean, new_mean)
            if running_variance is not None:
                self.finished(running_variance, running_variance, new_variance)
        if not training:
            return array if out is None else out, mean, variance
        return (array if out is None else out, self.finished(given_mean, out_mean, mean),
                self.finished(given_variance, out_variance, variance))

    def backward(self, owner, bint training, diff_dst, src, mean, variance, scale, shift, given_workspace, out,
                 out_scale, out_shift, out_add, num_threads):
        cdef Workspace workspace = checked_workspace(given_workspace)
        cdef cynorm_tensor x, g, d, e
        cdef cynorm_tensor t[PARAMETERS]
        cdef kept_t kept
        cdef cynorm_bn_call call
        cdef unsigned reduced
        cdef int threads = requested_threads(num_threads), status
        cdef int64_t valid
        cdef bint has_add
        add = None
        given_mean, given_variance = mean, variance
        memset(&call, 0, sizeof(cynorm_bn_call))
        src = describe(src, "src", &x)
        call.kind = BACKWARD_TRAINING if training else BACKWARD_INFERENCE
        call.data[CYNORM_BN_SRC] = &x
        call.data[CYNORM_BN_DIFF_DST] = &g
        call.data[CYNORM_BN_DST] = &d
        call.reduced = reduced = self.reduced(&x, "src")
        valid = self.valid()
        diff_dst = describe_like(diff_dst, "diff_dst", &x, &g)
        if self.p.activation == CYNORM_RELU and workspace is None:
            raise ValueError("workspace must be given: it holds the mask of ReLU, got None")
        if (mean is None) != (variance is None):
            either = ", or a workspace in their place" if training else ""
            raise ValueError(f"mean and variance must be given together{either}, "
                             f"got {'variance' if mean is None else 'mean'} alone")
        if mean is None and not training:
            raise ValueError("mean and variance must be given, as they were to the forward call, got neither")
        if mean is None and workspace is None:
            raise ValueError("mean and variance, or a workspace in their place, must be given, got neither")
        mean = self.given(mean, MEAN, &x, reduced, t, &call)
        variance = self.given(variance, VARIANCE, &x, reduced, t, &call)
        padded_scale = self.given(scale, SCALE, &x, reduced, t, &call)
        padded_shift = self.given(shift, SHIFT, &x, reduced, t, &call)
        array = output_like(out, "out", src, &x, &d)
        if out_add is not None:
            if workspace is None:
                raise ValueError(
                    "out_add must be None without the workspace of a forward call with add, got an array")
            # a row of it is written before the same row of src is read for out
            add = output_like(out_add, "out_add", src, &x, &e)
            check_outputs((src, add), ("src", "out_add"), 0)
        to_scale = optional_output(out_scale, "out_scale")
        to_shift = optional_output(out_shift, "out_shift")
        diff_scale = self.output(to_scale, "out_scale", padded_scale, &x, reduced, &t[DIFF_SCALE])
        diff_shift = self.output(to_shift, "out_shift", padded_scale if shift is None else padded_shift, &x, reduced,
                                 &t[DIFF_SHIFT])
        whole_scale, whole_shift = self.whole(scale, "scale", padded_scale), self.whole(shift, "shift", padded_shift)
        check_outputs((src, diff_dst, whole_scale, whole_shift, self.whole(given_mean, "mean", mean),
                       self.whole(given_variance, "variance", variance), array, add, to_scale, to_shift),
                      BACKWARD_ARRAYS, BACKWARD_INPUTS)
        call.parameter[DIFF_SCALE] = &t[DIFF_SCALE]
        call.parameter[DIFF_SHIFT] = &t[DIFF_SHIFT]
        if workspace is not None:
            workspace.acquire()
        try:
            if workspace is not None:
                has_add = self.recall(workspace, owner, reduced, scale is not None, shift is not None, &call, &kept)
                if out_add is not None and not has_add:
                    raise ValueError("out_add must be None after a forward call without add, got an array")
                if has_add:
                    if out_add is None:
                        out_add = empty_like(src, &e)
                    call.data[CYNORM_BN_DIFF_ADD] = &e
            with nogil:
                status = bn_run(&self.p, &call, valid, threads)
            check_memory(status)
        finally:
            if workspace is not None:
                workspace.release()
        diff_scale = self.finished(out_scale, to_scale, diff_scale, whole_scale)
        diff_shift = self.finished(out_shift, to_shift, diff_shift, whole_scale if shift is None else whole_shift)
        diff_src = array if out is None else out
        return tuple.__new__(BatchNormGradients, (diff_src, diff_scale, diff_shift, out_add))  # its own is in Python


cdef object optional_output(object out, str name):
    return None if out is None else output_array(out, name)


cdef tuple keep_dims(const cynorm_tensor *src, unsigned reduced):
    """src's shape with 1 along the reduced axes."""
    return tuple([1 if reduced >> a & 1 else src.shape[a] for a in range(src.ndim)])


cdef int single_axis(unsigned reduced, int ndim) noexcept:
    """The only axis that is kept, or -1 where there are several."""
    cdef int kept = -1, a
    for a in range(ndim):
        if not reduced >> a & 1:
            if kept >= 0:
                return -1
            kept = a
    return kept


cdef char *address(cnp.ndarray array) noexcept:
    return <char *>cnp.PyArray_DATA(array)
