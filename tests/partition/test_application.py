"""Partitions that the application makes: retired like months, and never made, covered or changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from archive.inline import without_spark
from partition.partitioning import keeping, partitions
from partition.test_retire import count, hasten, outcomes
from servers import PostgresDatabase
from wane._contract.show import rows as shown_rows
from wane._keeper import Keeper
from wane._partition.chore import PartitionChore
from wane._partition.sql import PostgresPartitions
from wane._prune.pace import FAST
from wane.errors import PartitionError, StoreError
from wane.events import ignore_event

NOW = datetime.now(UTC)
TODAY = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
DAYS = 11
"""The days before today that have a partition; two more follow."""
KEEP_DAYS = 5
WHOLE = DAYS - KEEP_DAYS
"""The days that ended long enough ago."""

TASKS = """
CREATE TABLE task (id bigint GENERATED ALWAYS AS IDENTITY, status text NOT NULL DEFAULT 'done', note text,
  inserted_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, inserted_at)) PARTITION BY RANGE (inserted_at);
CREATE INDEX task_due ON task (status, inserted_at, id);
CREATE TABLE task_event (task_id bigint NOT NULL, task_inserted_at timestamptz NOT NULL, id bigint NOT NULL,
  PRIMARY KEY (task_id, task_inserted_at, id)) PARTITION BY RANGE (task_inserted_at);
CREATE TABLE payload (task_id bigint NOT NULL, task_inserted_at timestamptz NOT NULL, body text,
  PRIMARY KEY (task_id, task_inserted_at));
CREATE TABLE claim (id bigint PRIMARY KEY, task_id bigint, task_inserted_at timestamptz);
CREATE INDEX claim_task ON claim (task_id, task_inserted_at);
CREATE FUNCTION make_days(parent text, first int, last int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE day timestamptz; BEGIN
  FOR n IN first .. last LOOP
    day := date_trunc('day', now(), 'UTC') + n * interval '24 hours';
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING IDENTITY)', parent || to_char(day AT TIME ZONE 'UTC', '_YYYYMMDD'), parent);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent,
                   parent || to_char(day AT TIME ZONE 'UTC', '_YYYYMMDD'), day, day + interval '24 hours');
  END LOOP; END $$;
"""
"""As Hatchet lays out its tasks: a partition for each day, and what follows them partitioned by the same time."""
KEYS = """
ALTER TABLE task_event ADD FOREIGN KEY (task_id, task_inserted_at) REFERENCES task (id, inserted_at) ON DELETE CASCADE;
ALTER TABLE payload ADD FOREIGN KEY (task_id, task_inserted_at) REFERENCES task (id, inserted_at);
"""
FILLED = f"""
SELECT make_days('task', -{DAYS}, 1), make_days('task_event', -{DAYS}, 1);
INSERT INTO task (inserted_at) SELECT date_trunc('day', now(), 'UTC') - d * interval '24 hours' + h * interval '6 hours'
FROM generate_series(1, {DAYS}) AS d, generate_series(0, 3) AS h;
INSERT INTO task_event SELECT id, inserted_at, n FROM task, generate_series(1, 2) AS n;
INSERT INTO payload SELECT id, inserted_at, 'p' FROM task WHERE id % 3 = 0;
"""
REFERENCE = 'columns = ["task_id", "task_inserted_at"], to = ["id", "inserted_at"]'
CONTRACT = f"""
[scheduler]
weekly = {{ every = "7d" }}

[table.task]
scheduler = "weekly"
why   = "a test"
state = "status"
live  = ["open"]
time  = "inserted_at"
[table.task.rule.old]
when = ["done"]
keep = "{KEEP_DAYS}d"
with = [{{ table = "task_event", {REFERENCE} }}, {{ table = "payload", {REFERENCE} }}]
unless = [{{ referenced_by = {{ table = "claim", {REFERENCE} }} }}]

[excused]
claim = {{ elsewhere = "a test" }}

[partition.task]
made_by = "application"
time = "inserted_at"
keep = "{KEEP_DAYS}d"
with = [{{ table = "task_event", time = "task_inserted_at" }}]
"""


def day(ago: int, table: str = "task") -> str:
    return f"{table}_{TODAY - timedelta(days=ago):%Y%m%d}"


OLDEST = day(DAYS)


def everything(database: PostgresDatabase) -> list[Any]:
    """Return every row, and every partition with its range, its indexes and its constraints but the checks of its
    range."""
    rows = [database.query(f"SELECT t::text FROM {name} AS t ORDER BY 1") for name in ("task", "task_event", "payload")]
    shape = database.query(
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), ARRAY(SELECT indexrelid::regclass::text FROM pg_index"
        " WHERE indrelid = c.oid ORDER BY 1), ARRAY(SELECT conname::text FROM pg_constraint WHERE conrelid = c.oid"
        " AND contype IN ('p', 'f') ORDER BY 1) FROM pg_class AS c WHERE c.relispartition AND c.relkind = 'r' ORDER BY 1"
    )
    return [*rows, shape]


def test_whole_days_leave_and_rows_of_mixed_days_leave_by_their_rules(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    database = postgres_database
    database.script(TASKS + FILLED)
    [live, held, guarded, hindered] = [day(DAYS - n) for n in (1, 2, 3, 4)]
    with keeping(database, tmp_path, CONTRACT) as keeper:
        assert [one for one in keeper.check() if one.severity.value == "error"] == []
        database.execute(f"UPDATE {live} SET status = 'open' WHERE id = (SELECT min(id) FROM {live})")
        [(number, at)] = database.query(f"SELECT id, inserted_at FROM {held} ORDER BY 1 LIMIT 1")
        keeper.hold("task", {"id": number, "inserted_at": at}, reason="a court")
        database.execute(f"INSERT INTO claim SELECT 1, id, inserted_at FROM {guarded} ORDER BY 2 LIMIT 1")
        # Its rows are due, but some of what is among their followers follows none of them.
        database.script(f"UPDATE {hindered.replace('task', 'task_event')} SET task_id = -task_id WHERE id = 1")
        assert outcomes(keeper.partition.retire("task")) == {"": "off"}
        keeper.enable()
        before = everything(database)
        shown_first = keeper.partition.retire("task", dry_run=True)
        expected = {day(DAYS - n): "due" for n in range(WHOLE)} | dict.fromkeys((live, held, guarded), "stays")
        assert outcomes(shown_first) == expected
        assert everything(database) == before
        explained = {name: _why(database, keeper, name) for name in (OLDEST, live, held, day(1))}
        assert explained[OLDEST].startswith(f"it leaves with its partition {OLDEST}:")
        assert explained[live].startswith(
            f"{live}, its partition, is past its time and stays: 1 of its 4 rows must stay"
        )
        assert "1 held" in explained[held]
        after = TODAY + timedelta(days=KEEP_DAYS)
        assert explained[day(1)].startswith(f"{day(1)}, its partition, is retired after {after:%Y-%m-%d} 00:00:00 UTC")
        [shown] = [one for one in shown_rows(keeper.contract) if one.table == "task"]
        assert (
            shown.trigger
            == f"weekly every 7d; whole partitions of the application: dropped {KEEP_DAYS}d after their end"
        )
        [(number, at)] = database.query(f"SELECT id, inserted_at FROM {OLDEST} ORDER BY 1 LIMIT 1")
        done = keeper.partition.retire("task", pace=FAST)
        why = keeper.why("task", {"id": number, "inserted_at": at})
        assert f"it left with its partition {OLDEST}, which is in quarantine until " in why.summary
        assert why.gone is not None
        assert why.gone.quarantined is not None
        assert why.gone.quarantined.reattach == f"wane partition retire task --reattach {OLDEST}"
        assert outcomes(done) == {name: "quarantined" if ended == "due" else ended for name, ended in expected.items()}
        gone = [one for one in done if one.outcome == "quarantined"]
        assert {one.counts["task"] for one in gone} == {4}
        assert sum(one.counts["task_event"] for one in gone) == 8 * len(gone) - 4
        assert count(database, "task") == 4 * (DAYS - len(gone))
        assert (
            count(database, f"task WHERE inserted_at < now() - interval '{KEEP_DAYS} days' AND status = 'done'") >= 11
        )
        assert count(database, "task_event WHERE task_id < 0") == 4, "what follows none of its rows stays"
        assert len(partitions(database, "task")) == DAYS + 2 - len(gone), "none is made"
        assert {entry.inputs["partition"] for entry in keeper.audit(kind="retire", limit=100)} == {
            one.partition for one in gone
        }
        # The rest leaves row by row, and then its partition.
        keeper.sweep("task")
        assert count(database, f"task WHERE inserted_at < now() - interval '{KEEP_DAYS} days'") == 3
        database.script("UPDATE task SET status = 'done'; DELETE FROM claim")
        assert outcomes(keeper.partition.retire("task", pace=FAST)) == {
            live: "quarantined",
            held: "stays",
            guarded: "quarantined",
        }
        hasten(database)
        dropped = keeper.partition.retire("task", pace=FAST)
        assert [one.outcome for one in dropped].count("dropped") == WHOLE - 1
        assert count(database, "pg_class WHERE relnamespace = 'wane'::regnamespace AND relname LIKE 'public\\_%'") == 0
        assert sum(one.counts["task"] for one in keeper.audit(kind="retire", limit=100)) == 4 * (WHOLE - 3) + 2


def test_what_left_can_be_put_back_as_it_was(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    database = postgres_database
    database.script(TASKS + KEYS + FILLED)
    with keeping(database, tmp_path, CONTRACT) as keeper:
        keeper.enable()
        before = everything(database)
        PartitionChore(keeper.contract, ignore_event)(keeper.store, "a runner")
        assert OLDEST not in partitions(database, "task")
        with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
            database.execute("INSERT INTO task (inserted_at) VALUES (?)", (TODAY - timedelta(days=DAYS),))
        between = DAYS - 4
        database.script(f"SELECT make_days('task', -{between}, -{between})")
        with pytest.raises(StoreError, match=r"overlap|already exists"):
            keeper.partition.reattach("task", day(between))
        database.script(f"ALTER TABLE task DETACH PARTITION {day(between)}; DROP TABLE {day(between)}")
        for n in range(WHOLE):
            assert keeper.partition.reattach("task", day(KEEP_DAYS + 1 + n)).outcome == "attached"
        assert everything(database) == before


SHAPES = """
CREATE TABLE weekly (id bigint, at timestamp, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE daily ("Id" bigint, "On" date, PRIMARY KEY ("Id", "On")) PARTITION BY RANGE ("On");
CREATE TABLE irregular (id bigint, at int NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE caught (id bigint, at_ms bigint, PRIMARY KEY (id, at_ms)) PARTITION BY RANGE (at_ms);
CREATE TABLE caught_rest PARTITION OF caught DEFAULT;
CREATE TABLE nested (id bigint, at timestamptz, status text, PRIMARY KEY (id, at, status)) PARTITION BY RANGE (at);
CREATE TABLE nested_old PARTITION OF nested FOR VALUES FROM (MINVALUE) TO ('2020-01-01') PARTITION BY LIST (status);
CREATE TABLE nested_old_open PARTITION OF nested_old FOR VALUES IN ('open');
CREATE TABLE nested_old_rest PARTITION OF nested_old DEFAULT;
"""
"""Partitions of all sorts: by the week, by the day, of any length, beside a DEFAULT one, and partitioned themselves."""
TIMES = {
    "weekly": '{ column = "at", zone = "Europe/Berlin" }',
    "daily": '{ column = "On", unit = "date" }',
    "irregular": '{ column = "at", unit = "s" }',
    "caught": '{ column = "at_ms", unit = "ms" }',
    "nested": '"at"',
}
ENCODED: dict[str, Callable[[datetime], object]] = {
    "weekly": lambda at: f"{(at + timedelta(hours=2)).replace(tzinfo=None)}",
    "daily": lambda at: f"{at:%Y-%m-%d}",
    "irregular": lambda at: int(at.timestamp()),
    "caught": lambda at: int(at.timestamp()) * 1000,
    "nested": lambda at: f"{at}",
}
MIXED = '[scheduler]\nnight = { every = "1h" }\n' + "".join(
    f'[table.{name}]\nscheduler = "night"\nwhy = "a test"\ntime = {time}\nrule.old = {{ keep = "30d" }}\n'
    f'[partition.{name}]\nmade_by = "application"\ntime = {time}\nkeep = "31d"\n'
    for name, time in TIMES.items()
)


def fill(database: PostgresDatabase, name: str, ends: list[datetime], step: timedelta) -> None:
    """Make partitions between some times, with a row at each multiple of a step from where the first begins."""
    encode = ENCODED[name]
    for number, (lower, upper) in enumerate(pairwise(ends)):
        database.script(
            f"CREATE TABLE {name}_{number} PARTITION OF {name} FOR VALUES FROM ('{encode(lower)}') TO ('{encode(upper)}')"
        )
    times = [ends[0] + n * step for n in range(int((ends[-1] - ends[0]) / step))]
    rows = ", ".join(f"({number}, '{encode(at)}')" for number, at in enumerate(times))
    database.script(f"INSERT INTO {name} VALUES {rows}")


def test_ranges_of_any_kind_leave_by_their_ends(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    """By an oracle: a partition leaves if it ended 31 days ago, and every row in it is 30 days old."""
    database, generator = postgres_database, random.Random(7)
    database.script(SHAPES)
    irregular = sorted({TODAY - timedelta(minutes=generator.randrange(0, 80_000)) for _ in range(16)})
    ends = {
        "weekly": [TODAY - timedelta(days=7 * n) for n in range(9, -2, -1)],
        "daily": [TODAY - timedelta(days=n) for n in range(37, -2, -1)],
        "irregular": irregular,
        "caught": [TODAY - timedelta(days=n) for n in range(60, 0, -5)],
        "nested": [datetime(2019, 1, 1, tzinfo=UTC), datetime(2019, 6, 1, tzinfo=UTC)],
    }
    for name, times in ends.items():
        if name != "nested":
            fill(database, name, times, timedelta(hours=24 if name == "daily" else 17))
    database.script(
        "INSERT INTO nested SELECT g, '2019-05-05', CASE WHEN g % 2 = 0 THEN 'open' ELSE 'done' END FROM generate_series(1, 9) AS g;"
        f"INSERT INTO caught VALUES (-1, {ENCODED['caught'](NOW - timedelta(days=900))})"
    )
    cutoff = NOW - timedelta(days=31)
    expected = {
        name: {f"{name}_{number}" for number, end in enumerate(times[1:]) if end <= cutoff}
        for name, times in ends.items()
        if name != "nested"
    } | {"nested": {"nested_old"}}
    with keeping(database, tmp_path, MIXED) as keeper:
        assert [one for one in keeper.check() if one.severity.value == "error"] == []
        keeper.enable()
        for name, gone in expected.items():
            before = sorted(database.query(f"SELECT t::text, tableoid::regclass::text FROM {name} AS t"))
            done = keeper.partition.retire(name, pace=FAST)
            assert outcomes(done) == dict.fromkeys(gone, "quarantined"), name
            assert len(gone) >= 1
            left = sorted(database.query(f"SELECT t::text, tableoid::regclass::text FROM {name} AS t"))
            inside = [row for row in before if row[1] in gone or row[1].startswith("nested_old")]
            assert left == sorted(set(before) - set(inside)), name
            assert sum(one.counts[name] for one in done) == len(inside), name
        # A row that comes late is caught by the DEFAULT partition, and goes where it belongs when that is back.
        late = ENCODED["caught"](ends["caught"][0] + timedelta(hours=1))
        database.execute("INSERT INTO caught VALUES (-2, ?)", (late,))
        assert keeper.partition.reattach("caught", "caught_0").outcome == "attached"
        assert database.query("SELECT tableoid::regclass::text FROM caught WHERE id < 0 ORDER BY id") == [
            ("caught_0",),
            ("caught_rest",),
        ]
        assert keeper.partition.reattach("nested", "nested_old").outcome == "attached"
        assert count(database, "nested_old_open") == 4
        hasten(database)
        for name, gone in expected.items():
            repeated = {"caught": {"caught_0"}, "nested": {"nested_old"}}.get(name, set())
            done = keeper.partition.retire(name, pace=FAST)
            assert {one.partition for one in done if one.outcome == "dropped"} == gone - repeated
        assert count(database, "nested") == 0
        assert count(database, "caught_rest") == 1, "the DEFAULT partition is never retired"


def _why(database: PostgresDatabase, keeper: Keeper, name: str) -> str:
    """Return what is reported of the partition of a row in it."""
    [(number, at)] = database.query(f"SELECT id, inserted_at FROM {name} ORDER BY 1 DESC LIMIT 1")
    found = keeper.why("task", {"id": number, "inserted_at": at}).partition
    assert found is not None
    assert found.partition == name
    return found.summary


def _change(database: PostgresDatabase, keeper: Keeper, what: str) -> None:
    if what == "held":
        [(number, at)] = database.query(f"SELECT id, inserted_at FROM {OLDEST} ORDER BY 1 LIMIT 1")
        keeper.hold("task", {"id": number, "inserted_at": at}, reason="a court")
    elif what == "late":
        at = TODAY - timedelta(days=DAYS) + timedelta(hours=1)
        database.execute("INSERT INTO task (status, inserted_at) VALUES ('open', ?)", (at,))
    elif what == "follower":
        at = TODAY - timedelta(days=DAYS) + timedelta(hours=1)
        database.execute("INSERT INTO task_event VALUES (-1, ?, 1)", (at,))
    elif what == "lost":
        database.script(f"DROP TABLE {day(DAYS, 'task_event')}")
    elif what in ("dropped", "renewed"):
        database.script(f"DROP TABLE {OLDEST}")
    if what == "renewed":
        database.script(f"CREATE TABLE {OLDEST} PARTITION OF task FOR VALUES FROM ('2200-01-01') TO ('2200-01-02')")


@pytest.mark.parametrize("when", ["weigh", "detach"])
@pytest.mark.parametrize("what", ["held", "late", "follower", "lost", "dropped", "renewed"])
def test_what_changes_meanwhile_keeps_its_partition(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, when: str
) -> None:
    database, changed = postgres_database, list[str]()
    database.script(TASKS)
    database.script(f"SELECT make_days('task', -{DAYS}, -{DAYS}), make_days('task_event', -{DAYS}, -{DAYS})")
    at = TODAY - timedelta(days=DAYS)
    database.execute("INSERT INTO task (inserted_at) SELECT ?::timestamptz FROM generate_series(1, 5)", (at,))
    database.script("INSERT INTO task_event SELECT id, inserted_at, 1 FROM task")
    with keeping(database, tmp_path, CONTRACT) as keeper:
        keeper.enable()
        original = getattr(PostgresPartitions, when)

        def change(steps: PostgresPartitions, *arguments: Any) -> Any:
            found = original(steps, *arguments) if when == "weigh" else None
            if not changed and (when == "weigh" or what in ("follower", "lost") or OLDEST in arguments):
                changed.append(what)
                _change(database, keeper, what)
            return found or original(steps, *arguments)

        monkeypatch.setattr(PostgresPartitions, when, change)
        [done] = keeper.partition.retire("task", pace=FAST)
        if what == "lost":
            assert (done.outcome, done.counts) == ("quarantined", {"task": 5, "task_event": 0, "payload": 0})
            assert keeper.partition.reattach("task", OLDEST).outcome == "attached"
            assert count(database, "task") == 5
            return
        if (what, when) == ("follower", "weigh"):
            assert (done.outcome, done.counts) == ("quarantined", {"task": 5, "task_event": 5, "payload": 0})
            assert count(database, "task_event") == 1, "what follows no row of it stays"
            return
        alive = what not in ("dropped", "renewed")
        assert done.outcome == ("stays" if alive else "gone"), done
        assert count(database, "task") == {"late": 6}.get(what, 5 if alive else 0)
        assert count(database, "task_event") == (6 if what == "follower" else 5)
        assert (OLDEST in partitions(database, "task")) == (what != "dropped")
        assert day(DAYS, "task_event") in partitions(database, "task_event")
        monkeypatch.undo()
        after = [one.outcome for one in keeper.partition.retire("task", pace=FAST)]
        assert after == (["quarantined"] if what == "follower" else ["stays"] if alive else [])
        assert count(database, "task_event") == {"follower": 1}.get(what, 5), "what follows no row of it stays"


@pytest.mark.parametrize("default", [False, True])
def test_one_that_was_left_half_way_is_finished(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: bool
) -> None:
    database = postgres_database
    database.script(TASKS + KEYS + FILLED)
    if default:
        database.script("CREATE TABLE task_rest PARTITION OF task DEFAULT")
    with keeping(database, tmp_path, CONTRACT) as keeper:
        keeper.enable()
        before = everything(database)

        def die(*_: Any) -> None:
            raise KeyboardInterrupt

        for step in ("detach", "quarantine", "await_references"):
            monkeypatch.setattr(PostgresPartitions, step, die)
            with pytest.raises(KeyboardInterrupt):
                keeper.partition.retire("task", pace=FAST)
            monkeypatch.undo()
        done = keeper.partition.retire("task", pace=FAST)
        assert [one.outcome for one in done] == ["quarantined"] * WHOLE
        assert done[0].partition == OLDEST
        assert sum(one.counts["task"] for one in done) == 4 * WHOLE
        if default:
            # What follows it would be deleted if it moved to its own partition.
            database.execute("INSERT INTO task (inserted_at) VALUES (?)", (TODAY - timedelta(days=DAYS),))
            with pytest.raises(StoreError, match="rows that came late"):
                keeper.partition.reattach("task", OLDEST)
            database.script("DELETE FROM task_rest")
        for one in done:
            keeper.partition.reattach("task", one.partition)
        assert everything(database) == before


def test_what_wane_cannot_move_stays(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    database = postgres_database
    database.script(
        TASKS
        + "CREATE SCHEMA parts; CREATE TABLE parts.task_1999 PARTITION OF task FOR VALUES FROM ('1999-01-01') TO ('2000-01-01');"
        "CREATE TABLE task_2000 PARTITION OF task FOR VALUES FROM ('2000-01-01') TO ('2001-01-01') PARTITION BY RANGE (inserted_at);"
        "CREATE TABLE parts.task_done PARTITION OF task_2000 DEFAULT;"
        "CREATE TABLE task_event_1999 PARTITION OF task_event FOR VALUES FROM ('1999-01-01') TO ('2000-01-01');"
        "INSERT INTO task (inserted_at) VALUES ('1999-05-05'), ('2000-05-05')"
    )
    with keeping(database, tmp_path, CONTRACT) as keeper:
        keeper.enable()
        for dry_run in (True, False):
            done = keeper.partition.retire("task", dry_run=dry_run)
            assert outcomes(done) == {"task_1999": "stays", "task_2000": "stays"}
            assert "in the schema parts" in done[0].why
            assert "task_done is in another schema" in done[1].why
        assert count(database, "task") == 2
        keeper.sweep("task")
        assert count(database, "task") == 0


def test_only_retiring_is_for_such_a_table(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    """And what is unique in each partition is not taken for a key of all of them."""
    database = postgres_database
    database.script(TASKS + f"SELECT make_days('task', -{DAYS}, 1), make_days('task_event', -{DAYS}, 1)")
    database.script("".join(f"CREATE UNIQUE INDEX ON {name} (id);" for name in partitions(database, "task")))
    with keeping(database, tmp_path, CONTRACT.replace('live  = ["open"]', 'live = ["open"]\nkey = ["id"]')) as keeper:
        assert "no-key" in {one.code for one in keeper.check()}
        for refused in (
            keeper.partition.convert,
            keeper.partition.undo,
            keeper.partition.split,
            keeper.partition.maintain,
        ):
            with pytest.raises(PartitionError, match="the application makes the partitions of task"):
                refused("task")
        assert keeper.partition.maintain() == []
        plan = keeper.partition.plan("task")
        assert (plan.state, plan.steps, len(plan.partitions)) == ("partitioned by the application", (), DAYS + 2)
        assert f"its newest partition ends at {TODAY + timedelta(days=2):%Y-%m-%d} 00:00 UTC" in plan.notes
        assert [one.table for one in plan.along] == ["task_event"]
    with keeping(database, tmp_path, CONTRACT.replace('made_by = "application"', "")) as keeper:
        for call in (keeper.partition.convert, keeper.partition.retire):
            with pytest.raises(PartitionError) as problem:
                call("task")
            assert 'made_by = "application"' in problem.value.hint


def test_they_move_to_the_schema_of_archived_tables(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    database = postgres_database
    database.script(
        TASKS
        + KEYS
        + FILLED
        + "CREATE TABLE log (id bigint, at timestamp, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);"
        "CREATE TABLE log_old PARTITION OF log FOR VALUES FROM ('-infinity') TO ('2020-01-01 06:00') PARTITION BY HASH (id);"
        "CREATE TABLE log_old_0 PARTITION OF log_old FOR VALUES WITH (MODULUS 1, REMAINDER 0); INSERT INTO log VALUES (1, '2019-05-05')"
    )
    time = '{ column = "at", zone = "UTC" }'
    logs = (
        f'[table.log]\nscheduler = "weekly"\nwhy = "a test"\ntime = {time}\nrule.old = {{ keep = "30d" }}\n'
        f'[partition.log]\nmade_by = "application"\ntime = {time}\nkeep = "30d"\n'
    )
    with keeping(database, tmp_path, (CONTRACT + logs).replace("made_by", 'then = "move"\nmade_by')) as keeper:
        keeper.enable()
        assert outcomes(keeper.partition.retire("task", pace=FAST)) == {day(DAYS - n): "moved" for n in range(WHOLE)}
        moved = day(DAYS).replace("task_", "archive.task_")
        assert count(database, moved) == 4
        assert count(database, moved.replace("task_", "task_event_")) == 8
        assert count(database, moved.replace("task_", "payload_") + "_with") in (1, 2)
        assert outcomes(keeper.partition.retire("log")) == {"log_old": "moved"}
        assert count(database, "archive.log_before_20200101060000") == 1
        assert not [one for one in keeper.check(strict=True) if one.severity.value == "error"]


def test_their_rows_are_archived_first(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgres_database
    database.script(TASKS + KEYS + FILLED)
    without_spark(monkeypatch)
    cold = CONTRACT.replace("made_by", 'then = "archive"\nmade_by').replace(
        'when = ["done"]\n', 'when = ["done"]\nthen = "archive"\n'
    )
    with keeping(
        database, tmp_path, f'{cold}[archive]\nurl = "{tmp_path}/cold"\ntask = {{ keep = "forever" }}\n'
    ) as keeper:
        keeper.enable()
        live = day(DAYS - 2)
        database.execute(f"UPDATE {live} SET status = 'open' WHERE id = (SELECT min(id) FROM {live})")
        done = keeper.partition.retire("task", pace=FAST)
        gone = {day(DAYS - n) for n in range(WHOLE)} - {live}
        assert {one.partition for one in done if one.outcome == "dropped"} == gone
        assert [one.why for one in done if one.outcome == "stays"] == ["1 of its rows are not in the archive yet"]
        [table] = [one for one in keeper.archive.tables() if one.table == "task"]
        assert table.rows == 4 * DAYS - count(database, "task")


REFUSED = """
CREATE TABLE job (name text, id uuid, created_on timestamptz, PRIMARY KEY (name, id)) PARTITION BY LIST (name);
CREATE TABLE two (id int, at timestamptz) PARTITION BY RANGE (at, id);
CREATE TABLE expressed (id int, at timestamptz) PARTITION BY RANGE (date_trunc('day', at, 'UTC'));
CREATE TABLE keyed (id uuid PRIMARY KEY, at timestamptz) PARTITION BY RANGE (id);
CREATE TABLE plain (id int PRIMARY KEY, at timestamptz);
CREATE TABLE naive (at timestamp, id int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
"""


@pytest.mark.parametrize(
    ("table", "time", "message"),
    [
        ("job", '"created_on"', "LIST (name): such a partition never ends"),
        ("two", '"at"', "not by ranges of at alone"),
        ("expressed", '"at"', "not by ranges of at alone"),
        ("keyed", '"at"', "partitioned by RANGE (id), and not by ranges of at alone"),
        ("plain", '"at"', "plain is not partitioned"),
        ("naive", '"at"', "zone"),
    ],
    ids=["list", "columns", "expression", "key", "plain", "naive"],
)
def test_what_has_no_end_in_time_is_refused(
    postgres_database: PostgresDatabase, tmp_path: Path, table: str, time: str, message: str
) -> None:
    postgres_database.script(REFUSED)
    contract = (
        f'[scheduler]\nnight = {{ every = "1h" }}\n[table.{table}]\nscheduler = "night"\nwhy = "a test"\nkey = ["id"]\n'
        f'time = {time}\nrule.old = {{ keep = "30d" }}\n[partition.{table}]\nmade_by = "application"\ntime = {time}\nkeep = "30d"\n'
    )
    with keeping(postgres_database, tmp_path, contract) as keeper:
        [finding] = [one for one in keeper.check() if one.code == "wrong-partitions"]
        assert message in finding.message
        with pytest.raises(PartitionError) as problem:
            keeper.partition.retire(table)
        assert message in problem.value.message
