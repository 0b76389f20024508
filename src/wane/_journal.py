"""The journal: work that takes several transactions, recorded in Wane's own tables.

There is one mechanism for every kind of such work: sweeps, restores and maintenance of the archive, and partitions. A
kind describes its tables; an entry is added in its first state, moves from state to state, and is deleted when its
details are no longer needed. A step writes its entry in the transaction that did the step, under its lease, so the
process that resumes the work knows exactly what was done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from wane._db.statement import Dialect, Execute, Parameters
from wane.errors import LeaseLost

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Codec:
    """How the values of a column are written to the database and read from it."""

    encode: Callable[[Parameters, str, Any], str] = lambda p, name, value: p.bind(name, value)
    decode: Callable[[Dialect, Any], Any] = lambda _, stored: stored


PLAIN = Codec()
TIME = Codec(
    lambda p, name, value: p.bind(name, None if value is None else p.dialect.encode_time(value)),
    lambda dialect, stored: None if stored is None else dialect.decode_time(stored),
)
JSON = Codec(
    lambda p, name, value: p.dialect.json(p.bind(name, json.dumps(value, ensure_ascii=True))),
    lambda _, stored: json.loads(stored) if isinstance(stored, str) else stored,
)
_COLUMNS = {"table": "table_name", "into": "into_name", "rows": "row_count"}
"""The columns of fields whose names are words of SQL."""


def _codec(annotation: Any) -> Codec:
    """Return the codec of a field by its type: objects and lists are JSON."""
    alternatives = get_args(annotation)
    kind = next(one for one in alternatives if one is not NoneType) if NoneType in alternatives else annotation
    if kind is datetime:
        return TIME
    if kind is Any or get_origin(kind) in (dict, list):
        return JSON
    if get_origin(kind) is tuple:
        return Codec(JSON.encode, lambda dialect, stored: _converted(tuple, JSON.decode(dialect, stored)))
    if kind is bool or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        plain = bool if kind is bool else str
        return Codec(lambda p, name, value: p.bind(name, plain(value)), lambda _, stored: _converted(kind, stored))
    return PLAIN


def _converted(kind: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else kind(value)


class JournalTable(Generic[R]):
    """A table of the journal: its rows are entries of a class, whose fields are the columns by name and type."""

    def __init__(
        self,
        name: str,
        entry: Callable[..., R],
        *,
        order: str = "id",
        unfinished: str = "state <> 'done'",
        moves: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Describe a table.

        `unfinished`: the condition that an entry is unfinished, written as in the table's partial index. `moves`: the
        states that may follow each state.
        """
        self.name = name
        self.entry = entry
        self.order = order
        self.unfinished = unfinished
        self.moves = moves or {}
        self.columns = {_COLUMNS.get(field, field): _codec(kind) for field, kind in get_type_hints(entry).items()}


class Entries(Generic[R]):
    """Reads and writes the entries of one table.

    Conditions are values of columns, also of those that are no fields of an entry; a list of values means any of them.
    """

    def __init__(self, table: JournalTable[R], dialect: Dialect, run: Execute) -> None:
        self.table = table
        self._dialect = dialect
        self._run = run
        self._own = dialect.own_table(table.name)
        self._columns = ", ".join(table.columns)

    def add(self, **values: Any) -> R:
        """Add an entry, and return it."""
        p = Parameters(self._dialect)
        [row] = self._run(f"{self._insert(p, values)} RETURNING {self._columns}", p.values)
        return self._entry(row)

    def ensure(self, **values: Any) -> None:
        """Add an entry unless there is one of the same key."""
        p = Parameters(self._dialect)
        self._run(f"{self._insert(p, values)} ON CONFLICT DO NOTHING", p.values)

    def _insert(self, p: Parameters, values: Mapping[str, Any]) -> str:
        written = [self._encode(p, name, value) for name, value in values.items()]
        return f"INSERT INTO {self._own} ({', '.join(values)}) VALUES ({', '.join(written)})"

    def find(
        self,
        *,
        limit: int | None = None,
        newest_first: bool = False,
        known: Sequence[str] = (),
        after: Any = None,
        **equal: Any,
    ) -> list[R]:
        """Return the entries that satisfy the conditions, in order.

        `known`: columns that are not NULL. `after`: only entries behind one, whose column of the order has this value.
        """
        p = Parameters(self._dialect)
        where = " AND ".join([self._where(p, equal), *(f"{name} IS NOT NULL" for name in known)])
        if after is not None:
            where += f" AND {self.table.order} > {self._encode(p, self.table.order, after)}"
        return self._select(p, where, limit=limit, newest_first=newest_first)

    def unfinished(self, **equal: Any) -> list[R]:
        """Return the unfinished entries that satisfy the conditions, in order."""
        p = Parameters(self._dialect)
        return self._select(p, f"{self._where(p, equal)} AND {self.table.unfinished}")

    def ended(self, before: datetime, limit: int, condition: str, **equal: Any) -> list[R]:
        """Return the oldest entries that satisfy the conditions and changed last before a time."""
        p = Parameters(self._dialect)
        where = f"{self._where(p, equal)} AND changed_at < {self._encode(p, 'changed_at', before)} AND {condition}"
        return self._select(p, where, limit=limit)

    def count(self, **equal: Any) -> int:
        p = Parameters(self._dialect)
        [(found,)] = self._run(f"SELECT count(*) FROM {self._own} WHERE {self._where(p, equal)}", p.values)
        return int(found)

    def change(self, equal: Mapping[str, Any], *, add: Mapping[str, int] | None = None, **values: Any) -> list[R]:
        """Set values of the entries that satisfy the conditions, and add numbers to others; return those entries.

        An entry that is changed is locked until the transaction has ended.
        """
        p = Parameters(self._dialect)
        changes = [f"{name} = {self._encode(p, name, value)}" for name, value in values.items()]
        changes += [f"{name} = {name} + {p.bind(name, number)}" for name, number in (add or {}).items()]
        found = self._run(
            f"UPDATE {self._own} SET {', '.join(changes)} WHERE {self._where(p, equal)} RETURNING {self._columns}",
            p.values,
        )
        return [self._entry(row) for row in found]

    def move(self, number: int, state: str, **values: Any) -> R:
        """Record that an entry has reached a state, and return it.

        Raise LeaseLost if its present state does not lead there: another process has resumed the work.
        """
        before = [one for one, after in self.table.moves.items() if state in after]
        found = self.change({"id": number, "state": before}, state=state, **values)
        if not found:
            raise LeaseLost(
                f"entry {number} of {self._own} cannot become {str(state)!r}: another process has changed it",
                "run it again: it resumes where the journal ends",
            )
        return found[0]

    def delete(self, **equal: Any) -> int:
        """Delete the entries that satisfy the conditions; return how many there were."""
        p = Parameters(self._dialect)
        return len(self._run(f"DELETE FROM {self._own} WHERE {self._where(p, equal)} RETURNING 1", p.values))

    def _select(self, p: Parameters, where: str, *, limit: int | None = None, newest_first: bool = False) -> list[R]:
        end = "" if limit is None else f" LIMIT {p.bind('limit', limit)}"
        found = self._run(
            f"SELECT {self._columns} FROM {self._own} WHERE {where}"
            f" ORDER BY {self.table.order}{' DESC' if newest_first else ''}{end}",
            p.values,
        )
        return [self._entry(row) for row in found]

    def _where(self, p: Parameters, equal: Mapping[str, Any]) -> str:
        conditions = ["1 = 1"]
        for name, value in equal.items():
            several = value if isinstance(value, list) else [value]
            conditions.append(f"{name} IN ({', '.join(self._encode(p, name, one) for one in several)})")
        return " AND ".join(conditions)

    def _encode(self, p: Parameters, name: str, value: Any) -> str:
        return self.table.columns.get(name, PLAIN).encode(p, name, value)

    def _entry(self, row: tuple[Any, ...]) -> R:
        codecs = self.table.columns.values()
        return self.table.entry(*(codec.decode(self._dialect, one) for codec, one in zip(codecs, row, strict=True)))
