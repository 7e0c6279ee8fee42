"""The built extension modules: no AVX outside the kernels that ask for it, and more than one interpreter."""

import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cynorm

MODULES = sorted(Path(cynorm.__file__).parent.glob("_*.so"))
X86 = pytest.mark.skipif(platform.machine() != "x86_64" or not MODULES, reason="of x86-64 and ELF")


def functions(module):
    """{name: [mnemonics]} of each function of a module or an object."""
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed")
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", module], capture_output=True, text=True, check=True
    ).stdout
    found, name = {}, None
    for line in listing.splitlines():
        if label := re.match(r"([0-9a-f]+) <(.*)>:$", line):
            name = label[2]
            found.setdefault(name, [])
        elif name and (instruction := re.match(r"\s+[0-9a-f]+:\s+(\S+)", line)):
            found[name].append(instruction[1])
    return found


# VEX and EVEX mnemonics begin with v, but for those of mask registers; verr and verw are old.
def vex(mnemonics):
    return [m for m in mnemonics if re.match(r"v(?!err|erw)|k(mov|and|or|xor|test|unpck|shift|add|not)", m)]


@X86
@pytest.mark.parametrize(
    "module", [m for m in MODULES if not m.name.startswith("_dispatch.")], ids=lambda path: path.name.split(".")[0]
)
def test_no_avx_outside_the_kernels_that_ask_for_it(module):
    """All of every module but _dispatch, which holds all kernels."""
    for name, mnemonics in functions(module).items():
        assert not vex(mnemonics), name


@X86
def test_no_avx_in_the_baseline_and_the_dispatch_objects():
    build = Path(cynorm.__file__).parents[1] / "build"
    newest = {}
    for file in sorted(build.glob("temp.*/**/*.o"), key=os.path.getmtime):
        newest[f"{file.parts[-4]}/{file.name}" if file.parent.name == "kernels" else file.name] = file
    if "_dispatch.o" not in newest:
        pytest.skip("an installed package has no objects")
    for name in ("f32/baseline.o", "f64/baseline.o", "_dispatch.o"):
        code = functions(newest[name])
        assert code
        for function, mnemonics in code.items():
            assert not vex(mnemonics), (name, function)
    for name in ("f32/x86_64_v3.o", "f64/x86_64_v3.o", "f32/x86_64_v4.o", "f64/x86_64_v4.o"):  # where there is some
        assert any(vex(mnemonics) for mnemonics in functions(newest[name]).values())


@X86
def test_functions_of_the_dispatch_module_mix_nothing():
    """A function that uses AVX is in a kernel table's object: none of Python's, the linker's or the compiler's own does."""
    (module,) = [path for path in MODULES if path.name.startswith("_dispatch.")]
    for name, mnemonics in functions(module).items():
        if name.startswith(("__pyx", "__Pyx", "PyInit", "_init", "_start", "cynorm_table", "frame_dummy")):
            assert not vex(mnemonics), name


def run(code):
    """What a new process prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(cynorm.__file__).parents[1]), *sys.path])}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_second_interpreter_and_a_second_import_do_not_crash():
    printed = run("""
        import sys
        import cynorm
        for name in [name for name in sys.modules if name.startswith("cynorm")]:
            del sys.modules[name]
        try:
            import cynorm as again
            import numpy as np
            again.lrn(np.ones((1, 8, 2, 2), np.float32))
        except ImportError as error:
            print(error)
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            try:
                import _interpreters as interpreters
            except ImportError:
                interpreters = None
        if interpreters is not None:
            interpreter = interpreters.create()
            try:
                interpreters.run_string(interpreter, "import cynorm")
            except Exception as error:
                print(type(error).__name__)
            interpreters.destroy(interpreter)
        print("alive")
    """)
    assert printed.splitlines()[-1] == "alive"
