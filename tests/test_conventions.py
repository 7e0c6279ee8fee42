"""docs/conventions.md lists the fields of the documents and the arguments that the functions have."""

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from cynorm import directml, onednn, tensorflow

TEXT = (Path(__file__).parents[1] / "docs" / "conventions.md").read_text()


def table(first_header):
    """The header of the table that begins so, and its other rows, cell by cell."""
    lines = TEXT[TEXT.index(f"| {first_header}") :].split("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return header, rows


# The structures of directml.h.
LRN_FIELDS = ["InputTensor", "OutputTensor", "CrossChannel", "LocalSize", "Alpha", "Beta", "Bias"]
LRN_GRAD_FIELDS = ["InputTensor", "InputGradientTensor", "OutputGradientTensor", "CrossChannel", "LocalSize",
                   "Alpha", "Beta", "Bias"]  # fmt: skip
INFERENCE_FIELDS = ["InputTensor", "MeanTensor", "VarianceTensor", "ScaleTensor", "BiasTensor", "OutputTensor",
                    "Spatial", "Epsilon", "FusedActivation"]  # fmt: skip
TRAINING_FIELDS = ["InputTensor", "ScaleTensor", "BiasTensor", "FusedAddTensor", "OutputTensor",
                   "OutputMeanTensor", "OutputVarianceTensor", "Epsilon", "FusedActivation"]  # fmt: skip
GRAD_FIELDS = ["InputTensor", "InputGradientTensor", "MeanTensor", "VarianceTensor", "ScaleTensor",
               "OutputGradientTensor", "OutputScaleGradientTensor", "OutputBiasGradientTensor",
               "Epsilon"]  # fmt: skip
DIRECTML = [
    ("field | argument of", 1, "local_response_normalization", LRN_FIELDS, None),
    ("field | argument of", 2, "local_response_normalization_grad", LRN_GRAD_FIELDS, None),
    ("field | `batch", 1, "batch_normalization", INFERENCE_FIELDS, None),
    (
        "field | `batch",
        2,
        "batch_normalization_training",
        TRAINING_FIELDS,
        directml.BatchNormalizationTraining,
    ),
    ("field | `batch", 3, "batch_normalization_grad", GRAD_FIELDS, directml.BatchNormalizationGrad),
    ("field | `batch", 3, "batch_normalization_training_grad", GRAD_FIELDS, directml.BatchNormalizationGrad),
]


@pytest.mark.parametrize(
    "start, column, name, structure, results", DIRECTML, ids=[row[2] for row in DIRECTML]
)
def test_directml_fields(start, column, name, structure, results):
    header, rows = table(start)
    assert f"`{name}`" in header[column]
    cells = {row[0]: row[column] for row in rows if row[column] and row[0] != "(none)"}
    assert sorted(cells) == sorted(structure)
    parameters = inspect.signature(getattr(directml, name)).parameters
    listed = set()
    for row in rows:
        for argument in re.findall("`(.*?)`", row[column]):
            word, _, default = re.fullmatch(r"(\.?\w+)(?:\[\d\])?(=(.*))?", argument).groups()
            if word.startswith("."):
                assert word[1:] in results._fields
            else:
                assert repr(parameters[word].default) == default or not default, argument
                assert default or word == "out" or parameters[word].default is inspect.Parameter.empty, (
                    argument
                )
                listed.add(word)
    assert listed == set(parameters) - {"num_threads"}


def test_tensorflow_arguments():
    _, rows = table("`tf.raw_ops`")
    assert [row[0] for row in rows] == ["LRN", "LRNGrad", "FusedBatchNormV3", "FusedBatchNormGradV3"]
    for _, name, arguments, results in rows:
        parameters = inspect.signature(getattr(tensorflow, name.strip("`"))).parameters.values()
        parameters = [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
        listed = [argument.partition("=")[::2] for argument in arguments.strip("`").split(", ")]
        assert [word for word, _ in listed] == [p.name for p in parameters if p.name != "name"]
        for (word, default), parameter in zip(listed, parameters, strict=False):
            assert not default or ast.literal_eval(default) == parameter.default, word
        outputs = re.findall(r"\.(\w+)", results)
        assert not outputs or outputs in map(list, (tensorflow.FusedBatchNorm._fields,
                                                    tensorflow.FusedBatchNormGrad._fields))  # fmt: skip


def test_onednn_indices_and_descriptors():
    _, rows = table("execution argument")
    listed = {}
    for names, numbers, _ in rows:
        listed |= dict(zip(names.split(", "), map(int, numbers.split(", ")), strict=True))
    assert listed == {name: getattr(onednn, name) for name in onednn.__all__ if name.startswith("DNNL_ARG_")}
    _, rows = table("oneDNN | here")
    descriptors = re.findall(r"`(\w+)::primitive_desc\((.*?)\)`", "".join(row[0] for row in rows))
    assert len(descriptors) == 4
    for primitive, parameters in descriptors:
        own = [field.name for field in fields(getattr(onednn, primitive).primitive_desc)]
        assert parameters.split(", ") == ["engine", *own]


@pytest.mark.parametrize("module", [directml, onednn, tensorflow], ids=lambda module: module.__name__)
def test_operators_of_the_core_are_in_no_other_librarys_module(module):
    """`cynorm.tensorflow.LRN` would have other defaults than TensorFlow's LRN."""
    assert not {"LRN", "BatchNorm", "Activation"} & set(dir(module))
