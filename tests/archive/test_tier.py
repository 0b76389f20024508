"""Rows in another schema of the same database: they expire, come back, and are listed, under holds and with audit
rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from archive.cold import DAY_MS, NOW_MS, STAYING, Cold, cold_keeper, events
from archive.test_cold_tier import PACE, SHELVED, everything, shelved, sweep
from servers import Database, PostgresDatabase
from wane._archive.model import OLDER, Restored
from wane._archive.tier.sql import parse_comparisons
from wane._archive.tier.tier import _TierRestore
from wane._cli import app
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, WrongArgument
from wane.events import ArchiveMaintained, HardDeleted, RowsRestored

KEEP = SHELVED.replace('keep = "forever"', 'keep = "199d"')
"""Rows are archived after 90 days; the oldest of `events` are 200 days old, and each is an hour younger than the one
before."""
CUTOFF_MS = NOW_MS - 199 * DAY_MS


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    return postgres_database


def back(cold: Cold, **options: Any) -> Restored:
    return cold.keeper.archive.restore("event", pace=PACE, **options)


def all_rows(database: Database, table: str = "event") -> list[Any]:
    return sorted([*database.query(f"SELECT * FROM {table}"), *everything(shelved(database, table))])


def test_rows_older_than_keep_expire_in_batches_with_what_left_with_them(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 100)
    with cold_keeper(database, tmp_path, KEEP) as cold:
        sweep(cold)
        cold.keeper.hold("event", reason="all of it")
        assert cold.keeper.archive.expire("event")[0].rows == {}
        [hold] = cold.keeper.holds()
        assert hold.id is not None
        cold.keeper.release_hold(hold.id)
        before = everything(shelved(database))
        old = {row[0] for row in before if row[2] < CUTOFF_MS}
        reads = {row[0] for row in everything(shelved(database, "event_read")) if row[1] in old}
        [would] = cold.keeper.archive.expire("event", dry_run=True)
        assert would.dry_run
        assert sum(would.rows["event"].values()) in (len(old), len(old) + 1)
        assert everything(shelved(database)) == before
        [done] = cold.keeper.archive.expire("event")
        assert done.outcome is Outcome.DONE, done.message
        left = {row[0] for row in everything(shelved(database))}
        gone = {row[0] for row in before} - left
        assert old <= gone
        assert len(gone - old) <= 1, "the clock goes on"
        assert not {row[1] for row in everything(shelved(database, "event_read"))} & gone
        assert sum(done.rows["event"].values()) == len(gone) > 0
        assert sum(done.rows["event_read"].values()) >= len(reads) > 0
        entries = cold.keeper.audit(kind="archive_expire")
        assert entries[0].counts == {name: sum(months.values()) for name, months in done.rows.items()}
        assert set(entries[-1].counts.values()) == {0}, "one that took nothing is recorded too"
        assert [one.rows for one in cold.events if isinstance(one, ArchiveMaintained)][-1] == entries[0].counts


OUTBOX = """
[events]
outbox = {{ table = "outbox", columns = {{ id = "{{uuid}}", kind = "{{name}}", rows = "{{rows}}", body = "{{payload}}" }} }}
[excused]
outbox = {{ elsewhere = "the application reads it" }}
"""


@pytest.mark.parametrize("refused", [False, True], ids=["written", "refused"])
def test_rows_that_expire_are_written_to_the_applications_outbox_or_stay(
    database: PostgresDatabase, tmp_path: Path, refused: bool
) -> None:
    check = "CHECK (kind NOT LIKE '%event_read_hard_deleted')" if refused else ""
    database.execute(f"CREATE TABLE outbox (id text PRIMARY KEY, kind text NOT NULL {check}, rows bigint, body text)")
    events(database, 60)
    with cold_keeper(database, tmp_path, KEEP + OUTBOX) as cold:
        sweep(cold)
        before = everything(shelved(database))
        database.execute("DELETE FROM outbox")
        [done] = cold.keeper.archive.expire("event")
        written = database.query("SELECT kind, rows, body FROM outbox")
        if refused:
            assert (done.outcome, written) == (Outcome.FAILED, [])
            assert "cannot be written to outbox" in done.message
            assert everything(shelved(database)) == before, "no row goes without its event"
            return
        assert done.outcome is Outcome.DONE, done.message
        gone = {name: sum(months.values()) for name, months in done.rows.items()}
        reported = dict.fromkeys(gone, 0)
        [entry] = cold.keeper.audit(kind="archive_expire")
        for kind, rows, body in written:
            name = json.loads(body)["table"]
            assert (kind, json.loads(body)["audit"]) == (f"system/{name}_hard_deleted", entry.id)
            reported[name] += rows
        assert reported == gone == entry.counts
        assert gone["event"] == len(before) - len(everything(shelved(database))) > 0
        deleted = [(one.table, one.rows) for one in cold.events if isinstance(one, HardDeleted)]
        assert dict(deleted) == gone


def test_a_held_row_and_the_row_of_a_held_follower_do_not_expire(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path, KEEP) as cold:
        sweep(cold)
        [(read,)] = database.query("SELECT max(id) FROM archive." + min(shelved(database, "event_read")))
        follows = database.query(
            f"SELECT event_id FROM archive.{min(shelved(database, 'event_read'))} WHERE id = {read}"
        )
        cold.keeper.hold("event", {"id": 1}, reason="evidence")
        cold.keeper.hold("event_read", {"id": read}, reason="evidence")
        cold.keeper.archive.expire("event")
        assert {1, follows[0][0]} <= {row[0] for row in everything(shelved(database))}
        assert read in {row[0] for row in everything(shelved(database, "event_read"))}


def test_chosen_rows_come_back_with_what_left_with_them_and_are_protected(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 60)
    before, reads = all_rows(database), all_rows(database, "event_read")
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        sweep(cold)
        would = back(cold, where="id >= 5 AND status = 'done' AND id <= 40", dry_run=True)
        assert (would.restored["event"], cold.hot()) == (36, STAYING)
        done = back(cold, where="id >= 5 AND status = 'done' AND id <= 40")
        assert done.restored == done.chosen == would.restored
        assert cold.hot() == [*range(5, 41), *STAYING]
        assert (all_rows(database), all_rows(database, "event_read")) == (before, reads)
        [entry] = cold.keeper.audit(kind="restore")
        assert entry.counts == done.restored
        [event] = [one for one in cold.events if isinstance(one, RowsRestored)]
        assert event.restored == done.restored
        assert sweep(cold).counts == {"event": 0}, "they are protected"
        for hold in cold.keeper.holds(limit=1_000):
            assert hold.id is not None
            cold.keeper.release_hold(hold.id)
        assert sweep(cold).counts["event"] == 36
        assert back(cold, keys=[{"id": 7}], protect=timedelta(0)).restored["event"] == 1
        assert cold.keeper.holds() == []


def test_a_restore_ends_though_the_rule_moves_its_rows_to_the_archive_meanwhile(
    database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 100)
    before = all_rows(database)
    batch, batches = _TierRestore._batch, list[int]()
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        sweep(cold)

        def then_sweep(self: _TierRestore, *arguments: Any) -> dict[str, int]:
            counts = batch(self, *arguments)
            batches.append(counts["event"])
            assert len(batches) < 30, "it goes on"
            sweep(cold)
            return counts

        monkeypatch.setattr(_TierRestore, "_batch", then_sweep)
        done = back(cold, where="id <= 50", protect=timedelta(0))
        assert sum(batches) == done.restored["event"] == done.chosen["event"] == 50
        assert all_rows(database) == before


def test_another_row_with_the_key_is_unchanged_and_refused_rows_stay(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        sweep(cold)
        database.execute("INSERT INTO event (id, status, at_ms) VALUES (3, 'open', 1)")
        database.execute("ALTER TABLE event ADD CONSTRAINT small CHECK (id <> 5)")
        with pytest.raises(ArchiveError, match="other rows have their keys"):
            back(cold, where="id <= 6")
        with pytest.raises(WrongArgument, match="replace no others"):
            back(cold, where="id <= 6", on_conflict="replace")
        done = back(cold, where="id <= 6", on_conflict="skip")
        assert (done.restored["event"], done.unrestored) == (4, 2)
        assert any("small" in reason for _, reason in done.reasons)
        assert {3, 5} < {row[0] for row in everything(shelved(database))}
        assert database.query("SELECT status FROM event WHERE id = 3") == [("open",)]


def reuse(cold: Cold, ids: range, at_ms: int, body: str) -> None:
    """Archive rows whose keys were archived before."""
    rows = [(n, "done", at_ms, body, 1) for n in ids]
    cold.database.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", rows)
    assert sweep(cold).counts["event"] == len(ids)


@pytest.mark.parametrize("later_days", [0, 60], ids=["one month", "two months"])
def test_of_a_key_that_was_archived_twice_the_newest_comes_back_and_the_other_is_reported(
    database: PostgresDatabase, tmp_path: Path, later_days: int
) -> None:
    at_ms = NOW_MS - 200 * DAY_MS
    events(database, 0)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        reuse(cold, range(1, 6), at_ms, "first")
        reuse(cold, range(1, 4), at_ms + later_days * DAY_MS, "second")
        would = back(cold, where="id <= 4", dry_run=True)
        assert (would.chosen["event"], would.restored["event"], would.unrestored) == (7, 4, 3)
        done = back(cold, where="id <= 4")
        assert (done.chosen["event"], done.restored["event"], done.unrestored) == (7, 4, 3)
        assert done.reasons == would.reasons
        assert [key for key, _ in done.reasons] == ['["1"]', '["2"]', '["3"]']
        assert {reason for _, reason in done.reasons} == {OLDER}
        [event] = [one for one in cold.events if isinstance(one, RowsRestored)]
        assert event.unrestored == 3
        hot = database.query("SELECT id, body FROM event WHERE id < 10 ORDER BY id")
        assert hot == [(1, "second"), (2, "second"), (3, "second"), (4, "first")]
        left = [(row[0], row[3]) for row in everything(shelved(database))]
        assert left == [(1, "first"), (2, "first"), (3, "first"), (5, "first")]
        with pytest.raises(ArchiveError, match=r'3 rows are not restored: other rows .*: \["1"\], \["2"\], \["3"\]'):
            back(cold, where="id <= 4")


def test_a_version_that_is_chosen_by_itself_comes_back_whatever_was_archived_later(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 0)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        for body in ("first", "second"):
            reuse(cold, range(1, 4), NOW_MS - 200 * DAY_MS, body)
        done = back(cold, where="id <= 2 AND body = 'first'")
        assert (done.chosen["event"], done.restored["event"], done.unrestored) == (2, 2, 0)
        assert database.query("SELECT id, body FROM event WHERE id < 10 ORDER BY id") == [(1, "first"), (2, "first")]


def test_an_older_version_does_not_come_back_for_a_newer_one_that_is_refused(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    at_ms = NOW_MS - 200 * DAY_MS
    events(database, 0)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        reuse(cold, range(1, 4), at_ms, "first")
        reuse(cold, range(1, 4), at_ms, "second")
        reuse(cold, range(1, 2), at_ms + 60 * DAY_MS, "third")
        database.execute(
            "ALTER TABLE event ADD CONSTRAINT small CHECK (body <> 'third' AND (id <> 2 OR body <> 'second'))"
        )
        done = back(cold, where="id <= 3")
        assert (done.chosen["event"], done.restored["event"], done.unrestored) == (7, 1, 6)
        refused = {key for key, reason in done.reasons if "small" in reason}
        assert refused == {'["1"]', '["2"]'}
        assert database.query("SELECT id, body FROM event WHERE id < 10") == [(3, "second")]


def test_a_row_whose_key_is_taken_during_a_restore_is_reported(
    database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 0)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        reuse(cold, range(1, 4), NOW_MS - 200 * DAY_MS, "first")
        choosing = _TierRestore._chosen

        def chosen(this: Any) -> Any:
            found = choosing(this)
            database.execute("INSERT INTO event (id, status, at_ms) VALUES (2, 'open', 1)")
            return found

        monkeypatch.setattr(_TierRestore, "_chosen", chosen)
        done = back(cold, where="id <= 3")
        assert (done.restored["event"], done.unrestored) == (2, 1)
        assert ["meanwhile" in reason for _, reason in done.reasons] == [True]


def test_values_of_a_dropped_column_are_not_lost_by_a_restore(database: PostgresDatabase, tmp_path: Path) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        sweep(cold)
    database.execute("ALTER TABLE event DROP COLUMN body")
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        with pytest.raises(ArchiveError, match="has values of body"):
            back(cold, where="id = 1")
        assert cold.hot() == STAYING


def test_only_comparisons_are_taken_as_a_condition() -> None:
    [first, second] = parse_comparisons("id >= -5 AND \"odd name\" = 'it''s'")
    assert (first.column, first.sign, first.value) == ("id", ">=", "-5")
    assert (second.column, second.value) == ("odd name", "it's")
    for text in (
        "",
        "id = 1; DROP TABLE event",
        "id IN (SELECT 1)",
        "id = 1 OR 1 = 1",
        "pg_sleep(1) = 1",
        "id = other",
    ):
        with pytest.raises(WrongArgument, match="comparisons"):
            parse_comparisons(text)


def test_commands_list_expire_and_restore_it_and_state_where_the_rest_is(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path, KEEP) as cold:
        sweep(cold)

        def run(*words: str) -> tuple[int, str]:
            done = CliRunner().invoke(app, ["archive", *words, "--contract", str(tmp_path / "wane.toml")])
            return done.exit_code, " ".join(done.output.split())

        code, shown = run("ls")
        assert (code, "archive.event_<yyyymm>" in shown) == (0, True), shown
        code, shown = run("restore", "event", "--key", "id=1")
        assert code == 0, shown
        assert 1 in cold.hot()
        code, shown = run("expire", "event")
        assert code == 0, shown
        archive = cold.keeper.archive
        for refused in (
            lambda: archive.read("event"),
            lambda: archive.verify("event"),
            lambda: back(cold, sweep=1),
            lambda: back(cold, where="id = 1", into="beside"),
        ):
            with pytest.raises(WrongArgument, match="in the same database"):
                refused()


def test_a_command_that_leaves_an_older_version_reports_it_and_succeeds(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    events(database, 0)
    with cold_keeper(database, tmp_path, SHELVED) as cold:
        for body in ("first", "second"):
            reuse(cold, range(1, 3), NOW_MS - 200 * DAY_MS, body)
        words = ["archive", "restore", "event", "--where", "id <= 2", "--contract", str(tmp_path / "wane.toml")]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert "2 rows stay in the archive" in done.output
        assert OLDER in " ".join(done.output.split())


KILLED = """
import os, signal, sys
from pathlib import Path
import wane._prune.batches as batches
from archive.test_cold_tier import PACE
from wane._keeper import open_keeper

work, at, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
record, done = batches.OpenBatch.record, [0]

def dying(self, counts):
    record(self, counts)
    done[0] += 1
    if done[0] == at:
        os.kill(os.getpid(), signal.SIGKILL)

batches.OpenBatch.record = dying
with open_keeper(contract=Path(folder) / "wane.toml", actor="tester") as keeper:
    if work == "expire":
        keeper.archive.expire("event")
    else:
        keeper.archive.restore("event", where="id > 0", pace=PACE)
"""


@pytest.mark.crash
@pytest.mark.parametrize("work", ["expire", "restore"])
def test_a_kill_between_two_batches_loses_nothing_and_the_trail_has_what_left(
    database: PostgresDatabase, tmp_path: Path, work: str
) -> None:
    events(database, 90)
    with cold_keeper(database, tmp_path, SHELVED.replace('keep = "forever"', 'keep = "100d"')) as cold:
        sweep(cold)
        before = len(everything(shelved(database)))
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, work, "2", str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        left = len(everything(shelved(database)))
        kind = "restore" if work == "restore" else "archive_expire"
        recorded = sum(entry.counts["event"] for entry in cold.keeper.audit(kind=kind))
        assert recorded == before - left
        assert len(cold.hot()) - len(STAYING) == (recorded if work == "restore" else 0)
        if work == "restore":
            back(cold, where="id > 0")
            assert len(cold.hot()) == before + len(STAYING)
        else:
            cold.keeper.archive.expire("event")
        assert everything(shelved(database)) == []
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind=kind)) == before
