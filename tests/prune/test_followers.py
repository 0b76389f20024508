"""Followers leave with their row, counted, and count in the limit; nothing else of their table leaves."""

from __future__ import annotations

import pytest

from prune.keeping import (
    WEEK,
    ago,
    follower,
    insert,
    jobs,
    keeping,
    notes,
    referenced_by,
    rule,
    table,
)
from prune.test_shown_statements import traced
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Age, Follower, Reference, Table, Time, Unit
from wane._contract.names import TableName
from wane._prune.pace import FAST, Pace
from wane._prune.sql_postgres import PostgresRowTaker
from wane._prune.take import Key
from wane._rules.selection import Selection
from wane.errors import BindError, StoreError
from wane.events import BatchTaken, Event

FOREIGN_KEYS = [None, "job (id)", "job (id) ON DELETE CASCADE"]


def followed(*followers: Follower) -> Table:
    return table("job", rule(followers=followers or [follower("note.job_id")]))


@pytest.mark.parametrize("foreign_key", FOREIGN_KEYS)
def test_followers_leave_with_their_row_and_are_counted(database: Database, foreign_key: str | None) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(20)), (3, "queued", ago(30)))
    notes(
        database,
        *((10, 1, "x"), (11, 1, "y"), (20, 2, "x"), (30, 3, "x"), (40, None, "x")),
        foreign_key=foreign_key,
    )
    with keeping(database, followed()) as opened:
        pruned = opened.keeper.prune("job", rule="old", limit=100)
        assert pruned.counts == {"job": 2, "note": 3}
        assert (opened.ids(), opened.ids("note")) == ([3], [30, 40])
        assert opened.trail()[0].counts == {"job": 2, "note": 3}


def test_a_row_without_followers_is_counted_by_itself(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    notes(database, (1, 2, "x"))
    with keeping(database, followed()) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 1, "note": 0}
        assert opened.ids("note") == [1]


def test_only_followers_of_a_kind_leave(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    notes(database, (1, 1, "draft"), (2, 1, "sent"), (3, 1, None), (4, 1, "DRAFT"))
    with keeping(database, followed(follower("note.job_id", where={"kind": "draft"}))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 1, "note": 1}
        assert opened.ids("note") == [2, 3, 4]


def test_followers_of_followers_leave_from_the_inside(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "queued", ago(30)))
    notes(database, (10, 1, "x"), (11, 1, "x"), (20, 2, "x"), foreign_key="job (id)")
    database.script("""
        CREATE TABLE page (id integer PRIMARY KEY, note_id integer REFERENCES note (id));
        CREATE TABLE line (id integer PRIMARY KEY, page_id integer REFERENCES page (id));
    """)
    insert(database, "page", "id, note_id", (100, 10), (110, 11), (200, 20))
    insert(database, "line", "id, page_id", (1000, 100), (1001, 100), (1100, 110), (2000, 200))
    chain = follower("note.job_id", follower("page.note_id", follower("line.page_id")))
    with keeping(database, followed(chain)) as opened:
        pruned = opened.keeper.prune("job", rule="old", limit=100)
        assert pruned.counts == {"job": 1, "note": 2, "page": 2, "line": 3}
        assert [opened.ids(name) for name in ("job", "note", "page", "line")] == [[2], [20], [200], [2000]]


def test_several_tables_and_two_references_of_one_may_follow(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "queued", ago(30)))
    notes(database, (1, 1, "x"), (2, 2, "x"))
    database.execute("CREATE TABLE link (id integer NOT NULL PRIMARY KEY, source integer, target integer)")
    insert(database, "link", "id, source, target", (1, 1, 2), (2, 2, 1), (3, 1, 1), (4, 2, 2), (5, None, 1))
    with keeping(
        database, followed(follower("note.job_id"), follower("link.source"), follower("link.target"))
    ) as opened:
        pruned = opened.keeper.prune("job", rule="old", limit=100)
        assert pruned.counts == {"job": 1, "note": 1, "link": 4}
        assert (opened.ids("link"), opened.ids("note")) == ([4], [2])


def test_followers_may_refer_by_several_columns(database: Database) -> None:
    database.script("""
        CREATE TABLE job (a text NOT NULL, b integer NOT NULL, state text, at_ms bigint, PRIMARY KEY (a, b));
        CREATE TABLE note (id integer PRIMARY KEY, y integer, x text);
    """)
    insert(database, "job", "a, b, state, at_ms", ("x", 1, "done", ago(30)), ("x", 2, "queued", ago(30)))
    insert(database, "note", "id, x, y", (1, "x", 1), (2, "x", 2), (3, "y", 1), (4, None, 1), (5, "x", None))
    declared = table("job", rule(followers=[follower("note.x,y")]))
    with keeping(database, declared) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 1, "note": 1}
        assert opened.ids("note") == [2, 3, 4, 5]


def test_followers_may_refer_to_another_unique_column(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "queued", ago(30)))
    database.execute("CREATE UNIQUE INDEX job_parent ON job (parent_id)")
    database.execute("UPDATE job SET parent_id = 10 - id")
    notes(database, (1, 9, "of 1"), (2, 8, "of 2"), (3, 1, "of none"))
    with keeping(database, followed(follower("note.job_id", to=["parent_id"]))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 1, "note": 1}
        assert opened.ids("note") == [2, 3]


def test_followers_that_another_row_may_share_are_refused(database: Database) -> None:
    """Two rows with the same parent_id: what follows the one would be taken from the other, which is live."""
    jobs(database, (1, "done", ago(30)), (2, "queued", ago(30)))
    database.execute("UPDATE job SET parent_id = 7")
    notes(database, (1, 7, "x"))
    with keeping(database, followed(follower("note.job_id", to=["parent_id"]))) as opened:
        with pytest.raises(BindError, match="not unique in job"):
            opened.keeper.prune("job", rule="old", limit=100)
        assert (opened.ids(), opened.ids("note")) == ([1, 2], [1])


# --- Followers count in the limit -----------------------------------------------------------------------------------


def test_rows_leave_only_with_all_their_followers_in_the_limit(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(4)])
    notes(database, *[(n * 10 + k, n, "x") for n in range(4) for k in range(2)])
    with keeping(database, followed()) as opened:
        assert opened.keeper.prune("job", rule="old", limit=6).counts == {"job": 2, "note": 4}
        assert opened.ids() == [2, 3]
        assert opened.keeper.prune("job", rule="old", limit=5).counts == {"job": 1, "note": 2}
        assert opened.keeper.prune("job", rule="old", limit=3).counts == {"job": 1, "note": 2}


@pytest.mark.parametrize("foreign_key", FOREIGN_KEYS)
def test_a_row_with_more_followers_than_the_limit_loses_them_first(database: Database, foreign_key: str | None) -> None:
    jobs(database, (1, "done", ago(30)), (2, "queued", ago(30)), (3, "done", ago(20)))
    notes(
        database,
        *[(n, 1, "x") for n in range(10)],
        *[(100 + n, 2, "x") for n in range(10)],
        foreign_key=foreign_key,
    )
    with keeping(database, followed()) as opened:
        counts = [opened.keeper.prune("job", rule="old", limit=4).counts for _ in range(4)]
        assert counts == [
            {"job": 0, "note": 4},
            {"job": 0, "note": 4},
            {"job": 2, "note": 2},
            {"job": 0},
        ]
        assert (opened.ids(), opened.ids("note")) == ([2], list(range(100, 110)))
        assert [entry.rows for entry in opened.trail()] == [4, 4, 4, 0]


def test_with_a_limit_of_one_everything_leaves_one_by_one(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    notes(database, (1, 1, "x"), (2, 1, "x"))
    with keeping(database, followed()) as opened:
        counts = [opened.keeper.prune("job", rule="old", limit=1).counts for _ in range(4)]
        assert [sum(one.values()) for one in counts] == [1, 1, 1, 0]
        assert [one["job"] for one in counts] == [0, 0, 1, 0]


def test_nested_followers_count_too_and_leave_from_the_inside(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    notes(database, *[(n, 1, "x") for n in range(3)], foreign_key="job (id)")
    database.execute("CREATE TABLE page (id integer PRIMARY KEY, note_id integer REFERENCES note (id))")
    insert(database, "page", "id, note_id", *[(n, n % 3) for n in range(6)])
    with keeping(database, followed(follower("note.job_id", follower("page.note_id")))) as opened:
        totals = []
        while pruned := opened.keeper.prune("job", rule="old", limit=4).rows:
            totals.append(pruned)
        assert max(totals) <= 4
        assert sum(totals) == 10
        assert [opened.ids(name) for name in ("job", "note", "page")] == [[], [], []]


@pytest.mark.parametrize("limit", range(1, 12))
def test_whatever_the_limit_no_call_takes_more_and_all_leave(database: Database, limit: int) -> None:
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(4)])
    notes(database, *[(n * 10 + k, n, "x") for n, many in enumerate((0, 5, 1, 3)) for k in range(many)])
    with keeping(database, followed()) as opened:
        taken = []
        while pruned := opened.keeper.prune("job", rule="old", limit=limit).rows:
            taken.append(pruned)
        assert sum(taken) == 13
        assert max(taken) <= limit
        assert (opened.ids(), opened.ids("note")) == ([], [])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_whatever_the_batch_a_sweep_takes_all_with_their_followers_and_no_batch_takes_more(
    database: Database, size: int
) -> None:
    jobs(database, *[(n, "done", ago(60 - n)) for n in range(12)], (20, "queued", ago(60)))
    many = (0, 1, 5, 0, 2, 9, 1, 0, 0, 3, 1, 0)
    notes(database, *[(n * 10 + k, n, "x") for n in range(12) for k in range(many[n])], (900, 20, "x"))
    database.execute("CREATE TABLE page (id integer NOT NULL PRIMARY KEY, note_id integer)")
    insert(database, "page", "id, note_id", *[(n * 3 + k, n) for n in (20, 50, 51, 900) for k in range(2)])
    batches: list[int] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            batches.append(sum(event.counts.values()))

    pace = Pace(target_seconds=10.0, duty=1.0, first_batch=size, least_batch=size, most_batch=size)
    with keeping(database, followed(follower("note.job_id", follower("page.note_id"))), listener=listen) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=pace).rules
        assert (swept.outcome, swept.counts) == ("done", {"job": 12, "note": 22, "page": 6})
        assert [opened.ids(name) for name in ("job", "note", "page")] == [[20], [900], [2700, 2701]]
        assert max(batches) <= size
        assert opened.trail()[-1].counts == swept.counts


def test_a_sweep_of_a_sqlite_file_reads_no_keys_of_rows_with_followers(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(sqlite_database, *[(n, "done", ago(60 - n)) for n in range(40)])
    notes(sqlite_database, *[(n, n, "x") for n in range(40)], foreign_key="job (id)")
    pace = Pace(target_seconds=10.0, duty=1.0, first_batch=20, least_batch=20, most_batch=20)
    with keeping(sqlite_database, followed()) as opened:
        opened.keeper.enable()
        with traced(opened.keeper, monkeypatch) as ran:
            [swept] = opened.keeper.sweep(pace=pace).rules
        assert (swept.counts, swept.batches) == ({"job": 40, "note": 40}, 5)
        # Finding that nothing is left takes the careful way: nothing could be due because something is held.
        assert [text for text in ran if "json_each" in text or "oldest.key_0, +" in text][1:] == []


def test_a_sweep_reads_only_as_many_rows_as_fit_with_followers_like_those_before(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(postgres_database, *[(n, "done", ago(60 - n)) for n in range(40)])
    # Without a foreign key, rows are locked and counted with their followers before they leave.
    notes(postgres_database, *[(n, n % 40, "x") for n in range(40 * 9)])
    pace = Pace(target_seconds=10.0, duty=1.0, first_batch=105, least_batch=105, most_batch=105)
    locked: list[int] = []
    lock = PostgresRowTaker.lock

    def count_locked(taker: PostgresRowTaker, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        locked.append(len(keys))
        return lock(taker, selection, keys, skip_locked=skip_locked)

    monkeypatch.setattr(PostgresRowTaker, "lock", count_locked)
    with keeping(postgres_database, followed()) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=pace).rules
    assert (swept.outcome, swept.counts) == ("done", {"job": 40, "note": 360})
    # The first batch expects one follower of each row, and the rest of a batch is not worth a read.
    assert locked == [40, 10, 10, 10]


def test_a_row_that_a_leaving_follower_guards_leaves_after_it(database: Database) -> None:
    """Taking the note of one job makes another one due, whose own notes were not counted."""
    jobs(database, (1, "done", ago(30)), (2, "done", ago(29)))
    database.execute("CREATE TABLE note (id integer NOT NULL PRIMARY KEY, job_id integer, about_id integer)")
    insert(database, "note", "id, job_id, about_id", (1, 1, 2), (2, 2, None))
    declared = table("job", rule(unless=[referenced_by("note.about_id")], followers=[follower("note.job_id")]))
    with keeping(database, declared) as opened:
        opened.keeper.enable()
        counts = [opened.keeper.sweep(pace=FAST).rules[0].counts for _ in range(2)]
        assert sum(one["job"] for one in counts) == sum(one["note"] for one in counts) == 2
        assert (opened.ids(), opened.ids("note")) == ([], [])


def test_a_hold_on_a_follower_keeps_its_row_from_a_sweep(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(4)])
    notes(database, *[(n, n, "x") for n in range(4)])
    with keeping(database, followed()) as opened:
        opened.keeper.enable()
        opened.keeper.hold("note", {"id": 2}, reason="a test")
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.counts, opened.ids(), opened.ids("note")) == ({"job": 3, "note": 3}, [2], [2])


# --- Nothing else leaves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_followers_are_reported_apart_without_a_key_and_in_partitions(
    postgres_database: PostgresDatabase, limit: int
) -> None:
    """Each partition numbers its rows from the same number on; the other job's notes must stay."""
    jobs(postgres_database, (1, "done", ago(30)), (2, "queued", ago(30)))
    postgres_database.script("""
        CREATE TABLE note (id int, job_id int) PARTITION BY LIST (job_id);
        CREATE TABLE note_1 PARTITION OF note FOR VALUES IN (1);
        CREATE TABLE note_2 PARTITION OF note FOR VALUES IN (2);
    """)
    insert(postgres_database, "note", "id, job_id", *[(n, 1 + n % 2) for n in range(20)])
    with keeping(postgres_database, followed()) as opened:
        while opened.keeper.prune("job", rule="old", limit=limit).rows:
            pass
        assert postgres_database.query("SELECT count(*), min(job_id) FROM note") == [(10, 2)]


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_followers_are_reported_apart_where_inheriting_tables_repeat_a_key(
    postgres_database: PostgresDatabase, limit: int
) -> None:
    jobs(postgres_database, (1, "done", ago(30)), (2, "queued", ago(30)))
    postgres_database.script("""
        CREATE TABLE note (id int PRIMARY KEY, job_id int);
        CREATE TABLE old_note () INHERITS (note);
    """)
    insert(postgres_database, "note", "id, job_id", *[(n, 1) for n in range(10)])
    insert(postgres_database, "old_note", "id, job_id", *[(n, 2) for n in range(10)])
    with keeping(postgres_database, followed()) as opened:
        while opened.keeper.prune("job", rule="old", limit=limit).rows:
            pass
        assert postgres_database.query("SELECT count(*), min(job_id) FROM note") == [(10, 2)]


@pytest.mark.parametrize("limit", [1, 5, 100])
@pytest.mark.parametrize(
    "columns",
    [
        "rowid TEXT, job_id INTEGER",
        "ROWID TEXT, _rowid_ TEXT, job_id INTEGER",
        "id TEXT PRIMARY KEY, job_id INTEGER",
        "job_id INTEGER",
    ],
)
def test_followers_are_reported_apart_without_a_key_of_their_own(
    sqlite_database: SqliteDatabase, columns: str, limit: int
) -> None:
    """A column called rowid, or a key that is NULL, tells no two rows apart."""
    jobs(sqlite_database, (1, "done", ago(30)), (2, "queued", ago(30)))
    sqlite_database.execute(f"CREATE TABLE note ({columns})")
    insert(sqlite_database, "note", "job_id", *[(1 + n % 2,) for n in range(20)])
    with keeping(sqlite_database, followed()) as opened:
        taken = 0
        while pruned := opened.keeper.prune("job", rule="old", limit=limit).rows:
            taken += pruned
        assert taken == 11
        assert sqlite_database.query("SELECT count(*), min(job_id) FROM note") == [(10, 2)]


def test_a_table_without_row_numbers_may_follow(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database, (1, "done", ago(30)), (2, "queued", ago(30)))
    sqlite_database.execute("CREATE TABLE note (job_id INTEGER, n TEXT, PRIMARY KEY (job_id, n)) WITHOUT ROWID")
    insert(sqlite_database, "note", "job_id, n", *[(1 + n % 2, f"{n}") for n in range(20)])
    with keeping(sqlite_database, followed()) as opened:
        assert [opened.keeper.prune("job", rule="old", limit=4).rows for _ in range(4)] == [4, 4, 3, 0]
        assert sqlite_database.query("SELECT count(*), min(job_id) FROM note") == [(10, 2)]


@pytest.mark.parametrize(("parent", "child"), [("", "COLLATE NOCASE"), ("COLLATE NOCASE", ""), ("", "COLLATE RTRIM")])
@pytest.mark.parametrize("limit", [1, 100])
def test_a_reference_is_compared_as_the_parent_compares(
    sqlite_database: SqliteDatabase, parent: str, child: str, limit: int
) -> None:
    """As SQLite's own foreign keys do: under a parent of bytes, `A` has its own notes and keeps them."""
    sqlite_database.script(f"""
        CREATE TABLE job (id TEXT {parent} PRIMARY KEY, state TEXT, at_ms INTEGER);
        CREATE TABLE note (id INTEGER PRIMARY KEY, job_id TEXT {child} REFERENCES job (id));
        CREATE INDEX note_job ON note (job_id);
    """)
    insert(sqlite_database, "job", "id, state, at_ms", ("a", "done", ago(30)), ("b", "queued", ago(30)))
    if not parent:
        insert(sqlite_database, "job", "id, state, at_ms", ("A", "queued", ago(30)), ("a ", "queued", ago(30)))
    insert(sqlite_database, "note", "id, job_id", (1, "a"), (2, "A"), (3, "b"))
    if not parent:
        insert(sqlite_database, "note", "id, job_id", (4, "a "))
    with keeping(sqlite_database, followed()) as opened:
        step = opened.keeper.preview("job", rule="old")
        while opened.keeper.prune("job", rule="old", limit=limit).rows:
            pass
        assert opened.ids("note") == ([3] if parent else [2, 3, 4])
        counted = step.followers["note"]
        assert counted is not None
        assert counted.rows == (2 if parent else 1)


def test_a_key_that_is_unique_by_its_bytes_only_is_refused(sqlite_database: SqliteDatabase) -> None:
    """`a` and `A` are two rows of the index and one row of every comparison."""
    sqlite_database.script("""
        CREATE TABLE job (id TEXT COLLATE NOCASE NOT NULL, state TEXT, at_ms INTEGER);
        CREATE UNIQUE INDEX job_id ON job (id COLLATE BINARY);
    """)
    insert(sqlite_database, "job", "id, state, at_ms", ("a", "done", ago(30)), ("A", "queued", ago(1)))
    with keeping(sqlite_database, table(key=["id"])) as opened:
        with pytest.raises(BindError, match="not unique in job"):
            opened.keeper.prune("job", rule="old", limit=10)
        assert sorted(opened.ids()) == ["A", "a"]


def test_a_key_that_ignores_case_is_a_key(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.execute("CREATE TABLE job (id TEXT COLLATE NOCASE PRIMARY KEY, state TEXT, at_ms INTEGER)")
    insert(sqlite_database, "job", "id, state, at_ms", ("a", "done", ago(30)), ("B", "queued", ago(30)))
    with keeping(sqlite_database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1
        assert opened.ids() == ["B"]


def test_odd_names_of_followers_are_only_names(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "queued", ago(30)))
    database.script("""
        CREATE TABLE "no{te} %s" (id integer PRIMARY KEY, "job:{0}" integer);
        CREATE TABLE "pa{}ge" (id integer PRIMARY KEY, "n%%" integer);
    """)
    insert(database, '"no{te} %s"', 'id, "job:{0}"', (10, 1), (20, 2))
    insert(database, '"pa{}ge"', 'id, "n%%"', (100, 10), (200, 20))
    page = Follower(Reference(TableName("pa{}ge"), ("n%%",)))
    note = Follower(Reference(TableName("no{te} %s"), ("job:{0}",)), (), (page,))
    for limit in (1, 100):
        with keeping(database, followed(note)) as opened:
            while opened.keeper.prune("job", rule="old", limit=limit).rows:
                pass
            assert database.query('SELECT id FROM "no{te} %s"') == [(20,)]
            assert database.query('SELECT id FROM "pa{}ge"') == [(200,)]
        insert(database, "job", "id, state, at_ms", (1, "done", ago(30)))
        insert(database, '"no{te} %s"', 'id, "job:{0}"', (10, 1))
        insert(database, '"pa{}ge"', 'id, "n%%"', (100, 10))


def test_bits_are_a_key(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("""
        CREATE TABLE job (id bit(3) PRIMARY KEY, state text, at_ms bigint);
        CREATE TABLE note (id int PRIMARY KEY, job_id bit(3));
    """)
    insert(postgres_database, "job", "id, state, at_ms", ("101", "done", ago(30)), ("100", "queued", ago(30)))
    insert(postgres_database, "note", "id, job_id", (1, "101"), (2, "100"))
    with keeping(postgres_database, followed()) as opened:
        assert opened.keeper.prune("job", rule="old", limit=5).counts == {"job": 1, "note": 1}
        assert opened.ids("note") == [2]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("uuid", ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"]),
        ("timestamptz", ["2024-01-01 00:00:00.000001+00", "2024-01-01 00:00:00.000002+00"]),
        ("bytea", [b"\x00\xff'", b"\x00\xfe"]),
        ("numeric", ["1.50", "1.5000000000000000000000000001"]),
        ("double precision", ["0.1", "0.10000000000000002"]),
        ("character(4)", ["a", "b"]),
        ("interval", ["1 day", "25 hours"]),
        ('"char"', ["a", "b"]),
        ("date", ["2024-01-01", "2024-01-02"]),
        ("int[]", ["{1,2}", "{1}"]),
        ("inet", ["10.0.0.1", "10.0.0.2"]),
    ],
)
def test_keys_of_every_type_find_their_followers(
    postgres_database: PostgresDatabase, type_: str, values: list[object]
) -> None:
    postgres_database.script(f"""
        CREATE TABLE job (id {type_} PRIMARY KEY, state text, at_ms bigint);
        CREATE TABLE note (id int PRIMARY KEY, job_id {type_});
    """)
    first, second = values
    insert(postgres_database, "job", "id, state, at_ms", (first, "done", ago(30)), (second, "queued", ago(30)))
    insert(postgres_database, "note", "id, job_id", (1, first), (2, second), (3, first))
    with keeping(postgres_database, followed()) as opened:
        assert opened.keeper.prune("job", rule="old", limit=2).counts == {"job": 0, "note": 2}
        assert opened.keeper.prune("job", rule="old", limit=5).counts == {"job": 1, "note": 0}
        assert opened.ids("note") == [2]


@pytest.mark.parametrize("value", [1, 1.5, "one", b"\x00\x01", 2**62, "1", -0.0])
def test_untyped_keys_find_their_followers(sqlite_database: SqliteDatabase, value: object) -> None:
    sqlite_database.script("""
        CREATE TABLE job (id PRIMARY KEY, state TEXT, at_ms INTEGER);
        CREATE TABLE note (id INTEGER PRIMARY KEY, job_id);
    """)
    insert(sqlite_database, "job", "id, state, at_ms", (value, "done", ago(30)), ("other", "queued", ago(30)))
    insert(sqlite_database, "note", "id, job_id", (1, value), (2, "other"), (3, f"{value!r}!"))
    with keeping(sqlite_database, followed()) as opened:
        assert opened.keeper.prune("job", rule="old", limit=5).counts == {"job": 1, "note": 1}
        assert opened.ids("note") == [2, 3]


# --- What the database does by itself -------------------------------------------------------------------------------


def test_an_uncounted_cascade_is_refused(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    notes(database, (1, 1, "x"), foreign_key="job (id) ON DELETE CASCADE")
    with keeping(database) as opened:
        with pytest.raises(BindError, match="uncounted"):
            opened.keeper.prune("job", rule="old", limit=5)
        assert (opened.ids(), opened.ids("note")) == ([1], [1])


def test_a_follower_that_is_referred_to_from_elsewhere_stops_everything(database: Database) -> None:
    """The foreign key appears after the contract was bound: the database refuses, and nothing has changed."""
    jobs(database, (1, "done", ago(30)), (2, "done", ago(20)))
    notes(database, (1, 1, "x"), (2, 2, "x"), foreign_key="job (id)")
    with keeping(database, followed()) as opened:
        assert opened.keeper.prune("job", rule="old", limit=2).counts == {"job": 1, "note": 1}
        database.execute("CREATE TABLE page (id integer PRIMARY KEY, note_id integer REFERENCES note (id))")
        insert(database, "page", "id, note_id", (1, 2))
        with pytest.raises(StoreError, match=r"(?i)foreign key"):
            opened.keeper.prune("job", rule="old", limit=5)
        assert [opened.ids(name) for name in ("job", "note", "page")] == [[2], [2], [1]]
        assert len(opened.trail()) == 1


def test_a_guard_and_a_follower_of_one_table_go_together(database: Database) -> None:
    """Rows leave with their drafts, but not while a reply refers to them."""
    jobs(database, (1, "done", ago(30)), (2, "done", ago(30)))
    notes(database, (1, 1, "draft"), (2, 2, "draft"))
    database.execute("CREATE TABLE reply (id integer NOT NULL PRIMARY KEY, job_id integer)")
    insert(database, "reply", "id, job_id", (1, 2))
    declared = table("job", rule(unless=[referenced_by("reply.job_id")], followers=[follower("note.job_id")]))
    with keeping(database, declared) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 1, "note": 1}
        assert (opened.ids(), opened.ids("note")) == ([2], [2])


def test_the_age_of_a_follower_does_not_matter(database: Database) -> None:
    database.script("""
        CREATE TABLE event (id integer PRIMARY KEY, at_ms bigint);
        CREATE TABLE event_read (id integer PRIMARY KEY, event_id integer, at_ms bigint);
    """)
    insert(database, "event", "id, at_ms", (1, ago(30)), (2, ago(1)))
    insert(database, "event_read", "id, event_id, at_ms", (1, 1, ago(0)), (2, 2, ago(30)))
    declared = table(
        "event",
        rule(bound=Age(Time("at_ms", Unit.MILLISECONDS), WEEK), when=(), followers=[follower("event_read.event_id")]),
        state=None,
    )
    with keeping(database, declared) as opened:
        assert opened.keeper.prune("event", rule="old", limit=100).counts == {"event": 1, "event_read": 1}
        assert opened.ids("event_read") == [2]
