"""Sweeps of several databases in one commit: each as if it were alone, and what the log refuses of one keeps none of
the others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from archive.group_protocol import GroupProtocol, explore_groups
from wane._archive.delta import group_commit
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.group_commit import CommitGroup, SweepCommit, commit_single, commit_together
from wane._leases import Lease
from wane.errors import ArchiveBusy, ArchiveError

SHAPE = [["id", "long"]]
ORIGINS = ("ada", "bob", "cyd")
LATER = datetime(2030, 1, 1, tzinfo=UTC)


def lease(fence: int) -> Lease:
    return Lease("archive event", "x", fence, LATER)


def cold(folder: Path, origin: str, name: str = "event") -> ColdTable:
    found = ColdTable(folder / "cold", name, origin, shared=True)
    found.ensure(SHAPE, follows=False)
    return found


def sweep(table: ColdTable, number: int = 1, *, fence: int = 1, files: int = 1) -> SweepCommit:
    written = []
    for one in range(files):
        path = table.folder / "_month=2026-01" / f"{number}-{one}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"rows")
        statistics = '{"numRecords": 1}'
        written.append(
            {"path": f"_month=2026-01/{path.name}", "bytes": 4, "month": "2026-01", "statistics": statistics}
        )
    return SweepCommit(table, "event", number, written, [lease(fence)])


def files(folder: Path, name: str = "event") -> list[str]:
    """Return the files that the log names, each under its origin."""
    table = DeltaTable(str(folder / "cold" / name))
    paths = (Path(uri) for uri in table.file_uris())
    return sorted(f"{path.parts[-3].removeprefix('_origin=')} {path.name}" for path in paths)


def version(folder: Path, name: str = "event") -> int:
    return DeltaTable(str(folder / "cold" / name)).version()


def test_one_commit_has_the_files_and_the_transactions_of_every_sweep(tmp_path: Path) -> None:
    tables = [cold(tmp_path, origin) for origin in ORIGINS]
    assert commit_together([sweep(one) for one in tables]) == {}
    assert (version(tmp_path), files(tmp_path)) == (1, ["ada 1-0.parquet", "bob 1-0.parquet", "cyd 1-0.parquet"])
    for one in tables:
        handle = one.fresh()
        assert handle is not None
        assert (one.last_sweep("event"), one.commits(handle)) == (1, 1)
        [entry] = [entry for entry in handle.history() if one.made(entry)]
        assert entry["wane.sweep"] == "1,1,1"
    # A sweep that is committed already is left out.
    commit_single([sweep(tables[0], 2)])
    assert commit_together([sweep(one, 2) for one in tables]) == {}
    assert (version(tmp_path), files(tmp_path).count("ada 2-0.parquet"), len(files(tmp_path))) == (3, 1, 6)
    assert commit_together([sweep(one, 2) for one in tables]) == {}
    assert version(tmp_path) == 3, "nothing to commit is no commit"


def test_what_is_wrong_with_one_sweep_is_its_own_failure(tmp_path: Path) -> None:
    ada, bob, cyd = (cold(tmp_path, origin) for origin in ORIGINS)
    bob.take_over([lease(2)])
    lost = sweep(cyd)
    (cyd.folder / lost.files[0]["path"]).unlink()
    problems = commit_together([sweep(ada), sweep(bob), lost])
    assert isinstance(problems[1], ArchiveBusy)
    assert "under a later lease" in str(problems[1])
    assert isinstance(problems[2], ArchiveError)
    assert "is not what was written" in str(problems[2])
    assert files(tmp_path) == ["ada 1-0.parquet"]
    # Two members that are one database would pass for one sweep.
    problems = commit_together([sweep(ada, 2), sweep(cold(tmp_path, "ada"), 2), sweep(cyd, 2)])
    assert list(problems) == [1]
    assert "two members of the fleet are the same database" in str(problems[1])
    assert files(tmp_path) == ["ada 1-0.parquet", "ada 2-0.parquet", "cyd 2-0.parquet"]


def test_a_partition_that_another_database_adopted_takes_nothing_of_its_former_owner(tmp_path: Path) -> None:
    ada, bob, _ = (cold(tmp_path, origin) for origin in ORIGINS)
    commit_single([sweep(ada)])
    ada.give("ada.adopter", ["event"], [lease(1)])
    problems = commit_together([sweep(ada, 2, fence=9), sweep(bob)])
    assert list(problems) == [0]
    assert "has adopted them" in str(problems[0])
    assert files(tmp_path) == ["ada 1-0.parquet", "bob 1-0.parquet"]


def test_a_commit_in_between_is_noticed_and_decided_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob, cyd = (cold(tmp_path, origin) for origin in ORIGINS)
    commit = DeltaTable.create_write_transaction

    def beaten(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        bob.take_over([lease(2)])  # Its successor has come, after the log was read.
        commit(self, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", beaten)
    problems = commit_together([sweep(ada), sweep(bob), sweep(cyd)])
    assert list(problems) == [1]
    assert "under a later lease" in str(problems[1])
    assert files(tmp_path) == ["ada 1-0.parquet", "cyd 1-0.parquet"]


def test_a_commit_that_fails_as_a_whole_is_made_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [cold(tmp_path, origin) for origin in ORIGINS]
    commit = DeltaTable.create_write_transaction

    def refusing(self: DeltaTable, actions: Any, *arguments: Any, **options: Any) -> None:
        if any("cyd" in action.path for action in actions):
            raise OSError("of one of them")
        commit(self, actions, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", refusing)
    problems = commit_together([sweep(one) for one in tables])
    assert list(problems) == [2]
    assert files(tmp_path) == ["ada 1-0.parquet", "bob 1-0.parquet"]


def run(folder: Path, members: int, parallel: int, most: int, rounds: int = 1) -> CommitGroup:
    """Run members that commit to a table that follows, then to its own, as often as there are rounds."""
    group = CommitGroup(members, parallel, most)
    tables = [(cold(folder, f"m{one}", "read"), cold(folder, f"m{one}")) for one in range(members)]
    turn, working, mostly = threading.Lock(), [0], [0]

    def work(number: int) -> None:
        with group.member():
            for one in range(1, rounds + 1):
                with turn:
                    working[0] += 1
                    mostly[0] = max(mostly[0], working[0])
                requests = [sweep(table, one) for table in tables[number]]
                with turn:
                    working[0] -= 1
                group.commit(requests)

    with ThreadPoolExecutor(group.most_members) as pool:
        list(pool.map(work, range(members), timeout=100))
    assert mostly[0] <= parallel
    return group


@pytest.mark.parametrize(("most", "commits"), [(20, 2), (4, 6)])
def test_members_wait_for_each_other_up_to_the_most_of_one_commit(tmp_path: Path, most: int, commits: int) -> None:
    run(tmp_path, 12, 2, most, rounds=2)
    assert len(files(tmp_path)) == len(files(tmp_path, "read")) == 24
    assert version(tmp_path) == version(tmp_path, "read") == commits


def test_a_commit_has_a_limit_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_MOST_FILES", 2)
    run(tmp_path, 5, 1, 8)
    assert (len(files(tmp_path)), version(tmp_path)) == (5, 3)


def test_a_member_that_works_for_long_lets_the_others_wait_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_LONGEST_WAIT_SECONDS", 0.01)
    group = CommitGroup(3, 2, 8)
    committed = threading.Event()

    def quick(origin: str) -> None:
        with group.member():
            group.commit([sweep(cold(tmp_path, origin))])
            committed.set()

    def slow() -> None:
        with group.member():
            assert committed.wait(60), "it waits for the slow one"

    with ThreadPoolExecutor(2) as pool:
        for one in [pool.submit(slow), pool.submit(quick, "ada")]:
            one.result(100)
    assert files(tmp_path) == ["ada 1-0.parquet"]


def test_no_order_of_events_commits_a_sweep_twice_or_not_at_all() -> None:
    found = explore_groups(GroupProtocol())
    assert not found.wrong, found
    assert found.states > 500, "the exploration ended too early"


@pytest.mark.parametrize("guard", ["fence_of_each", "once_each", "one_state", "fence_first"])
def test_without_a_guard_a_group_breaks_a_promise(guard: str) -> None:
    assert explore_groups(GroupProtocol(**{guard: False})).wrong
