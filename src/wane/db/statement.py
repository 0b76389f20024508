"""Writing statements: their texts, the values bound to them, and what differs between the stores.

Identifiers are quoted by the dialect's one function; values are bound, never written into the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane.contract.model import State, Time
from wane.db.schema import Column, TableInfo

Execute = Callable[[str, dict[str, object]], list[tuple[Any, ...]]]
"""Runs a statement inside the caller's transaction and returns its rows."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's exact text and the values bound to it."""

    text: str
    parameters: dict[str, object]


class Parameters:
    """Collects the values of one statement and hands out their placeholders."""

    def __init__(self, dialect: Dialect, suffix: str = "") -> None:
        """Begin without values. Every name ends with the suffix, so that separately written parts can be combined."""
        self.dialect = dialect
        self.values: dict[str, object] = {}
        self._suffix = suffix
        self._bound: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}

    def bind(self, name: str, value: object) -> str:
        """Return the placeholder for a value; the same value under the same name is bound once."""
        # True equals 1, and a list of one the list of the other; a database distinguishes them.
        written = repr(value)
        unique = self._bound.get((name, written))
        # A caller that has replaced the value since wants the new one to stay.
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
    """The SQL that differs between the stores for users' rows."""

    json_each: str = "json_each"
    """The function that lists the keys and values of a JSON object."""
    locks_rows: bool
    """Whether transactions lock rows. Where only one can write at a time, they need not."""
    typed_keys = False
    """Whether decoded keys compare like the columns they came from, so that those need not be read again."""

    @staticmethod
    def quote(name: str) -> str:
        """Quote an identifier. Every identifier becomes SQL here."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, table: TableInfo) -> str:
        return f"{self.quote(table.schema)}.{self.quote(table.name)}"

    @abstractmethod
    def placeholder(self, name: str) -> str:
        """Write the placeholder of a bound value."""

    @abstractmethod
    def order(self, alias: str, column: Column, time: Time) -> str:
        """Write the expression that orders rows by time, as an index on the column does.

        Texts with different lengths of fraction may sort differently from the instants they mean, inside one second.
        """

    @abstractmethod
    def exact(self, alias: str, column: Column, time: Time) -> str:
        """Write the expression that orders plausible values exactly like the instants they mean."""

    @abstractmethod
    def plausible(self, p: Parameters, alias: str, column: Column, time: Time) -> list[str]:
        """Write the conditions that the column's value is a timestamp in the declared form.

        The last one is that it is no placeholder.
        """

    @abstractmethod
    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        """Write the conditions that a plausible value means an instant before the given one (inclusive: or at it)."""

    @abstractmethod
    def since(self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime) -> list[str]:
        """Write the conditions that a value is plausible and means the given instant or a later one.

        Texts are compared to the second. For counting, where an index must find the first of them: `before` decides
        what is due.
        """

    @abstractmethod
    def instant(self, expression: str, time: Time) -> str:
        """Write the instant that a plausible value of one unit means, comparable across units."""

    @abstractmethod
    def walks(self, column: Column, time: Time) -> bool:
        """Return whether an index on the column is ordered by time, for values of each unit.

        It is not for numbers that are written as texts.
        """

    def any_unit(self, each: Sequence[Sequence[str]]) -> list[str]:
        """Write the condition that a value fits one of several units: all conditions of that unit, and no other's."""
        return ["(" + " OR ".join(f"({' AND '.join(conditions)})" for conditions in each) + ")"]

    @abstractmethod
    def one_of(self, p: Parameters, name: str, expression: str, column: Column, states: Sequence[State]) -> str:
        """Write the condition that a column holds one of some values."""

    @abstractmethod
    def bytewise(self, expression: str, column: Column) -> str:
        """Write a column's value, compared by its bytes where the column itself would compare more loosely."""

    @abstractmethod
    def equal(self, p: Parameters, name: str, expression: str, column: Column, value: object) -> str:
        """Write the condition that a column holds a value (None: is NULL); an index on the column serves it."""

    def sign(self, sign: str, column: Column) -> str:
        """Write a comparison operator for a column's values, as the column's type defines it."""
        del column
        return sign

    def count_up_to(self, table: TableInfo, most: str, *, alone: bool) -> str:
        """Write a query that counts the rows of a table, up to a number that is bound or written.

        `alone`: nothing inherits from it.
        """
        del alone
        return f"SELECT count(*) FROM (SELECT 1 FROM {self.table(table)} LIMIT {most}) AS some_rows"

    @abstractmethod
    def finds_nothing(self, query: str) -> str:
        """Write the condition that a query finds nothing, evaluated row by row up to the first row it finds."""

    @abstractmethod
    def reference_forms(self, expression: str, column: Column, to: Column) -> list[str]:
        """Write a referring column in every form in which it must be searched among the referenced column's values."""

    @abstractmethod
    def identity(self, table: TableInfo, *, inherited: bool) -> list[str]:
        """Return columns, quoted, that identify each row of a table: its key, or the store's own row identifier.

        `inherited`: other tables inherit from it, and its key is unique in each of them only.
        """

    @abstractmethod
    def identified(self, p: Parameters, table: TableInfo, found: Sequence[tuple[Any, ...]], *, inherited: bool) -> str:
        """Write identities that were read by `encode_key` as a query that returns them again."""

    @abstractmethod
    def locking(self, alias: str) -> str:
        """Return the end of a SELECT that protects the rows it read from changes until the transaction has ended."""

    @abstractmethod
    def assign(self, p: Parameters, column: Column, value: object) -> str:
        """Bind a value of a column's type, to be written to it."""

    # Keys on their way through the client

    @abstractmethod
    def encode_key(self, expression: str) -> str:
        """Write a value in the form in which `decode_key` restores it unchanged."""

    @abstractmethod
    def decode_key(self, p: Parameters, name: str, column: Column, value: object) -> str:
        """Bind a value again that was read by `encode_key`."""

    @abstractmethod
    def keys(self, p: Parameters, columns: Sequence[Column], keys: Sequence[tuple[Any, ...]]) -> str:
        """Write keys that were read by `encode_key` as a query that returns them again."""

    @abstractmethod
    def recheck(self, conditions: Sequence[str]) -> str:
        """Join conditions on rows that are found by their keys, so that the planner uses them as checks only."""

    # Wane's own tables

    @abstractmethod
    def own_table(self, name: str) -> str:
        """Return the SQL name of one of Wane's own tables."""

    @abstractmethod
    def key_text(self, columns: Sequence[Column], alias: str) -> str:
        """Write a row's key as one text, as holds write it: equal for the same row only."""

    def names_table(self, expression: str, names: Sequence[str]) -> str:
        """Write the condition that a text is one of some tables' full names, as the database compares names."""
        return f"{expression} = {names[0]}" if len(names) == 1 else f"{expression} IN ({', '.join(names)})"

    @abstractmethod
    def in_force(self, hold: str) -> str:
        """Write the condition that a hold is in force, by the database's clock."""

    @abstractmethod
    def json(self, placeholder: str) -> str:
        """Write a bound JSON text."""

    @abstractmethod
    def json_count(self, column: str, key: str) -> str:
        """Write the number that a column of JSON holds under a key; NULL if it holds none."""

    @abstractmethod
    def encode_time(self, moment: datetime) -> object:
        """Encode a timestamp for Wane's own tables."""

    @abstractmethod
    def decode_time(self, stamp: Any) -> datetime:
        """Decode a timestamp from Wane's own tables."""


class Types:
    """A store's rules for column types. Each check returns "" if the type is fine, else what is wrong with it."""

    def time(self, column: Column, time: Time, *, several: bool = False) -> str:
        """Check a time column. `several`: the column mixes values of this form with values of other forms."""
        raise NotImplementedError

    def state(self, column: Column, state: State) -> str:
        raise NotImplementedError

    def reference(self, column: Column, to: Column) -> str:
        raise NotImplementedError

    def loose(self, column: Column) -> bool:
        """Return whether the column treats different texts as equal. Unlike the others, this is a yes or no."""
        raise NotImplementedError

    def rules_allowed(self, table: TableInfo) -> str:
        raise NotImplementedError

    def shelving_allowed(self, table: TableInfo) -> str:
        """Check whether rows of a table can move to another schema of the same database."""
        raise NotImplementedError
