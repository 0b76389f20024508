"""`wane explain`: a code, all codes, and one that does not exist."""

from __future__ import annotations

import pytest

from cli.conftest import Wane
from wane._check.explain import explanations


def test_a_code_is_explained(wane: Wane) -> None:
    done = wane("explain", "no-archive")
    assert (done.code, done.err) == (0, "")
    one = explanations()["no-archive"]
    assert done.out.startswith("no-archive wane check\n")
    for text in (one.means, f"Why: {one.why}", f"Fix: {one.fix}"):
        assert text in done.out
    assert '  url = "./archive"\n' in done.out


@pytest.mark.parametrize(
    ("word", "code"), [("fuse", "fused-rule"), ("fused", "fused-rule"), ("flag", "sweeps-off"), ("Off", "sweeps-off")]
)
def test_the_outcome_of_a_sweep_is_explained(wane: Wane, word: str, code: str) -> None:
    assert wane("explain", word).out == wane("explain", code).out != ""


def test_links_of_the_pages_are_left_out(wane: Wane) -> None:
    done = wane("explain", "archive-log")
    assert "](" not in done.out
    assert "Fix: `wane archive repair`; if it cannot" in done.out


def test_a_code_is_also_data(wane: Wane) -> None:
    done = wane("explain", "overdue", "--json")
    assert done.json["code"] == "overdue"
    assert set(done.json) == {"code", "reports", "means", "why", "fix", "example"}
    assert [one["code"] for one in wane("explain", "--json").json] == list(explanations())


def test_all_codes_are_listed(wane: Wane) -> None:
    listed = wane("explain").out.splitlines()
    assert [line.split()[0] for line in listed[1:]] == list(explanations())


def test_the_list_states_what_each_code_means_in_one_sentence(wane: Wane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    listed = [line.rstrip() for line in wane("explain").out.splitlines()[1:]]
    assert [line for line in listed if not line.endswith(".")] == []
    means = {line.split()[0]: line for line in listed}
    assert means["empty-contract"].endswith("  A warning: the contract declares no table.")
    assert means["fused-rule"].endswith("  The fuse stops a rule.")


def test_an_unknown_code_is_refused_with_the_nearest_one(wane: Wane) -> None:
    done = wane("explain", "never-du")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'never-due'?" in " ".join(done.err.replace("│", " ").split())
    begun = " ".join(wane("explain", "late").err.replace("│", " ").split())
    assert "did you mean 'late-scheduler'?" in begun
    assert "`wane explain` lists all codes" in " ".join(wane("explain", "zzz").err.replace("│", " ").split())
