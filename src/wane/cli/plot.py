"""A plot in the terminal: dots of braille, eight to a character, as wide as the terminal allows; stars where it knows no braille."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BARS = "▁▂▃▄▅▆▇█"

Point = tuple[float, float]


def short(value: float) -> str:
    """Format a number in at most six characters: `950`, `12.3k`, `4.00M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            scaled = value / size
            return (
                f"{scaled:.0f}{unit}"
                if abs(scaled) >= 100
                else f"{scaled:.1f}{unit}"
                if abs(scaled) >= 10
                else f"{scaled:.2f}{unit}"
            )
    return f"{value:.0f}"


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """Draw some values in one line: the last of each part, between the smallest and the largest."""
    if not values:
        return ""
    chosen = [values[min((number + 1) * len(values) // width, len(values)) - 1] for number in range(width)]
    chosen = list(values) if len(values) <= width else chosen
    low, high = min(chosen), max(chosen)
    span = (high - low) or 1.0
    flat = 0 if high == low else None
    return "".join(_BARS[flat if flat is not None else round((one - low) / span * 7)] for one in chosen)


def plot(
    known: Sequence[Point],
    ahead: Sequence[tuple[float, float, float, float]],
    *,
    width: int,
    height: int = 10,
    limits: Sequence[float] = (),
    braille: bool = True,
) -> list[str]:
    """Draw the lines of a plot: what is known as a line of dots, what is ahead (x, middle, low, high) as a fan, limits that lie inside as dashes.

    Values are at the left edge; the caller labels x.
    """
    points = [*known, *((x, y) for x, middle, low, high in ahead for y in (middle, low, high))]
    columns = max(width - 8, 10)
    begin, end = min(x for x, _ in points), max(x for x, _ in points)
    top = max(y for _, y in points)
    bottom = min(min(y for _, y in points), top)
    if top - bottom < max(abs(top) * 0.02, 1):
        bottom = min(bottom, max(top - max(abs(top) * 0.1, 1), 0))
    inside = [limit for limit in limits if bottom <= limit <= top * 1.25]
    top = max([top, *inside]) or 1.0
    across, down = (2, 4) if braille else (1, 1)
    cells: dict[tuple[int, int], int] = {}

    def pixel(x: float, y: float) -> tuple[int, int]:
        right = round((x - begin) / ((end - begin) or 1) * (columns * across - 1))
        below = round((top - y) / ((top - bottom) or 1) * (height * down - 1))
        return right, below

    def dot(right: int, below: int) -> None:
        cell = (below // down, right // across)
        cells[cell] = cells.get(cell, 0) | (_DOTS[below % 4][right % 2] if braille else 1)

    def line(one: Point, other: Point, *, every: int = 1) -> None:
        (right, below), (further, under) = pixel(*one), pixel(*other)
        steps = max(abs(further - right), abs(under - below), 1)
        for step in range(0, steps + 1, every):
            dot(right + round((further - right) * step / steps), below + round((under - below) * step / steps))

    for one, other in pairwise(known):
        line(one, other)
    if len(known) == 1:
        dot(*pixel(*known[0]))
    for limit in inside:
        line((begin, limit), (end, limit), every=4 if braille else 3)
    for number in (1, 2, 3):
        path = [known[-1], *((one[0], one[number]) for one in ahead)] if known else []
        for one, other in pairwise(path):
            line(one, other, every=2 if number == 1 else 4)
    rows, last = [], ""
    for row in range(height):
        shown = "".join(
            chr(0x2800 + cells.get((row, column), 0)) if braille else "*" if (row, column) in cells else " "
            for column in range(columns)
        )
        value = top - (top - bottom) * row / max(height - 1, 1)
        label = short(value) if row % 3 == 0 or row == height - 1 else ""
        label, last = ("", last) if label == last else (label, label or last)
        rows.append(f"{label:>6} {'┤' if label and braille else '|' if not braille else '│'}{shown}".rstrip())
    return rows
