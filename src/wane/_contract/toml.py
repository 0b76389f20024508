"""Writing TOML: texts, keys and comments that any parser reads back exactly, whatever a database's names contain.

Everything that is not printable is escaped, so that a line break or a bidirectional control character in a name is
visible, and no name can break out of its string or its comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def text(value: str) -> str:
    """Write a string in double quotes."""
    return '"' + "".join(_SHORT.get(mark) or _visible(mark) for mark in value) + '"'


def key(name: str) -> str:
    """Write a key: bare where TOML allows it, else in quotes."""
    return name if _BARE_KEY.fullmatch(name) else text(name)


def value(item: object) -> str:
    """Write a text, a whole number, a boolean, a list, or a mapping as an inline table."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return str(item)
    if isinstance(item, str):
        return text(item)
    if isinstance(item, Mapping):
        return "{ " + ", ".join(f"{key(name)} = {value(inner)}" for name, inner in item.items()) + " }"
    if isinstance(item, Iterable):
        return "[" + ", ".join(value(inner) for inner in item) + "]"
    raise TypeError(f"{type(item).__name__} cannot be written in a contract")


def comment(sentence: str) -> str:
    """Write a comment of exactly one line."""
    return "# " + "".join(_visible(mark) for mark in sentence)


def _visible(mark: str) -> str:
    if mark.isprintable():
        return mark
    return f"\\u{ord(mark):04X}" if ord(mark) <= 0xFFFF else f"\\U{ord(mark):08X}"
