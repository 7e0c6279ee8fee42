from typing import NamedTuple

class Axes(NamedTuple):
    ndim: int
    channel: int
    spatial_first: int
    spatial: int
    block: int

LAYOUTS: dict[str, Axes]

def parse(layout: str) -> Axes: ...
