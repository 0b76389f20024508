"""The order in which a rule's rows leave: oldest first, walked along an index and continued behind a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wane._contract.model import State
from wane._db.statement import Parameters, Slot, When
from wane._rules.rows import Rows, all_of, nested
from wane._rules.selection import Selection


class Walk:
    """Writes queries for the oldest due rows of one rule."""

    def __init__(self, rows: Rows, selection: Selection) -> None:
        self.rows = rows
        self.selection = selection
        self.keys = [f"key_{number}" for number in range(len(selection.key))]
        """The names that `oldest` gives a row's key."""
        timed = selection.time_column.name
        self.names = ["row_time", *(f"key_{n}" for n, column in enumerate(selection.key) if column.name != timed)]
        """The names that `oldest` gives a row's position."""

    def each(self) -> list[tuple[Selection, list[State] | None]]:
        """Split the selection into walks along an index: one for each state and each unit of the time."""
        states: list[list[State] | None] = [[state] for state in self.selection.rule.states] or [None]
        return [(replace(self.selection, time=time), one) for one in states for time in self.selection.time.each]

    def behind(self, p: Parameters, floor: Sequence[object] | None) -> list[str]:
        """Write the condition that rows are behind a position: where the batch before ended."""
        return [] if floor is None else [self._beside(p, ">", "floor", floor)]

    def up_to(self, p: Parameters, ceiling: Sequence[object], name: str = "ceiling") -> str:
        """Write the condition that rows are at or before a position."""
        return self._beside(p, "<=", name, ceiling)

    def bind(self, p: Parameters, name: str, position: Sequence[object]) -> list[str]:
        """Bind the parts of a position that was read by `encode_key`."""
        columns = self.rows.position_columns(self.selection)
        return [
            self.rows.dialect.decode_key(p, f"{name}_{'key' if number else 'time'}", column, value)
            for number, (column, value) in enumerate(zip(columns, position, strict=True))
        ]

    def _beside(self, p: Parameters, sign: str, name: str, position: Sequence[object]) -> str:
        columns = self.rows.position_columns(self.selection)
        mine = self.rows.position(self.selection, "t")
        return self.rows.compare(columns, mine, sign, self.bind(p, name, position))

    def oldest(
        self,
        p: Parameters,
        now: When,
        limit: int | Slot,
        floor: Sequence[object] | None = None,
        outputs: Sequence[str] = ("*",),
        *,
        alone: bool = False,
    ) -> str:
        """Write the query for the oldest due rows (key_0, key_1, …, row_time), oldest first; `alone`: see `Rows.due`.

        Each state is walked along its own index range, then the walks are merged.
        """
        rows, selection = self.rows, self.selection
        n = p.bind("limit", limit)
        ascending = ", ".join(rows.position(selection, "t"))
        keys = [f"{rows.column(column)} AS {name}" for column, name in zip(selection.key, self.keys, strict=True)]
        time = rows.dialect.order("t", selection.time_column, selection.time)
        parts = []
        for number, (one, states) in enumerate(self.each()):
            where = [*rows.due(p, one, now, states, floored=floor is not None, alone=alone), *self.behind(p, floor)]
            part = (
                f"SELECT {', '.join(keys)}, {time} AS row_time\nFROM {rows.dialect.table(selection.table)} AS t\n"
                f"WHERE {all_of(where)}\nORDER BY {ascending}\nLIMIT {n}"
            )
            parts.append(f"SELECT * FROM {nested(part)} AS s{number}")
        # Qualified, because an output may have the name of the key that it shows as text.
        merged = ", ".join(f"oldest.{name}" for name in self.names)
        union = nested("\nUNION ALL\n".join(parts))
        return f"SELECT {', '.join(outputs)}\nFROM {union} AS oldest\nORDER BY {merged}\nLIMIT {n}"
