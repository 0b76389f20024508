"""`system/<table>_hard_deleted`: reported of every deletion that was committed, of the tables that the contract
says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from covering import loaded
from servers import Database
from wane._contract.settings import EventSettings
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._schedule.own_tables import clean_own_tables
from wane.errors import ContractError
from wane.events import Event, HardDeleted

TEXT = """
[scheduler]
s = { every = "5m" }
[table.events]
scheduler = "s"
why = "A test."
state = "status"
live = ["queued"]
time = { column = "at", unit = "ms" }
[table.events.rule.old]
when = ["done"]
keep = "7d"
with = ["parts.event_id"]
[table.events.rule.marked]
when = ["failed"]
keep = "7d"
then = { mark = "lost" }
[table.events.rule.lost]
when = ["lost"]
keep = "forever"
"""


@pytest.fixture
def reported() -> list[Event]:
    return []


@pytest.fixture
def keeper(database: Database, reported: list[Event]) -> Iterator[Keeper]:
    database.script(
        "CREATE TABLE events (id bigint PRIMARY KEY, status text NOT NULL, at bigint NOT NULL);"
        "CREATE TABLE parts (id bigint PRIMARY KEY, event_id bigint REFERENCES events (id))"
    )
    rows = [(n, "done" if n % 2 else "failed", 1_700_000_000_000 + n) for n in range(20)]
    database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
    database.executemany("INSERT INTO parts VALUES (?, ?)", [(n, n) for n in range(20)])
    with Keeper(loaded(TEXT), open_store(resolve_url(database.url)), listener=reported.append) as opened:
        opened.migrate()
        opened.enable()
        yield opened


def names(reported: list[Event]) -> list[tuple[str, str, int]]:
    return [(one.name, one.table, one.rows) for one in reported if isinstance(one, HardDeleted)]


BOTH = [("system/events_hard_deleted", "events", 10), ("system/parts_hard_deleted", "parts", 10)]


def test_a_sweep_reports_every_table_that_lost_rows(keeper: Keeper, reported: list[Event]) -> None:
    keeper.sweep()
    assert names(reported) == BOTH
    [number] = {one.audit for one in reported if isinstance(one, HardDeleted)}
    assert [entry.id for entry in keeper.audit() if entry.rule == "old"] == [number]
    reported.clear()
    keeper.sweep()
    assert names(reported) == []


def test_an_explicit_prune_reports_once_it_is_committed(
    keeper: Keeper, reported: list[Event], database: Database
) -> None:
    keeper.prune("events", rule="old", limit=8)
    assert names(reported) == [("system/events_hard_deleted", "events", 4), ("system/parts_hard_deleted", "parts", 4)]
    reported.clear()
    connection = database.connect()
    connection.execute("BEGIN")
    assert keeper.prune("events", rule="old", limit=100, connection=connection).counts == {"events": 6, "parts": 6}
    connection.execute("ROLLBACK")
    assert names(reported) == []
    keeper.prune("events", rule="marked", limit=100)
    assert names(reported) == []


@pytest.mark.parametrize(
    ("setting", "expected"), [(True, BOTH), (False, []), (("parts",), BOTH[1:]), (("elsewhere",), []), ((), [])]
)
def test_which_are_reported_is_a_setting(
    keeper: Keeper, reported: list[Event], setting: bool | tuple[str, ...], expected: list[tuple[str, str, int]]
) -> None:
    keeper.contract = replace(keeper.contract, events=EventSettings(hard_deleted=setting))
    keeper.sweep()
    assert names(reported) == expected


def test_wane_keeps_quiet_about_its_own_tables(keeper: Keeper, reported: list[Event]) -> None:
    clean_own_tables(keeper.store, keeper.contract, actor="test", listener=reported.append)
    assert names(reported) == []


def test_the_contract_states_it_in_words() -> None:
    assert loaded(TEXT).events == EventSettings()
    assert loaded(f'{TEXT}\n[events]\nhard_deleted = ["parts", "public.x"]\narchived = false').events == EventSettings(
        ("parts", "public.x"), archived=False
    )
    for wrong in ('"events"', "[5]", "1", '["a.b.c"]'):
        with pytest.raises(ContractError):
            loaded(f"{TEXT}\n[events]\nhard_deleted = {wrong}")
