"""One thing is singular, also in what is printed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from wane._archive.maintenance.repair import Repaired
from wane._check.live import _describe_dangling, about
from wane._cli.archive_repair import _print_repaired
from wane._cli.output import many
from wane._db.counting import Count, Exactness
from wane._findings import many as findings_many
from wane._formats import counted


def test_a_count_of_one_is_singular() -> None:
    assert [many(count, "row") for count in (0, 1, 1_234)] == ["0 rows", "1 row", "1,234 rows"]
    assert many(1, "row", bold=True) == "[bold]1[/] row"
    assert counted(Count(1, Exactness.EXACT), "row") == "1 row"
    assert counted(Count(1, Exactness.ESTIMATE), "row") == "~1 rows"
    assert counted(None, "row") == "? rows"


def test_one_commit_was_missing_and_two_were(capsys: pytest.CaptureFixture[str]) -> None:
    _print_repaired([Repaired("event", 1, {"event": 1}, sweeps=(7,)), Repaired("note", 2, {"note": 2}, sweeps=())])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("event: 1 commit was missing: ")
    assert lines[1].startswith("note: 2 commits were missing: ")


def test_verbs_agree_with_their_count() -> None:
    assert [findings_many(count, "row is", "rows are") for count in (0, 1, 2, "more than 5")] == [
        "0 rows are",
        "1 row is",
        "2 rows are",
        "more than 5 rows are",
    ]
    assert about(timedelta(seconds=1)) == "1 second"
    assert _describe_dangling("1", "note", "inbox", "inbox_id")[0].startswith("1 row of note refers to a row of inbox")
    assert _describe_dangling("2", "note", "inbox", "inbox_id")[0].startswith("2 rows of note refer to a row of inbox")
