"""Months are made ahead, and a row that lies outside all of them is caught."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from partition.partitioning import CONTRACT, PLAIN, RICH, keeping, partitions, rows
from races.racing import Background, await_true
from servers import PostgresDatabase
from wane._partition.months import Month
from wane._prune.pace import FAST
from wane.errors import PartitionError, StoreError
from wane.events import Event, PartitionStep

FURTHER = CONTRACT.replace("ahead = 2", "ahead = 5")
TIMES = {
    "ms": (
        "bigint",
        '{ column = "created_at", unit = "ms" }',
        "(extract(epoch FROM now()) * 1000)::bigint",
        "86400000::bigint",
    ),
    "s": ("bigint", '{ column = "created_at", unit = "s" }', "extract(epoch FROM now())::bigint", "86400::bigint"),
    "zone": (
        "timestamp",
        '{ column = "created_at", zone = "Asia/Tokyo" }',
        "(now() AT TIME ZONE 'Asia/Tokyo')",
        "interval '1 day'",
    ),
}


def months(database: PostgresDatabase) -> list[str]:
    prefix = "event_p_"
    return [name.removeprefix(prefix) for name in partitions(database) if name[len(prefix) :][:1].isdigit()]


def test_months_are_made_ahead_with_everything_they_need(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(RICH)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        before = months(postgres_database)
        assert keeper.partition.maintain("event")[0].did == "nothing"
    with keeping(postgres_database, tmp_path, FURTHER) as keeper:
        [done] = keeper.partition.maintain()
        assert keeper.partition.maintain()[0].did == "nothing"
    after = months(postgres_database)
    last = Month.named(before[-1])
    assert after == [*before, *(last.later(n).name for n in (1, 2, 3))]
    assert len(done.partitions) == 6, "its follower gets them too"
    new = f"event_p_{after[-1]}"
    old = f"event_p_{before[-1]}"
    shape = "SELECT regexp_replace(indexdef, '\\d{4}_\\d\\d', '', 'g') FROM pg_indexes WHERE tablename = ? ORDER BY 1"
    assert postgres_database.query(shape, (new,)) == postgres_database.query(shape, (old,))


def test_rows_beyond_every_month_are_caught_and_get_a_month(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(RICH)
    where = "SELECT tableoid::regclass::text FROM event WHERE code = ?"
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        for code, at in (
            ("far", "now() + interval '130 days'"),
            ("never", "'2999-01-01'"),
            ("ancient", "'1999-01-01'"),
        ):
            postgres_database.execute(f"INSERT INTO event (code, created_at) VALUES (?, {at})", (code,))
        assert postgres_database.query(where, ("far",)) == [("event_p_after",)]
        was = rows(postgres_database)
    with keeping(postgres_database, tmp_path, FURTHER) as keeper:
        [done] = keeper.partition.maintain("event")
        assert done.rows == 1
        assert rows(postgres_database) == was, "the same rows, and no trigger fired"
        [(partition,)] = postgres_database.query(where, ("far",))
        assert partition.removeprefix("event_p_") in months(postgres_database)
        assert postgres_database.query(where, ("never",)) == [("event_p_after",)]
        keeper.partition.undo("event", pace=FAST)
        assert rows(postgres_database) == was


def test_too_many_rows_beyond_every_month_are_reported_and_stay(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_database.script(PLAIN)
    monkeypatch.setattr("wane._partition.months_ahead._MOST_MOVED", 2)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        postgres_database.execute(
            "INSERT INTO event (code, created_at) SELECT 'far', now() + interval '130 days' FROM generate_series(1, 3)"
        )
    with (
        keeping(postgres_database, tmp_path, FURTHER) as keeper,
        pytest.raises(StoreError, match="more than 2 rows that lie beyond every month") as refused,
    ):
        keeper.partition.maintain("event")
    assert postgres_database.query("SELECT count(*) FROM event_p_after") == [(3,)]
    # What the hint says is the way out.
    assert "`wane partition undo` and then `wane partition convert`" in str(refused.value)
    was = rows(postgres_database)
    with keeping(postgres_database, tmp_path, FURTHER) as keeper:
        keeper.partition.undo("event", pace=FAST)
        keeper.partition.convert("event", accept=True)
        assert keeper.partition.maintain("event")[0].did == "nothing"
    assert rows(postgres_database) == was
    assert postgres_database.query("SELECT count(*) FROM event_p_after") == [(0,)]


def test_an_end_without_a_partition_is_repaired(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(PLAIN)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        postgres_database.execute("DROP TABLE event_p_after")
        [before] = [name for name in partitions(postgres_database) if name.startswith("event_p_before")]
        postgres_database.script(f"ALTER TABLE event DETACH PARTITION {before}")
        keeper.partition.maintain("event")
    assert {"event_p_after", "event_p_before"} <= set(partitions(postgres_database))
    postgres_database.execute(
        "INSERT INTO event (code, created_at) VALUES ('never', '2999-01-01'), ('ancient', '1999-01-01')"
    )


def test_a_default_partition_is_refused(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(PLAIN)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        postgres_database.execute("CREATE TABLE event_rest PARTITION OF event DEFAULT")
        with pytest.raises(StoreError, match="has a DEFAULT partition"):
            keeper.partition.maintain("event")


def test_a_plain_table_has_nothing_to_maintain(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(PLAIN)
    with keeping(postgres_database, tmp_path) as keeper:
        assert keeper.partition.maintain() == []
        with pytest.raises(PartitionError, match="is not partitioned by Wane"):
            keeper.partition.maintain("event")
        with pytest.raises(PartitionError, match="was not partitioned by Wane"):
            keeper.partition.undo("event")


def test_a_runner_makes_months_by_itself(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(PLAIN)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        before = months(postgres_database)
    reported: list[Event] = []
    with keeping(postgres_database, tmp_path, FURTHER, reported.append) as keeper:
        keeper.adopt()
        keeper.enable()
        stop = threading.Event()
        running = Background(lambda: keeper.run(stop=stop))
        await_true(lambda: len(months(postgres_database)) == len(before) + 3, "the months are there")
        stop.set()
        assert running.result().failures == 0
    assert any(isinstance(event, PartitionStep) and event.step == "made" for event in reported)


@pytest.mark.parametrize("encoding", TIMES)
def test_every_encoding_of_a_timestamp_has_its_months(
    postgres_database: PostgresDatabase, tmp_path: Path, encoding: str
) -> None:
    kind, time, now, day = TIMES[encoding]
    postgres_database.script(f"CREATE TABLE event (id bigint PRIMARY KEY, created_at {kind} NOT NULL)")
    postgres_database.execute(f"INSERT INTO event SELECT g, {now} - g * {day} FROM generate_series(0, 50) AS g")
    contract = CONTRACT.replace('"created_at"', time).replace('with = ["event_read.event_id"]', "")
    contract = contract.partition("with = [{")[0]
    with keeping(postgres_database, tmp_path, contract) as keeper:
        keeper.partition.convert("event", accept=True)
        postgres_database.execute(
            f"INSERT INTO event SELECT 100 + g, {now} + g * {day} FROM generate_series(0, 90) AS g"
        )
        was = rows(postgres_database, "event")
        found = postgres_database.query("SELECT DISTINCT tableoid::regclass::text FROM event")
        assert len(found) >= 3, "rows lie in their months"
        assert keeper.partition.undo("event", pace=FAST).rows > 0
        assert rows(postgres_database, "event") == was
