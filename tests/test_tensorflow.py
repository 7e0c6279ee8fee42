"""cynorm.tensorflow against TensorFlow's formulas, its error texts and, where installed, TensorFlow."""

import inspect
import itertools
import os
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynorm
from cynorm import tensorflow as ours
from cynorm._messages import shown
from reference import DTYPES, assert_within, loose_tolerance, ulp, wide
from strategies import memories, place, random_values

IMAGE_DTYPES = [dtype for dtype in DTYPES if dtype != np.float64]
F32 = np.dtype(np.float32)
FORMATS = ["NHWC", "NCHW", "NDHWC", "NCDHW"]


# ------------------------------------------------------------------------------------------------------------
# The formulas, written out


def window(channels, depth_radius):
    """A band matrix whose entry (i, j) tells whether channel j is summed for channel i."""
    distance = np.subtract.outer(np.arange(channels), np.arange(channels))
    return (abs(distance) <= depth_radius).astype(float)


def lrn_formula(x, depth_radius, bias, alpha, beta):
    """input / (bias + alpha * sqr_sum)^beta with sqr_sum[.., d] = sum(input[.., d - r : d + r + 1]^2)."""
    x = wide(x)
    return x / (bias + alpha * (x**2 @ window(x.shape[-1], depth_radius))) ** beta


def lrn_grad_terms(g, x, y, depth_radius, bias, alpha, beta):
    """The terms of sum_j g_j * (delta_kj * norm_j^-beta - 2 * alpha * beta * x_k * y_j / norm_j)."""
    g, x, y = wide(g), wide(x), wide(y)
    band = window(x.shape[-1], depth_radius)
    norm = bias + alpha * (x**2 @ band)
    return g * norm**-beta, 2 * alpha * beta * x * ((g * y / norm) @ band)


def channels_last(x, data_format):
    return wide(np.moveaxis(x, data_format.index("C"), -1))


# ------------------------------------------------------------------------------------------------------------
# Problems


@st.composite
def lrn_problems(draw):
    return {
        "rng": np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        "shape": tuple(draw(st.integers(1, n)) for n in (3, 4, 4, 24)),
        "dtype": draw(st.sampled_from(IMAGE_DTYPES)),
        "memory": [draw(memories(4)) for _ in range(3)],
        "depth_radius": draw(st.integers(0, 8) | st.sampled_from((100, 2**31 - 2))),
        "bias": draw(st.floats(0.5, 3)),
        "alpha": draw(st.floats(0, 2)),
        "beta": draw(st.sampled_from((0.5, 0.75, 1.0)) | st.floats(0, 2)),
    }


def parameters_of(problem):
    return {name: problem[name] for name in ("depth_radius", "bias", "alpha", "beta")}


@st.composite
def batch_norm_problems(draw):
    data_format = draw(st.sampled_from(FORMATS))
    return {
        "rng": np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        "data_format": data_format,
        "shape": tuple(draw(st.integers(1, 9 if letter == "C" else 4)) for letter in data_format),
        "dtype": draw(st.sampled_from(IMAGE_DTYPES)),
        "memory": [draw(memories(len(data_format))) for _ in range(2)],
        "epsilon": draw(st.sampled_from((1e-4, 1e-2, 0.5))),
        "factor": draw(st.sampled_from((1.0, 0.25, 0.0))),
        "is_training": draw(st.booleans()),
    }


def vectors(rng, channels):
    """mean, variance, scale, offset."""
    mean, scale, offset = rng.standard_normal((3, channels)).astype(np.float32)
    return mean, rng.uniform(0.5, 2, channels).astype(np.float32), scale, offset


# ------------------------------------------------------------------------------------------------------------
# LRN


@given(lrn_problems())
def test_lrn_is_the_formula(problem):
    x, _ = place(random_values(problem["rng"], problem["shape"], problem["dtype"]), problem["memory"][0])
    result = ours.lrn(x, **parameters_of(problem))
    expected = lrn_formula(x, **parameters_of(problem))
    assert result.dtype == x.dtype
    assert_within(result, expected, loose_tolerance(expected, x.dtype, 8))


@given(lrn_problems(), st.booleans())
def test_lrn_grad_uses_the_supplied_output(problem, consistent):
    g, x, y = (
        place(random_values(problem["rng"], problem["shape"], problem["dtype"]), memory)[0]
        for memory in problem["memory"]
    )
    if consistent:
        y[...] = ours.lrn(x, **parameters_of(problem))
    result = ours.lrn_grad(g, x, y, **parameters_of(problem))
    direct, through_norm = lrn_grad_terms(g, x, y, **parameters_of(problem))
    _, magnitude = lrn_grad_terms(abs(g), abs(x), abs(y), **parameters_of(problem))
    assert_within(result, direct - through_norm, loose_tolerance(abs(direct) + magnitude, x.dtype, 16))


def test_lrn_defaults_are_tensorflows():
    rng = np.random.default_rng(1)
    g, x, y = random_values(rng, (3, 1, 2, 2, 20), F32)
    written_out = {"depth_radius": 5, "bias": 1, "alpha": 1, "beta": 0.5}
    np.testing.assert_array_equal(ours.lrn(x), ours.lrn(x, **written_out, name="anything"))
    np.testing.assert_array_equal(
        ours.lrn_grad(g, x, y), ours.lrn_grad(g, x, y, **written_out, name="anything")
    )


def test_lrn_writes_into_out_and_in_place():
    g, x, y = random_values(np.random.default_rng(2), (3, 2, 3, 3, 8), F32)
    expected, expected_gradient = ours.lrn(x), ours.lrn_grad(g, x, y)
    out = np.empty_like(x)
    assert ours.lrn(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert ours.lrn_grad(g, x, y, out=g) is g
    np.testing.assert_array_equal(g, expected_gradient)


# ------------------------------------------------------------------------------------------------------------
# Fused batch normalization


@given(batch_norm_problems())
def test_fused_batch_norm_is_the_formula(problem):
    rng, dtype, data_format = problem["rng"], problem["dtype"], problem["data_format"]
    x, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][0])
    given_mean, given_variance, scale, offset = vectors(rng, problem["shape"][data_format.index("C")])
    factor, epsilon, training = problem["factor"], problem["epsilon"], problem["is_training"]
    result = ours.fused_batch_norm(
        x, scale, offset, given_mean, given_variance, epsilon, factor, data_format, training
    )
    values = channels_last(x, data_format)
    axes = tuple(range(values.ndim - 1))
    mean, variance = wide(given_mean), wide(given_variance)
    if training:
        count = values[..., 0].size
        mean = values.mean(axes)
        variance = ((values - mean) ** 2).mean(axes)
        assert_within(result.reserve_space_1, mean, loose_tolerance(abs(values).mean(axes), F32, 4))
        assert_within(result.reserve_space_2, variance, loose_tolerance(variance, F32, 4))
        running = (1 - factor) * wide(given_mean) + factor * mean
        magnitude = abs(wide(given_mean)) + abs(values).mean(axes)
        assert_within(result.batch_mean, running, loose_tolerance(magnitude, F32, 4))
        corrected = variance * count / max(count - 1, 1)
        running = (1 - factor) * wide(given_variance) + factor * corrected
        assert_within(result.batch_variance, running, loose_tolerance(running + corrected, F32, 4))
    else:
        for got, expected in zip(result[1:5], [given_mean, given_variance] * 2, strict=True):
            np.testing.assert_array_equal(got, expected)
    rstd = 1 / np.sqrt(variance + epsilon)
    expected = (values - mean) * rstd * wide(scale) + wide(offset)
    magnitude = (abs(values) + abs(mean)) * rstd * abs(wide(scale)) + abs(wide(offset))
    assert result.y.dtype == dtype and {v.dtype for v in result[1:]} == {F32}
    got = np.moveaxis(result.y, data_format.index("C"), -1)
    assert_within(got, expected, loose_tolerance(magnitude, dtype, 16))


@given(batch_norm_problems())
def test_fused_batch_norm_grad_is_the_formula(problem):
    rng, dtype, data_format = problem["rng"], problem["dtype"], problem["data_format"]
    x, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][0])
    y_backprop, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][1])
    mean, variance, scale, offset = vectors(rng, problem["shape"][data_format.index("C")])
    epsilon, training = problem["epsilon"], problem["is_training"]
    forward = ours.fused_batch_norm(
        x, scale, offset, mean, variance, epsilon, data_format=data_format, is_training=training
    )
    result = ours.fused_batch_norm_grad(y_backprop, x, scale, *forward[3:], epsilon, data_format, training)
    g, values = channels_last(y_backprop, data_format), channels_last(x, data_format)
    axes = tuple(range(values.ndim - 1))
    mean, variance = wide(forward.reserve_space_1), wide(forward.reserve_space_2)
    rstd = 1 / np.sqrt(variance + epsilon)
    centred = values - mean
    coefficient = wide(scale) * rstd
    expected, magnitude = coefficient * g, abs(coefficient * g)
    if training:
        expected = coefficient * (g - g.mean(axes) - centred * (g * centred).mean(axes) * rstd**2)
        magnitude = abs(coefficient) * (
            abs(g) + abs(g).mean(axes) + abs(centred) * abs(g * centred).mean(axes) * rstd**2
        )
    got = np.moveaxis(result.x_backprop, data_format.index("C"), -1)
    assert_within(got, expected, loose_tolerance(magnitude, dtype, 32))
    terms = g * centred * rstd
    assert_within(result.scale_backprop, terms.sum(axes), loose_tolerance(abs(terms).sum(axes), F32, 16))
    assert_within(result.offset_backprop, g.sum(axes), loose_tolerance(abs(g).sum(axes), F32, 16))
    assert result.x_backprop.dtype == dtype and {v.dtype for v in result[1:]} == {F32}
    assert result.reserve_space_4.shape == result.reserve_space_5.shape == (0,)
    assert result.reserve_space_4 is not result.reserve_space_5


def test_fused_batch_norm_defaults_are_tensorflows():
    x = random_values(np.random.default_rng(3), (2, 3, 3, 4), F32)
    scale, offset = np.float32([1, 2, 3, 4]), np.float32([4, 3, 2, 1])
    empty = np.zeros(0, np.float32)
    written_out = {"epsilon": 0.0001, "data_format": "NHWC", "is_training": True, "name": "anything"}
    forward = ours.fused_batch_norm(x, scale, offset)
    for got, expected in zip(
        forward,
        ours.fused_batch_norm(x, scale, offset, empty, empty, exponential_avg_factor=1.0, **written_out),
        strict=True,
    ):
        np.testing.assert_array_equal(got, expected)
    reserved = forward.reserve_space_1, forward.reserve_space_2
    for got, expected in zip(
        ours.fused_batch_norm_grad(x, x, scale, *reserved),
        ours.fused_batch_norm_grad(x, x, scale, *reserved, empty, **written_out),
        strict=True,
    ):
        np.testing.assert_array_equal(got, expected)


def test_one_element_per_channel_has_variance_zero():
    x = np.full((1, 1, 1, 3), 5, np.float32)
    one = np.ones(3, np.float32)
    result = ours.fused_batch_norm(x, one, one)
    np.testing.assert_array_equal(result.batch_variance, 0)
    np.testing.assert_array_equal(result.reserve_space_2, 0)
    np.testing.assert_array_equal(result.y, 1)


def test_an_empty_batch_gives_nan_statistics_and_zero_gradients():
    x, one = np.zeros((0, 2, 2, 3), np.float32), np.ones(3, np.float32)
    result = ours.fused_batch_norm(x, one, one)
    assert np.isnan(result.batch_mean).all() and np.isnan(result.batch_variance).all()
    grads = ours.fused_batch_norm_grad(x, x, one, one, one)
    assert grads.x_backprop.shape == x.shape
    assert not grads.scale_backprop.any() and not grads.offset_backprop.any()


def test_results_are_no_arguments():
    x, one = np.ones((2, 2, 2, 3), np.float32), np.ones(3, np.float32)
    result = ours.fused_batch_norm(x, one, one, one, one, is_training=False)
    assert not any(np.shares_memory(part, one) for part in result)
    assert not any(np.shares_memory(*pair) for pair in itertools.combinations(result, 2))


def test_running_statistics_given_are_not_changed():
    x, one = random_values(np.random.default_rng(4), (2, 3, 3, 4), F32), np.ones(4, np.float32)
    result = ours.fused_batch_norm(x, one, one, one, one, exponential_avg_factor=0.5)
    np.testing.assert_array_equal(one, 1)
    assert not np.shares_memory(result.batch_mean, one)


def test_batch_norm_writes_into_out_and_in_place():
    g, x = random_values(np.random.default_rng(5), (2, 2, 3, 3, 4), F32)
    one = np.ones(4, np.float32)
    forward = ours.fused_batch_norm(x, one, one)
    expected = ours.fused_batch_norm_grad(g, x, one, *forward[3:]).x_backprop
    assert ours.fused_batch_norm_grad(g, x, one, *forward[3:], out=g).x_backprop is g
    np.testing.assert_array_equal(g, expected)
    assert ours.fused_batch_norm(x, one, one, out=x).y is x
    np.testing.assert_array_equal(x, forward.y)


# ------------------------------------------------------------------------------------------------------------
# Constraints, with TensorFlow's texts


X, V = np.zeros((2, 3, 3, 4), np.float32), np.ones(4, np.float32)
CALLS = {
    "lrn": {"input": X},
    "lrn_grad": {"input_grads": X, "input_image": X, "output_image": X},
    "fused_batch_norm": {"x": X, "scale": V, "offset": V, "mean": V, "variance": V},
    "fused_batch_norm_grad": {
        "y_backprop": X,
        "x": X,
        "scale": V,
        "reserve_space_1": V,
        "reserve_space_2": V,
    },
}
RADIUS = "depth_radius = {} larger than int max, or below 0"
SAME_SHAPE = "input_grads, input_image, and out_image should have the same shape{}"
NOT_ALLOWED = "Value for attr '{}' of {} is not in the list of allowed values: {}"
IMAGES = "half, bfloat16, float"
LENGTH = "{} must have the same number of elements as the channels of x, got 3 and 4"
TRAINING_LENGTH = "When exponential_avg_factor != 1, " + LENGTH
INFERENCE_LENGTH = "When is_training=false, " + LENGTH
OTHER_TYPE = (
    "cannot compute {} as input #{}(zero-based) was expected to be a float tensor but is a half tensor"
)
OTHER_KIND = "Expected {} for argument '{}' not {}."
X3, X5, X16, X64 = X[0], X[None], X.astype(np.float16), X.astype(np.float64)
V2, V3, V64 = V[None], V[:3], V.astype(np.float64)
FORMAT_NAMES = '"NHWC", "NCHW", "NDHWC", "NCDHW"'

READ_ONLY, REPEATED = X.copy(), np.broadcast_to(X[:1].copy(), X.shape)
READ_ONLY.flags.writeable = False
REPEATED.flags.writeable = True
MASKED = "{} must not be a masked array, whose mask would be ignored: pass its .data or, where it is only read, filled()"

BROKEN = [
    ("lrn", {"input": X3}, ValueError, "in must be 4-dimensional[3,3,4]"),
    ("lrn", {"input": X64}, TypeError, NOT_ALLOWED.format("T", "double", IMAGES)),
    ("lrn", {"input": X.astype(np.int32)}, TypeError, NOT_ALLOWED.format("T", "int32", IMAGES)),
    ("lrn", {"input": X.astype(">f4")}, TypeError, NOT_ALLOWED.format("T", ">f4", IMAGES)),
    ("lrn", {"input": [1.0]}, TypeError, "input must be a NumPy array, got list"),
    ("lrn", {"input": np.ma.masked_array(X)}, TypeError, MASKED.format("input")),
    ("lrn", {"depth_radius": -1}, ValueError, RADIUS.format(-1)),
    ("lrn", {"depth_radius": 2**31 - 1}, ValueError, RADIUS.format(2**31 - 1)),
    ("lrn", {"depth_radius": "5"}, TypeError, OTHER_KIND.format("int", "depth_radius", "'5'")),
    ("lrn", {"depth_radius": [5]}, TypeError, OTHER_KIND.format("int", "depth_radius", "[5]")),
    ("lrn", {"depth_radius": True}, TypeError, OTHER_KIND.format("int", "depth_radius", "True")),
    ("lrn", {"alpha": True}, TypeError, OTHER_KIND.format("float", "alpha", "True")),
    ("lrn", {"alpha": 10**400}, ValueError, f"alpha must be a finite number, got {shown(10**400)}"),
    ("lrn", {"bias": "1"}, TypeError, OTHER_KIND.format("float", "bias", "'1'")),
    ("lrn", {"alpha": [1.0]}, TypeError, OTHER_KIND.format("float", "alpha", "[1.0]")),
    ("lrn", {"beta": "1"}, TypeError, OTHER_KIND.format("float", "beta", "'1'")),
    ("lrn", {"bias": np.nan}, ValueError, "bias must be a finite number, got nan"),
    ("lrn", {"alpha": np.inf}, ValueError, "alpha must be a finite number, got inf"),
    ("lrn_grad", {"input_grads": X3, "input_image": X3, "output_image": X3}, ValueError,
     "inputs must be 4-dimensional[3,3,4][3,3,4][3,3,4]"),
    ("lrn_grad", {"input_image": X3}, ValueError, "inputs must be 4-dimensional[2,3,3,4][3,3,4][2,3,3,4]"),
    ("lrn_grad", {"input_image": X[:1]}, ValueError, SAME_SHAPE.format("[2,3,3,4][1,3,3,4][2,3,3,4]")),
    ("lrn_grad", {"output_image": X[..., :2]}, ValueError, SAME_SHAPE.format("[2,3,3,4][2,3,3,4][2,3,3,2]")),
    ("lrn_grad", {"output_image": X3}, ValueError, SAME_SHAPE.format("[2,3,3,4][2,3,3,4][3,3,4]")),
    ("lrn_grad", {"input_grads": X64}, TypeError, NOT_ALLOWED.format("T", "double", IMAGES)),
    ("lrn_grad", {"input_image": X16}, TypeError, OTHER_TYPE.format("LRNGrad", 1)),
    ("lrn_grad", {"output_image": X16}, TypeError, OTHER_TYPE.format("LRNGrad", 2)),
    ("lrn_grad", {"input_grads": X.astype(np.int32)}, TypeError,
     NOT_ALLOWED.format("T", "int32", IMAGES)),
    ("lrn_grad", {"input_grads": X5, "input_image": X5, "output_image": X5}, ValueError,
     "inputs must be 4-dimensional[1,2,3,3,4][1,2,3,3,4][1,2,3,3,4]"),
    ("lrn_grad", {"depth_radius": -2}, ValueError, RADIUS.format(-2)),
    ("lrn_grad", {"bias": "1"}, TypeError, OTHER_KIND.format("float", "bias", "'1'")),
    ("lrn_grad", {"beta": np.inf}, ValueError, "beta must be a finite number, got inf"),
    ("fused_batch_norm", {"x": X3}, ValueError, "input must be 4-dimensional[3,3,4]"),
    ("fused_batch_norm", {"x": X5}, ValueError, "input must be 4-dimensional[1,2,3,3,4]"),
    ("fused_batch_norm", {"data_format": "NDHWC"}, ValueError, "input must be 5-dimensional[2,3,3,4]"),
    ("fused_batch_norm", {"data_format": "NHCW"}, ValueError,
     NOT_ALLOWED.format("data_format", '"NHCW"', FORMAT_NAMES)),
    ("fused_batch_norm", {"data_format": ["NHWC"]}, TypeError,
     OTHER_KIND.format("string", "data_format", "['NHWC']")),
    ("fused_batch_norm", {"is_training": "yes"}, TypeError,
     OTHER_KIND.format("bool", "is_training", "'yes'")),
    ("fused_batch_norm", {"is_training": 1}, TypeError, OTHER_KIND.format("bool", "is_training", "1")),
    ("fused_batch_norm", {"is_training": V3}, TypeError,
     OTHER_KIND.format("bool", "is_training", repr(V3))),
    ("fused_batch_norm", {"epsilon": 1e-4 + 0j}, TypeError,
     OTHER_KIND.format("float", "epsilon", 1e-4 + 0j)),
    ("fused_batch_norm", {"epsilon": 10**400}, ValueError,
     f"epsilon must be a finite number, got {shown(10**400)}"),
    ("fused_batch_norm", {"exponential_avg_factor": V3}, TypeError,
     OTHER_KIND.format("float", "exponential_avg_factor", repr(V3))),
    ("fused_batch_norm", {"exponential_avg_factor": 1.5}, ValueError,
     "exponential_avg_factor must be a finite number within [0, 1], got 1.5"),
    ("fused_batch_norm", {"epsilon": "1"}, TypeError, OTHER_KIND.format("float", "epsilon", "'1'")),
    ("fused_batch_norm", {"epsilon": -1.0}, ValueError, "epsilon must be a finite number of at least 0, got -1.0"),
    ("fused_batch_norm", {"exponential_avg_factor": "1"}, TypeError,
     OTHER_KIND.format("float", "exponential_avg_factor", "'1'")),
    ("fused_batch_norm", {"exponential_avg_factor": np.nan}, ValueError,
     "exponential_avg_factor must be a finite number within [0, 1], got nan"),
    ("fused_batch_norm", {"x": X64}, TypeError, NOT_ALLOWED.format("T", "double", IMAGES)),
    ("fused_batch_norm", {"scale": V2}, ValueError, "scale must be 1-dimensional[1,4]"),
    ("fused_batch_norm", {"offset": V2}, ValueError, "offset must be 1-dimensional[1,4]"),
    ("fused_batch_norm", {"mean": V2}, ValueError, "estimated_mean must be 1-dimensional[1,4]"),
    ("fused_batch_norm", {"variance": V2}, ValueError, "estimated_variance must be 1-dimensional[1,4]"),
    ("fused_batch_norm", {"scale": V64}, TypeError, NOT_ALLOWED.format("U", "double", "float")),
    ("fused_batch_norm", {"variance": V64}, TypeError, NOT_ALLOWED.format("U", "double", "float")),
    ("fused_batch_norm", {"scale": V3}, ValueError, LENGTH.format("scale")),
    ("fused_batch_norm", {"offset": V3}, ValueError, LENGTH.format("offset")),
    ("fused_batch_norm", {"mean": V3, "exponential_avg_factor": 0.5}, ValueError,
     TRAINING_LENGTH.format("mean")),
    ("fused_batch_norm", {"variance": V3, "exponential_avg_factor": 0.5}, ValueError,
     TRAINING_LENGTH.format("variance")),
    ("fused_batch_norm", {"mean": V3, "is_training": False}, ValueError, INFERENCE_LENGTH.format("mean")),
    ("fused_batch_norm", {"variance": V3, "is_training": False}, ValueError,
     INFERENCE_LENGTH.format("variance")),
    ("fused_batch_norm_grad", {"y_backprop": X3, "x": X3}, ValueError, "input must be 4-dimensional[3,3,4]"),
    ("fused_batch_norm_grad", {"y_backprop": X3}, ValueError, "input must be 4-dimensional[3,3,4]"),
    ("fused_batch_norm_grad", {"x": X[:1]}, ValueError,
     "x and y_backprop must have same shape, but x has shape [1,3,3,4] and y_backprop has shape [2,3,3,4]"),
    ("fused_batch_norm_grad", {"is_training": 2}, TypeError, OTHER_KIND.format("bool", "is_training", "2")),
    ("fused_batch_norm_grad", {"epsilon": [1.0]}, TypeError, OTHER_KIND.format("float", "epsilon", "[1.0]")),
    ("fused_batch_norm_grad", {"x": X16}, TypeError, OTHER_TYPE.format("FusedBatchNormGradV3", 1)),
    ("fused_batch_norm_grad", {"scale": V2}, ValueError, "scale must be 1-dimensional[1,4]"),
    ("fused_batch_norm_grad", {"reserve_space_1": V2}, ValueError, "saved mean must be 1-dimensional[1,4]"),
    ("fused_batch_norm_grad", {"reserve_space_2": V2}, ValueError,
     "saved variance must be 1-dimensional[1,4]"),
    ("fused_batch_norm_grad", {"reserve_space_1": V64}, TypeError,
     NOT_ALLOWED.format("U", "double", "float")),
    ("fused_batch_norm_grad", {"scale": V3}, ValueError, LENGTH.format("scale")),
    ("fused_batch_norm_grad", {"reserve_space_1": V3}, ValueError, LENGTH.format("reserve_space_1")),
    ("fused_batch_norm_grad", {"reserve_space_2": V3}, ValueError, LENGTH.format("reserve_space_2")),
]  # fmt: skip
BROKEN_IDS = [f"{name}-{'-'.join(changes)}-{index}" for index, (name, changes, *_) in enumerate(BROKEN)]


@pytest.mark.parametrize("name, changes, error, text", BROKEN, ids=BROKEN_IDS)
def test_constraints_are_checked_with_tensorflows_texts(name, changes, error, text):
    out = np.full_like(X, 7)
    getattr(ours, name)(**CALLS[name])  # what is remembered of it does not stand for what is wrong
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        getattr(ours, name)(**CALLS[name] | changes, out=out)
    np.testing.assert_array_equal(out, 7, err_msg="written before the checks passed")


@pytest.mark.parametrize("name", CALLS)
def test_out_is_checked(name):
    for text, out in [
        ("must be a NumPy array, got list", [1.0]),
        ("must have the shape of ", np.empty_like(X[:1])),
        ("must have the dtype of .*, float32, got float16", X16.copy()),
        ("must be writable, got a read-only array", READ_ONLY),
        ("must not overlap itself, got strides", REPEATED),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"^out {text}"):
            getattr(ours, name)(**CALLS[name], out=out)


def test_parameters_are_refused_once_and_by_name():
    """Be they hashable or not: parameters are remembered."""
    for radius, error in ((-1, ValueError), ([1], TypeError), (memoryview(bytearray(3)), TypeError)):
        with pytest.raises(error, match="depth_radius") as caught:
            ours.lrn(X, depth_radius=radius)
        assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("name, argument", [
    (name, argument) for name, arguments in CALLS.items() for argument, value in arguments.items() if value is X
])  # fmt: skip
def test_out_may_be_an_input_but_not_overlap_it(name, argument):
    memory = np.full((3, *X.shape[1:]), 7, np.float32)
    text = f"^out must be the same array or not overlap {argument}, got memory at"
    with pytest.raises(ValueError, match=text):
        getattr(ours, name)(**CALLS[name] | {argument: memory[:2]}, out=memory[1:])
    assert (memory == 7).all()
    getattr(ours, name)(**CALLS[name] | {argument: memory[:2]}, out=memory[:2])


@pytest.mark.parametrize("changes", [{"mean": V3}, {"variance": V3}, {"mean": None, "variance": None}])
def test_training_from_scratch_ignores_the_given_statistics(changes):
    ours.fused_batch_norm(**CALLS["fused_batch_norm"] | changes)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", IMAGE_DTYPES, ids=str)
def test_no_tensor_is_copied(name, dtype):
    shapes = {4: (8, 64, 64, 32), 1: (32,)}
    arrays = {
        argument: np.ones(shapes[value.ndim], dtype if value.ndim == 4 else np.float32)
        for argument, value in CALLS[name].items()
    }
    arrays["out"] = np.empty(shapes[4], dtype)
    function = getattr(ours, name)
    function(**arrays)
    tracemalloc.start()
    function(**arrays)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < arrays["out"].nbytes / 10


# ------------------------------------------------------------------------------------------------------------
# TensorFlow itself


@pytest.fixture(scope="module")
def tf():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"  # whose kernels' texts these are
    return pytest.importorskip(
        "tensorflow", reason="TensorFlow is not installed (pip install tensorflow-cpu)"
    )


def assert_near_tensorflow(got, expected, dtype):
    """TensorFlow accumulates in the data's own type, which bounds how near it can be."""
    expected = wide(np.asarray(expected))
    scale = abs(expected).max(initial=1e-3)
    np.testing.assert_allclose(wide(got), expected, rtol=0, atol=float(64 * ulp(scale, dtype)))


@pytest.mark.parametrize("function, operator", [
    ("lrn", "LRN"), ("lrn_grad", "LRNGrad"), ("fused_batch_norm", "FusedBatchNormV3"),
    ("fused_batch_norm_grad", "FusedBatchNormGradV3"),
])  # fmt: skip
def test_arguments_and_defaults_are_those_of_raw_ops(tf, function, operator):
    mine = inspect.signature(getattr(ours, function)).parameters.values()
    theirs = inspect.signature(getattr(tf.raw_ops, operator)).parameters.values()
    positional = [p for p in mine if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert [p.name for p in positional] == [p.name for p in theirs]
    for own, other in zip(positional, theirs, strict=True):
        if other.default is not inspect.Parameter.empty:
            assert (
                own.default == pytest.approx(other.default)
                if other.default is not None
                else own.default is None
            )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("depth_radius, beta", [(0, 0.5), (2, 0.75), (5, 0.5), (50, 1.0)])
def test_lrn_agrees_with_tensorflow(tf, dtype, depth_radius, beta):
    rng = np.random.default_rng(6)
    g, x, y = map(tf.constant, random_values(rng, (3, 2, 5, 4, 24), np.dtype(dtype)))  # it may cast NumPy's
    parameters = {"depth_radius": depth_radius, "bias": 1.5, "alpha": 0.25, "beta": beta}
    expected = tf.raw_ops.LRN(input=x, **parameters)
    expected_grad = tf.raw_ops.LRNGrad(input_grads=g, input_image=x, output_image=y, **parameters)
    assert expected.dtype == expected_grad.dtype == dtype
    g, x, y = g.numpy(), x.numpy(), y.numpy()
    assert_near_tensorflow(ours.lrn(x, **parameters), expected, dtype)
    assert_near_tensorflow(ours.lrn_grad(g, x, y, **parameters), expected_grad, dtype)


@pytest.mark.parametrize("dtype", [d.name for d in IMAGE_DTYPES])
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("is_training, factor", [(True, 1.0), (True, 0.25), (False, 1.0)])
def test_fused_batch_norm_agrees_with_tensorflow(tf, dtype, data_format, is_training, factor):
    rng = np.random.default_rng(7)
    shape = tuple(6 if letter == "C" else 5 for letter in data_format)
    g, x = random_values(rng, (2, *shape), np.dtype(dtype))
    mean, variance, scale, offset = vectors(rng, 6)
    arguments = {"epsilon": 0.01, "data_format": data_format, "is_training": is_training}
    expected = tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=scale,
        offset=offset,
        mean=mean,
        variance=variance,
        exponential_avg_factor=factor,
        **arguments,
    )
    got = ours.fused_batch_norm(x, scale, offset, mean, variance, exponential_avg_factor=factor, **arguments)
    assert_near_tensorflow(got.y, expected.y, dtype)
    # In inference some of TensorFlow's kernels leave their reserve spaces uninitialized.
    outputs = slice(1, 5 if is_training else 3)
    for own, other in zip(got[outputs], expected[outputs], strict=True):
        assert_near_tensorflow(own, other, "float32")
    if not is_training and (data_format == "NCDHW" or (data_format == "NCHW" and dtype == "float16")):
        return  # no kernel of TensorFlow on the CPU
    grads = ours.fused_batch_norm_grad(g, x, scale, *got[3:], **arguments)
    expected = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=g,
        x=x,
        scale=scale,
        **dict(zip(got._fields[3:], got[3:], strict=True)),
        **arguments,
    )
    assert_near_tensorflow(grads.x_backprop, expected.x_backprop, dtype)
    assert_near_tensorflow(grads.scale_backprop, expected.scale_backprop, "float32")
    assert_near_tensorflow(grads.offset_backprop, expected.offset_backprop, "float32")


def test_an_empty_batch_is_tensorflows(tf):
    x, one, two = X[:0], V, 2 * V
    got = ours.fused_batch_norm(x, one, one, one, two, exponential_avg_factor=0.5)
    expected = tf.raw_ops.FusedBatchNormV3(
        x=x, scale=one, offset=one, mean=one, variance=two, exponential_avg_factor=0.5
    )
    for own, other in zip(got[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(own, other)
    assert not any(own.any() for own in got[3:])  # TensorFlow's may be uninitialized
    got = ours.fused_batch_norm_grad(x, x, one, one, two)
    expected = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=x, x=x, scale=one, reserve_space_1=one, reserve_space_2=two, reserve_space_3=np.zeros(0)
    )
    for own, other in zip(got[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(own, other)
    np.testing.assert_array_equal(ours.lrn(x), tf.raw_ops.LRN(input=x))


@pytest.mark.parametrize("layout, axis", [("NHWC", -1), ("NCHW", 1), ("NC", -1), ("NDHWC", -1)])
def test_keras_layer_by_the_core(tf, layout, axis):
    """As docs/conventions.md translates it: inference, training, and the moving statistics."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal(tuple(6 if letter == "C" else 5 for letter in layout)).astype(np.float32)
    layer = tf.keras.layers.BatchNormalization(axis=axis, momentum=0.75, epsilon=0.01)
    layer.build(x.shape)
    for weight in (layer.gamma, layer.beta, layer.moving_mean, layer.moving_variance):
        weight.assign(rng.uniform(0.5, 2, 6))
    bn = cynorm.BatchNorm(epsilon=layer.epsilon, layout=layout)
    dst = bn.forward_inference(x, layer.moving_mean, layer.moving_variance, layer.gamma, layer.beta)
    assert_near_tensorflow(dst, layer(x, training=False), "float32")
    mean, variance = layer.moving_mean.numpy().copy(), layer.moving_variance.numpy().copy()
    dst, _, _ = bn.forward_training(
        x, layer.gamma, layer.beta, running_mean=mean, running_variance=variance, momentum=1 - layer.momentum,
        unbiased_running=False,
    )  # fmt: skip
    assert_near_tensorflow(dst, layer(x, training=True), "float32")
    assert_near_tensorflow(mean, layer.moving_mean, "float32")
    assert_near_tensorflow(variance, layer.moving_variance, "float32")


# TensorFlow casts NumPy arrays of another dtype before its kernels see them, and takes any float, and bools for numbers.
SAME_TEXT = [
    case for case in BROKEN
    if not any(value is True for value in case[1].values())
    and (case[3].startswith("Expected")
         or (case[2] is ValueError and "must be a finite" not in case[3] and "data_format" not in case[1]))
]  # fmt: skip


@pytest.mark.parametrize("name, changes, error, text", SAME_TEXT)
def test_error_texts_are_tensorflows(tf, name, changes, error, text):
    operator = {"lrn": "LRN", "lrn_grad": "LRNGrad", "fused_batch_norm": "FusedBatchNormV3",
                "fused_batch_norm_grad": "FusedBatchNormGradV3"}[name]  # fmt: skip
    arguments = CALLS[name] | changes
    if name == "fused_batch_norm_grad":
        arguments = {"reserve_space_3": np.zeros(0, np.float32)} | arguments
    with pytest.raises(
        TypeError if error is TypeError else tf.errors.InvalidArgumentError, match=re.escape(text)
    ):
        getattr(tf.raw_ops, operator)(**arguments)


# ------------------------------------------------------------------------------------------------------------
# Arguments that are cynorm's


@pytest.mark.parametrize("call", [
    lambda **threads: ours.lrn(X, **threads),
    lambda **threads: ours.lrn_grad(X, X, X, **threads),
    lambda **threads: ours.fused_batch_norm(X, V, V, **threads),
    lambda **threads: ours.fused_batch_norm(X, V, V, V, V, is_training=False, **threads),
    lambda **threads: ours.fused_batch_norm_grad(X, X, V, V, V, **threads),
    lambda **threads: ours.fused_batch_norm_grad(X, X, V, V, V, is_training=False, **threads),
])  # fmt: skip
def test_num_threads_reaches_the_kernels(call):
    call(num_threads=1)
    with pytest.raises(ValueError, match="num_threads"):
        call(num_threads=0)


class Tensor:
    """One of another library's."""

    def numpy(self):
        return X


def test_a_tensor_is_told_how_it_passes():
    with pytest.raises(TypeError, match=r"input must be a NumPy array, got Tensor \(pass input\.numpy\(\)\)"):
        ours.lrn(Tensor())
    with pytest.raises(TypeError, match="input must be a NumPy array, got list$"):
        ours.lrn([1.0])
