"""Space: what pruning freed, by the audit trail and on disk, what is unused, and what to do about it.

Deleted rows leave space that new rows use; the file does not shrink by itself. On PostgreSQL the statement that would
help is reported and never run; on SQLite free pages can be returned to the disk incrementally, within a budget.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from wane._contract.model import Contract
from wane._contract.settings import SpaceSettings
from wane._db import Store
from wane._db.counting import as_count, stated
from wane._db.statement import Dialect
from wane._ledger import Ledger
from wane._prune.pace import Pace
from wane.errors import Locked, TimedOut, WrongArgument
from wane.observe import _sql_space_postgres as postgres
from wane.observe import _sql_space_sqlite as sqlite
from wane.observe._measured import Measured, measured_tables
from wane.observe._space_model import DatabaseSpace, TableSpace
from wane.observe._sql_snapshots import Snapshots
from wane.observe._sql_space import give_back, read_database_space, read_table_space

SINCE = timedelta(days=7)
_READ_SECONDS = 5.0
_FIRST_PAGES = 100


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do, why, and the statement or command that does it."""

    what: str
    why: str
    statement: str
    blocks: bool = False
    """Whether others cannot use the table, or the database, while it runs."""


@dataclass(frozen=True, slots=True)
class SpaceOfTable:
    """The size of one table, what left it, and advice."""

    table: str
    space: TableSpace
    pruned_rows: int | None
    """Since the requested time, by the audit trail; None: the trail took too long to read."""
    bytes_then: int | None
    """Its size at the first snapshot since then, with its indexes."""
    advice: tuple[Advice, ...] = ()

    @property
    def freed_bytes(self) -> int | None:
        """Estimate the bytes of the rows that left; None if unknown."""
        if self.pruned_rows is None or self.space.row_bytes is None:
            return None if self.pruned_rows else 0
        return round(self.pruned_rows * self.space.row_bytes)

    @property
    def changed_bytes(self) -> int | None:
        """Return how much larger its files are now; a negative number was returned to the disk. None if unknown."""
        return None if self.bytes_then is None else self.space.bytes - self.bytes_then

    @property
    def dead_bytes(self) -> int | None:
        """Estimate the bytes of deleted rows that are not yet vacuumed; None if unknown."""
        dead, each = self.space.dead_rows, self.space.row_bytes
        return None if dead is None else round(dead * (each or 0.0))

    def as_json(self) -> dict[str, Any]:
        space = self.space
        return {
            "table": self.table,
            **stated("bytes", as_count(space.bytes, exact=space.exact)),
            **stated("table_bytes", as_count(space.table_bytes, exact=space.exact)),
            **stated("index_bytes", as_count(space.index_bytes, exact=space.exact)),
            **stated("rows", as_count(space.rows, exact=False)),
            "row_bytes": None if space.row_bytes is None else round(space.row_bytes, 1),
            **stated("dead_rows", as_count(space.dead_rows, exact=False)),
            **stated("dead_bytes", as_count(self.dead_bytes, exact=False)),
            **stated("unused_bytes", as_count(space.unused_bytes, exact=False)),
            "vacuumed_at": None if space.vacuumed_at is None else space.vacuumed_at.isoformat(),
            "pruned_rows": self.pruned_rows,
            **stated("freed_bytes", as_count(self.freed_bytes, exact=False)),
            "changed_bytes": self.changed_bytes,
            "indexes": [
                {
                    "name": one.name,
                    "bytes": one.bytes,
                    **stated("unused_bytes", as_count(one.unused_bytes, exact=False)),
                }
                for one in space.indexes
            ],
            "advice": [asdict(one) for one in self.advice],
        }


@dataclass(frozen=True, slots=True)
class Space:
    """The size of a database and its tables."""

    since: datetime
    database: DatabaseSpace
    tables: tuple[SpaceOfTable, ...]
    advice: tuple[Advice, ...] = ()
    """About the whole database."""

    def as_json(self) -> dict[str, Any]:
        database = self.database
        return {
            "since": self.since.isoformat(),
            "database": {
                "bytes": database.bytes,
                "log_bytes": database.log_bytes,
                "free_bytes": None if database.free_pages is None else database.free_bytes,
                "free_pages": database.free_pages,
                "auto_vacuum": database.auto_vacuum,
            },
            "tables": [one.as_json() for one in self.tables],
            "advice": [asdict(one) for one in self.advice],
        }


def read_space(store: Store, contract: Contract, table: str | None = None, *, since: datetime | None = None) -> Space:
    """Read the size of every table, or of one, and what was freed since a time, by default a week ago."""
    store.require_migrated()
    now = store.now()
    since = now - SINCE if since is None else since
    if since > now:
        raise WrongArgument(f"{since.isoformat()} is still to come", "name a time in the past")
    tables = measured_tables(store, contract, table)
    spaces = {
        (one.schema, one.name): one for one in read_table_space(store, [one.info for one in tables], _READ_SECONDS)
    }
    pruned = _pruned(store, since)
    found = [
        _of_table(store, contract.space, one, spaces[one.info.qualified], pruned, (since, now))
        for one in tables
        if one.info.qualified in spaces
    ]
    database = read_database_space(store)
    return Space(since, database, tuple(found), tuple(_about_database(database, contract.space)))


def _pruned(store: Store, since: datetime) -> dict[str, int] | None:
    try:
        return Ledger(store.dialect, store.reader(_READ_SECONDS)).pruned_since(since)
    except TimedOut:
        return None


def _of_table(
    store: Store,
    settings: SpaceSettings,
    table: Measured,
    space: TableSpace,
    pruned: dict[str, int] | None,
    between: tuple[datetime, datetime],
) -> SpaceOfTable:
    then = Snapshots(store.dialect).nearest_bytes(store.reader(_READ_SECONDS), table.full, *between)
    # The audit trail names a table as the contract does.
    rows = None if pruned is None else pruned.get(table.shown, 0)
    advice = tuple(_about_table(space, settings)) if store.kind == "postgres" else ()
    return SpaceOfTable(table.shown, space, rows, None if then is None else then[1], advice)


def _about_table(space: TableSpace, settings: SpaceSettings) -> list[Advice]:
    """Return advice on reclaiming space (PostgreSQL): what does not block others first, and only then what does."""
    name = f"{Dialect.quote(space.schema)}.{Dialect.quote(space.name)}"
    dead, rows = space.dead_rows or 0, space.rows or 0
    advice = []
    if dead * (space.row_bytes or 0) >= settings.bytes and dead >= settings.share * (dead + rows):
        why = f"{dead:,} deleted rows are not vacuumed yet; until then their space cannot be reused"
        advice.append(Advice("vacuum", why, postgres.VACUUM.format(name)))
    elif space.unused_bytes is None and space.table_bytes >= settings.bytes:
        advice.append(
            Advice("analyze", "without statistics it is unknown how much of it is used", postgres.ANALYZE.format(name))
        )
    elif _much(space.unused_bytes, space.table_bytes, settings):
        advice += _about_empty_pages(space, name)
    for index in space.indexes:
        if _much(index.unused_bytes, index.bytes, settings):
            full = f"{Dialect.quote(index.schema)}.{Dialect.quote(index.name)}"
            why = (
                f"a fresh index would take {index.bytes - (index.unused_bytes or 0):,} bytes instead of {index.bytes:,}"
            )
            advice.append(Advice("reindex", why, postgres.REINDEX.format(full)))
    return sorted(advice, key=lambda one: one.blocks)


def _about_empty_pages(space: TableSpace, name: str) -> list[Advice]:
    free = "most of its pages are half empty. New rows use that space; if the disk needs it"
    table = shlex.quote(f"{space.schema}.{space.name}")
    return [
        Advice("trim", f"{free}, empty pages at the end of its file go first", postgres.TRIM.format(name)),
        Advice(
            "repack",
            "the others need a new copy of the table; the extension pg_repack makes it while the table is in use",
            f"pg_repack --table={table}",
        ),
        Advice(
            "rewrite",
            "the same without an extension; the table cannot be read or written until it is done",
            postgres.REWRITE.format(name),
            blocks=True,
        ),
    ]


def _about_database(database: DatabaseSpace, settings: SpaceSettings) -> list[Advice]:
    if database.free_pages is None or not _much(database.free_bytes, database.bytes, settings):
        return []
    why = f"{database.free_pages:,} pages of the file hold nothing. New rows use them; the disk does not get them back by itself"
    if database.auto_vacuum == "incremental":
        return [Advice("incremental vacuum", why, "wane space --vacuum")]
    copy = (
        f"{why}. A compact copy shows how small it can be, while others read and write; it lacks what they write from then on,"
        " so it may replace the file only if nothing was written"
    )
    once = f"once, while no one uses the database, and with {database.bytes:,} bytes of free disk space beside it; then `wane space --vacuum` works"
    return [
        Advice("copy", copy, sqlite.COPY),
        Advice("vacuum", once, sqlite.ALLOW_VACUUM, blocks=True),
    ]


def _much(unused: int | None, of: int, settings: SpaceSettings) -> bool:
    return unused is not None and unused >= settings.bytes and unused >= settings.share * of


@dataclass(frozen=True, slots=True)
class FileVacuumed:
    """The result of an incremental vacuum."""

    pages: int
    bytes: int
    left_pages: int
    """Free pages that are still in the file."""
    seconds: float
    ended: str
    """"done", the budget that was spent first ("pages", "seconds"), "stopped", or "locked" after lock contention."""


@dataclass(slots=True)
class FileVacuum:
    """SQLite: returns free pages to the disk in batches, paced like a sweep."""

    store: Store
    seconds: float
    pages: int
    stop: threading.Event = field(default_factory=threading.Event)
    pace: Pace = field(default_factory=lambda: Pace(first_batch=_FIRST_PAGES, least_batch=10))

    def run(self) -> FileVacuumed:
        """Vacuum until nothing is free, the budget is spent, or `stop` is set.

        Each batch is a transaction of its own.
        """
        if self.seconds <= 0 or self.pages <= 0:
            raise WrongArgument("a budget is above zero", "write for example 10s, or 5000 pages")
        began, given, size = time.monotonic(), 0, self.pace.first_batch
        ended = "done"
        give_back(self.store, 0)  # Raises at once where it cannot work.
        while True:
            if self.stop.is_set():
                ended = "stopped"
            elif given >= self.pages:
                ended = "pages"
            elif time.monotonic() - began >= self.seconds:
                ended = "seconds"
            if ended != "done":
                break
            entered = time.monotonic()
            try:
                freed = give_back(self.store, min(size, self.pages - given))
            except Locked:
                if not given:
                    raise
                ended = "locked"
                break
            given += max(freed, 0)
            if freed <= 0:
                break
            took = time.monotonic() - entered
            size = self.pace.next_batch(size, took)
            self.stop.wait(self.pace.pause_seconds(took))
        space = read_database_space(self.store)
        left = space.free_pages or 0
        return FileVacuumed(
            given, given * (space.page_bytes or 0), left, time.monotonic() - began, "done" if not left else ended
        )


def advised(tables: Sequence[SpaceOfTable]) -> list[tuple[str, Advice]]:
    """Return all advice about tables."""
    return [(one.table, advice) for one in tables for advice in one.advice]
