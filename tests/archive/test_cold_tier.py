"""The cold tier inside PostgreSQL: rows move to a table of their month in the transaction that deletes them, under
every guard."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, DAY_MS, NOW_MS, STAYING, Cold, cold_keeper, events, insert_events
from races.racing import await_true
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome, SweptRule
from wane._sqlfunctions import install
from wane.errors import BindError, StoreError, WrongArgument
from wane.events import RowsArchived

SHELVED = CONTRACT.replace('[archive]\nurl = "cold"\n', "").replace(
    '[archive.event]\nkeep = "forever"\n', '[archive.event]\nkeep = "forever"\ntier = "database"\n'
)
PACE = Pace(target_seconds=1.0, duty=1.0, first_batch=30, least_batch=30, most_batch=30)


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    return postgres_database


def sweep(cold: Cold, rule: str = "event.cold") -> SweptRule:
    [swept] = cold.keeper.sweep(rule, approve=[rule], pace=PACE).rules
    return swept


def shelved(database: Database, table: str = "event", columns: str = "*") -> dict[str, list[Any]]:
    """Return the rows of every month."""
    found = database.query(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'archive' ORDER BY table_name"
    )
    names = [name for (name,) in found if name.rpartition("_")[0] == table]
    return {name: database.query(f"SELECT {columns} FROM archive.{name} AS t ORDER BY id") for name in names}


def everything(rows: dict[str, list[Any]]) -> list[Any]:
    return sorted(row for some in rows.values() for row in some)


def test_due_rows_move_to_their_months_with_what_leaves_with_them(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 200)
    before = database.query("SELECT * FROM event WHERE id <= 200 ORDER BY id")
    reads = database.query("SELECT * FROM event_read ORDER BY id")
    months: dict[int, str] = dict(
        database.query("SELECT id, to_char(to_timestamp(at_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYYMM') FROM event")
    )
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        swept = sweep(cold)
        assert (swept.outcome, swept.counts) == (Outcome.DONE, {"event": 200, "event_read": len(reads)}), swept.message
        assert cold.hot() == STAYING
        assert everything(shelved(database)) == before
        assert everything(shelved(database, "event_read")) == reads
        for name, rows in shelved(database).items():
            assert {months[row[0]] for row in rows} == {name.rpartition("_")[2]}
        for name, rows in shelved(database, "event_read").items():
            assert {months[row[1]] for row in rows} == {name.rpartition("_")[2]}, "they lie with their rows"
        [entry] = cold.keeper.audit(kind="shelve")
        assert entry.counts == swept.counts
        [reported] = [event for event in cold.events if isinstance(event, RowsArchived)]
        assert reported.evicted == swept.counts
        assert sweep(cold).counts == {"event": 0}


def test_a_sweep_to_the_database_tier_has_one_cutoff(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 90)
    keep = timedelta(days=90)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        store = cold.keeper.store

        def insert_late() -> None:
            """Insert a row that is due by the clock, and was not when the sweep began."""
            at = round((store.now() - keep).timestamp() * 1_000) + 2
            database.execute("INSERT INTO event (id, status, at_ms) VALUES (1000, 'done', ?)", (at,))
            await_true(lambda: (store.now() - keep).timestamp() * 1_000 > at + 1, "the row is due")

        cold.at["batch"] = insert_late
        swept = sweep(cold)
        assert (swept.outcome, swept.counts["event"]) == (Outcome.DONE, 90)
        assert swept.batches > 2
        assert cold.hot() == [1_000, *STAYING]
        [entry] = cold.keeper.audit(kind="shelve")
        [(late,)] = database.query("SELECT at_ms FROM event WHERE id = 1000")
        assert entry.cutoff is not None
        assert entry.cutoff.timestamp() * 1_000 <= late
        assert sweep(cold).counts["event"] == 1


def test_every_batch_that_moves_rows_writes_its_event(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 60)
    database.script("CREATE TABLE reported (kind text, many bigint, body jsonb)")
    contract = SHELVED + (
        '[events.outbox]\ntable = "reported"\n'
        'columns = {{ kind = "{{name}}", many = "{{rows}}", body = "{{payload}}" }}\n'
        '[excused]\ntold = {{ elsewhere = "a test" }}\n'
    )
    with cold_keeper(database, tmp_path, contract) as cold:
        swept = sweep(cold)
        written = database.query("SELECT kind, sum(many), count(*) FROM reported GROUP BY kind")
        [(kind, rows, many)] = written
        assert (kind, rows) == ("system/event_archived", swept.counts["event"])
        assert many in (swept.batches, swept.batches - 1), "the last batch may find nothing"
        [(audits,)] = database.query("SELECT array_agg(DISTINCT (body ->> 'audit')::bigint) FROM reported")
        [entry] = cold.keeper.audit(kind="shelve")
        assert audits == [entry.id]
        database.script("DROP TABLE reported")
        insert_events(database, range(1_000, 1_010))
        failed = sweep(cold)
        assert (failed.outcome, failed.counts["event"]) == (Outcome.FAILED, 0)
        assert "cannot be written to reported" in failed.message


def test_what_is_guarded_or_held_stays_and_arrives_nowhere(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 40)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        cold.keeper.hold("event", {"id": 7}, reason="evidence")
        [(read,)] = database.query("SELECT max(id) FROM event_read WHERE event_id = 8")
        cold.keeper.hold("event_read", {"id": read}, reason="evidence")
        assert sweep(cold).counts["event"] == 38
        assert cold.hot() == [7, 8, *STAYING]
        assert not {7, 8, 10_003} & {row[0] for row in everything(shelved(database))}


LIVE_READS = """
[table.event_read]
scheduler = "night"
why   = "a test"
state = "who"
live  = ["busy"]
time  = {{ column = "id", unit = "ms" }}
rule.gone = {{ when = ["done"], keep = "90d" }}
"""


def test_a_live_follower_keeps_its_row_and_arrives_nowhere(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 40)
    database.execute("INSERT INTO event_read VALUES (90001, 8, 'busy')")
    with cold_keeper(database, tmp_path, SHELVED + LIVE_READS) as cold:
        assert sweep(cold).counts["event"] == 39
        assert cold.hot() == [8, *STAYING]
        assert 90_001 in cold.hot("event_read")
        assert not {8} & {row[0] for row in everything(shelved(database))}


def test_columns_that_change_do_not_stop_it_and_a_type_that_no_column_holds_is_an_error_before_anything_moves(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        sweep(cold)
    database.execute("ALTER TABLE event ADD COLUMN note text DEFAULT 'x', ADD COLUMN level integer DEFAULT 7")
    repeated = "INSERT INTO event SELECT id + 100, status, at_ms, body, amount FROM archive.{0} WHERE id < {1}"
    first = min(shelved(database))
    database.execute(repeated.format(first, 5))
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        assert sweep(cold).outcome is Outcome.DONE
        notes = dict(everything(shelved(database, columns="id, to_jsonb(t) ->> 'note'")))
        assert {notes[n] for n in notes if n > 100} == {"x"}
        assert {notes[n] for n in notes if n <= 100} == {None}
    for change in (
        "DROP COLUMN amount",
        "ALTER COLUMN body TYPE varchar(99)",
        "ALTER COLUMN level TYPE bigint",
        "RENAME COLUMN note TO words",
    ):
        database.execute(f"ALTER TABLE event {change}")
    more = f"INSERT INTO event (id, status, at_ms, level) SELECT {{0}}, status, at_ms, 5000000000 FROM archive.{first} LIMIT 1"
    database.execute(more.format(900))
    before = dict(everything(shelved(database, columns="id, t.*::text")))
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        assert (sweep(cold).outcome, 900 in cold.hot()) == (Outcome.DONE, False)
    kinds: dict[str, str] = dict(
        database.query(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
            f" AND attrelid = 'archive.{first}'::regclass"
        )
    )
    assert (kinds["amount"], kinds["body"], kinds["level"], kinds["note"], kinds["words"]) == (
        *("numeric(12,2)", "text", "bigint", "text", "text"),
    )
    after = everything(shelved(database, columns="id, amount, level, words"))
    assert [row for row in after if row[0] == 900] == [(900, None, 5_000_000_000, "x")]
    assert {row[0] for row in after} == {*before, 900}
    assert all(row[1] is not None for row in after if row[0] < 100), "earlier rows have what was dropped"
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        [listed] = cold.keeper.archive.tables()
        month = listed.newest_month
        found = {(one.column, one.was, one.now) for one in listed.changes if one.month == month}
        assert {("amount", "numeric(12,2)", None), ("note", "text", None)} <= found
        assert "body" not in {one.column for one in listed.changes}, "the archive has it as it was"
    database.execute("ALTER TABLE event ALTER COLUMN body TYPE integer USING 0")
    database.execute(more.format(901))
    rows = everything(shelved(database, columns="id"))
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        swept = sweep(cold)
        assert swept.outcome is Outcome.FAILED
        assert "event.body is integer now, and archive" in swept.message
        assert (901 in cold.hot(), everything(shelved(database, columns="id"))) == (True, rows)


def test_a_table_of_another_user_is_not_written_to(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        sweep(cold)
        for name in shelved(database):
            database.execute(f"COMMENT ON TABLE archive.{name} IS 'wane: other.event'")
        database.execute(
            "INSERT INTO event SELECT id + 100, status, at_ms, body FROM archive." + min(shelved(database))
        )
        swept = sweep(cold)
        assert "does not hold rows of" in swept.message
        assert swept.outcome is Outcome.FAILED


def test_a_row_with_more_followers_than_fit_into_a_batch_loses_none_of_them(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 3)
    database.execute("INSERT INTO event_read SELECT 1000 + n, 1, 'many' FROM generate_series(1, 150) AS n")
    reads = database.query("SELECT * FROM event_read ORDER BY id")
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        swept = sweep(cold)
        assert (swept.outcome, swept.counts["event_read"]) == (Outcome.DONE, len(reads)), swept.message
        assert everything(shelved(database, "event_read")) == reads


def test_a_prune_by_the_rule_moves_rows_too_and_nothing_deletes_them_past_it(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 12)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        done = cold.keeper.prune("event", rule="cold", limit=9)
        assert done.kind == "shelve"
        assert len(everything(shelved(database))) == done.counts["event"] > 0
        with pytest.raises(WrongArgument, match="moves rows to the archive"):
            cold.keeper.prune("event", states=["done"], older_than=NOW_MS / 1000 - 100 * DAY_MS / 1000, limit=9)
        install(cold.keeper)
        with pytest.raises(Exception, match="moves rows to the archive"):
            database.query("SELECT wane.prune('event', 'cold', 5)")
        plan = cold.keeper.plan("event.cold")
        assert plan.steps[0].action == "shelve"
        moved = 'INSERT INTO "archive"."event_yyyymm"'
        assert any(moved in one.text for one in plan.steps[0].statements)
        assert sum(rule.rows for rule in cold.keeper.apply(plan).rules) > 0
        assert len(everything(shelved(database))) == 12


def test_a_failure_in_the_middle_leaves_everything_where_it_was(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        database.execute(
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF old.id = 9 THEN RAISE 'no'; END IF; RETURN old; END $$"
        )
        database.execute("CREATE TRIGGER fails BEFORE DELETE ON event FOR EACH ROW EXECUTE FUNCTION fails()")
        with pytest.raises(StoreError):
            cold.keeper.prune("event", rule="cold", limit=100)
        assert len(cold.hot()) == 23
        assert everything(shelved(database)) == []
        assert everything(shelved(database, "event_read")) == []


def test_the_reader_may_read_what_arrives(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 5)
    reader = f"reader_{database.url.rpartition('/')[2].partition('?')[0]}"[-60:]
    database.execute(f'CREATE ROLE "{reader}"')
    try:
        database.execute("CREATE SCHEMA archive")
        database.execute(f'GRANT USAGE ON SCHEMA archive TO "{reader}"')
        with cold_keeper(database, tmp_path, SHELVED) as cold:
            sweep(cold)
        for name in (*shelved(database), *shelved(database, "event_read")):
            for right, allowed in (("SELECT", True), ("INSERT", False), ("DELETE", False)):
                query = f"SELECT has_table_privilege('{reader}', 'archive.{name}', '{right}')"
                assert database.query(query) == [(allowed,)]
    finally:
        database.execute(f'DROP OWNED BY "{reader}"')
        database.execute(f'DROP ROLE "{reader}"')


def test_sqlite_has_no_schemas_to_move_rows_to(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path, SHELVED) as cold:
        swept = sweep(cold)
        assert swept.outcome is Outcome.FAILED
        assert "SQLite has no schemas" in swept.message
        assert len(cold.hot()) == 8
        with pytest.raises(BindError, match="SQLite has no schemas"):
            cold.keeper.prune("event", rule="cold", limit=9)


def test_names_too_long_for_a_month_are_refused(database: PostgresDatabase, tmp_path: Path) -> None:
    name = "e" * 60
    database.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, status text, at_ms bigint NOT NULL)")
    text = SHELVED.replace("table.event", f"table.{name}").replace("archive.event", f"archive.{name}")
    text = text.replace('with = ["event_read.event_id"]\n', "")
    text = text.replace('unless = [{{ referenced_by = "event_guard.event_id" }}]\n', "")
    with cold_keeper(database, tmp_path, text) as cold:
        assert "too long a name" in sweep(cold, f"{name}.cold").message
