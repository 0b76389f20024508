"""The copies of a range, read from the committed archive: only the columns that are compared, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.paths import ColdPath, source
from wane._archive.pipeline import followers
from wane._archive.pipeline.followers import Following
from wane._archive.pipeline.sql_evict import Copy
from wane._archive.rows import content
from wane._archive.rows.content import Shape
from wane._archive.rows.types import KEY, PARENT, VERSION
from wane.errors import ArchiveError

_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Copies:
    """Some copies in the order of their files, column by column: there are millions of them, and most are not checked
    one by one."""

    table: Any
    first: int
    """The position of the first of them among the copies of their range."""
    following: Any
    """A table of what follows each; None if nothing follows any."""
    digested: Shape | None
    """The columns that rows are compared by, where they have no versions."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def positions(self) -> range:
        return range(self.first, self.first + len(self))

    def piece(self, start: int, end: int) -> Copies:
        following = None if self.following is None else self.following.slice(start, end - start)
        return replace(self, table=self.table.slice(start, end - start), first=self.first + start, following=following)

    def sizes(self, start: int, end: int) -> Any:
        """Return how many rows leave with each of some copies, itself included, as an array."""
        return 1 + self.following["rows"].slice(start, end - start).to_numpy()

    def each(self, read_key: Callable[[str], tuple[object, ...]]) -> list[Copy]:
        texts, archived = self.table[KEY].to_pylist(), self.table[VERSION].to_pylist()
        versions = _versions(self.table, self.digested).to_pylist()
        following = repeat(Following(), len(self)) if self.following is None else followers.each(self.following)
        each = zip(texts, versions, following, self.positions, archived, strict=True)
        return [
            Copy(text, read_key(text), version, mine, position, stored)
            for text, version, mine, position, stored in each
        ]


def pages(
    folders: Sequence[ColdPath],
    manifest: Any,
    columns: Sequence[str],
    shapes: Sequence[Shape | None],
) -> Iterator[Copies]:
    """Yield the copies of one range, page by page, with some columns.

    `shapes`: the columns of each part, where rows are compared by their values; None where they have versions.
    """
    following = None
    if any(part["files"] for part in manifest["parts"][1:]):
        keys = (table[KEY] for table in _read(folders[0], manifest["parts"][0], [KEY]))
        ordered = pa.chunked_array([chunk for column in keys for chunk in column.chunks], pa.string())
        following = followers.following(_followers(folders, manifest, shapes), ordered)
    first = 0
    columns = [*columns, *(name for name, _ in shapes[0] or ())]
    for table in _read(folders[0], manifest["parts"][0], columns):
        here = None if following is None else following.slice(first, len(table))
        yield Copies(table, first, here, shapes[0])
        first += table.num_rows


def _followers(
    folders: Sequence[ColdPath], manifest: Any, shapes: Sequence[Shape | None]
) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield the copies of what follows rows, page by page: the rows' keys, its own keys, and versions."""
    for number, part in enumerate(manifest["parts"]):
        if number:
            shape = shapes[number]
            compared = [VERSION] if shape is None else [name for name, _ in shape]
            for table in _read(folders[number], part, [PARENT, KEY, *compared]):
                yield number, table[PARENT], table[KEY], _versions(table, shape)


def _versions(table: Any, shape: Shape | None) -> Any:
    """Return what the database computed for rows that are the same."""
    return table[VERSION] if shape is None else content.row_digests(table, shape)


def _read(folder: ColdPath, part: Any, columns: Sequence[str]) -> Iterator[Any]:
    for file in part["files"]:
        with pq.ParquetFile(source((folder / file["path"]).resolve())) as opened:
            for batch in opened.iter_batches(_AT_ONCE, columns=list(dict.fromkeys(columns))):
                yield pa.Table.from_batches([batch])


def require_active(cold: Sequence[ColdTable], manifests: Iterable[Any]) -> None:
    """Raise ArchiveError if a file of some ranges is no longer part of the archive."""
    active = [one.active() for one in cold]
    for manifest in manifests:
        for one, files, part in zip(cold, active, manifest["parts"], strict=True):
            for file in part["files"]:
                path = (one.folder / file["path"]).resolve()
                if str(path) not in files:
                    raise ArchiveError(
                        f"{path} is no longer a part of the archive",
                        "another program rewrote the archive while a sweep of it was unfinished: restore that version of it, then run again",
                    )
