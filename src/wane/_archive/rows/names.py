"""Names of columns in the archive, where they differ from those in the database.

Delta Lake allows some characters in names only with column mapping, which delta-rs cannot write (it loses the values).
So such a character is percent-encoded, as in a URL, and so is the first one of a name that the archive uses itself: one
name of the archive belongs to one name of the database, both ways. A column that was renamed keeps the name under which
it was first archived, as Delta Lake's own column mapping would do: files stay as they are, and every value of the
column is in one column. Queries, holds and restores speak the database's names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import quote, unquote

from wane._archive.rows.expression import ForbiddenWord, is_meaningful, words_of
from wane._archive.rows.types import RESERVED
from wane._contract.model import Contract

_ENCODED = re.compile(r"[ ,;{}()\n\t=]|%(?=[0-9A-Fa-f]{2})")


def archived_name(column: str) -> str:
    """Return the archive's name of a column."""
    made = _ENCODED.sub(lambda found: quote(found[0], safe=""), column)
    return f"%{ord(made[0]):02X}{made[1:]}" if column.lower() in RESERVED else made


def column_name(archived: str) -> str:
    """Return the column that has a name in the archive."""
    return unquote(archived)


class ColumnNames:
    """The names of one table's columns, in the database and in the archive."""

    def __init__(self, renamed: Mapping[str, str] | None = None) -> None:
        """Map names; `renamed` gives each column that was renamed the name under which it was first archived."""
        self._renamed = dict(renamed or {})
        self._now = {before: now for now, before in self._renamed.items()}

    @classmethod
    def of(cls, contract: Contract, table: str) -> ColumnNames:
        """Return the names of an archived table's columns."""
        return cls(next((dict(one.renamed) for one in contract.archive if str(one.table) == table), None))

    def archived(self, column: str) -> str:
        """Return the archive's name of a column."""
        return archived_name(self._renamed.get(column, column))

    def shown(self, archived: str) -> str:
        """Return what a column of the archive is called where its rows are shown."""
        column = column_name(archived)
        found = self._now.get(column, column)
        return archived if found.lower() in RESERVED else found

    def requested(self, name: str, known: Collection[str]) -> str:
        """Return the column of the archive that a name means; the name itself if there is none."""
        archived = self.archived(name)
        return archived if archived in known and name not in RESERVED else name

    def condition(self, where: str | None, known: Sequence[str]) -> str | None:
        """Write a condition with the archive's names, where they differ."""
        shown = {name.lower(): one for one in known if (name := self.shown(one)) != one}
        if where is None or not shown:
            return where
        try:
            words = list(words_of(where))
        except ForbiddenWord:
            return where  # Whatever reads it next reports that.
        written, end = [], 0
        for number, word in enumerate(words):
            called = number + 1 < len(words) and words[number + 1].text == "("
            found = shown.get(word.text.lower()) if word.kind in ("word", "quoted") and not called else None
            if found is None or (word.kind == "word" and is_meaningful(word.text)):
                continue
            written += [where[end : word.start], f"`{found.replace('`', '``')}`"]
            end = word.end
        return "".join([*written, where[end:]])
