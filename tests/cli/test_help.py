"""Every command and option explains itself, here and in docs/reference/cli.md."""

from __future__ import annotations

import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from cli.conftest import Wane
from wane import __version__
from wane._cli import _COMMANDS, app, commands
from wane._cli.help import EXAMPLES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")


COMMANDS = dict(commands())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_option_has_help(wane: Wane, path: tuple[str, ...]) -> None:
    done = wane(*path, "--help")
    assert done.code == 0
    assert wane(*path, "-h").out == done.out
    command = COMMANDS[path]
    assert getattr(command, "help", "")
    assert not re.search(r"\[[a-z]", getattr(command, "help", "")), "a terminal shows no words in brackets"
    for parameter in getattr(command, "params"):  # noqa: B009 - typed as little as click is
        text = getattr(parameter, "help", "")
        assert text, f"{' '.join(path)} {parameter.name} has no help"
        assert not re.search(r"\[[a-z]", text), f"a terminal shows no words in brackets: {text}"


def test_the_wrapping_of_docstrings_does_not_show_in_help() -> None:
    broken = [path for path, one in COMMANDS.items() if "\n" in getattr(one, "help", "").replace("\n\n", "")]
    assert broken == []


@pytest.mark.parametrize("path", [(), ("archive",), *COMMANDS], ids=lambda path: " ".join(path) or "wane")
def test_help_shows_no_types_of_python(wane: Wane, path: tuple[str, ...]) -> None:
    shown = wane(*path, "--help").out
    assert not re.findall(r"<(?:bool|str|int|float|path|list)|\{[A-Z]|\]\.\.\.\]\.\.\.", shown)


@pytest.mark.parametrize("path", EXAMPLES, ids=" ".join)
def test_examples_are_shown_and_their_commands_and_options_exist(wane: Wane, path: tuple[str, ...]) -> None:
    shown = " ".join(wane(*path, "--help").out.split())
    options = {option for parameter in COMMANDS[path].params for option in parameter.opts}
    for example in EXAMPLES[path]:
        assert example in shown
        own = example.split(" && ")[-1].split(" | ")[0]
        assert own.startswith(f"wane {' '.join(path)}")
        assert {word for word in own.split() if word.startswith("--")} <= options


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_answers_in_json(path: tuple[str, ...]) -> None:
    options = [option for parameter in getattr(COMMANDS[path], "params") for option in parameter.opts]  # noqa: B009
    assert "--json" in options


def test_the_page_has_a_section_and_a_table_for_each_command() -> None:
    names = [" ".join(path) for path in COMMANDS]
    sections = re.findall(
        r"^## `wane ([a-z -]+)`$(?:(?!^## ).)*?^<!-- options: wane \1 -->$", PAGE, flags=re.MULTILINE | re.DOTALL
    )
    assert sorted(sections) == sorted(names)
    assert sorted(re.findall(r"^## `wane ([a-z -]+)`", PAGE, flags=re.MULTILINE)) == sorted(names)


def test_the_tables_of_the_page_are_those_of_the_commands() -> None:
    generated = runpy.run_path(str(DOCS / "generate_cli.py"))["generated"]
    assert generated(PAGE) == PAGE, "docs/reference/cli.md is stale: run `make docs`"


def test_every_command_of_a_module_is_listed() -> None:
    """A command that the list of `wane._cli` leaves out could not be called."""
    group = typer.main.get_command(app)
    for module in {module for listed in _COMMANDS.values() for module, _ in listed.values()}:
        names = [name for listed in _COMMANDS.values() for name, (one, _) in listed.items() if one == module]
        below = list(typer.main.get_group(import_module(f"wane._cli.{module}").app).commands)
        assert names in (below, [module]) or sorted(names) == sorted(below)
    assert list(getattr(group, "commands")) == [name for listed in _COMMANDS.values() for name in listed]  # noqa: B009


@pytest.mark.parametrize("group", sorted({path[:-1] for path in COMMANDS if len(path) > 1}), ids=" ".join)
def test_every_line_of_a_group_fits_a_terminal(
    wane: Wane, monkeypatch: pytest.MonkeyPatch, group: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = wane(*group, "--help").out
    assert max(map(len, shown.splitlines())) <= 80
    for path, command in COMMANDS.items():
        if path[:-1] == group:
            assert f"{path[-1]} " in shown
            assert f" {command.short_help} " in shown, "it is broken, or cut"


def test_every_line_of_the_help_fits_a_terminal(wane: Wane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = wane("--help").out
    assert max(map(len, shown.splitlines())) <= 80
    for listed in _COMMANDS.values():
        for name, (_, summary) in listed.items():
            assert f" {name} " in shown
            assert summary in shown


def test_the_version_is_printed(wane: Wane) -> None:
    assert wane("--version").out == f"wane {__version__}\n"


def test_without_a_command_the_help_is_shown(wane: Wane) -> None:
    done = wane()
    assert done.code == 2
    assert "Usage: wane" in done.out + done.err


def test_an_unknown_command_exits_two(wane: Wane) -> None:
    done = wane("plam")
    assert (done.code, done.out) == (2, "")
    assert "plam" in done.err


def test_the_schema_is_json(wane: Wane) -> None:
    done = wane("schema")
    assert (done.code, done.err) == (0, "")
    assert done.json["$schema"].endswith("schema")
    assert wane("schema", "--json").json == done.json


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        ("hold add jobs --reason x --until 5d", "--ends"),
        ("hold add jobs --reson x", "--reason"),
        ("token create ci --until=5d", "--expires"),
        ("prune jobs --force", "--yes"),
        ("migrate --xyzzy", "--contract, --fleet, --json, --print, --url"),
        ("audit --since 1d", "list --since"),
        ("archive --dryrun run", "compact --dry-run"),
    ],
)
def test_an_option_that_there_is_not_suggests_the_one_that_is_meant(wane: Wane, words: str, suggested: str) -> None:
    refused = wane(*words.split())
    assert refused.code == 2
    shown = " ".join(refused.err.replace("│", " ").split())
    assert f"(Possible options: {suggested}{', ' if 'archive' in words else ')'}" in shown
