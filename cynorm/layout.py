"""What the axes of an array mean."""

from __future__ import annotations

from typing import NamedTuple

from cynorm._parameters import choice


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


def parse(layout: str) -> tuple[str, Axes]:
    """The name of a layout, a plain string, and its axes; a ValueError with the nearest spelling for an unknown one.

    Examples
    --------
    >>> name, axes = parse("NHWC")
    >>> axes.channel
    3
    """
    layout = choice("layout", layout, tuple(LAYOUTS))
    return layout, LAYOUTS[layout]
