"""A gauge: a metric that is read from the database at a scrape."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric that is read from the database."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


Told = tuple[Gauge, tuple[str, ...], float]
"""A gauge, the values of its labels, and its value."""
Values = dict[Gauge, list[tuple[tuple[str, ...], float]]]
"""For each gauge: label values and the value."""
