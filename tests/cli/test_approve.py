"""`wane approve`, and everything else that needs confirmation: what the fuse stops, and prunes that were perhaps not
meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.conftest import Wane
from servers import Database

OLD_MS = 1_700_000_000_000


@pytest.fixture
def fused(filled: Database, wane: Wane) -> Database:
    """Return a database with sweeps turned on, of which almost everything is due under the only rule."""
    assert wane("migrate").code == 0
    assert wane("enable").code == 0
    filled.executemany("INSERT INTO inbox VALUES (?, ?, ?)", [(100 + n, "failed", OLD_MS + n) for n in range(1_200)])
    return filled


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Provide a terminal on which the answers to come are typed; the questions are collected."""
    answers: list[str] = []
    requested: list[str] = []

    def confirm(question: str, *, err: bool) -> bool:
        requested.append(question)
        return answers.pop(0) == "y"

    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(type(stream), "isatty", lambda _: True, raising=False)
    monkeypatch.setattr("typer.confirm", confirm)
    return answers


def left(database: Database) -> int:
    [(rows,)] = database.query("SELECT count(*) FROM inbox")
    return int(rows)


def test_one_command_approves_all_that_waits_and_the_next_sweep_takes_it(wane: Wane, fused: Database) -> None:
    assert wane("sweep").code == 1
    assert wane("check", "--live").out.count("fix: review and approve it: `wane approve inbox.failed`") == 1
    listed = wane("approve", "--dry-run", "--json")
    [one] = listed.json["rules"]
    assert (listed.code, one["table"], one["rule"], one["due"]) == (0, "inbox", "failed", 1_204)
    assert one["due_exactness"] == one["table_rows_exactness"] == one["share_exactness"] == "exact"
    assert (one["table_rows"], one["share"], one["approval"]) == (1_206, 1_204 / 1_206, None)
    done = wane("approve", "--yes", "--actor", "ada [desk]", "--expires", "2d")
    assert done.code == 0
    assert "inbox.failed  prune  1,204  1,206  99.8%" in done.out
    assert "inbox.failed: 1,204 of 1,206 rows are due (99.8%), and the first sweep of a rule may take 50%" in done.err
    assert "inbox.failed may take 1,204 rows (plan " in done.err
    repeated = wane("approve", "--yes", "--json")
    assert (repeated.code, repeated.json["approved"], repeated.json["rules"][0]["approval"]["approved_by"]) == (
        0,
        [],
        "ada [desk]",
    )
    swept = wane("sweep", "--fast", "--json")
    assert (swept.code, swept.json["rules"][0]["counts"]["inbox"], left(fused)) == (0, 1_204, 2)
    took, approved = wane("audit", "list", "--json").json
    assert (approved["kind"], approved["actor"], approved["rows"]) == ("approve", "ada [desk]", 0)
    assert took["inputs"]["plan"] == approved["inputs"]["plan"]
    assert "approve  inbox  failed" in wane("audit", "list").out
    nothing = wane("approve")
    assert (nothing.code, nothing.err) == (0, "the fuse stops no rule: nothing waits for approval\n")
    assert wane("check", "--live").code == 0


def test_an_approval_is_revoked(wane: Wane, fused: Database) -> None:
    assert wane("approve", "inbox", "--yes").code == 0
    assert wane("approve", "--revoke", "--dry-run", "--json").json["revoked"][0]["rule"] == "failed"
    done = wane("approve", "inbox.failed", "--revoke")
    assert (done.code, "the approval of inbox.failed (plan " in done.err) == (0, True)
    assert wane("approve", "--revoke").code == 4
    assert (wane("sweep").code, left(fused)) == (1, 1_206)


def test_without_a_terminal_nothing_is_approved_without_yes(wane: Wane, fused: Database) -> None:
    done = wane("approve")
    assert (done.code, "--yes agrees" in done.err) == (4, True)
    assert wane("approve", "--json").json["approved"] == []
    assert (wane("sweep").code, left(fused)) == (1, 1_206)


def test_a_terminal_is_prompted(wane: Wane, fused: Database, terminal: list[str]) -> None:
    terminal += ["n", "y"]
    declined = wane("approve")
    assert (declined.code, declined.err.endswith("nothing was changed\n")) == (4, True)
    assert wane("approve").code == 0
    assert wane("sweep", "--fast").code == 0


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (("inbox.fialed",), 1, "did you mean 'failed'?"),
        (("--expires", "soon", "--yes"), 2, "soon"),
        (("--expires", "91d", "--yes"), 1, "an approval may not last"),
        (("--seconds", "0"), 2, "--seconds"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    wane: Wane, fused: Database, words: tuple[str, ...], code: int, reported: str
) -> None:
    done = wane("approve", *words)
    assert done.code == code
    assert reported in " ".join(done.err.split())
    assert wane("audit", "list", "--json").json == []


# --- Explicit prunes ------------------------------------------------------------------------------------------------


YOUNG = ("prune", "inbox", "--state", "failed", "--older-than", "1d", "--limit", "10")


def test_a_prune_that_undercuts_the_window_needs_confirmation(wane: Wane, fused: Database, terminal: list[str]) -> None:
    terminal += ["n", "y"]
    declined = wane(*YOUNG)
    assert (declined.code, left(fused)) == (4, 1_206)
    assert "the contract retains them for 7d" in declined.err
    assert wane(*YOUNG).code == 0
    assert left(fused) == 1_196
    assert wane("prune", "inbox", "--state", "failed", "--older-than", "7d", "--limit", "1").code == 0, (
        "exactly its window"
    )


def test_a_prune_of_most_of_a_table_needs_yes(wane: Wane, fused: Database) -> None:
    many = ("prune", "inbox.failed", "--limit", "5000")
    shown = wane(*many, "--dry-run")
    assert (
        shown.code,
        "it would ask for confirmation: 1,204 of 1,206 rows of inbox would leave (99.8%)" in shown.err,
    ) == (0, True)
    done = wane(*many)
    assert (done.code, done.out, left(fused)) == (4, "", 1_206)
    assert (
        "caution: 1,204 of 1,206 rows of inbox would leave (99.8%), and a sweep may take 50% of a table without approval"
        in done.err
    )
    assert wane(*many, "--json").json["rows"] == 0
    assert wane("prune", "inbox.failed", "--limit", "100").code == 0, "a little of it is no cause for concern"
    assert wane(*many, "--yes", "--json").json["counts"]["inbox"] == 1_104
    assert left(fused) == 2


# --- Nothing done ---------------------------------------------------------------------------------------------------


def test_a_filter_that_no_audit_row_passes_is_reported(wane: Wane, fused: Database) -> None:
    assert wane("audit", "list", "--kind", "prune").code == 0, "there is no trail yet"
    wane("prune", "inbox.failed", "--limit", "1")
    done = wane("audit", "list", "--kind", "pruen")
    assert (done.code, done.err) == (
        4,
        "the audit trail has no row of the kind 'pruen'; did you mean 'prune'? it may be: prune\n",
    )
    assert wane("audit", "list", "--kind", "mark", "--json").code == 4
    assert wane("audit", "list", "--table", "inbx").code == 4
    assert wane("audit", "list", "--since", "2100-01-01").code == 0


def test_an_empty_contract_is_no_success(wane: Wane, fused: Database) -> None:
    Path("wane.toml").write_text(f'[store]\nurl = "{fused.url}"\n', encoding="utf-8")
    for words in (("check",), ("check", "--json"), ("plan",), ("sweep",)):
        assert wane(*words).code == 4, words
    assert "warning empty-contract" in wane("check").out
    assert "nothing was swept" in wane("sweep").err


def test_an_approval_states_where_the_budget_ends_a_sweep(wane: Wane, fused: Database, folder: Path) -> None:
    contract = folder / "wane.toml"
    contract.write_text(contract.read_text() + "\n[budget]\nrows = 500\n")
    done = wane("approve", "--yes")
    assert "its budget ends a sweep after 500 rows, so that takes 3 sweeps or more" in done.err
    assert "raise table.inbox.rule.failed.budget.rows" in done.err


def test_a_budget_on_the_command_line_leaves_the_approval_valid(wane: Wane, fused: Database) -> None:
    """The approval is for the contract's rules, which another budget does not change."""
    assert wane("approve", "--yes").code == 0
    swept = wane("sweep", "--rows", "500", "--json")
    assert (swept.code, [rule["outcome"] for rule in swept.json["rules"]], left(fused)) == (0, ["budget"], 706)
