"""cynorm.directml against the formulas of DirectML's documents, and against their constraint tables."""

import math
import re
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cynorm import Activation, directml
from reference import DTYPES, assert_within, loose_tolerance, wide
from strategies import memories, place, random_values

F32 = np.dtype(np.float32)


# ------------------------------------------------------------------------------------------------------------
# The documents' formulas, written out


def local_regions(shape, cross_channel, local_size):
    """A matrix whose entry (i, j) tells whether element j lies in the local region of element i."""
    before, after = math.floor((local_size - 1) / 2), math.ceil((local_size - 1) / 2)
    index = np.indices(shape).reshape(4, -1)
    step = index[:, None, :] - index[:, :, None]
    summed = (1,) if cross_channel else (2, 3)
    return np.logical_and.reduce(
        [
            (-before <= step[axis]) & (step[axis] <= after) if axis in summed else step[axis] == 0
            for axis in range(4)
        ]
    )


def lrn_formula(x, regions, alpha, beta, bias, size):
    """y = x / (bias + (alpha / size) * sum(xi^2 for every xi in the local region))^beta."""
    flat = wide(x).ravel()
    return (flat / (bias + (alpha / size) * (regions @ flat**2)) ** beta).reshape(x.shape)


def lrn_gradient_terms(x, gradient, regions, alpha, beta, bias, size):
    """The two terms of the derivative of `lrn_formula` by x, applied to a gradient."""
    flat, g = wide(x).ravel(), wide(gradient).ravel()
    omega = bias + (alpha / size) * (regions @ flat**2)
    direct = g * omega**-beta
    through_omega = 2 * alpha * beta / size * flat * (regions.T @ (g * flat * omega ** (-beta - 1)))
    return direct.reshape(x.shape), through_omega.reshape(x.shape)


def reduced(shape, sizes):
    """The dimensions that are summed over: those of size 1."""
    return tuple(axis for axis in range(len(shape)) if sizes[axis] == 1)


ACTIVATIONS = [
    ("relu", {}, lambda x: np.maximum(0, x)),
    ("identity", {}, lambda x: x),
    ("elu", {"alpha": 1.5}, lambda x: np.where(x >= 0, x, 1.5 * np.expm1(x))),
    ("celu", {"alpha": 0.5}, lambda x: np.maximum(0, x) + np.minimum(0, 0.5 * np.expm1(x / 0.5))),
    ("hard_sigmoid", {"alpha": 0.3, "beta": 0.4}, lambda x: np.maximum(0, np.minimum(0.3 * x + 0.4, 1))),
    ("leaky_relu", {"alpha": 0.1}, lambda x: np.where(x >= 0, x, 0.1 * x)),
    ("linear", {"alpha": -2.0, "beta": 0.5}, lambda x: -2 * x + 0.5),
    ("parametric_softplus", {"alpha": 2.0, "beta": 0.5}, lambda x: 2 * np.log1p(np.exp(0.5 * x))),
    ("scaled_elu", {"alpha": 1.6, "gamma": 1.1}, lambda x: 1.1 * np.where(x > 0, x, 1.6 * np.expm1(x))),
    ("scaled_tanh", {"alpha": 1.7, "beta": 0.6}, lambda x: 1.7 * np.tanh(0.6 * x)),
    ("sigmoid", {}, lambda x: 1 / (1 + np.exp(-x))),
    ("softplus", {"steepness": 2.0}, lambda x: np.log1p(np.exp(2 * x)) / 2),
    ("softsign", {}, lambda x: x / (1 + np.abs(x))),
    ("tanh", {}, np.tanh),
    ("thresholded_relu", {"alpha": 0.7}, lambda x: np.where(x > 0.7, x, 0)),
    (
        "shrink",
        {"bias": 0.2, "threshold": 0.5},
        lambda x: np.where(x < -0.5, x + 0.2, np.where(x > 0.5, x - 0.2, 0)),
    ),
]


# ------------------------------------------------------------------------------------------------------------
# Problems


@st.composite
def lrn_problems(draw):
    shape = tuple(draw(st.integers(1, n)) for n in (2, 9, 5, 5))
    local_size = draw(st.integers(1, 7))
    return {
        "rng": np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        "shape": shape,
        "dtype": draw(st.sampled_from(DTYPES)),
        "memory": [draw(memories(4)) for _ in range(2)],
        "fields": {
            "cross_channel": draw(st.booleans()),
            "local_size": local_size,
            "alpha": draw(st.floats(0, 2)),
            "beta": draw(st.sampled_from((0.5, 0.75, 1.0)) | st.floats(0, 2)),
            "bias": draw(st.floats(0.5, 3)),
        },
        "divisor": draw(st.none() | st.sampled_from((1, local_size**2))),
    }


def parameter_sizes(draw, shape):
    return tuple(n if draw(st.booleans()) else 1 for n in shape)


@st.composite
def batch_norm_problems(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=8)))
    return {
        "rng": np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        "shape": shape,
        "dtype": draw(st.sampled_from(DTYPES)),
        "sizes": [parameter_sizes(draw, shape) for _ in range(4)],
        "memory": [draw(memories(len(shape))) for _ in range(2)],
        "epsilon": draw(st.sampled_from((1e-5, 1e-3, 0.5))),
        "relu": draw(st.booleans()),
        "add": draw(st.booleans()),
        "out": draw(st.booleans()),
    }


def positive(rng, shape, dtype):
    return rng.uniform(0.5, 2, shape).astype(dtype)


# ------------------------------------------------------------------------------------------------------------
# Local response normalization


@given(lrn_problems())
def test_lrn_is_the_documents_formula(problem):
    rng, fields = problem["rng"], problem["fields"]
    x, _ = place(random_values(rng, problem["shape"], problem["dtype"]), problem["memory"][0])
    result = directml.local_response_normalization(x, **fields, divisor=problem["divisor"])
    regions = local_regions(x.shape, fields["cross_channel"], fields["local_size"])
    size = problem["divisor"] or fields["local_size"]
    expected = lrn_formula(x, regions, fields["alpha"], fields["beta"], fields["bias"], size)
    assert result.dtype == x.dtype
    assert_within(result, expected, loose_tolerance(expected, x.dtype, 8))


@given(lrn_problems())
def test_lrn_grad_is_the_derivative(problem):
    rng, fields = problem["rng"], problem["fields"]
    x, _ = place(random_values(rng, problem["shape"], problem["dtype"]), problem["memory"][0])
    gradient, _ = place(random_values(rng, problem["shape"], problem["dtype"]), problem["memory"][1])
    result = directml.local_response_normalization_grad(x, gradient, **fields, divisor=problem["divisor"])
    regions = local_regions(x.shape, fields["cross_channel"], fields["local_size"])
    size = problem["divisor"] or fields["local_size"]
    parameters = regions, fields["alpha"], fields["beta"], fields["bias"], size
    direct, through_omega = lrn_gradient_terms(x, gradient, *parameters)
    _, magnitude = lrn_gradient_terms(abs(x), abs(gradient), *parameters)
    assert_within(result, direct - through_omega, loose_tolerance(abs(direct) + magnitude, x.dtype, 16))


def test_the_gradient_formula_of_these_tests_is_a_derivative():
    rng = np.random.default_rng(1)
    x, gradient = rng.standard_normal((2, 1, 5, 3, 2))
    for cross_channel, local_size in product((True, False), (2, 3)):
        parameters = local_regions(x.shape, cross_channel, local_size), 0.7, 0.6, 1.2, 3
        direct, through_omega = lrn_gradient_terms(x, gradient, *parameters)
        numeric = np.empty_like(x)
        for at in np.ndindex(x.shape):
            step = np.zeros_like(x)
            step[at] = 1e-6
            difference = lrn_formula(x + step, *parameters) - lrn_formula(x - step, *parameters)
            numeric[at] = (gradient * difference).sum() / 2e-6
        np.testing.assert_allclose(direct - through_omega, numeric, rtol=1e-7, atol=1e-8)


def test_lrn_defaults_are_the_documents():
    x = random_values(np.random.default_rng(2), (1, 7, 2, 2), F32)
    written_out = {"alpha": 0.0001, "beta": 0.75, "bias": 1.0}
    for cross_channel in (True, False):
        fields = {"cross_channel": cross_channel, "local_size": 5}
        np.testing.assert_array_equal(
            directml.local_response_normalization(x, **fields),
            directml.local_response_normalization(x, **fields, **written_out, divisor=5),
        )
        np.testing.assert_array_equal(
            directml.local_response_normalization_grad(x, x, **fields),
            directml.local_response_normalization_grad(x, x, **fields, **written_out, divisor=5),
        )


def test_lrn_writes_into_out_and_in_place():
    rng = np.random.default_rng(3)
    x, gradient = random_values(rng, (2, 2, 6, 3, 4), F32)
    fields = {"cross_channel": True, "local_size": 4, "alpha": 1.0}
    expected = directml.local_response_normalization(x, **fields)
    expected_gradient = directml.local_response_normalization_grad(x, gradient, **fields)
    out = np.empty_like(x)
    assert directml.local_response_normalization(x, **fields, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert directml.local_response_normalization_grad(x, gradient, **fields, out=gradient) is gradient
    np.testing.assert_array_equal(gradient, expected_gradient)
    directml.local_response_normalization(x, **fields, out=x)
    np.testing.assert_array_equal(x, expected)


# ------------------------------------------------------------------------------------------------------------
# Batch normalization


def apply_formula(x, mean, variance, scale, bias, epsilon):
    """The parts of Scale * ((Input - Mean) / sqrt(Variance + Epsilon)) + Bias."""
    x, mean, variance, scale, bias = map(wide, (x, mean, variance, scale, bias))
    rstd = 1 / np.sqrt(variance + epsilon)
    normalized = scale * ((x - mean) * rstd)
    return normalized + bias, abs(scale) * (abs(x) + abs(mean)) * rstd + abs(bias)


@given(batch_norm_problems())
def test_batch_normalization_is_the_documents_formula(problem):
    rng, dtype, epsilon = problem["rng"], problem["dtype"], problem["epsilon"]
    x, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][0])
    mean, scale, bias = (random_values(rng, sizes, dtype) for sizes in problem["sizes"][:3])
    variance = positive(rng, problem["sizes"][3], dtype)
    out = np.empty_like(x) if problem["out"] else None
    result = directml.batch_normalization(
        x,
        mean,
        variance,
        scale,
        bias,
        epsilon=epsilon,
        fused_activation="relu" if problem["relu"] else None,
        out=out,
    )
    expected, magnitude = apply_formula(x, mean, variance, scale, bias, epsilon)
    if problem["relu"]:
        expected = np.maximum(expected, 0)
    assert out is None or result is out
    assert result.dtype == dtype
    assert_within(result, expected, loose_tolerance(magnitude, dtype, 8))


@given(batch_norm_problems())
def test_batch_normalization_training_is_the_documents_formula(problem):
    rng, dtype, epsilon = problem["rng"], problem["dtype"], problem["epsilon"]
    sizes = problem["sizes"][0]
    x, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][0])
    add, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][1])
    scale, bias = random_values(rng, (2, *sizes), dtype)
    out = (np.empty_like(x), None, np.empty(sizes, dtype)) if problem["out"] else None
    result = directml.batch_normalization_training(
        x,
        scale,
        bias,
        add if problem["add"] else None,
        epsilon=epsilon,
        fused_activation="DML_OPERATOR_ACTIVATION_RELU" if problem["relu"] else None,
        out=out,
    )
    axes = reduced(x.shape, sizes)
    mean = wide(x).mean(axes, keepdims=True)
    variance = ((wide(x) - mean) ** 2).mean(axes, keepdims=True)
    expected, magnitude = apply_formula(x, mean, variance, scale, bias, epsilon)
    if problem["add"]:
        expected, magnitude = expected + wide(add), magnitude + abs(wide(add))
    if problem["relu"]:
        expected = np.maximum(expected, 0)
    if out is not None:
        assert result.output is out[0] and result.output_variance is out[2]
    assert {value.dtype for value in result} == {dtype}
    assert result.output_mean.shape == result.output_variance.shape == sizes
    assert_within(result.output_mean, mean, loose_tolerance(abs(wide(x)).mean(axes, keepdims=True), dtype, 4))
    assert_within(result.output_variance, variance, loose_tolerance(variance, dtype, 4))
    assert_within(result.output, expected, loose_tolerance(magnitude, dtype, 16))


@given(batch_norm_problems())
def test_batch_normalization_grad_is_the_documents_formula(problem):
    rng, dtype, epsilon = problem["rng"], problem["dtype"], problem["epsilon"]
    sizes = problem["sizes"][0]
    x, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][0])
    gradient, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][1])
    mean, scale = random_values(rng, (2, *sizes), dtype)
    variance = positive(rng, sizes, dtype)
    out = (None, np.empty(sizes, dtype), np.empty(sizes, dtype)) if problem["out"] else None
    result = directml.batch_normalization_grad(x, gradient, mean, variance, scale, epsilon=epsilon, out=out)
    axes = reduced(x.shape, sizes)
    g, centred = wide(gradient), wide(x) - wide(mean)
    rstd = 1 / np.sqrt(wide(variance) + epsilon)
    expected = g * (wide(scale) * rstd)
    assert_within(result.output_gradient, expected, loose_tolerance(expected, dtype, 8))
    check_parameter_gradients(result, out, g, centred, rstd, axes, dtype)


@given(batch_norm_problems())
def test_batch_normalization_training_grad_is_the_documents_formula_mended(problem):
    rng, dtype, epsilon = problem["rng"], problem["dtype"], problem["epsilon"]
    sizes = problem["sizes"][0]
    x, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][0])
    gradient, _ = place(random_values(rng, problem["shape"], dtype), problem["memory"][1])
    scale, bias = random_values(rng, (2, *sizes), dtype)
    out = (np.empty_like(x), None, np.empty(sizes, dtype)) if problem["out"] else None
    forward = directml.batch_normalization_training(x, scale, bias, epsilon=epsilon)
    mean, variance = forward.output_mean, forward.output_variance
    result = directml.batch_normalization_training_grad(
        x, gradient, mean, variance, scale, epsilon=epsilon, out=out
    )
    axes = reduced(x.shape, sizes)
    g, given_variance = wide(gradient), wide(variance)
    coef0 = 1 / np.sqrt(given_variance + epsilon)
    # InputCentered of the document, with the statistics as stored: half precision rounds them.
    input_centred = wide(x) - wide(mean)
    coef1 = g * input_centred
    gradient_centred = g - g.mean(axes, keepdims=True)
    third = input_centred * coef1.mean(axes, keepdims=True) / (given_variance + epsilon)
    expected = wide(scale) * coef0 * (gradient_centred - third)
    third_magnitude = abs(input_centred) * abs(coef1).mean(axes, keepdims=True) / (given_variance + epsilon)
    magnitude = abs(wide(scale)) * coef0 * (abs(g) + abs(g).mean(axes, keepdims=True) + third_magnitude)
    assert_within(result.output_gradient, expected, loose_tolerance(magnitude, dtype, 32))
    check_parameter_gradients(result, out, g, input_centred, coef0, axes, dtype)


def check_parameter_gradients(result, out, g, centred, rstd, axes, dtype):
    if out is not None:
        assert all(got is given for got, given in zip(result, out, strict=True) if given is not None)
    assert {value.dtype for value in result} == {dtype}
    for got, terms in ((result.output_scale_gradient, g * centred * rstd), (result.output_bias_gradient, g)):
        magnitude = abs(terms).sum(axes, keepdims=True)
        assert_within(got, terms.sum(axes, keepdims=True), loose_tolerance(magnitude, dtype, 16))


def test_training_grad_is_the_derivative_of_training():
    rng = np.random.default_rng(5)
    x, gradient = rng.standard_normal((2, 3, 4, 5))
    scale, bias = rng.standard_normal((2, 1, 4, 1))

    def loss(x, scale, bias):
        return (gradient * directml.batch_normalization_training(x, scale, bias, epsilon=0.1).output).sum()

    forward = directml.batch_normalization_training(x, scale, bias, epsilon=0.1)
    grads = directml.batch_normalization_training_grad(x, gradient, *forward[1:], scale, epsilon=0.1)
    arguments = [x, scale, bias]
    for which, analytic in enumerate(grads):
        for at in np.ndindex(analytic.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in arguments]
                moved[which][at] += step
                ends.append(loss(*moved))
            assert analytic[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    "sizes", [(1, 3, 1, 1), (2, 3, 1, 1), (2, 1, 1, 1), (1, 1, 4, 5), (1, 1, 1, 1), (2, 3, 4, 5)]
)
def test_the_documents_parameter_sizes_give_statistics_over_the_dimensions_of_size_one(sizes):
    x = np.random.default_rng(6).standard_normal((2, 3, 4, 5))
    one = np.ones(sizes)
    result = directml.batch_normalization_training(x, one, 0 * one, epsilon=1e-3)
    axes = reduced(x.shape, sizes)
    np.testing.assert_allclose(result.output_mean, x.mean(axes, keepdims=True), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(result.output_variance, x.var(axes, keepdims=True), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name, parameters, formula", ACTIVATIONS, ids=[a[0] for a in ACTIVATIONS])
def test_fused_activations(name, parameters, formula):
    rng = np.random.default_rng(7)
    x, add = rng.standard_normal((2, 4, 3, 5, 2)) * 2
    one = np.ones((1, 3, 1, 1))
    activation = Activation(name, **parameters)
    plain = directml.batch_normalization(x, one, one, one, one, epsilon=0.5)
    fused = directml.batch_normalization(x, one, one, one, one, epsilon=0.5, fused_activation=activation)
    np.testing.assert_allclose(fused, formula(plain), rtol=1e-13, atol=1e-14)
    plain = directml.batch_normalization_training(x, one, one, add, epsilon=0.5)
    fused = directml.batch_normalization_training(x, one, one, add, epsilon=0.5, fused_activation=activation)
    np.testing.assert_allclose(fused.output, formula(plain.output), rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(fused.output_mean, plain.output_mean)


def test_spatial_has_no_effect():
    x = random_values(np.random.default_rng(8), (2, 3, 4), F32)
    one = np.ones((1, 3, 1), np.float32)
    np.testing.assert_array_equal(
        directml.batch_normalization(x, one, one, one, one, spatial=False, epsilon=0.1),
        directml.batch_normalization(x, one, one, one, one, epsilon=0.1),
    )


# ------------------------------------------------------------------------------------------------------------
# The constraint tables, broken one by one


def ones(*sizes, dtype=np.float32):
    return np.ones(sizes, dtype)


DATA, PARAMETER = (2, 3, 4, 5), (1, 3, 1, 1)
# Each operator with its arguments: positional tensors by name, then fields.
OPERATORS = {
    "local_response_normalization": ({"input": DATA}, {"cross_channel": True, "local_size": 3}),
    "local_response_normalization_grad": (
        {"input": DATA, "input_gradient": DATA},
        {"cross_channel": True, "local_size": 3},
    ),
    "batch_normalization": (
        {"input": DATA, "mean": PARAMETER, "variance": PARAMETER, "scale": PARAMETER, "bias": PARAMETER},
        {"epsilon": 0.1},
    ),
    "batch_normalization_training": (
        {"input": DATA, "scale": PARAMETER, "bias": PARAMETER, "fused_add": DATA},
        {"epsilon": 0.1},
    ),
    "batch_normalization_grad": (
        {"input": DATA, "input_gradient": DATA, "mean": PARAMETER, "variance": PARAMETER, "scale": PARAMETER},
        {"epsilon": 0.1},
    ),
}
OPERATORS["batch_normalization_training_grad"] = OPERATORS["batch_normalization_grad"]
OUTPUTS = {name: [DATA] if "local" in name or name == "batch_normalization" else [DATA, PARAMETER, PARAMETER]
           for name in OPERATORS}  # fmt: skip


def call(operator, tensors=(), outputs=(), **fields):
    """Call an operator with all its tensors valid but for those given."""
    shapes, given = OPERATORS[operator]
    arrays = {name: ones(*shape) for name, shape in shapes.items()} | dict(tensors)
    outs = [ones(*shape) for shape in OUTPUTS[operator]]
    for index, array in dict(outputs).items():
        outs[index] = array
    before = [np.copy(out) for out in outs]
    fields = given | fields
    try:
        return getattr(directml, operator)(**arrays, **fields, out=outs[0] if len(outs) == 1 else tuple(outs))
    except (TypeError, ValueError):
        for out, value in zip(outs, before, strict=True):
            np.testing.assert_array_equal(out, value, err_msg="written before the checks passed")
        raise


TENSORS = [(operator, name) for operator, (shapes, _) in OPERATORS.items() for name in shapes]
OUTPUT_TENSORS = [(operator, index) for operator, shapes in OUTPUTS.items() for index in range(len(shapes))]


def shape_of(operator, name):
    return OPERATORS[operator][0][name]


def output_name(operator, index):
    return "out" if len(OUTPUTS[operator]) == 1 else f"out[{index}]"


@pytest.mark.parametrize("operator", OPERATORS)
def test_valid_calls_pass(operator):
    call(operator)


@pytest.mark.parametrize("operator, name", TENSORS)
def test_all_tensors_have_one_data_type(operator, name):
    odd = ones(*shape_of(operator, name), dtype=np.float16)
    first_to_differ = r"\w+" if name == "input" else name
    with pytest.raises(TypeError, match=f"^{first_to_differ} must have the DataType of input"):
        call(operator, {name: odd})


@pytest.mark.parametrize("operator, index", OUTPUT_TENSORS)
def test_outputs_have_the_inputs_data_type(operator, index):
    name = re.escape(output_name(operator, index))
    with pytest.raises(TypeError, match=f"^{name} must have the DataType of input, float32, got float64"):
        call(operator, outputs={index: ones(*OUTPUTS[operator][index], dtype=np.float64)})


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", ["int8", "int32", "complex64", "bool", ">f4"])
def test_unsupported_data_types_are_refused(operator, dtype):
    tensors = {name: ones(*shape, dtype=dtype) for name, shape in OPERATORS[operator][0].items()}
    with pytest.raises(
        TypeError, match="^input must have one of the data types float32, float16, bfloat16, float64"
    ):
        call(operator, tensors)


@pytest.mark.parametrize("operator, name", [t for t in TENSORS if t[1] != "input"])
def test_all_tensors_have_one_dimension_count(operator, name):
    shape = shape_of(operator, name)
    message = f"^{name} must have the " + ("DimensionCount" if shape == PARAMETER else "Sizes") + " of input"
    with pytest.raises(ValueError, match=message):
        call(operator, {name: ones(*shape[1:])})


@pytest.mark.parametrize("operator", [name for name in OPERATORS if "local" in name])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 2, 3, 4, 5)])
def test_lrn_has_four_dimensions(operator, shape):
    tensors = {name: ones(*shape) for name in OPERATORS[operator][0]}
    with pytest.raises(ValueError, match=f"^input must have 4 dimensions, got {len(shape)}"):
        call(operator, tensors, {0: ones(*shape)})


@pytest.mark.parametrize("operator", [name for name in OPERATORS if "batch" in name])
@pytest.mark.parametrize("count", [0, 9])
def test_batch_norm_has_one_to_eight_dimensions(operator, count):
    tensors = {name: ones(*[1] * count) for name in OPERATORS[operator][0]}
    with pytest.raises(ValueError, match=f"^input must have 1 to 8 dimensions, got {count}"):
        call(operator, tensors)


@pytest.mark.parametrize("operator, name", [t for t in TENSORS if t[1] in ("input_gradient", "fused_add")])
def test_data_tensors_have_the_inputs_sizes(operator, name):
    with pytest.raises(
        ValueError, match=rf"^{name} must have the Sizes of input, \(2, 3, 4, 5\), got \(2, 3, 5, 4\)"
    ):
        call(operator, {name: ones(2, 3, 5, 4)})


@pytest.mark.parametrize("operator, index", OUTPUT_TENSORS)
def test_outputs_have_the_sizes_of_the_table(operator, index):
    name = re.escape(output_name(operator, index))
    with pytest.raises(ValueError, match=f"^{name} must have the Sizes of "):
        call(operator, outputs={index: ones(*((1, 2, 3, 4) if index == 0 else (2, 3, 1, 1)))})


@pytest.mark.parametrize("operator, index", OUTPUT_TENSORS)
@pytest.mark.parametrize(
    "change", [lambda shape: shape[1:], lambda shape: (1, *shape)], ids=["fewer", "more"]
)
def test_outputs_have_the_inputs_dimension_count(operator, index, change):
    name = re.escape(output_name(operator, index))
    with pytest.raises(ValueError, match=f"^{name} must have the (Sizes|DimensionCount) of "):
        call(operator, outputs={index: ones(*change(OUTPUTS[operator][index]))})


@pytest.mark.parametrize("operator, name", [t for t in TENSORS if shape_of(*t) == PARAMETER])
def test_parameter_dimensions_are_one_or_the_inputs(operator, name):
    with pytest.raises(
        ValueError, match=rf"^dimensions of {name} must be 1 or those of input, \(2, 3, 4, 5\), got"
    ):
        call(operator, {name: ones(1, 2, 1, 1)})


@pytest.mark.parametrize("operator, name", [t for t in TENSORS if shape_of(*t) == PARAMETER])
def test_parameters_share_their_sizes_except_in_inference(operator, name):
    tensors = {name: ones(1, 1, 1, 1)}
    if operator == "batch_normalization":
        call(operator, tensors)
    else:
        with pytest.raises(ValueError, match=r"must have the Sizes of (mean|scale), "):
            call(operator, tensors)


@pytest.mark.parametrize("operator, name", TENSORS)
def test_what_is_no_array_is_refused(operator, name):
    with pytest.raises(TypeError, match=f"^{name} must be a NumPy array, got list"):
        call(operator, {name: [1.0, 2.0]})
    shape = shape_of(operator, name)
    call(operator, {name: ones(*shape)})  # what is remembered of this is not of a masked array
    with pytest.raises(TypeError, match=f"^{name} must not be a masked array"):
        call(operator, {name: np.ma.masked_array(ones(*shape))})


@pytest.mark.parametrize("operator, index", OUTPUT_TENSORS)
def test_read_only_outputs_are_refused(operator, index):
    locked = ones(*OUTPUTS[operator][index])
    locked.flags.writeable = False
    name = re.escape(output_name(operator, index))
    with pytest.raises(ValueError, match=f"^{name} must be writable, got a read-only array"):
        call(operator, outputs={index: locked})


@pytest.mark.parametrize("operator, index", OUTPUT_TENSORS)
def test_outputs_that_overlap_themselves_are_refused(operator, index):
    repeated = np.broadcast_to(ones(1), OUTPUTS[operator][index])
    repeated.flags.writeable = True
    name = re.escape(output_name(operator, index))
    with pytest.raises(ValueError, match=f"^{name} must not overlap itself, got strides"):
        call(operator, outputs={index: repeated})


@pytest.mark.parametrize("operator", [name for name in OPERATORS if len(OUTPUTS[name]) == 3])
@pytest.mark.parametrize("first, second", [(0, 1), (0, 2), (1, 2)])
def test_outputs_that_overlap_each_other_are_refused(operator, first, second):
    memory = np.full(200, 7, np.float32)
    outputs = {}
    for index, begin in ((first, 0), (second, 2)):
        shape = OUTPUTS[operator][index]
        outputs[index] = memory[begin : begin + math.prod(shape)].reshape(shape)
    with pytest.raises(ValueError, match=rf"^out\[{second}\] must not overlap out\[{first}\], got memory at"):
        call(operator, outputs=outputs)
    assert (memory == 7).all()


@pytest.mark.parametrize("operator, name", [t for t in TENSORS if shape_of(*t) == DATA])
def test_the_output_may_be_an_input_but_not_overlap_it(operator, name):
    call(operator, {name: (whole := ones(*DATA))}, {0: whole})
    memory = np.full((3, *DATA[1:]), 7, np.float32)
    out = re.escape(output_name(operator, 0))
    with pytest.raises(
        ValueError, match=f"^{out} must be the same array or not overlap {name}, got memory at"
    ):
        call(operator, {name: memory[:2]}, {0: memory[1:]})
    assert (memory == 7).all()


@pytest.mark.parametrize("operator", [name for name in OPERATORS if len(OUTPUTS[name]) == 3])
@pytest.mark.parametrize("out", [ones(*DATA), (None, None), [None] * 3])
def test_three_outputs_are_given_as_a_tuple(operator, out):
    shapes, fields = OPERATORS[operator]
    got = f"one of {len(out)}" if isinstance(out, tuple) else type(out).__name__
    with pytest.raises(ValueError if isinstance(out, tuple) else TypeError,
                       match=f"^out must be a tuple of 3 arrays or None, got {got}$"):
        getattr(directml, operator)(
            **{name: ones(*shape) for name, shape in shapes.items()}, **fields, out=out
        )


@pytest.mark.parametrize("operator", [name for name in OPERATORS if "local" in name])
@pytest.mark.parametrize(
    "field, value, error",
    [
        ("local_size", 0, ValueError),
        ("local_size", -1, ValueError),
        ("local_size", [5], TypeError),
        ("local_size", 2.0, TypeError),
        ("alpha", math.nan, ValueError),
        ("beta", math.inf, ValueError),
        ("alpha", [1.0], TypeError),
        ("bias", math.nan, ValueError),
        ("bias", "one", TypeError),
        ("divisor", 0, ValueError),
        ("alpha", 10**400, ValueError),
        ("bias", True, TypeError),
        ("divisor", b"2", TypeError),
        ("local_size", 10**400, ValueError),
        ("local_size", True, TypeError),
        ("cross_channel", "False", TypeError),
        ("cross_channel", 0, TypeError),
        ("cross_channel", np.ones(2), TypeError),
    ],
)
def test_lrn_fields_are_checked(operator, field, value, error):
    with pytest.raises(error, match=f"^{field} must"):
        call(operator, **{field: value})


@pytest.mark.parametrize("operator", [name for name in OPERATORS if "batch" in name])
@pytest.mark.parametrize("epsilon, error", [(-1.0, ValueError), (math.nan, ValueError), ("small", TypeError)])
def test_epsilon_is_checked(operator, epsilon, error):
    with pytest.raises(error, match="^epsilon must"):
        call(operator, epsilon=epsilon)


@pytest.mark.parametrize("operator", ["batch_normalization", "batch_normalization_training"])
def test_unknown_activations_are_refused(operator):
    with pytest.raises(
        ValueError, match="^fused_activation must be one of 'identity', .*, got 'DML_OPERATOR_CONV"
    ):
        call(operator, fused_activation="DML_OPERATOR_CONVOLUTION")
    for name in "DML_OPERATOR_ACTIVATION_PARAMETERIZED_RELU", "DML_ACTIVATION_RELU":
        with pytest.raises(ValueError, match=f"^fused_activation must be one of .*, got '{name}'"):
            call(operator, fused_activation=name)
    with pytest.raises(TypeError, match="^fused_activation must be an Activation, its name or None, got 3"):
        call(operator, fused_activation=3)


# ------------------------------------------------------------------------------------------------------------
# Memory


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_tensor_is_copied(operator, dtype):
    shapes, fields = OPERATORS[operator]
    sizes = {DATA: (8, 32, 64, 64), PARAMETER: (1, 32, 1, 1)}
    # A channels-last view: the order that a careless implementation copies.
    arrays = {
        n: np.moveaxis(ones(*np.take(sizes[s], (0, 2, 3, 1)), dtype=dtype), -1, 1) for n, s in shapes.items()
    }
    outs = tuple(
        np.empty_like(arrays["input"]) if s == DATA else ones(*sizes[s], dtype=dtype)
        for s in OUTPUTS[operator]
    )
    arguments = {**arrays, **fields, "out": outs[0] if len(outs) == 1 else outs}
    function = getattr(directml, operator)
    function(**arguments)
    tracemalloc.start()
    function(**arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < arrays["input"].nbytes / 10


# ------------------------------------------------------------------------------------------------------------
# Arguments that the operators themselves have

X, ONE = np.ones((1, 2, 2, 3), np.float32), np.ones((1, 2, 1, 1), np.float32)


@pytest.mark.parametrize("call", [
    lambda out: directml.batch_normalization_training(X, ONE, ONE, epsilon=1, out=out),
    lambda out: directml.batch_normalization_grad(X, X, ONE, ONE, ONE, epsilon=1, out=out),
    lambda out: directml.batch_normalization_training_grad(X, X, ONE, ONE, ONE, epsilon=1, out=out),
])  # fmt: skip
def test_every_output_goes_where_it_is_told(call):
    out = np.full_like(X, 7), np.full_like(ONE, 7), np.full_like(ONE, 7)
    for told, returned, new in zip(out, call(out), call(None), strict=True):
        assert returned is told
        np.testing.assert_array_equal(told, new)


LRN = {"cross_channel": True, "local_size": 3}


@pytest.mark.parametrize("call", [
    lambda **threads: directml.local_response_normalization(X, **LRN, **threads),
    lambda **threads: directml.local_response_normalization_grad(X, X, **LRN, **threads),
    lambda **threads: directml.batch_normalization(X, ONE, ONE, ONE, ONE, epsilon=1, **threads),
    lambda **threads: directml.batch_normalization_training(X, ONE, ONE, epsilon=1, **threads),
    lambda **threads: directml.batch_normalization_grad(X, X, ONE, ONE, ONE, epsilon=1, **threads),
    lambda **threads: directml.batch_normalization_training_grad(X, X, ONE, ONE, ONE, epsilon=1, **threads),
])  # fmt: skip
def test_num_threads_reaches_the_kernels(call):
    call(num_threads=1)
    with pytest.raises(ValueError, match="num_threads"):
        call(num_threads=0)


def test_bias_is_no_optional_tensor():
    with pytest.raises(TypeError, match="bias"):
        directml.batch_normalization(X, ONE, ONE, ONE, None, epsilon=1)


def test_spatial_is_a_bool():
    with pytest.raises(TypeError, match="spatial must be True or False, got 'no'"):
        directml.batch_normalization(X, ONE, ONE, ONE, ONE, epsilon=1, spatial="no")


def test_a_negative_zero_is_not_remembered_for_a_zero():
    """Equal operators give equal bits, whichever was made first."""
    linear = [Activation("linear", alpha=0.0, beta=beta) for beta in (-0.0, 0.0)]
    assert linear[0] == linear[1] and repr(linear[0]) == repr(linear[1])
    for activation in linear:
        output = directml.batch_normalization(-X, 0 * ONE, ONE, ONE, 0 * ONE, epsilon=1, fused_activation=activation)
        assert not np.signbit(output).any()
