"""What BatchNorm refuses: errors name the argument and what was given and is allowed; nothing is written."""

import pickle
from functools import partial

import numpy as np
import pytest

import cynorm
import reference
from strategies import assert_same_bits
from test_lrn_errors import NOT_FLOATS, READ_ONLY, SHAPE, array, refuses


def vector(length=8, dtype=np.float32, fill=1):
    """A parameter."""
    return np.full(length, fill, dtype)


def every_call(**changed):
    """The four methods with good arguments, but for those changed, and the outputs they must not write."""
    bn = changed.pop("bn", None) or cynorm.BatchNorm()
    out = changed.pop("out", array(fill=7))
    good = {
        "src": array(),
        "diff_dst": array(),
        "mean": vector(),
        "variance": vector(),
        "scale": vector(),
    } | changed
    statistics = (good["mean"], good["variance"])
    only_forward = {key: good[key] for key in ("shift", "add") if key in good}
    threads = {key: good[key] for key in ("num_threads", "workspace") if key in good}
    running = {key: good[key] for key in good if key.startswith(("running", "momentum", "unbiased"))}
    src, diff_dst, scale = good["src"], good["diff_dst"], good["scale"]
    return {
        "forward_training": lambda: bn.forward_training(
            src, scale, **only_forward, **running, **threads, out=out
        ),
        "forward_inference": lambda: bn.forward_inference(
            src, *statistics, scale, **only_forward, **threads, out=out
        ),
        "backward_training": lambda: bn.backward_training(
            diff_dst, src, scale, mean=statistics[0], variance=statistics[1], **threads, out=out
        ),
        "backward_inference": lambda: bn.backward_inference(
            diff_dst, src, *statistics, scale, **threads, out=out
        ),
    }, out


def refused_by(methods, error, *words, **changed):
    """Each of `methods` refuses the arguments changed, and writes nothing."""
    calls, out = every_call(**changed)
    before = out.copy() if isinstance(out, np.ndarray) else None
    for method in methods:
        refuses(error, *words, call=calls[method])
        if before is not None:
            np.testing.assert_array_equal(out, before)


FORWARD = ("forward_training", "forward_inference")
BACKWARD = ("backward_training", "backward_inference")
INFERENCE = ("forward_inference", "backward_inference")
ALL = FORWARD + BACKWARD


def test_the_calls_are_good_as_they_are():
    """What the tests below change is all that is wrong with these calls."""
    for call in every_call(shift=vector(), add=array())[0].values():
        call()


# ------------------------------------------------------------------------------------------------------------
# Parameters of the operator


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"epsilon": -1e-5}, ValueError, ["epsilon", "-1e-05"]),
        ({"epsilon": np.nan}, ValueError, ["epsilon", "nan"]),
        ({"epsilon": np.inf}, ValueError, ["epsilon", "inf"]),
        ({"epsilon": "small"}, TypeError, ["epsilon", "'small'"]),
        ({"epsilon": None}, TypeError, ["epsilon", "None"]),
        ({"epsilon": 10**400}, ValueError, ["epsilon", "1000"]),
        ({"epsilon": True}, TypeError, ["epsilon", "True"]),
        ({"layout": np.array("NCHW")}, TypeError, ["layout", "array('NCHW'", "NCHW"]),
        ({"layout": "bogus", "axes": (0,)}, ValueError, ["layout", "axes", "'bogus'"]),
        ({"layout": "NHWC", "axes": (0, 2, 3)}, ValueError, ["layout", "axes", "'NHWC'"]),
        ({"channels": 8, "axes": (0, 2, 3)}, ValueError, ["channels", "axes", "8"]),
        ({"axes": ""}, TypeError, ["axes", "''"]),
        ({"axes": b"\0"}, TypeError, ["axes", "b'"]),
        ({"axes": True}, TypeError, ["axes", "True"]),
        ({"axes": (True, False)}, TypeError, ["axes", "(True, False)"]),
        ({"axes": np.array([True])}, TypeError, ["axes", "array([ True])"]),
        ({"axes": np.array([0.0])}, TypeError, ["axes", "array([0.])"]),
        ({"layout": "NCWH"}, ValueError, ["layout", "'NCWH'", "NCHW"]),
        ({"layout": "nchw"}, ValueError, ["layout", "'nchw'", "NCHW"]),
        ({"axes": (0, 0)}, ValueError, ["axes", "(0, 0)"]),
        ({"axes": (0.5,)}, TypeError, ["axes", "(0.5,)"]),
        ({"axes": "HW"}, TypeError, ["axes", "'HW'"]),
        ({"axes": (8,)}, ValueError, ["axes", "8"]),
        ({"activation": "rleu"}, ValueError, ["activation", "'rleu'", "relu"]),
        ({"activation": 3}, (TypeError, ValueError), ["activation", "3", "relu"]),
        ({"layout": "nChw8c", "channels": 0}, ValueError, ["channels", "0"]),
        ({"layout": "nChw8c", "channels": 2.5}, TypeError, ["channels", "2.5"]),
    ],
    ids=str,
)
def test_parameters(arguments, error, words):
    refuses(error, *words, call=lambda: cynorm.BatchNorm(**arguments).forward_training(array()))


def test_axes_may_be_an_array():
    for axes in (np.array([0, 2, 3]), [np.int64(3), 0, 2], range(0, 4, 2), np.array(0)):
        bn = cynorm.BatchNorm(axes=axes)
        assert bn == cynorm.BatchNorm(axes=tuple(np.atleast_1d(axes)), layout=None)
        assert bn == pickle.loads(pickle.dumps(bn)) and all(type(axis) is int for axis in bn.axes)


def test_axes_that_are_one():
    for axes in ((0, -4), (-4, 0)):
        words = "axes must not repeat, got 0 and -4 for src of 4 dimensions"
        refuses(ValueError, words, call=partial(cynorm.batch_norm, array(), axes=axes))


def test_axes_are_no_matrix():
    for axes in (np.zeros((2, 2), int), memoryview(np.zeros((2, 2), int))):
        refuses(TypeError, "axes must be an integer or a sequence", call=partial(cynorm.BatchNorm, axes=axes))


def test_the_default_layout():
    """It is NCHW where no axes are given, and shown."""
    bn = cynorm.BatchNorm()
    assert bn == cynorm.BatchNorm(layout="NCHW") == pickle.loads(pickle.dumps(bn))
    assert bn.layout == "NCHW" and "layout='NCHW'" in repr(bn)


def test_axes_out_of_range():
    """Axes are checked against the array they meet."""
    for axes in ((4,), (0, -5)):
        refused_by(ALL, ValueError, "axes", axes[-1], bn=cynorm.BatchNorm(axes=axes))
    refused_by(ALL, ValueError, "axes", bn=cynorm.BatchNorm(axes=(1, -3)))


@pytest.mark.parametrize(
    "name, parameters, words",
    [
        ("tanhh", {}, ["'tanhh'", "did you mean 'tanh'?"]),
        ("selu", {}, ["'selu'", "did you mean 'scaled_elu'?"]),
        ("lrelu", {}, ["'lrelu'", "did you mean 'leaky_relu'?"]),
        ("elu", {"aplha": 1.0}, ["aplha", "alpha"]),
        ("relu", {"alpha": 1.0}, ["alpha", "relu"]),
        ("elu", {"alpha": np.nan}, ["alpha", "nan"]),
        ("elu", {"alpha": "1"}, ["alpha", "'1'"]),
    ],
    ids=str,
)
def test_activations(name, parameters, words):
    refuses((TypeError, ValueError), *words, call=lambda: cynorm.Activation(name, **parameters))


@pytest.mark.parametrize("name, meant", [("hsigmoid", "hard_sigmoid"), ("hardsigmoid", "hard_sigmoid"), ("trelu", "thresholded_relu")])
def test_others_names_of_a_function(name, meant):
    refuses(ValueError, f"did you mean {meant!r}?", call=lambda: cynorm.Activation(name))


@pytest.mark.parametrize("name", ["softshrink", "parametric_relu", "log_sigmoid", "crelu", "hard_tanh", "brelu", "relu1", "atan"])
def test_no_other_function_is_suggested(name):
    with pytest.raises(ValueError, match=f"got '{name}'$"):
        cynorm.Activation(name)


# ------------------------------------------------------------------------------------------------------------
# Arrays


@pytest.mark.parametrize(
    "wrong, name",
    [case for case in NOT_FLOATS if case[1] != "int8"],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_dtypes(wrong, name):
    """Everything but the four float types in native byte order (and int8 in inference)."""

    def mentions(argument, methods, **changed):
        calls, out = every_call(**changed)
        for method in methods:
            with pytest.raises(TypeError) as caught:
                calls[method]()
            for word in (argument, name, "float32"):
                assert word in str(caught.value)
        assert (out == 7).all()

    mentions("src", ALL, src=wrong)
    mentions("diff_dst", BACKWARD, diff_dst=wrong)
    mentions("add", FORWARD, add=wrong)
    mentions("scale", ALL, scale=wrong[0, :, 0, 0])
    mentions("shift", FORWARD, shift=wrong[0, :, 0, 0])
    mentions("mean", INFERENCE, mean=wrong[0, :, 0, 0])
    mentions("variance", INFERENCE, variance=wrong[0, :, 0, 0])


def test_dtypes_that_go_with_src():
    """A refusal names what is allowed beside this src, not all that cynorm takes."""
    for dtype, allowed in (("f4", "float32"), ("f8", "float64"), ("f2", "float32 or src's own dtype")):
        src = array(dtype=dtype)
        for wrong in (np.int64, np.bool_, f"{'>' if np.little_endian else '<'}{dtype}"):
            for name in ("running_mean", "running_variance", "out_mean", "out_variance"):
                words = f"{name} must be {allowed} for src of {src.dtype}, in native byte order, got ", np.dtype(wrong)
                refuses(TypeError, *words, call=partial(cynorm.batch_norm, src, **{name: vector(dtype=wrong)}))
            for name in ("add", "out"):
                words = f"{name} must have src's dtype {src.dtype}", np.dtype(wrong)
                refuses(TypeError, *words, call=partial(cynorm.batch_norm, src, **{name: array(dtype=wrong)}))


class _OtherShape(np.ndarray):
    @property
    def shape(self):
        return (1,) * 40


def test_subclasses_of_arrays_with_a_shape_of_their_own():
    """What is asked of an array is its memory's, whatever a subclass says."""
    src, one = np.ones((2, 20, 5, 6), np.float32), np.ones(20, np.float32)
    bn, zero = cynorm.BatchNorm(), np.zeros(20, np.float32)
    got = bn.backward_training(src, src, one.view(_OtherShape), mean=zero, variance=one)
    expected = bn.backward_training(src, src, one, mean=zero, variance=one)
    for mine, theirs in zip(got[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(mine, theirs)


class _EqualsAny(cynorm.BatchNorm):
    __hash__ = None

    def __eq__(self, other):
        return isinstance(other, _EqualsAny)


def test_subclasses_of_operators_that_all_are_equal():
    """A workspace asks for the parameters of the operator that filled it, whatever a subclass takes for equal."""
    src, workspace = np.ones((2, 8, 3, 4), np.float32), cynorm.Workspace()
    _EqualsAny().forward_training(src, workspace=workspace)
    refuses(ValueError, "workspace was filled by",
            call=lambda: _EqualsAny(axes=()).backward_training(src, src, workspace=workspace))  # fmt: skip
    assert _EqualsAny().backward_training(src, src, workspace=workspace).diff_src.shape == src.shape


def test_lists_become_parameters_of_the_dtype_that_is_due():
    """Python's numbers have no size of their own; whatever has a wrong one is told the right one."""
    for dtype, allowed in (("f4", "float32"), ("f8", "float64"), ("f2", "float32 or src's own dtype")):
        src = np.arange(192, dtype=dtype).reshape(SHAPE)
        real = "f8" if dtype == "f8" else "f4"
        listed = cynorm.batch_norm(src, [1, 2, 3, 4, 5, 6, 7, 0.1], (0,) * 8)
        given = cynorm.batch_norm(src, np.array([1, 2, 3, 4, 5, 6, 7, 0.1], real), np.zeros(8, real))
        for one, other in zip(listed, given, strict=True):
            assert_same_bits(one, other)
        for wrong in ([True] * 8, [1j] * 8, np.ones(8, int)):
            words = f"scale must be {allowed} for src of {src.dtype},", np.array(wrong).dtype
            refused_by(("forward_training",), TypeError, *words, src=src, out=array(dtype=dtype, fill=7), scale=wrong)
    src = array(dtype=np.int8)
    words = "scale must be float32 for src of int8,", "got dtype('int8')"
    out = array(dtype=np.int8, fill=7)
    refused_by(("forward_inference",), TypeError, *words, src=src, out=out, scale=vector(dtype=np.int8))
    refused_by(("forward_inference",), TypeError, "mean must be an array, got None", mean=None)


def test_gradients_are_pickled():
    bn = cynorm.BatchNorm()
    grads = bn.backward_inference(array(), array(), vector(), vector())
    copy = pickle.loads(pickle.dumps(grads))
    assert type(copy) is type(grads) is cynorm.BatchNormGradients
    np.testing.assert_array_equal(copy.diff_src, grads.diff_src)
    assert cynorm.BatchNormGradients.__module__ == "cynorm" and "diff_add" in cynorm.BatchNormGradients.__doc__


def test_int8_is_for_inference():
    """int8 has no statistics and no gradient."""
    src = array(dtype=np.int8)
    out = array(dtype=np.int8, fill=7)
    refused_by(("forward_training", *BACKWARD), TypeError, "src", "int8", src=src, diff_dst=src, out=out)


@pytest.mark.parametrize("shape", [(2, 8, 3), (2, 8, 3, 5), (1, 8, 3, 4), (192,)], ids=str)
def test_shapes(shape):
    """src, diff_dst, add and out have one shape; nothing broadcasts."""
    wrong = array(shape, fill=7)
    refused_by(BACKWARD, ValueError, "diff_dst", SHAPE, shape, diff_dst=wrong)
    refused_by(FORWARD, ValueError, "add", SHAPE, shape, add=wrong)
    refused_by(ALL, ValueError, "out", SHAPE, shape, out=wrong)


@pytest.mark.parametrize("ndim", [1, 2, 3, 5, 6])
def test_number_of_dimensions(ndim):
    src = array((1, 8) + (1,) * (ndim - 2) if ndim > 1 else (8,))
    refused_by(ALL, ValueError, "src", "NCHW", ndim, src=src, diff_dst=src, out=array(src.shape, fill=7))


@pytest.mark.parametrize(
    "wrong", [vector(7), vector(9), vector(1), array((8, 1)), array((1, 4, 1, 1)), array((8, 1, 1))]
)
def test_parameter_shapes(wrong):
    """Length C, or the data's shape with reduced axes at size 1."""
    refused_by(("forward_training", *BACKWARD), ValueError, "scale", wrong.shape, scale=wrong)
    refused_by(("forward_training",), ValueError, "shift", wrong.shape, shift=wrong)
    refused_by(BACKWARD, ValueError, "mean", wrong.shape, mean=wrong)
    refused_by(BACKWARD, ValueError, "variance", wrong.shape, variance=wrong)
    refused_by(("forward_training",), ValueError, "running_mean", wrong.shape, running_mean=wrong)
    refused_by(("forward_training",), ValueError, "running_variance", wrong.shape, running_variance=wrong)


@pytest.mark.parametrize("dtype", reference.DTYPES[1:], ids=str)
def test_mixed_dtypes(dtype):
    """src, diff_dst, add and out have one dtype; parameters are of it, or float32 beside half data."""
    other = array(dtype=dtype, fill=7)
    refused_by(BACKWARD, TypeError, "diff_dst", "float32", dtype, diff_dst=other)
    refused_by(FORWARD, TypeError, "add", "float32", dtype, add=other)
    refused_by(ALL, TypeError, "out", "float32", dtype, out=other)
    refused_by(ALL, TypeError, "scale", "float32", dtype, scale=vector(dtype=dtype))
    refused_by(FORWARD, TypeError, "shift", "float32", dtype, shift=vector(dtype=dtype))
    refused_by(INFERENCE, TypeError, "mean", "float32", dtype, mean=vector(dtype=dtype))
    refused_by(("forward_training",), TypeError, "running_mean", dtype, running_mean=vector(dtype=dtype))


def test_masked_arrays():
    """A mask would be ignored."""
    masked, parameter = np.ma.masked_array(array()), np.ma.masked_array(vector())
    refused_by(ALL, TypeError, "src", "masked", src=masked)
    refused_by(BACKWARD, TypeError, "diff_dst", "masked", diff_dst=masked)
    refused_by(FORWARD, TypeError, "add", "masked", add=masked)
    refused_by(ALL, TypeError, "out", "masked", out=masked)
    refused_by(ALL, TypeError, "scale", "masked", scale=parameter)
    refused_by(FORWARD, TypeError, "shift", "masked", shift=parameter)
    refused_by(INFERENCE, TypeError, "mean", "masked", mean=parameter)
    refused_by(BACKWARD, TypeError, "variance", "masked", variance=parameter)
    refused_by(("forward_training",), TypeError, "running_mean", "masked", running_mean=parameter)


def test_outputs():
    """`out` is a writable array of its own; running statistics are written too."""
    refused_by(ALL, ValueError, "out", "read-only", out=READ_ONLY)
    refused_by(ALL, TypeError, "out", "list", out=[[1.0]])
    repeated = np.broadcast_to(array((1, 8, 3, 4), fill=7), SHAPE)
    repeated.flags.writeable = True
    refused_by(ALL, ValueError, "out", "overlap", out=repeated)
    fixed = vector()
    fixed.flags.writeable = False
    refused_by(("forward_training",), ValueError, "running_mean", "read-only", running_mean=fixed)
    refused_by(("forward_training",), TypeError, "running_variance", "list", running_variance=[1.0] * 8)


def test_memory_of_another_dtype_is_not_the_same_array():
    memory = np.zeros(8, np.float32)
    scale = np.ndarray(8, np.float16, memory, strides=4)
    src = np.ones((4, 8, 3, 3), np.float16)
    refuses(ValueError, "out_mean", "overlap scale", call=lambda: cynorm.batch_norm(src, scale, out_mean=memory))


def test_lists_of_unsigned_integers():
    src = np.ones((4, 8, 3, 3), np.float32)
    refuses(TypeError, "scale", call=lambda: cynorm.batch_norm(src, [np.uint8(2)] * 8))


def test_partial_overlap():
    """out is src (forward) or diff_dst (backward), or shares no element with any input."""
    buffer = array((3, 8, 3, 4), fill=7)
    first, second = buffer[:2], buffer[1:]
    refused_by(ALL, ValueError, "out", "overlap", "src", src=first, out=second)
    refused_by(FORWARD, ValueError, "out", "overlap", "add", add=first, out=second)
    refused_by(BACKWARD, ValueError, "out", "overlap", "diff_dst", diff_dst=first, out=second)
    assert (buffer == 7).all()


def test_diff_add():
    """out_add is like out, but never src or out; it is refused where the forward call had no add."""
    bn, src, diff_dst, workspace = cynorm.BatchNorm(), array(), array(), cynorm.Workspace()
    buffer = array((4, 8, 3, 4), fill=7)

    def refused(error, *words, method=bn.backward_training, **changed):
        given = {"diff_dst": diff_dst, "out": buffer[2:], "out_add": array(), "workspace": workspace}
        given |= changed
        refuses(error, "out_add", *words, call=lambda: method(src=src, **given))
        assert (buffer == 7).all() and (src == 1).all() and (diff_dst == 1).all()

    statistics = {"mean": vector(), "variance": vector()}
    refused(ValueError, "workspace", workspace=None, **statistics)
    refused(ValueError, "workspace", workspace=None, method=bn.backward_inference, **statistics)
    bn.forward_training(src, workspace=workspace)
    refused(ValueError, "without add")
    bn.forward_inference(src, **statistics, workspace=workspace)
    refused(ValueError, "without add", method=bn.backward_inference, **statistics)
    bn.forward_training(src, add=array(), workspace=workspace)
    refused(ValueError, (2, 8, 3, 5), out_add=array((2, 8, 3, 5)))
    refused(TypeError, "float32", "float64", out_add=array(dtype=np.float64))
    refused(TypeError, "list", out_add=[[1.0]])
    refused(ValueError, "read-only", out_add=READ_ONLY)
    refused(ValueError, "src", out_add=src)
    refused(ValueError, "diff_dst", out_add=buffer[:2], diff_dst=buffer[1:3], out=array())
    refused(ValueError, "must not overlap out", out_add=buffer[1:3])
    refused(ValueError, "must not overlap out", out_add=buffer[2:])
    refused(ValueError, "must not overlap out", out_add=diff_dst, out=diff_dst)


PARAMETER_OUTPUTS = {
    "forward_training": ("out_mean", "out_variance"),
    "backward_training": ("out_scale", "out_shift"),
    "backward_inference": ("out_scale", "out_shift"),
}


def good_call(method, src, **given):
    """A call of some method with good arguments, and those given."""
    bn = cynorm.BatchNorm()
    if method == "forward_training":
        return bn.forward_training(src, **given)
    return getattr(bn, method)(src, src, mean=vector(), variance=vector(), **given)


@pytest.mark.parametrize("method", PARAMETER_OUTPUTS)
def test_outputs_of_parameters(method):
    """out_mean and its like are writable parameters, and no two outputs overlap."""
    src, out, good, fixed = array(), array(fill=7), vector(fill=7), vector()
    fixed.flags.writeable = False
    repeated = np.broadcast_to(vector(1, fill=7), 8)
    repeated.flags.writeable = True
    first, second = PARAMETER_OUTPUTS[method]
    for name in (first, second):
        for error, words, wrong in [
            (ValueError, ["(8,)", "(7,)"], vector(7)),
            (ValueError, ["(8,)", (8, 1)], array((8, 1))),
            (TypeError, ["float32", "float64"], vector(dtype=np.float64)),
            (TypeError, ["list"], [1.0] * 8),
            (ValueError, ["read-only"], fixed),
            (ValueError, ["overlap itself"], repeated),
            (ValueError, ["overlap out"], out[0, 0, :2].reshape(8)),
        ]:
            refuses(error, name, *words, call=partial(good_call, method, src, **{"out": out, name: wrong}))
    for pair in ((good, good), (good, good[::-1])):
        given = {"out": out, first: pair[0], second: pair[1]}
        call = partial(good_call, method, src, **given)
        refuses(ValueError, f"{second} must not overlap {first}", call=call)
    assert (out == 7).all() and (good == 7).all() and (repeated == 7).all() and (src == 1).all()


def test_numbers_of_features_are_no_epsilon():
    """PyTorch's first argument: epsilon is given only by name."""
    refuses(TypeError, "positional", call=lambda: cynorm.BatchNorm(64))


def test_what_is_written_is_no_part_of_what_is_read():
    """But it may be a parameter itself."""
    bn, src, diff_dst, parameter = cynorm.BatchNorm(), array(), array(), vector()
    part = src[0, 0, :2].reshape(8)
    for name in ("out_mean", "out_variance", "running_mean", "running_variance"):
        refuses(ValueError, name, "not overlap src", call=partial(bn.forward_training, src, parameter, **{name: part}))
    wide = vector(9)
    for name in ("out_scale", "out_shift"):
        backward = partial(bn.backward_training, diff_dst, src, wide[:8], mean=vector(), variance=vector())
        refuses(ValueError, name, "not overlap src", call=partial(backward, **{name: part}))
        other = diff_dst[0, 0, :2].reshape(8)
        refuses(ValueError, name, "not overlap diff_dst", call=partial(backward, **{name: other}))
        refuses(ValueError, name, "not overlap scale", call=partial(backward, **{name: wide[1:]}))
    assert (src == 1).all() and (diff_dst == 1).all() and (wide == 1).all()
    diff_dst[...] = np.arange(192).reshape(SHAPE)
    expected = bn.backward_training(diff_dst, src, parameter, mean=vector(), variance=vector())
    grads = bn.backward_training(diff_dst, src, parameter, mean=vector(), variance=vector(), out_scale=parameter)
    assert grads.diff_scale is parameter
    for one, other in zip(grads[:3], expected[:3], strict=True):
        assert_same_bits(one, other)


def test_results_of_inference_are_no_part_of_a_parameter():
    out = np.full((2, 8, 3, 4), 7, np.float32)
    for name in ("mean", "variance", "scale", "shift"):
        given = {"mean": vector(), "variance": vector(), name: out[0, 0, :2].reshape(8)}
        call = partial(cynorm.BatchNorm().forward_inference, array(), out=out, **given)
        refuses(ValueError, f"out must not overlap {name},", call=call)
    assert (out == 7).all()


def test_parameters_of_padded_blocks_are_checked_as_they_are_given():
    """Not as the padded copies that kernels read."""
    bn = cynorm.BatchNorm(layout="nChw8c", channels=5)
    src = np.ones((2, 1, 3, 4, 8), np.float32)
    wide = np.arange(6, dtype=np.float32)
    out = np.full_like(src, 7)
    part, both, statistics = out[0, 0, 0, 0, :5], (wide[:5], wide[1:]), {"mean": vector(5), "variance": vector(5)}
    refuses(ValueError, "out_mean", "overlap scale",
            call=lambda: bn.forward_training(src, both[0], out_mean=both[1]))
    refuses(ValueError, "running_mean", "overlap shift",
            call=lambda: bn.forward_training(src, shift=both[0], running_mean=both[1], running_variance=vector(5)))
    for name in ("scale", "shift"):
        refuses(ValueError, "out must", f"overlap {name}", call=lambda name=name: bn.forward_training(src, **{name: part}, out=out))
    for name in ("mean", "variance", "scale", "shift"):
        call = partial(bn.forward_inference, src, out=out, **statistics | {name: part})
        refuses(ValueError, "out must", f"overlap {name}", call=call)
    for name in ("mean", "variance", "scale", "shift"):
        call = partial(bn.backward_training, src, src, out=out, **statistics | {name: part})
        refuses(ValueError, "out must", f"overlap {name}", call=call)
    for name in ("out_scale", "out_shift"):
        call = partial(bn.backward_training, src, src, both[0], **statistics, **{name: both[1]})
        refuses(ValueError, name, "overlap scale", call=call)
    assert (out == 7).all()
    np.testing.assert_array_equal(wide, np.arange(6))
    bn.forward_training(src, memoryview(wide[:5]), out_mean=wide[:5])  # but a parameter itself may be written
    np.testing.assert_array_equal(wide, [1, 1, 1, 1, 1, 5])


def test_gradients_of_padded_blocks_are_as_long_as_their_parameters():
    """Whatever these are arrays of."""

    class Tensor:
        """Whose size is a method, as PyTorch's is."""

        def __init__(self, array):
            self.array, self.__array_interface__ = array, array.__array_interface__

        def size(self):
            return self.array.shape

    bn, src = cynorm.BatchNorm(layout="nChw8c", channels=5), np.ones((2, 1, 3, 4, 8), np.float32)
    for length in (5, 8):
        for kind in (np.array, memoryview, list, Tensor):
            grads = bn.backward_training(src, src, kind(vector(length)), mean=vector(5), variance=vector(5))
            assert grads.diff_scale.shape == grads.diff_shift.shape == (length,)


def test_shift_is_that_of_the_forward_call():
    """With a workspace, what the shift has become since does not matter, whatever the workspace keeps."""
    src, diff_dst = np.random.default_rng(0).standard_normal((2, *SHAPE)).astype(np.float32)
    bn, shift = cynorm.BatchNorm(activation="tanh"), vector(fill=2)
    for cache in ("auto", "always"):
        workspace = cynorm.Workspace(cache)
        bn.forward_training(src, shift=shift, workspace=workspace)
        expected = bn.backward_training(diff_dst, src, workspace=workspace)
        changed = bn.backward_training(diff_dst, src, shift=shift.astype(np.float32) + 1, workspace=workspace)
        for one, other in zip(changed[:3], expected[:3], strict=True):
            assert_same_bits(one, other)
        bn.forward_training(src, workspace=workspace)
        refuses(ValueError, "shift must be None, as it was in the forward call",
                call=partial(bn.backward_training, diff_dst, src, shift=shift, workspace=workspace))
        bn.forward_inference(src, vector(), vector(), workspace=workspace)
        refuses(ValueError, "shift must be None, as it was in the forward call",
                call=partial(bn.backward_inference, diff_dst, src, vector(), vector(), shift=shift, workspace=workspace))


def test_int8_leaves_a_workspace_empty():
    """As it has no backward."""
    bn, workspace, src = cynorm.BatchNorm(activation="relu"), cynorm.Workspace(), array()
    bn.forward_training(src, workspace=workspace)
    kept = workspace.nbytes
    bn.forward_inference(array(dtype=np.int8), vector(), vector(), workspace=workspace)
    assert (workspace.contents, workspace.nbytes) == ((), kept)
    refuses(ValueError, "workspace holds no forward call", call=partial(bn.backward_training, src, src, workspace=workspace))
    assert bn.workspace_nbytes(SHAPE, np.int8, training=False) == 0
    refuses(TypeError, "dtype must be NumPy's float32, float64, float16 or bfloat16", "int8",
            call=partial(bn.workspace_nbytes, SHAPE, np.int8))


def test_numbers_within_bounds_are_told_their_bounds():
    for momentum in ("a", np.nan, 1.5):
        refused_by(("forward_training",), (TypeError, ValueError), "momentum must be a finite number within [0, 1]", momentum=momentum)
    for epsilon in (None, np.nan, -1, 10**400):
        refuses((TypeError, ValueError), "epsilon must be a finite", "of at least 0", call=partial(cynorm.BatchNorm, epsilon=epsilon))


def test_inference_is_told_that_parameters_broadcast():
    refused_by(("forward_inference",), ValueError, "mean must have shape (8,)", "or 4 dimensions, each 1 or that of",
               mean=vector(7))  # fmt: skip


@pytest.mark.parametrize("kinds", [("f4", "f2"), ("f2", "f4"), (None, "f2"), ("f2", None), (None, None)], ids=str)
def test_gradients_have_the_dtypes_of_their_parameters(kinds):
    """Where no shift is given, its gradient is like the scale's."""
    src = array(dtype=np.float16)
    scale, shift = (None if kind is None else vector(dtype=kind) for kind in kinds)
    grads = cynorm.BatchNorm().backward_training(src, src, scale, shift=shift, mean=vector(), variance=vector())
    expected = kinds[0] or "f4", kinds[1] or kinds[0] or "f4"
    assert (grads.diff_scale.dtype, grads.diff_shift.dtype) == expected


def test_running_statistics_do_not_overlap():
    """With one another, or with another output."""
    src, out, running = array(), array(fill=7), vector(fill=7)
    for given in (
        {"running_mean": running, "running_variance": running},
        {"running_mean": running, "out_mean": running},
        {"running_variance": out[1, 0, :2].reshape(8)},
    ):
        call = partial(good_call, "forward_training", src, out=out, **given)
        refuses(ValueError, "running", "overlap", call=call)
    assert (out == 7).all() and (running == 7).all()


def test_momentum():
    running = {"running_mean": vector(fill=7), "running_variance": vector(fill=7)}
    for momentum in (np.nan, np.inf):
        refused_by(("forward_training",), ValueError, "momentum", momentum, momentum=momentum, **running)
    for momentum in (-0.1, 1.5, 10**400):
        refused_by(("forward_training",), ValueError, "momentum", str(momentum)[:9], momentum=momentum, **running)
    for momentum in ("x", True, np.True_):
        refused_by(("forward_training",), TypeError, "momentum", repr(momentum), momentum=momentum, **running)
    for flag in ("False", 1, None, np.ones(2)):
        words = "unbiased_running", "True or False", repr(flag)
        refused_by(("forward_training",), TypeError, *words, unbiased_running=flag, **running)
    assert all((array == 7).all() for array in running.values())


def test_running_statistics_are_for_training():
    """Inference is given statistics and updates none."""
    bn, out = cynorm.BatchNorm(), array(fill=7)
    for name in ("mean", "variance"):
        given = {f"running_{name}": vector(fill=7)}
        for call in bn.forward_inference, cynorm.batch_norm_inference:
            refuses(TypeError, f"running_{name} must be None in inference", f"as its {name}", "got array",
                    call=lambda call=call, given=given: call(array(), vector(), vector(), out=out, **given))  # fmt: skip
    assert (out == 7).all()


@pytest.mark.parametrize("num_threads", [0, -1, 2.0, "2", True], ids=repr)
def test_num_threads(num_threads):
    refused_by(ALL, (TypeError, ValueError), "num_threads", num_threads=num_threads)


# ------------------------------------------------------------------------------------------------------------
# The workspace


@pytest.mark.parametrize("operator", [cynorm.LRN(), cynorm.BatchNorm(), cynorm.BatchNorm(axes=(0,))], ids=repr)
@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ((5, "float32"), TypeError, ["shape", "5"]),
        (((2, 2.5, 3, 4), "float32"), TypeError, ["shape", "2.5"]),
        (((2, -8, 3, 4), "float32"), ValueError, ["shape", "-8"]),
        (((), "float32"), ValueError, ["shape", "()"]),
        (((1,) * 400, "float32"), ValueError, ["shape", "8"]),
        (((2, 8, 3, 4), "int32"), TypeError, ["dtype", "'int32'", "float32"]),
        (((2**32, 2**31, 2, 1), "f4", "always"), ValueError, ["shape", "(4294967296, "]),
        (((2**70, 1, 1, 1), "f4"), ValueError, ["shape", f"({2**70}, "]),
        (((2**70, 0, 1, 1), "f4"), ValueError, ["shape", f"({2**70}, "]),
        (((True, 8, 3, 4), "f4"), TypeError, ["shape", "(True, "]),
        ((b"2834", "f4"), TypeError, ["shape", "b'2834'"]),
        (((2, 8, 3, 4), None), TypeError, ["dtype", "'None'", "float32"]),
        (((2, 8, 3, 4), "float32", np.ones(2)), TypeError, ["cache", "array([1., 1.])", "'always'"]),
        (((2, 8, 3, 4), "flaot"), TypeError, ["dtype", "'flaot'", "float32"]),
        (((2, 8, 3, 4), "float32", "ever"), ValueError, ["cache", "'ever'", "'always'"]),
    ],
    ids=str,
)
def test_workspace_nbytes(operator, arguments, error, words):
    refuses(error, *words, call=lambda: operator.workspace_nbytes(*arguments))


def test_workspace_nbytes_of_a_kind_of_call():
    call = partial(cynorm.BatchNorm().workspace_nbytes, SHAPE, "f4")
    refuses(TypeError, "training", "'no'", call=lambda: call(training="no"))
    assert call(training=np.True_) == call(training=True) != call(training=False)


def test_shapes_that_one_kept_axis_allows():
    """Where one axis is kept, a parameter may have only that axis, and the message says so."""
    bn = cynorm.BatchNorm(axes=(0, 2, 3))
    for shape in SHAPE[1:2], (1, SHAPE[1], 1, 1):
        bn.forward_training(array(), np.ones(shape, np.float32))
    refuses(ValueError, "scale", f"must have shape (1, {SHAPE[1]}, 1, 1) or ({SHAPE[1]},), got (7,)",
            call=lambda: bn.forward_training(array(), vector(7)))  # fmt: skip


def test_backward_needs_statistics_or_a_workspace():
    out = array(fill=7)
    for given in ({}, {"mean": vector()}, {"variance": vector()}):
        with pytest.raises((TypeError, ValueError)) as caught:
            cynorm.BatchNorm().backward_training(array(), array(), vector(), out=out, **given)
        message = str(caught.value)
        assert "workspace" in message and f"got {' alone'.join([*given, '']) or 'neither'}" in message
    assert (out == 7).all()


def test_relu_needs_its_workspace():
    out = array(fill=7)
    bn = cynorm.BatchNorm(activation="relu")
    for call in (
        lambda: bn.backward_training(array(), array(), vector(), mean=vector(), variance=vector(), out=out),
        lambda: bn.backward_inference(array(), array(), vector(), vector(), vector(), out=out),
        lambda: bn.backward_training(array(), array(), out=out),  # the statistics alone would not do
    ):
        with pytest.raises((TypeError, ValueError), match="workspace must be given: it holds the mask of ReLU"):
            call()
    assert (out == 7).all()


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_backward_needs_the_scale_that_forward_had(training):
    bn, workspace, out = cynorm.BatchNorm(), cynorm.Workspace(), array(fill=7)
    if training:
        bn.forward_training(array(), vector(), workspace=workspace)
        backward = partial(bn.backward_training, array(), array(), workspace=workspace)
    else:
        bn.forward_inference(array(), vector(), vector(), vector(), workspace=workspace)
        backward = partial(bn.backward_inference, array(), array(), vector(), vector(), workspace=workspace)
    refuses(ValueError, "scale", "must be given", "None", call=partial(backward, out=out))
    assert (out == 7).all()
    backward(scale=vector())
    if training:
        bn.forward_training(array(), workspace=workspace)
    else:
        bn.forward_inference(array(), vector(), vector(), workspace=workspace)
    refuses(ValueError, "scale must be None, as it was in the forward call", "array",
            call=partial(backward, scale=vector(), out=out))  # fmt: skip
    assert (out == 7).all()
    backward()


def test_backward_of_inference_needs_the_statistics():
    """A workspace of inference has none."""
    bn, workspace, out = cynorm.BatchNorm(), cynorm.Workspace(), array(fill=7)
    bn.forward_inference(array(), vector(), vector(), workspace=workspace)
    backward = partial(bn.backward_inference, array(), array(), workspace=workspace, out=out)
    refuses(ValueError, "mean and variance must be given, as they were to the forward call", "neither",
            call=partial(backward, mean=None, variance=None))  # fmt: skip
    refuses(ValueError, "mean and variance must be given together, got mean alone",
            call=partial(backward, mean=vector(), variance=None))  # fmt: skip
    assert (out == 7).all()


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.1},
        {"activation": None},
        {"layout": "NHWC"},
        {"layout": None, "axes": (0, 2, 3)},
    ],
    ids=str,
)
def test_workspace_of_another_operator(change):
    src, out, workspace = array((2, 8, 8, 8)), array((2, 8, 8, 8), fill=7), cynorm.Workspace()
    original = {"epsilon": 1e-5, "layout": "NCHW", "activation": "relu"}
    cynorm.BatchNorm(**original).forward_training(src, vector(), workspace=workspace)
    changed = {key: value for key, value in (original | change).items() if key != "layout" or value}
    scale = array((1, 8, 1, 1)) if "axes" in changed else vector()
    with pytest.raises(ValueError, match="workspace"):
        cynorm.BatchNorm(**changed).backward_training(src, src, scale, workspace=workspace, out=out)
    assert (out == 7).all()
    cynorm.BatchNorm(**original).backward_training(src, src, vector(), workspace=workspace)


def test_workspace_of_another_call():
    """Another shape, dtype, kind of call, or none at all."""
    bn, workspace = cynorm.BatchNorm(), cynorm.Workspace()
    src, out = array(), array(fill=7)
    with pytest.raises(ValueError, match="workspace"):
        bn.backward_training(src, src, vector(), workspace=workspace, out=out)
    bn.forward_training(src, vector(), workspace=workspace)
    for other in (array((2, 8, 3, 5)), array((8, 8, 3, 1)), array(dtype=np.float64)):
        with pytest.raises(ValueError, match="workspace") as error:
            bn.backward_training(other, other, workspace=workspace)
        for call in (src, other):
            assert f"shape {call.shape}, {call.dtype}" in str(error.value)
    with pytest.raises(ValueError, match="workspace .* in training, got .*float32, in inference$"):
        bn.backward_inference(src, src, vector(), vector(), workspace=workspace)
    lrn = cynorm.LRN()
    with pytest.raises(ValueError, match="workspace"):
        lrn.backward(src, src, workspace=workspace, out=out)
    lrn.forward(src, workspace=workspace)
    with pytest.raises(ValueError, match="workspace"):
        bn.backward_training(src, src, vector(), workspace=workspace, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("workspace", [True, {}, "ws"], ids=repr)
def test_workspace_type(workspace):
    refused_by(ALL, TypeError, "workspace", type(workspace).__name__, workspace=workspace)
