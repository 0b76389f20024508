"""A shell completes commands, options, and the tables and rules of the contract, without opening a database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import CONTRACT, write_contract
from wane._db.sqlite.store import SqliteStore

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(wane: Wane, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Complete:
    """Complete the last word, as bash asks for it."""
    write_contract(folder, "sqlite:///nowhere.db")
    monkeypatch.setattr(SqliteStore, "__init__", lambda *_, **__: pytest.fail("a database was opened"))

    def run(*words: str) -> list[str]:
        monkeypatch.setenv("_WANE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["wane", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        done = wane()
        assert done.err == ""
        return done.out.split()

    return run


def test_commands_and_options_are_completed(complete: Complete) -> None:
    assert complete("pl") == ["plan"]
    assert complete("archive", "que") == ["query"]
    assert complete("check", "--form") == ["--format"]
    assert complete("check", "--format", "s") == ["sarif"]


@pytest.mark.parametrize("words", [("plan",), ("sweep",), ("sweep", "--approve"), ("prune",), ("archive", "run")])
def test_tables_and_rules_are_completed(complete: Complete, words: tuple[str, ...]) -> None:
    assert complete(*words, "in") == ["inbox", "inbox.failed"]
    assert complete(*words, "inbox.") == ["inbox.failed"]
    assert complete(*words, "z") == []


@pytest.mark.parametrize(
    "words", [("enable",), ("hold", "add"), ("growth", "show"), ("partition", "plan"), ("audit", "list", "--table")]
)
def test_tables_are_completed_where_no_rule_is_taken(complete: Complete, words: tuple[str, ...]) -> None:
    assert complete(*words, "in") == ["inbox"]


def test_codes_are_completed(complete: Complete) -> None:
    assert complete("explain", "never") == ["never-due"]
    assert complete("explain", "NotM") == ["NotMigrated"]


def test_the_contract_is_the_one_that_is_named(
    complete: Complete, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = CONTRACT.replace("inbox", "other").format(url="sqlite:///nowhere.db")
    (folder / "other.toml").write_text(other)
    assert complete("plan", "--contract", "other.toml", "o") == ["other", "other.failed"]
    monkeypatch.setenv("WANE_CONTRACT", "other.toml")
    assert complete("plan", "o") == ["other", "other.failed"]


def test_a_contract_with_mistakes_or_none_completes_nothing(complete: Complete, folder: Path) -> None:
    (folder / "wane.toml").write_text("mistake = 1\n")
    assert complete("plan", "in") == []
    (folder / "wane.toml").unlink()
    assert complete("plan", "in") == []


def test_the_script_is_printed(wane: Wane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # No shell started these tests.
    done = wane("--show-completion")
    assert done.code == 0
    assert "_WANE_COMPLETE=complete_bash" in done.out
