"""Numbers in few characters: short ones, and series as one line of bars."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-~=+*#"


def short(value: float) -> str:
    """Format a number in at most six characters: `950`, `12.3k`, `4.00M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            scaled = value / size
            digits = 0 if abs(scaled) >= 100 else 1 if abs(scaled) >= 10 else 2
            return f"{scaled:.{digits}f}{unit}"
    return f"{value:.0f}"


def sparkline(values: Sequence[float], width: int = 12, *, unicode: bool = True) -> str:
    """Draw some values in one line: the last of each part, between the smallest and the largest."""
    parts = min(width, len(values))
    chosen = [values[(number + 1) * len(values) // parts - 1] for number in range(parts)]
    low, high = min(chosen, default=0.0), max(chosen, default=0.0)
    bars = _BARS if unicode else _ASCII
    return "".join(bars[round((one - low) / (high - low) * 7) if high > low else 0] for one in chosen)
