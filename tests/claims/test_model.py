"""Any sequence of claims, policies, prunes and time gives what a plain model gives; the model knows nothing of
tombstones' tables.

The model decides in Python, sharing no code with the product, by a clock of its own. In the database time goes by
because every stamp becomes older. No two timestamps of the model coincide, so that the time which really passes does
not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from claims.working import pass_time, working
from servers import Database
from wane._keeper import Keeper
from wane.claims import Claim, Denial, Finished, Reclaim, Why, WorkClaims
from wane.errors import ClaimLost

TASKS = ["a", "ünï-😀"]
OWNERS = ["ada", "bob"]
TTLS = [100, 1_000]
STEPS = [60, 600, 5_000]
COOLDOWN, WINDOW, VACUUM_HOURS = 2_990, 7_010, 0.503
"""None of them is a sum of steps: real time passes too, and would decide which of two equal times is earlier."""


def odd(finished: Finished) -> bool:
    return finished.fence % 2 == 1


POLICIES: dict[str, Reclaim] = {
    "never": Reclaim.never(),
    "window": Reclaim.never(remember=timedelta(seconds=WINDOW)),
    "always": Reclaim.always(),
    "after": Reclaim.after(timedelta(seconds=COOLDOWN)),
    "odd": Reclaim.by(odd),
}
REMEMBERS: dict[str, int | None] = {"never": None, "window": WINDOW, "always": 0, "after": COOLDOWN, "odd": None}


@dataclass
class Row:
    state: str = "available"
    owner: str | None = None
    fence: int = 0
    expires: float = 0
    finished: float = 0
    until: float | None = None


@dataclass
class Model:
    now: float = 0
    rows: dict[str, Row] = field(default_factory=dict)
    memory: dict[str, Row] = field(default_factory=dict)
    """How every task ended last, whether its row is there or not."""
    granted: list[Claim] = field(default_factory=list)
    last_fence: int = 0

    def ended(self, task: str) -> Row | None:
        """Return how a task ended, if that still counts."""
        memory = self.memory.get(task)
        return memory if memory is not None and (memory.until is None or memory.until > self.now) else None

    def allows(self, policy: str, memory: Row) -> bool:
        if policy == "after":
            return self.now >= memory.finished + COOLDOWN
        return policy == "always" or (policy == "odd" and memory.fence % 2 == 1)

    def open(self, policy: str, task: str) -> Row | None:
        """Return the ended task that denies; or make the task exist, unfinished."""
        memory = self.ended(task)
        if memory is not None and not self.allows(policy, memory):
            return memory
        row = self.rows.get(task)
        if row is None or row.state in ("completed", "abandoned"):
            self.rows[task] = Row(fence=0 if row is None else row.fence)
        if memory is not None or row is None or row.state in ("completed", "abandoned"):
            self.memory.pop(task, None)
        return None

    def live(self, row: Row) -> bool:
        return row.state == "claimed" and row.expires > self.now

    def holds(self, claim: Claim) -> bool:
        row = self.rows.get(claim.task_id)
        return row is not None and self.live(row) and (row.owner, row.fence) == (claim.owner, claim.fence)


class World:
    """The database and the model, side by side."""

    def __init__(self, database: Database, claims: dict[str, WorkClaims]) -> None:
        self.database = database
        self.claims = claims
        self.model = Model()

    def submit(self, policy: str, task: str, **_: Any) -> None:
        answer = self.claims[policy].submit(task)
        memory = self.model.open(policy, task)
        if memory is not None:
            self.denied_by(answer, memory)
        else:
            assert not isinstance(answer, Denial)
            assert answer.state == self.model.rows[task].state

    def claim(self, policy: str, task: str, owner: str, ttl: int, **_: Any) -> None:
        answer = self.claims[policy].claim(task, owner, ttl)
        memory = self.model.open(policy, task)
        if memory is not None:
            self.denied_by(answer, memory)
            return
        row = self.model.rows[task]
        if self.model.live(row):
            assert isinstance(answer, Denial)
            assert (answer.why, answer.owner, answer.fence) == (Why.LIVE, row.owner, row.fence)
            event("denied: live")
            return
        assert isinstance(answer, Claim), answer
        assert answer.fence > self.model.last_fence, "a fence went back, or was given twice"
        event("taken over" if row.state == "claimed" else "granted")
        self.model.last_fence = answer.fence
        self.model.rows[task] = Row("claimed", owner, answer.fence, self.model.now + ttl)
        self.model.granted.append(answer)

    def denied_by(self, answer: object, memory: Row) -> None:
        assert isinstance(answer, Denial)
        assert (answer.why, answer.state, answer.owner, answer.fence) == (
            Why.FINISHED,
            memory.state,
            memory.owner,
            memory.fence,
        )
        event(f"denied: finished, {'pruned' if answer.pruned else 'there'}")

    def some_claim(self, number: int) -> Claim | None:
        granted = self.model.granted
        return granted[-1 - number % len(granted)] if granted else None

    def extend(self, policy: str, ttl: int, number: int, **_: Any) -> None:
        claim = self.some_claim(number)
        if claim is None:
            return
        if self.model.holds(claim):
            self.claims[policy].extend(claim, ttl)
            row = self.model.rows[claim.task_id]
            row.expires = max(row.expires, self.model.now + ttl)
        else:
            with pytest.raises(ClaimLost):
                self.claims[policy].extend(claim, ttl)

    def finish(self, policy: str, number: int, outcome: str, **_: Any) -> None:
        claim = self.some_claim(number)
        if claim is None:
            return
        act: Callable[[Claim], object] = getattr(
            self.claims[policy], "complete" if outcome == "completed" else "abandon"
        )
        row = self.model.rows.get(claim.task_id)
        if self.model.holds(claim):
            act(claim)
            assert row is not None
            keep = REMEMBERS[policy]
            row.state, row.finished = outcome, self.model.now
            row.until = None if keep is None else self.model.now + keep
            self.model.memory[claim.task_id] = Row(**vars(row))
        elif row is not None and (row.state, row.owner, row.fence) == (outcome, claim.owner, claim.fence):
            act(claim)
        else:
            with pytest.raises(ClaimLost):
                act(claim)
            event("lost")

    def return_expired(self, policy: str, **_: Any) -> None:
        returned = {work.task_id for work in self.claims[policy].return_expired()}
        expired = {task for task, row in self.model.rows.items() if row.state == "claimed" and not self.model.live(row)}
        assert returned == expired
        for task in expired:
            self.model.rows[task] = Row(fence=self.model.rows[task].fence)

    def wait(self, number: int, **_: Any) -> None:
        seconds = STEPS[-1 - number]
        pass_time(self.database, timedelta(seconds=seconds))
        self.model.now += seconds

    def vacuum(self, policy: str, outcome: str, number: int, **_: Any) -> None:
        states = {outcome} if number else {"completed", "abandoned"}
        vacuumed = self.claims[policy].vacuum(**{f"{state}_age_hours": VACUUM_HOURS for state in states})  # type: ignore[arg-type]
        cutoff = self.model.now - VACUUM_HOURS * 3_600
        due = [task for task, row in self.model.rows.items() if row.state in states and row.finished < cutoff]
        assert vacuumed.rows == len(due)
        for task in due:
            del self.model.rows[task]
            event("vacuumed")

    def delete(self, task: str, **_: Any) -> None:
        """Run a DELETE by hand, in whichever state the work is."""
        self.database.execute("DELETE FROM work_claims WHERE task_id = ?", (task,))
        self.model.rows.pop(task, None)

    def insert(self, task: str, **_: Any) -> None:
        """Run an INSERT by hand: it does not make finished work claimable."""
        if task not in self.model.rows:
            self.database.execute("INSERT INTO work_claims (task_id) VALUES (?)", (task,))
            self.model.rows[task] = Row()

    def sweep_tombstones(self, policy: str, **_: Any) -> None:
        claims = self.claims[policy]
        Keeper(claims.pruner.contract, claims.store).prune("work_claim_tombstones", rule="forgotten", limit=100)

    def compare(self) -> None:
        found = self.database.query("SELECT task_id, state, owner, fence FROM work_claims")
        wanted = {(task, row.state, row.owner, row.fence) for task, row in self.model.rows.items()}
        assert set(found) == wanted
        any_claims = self.claims["never"]
        for task in TASKS:
            memory, known = self.model.ended(task), any_claims.remembered(task)
            # A finished row that is remembered no longer is no memory either.
            assert (known is None) == (memory is None), task
            if known is not None and memory is not None:
                assert (known.outcome, known.fence) == (memory.state, memory.fence)
                assert known.pruned == (task not in self.model.rows)


OPERATIONS = [
    "submit",
    "claim",
    "claim",
    "claim",
    "extend",
    "finish",
    "finish",
    "finish",
    "return_expired",
    "wait",
    "wait",
]
OPERATIONS += ["vacuum", "vacuum", "delete", "insert", "sweep_tombstones"]
steps = st.fixed_dictionaries(
    {
        "operation": st.sampled_from(OPERATIONS),
        "policy": st.sampled_from(["never", *POLICIES]),
        "task": st.sampled_from(TASKS),
        "owner": st.sampled_from(OWNERS),
        "ttl": st.sampled_from(TTLS),
        "outcome": st.sampled_from(["completed", "abandoned"]),
        "number": st.sampled_from([0, 0, 0, 1, 2]),
    }
)


@given(plan=st.lists(steps, min_size=20, max_size=60))
def test_any_sequence_gives_what_the_model_gives(database: Database, plan: list[dict[str, Any]]) -> None:
    database.reset()
    with working(database) as first:
        claims = {name: WorkClaims(first.pruner, reclaim=policy) for name, policy in POLICIES.items()}
        world = World(database, claims)
        for step in plan:
            getattr(world, step["operation"])(**step)
            world.compare()
