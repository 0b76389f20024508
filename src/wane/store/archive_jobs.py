"""The journal of the archive's own life, in Wane's own tables: which files were to be replaced by which, and whether they were.

A job is written down before the archive is touched, so that whoever comes after a crash knows what was meant; it is done in the
transaction that writes its audit row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane.store.statement import Parameters
from wane.store.transaction import Transaction

EXPIRE = "expire"
COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Job:
    """Some files of the archive that others take the place of."""

    id: int
    table: str
    kind: str
    planned_at: datetime
    changed_at: datetime
    plan: Any
    audit_id: int | None


@dataclass(frozen=True, slots=True)
class Swept:
    """A sweep that filled the archive: whose it was, by which rule, whether it is done, and which tables it wrote to."""

    table: str
    rule: str
    done: bool
    wrote: frozenset[str]


class Jobs:
    """Reads and writes these jobs inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.dialect = transaction.rows.dialect

    def _run(self, p: Parameters, text: str) -> list[tuple[Any, ...]]:
        return self.transaction.execute(text, p.values)

    def number(self, table: str, kind: str, *, actor: str) -> int:
        """Enter a job that has no plan yet; return its number, by which its files are named."""
        p = self.transaction.rows.parameters()
        now = p.bind("now", self.dialect.stamp(self.transaction.now()))
        values = [p.bind("table", table), p.bind("kind", kind), p.bind("state", "planned"), now, now]
        values += [p.bind("actor", actor), self._json(p, None)]
        [(number,)] = self._run(
            p,
            f"INSERT INTO {self.dialect.own('archive_job')} (table_name, kind, state, planned_at, changed_at, actor, plan)"
            f" VALUES ({', '.join(values)}) RETURNING id",
        )
        return int(number)

    def plan(self, number: int, plan: Any) -> None:
        """Write down what the job is to replace."""
        p = self.transaction.rows.parameters()
        self._run(
            p,
            f"UPDATE {self.dialect.own('archive_job')} SET plan = {self._json(p, plan)} WHERE id = {p.bind('id', number)}",
        )

    def end(self, number: int, state: str, *, audit_id: int | None = None) -> None:
        p = self.transaction.rows.parameters()
        self._run(
            p,
            f"UPDATE {self.dialect.own('archive_job')} SET state = {p.bind('state', state)},"
            f" audit_id = {p.bind('audit', audit_id)},"
            f" changed_at = {p.bind('now', self.dialect.stamp(self.transaction.now()))} WHERE id = {p.bind('id', number)}",
        )

    def open(self) -> list[Job]:
        """Jobs that were begun and have not ended."""
        return self._jobs("state = 'planned'", self.transaction.rows.parameters())

    def done(self, table: str, kind: str, limit: int) -> list[Job]:
        """Jobs of a table that were done, newest first."""
        p = self.transaction.rows.parameters()
        where = f"state = 'done' AND table_name = {p.bind('table', table)} AND kind = {p.bind('kind', kind)}"
        return self._jobs(where, p, limit)

    def _jobs(self, where: str, p: Parameters, limit: int = 10_000) -> list[Job]:
        found = self._run(
            p,
            f"SELECT id, table_name, kind, planned_at, changed_at, plan, audit_id FROM {self.dialect.own('archive_job')} WHERE {where}"
            f" ORDER BY id DESC LIMIT {p.bind('limit', limit)}",
        )
        moment = self.dialect.moment
        return [
            Job(number, table, kind, moment(planned), moment(changed), _read(plan), audit_id)
            for number, table, kind, planned, changed, plan, audit_id in found
        ]

    def sweeps(self) -> dict[int, Swept]:
        """Every sweep of every table."""
        found = self.transaction.execute(
            f"SELECT id, table_name, rule, state, archived FROM {self.dialect.own('archive_sweep')}", {}
        )
        return {
            number: Swept(table, rule, state == "done", frozenset(_read(archived)))
            for number, table, rule, state, archived in found
        }

    def _json(self, p: Parameters, value: Any) -> str:
        return self.dialect.json(p.bind("plan", json.dumps(value, ensure_ascii=True)))


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
