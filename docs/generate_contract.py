"""Rewrite the tables of settings in docs/reference/contract.md from the classes that declare the settings.

A table stands between `<!-- settings: NAME -->` and `<!-- end -->`; NAME is a section or one of `_ENTRIES`.
`make docs` runs this, and a test fails when the page is behind.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

from wane._contract import toml
from wane._contract.duration import format_duration
from wane._contract.entries import ArchiveTableEntry, Entry, PartitionEntry, SchedulerEntry
from wane._contract.schema import json_schema
from wane._contract.settings import SECTIONS, OutboxSettings, Section
from wane._contract.values import MOST_ROWS, Between

PAGE = Path(__file__).with_name("reference") / "contract.md"
_ENTRIES: dict[str, type[Entry | Section]] = {
    "scheduler.<name>": SchedulerEntry,
    "events.outbox": OutboxSettings,
    "archive.<table>": ArchiveTableEntry,
    "partition.<table>": PartitionEntry,
}
_TABLE = re.compile(r"(?<=<!-- settings: )([^\n]+?)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def generated(page: str) -> str:
    """Return the text of the page with its tables generated anew."""
    models = {**SECTIONS, **_ENTRIES}
    shown = re.findall(r"<!-- settings: ([^\n]+?) -->", page)
    if sorted(shown) != sorted(models):
        raise SystemExit(f"{PAGE}: tables of {sorted(shown)}, expected of {sorted(models)}")
    return _TABLE.sub(lambda match: f"{match[1]}{match[2]}{_table(models[match[1]])}", page)


def _table(model: type[Entry | Section]) -> str:
    properties = json_schema()["$defs"][model.__name__]["properties"]
    lines = ["| key | default | value | |", "|---|---|---|---|"]
    for key, default, annotation, description in _settings(model):
        lines.append(f"| `{key}` | {_default(default)} | {_value(annotation, properties[key])} | {description} |")
    return "".join(f"{line}\n" for line in lines)


def _settings(model: type[Entry | Section]) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield the key, default, type and description of each setting."""
    if issubclass(model, Entry):
        for name, field in model.model_fields.items():
            default = ... if field.is_required() else field.get_default(call_default_factory=True)
            yield field.alias or name, default, field, field.description or ""
        return
    hints = get_type_hints(model, include_extras=True)
    for field in dataclasses.fields(model):  # type: ignore[arg-type]
        default = ... if field.default is dataclasses.MISSING else field.default
        yield field.name, default, hints[field.name], field.metadata["description"]


def _default(value: Any) -> str:
    if value is ...:
        return "required"
    if value is None or value in ((), [], {}):
        return ""
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, timedelta):
        return toml.value(format_duration(value))
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return str(value) if isinstance(value, float) else toml.value(value)


def _value(annotation: Any, schema: dict[str, Any]) -> str:
    """Describe the values that a setting may have."""
    bounds = next(
        (
            one
            for one in getattr(annotation, "metadata", ()) or getattr(annotation, "__metadata__", ())
            if isinstance(one, Between)
        ),
        None,
    )
    if bounds is not None:
        whole = bounds == Between()
        return "a duration" if whole else f"{format_duration(bounds.least)} to {format_duration(bounds.most)}"
    if "enum" in schema:
        return ", ".join(f'`"{one}"`' for one in schema["enum"])
    if "anyOf" in schema:
        return ", ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    return _kind(schema)


def _kind(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "pattern" in schema and schema["pattern"] == Between().schema()["pattern"]:
        return "a duration"
    kind = schema.get("type", "object")
    if kind == "integer":
        most = schema["maximum"]
        return f"{schema['minimum']:,} or more" if most == MOST_ROWS else f"{schema['minimum']:,} to {most:,}"
    if kind == "number":
        return f"above {schema['exclusiveMinimum']:,}, up to {schema['maximum']:,}"
    return {"boolean": "`true`, `false`", "string": "a text", "array": "a list", "object": "a table"}[kind]


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
