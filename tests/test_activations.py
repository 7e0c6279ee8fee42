"""The activations made of exponentials, over their whole range, against mpmath: a few ulp, relative to the result."""

import mpmath
import numpy as np
import pytest

import cynorm
import reference
from reference import ulp

pytestmark = pytest.mark.usefixtures("isa")

DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]
mp = mpmath.mp.clone()
mp.prec = 200

# By name and parameters: the value, the derivative, and how many ulp each may be off. A celu of alpha -1 takes the
# exponential of positive numbers.
CASES = {
    "elu": ({}, lambda x: x if x >= 0 else mp.expm1(x), lambda x: 1 if x >= 0 else mp.exp(x), 1.5, 1),
    "celu": ({"alpha": -1.0}, lambda x: x if x >= 0 else -mp.expm1(-x), lambda x: 1 if x >= 0 else mp.exp(-x), 1.5, 1),
    "sigmoid": ({}, lambda x: 1 / (1 + mp.exp(-x)), lambda x: 1 / (2 + mp.exp(x) + mp.exp(-x)), 2, 2.5),
    "softplus": ({}, lambda x: mp.log1p(mp.exp(x)), lambda x: 1 / (1 + mp.exp(-x)), 2, 2),
    "tanh": ({}, mp.tanh, lambda x: mp.sech(x) ** 2, 2, 2.5),
}  # fmt: skip
# Of -infinity, infinity: the values, then the derivatives.
AT_INFINITY = {
    "elu": (-1, np.inf, 0, 1),
    "celu": (-np.inf, np.inf, np.inf, 1),
    "sigmoid": (0, 1, 0, 0),
    "softplus": (0, np.inf, 0, 1),
    "tanh": (-1, 1, 0, 0),
}


def arguments(dtype):
    """Numbers of every magnitude, many near 0 and where exponentials overflow and underflow, or rounding is hardest."""
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    largest, smallest = float(np.log(info.max)), float(np.log(info.smallest_subnormal))
    drawn = [
        rng.standard_normal(600),
        rng.uniform(smallest - 2, largest + 2, 400),
        rng.uniform(-1, 1, 200) * np.exp2(rng.integers(info.minexp - info.nmant, info.maxexp, 200)),
        *(edge * (1 + np.arange(-20, 20) * info.eps) for edge in (largest, smallest, -largest, np.log(info.tiny))),
        np.log(2) / 2 * np.arange(-9, 10, 2)[:, None] * (1 + np.arange(-9, 9) * info.eps),  # the ends of the reduction
        np.log(np.sqrt(2) - 1) * (1 + np.arange(-9, 9) * info.eps),  # those of log1p's
        [0.0, info.smallest_subnormal, -info.smallest_subnormal, info.tiny, -info.tiny, info.max, -info.max],
    ]  # fmt: skip
    with np.errstate(over="ignore"):
        x = np.concatenate([np.ravel(part) for part in drawn]).astype(dtype)
    return x[np.isfinite(x)]


def activate(activation, x):
    """The activation of x, and its derivative there, by a batch normalization that changes nothing else."""
    bn, workspace = cynorm.BatchNorm(epsilon=0.0, layout="NC", activation=activation), cynorm.Workspace()
    src, zero, one = x[:, None], np.zeros(1, x.dtype), np.ones(1, x.dtype)
    dst = bn.forward_inference(src, zero, one, workspace=workspace)
    gradients = bn.backward_inference(np.ones_like(src), src, zero, one, workspace=workspace)
    return dst[:, 0], gradients.diff_src[:, 0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whole_range(name, dtype):
    x = arguments(dtype)
    parameters, value, derivative, *bounds = CASES[name]
    for got, exact, bound in zip(activate(cynorm.Activation(name, **parameters), x), (value, derivative), bounds, strict=True):
        wanted = [exact(mp.mpf(float(one))) for one in x]
        with np.errstate(over="ignore"):
            rounded = np.array([float(one) for one in wanted]).astype(dtype)
        overflows = np.isinf(rounded)
        np.testing.assert_array_equal(got[overflows], rounded[overflows])
        for i in np.flatnonzero(~overflows):
            error = abs(mp.mpf(float(got[i])) - wanted[i]) / float(ulp(rounded[i], dtype))
            assert error <= bound, f"{name} of {x[i]!r} is {got[i]!r}, not {rounded[i]!r}"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinities_and_nan(name, dtype):
    got = activate(cynorm.Activation(name, **CASES[name][0]), np.array([-np.inf, np.inf, np.nan], dtype))
    np.testing.assert_array_equal(np.array(got)[:, :2].ravel(), AT_INFINITY[name])
    assert np.isnan(got[0][2])


# Where each is cut.
EDGES = {
    "relu": ({}, [0.0, -0.0]),
    "elu": ({"alpha": 1.5}, [0.0]),
    "celu": ({"alpha": 0.5}, [0.0]),
    "scaled_elu": ({"alpha": 1.5, "gamma": 2.0}, [0.0]),
    "hard_sigmoid": ({"alpha": 0.25, "beta": 0.5}, [-2.0, 2.0]),
    "leaky_relu": ({"alpha": 0.25}, [0.0]),
    "thresholded_relu": ({"alpha": 1.0}, [1.0]),
    "shrink": ({"bias": 0.25, "threshold": 0.5}, [-0.5, 0.5]),
}


@pytest.mark.parametrize("name", EDGES)
def test_at_their_edges(name):
    """The value and the derivative exactly where an activation is cut, which drawn numbers never hit."""
    parameters, edges = EDGES[name]
    x = np.array(edges, np.float32)
    dst, diff_src = activate(cynorm.Activation(name, **parameters), x)
    np.testing.assert_array_equal(dst, reference.activation(name, x, **parameters))
    np.testing.assert_array_equal(diff_src, reference.activation_gradient(name, x, **parameters))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softplus_and_softsign_of_huge_numbers(dtype):
    """Neither the product with the steepness nor a square overflows where the result does not."""
    most = np.finfo(dtype).max
    x = np.array([most / 2, most, np.sqrt(most) * 4], dtype)
    np.testing.assert_array_equal(activate(cynorm.Activation("softplus", steepness=100.0), x)[0], x)
    bn, zero, one = cynorm.BatchNorm(epsilon=0.0, layout="NC", activation="softsign"), np.zeros(1, dtype), np.ones(1, dtype)
    gradient = bn.backward_inference(x[:1, None], x[2:, None], zero, one, shift=zero).diff_src
    np.testing.assert_allclose(gradient, [[x[0] / x[2] / x[2]]], rtol=1e-6)


@pytest.mark.parametrize("name", ["scaled_tanh", "parametric_softplus"])
def test_derivatives_of_zero_where_parameters_are_huge(name):
    """Their product alone would overflow."""
    activation = cynorm.Activation(name, alpha=1e20, beta=1e20)
    x = np.array([-3.0, -1e10], np.float32)
    np.testing.assert_array_equal(activate(activation, x)[1], [0, 0])
