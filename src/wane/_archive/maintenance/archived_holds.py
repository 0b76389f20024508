"""Holds on archived rows: a hold on a table retains all of it; a hold by key retains the row and what left with it.

A hold names a row by its primary key. Where the archive writes keys differently, a hold by key counts as one on the
whole table: too much stays rather than too little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.comparison import groups, shape_of
from wane._archive.delta.files import ColdFile, committed, listing
from wane._archive.maintenance.journal import Jobs
from wane._archive.query.query import frame
from wane._archive.query.skipping import all_files, key_condition, without_others
from wane._archive.rows import content
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.names import ColumnNames
from wane._archive.rows.types import KEY, PARENT, SWEEP
from wane._contract.model import Contract
from wane._contract.names import TableName
from wane._db import Store
from wane._db.schema import TableInfo, hold_names
from wane._db.transaction import Transaction
from wane._ledger import Hold, Ledger
from wane.errors import ArchiveBusy, ArchiveError, TimedOut, WrongArgument

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from wane._archive.maintenance.upkeep import Upkeep

MOST = 200_000
"""More holds by key than this count as one on the whole table."""


class NewHold(Exception):
    """A hold was placed since the holds were read."""


@dataclass(frozen=True, slots=True)
class ArchivedHold:
    """What is held of a table and of what left with its rows."""

    everything: str = ""
    """Why nothing may leave; "" if something may."""
    keys: frozenset[str] = frozenset()
    """Keys of the table's rows that stay."""
    known: frozenset[int] = frozenset()
    """The ids of the holds taken into account."""


def find(store: Store, names: Sequence[str]) -> list[TableInfo]:
    """Find the hot tables of some of the archive's tables, in an order that is the same in every process.

    Raise ArchiveError if the database lacks one.
    """
    schema = store.reflect()
    found = []
    for name in names:
        parsed = TableName.parse(name)
        info = schema.find(parsed.schema, parsed.name)
        if info is None:
            raise ArchiveError(
                f"the database has no table {name}, so what is held of its archive is unknown",
                'put the table back, or set `keep = "forever"`',
            )
        found.append(info)
    return sorted(found, key=lambda info: info.qualified)


def known_by_key(store: Store, contract: Contract, info: TableInfo, name: str) -> bool:
    """Check whether the archive writes keys as holds do, so that a hold names one archived row."""
    columns = [column for one in info.primary_key if (column := info.column(one)) is not None]
    chosen = next((table.key for table in contract.tables if str(table.name) == name), ())
    if not columns or (chosen and tuple(chosen) != tuple(info.primary_key)):
        return False
    return store.dialect.key_text(columns, "t") == archive_dialect(store).key(columns, "t")


def holds_of(transaction: Transaction, tables: Sequence[TableInfo]) -> list[Hold]:
    return [hold for info in tables for hold in Ledger.of(transaction).holds(tables=hold_names(info), limit=MOST)]


def read_holds(upkeep: Upkeep, names: Sequence[str]) -> ArchivedHold:
    """Read what is held now of a table (the first name) and of what left with its rows."""
    store = upkeep.store
    tables = {name: find(store, [name])[0] for name in names}
    keys: set[str] = set()
    known: set[int] = set()
    for name, info in tables.items():
        with store.snapshot() as transaction:
            holds = holds_of(transaction, [info])
        known |= {hold.id for hold in holds if hold.id is not None}
        named = [hold.key for hold in holds if hold.key is not None]
        if len(named) < len(holds):
            return ArchivedHold(f"{name} is held", known=frozenset(known))
        if len(holds) >= MOST:
            return ArchivedHold(f"more than {MOST:,} rows of {name} are held", known=frozenset(known))
        if named and not known_by_key(store, upkeep.contract, info, name):
            why = f"rows of {name} are held by a key that the archive writes otherwise"
            return ArchivedHold(f"{why}, so all of them are", known=frozenset(known))
        keys |= set(named) if name == names[0] else _parents(upkeep, name, named)
    return ArchivedHold(keys=frozenset(keys), known=frozenset(known))


def _parents(upkeep: Upkeep, name: str, keys: Sequence[str]) -> set[str]:
    """Find the keys of the rows that some held rows left with."""
    cold = upkeep.cold(name)
    if not keys or cold.open() is None:
        return set()
    spark = upkeep.context.executor.spark()
    held = spark.createDataFrame([(key,) for key in keys], f"{KEY} string")
    found = frame(spark, cold).where(f"{PARENT} IS NOT NULL").join(held, KEY)
    return {row[0] for row in found.select(PARENT).distinct().collect()}


@dataclass(frozen=True, slots=True)
class LocatedCopy:
    """A row in a file of the archive."""

    file: str
    month: str
    sweep: int | None


def _copies(
    cold: ColdTable, handle: DeltaTable, names: ColumnNames, columns: Mapping[str, object], ends: float = math.inf
) -> Iterator[tuple[ColdFile, Any]]:
    """Yield the archived rows with a key, and their files: the key columns of every file that can hold it are read."""
    key = {names.archived(column): value for column, value in columns.items()}
    shape = [one for one in shape_of(handle) if one[0] in (KEY, SWEEP, *key)]
    kinds = dict(shape)
    unknown = [column for column in key if column not in kinds]
    if unknown:
        raise WrongArgument(
            f"archived rows of {cold.name} have no column {unknown[0]!r}",
            "a key that was renamed finds no archived row, unless `renamed` has it: hold the table, without a key",
        )
    condition = key_condition([key], kinds)
    for file in without_others(all_files(cold.folder, handle, condition), condition):
        if time.monotonic() > ends:
            raise TimedOut(
                f"the archive of {cold.name} could not be searched in the time allowed",
                "hold the whole table, without a key, or compact its files first (`wane archive compact`)",
            )
        for group in groups(file.path, shape):
            same = pa.array([True] * len(group))
            for column, value in key.items():
                texts = content.texts(group[column].combine_chunks(), kinds[column])
                same = pc.and_(same, pc.equal(texts, str(value)))
            found = group.filter(same)
            if len(found):
                yield file.logged, found


class ArchivedRows:
    """Rows that are in the archive, for callers that hold one."""

    def __init__(self, store: Store, contract: Contract, tables: Callable[[], Iterable[ColdTable]]) -> None:
        """Set up the search. `tables` finds the archive's tables; it is not called before a row is searched there."""
        self._store = store
        self._contract = contract
        self._tables = tables
        self._found: dict[str, str] = {}

    @cached_property
    def _cold(self) -> dict[str, ColdTable]:
        return {cold.name: cold for cold in self._tables()}

    def find(self, table: TableInfo, key: Mapping[str, object]) -> str | None:
        """Find an archived row by its key columns and return its key as the archive writes it; None if there is none.

        The key columns of every file that can hold it are read until it is found. Raise WrongArgument if the archive
        writes keys differently.
        """
        name, cold = self._table(table)
        handle = None if cold is None else cold.open()
        if cold is None or handle is None:
            return None
        if not known_by_key(self._store, self._contract, table, name):
            raise WrongArgument(
                f"the archive encodes the keys of {name} differently from holds",
                "hold the whole table: leave out the key",
            )
        for file, found in _copies(cold, handle, ColumnNames.of(self._contract, name), key):
            text = str(found[KEY][0].as_py())
            self._found[text] = file.path
            return text
        return None

    def locate(self, table: TableInfo, key: Mapping[str, object], seconds: float) -> LocatedCopy | None:
        """Find the file that has an archived row; None if no file has it. Raise TimedOut if that takes longer."""
        name, cold = self._table(table)
        handle = None if cold is None else cold.open()
        if cold is None or handle is None:
            return None
        ends = time.monotonic() + seconds
        for file, found in _copies(cold, handle, ColumnNames.of(self._contract, name), key, ends):
            return LocatedCopy(str(cold.folder / unquote(file.path)), file.month, found[SWEEP][0].as_py())
        return None

    def has(self, transaction: Transaction, table: TableInfo, text: str) -> bool:
        """Check whether the file of a found row is still part of the archive.

        Raise ArchiveBusy if an unfinished expiry or compaction has committed in part: finishing it may remove more.
        """
        _, cold = self._table(table)
        handle = None if cold is None else cold.open()
        for job in Jobs(transaction).open():
            first = None if job.plan is None else self._cold.get(job.plan["changes"][0]["table"])
            if first is not None and committed(first, job.table, job.id):
                raise ArchiveBusy(
                    f"a process died while it changed the archive of {job.table}", "`wane archive expire` finishes it"
                )
        return handle is not None and self._found.get(text) in {file.path for file in listing(handle)}

    def _table(self, table: TableInfo) -> tuple[str, ColdTable | None]:
        schema = self._store.reflect()
        for name, cold in self._cold.items():
            parsed = TableName.parse(name)
            info = schema.find(parsed.schema, parsed.name)
            if info is not None and info.qualified == table.qualified:
                return name, cold
        return table.name, None
