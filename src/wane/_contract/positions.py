"""The line of every key of a contract file, so that a finding can name it: a parser of TOML reports values only.

The text is known to be valid TOML. Where the scanner does not understand it, the rest has no lines; nothing fails.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}#\n]+")

KeyParts = tuple[str | int, ...]
"""The path of a key; the empty one stands for the file."""


def scan_lines(text: str) -> dict[KeyParts, int]:
    """Return the line of each key, table and element of a list, by its path."""
    scanner = _Scanner(text)
    with suppress(_Unreadable, RecursionError):
        scanner.scan()
    return scanner.lines


def nearest_line(lines: Mapping[KeyParts, int], path: Sequence[object]) -> int | None:
    """Return the line of a key, or, if the file does not have it, of the table that it should be in."""
    parts = tuple(part if isinstance(part, int) else str(part) for part in path)
    return next((lines[parts[:end]] for end in range(len(parts), -1, -1) if parts[:end] in lines), None)


class _Unreadable(Exception):
    """The scanner does not understand the text."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyParts, int] = {}
        self._line, self._counted = 1, 0
        self._elements: dict[KeyParts, int] = {}
        """How many elements a list of tables (`[[name]]`) has so far."""

    def scan(self) -> None:
        table: KeyParts = ()
        while self._skip(_BLANK) < len(self.text):
            if self._accept("[["):
                name = self._inside(self._key())
                self._elements[name] = self._elements.get(name, -1) + 1
                table = (*name, self._elements[name])
                self._note(table)
                self._require("]]")
            elif self._accept("["):
                table = self._inside(self._key())
                self._note(table)
                self._require("]")
            else:
                self._pair(table)

    def _inside(self, key: KeyParts) -> KeyParts:
        """Return a table's path, with the last element of each list of tables that it is in."""
        path: KeyParts = ()
        for number, part in enumerate(key, 1):
            path = (*path, part)
            if number < len(key) and path in self._elements:
                path = (*path, self._elements[path])
        return path

    def _pair(self, table: KeyParts) -> None:
        path = (*table, *self._key())
        self._note(path)
        self._require("=")
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: KeyParts) -> None:
        if self._accept("["):
            self._elements_of(path)
        elif self._accept("{"):
            while not self._closed("}"):
                self._pair(path)
        else:
            self._take(_TEXT if self.text[self.at : self.at + 1] in ("'", '"') else _PLAIN)

    def _elements_of(self, path: KeyParts) -> None:
        number = 0
        while not self._closed("]"):
            self._note((*path, number))
            self._value((*path, number))
            number += 1

    def _closed(self, end: str) -> bool:
        """Skip what separates elements; return whether the list or table ends here."""
        self._skip(_BLANK)
        if self._accept(","):
            self._skip(_BLANK)
        return self._accept(end)

    def _key(self) -> KeyParts:
        parts: KeyParts = ()
        while True:
            self._skip(_SPACE)
            if self.text[self.at : self.at + 1] in ("'", '"'):
                parts = (*parts, tomllib.loads(f"key = {self._take(_TEXT)}")["key"])
            else:
                parts = (*parts, self._take(_BARE_KEY))
            self._skip(_SPACE)
            if not self._accept("."):
                return parts

    def _note(self, path: KeyParts) -> None:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], self._line)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self.text, self.at)
        self.at = self.at if found is None else found.end()
        return self.at

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise _Unreadable
        self.at = found.end()
        return found[0]

    def _accept(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def _require(self, mark: str) -> None:
        self._skip(_SPACE)
        if not self._accept(mark):
            raise _Unreadable
