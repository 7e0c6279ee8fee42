"""What operators are made of: checks of their parameters, each naming the parameter that it refuses, and the class that
holds them."""

from __future__ import annotations

import inspect
import math
import operator
import re
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, SupportsIndex

import numpy as np

from cynorm._messages import hint, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import SupportsFloat, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])
    _Made = TypeVar("_Made")
    _Name = TypeVar("_Name", bound=str)

MOST = (1 << 63) - 1  # of an extent
_TEXT = (str, bytes, bytearray)
_NO_REALS = (*_TEXT, bool, np.bool_, np.complexfloating, np.ndarray)  # what float() would take, or a part of it


class Immutable:
    """Compared, hashed, pickled and shown by its arguments: the slots whose names have no underscore in front."""

    __slots__: tuple[str, ...] = ("__weakref__",)
    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        slots = (name for base in reversed(cls.__mro__) for name in base.__dict__.get("__slots__", ()))
        cls._names = tuple(name for name in slots if name[0] != "_")

    def _keep(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _arguments(self) -> tuple[tuple[str, Any], ...]:
        return tuple((name, getattr(self, name)) for name in self._names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Immutable):
            return NotImplemented
        return self is other or (type(self) is type(other) and self._arguments() == other._arguments())

    def __hash__(self) -> int:
        return hash(self._arguments())

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self._arguments())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._arguments())})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be deleted")


def _restore(cls: Callable[..., _Made], arguments: tuple[tuple[str, Any], ...]) -> _Made:
    return cls(**dict(arguments))


def documented(made: type, method: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Decorate the one-call form of an operator's method: its docstring takes the formulas and sections of the operator and
    the method, the operator's notes, and the function's own example."""

    def decorate(function: _Function) -> _Function:
        own, of_made, of_method = (_sections(given.__doc__) for given in (function, made, method))
        if not own or not of_made or not of_method:  # python -OO
            return function
        order = list(inspect.signature(function).parameters)
        entries = [entry for doc in (of_made, of_method) for entry in re.split(r"\n(?=\S)", doc["Parameters"])]
        entries.sort(key=lambda entry: order.index(re.split(r"\W", entry, maxsplit=1)[0]))
        of_method.pop("Examples")
        summary = "\n\n".join((own[""], of_made[""].partition("\n\n")[2], of_method[""]))
        parts = {**of_method, "": summary, "Parameters": "\n".join(entries), "Notes": of_made["Notes"],
                 "Examples": own["Examples"]}
        text = "\n\n".join(f"{name}\n{'-' * len(name)}\n{text}" if name else text for name, text in parts.items())
        function.__doc__ = re.sub(r"(?<=[Aa]s in `)(?=\w+`)", f"{made.__name__}.", text)
        return function

    return decorate


def _sections(doc: str | None) -> dict[str, str]:
    """{heading: text} of a docstring; the text before the first heading has the heading ""."""
    parts = re.split(r"\n\n?([A-Z]\w+)\n-+\n", "\n" + inspect.cleandoc(doc or "").strip())
    return {name: text.strip() for name, text in zip(["", *parts[1::2]], parts[::2], strict=True)} if doc else {}


def index(value: SupportsIndex) -> int:
    """The value as an integer; a TypeError if it is none, or a bool."""
    if isinstance(value, (bool, np.bool_)):  # the latter is an index to older NumPy
        raise TypeError
    return operator.index(value)


def integer(name: str, value: SupportsIndex, least: int = 1) -> int:
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer of at least {least}, got {shown(value)}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {shown(value)}")
    if number > MOST:
        raise ValueError(f"{name} must be at most {MOST}, got {shown(value)}")
    return number


def integers(name: str, values: SupportsIndex | Iterable[SupportsIndex], alone: bool = False) -> tuple[int, ...]:
    """`alone`: an integer that is in no sequence will do, too."""
    given: Any = values.tolist() if isinstance(values, np.ndarray) else values
    try:
        if isinstance(given, _TEXT):
            raise TypeError
        return tuple(index(value) for value in ((given,) if alone and isinstance(given, SupportsIndex) else given))
    except (TypeError, NotImplementedError):  # the latter of a memoryview of several dimensions
        allowed = "an integer or a sequence of integers" if alone else "a sequence of integers"
        raise TypeError(f"{name} must be {allowed}, got {shown(values)}") from None


def finite(name: str, value: SupportsFloat, least: float = -math.inf, most: float = math.inf) -> float:
    allowed = "" if least == -math.inf else f" of at least {least:g}" if most == math.inf else f" within [{least:g}, {most:g}]"
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    try:
        if isinstance(value, _NO_REALS):
            raise TypeError
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a finite number{allowed}, got {shown(value)}") from None
    if not math.isfinite(number) or not least <= number <= most:
        raise ValueError(f"{name} must be a finite number{allowed}, got {shown(value)}")
    return number + 0.0  # no -0, which an equal operator might have as 0


def share(name: str, value: SupportsFloat) -> float:
    return finite(name, value, 0, 1)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def choice(name: str, value: _Name, allowed: Sequence[_Name]) -> _Name:
    if isinstance(value, str) and value in allowed:
        return allowed[allowed.index(value)]  # a plain string: of a member of an enumeration, its value
    refusal = f"{name} must be one of {', '.join(map(repr, allowed))}, got {shown(value)}"
    if not isinstance(value, str):
        raise TypeError(refusal)
    raise ValueError(refusal + hint(value, allowed))
