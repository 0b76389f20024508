"""Deleting archived rows from the hot tables: every check of the rule again, and that the archive holds exactly what is
about to leave.

A row goes only if it exists, is due, has the version that was copied, and is followed by exactly the rows that were
copied with it. Everything is checked under locks and taken by the same statements that prune. A row that exists and
does not meet all of that stays hot, and its copy is stale. A row that does not exist is no evidence: it left before, or
the application deleted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from wane._archive.pipeline.followers import Following, each, following
from wane._archive.rows.sql import ArchiveRows
from wane._db.statement import Statement
from wane._db.transaction import Transaction
from wane._prune.take import Key, RowTaker
from wane.errors import Locked


@dataclass(frozen=True, slots=True)
class Copy:
    """What the archive holds of one row."""

    text: str
    """Its key, as the archive writes it."""
    key: Key
    version: str
    following: Following
    position: int
    """Its position among the copies of its range."""
    archived: str
    """Its version, as the archive has it."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """What became of a batch of copies."""

    counts: dict[str, int]
    stale: tuple[tuple[str, str, str], ...]
    """Copies of rows that stay: key, version as the archive has it, and why the row stays."""
    missing: tuple[tuple[str, str], ...]
    """Copies whose rows are gone, by key and version: the application deleted them, since every row that an eviction
    takes is checked once."""
    locked: tuple[Copy, ...]
    """Rows that others hold locked; to be retried."""

    @property
    def absent(self) -> int:
        return len(self.missing)


def evict(
    taker: RowTaker, archive: ArchiveRows, copies: Sequence[Copy], now: datetime, *, skip_locked: bool
) -> Evicted:
    """Delete the rows of these copies, as far as they may leave, and report what became of each.

    Raise Locked if followers changed meanwhile.
    """
    selection = archive.selection
    transaction = taker.transaction
    taker.close_references(selection)
    by_text = {copy.text: copy for copy in copies}
    keys = taker.lock(selection, [copy.key for copy in copies], skip_locked=skip_locked)
    mine = {tuple(key) for key in keys}
    found: dict[str, str] = dict(_read(transaction, archive.present([copy.key for copy in copies])))
    # A key that is compared case-insensitively finds its row's successor too, which is another row.
    present = {text: version for text, version in found.items() if text in by_text}
    locked = tuple(by_text[text] for text in present if by_text[text].key not in mine)
    held = {copy.text for copy in locked}
    here = [by_text[text] for text in present if text not in held]
    wanted = [copy.key for copy in here]
    spared = taker.lock_spared(selection, wanted) if wanted else set()
    due = {text for (text,) in _read(transaction, archive.due(wanted, now))} if wanted else set()
    due -= {copy.text for copy in here if copy.key in spared}
    texts = pa.array([copy.text for copy in here], pa.string())
    sums = following(_followers(transaction, archive, wanted) if wanted else (), texts)
    stale, chosen = [], []
    for copy, followed in zip(here, each(sums), strict=True):
        reason = _reason(copy, present[copy.text], followed, due=copy.text in due)
        if reason:
            stale.append((copy.text, copy.archived, reason))
        else:
            chosen.append(copy)
    counts: dict[str, int] = {str(selection.name): 0}
    if chosen:
        counts.update(taker.take_chosen(selection, now, [copy.key for copy in chosen]))
        gone = sum(counts.values()) - counts[str(selection.name)]
        if gone != sum(copy.following.rows for copy in chosen):
            # A follower was added since they were compared; the next attempt sees it.
            raise Locked(
                f"{selection.name}: rows that follow it changed while it left; nothing was changed",
                "run it again: the next attempt compares them anew",
            )
    missing = tuple((copy.text, copy.archived) for copy in copies if copy.text not in present)
    return Evicted(counts, tuple(stale), missing, locked)


def _reason(copy: Copy, version: str, following: Following, *, due: bool) -> str:
    """Report why a row stays; "" if it may go."""
    if version != copy.version:
        return "changed"
    if not due:
        return "no longer due"
    return "" if following == copy.following else "followers changed"


def _followers(
    transaction: Transaction, archive: ArchiveRows, keys: Sequence[Key]
) -> Iterator[tuple[int, pa.Array, pa.Array, pa.Array]]:
    """Yield what follows the rows with these keys, part by part: the rows' keys, its own keys, and versions."""
    for number, part in enumerate(archive.parts):
        if part.path:
            found = _read(transaction, archive.following(part, keys))
            parents, own, versions = (pa.array([row[column] for row in found], pa.string()) for column in range(3))
            yield number, parents, own, versions


def _read(transaction: Transaction, statement: Statement) -> list[tuple[Any, ...]]:
    return transaction.execute(statement.text, statement.parameters)
