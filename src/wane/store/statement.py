"""Writing statements: their texts, the values bound to them, and what differs between the stores.

Identifiers are quoted by the dialect's one function; values are bound, never written into the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane.contract.model import State, Time
from wane.store.schema import Column, TableInfo
from wane.store.selection import BoundFollower


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's exact text and the values bound to it."""

    text: str
    parameters: dict[str, object]


class Parameters:
    """Collects the values of one statement and hands out their placeholders."""

    def __init__(self, dialect: Dialect, suffix: str = "") -> None:
        """Every name ends with the suffix: what several wrote can be put together then."""
        self.dialect = dialect
        self.values: dict[str, object] = {}
        self._suffix = suffix
        self._bound: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}

    def bind(self, name: str, value: object) -> str:
        """The placeholder for a value; the same value under the same name is bound once."""
        # True equals 1, and a list of one the list of the other; a database knows the difference.
        written = repr(value)
        unique = self._bound.get((name, written))
        # Whoever wrote another value in its place since meant that one.
        if unique is None or repr(self.values[unique]) != written:
            unique = self._unused(name)
            self._bound[name, written] = unique
            self.values[unique] = value
        return self.dialect.placeholder(unique)

    def _unused(self, name: str) -> str:
        number = self._numbers.get(name, 1)
        unique = f"{name}{self._suffix}" if number == 1 else f"{name}_{number}{self._suffix}"
        while unique in self.values:
            number += 1
            unique = f"{name}_{number}{self._suffix}"
        self._numbers[name] = number + 1
        return unique

    def statement(self, text: str) -> Statement:
        return Statement(text, dict(self.values))


class Dialect(ABC):
    """What differs between the stores when they speak of users' rows."""

    json_each: str = "json_each"
    """The function that lists the keys and values of a JSON object."""
    typed_keys = False
    """Whether keys that come back are compared like the columns they came from, so that those need not be read again."""

    @staticmethod
    def quote(name: str) -> str:
        """The one place where an identifier becomes SQL."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, table: TableInfo) -> str:
        return f"{self.quote(table.schema)}.{self.quote(table.name)}"

    @abstractmethod
    def placeholder(self, name: str) -> str:
        """How a bound value is written."""

    @abstractmethod
    def order(self, alias: str, column: Column, time: Time) -> str:
        """The expression that orders rows by time, as an index on the column does. Texts with different lengths of fraction may
        stand in another order than the moments they mean, inside one second."""

    @abstractmethod
    def exact(self, alias: str, column: Column, time: Time) -> str:
        """The expression that orders plausible values exactly like the moments they mean."""

    @abstractmethod
    def plausible(self, p: Parameters, alias: str, column: Column, time: Time) -> list[str]:
        """Conditions under which the column's value is a moment, written as declared; the last one is that it is no placeholder."""

    @abstractmethod
    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        """Conditions under which a plausible value means a moment before the given one (inclusive: or at it)."""

    @abstractmethod
    def since(self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime) -> list[str]:
        """Conditions under which a value is plausible and means the given moment or a later one; texts are compared to the second.

        For counting, where an index must find the first of them: what is due is `before`'s to say.
        """

    @abstractmethod
    def instant(self, expression: str, time: Time) -> str:
        """What a plausible value of one unit means, so that values of several units can be compared."""

    @abstractmethod
    def walks(self, column: Column, time: Time) -> bool:
        """Whether an index on the column is in the order of time, for values of each unit: not of numbers that are written as texts."""

    def any_unit(self, each: Sequence[Sequence[str]]) -> list[str]:
        """The condition that a value is as one of several units has it: all conditions of that unit, and no other's."""
        return ["(" + " OR ".join(f"({' AND '.join(conditions)})" for conditions in each) + ")"]

    @abstractmethod
    def one_of(self, p: Parameters, name: str, expression: str, column: Column, states: Sequence[State]) -> str:
        """The condition that a column holds one of some values."""

    @abstractmethod
    def bytewise(self, expression: str, column: Column) -> str:
        """A column's value, compared by its bytes where the column itself would compare more loosely."""

    @abstractmethod
    def equal(self, p: Parameters, name: str, expression: str, column: Column, value: object) -> str:
        """The condition that a column holds a value, or is NULL if the value is None; an index on the column serves it."""

    def sign(self, sign: str, column: Column) -> str:
        """A comparison with a column's values, as the column's type defines it."""
        del column
        return sign

    def count_up_to(self, table: TableInfo, most: str, *, alone: bool) -> str:
        """A query that counts the rows of a table, up to a number that is bound or written. `alone`: nothing inherits from it."""
        del alone
        return f"SELECT count(*) FROM (SELECT 1 FROM {self.table(table)} LIMIT {most}) AS some_rows"

    @abstractmethod
    def none(self, query: str) -> str:
        """The condition that a query finds nothing, asked row by row and answered by the first row that it finds."""

    @abstractmethod
    def compared(self, expression: str, column: Column, to: Column) -> list[str]:
        """A column that refers to another one, in every way in which it must be found among that one's values."""

    @abstractmethod
    def identity(self, follower: BoundFollower) -> list[str]:
        """Columns, quoted, that tell any two rows of a follower apart: its key, or what the store itself knows rows by."""

    @abstractmethod
    def identified(self, p: Parameters, follower: BoundFollower, found: Sequence[tuple[Any, ...]]) -> str:
        """Identities that were read by `out`, as a query that returns them again."""

    @abstractmethod
    def locking(self, alias: str) -> str:
        """Return what a SELECT ends with so that nothing changes the rows it read until the transaction has ended."""

    @abstractmethod
    def assign(self, p: Parameters, column: Column, value: object) -> str:
        """A bound value of a column's type, to be written to it."""

    # Keys on their way through the client

    @abstractmethod
    def out(self, expression: str) -> str:
        """A value as it is read, so that `back` means the same value again."""

    @abstractmethod
    def back(self, p: Parameters, name: str, column: Column, value: object) -> str:
        """A value that was read by `out`, bound again."""

    @abstractmethod
    def keys(self, p: Parameters, columns: Sequence[Column], keys: Sequence[tuple[Any, ...]]) -> str:
        """Keys that were read by `out`, as a query that gives them again."""

    @abstractmethod
    def recheck(self, conditions: Sequence[str]) -> str:
        """Conditions on rows that are found by their keys: checked on each, and no way to find them."""

    # Wane's own tables

    @abstractmethod
    def own(self, name: str) -> str:
        """One of Wane's own tables."""

    @abstractmethod
    def key_text(self, columns: Sequence[Column], alias: str) -> str:
        """A row's key as one text, as holds write it: equal for the same row only."""

    def names_table(self, expression: str, names: Sequence[str]) -> str:
        """The condition that a text is one of some tables' full names, as the database compares names."""
        return f"{expression} = {names[0]}" if len(names) == 1 else f"{expression} IN ({', '.join(names)})"

    @abstractmethod
    def in_force(self, hold: str) -> str:
        """The condition that a hold is in force, by the database's clock."""

    @abstractmethod
    def json(self, placeholder: str) -> str:
        """A bound JSON text."""

    @abstractmethod
    def json_count(self, column: str, key: str) -> str:
        """The number that a column of JSON holds under a key; NULL if it holds none."""

    @abstractmethod
    def stamp(self, moment: datetime) -> object:
        """A moment as Wane's own tables write it."""

    @abstractmethod
    def moment(self, stamp: Any) -> datetime:
        """A moment as Wane's own tables wrote it."""
