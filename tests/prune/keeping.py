"""A keeper with a contract made in the test, and the tables that most of these tests speak of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from servers import Database
from wane._contract.conditions import equal_to
from wane._contract.model import (
    Action,
    Age,
    Bound,
    Contract,
    Expiry,
    Follower,
    Guard,
    Prune,
    Reference,
    ReferencedBy,
    Rule,
    Spare,
    State,
    Table,
    Time,
    Unit,
)
from wane._contract.names import TableName
from wane._contract.settings import Budget, SweepSettings
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._ledger import AuditEntry
from wane.events import Event

DAY = timedelta(days=1)
WEEK = timedelta(days=7)
AT = Time("at_ms", Unit.MILLISECONDS)
EXPIRES = Expiry(Time("expires_ms", Unit.MILLISECONDS))
KEEP_WEEK = Age(AT, WEEK)
_START = time.time()

JOB = """
CREATE TABLE job (
  id integer NOT NULL PRIMARY KEY, state text NOT NULL, at_ms bigint, tenant text, resolved_ms bigint, parent_id integer
)
"""
NOTE = "CREATE TABLE note (id integer NOT NULL PRIMARY KEY, job_id integer, kind text)"
"""Refers to `job`, without a foreign key: the test adds one if it wants one."""


def ago(days: float) -> int:
    """Return milliseconds since 1970, so many days before the tests began."""
    return round((_START - days * 86_400) * 1_000)


def timestamp(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC)


def rule(
    name: str = "old",
    bound: Bound = KEEP_WEEK,
    *,
    when: Sequence[State] = ("done",),
    unless: Sequence[Guard] = (),
    followers: Sequence[Follower] = (),
    then: Action | None = None,
    budget: Budget | None = None,
    derived: bool = False,
    spare: Spare | None = None,
) -> Rule:
    return Rule(
        name,
        bound,
        tuple(when),
        tuple(unless),
        tuple(followers),
        Prune() if then is None else then,
        Budget() if budget is None else budget,
        derived,
        spare=spare,
    )


def table(
    name: str = "job",
    *rules: Rule,
    state: str | None = "state",
    live: Sequence[State] = ("queued",),
    key: Sequence[str] = (),
    append_only: bool = False,
    scheduler: str | None = "tick",
) -> Table:
    return Table(
        TableName.parse(name),
        "a test",
        rules or (rule(),),
        scheduler=scheduler,
        key=tuple(key),
        state=state,
        live=tuple(live) if state else (),
        append_only=append_only,
    )


def reference(target: str, to: Sequence[str] = ()) -> Reference:
    """Return `note.job_id`, or `note.a,b` for several columns."""
    name, _, columns = target.rpartition(".")
    return Reference(TableName.parse(name), tuple(columns.split(",")), tuple(to))


def follower(
    target: str,
    *inner: Follower,
    where: dict[str, State] | None = None,
    to: Sequence[str] = (),
    live_leaves: bool = False,
) -> Follower:
    return Follower(
        reference(target, to),
        tuple((name, equal_to(value)) for name, value in (where or {}).items()),
        inner,
        live_leaves,
    )


def referenced_by(target: str, to: Sequence[str] = ()) -> ReferencedBy:
    return ReferencedBy(reference(target, to))


class Keeping:
    """A keeper, what it reported, and short questions about the database."""

    def __init__(self, database: Database, keeper: Keeper, events: list[Event]) -> None:
        self.database = database
        self.keeper = keeper
        self.events = events

    def ids(self, name: str = "job") -> list[Any]:
        return [one for (one,) in self.database.query(f"SELECT id FROM {name} ORDER BY id")]

    def trail(self) -> list[AuditEntry]:
        """Return the audit trail, oldest first."""
        return self.keeper.audit()[::-1]

    def reported(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def keeping(
    database: Database,
    *tables: Table,
    floors: Sequence[tuple[str, timedelta]] = (),
    listener: Callable[[Event], None] | None = None,
    migrate: bool = True,
    sweep: SweepSettings | None = None,
) -> Iterator[Keeping]:
    """Yield a keeper of these tables, `job` with a rule of a week if none are given, on a migrated database."""
    contract = Contract(
        None,
        tables or (table(),),
        floors=tuple((TableName.parse(name), least) for name, least in floors),
        sweep=sweep or SweepSettings(),
    )
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if listener is not None:
            listener(event)

    with open_store(resolve_url(database.url)) as store:
        if migrate:
            store.migrate()
        yield Keeping(database, Keeper(contract, store, actor="tester", listener=listen), events)


def insert(database: Database, name: str, columns: str, *rows: Sequence[object]) -> None:
    marks = ", ".join("?" * len(columns.split(",")))
    database.executemany(f"INSERT INTO {name} ({columns}) VALUES ({marks})", rows)


def jobs(database: Database, *rows: Sequence[object], create: bool = True) -> None:
    """Insert rows of `job` as (id, state, at_ms)."""
    if create:
        database.execute(JOB)
    if rows:
        insert(database, "job", "id, state, at_ms", *rows)


def notes(database: Database, *rows: Sequence[object], foreign_key: str | None = None) -> None:
    """Insert rows of `note` as (id, job_id, kind). The foreign key is what follows REFERENCES."""
    text = NOTE if foreign_key is None else NOTE.replace("job_id integer", f"job_id integer REFERENCES {foreign_key}")
    database.execute(text)
    database.execute("CREATE INDEX note_job ON note (job_id)")
    if rows:
        insert(database, "note", "id, job_id, kind", *rows)
