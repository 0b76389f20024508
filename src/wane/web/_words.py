"""Numbers, times and keys as the pages write them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from wane._db.counting import Count, Exactness, Figure

_SIGNS = {Exactness.EXACT: "", Exactness.ESTIMATE: "~", Exactness.AT_LEAST: "≥ ", Exactness.AT_MOST: "≤ "}


def count_text(count: Count | None) -> str:
    """Write a count with the sign of how exact it is; a question mark if it is unknown."""
    return "?" if count is None else f"{_SIGNS[count.exactness]}{count.rows:,}"


def share_text(share: Figure | None) -> str:
    return "" if share is None else f"{_SIGNS[share.exactness]}{share.value:.1%}"


def time_text(at: datetime | None) -> str:
    """Write a time in UTC, to the second; a dash if there is none."""
    return "–" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def span_text(seconds: float | None) -> str:
    """Write a duration roughly: 12 s, 3 min, 2.5 h, 4 d."""
    if seconds is None:
        return "–"
    for size, word in ((172_800, "d"), (7_200, "h"), (120, "min")):
        if seconds >= size:
            unit = {"d": 86_400, "h": 3_600, "min": 60}[word]
            return f"{seconds / unit:.3g} {word}"
    return f"{seconds:.0f} s"


def bytes_text(size: float | None) -> str:
    if size is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:.3g} TB"


def ago_text(at: datetime | None, now: datetime) -> str:
    return "never" if at is None else f"{span_text(max((now - at).total_seconds(), 0))} ago"


def path_text(text: object) -> str:
    """Write a name as a part of a path; a slash in it stays one name."""
    return quote(str(text), safe="")


def asked_text(inputs: Mapping[str, Any]) -> str:
    """Write what a restore was asked for: its keys by their columns, or its condition, month or sweep."""
    if keys := inputs.get("keys") or ([inputs["key"]] if "key" in inputs else []):
        return "; ".join(", ".join(f"{name} = {value}" for name, value in key.items()) for key in keys)
    chosen = [f"{name} {inputs[name]}" for name in ("where", "month", "sweep", "restore") if name in inputs]
    return ", ".join(chosen).removeprefix("where ")


FILTERS: dict[str, Any] = {
    "asked": asked_text,
    "count": count_text,
    "share": share_text,
    "time": time_text,
    "span": span_text,
    "bytes": bytes_text,
    "path": path_text,
    "number": lambda value: "–" if value is None else f"{value:,}",
}
