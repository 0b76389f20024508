"""A column that writes its timestamps in several units: each value is judged by its own, and one in none of them never
leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from covering import loaded
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._check.cover import cover
from wane._db import open_store
from wane._db.url import resolve_url
from wane._findings import Finding
from wane._keeper import Keeper
from wane._prune.pace import Pace
from wane._rules.queries import queries_of
from wane._rules.selection import Selection
from wane._sqlfunctions import install
from wane.errors import BindError

TEXT = """
[scheduler]
s = { every = "5m" }
[table.lease]
scheduler = "s"
why = "A test."
[table.lease.rule.expired]
expires = { column = "ends", unit = UNITS }
"""
SMALL = Pace(target_seconds=1.0, duty=1.0, first_batch=2, least_batch=2, most_batch=2)
NOW = datetime.now(UTC).replace(microsecond=0)
PAST, FUTURE = NOW - timedelta(hours=1), NOW + timedelta(hours=1)


def ms(timestamp: datetime) -> int:
    return round(timestamp.timestamp() * 1000)


def iso(timestamp: datetime) -> str:
    return timestamp.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def native(timestamp: datetime) -> str:
    return timestamp.strftime("%Y-%m-%d %H:%M:%S")


def zoned(timestamp: datetime) -> str:
    return f"{native(timestamp)}Z"


VALUES = {"ms": ms, "iso": iso, "native": native, "text": zoned}


@contextmanager
def keeping(database: Database, kind: str, units: str) -> Iterator[Keeper]:
    database.script(f"CREATE TABLE lease (id bigint PRIMARY KEY, ends {kind})")
    with Keeper(loaded(TEXT.replace("UNITS", units)), open_store(resolve_url(database.url))) as keeper:
        keeper.migrate()
        keeper.enable()
        yield keeper


def insert(database: Database, *values: object) -> None:
    for value in values:
        [(number,)] = database.query("SELECT coalesce(max(id), 0) + 1 FROM lease")
        database.execute("INSERT INTO lease VALUES (?, ?)", (number, value))


def left(database: Database) -> list[int]:
    return [number for (number,) in database.query("SELECT id FROM lease ORDER BY id")]


def found(keeper: Keeper, code: str) -> list[Finding]:
    return [one for one in cover(keeper.store, keeper.contract) if one.code == code]


def selected(keeper: Keeper) -> Selection:
    [(table, rule)] = keeper.contract.rules()
    return keeper.pruner.bindings.selection(table, rule)


@pytest.mark.parametrize("units", ['["ms", "iso"]', '["iso", "ms"]'])
@pytest.mark.parametrize("kind", ["text", "integer"])
def test_numbers_and_texts(database: Database, kind: str, units: str) -> None:
    if database.store == "postgres" and kind == "integer":
        with keeping(database, "bigint", units) as keeper:  # It holds no texts, and is judged by its numbers alone.
            insert(database, ms(PAST), ms(FUTURE))
            assert keeper.prune("lease", rule="expired", limit=10).rows == 1
            assert left(database) == [2]
        return
    with keeping(database, kind, units) as keeper:
        values = [ms(PAST), ms(FUTURE), iso(PAST), iso(FUTURE), native(PAST), "soon", None, str(ms(PAST)) + "x"]
        insert(database, *(str(one) if database.store == "postgres" and one is not None else one for one in values))
        [step] = keeper.plan().steps
        assert (step.due is not None and step.due.rows, step.oldest, step.newest) == (2, PAST, PAST)
        assert [one.rows for one in keeper.sweep(approve=["lease.expired"]).rules] == [2]
        assert left(database) == [2, 4, 5, 6, 7, 8]
        assert [finding.severity.value for finding in found(keeper, "never-due")] == ["note"]


def test_two_texts_of_one_day_are_reported_apart_by_their_own_bound(database: Database) -> None:
    """A blank stands before a T: by the bound of the other unit, all texts of the day would be due, or none."""
    noon = (NOW - timedelta(days=10)).replace(hour=12, minute=0, second=0)
    past, later = noon - timedelta(hours=1), noon + timedelta(hours=1)
    aged = TEXT.replace("expires =", 'keep = "1h"\ntime =').replace("UNITS", '["text", "iso"]')
    database.script("CREATE TABLE lease (id bigint PRIMARY KEY, ends text)")
    with Keeper(loaded(aged), open_store(resolve_url(database.url))) as keeper:
        keeper.migrate()
        insert(database, zoned(past), zoned(later), iso(past), iso(later))
        assert keeper.prune("lease", older_than=noon, limit=10).rows == 2
        assert left(database) == [2, 4]


def test_the_units_that_a_column_cannot_hold_do_not_matter(database: Database) -> None:
    kind = "text" if database.store == "sqlite" else "timestamptz"
    with keeping(database, kind, '["native", "iso"]') as keeper:
        values = [native(PAST), native(FUTURE), iso(PAST), iso(FUTURE)]
        insert(database, *(one if database.store == "sqlite" or one.endswith("Z") else f"{one}+00" for one in values))
        assert keeper.prune("lease", rule="expired", limit=10).rows == 2
        assert left(database) == [2, 4]
        assert found(keeper, "mixed-encoding") == found(keeper, "wrong-encoding") == []


def test_a_column_that_can_hold_none_is_refused(database: Database) -> None:
    kind, units = ("blob", '["ms", "iso"]') if database.store == "sqlite" else ("boolean", '["ms", "iso"]')
    with keeping(database, kind, units) as keeper:
        [finding] = found(keeper, "wrong-time-type")
        assert "ends" in finding.message
        with pytest.raises(BindError):
            keeper.prune("lease", rule="expired", limit=10)


def test_batches_go_on_from_unit_to_unit(database: Database) -> None:
    with keeping(database, "text", '["ms", "iso"]') as keeper:
        insert(database, *(str(ms(PAST) - n) for n in range(5)), *(iso(PAST - timedelta(days=n)) for n in range(5)))
        insert(database, str(ms(FUTURE)), iso(FUTURE))
        [swept] = keeper.sweep(pace=SMALL, approve=["lease.expired"]).rules
        assert (swept.rows, swept.batches >= 5) == (10, True)
        assert left(database) == [11, 12]


def test_a_live_row_is_consumed_once_whatever_its_unit(database: Database) -> None:
    with keeping(database, "text", '["ms", "iso"]') as keeper:
        insert(database, str(ms(PAST)), str(ms(FUTURE)), iso(PAST), iso(FUTURE), "soon")
        consumed = [keeper.consume("lease", {"id": number}) is not None for number in range(1, 6)]
        assert consumed == [False, True, False, True, False]


def test_another_encoding_is_still_reported(database: Database) -> None:
    with keeping(database, "text", '["ms", "iso"]') as keeper:
        insert(database, iso(PAST), str(ms(PAST)), zoned(PAST))
        [finding] = found(keeper, "mixed-encoding")
        assert "2 of 3 sampled values as declared (ms or iso), 1 as text" in finding.message
        assert "unit = […]" in finding.fix


def test_an_index_serves_each_unit_unless_numbers_are_texts(database: Database) -> None:
    kind, units = ("integer", '["ms", "iso"]') if database.store == "sqlite" else ("text", '["iso", "text"]')
    with keeping(database, kind, units) as keeper:
        [missing] = found(keeper, "no-index")
        database.executemany(
            "INSERT INTO lease VALUES (?, ?)", [(n, iso(FUTURE + timedelta(minutes=n))) for n in range(100, 3_000)]
        )
        database.execute(missing.fix)
        database.script("ANALYZE")
    with Keeper(loaded(TEXT.replace("UNITS", units)), open_store(resolve_url(database.url))) as keeper:
        assert found(keeper, "no-index") == []
        statement = queries_of(keeper.store).keys_due(selected(keeper), NOW, 5)
        assert missing.fix.split('"')[1] in keeper.store.planner.explain(statement)
    digits = TEXT.replace("UNITS", '["s", "iso"]')
    database.script(
        "DROP TABLE lease; CREATE TABLE lease (id bigint PRIMARY KEY, ends text); CREATE INDEX l ON lease (ends, id)"
    )
    with Keeper(loaded(digits), open_store(resolve_url(database.url))) as keeper:
        [missing] = found(keeper, "no-index")
        assert (missing.fix, "numbers as texts" in missing.message) == ("write all of its timestamps in one way", True)


def test_functions_inside_postgresql_judge_alike(postgres_database: PostgresDatabase) -> None:
    with keeping(postgres_database, "text", '["ms", "iso", "text"]') as keeper:
        values = [str(ms(PAST)), str(ms(FUTURE)), iso(PAST), iso(FUTURE), zoned(PAST), zoned(FUTURE), native(PAST)]
        insert(postgres_database, *values)
        assert install(keeper).refused == ()
        reported = postgres_database.query("SELECT tbl, rows, oldest, newest, due FROM wane.v_queue_retention_pressure")
        [requested] = keeper.pressure()
        assert reported == [("lease", 7, requested.oldest, requested.newest, 3)]
        assert (requested.oldest, requested.newest) == (PAST, FUTURE)
        [(done,)] = postgres_database.query("SELECT wane.prune('lease', 'expired', 10)")
        assert done["rows"] == 3
        assert left(postgres_database) == [2, 4, 6, 7]


def test_pressure_reports_the_oldest_of_all_units(sqlite_database: Database) -> None:
    with keeping(sqlite_database, "integer", '["ms", "iso"]') as keeper:
        insert(sqlite_database, ms(PAST), iso(PAST - timedelta(days=3)), iso(FUTURE), ms(FUTURE + timedelta(days=3)))
        [requested] = keeper.pressure()
        assert (requested.oldest, requested.newest) == (PAST - timedelta(days=3), FUTURE + timedelta(days=3))
        [table] = keeper.health().tables
        assert table.rules[0].oldest_due == PAST - timedelta(days=3)


def test_a_text_that_is_no_time_stays_between_rows_that_leave(sqlite_database: SqliteDatabase) -> None:
    with keeping(sqlite_database, "text", '"iso"') as keeper:
        sqlite_database.execute("CREATE INDEX lease_ends ON lease (ends, id)")
        rows: list[tuple[int, str | None]] = [(n, f"2020-03-{n:02}T00:00:00Z") for n in range(1, 13)]
        rows += [(20, "2020-03-03T00:00:99Z"), (21, "2020-03-06T25:00:00Z"), (22, "2020-03-09"), (23, None)]
        sqlite_database.executemany("INSERT INTO lease VALUES (?, ?)", rows)
        [swept] = keeper.sweep(pace=SMALL).rules
        assert (swept.outcome, swept.rows) == ("done", 12)
        assert [number for (number,) in sqlite_database.query("SELECT id FROM lease ORDER BY id")] == [20, 21, 22, 23]
