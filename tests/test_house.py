"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "wane"


def test_no_two_public_classes_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


NOT_VERBS = frozenset(
    [
        "a",
        "about",
        "after",
        "all",
        "also",
        "an",
        "and",
        "another",
        "any",
        "as",
        "at",
        "because",
        "before",
        "both",
        "by",
        "each",
        "every",
        "everything",
        "for",
        "from",
        "how",
        "if",
        "in",
        "it",
        "like",
        "many",
        "more",
        "most",
        "much",
        "never",
        "no",
        "nobody",
        "none",
        "not",
        "nothing",
        "of",
        "on",
        "one",
        "only",
        "or",
        "other",
        "own",
        "same",
        "several",
        "since",
        "so",
        "some",
        "something",
        "that",
        "the",
        "there",
        "these",
        "this",
        "those",
        "two",
        "until",
        "what",
        "when",
        "where",
        "whether",
        "which",
        "who",
        "whoever",
        "why",
        "with",
    ]
)
"""First words of a docstring that describes instead of saying what the function does."""


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    found = []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                words = (ast.get_docstring(node) or "Return").split()
                if words[0].strip("`'\",.:;()").lower() in NOT_VERBS:
                    found.append(f"{file.relative_to(SOURCE)}:{node.lineno} {node.name}")
    assert found == []
