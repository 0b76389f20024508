"""Reading rows: how many are due, which are the oldest, what follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import product
from typing import Any

from wane.contract.model import Cap, State, Time
from wane.db.schema import Column, TableInfo
from wane.db.statement import Parameters, Statement
from wane.rules.due import DueConditions
from wane.rules.selection import BoundFollower, BoundReference, Selection


class Looking(DueConditions):
    """Writes statements that read the rows that a rule selects."""

    def count_due(self, selection: Selection, now: datetime, most: int | None = None) -> Statement:
        """Write the statement that counts the due rows; with `most`, counting stops there."""
        p = self.parameters()
        source = f"{self.dialect.table(selection.table)} AS t WHERE {' AND '.join(self.due(p, selection, now))}"
        if most is not None:
            source = f"(SELECT 1 FROM {source} LIMIT {p.bind('n', most)}) AS some_due"
        return p.statement(f"SELECT count(*) FROM {source}")

    def count_never_due(self, selection: Selection, limit: int) -> Statement:
        """Write the statement that counts rows in the rule's states whose time is missing or not plausible."""
        p = self.parameters()
        conditions = []
        if selection.rule.states and selection.state is not None:
            states = selection.rule.states
            conditions.append(self.dialect.one_of(p, "state", self.column(selection.state), selection.state, states))
        conditions += self._column_guards(selection)
        plausible = " AND ".join(self.dialect.plausible(p, "t", selection.time_column, selection.time))
        conditions.append(f"({self.column(selection.time_column)} IS NULL OR NOT ({plausible}))")
        source = f"{self.dialect.table(selection.table)} AS t WHERE {' AND '.join(conditions)}"
        return p.statement(f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {p.bind('n', limit)}) AS stuck")

    def keys_due(self, selection: Selection, now: datetime, limit: int) -> Statement:
        """Write the statement that returns the keys of the oldest due rows, oldest first."""
        p = self.parameters()
        return p.statement(self.oldest(p, selection, now, limit, outputs=self.keys(selection)))

    def edge_due(self, selection: Selection, now: datetime, *, newest: bool) -> Statement:
        """Write the statement for the time of the oldest or newest due row.

        It has one probe per state, because a probe over several states would sort them all.
        """
        p = self.parameters()
        probes = [probe for probe, _ in self.edge_probes(p, selection, now, newest=newest)]
        return p.statement(f"SELECT moment FROM ({' UNION ALL '.join(probes)}) AS edges")

    def edge_probes(
        self, p: Parameters, selection: Selection, now: datetime, *, newest: bool
    ) -> list[tuple[str, Time]]:
        """Write the probes that `edge_due` combines, each with the encoding of the times that it finds."""
        direction = "DESC" if newest else "ASC"
        time = self.dialect.order("t", selection.time_column, selection.time)
        probes = []
        for number, (one, states) in enumerate(self.one_walk_each(selection)):
            where = " AND ".join(self.due(p, one, now, states))
            probe = (
                f"SELECT {self.column(selection.time_column)} AS moment FROM {self.dialect.table(selection.table)} AS t"
            )
            probes.append(
                (
                    f"SELECT moment FROM ({probe} WHERE {where} ORDER BY {time} {direction} LIMIT 1) AS p{number}",
                    one.time,
                )
            )
        return probes

    def first_of(self, probes: Sequence[tuple[str, Time]], *, newest: bool, instants: bool) -> str:
        """Write the query for the oldest or newest time that some probes find, however each encodes it.

        The result is as the column has it, or an instant.
        """
        parts = [
            f"SELECT moment, {self.dialect.instant('moment', time)} AS at FROM ({probe}) AS w{number} WHERE moment IS NOT NULL"
            for number, (probe, time) in enumerate(probes)
        ]
        direction = "DESC" if newest else "ASC"
        found = "at" if instants else "moment"
        return f"SELECT {found} FROM ({' UNION ALL '.join(parts)}) AS ends ORDER BY at {direction} LIMIT 1"

    def count_followers(self, selection: Selection, path: Sequence[BoundFollower], now: datetime) -> Statement:
        """Write the statement that counts the rows at the end of a path of followers that would leave with due rows."""
        p = self.parameters()
        leaving = self._pointed_at(selection, path, " AND ".join(self.due(p, selection, now)))
        return p.statement(f"SELECT count(*) FROM {self._following(p, path, leaving)}")

    def _pointed_at(self, selection: Selection, path: Sequence[BoundFollower], where: str) -> str:
        """Write the query for the values that the first follower of a path refers to, under a condition."""
        to = self.columns(path[0].reference.to, "t")
        return f"SELECT {to} FROM {self.dialect.table(selection.table)} AS t WHERE {where}"

    def _followers_of(
        self, p: Parameters, selection: Selection, path: Sequence[BoundFollower], keys: Sequence[tuple[Any, ...]]
    ) -> str:
        """Write the table at the end of a path of followers, and the condition that its rows follow these keys."""
        if self.dialect.typed_keys and path[0].reference.to == selection.key:
            return self._following(p, path, self.dialect.keys(p, selection.key, keys))
        return self._following(p, path, self._pointed_at(selection, path, self.among(p, selection, keys)))

    def _following(self, p: Parameters, path: Sequence[BoundFollower], leaving: str) -> str:
        """Write the table at the end of a path of followers, and the condition that its rows follow what leaves."""
        source = ""
        for number, follower in enumerate(path):
            reference, alias = follower.reference, f"f{number}"
            where = [*self._refers_among(reference, alias, leaving), *self.fixed(p, follower, alias)]
            source = f"{self.dialect.table(reference.table)} AS {alias} WHERE {' AND '.join(where)}"
            if number + 1 < len(path):
                leaving = f"SELECT {self.columns(path[number + 1].reference.to, alias)} FROM {source}"
        return source

    def _refers_among(self, reference: BoundReference, alias: str, leaving: str) -> list[str]:
        ways = product(
            *(
                self.dialect.reference_forms(self.column(mine, alias), mine, theirs)
                for mine, theirs in zip(reference.columns, reference.to, strict=True)
            )
        )
        return [self.one_among(reference.to, way, leaving) for way in ways]

    def one_walk_each(self, selection: Selection) -> list[tuple[Selection, list[State] | None]]:
        """Split the selection into walks along an index: one for each state and each unit of the time."""
        states: list[list[State] | None] = [[state] for state in selection.rule.states] or [None]
        return [(replace(selection, time=time), one) for one in states for time in selection.time.each]

    def places(self, selection: Selection) -> list[str]:
        """Return the names that `oldest` gives a row's position."""
        names = [f"k{i}" for i, column in enumerate(selection.key) if column.name != selection.time_column.name]
        return ["moment", *names]

    def behind(self, p: Parameters, selection: Selection, floor: Sequence[object] | None) -> list[str]:
        """Write the condition that rows are behind a position: where the batch before ended."""
        return [] if floor is None else [self._beside(p, selection, ">", "floor", floor)]

    def up_to(self, p: Parameters, selection: Selection, ceiling: Sequence[object]) -> str:
        """Write the condition that rows are at or before a position."""
        return self._beside(p, selection, "<=", "ceiling", ceiling)

    def _beside(self, p: Parameters, selection: Selection, sign: str, name: str, place: Sequence[object]) -> str:
        columns = self.place_columns(selection)
        bound = [
            self.dialect.decode_key(p, f"{name}_{number}", column, value)
            for number, (column, value) in enumerate(zip(columns, place, strict=True))
        ]
        return self.compare(columns, self.position(selection, "t"), sign, bound)

    def keys(self, selection: Selection) -> list[str]:
        """Return the names that `oldest` gives a row's key."""
        return [f"k{number}" for number in range(len(selection.key))]

    def oldest(
        self,
        p: Parameters,
        selection: Selection,
        now: datetime,
        limit: int,
        floor: Sequence[object] | None = None,
        outputs: Sequence[str] = ("*",),
        *,
        held: bool = True,
    ) -> str:
        """Write the query for the oldest due rows (k0, k1, …, moment), oldest first.

        Each state is walked along its own index range, then the walks are merged.
        """
        n = p.bind("n", limit)
        ascending = ", ".join(self.position(selection, "t"))
        keys = [f"{self.column(column)} AS k{number}" for number, column in enumerate(selection.key)]
        time = self.dialect.order("t", selection.time_column, selection.time)
        parts = []
        for number, (one, states) in enumerate(self.one_walk_each(selection)):
            due = self.due(p, one, now, states, held=held, floored=floor is not None)
            where = " AND ".join([*due, *self.behind(p, selection, floor)])
            source = f"{self.dialect.table(selection.table)} AS t WHERE {where} ORDER BY {ascending} LIMIT {n}"
            parts.append(f"SELECT * FROM (SELECT {', '.join(keys)}, {time} AS moment FROM {source}) AS s{number}")
        # Qualified, because an output may have the name of the key that it shows as text.
        merged = ", ".join(f"oldest.{name}" for name in self.places(selection))
        union = " UNION ALL ".join(parts)
        return f"SELECT {', '.join(outputs)} FROM ({union}) AS oldest ORDER BY {merged} LIMIT {n}"

    def key_text(self, table: TableInfo, columns: Sequence[Column], key: Mapping[str, object]) -> Statement:
        """Write the statement for the key of one row as holds write it; it returns nothing if there is no such row."""
        p = self.parameters()
        where = " AND ".join(
            self.dialect.equal(p, f"k{number}", self.column(column), column, key[column.name])
            for number, column in enumerate(columns)
        )
        return p.statement(
            f"SELECT {self.dialect.key_text(columns, 't')} FROM {self.dialect.table(table)} AS t WHERE {where}"
        )

    def scopes_beyond_cap(self, selection: Selection, limit: int) -> Statement:
        """Write the statement for the scopes that hold more rows than the cap allows."""
        assert isinstance(selection.rule.bound, Cap)
        p = self.parameters()
        scope = [self.dialect.bytewise(self.column(column, "n"), column) for column in selection.per]
        outputs = ", ".join(self.dialect.encode_key(text) for text in scope)
        return p.statement(
            f"SELECT {outputs} FROM {self.dialect.table(selection.table)} AS n WHERE {self._room(p, selection)}"
            f" GROUP BY {', '.join(scope)} HAVING count(*) > {p.bind('most', selection.rule.bound.most)}"
            f" ORDER BY {', '.join(scope)} LIMIT {p.bind('limit', limit)}"
        )

    def scopes_due(self, selection: Selection, now: datetime, limit: int) -> Statement:
        """Write the statement for the scopes in which a row is due.

        It is exact, and slower than `scopes_beyond_cap`, which ignores states and holds.
        """
        p = self.parameters()
        scope = [self.dialect.bytewise(self.column(column), column) for column in selection.per]
        where = " AND ".join(self.due(p, selection, now))
        return p.statement(
            f"SELECT {', '.join(self.dialect.encode_key(text) for text in scope)} FROM {self.dialect.table(selection.table)} AS t"
            f" WHERE {where} GROUP BY {', '.join(scope)} ORDER BY {', '.join(scope)} LIMIT {p.bind('limit', limit)}"
        )
