"""The journal: entries that move from state to state, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from servers import Database
from wane._archive.journal import SWEEPS, Journaled, State
from wane._db import Store, open_store
from wane._db.url import resolve_url
from wane._journal import Entries
from wane.errors import LeaseLost

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        yield store


def _begin(sweeps: Entries[Journaled], table: str = "event") -> Journaled:
    return sweeps.add(
        table_name=table,
        rule="cold",
        state=State.PLANNED,
        strict=True,
        decided_at=AT,
        planned_at=AT,
        changed_at=AT,
        actor="me",
        columns=[["id", "bigint"]],
        layout=None,
        parts=["event", "note"],
        archived={},
        evicted={},
    )


def test_an_entry_is_read_as_it_was_written(store: Store) -> None:
    with store.transaction() as transaction:
        sweeps = Entries(SWEEPS, transaction.dialect, transaction.execute)
        begun = _begin(sweeps)
        assert sweeps.find(id=begun.id) == [begun]
    assert (begun.state, begun.strict, begun.decided_at) == (State.PLANNED, True, AT)
    assert (begun.columns, begun.layout, begun.parts) == ([["id", "bigint"]], None, ("event", "note"))
    assert (begun.archived, begun.stale, begun.audit_id) == ({}, 0, None)


def test_an_entry_moves_only_from_a_state_that_leads_there(store: Store) -> None:
    with store.transaction() as transaction:
        sweeps = Entries(SWEEPS, transaction.dialect, transaction.execute)
        number = _begin(sweeps).id
        moved = sweeps.move(number, State.WRITTEN, archived={"event": 3}, changed_at=AT + timedelta(hours=1))
        assert (moved.state, moved.archived, moved.changed_at) == (State.WRITTEN, {"event": 3}, AT + timedelta(hours=1))
        for state in (State.COMMITTED, State.EVICTED):
            with pytest.raises(LeaseLost, match=f"cannot become '{state}'"):
                sweeps.move(number, state)
        assert sweeps.find(id=number) == [moved]


def test_an_entry_that_is_done_stays_done(store: Store) -> None:
    with store.transaction() as transaction:
        sweeps = Entries(SWEEPS, transaction.dialect, transaction.execute)
        number = _begin(sweeps).id
        sweeps.move(number, State.DONE)
        for state in State:
            with pytest.raises(LeaseLost):
                sweeps.move(number, state)
        assert sweeps.unfinished() == []


def test_unfinished_entries_are_found_by_their_table(store: Store) -> None:
    with store.transaction() as transaction:
        sweeps = Entries(SWEEPS, transaction.dialect, transaction.execute)
        done, event, other = _begin(sweeps).id, "event", _begin(sweeps, "other")
        sweeps.move(done, State.DONE)
        begun = _begin(sweeps)
        assert sweeps.unfinished() == [other, begun]
        assert sweeps.unfinished(table_name=event) == [begun]
        assert [one.id for one in sweeps.find(newest_first=True, limit=2)] == [begun.id, other.id]
        assert [one.id for one in sweeps.find(state=[State.DONE, State.WRITTEN])] == [done]


def test_numbers_are_added_and_entries_deleted_only_where_the_conditions_hold(store: Store) -> None:
    with store.transaction() as transaction:
        sweeps = Entries(SWEEPS, transaction.dialect, transaction.execute)
        one, other = _begin(sweeps), _begin(sweeps, "other")
        sweeps.change({"id": one.id}, add={"stale": 2})
        [changed] = sweeps.change({"id": one.id}, add={"stale": 3, "absent": 1}, audit_id=7)
        assert (changed.stale, changed.absent, changed.audit_id) == (5, 1, 7)
        assert sweeps.delete(table_name="event") == 1
        assert sweeps.find() == [other]
