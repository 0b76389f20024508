"""The files that make up a table of the archive, and replacing some of them by others, in one commit.

What is replaced must be part of the table in the very state that the commit is made from: the handle that lists the
files commits, so that a concurrent change to one of them is noticed, and nothing that was removed comes back.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import MAXYEAR, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.log_entry import is_written
from wane._archive.rows.statistics import is_whole_text
from wane._archive.rows.types import MONTH, SWEEP
from wane._leases import Lease
from wane.errors import ArchiveChanged, ArchiveError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_RETRY_HINT = "run it again: it plans anew"
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ColdFile:
    """One file of a table: its path below the table's folder, its content, and the first and last sweep that filled
    it."""

    path: str
    month: str
    rows: int
    bytes: int
    sweeps: tuple[int, int] | None = None
    """None if the log does not record it."""

    def has_any(self, sweeps: Sequence[int]) -> bool:
        """Check whether rows of one of these sweeps may be in it."""
        if self.sweeps is None:
            return bool(sweeps)
        first, last = self.sweeps
        return any(first <= sweep <= last for sweep in sweeps)


def add_actions(table: DeltaTable, *names: str) -> list[tuple[Any, ...]]:
    """Return what the log records of every file, by the names of Delta Lake; None where it records nothing.

    Not as an Arrow table of pyarrow, which would import pandas: that takes half a second.
    """
    actions = table.get_add_actions(flatten=True)
    known = actions.schema.names
    count = actions.num_rows
    return list(zip(*(_values(actions[name]) if name in known else [None] * count for name in names), strict=True))


def _values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # A time that Python has not: other programs write such tables.
        return [None] * len(column)


def listing(table: DeltaTable) -> list[ColdFile]:
    """List the files of a table, as one handle sees them."""
    wanted = ("path", f"partition.{MONTH}", "num_records", "size_bytes", f"min.{SWEEP}", f"max.{SWEEP}")
    return [
        ColdFile(path, month, rows or 0, size, None if first is None or last is None else (first, last))
        for path, month, rows, size, first, last in add_actions(table, *wanted)
    ]


def logged_edges(table: DeltaTable, names: Collection[str]) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return, by the path of each file, the minima and maxima of columns that the log has; wider than the truth at
    most.

    A column by which the table is partitioned has its value as both.
    """
    parted = [name for name in table.metadata().partition_columns if name in names]
    others = [name for name in names if name not in parted]
    wanted = [f"partition.{name}" for name in parted]
    wanted += [f"{edge}.{name}" for name in others for edge in ("min", "max")]
    if not wanted:
        return {}
    found = {}
    for path, *values in add_actions(table, "path", *wanted):
        edges = {name: (value, value) for name, value in zip(parted, values, strict=False) if value is not None}
        pairs = zip(values[len(parted) :: 2], values[len(parted) + 1 :: 2], strict=True)
        for name, pair in zip(others, pairs, strict=True):
            if (known := _trusted(*pair)) is not None:
                edges[name] = known
        found[path] = edges
    return found


def _trusted(least: Any, most: Any) -> tuple[Any, Any] | None:
    """Return a minimum and a maximum of the log so that no value is outside, whichever program wrote them; None if
    that is not certain: of fractions, which JSON rounds, and of texts that may have been cut."""
    if isinstance(least, datetime) and isinstance(most, datetime):
        # Some programs cut a maximum to milliseconds.
        return (least, most + _MILLISECOND) if most.year < MAXYEAR else None
    if isinstance(least, str) and isinstance(most, str):
        return (least, most) if is_whole_text(least) and is_whole_text(most) else None
    return (least, most) if type(least) is type(most) and type(most) in (int, date) else None


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that replaces others: written, and to be committed."""

    path: str
    month: str
    rows: int
    bytes: int
    statistics: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """What one commit to one table changes."""

    table: str
    removed: tuple[ColdFile, ...]
    added: tuple[NewFile, ...]

    @property
    def gone(self) -> int:
        """Return how many rows leave the table."""
        return sum(file.rows for file in self.removed) - sum(file.rows for file in self.added)

    def written(self) -> dict[str, Any]:
        """Return this as the journal stores it."""
        return asdict(self)

    @classmethod
    def read(cls, written: Any) -> Replacement:
        removed = (ColdFile(**{**one, "sweeps": one["sweeps"] and tuple(one["sweeps"])}) for one in written["removed"])
        return cls(written["table"], tuple(removed), tuple(NewFile(**one) for one in written["added"]))


def committed(cold: ColdTable, writer: str, job: int) -> bool:
    """Check whether a job's commit to this table was made."""
    table = cold.open()
    return table is not None and (table.transaction_version(_application(cold, writer)) or 0) >= job


def replace(
    cold: ColdTable, writer: str, job: int, change: Replacement, leases: Sequence[Lease], *, rows_leave: bool
) -> None:
    """Make the commit, once; raise ArchiveChanged if any file is not what the plan expects."""
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, RemoveAction

    table = cold.fresh()
    if table is None:
        raise ArchiveError(f"the archive of {cold.name} is gone", "restore its folder from a backup")
    if (table.transaction_version(_application(cold, writer)) or 0) >= job:
        return
    active = {file.path for file in listing(table)}
    missing = [file.path for file in change.removed if file.path not in active]
    if missing:
        raise ArchiveChanged(f"{cold.folder / missing[0]} is no longer a part of the archive", _RETRY_HINT)
    for file in change.added:
        path = cold.folder / file.path
        if not is_written(path, file.bytes):
            raise ArchiveChanged(f"{path} is not what was written", _RETRY_HINT)
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(file.path, rows_leave, now, file.bytes, {MONTH: file.month}) for file in change.removed
    ]
    actions += [
        AddAction(file.path, file.bytes, {MONTH: file.month}, now, data_change=rows_leave, stats=file.statistics)
        for file in change.added
    ]
    try:
        cold.write(table, actions, leases, {_application(cold, writer): job}, job=str(job))
    except CommitFailedError as problem:
        raise ArchiveChanged(f"another process changed the archive of {cold.name}: {problem}", _RETRY_HINT) from problem


def _application(cold: ColdTable, writer: str) -> str:
    return f"wane:{cold.origin}:{writer}:life"
