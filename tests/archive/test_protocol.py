"""The archive's protocol keeps its promises in every order of events, and none of its guards is idle: see
`protocol.py`."""

from __future__ import annotations

from dataclasses import fields

import pytest

from archive.protocol import Budget, Protocol, explore

MOVES = Budget(changes=2, takeovers=1)
DAMAGE = Budget(changes=1, takeovers=1, damages=1)
HOLDS = Budget(changes=1, holds=1)
RETRIES = Budget(changes=1, takeovers=1, retries=1)
LATER = Budget(changes=1, takeovers=1, restores=1, expiries=1)
LOST, TWICE, HELD = "a row is lost", "a row is in two places", "a held row left"
NEEDED = {
    "no_key_twice": (MOVES, TWICE),
    "proof": (DAMAGE, LOST),
    "commit_first": (MOVES, LOST),
    "range_compared": (MOVES, LOST),
    "same_version": (MOVES, LOST),
    "progress_with_delete": (MOVES, LOST),
    "latest_attempt": (RETRIES, LOST),
    "still_due": (HOLDS, HELD),
    "stale_leave": (MOVES, TWICE),
    "fence_in_log": (MOVES, TWICE),
    "fence_first": (MOVES, TWICE),
    "commit_once": (MOVES, TWICE),
    "back_first": (LATER, LOST),
    "restore_waits": (LATER, LOST),
}
"""What happens without each guard."""
SECOND_LINES = {
    "one_snapshot": (MOVES, {"no_key_twice"}, TWICE),
    "stale_by_version": (MOVES, {"no_key_twice"}, LOST),
    "lease_in_database": (MOVES, {"latest_attempt"}, LOST),
    "keys_from_archive": (LATER, {"expiry_waits"}, LOST),
    "expiry_waits": (LATER, {"keys_from_archive"}, LOST),
}
"""Guards that matter where another one fails: which, and what happens without both."""


@pytest.mark.parametrize(
    "budget", [MOVES, DAMAGE, HOLDS, RETRIES, LATER], ids=["moves", "damage", "holds", "retries", "later"]
)
@pytest.mark.parametrize("one_snapshot", [True, False], ids=["postgres", "sqlite"])
def test_no_order_of_events_loses_or_duplicates_a_row(budget: Budget, one_snapshot: bool) -> None:
    found = explore(Protocol(one_snapshot=one_snapshot), budget)
    assert not found.wrong, found
    assert found.states > 100, "the exploration ended too early"


@pytest.mark.parametrize("guard", NEEDED)
def test_without_a_guard_some_order_of_events_breaks_a_promise(guard: str) -> None:
    budget, wrong = NEEDED[guard]
    assert explore(Protocol(**{guard: False}), budget).wrong == wrong


@pytest.mark.parametrize("guard", SECOND_LINES)
def test_a_second_line_holds_where_another_guard_fails(guard: str) -> None:
    budget, others, wrong = SECOND_LINES[guard]
    assert explore(Protocol(**dict.fromkeys({guard, *others}, False)), budget).wrong == wrong


def test_a_snapshot_per_task_and_stale_copies_by_key_lose_the_row() -> None:
    found = explore(Protocol(one_snapshot=False, no_key_twice=False, stale_by_version=False), Budget(changes=1))
    assert found.wrong == LOST
    assert found.steps[:3] == ("A: copy range 0", "update", "A: copy range 1")
    assert found.steps[-1] == "A: remove stale copies"


def test_every_guard_is_tried() -> None:
    assert {field.name for field in fields(Protocol)} == {*NEEDED, *SECOND_LINES}
