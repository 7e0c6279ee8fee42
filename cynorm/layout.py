"""What the axes of an array mean."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Axes(NamedTuple):
    """Where a layout has its axes; the batch is always axis 0."""

    ndim: int
    channel: int
    spatial_first: int
    spatial: int  # how many, one after another
    block: int  # channels in the last axis of a blocked layout, else 0


_SPATIAL = ("", "W", "HW", "DHW")

LAYOUTS: dict[str, Axes] = {
    **{f"NC{s}": Axes(2 + len(s), 1, 2, len(s), 0) for s in _SPATIAL},
    **{f"N{s}C": Axes(2 + len(s), 1 + len(s), 1, len(s), 0) for s in _SPATIAL[1:]},
    **{f"nC{s.lower()}{b}c": Axes(3 + len(s), 1, 2, len(s), b) for b in (8, 16) for s in _SPATIAL[1:]},
}


def hint(name: str, allowed: Iterable[str]) -> str:
    """What to add to the refusal of a misspelt name: one that differs in case, in the order of letters, or a little.

    Examples
    --------
    >>> hint("NHCW", LAYOUTS)
    "; did you mean 'NHWC'?"
    """
    lower = {right.lower(): right for right in allowed}
    word = name.lower()
    permuted = [right for right in lower if sorted(right) == sorted(word)]
    near = [word] if word in lower else difflib.get_close_matches(word, permuted or lower, 1, 0.0 if permuted else 0.4)
    return f"; did you mean {lower[near[0]]!r}?" if near else ""


def parse(layout: str) -> Axes:
    """The axes of a layout; a ValueError with the nearest spelling for an unknown one.

    Examples
    --------
    >>> parse("NHWC").channel
    3
    """
    if not isinstance(layout, str):
        raise TypeError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}{hint(layout, LAYOUTS)}")
    return LAYOUTS[layout]
