"""Every command and option explains itself, here and in docs/reference/cli.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import commands
from wane import __version__

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


COMMANDS = dict(commands())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_option_has_help(wane: Wane, path: tuple[str, ...]) -> None:
    done = wane(*path, "--help")
    assert done.code == 0
    assert wane(*path, "-h").out == done.out
    command = COMMANDS[path]
    assert getattr(command, "help", "")
    for parameter in getattr(command, "params"):  # noqa: B009 - typed as little as click is
        assert getattr(parameter, "help", ""), f"{' '.join(path)} {parameter.name} has no help"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_answers_in_json(path: tuple[str, ...]) -> None:
    options = [option for parameter in getattr(COMMANDS[path], "params") for option in parameter.opts]  # noqa: B009
    assert "--json" in options


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_option_is_documented(path: tuple[str, ...]) -> None:
    heading = f"## `wane {' '.join(path)}`"
    assert heading in PAGE, f"docs/reference/cli.md has no section {heading}"
    section = re.split(r"^## ", PAGE.partition(heading)[2], maxsplit=1, flags=re.MULTILINE)[0]
    for parameter in getattr(COMMANDS[path], "params"):  # noqa: B009
        if parameter.param_type_name == "argument":
            assert parameter.metavar.strip("[].") in section, f"{heading} does not mention {parameter.metavar}"
            continue
        for option in parameter.opts:
            documented = PAGE if option in ("--help", "-h") else section
            assert f"`{option}`" in documented, f"{heading} does not mention {option}"


def test_no_section_describes_a_command_that_does_not_exist() -> None:
    described = {tuple(name.split()) for name in re.findall(r"^## `wane ([a-z -]+)`", PAGE, flags=re.MULTILINE)}
    assert described == set(COMMANDS)


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
