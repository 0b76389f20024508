"""A model of the archive's protocol, explored exhaustively in small scope.

It is written from docs/explanation/archive.md, not from the code: one key, two ranges, an application that moves,
changes, deletes, re-inserts and holds the row while a sweep copies, proves, commits and evicts it; a second writer that
takes over at any step while the first one is paused and wakes up later; a task that evicts, is taken for dead, is run
again, and wakes up later; a restore; an expiry; a file that is damaged.
Every act of anybody is one atomic step, and every order of steps is tried. A crash is a writer that never wakes up.

Each guard of the protocol can be switched off; then a row must get lost, be taken from the hot table although it may
not leave, or be in two places when the sweep is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

RANGES = (0, 1)
SWEEP = 1
T = TypeVar("T")


class Hot(NamedTuple):
    """The row in the hot table: which row it is, what the application wrote last, where it lies, whether it is held."""

    row: int
    version: int
    range: int
    held: bool = False


class Copied(NamedTuple):
    """A copy of a row. A damaged one holds something else than was read."""

    row: int
    version: int
    range: int
    damaged: bool = False


class Truth(NamedTuple):
    """What became of a row: its newest version, and whether it is still to be found somewhere."""

    version: int
    wanted: bool = True


class Writer(NamedTuple):
    """A process that works on the sweep: its fence, its next step, and what it knows."""

    fence: int
    step: str
    snapshot: tuple[Hot | None] | None = None
    copies: tuple[Copied, ...] = ()
    committed: bool = False
    single_snapshot: bool = False
    """Whether all ranges are read in one snapshot, because one row was in two of them."""
    differing: frozenset[int] = frozenset()
    """Ranges that have other rows than copies: they are checked one by one."""
    attempt: int = 0
    """How often the tasks that evict were run before."""
    overtaken: bool = False
    """Whether it is a task only, which was run again because it was taken for dead."""


class Budget(NamedTuple):
    """How often things may happen that the protocol does not decide."""

    changes: int = 0
    takeovers: int = 0
    restores: int = 0
    expiries: int = 0
    damages: int = 0
    holds: int = 0
    retries: int = 0


class State(NamedTuple):
    """Everything: the hot table, the archive and its log, the journal, the writers."""

    hot: Hot | None
    truths: tuple[Truth, ...]
    budget: Budget
    archive: tuple[Copied, ...] = ()
    log_fence: int = 0
    log_sweep: int = 0
    lease: int = 1
    journal: str = "planned"
    manifests: tuple[tuple[Copied, ...] | None, ...] = (None, None)
    evicted: frozenset[Copied] = frozenset()
    """The copies that were checked."""
    attempt: int = 0
    """The latest attempt to evict."""
    stale: frozenset[Copied] = frozenset()
    restoring: Copied | None = None
    restored: bool = False
    writers: tuple[Writer, ...] = (Writer(1, "copy"),)
    wrong: str = ""


At = Callable[..., State]
"""Moves a writer to its next step, with what it knows."""


@dataclass(frozen=True)
class Protocol:
    """The guards, by what the documentation says of them."""

    one_snapshot: bool = True
    """All tasks of a sweep read one snapshot. SQLite has none, so that the protocol has to do without it too."""
    no_key_twice: bool = True
    """Nothing is committed while a key is in the sweep twice."""
    proof: bool = True
    """Nothing is committed that was not read back."""
    commit_first: bool = True
    """No row leaves before its copy is committed."""
    range_compared: bool = True
    """A range leaves as a whole only if it holds exactly its copies; else nothing of it leaves so."""
    same_version: bool = True
    """A row leaves only in the version that was copied, as the deleting transaction sees it."""
    progress_with_delete: bool = True
    """Which copies were checked is journaled in the transaction that checks them."""
    still_due: bool = True
    """A row leaves only if nobody holds it, as the deleting transaction sees it."""
    keys_from_archive: bool = True
    """What may leave is read from the committed archive, not from what was written."""
    stale_by_version: bool = True
    """Copies of rows that stayed leave the archive by key and version."""
    latest_attempt: bool = True
    """Only the latest attempt to evict a range judges its copies."""
    stale_leave: bool = True
    """A sweep is done only when copies of rows that stayed have left the archive."""
    lease_in_database: bool = True
    """Every transaction requires the lease."""
    fence_in_log: bool = True
    """The log refuses a commit under an earlier fence than it has."""
    fence_first: bool = True
    """A successor writes its fence into the log before it reads what is committed."""
    commit_once: bool = True
    """The log accepts a sweep once."""
    back_first: bool = True
    """A restored row is back before its copy leaves the archive."""
    restore_waits: bool = True
    """No restore begins while a sweep is unfinished."""
    expiry_waits: bool = True
    """What an unfinished sweep committed does not expire."""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield everything that can happen next."""
        yield from self._application(state)
        yield from self._others(state)
        for number, writer in enumerate(state.writers):
            for name, after in self._writer(state, number, writer):
                yield f"{'ABC'[number]}: {name}", after

    # The application, which knows nothing of the archive

    def _application(self, state: State) -> Iterator[tuple[str, State]]:
        hot, left = state.hot, state.budget
        if left.holds and hot is not None and not hot.held:
            yield "hold", state._replace(hot=hot._replace(held=True), budget=left._replace(holds=left.holds - 1))
        if not left.changes:
            return
        state = state._replace(budget=left._replace(changes=left.changes - 1))
        new = 1 + max(truth.version for truth in state.truths)
        if hot is None:
            for position in RANGES:
                added = Hot(len(state.truths), new, position)
                yield "insert", state._replace(hot=added, truths=(*state.truths, Truth(new)))
            return
        for position in RANGES:
            changed = hot._replace(version=new, range=position)
            yield "update", state._replace(hot=changed, truths=_set(state.truths, hot.row, Truth(new)))
        gone = state.truths[hot.row]._replace(wanted=False)
        yield "delete", state._replace(hot=None, truths=_set(state.truths, hot.row, gone))

    # A successor, a restore, an expiry: each holds the lease

    def _others(self, state: State) -> Iterator[tuple[str, State]]:
        left, lease = state.budget, state.lease + 1
        if left.takeovers:
            successor = Writer(lease, "take over" if self.fence_first else "read log")
            yield (
                "take over the lease",
                state._replace(
                    lease=lease,
                    writers=(*state.writers, successor),
                    budget=left._replace(takeovers=left.takeovers - 1),
                ),
            )
        sound = [copy for copy in state.archive if not copy.damaged]
        if left.restores and state.restoring is None and (state.journal == "done" or not self.restore_waits):
            taken = state._replace(
                lease=lease, log_fence=lease, budget=left._replace(restores=left.restores - 1), restored=False
            )
            for copy in sound:
                yield "restore: choose", taken._replace(restoring=copy)
        if state.restoring is not None:
            yield self._restore(state, state.restoring)
        elif left.expiries and (state.journal == "done" or not self.expiry_waits):
            taken = state._replace(lease=lease, log_fence=lease, budget=left._replace(expiries=left.expiries - 1))
            for copy in sound:
                hot_too = state.hot is not None and state.hot.row == copy.row
                truths = state.truths
                if not hot_too and truths[copy.row].version == copy.version:
                    truths = _set(truths, copy.row, truths[copy.row]._replace(wanted=False))
                yield "expire", taken._replace(archive=_without(state.archive, copy), truths=truths)

    def _restore(self, state: State, copy: Copied) -> tuple[str, State]:
        there = any(one == copy for one in state.archive)
        if state.restored or (not self.back_first and there):
            after = state._replace(archive=tuple(one for one in state.archive if one != copy))
            return "restore: remove the copy", after._replace(restoring=None if state.restored else copy)
        if state.hot is not None and state.hot.version != copy.version:
            return "restore: refuse, the key is taken", state._replace(restoring=None)
        back = state.hot or Hot(copy.row, copy.version, copy.range)
        done = state._replace(hot=back, restored=True)
        return "restore: bring back", done if there else done._replace(restoring=None)

    # The sweep

    def _writer(self, state: State, number: int, writer: Writer) -> Iterator[tuple[str, State]]:
        def at(after: State, step: str, **known: Any) -> State:
            return after._replace(writers=_set(after.writers, number, writer._replace(step=step, **known)))

        if writer.step == "stopped":
            return
        to_log = ("take over", "read log", "commit", "remove stale")
        if self.lease_in_database and state.lease != writer.fence and writer.step not in to_log:
            yield "lost the lease", at(state, "stopped")
            return
        if writer.step in ("take over", "commit", "remove stale") and self.fence_in_log:
            if state.log_fence > writer.fence:
                yield "refused by the log", at(state, "stopped")
                return
            state = state._replace(log_fence=writer.fence)
        match writer.step:
            case "take over":
                yield "write the fence", at(state, "read log")
            case "read log":
                yield "read the log", at(state, "resume", committed=self.commit_once and state.log_sweep >= SWEEP)
            case "resume":
                yield from self._resume(state, writer, at)
            case "copy":
                yield from self._copy(state, writer, at)
            case "verify":
                yield self._verify(state, writer, at)
            case "commit":
                yield "commit", self._commit(at(state, "committed"), writer)
            case "committed":
                yield "journal the commit", at(state._replace(journal="committed"), "list", copies=())
            case "list":
                listed = state.archive if self.commit_first and self.keys_from_archive else _copies(state)
                checked = tuple(copy for copy in listed if copy not in state.evicted)
                claimed = state._replace(attempt=state.attempt + 1)
                yield "list the copies", at(claimed, "evict", copies=checked, attempt=claimed.attempt)
            case "evict":
                yield from self._evict(state, writer, at)
            case "finish":
                leaving = tuple(state.stale) if self.stale_leave else ()
                yield "read what is stale", at(state, "remove stale", copies=leaving)
            case "remove stale":
                names = {copy.version for copy in writer.copies}
                remaining = [one for one in state.archive if one.version not in names]
                if not self.stale_by_version:  # The model has one key.
                    remaining = [] if names else list(state.archive)
                yield "remove stale copies", at(state._replace(archive=tuple(remaining)), "done")
            case "done":
                yield "end the sweep", at(state._replace(journal="done"), "stopped")

    def _resume(self, state: State, writer: Writer, at: At) -> Iterator[tuple[str, State]]:
        if state.journal == "done":
            yield "find it done", at(state, "stopped")
        elif state.journal == "evicted":
            yield "resume at the end", at(state, "finish")
        elif state.journal == "committed":
            yield "resume evicting", at(state, "list")
        elif writer.committed:
            yield "find it committed", at(state, "committed")
        else:
            yield "abandon it", at(state._replace(journal="done"), "stopped")
            yield "resume copying", at(state, "verify" if None not in state.manifests else "copy")

    def _copy(self, state: State, writer: Writer, at: At) -> Iterator[tuple[str, State]]:
        if writer.snapshot is None and (self.one_snapshot or writer.single_snapshot):
            yield "take a snapshot", at(state, "copy", snapshot=(state.hot,))
            return
        row = state.hot if writer.snapshot is None else writer.snapshot[0]
        for position in RANGES:
            if state.manifests[position] is None:
                found = () if row is None or row.range != position else (Copied(*row[:3]),)
                yield self._copied(state, position, found, at)
                if found and state.budget.damages:
                    damaged = state._replace(budget=state.budget._replace(damages=state.budget.damages - 1))
                    yield self._copied(damaged, position, (found[0]._replace(damaged=True),), at)

    def _copied(self, state: State, position: int, found: tuple[Copied, ...], at: At) -> tuple[str, State]:
        manifests = _set(state.manifests, position, found)
        step = "copy" if None in manifests else "verify"
        return f"copy range {position}", at(state._replace(manifests=manifests), step)

    def _verify(self, state: State, writer: Writer, at: At) -> tuple[str, State]:
        copies = _copies(state)
        repeated = state._replace(manifests=(None, None))
        if self.proof and any(copy.damaged for copy in copies):
            return "find damage", at(repeated, "copy", snapshot=None)
        if self.no_key_twice and len(copies) > 1:
            return "find a row twice", at(repeated, "copy", snapshot=None, single_snapshot=True)
        return "verify", at(state, "commit" if self.commit_first else "list", copies=copies)

    def _commit(self, state: State, writer: Writer) -> State:
        if self.commit_once and state.log_sweep >= SWEEP:
            return state
        return state._replace(archive=(*state.archive, *writer.copies), log_sweep=SWEEP)

    def _evict(self, state: State, writer: Writer, at: At) -> Iterator[tuple[str, State]]:
        if self.latest_attempt and writer.attempt != state.attempt:
            yield "evict: overtaken", at(state, "stopped")
            return
        if not writer.copies:
            ended = (state, "stopped") if writer.overtaken else (state._replace(journal="evicted"), "finish")
            yield "end evicting", at(*ended)
        elif state.budget.retries and not writer.overtaken:
            repeated = state._replace(
                budget=state.budget._replace(retries=state.budget.retries - 1),
                writers=(*state.writers, writer._replace(overtaken=True)),
            )
            yield "evict: run the task again", at(repeated, "list")
        # In any order, because several connections may work on ranges of their own.
        for position in {copy.range for copy in writer.copies} - writer.differing:
            yield self._evict_range(state, writer, position, at)
        for copy in writer.copies:
            if copy.range not in writer.differing:
                continue
            rest = _without(writer.copies, copy)
            checked = state._replace(evicted=state.evicted | {copy}) if self.progress_with_delete else state
            hot = state.hot
            if hot is None:
                yield "evict: absent", at(checked, "evict", copies=rest)
            elif (self.same_version and hot.version != copy.version) or (self.still_due and hot.held):
                yield "evict: stale", at(checked._replace(stale=state.stale | {copy}), "evict", copies=rest)
            else:
                wrong = "a held row left" if hot.held else ""
                yield "evict", at(checked._replace(hot=None, wrong=wrong), "evict", copies=rest)

    def _evict_range(self, state: State, writer: Writer, position: int, at: At) -> tuple[str, State]:
        mine = tuple(copy for copy in writer.copies if copy.range == position)
        rest = tuple(copy for copy in writer.copies if copy.range != position)
        hot = state.hot
        taken = hot is not None and hot.range == position and not (self.still_due and hot.held)
        found = (hot.version,) if hot is not None and taken else ()
        if self.range_compared and found != tuple(copy.version for copy in mine):
            return "evict: the range differs", at(state, "evict", differing=writer.differing | {position})
        checked = state._replace(evicted=state.evicted | set(mine)) if self.progress_with_delete else state
        wrong = "a held row left" if taken and hot is not None and hot.held else ""
        after = checked._replace(hot=None if taken else hot, wrong=wrong)
        return "evict the range", at(after, "evict", copies=rest)


def _copies(state: State) -> tuple[Copied, ...]:
    return tuple(copy for manifest in state.manifests for copy in manifest or ())


def _set(items: tuple[T, ...], number: int, item: T) -> tuple[T, ...]:
    return (*items[:number], item, *items[number + 1 :])


def _without(copies: tuple[Copied, ...], one: Copied) -> tuple[Copied, ...]:
    number = copies.index(one)
    return (*copies[:number], *copies[number + 1 :])


def violation(state: State) -> str:
    """Return which law a state breaks; "" if none.

    Every row is in at least one place; when its sweep is done, and no restore is on its way, in exactly one.
    """
    if state.wrong:
        return state.wrong
    for row, truth in enumerate(state.truths):
        hot = state.hot is not None and state.hot[:2] == (row, truth.version)
        exact = [copy for copy in state.archive if copy[:2] == (row, truth.version) and not copy.damaged]
        if truth.wanted and not hot and not exact:
            return "a row is lost"
        if state.journal == "done" and state.restoring is None:
            copies = sum(copy.row == row for copy in state.archive) + (state.hot is not None and state.hot.row == row)
            if copies > 1:
                return "a row is in two places"
    return ""


@dataclass(frozen=True)
class Found:
    """What an exploration found: how many states there are, and the shortest way to one that breaks a law."""

    states: int
    wrong: str = ""
    steps: tuple[str, ...] = ()


def explore(protocol: Protocol, budget: Budget) -> Found:
    """Visit every state that can be reached, the nearest first, until one breaks a law."""
    first = State(Hot(0, 1, 0), (Truth(1),), budget)
    came: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for name, after in protocol.steps(state):
            if after in came:
                continue
            came[after] = state, name
            if wrong := violation(after):
                return Found(len(came), wrong, _way(came, after))
            waiting.append(after)
    return Found(len(came))


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came[state]) is not None:
        state, name = before
        steps.append(name)
    return tuple(reversed(steps))
