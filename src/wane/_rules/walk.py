"""The order in which a rule's rows leave: oldest first, walked along an index and continued behind a position."""

from __future__ import annotations

from collections.abc import Sequence

from wane._contract.model import State
from wane._db.statement import Parameters, Slot, When
from wane._rules.rows import Rows, all_of, nested
from wane._rules.selection import Selection


class Walk:
    """Writes queries for the oldest due rows of one rule."""

    def __init__(self, rows: Rows, selection: Selection, *, decoded_once: bool = False, by_state: bool = True) -> None:
        """Bind the rule; with `decoded_once`, each position is decoded by a query that a plan runs only once.

        A plan that is made before the positions are known would decode them for every row that it compares with them.
        Without `by_state`, one walk finds the rows of all states: for an index that has the time, but no states.
        """
        self.rows = rows
        self.selection = selection
        self._decoded_once = decoded_once
        self._by_state = by_state
        self.keys = [f"key_{number}" for number in range(len(selection.key))]
        """The names that `oldest` gives a row's key."""
        behind = rows.key_position(selection)
        keys = [name for name, column in zip(self.keys, selection.key, strict=True) if column in behind]
        self.names = keys if selection.own_time is None else ["row_time", *keys]
        """The names that `oldest` gives a row's position."""

    def each(self) -> list[tuple[Selection, list[State] | None]]:
        """Split the selection into walks along an index: one for each state and each column and unit of the time."""
        walked = self.selection.rule.states if self._by_state else ()
        states: list[list[State] | None] = [[state] for state in walked] or [None]
        return [(part, one) for one in states for part in self.selection.walks()]

    def behind(self, p: Parameters, floor: Sequence[object] | None, walked: Selection | None = None) -> list[str]:
        """Write the condition that rows, or those of one walk, are behind a position: where the batch before ended."""
        return [] if floor is None else [self._beside(p, ">", "floor", floor, walked)]

    def since(self, p: Parameters, first: Sequence[object]) -> str:
        """Write the condition that rows are at or behind a position."""
        return self._beside(p, ">=", "floor", first)

    def up_to(self, p: Parameters, ceiling: Sequence[object], name: str = "ceiling") -> str:
        """Write the condition that rows are at or before a position."""
        return self._beside(p, "<=", name, ceiling)

    def bind(self, p: Parameters, name: str, position: Sequence[object]) -> list[str]:
        """Bind the parts of a position that was read by `encode_key`."""
        columns = self.rows.position_columns(self.selection)
        decoded = [
            self.rows.dialect.decode_key(p, f"{name}_{'time' if part == 'row_time' else 'key'}", column, value)
            for part, column, value in zip(self.names, columns, position, strict=True)
        ]
        return [f"(SELECT {one})" for one in decoded] if self._decoded_once else decoded

    def _beside(
        self, p: Parameters, sign: str, name: str, position: Sequence[object], walked: Selection | None = None
    ) -> str:
        columns = self.rows.position_columns(self.selection)
        mine = self.rows.position(walked or self.selection, "t")
        return self.rows.compare(columns, mine, sign, self.bind(p, name, position))

    def oldest(
        self,
        p: Parameters,
        now: When,
        limit: int | Slot,
        floor: Sequence[object] | None = None,
        outputs: Sequence[str] = ("*",),
        *,
        row_only: bool = False,
        edge: Sequence[str] = (),
    ) -> str:
        """Write the query for the oldest due rows (key_0, key_1, …, row_time), oldest first.

        `edge`: see `Rows.due`; `row_only` leaves out what `row_only` and `unread` do there.

        Each state is walked along its own index range, then the walks are merged.
        """
        n = p.bind("limit", limit)
        parts = [f"{one}\nLIMIT {n}" for one in self._walks(p, now, floor, row_only=row_only, edge=edge)]
        return f"SELECT {', '.join(outputs)}\nFROM {_merged(parts)} AS oldest\nORDER BY {self._order}\nLIMIT {n}"

    def last(
        self,
        p: Parameters,
        now: When,
        limit: int | Slot,
        floor: Sequence[object] | None,
        *,
        row_only: bool = False,
        edge: Sequence[str] = (),
    ) -> str:
        """Write the query for the position of the last of the `limit` oldest due rows; it finds nothing among fewer."""
        n = p.bind("limit", limit)
        parts = self._walks(p, now, floor, row_only=row_only, edge=edge)
        outputs = ", ".join(f"oldest.{name}" for name in self.names)
        if len(parts) == 1:
            return f"SELECT {outputs}\nFROM {nested(f'{parts[0]}{chr(10)}LIMIT 1 OFFSET {n} - 1')} AS oldest"
        merged = _merged([f"{one}\nLIMIT {n}" for one in parts])
        return f"SELECT {outputs}\nFROM {merged} AS oldest\nORDER BY {self._order}\nLIMIT 1 OFFSET {n} - 1"

    def last_time(self, p: Parameters, now: When, limit: int | Slot, floor: Sequence[object]) -> tuple[str, str]:
        """Write the query for the time of the first row that does not fit, where `limit` due rows do, alone, from a
        position on; and the one for the latest time before that one, which is named `after`.

        They read times only, so an index without the key answers them. The first finds nothing if no more rows are due
        than fit, and then the second finds the latest time; otherwise it finds nothing if the rows that fit are of the
        time of the position, or of one time.
        """
        n, (since, *_) = p.bind("limit", limit), self.bind(p, "floor", floor)
        next_one = self._times(p, now, [(">=", since)], "", f"LIMIT {n} + 1")
        after = f"SELECT row_time\nFROM {next_one} AS next_one\nORDER BY row_time\nLIMIT 1 OFFSET {n}"
        ahead = [(">", since), ("<", "(SELECT row_time FROM after)")]
        before, latest = (self._times(p, now, bounds, " DESC", "LIMIT 1") for bounds in (ahead, [(">=", since)]))
        return after, (
            f"SELECT row_time\nFROM (\nSELECT row_time FROM {before} AS before\nUNION ALL\n"
            f"SELECT row_time FROM {latest} AS latest WHERE NOT EXISTS (SELECT 1 FROM after)\n) AS ends\n"
            "ORDER BY row_time DESC\nLIMIT 1"
        )

    def _times(self, p: Parameters, now: When, bounds: Sequence[tuple[str, str]], order: str, end: str) -> str:
        """Write a query for the times of the rows of each walk within some bounds, in an order."""
        columns, parts = self.rows.position_columns(self.selection)[:1], []
        for one, states in self.each():
            time = self.rows.position(one, "t")[:1]
            where = self.rows.due(p, one, now, states, floored=True, row_only=True, unread=True)
            where += [self.rows.compare(columns, time, sign, [value]) for sign, value in bounds]
            parts.append(
                f"SELECT {time[0]} AS row_time\nFROM {self.rows.dialect.table(self.selection.table)} AS t\n"
                f"WHERE {all_of(where)}\nORDER BY {time[0]}{order}\n{end}"
            )
        return _merged(parts)

    @property
    def _order(self) -> str:
        # Qualified, because an output may have the name of the key that it shows as text.
        return ", ".join(f"oldest.{name}" for name in self.names)

    def _walks(
        self, p: Parameters, now: When, floor: Sequence[object] | None, *, row_only: bool, edge: Sequence[str]
    ) -> list[str]:
        """Write a query for each walk, in its order."""
        rows, selection, walks = self.rows, self.selection, []
        keys = [f"{rows.column(column)} AS {name}" for column, name in zip(selection.key, self.keys, strict=True)]
        for one, states in self.each():
            position = rows.position(one, "t")
            outputs = keys if one.own_time is None else [*keys, f"{position[0]} AS row_time"]
            floored = floor is not None
            where = rows.due(p, one, now, states, floored=floored, row_only=row_only, unread=row_only, edge=edge)
            where += self.behind(p, floor, one)
            walks.append(
                f"SELECT {', '.join(outputs)}\nFROM {rows.dialect.table(selection.table)} AS t\n"
                f"WHERE {all_of(where)}\nORDER BY {', '.join(position)}"
            )
        return walks


def _merged(walks: Sequence[str]) -> str:
    return nested("\nUNION ALL\n".join(f"SELECT * FROM {nested(one)} AS s{n}" for n, one in enumerate(walks)))
