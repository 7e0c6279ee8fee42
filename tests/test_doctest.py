"""What the documentation shows is true: docstrings, and the Python blocks of README."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import cynorm

MODULES = ["cynorm", *(f"cynorm.{module.name}" for module in pkgutil.iter_modules(cynorm.__path__))]
README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "cynorm.__main__"])
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_docstrings_of_compiled_modules_are_found():
    assert doctest.testmod(importlib.import_module("cynorm._workspace")).attempted > 0


@pytest.mark.parametrize("block", BLOCKS)
def test_readme(block):
    exec(compile(block, str(README), "exec"), {})
