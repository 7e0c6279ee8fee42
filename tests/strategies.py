"""What the operator tests draw: arrays in any memory order, and problems for the operators."""

import math
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

import reference

GUARD = 77  # what the memory around a placed array holds; exact in every dtype
MOST_ELEMENTS = 6000  # in a drawn shape


# ------------------------------------------------------------------------------------------------------------
# Memory


@dataclass(frozen=True)
class Memory:
    """How an array lies in memory: axes from the outermost in, a step for each, and where it starts."""

    order: tuple
    steps: tuple
    offset: int = 0
    slack: int = 0
    repeated: frozenset = field(default_factory=frozenset)  # axes of stride 0


@st.composite
def memories(draw, ndim, *, repeat=False):
    """Any memory order; with `repeat`, also axes of stride 0 (for inputs)."""
    order = tuple(range(ndim))
    if draw(st.booleans()):
        order = tuple(draw(st.permutations(order)))
    steps = (1,) * ndim
    if draw(st.integers(0, 2)) == 0:
        steps = tuple(draw(st.lists(st.sampled_from((1, 1, 2, 3, -1, -2)), min_size=ndim, max_size=ndim)))
    repeated = frozenset()
    if repeat and draw(st.integers(0, 3)) == 0:
        repeated = frozenset(draw(st.lists(st.integers(0, ndim - 1), max_size=ndim)))
    return Memory(order, steps, draw(st.integers(0, 20)), draw(st.integers(0, 3)), repeated)


@st.composite
def orders(draw, ndim):
    """Dense but for a margin: channels first or last or any order of the axes, now and then backwards."""
    first = tuple(range(ndim))
    order = draw(st.sampled_from((first, (0, *first[2:], 1))) | st.permutations(first))
    dense = (1,) * ndim
    steps = draw(st.sampled_from((dense, dense, dense, (*dense[1:], -1), (1, -1, *dense[2:]))))
    return Memory(tuple(order), steps, draw(st.integers(0, 20)), draw(st.sampled_from((0, 0, 0, 3))))


def place(values, memory):
    """A view that holds `values` in such memory, and the buffer beneath it, full of GUARD elsewhere.

    Along a repeated axis the view holds the first of `values` throughout.
    """
    extents = [
        (1 if axis in memory.repeated else extent) * abs(step) + memory.slack
        for axis, (extent, step) in enumerate(zip(values.shape, memory.steps, strict=True))
    ]
    buffer = np.full(memory.offset + math.prod(extents), GUARD, values.dtype)
    array = buffer[memory.offset :].reshape([extents[axis] for axis in memory.order])
    array = array.transpose(np.argsort(memory.order))
    axes = range(values.ndim)
    kept = values[tuple(slice(0, 1) if axis in memory.repeated else slice(None) for axis in axes)]
    view = array[
        tuple(
            slice(0, n * step, step) if step > 0 else slice(n * -step - 1 if n else 0, None if n else 0, step)
            for n, step in zip(kept.shape, memory.steps, strict=True)
        )
    ]
    view[...] = kept
    return np.broadcast_to(view, values.shape) if memory.repeated else view, buffer


def take(view, buffer):
    """The values of a placed array, after checking that the memory around it is as it was."""
    values = view.copy()
    view[...] = GUARD
    assert (buffer == GUARD).all(), "memory around the output was written"
    return values


def available_bytes():
    """Memory the system says is free to use."""
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


# ------------------------------------------------------------------------------------------------------------
# Values


def random_values(rng, shape, dtype, kind="normal"):
    """Random values: "normal", "wide" (of very different magnitudes) or "sparse" (half of them 0)."""
    values = rng.standard_normal(shape)
    if kind == "wide":
        spread = 5 if dtype == np.float16 else 10
        values = np.copysign(np.exp2(rng.uniform(-spread, spread, shape)), values)
    if kind == "sparse":
        values = np.where(rng.random(shape) < 0.5, 0, values)
    return np.asarray(values).astype(dtype)


def draw_pair(shape, dtype, layout="NCHW", seed=0, kind="normal"):
    """src and diff_dst in a layout, from a canonical shape; the padding of blocked ones holds NaN."""
    rng = np.random.default_rng(seed)
    values = (random_values(rng, shape, dtype, kind) for _ in range(2))
    return [reference.from_canonical(array, layout, padding=np.nan) for array in values]


def bits(array):
    """The array's bits as integers, so that equality means equal to the last bit, NaN included."""
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}")


def assert_same_bits(got, expected, what="result"):
    """Two arrays are equal to the last bit."""
    got, expected = bits(got), bits(expected)
    if not np.array_equal(got, expected):  # NumPy's assertion takes up to 60 times as long
        np.testing.assert_array_equal(got, expected, err_msg=what)


def assert_same_windows(got, expected, local_size, what, terms=None):
    """To the last bit; windows of 10 cells and more, which another layout may sum in another order, within twice the 4 ulp that
    each may be wrong by, of the largest of `terms` where these cancel."""
    if local_size < 10:
        assert_same_bits(got, expected, what)
    else:
        values = reference.wide(expected)
        of = values if terms is None else np.abs(reference.wide(terms)).max()
        reference.assert_within(got, values, 8 * reference.ulp(of, expected.dtype), what)


# ------------------------------------------------------------------------------------------------------------
# Shapes and parameters


@st.composite
def canonical_shapes(draw, layout):
    """(N, C, *spatial) for a layout, zero-sized now and then."""
    smallest = 0 if draw(st.integers(0, 15)) == 0 else 1
    n = draw(st.integers(smallest, 4))
    channels = draw(st.integers(smallest, 40) | st.integers(smallest, 150))
    spatial = []
    for _ in range(reference.spatial_ndim(layout)):
        room = MOST_ELEMENTS // max(1, n * channels * math.prod(spatial))
        spatial.append(draw(st.integers(smallest, max(1, min(room, 70)))))
    return (n, channels, *spatial[::-1])


@st.composite
def shapes_to_transpose(draw):
    """(N, C, H, W) with C and W around what is transposed together, 16 bytes by a vector, and beyond."""
    around = st.integers(1, 40) | st.sampled_from((63, 64, 65, 130))
    return (draw(st.integers(1, 2)), draw(around), draw(st.integers(1, 5)), draw(around))


@st.composite
def gapped_problems(draw, count):
    """A shape, axes that are reduced, and memories of `count` arrays, which have gaps on either side of rows of any length, or
    are reversed; often all alike, as slices of tensors are."""
    row = draw(st.integers(1, 20) | st.sampled_from((33, 64, 100, 515)))
    rows = draw(st.integers(1, 12) | st.sampled_from((63, 64, 70, 150)))
    extents = [row, rows, *(draw(st.integers(1, max(1, min(9, 20000 // (row * rows))))) for _ in range(2))]
    order = draw(st.sampled_from(((3, 2, 1, 0), (0, 2, 3, 1))) | st.permutations(range(4)))
    shape = [extents[3 - place] for place in np.argsort(order)]
    axes = draw(st.sets(st.integers(0, 3)) | st.sampled_from(({0, 1, 2, 3}, {1, 2, 3}, {0, 2, 3}, {0, 1, 2})))

    def memory():
        steps = draw(st.sampled_from(((1, 1, 1, 1), (1, 1, 1, -1), (1, 1, -1, 1), (1, 1, 2, 2), (1, -1, 1, 1))))
        return Memory(tuple(order), steps, draw(st.integers(0, 20)), draw(st.integers(0, 2)))

    memories = [memory() for _ in range(1 if draw(st.booleans()) else count)]
    return tuple(shape), tuple(sorted(axes)), memories * (count // len(memories))


def channels_argument(layout, channels):
    """The `channels` argument: given only where a block is not full."""
    block = reference.block_size(layout)
    return channels if block and channels % block else None


ACTIVATIONS = {
    "identity": {},
    "relu": {},
    "elu": {"alpha": 1.2},
    "celu": {"alpha": 0.7},
    "scaled_elu": {"alpha": 1.67, "gamma": 1.05},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "leaky_relu": {"alpha": 0.01},
    "linear": {"alpha": 1.5, "beta": -0.5},
    "parametric_softplus": {"alpha": 1.5, "beta": 0.7},
    "scaled_tanh": {"alpha": 1.5, "beta": 0.7},
    "sigmoid": {},
    "softplus": {"steepness": 2.0},
    "softsign": {},
    "tanh": {},
    "thresholded_relu": {"alpha": 0.8},
    "shrink": {"bias": 0.3, "threshold": 0.9},
}


@dataclass(frozen=True)
class LrnProblem:
    """One LRN operator with its arrays' dtype, shape and memory."""

    layout: str
    shape: tuple  # canonical: N, C, *spatial
    dtype: np.dtype
    parameters: dict
    seed: int
    kind: str
    src: Memory
    diff_dst: Memory
    out: Memory | None
    num_threads: int | None

    @property
    def channels(self):
        return channels_argument(self.layout, self.shape[1])


@st.composite
def lrn_parameters(draw):
    """The parameters of an LRN, but for its layout."""
    local_size = draw(st.integers(1, 16) | st.sampled_from((2, 3, 4, 5, 17, 31, 64)))
    return {
        "local_size": local_size,
        "alpha": draw(st.sampled_from((1e-4, 1e-2, 1.0, 0.0)) | st.floats(1e-6, 3)),
        "beta": draw(st.sampled_from((0.5, 0.75, 1.0, 0.25, 0.0, -0.5, -1.0)) | st.floats(-1, 1).filter(lambda beta: abs(beta) > 1e-6)),
        "k": draw(st.sampled_from((1.0, 2.0, 0.5)) | st.floats(0.1, 10)),
        "region": draw(st.sampled_from(("across_channels", "within_channel"))),
        "window": draw(st.sampled_from(("onednn", "onnx", "torch"))),
        "divisor": draw(st.none() | st.sampled_from((1, local_size)) | st.floats(0.25, 100)),
    }


@st.composite
def lrn_problems(draw):
    """An LRN on any layout, dtype and memory."""
    layout = draw(st.sampled_from(reference.LAYOUTS))
    shape = draw(canonical_shapes(layout))
    ndim = len(shape) + bool(reference.block_size(layout))
    return LrnProblem(
        layout,
        shape,
        draw(st.sampled_from(reference.DTYPES)),
        draw(lrn_parameters()),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from(("normal", "wide", "sparse"))),
        draw(memories(ndim, repeat=True)),
        draw(memories(ndim, repeat=True)),
        draw(st.none() | memories(ndim)),
        draw(st.sampled_from((None, 1, 2, 3))),
    )


@dataclass(frozen=True)
class BatchNormProblem:
    """One batch normalization with its arrays' dtype, shape and memory; `axes`, or None for the layout."""

    layout: str
    axes: tuple | None
    shape: tuple  # canonical with a layout
    dtype: np.dtype
    epsilon: float
    scale: bool
    shift: bool
    add: Memory | None
    relu: bool
    seed: int
    kind: str
    src: Memory
    diff_dst: Memory
    out: Memory | None
    num_threads: int | None


@st.composite
def batch_norm_problems(draw):
    """A batch normalization over any layout or axes, in any dtype and memory."""
    layout, axes = draw(st.sampled_from(reference.LAYOUTS)), None
    shape = draw(canonical_shapes(layout))
    ndim = len(shape) + bool(reference.block_size(layout))
    if draw(st.booleans()):
        ndim = draw(st.integers(1, 8))
        extents = st.integers(1, 40 if ndim < 3 else 9 if ndim < 5 else 3)
        shape = tuple(draw(st.lists(extents, min_size=ndim, max_size=ndim)))
        axes = tuple(draw(st.lists(st.integers(0, ndim - 1), max_size=ndim, unique=True)))
    return BatchNormProblem(
        layout,
        axes,
        shape,
        draw(st.sampled_from(reference.DTYPES)),
        draw(st.sampled_from((1e-5, 1e-3, 0.1))),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.none() | memories(ndim, repeat=True)),
        draw(st.booleans()),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from(("normal", "sparse"))),
        draw(memories(ndim, repeat=True)),
        draw(memories(ndim, repeat=True)),
        draw(st.none() | memories(ndim)),
        draw(st.sampled_from((None, 1, 2, 3))),
    )
