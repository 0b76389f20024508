"""The survey: how much there is, since when, how fast it grows, and how much of it will be due, for hot tables and for
the archive.

Hot tables are counted by tasks on Spark, each reading slices of time and nothing else; the driver reads the ends of
each table only. The archive is one aggregation on Spark.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.failure import answering, answers
from wane._archive.inspection import status_of
from wane._archive.model import Surveyed
from wane._archive.query.query import frame
from wane._archive.rows.names import ColumnNames
from wane._archive.rows.types import MONTH, PARENT
from wane._archive.spark import executor
from wane._archive.spark.connect import opened, source_of
from wane._archive.spark.reader import Source
from wane._archive.spark.secret import task_source
from wane._archive.sql_survey import Slice, SurveyRows
from wane._contract.duration import Forever
from wane._contract.model import Age, Cap, Contract, Expiry, Mark, Orphans, Table
from wane._contract.names import TableName
from wane._contract.settings import GrowthSettings
from wane._db import Store
from wane._db.counting import Count, as_count, count, measure_rows, stated, stated_each, sum_counts
from wane._db.schema import TableInfo
from wane._db.sizes import Size, read_sizes
from wane._db.statement import Statement
from wane._db.timestamps import read_time, shown_time
from wane._forecast import Limit, Trend, arriving, days_to_each, find_limit, shifted, window_limit
from wane._rules.excuses import excused_tables
from wane._rules.indexes import observed
from wane._rules.probes import overlapping
from wane._rules.queries import queries_of
from wane._rules.rows import rows_of
from wane._rules.selection import Selection, bind_age, bind_rule
from wane.errors import TimedOut

HORIZONS = (0, 7, 30, 90)
"""The days ahead for which due rows are counted."""
_PROBE_SECONDS = 30.0
_SLICE_SECONDS = 300.0
_MOST_SLICES = 2_000
_SLICES_AT_ONCE = 16
"""The number of slices that one task reads."""
_PARTS = 4
"""The rate comes from this number of equal parts of a period, if they are similar."""
_PERIOD = timedelta(days=28)
"""The longest period before now that the rate of a hot table comes from."""
_MONTH_DAYS = 30.0


@dataclass(frozen=True, slots=True)
class _Query:
    """One number that a task is to count."""

    table: str
    what: str
    """A month, a part of the last weeks ("part 0" is the latest), or a number of days ahead ("due 7")."""
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
        queries = [query for one in hot for query in one.queries()]
        numbers = self._count(queries)
        found = [one.surveyed(numbers[str(one.table.name)]) for one in hot]
        others = [(one.name, one.info) for one in excused_tables(self.contract, schema)]
        others += [(name, schema.find(name.schema, name.name)) for name in self._only_following()]
        for name, info in others:
            if info is not None and (not only or str(name) in only):
                found.append(self._counted(str(name), info))
        return found + [one for cold in colds if not only or cold.name in only for one in self._cold(cold)]

    def _count(self, queries: list[_Query]) -> dict[str, Counter[str]]:
        tasks = [queries[start : start + _SLICES_AT_ONCE] for start in range(0, len(queries), _SLICES_AT_ONCE)]
        numbers: dict[str, Counter[str]] = defaultdict(Counter)
        if not tasks:
            return numbers
        with task_source(source_of(self.store), self.contract.spark) as source:
            for answer in answers(self.executor.run(partial(_answer, source, tasks), len(tasks))):
                for table, what, rows in answer["numbers"]:
                    numbers[table][what] += rows
        return numbers

    def size(self, info: TableInfo) -> Size | None:
        return read_sizes(self.store, [(info, None)], _PROBE_SECONDS).get(info.qualified)

    def _only_following(self) -> list[TableName]:
        """Return tables that lose rows only with those of others: no rule of theirs knows when a row was created."""
        named = {table.name for table in self.contract.tables} | {name for name, _ in self.contract.excused}
        following = dict.fromkeys(follower.reference.table for _, _, follower in self.contract.followers())
        return [name for name in following if name not in named]

    def _counted(self, name: str, info: TableInfo) -> Surveyed:
        count = measure_rows(self.store, info, _PROBE_SECONDS)
        limit = None if count is None else find_limit(self.contract, name, count.rows, None)
        return _surveyed(self.contract.growth, name, "hot", count, self.size(info), limit=limit)

    def _cold(self, cold: ColdTable) -> Iterator[Surveyed]:
        status = status_of(cold)
        if status is None:
            return
        selection = self._selection_of(cold.name)
        names = ColumnNames.of(self.contract, cold.name)
        months, times, rate = _aggregate(frame(self.executor.spark(), cold), selection, names)
        edges = _shown(times, selection)
        keep = next((one.keep for one in self.contract.archive if str(one.table) == cold.name), None)
        limit = None if isinstance(keep, Forever) else window_limit(rate, keep)
        yield _surveyed(
            self.contract.growth,
            cold.name,
            "archive",
            Count(status.rows),
            Size(status.bytes),
            rate=rate,
            limit=limit,
            edges=edges,
            months=months,
        )

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
        schema, contract = self.store.reflect(), surveyor.contract
        bound = (bind_rule(contract, table, rule, schema, self.store.types)[0] for rule in table.rules if rule.active)
        self.selections: list[Selection] = [one for one in bound if one is not None]
        age, _ = bind_age(contract, table, schema, self.store.types)
        self.arrival = self._arrival(None if age is None or not self.selections else observed(self.selections[0], *age))
        self.info = schema.find(table.name.schema, table.name.name)
        self.edges: tuple[datetime | None, datetime | None] = (None, None)
        self.unsliced: dict[int, list[Count | None]] = {days: [] for days in HORIZONS}
        """What is due at each horizon under rules whose rows no slice of time bounds."""

    def _arrival(self, declared: Selection | None) -> Selection | None:
        """Return what dates a row's arrival: the declared age, or the time that a rule ages by; None if only its
        expiry is known."""
        timed = (one for one in self.selections if one.one_time)
        return declared or next((one for one in timed if not isinstance(one.rule.bound, Expiry)), None)

    def _within(self, most: timedelta) -> timedelta:
        """Return the shortest retention window, or `most` if that is shorter."""
        taking = [one.rule.bound for one in self.selections if not isinstance(one.rule.action, Mark)]
        return min([most, *(bound.keep for bound in taking if isinstance(bound, Age | Orphans))])

    def _parts(self) -> list[Slice]:
        """Cut the period that the rate comes from into equal parts, the latest first.

        The period is no longer than the shortest retention window, because older rows may have left; where a cap or an
        expiry bounds the table, no longer than its oldest row is old.
        """
        period = self._within(_PERIOD)
        if self.edges[0] is not None and any(isinstance(one.rule.bound, Cap | Expiry) for one in self.selections):
            period = min(period, max(self.now - self.edges[0], timedelta(0)))
        length = period / _PARTS
        return [Slice(self.now - (part + 1) * length, self.now - part * length) for part in range(_PARTS)]

    def _edges(self, selection: Selection) -> tuple[datetime | None, datetime | None]:
        ends: list[datetime | None] = []
        for newest in (False, True):
            try:
                found = self.store.read(self.surveyor.statements.edge(selection, newest=newest), _PROBE_SECONDS)
            except TimedOut:
                found = []
            ends.append(read_time(found[0][0], selection.time) if found else None)
        return ends[0], ends[1]

    def queries(self) -> Iterator[_Query]:
        """Yield everything that is to be counted, slice by slice."""
        if not self.selections or self.info is None:
            return
        name, statements = str(self.table.name), self.surveyor.statements
        first = self.arrival or next((one for one in self.selections if one.one_time), None)
        rows = measure_rows(self.store, self.info, _PROBE_SECONDS)
        if first is not None:
            self.edges = self._edges(first)
            for slice_ in self._slices(self.edges, rows.rows if rows else 0):
                yield _Query(name, slice_.month, statements.count(first, slice_))
        if self.arrival is not None:
            for part, slice_ in enumerate(self._parts()):
                yield _Query(name, f"part {part}", statements.count(self.arrival, slice_))
        # A row that several rules take counts under the first of them; those that no slice bounds come last.
        ordered = sorted(self.selections, key=_unsliced)
        for number, selection in enumerate(ordered):
            others = [one for one in ordered[:number] if overlapping([one, selection])]
            if _unsliced(selection):
                self._count_whole(selection, others)
                continue
            same = first is not None and selection.time == first.time
            edges = self.edges if same else self._edges(selection)
            for slice_ in self._slices(edges, rows.rows if rows else 0):
                for days in HORIZONS:
                    at = self.now + timedelta(days=days)
                    if slice_.start <= at:
                        yield _Query(name, f"due {days}", statements.due(selection, slice_, at, others))

    def _count_whole(self, selection: Selection, others: Sequence[Selection]) -> None:
        for days in HORIZONS:
            at = self.now + timedelta(days=days)
            exact = self.surveyor.statements.due(selection, None, at, others)
            planned = queries_of(self.store).estimate_due([selection], at)
            self.unsliced[days].append(count(self.store, exact, _PROBE_SECONDS, planned=planned))

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

    def surveyed(self, numbers: Counter[str]) -> Surveyed:
        months = {what: rows for what, rows in sorted(numbers.items()) if what[:1].isdigit()}
        due = {days: sum_counts([Count(numbers[f"due {days}"]), *self.unsliced[days]]) for days in HORIZONS}
        counted = measure_rows(self.store, self.info, _PROBE_SECONDS) if self.info is not None else None
        size = self.surveyor.size(self.info) if self.info is not None else None
        rate = limit = None
        if self.arrival is not None:
            lengths = [(part.end - part.start) / timedelta(days=1) for part in self._parts()]
            rate = arriving([(days, numbers[f"part {part}"]) for part, days in enumerate(lengths)])
        if counted is not None:
            limit = find_limit(self.surveyor.contract, str(self.table.name), counted.rows, rate)
        return _surveyed(
            self.surveyor.contract.growth,
            str(self.table.name),
            "hot",
            counted,
            size,
            rate=rate,
            leaving=self._leaving_a_day(due),
            limit=limit,
            due=due,
            edges=_shown(self.edges, self.arrival or next(iter(self.selections), None)),
            months=months,
        )

    def _leaving_a_day(self, due: Mapping[int, Count]) -> float:
        """Compute what leaves in a day from what becomes due within a week, or within the window if that is shorter."""
        week = HORIZONS[1]
        days = self._within(timedelta(days=week)) / timedelta(days=1)
        return max(due[week].rows - due[0].rows, 0) / days if days else 0.0


def _unsliced(selection: Selection) -> bool:
    """Return whether no slice of time bounds what is due: under a cap, or where several columns may hold the time."""
    return isinstance(selection.rule.bound, Cap) or not selection.one_time


def _surveyed(
    settings: GrowthSettings,
    name: str,
    tier: str,
    count: Count | None,
    size: Size | None,
    *,
    rate: Trend | None = None,
    leaving: float = 0.0,
    limit: Limit | None = None,
    due: Mapping[int, Count] | None = None,
    edges: tuple[date | None, date | None] = (None, None),
    months: dict[str, int] | None = None,
) -> Surveyed:
    rows, net = None if count is None else count.rows, None if rate is None else shifted(rate, -leaving)
    days = days_to_each(settings, rows, net, limit)
    return Surveyed(
        table=name,
        tier=tier,
        **stated("rows", count),
        **stated("bytes", None if size is None else as_count(size.bytes, exact=size.exact)),
        oldest=edges[0],
        newest=edges[1],
        rows_per_day=None if rate is None else round(rate.rate, 1),
        tends_to=None if limit is None else limit.rows,
        days_to={one.threshold: one.word if one.days is None else round(one.days, 1) for one in days},
        **stated_each("due", due or {}),
        months=months or {},
    )


def _shown(
    edges: tuple[datetime | None, datetime | None], selection: Selection | None
) -> tuple[date | None, date | None]:
    """Return the oldest and the newest time as they are shown: days, if the column has days."""
    oldest, newest = edges if selection is None else (shown_time(edge, selection.declared_time) for edge in edges)
    return oldest, newest


def _months(oldest: datetime, newest: datetime) -> Iterator[Slice]:
    start = oldest.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(_MOST_SLICES):
        end = (start + timedelta(days=32)).replace(day=1)
        yield Slice(start, end)
        if end > newest:
            return
        start = end


def _answer(source: Source, tasks: list[list[_Query]], number: int) -> str:
    """Run one task: read its slices, one after the other; return the counts as JSON."""

    def counted() -> dict[str, Any]:
        with opened(source, read_only=True) as store:
            return {
                "numbers": [
                    (query.table, query.what, store.read(query.statement, _SLICE_SECONDS)[0][0])
                    for query in tasks[number]
                ]
            }

    return answering(counted)


def _aggregate(
    rows: Any, selection: Selection | None, names: ColumnNames
) -> tuple[dict[str, int], tuple[datetime | None, datetime | None], Trend | None]:
    """Count rows by month; return also the oldest and newest time, and the rate of the last complete months."""
    from pyspark.sql import functions as f

    name = "" if selection is None or not selection.one_time else names.archived(selection.time_column.name)
    if selection is None or name not in rows.columns:
        # What only left with other rows has no time of its own: its months are those of the rows.
        months = {one[MONTH]: one["count"] for one in rows.groupBy(MONTH).count().collect()}
        return dict(sorted(months.items())), (None, None), None
    own = rows.where(f.col(PARENT).isNull()) if PARENT in rows.columns else rows
    column = f.col(f"`{name.replace('`', '``')}`")
    found = (
        own.groupBy(MONTH).agg(f.count("*").alias("n"), f.min(column).alias("a"), f.max(column).alias("z")).collect()
    )
    months = {one[MONTH]: one["n"] for one in sorted(found, key=lambda one: str(one[MONTH]))}
    ends = [read_time(_zoned(one[end]), selection.time) for one in found for end in ("a", "z")]
    times = [time for time in ends if time is not None]
    # The first and the last month may be incomplete; the archive never has rows of the last days.
    whole = list(months.values())[-_PARTS - 1 : -1]
    rate = arriving([(_MONTH_DAYS, number) for number in whole]) if len(whole) == _PARTS else None
    return months, (min(times, default=None), max(times, default=None)), rate


def _zoned(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
