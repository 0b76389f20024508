"""Hot rows for Spark jobs of others: what is due under a rule, cut into ranges along (time, key) that tasks read.

Nothing is changed. What a task reads is what the archive would store of these rows, without transformation: the same
statement, types and refusals as those of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from wane._archive.pipeline.extract import PartJob, stored_rows
from wane._archive.pipeline.ranges import bounds, cut, open_bounds
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.sql import ArchiveRows, bind_archive
from wane._archive.rows.types import KEY, MONTH, VERSION, Stored
from wane._archive.spark.reader import Source, open_reader
from wane._contract.lookup import find_rule, find_table
from wane._contract.model import Contract
from wane._db import Store
from wane._prune.binding import Bindings
from wane._rules.rows import rows_of
from wane.errors import WrongArgument

ADDED = (KEY, VERSION, MONTH)
"""What a hot row has besides its columns, as an archived one has."""
_ALL_ROWS = 2**62
_WHOLE = ("short", "integer", "long")
_COMPARED = ("=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class HotFilter:
    """A comparison of a column with values: `=` with one or several, `<` and the like with one, or `null` with none."""

    column: str
    sign: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class HotRange:
    """What one task reads: ranges of one table, in one snapshot."""

    source: Source
    part: PartJob
    bounds: tuple[str, ...]

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches of bounded size, with these columns."""
        with open_reader(self.source) as reader:
            for one in self.bounds:
                for table in stored_rows(reader, self.part, 0, one):
                    yield from table.select(list(names)).to_batches()


class HotRows:
    """What is due under a rule, bound to a database."""

    def __init__(self, store: Store, contract: Contract, table: str, rule: str | None) -> None:
        """Raise if there is no such table or rule, or its rows have no time to be cut by."""
        declared = find_table(contract, table)
        if rule is None and len(declared.rules) != 1:
            names = ", ".join(one.name for one in declared.rules)
            raise WrongArgument(f"{table} has several rules: {names}", 'choose one: `.option("rule", "…")`')
        chosen = declared.rules[0] if rule is None else find_rule(declared, rule)
        selection = Bindings(store, contract).selection(declared, chosen)
        if selection.own_time is None:
            raise WrongArgument(
                f"rows under {selection.label} have no time of their own, along which tasks could read them",
                "choose a rule that ages rows by a column of their table",
            )
        archive = [replace(one, transform=None) for one in contract.archive]
        self.store = store
        self.rows: ArchiveRows = bind_archive(
            rows_of(store), archive_dialect(store), replace(selection, followers=()), archive
        )

    @property
    def shape(self) -> list[tuple[str, str]]:
        """Return the columns of a row and their types: its own, then those that the archive would add."""
        return [*((name, kind) for name, kind in self.rows.parts[0].shape), *((name, "string") for name in ADDED)]

    def cut(
        self,
        source: Source,
        now: datetime,
        filters: Sequence[HotFilter],
        *,
        range_rows: int,
        in_one_task: bool,
    ) -> list[HotRange]:
        """Cut what is due as of `now` into ranges, the last of which has no end.

        Rows of the snapshot that have left since are in one of them too. `in_one_task`: all of them in one snapshot,
        where tasks cannot share one.
        """
        [row] = self.rows.parts
        literal = self.store.literal
        part = PartJob(
            name=row.name,
            folder="",
            shape=row.shape,
            follows=False,
            copy=literal(self.rows.copy(row, now)),
            widest=literal(self.rows.widest(row, now)),
            checks="",
            unstorable=literal(self.rows.unstorable(row, now)),
            assembly=self.rows.assembly(row),
            declares_types=self.rows.dialect.declares_types,
        )
        ranges, _ = cut(self.store, self.rows, now, range_rows=range_rows, sweep_rows=_ALL_ROWS)
        filtered = self._filtered(filters)
        found = [bounds(self.rows, one, self.store, now) for one in ranges]
        found.append(open_bounds(self.rows, ranges[-1]["ceiling"] if ranges else None, self.store, now))
        each = [" AND ".join([one, *filtered]) for one in found]
        tasks = [tuple(each)] if in_one_task else [(one,) for one in each]
        return [HotRange(source, part, one) for one in tasks]

    def _filtered(self, filters: Sequence[HotFilter]) -> list[str]:
        stored = {one.name: one for one in self.rows.parts[0].columns}
        written = (self._condition(number, one, stored) for number, one in enumerate(filters))
        return [one for one in written if one is not None]

    def _condition(self, number: int, one: HotFilter, stored: Mapping[str, Stored]) -> str | None:
        """Write a filter as a condition that no row fails which meets it; None if that is not certain."""
        column = stored.get(one.column)
        if column is None or not all(_comparable(value, column, one.sign) for value in one.values):
            return None
        expression = column.selected(f"t.{self.rows.rows.dialect.quote(column.hot)}")
        if not one.values:
            return f"{expression} IS NULL" if one.sign == "null" else f"{expression} IS NOT NULL"
        p = self.rows.rows.parameters()
        bound = [p.bind(f"filter_{number}_{position}", value) for position, value in enumerate(one.values)]
        compared = f"= {bound[0]}" if len(bound) == 1 and one.sign == "=" else f"IN ({', '.join(bound)})"
        if one.sign in _COMPARED[1:]:
            compared = f"{one.sign} {bound[0]}"
        return self.store.literal(p.statement(f"{expression} {compared}"))


def _comparable(value: object, column: Stored, sign: str) -> bool:
    """Check whether the database compares a value at least as widely as Spark does."""
    if column.kind in _WHOLE:
        return type(value) is int and column.select == "{x}" and -(2**63) <= value < 2**63
    if column.kind == "string":  # Texts are ordered by the collation of a column, and are equal byte by byte.
        return isinstance(value, str) and sign == "=" and "\0" not in value
    if column.kind in ("timestamp", "timestamp_ntz"):
        return isinstance(value, datetime) and (value.tzinfo is not None) == (column.kind == "timestamp")
    return column.kind == "date" and type(value) is date
