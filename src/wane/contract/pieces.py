"""Reading pieces of a contract file, and turning pydantic's errors into sentences for users."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from wane.contract.document import Piece
from wane.contract.refused import Refused
from wane.findings import Finding, Severity, did_you_mean

P = TypeVar("P", bound=Piece)

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
}
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

    def error(self, path: Sequence[object], code: str, message: str, fix: str = "") -> None:
        self._add(Severity.ERROR, path, code, message, fix)

    def warning(self, path: Sequence[object], code: str, message: str, fix: str = "") -> None:
        self._add(Severity.WARNING, path, code, message, fix)

    def _add(self, severity: Severity, path: Sequence[object], code: str, message: str, fix: str) -> None:
        table = str(path[1]) if len(path) > 1 and path[0] in ("table", "excused", "archive", "floor") else ""
        texts = (message, fix, self.file, key_path(path), table)
        self.findings.append(Finding(severity, code, *(_plain(mask(text)) for text in texts)))

    def refuse(self, path: Sequence[object], code: str, problem: ValueError) -> None:
        """Record why a value was refused."""
        told = problem if isinstance(problem, Refused) else Refused(str(problem))
        self._add(Severity.ERROR, path, code, told.message, told.fix)

    def unknown(
        self, path: Sequence[object], word: object, message: str, allowed: Iterable[str], code: str = "unknown-key"
    ) -> None:
        """Record a word that is not among the allowed ones."""
        allowed = list(allowed)
        hint = did_you_mean(word, allowed)
        self._add(Severity.ERROR, path, code, message, f"{hint} allowed: {', '.join(allowed)}".strip())

    def read(self, model: type[P], data: object, path: Sequence[object]) -> P | None:
        """Validate one piece; collect its mistakes and return None if it has any."""
        if not isinstance(data, dict):
            self.error(path, "wrong-type", f"found {describe(data)}, expected a table")
            return None
        try:
            return model.model_validate(data)
        except ValidationError as problems:
            for problem in problems.errors():
                self._explain(model, path, problem)
            return None

    def _explain(self, model: type[Piece], path: Sequence[object], problem: ErrorDetails) -> None:
        place = [*path, *(part for part in problem["loc"] if not _VALIDATOR.match(str(part)))]
        kind = problem["type"]
        if kind == "missing":
            self.error(place, "missing-key", "missing", f"add `{place[-1]} = …`")
        elif kind == "extra_forbidden":
            self.unknown(place, place[-1], "unknown key", allowed_keys(model, problem["loc"][:-1]))
        elif kind == "value_error":
            self.refuse(place, "wrong-value", problem["ctx"]["error"])
        elif kind == "greater_than":
            self.error(
                place, "wrong-value", f"found {describe(problem['input'])}, expected more than {problem['ctx']['gt']}"
            )
        elif kind in ("greater_than_equal", "less_than_equal"):
            limit = problem["ctx"].get("ge", problem["ctx"].get("le"))
            word = "least" if kind == "greater_than_equal" else "most"
            self.error(place, "wrong-value", f"found {describe(problem['input'])}, expected at {word} {limit}")
        elif kind == "literal_error":
            found, expected = describe(problem["input"]), problem["ctx"]["expected"]
            self.error(place, "wrong-value", f"found {found}, expected {expected}")
        elif kind == "recursion_loop":
            self.error(place, "wrong-value", "nested too deeply")
        else:
            expected = _EXPECTED.get(kind, problem["msg"])
            self.error(place, "wrong-type", f"found {describe(problem['input'])}, expected {expected}")


def allowed_keys(model: type[Piece], loc: Sequence[object]) -> list[str]:
    """Return the keys that the piece at `loc` inside a model may have."""
    for part in loc:
        model = _inner_model(model, part) or model
    return [*(field.alias or name for name, field in model.model_fields.items()), *model.also]


def _inner_model(model: type[Piece], part: object) -> type[Piece] | None:
    for name, field in model.model_fields.items():
        if part in (name, field.alias):
            return _model_in(field.annotation)
    return None


def _model_in(annotation: object) -> type[Piece] | None:
    if isinstance(annotation, type) and issubclass(annotation, Piece):
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
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + _key(str(part))
    return text


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
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in short)
