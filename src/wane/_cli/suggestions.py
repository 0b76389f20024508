"""Which options are suggested for one that a command does not have: by meaning, and only then by letters."""

from __future__ import annotations

from functools import partial
from typing import Any

_MEANINGS = (
    ("--ends", "--expires", "--until", "--end", "--expire"),
    ("--dry-run", "--dryrun", "--simulate", "--noop", "--what-if", "--check"),
    ("--yes", "--force", "--confirm", "--assume-yes", "--no-input"),
    ("--contract", "--config", "--conf", "--config-file"),
    ("--url", "--database", "--database-url", "--db", "--dsn"),
    ("--out", "--output", "--file"),
    ("--limit", "--max", "--most", "--count", "--top"),
    ("--since", "--after", "--from"),
    ("--older-than", "--before"),
    ("--where", "--filter", "--query", "--condition"),
    ("--reason", "--why", "--comment", "--message"),
    ("--log-level", "--verbose", "--debug", "--quiet"),
    ("--actor", "--user", "--by"),
    ("--fast", "--no-pause", "--full-speed"),
)
"""Words of one meaning: what other tools call an option, beside what Wane does."""


def suggest_options(command: Any) -> None:
    """Let a command, or a group with all of its commands, suggest options that it has for one that it has not."""
    command.parse_args = partial(_parse, command, command.parse_args)
    for below in getattr(command, "commands", {}).values():
        suggest_options(below)


def _parse(command: Any, parse: Any, context: Any, arguments: list[str]) -> Any:
    try:
        return parse(context, arguments)
    except Exception as problem:
        if hasattr(problem, "possibilities"):  # Of an option that there is not: Typer does not export the class.
            typed = str(vars(problem)["option_name"])
            # Options of a group's commands follow the command's name.
            below = [
                f"{name} {option}"
                for name, one in getattr(command, "commands", {}).items()
                for option in _meant(typed, _options(one))
            ]
            options = _options(command)
            nearest = list(problem.possibilities or ())[:1]
            problem.possibilities = below or _meant(typed, options) or nearest or options
        raise


def _options(command: Any) -> list[str]:
    return [name for one in command.params for name in one.opts if name.startswith("--")]


def _meant(typed: str, options: list[str]) -> list[str]:
    return [one for one in options if one == typed or any(typed in words and one in words for words in _MEANINGS)]
