"""Every answer in JSON is one object with its format, whatever the command: test_times.py runs them."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import wane._cli
from wane._cli.output import FORMAT, document
from wane._ledger import Flag


def test_no_command_writes_a_document_by_itself() -> None:
    """All go through the harness; the rows that `archive query` prints are the user's, and a schema has its own
    version."""
    writing = set()
    for path in Path(wane._cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else name
            if name in ("print_json", "_print_json"):
                writing.add(path.name)
    assert writing == {"harness.py", "check.py", "archive_query.py", "alerts.py"}


def test_lists_and_records_become_objects_with_a_format() -> None:
    assert document([1]) == {"format": FORMAT, "items": [1]}
    assert document({"rows": 2}) == {"format": FORMAT, "rows": 2}
    assert document({"format": 2, "steps": []}) == {"format": 2, "steps": []}
    flag = document(Flag("retention.enabled", True, datetime(2026, 1, 1, tzinfo=UTC), "ada"))
    assert isinstance(flag, dict)
    assert list(flag)[:2] == ["format", "name"]
