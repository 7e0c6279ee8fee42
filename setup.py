"""Builds the extension modules; everything else is in pyproject.toml."""

import multiprocessing
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

X86 = platform.machine().lower() in ("x86_64", "amd64")

# One row per instruction set: its file in cynorm/kernels and the flags it is compiled with.
KERNELS = {"baseline": []}
if X86:
    KERNELS["x86_64_v3"] = ["-march=x86-64-v3"]
    KERNELS["x86_64_v4"] = ["-march=x86-64-v4", "-mprefer-vector-width=512"]
if sys.platform == "darwin":  # where, on an Intel Mac, one call may compile for both architectures
    KERNELS = {name: [part for flag in flags for part in ("-Xarch_x86_64", flag)] for name, flags in KERNELS.items()}

# No -ffast-math: it would flush subnormals in the whole process. Products and sums are fused where the code says so.
# No -g, which Python's own flags have: to write down where variables live, in some two thousand loops, takes as long as to
# compile them, and ten times the room; and modules would hold the names of the directories that they were built in.
C_FLAGS = ["-O3", "-g0", "-std=gnu11", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
KERNEL_FLAGS = ["-Wno-psabi"]
MODULES = ("_dispatch", "_interop", "_tensor", "_workspace", "_bandwidth", "_lrn", "_batch_norm", "_api")
THREADED = ("_dispatch", "_bandwidth", "_lrn", "_batch_norm")


def openmp():
    """The compile and link flags of OpenMP; none where the compiler has none by default (macOS without libomp)."""
    if sys.platform == "darwin":
        prefix = os.environ.get("CYNORM_LIBOMP_PREFIX")
        if not prefix:
            return [], []
        return ["-Xpreprocessor", "-fopenmp", f"-I{prefix}/include"], [f"-L{prefix}/lib", "-lomp"]
    return ["-fopenmp"], ["-fopenmp"]


class BuildExt(build_ext):
    """Compiles each kernel file with its own flags and links the objects into _dispatch, and only there."""

    def build_extension(self, ext):
        if ext.name == "cynorm._dispatch":
            # half a minute to three each, the longest first
            objects = [(name, bits) for bits in (32, 64) for name in reversed(KERNELS)]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for paths in pool.map(lambda each: self.compile_kernels(*each, ext.depends), objects):
                    ext.extra_objects += paths
            ext.depends = [*ext.depends, *ext.extra_objects]  # else what is linked already would stay
        super().build_extension(ext)

    def compile_kernels(self, name, bits, depends):
        sources, output = [f"cynorm/kernels/{name}.c"], os.path.join(self.build_temp, f"f{bits}")
        objects = self.compiler.object_filenames(sources, output_dir=output)
        newest = max(map(os.path.getmtime, [*sources, *depends]))
        if not self.force and all(os.path.exists(path) and os.path.getmtime(path) > newest for path in objects):
            return objects  # the compiler would not look
        return self.compiler.compile(
            sources, output_dir=output, include_dirs=["include"], macros=[("CYNORM_KERNELS", str(bits))],
            extra_postargs=C_FLAGS + KERNELS[name] + KERNEL_FLAGS, depends=depends)


class BuildPy(build_py):
    """Puts the headers into the package, where cynorm.get_include() finds them; a checkout has them beside it."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_tree("include", os.path.join(self.build_lib, "cynorm", "include"))


def recorded_flags():
    """The compile flags as a C string, for cynorm.show_config()."""
    rows = {"all": C_FLAGS, **{name: flags for name, flags in KERNELS.items() if flags}}
    return '"' + "; ".join(f"{name}: {' '.join(flags)}" for name, flags in rows.items()) + '"'


HEADERS = [*(f"include/cynorm/{name}" for name in sorted(os.listdir("include/cynorm"))), "cynorm/kernels/tables.h"]
compile_flags, link_flags = openmp()
extensions = [
    Extension(
        f"cynorm.{name}",
        [f"cynorm/{name}.pyx"],
        include_dirs=["include", "cynorm", numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("NPY_TARGET_VERSION", "NPY_1_25_API_VERSION"),
                       ("CYNORM_FLAGS", recorded_flags()),
                       *([("MS_WIN64", "")] if sys.platform == "win32" else [])],  # older pyconfig.h: for MSVC alone
        extra_compile_args=C_FLAGS + (compile_flags if name in THREADED else []),
        extra_link_args=link_flags if name in THREADED else [],
        libraries=[] if sys.platform == "win32" else ["m"],
        depends=[*HEADERS, "setup.py"],
    )
    for name in MODULES
]
# Other ways to start a process would run this file in each.
PROCESSES = 2 if multiprocessing.get_start_method() == "fork" else 0
# Safe without the GIL: kernel table, thread count and bfloat16's number are words of their own, a Workspace has a lock.
directives = {"freethreading_compatible": True}
setup(
    ext_modules=cythonize(extensions, nthreads=PROCESSES, compiler_directives=directives),
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
)
