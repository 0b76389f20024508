"""Frozen dataclasses that are quick to define.

`dataclass(frozen=True, slots=True)` writes and compiles six functions for every class, which was a third of the time
that a short command takes. Here all classes share these functions, and `__init__` is compiled when the first instance
is made. The modules that `wane plan` imports use it, and `tests/cli/test_imports.py` keeps it so; where no command
waits for the import, the standard decorator does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from inspect import Signature

_T = TypeVar("_T")


@overload
def frozen(cls: type[_T], /) -> type[_T]: ...
@overload
def frozen(*, kw_only: bool) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Make a dataclass with slots whose instances never change, and are compared and hashed by their values."""
    if cls is None:
        return partial(_frozen, kw_only=kw_only)
    return _frozen(cls)


def _frozen(cls: Any, *, kw_only: bool = False) -> Any:
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    made.__frozen_values__ = staticmethod(_values([one.name for one in fields(made) if one.compare]))
    for name, function in _SHARED.items():
        if name not in cls.__dict__:
            setattr(made, name, function)
    if "__init__" not in cls.__dict__:
        made.__init__ = _initializer(made)
        made.__signature__ = _SIGNATURE
    return made


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)  # A getter of one name returns no tuple.


def _initializer(cls: Any) -> Callable[..., None]:
    def compile_and_call(self: Any, *values: Any, **named: Any) -> None:
        cls.__init__ = _compiled(cls)
        cls.__init__(self, *values, **named)

    return compile_and_call


def _compiled(cls: Any) -> Callable[..., None]:
    """Write `__init__`, which sets slots by their descriptors, because `__setattr__` refuses."""
    names: dict[str, Any] = {}
    positional, named = ["self"], list[str]()
    lines = []
    for one in fields(cls):
        name, parameter, value = one.name, one.name, one.name
        if one.default is not MISSING:
            names[f"_default_{name}"] = one.default
            parameter, value = f"{name}=_default_{name}", name if one.init else f"_default_{name}"
        elif one.default_factory is not MISSING:
            names[f"_make_{name}"] = one.default_factory
            made = f"_make_{name}()"
            parameter, value = f"{name}=_missing", f"{made} if {name} is _missing else {name}" if one.init else made
        elif not one.init:
            continue  # `__post_init__` sets it.
        if one.init:
            (named if one.kw_only else positional).append(parameter)
        names[f"_set_{name}"] = getattr(cls, name).__set__
        lines.append(f" _set_{name}(self, {value})\n")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()\n")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    exec(f"def __init__({parameters}):\n{''.join(lines) or ' pass'}", {**names, "_missing": MISSING}, names)
    compiled: Callable[..., None] = names["__init__"]
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"
    return compiled


class _InitSignature:
    """Shows to `help()` and to `inspect` what `__init__` will accept once it is compiled."""

    def __get__(self, instance: object, owner: Any) -> Signature:
        from inspect import signature

        whole = signature(_compiled(owner))
        return whole.replace(parameters=list(whole.parameters.values())[1:])


class _Shared:
    """Holds the functions that all these classes have in common."""

    __frozen_values__: Callable[[Any], tuple[Any, ...]]

    def __eq__(self, other: Any) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(self.__frozen_values__(self) == self.__frozen_values__(other))

    def __hash__(self) -> int:
        return hash(self.__frozen_values__(self))

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{self.__class__.__qualname__}({shown})"

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, one.name) for one in fields(self)]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for one, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, one.name, value)


_SIGNATURE = _InitSignature()
_SHARED = {name: one for name, one in vars(_Shared).items() if callable(one)}
