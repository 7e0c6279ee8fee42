"""The machine's limit: how fast memory streams through its cores."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from cynorm import _bandwidth, _dispatch
from cynorm._parameters import flag, integer

__all__ = ["streaming_limit"]

if TYPE_CHECKING:
    from collections.abc import Callable

    from cynorm._typing import Array


def streaming_limit(
    reads: int = 1,
    writes: int = 1,
    nbytes: int = 1 << 28,
    num_threads: int | None = None,
    streaming: bool = True,
) -> float:
    """Measure how fast this machine streams memory.

    Parameters
    ----------
    reads, writes : int
        Arrays read and written in one pass: (1, 0), (1, 1) or (2, 1).
    nbytes : int
        Bytes in all these arrays together.
    num_threads : int, optional
        Default: `get_num_threads()`.
    streaming : bool
        Whether the writes bypass the cache.

    Returns
    -------
    float
        GB/s, the best of a few passes over touched memory; reads and writes counted once each.

    Raises
    ------
    TypeError, ValueError
        If the arrays are not one of these combinations, or `nbytes` or `num_threads` is not an integer of at least 1.

    Examples
    --------
    >>> import cynorm
    >>> cynorm.streaming_limit(nbytes=1 << 20) > 0
    True
    """
    reads, writes = integer("reads", reads), integer("writes", writes, 0)
    if (reads, writes) not in ((1, 0), (1, 1), (2, 1)):
        raise ValueError(f"reads and writes must be (1, 0), (1, 1) or (2, 1), got ({reads!r}, {writes!r})")
    nbytes = integer("nbytes", nbytes)
    if num_threads is not None:
        num_threads = _dispatch.checked_threads(num_threads, "num_threads")
    run = stream_pass(reads, writes, nbytes, num_threads, flag("streaming", streaming))
    moved = run()
    best, spent, passes = float("inf"), 0.0, 0
    while passes < 3 or (spent < 0.2 and passes < 1000):
        start = time.perf_counter()
        run()
        elapsed = time.perf_counter() - start
        best, spent, passes = min(best, elapsed), spent + elapsed, passes + 1
    return moved / best / 1e9


def stream_pass(
    reads: int, writes: int, nbytes: int, num_threads: int | None = None, streaming: bool = True
) -> Callable[[], int]:
    """A callable that makes one pass over memory it keeps touched, and returns the bytes it moved."""
    threads = num_threads or _dispatch.get_num_threads()
    chunk = max(256, nbytes // (reads + writes) // threads // 256 * 256)
    arrays = [_aligned(chunk * threads) for _ in range(reads + writes)]
    out = arrays.pop() if writes else None
    second = arrays[1] if reads == 2 else None

    def run() -> int:
        _bandwidth.sweep(out, arrays[0], second, chunk, streaming, threads)
        return chunk * threads * (reads + writes)

    return run


def _aligned(nbytes: int) -> Array:
    memory = np.ones(nbytes + 64, np.int8)
    start = -memory.ctypes.data % 64
    return memory[start : start + nbytes]
