"""Rows that the application deletes between their copy and their eviction: listed, and erased from the archive when
that is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from archive.cold import CONTRACT, Cold, cold_keeper, events
from servers import Database
from wane._archive.journal import Journal
from wane._archive.maintenance import absent
from wane._archive.maintenance.upkeep import Upkeep
from wane._archive.model import ExpiredTable
from wane._cli import app
from wane._prune.sweep import Outcome
from wane.events import HardDeleted

GONE = [4, 8]


def delete(database: Database) -> None:
    """Do what an application does for a request to delete a person's data."""
    for number in GONE:
        database.execute("DELETE FROM event_read WHERE event_id = ?", (number,))
        database.execute("DELETE FROM event WHERE id = ?", (number,))


@contextmanager
def deleted(database: Database, folder: Path, contract: str = CONTRACT) -> Iterator[Cold]:
    """Yield a keeper after a sweep during which the application deleted two rows."""
    events(database, 20)
    with cold_keeper(database, folder, contract) as cold:
        cold.at["committed"] = lambda: delete(database)
        assert cold.one().outcome is Outcome.DONE
        yield cold


def erase(cold: Cold, *, dry_run: bool = False) -> ExpiredTable:
    [done] = cold.keeper.archive.expire(erase_absent=True, dry_run=dry_run)
    return done


def gone_rows(done: ExpiredTable, table: str = "event") -> int:
    return sum(done.rows.get(table, {}).values())


def recorded(cold: Cold) -> int:
    with cold.keeper.store.snapshot() as transaction:
        return len(Journal(transaction).absent(1, 100))


def test_a_row_that_the_application_deleted_is_listed_and_erased_with_what_left_with_it(
    database: Database, tmp_path: Path
) -> None:
    with deleted(database, tmp_path) as cold:
        found = cold.keeper.archive.absent("event")
        assert [(one.table, one.sweep, one.rule) for one in found] == [("event", 1, "cold")] * 2
        assert {one.key for one in found} == {'["4"]', '["8"]'}
        assert set(GONE) <= set(cold.cold()), "it is archived until it is erased"
        reads = len(cold.cold("event_read"))
        would = erase(cold, dry_run=True)
        assert (gone_rows(would), set(GONE) <= set(cold.cold())) == (2, True)
        done = erase(cold)
        assert (done.outcome, gone_rows(done)) == (Outcome.DONE, 2), done.message
        assert not set(GONE) & set(cold.cold())
        assert gone_rows(done, "event_read") == reads - len(cold.cold("event_read")) > 0
        assert not {4, 8} & {row["event_id"] for row in cold.archived("event_read")}
        [entry] = cold.keeper.audit(kind="archive_expire")
        assert (entry.counts, entry.inputs["absent"]) == (
            {"event": 2, "event_read": gone_rows(done, "event_read")},
            2,
        )
        assert {one.rows for one in cold.events if isinstance(one, HardDeleted) and one.table == "event"} <= {2}
        assert (cold.keeper.archive.absent(), recorded(cold)) == ([], 0), "their keys are forgotten too"
        assert [one.problems for one in cold.keeper.archive.verify()] == [(), ()]
        repeated = erase(cold)
        assert (repeated.outcome, repeated.rows) == (Outcome.DONE, {})
        assert cold.keeper.audit(kind="archive_expire")[0].counts == {"event": 0, "event_read": 0}


def test_a_call_that_leaves_rows_reports_it_and_the_next_one_continues(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absent, "_AT_ONCE", 1)

    def call(*arguments: str) -> str:
        command = ["archive", "expire", "--erase-absent", "--yes", *arguments]
        done = CliRunner().invoke(app, [*command, "--contract", str(tmp_path / "wane.toml")])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    with deleted(database, tmp_path) as cold:
        assert erase(cold, dry_run=True).more_absent
        [would] = json.loads(call("--json", "--dry-run"))["items"]
        assert would["more_absent"] is True
        assert "event: more rows that the application deleted are left than one call erases" in call()
        assert len(set(GONE) & set(cold.cold())) == 1
        [done] = json.loads(call("--json"))["items"]
        assert (done["more_absent"], sum(done["rows"]["event"].values())) == (False, 1)
        assert not set(GONE) & set(cold.cold())
        assert "more rows" not in call()


def test_held_rows_do_not_take_the_turn_of_others(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absent, "_AT_ONCE", 1)
    with deleted(database, tmp_path) as cold:
        first = json.loads(cold.keeper.archive.absent()[0].key)[0]
        cold.keeper.hold("event", {"id": int(first)}, reason="evidence")
        done = erase(cold)
        assert (gone_rows(done), done.more_absent) == (1, False)
        assert set(GONE) & set(cold.cold()) == {int(first)}


def test_the_statistics_of_a_rewritten_file_name_no_erased_row(database: Database, tmp_path: Path) -> None:
    with deleted(
        database, tmp_path, CONTRACT.replace('keep = "forever"', 'keep = "forever"\nstatistics = ["body"]')
    ) as cold:
        erase(cold)
        log = tmp_path / "cold/event/_delta_log"
        [last] = [json.loads(line) for line in max(log.glob("*.json")).read_text().splitlines() if '"add"' in line]
        statistics = json.loads(last["add"]["stats"])
        ids = [row["id"] for row in cold.archived()]
        assert (statistics["minValues"]["id"], statistics["maxValues"]["id"]) == (min(ids), max(ids))


def test_a_held_row_stays_and_one_that_came_back_is_not_listed(database: Database, tmp_path: Path) -> None:
    with deleted(database, tmp_path) as cold:
        cold.keeper.archive.restore("event", keys=[{"id": 8}], protect=timedelta(0))
        assert [one.key for one in cold.keeper.archive.absent()] == ['["4"]']
        cold.keeper.hold("event", {"id": 4}, reason="evidence")
        assert (gone_rows(erase(cold, dry_run=True)), gone_rows(erase(cold))) == (0, 0)
        assert 4 in cold.cold()
        assert 8 in cold.hot(), "erasing leaves a row alone that is back"
        [hold] = [one for one in cold.keeper.holds() if one.reason == "evidence"]
        assert hold.id is not None
        cold.keeper.release_hold(hold.id)
        assert gone_rows(erase(cold)) == 1
        assert (4 in cold.cold(), recorded(cold)) == (False, 0)


def test_a_hold_that_is_placed_while_files_are_written_is_respected(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deleted(database, tmp_path) as cold, monkeypatch.context() as patch:
        plan = Upkeep.plan

        def hold_first(*arguments: Any) -> None:
            cold.keeper.hold("event", {"id": 4}, reason="evidence")
            plan(*arguments)

        patch.setattr(Upkeep, "plan", hold_first)
        done = erase(cold)
        assert (done.rows, done.held) == ({}, "new holds are being placed")
        assert set(GONE) <= set(cold.cold())


def test_a_contract_can_state_that_such_rows_are_always_erased(database: Database, tmp_path: Path) -> None:
    with deleted(
        database, tmp_path, CONTRACT.replace('keep = "forever"', 'keep = "forever"\nabsent = "erase"')
    ) as cold:
        [done] = cold.keeper.archive.expire("event")
        assert gone_rows(done) == 2
        assert not set(GONE) & set(cold.cold())


def test_an_erasure_that_dies_after_its_commit_is_finished_and_recorded_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deleted(database, tmp_path) as cold, monkeypatch.context() as patch:
        patch.setattr(Upkeep, "_record", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            erase(cold)
        assert not set(GONE) & set(cold.cold())
        assert (recorded(cold), cold.keeper.audit(kind="archive_expire")) == (2, [])
    with cold_keeper(database, tmp_path) as cold:
        assert erase(cold).outcome is Outcome.DONE
        taken = [entry.counts["event"] for entry in cold.keeper.audit(kind="archive_expire")]
        assert sorted(taken) == [0, 2]
        assert recorded(cold) == 0


def test_the_command_prompts_before_it_erases(database: Database, tmp_path: Path) -> None:
    with deleted(database, tmp_path) as cold:
        where = ["--contract", str(tmp_path / "wane.toml")]
        listed = CliRunner().invoke(app, ["archive", "absent", "event", *where])
        assert '["8"]' in listed.output, listed.output
        refused = CliRunner().invoke(app, ["archive", "expire", "event", "--erase-absent", *where])
        assert (refused.exit_code, "--yes agrees" in " ".join(refused.output.split())) == (4, True), refused.output
        assert set(GONE) <= set(cold.cold())
        done = CliRunner().invoke(app, ["archive", "expire", "event", "--erase-absent", "--yes", *where])
        assert done.exit_code == 0, done.output
        assert not set(GONE) & set(cold.cold())
