"""Taking the rows of a batch by their range instead of by their keys, and comparing what was taken with the copies.

A range may have rows that were never copied: one that was added since, or moved into it. So what the statement deletes
is compared with the committed archive, and unless it is exactly what that holds, the transaction is rolled back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any

from wane._archive.rows.sql import ArchiveRows
from wane._archive.rows.sql_sqlite import reads_beside_writes
from wane._archive.rows.types import KEY, REFUSED, VERSION, key_digest, version_digest
from wane._db import Store
from wane._db.statement import Statement
from wane._db.transaction import Transaction
from wane._prune.batches import BATCH_SECONDS

if TYPE_CHECKING:  # A plan shows the statements, also where pyarrow is not installed.
    from wane._archive.pipeline.copies import Copies
    from wane._archive.pipeline.range_reader import RangeReader

_POSITIONS = ("short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz")
"""Types whose values of the archive are positions in the database too."""
Ends = tuple[Sequence[object], Sequence[object]]
"""The positions of the first and the last row of a range."""
READ_APART = 20_000
"""Copies of a range for which a process that reads is worth starting."""
TAKE = "take the batch, which must be exactly what was copied"


class RangeTake(ABC):
    """Takes rows by their range, and compares them with their copies."""

    columns: Sequence[str]
    """What has to be read of the copies."""

    def __init__(self, store: Store, archive: ArchiveRows, names: Sequence[str]) -> None:
        """Keep the statements of the table, and the columns of a position (`names`)."""
        self.store = store
        self.archive = archive
        self.names = names
        self.stack = ExitStack()
        """What has to be closed when nothing more is taken."""

    def begin(self, left: int) -> None:
        """Begin a range, outside of a transaction; `left`: how many of its copies are to be taken."""
        del left  # The server compares by itself.

    def shown(self, ends: Ends, now: datetime) -> Iterator[tuple[str, Statement]]:
        """Yield the statements that take a range, as they run, each with its purpose."""
        yield TAKE, self._taking(ends, now)

    @abstractmethod
    def take(self, transaction: Transaction, copies: Copies, now: datetime) -> bool:
        """Take every row that is due between the first copy and the last; return whether they are exactly the copies.

        If not, the transaction has to be rolled back.
        """

    def _taking(self, ends: Ends, now: datetime) -> Statement:
        return self.archive.take_range(*ends, now)

    def _ends(self, copies: Copies) -> Ends:
        first, last = ([copies.table[name][row].as_py() for name in self.names] for row in (0, len(copies) - 1))
        return first, last


def range_take(store: Store, archive: ArchiveRows) -> RangeTake | None:
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
        return _Values(store, archive, names)
    taking = _Sums if archive.whole_key(archive.parts[0]) is not None else _Pairs
    return taking(store, archive, names)


class _Sums(RangeTake):
    """PostgreSQL, keys that are one whole number: compares the number of rows and two sums, which the server adds up.

    The sum of the keys' digests differs if other rows were taken; the sum of the digests of each key with the
    transaction that wrote its row, if any row was written since.
    """

    def __init__(self, store: Store, archive: ArchiveRows, names: Sequence[str]) -> None:
        super().__init__(store, archive, names)
        self.key = archive.archived(archive.selection.key[0])
        self.columns = [KEY, VERSION, *dict.fromkeys((*names, self.key))]

    def _taking(self, ends: Ends, now: datetime) -> Statement:
        return self.archive.take_range(*ends, now, summed=True)

    def take(self, transaction: Transaction, copies: Copies, now: datetime) -> bool:
        import numpy as np
        import pyarrow as pa

        from wane._archive.rows.content import whole

        keys = key_digest(whole(copies.table[self.key]).to_numpy(zero_copy_only=False).astype(np.int64))
        versions = whole(copies.table[VERSION]).cast(pa.int64()).to_numpy(zero_copy_only=False)
        expected = [len(copies), int(keys.sum()), int(version_digest(keys, versions).sum())]
        [taken] = transaction.read(self._taking(self._ends(copies), now))
        return [int(number) for number in taken] == expected


class _Pairs(RangeTake):
    """PostgreSQL, any other key: compares keys and versions, which arrive as one text, a line for each row."""

    def __init__(self, store: Store, archive: ArchiveRows, names: Sequence[str]) -> None:
        super().__init__(store, archive, names)
        self.columns = [KEY, VERSION, *names]

    def take(self, transaction: Transaction, copies: Copies, now: datetime) -> bool:
        import pyarrow as pa
        import pyarrow.compute as pc

        from wane._archive.rows.content import whole

        [(rows, lines)] = transaction.read(self._taking(self._ends(copies), now))
        if rows != len(copies):
            return False
        expected = pc.binary_join_element_wise(whole(copies.table[KEY]), whole(copies.table[VERSION]), " ")
        taken = pc.split_pattern(pa.scalar(lines), "\n").values
        pairs = (expected, taken), (taken, expected)
        return all(pc.all(pc.is_in(some, others)).as_py() for some, others in pairs)


class _Values(RangeTake):
    """SQLite, where rows have no version: compares all values, column by column.

    No other connection writes during the transaction, so the rows that meet the conditions are read first, or by a
    process of its own at the same time, and then deleted by the same conditions: RETURNING copies every value and
    every page that changes. What is read includes whether a value has another type than its column declares, as it
    does when rows are copied. A trigger may let a row stay, which the number of deleted rows shows.
    """

    def __init__(self, store: Store, archive: ArchiveRows, names: Sequence[str]) -> None:
        super().__init__(store, archive, names)
        self.part = archive.parts[0]
        self.columns = [KEY, VERSION]  # Values are read in any case.
        self._reader: RangeReader | None = None

    def begin(self, left: int) -> None:
        if left < READ_APART:
            return
        if self._reader is None:
            from wane._archive.pipeline.range_reader import RangeReader

            assert self.store.url.path is not None
            self._reader = RangeReader(self.store.url.path.resolve(), BATCH_SECONDS)
            self.stack.callback(self._reader.close)
        self._reader.start()

    def shown(self, ends: Ends, now: datetime) -> Iterator[tuple[str, Statement]]:
        yield "read the batch, to compare it with what was copied", self.archive.copy(self.part, now, ends)
        yield TAKE, self.archive.take_range(*ends, now, unheld=True)
        yield f"if anything of the table is held: {TAKE}", self._taking(ends, now)

    def take(self, transaction: Transaction, copies: Copies, now: datetime) -> bool:
        ends = self._ends(copies)
        query = self.archive.copy(self.part, now, ends)
        reader = self._reader
        if reader is not None and reader.started and reads_beside_writes(transaction):
            with reader.reading(self.store.literal(query)) as answer:
                deleted = self._delete(transaction, ends, now)
                found = self._answered(answer())
        else:
            found = self._read(transaction, query)
            deleted = self._delete(transaction, ends, now)
        return deleted == len(copies) and found is not None and self._same(found, copies)

    def _delete(self, transaction: Transaction, ends: Ends, now: datetime) -> int:
        """Delete every due row of the range: most tables have no hold, and a statement without functions is faster."""
        deleted = transaction.change(self.archive.take_range(*ends, now, unheld=True))
        return deleted or transaction.change(self._taking(ends, now))

    def _answered(self, found: Any) -> Any:
        """Return rows that were read as Arrow; None if some value could not be stored."""
        import pyarrow.compute as pc

        rows = found.slice(1)  # The first one only declares types.
        return None if pc.any(pc.not_equal(rows[REFUSED], 0)).as_py() else rows

    def _read(self, transaction: Transaction, query: Statement) -> Any:
        """Read the same over the connection of the transaction: a process costs more than some thousand rows."""
        import pyarrow as pa

        from wane._archive.rows.content import arrow_type

        [_, *rows] = transaction.read(query)
        values = list(zip(*rows, strict=True)) or [()] * (len(self.part.columns) + 1)
        if any(values[-1]):
            return None
        read = ((one.name, one.kind if one.hashed_from is None else one.hashed_from[1]) for one in self.part.columns)
        return pa.table({name: pa.array(values[number], arrow_type(kind)) for number, (name, kind) in enumerate(read)})

    def _same(self, found: Any, copies: Copies) -> bool:
        """Check whether rows are their copies, bit by bit: a zero has a sign, which a comparison of numbers ignores."""
        import pyarrow as pa

        from wane._archive.rows.content import arrow_type, hashes, whole

        for name, kind in self.part.shape:
            read = whole(found[name]) if name not in self.part.hashed else hashes(found[name], self.part.hashed[name])
            pair = read.cast(arrow_type(kind)), whole(copies.table[name])
            one, other = (column.view(pa.int64()) if kind == "double" else column for column in pair)
            if not one.equals(other):
                return False
        return True
