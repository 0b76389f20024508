"""Every code that exists is explained, once: the command and the reference read the same text."""

from __future__ import annotations

import ast
import re
import runpy
from functools import cache
from pathlib import Path

from wane import errors
from wane._check.explain import explain, explanations, suggest_code

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wane"
WRITER = runpy.run_path(str(ROOT / "docs" / "generate_findings.py"))
CODE = re.compile(r"[a-z]+(-[a-z]+)+|overdue|stray|unused|unreadable|untouchable")
REPORTING = (
    "add",
    "_add",
    "error",
    "_error",
    "warning",
    "_warning",
    "refuse",
    "unknown",
    "_unknown",
    "Finding",
    "Question",
)


@cache
def reported() -> set[str]:
    """Return the codes that any part of the package passes to what reports a finding, and those in its SQL."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"wane_code (?:text )?:= '([a-z-]+)'", text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                values = [one.value for one in node.args if isinstance(one, ast.Constant)] if name in REPORTING else []
                found |= {str(one) for one in values if CODE.fullmatch(str(one))}
    return found


def test_every_code_of_a_finding_and_every_error_is_explained() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.WaneError) and not name.startswith("_")
    }
    assert len(reported()) > 90
    assert reported() <= set(explanations())
    assert kinds - {"WaneError"} == {code for code, one in explanations().items() if "error" in one.reports}


def test_every_explanation_is_complete_and_of_a_code_that_exists() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    for code, one in explanations().items():
        assert min(map(len, (one.means, one.why, one.fix, one.example))) > 3, code
        assert one.means.endswith((".", ":")), code
        assert set(one.reports) <= {"contract", "database", "archive", "live", "health", "error"}, code
        assert code in text, code


def test_the_pages_hold_what_the_command_prints() -> None:
    for page in WRITER["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert WRITER["generated"](text) == text, f"{page.name} is behind: run `make docs`"
    written = "".join(page.read_text(encoding="utf-8") for page in WRITER["PAGES"])
    assert set(re.findall(r"^### `([A-Za-z-]+)`$", written, re.MULTILINE)) == set(explanations())


def test_a_code_is_found_in_any_case_and_suggested_if_it_is_misspelt() -> None:
    found = explain("NO-Index")
    assert found is not None
    assert found.code == "no-index"
    assert explain("notmigrated") == explanations()["NotMigrated"]
    assert explain("no-indx") is None
    assert suggest_code("no-indx") == "did you mean 'no-index'?"
    assert suggest_code("notmigratd") == "did you mean 'NotMigrated'?"
    assert suggest_code("zzz") == ""
