"""There and back on every server: the same rows, the same schema, and an application that does not notice."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from partition.partitioning import PLAIN, RICH, Application, dump, keeping, partitions, rows
from servers import PostgresDatabase
from wane._prune.pace import FAST


def test_a_table_with_everything_survives_there_and_back(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(RICH)
    tables = ("event", "event_read", "note", "customer")
    before, was = dump(postgres_database), rows(postgres_database, *tables)
    [(position,)] = postgres_database.query("SELECT last_value FROM event_id_seq")
    with keeping(postgres_database, tmp_path) as keeper:
        done = keeper.partition.convert("event", accept=True)
        assert done.did == "converted"
        assert rows(postgres_database, *tables) == was
        assert dump(postgres_database) != before
        undone = keeper.partition.undo("event", pace=FAST)
        assert (undone.did, undone.rows, undone.problems) == ("undone", 0, ())
    assert rows(postgres_database, *tables) == was
    assert dump(postgres_database) == before
    [(number,)] = postgres_database.query("INSERT INTO event (code) VALUES ('one more') RETURNING id")
    assert number == position + 1
    assert postgres_database.query("SELECT count(*) FROM wane.partition_change") == [(0,)]


def test_rows_that_came_since_go_back_too(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(RICH)
    before = dump(postgres_database)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        postgres_database.execute(
            "INSERT INTO event (customer_id, code, created_at)"
            " SELECT 1, 'new ' || g, now() + g * interval '10 hours' FROM generate_series(1, 300) AS g"
        )
        postgres_database.execute(
            "INSERT INTO event_read (event_id, reader, read_at) SELECT id, 'n', created_at FROM event WHERE code LIKE 'new %'"
        )
        postgres_database.execute("INSERT INTO note SELECT id, id, created_at FROM event WHERE code LIKE 'new %'")
        postgres_database.execute("UPDATE event SET body = 'changed' WHERE code IN ('new 1', 'new 300', 'old 1')")
        was = rows(postgres_database, "event", "event_read", "note")
        undone = keeper.partition.undo("event", pace=FAST)
        assert undone.rows > 300
        assert undone.problems == ()
    assert rows(postgres_database, "event", "event_read", "note") == was
    assert postgres_database.query("SELECT DISTINCT stamped FROM event WHERE body = 'changed'") == [(11,)]
    assert dump(postgres_database) == before


def test_what_a_partitioned_table_keeps(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(RICH)
    with keeping(postgres_database, tmp_path) as keeper:
        plan = keeper.partition.plan("event")
        keeper.partition.convert("event", accept=True)
    one = postgres_database.query
    leaves = partitions(postgres_database)
    assert f"event_p_before_{plan.until}" in leaves
    assert f"event_p_{plan.until}" in leaves
    assert "event_p_after" in leaves
    assert f"event_read_p_{plan.until}" in partitions(postgres_database, "event_read")
    assert one("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'event_pkey'") == [
        ("PRIMARY KEY (id, created_at)",)
    ]
    # A new row, a month ahead: its number, its defaults, its trigger, its foreign key, its partial index.
    one("INSERT INTO event (customer_id, code, created_at) VALUES (1, 'far', now() + interval '40 days') RETURNING id")
    assert one("SELECT id, number, body, length, stamped FROM event WHERE code = 'far'") == [(407, 401, "none", 3, 10)]
    postgres_database.execute("UPDATE event SET body = 'b' WHERE code = 'far'")
    assert one("SELECT stamped FROM event WHERE code = 'far'") == [(11,)]
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        postgres_database.execute("INSERT INTO event (customer_id, code) VALUES (99, 'nobody')")
    with pytest.raises(psycopg.errors.CheckViolation):
        postgres_database.execute("INSERT INTO event (code, body) VALUES ('empty', '')")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        postgres_database.execute("INSERT INTO note VALUES (1000, 1000, now())")
    with pytest.raises(psycopg.errors.UniqueViolation):
        postgres_database.execute("INSERT INTO event (id, code) OVERRIDING SYSTEM VALUE VALUES (8, 'again')")
    for leaf in leaves:
        found = {name for (name,) in one("SELECT indexdef FROM pg_indexes WHERE tablename = ?", (leaf,))}
        assert sum("lower(code)" in text and "WHERE (customer_id IS NOT NULL)" in text for text in found) == 1
        assert sum("USING hash (customer_id)" in text for text in found) == 1
        assert sum("UNIQUE" in text and "(number) WHERE (number > 0)" in text for text in found) == 1
        assert sum("UNIQUE" in text and text.endswith("(id)") for text in found) == 1
        assert one("SELECT 'fillfactor=90' = ANY (reloptions) FROM pg_class WHERE relname = ?", (leaf,)) == [(True,)]
    assert one("SELECT has_table_privilege('pg_monitor', 'event', 'INSERT')") == [(True,)]
    assert one("SELECT has_column_privilege('pg_monitor', 'event', 'body', 'UPDATE WITH GRANT OPTION')") == [(True,)]
    assert one("SELECT obj_description('event'::regclass), col_description('event'::regclass, 4)") == [
        ("what happened", "100% of the code")
    ]
    assert one("SELECT count(*) FROM recent WHERE code = 'far'") == [(1,)], "a view must speak of the whole table"
    assert one("SELECT count(*) FROM codes WHERE code = 'far'") == [(1,)]
    assert one("SELECT tgenabled FROM pg_trigger WHERE tgname = 'event_off' AND tgrelid = 'event'::regclass") == [
        ("D",)
    ]
    assert one("SELECT polname::text FROM pg_policy WHERE polrelid = 'event'::regclass") == [("event_all",)]


def test_no_writer_is_blocked_and_nothing_is_lost_on_the_way(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(RICH)
    with keeping(postgres_database, tmp_path) as keeper, Application(postgres_database) as application:
        done = keeper.partition.convert("event", accept=True)
        application.await_statements(50)
        application._ahead_days = 60
        application.await_statements(200)
        keeper.partition.maintain("event")
        undone = keeper.partition.undo("event")
        application.await_statements(50)
    application.check()
    assert undone.rows > 0
    assert done.longest_lock_seconds > 0


def test_holds_stay_on_their_rows(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(PLAIN)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.hold("event", {"id": 400}, reason="a court")
        keeper.hold("event_read", {"event_id": 399, "reader": "r"}, reason="a court")
        keeper.prune("event", rule="old", limit=1)  # It has read the schema, and will not read it again soon.
        keeper.partition.convert("event", accept=True)
        keeper.hold("event", {"id": 397}, reason="a court")
        assert keeper.prune("event", rule="old", limit=1000).rows > 0
        with keeping(postgres_database, tmp_path) as fresh:
            fresh.prune("event", rule="old", limit=1000)
        left = {number for (number,) in postgres_database.query("SELECT id FROM event")}
        assert {400, 399, 397} <= left, "held rows must stay"
        assert 398 not in left
        keeper.partition.undo("event", pace=FAST)
        keeper.prune("event", rule="old", limit=1000)
        assert postgres_database.query("SELECT id FROM event WHERE id > 395 ORDER BY id") == [(397,), (399,), (400,)]
        with keeping(postgres_database, tmp_path) as fresh:
            fresh.prune("event", rule="old", limit=1000)
        assert postgres_database.query("SELECT count(*) FROM event WHERE id > 395") == [(3,)]


def test_prune_and_sweep_work_on_the_partitioned_table(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(PLAIN)
    due = "SELECT count(*) FROM event WHERE created_at < now() - interval '90 days'"
    reads = "SELECT count(*) FROM event_read WHERE event_id NOT IN (SELECT id FROM event)"
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        [(before,)] = postgres_database.query(due)
        assert before > 40
        assert [finding.code for finding in keeper.check(strict=True) if finding.severity.value == "error"] == []
        pruned = keeper.prune("event", rule="old", limit=20)
        assert pruned.counts["event"] + pruned.counts["event_read"] == 20
        assert pruned.counts["event_read"] > 0
        keeper.enable()
        swept = keeper.sweep("event", pace=FAST, approve=["event.old"])
        assert swept.rules[0].counts["event"] == before - pruned.counts["event"]
        assert postgres_database.query(due) == [(0,)]
        assert postgres_database.query(reads) == [(0,)]
