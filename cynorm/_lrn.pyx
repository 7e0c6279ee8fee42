# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""LRN over arrays: which tiles a call is made of, in which order a tile is traversed, and by which thread.

A call's axes are either windowed (channels, or the spatial axes) or independent. A tile streams along one axis, a slab
at a time, and a slab has up to three levels, the innermost first:

    across, channels innermost   stream pixels     slab channels x pixels           window inside the slab
    across, blocked              stream pixels     slab block x blocks x pixels     window inside the slab, over both
    across, few pixels           stream images     slab pixels x channels           window inside the slab
    across, otherwise            stream channels   slab pixels                      window along the stream
    within, W innermost          stream H (or D)   slab W (x H) x planes            windows both ways
    within, channels innermost   stream H (or D)   slab channels x W (x H)          windows both ways
    within, as volumes           stream D          slab (W and H as one) x planes   windows all three ways

One loop (lrn.h) serves them all, with any strides; other loops take the tiles that suit them (lrn_choice.h). A run
that is not contiguous is packed on its way in and out. Where tensors differ in memory order, channels are innermost
if they are so in any tensor, unless pixels are so in src or diff_dst: then a tile's part of the other tensors is
transposed whole.
"""

from cython.parallel cimport parallel

from cynorm._dispatch import isa

from cynorm._dispatch cimport fetches_far_lines, kernels, requested_threads, team_size
from cynorm._kernels cimport (
    CYNORM_COLUMN_SLABS, CYNORM_COPIED_PLANE, CYNORM_LRN_CHANNELS, CYNORM_LRN_COLUMNS, CYNORM_LRN_COPIED,
    CYNORM_LRN_LINES, CYNORM_LRN_VOLUMES, CYNORM_REACH, CYNORM_SUM_DIRECT, CYNORM_TRANSPOSED_MOST,
    CYNORM_TRANSPOSED_PIXELS, cynorm_lrn_tile, cynorm_lrn_view, cynorm_real_kernels,
)
from cynorm._tasks cimport (
    close_tasks, cynorm_float_mode, cynorm_set_float_mode, next_task, omp_get_num_threads, omp_get_thread_num,
    open_tasks, tasks_t,
)
from cynorm._tensor cimport (
    aligned, ceil_div, check_layout, check_memory, check_outputs, clear_bytes, describe, describe_like, describe_shape,
    elements_of, output_like, real_size, round_up, same_memory, short_name, total_bytes, whole_elements, zero_padding,
)
from cynorm._types cimport (
    CYNORM_F64, cynorm_itemsize, cynorm_lrn, cynorm_lrn_set_window, cynorm_tensor, cynorm_window,
)
from cynorm._workspace cimport Workspace, checked_cache, checked_workspace
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, llabs, malloc
from libc.string cimport memcpy, memset

cdef enum:
    AXES = 6
    LINE = 64                       # bytes
    SETS = 512                      # bytes: what lies a multiple of this apart shares few sets of a cache
    VECTOR = 16                     # elements: no run is cut shorter than a vector's worth
    PART_LINES = 20                 # lines: the shortest part of a plane that goes by columns in the cache
    THREAD_LINES = 1200             # lines: the least work of a thread by columns in the cache
    NARROWEST = 10                  # elements: shorter rows of planes are transposed, as channels of pixels;
    NARROWEST_HALF = 14             # of half types,
    NARROWEST_DOUBLE = 8            # of float64
    RUN = 1024                      # elements: the target length of a slab
    SLAB = 4096                     # elements: the length a slab of a window may have before it is cut
    TRANSPOSED = 3 << 13            # bytes: the target of a slab that is partly transposed: runs are long both ways
    FEW_CHANNELS = 8                # elements: pixels of fewer channels leave vectors empty
    FEW_OF_ROWS = 24                # likewise, with a window over one axis, which are transposed to rows;
    FEW_OF_ROWS_HALF = 32           # of half types
    ROW_CELLS = 31                  # windows along rows that loops take wherever a vector has 64 bytes,
    ROW_CELLS_DOUBLE = 15           # of float64
    GROUPS = 64                     # slabs: the length of a tile that streams along groups
    TILES = 4                       # for each thread: a small tensor is cut into about this many
    SCRATCH = 1 << 20               # bytes that a thread aims to stay within, about a second-level cache;
    SCRATCH_MOST = 4 << 20          # the most, where this avoids a cut that would cost more
    ROWS_SCRATCH = 1 << 19          # where rows are packed, whose loops take parts of them,
    ROW_WINDOWS = 16                # of so many windows at least
    LEAST_PLANE = 48                # elements: smaller planes of volumes are not worth the calls of their loops
    TRANSPOSED_PLANE = 256          # nor these, if they are transposed
    BESIDE = 9                      # elements: in planes of at most this many, channels are not streamed,
    BESIDE_WIDE = 6                 # or, for float64, this many,
    BESIDE_MOST = 1 << 14           # if a whole image has at most this many
    STREAMING = 1 << 23             # bytes moved: from this many on, dst bypasses the cache
    FAR_STREAMING = 1 << 21         # for each thread, where columns of dst would be fetched line by line

# One axis of a problem: where the tensors lie along it, and its window.
ctypedef struct axis_t:
    int64_t extent
    int64_t stride[VIEWS]
    int64_t left, right
    bint windowed

# A problem as tiles: `outer` axes that tiles enumerate, and cuts of the tile's own axes.
ctypedef struct plan_t:
    cynorm_lrn_tile tile            # all but what differs between tiles
    axis_t level[3]
    axis_t streamed
    axis_t outer[AXES]
    int outers
    bint joint                      # levels 0 and 1 are one windowed axis: blocked channels
    int64_t cut[4]                  # outputs per tile along level 0, 1, 2 and the streamed axis
    int64_t cuts[4]                 # how many such parts
    int64_t tiles, wanted           # how many there are, how many the threads would like
    int team                        # how many threads
    bint parts_first                # a tile is followed by the same part of the next run, not by the run's next part
    int64_t itemsize, moved         # bytes of an element, and of all that are read and written
    bint cached                     # so few that they stay in the cache
    bint may_stream                 # whether dst may bypass it
    int overwritten                 # DST or OMEGA, if the call also reads that tensor; else -1
    int64_t padding                 # channels behind the last one of a row: zeros in dst
    bint backward
    const char *traversal

# State while levels are cut, one after another: elements of a slab, tiles, entries of the levels not cut yet.
ctypedef struct cutting_t:
    int64_t length, tiles, uncut
    int64_t windows                 # a part of the stream is at least this many windows long
    int64_t planes                  # how many are copied together; 0: none
    bint by_columns, whole          # whether columns serve; whether loops are many times as fast if level 0 is not cut

# A strip of memory along levels 0, 1, 2 and the stream.
ctypedef struct strip_t:
    char *data
    int64_t count[4]
    int64_t stride[4]
    int64_t size, nbytes            # of an element, of the whole strip


cdef bint nearer(const axis_t *a, const axis_t *b) noexcept nogil:
    """Whether entries of a lie nearer to each other than those of b: in src or, where src repeats them, in dst."""
    cdef int64_t by_a = llabs(a.stride[SRC if a.stride[SRC] != 0 else DST])
    cdef int64_t by_b = llabs(b.stride[SRC if b.stride[SRC] != 0 else DST])
    return by_a < by_b or by_a == by_b and llabs(a.stride[DST]) < llabs(b.stride[DST])


cdef bint contiguous(const axis_t *a, int64_t itemsize, int views) noexcept nogil:
    """Whether any of the first `views` tensors is contiguous along this axis."""
    cdef int i
    for i in range(views):
        if a.stride[i] == itemsize:
            return True
    return False


# ---- axes ----

cdef int problem_axes(const cynorm_lrn *p, const cynorm_tensor *const *views, axis_t *axes) noexcept nogil:
    """The tensor's axes without those of extent 1, which stay only for windows across blocks."""
    cdef const cynorm_tensor *src = views[SRC]
    cdef int count = 0, a, i
    cdef bint channels
    cdef axis_t *axis
    for a in range(src.ndim):
        channels = a == p.channel_axis or p.block and a == src.ndim - 1
        if src.shape[a] == 1 and not (channels and p.block and not p.within_channel):
            continue
        axis = &axes[count]
        count += 1
        axis.extent = src.shape[a]
        for i in range(VIEWS):
            axis.stride[i] = views[i].strides[a] if views[i] != NULL else 0
        axis.windowed = a > 0 and channels != p.within_channel
        axis.left = min(p.left, axis.extent - 1) if axis.windowed else 0
        axis.right = min(p.right, axis.extent - 1) if axis.windowed else 0
    return count


cdef bint mergeable(const axis_t *outer, const axis_t *inner) noexcept nogil:
    cdef int i
    for i in range(VIEWS):
        if outer.stride[i] != inner.stride[i] * inner.extent:
            return False
    return True


cdef int split_axes(const axis_t *axes, int count, bint windowed, axis_t *out) noexcept nogil:
    """The windowed axes in their order, or the independent ones, innermost first and merged where they follow on."""
    cdef int n = 0, i, j
    cdef axis_t axis
    for i in range(count):
        if axes[i].windowed == windowed:
            out[n] = axes[i]
            n += 1
    if windowed:
        return n
    for i in range(1, n):
        axis = out[i]
        j = i
        while j > 0 and not nearer(&out[j - 1], &axis):
            out[j] = out[j - 1]
            j -= 1
        out[j] = axis
    i = 0
    while i + 1 < n:
        if mergeable(&out[i + 1], &out[i]):
            out[i].extent *= out[i + 1].extent
            for j in range(i + 1, n - 1):
                out[j] = out[j + 1]
            n -= 1
        else:
            i += 1
    return n


# ---- plan ----

cdef const cynorm_real_kernels *kernels_of(const plan_t *plan) noexcept nogil:
    return kernels().real[plan.tile.src.dtype == CYNORM_F64]


cdef bint beside_window(const axis_t *pixels, const axis_t *channels, int64_t itemsize) noexcept nogil:
    """Whether a slab has all channels: where pixels are few and channels follow on."""
    return (pixels.extent <= (BESIDE_WIDE if itemsize == 8 else BESIDE)
            and pixels.extent * channels.extent <= BESIDE_MOST and mergeable(channels, pixels))


cdef bint pixels_follow(const axis_t *pixels, const axis_t *channels, int64_t itemsize) noexcept nogil:
    """Whether channels follow one another, and so do pixels, in all tensors."""
    cdef int i
    for i in range(OMEGA):
        if channels.stride[i] == 0 and pixels.stride[i] == 0:
            continue                # no such tensor
        if channels.stride[i] != itemsize or pixels.stride[i] != itemsize * channels.extent:
            return False
    return True


cdef int64_t narrowest(int64_t itemsize) noexcept nogil:
    return NARROWEST_HALF if itemsize == 2 else NARROWEST if itemsize == 4 else NARROWEST_DOUBLE


cdef bint fit_rows(const plan_t *plan, const axis_t *window, const axis_t *channels) noexcept nogil:
    """Whether pixels of few channels, with a window over one axis, go as rows: where these have loops, and are three
    windows long at least."""
    cdef int64_t cells = window.left + window.right + 1, few = 2 * kernels_of(plan).lrn_fewest
    cdef bint narrow = window.left == window.right <= CYNORM_REACH  # pixels have loops of their own
    if plan.itemsize == 8:
        few = min(FEW_CHANNELS, few) if narrow else max(FEW_CHANNELS, few)
    elif not narrow:
        few = FEW_OF_ROWS if plan.itemsize == 4 else FEW_OF_ROWS_HALF
    if plan.itemsize == 4 and channels.extent * 4 >= LINE and window.extent <= CYNORM_COLUMN_SLABS:
        return False                # columns serve, as a rule
    return (channels.extent < few and cells <= (ROW_CELLS_DOUBLE if plan.itemsize == 8 else ROW_CELLS)
            and 3 * cells <= window.extent)


cdef bint lies_along_window(const cynorm_lrn *p, const plan_t *plan, const axis_t *windowed, int w,
                            const axis_t *free_axes, int f, bint transposable) noexcept nogil:
    """Whether level 0 is the window's innermost axis: where it is contiguous and long enough to fill vectors."""
    cdef const axis_t *window = &windowed[w - 1]
    cdef int64_t itemsize = plan.itemsize
    cdef bint fills = f > 0 and free_axes[0].extent >= VECTOR, along = f == 0 or not nearer(&free_axes[0], window)
    cdef bint box = transposable and w == 2, looped = box and p.left == p.right and p.left <= (
        kernels_of(plan).lrn_plane_reach)
    cdef int64_t cells = window.left + window.right + 1
    cdef bint far = cells > CYNORM_SUM_DIRECT
    cdef const axis_t *channels = window if not p.within_channel else &free_axes[0]
    cdef bint small, planes, few = f > 0 and transposable and channels.extent < FEW_CHANNELS
    # where orders are mixed, the slab has the contiguous axes of all tensors, or what lies along the window is
    # transposed; omega of wide windows does not change this: see maybe_by_blocks
    if not p.within_channel and contiguous(window, itemsize, OMEGA):
        along = not (fills and (transposable or far and not plan.backward)
                     and window.extent <= CYNORM_TRANSPOSED_MOST
                     and (few and not far or contiguous(&free_axes[0], itemsize, DST)))
    # channels too few for vectors are taken as planes, unless these are narrow, or pixels already lie as rows or are
    # copied as such; with one axis, as rows
    if p.within_channel and w == 1 and f > 0 and transposable and not along:
        along = fit_rows(plan, window, channels)
    elif p.within_channel and few and not along:
        if box and pixels_follow(window, channels, itemsize):
            return False
        elif box and channels.extent < kernels_of(plan).lrn_fewest:
            # rows are copied one by one, unless two of these ask for planes
            small = windowed[0].extent * window.extent * itemsize <= CYNORM_COPIED_PLANE
            planes = not plan.backward and contiguous(window, itemsize, OMEGA)
            if looped + small + planes < 2:
                return False
            along = window.extent >= (narrowest(itemsize) if looped else VECTOR)
        elif looped:
            along = window.extent >= narrowest(itemsize)
        elif box:
            along = (window.extent >= VECTOR
                     and windowed[0].extent * window.extent * itemsize <= CYNORM_COPIED_PLANE)
    # where orders are mixed, planes too large to be transposed are copied
    if box and contiguous(window, itemsize, OMEGA) and windowed[0].extent * window.extent > CYNORM_TRANSPOSED_PIXELS:
        along = along or not looped or (
            not plan.backward and windowed[0].extent * window.extent * itemsize <= 2 * CYNORM_COPIED_PLANE)
    if not (along and fills):
        return along
    if not p.within_channel and not transposable and not far and window.extent >= FEW_CHANNELS and (
            contiguous(window, itemsize, OMEGA)):
        return True                 # dst is given, or omega kept: channels are taken as they lie
    # planes too narrow for vectors, or for windows without loops of their own, are transposed to pixels of channels
    if window.extent < (narrowest(itemsize) if looped else VECTOR):
        return False
    return not (box and (not looped or contiguous(&free_axes[0], itemsize, OMEGA))
                and windowed[0].extent * windowed[1].extent <= CYNORM_TRANSPOSED_PIXELS)


cdef bint as_volume(const cynorm_lrn *p, plan_t *plan, axis_t *windowed, bint channels_last,
                    bint few) noexcept nogil:
    """Make one axis of the pixels and rows of planes, where loops of planes take windows over depth as well, and planes
    are large enough for these; for channels that lie innermost in some tensor, to be transposed, too, unless they are
    `few`. Narrow windows that are not the same on all sides take the general loop, which is faster if these are not."""
    cdef int64_t area = windowed[1].extent * windowed[2].extent
    cdef bint narrow = p.left + p.right < CYNORM_SUM_DIRECT and not few
    cdef int i
    if area < (TRANSPOSED_PLANE if channels_last else LEAST_PLANE) or channels_last and windowed[2].extent < VECTOR:
        return False
    for i in range(3):
        if windowed[i].left + windowed[i].right == 0 or narrow and not windowed[i].left == windowed[i].right == p.left:
            return False
    if not mergeable(&windowed[1], &windowed[2]):
        return False
    plan.tile.rows = windowed[1].extent
    plan.tile.window[1].left = windowed[1].left
    plan.tile.window[1].right = windowed[1].right
    windowed[1] = windowed[2]
    windowed[1].extent = area
    return True


cdef void choose_traversal(const cynorm_lrn *p, const axis_t *axes, int count, bint transposable, bint volumes,
                           plan_t *plan) noexcept nogil:
    """Give each axis its place: streamed, a level of the slab, or outer."""
    cdef axis_t windowed[AXES]
    cdef axis_t free_axes[AXES]
    cdef int w = split_axes(axes, count, True, windowed), f = split_axes(axes, count, False, free_axes)
    cdef int levels = 0, taken = 0, i
    cdef bint along_window, channels_last = f > 0 and contiguous(&free_axes[0], plan.itemsize, OMEGA)
    cdef bint few = channels_last and 1 < free_axes[0].extent < kernels_of(plan).lrn_fewest
    if w == 3 and volumes and transposable and as_volume(p, plan, windowed, channels_last, few):
        w = 2
    if not p.within_channel and p.block:
        plan.joint = True
        plan.level[0] = windowed[1]
        plan.level[1] = windowed[0]
        levels = 2
        plan.traversal = "blocked"
    elif w == 0:
        plan.traversal = "pointwise"
    else:
        # omega is kept by windows along the stream, which have the bits of rows then
        plan.tile.trees = p.within_channel and w == 1 and f > 0 and fit_rows(plan, &windowed[0], &free_axes[0])
        if plan.tile.rows:          # pixels of few channels are rows as they lie
            along_window = not few
        else:
            along_window = lies_along_window(p, plan, windowed, w, free_axes, f, transposable)
        if along_window:
            plan.level[0] = windowed[w - 1]
            levels = 1
            w -= 1
        elif not p.within_channel and beside_window(&free_axes[0], &windowed[0], plan.itemsize):
            plan.level[0] = free_axes[0]
            plan.level[1] = windowed[0]
            levels = 2
            taken = 1
            w = 0
        else:
            plan.level[0] = free_axes[0]
            levels = taken = 1
        if w > 0:
            plan.streamed = windowed[0]
        for i in range(w - 1, 0, -1):
            plan.level[levels] = windowed[i]
            levels += 1
        plan.traversal = "channels_last" if along_window != p.within_channel else "plain"
    for i in range(taken, f):
        if levels < 3:
            plan.level[levels] = free_axes[i]
            levels += 1
        else:
            plan.outer[plan.outers] = free_axes[i]
            plan.outers += 1


cdef int64_t whole_vectors(int64_t n) noexcept nogil:
    return round_up(n, VECTOR)


cdef int64_t entries_of(const plan_t *plan, int64_t cells) noexcept nogil:
    """How many entries of a level `cells` cells of a window reach into."""
    return ceil_div(cells, plan.level[0].extent) if plan.joint else cells


cdef int64_t margin(const plan_t *plan, int which) noexcept nogil:
    """Room beside a level's outputs on each side: the window's zeros, or, where the level is cut, what is loaded."""
    cdef const axis_t *axis = &plan.level[which]
    if plan.cuts[which] == 1:
        return max(axis.left, axis.right)
    return (2 if plan.backward else 1) * (axis.left + axis.right)


cdef int64_t between(const plan_t *plan, int which, int64_t side) noexcept nogil:
    """From one run of a level to the next: zeros that both share or, where the level is cut, a side of each."""
    return side if plan.cuts[which] == 1 else 2 * side


cdef void set_slab(plan_t *plan) noexcept nogil:
    """Scratch geometry and inner windows for the present cuts."""
    cdef cynorm_lrn_tile *t = &plan.tile
    cdef int64_t side[3]
    cdef int i
    t.extent = plan.streamed.extent
    t.part = plan.cut[3]
    for i in range(3):
        t.count[i] = plan.cut[i]
        side[i] = margin(plan, i)
    t.windows = 0
    t.pitch[0] = 1
    if plan.joint:
        side[0] = 0
        t.pitch[1] = t.count[0]
        if plan.cuts[1] > 1:
            side[1] = t.count[0] * entries_of(plan, side[1])
        side[1] = whole_vectors(side[1])
        t.pitch[2] = t.count[0] * t.count[1] + between(plan, 1, side[1])
        t.origin = side[1]
        t.size = t.origin + t.pitch[2] * t.count[2]
        t.windows = 1
        t.window[0].step = 1
        t.window[0].left = plan.level[1].left
        t.window[0].right = plan.level[1].right
        return
    # rows of whole vectors begin at a vector
    if t.count[0] % VECTOR == 0:
        side[0] = whole_vectors(side[0])
    t.pitch[1] = t.count[0] + between(plan, 0, side[0])
    if plan.level[0].windowed and (t.pitch[1] * plan.itemsize + LINE / 4) % SETS < LINE / 2:
        t.pitch[1] += VECTOR        # rows that are packed together do not share sets of the first-level cache
    t.pitch[2] = (t.count[1] + between(plan, 1, side[1])) * t.pitch[1]
    t.origin = side[0] + side[1] * t.pitch[1] + side[2] * t.pitch[2]
    t.size = t.origin + (t.count[2] + side[2]) * t.pitch[2] + side[1] * t.pitch[1] + side[0]
    for i in range(3):
        if plan.level[i].left + plan.level[i].right > 0:
            t.window[t.windows].step = t.pitch[i]
            t.window[t.windows].left = plan.level[i].left
            t.window[t.windows].right = plan.level[i].right
            t.windows += 1


cdef void set_cut(plan_t *plan, int which, int64_t length) noexcept nogil:
    cdef int64_t extent = plan.streamed.extent if which == 3 else plan.level[which].extent
    plan.cut[which] = max(1, min(length, extent))
    plan.cuts[which] = ceil_div(extent, plan.cut[which])


cdef bint in_order(const plan_t *plan, int which) noexcept nogil:
    """Whether the parts of a level are one tile, as each overwrites what the next one reads."""
    return plan.overwritten >= 0 and plan.level[which].windowed and plan.cuts[which] > 1


cdef int64_t count_tiles(plan_t *plan) noexcept nogil:
    cdef int64_t tiles = 1
    cdef int i
    for i in range(4):
        if i == 3 or not in_order(plan, i):
            tiles *= plan.cuts[i]
    for i in range(plan.outers):
        tiles *= plan.outer[i].extent
    return tiles


cdef bint too_much_scratch(plan_t *plan, int64_t most) noexcept nogil:
    set_slab(plan)
    return kernels_of(plan).lrn_scratch(&plan.tile) > <size_t>most


cdef int64_t run_length(const plan_t *plan) noexcept nogil:
    """Elements of a slab such that the slabs in use stay in the first-level cache; backward uses twice as many."""
    return RUN / 2 if plan.backward else RUN


cdef int64_t times_as_long(const plan_t *plan) noexcept nogil:
    """How many times as long a slab of one run is. Where no window lies in slabs, registers replace most of the slabs
    kept otherwise: the rest stays in the second-level cache, and memory likes long runs."""
    if not plan.streamed.windowed or plan.level[0].windowed or plan.level[1].windowed or plan.level[2].windowed:
        return 1
    return 2 if wide(plan) else 4


cdef void group_level(plan_t *plan, int which, int64_t length, int64_t others) noexcept nogil:
    """Stream along groups of a level's entries, where no window gives an axis to stream along."""
    cdef int64_t groups, window, size = plan.itemsize, extent = plan.level[which].extent
    cdef bint narrow = plan.level[0].left + plan.level[0].right < CYNORM_SUM_DIRECT
    cdef int i
    plan.streamed = plan.level[which]
    window = run_length(plan)
    if narrow:
        window *= 2                 # a wider window keeps slabs of its levels beside those of the cells
    window = max(1, window / length)
    if narrow or not plan.tile.streaming:  # a slab's setup cost counts; else, that these levels fit the cache
        window = max(window, min(4 * window, extent * others / plan.wanted))
    if which == 0:
        window = whole_vectors(window)
    if which > 0 and contiguous(&plan.level[which], size, OMEGA):
        window = max(window, whole_vectors(max(LINE, TRANSPOSED / length) / size))
    window = min(window, extent)
    groups = ceil_div(extent, window)
    plan.tile.grouped = which
    plan.tile.last_group = extent - (groups - 1) * window
    plan.level[which].extent = window
    plan.streamed.extent = groups
    for i in range(VIEWS):
        plan.streamed.stride[i] *= window
    set_cut(plan, which, window)
    set_cut(plan, 3, max(1, min(GROUPS, groups * others / plan.wanted)))


cdef bint begins_at_lines(const plan_t *plan) noexcept nogil:
    """Whether all rows of dst that tiles may cut along level 0 begin at lines."""
    cdef int64_t bits = <int64_t>(<size_t>plan.tile.dst.data) | plan.streamed.stride[DST]
    cdef int i
    for i in range(1, 3):
        bits |= plan.level[i].stride[DST]
    for i in range(plan.outers):
        bits |= plan.outer[i].stride[DST]
    return bits % LINE == 0


cdef int64_t stream_parts(const plan_t *plan, int64_t windows) noexcept nogil:
    """How many parts of `windows` windows the stream may be cut into; what windows reach beyond one is done twice."""
    if plan.tile.grouped >= 0:
        return 1
    return plan.streamed.extent / (windows * (plan.streamed.left + plan.streamed.right + 1))


cdef void cut_stream(plan_t *plan, int64_t parts, int64_t windows) noexcept nogil:
    parts = min(parts, stream_parts(plan, windows))
    if parts > 1:
        set_cut(plan, 3, ceil_div(plan.streamed.extent, parts))


cdef int64_t column_parts(plan_t *plan, int64_t planes) noexcept nogil:
    """How many parts of each plane go by columns, where planes stay in the cache: one, or enough to give all threads
    the same number. A core by itself prefetches what lies as far behind a column as its slabs are apart, and lines
    after each row's part: a thread that writes there has to fetch them back. So a thread has the same part of all
    planes where more of these lines lie behind planes than at the ends of parts; and no more threads are wanted than
    have enough to do."""
    cdef int64_t parts = 1, lines = plan.level[0].extent / line_of(plan), slabs = plan.streamed.extent * planes
    plan.team = min(plan.team, max(1, slabs * lines / THREAD_LINES))
    plan.wanted = min(plan.wanted, TILES * plan.team)
    if planes >= plan.wanted:
        return 1
    plan.parts_first = 3 * slabs < 16 * lines  # 3 lines after each row's part, those of 16 slabs after a plane
    if plan.parts_first:
        parts = plan.team
    while planes * parts % plan.team:
        parts += 1
    return min(parts, max(1, lines / PART_LINES))


cdef int64_t line_of(const plan_t *plan) noexcept nogil:
    """Elements of a line."""
    return LINE / plan.itemsize


cdef bint wide(const plan_t *plan) noexcept nogil:
    """Whether windows along the stream have more entries than are summed directly."""
    return plan.tile.left + plan.tile.right >= CYNORM_SUM_DIRECT


cdef bint suits_columns(const plan_t *plan) noexcept nogil:
    """Whether all of dst could go by columns: omega and the way that dst leaves play no part in this, as no result may
    depend on them."""
    cdef cynorm_lrn_tile t = plan.tile
    t.omega.data = NULL
    t.streaming = t.trees = True
    return kernels_of(plan).lrn_taken_by(&t) == CYNORM_LRN_COLUMNS


cdef void cut_beside_windows(plan_t *plan, const cutting_t *c) noexcept nogil:
    """Cut level 0, channels, where windows lie over space: whole runs of memory if the slab stays small, and at least
    one part for each thread if the stream cannot be cut into as many."""
    cdef int64_t extent = plan.level[0].extent, pieces = 1
    if not c.whole:
        pieces = max(1, extent / max(VECTOR, SLAB / c.length))
    if pieces > 1:
        set_cut(plan, 0, whole_vectors(ceil_div(extent, pieces)))
    pieces = ceil_div(plan.team, c.tiles * (c.uncut / extent))
    if plan.overwritten >= 0 or stream_parts(plan, c.windows) < pieces:
        set_cut(plan, 0, min(plan.cut[0], whole_vectors(ceil_div(extent, pieces))))


cdef void cut_level(plan_t *plan, int which, cutting_t *c) noexcept nogil:
    """Cut a level without windows: to the length that a run should have, but into at least the wanted tiles."""
    cdef int64_t extent = plan.level[which].extent, run, pieces, others = c.tiles * c.uncut
    cdef bint by_columns = which == 0 and c.by_columns
    if plan.streamed.extent == 1 and plan.tile.grouped < 0 and extent > 1:
        group_level(plan, which, c.length, c.tiles)
        return
    run = max(1, run_length(plan) * (times_as_long(plan) if which == 0 else 1) / c.length)
    if by_columns:
        run = extent
    pieces = ceil_div(extent, run)
    if by_columns and plan.cached:
        pieces = column_parts(plan, others)
    elif pieces * others < plan.wanted:
        # first a part of the channels for each thread: with runs of all channels, all threads would work in each plane
        if which == 0 and plan.overwritten < 0 and not by_columns and others < plan.team:
            cut_stream(plan, ceil_div(plan.team, others), 6)
            c.tiles *= plan.cuts[3]
            others *= plan.cuts[3]
        pieces = min(ceil_div(plan.wanted, others), ceil_div(extent, max(1, VECTOR * 8 / c.length)))
        if plan.overwritten >= 0:  # the stream is not cut
            pieces = max(pieces, min(ceil_div(plan.team, others), extent))
    run = ceil_div(extent, pieces)
    if which == 0 and pieces > 1:
        run = round_up(run, line_of(plan)) if by_columns else whole_vectors(run)
    set_cut(plan, which, run)


cdef bint along_rows(const plan_t *plan) noexcept nogil:
    """Whether the only windows lie along rows."""
    return plan.level[0].windowed and plan.tile.windows == 1 and not plan.streamed.windowed and not plan.joint


cdef bint packs_rows(const plan_t *plan) noexcept nogil:
    """Whether rows of some tensor are not contiguous."""
    cdef int i
    for i in range(OMEGA):
        if plan.tile.view[i].data != NULL and plan.level[0].stride[i] != plan.itemsize:
            return True
    return False


cdef bint cut_rows(plan_t *plan, int64_t length) noexcept nogil:
    """Cut rows that loops take in parts, with what windows reach beside each: down to parts of so many windows that
    little is done twice. Returns whether they were longer."""
    cdef int64_t least = ROW_WINDOWS * (plan.level[0].left + plan.level[0].right + 1)
    if length >= plan.cut[0] or plan.cut[0] < 2 * least:
        return False
    set_cut(plan, 0, max(length, least))
    plan.tile.cut = True
    return True


cdef void cut_to_scratch(plan_t *plan, int64_t most) noexcept nogil:
    """Halve levels without windows, then those with windows, until a tile keeps no more than is allowed."""
    cdef int64_t window
    cdef int i, windowed = 0
    for i in range(3):
        windowed += plan.level[i].windowed
    for i in range(2, -1, -1):
        while (not plan.level[i].windowed and plan.tile.grouped != i and plan.cut[i] > (VECTOR if i == 0 else 1)
               and too_much_scratch(plan, most)):
            set_cut(plan, i, max(VECTOR, plan.cut[i] / 2 / VECTOR * VECTOR) if i == 0 else plan.cut[i] / 2)
    if along_rows(plan) and too_much_scratch(plan, ROWS_SCRATCH if packs_rows(plan) else most):
        while too_much_scratch(plan, ROWS_SCRATCH) and cut_rows(plan, plan.cut[0] / 2):
            pass
    if plan.overwritten >= 0 or plan.joint or windowed > 1:
        most = SCRATCH_MOST
    for i in range(2, 0 if plan.joint else -1, -1):
        window = entries_of(plan, plan.level[i].left + plan.level[i].right)
        while (plan.level[i].windowed and plan.cut[i] > 4 * window + VECTOR and not plan.tile.rows
               and too_much_scratch(plan, most)):
            set_cut(plan, i, ceil_div(plan.cut[i], 2))
            plan.tile.cut = True


cdef bint transposes(const plan_t *plan) noexcept nogil:
    """Whether windows lie only along the stream, and tensors differ in order: kernels transpose one run a slab."""
    cdef int64_t itemsize = plan.itemsize
    cdef const axis_t *row = &plan.level[0]
    if (not plan.streamed.windowed or plan.tile.windows > 0 or plan.streamed.extent > CYNORM_TRANSPOSED_MOST
            or row.extent < VECTOR or plan.tile.y.data != NULL or plan.tile.omega.data != NULL):
        return False
    return (row.stride[SRC] != itemsize or row.stride[DST] != itemsize
            or (plan.backward and row.stride[DIFF_DST] != itemsize))


cdef int64_t cut_to_copies(plan_t *plan) noexcept nogil:
    """Cut planes that kernels copy: to parts of as many rows as these take or, down to two windows, as scratch holds;
    to a line of channels, where these follow on in some tensor. Returns how many channels; 0 if nothing is copied."""
    cdef int64_t row = plan.level[0].extent * plan.itemsize
    cdef int64_t parts = ceil_div(plan.streamed.extent, max(1, CYNORM_COPIED_PLANE / row))
    cdef int64_t planes = line_of(plan) if contiguous(&plan.level[1], plan.itemsize, OMEGA) else 1
    set_cut(plan, 2, 1)
    while planes > 0:
        set_cut(plan, 1, planes)
        set_cut(plan, 3, ceil_div(plan.streamed.extent, parts))
        set_slab(plan)
        if kernels_of(plan).lrn_taken_by(&plan.tile) != CYNORM_LRN_COPIED:
            break
        if not too_much_scratch(plan, SCRATCH):
            return planes
        if 2 * parts <= stream_parts(plan, 2):
            parts *= 2
        else:
            planes /= 2
    set_cut(plan, 3, plan.streamed.extent)
    return 0


cdef void choose_cuts(plan_t *plan) noexcept nogil:
    """How large a tile is. A windowed axis is cut only where scratch or balance asks for it; in place, only for
    scratch, and its parts follow one another, as each overwrites what its neighbour still has to read."""
    cdef int i, taken_by
    cdef bint beside
    cdef cutting_t c
    c.length = c.tiles = c.uncut = 1
    c.planes = 0
    for i in range(3):
        set_cut(plan, i, plan.level[i].extent)
        if plan.level[i].windowed:
            c.length *= plan.level[i].extent
        else:
            c.uncut *= plan.level[i].extent
    for i in range(plan.outers):
        c.tiles *= plan.outer[i].extent
    set_cut(plan, 3, plan.streamed.extent)
    set_slab(plan)
    plan.tile.trees = wide(plan) and (plan.tile.trees or suits_columns(plan))
    taken_by = kernels_of(plan).lrn_taken_by(&plan.tile)
    c.by_columns = taken_by == CYNORM_LRN_COLUMNS
    if (c.by_columns and not plan.tile.far_lines and plan.moved >= FAR_STREAMING * plan.team
            and suits_columns(plan)):
        plan.tile.streaming = plan.may_stream
    # channels of pixels: loops that take cut ones are several times as slow or, but for LINES, let dst leave by parts
    c.whole = taken_by in (CYNORM_LRN_CHANNELS, CYNORM_LRN_LINES) and not too_much_scratch(plan, SCRATCH_MOST)
    beside = not plan.level[0].windowed and c.length > 1
    # parts as short as two narrow windows or, forward, a wide one, though more is done twice then, of volumes, and
    # where threads would write to the same line
    c.windows = 4
    if plan.tile.rows or (beside and plan.cached and not begins_at_lines(plan)
                          and not (wide(plan) and taken_by == CYNORM_LRN_LINES)):
        c.windows = 1 if wide(plan) and not plan.backward else 2
    if beside:
        cut_beside_windows(plan, &c)
        c.length *= plan.cut[0]
        c.tiles *= plan.cuts[0]
    elif plan.level[0].windowed and not plan.level[1].windowed and plan.overwritten < 0:
        c.planes = cut_to_copies(plan)
        c.tiles *= plan.cuts[3]
    for i in range(3):
        if plan.level[i].windowed:
            continue
        c.uncut /= plan.level[i].extent
        if i > 0 and transposes(plan):
            set_cut(plan, i, 1)
        elif i == 1 and c.planes > 1:
            set_cut(plan, 1, c.planes)
            c.length *= plan.cut[1]
            c.tiles *= plan.cuts[1]
        elif i > 0 or not beside:
            cut_level(plan, i, &c)
            c.length *= plan.cut[i]
            c.tiles *= plan.cuts[i]
    cut_to_scratch(plan, SCRATCH_MOST if c.whole else SCRATCH)
    c.tiles = count_tiles(plan)     # scratch may have asked for more
    if plan.overwritten < 0:
        if c.tiles < plan.team and along_rows(plan):
            cut_rows(plan, ceil_div(plan.cut[0], ceil_div(plan.wanted, c.tiles)))
            c.tiles = count_tiles(plan)
        if c.tiles < plan.wanted and not (c.by_columns and plan.cached):
            cut_stream(plan, ceil_div(plan.wanted * plan.cuts[3], c.tiles), 4)
        if c.windows < 4 and c.tiles * plan.cuts[3] < plan.team:  # one for each thread
            cut_stream(plan, ceil_div(plan.team, c.tiles), c.windows)
    set_slab(plan)
    plan.tiles = count_tiles(plan)


cdef void set_views(const cynorm_tensor *const *views, plan_t *plan) noexcept nogil:
    cdef cynorm_lrn_tile *t = &plan.tile
    cdef int which, i
    for which in range(VIEWS):
        if views[which] == NULL:
            continue
        t.view[which].data = views[which].data
        t.view[which].dtype = views[which].dtype
        t.view[which].streamed = plan.streamed.stride[which]
        for i in range(3):
            t.view[which].stride[i] = plan.level[i].stride[which]


cdef bint volumes_serve(plan_t *plan) noexcept nogil:
    """Whether loops of planes take the plan's tiles, within the scratch allowed. Where channels lie innermost in some
    tensor, these loops are faster if at least half a line of channels is transposed at once, of whole volumes; or, if
    another tensor lies in planes, a quarter of a line."""
    cdef int taken_by = kernels_of(plan).lrn_taken_by(&plan.tile)
    cdef int64_t itemsize = plan.itemsize, together = plan.cut[1] * itemsize
    if taken_by != CYNORM_LRN_VOLUMES and taken_by != CYNORM_LRN_COPIED or too_much_scratch(plan, SCRATCH_MOST):
        return False
    if taken_by == CYNORM_LRN_VOLUMES or not contiguous(&plan.level[1], itemsize, OMEGA):
        return True
    if contiguous(&plan.level[0], itemsize, OMEGA):
        return together >= LINE / 4
    return plan.cuts[3] == 1 and together >= LINE / 2


cdef void make_plan(const cynorm_lrn *p, const cynorm_tensor *const *views, bint backward, int team,
                    plan_t *plan) noexcept nogil:
    make_plan_of(p, views, backward, team, True, plan)
    if plan.tile.rows and not volumes_serve(plan):
        make_plan_of(p, views, backward, team, False, plan)


cdef void make_plan_of(const cynorm_lrn *p, const cynorm_tensor *const *views, bint backward, int team, bint volumes,
                       plan_t *plan) noexcept nogil:
    cdef axis_t axes[AXES]
    cdef cynorm_lrn_tile *t = &plan.tile
    cdef int i, count = problem_axes(p, views, axes)
    cdef int64_t channels
    memset(plan, 0, sizeof(plan_t))
    for i in range(3):
        plan.level[i].extent = 1
    plan.streamed.extent = 1
    plan.backward = backward
    plan.team = team
    plan.wanted = TILES * team if team > 1 else 1
    t.grouped = -1
    t.far_lines = fetches_far_lines()
    t.src.dtype = views[SRC].dtype
    plan.itemsize = cynorm_itemsize(views[SRC].dtype)
    t.k = p.k
    t.alpha = p.alpha
    t.beta = p.beta
    choose_traversal(p, axes, count, views[Y] == NULL and views[OMEGA] == NULL, volumes, plan)
    if plan.joint:
        channels = p.channels if p.channels else plan.level[0].extent * plan.level[1].extent
        t.missing = plan.level[1].extent * plan.level[0].extent - channels
        plan.level[1].left = min(p.left, channels - 1)
        plan.level[1].right = min(p.right, channels - 1)
        plan.level[0].left = plan.level[0].right = 0
    plan.overwritten = -1
    for i in range(VIEWS):
        if i != DST and views[i] != NULL and same_memory(views[i], views[DST]):
            plan.overwritten = DST
    if not backward and views[OMEGA] != NULL and same_memory(views[OMEGA], views[SRC]):
        plan.overwritten = OMEGA
    plan.moved = total_bytes(views[SRC]) * (3 if backward else 2)
    plan.cached = plan.moved < STREAMING
    plan.may_stream = plan.overwritten < 0 and whole_elements(views[DST])
    t.streaming = plan.may_stream and not plan.cached
    t.left = plan.streamed.left
    t.right = plan.streamed.right
    set_views(views, plan)
    choose_cuts(plan)
    set_views(views, plan)          # the streamed axis may have become groups


cdef bint maybe_by_blocks(const plan_t *plan) noexcept nogil:
    """Whether wide windows lie along the stream, where they may be summed in another order than in slabs (lrn.h)."""
    return wide(plan) and not plan.tile.trees


cdef void make_plan_of_order(const cynorm_lrn *p, const cynorm_tensor *const *views, bint backward, int team, int half,
                             int *order, plan_t *plan) noexcept nogil:
    """As make_plan. Bit `half` of *order is maybe_by_blocks of the forward that makes omega, which is not used where a
    backward without it would sum in another order, so that both have the same bits."""
    cdef const cynorm_tensor *without[VIEWS]
    cdef plan_t other
    cdef int i
    make_plan(p, views, backward, team, plan)
    if views[OMEGA] == NULL or order == NULL:
        return
    if not backward:
        order[0] |= maybe_by_blocks(plan) << half
        return
    for i in range(VIEWS):
        without[i] = views[i] if i != OMEGA else NULL
    make_plan(p, without, True, team, &other)
    if maybe_by_blocks(&other) != (order[0] >> half & 1) or maybe_by_blocks(&other) != maybe_by_blocks(plan):
        plan[0] = other


cdef bint rows_end_in_padding(const cynorm_tensor *const *views, const plan_t *plan) noexcept nogil:
    """Whether each row of a tile is followed by what follows a block's channels, or those that exist: no row is in
    groups."""
    cdef const cynorm_tensor *dst = views[DST]
    cdef int64_t size = cynorm_itemsize(dst.dtype)
    return (dst.strides[dst.ndim - 1] == size and dst.shape[dst.ndim - 1] > 1 and plan.level[0].stride[DST] == size
            and plan.cuts[0] == 1 and plan.tile.grouped != 0 and (not plan.joint or plan.cuts[1] == 1))


# ---- tiles ----

cdef void reach(const axis_t *axis, int64_t begin, int64_t count, int64_t before, int64_t after,
                int64_t *out) noexcept nogil:
    """How far a tile's input goes beyond its outputs, cut at the tensor's ends."""
    out[0] = min(before, begin)
    out[1] = min(after, axis.extent - begin - count)


cdef void shift(cynorm_lrn_tile *t, const axis_t *axis, int64_t by) noexcept nogil:
    cdef int i
    for i in range(VIEWS):
        t.view[i].data += by * axis.stride[i]  # absent tensors: NULL, 0


cdef inline int64_t set_part(const plan_t *plan, cynorm_lrn_tile *t, int which, int64_t part) noexcept nogil:
    """Set the tile to this part of a level; returns where the part begins."""
    cdef int64_t at = part * plan.cut[which], extent = plan.level[which].extent
    t.count[which] = min(plan.cut[which], extent - at)
    if which == 0 and plan.cut[0] * plan.itemsize >= LINE:
        t.before = at
        t.after = extent - at - t.count[0]
    if which == 1:
        t.behind = extent - at - t.count[1]
    return at


cdef int64_t reach_before(const plan_t *plan, const axis_t *axis) noexcept nogil:
    """How far a part of a level reads before its beginning."""
    return entries_of(plan, axis.left + axis.right if plan.backward else axis.left)


cdef void take_part(const plan_t *plan, cynorm_lrn_tile *t, int which, int64_t part) noexcept nogil:
    """As set_part, with what the tile reads beside that part."""
    cdef const axis_t *axis = &plan.level[which]
    cdef int64_t at = set_part(plan, t, which, part), before = reach_before(plan, axis)
    cdef int64_t left = entries_of(plan, axis.left), right = entries_of(plan, axis.right)
    shift(t, axis, at)
    if axis.windowed and plan.cuts[which] > 1:
        # diff_src at i needs terms at i-right .. i+left, and those need squares at left and right of them
        if plan.backward:
            reach(axis, at, t.count[which], right, left, t.reach_terms[which])
        reach(axis, at, t.count[which], before, before if plan.backward else right, t.reach_src[which])


cdef void run_tile(const plan_t *plan, int64_t index, void *scratch) noexcept nogil:
    cdef cynorm_lrn_tile t = plan.tile
    cdef int64_t each
    cdef int i
    t.scratch = <char *>scratch + strips_bytes(plan)
    if plan.parts_first:
        each = plan.tiles / plan.cuts[0]
        index = index % each * plan.cuts[0] + index / each
    for i in range(3):
        if not in_order(plan, i):
            if i == 2 and plan.overwritten < 0:
                t.followed = plan.cuts[0] * plan.cuts[1] * plan.cuts[3] == 1 and index % plan.cuts[2] + 1 < plan.cuts[2]
            take_part(plan, &t, i, index % plan.cuts[i])
            index /= plan.cuts[i]
    t.begin = index % plan.cuts[3] * plan.cut[3]
    index /= plan.cuts[3]
    t.end = min(t.begin + plan.cut[3], plan.streamed.extent)
    for i in range(plan.outers):
        shift(&t, &plan.outer[i], index % plan.outer[i].extent)
        index /= plan.outer[i].extent
    run_parts(plan, &t, 2, <char *>scratch)


cdef void run_parts(const plan_t *plan, const cynorm_lrn_tile *whole, int which, char *kept) noexcept nogil:
    """Run the tile, whose levels up to `which` are whole; of a level in order, each part beside the original edge of
    the one before: a strip of memory whose results are kept aside meanwhile."""
    cdef cynorm_lrn_tile t
    cdef strip_t strip
    cdef char *originals[2]
    cdef int64_t part
    while which >= 0 and not in_order(plan, which):
        which -= 1
    if which < 0:
        kernels_of(plan).lrn(whole)
        if plan.padding:
            clear_padding(plan, whole)
        return
    for part in range(plan.cuts[which]):
        t = whole[0]
        take_part(plan, &t, which, part)
        strip = strip_before(plan, &t, which)
        originals[0] = kept + (part & 1) * strip.nbytes
        originals[1] = kept + (1 - (part & 1)) * strip.nbytes
        if part > 0:
            exchange(&strip, 0, originals[0], True)
        if part + 1 < plan.cuts[which]:
            exchange(&strip, t.count[which] * strip.stride[which], originals[1], False)
        run_parts(plan, &t, which - 1, kept + 2 * strip.nbytes)
        if part > 0:
            exchange(&strip, 0, originals[0], True)


cdef strip_t strip_before(const plan_t *plan, const cynorm_lrn_tile *t, int which) noexcept nogil:
    """What the tile reads of the part before it along a level, which that part has overwritten."""
    cdef const cynorm_lrn_view *view = &t.omega if plan.overwritten == OMEGA else &t.dst
    cdef strip_t s
    cdef int i
    s.size = cynorm_itemsize(view.dtype)
    s.data = view.data + t.begin * view.streamed
    s.count[3] = t.end - t.begin
    s.stride[3] = view.streamed
    for i in range(3):
        s.count[i] = plan.level[i].extent if i < which and in_order(plan, i) else t.count[i]
        s.stride[i] = view.stride[i]
    if t.grouped >= 0:              # the stream is along that level
        s.count[t.grouped] *= s.count[3]
        if t.end == t.extent:
            s.count[t.grouped] -= plan.cut[t.grouped] - t.last_group
        s.count[3] = 1
    s.count[which] = reach_before(plan, &plan.level[which])
    s.data -= s.count[which] * s.stride[which]
    s.nbytes = s.size
    for i in range(4):
        s.nbytes *= s.count[i]
    return s


cdef void exchange(const strip_t *s, int64_t offset, char *kept, bint both) noexcept nogil:
    """Copy aside the strip that lies `offset` bytes further on, or exchange it with what is kept there."""
    cdef char element[8]
    cdef int64_t a, b, c, _
    cdef char *p
    for a in range(s.count[3]):
        for b in range(s.count[2]):
            for c in range(s.count[1]):
                p = s.data + offset + a * s.stride[3] + b * s.stride[2] + c * s.stride[1]
                for _ in range(s.count[0]):
                    memcpy(element, p, s.size)
                    if both:
                        memcpy(p, kept, s.size)
                    memcpy(kept, element, s.size)
                    p += s.stride[0]
                    kept += s.size


cdef void clear_padding(const plan_t *plan, const cynorm_lrn_tile *t) noexcept nogil:
    """Behind a tile's rows or, where rows are of blocks, at the end of the rows of the last block."""
    cdef int64_t size = cynorm_itemsize(t.dst.dtype), nbytes = plan.padding * size, v, i, j
    cdef int64_t count[3]
    cdef int64_t first = t.count[1] - 1 if plan.joint else 0
    cdef char *p = t.dst.data + t.count[0] * size - (nbytes if plan.joint else 0)
    for i in range(3):
        count[i] = t.count[i]
    for v in range(t.begin, t.end):
        if t.grouped >= 0 and v == t.extent - 1:
            count[t.grouped] = t.last_group
        for i in range(count[2]):
            for j in range(first, count[1]):
                clear_bytes(p + v * t.dst.streamed + i * t.dst.stride[2] + j * t.dst.stride[1], nbytes)


cdef int64_t strips_bytes(const plan_t *plan) noexcept nogil:
    """Bytes of the strips kept aside: two for each level whose parts are in order."""
    cdef cynorm_lrn_tile t
    cdef int64_t nbytes = 0
    cdef int i
    for i in range(3):
        if in_order(plan, i):
            t = plan.tile
            t.end = plan.cut[3]
            t.last_group = plan.cut[t.grouped] if t.grouped >= 0 else 0
            nbytes += 2 * strip_before(plan, &t, i).nbytes
    return round_up(nbytes, LINE)


cdef size_t scratch_of(const plan_t *plan) noexcept nogil:
    """The scratch that any tile needs: the last one along a level may be narrower, and so packed or taken by another
    loop, which may ask whether other tiles are before it."""
    cdef cynorm_lrn_tile t
    cdef size_t most = 0
    cdef int narrower, i, cut = (plan.cuts[0] > 1) | (plan.cuts[1] > 1) << 1 | (plan.cuts[2] > 1) << 2
    for narrower in range(8):
        if narrower & ~cut:
            continue
        t = plan.tile
        for i in range(3):
            if narrower >> i & 1:
                set_part(plan, &t, i, plan.cuts[i] - 1)
        most = max(most, kernels_of(plan).lrn_scratch(&t))
    return most + <size_t>strips_bytes(plan)


cdef int run_plan(const plan_t *plan) noexcept nogil:
    """All tiles of a plan; -1 where memory cannot be had."""
    cdef int team = min(plan.team, plan.tiles)
    cdef int status = 0
    cdef int *failed = &status
    cdef tasks_t tiles
    if open_tasks(&tiles, plan.tiles, 1, team, plan.cached) < 0:
        return -1
    if team == 1:
        status = run_share(plan, &tiles, 0, 1)
    else:
        with parallel(num_threads=team):
            if run_share(plan, &tiles, omp_get_thread_num(), omp_get_num_threads()) < 0:
                failed[0] = -1
    close_tasks(&tiles)
    return status


cdef int run_share(const plan_t *plan, const tasks_t *tiles, int me, int team) noexcept nogil:
    """One thread's part; -1 where memory for scratch cannot be had."""
    cdef void *scratch = malloc(scratch_of(plan) + LINE)
    cdef uint64_t own = cynorm_float_mode()
    cdef int64_t i
    cdef int passed = 0
    if scratch == NULL:
        return -1
    cynorm_set_float_mode(tiles.float_mode)
    i = next_task(tiles, 0, me, team, &passed)
    while i >= 0:
        run_tile(plan, i, aligned(scratch))
        i = next_task(tiles, 0, me, team, &passed)
    cynorm_set_float_mode(own)
    free(scratch)
    if plan.tile.streaming:
        kernels().fence()
    return 0


# ---- calls ----

cdef int run_half(const cynorm_lrn *p, const cynorm_tensor *const *views, bint backward, int team, int half, int *order,
                  int64_t padding, bint *cleared) noexcept nogil:
    """Run a problem, or one of its halves; `cleared`: whether it left zeros in `padding` channels behind its own."""
    cdef plan_t plan
    make_plan_of_order(p, views, backward, team, half, order, &plan)
    cleared[0] = padding and rows_end_in_padding(views, &plan)
    plan.padding = padding if cleared[0] else 0
    return run_plan(&plan)


cdef int lrn_run(const cynorm_lrn *p, const cynorm_tensor *const *views, bint backward, int *order,
                 int num_threads) noexcept nogil:
    cdef cynorm_tensor part[VIEWS]
    cdef const cynorm_tensor *parts[VIEWS]
    cdef int64_t nbytes = total_bytes(views[SRC]), valid = p.channels % p.block if p.block else 0, first, count
    cdef int64_t padding = p.block - valid if valid else 0
    cdef int halves = 2 if valid and p.within_channel else 1, half, i, team
    cdef bint last, cleared = False
    if nbytes == 0:
        return 0
    team = team_size(num_threads, nbytes)
    # within channel, the existing channels of the last block are a problem of their own
    for half in range(halves):
        last = half == halves - 1
        first = views[SRC].shape[1] - 1 if half else 0
        count = views[SRC].shape[1] - (first if last else 1)
        if count == 0:
            continue
        for i in range(VIEWS):
            parts[i] = views[i]
            if halves > 1 and views[i] != NULL:
                part[i] = views[i][0]
                part[i].data += first * part[i].strides[1]
                part[i].shape[1] = count
                if half:
                    part[i].shape[part[i].ndim - 1] = valid
                parts[i] = &part[i]
        if run_half(p, parts, backward, team, half, order, padding if last else 0, &cleared) < 0:
            return -1
    if valid and not cleared:
        zero_padding(views[DST], valid)
    return 0


# ---- Python ----

cdef class Problem:
    """An LRN's parameters as the kernels take them."""

    cdef cynorm_lrn p
    cdef str layout
    cdef int ndim

    def __init__(self, owner, axes, int window, alpha):
        cdef int64_t most = <int64_t>1 << 62
        self.layout = owner.layout
        self.ndim = axes.ndim
        self.p.k = owner.k
        self.p.alpha = alpha
        self.p.beta = owner.beta
        cynorm_lrn_set_window(&self.p, min(owner.local_size, most), <cynorm_window>window)
        self.p.within_channel = owner.region == "within_channel"
        self.p.spatial = axes.spatial
        self.p.channel_axis = axes.channel
        self.p.spatial_axis = axes.spatial_first
        self.p.block = axes.block
        self.p.channels = owner.channels or 0

    cdef int check(self, const cynorm_tensor *src, str name) except -1:
        return check_layout(src, name, self.layout, self.ndim, self.p.channel_axis, self.p.block, self.p.channels)

    def workspace_nbytes(self, shape, dtype, cache):
        cdef cynorm_tensor src
        describe_shape(shape, dtype, &src)
        self.check(&src, "shape")
        if checked_cache(cache) != "always":
            return 0
        return elements_of(&src) * real_size(src.dtype)

    def implementation(self, src):
        cdef cynorm_tensor t, d
        cdef plan_t plan
        cdef const cynorm_tensor *views[VIEWS]
        describe(src, "src", &t)
        self.check(&t, "src")
        memset(views, 0, sizeof(views))
        d = t
        d.data += LINE              # an address of its own, as that of a new array, which is not looked at
        views[SRC], views[DST] = &t, &d
        plan.traversal = "empty"
        if total_bytes(&t) > 0:
            make_plan(&self.p, views, False, 1, &plan)
        region = "within" if self.p.within_channel else "across"
        return f"lrn_{region}:{plan.traversal.decode()}:{short_name(t.dtype)}:{isa()}"

    def forward(self, owner, src, out, given_workspace, num_threads):
        """`owner` is the LRN: a workspace remembers which one filled it."""
        cdef Workspace workspace = checked_workspace(given_workspace)
        cdef cynorm_tensor s, d, w
        cdef const cynorm_tensor *views[VIEWS]
        cdef int threads = requested_threads(num_threads), status, order = 0
        src = describe(src, "src", &s)
        self.check(&s, "src")
        array = output_like(out, "out", src, &s, &d)
        if out is not None:
            check_outputs((src, array), ("src", "out"), 1)
        memset(views, 0, sizeof(views))
        views[SRC], views[DST] = &s, &d
        if workspace is not None:
            workspace.acquire()
        try:
            if workspace is not None:
                workspace.begin(&s)
                if workspace.cache == "always":
                    describe(workspace.part_like("omega", &s), "workspace", &w)
                    views[OMEGA] = &w
            with nogil:
                status = lrn_run(&self.p, views, False, &order, threads)
            check_memory(status)
            if workspace is not None:
                workspace.owner, workspace.notes = owner, order
        finally:
            if workspace is not None:
                workspace.release()
        return array if out is None else out

    def backward(self, owner, diff_dst, src, out, given_workspace, num_threads, dst):
        cdef Workspace workspace = checked_workspace(given_workspace)
        cdef cynorm_tensor g, s, d, w, y
        cdef const cynorm_tensor *views[VIEWS]
        cdef int threads = requested_threads(num_threads), status, order = 0
        src = describe(src, "src", &s)
        self.check(&s, "src")
        diff_dst = describe_like(diff_dst, "diff_dst", &s, &g)
        memset(views, 0, sizeof(views))
        views[SRC], views[DIFF_DST], views[DST] = &s, &g, &d
        if dst is not None:
            dst = describe_like(dst, "dst", &s, &y)
            views[Y] = &y
        array = output_like(out, "out", src, &s, &d)
        if out is not None:
            check_outputs((src, diff_dst, dst, array), ("src", "diff_dst", "dst", "out"), 3)
        if workspace is not None:
            workspace.acquire()
        try:
            if workspace is not None:
                workspace.match(owner, &s)
                if "omega" in workspace.parts:
                    describe(workspace.parts["omega"], "workspace", &w)
                    views[OMEGA] = &w
                    order = workspace.notes
            with nogil:
                status = lrn_run(&self.p, views, True, &order, threads)
            check_memory(status)
        finally:
            if workspace is not None:
                workspace.release()
        return array if out is None else out
