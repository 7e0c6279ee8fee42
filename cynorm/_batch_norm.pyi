from typing import NamedTuple

from cynorm._interop import _Array

class BatchNormGradients(NamedTuple):
    diff_src: _Array
    diff_scale: _Array
    diff_shift: _Array
    diff_add: _Array | None
