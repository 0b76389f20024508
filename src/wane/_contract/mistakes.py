"""Validating parts of a contract file, and turning pydantic's errors into sentences for users."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from functools import cache, lru_cache
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from wane._contract.entries import Entry
from wane._contract.positions import KeyParts, nearest_line
from wane._contract.refused import Refused
from wane._contract.settings import Section
from wane._findings import Finding, Severity, did_you_mean

M = TypeVar("M")

KINDS = {
    str: "text",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
    datetime: "a date with a time",
    date: "a date",
    time: "a time of day",
}
_EXPECTED = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "dataclass_type": "a table",
}
_LIMITS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
}
"""What is expected, by the kind of pydantic's error and in terms of its context."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_VALIDATOR = re.compile(r"function-(before|after|wrap|plain)\[|\[key\]$")
_PASSWORD = re.compile(r"(:/+[^:/?#\s]*):.*@", re.DOTALL)  # One slash: a URL parsed as a path loses the other.
_SECRET_QUERY = re.compile(r"(?i)\b(password|sslpassword)=[^&\s'\"]*")
_MOST_CHARACTERS = 400
"""The most characters shown of one part of a finding: a file may hold megabytes where a name is expected."""


class Mistakes:
    """Collects the mistakes of one file, so that all are reported at once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []
        self.lines: Mapping[KeyParts, int] = {}
        """The lines of the file's keys."""

    def error(self, path: Sequence[object], code: str, message: str, fix: str = "") -> None:
        self._add(Severity.ERROR, path, code, message, fix)

    def warning(self, path: Sequence[object], code: str, message: str, fix: str = "") -> None:
        self._add(Severity.WARNING, path, code, message, fix)

    def _add(self, severity: Severity, path: Sequence[object], code: str, message: str, fix: str) -> None:
        table = str(path[1]) if len(path) > 1 and path[0] in ("table", "excused", "archive", "floor") else ""
        texts = [_plain(mask(text)) for text in (message, fix, self.file, key_path(path), table)]
        message, fix, file, key, table = texts
        line = nearest_line(self.lines, path)
        self.findings.append(Finding(severity, code, message, fix, file, key, table, line))

    def refuse(self, path: Sequence[object], code: str, problem: ValueError) -> None:
        """Record why a value was refused."""
        refused = problem if isinstance(problem, Refused) else Refused(str(problem))
        self._add(Severity.ERROR, path, code, refused.message, refused.fix)

    def unknown(
        self, path: Sequence[object], word: object, message: str, allowed: Iterable[str], code: str = "unknown-key"
    ) -> None:
        """Record a word that is not among the allowed ones."""
        allowed = list(allowed)
        hint = did_you_mean(word, allowed)
        self._add(Severity.ERROR, path, code, message, f"{hint} allowed: {', '.join(allowed)}".strip())

    def read(self, model: type[M], data: object, path: Sequence[object]) -> M | None:
        """Validate one entry or section; collect its mistakes and return None if it has any."""
        if not isinstance(data, dict):
            self.error(path, "wrong-type", f"found {describe(data)}, expected a table")
            return None
        try:
            read: M = _adapter(cast(type, model)).validate_python(data)
        except ValidationError as problems:
            for problem in problems.errors():
                self._explain(model, path, problem)
            return None
        return read

    def _explain(self, model: type, path: Sequence[object], problem: ErrorDetails) -> None:
        path = [*path, *(part for part in problem["loc"] if not _VALIDATOR.match(str(part)))]
        kind, found = problem["type"], describe(problem["input"])
        if kind == "missing":
            self.error(path, "missing-key", "missing", f"add `{path[-1]} = …`")
        elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
            self.unknown(path, path[-1], "unknown key", allowed_keys(model, problem["loc"][:-1]))
        elif kind == "value_error":
            self.refuse(path, "wrong-value", problem["ctx"]["error"])
        elif kind == "recursion_loop":
            self.error(path, "wrong-value", "nested too deeply")
        elif kind in _LIMITS:
            self.error(path, "wrong-value", f"found {found}, expected {_LIMITS[kind].format(**problem['ctx'])}")
        else:
            self.error(path, "wrong-type", f"found {found}, expected {_EXPECTED.get(kind, problem['msg'])}")


@cache
def _adapter(model: type) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def allowed_keys(model: type, loc: Sequence[object]) -> list[str]:
    """Return the keys that are allowed at `loc` inside an entry or a section."""
    for part in loc:
        model = _model_in(_keys(model).get(str(part))) or model
    return [*_keys(model), *(model.read_apart if issubclass(model, Entry) else ())]


def _keys(model: type) -> dict[str, Any]:
    """Return the types of a model's values, by their keys in the file."""
    if issubclass(model, Entry):
        return {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return get_type_hints(model)


def _model_in(annotation: object) -> type | None:
    if isinstance(annotation, type) and issubclass(annotation, Entry | Section):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(getattr(argument, "__origin__", argument) if hasattr(argument, "__metadata__") else argument)
        if found is not None:
            return found
    return None


def describe(value: object) -> str:
    """Describe a value for a user: `7 (a whole number)`, `true (a boolean)`, `a list`."""
    kind = KINDS.get(type(value), type(value).__name__)
    if isinstance(value, bool):
        return f"{str(value).lower()} ({kind})"
    return f"{value!r} ({kind})" if isinstance(value, str | int | float) else kind


def key_path(path: Sequence[object]) -> str:
    """Write a dotted key as in TOML, with positions in lists in brackets."""
    text = ""
    for part in path:
        text = append_key(text, part)
    return text


def append_key(text: str, part: object) -> str:
    """Write a dotted key that has one part more."""
    if isinstance(part, int):
        return f"{text}[{part}]"
    return f"{text}.{_key(str(part))}" if text else _key(str(part))


@lru_cache(maxsize=1_000)  # The same keys at every reading of a contract's tables.
def _key(part: str) -> str:
    if _BARE_KEY.fullmatch(part):
        return part
    if '"' in part and "'" not in part and part.isprintable():
        return f"'{part}'"
    return json.dumps(part, ensure_ascii=False).replace("\x7f", "\\u007f")


def mask(text: str) -> str:
    """Return the text with the passwords of URLs masked. It hides too much rather than too little."""
    return _SECRET_QUERY.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text))


def _plain(text: str) -> str:
    """Shorten a text and escape control characters, which a terminal would interpret."""
    short = text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"
    if short.isprintable():
        return short
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in short)
