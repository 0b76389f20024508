"""The files behind an open connection: whether their paths still name them.

A database that is restored by moving another file over it stays open here, without a name. In WAL mode SQLite does not
notice: reads would return what no other process sees, and what is written would be lost without an error. So inodes are
compared before every use.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from wane._findings import did_you_mean
from wane.errors import Unreachable

_BESIDE = ("-wal", "-shm")
"""The files that SQLite maintains next to a database in WAL mode; they stay the same for as long as a connection is
open."""
_MOST_BESIDE = 1_000
"""How many files of a folder are read to suggest one of them."""


class OpenFiles:
    """The inodes of a database's files, as they were when it was opened."""

    def __init__(self, path: Path, attached: Sequence[Path] = ()) -> None:
        """Remember what the paths name now, before they are opened."""
        self._path = str(path.absolute())
        self._inodes = {one: _inode(one) for one in (self._path, *map(str, attached))}
        self._beside: frozenset[str] = frozenset()

    def opened(self, connection: sqlite3.Connection) -> None:
        """Remember the files next to the database, which exist once it was read."""
        if connection.execute("PRAGMA main.journal_mode").fetchone() == ("wal",):
            real = os.path.realpath(self._path)
            self._beside = frozenset(real + end for end in _BESIDE)
            self._inodes |= {one: _inode(one) for one in self._beside}

    def require_same(self) -> None:
        """Raise Unreachable if a path now names another file, or none."""
        for path, inode in self._inodes.items():
            found = _inode(path)
            if found != inode:
                raise self._moved(path, found)

    def _moved(self, path: str, found: tuple[int, ...] | None) -> Unreachable:
        if path in self._beside:
            return Unreachable(
                f"{path} was removed or replaced while the database was open",
                "stop everything that uses the database and run `PRAGMA integrity_check`; the next call opens it again",
            )
        if found is None:
            return Unreachable(
                f"{path} was moved or deleted while it was open",
                "nothing was written into the file without a name; put the database back, and the next call opens it",
            )
        return Unreachable(
            f"{path} was replaced by another file while it was open",
            "nothing was written into the old file; the next call opens the new one",
        )


def suggest_file(path: Path) -> str:
    """Suggest a file that exists for one that does not: the same path from the root, or a similar name beside it."""
    if not path.is_absolute() and (Path("/") / path).is_file():
        return f"an absolute path has four slashes: sqlite:////{path}"
    try:
        beside = [one.name for one in islice(path.parent.iterdir(), _MOST_BESIDE) if one.is_file()]
    except OSError:
        return ""
    return did_you_mean(path.name, beside)


def _inode(path: str) -> tuple[int, ...] | None:
    """Return what identifies a file: its inode and its device."""
    try:
        return os.stat(path)[1:3]  # noqa: PTH116 A Path takes twice as long.
    except OSError:
        return None
