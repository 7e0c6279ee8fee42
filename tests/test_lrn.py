"""LRN against the float64 oracle: every layout, dtype, region, convention and memory order."""

import enum
import functools
import gc
import itertools
import math
import os
import pickle
import subprocess
import sys
import weakref
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynorm
import reference
from cynorm import _dispatch
from reference import assert_within, from_canonical, to_canonical, tolerance, ulp
from strategies import (
    Memory,
    assert_same_bits,
    assert_same_windows,
    available_bytes,
    bits,
    channels_argument,
    draw_pair,
    lrn_problems,
    memories,
    orders,
    place,
    random_values,
    shapes_to_transpose,
    take,
)

pytestmark = pytest.mark.usefixtures("isa")

REGIONS = ("across_channels", "within_channel")
WINDOWS = ("onednn", "onnx", "torch")

each_dtype = pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
each_layout = pytest.mark.parametrize("layout", reference.LAYOUTS)
each_region = pytest.mark.parametrize("region", REGIONS)
each_window = pytest.mark.parametrize("window", WINDOWS)


# ------------------------------------------------------------------------------------------------------------
# The bounds: 4 ulp forward, 8 ulp of the terms' magnitudes backward, growing as log2 of windows beyond 16.


def growth(parameters):
    """1 up to a window of 16, then proportional to log2 of it; and, past 1, to |beta|, which multiplies omega's rounding."""
    return max(1.0, math.log2(parameters["local_size"]) / 4) * max(1.0, abs(parameters["beta"]))


def assert_forward(dst, src, **parameters):
    """Canonical `dst` is the forward result of canonical `src`."""
    expected = reference.lrn_forward(src, **parameters)
    bound = tolerance(expected, expected, dst.dtype, 4 * growth({"beta": 0.75, **parameters}))
    assert_within(dst, expected, bound, "dst")


def assert_backward(diff_src, diff_dst, src, **parameters):
    """Canonical `diff_src` is the backward result of canonical `diff_dst` and `src`."""
    first, second, magnitude = reference.lrn_backward_terms(diff_dst, src, **parameters)
    with np.errstate(invalid="ignore"):
        expected = first - second
    bound = tolerance(expected, magnitude, diff_src.dtype, 8 * growth({"beta": 0.75, **parameters}))
    assert_within(diff_src, expected, bound, "diff_src")


def assert_padding_is_zero(array, layout, channels):
    """The lanes of a blocked array beyond its channels hold 0."""
    if reference.block_size(layout) and channels is not None:
        padding = to_canonical(array, layout)[:, channels:]
        assert not np.asarray(padding != 0).any(), "padding is not zero"


def check(shape, dtype, layout="NCHW", seed=0, kind="normal", num_threads=None, **parameters):
    """Forward and backward of one problem, in fresh dense arrays, with and without a workspace."""
    parameters = {"local_size": 5, "alpha": 1.0} | parameters
    channels = channels_argument(layout, shape[1])
    lrn = cynorm.LRN(layout=layout, channels=channels, **parameters)
    src, diff_dst = draw_pair(shape, dtype, layout, seed, kind)
    workspace = cynorm.Workspace()
    dst = lrn.forward(src, workspace=workspace, num_threads=num_threads)
    diff_src = lrn.backward(diff_dst, src, num_threads=num_threads)
    cached = lrn.backward(diff_dst, src, workspace=workspace, num_threads=num_threads)
    canonical_src, canonical_diff = (to_canonical(array, layout, channels) for array in (src, diff_dst))
    for result in (dst, diff_src):
        assert result.shape == src.shape and result.dtype == src.dtype
        assert_padding_is_zero(result, layout, channels)
    assert_forward(to_canonical(dst, layout, channels), canonical_src, **parameters)
    assert_backward(to_canonical(diff_src, layout, channels), canonical_diff, canonical_src, **parameters)
    if dtype.itemsize >= 4:
        assert_same_bits(cached, diff_src, "workspace")
    else:
        assert_backward(to_canonical(cached, layout, channels), canonical_diff, canonical_src, **parameters)


# ------------------------------------------------------------------------------------------------------------
# Drawn problems


@given(lrn_problems())
def test_drawn_forward(problem):
    rng = np.random.default_rng(problem.seed)
    values = random_values(rng, problem.shape, problem.dtype, problem.kind)
    values = from_canonical(values, problem.layout, padding=np.nan)
    src, _ = place(values, problem.src)
    lrn = cynorm.LRN(layout=problem.layout, channels=problem.channels, **problem.parameters)
    if problem.out is None:
        dst = lrn.forward(src, num_threads=problem.num_threads)
    else:
        out, buffer = place(np.full_like(values, np.nan), problem.out)
        assert lrn.forward(src, out=out, num_threads=problem.num_threads) is out
        dst = take(out, buffer)
    assert dst.shape == src.shape and dst.dtype == src.dtype
    canonical = to_canonical(src, problem.layout, problem.channels)
    assert_forward(to_canonical(dst, problem.layout, problem.channels), canonical, **problem.parameters)
    assert_padding_is_zero(dst, problem.layout, problem.channels)


@given(lrn_problems())
def test_drawn_backward(problem):
    values, gradients = draw_pair(problem.shape, problem.dtype, problem.layout, problem.seed, problem.kind)
    src, _ = place(values, problem.src)
    diff_dst, _ = place(gradients, problem.diff_dst)
    lrn = cynorm.LRN(layout=problem.layout, channels=problem.channels, **problem.parameters)
    if problem.out is None:
        diff_src = lrn.backward(diff_dst, src, num_threads=problem.num_threads)
    else:
        out, buffer = place(np.full_like(values, np.nan), problem.out)
        assert lrn.backward(diff_dst, src, out=out, num_threads=problem.num_threads) is out
        diff_src = take(out, buffer)
    canonical_src, canonical_diff = (
        to_canonical(array, problem.layout, problem.channels) for array in (src, diff_dst)
    )
    canonical = to_canonical(diff_src, problem.layout, problem.channels)
    assert_backward(canonical, canonical_diff, canonical_src, **problem.parameters)
    assert_padding_is_zero(diff_src, problem.layout, problem.channels)


# ------------------------------------------------------------------------------------------------------------
# Every combination by name


SHAPES = {0: (3, 21), 1: (2, 21, 13), 2: (2, 21, 5, 7), 3: (2, 21, 3, 4, 5)}


@each_layout
@each_dtype
@each_region
@each_window
def test_every_combination(layout, dtype, region, window):
    shape = SHAPES[reference.spatial_ndim(layout)]
    for local_size in (2, 3, 4, 5):
        check(shape, dtype, layout, region=region, window=window, local_size=local_size)


@pytest.mark.parametrize("local_size", [*range(1, 18), 24, 31, 32, 63])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw16c"])
@each_region
def test_every_local_size(local_size, layout, region):
    """Sizes up to and beyond the extents of the tensor."""
    check((2, 40, 9, 10), np.dtype(np.float32), layout, local_size=local_size, region=region, window="onnx")


BETAS = (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, -0.25, -0.5, -0.75, -1, -2, 0.3, 0.7500001)


@pytest.mark.parametrize("beta", BETAS)
@each_dtype
def test_every_beta(beta, dtype):
    for layout, region, kind in itertools.product(("NCHW", "NHWC"), REGIONS, ("normal", "wide")):
        check((2, 19, 4, 5), dtype, layout, beta=beta, region=region, kind=kind, k=0.7)


@pytest.mark.parametrize("beta", [0.1, -0.3, 0.6, -0.9, 5.5, 60.0, -300.0])
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)
def test_powers(beta, dtype):
    """omega^-beta alone, all over each octave, at the ends of its sixteenths, and near 1, to 2 ulp and 0.2 |beta|."""
    rng = np.random.default_rng(0)
    ends = np.outer(1 + np.arange(32) / 32, 1 + np.finfo(dtype).eps * np.arange(-4, 5))
    octaves = np.exp2(rng.integers(-90, 91, 5000) // max(1, abs(beta)))
    near_one = 1 + rng.choice([-0.5, 0.5], 500) * np.exp2(-rng.uniform(0, -np.log2(np.finfo(dtype).eps), 500))
    x = np.sqrt(np.concatenate([np.ravel(ends), octaves * rng.uniform(1, 2, 5000), near_one])).astype(dtype)
    with np.errstate(over="ignore", under="ignore"):
        expected = reference.wide(x) * reference.wide(x * x) ** -beta
    for layout, local_size in itertools.product(("NCW", "NWC"), (1, 3)):
        src = np.zeros((1, 3, x.size), dtype)  # all windows have one cell that is not zero
        src[0, 1] = x
        lrn = cynorm.LRN(local_size=local_size, alpha=1.0, beta=beta, k=0.0, divisor=1, layout=layout)
        dst = to_canonical(lrn.forward(from_canonical(src, layout)), layout)
        assert_within(dst[0, 1], expected, (2 + abs(beta) / 5) * ulp(expected, dtype), f"{layout} {local_size}")


@pytest.mark.parametrize("alpha, k", [(0, 1), (0, 2.5), (1e-4, 1), (5, 0.1), (1000, 1), (1, 0)])
@each_region
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_every_alpha_and_k(alpha, k, region, layout):
    for dtype in reference.DTYPES:
        check((2, 19, 4, 5), dtype, layout, alpha=alpha, k=k, region=region)


@pytest.mark.parametrize("divisor", [1, 3, 0.5, 25.0])
@each_region
def test_every_divisor(divisor, region):
    check((2, 19, 4, 5), np.dtype(np.float32), divisor=divisor, region=region)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 129])
@pytest.mark.parametrize("layout", ["NC", "NHWC", "nChw8c", "nChw16c"])
@each_region
def test_every_channel_count(channels, layout, region):
    """Channel counts around the vectors' widths and the blocks' sizes."""
    shape = (2, channels, 2, 3)[: 2 + reference.spatial_ndim(layout)]
    for dtype, local_size in itertools.product(reference.DTYPES, (2, 5, 9)):
        check(shape, dtype, layout, local_size=local_size, region=region)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c", "nCdhw16c"])
@each_region
def test_extents_of_one_in_any_order(layout, region):
    """NumPy gives an axis of one entry whatever stride, among them that of adjacent elements."""
    lrn = cynorm.LRN(5, 1.0, layout=layout, region=region)
    axes = 2 + reference.spatial_ndim(layout)
    for extents in itertools.product((1, 20 if axes < 5 else 10), repeat=axes):
        shape = (*extents, reference.block_size(layout)) if reference.block_size(layout) else extents
        src, diff_dst = np.random.default_rng(0).standard_normal((2, *shape), np.float32)
        as_fortran = [np.asfortranarray(array) for array in (src, diff_dst)]
        assert_same_bits(lrn.forward(as_fortran[0]), lrn.forward(src), f"dst, {shape}")
        assert_same_bits(lrn.backward(*reversed(as_fortran)), lrn.backward(diff_dst, src), f"diff_src, {shape}")


@each_dtype
@pytest.mark.parametrize("layout", ["NHWC", "nChw8c", "nChw16c"])
@pytest.mark.parametrize("channels", [1, 5, 16, 31, 40, 100])
def test_windows_over_adjacent_channels_have_the_same_bits(channels, layout, dtype):
    """Windows over channels that lie side by side, held by registers or wider, give the bits of channels of planes."""
    rng = np.random.default_rng(0)
    plain = [random_values(rng, (2, channels, 2, 3), dtype, "wide") for _ in range(3)]
    src, diff_dst, dst = (np.ascontiguousarray(from_canonical(a, layout, padding=np.nan)) for a in plain)
    for local_size, window in itertools.product(range(2, 42), ("onnx", "torch")):
        conventions = {"window": window, "layout": layout, "channels": channels_argument(layout, channels)}
        lrn, other = cynorm.LRN(local_size, 0.5, **conventions), cynorm.LRN(local_size, 0.5, window=window)
        expected = other.forward(plain[0]), other.backward(*plain[1::-1]), other.backward(*plain[1::-1], dst=plain[2])
        got = lrn.forward(src), lrn.backward(diff_dst, src), lrn.backward(diff_dst, src, dst=dst)
        for name, array, like in zip(("dst", "diff_src", "diff_src of dst"), got, expected, strict=True):
            assert_same_bits(to_canonical(array, layout, channels), like, f"{name}, {local_size} {window}")
            assert_padding_is_zero(array, layout, channels_argument(layout, channels))


@each_dtype
@pytest.mark.parametrize("layout, region, shape", [
    ("NHWC", "across_channels", (2, 75, 2, 3)),
    ("nChw16c", "across_channels", (2, 75, 2, 3)),
    ("NCHW", "across_channels", (2, 75, 5, 7)),
    ("NCHW", "across_channels", (3, 75, 2, 3)),
    ("NCW", "within_channel", (2, 7, 75)),
    ("NWC", "within_channel", (2, 3, 95)),
    ("NWC", "within_channel", (1, 11, 127)),
    ("NWC", "within_channel", (2, 23, 131)),
    ("NCHW", "within_channel", (2, 3, 2, 75)),
    ("NCHW", "within_channel", (1, 3, 37, 75)),
    ("NCHW", "within_channel", (1, 37, 19, 11)),
    ("NCHW", "within_channel", (1, 2, 70, 75)),
    ("NHWC", "within_channel", (1, 3, 37, 45)),
    ("NHWC", "within_channel", (1, 11, 19, 35)),
    ("NHWC", "within_channel", (1, 17, 9, 35)),
    ("NCDHW", "within_channel", (1, 2, 9, 17, 19)),
    ("NDHWC", "within_channel", (1, 3, 9, 15, 19)),
    ("NHWC", "within_channel", (1, 37, 19, 35)),
])  # fmt: skip
def test_windows_have_the_same_bits_with_omega_kept(layout, region, shape, dtype):
    """Every window, with and without a workspace that keeps omega, which another loop computes."""
    src, diff_dst = (np.ascontiguousarray(array) for array in draw_pair(shape, dtype, layout, kind="wide"))
    channels = channels_argument(layout, shape[1])
    for local_size in range(2, 42):
        lrn = cynorm.LRN(local_size, 0.5, layout=layout, region=region, window="onnx", channels=channels)
        workspace = cynorm.Workspace(cache="always")
        assert_same_bits(lrn.forward(src, workspace=workspace), lrn.forward(src), f"dst, {local_size}")
        if dtype.itemsize >= 4:  # half types keep omega rounded
            kept = lrn.backward(diff_dst, src, workspace=workspace)
            assert_same_bits(kept, lrn.backward(diff_dst, src), f"diff_src, {local_size}")


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 300])
@each_region
def test_every_width(width, region):
    """Row lengths around the vectors' widths."""
    for dtype, local_size in itertools.product(reference.DTYPES, (3, 5)):
        check((2, 6, width), dtype, "NCW", local_size=local_size, region=region)
        check((1, 5, 3, width), dtype, "NCHW", local_size=local_size, region=region)


@each_dtype
@pytest.mark.parametrize("shape", [(3, 37, 2, 1), (40, 18, 1, 2), (2, 300, 2, 3), (17, 100, 2, 2), (2, 4200, 2, 2)], ids=str)
def test_small_planes(shape, dtype):
    """Channels of few pixels are all in one slab, with the results that larger planes have, also in place and sliced."""
    src, diff_dst = draw_pair(shape, dtype)
    larger = [np.zeros((*shape[:3], shape[3] + 9), dtype) for _ in range(2)]
    wider = [np.zeros((shape[0], shape[1] + 3, *shape[2:]), dtype) for _ in range(2)]
    for array, large, more in zip((src, diff_dst), larger, wider, strict=True):
        large[..., : shape[3]] = array
        more[:, 2:-1] = array
    for local_size, window in ((2, "torch"), (3, "onnx"), (5, "onnx"), (9, "onnx"), (32, "torch"), (32, "onnx")):
        lrn = cynorm.LRN(local_size, 1.0, window=window)
        if local_size < 9:
            check(shape, dtype, local_size=local_size, window=window)
        dst, diff_src = lrn.forward(src, num_threads=2), lrn.backward(diff_dst, src, num_threads=2)
        assert_same_windows(dst, lrn.forward(larger[0])[..., : shape[3]], local_size, "dst")
        assert_same_windows(diff_src, lrn.backward(larger[1], larger[0])[..., : shape[3]], local_size, "diff_src", diff_dst)
        sliced = lrn.forward(wider[0][:, 2:-1]), lrn.backward(wider[1][:, 2:-1], wider[0][:, 2:-1])
        assert_same_windows(sliced[0], dst, local_size, "dst of a slice")
        assert_same_windows(sliced[1], diff_src, local_size, "diff_src of a slice", diff_dst)
        out = diff_dst.copy()
        assert_same_bits(lrn.backward(out, src, out=out), diff_src, "diff_src in place")
        out = src.copy()
        assert_same_bits(lrn.forward(out, out=out), dst, "dst in place")


@pytest.mark.parametrize("local_size", [3, 5, 9])
@pytest.mark.parametrize("layout", ["NHWC", "nChw16c"])
@each_dtype
def test_planes_of_channels(layout, dtype, local_size, isa):
    """Windows over rows and pixels of a plane, for which channels innermost have another kernel than plain memory."""
    shape = (2, 36, 11, 9)
    parameters = {"alpha": 2.0, "local_size": local_size, "region": "within_channel"}
    check(shape, dtype, layout, **parameters)
    src, diff_dst = (np.ascontiguousarray(a) for a in draw_pair(shape, dtype, "NHWC"))
    plain, last = cynorm.LRN(**parameters), cynorm.LRN(layout="NHWC", **parameters)
    src_plain, diff_plain = (np.ascontiguousarray(a.transpose(0, 3, 1, 2)) for a in (src, diff_dst))
    assert_same_bits(last.forward(src).transpose(0, 3, 1, 2), plain.forward(src_plain))
    assert_same_bits(last.backward(diff_dst, src).transpose(0, 3, 1, 2), plain.backward(diff_plain, src_plain))


@pytest.mark.parametrize("local_size", [3, 5, 9, 31])
@each_dtype
def test_planes_of_many_rows(dtype, local_size, isa):
    """More rows than are worked on at once, also where threads share a plane or rows do not lie side by side."""
    shape = (1, 2, 310, 60)
    parameters = {"alpha": 2.0, "local_size": local_size, "region": "within_channel"}
    check(shape, dtype, "NCHW", num_threads=1, **parameters)
    lrn = cynorm.LRN(**parameters)
    src, diff_dst = (np.ascontiguousarray(a) for a in draw_pair(shape, dtype, "NCHW"))
    src_apart, diff_apart = (np.concatenate([a, a], -1)[..., :60] for a in (src, diff_dst))
    for threads in 1, 2:
        assert_same_bits(lrn.forward(src_apart, num_threads=threads), lrn.forward(src, num_threads=1))
        assert_same_bits(
            lrn.backward(diff_apart, src_apart, num_threads=threads), lrn.backward(diff_dst, src, num_threads=1)
        )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c", "nChw16c"])
@each_dtype
@each_region
def test_network_sized(layout, dtype, region):
    """Large enough for many tiles and all threads."""
    check((1, 96, 27, 55), dtype, layout, region=region, num_threads=2)


@pytest.mark.parametrize("size", [3, 9])
@pytest.mark.parametrize("channels", [33, 49])
def test_narrow_last_tile(channels, size):
    """Channels beside a long row are cut by vectors; what is left over, 1 channel, has to be packed."""
    lrn = cynorm.LRN(size, 0.5, region="within_channel", layout="NHWC")
    rng = np.random.default_rng(0)
    src, diff_dst = (rng.standard_normal((1, 3, 1000, channels), dtype=np.float32) for _ in range(2))
    last, last_diff = (np.ascontiguousarray(a[..., -1:]) for a in (src, diff_dst))
    for _ in range(4):  # what goes beyond the scratch is the heap's
        assert_same_bits(lrn.forward(src)[..., -1:], lrn.forward(last))
        assert_same_bits(lrn.backward(diff_dst, src)[..., -1:], lrn.backward(last_diff, last))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("layout", ["NHWC", "NCDHW"])
@pytest.mark.parametrize("width", [55, 361])
def test_bypassing_the_cache(width, layout, dtype):
    """The dst of so large a tensor is written past the cache by whole lines, except for those that two spans share."""
    shape = (1, 4_400_000 // (11 * width), 11, width)
    lrn = cynorm.LRN(5, 0.5, layout="NHWC")
    if layout == "NCDHW":
        shape = (1, 2, shape[1] // 2, 11, width)
        lrn = cynorm.LRN(5, 0.5, region="within_channel", layout=layout)
    rng = np.random.default_rng(0)
    src, diff_dst = (rng.standard_normal(shape, dtype=np.float32).astype(dtype) for _ in range(2))
    room = np.full(src.size + 32, 7, dtype)
    out = room[3 : 3 + src.size].reshape(shape)
    axis = len(shape) - 3

    def piece(array, begin, end):
        return np.ascontiguousarray(array.take(range(begin, end), axis))

    for run, tensors in (lrn.forward, (src,)), (lrn.backward, (diff_dst, src)):
        run(*tensors, out=out)
        for begin in 0, 61, shape[axis] - 40:
            part = run(*(piece(tensor, begin, begin + 40) for tensor in tensors))
            assert_same_bits(piece(out, begin + 8, begin + 32), piece(part, 8, 32))
        assert (room[:3] == 7).all() and (room[3 + src.size :] == 7).all()


@functools.lru_cache(maxsize=1)
def pair_of_images(shape, dtype, layout):
    """src and diff_dst, drawn once for the tests that follow one another."""
    rng = np.random.default_rng(0)
    return [from_canonical(rng.standard_normal(shape, dtype=np.float32).astype(dtype), layout) for _ in range(2)]


@each_region
@pytest.mark.parametrize("size", [3, 5, 12, 31])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw16c"])
@pytest.mark.parametrize("images, plane", [(24, (41, 47)), (800, (7, 9)), (12000, (3, 3))], ids=["", "small", "tiny"])
def test_images_past_the_cache(region, images, plane, layout, dtype, size):
    """In a tensor whose dst bypasses the cache, each image is what it is alone, wherever it begins."""
    lrn = cynorm.LRN(size, 0.5, region=region, layout=layout)
    src, diff_dst = pair_of_images((images, 48, *plane), dtype, layout)
    each = src[0].size
    lines = np.full(images * (each + 5) + 64, 7, dtype)
    lines = lines[-lines.ctypes.data % 64 // lines.itemsize :]
    for begin, gap in (0, 0), (3, 0), (4, 5):
        out = lines[begin : begin + images * (each + gap)].reshape(images, each + gap)[:, :each].reshape(src.shape)
        assert np.shares_memory(out, lines)
        for run, tensors in (lrn.forward, (src,)), (lrn.backward, (diff_dst, src)):
            run(*tensors, out=out, num_threads=2)
            for image in 0, 11, images - 1:
                assert_same_bits(out[image], run(*(tensor[image : image + 1] for tensor in tensors))[0])
            out[...] = 7
            assert (lines == 7).all()


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("channels", [16, 64, 80, 96, 1040, 2624])
@each_dtype
def test_rows_past_the_cache(isa, dtype, channels, size):
    """Rows of whole vectors, as many as are worked on at once and longer ones, give the bits that they give in the cache."""
    images = 9_600_000 // (2 * np.dtype(dtype).itemsize * 35 * channels) + 1
    lrn = cynorm.LRN(size, 0.5, layout="NHWC")
    tensors = draw_pair((images, channels, 5, 7), dtype, "NHWC")
    line = 64 // tensors[0].itemsize
    room = np.empty(tensors[0].size + 2 * line, dtype)
    begin = -room.ctypes.data % 64 // room.itemsize
    for apart in 0, 2, 3:  # dst at a line of memory, and not, also at odd elements
        out = room[begin + apart :][: tensors[0].size].reshape(tensors[0].shape)
        for run, operands in (lrn.forward, tensors[1:]), (lrn.backward, tensors):
            run(*operands, out=out, num_threads=2)
            for image in 0, images // 2, images - 1:
                assert_same_bits(out[image], run(*(tensor[image : image + 1] for tensor in operands))[0])


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@each_region
def test_repeated_past_the_cache(region, layout, axes):
    """A tensor that repeats its entries along axes is treated like its copy, where dst bypasses the cache."""
    lrn = cynorm.LRN(5, 0.5, region=region)
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((24, 48, 41, 47), dtype=np.float32)
    one = whole[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(4))]

    def stored(values):
        return np.moveaxis(from_canonical(values, layout), 3, 1) if layout == "NHWC" else values.copy()

    diff_dst, copy = stored(whole), stored(np.broadcast_to(one, whole.shape))
    repeated = np.broadcast_to(stored(one), whole.shape)
    out = np.empty_like(diff_dst)
    assert_same_bits(lrn.forward(repeated, out=out), lrn.forward(copy))
    assert_same_bits(lrn.backward(diff_dst, repeated, out=out), lrn.backward(diff_dst, copy))
    assert_same_bits(lrn.backward(repeated, diff_dst, out=out), lrn.backward(copy, diff_dst))


@pytest.mark.parametrize("size", [3, 5, 12, 31])
@pytest.mark.parametrize("channels", [32, 96, 104, 2624])
@each_dtype
def test_channels_last_gives_the_bits_of_planes(isa, dtype, channels, size):
    """Rows that are whole vectors, or whole pairs of them, short and longer than is worked on at once."""
    lrn, planes = (cynorm.LRN(size, 0.5, layout=layout) for layout in ("NHWC", "NCHW"))
    tensors = draw_pair((2, channels, 5, 7), dtype, "NHWC")
    others = [to_canonical(tensor, "NHWC").copy() for tensor in tensors]
    assert_same_windows(to_canonical(lrn.forward(tensors[1]), "NHWC"), planes.forward(others[1]), size, "dst")
    assert_same_windows(to_canonical(lrn.backward(*tensors), "NHWC"), planes.backward(*others), size, "diff_src", others[0])


@pytest.mark.parametrize("size", [3, 5, 7, 9, 15])
@pytest.mark.parametrize("images, channels", [(2, 16), (2, 48), (2, 64), (2, 80), (1, 64), (1, 176)])
@each_dtype
def test_planes_of_channels_wherever_they_begin(isa, dtype, images, channels, size):
    """At every place in a line, each thread its rows or, of one image, channels; in place and beside it."""
    lrn, planes = (cynorm.LRN(size, 0.5, region="within_channel", layout=layout) for layout in ("NHWC", "NCHW"))
    shape = (images, channels, 17, 11)
    dense = draw_pair(shape, dtype)
    expected_dst, expected_diff = planes.forward(dense[1]), planes.backward(*dense)
    for offset in range(64 // dtype.itemsize):
        last = Memory((0, 2, 3, 1), (1,) * 4, offset=offset)
        (diff_dst, diff_room), (src, src_room), (out, room) = (place(a, last) for a in (*dense, np.zeros(shape, dtype)))
        if offset % 2:
            out, room = diff_dst, diff_room
        seen = [np.moveaxis(array, 1, -1) for array in (diff_dst, src, out)]
        lrn.backward(*seen[:2], out=seen[2], num_threads=1 + offset % 3)
        assert_same_windows(take(out, room), expected_diff, size, "diff_src", dense[0])
        if offset % 2:
            seen[2], out, room = seen[1], src, src_room
        lrn.forward(seen[1], out=seen[2], num_threads=1 + offset % 3)
        assert_same_windows(take(out, room), expected_dst, size, "dst")


@pytest.mark.parametrize("channels", [1024, 2624])
@pytest.mark.parametrize("size", [3, 5, 16])
@pytest.mark.parametrize("layout", ["NHWC", "nChw8c", "nChw16c"])
@each_dtype
def test_long_rows_in_place(dtype, layout, size, channels):
    """Rows of more channels than are worked on at once, where out takes the place of what is read."""
    src, diff_dst = draw_pair((2, channels, 3, 2), dtype, layout)
    lrn = cynorm.LRN(size, 0.5, layout=layout)
    for run, tensors in (lrn.forward, (src,)), (lrn.backward, (diff_dst, src)):
        expected = run(*tensors)
        for i, tensor in enumerate(tensors):
            out = tensor.copy()
            assert_same_bits(run(*tensors[:i], out, *tensors[i + 1 :], out=out), expected)


@pytest.mark.parametrize("size", [5, 7])
@pytest.mark.parametrize("backward, shape", [(False, (1, 17, 63 * 1024 + 10)), (True, (1, 50, 31 * 512 + 10))])
def test_last_tile_of_few_cells(backward, shape, size):
    """The last tile along a plane may have less than a vector: it shares a line of dst with the one before."""
    lrn = cynorm.LRN(size, 0.5, layout="NCW")
    src, diff_dst = np.random.default_rng(0).standard_normal((2, *shape), dtype=np.float32)
    run, tensors = (lrn.backward, (diff_dst, src)) if backward else (lrn.forward, (src,))
    room = np.zeros(src.size + 16, np.float32)
    for begin in 0, 3:
        out = room[begin : begin + src.size].reshape(shape)
        run(*tensors, out=out, num_threads=2)
        assert_same_bits(out[..., -99:], run(*(np.ascontiguousarray(tensor[..., -99:]) for tensor in tensors)))
        room[:] = 0


@each_layout
@each_region
@each_dtype
def test_single_cell(dtype, region, layout):
    """A window of one cell, where no other element counts."""
    parameters = {"local_size": 1, "alpha": 0.5, "region": region}
    shape = SHAPES[reference.spatial_ndim(layout)]
    channels = channels_argument(layout, shape[1])
    src, diff_dst = draw_pair(shape, dtype, layout)
    lrn = cynorm.LRN(layout=layout, channels=channels, **parameters)
    canonical, canonical_diff = (to_canonical(array, layout, channels) for array in (src, diff_dst))
    assert_forward(to_canonical(lrn.forward(src), layout, channels), canonical, **parameters)
    diff_src = to_canonical(lrn.backward(diff_dst, src), layout, channels)
    assert_backward(diff_src, canonical_diff, canonical, **parameters)


def test_no_spatial_axes_within_channel():
    """Within a channel of one cell the window is that cell, and the divisor is 1."""
    src, diff_dst = draw_pair((3, 7), np.dtype(np.float64), "NC")
    within = cynorm.LRN(5, 0.5, layout="NC", region="within_channel")
    single = cynorm.LRN(1, 0.5, layout="NC")
    assert_same_bits(within.forward(src), single.forward(src))
    assert_same_bits(within.backward(diff_dst, src), single.backward(diff_dst, src))


def test_defaults():
    """The defaults are those of the signature, and the one-call forms share them."""
    src, diff_dst = draw_pair((2, 8, 3, 4), np.dtype(np.float32))
    defaults = {"local_size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0}
    lrn = cynorm.LRN()
    conventions = {"region": "across_channels", "layout": "NCHW", "window": "onednn", "divisor": None}
    assert lrn == cynorm.LRN(**defaults, **conventions)
    assert_forward(lrn.forward(src), src, **defaults)
    assert_same_bits(cynorm.lrn(src), lrn.forward(src))
    assert_same_bits(cynorm.lrn_backward(diff_dst, src), lrn.backward(diff_dst, src))


@each_layout
def test_one_call_forms(layout):
    shape = SHAPES[reference.spatial_ndim(layout)]
    src, diff_dst = draw_pair(shape, np.dtype(np.float32), layout)
    arguments = {
        "layout": layout, "channels": channels_argument(layout, shape[1]), "region": "within_channel",
        "window": "torch", "divisor": 2.0,
    }  # fmt: skip
    lrn = cynorm.LRN(4, 0.5, 0.6, 2.0, **arguments)
    out, workspace = np.empty_like(src), cynorm.Workspace()
    assert cynorm.lrn(src, 4, 0.5, 0.6, 2.0, **arguments, out=out, workspace=workspace, num_threads=1) is out
    assert_same_bits(out, lrn.forward(src))
    diff_src = np.empty_like(src)
    result = cynorm.lrn_backward(
        diff_dst, src, 4, 0.5, 0.6, 2.0, **arguments, out=diff_src, workspace=workspace, num_threads=1
    )
    assert result is diff_src
    assert_same_bits(diff_src, lrn.backward(diff_dst, src))


# ------------------------------------------------------------------------------------------------------------
# Gradients


@each_region
@each_window
@pytest.mark.parametrize("local_size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("layout", ["NC", "NCW", "NCHW", "NCDHW", "NHWC", "nChw8c"])
def test_central_differences(region, window, local_size, layout):
    """backward is the derivative of forward, by differences of forward itself in float64."""
    shape = (1, 5, 2, 3, 2)[: 2 + reference.spatial_ndim(layout)] if layout != "NC" else (2, 9)
    channels = channels_argument(layout, shape[1])
    conventions = {"region": region, "window": window, "layout": layout, "channels": channels}
    lrn = cynorm.LRN(local_size, 0.7, 0.8, 1.2, **conventions)
    rng = np.random.default_rng(5)
    src, diff_dst = (from_canonical(rng.standard_normal(shape), layout) for _ in range(2))
    diff_src = lrn.backward(diff_dst, src)
    step = 1e-5
    for index in itertools.islice(np.ndindex(src.shape), 0, None, 1 if src.size < 40 else 3):
        higher, lower = src.copy(), src.copy()
        higher[index] += step
        lower[index] -= step
        change = lrn.forward(higher, num_threads=1) - lrn.forward(lower, num_threads=1)
        slope = np.vdot(diff_dst, change) / (2 * step)
        if reference.block_size(layout) and index[1] * reference.block_size(layout) + index[-1] >= shape[1]:
            assert diff_src[index] == 0
        else:
            assert slope == pytest.approx(diff_src[index], rel=1e-7, abs=1e-8), index


@each_dtype
@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "NC", "nChw8c"])
@pytest.mark.parametrize("local_size", [1, 3, 4, 9, 61])
@pytest.mark.parametrize("channels", [3, 11, 21])
def test_supplied_dst(dtype, layout, local_size, channels):
    """`dst` stands for src * omega^-beta in the second term, even where it is something else."""
    shape = (2, channels, 3, 4)[: 2 + reference.spatial_ndim(layout)]
    channels = channels_argument(layout, shape[1])
    rng = np.random.default_rng(3)
    src, diff_dst, dst = (random_values(rng, shape, dtype) for _ in range(3))
    parameters = {"local_size": local_size, "alpha": 0.8, "beta": 0.5, "divisor": 1, "window": "onnx"}
    lrn = cynorm.LRN(layout=layout, channels=channels, **parameters)
    arrays = [from_canonical(array, layout, padding=np.nan) for array in (diff_dst, src, dst)]
    diff_src = lrn.backward(arrays[0], arrays[1], dst=arrays[2])
    assert_backward(to_canonical(diff_src, layout, channels), diff_dst, src, dst=dst, **parameters)


@each_region
def test_supplied_dst_in_any_memory(region):
    """`dst` has a memory order of its own."""
    rng = np.random.default_rng(3)
    src, diff_dst, dst = (random_values(rng, (2, 9, 5, 4), np.dtype(np.float64)) for _ in range(3))
    parameters = {"local_size": 3, "alpha": 0.8, "beta": 0.5, "region": region}
    lrn = cynorm.LRN(**parameters)
    for view in (dst, np.asfortranarray(dst), np.broadcast_to(dst[:, :1], dst.shape), dst[:, :, ::-1]):
        assert_backward(lrn.backward(diff_dst, src, dst=view), diff_dst, src, dst=view, **parameters)


# ------------------------------------------------------------------------------------------------------------
# Memory


def named_orders(ndim):
    """Some memory orders worth naming, as functions of a C-contiguous array."""
    yield "contiguous", lambda array: array
    yield "fortran", np.asfortranarray
    yield "reversed", lambda array: array[::-1, ::-1].copy()[::-1, ::-1]
    yield "channels outermost", lambda array: np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1)
    yield "channels innermost", lambda array: np.moveaxis(np.moveaxis(array, 1, -1).copy(), -1, 1)
    yield "every other", lambda array: np.repeat(array, 2, axis=-1)[..., ::2]
    yield "sliced channels", lambda array: np.concatenate((array, array), 1)[:, : array.shape[1]]


@pytest.mark.parametrize("pair", list(itertools.product(range(7), repeat=2)), ids=str)
@each_region
def test_mixed_memory_orders(pair, region):
    """src, diff_dst and out each in a memory order of its own; src and diff_dst unchanged by the call."""
    arrange = [function for _, function in named_orders(4)]
    original_src, original_diff = draw_pair((3, 18, 5, 6), np.dtype(np.float32))
    src, diff_dst = arrange[pair[0]](original_src), arrange[pair[1]](original_diff)
    parameters = {"local_size": 4, "alpha": 1.0, "window": "torch", "region": region}
    lrn = cynorm.LRN(**parameters)
    out = arrange[pair[1]](np.full_like(original_src, np.nan))
    lrn.forward(src, out=out)
    assert_forward(out, original_src, **parameters)
    out = arrange[(pair[0] + pair[1]) % 7](np.full_like(original_src, np.nan))
    lrn.backward(diff_dst, src, out=out)
    assert_backward(out, original_diff, original_src, **parameters)
    assert_same_bits(src, original_src)
    assert_same_bits(diff_dst, original_diff)


@pytest.mark.parametrize("blocked", [False, True], ids=["plain", "blocked"])
@each_dtype
@each_region
@given(
    shapes_to_transpose(),
    st.lists(orders(4), min_size=4, max_size=4),
    st.sampled_from((3, 4, 5, 9)),
    st.booleans(),
)
def test_any_mixture_of_orders_gives_the_same_bits(region, dtype, blocked, shape, memories, size, in_place):
    """src, diff_dst, dst and out each in its own order, seen in one layout, as in a call on dense arrays."""
    if blocked:
        shape = (shape[0], -(-shape[1] // 16) * 16, *shape[2:])
    lrn = cynorm.LRN(size, 0.5, region=region, window="torch", layout="nChw16c" if blocked else "NCHW")

    def seen(array):
        n, channels, *spatial = array.shape
        return np.moveaxis(array.reshape(n, channels // 16, 16, *spatial), 2, -1) if blocked else array

    rng = np.random.default_rng(0)
    dense = [random_values(rng, shape, dtype) for _ in range(3)]
    expected_dst = lrn.forward(seen(dense[0]))
    expected_diff = lrn.backward(seen(dense[1]), seen(dense[0]), dst=seen(dense[2]))
    values = *dense, np.zeros(shape, dtype)
    (src, src_room), (diff_dst, diff_room), (dst, _), (out, room) = map(place, values, memories)
    views = seen(diff_dst), seen(src)
    if in_place:
        lrn.backward(*views, dst=seen(dst), out=views[0])
        assert_same_bits(seen(take(diff_dst, diff_room)), expected_diff)
        lrn.forward(views[1], out=views[1])
        assert_same_bits(seen(take(src, src_room)), expected_dst)
    else:
        lrn.forward(views[1], out=seen(out))
        assert_same_bits(seen(out), expected_dst)
        lrn.backward(*views, dst=seen(dst), out=seen(out))
        assert_same_bits(seen(take(out, room)), expected_diff)


@each_dtype
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40) | st.integers(65, 90)),
    st.lists(orders(4), min_size=3, max_size=3),
    st.integers(2, 41),
    st.sampled_from(("onednn", "onnx", "torch")),
    st.sampled_from(("out", "src", "diff_dst")),
)
def test_wide_windows_over_planes_in_any_order(dtype, shape, memories, size, window, target):
    """They give what the loop for all windows, whose omega is kept, makes of dense arrays; in place and beside it."""
    lrn = cynorm.LRN(size, 0.5, region="within_channel", window=window)
    rng = np.random.default_rng(0)
    dense = [random_values(rng, shape, dtype, "wide") for _ in range(2)]
    kept = cynorm.Workspace(cache="always")
    expected_dst = lrn.forward(dense[0], workspace=kept)
    expected_diff = lrn.backward(dense[1], dense[0], workspace=kept if dtype.itemsize >= 4 else None)
    placed = dict(zip(("src", "diff_dst", "out"), map(place, (*dense, np.zeros(shape, dtype)), memories), strict=True))
    src, diff_dst = placed["src"][0], placed["diff_dst"][0]
    out, room = placed[target]
    lrn.backward(diff_dst, src, out=out)
    size = size if 1 in shape[2:] else 0  # else the same axis is streamed in every order
    assert_same_windows(take(out, room), expected_diff, size, "diff_src", expected_diff)
    src[...] = dense[0]
    out, room = placed["src" if target == "src" else "out"]
    lrn.forward(src, out=out)
    assert_same_windows(take(out, room), expected_dst, size, "dst")


@each_dtype
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 20), *[st.integers(1, 20)] * 2, st.integers(1, 40)),
    st.lists(st.permutations(range(5)) | st.sampled_from(((0, 1, 2, 3, 4), (0, 2, 3, 4, 1))), min_size=3, max_size=3),
    st.sampled_from((3, 5, 7, 9)) | st.integers(2, 24),
    st.sampled_from(("out", "src", "diff_dst")),
    st.integers(1, 3),
)
def test_volumes(dtype, shape, orders, size, target, threads):
    """Windows over three axes: in any order, in place and beside it, what the loop for all windows makes of rows with gaps."""
    lrn = cynorm.LRN(size, 0.5, region="within_channel", layout="NCDHW", window="torch")
    rng = np.random.default_rng(0)
    dense = [random_values(rng, shape, dtype, "wide") for _ in range(2)]
    gaps = [np.empty((*shape[:-1], shape[-1] + 1), dtype)[..., :-1] for _ in range(3)]
    gaps[0][...], gaps[1][...] = dense
    expected_dst, expected_diff = lrn.forward(gaps[0]), lrn.backward(gaps[1], gaps[0], out=gaps[2])
    values = *dense, np.zeros(shape, dtype)
    placed = [place(value, Memory(tuple(order), (1,) * 5))[0] for value, order in zip(values, orders, strict=True)]
    src, diff_dst, out = placed
    lrn.backward(diff_dst, src, out={"src": src, "diff_dst": diff_dst, "out": out}[target], num_threads=threads)
    assert_same_windows({"src": src, "diff_dst": diff_dst, "out": out}[target], expected_diff, size, "diff_src", expected_diff)
    src[...] = dense[0]
    lrn.forward(src, out=src if target == "src" else out, num_threads=threads)
    assert_same_windows(src if target == "src" else out, expected_dst, size, "dst")


@pytest.mark.parametrize("last", [False, True], ids=["from planes", "from channels last"])
@pytest.mark.parametrize("size", [3, 5, 9, 11, 31])
@pytest.mark.parametrize("shape", [(1, 3, 40, 71, 66), (2, 70, 9, 31, 33), (40, 32, 8, 16, 17), (1, 2, 5, 330, 310)], ids=str)
def test_large_volumes(shape, size, last, isa):
    """Some planes at a time, past the cache, by copies, or too large for scratch: the bits of rows with gaps."""
    lrn = cynorm.LRN(size, 0.5, region="within_channel", layout="NCDHW")
    rng = np.random.default_rng(0)
    gaps = [np.empty((*shape[:-1], shape[-1] + 1), np.float32)[..., :-1] for _ in range(3)]
    for values in gaps:
        values[...] = rng.standard_normal(shape)
    src, diff_dst = map(np.ascontiguousarray, gaps[:2])
    out = np.empty_like(src)
    if last:
        src = place(src, Memory((0, 2, 3, 4, 1), (1,) * 5))[0]
    lrn.forward(src, out=out, num_threads=2)
    assert_same_bits(out, lrn.forward(gaps[0], out=gaps[2]))
    lrn.backward(diff_dst, src, out=out, num_threads=3)
    assert_same_bits(out, lrn.backward(gaps[1], gaps[0], out=gaps[2]))


@each_dtype
@pytest.mark.parametrize("size", [3, 4, 9, 15])
@pytest.mark.parametrize("shape", [(1, 2, 70, 130), (1, 1, 190, 171), (2, 9, 66, 66), (1, 1, 90, 800), (1, 2, 281, 300), (1, 1, 45, 8192)], ids=str)
def test_planes_that_are_copied(shape, size, dtype):
    """Reversed, transposed, of every other element or of channels last: planes of any size, whole or by parts of their rows,
    cut for any number of threads."""
    lrn = cynorm.LRN(size, 0.5, region="within_channel")
    rng = np.random.default_rng(0)
    dense = [random_values(rng, shape, dtype) for _ in range(2)]
    expected_dst, expected_diff = lrn.forward(dense[0]), lrn.backward(dense[1], dense[0])
    first, swapped, last, one = (0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 3, 1), (1, 1, 1, 1)
    memories = [Memory(first, (1, 1, 1, -1)), Memory(swapped, one), Memory(first, (1, 1, 1, 2)), Memory(last, one), Memory(first, one)]
    for i, memory in enumerate(memories):
        (src, _), (diff_dst, _) = place(dense[0], memory), place(dense[1], memories[i - 1])
        for other in memories[-1], memories[i - 2], memory:
            out, room = place(np.zeros(shape, dtype), other)
            threads = 1 + (i + size) % 3
            lrn.forward(src, out=out, num_threads=threads)
            assert_same_windows(take(out, room), expected_dst, size, "dst")
            lrn.backward(diff_dst, src, out=out, num_threads=threads)
            assert_same_windows(take(out, room), expected_diff, size, "diff_src", expected_diff)


@each_dtype
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 20) | st.integers(21, 70), st.integers(1, 40)),
    st.sampled_from((3, 5, 7, 9)) | st.integers(2, 40),
    st.sampled_from(WINDOWS),
    st.sampled_from((0, 0.5, 0.6, 0.75, 1)),
    st.integers(0, 3),
    st.booleans(),
)
def test_pixels_as_rows_of_a_plane(dtype, shape, size, window, beta, offset, in_place):
    """Few channels, or few pixels of a row, channels last: the bits of channels first."""
    lrn = cynorm.LRN(size, 0.5, beta, region="within_channel", window=window)
    rng = np.random.default_rng(0)
    dense = [random_values(rng, shape, dtype) for _ in range(2)]
    last = Memory((0, 2, 3, 1), (1,) * 4, offset=offset)
    (src, src_room), (diff_dst, diff_room), (out, room) = (place(a, last) for a in (*dense, np.zeros(shape, dtype)))
    if in_place:
        out, room = diff_dst, diff_room
    lrn.backward(diff_dst, src, out=out, num_threads=2)
    assert_same_windows(take(out, room), lrn.backward(dense[1], dense[0]), size, "diff_src", dense[1])
    if in_place:
        out, room = src, src_room
    lrn.forward(src, out=out, num_threads=2)
    assert_same_windows(take(out, room), lrn.forward(dense[0]), size, "dst")


@each_dtype
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 50), st.integers(1, 60)),
    st.integers(2, 40),
    st.sampled_from(WINDOWS),
    st.lists(orders(4) | memories(4, repeat=True), min_size=2, max_size=2),
    orders(4) | memories(4),
    st.integers(1, 3),
)
def test_rows_of_few_channels_in_any_memory(dtype, shape, size, window, inputs, output, threads):
    """Rows that do not follow on are copied, of the tensors that ask for it, however they lie."""
    lrn = cynorm.LRN(size, 0.5, region="within_channel", window=window)
    rng = np.random.default_rng(0)
    (src, _), (diff_dst, _) = (place(random_values(rng, shape, dtype), memory) for memory in inputs)
    dense = [np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for array in (src, diff_dst)]
    out, room = place(np.zeros(shape, dtype), output)
    lrn.backward(diff_dst, src, out=out, num_threads=threads)
    assert_same_windows(take(out, room), lrn.backward(dense[1], dense[0]), size, "diff_src", dense[1])
    lrn.forward(src, out=out, num_threads=threads)
    assert_same_windows(take(out, room), lrn.forward(dense[0]), size, "dst")


@each_dtype
@given(
    st.integers(1, 3),
    st.integers(1, 33),
    st.integers(1, 400_000),
    st.integers(2, 40),
    st.sampled_from(WINDOWS),
    st.lists(orders(3) | memories(3), min_size=3, max_size=3),
    st.integers(1, 3),
    st.sampled_from(["apart", "in place", "given dst"]),
)
def test_long_signals(dtype, images, channels, elements, size, window, memories, threads, out_is):
    """Along one axis, however the tensors lie: rows that are packed are cut, and so are those of fewer images than threads."""
    shape = (images, channels, elements // (images * channels) + 1)
    lrn = cynorm.LRN(size, 0.5, region="within_channel", window=window, layout="NCW")
    rng = np.random.default_rng(0)
    dense = [rng.standard_normal(shape, dtype=np.float32).astype(dtype) for _ in range(2)]
    given_dst = {"dst": dense[0]} if out_is == "given dst" else {}

    def placed():
        return [place(a, memory) for a, memory in zip((*dense, dense[0]), memories, strict=True)]

    def forward(workspace):
        arrays = placed()
        out, room = arrays[0 if out_is == "in place" else 2]
        lrn.forward(arrays[0][0], out=out, workspace=workspace, num_threads=threads)
        return take(out, room)

    (src, _), (diff_dst, _), _ = arrays = placed()
    out, room = arrays[1 if out_is == "in place" else 2]
    lrn.backward(diff_dst, src, out=out, num_threads=threads, **given_dst)
    expected = lrn.backward(dense[1], dense[0], num_threads=1, **given_dst)
    assert_same_windows(take(out, room), expected, size, "diff_src", dense[1])
    dst = forward(None)
    assert_same_windows(dst, lrn.forward(dense[0]), size, "dst")
    assert_same_bits(dst, forward(cynorm.Workspace(cache="always")), "dst beside omega, which another loop makes")


@each_dtype
@pytest.mark.parametrize("size", [5, 16, 31])
@pytest.mark.parametrize("pixels", ["every channel", "three of four", "reversed", "every other"])
def test_images_that_do_not_follow_on(pixels, size, dtype):
    """Rows of images as large as photographs, cut from others or turned, into each other, and in place."""
    shape = (1, 90, 1100, 3)
    views = {
        "every channel": lambda a: a[..., :3].transpose(0, 3, 1, 2).copy().transpose(0, 2, 3, 1),
        "three of four": lambda a: a[..., :3],
        "reversed": lambda a: a[:, :, ::-1, 2::-1],
        "every other": lambda a: a[:, ::2, ::-1, :3],
    }
    rng = np.random.default_rng(0)
    larger = [rng.standard_normal((1, 180 if pixels == "every other" else 90, 1100, 4), dtype=np.float32).astype(dtype) for _ in range(3)]
    src, diff_dst, out = map(views[pixels], larger)
    dense = [np.ascontiguousarray(array) for array in (src, diff_dst)]
    assert out.shape == shape
    lrn = cynorm.LRN(size, 0.5, region="within_channel", layout="NHWC")
    dst, diff_src = lrn.forward(dense[0]), lrn.backward(dense[1], dense[0])
    for target in out, np.empty_like(dense[0]):
        lrn.forward(src, out=target, num_threads=2)
        assert_same_windows(target, dst, size, "dst")
        lrn.backward(diff_dst, dense[0], out=target, num_threads=3)
        assert_same_windows(target, diff_src, size, "diff_src", dense[1])
    lrn.backward(diff_dst, src, out=diff_dst)
    assert_same_windows(diff_dst, diff_src, size, "diff_src in place", dense[1])
    lrn.forward(src, out=src)
    assert_same_windows(src, dst, size, "dst in place")


@each_dtype
@pytest.mark.parametrize("size, window", [(16, "onnx"), (31, "torch")])
@pytest.mark.parametrize("shape, order", [
    ((2, 3, 270, 1300), (0, 2, 3, 1)),
    ((7, 11, 90, 320), (0, 2, 3, 1)),
    ((4, 2, 330, 801), (0, 1, 2, 3)),
])  # fmt: skip
def test_wide_windows_along_rows_past_the_cache(shape, order, size, window, dtype):
    """Of few channels and of planes, whose sums are made in memory where they reach far: the bits that another loop gives, which
    keeps omega, wherever rows begin."""
    lrn = cynorm.LRN(size, 0.5, region="within_channel", window=window)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape, dtype=np.float32).astype(dtype) for _ in range(2)]
    src, diff_dst = (place(array, Memory(order, (1,) * 4, offset=1))[0] for array in values)
    out, room = place(np.zeros(shape, dtype), Memory(order, (1,) * 4, offset=3))
    workspace = cynorm.Workspace(cache="always")
    expected = lrn.forward(src, workspace=workspace)
    lrn.forward(src, out=out, num_threads=2)
    assert_same_bits(take(out, room), expected)
    if dtype.itemsize >= 4:  # half types keep omega rounded
        expected = lrn.backward(diff_dst, src, workspace=workspace)
        lrn.backward(diff_dst, src, out=out, num_threads=2)
        assert_same_bits(take(out, room), expected)


@each_dtype
@pytest.mark.parametrize("last", [False, True], ids=["from channels first", "from channels last"])
@pytest.mark.parametrize("slack", [0, 1], ids=["dense", "sliced"])
def test_transposed_past_the_cache(slack, dtype, last):
    """In so large a tensor, results that are transposed on their way out bypass the cache by whole lines."""
    shape = (3, 37, 203, 211)
    rng = np.random.default_rng(0)
    axes = (0, 2, 3, 1), (0, 1, 2, 3)
    dense = [rng.standard_normal(shape, dtype=np.float32).astype(dtype) for _ in range(2)]
    src, diff_dst = (place(array, Memory(axes[not last], (1,) * 4))[0] for array in dense)
    out, room = place(np.zeros(shape, dtype), Memory(axes[last], (1,) * 4, offset=3, slack=slack))
    lrn = cynorm.LRN(5, 0.5)
    lrn.forward(src, out=out)
    assert_same_bits(take(out, room), lrn.forward(dense[0]))
    lrn.backward(diff_dst, src, out=out)
    assert_same_bits(take(out, room), lrn.backward(dense[1], dense[0]))


@pytest.mark.parametrize("pixels", [2437, 2444, 2450])
def test_pieces_of_transposed_planes_past_the_cache(pixels, isa):
    """Lines of dst that two pieces of a plane share are whole, whichever loops would serve the copies of the pieces,
    whose rows are of different lengths."""
    rng = np.random.default_rng(0)
    dense = [rng.standard_normal((9, 40, pixels), dtype=np.float32) for _ in range(2)]
    src = place(dense[0], Memory((0, 2, 1), (1,) * 3))[0]
    out, room = place(np.zeros_like(dense[0]), Memory((0, 1, 2), (1,) * 3, offset=1))
    lrn = cynorm.LRN(5, layout="NCW")
    expected = lrn.backward(dense[1], dense[0])
    for threads in 1, 2:
        out[...] = 0
        lrn.backward(dense[1], src, out=out, num_threads=threads)
        assert_same_bits(take(out, room), expected)


COLUMNS = [1, 2, 7, 8, 11, 12, 13, 16, 20, 22, 23, 24, 26, 28, 31, 44, 46, 64]


@pytest.mark.parametrize("beta", [0.75, 0.5, 0.6])
@pytest.mark.parametrize("size", [3, 5, *range(6, 18)])
def test_windows_over_any_number_of_slabs(size, beta, isa):
    """At either end of a column of slabs some of a loop's stages have no work, or all of them where slabs are few; a plane ends
    with a part of a vector. Elements that lie two apart go by another loop, which sums alike."""
    lrn = cynorm.LRN(size, 0.5, beta)
    for channels in COLUMNS:
        src, diff_dst = draw_pair((2, channels, 5, 9), np.dtype(np.float32))
        diff_apart, src_apart = (place(each, Memory(range(4), (1, 1, 1, 2)))[0] for each in (diff_dst, src))
        dst, diff_src = lrn.forward(src), lrn.backward(diff_dst, src)
        assert_forward(dst, src, local_size=size, alpha=0.5, beta=beta)
        assert_backward(diff_src, diff_dst, src, local_size=size, alpha=0.5, beta=beta)
        assert_same_bits(dst, lrn.forward(src_apart))
        assert_same_bits(diff_src, lrn.backward(diff_apart, src_apart))
        in_place = src.copy()
        assert_same_bits(dst, lrn.forward(in_place, out=in_place, num_threads=2))
        assert_same_bits(diff_src, lrn.backward(diff_dst, src, out=diff_dst.copy(), num_threads=2))


@pytest.mark.parametrize("beta", [0.75, 0.5, 0.6])
@pytest.mark.parametrize("size", [10, 11, 12, 13, 15, 17, 19, 21, 23, 25, 27, 29, 30, 31, 33])
def test_windows_by_blocks_or_in_trees(size, beta, isa):
    """Likewise, but planes that are short, or do not lie as columns need them, are summed by blocks; another loop, which sums
    alike, makes what a workspace keeps."""
    lrn = cynorm.LRN(size, 0.5, beta)
    for channels in 16, 17, 18, 20, 22, 26, 28, 30, 32, 34, 36, 38, 44, 52, 66, 67:
        src, diff_dst = draw_pair((1, channels, 13, 21), np.dtype(np.float32))
        workspace = cynorm.Workspace(cache="always")
        dst, diff_src = lrn.forward(src), lrn.backward(diff_dst, src)
        assert_forward(dst, src, local_size=size, alpha=0.5, beta=beta)
        assert_backward(diff_src, diff_dst, src, local_size=size, alpha=0.5, beta=beta)
        assert_same_bits(dst, lrn.forward(src, workspace=workspace))
        assert_same_bits(diff_src, lrn.backward(diff_dst, src, workspace=workspace))
        assert_same_bits(diff_src, lrn.backward(diff_dst, src, out=diff_dst.copy(), num_threads=2))


@pytest.mark.parametrize("dtype, size", [
    *itertools.product((dtype for dtype in reference.DTYPES if dtype.itemsize == 2), (3, 5)),
    *((np.dtype(np.float32), size) for size in (3, 5, 9, 15, 31)),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(3, 64, 41, 39), (5, 96, 9, 37), (1, 96, 56, 57), (1, 120, 47, 143)], ids=str)
def test_columns_of_many_threads(dtype, shape, size, isa):
    """Threads have a part of all planes, or planes of their own; of the last plane, 21 parts, the last one of one pixel. Machines
    on which narrow windows do not go by columns get the same."""
    lrn = cynorm.LRN(size, 0.5)
    src, diff_dst = draw_pair(shape, dtype)
    for run, tensors in (lrn.forward, (src,)), (lrn.backward, (diff_dst, src)):
        with _dispatch.use_far_lines(False):
            expected = run(*tensors, num_threads=1)
        with _dispatch.use_far_lines(True):
            for threads in 1, 3, 8, 32:
                assert_same_bits(run(*tensors, num_threads=threads), expected)


@pytest.mark.parametrize("beta", [0.75, 1.0, 0.6])
@pytest.mark.parametrize("dtype, size, far_lines", [
    *itertools.product((dtype for dtype in reference.DTYPES if dtype.itemsize < 8), (3, 5), (True, False)),
    *((np.dtype(np.float32), size, True) for size in (7, 9, 11, 13, 15, 17, 23, 31)),
    *((np.dtype(np.float32), size, False) for size in (7, 9, 17, 31)),
])  # fmt: skip
def test_columns_past_the_cache(dtype, size, far_lines, beta, isa):
    """A dst that bypasses the cache is the same as within it, wherever its lines begin; in place, no lines bypass it. On a machine
    that fetches far lines slowly, narrow windows go by blocks, and half as much of wide ones bypasses it."""
    lrn = cynorm.LRN(size, 0.5, beta)
    images = (24 if far_lines or size <= 5 else 12) * 4 // dtype.itemsize
    src, diff_dst = draw_pair((images, 48, 41, 23), dtype)
    for offset in 0, 3, 16:
        out, room = place(np.zeros_like(src), Memory(range(4), (1,) * 4, offset))
        for run, tensors in (lrn.forward, (src,)), (lrn.backward, (diff_dst, src)):
            each = [run(*(tensor[image : image + 1] for tensor in tensors)) for image in range(images)]
            with _dispatch.use_far_lines(far_lines):
                run(*tensors, out=out, num_threads=2)
                assert_same_bits(take(out, room), np.concatenate(each))
                copies = [tensor.copy() for tensor in tensors]
                assert_same_bits(run(*copies, out=copies[0], num_threads=2), np.concatenate(each))


@pytest.mark.parametrize("beta", [0.75, 1.0])
@pytest.mark.parametrize("size", [3, 5, 7, 12, 31])
@pytest.mark.parametrize("images, width, channels", [(9, 47, 96), (7, 61, 80), (3, 150, 64), (1, 300, 32), (1, 61, 90)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_pixels(dtype, images, width, channels, size, beta, isa):
    """Channels of pixels are summed as planes are: by parts of rows where their sums do not fit a cache, by vectors that begin
    at lines of dst, wherever these are, and are then parts of two pixels; past the cache by pieces of a row, which are short where
    machines fetch far lines slowly."""
    lrn, of_planes = (cynorm.LRN(size, 0.5, beta, region="within_channel", layout=layout) for layout in ("NHWC", "NCHW"))
    tensors = draw_pair((images, 23, width, channels), np.dtype(dtype))
    planes = [np.ascontiguousarray(tensor.transpose(0, 3, 1, 2)) for tensor in tensors]
    for way in "forward", "backward":
        given = slice(1) if way == "forward" else slice(None, None, -1)
        expected = getattr(of_planes, way)(*planes[given]).transpose(0, 2, 3, 1)
        for offset, threads, far_lines in (0, 1, False), (3, 2, True), (4, 1, False), (16, 3, True):
            out, room = place(np.zeros_like(tensors[0]), Memory(range(4), (1,) * 4, offset))
            with _dispatch.use_far_lines(far_lines):
                getattr(lrn, way)(*tensors[given], out=out, num_threads=threads)
            assert_same_bits(take(out, room), expected)
        copies = [tensor.copy() for tensor in tensors[given]]
        assert_same_bits(getattr(lrn, way)(*copies, out=copies[0], num_threads=2), expected)


@each_dtype
@pytest.mark.parametrize("beta", [0.75, 1.0, 0.6])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("channels", [16, 17, 33, 50, 96, 1040])
@pytest.mark.parametrize("nbytes", [1 << 15, 9 << 18])
def test_runs_of_channels(nbytes, channels, size, beta, dtype, isa):
    """Channels of pixels, one run of memory, are summed as planes are: in the cache or past it, wherever lines of dst begin and
    in whatever lane pixels end; the last ones of a tile, too."""
    pixels = nbytes // channels // dtype.itemsize
    tensors = draw_pair((2, pixels, channels), dtype)
    planes = [np.ascontiguousarray(tensor.transpose(0, 2, 1)) for tensor in tensors]
    lrn, of_planes = (cynorm.LRN(size, 0.5, beta, layout=layout) for layout in ("NWC", "NCW"))
    for way in "forward", "backward":
        given = slice(1) if way == "forward" else slice(None, None, -1)
        expected = np.ascontiguousarray(getattr(of_planes, way)(*planes[given]).transpose(0, 2, 1))
        for offset, threads in (0, 1), (1, 2), (3, 1), (4, 3), (13, 1):
            out, room = place(np.zeros_like(tensors[0]), Memory(range(3), (1,) * 3, offset))
            getattr(lrn, way)(*tensors[given], out=out, num_threads=threads)
            assert_same_bits(take(out, room), expected)
        copies = [tensor.copy() for tensor in tensors[given]]
        assert_same_bits(getattr(lrn, way)(*copies, out=copies[0], num_threads=2), expected)


@each_dtype
@pytest.mark.parametrize("beta", [0.75, 0.6])
@pytest.mark.parametrize("size", [5, 9, 31])
@pytest.mark.parametrize("channels", [32, 192, 528, 1040])
@pytest.mark.parametrize("block", [8, 16])
def test_blocks_of_channels(block, channels, size, beta, dtype, isa):
    """Channels in blocks, which lie a multiple of 4 KB apart or not, are summed like channels of a pixel that follow on."""
    blocked, channels_last = (cynorm.LRN(size, 0.5, beta, layout=layout) for layout in (f"nCw{block}c", "NWC"))
    for pixels in 67, 512:
        tensors = draw_pair((1, pixels, channels), dtype)
        blocks = [np.ascontiguousarray(tensor.reshape(1, pixels, -1, block).swapaxes(1, 2)) for tensor in tensors]
        for way in "forward", "backward":
            given = slice(1) if way == "forward" else slice(None, None, -1)
            expected = getattr(channels_last, way)(*tensors[given]).reshape(1, pixels, -1, block).swapaxes(1, 2)
            for threads in 1, 3:
                assert_same_bits(getattr(blocked, way)(*blocks[given], num_threads=threads), expected)
            copies = [tensor.copy() for tensor in blocks[given]]
            assert_same_bits(getattr(blocked, way)(*copies, out=copies[0], num_threads=2), expected)


@each_dtype
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_output_takes_the_memory_order_of_src(order, dtype):
    """A new output is dense, in the order of src's axes in memory."""
    shape = (3, 5, 4, 6)
    dense = np.zeros([shape[axis] for axis in order], dtype).transpose(np.argsort(order))
    lrn = cynorm.LRN()
    diff_dst = np.zeros(shape, dtype)
    assert lrn.forward(dense).strides == dense.strides
    assert lrn.backward(diff_dst, dense).strides == dense.strides
    double = np.zeros([2 * shape[axis] for axis in order], dtype).transpose(np.argsort(order))
    sliced = double[:3, ::2, :4, 6:]
    assert lrn.forward(sliced).strides == dense.strides
    assert lrn.backward(diff_dst, sliced).strides == dense.strides


def test_implementation(isa):
    """What runs follows from the strides: a view runs the kernel of its memory order, with no copy."""

    def names(layout, src):
        return [cynorm.LRN(layout=layout, region=region).implementation(src) for region in REGIONS]

    for dtype, short in (("float32", "f32"), ("float64", "f64"), ("float16", "f16")):
        plain, channels_last = np.zeros((2, 64, 8, 40), dtype), np.zeros((2, 8, 40, 64), dtype)
        for layout, view in (("NCHW", plain), ("NHWC", plain.transpose(0, 2, 3, 1))):
            assert names(layout, view) == [f"lrn_{way}:plain:{short}:{isa}" for way in ("across", "within")]
        for layout, view in (("NHWC", channels_last), ("NCHW", channels_last.transpose(0, 3, 1, 2))):
            assert names(layout, view) == [
                f"lrn_{way}:channels_last:{short}:{isa}" for way in ("across", "within")
            ]
        blocked = np.zeros((2, 4, 8, 40, 16), dtype)
        assert names("nChw16c", blocked)[0] == f"lrn_across:blocked:{short}:{isa}"
        # volumes of pixels of channels are transposed to planes, whatever a call in place would do
        volumes = np.zeros((1, 16, 16, 16, 32), dtype)
        assert names("NDHWC", volumes)[1] == f"lrn_within:plain:{short}:{isa}"


@each_layout
@each_region
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float16)], ids=str)
def test_in_place(layout, region, dtype):
    """out may be src itself forward, diff_dst or src itself backward."""
    shape = SHAPES[reference.spatial_ndim(layout)]
    channels = channels_argument(layout, shape[1])
    original_src, original_diff = draw_pair(shape, dtype, layout)
    for local_size, view in itertools.product(
        (4, 5), (lambda a: a, lambda a: a[..., ::-1], np.asfortranarray)
    ):
        lrn = cynorm.LRN(local_size, 0.5, region=region, window="onnx", layout=layout, channels=channels)
        expected_dst = lrn.forward(view(original_src.copy()))
        expected_diff = lrn.backward(view(original_diff.copy()), view(original_src.copy()))
        src = view(original_src.copy())
        assert lrn.forward(src, out=src) is src
        assert_same_bits(src, expected_dst)
        for target in ("diff_dst", "src"):
            arrays = {"diff_dst": view(original_diff.copy()), "src": view(original_src.copy())}
            lrn.backward(**arrays, out=arrays[target])
            assert_same_bits(arrays[target], expected_diff, f"out={target}")
        both = view(original_src.copy())
        expected_both = lrn.backward(view(original_src.copy()), view(original_src.copy()))
        lrn.backward(both, both, out=both)
        assert_same_bits(both, expected_both, "out=src=diff_dst")


# Axes with windows that are so long that a thread's scratch is too small for them: layout, region, shape, local_size
LONG_AXES = [
    ("NC", "across_channels", (1, 300_001), 64),
    ("NHWC", "across_channels", (1, 150_001, 2, 1), 41),
    ("NCW", "within_channel", (1, 2, 150_001), 64),
    ("NCHW", "within_channel", (1, 1, 7, 100_001), 12),
    ("NHWC", "within_channel", (1, 3, 5, 30_001), 12),
    ("NCDHW", "within_channel", (1, 1, 4, 300, 301), 10),
    ("NDHWC", "within_channel", (1, 2, 4, 200, 201), 10),
    ("nCw8c", "across_channels", (1, 300_005, 2), 64),
    ("nCw16c", "across_channels", (1, 150_001, 3), 37),
    ("nChw8c", "within_channel", (1, 11, 3, 20_001), 12),
]
each_long_axis = pytest.mark.parametrize("layout, region, shape, size", LONG_AXES)


@each_long_axis
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float16)], ids=str)
def test_long_axes_in_place(layout, region, shape, size, dtype):
    """Their parts follow one another there, and each reads what the last one has overwritten."""
    channels = channels_argument(layout, shape[1])
    src, diff_dst = draw_pair(shape, dtype, layout)
    lrn = cynorm.LRN(size, 0.5, beta=0.6, region=region, layout=layout, channels=channels, window="onnx")
    parameters = {"local_size": size, "alpha": 0.5, "beta": 0.6, "region": region, "window": "onnx"}
    dst, diff_src = lrn.forward(src), lrn.backward(diff_dst, src)
    canonical_src, canonical_diff = (to_canonical(array, layout, channels) for array in (src, diff_dst))
    assert_forward(to_canonical(dst, layout, channels), canonical_src, **parameters)
    assert_backward(to_canonical(diff_src, layout, channels), canonical_diff, canonical_src, **parameters)
    for memory, threads in ("C", 1), ("C", 3), ("F", 1):
        src, diff_dst = src.copy(memory), diff_dst.copy(memory)
        dst, diff_src = lrn.forward(src), lrn.backward(diff_dst, src)
        for target in ("src", "diff_dst"):
            arrays = {"src": src.copy(memory), "diff_dst": diff_dst.copy(memory)}
            lrn.backward(**arrays, out=arrays[target], num_threads=threads)
            assert_same_bits(arrays[target], diff_src, f"out={target}")
        both = src.copy(memory)
        workspace = cynorm.Workspace(cache="always")
        assert_same_bits(lrn.forward(both, out=both, workspace=workspace, num_threads=threads), dst, "dst")
        both = diff_dst.copy(memory)
        lrn.backward(both, src, out=both, workspace=workspace, num_threads=threads)
        if dtype == np.float32:
            assert_same_bits(both, diff_src, "workspace")


def status_kib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for the process's memory")
@each_long_axis
@pytest.mark.parametrize("in_place", [False, True], ids=["to another", "in place"])
def test_scratch_of_long_axes(layout, region, shape, size, in_place):
    """However long they are: axes ten times as long are done by a process that has no memory to spare."""
    code = f"""if True:
        import numpy as np, cynorm, reference, strategies, test_lrn
        shape = tuple(10 * n if n == max({shape}) else n for n in {shape})
        channels = strategies.channels_argument({layout!r}, shape[1])
        lrn = cynorm.LRN({size}, region={region!r}, layout={layout!r}, channels=channels)
        src = reference.from_canonical(np.ones(shape, np.float32), {layout!r})
        diff_dst = src.copy()
        out = diff_dst if {in_place} else src * 2
        before = test_lrn.status_kib("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")
        lrn.forward(src, out=out, num_threads=1)
        lrn.backward(diff_dst, src, out=out, num_threads=1)
        print(test_lrn.status_kib("VmHWM") - before)
    """
    here = os.path.dirname(__file__)
    printed = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True).stdout
    assert int(printed) < 6 * 1024


@each_region
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_in_place_large(region, layout):
    """In place, on a tensor of many tiles, with several threads."""
    src, diff_dst = draw_pair((2, 64, 40, 41), np.dtype(np.float32), layout)
    lrn = cynorm.LRN(6, 0.5, region=region, layout=layout, window="torch")
    expected_dst, expected_diff = lrn.forward(src), lrn.backward(diff_dst, src)
    for target in ("diff_dst", "src"):
        arrays = {"diff_dst": diff_dst.copy(), "src": src.copy()}
        lrn.backward(**arrays, out=arrays[target], num_threads=3)
        assert_same_bits(arrays[target], expected_diff, f"out={target}")
    assert_same_bits(lrn.forward(src, out=src, num_threads=3), expected_dst)


def test_interleaved_memory_is_no_overlap():
    """src and out may share a buffer when no element is shared."""
    buffer = np.zeros((2, 8, 3, 8), np.float32)
    src, out = buffer[..., ::2], buffer[..., 1::2]
    src[...] = draw_pair((2, 8, 3, 4), np.dtype(np.float32))[0]
    assert_same_bits(cynorm.LRN().forward(src, out=out), cynorm.LRN().forward(src.copy()))


@each_layout
@each_region
@each_dtype
def test_zero_sized(layout, region, dtype):
    """A tensor without elements gives one without elements, whichever axis is empty."""
    for empty in range(2 + reference.spatial_ndim(layout)):
        shape = list((2, 16, 3, 2, 4)[: 2 + reference.spatial_ndim(layout)])
        shape[empty] = 0
        src, diff_dst = draw_pair(tuple(shape), dtype, layout)
        lrn = cynorm.LRN(region=region, layout=layout)
        workspace = cynorm.Workspace()
        assert lrn.forward(src, workspace=workspace).shape == src.shape
        assert lrn.backward(diff_dst, src, workspace=workspace).shape == src.shape
        assert lrn.backward(diff_dst, src, out=np.empty_like(src)).shape == src.shape


def test_lists():
    """Nested lists of floats are arrays of float64, as for NumPy."""
    rows, gradients = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[0.5, 0.0, 1.0], [1.0, 1.0, 2.0]]
    lrn = cynorm.LRN(3, 1.0, layout="NC")
    dst = lrn.forward(rows)
    assert dst.dtype == np.float64
    assert_same_bits(dst, lrn.forward(np.array(rows)))
    assert_same_bits(lrn.backward(gradients, rows), lrn.backward(np.array(gradients), np.array(rows)))


# ------------------------------------------------------------------------------------------------------------
# Values at the edge


def assert_special(value, layout, region, local_size, window):
    """One special value in src, then in diff_dst: what it reaches and what it does not."""
    shape = (1, 33, 6, 19)
    parameters = {"local_size": local_size, "alpha": 1.0, "region": region, "window": window}
    lrn = cynorm.LRN(layout=layout, **parameters)
    clean_src, clean_diff = draw_pair(shape, np.dtype(np.float32))
    for where in ((0, 16, 3, 9), (0, 0, 0, 0), (0, 32, 5, 18)):
        src, diff_dst = clean_src.copy(), clean_diff.copy()
        src[where] = value
        reached = lrn_reach(where, shape, local_size, region, window)
        dst = to_canonical(lrn.forward(from_canonical(src, layout)), layout)
        clean_dst = to_canonical(lrn.forward(from_canonical(clean_src, layout)), layout)
        assert_forward(dst, src, **parameters)
        assert_same_bits(dst[~reached], clean_dst[~reached], "outside the windows")
        for array, spoilt in ((src, "src"), (diff_dst, "diff_dst")):
            arrays = {"src": clean_src, "diff_dst": clean_diff}
            array = arrays[spoilt].copy()
            array[where] = value
            arrays[spoilt] = array
            diff_src = lrn.backward(**{name: from_canonical(array, layout) for name, array in arrays.items()})
            diff_src = to_canonical(diff_src, layout)
            clean = lrn.backward(from_canonical(clean_diff, layout), from_canonical(clean_src, layout))
            reached = lrn_reach(where, shape, local_size, region, window, backward=spoilt)
            assert_backward(diff_src, arrays["diff_dst"], arrays["src"], **parameters)
            assert_same_bits(diff_src[~reached], to_canonical(clean, layout)[~reached], f"outside, {spoilt}")


def lrn_reach(where, shape, local_size, region, window, backward=None):
    """The elements whose result depends on element `where` of src (forward), or of `backward`."""
    left, right = reference.window_reach(local_size, window)
    axes = reference.window_axes(len(shape), region)
    mark = np.zeros(shape)
    mark[where] = 1
    if backward == "diff_dst":
        return reference.window_sum(mark, axes, right, left) > 0
    omegas = reference.window_sum(mark, axes, left, right) > 0
    return omegas if backward is None else reference.window_sum(omegas * 1.0, axes, right, left) + omegas > 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e18, -1e18], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@each_region
@pytest.mark.parametrize(
    "local_size, window", [(5, "onednn"), (4, "onnx"), (4, "torch"), (9, "onednn"), (31, "onnx")]
)
def test_special_values_stay_within_their_windows(value, layout, region, local_size, window):
    assert_special(value, layout, region, local_size, window)


@each_dtype
@each_region
@each_layout
def test_infinity_in_every_layout_and_dtype(dtype, region, layout):
    """A NaN and an infinity in one tensor, against the oracle."""
    shape = (2, 21, 9, 11, 8)[: 2 + reference.spatial_ndim(layout)]
    channels = channels_argument(layout, shape[1])
    parameters = {"local_size": 3, "alpha": 1.0, "region": region}
    lrn = cynorm.LRN(layout=layout, channels=channels, **parameters)
    rng = np.random.default_rng(0)
    src, diff_dst = (random_values(rng, shape, dtype) for _ in range(2))
    src[(0, 2) + (0,) * (src.ndim - 2)] = np.nan
    src[(1, 19) + (7,) * (src.ndim - 2)] = np.inf
    dst = lrn.forward(from_canonical(src, layout, np.nan))
    assert_forward(to_canonical(dst, layout, channels), src, **parameters)
    diff_src = lrn.backward(from_canonical(diff_dst, layout, np.nan), from_canonical(src, layout, np.nan))
    assert_backward(to_canonical(diff_src, layout, channels), diff_dst, src, **parameters)


@each_dtype
@each_region
@pytest.mark.parametrize("layout, channels", [("NCHW", 19), ("NHWC", 19), ("NHWC", 24)])
@pytest.mark.parametrize("local_size", [3, 5])
@pytest.mark.parametrize("value", [np.inf, 0.0], ids=str)
@pytest.mark.parametrize("beta", [0.75, 0.6])
def test_powers_to_mend_in_any_vector(beta, value, local_size, layout, channels, region, dtype, isa):
    """Loops leave off where a power is to be mended, of an infinity or of 0, and go on behind it."""
    parameters = {"local_size": local_size, "alpha": 1.0, "beta": beta, "k": 1.0 if value else 0.0, "region": region}
    lrn = cynorm.LRN(layout=layout, **parameters)
    src, diff_dst = draw_pair((1, channels, 4, 75), dtype)
    clean = (np.sign(src) * (1 + np.abs(src))).astype(dtype)

    def run(src):
        memory, diff = from_canonical(src, layout), from_canonical(diff_dst, layout)
        return to_canonical(lrn.forward(memory), layout), to_canonical(lrn.backward(diff, memory), layout)

    clean_dst, clean_diff = run(clean)
    for places in ([0], [40], [31, 32, 33], [0, 16, 17, 50, 74], [68, 74], list(range(0, 75, 7))):
        where = (0, 9, 2, places)
        if not value:  # a zero is mended only where the whole window is zero
            where = (0, slice(None), 2, places) if region == "across_channels" else (0, places[0] % 19)
        src = clean.copy()
        src[where] = value
        dst, diff_src = run(src)
        assert_forward(dst, src, **parameters)
        assert_backward(diff_src, diff_dst, src, **parameters)
        reached = lrn_reach(where, src.shape, local_size, region, "onednn")
        assert_same_bits(dst[~reached], clean_dst[~reached], "outside the windows")
        reached = lrn_reach(where, src.shape, local_size, region, "onednn", backward="src")
        assert_same_bits(diff_src[~reached], clean_diff[~reached], "outside the windows, backward")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@each_region
@pytest.mark.parametrize("dtype, beta", [(np.float32, 0.75), (np.float32, 0.6), (np.float16, 0.75)])
@pytest.mark.parametrize("width", [183, 184], ids=["across lines", "at lines"])
def test_powers_to_mend_past_the_cache(width, dtype, beta, region, layout, isa):
    """The same, in a tensor whose results bypass the cache."""
    shape, local_size = (2, 32, 182, width), 5
    rng = np.random.default_rng(0)
    clean, diff_dst = (rng.standard_normal(shape, np.float32).astype(dtype) for _ in range(2))
    where = tuple(rng.integers(0, extent, 40) for extent in shape)
    src = clean.copy()
    src[where] = np.inf
    lrn = cynorm.LRN(local_size, alpha=1.0, beta=beta, layout=layout, region=region)
    results = [
        [to_canonical(result, layout) for result in (lrn.forward(memory), lrn.backward(diff, memory))]
        for memory, diff in ([from_canonical(array, layout) for array in (each, diff_dst)] for each in (clean, src))
    ]
    for backward, (whole, spoilt) in zip((None, "src"), zip(*results, strict=True), strict=True):
        reached = lrn_reach(where, shape, local_size, region, "onednn", backward=backward)
        assert_same_bits(spoilt[~reached], whole[~reached], f"outside the windows, {backward}")
    dst = results[1][0]
    mended = lrn_reach(where, shape, local_size, region, "onednn") & np.isfinite(src)
    assert np.isnan(dst[where]).all() and (dst[mended] == 0).all()


@pytest.mark.parametrize("alpha, size", [(1.0, 1e18), (1e-4, 1e18), (1e-30, 1e18), (1e20, 1e8), (1e30, 1e-3)])
@pytest.mark.parametrize("diff_size", [1, 1e-6], ids="diff{}".format)
def test_all_huge(alpha, size, diff_size, isa):
    """Where values are huge, omega may be near the top of float32 and its powers near the bottom; alpha scales the terms."""
    for region, layout in itertools.product(REGIONS, ("NCHW", "NHWC")):
        parameters = {"local_size": 5, "alpha": alpha, "region": region}
        src, diff_dst = draw_pair((1, 20, 4, 5), np.dtype(np.float32), layout)
        src *= np.float32(size)
        diff_dst *= np.float32(diff_size)
        lrn = cynorm.LRN(layout=layout, **parameters)
        arrays = (lrn.forward(src), lrn.backward(diff_dst, src), diff_dst, src)
        dst, diff_src, diff_dst, src = (to_canonical(array, layout) for array in arrays)
        assert_forward(dst, src, **parameters)
        assert_backward(diff_src, diff_dst, src, **parameters)


@pytest.mark.parametrize("dtype", [dtype for dtype in reference.DTYPES if dtype != np.float16], ids=str)
@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0, 0.3])
def test_omega_whose_reciprocal_is_subnormal(beta, dtype, isa):
    """Estimates of such a reciprocal may be flushed to 0; no square of float16 is so large."""
    largest = math.sqrt(float(np.finfo(reference.compute_dtype(dtype)).max))
    for layout, region in itertools.product(("NCHW", "NHWC"), REGIONS):
        src, _ = draw_pair((1, 9, 4, 21), dtype, layout)
        src = (np.sign(reference.wide(src)) * largest * np.linspace(0.3, 0.9, src.size).reshape(src.shape)).astype(dtype)
        parameters = {"local_size": 1, "alpha": 1.0, "beta": beta, "k": 0.0, "region": region}
        lrn = cynorm.LRN(layout=layout, **parameters)
        dst = lrn.forward(src)
        assert (reference.wide(dst) != 0).all()
        assert_forward(to_canonical(dst, layout), to_canonical(src, layout), **parameters)


@pytest.mark.parametrize("dtype, size, beta", [
    (np.float32, 1e17, 1.5), (np.float32, 1e10, 2.2), (np.float32, 1e6, 3.2), (np.float64, 1e100, 2.0),
])  # fmt: skip
def test_powers_below_what_their_product_with_src_is(dtype, size, beta, isa):
    for layout, region in itertools.product(("NCHW", "NHWC"), REGIONS):
        src, diff_dst = draw_pair((1, 9, 4, 21), np.dtype(dtype), layout)
        src, diff_dst = (np.copysign(dtype(size), src) * (1 + np.abs(src)), np.copysign(dtype(size), diff_dst))
        parameters = {"local_size": 3, "alpha": 1.0, "beta": beta, "region": region}
        lrn = cynorm.LRN(layout=layout, **parameters)
        arrays = (lrn.forward(src), lrn.backward(diff_dst, src), diff_dst, src)
        dst, diff_src, diff_dst, src = (to_canonical(array, layout) for array in arrays)
        assert (np.abs(dst) > np.finfo(dtype).smallest_normal).all()
        assert_forward(dst, src, **parameters)
        assert_backward(diff_src, diff_dst, src, **parameters)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_at_the_ends_of_the_range(dtype, isa):
    """Of any exponent; src brings results back to the middle of it."""
    top = np.finfo(dtype).maxexp - 1
    powers = np.linspace(top - 3, top + 3, 301)  # log2 of omega^|beta|
    for beta, sign in itertools.product(np.arange(1.25, 128, 0.25), (1, -1)):
        alpha = min(top / beta - sign * (top - 10), top - 5)  # log2 of it
        src = 2 ** ((powers / beta - alpha) / 2).astype(dtype).reshape(1, 1, 1, -1)
        parameters = {"local_size": 1, "alpha": 2.0**alpha, "beta": sign * beta, "k": 0.0}
        dst = cynorm.LRN(**parameters).forward(src)
        assert (np.abs(dst) > np.finfo(dtype).smallest_normal).all()
        assert_forward(dst, src, **parameters)


@pytest.mark.parametrize("dtype, size, beta", [
    (np.float32, 1e7, 3.0), (np.float32, 1e5, 4.0), (np.float64, 1e60, 3.0), (np.float64, 1e43, 4.0),
])  # fmt: skip
def test_powers_of_negative_sums(dtype, size, beta, isa):
    """They have only whole exponents, odd and even; powers out of range are so with src, too."""
    src = np.linspace(size, 2 * size, 40, dtype=dtype).reshape(1, 1, 1, 40)
    parameters = {"local_size": 1, "alpha": -1.0, "beta": beta, "k": 0.0}
    dst = cynorm.LRN(**parameters).forward(src)
    assert (np.abs(dst) > np.finfo(dtype).smallest_normal).all()
    assert_forward(dst, src, **parameters)
    assert np.isnan(cynorm.LRN(**parameters | {"beta": beta + 0.5}).forward(src)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("beta", [-3.0, -0.6, 0.5, 0.6, 0.75, 1.0, 2.0, 3.0, 200.5])
def test_powers_of_infinite_sums(beta, dtype, isa):
    """Of either sign they are what pow has for them, 0 or infinite."""
    src = np.full((1, 3, 1, 8), 1.5, dtype)
    src[0, 0] = np.inf
    for alpha in (3.0, -3.0):
        dst = cynorm.LRN(3, alpha=alpha, beta=beta).forward(src)[0, 1]
        expected = dtype(1.5) * np.power(dtype(alpha * np.inf), -beta)
        assert (dst == expected).all() and (np.signbit(dst) == np.signbit(expected)).all()


@pytest.mark.parametrize("dtype, size, diff_size, beta", [
    (np.float32, 1e4, 1, -3.0), (np.float32, 1e9, 1, -2.0), (np.float32, 1e18, 1, -1.0), (np.float32, 3e17, 1e-20, -0.5),
    (np.float32, 1e18, 1e-6, -0.1), (np.float32, 1e18, 1e-6, 0.4), (np.float32, 1e17, 1e-2, 1.0), (np.float32, 1, 1e30, 0.3),
    (np.float64, 1e150, 1, -1.0), (np.float64, 1e75, 1, -2.0), (np.float64, 1e150, 1e-6, 1.0), (np.float64, 1e140, 1e-6, 0.5),
])  # fmt: skip
def test_terms_far_from_one(dtype, size, diff_size, beta, isa):
    """With a negative exponent terms are large, with a large one small."""
    for layout, region in itertools.product(("NCHW", "NHWC"), REGIONS):
        parameters = {"local_size": 5, "alpha": 0.1, "beta": beta, "region": region}
        src, diff_dst = draw_pair((1, 20, 4, 5), np.dtype(dtype), layout)
        src *= dtype(size)
        diff_dst *= dtype(diff_size)
        diff_src = cynorm.LRN(layout=layout, **parameters).backward(diff_dst, src)
        assert np.isfinite(diff_src).all()
        assert_backward(*(to_canonical(array, layout) for array in (diff_src, diff_dst, src)), **parameters)


@pytest.mark.parametrize("large, value, beta", [
    (1e12, 1e-20, -2.0), (1e10, 7e-44, -1.5), (1e18, 1e-38, -3.0), (1e18, 0.0, -3.0), (1e4, 1e4, 3.0), (1e18, 1e18, 2.6),
])  # fmt: skip
def test_powers_above_what_their_product_with_src_is(large, value, beta, isa):
    src = np.array([[large, value, large]], np.float32)
    dst = cynorm.lrn(src, 3, 3.0, beta, layout="NC")
    with np.errstate(over="ignore"):
        expected = np.float32(float(src[0, 1]) * (1 + 2.0 * large**2 + float(value) ** 2) ** -beta)
    np.testing.assert_allclose(dst[0, 1], expected, rtol=1e-6)


def test_subnormal_values_are_kept():
    """Subnormal values go in and come out on every thread: nothing is flushed to zero."""
    for dtype, layout in itertools.product((np.float32, np.float64), ("NCHW", "NHWC")):
        src = np.full((1, 32, 32, 64), 20 * np.finfo(dtype).smallest_subnormal, dtype)
        assert_same_bits(cynorm.LRN(layout=layout).forward(src, num_threads=3), src)
        assert_same_bits(cynorm.LRN(layout=layout).backward(src, src, num_threads=3), src)


@pytest.mark.parametrize("dtype, size, beta", [
    (np.float32, 1e-10, 0.5), (np.float32, 1e-10, 0.75), (np.float32, 1e-8, 1.0), (np.float64, 1e-80, 0.75),
])  # fmt: skip
def test_tiny_values_where_k_is_zero(beta, dtype, size, isa):
    """Terms are far above the gradient that they give."""
    for region, layout in itertools.product(REGIONS, ("NCHW", "NHWC")):
        parameters = {"local_size": 5, "alpha": 1e-4, "beta": beta, "k": 0.0, "region": region}
        src, diff_dst = draw_pair((1, 20, 4, 5), np.dtype(dtype), layout)
        src = (src + np.sign(src)) * dtype(size)
        diff_src = cynorm.LRN(layout=layout, **parameters).backward(diff_dst, src)
        diff_src, diff_dst, src = (to_canonical(array, layout) for array in (diff_src, diff_dst, src))
        assert_backward(diff_src, diff_dst, src, **parameters)


def test_interleaved_outputs():
    """Elements that lie apart though no order of the axes has each step over the smaller ones."""
    src, _ = draw_pair((1, 8, 3, 2), np.dtype(np.float32))
    memory = np.full(130, 7, np.float32)
    out = np.lib.stride_tricks.as_strided(memory, src.shape, (4, 64, 8, 12))
    written = {16 * c + 2 * h + 3 * w for c, h, w in np.ndindex(8, 3, 2)}
    assert cynorm.LRN().forward(src, out=out) is out
    assert_same_bits(out, cynorm.lrn(src))
    assert (memory[[i for i in range(130) if i not in written]] == 7).all()
    with pytest.raises(ValueError, match="out must not overlap itself"):
        cynorm.lrn(src, out=np.lib.stride_tricks.as_strided(memory, src.shape, (4, 64, 8, 16)))
    many = np.lib.stride_tricks.as_strided(np.empty(2_000_008, np.float32), (1, 1, 2, 600_000), (0, 0, 12, 8))
    with pytest.raises(ValueError, match="itself, nor interleave more than 1048576 elements, got strides"):
        cynorm.lrn(np.ones(many.shape, np.float32), out=many)


def test_zero_omega():
    """k = 0 over a window of zeros is 0 * inf, as the formula says; the windows beside it are as ever."""
    src = np.zeros((1, 12), np.float32)
    src[0, 6:] = 2
    parameters = {"local_size": 3, "alpha": 1.0, "k": 0.0}
    dst = cynorm.LRN(layout="NC", **parameters).forward(src)
    assert np.isnan(dst[0, :5]).all() and not np.isnan(dst[0, 6:]).any()
    assert_forward(dst, src, **parameters)


@each_dtype
@pytest.mark.parametrize("local_size", [3, 5, 9])
def test_zero_omega_beyond_the_channels(local_size, dtype, isa):
    """With k = 0, omega would be 0 next to outer channels of zeros, where no channel is: no NaN comes from there."""
    zeros = local_size // 2
    for layout, width in itertools.product(("NCHW", "NHWC"), (5, 40)):
        src, diff_dst = draw_pair((1, 4 * local_size, 2, width), dtype, layout)
        canonical = to_canonical(src, layout)
        canonical[:, :zeros] = canonical[:, -zeros:] = 0
        src = from_canonical(canonical, layout)
        parameters = {"local_size": local_size, "alpha": 1.0, "k": 0.0}
        diff_src = cynorm.LRN(layout=layout, **parameters).backward(diff_dst, src)
        assert_backward(to_canonical(diff_src, layout), to_canonical(diff_dst, layout), canonical, **parameters)


@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0, 0.3])
def test_negative_alpha(beta):
    """Where alpha < 0 the bound holds for what is subtracted; a negative omega has no real power."""
    src, _ = draw_pair((2, 40, 3, 5), np.dtype(np.float64))
    parameters = {"local_size": 5, "alpha": -1.0, "beta": beta, "k": 1.0}
    omega = reference.lrn_omega(src, **parameters)
    lrn = cynorm.LRN(**parameters)
    dst, expected = lrn.forward(src), reference.lrn_forward(src, **parameters)
    if beta != 1.0:
        assert (omega < 0).any()
        np.testing.assert_array_equal(np.isnan(dst), omega < 0)
    condition = np.maximum(1, (2 - omega) / np.abs(omega))  # k + |alpha / n| * sum, over omega
    assert_within(dst, expected, 4 * condition * ulp(expected, dst.dtype))


# ------------------------------------------------------------------------------------------------------------
# Sizes that take other paths


@functools.cache
def large_problem(layout, dtype):
    """src and diff_dst larger than most second-level caches, and the last image of each."""
    src, diff_dst = draw_pair((4, 96, 60, 61), np.dtype(dtype), layout)
    last = [to_canonical(array[-1:], layout) for array in (src, diff_dst)]
    return src, diff_dst, *last


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_larger_than_the_cache(layout):
    """Large outputs are written around the cache: the result is that of a small tensor, image by image."""
    src, diff_dst, last_src, last_diff = large_problem(layout, "float32")
    parameters = {"local_size": 5, "alpha": 1.0}
    lrn = cynorm.LRN(layout=layout, **parameters)
    out = np.empty_like(src)
    lrn.forward(src, out=out)
    for image in range(len(src)):
        assert_same_bits(out[image], lrn.forward(src[image : image + 1])[0], f"image {image}")
    assert_forward(to_canonical(out[-1:], layout), last_src, **parameters)
    lrn.backward(diff_dst, src, out=out)
    for image in range(len(src)):
        expected = lrn.backward(diff_dst[image : image + 1], src[image : image + 1])[0]
        assert_same_bits(out[image], expected, f"image {image}")
    assert_backward(to_canonical(out[-1:], layout), last_diff, last_src, **parameters)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape, layout", [((1, 2, 2**15, 2**15 + 1), "NCHW"), ((2**15, 2**15 + 1, 1, 2), "NHWC")]
)
def test_more_than_2_to_the_31_elements(shape, layout):
    """64-bit indices: a float16 tensor of 4 GiB, its source repeated along one axis without memory."""
    if available_bytes() < 6 * 2**30:
        pytest.skip("needs 6 GiB of free memory")
    repeated_axis = 2 if layout == "NCHW" else 0
    small_shape = [1 if axis == repeated_axis else extent for axis, extent in enumerate(shape)]
    small = random_values(np.random.default_rng(0), small_shape, np.dtype(np.float16))
    src = np.broadcast_to(small, shape)
    out = np.empty(shape, np.float16)
    lrn = cynorm.LRN(3, 1.0, layout=layout)
    for call in (lrn.forward, lambda src, out=None: lrn.backward(src, src, out=out)):
        expected = bits(call(small))
        out[...] = np.nan
        call(src, out=out)
        for index in range(shape[repeated_axis]):
            rows = bits(np.take(out, [index], axis=repeated_axis))
            assert np.array_equal(rows, expected), f"index {index} along axis {repeated_axis}"


# ------------------------------------------------------------------------------------------------------------
# The operator as a value


def test_value_semantics():
    """LRNs are equal by their parameters, hash alike, survive pickling, print themselves and never change."""
    conventions = {"region": "within_channel", "layout": "NHWC", "window": "torch"}
    lrn = cynorm.LRN(4, 0.5, 0.6, 2.0, **conventions, divisor=3.0)
    same = cynorm.LRN(np.int64(4), np.float64(0.5), 0.6, 2, **conventions, divisor=3)
    assert lrn == same and hash(lrn) == hash(same)
    assert pickle.loads(pickle.dumps(lrn)) == lrn
    assert {lrn: 1}[same] == 1
    assert lrn != cynorm.LRN(4) and lrn != 4 and cynorm.LRN() != cynorm.LRN(layout="NHWC")
    assert lrn == mock.ANY and weakref.ref(lrn)() is lrn
    assert cynorm.LRN(layout="nChw8c", channels=5) != cynorm.LRN(layout="nChw8c")
    assert eval(repr(lrn), {"LRN": cynorm.LRN, "cynorm": cynorm}) == lrn
    with pytest.raises(AttributeError):
        lrn.alpha = 1.0
    assert (lrn.local_size, lrn.alpha, lrn.beta, lrn.k) == (4, 0.5, 0.6, 2.0)
    assert "alpha=0.0" in repr(cynorm.LRN(alpha=-0.0))
    assert (lrn.region, lrn.layout, lrn.window, lrn.divisor) == ("within_channel", "NHWC", "torch", 3.0)


class _Layout(str, enum.Enum):
    CHANNELS_LAST = "NHWC"


class _OwnLRN(cynorm.LRN):
    __slots__ = ()


class _PlainLRN(cynorm.LRN):
    pass


@pytest.mark.parametrize("made", [_OwnLRN, _PlainLRN])
def test_subclasses(made):
    """They have the parameters of LRN, each once."""
    own = made(7, alpha=0.5)
    assert own == made(7, alpha=0.5) != made(5) and own != cynorm.LRN(7, alpha=0.5)
    assert repr(own) == repr(cynorm.LRN(7, alpha=0.5)).replace("LRN", made.__name__)
    assert pickle.loads(pickle.dumps(own)) == own


def test_layouts_that_are_members_of_enumerations():
    """Such a layout is its value."""
    for operator in cynorm.LRN, cynorm.BatchNorm:
        made = operator(layout=_Layout.CHANNELS_LAST)
        assert made == operator(layout="NHWC") == pickle.loads(pickle.dumps(made)) and made.layout == "NHWC"
        assert type(made.layout) is str


def test_calls_leave_no_cycles():
    """What a call has made is gone with it, and no garbage collection needed."""
    src = np.ones((1, 8, 3, 3), np.float32)
    gc.collect()
    for _ in range(10):
        cynorm.lrn(src)
        cynorm.lrn_backward(src, src)
        cynorm.batch_norm(src)
    assert gc.collect() == 0


def test_pickled_operator_computes_the_same():
    src, _ = draw_pair((2, 8, 3, 4), np.dtype(np.float32))
    lrn = cynorm.LRN(3, 1.0)
    assert_same_bits(pickle.loads(pickle.dumps(lrn)).forward(src), lrn.forward(src))


def test_misaligned_memory():
    """Elements at addresses that are no multiple of their size."""
    src, _ = draw_pair((2, 9, 3, 4), np.dtype(np.float32))
    raw = np.zeros(src.nbytes + 1, np.uint8)
    shifted = raw[1:].view(np.float32).reshape(src.shape)
    shifted[...] = src
    assert not shifted.flags.aligned
    assert_same_bits(cynorm.LRN().forward(shifted), cynorm.LRN().forward(src))
    record = np.zeros(src.shape, np.dtype([("tag", "u1"), ("value", "f4")]))
    record["value"] = src
    assert_same_bits(cynorm.LRN().forward(record["value"]), cynorm.LRN().forward(src))


@pytest.mark.parametrize("size", [5, 12, 31])
@pytest.mark.parametrize("layout, shape", [("NCHW", (24, 48, 41, 47)), ("NHWC", (24, 41, 47, 48))])
@each_region
def test_misaligned_dst_past_the_cache(region, layout, shape, size, isa):
    src, diff_dst = draw_pair(shape, np.dtype(np.float32))
    lrn = cynorm.LRN(size, region=region, layout=layout)
    raw = np.zeros(src.nbytes + 64, np.uint8)
    begin = (21 - raw.ctypes.data) % 64  # within a line, as the loops for such arrays expect, but between two elements
    out = raw[begin : begin + src.nbytes].view(np.float32).reshape(shape)
    assert not out.flags.aligned
    for run, tensors in (lrn.forward, (src,)), (lrn.backward, (diff_dst, src)):
        assert_same_bits(run(*tensors, out=out), run(*tensors))


@pytest.mark.parametrize("local_size", [5, 17])
@pytest.mark.parametrize("first", [0, 1])
def test_dst_misaligned_along_an_outer_axis_past_the_cache(first, local_size, isa):
    """Some tiles begin between elements, others do not: all are taken by one loop, which has scratch for them."""
    large = np.random.default_rng(0).standard_normal((3, 16, 4, 21, 301), np.float32)
    src = large[:, :, :, :20, :300]  # its axes do not merge
    diff_dst = np.ones(src.shape, np.float32)
    images = np.zeros(4, np.dtype([("before", f"i{1 if first else 4}"), ("image", "f4", src.shape[1:]), ("after", "i1")]))
    out = images["image"][:3]
    lrn = cynorm.LRN(local_size, layout="NCDHW")
    for run, tensors in (lrn.forward, (src,)), (lrn.backward, (diff_dst, src)):
        expected = run(*tensors)
        for _ in range(3):  # what goes beyond the scratch is the heap's
            run(*tensors, out=out, num_threads=1)
        assert_same_bits(np.ascontiguousarray(out), np.ascontiguousarray(expected))


def test_memory_dataclass_guard_is_written_by_place():
    """The guard around placed arrays notices a write: `take` can fail."""
    view, buffer = place(np.zeros((2, 3), np.float32), Memory((1, 0), (2, -1), 3, 1))
    buffer[0] = 5
    with pytest.raises(AssertionError, match="around"):
        take(view, buffer)
