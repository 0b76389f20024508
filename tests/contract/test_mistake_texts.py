"""How key paths and values are written in messages."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from texts import ANY_TEXT
from wane._contract.mistakes import Mistakes, describe, key_path, mask


@given(st.lists(ANY_TEXT, min_size=1, max_size=4))
def test_a_path_is_a_key_of_toml(parts: list[str]) -> None:
    found: Any = tomllib.loads(f"{key_path(parts)} = 1")
    for part in parts:
        found = found[part]
    assert found == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([], ""),
        (["table", "t", "rule", "r", "with", 0, "table"], "table.t.rule.r.with[0].table"),
        (["table", "core.inbox"], 'table."core.inbox"'),
        (["table", '"odd.name"'], "table.'\"odd.name\"'"),
        (["table", "größe"], 'table."größe"'),
        (["table", ""], 'table.""'),
    ],
)
def test_a_path_is_written_as_people_would(path: list[object], text: str) -> None:
    assert key_path(path) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://me:secret@db/app", "postgresql://me:***@db/app"),
        ("postgresql://me:se@cr:et@db/app", "postgresql://me:***@db/app"),
        ("postgresql://me:se/cr?et@db/app", "postgresql://me:***@db/app"),
        ("postgresql:/me:secret@db/app", "postgresql:/me:***@db/app"),
        ("found 'postgresql://:secret@db' (text)", "found 'postgresql://:***@db' (text)"),
        ("postgresql://db/app?password=secret&x=1", "postgresql://db/app?password=***&x=1"),
        ("postgresql://db/app?sslpassword=secret", "postgresql://db/app?sslpassword=***"),
        ("host=db password=secret user=me", "host=db password=*** user=me"),
        ("postgresql://me@db/app", "postgresql://me@db/app"),
        ("sqlite:///state.db", "sqlite:///state.db"),
    ],
)
def test_passwords_are_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_a_finding_knows_its_table() -> None:
    mistakes = Mistakes("wane.toml")
    mistakes.error(["table", "core.inbox", "why"], "wrong-value", "m", "f")
    mistakes.error(["window", "w"], "wrong-value", "m")
    assert [finding.table for finding in mistakes.findings] == ["core.inbox", ""]
    assert mistakes.findings[0].as_dict() == {
        "severity": "error",
        "code": "wrong-value",
        "file": "wane.toml",
        "line": None,
        "path": 'table."core.inbox".why',
        "table": "core.inbox",
        "message": "m",
        "fix": "f",
        "accepted": None,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7 (a whole number)"),
        (True, "true (a boolean)"),
        ("x", "'x' (text)"),
        (1.5, "1.5 (a number)"),
        ([1], "a list"),
        ({}, "a table"),
    ],
)
def test_what_was_found_is_described(value: object, text: str) -> None:
    assert describe(value) == text
