"""The archive's journal, in Wane's own tables: who may write, which sweeps there are, and the progress of each.

Everything that a sweep does outside the database (files, commits to the archive) can be repeated; what it has done is
known from here. A writer shows the fence of its lease in the same transaction, so that one that was replaced changes
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from wane.db.statement import Parameters
from wane.db.transaction import Transaction
from wane.errors import ArchiveBusy
from wane.leases import Lease, Leases


class State(StrEnum):
    """The progress of a sweep. Each step can be repeated until the next one is reached."""

    PLANNED = "planned"
    WRITTEN = "written"
    VERIFIED = "verified"
    COMMITTED = "committed"
    EVICTED = "evicted"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Journaled:
    """One sweep, as recorded in the journal."""

    id: int
    table: str
    rule: str
    state: State
    strict: bool
    decided_at: datetime
    """The time that decides what is due."""
    planned_at: datetime
    changed_at: datetime
    actor: str
    columns: Any
    """The columns of each table of the sweep when it was planned."""
    layout: Any
    """`ArchiveRows.layout` when it was planned; None if an older Wane planned it."""
    parts: tuple[str, ...] | None
    """Those tables, in the same order; None if the journal does not record them."""
    archived: dict[str, int]
    evicted: dict[str, int]
    stale: int
    absent: int
    audit_id: int | None


@dataclass(frozen=True, slots=True)
class JournaledRange:
    """A piece of a sweep that one task reads."""

    number: int
    bounds: Any
    manifest: Any
    evicted: int
    """How many of its copies have been checked, in the order of its files."""


_MOST_SECONDS = 30.0
"""The longest that one statement under a lease may take."""
_SWEEP = (
    "id, table_name, rule, state, strict, decided_at, planned_at, changed_at, actor, columns, layout, parts, archived,"
    " evicted, stale, absent, audit_id"
)


class Journal:
    """Reads and writes the journal inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.leases = Leases(transaction.dialect)
        self.dialect = transaction.dialect

    def _run(self, p: Parameters, text: str) -> list[tuple[Any, ...]]:
        return self.transaction.execute(text, p.values)

    def _own(self, name: str) -> str:
        return self.dialect.own_table(f"archive_{name}")

    def _json(self, p: Parameters, name: str, value: Any) -> str:
        return self.dialect.json(p.bind(name, json.dumps(value, ensure_ascii=True)))

    # Which database this is

    def origin(self, proposed: str, identity: str) -> str:
        """Return the name by which archives know this database; the proposed one if it has none yet."""
        p = self.transaction.parameters()
        values = f"1, {p.bind('origin', proposed)}, {p.bind('identity', identity)}"
        self._run(
            p,
            f"INSERT INTO {self._own('origin')} (id, origin, identity) VALUES ({values}) ON CONFLICT DO NOTHING",
        )
        [(origin,)] = self.transaction.execute(f"SELECT origin FROM {self._own('origin')}", {})
        return str(origin)

    def require(self, lease: Lease) -> None:
        """Raise ArchiveBusy unless the lease is still held, and keep it held until the transaction has ended."""
        run, now = self.transaction.execute, self.transaction.clock()
        if not self.leases.is_held(run, lease, None, now, most_seconds=_MOST_SECONDS):
            raise ArchiveBusy(
                f"the lease of {lease.name!r} ended", "somebody else goes on with the sweep; run it again"
            )

    # The columns of a table's archive

    def known(self, table: str) -> tuple[Any, str | None]:
        """Return the columns as of the last commit, and the fingerprint of those that a strict sweep has proven."""
        p = self.transaction.parameters()
        found = self._run(
            p, f"SELECT columns, proven FROM {self._own('table')} WHERE table_name = {p.bind('table', table)}"
        )
        return (_read(found[0][0]), found[0][1]) if found else (None, None)

    def remember(self, table: str, columns: Any, proven: str | None) -> None:
        p = self.transaction.parameters()
        values = ", ".join((p.bind("table", table), self._json(p, "columns", columns), p.bind("proven", proven)))
        self._run(
            p,
            f"INSERT INTO {self._own('table')} AS t (table_name, columns, proven) VALUES ({values})"
            " ON CONFLICT (table_name) DO UPDATE SET columns = excluded.columns,"
            " proven = coalesce(excluded.proven, t.proven)",
        )

    # Sweeps

    def plan(
        self,
        table: str,
        rule: str,
        *,
        strict: bool,
        decided_at: datetime,
        actor: str,
        columns: Any,
        layout: Any,
        parts: Sequence[str],
        ranges: Sequence[Any],
    ) -> int:
        """Enter a new sweep with its ranges; return its number."""
        p = self.transaction.parameters()
        now = p.bind("now", self.dialect.encode_time(self.transaction.now()))
        values = [
            p.bind("table", table),
            p.bind("rule", rule),
            p.bind("state", State.PLANNED.value),
            p.bind("strict", strict),
            p.bind("decided_at", self.dialect.encode_time(decided_at)),
            now,
            now,
            p.bind("actor", actor),
            self._json(p, "columns", columns),
            self._json(p, "layout", layout),
            self._json(p, "parts", list(parts)),
            self._json(p, "archived", {}),
            self._json(p, "evicted", {}),
        ]
        [(number,)] = self._run(
            p,
            f"INSERT INTO {self._own('sweep')} (table_name, rule, state, strict, decided_at, planned_at, changed_at, actor,"
            f" columns, layout, parts, archived, evicted) VALUES ({', '.join(values)}) RETURNING id",
        )
        for position, bounds in enumerate(ranges):
            p = self.transaction.parameters()
            self._run(
                p,
                f"INSERT INTO {self._own('range')} (sweep_id, number, bounds) VALUES"
                f" ({p.bind('sweep', number)}, {p.bind('number', position)}, {self._json(p, 'bounds', bounds)})",
            )
        return int(number)

    def unfinished(self, table: str) -> Journaled | None:
        p = self.transaction.parameters()
        found = self._run(
            p,
            f"SELECT {_SWEEP} FROM {self._own('sweep')} WHERE table_name = {p.bind('table', table)} AND state <> 'done'",
        )
        return self._sweep(found[0]) if found else None

    def sweeps(self, table: str | None, limit: int) -> list[Journaled]:
        """Return sweeps, newest first."""
        p = self.transaction.parameters()
        where = "1 = 1" if table is None else f"table_name = {p.bind('table', table)}"
        found = self._run(
            p,
            f"SELECT {_SWEEP} FROM {self._own('sweep')} WHERE {where} ORDER BY id DESC LIMIT {p.bind('limit', limit)}",
        )
        return [self._sweep(row) for row in found]

    def sweep(self, number: int) -> Journaled:
        p = self.transaction.parameters()
        [row] = self._run(p, f"SELECT {_SWEEP} FROM {self._own('sweep')} WHERE id = {p.bind('id', number)}")
        return self._sweep(row)

    def _sweep(self, row: tuple[Any, ...]) -> Journaled:
        number, table, rule, state, strict, decided, planned, changed, actor, *rest = row
        columns, layout, parts, archived, evicted, *counted = rest
        names = _read(parts)
        moment = self.dialect.decode_time
        return Journaled(
            number,
            table,
            rule,
            State(state),
            bool(strict),
            moment(decided),
            moment(planned),
            moment(changed),
            actor,
            _read(columns),
            _read(layout),
            None if names is None else tuple(names),
            _read(archived),
            _read(evicted),
            *counted,
        )

    def move(self, number: int, state: State, *, archived: dict[str, int] | None = None) -> None:
        """Record that a sweep has reached the next step."""
        p = self.transaction.parameters()
        also = "" if archived is None else f", archived = {self._json(p, 'archived', archived)}"
        self._run(
            p,
            f"UPDATE {self._own('sweep')} SET state = {p.bind('state', state.value)},"
            f" changed_at = {p.bind('now', self.dialect.encode_time(self.transaction.now()))}{also}"
            f" WHERE id = {p.bind('id', number)}",
        )

    def ranges(self, number: int) -> list[JournaledRange]:
        p = self.transaction.parameters()
        found = self._run(
            p,
            f"SELECT number, bounds, manifest, evicted FROM {self._own('range')} WHERE sweep_id = {p.bind('id', number)}"
            " ORDER BY number",
        )
        return [
            JournaledRange(one, _read(bounds), _read(manifest), evicted) for one, bounds, manifest, evicted in found
        ]

    def write(self, number: int, manifests: Iterable[tuple[int, Any]]) -> None:
        """Record what a task wrote of some ranges."""
        for position, manifest in manifests:
            p = self.transaction.parameters()
            self._run(
                p,
                f"UPDATE {self._own('range')} SET manifest = {self._json(p, 'manifest', manifest)}"
                f" WHERE sweep_id = {p.bind('sweep', number)} AND number = {p.bind('number', position)}",
            )

    def forget(self, number: int, positions: Iterable[int]) -> None:
        """Delete what was recorded of some ranges, so that they are copied again."""
        for position in positions:
            p = self.transaction.parameters()
            self._run(
                p,
                f"UPDATE {self._own('range')} SET manifest = NULL"
                f" WHERE sweep_id = {p.bind('sweep', number)} AND number = {p.bind('number', position)}",
            )

    def progress(
        self,
        sweep: Journaled,
        position: int,
        looked_at: int,
        evicted: dict[str, int],
        *,
        absent: int,
        stale: Sequence[tuple[str, str, str]],
        audit_id: int,
    ) -> None:
        """Record a batch of evictions, in the transaction that did it."""
        p = self.transaction.parameters()
        self._run(
            p,
            f"UPDATE {self._own('range')} SET evicted = {p.bind('evicted', looked_at)}"
            f" WHERE sweep_id = {p.bind('sweep', sweep.id)} AND number = {p.bind('number', position)}",
        )
        p = self.transaction.parameters()
        self._run(
            p,
            f"UPDATE {self._own('sweep')} SET evicted = {self._json(p, 'evicted', evicted)},"
            f" absent = absent + {p.bind('absent', absent)}, stale = stale + {p.bind('stale', len(stale))},"
            f" audit_id = {p.bind('audit', audit_id)},"
            f" changed_at = {p.bind('now', self.dialect.encode_time(self.transaction.now()))} WHERE id = {p.bind('sweep', sweep.id)}",
        )
        for key, version, reason in stale:
            p = self.transaction.parameters()
            self._run(
                p,
                f"INSERT INTO {self._own('stale')} (sweep_id, key, version, reason) VALUES"
                f" ({p.bind('sweep', sweep.id)}, {p.bind('key', key)}, {p.bind('version', version)},"
                f" {p.bind('reason', reason)}) ON CONFLICT DO NOTHING",
            )

    def keep_again(self, number: int) -> None:
        """Record that copies which had left the archive are in it again."""
        p = self.transaction.parameters()
        self._run(
            p,
            f"UPDATE {self._own('stale')} SET removed = {p.bind('no', value=False)}"
            f" WHERE sweep_id = {p.bind('sweep', number)}",
        )

    def stale(self, number: int, limit: int) -> list[tuple[str, str]]:
        """Read keys and versions of copies that have yet to leave the archive."""
        p = self.transaction.parameters()
        found = self._run(
            p,
            f"SELECT key, version FROM {self._own('stale')} WHERE sweep_id = {p.bind('sweep', number)} AND NOT removed"
            f" ORDER BY key LIMIT {p.bind('limit', limit)}",
        )
        return [(key, version) for key, version in found]

    def removed(self, number: int, copies: Iterable[tuple[str, str]]) -> None:
        """Record that copies have left the archive."""
        for key, _ in copies:
            p = self.transaction.parameters()
            self._run(
                p,
                f"UPDATE {self._own('stale')} SET removed = {p.bind('yes', value=True)}"
                f" WHERE sweep_id = {p.bind('sweep', number)} AND key = {p.bind('key', key)}",
            )


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
