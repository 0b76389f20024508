"""docs/reference/health.md leaves out nothing: every code that health and `check --live` report, every key of the
report, SQL that runs."""

from __future__ import annotations

import ast
import re

import pytest

from docs.sessions import ROOT
from observe.unhealthy import CONDITIONS, healthy
from servers import PostgresDatabase, SqliteDatabase
from wane._sqlfunctions import install

PAGE = (ROOT / "docs/reference/health.md").read_text(encoding="utf-8")
SOURCES = ("_check/live.py", "observe/_verdict.py", "_sqlfunctions/health.py", "_archive/findings.py")
REPORTING = ("_add", "add", "_error", "_warning", "Finding", "Question", "_reference", "_finding")


def codes(source: str) -> set[str]:
    """Return the codes that a module reports: texts of its calls, and those in its SQL."""
    text = (ROOT / "src/wane" / source).read_text(encoding="utf-8")
    found = set(re.findall(r"wane_code (?:text )?:= '([a-z-]+)'", text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in REPORTING:
                values = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
                found |= {str(one) for one in values if re.fullmatch(r"[a-z]+(-[a-z]+)+|overdue", str(one))}
    return found


OF_COVER = {"no-index", "no-reference-index"}
"""What `check --cover` reports of any table, and health of large ones."""
CODES = set().union(*map(codes, SOURCES)) | OF_COVER


def test_every_code_has_an_entry_and_every_entry_a_code() -> None:
    for heading, count in (("Health findings", 22), ("Broken promises", 9)):
        section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        entries = re.findall(r"^### `([a-z-]+)`$", section, re.MULTILINE)
        assert entries == sorted(entries)
        assert len(entries) == count
    assert set(re.findall(r"^### `([a-z-]+)`$", PAGE, re.MULTILINE)) == CODES


def test_every_condition_has_a_test() -> None:
    elsewhere = {
        "not-migrated",
        "drifted-functions",
        "partition-near",
        "partition-recommended",
        "unread-table",
        "promise-unchecked",
        "archive-log",
        "unfinished-sweep",
        "no-report",
        "stale-report",
        *OF_COVER,
    }
    assert {code for code, _ in CONDITIONS.values()} | elsewhere == CODES


def test_every_key_of_the_report_is_there(sqlite_database: SqliteDatabase) -> None:
    with healthy(sqlite_database) as world:
        report = world.keeper.health().as_dict()
    keys = {*report, *report["tables"][0], *report["tables"][0]["rules"][0]}
    assert [key for key in keys if f"`{key}`" not in PAGE and not key.endswith(("_exactness", "rule"))] == []


def test_its_sql_runs(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        world.keeper.record_health()
    [block] = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    view, verdict, findings = filter(str.strip, block.split(";\n"))
    assert postgres_database.query(view)
    assert postgres_database.query(verdict) == [(True,)]
    assert postgres_database.query(findings) == []


@pytest.mark.parametrize(
    "name",
    ["grace", "partition_rows", "partition_finished_rows", "hot_read_ms", "counted_rows", "forget_silent", "every"],
)
def test_every_setting_is_there(name: str) -> None:
    assert f"`{name}`" in PAGE
    assert f"\n| `{name}` |" in (ROOT / "docs/reference/contract.md").read_text(encoding="utf-8")
