"""Every answer in JSON is one object that begins with its format, whatever the command."""

from __future__ import annotations

import ast
from pathlib import Path

import wane._cli
from cli.conftest import Wane
from servers import Database
from wane._cli.output import FORMAT

ANSWERING = [
    ("check",),
    ("check", "--show"),
    ("plan",),
    ("migrate",),
    ("enable",),
    ("disable", "inbox"),
    ("enable", "inbox"),
    ("adopt",),
    ("status",),
    ("approve",),
    ("approve", "--revoke"),
    ("prune", "inbox.failed", "--dry-run"),
    ("prune", "inbox.failed", "--limit", "1"),
    ("sweep",),
    ("run", "--max-runs", "1"),
    ("audit", "list"),
    ("audit", "list", "--kind", "nothing"),
    ("hold", "add", "settings", "--reason", "a test"),
    ("hold", "list"),
    ("hold", "release", "1"),
    ("health",),
    ("pressure",),
    ("growth",),
    ("growth", "snapshot"),
    ("space",),
    ("queue", "enqueue", "export", "--id", "m"),
    ("queue", "list"),
    ("queue", "dead", "list"),
    ("queue", "notify"),
    ("queue", "expire"),
    ("claims", "install"),
    ("claims", "list"),
    ("claims", "return-expired"),
    ("archive", "restores"),
]


def test_every_answer_is_an_object_with_its_format(wane: Wane, filled: Database) -> None:
    wane("migrate")
    for words in ANSWERING:
        done = wane(*words, "--json")
        assert done.out, f"{words}: {done.err}"
        document = done.document
        expected = 2 if words == ("plan",) else FORMAT
        assert isinstance(document, dict), words
        assert document["format"] == expected, words
        assert words == ("plan",) or next(iter(document)) == "format", words


def test_no_command_writes_a_document_by_itself() -> None:
    """All go through the harness; the rows that `archive query` prints are the user's, and a schema has its own version."""
    writing = set()
    for path in Path(wane._cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else name
            if name in ("print_json", "_print_json"):
                writing.add(path.name)
    assert writing == {"harness.py", "check.py", "archive_query.py"}
