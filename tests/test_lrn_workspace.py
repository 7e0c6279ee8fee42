"""The workspace: the same results with and without, and what it refuses."""

import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cynorm
import reference
from reference import from_canonical
from strategies import assert_same_bits, draw_pair, lrn_problems, orders, place, random_values

pytestmark = pytest.mark.usefixtures("isa")

each_cache = pytest.mark.parametrize("cache", ["auto", "always", "never"])


def draw(shape, dtype=np.float32, seed=0):
    """Random values."""
    return random_values(np.random.default_rng(seed), shape, np.dtype(dtype))


@given(lrn_problems(), st.sampled_from(("auto", "always", "never")))
@settings(max_examples=40)
def test_drawn(problem, cache):
    """Bit for bit for float32 and float64; half types may keep rounded intermediates, within their bound."""
    values, gradients = draw_pair(problem.shape, problem.dtype, problem.layout, problem.seed, problem.kind)
    src, _ = place(values, problem.src)
    diff_dst, _ = place(gradients, problem.diff_dst)
    lrn = cynorm.LRN(layout=problem.layout, channels=problem.channels, **problem.parameters)
    workspace = cynorm.Workspace(cache=cache)
    dst = lrn.forward(src, workspace=workspace, num_threads=problem.num_threads)
    assert_same_bits(dst, lrn.forward(src), "forward")
    cached = lrn.backward(diff_dst, src, workspace=workspace, num_threads=problem.num_threads)
    recomputed = lrn.backward(diff_dst, src)
    if problem.dtype.itemsize >= 4:
        assert_same_bits(cached, recomputed, "backward")
    else:
        expected = reference.wide(recomputed)
        reference.assert_within(cached, expected, 2 * reference.ulp(expected, problem.dtype), "backward")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [2, 3, 5, 9])
@pytest.mark.parametrize("layout", ["NHWC", "NCDHW"])
@pytest.mark.parametrize("width", [17, 23, 37, 55])
def test_vectors_across_rows(width, size, dtype, layout):
    """Rows that are no whole vectors, and windows that leave less than a vector between them: omega keeps both rows."""
    shape = (2, 5, 3, width) if layout == "NHWC" else (2, 2, 3, 7, width)
    src, diff_dst = (draw(shape, dtype, seed) for seed in (1, 2))
    lrn = cynorm.LRN(size, 1.0, region="across_channels" if layout == "NHWC" else "within_channel", layout=layout)
    workspace = cynorm.Workspace(cache="always")
    lrn.forward(src, workspace=workspace)
    assert_same_bits(lrn.backward(diff_dst, src, workspace=workspace), lrn.backward(diff_dst, src))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("region", ["across_channels", "within_channel"])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 70), st.integers(1, 5), st.integers(1, 40)),
    st.lists(orders(4), min_size=4, max_size=4),
    st.integers(10, 70),
    st.booleans(),
)
def test_wide_windows_in_any_order(region, dtype, shape, memories, size, supplied):
    """Where the order of summation depends on how tensors lie, omega has the order that backward would take without it."""
    values = *(draw(shape, dtype, seed) for seed in range(3)), np.zeros(shape, dtype)
    src, diff_dst, dst, out = (place(array, memory)[0] for array, memory in zip(values, memories, strict=True))
    lrn = cynorm.LRN(size, 1.0, region=region)
    workspace = cynorm.Workspace(cache="always")
    assert_same_bits(lrn.forward(src, out=out, workspace=workspace).copy(), lrn.forward(src, out=out), "forward")
    for like in out, None:
        call = {"out": like, "dst": dst if supplied else None}
        kept = lrn.backward(diff_dst, src, workspace=workspace, **call).copy()
        assert_same_bits(kept, lrn.backward(diff_dst, src, **call), "backward")


@each_cache
@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
@pytest.mark.parametrize("region", ["across_channels", "within_channel"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c", "nChw16c"])
def test_every_kind(cache, dtype, region, layout):
    src, diff_dst = (from_canonical(draw((2, 48, 14, 15), dtype, seed), layout) for seed in (1, 2))
    lrn = cynorm.LRN(4, 1.0, region=region, layout=layout, window="onnx")
    workspace = cynorm.Workspace(cache=cache)
    lrn.forward(src, workspace=workspace)
    cached, recomputed = lrn.backward(diff_dst, src, workspace=workspace), lrn.backward(diff_dst, src)
    if dtype.itemsize >= 4:
        assert_same_bits(cached, recomputed)
    else:
        expected = reference.wide(recomputed)
        reference.assert_within(cached, expected, 2 * reference.ulp(expected, dtype))
    # dst= works beside a workspace too
    dst = lrn.forward(src)
    given, without = (lrn.backward(diff_dst, src, dst=dst, workspace=w) for w in (workspace, None))
    if dtype.itemsize >= 4:
        assert_same_bits(given, without, "dst=")


def test_what_it_holds():
    """`nbytes` and `contents` say what is kept; `workspace_nbytes` is what "auto" keeps."""
    src = draw((2, 16, 5, 6))
    lrn = cynorm.LRN()
    for cache in ("auto", "always", "never"):
        workspace = cynorm.Workspace(cache=cache)
        assert workspace.cache == cache
        assert workspace.nbytes == 0 and len(workspace.contents) == 0
        lrn.forward(src, workspace=workspace)
        assert (workspace.nbytes > 0) == (len(workspace.contents) > 0)
        if cache == "never":
            assert workspace.nbytes == 0
        if cache == "always":
            assert workspace.nbytes > 0
        if cache == "auto":
            assert workspace.nbytes == lrn.workspace_nbytes(src.shape, src.dtype)
    assert cynorm.Workspace().cache == "auto"
    assert "auto" in repr(cynorm.Workspace())


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_copies_are_empty(duplicate):
    """What a workspace holds belongs to the call that filled it."""
    workspace, src = cynorm.Workspace(cache="always"), draw((2, 8, 3, 3))
    cynorm.LRN().forward(src, workspace=workspace)
    other = duplicate(workspace)
    assert workspace.nbytes > 0 and (other.cache, other.nbytes, other.contents) == ("always", 0, ())


def test_a_class_of_its_own_may_be_made_without_arguments():
    class Mine(cynorm.Workspace):
        def __init__(self, layer):
            self.layer = layer

    workspace, src = Mine("conv1"), draw((2, 8, 3, 3))
    assert (workspace.cache, workspace.nbytes, workspace.contents) == ("auto", 0, ())
    assert_same_bits(cynorm.LRN().forward(src, workspace=workspace), cynorm.LRN().forward(src))


def test_grows_and_never_shrinks():
    lrn = cynorm.LRN()
    workspace = cynorm.Workspace(cache="always")
    lrn.forward(draw((2, 16, 5, 6)), workspace=workspace)
    small = workspace.nbytes
    lrn.forward(draw((4, 16, 9, 6)), workspace=workspace)
    large = workspace.nbytes
    assert large > small
    src, diff_dst = draw((1, 16, 5, 6), np.float64), draw((1, 16, 5, 6), np.float64, 1)
    lrn.forward(src, workspace=workspace)
    assert workspace.nbytes == large
    assert_same_bits(lrn.backward(diff_dst, src, workspace=workspace), lrn.backward(diff_dst, src))


def test_serves_several_backwards_and_forwards():
    """One forward serves any number of backwards; the next forward replaces it."""
    lrn = cynorm.LRN(3, 1.0)
    workspace = cynorm.Workspace(cache="always")
    for seed in range(3):
        src = draw((2, 16, 5, 6), seed=seed)
        lrn.forward(src, workspace=workspace)
        for other in range(2):
            diff_dst = draw((2, 16, 5, 6), seed=10 + other)
            assert_same_bits(lrn.backward(diff_dst, src, workspace=workspace), lrn.backward(diff_dst, src))


def test_equal_operators_share_it():
    """What matters is the parameters, not the object."""
    src, workspace = draw((2, 16, 5, 6)), cynorm.Workspace(cache="always")
    cynorm.LRN(3, 1.0).forward(src, workspace=workspace)
    result = cynorm.LRN(3, 1.0).backward(src, src, workspace=workspace)
    assert_same_bits(result, cynorm.LRN(3, 1.0).backward(src, src))


@each_cache
def test_other_memory_order_of_diff_dst(cache):
    """The workspace does not care how diff_dst or out lie in memory."""
    src, diff_dst = draw((2, 16, 5, 6)), draw((2, 16, 5, 6), seed=1)
    lrn, workspace = cynorm.LRN(3, 1.0), cynorm.Workspace(cache=cache)
    lrn.forward(src, workspace=workspace)
    expected = lrn.backward(diff_dst, src)
    result = lrn.backward(np.asfortranarray(diff_dst), src, workspace=workspace, out=np.empty(src.shape, src.dtype, "F"))
    assert_same_bits(result, expected)


@each_cache
def test_in_place_forward(cache):
    """Forward into src itself leaves a workspace as usable as any."""
    src, diff_dst = draw((2, 16, 5, 6)), draw((2, 16, 5, 6), seed=1)
    lrn, workspace = cynorm.LRN(3, 1.0), cynorm.Workspace(cache=cache)
    overwritten = src.copy()
    lrn.forward(overwritten, out=overwritten, workspace=workspace)
    assert_same_bits(lrn.backward(diff_dst, src, workspace=workspace), lrn.backward(diff_dst, src))


ORIGINAL = {"local_size": 3, "alpha": 1.0, "beta": 0.75, "k": 1.0}


@each_cache
@pytest.mark.parametrize(
    "change",
    [
        {"local_size": 5},
        {"alpha": 2.0},
        {"beta": 0.5},
        {"k": 2.0},
        {"region": "within_channel"},
        {"divisor": 1},
        {"layout": "NHWC"},
        {"local_size": 4, "window": "onnx"},
    ],
    ids=str,
)
def test_refuses_another_operator(cache, change):
    src, out = draw((2, 8, 8, 8)), np.full((2, 8, 8, 8), 7, np.float32)
    workspace = cynorm.Workspace(cache=cache)
    cynorm.LRN(**ORIGINAL).forward(src, workspace=workspace)
    with pytest.raises(ValueError, match="workspace"):
        cynorm.LRN(**(ORIGINAL | change)).backward(src, src, workspace=workspace, out=out)
    assert (out == 7).all()
    # and is still good for the backward that matches
    cynorm.LRN(**ORIGINAL).backward(src, src, workspace=workspace)


@each_cache
@pytest.mark.parametrize(
    "other",
    [np.ones((2, 8, 5, 7), np.float32), np.ones((2, 8, 5, 6), np.float64), np.ones((8, 2, 5, 6), np.float32)],
)
def test_refuses_another_array(cache, other):
    workspace = cynorm.Workspace(cache=cache)
    lrn = cynorm.LRN()
    lrn.forward(draw((2, 8, 5, 6)), workspace=workspace)
    out = np.full_like(other, 7)
    with pytest.raises(ValueError, match="workspace"):
        lrn.backward(other, other, workspace=workspace, out=out)
    assert (out == 7).all()


@each_cache
def test_refuses_backward_before_forward(cache):
    src, out = draw((2, 8, 5, 6)), np.full((2, 8, 5, 6), 7, np.float32)
    with pytest.raises(ValueError, match="workspace"):
        cynorm.LRN().backward(src, src, workspace=cynorm.Workspace(cache=cache), out=out)
    assert (out == 7).all()


@each_cache
def test_survives_a_refused_call(cache):
    """A call that is refused leaves the workspace as it was, and free."""
    src, workspace, lrn = draw((2, 8, 5, 6)), cynorm.Workspace(cache=cache), cynorm.LRN()
    lrn.forward(src, workspace=workspace)
    for wrong in (
        lambda: lrn.forward(src[0], workspace=workspace),
        lambda: lrn.backward(src[:1], src, workspace=workspace),
    ):
        with pytest.raises(ValueError, match="src|diff_dst"):
            wrong()
    assert_same_bits(lrn.backward(src, src, workspace=workspace), lrn.backward(src, src))


@pytest.mark.parametrize("cache", ["sometimes", "AUTO", "", None, True, np.array(["auto", "never"])])
def test_refuses_other_policies(cache):
    with pytest.raises((TypeError, ValueError), match="cache") as caught:
        cynorm.Workspace(cache=cache)
    assert repr(cache) in str(caught.value) and "always" in str(caught.value)


def test_refuses_two_uses_at_once():
    """Two threads in one workspace: each call gives the right answer or raises, and at least one succeeds."""
    src = draw((4, 64, 40, 40))
    lrn, workspace = cynorm.LRN(3, 1.0), cynorm.Workspace(cache="always")
    expected = lrn.forward(src)
    results, refusals = [], []
    barrier = threading.Barrier(4)

    def call():
        barrier.wait()
        for _ in range(10):
            try:
                results.append(lrn.forward(src, workspace=workspace, num_threads=1))
            except (RuntimeError, ValueError) as error:
                refusals.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results and len(results) + len(refusals) == 40
    assert all("workspace" in message for message in refusals)
    for result in results:
        assert_same_bits(result, expected)
    lrn.forward(src, workspace=workspace)


def test_a_call_that_runs_holds_its_workspace():
    """While one thread computes, its workspace refuses others."""
    src, small = draw((8, 64, 56, 56)), draw((1, 8, 2, 2))
    lrn, workspace = cynorm.LRN(31, 1.0), cynorm.Workspace(cache="always")
    done = threading.Event()

    def compute():
        while not done.is_set():
            try:
                lrn.forward(src, workspace=workspace, num_threads=1)
            except RuntimeError:  # a small call has it
                pass

    computing = threading.Thread(target=compute)
    computing.start()
    try:
        with pytest.raises(RuntimeError, match="workspace is in use"):
            for _ in range(1_000_000):
                lrn.forward(small, workspace=workspace)
    finally:
        done.set()
        computing.join()


def test_zero_sized():
    src = np.zeros((0, 8, 5, 6), np.float32)
    workspace = cynorm.Workspace(cache="always")
    cynorm.LRN().forward(src, workspace=workspace)
    assert cynorm.LRN().backward(src, src, workspace=workspace).shape == src.shape
    assert cynorm.LRN().workspace_nbytes(src.shape, src.dtype) == 0


def test_one_workspace_for_two_dtypes():
    """What it holds is of the last call's reals."""
    for operator in (cynorm.LRN(), cynorm.BatchNorm()):
        forward = getattr(operator, "forward", None) or operator.forward_training
        backward = getattr(operator, "backward", None) or operator.backward_training
        workspace = cynorm.Workspace(cache="always")
        for dtype in (np.float32, np.float64, np.float32):
            src, fresh = random_values(np.random.default_rng(0), (2, 8, 5, 5), np.dtype(dtype)), cynorm.Workspace(cache="always")
            diff_src = []
            for each in (workspace, fresh):
                forward(src, workspace=each)
                diff_src.append(getattr(gradients := backward(src, src, workspace=each), "diff_src", gradients))
            assert_same_bits(*diff_src)
