"""Leases: a timed right with a fence, so that one process at a time does something.

Every time is the database's: `now` may be None where its clock can be read inside the statement.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from wane._db.clocked import ClockedStatements
from wane._db.statement import Dialect, Execute, Statement
from wane._db.store import Store
from wane._db.transaction import Transaction
from wane.errors import LeaseLost, StoreError, WaneError


@dataclass(frozen=True, slots=True)
class Lease:
    """A timed right: its holder, its fence, and its end."""

    name: str
    holder: str
    fence: int
    until: datetime


class Leases(ClockedStatements):
    """Reads and writes leases through a function that runs statements."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._until = "%(until)s::timestamptz" if self._locks else ":until"

    def _ends(self, now: datetime | None, until: datetime) -> dict[str, object]:
        return {**self._times(now), "until": self.dialect.encode_time(until)}

    def take(self, run: Execute, name: str, holder: str, until: datetime, now: datetime | None) -> tuple[bool, Lease]:
        """Take the lease under a new fence, if it is free; return whether it was, and the lease as it is now."""
        table = self.dialect.own_table("lease")
        found = run(
            f"INSERT INTO {table} AS l (name, holder, fence, taken_at, until)"
            f" VALUES ({self._('name')}, {self._('holder')}, 1, {self._now}, {self._until})"
            " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, fence = l.fence + 1, taken_at = excluded.taken_at,"
            f" until = excluded.until WHERE l.until <= {self._now} RETURNING name, holder, fence, until",
            {"name": name, "holder": holder, **self._ends(now, until)},
        )
        taken = bool(found)
        if not taken:
            found = run(f"SELECT name, holder, fence, until FROM {table} WHERE name = {self._('name')}", {"name": name})
        [(name, holder, fence, end)] = found
        return taken, Lease(name, holder, fence, self.dialect.decode_time(end))

    def renew(self, run: Execute, lease: Lease, until: datetime, now: datetime | None) -> bool:
        """Extend the lease if it is still the holder's; return whether it was."""
        found = run(
            f"UPDATE {self.dialect.own_table('lease')} SET until = {self._until} WHERE name = {self._('name')}"
            f" AND fence = {self._('fence')} AND until > {self._now} RETURNING 1",
            {"name": lease.name, "fence": lease.fence, **self._ends(now, until)},
        )
        return bool(found)

    def end(self, run: Execute, lease: Lease, now: datetime | None) -> None:
        """Release the lease, so that the next holder can take it at once."""
        run(
            f"UPDATE {self.dialect.own_table('lease')} SET until = {self._now} WHERE name = {self._('name')}"
            f" AND fence = {self._('fence')} AND until > {self._now}",
            {"name": lease.name, "fence": lease.fence, **self._times(now)},
        )

    def is_held(
        self, run: Execute, lease: Lease, fingerprint: str | None, now: datetime | None, *, most_seconds: float
    ) -> bool:
        """Check whether the lease is still the holder's and its contract, if given, still in force: see `held`."""
        statement = self.held(lease, fingerprint, now, most_seconds=most_seconds)
        return bool(run(statement.text, statement.parameters))

    def held(self, lease: Lease, fingerprint: str | None, now: datetime | None, *, most_seconds: float) -> Statement:
        """Write the statement that returns a row if the lease is still the holder's and its contract in force.

        The lease stays so until this transaction ends: no other process takes it over while the transaction holds its
        row. So that a holder that was stopped does not hold it for ever, the server ends a statement, or a pause
        between two, that lasts longer than `most_seconds`.
        """
        what = "1"
        values: dict[str, object] = {
            "name": lease.name,
            "fence": lease.fence,
            **({} if fingerprint is None else {"fingerprint": fingerprint}),
            **self._times(now),
        }
        if self._locks:
            what = (
                "set_config('statement_timeout', %(limit)s, true),"
                " set_config('idle_in_transaction_session_timeout', %(limit)s, true)"
            )
            values["limit"] = str(max(int(most_seconds * 1_000), 1))
        contract = f"SELECT 1 FROM {self.dialect.own_table('contract')} WHERE fingerprint = {self._('fingerprint')}"
        in_force = "" if fingerprint is None else f" AND EXISTS ({contract})"
        return Statement(
            f"SELECT {what} FROM {self.dialect.own_table('lease')} WHERE name = {self._('name')} AND fence = {self._('fence')}"
            f" AND until > {self._now}{in_force}{' FOR SHARE' if self._locks else ''}",
            values,
        )

    def require(
        self,
        run: Execute,
        lease: Lease,
        now: datetime | None,
        *,
        most_seconds: float,
        lost: type[WaneError] = LeaseLost,
    ) -> None:
        """Raise `lost` unless the lease is still the holder's, and keep it so until the transaction ends."""
        if not self.is_held(run, lease, None, now, most_seconds=most_seconds):
            raise lost(
                f"the lease of {lease.name!r} ended", "another process may have continued the work; run it again"
            )

    def current(self, run: Execute, now: datetime | None) -> list[Lease]:
        """Return the leases that are held."""
        found = run(
            f"SELECT name, holder, fence, until FROM {self.dialect.own_table('lease')} WHERE until > {self._now} ORDER BY name",
            self._times(now),
        )
        return [Lease(name, holder, fence, self.dialect.decode_time(until)) for name, holder, fence, until in found]


@dataclass(frozen=True, slots=True)
class Fence:
    """Checks in a transaction that a lease is still the holder's and its contract in force: see `Leases.held`."""

    lease: Lease
    fingerprint: str | None
    most_seconds: float
    lost: str
    """The error's message if it is not."""

    def __call__(self, transaction: Transaction) -> None:
        """Raise LeaseLost if another process may work now."""
        if not transaction.read(self.held(transaction.dialect, transaction.clock())):
            raise LeaseLost(self.lost)

    def held(self, dialect: Dialect, now: datetime | None) -> Statement:
        """Write the statement that returns a row if the lease is held."""
        return Leases(dialect).held(self.lease, self.fingerprint, now, most_seconds=self.most_seconds)


@contextmanager
def leased(store: Store, name: str, seconds: float, *, busy: type[WaneError], doing: str) -> Iterator[Lease]:
    """Hold the lease of this name; if another process holds it, raise `busy`. `doing`: what its holder does."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    leases = Leases(store.dialect)
    with store.write() as (run, now):
        taken, lease = leases.take(run, name, holder, _until(store, now, seconds), now)
    if not taken:
        raise busy(
            f"{doing} by {lease.holder}, until {lease.until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC at least",
            "wait until it is done; if it is dead, its lease ends by itself",
        )
    over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(store, lease, seconds, over), daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        over.set()
        renewing.join()
        with suppress(StoreError), store.write() as (run, now):
            leases.end(run, lease, now)


def _renew(store: Store, lease: Lease, seconds: float, over: threading.Event) -> None:
    """Renew the lease until it is over; a failed renewal is only retried, because every step checks the lease."""
    leases = Leases(store.dialect)
    while not over.wait(seconds / 3):
        with suppress(StoreError), store.write() as (run, now):
            if not leases.renew(run, lease, _until(store, now, seconds), now):
                return


def _until(store: Store, now: datetime | None, seconds: float) -> datetime:
    return (now or store.now()) + timedelta(seconds=seconds)
