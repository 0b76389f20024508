"""Taking the rows of a batch by their range instead of by their keys, and comparing what was taken with the copies.

A range may have rows that were never copied: one that was added since, or moved into it. So the statement that deletes
returns what it deleted, and unless that is exactly what the committed archive holds, its transaction is rolled back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from wane._archive.rows.sql import ArchiveRows
from wane._archive.rows.types import KEY, VERSION, key_digest
from wane._db.statement import Statement

if TYPE_CHECKING:  # A plan shows the statement, also where pyarrow is not installed.
    from wane._archive.pipeline.copies import Copies

_POSITIONS = ("short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz")
"""Types whose values of the archive are positions in the database too."""


class RangeTake(ABC):
    """Takes rows by their range, and compares them with their copies."""

    columns: Sequence[str]
    """What has to be read of the copies."""
    summed = False

    def __init__(self, archive: ArchiveRows, names: Sequence[str]) -> None:
        """Keep the statements of the table, and the columns of a position (`names`)."""
        self.archive = archive
        self.names = names

    def statement(self, copies: Copies, now: datetime) -> Statement:
        """Write the statement that takes every row that is due between the first copy and the last."""
        first, last = ([copies.table[name][row].as_py() for name in self.names] for row in (0, len(copies) - 1))
        return self.between(first, last, now)

    def between(self, first: Sequence[object], last: Sequence[object], now: datetime) -> Statement:
        """Write the statement that takes every row that is due from one position to another."""
        return self.archive.take_range(first, last, now, summed=self.summed)

    @abstractmethod
    def same(self, taken: list[tuple[Any, ...]], copies: Copies) -> bool:
        """Check whether the rows that the statement took are exactly the copies."""


def range_take(archive: ArchiveRows) -> RangeTake | None:
    """Return how the rows of a rule are taken by their range; None if they are checked one by one.

    That is so if others follow them or save them, or if their order is not that of columns of the archive.
    """
    selection, own = archive.selection, archive.selection.own_time
    if selection.followers or selection.guards or selection.rule.spare is not None:
        return None
    if archive.is_projected and archive.dialect.checksums:
        return None  # The archive has no values to compare, and the version of each row is computed of them.
    bare = {one.name for one in archive.parts[0].columns if one.select in ("{x}", "{x}::text")}
    kinds = dict(archive.parts[0].read_shape)
    names = [archive.archived(column) for column in archive.rows.position_columns(selection)]
    if (own is not None and own.among) or not all(name in bare and kinds[name] in _POSITIONS for name in names):
        return None
    if archive.dialect.checksums:
        return _Values(archive, names)
    return _Sums(archive, names) if archive.whole_key(archive.parts[0]) is not None else _Pairs(archive, names)


class _Sums(RangeTake):
    """PostgreSQL, keys that are one whole number: compares the number of rows and two sums, which the server adds up.

    The sum of the keys' digests differs if other rows were taken. A row that was written since has a later transaction
    than its copy, so the sum of transactions differs if any was.
    """

    summed = True

    def __init__(self, archive: ArchiveRows, names: Sequence[str]) -> None:
        super().__init__(archive, names)
        self.key = archive.archived(archive.selection.key[0])
        self.columns = [KEY, VERSION, *dict.fromkeys((*names, self.key))]

    def same(self, taken: list[tuple[Any, ...]], copies: Copies) -> bool:
        import numpy as np
        import pyarrow as pa

        from wane._archive.rows.content import whole

        keys = whole(copies.table[self.key]).to_numpy(zero_copy_only=False).astype(np.int64)
        versions = whole(copies.table[VERSION]).cast(pa.int64()).to_numpy(zero_copy_only=False)
        expected = [len(copies), int(key_digest(keys).sum()), int(versions.sum())]
        return [int(number) for number in taken[0]] == expected


class _Pairs(RangeTake):
    """PostgreSQL, any other key: compares keys and versions."""

    def __init__(self, archive: ArchiveRows, names: Sequence[str]) -> None:
        super().__init__(archive, names)
        self.columns = [KEY, VERSION, *names]

    def same(self, taken: list[tuple[Any, ...]], copies: Copies) -> bool:
        expected = dict(zip(copies.table[KEY].to_pylist(), copies.table[VERSION].to_pylist(), strict=True))
        return len(taken) == len(copies) and dict(taken) == expected


class _Values(RangeTake):
    """SQLite, where rows have no version: compares all values."""

    def __init__(self, archive: ArchiveRows, names: Sequence[str]) -> None:
        super().__init__(archive, names)
        shape = archive.parts[0].shape
        self.stored = [name for name, _ in shape]
        self.key = [self.stored.index(archive.archived(column)) for column in archive.selection.key]
        self.reals = [number for number, (_, kind) in enumerate(shape) if kind == "double"]
        self.columns = [KEY, VERSION]  # Values are read in any case.

    def same(self, taken: list[tuple[Any, ...]], copies: Copies) -> bool:
        expected = list(zip(*(copies.table[name].to_pylist() for name in self.stored), strict=True))
        if taken != expected:
            taken, expected = self._sorted(taken), self._sorted(expected)
        if taken != expected:
            return False
        import numpy as np

        # A zero has a sign, which a comparison does not see.
        return all(
            bool(np.array_equal(np.signbit(_numbers(taken, one)), np.signbit(_numbers(expected, one))))
            for one in self.reals
        )

    def _sorted(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return sorted(rows, key=lambda row: [row[number] for number in self.key])


def _numbers(rows: Sequence[Sequence[Any]], column: int) -> Any:
    import numpy as np

    return np.array([0.0 if row[column] is None else row[column] for row in rows])
