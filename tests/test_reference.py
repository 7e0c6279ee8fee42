"""The oracle itself: against central differences, against PyTorch, and against sums written out by hand."""

import itertools

import numpy as np
import pytest

import reference
from reference import activation, activation_gradient, ulp, window_reach, window_sum
from strategies import ACTIVATIONS

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


def slopes(function, x, weights, step=1e-6):
    """The derivative of sum(weights * function(x)) by each element of x, by central differences."""
    slope = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        higher, lower = x.copy(), x.copy()
        higher[index] += step
        lower[index] -= step
        slope[index] = (weights * (function(higher) - function(lower))).sum() / (2 * step)
    return slope


def draw(*shape, seed=0):
    """Random numbers of float64."""
    return np.random.default_rng(seed).standard_normal(shape)


# ------------------------------------------------------------------------------------------------------------
# Windows


@pytest.mark.parametrize("window", ["onednn", "onnx", "torch"])
@pytest.mark.parametrize("local_size", range(1, 9))
def test_window_sum_by_hand(window, local_size):
    """Against the definition, one element at a time."""
    left, right = window_reach(local_size, window)
    if local_size % 2 or window != "onednn":
        assert left + right + 1 == local_size
    array = draw(2, 5, 6)
    expected = np.zeros_like(array)
    for n, i, j in np.ndindex(array.shape):
        box = array[n, max(0, i - left) : i + right + 1, max(0, j - left) : j + right + 1]
        expected[n, i, j] = box.sum()
    np.testing.assert_allclose(window_sum(array, (1, 2), left, right), expected, atol=1e-12)


def test_even_windows():
    assert [window_reach(4, window) for window in ("onednn", "onnx", "torch")] == [(1, 1), (1, 2), (2, 1)]
    assert [window_reach(2, window) for window in ("onednn", "onnx", "torch")] == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("window", ["onednn", "onnx", "torch"])
@pytest.mark.parametrize("local_size", [1, 2, 4, 5, 20])
def test_mirrored_window_is_the_transpose(window, local_size):
    """sum_i a_i * sum_{j in W(i)} b_j == sum_j b_j * sum_{i: j in W(i)} a_i"""
    a, b = draw(3, 7, seed=1), draw(3, 7, seed=2)
    left, right = window_reach(local_size, window)
    forward, mirrored = (
        (a * window_sum(b, (1,), left, right)).sum(),
        (b * window_sum(a, (1,), right, left)).sum(),
    )
    assert forward == pytest.approx(mirrored)


# ------------------------------------------------------------------------------------------------------------
# LRN


@pytest.mark.parametrize("region", ["across_channels", "within_channel"])
@pytest.mark.parametrize("window", ["onednn", "onnx", "torch"])
@pytest.mark.parametrize("local_size", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("shape", [(2, 6), (1, 3, 6), (1, 3, 4, 3), (1, 2, 2, 3, 3)], ids=str)
def test_lrn_backward_is_the_derivative(region, window, local_size, shape):
    parameters = {
        "local_size": local_size, "alpha": 0.7, "beta": 0.8, "k": 1.2, "region": region, "window": window
    }  # fmt: skip
    src, diff_dst = draw(*shape), draw(*shape, seed=1)
    expected = slopes(lambda x: reference.lrn_forward(x, **parameters).astype(float), src, diff_dst)
    diff_src = reference.lrn_backward(diff_dst, src, **parameters).astype(float)
    np.testing.assert_allclose(diff_src, expected, rtol=1e-6, atol=1e-8)
    dst = reference.lrn_forward(src, **parameters)
    with_dst = reference.lrn_backward(diff_dst, src, dst=dst, **parameters).astype(float)
    np.testing.assert_allclose(with_dst, diff_src, rtol=1e-12, atol=1e-14)


def test_an_unmirrored_backward_would_show():
    """For even sizes the mirrored window matters: swapping it fails the check above by far."""
    src, diff_dst = draw(1, 8), draw(1, 8, seed=1)
    onnx, torch_like = (
        reference.lrn_backward(diff_dst, src, local_size=4, alpha=0.7, window=window)
        for window in ("onnx", "torch")
    )
    assert np.abs(onnx - torch_like).max() > 1e-2


def test_lrn_by_hand():
    """dst = src * (k + alpha / n * sum)^-beta with numbers that come out even."""
    src = np.array([[1.0, 2.0, 3.0]])
    omega = np.array([[1 + 5, 1 + 14, 1 + 13]])
    np.testing.assert_allclose(
        reference.lrn_forward(src, local_size=3, alpha=3.0, beta=0.5).astype(float), src / np.sqrt(omega)
    )


@needs_torch
@pytest.mark.parametrize("local_size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("beta", [0.5, 0.75, 1.3])
def test_lrn_like_torch(local_size, beta):
    src, diff_dst = draw(2, 9, 3, 4), draw(2, 9, 3, 4, seed=1)
    parameters = {"local_size": local_size, "alpha": 0.3, "beta": beta, "k": 1.5, "window": "torch"}
    tensor = torch.tensor(src, requires_grad=True)
    result = torch.nn.functional.local_response_norm(tensor, local_size, alpha=0.3, beta=beta, k=1.5)
    result.backward(torch.tensor(diff_dst))
    np.testing.assert_allclose(
        reference.lrn_forward(src, **parameters).astype(float), result.detach().numpy()
    )
    diff_src = reference.lrn_backward(diff_dst, src, **parameters).astype(float)
    np.testing.assert_allclose(diff_src, tensor.grad.numpy(), rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------
# Batch normalization


AXES = [(0,), (0, 2, 3), (2, 3), (1, 2, 3), (0, 1), (3,), (), (0, 1, 2, 3)]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_batch_norm_backward_is_the_derivative(axes):
    src, diff_dst = draw(3, 2, 2, 3), draw(3, 2, 2, 3, seed=1)
    mean, variance = reference.batch_norm_statistics(src, axes)
    scale, shift = draw(*mean.shape, seed=2), draw(*mean.shape, seed=3)
    options = {"epsilon": 0.1}
    (diff_src, diff_scale, diff_shift), _ = reference.batch_norm_backward(
        diff_dst, src, axes, mean, variance, scale, **options
    )

    def forward(src=src, scale=scale, shift=shift):
        return reference.batch_norm_training(src, axes, scale, shift, **options)[0].astype(float)

    def given_statistics(src):
        return reference.batch_norm_apply(src, mean, variance, scale, shift, **options)[0].astype(float)

    close = {"rtol": 1e-5, "atol": 1e-7}
    np.testing.assert_allclose(diff_src.astype(float), slopes(forward, src, diff_dst), **close)
    np.testing.assert_allclose(
        diff_scale.astype(float), slopes(lambda x: forward(scale=x), scale, diff_dst), **close
    )
    np.testing.assert_allclose(
        diff_shift.astype(float), slopes(lambda x: forward(shift=x), shift, diff_dst), **close
    )
    (diff_src, _, _), _ = reference.batch_norm_backward(
        diff_dst, src, axes, mean, variance, scale, training=False, **options
    )
    np.testing.assert_allclose(diff_src.astype(float), slopes(given_statistics, src, diff_dst), **close)


@needs_torch
def test_batch_norm_like_torch():
    src, diff_dst = draw(5, 3, 4, 2), draw(5, 3, 4, 2, seed=1)
    scale, shift = draw(3, seed=2), draw(3, seed=3)
    tensors = [torch.tensor(array, requires_grad=True) for array in (src, scale, shift)]
    result = torch.nn.functional.batch_norm(tensors[0], None, None, *tensors[1:], training=True, eps=1e-3)
    result.backward(torch.tensor(diff_dst))
    scale, shift = scale.reshape(1, 3, 1, 1), shift.reshape(1, 3, 1, 1)
    value, mean, variance = reference.batch_norm_training(src, (0, 2, 3), scale, shift, epsilon=1e-3)
    np.testing.assert_allclose(value.astype(float), result.detach().numpy(), atol=1e-12)
    gradients, _ = reference.batch_norm_backward(
        diff_dst, src, (0, 2, 3), mean, variance, scale, epsilon=1e-3
    )
    for gradient, tensor in zip(gradients, tensors, strict=True):
        expected = tensor.grad.numpy()
        np.testing.assert_allclose(gradient.astype(float).reshape(expected.shape), expected, atol=1e-10)


@pytest.mark.parametrize("name, parameters", ACTIVATIONS.items(), ids=ACTIVATIONS)
def test_activation_gradients(name, parameters):
    x = draw(200) * 3
    expected = slopes(lambda x: activation(name, x, **parameters).astype(float), x, np.ones_like(x))
    gradient = activation_gradient(name, x, **parameters).astype(float)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


@needs_torch
def test_activations_like_torch():
    x = draw(200) * 3
    tensor = torch.tensor(x)
    functional = torch.nn.functional
    for name, expected in {
        "relu": functional.relu(tensor),
        "elu": functional.elu(tensor, 1.2),
        "celu": functional.celu(tensor, 0.7),
        "leaky_relu": functional.leaky_relu(tensor, 0.01),
        "sigmoid": torch.sigmoid(tensor),
        "softplus": functional.softplus(tensor, 2.0),
        "softsign": functional.softsign(tensor),
        "tanh": torch.tanh(tensor),
        "thresholded_relu": functional.threshold(tensor, 0.8, 0),
    }.items():
        result = activation(name, x, **ACTIVATIONS[name]).astype(float)
        np.testing.assert_allclose(result, expected.numpy(), rtol=1e-8, err_msg=name)


# ------------------------------------------------------------------------------------------------------------
# Numbers and layouts


@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
def test_ulp_is_the_distance_to_the_next(dtype):
    """Against the next value by its bits."""
    info = reference.finfo(dtype)
    values = np.array(
        [
            0,
            float(info.smallest_subnormal),
            float(info.smallest_normal),
            0.75,
            1,
            1.5,
            2,
            1000,
            float(info.max) / 2,
        ]
    ).astype(dtype)
    unsigned = f"u{dtype.itemsize}"
    following = (values.view(unsigned) + np.ones((), unsigned)).view(dtype)
    np.testing.assert_array_equal(ulp(values, dtype), reference.wide(following) - reference.wide(values))


@pytest.mark.parametrize("layout", reference.LAYOUTS)
@pytest.mark.parametrize("channels", [1, 8, 11, 16, 24, 33])
def test_layouts_round_trip(layout, channels):
    shape = (2, channels, 3, 4, 5)[: 2 + reference.spatial_ndim(layout)]
    canonical = draw(*shape)
    array = reference.from_canonical(canonical, layout, padding=np.nan)
    np.testing.assert_array_equal(reference.to_canonical(array, layout, channels), canonical)
    block = reference.block_size(layout)
    if block:
        assert array.shape == (2, -(-channels // block), *shape[2:], block)
        assert np.isnan(array).sum() == array.size - canonical.size
        for c in range(channels):
            np.testing.assert_array_equal(array[:, c // block, ..., c % block], canonical[:, c])


def test_assert_within_can_fail():
    """A wrong value, a NaN too many or too few, an infinity: each is noticed; overflow by rounding is not."""
    one = np.ones(3, np.float32)
    tolerance = ulp(one, one.dtype)
    reference.assert_within(one, np.ones(3) + 1e-8, tolerance)
    for wrong, expected in itertools.product((1.001, np.nan, np.inf), (1.0,)):
        got = one.copy()
        got[1] = wrong
        with pytest.raises(AssertionError, match=r"at \(1,\)"):
            reference.assert_within(got, np.full(3, expected), tolerance)
    with pytest.raises(AssertionError):
        reference.assert_within(one, np.full(3, np.nan), tolerance)
    with pytest.raises(AssertionError):
        reference.assert_within(one, np.full(3, np.inf), tolerance)
    largest = np.full(1, 65504, np.float16)
    reference.assert_within(np.full(1, np.inf, np.float16), np.array([65525.0]), ulp(largest, largest.dtype))
