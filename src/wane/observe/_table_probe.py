"""The probes of one table: what to read, in three steps, and the facts that their values make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from wane._contract.model import Cap, Time
from wane._db.counting import Count, Exactness, count_union, sum_counts
from wane._db.schema import Column
from wane._db.sizes import size_probe
from wane._db.statement import NOW, Parameters
from wane._db.timestamps import read_time, read_time_number
from wane._rules.probes import UNREAD, Aggregate, Probe, ProbedTable, Probes, gather
from wane._rules.queries import queries_of
from wane._rules.rows import rows_of
from wane._rules.selection import Selection
from wane.errors import StoreError, Unreachable
from wane.observe._facts import RuleFacts, TableFacts
from wane.observe._reading import PROBE_SECONDS, Reading, attempt
from wane.observe._row_counts import RowCounts

_HOT_READS = 5


class TableProbe:
    """The probes of one table, and their results."""

    def __init__(self, reading: Reading, table: ProbedTable, row_counts: RowCounts) -> None:
        self.reading = reading
        self._row_counts = row_counts
        self.store = reading.store
        self.table = table
        self.key = table.info.qualified
        self.found: dict[str, Any] = {}
        self._counts: dict[str, Count | None] = {}
        self._hot: float | None = None
        self._finished: Count | None = None
        self._few: tuple[str, ...] = ()
        """What one pass reads if the table is small."""
        self._held = tuple(map(reading.probes.may_be_held, table.selections))
        """Of each rule, whether its rows have to be checked for holds."""

    # Probes

    def first(self, *, for_health: bool) -> Mapping[str, Probe]:
        """Return the probes of pressure. One of them is one pass over a small table for all that such a pass can read,
        including, for health, what `second` would read."""
        prepared = self.reading.bound.prepared
        few, probes = prepared.group((self.key, self._held, for_health), partial(self._first, for_health))
        self._few = few
        return probes

    def _first(self, for_health: bool) -> tuple[tuple[str, ...], Mapping[str, Probe]]:
        table = self.table
        few = self._in_one_pass(for_health) if table.without_children and self.store.dialect.reads_few else {}
        probes = {name: one for name, one in self._edges_and_counts().items() if name not in few}
        if few:
            write = partial(self.reading.probes.few, table=table.info, aggregates=tuple(few.values()))
            probes["few"] = self._probe("few", write, tuple(few))
        return tuple(few), probes

    def _in_one_pass(self, for_health: bool) -> dict[str, Aggregate]:
        """Return what one pass over a small table can read."""
        table, probes = self.table, self.reading.probes
        few: dict[str, Aggregate] = {"rows": probes.few_rows}
        if (edge := table.time_range) is not None and self._has_number(edge.column, edge.time):
            for name in ("oldest", "newest"):
                few[name] = partial(probes.few_edge, time_range=edge, newest=name == "newest")
        for n in table.by_row:
            selection = table.selections[n]
            if self._held[n]:
                continue
            few[f"due {n}"] = partial(probes.few_due, selection=selection, now=NOW)
            if not for_health:
                continue
            if selection.one_time and self._has_number(selection.time_column, selection.time):
                few[f"oldest due {n}"] = partial(probes.few_oldest_due, selection=selection, now=NOW)
            if (every := table.every) is not None and self._becomes_due(selection):
                few[f"soon {n}"] = partial(probes.few_soon, selection=selection, now=NOW, within=every)
        return few

    def _has_number(self, column: Column, time: Time) -> bool:
        return self.store.dialect.time_number("", column, time) is not None

    def beyond_few(self) -> dict[str, Probe]:
        """Return the probes of what that pass did not read: the table is not small, or a time is not plausible."""
        if (values := self._known("few")) is not None:
            self.found |= {name: self._from_number(name, value) for name, value in zip(self._few, values, strict=True)}
            if self._lacks_index():
                self.found |= {"oldest": None, "newest": None}  # As the probes of a table without an index find.
        missing = [name for name in self._few if name not in self.found or self.found[name] is UNREAD]
        return {name: one for name, one in self._edges_and_counts().items() if name in missing} if missing else {}

    def _from_number(self, name: str, value: int | None) -> object:
        """Return the value that the probe of this name would have found; UNREAD if only that can find it."""
        if name in ("oldest", "newest"):
            assert self.table.time_range is not None
            if value == 0:
                return None
            return UNREAD if value is None else read_time_number(value, self.table.time_range.time)
        if name.startswith("oldest due "):
            return read_time_number(value, self.table.selections[int(name.removeprefix("oldest due "))].time)
        if name.startswith("soon ") and value is not None:
            return min(value, self.reading.most + 1)  # As the probe counts them.
        return value

    def _edges_and_counts(self) -> dict[str, Probe]:
        table, probes, most = self.table, self.reading.probes, self.reading.most
        wanted = {}
        if table.time_range is not None:
            for name in ("oldest", "newest"):
                edge = partial(probes.edge, time_range=table.time_range, most=most, newest=name == "newest")
                wanted[name] = self._probe(name, edge)
        return wanted | self._counting(scoped=False)

    def scoped(self) -> dict[str, Probe]:
        return self._counting(scoped=True)

    def _counting(self, *, scoped: bool) -> dict[str, Probe]:
        table, most = self.table, self.reading.most
        if scoped and not table.scoped:
            return {}
        wanted = {f"due {n}": self._due([one]) for n, one in enumerate(table.selections) if bool(one.per) == scoped}
        if table.overlapping and table.scoped == scoped:
            wanted["due"] = self._due(table.selections)
        if not scoped:
            wanted["rows"] = self._probe("rows", partial(self.reading.probes.count, table=table.info, most=most))
        return wanted

    def second(self) -> dict[str, Probe]:
        wanted = {}
        if (size := size_probe(self.store, self.table.info)) is not None:
            wanted["bytes"] = self._probe("bytes", size)
        every, probes = self.table.every, self.reading.probes
        for n, selection in enumerate(self.table.selections):
            due = self._rule_due(n)
            # Most rules have nothing due: then there is no oldest row to read.
            may_have = (due is None or due.rows) and not selection.per and selection.own_time is not None
            if may_have and f"oldest due {n}" not in self.found:
                oldest = partial(probes.oldest_due, selection=selection, now=NOW)
                wanted[f"oldest due {n}"] = self._rule_probe("oldest due", [selection], oldest)
            if every is not None and self._becomes_due(selection) and f"soon {n}" not in self.found:
                soon = partial(probes.soon_due, selection=selection, now=NOW, within=every, most=self.reading.most)
                wanted[f"soon {n}"] = self._rule_probe("soon", [selection], soon)
        return wanted

    @staticmethod
    def _becomes_due(selection: Selection) -> bool:
        """Return whether a rule's rows become due by a time of their own."""
        return not isinstance(selection.rule.bound, Cap) and selection.one_time and selection.longer is None

    def time_hot_read(self) -> None:
        """Time a read through the index that the rules need: of the oldest row, or, without an index, of a due one."""
        rows, hot = rows_of(self.store), self.table.hot
        if hot is None or hot.small:
            first = self.table.selections[0]
            # Of a cap per scope, as its batches read: one scope at a time.
            one = first.in_scope((None,) * len(first.per)) if first.per else first
            statement = queries_of(self.store).keys_due(one, self.reading.now, 1)
        else:
            text, p = gather(rows, [partial(Probes(rows).edge, time_range=hot, most=self.reading.most, newest=False)])
            statement = p.statement(text)
        try:
            self._hot = self.store.planner.time_read(statement, _HOT_READS, PROBE_SECONDS)
        except Unreachable:
            raise
        except StoreError:
            self._hot = PROBE_SECONDS

    def estimate_finished(self) -> None:
        """Estimate the rows in states that are not live, by the planner, where there may be enough for partitions."""
        contract, rows, table = self.reading.contract, self.rows, self.table
        if rows is None or rows.rows < contract.growth.near * contract.health.partition_finished_rows:
            return
        if table.finished and table.selections:
            p = Parameters(self.store.dialect)
            text = Probes(rows_of(self.store)).count_states(p, table.selections[0], table.finished)
            estimate = attempt(lambda: self.store.planner.estimate(p.statement(text)))
            self._finished = None if estimate is None else Count(estimate, Exactness.ESTIMATE)

    def _probe(self, kind: str, write: Probe, about: object = None) -> Probe:
        """Return a prepared probe, written once."""
        return self.reading.bound.prepared.probe((kind, self.key, about), write)

    def _due(self, selections: Sequence[Selection]) -> Probe:
        write = partial(self.reading.probes.count_due, selections=selections, now=NOW, most=self.reading.most)
        return self._rule_probe("due", selections, write)

    def _rule_probe(self, kind: str, selections: Sequence[Selection], write: Probe) -> Probe:
        """Return a prepared probe of rules; rules whose rows may be held have a probe of their own."""
        held = tuple(self.reading.probes.may_be_held(one) for one in selections)
        about = tuple((one.table.qualified, one.rule.name) for one in selections)
        return self.reading.bound.prepared.probe((kind, about, held), write)

    # Results

    def facts(self) -> TableFacts:
        rules = tuple(
            RuleFacts(
                selection,
                self._rule_due(n),
                None if selection.own_time is None else read_time(self._known(f"oldest due {n}"), selection.time),
                self._known(f"soon {n}"),
            )
            for n, selection in enumerate(self.table.selections)
        )
        size = self._known("bytes")
        return TableFacts(
            self.table,
            self.rows,
            self._time("oldest"),
            self._time("newest"),
            self._all_due([one.due for one in rules]) if rules else None,
            rules,
            None if size is None else int(size),
            self._hot,
            self._finished,
            self._lacks_index(),
        )

    def _lacks_index(self) -> bool:
        time_range, rows = self.table.time_range, self.rows
        if time_range is None or not time_range.small or any(one.per for one in self.table.selections):
            return False  # The index of a cap is in time order within each scope alone.
        return rows is not None and rows.rows > self.reading.most

    @property
    def was_read(self) -> bool:
        """Return whether any of its probes was read."""
        return any(value is not UNREAD for value in self.found.values())

    @property
    def rows(self) -> Count | None:
        counts = self._counts
        return counts["rows"] if "rows" in counts else self._count("rows", lambda: self._row_counts.of(self.table))

    def _known(self, name: str) -> Any:
        value = self.found.get(name, UNREAD)
        return None if value is UNREAD else value

    def _time(self, name: str) -> datetime | None:
        time_range = self.table.time_range
        return None if time_range is None else read_time(self._known(name), time_range.time)

    def _rule_due(self, number: int) -> Count | None:
        selection = self.table.selections[number]
        return self._count(f"due {number}", lambda: self._row_counts.due(self.table, [selection]))

    def _count(self, name: str, beyond: Callable[[], Count]) -> Count | None:
        """Return a count: what the probe counted, or, beyond its limit, what is known otherwise."""
        if name not in self._counts:
            value = self._known(name)
            counted = value is None or value <= self.reading.most
            self._counts[name] = beyond() if not counted else None if value is None else Count(value)
        return self._counts[name]

    def _all_due(self, each: Sequence[Count | None]) -> Count | None:
        """Count what is due under any of the rules, each row once; None if a count is missing."""
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        if not self.table.overlapping:
            return sum_counts(known)
        return count_union(self._count("due", lambda: self._row_counts.due(self.table, self.table.selections)), known)
