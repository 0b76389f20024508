"""Holds on archived rows: by table nothing of it goes, by key the row and what left with it stay.

A hold names a row by its primary key. Where the archive writes keys otherwise, a hold by key is as good as one on the whole table: too much
stays rather than too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from wane.archive import content
from wane.archive.equal import groups, shape_of
from wane.archive.files import committed, listing
from wane.archive.place import ColdTable
from wane.archive.query import frame
from wane.contract.model import Contract
from wane.contract.names import TableName
from wane.errors import ArchiveBusy, ArchiveError, WrongArgument
from wane.store import Store
from wane.store.archive_jobs import Jobs
from wane.store.archive_types import KEY, PARENT
from wane.store.due import hold_names
from wane.store.own import Hold
from wane.store.schema import TableInfo
from wane.store.transaction import Transaction

if TYPE_CHECKING:
    from wane.archive.upkeep import Upkeep

MOST = 200_000
"""More holds by key than these are as good as one on the whole table."""


@dataclass(frozen=True, slots=True)
class Held:
    """What somebody holds of a table and of what left with its rows."""

    everything: str = ""
    """Why nothing goes; "" if something may."""
    keys: frozenset[str] = frozenset()
    """Keys of the table's rows that stay."""
    known: frozenset[int] = frozenset()
    """The holds that this knows of."""


def find(store: Store, names: Sequence[str]) -> list[TableInfo]:
    """The hot tables of some of the archive's, in an order that is the same for everybody."""
    schema = store.reflect()
    found = []
    for name in names:
        parsed = TableName.parse(name)
        info = schema.find(parsed.schema, parsed.name)
        if info is None:
            raise ArchiveError(
                f"the database has no table {name}, so nobody can say what of its archive is held",
                'put the table back, or say `keep = "forever"`',
            )
        found.append(info)
    return sorted(found, key=lambda info: info.qualified)


def known_by_key(store: Store, contract: Contract, info: TableInfo, name: str) -> bool:
    """Whether the archive writes keys as holds do, so that a hold names one archived row."""
    columns = [column for one in info.primary_key if (column := info.column(one)) is not None]
    chosen = next((table.key for table in contract.tables if str(table.name) == name), ())
    if not columns or (chosen and tuple(chosen) != tuple(info.primary_key)):
        return False
    return store.rows.dialect.key_text(columns, "t") == store.archive.key(columns, "t")


def holds_of(transaction: Transaction, tables: Sequence[TableInfo]) -> list[Hold]:
    return [hold for info in tables for hold in transaction.own.holds(tables=hold_names(info), limit=MOST)]


def look(upkeep: Upkeep, names: Sequence[str]) -> Held:
    """What is held now of a table (the first name) and of what left with its rows."""
    store = upkeep.store
    tables = {name: find(store, [name])[0] for name in names}
    keys: set[str] = set()
    known: set[int] = set()
    for name, info in tables.items():
        with store.transaction() as transaction:
            holds = holds_of(transaction, [info])
        known |= {hold.id for hold in holds if hold.id is not None}
        named = [hold.key for hold in holds if hold.key is not None]
        if len(named) < len(holds):
            return Held(f"somebody holds {name}", known=frozenset(known))
        if len(holds) >= MOST:
            return Held(f"more than {MOST:,} rows of {name} are held", known=frozenset(known))
        if named and not known_by_key(store, upkeep.contract, info, name):
            why = f"rows of {name} are held by a key that the archive writes otherwise"
            return Held(f"{why}, so all of them are", known=frozenset(known))
        keys |= set(named) if name == names[0] else _parents(upkeep, name, named)
    return Held(keys=frozenset(keys), known=frozenset(known))


def _parents(upkeep: Upkeep, name: str, keys: Sequence[str]) -> set[str]:
    """The rows that some held rows left with."""
    cold = upkeep.cold(name)
    if not keys or cold.open() is None:
        return set()
    spark = upkeep.spark()
    held = spark.createDataFrame([(key,) for key in keys], f"{KEY} string")
    found = frame(spark, cold).where(f"{PARENT} IS NOT NULL").join(held, KEY)
    return {row[0] for row in found.select(PARENT).distinct().collect()}


class ArchivedRows:
    """Rows that are in the archive, for whoever wants to hold one."""

    def __init__(self, store: Store, contract: Contract, tables: Callable[[], Iterable[ColdTable]]) -> None:
        """`tables` finds the archive's tables; it is not asked before a row is looked for there."""
        self._store = store
        self._contract = contract
        self._tables = tables
        self._found: dict[str, str] = {}

    @cached_property
    def _cold(self) -> dict[str, ColdTable]:
        return {cold.name: cold for cold in self._tables()}

    def find(self, table: TableInfo, key: Mapping[str, object]) -> str | None:
        """Every file's key columns are read, until the row is found."""
        name, cold = self._table(table)
        handle = None if cold is None else cold.open()
        if cold is None or handle is None:
            return None
        if not known_by_key(self._store, self._contract, table, name):
            raise WrongArgument(
                f"the archive writes the keys of {name} otherwise than holds do",
                "hold the whole table: leave out the key",
            )
        shape = [one for one in shape_of(handle) if one[0] in (KEY, *key)]
        kinds = dict(shape)
        for file in listing(handle):
            for group in groups(cold.folder / file.path, shape):
                same = pa.array([True] * len(group))
                for column, value in key.items():
                    same = pc.and_(
                        same, pc.equal(content.texts(group[column].combine_chunks(), kinds[column]), str(value))
                    )
                found = group.filter(same)
                if len(found):
                    text = str(found[KEY][0].as_py())
                    self._found[text] = file.path
                    return text
        return None

    def has(self, transaction: Transaction, table: TableInfo, text: str) -> bool:
        """The file is still a part of the archive, and no expiry is half done that will take more out of it."""
        _, cold = self._table(table)
        handle = None if cold is None else cold.open()
        for job in Jobs(transaction).open():
            first = None if job.plan is None else self._cold.get(job.plan["changes"][0]["table"])
            if first is not None and committed(first, job.table, job.id):
                raise ArchiveBusy(
                    f"somebody died while the archive of {job.table} was changed", "`wane archive expire` finishes it"
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
