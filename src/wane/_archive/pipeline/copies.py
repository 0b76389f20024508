"""The copies of a range, read from the committed archive: only the columns that are compared, a page at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.paths import ColdPath, source
from wane._archive.pipeline.sql_evict import Copy, Following
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
    following: Mapping[str, Following]
    sizes: Sequence[int]
    """The number of rows that leave with each, itself included; empty if nothing follows any."""
    digested: Shape | None
    """The columns that rows are compared by, where they have no versions."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def positions(self) -> range:
        return range(self.first, self.first + len(self))

    def piece(self, start: int, end: int) -> Copies:
        return replace(
            self, table=self.table.slice(start, end - start), first=self.first + start, sizes=self.sizes[start:end]
        )

    def each(self, read_key: Callable[[str], tuple[object, ...]]) -> list[Copy]:
        texts, archived = self.table[KEY].to_pylist(), self.table[VERSION].to_pylist()
        versions = _versions(self.table, self.digested)
        return [
            Copy(text, read_key(text), version, self.following.get(text, Following()), position, stored)
            for text, version, position, stored in zip(texts, versions, self.positions, archived, strict=True)
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
    following: dict[str, Following] = defaultdict(Following)
    for number, part in enumerate(manifest["parts"]):
        if number:
            shape = shapes[number]
            compared = [VERSION] if shape is None else [name for name, _ in shape]
            for table in _read(folders[number], part, [PARENT, KEY, *compared]):
                pairs = table[PARENT].to_pylist(), table[KEY].to_pylist(), _versions(table, shape)
                for parent, key, version in zip(*pairs, strict=True):
                    following[parent].add(number, key, version)
    first = 0
    columns = [*columns, *(name for name, _ in shapes[0] or ())]
    for table in _read(folders[0], manifest["parts"][0], columns):
        sizes = [1 + following[key].rows for key in table[KEY].to_pylist()] if following else ()
        yield Copies(table, first, following, sizes, shapes[0])
        first += table.num_rows


def _versions(table: Any, shape: Shape | None) -> list[str]:
    """Return what the database computed for rows that are the same."""
    if shape is None:
        return list(table[VERSION].to_pylist())
    return list(content.row_digests(table, shape).to_pylist())


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
