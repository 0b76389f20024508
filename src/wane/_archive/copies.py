"""The copies of a range, read from the committed archive: keys and versions only, a page at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from wane._archive.sql_evict import Copy, Following
from wane._archive.types import KEY, PARENT, VERSION
from wane.errors import ArchiveError

_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Copies:
    """Some copies in the order of their files, column by column: there are millions of them, and most are not checked
    one by one."""

    texts: Sequence[str]
    """Their keys, as the archive writes them."""
    versions: Sequence[str]
    first: int
    """The position of the first of them among the copies of their range."""
    following: Mapping[str, Following]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def positions(self) -> range:
        return range(self.first, self.first + len(self))

    def piece(self, start: int, end: int) -> Copies:
        return replace(self, texts=self.texts[start:end], versions=self.versions[start:end], first=self.first + start)

    def rows(self, number: int) -> int:
        """Count the rows that leave with one of them, itself included."""
        following = self.following.get(self.texts[number])
        return 1 if following is None else 1 + following.rows

    def each(self, read_key: Callable[[str], tuple[object, ...]]) -> list[Copy]:
        return [
            Copy(text, read_key(text), version, self.following.get(text, Following()), position)
            for text, version, position in zip(self.texts, self.versions, self.positions, strict=True)
        ]


def pages(folders: Sequence[Path], active: Sequence[set[str]], manifest: Any) -> Iterator[Copies]:
    """Yield the copies of one range, page by page.

    Raise ArchiveError if a file is no longer part of the archive.
    """
    following: dict[str, Following] = defaultdict(Following)
    for number, part in enumerate(manifest["parts"]):
        if number:
            for columns in _read(folders[number], active[number], part, [PARENT, KEY, VERSION]):
                for parent, key, version in zip(*columns, strict=True):
                    following[parent].add(number, key, version)
    first = 0
    for texts, versions in _read(folders[0], active[0], manifest["parts"][0], [KEY, VERSION]):
        yield Copies(texts, versions, first, following)
        first += len(texts)


def _read(folder: Path, active: set[str], part: Any, columns: Sequence[str]) -> Iterator[list[list[Any]]]:
    for file in part["files"]:
        path = (folder / file["path"]).resolve()
        if str(path) not in active:
            raise ArchiveError(
                f"{path} is no longer a part of the archive",
                "another program rewrote the archive while a sweep of it was unfinished: restore that version of it, then run again",
            )
        with pq.ParquetFile(path) as opened:
            for batch in opened.iter_batches(_AT_ONCE, columns=list(columns)):
                yield [batch.column(name).to_pylist() for name in columns]
