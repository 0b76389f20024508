"""The journal of restores: what was chosen, the progress of each piece, and which rows did not come back.

A piece's progress is written in the transaction that restores its rows, so a resuming process knows exactly which
rows are back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from wane._archive.journal import AT_ONCE
from wane._db.statement import Dialect
from wane._db.transaction import Transaction
from wane._journal import Entries, JournalTable

PROTECT = timedelta(days=7)
"""How long restored rows are held against sweeps by default."""


class RestoreState(StrEnum):
    """The progress of a restore: its rows are chosen; they are back; their copies have left the archive."""

    PLANNED = "planned"
    RESTORED = "restored"
    DONE = "done"


class OnConflict(StrEnum):
    """What becomes of a row whose key another row has."""

    REFUSE = "refuse"
    SKIP = "skip"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class JournaledRestore:
    """One restore, as recorded in the journal."""

    id: int
    table: str
    state: RestoreState
    staged: str
    into: str | None
    on_conflict: OnConflict
    protect_until: datetime | None
    inputs: dict[str, Any]
    actor: str
    planned_at: datetime
    changed_at: datetime
    parts: tuple[str, ...] | None
    """The tables whose rows come back, in the order of what is staged; None if the journal does not record them."""
    left_out: Any
    """For each of them: archived columns that it does not have, whose values stay in the archive; None if none has
    any."""


@dataclass(frozen=True, slots=True)
class JournaledPiece:
    """What one task restores."""

    number: int
    rows: int
    looked_at: int
    there: int
    """Rows that existed already."""
    replaced: int
    counts: dict[str, int]
    audit_id: int | None


class UnrestoredRow(NamedTuple):
    """A row that did not come back, and stays in the archive."""

    key: str
    reason: str


RESTORES = JournalTable(
    "archive_restore",
    JournaledRestore,
    moves={
        RestoreState.PLANNED: (RestoreState.RESTORED, RestoreState.DONE),
        RestoreState.RESTORED: (RestoreState.RESTORED, RestoreState.DONE),
    },
)
_PIECES = JournalTable("archive_restore_piece", JournaledPiece, order="number")
_UNRESTORED = JournalTable("archive_restore_kept", UnrestoredRow, order="key")


def batches_of(dialect: Dialect, restore: int) -> str:
    """Return the query that counts the batches of a restore, over all pieces; it names everything in full."""
    return (
        "SELECT coalesce(pg_catalog.sum(audit.batches), 0)::pg_catalog.int8"
        f" FROM {dialect.own_table('archive_restore_piece')} AS piece"
        f" JOIN {dialect.own_table('audit')} AS audit ON audit.id OPERATOR(pg_catalog.=) piece.audit_id"
        f" WHERE piece.restore_id OPERATOR(pg_catalog.=) {restore:d}"
    )


class RestoreJournal:
    """Reads and writes the journal of restores inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self._restores = Entries(RESTORES, transaction.dialect, transaction.execute)
        self._pieces = Entries(_PIECES, transaction.dialect, transaction.execute)
        self._unrestored = Entries(_UNRESTORED, transaction.dialect, transaction.execute)

    def plan(
        self,
        table: str,
        *,
        staged: str,
        into: str | None,
        on_conflict: OnConflict,
        protect_until: datetime | None,
        inputs: dict[str, Any],
        actor: str,
        parts: Sequence[str],
        left_out: Sequence[Sequence[str]],
        pieces: Sequence[int],
    ) -> JournaledRestore:
        """Enter a new restore, with the number of rows of each of its pieces, and return it."""
        now = self.transaction.now()
        restore = self._restores.add(
            table_name=table,
            state=RestoreState.PLANNED,
            staged=staged,
            into_name=into,
            on_conflict=on_conflict,
            protect_until=protect_until,
            inputs=inputs,
            actor=actor,
            planned_at=now,
            changed_at=now,
            parts=list(parts),
            left_out=[list(names) for names in left_out] if any(left_out) else None,
        )
        for number, rows in enumerate(pieces):
            self._pieces.add(restore_id=restore.id, number=number, row_count=rows, counts={})
        return restore

    def disown(self, number: int) -> None:
        """End a restore that another database began, of which this one is a clone, whatever its state."""
        self._restores.change({"id": number}, state=RestoreState.DONE, changed_at=self.transaction.now())

    def find(self, number: int) -> JournaledRestore | None:
        """Return a restore; None if there is none of that number."""
        return next(iter(self._restores.find(id=number)), None)

    def unfinished(self, table: str) -> JournaledRestore | None:
        """Return the unfinished restore of a table; there is at most one."""
        return next(iter(self._restores.unfinished(table_name=table)), None)

    def restores(self, table: str | None, limit: int, *, unfinished: bool = False) -> list[JournaledRestore]:
        """Return restores, newest first; with `unfinished`, only those that are not done."""
        of_table: dict[str, Any] = {} if table is None else {"table_name": table}
        if unfinished:
            return self._restores.unfinished(**of_table)[::-1][:limit]
        return self._restores.find(limit=limit, newest_first=True, **of_table)

    def move(self, number: int, state: RestoreState) -> JournaledRestore:
        """Record that a restore has reached a state, and return it."""
        return self._restores.move(number, state, changed_at=self.transaction.now())

    def cancel(self, restore: JournaledRestore, state: RestoreState, actor: str) -> JournaledRestore:
        """End a restore where it is; its inputs record from now on who ended it."""
        self._restores.change({"id": restore.id}, inputs={**restore.inputs, "cancelled_by": actor})
        return self.move(restore.id, state)

    # Pieces

    def pieces(self, number: int) -> list[JournaledPiece]:
        return self._pieces.find(restore_id=number)

    def lock_piece(self, number: int, position: int) -> JournaledPiece:
        """Lock a piece until the transaction has ended, and return it."""
        # A write locks the row on every store.
        [piece] = self._pieces.change({"restore_id": number, "number": position}, add={"looked_at": 0})
        return piece

    def progress(self, number: int, piece: JournaledPiece, unrestored: Sequence[tuple[str, str]]) -> None:
        """Record what became of a batch, in the transaction that did it."""
        self._pieces.change(
            {"restore_id": number, "number": piece.number},
            looked_at=piece.looked_at,
            there=piece.there,
            replaced=piece.replaced,
            counts=piece.counts,
            audit_id=piece.audit_id,
        )
        for key, reason in unrestored:
            self._unrestored.add(restore_id=number, number=piece.number, key=key, reason=reason)

    def unrestored(self, number: int, *, piece: int | None = None, limit: int) -> list[UnrestoredRow]:
        """Return the keys of rows that did not come back, each with the reason."""
        of_piece: dict[str, Any] = {} if piece is None else {"number": piece}
        return self._unrestored.find(restore_id=number, limit=limit, **of_piece)

    def count_unrestored(self, number: int) -> int:
        """Count the rows that did not come back."""
        return self._unrestored.count(restore_id=number)

    def forget(self, table: str, before: datetime) -> int:
        """Delete restores of a table that were done before a time; return how many there were."""
        done = self._restores.ended(before, AT_ONCE, "state = 'done'", table_name=table)
        for restore in done:
            self._unrestored.delete(restore_id=restore.id)
            self._pieces.delete(restore_id=restore.id)
        return sum(self._restores.delete(id=restore.id) for restore in done)
