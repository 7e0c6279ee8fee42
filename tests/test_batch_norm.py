"""Batch normalization against the float64 oracle: layouts, axes, dtypes, memory orders, activations."""

import functools
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cynorm
import reference
from cynorm import _dispatch
from reference import assert_within, from_canonical, to_canonical, tolerance, ulp, wide
from strategies import (
    ACTIVATIONS,
    Memory,
    assert_same_bits,
    available_bytes,
    batch_norm_problems,
    channels_argument,
    gapped_problems,
    orders,
    place,
    random_values,
    shapes_to_transpose,
    take,
)

try:
    import torch
except ImportError:
    torch = None

pytestmark = pytest.mark.usefixtures("isa")
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

each_dtype = pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
each_layout = pytest.mark.parametrize("layout", reference.LAYOUTS)
FLOAT32 = np.dtype(np.float32)
HALVES = [dtype for dtype in reference.DTYPES if dtype.itemsize == 2]


class Case:
    """One batch normalization: its operator, random inputs, and the way from its arrays to the oracle's.

    With `axes`, arrays are as the oracle has them and parameters keep the reduced axes at size 1; with a
    `layout`, `shape` is canonical and parameters are of length C.
    """

    def __init__(
        self, shape, dtype, layout="NCHW", *, axes=None, epsilon=1e-5, activation=None, seed=0, kind="normal"
    ):
        self.rng = np.random.default_rng(seed)
        self.shape, self.dtype, self.layout, self.epsilon, self.kind = shape, dtype, layout, epsilon, kind
        self.blocked = axes is None and reference.block_size(layout)
        self.by_layout = axes is None
        self.axes = (0, *range(2, len(shape))) if axes is None else axes
        self.kept = tuple(1 if axis in self.axes else extent for axis, extent in enumerate(shape))
        arguments = {"axes": axes}
        if axes is None:
            arguments = {"layout": layout, "channels": channels_argument(layout, shape[1])}
        self.operator = cynorm.BatchNorm(epsilon=epsilon, activation=activation, **arguments)
        self.src, self.diff_dst, self.add = (self.array() for _ in range(3))
        self.scale = self.parameter()
        self.shift = self.parameter()

    def array(self):
        """A random array of the problem's shape, in its layout; padding holds NaN."""
        values = random_values(self.rng, self.shape, self.dtype, self.kind)
        return from_canonical(values, self.layout, padding=np.nan) if self.by_layout else values

    def parameter(self):
        """A random parameter: of length C, or with the reduced axes at size 1."""
        shape = (self.shape[1],) if self.by_layout else self.kept
        return self.rng.uniform(-2, 2, shape).astype(reference.compute_dtype(self.dtype))

    def canonical(self, array):
        """The oracle's view of an array."""
        return to_canonical(array, self.layout, self.shape[1]) if self.by_layout else array

    def keep(self, parameter, default):
        """The oracle's view of a parameter, or the default where there is none."""
        return default if parameter is None else np.reshape(parameter, self.kept)


def assert_statistics(case, mean, variance):
    """Mean and variance are within 2 ulp of the oracle's; the mean of float64, within 2 ulp of what is averaged."""
    src = case.canonical(case.src)
    expected_mean, expected_variance = reference.batch_norm_statistics(src, case.axes)
    dtype = reference.compute_dtype(case.dtype)
    for statistic in (mean, variance):
        assert statistic.dtype == dtype
        assert statistic.shape == ((case.shape[1],) if case.by_layout else case.kept)
    scale = expected_mean
    if dtype == np.float64:
        scale = np.abs(wide(src)).mean(case.axes, keepdims=True)
    assert_within(case.keep(mean, 0), expected_mean, 2 * ulp(scale, dtype), "mean")
    assert_within(case.keep(variance, 0), expected_variance, 2 * ulp(expected_variance, dtype), "variance")


def assert_dst(case, dst, mean, variance, scale, shift, add, relu):
    """`dst` is within 4 ulp of its terms' magnitudes, with the given statistics."""
    expected, magnitude = reference.batch_norm_apply(
        case.canonical(case.src), mean, variance, case.keep(scale, 1.0), case.keep(shift, 0.0),
        epsilon=case.epsilon, add=0.0 if add is None else case.canonical(add),
    )  # fmt: skip
    if relu:
        expected = np.maximum(expected, 0)
    assert dst.shape == case.src.shape and dst.dtype == case.dtype
    allowed = tolerance(expected, magnitude, case.dtype, 4)
    if case.dtype == np.float64:  # the oracle rounds its mean too, which shows where src is close to it
        rounding = np.finfo(np.longdouble).eps * np.abs(wide(case.canonical(case.src))).max(initial=0)
        allowed = allowed + rounding * np.abs(case.keep(scale, 1.0)) / np.sqrt(wide(variance) + case.epsilon)
    assert_within(case.canonical(dst), expected, allowed, "dst")
    assert_padding_is_zero(case, dst)


def assert_gradients(case, gradients, mean, variance, scale, mask=None, *, training=True):
    """Each gradient is within 16 ulp of its terms' magnitudes."""
    diff_dst = wide(case.canonical(case.diff_dst))
    if mask is not None:
        diff_dst = np.where(mask, diff_dst, 0)
    src, scale_kept = case.canonical(case.src), case.keep(scale, 1.0)
    expected, magnitudes = reference.batch_norm_backward(
        diff_dst, src, case.axes, mean, variance, scale_kept, epsilon=case.epsilon, training=training
    )
    assert gradients.diff_src.shape == case.src.shape and gradients.diff_src.dtype == case.dtype
    bound = tolerance(expected[0], magnitudes[0], case.dtype, 16)
    assert_within(case.canonical(gradients.diff_src), expected[0], bound, "diff_src")
    assert_padding_is_zero(case, gradients.diff_src)
    dtype = reference.compute_dtype(case.dtype) if scale is None else scale.dtype
    for name, wanted, magnitude in zip(
        ("diff_scale", "diff_shift"), expected[1:], magnitudes[1:], strict=True
    ):
        got = getattr(gradients, name)
        assert got.dtype == dtype, name
        if scale is not None:
            assert got.shape == scale.shape, name
        assert_within(case.keep(got, 0), wanted, tolerance(wanted, magnitude, dtype, 16), name)


def assert_padding_is_zero(case, array):
    """The lanes of a blocked array beyond its channels hold 0."""
    if case.blocked:
        padding = to_canonical(array, case.layout)[:, case.shape[1] :]
        assert not np.asarray(padding != 0).any(), "padding is not zero"


def check_training(case, *, scale=True, shift=True, add=False, relu=False, out=None, num_threads=None):
    """Training forward and backward of a case, with a workspace and, where there is no ReLU, without."""
    scale, shift = case.scale if scale else None, case.shift if shift else None
    add = case.add if add else None
    workspace = cynorm.Workspace()
    dst, mean, variance = case.operator.forward_training(
        case.src, scale, shift, add=add, workspace=workspace, out=out, num_threads=num_threads
    )
    assert_statistics(case, mean, variance)
    true_mean, true_variance = reference.batch_norm_statistics(case.canonical(case.src), case.axes)
    assert_dst(case, dst, true_mean, true_variance, scale, shift, add, relu)
    mask = np.asarray(case.canonical(dst) > 0) if relu else None
    gradients = case.operator.backward_training(
        case.diff_dst, case.src, scale, workspace=workspace, num_threads=num_threads
    )
    assert_gradients(case, gradients, true_mean, true_variance, scale, mask)
    if add is None:
        assert gradients.diff_add is None
    else:
        diff_dst = case.canonical(case.diff_dst)
        expected = np.where(mask, diff_dst, np.zeros((), case.dtype)) if relu else diff_dst
        assert_same_bits(case.canonical(gradients.diff_add), expected, "diff_add")
    if not relu:
        gradients = case.operator.backward_training(
            case.diff_dst, case.src, scale, mean=mean, variance=variance, num_threads=num_threads
        )
        assert_gradients(case, gradients, case.keep(mean, 0), case.keep(variance, 1), scale)
    return dst


def check_inference(case, *, scale=True, shift=True, add=False, relu=False):
    """Inference forward and backward of a case, with statistics of its own."""
    scale, shift = case.scale if scale else None, case.shift if shift else None
    add = case.add if add else None
    mean, variance = case.parameter(), np.abs(case.parameter())
    workspace = cynorm.Workspace()
    dst = case.operator.forward_inference(
        case.src, mean, variance, scale, shift, add=add, workspace=workspace
    )
    assert_dst(case, dst, case.keep(mean, 0), case.keep(variance, 1), scale, shift, add, relu)
    mask = np.asarray(case.canonical(dst) > 0) if relu else None
    gradients = case.operator.backward_inference(
        case.diff_dst, case.src, mean, variance, scale, workspace=workspace
    )
    arguments = (case.keep(mean, 0), case.keep(variance, 1), scale, mask)
    assert_gradients(case, gradients, *arguments, training=False)


# ------------------------------------------------------------------------------------------------------------
# Drawn problems


def placed(problem):
    """The case of a drawn problem, its arrays in the memory drawn."""
    case = Case(
        problem.shape,
        problem.dtype,
        problem.layout,
        axes=problem.axes,
        epsilon=problem.epsilon,
        activation="relu" if problem.relu else None,
        seed=problem.seed,
        kind=problem.kind,
    )
    case.src, _ = place(case.src, problem.src)
    case.diff_dst, _ = place(case.diff_dst, problem.diff_dst)
    if problem.add is not None:
        case.add, _ = place(case.add, problem.add)
    return case


def flags(problem):
    """Which of the optional arguments a problem has."""
    return {
        "scale": problem.scale,
        "shift": problem.shift,
        "add": problem.add is not None,
        "relu": problem.relu,
    }


@given(batch_norm_problems())
def test_drawn_training(problem):
    check_training(placed(problem), **flags(problem), num_threads=problem.num_threads)


@given(batch_norm_problems())
def test_drawn_inference(problem):
    check_inference(placed(problem), **flags(problem))


@given(batch_norm_problems())
def test_drawn_outputs(problem):
    """Outputs in any memory hold what new ones do, and nothing around them is written.

    Another memory order may sum in another order, which shows where a gradient's terms cancel.
    """
    case = placed(problem)
    if problem.out is None:
        return
    workspace, other = cynorm.Workspace(), cynorm.Workspace()
    expected = case.operator.forward_training(case.src, case.scale, case.shift, workspace=other)
    out, buffer = place(np.zeros(case.src.shape, case.dtype), problem.out)
    results = case.operator.forward_training(case.src, case.scale, case.shift, out=out, workspace=workspace)
    assert results[0] is out
    assert_same_bits(take(out, buffer), expected[0])
    expected = case.operator.backward_training(case.diff_dst, case.src, case.scale, workspace=other)
    out, buffer = place(np.zeros(case.src.shape, case.dtype), problem.out)
    gradients = case.operator.backward_training(
        case.diff_dst, case.src, case.scale, out=out, workspace=workspace
    )
    assert gradients.diff_src is out
    largest = np.abs(wide(case.diff_dst)).max(initial=0) / math.sqrt(case.operator.epsilon)
    assert_within(take(out, buffer), wide(expected.diff_src), 16 * ulp(largest, case.dtype), "diff_src")


# ------------------------------------------------------------------------------------------------------------
# Every combination by name


SHAPES = {0: (30, 21), 1: (2, 21, 13), 2: (2, 21, 5, 7), 3: (2, 21, 3, 4, 5)}
OPTIONS = [
    dict(zip(("scale", "shift", "add"), chosen, strict=True))
    for chosen in itertools.product((True, False), repeat=3)
]


@each_layout
@each_dtype
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
def test_every_layout_and_dtype(layout, dtype, relu):
    shape = SHAPES[reference.spatial_ndim(layout)]
    for options in OPTIONS:
        case = Case(shape, dtype, layout, activation="relu" if relu else None)
        check_training(case, relu=relu, **options)
        check_inference(case, relu=relu, **options)


AXES = [
    ((60,), (0,)),
    ((60,), ()),
    ((7, 9), (0,)),
    ((7, 9), (1,)),
    ((7, 9), (0, 1)),
    ((4, 6, 5, 7), (0, 2, 3)),  # per channel
    ((4, 6, 5, 7), (2, 3)),  # instance
    ((4, 6, 5, 7), (1, 2, 3)),  # per image
    ((4, 6, 5, 7), (0, 1)),  # per position
    ((4, 6, 5, 7), (0, 1, 2, 3)),  # all
    ((4, 6, 5, 7), ()),  # none: the full shape
    ((4, 6, 5, 7), (0, 2)),
    ((4, 6, 5, 7), (1, 3)),
    ((4, 6, 5, 7), (-1, 0)),
    ((2, 3, 4, 5, 3), (1, 3)),
    ((2, 2, 3, 2, 3, 2, 2, 3), (0, 2, 4, 6)),
    ((2, 2, 3, 2, 3, 2, 2, 3), (1, 3, 5, 7)),
    ((2, 3, 2, 1, 3, 2, 2, 3), (0, 3, 4, 5)),
    ((1000, 3), (0,)),
    ((3, 1000), (1,)),
    ((300, 40), (0,)),
    ((5000,), (0,)),
]


@pytest.mark.parametrize("shape, axes", AXES, ids=str)
@each_dtype
def test_every_axes(shape, axes, dtype):
    axes = tuple(axis % len(shape) for axis in axes)
    for order in ("C", "F"):
        case = Case(shape, dtype, axes=axes)
        case.src = np.asarray(case.src, order=order)
        check_training(case)
        check_inference(case)


def test_axes_may_be_negative_or_one_number():
    src = np.random.default_rng(0).standard_normal((3, 4, 5))
    for axes, same in (((-1,), (2,)), (2, (2,)), ([0, -1], (0, 2))):
        got = cynorm.BatchNorm(axes=axes).forward_training(src)
        for one, other in zip(got, cynorm.BatchNorm(axes=same).forward_training(src), strict=True):
            assert_same_bits(one, other)


@each_dtype
@pytest.mark.parametrize("shape, axes", [((40, 12), ()), ((9, 22), ()), ((40, 5, 12), (1,)), ((40, 12, 5), (2,))], ids=str)
def test_inputs_repeated_along_statistics(shape, axes, dtype):
    """An input whose stride is 0 along one of several axes of statistics is read as its copy is."""
    case = Case(shape, dtype, axes=axes)
    alike = [np.broadcast_to(a[:1], shape) for a in (case.src, case.diff_dst, case.add)]
    for repeated in itertools.product((False, True), repeat=3):
        src, diff_dst, add = (alike[i] if r else alike[i].copy() for i, r in enumerate(repeated))
        workspace = cynorm.Workspace()
        dst, *_ = case.operator.forward_training(src, add=add, workspace=workspace, out=np.empty(shape, dtype))
        gradients = case.operator.backward_training(diff_dst, src, workspace=workspace, out=np.empty(shape, dtype))
        for got in (dst, *gradients[:3]):
            for row in got:
                assert_same_bits(row, got[0])
        if axes == ():
            assert_same_bits(gradients.diff_shift, alike[1].astype(gradients.diff_shift.dtype))


def test_axes_say_what_layouts_say():
    """NHWC per channel is axes=(0, 1, 2), to the last bit."""
    case = Case((3, 17, 6, 7), FLOAT32, "NHWC")
    by_layout = case.operator.forward_training(case.src, case.scale, case.shift)
    keep = (1, 1, 1, 17)
    by_axes = cynorm.BatchNorm(axes=(0, 1, 2)).forward_training(
        case.src, case.scale.reshape(keep), case.shift.reshape(keep)
    )
    for one, other in zip(by_layout, by_axes, strict=True):
        assert_same_bits(one.ravel(), other.ravel())


@pytest.mark.parametrize("channels", [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 127])
@pytest.mark.parametrize("layout", ["NC", "NHWC", "nChw8c", "nChw16c"])
def test_every_channel_count(channels, layout):
    for dtype in reference.DTYPES:
        case = Case((3, channels, 3, 5)[: 2 + reference.spatial_ndim(layout)], dtype, layout)
        check_training(case)
        check_inference(case)


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129, 1000])
def test_every_width(width):
    for dtype in reference.DTYPES:
        check_training(Case((3, 4, width), dtype, "NCW"))
        check_training(Case((1, 4, width), dtype, "NCW"), scale=False, shift=False)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c", "nChw16c"])
@each_dtype
def test_network_sized(layout, dtype):
    """Many tiles, all threads, with ReLU and a sum."""
    case = Case((4, 48, 28, 27), dtype, layout, activation="relu")
    check_training(case, add=True, relu=True, num_threads=2)


@each_dtype
@pytest.mark.parametrize(
    "shape", [(300, 24, 5, 5), (256, 40, 5, 5), (300, 24, 7, 7), (1024, 72, 3, 3), (600, 20, 2, 4), (128, 3, 1, 2)], ids=str
)
def test_many_images_of_small_planes(shape, dtype, isa):
    """All channels of an image are a row, and several images one row of these."""
    for relu in (False, True):
        case = Case(shape, dtype, activation="relu" if relu else None)
        check_training(case, relu=relu)
        check_inference(case, relu=relu)


@each_dtype
@pytest.mark.parametrize(
    "shape", [(1, 128, 3, 4), (4, 130, 3, 3), (7, 520, 2, 2), (3, 300, 2, 1), (2, 1030, 1, 8), (16, 129, 1, 9)], ids=str
)
def test_few_images_of_small_planes(shape, dtype, isa):
    """The channels of a pixel are a row, which memory is packed into."""
    check_training(Case(shape, dtype))
    check_training(Case(shape, dtype, activation="relu"), relu=True, add=True)
    case = Case(shape, dtype)
    out = np.empty((shape[0], *shape[2:], shape[1]), dtype).transpose(0, 3, 1, 2)
    assert_same_bits(check_training(case, out=out), check_training(case))


@given(st.data())
@settings(max_examples=60)
def test_drawn_small_planes(data):
    """Few or many images, whose planes are so small that an image's channels are one row, or a pixel's are."""
    spatial = data.draw(st.sampled_from([(2, 2), (3, 3), (5, 5), (7, 7), (6,), (2, 3, 3)]))
    images = data.draw(st.one_of(st.integers(1, 127), st.sampled_from([128, 256, 300, 512, 600])))
    most = 250_000 // (images * math.prod(spatial))
    channels = data.draw(st.one_of(st.integers(1, min(80, most)), st.integers(1, min(700, most))))
    layout = data.draw(st.sampled_from(["NC{}", "NC{}", "N{}C"])).format("DHW"[-len(spatial) :])
    case = Case((images, channels, *spatial), data.draw(st.sampled_from(reference.DTYPES)), layout)
    check_training(case)
    check_inference(case)


@pytest.mark.parametrize(
    "shape, axes, dtype",
    [
        ((400_000, 2, 6), (1,), FLOAT32),
        ((300_000, 2, 3), (1,), np.dtype(np.float64)),
        ((90_000, 4, 9), (1,), FLOAT32),
        ((600_000, 2, 3), (1,), FLOAT32),
        ((340_000, 2, 5), (1,), FLOAT32),
    ],
    ids=str,
)
def test_many_short_units_past_the_cache(shape, axes, dtype, isa):
    """Rows of one unit may begin at lines of memory where those of the next do not."""
    case = Case(shape, dtype, axes=axes)
    dst, mean, variance = case.operator.forward_training(case.src)
    true_mean, true_variance = reference.batch_norm_statistics(case.src, axes)
    assert_statistics(case, mean, variance)
    assert_dst(case, dst, true_mean, true_variance, None, None, None, False)
    dst = case.operator.forward_inference(case.src, mean, variance)
    assert_dst(case, dst, mean, variance, None, None, None, False)


@pytest.mark.parametrize("channels, elements", [(680, 6), (1363, 3)])
def test_wide_images_of_small_planes(channels, elements, isa):
    """Units of several blocks, whose rows are almost too long for a piece: none is cut."""
    check_training(Case((128, 8, channels, elements), np.dtype(np.float16), axes=(1, 3)))


@pytest.mark.parametrize("layout", ["nChw8c", "nChw16c"])
@pytest.mark.parametrize("varies", [(4,), (0, 1, 4), (1, 3, 4), (1,), (0, 1, 2, 3, 4), (1, 4)], ids=str)
def test_padding_where_parameters_vary_along_any_axes(varies, layout, isa):
    """Inference leaves zeros in the padding, and only there, whichever axes its parameters are constant along."""
    case = Case((2, 20 if layout == "nChw16c" else 12, 2, 3), FLOAT32, layout)
    shape = [extent if axis in varies else 1 for axis, extent in enumerate(case.src.shape)]
    mean, variance, scale, shift = case.rng.uniform(1, 2, (4, *shape)).astype(np.float32)
    dst = case.operator.forward_inference(case.src, mean, variance, scale, shift)
    expected = scale * (case.src - mean) / np.sqrt(variance + np.float32(1e-5)) + shift
    np.testing.assert_allclose(case.canonical(dst), case.canonical(expected), rtol=1e-4, atol=1e-5)
    assert_padding_is_zero(case, dst)


def test_defaults():
    case = Case((3, 4, 5, 6), FLOAT32)
    assert cynorm.BatchNorm() == cynorm.BatchNorm(
        epsilon=1e-5, layout="NCHW", axes=None, channels=None, activation=None
    )
    assert_same_bits(
        cynorm.BatchNorm().forward_training(case.src)[0], case.operator.forward_training(case.src)[0]
    )


def test_keep_dims_parameters():
    """Parameters may be of length C or shaped like the data with the reduced axes at size 1."""
    for layout, keep in (("NCHW", (1, 9, 1, 1)), ("NHWC", (1, 1, 1, 9))):
        case = Case((3, 9, 4, 5), FLOAT32, layout)
        flat = case.operator.forward_training(case.src, case.scale, case.shift)
        kept = case.operator.forward_training(case.src, case.scale.reshape(keep), case.shift.reshape(keep))
        for one, other in zip(flat, kept, strict=True):
            assert_same_bits(one.ravel(), other.ravel())
        gradients = case.operator.backward_training(
            case.diff_dst, case.src, case.scale.reshape(keep), mean=flat[1], variance=flat[2]
        )
        assert gradients.diff_scale.shape == keep and gradients.diff_shift.shape == keep


def test_parameters_of_any_strides():
    case = Case((3, 9, 4, 5), FLOAT32)
    apart = np.zeros((9, 2), np.float32)
    apart[:, 0], apart[:, 1] = case.scale, case.shift
    got = case.operator.forward_training(case.src, apart[:, 0], apart[:, 1])[0]
    assert_same_bits(got, case.operator.forward_training(case.src, case.scale, case.shift)[0])
    backwards = case.operator.forward_training(case.src, case.scale[::-1].copy()[::-1], case.shift)[0]
    assert_same_bits(backwards, got)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_parameters(dtype):
    """Parameters of the data's own type are accepted, and their gradients returned in it."""
    case = Case((3, 9, 4, 5), dtype)
    case.scale, case.shift = case.scale.astype(dtype), case.shift.astype(dtype)
    check_training(case)
    check_inference_with_half_statistics(case)


def check_inference_with_half_statistics(case):
    """Statistics of the data's own type too."""
    mean, variance = case.parameter().astype(case.dtype), np.abs(case.parameter()).astype(case.dtype)
    dst = case.operator.forward_inference(case.src, mean, variance, case.scale, case.shift)
    assert_dst(case, dst, case.keep(mean, 0), case.keep(variance, 1), case.scale, case.shift, None, False)


BROADCASTS = [
    ((1, 6, 1, 1), (1, 1, 1, 1), (4, 1, 1, 1), (4, 6, 5, 7)),
    ((4, 6, 1, 1), (1, 6, 1, 1), (1, 1, 5, 7), (1, 1, 1, 1)),
    ((4, 6, 5, 7), (4, 6, 5, 7), (4, 6, 5, 7), (4, 6, 5, 7)),
    ((1, 1, 5, 7), (1, 1, 5, 7), (1, 6, 1, 7), (4, 1, 5, 1)),
]


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@each_dtype
def test_inference_parameters_broadcast_each_on_its_own(shapes, dtype):
    case = Case((4, 6, 5, 7), dtype, axes=(0, 2, 3))
    computed = reference.compute_dtype(dtype)
    mean, variance, scale, shift = (case.rng.uniform(0.1, 2, shape).astype(computed) for shape in shapes)
    dst = case.operator.forward_inference(case.src, mean, variance, scale, shift)
    expected, magnitude = reference.batch_norm_apply(case.src, mean, variance, scale, shift)
    assert_within(dst, expected, tolerance(expected, magnitude, dtype, 4))


@each_layout
def test_one_call_forms(layout):
    case = Case(SHAPES[reference.spatial_ndim(layout)], FLOAT32, layout)
    arguments = {"layout": layout, "channels": case.operator.channels}
    results = cynorm.batch_norm(case.src, case.scale, case.shift, epsilon=1e-5, **arguments)
    expected = case.operator.forward_training(case.src, case.scale, case.shift)
    for one, other in zip(results, expected, strict=True):
        assert_same_bits(one, other)
    _, mean, variance = results
    gradients = cynorm.batch_norm_backward(
        case.diff_dst, case.src, case.scale, mean=mean, variance=variance, epsilon=1e-5, **arguments
    )
    expected = case.operator.backward_training(
        case.diff_dst, case.src, case.scale, mean=mean, variance=variance
    )
    for one, other in zip(gradients[:3], expected[:3], strict=True):
        assert_same_bits(one, other)
    given = case.src, mean, variance, case.scale
    dst = cynorm.batch_norm_inference(*given, case.shift, epsilon=1e-5, **arguments)
    assert_same_bits(dst, case.operator.forward_inference(*given, case.shift))
    gradients = cynorm.batch_norm_inference_backward(case.diff_dst, *given, epsilon=1e-5, **arguments)
    for one, other in zip(gradients[:3], case.operator.backward_inference(case.diff_dst, *given)[:3], strict=True):
        assert_same_bits(one, other)


def test_one_call_forms_pass_on_what_they_are_given():
    src, one = np.random.default_rng(0).standard_normal((2, 3, 2, 2)), np.ones(3)
    bn = cynorm.BatchNorm(activation="tanh")
    dst = cynorm.batch_norm_inference(src, one, one, add=src * 5, activation="tanh")
    assert_same_bits(dst, bn.forward_inference(src, one, one, add=src * 5))
    got = cynorm.batch_norm_inference_backward(src, src, one, one, shift=one, activation="tanh")
    assert_same_bits(got.diff_src, bn.backward_inference(src, src, one, one, shift=one).diff_src)
    running, expected = np.zeros((2, 3))
    cynorm.batch_norm(src, running_variance=running, unbiased_running=False)
    cynorm.BatchNorm().forward_training(src, running_variance=expected, unbiased_running=False)
    assert_same_bits(running, expected)


def test_given_statistics_stand_for_the_workspaces():
    src, diff_dst = np.random.default_rng(0).standard_normal((2, 4, 3, 2, 2))
    bn, workspace = cynorm.BatchNorm(), cynorm.Workspace()
    _, mean, variance = bn.forward_training(src, workspace=workspace)
    given = {"mean": mean + 1, "variance": variance * 4}
    got = bn.backward_training(diff_dst, src, **given, workspace=workspace)
    for one, other in zip(got[:3], bn.backward_training(diff_dst, src, **given)[:3], strict=True):
        assert_same_bits(one, other)


# ------------------------------------------------------------------------------------------------------------
# Gradients and activations


@pytest.mark.parametrize("axes", [(0, 2), (2,), (1,), (0, 1, 2), ()], ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_central_differences(axes, training):
    """backward is the derivative of forward, by differences of forward itself in float64."""
    case = Case((3, 2, 4), np.dtype(np.float64), axes=axes, epsilon=0.1)
    mean, variance = case.parameter(), np.abs(case.parameter()) + 0.1
    operator = case.operator

    def loss(src=case.src, scale=case.scale, shift=case.shift):
        if training:
            dst = operator.forward_training(src, scale, shift, num_threads=1)[0]
        else:
            dst = operator.forward_inference(src, mean, variance, scale, shift, num_threads=1)
        return np.vdot(case.diff_dst, dst)

    if training:
        workspace = cynorm.Workspace()
        operator.forward_training(case.src, case.scale, case.shift, workspace=workspace)
        gradients = operator.backward_training(case.diff_dst, case.src, case.scale, workspace=workspace)
    else:
        gradients = operator.backward_inference(case.diff_dst, case.src, mean, variance, case.scale)
    for name in ("src", "scale", "shift"):
        at, gradient = getattr(case, name), getattr(gradients, f"diff_{name}")
        for index in np.ndindex(at.shape):
            step = np.zeros_like(at)
            step[index] = 1e-5
            slope = (loss(**{name: at + step}) - loss(**{name: at - step})) / 2e-5
            assert slope == pytest.approx(gradient[index], rel=1e-6, abs=1e-8), (name, index)


each_activation = pytest.mark.parametrize("name, parameters", ACTIVATIONS.items(), ids=ACTIVATIONS)
STEEPEST = 2.0  # none of ACTIVATIONS grows faster


@each_activation
@each_dtype
def test_activation_forward(name, parameters, dtype):
    """What 4 ulp before the activation become after it, and 4 ulp of its own terms, which are about 1."""
    activation = cynorm.Activation(name, **parameters)
    for layout, add in itertools.product(("NCHW", "NHWC"), (False, True)):
        case = Case((2, 21, 6, 7), dtype, layout, activation=activation)
        added = {"add": case.add} if add else {}
        dst, _, _ = case.operator.forward_training(case.src, case.scale, case.shift, **added)
        statistics = reference.batch_norm_statistics(case.canonical(case.src), case.axes)
        value, magnitude = reference.batch_norm_apply(
            case.canonical(case.src), *statistics, case.keep(case.scale, 1), case.keep(case.shift, 0),
            **{key: case.canonical(array) for key, array in added.items()},
        )  # fmt: skip
        expected = reference.activation(name, value, **parameters)
        bound = 4 * STEEPEST * ulp(magnitude, reference.compute_dtype(dtype))
        bound += 4 * ulp(np.abs(expected) + 1, reference.compute_dtype(dtype))
        if name in ("thresholded_relu", "shrink"):  # where it jumps, either side will do
            edge = parameters.get("threshold", parameters.get("alpha"))
            bound = np.where(np.abs(np.abs(value) - edge) <= bound, 2, bound)
        if dtype.itemsize == 2:
            bound = np.maximum(ulp(expected, dtype), bound + ulp(expected, dtype) / 2)
        assert_within(case.canonical(dst), expected, bound, f"{name}, {layout}")


@each_dtype
@pytest.mark.parametrize("layout", ["NCW", "NWC"])
def test_gradients_of_an_infinite_mean(layout, dtype, isa):
    """Elements missing from a last vector add nothing."""
    for width in (1, 3, 8, 15, 16, 17, 33):
        src = np.ones((1, 1, width) if layout == "NCW" else (1, width, 1), dtype)
        gradients = cynorm.BatchNorm(layout=layout).backward_inference(src, src, [np.inf], [1.0], [1.0])
        assert gradients.diff_scale == -np.inf and gradients.diff_shift == width


@each_activation
def test_nan_passes_activations(name, parameters, isa):
    bn = cynorm.BatchNorm(layout="NC", activation=cynorm.Activation(name, **parameters))
    src = np.array([[1.0, 1.0], [np.nan, 2.0]], np.float32)
    np.testing.assert_array_equal(np.isnan(bn.forward_training(src)[0]), [[True, False], [True, False]])
    dst = bn.forward_inference(src, np.zeros(2, np.float32), np.ones(2, np.float32))
    np.testing.assert_array_equal(np.isnan(dst), np.isnan(src))


@each_activation
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_activation_backward(name, parameters, training):
    """The derivative at the value before the activation, which backward finds from src, scale and shift."""
    case = Case((2, 9, 6, 7), np.dtype(np.float64), activation=cynorm.Activation(name, **parameters))
    mean, variance = reference.batch_norm_statistics(case.src, case.axes)
    workspace = cynorm.Workspace()
    if training:
        case.operator.forward_training(case.src, case.scale, case.shift, workspace=workspace)
        gradients = case.operator.backward_training(
            case.diff_dst, case.src, case.scale, shift=case.shift, workspace=workspace
        )
    else:
        given_mean, given_variance = case.parameter(), np.abs(case.parameter())
        mean, variance = case.keep(given_mean, 0), case.keep(given_variance, 0)
        arguments = (case.src, given_mean, given_variance, case.scale)
        case.operator.forward_inference(*arguments, case.shift, workspace=workspace)
        gradients = case.operator.backward_inference(
            case.diff_dst, *arguments, shift=case.shift, workspace=workspace
        )
    scale, shift = case.keep(case.scale, 1), case.keep(case.shift, 0)
    value, _ = reference.batch_norm_apply(case.src, mean, variance, scale, shift)
    diff_value = case.diff_dst * reference.activation_gradient(name, value, **parameters)
    expected, magnitudes = reference.batch_norm_backward(
        diff_value, case.src, case.axes, mean, variance, scale, training=training
    )
    for got, wanted, magnitude in zip(gradients, expected, magnitudes, strict=False):
        np.testing.assert_array_less(
            np.abs(got.reshape(wanted.shape) - wanted), 1e-13 * np.abs(magnitude) + 1e-300, err_msg=name
        )


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_relu_forgets_the_bits_of_another_call(order):
    """Bytes of the mask that rows or units share are set anew, whatever the workspace held, in any mixture of orders."""
    shape = (8, 8, 11, 10)
    src, diff_dst = np.random.default_rng(0).standard_normal((2, *shape), dtype=np.float32)
    bn = cynorm.BatchNorm(axes=0, activation="relu")
    mean, variance, workspace = np.zeros((1, *shape[1:]), np.float32), np.ones((1, *shape[1:]), np.float32), cynorm.Workspace()
    there = np.ascontiguousarray(src.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    out = np.empty([shape[axis] for axis in order], np.float32).transpose(np.argsort(order))
    bn.forward_inference(np.abs(there), mean, variance, workspace=workspace)
    dst = bn.forward_inference(there, mean, variance, out=out, workspace=workspace)
    diff_src = bn.backward_inference(diff_dst, there, mean, variance, workspace=workspace)[0]
    np.testing.assert_array_equal(diff_src != 0, dst > 0)


@each_dtype
@pytest.mark.parametrize("channels", [4097, 8193])
def test_mask_of_another_memory_order_where_one_column_is_left(channels, dtype):
    """Rows of kept elements are cut: the last piece is of a single one, whose bits lie apart."""
    case = Case((3, channels, 2, 5), dtype, activation="relu")
    workspace = cynorm.Workspace()
    dst, _, _ = case.operator.forward_training(case.src, case.scale, case.shift, workspace=workspace)
    for name in ("src", "diff_dst"):
        setattr(case, name, np.ascontiguousarray(getattr(case, name).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2))
    gradients = case.operator.backward_training(case.diff_dst, case.src, case.scale, workspace=workspace)
    statistics = reference.batch_norm_statistics(case.src, case.axes)
    assert_gradients(case, gradients, *statistics, case.scale, dst > 0)


@pytest.mark.parametrize("layout", reference.LAYOUTS)
def test_relu_needs_neither_dst_nor_add(layout):
    """One bit per element: the workspace is far smaller than the tensor."""
    case = Case((4, 64, 9, 11, 3)[: 2 + reference.spatial_ndim(layout)], FLOAT32, layout, activation="relu")
    workspace = cynorm.Workspace()
    case.operator.forward_training(case.src, case.scale, case.shift, add=case.add, workspace=workspace)
    statistics = 4 * 64 * 8
    assert workspace.nbytes <= case.src.nbytes // 32 * 2 + statistics
    assert workspace.nbytes == case.operator.workspace_nbytes(case.src.shape, case.src.dtype)


def test_activation_names():
    """A name alone means the default parameters of the documents."""
    src = np.linspace(-3, 3, 60).reshape(1, 1, 60)
    mean, variance = np.zeros(1), np.ones(1)

    def run(activation):
        return cynorm.BatchNorm(epsilon=0.0, layout="NCW", activation=activation).forward_inference(
            src, mean, variance
        )

    assert_same_bits(run("relu"), run(cynorm.Activation("relu")))
    assert_same_bits(run(None), run(cynorm.Activation("identity")))
    assert_within(run(cynorm.Activation("elu")), reference.activation("elu", src, alpha=1.0), 1e-14)


def test_shrink_of_a_negative_threshold():
    """Where both conditions hold, that of x > threshold counts."""
    src = np.array([-3.0, -1.0, 0.0, 1.0, 3.0]).reshape(1, 1, 5)
    shrink = cynorm.Activation("shrink", bias=0.25, threshold=-2.0)
    dst = cynorm.BatchNorm(epsilon=0.0, layout="NCW", activation=shrink).forward_inference(src, np.zeros(1), np.ones(1))
    assert dst.ravel().tolist() == [-2.75, -1.25, -0.25, 0.75, 2.75]


# ------------------------------------------------------------------------------------------------------------
# Running statistics


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("momentum", [0.1, 0.0, 1.0, 0.7])
@each_dtype
def test_running_statistics(unbiased, momentum, dtype):
    """running = (1 - momentum) * running + momentum * new, in the caller's arrays, whatever their strides."""
    case = Case((3, 9, 4, 5), dtype)
    computed = reference.compute_dtype(dtype)
    both = case.rng.uniform(0.5, 2, (9, 4)).astype(computed)
    before = both.copy()
    running_mean, running_variance = both[:, 1], both[::-1, 3]
    _, mean, variance = case.operator.forward_training(
        case.src, running_mean=running_mean, running_variance=running_variance, momentum=momentum,
        unbiased_running=unbiased,
    )  # fmt: skip
    assert_statistics(case, mean, variance)
    count = 3 * 4 * 5
    correction = count / (count - 1) if unbiased else 1
    for running, old, new in (
        (running_mean, before[:, 1], mean.astype(float)),
        (running_variance, before[::-1, 3], variance.astype(float) * correction),
    ):
        terms = (1 - momentum) * old.astype(float), momentum * new
        assert_within(running, wide(sum(terms)), 4 * ulp(sum(map(np.abs, terms)), computed), "running")
    np.testing.assert_array_equal(both[:, [0, 2]], before[:, [0, 2]])


def test_running_statistics_default_to_torch():
    """momentum 0.1, unbiased."""
    case = Case((3, 9, 4, 5), FLOAT32)
    running = [np.zeros(9, np.float32), np.ones(9, np.float32)]
    expected = [np.zeros(9, np.float32), np.ones(9, np.float32)]
    case.operator.forward_training(case.src, running_mean=running[0], running_variance=running[1])
    case.operator.forward_training(
        case.src, running_mean=expected[0], running_variance=expected[1], momentum=0.1, unbiased_running=True
    )
    for one, other in zip(running, expected, strict=True):
        assert_same_bits(one, other)


def test_one_running_statistic_alone():
    case = Case((3, 9, 4, 5), FLOAT32)
    running = np.zeros(9, np.float32)
    _, mean, _ = case.operator.forward_training(case.src, running_mean=running, momentum=1.0)
    assert_within(running, wide(mean), ulp(mean, FLOAT32))


def test_running_variance_of_one_element():
    """There is nothing to correct: the variance, 0, is taken as it is."""
    running = np.ones(3, np.float32)
    cynorm.BatchNorm(layout="NC").forward_training(np.ones((1, 3), np.float32), running_variance=running, momentum=0.25)
    assert running.tolist() == [0.75] * 3


def test_empty_data_leaves_running_statistics():
    mean, variance = np.full(3, 2, np.float32), np.full(3, 5, np.float32)
    cynorm.BatchNorm().forward_training(
        np.empty((0, 3, 4, 4), np.float32), running_mean=mean, running_variance=variance
    )
    assert mean.tolist() == [2] * 3 and variance.tolist() == [5] * 3


def test_empty_data_of_many_channels():
    """There is nothing to do, nor to keep for channels: 40 bytes for each of so many would be more than 64 bits count."""
    channels = 461168601842738790
    zeros = np.broadcast_to(np.float32(0), (channels,))
    bn, src = cynorm.BatchNorm(layout="NC"), np.empty((0, channels), np.float32)
    assert bn.forward_inference(src, zeros, zeros).shape == src.shape
    with pytest.raises(MemoryError):
        bn.backward_inference(src, src, mean=zeros, variance=zeros)


@pytest.mark.parametrize("factor", [1.0, 1 + 2.0**-8, 1 + 2.0**-11, 0.7, 2.0**-20, 2.0**-130, -3e38])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw16c"])
@pytest.mark.parametrize("dtype", [dtype for dtype in reference.DTYPES if dtype.itemsize == 2], ids=str)
def test_every_half_rounded(dtype, layout, factor, isa):
    """All 65536 numbers of 16 bits, times a factor of which many products lie midway between two results, are subnormal or huge:
    rounded to nearest, ties to even, as NumPy rounds."""
    src = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape((1, 16, 64, 64) if layout == "NCHW" else (1, 4, 64, 256))
    channels = 16 if layout == "NCHW" else 256
    if layout == "nChw16c":
        src, channels = src.reshape(1, 4, 64, 16, 16), 64
    zeros, ones = np.zeros(channels, np.float32), np.ones(channels, np.float32)
    norm = cynorm.BatchNorm(layout=layout, epsilon=0)
    with np.errstate(all="ignore"):
        expected = (src.astype(np.float32) * np.float32(factor)).astype(dtype)
    dst = norm.forward_inference(src, zeros, ones, scale=ones * np.float32(factor))
    np.testing.assert_array_equal(dst.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("images", [100, 50])
def test_groups_side_by_side_or_one_after_the_other(images, isa):
    """Groups whose sums read more than a megabyte, forward or backward: machines differ in which they do, not in any bit."""
    bn = cynorm.BatchNorm()
    rng = np.random.default_rng(0)
    src, diff_dst = (rng.standard_normal((images, 64, 56, 56), np.float32) for _ in range(2))
    results = []
    for far_lines in True, False:
        workspace = cynorm.Workspace()
        with _dispatch.use_far_lines(far_lines):
            forward = bn.forward_training(src, workspace=workspace, num_threads=2)
            results.append([*forward, bn.backward_training(diff_dst, src, workspace=workspace, num_threads=2)[0]])
    for one, other in zip(*results, strict=True):
        assert_same_bits(one, other)


# ------------------------------------------------------------------------------------------------------------
# int8


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw16c"])
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
def test_int8_inference(layout, relu):
    """Rounded half to even and saturated."""
    rng = np.random.default_rng(0)
    canonical = rng.integers(-128, 128, (2, 32, 9, 11)).astype(np.int8)
    src = from_canonical(canonical, layout)
    mean, scale, shift = (rng.uniform(-3, 3, 32).astype(np.float32) for _ in range(3))
    variance = rng.uniform(0.5, 2, 32).astype(np.float32)
    bn = cynorm.BatchNorm(layout=layout, activation="relu" if relu else None)
    dst = bn.forward_inference(src, mean, variance, scale, shift)
    assert dst.dtype == np.int8
    keep = (1, 32, 1, 1)
    parameters = [array.reshape(keep) for array in (mean, variance, scale, shift)]
    value, magnitude = reference.batch_norm_apply(canonical, *parameters)
    value = np.clip(np.maximum(value, 0) if relu else value, -128, 127)
    got = to_canonical(dst, layout).astype(float)
    np.testing.assert_array_less(np.abs(got - value), 0.5 + 4 * ulp(magnitude, FLOAT32) + 1e-12)
    assert (np.abs(got) == 128).any() or relu


@given(
    st.tuples(*(st.integers(1, most) for most in (3, 150, 9, 40))), st.lists(orders(4), min_size=3, max_size=3),
    st.sampled_from([None, "relu"]), st.booleans(), st.sampled_from([0.01, 1.0, 1e10]),
)  # fmt: skip
def test_int8_of_any_shape(shape, memories, activation, adds, gain):
    """What no integer is near saturates; NaN, of a channel whose scale is none or infinite, is 0."""
    rng = np.random.default_rng(0)
    arrays = rng.integers(-128, 128, (3, *shape)).astype(np.int8)
    src, add, out = (place(array, memory)[0] for array, memory in zip(arrays, memories, strict=True))
    mean, variance, scale, shift = rng.uniform(1, 3, (4, 1, shape[1], 1, 1)).astype(np.float32)
    scale *= rng.choice(np.float32([gain, -gain]), scale.shape)
    scale[0, ::7], shift[0, ::5] = np.nan, np.inf
    bn = cynorm.BatchNorm(axes=(0, 2, 3), activation=activation)
    bn.forward_inference(src, mean, variance, scale, shift, add=add if adds else None, out=out)
    with np.errstate(invalid="ignore"):
        value, magnitude = reference.batch_norm_apply(
            arrays[0], mean, variance, scale, shift, add=arrays[1] if adds else 0.0
        )
    if activation:
        value = np.where(value <= 0, 0, value)
    allowed = 0.5 + 4 * ulp(np.where(np.isfinite(magnitude), magnitude, 0), FLOAT32)
    near = np.abs(out - np.clip(value, -128, 127)) <= allowed
    assert (near | np.isnan(value) & (out == 0)).all()


@pytest.mark.parametrize("layout, shape", [("NCHW", (16, 64, 112, 113)), ("NHWC", (16, 112, 113, 64)), ("NHWC", (16, 70, 71, 163))])
@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
def test_int8_past_the_cache(layout, shape, activation):
    """As image by image in the cache, wherever lines of dst begin."""
    rng = np.random.default_rng(0)
    src = rng.integers(-128, 128, shape).astype(np.int8)
    parameters = rng.uniform(1, 30, (4, shape[layout.index("C")])).astype(np.float32)
    bn = cynorm.BatchNorm(layout=layout, activation=activation)
    expected = np.concatenate([bn.forward_inference(src[i : i + 1], *parameters) for i in range(len(src))])
    for offset in 0, 1, 16:
        out, room = place(np.zeros_like(src), Memory(range(4), (1,) * 4, offset))
        bn.forward_inference(src, *parameters, out=out)
        assert_same_bits(take(out, room), expected)


def test_int8_rounds_half_to_even():
    src = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 256)
    one = np.ones(1, np.float32)
    dst = cynorm.BatchNorm(epsilon=0.0, layout="NCW").forward_inference(src, 0 * one, one, 0.5 * one)
    np.testing.assert_array_equal(dst, np.rint(src * 0.5).astype(np.int8))


# ------------------------------------------------------------------------------------------------------------
# Memory


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NC", "nChw8c"])
@each_dtype
def test_in_place(layout, dtype):
    """out=src forward, out=diff_dst backward."""
    case = Case((3, 21, 6, 7)[: 2 + reference.spatial_ndim(layout)], dtype, layout, activation="relu")
    workspace = cynorm.Workspace()
    expected = case.operator.forward_training(
        case.src, case.scale, case.shift, add=case.add, workspace=workspace
    )
    gradients = case.operator.backward_training(case.diff_dst, case.src, case.scale, workspace=workspace)
    src, diff_dst = case.src.copy(), case.diff_dst.copy()
    other = cynorm.Workspace()
    results = case.operator.forward_training(
        src, case.scale, case.shift, add=case.add, out=src, workspace=other
    )
    assert results[0] is src
    for one, wanted in zip(results, expected, strict=True):
        assert_same_bits(one, wanted)
    in_place = case.operator.backward_training(diff_dst, case.src, case.scale, out=diff_dst, workspace=other)
    assert in_place.diff_src is diff_dst
    for one, wanted in zip(in_place, gradients, strict=True):
        assert_same_bits(one, wanted)
    src = case.src.copy()
    inference = case.operator.forward_inference(case.src, *expected[1:], case.scale, case.shift)
    assert case.operator.forward_inference(src, *expected[1:], case.scale, case.shift, out=src) is src
    assert_same_bits(src, inference)


@each_dtype
@pytest.mark.parametrize("layout, shape", [("NCHW", (3, 21, 6, 7)), ("NCHW", (16, 40, 5, 5)), ("NCHW", (1, 2, 300, 310)),
                                           ("NHWC", (2, 70, 13, 11)), ("NHWC", (1, 40, 57, 57)), ("nChw16c", (2, 40, 5, 7)),
                                           ("nChw16c", (16, 32, 14, 14)), ("nChw16c", (1, 4112, 15, 15))], ids=str)  # fmt: skip
def test_activation_gradients_left_by_sums(layout, shape, dtype, isa):
    """Results that find them have the same bits as those that make them once more, as they do where an array is packed."""
    case = Case(shape, dtype, layout, activation="sigmoid")
    workspace = cynorm.Workspace()
    case.operator.forward_training(case.src, case.scale, case.shift, workspace=workspace)
    arguments = (case.diff_dst, case.src, case.scale)
    left = case.operator.backward_training(*arguments, workspace=workspace)
    again = case.operator.backward_training(*arguments, workspace=workspace, out=np.zeros(case.src.shape, dtype, "F"))
    for one, other in zip(left[:3], again[:3], strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
@pytest.mark.parametrize("layout, shape", [("NCHW", (3, 21, 6, 7)), ("NHWC", (3, 21, 6, 7)), ("nChw8c", (3, 21, 6, 7)),
                                           ("NCHW", (8, 8, 200, 150)), ("NHWC", (4, 96, 80, 70))], ids=str)  # fmt: skip
def test_diff_add_in_a_given_array(layout, shape, activation, training):
    """out_add= is written: an array in any memory order, or diff_dst, out= being src or an array of its own."""
    case = Case(shape, FLOAT32, layout, activation=activation)
    workspace, parameters = cynorm.Workspace(), (case.scale, case.shift)
    given = () if training else (case.parameter(), np.abs(case.parameter()))
    bn = case.operator
    (bn.forward_training if training else bn.forward_inference)(
        case.src, *given, *parameters, add=case.add, workspace=workspace
    )

    def backward(diff_dst, src, **out):
        method = bn.backward_training if training else bn.backward_inference
        return method(diff_dst, src, *given, case.scale, workspace=workspace, **out)

    expected = backward(case.diff_dst, case.src)
    reverse = np.zeros(case.src.shape, FLOAT32, "F")
    src, diff_dst, in_place = case.src.copy(), case.diff_dst.copy(), case.diff_dst.copy()
    for gradients, out_add in (
        (backward(case.diff_dst, case.src, out_add=reverse), reverse),
        (backward(diff_dst, src, out=src, out_add=diff_dst), diff_dst),
        (backward(in_place, case.src, out_add=in_place), in_place),
    ):
        assert gradients.diff_add is out_add
        for one, wanted in zip(gradients, expected, strict=True):
            assert_same_bits(one, wanted)


@pytest.mark.parametrize("blocks_last", [False, True])
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("shape", [(2, 2, 3, 5, 8), (5, 3, 40, 41, 16)], ids=str)
def test_padding_of_both_gradients_is_zero(shape, activation, blocks_last):
    """Whatever the padding of the inputs holds, and wherever blocks lie."""
    rng, channels = np.random.default_rng(0), shape[1] * shape[-1] - 3
    src, add, diff_dst, out, out_add = (np.empty(shape, np.float32) for _ in range(5))
    if blocks_last:
        src, add, diff_dst, out, out_add = (
            np.empty((shape[0], *shape[2:], shape[1]), np.float32).transpose(0, 4, 1, 2, 3) for _ in range(5)
        )
    for array in (src, add, diff_dst):
        array[...] = rng.standard_normal(shape)
        array[:, -1, ..., -3:] = np.nan
    for array in (out, out_add):
        array[...] = 7
    bn = cynorm.BatchNorm(layout=f"nChw{shape[-1]}c", channels=channels, activation=activation)
    workspace = cynorm.Workspace()
    bn.forward_training(src, add=add, workspace=workspace)
    gradients = bn.backward_training(diff_dst, src, workspace=workspace, out=out, out_add=out_add)
    for result in (gradients.diff_src, gradients.diff_add):
        assert not result[:, -1, ..., -3:].any()
        assert np.isfinite(result).all()


@pytest.mark.parametrize("step", [1, 3, -2])
@pytest.mark.parametrize("half_parameters", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NC", "nChw8c"])
@each_dtype
def test_statistics_and_their_gradients_in_given_arrays(layout, dtype, half_parameters, step):
    """out_mean= and its like are written: in any strides, in float32 or in the data's own dtype."""
    case = Case((3, 21, 6, 7)[: 2 + reference.spatial_ndim(layout)], dtype, layout)
    scale = case.scale.astype(dtype) if half_parameters else case.scale

    def target():
        buffer = np.full(70, 77, scale.dtype)
        return buffer[::step][:21], buffer

    expected = case.operator.forward_training(case.src, scale, case.shift)
    (mean, around_mean), (variance, around_variance) = target(), target()
    results = case.operator.forward_training(
        case.src, scale, case.shift, out_mean=mean, out_variance=variance
    )
    assert results[1] is mean and results[2] is variance
    assert_same_bits(results[0], expected[0])
    for got, wanted, around in zip(results[1:], expected[1:], (around_mean, around_variance), strict=True):
        assert_same_bits(take(got, around), wanted.astype(scale.dtype))
    statistics = {"mean": expected[1], "variance": expected[2]}
    for method in (case.operator.backward_training, case.operator.backward_inference):
        expected_gradients = method(case.diff_dst, case.src, scale=scale, **statistics)
        (diff_scale, around_scale), (diff_shift, around_shift) = target(), target()
        gradients = method(
            case.diff_dst, case.src, scale=scale, **statistics, out_scale=diff_scale, out_shift=diff_shift
        )
        assert gradients.diff_scale is diff_scale and gradients.diff_shift is diff_shift
        assert_same_bits(gradients.diff_src, expected_gradients.diff_src)
        assert_same_bits(take(diff_scale, around_scale), expected_gradients.diff_scale)
        assert_same_bits(take(diff_shift, around_shift), expected_gradients.diff_shift)


def test_one_call_forms_write_where_asked():
    src = random_values(np.random.default_rng(1), (2, 5, 3, 3), FLOAT32)
    mean, variance, diff_scale, diff_shift = np.empty((4, 5), np.float32)
    results = cynorm.batch_norm(src, out_mean=mean, out_variance=variance)
    assert results[1] is mean and results[2] is variance
    gradients = cynorm.batch_norm_backward(
        src, src, mean=mean, variance=variance, out_scale=diff_scale, out_shift=diff_shift
    )
    assert gradients.diff_scale is diff_scale and gradients.diff_shift is diff_shift
    expected = cynorm.batch_norm_backward(src, src, mean=mean, variance=variance)
    for got, wanted in zip(gradients[:3], expected[:3], strict=True):
        assert_same_bits(got, wanted)


ORDERS = [
    lambda array: array,
    np.asfortranarray,
    lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    lambda array: np.moveaxis(np.moveaxis(array, 1, -1).copy(), -1, 1),
    lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    lambda array: np.concatenate((array, array), 1)[:, : array.shape[1]],
]


@pytest.mark.parametrize("pair", list(itertools.product(range(len(ORDERS)), repeat=2)), ids=str)
def test_mixed_memory_orders(pair):
    case = Case((3, 18, 5, 6), FLOAT32, activation="relu")
    case.src = ORDERS[pair[0]](case.src)
    case.diff_dst = ORDERS[pair[1]](case.diff_dst)
    case.add = ORDERS[(pair[0] + pair[1]) % len(ORDERS)](case.add)
    check_training(case, add=True, relu=True)
    check_training(case, add=True, relu=True, out=ORDERS[pair[1]](np.zeros(case.shape, np.float32)))


@pytest.mark.parametrize("channels", [252, 256, 260, 384, 500, 512, 768])
@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
def test_mixed_memory_orders_of_many_channels(channels, activation, dtype):
    """What is packed at a time has fewer pixels, the more channels there are."""
    case = Case((2, channels, 9, 11), dtype, activation=activation)
    expected = inference(case, case.src, case.src, case.diff_dst, case.add, (None, None, None))
    last = ORDERS[3]
    outs = [last(np.zeros(case.shape, dtype)), np.zeros(case.shape, dtype), last(np.zeros(case.shape, dtype))]
    got = inference(case, case.src, case.src, last(case.diff_dst), last(case.add), outs)  # backward packs two of four
    for one, wanted in zip(got, expected, strict=True):
        assert_same_bits(one, wanted)
    case.diff_dst = last(case.diff_dst)
    if activation != "tanh":
        check_training(case, add=True, relu=activation == "relu", out=outs[0])


def inference(case, src, again, diff_dst, add, outs):
    """dst, diff_src and diff_add of a case in the memory given; `again` is src as backward sees it."""
    workspace, dtype = cynorm.Workspace(), reference.compute_dtype(case.dtype)
    statistics = (
        np.linspace(-1, 1, case.scale.size).reshape(case.scale.shape).astype(dtype),
        np.linspace(0.1, 3, case.scale.size).reshape(case.scale.shape).astype(dtype),
    )
    dst = case.operator.forward_inference(
        src, *statistics, case.scale, case.shift, add=add, out=outs[0], workspace=workspace
    )
    if case.dtype == np.int8:
        return (dst,)
    gradients = case.operator.backward_inference(
        diff_dst, again, *statistics, case.scale, workspace=workspace, out=outs[1], out_add=outs[2]
    )
    return dst, gradients.diff_src, gradients.diff_add


@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
@pytest.mark.parametrize("dtype", [*reference.DTYPES, np.dtype(np.int8)], ids=str)
@given(gapped_problems(4))
def test_rows_with_gaps_give_the_same_bits(dtype, activation, problem):
    """Slices, whatever rows they leave: of each array in its own way, or of all alike."""
    shape, axes, memories = problem
    case = Case(shape, dtype if dtype != np.int8 else FLOAT32, axes=axes, activation=activation)
    case.dtype = dtype
    dense = [(array * (20 if dtype == np.int8 else 1)).astype(dtype) for array in (case.src, case.diff_dst, case.add)]
    expected = inference(case, dense[0], *dense, (None, None, None))
    src, diff_dst, add = (place(array, memory)[0] for array, memory in zip(dense, memories, strict=False))
    outs, rooms = zip(*(place(np.zeros(shape, dtype), memories[i % 4]) for i in (3, 1, 4)), strict=True)
    got = inference(case, src, src, diff_dst, add, outs)
    for one, room, wanted in zip(got, rooms, expected, strict=False):
        assert_same_bits(take(one, room), wanted)


@each_dtype
@given(gapped_problems(4), st.booleans())
def test_rows_with_gaps_in_training(dtype, problem, relu):
    shape, axes, memories = problem
    case = Case(shape, dtype, axes=axes, activation="relu" if relu else None)
    case.src, case.diff_dst, case.add = (
        place(array, memory)[0] for array, memory in zip((case.src, case.diff_dst, case.add), memories, strict=False)
    )
    check_training(case, add=relu, relu=relu, out=place(np.zeros(shape, dtype), memories[3])[0])


@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
@pytest.mark.parametrize("dtype", [*reference.DTYPES, np.dtype(np.int8)], ids=str)
@given(shapes_to_transpose(), st.lists(orders(4), min_size=7, max_size=7))
def test_any_mixture_of_orders_gives_the_same_bits(dtype, activation, shape, memories):
    """All arrays each in its own order, and src in another for backward, as in calls on dense arrays."""
    case = Case(shape, dtype if dtype != np.int8 else FLOAT32, activation=activation)
    case.dtype = dtype
    dense = [
        (array * (20 if dtype == np.int8 else 1)).astype(dtype)
        for array in (case.src, case.diff_dst, case.add)
    ]
    expected = inference(case, dense[0], *dense, (None, None, None))
    arrays = (dense[0], *dense, *(np.zeros(shape, dtype) for _ in range(3)))
    views, rooms = zip(*map(place, arrays, memories), strict=True)
    results = inference(case, *views[:4], views[4:])
    for got, room, wanted in zip(results, rooms[4:], expected, strict=False):
        assert_same_bits(take(got, room), wanted)


@given(shapes_to_transpose(), st.lists(orders(4), min_size=4, max_size=4), st.booleans())
def test_any_mixture_of_orders_in_training(shape, memories, relu):
    case = Case(shape, FLOAT32, activation="relu" if relu else None)
    arrays = (case.src, case.diff_dst, case.add, np.zeros(shape, np.float32))
    views, rooms = zip(*map(place, arrays, memories), strict=True)
    case.src, case.diff_dst, case.add, out = views
    check_training(case, add=True, relu=relu, out=out)
    take(out, rooms[3])


@pytest.mark.parametrize("shape", [(16,), (1, 2, 1, 1, 8)], ids=str)
@each_dtype
def test_statistics_of_padding_are_zero(shape, dtype):
    """Whatever the padding holds; what belongs to channels is as ever."""
    case = Case((2, 13, 3, 5), dtype, "nChw8c")
    computed = reference.compute_dtype(dtype)

    def padded():
        return np.full(shape, np.nan, computed)

    def spread(parameter):
        whole = padded()
        whole.reshape(-1)[:13] = parameter
        return whole

    def check(got, expected):
        assert got.shape == shape
        assert_same_bits(got.reshape(-1)[:13], expected)
        assert (got.reshape(-1)[13:] == 0).all()

    running = np.ones((2, 13), computed)
    wide_running = spread(running[0]), spread(running[1])
    expected = case.operator.forward_training(
        case.src, case.scale, case.shift, running_mean=running[0], running_variance=running[1]
    )
    results = case.operator.forward_training(
        case.src, spread(case.scale), spread(case.shift), out_mean=padded(), out_variance=padded(),
        running_mean=wide_running[0], running_variance=wide_running[1],
    )  # fmt: skip
    assert_same_bits(results[0], expected[0])
    for got, wanted in zip((*results[1:], *wide_running), (*expected[1:], *running), strict=True):
        check(got, wanted)
    expected = case.operator.backward_training(
        case.diff_dst, case.src, case.scale, mean=expected[1], variance=expected[2]
    )
    gradients = case.operator.backward_training(
        case.diff_dst, case.src, spread(case.scale), mean=results[1], variance=results[2]
    )
    assert_same_bits(gradients.diff_src, expected.diff_src)
    check(gradients.diff_scale, expected.diff_scale)
    check(gradients.diff_shift, expected.diff_shift)


@each_dtype
def test_every_length_of_several_rows(dtype):
    """Rows of several blocks, whose elements have a statistic each: they may fill the vectors of their sums, or not."""
    for blocks, extent in itertools.product((2, 3, 5), (*range(1, 18), 23, 31, 32, 33)):
        case = Case((3, blocks, extent), dtype, axes=(0,))
        case.src = np.concatenate((case.src, case.src), axis=2)[:, :, :extent]  # so that blocks do not follow on
        for order in itertools.permutations(range(3)):
            out = np.zeros([case.shape[axis] for axis in order], dtype).transpose(np.argsort(order))
            check_training(case, out=out)


@each_dtype
def test_tasks_of_several_blocks(dtype):
    """The last task along an axis of short blocks may have fewer of them than the others."""
    cases = [
        Case((2, 16 * 107 - 5, 3), dtype, "nCw16c"),
        Case((5, 71, 3, 16), dtype, axes=(0, 2)),
        Case((3, 45, 2, 71, 2, 5), dtype, axes=(0, 2, 4)),
    ]
    for case in cases:
        check_training(case, add=True, num_threads=2)
        check_inference(case, add=True)


@each_dtype
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize(
    "shape",
    [(16, 3, 2), (33, 7, 2, 2), (40, 130, 3, 3), (64, 5, 5, 5), (17, 40, 8, 4), (130, 3, 7, 7), (70, 1100, 2, 2), (200, 19, 2, 1, 3)],
    ids=str,
)
def test_small_planes(shape, dtype, relu):
    """Many planes of few pixels are worked on as rows of all channels, whole and sliced."""
    layout = {3: "NCW", 4: "NCHW", 5: "NCDHW"}[len(shape)]
    case = Case(shape, dtype, layout, activation="relu" if relu else None)
    check_training(case, add=True, relu=relu, num_threads=2)
    check_inference(case, add=True, relu=relu)
    case = Case(shape, dtype, layout)
    wider = Case((shape[0], shape[1] + 3, *shape[2:]), dtype, layout)
    case.src, case.diff_dst = wider.src[:, 2:-1], wider.diff_dst[:, 2:-1]
    check_training(case)
    check_inference(case)


# Of (N, blocks, channels of a block, H, W): channels first, last, in blocks.
BLOCK_ORDERS = [(0, 1, 2, 3, 4), (0, 3, 4, 1, 2), (0, 1, 3, 4, 2)]


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("memories", list(itertools.product(BLOCK_ORDERS, repeat=3)), ids=str)
def test_mixed_blocks(memories, activation):
    """Blocks of channels beside plain orders: several slabs a plane, blocks that fill no vector or no tile."""
    for shape, dtype in (
        ((2, 5, 8, 29, 31), FLOAT32),
        ((1, 67, 16, 6, 7), np.dtype(np.float16)),
        ((1, 68, 8, 3, 7), np.dtype(np.float64)),
    ):
        case = Case(shape, dtype, axes=(0, 3, 4), activation=activation)
        places = [Memory(order, (1,) * 5) for order in memories]
        out, room = place(np.zeros(shape, dtype), places[2])
        case.src, case.diff_dst, case.add = (
            place(array, memory)[0]
            for array, memory in zip((case.src, case.diff_dst, case.add), places, strict=True)
        )
        check_training(case, add=True, relu=activation == "relu", out=out)
        take(out, room)


def close_to_dense(bn, src, diff_dst, **out):
    """Training of src gives about what its contiguous copy does: sums may be in another order."""
    results = []
    for x in (src, np.ascontiguousarray(src)):
        workspace = cynorm.Workspace()
        forward = bn.forward_training(x, workspace=workspace, **out)
        results.append((*forward, *bn.backward_training(diff_dst, x, workspace=workspace)[:3]))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("strides", [(400, 8, 2, 40, 1), (400, 8, 3, 1, 1), (320, 8, 2, 0, 1)], ids=str)
def test_blocks_that_follow_on_in_overlapping_memory(strides):
    """Blocks follow on in src, which repeats elements, though not in the mask."""
    rng, shape = np.random.default_rng(0), (4, 4, 3, 5, 8)
    memory = rng.standard_normal(4000).astype(np.float32)
    src = np.lib.stride_tricks.as_strided(memory, shape, [4 * stride for stride in strides])
    bn = cynorm.BatchNorm(layout="nChw8c", activation="relu")
    close_to_dense(bn, src, rng.standard_normal(shape).astype(np.float32), out=np.empty(shape, np.float32))


def test_short_rows_with_gaps_beside_blocks():
    """Planes with gaps, seen in blocks, into blocks of memory: rows of blocks are no kept ones."""
    plain = np.random.default_rng(0).standard_normal((2, 16, 70, 20)).astype(np.float32)[..., :16]
    n, c, h, w = plain.strides
    src = np.lib.stride_tricks.as_strided(plain, (2, 2, 70, 16, 8), (n, 8 * c, h, w, c))
    close_to_dense(cynorm.BatchNorm(layout="nChw8c"), src, src, out=np.empty(src.shape, np.float32))


def test_rows_with_gaps_past_the_cache():
    """Images whose rows have gaps are several tiles of each channel."""
    src = np.random.default_rng(0).standard_normal((16, 64, 8, 604)).astype(np.float32)[..., :600]
    close_to_dense(cynorm.BatchNorm(), src, src)


@functools.lru_cache(maxsize=1)
def inference_of_blocks(isa, dtype, activation, block):
    """A case past the cache and what `isa` makes of it in the layout's own order, once for all other orders."""
    case = Case((2, 464 // block, block, 83, 87), dtype, axes=(0, 3, 4), activation=activation)
    given = np.zeros(case.kept, reference.compute_dtype(dtype)), case.scale**2, case.scale, case.shift
    return case, given, case.operator.forward_inference(case.src, *given)


@pytest.mark.parametrize("memories", list(itertools.permutations(BLOCK_ORDERS, 2)), ids=str)
@each_dtype
@pytest.mark.parametrize(("activation", "block"), [(None, 16), (None, 8), ("tanh", 16)])
def test_mixed_blocks_past_the_cache(dtype, memories, activation, block, isa):
    case, given, expected = inference_of_blocks(isa, dtype, activation, block)
    src, _ = place(case.src, Memory(memories[0], (1,) * 5))
    out, room = place(np.zeros(case.shape, dtype), Memory(memories[1], (1,) * 5, offset=3, slack=1))
    for threads in (1, 2):
        case.operator.forward_inference(src, *given, out=out, num_threads=threads)
        assert_same_bits(take(out, room), expected)


@each_dtype
@pytest.mark.parametrize("last", [False, True], ids=["from channels first", "from channels last"])
def test_transposed_past_the_cache(dtype, last):
    """In so large a tensor, results that are transposed on their way out bypass the cache by whole lines."""
    axes = (0, 2, 3, 1), (0, 1, 2, 3)
    case = Case((3, 53, 203, 211), dtype)
    dense = case.src, case.diff_dst, case.add
    expected = inference(case, dense[0], *dense, (None, None, None))
    src, diff_dst, add = (place(array, Memory(axes[not last], (1,) * 4))[0] for array in dense)
    memory = Memory(axes[last], (1,) * 4, offset=3, slack=1)
    outs, rooms = zip(*(place(np.zeros(case.shape, dtype), memory) for _ in range(3)), strict=True)
    for got, room, wanted in zip(
        inference(case, src, src, diff_dst, add, outs), rooms, expected, strict=True
    ):
        assert_same_bits(take(got, room), wanted)


@pytest.mark.parametrize(
    "shape, order",
    [
        *(((1_060_000 // groups, groups, 3), (0, 2, 1)) for groups in (22, 42, 43, 44)),
        *(((8, groups, 600), (2, 1, 0)) for groups in (660, 661, 662)),
    ],
    ids=str,
)
def test_slabs_of_several_groups_past_the_cache(shape, order, isa):
    """What one slab leaves of a line is put there by the next, even if that has one group left."""
    case = Case(shape, FLOAT32, axes=(1, 2))
    dense = case.src, case.diff_dst, case.add
    expected = inference(case, dense[0], *dense, (None, None, None))
    outs, rooms = zip(*(place(np.zeros(shape, np.float32), Memory(order, (1,) * 3)) for _ in range(3)), strict=True)
    for got, room, wanted in zip(inference(case, dense[0], *dense, outs), rooms, expected, strict=True):
        assert_same_bits(take(got, room), wanted)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_output_takes_the_memory_order_of_src(order):
    shape = (3, 5, 4, 6)
    dense = np.zeros([shape[axis] for axis in order], np.float32).transpose(np.argsort(order))
    bn, ones = cynorm.BatchNorm(), np.ones(5, np.float32)
    assert bn.forward_training(dense)[0].strides == dense.strides
    assert bn.forward_inference(dense, ones, ones).strides == dense.strides
    diff_dst = np.zeros(shape, np.float32)
    assert bn.backward_inference(diff_dst, dense, ones, ones).diff_src.strides == dense.strides


def test_large_outputs_begin_with_a_cache_line():
    dense = np.ones((8, 64, 56, 56), np.float32)
    for src in (dense, dense.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2), dense[:, ::-1, :, ::2]):
        dst = cynorm.BatchNorm().forward_training(src)[0]
        assert dst.ctypes.data % 64 == 0
        assert dst.strides == np.empty_like(src).strides


# ------------------------------------------------------------------------------------------------------------
# Values at the edge


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw16c"])
@each_dtype
def test_mean_far_from_zero(layout, dtype):
    """mean / std = 1e6 in float32 (what the type can hold in others): statistics and results stay exact."""
    ratio = {2: 100, 4: 1e6, 8: 1e3}[
        dtype.itemsize
    ]  # in float64, what the oracle's extended precision resolves
    case = Case((8, 21, 16, 17), dtype, layout, epsilon=1e-12)
    noise = random_values(case.rng, case.shape, np.dtype(np.float64))
    case.src = from_canonical((ratio + noise).astype(dtype), layout, padding=np.nan)
    check_training(case)


@given(
    seed=st.integers(0, 2**32 - 1),
    ratio=st.floats(6, 12).map(lambda exponent: 10**exponent),
    deviation=st.sampled_from([1e-100, 1e-3, 1.0, 7.7e5]),
    shape=st.tuples(*(st.integers(1, most) for most in (5, 3, 9, 40))),
    layout=st.sampled_from(["NCHW", "NHWC", "nChw8c"]),
)
def test_float64_statistics_are_exact(seed, ratio, deviation, shape, layout):
    """At mean / std of 1e6 to 1e12 too, float64 statistics are within 2 ulp of those of exact rationals."""
    rng = np.random.default_rng(seed)
    src = deviation * (rng.choice([-ratio, ratio], (1, shape[1], 1, 1)) + rng.standard_normal(shape))
    bn = cynorm.BatchNorm(layout=layout, channels=shape[1])
    _, mean, variance = bn.forward_training(from_canonical(src, layout))
    for channel in range(shape[1]):
        values = [Fraction(value) for value in src[:, channel].ravel().tolist()]
        exact_mean = sum(values) / len(values)
        exact_variance = sum((value - exact_mean) ** 2 for value in values) / len(values)
        for got, exact in ((mean, exact_mean), (variance, exact_variance)):
            error = abs(Fraction(got[channel].item()) - exact)
            assert error <= 2 * Fraction(np.spacing(abs(float(exact))).item())


@pytest.mark.parametrize("at", [(0, 0), (512, 512), (-1, -1)], ids=str)
def test_one_element_far_from_all_others(at):
    """It is no pivot: over a million elements, too few digits of the variance of the others would be left."""
    constant = np.random.default_rng(1).uniform(1, 2, 16).astype(np.float32)
    src = np.empty((1, 16, 1024, 1024), np.float32)
    src[...] = constant[:, None, None]
    src[..., at[0], at[1]] = 0
    _, mean, variance = cynorm.BatchNorm().forward_training(src, out=src)
    each = 1 / 1024**2
    for got, exact in (mean, constant * (1 - each)), (variance, constant.astype(np.float64) ** 2 * each * (1 - each)):
        assert (abs(got - exact) <= 2 * ulp(exact, FLOAT32)).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw16c"])
@each_dtype
@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1, -3.3333, 1e-20, 0.0])
def test_constant_channels(layout, dtype, value):
    """The variance of a constant is exactly 0, its mean the constant, and dst exactly shift."""
    if dtype == np.float16 and value > 65504:
        value = 60000
    for shape in ((7, 21, 5, 11), (1, 21, 1, 3), (1, 21, 1, 1), (3, 21, 100, 101)):
        case = Case(shape, dtype, layout)
        case.src = from_canonical(np.full(shape, value, dtype), layout, padding=np.nan)
        dst, mean, variance = case.operator.forward_training(case.src, case.scale, case.shift)
        assert (variance == 0).all()
        assert (mean == wide(np.array(value, dtype))).all()
        shift = np.broadcast_to(case.keep(case.shift, 0), shape).astype(dtype)
        np.testing.assert_array_equal(case.canonical(dst), shift)


@each_dtype
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_gradients_of_a_large_constant(layout, dtype):
    """What the last vector of a row lacks is no term, however large mean and 1 / deviation are."""
    large, epsilon = (1e18, 1e-44) if dtype != np.float16 else (6e4, 1e-70)
    case = Case((2, 3, 5, 7), dtype, layout, epsilon=epsilon)
    case.src[...] = large
    mean = np.full(3, case.src.flat[0], reference.compute_dtype(dtype))
    gradients = case.operator.backward_training(case.diff_dst, case.src, mean=mean, variance=np.zeros_like(mean))
    assert (gradients.diff_scale == 0).all()
    assert not np.isnan(wide(gradients.diff_src)).any()


@each_dtype
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c"])
def test_gradients_of_an_infinite_variance(layout, dtype):
    """1 / deviation is 0, and so are the gradients that it is a factor of."""
    case = Case((2, 8, 5, 7), dtype, layout)
    mean = np.zeros(8, reference.compute_dtype(dtype))
    for backward in (case.operator.backward_training, case.operator.backward_inference):
        gradients = backward(case.diff_dst, case.src, mean=mean, variance=np.full_like(mean, np.inf))
        assert (wide(gradients.diff_scale) == 0).all()
        assert (wide(gradients.diff_src) == 0).all()


@each_dtype
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_infinite_gain(layout, dtype):
    """Where deviation and epsilon are 0, what differs from the mean is infinite, and only what does not is NaN."""
    case = Case((2, 8, 5, 7), dtype, layout, epsilon=0.0)
    mean = np.zeros(8, reference.compute_dtype(dtype))
    case.src.flat[3] = 0
    dst = wide(case.operator.forward_inference(case.src, mean, mean, shift=mean))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(dst, wide(case.src) * np.inf)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c"])
@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_variance_beyond_float32(size, layout):
    """Float32 has no room for it, but the result has."""
    case = Case((4, 9, 5, 7), FLOAT32, layout, epsilon=0.0)
    case.src = case.src * np.float32(size)
    workspace = cynorm.Workspace()
    dst, mean, variance = case.operator.forward_training(case.src, case.scale, case.shift, workspace=workspace)
    statistics = reference.batch_norm_statistics(case.canonical(case.src), case.axes)
    assert (variance == (0 if size < 1 else np.inf)).all()
    assert_within(case.keep(mean, 0), statistics[0], 2 * ulp(statistics[0], FLOAT32))
    assert_dst(case, dst, *statistics, case.scale, case.shift, None, False)
    if size > 1:
        gradients = case.operator.backward_training(case.diff_dst, case.src, case.scale, workspace=workspace)
        assert_gradients(case, gradients, *statistics, case.scale)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c"])
def test_squares_beyond_float64(layout):
    """The variance is infinite, and NaN only where the mean is no number either."""
    case = Case((2, 8, 5, 7), np.dtype(np.float64), layout)
    case.src[:, :, :3] *= 1e200
    dst, mean, variance = case.operator.forward_training(case.src, case.scale, case.shift)
    assert np.isfinite(mean).all() and (variance == np.inf).all()
    assert (case.canonical(dst) == case.keep(case.shift, 0)).all()


@pytest.mark.parametrize("dtype", reference.DTYPES[:2], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c"])
def test_infinite_gradient(layout, dtype):
    """It makes an infinity of its channel's sums."""
    case = Case((2, 8, 5, 7), dtype, layout)
    spoilt = case.canonical(case.diff_dst).copy()
    spoilt[1, 3, 2, 5] = np.inf
    _, mean, variance = case.operator.forward_training(case.src)
    gradients = case.operator.backward_training(
        from_canonical(spoilt, layout), case.src, mean=mean, variance=variance
    )
    xhat = case.canonical(case.src)[1, 3, 2, 5] - mean[3]
    assert gradients.diff_shift[3] == np.inf and gradients.diff_scale[3] == np.copysign(np.inf, xhat)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c"])
def test_gradients_of_a_huge_epsilon(layout, dtype):
    case = Case((2, 8, 5, 7), dtype, layout, epsilon=1e80)
    _, mean, variance = case.operator.forward_training(case.src)
    statistics = reference.batch_norm_statistics(case.canonical(case.src), case.axes)
    gradients = case.operator.backward_training(case.diff_dst, case.src, case.scale, mean=mean, variance=variance)
    assert_gradients(case, gradients, *statistics, case.scale)


def test_huge_values():
    """Squares that fit float32 overflow no sum."""
    for layout in ("NCHW", "NHWC"):
        case = Case((8, 21, 16, 17), FLOAT32, layout)
        case.src = case.src * np.float32(1e18)
        check_training(case)


def test_subnormal_values():
    case = Case((2, 8, 16, 17), FLOAT32, epsilon=1.0)
    case.src = np.full_like(case.src, 1e-40)
    dst, mean, _ = case.operator.forward_training(case.src)
    assert (mean == case.src[0, 0, 0, 0]).all() and (dst == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c"])
def test_special_values_stay_in_their_channel(value, layout):
    """A NaN or an infinity spoils its own channel, and no bit of another."""
    case = Case((3, 40, 5, 6), FLOAT32, layout)
    clean = case.operator.forward_training(case.src, case.scale, case.shift)
    clean_gradients = case.operator.backward_training(
        case.diff_dst, case.src, case.scale, mean=clean[1], variance=clean[2]
    )
    spoilt = case.canonical(case.src).copy()
    spoilt[1, 17, 2, 3] = value
    spoilt = from_canonical(spoilt, layout)
    results = case.operator.forward_training(spoilt, case.scale, case.shift)
    others = np.arange(40) != 17
    assert np.isnan(results[1][17]) or np.isinf(results[1][17])
    for one, other in zip(results[1:], clean[1:], strict=True):
        assert_same_bits(one[others], other[others])
    assert_same_bits(case.canonical(results[0])[:, others], case.canonical(clean[0])[:, others])
    assert np.isnan(case.canonical(results[0])[1, 17, 2, 3])
    spoilt = case.canonical(case.diff_dst).copy()
    spoilt[1, 17, 2, 3] = value
    gradients = case.operator.backward_training(
        from_canonical(spoilt, layout), case.src, case.scale, mean=clean[1], variance=clean[2]
    )
    diff_src, clean_diff = case.canonical(gradients.diff_src), case.canonical(clean_gradients.diff_src)
    assert_same_bits(diff_src[:, others], clean_diff[:, others])
    assert not np.isfinite(diff_src[:, 17]).any()
    for one, other in zip(gradients[1:3], clean_gradients[1:3], strict=True):
        assert_same_bits(one[others], other[others])
    centred = case.canonical(case.src)[1, 17, 2, 3] - clean[1][17]
    np.testing.assert_array_equal(gradients.diff_shift[17], value)
    np.testing.assert_array_equal(gradients.diff_scale[17], value * centred)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw16c"])
@pytest.mark.parametrize("channels", [1, 5, 16, 31, 32, 33, 48, 63, 64, 65, 95, 97, 130, 200])
def test_half_channels_around_whole_vectors(dtype, layout, channels):
    """Where even and odd elements are taken apart, each meets its own channel, before and after the last whole line."""
    for relu in (False, True):
        case = Case((3, channels, 3, 11), dtype, layout, activation="relu" if relu else None)
        check_training(case, add=relu, relu=relu)
        check_inference(case, add=relu, relu=relu)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layout", ["nChw8c", "nChw16c"])
@pytest.mark.parametrize("apart", [False, True], ids=["", "add apart"])
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
def test_blocks_of_an_odd_number_of_pixels(dtype, layout, apart, relu):
    """Pixels of a block are taken two at a time, as far as they follow on in memory, and a last one alone."""
    case = Case((3, 40, 9, 21), dtype, layout, activation="relu" if relu else None)
    if apart:
        case.add = np.repeat(case.add, 2, axis=-2)[..., ::2, :]
    check_training(case, add=True, relu=relu)
    check_inference(case, add=True, relu=relu)


@each_dtype
@pytest.mark.parametrize("rows", [5, 100, 150])
@pytest.mark.parametrize("channels", [257, 1000, 1100, 1536, 2500, 4200])
def test_wide_rows(dtype, channels, rows):
    """Rows that are taken in pieces, and by columns in groups of rows; where they are few, threads share their columns."""
    case = Case((rows, channels), dtype, "NC", activation="relu")
    check_training(case, add=True, relu=True, num_threads=2)
    check_inference(case, add=True, relu=True)


@each_dtype
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("shape", [(7, 2500), (61, 60)], ids=["wide", "short"])
def test_rows_past_the_cache(shape, dtype, relu):
    """Wide rows, taken whole there, and short ones, of which fewer are staged, have the bits of those in the cache."""
    case = Case(shape, dtype, "NC", activation="relu" if relu else None)
    statistics = case.operator.forward_training(case.src, case.scale, case.shift)[1:]
    expected_workspace, workspace = cynorm.Workspace(), cynorm.Workspace()
    expected = case.operator.forward_inference(
        case.src, *statistics, case.scale, case.shift, add=case.add, workspace=expected_workspace
    )
    expected_diff = case.operator.backward_inference(
        case.diff_dst, case.src, *statistics, case.scale, workspace=expected_workspace
    ).diff_src
    times = 2**24 // case.src.nbytes
    src, add, diff_dst = (np.tile(array, (times, 1)) for array in (case.src, case.add, case.diff_dst))
    dst = case.operator.forward_inference(
        src, *statistics, case.scale, case.shift, add=add, workspace=workspace, num_threads=2
    )
    gradients = case.operator.backward_inference(
        diff_dst, src, *statistics, case.scale, workspace=workspace, num_threads=2
    )
    for array, part in ((dst, expected), (gradients.diff_src, expected_diff)):
        for rows in array.reshape(times, *part.shape):
            assert_same_bits(rows, part)


@pytest.mark.parametrize("dtype", [dtype for dtype in reference.DTYPES if dtype != np.float16], ids=str)
@pytest.mark.parametrize("layout, channels, plane, relu", [
    ("NHWC", 256, (8, 13), False), ("NHWC", 64, (9, 11), True), ("NHWC", 16, (9, 7), True), ("NHWC", 1024, (5, 7), True),
    ("NHWC", 100, (8, 8), False), ("NCHW", 21, (64, 56), True), ("NCHW", 6, (55, 61), False), ("NCHW", 40, (13, 13), True),
    ("nChw16c", 48, (12, 13), True), ("nChw8c", 24, (12, 16), False),
])  # fmt: skip
def test_results_that_begin_anywhere_past_the_cache(layout, channels, plane, relu, dtype):
    """They leave by whole lines there, whichever element of a line they begin at, and nothing beside them is written."""
    images = math.ceil(26e6 / (2 * dtype.itemsize * channels * math.prod(plane)))
    case = Case((images, channels, *plane), dtype, layout, activation="relu" if relu else None)
    add = {"add": case.add} if relu else {}
    workspace = cynorm.Workspace()
    expected = case.operator.forward_training(case.src, case.scale, case.shift, **add, workspace=workspace)
    gradients = case.operator.backward_training(case.diff_dst, case.src, case.scale, workspace=workspace)
    statistics = expected[1:]
    inference = case.operator.forward_inference(case.src, *statistics, case.scale, case.shift, **add)
    for begin in 4, 8, 13:
        rooms = [np.full(case.src.size + 64, 7, dtype) for _ in range(2)]
        out, out_add = (room[begin : begin + case.src.size].reshape(case.src.shape) for room in rooms)
        case.operator.forward_inference(case.src, *statistics, case.scale, case.shift, **add, out=out, num_threads=2)
        assert_same_bits(out, inference, "inference")
        if relu:  # the bits of a call before it, all set, are not this one's
            case.operator.forward_training(case.src, case.scale, case.shift + dtype.type(99), workspace=workspace)
        case.operator.forward_training(case.src, case.scale, case.shift, **add, out=out, workspace=workspace)
        assert_same_bits(out, expected[0], "dst")
        outputs = {"out": out, **({"out_add": out_add} if relu else {})}
        case.operator.backward_training(case.diff_dst, case.src, case.scale, workspace=workspace, **outputs)
        assert_same_bits(out, gradients.diff_src, "diff_src")
        if relu:
            assert_same_bits(out_add, gradients.diff_add, "diff_add")
        for room in rooms:
            assert (room[:begin] == 7).all() and (room[begin + out.size :] == 7).all()


@each_dtype
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
def test_channels_that_are_summed_while_others_leave(relu, dtype):
    """Past the cache they have the bits that they have in place, where they are not summed so, and on any number of threads."""
    plane, channels = (41, 53), 45
    images = math.ceil(26e6 / (2 * dtype.itemsize * channels * math.prod(plane)))
    case = Case((images, channels, *plane), dtype, activation="relu" if relu else None)
    add = {"add": case.add} if relu else {}
    workspace, dst, diff_src = cynorm.Workspace(), case.src.copy(), case.diff_dst.copy()
    _, *statistics = case.operator.forward_training(
        dst, case.scale, case.shift, **add, out=dst, workspace=workspace
    )
    _, *gradients = case.operator.backward_training(diff_src, case.src, case.scale, workspace=workspace, out=diff_src)
    for threads in 1, 2, 3:
        got = case.operator.forward_training(
            case.src, case.scale, case.shift, **add, workspace=workspace, num_threads=threads
        )
        for array, wanted in zip(got, (dst, *statistics), strict=True):
            assert_same_bits(array, wanted)
        got = case.operator.backward_training(
            case.diff_dst, case.src, case.scale, workspace=workspace, num_threads=threads
        )
        for array, wanted in zip(got[: 3 + relu], (diff_src, *gradients[: 2 + relu]), strict=True):
            assert_same_bits(array, wanted)


@each_dtype
@pytest.mark.parametrize("cut_by, plane", [("mask", 1025), ("mask", 3073), ("out_add", 16384)])
def test_pieces_shorter_than_what_is_before_a_line_past_the_cache(cut_by, plane, dtype):
    """Rows that are cut where not all that is made of them can leave as it is made: the last piece has one element."""
    if cut_by == "out_add":
        plane = plane // dtype.itemsize + 1
    images, channels = math.ceil(26e6 / (2 * dtype.itemsize * 21 * plane)), 21
    case = Case((images, channels, 1, plane), dtype, activation="relu")
    statistics = case.parameter(), np.abs(case.parameter())
    src, workspace = case.src, cynorm.Workspace()
    if cut_by == "mask":  # whose bits lie in the order of the other src
        src, _ = place(case.src, Memory((0, 2, 3, 1), (1,) * 4))
    case.operator.forward_inference(src, *statistics, case.scale, case.shift, add=case.add, workspace=workspace)
    backward = functools.partial(
        case.operator.backward_inference, case.diff_dst, case.src, *statistics, case.scale, workspace=workspace
    )
    expected = backward()
    room = np.full(case.src.size + 64, 7, dtype)
    out = room[5 : 5 + case.src.size].reshape(case.src.shape)
    room_of_add = np.full(case.src.nbytes + 2, 7, np.uint8)
    out_add = np.ndarray(case.src.shape, dtype, room_of_add, 1)  # between elements
    backward(out=out, out_add=out_add)
    assert_same_bits(out, expected.diff_src)
    assert_same_bits(out_add.copy(), expected.diff_add)
    assert (room[:5] == 7).all() and (room[5 + out.size :] == 7).all()
    assert room_of_add[0] == room_of_add[-1] == 7


@each_dtype
@pytest.mark.parametrize("channels", [8, 16, 32, 64])
def test_images_that_begin_anywhere_past_the_cache(channels, dtype):
    """Images that are no whole number of lines apart, the rows of each following one another."""
    pixels = 61
    images = math.ceil(26e6 / (2 * dtype.itemsize * channels * pixels))
    case = Case((images, channels, pixels), dtype, "NWC")
    statistics = case.parameter(), np.abs(case.parameter())
    expected = case.operator.forward_inference(case.src, *statistics, case.scale, case.shift)
    gradients = case.operator.backward_inference(case.diff_dst, case.src, *statistics, case.scale)
    for gap in 4, 9:
        room = np.full((images, pixels * channels + gap), 7, dtype)
        strides = (room.strides[0], channels * dtype.itemsize, dtype.itemsize)
        out = np.lib.stride_tricks.as_strided(room, (images, pixels, channels), strides)
        case.operator.forward_inference(case.src, *statistics, case.scale, case.shift, out=out)
        assert_same_bits(out, expected, "dst")
        case.operator.backward_inference(case.diff_dst, case.src, *statistics, case.scale, out=out)
        assert_same_bits(out, gradients.diff_src, "diff_src")
        assert (room[:, pixels * channels :] == 7).all()


@pytest.mark.parametrize("channels", [48, 64, 256])
@each_dtype
def test_channels_last_that_begin_anywhere_in_the_cache(channels, dtype, isa):
    """Result, mask and gradient have the same bits at every place in a line, and nothing beside them is written."""
    bn = cynorm.BatchNorm(layout="NHWC", activation="relu")
    shape = (2, 24, 37, channels)
    rng = np.random.default_rng(0)
    dense = [random_values(rng, shape, dtype) for _ in range(3)]
    expected = None
    for offset in range(64 // dtype.itemsize):
        memory = Memory((0, 1, 2, 3), (1,) * 4, offset=offset)
        (src, _), (diff_dst, _), (add, _), (out, room) = (place(a, memory) for a in (*dense, np.zeros(shape, dtype)))
        workspace = cynorm.Workspace()
        _, mean, variance = bn.forward_training(src, add=add, out=out, workspace=workspace, num_threads=2)
        results = [take(out, room).copy()]
        results.append(bn.backward_training(diff_dst, src, workspace=workspace)[0])
        bn.forward_inference(src, mean, variance, out=out, num_threads=1)
        results.append(take(out, room).copy())
        expected = expected or results
        for got, wanted in zip(results, expected, strict=True):
            assert_same_bits(got, wanted)


@each_dtype
@pytest.mark.parametrize("image_gap, block_gap", [(0, 2), (2, 0), (0, 12), (64, 20)])
def test_blocks_that_begin_anywhere_past_the_cache(image_gap, block_gap, dtype):
    """Blocks of channels, and images, any number of bytes apart."""
    pixels, row = 61, 16 * dtype.itemsize
    images = math.ceil(26e6 / (2 * 4 * row * pixels))
    case = Case((images, 64, pixels), dtype, "nCw16c")
    statistics = case.parameter(), np.abs(case.parameter())
    expected = case.operator.forward_inference(case.src, *statistics, case.scale, case.shift, add=case.add)
    block = pixels * row + block_gap
    image = 4 * block + image_gap
    room = np.full(images * image + 64, 7, np.uint8)
    begin = -room.ctypes.data % 64
    out = np.ndarray(expected.shape, dtype, room, begin, (image, block, row, dtype.itemsize))
    rows = case.src.swapaxes(1, 2).copy().swapaxes(1, 2)  # of all channels, which are packed, several blocks at a time
    for src in case.src, rows:
        case.operator.forward_inference(src, *statistics, case.scale, case.shift, add=case.add, out=out)
        assert_same_bits(out, expected, "dst")
    out[...] = 0
    assert np.count_nonzero(room == 7) == room.size - out.nbytes


def half_data(kind, dtype):
    """What is hard to sum, with few distinct values: one row of (64, 9, 32) elements a channel."""
    last = 2.0 ** -np.finfo(dtype).nmant if dtype == np.float16 else 2.0**-7
    shape = (64, 4, 9, 32)
    src = np.ones(shape)
    if kind == "last place":  # mean / deviation as large as the type has it
        src[17, :, 3, ::7] += last
    elif kind == "outlier":
        src[0, :, 0, 0] = 2.0**14
    elif kind == "late outlier":
        src[-1, :, -1, -1] = -(2.0**14)
    elif kind == "far apart":
        src[::2] = 2.0**-12
    elif kind == "signs":
        src[::2] = -1 - last
    elif kind == "binades":
        src[::3] = 2 + 2 * last
        src[::5] = 0.5 + last / 2
    return src


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "kind", ["last place", "outlier", "late outlier", "far apart", "signs", "binades", "constant"]
)
@pytest.mark.parametrize("exponent", [-50, 0, 50])
def test_half_statistics_beside_exact_ones(dtype, layout, kind, exponent):
    """Statistics of half types are within 2 ulp of those of exact rationals, with whatever cancels."""
    if dtype == np.float16 and exponent:
        exponent //= 50
    src = (half_data(kind, dtype) * 2.0**exponent).astype(dtype)
    _, mean, variance = cynorm.BatchNorm(layout=layout).forward_training(from_canonical(src, layout))
    values, counts = np.unique(src[:, 0].astype(np.float64), return_counts=True)
    values = [(Fraction(value), int(count)) for value, count in zip(values.tolist(), counts, strict=True)]
    exact_mean = sum(value * count for value, count in values) / sum(counts.tolist())
    exact_variance = sum((v - exact_mean) ** 2 * count for v, count in values) / sum(counts.tolist())
    for got, exact in ((mean, exact_mean), (variance, exact_variance)):
        for channel in got.tolist():
            assert abs(Fraction(channel) - exact) <= 2 * Fraction(float(ulp(float(exact), FLOAT32)))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_any_nan_parameter_is_nan(dtype, layout, isa):
    """No payload of a NaN overflows where the result is rounded, be it diff_src or the gradient of a parameter."""
    src = from_canonical(np.ones((2, 64, 5, 7), dtype), layout)
    scale = np.full(64, 0x7FFFFFFF, np.uint32)
    scale[::2] = 0xFFFFFFFF
    bn, zero, one = cynorm.BatchNorm(layout=layout), np.zeros(64, np.float32), np.ones(64, np.float32)
    assert np.isnan(wide(bn.forward_inference(src, zero, one, scale.view(np.float32), one))).all()
    assert np.isnan(wide(bn.forward_inference(src, zero, one, one, scale.view(np.float32)))).all()
    gradients = bn.backward_training(src, src, scale.view(np.float32), mean=zero, variance=one)
    assert np.isnan(wide(gradients.diff_src)).all()
    gradients = bn.backward_training(src, src, one.astype(dtype), mean=zero, variance=scale.view(np.float32))
    assert gradients.diff_scale.dtype == dtype and np.isnan(wide(gradients.diff_scale)).all()


@pytest.mark.parametrize("shape", [(16, 3, 224, 224), (4, 80, 500, 500)], ids=str)
def test_large_half_tensors(shape):
    """No infinity and no NaN: the statistics of float16 data are not float16's."""
    if np.prod(shape) > 2**24 and available_bytes() < 3 * 2**30:
        pytest.skip("needs 3 GiB of free memory")
    rng = np.random.default_rng(0)
    image = (100 + 10 * rng.standard_normal((1, 1, *shape[2:]))).astype(np.float16)
    src = np.broadcast_to(image, shape)
    dst, mean, variance = cynorm.BatchNorm().forward_training(src, out=np.empty(shape, np.float16))
    expected_mean, expected_variance = reference.batch_norm_statistics(image, (0, 1, 2, 3))
    for statistic, expected in ((mean, expected_mean), (variance, expected_variance)):
        expected = np.broadcast_to(expected.ravel(), statistic.shape)
        assert_within(statistic, expected, 2 * ulp(expected, FLOAT32))
    assert np.isfinite(dst[0, 0]).all()
    assert (dst == dst[:1, :1]).all()


@pytest.mark.parametrize("layout", reference.LAYOUTS)
def test_zero_sized(layout):
    """An empty batch has no NaN and zero gradients; no channels, no statistics."""
    spatial = reference.spatial_ndim(layout)
    for empty in range(2 + spatial):
        shape = list((2, 16, 3, 2, 4)[: 2 + spatial])
        shape[empty] = 0
        case = Case(tuple(shape), FLOAT32, layout)
        workspace = cynorm.Workspace()
        dst, mean, variance = case.operator.forward_training(
            case.src, case.scale, case.shift, workspace=workspace
        )
        assert dst.shape == case.src.shape
        assert mean.shape == variance.shape == (shape[1],)
        assert np.isfinite(mean).all() and np.isfinite(variance).all()
        gradients = case.operator.backward_training(case.diff_dst, case.src, case.scale, workspace=workspace)
        assert gradients.diff_src.shape == case.src.shape
        assert (gradients.diff_scale == 0).all() and (gradients.diff_shift == 0).all()
        assert case.operator.forward_inference(case.src, mean, variance).shape == case.src.shape


@pytest.mark.parametrize("empty", range(4))
def test_empty_slices_of_mixed_memory_orders(empty):
    """What is sliced keeps its strides, so that the planner meets empty axes in any mixture of orders."""
    nothing = tuple(slice(0 if axis == empty else None) for axis in range(4))
    for order, axes in itertools.product(itertools.permutations(range(4)), ((0,), (1,), (0, 2, 3), (2, 3), (3,))):
        src = np.zeros((2, 3, 4, 5), np.float32)
        out = np.ascontiguousarray(src.transpose(order)).transpose(np.argsort(order))
        for one, other in itertools.permutations((src[nothing], out[nothing])):
            assert cynorm.BatchNorm(axes=axes).forward_training(one, out=other)[0] is other


@pytest.mark.parametrize("shape", [(0, 3, 2, 2, 8), (2, 3, 0, 2, 8)], ids=str)
def test_zero_sized_with_padding(shape):
    """A last block that is not full has no padding to clear where there is no block."""
    buffer = np.full(64, 7, np.float32)
    out = np.lib.stride_tricks.as_strided(buffer[32:], shape, strides=(4, 4, 4, 4, 4))
    src, arguments = np.zeros(shape, np.float32), {"layout": "nChw8c", "channels": 20}
    bn, lrn, workspace = cynorm.BatchNorm(**arguments), cynorm.LRN(**arguments), cynorm.Workspace()
    bn.forward_training(src, add=src, out=out, workspace=workspace)
    bn.backward_training(src, src, out=out, out_add=out, workspace=workspace)
    bn.forward_inference(src, np.zeros(20, np.float32), np.ones(20, np.float32), out=out)
    lrn.forward(src, out=out)
    lrn.backward(src, src, out=out)
    assert (buffer == 7).all()


def test_one_element_per_statistic():
    """The variance of one element is 0, and the gradient by it 0."""
    case = Case((1, 9, 1, 1), FLOAT32)
    dst, mean, variance = case.operator.forward_training(case.src, case.scale, case.shift)
    assert (variance == 0).all()
    np.testing.assert_array_equal(mean, case.src.ravel())
    np.testing.assert_array_equal(dst.ravel(), case.shift)
    gradients = case.operator.backward_training(
        case.diff_dst, case.src, case.scale, mean=mean, variance=variance
    )
    assert (gradients.diff_src == 0).all() and (gradients.diff_scale == 0).all()
    np.testing.assert_array_equal(gradients.diff_shift, case.diff_dst.ravel())


def test_larger_than_the_cache():
    """Slabs that fit no cache, written around it."""
    for layout in ("NCHW", "NHWC"):
        check_training(Case((6, 24, 110, 111), FLOAT32, layout, activation="relu"), relu=True)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_more_than_2_to_the_31_elements(layout):
    """64-bit indices and counts: float16, its source repeated along one axis without memory."""
    if available_bytes() < 6 * 2**30:
        pytest.skip("needs 6 GiB of free memory")
    shape = (1, 2, 2**15, 2**15 + 1) if layout == "NCHW" else (2**15, 2**15 + 1, 1, 2)
    repeated_axis = 2 if layout == "NCHW" else 0
    small_shape = [1 if axis == repeated_axis else extent for axis, extent in enumerate(shape)]
    small = random_values(np.random.default_rng(0), small_shape, np.dtype(np.float16))
    src, out = np.broadcast_to(small, shape), np.empty(shape, np.float16)
    bn = cynorm.BatchNorm(layout=layout)
    dst, mean, variance = bn.forward_training(src, out=out)
    expected, expected_mean, expected_variance = bn.forward_training(small)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-6)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-6)
    for index in range(0, shape[repeated_axis], 97):
        rows = np.take(dst, [index], axis=repeated_axis)
        np.testing.assert_allclose(rows, expected, rtol=2e-3, atol=1e-3)


# ------------------------------------------------------------------------------------------------------------
# PyTorch


@needs_torch
@pytest.mark.parametrize("memory", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_like_torch(memory, name):
    """Training, running statistics, gradients and inference of torch.nn.BatchNorm2d."""
    case = Case((5, 12, 7, 9), np.dtype(name))
    if memory == "channels_last":
        case.src = np.moveaxis(np.moveaxis(case.src, 1, -1).copy(), -1, 1)
    layer = torch.nn.BatchNorm2d(12, dtype=getattr(torch, name))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(case.scale))
        layer.bias.copy_(torch.from_numpy(case.shift))
    src = torch.from_numpy(case.src.copy()).requires_grad_()
    result = layer(src)
    result.backward(torch.from_numpy(case.diff_dst))
    running = np.zeros(12, name), np.ones(12, name)
    workspace = cynorm.Workspace()
    dst, _, _ = case.operator.forward_training(
        case.src, case.scale, case.shift, workspace=workspace, running_mean=running[0],
        running_variance=running[1],
    )  # fmt: skip
    gradients = case.operator.backward_training(case.diff_dst, case.src, case.scale, workspace=workspace)
    close = {"rtol": 1e-4, "atol": 1e-5} if name == "float32" else {"rtol": 1e-10, "atol": 1e-11}
    for got, expected in (
        (dst, result.detach()),
        (gradients.diff_src, src.grad),
        (gradients.diff_scale, layer.weight.grad),
        (gradients.diff_shift, layer.bias.grad),
        (running[0], layer.running_mean),
        (running[1], layer.running_var),
    ):
        np.testing.assert_allclose(got, expected.numpy(), **close)
    layer.eval()
    inference = case.operator.forward_inference(case.src, *running, case.scale, case.shift)
    np.testing.assert_allclose(inference, layer(src).detach().numpy(), **close)


# ------------------------------------------------------------------------------------------------------------
# The operator as a value


def test_value_semantics():
    bn = cynorm.BatchNorm(epsilon=0.01, layout="NHWC", activation=cynorm.Activation("elu", alpha=0.5))
    same = cynorm.BatchNorm(epsilon=0.01, layout="NHWC", activation=cynorm.Activation("elu", alpha=0.5))
    assert bn == same and hash(bn) == hash(same) and {bn: 1}[same] == 1
    assert pickle.loads(pickle.dumps(bn)) == bn
    assert eval(repr(bn), vars(cynorm) | {"cynorm": cynorm}) == bn
    assert bn != cynorm.BatchNorm(epsilon=0.01, layout="NHWC") and bn != 3
    assert cynorm.BatchNorm(axes=(0, 2)) == cynorm.BatchNorm(axes=[0, 2])
    assert cynorm.BatchNorm(axes=(0, 2)) != cynorm.BatchNorm(axes=(0, 1))
    assert cynorm.BatchNorm(axes=(2, 0)) == cynorm.BatchNorm(axes=(0, 2))
    assert repr(cynorm.BatchNorm(axes=(0,))) == "BatchNorm(epsilon=1e-05, axes=(0,), activation=None)"
    with pytest.raises(AttributeError):
        bn.epsilon = 1.0
    assert bn.epsilon == 0.01 and bn.layout == "NHWC"


def test_implementation(isa):
    for dtype, short in (("float32", "f32"), ("float16", "f16")):
        for layout, shape in (("NCHW", (2, 64, 8, 40)), ("NHWC", (2, 8, 40, 64))):
            words = cynorm.BatchNorm(layout=layout).implementation(np.zeros(shape, dtype)).split(":")
            assert words[0].startswith("batch_norm") and words[-2:] == [short, isa]


def test_gradients_are_named():
    case = Case((3, 9, 4, 5), FLOAT32)
    ones = np.ones(9, np.float32)
    gradients = case.operator.backward_inference(case.diff_dst, case.src, ones, ones, case.scale)
    assert type(gradients).__name__ == "BatchNormGradients"
    assert gradients._fields == ("diff_src", "diff_scale", "diff_shift", "diff_add")


def test_count_of_elements_is_exact():
    """Statistics over millions of elements: the sums carry on where float32 would stop."""
    ones = np.broadcast_to(np.float32([[1], [1 + 2**-20]]), (2, 2**23))
    _, mean, variance = cynorm.BatchNorm(axes=(0, 1)).forward_training(
        ones, out=np.empty(ones.shape, np.float32)
    )
    assert float(mean.item()) == pytest.approx(1 + 2**-21, rel=1e-7)
    assert float(variance.item()) == pytest.approx(2.0**-42, rel=1e-6)
    assert math.isfinite(variance.item())


def test_float64_gradients_close_to_the_largest():
    """Nothing on the way is larger than the results."""
    src, diff_dst = np.array([[1.0], [2], [4], [8]]), 1.4e300 * np.array([[0.1], [0.2], [0.3], [-1]])
    bn, workspace = cynorm.BatchNorm(axes=(0,)), cynorm.Workspace()
    bn.forward_training(src, workspace=workspace)
    got = bn.backward_training(diff_dst, src, workspace=workspace)
    small = bn.backward_training(diff_dst * 2.0**-100, src, workspace=workspace)
    for huge, usual in zip(got[:3], small[:3], strict=True):
        np.testing.assert_array_equal(huge, usual * 2.0**100)
