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
    path = [str(Path(cynorm.__file__).parents[1]), *sys.path]
    code = f"import sys; sys.path[:0] = {path}; sys.argv = ['setup.py', 'build_ext', '--inplace']; exec(open('setup.py').read())"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
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


@pytest.mark.parametrize(("number", "layout"), [(0, "NCHW"), (1, "NHWC")])
def test_the_capsule_computes_what_python_does(c_api, number, layout):
    out = np.zeros_like(SRC)
    assert c_api.forward(SRC, out, *SRC.shape, number) == 0
    np.testing.assert_array_equal(out, cynorm.lrn(SRC, alpha=1.0, layout=layout))


def test_statuses(c_api):
    bad_tensor, mismatch, bad_parameter = -2, -3, -4
    assert c_api.statuses() == (0, bad_tensor, bad_tensor, mismatch, mismatch, mismatch, bad_parameter)


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
