"""Taking rows, with what follows them: the statements that delete and mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from wane.contract.model import Mark, State
from wane.db.schema import Column
from wane.db.statement import Parameters, Statement
from wane.db.store import Store
from wane.rules.looking import Looking
from wane.rules.selection import BoundFollower, Selection, follower_paths


class Rows(Looking):
    """Writes statements about the rows that a rule selects."""

    def verb(self, p: Parameters, selection: Selection) -> str:
        """Write the verb of the statement: delete the row, or mark it."""
        table, action = self.dialect.table(selection.table), selection.rule.action
        if not isinstance(action, Mark):
            return f"DELETE FROM {table} AS t"
        assert selection.state is not None
        mark = self.dialect.assign(p, selection.state, action.state)
        return f"UPDATE {table} AS t SET {self.dialect.quote(selection.state.name)} = {mark}"

    def candidates(
        self,
        selection: Selection,
        now: datetime,
        limit: int,
        floor: Sequence[object] | None = None,
        *,
        held: bool = True,
    ) -> Statement:
        """Write the statement for the keys of the oldest due rows, followed by their positions, both encoded."""
        p = self.parameters()
        names = [*self.keys(selection), *self.places(selection)]
        outputs = [self.dialect.encode_key(f"oldest.{name}") for name in names]
        return p.statement(self.oldest(p, selection, now, limit, floor, outputs, held=held))

    def still_due(
        self, selection: Selection, now: datetime, keys: Sequence[tuple[Any, ...]], most: int, *, held: bool = True
    ) -> Statement:
        """Write the statement for those of these rows that are due, oldest first.

        Each comes with the number of rows that would leave with it, counted up to `most` for each path.
        """
        p = self.parameters()
        where = f"{self.among(p, selection, keys)} AND {self.dialect.recheck(self.due(p, selection, now, held=held))}"
        counts = [self._count_with(p, selection, path, most) for path in follower_paths(selection)]
        outputs = [
            *(self.dialect.encode_key(self.column(column)) for column in selection.key),
            " + ".join(["0", *counts]),
        ]
        return p.statement(
            f"SELECT {', '.join(outputs)} FROM {self.dialect.table(selection.table)} AS t WHERE {where}"
            f" ORDER BY {', '.join(self.position(selection, 't'))}"
        )

    def _count_with(self, p: Parameters, selection: Selection, path: Sequence[BoundFollower], most: int) -> str:
        source, where = self.chain(p, path, "t")
        return f"(SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT {p.bind('most', most)}) AS c)"

    def delete_followers(
        self, selection: Selection, path: Sequence[BoundFollower], keys: Sequence[tuple[Any, ...]]
    ) -> Statement:
        """Delete every row of a follower that belongs to rows with these keys."""
        p = self.parameters()
        return p.statement(f"DELETE FROM {self._followers_of(p, selection, path, keys)}")

    def any_follower(
        self, selection: Selection, path: Sequence[BoundFollower], keys: Sequence[tuple[Any, ...]]
    ) -> Statement:
        """Write a query that returns a row if any row of a follower belongs to rows with these keys."""
        p = self.parameters()
        return p.statement(f"SELECT 1 FROM {self._followers_of(p, selection, path, keys)} LIMIT 1")

    def delete_some_followers(
        self, selection: Selection, path: Sequence[BoundFollower], key: tuple[Any, ...], now: datetime, limit: int
    ) -> Statement:
        """Delete some rows of a follower of one due row that has too many followers to leave at once."""
        p = self.parameters()
        table = path[-1].reference.table
        identity = self.identity(path[-1])
        some = self._some_of(p, selection, path, key, now, limit, [f"f{len(path) - 1}.{name}" for name in identity])
        where = " AND ".join([self._one_of_followers(path[-1], "d", some), *self._not_live(p, path[-1])])
        return p.statement(f"DELETE FROM {self.dialect.table(table)} AS d WHERE {where}")

    def _not_live(self, p: Parameters, follower: BoundFollower) -> list[str]:
        """Write the condition that a row is not live now.

        It is evaluated on the version that is deleted: the row may have changed since it was found.
        """
        live = self.live(p, follower, "d")
        return [f"{live} IS NOT TRUE"] if live else []

    def _some_of(
        self,
        p: Parameters,
        selection: Selection,
        path: Sequence[BoundFollower],
        key: tuple[Any, ...],
        now: datetime,
        limit: int,
        outputs: Sequence[str],
    ) -> str:
        source, links = self.chain(p, path, "t")
        due = self.dialect.recheck(self.due(p, selection, now))
        where = " AND ".join([links, self.among(p, selection, [key]), due])
        return (
            f"SELECT {', '.join(outputs)} FROM {self.dialect.table(selection.table)} AS t, {source}"
            f" WHERE {where} LIMIT {p.bind('some', limit)}"
        )

    def lock_followers(
        self, selection: Selection, path: Sequence[BoundFollower], keys: Sequence[tuple[Any, ...]]
    ) -> Statement:
        """Lock (PostgreSQL) every row of a follower that belongs to rows with these keys.

        No row can then begin to refer to it.
        """
        p = self.parameters()
        return p.statement(_locking(self._followers_of(p, selection, path, keys), path))

    def some_followers(
        self, selection: Selection, path: Sequence[BoundFollower], key: tuple[Any, ...], now: datetime, limit: int
    ) -> Statement:
        """Identify, and lock where the store locks rows, some rows of a follower that belong to one due row."""
        p = self.parameters()
        alias = f"f{len(path) - 1}"
        outputs = [self.dialect.encode_key(f"{alias}.{name}") for name in self.identity(path[-1])]
        some = self._some_of(p, selection, path, key, now, limit, outputs)
        return p.statement(f"{some}{self.dialect.locking(alias)}")

    def delete_childless(self, follower: BoundFollower, found: Sequence[tuple[Any, ...]]) -> Statement:
        """Delete identified rows of a follower, except those that still have followers of their own."""
        p = self.parameters()
        conditions = [self._among_found(p, follower, found, "d"), *self._not_live(p, follower)]
        for inner in follower.followers:
            where = " AND ".join([self.refers(inner.reference, "g", "d"), *self.fixed(p, inner, "g")])
            conditions.append(
                self.dialect.finds_nothing(
                    f"SELECT 1 FROM {self.dialect.table(inner.reference.table)} AS g WHERE {where}"
                )
            )
        table = self.dialect.table(follower.reference.table)
        return p.statement(f"DELETE FROM {table} AS d WHERE {' AND '.join(conditions)}")

    def delete_identified(self, follower: BoundFollower, found: Sequence[tuple[Any, ...]]) -> Statement:
        """Delete identified rows of a follower."""
        p = self.parameters()
        table = self.dialect.table(follower.reference.table)
        return p.statement(f"DELETE FROM {table} AS d WHERE {self._among_found(p, follower, found, 'd')}")

    def lock_below(
        self, follower: BoundFollower, path: Sequence[BoundFollower], found: Sequence[tuple[Any, ...]]
    ) -> Statement:
        """Lock (PostgreSQL) every row at the end of a path that begins at identified rows of a follower."""
        p = self.parameters()
        return p.statement(_locking(self._below(p, follower, path, found), path))

    def delete_below(
        self, follower: BoundFollower, path: Sequence[BoundFollower], found: Sequence[tuple[Any, ...]]
    ) -> Statement:
        """Delete every row at the end of a path that begins at identified rows of a follower."""
        p = self.parameters()
        return p.statement(f"DELETE FROM {self._below(p, follower, path, found)}")

    def _below(
        self, p: Parameters, follower: BoundFollower, path: Sequence[BoundFollower], found: Sequence[tuple[Any, ...]]
    ) -> str:
        to, table = self.columns(path[0].reference.to, "d"), self.dialect.table(follower.reference.table)
        leaving = f"SELECT {to} FROM {table} AS d WHERE {self._among_found(p, follower, found, 'd')}"
        return self._following(p, path, leaving)

    def identity(self, follower: BoundFollower) -> list[str]:
        """Return columns, quoted, that identify each row of a follower."""
        return self.dialect.identity(follower.reference.table, inherited=follower.inherited)

    def _among_found(self, p: Parameters, follower: BoundFollower, found: Sequence[tuple[Any, ...]], alias: str) -> str:
        return self._one_of_followers(
            follower, alias, self.dialect.identified(p, follower.reference.table, found, inherited=follower.inherited)
        )

    def _one_of_followers(self, follower: BoundFollower, alias: str, query: str) -> str:
        """Write the condition that a query finds the identity of a follower's row.

        The store's own row identifiers are not columns of the table.
        """
        known = {self.dialect.quote(column.name): column for column in follower.reference.table.columns}
        identity = self.identity(follower)
        columns = [known.get(name, Column(name, "", nullable=False)) for name in identity]
        return self.one_among(columns, [f"{alias}.{name}" for name in identity], query)

    def take_keys(
        self, selection: Selection, now: datetime, keys: Sequence[tuple[Any, ...]], *, held: bool = True
    ) -> Statement:
        """Take the rows with these keys, if they are still due."""
        p = self.parameters()
        verb = self.verb(p, selection)
        where = f"{self.among(p, selection, keys)} AND {self.dialect.recheck(self.due(p, selection, now, held=held))}"
        return p.statement(f"{verb} WHERE {where}")

    def take_oldest(self, selection: Selection, now: datetime, limit: int) -> Statement:
        """Take the oldest due rows in one statement, which finds them in one snapshot."""
        p = self.parameters()
        verb = self.verb(p, selection)
        oldest = self.oldest(p, selection, now, limit, outputs=self.keys(selection))
        mine = self.one_among(selection.key, [self.column(column) for column in selection.key], oldest)
        return p.statement(f"{verb} WHERE {mine}")

    def end_of_batch(
        self, selection: Selection, now: datetime, limit: int, floor: Sequence[object] | None = None
    ) -> Statement:
        """Write the statement for the position of the last of the `limit` oldest due rows.

        It returns nothing if fewer are due, or if anything is held. SQLite merges the states along their index, row by
        row, if nothing comes between them and the order: no limit for each, and no output but the order itself.
        """
        p = self.parameters()
        position, places = self.position(selection, "t"), self.places(selection)
        named = ", ".join(f"{one} AS {name}" for one, name in zip(position, places, strict=True))
        parts = []
        for one, states in self.one_walk_each(selection):
            due = self.due(p, one, now, states, held=False, floored=floor is not None)
            where = [*due, *self.behind(p, selection, floor)]
            parts.append(f"SELECT {named} FROM {self.dialect.table(selection.table)} AS t WHERE {' AND '.join(where)}")
        order = ", ".join(places)
        outputs = ", ".join(self.dialect.encode_key(f"last.{name}") for name in places)
        return p.statement(
            f"WITH last AS MATERIALIZED (SELECT {order} FROM ({' UNION ALL '.join(parts)}) AS oldest ORDER BY {order}"
            f" LIMIT 1 OFFSET {p.bind('n', limit - 1)}) SELECT {outputs} FROM last"
        )

    def take_up_to(
        self, selection: Selection, now: datetime, floor: Sequence[object] | None, end: Sequence[object] | None
    ) -> Statement:
        """Take every due row up to a position, which `end_of_batch` found; nothing if anything is held."""
        p = self.parameters()
        verb = self.verb(p, selection)
        floored, ended = floor is not None, end is not None
        due = self.due(p, selection, now, held=False, floored=floored, ended=ended)
        where = [*due, *self.behind(p, selection, floor)]
        if end is not None:
            where += self._up_to(p, selection, end)
        return p.statement(f"{verb} WHERE {' AND '.join(where)}")

    def _up_to(self, p: Parameters, selection: Selection, end: Sequence[object]) -> list[str]:
        time, *key = self.position(selection, "t")
        at, *keys = [
            self.dialect.decode_key(p, f"end_{number}", column, value)
            for number, (column, value) in enumerate(zip(self.place_columns(selection), end, strict=True))
        ]
        behind = self.compare(self.place_columns(selection)[1:], key, "<=", keys)
        return [f"{time} <= {at}", *([f"({time} < {at} OR {behind})"] if key else [])]

    def take_range(
        self,
        selection: Selection,
        now: datetime,
        limit: int,
        floor: Sequence[object] | None = None,
        *,
        held: bool = True,
    ) -> Statement:
        """Take the oldest due rows in one statement: find where the batch ends, then take everything due up to there.

        Without `held`, nothing is taken as soon as anything is held.

        The whole predicate is repeated where rows are taken, so a row that another transaction changed in the meantime
        is checked again. The statement returns how many rows it took, how many it found, and the position where the
        batch ended (NULLs if nothing is due).
        """
        p = self.parameters()
        places = self.places(selection)
        oldest = self.oldest(p, selection, now, limit, floor, held=held)
        descending = ", ".join(f"{name} DESC" for name in places)
        verb = self.verb(p, selection)
        end = self.up_to_found(selection, self.position(selection, "t"), f"SELECT {', '.join(places)} FROM last")
        where = " AND ".join([*self.due(p, selection, now, held=held), *self.behind(p, selection, floor), end])
        outputs = ", ".join(self.dialect.encode_key(f"last.{name}") for name in places)
        return p.statement(
            f"WITH batch AS MATERIALIZED ({oldest}),\n"
            f"last AS MATERIALIZED (SELECT {', '.join(places)} FROM batch ORDER BY {descending} LIMIT 1),\n"
            f"gone AS ({verb} WHERE {where} RETURNING 1)\n"
            f"SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM batch), {outputs}"
            " FROM (SELECT 1) AS one LEFT JOIN last ON true"
        )

    def remove(
        self, selection: Selection, key: Mapping[str, object], alive_at: datetime | None, live: Sequence[State] = ()
    ) -> Statement:
        """Delete one row by its key, unless it is held or a live row follows it, and return it.

        With `alive_at`, only if it expires after that and is in one of the live states, if there are any.
        """
        p = self.parameters()
        where = " AND ".join(self._removable(p, selection, key, alive_at, live))
        outputs = ", ".join(self.dialect.quote(column.name) for column in selection.table.columns)
        return p.statement(f"DELETE FROM {self.dialect.table(selection.table)} AS t WHERE {where} RETURNING {outputs}")

    def removable(
        self, selection: Selection, key: Mapping[str, object], alive_at: datetime | None, live: Sequence[State] = ()
    ) -> Statement:
        """Write the statement for the encoded key of the row that `remove` would delete."""
        p = self.parameters()
        where = " AND ".join(self._removable(p, selection, key, alive_at, live))
        outputs = ", ".join(self.dialect.encode_key(self.column(column)) for column in selection.key)
        return p.statement(f"SELECT {outputs} FROM {self.dialect.table(selection.table)} AS t WHERE {where}")

    def _removable(
        self,
        p: Parameters,
        selection: Selection,
        key: Mapping[str, object],
        alive_at: datetime | None,
        live: Sequence[State],
    ) -> list[str]:
        conditions = [
            self.dialect.equal(p, f"k{number}", self.column(column), column, key[column.name])
            for number, column in enumerate(selection.key)
        ]
        if alive_at is not None:
            column, time = selection.time_column, selection.time
            expired = self.dialect.before(p, "t", column, time, alive_at, inclusive=True)
            conditions += [*self.dialect.plausible(p, "t", column, time), f"NOT ({' AND '.join(expired)})"]
            if live and selection.state is not None:
                conditions.append(self.dialect.one_of(p, "state", self.column(selection.state), selection.state, live))
        return [*conditions, *self.no_live_follower(p, selection), *self._not_held(p, selection)]


def _locking(source: str, path: Sequence[BoundFollower]) -> str:
    """Lock the rows at the end of a path of followers; return only their number."""
    return f"SELECT count(*) FROM (SELECT 1 FROM {source} FOR UPDATE OF f{len(path) - 1}) AS locked"


def rows_of(store: Store) -> Rows:
    """Return the writer of statements over users' rows; they respect holds once the database has Wane's own tables."""
    return Rows(store.dialect, holds=store.migrated)
