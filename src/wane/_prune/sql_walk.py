"""Where walks by key have come to, in Wane's own tables: a sweep goes on where the one before ended."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from wane._db.statement import Dialect, Execute, Parameters
from wane._prune.take import Position
from wane._rules.selection import Selection


class WalkCursors:
    """Reads and writes them through a function that runs statements."""

    def __init__(self, dialect: Dialect, run: Execute) -> None:
        self._dialect = dialect
        self._run = run
        self._table = dialect.own_table("walk")

    def of(self, selection: Selection) -> tuple[Position | None, Position | None]:
        """Return the key behind which the walk of a rule goes on, and the one with which it ends.

        None where it begins with the first key, and where it ends with the last one there is.
        """
        p = Parameters(self._dialect)
        found = self._run(
            f"SELECT key_names, last_key, end_key FROM {self._table} WHERE {_this(p, selection)}", p.values
        )
        for names, key, end in found:
            if _loaded(names) == _names(selection):
                return _key(key), None if end is None else _key(end)
        return None, None

    def move(self, selection: Selection, key: Position, end: Position | None, now: datetime) -> None:
        """Record the last key of a slice, and the one with which the walk ends."""
        p = Parameters(self._dialect)
        values = [
            p.bind("table_name", str(selection.name)),
            p.bind("rule", selection.rule.name),
            self._dialect.json(p.bind("key_names", json.dumps(_names(selection)))),
            *(self._dialect.json(p.bind(name, _stored(one))) for name, one in (("last_key", key), ("end_key", end))),
            p.bind("moved_at", self._dialect.encode_time(now)),
        ]
        columns = ("table_name", "rule", "key_names", "last_key", "end_key", "moved_at")
        changed = ", ".join(f"{name} = excluded.{name}" for name in columns[2:])
        self._run(
            f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES ({', '.join(values)})"
            f" ON CONFLICT (table_name, rule) DO UPDATE SET {changed}",
            p.values,
        )

    def forget(self, selection: Selection) -> None:
        """Record that a walk has reached the end: the next one begins with the first key."""
        p = Parameters(self._dialect)
        self._run(f"DELETE FROM {self._table} WHERE {_this(p, selection)}", p.values)


def _this(p: Parameters, selection: Selection) -> str:
    return f"table_name = {p.bind('table_name', str(selection.name))} AND rule = {p.bind('rule', selection.rule.name)}"


def _names(selection: Selection) -> list[str]:
    return [column.name for column in selection.key]


def _loaded(stored: Any) -> Any:
    return json.loads(stored) if isinstance(stored, str) else stored


def _stored(key: Position | None) -> str | None:
    return None if key is None else json.dumps(list(map(_encode, key)))


def _key(stored: Any) -> Position:
    return tuple(map(_decode, _loaded(stored)))


def _encode(value: object) -> object:
    """Return a part of a key as JSON has it, which has no blobs."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _decode(value: Any) -> object:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
