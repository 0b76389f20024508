"""Every mistake that a contract can have, with exactly what its author reads; `mistakes/*.txt` holds them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from contract.cases import FOLDER, GOOD, STATES, TABLE, Case, cases, codes_tested, read, reported

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "src" / "wane" / "_contract"
GROUPS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{group}: {case.name}") for group in GROUPS for case in cases(group)]
)
def test_a_mistake_is_reported(case: Case, tmp_path: Path) -> None:
    reading = read(tmp_path, wane=case.toml)
    assert reported(reading) == case.reported
    assert (reading.contract is None) == ("error " in case.reported)


def test_the_beginnings_that_mistakes_are_made_in_are_good(tmp_path: Path) -> None:
    for good in (GOOD, TABLE + "rule.r.most = 5\n", STATES + 'rule.r = { when = ["done"], keep = "7d" }\n'):
        assert reported(read(tmp_path, wane=good)) == ""


def codes_of_the_source() -> set[str]:
    """Return the codes in all calls that note a finding. A code that is no literal could not be found, so it fails."""
    found = {"unknown-key"}  # The default of Mistakes.unknown.
    for path in CONTRACT.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            position = {"error": 1, "warning": 1, "refuse": 1, "_error": 1, "unknown": 4}.get(node.func.attr)
            if position is None or (node.func.attr == "unknown" and len(node.args) < 5):
                continue
            code = node.args[position]
            if isinstance(code, ast.Name):
                assert code.id == "code", f"{path.name}:{node.lineno} passes on something that is no code"
                continue
            assert isinstance(code, ast.Constant), f"{path.name}:{node.lineno}"
            assert isinstance(code.value, str), f"{path.name}:{node.lineno}"
            found.add(code.value)
    return found


def test_every_code_has_a_mistake_that_shows_it() -> None:
    elsewhere = {"too-many-files": "test_include.py", "not-toml": "test_load.py"}
    for code, file in elsewhere.items():
        assert f"error {code}: " in Path(__file__).with_name(file).read_text(encoding="utf-8")
    assert codes_tested() | elsewhere.keys() == codes_of_the_source()


def test_every_code_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "findings.md").read_text(encoding="utf-8")
    documented = re.findall(r"^### `([a-z-]+)`$", page, re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert codes_of_the_source() <= set(documented)


def test_mistakes_of_all_kinds_are_reported_at_once(tmp_path: Path) -> None:
    reading = read(
        tmp_path,
        wane="""
            stric = true
            [scheduler]
            s = { every = "5 parsecs" }
            [table.a]
            scheduler = "s"
            [table.a.rule.r]
            keep = "0d"
            [table.b]
            scheduler = "t"
            why = "w"
            time = "at"
            [table.b.rule.r]
            keep = "7d"
            with = ["c.b_id"]
            [excused]
            c = { mirror = "" }
            [floor]
            b = "nine days"
        """,
    )
    assert [(finding.code, finding.path) for finding in reading.findings] == [
        ("unknown-key", "stric"),
        ("wrong-value", "scheduler.s.every"),
        ("missing-key", "table.a.why"),
        ("wrong-value", "table.a.rule.r.keep"),
        ("unknown-scheduler", "table.b.scheduler"),
        ("wrong-value", "excused.c.mirror"),
        ("wrong-value", "floor.b"),
    ]
