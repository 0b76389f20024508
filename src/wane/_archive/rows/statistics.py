"""Minima and maxima of a file, as Delta Lake writes them: readers skip files by them.

They are values of rows, and the log retains them longer than the rows. So texts, which name people more often than
times and numbers do, have none unless the contract requests them.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from typing import Any

from wane._archive.rows.names import column_name

_MILLISECOND = timedelta(milliseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC) - _MILLISECOND
_MOST_TEXT = 32


def statistics(footer: Any, texts: Collection[str]) -> dict[str, Any]:
    """Build the statistics from a Parquet footer: rows, NULLs by column, and minima and maxima of ordered types.

    Text columns have minima and maxima only if they are among `texts`.
    """
    edges: dict[str, tuple[Any, Any]] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            name, known = column.path_in_schema, column.statistics
            if known is None or not known.has_null_count:
                unknown.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + known.null_count
            if not known.has_min_max:
                if known.null_count < footer.row_group(group).num_rows:
                    unknown.add(name)
                continue
            if isinstance(known.min, str) and column_name(name) not in texts:
                continue
            least, most = edges.get(name, (known.min, known.max))
            edges[name] = min(least, known.min), max(most, known.max)
    found = {
        name: (_write(least, up=False), _write(most, up=True))
        for name, (least, most) in edges.items()
        if name not in unknown
    }
    whole = {name: pair for name, pair in found.items() if None not in pair}
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: least for name, (least, _) in whole.items()},
        "maxValues": {name: most for name, (_, most) in whole.items()},
        "nullCount": {name: count for name, count in nulls.items() if name not in unknown},
    }


def _write(value: Any, *, up: bool) -> Any:
    """Encode a minimum or maximum; return None if it has no order that every reader agrees on."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        # They are read with milliseconds: never narrower than the truth.
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        floor = zoned - timedelta(microseconds=zoned.microsecond % 1000)
        if up and floor != zoned:
            if floor > _LAST:
                return None
            floor += _MILLISECOND
        text = floor.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z" if value.tzinfo is not None else text
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, str) and is_whole_text(value) else None


def is_whole_text(value: str) -> bool:
    """Check whether a text is one that the log has as it is: programs cut longer ones, and mark where they did."""
    return len(value) <= _MOST_TEXT and value.isascii() and value.isprintable()
