"""One commit for the sweeps of several databases that share a table.

Members of a fleet that reach their commit wait until all members at work have reached theirs; then one of them commits
for all: the files of every sweep with its application transaction, its fence and its commit number. For each member
this is the same atomic step as a commit of its own. A crash before it leaves a verified sweep, and a crash after it a
sweep that the member's own application transaction proves committed. A member that the log refuses (its sweep is there
already, or another process has taken over) is left out, and the others are committed without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from wane._leases import Lease
from wane.errors import ArchiveBusy, ArchiveError, WaneError

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction

    from wane._archive.delta.cold_table import ColdTable

_MOST_FILES = 10_000
"""The most files of one commit: an entry of the log is read as a whole."""
_LONGEST_WAIT_SECONDS = 60.0
"""The longest that a sweep waits for those of other members."""


@dataclass(frozen=True, slots=True)
class SweepCommit:
    """The files that one sweep adds to one table."""

    cold: ColdTable
    writer: str
    sweep: int
    files: Sequence[Any]
    leases: Sequence[Lease]


Commits = Callable[[Sequence[SweepCommit]], None]
"""Makes the commits of one sweep, in their order: a table that follows another comes before it."""


def commit_single(commits: Sequence[SweepCommit]) -> None:
    """Make each commit of a sweep for itself."""
    for one in commits:
        one.cold.commit(one.writer, one.sweep, one.files, one.leases)


def commit_together(commits: Sequence[SweepCommit]) -> dict[int, Exception]:
    """Add the files of sweeps of several databases to the table that they share, in one commit.

    Return the problems of those that could not be added, by their positions.
    """
    problems: dict[int, Exception] = {}
    try:
        _commit_in_one(commits, problems)
    except Exception:
        # One of them may be the reason. Those that were committed nevertheless find that they are.
        for number, one in enumerate(commits):
            if number not in problems:
                try:
                    commit_single([one])
                except Exception as problem:
                    problems[number] = problem
    return problems


def _commit_in_one(commits: Sequence[SweepCommit], problems: dict[int, Exception]) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError

    from wane._archive.delta.cold_table import ATTEMPTS
    from wane._archive.delta.log_entry import write_entry
    from wane._archive.delta.object_store import storage_options
    from wane._archive.delta.shared_table import as_logged
    from wane._archive.rows.types import MONTH, ORIGIN

    root = commits[0].cold.root
    for attempt in range(ATTEMPTS):
        # Every attempt reads the log anew: what it has by now decides about each sweep.
        table = DeltaTable(str(root), storage_options=storage_options(root))
        actions: list[AddAction | RemoveAction] = []
        versions: dict[str, int] = {}
        added: list[SweepCommit] = []
        for number, one in enumerate(commits):
            if number in problems:
                continue
            try:
                one.cold.require_ours(table)
                if one.cold.has_sweep(table, one.writer, one.sweep):
                    continue
                additions = one.cold.additions(one.files)
                done = one.cold.application(one.writer, one.sweep)
                own = one.cold.versions(table, one.leases, done)
                if own.keys() & versions.keys():
                    raise ArchiveBusy(
                        f"two members of the fleet are the same database: {one.cold.folder} is written by both",
                        "remove one of them from the fleet file; if one is a copy, `wane archive adopt --as-new` there",
                    )
            except WaneError as problem:
                problems[number] = problem
                continue
            actions += [as_logged(action, one.cold.partition) for action in additions]
            versions |= own
            added.append(one)
        if not added:
            return
        metadata = {
            "wane.origin": ",".join(one.cold.partition for one in added),
            "wane.sweep": ",".join(str(one.sweep) for one in added),
        }
        try:
            write_entry(table, root, actions, [ORIGIN, MONTH], versions, metadata)
            return
        except CommitFailedError:
            if attempt + 1 == ATTEMPTS:
                raise


@dataclass(slots=True, eq=False)
class _WaitingMember:
    """A member that waits for its commits."""

    commits: Sequence[SweepCommit]
    since: float = field(default_factory=time.monotonic)
    over: bool = False
    problem: Exception | None = None


class CommitGroup:
    """The members of a fleet at work: how many work at a time, and who waits for a commit with others."""

    def __init__(self, members: int, parallel: int, most_members: int) -> None:
        """Set up a group of `members`, of which `parallel` work at a time and `most_members` are begun and not
        ended."""
        self._changed = threading.Condition()
        self._remaining = members
        self._free = parallel
        self._begun = 0
        self._most = max(most_members, parallel)
        self._waiting: list[_WaitingMember] = []

    @property
    def most_members(self) -> int:
        """Return how many members may be begun and not ended."""
        return self._most

    def close(self) -> None:
        """Expect no more members."""
        with self._changed:
            self._remaining = 0
            self._changed.notify_all()

    @contextmanager
    def member(self) -> Iterator[None]:
        """Begin one member, when its turn to work has come, and end it."""
        with self._changed:
            self._remaining -= 1
            self._begun += 1
            self._take_turn()
        try:
            yield
        finally:
            with self._changed:
                self._begun -= 1
                self._give_turn()

    def commit(self, commits: Sequence[SweepCommit]) -> None:
        """Make the commits of one sweep, those to shared tables together with other members'."""
        if not all(one.cold.shared for one in commits):
            commit_single(commits)
            return
        mine = _WaitingMember(commits)
        with self._changed:
            self._waiting.append(mine)
            self._give_turn()
            while not mine.over and not self._is_complete(mine):
                self._changed.wait(self._remaining_wait(mine))
            group = [] if mine.over else self._waiting
            self._waiting = self._waiting if mine.over else []
        try:
            if group:
                _commit_group(group)
        finally:
            with self._changed:
                for one in group:
                    one.over = True
                self._changed.notify_all()
                self._take_turn()
        if mine.problem is not None:
            raise mine.problem

    def _is_complete(self, mine: _WaitingMember) -> bool:
        """Check whether no one else will come: all who are at work wait, and no others can begin."""
        if mine not in self._waiting:
            return False  # Another member commits it at this time.
        all_wait = len(self._waiting) == self._begun and (self._remaining <= 0 or self._begun >= self._most)
        return all_wait or time.monotonic() >= mine.since + _LONGEST_WAIT_SECONDS

    def _remaining_wait(self, mine: _WaitingMember) -> float | None:
        if mine not in self._waiting:
            return None  # Another member commits it, and reports its end.
        return max(0.0, mine.since + _LONGEST_WAIT_SECONDS - time.monotonic())

    def _take_turn(self) -> None:
        while not self._free:
            self._changed.wait()
        self._free -= 1

    def _give_turn(self) -> None:
        self._free += 1
        self._changed.notify_all()


def _commit_group(group: Sequence[_WaitingMember]) -> None:
    """Make the first commit of every sweep, those to one table together, then the second ones, and so on."""
    for step in zip_longest(*(one.commits for one in group)):
        tables: dict[str, list[tuple[_WaitingMember, SweepCommit]]] = {}
        for waiting, commit in zip(group, step, strict=True):
            if commit is not None and waiting.problem is None:
                tables.setdefault(str(commit.cold.root), []).append((waiting, commit))
        for members in tables.values():
            for part in _bounded(members):
                try:
                    problems = commit_together([commit for _, commit in part])
                except BaseException as problem:
                    failure = ArchiveError(f"the commit of several sweeps failed: {problem}", "run it again")
                    for waiting in group:
                        waiting.problem = waiting.problem or failure
                    raise
                for number, found in problems.items():
                    part[number][0].problem = found


def _bounded(
    members: Sequence[tuple[_WaitingMember, SweepCommit]],
) -> Iterator[list[tuple[_WaitingMember, SweepCommit]]]:
    """Divide what goes to one table into commits that are not too large."""
    part: list[tuple[_WaitingMember, SweepCommit]] = []
    files = 0
    for one in members:
        if part and files + len(one[1].files) > _MOST_FILES:
            yield part
            part, files = [], 0
        part.append(one)
        files += len(one[1].files)
    if part:
        yield part
