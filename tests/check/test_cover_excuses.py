"""Excuses that promise a number of rows must be true."""

from __future__ import annotations

import pytest

from covering import finding, findings, numbers
from servers import Database


def excused(kind: str, reason: str, rows: str = "") -> str:
    return f"[excused]\ncache = {{ {kind} = '{reason}'{rows} }}"


def fill(database: Database, rows: int) -> None:
    database.script("CREATE TABLE cache (id bigint NOT NULL PRIMARY KEY)")
    if rows:
        database.execute(f"INSERT INTO cache SELECT n FROM {numbers(rows)}")


def false_excuse(kind: str, rows: str) -> list[object]:
    message = f"excused as {kind} (a reason), which promises {rows}, but it has more"
    fix = "give the table rules, or mend what writes it"
    return [finding("error", "false-excuse", "cache", "excused.cache", message, fix)]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_singleton_has_one_row_at_most(database: Database, rows: int) -> None:
    fill(database, rows)
    assert findings(database, excused("singleton", "a reason"), strict=True) == []


def test_a_singleton_with_two_rows_is_none(database: Database) -> None:
    fill(database, 2)
    assert findings(database, excused("singleton", "a reason")) == false_excuse("singleton", "one row")


@pytest.mark.parametrize("kind", ["inline", "in_place", "constant", "mirror", "append_only", "elsewhere"])
def test_an_excuse_holds_up_to_the_rows_it_promises(database: Database, kind: str) -> None:
    fill(database, 1_200)
    text = excused(kind, "a reason", ", rows = 1_200")
    assert findings(database, text, strict=True) == []
    database.execute("INSERT INTO cache VALUES (9999)")
    assert findings(database, text) == false_excuse(kind, "at most 1,200 rows")
    assert findings(database, excused(kind, "a reason"), strict=True) == []


def test_an_excuse_that_takes_too_long_to_check_is_said_not_to_be_checked(database: Database) -> None:
    fill(database, 300_000)
    assert findings(database, excused("constant", "a reason", ", rows = 299_000"), seconds=0) == [
        finding(
            "note",
            "excuse-unchecked",
            "cache",
            "excused.cache",
            "whether it has at most 299,000 rows, as its excuse promises, was not checked: reading them takes too long",
        )
    ]
