"""What messages say of a value that they refuse."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What others call one of our names, or have beside what looks like one.
_ELSEWHERE: dict[str, str] = {
    "spatial": "within_channel",
    "cudnn": "onnx",
    "directml": "onnx",
    "dnnl": "onednn",
    "mkldnn": "onednn",
    "pytorch": "torch",
    **dict.fromkeys(("channels_first", "channels-first", "channelsfirst"), "NCHW"),
    **dict.fromkeys(("channels_last", "channels-last", "channelslast"), "NHWC"),
    **dict.fromkeys(("ncl", "nct"), "NCW"),
    **dict.fromkeys(("nlc", "ntc"), "NWC"),
    "lrelu": "leaky_relu",
    "selu": "scaled_elu",
    "trelu": "thresholded_relu",
    **dict.fromkeys(("hsigmoid", "hardsigmoid"), "hard_sigmoid"),
    "hardshrink": "shrink",
    **dict.fromkeys(
        ("atan", "brelu", "crelu", "gelu", "hard_tanh", "hardtanh", "log_sigmoid", "logsigmoid", "parametric_relu", "prelu",
         "relu1", "relu6", "relu_6", "rrelu", "silu", "softmax", "softmin", "softshrink", "tanhshrink", "x86-64-v2"), ""),
}


def hint(name: str, allowed: Iterable[str]) -> str:
    """What to add to the refusal of a misspelt name: one that differs in case, in the order of letters, or a little, as a whole
    or in its first word, or begins with it.

    Examples
    --------
    >>> hint("NHCW", ["NCHW", "NHWC"])
    "; did you mean 'NHWC'?"
    >>> hint("accross", ["across_channels", "within_channel"])
    "; did you mean 'across_channels'?"
    >>> hint("prelu", ["relu", "leaky_relu"])
    ''
    """
    lower = {right.lower(): right for right in allowed}
    word = name.lower()
    known = _ELSEWHERE.get(word)
    if known is not None and (known == "" or known in lower.values()):
        return f"; did you mean {known!r}?" if known else ""
    permuted = [right for right in lower if sorted(right) == sorted(word)]
    near = [word] if word in lower else difflib.get_close_matches(word, permuted or lower, 1, 0.0 if permuted else 0.7)
    if not near and len(word) > 2:
        near = [right for right in lower if right.startswith(word)]
        near += [right for right in lower if difflib.SequenceMatcher(None, word, right.split("_")[0]).ratio() > 0.75]
    return f"; did you mean {lower[near[0]]!r}?" if near else ""


def shown(value: object) -> str:
    """The value, or, of an array that has many, what kind of array it is.

    Examples
    --------
    >>> import numpy as np
    >>> shown(np.zeros((4, 3), np.float32)), shown(0.5)
    ('an array of float32, shape (4, 3)', '0.5')
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None and math.prod(shape) > 8:
        return f"an array of {dtype}, shape {tuple(shape)}"
    try:
        text = repr(value)
    except ValueError:  # more digits than Python converts
        text = f"{type(value).__name__} of too many digits"
    return text if len(text) <= 200 else f"{text[:160]}... (of type {type(value).__name__})"
