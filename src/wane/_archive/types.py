"""How the archive stores columns: a type of the archive for each type of a store, or a refusal by name.

Every column is cast in the SELECT that reads it, so that what arrives is what was meant and never a driver's guess. A
type that would lose information on the way is refused; so is a single value that its column's type of the archive
cannot hold. Nothing is rounded, cut or turned into NULL.

Content is compared as text: every kind has one canonical text, written by the database here and by
`wane._archive.content` from the values that were read back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wane._contract.model import Time
from wane._db.schema import Column

KEY, PARENT, VERSION, SWEEP, MONTH = "_key", "_parent", "_version", "_sweep", "_month"
"""What the archive adds to a row: its key as text, the key of the row it left with, its version, sweep and month."""
REFUSED = "_refused"
"""Names of the columns whose value in this row cannot be stored; never written."""
RESERVED = (KEY, PARENT, VERSION, SWEEP, MONTH, REFUSED)

FIELDS_AT_ONCE = 100
"""Wider rows are digested piece by piece, because no expression may be too deep."""
DIGITS = 32
"""The length of a digest, in hex."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One column of the archive. In the texts `{x}` stands for the column."""

    name: str
    kind: str
    """A type of Delta Lake: long, integer, short, double, float, boolean, string, binary, date, timestamp,
    timestamp_ntz, decimal(p,s)."""
    select: str = "{x}"
    text: str = "{x}::text"
    """The canonical text; SQLite knows one for each kind."""
    refused: str = ""
    """When a value cannot be stored; "" if every value can."""

    def selected(self, expression: str) -> str:
        value = self.select.replace("{x}", expression)
        return f"CASE WHEN NOT ({self.refusal(expression)}) THEN {value} END" if self.refused else value

    def refusal(self, expression: str) -> str:
        return f"{expression} IS NOT NULL AND ({self.refused.replace('{x}', expression)})"

    def canonical(self, expression: str) -> str:
        return self.text.replace("{x}", expression)


class ArchiveDialect(ABC):
    """What differs between the stores when rows are copied, compared and found again."""

    @abstractmethod
    def stored(self, column: Column, cast: str | None, time: Time | None) -> Stored | None:
        """Return how a column is stored; None if its type is unknown or would lose something.

        `time`: what the contract says the column means.
        """

    @abstractmethod
    def key(self, columns: Sequence[Column], alias: str) -> str:
        """Write the expression that encodes a row's key as one text, which `read_key` decodes."""

    @abstractmethod
    def key_refused(self, columns: Sequence[Column], alias: str) -> list[tuple[str, str]]:
        """Return conditions under which a key cannot be encoded, each with its column."""

    @abstractmethod
    def read_key(self, text: str) -> tuple[object, ...]:
        """Decode a key from the text that `key` wrote, to the values that `Dialect.encode_key` reads."""

    @abstractmethod
    def version(self, stored: Sequence[Stored], alias: str) -> str:
        """Write the expression of a text that differs whenever the row has changed, inside a transaction."""

    @abstractmethod
    def read_version(self, alias: str) -> str | None:
        """Write the same expression for copying; return None if the version is computed from the values read."""

    @abstractmethod
    def month(self, alias: str, column: Column, time: Time) -> str:
        """Write the month of a plausible time, as `2026-01`."""

    @abstractmethod
    def row_digest(self, stored: Sequence[Stored], alias: str) -> str:
        """Write the digest of a row's canonical text, as 32 hex digits, computed inside the database."""

    @abstractmethod
    def digest(self, expression: str) -> str:
        """Write the digest of one text, as 32 hex digits."""

    @abstractmethod
    def whole_number(self, column: Column, stored: Stored) -> str | None:
        """Write a column as a number of 64 bits, with `{t}` for its table; None if it may hold anything else."""

    @abstractmethod
    def sums(self, expression: str, halves: int = 2) -> str:
        """Write the sums of the halves of digests, or of the first one only, as numbers in one text."""

    @abstractmethod
    def typed(self, selected: Sequence[tuple[str, str, str]], source: str) -> str:
        """Write a query of (expression, name, kind) whose columns have these types whatever the values are."""

    @abstractmethod
    def exact(self, columns: Sequence[Column]) -> bool:
        """Check whether keys of these columns are equal only if they are the same, and `exactly` can read them."""

    @abstractmethod
    def copied(self, key: Sequence[Column], texts: Sequence[str], versions: Sequence[str]) -> dict[str, object]:
        """Build the parameters of `exactly` from the keys and versions of copies that were read in one snapshot.

        `texts` are keys as `key` wrote them.
        """

    @abstractmethod
    def exactly(
        self, table: str, key: Sequence[Column], version: str, copied: Mapping[str, str], due: Sequence[str]
    ) -> str:
        """Write the end of a statement that takes rows `t`: those that are due and whose key and version `copied` has.

        `copied` holds placeholders.
        """


_LOW = 2**31 - 1
_MIXED = 2**36 - 1
_START, _FACTORS = 0x3C6EF35F, (0x6545F491, 0x5C8E9CF5)
SAMPLED_EVERY = 256
"""Without strict proof, rows whose key's digest is a multiple of this are proven in full."""


def key_digest(x: Any) -> Any:
    """Compute a digest of 36 bits of whole numbers, so that sums of digests differ if the numbers do.

    Only with operations that SQL, on both stores, and numpy have and that stay within 63 bits: `x` is an array, or a
    `SqlNumber`. What SQL computes from an index needs no function of ours, and Python none for each row.
    """
    spread = ((x & _LOW) * _FACTORS[0] + ((x >> 31) & _LOW) * _FACTORS[1] + _START) & _LOW
    return ((spread * spread) >> 13) & _MIXED  # A square, because sums of multiples are equal if the sums of keys are.


@dataclass(frozen=True, slots=True)
class SqlNumber:
    """An expression of SQL that is a whole number of 64 bits, and grows by Python's operators."""

    text: str

    def _with(self, operator: str, other: object) -> SqlNumber:
        return SqlNumber(f"({self.text} {operator} {other.text if isinstance(other, SqlNumber) else other})")

    def __and__(self, other: object) -> SqlNumber:
        return self._with("&", other)

    def __rshift__(self, other: object) -> SqlNumber:
        return self._with(">>", other)

    def __add__(self, other: object) -> SqlNumber:
        return self._with("+", other)

    def __mul__(self, other: object) -> SqlNumber:
        return self._with("*", other)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
