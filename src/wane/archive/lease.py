"""One writer for each table's archive, and none that is a clone of the database which writes to it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from wane import leases
from wane.archive.sql_log import ArchiveLog
from wane.db import Store
from wane.errors import ArchiveBusy, ArchiveError
from wane.leases import Lease


def require_owner(store: Store) -> None:
    """Raise if this database is a clone of the one that writes to the archive."""
    identity = store.identity()
    with store.transaction() as transaction:
        log = ArchiveLog(transaction.dialect, transaction.execute)
        origin, known = log.owner()
        if origin is None or known == identity:
            return
        if known is not None and not store.is_same_database(known):
            raise ArchiveError(
                f"this database is a clone of the one that writes to the archive: it was {known}, and this is {identity}",
                "if it replaces that database, `wane archive adopt` gives it the archive, and the other one is refused from then"
                " on; if both go on, name another folder as the clone's archive first",
            )
        log.own(origin, identity)


def leased(store: Store, table: str, seconds: int, *, adopting: bool = False) -> AbstractContextManager[Lease]:
    """Hold the lease of a table's archive.

    Raise ArchiveBusy if another process holds it, and ArchiveError in a clone of its database that is not `adopting`
    it.
    """
    if not adopting:
        require_owner(store)

    def busy(other: Lease) -> ArchiveBusy:
        return ArchiveBusy(
            f"the archive of {table} is being written by {other.holder}, until {other.until.isoformat()} at least",
            "wait until it is done; if it is dead, its lease ends by itself",
        )

    return leases.leased(store, f"archive {table}", seconds, busy)
