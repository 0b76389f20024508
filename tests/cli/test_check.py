"""`wane check`: a contract by itself, and against a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import CONTRACT, write_contract
from servers import Database


def test_a_contract_without_mistakes_is_fine_and_no_database_is_touched(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///nowhere.db")
    done = wane("check")
    assert (done.code, done.out) == (0, "")
    assert done.err == "wane.toml: fine (1 table with rules, 1 excused; nothing to report)\n"


def test_every_mistake_is_reported_at_once_with_its_fix(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db", CONTRACT.replace('"7d"', '"0d"').replace("live  ", "life  "))
    done = wane("check")
    assert done.code == 1
    assert "table.inbox.rule.failed.keep" in done.out
    assert "did you mean 'live'" in done.out
    assert done.out.count("  fix: ") >= 2
    assert done.err.startswith("wane.toml: ")


def test_mistakes_are_also_data(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db", CONTRACT.replace('"7d"', '"0d"'))
    done = wane("check", "--json")
    assert (done.code, done.err) == (1, "")
    assert done.json["ok"] is False
    assert done.json["fingerprint"] is None
    [finding] = done.json["findings"]
    assert finding["path"] == "table.inbox.rule.failed.keep"
    assert set(finding) == {"severity", "code", "file", "path", "table", "message", "fix"}


def test_a_missing_contract_says_how_to_get_one(wane: Wane) -> None:
    done = wane("check")
    assert done.code == 1
    assert "no such file" in done.out
    assert "wane init" in done.out


def test_the_contract_can_be_named_by_the_environment(process: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db").rename(folder / "other.toml")
    assert process("check", WANE_CONTRACT="other.toml").code == 0


def test_a_contract_that_fits_its_database(wane: Wane, filled: Database) -> None:
    done = wane("check", "--cover")
    assert done.code == 0
    assert "note never-due wane.toml table.inbox.rule.failed\n  1 of its rows" in done.out
    assert "fine (1 table with rules, 1 excused; 1 note)" in done.err


def test_a_table_that_nobody_mentions_warns_and_fails_when_strict(wane: Wane, filled: Database) -> None:
    filled.execute("CREATE TABLE forgotten (id integer PRIMARY KEY)")
    relaxed, strict = wane("check", "--cover"), wane("check", "--cover", "--strict")
    assert (relaxed.code, strict.code) == (0, 1)
    assert "warning uncovered-table forgotten" in relaxed.out
    assert "error uncovered-table forgotten" in strict.out


def test_a_column_that_is_missing_is_an_error_with_its_place(wane: Wane, filled: Database, folder: Path) -> None:
    write_contract(folder, filled.url, CONTRACT.replace('"received_at_ms"', '"recieved_at_ms"'))
    done = wane("check", "--cover", "--json")
    assert (done.code, done.err) == (1, "")
    [finding] = [one for one in done.json["findings"] if one["severity"] == "error"]
    assert finding["code"] == "missing-column"
    assert "received_at_ms" in finding["fix"]
    assert done.json["database"] is not None


def test_show_prints_one_line_for_each_table_where_nobody_looks_at_a_terminal(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db")
    done = wane("check", "--show")
    assert done.code == 0
    head, inbox, note, settings = done.out.splitlines()
    assert head.split() == ["table", "bounded", "by", "pruned", "by", "safety", "invariant", "observe"]
    assert inbox.startswith("inbox")
    assert "failed older than 7d by received_at_ms with note" in inbox
    assert 'lifecycle_prune_rows_total{scheduler="tick",table="inbox.failed"}' in inbox
    assert note.startswith("note ")
    assert "one row, id = 1" in settings


def test_show_as_markdown_and_as_json(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db")
    assert wane("check", "--show", "--markdown").out.startswith("| Table | Bounded by |")
    tables = wane("check", "--show", "--json").json["tables"]
    assert [one["table"] for one in tables] == ["inbox", "note", "settings"]
    assert set(tables[0]) == {"table", "bound", "trigger", "why", "observe"}


def test_what_people_wrote_in_brackets_is_shown_as_they_wrote_it(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db", CONTRACT.replace("every reply", "[red]every[/red] [reply]"))
    assert "[red]every[/red] [reply]" in wane("check", "--show").out
    (folder / "[bold]").mkdir()
    path = write_contract(folder / "[bold]", "sqlite:///a.db")
    assert wane("check", "-c", path.relative_to(folder)).err.startswith("[bold]/wane.toml: fine")


@pytest.mark.parametrize(
    ("option", "needed"), [("--strict", "add --cover"), ("--markdown", "add --show")], ids=["strict", "markdown"]
)
def test_an_option_that_would_do_nothing_alone_is_refused(
    wane: Wane, filled: Database, option: str, needed: str
) -> None:
    done = wane("check", option)
    assert done.code == 2
    assert needed in " ".join(done.err.split())


def test_a_variable_of_the_database_that_is_not_set_is_reported(
    wane: Wane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANE_TEST_UNSET", raising=False)
    for url in ("WANE_TEST_UNSET", "postgresql://me:${WANE_TEST_UNSET}@db/app"):
        (folder / "wane.toml").write_text(f'[store]\nurl = "{url}"\n')
        done = wane("check", "--json")
        assert (done.code, done.json["findings"][0]["code"]) == (0, "unset-variable")
        assert "WANE_TEST_UNSET" in done.json["findings"][0]["message"]
        assert wane("check", "--json", "--url", "sqlite:///state.db").json["findings"] == []
        assert wane("check", "--cover").code == 1


def test_a_variable_of_the_archive_that_is_not_set_stops_every_command(
    wane: Wane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANE_TEST_UNSET", raising=False)
    (folder / "wane.toml").write_text(
        '[store]\nurl = "sqlite:///state.db"\n[archive]\nurl = "${WANE_TEST_UNSET}/cold"\n'
    )
    for words in ("check", "plan", "archive ls", "archive run", "sweep"):
        done = wane(*words.split())
        assert (done.code, "WANE_TEST_UNSET" in done.out + done.err) == (1, True), words
    assert [place.name for place in folder.iterdir()] == ["wane.toml"]
