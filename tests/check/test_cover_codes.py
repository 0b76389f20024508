"""Every finding that comparing with a database can make has a test and an entry in the reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    *sorted(path for path in (ROOT / "src/wane/_check").glob("*.py") if path.name != "live.py"),
    *sorted((ROOT / "src/wane/_rules").glob("*.py")),
    ROOT / "src/wane/_prune/build_plan.py",
]
CODE = re.compile(r"[a-z]+(-[a-z]+)+")
REPORTING = ("add", "_add", "_error", "Finding")


def emitted() -> set[str]:
    """Return the second argument of every call that reports a finding."""
    return {code for path in SOURCES for code in _codes(ast.parse(path.read_text(encoding="utf-8")))}


def _codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) < 3:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        code = node.args[1]
        if name in REPORTING and isinstance(code, ast.Constant) and CODE.fullmatch(str(code.value)):
            yield str(code.value)


def asserted() -> set[str]:
    """Return the texts that the tests of this folder compare with, this file's own left out."""
    found: set[str] = set()
    for path in Path(__file__).parent.glob("test_cover_*.py"):
        if path != Path(__file__):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return found


def test_the_codes_are_found_where_they_are_reported() -> None:
    assert {"no-index", "uncovered-table", "missing-column", "uncounted-cascade", "unreadable-table"} <= emitted()
    assert len(emitted()) >= 28


def test_every_code_has_a_test() -> None:
    assert emitted() - asserted() == set()


def test_every_code_has_an_entry_and_every_entry_a_code() -> None:
    page = (ROOT / "docs/reference/findings.md").read_text(encoding="utf-8")
    section = page.partition("\n## Against a database\n")[2].partition("\n## ")[0]
    entries = re.findall(r"^### `([a-z-]+)`$", section, re.MULTILINE)
    assert entries == sorted(entries)
    assert set(entries) == emitted() - {"declared-twice"}
    assert "[`declared-twice`](#declared-twice)" in section
