"""The plan of a conversion: every statement with its lock, everything that would stop working, and whether it is worth
it. Reads only."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from wane._archive.journal import Journal
from wane._contract.model import Contract
from wane._db import Store
from wane._db.counting import Count, measure_rows
from wane._db.schema import Kind
from wane._partition.anatomy import Anatomy
from wane._partition.model import Break, PartitionPlan, PlannedStep
from wane._partition.months import Month
from wane._partition.records import MAX, MIN, Ddl, Leaf, Range
from wane._partition.sql import PostgresPartitions
from wane._partition.sql_ddl import (
    analyze,
    bound_statements,
    index_statements,
    leaf_statements,
    month_name,
    old_name,
    rest_name,
    root_name,
    root_statements,
    swap_statements,
    validate_constraint,
)
from wane._partition.table import PartitionTarget, followers_of, target_of
from wane._rules.partitions import partition_misfit

MARGIN = timedelta(days=2)
"""A conversion that is left half-way must not stop the application when the month turns; this is the time left to
notice."""
_MOST_AHEAD = 24
"""Rows that lie further ahead, in months, are a mistake."""
_LONGEST_NAME = 63 - len("_p_before_2026_12")
_COUNT_SECONDS = 2.0
BY_APPLICATION = "partitioned by the application"
"""The state of a table whose partitions Wane only retires."""


class PartitionPlanner:
    """Plans the conversion of tables of one contract."""

    def __init__(self, store: Store, contract: Contract, steps: PostgresPartitions) -> None:
        self.store = store
        self.contract = contract
        self.steps = steps

    def plan(self, target: PartitionTarget) -> PartitionPlan:
        """Plan the conversion of a table, and of those that are partitioned along with it."""
        followers = followers_of(self.contract, target.settings)
        along = [self._plan(target_of(self.store, self.contract, one), (), parent=target) for one in followers]
        return self._plan(target, tuple(along))

    def _plan(
        self, target: PartitionTarget, along: tuple[PartitionPlan, ...], parent: PartitionTarget | None = None
    ) -> PartitionPlan:
        rows = measure_rows(self.store, target.info, _COUNT_SECONDS)
        if target.settings.by_application:
            return self._made_by_application(target, along, rows)
        state = self._state(target)
        threshold, recommended, why = self._recommended(target, rows)
        standing: list[str] = []
        if state != "plain":
            recommended, why = False, _way(state, str((parent or target).name))
        if target.info.kind is Kind.PARTITIONED:
            standing = [leaf.name for leaf in self.steps.leaves(target.info.schema, target.info.name)]
        anatomy, refused, functions = self.steps.read(target.info.schema, target.info.name, target.settings.time.column)
        if anatomy is not None and parent is not None:
            # Foreign keys to the table that it follows are gone by then, or refer to its time too.
            above = self.store.dialect.table(parent.info).replace('"', "")
            others = [
                key for key in anatomy.outbound if key.table != above or parent.settings.time.column in key.definition
            ]
            anatomy = replace(anatomy, outbound=others)
        until: Month | None = None
        if state == "plain" and anatomy is not None:
            refused = [*refused, *self._refused(target)]
            until, more = self.boundary(target, self.store.now())
            refused += more
        planned = anatomy is not None and until is not None
        return PartitionPlan(
            table=str(target.name),
            state=state,
            rows=rows,
            threshold=threshold,
            recommended=recommended,
            why=why,
            until=None if until is None else until.name,
            partitions=tuple(name for name, _ in self.leaves(target, anatomy, until)) if planned else tuple(standing),
            steps=tuple(self._steps(target, anatomy, until)) if planned else (),
            breaks=tuple(_breaks(anatomy, functions)) if anatomy is not None else (),
            notes=tuple(self._notes(target, anatomy, until)) if planned else tuple(self._quarantined(target, state)),
            refused=tuple(refused) if state == "plain" else (),
            along=along,
        )

    def _made_by_application(
        self, target: PartitionTarget, along: tuple[PartitionPlan, ...], rows: Count | None
    ) -> PartitionPlan:
        """Report the partitions that the application made, which can only be retired."""
        misfit = partition_misfit(self.store, target.info, target.settings.time)
        leaves = [] if misfit else self.steps.leaves(target.info.schema, target.info.name)
        return PartitionPlan(
            table=str(target.name),
            state=BY_APPLICATION,
            rows=rows,
            threshold=self.contract.health.partition_rows,
            recommended=False,
            why="the application makes its partitions: Wane makes none, and retires those that are past their time",
            until=None,
            partitions=tuple(leaf.name for leaf in leaves),
            steps=(),
            breaks=(),
            notes=() if misfit else (*self._covers(target, leaves), *self._quarantined(target, BY_APPLICATION)),
            refused=() if misfit is None else (misfit,),
            along=along,
        )

    def _covers(self, target: PartitionTarget, leaves: list[Leaf]) -> list[str]:
        """Report where the partitions of the application end, and what holds the rows beyond them."""
        default = self.steps.default_leaf(target.info.schema, target.info.name)
        notes = [] if default is None else [f"{default} holds the rows of no other partition, and is never retired"]
        if any(leaf.range.upper == MAX for leaf in leaves):
            return notes
        ends = max((end for leaf in leaves if (end := target.calendar.timestamp(leaf.range.upper))), default=None)
        if ends is None:
            return [*notes, "it has no partition that ends at a time"]
        passed = "" if ends > self.store.now() else ", which has passed: the application must create more"
        return [*notes, f"its newest partition ends at {ends:%Y-%m-%d %H:%M} UTC{passed}"]

    def _state(self, target: PartitionTarget) -> str:
        partitioned = "partitioned" if target.info.kind is Kind.PARTITIONED else "plain"
        if not self.store.migrated:
            return partitioned
        with self.steps.journaling() as journal:
            change = journal.change(target.full)
        if change is None or (change.kind == "convert" and change.state == "done"):
            return partitioned
        return f"{change.kind}: {change.state}"

    def _recommended(self, target: PartitionTarget, rows: Count | None) -> tuple[int, bool, str]:
        """Recommend by the size that the contract gives, and for a table with states by its finished rows.

        Return the threshold, the recommendation and its reason. Partitioning is never done automatically.
        """
        threshold = target.settings.rows or self.contract.health.partition_rows
        if rows is not None and rows.rows >= threshold:
            return (
                threshold,
                True,
                f"it has {rows.rows:,} rows; from {threshold:,} on, partitions are worth their while",
            )
        finished = self._finished(target, rows)
        most = self.contract.health.partition_finished_rows
        if finished is not None and finished >= most:
            return (
                threshold,
                True,
                f"it has {finished:,} finished rows; from {most:,} on, partitions are worth their while",
            )
        count = "an unknown number of" if rows is None else f"{rows.rows:,}"
        return threshold, False, f"it has {count} rows; below {threshold:,}, pruning by rows is simpler and does"

    def _finished(self, target: PartitionTarget, rows: Count | None) -> int | None:
        table = target.declared
        if table is None or table.state is None or rows is None:
            return None
        if rows.rows < self.contract.health.partition_finished_rows:
            return None
        column = target.info.column(table.state)
        if column is None:
            return None
        return self.steps.estimate_beside(target.info, column, table.live)

    def _refused(self, target: PartitionTarget) -> list[tuple[str, str]]:
        refused = []
        if len(target.info.name.encode()) > _LONGEST_NAME:
            refused.append((f"the name {target.info.name} is too long for names of partitions", "rename the table"))
        if self.store.migrated:
            with self.store.snapshot() as transaction:
                sweep = Journal(transaction).unfinished(str(target.name))
            if sweep is not None:
                refused.append((f"sweep {sweep.id} of its archive is unfinished", "`wane archive run` finishes it"))
        return refused

    def boundary(self, target: PartitionTarget, now: datetime) -> tuple[Month | None, list[tuple[str, str]]]:
        """Return the first month that gets a partition of its own; None and the reasons if there is none.

        It is the next month that is far enough ahead and beyond which no row lies.
        """
        calendar = target.calendar
        until = calendar.month_of(now).later()
        if calendar.begins(until) - now < MARGIN:
            until = until.later()
        table = self.store.dialect.table(target.info)
        _, last = self.steps.edges(table, target.settings.time.column)
        if last is None:
            return until, []
        latest = calendar.timestamp(last)
        if latest is None or latest > calendar.begins(calendar.month_of(now).later(_MOST_AHEAD)):
            return None, [
                (
                    f"a row is at {last}, further ahead than {_MOST_AHEAD} months",
                    f"correct its {target.settings.time.column}, or its unit in the contract",
                )
            ]
        return max(until, calendar.month_of(latest).later()), []

    def leaves(self, target: PartitionTarget, a: Anatomy | None, until: Month | None) -> list[tuple[str, Range]]:
        """Return the partitions that a conversion creates: the months ahead, and one that catches the rest."""
        assert a is not None
        assert until is not None
        calendar = target.calendar
        end = max(until, calendar.month_of(self.store.now()).later()).later(target.settings.ahead)
        made, month = [], until
        while month < end:
            made.append((month_name(a, month.name), Range(calendar.literal(month), calendar.literal(month.later()))))
            month = month.later()
        return [*made, (rest_name(a), Range(calendar.literal(month), MAX))]

    def _steps(self, target: PartitionTarget, a: Anatomy | None, until: Month | None) -> list[PlannedStep]:
        assert a is not None
        assert until is not None
        upper = target.calendar.literal(until)
        old, root = old_name(a, until.name), root_name(a)
        hidden = "none that blocks"
        leaves = [
            Ddl(text, hidden, f"a partition {range_.sql}")
            for name, range_ in self.leaves(target, a, until)
            for text in leaf_statements(a, root, name, range_)
        ]
        add, validate = bound_statements(a, upper)
        tables = ", ".join(dict.fromkeys([a.table, *(key.table for key in a.inbound)]))
        exclusive = f"ACCESS EXCLUSIVE on {tables}: blocks reads and writes for milliseconds"
        swap = [
            Ddl(text, exclusive, f"all in one transaction; {MIN} is where everything begins")
            for text in swap_statements(a, old, upper)
        ]
        light = f"SHARE UPDATE EXCLUSIVE on {a.table}: blocks neither reads nor writes"
        last = [Ddl(analyze(a.table), light, "the planner must know the new table")]
        last += [
            Ddl(validate_constraint(key.table, key.name), light, "proven again for old rows") for key in a.retained_keys
        ]
        return [
            PlannedStep("indexed", tuple(ddl for _, ddl in index_statements(a))),
            PlannedStep("rooted", (*root_statements(a), *leaves)),
            PlannedStep("bounded", (add,)),
            PlannedStep("validated", (validate,)),
            PlannedStep("swapped", tuple(swap)),
            PlannedStep("done", tuple(last)),
        ]

    def _quarantined(self, target: PartitionTarget, state: str) -> list[str]:
        """Report what was detached and can still be put back."""
        if state == "plain" or not self.store.migrated:
            return []
        with self.steps.journaling() as journal:
            quarantined = journal.retired(target.full, "quarantined")
        return [
            f"{one.partition} is in quarantine until {one.drop_at:%Y-%m-%d %H:%M} UTC: `wane partition retire {target.name} --reattach {one.partition}` puts it back"
            for one in quarantined
            if one.drop_at is not None
        ]

    def _notes(self, target: PartitionTarget, a: Anatomy | None, until: Month | None) -> list[str]:
        assert a is not None
        assert until is not None
        begins = target.calendar.literal(until)
        sequence = (
            []
            if a.identity is None
            else [f"{a.identity.name} goes on where it was: its position is set in the step `swapped`"]
        )
        return [
            *sequence,
            f"between the steps `bounded` and `swapped`, an INSERT with {target.settings.time.column} at or after {begins} fails",
            "a conversion that is interrupted is resumed by `wane partition convert`, or undone by `wane partition undo`",
            "FROM ONLY finds no rows any more; names of partitions are private to Wane",
        ]


def _way(state: str, name: str) -> str:
    """Return the next step for a table that is not a plain one."""
    if state == "partitioned":
        return "it is partitioned"
    if state.startswith("undo"):
        return f"its undo is unfinished: `wane partition undo {name}` goes on"
    how = "--split" if state.startswith("split") else "--accept"
    return f"it is half-way: `wane partition convert {name} {how}` goes on, `wane partition undo {name}` takes it back"


def _breaks(a: Anatomy, functions: list[str]) -> list[Break]:
    breaks = []
    key = ", ".join(a.key)
    if a.extended:
        breaks.append(
            Break(
                "on-conflict",
                f"INSERT INTO {a.name} … ON CONFLICT ({key}), and ON CONFLICT ON CONSTRAINT of the old key: ({key}) is unique in"
                " each partition only",
                f"ON CONFLICT ({key}, {a.time}), or check first",
            )
        )
    for index in a.unpartitioned_indexes:
        if not index.primary:
            columns = ", ".join(column or "…" for column in index.columns)
            breaks.append(
                Break(
                    "unique-per-month",
                    f"{index.name} ({columns}) is unique in each partition only, and ON CONFLICT ({columns}) fails",
                    f"add {a.time} to it, or let the application enforce it",
                )
            )
    breaks += [
        Break(
            "foreign-key",
            f"{foreign.table} loses its foreign key {foreign.name}: {foreign.definition}",
            f"refer to ({key}, {a.time}), or let the application enforce it; undo brings it back",
        )
        for foreign in a.broken_keys
    ]
    if a.extended:
        breaks += [
            Break("function", f"the function {name} contains {a.name} and ON CONFLICT", "check that it still works")
            for name in functions
        ]
    return breaks
