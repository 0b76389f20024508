"""One writer for each table's archive, and none that is a clone of the database which writes to it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from wane.errors import ArchiveBusy, ArchiveError
from wane.prune import lease
from wane.store import Store
from wane.store.archive_log import ArchiveLog
from wane.store.timetable import Lease


def require_owner(store: Store) -> None:
    """Raise if this database is a clone of the one that writes to the archive."""
    identity = store.identity()
    with store.transaction() as transaction:
        log = ArchiveLog(transaction.rows.dialect, transaction.execute)
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
    """Hold the lease of a table's archive; raise ArchiveBusy if another process does, and ArchiveError in a clone of its database
    that is not `adopting` it."""
    if not adopting:
        require_owner(store)

    def busy(other: Lease) -> ArchiveBusy:
        return ArchiveBusy(
            f"the archive of {table} is being written by {other.holder}, until {other.until.isoformat()} at least",
            "wait until it is done; if it is dead, its lease ends by itself",
        )

    return lease.leased(store, f"archive {table}", seconds, busy)
