"""Counts, shares, sizes, times and durations as people read them, in the console and in commands.

A number that was not counted has a sign, and a bound is never rounded past what it bounds.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

from wane._db.counting import Count, Exactness, Figure, round_bound

SIGNS = {Exactness.EXACT: "", Exactness.ESTIMATE: "~", Exactness.AT_LEAST: "≥ ", Exactness.AT_MOST: "≤ "}
"""What stands before a number that was not counted."""
_SIZE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count_text(count: Count | None) -> str:
    """Format a count so that it shows how exact it is: `1,234`, `~1,234`, `≥ 1,234`, `?`; a lower bound of zero is
    unknown."""
    return "?" if count is None or count == Count(0, Exactness.AT_LEAST) else f"{SIGNS[count.exactness]}{count.rows:,}"


def share_text(share: Figure | None) -> str:
    """Format a share so that it shows how exact it is: `12.3%`, `~12.3%`, `≥ 12.3%`; nothing if it is unknown."""
    if share is None:
        return ""
    return f"{SIGNS[share.exactness]}{round_bound(share.value, share.exactness, 3):.1%}"


def counted(count: Count | None, noun: str) -> str:
    """Format a count of things that may be an estimate: `1 row`, `~1,234 rows`."""
    text = count_text(count)
    return f"{text} {noun}{'' if text == '1' else 's'}"


def size_text(count: int | None, *, exact: bool = True) -> str:
    """Format a number of bytes: `950 B`, `12.3 kB`, `~4.00 MB`, or `?`."""
    if count is None:
        return "?"
    size, unit = float(count), 0
    while abs(size) >= 999.5 and unit + 1 < len(_SIZE_UNITS):
        size, unit = size / 1_000, unit + 1
    digits = 0 if unit == 0 or abs(size) >= 99.95 else 1 if abs(size) >= 9.995 else 2
    return f"{'' if exact else '~'}{size:.{digits}f} {_SIZE_UNITS[unit]}"


def time_text(time: date | None, timespec: str = "seconds") -> str:
    """Format a time in UTC, to the `seconds`, `minutes` or `days`; of a day alone, the day."""
    if time is None:
        return ""
    if not isinstance(time, datetime):
        return time.isoformat()
    utc = time.astimezone(UTC).replace(tzinfo=None)
    return utc.date().isoformat() if timespec == "days" else utc.isoformat(" ", timespec)


def seconds_text(seconds: float | None) -> str:
    """Format a duration roughly: `less than 1 s`, `12 s`, `3 min`, `2.5 h`, `4.0 d`; nothing if it is none at all."""
    if seconds is None:
        return "?"
    if seconds < 1:
        return "less than 1 s" if seconds > 0 else ""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"
