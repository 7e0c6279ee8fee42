"""TensorFlow: its LRN and fused batch norm, both NHWC and 4-D; it cannot write into given outputs."""

import importlib.util

import numpy as np

from benchmarks.peers import Prepared, Refused


def available():
    return importlib.util.find_spec("tensorflow") is not None


def version():
    return _tensorflow().__version__


def _tensorflow():
    import tensorflow

    return tensorflow


def set_num_threads(count):
    """Only the first call can have an effect: TensorFlow fixes its pools when it first computes."""
    try:
        _tensorflow().config.threading.set_intra_op_parallelism_threads(count)
    except RuntimeError as error:
        if _tensorflow().config.threading.get_intra_op_parallelism_threads() != count:
            raise Refused("the number of threads is fixed by the first run") from error


def prepare(problem, arrays):
    """Prepare a problem; what TensorFlow raises at its first run becomes a refusal."""
    tf = _tensorflow()
    if (
        len(problem.shape) != 4
        or problem.layout.block
        or problem.layout.order != (0, 2, 3, 1)
        or problem.strides
    ):
        raise Refused("only NHWC")
    if problem.inplace:
        raise Refused("in place")
    try:
        prepared = (_lrn if problem.driver == "lrn" else _batch_norm)(tf, problem, arrays)
        prepared.run()
    except (tf.errors.OpError, TypeError, ValueError) as error:
        raise Refused(str(error).splitlines()[0][:80]) from error
    return prepared


def _nhwc(tf, array):
    return tf.constant(np.moveaxis(array, 1, -1))


def _lrn(tf, problem, arrays):
    values = problem.parameters
    if problem.alg == "WITHIN":
        raise Refused("within channel")
    if values["ls"] % 2 == 0:
        raise Refused("even sizes")
    parameters = {
        "depth_radius": values["ls"] // 2,
        "bias": values["k"],
        "alpha": values["alpha"] / values["ls"],
        "beta": values["beta"],
    }
    src = _nhwc(tf, arrays["src"])
    if problem.is_forward:
        return Prepared(lambda: tf.raw_ops.LRN(input=src, **parameters), "LRN")
    dst, diff_dst = tf.raw_ops.LRN(input=src, **parameters), _nhwc(tf, arrays["diff_dst"])
    return Prepared(
        lambda: tf.raw_ops.LRNGrad(input_grads=diff_dst, input_image=src, output_image=dst, **parameters),
        "LRNGrad",
    )


def _batch_norm(tf, problem, arrays):
    channels, training = problem.shape[1], "G" not in problem.flags
    if problem.relu:
        raise Refused("fused ReLU")
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    scale = tf.constant(ones if arrays["scale"] is None else arrays["scale"])
    shift = tf.constant(zeros if arrays["shift"] is None else arrays["shift"])
    src = _nhwc(tf, arrays["src"])
    statistics = [] if training else [arrays["mean"], arrays["variance"]]
    mean, variance = statistics or (np.zeros(0, np.float32), np.zeros(0, np.float32))
    common = {"epsilon": problem.parameters["eps"], "is_training": training}

    def forward():
        return tf.raw_ops.FusedBatchNormV3(
            x=src, scale=scale, offset=shift, mean=mean, variance=variance, **common
        )

    if problem.is_forward:
        return Prepared(forward, "FusedBatchNormV3")
    saved, diff_dst = forward(), _nhwc(tf, arrays["diff_dst"])
    reserved = {f"reserve_space_{number}": saved[2 + number] for number in (1, 2, 3)}
    return Prepared(
        lambda: tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=diff_dst, x=src, scale=scale, **reserved, **common
        ),
        "FusedBatchNormGradV3",
    )
