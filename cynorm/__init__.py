"""Local response normalization and batch normalization on the CPU, forward and backward."""

import typing as _typing

try:
    from cynorm._api import _C_API as _C_API  # the capsule for C extensions
except ModuleNotFoundError as _error:
    if _error.name != "cynorm._api":
        raise
    from pathlib import Path as _Path

    raise ImportError(
        f"the checkout {_Path(__path__[0]).parent} is not built for this Python: `pip install -e .` there, "
        "or leave that directory for an installed cynorm"
    ) from None
from cynorm._dispatch import available_isas, get_num_threads, isa, set_num_threads
from cynorm._workspace import Workspace
from cynorm.bandwidth import streaming_limit
from cynorm.batch_norm import (
    Activation,
    BatchNorm,
    BatchNormGradients,
    batch_norm,
    batch_norm_backward,
    batch_norm_inference,
    batch_norm_inference_backward,
)
from cynorm.config import get_include, show_config
from cynorm.lrn import LRN, lrn, lrn_backward

__version__ = "0.1.0"

__all__ = [
    "LRN",
    "Activation",
    "BatchNorm",
    "BatchNormGradients",
    "Workspace",
    "available_isas",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_inference",
    "batch_norm_inference_backward",
    "get_include",
    "get_num_threads",
    "isa",
    "lrn",
    "lrn_backward",
    "set_num_threads",
    "show_config",
    "streaming_limit",
]


if _typing.TYPE_CHECKING:
    from cynorm import directml as directml
    from cynorm import onednn as onednn
    from cynorm import tensorflow as tensorflow
else:  # imported when they are first asked for
    _LATER = ("directml", "onednn", "tensorflow")

    def __getattr__(name):
        if name in _LATER:
            import importlib

            return importlib.import_module(f"cynorm.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *_LATER})
