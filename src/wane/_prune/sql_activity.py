"""What happened in a database, by all users, as far as each store counts it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from wane._db import Store
from wane._db.sqlite.log import pages_in_log
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Statement
from wane._frozen import frozen

if TYPE_CHECKING:
    from wane._db.postgres.store import PostgresStore

_SECONDS = 5.0
_LONG_LOG = 800
"""Pages. The commit that makes a log longer than a thousand, unless an application chooses another number, moves all of
them into the database. The one after that waits for the disk, because the log begins anew, so this is not done more
often than it must be."""
_KNOWS_ACTIVITY = 150000
"""Since this version, counters are up to date soon enough."""
_ACTIVITY = """
SELECT pg_catalog.pg_stat_force_next_flush(), pg_catalog.pg_stat_get_db_xact_commit(d.oid),
  pg_catalog.pg_stat_get_db_xact_rollback(d.oid),
  pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text, {team}
FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
"""
"""This session's own counters are written at once, the others' about every second; the next transaction's number is
known at once."""
_ONE_SESSION = "0, 0"
_TEAM = (
    """(SELECT pg_catalog.count(*) FROM pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot())), ({batches})"""
)
"""What several connections that work together have committed, and how many transactions are under way, in the snapshot
that counts transactions: a batch is in both numbers or in neither."""

_QUIET = """
SELECT extract(epoch FROM clock_timestamp() - max(state_change))::float8,
  count(*) = count(*) FILTER (WHERE state LIKE 'idle%%')
FROM pg_catalog.pg_stat_activity WHERE datid IS NOT NULL AND pid <> pg_backend_pid()
"""
"""How long ago another session did something, and whether all of them are idle, as far as this role may know."""
_NO_SESSIONS_SECONDS = 3600.0
"""What counts as the time since the last use where there is no other session: it is not known."""


@frozen
class Activity:
    """What happened in a database: counters that only grow."""

    changes: int
    """Transactions that changed something."""
    transactions: int
    """Transactions that are known of, with some delay."""


class ActivityCounters(ABC):
    """The counters of one database, as a sweep reads them between its batches."""

    own: Activity
    """By how much one transaction that changes something, and one reading, let them grow."""
    reading: Activity
    """By how much one reading does."""

    @abstractmethod
    def read(self) -> Activity | None:
        """Read what happened in the database so far, by all users; None if that cannot be known."""

    @abstractmethod
    def quiet_seconds(self) -> float:
        """Return for how long no other session has used the database, as far as that is known at once; else 0."""

    @abstractmethod
    def finish_writing(self) -> None:
        """Do for what has been written what one of the next commits of another session would have to do."""


class SqliteActivity(ActivityCounters):
    """Commits of other connections, and the times of the files."""

    own = reading = Activity(0, 0)

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def read(self) -> Activity | None:
        # It counts the commits of other connections; those that only read wait for no lock.
        [(commits,)] = self._store.read(Statement("PRAGMA data_version", {}), _SECONDS)
        return Activity(commits, 0)

    def quiet_seconds(self) -> float:
        written = []
        for file in (self._store.path, Path(f"{self._store.path}-wal")):
            with suppress(FileNotFoundError):
                written.append(file.stat().st_mtime)
        return max(time.time() - max(written), 0.0) if written else 0.0

    def finish_writing(self) -> None:
        # No session waits for this checkpoint, which holds no write lock.
        if pages_in_log(self._store.path) >= _LONG_LOG:
            self._store.read(Statement("PRAGMA main.wal_checkpoint(PASSIVE)", {}), _SECONDS)


class PostgresActivity(ActivityCounters):
    """The server's statistics."""

    def __init__(self, store: PostgresStore, batches: str | None = None) -> None:
        """Count for one session, or for several that work together.

        `batches`: the query that counts what they have committed together, so that none counts as a user to the others.
        """
        self._store = store
        self._text = _ACTIVITY.format(team=_ONE_SESSION if batches is None else _TEAM.format(batches=batches))
        self._batch = Activity(changes=1, transactions=2)
        self.own = self._batch if batches is None else Activity(0, 0)
        self.reading = Activity(changes=0, transactions=1)

    def read(self) -> Activity | None:
        # Without settings, whose names and values it does not use: it is read after every batch.
        found = self._store.run_bare(self._text, _KNOWS_ACTIVITY)
        if found is None:
            return None
        [(_, transactions, undone, next_transaction, running, batches)] = found
        created = self._store.creations
        return Activity(
            int(next_transaction) - running - batches * self._batch.changes - created,
            transactions + undone - batches * self._batch.transactions - created,
        )

    def quiet_seconds(self) -> float:
        [(seconds, idle)] = self._store.read(Statement(_QUIET, {}), _SECONDS)
        return (_NO_SESSIONS_SECONDS if seconds is None else max(seconds, 0.0)) if idle else 0.0

    def finish_writing(self) -> None:
        """Do nothing: checkpoints are the work of a process of the server."""


def activity_of(store: Store, batches: str | None = None) -> ActivityCounters:
    """Return the counters of a store; `batches` as of `PostgresActivity`, where several connections write at a time."""
    if isinstance(store, SqliteStore):
        return SqliteActivity(store)
    from wane._db.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    return PostgresActivity(store, batches)
