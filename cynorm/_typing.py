"""Types of arguments and results, for type checkers: nothing imports this at run time."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from numpy.typing import ArrayLike, NDArray
from typing_extensions import TypeVar


class DLPack(Protocol):
    """What other libraries' tensors speak."""

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


# Of float32, float64, float16 or bfloat16: no element type says the last.
Array: TypeAlias = NDArray[Any]
Tensor: TypeAlias = ArrayLike | DLPack
# What is given as out= is what is returned.
Out = TypeVar("Out", default=Array)

Cache: TypeAlias = Literal["auto", "always", "never"]
Region: TypeAlias = Literal["across_channels", "within_channel"]
Window: TypeAlias = Literal["onednn", "onnx", "torch"]
