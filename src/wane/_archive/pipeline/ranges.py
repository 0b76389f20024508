"""Cutting what is due into ranges along (time, key): each small enough for one task, found by walking the rule's index.

No row is read: only the positions where a range ends. The ranges are frozen in the journal, so that a sweep which is
resumed copies the same ones; which rows they hold is decided when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from wane._archive.rows.sql import ArchiveRows
from wane._db import Store

_SECONDS = 600.0
"""The longest that finding one range may take."""


def cut(
    store: Store,
    archive: ArchiveRows,
    now: datetime,
    *,
    range_rows: int,
    sweep_rows: int,
    behind: Sequence[Any] | None = None,
    proceeding: Callable[[], bool] = lambda: True,
) -> tuple[list[dict[str, Any]], bool]:
    """Return the ranges of what is due, at most `sweep_rows` rows in all, and whether more is due behind them.

    `behind`: the position, as a range has it, where the first of them begins.
    """
    ranges: list[dict[str, Any]] = []
    floor = None if behind is None else _values(behind)
    rows = 0
    while rows < sweep_rows and proceeding():
        limit = min(range_rows, sweep_rows - rows)
        found: list[tuple[Any, ...]] = [
            (limit, *one) for one in store.read(archive.ceiling(now, limit, floor), _SECONDS)
        ] or store.read(archive.rest(now, limit, floor), _SECONDS)
        if not found:
            break
        count, *ceiling = found[0]
        ranges.append({"floor": None if floor is None else _plain(floor), "ceiling": _plain(ceiling), "rows": count})
        floor = ceiling
        rows += count
        if count < limit:
            return ranges, False
    return ranges, bool(ranges) and bool(store.read(archive.ceiling(now, 1, floor), _SECONDS))


def bounds(archive: ArchiveRows, found: dict[str, Any], store: Store, now: datetime) -> str:
    """Write the condition that a row lies in a range of what is due, with its values as literals."""
    floor = found["floor"]
    return store.literal(archive.bounds(None if floor is None else _values(floor), _values(found["ceiling"]), now))


def open_bounds(archive: ArchiveRows, floor: Sequence[Any] | None, store: Store, now: datetime) -> str:
    """Write the condition that a row that is due lies behind a position, or anywhere if there is none."""
    return store.literal(archive.behind(None if floor is None else _values(floor), now))


def _plain(position: Sequence[object]) -> list[Any]:
    return [{"blob": one.hex()} if isinstance(one, bytes) else one for one in position]


def _values(position: Sequence[Any]) -> list[object]:
    return [bytes.fromhex(one["blob"]) if isinstance(one, dict) else one for one in position]
