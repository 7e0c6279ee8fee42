"""The C API as others use it: the example package's cimport, and a C extension on the capsule."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import cynorm
from cynorm.batch_norm import _ACTIVATIONS

EXAMPLE = Path(__file__).parents[1] / "examples" / "cython_extension"
C_SETUP = """
import cynorm
from setuptools import Extension, setup
setup(name="c_api", ext_modules=[Extension("c_api", ["c_api.c"], include_dirs=[cynorm.get_include()])], py_modules=[])
"""
SRC = np.random.default_rng(0).standard_normal((3, 8, 5, 7)).astype(np.float32)


def build(folder, name):
    """Build the extension module of a folder with a setup.py, and import it."""
    pytest.importorskip("setuptools")
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]  # with cynorm as it is installed
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    (file,) = folder.glob(f"{name}*{sysconfig.get_config_var('EXT_SUFFIX')}")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    pytest.importorskip("Cython")
    if not EXAMPLE.is_dir():
        pytest.skip("the examples are not here")
    folder = tmp_path_factory.mktemp("build") / "example"
    shutil.copytree(EXAMPLE, folder)
    return build(folder, "cynorm_example")


@pytest.fixture(scope="module")
def c_api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("build")
    shutil.copy(Path(__file__).with_name("c_api.c"), folder)
    (folder / "setup.py").write_text(C_SETUP)
    return build(folder, "c_api")


def test_the_example_computes_what_python_does(example):
    scale, shift, mean, variance = np.random.default_rng(1).random((4, 8)).astype(np.float32)
    x = SRC.copy()
    example.normalize(x, scale, shift, mean, variance)
    normalized, expected_mean, expected_variance = cynorm.BatchNorm(activation="relu").forward_training(
        SRC, scale, shift
    )
    np.testing.assert_array_equal(x, cynorm.lrn(normalized))
    np.testing.assert_array_equal(mean, expected_mean)
    np.testing.assert_array_equal(variance, expected_variance)


LAYOUTS = {"NCHW": (0, (3, 8, 5, 7)), "NHWC": (1, (3, 5, 7, 8)), "nChw8c": (8, (3, 2, 5, 7, 8))}
MEMORIES = {
    "dense": lambda array: array,
    "fortran": np.asfortranarray,
    "strided": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "reversed": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)
each_memory = pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def random(shape, dtype):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@each_layout
@each_memory
@each_dtype
def test_the_capsule_computes_lrn_as_python_does(c_api, layout, memory, dtype):
    number, shape = LAYOUTS[layout]
    src, diff_dst = memory(random(shape, dtype)), MEMORIES["fortran"](random(shape[::-1], dtype).T)
    for omega in (None, np.zeros(shape, dtype)):
        dst, diff_src = memory(np.zeros(shape, dtype)), np.zeros(shape, dtype)
        assert c_api.lrn(number, (src, dst, diff_dst, diff_src, omega)) == (0, 0)
        np.testing.assert_array_equal(dst, cynorm.lrn(src, alpha=1.0, layout=layout))
        np.testing.assert_array_equal(diff_src, cynorm.lrn_backward(diff_dst, src, alpha=1.0, layout=layout))


@each_layout
@each_memory
@each_dtype
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_the_capsule_computes_batch_norm_as_python_does(c_api, layout, memory, dtype, training):
    """ReLU's mask, mean_low and rstd are memory of the C code, and every tensor is strided."""
    number, shape = LAYOUTS[layout]
    src, diff_dst, add = (memory(part) for part in random((3, *shape), dtype))
    dst, diff_src, diff_add = (memory(part) for part in np.zeros((3, *shape), dtype))
    channels = 16 if layout == "nChw8c" else 8
    scale, shift, mean, variance = np.random.default_rng(1).random((4, channels)).astype(dtype)
    running = [mean.copy(), variance.copy()] if training else [None, None]
    expected_running = [mean.copy(), variance.copy()]
    diff_scale, diff_shift = np.zeros((2, channels), dtype)

    bn, workspace = cynorm.BatchNorm(layout=layout, activation="relu"), cynorm.Workspace()
    if training:
        names = ("running_mean", "running_variance")
        expected = bn.forward_training(
            src, scale, shift, add=add, workspace=workspace, **dict(zip(names, expected_running, strict=True))
        )
        gradients = bn.backward_training(diff_dst, src, scale, workspace=workspace)
    else:
        statistics = mean.copy(), variance.copy()
        dst_alone = bn.forward_inference(src, *statistics, scale, shift, add=add, workspace=workspace)
        expected = (dst_alone, *statistics)
        gradients = bn.backward_inference(diff_dst, src, *statistics, scale, workspace=workspace)
    statuses = c_api.batch_norm(number, training, (
        src, add, dst, diff_dst, diff_src, diff_add, scale, shift, mean, variance, *running, diff_scale, diff_shift,
    ))  # fmt: skip
    assert statuses == (0, 0, True)
    for got, wanted in zip((dst, mean, variance), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    for got, wanted in zip((diff_src, diff_scale, diff_shift, diff_add), gradients, strict=True):
        np.testing.assert_array_equal(got, wanted)
    if training:
        np.testing.assert_array_equal(running, expected_running)


@pytest.mark.parametrize("number, shape", [(0, (1, 64, 40, 40)), (1, (1, 40, 40, 64)), (0, (2, 512, 8, 8))])
def test_omega_may_lie_where_another_tensor_does(c_api, number, shape):
    """In backward where diff_src goes, in forward where src was: an output may be one of the inputs."""
    src, diff_dst = random((2, *shape), np.float32)
    dst, diff_src, omega = np.zeros((3, *shape), np.float32)
    assert c_api.lrn(number, (src, dst, diff_dst, diff_src, omega)) == (0, 0)
    other, kept = np.zeros((2, *shape), np.float32)
    assert c_api.lrn(number, (src, other, diff_dst, kept, kept)) == (0, 0)
    np.testing.assert_array_equal(kept, diff_src)
    kept = src.copy()
    c_api.lrn(number, (kept, other, diff_dst, np.zeros_like(src), kept))
    np.testing.assert_array_equal(kept, omega)
    np.testing.assert_array_equal(other, dst)


def test_padding_of_large_blocks_is_cleared(c_api):
    src, dst, diff_dst, diff_src = np.full((4, 2, 1, 3, 3, 64), 7, np.float32)
    assert c_api.lrn(64, (src, dst, diff_dst, diff_src, None), 10) == (0, 0)
    for result in (dst, diff_src):
        assert (result[..., :10] != 0).all() and (result[..., 10:] == 0).all()


@pytest.mark.parametrize("within", [0, 1])
def test_padding_of_blocks_that_take_many_tiles_is_cleared(c_api, within):
    """And nothing else is written to."""
    block, channels = 12_000, 9_000
    memory = np.full((4, 3, 1, 1, block), 7, np.float32)
    src, dst, diff_dst, diff_src = memory[:, 1:2]
    assert c_api.lrn(block, (src, dst, diff_dst, diff_src, None), channels, within) == (0, 0)
    for result in (dst, diff_src):
        assert (result[..., :channels] != 0).all() and (result[..., channels:] == 0).all()
    assert (memory[:, ::2] == 7).all()


def test_statuses(c_api):
    bad_tensor, mismatch, bad_parameter = -2, -3, -4
    assert c_api.statuses() == (0, *3 * [bad_tensor], *4 * [mismatch], *3 * [bad_parameter])
    assert c_api.batch_norm_statuses() == (
        8 * [0] + 7 * [bad_tensor] + 4 * [mismatch] + 3 * [bad_parameter]
    )  # fmt: skip


def test_parameters_are_checked(c_api):
    assert c_api.parameter_statuses() == (*4 * [0], *6 * [-4])


def test_int8_has_a_mask_and_values_too(c_api):
    src = np.random.default_rng(0).integers(-128, 128, (1, 5, 7, 9)).astype(np.int8)
    for name in ("relu", "tanh"):
        dst, mask, value = np.zeros_like(src), np.zeros(src.size // 8 + 8, np.uint8), np.zeros(src.shape, np.float32)
        assert c_api.int8_inference(list(_ACTIVATIONS).index(name), src, dst, mask, value) == 0
        expected = (src.astype(np.float32) - 3) / 2
        if name == "relu":
            bits = np.unpackbits(mask, bitorder="little")[: src.size].reshape(src.shape)
            np.testing.assert_array_equal(bits, expected > 0)
            np.testing.assert_array_equal(dst, np.clip(np.rint(np.maximum(expected, 0)), -128, 127))
        else:
            np.testing.assert_array_equal(value, expected)
            np.testing.assert_array_equal(dst, np.rint(np.tanh(expected)))


def test_activations_have_the_parameters_that_python_gives_them(c_api):
    for number, name in enumerate(_ACTIVATIONS):
        values = [value for _, value in cynorm.Activation(name).parameters]
        assert list(c_api.defaults(number)) == values + [0.0] * (2 - len(values))
    assert c_api.defaults(len(_ACTIVATIONS)) == c_api.defaults(-1) == (0, 0)


@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c99"), ("g++", "c++11")])
def test_the_header_is_plain_c_and_cxx(tmp_path, compiler, standard):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = tmp_path / ("header.cpp" if compiler == "g++" else "header.c")
    source.write_text("#include <cynorm/cynorm.h>\n")
    subprocess.run(
        [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only",
         "-Wno-unused-function", f"-I{cynorm.get_include()}", source],
        check=True,
    )
