"""Taking rows: find, lock, check again, delete, count, inside one transaction.

What both stores share is here; `sql_sqlite` and `sql_postgres` implement what differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from wane._contract.model import Mark, ToColdTier
from wane._db.schema import TableInfo
from wane._db.statement import Statement
from wane._db.transaction import Transaction
from wane._frozen import frozen
from wane._ledger import Flag
from wane._rules.batch_statements import FollowerStatements
from wane._rules.rows import Rows
from wane._rules.rule_statements import RuleStatements, scopes_of, statements_of
from wane._rules.selection import Selection, follower_paths
from wane.errors import StoreError

Key = tuple[Any, ...]
_MOST_IDENTIFIED = 5_000
"""Rows of a follower with followers of its own that leave before their row, in one batch. SQLite binds at most 32,766
values."""

Position = tuple[Any, ...]
"""The position of a row among the others of its rule: (time, key)."""
MOST_LOST = 100
"""How many reads of one batch may find rows and get none of them, because other transactions were faster or hold them
locked."""
_LEAST_ROWS = 0.1
"""The share of a sweep's batch that is not worth another read."""


@frozen
class CapEdge:
    """The first row that a cap excludes, as a batch found it. It is found again once others have changed anything."""

    position: Position
    version: object
    """What the store answers in the next batch's transaction if nothing else has changed anything."""
    floor: Position | None = None
    """Where the batch ended: that of a cap per scope, in the scope."""


@frozen
class Batch:
    """What to take, at the most."""

    selection: Selection
    now: datetime
    """The time that decides what is due."""
    limit: int
    """Rows of the rule's own table, at the most."""
    most: int
    """Rows in all, followers included, at the most."""
    floor: Position | None = None
    """Only rows behind this position: where the batch before ended. Of a cap per scope, the scope in which it did."""
    skip_locked: bool = False
    whole: bool = False
    """Take a row only together with all of its followers; leave it to the next batch if they do not fit."""
    slice_rows: int = 0
    """Walk the table by its key, this many rows of it, due or not; the floor is a key then. 0: follow the time."""
    until: Position | None = None
    """The key with which the walk ends; None if it begins now, and ends with the last one there is."""
    swept: bool = False
    """It is one of several batches, each a transaction of its own."""
    followers: float | None = None
    """Rows that left with each one in earlier batches; None if that is not known."""
    edge: CapEdge | None = None
    """Where the cap's edge was in the batch before; of a cap per scope, in the scope of the floor."""
    repeated: bool = False
    """If it takes more than fits, it is rolled back and taken again: nothing needs to be counted before."""

    @property
    def least_rows(self) -> int:
        """Return the rows that must still fit to make another read worth it: a sweep has another batch for the rest."""
        return max(1, int(self.most * _LEAST_ROWS)) if self.swept else 1

    def after(self, floor: Position | None, edge: CapEdge | None) -> Batch:
        """Return a batch of the same size behind another one, to be repeated by itself if it fails."""
        size = self.limit, self.most, floor, self.skip_locked, self.whole, self.slice_rows
        return Batch(
            self.selection, self.now, *size, swept=self.swept, followers=self.followers, edge=edge, repeated=True
        )


@frozen
class Taken:
    """What a batch took."""

    counts: dict[str, int]
    floor: Position | None
    """Where it ended."""
    done: bool
    """No row was due behind where it ended."""
    edge: CapEdge | None = None
    """Where the cap's edge is, if the next batch may rely on it."""
    until: Position | None = None
    """The key with which the walk of the table ends."""


@frozen
class Opening:
    """What a batch of a sweep reads before it takes anything."""

    flags: dict[str, Flag]
    clock: datetime


class RowTaker(ABC):
    """Takes rows under a rule, inside one transaction."""

    def __init__(self, transaction: Transaction, rows: Rows) -> None:
        self.transaction = transaction
        self.rows = rows

    @abstractmethod
    def open_batch(self, selection: Selection) -> Opening:
        """Read the flags, enter the gate of the tables that lose rows, and read the clock."""

    def statements(self, selection: Selection) -> RuleStatements:
        return statements_of(self.rows, selection)

    def scopes(
        self, selection: Selection, now: datetime, floor: Key | None, edges: dict[Key, Key] | None = None
    ) -> Iterator[Key]:
        """Read scopes that hold more rows than the cap allows, from the one in which the batch before ended.

        Where their edges are read with them, write these to `edges`, each with the number of ended transactions.
        """
        return scopes_of(self.statements(selection), selection, now, self.transaction.read, floor, edges)

    def scopes_due(self, selection: Selection, now: datetime) -> list[Key]:
        """Read scopes in which a row is due: exact, and slower."""
        rule = self.statements(selection)
        return self.transaction.read(rule.fill(rule.scopes[1], selection, now))

    @abstractmethod
    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        """Lock rows so that none is changed, or newly referred to, until this transaction has ended."""

    def lock_followers(self, selection: Selection, keys: list[Key]) -> bool:
        """Lock the followers of locked rows that have followers of their own, or retain their row while they are live.

        Lock from the top down, and return whether there are any. Followers are deleted from the bottom up. A row that
        is inserted below one of them in between would be deleted by the foreign key's ON DELETE CASCADE, uncounted and
        uncopied. A row that becomes live in between would leave.
        """
        return False

    def lock_spared(self, selection: Selection, keys: list[Key]) -> set[Key]:
        """Lock the newest rows in the scopes of locked rows, which the rule spares; return their keys.

        Until this transaction has ended none of them changes or leaves, so as many stay as the rule requires.
        """
        return set()

    def close_references(self, selection: Selection) -> bool:
        """Prevent new references to the rule's rows where no foreign key does; return whether tables were locked."""
        return False

    def locks_tables(self, selection: Selection) -> bool:
        """Report whether `close_references` locks tables, so that batches of the rule would wait for each other."""
        return False

    def conclude(self, selection: Selection, counts: Mapping[str, int]) -> None:
        """Conclude what was taken under a rule: what that relied on still holds, and the commit requires its audit
        row."""
        if any(counts.values()):
            self.require_bound(selection)
        self.transaction.owe_record({str(selection.name): 0, **counts})

    @abstractmethod
    def require_bound(self, selection: Selection) -> None:
        """Raise SchemaChanged unless everything is as it was when the rule was bound; called after deleting.

        A table that refers to the rule's with ON DELETE CASCADE, and was created since, has lost rows uncounted.
        """

    @abstractmethod
    def take(self, batch: Batch) -> Taken:
        """Take the oldest due rows, with their followers: delete them, or mark them if the rule marks.

        Continue until the batch is full, or no more rows are due: where other transactions were faster, behind their
        rows.
        """

    def _take_locked(self, batch: Batch) -> Taken:
        """Read, lock, check again, then take.

        For rules with guards or followers: what saves a row, or leaves with it, may be written by a transaction that is
        not committed yet. Locking waits for it, and the second read sees it.
        """
        own = str(batch.selection.name)
        counts: Counter[str] = Counter()
        floor = batch.floor
        # Reading more rows than fit is wasted, so reads expect as many followers as were seen, and the first one of a
        # sweep expects one of every kind.
        followers = float(len(follower_paths(batch.selection))) if batch.followers is None else batch.followers
        most_keys = self.transaction.most_values // len(batch.selection.key)
        lost = 0
        while True:
            rows_left = batch.most - counts.total()
            limit = min(batch.limit - counts[own], max(1, int(rows_left / (1 + followers))), most_keys)
            if rows_left < batch.least_rows or limit <= 0 or lost > MOST_LOST:
                return Taken(dict(counts), floor, done=False)
            # A row that does not fit into what is left fits into the next batch, or loses followers there.
            part = replace(batch, limit=limit, most=rows_left, floor=floor, whole=batch.whole or bool(counts.total()))
            taken = self._lock_and_take(part)
            counts.update(taken.counts)
            stuck = taken.floor == floor and not taken.counts.get(own)
            floor = taken.floor
            if taken.done or stuck:
                return Taken(dict(counts), floor, done=taken.done)
            if taken.counts.get(own):
                followers = counts.total() / counts[own] - 1
            else:
                lost += 1  # Every row that it found, others had taken or locked.

    def _lock_and_take(self, batch: Batch) -> Taken:
        selection, rule = batch.selection, self.statements(batch.selection)
        found = self.transaction.read(
            rule.fill(rule.candidates, selection, batch.now, limit=batch.limit, floor=batch.floor)
        )
        if not found:
            return Taken({}, batch.floor, done=True)
        width = len(selection.key)
        last = len(found) < batch.limit
        return self._take_found(batch, [row[:width] for row in found], found[-1][width:], last=last)

    def _take_slice(self, batch: Batch) -> Taken:
        """Take the due rows among the next ones by key, whether any is due or not."""
        selection, rule = batch.selection, self.statements(batch.selection)
        assert rule.slices is not None
        width = len(selection.key)
        until = batch.until
        if until is None:
            keys = self.transaction.read(rule.fill(rule.slices.last, selection))
            if not keys:
                return Taken({}, batch.floor, done=True)
            [until] = keys
        find = rule.slices.first if batch.floor is None else rule.slices.next
        rows = batch.slice_rows
        ends = self.transaction.read(rule.fill(find, selection, floor=batch.floor, until=until, slice_rows=rows))
        if not ends:
            return Taken({}, batch.floor, done=True)
        [(*edges, count)] = ends
        first, last = tuple(edges[:width]), tuple(edges[width:])
        limit = min(batch.limit, batch.most, self.transaction.most_values // width)
        find = rule.fill(rule.slices.due, selection, batch.now, limit=limit, first=first, last=last)
        found = self.transaction.read(find)
        cut = len(found) == limit
        end, done = found[-1] if cut else last, count < rows and not cut
        taken = self._take_found(batch, found, end, last=done) if found else Taken({}, end, done=done)
        return replace(taken, until=until)

    def _take_found(self, batch: Batch, found: list[Key], floor: Position | None, *, last: bool) -> Taken:
        """Lock rows that were found, check them again, and take them; `floor` is where they end."""
        selection, rule = batch.selection, self.statements(batch.selection)
        keys = self.lock(selection, found, skip_locked=batch.skip_locked)
        spared = self.lock_spared(selection, keys) if keys else set()
        keys = [key for key in keys if tuple(key) not in spared]
        if not rechecks(selection):
            # Nothing leaves with these rows and nothing retains them: the statement that takes them is the second
            # check.
            taken = self.transaction.change(rule.fill(rule.take, selection, batch.now, keys=keys)) if keys else 0
            return Taken({str(selection.name): taken}, floor, done=last)
        chosen, left = self._choose(batch, keys)
        if left and not chosen:
            if batch.whole:
                return Taken({}, batch.floor, done=False)
            return Taken(self.take_some_followers(batch, left[0]), batch.floor, done=False)
        if chosen and self.lock_followers(selection, chosen):
            # A row that was inserted below a follower before the follower was locked is visible only now.
            chosen, grown = self._choose(batch, chosen)
            left += grown
        if left:
            floor, last = batch.floor, False  # The rest is still before the candidates' end.
        return Taken(self.take_chosen(selection, batch.now, chosen) if chosen else {}, floor, done=last)

    def _choose(self, batch: Batch, keys: list[Key]) -> tuple[list[Key], list[Key]]:
        """Check locked rows again; return those due that fit into the batch with followers, and those that do not."""
        if not keys:
            return [], []
        rule = self.statements(batch.selection)
        recheck = rule.fill(rule.recheck, batch.selection, batch.now, keys=keys, follower_limit=batch.most)
        due = self.transaction.read(recheck)
        fitting = _fitting([row[-1] for row in due], batch.most)
        found = [row[:-1] for row in due]
        return found[:fitting], found[fitting:]

    def take_chosen(self, selection: Selection, now: datetime, keys: list[Key]) -> dict[str, int]:
        """Take rows that are locked and due, with everything that follows them; all of them, or raise."""
        counts: Counter[str] = Counter({str(selection.name): 0})
        rule = self.statements(selection)
        for one in rule.followers:
            counts[one.name] += self.delete_rows(one.table, rule.fill(one.take, selection, keys=keys))
            if one.path[-1].has_delete_triggers and self.transaction.read(
                rule.fill(one.remaining, selection, keys=keys)
            ):
                raise deletion_prevented(
                    f"{one.name}: rows were to leave with rows of {selection.name}, but the database kept some"
                )
        taken = self.delete_rows(selection.table, rule.fill(rule.take, selection, now, keys=keys))
        if taken != len(keys):
            raise deletion_prevented(
                f"{selection.name}: {len(keys)} rows were due and locked, but the database took {taken}"
            )
        counts[str(selection.name)] += taken
        return dict(counts)

    def delete_rows(self, table: TableInfo, statement: Statement) -> int:
        """Run a statement that takes rows of one table, and copy them if they are moved; return how many it took."""
        del table
        return self.transaction.change(statement)

    def take_followers(self, selection: Selection, statement: Statement) -> bool:
        """Lock the rows whose keys a statement reads, read again, and delete the followers of those still there.

        Return whether there are any.
        """
        found = self.transaction.read(statement)
        if not found or not self.lock(selection, found, skip_locked=False):
            return False
        self.lock_followers(selection, found)
        keys = self.transaction.read(statement)
        rule = self.statements(selection)
        for one in rule.followers if keys else ():
            self.transaction.change(rule.fill(one.take, selection, keys=keys))
        return bool(keys)

    def take_some_followers(self, batch: Batch, key: Key) -> dict[str, int]:
        """Take followers of a row that has more than fit: batch by batch, until the rest fits and the row leaves."""
        rows_left, selection, rule = batch.most, batch.selection, self.statements(batch.selection)
        counts: Counter[str] = Counter({str(selection.name): 0})
        for one in rule.followers:
            if rows_left > 0:
                gone = self._take_some(batch, one, key, rows_left)
                counts[one.name] += gone
                rows_left -= gone
        # None was taken because something retains them, because the application was faster, or because one of them
        # became live.
        # The latest row of those that hold its time leaves with it.
        others = [one for one in rule.followers if len(one.path) > 1 or not selection.holds_time(one.path[0])]
        remaining = (rule.fill(one.remaining, selection, keys=[key]) for one in others)
        recheck = rule.fill(rule.recheck, selection, batch.now, keys=[key], follower_limit=1)
        if not counts.total() and any(map(self.transaction.read, remaining)) and self.transaction.read(recheck):
            raise deletion_prevented(f"{selection.name}: rows that are to leave with it stay")
        return dict(counts)

    def _take_some(self, batch: Batch, one: FollowerStatements, key: Key, rows_left: int) -> int:
        rule = self.statements(batch.selection)
        if one.childless is None:
            some = rule.fill(one.some, batch.selection, batch.now, keys=[key], limit=rows_left)
            return self.delete_rows(one.table, some)
        # Locked before they are checked again, for the same reason as in `lock_followers`.
        limit = min(rows_left, _MOST_IDENTIFIED)
        found = self.transaction.read(rule.fill(one.some, batch.selection, batch.now, keys=[key], limit=limit))
        return self.delete_rows(one.table, rule.fill(one.childless, batch.selection, keys=found)) if found else 0


def rechecks(selection: Selection) -> bool:
    """Return whether locked rows are checked again before the statement that takes them, which is a check itself.

    That is so if others leave with them, or if every one of them must be taken: see `RowTaker.take_chosen`.
    """
    moves = isinstance(selection.rule.action, Mark | ToColdTier)
    return moves or bool(selection.followers or selection.has_delete_triggers)


def _fitting(followers: Sequence[int], most: int) -> int:
    """Count how many rows, with their followers, fit into a batch."""
    rows_left = most
    for number, count in enumerate(followers):
        rows_left -= 1 + count
        if rows_left < 0:
            return number
    return len(followers)


def deletion_prevented(message: str) -> StoreError:
    """Build the error that rows which were to leave did not."""
    return StoreError(message, "a trigger or a rule on the table keeps rows from leaving; nothing was changed")


def gated(*selections: Selection) -> list[TableInfo]:
    """Return every table that loses rows under some rules, in an order that is the same for every transaction."""
    tables = [selection.table for selection in selections]
    tables += [path[-1].reference.table for selection in selections for path in follower_paths(selection)]
    return sorted({table.qualified: table for table in tables}.values(), key=lambda table: table.qualified)
