"""`wane partition` on the command line: what it prints, and how it exits."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Wane
from partition.partitioning import CONTRACT, PLAIN, partitions
from servers import PostgresDatabase, SqliteDatabase


@pytest.fixture
def events(postgres_database: PostgresDatabase, folder: Path, wane: Wane) -> PostgresDatabase:
    """Create events and their readers, with their contract as ./wane.toml."""
    postgres_database.script(PLAIN)
    (folder / "wane.toml").write_text(f'[store]\nurl = "{postgres_database.url}"\n{CONTRACT}')
    assert wane("migrate").code == 0
    return postgres_database


def test_from_plan_to_undo(events: PostgresDatabase, wane: Wane) -> None:
    assert "no table is partitioned yet" in wane("partition", "maintain").err
    planned = wane("partition", "plan", "event")
    assert planned.code == 0
    assert 'CREATE UNIQUE INDEX CONCURRENTLY "event_p_key"' in planned.out
    assert "not recommended" in planned.err
    assert "ON CONFLICT (id)" in planned.err.replace("\n", " ")
    assert wane("partition", "convert", "event", "--dry-run").out == planned.out
    refused = wane("partition", "convert", "event")
    assert (refused.code, refused.out) == (1, "")
    assert "--accept" in refused.err
    assert partitions(events) == []
    done = wane("partition", "convert", "event", "--accept")
    assert done.code == 0, done.err
    assert "event: swapped" in done.err
    assert "event converted" in done.err
    plan = wane("partition", "plan", "event", "--json").json
    assert (plan["state"], plan["along"][0]["state"]) == ("partitioned", "partitioned")
    assert (plan["partitions"], plan["recommended"]) == (partitions(events), False)
    shown = wane("partition", "plan", "event").err
    assert ("it is partitioned" in shown, "recommended" in shown) == (True, False)
    assert "event nothing to do" in wane("partition", "convert", "event", "--accept").err
    [repeated, split] = wane("partition", "convert", "event", "--split", "--fast", "--json").json
    assert (repeated["did"], split["did"], split["rows"] > 400) == ("nothing", "split", True)
    assert wane("partition", "maintain", "event", "--json").json[0]["did"] == "nothing"
    events.execute(
        "INSERT INTO event (code, created_at) SELECT 'far', now() + g * interval '9 days' FROM generate_series(1, 9) g"
    )
    undone = wane("partition", "undo", "event", "--fast", "--json").json[0]
    assert undone["did"] == "undone"
    assert undone["rows"] > 0
    assert wane("partition", "plan", "event", "--json").json["state"] == "plain"


def test_months_are_retired_and_put_back(events: PostgresDatabase, wane: Wane) -> None:
    wane("partition", "convert", "event", "--accept")
    [off] = wane("partition", "retire", "event", "--json").json
    assert off["outcome"] == "off"
    wane("enable")
    assert "no month of event is past its time" in wane("partition", "retire", "event").err
    # As if the conversion had been half a year ago.
    partition = ""
    for table in ("event_read", "event"):
        [old] = [name for name in partitions(events, table) if "_p_before" in name]
        events.script(
            f"ALTER TABLE {table} DETACH PARTITION {old}; TRUNCATE {old}; ALTER TABLE {table} ATTACH PARTITION {old} FOR VALUES FROM (MINVALUE) TO ('2001-01-01 00:00:00+00')"
        )
        partition = old
    events.execute("INSERT INTO event (id, created_at) VALUES (1, '2000-05-05')")
    due = wane("partition", "retire", "event", "--dry-run")
    assert (due.code, "due" in due.out, events.query("SELECT count(*) FROM event")) == (0, True, [(1,)])
    gone = wane("partition", "retire", "event")
    assert gone.code == 0, gone.err
    assert "quarantined" in gone.out
    assert f"--reattach {partition}" in wane("partition", "plan", "event").err.replace("\n", " ")
    assert events.query("SELECT count(*) FROM event") == [(0,)]
    [back] = wane("partition", "retire", "event", "--reattach", partition, "--json").json
    assert back["outcome"] == "attached"
    assert events.query("SELECT count(*) FROM event") == [(1,)]
    wrong = wane("partition", "retire", "event", "--reattach", "nothing")
    assert (wrong.code, "is in quarantine" in wrong.err) == (1, True)
    assert wane("partition", "retire", "event", "--reattach", "x", "--dry-run").code == 2


def test_mistakes_are_reported(events: PostgresDatabase, wane: Wane) -> None:
    for words, hint in (
        (("plan", "evnt"), "did you mean 'event'"),
        (("plan", "event_read"), "name event"),
        (("undo", "event"), "nothing to undo"),
        (("maintain", "event"), "wane partition convert event"),
    ):
        done = wane("partition", *words)
        assert (done.code, done.out) == (1, "")
        assert hint in done.err


def test_sqlite_is_reported_to_prune_by_rows(sqlite_database: SqliteDatabase, folder: Path, wane: Wane) -> None:
    sqlite_database.script("CREATE TABLE event (id integer PRIMARY KEY, created_at text)")
    (folder / "wane.toml").write_text(f'[store]\nurl = "{sqlite_database.url}"\n{CONTRACT}')
    for command in ("plan", "convert", "maintain", "retire", "undo"):
        done = wane("partition", command, "event")
        assert done.code == 1
        assert "SQLite has no partitions" in done.err


DAYS = """
CREATE TABLE task (id bigint, at timestamptz, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE task_1999 PARTITION OF task FOR VALUES FROM ('1999-01-01') TO ('1999-01-02');
CREATE TABLE task_2100 PARTITION OF task FOR VALUES FROM ('2100-01-01') TO ('2100-01-02');
INSERT INTO task VALUES (1, '1999-01-01 05:00+00');
"""
TASKS = """
[scheduler]
night = { every = "1h" }
[table.task]
scheduler = "night"
why = "a test"
time = "at"
rule.old = { keep = "30d" }
[partition.task]
made_by = "application"
time = "at"
keep = "30d"
"""


def test_partitions_of_the_application_are_retired(
    postgres_database: PostgresDatabase, folder: Path, wane: Wane
) -> None:
    postgres_database.script(DAYS)
    (folder / "wane.toml").write_text(f'[store]\nurl = "{postgres_database.url}"\n{TASKS}')
    for command in ("migrate", "enable"):
        assert wane(command).code == 0
    assert "whole partitions of the application: dropped 30d after their end" in wane("check", "--show").out
    assert "wane partition retire task --dry-run" in wane("plan").err
    also = wane("plan", "--json").json["partitions"]
    assert also == [{"table": "task", "command": "wane partition retire task --dry-run"}]
    plan = wane("partition", "plan", "task")
    assert "task partitioned by the application, 1 row" in plan.out
    assert "its newest partition ends at 2100-01-02 00:00 UTC" in plan.err
    [due] = wane("partition", "retire", "task", "--dry-run", "--json").json
    assert (due["partition"], due["outcome"], due["counts"]) == ("task_1999", "due", {"task": 1})
    why = wane("why", "task", "id=1", "at=1999-01-01 05:00+00")
    assert "it leaves with its partition task_1999" in why.out
    refused = wane("partition", "convert", "task", "--accept")
    assert (refused.code, "the application makes the partitions of task" in refused.err) == (1, True)
    assert wane("partition", "retire", "task", "--json").json[0]["outcome"] == "quarantined"
    assert "no partition of task is past its time" in wane("partition", "retire", "task").err
    [back] = wane("partition", "retire", "task", "--reattach", "task_1999", "--json").json
    assert (back["outcome"], partitions(postgres_database, "task")) == ("attached", ["task_1999", "task_2100"])
