"""Statements as they are printed: in lines that fit, with nothing changed but spaces outside of quotes."""

from __future__ import annotations

import pytest

from cli.conftest import Wane
from cli.running import AT
from servers import Database
from wane._cli.statement_lines import break_lines

LONG = " AND ".join(f"column_{number} = :value_{number}" for number in range(9))


def test_a_statement_is_broken_before_its_clauses_and_conditions() -> None:
    text = f"DELETE FROM t\nWHERE NOT EXISTS (SELECT 1 FROM h WHERE h.a = 1 AND (h.b IS NULL OR h.b > 1) AND {LONG})"
    lines = break_lines(text).split("\n")
    assert lines[:5] == [
        "DELETE FROM t",
        "WHERE NOT EXISTS (SELECT 1 FROM h",
        "  WHERE h.a = 1",
        "    AND (h.b IS NULL OR h.b > 1)",
        "    AND column_0 = :value_0",
    ]
    assert lines[-1] == "    AND column_8 = :value_8)"
    assert " ".join("\n".join(lines).split()) == " ".join(text.split())


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("between", [" AND ", ", ", "\n", "\n  WHERE ", ") FROM ("])
def test_what_is_quoted_stays_as_it_is(quote: str, between: str) -> None:
    word = quote + between.join(["x"] * 40) + quote
    text = f"SELECT {word} FROM t\nWHERE a = {word} AND {LONG}"
    assert break_lines(text).count(word) == 2


def test_short_lines_and_words_without_spaces_stay_as_they_are() -> None:
    text = f"SELECT a, b FROM t WHERE a = 1 AND b = 2\n{'x' * 200}\n"
    assert break_lines(text) == text


def test_verbose_prints_statements_in_lines_that_fit(wane: Wane, filled: Database) -> None:
    step = wane("plan", "--at", AT, "-v", "--json").json["steps"][0]
    printed = wane("plan", "--at", AT, "-v").out
    shown = " ".join(printed.split())
    assert max(len(line) for one in step["statements"] for line in one["text"].split("\n")) > 120
    for one in step["statements"]:
        assert " ".join(one["text"].split()) in shown
        assert all(line in printed for line in break_lines(one["text"]).split("\n"))
        assert max(len(line) for line in break_lines(one["text"]).split("\n")) <= 120
