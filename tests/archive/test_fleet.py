"""A fleet: every member is archived, one that fails fails alone, and one with nothing due costs a few reads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from archive.cold import CONTRACT, OLD_MS, STAYING, archived, insert_events
from archive.fleet import Ships, ships
from cli.running import Result
from servers import Database
from wane._archive.spark import executor
from wane._archive.spark.session import session
from wane._cli import main
from wane._contract.settings import SparkSettings
from wane._keeper import Keeper
from wane.events import ArchiveStep, WorkProgressed

ADA, BOB, CYD = "ada", "bob", "cyd"


@pytest.fixture
def fleet(database: Database, tmp_path: Path) -> Iterator[Ships]:
    with ships(database, tmp_path) as made:
        yield made


def wane(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> Result:
    monkeypatch.setattr(sys, "argv", ["wane", *map(str, words)])
    capfd.readouterr()
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    return Result(code, *capfd.readouterr())


def copies(fleet: Ships, name: str) -> list[int]:
    return sorted(row["id"] for row in archived(fleet.folder / name / "cold" / "event"))


def test_every_member_is_archived_and_reports_under_its_name(fleet: Ships) -> None:
    done = fleet.run()
    assert list(done) == [ADA, BOB, CYD]
    for name, one in done.items():
        assert one.result is not None
        assert one.result.rules[0].archived == {"event": 6, "event_read": 6}
        assert fleet.hot(name) == STAYING
        assert copies(fleet, name) == [1, 2, 3, 4, 5, 6]
        states = [event.state for who, event in fleet.received if who == name and isinstance(event, ArchiveStep)]
        assert states == ["planned", "written", "verified", "committed", "evicted", "done"]
    assert [(one.done, one.of, one.unit) for one in fleet.progress if isinstance(one, WorkProgressed)] == [
        (number, 3, "member") for number in (1, 2, 3)
    ]


@pytest.mark.on_spark
def test_members_are_archived_in_one_spark_application(fleet: Ships) -> None:
    context = session(SparkSettings()).sparkContext
    scheduler = context._jsc.sc().dagScheduler()
    jobs = scheduler.numTotalJobs()
    done = fleet.run()
    for name, one in done.items():
        assert one.result is not None
        assert one.result.rules[0].archived == {"event": 6, "event_read": 6}
        assert (fleet.hot(name), copies(fleet, name)) == (STAYING, [1, 2, 3, 4, 5, 6])
    assert SparkContext._active_spark_context is context
    assert scheduler.numTotalJobs() - jobs >= 2 * len(done), "each member copied and read back on this Spark"


def test_a_member_that_fails_does_not_fail_others(fleet: Ships) -> None:
    (fleet.folder / BOB / "wane.toml").write_text("[tabel.event]\n")
    (fleet.folder / CYD / "cold").mkdir()
    (fleet.folder / CYD / "cold" / "event").write_text("in the way")
    done = fleet.run()
    assert "unknown section" in done[BOB].problem
    blocked = done[CYD].result
    assert blocked is not None
    assert "is a file" in blocked.rules[0].message
    assert fleet.hot(ADA) == STAYING
    assert fleet.hot(CYD) == [1, 2, 3, 4, 5, 6, *STAYING]


def test_an_error_of_any_kind_is_the_failure_of_one_member(fleet: Ships) -> None:
    def work(keeper: Keeper) -> str:
        assert keeper.contract.path is not None
        if keeper.contract.path.parent.name == BOB:
            raise ZeroDivisionError("of the member")
        return "fine"

    found = fleet.fleet().each(work, doing="test")
    assert [(one.member, one.result, one.problem) for one in found] == [
        (ADA, "fine", ""),
        (BOB, None, "ZeroDivisionError: of the member"),
        (CYD, "fine", ""),
    ]


def test_a_fleet_that_is_stopped_begins_no_more_members(fleet: Ships) -> None:
    stop = threading.Event()
    (fleet.folder / "fleet.toml").write_text(fleet.path.read_text().replace("parallel = 2", "parallel = 1"))
    listen = fleet.received.append

    def of_members(name: str, event: object) -> None:
        listen((name, event))  # type: ignore[arg-type]
        if isinstance(event, ArchiveStep) and event.state == "written":
            stop.set()

    work = fleet.fleet(stop=stop)
    work._of_members = of_members
    found = work.each(lambda keeper: keeper.archive.run(stop=stop), doing="archive")
    assert [one.begun for one in found] == [True, False, False]
    assert found[0].result is not None
    assert found[0].result.rules[0].outcome.value == "stopped"
    done = fleet.run()
    assert [one.failed for one in done.values()] == [False] * 3
    assert copies(fleet, ADA) == [1, 2, 3, 4, 5, 6]


def test_members_run_at_the_same_time_up_to_the_limit(fleet: Ships) -> None:
    both = threading.Barrier(2)
    first = iter(range(2))
    turn, running, most = threading.Lock(), [0], [0]

    def work(_: Keeper) -> None:
        with turn:
            running[0] += 1
            most[0] = max(most[0], running[0])
            waits = next(first, None) is not None
        if waits:
            both.wait(60)  # Ends only if two members are worked on together.
        with turn:
            running[0] -= 1

    assert [one.problem for one in fleet.fleet().each(work, doing="test")] == [""] * 3
    assert most == [2]


@pytest.mark.unmigrated
def test_a_fleet_is_migrated_enabled_and_disabled(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ships(database, tmp_path, ready=False) as fleet:

        def run(*words: object) -> Result:
            return wane(capfd, monkeypatch, *words, "--fleet", fleet.path)

        def swept() -> list[bool]:
            master = "wane_flag" if database.store == "sqlite" else "wane.flag"
            flags = f"SELECT enabled FROM {master} WHERE name = 'retention.enabled'"
            return [bool(on) for one in fleet.databases.values() for (on,) in one.query(flags)]

        refused = run("enable")
        assert (refused.code, refused.err.count("does not have Wane's own tables yet")) == (1, 3)
        (tmp_path / BOB / "wane.toml").rename(tmp_path / "hidden")
        partly = run("migrate", "--json")
        assert (partly.code, partly.json["total"]["migrated"], partly.json["total"]["failed"]) == (1, 2, 1)
        (tmp_path / "hidden").rename(tmp_path / BOB / "wane.toml")
        assert run("migrate").err.endswith("3 members, 1 migrated\n")
        assert [one["result"] for one in run("migrate", "--json").json["members"]] == [[], [], []]
        assert run("migrate").out.count("up to date") == 3
        assert run("migrate", "--print").code == 2
        assert run("enable").err.endswith("3 members, 3 enabled\n")
        assert swept() == [True] * 3
        assert [one["result"] for one in run("enable", "event", "--json").json["members"]] == [
            "retention.event.enabled"
        ] * 3
        assert run("enable", "evnt").code == 1
        disabled = run("disable")
        assert (disabled.code, disabled.err.endswith("3 members, 3 disabled\n")) == (0, True)
        assert swept() == [False] * 3


def test_the_command_reports_each_member_and_a_total_and_exits_by_them(
    fleet: Ships, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: object) -> Result:
        return wane(capfd, monkeypatch, "archive", *words, "--fleet", fleet.path)

    assert (run("query", "event", "--json").json, run("query", "event").code) == ([], 0), "nothing is archived yet"
    due = run("run", "--dry-run", "--json").json
    assert due["total"]["rows_due"] == 18
    counted = "3 members, 18 rows due, 0 uncounted, followers not counted (a dry run: nothing was changed)\n"
    assert run("run", "--dry-run").err.endswith(counted)
    assert due["members"][0]["result"][0]["due"] == 6
    (fleet.folder / BOB / "wane.toml").rename(fleet.folder / BOB / "hidden")
    done = run("run", "--fast")
    assert done.code == 1
    assert "bob:" in done.err
    partly = run("query", "event", "--json", "--limit", "100")
    assert (partly.code, {row["_member"] for row in partly.json}) == (1, {ADA, CYD})
    moved = "12 rows archived, 12 rows left, 12 followers archived, 12 followers left"
    assert f"3 members, 1 failed, 2 with work, {moved}" in done.err, "rows are those that the dry run counted"
    (fleet.folder / BOB / "hidden").rename(fleet.folder / BOB / "wane.toml")
    later = run("run", "--fast", "--json")
    assert later.code == 0
    assert later.json["total"]["with_work"] == 1
    assert [len(one["result"]["rules"]) for one in later.json["members"]] == [0, 1, 0]
    assert run("ls", "--json").json["total"]["rows"] == 36
    assert run("status", "--json").json["total"]["sweeps"] == 3
    assert run("verify").code == 0
    requested = run("query", "event", "--where", "id >= 5", "--columns", "id,body", "--json")
    assert (requested.code, [(row["_member"], row["id"]) for row in requested.json]) == (
        0,
        [(name, number) for name in (ADA, BOB, CYD) for number in (5, 6)],
    )
    some = run("query", "event", "--limit", "7", "--format", "csv")
    assert [line.split(",")[:2] for line in some.out.splitlines()] == [
        ["_member", "id"],
        *([ADA, str(number)] for number in range(1, 7)),
        [BOB, "1"],
    ]
    assert "the first 7 rows: there are more" in some.err
    unknown = run("query", "evnt")
    assert (unknown.code, unknown.err.count("no rule archives evnt")) == (1, 3)
    assert run("query", "event", "--format", "parquet", "--out", fleet.folder / "x.parquet").code == 2
    assert run("absent", "--json").json["total"]["rows_absent"] == 0
    for words in (["expire"], ["compact"], ["tidy"]):
        assert run(*words, "--dry-run", "--json").json["total"]["done"] == 3
    assert run("tidy", "--dry-run").err.endswith("(a dry run: nothing was changed)\n")
    file = next((fleet.folder / CYD / "cold" / "event").glob("_month=*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    broken = run("verify", "--json")
    assert (broken.code, [one["outcome"] for one in broken.json["members"]]) == (1, ["done", "done", "failed"])
    for name in fleet.databases:
        with fleet.keeper(name) as keeper:
            keeper.disable()
            fleet.databases[name].execute("UPDATE event SET at_ms = ? WHERE id = 10001", (OLD_MS,))
    off = run("run", "--json")
    assert (off.code, off.json["total"]["off"]) == (4, 3)
    assert run("run", "--url", "sqlite:///x.db").code == 2


def test_nothing_due_writes_nothing_and_starts_no_spark(
    fleet: Ships,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet.run()

    def forbidden(settings: SparkSettings, starting: object) -> None:
        raise AssertionError("Spark is not needed")

    monkeypatch.setattr(executor, "default", forbidden)
    own = "wane_audit" if fleet.databases[ADA].store == "sqlite" else "wane.audit"
    before = {name: one.query(f"SELECT count(*) FROM {own}") for name, one in fleet.databases.items()}
    for file in list(fleet.folder.glob("*/cold/*")):
        file.rename(file.with_name(f"moved-{file.name}"))  # The archive is not read either.
    done = wane(capfd, monkeypatch, "archive", "run", "--fleet", fleet.path, "--json")
    assert (done.code, done.json["total"]["with_work"]) == (0, 0)
    assert {name: one.query(f"SELECT count(*) FROM {own}") for name, one in fleet.databases.items()} == before


WAITING = CONTRACT.replace('keep = "forever"\n', 'keep = "forever"\nleast_rows = 8\nlongest_wait = "200d"\n')


def test_members_wait_until_a_sweep_is_worth_a_commit(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ships(database, tmp_path, contract=WAITING) as fleet:

        def run(*words: object) -> list[int]:
            done = wane(capfd, monkeypatch, "archive", "run", "--json", *words, "--fleet", fleet.path)
            assert done.code == 0, done.err
            return [sum(rule["evicted"]["event"] for rule in one["result"]["rules"]) for one in done.json["members"]]

        insert_events(fleet.databases[BOB], [7, 8])
        for words, due in (((), 8), (("--no-wait",), 20), (("event.cold",), 20)):
            counted = wane(capfd, monkeypatch, "archive", "run", "--dry-run", "--json", *words, "--fleet", fleet.path)
            assert counted.json["total"]["rows_due"] == due, words
        assert run() == [0, 8, 0], "the others have six rows due"
        assert fleet.hot(ADA) == [1, 2, 3, 4, 5, 6, *STAYING]
        assert not (fleet.folder / ADA / "cold").exists()
        for name, one in fleet.databases.items():
            insert_events(one, [9])
            assert fleet.hot(name)[-4:] == [9, *STAYING]
        assert run("event.cold", "--wait") == [0, 0, 0]
        assert run("--no-wait") == [7, 1, 7]
        insert_events(fleet.databases[CYD], [10])
        assert run("event") == [0, 0, 1], "a rule that is named does not wait"


def test_a_run_of_one_contract_waits_if_it_is_requested_to(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ships(database, tmp_path, contract=WAITING) as fleet:

        def run(*words: object) -> Result:
            return wane(capfd, monkeypatch, "archive", "run", *words, "-c", fleet.folder / ADA / "wane.toml")

        counted = run("--wait", "--dry-run")
        assert "6, waits" in counted.out
        assert "event.cold: waits until 8 rows are due, or one has been due for 200d" in counted.err
        assert "a dry run: 0 rows would be archived, nothing was changed" in counted.err
        assert (
            "a dry run: 6 rows would be archived, with their followers in event_read, nothing was changed"
            in run("--dry-run").err
        )
        waited = run("--wait")
        assert waited.code == 0
        assert "event.cold: waits until 8 rows are due, or one has been due for 200d" in waited.err
        assert fleet.hot(ADA) == [1, 2, 3, 4, 5, 6, *STAYING]
        assert run().code == 0
        assert fleet.hot(ADA) == STAYING
