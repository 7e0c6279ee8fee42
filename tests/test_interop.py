"""Arrays of other libraries: read and written in place, by DLPack, __array_interface__ and the buffer protocol."""

import array
import ctypes
import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import cynorm
import reference
from cynorm._tensor import checked, keyword_arguments

LRN = cynorm.LRN(alpha=1.0)
SRC = np.random.default_rng(0).standard_normal((2, 8, 3, 4)).astype(np.float32)


class Interface:
    """Speaks __array_interface__ and nothing else."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class DLPack:
    """Speaks DLPack and nothing else, as libraries do from its version 1.0 on, or as they did before."""

    device = (1, 0)

    def __init__(self, array, versioned=True):
        self.array = array
        self.versioned = versioned

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if not self.versioned and options:
            raise TypeError("__dlpack__() takes no keyword arguments")
        return self.array.__dlpack__(**options)


class OldTorch(DLPack):
    """As PyTorch did before it spoke DLPack 1.0."""

    def __init__(self, array):
        super().__init__(array, versioned=False)

    def is_neg(self):
        return False


DLPACK_1 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # whether NumPy's arrays speak it
WRAPPERS = {"interface": Interface, "buffer": memoryview, "dlpack before 1.0": OldTorch}
if DLPACK_1:
    WRAPPERS["dlpack"] = DLPack


@pytest.fixture(params=WRAPPERS.values(), ids=WRAPPERS)
def wrap(request):
    return request.param


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("view", [np.asarray, np.transpose, lambda a: a[::-1, ::2]], ids=["C", "F", "strided"])
def test_reads_and_writes_in_place(wrap, dtype, view):
    src = view(SRC.astype(dtype))
    memory = np.zeros_like(src)
    out = wrap(memory)
    expected = LRN.forward(src)
    assert LRN.forward(wrap(src), out=out) is out
    np.testing.assert_array_equal(memory, expected)
    assert LRN.backward(wrap(src), wrap(src), out=out) is out
    np.testing.assert_array_equal(memory, LRN.backward(src, src))


def test_writes_in_place_over_the_source(wrap):
    memory = SRC.copy()
    same = wrap(memory)
    LRN.forward(same, out=same)
    np.testing.assert_array_equal(memory, LRN.forward(SRC))
    with pytest.raises(ValueError, match="out must be the same array or not overlap src"):
        LRN.forward(wrap(memory[:, :4]), out=wrap(memory[:, 2:6]))


def test_batch_norm_takes_and_updates_them(wrap):
    bn = cynorm.BatchNorm()
    scale, shift = np.linspace(1, 2, 16, dtype=np.float32).reshape(2, 8)
    running = np.zeros((2, 8), np.float32)
    expected_running = running.copy()
    out = wrap(np.empty_like(SRC))
    expected = bn.forward_training(
        SRC, scale, shift, running_mean=expected_running[0], running_variance=expected_running[1]
    )
    result = bn.forward_training(
        wrap(SRC),
        wrap(scale),
        wrap(shift),
        out=out,
        running_mean=wrap(running[0]),
        running_variance=wrap(running[1]),
    )
    assert result[0] is out
    np.testing.assert_array_equal(np.asarray(getattr(out, "array", out)), expected[0])
    np.testing.assert_array_equal(result[1], expected[1])
    np.testing.assert_array_equal(running, expected_running)


def test_lists_are_read_and_not_written():
    np.testing.assert_array_equal(LRN.forward(SRC.astype(np.float64).tolist()), LRN.forward(SRC.astype(np.float64)))
    with pytest.raises(TypeError, match="out must be an array, or share its memory .* got list"):
        LRN.forward(SRC, out=SRC.tolist())


def test_flat_buffers():
    flat = array.array("f", range(6))
    bn = cynorm.BatchNorm(axes=(0,))
    expected = bn.forward_training(np.array(flat))[0]
    assert bn.forward_training(flat, out=flat)[0] is flat
    np.testing.assert_array_equal(flat, expected)


def test_read_only_memory_is_read_and_not_written():
    read_only = SRC.copy()
    read_only.flags.writeable = False
    wrappers = [Interface, memoryview]
    if DLPACK_1:
        wrappers.append(DLPack)
    for wrap in wrappers:
        np.testing.assert_array_equal(LRN.forward(wrap(read_only)), LRN.forward(SRC))
        with pytest.raises(ValueError, match="out must be writable"):
            LRN.forward(SRC, out=wrap(read_only))


def test_memory_that_does_not_say_so_is_not_written():
    """Before DLPack 1.0, exporters had no word for memory that must not change; JAX and TensorFlow still use that version."""
    bn, unversioned = cynorm.BatchNorm(), DLPack(SRC.copy(), versioned=False)
    running = DLPack(np.zeros(8, np.float32), versioned=False)
    np.testing.assert_array_equal(LRN.forward(unversioned), LRN.forward(SRC))
    with pytest.raises(TypeError, match="^out must share its memory, got DLPack that does not: what DLPack before 1.0 hands out"):
        LRN.forward(SRC, out=unversioned)
    with pytest.raises(TypeError, match="^running_mean must share its memory"):
        bn.forward_training(SRC, running_mean=running, running_variance=np.ones(8, np.float32))
    np.testing.assert_array_equal(unversioned.array, SRC)
    assert not running.array.any()


def test_empty_tensors(wrap):
    assert LRN.forward(wrap(np.empty((0, 8, 3, 4), np.float32))).shape == (0, 8, 3, 4)


def test_other_devices_and_data_types_are_refused():
    tensor = DLPack(SRC)
    tensor.device = (2, 0)
    with pytest.raises(TypeError, match=r"src must share its memory, got DLPack .* device \(2, 0\), not on the CPU"):
        LRN.forward(tensor)
    for dtype in ("int8", "int32", "uint8", "complex64", "bool"):
        with pytest.raises(TypeError, match=rf"^src must be float32, .*got dtype\('{dtype}'\)$"):
            LRN.forward(DLPack(SRC.astype(dtype)))


@pytest.mark.parametrize("device", [(3, 0), (11, 1), (13, 0)], ids=str)
def test_memory_that_devices_share_is_read_in_place(device):
    """Pinned for CUDA or ROCm, or managed: NumPy's from_dlpack takes it, too."""
    tensor = DLPack(SRC)
    tensor.device = device
    np.testing.assert_array_equal(LRN.forward(tensor), LRN.forward(SRC))


class Failing:
    """Cannot be made an array."""

    def __init__(self, error):
        self.error = error

    def __array__(self, *args, **kwargs):
        raise self.error


class FailingDLPack(DLPack):
    def __dlpack__(self, **options):
        raise MemoryError


def test_what_fails_is_told_by_name():
    """Whatever an exporter raises, and however that is made."""
    for error in UnicodeDecodeError("utf-8", b"a", 0, 1, "why"), RuntimeError("why"), ValueError("why", 2):
        with pytest.raises(ValueError, match="^src must be an array of numbers, got Failing: .*why"):
            LRN.forward(Failing(error))
    with pytest.raises(TypeError, match="^src must be an array of numbers, got Failing: why"):
        LRN.forward(Failing(TypeError("why")))
    for exporter in Failing(MemoryError()), FailingDLPack(SRC):
        with pytest.raises(MemoryError):
            LRN.forward(exporter)


def test_copies_are_read_and_not_written():
    """What is written into a copy would be lost."""

    class Copied(DLPack):
        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options, copy=True)

    if not DLPACK_1:
        pytest.skip("NumPy makes copies on demand since it speaks DLPack 1.0")
    memory = np.zeros_like(SRC)
    np.testing.assert_array_equal(LRN.forward(Copied(SRC)), LRN.forward(SRC))
    with pytest.raises(TypeError, match="^out must share its memory, got Copied that does not: .*lost in a copy"):
        LRN.forward(SRC, out=Copied(memory))
    assert (memory == 0).all()


def test_borrowed_memory_is_given_back():
    memory = SRC.copy()
    alive = weakref.ref(memory)
    for versioned in (True, False):
        LRN.forward(DLPack(memory, versioned))
    del memory
    gc.collect()
    assert alive() is None


# ------------------------------------------------------------------------------------------------------------
# PyTorch, where it is installed


def torch_tensor(torch, array):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
def test_torch_tensors(dtype):
    torch = pytest.importorskip("torch")
    src = SRC.astype(dtype)
    tensor = torch_tensor(torch, src.copy())
    expected = LRN.forward(src)
    np.testing.assert_array_equal(LRN.forward(tensor), expected)
    out = torch.empty_like(tensor)
    assert LRN.forward(tensor, out=out) is out
    assert torch.equal(out, torch_tensor(torch, expected))
    strided = torch_tensor(torch, src[::-1].copy()[:, ::2]).transpose(2, 3)
    np.testing.assert_array_equal(LRN.forward(strided), LRN.forward(src[::-1, ::2].swapaxes(2, 3)))
    channels_last = tensor.to(memory_format=torch.channels_last)
    result = LRN.forward(channels_last)
    assert result.strides == tuple(s * src.itemsize for s in channels_last.stride())
    np.testing.assert_array_equal(result, expected)
    assert LRN.forward(tensor, out=tensor) is tensor
    assert torch.equal(tensor, out)


def test_torch_tensors_without_dlpack(monkeypatch):
    """Dense ones are taken by their numpy(), which takes a tenth of the time."""
    torch = pytest.importorskip("torch")
    monkeypatch.delattr(torch.Tensor, "__dlpack__")
    for dtype in reference.DTYPES:
        src = SRC.astype(dtype)
        out = torch.empty_like(torch_tensor(torch, src))
        LRN.forward(torch_tensor(torch, src), out=out)
        assert torch.equal(out, torch_tensor(torch, LRN.forward(src)))


def test_torch_tensors_that_cannot_be_shared_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="src must share its memory, got Tensor .*require grad"):
        LRN.forward(torch.zeros(2, 8, 3, 4, requires_grad=True))
    with pytest.raises(TypeError, match="src must share its memory, got Tensor"):
        LRN.forward(torch.zeros(2, 8, 3, 4, device="meta"))
    for dtype in (torch.int8, torch.int32, torch.bool):
        with pytest.raises(TypeError, match="^src must be float32, .*got dtype"):
            LRN.forward(torch.zeros(2, 8, 3, 4, dtype=dtype))


def test_torch_tensors_that_read_otherwise_than_they_are_stored_are_refused():
    torch = pytest.importorskip("torch")
    negated = torch.complex(torch.ones(1, 8, 3, 4), torch.ones(1, 8, 3, 4)).conj().imag
    assert negated.is_neg()
    for call in (LRN.forward, lambda tensor: LRN.forward(torch.ones(1, 8, 3, 4), out=tensor)):
        with pytest.raises(TypeError, match=r"must share its memory, got Tensor that does not: .*resolve_neg"):
            call(negated)
    assert (LRN.forward(negated.resolve_neg()) < 0).all()


def test_torch_bfloat16_without_ml_dtypes_says_what_to_install(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="^src must share its memory, got Tensor .*pip install ml_dtypes"):
        LRN.forward(torch.zeros(2, 8, 3, 4, dtype=torch.bfloat16))


def test_batch_norm_updates_torch_statistics():
    torch = pytest.importorskip("torch")
    src = torch.from_numpy(SRC)
    module = torch.nn.BatchNorm2d(8).train()
    expected = module(src).detach()
    running_mean, running_variance = torch.zeros(8), torch.ones(8)
    out = torch.empty_like(src)
    cynorm.BatchNorm().forward_training(
        src, module.weight.detach(), module.bias.detach(), out=out, running_mean=running_mean,
        running_variance=running_variance,
    )
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(running_mean, module.running_mean)
    torch.testing.assert_close(running_variance, module.running_var)


# ------------------------------------------------------------------------------------------------------------
# Checks that are remembered


def test_a_check_runs_once_for_each_kind_of_arrays():
    """The same dtypes, shapes, writability and attributes: the same kind, whatever the values and strides."""
    base = np.ones((2, 3), np.float32)
    read_only = base.copy()
    read_only.flags.writeable = False
    others = [base.astype(dtype) for dtype in ("f4", ">f4", "f8", "f2", "i4", ml_dtypes.bfloat16)]
    others += [base.T, base[0], base[:, :0], read_only, None]
    kinds = [(base, base), (None, base), *((other, None) for other in others)]
    runs = []

    @checked(("a", "b"), outputs=0, optional=("a", "b"))
    def check(arrays, *attributes):
        runs.append(arrays)
        return len(runs)

    for attributes in ((), ("NHWC",), ("NHWC", 1)):
        results = [check(arrays, *attributes) for arrays in kinds]
        assert len(set(results)) == len(kinds)
        assert [check(arrays, *attributes) for arrays in kinds] == results
    assert check((np.zeros((6, 4), np.float32)[::3, 3:0:-1], None)) == check((base, None))


def test_a_check_that_fails_is_not_remembered():
    @checked(("a",), outputs=0)
    def check(arrays):
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            check((np.ones(1),))


def test_attributes_of_other_types_are_checked_anew():
    """1, 1.0, 1 + 0j and True are equal, and of one hash."""
    seen = []

    @checked(("a",), outputs=0)
    def check(arrays, attribute):
        seen.append(attribute)

    for _ in range(2):
        for attribute in (True, 1, 1.0, 1 + 0j):
            check((np.ones(1),), attribute)
    assert [type(attribute) for attribute in seen] == [bool, int, float, complex]


def test_arguments_are_arrays_and_outputs_writable():
    @checked(("a", "b", "c"), outputs=2, optional=("c",))
    def check(arrays):
        return True

    one, read_only = np.ones((2, 2)), np.ones((2, 2))
    read_only.flags.writeable = False
    assert check((read_only, one[0], None))
    for a, name in (([1.0], "list"), (None, "NoneType"), (1.0, "float")):
        with pytest.raises(TypeError, match=f"^a must be a NumPy array, got {name}"):
            check((a, one, one))
    for b, c, text in (
        (read_only, None, "b must be writable, got a read-only array"),
        (one[0], read_only, "c must be writable"),
        (None, one, "b must be a NumPy array, got NoneType"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{text}"):
            check((one, b, c))


def test_outputs_share_no_memory():
    """They may be an input itself; the same kind of arrays is checked again in every call."""

    @checked(("a", "b", "c"), outputs=2)
    def check(arrays):
        return True

    memory = np.zeros(40)
    first, second, third, input = memory[:4], memory[4:8], memory[8:12], memory[20:24]
    for b, c in [(first, second), (input, second), (first[::-1], input), (memory[:8:2], memory[1:8:2])]:
        assert check((input, b, c))
    assert check((memory[:0], memory[:0], memory[:0]))
    for arrays, text in [
        ((input, first, first), "c must not overlap b, got memory at 0x"),
        ((input, first, first[::-1]), "c must not overlap b, got memory at 0x"),
        ((input, first, memory[3:7]), "c must not overlap b, got memory at 0x"),
        ((input, input, input), "c must not overlap b, got memory at 0x"),
        ((input, input[::-1], third), "b must be the same array or not overlap a, got memory at 0x"),
        ((input, first, memory[21:25]), "c must be the same array or not overlap a, got memory at 0x"),
        ((input, first, input[:2]), "c must not overlap a, got memory at 0x"),
        ((input, np.broadcast_to(memory[:1], 4), first), "b must not overlap itself, got strides"),
    ]:
        for given in arrays:
            given.flags.writeable = True
        with pytest.raises(ValueError, match=f"^{text}"):
            check(arrays)


def test_plain_tensors_are_seen_in_blocks():
    """Without a copy, whatever the strides; other arrays are left as they are."""
    plain = np.arange(2 * 16 * 6, dtype=np.float32).reshape(2, 6, 16).swapaxes(1, 2)[:, :, ::-2]
    vector = np.ones(16, np.float32)
    seen, left = keyword_arguments(("tensor", "vector"), (plain, vector), 3, 8).values()
    assert left is vector
    assert seen.shape == (2, 2, 3, 8) and np.shares_memory(seen, plain) and seen.flags.writeable
    np.testing.assert_array_equal(np.moveaxis(seen, -1, 2).reshape(plain.shape), plain)
    plain.flags.writeable = False
    seen = keyword_arguments(("tensor",), (plain,), 3, 16)["tensor"]
    assert seen.shape == (2, 1, 3, 16) and not seen.flags.writeable
    held = keyword_arguments(("tensor",), (np.ones((1, 8, 4)),), 3, 8)["tensor"]
    assert (held == 1).all() and held.base is not None
    assert keyword_arguments(("tensor",), (plain,), 0, 1)["tensor"] is plain


class Edited(DLPack):
    """One whose capsule has another value at some byte of DLPack's struct."""

    def __init__(self, array, at, value):
        super().__init__(array)
        self.at, self.value = at, value

    def __dlpack__(self, **options):
        capsule = super().__dlpack__(**options)
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        type(self.value).from_address(get(capsule, b"dltensor_versioned") + self.at).value = self.value.value
        return capsule


@pytest.mark.skipif(not DLPACK_1, reason="NumPy speaks DLPack 1.0 from 2.1 on")
def test_what_dlpack_says_of_memory_is_heeded():
    """Its version, vectors for elements, and where in the memory the tensor begins."""
    with pytest.raises(TypeError, match="DLPack 2 is not DLPack 1"):
        LRN.forward(Edited(SRC, 0, ctypes.c_uint32(2)))
    with pytest.raises(TypeError, match="2 lanes"):
        LRN.forward(Edited(SRC, 54, ctypes.c_uint16(2)))
    memory = np.concatenate([np.zeros(4, SRC.dtype), SRC.ravel()])
    tensor = Edited(memory[:-4].reshape(SRC.shape), 72, ctypes.c_uint64(4 * SRC.itemsize))
    np.testing.assert_array_equal(LRN.forward(tensor), LRN.forward(SRC))
