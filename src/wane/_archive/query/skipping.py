"""Skipping files of the archive that cannot hold a row that is requested.

The archive's log has the partition of each file, and the least and greatest values of whole numbers, dates, times and
chosen texts in it; the file's footer has those of its other columns. What is unknown is read: a file is skipped only if
no row in it can meet the condition.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.delta.comparison import shape_of
from wane._archive.delta.files import ColdFile, listing, logged_edges
from wane._archive.delta.paths import ColdPath, source
from wane._archive.query.condition import require_harmless
from wane._archive.query.plain_condition import Edges, PlainCondition, parse
from wane._archive.rows.types import MONTH
from wane._contract.settings import SparkSettings
from wane._db.statement import text_literal
from wane.errors import Unproven

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from wane._archive.delta.cold_table import ColdTable

_MOST_FOOTERS = 2_000
"""Of more files the footers are not read: that would take as long as Spark."""
_WHOLE = ("short", "integer", "long")
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FileToRead:
    """A file of a table, and what the log records of it."""

    path: ColdPath
    logged: ColdFile
    edges: Edges = field(default_factory=dict)
    """The minima and maxima that the log has."""

    @property
    def bytes(self) -> int:
        return self.logged.bytes

    @property
    def as_logged(self) -> bool:
        """Check whether the file is there, and has the size that the log records."""
        return self.path.is_file() and self.path.stat().st_size == self.bytes


def kinds_of(table: DeltaTable) -> dict[str, str]:
    """Return the kind of each column that conditions can read, in Spark's order."""
    return {**dict(shape_of(table)), MONTH: "string"}


def all_files(folder: ColdPath, table: DeltaTable, condition: PlainCondition | None = None) -> list[FileToRead]:
    """List the files of a table in the order of their paths, which is that of their months.

    With a condition, each has what the log records of the columns that it compares.
    """
    edges = {} if condition is None else logged_edges(table, set(condition.bounded()))
    found = [FileToRead(folder / unquote(one.path), one, edges.get(one.path, {})) for one in listing(table)]
    return sorted(found, key=lambda file: file.path.as_posix())


def without_others(files: Iterable[FileToRead], condition: PlainCondition | None) -> list[FileToRead]:
    """Return the files that can hold a row that meets a condition; all of them if it is None.

    `files` are those of `all_files` with the same condition. The log decides first; footers are read of files of which
    it does not record enough.
    """
    if condition is None:
        return list(files)
    names = set(condition.bounded())
    found = [file for file in files if not condition.excludes(file.edges)]
    if sum(not names <= file.edges.keys() for file in found) > _MOST_FOOTERS:
        return found
    return [file for file in found if not _excluded_by_footer(file, condition, names)]


def rows_at_most(cold: ColdTable, condition: PlainCondition | None = None) -> int:
    """Return how many rows the files have that the log does not exclude: those that are read, or more."""
    files = all_files(cold.folder, cold.require(), condition)
    return sum(file.logged.rows for file in files if condition is None or not condition.excludes(file.edges))


def _excluded_by_footer(file: FileToRead, condition: PlainCondition, names: Collection[str]) -> bool:
    unlogged = set(names) - file.edges.keys()
    # The footer of a file that was changed proves nothing.
    if not unlogged or not file.as_logged:
        return False
    return condition.excludes({**file.edges, **footer_edges(file.path, unlogged)})


def footer_edges(path: ColdPath, names: Collection[str]) -> Edges:
    """Read the minima and maxima of columns from a file's footer, where they have an order that Spark agrees on."""
    try:
        footer = pq.read_metadata(source(path))
    except (OSError, pa.ArrowException):
        raise untrusted(path) from None
    found: dict[str, tuple[Any, Any]] = {}
    unknown: set[str] = set()
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            name, known = column.path_in_schema, column.statistics
            if name not in names:
                continue
            if known is None or not known.has_min_max or isinstance(known.min, float):  # NaN has none.
                unknown.add(name)
                continue
            least, most = found.get(name, (known.min, known.max))
            found[name] = min(least, known.min), max(most, known.max)
    return {name: pair for name, pair in found.items() if name not in unknown}


def untrusted(path: ColdPath) -> Unproven:
    return Unproven(f"{path} cannot be trusted", "`wane archive verify` checks all files")


def plain_condition(where: str | None, kinds: Mapping[str, str], settings: SparkSettings) -> PlainCondition | None:
    """Parse a condition; None if there is none, or only Spark knows what it means.

    Settings of `spark.sql` change that. Raise WrongArgument if it does more than read rows, without starting Spark.
    """
    if where is None:
        return None
    require_harmless(where, list(kinds))
    if any(name.startswith("spark.sql.") for name, _ in settings.settings):
        return None
    return parse(where, kinds)


def key_condition(keys: Sequence[Mapping[str, object]], kinds: Mapping[str, str]) -> PlainCondition | None:
    """Build a condition that rows with one of these keys meet, and few others; None if nothing is known of some key."""
    alternatives = []
    for key in keys:
        parts = [part for name, value in key.items() if (part := _equal(name, str(value), kinds.get(name)))]
        if not parts:
            return None
        alternatives.append(f"({' AND '.join(parts)})")
    return parse(" OR ".join(alternatives), kinds) if alternatives else None


def _equal(name: str, text: str, kind: str | None) -> str | None:
    if "`" in name or not name.isascii():
        return None
    if kind in _WHOLE and _NUMBER.fullmatch(text):
        return f"`{name}` = {text}"
    if kind == "string" and "\\" not in text:
        return f"`{name}` = {text_literal(text)}"
    return None
