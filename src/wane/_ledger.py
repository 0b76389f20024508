"""Wane's own tables: the audit trail, holds and flags.

The statements are the same on both stores, except for how timestamps and JSON are encoded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Self

from wane._db.statement import Dialect, Execute, Parameters
from wane._db.transaction import Transaction
from wane._frozen import frozen

# What leaves the archive left its table long before.
_STAYING = "('mark', 'restore', 'replace', 'archive_expire', 'archive_compact', 'archive_tidy')"
"""The kinds of entries whose rows left no table."""
_AUDIT_COLUMNS = (
    "executed_at",
    "kind",
    "table_name",
    "rule",
    "run_id",
    "actor",
    "cutoff",
    "inputs",
    "counts",
    "row_count",
    "batches",
    "seconds",
)


@frozen
class AuditEntry:
    """What one prune, mark or sweep did. `counts` is by table; `rows` is their sum."""

    kind: str
    table: str
    actor: str
    inputs: dict[str, Any]
    counts: dict[str, int]
    executed_at: datetime
    rule: str | None = None
    run: str | None = None
    cutoff: datetime | None = None
    seconds: float = 0.0
    batches: int = 1
    id: int | None = None

    @classmethod
    def begun(
        cls,
        kind: str,
        table: str,
        actor: str,
        inputs: dict[str, Any],
        at: datetime,
        *,
        rule: str | None = None,
        run: str | None = None,
        cutoff: datetime | None = None,
        counts: dict[str, int] | None = None,
        number: int | None = None,
    ) -> AuditEntry:
        """Build the entry of work that begins; `counts` and `number` are those that an earlier attempt recorded."""
        return cls(kind, table, actor, inputs, counts or {}, at, rule=rule, run=run, cutoff=cutoff, id=number)

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    @property
    def encoded_inputs(self) -> str:
        return json.dumps(self.inputs, ensure_ascii=False, default=str)

    def changed(self, number: int | None, counts: dict[str, int], executed_at: datetime, seconds: float) -> AuditEntry:
        """Return the entry with these values; every batch does this, and `replace` takes ten times as long."""
        kind, table, actor, inputs = self.kind, self.table, self.actor, self.inputs
        rest = self.rule, self.run, self.cutoff, seconds, self.batches, number
        return AuditEntry(kind, table, actor, inputs, counts, executed_at, *rest)

    def with_batch(self, counts: dict[str, int]) -> AuditEntry:
        """Return the entry with another batch in it."""
        return self.changed(self.id, add_counts(self.counts, counts), self.executed_at, self.seconds)


def add_counts(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Add up counts by table. A table that lost nothing stays in the sum: it is recorded too."""
    return {name: counts.get(name, 0) + more.get(name, 0) for name in {**counts, **more}}


@frozen
class RuleSweeps:
    """A summary of one rule's sweeps in the audit trail's latest entries; `rows` are those of its own table."""

    table: str
    rule: str
    sweeps: int
    rows: int
    first_at: datetime
    last_at: datetime
    last_rows: int


@frozen
class SweepCost:
    """What one sweep of a rule cost: the rows that left, followers included, and the seconds of its batches."""

    rows: int
    batches: int
    seconds: float


@frozen
class Hold:
    """An order that a row, or, without a key, a whole table is retained."""

    table: str
    key: str | None
    reason: str
    author: str
    created_at: datetime
    ends_at: datetime | None = None
    released_at: datetime | None = None
    released_by: str | None = None
    id: int | None = None
    lost: bool = False
    """Whether the database has no table of this name: it was renamed or dropped, and the hold protects no row."""


@frozen
class Flag:
    """A named switch."""

    name: str
    enabled: bool
    changed_at: datetime
    changed_by: str


@dataclass(slots=True)
class Ledger:
    """Reads and writes Wane's own tables inside one transaction."""

    dialect: Dialect
    execute: Execute
    transaction: Transaction | None = None
    """The transaction that it writes in, which commits nothing that left unrecorded."""

    @classmethod
    def of(cls, transaction: Transaction) -> Self:
        """Return the ledger inside a transaction."""
        return cls(transaction.dialect, transaction.execute, transaction)

    def _parameters(self) -> Parameters:
        return Parameters(self.dialect)

    def _run(self, p: Parameters, text: str) -> list[tuple[Any, ...]]:
        return self.execute(text, p.values)

    # The audit trail

    def record(self, entry: AuditEntry) -> int:
        """Write a new row of the audit trail and return its number."""
        p = self._parameters()
        values = dict(zip(_AUDIT_COLUMNS, self._audit_values(p, entry), strict=True))
        [(number,)] = self._run(p, audit_insertion(self.dialect, values))
        if self.transaction is not None:
            self.transaction.recorded(entry.counts)
        return int(number)

    def note(
        self,
        kind: str,
        table: str,
        actor: str,
        inputs: dict[str, Any],
        at: datetime,
        *,
        counts: dict[str, int] | None = None,
        rule: str | None = None,
        run: str | None = None,
        cutoff: datetime | None = None,
        batches: int = 1,
    ) -> int:
        """Record what was done in one step, and return the number of the entry; without `counts`, no row left."""
        left = {table: 0} if counts is None else counts
        entry = AuditEntry(kind, table, actor, inputs, left, at, rule=rule, run=run, cutoff=cutoff, batches=batches)
        return self.record(entry)

    def add_to_record(self, number: int, batch: AuditEntry, counts: dict[str, int]) -> None:
        """Add one batch of a sweep to its row; `counts` are those of the whole sweep with this batch in it.

        Only if the row includes all earlier batches: a server that crashed may have lost some that this process has
        counted.
        """
        values: dict[str, object] = {
            "counts": json.dumps(counts),
            "rows": batch.rows,
            "batches": batch.batches,
            "seconds": batch.seconds,
            "number": number,
            "before": sum(counts.values()) - batch.rows,
        }
        self.execute(_addition(self.dialect), values)

    def _audit_values(self, p: Parameters, entry: AuditEntry) -> list[str]:
        return [
            p.bind("executed_at", self.dialect.encode_time(entry.executed_at)),
            p.bind("kind", entry.kind),
            p.bind("table", entry.table),
            p.bind("rule", entry.rule),
            p.bind("run", entry.run),
            p.bind("actor", entry.actor),
            p.bind("audit_cutoff", None if entry.cutoff is None else self.dialect.encode_time(entry.cutoff)),
            self.dialect.json(p.bind("inputs", entry.encoded_inputs)),
            self.dialect.json(p.bind("counts", json.dumps(entry.counts, ensure_ascii=False))),
            p.bind("rows", entry.rows),
            p.bind("batches", entry.batches),
            p.bind("seconds", entry.seconds),
        ]

    def trail(
        self,
        *,
        kind: str | None = None,
        table: str | None = None,
        rule: str | None = None,
        since: datetime | None = None,
        before: int | None = None,
        sweeps_only: bool = False,
        without: Collection[str] = (),
        limit: int,
    ) -> list[AuditEntry]:
        """Return audit entries, newest first; with `sweeps_only` without what was pruned by hand, and `without` tables.

        `before`: only those with a smaller number.
        """
        p = self._parameters()
        conditions = ["1 = 1"]
        if kind is not None:
            conditions.append(f"kind = {p.bind('kind', kind)}")
        if table is not None:
            conditions.append(f"table_name = {p.bind('table', table)}")
        if rule is not None:
            conditions.append(f"rule = {p.bind('rule', rule)}")
        if since is not None:
            conditions.append(f"executed_at >= {p.bind('since', self.dialect.encode_time(since))}")
        if before is not None:
            conditions.append(f"id < {p.bind('before', before)}")
        if sweeps_only:
            conditions.append("run_id IS NOT NULL")
        for number, name in enumerate(without):
            conditions.append(f"table_name <> {p.bind(f'without{number}', name)}")
        columns = ", ".join(("id", *_AUDIT_COLUMNS))
        found = self._run(
            p,
            f"SELECT {columns} FROM {self.dialect.own_table('audit')} WHERE {' AND '.join(conditions)}"
            f" ORDER BY id DESC LIMIT {p.bind('limit', limit)}",
        )
        return [self._entry(row) for row in found]

    def departures(self, table: str, limit: int) -> list[AuditEntry]:
        """Return the latest entries with rows that left a table, on their own or with rows of another, newest first."""
        p = self._parameters()
        columns = ", ".join(("id", *_AUDIT_COLUMNS))
        left = self.dialect.json_count("counts", p.bind("table", table))
        found = self._run(
            p,
            f"SELECT {columns} FROM {self.dialect.own_table('audit')} WHERE {left} > 0 AND kind NOT IN {_STAYING}"
            f" ORDER BY id DESC LIMIT {p.bind('limit', limit)}",
        )
        return [self._entry(row) for row in found]

    def swept(self, entries: int) -> tuple[list[RuleSweeps], bool]:
        """Summarise the sweeps among the latest `entries` entries by rule; return whether those are all entries.

        What was pruned by hand is no sweep: it says nothing about whether sweeps run, or at which pace.
        """
        p = self._parameters()
        audit, n = self.dialect.own_table("audit"), p.bind("entries", entries)
        own = f"coalesce({self.dialect.json_count('a.counts', 'a.table_name')}, a.row_count)"
        found = self._run(
            p,
            # By number, not by time: that has an index, and covers as many entries in a busy database as in an idle
            # one.
            f"WITH recent AS (SELECT a.id, a.table_name, a.rule, a.executed_at, {own} AS own FROM {audit} AS a"
            f" WHERE a.id > (SELECT max(id) FROM {audit}) - {n} AND a.rule IS NOT NULL AND a.run_id IS NOT NULL),"
            " grouped AS (SELECT table_name, rule, count(*) AS sweeps, sum(own) AS total, min(executed_at) AS first_at,"
            " max(id) AS last_id FROM recent GROUP BY table_name, rule)"
            " SELECT g.table_name, g.rule, g.sweeps, g.total, g.first_at, r.executed_at, r.own"
            " FROM grouped AS g JOIN recent AS r ON r.id = g.last_id",
        )
        [(complete,)] = self.execute(
            f"SELECT coalesce((SELECT max(id) FROM {audit}) - (SELECT min(id) FROM {audit}) < {n}, true)",
            {"entries": entries},
        )
        decode = self.dialect.decode_time
        swept = [
            RuleSweeps(table, rule, int(sweeps), int(total), decode(first), decode(last), int(rows))
            for table, rule, sweeps, total, first, last, rows in found
        ]
        return swept, bool(complete)

    def sweep_costs(self, table: str, rule: str, limit: int) -> list[SweepCost]:
        """Return what the latest sweeps of a rule that took rows cost, newest first."""
        found = self._sweeps_with_rows("row_count, batches, seconds", table, rule, limit)
        return [SweepCost(int(rows), int(batches), float(seconds)) for rows, batches, seconds in found]

    def last_sweep_inputs(self, table: str, rule: str) -> dict[str, Any]:
        """Return the inputs of the latest sweep of a rule that took rows; {} if none has."""
        found = self._sweeps_with_rows("inputs", table, rule, 1)
        return dict(_json(found[0][0])) if found else {}

    def _sweeps_with_rows(self, columns: str, table: str, rule: str, limit: int) -> list[tuple[Any, ...]]:
        """Read columns of the latest sweeps of a rule that took rows, newest first; a prune by hand is none."""
        p = self._parameters()
        return self._run(
            p,
            f"SELECT {columns} FROM {self.dialect.own_table('audit')}"
            f" WHERE table_name = {p.bind('table', table)} AND rule = {p.bind('rule', rule)} AND run_id IS NOT NULL"
            f" AND row_count > 0 ORDER BY id DESC LIMIT {p.bind('limit', limit)}",
        )

    def pruned_since(self, since: datetime) -> dict[str, int]:
        """Count the rows that left each table since a time, by the audit trail."""
        p = self._parameters()
        return self._pruned(p, f"a.executed_at >= {p.bind('since', self.dialect.encode_time(since))}")

    def pruned_after(self, entry: int) -> dict[str, int]:
        """Count the rows that left each table after an entry of the audit trail, by its number."""
        p = self._parameters()
        return self._pruned(p, f"a.id > {p.bind('entry', entry)}")

    def _pruned(self, p: Parameters, where: str) -> dict[str, int]:
        found = self._run(
            p,
            f"SELECT e.key, sum(CAST(e.value AS bigint)) FROM {self.dialect.own_table('audit')} AS a, {self.dialect.json_each}(a.counts) AS e"
            f" WHERE {where} AND a.kind NOT IN {_STAYING} GROUP BY e.key",
        )
        return {table: int(rows) for table, rows in found}

    def last_entry(self) -> int:
        """Return the number of the latest entry of the audit trail; 0 if there is none."""
        [(number,)] = self.execute(f"SELECT coalesce(max(id), 0) FROM {self.dialect.own_table('audit')}", {})
        return int(number)

    def entry_of_run(self, run: str, table: str, rule: str) -> AuditEntry | None:
        """Return the audit entry of a run for one rule; None if there is none yet."""
        p = self._parameters()
        columns = ", ".join(("id", *_AUDIT_COLUMNS))
        found = self._run(
            p,
            f"SELECT {columns} FROM {self.dialect.own_table('audit')} WHERE run_id = {p.bind('run', run)}"
            f" AND table_name = {p.bind('table', table)} AND rule = {p.bind('rule', rule)}",
        )
        return self._entry(found[0]) if found else None

    def _entry(self, row: tuple[Any, ...]) -> AuditEntry:
        number, executed_at, kind, table, rule, run, actor, cutoff, inputs, counts, _, batches, seconds = row
        return AuditEntry(
            kind=kind,
            table=table,
            actor=actor,
            inputs=_json(inputs),
            counts=_json(counts),
            executed_at=self.dialect.decode_time(executed_at),
            rule=rule,
            run=run,
            cutoff=None if cutoff is None else self.dialect.decode_time(cutoff),
            seconds=seconds,
            batches=batches,
            id=number,
        )

    # Holds

    def add_hold(self, hold: Hold) -> int:
        p = self._parameters()
        values = [
            p.bind("table", hold.table),
            p.bind("key", hold.key),
            p.bind("reason", hold.reason),
            p.bind("author", hold.author),
            p.bind("created_at", self.dialect.encode_time(hold.created_at)),
            p.bind("ends_at", None if hold.ends_at is None else self.dialect.encode_time(hold.ends_at)),
        ]
        [(number,)] = self._run(
            p,
            f"INSERT INTO {self.dialect.own_table('hold')} (table_name, key, reason, author, created_at, ends_at)"
            f" VALUES ({', '.join(values)}) RETURNING id",
        )
        return int(number)

    def holds(self, *, tables: Sequence[str] = (), everything: bool = False, limit: int) -> list[Hold]:
        """Return holds in force, of all tables or of some, newest first.

        With `everything`, include those that ended or were released.
        """
        p = self._parameters()
        conditions = ["1 = 1"] if everything else [self.dialect.in_force(p, "h")]
        if tables:
            conditions.append(self.dialect.names_table("table_name", [p.bind("table", name) for name in tables]))
        found = self._run(
            p,
            "SELECT id, table_name, key, reason, author, created_at, ends_at, released_at, released_by"
            f" FROM {self.dialect.own_table('hold')} AS h WHERE {' AND '.join(conditions)}"
            f" ORDER BY id DESC LIMIT {p.bind('limit', limit)}",
        )
        decode = self.dialect.decode_time
        return [
            Hold(
                table=name,
                key=key,
                reason=reason,
                author=author,
                created_at=decode(created),
                ends_at=None if ends is None else decode(ends),
                released_at=None if released is None else decode(released),
                released_by=by,
                id=number,
            )
            for number, name, key, reason, author, created, ends, released, by in found
        ]

    def release_hold(self, number: int, *, by: str, at: datetime) -> bool:
        """Release a hold; return whether there was one of that number, not yet released."""
        p = self._parameters()
        found = self._run(
            p,
            f"UPDATE {self.dialect.own_table('hold')} SET released_at = {p.bind('at', self.dialect.encode_time(at))},"
            f" released_by = {p.bind('by', by)} WHERE id = {p.bind('id', number)} AND released_at IS NULL RETURNING id",
        )
        return bool(found)

    # Flags

    def set_flag(self, flag: Flag) -> None:
        p = self._parameters()
        values = [
            p.bind("name", flag.name),
            p.bind("enabled", flag.enabled),
            p.bind("changed_at", self.dialect.encode_time(flag.changed_at)),
            p.bind("changed_by", flag.changed_by),
        ]
        self._run(
            p,
            f"INSERT INTO {self.dialect.own_table('flag')} (name, enabled, changed_at, changed_by) VALUES ({', '.join(values)})"
            " ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled, changed_at = excluded.changed_at,"
            " changed_by = excluded.changed_by",
        )

    @property
    def all_flags(self) -> str:
        return f"SELECT name, enabled, changed_at, changed_by FROM {self.dialect.own_table('flag')}"

    def flags(self) -> dict[str, Flag]:
        return self.read_flags(self.execute(self.all_flags, {}))

    def read_flags(self, found: Iterable[tuple[Any, ...]]) -> dict[str, Flag]:
        return {name: Flag(name, bool(on), self.dialect.decode_time(at), by) for name, on, at, by in found}


def audit_insertion(dialect: Dialect, values: Mapping[str, str]) -> str:
    """Write the statement that inserts an audit row and returns its number, by an expression for each column."""
    columns = ", ".join(_AUDIT_COLUMNS)
    row = ", ".join(values[name] for name in _AUDIT_COLUMNS)
    return f"INSERT INTO {dialect.own_table('audit')} ({columns}) VALUES ({row}) RETURNING id"


def audit_addition(
    dialect: Dialect, *, counts: str, rows: str, batches: str, seconds: str, number: str, before: str
) -> str:
    """Write the statement that adds a batch to an audit row, by expressions.

    It changes the row only if that includes the `before` rows of all earlier batches; `counts` are its new counts.
    """
    return (
        f"UPDATE {dialect.own_table('audit')} SET counts = {counts}, row_count = row_count + {rows},"
        f" batches = batches + {batches}, seconds = seconds + {seconds} WHERE id = {number} AND row_count = {before}"
    )


@cache
def _addition(dialect: Dialect) -> str:
    """Write the statement of `add_to_record`, once: a sweep runs it in every batch."""
    names = ("counts", "rows", "batches", "seconds", "number", "before")
    bound = {name: dialect.placeholder(name) for name in names}
    return audit_addition(dialect, **{**bound, "counts": dialect.json(bound["counts"])})


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
