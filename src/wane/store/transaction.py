"""One transaction that takes rows: on a connection of the store's own, or inside the caller's transaction.

Everything that a batch does (look, lock, delete, count, audit) happens through one of these, so it commits or vanishes as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from wane.contract.model import Mark, Shelve
from wane.errors import SchemaChanged, StoreError
from wane.store.own import Flag, OwnTables
from wane.store.rows import Rows
from wane.store.schema import TableInfo
from wane.store.selection import BoundFollower, Selection, follower_paths
from wane.store.statement import Statement

C = TypeVar("C")

Key = tuple[Any, ...]
_MOST_IDENTIFIED = 5_000
"""Rows of a follower with followers of its own that leave before their row, in one batch. SQLite binds at most 32,766 values."""

Position = tuple[Any, ...]
"""Where a row stands among the others of its rule: (time, key)."""
MOST_LOST = 100
"""How many looks of one batch may find rows and get none of them, because other transactions were faster or hold them locked."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What to take, at the most."""

    selection: Selection
    now: datetime
    """The moment that decides what is due."""
    limit: int
    """Rows of the rule's own table, at the most."""
    most: int
    """Rows in all, followers included, at the most."""
    floor: Position | None = None
    """Only rows behind this position: where the batch before ended."""
    skip_locked: bool = False
    whole: bool = False
    """Take no row's followers before the row: what does not fit this time fits the next."""
    held: bool = True
    """Whether anything of the tables that lose rows may be held. If not, and something is all the same, nothing is taken."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a batch took."""

    counts: dict[str, int]
    floor: Position | None
    """Where it ended."""
    done: bool
    """No row was due behind where it ended."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a batch of a sweep knows before it takes anything."""

    flags: dict[str, Flag]
    clock: datetime


class Transaction(ABC):
    """What can be done inside one transaction."""

    rows: Rows
    most_values = 1_000_000
    """How many values one statement may bind."""

    @property
    def own(self) -> OwnTables:
        """Wane's own tables."""
        return OwnTables(self.rows.dialect, self.execute)

    @abstractmethod
    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    @abstractmethod
    def change(self, statement: Statement) -> int:
        """Run one statement and return how many rows it changed."""

    @abstractmethod
    def now(self) -> datetime:
        """The database's clock."""

    @abstractmethod
    def clock(self) -> datetime | None:
        """What leases and due times are measured by: see Store.clock."""

    @abstractmethod
    def columns(self, table: TableInfo) -> list[tuple[str, str]]:
        """What the table's columns are now, and their types. Whoever has read rows of it sees them stay so."""

    @abstractmethod
    def layout(self, table: TableInfo) -> list[list[str]]:
        """Read each column's name, type and identity, which changes when its values can be others while no row's version changes."""

    @abstractmethod
    def enter(self, tables: Sequence[TableInfo]) -> None:
        """Go through the gate of some tables: holds that are placed from now on wait until this transaction has ended."""

    def open_batch(self, tables: Sequence[TableInfo]) -> Opening:
        """Read the flags, go through the gate of some tables, and read the clock."""
        flags = self.own.flags()
        self.enter(tables)
        return Opening(flags, self.now())

    def finish(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run the last statement of the transaction, at the latest with the commit; fail if it changes no row. Gives no rows."""
        if self.change(Statement(text, parameters)) == 0:
            raise unwritten()
        return []

    @abstractmethod
    def close_gate(self, table: TableInfo) -> None:
        """Wait until no transaction is inside the table's gate, and keep others out until this one has ended."""

    @abstractmethod
    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        """Lock rows so that nobody changes them, or begins to refer to them, until this transaction has ended."""

    def lock_followers(self, selection: Selection, keys: list[Key]) -> bool:
        """Lock the followers of locked rows that have followers of their own, or keep their row while they are live, from the top
        down, and return whether there are any.

        Followers are deleted from the bottom up. A row that is inserted below one of them in between would be deleted by the foreign
        key's ON DELETE CASCADE, uncounted and uncopied. A row that becomes live in between would leave.
        """
        return False

    def close_references(self, selection: Selection) -> bool:
        """Keep others from referring to the rule's rows where no foreign key does; whether that took locks on whole tables."""
        return False

    @abstractmethod
    def require_bound(self, selection: Selection) -> None:
        """Raise SchemaChanged unless everything is as it was when the rule was bound; called when its rows were deleted.

        A table that refers to the rule's with ON DELETE CASCADE, and was created since, has lost rows uncounted.
        """

    @abstractmethod
    def take(self, batch: Batch) -> Taken:
        """Take the oldest due rows, with their followers: delete them, or mark them if the rule marks.

        Until the batch is full, or no more rows are due: where other transactions were faster, it goes on behind their rows.
        """

    def _take_locked(self, batch: Batch) -> Taken:
        """Look, lock, look again, then take.

        For rules with guards or followers: what saves a row, or leaves with it, may be on its way in a transaction that is not
        committed yet. Locking waits for it, and the second look sees it.
        """
        own = str(batch.selection.name)
        counts: Counter[str] = Counter()
        floor = batch.floor
        # Looking at more rows than fit is wasted, so the first look expects one follower of every kind, and later ones as many as were seen.
        followers: float = len(follower_paths(batch.selection))
        most_keys = self.most_values // len(batch.selection.key)
        lost = 0
        while True:
            room = batch.most - counts.total()
            limit = min(batch.limit - counts[own], max(1, int(room / (1 + followers))), most_keys)
            if room <= 0 or limit <= 0 or lost > MOST_LOST:
                return Taken(dict(counts), floor, done=False)
            # A row that does not fit into what is left fits into the next batch, or loses followers there.
            look = replace(batch, limit=limit, most=room, floor=floor, whole=batch.whole or bool(counts.total()))
            taken = self._look_and_take(look)
            counts.update(taken.counts)
            stuck = taken.floor == floor and not taken.counts.get(own)
            floor = taken.floor
            if taken.done or stuck:
                return Taken(dict(counts), floor, done=taken.done)
            if taken.counts.get(own):
                followers = counts.total() / counts[own] - 1
            else:
                lost += 1  # Every row that it found, others had taken or locked.

    def _look_and_take(self, batch: Batch) -> Taken:
        selection = batch.selection
        found = self._read(self.rows.candidates(selection, batch.now, batch.limit, batch.floor, held=batch.held))
        if not found:
            return Taken({}, batch.floor, done=True)
        width = len(selection.key)
        floor: Position | None = found[-1][width:]
        last = len(found) < batch.limit
        keys = self.lock(selection, [row[:width] for row in found], skip_locked=batch.skip_locked)
        moves = isinstance(selection.rule.action, Mark | Shelve)
        if not selection.followers and not selection.watched and not moves:
            # Nothing leaves with these rows and nothing keeps them: the statement that takes them is the second look.
            taken = self.change(self.rows.take_keys(selection, batch.now, keys, held=batch.held)) if keys else 0
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
        return Taken(
            self.take_chosen(selection, batch.now, chosen, held=batch.held) if chosen else {}, floor, done=last
        )

    def _choose(self, batch: Batch, keys: list[Key]) -> tuple[list[Key], list[Key]]:
        """Look again at locked rows: return those that are due and fit into the batch with their followers, and those that do not fit."""
        if not keys:
            return [], []
        due = self._read(self.rows.still_due(batch.selection, batch.now, keys, batch.most, held=batch.held))
        fitting = _fitting([row[-1] for row in due], batch.most)
        found = [row[:-1] for row in due]
        return found[:fitting], found[fitting:]

    def take_chosen(self, selection: Selection, now: datetime, keys: list[Key], *, held: bool = True) -> dict[str, int]:
        """Take rows that are locked and due, with everything that follows them; all of them, or raise."""
        counts: Counter[str] = Counter({str(selection.name): 0})
        for path in follower_paths(selection):
            name = path[-1].reference.name
            counts[str(name)] += self.let_go(
                path[-1].reference.table, self.rows.delete_followers(selection, path, keys)
            )
            if path[-1].watched and self._read(self.rows.any_follower(selection, path, keys)):
                raise kept(f"{name}: rows were to leave with rows of {selection.name}, but the database kept some")
        taken = self.let_go(selection.table, self.rows.take_keys(selection, now, keys, held=held))
        if taken != len(keys):
            raise kept(f"{selection.name}: {len(keys)} rows were due and locked, but the database took {taken}")
        counts[str(selection.name)] += taken
        return dict(counts)

    def let_go(self, table: TableInfo, statement: Statement) -> int:
        """Run a statement that takes rows of one table, which may have to be copied on their way; return how many it took."""
        del table
        return self.change(statement)

    def take_followers(self, selection: Selection, statement: Statement) -> bool:
        """Lock the rows whose keys a statement reads, look again, and delete what follows those that it still reads, if any."""
        found = self._read(statement)
        if not found or not self.lock(selection, found, skip_locked=False):
            return False
        self.lock_followers(selection, found)
        keys = self._read(statement)
        for path in follower_paths(selection) if keys else ():
            self.change(self.rows.delete_followers(selection, path, keys))
        return bool(keys)

    def take_some_followers(self, batch: Batch, key: Key) -> dict[str, int]:
        """A row with more followers than fit loses them first, batch by batch, and leaves when the rest fits."""
        room = batch.most
        counts: Counter[str] = Counter({str(batch.selection.name): 0})
        paths = follower_paths(batch.selection)
        for path in paths:
            if room > 0:
                gone = self._take_some(batch, path, key, room)
                counts[str(path[-1].reference.name)] += gone
                room -= gone
        # None went because something keeps them, because the application was faster, or because one of them became live.
        if (
            not counts.total()
            and any(self._read(self.rows.any_follower(batch.selection, path, [key])) for path in paths)
            and self._read(self.rows.still_due(batch.selection, batch.now, [key], 1))
        ):
            raise kept(f"{batch.selection.name}: rows that are to leave with it stay")
        return dict(counts)

    def _take_some(self, batch: Batch, path: Sequence[BoundFollower], key: Key, room: int) -> int:
        follower, table = path[-1], path[-1].reference.table
        if not follower.followers:
            return self.let_go(table, self.rows.delete_some_followers(batch.selection, path, key, batch.now, room))
        # Locked before they are looked at again, for the same reason as in `lock_followers`.
        limit = min(room, _MOST_IDENTIFIED)
        found = self._read(self.rows.some_followers(batch.selection, path, key, batch.now, limit))
        return self.let_go(table, self.rows.delete_childless(follower, found)) if found else 0

    def _read(self, statement: Statement) -> list[tuple[Any, ...]]:
        return self.execute(statement.text, statement.parameters)


def _fitting(followers: Sequence[int], most: int) -> int:
    """How many rows, with their followers, fit into a batch."""
    room = most
    for number, count in enumerate(followers):
        room -= 1 + count
        if room < 0:
            return number
    return len(followers)


def kept(message: str) -> StoreError:
    """Rows that were to leave did not."""
    return StoreError(message, "a trigger or a rule on the table keeps rows from leaving; nothing was changed")


def schema_changed(selection: Selection, what: str) -> SchemaChanged:
    """The tables are no longer as they were when a rule was bound to them."""
    return SchemaChanged(
        f"{selection.label}: the schema changed while its rows left: {what}",
        "nothing was taken; commit what changes the schema first, then try again",
    )


def unwritten() -> StoreError:
    """A batch cannot be told in the trail."""
    return StoreError(
        "the row of the trail that this sweep adds to is gone, or tells less than was taken",
        "nothing was taken; the next sweep begins a new one",
    )


def gated(*selections: Selection) -> list[TableInfo]:
    """Every table that loses rows under some rules, in an order that is the same for everybody."""
    tables = [selection.table for selection in selections]
    tables += [path[-1].reference.table for selection in selections for path in follower_paths(selection)]
    return sorted({table.qualified: table for table in tables}.values(), key=lambda table: table.qualified)


def driver_connection(connection: Any, kind: type[C]) -> C:
    """The driver's own connection behind what a caller passes: itself, or that of a SQLAlchemy connection or session."""
    found = connection
    try:
        if hasattr(found, "get_bind") and hasattr(found, "connection"):
            found = found.connection()  # A session begins its transaction here.
        if hasattr(found, "exec_driver_sql"):
            found.exec_driver_sql("SELECT 1")  # A connection begins its transaction with its first statement.
            found = found.connection.driver_connection
    except Exception as problem:
        raise StoreError(f"the connection cannot be used: {problem}", "pass an open one") from problem
    if not isinstance(found, kind):
        wanted = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        raise StoreError(
            f"a connection of type {type(connection).__module__}.{type(connection).__name__} cannot be used here",
            f"pass a {wanted}, or a SQLAlchemy connection or session over one",
        )
    return found
