"""Queries about the rows that a rule selects: how many are due, the oldest and the newest, what follows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from wane._contract.model import Cap, Pick, State, Time
from wane._db.schema import Column, TableInfo
from wane._db.statement import Parameters, Statement, When
from wane._db.store import Store
from wane._rules.rows import Rows, all_of, rows_of
from wane._rules.scopes import SCOPES, ScopeWalk, can_walk
from wane._rules.selection import BoundFollower, Selection
from wane._rules.walk import Walk


class Queries:
    """Writes queries that count and list rows, and the deletion of a single row."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.dialect = rows.dialect

    def count_due(self, selection: Selection, now: When, most: int | None = None) -> Statement:
        """Write the query that counts the due rows; with `most`, counting stops there."""
        p = self.rows.parameters()
        source = f"{self.dialect.table(selection.table)} AS t\nWHERE {all_of(self.rows.due(p, selection, now))}"
        if most is not None:
            source = f"(SELECT 1 FROM {source} LIMIT {p.bind('limit', most)}) AS some_due"
        return p.statement(f"SELECT count(*) FROM {source}")

    def count_any_due(self, selections: Sequence[Selection], now: When, most: int | None = None) -> Statement:
        """Write the query that counts the rows due under any of some rules of a table, each once."""
        p = self.rows.parameters()
        each = [f"({all_of(self.rows.due(p, one, now))})" for one in selections]
        source = f"{self.dialect.table(selections[0].table)} AS t\nWHERE " + "\n  OR ".join(each)
        if most is not None:
            source = f"(SELECT 1 FROM {source} LIMIT {p.bind('limit', most)}) AS some_due"
        return p.statement(f"SELECT count(*) FROM {source}")

    def estimate_due(self, selections: Sequence[Selection], now: When) -> Statement:
        """Write the query whose rows the planner is to estimate: those due under any of some rules of a table.

        Guards and holds are left out: the planner would guess that half of the rows pass each.
        """
        p, first = self.rows.parameters(), selections[0]
        source = f"SELECT 1 FROM {self.dialect.table(first.table)} AS t WHERE "
        if len(selections) == 1 and isinstance(first.rule.bound, Cap) and not first.per:
            # What a subquery finds is unknown to the planner; how many rows a table has is not.
            where = all_of(self.rows.about(p, first) or ["true"])
            return p.statement(f"{source}{where} OFFSET {p.bind('most', first.rule.bound.most)}")
        each = [f"({all_of(self.rows.probably_due(p, one, now))})" for one in selections]
        return p.statement(source + " OR ".join(each))

    def sample_due(
        self, table: TableInfo, groups: Sequence[Sequence[Selection]], now: When, numbers: Sequence[int]
    ) -> Statement:
        """Write the query that counts the rows with some numbers, and those that each group of rules takes (SQLite)."""
        p = self.rows.parameters()
        counts = ["count(*)"]
        for selections in groups:
            due = " OR ".join(f"({all_of(self.rows.due(p, one, now))})" for one in selections)
            counts.append(f"coalesce(sum(CASE WHEN {due} THEN 1 ELSE 0 END), 0)")
        picked = f"SELECT value FROM json_each({p.bind('numbers', json.dumps(numbers))})"
        source = f"{self.dialect.table(table)} AS t WHERE t.rowid IN ({picked})"
        return p.statement(f"SELECT {', '.join(counts)} FROM {source}")

    def count_never_due(self, selection: Selection, limit: int) -> Statement:
        """Write the query that counts rows that the rule is about whose time or ordering key is missing or not
        plausible."""
        p = self.rows.parameters()
        guards = [*self.rows.column_guards(selection), *self.rows.without_parent(selection)]
        conditions = [*self.rows.about(p, selection), *guards]
        plausible = " AND ".join([*self.rows.chosen(selection, "t"), *self.rows.plausible(p, selection, "t")]) or "true"
        conditions.append(f"({plausible}) IS NOT TRUE")
        source = f"{self.dialect.table(selection.table)} AS t WHERE {' AND '.join(conditions)}"
        return p.statement(f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {p.bind('limit', limit)}) AS stuck")

    def count_unselected(self, selections: Sequence[Selection], limit: int) -> Statement:
        """Write the query that counts the rows that fulfil all of a rule but its `where`, and that no rule selects."""
        p = self.rows.parameters()

        def either(ones: Iterable[Selection]) -> str:
            each = [f"({' AND '.join(self.rows.about(p, one)) or 'true'})" for one in ones]
            return f"({' OR '.join(each)})"

        but_for_where = either(one.without_where() for one in selections if one.where)
        source = (
            f"{self.dialect.table(selections[0].table)} AS t WHERE {but_for_where} AND {either(selections)} IS NOT TRUE"
        )
        return p.statement(
            f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {p.bind('limit', limit)}) AS unselected"
        )

    def count_due_without(
        self, selection: Selection, now: When, columns: Sequence[Column], limit: int, *, among: int | None
    ) -> Statement:
        """Write the query that counts due rows that have NULL in all of some columns; counting stops at `limit`.

        With `among`, at most that number of due rows are read.
        """
        p = self.rows.parameters()
        outputs = self.rows.columns(columns)
        due = f"SELECT {outputs} FROM {self.dialect.table(selection.table)} AS t WHERE {all_of(self.rows.due(p, selection, now))}"
        if among is not None:
            due += f" LIMIT {p.bind('among', among)}"
        missing = " AND ".join(f"{self.rows.column(column, 'd')} IS NULL" for column in columns)
        some = f"SELECT 1 FROM ({due}) AS d WHERE {missing} LIMIT {p.bind('limit', limit)}"
        return p.statement(f"SELECT count(*) FROM ({some}) AS unfinished")

    def keys_due(self, selection: Selection, now: When, limit: int) -> Statement:
        """Write the query for the keys of the oldest due rows, oldest first."""
        p, walk = self.rows.parameters(), Walk(self.rows, selection)
        return p.statement(walk.oldest(p, now, limit, outputs=walk.keys))

    def edge_due(self, selection: Selection, now: When, *, newest: bool) -> Statement:
        """Write the query for the time of the oldest or newest due row.

        It has one probe per state, because a probe over several states would sort them all.
        """
        p = self.rows.parameters()
        probes = [probe for probe, _ in self.edge_probes(p, selection, now, newest=newest)]
        return p.statement(f"SELECT row_time FROM ({' UNION ALL '.join(probes)}) AS edges")

    def edge_probes(self, p: Parameters, selection: Selection, now: When, *, newest: bool) -> list[tuple[str, Time]]:
        """Write the probes that `edge_due` combines, each with the encoding of the times that it finds."""
        direction = "DESC" if newest else "ASC"
        table, own = self.dialect.table(selection.table), selection.own_time
        assert own is not None
        each = Walk(self.rows, selection).each()
        if own.time.pick is Pick.LATEST:
            # No index has the order of the latest of several columns.
            each = [(selection, states) for one, states in each if one.time_column == own.column]
        probes = []
        for number, (one, states) in enumerate(each):
            assert one.own_time is not None
            time = found = self.rows.latest(one.own_time, "t")
            if one.one_time and not self.dialect.walks(one.time_column, one.time):
                # Numbers that are written as texts have another order than the texts.
                time = self.dialect.instant(self.rows.column(one.time_column), one.time)
            where = all_of(self.rows.due(p, one, now, states))
            probe = f"SELECT {found} AS row_time FROM {table} AS t WHERE {where} ORDER BY {time} {direction} LIMIT 1"
            probes.append((f"SELECT row_time FROM ({probe}) AS p{number}", one.time))
        return probes

    def first_of(self, probes: Sequence[tuple[str, Time]], *, newest: bool, instants: bool) -> str:
        """Write the query for the oldest or newest time that some probes find, however each encodes it.

        The result is as the column has it, or an instant.
        """
        parts = [
            f"SELECT row_time, {self.dialect.instant('row_time', time)} AS at FROM ({probe}) AS w{number}"
            " WHERE row_time IS NOT NULL"
            for number, (probe, time) in enumerate(probes)
        ]
        direction = "DESC" if newest else "ASC"
        found = "at" if instants else "row_time"
        return f"SELECT {found} FROM ({' UNION ALL '.join(parts)}) AS ends ORDER BY at {direction} LIMIT 1"

    def count_followers(self, selection: Selection, path: Sequence[BoundFollower], now: When) -> Statement:
        """Write the query that counts the rows at the end of a path of followers that would leave with due rows."""
        p = self.rows.parameters()
        leaving = self.rows.pointed_at(selection, path, all_of(self.rows.due(p, selection, now)))
        return p.statement(f"SELECT count(*) FROM {self.rows.following(p, path, leaving)}")

    def scopes_beyond_cap(self, selection: Selection) -> Statement:
        """Write the query for the scopes that hold more rows than the cap allows."""
        if can_walk(self.dialect, selection):
            return ScopeWalk(self.rows, selection).beyond()
        assert isinstance(selection.rule.bound, Cap)
        p = self.rows.parameters()
        scope = [self.dialect.bytewise(self.rows.column(column, "n"), column) for column in selection.per]
        outputs = ", ".join(self.dialect.encode_key(text) for text in scope)
        return p.statement(
            f"SELECT {outputs}\nFROM {self.dialect.table(selection.table)} AS n\nWHERE {self.rows.own_counted(p, selection)}\n"
            f"GROUP BY {', '.join(scope)}\nHAVING count(*) > {p.bind('most', selection.rule.bound.most)}\n"
            f"ORDER BY {', '.join(scope)}\nLIMIT {p.bind('scopes', SCOPES)}"
        )

    def scopes_due(self, selection: Selection, now: When) -> Statement:
        """Write the query for the scopes in which a row is due.

        It is exact, and slower than `scopes_beyond_cap`, which ignores guards and holds.
        """
        p = self.rows.parameters()
        scope = [self.dialect.bytewise(self.rows.column(column), column) for column in selection.per]
        outputs = ", ".join(self.dialect.encode_key(text) for text in scope)
        return p.statement(
            f"SELECT {outputs}\nFROM {self.dialect.table(selection.table)} AS t\n"
            f"WHERE {all_of(self.rows.due(p, selection, now))}\n"
            f"GROUP BY {', '.join(scope)}\nORDER BY {', '.join(scope)}\nLIMIT {p.bind('scopes', SCOPES)}"
        )

    def held_tables(self) -> Statement:
        """Write the query for the tables in which anything is held, by their full names."""
        p = self.rows.parameters()
        holds, active = self.dialect.own_table("hold"), self.dialect.in_force(p, "h")
        return p.statement(f"SELECT DISTINCT h.table_name FROM {holds} AS h WHERE {active}")

    def key_text(self, table: TableInfo, columns: Sequence[Column], key: Mapping[str, object]) -> Statement:
        """Write the query for the key of one row as holds write it; it returns nothing if there is no such row."""
        p = self.rows.parameters()
        where = " AND ".join(self.has_key(p, columns, key))
        return p.statement(
            f"SELECT {self.dialect.key_text(columns, 't')} FROM {self.dialect.table(table)} AS t WHERE {where}"
        )

    # A single row

    def remove(
        self, selection: Selection, key: Mapping[str, object], alive_at: datetime | None, live: Sequence[State] = ()
    ) -> Statement:
        """Delete one row by its key, unless it is held or a live row follows it, and return it.

        With `alive_at`, only if it expires after that and is in one of the live states, if there are any.
        """
        p = self.rows.parameters()
        where = all_of(self._removable(p, selection, key, alive_at, live))
        outputs = ", ".join(self.dialect.quote(column.name) for column in selection.table.columns)
        return p.statement(f"DELETE FROM {self.dialect.table(selection.table)} AS t WHERE {where} RETURNING {outputs}")

    def removable(
        self, selection: Selection, key: Mapping[str, object], alive_at: datetime | None, live: Sequence[State] = ()
    ) -> Statement:
        """Write the query for the encoded key of the row that `remove` would delete."""
        p = self.rows.parameters()
        where = all_of(self._removable(p, selection, key, alive_at, live))
        outputs = ", ".join(self.dialect.encode_key(self.rows.column(column)) for column in selection.key)
        return p.statement(f"SELECT {outputs} FROM {self.dialect.table(selection.table)} AS t WHERE {where}")

    def _removable(
        self,
        p: Parameters,
        selection: Selection,
        key: Mapping[str, object],
        alive_at: datetime | None,
        live: Sequence[State],
    ) -> list[str]:
        conditions = self.has_key(p, selection.key, key)
        if alive_at is not None:
            expired = " AND ".join(self.rows.before(p, selection, "t", alive_at, inclusive=True))
            conditions += self.rows.chosen(selection, "t")
            conditions += [*self.rows.plausible(p, selection, "t"), f"NOT ({expired})"]
            if live and selection.state is not None:
                state = self.rows.column(selection.state)
                conditions.append(self.dialect.one_of(p, "state", state, selection.state, live))
        return [*conditions, *self.rows.no_live_follower(p, selection), *self.rows.unheld(p, selection)]

    def has_key(self, p: Parameters, columns: Sequence[Column], key: Mapping[str, object]) -> list[str]:
        """Write the conditions that a row has a key."""
        return [
            self.dialect.equal(p, f"key_{number}", self.rows.column(column), column, key[column.name])
            for number, column in enumerate(columns)
        ]


def queries_of(store: Store) -> Queries:
    """Return the writer of queries about users' rows; holds count once the database has Wane's own tables."""
    return Queries(rows_of(store))
