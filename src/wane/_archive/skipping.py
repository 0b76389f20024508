"""Skipping files of the archive that cannot hold a row that is asked for.

The archive's log has the month and the sweeps of each file, and its footer the least and greatest values of its
columns. What is unknown is read: a file is skipped only if no row in it can meet the condition.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.comparison import shape_of
from wane._archive.condition import require_short
from wane._archive.files import ColdFile, listing
from wane._archive.paths import ColdPath, source
from wane._archive.plain_condition import Edges, PlainCondition, parse
from wane._archive.types import MONTH, SWEEP
from wane._contract.settings import SparkSettings
from wane.errors import Unproven

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MOST_FOOTERS = 2_000
"""Of more files the footers are not read: that would take as long as Spark."""
_LOGGED = (MONTH, SWEEP)
"""Columns whose minima and maxima the archive's log has."""
_WHOLE = ("short", "integer", "long")
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FileToRead:
    """A file of a table, and what the log says of it."""

    path: ColdPath
    logged: ColdFile

    @property
    def bytes(self) -> int:
        return self.logged.bytes

    def edges(self) -> Edges:
        """Return the minima and maxima that the log has."""
        months, sweeps = (self.logged.month, self.logged.month), self.logged.sweeps
        return {MONTH: months} if sweeps is None else {MONTH: months, SWEEP: sweeps}

    @property
    def as_logged(self) -> bool:
        """Check whether the file is there, and has the size that the log says."""
        return self.path.is_file() and self.path.stat().st_size == self.bytes


def kinds_of(table: DeltaTable) -> dict[str, str]:
    """Return the kind of each column that can be asked for, in Spark's order."""
    return {**dict(shape_of(table)), MONTH: "string"}


def all_files(folder: ColdPath, table: DeltaTable) -> list[FileToRead]:
    """List the files of a table in the order of their paths, which is that of their months."""
    found = [FileToRead(folder / unquote(one.path), one) for one in listing(table)]
    return sorted(found, key=lambda file: file.path.as_posix())


def without_others(files: Iterable[FileToRead], condition: PlainCondition | None) -> list[FileToRead]:
    """Return the files that can hold a row that meets a condition; all of them if it is None."""
    if condition is None:
        return list(files)
    found = [file for file in files if not condition.excludes(file.edges())]
    names = set(condition.names())
    if names <= set(_LOGGED) or len(found) > _MOST_FOOTERS:
        return found
    # The footer of a file that somebody changed says nothing.
    return [
        file
        for file in found
        if not file.as_logged or not condition.excludes({**file.edges(), **footer_edges(file.path, names)})
    ]


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

    Settings of `spark.sql` change that.
    """
    if where is None or any(name.startswith("spark.sql.") for name, _ in settings.settings):
        return None
    require_short(where)
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
        doubled = text.replace("'", "''")
        return f"`{name}` = '{doubled}'"
    return None
