"""How `--help` shows a command: placeholders as the reference has them, and examples."""

from __future__ import annotations

from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

_SUMMARY_COLUMNS = 61
"""Columns that the longest name of a command and the frame leave for its summary."""
_PLACEHOLDERS = {int: "N", float: "N", Path: "FILE"}

EXAMPLES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("init",): ("wane init sqlite:///shop.db", "wane init DATABASE_URL --out - | less"),
    ("check",): ("wane check", "wane check --cover --strict --format github", "wane check --live --json"),
    ("explain",): ("wane explain no-index", "wane explain NotMigrated --json"),
    ("plan",): ("wane plan", "wane plan jobs.done -v", "wane plan --out plan.json"),
    ("apply",): ("wane plan --out plan.json && wane apply plan.json",),
    ("sweep",): ("wane sweep", "wane sweep jobs.done --approve jobs.done", "wane sweep --dry-run"),
    ("prune",): ("wane prune jobs.done --dry-run", "wane prune jobs --state done --older-than 30d"),
    ("run",): ("wane run --workers 2", "wane run --metrics-port 9464 --log-format json"),
    ("enable",): ("wane enable", "wane enable jobs", "wane enable --fleet fleet.toml"),
    ("disable",): ("wane disable", "wane disable jobs", "wane disable --fleet fleet.toml"),
    ("status",): ("wane status", "wane status --json"),
    ("health",): ("wane health", "wane health --json"),
    ("pressure",): ("wane pressure",),
    ("why",): ("wane why jobs 42", "wane why line_items order_id=7 number=2 --json"),
    ("serve",): ("wane serve", "wane serve --host 0.0.0.0 --auth --host-name wane.example.org"),
    ("token", "create"): ("wane token create grafana", "wane token create alice --role operator --expires 90d"),
    ("alerts",): ("wane alerts > wane-rules.yml", "wane alerts --grafana > wane-dashboard.json"),
    ("space",): ("wane space", "wane space jobs --since 30d"),
    ("migrate",): ("wane migrate", "wane migrate --print", "wane migrate --fleet fleet.toml"),
    ("audit", "list"): ("wane audit list --table jobs --since 7d",),
    ("hold", "add"): ('wane hold add orders --key id=42 --reason "dispute 2026-17"',),
    ("growth", "show"): ("wane growth show", "wane growth show jobs"),
    ("archive", "run"): (
        "wane archive run",
        "wane archive run event_outbox.cold",
        "wane archive run --fleet fleet.toml",
    ),
    ("archive", "query"): (
        "wane archive query event_outbox --where \"kind = 'paid'\"",
        "wane archive query event_outbox --format parquet --out event_outbox.parquet",
    ),
    ("archive", "restore"): ("wane archive restore event_outbox --key id=42",),
    ("partition", "plan"): ("wane partition plan events",),
    ("partition", "convert"): ("wane partition convert events",),
}
"""Commands that can be pasted, by the path of the command whose help shows them."""


def improve_help(command: Any, path: tuple[str, ...]) -> None:
    """Give a command, or a group with all of its commands, its examples and plain placeholders.

    A paragraph is one line: `--help` would show every end of a line that the docstring has.
    """
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs) or None
    if path in EXAMPLES:
        command.epilog = "\n".join(["Examples:", *(f"  {one}" for one in EXAMPLES[path])])
    get_params = command.get_params
    command.get_params = lambda ctx: name_values(get_params(ctx))
    if command.short_help is None:
        command.short_help = summary(command.help or "")
    for name, below in getattr(command, "commands", {}).items():
        improve_help(below, (*path, name))


def summary(text: str) -> str:
    """Return the beginning of a command's help that fits its line in the list of a group, with 80 columns."""
    first = text.split("\n\n")[0].split(". ")[0].rstrip(".")
    return f"{first if len(first) < _SUMMARY_COLUMNS else first.split(': ')[0]}."


def placeholder(parameter: Any) -> str:
    """Return the word that stands for an option's value."""
    kind = parameter.type_descriptor.annotation
    return parameter.metavar or _PLACEHOLDERS.get(kind) or str(parameter.name.split("_")[-1].upper())


def name_values(parameters: list[Any]) -> list[Any]:
    """Show no types of Python: an argument is its name, a flag has no value, an option has a placeholder."""
    for one in parameters:
        if one.param_type_name == "argument":
            one._usage_display_name = partial(_usage, one)
        one.display_type_rich = partial(_value, one)
    return parameters


def _value(parameter: Any, **_: Any) -> str | None:
    if parameter.param_type_name == "argument" or parameter.is_flag:
        return None
    return _choices(parameter) or placeholder(parameter)


def _choices(option: Any) -> str:
    kind = option.type_descriptor.annotation
    return "|".join(str(one.value) for one in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ""


def _usage(argument: Any) -> str:
    return str(argument.metavar if argument.required else f"[{argument.metavar}]")
