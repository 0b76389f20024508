"""Compiles the statements that take rows under a rule.

Whatever deletes or marks rows of the rule's table repeats every condition of `Rows.due`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from wane._contract.model import Cap, Expiry, Mark, ToArchive, ToColdTier
from wane._db.schema import Column, Kind
from wane._db.statement import NOW, Dialect, Parameters, Slot, Statement
from wane._db.timestamps import LATEST
from wane._rules.batch_statements import (
    AtOnceStatements,
    FollowerPath,
    FollowerStatements,
    KnownEdgeStatements,
    RangeStatements,
)
from wane._rules.indexes import has_time_index, orders_keys, served
from wane._rules.queries import Queries
from wane._rules.rows import Rows, all_of, cutoff, nested
from wane._rules.scopes import ScopeWalk, can_walk, walks
from wane._rules.selection import BoundFollower, BoundReference, Selection, follower_paths, locked_paths
from wane._rules.spared import SparedRows
from wane._rules.walk import Walk

LIMIT = Slot("limit")
FOLLOWER_LIMIT = Slot("follower_limit")
AHEAD = Slot("ahead")


def takes_followers_by_range(rows: Rows, selection: Selection) -> bool:
    """Return whether a rule's rows are taken with what follows them by their position, without reading any keys.

    Only where no other transaction writes meanwhile; not if taking followers could change which rows are due, because
    they guard others of them or are in the same table; not if a trigger may retain followers.
    """
    capped = isinstance(selection.rule.bound, Cap)
    if rows.dialect.locks_rows or not rows.holds or capped or not selection.followers:
        return False
    followers = [path[-1] for path in follower_paths(selection)]
    tables = [selection.table, *(one.reference.table for one in followers), *(one.table for one in selection.guards)]
    separate = len({table.qualified for table in tables}) == len(tables)
    bare = replace(selection, followers=())
    return separate and by_range(rows.dialect, bare) and not any(one.has_delete_triggers for one in followers)


def by_range(dialect: Dialect, selection: Selection) -> bool:
    """Return whether a rule's rows are taken by their position alone, without reading their keys first.

    Not with followers; not if several columns or another table may hold the time; not if a trigger may retain rows, or
    marks and moves are to be counted, because the intended rows must be known; not if a guard, or the end of a newer
    row, may be written by a transaction that is not committed yet; and on SQLite not with keys that differ by case
    only, because two rows would have the same position.
    """
    moves = isinstance(selection.rule.action, Mark | ToColdTier | ToArchive)
    guarded = dialect.locks_rows and (bool(selection.guards) or selection.rule.spare is not None)
    loose = not dialect.locks_rows and any(column.collation is not None for column in selection.key)
    chosen = bool(selection.lookups or (selection.own_time is not None and selection.own_time.among))
    return not (moves or guarded or loose or chosen or selection.followers or selection.has_delete_triggers)


def takes_at_once(dialect: Dialect, selection: Selection) -> bool:
    """Return whether one statement may take a rule's rows with their followers, before anything is locked.

    Only where foreign keys protect every reference, except for some that a later statement follows (`unkeyed_paths`):
    a row that begins to refer to a leaving one while the statement waits for it makes the statement fail, or is changed
    by the key, which the function that runs it detects by the counters of the tables (`_prune.sql_batch_call`). That
    needs a table of its own for each reference. Plans are made once, whatever is due, so an index must serve each step.
    """
    moves = isinstance(selection.rule.action, Mark | ToColdTier | ToArchive)
    if (
        not dialect.locks_rows
        or moves
        or isinstance(selection.rule.bound, Cap)
        or not selection.one_time
        or selection.rule.spare is not None
        or selection.longer is not None
        or not served(selection, dialect, "postgres")
    ):
        return False
    followers, unkeyed = (
        [path[-1] for path in follower_paths(selection)],
        [path[-1] for path in unkeyed_paths(selection)],
    )
    references = [*selection.guards, *(one.reference for one in followers)]
    keyed = [*selection.guards, *(one.reference for one in followers if one not in unkeyed)]
    tables = {selection.table.qualified, *(one.table.qualified for one in references)}
    separate = len(tables) == 1 + len(references) and all(one.table.kind is Kind.TABLE for one in references)
    protected = all(one.enforced and not one.inherited for one in keyed)
    return separate and protected and not any(one.has_delete_triggers for one in followers)


def unkeyed_paths(selection: Selection) -> list[FollowerPath]:
    """Return the paths to followers that refer to a rule's rows without any foreign key, and that nothing follows.

    What refers to a row that is gone can be taken after it, as long as the values to which it refers are known.
    """
    own = selection.table.schema, selection.table.name

    def is_unkeyed(follower: BoundFollower) -> bool:
        reference = follower.reference
        refers = any((key.to_schema, key.to_table) == own for key in reference.table.foreign_keys)
        # An array has no arrays as its elements, and not the collation of the column.
        unlisted = any(column.loose or column.type.endswith("]") for column in reference.to)
        retaining = follower.followers or follower.live or reference.inherited
        return not (refers or unlisted or retaining or reference.enforced)

    return [path for path in follower_paths(selection) if len(path) == 1 and is_unkeyed(path[0])]


class Compiler:
    """Compiles the statements of one rule."""

    def __init__(self, rows: Rows, selection: Selection) -> None:
        if selection.per:
            selection = replace(selection, scope=tuple(Slot(f"scope_{n}") for n in range(len(selection.per))))
        self.rows, self.dialect = rows, rows.dialect
        self.selection = selection
        self.table = f"{self.dialect.table(selection.table)} AS t"
        self.walk = Walk(rows, selection)
        by_state = selection.own_time is None or has_time_index(selection, self.dialect, "postgres")
        self.planned_walk = Walk(rows, selection, decoded_once=True, by_state=by_state)
        """For statements whose plan is made once, whatever the positions are."""
        self.floor = [Slot(f"floor_{number}") for number in range(len(self.walk.names))]
        self.end = [Slot(f"end_{number}") for number in range(len(self.walk.names))]
        self.edge = self._edge_slots()
        """The position of the first row that a cap excludes, where it is found once for several statements."""
        self.order = ", ".join(rows.position(selection, "t"))
        self.keys = [self.dialect.encode_key(rows.column(column)) for column in selection.key]

    def _edge_slots(self) -> list[Slot]:
        capped = isinstance(self.selection.rule.bound, Cap) and by_range(self.dialect, self.selection)
        known = capped and (not self.dialect.locks_rows or self.ends_at_edge())
        return [Slot(f"edge_{number}") for number in range(len(self.walk.names) if known else 0)]

    def ends_at_edge(self) -> bool:
        return self.rows.cap_position(self.selection, "t") == self.rows.position(self.selection, "t")

    def lowest(self) -> object:
        selection = self.selection
        if selection.own_time is None:
            return self.dialect.lowest_key(selection.key[0])
        return self.dialect.lowest(selection.time_column, selection.time)

    def highest(self, now: datetime) -> object:
        if self.selection.own_time is None:
            return self.dialect.highest_key(self.selection.key[0])
        column, time, bound = self.selection.time_column, self.selection.time, self.selection.rule.bound
        at = cutoff(self.selection.rule, now) or LATEST
        return self.dialect.highest(column, time, at, inclusive=isinstance(bound, Expiry))

    def scopes(self) -> tuple[Statement, ...]:
        if not self.selection.per:
            return ()
        queries, anywhere = Queries(self.rows), replace(self.selection, scope=None)
        return queries.scopes_beyond_cap(anywhere), queries.scopes_due(anywhere, NOW)

    def scopes_behind(self) -> tuple[Statement, ...]:
        if not self.selection.per or not can_walk(self.dialect, self.selection):
            return ()
        walk = ScopeWalk(self.rows, replace(self.selection, scope=None))
        return tuple(walk.beyond(number) for number in range(len(walks(self.selection))))

    def edged_scopes(self) -> tuple[Statement, ...]:
        if not self.scopes_behind():
            return ()
        walk = ScopeWalk(self.rows, replace(self.selection, scope=None))
        begins = [None, *range(len(walks(self.selection)))]
        return tuple(walk.beyond(number, edged=True) for number in begins)

    # By their keys

    def candidates(self) -> Statement:
        p = self.rows.parameters()
        outputs = [self.dialect.encode_key(f"oldest.{name}") for name in (*self.walk.keys, *self.walk.names)]
        return p.statement(self.walk.oldest(p, NOW, LIMIT, self.floor, outputs))

    def lock(self, how: str) -> Statement:
        p = self.rows.parameters()
        where = self.rows.among(p, self.selection, None)
        # All pruners lock in the same order, so that two of them wait for each other once at most.
        return p.statement(
            f"SELECT {', '.join(self.keys)}\nFROM {self.table}\nWHERE {where}\nORDER BY {self.order}\n"
            f"{self.dialect.locking('t').strip()}{how}"
        )

    def lock_spared(self) -> Statement:
        p, selection = self.rows.parameters(), self.selection
        key = [self.rows.column(column, "n") for column in selection.key]
        where = self.rows.one_among(selection.key, key, SparedRows(self.rows, selection).keys(p))
        outputs, order = map(self.dialect.encode_key, key), self.rows.position(selection, "n")
        return p.statement(
            f"SELECT {', '.join(outputs)}\nFROM {self.dialect.table(selection.table)} AS n\nWHERE {where}\n"
            f"ORDER BY {', '.join(order)}\nFOR SHARE OF n"
        )

    def lock_times(self, reference: BoundReference, in_child: bool) -> Statement:
        p = self.rows.parameters()
        mine, theirs = (reference.to, reference.columns) if in_child else (reference.columns, reference.to)
        where = self.rows.among(p, self.selection, None)
        rows = f"SELECT {self.rows.columns(mine)} FROM {self.table} WHERE {where}"
        held = self.rows.one_among(theirs, [self.rows.column(column, "o") for column in theirs], rows)
        source = f"{self.dialect.table(reference.table)} AS o\nWHERE {held}"
        return p.statement(f"SELECT count(*) FROM (SELECT 1 FROM {source}\nFOR SHARE OF o) AS locked")

    def _due(self, p: Parameters, *, after_followers: bool = False) -> list[str]:
        """Write the conditions that a row has one of some keys and is due."""
        due = self.rows.due(p, self.selection, NOW, after_followers=after_followers)
        return [self.rows.among(p, self.selection, None), self.dialect.recheck(due)]

    def recheck(self) -> Statement:
        p = self.rows.parameters()
        where = self._due(p)
        counts = [self._count_with(p, path) for path in follower_paths(self.selection)]
        outputs = ", ".join([*self.keys, " + ".join(counts) or "0"])
        return p.statement(f"SELECT {outputs}\nFROM {self.table}\nWHERE {all_of(where)}\nORDER BY {self.order}")

    def _count_with(self, p: Parameters, path: Sequence[BoundFollower]) -> str:
        source, where = self.rows.chain(p, path, "t")
        limit = p.bind("follower_limit", FOLLOWER_LIMIT)
        return f"(SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT {limit}) AS c)"

    def take(self) -> Statement:
        p = self.rows.parameters()
        verb = self.rows.verb(p, self.selection)
        where = self._due(p, after_followers=True)
        return p.statement(f"{verb}\nWHERE {all_of(where)}")

    # By their position

    def unheld(self) -> RangeStatements:
        """Find and take rows with what follows them, where no table has any hold.

        A function in a statement, even one that is never called, makes SQLite copy every page that the statement
        changes, and functions write the key of a held row.

        A batch of a sweep that does not pause ends where it would if all rows of their state and age left: what retains
        rows otherwise, or whether a text is a timestamp, is read by the statement that takes them, and only there. With
        followers, the end is that of the rows that leave, since these are counted.
        """
        rows, paths = self.rows.sparing_held_tables(), follower_paths(self.selection)
        return RangeStatements(
            self.batch_end(rows) if paths else self.batch_end(rows.without_holds(), may_end_ahead=True),
            self._count_up_to(rows, paths) if paths else None,
            tuple((str(path[-1].reference.name), self._take_following(rows, path)) for path in paths),
            self.take_up_to(rows),
        )

    def batch_end(self, rows: Rows | None = None, *, may_end_ahead: bool = False) -> Statement:
        """Find the position of the last of the `limit` oldest due rows; nothing if fewer are due.

        SQLite merges the states along their index, row by row, if nothing comes between them and the order: no limit
        for each, and no output but the order itself.
        """
        rows = rows or self.rows
        p = rows.parameters()
        position = self.rows.position(self.selection, "t")
        named = ", ".join(f"{one} AS {name}" for one, name in zip(position, self.walk.names, strict=True))
        parts = []
        for one, states in self.walk.each():
            edge = self.walk.bind(p, "edge", self.edge) if self.edge else []
            due = rows.due(p, one, NOW, states, floored=True, edge=edge)
            if may_end_ahead:
                aged = rows.due(p, one, NOW, states, floored=True, row_only=True, unread=True, edge=edge)
                rest = all_of([condition for condition in due if condition not in aged] or ["1"])
                due = [*aged, f"({p.bind('ahead', AHEAD)} OR ({rest}))"]
            where = [*due, *self.walk.behind(p, self.floor)]
            parts.append(f"SELECT {named}\nFROM {self.table}\nWHERE {all_of(where)}")
        order, union = ", ".join(self.walk.names), nested("\nUNION ALL\n".join(parts))
        last = f"SELECT {order}\nFROM {union} AS oldest\nORDER BY {order}\nLIMIT 1 OFFSET {p.bind('limit', LIMIT)} - 1"
        return p.statement(f"WITH last AS MATERIALIZED {nested(last)}\nSELECT {self._position('last')} FROM last")

    def take_up_to(self, rows: Rows | None = None) -> Statement:
        """Take every due row up to a position: no other transaction writes between finding it and this."""
        rows = rows or self.rows
        p = rows.parameters()
        return p.statement(f"{rows.verb(p, self.selection)}\nWHERE {all_of(self._up_to(p, rows))}")

    def _up_to(self, p: Parameters, rows: Rows) -> list[str]:
        edge = self.walk.bind(p, "edge", self.edge) if self.edge else []
        where = [
            *rows.due(p, self.selection, NOW, floored=True, ended=True, edge=edge),
            *self.walk.behind(p, self.floor),
        ]
        time, *key = self.rows.position(self.selection, "t")
        at, *keys = self.walk.bind(p, "end", self.end)
        where.append(f"{time} <= {at}")
        if key:
            behind = self.rows.compare(self.rows.position_columns(self.selection)[1:], key, "<=", keys)
            where.append(f"({time} < {at} OR {behind})")
        return where

    def _count_up_to(self, rows: Rows, paths: Sequence[FollowerPath]) -> Statement:
        p = rows.parameters()
        sources = [f"{self.table} WHERE {all_of(self._up_to(p, rows))}"]
        sources += [self._following(p, rows, path) for path in paths]
        return p.statement("SELECT " + ",\n".join(f"(SELECT count(*) FROM {source})" for source in sources))

    def _take_following(self, rows: Rows, path: FollowerPath) -> Statement:
        p = rows.parameters()
        return p.statement(f"DELETE FROM {self._following(p, rows, path)}")

    def _following(self, p: Parameters, rows: Rows, path: FollowerPath) -> str:
        """Write the rows at the end of a path of followers, of those up to a position."""
        return rows.following(p, path, rows.pointed_at(self.selection, path, all_of(self._up_to(p, rows))))

    def take_oldest(self) -> Statement:
        """Find where the batch ends, then take everything due up to there, in one statement.

        The whole predicate is repeated where rows are taken, so a row that another transaction changed in the meantime
        is checked again. The statement returns how many rows it took, how many it found, and the position where the
        batch ended (NULLs if nothing is due).
        """
        p = self.rows.parameters()
        names = self.walk.names
        parts, edge = self._edge_part(p)
        oldest = self.walk.oldest(p, NOW, LIMIT, self.floor, edge=edge)
        descending = ", ".join(f"{name} DESC" for name in names)
        verb = self.rows.verb(p, self.selection)
        position = self.rows.position(self.selection, "t")
        end = self.rows.up_to_found(self.selection, position, f"SELECT {', '.join(names)} FROM last")
        where = [*self.rows.due(p, self.selection, NOW, floored=True, edge=edge), *self.walk.behind(p, self.floor), end]
        parts += [
            f"batch AS MATERIALIZED {nested(oldest)}",
            f"last AS MATERIALIZED (SELECT {', '.join(names)} FROM batch ORDER BY {descending} LIMIT 1)",
            f"gone AS {nested(f'{verb}{chr(10)}WHERE {all_of(where)}{chr(10)}RETURNING 1')}",
        ]
        return p.statement(
            f"WITH {f',{chr(10)}'.join(parts)}\n"
            f"SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM batch), {self._position('last')}\n"
            "FROM (SELECT 1) AS one LEFT JOIN last ON true"
        )

    # Beyond a cap

    def _edge_part(self, p: Parameters) -> tuple[list[str], list[str]]:
        """Write the part of a statement that finds the first row that a cap excludes, and its position in the others.

        It reads every row that stays, so it is written once, whatever the number of states.
        """
        bound, names = self.selection.rule.bound, [f"e{number}" for number in range(len(self.walk.names))]
        if not isinstance(bound, Cap):
            return [], []
        found = self.rows.edge(p, self.selection, bound)
        part = f"edge({', '.join(names)}) AS MATERIALIZED {nested(found)}"
        return [part], [f"(SELECT edge.{name} FROM edge)" for name in names]

    def find_edge(self) -> Statement:
        p, ended = self.rows.parameters(), self.dialect.ended_transactions
        [part], _ = self._edge_part(p)
        outputs = [self.dialect.encode_key(f"edge.e{number}") for number in range(len(self.walk.names))]
        return p.statement(f"WITH {part}\nSELECT {', '.join([*outputs, *([ended] if ended else [])])} FROM edge")

    def known_edge(self) -> KnownEdgeStatements:
        p, ended = self._edged_parameters(), self.dialect.ended_transactions
        verb, columns = self.rows.verb(p, self.selection), self.rows.position_columns(self.selection)
        edge = self.walk.bind(p, "edge", self.edge)
        end = self.walk.bind(p, "end", self.end)
        where = [
            f"{ended} = {p.bind('ended', Slot('ended'))}",
            # Of two bounds on a position, PostgreSQL reads up to the first: what is before the end is before the edge.
            self.rows.compare(columns, end, "<=", edge),
            *self.rows.due(p, self.selection, NOW, floored=True, edge=end),
            *self.walk.behind(p, self.floor),
        ]
        take = p.statement(f"{verb}\nWHERE {all_of(where)}")
        return KnownEdgeStatements(Statement(f"SELECT {ended}", {}), self._full_batch_end(edged=True), take)

    def _edged_parameters(self) -> Parameters:
        """Return the parameters of a statement that is planned for every batch beyond a cap.

        To estimate how many rows are later than a value, PostgreSQL's planner reads where an index begins: from batch
        to batch it would read the entries of all rows that earlier ones took.
        """
        return Parameters(self.dialect, unplanned=("earliest",))

    def _position(self, source: str) -> str:
        return ", ".join(self.dialect.encode_key(f"{source}.{name}") for name in self.walk.names)

    # At once

    def at_once(self) -> AtOnceStatements:
        p = self.rows.parameters()
        where = all_of(self._due_up_to_end(p))
        return AtOnceStatements(
            self._batch_end_time() if self._by_time else None,
            self._full_batch_end(),
            self._take_with_followers(self._due_up_to_end),
            self._take_with_followers(self._due_between_times if self._by_time else self._due_behind_floor),
            p.statement(f"SELECT 1 FROM {self.table}\nWHERE {where}\nLIMIT 1"),
            self._gone_columns(),
            tuple((path, self._take_unkeyed(path[0])) for path in unkeyed_paths(self.selection)),
        )

    def _gone_columns(self) -> tuple[Column, ...]:
        """Return the columns to which rows refer that are taken by a later statement."""
        references = [path[0].reference for path in unkeyed_paths(self.selection)]
        return tuple(dict.fromkeys(column for one in references for column in one.to))

    def _take_unkeyed(self, follower: BoundFollower) -> Statement:
        p, columns = self.rows.parameters(), self._gone_columns()
        arrays = [
            f"{p.bind('gone', Slot(f'gone_{columns.index(one)}'))}::{one.type}[]" for one in follower.reference.to
        ]
        names = ", ".join(self.dialect.quote(one.name) for one in follower.reference.to)
        where = [self.rows.refers(follower.reference, "f", "gone"), *self.rows.fixed(p, follower, "f")]
        return p.statement(
            f"DELETE FROM {self.dialect.table(follower.reference.table)} AS f"
            f" USING unnest({', '.join(arrays)}) AS gone({names})\nWHERE {all_of(where)}"
        )

    def _full_batch_end(self, *, edged: bool = False) -> Statement:
        """Find the position of the last of the `limit` oldest rows that are due but for what retains them.

        Whether their times are timestamps is not read either.

        With `edged`, of those that are due, before the known edge of a cap.
        """
        p = self._edged_parameters() if edged else self.rows.parameters()
        edge = self.planned_walk.bind(p, "edge", self.edge) if edged else []
        last = self.planned_walk.last(p, NOW, LIMIT, self.floor, row_only=not edged, edge=edge)
        # Written outside, or every row before the last would be written too.
        return p.statement(f"SELECT {self._position('last')}\nFROM {nested(last)} AS last")

    @property
    def _by_time(self) -> bool:
        """Return whether batches end at a time where they can: sorting by keys takes longer than deleting."""
        return len(self.walk.names) > 1 and not orders_keys(self.selection, "postgres")

    def _batch_end_time(self) -> Statement:
        p = self.rows.parameters()
        after, last = self.planned_walk.last_time(p, NOW, LIMIT, self.floor)
        parts = f"after AS MATERIALIZED {nested(after)},\nlast AS MATERIALIZED {nested(last)}"
        found = [f"(SELECT {self.dialect.encode_key('last.row_time')} FROM last)", "NOT EXISTS (SELECT 1 FROM after)"]
        return p.statement(f"WITH {parts}\nSELECT {', '.join(found)}")

    def _due_within(self, p: Parameters, *bounds: str) -> list[str]:
        return [*self.rows.due(p, self.selection, NOW, floored=True), *bounds]

    def _due_behind_floor(self, p: Parameters) -> list[str]:
        return self._due_within(p, *self.planned_walk.behind(p, self.floor))

    def _due_up_to_end(self, p: Parameters) -> list[str]:
        where, position = self._due_behind_floor(p), self.planned_walk.up_to(p, self.end, "end")
        if not self._by_time:
            return [*where, position]
        _, key, *_ = self.planned_walk.bind(p, "end", self.end)
        return [*where, self._beside_time(p, "<=", "end", self.end), f"({key} IS NULL OR {position})"]

    def _due_between_times(self, p: Parameters) -> list[str]:
        since = self._beside_time(p, ">", "floor", self.floor)
        return self._due_within(p, since, self._beside_time(p, "<=", "end", self.end))

    def _beside_time(self, p: Parameters, sign: str, name: str, position: Sequence[Slot]) -> str:
        columns, (time, *_) = self.rows.position_columns(self.selection), self.rows.position(self.selection, "t")
        at, *_ = self.planned_walk.bind(p, name, position)
        return self.rows.compare(columns[:1], [time], sign, [at])

    def _take_with_followers(self, due: Callable[[Parameters], list[str]]) -> Statement:
        """Take every row that meets some conditions, and in the same statement what follows these rows."""
        p, paths = self.rows.parameters(), follower_paths(self.selection)
        verb = self.rows.verb(p, self.selection)
        take = f"{verb}\nWHERE {all_of(due(p))}"
        if not paths:
            return p.statement(take)
        own = f"{take}\n{self._returning(self.selection.followers, 't')}"
        later = unkeyed_paths(self.selection)
        keyed = [path for path in paths if path not in later]
        parts = [f"gone AS {nested(own)}"]
        # A part may use only what was written before it.
        parts += [
            f"{_gone(paths, path)} AS {nested(self._take_with(p, paths, path))}" for path in sorted(keyed, key=len)
        ]
        found = [f"(SELECT count(*) FROM {one})" for one in ("gone", *(_gone(paths, path) for path in keyed))]
        gone = [self.rows.column(one, "gone") for one in self._gone_columns()]
        found += [f"(SELECT array_agg({one}) FROM gone)" for one in gone]
        return p.statement(f"WITH {f',{chr(10)}'.join(parts)}\nSELECT {', '.join(found)}")

    def _take_with(self, p: Parameters, paths: Sequence[FollowerPath], path: FollowerPath) -> str:
        """Write the DELETE of the rows that follow those which another part of the same statement takes."""
        follower, above = path[-1], _gone(paths, path[:-1])
        where = [self.rows.refers(follower.reference, "f", above), *self.rows.fixed(p, follower, "f")]
        where += self._not_live(p, follower, "f")
        table = self.dialect.table(follower.reference.table)
        returned = self._returning(follower.followers, "f")
        return f"DELETE FROM {table} AS f USING {above}\nWHERE {all_of(where)}\n{returned}"

    def _returning(self, followers: Sequence[BoundFollower], alias: str) -> str:
        """Write what a DELETE returns: the columns that the rows which follow refer to."""
        to = dict.fromkeys(column for one in followers for column in one.reference.to)
        return f"RETURNING {self.rows.columns(list(to), alias) or '1'}"

    # Followers

    def follower(self, path: tuple[BoundFollower, ...]) -> FollowerStatements:
        locked = self.dialect.locks_rows and path in locked_paths(self.selection)
        p = self.rows.parameters()
        source, deeper = self._followers_of(p, path), bool(path[-1].followers)
        return FollowerStatements(
            path,
            p.statement(_locking(source, path)) if locked else None,
            p.statement(f"DELETE FROM {source}"),
            p.statement(f"SELECT 1 FROM {source}\nLIMIT 1"),
            self._identify_some(path) if deeper else self._delete_some(path),
            self._delete_childless(path[-1]) if deeper else None,
        )

    def _followers_of(self, p: Parameters, path: Sequence[BoundFollower]) -> str:
        """Write the table at the end of a path of followers, and the condition that its rows follow some keys."""
        if self.dialect.typed_keys and path[0].reference.to == self.selection.key:
            return self.rows.following(p, path, self.dialect.keys(p, self.selection.key, None))
        where = self.rows.among(p, self.selection, None)
        return self.rows.following(p, path, self.rows.pointed_at(self.selection, path, where))

    def _delete_some(self, path: Sequence[BoundFollower]) -> Statement:
        p, follower = self.rows.parameters(), path[-1]
        identity = [f"f{len(path) - 1}.{name}" for name in self.rows.identity(follower)]
        some = self._some_of(p, path, identity)
        where = [self.rows.one_of_followers(follower, "d", some), *self._not_live(p, follower)]
        return p.statement(f"DELETE FROM {self.dialect.table(follower.reference.table)} AS d\nWHERE {all_of(where)}")

    def _identify_some(self, path: Sequence[BoundFollower]) -> Statement:
        p, alias = self.rows.parameters(), f"f{len(path) - 1}"
        outputs = [self.dialect.encode_key(f"{alias}.{name}") for name in self.rows.identity(path[-1])]
        return p.statement(f"{self._some_of(p, path, outputs)}{self.dialect.locking(alias)}")

    def _some_of(self, p: Parameters, path: Sequence[BoundFollower], outputs: Sequence[str]) -> str:
        source, links = self.rows.chain(p, path, "t")
        where = all_of([links, *self._due(p), *self._not_the_latest(path)])
        return (
            f"SELECT {', '.join(outputs)}\nFROM {self.table}, {source}\nWHERE {where}\nLIMIT {p.bind('limit', LIMIT)}"
        )

    def _not_the_latest(self, path: Sequence[BoundFollower]) -> list[str]:
        """Write the condition that another row of a follower that holds a row's time stays, and is the later one.

        Without any, the row would have no time and stay for good.
        """
        other = self.selection.other_time
        if other is None or len(path) > 1 or not self.selection.holds_time(path[0]):
            return []
        identity = self.rows.identity(path[0])
        order = self.dialect.order("o", other.column, other.time), self.dialect.order("f0", other.column, other.time)
        later, earlier = (self.rows.row([f"{one}.{name}" for name in identity]) for one in ("o", "f0"))
        source = f"{self.dialect.table(other.reference.table)} AS o WHERE {self.rows.refers(other.reference, 'o', 't')}"
        behind = f"{order[0]} > {order[1]} OR ({order[0]} = {order[1]} AND {later} > {earlier})"
        found = self.dialect.finds_some(f"SELECT 1 FROM {source} AND ({behind})")
        return [f"({self.rows.column(other.column, 'f0')} IS NULL OR {found})"]

    def _delete_childless(self, follower: BoundFollower) -> Statement:
        p = self.rows.parameters()
        conditions = [self.rows.among_found(p, follower, None, "d"), *self._not_live(p, follower)]
        for inner in follower.followers:
            where = " AND ".join([self.rows.refers(inner.reference, "g", "d"), *self.rows.fixed(p, inner, "g")])
            conditions.append(
                self.dialect.finds_nothing(
                    f"SELECT 1 FROM {self.dialect.table(inner.reference.table)} AS g WHERE {where}"
                )
            )
        table = self.dialect.table(follower.reference.table)
        return p.statement(f"DELETE FROM {table} AS d\nWHERE {all_of(conditions)}")

    def _not_live(self, p: Parameters, follower: BoundFollower, alias: str = "d") -> list[str]:
        """Write the condition that a row is not live now.

        It is evaluated on the version that is deleted: the row may have changed since it was found.
        """
        live = self.rows.live(p, follower, alias)
        return [f"{live} IS NOT TRUE"] if live else []


def _gone(paths: Sequence[FollowerPath], path: FollowerPath) -> str:
    """Name the part of a statement that takes the rows at the end of a path of followers."""
    return f"gone_{paths.index(path)}" if path else "gone"


def lock_below(
    rows: Rows, follower: BoundFollower, path: Sequence[BoundFollower], found: Sequence[tuple[Any, ...]]
) -> Statement:
    """Lock (PostgreSQL) every row at the end of a path that begins at identified rows of a follower."""
    p = rows.parameters()
    return p.statement(_locking(_below(p, rows, follower, path, found), path))


def delete_below(
    rows: Rows, follower: BoundFollower, path: Sequence[BoundFollower], found: Sequence[tuple[Any, ...]]
) -> Statement:
    """Delete every row at the end of a path that begins at identified rows of a follower."""
    p = rows.parameters()
    return p.statement(f"DELETE FROM {_below(p, rows, follower, path, found)}")


def delete_identified(rows: Rows, follower: BoundFollower, found: Sequence[tuple[Any, ...]]) -> Statement:
    """Delete identified rows of a follower."""
    p = rows.parameters()
    table = rows.dialect.table(follower.reference.table)
    return p.statement(f"DELETE FROM {table} AS d WHERE {rows.among_found(p, follower, found, 'd')}")


def _below(
    p: Parameters,
    rows: Rows,
    follower: BoundFollower,
    path: Sequence[BoundFollower],
    found: Sequence[tuple[Any, ...]],
) -> str:
    to, table = rows.columns(path[0].reference.to, "d"), rows.dialect.table(follower.reference.table)
    leaving = f"SELECT {to} FROM {table} AS d WHERE {rows.among_found(p, follower, found, 'd')}"
    return rows.following(p, path, leaving)


def _locking(source: str, path: Sequence[BoundFollower]) -> str:
    """Lock the rows at the end of a path of followers; return only their number."""
    return f"SELECT count(*) FROM (SELECT 1 FROM {source} FOR UPDATE OF f{len(path) - 1}) AS locked"
