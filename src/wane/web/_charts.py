"""Charts as SVG, drawn on the server; each page has the numbers as a table beside them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from markupsafe import Markup

from wane.observe._ages import AgeHistogram
from wane.observe._growth import TableGrowth

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 200, 56, 24
_MOST_POINTS = 300


class _Frame:
    """Maps times and numbers to a drawing with labelled axes."""

    def __init__(self, since: datetime, until: datetime, most: float) -> None:
        self.since, self.until, self.most = since, max(until, since + timedelta(seconds=1)), max(most, 1.0)
        self.parts: list[str] = []

    def x(self, at: datetime) -> float:
        share = (at - self.since) / (self.until - self.since)
        return round(_LEFT + min(max(share, 0.0), 1.0) * (_WIDTH - _LEFT - 8), 1)

    def y(self, rows: float) -> float:
        return round(8 + (1 - min(rows / self.most, 1.0)) * (_HEIGHT - _BOTTOM - 8), 1)

    def line(self, kind: str, points: Sequence[tuple[datetime, float]]) -> None:
        path = " ".join(f"{self.x(at)},{self.y(rows)}" for at, rows in points)
        self.parts.append(f'<polyline class="{kind}" points="{path}" fill="none"/>')

    def across(self, kind: str, rows: float, label: str) -> None:
        y = self.y(rows)
        self.parts.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y}" y2="{y}"/>')
        self.parts.append(f'<text class="mark" x="{_WIDTH - 10}" y="{y - 4}" text-anchor="end">{label}</text>')

    def down(self, kind: str, at: datetime, label: str) -> None:
        x, anchor = self.x(at), "end" if self.x(at) > _WIDTH / 2 else "start"
        self.parts.append(f'<line class="{kind}" x1="{x}" x2="{x}" y1="8" y2="{_HEIGHT - _BOTTOM}"/>')
        shift = -5 if anchor == "end" else 5
        self.parts.append(f'<text class="mark" x="{x + shift}" y="18" text-anchor="{anchor}">{label}</text>')

    def svg(self, title: str) -> Markup:
        base = _HEIGHT - _BOTTOM
        axes = [f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{base}" y2="{base}"/>']
        axes += [
            f'<text class="tick" x="{_LEFT - 6}" y="{self.y(rows) + 4}" text-anchor="end">{short(rows)}</text>'
            for rows in (0.0, self.most / 2, self.most)
        ]
        axes += [
            f'<text class="tick" x="{self.x(at)}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{at:%Y-%m-%d}</text>'
            for at, anchor in ((self.since, "start"), (self.until, "end"))
        ]
        inside = "".join([*axes, *self.parts])
        # Only numbers, dates and words of this module are in it: no name of a table, no value of a row.
        return Markup(
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">{inside}</svg>'
        )


def short(number: float) -> str:
    """Write a number with at most three digits: 1.2k, 34M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def growth_chart(growth: TableGrowth, threshold: int | None) -> Markup | None:
    """Draw the rows of a table by its snapshots, with the forecast and the next threshold; None without snapshots."""
    history = growth.history[:: max(len(growth.history) // _MOST_POINTS, 1)]
    if len(history) < 2:
        return None
    last = history[-1][0]
    ahead = [(last + timedelta(days=one.days), one) for one in growth.forecast if one.days <= 30]
    most = max([rows for _, rows in history] + [one.high for _, one in ahead]) * 1.1
    near = threshold is not None and threshold <= most * 1.5
    frame = _Frame(history[0][0], ahead[-1][0] if ahead else last, max(most, threshold or 0) if near else most)
    if ahead:
        for kind, pick in (("forecast-edge", "low"), ("forecast-edge", "high"), ("forecast", "rows")):
            frame.line(kind, [history[-1], *((at, getattr(one, pick)) for at, one in ahead)])
    frame.line("rows", history)
    if near and threshold is not None:
        frame.across("threshold", threshold, f"{short(threshold)} rows")
    return frame.svg("Rows over time, with a forecast")


def age_chart(ages: AgeHistogram) -> Markup | None:
    """Draw how old rows are, with the cutoff; None without rows that have a time."""
    if not ages.buckets:
        return None
    since, until = ages.buckets[0].since, max(ages.buckets[-1].until, ages.now)
    frame = _Frame(since, until, max(one.rows for one in ages.buckets))
    base = _HEIGHT - _BOTTOM
    for one in ages.buckets:
        left, right, top = frame.x(one.since), frame.x(one.until), frame.y(one.rows)
        due = "due" if ages.cutoff is not None and one.until <= ages.cutoff else "young"
        if one.rows:
            frame.parts.append(
                f'<rect class="{due}" x="{left}" y="{min(top, base - 1)}" width="{max(right - left - 1, 1):.1f}"'
                f' height="{max(base - top, 1):.1f}"/>'
            )
    if ages.cutoff is not None and since <= ages.cutoff <= until:
        frame.down("cutoff", ages.cutoff, "cutoff")
    return frame.svg("Rows by age, with the cutoff")
