"""The archive forgets what the contract says, exactly that, for good, with what left with it; and nothing that is
held."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archive.cold import CONTRACT, DAY_MS, NOW_MS, PACE, Cold, cold_keeper, events
from archive.inline import InlineExecutor, without_spark
from servers import Database, SqliteDatabase
from wane._archive.delta import comparison, files
from wane._archive.delta.cold_table import ColdTable
from wane._archive.maintenance import rewrite as rewriting
from wane._archive.maintenance import upkeep
from wane._prune.sweep import Outcome
from wane.errors import ArchiveBusy, WrongArgument
from wane.events import HardDeleted

EXPIRING = CONTRACT.replace('keep = "forever"', 'keep = "200d"')
ROWS = 100
GOING = set(range(1, 50))
"""These are older than 200 days: some of a month that is due as a whole, the others of one that is due in part."""


def old_events(database: Database) -> None:
    events(database, 0)
    more_events(database, range(1, ROWS + 1))


def age_days(n: int) -> float:
    return 224.75 - n / 2 + (60 if n <= 10 else 0)


def more_events(database: Database, ids: range) -> None:
    database.executemany(
        "INSERT INTO event VALUES (?, 'done', ?, ?, ?)",
        [(n, NOW_MS - int(age_days(n % 1000) * DAY_MS), f"body {n}", n / 4) for n in ids],
    )
    database.executemany(
        "INSERT INTO event_read VALUES (?, ?, 'me')", [(n * 10 + m, n) for n in ids for m in range(n % 3)]
    )


def reads(ids: set[int]) -> list[int]:
    return sorted(n * 10 + m for n in ids for m in range(n % 3))


@contextmanager
def archived(database: Database, folder: Path, contract: str = EXPIRING) -> Iterator[Cold]:
    old_events(database)
    with cold_keeper(database, folder, contract) as cold:
        assert cold.one().outcome is Outcome.DONE
        assert len(cold.cold()) == ROWS
        cold.events.clear()
        yield cold


@pytest.mark.on_spark
@pytest.mark.sampled("sqlite")
def test_rows_past_their_window_go_with_what_left_with_them(database: Database, tmp_path: Path) -> None:
    with archived(database, tmp_path) as cold:
        before = {row["id"]: row for row in cold.archived()}
        [shown] = cold.keeper.archive.expire(dry_run=True)
        assert len(cold.cold()) == ROWS
        [done] = cold.keeper.archive.expire()
        assert (done.outcome, done.held, done.message) == (Outcome.DONE, None, "")
        assert shown.rows == done.rows
        left = set(range(1, ROWS + 1)) - GOING
        assert {table: sum(months.values()) for table, months in done.rows.items()} == {
            "event": len(GOING),
            "event_read": len(reads(GOING)),
        }
        assert {row["id"]: row for row in cold.archived()} == {n: before[n] for n in left}
        assert cold.cold("event_read") == reads(left)
        entries = cold.keeper.audit(kind="archive_expire")
        assert sum(entry.counts["event"] for entry in entries) == len(GOING)
        assert sum(entry.counts.get("event_read", 0) for entry in entries) == len(reads(GOING))
        assert {entry.actor for entry in entries} == {"tester"}
        reported = [event for event in cold.events if isinstance(event, HardDeleted)]
        assert {event.name for event in reported} == {"system/event_hard_deleted", "system/event_read_hard_deleted"}
        assert sum(event.rows for event in reported if event.table == "event") == len(GOING)
        assert {event.audit for event in reported} == {entry.id for entry in entries}
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]


def test_a_second_expiry_deletes_nothing_and_reports_it(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        cold.keeper.archive.expire()
        entries = len(cold.keeper.audit(kind="archive_expire"))
        [repeated] = cold.keeper.archive.expire()
        assert (repeated.outcome, repeated.rows) == (Outcome.DONE, {})
        newest, *rest = cold.keeper.audit(kind="archive_expire")
        assert newest.counts == {"event": 0, "event_read": 0}
        assert len(rest) == entries


def test_forever_is_forever(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path, CONTRACT) as cold:
        [done] = cold.keeper.archive.expire()
        assert (done.cutoff, done.rows) == (None, {})
        assert len(cold.cold()) == ROWS


@pytest.mark.frames_on_spark  # What held rows left with is found there.
@pytest.mark.sampled("postgres")
def test_a_hold_by_key_keeps_the_row_and_what_left_with_it(database: Database, tmp_path: Path) -> None:
    with archived(database, tmp_path) as cold:
        cold.keeper.hold("event", {"id": 5}, reason="a test")  # In a month that is due as a whole.
        cold.keeper.hold("event", {"id": 47}, reason="a test")
        held = cold.keeper.hold("event_read", {"id": 80}, reason="a test")  # It left with row 8.
        [done] = cold.keeper.archive.expire()
        stay = set(range(1, ROWS + 1)) - GOING | {5, 8, 47}
        assert done.outcome is Outcome.DONE, done.message
        assert cold.cold() == sorted(stay)
        assert cold.cold("event_read") == reads(stay)
        assert held.id is not None
        cold.keeper.release_hold(held.id)
        cold.keeper.archive.expire()
        assert cold.cold() == sorted(stay - {8})


def test_a_hold_on_a_table_keeps_all_of_its_archive(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        for table in ("event", "event_read"):
            held = cold.keeper.hold(table, None, reason="a test")
            [done] = cold.keeper.archive.expire()
            assert (done.outcome, done.held, done.rows) == (Outcome.DONE, f"{table} is held", {})
            assert held.id is not None
            cold.keeper.release_hold(held.id)
        assert len(cold.cold()) == ROWS


def test_a_hold_of_a_row_that_is_nowhere_is_refused(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold, pytest.raises(WrongArgument, match="has no row"):
        cold.keeper.hold("event", {"id": 4711}, reason="a test")


def test_a_hold_that_is_placed_meanwhile_counts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wane._archive.maintenance.upkeep import Upkeep

    with archived(database, tmp_path) as cold:
        planned = Upkeep.plan
        placed: list[object] = []

        def plan(this: Upkeep, *arguments: object) -> None:
            planned(this, *arguments)  # type: ignore[arg-type]
            if not placed:  # All is decided and written; nothing is committed yet.
                placed.append(cold.keeper.hold("event", {"id": 5}, reason="a test"))

        monkeypatch.setattr(Upkeep, "plan", plan)
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.DONE, done.message
        assert cold.cold() == sorted(set(range(1, ROWS + 1)) - GOING | {5})


def test_what_an_unfinished_sweep_wrote_is_unchanged(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        more_events(sqlite_database, range(1001, 1011))
        cold.at["committed"] = lambda: cold.keeper.disable("event")
        assert cold.one().outcome is Outcome.OFF
        cold.keeper.enable("event")
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.DONE, done.message
        assert [n for n in cold.cold() if n > 1000] == list(range(1001, 1011))
        assert [n for n in cold.cold() if n <= 1000] == sorted(set(range(1, ROWS + 1)) - GOING)
        assert cold.one().outcome is Outcome.DONE
        cold.keeper.archive.expire()
        assert cold.cold() == sorted(set(range(1, ROWS + 1)) - GOING)


def test_flags_gate_it(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        cold.keeper.disable("event")
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.OFF
        assert "retention.event.enabled is off" in done.message
        assert len(cold.cold()) == ROWS


def test_a_floor_is_above_the_window(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        from dataclasses import replace
        from datetime import timedelta

        from wane._archive.facade import Archive
        from wane._contract.names import TableName

        floored = replace(cold.keeper.contract, floors=((TableName.parse("event"), timedelta(days=212)),))
        [done] = Archive(cold.keeper.store, floored, actor="tester").expire()
        assert sum(done.rows["event"].values()) == 25
        assert cold.cold() == list(range(26, ROWS + 1))


def test_followers_that_two_tables_share_go_with_their_own_rows_only(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    database = sqlite_database
    database.execute("CREATE TABLE deed (id integer PRIMARY KEY, at_ms integer NOT NULL)")
    database.execute("CREATE INDEX deed_due ON deed (at_ms, id)")
    old_events(database)
    database.execute("ALTER TABLE event_read ADD COLUMN deed_id integer REFERENCES deed (id)")
    database.execute("CREATE INDEX event_read_deed ON event_read (deed_id)")
    database.execute("PRAGMA foreign_keys = off")
    old = NOW_MS - 284 * DAY_MS
    database.executemany("INSERT INTO deed VALUES (?, ?)", [(n, old) for n in range(1, 6)])
    database.executemany(
        "INSERT INTO event_read (id, event_id, who, deed_id) VALUES (?, 10001, 'deed', ?)",
        [(50_000 + n, n) for n in range(1, 6)],
    )
    contract = (
        EXPIRING
        + """
[archive.deed]
keep = "forever"
[table.deed]
scheduler = "night"
why = "a test"
time = {{ column = "at_ms", unit = "ms" }}
[table.deed.rule.cold]
keep = "90d"
then = "archive"
with = ["event_read.deed_id"]
"""
    )
    contract = contract.replace("[spark]", "", 1).replace("range_rows = 60\nlease_seconds = 60\n", "", 1)
    with cold_keeper(database, tmp_path, contract + "[spark]\nrange_rows = 60\nlease_seconds = 60\n") as cold:
        assert {rule.outcome for rule in cold.run().rules} == {Outcome.DONE}
        [done, endless] = cold.keeper.archive.expire()
        assert (done.outcome, endless.cutoff) == (Outcome.DONE, None)
        left = set(range(1, ROWS + 1)) - GOING
        assert cold.cold("event_read") == sorted([*reads(left), *(50_000 + n for n in range(1, 6))])


@pytest.mark.parametrize("rows_at_once", [rewriting._ROWS_AT_ONCE, 15])
def test_rows_are_read_once_for_all_files_of_what_left_with_them(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr(rewriting, "_ROWS_AT_ONCE", rows_at_once)
    reading: Counter[tuple[str, str]] = Counter()

    def counted(path: Path, shape: Any) -> Any:
        reading[path.parents[1].name, path.name] += 1
        return comparison.groups(path, shape)

    with archived(database, tmp_path, EXPIRING.replace("range_rows = 60", "range_rows = 5")) as cold:
        monkeypatch.setattr(rewriting, "groups", counted)
        [shown] = cold.keeper.archive.expire(dry_run=True)
        reads_of = {name: [n for (table, _), n in reading.items() if table == name] for name in ("event", "event_read")}
        assert len(reads_of["event_read"]) > 3
        assert set(reads_of["event_read"]) == {1}
        if rows_at_once > ROWS:  # Once to decide about the rows themselves, and once about what left with them.
            assert max(reads_of["event"]) == 2
        [done] = cold.keeper.archive.expire()
        assert done.rows == shown.rows
        left = set(range(1, ROWS + 1)) - GOING
        assert (cold.cold(), cold.cold("event_read")) == (sorted(left), reads(left))


def test_events_are_written_to_the_applications_outbox(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE outbox (id text PRIMARY KEY, kind text NOT NULL, rows bigint, at_ms bigint, body text)"
    )
    outbox = """
[events]
outbox = {{ table = "outbox", columns = {{ id = "{{uuid}}", kind = "{{name}}", rows = "{{rows}}", at_ms = "{{now_ms}}", body = "{{payload}}" }} }}
[excused]
outbox = {{ elsewhere = "the application reads it" }}
"""
    with archived(database, tmp_path, EXPIRING + outbox) as cold:
        [(kind, rows, body)] = database.query("SELECT kind, rows, body FROM outbox")
        assert (kind, rows, json.loads(body)["sweep"]) == ("system/event_archived", ROWS, 1)
        cold.keeper.archive.expire()
        reported: dict[str, int] = dict(database.query("SELECT kind, sum(rows) FROM outbox GROUP BY kind"))
        assert reported["system/event_hard_deleted"] == len(GOING)
        assert reported["system/event_read_hard_deleted"] == len(reads(GOING))
        [(at_ms,)] = database.query("SELECT max(at_ms) FROM outbox")
        assert abs(at_ms - NOW_MS) < DAY_MS


def test_nothing_goes_that_the_outbox_cannot_be_reported_of(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    sqlite_database.execute(
        "CREATE TABLE outbox (id bigint PRIMARY KEY, kind text NOT NULL CHECK (kind NOT LIKE '%hard_deleted'))"
    )
    outbox = """
[events]
outbox = {{ table = "outbox", columns = {{ id = "{{now_ms}}", kind = "{{name}}" }} }}
[excused]
outbox = {{ elsewhere = "the application reads it" }}
"""
    with archived(sqlite_database, tmp_path, EXPIRING + outbox) as cold:
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.FAILED
        assert "cannot be written to outbox" in done.message
        assert len(cold.cold()) == ROWS
        assert cold.keeper.audit(kind="archive_expire") == []


def test_what_an_unfinished_restore_returns_is_not_forgotten_meanwhile(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        now = "2026-01-01T00:00:00.000000Z"
        sqlite_database.execute(
            "INSERT INTO wane_archive_restore (table_name, state, staged, on_conflict, inputs, actor, planned_at, changed_at)"
            " VALUES ('event', 'planned', 'x', 'refuse', '{}', 'somebody', ?, ?)",
            (now, now),
        )
        [done] = cold.keeper.archive.expire()
        assert (done.outcome, done.rows) == (Outcome.FAILED, {})
        assert "restore 1 of event is unfinished" in done.message
        assert len(cold.cold()) == ROWS


def test_an_expiry_whose_files_cannot_be_trusted_changes_nothing(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        cold.keeper.hold("event", {"id": 5}, reason="so that at least its month is written anew")
        before = cold.archived()

        class Forging(InlineExecutor):
            def run(self, task: Any, count: int, progress: object = None) -> Iterator[str]:
                answers = list(super().run(task, count))
                if task.func is rewriting._task:
                    for path in (cold.folder / "cold").glob("event/*/expire-*.parquet"):
                        rows = pq.ParquetFile(path).read()
                        at = rows.column_names.index("body")
                        pq.write_table(rows.set_column(at, "body", pa.array(["forged"] * len(rows))), path)
                yield from answers

        without_spark(monkeypatch, Forging)
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.FAILED
        assert "does not hold what was left" in done.message
        held = {row["id"]: row for row in cold.archived()}
        assert {row["id"]: row for row in before if row["id"] in held} == held
        assert 5 in held
        assert not [entry for entry in cold.keeper.audit(kind="archive_expire") if not entry.rows]


class Died(BaseException):
    """What no product code catches."""


@pytest.mark.parametrize("after", ["event", "event_read"])
def test_who_dies_between_the_commits_is_finished_by_the_next_and_reported_once(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    with archived(sqlite_database, tmp_path) as cold:

        def replace(table: ColdTable, *arguments: Any, **options: Any) -> None:
            files.replace(table, *arguments, **options)
            if table.name == after:
                raise Died

        monkeypatch.setattr(upkeep, "replace", replace)
        with pytest.raises(Died):
            cold.keeper.archive.expire()
        assert cold.keeper.audit(kind="archive_expire") == []
        with pytest.raises(ArchiveBusy, match="a process died"):
            cold.keeper.hold("event", {"id": 60}, reason="nobody can say yet what is left")
        monkeypatch.undo()
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.DONE, done.message
        left = set(range(1, ROWS + 1)) - GOING
        assert (cold.cold(), cold.cold("event_read")) == (sorted(left), reads(left))
        reported = cold.keeper.audit(kind="archive_expire")
        assert sum(entry.counts.get("event", 0) for entry in reported) == len(GOING)
        assert sum(entry.counts.get("event_read", 0) for entry in reported) == len(reads(GOING))


@pytest.mark.frames_on_spark  # What held rows left with is found there.
@pytest.mark.sampled
def test_what_is_left_after_a_restore_is_held_and_expires_as_before(database: Database, tmp_path: Path) -> None:
    with archived(database, tmp_path) as cold:
        # Copies that leave are taken out by Delta Lake, which writes the rest of their files in types of its own.
        assert cold.keeper.archive.restore("event", where="id IN (2, 20, 60)", pace=PACE).restored["event"] == 3
        held = cold.keeper.hold("event", {"id": 21}, reason="evidence")
        assert held.key == '["21"]'
        [shown] = cold.keeper.archive.expire(dry_run=True)
        [done] = cold.keeper.archive.expire()
        assert (done.outcome, done.message) == (Outcome.DONE, "")
        assert done.rows == shown.rows
        staying = (set(range(1, ROWS + 1)) - GOING - {60}) | {21}
        assert cold.cold() == sorted(staying)
        assert cold.cold("event_read") == reads(staying)


DAYS = """
[store]
url = {url}
[archive]
url = "cold"
[archive.event]
keep = "%ds"
[scheduler]
night = {{ every = "1h" }}
[table.event]
scheduler = "night"
why  = "a test"
time = {{ column = "day", unit = "date" }}
[table.event.rule.cold]
keep = "30d"
then = "archive"
"""


def test_days_are_in_their_own_month_and_expire_when_they_have_ended(database: Database, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    first = (now - timedelta(days=150)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    last = first - timedelta(days=1)
    database.execute(
        f"CREATE TABLE event (id bigint PRIMARY KEY, day {'date' if database.store == 'postgres' else 'TEXT'})"
    )
    days = [last - timedelta(days=10), last, first]
    database.executemany("INSERT INTO event VALUES (?, ?)", [(n, f"{day:%Y-%m-%d}") for n, day in enumerate(days)])
    # The last day of a month has ended when the next month begins.
    for age, left in ((first - timedelta(hours=2), [1, 2]), (first + timedelta(hours=2), [2])):
        with cold_keeper(database, tmp_path, DAYS % (now - age).total_seconds()) as cold:
            if cold.hot():
                assert cold.one().outcome is Outcome.DONE
                assert {row["id"]: row["_month"] for row in cold.archived()} == {
                    n: f"{day:%Y-%m}" for n, day in enumerate(days)
                }
            cold.keeper.archive.expire()
            assert cold.cold() == left
