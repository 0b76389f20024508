"""Names of tables and references as users write them in a contract.

`channel_inbox`, `iu_core.iu_staging_record`, `"My Schema"."odd.name"`: dots separate, double quotes protect, and a
doubled double quote stands for one. How a database quotes a name is up to the store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from wane._contract.refused import Refused

_PART = re.compile(r'"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^."]+)')


def split_name(text: str) -> list[str]:
    """Split a dotted name into its parts; raise ValueError if it is not one."""
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            raise Refused(f"{text!r} is not a name", 'write table, schema.table or "quoted.table"')
        part = match["plain"] if match["quoted"] is None else match["quoted"].replace('""', '"')
        if "\x00" in part:
            raise Refused(f"{text!r} is not a name", "no database has a name with a NUL character")
        if part != part.strip() and match["quoted"] is None:
            raise Refused(f"{text!r} is not a name", "quote parts that start or end with a space")
        parts.append(part)
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            raise Refused(f"{text!r} is not a name", f"a dot must follow {part!r}")
        position += 1


def join_name(parts: list[str]) -> str:
    """Join the parts of a name, quoting only those that need it: the inverse of split_name."""
    return ".".join(map(_quoted, parts))


@lru_cache(maxsize=1_000)  # Names are written in every batch of a sweep.
def _quoted(part: str) -> str:
    needed = not part or part != part.strip() or any(mark in part for mark in '."')
    return '"' + part.replace('"', '""') + '"' if needed else part


@lru_cache(maxsize=1_000)
def _glob(part: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, part.split("*"))), re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table, with its schema if the contract gives one."""

    name: str
    schema: str | None = None

    @classmethod
    def parse(cls, text: str) -> TableName:
        parts = split_name(text)
        if len(parts) > 2:
            raise Refused(f"{text!r} has too many parts", "write table or schema.table")
        return cls(name=parts[-1], schema=parts[0] if len(parts) == 2 else None)

    @property
    def is_pattern(self) -> bool:
        """Return whether it stands for several tables: it has a `*`, which stands for any characters."""
        return "*" in self.name or "*" in (self.schema or "")

    def covers(self, other: TableName) -> bool:
        """Return whether it is the other name, or a pattern that the other one matches. A schema must be written."""
        if (self.schema is None) != (other.schema is None):
            return False
        return _glob(self.name).fullmatch(other.name) is not None and (
            self.schema is None or _glob(self.schema).fullmatch(other.schema or "") is not None
        )

    def __str__(self) -> str:
        return _quoted(self.name) if self.schema is None else f"{_quoted(self.schema)}.{_quoted(self.name)}"


def parse_reference(text: str) -> tuple[TableName, str]:
    """Parse `table.column` or `schema.table.column`; raise ValueError if the text is neither."""
    parts = split_name(text)
    if len(parts) not in (2, 3):
        raise Refused(f"{text!r} is not a reference", "write table.column or schema.table.column")
    return TableName(name=parts[-2], schema=parts[0] if len(parts) == 3 else None), parts[-1]


AUDIT = frozenset((TableName("wane_audit"), TableName("audit", "wane")))
"""The audit trail, on SQLite and on PostgreSQL: the only one of Wane's own tables that a contract may cover. Its rows
leave through the archive and in no other way."""
