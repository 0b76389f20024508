"""Shared state of all work on the archive of one contract."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from wane._archive.delta.cold_table import ColdTable, root_of
from wane._archive.delta.group_commit import Commits, commit_single
from wane._archive.delta.paths import ColdPath
from wane._archive.delta.sql_log import ArchiveLog
from wane._archive.spark import executor
from wane._archive.spark.executor import ArchiveExecutor
from wane._archive.work import ArchiveWork
from wane._contract.names import TableName
from wane._db import Store
from wane._db.identity import is_same_database
from wane._db.transaction import Transaction
from wane._leases import Lease, leased
from wane._ledger import Ledger
from wane._prune.batches import require_open
from wane._prune.pacing import Closed, require_running
from wane._prune.sweep import Outcome
from wane.errors import ArchiveBusy, ArchiveError, LeaseLost, WaneError

_READ_SECONDS = 10.0
"""How long reading Wane's own tables may take."""


class Reported(Protocol):
    """What is reported of the work on one table."""

    outcome: Outcome
    message: str
    busy: bool


@dataclass(frozen=True, slots=True)
class ArchiveContext(ArchiveWork):
    """Work on the archive of one contract."""

    starting: Callable[[str], None] = lambda _: None
    """Called with the Spark master when Spark is being started, because that takes seconds."""
    commits: Commits = commit_single
    """Makes the commits of a sweep: alone, or together with those of other databases."""

    @property
    def executor(self) -> ArchiveExecutor:
        return executor.default(self.contract.spark, self.starting)

    # The archive's tables

    @property
    def root(self) -> ColdPath:
        """Return the archive's folder."""
        return root_of(self.contract)

    def origin(self, *, reading: bool = False) -> str:
        """Return the name by which archives know this database; one that no archive knows if it has none yet.

        Store that, unless the caller only reads.
        """
        known, _ = ArchiveLog(self.store.dialect, self.store.reader(_READ_SECONDS)).owner()
        if known is not None or reading:
            return known or uuid.uuid4().hex
        with self.store.transaction() as transaction:
            log = ArchiveLog(transaction.dialect, transaction.execute)
            return log.origin(uuid.uuid4().hex, self.store.identity())

    def cold_tables(self, names: Iterable[str], *, reading: bool = False) -> list[ColdTable]:
        """Return tables of the archive by their names."""
        root = self.root
        self.store.require_migrated()
        origin = self.origin(reading=reading)
        return [ColdTable(root, name, origin, shared=self.contract.archive_shared) for name in names]

    # One writer at a time

    def leased(self, table: str, *, adopting: bool = False) -> AbstractContextManager[Lease]:
        """Hold the lease of a table's archive.

        Raise ArchiveBusy if another process holds it, and ArchiveError in a clone of its database that is not
        `adopting` it.
        """
        if not adopting:
            require_owner(self.store)
        doing = f"the archive of {table} is being written"
        seconds = self.contract.spark.lease_seconds
        return leased(self.store, f"archive {table}", seconds, busy=ArchiveBusy, doing=doing)

    def require_open(self, transaction: Transaction, table: TableName | str) -> None:
        """Raise Closed if a stop was requested or a flag is off."""
        require_running(self.stop)
        require_open(Ledger.of(transaction).flags(), table, self.contract.sweep)

    @contextmanager
    def reporting(self, done: Reported) -> Iterator[None]:
        """Report a failure as the outcome of the work on one table, so that it does not affect others."""
        try:
            yield
        except Closed as closed:
            done.outcome = Outcome.STOPPED if self.stop.is_set() else Outcome.OFF
            done.message = str(closed)
        except LeaseLost as problem:
            done.outcome, done.message = Outcome.STOPPED, problem.message
        except WaneError as problem:
            done.outcome, done.message = Outcome.FAILED, str(problem)
            done.busy = isinstance(problem, ArchiveBusy)


def require_owner(store: Store) -> None:
    """Raise if this database is a clone of the one that writes to the archive."""
    identity = store.identity()
    with store.transaction() as transaction:
        log = ArchiveLog(transaction.dialect, transaction.execute)
        origin, known = log.owner()
        if origin is None or known == identity:
            return
        if known is not None and not is_same_database(known, identity):
            raise _clone(known, identity)
        log.own(origin, identity)


def require_original(store: Store) -> None:
    """Raise if this database is a clone of the one that writes to the archive, without writing anything.

    What a clone reads there is the original's: where both are counted, each row would count twice.
    """
    store.require_migrated()
    origin, known = ArchiveLog(store.dialect, store.reader(_READ_SECONDS)).owner()
    if origin is not None and known is not None and not is_same_database(known, identity := store.identity()):
        raise _clone(known, identity)


def _clone(known: str, identity: str) -> ArchiveError:
    return ArchiveError(
        f"this database is a clone of the one that writes to the archive: it was {known}, and this is {identity}",
        "if it replaces that database, `wane archive adopt` gives it the archive, and the other one is refused from then"
        " on; if both go on, `wane archive adopt --as-new` begins an archive of its own, in another folder or, where the"
        " archive is shared, in another partition",
    )
