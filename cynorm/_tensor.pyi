from collections.abc import Callable
from typing import Any, TypeVar

from cynorm._typing import Array

_F = TypeVar("_F", bound=Callable[..., object])

def checked(
    names: tuple[str, ...], outputs: int, optional: tuple[str, ...] = (), apart: tuple[tuple[int, ...], ...] = ()
) -> Callable[[_F], _F]: ...
def remembered(make: _F) -> _F: ...
def keyword_arguments(
    keywords: tuple[str, ...], arrays: tuple[Array, ...], plain_ndim: int, block: int
) -> dict[str, Any]: ...
