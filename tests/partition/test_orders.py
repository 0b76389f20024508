"""Any order of convert, split, retire, reattach and undo ends in the plain table, with its rows and its definition as
before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from partition.partitioning import CONTRACT, RICH, AfterOneBatch, dump, keeping, partitions, rows
from servers import PostgresDatabase
from wane._keeper import Keeper
from wane._partition.months import Month
from wane._prune.pace import FAST, Pace

SHORT = CONTRACT.replace("90d", "28d").replace(
    'with = ["event_read.event_id"]',
    'with = ["event_read.event_id"]\n'
    'unless = [{ referenced_by = { table = "note", columns = ["event_id", "event_at"], to = ["id", "created_at"] } }]',
)
SMALL = Pace(target_seconds=1.0, duty=0.9, first_batch=20, least_batch=20, most_batch=20)
TABLES = ("event", "event_read", "note")
NOW = datetime.now(UTC)
LAST = Month(NOW.year, NOW.month).later(-1)
"""Every month before it ended at least 28 days ago."""

Step = Callable[[PostgresDatabase, Keeper], None]


def quarantined(database: PostgresDatabase) -> list[str]:
    found = database.query("SELECT partition FROM wane.partition_retired WHERE state = 'quarantined' ORDER BY id")
    return [name for (name,) in found]


def convert(database: PostgresDatabase, keeper: Keeper) -> None:
    keeper.partition.convert("event", accept=True)


def split(database: PostgresDatabase, keeper: Keeper) -> None:
    assert keeper.partition.split("event", pace=FAST).did == "split"


def retire(database: PostgresDatabase, keeper: Keeper) -> None:
    outcomes = {one.outcome for one in keeper.partition.retire("event", pace=FAST)}
    assert outcomes == {"quarantined"}
    assert len(quarantined(database)) >= 1


def reattach_one(database: PostgresDatabase, keeper: Keeper) -> None:
    names = quarantined(database)
    keeper.partition.reattach("event", names[len(names) // 2])


def reattach_all(database: PostgresDatabase, keeper: Keeper) -> None:
    for name in quarantined(database):
        keeper.partition.reattach("event", name)


def come_late(database: PostgresDatabase, keeper: Keeper) -> None:
    """Write rows of a month that has left, as the application or a restore does."""
    database.execute("INSERT INTO event (code, created_at) VALUES ('late', now() - interval '100 days')")


def shrink_the_table_of_before(database: PostgresDatabase, keeper: Keeper) -> None:
    """Change the table as if it had been converted long ago: it ends before the window begins, and can be retired
    whole."""
    until = f"'{LAST.year}-{LAST.month:02}-01 00:00:00+00'"
    for table, column in (("event", "created_at"), ("event_read", "read_at")):
        [old] = [name for name in partitions(database, table) if "_p_before_" in name]
        shape = next(name for name in partitions(database, table) if name != old)
        [(upper,)] = database.query(
            "SELECT substring(pg_get_expr(relpartbound, oid) FROM 'TO \\((.*)\\)') FROM pg_class WHERE relname = ?",
            (old,),
        )
        assert database.query(f"SELECT count(*) FROM {table} WHERE {column} >= {until}") == [(0,)]
        database.script(
            f"ALTER TABLE {table} DETACH PARTITION {old};"
            f" ALTER TABLE {table} ATTACH PARTITION {old} FOR VALUES FROM (MINVALUE) TO ({until});"
            f" CREATE TABLE {table}_p_{LAST.name} (LIKE {shape} INCLUDING ALL EXCLUDING IDENTITY);"
            f" ALTER TABLE {table} ATTACH PARTITION {table}_p_{LAST.name} FOR VALUES FROM ({until}) TO ({upper})"
        )


def undo(database: PostgresDatabase, keeper: Keeper) -> None:
    done = keeper.partition.undo("event", reattach=True, pace=FAST)
    assert (done.did, done.problems, done.stopped) == ("undone", (), False)


def undo_in_several_attempts(database: PostgresDatabase, keeper: Keeper) -> None:
    while database.query("SELECT relkind FROM pg_class WHERE oid = 'event'::regclass") != [("r",)]:
        assert keeper.partition.undo("event", reattach=True, pace=SMALL, stop=AfterOneBatch()).stopped
    # The table is plain, and inherited by months that hold rows still: such a row may change its time to any other.
    database.execute(
        "UPDATE event SET created_at = now() WHERE id = (SELECT id FROM event WHERE tableoid <> 'event'::regclass"
        " ORDER BY created_at LIMIT 1)"
    )
    undo(database, keeper)


# The others are parts of these.
@pytest.mark.sampled(
    *(
        f"postgres-{order}"
        for order in (
            *("reattached-before", "retired-twice", "undone-in-several-attempts", "converted-twice"),
            "table-of-before-twice",
        )
    )
)
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([convert, split, retire, undo], id="reattached-by-undo"),
        pytest.param([convert, split, retire, reattach_all, undo], id="reattached-before"),
        pytest.param([convert, split, retire, come_late, undo], id="rows-came-late"),
        pytest.param([convert, split, retire, reattach_one, retire, come_late, undo], id="retired-twice"),
        pytest.param([convert, split, retire, undo_in_several_attempts], id="undone-in-several-attempts"),
        pytest.param([convert, undo, convert, split, retire, undo], id="converted-twice"),
        pytest.param([convert, shrink_the_table_of_before, retire, undo], id="table-of-before"),
        pytest.param(
            [convert, shrink_the_table_of_before, retire, reattach_all, retire, undo], id="table-of-before-twice"
        ),
    ],
)
def test_the_plain_table_is_as_it_was(postgres_database: PostgresDatabase, tmp_path: Path, steps: list[Step]) -> None:
    database = postgres_database
    database.script(RICH)
    longest = "event_index_".ljust(63, "x")
    database.script(
        f"CREATE UNIQUE INDEX {longest} ON event (number, code); CREATE INDEX {longest[1:]}y ON event (body)"
    )
    # A month that leaves is the largest: after undo it is the table.
    database.execute(
        "INSERT INTO event (customer_id, code, created_at)"
        " SELECT 1, 'more ' || g, date_trunc('month', now()) - interval '80 days' FROM generate_series(1, 600) AS g"
    )
    database.execute("DELETE FROM note WHERE event_at < now() - interval '28 days'")
    if shrink_the_table_of_before in steps:
        until = f"'{LAST.year}-{LAST.month:02}-01 00:00:00+00'"
        database.execute("DELETE FROM note")
        database.execute(f"DELETE FROM event WHERE created_at >= {until}")
    before, was = dump(database), rows(database, *TABLES)
    with keeping(database, tmp_path, SHORT) as keeper:
        keeper.enable()
        for step in steps:
            step(database, keeper)
    late = come_late in steps
    database.execute("DELETE FROM event WHERE code = 'late'")
    assert late or undo_in_several_attempts in steps or rows(database, *TABLES) == was
    assert len(rows(database)["event"]) == len(was["event"])
    assert sorted(dump(database).splitlines()) == sorted(before.splitlines())
    for timestamp in ("now()", "now() + interval '2 years'", "'2001-01-01'"):
        database.execute(f"INSERT INTO event (code, created_at) VALUES ('new ' || random(), {timestamp})")
    with pytest.raises(psycopg.errors.CheckViolation, match="event_body"):
        database.execute("INSERT INTO event (code, body) VALUES ('empty', '')")
