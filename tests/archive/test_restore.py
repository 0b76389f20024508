"""Restoring: chosen rows come back exactly, with what left with them, and are in one place when it is done."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from archive import inline
from archive.cold import CONTRACT, NOW_MS, OLD_MS, PACE, STAYING, Cold, cold_keeper, conserve, events, insert_events
from archive.inline import InlineExecutor, stage
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._archive.journal import Journal
from wane._archive.model import Restored
from wane._archive.restore import loading
from wane._archive.restore import restore as restoring
from wane._archive.restore.journal import RestoreJournal, batches_of
from wane._archive.restore.loading import load_pieces
from wane._archive.rows.dialects import archive_dialect
from wane._archive.spark.connect import opened
from wane._check.cover import uncovered
from wane._check.propose import propose
from wane._cli import app
from wane._contract.names import TableName
from wane._db.postgres.gate import GATE
from wane._prune.sql_activity import activity_of
from wane._prune.sweep import Outcome
from wane.errors import ArchiveBusy, ArchiveError, WrongArgument

EVENT = "SELECT id, status, at_ms, body, amount FROM event ORDER BY id"
READ = "SELECT id, event_id, who FROM event_read ORDER BY id"


def back(cold: Cold, **options: Any) -> Restored:
    return cold.keeper.archive.restore("event", pace=PACE, **options)


def content(database: Database) -> dict[str, list[Any]]:
    return {"event": database.query(EVENT), "event_read": database.query(READ)}


def ever(database: Database) -> dict[str, set[int]]:
    return {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in ("event", "event_read")}


def trail(database: Database, kind: str) -> Counter[str]:
    audit = "wane_audit" if database.store == "sqlite" else "wane.audit"
    found: Counter[str] = Counter()
    for (counts,) in database.query(f"SELECT counts FROM {audit} WHERE kind = '{kind}'"):
        found.update(json.loads(counts) if isinstance(counts, str) else counts)
    return found


def test_what_another_row_has_taken_the_key_of_is_refused_skipped_or_replaced(
    database: Database, tmp_path: Path
) -> None:
    events(database, 12)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        old: dict[int, str] = dict(
            database.query(EVENT.replace("id, status, at_ms, body, amount", "id, body"))
        )  # Only those that never left.
        database.executemany(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?)",
            [(1, "done", 5, "another", None), (2, "open", 5, "alive", None), (4, "done", 5, "held", None)],
        )
        database.execute(
            "INSERT INTO event_read VALUES (?, ?, ?)", (50, 1, "another")
        )  # Has the key of a follower of 5.
        cold.keeper.hold("event", {"id": 4}, reason="evidence")
        before, archived = content(database), cold.cold()
        with pytest.raises(ArchiveError, match="other rows have their keys") as refused:
            back(cold, where="id <= 5")
        assert '["1"]' in str(refused.value), "the first of them are named"
        assert (content(database), cold.cold()) == (before, archived), "nothing was changed"
        skipped = back(cold, where="id <= 5", on_conflict="skip")
        assert cold.progress("restore")[-1] == (5, 5), "those that stay count too"
        assert skipped.restored["event"] == 1  # Only 3: of 5 a follower's key is taken.
        assert skipped.unrestored == 4
        assert {reason for _, reason in skipped.reasons} == {"another row has its key"}
        assert dict(database.query("SELECT id, body FROM event WHERE id < 5")) == {
            1: "another",
            2: "alive",
            3: "body 3 \U0001f600",
            4: "held",
        }
        assert {1, 2, 4, 5} <= set(cold.cold())
        replaced = back(cold, where="id <= 5", on_conflict="replace")
        assert dict(replaced.reasons) == {
            '["2"]': "the row that has its key is live",
            '["4"]': "the row that has its key is held",
        }
        assert replaced.replaced == 2
        assert dict(database.query("SELECT id, body FROM event WHERE id < 6")) == {
            1: "body 1 \U0001f600",
            2: "alive",
            3: "body 3 \U0001f600",
            4: "held",
            5: "body 5 \U0001f600",
        }
        assert database.query("SELECT event_id, who FROM event_read WHERE id = 50") == [(5, "me")]
        assert trail(database, "replace") == Counter({"event": 1, "event_read": 1})
        assert {2, 4} <= set(cold.cold())
        assert not {1, 3, 5} & set(cold.cold())
        assert set(old) == set(STAYING)


FAMILY = """
[store]
url = {url}
[archive]
url = "cold"
[archive.batch]
keep = "forever"
[scheduler]
night = {{ every = "1h" }}
[table.batch]
scheduler = "night"
why   = "a test"
state = "status"
live  = ["open"]
time  = {{ column = "at_ms", unit = "ms" }}
[table.batch.rule.cold]
when = ["done"]
keep = "90d"
then = "archive"
with = [{{ table = "job", columns = ["batch_id"], with = ["attempt.job_id"] }}]
[table.job]
scheduler = "night"
why   = "A job that runs stays."
state = "status"
live  = ["running"]
excused = {{ parked = {{ constant = "a few" }} }}
time  = {{ column = "at_ms", unit = "ms" }}
[table.job.rule.done]
when = ["done"]
keep = "30d"
[table.attempt]
scheduler = "night"
why   = "An attempt that runs stays."
state = "status"
live  = ["running"]
time  = {{ column = "at_ms", unit = "ms" }}
[table.attempt.rule.done]
when = ["done"]
keep = "30d"
"""


def families(database: Database, count: int) -> None:
    """Insert old batches, each with a job and an attempt of its own number; and batch 100, young, without any."""
    for statement in (
        "CREATE TABLE batch (id bigint PRIMARY KEY, status text NOT NULL, at_ms bigint NOT NULL)",
        "CREATE TABLE job (id bigint PRIMARY KEY, batch_id bigint NOT NULL REFERENCES batch (id), status text, at_ms bigint)",
        "CREATE TABLE attempt (id bigint PRIMARY KEY, job_id bigint NOT NULL REFERENCES job (id), status text, at_ms bigint)",
        "CREATE INDEX batch_due ON batch (status, at_ms, id)",
        "CREATE INDEX job_batch ON job (batch_id)",
        "CREATE INDEX job_due ON job (status, at_ms, id)",
        "CREATE INDEX attempt_job ON attempt (job_id)",
        "CREATE INDEX attempt_due ON attempt (status, at_ms, id)",
    ):
        database.execute(statement)
    numbers = range(1, count + 1)
    database.executemany("INSERT INTO batch VALUES (?, 'done', ?)", [(n, OLD_MS + n) for n in numbers])
    database.executemany("INSERT INTO job VALUES (?, ?, 'done', ?)", [(n, n, OLD_MS) for n in numbers])
    database.executemany("INSERT INTO attempt VALUES (?, ?, 'done', ?)", [(n, n, OLD_MS) for n in numbers])


def test_no_live_or_held_row_is_replaced_in_any_table(database: Database, tmp_path: Path) -> None:
    families(database, 9)
    with cold_keeper(database, tmp_path, FAMILY) as cold:
        cold.one()
        assert cold.cold("batch") == list(range(1, 10))
        database.executemany(
            "INSERT INTO batch VALUES (?, ?, ?)", [(100, "done", NOW_MS), (101, "open", NOW_MS), (102, "done", NOW_MS)]
        )
        jobs = [
            (1, 100, "running", 1),  # Live.
            (2, 100, "parked", 1),  # No rule lets it go.
            (3, 100, "new", 1),  # A state that the contract does not know.
            (4, 100, None, 1),
            (5, 100, "done", 1),  # Held.
            (6, 101, "done", 1),  # Belongs to a live batch.
            (7, 102, "done", 1),  # Belongs to a held batch.
            (20, 100, "done", 1),
            (9, 100, "done", 1),  # Finished: it is replaced.
        ]
        database.executemany("INSERT INTO job VALUES (?, ?, ?, ?)", jobs)
        database.execute("INSERT INTO attempt VALUES (8, 20, 'running', 1)")  # Live, two tables below.
        cold.keeper.hold("job", {"id": 5}, reason="evidence")
        cold.keeper.hold("batch", {"id": 102}, reason="evidence")
        live, held = "the row that has its key is live", "the row that has its key is held"
        owned = "the row that has its key belongs to a row that is live or held"
        reasons = {1: live, 2: live, 3: live, 4: live, 5: held, 6: owned, 7: owned, 8: live}
        expected = {f'["{key}"]': reason for key, reason in reasons.items()}
        seen = cold.keeper.archive.restore("batch", where="id < 10", on_conflict="replace", pace=PACE, dry_run=True)
        assert (seen.restored, seen.unrestored) == ({"batch": 1, "job": 1, "attempt": 1}, 8)
        assert dict(seen.reasons) == dict(list(expected.items())[:5]), "a dry run names the first of them"
        done = cold.keeper.archive.restore("batch", where="id < 10", on_conflict="replace", pace=PACE)
        assert dict(done.reasons) == expected
        assert done.replaced == 1
        assert database.query("SELECT id, batch_id, status FROM job WHERE id < 20 ORDER BY id") == [
            *((key, batch, status) for key, batch, status, _ in jobs[:7]),
            (9, 9, "done"),
        ]
        assert database.query("SELECT id, job_id, status FROM attempt ORDER BY id") == [
            (8, 20, "running"),
            (9, 9, "done"),
        ]
        assert cold.cold("batch") == list(range(1, 9))


def test_a_dry_run_reports_what_would_come_back_and_changes_nothing(database: Database, tmp_path: Path) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        database.execute("INSERT INTO event VALUES (1, 'done', 5, 'another', NULL)")
        before, archived = content(database), cold.cold()
        done = back(cold, where="id <= 4", on_conflict="skip", dry_run=True)
        assert done.chosen == {"event": 4, "event_read": 4}
        assert done.restored == {"event": 3, "event_read": 3}
        assert (done.unrestored, done.id, done.dry_run) == (1, None, True)
        assert back(cold, where="id = 2", into="side", dry_run=True).restored == {"event": 1, "event_read": 2}
        assert (content(database), cold.cold()) == (before, archived)
        assert "side" not in {table.name for table in cold.keeper.store.reflect().tables}
        assert trail(database, "restore") == Counter()
        assert not list((tmp_path / "cold" / ".restore").glob("*/*"))


def test_a_side_table_gets_copies_and_the_archive_keeps_its_own(database: Database, tmp_path: Path) -> None:
    events(database, 10)
    before = content(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        for expected in (4, 0):  # The second time they are there already.
            done = back(cold, where="id <= 4", into="event_back")
            assert (done.restored["event"], done.existing) == (expected, 0 if expected else 8)
        rows = database.query(EVENT.replace("FROM event", "FROM event_back"))
        assert rows == [row for row in before["event"] if row[0] <= 4]
        reads = database.query(READ.replace("FROM event_read", "FROM event_back_event_read"))
        assert reads == [row for row in before["event_read"] if row[1] <= 4]
        assert set(cold.cold()) == set(range(1, 11))
        assert cold.keeper.holds() == []
        schema = cold.keeper.store.reflect()
        assert {one.name for one in schema.tables if one.is_side_table} == {"event_back", "event_back_event_read"}
        assert uncovered(cold.keeper.contract, schema) == [TableName("event_guard")], "Wane knows what it made itself"
        assert "event_back" not in propose(cold.keeper.store, url_text="x")
        database.execute("UPDATE event_back SET body = 'looked at' WHERE id = 1")
        with pytest.raises(ArchiveError, match="other rows have their keys"):
            back(cold, where="id <= 4", into="event_back")
        with pytest.raises(WrongArgument, match="table of the contract"):
            back(cold, where="id <= 4", into="event")
        database.execute("CREATE TABLE narrow (id bigint PRIMARY KEY)")
        database.execute("CREATE TABLE narrow_event_read (id bigint PRIMARY KEY)")
        with pytest.raises(WrongArgument, match="has no column"):
            back(cold, where="id <= 4", into="narrow")


def test_rows_that_the_database_refuses_stay_in_the_archive_and_the_others_come_back(
    database: Database, tmp_path: Path
) -> None:
    events(database, 12)
    known = ever(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        database.execute("CREATE UNIQUE INDEX event_body ON event (body)")
        database.execute("INSERT INTO event VALUES (900, 'open', 5, ?, NULL)", ("body 7 \U0001f600",))
        done = back(cold, where="id <= 10")
        assert (done.restored["event"], done.unrestored) == (9, 1)
        [(key, reason)] = done.reasons
        assert "7" in key
        assert "unique" in reason.lower()
        assert set(cold.cold()) == {7, 11, 12}
        assert {row["event_id"] for row in cold.archived("event_read")} == {7, 11}
        known["event"].add(900)
        conserve(cold, known, done=True)


CHANGES = {
    "sqlite": "CREATE TRIGGER meddle AFTER INSERT ON event BEGIN UPDATE event SET body = 'x' WHERE id = new.id AND id = 3; END",
    "postgres": "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.id = 3 THEN new.body := 'x'; END IF;"
    " RETURN new; END $$;CREATE TRIGGER meddle BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION meddle()",
}


def test_a_row_that_does_not_come_back_as_it_was_archived_does_not_come_back(
    database: Database, tmp_path: Path
) -> None:
    events(database, 6)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        for statement in (
            CHANGES[database.store].split("$$;")[:1] if database.store == "sqlite" else [CHANGES["postgres"]]
        ):
            database.execute(statement)
        done = back(cold, where="id <= 6")
        assert (done.restored["event"], done.unrestored) == (5, 1)
        assert "did not come back as it was archived" in done.reasons[0][1]
        assert set(cold.hot()) == {1, 2, 4, 5, 6, *STAYING}
        assert cold.cold() == [3]


def test_the_newest_of_the_rows_that_had_the_same_key_comes_back(database: Database, tmp_path: Path) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        insert_events(database, range(1, 3))  # Their numbers are given out again.
        database.execute("UPDATE event SET body = 'second life' WHERE id <= 2")
        cold.one()
        done = back(cold, where="id <= 3")
        assert done.restored["event"] == 3
        bodies = [body for (body,) in database.query("SELECT body FROM event WHERE id < 10 ORDER BY id")]
        assert bodies == ["second life", "second life", "body 3 \U0001f600"]
        assert sorted(row["body"] for row in cold.archived() if row["id"] <= 2) == [
            "body 1 \U0001f600",
            "body 2 \U0001f600",
        ]


def test_columns_that_came_later_get_what_new_rows_get(database: Database, tmp_path: Path) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
    database.execute("ALTER TABLE event ADD COLUMN note text NOT NULL DEFAULT 'none'")
    insert = "INSERT INTO event (id, status, at_ms, body, note) VALUES (?, ?, ?, ?, ?)"
    database.execute(insert, (6, "done", 5_000_000_000_00, "late", "own"))
    with cold_keeper(database, tmp_path) as cold:
        assert cold.one().archived["event"] == 1
        assert back(cold, where="id <= 6").restored["event"] == 6
        assert dict(database.query("SELECT id, note FROM event WHERE id < 10")) == {
            **dict.fromkeys(range(1, 6), "none"),
            6: "own",
        }
        cold.keeper.archive.run(pace=PACE)
    with cold_keeper(database, tmp_path) as cold:
        for hold in cold.keeper.holds(limit=1_000):
            assert hold.id is not None
            cold.keeper.release_hold(hold.id)
        cold.one()
        database.execute("ALTER TABLE event DROP COLUMN note")
    with cold_keeper(database, tmp_path) as cold:
        assert back(cold, where="id = 1").left_out == {"event.note": 1}


def test_one_restore_or_sweep_works_on_a_table_at_a_time(database: Database, tmp_path: Path) -> None:
    events(database, 60)
    known = ever(database)
    with cold_keeper(database, tmp_path) as cold:

        def meanwhile() -> None:
            with cold_keeper(database, tmp_path) as other, pytest.raises(ArchiveBusy):
                back(other, where="id = 1")

        cold.at["committed"] = meanwhile
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, known, done=True)


def test_two_restores_at_once_are_one_after_the_other(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 60)
    known = ever(database)
    refused: list[str] = []
    with cold_keeper(database, tmp_path) as cold:
        cold.one()

        def staged(_: Any, *arguments: Any) -> list[int]:
            found = stage(*arguments)
            with cold_keeper(database, tmp_path) as other:
                with pytest.raises(ArchiveBusy, match=r", until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC at least") as busy:
                    back(other, where="id <= 50")
                refused.append(str(busy.value))
                assert other.one().outcome is Outcome.FAILED, "a sweep waits as well"
            return found

        with monkeypatch.context() as patch:
            patch.setattr(InlineExecutor, "stage", staged)
            assert back(cold, where="id <= 40").restored["event"] == 40
        assert len(refused) == 1
        assert back(cold, where="id <= 50").restored["event"] == 10
        conserve(cold, known, done=True)


def test_a_restore_waits_for_a_sweep_that_is_half_done(database: Database, tmp_path: Path) -> None:
    events(database, 60)
    known = ever(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.at["committed"] = lambda: cold.keeper.disable()
        assert cold.one().outcome is Outcome.OFF
        with pytest.raises(ArchiveError, match="is unfinished"):
            back(cold, where="id < 10")
        conserve(cold, known, done=False)
        cold.keeper.enable()
        cold.one()
        assert back(cold, where="id < 10").restored["event"] == 9
        conserve(cold, known, done=True)


class Interrupted(Exception):
    pass


def interrupt(cold: Cold, monkeypatch: pytest.MonkeyPatch, step: str, where: str = "id <= 40") -> None:
    """Let a restore die at a step, as a process does."""

    def dies(*_: Any, **__: Any) -> Any:
        raise Interrupted

    owner: Any = restoring._Restore
    with monkeypatch.context() as patched:
        patched.setattr(owner, step, dies)
        with pytest.raises(Interrupted):
            back(cold, where=where)


@pytest.mark.parametrize(
    ("step", "then"), [("_load", "a sweep"), ("_remove", "another restore"), ("_remove", "the same restore")]
)
def test_the_next_process_finishes_a_restore_that_was_cut_off(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, then: str
) -> None:
    events(database, 60)
    known = ever(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        interrupt(cold, monkeypatch, step)
        conserve(cold, known, done=False)
        if then == "a sweep":
            assert cold.one().outcome is Outcome.DONE
        else:
            done = back(cold, where="id <= 40" if then == "the same restore" else "id = 50")
            assert done.restored["event"] == (40 if then == "the same restore" else 1)
        conserve(cold, known, done=True)
        assert set(range(1, 41)) <= set(cold.hot())
        with cold.keeper.store.transaction() as transaction:
            assert RestoreJournal(transaction).unfinished("event") is None


def then(step: Callable[..., Any], act: Callable[[], object]) -> Callable[..., Any]:
    """Return a step, and what happens after it."""

    def both(*given: Any, **options: Any) -> Any:
        found = step(*given, **options)
        act()
        return found

    return both


STEPS: dict[str, tuple[Any, str]] = {
    "chosen": (inline, "stage"),
    "in the middle": (restoring, "load_pieces"),
    "back": (restoring._Restore, "_load"),
}


@pytest.mark.parametrize("when", STEPS)
def test_a_restore_that_is_stopped_is_resumed_where_it_was(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    events(database, 150)
    known, stop = ever(database), threading.Event()
    owner, step = STEPS[when]
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, then(getattr(owner, step), stop.set))
            half = back(cold, where="id <= 150", stop=stop)
        assert half.stopped
        assert half.restored["event"] == len(cold.hot()) - len(STAYING)
        conserve(cold, known, done=False)
        states = [one.state for one in cold.keeper.archive.restores()]
        if when == "chosen":
            assert (half.id, half.restored["event"], states) == (None, 0, [])
            assert not list((tmp_path / "cold" / ".restore").glob("*/*")), "nothing staged is left behind"
        elif when == "back":
            assert (half.restored["event"], states) == (150, ["restored"])
        else:
            assert (0 < half.restored["event"] < 150, states) == (True, ["planned"])
        done = back(cold, where="id <= 150")
        assert (done.restored["event"], done.stopped, done.id) == (150, False, half.id or 1)
        conserve(cold, known, done=True)


def test_a_signal_stops_the_command_that_restores_and_the_next_run_of_the_archive_finishes_it(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 150)
    known = ever(sqlite_database)
    words = ["archive", "restore", "event", "--where", "id <= 150", "--contract", str(tmp_path / "wane.toml")]
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        with monkeypatch.context() as patch:
            patch.setattr(restoring, "load_pieces", then(load_pieces, lambda: os.kill(os.getpid(), signal.SIGTERM)))
            stopped = CliRunner().invoke(app, words)
        assert stopped.exit_code == 128 + signal.SIGTERM
        assert "restore 1 was stopped" in stopped.output
        assert "wane archive cancel-restore 1" in stopped.output
        conserve(cold, known, done=False)
        assert cold.one().outcome is Outcome.DONE
        assert [one.state for one in cold.keeper.archive.restores()] == ["done"]
        conserve(cold, known, done=True)


def test_a_dry_run_is_disturbed_by_no_restore_and_what_a_dead_one_left_is_deleted(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 9)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        dead = tmp_path / "cold" / ".restore" / "event" / "preview-1600000000-00"
        dead.mkdir(parents=True)
        with monkeypatch.context() as patch:

            def once(*given: Any) -> list[int]:
                patch.setattr(inline, "stage", stage)
                found = stage(*given)
                assert back(cold, where="id = 2").restored["event"] == 1
                return found

            patch.setattr(inline, "stage", once)
            assert back(cold, where="id <= 4", dry_run=True, on_conflict="skip").chosen["event"] == 4
        assert not list((tmp_path / "cold" / ".restore").glob("*/*"))


def test_rows_whose_staging_vanished_are_chosen_anew(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 60)
    known = ever(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        interrupt(cold, monkeypatch, "_remove")
        shutil.rmtree(tmp_path / "cold" / ".restore")
        done = back(cold, where="id <= 40")
        assert (done.restored["event"], done.existing) == (0, 40 + sum(n % 3 for n in range(1, 41)))
        conserve(cold, known, done=True)


@pytest.mark.parametrize("when", ["chosen", "planned"])
def test_a_restore_that_lost_its_lease_changes_nothing_more(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    events(database, 60)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()

        def lose() -> None:
            lease = cold.keeper.store.dialect.own_table("lease")
            database.execute(f"UPDATE {lease} SET fence = fence + 1")

        def staged(_: Any, *arguments: Any) -> list[int]:
            found = stage(*arguments)
            lose()
            return found

        load = restoring._Restore._load

        def loading(this: Any, *arguments: Any) -> None:
            lose()
            load(this, *arguments)

        if when == "chosen":
            monkeypatch.setattr(InlineExecutor, "stage", staged)
        else:
            monkeypatch.setattr(restoring._Restore, "_load", loading)
        with pytest.raises(ArchiveBusy):
            back(cold, where="id <= 40")
        assert cold.hot() == STAYING
        assert len(cold.cold()) == 60
        with cold.keeper.store.transaction() as transaction:
            assert (RestoreJournal(transaction).unfinished("event") is None) is (when == "chosen")


def test_a_task_that_was_overtaken_by_another_attempt_changes_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 60)

    def twice(job: Any, numbers: Sequence[int]) -> str:
        """Run a task once more, from where it began, because Spark believed that it was dead."""
        [number] = numbers
        with opened(job.source) as store, store.transaction() as transaction:
            before = RestoreJournal(transaction).pieces(job.restore)[number]
        load_pieces(job, numbers)
        with opened(job.source) as store:
            late = loading._PieceLoad(job, store, before)
            try:
                late.batch(list(loading._families(job, number, archive_dialect(store)))[:5])
            except ArchiveBusy:
                return json.dumps({"pieces": numbers})
        return json.dumps({"error": "ArchiveError", "message": "it went on"})

    monkeypatch.setattr(restoring, "load_pieces", twice)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        assert back(cold, where="id <= 40").restored["event"] == 40
        assert trail(database, "restore")["event"] == 40


def test_no_sweep_or_prune_takes_restored_rows_before_their_time(database: Database, tmp_path: Path) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        done = back(cold, where="id <= 4", protect=timedelta(days=2))
        assert done.protected_until is not None
        assert {hold.ends_at for hold in cold.keeper.holds()} == {done.protected_until}
        assert len(cold.keeper.holds()) == 4 + 4, "what left with them is protected too"
        assert cold.one().archived["event"] == 0
        assert set(cold.hot()) == {1, 2, 3, 4, *STAYING}
        assert back(cold, where="id = 5", protect=timedelta(0)).protected_until is None
        assert cold.one().archived["event"] == 1


def test_replacing_waits_for_batches_that_are_under_way(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    database = postgres_database
    events(database, 5)
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        database.execute("INSERT INTO event VALUES (1, 'done', 5, 'another', NULL)")
        with database.connect() as inside, ThreadPoolExecutor(1) as pool:
            inside.execute("BEGIN")
            inside.execute(f"SELECT pg_advisory_xact_lock_shared({GATE}, hashtext('public.event'))")
            restored = pool.submit(back, cold, where="id = 1", on_conflict="replace")
            while database.query(waiting) == [(0,)]:
                assert not restored.done(), "it did not wait"
                time.sleep(0.01)
            inside.execute("COMMIT")
            assert restored.result().replaced == 1


def test_rows_without_a_primary_key_cannot_be_protected(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE event (id bigint NOT NULL UNIQUE, status text, at_ms bigint NOT NULL, body text)")
    database.execute("CREATE INDEX event_due ON event (status, at_ms, id)")
    database.executemany("INSERT INTO event VALUES (?, 'done', ?, 'x')", [(n, 1_600_000_000_000 + n) for n in range(5)])
    text = CONTRACT.replace('with = ["event_read.event_id"]\n', "")
    text = text.replace('unless = [{{ referenced_by = "event_guard.event_id" }}]\n', "")
    text = text.replace("[table.event]\n", '[table.event]\nkey = ["id"]\n')
    with cold_keeper(database, tmp_path, text) as cold:
        assert cold.one().archived == {"event": 5}
        with pytest.raises(WrongArgument, match="no primary key"):
            back(cold, where="id < 3")
        assert back(cold, where="id < 3", protect=timedelta(0)).restored == {"event": 3}
        assert cold.cold() == [3, 4]


def test_an_archive_that_cannot_be_written_lets_nothing_come_back(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        (tmp_path / "cold" / ".restore").write_text("in the way")
        before = cold.hot(), cold.cold()
        for options in ({}, {"into": "side"}, {"dry_run": True}):
            with pytest.raises(ArchiveError, match="cannot be written"):
                back(cold, where="id = 1", **options)
        assert (cold.hot(), cold.cold()) == before


def test_a_restore_that_was_left_is_listed_as_what_it_is(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 9)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        interrupt(cold, monkeypatch, "_remove", where="id < 4")
        [left] = cold.keeper.archive.restores("event")
        assert (left.state, left.chosen, left.restored["event"], left.actor) == ("restored", 3, 3, "tester")
        back(cold, where="id < 4")
        assert [one.state for one in cold.keeper.archive.restores()] == ["done"]


def test_an_unfinished_restore_is_listed_whatever_its_age(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 9)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        interrupt(cold, monkeypatch, "_remove", where="id < 4")
        columns = "staged, on_conflict, inputs, actor, planned_at, changed_at"
        newer = f"SELECT table_name, 'done', {columns} FROM wane_archive_restore WHERE id = 1"
        for _ in range(3):
            sqlite_database.execute(f"INSERT INTO wane_archive_restore (table_name, state, {columns}) {newer}")
        assert [one.id for one in cold.keeper.archive.restores(limit=2)] == [4, 3]
        assert [one.id for one in cold.keeper.archive.restores(unfinished=True, limit=2)] == [1]
        arguments = ["archive", "status", "--limit", "1", "--contract", str(tmp_path / "wane.toml")]
        assert "restore 1 of event is restored" in " ".join(CliRunner().invoke(app, arguments).output.split())


def test_a_restore_of_one_sweep_reads_that_sweep_of_the_journal_and_no_other(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 9)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()

        def every(_: Journal) -> None:
            raise AssertionError("every sweep was read")

        monkeypatch.setattr(Journal, "summaries", every)
        with pytest.raises(WrongArgument, match="event has no sweep 2"):
            back(cold, sweep=2)
        assert back(cold, sweep=1).restored["event"] == 9


SIDE = {
    "sqlite": ["incidnt.ev", "wane_audit", "WANE_new", "temp.x", "sqlite_x", "looking", "Event_guard"],
    "postgres": ["incidnt.ev", "wane.audit", "wane.fresh", "pg_temp.x", "pg_catalog.x", "looking", "y" * 60],
}


def test_a_side_table_that_cannot_be_used_is_refused_before_anything_is_chosen(
    database: Database, tmp_path: Path
) -> None:
    events(database, 3)
    database.execute("CREATE VIEW looking AS SELECT * FROM event")
    database.execute(
        "CREATE TABLE numbers (id bigint PRIMARY KEY, status text, at_ms bigint, body bigint, amount text)"
    )
    qualified = "main" if database.store == "sqlite" else "public"
    names = [*SIDE[database.store], "numbers", "event", f"{qualified}.event", "event_read", 'a."b', "a.b.c", ""]
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        before = {table.qualified for table in cold.keeper.store.reflect().tables}
        for name in names:
            for dry_run in (True, False):
                with pytest.raises(WrongArgument):
                    back(cold, where="id = 1", into=name, dry_run=dry_run)
        assert cold.keeper.archive.restores() == [], "nothing waits to be finished"
        assert {table.qualified for table in cold.keeper.store.reflect().tables} == before
        assert back(cold, where="id = 1", into='"odd.name"').restored["event"] == 1
        assert back(cold, where="id = 1", into=f"{qualified}.fine").restored["event_read"] == 1


def test_a_restore_whose_side_table_can_no_longer_be_made_is_cancelled(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgres_database
    events(database, 60)
    database.execute("CREATE SCHEMA incident")
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        with monkeypatch.context() as patch:
            patch.setattr(restoring._Restore, "_load", _killed)
            with pytest.raises(_Killed):
                back(cold, where="id <= 40", into="incident.ev")
        database.execute("DROP SCHEMA incident CASCADE")
        insert_events(database, [70])
        for options in ({"where": "id = 1"}, {"where": "id <= 40", "into": "incident.ev"}):
            with pytest.raises(ArchiveError, match=r"cannot go on.*incident") as refused:
                back(cold, **options)
            assert "wane archive cancel-restore 1" in refused.value.hint
        assert "cancel-restore 1" in cold.one().message
        ended = cold.keeper.archive.cancel_restore(1)
        assert (ended.state, ended.restored, ended.inputs["cancelled_by"]) == ("done", {}, "tester")
        assert not list((tmp_path / "cold" / ".restore").glob("*/*"))
        [entry] = cold.keeper.audit(kind="restore_cancel")
        assert (entry.actor, entry.inputs["restore"], entry.counts) == ("tester", 1, {"event": 0})
        assert cold.one().evicted["event"] == 1
        assert back(cold, where="id = 1").restored["event"] == 1
        for number in (1, 99):
            with pytest.raises(WrongArgument):
                cold.keeper.archive.cancel_restore(number)


def test_a_restore_that_is_cancelled_halfway_has_every_row_exactly_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 60)
    known = ever(database)
    with cold_keeper(database, tmp_path, CONTRACT.replace("range_rows = 60", "range_rows = 20")) as cold:
        cold.one()
        with monkeypatch.context() as patch:
            patch.setattr(restoring, "load_pieces", _half)
            with pytest.raises(ArchiveError):
                back(cold, where="id <= 40")
        conserve(cold, known, done=False)
        came = set(cold.hot()) - set(STAYING)
        assert 0 < len(came) < 40
        ended = cold.keeper.archive.cancel_restore(1)
        assert (ended.state, ended.restored["event"]) == ("done", len(came))
        assert set(cold.hot()) == came | set(STAYING)
        assert set(cold.cold()) == set(range(1, 61)) - came
        conserve(cold, known, done=True)
        assert back(cold, where="id <= 40").restored["event"] == 40 - len(came)
        conserve(cold, known, done=True)


@pytest.mark.parametrize("pauses", [True, False])
def test_pieces_come_back_in_as_many_tasks_as_may_share_the_time(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: bool
) -> None:
    events(database, 150)
    tasks: list[tuple[int, list[int]]] = []

    def noted(job: Any, numbers: Sequence[int]) -> str:
        tasks.append((job.pace.connections, list(numbers)))
        return load_pieces(job, numbers)

    monkeypatch.setattr(restoring, "load_pieces", noted)
    with cold_keeper(database, tmp_path, CONTRACT.replace("range_rows = 60", "range_rows = 20")) as cold:
        cold.one()
        pace = replace(PACE, duty=0.99) if pauses else PACE
        restored = cold.keeper.archive.restore("event", pace=pace, where="id <= 100").restored["event"]
        assert (restored, set(cold.hot())) == (100, {*range(1, 101), *STAYING})
    pieces = sorted(number for _, numbers in tasks for number in numbers)
    assert pieces == list(range(5))
    most = (2 if database.store == "postgres" else 1) if pauses else 5
    assert [connections for connections, _ in tasks] == [most] * most


def test_what_tasks_of_a_restore_commit_is_no_use_by_others(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    events(postgres_database, 60)
    with cold_keeper(postgres_database, tmp_path, CONTRACT.replace("range_rows = 60", "range_rows = 20")) as cold:
        cold.one()
        back(cold, where="id <= 40")
        store = cold.keeper.store
        counters = activity_of(store, batches_of(store.dialect, 1))

        def seen(*run: str) -> int:
            before = counters.read()
            postgres_database.script("; ".join(run))
            after = counters.read()
            assert before is not None
            assert after is not None
            return after.changes - before.changes

        batch = "UPDATE wane.audit SET batches = batches + 1 WHERE run_id = 'restore-1-1'"
        use = "UPDATE event SET body = 'of the application' WHERE id = 1"
        # Transactions of other databases of the server count too.
        assert [0, 1] in [[seen(batch), seen(use)] for _ in range(40)]


class _Killed(BaseException):
    """The process ends here."""


def _killed(*_: object) -> None:
    raise _Killed


def _half(job: Any, numbers: Sequence[int]) -> str:
    """Bring one batch of the first piece back, and fail."""
    [number] = numbers
    with opened(job.source) as store:
        with store.transaction() as transaction:
            piece = RestoreJournal(transaction).pieces(job.restore)[number]
        if number == 0:
            families = list(loading._families(job, number, archive_dialect(store)))
            loading._PieceLoad(job, store, piece).batch(families[: len(families) // 2])
    return json.dumps({"error": "ArchiveError", "message": "the disk is full"})
