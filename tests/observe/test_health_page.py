"""docs/reference/health.md leaves out nothing: every code that health and `check --live` tell, every key of the report, SQL that runs."""

from __future__ import annotations

import ast
import re

import pytest

from docs.sessions import ROOT
from observe.sick import SICKNESSES, healthy, second_singleton
from servers import PostgresDatabase, SqliteDatabase
from wane.sqlfunctions import install

PAGE = (ROOT / "docs/reference/health.md").read_text(encoding="utf-8")
SOURCES = ("check/live.py", "observe/verdict.py", "sqlfunctions/health.py", "archive/findings.py")
TELLING = ("_add", "add", "_error", "_warning", "Finding", "Question", "_reference", "_finding")


def codes(source: str) -> set[str]:
    """The codes that a module tells: texts of its calls, and those that its SQL chooses between."""
    text = (ROOT / "src/wane" / source).read_text(encoding="utf-8")
    found = set(re.findall(r"THEN '([a-z-]+)'(?= WHEN| ELSE|\n)", text)) if "sqlfunctions" in source else set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in TELLING:
                values = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
                found |= {str(one) for one in values if re.fullmatch(r"[a-z]+(-[a-z]+)+|overdue", str(one))}
    return found


TOLD = codes(SOURCES[0]) | codes(SOURCES[1]) | codes(SOURCES[3])


def test_every_code_has_an_entry_and_every_entry_a_code() -> None:
    for heading, count in (("Sicknesses", 17), ("Broken promises", 9)):
        section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        entries = re.findall(r"^### `([a-z-]+)`$", section, re.MULTILINE)
        assert entries == sorted(entries)
        assert len(entries) == count
    assert set(re.findall(r"^### `([a-z-]+)`$", PAGE, re.MULTILINE)) == TOLD


def test_every_sickness_has_a_test() -> None:
    elsewhere = {
        "not-migrated",
        "drifted-functions",
        "partition-near",
        "partition-recommended",
        "unread-table",
        "promise-unchecked",
        "archive-log",
        "unfinished-sweep",
    }
    assert {code for code, _ in SICKNESSES.values()} | elsewhere == TOLD


def test_sql_tells_no_code_that_the_command_does_not() -> None:
    told = codes(SOURCES[2])
    assert {"overdue", "falling-behind", "stale-reservation"} <= told
    assert told <= TOLD


def test_every_key_of_the_report_is_there(sqlite_database: SqliteDatabase) -> None:
    with healthy(sqlite_database) as world:
        report = world.keeper.health().as_dict()
    keys = {*report, *report["tables"][0], *report["tables"][0]["rules"][0]}
    assert [key for key in keys if f"`{key}`" not in PAGE and not key.endswith(("_exactness", "rule"))] == []


def test_the_function_tells_what_the_command_tells(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        second_singleton(world)
        report = world.keeper.health().as_dict()
        [(told,)] = postgres_database.query("SELECT wane.fn_retention_health()")
    assert report.keys() - told.keys() == {"database", "functions", "migrated"}
    assert told.keys() <= report.keys()
    for mine, theirs in zip(report["tables"], told["tables"], strict=True):
        assert mine.keys() == theirs.keys()
        assert [one.keys() for one in mine["rules"]] == [one.keys() for one in theirs["rules"]]
        same = ("table", "scheduler", "every_seconds", "enabled", "rows", "due", "partition_recommended", "bytes")
        assert [mine[key] for key in same] == [theirs[key] for key in same]
    assert (report["verdict"], told["verdict"]) == ("unhealthy: false-excuse",) * 2
    [finding] = told["findings"]
    assert report["findings"][0].keys() - finding.keys() == {"file", "path"}
    assert finding["fix"] == report["findings"][0]["fix"]


def test_its_sql_runs(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
    [block] = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    view, verdict, findings = filter(str.strip, block.split(";\n"))
    assert postgres_database.query(view)
    assert postgres_database.query(verdict) == [(True,)]
    assert postgres_database.query(findings) == []


@pytest.mark.parametrize(
    "name", ["grace", "partition_rows", "partition_finished_rows", "hot_read_ms", "counted_rows", "forget_silent"]
)
def test_every_setting_is_there(name: str) -> None:
    assert f"`{name}`" in PAGE
    assert f"\n{name} " in (ROOT / "docs/reference/contract.md").read_text(encoding="utf-8")
