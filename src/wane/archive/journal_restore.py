"""The journal of restores, in Wane's own tables: what was chosen, the progress of each piece, and which rows did not
come back.

A piece's progress is written in the transaction that brings its rows back, so a resuming process knows exactly which
rows are back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from wane.db.statement import Parameters
from wane.db.transaction import Transaction


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


@dataclass(frozen=True, slots=True)
class JournaledPiece:
    """What one task brings back."""

    number: int
    rows: int
    looked_at: int
    there: int
    replaced: int
    counts: dict[str, int]
    audit_id: int | None


_RESTORE = (
    "id, table_name, state, staged, into_name, on_conflict, protect_until, inputs, actor, planned_at, changed_at, parts"
)
_PIECE = "number, row_count, looked_at, there, replaced, counts, audit_id"


class RestoreJournal:
    """Reads and writes the journal of restores inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.dialect = transaction.dialect

    def _run(self, p: Parameters, text: str) -> list[tuple[Any, ...]]:
        return self.transaction.execute(text, p.values)

    def _own(self, name: str) -> str:
        return self.dialect.own_table(f"archive_{name}")

    def _json(self, p: Parameters, name: str, value: Any) -> str:
        return self.dialect.json(p.bind(name, json.dumps(value, ensure_ascii=True, default=str)))

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
        pieces: Sequence[int],
    ) -> JournaledRestore:
        """Enter a new restore, with the number of rows of each of its pieces, and return it."""
        p = self.transaction.parameters()
        now = p.bind("now", self.dialect.encode_time(self.transaction.now()))
        values = [
            p.bind("table", table),
            p.bind("state", RestoreState.PLANNED.value),
            p.bind("staged", staged),
            p.bind("into", into),
            p.bind("on_conflict", on_conflict.value),
            p.bind("protect", None if protect_until is None else self.dialect.encode_time(protect_until)),
            self._json(p, "inputs", inputs),
            p.bind("actor", actor),
            now,
            now,
            self._json(p, "parts", list(parts)),
        ]
        [(number,)] = self._run(
            p,
            f"INSERT INTO {self._own('restore')} (table_name, state, staged, into_name, on_conflict, protect_until, inputs, actor,"
            f" planned_at, changed_at, parts) VALUES ({', '.join(values)}) RETURNING id",
        )
        for position, rows in enumerate(pieces):
            p = self.transaction.parameters()
            self._run(
                p,
                f"INSERT INTO {self._own('restore_piece')} (restore_id, number, row_count, counts) VALUES"
                f" ({p.bind('id', number)}, {p.bind('number', position)}, {p.bind('rows', rows)}, {self._json(p, 'counts', {})})",
            )
        return self.restore(int(number))

    def restore(self, number: int) -> JournaledRestore:
        found = self.find(number)
        assert found is not None
        return found

    def find(self, number: int) -> JournaledRestore | None:
        """Return a restore; None if there is none of that number."""
        p = self.transaction.parameters()
        found = self._run(p, f"SELECT {_RESTORE} FROM {self._own('restore')} WHERE id = {p.bind('id', number)}")
        return self._restore(found[0]) if found else None

    def unfinished(self, table: str) -> JournaledRestore | None:
        p = self.transaction.parameters()
        found = self._run(
            p,
            f"SELECT {_RESTORE} FROM {self._own('restore')} WHERE table_name = {p.bind('table', table)} AND state <> 'done'",
        )
        return self._restore(found[0]) if found else None

    def restores(self, table: str | None, limit: int) -> list[JournaledRestore]:
        """Return restores, newest first."""
        p = self.transaction.parameters()
        where = "1 = 1" if table is None else f"table_name = {p.bind('table', table)}"
        found = self._run(
            p,
            f"SELECT {_RESTORE} FROM {self._own('restore')} WHERE {where} ORDER BY id DESC LIMIT {p.bind('limit', limit)}",
        )
        return [self._restore(row) for row in found]

    def _restore(self, row: tuple[Any, ...]) -> JournaledRestore:
        number, table, state, staged, into, on_conflict, protect, inputs, actor, planned, changed, parts = row
        names = _read(parts)
        moment = self.dialect.decode_time
        return JournaledRestore(
            number,
            table,
            RestoreState(state),
            staged,
            into,
            OnConflict(on_conflict),
            None if protect is None else moment(protect),
            _read(inputs),
            actor,
            moment(planned),
            moment(changed),
            None if names is None else tuple(names),
        )

    def move(self, number: int, state: RestoreState) -> JournaledRestore:
        """Record that a restore has reached the next step, and return it."""
        p = self.transaction.parameters()
        self._run(
            p,
            f"UPDATE {self._own('restore')} SET state = {p.bind('state', state.value)},"
            f" changed_at = {p.bind('now', self.dialect.encode_time(self.transaction.now()))} WHERE id = {p.bind('id', number)}",
        )
        return self.restore(number)

    def cancel(self, restore: JournaledRestore, state: RestoreState, actor: str) -> JournaledRestore:
        """End a restore where it is; its inputs record from now on who ended it."""
        p = self.transaction.parameters()
        inputs = self._json(p, "inputs", {**restore.inputs, "cancelled_by": actor})
        self._run(p, f"UPDATE {self._own('restore')} SET inputs = {inputs} WHERE id = {p.bind('id', restore.id)}")
        return self.move(restore.id, state)

    # Pieces

    def pieces(self, number: int) -> list[JournaledPiece]:
        p = self.transaction.parameters()
        found = self._run(
            p,
            f"SELECT {_PIECE} FROM {self._own('restore_piece')} WHERE restore_id = {p.bind('id', number)} ORDER BY number",
        )
        return [_piece(row) for row in found]

    def lock_piece(self, number: int, position: int) -> JournaledPiece:
        """Lock a piece until the transaction has ended, and return it."""
        p = self.transaction.parameters()
        where = f"restore_id = {p.bind('id', number)} AND number = {p.bind('number', position)}"
        # A write locks the row on every store.
        [row] = self._run(
            p, f"UPDATE {self._own('restore_piece')} SET looked_at = looked_at WHERE {where} RETURNING {_PIECE}"
        )
        return _piece(row)

    def progress(self, number: int, piece: JournaledPiece, kept: Sequence[tuple[str, str]]) -> None:
        """Record what became of a batch, in the transaction that did it."""
        p = self.transaction.parameters()
        self._run(
            p,
            f"UPDATE {self._own('restore_piece')} SET looked_at = {p.bind('looked_at', piece.looked_at)},"
            f" there = {p.bind('there', piece.there)}, replaced = {p.bind('replaced', piece.replaced)},"
            f" counts = {self._json(p, 'counts', piece.counts)}, audit_id = {p.bind('audit', piece.audit_id)}"
            f" WHERE restore_id = {p.bind('id', number)} AND number = {p.bind('number', piece.number)}",
        )
        for key, reason in kept:
            p = self.transaction.parameters()
            self._run(
                p,
                f"INSERT INTO {self._own('restore_kept')} (restore_id, number, key, reason) VALUES ({p.bind('id', number)},"
                f" {p.bind('number', piece.number)}, {p.bind('key', key)}, {p.bind('reason', reason)})",
            )

    def kept(self, number: int, *, piece: int | None = None, limit: int) -> list[tuple[str, str]]:
        """Return the keys of rows that did not come back, each with the reason."""
        p = self.transaction.parameters()
        one = "" if piece is None else f" AND number = {p.bind('piece', piece)}"
        return [
            (key, reason)
            for key, reason in self._run(
                p,
                f"SELECT key, reason FROM {self._own('restore_kept')} WHERE restore_id = {p.bind('id', number)}{one}"
                f" ORDER BY key LIMIT {p.bind('limit', limit)}",
            )
        ]

    def count_kept(self, number: int) -> int:
        p = self.transaction.parameters()
        [(count,)] = self._run(
            p, f"SELECT count(*) FROM {self._own('restore_kept')} WHERE restore_id = {p.bind('id', number)}"
        )
        return int(count)


def _piece(row: tuple[Any, ...]) -> JournaledPiece:
    number, rows, looked_at, there, replaced, counts, audit_id = row
    return JournaledPiece(number, rows, looked_at, there, replaced, _read(counts), audit_id)


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
