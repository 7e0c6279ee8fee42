"""A package that calls cynorm's kernels from its own C code: nothing but the include path is needed."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import cynorm

extension = Extension("cynorm_example", ["cynorm_example.pyx"], include_dirs=[cynorm.get_include()])
setup(ext_modules=cythonize([extension]))
