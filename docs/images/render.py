"""Draws the pictures of the documentation from what the demonstration really prints: `python docs/images/render.py`."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from wane._cli import audit, demo, output, plan, prune

FOLDER = Path(__file__).parent
COLUMNS = 112
# The viewer's own fonts: a picture in a repository loads nothing from elsewhere.
FORMAT = """\
<svg class="{unique_id}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def demonstration() -> list[str]:
    """Return the lines that `wane demo` prints on a terminal, colours and all."""
    file = io.StringIO()
    printed = Console(file=file, width=COLUMNS, force_terminal=True, color_system="truecolor", highlight=False)
    for module in (output, plan, prune, audit, demo):
        vars(module)["console"] = lambda *, stderr=False: Console(stderr=True, quiet=True) if stderr else printed
    with tempfile.TemporaryDirectory() as folder:
        demo.walk_through(Path(folder) / ".demo", rows=300_000, archive=False)
        text = file.getvalue().replace(f"{folder}/", "")
    return text.splitlines()


def draw(name: str, title: str, lines: list[str]) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in lines:
        console.print(Text.from_ansi(line))
    svg = console.export_svg(title=title, code_format=FORMAT, unique_id=name)
    (FOLDER / f"{name}.svg").write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")


def main() -> None:
    lines = demonstration()
    heads = [number for number, line in enumerate(lines) if "\x1b[1;7m" in line]
    _, _, plan_, apply, webhooks, _, stays = heads
    draw("plan", "make demo: what would leave now", lines[plan_ + 1 : apply - 1])
    draw("left", "make demo: what left, batch by batch", lines[apply + 1 : webhooks - 1])
    draw("stays", "make demo: what stayed, and why", lines[stays + 1 :])


if __name__ == "__main__":
    main()
