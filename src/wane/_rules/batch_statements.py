"""The statements of one way to take a batch, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator

from wane._db.schema import Column, TableInfo
from wane._db.statement import Statement
from wane._frozen import frozen
from wane._rules.run_step import IF_MANY, RunStep
from wane._rules.selection import BoundFollower

FollowerPath = tuple[BoundFollower, ...]


@frozen
class FollowerStatements:
    """The statements for the rows of one follower."""

    path: tuple[BoundFollower, ...]
    lock: Statement | None
    """Lock the rows that follow rows with some keys; None if they need no lock before they are deleted."""
    take: Statement
    """Delete every row that follows rows with some keys."""
    remaining: Statement
    """Return a row if any follows rows with some keys."""
    some: Statement
    """Delete some rows that follow one due row; if they have followers of their own, identify and lock them instead."""
    childless: Statement | None
    """Delete identified rows, except those that still have followers of their own."""

    def steps(self, when: str) -> Iterator[RunStep]:
        """Yield the statements that take all rows of the follower, as they run."""
        yield RunStep(f"take {self.name}", self.take, when, self.table)
        if self.path[-1].has_delete_triggers:
            yield RunStep(f"check that none of {self.name} is left", self.remaining)

    def some_steps(self) -> Iterator[RunStep]:
        """Yield the statements that take some of its rows, as they run."""
        yield RunStep(f"take some of {self.name}", self.some, IF_MANY, None if self.childless else self.table)
        yield RunStep("take those without followers", self.childless, IF_MANY, self.table)
        yield RunStep(f"check whether any of {self.name} is left", self.remaining, IF_MANY)

    @property
    def name(self) -> str:
        return str(self.path[-1].reference.name)

    @property
    def table(self) -> TableInfo:
        return self.path[-1].reference.table


@frozen
class AtOnceStatements:
    """The statements that take a full batch with everything that follows it, without locking rows first."""

    end_time: Statement | None
    """Find a time at which the batch may end, whatever the keys are, or NULL if there is none; and whether no more rows
    are left than a batch may have: then it is the latest time. None where an index has the keys in their order, and
    finds a position as fast."""
    end: Statement
    """Find the position of the last row of the batch; nothing if fewer rows are left than it may have."""
    take: Statement
    """Take the due rows up to there, or up to a time. Where rows follow, return how many were taken, then of each
    follower."""
    shortcut: Statement
    """Do the same, with fewer conditions: between two times, where batches end at times; else all due rows, where no
    more are left than a batch may have."""
    retained: Statement
    """Return a row if one that was to be taken is still there."""
    gone: tuple[Column, ...]
    """The columns of which `take` and `rest` also return all values that were taken, each as an array."""
    unkeyed: tuple[tuple[FollowerPath, Statement], ...]
    """Take what refers to those values, where no foreign key does: a later statement, because no error shows that a
    row was added while `take` waited."""

    def steps(self, *, has_delete_triggers: bool) -> Iterator[RunStep]:
        """Yield the statements as they run."""
        call, same = "in one call, most batches of a sweep", "in the same call"
        if self.end_time is not None:
            yield RunStep("find a time at which the batch ends", self.end_time, call)
            yield RunStep("take the batch", self.shortcut, f"{same}, if it begins and ends at a time")
            call = f"{same}, if that is no time and more rows are left"
        yield RunStep("find where the batch ends", self.end, call)
        yield RunStep("take the batch", self.take, same)
        if self.end_time is None and not has_delete_triggers:
            yield RunStep("take them", self.shortcut, f"{same}, if fewer are left than a batch may have")
        for path, statement in self.unkeyed:
            yield RunStep(f"take {path[-1].reference.name}", statement, same)
        if has_delete_triggers:
            yield RunStep("check that none of it is left", self.retained, same)


@frozen
class RangeStatements:
    """The statements that take a range of rows with everything that follows them (SQLite), if nothing is held.

    No other transaction writes in between, so every one of them finds the same rows, and no keys are read.
    """

    end: Statement
    """Find the position of the last row of the batch; nothing if fewer rows are left than it may have, or
    something is held."""
    count: Statement | None
    """Count the rows up to there, then those of each follower; None if nothing follows them."""
    followers: tuple[tuple[str, Statement], ...]
    """Delete what follows them: each follower by its name, the deepest first."""
    take: Statement
    """Take the rows; none if something is held."""

    def steps(self) -> Iterator[RunStep]:
        """Yield the statements as they run."""
        fits = "if all of it fits" if self.followers else ""
        yield RunStep("find where the batch ends", self.end)
        yield RunStep("count what leaves with it", self.count)
        for name, statement in self.followers:
            yield RunStep(f"take {name}", statement, fits)
        yield RunStep("take the batch", self.take, fits)


@frozen
class KnownEdgeStatements:
    """The statements that take rows beyond a cap (PostgreSQL) while no other transaction changes anything.

    Finding the first row that a cap excludes reads all rows that stay. While no other transaction ends, it is the same
    row for every batch, and the statement that takes rows checks that.
    """

    ended: Statement
    """Count the transactions that have ended."""
    end: Statement
    """Find the position of the last row of the batch; nothing if fewer rows are left than it may have."""
    take: Statement
    """Take the rows up to there, if no transaction has ended since they were counted."""

    def steps(self, edge: Statement | None) -> Iterator[RunStep]:
        """Yield the statements as they run, with the one that finds the edge."""
        unshared = "if no other session changes the table"
        yield RunStep("check that no transaction has ended", self.ended, unshared)
        yield RunStep("find where the cap ends", edge, unshared)
        yield RunStep("find where the batch ends", self.end, unshared)
        yield RunStep("take the batch", self.take, unshared)
