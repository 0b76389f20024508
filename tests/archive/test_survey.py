"""The survey: what it counts is what is there, in every tier, and it says nothing of which it cannot know."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from archive import inline
from archive.cold import CONTRACT, DAY_MS, cold_keeper, events
from servers import Database
from wane._archive import survey as surveying
from wane._archive.model import Surveyed
from wane._db import Store
from wane._db.statement import Statement
from wane.errors import WrongArgument
from wane.observe._sql_snapshots import Snapshot, Snapshots

MORE = """
[table.ticket]
scheduler = "night"
why  = "a test"
time = {{ column = "opened_at", unit = "iso" }}
[table.ticket.rule.old]
keep = "10d"
[table.ticket.rule.many]
most = 100
[excused]
setting = {{ singleton = "one row" }}
note    = {{ append_only = "never deleted" }}
"""


def tickets(database: Database) -> None:
    """Insert ten a day for sixty days, one of them without a timestamp."""
    database.execute("CREATE TABLE ticket (id bigint PRIMARY KEY, opened_at text)")
    database.execute("CREATE INDEX ticket_opened ON ticket (opened_at, id)")
    database.execute("CREATE TABLE setting (id bigint PRIMARY KEY)")
    database.execute("CREATE TABLE note (id bigint PRIMARY KEY)")
    database.execute("INSERT INTO setting VALUES (1)")
    now = time.time()
    rows = [
        (day * 10 + n, datetime.fromtimestamp(now - day * 86_400 - n * 600 - 60, UTC).isoformat())
        for day in range(60)
        for n in range(10)
    ]
    database.executemany("INSERT INTO ticket VALUES (?, ?)", [*rows, (99_999, "whenever")])


@pytest.mark.on_spark
@pytest.mark.sampled("postgres")
def test_hot_tables_and_the_archive_are_counted_as_they_are(database: Database, tmp_path: Path) -> None:
    events(database, 50)
    tickets(database)
    with cold_keeper(database, tmp_path, CONTRACT + MORE) as cold:
        before = {one.table: one for one in cold.keeper.archive.survey() if one.tier == "hot"}
        event, ticket = before["event"], before["ticket"]
        assert (event.rows, ticket.rows, before["setting"].rows) == (53, 601, 1)
        assert event.due == {0: 50, 7: 50, 30: 50, 90: 51}, (
            "the young one in 89 days, the live and the guarded one never"
        )
        months = Counter(
            datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m")
            for (ms,) in database.query("SELECT at_ms FROM event")
        )
        assert {month: rows for month, rows in event.months.items() if rows} == dict(sorted(months.items()))
        assert sum(ticket.months.values()) == 600, "one has no timestamp"
        # What is too old is beyond the cap as well, which counts the newest: each row counts once.
        assert ticket.due[0] == 500
        assert ticket.due[7] == 570
        [(oldest, newest)] = database.query("SELECT min(at_ms), max(at_ms) FROM event")
        assert (event.oldest, event.newest) == tuple(datetime.fromtimestamp(ms / 1000, UTC) for ms in (oldest, newest))
        assert ticket.rows_per_day == 10
        assert before["setting"].days_to == {1_000_000: "never", 5_000_000: "never"}
        assert before["note"].days_to == {1_000_000: "n/a", 5_000_000: "n/a"}
        cold.one()
        after = {(one.table, one.tier): one for one in cold.keeper.archive.survey("event", "event_read")}
        assert set(after) == {(table, tier) for table in ("event", "event_read") for tier in ("hot", "archive")}
        assert (before["event_read"].rows, after["event_read", "hot"].rows) == (sum(n % 3 for n in range(1, 51)), 0)
        archived = after["event", "archive"]
        assert archived.rows == 50
        young = {month: rows for month, rows in after["event", "hot"].months.items() if rows}
        assert Counter(archived.months) + Counter(young) == months
        assert archived.oldest == min(datetime.fromtimestamp(row["at_ms"] / 1000, UTC) for row in cold.archived())
        assert sum(after["event_read", "archive"].months.values()) == len(cold.archived("event_read"))
        with pytest.raises(WrongArgument, match="does not name"):
            cold.keeper.archive.survey("evnt")


def test_the_driver_reads_the_ends_of_a_table_and_tasks_read_slices(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 5)
    database.executemany(
        "INSERT INTO event VALUES (?, 'done', ?, 'x', NULL)",
        [(n, int(time.time() * 1000) - 300 * DAY_MS + n * 3_600_000) for n in range(1_000, 1_600)],
    )
    requested: list[str] = []
    read = type(cold_store(database)).read

    def traced(this: Store, statement: Statement, seconds: float, **options: bool) -> list[tuple[object, ...]]:
        requested.append(statement.text)
        return read(this, statement, seconds, **options)

    inline.without_spark(monkeypatch, inline.ForkedExecutor)  # Here only the driver's statements are traced.
    with cold_keeper(database, tmp_path) as cold:
        monkeypatch.setattr(type(cold.keeper.store), "read", traced)
        one, _ = [one for one in cold.keeper.archive.survey() if one.tier == "hot"]
        assert isinstance(one, Surveyed)
        assert sum(one.months.values()) == 608
        counting = [text for text in requested if "count(*)" in text]
        assert counting == [], "tasks do that"
        slices = surveying._Hot(
            surveying.Surveyor(cold.keeper.store, cold.keeper.contract),
            cold.keeper.contract.tables[0],
            cold.keeper.store.now(),
        )
        list(slices.queries())
        cut = slices._slices(slices.edges, 6_000)
        assert len(cut) >= 100, "60 rows a slice"
        assert all(one.end == two.start for one, two in pairwise(cut))


def cold_store(database: Database) -> Store:
    from wane._db import open_store
    from wane._db.url import resolve_url

    with open_store(resolve_url(database.url)) as store:
        return store


def test_rates_come_from_within_the_window_and_the_window_bounds_the_table(database: Database, tmp_path: Path) -> None:
    events(database, 5)
    tickets(database)
    contract = (CONTRACT + MORE).replace("most = 100", "most = 10_000_000")
    with cold_keeper(database, tmp_path, contract) as cold:
        full = {one.table: one for one in cold.keeper.archive.survey() if one.tier == "hot"}["ticket"]
        assert (full.rows_per_day, full.tends_to) == (10, 10_000_000), "nothing was swept: its window does not hold"
        assert full.days_to[1_000_000] == "never", "as much leaves as arrives"
        cold.keeper.sweep("ticket.old", approve=["ticket.old"])
        swept = {one.table: one for one in cold.keeper.archive.survey() if one.tier == "hot"}["ticket"]
        assert swept.rows == 101
        # Under a cap the rate is that of the time since the oldest row, which is a little less than ten days here.
        assert (swept.rows_per_day, swept.tends_to) == pytest.approx((11, 110), rel=0.01)
        assert swept.days_to == {1_000_000: "never", 5_000_000: "never"}


def test_the_survey_forecasts_what_growth_does(database: Database, tmp_path: Path) -> None:
    events(database, 5)
    tickets(database)
    contract = CONTRACT + MORE.replace("most = 100", "most = 10_000_000").replace('"10d"', '"365d"')
    contract += "[growth]\nthresholds = [1_000, 5_000]\n"
    with cold_keeper(database, tmp_path, contract) as cold:
        snapshots, now = Snapshots(cold.keeper.store.dialect), cold.keeper.store.now()
        table = f"{'main' if cold.keeper.store.kind == 'sqlite' else 'public'}.ticket"
        with cold.keeper.store.transaction() as transaction:
            for day in range(30):
                rows = 601 - 10 * day
                at = now - timedelta(days=day)
                snapshots.write(transaction.execute, Snapshot(at, table, rows, True, rows * 100, True))
        [growth] = cold.keeper.growth("ticket")
        [survey] = cold.keeper.archive.survey("ticket")
        assert growth.rate is not None
        assert (survey.rows, survey.rows_per_day) == (growth.rows, round(growth.rate.rate, 1)) == (601, 10)
        assert growth.limit is not None
        assert survey.tends_to == growth.limit.rows == 3_650
        assert [one.threshold for one in growth.days] == [1_000, 5_000]
        assert survey.days_to == {1_000: 39.9, 5_000: "never"}
        assert survey.days_to == {one.threshold: one.word or round(one.days or 0, 1) for one in growth.days}


def test_numbers_state_how_exact_they_are(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events(database, 5)
    tickets(database)
    with cold_keeper(database, tmp_path, CONTRACT + MORE) as cold:
        found = {one.table: one for one in cold.keeper.archive.survey() if one.tier == "hot"}
        assert {one.rows_exactness for one in found.values()} == {"exact"}
        assert (set(found["ticket"].due_exactness.values()), found["setting"].due_exactness) == ({"exact"}, {})
        monkeypatch.setattr(surveying, "count", lambda *_, **__: None)
        [ticket] = [one for one in cold.keeper.archive.survey("ticket") if one.tier == "hot"]
        assert (ticket.due[0], ticket.due_exactness[0]) == (500, "at least"), "what is beyond the cap is not known"
