"""The survey: how much there is, since when, how fast it grows, and how much of it will be due, for hot tables and for
the archive.

Hot tables are counted by tasks on Spark, each reading slices of time and nothing else; the driver reads the ends of
each table only. The archive is one aggregation on Spark.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from wane.archive import executor
from wane.archive.cold_table import ColdTable
from wane.archive.connect import opened
from wane.archive.dialects import source_of
from wane.archive.failure import answering, answers
from wane.archive.forecast import WEEKS, Flow, days_to, flow
from wane.archive.inspection import status_of
from wane.archive.model import Surveyed
from wane.archive.query import frame
from wane.archive.reader import Source
from wane.archive.secret import task_source
from wane.archive.sql_survey import Slice, SurveyRows
from wane.archive.types import MONTH, PARENT
from wane.contract.model import Cap, Contract, ExcuseKind, Rule, Table
from wane.contract.names import TableName
from wane.db import Store
from wane.db.counting import measure_rows
from wane.db.schema import TableInfo
from wane.db.space import read_sizes
from wane.db.statement import Statement
from wane.db.timestamps import read_time
from wane.errors import TimedOut
from wane.rules.reads import read_due
from wane.rules.rows import rows_of
from wane.rules.selection import Selection, bind_rule

HORIZONS = (0, 7, 30, 90)
"""The days ahead for which due rows are counted."""
THRESHOLDS = (1_000_000, 5_000_000)
_LOOK_SECONDS = 30.0
_SLICE_SECONDS = 300.0
_MOST_SLICES = 2_000
_SLICES_AT_ONCE = 16
"""The number of slices that one task reads."""
_CONSTANT = (ExcuseKind.SINGLETON, ExcuseKind.CONSTANT, ExcuseKind.IN_PLACE)


@dataclass(frozen=True, slots=True)
class _Ask:
    """One number that a task is to count."""

    table: str
    what: str
    """A month, a week ("week 0" is the last one), or a number of days ahead ("due 7")."""
    statement: Statement


class Surveyor:
    """Surveys the tables of one contract."""

    def __init__(self, store: Store, contract: Contract, *, starting: Callable[[str], None] = lambda _: None) -> None:
        self.store = store
        self.contract = contract
        self.executor = executor.default(contract.spark, starting)
        self.statements = SurveyRows(rows_of(store))

    def survey(self, colds: Sequence[ColdTable], only: Sequence[str] = ()) -> list[Surveyed]:
        """Survey every table of the contract, then every table of the archive; or those that are named."""
        now, schema = self.store.now(), self.store.reflect()
        hot = [_Hot(self, table, now) for table in self.contract.tables if not only or str(table.name) in only]
        asks = [ask for one in hot for ask in one.asks()]
        numbers = self._count(asks)
        found = [one.told(numbers[str(one.table.name)]) for one in hot]
        for name, excuse in self.contract.excused:
            info = schema.find(name.schema, name.name)
            if info is not None and (not only or str(name) in only):
                found.append(self._counted(str(name), info, constant=excuse.kind in _CONSTANT))
        for name in self._only_following():
            info = schema.find(name.schema, name.name)
            if info is not None and (not only or str(name) in only):
                found.append(self._counted(str(name), info))
        return found + [one for cold in colds if not only or cold.name in only for one in self._cold(cold)]

    def _count(self, asks: list[_Ask]) -> dict[str, Counter[str]]:
        tasks = [asks[start : start + _SLICES_AT_ONCE] for start in range(0, len(asks), _SLICES_AT_ONCE)]
        numbers: dict[str, Counter[str]] = defaultdict(Counter)
        if not tasks:
            return numbers
        with task_source(source_of(self.store), self.contract.spark) as source:
            for answer in answers(self.executor.run(partial(_answer, source, tasks), len(tasks))):
                for table, what, rows in answer["numbers"]:
                    numbers[table][what] += rows
        return numbers

    def size(self, info: TableInfo) -> int | None:
        size = read_sizes(self.store, [(info, None)], _LOOK_SECONDS).get(info.qualified)
        return None if size is None else size.bytes

    def _only_following(self) -> list[TableName]:
        """Return tables that lose rows only with those of others: no rule of theirs says when a row was created."""
        named = {table.name for table in self.contract.tables} | {name for name, _ in self.contract.excused}
        following = dict.fromkeys(follower.reference.table for _, _, follower in self.contract.followers())
        return [name for name in following if name not in named]

    def _counted(self, name: str, info: TableInfo, *, constant: bool = False) -> Surveyed:
        count = measure_rows(self.store, info, _LOOK_SECONDS)
        rows = None if count is None else count.rows
        return _surveyed(name, "hot", rows, self.size(info), Flow(None, constant=constant), {}, (None, None), {})

    def _cold(self, cold: ColdTable) -> Iterator[Surveyed]:
        status = status_of(cold)
        if status is None:
            return
        selection = self._selection_of(cold.name)
        months, edges, weeks = _aggregate(frame(self.executor.spark(), cold), selection)
        moving = flow(weeks, 0, 0, 1) if weeks else Flow(None)
        yield _surveyed(cold.name, "archive", status.rows, status.bytes, moving, {}, edges, months)

    def _selection_of(self, name: str) -> Selection | None:
        schema = self.store.reflect()
        for table in self.contract.tables:
            if str(table.name) == name:
                for rule in table.rules:
                    if rule.active:
                        return bind_rule(self.contract, table, rule, schema, self.store.types)[0]
        return None


class _Hot:
    """A table with rules."""

    def __init__(self, surveyor: Surveyor, table: Table, now: datetime) -> None:
        self.surveyor = surveyor
        self.store = surveyor.store
        self.table = table
        self.now = now
        schema = self.store.reflect()
        self.rules: list[tuple[Rule, Selection]] = []
        for rule in table.rules:
            if rule.active:
                selection, _ = bind_rule(surveyor.contract, table, rule, schema, self.store.types)
                if selection is not None:
                    self.rules.append((rule, selection))
        self.info = schema.find(table.name.schema, table.name.name)
        self.edges: tuple[datetime | None, datetime | None] = (None, None)
        self.caps: Counter[int] = Counter()

    def _edges(self, selection: Selection) -> tuple[datetime | None, datetime | None]:
        ends: list[datetime | None] = []
        for newest in (False, True):
            try:
                found = self.store.read(self.surveyor.statements.edge(selection, newest=newest), _LOOK_SECONDS)
            except TimedOut:
                found = []
            ends.append(read_time(found[0][0], selection.time) if found else None)
        return ends[0], ends[1]

    def asks(self) -> Iterator[_Ask]:
        """Yield everything that is to be counted, slice by slice."""
        if not self.rules or self.info is None:
            return
        name, statements = str(self.table.name), self.surveyor.statements
        first = self.rules[0][1]
        self.edges = self._edges(first)
        rows = measure_rows(self.store, self.info, _LOOK_SECONDS)
        for slice_ in self._slices(self.edges, rows.rows if rows else 0):
            yield _Ask(name, slice_.month, statements.count(first, slice_))
        for week in range(WEEKS):
            end = self.now - timedelta(days=7 * week)
            yield _Ask(name, f"week {week}", statements.count(first, Slice(end - timedelta(days=7), end)))
        for rule, selection in self.rules:
            if isinstance(rule.bound, Cap):
                due = read_due(self.store, selection, self.now, _LOOK_SECONDS).count
                self.caps.update(dict.fromkeys(HORIZONS, due.rows if due else 0))
                continue
            edges = self.edges if selection.time == first.time else self._edges(selection)
            for slice_ in self._slices(edges, rows.rows if rows else 0):
                for days in HORIZONS:
                    at = self.now + timedelta(days=days)
                    if slice_.start <= at:
                        yield _Ask(name, f"due {days}", statements.due(selection, slice_, at))

    def _slices(self, edges: tuple[datetime | None, datetime | None], rows: int) -> list[Slice]:
        """Cut the time from the oldest to the newest row into months, or parts of months where there are many rows."""
        oldest, newest = edges
        if oldest is None or newest is None:
            return []
        months = list(_months(oldest, newest))
        wanted = math.ceil(rows / self.surveyor.contract.spark.range_rows)
        parts = max(1, min(math.ceil(wanted / len(months)), _MOST_SLICES // len(months)))
        return [
            Slice(month.start + step * part, month.end if part + 1 == parts else month.start + step * (part + 1))
            for month in months
            for step in [(month.end - month.start) / parts]
            for part in range(parts)
        ]

    def told(self, numbers: Counter[str]) -> Surveyed:
        months = {what: rows for what, rows in sorted(numbers.items()) if what[:1].isdigit()}
        due = {days: numbers[f"due {days}"] + self.caps[days] for days in HORIZONS}
        weeks = [numbers[f"week {week}"] for week in range(WEEKS)]
        counted = measure_rows(self.store, self.info, _LOOK_SECONDS) if self.info is not None else None
        rows = None if counted is None else counted.rows
        size = self.surveyor.size(self.info) if self.info is not None else None
        moving = flow(weeks, due[0], due[30], 30) if self.rules else Flow(None)
        return _surveyed(str(self.table.name), "hot", rows, size, moving, due, self.edges, months)


def _surveyed(
    name: str,
    tier: str,
    rows: int | None,
    size: int | None,
    moving: Flow,
    due: dict[int, int],
    edges: tuple[datetime | None, datetime | None],
    months: dict[str, int],
) -> Surveyed:
    per_day = 0.0 if moving.constant else moving.arriving
    return Surveyed(
        name,
        tier,
        rows,
        size,
        *edges,
        None if per_day is None else round(per_day, 1),
        {threshold: days_to(threshold, rows, moving) for threshold in THRESHOLDS},
        due,
        months,
    )


def _months(oldest: datetime, newest: datetime) -> Iterator[Slice]:
    start = oldest.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(_MOST_SLICES):
        end = (start + timedelta(days=32)).replace(day=1)
        yield Slice(start, end)
        if end > newest:
            return
        start = end


def _answer(source: Source, tasks: list[list[_Ask]], number: int) -> str:
    """Run one task: read its slices, one after the other; return the counts as JSON."""

    def counted() -> dict[str, Any]:
        with opened(source, read_only=True) as store:
            return {
                "numbers": [
                    (ask.table, ask.what, store.read(ask.statement, _SLICE_SECONDS)[0][0]) for ask in tasks[number]
                ]
            }

    return answering(counted)


def _aggregate(
    rows: Any, selection: Selection | None
) -> tuple[dict[str, int], tuple[datetime | None, datetime | None], list[int]]:
    """Count rows by month; return also the oldest and newest time, and weekly averages of the last complete months."""
    from pyspark.sql import functions as f

    if selection is None or selection.time_column.name not in rows.columns:
        # What only left with other rows has no time of its own: its months are those of the rows.
        months = {one[MONTH]: one["count"] for one in rows.groupBy(MONTH).count().collect()}
        return dict(sorted(months.items())), (None, None), []
    own = rows.where(f.col(PARENT).isNull()) if PARENT in rows.columns else rows
    column = f.col(f"`{selection.time_column.name.replace('`', '``')}`")
    found = (
        own.groupBy(MONTH).agg(f.count("*").alias("n"), f.min(column).alias("a"), f.max(column).alias("z")).collect()
    )
    months = {one[MONTH]: one["n"] for one in sorted(found, key=lambda one: str(one[MONTH]))}
    ends = [read_time(_zoned(one[end]), selection.time) for one in found for end in ("a", "z")]
    moments = [moment for moment in ends if moment is not None]
    return months, (min(moments, default=None), max(moments, default=None)), _weeks(months)


def _weeks(months: dict[str, int]) -> list[int]:
    """Return weekly averages of the four last complete months; none if there are fewer.

    The archive never has rows of the last days.
    """
    whole = list(months.values())[-WEEKS - 1 : -1]
    return [round(rows * 7 / 30) for rows in whole] if len(whole) == WEEKS else []


def _zoned(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
