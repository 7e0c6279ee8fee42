"""What this installation was built with and runs on."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cynorm import _dispatch

__all__ = ["config", "get_include", "show_config"]


def get_include() -> str:
    """The directory to add to a compiler's include path for ``#include <cynorm/cynorm.h>``.

    Examples
    --------
    >>> import cynorm, os
    >>> os.path.exists(os.path.join(cynorm.get_include(), "cynorm", "cynorm.h"))
    True
    """
    package = Path(__file__).parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "include")


def config() -> dict[str, Any]:
    """What `show_config` prints, as a dict.

    Returns
    -------
    dict
        ``version``, ``python``, ``numpy``, ``ml_dtypes`` (None where it is not installed), ``machine``, ``compiler``,
        ``flags`` (those of all C code, and those that each instruction set adds), ``isas_built``, ``isas_available``,
        ``isa`` (the one in force), ``openmp`` (its version as a date; None if built without it), ``openmp_runtimes``
        (the files loaded into this process, on Linux), ``threads`` (of a call that does not give their number) and
        ``cpus`` (those that this process may use).

    Examples
    --------
    >>> import cynorm.config
    >>> settings = cynorm.config.config()
    >>> settings["isa"] in settings["isas_available"]
    True
    """
    from importlib.metadata import PackageNotFoundError, version

    from cynorm import __version__

    try:
        ml_dtypes = version("ml_dtypes")
    except PackageNotFoundError:
        ml_dtypes = None
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "version": __version__,
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes,
        "machine": platform.machine(),
        **_dispatch.build(),
        "isas_built": _dispatch.built_isas(),
        "isas_available": _dispatch.available_isas(),
        "isa": _dispatch.isa(),
        "openmp_runtimes": _openmp_runtimes(),
        "threads": _dispatch.get_num_threads(),
        "cpus": len(affinity(0)) if affinity else os.cpu_count(),
    }


def _openmp_runtimes() -> tuple[str, ...]:
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return ()
    files = {line.split(maxsplit=5)[5] for line in maps.splitlines() if "omp" in line and "/" in line}
    return tuple(sorted(file for file in files if Path(file).name.startswith(("libgomp", "libomp", "libiomp"))))


def show_config() -> None:
    """Print what this installation was built with and runs on: put it into bug reports.

    Examples
    --------
    >>> import cynorm
    >>> cynorm.show_config()  # doctest: +ELLIPSIS
    version         ...
    """
    for name, value in config().items():
        if isinstance(value, dict):
            value = "\n".join(f"{key}: {item}" for key, item in value.items())
        elif isinstance(value, tuple):
            value = ", ".join(value)
        print(f"{name:<16}{value}".replace("\n", "\n" + " " * 16))
