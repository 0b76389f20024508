"""Projections: every column that the archive has of a table, as a contract writes them in Spark's SQL.

What an expression may contain is decided word by word, without Spark: one row is read at a time, and the same row has
the same result whenever it is computed. Spark decides whether it is well-formed, and what its type is
(`wane._archive.query.evaluation`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wane._archive.rows.expression import ForbiddenWord, NoSuchColumn, Word, require_reading, words_of
from wane._findings import did_you_mean

_VOLATILE = ("current_date", "current_timestamp", "now", "unix_timestamp")
"""What has another result whenever it is computed."""
_NOW = re.compile(r"""['"]\s*(now|today|tomorrow|yesterday)\b""", re.IGNORECASE)
"""Texts that Spark reads as a time relative to the present."""


@dataclass(frozen=True, slots=True)
class Projected:
    """One column of the archive."""

    name: str
    expression: str
    """As Spark evaluates it."""
    column: str | None
    """The table's column that it is, unchanged; None if it is computed."""
    reads: tuple[str, ...]
    """The columns of the table that it reads."""


class UnfitProjection(Exception):
    """A projection cannot be evaluated: a code of a finding, what is wrong, and what to do."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code, self.message, self.fix = code, message, fix


def read_projection(select: Sequence[str], table: str, columns: Sequence[str]) -> tuple[Projected, ...]:
    """Read the columns of a projection over a table's columns; raise UnfitProjection for the first that is none."""
    return tuple(_projected(one, table, columns) for one in select)


def _projected(text: str, table: str, columns: Sequence[str]) -> Projected:
    try:
        words = list(words_of(text))
        if len(words) == 1 and words[0].kind in ("word", "quoted"):
            return _column(words[0].text, columns)
        if len(words) < 3 or words[-2].text.lower() != "as" or words[-1].kind not in ("word", "quoted"):
            raise UnfitProjection(
                "wrong-projection", f"`select` has an expression without a name: {text}", f'name it: "{text} AS …"'
            )
        expression = words[:-2]
        require_reading(expression, columns, _VOLATILE)
        _require_fixed(expression)
    except ForbiddenWord as problem:
        raise UnfitProjection(
            "wrong-projection",
            f"{problem} is not allowed in an expression of `select`: {text}",
            "an expression computes a value from columns of its row alone, the same whenever it is computed",
        ) from None
    except NoSuchColumn as problem:
        fix = did_you_mean(str(problem), columns) or f"columns: {', '.join(columns)}"
        raise UnfitProjection("missing-column", f"{table} has no column {problem} to select", fix) from None
    named = {word.text.lower() for word in expression if word.kind in ("word", "quoted")}
    reads = tuple(name for name in columns if name.lower() in named)
    return Projected(words[-1].text, text[: words[-2].start].strip(), None, reads)


def _column(name: str, columns: Sequence[str]) -> Projected:
    if name not in columns:
        raise NoSuchColumn(name)
    return Projected(name, quoted(name), name, (name,))


def _require_fixed(words: Sequence[Word]) -> None:
    for word in words:
        if word.kind == "text" and _NOW.match(word.text):
            raise ForbiddenWord(word.text)


def quoted(name: str) -> str:
    """Quote a name as Spark's SQL does."""
    return f"`{name.replace('`', '``')}`"
