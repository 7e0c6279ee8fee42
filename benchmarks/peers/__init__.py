"""The libraries that are measured against each other, one module each, all with the same four functions:

available()                whether it can be used here
version()
set_num_threads(count)
prepare(problem, arrays)   a Prepared, or Refused with the reason
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

PEERS = ("oneDNN", "PyTorch", "TensorFlow")


class Refused(RuntimeError):
    """The library does not run the problem; the message says why."""


@dataclass
class Prepared:
    """One problem ready to run on its arrays.

    Attributes
    ----------
    run : callable
        Runs it once; the outputs go into the arrays that it was prepared with, where the library can.
    implementation : str
    workspace_nbytes : int
        What forward keeps for backward.
    scratch_nbytes : int or None
        What the library says it needs besides; None where it says nothing.
    outputs : callable
        Takes what `run` returned, gives the outputs in it that are not among the arrays, by name.
    """

    run: Callable[[], object]
    implementation: str
    workspace_nbytes: int = 0
    scratch_nbytes: int | None = None
    outputs: Callable[[object], dict] = lambda result: {}


def library(name):
    """The module of "cynorm" or of one of PEERS."""
    module = {"cynorm": "subject", "oneDNN": "onednn", "PyTorch": "torch", "TensorFlow": "tensorflow"}[name]
    return importlib.import_module(f"benchmarks.peers.{module}")
