"""Which rows are due, on every store: one thing is moved at a time, and no two stamps of a row are equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from conformance.due_rows import due, ids, keys, one_rule, opened
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.conditions import equal_to
from wane._contract.model import (
    Age,
    Cap,
    Contract,
    Expiry,
    Follower,
    Guard,
    Orphans,
    Reference,
    ReferencedBy,
    Rule,
    State,
    Table,
    Time,
    Unit,
    WhileNotNull,
    WhileNull,
)
from wane._contract.names import TableName
from wane._rules.queries import queries_of
from wane._rules.reads import keys_due, read_due
from wane._rules.selection import bind_contract
from wane.errors import StoreError

WEEK = timedelta(days=7)
NOW = datetime(2024, 6, 8, 12, tzinfo=UTC)
CUTOFF_S = 1_717_243_200  # 2024-06-01 12:00:00 in UTC
MS = Time("happened", Unit.MILLISECONDS)
ISO = Time("happened", Unit.ISO)


def column(database: Database, sqlite: str, postgres: str) -> str:
    return {"sqlite": sqlite, "postgres": postgres}[database.store]


def items(database: Database, type_: str, values: Sequence[object], name: str = "item") -> None:
    """Create a table whose rows are numbered from 1 and hold these times, in this order."""
    database.execute(f"CREATE TABLE {name} (id integer NOT NULL PRIMARY KEY, happened {type_})")
    database.executemany(f"INSERT INTO {name} VALUES (?, ?)", list(enumerate(values, 1)))


def jobs(database: Database, rows: Sequence[tuple[Any, ...]], state: str = "text") -> None:
    """Insert rows of (id, state, days before the cutoff); each has other, misleading stamps."""
    database.execute(
        f"CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state {state}, happened bigint, created bigint, expires bigint,"
        " tenant text, parent integer, locked text)"
    )
    stamps = [
        (key, value, at(days), at(days + 1_000 + key), at(-1_000 - key), tenant)
        for key, value, days, tenant in ((*row, None)[:4] for row in rows)
    ]
    database.executemany(
        "INSERT INTO job (id, state, happened, created, expires, tenant) VALUES (?, ?, ?, ?, ?, ?)", stamps
    )


def at(days_before_cutoff: float) -> int:
    return CUTOFF_S * 1000 - int(days_before_cutoff * 86_400_000)


# --- Encodings and their edges --------------------------------------------------------------------------------------


DAY = Time("happened", Unit.DATE)


@dataclass(frozen=True)
class Edge:
    """A column, and three values: one unit before the cutoff, at it, one unit after it."""

    sqlite: str
    postgres: str
    time: Time
    values: tuple[object, object, object]


def around(number: int) -> tuple[int, int, int]:
    return number - 1, number, number + 1


EDGES = {
    "s integer": Edge("INTEGER", "integer", Time("happened", Unit.SECONDS), around(CUTOFF_S)),
    "s bigint": Edge("BIGINT", "bigint", Time("happened", Unit.SECONDS), around(CUTOFF_S)),
    "s double": Edge(
        "DOUBLE",
        "double precision",
        Time("happened", Unit.SECONDS),
        (CUTOFF_S - 0.000001, float(CUTOFF_S), CUTOFF_S + 0.000001),
    ),
    "s numeric": Edge("NUMERIC", "numeric(18, 3)", Time("happened", Unit.SECONDS), around(CUTOFF_S)),
    "ms bigint": Edge("INTEGER", "bigint", MS, around(CUTOFF_S * 1000)),
    "ms double": Edge("REAL", "double precision", MS, around(CUTOFF_S * 1000)),
    "us bigint": Edge("INTEGER", "bigint", Time("happened", Unit.MICROSECONDS), around(CUTOFF_S * 1_000_000)),
    "us numeric": Edge("NUMERIC", "numeric", Time("happened", Unit.MICROSECONDS), around(CUTOFF_S * 1_000_000)),
    "iso Z": Edge(
        "TEXT",
        "text",
        ISO,
        ("2024-06-01T11:59:59.999999999Z", "2024-06-01T12:00:00Z", "2024-06-01T12:00:00.000000001Z"),
    ),
    "iso +00:00": Edge(
        "TEXT",
        "varchar(40)",
        ISO,
        ("2024-06-01T11:59:59.9+00:00", "2024-06-01T12:00:00.000+00:00", "2024-06-01T12:00:01+00:00"),
    ),
    "iso wall": Edge(
        "TEXT",
        "text",
        Time("happened", Unit.ISO, "Europe/Vienna"),
        ("2024-06-01T13:59:59.5", "2024-06-01T14:00:00.0", "2024-06-01T14:00:00.1"),
    ),
    "text": Edge(
        "TEXT",
        "text",
        Time("happened", Unit.TEXT),
        ("2024-06-01 11:59:59Z", "2024-06-01 12:00:00+00:00", "2024-06-01 12:00:00.001Z"),
    ),
    "text wall": Edge(
        "TEXT",
        'text COLLATE "C"',
        Time("happened", Unit.TEXT, "America/St_Johns"),
        ("2024-06-01 09:29:59.999999", "2024-06-01 09:30:00", "2024-06-01 09:30:00.000001"),
    ),
    "native wall": Edge(
        "TEXT",
        "timestamp",
        Time("happened", zone="UTC"),
        ("2024-06-01 11:59:59", "2024-06-01 12:00:00", "2024-06-01 12:00:01"),
    ),
}
NATIVE = Edge(
    "TIMESTAMP", "timestamptz", Time("happened"), ("2024-06-01 11:59:59", "2024-06-01 12:00:00", "2024-06-01 12:00:01")
)


@pytest.mark.parametrize("edge", [*EDGES.values(), NATIVE], ids=[*EDGES, "native"])
def test_age_takes_what_is_strictly_before_the_cutoff_and_expiry_what_is_at_it(database: Database, edge: Edge) -> None:
    items(database, column(database, edge.sqlite, edge.postgres), edge.values)
    assert ids(database, one_rule("item", Age(edge.time, WEEK)), NOW) == [1]
    assert ids(database, one_rule("item", Expiry(edge.time)), NOW - WEEK) == [1, 2]


def test_a_native_timestamp_of_another_zone_is_compared_by_that_zones_clock(
    postgres_database: PostgresDatabase,
) -> None:
    items(postgres_database, "timestamp", ["2024-06-01 13:59:59.999999", "2024-06-01 14:00:00"])
    assert ids(postgres_database, one_rule("item", Age(Time("happened", zone="Europe/Vienna"), WEEK)), NOW) == [1]


def test_the_epoch_of_another_zone_is_a_placeholder_too(postgres_database: PostgresDatabase) -> None:
    items(postgres_database, "timestamp", ["1970-01-01 00:00:00", "1970-01-01 09:00:00", "1970-01-01 09:00:01"])
    assert ids(postgres_database, one_rule("item", Age(Time("happened", zone="Asia/Tokyo"), WEEK)), NOW) == [3]
    assert ids(postgres_database, one_rule("item", Age(Time("happened", zone="America/New_York"), WEEK)), NOW) == [2, 3]


def test_the_zone_of_the_session_does_not_matter(postgres_database: PostgresDatabase) -> None:
    name = postgres_database.query("SELECT current_database()")[0][0]
    postgres_database.execute(f"ALTER DATABASE {name} SET timezone = 'Pacific/Kiritimati'")
    items(postgres_database, "timestamptz", ["2024-06-01 11:59:59Z", "2024-06-01 12:00:00Z"])
    items(postgres_database, "timestamp", ["2024-06-01 11:59:59", "2024-06-01 12:00:00"], "naive")
    assert ids(postgres_database, one_rule("item", Age(Time("happened"), WEEK)), NOW) == [1]
    assert ids(postgres_database, one_rule("naive", Age(Time("happened", zone="UTC"), WEEK)), NOW) == [1]


@pytest.mark.parametrize("microseconds", [1, 500_000, 999_999])
def test_a_cutoff_inside_a_second_takes_that_second_whole_and_no_later_one(
    database: Database, microseconds: int
) -> None:
    items(database, "bigint", [CUTOFF_S - 1, CUTOFF_S, CUTOFF_S + 1])
    seconds = Time("happened", Unit.SECONDS)
    now = NOW + timedelta(microseconds=microseconds)
    assert ids(database, one_rule("item", Age(seconds, WEEK)), now) == [1, 2]
    assert ids(database, one_rule("item", Expiry(seconds)), now - WEEK) == [1, 2]


def test_a_cutoff_inside_a_millisecond_takes_that_millisecond_and_no_later_one(database: Database) -> None:
    items(database, "bigint", [CUTOFF_S * 1000, CUTOFF_S * 1000 + 1])
    assert ids(database, one_rule("item", Age(MS, WEEK)), NOW + timedelta(microseconds=999)) == [1]


def test_texts_with_different_lengths_of_fraction_are_compared_as_timestamps(database: Database) -> None:
    # As plain text, "…00.5Z" and "…00+00:00" stand before "…00Z", and "…00.25" before "…00.3".
    values = [
        "2024-06-01T12:00:00Z",
        "2024-06-01T12:00:00+00:00",
        "2024-06-01T12:00:00.2Z",
        "2024-06-01T12:00:00.25Z",
        "2024-06-01T12:00:00.250000001Z",
        "2024-06-01T12:00:00.250+00:00",
        "2024-06-01T12:00:00.3Z",
        "2024-06-01T12:00:01Z",
    ]
    items(database, "text", values)
    age = one_rule("item", Age(ISO, WEEK))
    assert set(ids(database, age, NOW)) == set()
    assert set(ids(database, age, NOW + timedelta(milliseconds=250))) == {1, 2, 3}
    assert set(ids(database, one_rule("item", Expiry(ISO)), NOW - WEEK + timedelta(milliseconds=250))) == {
        1,
        2,
        3,
        4,
        6,
    }


def test_mixed_fractions_do_not_let_a_cap_take_the_newest(database: Database) -> None:
    items(database, "text", ["2024-06-01T12:00:00Z", "2024-06-01T12:00:00.9Z", "2024-06-01T12:00:00.10+00:00"])
    assert ids(database, one_rule("item", Cap(ISO, 1)), NOW) == [3, 1]  # both, as an index lists them
    assert ids(database, one_rule("item", Cap(ISO, 2)), NOW) == [1]


# --- What is no timestamp
# ----------------------------------------------------------------------------------------------

NOT_TIMESTAMPS = {
    "s": ("bigint", Time("happened", Unit.SECONDS), [None, 0, -1, CUTOFF_S + 1_000_000_000]),
    "ms": ("bigint", MS, [None, 0, 1, CUTOFF_S, 99_999_999_999, at(-365)]),
    "us": ("bigint", Time("happened", Unit.MICROSECONDS), [None, 0, CUTOFF_S, CUTOFF_S * 1000, 99_999_999_999_999]),
    "iso": (
        "text",
        ISO,
        [
            None,
            "",
            "yesterday",
            "2023-01-01",
            "2023-01-01T00:00:00",
            "2023-01-01 00:00:00Z",
            "2023-01-01T00:00:00+02:00",
            "2023-01-01T00:00:00+00:00Z",
            "2023-01-01T00:00:00.Z5Z",
            "2023-01-01T00:00:00.1234567890Z",
            "2023-01-01T00:00:00Z\n",
            " 2023-01-01T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2023-02-30T00:00:00Z",
            "2023-04-31T00:00:00Z",
            "2023-01-01T24:00:00Z",
            "2023-01-01T23:59:60Z",
            "2023-02-30T00:00:00.000001+00:00",
            "2023-01-01T24:00:00.000001+00:00",
            "2023-01-01T00:60:00.000001+00:00",
            "2023-01-01T00:00:00.00001x+00:00",
            "2023-01-01 00:00:00.000001+00:00",
            "02023-01-01T00:00:00.00001+00:00",
            "0001-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
        ],
    ),
    "date": (
        "text",
        DAY,
        [
            None,
            "",
            "yesterday",
            "2023-1-1",
            "20230101",
            "2023-01-01 ",
            "2023-01-01\n",
            "2023-01-01T00:00:00Z",
            "2023-01-01 00:00:00",
            "2023-02-29",
            "2023-13-01",
            "2023-01-00",
            "0001-01-01",
            "1969-12-31",
            "1970-01-01",
            "9999-12-31",
        ],
    ),
    "wall": (
        "text",
        Time("happened", Unit.TEXT, "Asia/Tokyo"),
        [
            "2023-01-01 00:00:00Z",
            "2023-02-29 00:00:00.000001",
            "2023-01-01 00:00:0.0000001",
            "2023-01-01T00:00:00",
            "1970-01-01 00:00:00",
            "1970-01-01 09:00:00",
        ],
    ),
}


@pytest.mark.parametrize(("type_", "time", "values"), NOT_TIMESTAMPS.values(), ids=NOT_TIMESTAMPS)
def test_what_is_no_timestamp_of_the_unit_is_never_due(
    database: Database, type_: str, time: Time, values: list[object]
) -> None:
    items(database, type_, values)
    assert ids(database, one_rule("item", Age(time, WEEK)), NOW) == []
    assert ids(database, one_rule("item", Expiry(time)), NOW) == []


def test_a_text_with_microseconds_is_a_timestamp_also_in_the_last_one_of_a_day(database: Database) -> None:
    endings = ("00:00:00.000000", "12:00:00.000001", "23:59:59.999499", "23:59:59.999999")
    items(database, "text", [f"2023-12-31T{ending}+00:00" for ending in endings])
    items(database, "text", [f"2023-12-31 {ending}" for ending in endings], "wall")
    assert ids(database, one_rule("item", Age(ISO, WEEK)), NOW) == [1, 2, 3, 4]
    wall = Time("happened", Unit.TEXT, "Asia/Tokyo")
    assert ids(database, one_rule("wall", Age(wall, WEEK)), NOW) == [1, 2, 3, 4]


def test_a_text_with_a_zero_byte_is_no_timestamp(sqlite_database: SqliteDatabase) -> None:
    begun = "2023-01-01T00:00:00.000001+00:00"
    items(sqlite_database, "text", [begun, f"{begun}\0", f"{begun[:20]}\0{begun[21:]}", f"{begun}\0+00:00"])
    assert ids(sqlite_database, one_rule("item", Age(ISO, WEEK)), NOW) == [1]


def test_a_leap_day_is_a_timestamp(database: Database) -> None:
    items(database, "text", ["2024-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "1972-02-29T00:00:00Z"])
    assert ids(database, one_rule("item", Age(ISO, WEEK)), NOW) == [3, 2, 1]


def test_infinite_and_ancient_timestamps_are_never_due(postgres_database: PostgresDatabase) -> None:
    values = [None, "infinity", "-infinity", "0001-01-01 00:00:00", "4713-01-01 00:00:00 BC", "294000-01-01 00:00:00"]
    values += ["1970-01-01 00:00:00", "2024-01-01 00:00:00"]
    items(postgres_database, "timestamptz", values)
    items(postgres_database, "timestamp", values, "naive")
    for name, time in (("item", Time("happened")), ("naive", Time("happened", zone="UTC"))):
        assert ids(postgres_database, one_rule(name, Age(time, WEEK)), NOW) == [8]
        assert ids(postgres_database, one_rule(name, Expiry(time)), NOW) == [8]


def test_infinite_and_ancient_days_are_never_due(postgres_database: PostgresDatabase) -> None:
    values = [None, "infinity", "-infinity", "0001-01-01", "4713-01-01 BC", "294000-01-01", "1970-01-01", "1970-01-02"]
    items(postgres_database, "date", values)
    assert ids(postgres_database, one_rule("item", Age(DAY, WEEK)), NOW) == [8]
    assert ids(postgres_database, one_rule("item", Expiry(DAY)), NOW) == [8]
    assert ids(postgres_database, one_rule("item", Cap(DAY, 1)), NOW) == []


@pytest.mark.parametrize("postgres", ["date", "text", "varchar(10)"])
def test_a_day_counts_from_its_end(database: Database, postgres: str) -> None:
    items(database, column(database, "DATE", postgres), ["2024-05-30", "2024-05-31", "2024-06-01", "2024-02-29"])
    midnight = datetime(2024, 6, 8, tzinfo=UTC)
    for late, due_by_age, expired in ((-1, [4, 1], [4, 1]), (0, [4, 1], [4, 1, 2]), (1, [4, 1, 2], [4, 1, 2])):
        now = midnight + timedelta(microseconds=late)
        assert ids(database, one_rule("item", Age(DAY, WEEK)), now) == due_by_age
        assert ids(database, one_rule("item", Expiry(DAY)), now - WEEK) == expired
    assert due(database, one_rule("item", Expiry(DAY)), midnight - WEEK).newest == midnight - WEEK
    assert ids(database, one_rule("item", Cap(DAY, 1)), NOW) == [4, 1, 2]


def test_a_day_of_a_zone_ends_when_its_clocks_show_midnight(database: Database) -> None:
    items(database, column(database, "TEXT", "date"), ["2024-05-30", "2024-05-31"])
    vienna = Expiry(Time("happened", Unit.DATE, "Europe/Vienna"))
    midnight = datetime(2024, 5, 31, 22, tzinfo=UTC)
    assert ids(database, one_rule("item", vienna), midnight) == [1, 2]
    assert ids(database, one_rule("item", vienna), midnight - timedelta(microseconds=1)) == [1]


def test_days_and_timestamps_may_share_a_column(database: Database) -> None:
    items(database, "text", ["2024-05-31", "2024-06-01", "2024-06-01T11:59:59Z", "2024-06-01T12:00:00Z"])
    mixed = Time("happened", Unit.ISO, also=(Unit.DATE,))
    assert ids(database, one_rule("item", Age(mixed, WEEK)), NOW) == [1, 3]


def test_not_a_number_and_infinity_are_never_due(postgres_database: PostgresDatabase) -> None:
    for name, type_ in (("item", "double precision"), ("exact", "numeric")):
        items(postgres_database, type_, [float("nan"), float("inf"), float("-inf"), CUTOFF_S - 0.5], name)
        assert ids(postgres_database, one_rule(name, Age(Time("happened", Unit.SECONDS), WEEK)), NOW) == [4]
        assert ids(postgres_database, one_rule(name, Cap(Time("happened", Unit.SECONDS), 1)), NOW) == []


def test_values_of_other_types_than_declared_are_never_due(sqlite_database: SqliteDatabase) -> None:
    early = "2023-01-01T00:00:00Z"
    items(sqlite_database, "INTEGER", [early, b"1", "soon", early.encode(), CUTOFF_S - 1])
    assert ids(sqlite_database, one_rule("item", Age(Time("happened", Unit.SECONDS), WEEK)), NOW) == [5]
    items(sqlite_database, "", [1, 1.5, b"2023-01-01T00:00:00Z", early, early + "\0", early + "\0Z"], "untyped")
    assert ids(sqlite_database, one_rule("untyped", Age(ISO, WEEK)), NOW) == [4]
    items(sqlite_database, "", [20230101, b"2023-01-01", "2023-01-01\0", "2023-01-01"], "days")
    assert ids(sqlite_database, one_rule("days", Age(DAY, WEEK)), NOW) == [4]
    items(sqlite_database, "TEXT COLLATE NOCASE", ["2023-01-01t00:00:00z", "2023-01-01T00:00:00z", early], "loose")
    assert ids(sqlite_database, one_rule("loose", Age(ISO, WEEK)), NOW) == [3]


def test_a_time_that_is_no_timestamp_has_no_rank_in_a_cap(database: Database) -> None:
    items(database, "bigint", [None, 0, CUTOFF_S, at(3), at(2), CUTOFF_S * 1_000_000])
    assert ids(database, one_rule("item", Cap(MS, 1)), NOW) == [4]
    assert ids(database, one_rule("item", Cap(MS, 2)), NOW) == []


def test_a_time_that_never_comes_does_not_count_for_a_cap(postgres_database: PostgresDatabase) -> None:
    items(postgres_database, "timestamptz", ["infinity", "infinity", "20000-01-01", "2024-01-02", "2024-01-01"])
    assert ids(postgres_database, one_rule("item", Cap(Time("happened"), 1)), NOW) == [5]


# --- Clocks that go back and forward --------------------------------------------------------------------------------

VIENNA_TEXT = Time("happened", Unit.TEXT, "Europe/Vienna")


def wall_table(database: Database, values: list[str]) -> Table:
    """Return wall-clock times of Vienna: text on SQLite, where native times are in UTC; native on PostgreSQL."""
    native = database.store == "postgres"
    items(database, "timestamp" if native else "TEXT", values)
    return one_rule("item", Expiry(Time("happened", zone="Europe/Vienna") if native else VIENNA_TEXT))


@pytest.mark.parametrize(
    ("now", "expired"),
    [
        (datetime(2024, 10, 26, 23, 59, 59), []),  # 1:59:59 in summer
        (datetime(2024, 10, 26, 23, 59, 59, 999_999), [1]),
        (datetime(2024, 10, 27, 0, 30), [1]),  # 2:30, for the first time
        (datetime(2024, 10, 27, 0, 59, 59, 999_999), [1]),
        (datetime(2024, 10, 27, 1), [1, 2]),  # 2:00, for the second time
        (datetime(2024, 10, 27, 1, 30), [1, 2, 3]),
        (datetime(2024, 10, 27, 2), [1, 2, 3, 4]),
    ],
)
def test_an_hour_that_happens_twice_counts_as_the_later_one(
    database: Database, now: datetime, expired: list[int]
) -> None:
    table = wall_table(
        database,
        ["2024-10-27 01:59:59.999999", "2024-10-27 02:00:00", "2024-10-27 02:30:00", "2024-10-27 03:00:00"],
    )
    assert ids(database, table, now.replace(tzinfo=UTC)) == expired


@pytest.mark.parametrize(
    ("now", "expired"),
    [
        (datetime(2024, 3, 31, 0, 59, 59), [1]),  # 1:59:59 in winter
        (datetime(2024, 3, 31, 1), [1, 2]),  # 3:00 in summer; 2:00 is what it would be in winter
        (datetime(2024, 3, 31, 1, 30), [1, 2, 3]),
        (datetime(2024, 3, 31, 1, 59), [1, 2, 3]),
        (datetime(2024, 3, 31, 2), [1, 2, 3, 4, 5]),
    ],
)
def test_an_hour_that_never_happens_is_not_taken_early(database: Database, now: datetime, expired: list[int]) -> None:
    table = wall_table(
        database,
        [
            "2024-03-31 01:59:59",
            "2024-03-31 02:00:00",
            "2024-03-31 02:30:00",
            "2024-03-31 03:00:00",
            "2024-03-31 04:00:00",
        ],
    )
    assert ids(database, table, now.replace(tzinfo=UTC)) == expired


# --- States ---------------------------------------------------------------------------------------------------------


def test_only_the_states_of_the_rule_are_due(database: Database) -> None:
    jobs(
        database,
        [(1, "done", 1), (2, "failed", 2), (3, "running", 3), (4, None, 4), (5, "nobody knows", 5), (6, "", 6)],
    )
    assert ids(database, one_rule("job", Age(MS, WEEK), when=["done"]), NOW) == [1]
    assert ids(database, one_rule("job", Age(MS, WEEK), when=["done", "failed"]), NOW) == [2, 1]
    assert ids(database, one_rule("job", Age(MS, WEEK)), NOW) == [6, 5, 4, 3, 2, 1]


def test_states_differ_by_case_and_spaces(database: Database) -> None:
    type_ = column(database, "TEXT COLLATE NOCASE", "text")
    jobs(database, [(1, "done", 1), (2, "DONE", 2), (3, "Done", 3), (4, "done ", 4)], type_)
    assert ids(database, one_rule("job", Age(MS, WEEK), when=["done"]), NOW) == [1]
    assert ids(database, one_rule("job", Age(MS, WEEK), when=["DONE", "done "]), NOW) == [4, 2]


def test_whole_numbers_are_states(database: Database) -> None:
    jobs(database, [(1, 1, 1), (2, 2, 2), (3, 0, 3), (4, None, 4), (5, -1, 5)], "smallint")
    assert ids(database, one_rule("job", Age(MS, WEEK), when=[1]), NOW) == [1]
    assert ids(database, one_rule("job", Age(MS, WEEK), when=[-1, 2]), NOW) == [5, 2]


def test_booleans_are_states(database: Database) -> None:
    jobs(database, [(1, True, 1), (2, False, 2), (3, None, 3)], "boolean")
    assert ids(database, one_rule("job", Age(MS, WEEK), when=[True]), NOW) == [1]
    assert ids(database, one_rule("job", Age(MS, WEEK), when=[False]), NOW) == [2]
    assert ids(database, one_rule("job", Age(MS, WEEK), when=[False, True]), NOW) == [2, 1]


def test_enum_labels_are_states(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("""CREATE TYPE "100% State" AS ENUM ('done', 'it''s 5%', 'running')""")
    jobs(postgres_database, [(1, "done", 1), (2, "it's 5%", 2), (3, "running", 3), (4, None, 4)], '"100% State"')
    assert ids(postgres_database, one_rule("job", Age(MS, WEEK), when=["it's 5%"]), NOW) == [2]
    assert ids(postgres_database, one_rule("job", Age(MS, WEEK), when=["done", "it's 5%"]), NOW) == [2, 1]


def test_padded_and_limited_texts_are_states(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, [(1, "done", 1), (2, "failed", 2)], "character(10)")
    assert ids(postgres_database, one_rule("job", Age(MS, WEEK), when=["done"]), NOW) == [1]
    assert ids(postgres_database, one_rule("job", Age(MS, WEEK), when=["failed", "done"]), NOW) == [2, 1]


def test_a_state_of_another_type_than_declared_matches_nothing(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database, [(1, "done", 1), (2, b"done", 2), (3, 7, 3)], "TEXT")
    assert ids(sqlite_database, one_rule("job", Age(MS, WEEK), when=["done"]), NOW) == [1]


# --- Rules ----------------------------------------------------------------------------------------------------------


def test_a_rule_ages_by_its_own_column(database: Database) -> None:
    jobs(database, [(1, "done", 2), (2, "done", -2)])
    assert ids(database, one_rule("job", Age(MS, WEEK)), NOW) == [1]
    assert ids(database, one_rule("job", Age(Time("created", Unit.MILLISECONDS), WEEK)), NOW) == [1, 2]
    assert ids(database, one_rule("job", Expiry(Time("expires", Unit.MILLISECONDS))), NOW) == []


def test_orphans_are_due_by_age_once_their_reference_is_null(database: Database) -> None:
    jobs(database, [(1, "a", 3), (2, "a", 2), (3, "a", -1)])
    database.execute("UPDATE job SET parent = 7 WHERE id = 2")
    assert ids(database, one_rule("job", Orphans(MS, WEEK, "parent")), NOW) == [1]


def test_nothing_is_due_in_an_empty_table(database: Database) -> None:
    jobs(database, [])
    for bound in (Age(MS, WEEK), Expiry(MS), Cap(MS, 1), Cap(MS, 1, ("tenant",)), Orphans(MS, WEEK, "parent")):
        table = one_rule("job", bound)
        assert ids(database, table, NOW) == []
        assert due(database, table, NOW).oldest is None


def test_edges_and_count_are_of_the_due_rows_only(database: Database) -> None:
    jobs(database, [(1, "done", 3), (2, "failed", 2), (3, "done", 1), (4, "live", 9), (5, "done", -1)])
    reported = due(database, one_rule("job", Age(MS, WEEK), when=["done", "failed"]), NOW)
    cutoff = NOW - WEEK
    assert reported.count is not None
    assert (reported.count.rows, reported.oldest, reported.newest) == (
        3,
        cutoff - timedelta(days=3),
        cutoff - timedelta(days=1),
    )


def test_a_cap_takes_the_oldest_beyond_it(database: Database) -> None:
    jobs(database, [(1, "a", 1), (2, "a", 5), (3, "a", 3), (4, "a", -400)])
    for most, expected in ((1, [2, 3, 1]), (2, [2, 3]), (3, [2]), (4, []), (5, [])):
        assert ids(database, one_rule("job", Cap(MS, most)), NOW) == expected


def test_a_cap_counts_the_rows_of_its_own_states_only(database: Database) -> None:
    jobs(database, [(1, "done", 5), (2, "live", 4), (3, "done", 3), (4, "live", 2), (5, "done", 1), (6, None, 0)])
    assert ids(database, one_rule("job", Cap(MS, 3), when=["done"]), NOW) == []
    assert ids(database, one_rule("job", Cap(MS, 1), when=["done"]), NOW) == [1, 3]
    assert ids(database, one_rule("job", Cap(MS, 1), when=["live"]), NOW) == [2]


def test_a_cap_per_scope_counts_each_scope_by_itself(database: Database) -> None:
    rows = [
        (1, "a", 6, "x"),
        (2, "a", 5, "y"),
        (3, "b", 4, "x"),
        (4, "a", 3, "x"),
        (5, "a", 2, None),
        (6, "a", 1, None),
    ]
    jobs(database, rows)
    assert ids(database, one_rule("job", Cap(MS, 1, ("tenant",))), NOW) == [1, 3, 5]
    assert ids(database, one_rule("job", Cap(MS, 2, ("tenant",))), NOW) == [1]
    assert ids(database, one_rule("job", Cap(MS, 1, ("tenant", "state"))), NOW) == [1, 5]
    assert ids(database, one_rule("job", Cap(MS, 1, ("tenant",)), when=["a"]), NOW) == [1, 5]
    assert ids(database, one_rule("job", Cap(MS, 1, ("tenant",)), when=["b"]), NOW) == []


def test_scopes_differ_by_case(database: Database) -> None:
    database.execute(
        f"CREATE TABLE item (id integer NOT NULL PRIMARY KEY, happened bigint, tenant {column(database, 'TEXT COLLATE NOCASE', 'text')})"
    )
    database.executemany("INSERT INTO item VALUES (?, ?, ?)", [(1, at(2), "acme"), (2, at(1), "ACME")])
    assert ids(database, one_rule("item", Cap(MS, 1, ("tenant",))), NOW) == []


@pytest.mark.parametrize("per", [(), ("state",)])
def test_rows_of_one_timestamp_stand_in_the_order_of_their_keys(database: Database, per: tuple[str, ...]) -> None:
    jobs(database, [(3, "a", 1), (1, "a", 1), (2, "a", 1), (4, "a", 2)])
    assert ids(database, one_rule("job", Age(MS, WEEK)), NOW) == [4, 1, 2, 3]
    assert ids(database, one_rule("job", Cap(MS, 2, per)), NOW) == [4, 1]
    assert keys(database, one_rule("job", Age(MS, WEEK)), NOW, limit=2) == [(4,), (1,)]


def test_the_oldest_of_several_states_come_first_whatever_their_state(database: Database) -> None:
    jobs(database, [(1, "a", 1), (2, "b", 2), (3, "a", 3), (4, "c", 4), (5, "b", 5)])
    table = one_rule("job", Age(MS, WEEK), when=["a", "b", "c"])
    assert keys(database, table, NOW, limit=3) == [(5,), (4,), (3,)]


# --- Guards ---------------------------------------------------------------------------------------------------------

REF = ReferencedBy(Reference(TableName("child"), ("job_id",)))


@pytest.mark.parametrize(
    ("guard", "expected"),
    [(WhileNull("locked"), [2]), (WhileNotNull("locked"), [3, 1]), (REF, [2, 1])],
    ids=["null", "not_null", "referenced_by"],
)
def test_a_guard_saves_the_row_it_is_about(database: Database, guard: Guard, expected: list[int]) -> None:
    jobs(database, [(1, "a", 1), (2, "a", 2), (3, "a", 3)])
    database.execute("UPDATE job SET locked = 'by a worker' WHERE id = 2")
    database.script("CREATE TABLE child (job_id integer)")
    database.executemany("INSERT INTO child VALUES (?)", [(3,), (3,), (None,), (99,)])
    assert ids(database, one_rule("job", Age(MS, WEEK), unless=[guard]), NOW) == expected


def test_any_guard_saves(database: Database) -> None:
    jobs(database, [(1, "a", 1), (2, "a", 2), (3, "a", 3)])
    database.script("UPDATE job SET locked = 'x' WHERE id = 2; CREATE TABLE child (job_id integer);")
    database.execute("INSERT INTO child VALUES (3)")
    assert ids(database, one_rule("job", Age(MS, WEEK), unless=[REF, WhileNotNull("locked")]), NOW) == [1]


def test_a_guarded_row_counts_in_a_cap_and_stays(database: Database) -> None:
    jobs(database, [(1, "a", 4), (2, "a", 3), (3, "a", 2), (4, "a", 1)])
    database.execute("UPDATE job SET locked = 'x' WHERE id IN (1, 4)")
    assert ids(database, one_rule("job", Cap(MS, 2), unless=[WhileNotNull("locked")]), NOW) == [2]


def test_a_reference_of_two_columns_saves_only_when_both_match(database: Database) -> None:
    database.script(
        "CREATE TABLE event (tenant text NOT NULL, id integer NOT NULL, happened bigint, PRIMARY KEY (tenant, id));"
        "CREATE TABLE event_read (event_id integer, tenant text)"
    )
    database.executemany(
        "INSERT INTO event VALUES (?, ?, ?)", [("a", 1, at(4)), ("a", 2, at(3)), ("b", 1, at(2)), ("b", 2, at(1))]
    )
    database.executemany("INSERT INTO event_read VALUES (?, ?)", [(1, "b"), (2, None), (None, "a")])
    reference = Reference(TableName("event_read"), ("event_id", "tenant"), ("id", "tenant"))
    found = keys(database, one_rule("event", Age(MS, WEEK), unless=[ReferencedBy(reference)]), NOW)
    assert found == [("a", 1), ("a", 2), ("b", 2)]


def test_a_reference_is_compared_like_a_foreign_key_does(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("""
        CREATE TABLE topic (name TEXT COLLATE NOCASE NOT NULL PRIMARY KEY, happened INTEGER);
        CREATE TABLE post (topic TEXT REFERENCES topic ON DELETE CASCADE);
    """)
    sqlite_database.executemany("INSERT INTO topic VALUES (?, ?)", [("news", at(2)), ("jobs", at(1))])
    sqlite_database.execute("INSERT INTO post VALUES ('NEWS')")
    guard = ReferencedBy(Reference(TableName("post"), ("topic",)))
    assert ids(sqlite_database, one_rule("topic", Age(MS, WEEK), unless=[guard]), NOW) == ["jobs"]


def test_a_reference_may_cross_collations_unless_the_server_cannot_choose(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(f"""
        CREATE TABLE topic (name text PRIMARY KEY, happened bigint);
        CREATE TABLE topic_c (name text COLLATE "C" PRIMARY KEY, happened bigint);
        CREATE TABLE post (topic text COLLATE "POSIX");
        INSERT INTO topic VALUES ('news', {at(1)}), ('jobs', {at(2)});
        INSERT INTO topic_c SELECT * FROM topic;
        INSERT INTO post VALUES ('news');
    """)
    guard = ReferencedBy(Reference(TableName("post"), ("topic",)))
    assert ids(postgres_database, one_rule("topic", Age(MS, WEEK), unless=[guard]), NOW) == ["jobs"]
    with pytest.raises(StoreError, match="could not determine which collation to use"):
        keys(postgres_database, one_rule("topic_c", Age(MS, WEEK), unless=[guard]), NOW)


def test_a_row_may_be_referenced_from_its_own_table(database: Database) -> None:
    jobs(database, [(1, "a", 1), (2, "a", 2), (3, "a", 3)])
    database.execute("UPDATE job SET parent = 3 WHERE id = 1")
    guard = ReferencedBy(Reference(TableName("job"), ("parent",)))
    assert ids(database, one_rule("job", Age(MS, WEEK), unless=[guard]), NOW) == [2, 1]


def test_followers_of_due_rows_are_counted(database: Database) -> None:
    jobs(database, [(1, "a", 1), (2, "a", -1)])
    database.script("CREATE TABLE child (job_id integer, weight smallint, done boolean)")
    rows = [(1, 1, True), (1, 1, False), (1, 2, True), (2, 1, True), (None, 1, True)]
    database.executemany("INSERT INTO child VALUES (?, ?, ?)", rows)

    def followers(*where: tuple[str, State]) -> int:
        follower = Follower(
            Reference(TableName("child"), ("job_id",)), tuple((name, equal_to(value)) for name, value in where)
        )
        rule = Rule("rule", Age(MS, WEEK), followers=(follower,))
        [(name, count)] = due(database, Table(TableName("job"), "a test", (rule,)), NOW).followers
        assert name == "child"
        assert count is not None
        return count.rows

    assert followers() == 3
    assert followers(("weight", 1)) == 2
    assert followers(("weight", 1), ("done", True)) == 1  # 1 and true are equal in Python, not in a database


# --- Keys -----------------------------------------------------------------------------------------------------------


def test_a_key_of_several_columns_is_reported_in_its_order(database: Database) -> None:
    database.script("CREATE TABLE item (a text NOT NULL, happened bigint, b integer NOT NULL, PRIMARY KEY (b, a))")
    database.executemany(
        "INSERT INTO item VALUES (?, ?, ?)", [("x", at(1), 1), ("y", at(1), 1), ("a", at(1), 2), ("z", at(2), 3)]
    )
    table = one_rule("item", Age(MS, WEEK))
    assert keys(database, table, NOW) == [(3, "z"), (1, "x"), (1, "y"), (2, "a")]
    assert keys(database, one_rule("item", Cap(MS, 2)), NOW) == [(3, "z"), (1, "x")]
    assert keys(database, one_rule("item", Age(MS, WEEK), key=["a", "b"]), NOW) == [
        ("z", 3),
        ("a", 2),
        ("x", 1),
        ("y", 1),
    ]


@pytest.mark.parametrize("per", [(), ("scope",)])
def test_a_key_may_contain_the_time(database: Database, per: tuple[str, ...]) -> None:
    database.script(
        "CREATE TABLE item (happened bigint NOT NULL, n integer NOT NULL, scope text, PRIMARY KEY (happened, n))"
    )
    database.executemany("INSERT INTO item VALUES (?, ?, 's')", [(at(1), 2), (at(1), 1), (at(2), 9), (at(-1), 1)])
    assert keys(database, one_rule("item", Age(MS, WEEK)), NOW) == [(at(2), 9), (at(1), 1), (at(1), 2)]
    assert keys(database, one_rule("item", Cap(MS, 2, per)), NOW) == [(at(2), 9), (at(1), 1)]


def test_a_key_may_be_the_time_only(database: Database) -> None:
    database.script("CREATE TABLE item (happened bigint NOT NULL PRIMARY KEY)")
    database.executemany("INSERT INTO item VALUES (?)", [(at(1),), (at(2),), (at(-1),)])
    assert keys(database, one_rule("item", Age(MS, WEEK)), NOW) == [(at(2),), (at(1),)]
    assert keys(database, one_rule("item", Cap(MS, 1)), NOW) == [(at(2),), (at(1),)]


def test_uuids_are_keys(database: Database) -> None:
    database.execute(f"CREATE TABLE item (id {column(database, 'TEXT', 'uuid')} NOT NULL PRIMARY KEY, happened bigint)")
    first, second = UUID(int=1), UUID(int=2**127)
    database.executemany("INSERT INTO item VALUES (?, ?)", [(str(second), at(1)), (str(first), at(1))])
    assert [str(one) for one in ids(database, one_rule("item", Age(MS, WEEK)), NOW)] == [str(first), str(second)]
    assert [str(one) for one in ids(database, one_rule("item", Cap(MS, 1)), NOW)] == [str(first)]


@pytest.mark.parametrize("bound", [Age(MS, WEEK), Cap(MS, 1), Cap(MS, 1, ("scope",))], ids=["age", "cap", "scoped cap"])
def test_a_row_whose_key_is_null_is_never_due_and_has_no_rank(database: Database, bound: Age | Cap) -> None:
    database.script("CREATE TABLE item (a text, b integer, happened bigint, scope text, UNIQUE (a, b))")
    rows = [("x", 1, at(5)), ("x", None, at(4)), (None, 1, at(3)), (None, None, at(-2)), ("y", 1, at(-1))]
    database.executemany("INSERT INTO item VALUES (?, ?, ?, 's')", rows)
    assert keys(database, one_rule("item", bound, key=["a", "b"]), NOW) == [("x", 1)]


# --- Names ----------------------------------------------------------------------------------------------------------

ODD_NAMES = [
    'quo"te',
    "it's",
    "two words",
    "100%",
    "%s",
    "%(name)s",
    "select",
    "Upper",
    "naïve ☃",
    "a:b",
    ":state",
    "dot.ted",
    "semi;colon--",
    "?",
    "$1",
    "t",
    "n",
    "timestamp",
    "k0",
    "back\\slash",
]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_may_be_that_of_a_table_and_of_every_column(database: Database, name: str) -> None:
    table, child = quoted(name), quoted(f"child {name}")
    key, time, state, scope, lock = (quoted(part + name) for part in ("", "time ", "state ", "scope ", "lock "))
    database.script(
        f"CREATE TABLE {table} ({key} integer NOT NULL PRIMARY KEY, {time} bigint, {state} text, {scope} text, {lock} text);"
        f"CREATE TABLE {child} ({key} integer)"
    )
    with opened(database) as store:
        write = f"INSERT INTO {table} VALUES "
        rows = ", ".join(f"({n}, {at(n)}, 'done', 's', NULL)" for n in (1, 2, 3))
        database.script(write + rows)
        database.script(f"INSERT INTO {child} VALUES (2)")
        stamp = Time(f"time {name}", Unit.MILLISECONDS)
        for bound in (Age(stamp, WEEK), Cap(stamp, 1), Cap(stamp, 1, (f"scope {name}",))):
            rule = Rule(
                "rule",
                bound,
                states=("done", "failed"),
                guards=(
                    ReferencedBy(Reference(TableName(f"child {name}"), (name,))),
                    WhileNotNull(f"lock {name}"),
                ),
                followers=(Follower(Reference(TableName(f"child {name}"), (name,))),),
            )
            contract = Contract(None, (Table(TableName(name), "a test", (rule,), state=f"state {name}"),))
            [selection], findings = bind_contract(contract, store.reflect(), store.types)
            assert findings == []
            assert keys_due(store, selection, NOW, 10, 10.0) == ([(3,), (1,)] if isinstance(bound, Age) else [(3,)])
            reported = read_due(store, selection, NOW, 10.0)
            assert reported.count is not None
            assert reported.count.rows == (2 if isinstance(bound, Age) else 1)
            assert store.planner.explain(queries_of(store).keys_due(selection, NOW, 10))


def test_tables_of_other_schemas_are_read_where_they_are(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("""
        CREATE SCHEMA "My %s Schema";
        CREATE TABLE "My %s Schema".item (id integer PRIMARY KEY, happened bigint);
        CREATE TABLE item (id integer PRIMARY KEY, happened bigint);
    """)
    postgres_database.script(
        f'INSERT INTO "My %s Schema".item VALUES (1, {at(1)}); INSERT INTO item VALUES (2, {at(1)})'
    )
    assert ids(postgres_database, one_rule("item", Age(MS, WEEK)), NOW) == [2]
    assert ids(postgres_database, one_rule("item", Age(MS, WEEK), schema="My %s Schema"), NOW) == [1]


def test_partitioned_tables_are_read_as_one(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(f"""
        CREATE TABLE item (id integer, happened bigint, PRIMARY KEY (happened, id)) PARTITION BY RANGE (happened);
        CREATE TABLE item_old PARTITION OF item FOR VALUES FROM (MINVALUE) TO ({at(5)});
        CREATE TABLE item_new PARTITION OF item FOR VALUES FROM ({at(5)}) TO (MAXVALUE);
        INSERT INTO item VALUES (1, {at(1)}), (2, {at(9)}), (3, {at(-1)});
    """)
    assert keys(postgres_database, one_rule("item", Age(MS, WEEK)), NOW) == [(at(9), 2), (at(1), 1)]
