"""Batch normalization, then LRN, as functions that TensorFlow's tapes differentiate once, beside TensorFlow's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf  # type: ignore[import-untyped]

import cynorm

Tensor = Any  # TensorFlow comes without types

BN = cynorm.BatchNorm(epsilon=1e-3, layout="NHWC")
LRN = cynorm.LRN(11, alpha=1.0, beta=0.5, k=1.0, divisor=1, layout="NHWC")  # depth_radius 5


def called(function: Callable[..., Any], tensors: list[Tensor], like: list[Tensor]) -> list[Tensor]:
    """What a function of NumPy's arrays returns, with the types and shapes of `like`; in a graph, too."""
    results = tf.nest.flatten(tf.numpy_function(function, tensors, [tensor.dtype for tensor in like], stateful=False))
    for result, tensor in zip(results, like, strict=True):
        result.set_shape(tensor.shape)
    return results  # type: ignore[no-any-return]


@tf.custom_gradient  # type: ignore[untyped-decorator]
def batch_norm(src: Tensor, scale: Tensor, shift: Tensor) -> Any:
    """dst, mean and variance in training; gradients flow through dst alone, once. Backward takes the statistics back: no
    workspace has to outlive a graph's call."""
    dst, mean, variance = called(BN.forward_training, [src, scale, shift], [src, scale, scale])

    def gradient(diff_dst: Tensor, *_: Tensor) -> list[Tensor]:
        def backward(*arrays: Any) -> Any:
            diff_dst, src, scale, mean, variance = arrays
            return BN.backward_training(diff_dst, src, scale, mean=mean, variance=variance)[:3]

        return called(backward, [diff_dst, src, scale, mean, variance], [src, scale, shift])

    return (dst, mean, variance), gradient


@tf.custom_gradient  # type: ignore[untyped-decorator]
def local_response_normalization(src: Tensor) -> Any:
    """dst; any cynorm.LRN will do in its place."""

    def gradient(diff_dst: Tensor) -> list[Tensor]:
        return called(LRN.backward, [diff_dst, src], [src])

    return called(LRN.forward, [src], [src])[0], gradient


def ours(src: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Both functions, one after the other."""
    return local_response_normalization(tf.nn.relu(batch_norm(src, scale, shift)[0]))


def theirs(src: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """TensorFlow's."""
    dst = tf.compat.v1.nn.fused_batch_norm(src, scale, shift, epsilon=1e-3)[0]
    return tf.nn.local_response_normalization(tf.nn.relu(dst))


def main() -> None:
    """One step of each, eagerly and as a graph, and how far apart results and gradients are."""
    src, target = tf.unstack(tf.random.stateless_normal([2, 8, 28, 28, 16], seed=(0, 0)))
    leaves = src, tf.ones(16), tf.zeros(16)

    def step(function: Callable[..., Tensor]) -> list[Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(leaves)
            dst = function(*leaves)
            loss = tf.reduce_sum((dst - target) ** 2)
        return [dst, *tape.gradient(loss, leaves)]

    expected = step(theirs)
    for kind, run in ("eager", step), ("graph", tf.function(step)):
        for name, a, b in zip(("dst", "diff_src", "diff_scale", "diff_shift"), run(ours), expected, strict=True):
            difference = tf.reduce_max(abs(a - b)) / tf.reduce_max(abs(b))
            print(f"{kind} {name:10}  largest difference {difference:.1e} of the largest")


if __name__ == "__main__":
    main()
