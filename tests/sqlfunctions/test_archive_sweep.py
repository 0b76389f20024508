"""`wane.fn_<table>_archive_sweep` in PostgreSQL: rows move to the tables of their months as a sweep of the engine moves
them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from archive.cold import STAYING, cold_keeper, events
from archive.test_cold_tier import SHELVED, everything, shelved, sweep
from servers import PostgresDatabase
from wane._sqlfunctions import install, sql_surface

CALL = "SELECT wane.fn_event_archive_sweep({})"


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    return postgres_database


def call(database: PostgresDatabase, arguments: str = "") -> dict[str, Any]:
    [(answer,)] = database.query(CALL.format(arguments))
    assert isinstance(answer, dict)
    return answer


def test_it_moves_what_the_engine_moves(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 120)
    before = database.query("SELECT * FROM event WHERE id <= 120 ORDER BY id")
    reads = database.query("SELECT * FROM event_read ORDER BY id")
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        assert install(cold.keeper).refused == ()
        answer = call(database)
        counts = {"event": 120, "event_read": len(reads)}
        assert (answer["outcome"], answer["rows"], answer["more"]) == ("done", sum(counts.values()), False)
        [rule] = answer["rules"]
        assert (rule["rule"], rule["kind"], rule["counts"]) == ("cold", "shelve", counts)
        assert cold.hot() == STAYING
        in_sql = {name: shelved(database, name) for name in ("event", "event_read")}
        assert everything(in_sql["event"]) == before
        assert everything(in_sql["event_read"]) == reads
        [entry] = cold.keeper.audit(kind="shelve")
        assert (entry.id, entry.counts, entry.rule) == (rule["audit_id"], counts, "cold")
        # The same rows by the engine lie in the same places.
        for name in (*in_sql["event"], *in_sql["event_read"]):
            database.execute(f"ALTER TABLE archive.{name} SET SCHEMA public")
        database.script(
            "".join(f"INSERT INTO event SELECT * FROM {name};" for name in in_sql["event"])
            + "".join(f"INSERT INTO event_read SELECT * FROM {name};" for name in in_sql["event_read"])
            + "".join(f"DROP TABLE {name};" for name in (*in_sql["event"], *in_sql["event_read"]))
        )
        sweep(cold)
        assert {name: shelved(database, name) for name in ("event", "event_read")} == in_sql


def test_only_months_before_the_given_one_and_no_row_before_its_time(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 60)
    database.execute("UPDATE event SET at_ms = at_ms - 40 * 86400000::bigint WHERE id <= 30")
    months = database.query(
        "SELECT DISTINCT to_char(to_timestamp(at_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM') FROM event WHERE id <= 60 ORDER BY 1"
    )
    second = f"{months[1][0]}-17"
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        install(cold.keeper)
        call(database, f"'{second}'")
        moved = shelved(database)
        assert list(moved) == [f"event_{months[0][0].replace('-', '')}"]
        [entry] = cold.keeper.audit(kind="shelve")
        assert entry.inputs["cutoff_month"] == months[1][0]
        assert entry.cutoff == datetime.fromisoformat(f"{months[1][0]}-01").replace(tzinfo=UTC)
        later = date.fromisoformat(f"{datetime.now(UTC).year + 5}-01-01")
        call(database, f"p_cutoff_month => '{later}'")
        assert cold.hot() == STAYING, "a month in the future lets nothing leave before its window"


def test_flags_gate_it_and_it_reports_it(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        install(cold.keeper)
        cold.keeper.disable("event")
        answer = call(database)
        assert (answer["outcome"], answer["rows"]) == ("off", 0)
        assert "retention.event.enabled is off" in answer["message"]
        cold.keeper.enable("event")
        cold.keeper.disable()
        assert "master flag" in call(database)["message"]
        assert (shelved(database), cold.keeper.audit(kind="shelve")) == ({}, [])


def test_it_is_bounded_and_goes_on(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 3)
    database.execute("INSERT INTO event_read SELECT 1000 + n, 1, 'many' FROM generate_series(1, 150) AS n")
    reads = database.query("SELECT * FROM event_read ORDER BY id")
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        install(cold.keeper)
        calls = 0
        while rows := call(database, "p_limit => 20")["rows"]:
            assert rows <= 20
            calls += 1
        assert calls > 5
        assert everything(shelved(database, "event_read")) == reads
        assert cold.hot() == STAYING
        for wrong in ("p_limit => 0", "p_limit => 100001", "p_limit => NULL"):
            with pytest.raises(psycopg.errors.InvalidParameterValue):
                call(database, wrong)


def test_what_is_guarded_held_or_revived_stays(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 40)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        install(cold.keeper)
        cold.keeper.hold("event", {"id": 7}, reason="evidence")
        [(read,)] = database.query("SELECT max(id) FROM event_read WHERE event_id = 8")
        cold.keeper.hold("event_read", {"id": read}, reason="evidence")
        with psycopg.connect(database.url) as other:
            other.execute("UPDATE event SET status = 'open' WHERE id = 9")
            answer = call(database)  # It waits for a while, then leaves what others hold locked.
            other.commit()
        assert answer["rules"][0]["counts"]["event"] == 37
        assert cold.hot() == [7, 8, 9, *STAYING]
        assert not {7, 8, 9, 10_003} & {row[0] for row in everything(shelved(database))}


def test_a_location_that_does_not_fit_is_an_error_before_anything_moves(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        install(cold.keeper)
        call(database)
        first = min(shelved(database))
        database.execute("ALTER TABLE event ADD COLUMN note text DEFAULT 'x'")
        insert = f"INSERT INTO event (id, status, at_ms) SELECT {{}}, status, at_ms FROM archive.{first} LIMIT 1"
        database.execute(insert.format(901))
        call(database)
        assert database.query(f"SELECT note FROM archive.{first} WHERE id = 901") == [("x",)]
        database.execute(f"ALTER TABLE archive.{first} ALTER COLUMN note TYPE varchar(9), ADD COLUMN gone text")
        database.execute(insert.format(900))
        call(database)
        kind = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'note' AND attrelid = to_regclass(?)"
        assert database.query(kind, (f"archive.{first}",)) == [("text",)], "the wider of both"
        assert database.query(f"SELECT note, gone FROM archive.{first} WHERE id = 900") == [("x", None)]
        fixed = f"COMMENT ON TABLE archive.{first} IS 'wane: public.event'; ALTER TABLE event ALTER COLUMN body TYPE integer USING 0"
        for change, reported in (
            (f"COMMENT ON TABLE archive.{first} IS 'wane: other.event'", "does not hold rows"),
            (fixed, "body is integer now"),
        ):
            database.script(change)
            database.execute(f"{insert.format(902)} ON CONFLICT DO NOTHING")
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=reported):
                call(database)
            assert 902 in cold.hot()


def test_its_events_are_written_in_the_same_transaction(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 20)
    database.script("CREATE TABLE reported (kind text, many bigint)")
    contract = SHELVED + (
        '[events.outbox]\ntable = "reported"\ncolumns = {{ kind = "{{name}}", many = "{{rows}}" }}\n'
        '[excused]\ntold = {{ elsewhere = "a test" }}\n'
    )
    with cold_keeper(database, tmp_path, contract) as cold:
        install(cold.keeper)
        with psycopg.connect(database.url) as connection:
            connection.execute(CALL.format(""))
            connection.rollback()
        assert database.query("SELECT count(*) FROM reported") == [(0,)]
        assert len(cold.hot()) == 20 + len(STAYING)
        call(database)
        assert database.query("SELECT kind, many FROM reported") == [("system/event_archived", 20)]


def test_only_the_admin_role_may_call_it_where_roles_are_on(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 3)
    with cold_keeper(database, tmp_path, SHELVED + '[roles]\nenabled = true\nadmin = "no_such_role"\n') as cold:
        install(cold.keeper)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no_such_role"):
            call(database)
        assert len(cold.hot()) == 3 + len(STAYING)


def test_it_is_there_only_where_rows_move_inside_the_database(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 3)
    there = "SELECT to_regprocedure('wane.fn_event_archive_sweep(date, integer)') IS NOT NULL"
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        install(cold.keeper)
        assert database.query(there) == [(True,)]
        assert "fn_event_archive_sweep" in sql_surface(cold.keeper).text
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="call wane"):
            database.query("SELECT wane.prune('event', 'cold', 5)")
    without = SHELVED.replace('then = "archive"\n', "").replace(
        '[archive.event]\nkeep = "forever"\ntier = "database"\n', ""
    )
    with cold_keeper(database, tmp_path, without) as cold:
        install(cold.keeper)
        assert database.query(there) == [(False,)]
