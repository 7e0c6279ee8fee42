from typing import Any, Protocol, TypeAlias

from numpy.typing import ArrayLike, NDArray

class _DLPack(Protocol):
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

# Of float32, float64, float16 or bfloat16: no element type says the last.
_Array: TypeAlias = NDArray[Any]
_Tensor: TypeAlias = ArrayLike | _DLPack

def from_dlpack(obj: _DLPack) -> _Array: ...
