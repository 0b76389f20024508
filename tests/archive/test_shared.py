"""Databases that share one Delta Lake table: each sees its own rows alone, and everything works as with a table of its
own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from archive.cloning import cloned, reopened
from archive.cold import CONTRACT, OLD_MS, PACE, STAYING, archived, insert_events
from archive.fleet import Ships, ships
from servers import Database, PostgresDatabase
from wane._archive.delta.cold_table import ColdTable
from wane._cli import app
from wane._leases import Lease
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, WaneError
from wane.events import ArchiveStep

SHARED = CONTRACT.replace('[archive]\nurl = "cold"', '[archive]\nurl = "../cold"\nshared = true')
NAMES = ("ada", "bob", "cyd")


@pytest.fixture
def fleet(database: Database, tmp_path: Path) -> Iterator[Ships]:
    with ships(database, tmp_path, contract=SHARED) as made:
        for name, number in zip(NAMES, (100, 200, 300), strict=True):
            insert_events(made.databases[name], range(number, number + 4))
        yield made


def rows(fleet: Ships, table: str = "event") -> dict[str, list[int]]:
    """Return the ids of all archived rows by their origins, as anybody else reads them."""
    found: dict[str, list[int]] = {}
    for row in archived(fleet.folder / "cold" / table):
        found.setdefault(row["_origin"], []).append(row["id"])
    return {origin: sorted(ids) for origin, ids in found.items()}


def own(fleet: Ships, name: str) -> list[int]:
    """Return the ids that one member sees."""
    with fleet.keeper(name) as keeper:
        return sorted(row[0] for row in keeper.archive.read("event", columns=["id"]))


def expected(number: int) -> list[int]:
    return [1, 2, 3, 4, 5, 6, *range(number, number + 4)]


def done(fleet: Ships) -> None:
    found = fleet.run()
    assert [one.problem for one in found.values()] == [""] * 3
    assert [one.result.rules[0].message for one in found.values() if one.result] == [""] * 3


def test_members_write_to_one_table_and_each_sees_its_own_rows(fleet: Ships) -> None:
    done(fleet)
    assert sorted(rows(fleet).values()) == [expected(number) for number in (100, 200, 300)]
    table = DeltaTable(str(fleet.folder / "cold" / "event"))
    assert table.metadata().partition_columns == ["_origin", "_month"]
    assert table.version() == DeltaTable(str(fleet.folder / "cold" / "event_read")).version() == 1, "one commit for all"
    for name, number in zip(NAMES, (100, 200, 300), strict=True):
        assert own(fleet, name) == expected(number)
        assert fleet.hot(name) == STAYING
        with fleet.keeper(name) as keeper:
            [event, _] = keeper.archive.tables()
            assert event.rows == 10
            [proof, _] = keeper.archive.verify()
            assert (proof.rows, proof.problems) == (10, ())
            assert keeper.check_live() == []


def test_what_one_member_does_changes_no_row_of_the_others(fleet: Ships) -> None:
    done(fleet)
    before = rows(fleet)
    for name in NAMES:
        insert_events(fleet.databases[name], [7, 8])
    done(fleet)
    with fleet.keeper("ada") as keeper:
        [mine] = [origin for origin, ids in before.items() if 100 in ids]
        assert keeper.archive.restore("event", where="id IN (1, 2, 7)", pace=PACE).restored["event"] == 3
        keeper.hold("event", key={"id": 3}, reason="a test")
        after = rows(fleet)
        assert after[mine] == [3, 4, 5, 6, 8, 100, 101, 102, 103]
        assert {origin: ids for origin, ids in after.items() if origin != mine} == {
            origin: sorted([*ids, 7, 8]) for origin, ids in before.items() if origin != mine
        }
        fleet.databases["ada"].execute("UPDATE event SET body = 'changed' WHERE id = 1")
        [tidied, _] = keeper.archive.tidy(older_than=timedelta(hours=1))
        assert (tidied.outcome, tidied.files) == (Outcome.DONE, 0)
    for name in NAMES:
        with fleet.keeper(name) as keeper:
            assert all(not one.problems for one in keeper.archive.verify())


@pytest.mark.frames_on_spark
def test_expiry_and_compaction_are_those_of_one_member(fleet: Ships) -> None:
    done(fleet)
    for name in NAMES:
        insert_events(fleet.databases[name], [7, 8])
    done(fleet)
    before = rows(fleet)
    with fleet.keeper("ada") as keeper:
        compacted = keeper.archive.compact()
        assert [(one.outcome, one.message) for one in compacted] == [(Outcome.DONE, "")] * 2
        assert compacted[0].files == 2
        assert compacted[0].into == 1
    assert rows(fleet) == before
    path = fleet.folder / "bob" / "wane.toml"
    path.write_text(path.read_text().replace('keep = "forever"', 'keep = "100d"', 1))
    with fleet.keeper("bob") as keeper:
        [expired] = keeper.archive.expire()
        assert (expired.outcome, expired.message) == (Outcome.DONE, "")
        assert sum(expired.rows["event"].values()) == 12
    after = rows(fleet)
    assert after == {origin: ids for origin, ids in before.items() if 200 not in ids}
    for name in NAMES:
        with fleet.keeper(name) as keeper:
            assert all(not one.problems for one in keeper.archive.verify())


@pytest.mark.parametrize("state", ["planned", "written", "verified", "committed", "evicted"])
def test_a_member_that_dies_at_any_step_is_finished_by_the_next_run(fleet: Ships, state: str) -> None:
    class Died(BaseException):
        pass

    def dies(event: object) -> None:
        if isinstance(event, ArchiveStep) and event.state == state:
            raise Died

    with fleet.keeper("ada") as keeper:
        keeper.archive._listener = dies
        with pytest.raises(Died):
            keeper.archive.run()
    with fleet.keeper("bob") as keeper:
        assert keeper.archive.run().rules[0].outcome is Outcome.DONE
    done(fleet)
    assert sorted(rows(fleet).values()) == [expected(number) for number in (100, 200, 300)]
    assert [fleet.hot(name) for name in NAMES] == [STAYING] * 3


def test_a_crash_between_the_commit_and_the_journal_commits_once(fleet: Ships, monkeypatch: pytest.MonkeyPatch) -> None:
    class Died(BaseException):
        pass

    commit = ColdTable.commit

    def dies(self: ColdTable, *arguments: Any) -> None:
        commit(self, *arguments)
        if self.name == "event":
            raise Died

    with monkeypatch.context() as patch, fleet.keeper("ada") as keeper:
        patch.setattr(ColdTable, "commit", dies)
        with pytest.raises(Died):
            keeper.archive.run()
    assert list(rows(fleet).values()) == [expected(100)]
    done(fleet)
    assert sorted(rows(fleet).values()) == [expected(number) for number in (100, 200, 300)]
    made = [
        one["wane.sweep"] for one in DeltaTable(str(fleet.folder / "cold" / "event")).history() if "wane.sweep" in one
    ]
    assert sorted(made) == ["1", "1,1"], "the others were committed together"


def test_racing_writers_of_several_origins_lose_nothing(fleet: Ships) -> None:
    together = threading.Barrier(3)

    def work(name: str) -> None:
        with fleet.keeper(name) as keeper:
            for number in range(4):
                insert_events(fleet.databases[name], [500 + number])
                together.wait(60)
                assert [one.message for one in keeper.archive.run().rules] == [""]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, NAMES))
    wanted = [sorted([*expected(number), 500, 501, 502, 503]) for number in (100, 200, 300)]
    assert sorted(rows(fleet).values()) == wanted


def test_columns_that_do_not_fit_are_refused_by_name(fleet: Ships) -> None:
    with fleet.keeper("ada") as keeper:
        keeper.archive.run()
    fleet.databases["bob"].execute("ALTER TABLE event ADD COLUMN more text")
    for change in ("DROP COLUMN amount", "ADD COLUMN amount text"):
        fleet.databases["cyd"].execute(f"ALTER TABLE event {change}")
    with fleet.keeper("bob") as keeper:
        assert keeper.archive.run().rules[0].outcome is Outcome.DONE
    with fleet.keeper("cyd") as keeper:
        [refused] = keeper.archive.run().rules
        assert refused.outcome is Outcome.FAILED
        assert "event.amount is now string" in refused.message
    assert own(fleet, "ada") == expected(100)
    assert own(fleet, "bob") == expected(200)
    assert len(fleet.hot("cyd")) == 10 + len(STAYING)


def test_a_type_that_one_member_widens_stops_no_other(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    """Also with a log that lost the change: each member commits its own sweeps again, with the columns that they
    had."""
    with ships(postgres_database, tmp_path, contract=SHARED) as fleet:
        done(fleet)
        wide = Decimal("123456789012345678.25")
        fleet.databases["bob"].execute("ALTER TABLE event ALTER COLUMN amount TYPE numeric(20,2)")
        for name, amount in (("ada", Decimal("1.50")), ("bob", wide), ("cyd", Decimal("2.50"))):
            fleet.databases[name].execute(
                "INSERT INTO event (id, status, at_ms, amount) VALUES (700, 'done', ?, ?)", (OLD_MS, amount)
            )
        done(fleet)
        log = fleet.folder / "cold" / "event" / "_delta_log"
        for _ in range(2):
            kinds = {field.name: str(field.type) for field in DeltaTable(str(log.parent)).schema().fields}
            assert "decimal(20,2)" in kinds["amount"]
            found = {row["amount"] for row in archived(log.parent) if row["id"] == 700}
            assert found == {Decimal("1.50"), wide, Decimal("2.50")}
            for name in NAMES:
                with fleet.keeper(name) as keeper:
                    assert all(not one.problems for one in keeper.archive.verify())
            for entry in sorted(log.glob("*.json"))[1:]:
                entry.unlink()
            for name in NAMES:
                with fleet.keeper(name) as keeper:
                    keeper.archive.repair()
        for name in ("ada", "bob"):
            with fleet.keeper(name) as keeper:
                keeper.archive.restore("event", keys=[{"id": 700}])
        assert fleet.databases["ada"].query("SELECT amount FROM event WHERE id = 700") == [(Decimal("1.50"),)]
        assert fleet.databases["bob"].query("SELECT amount FROM event WHERE id = 700") == [(wide,)]
        assert [row["amount"] for row in archived(log.parent) if row["id"] == 700] == [Decimal("2.50")]


def test_members_that_add_and_widen_columns_while_others_commit_lose_nothing(tmp_path: Path) -> None:
    racing, races, rounds = 4, 3, 4
    start = threading.Barrier(racing)
    narrow, wide = ("id", "integer"), ("id", "long")

    def work(number: int) -> None:
        for race in range(races):
            table = ColdTable(tmp_path / str(race), "event", f"origin{number}", shared=True)
            table.ensure([narrow], follows=False)
            lease = Lease("archive event", "one", 1, datetime(2026, 1, 1, tzinfo=UTC))
            for sweep in range(1, rounds + 1):
                path = f"_month=2026-01/{sweep}.parquet"
                written = Path(str(table.folder)) / path
                written.parent.mkdir(parents=True, exist_ok=True)
                written.write_bytes(b"x")
                start.wait()
                # Two widen the same column, and add one of their own, at the time that the others commit.
                shape = [wide, (f"more{number}", "short")] if number < 2 else [narrow]
                table.ensure(shape if sweep > 1 else [narrow], follows=False)
                stats = '{"numRecords": 1}'
                file = {"path": path, "bytes": 1, "month": "2026-01", "statistics": stats}
                table.commit("event", sweep, [file], [lease])

    def race_or_end_all(number: int) -> None:
        try:
            work(number)
        except threading.BrokenBarrierError:
            pass  # Another one failed, and is reported.
        except BaseException:
            start.abort()
            raise

    with ThreadPoolExecutor(racing) as pool:
        list(pool.map(race_or_end_all, range(racing)))
    for race in range(races):
        table = DeltaTable(str(tmp_path / str(race) / "event"))
        kinds = {field.name: str(field.type.type) for field in table.schema().fields}
        assert (kinds["id"], kinds["more0"], kinds["more1"], kinds["_origin"]) == ("long", "short", "short", "string")
        assert table.metadata().partition_columns == ["_origin", "_month"]
        assert len(table.file_uris()) == racing * rounds
        versions = [table.transaction_version(f"wane:origin{number}:event") for number in range(racing)]
        assert versions == [rounds] * racing
        ColdTable(tmp_path / str(race), "event", "origin3", shared=True).ensure([narrow], follows=False)
        assert DeltaTable(str(tmp_path / str(race) / "event")).version() == table.version(), "narrow rows fit as it is"


def test_members_that_create_the_table_at_the_same_time_create_it_once(tmp_path: Path) -> None:
    """A second creation would replace the schema, and with it the columns that another member has added."""
    racing, races = 4, 25
    start = threading.Barrier(racing, timeout=30)

    def create(number: int) -> None:
        for race in range(races):
            table = ColdTable(tmp_path / str(race), "event", f"origin{number}", shared=True)
            start.wait()
            table.ensure([["id", "long"]], follows=False)

    with ThreadPoolExecutor(racing) as pool:
        list(pool.map(create, range(racing)))
    assert [len(list(log.glob("*.json"))) for log in tmp_path.glob("*/event/_delta_log")] == [1] * races


def test_a_column_that_is_called_as_the_partition_is_refused(fleet: Ships) -> None:
    fleet.databases["ada"].execute("ALTER TABLE event ADD COLUMN _origin text")
    with fleet.keeper("ada") as keeper:
        assert "has a column '_origin'" in keeper.archive.run().rules[0].message


@pytest.mark.parametrize("before", [True, False])
def test_an_archive_of_one_database_does_not_become_a_shared_one_or_back(fleet: Ships, before: bool) -> None:
    def write(name: str, shared: bool) -> None:
        path = fleet.folder / name / "wane.toml"
        path.write_text(path.read_text().replace("shared = true", f"shared = {str(shared).lower()}"))

    write("ada", before)
    write("bob", not before)
    with fleet.keeper("ada") as keeper:
        assert keeper.archive.run().rules[0].outcome is Outcome.DONE
    with fleet.keeper("bob") as keeper:
        message = keeper.archive.run().rules[0].message
        assert ("the contract declares the opposite" in message) or ("another database" in message)
    assert fleet.hot("bob")[:6] == [1, 2, 3, 4, 5, 6]


def test_a_log_that_lost_commits_is_repaired_from_the_journals_of_those_who_made_them(fleet: Ships) -> None:
    done(fleet)
    log = fleet.folder / "cold" / "event" / "_delta_log"
    _, together = sorted(log.glob("*.json"))
    together.unlink()
    assert all(own_or_lost(fleet, name) for name in NAMES)
    for name in NAMES:
        with fleet.keeper(name) as keeper:
            keeper.archive.repair()
    assert sorted(rows(fleet).values()) == [expected(number) for number in (100, 200, 300)]
    for name in NAMES:
        with fleet.keeper(name) as keeper:
            assert all(not one.problems for one in keeper.archive.verify())


def own_or_lost(fleet: Ships, name: str) -> bool:
    try:
        own(fleet, name)
    except ArchiveError as problem:
        return "has lost" in problem.message
    return False


def add_clone(fleet: Ships, copy: Database) -> None:
    """Add a clone of ada's database to the fleet, with ada's contract."""
    text = (fleet.folder / "ada" / "wane.toml").read_text()
    (fleet.folder / "dan").mkdir()
    (fleet.folder / "dan" / "wane.toml").write_text(text.replace(fleet.databases["ada"].url, copy.url))
    with fleet.path.open("a") as file:
        file.write('[member.dan]\ncontract = "dan/wane.toml"\n')


def test_a_fleet_counts_no_row_of_a_clone_that_is_refused(fleet: Ships, tmp_path: Path) -> None:
    done(fleet)
    with cloned(fleet.databases["ada"], tmp_path, "dan") as copy:
        add_clone(fleet, copy)

        def call(*arguments: str) -> tuple[int, str]:
            done = CliRunner().invoke(app, ["archive", *arguments, "--fleet", str(fleet.path)])
            return done.exit_code, done.output

        # Nothing is due: a run, too, does not come as far as the archive.
        reading = [("ls",), ("verify",), ("absent",), ("status",), ("run", "--dry-run")]
        for command in (*reading, ("run",), ("expire", "--dry-run"), ("compact",), ("tidy",)):
            code, output = call(*command)
            assert code == 1, command
            assert "dan: this database is a clone" in " ".join(output.split()), command
            code, output = call(*command, "--json")
            found = json.loads(output)
            assert [one["outcome"] for one in found["members"]] == ["done", "done", "done", "failed"], command
            if command == ("ls",):
                tables = [one for member in found["members"] for one in member["result"] or ()]
                assert sum(one["rows"] for one in tables if one["table"] == "event") == 30
        code, output = call("query", "event", "--columns", "id", "--limit", "100", "--format", "csv")
        assert code == 1
        assert "dan: this database is a clone" in " ".join(output.split())
        ids = [line for line in output.splitlines() if line.startswith(("ada,", "bob,", "cyd,", "dan,"))]
        assert len(ids) == 30
        assert not any(line.startswith("dan,") for line in ids)
        # Working for itself, it may read.
        with fleet.keeper("dan") as keeper:
            assert len(list(keeper.archive.read("event"))) == 10
            keeper.archive.adopt(as_new=True)
        assert call("ls")[0] == 0


def test_a_clone_that_adopts_its_partition_replaces_the_original_there_only(fleet: Ships, tmp_path: Path) -> None:
    done(fleet)
    with cloned(fleet.databases["ada"], tmp_path, "dan") as copy:
        path = fleet.folder / "ada" / "wane.toml"
        text = path.read_text()
        (fleet.folder / "dan").mkdir()
        (fleet.folder / "dan" / "wane.toml").write_text(text.replace(fleet.databases["ada"].url, copy.url))
        with fleet.path.open("a") as file:
            file.write('[member.dan]\ncontract = "dan/wane.toml"\n')
        insert_events(copy, [900])
        with fleet.keeper("dan") as keeper:
            assert "is a clone" in keeper.archive.run().rules[0].message
            adopted = keeper.archive.adopt()
            assert keeper.archive.adopt() == adopted
            assert keeper.archive.run().rules[0].outcome is Outcome.DONE
            assert sorted(row[0] for row in keeper.archive.read("event", columns=["id"])) == [*expected(100), 900]
        for name, number in (("bob", 200), ("cyd", 300)):
            assert own(fleet, name) == expected(number)
        original = fleet.databases["ada"] = reopened(fleet.databases["ada"])
        insert_events(original, [901])
        with fleet.keeper("ada") as keeper:
            with pytest.raises(WaneError, match="which has adopted them"):
                keeper.archive.tables()
            assert "which has adopted them" in keeper.archive.run().rules[0].message
        assert 901 in fleet.hot("ada")
        original.close()


def test_a_clone_that_begins_anew_has_a_partition_of_its_own(fleet: Ships, tmp_path: Path) -> None:
    done(fleet)
    with cloned(fleet.databases["ada"], tmp_path, "dan") as copy:
        add_clone(fleet, copy)
        insert_events(copy, [900])
        with fleet.keeper("dan") as keeper:
            keeper.archive.adopt(as_new=True)
            assert keeper.archive.run().rules[0].outcome is Outcome.DONE
        assert own(fleet, "dan") == [900]
        assert sorted(rows(fleet).values()) == [*(expected(number) for number in (100, 200, 300)), [900]]
        with fleet.keeper("ada") as keeper:
            assert keeper.archive.run().rules[0].outcome is Outcome.DONE
