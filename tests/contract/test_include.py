"""Contracts of several files: who may say what, and whose mistake it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from contract.cases import GOOD, inside, read, reported
from wane._contract.duration import FOREVER
from wane._contract.load import load_contract, read_contract
from wane._contract.model import Age
from wane._contract.names import TableName

WINDOWED = GOOD.replace('"7d"', '{ window = "w" }')


def test_each_mistake_is_reported_of_the_file_that_makes_it(tmp_path: Path) -> None:
    (tmp_path / "teams").mkdir()
    (tmp_path / "teams" / "a.toml").write_text('include = ["deeper.toml"]\n' + GOOD.replace('"7d"', '"0d"'))
    (tmp_path / "teams" / "deeper.toml").write_text('[window]\nunread = "x"\n[floor]\nnobody = "7d"\n')
    reading = read(tmp_path, wane='include = ["teams/a.toml"]\n[excused]\nc = {}\n')
    assert [(finding.file, finding.path) for finding in reading.findings] == [
        ("teams/deeper.toml", "window.unread"),
        ("teams/deeper.toml", "floor.nobody"),
        ("teams/a.toml", "table.t.rule.r.keep"),
        ("wane.toml", "excused.c"),
    ]


def test_warnings_are_reported_of_the_file_that_makes_them(tmp_path: Path) -> None:
    a = '[window]\nunread = "7d"\n[scheduler]\nidle = { every = "5m" }\n[store]\nurl = "postgresql://me:hunter2@db/x"\n'
    reading = read(tmp_path, wane='include = ["a.toml"]\n' + GOOD, a=a)
    assert {(finding.file, finding.path, finding.code) for finding in reading.findings} == {
        ("a.toml", "window.unread", "unused"),
        ("a.toml", "scheduler.idle", "unused"),
        ("a.toml", "store.url", "password-in-file"),
    }


def test_a_file_sets_the_windows_of_the_files_it_includes(tmp_path: Path) -> None:
    a = WINDOWED + '[window]\nw = "7d"\n'
    contract = read(tmp_path, wane='include = ["a.toml"]\n[window]\nw = "9d"\n', a=a).contract
    assert contract is not None
    bound = contract.table(TableName("t")).rules[0].bound
    assert isinstance(bound, Age)
    assert bound.keep == timedelta(days=9)


def test_a_window_set_to_forever_switches_a_rule_off_with_its_guards(tmp_path: Path) -> None:
    a = WINDOWED + 'unless = [{ null = "resolved_at" }]\n[window]\nw = "7d"\n'
    reading = read(tmp_path, wane='include = ["a.toml"]\n[window]\nw = "forever"\n', a=a)
    assert reported(reading) == ""
    assert reading.contract is not None
    assert reading.contract.table(TableName("t")).rules[0].bound == FOREVER
    assert list(reading.contract.rules()) == []


def test_a_window_set_anew_stays_above_the_floor(tmp_path: Path) -> None:
    a = WINDOWED + '[window]\nw = "7d"\n[floor]\nt = "7d"\n'
    assert reported(read(tmp_path, wane='include = ["a.toml"]\n[window]\nw = "6d"\n', a=a)) == (
        'error under-floor: a.toml table.t.rule.r.keep: 6d is under the floor of 7d\n  fix: keep at least "7d"'
    )


@pytest.mark.parametrize(
    ("section", "entry"),
    [("floor", 't = "1d"'), ("excused", 'x = { constant = "c" }'), ("archive", 't = { keep = "forever" }')],
)
def test_neighbours_may_not_both_declare(section: str, entry: str, tmp_path: Path) -> None:
    stated = f"[{section}]\n{entry}\n"
    wane = 'include = ["a.toml", "b.toml"]\n' + GOOD
    if section == "archive":
        wane += 'then = "archive"\n[archive]\nurl = "a"\n'
    name = entry.split()[0]
    assert reported(read(tmp_path, wane=wane, a=stated, b=stated)) == (
        f"error declared-twice: b.toml {section}.{name}: {name} is declared already in a.toml\n  fix: keep one of the two"
    )


def test_a_table_in_two_neighbours_is_stated_twice(tmp_path: Path) -> None:
    assert reported(read(tmp_path, wane='include = ["a.toml", "b.toml"]\n', a=GOOD, b=GOOD)) == (
        "error declared-twice: b.toml table.t: t is declared already in a.toml\n  fix: keep one of the two"
    )


@pytest.mark.parametrize(
    ("one", "two", "path"),
    [
        ('[window]\nw = "7d"', '[window]\nw = "1h"', "window.w"),
        ('[window]\nw = "7d"', '[window]\nw = "forever"', "window.w"),
        ('[window]\nw = "7d"\n[scheduler]\nx = { every = "5m" }', '[scheduler]\nx = { every = "1h" }', "scheduler.x"),
        ('strict = true\n[window]\nw = "7d"', "strict = false", "strict"),
        ('[window]\nw = "7d"\n[budget]\nrows = 5', "[budget]\nrows = 6", "budget.rows"),
        ('[window]\nw = "7d"\n[store]\nurl = "A"', '[store]\nurl = "B"', "store.url"),
        ('[window]\nw = "7d"\n[archive]\nurl = "a"', '[archive]\nurl = "b"', "archive.url"),
    ],
)
def test_neighbours_may_not_disagree(one: str, two: str, path: str, tmp_path: Path) -> None:
    """Else the file that happens to come later would change the windows of a file that knows nothing of it."""
    fix = "files that do not include each other must agree: change one, or give one another name"
    reading = read(tmp_path, wane='include = ["a.toml", "b.toml"]\n' + WINDOWED, a=one, b=two)
    line = 1 if path == "strict" else 2
    assert [str(finding) for finding in reading.findings if finding.severity == "error"] == [
        f"b.toml:{line} {path}: a.toml sets it to something else\n  fix: {fix}"
    ]


def test_neighbours_may_agree(tmp_path: Path) -> None:
    a = b = '[window]\nw = "7d"\n'
    assert reported(read(tmp_path, wane='include = ["a.toml", "b.toml"]\n' + WINDOWED, a=a, b=b)) == ""


def test_a_store_of_several_files_is_put_together(tmp_path: Path) -> None:
    a = '[store]\nschemas = ["app"]\nurl = "A"\n'
    contract = read(tmp_path, wane='include = ["a.toml"]\n' + GOOD + '[store]\nurl = "B"\n', a=a).contract
    assert contract is not None
    assert (contract.store.url, contract.store.schemas) == ("B", ("app",))


def test_circles_end(tmp_path: Path) -> None:
    reading = read(
        tmp_path, wane='include = ["a.toml"]', a='include = ["b.toml"]', b='include = ["./wane.toml", "a.toml"]'
    )
    assert reported(reading) == (
        "error include-cycle: b.toml include[0]: './wane.toml' includes itself\n  fix: remove this include\n"
        "error include-cycle: b.toml include[1]: 'a.toml' includes itself\n  fix: remove this include"
    )


def test_a_file_is_the_same_file_by_the_name_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.toml").symlink_to("wane.toml")
    assert reported(read(tmp_path, wane='include = ["link.toml"]\n' + GOOD)) == (
        "error include-cycle: wane.toml include[0]: 'link.toml' includes itself\n  fix: remove this include"
    )


def test_a_link_to_itself_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    assert reported(read(tmp_path, wane='include = ["loop.toml"]\n' + GOOD)) == (
        "error unreadable: loop.toml: cannot be read: Too many levels of symbolic links\n"
        "  fix: wane.toml includes it: correct the path"
    )


def test_a_chain_of_files_is_bounded(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number}.toml").write_text(f'include = ["{number + 1}.toml"]')
    with inside(tmp_path):
        reading = read_contract("0.toml")
    assert reported(reading) == ("error too-many-files: 99.toml include[0]: more than 100 files\n  fix: include fewer")


def test_a_wide_contract_is_bounded(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}.toml").write_text("")
    reading = read(tmp_path, wane=f"include = {[f'{number}.toml' for number in range(100)]}\n" + GOOD)
    assert [finding.path for finding in reading.findings] == ["include[99]"]


def test_all_references_fit_together(tmp_path: Path) -> None:
    names = ["statestore", "claims", "webhooks", "substrate"]
    path = tmp_path / "wane.toml"
    path.write_text(f"include = {[f'reference:{name}' for name in names]}\n")
    assert reported(read_contract(path)) == ""
    assert len(load_contract(path).tables) > 20


def test_a_file_replaces_tables_floors_and_excuses_of_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        """
        [scheduler]
        s = { every = "5m" }
        [floor]
        letters = "365d"
        [table.letters]
        scheduler = "s"
        why = "base"
        time = "resolved_at"
        [table.letters.rule.old]
        keep = "365d"
        [excused]
        staging = { elsewhere = "governed by others" }
        """
    )
    (tmp_path / "wane.toml").write_text(
        """
        include = ["base.toml"]
        [floor]
        letters = "180d"
        [table.letters]
        scheduler = "s"
        why = "team"
        time = "resolved_at"
        [table.letters.rule.old]
        keep = "180d"
        [table.staging]
        scheduler = "s"
        why = "handed over"
        time = "created_at"
        [table.staging.rule.old]
        keep = "30d"
        """
    )
    contract = load_contract(tmp_path / "wane.toml")
    assert [(str(table.name), table.why) for table in contract.tables] == [
        ("letters", "team"),
        ("staging", "handed over"),
    ]
    assert contract.excused == ()
    assert [floor.days for _, floor in contract.floors] == [180]


EXCUSING = """
[excused]
staging = { elsewhere = "governed by others" }
cache = { singleton = "one row" }
"""
RULED = """
[scheduler]
s = { every = "5m" }
[table.staging]
scheduler = "s"
why = "handed over"
time = "created_at"
rule.old = { keep = "30d" }
"""


def test_a_file_removes_an_excuse_of_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(EXCUSING)
    (tmp_path / "middle.toml").write_text('include = ["base.toml"]\n')
    (tmp_path / "team.toml").write_text(RULED)
    path = tmp_path / "wane.toml"
    path.write_text('include = ["middle.toml", "team.toml"]\n')
    assert "error declared-twice: " in reported(read_contract(path)), "neighbours that disagree"
    path.write_text('include = ["middle.toml", "team.toml"]\n[excused]\nstaging = false\n')
    contract = load_contract(path)
    assert [str(table.name) for table in contract.tables] == ["staging"]
    assert [str(name) for name, _ in contract.excused] == ["cache"]
    (tmp_path / "outer.toml").write_text('include = ["wane.toml"]\n[excused]\ncache = false\n')
    assert load_contract(tmp_path / "outer.toml").excused == ()


def test_an_excuse_of_a_neighbour_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(EXCUSING)
    (tmp_path / "team.toml").write_text("[excused]\nstaging = false\n")
    path = tmp_path / "wane.toml"
    path.write_text('include = ["base.toml", "team.toml"]\n')
    assert "error declared-twice: team.toml excused.staging" in reported(read_contract(path)).replace(
        str(tmp_path) + "/", ""
    )


def test_a_removed_excuse_lets_the_table_follow(tmp_path: Path) -> None:
    path = tmp_path / "wane.toml"
    path.write_text(
        """
        include = ["reference:substrate"]
        [excused]
        "iu_core.iu_staging_record" = false
        "iu_core.iu_staging_payload" = false
        [table."iu_core.iu_staging_record"]
        scheduler = "jobs"
        why = "handed over"
        state = "status"
        live = ["staged", "validating", "promoted", "rejected"]
        time = "created_at"
        [table."iu_core.iu_staging_record".rule.cold]
        when = ["expired"]
        keep = "30d"
        with = ["iu_core.iu_staging_payload.record_id"]
        """
    )
    assert reported(read_contract(path)) == ""
    path.write_text(path.read_text().replace('"iu_core.iu_staging_payload" = false', ""))
    assert "untouchable" in reported(read_contract(path))
