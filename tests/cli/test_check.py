"""`wane check`: a contract by itself, and against a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import CONTRACT, write_contract
from cli.sarif import check_sarif
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
    assert set(finding) == {"severity", "code", "file", "line", "path", "table", "message", "fix", "accepted"}


def test_a_missing_contract_states_how_to_get_one(wane: Wane) -> None:
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
    assert "note never-due wane.toml:14 table.inbox.rule.failed\n  1 of its rows" in done.out
    assert "fine (1 table with rules, 1 excused; 1 note)" in done.err


def test_an_index_that_two_rules_lack_is_printed_once(wane: Wane, filled: Database, folder: Path) -> None:
    rule = '\n[table.inbox.rule.lost]\nwhen = ["lost"]\nkeep = "9d"\nwith = ["note.inbox_id"]\n'
    write_contract(folder, filled.url, CONTRACT + rule)
    for (name,) in filled.query(INDEXES[filled.store]):
        filled.execute(f'DROP INDEX "{name}"')
    done = wane("check", "--cover").out
    created = [line for line in done.splitlines() if "fix: CREATE INDEX" in line and '"inbox"' in line]
    assert len(created) == 1
    assert "  fix: the same statement as for wane.toml:14 table.inbox.rule.failed\n" in done
    found = [one["fix"] for one in wane("check", "--cover", "--json").json["findings"] if one["code"] == "no-index"]
    assert len([fix for fix in found if '"inbox"' in fix]) == 2


INDEXES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = 'inbox'",
    "postgres": "SELECT indexname FROM pg_indexes WHERE tablename = 'inbox' AND indexname NOT LIKE '%_pkey'",
}


def test_an_unmentioned_table_warns_and_fails_when_strict(wane: Wane, filled: Database) -> None:
    filled.execute("CREATE TABLE forgotten (id integer PRIMARY KEY)")
    relaxed, strict = wane("check", "--cover"), wane("check", "--cover", "--strict")
    assert (relaxed.code, strict.code) == (0, 1)
    assert "warning uncovered-table forgotten" in relaxed.out
    assert "error uncovered-table forgotten" in strict.out


def test_a_column_that_is_missing_is_an_error_with_its_position(wane: Wane, filled: Database, folder: Path) -> None:
    write_contract(folder, filled.url, CONTRACT.replace('"received_at_ms"', '"recieved_at_ms"'))
    done = wane("check", "--cover", "--json")
    assert (done.code, done.err) == (1, "")
    [finding] = [one for one in done.json["findings"] if one["severity"] == "error"]
    assert finding["code"] == "missing-column"
    assert "received_at_ms" in finding["fix"]
    assert done.json["database"] is not None


def test_show_prints_one_line_for_each_table_without_a_terminal(wane: Wane, folder: Path) -> None:
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
    ("option", "needed"), [("--strict", "add --cover"), ("--markdown", "requires --show")], ids=["strict", "markdown"]
)
def test_an_option_that_would_do_nothing_by_itself_is_refused(
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
        (folder / "wane.toml").write_text(f'[store]\nurl = "{url}"\n[excused]\ncache = {{ singleton = "one row" }}\n')
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
    assert [path.name for path in folder.iterdir()] == ["wane.toml"]


# --- For machines that show findings beside the code
# -------------------------------------------------------------------

WRONG = CONTRACT.replace('keep = "7d"', 'keep = "0d"').replace('"5m"', '"5,m: 100%"')


def test_findings_have_the_line_of_their_key(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db", WRONG)
    done = wane("check", "--json")
    assert [(one["path"], one["file"], one["line"]) for one in done.json["findings"]] == [
        ("scheduler.tick.every", "wane.toml", 5),
        ("table.inbox.rule.failed.keep", "wane.toml", 16),
    ]
    assert "error wrong-value wane.toml:16 table.inbox.rule.failed.keep\n" in wane("check").out
    assert wane("plan").err.count("wane.toml:16 ") == 1


def test_what_is_compared_with_a_database_has_lines_of_the_file_that_declares_it(
    wane: Wane, filled: Database, folder: Path
) -> None:
    text = (folder / "wane.toml").read_text()
    (folder / "inbox.toml").write_text(text[text.index("[table.inbox]") : text.index("[excused]")])
    text = text.replace(text[text.index("[table.inbox]") : text.index("[excused]")], "")
    (folder / "wane.toml").write_text(f'include = ["inbox.toml"]\n{text}')
    filled.execute("DROP INDEX inbox_age")
    found = wane("check", "--cover", "--json").json["findings"]
    assert {(one["code"], one["file"], one["line"]) for one in found} == {
        ("no-index", "inbox.toml", 8),
        ("never-due", "inbox.toml", 8),
    }


def test_findings_are_workflow_commands_for_github(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db", WRONG)
    done = wane("check", "--format", "github")
    assert (done.code, done.err) == (1, "")
    first, second = done.out.splitlines()
    assert first.startswith("::error file=wane.toml,line=5,title=wrong-value::scheduler.tick.every: ")
    assert "100%25" in first
    assert second.startswith("::error file=wane.toml,line=16,title=wrong-value::table.inbox.rule.failed.keep: ")
    assert "%0Afix: write a duration" in second


def test_a_finding_without_a_file_is_shown_at_the_contract(wane: Wane, filled: Database, folder: Path) -> None:
    filled.execute("CREATE TABLE forgotten (id integer PRIMARY KEY)")
    (folder / "a,b:c").mkdir()
    (folder / "wane.toml").rename(folder / "a,b:c" / "wane.toml")
    shown = wane(
        "check", "--cover", "-c", "a,b:c/wane.toml", "--url", filled.url, "--format", "github"
    ).out.splitlines()
    assert "::warning file=a%2Cb%3Ac/wane.toml,title=uncovered-table::forgotten: " in "\n".join(shown)
    assert [line.split(" ")[0] for line in shown] == ["::notice", "::warning"]


def test_findings_are_sarif(wane: Wane, filled: Database, folder: Path) -> None:
    filled.execute("CREATE TABLE forgotten (id integer PRIMARY KEY)")
    done = wane("check", "--cover", "--strict", "--format", "sarif")
    assert (done.code, done.err) == (1, "")
    check_sarif(done.json)
    [run] = done.json["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], [rule["id"] for rule in driver["rules"]]) == ("wane", ["never-due", "uncovered-table"])
    assert all(rule["shortDescription"]["text"] and rule["help"]["text"] for rule in driver["rules"])
    note, error = run["results"]
    assert (note["ruleId"], note["ruleIndex"], note["level"]) == ("never-due", 0, "note")
    assert note["locations"] == [
        {
            "physicalLocation": {"artifactLocation": {"uri": "wane.toml"}, "region": {"startLine": 14}},
            "logicalLocations": [{"fullyQualifiedName": "table.inbox.rule.failed"}],
        }
    ]
    assert (error["ruleId"], error["level"]) == ("uncovered-table", "error")
    assert error["locations"][0]["physicalLocation"] == {"artifactLocation": {"uri": "wane.toml"}}
    assert error["message"]["text"].startswith("forgotten: the contract does not name this table")


def test_a_contract_without_findings_is_an_empty_sarif_run(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db")
    done = wane("check", "--format", "sarif")
    check_sarif(done.json)
    assert (done.code, done.json["runs"][0]["results"]) == (0, [])
    assert wane("check", "--format", "github").out == ""


def test_json_is_a_format_and_excludes_the_others(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///a.db")
    assert wane("check", "--format", "json").json == wane("check", "--json").json
    assert wane("check", "--format", "json", "--json").code == 0
    assert wane("check", "--format", "text").out == wane("check").out
    refused = wane("check", "--json", "--format", "sarif")
    assert (refused.code, refused.out) == (2, "")
    assert "exclude each other" in refused.err
