"""How the archive stores columns: a type of the archive for each type of a store, or a refusal by name.

What arrives has the type that was meant, and never a driver's guess. A type that would lose information on the way is
refused; so is a single value that its column's type of the archive cannot hold. Nothing is rounded, cut or turned into
NULL.

Content is compared as text: every kind has one canonical text, written by the database here and by
`wane._archive.rows.content` from the values that were read back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wane._contract.model import Time
from wane._db.schema import Column

KEY, PARENT, VERSION, SWEEP, MONTH = "_key", "_parent", "_version", "_sweep", "_month"
ORIGIN = "_origin"
"""Names the database of a row in an archive that several share; no file contains it."""
"""What the archive adds to a row: its key as text, the key of the row it left with, its version, sweep and month."""
REFUSED = "_refused"
"""Whether a value of this row cannot be stored; never written."""
RESERVED = (KEY, PARENT, VERSION, SWEEP, MONTH, REFUSED)

HASHABLE = ("string", "binary", "short", "integer", "long")
"""Kinds whose values have one text on every store."""
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
    column: str = ""
    """The column of the table, where the archive has another name for it."""
    hashed_from: tuple[str, str] | None = None
    """What a task reads and hashes itself, where it cannot let the database do that: `select` and `kind` before."""

    @property
    def hot(self) -> str:
        """Return the name of the table's column."""
        return self.column or self.name

    def selected(self, expression: str) -> str:
        return self.select.replace("{x}", expression)

    def refusal(self, expression: str, *, nullable: bool = True) -> str:
        refused = self.refused.replace("{x}", expression)
        return f"{expression} IS NOT NULL AND ({refused})" if nullable else refused

    def canonical(self, expression: str) -> str:
        return self.text.replace("{x}", expression)


@dataclass(frozen=True, slots=True)
class KeyTexts:
    """How the text of a key is made from columns that were read: a JSON array of their texts."""

    names: tuple[str, ...]
    separator: str
    quoted: bool
    """Whether texts are quoted as SQL quotes them, to distinguish them from numbers."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """How the columns that the archive adds are made; what is None was written by the database."""

    keys: KeyTexts | None
    parents: KeyTexts | None
    month: str | None
    """The column that months are made of."""
    per_second: int | None
    """The unit of that column, if it has numbers."""


class ArchiveDialect(ABC):
    """What differs between the stores when rows are copied, compared and found again."""

    checksums = False
    """Whether a copy's version is a checksum of its values, because rows have no version in the database."""
    declares_types = False
    """Whether the first row of `typed` is no row of the table, and only declares the types of columns."""

    @abstractmethod
    def stored(self, column: Column, cast: str | None, time: Time | None) -> Stored | None:
        """Return how a column is stored; None if its type is unknown or would lose something.

        `time`: what the column means by the contract.
        """

    @abstractmethod
    def hashed(self, stored: Stored) -> Stored:
        """Return how the SHA-256 of a column's values is stored, whose kind is one of HASHABLE."""

    @abstractmethod
    def starred(self, value: str, first: int, last: int) -> str:
        """Write the expression of a text with stars for all of its characters but the first and the last ones."""

    @abstractmethod
    def key(self, columns: Sequence[Column], alias: str) -> str:
        """Write the expression that encodes a row's key as one text, which `read_key` decodes."""

    @abstractmethod
    def key_refused(self, columns: Sequence[Column], stored: Sequence[Stored], alias: str) -> list[tuple[str, str]]:
        """Return conditions under which a key cannot be encoded, beyond those of `stored`, each with its column."""

    @abstractmethod
    def key_texts(self, columns: Sequence[Column], stored: Sequence[Stored]) -> KeyTexts | None:
        """Return how `key` is made from the columns that were read; None if only the database can write it."""

    @abstractmethod
    def refused(self, conditions: Sequence[tuple[str, str]]) -> str | None:
        """Write the expression that is true for a row with a value that cannot be stored, by (condition, column).

        Return None if the values that are read show it.
        """

    @abstractmethod
    def read_key(self, text: str) -> tuple[object, ...]:
        """Decode a key from the text that `key` wrote, to the values that `Dialect.encode_key` reads."""

    @abstractmethod
    def version(self, stored: Sequence[Stored], alias: str) -> str:
        """Write the expression of a text that differs whenever the row has changed, inside a transaction."""

    @abstractmethod
    def read_version(self, alias: str) -> str | None:
        """Write the same for copying, as `wane._archive.rows.assembly` reads it; return None if it is made of the
        values."""

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
    def sampled(self, table: str, key: str, column: str, digest: str, row: str, source: str) -> str:
        """Write the query of checks that proves only rows in full whose key's digest is a multiple of SAMPLED_EVERY.

        `key` is the key in `source`, `column` the same in `table`, whose rows `row` digests.
        """

    @abstractmethod
    def whole_number(self, column: Column, stored: Stored) -> str | None:
        """Write a column as a number of 64 bits, with `{t}` for its table; None if it may hold anything else."""

    @abstractmethod
    def sums(self, expression: str, halves: int = 2) -> str:
        """Write the sums of the halves of digests, or of the first one only, as numbers in one text."""

    @abstractmethod
    def typed(self, selected: Sequence[tuple[str, str, str]], source: str) -> str:
        """Write a query of (expression, name, kind) whose columns have these types whatever the values are."""


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


def version_digest(key: Any, version: Any) -> Any:
    """Compute such a digest of a key's digest and the number of the transaction that wrote its row.

    A sum of transactions alone would be equal if two rows, written by the ones before and after it, were both written
    by the one between: a transaction that began earlier may write later.
    """
    return key_digest((key & _LOW) * 2**31 + (version & _LOW))


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
