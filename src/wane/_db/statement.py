"""Writing statements: their texts, the values bound to them, and what differs between the stores.

Identifiers are quoted by the dialect's one function; values are bound, never written into the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Any

from wane._contract.conditions import Constant
from wane._contract.model import State, Time
from wane._db.schema import Column, TableInfo
from wane._db.timestamps import text_bound
from wane._frozen import frozen

Execute = Callable[[str, dict[str, object]], list[tuple[Any, ...]]]
"""Runs a statement inside the caller's transaction and returns its rows."""


@frozen
class Instant:
    """A time relative to the one at which a statement runs."""

    offset: timedelta = timedelta(0)

    def __add__(self, length: timedelta) -> Instant:
        return Instant(self.offset + length)

    def __sub__(self, length: timedelta) -> Instant:
        return Instant(self.offset - length)


NOW = Instant()
When = datetime | Instant
"""A time that is known when a statement is written, or one that is known when it runs."""


@frozen
class Slot:
    """A value that is known when a statement runs, by its name."""

    name: str


@frozen
class TimeSlot(Slot):
    """A bound on a time column that follows from the time at which a statement runs."""

    column: Column
    time: Time
    offset: timedelta
    inclusive: bool
    value: Callable[[datetime], object] = field(compare=False, repr=False)
    """Encodes an instant as the column does."""


@frozen
class Statement:
    """A statement's exact text and the values bound to it, of which some may be slots."""

    text: str
    parameters: dict[str, object]
    _slots: tuple[NamedSlot, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def slots(self) -> tuple[NamedSlot, ...]:
        """Return the slots among the parameters; they are found once, because a sweep fills them for every batch."""
        if self._slots is None:
            found = ((name, value) for name, value in self.parameters.items() if isinstance(value, Slot))
            object.__setattr__(self, "_slots", tuple((name, slot, *_part(slot.name)) for name, slot in found))
        assert self._slots is not None
        return self._slots

    def at(self, now: datetime) -> Statement:
        """Return the same text with a value for every slot, all of which follow from the time at which it runs."""
        times = {name: slot.value(now + slot.offset) for name, slot, *_ in self.slots if isinstance(slot, TimeSlot)}
        return Statement(self.text, {**self.parameters, **times})


NamedSlot = tuple[str, Slot, str, int | None]
"""A parameter's name, its slot, and which part of what the slot is: `floor_1` is part 1 of a floor."""


def _part(name: str) -> tuple[str, int | None]:
    whole, _, number = name.rpartition("_")
    return (whole, int(number)) if number.isdecimal() else (name, None)


class Parameters:
    """Collects the values of one statement and hands out their placeholders."""

    def __init__(self, dialect: Dialect, *, unplanned: Collection[str] = ()) -> None:
        """Begin without values; `unplanned`: the names of those that the planner is not to know."""
        self.dialect = dialect
        self._unplanned = unplanned
        self.values: dict[str, object] = {}
        self._bound: dict[tuple[str, object], str] = {}
        self._numbers: dict[str, int] = {}

    def bind(self, name: str, value: object) -> str:
        """Return the placeholder for a value; the same value under the same name is bound once."""
        # True equals 1, and a list of one the list of the other; a database distinguishes them.
        written = value if isinstance(value, Slot) else repr(value)
        unique = self._bound.get((name, written))
        if unique is None:
            unique = self._unused(name)
            self._bound[name, written] = unique
            self.values[unique] = value
        placeholder = self.dialect.placeholder(unique)
        return f"(SELECT {placeholder})" if name in self._unplanned else placeholder

    def bind_time(
        self,
        name: str,
        when: When,
        column: Column,
        time: Time,
        value: Callable[[datetime], object],
        *,
        inclusive: bool = False,
    ) -> str:
        """Return the placeholder for an instant, encoded by a function as the column encodes it."""
        if isinstance(when, datetime):
            return self.bind(name, value(when))
        # Columns of one type share their values, whatever their names and tables are.
        shared = replace(column, name="", nullable=True)
        return self.bind(name, TimeSlot(name, shared, time, when.offset, inclusive, value))

    def _unused(self, name: str) -> str:
        number = self._numbers.get(name, 1)
        unique = name if number == 1 else f"{name}_{number}"
        while unique in self.values:
            number += 1
            unique = f"{name}_{number}"
        self._numbers[name] = number + 1
        return unique

    def statement(self, text: str) -> Statement:
        return Statement(text, dict(self.values))


def text_literal(text: str) -> str:
    """Write a text as a literal. Only where nothing can be bound: in definitions, and in statements for people."""
    return "'" + text.replace("'", "''") + "'"


class Dialect(ABC):
    """The SQL that differs between the stores for users' rows."""

    json_each: str = "json_each"
    """The function that lists the keys and values of a JSON object."""
    locks_rows: bool
    """Whether transactions lock rows. Where only one can write at a time, they need not."""
    ended_transactions: str | None = None
    """Counts the transactions that had ended, other than the statement's own, when a statement began; None where the
    connection knows whether others have changed anything."""
    reads_few = False
    """Whether reading all of a small table once is quicker than reading its indexes one by one."""
    typed_keys = False
    """Whether decoded keys compare like the columns they came from, so that those need not be read again."""

    @staticmethod
    def quote(name: str) -> str:
        """Quote an identifier. Every identifier becomes SQL here."""
        return '"' + name.replace('"', '""') + '"'

    @abstractmethod
    def index_ddl(self, table: TableInfo, columns: Sequence[Column], time: Column | None, where: str = "") -> str:
        """Write the statement that would create an index, for users to copy."""

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
    def greatest(self, expressions: Sequence[str]) -> str:
        """Write the largest of several values that is not NULL; NULL if all of them are."""

    @abstractmethod
    def ordered_key(self, alias: str, column: Column) -> list[str]:
        """Write the conditions that a key's value has a form whose values ascend as rows are inserted.

        That is a whole number, a UUID of version 7 or a ULID.
        """

    @abstractmethod
    def lowest_key(self, column: Column) -> object:
        """Return a value that sorts before every key of such a form, as `encode_key` returns values."""

    def highest_key(self, column: Column) -> object:
        """Return a value that sorts after every key of such a form, where statements need one."""
        del column
        return None

    @abstractmethod
    def encoding(self, column: Column, time: Time, *, inclusive: bool) -> Callable[[datetime], object] | None:
        """Return the function that encodes an instant as a column of one unit does; None if that unit is a text."""

    @abstractmethod
    def compared(self, alias: str, column: Column, time: Time, sign: str, bound: str) -> str:
        """Write the comparison of a plausible value with a bound that `encoding` returned."""

    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, when: When, *, inclusive: bool
    ) -> list[str]:
        """Write the conditions that a plausible value means an instant before the given one (inclusive: or at it)."""
        if time.also:
            # A text of one unit may sort before the bound of another: a bound applies to values of its own unit only.
            return self.any_unit(
                [
                    [
                        *self.plausible(p, alias, column, one),
                        *self.before(p, alias, column, one, when, inclusive=inclusive),
                    ]
                    for one in time.each
                ]
            )

        def bind(name: str, value: Callable[[datetime], object]) -> str:
            return p.bind_time(name, when, column, time, value, inclusive=inclusive)

        sign = "<=" if inclusive else "<"
        encoding = self.encoding(column, time, inclusive=inclusive)
        if encoding is not None:
            return [self.compared(alias, column, time, sign, bind("cutoff", encoding))]
        expression, exact = self.order(alias, column, time), self.exact(alias, column, time)
        next_second = bind("cutoff_next_second", lambda at: text_bound(at, time, inclusive=inclusive).next_second)
        second = bind("cutoff_second", lambda at: text_bound(at, time, inclusive=inclusive).second)
        cutoff = bind("cutoff", lambda at: text_bound(at, time, inclusive=inclusive).exact)
        return [f"{expression} < {next_second}", f"({expression} < {second} OR {exact} {sign} {cutoff})"]

    @abstractmethod
    def past_window(self, p: Parameters, alias: str, column: Column, time: Time, now: When, window: str) -> str:
        """Write the condition that a plausible value means an instant more than a window before now.

        `window` is written in microseconds, and at most a hundred years. Times have one unit, and are in UTC.
        """

    def since(self, p: Parameters, alias: str, column: Column, time: Time, when: When) -> list[str]:
        """Write the conditions that a value is plausible and means the given instant or a later one.

        Texts are compared to the second. For counting, where an index must find the first of them: `before` decides
        what is due.
        """
        if time.also:
            return self.any_unit([self.since(p, alias, column, one, when) for one in time.each])
        # Of two lower bounds SQLite walks an index from the first.
        shape = self.plausible(p, alias, column, time)[:-1]
        encoding = self.encoding(column, time, inclusive=False)
        if encoding is not None:
            first = p.bind_time("since", when, column, time, encoding)
            return [*shape, self.compared(alias, column, time, ">=", first)]
        first = p.bind_time("since", when, column, time, lambda at: text_bound(at, time, inclusive=False).second)
        return [*shape, f"{self.order(alias, column, time)} >= {first}"]

    @abstractmethod
    def lowest(self, column: Column, time: Time) -> object:
        """Return a value that sorts shortly before every plausible one, as `encode_key` returns values."""

    def highest(self, column: Column, time: Time, at: datetime, *, inclusive: bool) -> object:
        """Return a value that sorts shortly after every plausible one before an instant, where statements need one."""
        del column, time, at, inclusive
        return None

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
    def one_of(
        self, p: Parameters, name: str, expression: str, column: Column, states: Sequence[Constant | Slot]
    ) -> str:
        """Write the condition that a column holds one of some values."""

    @abstractmethod
    def compares(
        self,
        p: Parameters,
        name: str,
        expression: str,
        column: Column,
        sign: str,
        values: Sequence[Constant | Slot],
    ) -> str:
        """Write the comparison of a column with constants: one of them (`=`), none of them (`not`), or the only one.

        A value of another type than the constants fulfils none of these, as NULL does.
        """

    @abstractmethod
    def compares_columns(self, expression: str, column: Column, sign: str, other: str, other_column: Column) -> str:
        """Write the comparison of two columns that `Types.columns` allows; texts are compared by their bytes."""

    @abstractmethod
    def bytewise(self, expression: str, column: Column) -> str:
        """Write a column's value, compared by its bytes where the column itself would compare more loosely."""

    @abstractmethod
    def equal(self, p: Parameters, name: str, expression: str, column: Column, value: object) -> str:
        """Write the condition that a column holds a value (None: is NULL), or what fills a slot.

        An index on the column serves it.
        """

    def sign(self, sign: str, column: Column) -> str:
        """Write a comparison operator for a column's values, as the column's type defines it."""
        del column
        return sign

    def count_up_to(self, table: TableInfo, most: str, *, without_children: bool) -> str:
        """Write a query that counts the rows of a table, up to a number that is bound or written.

        `without_children`: nothing inherits from it.
        """
        del without_children
        return f"SELECT count(*) FROM (SELECT 1 FROM {self.table(table)} LIMIT {most}) AS some_rows"

    def read_few(self, table: TableInfo, aggregates: Sequence[str], outputs: Sequence[str]) -> str:
        """Write a query that aggregates the rows `t` of a small table in one pass.

        Outputs are whole numbers, written with the aggregates `s.n0`, `s.n1` and so on. The result is one array of
        them; NULL if the table has more than a few pages. Nothing may inherit from it. Only where `reads_few`.
        """
        raise NotImplementedError

    def time_number(self, expression: str, column: Column, time: Time) -> str | None:
        """Write the whole number of a plausible time, which `read_time_number` reads; None where it has none.

        Only where `reads_few`.
        """
        raise NotImplementedError

    @abstractmethod
    def spread(self, table: TableInfo, rows: int, believed: int | None) -> str:
        """Write a source of at most `rows` rows, spread evenly over a table of about `believed` rows.

        It reads a bounded part of the table, however large that is.
        """

    @abstractmethod
    def finds_nothing(self, query: str) -> str:
        """Write the condition that a query finds nothing, evaluated row by row up to the first row it finds."""

    @abstractmethod
    def finds_some(self, query: str) -> str:
        """Write the condition that a query finds something, evaluated row by row up to the first row it finds."""

    def join_first(self, alias: str, table: str, key: Sequence[Column], columns: Sequence[Column], source: str) -> str:
        """Write a join with the one row `n` of a table that a source finds, for each row before it.

        `columns` are the only ones that are read of it.
        """
        del columns
        mine, found = (", ".join(f"{one}.{self.quote(column.name)}" for column in key) for one in (alias, "n"))
        return f"JOIN {table} AS {alias} ON ({mine}) = (SELECT {found} FROM {source})"

    @abstractmethod
    def reference_forms(self, expression: str, column: Column, to: Column) -> list[str]:
        """Write a referring column in every form in which it must be searched among the referenced column's values."""

    @abstractmethod
    def identity(self, table: TableInfo, *, inherited: bool) -> list[str]:
        """Return columns, quoted, that identify each row of a table: its key, or the store's own row identifier.

        `inherited`: other tables inherit from it, and its key is unique in each of them only.
        """

    @abstractmethod
    def identified(
        self, p: Parameters, table: TableInfo, found: Sequence[tuple[Any, ...]] | None, *, inherited: bool
    ) -> str:
        """Write identities that were read by `encode_key` as a query that returns them again; None: as slots."""

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

    def encoded(self, value: object) -> object:
        """Return a caller's value in the form in which `encode_key` reads it."""
        return value

    @abstractmethod
    def decode_key(self, p: Parameters, name: str, column: Column, value: object) -> str:
        """Bind a value again that was read by `encode_key`."""

    @abstractmethod
    def keys(self, p: Parameters, columns: Sequence[Column], keys: Sequence[tuple[Any, ...]] | None) -> str:
        """Write keys that were read by `encode_key` as a query that returns them again; None: as slots."""

    @abstractmethod
    def fill_keys(self, statement: Statement, keys: Sequence[tuple[Any, ...]]) -> Statement:
        """Fill the slots that `keys` wrote.

        The text stays the same, unless some values do not fit into the slots (SQLite: blobs and fractions).
        """

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
    def in_force(self, p: Parameters, hold: str) -> str:
        """Write the condition that a hold is in force, by the database's clock."""

    @abstractmethod
    def json(self, placeholder: str) -> str:
        """Write a bound JSON text."""

    @abstractmethod
    def json_count(self, column: str, key: str) -> str:
        """Write the number that a column of JSON holds under a key; NULL if it holds none."""

    @abstractmethod
    def encode_time(self, timestamp: datetime) -> object:
        """Encode a timestamp for Wane's own tables."""

    @abstractmethod
    def decode_time(self, stamp: Any) -> datetime:
        """Decode a timestamp from Wane's own tables."""


class Types:
    """A store's rules for column types. Each check returns "" if the type is fine, else what is wrong with it."""

    def time(self, column: Column, time: Time, *, several: bool = False) -> str:
        """Check a time column. `several`: the column mixes values of this form with values of other forms."""
        raise NotImplementedError

    def ordered_key(self, column: Column) -> str:
        """Check a column of a key by which the newest rows are to be found."""
        raise NotImplementedError

    def window(self, column: Column) -> str:
        """Check a column that holds windows of rows."""
        raise NotImplementedError

    def walked_key(self, column: Column) -> str:
        """Check a column by which rows are walked in the order of their keys."""
        raise NotImplementedError

    def state(self, column: Column, state: State) -> str:
        raise NotImplementedError

    def constant(self, column: Column, value: Constant, sign: str) -> str:
        """Check a constant that a condition compares a column with."""
        raise NotImplementedError

    def columns(self, column: Column, other: Column, sign: str) -> str:
        """Check two columns of a row that a condition compares."""
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
