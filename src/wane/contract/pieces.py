"""Reading pieces of a contract file, and turning what pydantic says about them into sentences for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wane.contract.names import join_name
from wane.findings import Finding, Severity, did_you_mean

P = TypeVar("P", bound=BaseModel)

KINDS = {str: "text", bool: "a boolean", int: "a whole number", float: "a number", list: "a list", dict: "a table"}
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


class Mistakes:
    """Collects what is wrong with one file, so that everything is told at once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []

    def error(self, path: Sequence[object], code: str, message: str, fix: str = "") -> None:
        self._add(Severity.ERROR, path, code, message, fix)

    def warning(self, path: Sequence[object], code: str, message: str, fix: str = "") -> None:
        self._add(Severity.WARNING, path, code, message, fix)

    def _add(self, severity: Severity, path: Sequence[object], code: str, message: str, fix: str) -> None:
        table = str(path[1]) if len(path) > 1 and path[0] in ("table", "excused", "archive", "floor") else ""
        self.findings.append(Finding(severity, code, message, fix, self.file, key_path(path), table))

    def read(self, model: type[P], data: object, path: Sequence[object]) -> P | None:
        """Validate one piece; None if it has mistakes, which are then collected."""
        if not isinstance(data, dict):
            self.error(path, "wrong-type", f"found {describe(data)}, expected a table")
            return None
        try:
            return model.model_validate(data)
        except ValidationError as problems:
            for problem in problems.errors():
                self._explain(model, data, path, problem)
            return None

    def _explain(
        self, model: type[BaseModel], data: Mapping[str, Any], path: Sequence[object], problem: ErrorDetails
    ) -> None:
        place = [*path, *(part for part in problem["loc"] if not str(part).startswith("function-"))]
        kind = problem["type"]
        if kind == "missing":
            self.error(place, "missing-key", "missing", f"add `{place[-1]} = …`")
        elif kind == "extra_forbidden":
            allowed = allowed_keys(model, data, list(problem["loc"])[:-1])
            fix = " ".join(
                part for part in (did_you_mean(place[-1], allowed), f"allowed: {', '.join(allowed)}") if part
            )
            self.error(place, "unknown-key", "unknown key", fix)
        elif kind == "value_error":
            message, _, fix = str(problem["ctx"]["error"]).partition(": ")
            self.error(place, "wrong-value", message, fix) if fix else self.error(place, "wrong-value", message)
        elif kind in ("greater_than_equal", "less_than_equal"):
            limit = problem["ctx"].get("ge", problem["ctx"].get("le"))
            word = "least" if kind == "greater_than_equal" else "most"
            self.error(place, "wrong-value", f"found {problem['input']}, expected at {word} {limit}")
        else:
            expected = _EXPECTED.get(kind, problem["msg"])
            self.error(place, "wrong-type", f"found {describe(problem['input'])}, expected {expected}")


def allowed_keys(model: type[BaseModel], data: Mapping[str, Any], loc: Sequence[object]) -> list[str]:
    """The keys that the piece at `loc` inside a model may have."""
    del data
    for part in loc:
        inner = _inner_model(model, part)
        if inner is not None:
            model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _inner_model(model: type[BaseModel], part: object) -> type[BaseModel] | None:
    for name, field in model.model_fields.items():
        if part in (name, field.alias):
            return _model_in(field.annotation)
    return None


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(getattr(argument, "__origin__", argument) if hasattr(argument, "__metadata__") else argument)
        if found is not None:
            return found
    return None


def describe(value: object) -> str:
    """What was found, for a person: `7 (a whole number)`, `a list`."""
    kind = KINDS.get(type(value), type(value).__name__)
    return f"{value!r} ({kind})" if isinstance(value, str | bool | int | float) else kind


def key_path(path: Sequence[object]) -> str:
    """A dotted key as it would be written in TOML."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + join_name([str(part)])
    return text
