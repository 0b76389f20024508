"""Conditions that users write, in Spark's SQL: refused unless every word only reads the row, then parsed by Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wane._archive.delta.paths import local_path
from wane._archive.rows.expression import ForbiddenWord, NoSuchColumn, require_reading, words_of
from wane.errors import SparkError, Unproven, WaneError, WrongArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_CHARACTERS = 100_000
_NAMED = re.compile(r"\[[A-Z][A-Z_.]+\]")
"""How Spark names its errors."""
_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?:file:(?://)?)?(.+?\.parquet)"
)
_HINT = "a condition compares columns and values, for example \"id < 10 AND body LIKE '%error%'\""


def matching(frame: DataFrame, where: str) -> DataFrame:
    """Return the rows of a frame that meet a condition.

    Raise WrongArgument if it cannot be parsed, or does more than read them.
    """
    require_harmless(where, frame.columns)
    try:
        found = frame.where(where)
        found.schema  # noqa: B018 - over Spark Connect a condition is parsed only when something is asked of it
    except spark_errors() as problem:
        raise refused(problem, frame.columns) from None
    return found


def require_harmless(where: str, columns: Sequence[str]) -> None:
    """Raise WrongArgument unless every word of a condition is a value, a column, or one that only reads the row."""
    if len(where) > _MOST_CHARACTERS:
        raise WrongArgument(f"the condition is longer than {_MOST_CHARACTERS:,} characters", _HINT)
    try:
        require_reading(list(words_of(where)), columns)
    except ForbiddenWord as problem:
        raise WrongArgument(f"{problem} is not allowed in an archive condition", _HINT) from None
    except NoSuchColumn as problem:
        raise unknown_column(str(problem), columns) from None


def unknown_column(name: str, columns: Sequence[str]) -> WrongArgument:
    """Build the error for a condition that names a column that does not exist."""
    return WrongArgument(f"the archive has no column {name}", f"columns: {', '.join(columns)}")


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that Spark raises: most are its own, some are Java's, or of the connection to Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, ConnectionError


def ended(problem: Exception) -> SparkError | None:
    """Build the error for a Spark that has ended while it worked; None if it refused something."""
    from py4j.protocol import Py4JNetworkError

    if isinstance(problem, (Py4JNetworkError, ConnectionError)):
        return SparkError("Spark has ended while it worked", "it was stopped, or memory ran out: run it again")
    return None


def refused(problem: Exception, columns: Sequence[str]) -> WaneError:
    """Build the error for what Spark refused, in one line."""
    if (gone := ended(problem)) is not None:
        return gone
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    unreadable = _UNREADABLE.search(str(problem))
    if unreadable is not None:
        return Unproven(f"{local_path(unreadable[1])} cannot be trusted", "`wane archive verify` checks all files")
    named = [line[line.index("[") :] for line in lines if _NAMED.search(line)]
    reason = (named or lines or [type(problem).__name__])[0]
    return WrongArgument(f"the archive condition failed: {reason}", f"columns: {', '.join(columns)}")
