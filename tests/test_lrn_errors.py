"""What LRN refuses: errors name the argument, what was given and what is allowed; nothing is written."""

import re

import numpy as np
import pytest

import cynorm
import reference
from cynorm import onednn

SHAPE = (2, 8, 3, 4)


def array(shape=SHAPE, dtype=np.float32, fill=1):
    """An array of some shape."""
    return np.full(shape, fill, dtype)


def refuses(error, *words, call):
    """`call` raises `error`, whose message has every one of `words`."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert re.search(rf"(?<![\w.]){re.escape(str(word))}", message), f"no {word!r} in {message!r}"


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"local_size": 0}, ValueError, ["local_size", "0"]),
        ({"local_size": -3}, ValueError, ["local_size", "-3"]),
        ({"local_size": 2.5}, TypeError, ["local_size", "2.5"]),
        ({"local_size": 5.0}, TypeError, ["local_size", "5.0"]),
        ({"local_size": "5"}, TypeError, ["local_size", "'5'"]),
        ({"local_size": None}, TypeError, ["local_size", "None"]),
        ({"alpha": np.nan}, ValueError, ["alpha", "nan"]),
        ({"alpha": np.inf}, ValueError, ["alpha", "inf"]),
        ({"alpha": "1"}, TypeError, ["alpha", "'1'"]),
        ({"alpha": 1j}, TypeError, ["alpha", "1j"]),
        ({"beta": np.nan}, ValueError, ["beta", "nan"]),
        ({"beta": -np.inf}, ValueError, ["beta", "-inf"]),
        ({"beta": None}, TypeError, ["beta", "None"]),
        ({"alpha": 10**400}, ValueError, ["alpha", "1000"]),
        ({"beta": -(10**400)}, ValueError, ["beta", "-1000"]),
        ({"alpha": np.complex64(1 + 2j)}, TypeError, ["alpha", repr(np.complex64(1 + 2j))]),
        ({"alpha": b"1"}, TypeError, ["alpha", "b'1'"]),
        ({"alpha": bytearray(b"1")}, TypeError, ["alpha", "bytearray"]),
        ({"beta": True}, TypeError, ["beta", "True"]),
        ({"beta": np.False_}, TypeError, ["beta", repr(np.False_)]),
        ({"beta": np.array(True)}, TypeError, ["beta", repr(np.True_)]),
        ({"beta": np.array([0.5])}, TypeError, ["beta", "array([0.5])"]),
        ({"alpha": 1e300, "divisor": 1e-300}, ValueError, ["alpha=1e+300", "divisor=1e-300"]),
        ({"divisor": 10**400}, ValueError, ["divisor", "1000"]),
        ({"local_size": 10**400}, ValueError, ["local_size", 2**63 - 1, "1000"]),
        ({"local_size": np.True_}, TypeError, ["local_size", repr(np.True_)]),
        ({"k": np.nan}, ValueError, ["k", "nan"]),
        ({"k": np.inf}, ValueError, ["k", "inf"]),
        ({"k": [1.0]}, TypeError, ["k", "[1.0]"]),
        ({"divisor": 0}, ValueError, ["divisor", "0"]),
        ({"divisor": 0.0}, ValueError, ["divisor", "0"]),
        ({"divisor": np.nan}, ValueError, ["divisor", "nan"]),
        ({"divisor": np.inf}, ValueError, ["divisor", "inf"]),
        ({"divisor": "n"}, TypeError, ["divisor", "'n'"]),
        (
            {"region": "across_channel"},
            ValueError,
            ["region", "'across_channel'", "across_channels", "within_channel"],
        ),
        ({"region": "WITHIN_CHANNEL"}, ValueError, ["region", "'WITHIN_CHANNEL'", "within_channel"]),
        ({"region": True}, TypeError, ["region", "True", "across_channels"]),
        ({"region": None}, TypeError, ["region", "None", "across_channels"]),
        ({"region": np.ones(2)}, TypeError, ["region", "array([1., 1.])", "across_channels"]),
        ({"layout": "NCWH"}, ValueError, ["layout", "'NCWH'", "NCHW"]),
        ({"layout": "nchw"}, ValueError, ["layout", "'nchw'", "did you mean 'NCHW'?"]),
        ({"layout": "nhwc"}, ValueError, ["layout", "'nhwc'", "did you mean 'NHWC'?"]),
        ({"layout": "NCHW8C"}, ValueError, ["layout", "'NCHW8C'", "did you mean 'nChw8c'?"]),
        ({"layout": "NHCW"}, ValueError, ["layout", "'NHCW'", "did you mean 'NHWC'?"]),
        ({"layout": "CDHWN"}, ValueError, ["layout", "'CDHWN'", "did you mean 'NCDHW'?"]),
        ({"layout": "nChw4c"}, ValueError, ["layout", "'nChw4c'", "nChw8c"]),
        ({"layout": "NCL"}, ValueError, ["layout", "'NCL'", "did you mean 'NCW'?"]),
        ({"layout": "channels-last"}, ValueError, ["layout", "did you mean 'NHWC'?"]),
        ({"window": "cuDNN"}, ValueError, ["window", "'cuDNN'", "did you mean 'onnx'?"]),
        ({"region": "within"}, ValueError, ["region", "'within'", "did you mean 'within_channel'?"]),
        ({"region": "accross"}, ValueError, ["region", "'accross'", "did you mean 'across_channels'?"]),
        ({"region": "whithin"}, ValueError, ["region", "'whithin'", "did you mean 'within_channel'?"]),
        ({"layout": "NTC"}, ValueError, ["layout", "'NTC'", "did you mean 'NWC'?"]),
        ({"layout": "channels_last"}, ValueError, ["layout", "'channels_last'", "did you mean 'NHWC'?"]),
        ({"window": "mkldnn"}, ValueError, ["window", "'mkldnn'", "did you mean 'onednn'?"]),
        ({"beta": np.ones((30, 30))}, TypeError, ["beta", "got an array of float64, shape (30, 30)"]),
        ({"beta": "3" * 240}, TypeError, ["beta", "'" + "3" * 159 + "... (of type str)"]),
        ({"layout": "NHWC8"}, ValueError, ["layout", "'NHWC8'", "NHWC"]),
        ({"layout": 4}, TypeError, ["layout", "4", "NCHW"]),
        ({"layout": np.array("NCHW")}, TypeError, ["layout", "array('NCHW'", "NCHW"]),
        ({"window": "onxx"}, ValueError, ["window", "'onxx'", "onnx", "torch", "onednn"]),
        ({"window": 3}, TypeError, ["window", "3", "onnx"]),
        ({"window": np.array("onednn")}, TypeError, ["window", "array('onednn'", "onnx"]),
        ({"layout": "nChw8c", "channels": 0}, ValueError, ["channels", "0"]),
        ({"layout": "nChw8c", "channels": -1}, ValueError, ["channels", "-1"]),
        ({"layout": "nChw8c", "channels": 2.5}, TypeError, ["channels", "2.5"]),
        ({"layout": "nChw8c", "channels": 10**30}, ValueError, ["channels", 2**63 - 1, 10**30]),
    ],
    ids=str,
)
def test_parameters(arguments, error, words):
    refuses(error, *words, call=lambda: cynorm.LRN(**arguments))
    shape = (2, 1, 3, 4, 8) if "channels" in arguments else SHAPE
    out = array(shape, fill=7)
    refuses(error, *words, call=lambda: cynorm.lrn(array(shape), **arguments, out=out))
    refuses(error, *words, call=lambda: cynorm.lrn_backward(array(shape), array(shape), **arguments, out=out))
    assert (out == 7).all()


def test_integers_of_more_digits_than_python_shows():
    """The parameter is named all the same."""
    huge = 10**5000
    for name in "local_size", "alpha", "beta", "k", "divisor":
        refuses(ValueError, name, call=lambda name=name: cynorm.LRN(**{name: huge}))
    refuses(ValueError, "shape", call=lambda: cynorm.LRN().workspace_nbytes((1, huge, 1, 1), "float32"))
    refuses(ValueError, "n must be", call=lambda: cynorm.set_num_threads(huge))
    refuses(ValueError, "num_threads", call=lambda: cynorm.LRN().forward(np.ones(SHAPE, np.float32), num_threads=-huge))
    refuses(ValueError, "dims", call=lambda: onednn.memory_desc((huge, 1), onednn.data_type.f32, "ab"))


def test_unknown_arguments():
    """A misspelt keyword is Python's own TypeError; conventions are keywords only."""
    refuses(TypeError, "size", call=lambda: cynorm.LRN(size=5))
    refuses(TypeError, call=lambda: cynorm.LRN(5, 1e-4, 0.75, 1.0, "within_channel"))


def test_scalars_of_numpy():
    """Numbers and names of NumPy's types are what Python's are, and are kept as these."""
    lrn = cynorm.LRN(
        np.int64(3), np.float32(0.5), np.array(0.5), layout=np.str_("NHWC"), window=np.str_("onnx")
    )
    assert repr(lrn) == repr(cynorm.LRN(3, 0.5, 0.5, layout="NHWC", window="onnx"))


READ_ONLY = array()
READ_ONLY.flags.writeable = False

NOT_FLOATS = [
    (array(dtype=np.int32), "int32"),
    (array(dtype=np.uint8), "uint8"),
    (array(dtype=np.int8), "int8"),
    (array(dtype=bool), "bool"),
    (array(dtype=np.complex64), "complex64"),
    (array(dtype=np.dtype(np.float32).newbyteorder()), ">f4" if np.little_endian else "<f4"),
    (array(dtype=np.dtype(np.float64).newbyteorder()), ">f8" if np.little_endian else "<f8"),
    (array(dtype=object), "O"),
    (np.full(SHAPE, "1"), "<U1" if np.little_endian else ">U1"),
    (array(dtype="M8[s]"), "M8[s]"),
]
if np.dtype(np.longdouble) != np.float64:
    NOT_FLOATS.append(
        (array(dtype=np.longdouble), "float128" if np.longdouble(0).itemsize == 16 else "float96")
    )


@pytest.mark.parametrize("wrong, name", NOT_FLOATS, ids=lambda value: value if isinstance(value, str) else "")
def test_dtypes(wrong, name):
    """Everything but the four float types in native byte order, and beside src all but its own."""
    lrn, right, out = cynorm.LRN(), array(), array(fill=7)
    floats = "must be float32, float64, float16 or bfloat16, in native byte order, got "

    def mentions(argument, allowed, call):
        refuses(TypeError, f"{argument} {allowed}", name, call=call)

    mentions("src", floats, lambda: lrn.forward(wrong))
    mentions("src", floats, lambda: lrn.forward(wrong, out=out))
    mentions("src", floats, lambda: lrn.backward(right, wrong, out=out))
    own = f"must have src's dtype float32{'' if wrong.dtype.isnative else ', in native byte order'}, got "
    mentions("diff_dst", own, lambda: lrn.backward(wrong, right, out=out))
    mentions("out", own, lambda: lrn.forward(right, out=wrong))
    mentions("dst", own, lambda: lrn.backward(right, right, dst=wrong, out=out))
    assert (out == 7).all()


LAYOUT_NDIM = [(layout, 2 + reference.spatial_ndim(layout) + bool(reference.block_size(layout))) for layout in
               reference.LAYOUTS]  # fmt: skip


@pytest.mark.parametrize("layout, ndim", LAYOUT_NDIM)
def test_number_of_dimensions(layout, ndim):
    """Each layout has its own number of dimensions."""
    lrn = cynorm.LRN(layout=layout)
    for wrong in set(range(1, 9)) - {ndim}:
        src = array((1,) * (wrong - 1) + (reference.block_size(layout) or 2,))
        refuses(ValueError, "src", layout, ndim, wrong, call=lambda src=src: lrn.forward(src))
        refuses(ValueError, "src", layout, ndim, wrong, call=lambda src=src: lrn.backward(src, src))
        refuses(ValueError, "src", layout, ndim, wrong, call=lambda src=src: lrn.implementation(src))


@pytest.mark.parametrize(
    "layout, channels, shape, words",
    [
        ("nChw8c", None, (2, 1, 3, 4, 16), ["src", "nChw8c", "8", "16"]),
        ("nChw16c", None, (2, 1, 3, 4, 8), ["src", "nChw16c", "16", "8"]),
        ("nChw16c", None, (2, 1, 3, 4, 5), ["src", "nChw16c", "16", "5"]),
        ("nChw8c", 17, (2, 2, 3, 4, 8), ["channels", "17"]),
        ("nChw8c", 8, (2, 2, 3, 4, 8), ["channels", "8"]),
        ("nChw16c", 5, (2, 2, 3, 4, 16), ["channels", "5"]),
        ("NCHW", 9, (2, 8, 3, 4), ["channels", "9", "8"]),
        ("NHWC", 9, (2, 3, 4, 8), ["channels", "9", "8"]),
    ],
)
def test_blocks_and_channels(layout, channels, shape, words):
    """The block and the channel count must be those of the array."""
    out = array(shape, fill=7)

    def call():
        cynorm.LRN(layout=layout, channels=channels).forward(array(shape), out=out)

    refuses(ValueError, *words, call=call)
    assert (out == 7).all()


@pytest.mark.parametrize("argument", ["out", "diff_dst", "dst"])
@pytest.mark.parametrize("shape", [(2, 8, 3), (2, 8, 3, 5), (1, 8, 3, 4), (8, 2, 3, 4), (192,), ()], ids=str)
def test_shapes(argument, shape):
    """All arrays of a call have one shape; nothing broadcasts."""
    out = array(fill=7)
    arrays = {"diff_dst": array(), "src": array(), "out": out} | {argument: array(shape, fill=7)}
    words = [argument, SHAPE, shape]
    refuses(ValueError, *words, call=lambda: cynorm.LRN().backward(**arrays))
    if argument == "out":
        refuses(ValueError, *words, call=lambda: cynorm.LRN().forward(array(), out=arrays["out"]))
    assert (out == 7).all() and (arrays["out"] == 7).all()


@pytest.mark.parametrize("argument", ["out", "diff_dst", "dst"])
@pytest.mark.parametrize("dtype", reference.DTYPES[1:], ids=str)
def test_mixed_dtypes(argument, dtype):
    """All arrays of a call have one dtype."""
    out = array(fill=7)
    arrays = {"diff_dst": array(), "src": array(), "out": out} | {argument: array(dtype=dtype, fill=7)}
    words = [argument, "float32", dtype]
    refuses(TypeError, *words, call=lambda: cynorm.LRN().backward(**arrays))
    if argument == "out":
        refuses(TypeError, *words, call=lambda: cynorm.LRN().forward(array(), out=arrays["out"]))
    assert (out == 7).all() and (arrays["out"] == 7).all()


def test_outputs():
    """`out` is writable memory whose elements are all distinct."""
    lrn = cynorm.LRN()
    self_overlapping = np.lib.stride_tricks.as_strided(array((64,), fill=7), SHAPE, (96, 4, 8, 4))
    repeated = np.lib.stride_tricks.as_strided(array((128,), fill=7), SHAPE, (0, 4, 32, 96))
    for out, error, words in (
        (READ_ONLY, ValueError, ["read-only"]),
        (self_overlapping, ValueError, ["overlap", str(self_overlapping.strides)]),
        (repeated, ValueError, ["overlap", str(repeated.strides)]),
        (array().tolist(), TypeError, ["list"]),
        ("out", TypeError, ["str"]),
    ):
        refuses(error, "out", *words, call=lambda out=out: lrn.forward(array(), out=out))
        refuses(error, "out", *words, call=lambda out=out: lrn.backward(array(), array(), out=out))
    assert (READ_ONLY == 1).all() and (self_overlapping == 7).all() and (repeated == 7).all()


def overlapping(kind):
    """Two arrays that share some elements, or all of them in other places."""
    buffer = array((3, 9, 3, 9), fill=7)
    return {
        "shifted by one element": (buffer.ravel()[:192].reshape(SHAPE), buffer.ravel()[1:193].reshape(SHAPE)),
        "shifted along the batch": (buffer[:2, :8, :, :4], buffer[1:, :8, :, :4]),
        "shifted along the channels": (buffer[:2, :8, :, :4], buffer[:2, 1:, :, :4]),
        "reversed": (buffer[:2, :8, :, :4], buffer[:2, :8, :, 3::-1]),
        "transposed": (array((8, 8, 3, 3), fill=7), None),
        "finer steps": (buffer[:2, :8, :, :4], buffer[:2, :8, :, :8:2]),
    }[kind]


OVERLAPS = [
    "shifted by one element",
    "shifted along the batch",
    "shifted along the channels",
    "reversed",
    "transposed",
    "finer steps",
]


def test_an_overlap_too_hard_to_decide():
    """What NumPy gives up on counts as an overlap."""
    as_strided, memory, shape = np.lib.stride_tricks.as_strided, np.zeros(1 << 20, np.float32), (25, 32, 16, 16)
    src = as_strided(memory, shape, (12, 312, 9980, 159664))
    out = as_strided(memory[26:], shape, (12, 292, 9356, 149684))
    refuses(ValueError, "out", "overlap src", call=lambda: cynorm.lrn(src, out=out))


def test_many_interleaved_elements_are_refused():
    n = 1 << 20
    out = np.lib.stride_tricks.as_strided(np.full(2 * n + 8, 7, np.float32), (1, 2, n, 1), (0, 12, 8, 4))
    refuses(ValueError, "out", f"nor interleave more than {n} elements", call=lambda: cynorm.lrn(np.ones(out.shape, np.float32), out=out))


@pytest.mark.parametrize("kind", OVERLAPS)
def test_partial_overlap(kind):
    """`out` is an input, or shares no element with one."""
    lrn = cynorm.LRN()
    first, second = overlapping(kind)
    if second is None:
        second = first.swapaxes(0, 1)
    for src, out in ((first, second), (second, first)):
        before = src.copy()
        clean = np.ones_like(src)
        refuses(ValueError, "out", "overlap", "src", call=lambda s=src, o=out: lrn.forward(s, out=o))
        refuses(
            ValueError, "out", "overlap", "src", call=lambda s=src, o=out, c=clean: lrn.backward(c, s, out=o)
        )
        refuses(
            ValueError,
            "out",
            "overlap",
            "diff_dst",
            call=lambda s=src, o=out, c=clean: lrn.backward(s, c, out=o),
        )
        refuses(
            ValueError,
            "out",
            "overlap",
            "dst",
            call=lambda s=src, o=out, c=clean: lrn.backward(c, c, dst=s, out=o),
        )
        np.testing.assert_array_equal(src, before)


@pytest.mark.parametrize("num_threads", [0, -1, 2.0, "2", True, np.nan, np.array([1, 2]), 2**16 + 1], ids=repr)
def test_num_threads(num_threads):
    out = array(fill=7)
    error = (TypeError, ValueError)
    refuses(
        error, "num_threads", call=lambda: cynorm.LRN().forward(array(), out=out, num_threads=num_threads)
    )
    refuses(
        error,
        "num_threads",
        call=lambda: cynorm.LRN().backward(array(), array(), out=out, num_threads=num_threads),
    )
    assert (out == 7).all()


@pytest.mark.parametrize("workspace", [True, b"", {}, array()], ids=lambda value: type(value).__name__)
def test_workspace_type(workspace):
    out = array(fill=7)
    words = ["workspace", type(workspace).__name__, "Workspace"]

    def mentions(call):
        with pytest.raises(TypeError) as caught:
            call()
        for word in words:
            assert word in str(caught.value)

    mentions(lambda: cynorm.LRN().forward(array(), out=out, workspace=workspace))
    mentions(lambda: cynorm.LRN().backward(array(), array(), out=out, workspace=workspace))
    assert (out == 7).all()


def test_masked_arrays():
    """A mask would be ignored; anything else that inherits from an array is one."""
    lrn, right, masked, out = cynorm.LRN(), array(), np.ma.masked_array(array()), array(fill=7)
    refuses(TypeError, "src", "masked", call=lambda: lrn.forward(masked, out=out))
    refuses(TypeError, "src", "masked", call=lambda: lrn.backward(right, masked, out=out))
    refuses(TypeError, "diff_dst", "masked", call=lambda: lrn.backward(masked, right, out=out))
    refuses(TypeError, "dst", "masked", call=lambda: lrn.backward(right, right, dst=masked, out=out))
    refuses(TypeError, "out", "masked", call=lambda: lrn.forward(right, out=masked))
    assert (out == 7).all() and (masked.data == 1).all()
    pairs = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(*map(cynorm.LRN(layout="NC").forward, (pairs, pairs.view(np.recarray))))


def test_lists():
    """Lists are arrays as for NumPy, so lists of integers are integers; ragged ones are no array."""
    lrn = cynorm.LRN(layout="NC")
    refuses(TypeError, "src", "int", call=lambda: lrn.forward([[1, 2], [3, 4]]))
    refuses(ValueError, "src", call=lambda: lrn.forward([[1.0, 2.0], [3.0]]))
    refuses(TypeError, "src must be an array, got None", call=lambda: lrn.forward(None))
    refuses(ValueError, "src", "got tuple", call=lambda: lrn.forward((np.ones((2, 3)), np.ones(3))))
    refuses(TypeError, "diff_dst", call=lambda: lrn.backward(None, [[1.0]]))


@pytest.mark.parametrize("value", [{}, {1.0}, object(), "abc", b"abc", iter([1.0])], ids=lambda value: type(value).__name__)
def test_no_arrays(value):
    """An object of which NumPy makes an array without dimensions is refused as what it is."""
    refuses(TypeError, f"src must be an array of numbers, got {type(value).__name__}",
            call=lambda: cynorm.LRN().forward(value))  # fmt: skip


@pytest.mark.parametrize("scalar", [1.0, 1, np.float64(1), np.array(1, np.float32)], ids=repr)
def test_scalars(scalar):
    """A number in place of an array is told the shape that was asked for."""
    src = array()
    for given in (scalar, np.float32(scalar)) if isinstance(scalar, float) else (np.float32(scalar),):
        refuses(ValueError, "src must have 4 dimensions for layout 'NCHW', got 0", call=lambda given=given: cynorm.lrn(given))
    refuses(ValueError, "src must have 1 to 8 dimensions, got 0",
            call=lambda: cynorm.BatchNorm(axes=()).forward_training(np.float32(scalar)))  # fmt: skip
    refuses(ValueError, "out must have src's shape (2, 8, 3, 4), got ()",
            call=lambda: cynorm.lrn(src, out=np.array(scalar, np.float32)))  # fmt: skip
    for name in ("scale", "shift"):
        refuses(ValueError, name, "must have shape (8,) or (1, 8, 1, 1), got ()",
                call=lambda name=name: cynorm.batch_norm(src, **{name: scalar}))  # fmt: skip
    refuses(ValueError, "src must have at most 8 dimensions, got 9", call=lambda: cynorm.lrn(np.ones((1,) * 9, np.float32)))


def test_dimensions_of_other_layouts():
    """A message on dimensions names the layouts that have as many."""
    call = cynorm.LRN().forward
    refuses(ValueError, "must have 4 dimensions for layout 'NCHW', got 3; layouts of 3 are NCW, NWC; of one image "
            "without a batch pass src[None]",
            call=lambda: call(np.ones((2, 8, 3), np.float32)))  # fmt: skip
    with pytest.raises(ValueError, match="for layout 'NCHW', got 1$"):
        call(np.ones(8, np.float32))
    refuses(ValueError, "shape", "of one image without a batch pass (1, *shape)",
            call=lambda: cynorm.LRN().workspace_nbytes((8, 3, 3), "float32"))  # fmt: skip
    blocks = cynorm.LRN(layout="nChw8c")
    refuses(ValueError, "without a batch pass src[None]", call=lambda: blocks.forward(np.ones((2, 3, 3, 8), np.float32)))
    with pytest.raises(ValueError, match="layouts of 4 are NCHW, NHWC, nCw8c, nCw16c$"):
        blocks.forward(np.ones((2, 8, 3, 3), np.float32))


@pytest.mark.parametrize("dtype", ["f4,,f4", "(2,)f4", "f4,f4", "no such type", None])
def test_dtypes_by_name(dtype):
    call = cynorm.LRN().workspace_nbytes
    refuses(TypeError, "dtype must be NumPy's float32, float64, float16 or bfloat16", call=lambda: call(SHAPE, dtype))


def test_workspace_nbytes():
    lrn = cynorm.LRN()
    refuses(TypeError, "dtype", "int32", call=lambda: lrn.workspace_nbytes(SHAPE, np.int32))
    refuses(
        ValueError, "shape", "(2, -8, 3, 4)", call=lambda: lrn.workspace_nbytes((2, -8, 3, 4), np.float32)
    )
    refuses(
        ValueError, "shape", "NCHW", 3, call=lambda: lrn.workspace_nbytes((2, 8, 3), np.float32)
    )


def test_dst_excludes_in_place_only_where_it_must():
    """A float dst may be src; every other check of arrays applies to it too."""
    src = array()
    np.testing.assert_array_equal(
        cynorm.LRN().backward(src, src, dst=src), cynorm.LRN().backward(src, src, dst=src.copy())
    )


def test_set_num_threads():
    for wrong in (0, -2, 1.5, "2", True, np.array([1, 2]), 10**30):
        refuses(
            (TypeError, ValueError), "n must be", repr(wrong), call=lambda wrong=wrong: cynorm.set_num_threads(wrong)
        )


def test_message_check_can_fail():
    """`refuses` notices a word that is not in the message."""
    with pytest.raises(AssertionError, match="no 'channels'"):
        refuses(ValueError, "channels", call=lambda: cynorm.LRN(local_size=0))


def test_an_output_that_begins_where_an_input_ends_backwards():
    """Memory before an array's first element is its own where strides are negative."""
    memory = np.zeros(100, np.float32)
    src, out = memory[40:].reshape(1, 60)[:, ::-1], memory[:60].reshape(1, 60)
    with pytest.raises(ValueError, match="overlap"):
        cynorm.LRN(layout="NC").forward(src, out=out)


def test_an_output_that_shares_one_byte_with_an_input():
    memory, one = np.zeros(63, np.int8), np.ones(32, np.float32)
    src, out = memory[:32].reshape(1, 32), memory[31:].reshape(1, 32)
    with pytest.raises(ValueError, match="overlap"):
        cynorm.BatchNorm(layout="NC").forward_inference(src, one, one, out=out)


@pytest.mark.parametrize("shape, strides", [((3, 4), (6, 4)), ((2, 2), (10, 8)), ((3, 4), (-6, 4)), ((2, 4), (12, -4))])
def test_elements_of_an_output_that_share_some_bytes(shape, strides):
    memory = np.zeros(64, np.float32)[32:]
    out = np.lib.stride_tricks.as_strided(memory, shape, strides)
    with pytest.raises(ValueError, match="overlap itself"):
        cynorm.LRN(layout="NC").forward(np.zeros(shape, np.float32), out=out)
