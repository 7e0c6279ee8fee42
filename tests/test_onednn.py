"""cynorm.onednn against oneDNN itself, and against its formulas where oneDNN refuses."""

import re
import sys
import tracemalloc
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import cynorm
from benchmarks.peers import Refused
from benchmarks.peers import onednn as peer
from cynorm import onednn
from cynorm.onednn import (
    DNNL_ARG_DIFF_DST,
    DNNL_ARG_DIFF_SCALE,
    DNNL_ARG_DIFF_SHIFT,
    DNNL_ARG_DIFF_SRC,
    DNNL_ARG_DIFF_SRC_1,
    DNNL_ARG_DST,
    DNNL_ARG_MEAN,
    DNNL_ARG_SCALE,
    DNNL_ARG_SHIFT,
    DNNL_ARG_SRC,
    DNNL_ARG_SRC_1,
    DNNL_ARG_VARIANCE,
    DNNL_ARG_WORKSPACE,
    algorithm,
    batch_normalization_backward,
    batch_normalization_forward,
    data_type,
    lrn_backward,
    lrn_forward,
    memory_desc,
    normalization_flags,
    prop_kind,
)
from reference import assert_within, loose_tolerance, wide
from strategies import assert_same_bits, random_values

needs_onednn = pytest.mark.skipif(
    not peer.available(), reason="oneDNN is not installed (pip install onednn-cpu-gomp, x86-64 Linux)"
)

FLOATS = [data_type.f32, data_type.f64, data_type.f16, data_type.bf16]
TAGS = {
    2: ("ab", "ba"),
    3: ("abc", "acb", "aBc8b", "aBc16b"),
    4: ("abcd", "acdb", "aBcd8b", "aBcd16b"),
    5: ("abcde", "acdeb", "aBcde8b", "aBcde16b"),
}
NONE = normalization_flags.none
GLOBAL, SCALE, SHIFT = (
    normalization_flags.use_global_stats,
    normalization_flags.use_scale,
    normalization_flags.use_shift,
)
RELU, ADD_RELU = normalization_flags.fuse_norm_relu, normalization_flags.fuse_norm_add_relu


# ------------------------------------------------------------------------------------------------------------
# Tensors in the memory of a descriptor


def put(desc, values):
    """An array of the descriptor that holds logical values, its padding zero."""
    array = desc.empty()
    if desc.inner_blk > 1:
        values = np.pad(values, [(0, p - n) for p, n in zip(desc.padded_dims, desc.dims, strict=True)])
        n, _, *spatial = desc.dims
        values = np.moveaxis(values.reshape(n, -1, desc.inner_blk, *spatial), 2, -1)
    array[...] = values
    return array


def get(desc, array):
    """The logical values of such an array, after a look at its padding."""
    if desc.inner_blk > 1:
        array = np.moveaxis(array, -1, 2).reshape(desc.padded_dims)
        assert not array[:, desc.dims[1] :].any(), "padding was not written as zero"
    return array[:, : desc.dims[1]]


def describe(dims, kind, formats):
    return [memory_desc(dims, kind, format) for format in formats]


def block_of(format):
    """The channels in a block of a format."""
    return int(re.search("[0-9]+", format)[0]) if "B" in format else 1


def seen_in_one_way(dims, formats):
    """Whether formats can be mixed: plain ones go with blocks of one size that the channels fill."""
    blocks = {block_of(format) for format in formats}
    return len(blocks) == 1 or (len(blocks - {1}) == 1 and dims[1] % max(blocks) == 0)


@st.composite
def formats(draw, dims):
    """A tag, or the strides of any order of the dims, with gaps."""
    tag = draw(st.sampled_from(TAGS[len(dims)]))
    if "B" in tag or draw(st.booleans()):
        return tag
    strides, step = [0] * len(dims), draw(st.integers(1, 2))
    for axis in draw(st.permutations(range(len(dims)))):
        strides[axis] = step
        step = step * dims[axis] + draw(st.integers(0, 3))
    return tuple(strides)


@st.composite
def tensors(draw, count):
    """Dims, type and the formats of `count` tensors of a problem."""
    ndims = draw(st.integers(2, 5))
    channels = draw(st.sampled_from((8, 16, 32)) | st.integers(1, 20))
    dims = (draw(st.integers(1, 3)), channels, *(draw(st.integers(1, 6)) for _ in range(ndims - 2)))
    tags = tuple(draw(formats(dims)) for _ in range(count))
    assume(seen_in_one_way(dims, tags))
    return {
        "dims": dims,
        "kind": draw(st.sampled_from(FLOATS)),
        "tags": tags,
        "rng": np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
    }


def assert_near_peer(got, expected, magnitude, steps, what):
    """Within rounding of what oneDNN computed in its own type, or in f32 where it refused that."""
    assert_within(
        got.astype(np.float64),
        wide(expected),
        2 * loose_tolerance(magnitude, got.dtype, steps) + 2 * loose_tolerance(magnitude, expected.dtype, steps),
        what,
    )


# ------------------------------------------------------------------------------------------------------------
# LRN


@st.composite
def lrn_problems(draw):
    return draw(tensors(4)) | {
        "across": draw(st.booleans()),
        "local_size": draw(st.integers(1, 7)),
        "alpha": draw(st.floats(0, 2, width=32)),
        "beta": draw(st.sampled_from((0.75, 0.5, 1.0, 0.25))),
        "k": draw(st.floats(0.5, 3, width=32)),
    }


def lrn_terms(src, diff_dst, problem):
    """dst and the two terms of diff_src, in float64, by a matrix of who is in whose window."""
    n = problem["local_size"]
    reach = (n - 1) // 2
    index = np.indices(src.shape).reshape(src.ndim, -1)
    step = abs(index[:, None, :] - index[:, :, None])
    axes = (1,) if problem["across"] else range(2, src.ndim)
    window = np.logical_and.reduce([step[a] <= (reach if a in axes else 0) for a in range(src.ndim)])
    ratio = problem["alpha"] / n ** len(axes)
    x, g, beta = wide(src).ravel(), wide(diff_dst).ravel(), problem["beta"]
    omega = problem["k"] + ratio * (window @ x**2)
    through = 2 * ratio * beta * x * (window.T @ (g * x * omega ** (-beta - 1)))
    return tuple(v.reshape(src.shape) for v in (x * omega**-beta, g * omega**-beta, through))


def run_lrn(problem, src, diff_dst):
    """dst, diff_src, the descriptors and the workspace of the problem run here."""
    src_desc, dst_desc, diff_dst_desc, diff_src_desc = describe(
        problem["dims"], problem["kind"], problem["tags"]
    )
    kind = algorithm.lrn_across_channels if problem["across"] else algorithm.lrn_within_channel
    parameters = [problem[name] for name in ("local_size", "alpha", "beta", "k")]
    forward = lrn_forward.primitive_desc(prop_kind.forward_training, kind, src_desc, dst_desc, *parameters)
    backward = lrn_backward.primitive_desc(kind, diff_src_desc, diff_dst_desc, src_desc, *parameters, forward)
    workspace = cynorm.Workspace()
    x, dst, diff_src = put(src_desc, src), dst_desc.empty(), diff_src_desc.empty()
    lrn_forward(forward).execute({DNNL_ARG_SRC: x, DNNL_ARG_DST: dst, DNNL_ARG_WORKSPACE: workspace})
    arguments = {
        DNNL_ARG_SRC: x,
        DNNL_ARG_DIFF_DST: put(diff_dst_desc, diff_dst),
        DNNL_ARG_DIFF_SRC: diff_src,
    }
    if not backward.workspace_desc.is_zero or forward._op == backward._op:
        arguments[DNNL_ARG_WORKSPACE] = workspace
    lrn_backward(backward).execute(arguments)
    return SimpleNamespace(
        dst=get(dst_desc, dst),
        diff_src=get(diff_src_desc, diff_src),
        forward=forward,
        backward=backward,
        workspace=workspace,
        arguments=arguments,
    )


def values_of(problem, count=2):
    dtype = memory_desc((), problem["kind"], ()).dtype
    return [random_values(problem["rng"], problem["dims"], dtype) for _ in range(count)]


def representable(array):
    """The same values as float32 has them, so that oneDNN, which has no f64, can be given them."""
    return array.astype(np.float32).astype(array.dtype)


@given(lrn_problems())
def test_lrn_is_the_formula(problem):
    src, diff_dst = values_of(problem)
    ours = run_lrn(problem, src, diff_dst)
    dst, direct, through = lrn_terms(src, diff_dst, problem)
    _, _, magnitude = lrn_terms(abs(src), abs(diff_dst), problem)
    assert_within(ours.dst, dst, loose_tolerance(dst, src.dtype, 8), "dst")
    assert_within(
        ours.diff_src, direct - through, loose_tolerance(abs(direct) + magnitude, src.dtype, 16), "diff_src"
    )


def dense(tags, dims):
    """Formats with plain ones in place of strides: some of oneDNN's kernels (in 3.2) write past strided tensors."""
    return tuple(tag if isinstance(tag, str) else TAGS[len(dims)][0] for tag in tags)


def peer_descriptors(dims, dtype, tags):
    return [
        peer.MemoryDescriptor(dims, dtype, **{"tag" if isinstance(tag, str) else "strides": tag})
        for tag in tags
    ]


def peer_lrn(problem, tags, dtype, src, diff_dst):
    descs = describe(problem["dims"], {np.dtype(np.float32): data_type.f32}.get(dtype, problem["kind"]), tags)
    theirs = dict(
        zip(
            ("src", "dst", "diff_dst", "diff_src"),
            peer_descriptors(problem["dims"], dtype, tags),
            strict=True,
        )
    )
    parameters = {name: problem[name] for name in ("local_size", "alpha", "beta", "k")}
    parameters["algorithm"] = "across_channels" if problem["across"] else "within_channel"
    forward = peer.Lrn("forward_training", theirs["src"], dst=theirs["dst"], **parameters)
    backward = peer.Lrn("backward", **theirs, **parameters)
    arrays = {
        "src": put(descs[0], src.astype(dtype)),
        "dst": put(descs[1], np.zeros(problem["dims"], dtype)),
        "diff_dst": put(descs[2], diff_dst.astype(dtype)),
        "diff_src": put(descs[3], np.zeros(problem["dims"], dtype)),
        "workspace": forward.new_workspace(),
    }
    forward.execute({name: arrays[name] for name in ("src", "dst", "workspace")})
    backward.execute({name: arrays[name] for name in ("src", "diff_dst", "diff_src", "workspace")})
    return get(descs[1], arrays["dst"]), get(descs[3], arrays["diff_src"])


@needs_onednn
@given(lrn_problems())
def test_lrn_agrees_with_onednn(problem):
    src, diff_dst = map(representable, values_of(problem))
    ours = run_lrn(problem, src, diff_dst)
    # Three faults of oneDNN's are kept out: its backward is wrong where src and diff_dst have different
    # formats (in 3.2), and its JIT kernels may crash for the smallest windows and mistake even ones.
    plain = (TAGS[len(problem["dims"])][0],) * 4
    sound = problem["local_size"] % 2 and problem["local_size"] > 2
    tags = dense(problem["tags"][:1] * 4, problem["dims"]) if sound else plain
    try:
        dst, diff_src = peer_lrn(problem, tags, src.dtype, src, diff_dst)
    except Refused:
        dst, diff_src = peer_lrn(problem, plain, np.dtype(np.float32), src, diff_dst)
    expected, direct, _ = lrn_terms(src, diff_dst, problem)
    _, _, magnitude = lrn_terms(abs(src), abs(diff_dst), problem)
    assert_near_peer(ours.dst, dst, expected, 16, "dst")
    assert_near_peer(ours.diff_src, diff_src, abs(direct) + magnitude, 64, "diff_src")


@given(lrn_problems())
def test_formats_do_not_change_results(problem):
    src, diff_dst = values_of(problem)
    mixed = run_lrn(problem, src, diff_dst)
    plain = run_lrn(problem | {"tags": (TAGS[len(problem["dims"])][0],) * 4}, src, diff_dst)
    assert_same_bits(mixed.dst, plain.dst, "dst")
    assert_same_bits(mixed.diff_src, plain.diff_src, "diff_src")


# ------------------------------------------------------------------------------------------------------------
# Batch normalization


@st.composite
def batch_norm_problems(draw):
    relu = draw(st.sampled_from((NONE, RELU, ADD_RELU)))
    flags = relu
    for flag in (GLOBAL, SCALE, SHIFT):
        flags |= draw(st.sampled_from((NONE, flag)))
    problem = draw(tensors(4))
    # A mask is shared by tensors that are seen in blocks of one size.
    src, dst, diff_dst, diff_src = map(block_of, problem["tags"])
    assume(not relu or max(src, dst) == max(src, diff_dst, diff_src))
    return problem | {"flags": flags, "epsilon": draw(st.sampled_from((1e-5, 1e-2, 0.5)))}


def per_channel(vector, ndims):
    return wide(vector).reshape(-1, *[1] * (ndims - 2))


def batch_norm_values(problem):
    rng, channels = problem["rng"], problem["dims"][1]
    src, add, diff_dst = values_of(problem, 3)
    parameter = np.float64 if problem["kind"] == data_type.f64 else np.float32
    mean, scale, shift = random_values(rng, (3, channels), np.dtype(parameter))
    variance = rng.uniform(0.5, 2, channels).astype(parameter)
    return SimpleNamespace(
        src=src, add=add, diff_dst=diff_dst, mean=mean, variance=variance, scale=scale, shift=shift
    )


def batch_norm_formula(problem, values, mask=None, statistics=None):
    """Everything the primitives compute, in float64, and the magnitudes of their terms.

    `mask` and `statistics` are what backward is given, where that is not to be computed here.
    """
    flags, ndims = problem["flags"], len(problem["dims"])
    axes = (0, *range(2, ndims))
    x, g = wide(values.src), wide(values.diff_dst)
    count = x[:, 0].size
    if GLOBAL in flags:
        mean, variance = values.mean, values.variance
    else:
        mean = x.mean(axes)
        variance = ((x - per_channel(mean, ndims)) ** 2).mean(axes)
    scale = values.scale if SCALE in flags else np.ones_like(values.scale)
    shift = values.shift if SHIFT in flags else np.zeros_like(values.shift)
    m, v, gamma, beta = (per_channel(p, ndims) for p in (mean, variance, scale, shift))
    rstd = 1 / np.sqrt(v + problem["epsilon"])
    normal = gamma * (x - m) * rstd + beta
    magnitude = abs(gamma) * (abs(x) + abs(m)) * rstd + abs(beta)
    if ADD_RELU in flags:
        normal, magnitude = normal + wide(values.add), magnitude + abs(wide(values.add))
    relu = flags & (RELU | ADD_RELU)
    if relu:
        g = g * (normal > 0 if mask is None else mask)
    if statistics:
        m, v = (per_channel(p, ndims) for p in statistics)
        rstd = 1 / np.sqrt(v + problem["epsilon"])
    sum_g, sum_gx = g.sum(axes, keepdims=True), (g * (x - m) * rstd).sum(axes, keepdims=True)
    abs_g, abs_gx = abs(g).sum(axes, keepdims=True), abs(g * (x - m) * rstd).sum(axes, keepdims=True)
    diff_src, diff_magnitude = gamma * rstd * g, abs(gamma * rstd * g)
    if GLOBAL not in flags:
        diff_src = gamma * rstd * (g - sum_g / count - (x - m) * rstd * sum_gx / count)
        diff_magnitude = abs(gamma) * rstd * (abs(g) + abs_g / count + abs((x - m) * rstd) * abs_gx / count)
    results = {
        "mean": (wide(mean), abs(x).mean(axes)),
        "variance": (wide(variance), wide(variance)),
        "dst": (np.maximum(normal, 0) if relu else normal, magnitude),
        "diff_src": (diff_src, diff_magnitude),
        "diff_src_1": (g, abs(g)),
        "diff_scale": (sum_gx.ravel(), abs_gx.ravel()),
        "diff_shift": (sum_g.ravel(), abs_g.ravel()),
    }
    # How much of the distances to the mean a float32 mean can spoil.
    results["conditioning"] = 1 + abs(x).mean(axes) * rstd.ravel()
    return results


def run_batch_norm(problem, values):
    """What the problem computes here: results by name, descriptors, the arguments of backward, the workspace."""
    flags, kind, dims, tags = (problem[name] for name in ("flags", "kind", "dims", "tags"))
    src_desc, dst_desc, diff_dst_desc, diff_src_desc = describe(dims, kind, tags)
    forward = batch_normalization_forward.primitive_desc(
        prop_kind.forward_training, src_desc, dst_desc, problem["epsilon"], flags
    )
    backward = batch_normalization_backward.primitive_desc(
        prop_kind.backward, diff_src_desc, diff_dst_desc, src_desc, problem["epsilon"], flags, forward
    )
    workspace = cynorm.Workspace()
    common = {DNNL_ARG_SRC: put(src_desc, values.src)}
    for name, index in (("mean", DNNL_ARG_MEAN), ("variance", DNNL_ARG_VARIANCE)):
        common[index] = np.copy(getattr(values, name))
    if SCALE in flags:
        common[DNNL_ARG_SCALE] = values.scale
    if forward.workspace_desc.get_size():
        common[DNNL_ARG_WORKSPACE] = workspace
    dst, diff_src, diff_src_1 = dst_desc.empty(), diff_src_desc.empty(), diff_src_desc.empty()
    arguments = {DNNL_ARG_DST: dst}
    if SHIFT in flags:
        arguments[DNNL_ARG_SHIFT] = values.shift
    if ADD_RELU in flags:
        arguments[DNNL_ARG_SRC_1] = put(src_desc, values.add)
    batch_normalization_forward(forward).execute(common | arguments)
    arguments = {DNNL_ARG_DIFF_DST: put(diff_dst_desc, values.diff_dst), DNNL_ARG_DIFF_SRC: diff_src}
    gradients = {}
    if SCALE in flags:
        gradients["diff_scale"] = arguments[DNNL_ARG_DIFF_SCALE] = np.empty_like(values.scale)
    if SHIFT in flags:
        gradients["diff_shift"] = arguments[DNNL_ARG_DIFF_SHIFT] = np.empty_like(values.scale)
    if ADD_RELU in flags:
        arguments[DNNL_ARG_DIFF_SRC_1] = diff_src_1
    batch_normalization_backward(backward).execute(common | arguments)
    if ADD_RELU in flags:
        gradients["diff_src_1"] = get(diff_src_desc, diff_src_1)
    results = {
        "mean": common[DNNL_ARG_MEAN],
        "variance": common[DNNL_ARG_VARIANCE],
        "dst": get(dst_desc, dst),
        "diff_src": get(diff_src_desc, diff_src),
    }
    return SimpleNamespace(
        results=results | gradients,
        forward=forward,
        backward=backward,
        arguments=common | arguments,
        workspace=workspace,
    )


STEPS = {
    "mean": 4,
    "variance": 4,
    "dst": 16,
    "diff_src": 64,
    "diff_src_1": 1,
    "diff_scale": 32,
    "diff_shift": 16,
}


@given(batch_norm_problems())
def test_batch_normalization_is_the_formula(problem):
    values = batch_norm_values(problem)
    results = run_batch_norm(problem, values).results
    # Which side of zero a rounded sum lies on is the kernel's to say.
    mask = wide(results["dst"]) > 0 if problem["flags"] & (RELU | ADD_RELU) else None
    expected = batch_norm_formula(problem, values, mask, (results["mean"], results["variance"]))
    for name, got in results.items():
        exact, magnitude = expected[name]
        assert_within(got, exact, loose_tolerance(magnitude, got.dtype, STEPS[name]), name)


def peer_batch_norm(problem, tags, dtype, values):
    flags = [name for name, bit in peer.FLAGS.items() if bit & problem["flags"]]
    kind = {np.dtype(np.float32): data_type.f32}.get(dtype, problem["kind"])
    names = ("src", "dst", "diff_dst", "diff_src")
    descs = dict(zip(names, describe(problem["dims"], kind, tags), strict=True))
    theirs = dict(zip(names, peer_descriptors(problem["dims"], dtype, tags), strict=True))
    common = {"epsilon": problem["epsilon"], "flags": flags}
    forward = peer.BatchNorm("forward_training", theirs["src"], dst=theirs["dst"], **common)
    backward = peer.BatchNorm("backward", **theirs, **common)
    inputs = {"src": values.src, "diff_dst": values.diff_dst}
    arrays = {
        name: put(desc, inputs.get(name, np.zeros_like(values.src)).astype(dtype))
        for name, desc in descs.items()
    }
    for name in ("mean", "variance", "scale", "shift"):
        arrays[name] = getattr(values, name).astype(np.float32)
    arrays |= {name: np.zeros_like(arrays["scale"]) for name in ("diff_scale", "diff_shift")}
    arrays["workspace"] = forward.new_workspace()
    given_flags = problem["flags"]
    if SCALE not in given_flags:
        del arrays["scale"], arrays["diff_scale"]
    if SHIFT not in given_flags:
        del arrays["shift"], arrays["diff_shift"]
    forward.execute({name: array for name, array in arrays.items() if "diff" not in name})
    backward.execute({name: array for name, array in arrays.items() if name not in ("dst", "shift")})
    results = {
        name: arrays[name] for name in ("mean", "variance", "diff_scale", "diff_shift") if name in arrays
    }
    return results | {name: get(descs[name], arrays[name]) for name in ("dst", "diff_src")}


@needs_onednn
@given(batch_norm_problems())
def test_batch_normalization_agrees_with_onednn(problem):
    assume(ADD_RELU not in problem["flags"])  # not implemented on its CPU
    values = batch_norm_values(problem)
    for name, array in vars(values).items():
        setattr(values, name, representable(array))
    results = run_batch_norm(problem, values).results
    plain = (TAGS[len(problem["dims"])][0],) * 4
    try:
        tags = dense(problem["tags"], problem["dims"])
        theirs = peer_batch_norm(problem, tags, values.src.dtype, values)
    except Refused:
        theirs = peer_batch_norm(problem, plain, np.dtype(np.float32), values)
    if RELU in problem["flags"]:
        # Where rounding decides on which side of zero an element lies, the two may differ.
        assume(((wide(results["dst"]) > 0) == (wide(theirs["dst"]) > 0)).all())
    expected = batch_norm_formula(problem, values)
    for name, got in theirs.items():
        conditioning = (
            expected["conditioning"] if got.ndim == 1 else per_channel(expected["conditioning"], got.ndim)
        )
        assert_near_peer(results[name], got, expected[name][1] * conditioning, STEPS[name], name)


@st.composite
def inference_problems(draw):
    flags = draw(st.sampled_from((NONE, RELU, ADD_RELU)))
    for flag in (GLOBAL, SCALE, SHIFT):
        flags |= draw(st.sampled_from((NONE, flag)))
    problem = draw(tensors(2)) | {"epsilon": draw(st.sampled_from((1e-5, 1e-2, 0.5)))}
    if draw(st.booleans()):
        flags |= GLOBAL
        problem["kind"] = data_type.s8
    return problem | {"flags": flags}


def inference_values(problem):
    """As in training; of int8 they fill its range, and results exceed it now and then."""
    if problem["kind"] != data_type.s8:
        return batch_norm_values(problem)
    values = batch_norm_values(problem | {"kind": data_type.f32})
    for name in ("src", "add"):
        setattr(values, name, problem["rng"].integers(-128, 128, problem["dims"]).astype(np.int8))
    return values


def assert_inferred(dst, expected, bound):
    """Within a bound of what is expected; int8 is that rounded and saturated."""
    if dst.dtype == np.int8:
        expected, bound = np.clip(wide(expected), -128, 127), wide(bound) + 0.5
    assert_within(dst.astype(np.float64), wide(expected), bound, "dst")


def run_inference(problem, values):
    flags = problem["flags"]
    src_desc, dst_desc = describe(problem["dims"], problem["kind"], problem["tags"])
    pd = batch_normalization_forward.primitive_desc(
        prop_kind.forward_inference, src_desc, dst_desc, problem["epsilon"], flags
    )
    dst = dst_desc.empty()
    mean, variance = values.mean.copy(), values.variance.copy()
    batch_normalization_forward(pd).execute(
        {
            DNNL_ARG_SRC: put(src_desc, values.src),
            DNNL_ARG_SRC_1: put(src_desc, values.add),
            DNNL_ARG_DST: dst,
            DNNL_ARG_MEAN: mean,
            DNNL_ARG_VARIANCE: variance,
            DNNL_ARG_SCALE: values.scale,
            DNNL_ARG_SHIFT: values.shift,
        }
    )
    assert pd.workspace_desc.is_zero
    assert_same_bits(mean, values.mean)
    assert_same_bits(variance, values.variance)
    return get(dst_desc, dst)


@given(inference_problems())
def test_inference_is_the_formula(problem):
    """And leaves mean and variance alone, whether they are given statistics or none of its arguments."""
    values = inference_values(problem)
    dst = run_inference(problem, values)
    expected, magnitude = batch_norm_formula(problem, values)["dst"]
    real = np.dtype(np.float32) if dst.dtype == np.int8 else dst.dtype
    assert_inferred(dst, expected, loose_tolerance(magnitude, real, 16))


@needs_onednn
@given(inference_problems())
def test_inference_agrees_with_onednn(problem):
    assume(ADD_RELU not in problem["flags"])  # not implemented on its CPU
    values = inference_values(problem)
    for name, array in vars(values).items():
        setattr(values, name, representable(array))
    dst = run_inference(problem, values)
    flags = [name for name, bit in peer.FLAGS.items() if bit & problem["flags"]]

    def theirs(kind, tags):
        descs = describe(problem["dims"], kind, tags)
        src_md, dst_md = peer_descriptors(problem["dims"], descs[0].dtype, tags)
        inference = peer.BatchNorm(
            "forward_inference", src_md, dst=dst_md, epsilon=problem["epsilon"], flags=flags
        )
        arrays = {"src": put(descs[0], values.src), "dst": put(descs[1], np.zeros(problem["dims"]))}
        names = {"mean": GLOBAL, "variance": GLOBAL, "scale": SCALE, "shift": SHIFT}
        for name, flag in names.items():
            if flag in problem["flags"]:
                arrays[name] = getattr(values, name).astype(np.float32)
        inference.execute(arrays)
        return get(descs[1], arrays["dst"])

    try:
        expected = theirs(problem["kind"], dense(problem["tags"], problem["dims"]))
    except Refused:
        expected = theirs(data_type.f32, (TAGS[len(problem["dims"])][0],) * 2)
    results = batch_norm_formula(problem, values)
    bound = results["dst"][1] * per_channel(results["conditioning"], len(problem["dims"]))
    if expected.dtype == np.int8:
        # Where rounding decides, the two may differ by one.
        assert_within(dst.astype(np.float64), wide(expected), 1, "dst")
    elif dst.dtype == np.int8:
        assert_inferred(dst, expected, 4 * loose_tolerance(bound, np.dtype(np.float32), 16))
    else:
        assert_near_peer(dst, expected, bound, 16, "dst")


def test_backward_data_leaves_the_gradients_of_scale_and_shift():
    md = memory_desc((2, 4, 3, 3), data_type.f32, "nchw")
    flags = SCALE | SHIFT
    forward = batch_normalization_forward.primitive_desc(prop_kind.forward_training, md, md, 0.1, flags)
    src, diff_dst = random_values(np.random.default_rng(2), (2, *md.dims), md.dtype)
    one = np.ones(4, np.float32)
    results = {}
    for kind in (prop_kind.backward, prop_kind.backward_data):
        pd = batch_normalization_backward.primitive_desc(kind, md, md, md, 0.1, flags, forward)
        results[kind] = md.empty()
        arguments = {DNNL_ARG_SRC: src, DNNL_ARG_DIFF_DST: diff_dst, DNNL_ARG_MEAN: one,
                     DNNL_ARG_VARIANCE: one, DNNL_ARG_SCALE: one,
                     DNNL_ARG_DIFF_SRC: results[kind]}  # fmt: skip
        if kind == prop_kind.backward:
            arguments |= {DNNL_ARG_DIFF_SCALE: one.copy(), DNNL_ARG_DIFF_SHIFT: one.copy()}
        batch_normalization_backward(pd).execute(arguments)
    assert_same_bits(*results.values())


def test_int8_inference_rounds_to_even_and_saturates():
    md = memory_desc((1, 2, 1, 8), data_type.s8, "nhwc")
    pd = batch_normalization_forward.primitive_desc(
        prop_kind.forward_inference,
        md,
        md,
        0.0,
        GLOBAL | SCALE,
    )
    src, dst = md.empty(), md.empty()
    src[...] = np.int8([-128, -5, -3, -1, 1, 3, 5, 127])
    zero, one = np.zeros(2, np.float32), np.ones(2, np.float32)
    batch_normalization_forward(pd).execute(
        {DNNL_ARG_SRC: src, DNNL_ARG_DST: dst, DNNL_ARG_MEAN: zero, DNNL_ARG_VARIANCE: one,
         DNNL_ARG_SCALE: np.float32([0.5, 2])}
    )  # fmt: skip
    np.testing.assert_array_equal(dst[0, 0, 0], [-64, -2, -2, 0, 0, 2, 2, 64])
    np.testing.assert_array_equal(dst[0, 1, 0], [-128, -10, -6, -2, 2, 6, 10, 127])


# ------------------------------------------------------------------------------------------------------------
# In place


def test_primitives_run_in_place():
    md = memory_desc((2, 16, 3, 3), data_type.f32, "nhwc")
    forward = lrn_forward.primitive_desc(
        prop_kind.forward_training, algorithm.lrn_across_channels, md, md, 5, 1.0, 0.75, 1.0
    )
    backward = lrn_backward.primitive_desc(
        algorithm.lrn_across_channels, md, md, md, 5, 1.0, 0.75, 1.0, forward
    )
    x, g = (put(md, v) for v in random_values(np.random.default_rng(3), (2, *md.dims), md.dtype))
    dst, diff_src = md.empty(), md.empty()
    workspace = cynorm.Workspace()
    lrn_forward(forward).execute({DNNL_ARG_SRC: x, DNNL_ARG_DST: dst, DNNL_ARG_WORKSPACE: workspace})
    gradient = lrn_backward(backward)
    arguments = {DNNL_ARG_SRC: x, DNNL_ARG_DIFF_DST: g, DNNL_ARG_WORKSPACE: workspace}
    gradient.execute(arguments | {DNNL_ARG_DIFF_SRC: diff_src})
    gradient.execute(arguments | {DNNL_ARG_DIFF_SRC: g})
    assert_same_bits(g, diff_src)
    lrn_forward(forward).execute({DNNL_ARG_SRC: x, DNNL_ARG_DST: x, DNNL_ARG_WORKSPACE: workspace})
    assert_same_bits(x, dst)


# ------------------------------------------------------------------------------------------------------------
# Descriptors, enumerations and queries


def test_numbers_are_onednns():
    for name, value in peer.ARGUMENTS.items():
        assert getattr(onednn, f"DNNL_ARG_{name.upper()}") == value
    for name, value in peer.PROP_KINDS.items():
        assert prop_kind[name] == value
    for name, value in peer.LRN_ALGORITHMS.items():
        assert algorithm[f"lrn_{name}"] == value
    for name, value in peer.FLAGS.items():
        assert normalization_flags[name] == value
    for kind in data_type:
        if kind != data_type.undef:
            assert peer.DATA_TYPES[memory_desc((), kind, ()).dtype.name] == kind


@pytest.mark.parametrize("dims, tag, strides, inner_blk", [
    ((2, 3), "nc", (3, 1), 1),
    ((2, 3), "ba", (1, 2), 1),
    ((2, 3, 5), "ncw", (15, 5, 1), 1),
    ((2, 3, 5), "nwc", (15, 1, 3), 1),
    ((2, 3, 5, 7), "nchw", (105, 35, 7, 1), 1),
    ((2, 3, 5, 7), "nhwc", (105, 1, 21, 3), 1),
    ((2, 3, 5, 7), "chwn", (1, 70, 14, 2), 1),
    ((2, 3, 5, 7, 4), "ndhwc", (420, 1, 84, 12, 3), 1),
    ((2, 12, 5, 7), "nChw8c", (560, 280, 56, 8), 8),
    ((2, 12, 5, 7), "aBcd16b", (560, 560, 112, 16), 16),
    ((2, 16, 5), "nCw8c", (80, 40, 8), 8),
    ((2, 16, 2, 5, 7), "nCdhw16c", (1120, 1120, 560, 112, 16), 16),
])  # fmt: skip
def test_tags_give_onednns_strides(dims, tag, strides, inner_blk):
    md = memory_desc(dims, data_type.f32, tag)
    assert (md.strides, md.inner_blk) == (strides, inner_blk)
    if inner_blk == 1:
        assert md == memory_desc(dims, data_type.f32, strides)
    array = md.empty()
    assert (array.shape, array.strides) == (md.shape, md.byte_strides)


@needs_onednn
@pytest.mark.parametrize(
    "kind", [kind for kind in data_type if kind not in (data_type.undef,)], ids=lambda k: k.name
)
def test_sizes_are_onednns(kind):
    for ndims, tags in TAGS.items():
        for tag, channels in product(tags, (1, 5, 8, 16, 20)):
            md = memory_desc((2, channels, 3, 4, 5)[:ndims], kind, tag)
            assert md.get_size() == peer.MemoryDescriptor(md.dims, md.dtype, tag=tag).nbytes


@needs_onednn
@given(st.data(), st.sampled_from(FLOATS), st.lists(st.integers(1, 6), min_size=2, max_size=5))
def test_sizes_of_strided_tensors_are_onednns(data, kind, dims):
    format = data.draw(formats(dims))
    md = memory_desc(dims, kind, format)
    (theirs,) = peer_descriptors(md.dims, md.dtype, [format])
    assert md.get_size() == theirs.nbytes


def test_buffers_are_seen_as_their_descriptor_says():
    md = memory_desc((1, 3, 2, 2), data_type.f32, "nhwc")
    buffer = np.arange(12, dtype=np.float32)
    array = md.wrap(buffer)
    assert np.shares_memory(array, buffer)
    np.testing.assert_array_equal(array[0, :, 0, 1], [3, 4, 5])
    with pytest.raises(ValueError, match="^buffer must hold at least 48 bytes, got 44$"):
        md.wrap(buffer[:11])
    with pytest.raises(ValueError, match="^buffer must be contiguous, got an array of float32"):
        md.wrap(np.zeros(24, np.float32)[::2])
    with pytest.raises(TypeError, match=r"^buffer must be bytes, a bytearray, a memoryview or a NumPy array, got \[1, 2\]$"):
        md.wrap([1, 2])
    for other in (np.zeros(12), memoryview(bytes(96)).cast("d")):
        with pytest.raises(TypeError, match="^buffer must be of float32 or bytes, got an array of float64$"):
            md.wrap(other)
    with pytest.raises(TypeError, match="^buffer must be of float32 or bytes, got an array of object$"):
        md.wrap(memoryview(np.full(12, None)))
    with pytest.raises(TypeError, match="^buffer must not be a masked array"):
        md.wrap(np.ma.masked_array(buffer, buffer > 3))
    with pytest.raises(ValueError, match="^buffer must be contiguous, got an array of float32"):
        md.wrap(np.zeros((3, 8), np.float32).T)
    half = memory_desc((2, 4), data_type.bf16, "ba")
    memory = bytearray(16)
    half.wrap(memory)[...] = 1
    assert memory == 8 * bytes([0x80, 0x3F])


def test_arrays_of_the_descriptors_shape_have_its_strides():
    """They are taken as they are; what lies otherwise would be another tensor."""
    md = memory_desc((1, 3, 2, 2), data_type.f32, "nhwc")
    channels_last = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    array = md.wrap(channels_last.transpose(0, 3, 1, 2))
    assert np.shares_memory(array, channels_last)
    np.testing.assert_array_equal(array, md.wrap(channels_last))
    with pytest.raises(ValueError, match=r"^buffer of the descriptor's shape must be of float32, with strides \(48, 4, 24, 12\), got"):
        md.wrap(np.zeros((1, 3, 2, 2), np.float32))


@pytest.mark.parametrize(
    "tag", ["nhwc8", "nhw", "abcde", "aBcd", "abcd8b", "aBcd4b", "AbcdB8b", "", "dnnl_nchw", "nbhw"]
)
def test_unknown_tags_are_refused(tag):
    with pytest.raises(ValueError, match=f"^format must be .* got {tag!r}$"):
        memory_desc((2, 8, 3, 3), data_type.f32, tag)


def test_vectors_have_onednns_name():
    assert memory_desc((4,), data_type.f32, "x") == memory_desc((4,), data_type.f32, "a")
    with pytest.raises(ValueError, match="^format must be .* of 1 dims such as 'a', 'x', got 'a8b'$"):
        memory_desc((4,), data_type.f32, "a8b")


def test_forward_is_forward_training():
    assert prop_kind.forward is prop_kind.forward_training


def test_descriptors_check_their_parameters():
    with pytest.raises(ValueError, match="^dims must not be negative"):
        memory_desc((2, -1), data_type.f32, "ab")
    with pytest.raises(ValueError, match="^format must have one stride for each of the 2 dims"):
        memory_desc((2, 3), data_type.f32, (3, 1, 1))
    with pytest.raises(ValueError, match="^data_type must be one of undef, f16, bf16, f32, .*, got 99"):
        memory_desc((2, 3), 99, "ab")
    with pytest.raises(TypeError, match=r"^dims must be a sequence of integers, got \(2, 1.5\)"):
        memory_desc((2, 1.5), data_type.f32, "ab")
    with pytest.raises(TypeError, match="^format must be 'any', strides or a tag such as 'nchw', got None"):
        memory_desc((2, 3), data_type.f32, None)
    with pytest.raises(ValueError, match=r"^format must not be negative, got \(3, -1\)"):
        memory_desc((2, 3), data_type.f32, (3, -1))
    for wrong in (True, 3.0, "f32", np.ones(2)):
        with pytest.raises(TypeError, match=f"^data_type must be one of undef, .*, got {re.escape(repr(wrong))}"):
            memory_desc((2, 3), wrong, "ab")
    for wrong in (b"nchw", (3, True)):
        with pytest.raises(TypeError, match=f"^format must be a sequence of integers, got {re.escape(repr(wrong))}"):
            memory_desc((2, 3), data_type.f32, wrong)
    with pytest.raises(TypeError, match="^dims must be a sequence of integers, got 'ab'"):
        memory_desc("ab", data_type.f32, "ab")
    with pytest.raises(ValueError, match=f"^dims must be at most {2**63 - 1}, got"):
        memory_desc((2, 10**30), data_type.f32, "ab")
    with pytest.raises(ValueError, match="^format must be 'any' or strides for 6 dims, .* got 'nchw'"):
        memory_desc((2,) * 6, data_type.f32, "nchw")
    with pytest.raises(TypeError, match="^buffer must be bytes, .* or a NumPy array, got None"):
        memory_desc((2, 3), data_type.f32, "ab").wrap(None)
    assert memory_desc((2, 3), np.int32(3), "ab") == memory_desc((2, 3), data_type.f32, "ab")
    with pytest.raises(ValueError, match="^data_type must be that of an element, got undef"):
        lrn_pair()[0].workspace_desc.empty()


MD = memory_desc((2, 16, 5, 5), data_type.f32, "nchw")
ACROSS = algorithm.lrn_across_channels
TRAINING, INFERENCE = prop_kind.forward_training, prop_kind.forward_inference
SEVERAL = "formats must be plain or in blocks of one size, .* unimplemented for "
LRN_PARAMETERS = {"local_size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0}


def lrn_pair(**changes):
    forward = {"prop_kind": TRAINING, "algorithm": ACROSS, "src_desc": MD, "dst_desc": MD} | LRN_PARAMETERS
    backward = {
        "algorithm": ACROSS,
        "diff_src_desc": MD,
        "diff_dst_desc": MD,
        "src_desc": MD,
    } | LRN_PARAMETERS
    hint = changes.pop("hint_fwd_pd", None) or lrn_forward.primitive_desc(**forward)
    return hint, lrn_backward.primitive_desc(**backward | changes, hint_fwd_pd=hint)


def batch_norm_pair(flags=NONE, hint_flags=None, **changes):
    forward = batch_normalization_forward.primitive_desc(
        changes.pop("hint_prop_kind", TRAINING), MD, MD, 0.1, flags if hint_flags is None else hint_flags
    )
    backward = {"prop_kind": prop_kind.backward, "diff_src_desc": MD, "diff_dst_desc": MD, "src_desc": MD,
                "epsilon": 0.1, "flags": flags}  # fmt: skip
    return forward, batch_normalization_backward.primitive_desc(**backward | changes, hint_fwd_pd=forward)


def test_queries():
    forward, backward = lrn_pair()
    assert forward.src_desc == forward.dst_desc == backward.diff_src_desc == MD
    assert (forward.local_size, forward.alpha, forward.beta, forward.k) == tuple(LRN_PARAMETERS.values())
    assert re.match("lrn_across:plain:f32:", forward.impl_info_str)
    large = memory_desc((2**20, 2**10, 64, 64), data_type.f32, "nhwc")  # 16 TiB, of which nothing is allocated
    of_large = lrn_forward.primitive_desc(TRAINING, ACROSS, large, large, *LRN_PARAMETERS.values())
    assert re.match("lrn_across:channels_last:f32:", of_large.impl_info_str)
    assert lrn_forward(forward).get_primitive_desc() is forward
    forward, backward = batch_norm_pair(SCALE | SHIFT)
    assert (
        forward.mean_desc
        == forward.variance_desc
        == backward.weights_desc
        == backward.diff_weights_desc
        == memory_desc((16,), data_type.f32, "a")
    )
    assert forward.flags == SCALE | SHIFT and backward.impl_info_str
    double = memory_desc(MD.dims, data_type.f64, "nchw")
    forward = batch_normalization_forward.primitive_desc(TRAINING, double, double, 0.1, 3)
    assert forward.weights_desc.data_type == data_type.f64 and forward.flags == GLOBAL | SCALE


def test_open_formats_become_those_of_the_source():
    source, open_desc = (
        memory_desc(MD.dims, data_type.f32, "nhwc"),
        memory_desc(MD.dims, data_type.f32, "any"),
    )
    forward = lrn_forward.primitive_desc(TRAINING, ACROSS, source, open_desc, **LRN_PARAMETERS)
    assert forward.dst_desc == source
    backward = lrn_backward.primitive_desc(
        ACROSS, open_desc, open_desc, source, **LRN_PARAMETERS, hint_fwd_pd=forward
    )
    assert backward.diff_src_desc == backward.diff_dst_desc == source
    with pytest.raises(ValueError, match="^src_desc must have a format, got 'any'"):
        lrn_forward.primitive_desc(TRAINING, ACROSS, open_desc, source, **LRN_PARAMETERS)


# ------------------------------------------------------------------------------------------------------------
# Workspaces


@given(lrn_problems())
def test_the_lrn_workspace_query_tells_the_truth(problem):
    src, diff_dst = values_of(problem)
    ours = run_lrn(problem, src, diff_dst)
    assert ours.forward.workspace_desc.get_size() == ours.workspace.nbytes
    assert ours.forward.workspace_desc.is_zero == (ours.workspace.nbytes == 0)


@given(batch_norm_problems())
def test_the_batch_normalization_workspace_query_tells_the_truth(problem):
    ours = run_batch_norm(problem, batch_norm_values(problem))
    assert ours.forward.workspace_desc.get_size() == ours.workspace.nbytes
    assert ours.forward.workspace_desc.is_zero == (not problem["flags"] & (RELU | ADD_RELU))
    assert ours.backward.workspace_desc == ours.forward.workspace_desc


def test_inference_has_no_workspace():
    assert lrn_forward.primitive_desc(INFERENCE, ACROSS, MD, MD, **LRN_PARAMETERS).workspace_desc.is_zero
    pd = batch_normalization_forward.primitive_desc(INFERENCE, MD, MD, 0.1, RELU)
    assert pd.workspace_desc.is_zero and pd.workspace_desc.get_size() == 0


def forward_workspace(pd):
    """A workspace filled by a forward primitive on some tensor."""
    workspace = cynorm.Workspace()
    one = np.ones(pd.src_desc.dims[1], np.float32)
    arguments = {DNNL_ARG_SRC: put(pd.src_desc, np.ones(pd.src_desc.dims)), DNNL_ARG_DST: pd.dst_desc.empty(),
                 DNNL_ARG_MEAN: one, DNNL_ARG_VARIANCE: one.copy(),
                 DNNL_ARG_WORKSPACE: workspace}  # fmt: skip
    primitive = lrn_forward if isinstance(pd, lrn_forward.primitive_desc) else batch_normalization_forward
    primitive(pd).execute(arguments)
    return workspace


OTHER_MD = memory_desc((2, 16, 5, 4), data_type.f32, "nchw")
FOREIGN_LRN = [
    ("unfilled", cynorm.Workspace),
    ("other shape", lambda: forward_workspace(
        lrn_forward.primitive_desc(TRAINING, ACROSS, OTHER_MD, OTHER_MD, **LRN_PARAMETERS))),
    ("other parameters", lambda: forward_workspace(
        lrn_forward.primitive_desc(TRAINING, ACROSS, MD, MD, **LRN_PARAMETERS | {"alpha": 1.0}))),
    ("other operator", lambda: forward_workspace(
        batch_normalization_forward.primitive_desc(TRAINING, MD, MD, 0.1, RELU))),
]  # fmt: skip
FOREIGN_BATCH_NORM = [
    ("unfilled", cynorm.Workspace),
    ("other shape", lambda: forward_workspace(
        batch_normalization_forward.primitive_desc(TRAINING, OTHER_MD, OTHER_MD, 0.1, RELU))),
    ("other parameters", lambda: forward_workspace(
        batch_normalization_forward.primitive_desc(TRAINING, MD, MD, 0.2, RELU))),
    ("other operator", lambda: forward_workspace(
        lrn_forward.primitive_desc(TRAINING, ACROSS, MD, MD, **LRN_PARAMETERS))),
]  # fmt: skip


def other_problem(data, problem, changes):
    """The problem with one thing changed."""
    name = data.draw(st.sampled_from(sorted(changes)))
    value = changes[name](problem[name])
    return problem | {"tags": dense(problem["tags"], problem["dims"]), name: value}


COMMON_CHANGES = {
    "dims": lambda dims: (dims[0] + 1, *dims[1:]),
    "kind": lambda kind: FLOATS[(FLOATS.index(kind) + 1) % len(FLOATS)],
}


@given(st.data(), lrn_problems())
def test_lrn_backward_refuses_the_workspace_of_any_other_problem(data, problem):
    changes = COMMON_CHANGES | {
        "across": lambda across: not across,
        "local_size": lambda n: n + 1,
        "alpha": lambda alpha: alpha + 0.5,
        "beta": lambda beta: beta / 2,
        "k": lambda k: k + 1,
    }
    other = other_problem(data, problem, changes)
    ours = run_lrn(problem, *values_of(problem))
    assume(ours.forward._op == ours.backward._op)
    theirs = run_lrn(other, *values_of(other))
    ours.arguments[DNNL_ARG_DIFF_SRC][...] = 7
    with pytest.raises(ValueError, match="^workspace was filled by"):
        lrn_backward(ours.backward).execute(ours.arguments | {DNNL_ARG_WORKSPACE: theirs.workspace})
    assert (ours.arguments[DNNL_ARG_DIFF_SRC] == 7).all()


def test_lrn_backward_in_other_blocks_ignores_the_workspace():
    dims, (plain, blocks) = (2, 16, 3, 3), (memory_desc((2, 16, 3, 3), data_type.f32, tag) for tag in ("nchw", "nChw8c"))
    forward = lrn_forward.primitive_desc(TRAINING, ACROSS, plain, plain, **LRN_PARAMETERS)
    backward = lrn_backward.primitive_desc(ACROSS, blocks, blocks, plain, **LRN_PARAMETERS, hint_fwd_pd=forward)
    src, workspace, out, expected = np.ones(dims, np.float32), cynorm.Workspace(), blocks.empty(), blocks.empty()
    lrn_forward(forward).execute({DNNL_ARG_SRC: src, DNNL_ARG_DST: np.empty_like(src), DNNL_ARG_WORKSPACE: workspace})
    arguments = {DNNL_ARG_SRC: src, DNNL_ARG_DIFF_DST: np.ones_like(out)}
    lrn_backward(backward).execute(arguments | {DNNL_ARG_DIFF_SRC: expected})
    lrn_backward(backward).execute(arguments | {DNNL_ARG_DIFF_SRC: out, DNNL_ARG_WORKSPACE: workspace})
    assert_same_bits(out, expected)


def test_strides_of_empty_tensors():
    assert memory_desc((2, 0, 3), data_type.f32, "abc").strides == (3, 3, 1)
    assert memory_desc((0, 3), data_type.f32, "ba").strides == (1, 1)


@given(st.data(), batch_norm_problems())
def test_batch_normalization_backward_refuses_the_workspace_of_any_other_problem(data, problem):
    assume(problem["flags"] & (RELU | ADD_RELU))
    changes = COMMON_CHANGES | {"epsilon": lambda e: e * 2, "flags": lambda flags: flags ^ GLOBAL}
    other = other_problem(data, problem, changes)
    ours = run_batch_norm(problem, batch_norm_values(problem))
    theirs = run_batch_norm(other, batch_norm_values(other))
    ours.arguments[DNNL_ARG_DIFF_SRC][...] = 7
    with pytest.raises(ValueError, match="^workspace was filled by"):
        batch_normalization_backward(ours.backward).execute(
            ours.arguments | {DNNL_ARG_WORKSPACE: theirs.workspace}
        )
    assert (ours.arguments[DNNL_ARG_DIFF_SRC] == 7).all()


def backward_arguments(workspace):
    one = np.ones(16, np.float32)
    tensor = np.ones(MD.dims, np.float32)
    return {DNNL_ARG_SRC: tensor, DNNL_ARG_DIFF_DST: tensor,
            DNNL_ARG_MEAN: one, DNNL_ARG_VARIANCE: one.copy(),
            DNNL_ARG_DIFF_SRC: np.full(MD.dims, 7, np.float32), DNNL_ARG_WORKSPACE: workspace}  # fmt: skip


@pytest.mark.parametrize("make", [f[1] for f in FOREIGN_LRN], ids=[f[0] for f in FOREIGN_LRN])
def test_lrn_backward_refuses_a_foreign_workspace(make):
    forward, backward = lrn_pair()
    lrn_backward(backward).execute(backward_arguments(forward_workspace(forward)))
    arguments = backward_arguments(make())
    with pytest.raises(ValueError, match="workspace"):
        lrn_backward(backward).execute(arguments)
    np.testing.assert_array_equal(arguments[DNNL_ARG_DIFF_SRC], 7)


@pytest.mark.parametrize("make", [f[1] for f in FOREIGN_BATCH_NORM], ids=[f[0] for f in FOREIGN_BATCH_NORM])
def test_batch_normalization_backward_refuses_a_foreign_workspace(make):
    forward, backward = batch_norm_pair(RELU)
    batch_normalization_backward(backward).execute(backward_arguments(forward_workspace(forward)))
    arguments = backward_arguments(make())
    with pytest.raises(ValueError, match="workspace"):
        batch_normalization_backward(backward).execute(arguments)
    np.testing.assert_array_equal(arguments[DNNL_ARG_DIFF_SRC], 7)


def test_a_workspace_that_is_needed_must_be_given():
    forward, backward = batch_norm_pair(RELU)
    message = rf"^args must hold DNNL_ARG_WORKSPACE \(64\), of {forward.workspace_desc.get_size()} bytes"
    arguments = backward_arguments(None) | {DNNL_ARG_DST: MD.empty()}
    for primitive in (batch_normalization_forward(forward), batch_normalization_backward(backward)):
        with pytest.raises(ValueError, match=message):
            primitive.execute(arguments)
        with pytest.raises(TypeError, match="^DNNL_ARG_WORKSPACE must be a cynorm.Workspace, got ndarray"):
            primitive.execute(arguments | {DNNL_ARG_WORKSPACE: np.zeros(10, np.uint8)})


# ------------------------------------------------------------------------------------------------------------
# What is refused


HALF = memory_desc(MD.dims, data_type.f16, "nchw")
INT8 = memory_desc(MD.dims, data_type.s8, "nchw")
BLOCKS_OF_8, BLOCKS_OF_16 = (memory_desc(MD.dims, data_type.f32, f"nChw{b}c") for b in (8, 16))
FLAT, DEEP = memory_desc((16,), data_type.f32, "a"), memory_desc((1,) * 6, data_type.f32, (1,) * 6)
ODD, ODD_BLOCKS = (memory_desc((2, 12, 5, 5), data_type.f32, tag) for tag in ("nchw", "nChw8c"))
FLAT_BLOCKS = memory_desc((2, 16), data_type.f32, "aB8b")


@pytest.mark.parametrize("changes, error, message", [
    ({"prop_kind": prop_kind.backward}, ValueError, "prop_kind must be forward_training or "),
    ({"prop_kind": "forward"}, TypeError, "prop_kind must be forward_training or .*, got 'forward'"),
    ({"prop_kind": np.ones(2)}, TypeError, "prop_kind must be forward_training or .*, got array"),
    ({"algorithm": True}, TypeError, "algorithm must be lrn_across_channels or .*, got True"),
    ({"algorithm": np.ones(2)}, TypeError, "algorithm must be lrn_across_channels or .*, got array"),
    ({"alpha": 10**400}, ValueError, "alpha must"),
    ({"k": True}, TypeError, "k must"),
    ({"algorithm": 5}, ValueError, "algorithm must be lrn_across_channels or lrn_within_channel, got 5"),
    ({"src_desc": INT8, "dst_desc": INT8}, TypeError, "src_desc must be of type f32, bf16, f16, f64, got s8"),
    ({"dst_desc": HALF}, TypeError, "dst_desc must be f32 as src_desc is, got f16"),
    ({"dst_desc": OTHER_MD}, ValueError, r"dst_desc must have the dims of src_desc, \(2, 16, 5, 5\), got"),
    ({"src_desc": FLAT, "dst_desc": FLAT}, ValueError, r"src_desc must have 2 to 5 dims, got \(16,\)"),
    ({"src_desc": DEEP, "dst_desc": DEEP}, ValueError, "src_desc must have 2 to 5 dims"),
    ({"src_desc": BLOCKS_OF_8, "dst_desc": BLOCKS_OF_16}, ValueError, SEVERAL + "blocks of 8, blocks of 16 "),
    ({"src_desc": ODD, "dst_desc": ODD_BLOCKS}, ValueError, SEVERAL + "plain, blocks of 8 of 12 channels"),
    ({"src_desc": FLAT_BLOCKS, "dst_desc": FLAT_BLOCKS}, ValueError, "formats must be plain without spatial dims"),
    ({"src_desc": "nchw"}, TypeError, "src_desc must be a memory_desc, got str"),
    ({"dst_desc": np.ones(3)}, TypeError, "dst_desc must be a memory_desc, got ndarray"),
    ({"local_size": 0}, ValueError, "local_size must"),
    ({"local_size": [5]}, TypeError, "local_size must"),
    ({"alpha": np.nan}, ValueError, "alpha must"),
    ({"beta": np.inf}, ValueError, "beta must"),
    ({"k": "one"}, TypeError, "k must"),
])  # fmt: skip
def test_lrn_forward_descriptors_are_checked(changes, error, message):
    valid = {"prop_kind": TRAINING, "algorithm": ACROSS, "src_desc": MD, "dst_desc": MD} | LRN_PARAMETERS
    with pytest.raises(error, match=f"^{message}"):
        lrn_forward.primitive_desc(**valid | changes)


@pytest.mark.parametrize("changes, error, message", [
    ({"algorithm": algorithm.lrn_within_channel}, ValueError, "algorithm must be hint_fwd_pd's"),
    ({"local_size": 3}, ValueError, "local_size must be hint_fwd_pd's 5, got 3"),
    ({"alpha": 1.0}, ValueError, "alpha must be hint_fwd_pd's"),
    ({"beta": 1.0}, ValueError, "beta must be hint_fwd_pd's"),
    ({"k": 2.0}, ValueError, "k must be hint_fwd_pd's"),
    ({"beta": np.ones(2)}, TypeError, "beta must be a finite number, got array"),
    ({"local_size": np.ones(2)}, TypeError, "local_size must be an integer of at least 1, got array"),
    ({"src_desc": OTHER_MD, "diff_src_desc": OTHER_MD, "diff_dst_desc": OTHER_MD}, ValueError,
     "src_desc must have the dims and type of hint_fwd_pd's"),
    ({"diff_src_desc": OTHER_MD}, ValueError, "diff_src_desc must have the dims of src_desc"),
    ({"diff_dst_desc": HALF}, TypeError, "diff_dst_desc must be f32 as src_desc is, got f16"),
    ({"diff_dst_desc": BLOCKS_OF_8, "src_desc": BLOCKS_OF_16}, ValueError, SEVERAL + "plain, blocks of 8, "),
    ({"hint_fwd_pd": "none"}, TypeError, "hint_fwd_pd must be a lrn_forward.primitive_desc"),
])  # fmt: skip
def test_lrn_backward_descriptors_are_checked(changes, error, message):
    with pytest.raises(error, match=f"^{message}"):
        lrn_pair(**changes)


@pytest.mark.parametrize("changes, error, message", [
    ({"prop_kind": prop_kind.backward_data}, ValueError, "prop_kind must be forward_training or "),
    ({"src_desc": INT8, "dst_desc": INT8}, TypeError, r"src_desc must be of type f32, bf16, f16, f64 \(s8 in forward_inference with use_global_stats\), got s8"),
    ({"dst_desc": HALF}, TypeError, "dst_desc must be f32 as src_desc is, got f16"),
    ({"dst_desc": OTHER_MD}, ValueError, "dst_desc must have the dims of src_desc"),
    ({"flags": RELU | ADD_RELU}, ValueError, "flags must not have both fuse_norm_relu and .*, got "),
    ({"flags": 64}, ValueError, "flags must be made of use_global_stats, .*, got 64"),
    ({"flags": True}, TypeError, "flags must be made of use_global_stats, .*, got True"),
    ({"flags": np.ones(2)}, TypeError, "flags must be made of use_global_stats, .*, got array"),
    ({"flags": "use_scale"}, TypeError, "flags must be made of use_global_stats, .*, got 'use_scale'"),
    ({"epsilon": -1.0}, ValueError, "epsilon must"),
    ({"epsilon": np.nan}, ValueError, "epsilon must"),
])  # fmt: skip
def test_batch_normalization_forward_descriptors_are_checked(changes, error, message):
    valid = {"prop_kind": TRAINING, "src_desc": MD, "dst_desc": MD, "epsilon": 0.1, "flags": NONE}
    with pytest.raises(error, match=f"^{message}"):
        batch_normalization_forward.primitive_desc(**valid | changes)


@pytest.mark.parametrize("changes, error, message", [
    ({"prop_kind": TRAINING}, ValueError, "prop_kind must be backward or backward_data"),
    ({"hint_prop_kind": INFERENCE}, ValueError, "prop_kind of hint_fwd_pd must be forward_training"),
    ({"flags": SCALE, "hint_flags": SHIFT}, ValueError, "flags must be hint_fwd_pd's"),
    ({"epsilon": 0.2}, ValueError, "epsilon must be hint_fwd_pd's 0.1, got 0.2"),
    ({"diff_src_desc": OTHER_MD}, ValueError, "diff_src_desc must have the dims of src_desc"),
    ({"diff_dst_desc": BLOCKS_OF_8, "flags": RELU}, ValueError, "formats must have the blocks of .* NCHW, .* for nChw8c"),
])  # fmt: skip
def test_batch_normalization_backward_descriptors_are_checked(changes, error, message):
    with pytest.raises(error, match=f"^{message}"):
        batch_norm_pair(**changes)


def test_a_primitive_takes_its_own_descriptor_only():
    forward, backward = lrn_pair()
    with pytest.raises(TypeError, match="^primitive_desc must be a lrn_forward.primitive_desc"):
        lrn_forward(backward)
    with pytest.raises(
        TypeError, match="^primitive_desc must be a batch_normalization_forward.primitive_desc"
    ):
        batch_normalization_forward(forward)


TENSOR = np.ones(MD.dims, np.float32)
READ_ONLY = TENSOR.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize("index, array, error, message", [
    (DNNL_ARG_SRC, None, TypeError, "DNNL_ARG_SRC must be a NumPy array, got NoneType"),
    (DNNL_ARG_DST, None, TypeError, "DNNL_ARG_DST must be a NumPy array, got NoneType"),
    (DNNL_ARG_SRC, TENSOR.tolist(), TypeError, "DNNL_ARG_SRC must be a NumPy array, got list"),
    (DNNL_ARG_SRC, np.ma.masked_array(TENSOR), TypeError, "DNNL_ARG_SRC must not be a masked array"),
    (DNNL_ARG_SRC, TENSOR.astype(np.float64), TypeError, "DNNL_ARG_SRC must be float32 as its"),
    (DNNL_ARG_SRC, TENSOR[:1], ValueError, r"DNNL_ARG_SRC must have shape \(2, 16, 5, 5\) as"),
    (DNNL_ARG_DST, TENSOR.T, ValueError, "DNNL_ARG_DST must have shape"),
    (DNNL_ARG_DST, READ_ONLY, ValueError, "DNNL_ARG_DST must be writable, got a read-only array"),
])  # fmt: skip
def test_arguments_are_checked(index, array, error, message):
    forward = lrn_forward.primitive_desc(INFERENCE, ACROSS, MD, MD, **LRN_PARAMETERS)
    arguments = {DNNL_ARG_SRC: TENSOR, DNNL_ARG_DST: np.empty_like(TENSOR)} | {index: array}
    with pytest.raises(error, match=f"^{message}"):
        lrn_forward(forward).execute(arguments)


@pytest.mark.parametrize("args", [None, [], [TENSOR] * 200, TENSOR], ids=lambda args: type(args).__name__)
def test_arguments_are_given_by_index(args):
    forward = lrn_forward.primitive_desc(INFERENCE, ACROSS, MD, MD, **LRN_PARAMETERS)
    with pytest.raises(TypeError, match=f"^args must be a dict of arrays by index, got {type(args).__name__}"):
        lrn_forward(forward).execute(args)


@pytest.mark.parametrize(
    "index", [DNNL_ARG_MEAN, DNNL_ARG_VARIANCE, DNNL_ARG_SCALE, DNNL_ARG_SHIFT, DNNL_ARG_SRC_1]
)
def test_arguments_that_flags_ask_for_are_required(index):
    flags = GLOBAL | SCALE | SHIFT | ADD_RELU
    pd = batch_normalization_forward.primitive_desc(INFERENCE, MD, MD, 0.1, flags)
    one = np.ones(16, np.float32)
    arguments = {DNNL_ARG_SRC: TENSOR, DNNL_ARG_DST: np.empty_like(TENSOR), DNNL_ARG_SRC_1: TENSOR,
                 DNNL_ARG_MEAN: one, DNNL_ARG_VARIANCE: one, DNNL_ARG_SCALE: one,
                 DNNL_ARG_SHIFT: one}  # fmt: skip
    batch_normalization_forward(pd).execute(arguments)
    with pytest.raises(ValueError, match=rf"^args must hold DNNL_ARG_\w+ \({index}\)"):
        batch_normalization_forward(pd).execute({i: a for i, a in arguments.items() if i != index})


def batch_norm_arguments(flags):
    """Primitives of a problem, and an array of its own for each argument of the two."""
    tensors = (DNNL_ARG_SRC, DNNL_ARG_SRC_1, DNNL_ARG_DST, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC,
               DNNL_ARG_DIFF_SRC_1)  # fmt: skip
    vectors = (DNNL_ARG_MEAN, DNNL_ARG_VARIANCE, DNNL_ARG_SCALE, DNNL_ARG_SHIFT, DNNL_ARG_DIFF_SCALE,
               DNNL_ARG_DIFF_SHIFT)  # fmt: skip
    arguments = {index: np.full(MD.dims, 7, np.float32) for index in tensors}
    arguments |= {index: np.full(16, 7, np.float32) for index in vectors}
    arguments[DNNL_ARG_WORKSPACE] = cynorm.Workspace()
    return *batch_normalization_primitives(MD, MD, MD, MD, flags=flags), arguments


WRITTEN = {
    "forward": (DNNL_ARG_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE),
    "backward": (DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT, DNNL_ARG_DIFF_SRC_1),
}
PAIRS = [(which, *pair) for which, written in WRITTEN.items() for pair in combinations(written, 2)]


@pytest.mark.parametrize("which, first, second", PAIRS)
def test_arguments_that_are_written_share_no_memory(which, first, second):
    forward, backward, arguments = batch_norm_arguments(SCALE | SHIFT | ADD_RELU)
    forward.execute(arguments)
    primitive = {"forward": forward, "backward": backward}[which]
    primitive.execute(arguments)
    larger, smaller = sorted((arguments[first], arguments[second]), key=lambda array: -array.size)
    part = larger.reshape(-1)[: smaller.size].reshape(smaller.shape)
    broken = arguments | {index: part for index in (first, second) if arguments[index] is smaller}
    before = {index: array.copy() for index, array in broken.items() if isinstance(array, np.ndarray)}
    with pytest.raises(ValueError, match=r"^DNNL_ARG_\w+ must not overlap DNNL_ARG_\w+, got") as caught:
        primitive.execute(broken)
    for index in (first, second):
        assert re.search(rf"{onednn._ARG_NAMES[index]}\b", str(caught.value))
    for index, array in before.items():
        assert_same_bits(broken[index], array)


@pytest.mark.parametrize("which, written, read", [
    ("forward", DNNL_ARG_DST, DNNL_ARG_SRC), ("forward", DNNL_ARG_DST, DNNL_ARG_SRC_1),
    ("backward", DNNL_ARG_DIFF_SRC, DNNL_ARG_SRC), ("backward", DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST),
    ("backward", DNNL_ARG_DIFF_SRC_1, DNNL_ARG_DIFF_DST),
])  # fmt: skip
def test_what_is_written_may_be_what_is_read_but_not_overlap_it(which, written, read):
    forward, backward, arguments = batch_norm_arguments(SCALE | SHIFT | ADD_RELU)
    forward.execute(arguments)
    primitive = {"forward": forward, "backward": backward}[which]
    primitive.execute(arguments | {written: arguments[read]})
    memory = np.full((3, *MD.dims[1:]), 7, np.float32)
    names = [onednn._ARG_NAMES[index] for index in (written, read)]
    with pytest.raises(
        ValueError, match=f"^{names[0]} must be the same array or not overlap {names[1]}, got"
    ):
        primitive.execute(arguments | {written: memory[1:], read: memory[:2]})
    repeated = np.broadcast_to(memory[:1], MD.dims)
    repeated.flags.writeable = True
    with pytest.raises(ValueError, match=f"^{names[0]} must not overlap itself, got strides"):
        primitive.execute(arguments | {written: repeated})
    assert (memory == 7).all()


def test_the_gradient_of_what_was_added_is_not_written_over_src():
    forward, backward, arguments = batch_norm_arguments(SCALE | SHIFT | ADD_RELU)
    forward.execute(arguments)
    with pytest.raises(ValueError, match="^DNNL_ARG_DIFF_SRC_1 must not overlap DNNL_ARG_SRC, got"):
        backward.execute(arguments | {DNNL_ARG_DIFF_SRC_1: arguments[DNNL_ARG_SRC]})
    assert (arguments[DNNL_ARG_SRC] == 7).all()


@pytest.mark.parametrize("array, error, message", [
    (None, TypeError, "DNNL_ARG_DIFF_SRC_1 must be a NumPy array, got NoneType"),
    (TENSOR.astype(np.float64), TypeError, "DNNL_ARG_DIFF_SRC_1 must be float32 as its"),
    (TENSOR[:1], ValueError, r"DNNL_ARG_DIFF_SRC_1 must have shape \(2, 16, 5, 5\) as"),
    (READ_ONLY, ValueError, "DNNL_ARG_DIFF_SRC_1 must be writable, got a read-only array"),
])  # fmt: skip
def test_the_gradient_of_what_is_added_is_checked(array, error, message):
    one, diff_src = np.ones(16, np.float32), TENSOR.copy()
    arguments = {DNNL_ARG_SRC: TENSOR, DNNL_ARG_SRC_1: TENSOR, DNNL_ARG_DST: np.empty_like(TENSOR),
                 DNNL_ARG_MEAN: one.copy(), DNNL_ARG_VARIANCE: one.copy(),
                 DNNL_ARG_DIFF_DST: TENSOR, DNNL_ARG_DIFF_SRC: diff_src, DNNL_ARG_DIFF_SRC_1: array,
                 DNNL_ARG_WORKSPACE: cynorm.Workspace()}  # fmt: skip
    forward, backward = add_relu_primitives(MD, MD, MD, MD)
    forward.execute(arguments)
    with pytest.raises(error, match=f"^{message}"):
        backward.execute(arguments)
    assert (diff_src == 1).all()


def test_arrays_may_have_other_strides_than_their_descriptor():
    pd = lrn_forward.primitive_desc(INFERENCE, ACROSS, MD, MD, **LRN_PARAMETERS)
    src = random_values(np.random.default_rng(4), MD.dims, MD.dtype)
    expected, dst = MD.empty(), memory_desc(MD.dims, data_type.f32, "nhwc").empty()
    lrn_forward(pd).execute({DNNL_ARG_SRC: src, DNNL_ARG_DST: expected})
    lrn_forward(pd).execute({DNNL_ARG_SRC: np.asfortranarray(src), DNNL_ARG_DST: dst})
    assert_same_bits(dst, expected)


def test_a_descriptor_of_any_format_has_no_memory():
    desc = memory_desc(MD.dims, data_type.f32, "any")
    for size in (desc.get_size, desc.empty):
        with pytest.raises(ValueError, match="^format must be a tag or strides, got 'any'"):
            size()


# ------------------------------------------------------------------------------------------------------------
# Memory


COPY_TAGS = [("nchw",) * 4, ("nhwc", "nchw", "nhwc", "nchw"), ("nChw8c", "nhwc", "nchw", "nChw8c")]


def lrn_primitives(src_desc, dst_desc, diff_dst_desc, diff_src_desc):
    forward = lrn_forward.primitive_desc(TRAINING, ACROSS, src_desc, dst_desc, **LRN_PARAMETERS)
    backward = lrn_backward.primitive_desc(
        ACROSS, diff_src_desc, diff_dst_desc, src_desc, **LRN_PARAMETERS, hint_fwd_pd=forward
    )
    return lrn_forward(forward), lrn_backward(backward)


def batch_normalization_primitives(src_desc, dst_desc, diff_dst_desc, diff_src_desc, flags=NONE):
    forward = batch_normalization_forward.primitive_desc(TRAINING, src_desc, dst_desc, 0.1, flags)
    backward = batch_normalization_backward.primitive_desc(
        prop_kind.backward, diff_src_desc, diff_dst_desc, src_desc, 0.1, flags, forward
    )
    return batch_normalization_forward(forward), batch_normalization_backward(backward)


def add_relu_primitives(*descs):
    return batch_normalization_primitives(*descs, flags=ADD_RELU)


@pytest.mark.parametrize("make", [lrn_primitives, batch_normalization_primitives, add_relu_primitives])
@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("tags", COPY_TAGS, ids="-".join)
def test_no_tensor_is_copied(make, kind, tags):
    descs = describe((8, 32, 64, 64), kind, tags)
    tensors = dict(
        zip(
            (DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC),
            (put(desc, np.ones(desc.dims)) for desc in descs),
            strict=True,
        )
    )
    tensors |= {DNNL_ARG_SRC_1: tensors[DNNL_ARG_SRC], DNNL_ARG_DIFF_SRC_1: descs[3].empty()}
    one = np.ones(32, np.float64 if kind == data_type.f64 else np.float32)
    arguments = tensors | {
        DNNL_ARG_MEAN: one, DNNL_ARG_VARIANCE: one.copy(), DNNL_ARG_WORKSPACE: cynorm.Workspace()
    }  # fmt: skip
    for primitive in make(*descs):
        primitive.execute(arguments)
        tracemalloc.start()
        primitive.execute(arguments)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < tensors[DNNL_ARG_SRC].nbytes / 10


def test_bfloat16_without_ml_dtypes_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="^data_type must be one that NumPy has, got bf16, .*pip install ml_dtypes"):
        onednn.memory_desc((2, 2), onednn.data_type.bf16, "nc").dtype  # noqa: B018


# ------------------------------------------------------------------------------------------------------------
# What descriptors keep and compare

SMALL = memory_desc((1, 2), data_type.f32, "nc")


def test_a_hint_of_another_data_type_is_refused():
    half = memory_desc((1, 2), data_type.f16, "nc")
    parameters = {"local_size": 5, "alpha": 1, "beta": 1, "k": 1}
    hint = lrn_forward.primitive_desc(
        prop_kind.forward_training, algorithm.lrn_across_channels, half, half, **parameters
    )
    with pytest.raises(ValueError, match="src_desc must have the dims and type of hint_fwd_pd's"):
        lrn_backward.primitive_desc(
            algorithm.lrn_across_channels, SMALL, SMALL, SMALL, **parameters, hint_fwd_pd=hint
        )


def test_axes_of_one_element_span_nothing():
    md = memory_desc((1, 3), data_type.f32, (100, 1))
    assert md.get_size() == 12 and md.wrap(bytes(12)).shape == (1, 3)


def test_a_memoryview_with_gaps_is_refused():
    with pytest.raises(ValueError, match="buffer must be contiguous"):
        memory_desc((2,), data_type.f32, "a").wrap(memoryview(bytes(16))[::2])


def test_descriptors_keep_floats():
    one = np.array(1.0)  # which cannot be hashed
    pd = lrn_forward.primitive_desc(
        prop_kind.forward_training, algorithm.lrn_across_channels, SMALL, SMALL, 5, one, one, one
    )
    assert [type(value) for value in (pd.alpha, pd.beta, pd.k)] == [float] * 3
    hash(pd)
    pd = batch_normalization_forward.primitive_desc(prop_kind.forward_training, SMALL, SMALL, one, 0)
    assert type(pd.epsilon) is float
    hash(pd)
