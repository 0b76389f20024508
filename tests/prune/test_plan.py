"""Plan files: written whole, read back as they were, and refused if they are anything else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wane._db.counting import Count, Exactness
from wane._findings import Finding, Severity
from wane._prune.plan import FORMAT, ArchiveWait, BudgetStop, Plan, Step, StepStatement, Takes, read_plan
from wane.errors import PlanError

NOW = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)

PLAN = Plan(
    made_at=NOW,
    fingerprint="0123456789abcdef",
    database="sqlite:somewhere:1:2",
    url="sqlite:///state.db",
    total=Count(3, Exactness.AT_LEAST),
    steps=(
        Step(
            table="jobs",
            rule="cold",
            action="archive",
            cutoff=NOW,
            due=Count(3, Exactness.AT_LEAST),
            oldest=NOW,
            newest=NOW,
            followers={"runs": Count(5, Exactness.ESTIMATE), "lines": None},
            table_rows=Count(10),
            share=0.3,
            takes=Takes(0.5, 2.0, Exactness.ESTIMATE, 3),
            swept=True,
            statements=(
                StepStatement(
                    "take them",
                    'DELETE FROM "jobs" WHERE "größe" = :state',
                    {"state": "erledigt", "limit": 500, "cutoff": 1.5},
                    "SEARCH jobs\n  USING INDEX",
                ),
            ),
            share_exactness=Exactness.AT_LEAST,
            stop=BudgetStop("rows", 2, 2, 2, "table.jobs.rule.cold.budget.rows"),
            waits=ArchiveWait(5, 60.0),
            saved_by_followers=Count(1),
        ),
        Step(
            "seen",
            "cap",
            "prune",
            None,
            None,
            None,
            None,
            {},
            None,
            None,
            None,
            swept=False,
            statements=(),
        ),
    ),
    problems=(
        Finding(Severity.ERROR, "missing-table", "the database has no table x", "create it", "f", "table.x", "x"),
    ),
)


def refused(path: Path) -> str:
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    return str(caught.value)


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    PLAN.write(file)
    assert read_plan(file) == PLAN
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text(encoding="utf-8") == PLAN.as_json() + "\n"


def test_a_plan_replaces_an_older_one(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("older and much longer " * 10_000)
    PLAN.write(file)
    assert read_plan(file) == PLAN


def test_a_plan_that_cannot_be_written_reports_it_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "plan.json"
    with pytest.raises(PlanError, match=r"cannot be written to .*plan.json: No such file or directory"):
        PLAN.write(file)
    (tmp_path / "taken").mkdir()
    with pytest.raises(PlanError, match=r"cannot be written to .*taken: Is a directory"):
        PLAN.write(tmp_path / "taken")
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    fix = "\n  hint: name a file that `wane plan --out FILE` wrote"
    assert refused(file) == f"{file} cannot be read: No such file or directory{fix}"
    assert refused(tmp_path) == f"{tmp_path} cannot be read: Is a directory{fix}"


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"\xff\xfe\x00", b"[]", b"null", b"3", b"{}", b'{"format": 4}', b"[" * 100_000, b'{"format": "4"}'],
    ids=["empty", "text", "bytes", "list", "null", "number", "nothing", "only a format", "deep", "text format"],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    assert refused(file) == f"{file} is not a plan\n  hint: write one with `wane plan --out FILE`"


@pytest.mark.parametrize("cut", [1, 50, 200])
def test_a_plan_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "plan.json"
    file.write_text(PLAN.as_json()[:-cut])
    assert "is not a plan" in refused(file)


@pytest.mark.parametrize("key", ["made_at", "fingerprint", "database", "url", "steps"])
def test_a_plan_without_one_of_its_facts_is_refused(tmp_path: Path, key: str) -> None:
    content = json.loads(PLAN.as_json())
    del content[key]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(content))
    assert "is not a plan" in refused(file)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("made_at", "yesterday"),
        ("steps", {}),
        ("steps", [{"table": "jobs"}]),
        ("steps", [5]),
        ("fingerprint", 5),
        ("total", {"rows": 3, "exactness": "exact"}),
        ("total_exactness", "roughly"),
    ],
)
def test_a_plan_with_a_wrong_fact_is_refused(tmp_path: Path, key: str, value: object) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({**json.loads(PLAN.as_json()), key: value}))
    assert "is not a plan" in refused(file)


@pytest.mark.parametrize("shape", [{}, {"steps": "otherwise"}], ids=["same shape", "other shape"])
@pytest.mark.parametrize("version", [0, FORMAT + 1, 99])
def test_a_plan_of_another_version_is_refused_whatever_its_shape(
    tmp_path: Path, version: int, shape: dict[str, object]
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({**json.loads(PLAN.as_json()), **shape, "format": version}))
    assert refused(file) == f"{file} was written by another version of Wane\n  hint: plan again"


def test_what_could_not_be_counted_counts_for_nothing() -> None:
    assert PLAN.due == 3


def test_every_number_of_a_plan_has_its_exactness_beside_it() -> None:
    content = json.loads(PLAN.as_json())
    known, unknown = content["steps"]
    assert (content["total"], content["total_exactness"]) == (3, "at least")
    assert (known["due"], known["due_exactness"], known["share_exactness"]) == (3, "at least", "at least")
    assert known["followers"] == {"runs": 5, "lines": None}
    assert known["followers_exactness"] == {"runs": "estimate", "lines": None}
    assert (unknown["due"], unknown["due_exactness"], unknown["followers_exactness"]) == (None, None, {})


@pytest.mark.parametrize("name", ["due", "followers", "table_rows", "share"])
def test_a_step_without_one_of_its_numbers_is_refused(tmp_path: Path, name: str) -> None:
    content = json.loads(PLAN.as_json())
    del content["steps"][0][name]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(content))
    assert "is not a plan" in refused(file)
