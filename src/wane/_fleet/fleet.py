"""A fleet: many databases, each with its contract, worked on in one process, some at a time.

A member that fails fails alone. All members share the process's one Spark session, which is started when the first of
them needs it. Sweeps of members whose archives are shared are committed together: see `CommitGroup`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from wane._archive.delta.group_commit import CommitGroup, Commits
from wane._archive.spark.session import long_work
from wane._db import open_store
from wane._fleet.reading import FleetFile, FleetMember
from wane._keeper import Keeper, database_url
from wane.errors import WaneError
from wane.events import Event, Listener, WorkProgressed, ignore_event

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MemberResult(Generic[T]):
    """What was done for one member, or why nothing could be."""

    member: str
    result: T | None
    """None if it failed, or was not begun."""
    problem: str
    """Why it failed; empty if it did not."""
    begun: bool
    """Whether it was begun: a fleet that is stopped begins no more members."""
    seconds: float

    @property
    def failed(self) -> bool:
        return bool(self.problem)


class Fleet:
    """Works on the members of a fleet, some at a time."""

    def __init__(
        self,
        file: FleetFile,
        *,
        actor: str | None = None,
        listener: Listener = ignore_event,
        of_members: Callable[[str, Event], None] = lambda _, __: None,
        stop: threading.Event | None = None,
    ) -> None:
        """Set up a fleet.

        `listener` receives events of the fleet, and `of_members` those of members with their names, one at a time.
        `stop`, when set, lets no more members begin.
        """
        self.file = file
        self._actor = actor
        self._listener = listener
        self._of_members = of_members
        self._stop = stop or threading.Event()
        self._turn = threading.Lock()

    def each(self, work: Callable[[Keeper], T], *, doing: str, read_only: bool = False) -> list[MemberResult[T]]:
        """Do work with the keeper of every member; return the results in the order of the file.

        `doing`: the name of the work in events that report its progress.
        """
        found: dict[str, MemberResult[T]] = {}
        with long_work():
            for result in self._arriving(work, read_only=read_only):
                found[result.member] = result
                self._listener(WorkProgressed(doing, "fleet", None, "member", len(found), len(self.file.members)))
        return [found[member.name] for member in self.file.members]

    def _arriving(self, work: Callable[[Keeper], T], *, read_only: bool) -> Iterator[MemberResult[T]]:
        """Yield results as they arrive. Few members wait in the pool, so that a fleet of thousands costs no memory."""
        group = CommitGroup(len(self.file.members), self.file.parallel, self.file.commit_members)
        with ThreadPoolExecutor(group.most_members, thread_name_prefix="wane-fleet") as pool:
            running: set[Future[MemberResult[T]]] = set()
            try:
                for member in self.file.members:
                    if len(running) >= group.most_members:
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        yield from (one.result() for one in done)
                    running.add(pool.submit(self._in_turn, group, member, work, read_only=read_only))
                for one in as_completed(running):
                    yield one.result()
            except BaseException:
                self._stop.set()  # Members that run stop at their next batch, and are waited for.
                raise
            finally:
                group.close()

    def _in_turn(
        self, group: CommitGroup, member: FleetMember, work: Callable[[Keeper], T], *, read_only: bool
    ) -> MemberResult[T]:
        with group.member():
            return self._one(member, work, group.commit, read_only=read_only)

    def _one(
        self, member: FleetMember, work: Callable[[Keeper], T], commits: Commits, *, read_only: bool
    ) -> MemberResult[T]:
        if self._stop.is_set():
            return MemberResult(member.name, None, "", begun=False, seconds=0.0)
        began = time.monotonic()
        result, problem = None, ""

        def on_event(event: Event) -> None:
            with self._turn:
                self._of_members(member.name, event)

        try:
            with self._opened(member, commits, on_event, read_only=read_only) as keeper:
                result = work(keeper)
        except WaneError as error:
            problem = str(error)
        except Exception as error:  # One member must not end the work of all others, whatever is wrong with it.
            problem = f"{type(error).__name__}: {error}"
        return MemberResult(member.name, result, problem, begun=True, seconds=time.monotonic() - began)

    def keeper(self, name: str) -> Keeper:
        """Open one member, by its name."""
        [member] = [one for one in self.file.members if one.name == name]
        return self._opened(member, None, lambda event: self._of_members(name, event), read_only=False)

    def _opened(self, member: FleetMember, commits: Commits | None, listener: Listener, *, read_only: bool) -> Keeper:
        contract = member.require_contract()
        url = database_url(member.url, contract)
        store = open_store(url, contract.store, audit=contract.covers_audit, read_only=read_only)
        return Keeper(contract, store, actor=self._actor, listener=listener, commits=commits)
