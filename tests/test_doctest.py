"""What the documentation shows is true: docstrings, and the Python blocks of README."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import cynorm

MODULES = ["cynorm", *(f"cynorm.{module.name}" for module in pkgutil.iter_modules(cynorm.__path__))]
README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


# nothing imports _typing at run time: it needs typing_extensions
@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("cynorm.__main__", "cynorm._typing")])
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_docstrings_of_compiled_modules_are_found():
    assert doctest.testmod(importlib.import_module("cynorm._workspace")).attempted > 0


@pytest.mark.parametrize("name", [
    "lrn", "lrn_backward", "batch_norm", "batch_norm_backward", "batch_norm_inference", "batch_norm_inference_backward",
])
def test_one_call_forms_have_every_parameter(name):
    function = getattr(cynorm, name)
    doc = inspect.getdoc(function)
    assert [line for line in doc.splitlines() if line in ("Parameters", "Returns", "Raises", "Notes", "Examples")] == [
        "Parameters", "Returns", "Raises", "Notes", "Examples"]  # fmt: skip
    parameters = doc.split("Parameters\n----------\n")[1].split("\n\nReturns")[0]
    entries = [line.split(" : ")[0] for line in parameters.splitlines() if line[:1].strip()]
    assert [word for entry in entries for word in entry.split(", ")] == list(inspect.signature(function).parameters)
    summary = doc.split("Parameters\n")[0]
    assert ("omega = k +" if "lrn" in name else "dst = scale *") in summary
    assert ("diff_src " in summary) == ("backward" in name)
    assert not re.search(r"as in `\w+`", doc, re.IGNORECASE), "refers to a method that is no function"


@pytest.mark.parametrize("name, made, method, fields", [
    *((name, cynorm.LRN, method, {"local_size": 3, "alpha": 0.5, "beta": 0.6, "k": 2.0, "region": "within_channel",
                                  "layout": "nChw8c", "channels": 9, "window": "torch", "divisor": 7.0})
      for name, method in [("lrn", "forward"), ("lrn_backward", "backward")]),
    *((name, cynorm.BatchNorm, method, fields)
      for name, method in [("batch_norm", "forward_training"), ("batch_norm_backward", "backward_training"),
                           ("batch_norm_inference", "forward_inference"),
                           ("batch_norm_inference_backward", "backward_inference")]
      for fields in [{"epsilon": 0.5, "layout": "nChw8c", "channels": 9, "activation": "tanh"}, {"axes": (1, 2)}]),
])  # fmt: skip
def test_one_call_forms_pass_on_what_they_are_given(name, made, method, fields, monkeypatch):
    """Each argument under its own name, with the same default."""
    own = inspect.signature(getattr(made, method))

    def told(self, *args, **kwargs):
        given = own.bind(self, *args, **kwargs)
        given.apply_defaults()
        return given.arguments

    monkeypatch.setattr(made, method, told)
    parameters = [p for p in own.parameters.values() if p.name != "self"]
    values = {p.name: object() for p in parameters}
    assert getattr(cynorm, name)(**values, **fields) == {"self": made(**fields), **values}
    needed = {p.name: values[p.name] for p in parameters if p.default is p.empty}
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    assert getattr(cynorm, name)(**needed) == {"self": made(), **needed, **defaults}


@pytest.mark.parametrize("made", [cynorm.LRN, cynorm.BatchNorm, cynorm.Workspace])
def test_classes_have_every_parameter(made):
    parameters = inspect.getdoc(made).split("Parameters\n----------\n")[1].split("\n\n")[0]
    entries = [line.split(" : ")[0] for line in parameters.splitlines() if line[:1].strip()]
    assert [word for entry in entries for word in entry.split(", ")] == list(inspect.signature(made).parameters)


@pytest.mark.parametrize("block", BLOCKS)
def test_readme(block):
    exec(compile(block, str(README), "exec"), {})
