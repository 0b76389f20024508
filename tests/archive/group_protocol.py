"""A model of commits for several databases at once, explored exhaustively: see `protocol.py` for one database.

Written from docs/explanation/archive.md: two members have verified sweeps; one of them reads the log, decides about
each sweep, and commits both in one entry; its answer may get lost, so that it tries once more; it may die at any step.
A successor of each member may take over at any step: it writes its fence into the log, reads whether the sweep is
there, and then commits it alone or abandons it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from archive.protocol import Found

MEMBERS = (0, 1)
T = TypeVar("T")


class Logged(NamedTuple):
    """What the log says of one member: its fence, whether its sweep is there, how often its files are."""

    fence: int = 0
    done: bool = False
    copies: int = 0


class GroupState(NamedTuple):
    """The log, the journals, the one who commits for all, and the successors of the members."""

    log: tuple[Logged, ...] = (Logged(), Logged())
    journals: tuple[str, ...] = ("verified", "verified")
    leases: tuple[int, ...] = (1, 1)
    step: str = "read"
    seen: tuple[Logged, ...] = ()
    added: frozenset[int] = frozenset()
    journaled: frozenset[int] = frozenset()
    successors: tuple[str, ...] = ("", "")
    answers_lost: int = 1


@dataclass(frozen=True)
class GroupProtocol:
    """The guards of a commit for several members."""

    fence_of_each: bool = True
    """A member whose fence the log has surpassed is left out."""
    once_each: bool = True
    """A member whose sweep is in the log is left out."""
    one_state: bool = True
    """The log refuses the commit if it changed for one of the members since it was read."""
    fence_first: bool = True
    """A successor writes its fence before it reads what is committed."""

    def steps(self, state: GroupState) -> Iterator[tuple[str, GroupState]]:
        """Yield everything that can happen next."""
        yield from self._leader(state)
        for member in MEMBERS:
            yield from self._successor(state, member)

    def _leader(self, state: GroupState) -> Iterator[tuple[str, GroupState]]:
        if state.step == "read":
            added = frozenset(
                member
                for member in MEMBERS
                if not (self.once_each and state.log[member].done)
                and not (self.fence_of_each and state.log[member].fence > 1)
            )
            yield "read the log", state._replace(step="write", seen=state.log, added=added)
        elif state.step == "write":
            differs = any(state.log[member] != state.seen[member] for member in state.added)
            if self.one_state and differs:
                yield "conflict", state._replace(step="read")
                return
            log = state.log
            for member in state.added:
                known = log[member]
                log = _set(log, member, Logged(max(known.fence, 1), done=True, copies=known.copies + 1))
            written = state._replace(log=log)
            yield "commit", written._replace(step="journal")
            if state.answers_lost:
                yield "commit, and lose the answer", written._replace(step="read", answers_lost=0)
        elif state.step == "journal":
            for member in MEMBERS:
                committed = member in state.added or (self.once_each and state.seen[member].done)
                if committed and member not in state.journaled and state.leases[member] == 1:
                    yield (
                        f"journal {member}",
                        _journal(state, member, "committed")._replace(journaled=state.journaled | {member}),
                    )

    def _successor(self, state: GroupState, member: int) -> Iterator[tuple[str, GroupState]]:
        def at(after: GroupState, step: str) -> GroupState:
            return after._replace(successors=_set(after.successors, member, step))

        name, known = f"successor of {member}", state.log[member]
        match state.successors[member]:
            case "":
                taken = state._replace(leases=_set(state.leases, member, 2))
                yield f"{name}: take the lease", at(taken, "fence" if self.fence_first else "probe")
            case "fence":
                fenced = state._replace(log=_set(state.log, member, known._replace(fence=2)))
                yield f"{name}: write the fence", at(fenced, "probe")
            case "probe":
                found = known.done or state.journals[member] == "committed"
                yield f"{name}: read the log", at(state, "found" if found else "decide")
            case "found":
                yield f"{name}: journal", at(_journal(state, member, "committed"), "over")
            case "decide":
                added = known if known.done else Logged(2, done=True, copies=known.copies + 1)
                yield f"{name}: commit", at(state._replace(log=_set(state.log, member, added)), "found")
                yield f"{name}: abandon", at(_journal(state, member, "abandoned"), "over")


def _journal(state: GroupState, member: int, words: str) -> GroupState:
    return state._replace(journals=_set(state.journals, member, words))


def _set(items: tuple[T, ...], number: int, item: T) -> tuple[T, ...]:
    return (*items[:number], item, *items[number + 1 :])


def violation(state: GroupState) -> str:
    """Return which promise a state breaks; "" if none."""
    for known, journal in zip(state.log, state.journals, strict=True):
        if known.copies > 1:
            return "a sweep is in the archive twice"
        if journal == "committed" and not known.copies:
            return "rows may leave that are not in the archive"
        if journal == "abandoned" and known.copies:
            return "an abandoned sweep is in the archive"
    return ""


def explore_groups(protocol: GroupProtocol) -> Found:
    """Visit every state that can be reached, the nearest first, until one breaks a promise."""
    came: dict[GroupState, tuple[str, ...]] = {GroupState(): ()}
    waiting = deque(came)
    while waiting:
        state = waiting.popleft()
        for name, after in protocol.steps(state):
            if after in came:
                continue
            came[after] = (*came[state], name)
            if wrong := violation(after):
                return Found(len(came), wrong, came[after])
            waiting.append(after)
    return Found(len(came))
