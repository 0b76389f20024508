"""Writes the tables of arguments and options in docs/reference/cli.md from the commands themselves: `make docs`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from wane._cli import commands
from wane._cli.help import placeholder

PAGE = Path(__file__).parent / "reference" / "cli.md"
_TABLE = re.compile(r"(?<=<!-- options: )(wane [a-z -]+)( -->\n).*?(?=<!-- end of options -->)", re.DOTALL)


def generated(page: str) -> str:
    """Return the page with the tables that its commands have now."""
    known = {f"wane {' '.join(path)}": command for path, command in commands()}
    return _TABLE.sub(lambda found: f"{found[1]}{found[2]}{_table(known[found[1]])}", page)


def _table(command: Any) -> str:
    lines = ["| argument or option | |", "|---|---|"]
    for parameter in command.params:
        if parameter.name != "help":
            cells = [_names(parameter), " ".join(_explained(parameter))]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return names
    return f"{names} {placeholder(parameter)}"


def _explained(parameter: Any) -> Iterator[str]:
    if parameter.required:
        yield "Required."
    yield parameter.help
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        yield f"One of {', '.join(f'`{one.value}`' for one in kind)}."
    if parameter.max is not None:
        yield f"At most {parameter.max:,}."
    default = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    if default is not None and not getattr(parameter, "is_flag", False):
        yield f"Default: `{_plain(default)}`."
    if parameter.envvar:
        yield f"Environment: `{parameter.envvar}`."


def _plain(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
