"""Numbers, times and keys as the pages write them: as commands do, but for a dash where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from wane._formats import count_text, seconds_text, share_text, size_text, time_text

_NONE = "–"


def span_text(seconds: float | None) -> str:
    return _NONE if seconds is None else seconds_text(seconds) or "0 s"


def ago_text(at: datetime | None, now: datetime) -> str:
    return "never" if at is None else f"{span_text(max((now - at).total_seconds(), 0))} ago"


def path_text(text: object) -> str:
    """Write a name as a part of a path; a slash in it stays one name."""
    return quote(str(text), safe="")


def inputs_text(inputs: Mapping[str, Any]) -> str:
    """Format what a restore selects: its keys by their columns, or its condition, month or sweep."""
    if keys := inputs.get("keys") or ([inputs["key"]] if "key" in inputs else []):
        return "; ".join(", ".join(f"{name} = {value}" for name, value in key.items()) for key in keys)
    chosen = [f"{name} {inputs[name]}" for name in ("where", "month", "sweep", "restore") if name in inputs]
    return ", ".join(chosen).removeprefix("where ")


FILTERS: dict[str, Any] = {
    "inputs": inputs_text,
    "count": count_text,
    "share": share_text,
    "time": lambda at: time_text(at) or _NONE,
    "span": span_text,
    "bytes": lambda size: _NONE if size is None else size_text(size),
    "path": path_text,
    "number": lambda value: _NONE if value is None else f"{value:,}",
}
