"""Times: written as declared, all in one way, or reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from covering import EVENTS, HEALTHY, RULE_PATH, SCHEDULER, codes, finding, findings, numbers
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._check.encodings import encodings
from wane._findings import Finding

SECONDS = [1_700_000_000, 1_710_000_000]
MILLISECONDS = [1_700_000_000_000, 1_710_000_000_123]
MICROSECONDS = [1_700_000_000_000_000, 1_710_000_000_123_456]
ISO = ["2023-11-14T22:13:20Z", "2024-03-09T16:00:00Z"]
ISO_OFFSET = ["2023-11-14T22:13:20+00:00", "2024-03-09T16:00:00.5+00:00"]
ISO_NAIVE = ["2023-11-14T22:13:20", "2024-03-09T16:00:00"]
TEXT = ["2023-11-14 22:13:20Z", "2024-03-09 16:00:00Z"]
DAYS = ["2023-11-14", "2024-03-09"]
TEXT_NAIVE = ["2023-11-14 22:13:20", "2024-03-09 16:00:00"]

NUMBERS = {"s": SECONDS, "ms": MILLISECONDS, "us": MICROSECONDS}
TEXTS = {"iso": ISO, "text": TEXT}


def create(database: Database, kind: str, values: Sequence[object]) -> None:
    collate = ' COLLATE "C"' if kind == "text" and database.store == "postgres" else ""
    database.script(
        f"CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, at {kind});"
        f"CREATE INDEX events_at ON events (at{collate}, id)"
    )
    database.executemany("INSERT INTO events VALUES (?, ?)", list(enumerate(values)))


def declared(unit: str | None, zone: str | None = None) -> str:
    parts = ['column = "at"', *([f'unit = "{unit}"'] if unit else []), *([f'zone = "{zone}"'] if zone else [])]
    return EVENTS.replace('{ column = "at", unit = "ms" }', "{ " + ", ".join(parts) + " }")


def reported(database: Database, text: str) -> list[Finding]:
    """Return everything but the count of rows that never leave because of it."""
    return [one for one in findings(database, text) if one.code != "never-due"]


def wrong(message: str, fix: str) -> list[object]:
    return [finding("error", "wrong-encoding", "events", RULE_PATH, message, fix)]


@pytest.mark.parametrize("unit", NUMBERS)
@pytest.mark.parametrize("written", NUMBERS)
def test_numbers_of_one_unit_are_never_taken_for_another(database: Database, unit: str, written: str) -> None:
    create(database, "bigint", NUMBERS[written])
    found = reported(database, declared(unit))
    if unit == written:
        assert found == []
    else:
        message = f"at is declared {unit}, but 2 of 2 sampled values are written as {written}"
        assert found == wrong(message, f'unit = "{written}"')
        assert reported(database, declared(written)) == []


WRITTEN = [
    ("iso", None, ISO, "iso"),
    ("iso", None, ISO_OFFSET, "iso"),
    ("text", None, TEXT, "text"),
    ("iso", "UTC", ISO_NAIVE, "iso without zone"),
    ("text", "Europe/Vienna", TEXT_NAIVE, "text without zone"),
    ("date", None, DAYS, "date"),
]


@pytest.mark.parametrize(("unit", "zone", "values", "name"), WRITTEN)
@pytest.mark.parametrize(("other_unit", "other_zone", "other_values", "other_name"), WRITTEN)
def test_texts_of_one_way_are_never_taken_for_another(
    database: Database,
    unit: str,
    zone: str | None,
    values: list[str],
    name: str,
    other_unit: str,
    other_zone: str | None,
    other_values: list[str],
    other_name: str,
) -> None:
    create(database, "text", other_values)
    found = reported(database, declared(unit, zone))
    if name == other_name:
        assert found == []
    else:
        zoned = ', zone = "…" (the zone they mean)' if other_zone else ""
        message = f"at is declared {name}, but 2 of 2 sampled values are written as {other_name}"
        assert found == wrong(message, f'unit = "{other_unit}"{zoned}')
        assert reported(database, declared(other_unit, other_zone)) == []


def test_sqlites_own_stamps_need_no_unit(sqlite_database: SqliteDatabase) -> None:
    create(sqlite_database, "TEXT DEFAULT CURRENT_TIMESTAMP", [])
    sqlite_database.execute("INSERT INTO events (id) VALUES (1)")
    assert findings(sqlite_database, declared(None), strict=True) == []
    sqlite_database.execute("UPDATE events SET at = ?", (ISO[0],))
    assert reported(sqlite_database, declared(None)) == wrong(
        "at is declared text without zone, but 1 of 1 sampled values are written as iso", 'unit = "iso"'
    )


@pytest.mark.parametrize(("kind", "zone"), [("timestamptz", None), ("timestamp", "UTC")])
def test_postgres_own_stamps_need_no_unit(postgres_database: PostgresDatabase, kind: str, zone: str | None) -> None:
    create(postgres_database, kind, TEXT_NAIVE)
    assert findings(postgres_database, declared(None, zone), strict=True) == []


def test_days_are_declared_as_such(postgres_database: PostgresDatabase) -> None:
    create(postgres_database, "date", [*DAYS, "infinity"])
    assert reported(postgres_database, declared("date")) == []
    [wrong_type] = reported(postgres_database, declared(None))
    assert (wrong_type.code, wrong_type.message) == (
        "wrong-time-type",
        'at is date and needs unit = "date": a row counts from the end of its day',
    )


def test_sqlite_may_hold_texts_in_a_column_of_numbers(sqlite_database: SqliteDatabase) -> None:
    create(sqlite_database, "INTEGER", ISO)
    message = "at is declared ms, but 2 of 2 sampled values are written as iso"
    assert reported(sqlite_database, declared("ms")) == wrong(message, 'unit = "iso"')


def test_a_column_without_timestamps_is_the_wrong_column(database: Database) -> None:
    create(database, "bigint", [1, 2, 3])
    assert reported(database, declared("s")) == wrong(
        "at is declared s, but none of 3 sampled values is a timestamp", "name the column that holds timestamps"
    )


@pytest.mark.parametrize("values", [[], [None, None], [0, 0, None]], ids=["no rows", "NULL", "zero"])
def test_a_column_without_values_states_nothing(database: Database, values: list[object]) -> None:
    create(database, "bigint", values)
    assert reported(database, declared("ms")) == []


def test_two_ways_in_one_column_are_reported(database: Database) -> None:
    create(database, "bigint", [*MILLISECONDS, SECONDS[0]])
    assert reported(database, declared("ms")) == [
        finding(
            "error",
            "mixed-encoding",
            "events",
            RULE_PATH,
            "at is written in several ways: 2 of 3 sampled values as declared (ms), 1 as s",
            "write all of them in one way, or name every way: unit = […]",
        )
    ]
    database.execute("UPDATE events SET at = at * 1000 WHERE at < 100000000000")
    assert findings(database, declared("ms"), strict=True) == []


def test_two_ways_of_text_in_one_column_are_reported(database: Database) -> None:
    create(database, "text", [ISO[0], TEXT[0], ISO_NAIVE[0]])
    [one] = reported(database, declared("iso"))
    assert one.code == "mixed-encoding"
    assert one.message in (
        "at is written in several ways: 1 of 3 sampled values as declared (iso), 1 as text, 1 as iso without zone",
        "at is written in several ways: 1 of 3 sampled values as declared (iso), 1 as iso without zone, 1 as text",
    )


def test_two_ways_that_are_both_not_the_declared_one_are_both_reported(database: Database) -> None:
    create(database, "bigint", [*SECONDS, MICROSECONDS[0]])
    assert reported(database, declared("ms")) == wrong(
        "at is declared ms, but 2 of 3 sampled values are written as s and us", 'unit = "s"'
    )


def test_a_change_of_the_way_shows_however_many_rows_came_before(database: Database) -> None:
    """The newest rows are read too, where an index leads there."""
    create(database, "bigint", [*(MILLISECONDS[0] + n for n in range(2_000)), MICROSECONDS[0]])
    assert codes(reported(database, declared("ms"))) == ["mixed-encoding"]


def test_rows_that_the_rule_names_are_read(database: Database) -> None:
    database.script(
        "CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, status text, at bigint);"
        "CREATE INDEX events_at ON events (status, at, id)"
    )
    rows = [*((n, "new", None) for n in range(1_000)), (1_000, "done", SECONDS[0])]
    database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
    text = declared("ms").replace('why = "A test."', 'why = "A test."\nstate = "status"\nlive = ["new"]')
    assert codes(reported(database, text + 'when = ["done"]')) == ["wrong-encoding"]


def test_fractions_of_different_lengths_do_not_sort(database: Database) -> None:
    create(database, "text", ["2023-11-14T22:13:20.500Z", "2023-11-14T22:13:20Z"])
    assert findings(database, declared("iso")) == [
        finding(
            "warning",
            "unsortable-times",
            "events",
            RULE_PATH,
            "at has fractions of different lengths before Z, which do not sort by time within a second",
            "write all of them with as many digits",
        )
    ]
    database.execute("UPDATE events SET at = '2023-11-14T22:13:20.000Z' WHERE id = 1")
    assert findings(database, declared("iso"), strict=True) == []


def test_fractions_of_different_lengths_do_sort_before_an_offset(database: Database) -> None:
    create(database, "text", ["2023-11-14T22:13:20.500+00:00", "2023-11-14T22:13:20+00:00"])
    assert findings(database, declared("iso"), strict=True) == []


# Rows that never leave


def never_due(count: str) -> object:
    have = "has" if count == "1" else "have"
    message = (
        f"{count} of its rows {have} no usable time in at (NULL, a placeholder or another encoding) and never leave"
    )
    return finding("note", "never-due", "events", RULE_PATH, message)


def test_rows_without_a_usable_timestamp_are_counted(database: Database) -> None:
    create(database, "bigint", [*MILLISECONDS, None, 0, -5])
    assert findings(database, declared("ms"), strict=True) == [never_due("3")]
    database.execute("DELETE FROM events WHERE at IS NULL OR at <= 0")
    assert findings(database, declared("ms"), strict=True) == []


def test_many_rows_without_a_usable_timestamp_are_not_all_counted(database: Database) -> None:
    create(database, "bigint", [*MILLISECONDS, *[None] * 10_001])
    assert findings(database, declared("ms")) == [never_due("more than 10,000")]


def test_a_guard_that_wants_the_timestamp_missing_does_not_count_as_stuck(database: Database) -> None:
    create(database, "bigint", [*MILLISECONDS, None])
    assert findings(database, declared("ms") + 'unless = [{ null = "at" }]', strict=True) == []


def test_infinity_is_never_due_and_reported_only_if_it_is_in_the_past(postgres_database: PostgresDatabase) -> None:
    create(postgres_database, "timestamptz", ["2023-11-14 22:13:20Z", "infinity", "-infinity"])
    assert findings(postgres_database, declared(None)) == [never_due("1")]


def test_timestamps_that_take_too_long_to_read_are_stated_not_to_be_checked(database: Database) -> None:
    create(database, "bigint", [])
    database.execute(f"INSERT INTO events SELECT n, {MILLISECONDS[0]} + n FROM {numbers(150_000)}")
    message = "whether every row has a usable time in at was not checked: too many rows to read"
    expected = finding("note", "times-unchecked", "events", RULE_PATH, message)
    assert expected in findings(database, declared("ms"), seconds=0)
    assert findings(database, declared("ms"), strict=True, seconds=30) == []


def test_zero_and_null_state_nothing_about_the_way() -> None:
    from datetime import UTC, datetime

    assert encodings([None, 0, 0.0, *SECONDS], datetime(2024, 1, 1, tzinfo=UTC)) == {"s": 2}


# --- Work that is not done --------------------------------------------------------------------------------------------

OUTBOX = """
[scheduler]
s = { every = "5m" }
[table.outbox]
scheduler = "s"
why = "A test."
time = { column = "created_at", unit = "ms" }
[table.outbox.rule.old]
keep = "14d"
"""


def outbox(database: Database, done: str = "published_at", *, unpublished: int = 3) -> None:
    """Create an outbox of 20 old events, of which some were never published, and one new event."""
    database.script(
        f"CREATE TABLE outbox (id bigint NOT NULL PRIMARY KEY, created_at bigint NOT NULL, {done} bigint);"
        "CREATE INDEX outbox_created ON outbox (created_at, id)"
    )
    rows = [(n, MILLISECONDS[0], None if n < unpublished else MILLISECONDS[0]) for n in range(20)]
    database.executemany("INSERT INTO outbox VALUES (?, ?, ?)", [*rows, (99, 4_000_000_000_000, None)])


def unfinished(count: str, done: str = "published_at") -> Finding:
    message = f"{count} no {done} (NULL): by created_at they leave before they are done"
    fix = f'age by it, `time = "{done}"`, or guard them, `unless = [{{ null = "{done}" }}]`'
    return finding("warning", "unfinished-due", "outbox", "table.outbox.rule.old", message, fix)


@pytest.mark.parametrize(
    ("unpublished", "count"), [(0, ""), (1, "1 due row has"), (3, "3 due rows have")], ids=["none", "one", "some"]
)
def test_due_rows_whose_work_is_not_done_are_reported(database: Database, unpublished: int, count: str) -> None:
    outbox(database, unpublished=unpublished)
    assert findings(database, OUTBOX) == ([unfinished(count)] if count else [])


def test_a_guard_an_age_by_it_and_states_protect_what_is_not_done(database: Database) -> None:
    outbox(database)
    by_itself = OUTBOX.replace("created_at", "published_at")
    guarded = OUTBOX + 'unless = [{ null = "published_at" }]\n'
    states = OUTBOX.replace("time =", 'state = "id"\nlive = [5]\ntime =') + "when = [1]\n"
    expires = OUTBOX.replace('keep = "14d"', 'expires = { column = "created_at", unit = "ms" }')
    # With a condition on it, the rows without are those that are meant.
    meant = OUTBOX + "where = { published_at = { null = true } }\n"
    for text in (by_itself, guarded, states, expires, meant):
        assert "unfinished-due" not in codes(findings(database, text))


def test_one_of_several_times_is_enough_to_be_done(database: Database) -> None:
    outbox(database)
    database.script(
        "ALTER TABLE outbox ADD COLUMN acknowledged_at bigint; ALTER TABLE outbox ADD COLUMN sent_by bigint"
    )
    [found] = findings(database, OUTBOX)
    assert found.message.startswith("3 due rows have no published_at or acknowledged_at (NULL)")
    database.execute("UPDATE outbox SET acknowledged_at = 5")
    assert findings(database, OUTBOX) == []


def test_whether_rows_are_done_is_checked_in_bounded_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox(database, unpublished=0)
    database.execute(f"INSERT INTO outbox SELECT n + 100, {MILLISECONDS[0]}, 5 FROM {numbers(300_000)}")
    found = [one for one in findings(database, OUTBOX, seconds=0.001) if "published_at" in one.message]
    assert [(one.severity.value, one.code) for one in found] == [("note", "times-unchecked")]
    database.execute("UPDATE outbox SET published_at = NULL WHERE id < 20")
    monkeypatch.setattr("wane._check.values._MOST_COUNTED", 2)
    assert unfinished("at least 2 due rows have") in findings(database, OUTBOX)


# --- Caps of tables without a time ----------------------------------------------------------------------------------

KV = f"""{SCHEDULER}
[table.kv]
scheduler = "s"
why = "A test."
rule.cap = {{ most = 2, by = "%s" }}
"""


def unordered(severity: str, path: str, message: str, fix: str) -> Finding:
    return finding(severity, "unordered-key", "kv", path, message, fix)


def test_keys_that_do_not_ascend_are_reported(database: Database) -> None:
    database.execute("CREATE TABLE kv (id text NOT NULL PRIMARY KEY, value text)")
    database.execute("INSERT INTO kv VALUES ('01900000-0000-7000-8000-000000000000', 'x')")
    assert findings(database, KV % "id") == []
    database.execute("INSERT INTO kv VALUES ('6d0ae5f4-8d0f-4c0b-9c7e-0d6b1f2a3b4c', 'x'), ('name', 'x')")
    message = (
        "2 of its rows have no whole number, UUIDv7 or ULID in id, so its order is not that of time; they never leave"
    )
    expected = unordered("warning", "table.kv.rule.cap", message, "cap by a time: `time = …`")
    assert findings(database, KV % "id") == [expected]


def test_columns_that_cannot_order_rows_are_refused(database: Database) -> None:
    real = "double precision" if database.store == "postgres" else "REAL"
    database.execute(f"CREATE TABLE kv (id {real} NOT NULL PRIMARY KEY, value integer)")
    declared = "is double precision: only whole numbers, UUIDs and texts (UUIDv7, ULID) ascend"
    if database.store == "sqlite":
        declared = "is declared REAL: only whole numbers and texts (UUIDv7, ULID) ascend"
    path = "table.kv.rule.cap.by"
    assert findings(database, KV % "id") == [
        unordered("error", path, f"id {declared}", "name a time column instead: `time = …`")
    ]
    fix = "name a column of the key, or another unique key of the table: `key = ['value']`"
    assert findings(database, KV % "value") == [unordered("error", path, "value is not in the key of kv (id)", fix)]
    assert codes(findings(database, KV % "vale")) == ["missing-column"]


def test_texts_that_compare_loosely_cannot_order_rows(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.execute("CREATE TABLE kv (id TEXT COLLATE NOCASE NOT NULL PRIMARY KEY)")
    [found] = findings(sqlite_database, KV % "id")
    assert (found.code, found.message) == (
        "unordered-key",
        "id compares by NOCASE, not byte by byte, so its order is not that of time",
    )


def test_an_index_that_begins_with_the_scope_serves_a_cap_by_key(database: Database) -> None:
    database.execute("CREATE TABLE kv (id integer NOT NULL PRIMARY KEY, tenant text)")
    text = (KV % "id").replace("most = 2", 'most = 2, per = "tenant"')
    [found] = findings(database, text)
    assert found.code == "no-index"
    assert '("tenant", "id")' in found.fix
    database.execute(found.fix)
    assert findings(database, text) == []


# --- Times from several columns -------------------------------------------------------------------------------------

CHOSEN = f"""{SCHEDULER}
[table.events]
scheduler = "s"
why = "A test."
time = {{ %s = ["a", "b"], unit = "ms" }}
rule.old.keep = "7d"
"""


@pytest.mark.parametrize("pick", ["first", "latest"])
def test_each_column_that_may_hold_the_time_needs_its_index(database: Database, pick: str) -> None:
    database.execute("CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, a bigint, b bigint)")
    first, second = findings(database, CHOSEN % pick)
    assert (first.code, second.code) == ("no-index", "no-index")
    assert first.message == "no index finds the rule's oldest rows by a, so every batch reads the whole table"
    assert '("a", "id")' in first.fix
    partial = '("b", "id") WHERE "a" IS NULL;'
    assert second.fix.endswith('("a", "b", "id");' if database.store == "sqlite" else partial)
    database.execute(first.fix)
    database.execute(second.fix)
    assert findings(database, CHOSEN % pick) == []


def test_columns_of_two_types_cannot_be_compared(database: Database) -> None:
    database.execute("CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, a bigint, b numeric)")
    [found] = findings(database, CHOSEN % "latest")
    assert (found.code, found.path) == ("wrong-time-type", "table.events.rule.old.time")
    assert found.message.lower() == "a is bigint and b numeric: times of two types cannot be compared exactly"


def test_every_column_that_may_hold_the_time_is_read(database: Database) -> None:
    database.execute("CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, a bigint, b bigint)")
    database.execute("INSERT INTO events VALUES (1, NULL, 1700000000), (2, NULL, NULL)")
    found = [one for one in findings(database, CHOSEN % "first") if one.code != "no-index"]
    assert [one.code for one in found] == ["wrong-encoding", "never-due"]
    assert found[0].message.startswith("b is declared")
    assert found[1].message.startswith("2 of its rows have no usable time in a, else b")


# --- Times in another table -----------------------------------------------------------------------------------------

ELSEWHERE = f"""{SCHEDULER}
[table.jobs]
scheduler = "s"
why = "A test."
state = "status"
live = []
time = {{ column = "at", unit = "ms", %s }}
rule.old = {{ when = ["done"], keep = "7d" }}
"""
IN_CHILD, IN_PARENT = 'child = "events.job_id"', 'parent = { table = "events", columns = "event_id" }'
JOBS = """
CREATE TABLE jobs (id integer NOT NULL PRIMARY KEY, status text NOT NULL, event_id integer);
CREATE TABLE events (id integer NOT NULL PRIMARY KEY, job_id integer, at bigint);
"""


def test_the_rows_of_a_child_are_found_by_indexes(database: Database) -> None:
    database.script(JOBS)
    text = ELSEWHERE % IN_CHILD
    found = {one.code: one for one in findings(database, text) if one.code != "uncovered-table"}
    assert set(found) == {"no-index", "no-reference-index"}
    assert '("status", "id")' in found["no-index"].fix
    assert '("job_id")' in found["no-reference-index"].fix
    for one in found.values():
        database.execute(one.fix)
    assert codes(findings(database, text)) == ["uncovered-table"]


@pytest.mark.parametrize("where", [IN_CHILD, IN_PARENT])
def test_rows_without_a_time_elsewhere_are_counted(database: Database, where: str) -> None:
    database.script(JOBS)
    database.execute("INSERT INTO jobs VALUES (1, 'done', 1), (2, 'done', 2), (3, 'done', NULL), (4, 'done', 4)")
    database.execute("INSERT INTO events VALUES (1, 1, 1700000000000), (2, 2, 17), (4, 4, NULL)")
    [found] = [one for one in findings(database, ELSEWHERE % where) if one.code == "never-due"]
    lack = "no row of events with a usable time" if where == IN_CHILD else "no usable time in events.at"
    assert found.message.startswith(f"3 of its rows have {lack}")


def test_a_parent_is_one_row(database: Database) -> None:
    database.script(JOBS)
    [found] = [one for one in findings(database, ELSEWHERE % IN_PARENT.replace(" }", ', to = "job_id" }')) if one.path]
    assert (found.code, found.message) == ("wrong-reference", "event_id does not refer to one row of events")
    assert "missing-table" in codes(findings(database, ELSEWHERE % IN_PARENT.replace("events", "event")))
    assert "missing-column" in codes(findings(database, (ELSEWHERE % IN_CHILD).replace('"at"', '"att"')))


def test_a_key_that_cannot_be_walked_is_refused(database: Database) -> None:
    real = "double precision" if database.store == "postgres" else "REAL"
    database.script(JOBS.replace("jobs (id integer", f"jobs (id {real}").replace("job_id integer", f"job_id {real}"))
    [found] = [one for one in findings(database, ELSEWHERE % IN_CHILD) if one.path]
    assert found.code == "wrong-time-type"
    assert "rows are walked by a key of whole numbers" in found.message


# --- Windows of rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", ', parent = { table = "queues", columns = "queue" }'])
def test_windows_of_rows_are_whole_numbers(database: Database, where: str) -> None:
    database.script(f"{HEALTHY} ALTER TABLE events ADD COLUMN queue bigint; ALTER TABLE events ADD COLUMN days text;")
    database.execute("CREATE TABLE queues (queue bigint NOT NULL PRIMARY KEY, days text)")
    text = f'{EVENTS}longer = {{ column = "days", unit = "d"{where} }}'
    [found] = [one for one in findings(database, text) if one.path]
    assert (found.code, found.path) == ("wrong-window-type", f"{RULE_PATH}.longer")
    assert found.message.endswith("which holds no whole numbers")
    assert [one for one in findings(database, text.replace('"days"', '"queue"')) if one.path] == []
