"""The journal of the archive's own maintenance, in Wane's own tables: which files were to be replaced by which, and
whether they were.

A job is recorded before the archive is changed, so that the process that recovers from a crash knows what was intended;
it is done in the transaction that writes its audit entry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane.db.statement import Parameters
from wane.db.transaction import Transaction

EXPIRE = "expire"
COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Job:
    """Some files of the archive that are replaced by others."""

    id: int
    table: str
    kind: str
    planned_at: datetime
    changed_at: datetime
    plan: Any
    audit_id: int | None


@dataclass(frozen=True, slots=True)
class ArchivedSweep:
    """A sweep that filled the archive: its table, its rule, whether it is done, and which tables it wrote to."""

    table: str
    rule: str
    done: bool
    wrote: frozenset[str]


class Jobs:
    """Reads and writes these jobs inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.dialect = transaction.dialect

    def _run(self, p: Parameters, text: str) -> list[tuple[Any, ...]]:
        return self.transaction.execute(text, p.values)

    def number(self, table: str, kind: str, *, actor: str) -> int:
        """Enter a job that has no plan yet; return its number, by which its files are named."""
        p = self.transaction.parameters()
        now = p.bind("now", self.dialect.encode_time(self.transaction.now()))
        values = [p.bind("table", table), p.bind("kind", kind), p.bind("state", "planned"), now, now]
        values += [p.bind("actor", actor), self._json(p, None)]
        [(number,)] = self._run(
            p,
            f"INSERT INTO {self.dialect.own_table('archive_job')} (table_name, kind, state, planned_at, changed_at, actor, plan)"
            f" VALUES ({', '.join(values)}) RETURNING id",
        )
        return int(number)

    def plan(self, number: int, plan: Any) -> None:
        """Record what the job is to replace."""
        p = self.transaction.parameters()
        self._run(
            p,
            f"UPDATE {self.dialect.own_table('archive_job')} SET plan = {self._json(p, plan)} WHERE id = {p.bind('id', number)}",
        )

    def end(self, number: int, state: str, *, audit_id: int | None = None) -> None:
        p = self.transaction.parameters()
        self._run(
            p,
            f"UPDATE {self.dialect.own_table('archive_job')} SET state = {p.bind('state', state)},"
            f" audit_id = {p.bind('audit', audit_id)},"
            f" changed_at = {p.bind('now', self.dialect.encode_time(self.transaction.now()))} WHERE id = {p.bind('id', number)}",
        )

    def open(self) -> list[Job]:
        """Return jobs that were begun and have not ended."""
        return self._jobs("state = 'planned'", self.transaction.parameters())

    def done(self, table: str, kind: str, limit: int) -> list[Job]:
        """Return jobs of a table that were done, newest first."""
        p = self.transaction.parameters()
        where = f"state = 'done' AND table_name = {p.bind('table', table)} AND kind = {p.bind('kind', kind)}"
        return self._jobs(where, p, limit)

    def _jobs(self, where: str, p: Parameters, limit: int = 10_000) -> list[Job]:
        found = self._run(
            p,
            f"SELECT id, table_name, kind, planned_at, changed_at, plan, audit_id FROM {self.dialect.own_table('archive_job')} WHERE {where}"
            f" ORDER BY id DESC LIMIT {p.bind('limit', limit)}",
        )
        moment = self.dialect.decode_time
        return [
            Job(number, table, kind, moment(planned), moment(changed), _read(plan), audit_id)
            for number, table, kind, planned, changed, plan, audit_id in found
        ]

    def sweeps(self) -> dict[int, ArchivedSweep]:
        """Return every sweep of every table, by number."""
        found = self.transaction.execute(
            f"SELECT id, table_name, rule, state, archived FROM {self.dialect.own_table('archive_sweep')}", {}
        )
        return {
            number: ArchivedSweep(table, rule, state == "done", frozenset(_read(archived)))
            for number, table, rule, state, archived in found
        }

    def _json(self, p: Parameters, value: Any) -> str:
        return self.dialect.json(p.bind("plan", json.dumps(value, ensure_ascii=True)))


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
