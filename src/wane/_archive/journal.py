"""The journal of sweeps: which there are, the progress of each, and what the archive of each table is known to be.

Everything that a sweep does outside the database (files, commits to the archive) can be repeated; what it has done is
known from here. A writer shows the fence of its lease in the same transaction, so that one that was replaced changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from wane._contract.model import FOLLOWING
from wane._db.statement import Dialect
from wane._db.transaction import Transaction
from wane._journal import JSON, Entries, JournalTable
from wane._leases import Lease, Leases
from wane._ledger import add_counts
from wane.errors import ArchiveBusy


class State(StrEnum):
    """The progress of a sweep. Each step can be repeated until the next one is reached."""

    PLANNED = "planned"
    WRITTEN = "written"
    VERIFIED = "verified"
    COMMITTED = "committed"
    EVICTED = "evicted"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Journaled:
    """One sweep, as recorded in the journal."""

    id: int
    table: str
    rule: str
    state: State
    strict: bool
    decided_at: datetime
    """The time that decides what is due."""
    planned_at: datetime
    changed_at: datetime
    actor: str
    columns: Any
    """The columns of each table of the sweep when it was planned."""
    layout: Any
    """`ArchiveRows.layout` when it was planned; None if an older Wane planned it."""
    parts: tuple[str, ...] | None
    """Those tables, in the same order; None if the journal does not record them."""
    archived: dict[str, int]
    evicted: dict[str, int]
    stale: int
    absent: int
    audit_id: int | None
    transform: Any
    """What happened to columns of its rows on the way (`Contract.described_transform`); None: nothing."""
    changes: Any
    """How columns changed since the sweep before (`ColumnChange.written`); None if they did not."""

    @property
    def committed(self) -> bool:
        """Return whether the archive has its files."""
        return self.state in (State.COMMITTED, State.EVICTED, State.DONE)


@dataclass(frozen=True, slots=True)
class ArchivedSweep:
    """A sweep that filled the archive, without its details."""

    id: int
    table: str
    rule: str
    state: State
    archived: dict[str, int]

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    @property
    def wrote(self) -> frozenset[str]:
        """Return the tables that it wrote to."""
        return frozenset(self.archived)


@dataclass(frozen=True, slots=True)
class ChangedSweep:
    """A sweep before which columns of its tables changed."""

    id: int
    table: str
    planned_at: datetime
    changes: Any


@dataclass(frozen=True, slots=True)
class RangeEviction:
    """What became of the copies of a range, over all attempts to evict it."""

    evicted: dict[str, int] = field(default_factory=dict)
    stale: int = 0
    absent: int = 0
    batches: int = 0
    seconds: float = 0.0
    """How long its batches took."""
    audit_id: int | None = None
    """Its audit row."""

    def after(self, counts: dict[str, int], stale: int, absent: int, seconds: float, audit_id: int) -> RangeEviction:
        """Return it with one batch added."""
        return RangeEviction(
            add_counts(self.evicted, counts),
            self.stale + stale,
            self.absent + absent,
            self.batches + 1,
            round(self.seconds + seconds, 6),
            audit_id,
        )


@dataclass(frozen=True, slots=True)
class JournaledRange:
    """A range of a sweep that one task reads."""

    number: int
    bounds: Any
    manifest: Any
    evicted: int
    """How many of its copies have been checked, in the order of its files, but for those that wait."""
    evictor: str | None = None
    """The latest attempt to evict it; no earlier one may."""
    gone: Any = None

    @property
    def eviction(self) -> RangeEviction:
        """Return what became of its copies so far."""
        return RangeEviction(**(self.gone or {}))

    @property
    def copies(self) -> int:
        """Return how many rows of the table were copied, without what follows them."""
        return sum(file["rows"] for file in self.manifest["parts"][0]["files"])

    @property
    def finished(self) -> bool:
        """Return whether all of its copies were checked."""
        return self.evicted >= self.copies and not self.waiting

    @property
    def waiting(self) -> frozenset[int]:
        """Return the positions of copies among them that were left out, because others held their rows locked."""
        return frozenset((self.manifest or {}).get("waiting", ()))

    def after(self, positions: Sequence[int], left_out: Iterable[int], gone: RangeEviction) -> JournaledRange:
        """Return the range as it is when copies at these positions were checked, but for some that were left out."""
        waiting = {one for one in self.waiting if one not in positions}.union(left_out)
        manifest = {**self.manifest, "waiting": sorted(waiting)} if waiting != self.waiting else self.manifest
        return replace(self, evicted=max(self.evicted, positions[-1] + 1), manifest=manifest, gone=asdict(gone))


class StaleCopy(NamedTuple):
    """A copy that has to leave the archive, because its row stays hot."""

    key: str
    version: str


class AbsentCopy(NamedTuple):
    """A copy whose row the application had deleted when the sweep came to it."""

    sweep_id: int
    key: str
    version: str
    checked_at: datetime


SWEEPS = JournalTable(
    "archive_sweep",
    Journaled,
    moves={
        # Back to an earlier state if files were lost or not proven; to the end if nothing of it can be used.
        State.PLANNED: (State.PLANNED, State.WRITTEN, State.DONE),
        State.WRITTEN: (State.PLANNED, State.WRITTEN, State.VERIFIED, State.DONE),
        State.VERIFIED: (State.PLANNED, State.WRITTEN, State.COMMITTED),
        State.COMMITTED: (State.EVICTED,),
        State.EVICTED: (State.DONE,),
    },
)
_SUMMARIES = JournalTable("archive_sweep", ArchivedSweep)
_CHANGED = JournalTable("archive_sweep", ChangedSweep)
_RANGES = JournalTable("archive_range", JournaledRange, order="number")
_STALE = JournalTable("archive_stale", StaleCopy, order="key")
_ABSENT = JournalTable("archive_absent", AbsentCopy, order="sweep_id, key")
_MOST_SECONDS = 30.0
"""The longest that one statement under a lease may take."""
AT_ONCE = 500
"""The most sweeps, restores and jobs, of each, whose details one call deletes: the next one continues."""


def batches_of(dialect: Dialect, sweep: int) -> str:
    """Return the query that counts the batches of a sweep's eviction, over all ranges; it names everything in full."""
    return (
        "SELECT coalesce(pg_catalog.sum(pg_catalog.jsonb_extract_path_text(gone, 'batches')::pg_catalog.int8), 0)"
        f"::pg_catalog.int8 FROM {dialect.own_table('archive_range')} WHERE sweep_id OPERATOR(pg_catalog.=) {sweep:d}"
    )


class Journal:
    """Reads and writes the journal of sweeps inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.dialect = transaction.dialect
        self._sweeps = Entries(SWEEPS, self.dialect, transaction.execute)
        self._ranges = Entries(_RANGES, self.dialect, transaction.execute)
        self._stale = Entries(_STALE, self.dialect, transaction.execute)
        self._absent = Entries(_ABSENT, self.dialect, transaction.execute)

    def require(self, lease: Lease) -> None:
        """Raise ArchiveBusy unless the lease is still held, and keep it held until the transaction has ended."""
        run, now = self.transaction.execute, self.transaction.clock()
        Leases(self.dialect).require(run, lease, now, most_seconds=_MOST_SECONDS, lost=ArchiveBusy)

    # The columns of a table's archive

    def known(self, table: str) -> tuple[Any, str | None]:
        """Return the columns as of the last commit, and the fingerprint of those that a strict sweep has proven."""
        p = self.transaction.parameters()
        found = self.transaction.execute(
            f"SELECT columns, proven FROM {self.dialect.own_table('archive_table')}"
            f" WHERE table_name = {p.bind('table', table)}",
            p.values,
        )
        return (JSON.decode(self.dialect, found[0][0]), found[0][1]) if found else (None, None)

    def remember(self, table: str, columns: Any, proven: str | None) -> None:
        """Record the columns of a commit, and the fingerprint of those that it has proven, if it has."""
        p = self.transaction.parameters()
        values = ", ".join((p.bind("table", table), JSON.encode(p, "columns", columns), p.bind("proven", proven)))
        self.transaction.execute(
            f"INSERT INTO {self.dialect.own_table('archive_table')} AS t (table_name, columns, proven) VALUES ({values})"
            " ON CONFLICT (table_name) DO UPDATE SET columns = excluded.columns,"
            " proven = coalesce(excluded.proven, t.proven)",
            p.values,
        )

    # Sweeps

    def plan(
        self,
        table: str,
        rule: str,
        *,
        strict: bool,
        decided_at: datetime,
        actor: str,
        columns: Any,
        layout: Any,
        parts: Sequence[str],
        ranges: Sequence[Any],
        transform: dict[str, Any] | None = None,
        changes: Sequence[Any] = (),
    ) -> Journaled:
        """Enter a new sweep with its ranges, and return it."""
        now = self.transaction.now()
        sweep = self._sweeps.add(
            table_name=table,
            rule=rule,
            state=State.PLANNED,
            strict=strict,
            decided_at=decided_at,
            planned_at=now,
            changed_at=now,
            actor=actor,
            columns=columns,
            layout=layout,
            parts=list(parts),
            archived={},
            evicted={},
            **({"transform": transform} if transform else {}),
            **({"changes": list(changes)} if changes else {}),
        )
        for number, bounds in enumerate(ranges):
            self._ranges.add(sweep_id=sweep.id, number=number, bounds=bounds)
        return sweep

    def unfinished(self, table: str) -> Journaled | None:
        """Return the unfinished sweep of a table; there is at most one."""
        return next(iter(self._sweeps.unfinished(table_name=table)), None)

    def sweeps(self, table: str | None, limit: int) -> list[Journaled]:
        """Return sweeps, newest first."""
        of_table: dict[str, Any] = {} if table is None else {"table_name": table}
        return [self._total(one) for one in self._sweeps.find(limit=limit, newest_first=True, **of_table)]

    def last(self, table: str) -> Journaled | None:
        """Return the last sweep of a table; None if there was none."""
        return next(iter(self._sweeps.find(limit=1, newest_first=True, table_name=table)), None)

    def changed(self) -> list[ChangedSweep]:
        """Return every sweep before which columns changed, in order."""
        return Entries(_CHANGED, self.dialect, self.transaction.execute).find(known=["changes"])

    def _total(self, sweep: Journaled) -> Journaled:
        """Return a sweep with what its ranges count themselves."""
        if sweep.state is not State.COMMITTED:
            return sweep
        return self._added(sweep, [one.eviction for one in self.ranges(sweep.id)])

    @staticmethod
    def _added(sweep: Journaled, ranges: Sequence[RangeEviction]) -> Journaled:
        evicted = sweep.evicted
        for gone in ranges:
            evicted = add_counts(evicted, gone.evicted)
        trail = [sweep.audit_id, *(gone.audit_id for gone in ranges)]
        return replace(
            sweep,
            evicted=evicted,
            stale=sweep.stale + sum(gone.stale for gone in ranges),
            absent=sweep.absent + sum(gone.absent for gone in ranges),
            audit_id=next((one for one in trail if one is not None), None),
        )

    def add_up(self, number: int, record_nothing: Callable[[], int]) -> None:
        """Add what ranges count themselves to their sweep, of which nothing is evicted any more.

        `record_nothing` writes the audit row of a sweep that took nothing.
        """
        [total] = map(self._total, self._sweeps.find(id=number))
        audit_id = record_nothing() if total.audit_id is None else total.audit_id
        self._sweeps.change(
            {"id": number}, evicted=total.evicted, stale=total.stale, absent=total.absent, audit_id=audit_id
        )

    def claim(self, sweep: int, number: int, evictor: str) -> JournaledRange:
        """Return a range as it is now, for the named attempt to evict; from here on, no earlier attempt can."""
        [claimed] = self._ranges.change({"sweep_id": sweep, "number": number}, evictor=evictor)
        return claimed

    def transformed(self, tables: Iterable[str]) -> dict[str, dict[int, dict[str, Any]]]:
        """Return what happened to rows of tables on the way, by table and sweep, of sweeps that did not copy them as
        they were: those of the tables, and of tables that they follow."""
        found: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in tables}
        for sweep in self._sweeps.find(known=["transform"]):
            described = dict(sweep.transform or {})
            following = described.pop(FOLLOWING, {})
            for table, one in {**following, sweep.table: described}.items():
                if one and table in found:
                    found[table][sweep.id] = one
        return found

    def find(self, number: int) -> Journaled | None:
        """Return a sweep; None if there is none of that number."""
        return next(iter(self._sweeps.find(id=number)), None)

    def summaries(self) -> dict[int, ArchivedSweep]:
        """Return every sweep of every table, by number."""
        found = Entries(_SUMMARIES, self.dialect, self.transaction.execute).find()
        return {sweep.id: sweep for sweep in found}

    def move(self, number: int, state: State, *, archived: dict[str, int] | None = None) -> Journaled:
        """Record that a sweep has reached a state, and return it."""
        also = {} if archived is None else {"archived": archived}
        return self._sweeps.move(number, state, changed_at=self.transaction.now(), **also)

    def disown(self, number: int) -> None:
        """End a sweep that another database began, of which this one is a clone, whatever its state."""
        self._sweeps.change({"id": number}, state=State.DONE, changed_at=self.transaction.now())

    def ranges(self, number: int) -> list[JournaledRange]:
        return self._ranges.find(sweep_id=number)

    def write(self, number: int, manifests: Iterable[tuple[int, Any]]) -> None:
        """Record what a task wrote of some ranges."""
        for position, manifest in manifests:
            self._ranges.change({"sweep_id": number, "number": position}, manifest=manifest)

    def discard(self, number: int, positions: Iterable[int]) -> None:
        """Delete what was recorded of some ranges, so that they are copied again."""
        self.write(number, ((position, None) for position in positions))

    def require_claim(self, sweep: int, claimed: JournaledRange) -> None:
        """Raise ArchiveBusy if another attempt has claimed a range, and let none do so until the transaction has ended.

        An attempt that was overtaken may not judge copies any more: a row that it would compare may be another by now,
        with the key of one that has left.
        """
        p = self.transaction.parameters()
        mine = " AND ".join(
            f"{name} = {p.bind(name, value)}"
            for name, value in (("sweep_id", sweep), ("number", claimed.number), ("evictor", claimed.evictor))
        )
        lock = " FOR UPDATE" if self.dialect.locks_rows else ""
        own = self.dialect.own_table("archive_range")
        if not self.transaction.execute(f"SELECT 1 FROM {own} WHERE {mine}{lock}", p.values):
            raise ArchiveBusy(
                f"another attempt evicts range {claimed.number} of sweep {sweep}; this one changed nothing",
                "nothing needs to be done: that attempt finishes the range, or the next run of the archive does",
            )

    def progress(self, sweep: int, claimed: JournaledRange, stale: Sequence[tuple[str, str, str]]) -> None:
        """Record a batch of evictions, in the transaction that did it: the range is as the batch leaves it."""
        also = {"manifest": claimed.manifest} if "waiting" in claimed.manifest else {}
        here = {"sweep_id": sweep, "number": claimed.number}
        self._ranges.change(here, evicted=claimed.evicted, gone=claimed.gone, **also)
        for key, version, reason in stale:
            self._stale.ensure(sweep_id=sweep, key=key, version=version, reason=reason)

    def mark_restored(self, number: int) -> None:
        """Record that copies which had left the archive are in it again."""
        self._stale.change({"sweep_id": number}, removed=False)

    def stale(self, number: int, limit: int, after: str | None = None) -> list[StaleCopy]:
        """Read keys and versions of copies that have yet to leave the archive, in the order of keys, after one."""
        return self._stale.find(sweep_id=number, removed=False, limit=limit, after=after)

    def removed(self, number: int) -> None:
        """Record that all stale copies of a sweep have left the archive."""
        self._stale.change({"sweep_id": number, "removed": False}, removed=True)

    def note_absent(self, number: int, copies: Iterable[tuple[str, str]]) -> None:
        """Record copies whose rows were gone, in the transaction that found it."""
        for key, version in copies:
            self._absent.ensure(sweep_id=number, key=key, version=version, checked_at=self.transaction.now())

    def absent(self, number: int, limit: int) -> list[AbsentCopy]:
        """Return copies of a sweep whose rows were gone."""
        return self._absent.find(sweep_id=number, limit=limit)

    def absent_sweeps(self, table: str) -> list[int]:
        """Return the sweeps of a table that have copies whose rows were gone."""
        p = self.transaction.parameters()
        sweeps, absent = self.dialect.own_table("archive_sweep"), self.dialect.own_table("archive_absent")
        found = self.transaction.execute(
            f"SELECT s.id FROM {sweeps} AS s WHERE s.table_name = {p.bind('table', table)} AND s.state = 'done'"
            f" AND EXISTS (SELECT 1 FROM {absent} AS a WHERE a.sweep_id = s.id) ORDER BY s.id",
            p.values,
        )
        return [number for (number,) in found]

    def forget_absent_of(self, sweep: int) -> None:
        """Delete what was recorded of such copies of a sweep of which nothing is archived any more."""
        self._absent.delete(sweep_id=sweep)

    def forget_absent(self, copies: Iterable[AbsentCopy]) -> None:
        """Delete what was recorded of copies that are no longer archived: their keys are values of deleted rows."""
        for copy in copies:
            self._absent.delete(sweep_id=copy.sweep_id, key=copy.key)

    def forget(self, table: str, before: datetime) -> int:
        """Delete the ranges of sweeps of a table that were done before a time; return how many ranges there were.

        The sweeps themselves are retained for good: archived rows carry their numbers.
        """
        # A sweep without ranges was handled before.
        ranged = f"id IN (SELECT sweep_id FROM {self.dialect.own_table('archive_range')})"
        done = self._sweeps.ended(before, AT_ONCE, f"state = 'done' AND {ranged}", table_name=table)
        for sweep in done:
            self._stale.delete(sweep_id=sweep.id)
        return sum(self._ranges.delete(sweep_id=sweep.id) for sweep in done)
