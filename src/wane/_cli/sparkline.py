"""Series of numbers as one line of bars."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-~=+*#"


def sparkline(values: Sequence[float], width: int = 12, *, unicode: bool = True) -> str:
    """Draw some values in one line: the last of each part, between the smallest and the largest."""
    parts = min(width, len(values))
    chosen = [values[(number + 1) * len(values) // parts - 1] for number in range(parts)]
    low, high = min(chosen, default=0.0), max(chosen, default=0.0)
    bars = _BARS if unicode else _ASCII
    return "".join(bars[round((one - low) / (high - low) * 7) if high > low else 0] for one in chosen)
