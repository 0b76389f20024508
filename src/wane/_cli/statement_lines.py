"""Statements as people read them: long lines are broken at spaces outside of quotes, so the text means the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

_WIDTH = 120
_BREAKS = (
    re.compile(r" (?=(?:WHERE|GROUP BY|ORDER BY|UNION ALL|RETURNING|USING)\b)"),
    re.compile(r" (?=(?:AND|OR)\b)"),
    re.compile(r" (?=FROM\b)"),
    re.compile(r"(?<=,) "),
)
"""Where a line may be broken, the best first."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def break_lines(statement: str) -> str:
    """Break the lines of a statement that are longer than 120 columns, as far as they can be."""
    # Of the same length, so that positions stay those of the statement; what is quoted may have several lines.
    plain = _QUOTED.sub(lambda found: "x" * len(found[0]), statement)
    broken: list[str] = []
    begin = 0
    for line in plain.split("\n"):
        end = begin + len(line)
        broken += _parts(statement[begin:end], line, "")
        begin = end + 1
    return "\n".join(broken)


def _parts(line: str, plain: str, indent: str) -> Iterator[str]:
    """Break a line where the fewest brackets are open, and then its parts."""
    ends = _ends(plain) if len(indent) + len(line) > _WIDTH else []
    if not ends:
        yield indent + line
        return
    deeper = indent + " " * (len(plain) - len(plain.lstrip()) + 2)
    yield from _parts(line[: ends[0]], plain[: ends[0]], indent)
    for begin, end in zip(ends, [*ends[1:], len(line)], strict=True):
        yield from _parts(line[begin + 1 : end], plain[begin + 1 : end], deeper)


def _ends(plain: str) -> list[int]:
    """Return where to break a line: at the best of those spaces around which the fewest brackets are open."""
    depths, depth = [], 0
    for character in plain:
        depths.append(depth)
        depth += (character == "(") - (character == ")")
    first = len(plain) - len(plain.lstrip())
    found = [[one.start() for one in pattern.finditer(plain) if one.start() > first] for pattern in _BREAKS]
    least = min((depths[at] for each in found for at in each), default=0)
    outer = ([at for at in each if depths[at] == least] for each in found)
    return next((each for each in outer if each), [])
