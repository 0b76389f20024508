"""The copies of a range, read from the committed archive: keys and versions only, a few at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from wane.errors import ArchiveError
from wane.store.archive_evict import Copy, Following
from wane.store.archive_types import KEY, PARENT, VERSION

_AT_ONCE = 10_000


def copies(
    folders: Sequence[Path],
    active: Sequence[set[str]],
    manifest: Any,
    read_key: Callable[[str], tuple[object, ...]],
    skip: int,
) -> Iterator[Copy]:
    """The copies of one range in the order of its files, without the first `skip`."""
    following: dict[str, Following] = defaultdict(Following)
    for number, part in enumerate(manifest["parts"]):
        if number:
            for parent, key, version in _read(folders[number], active[number], part, [PARENT, KEY, VERSION]):
                following[parent].add(number, key, version)
    for position, (text, version) in enumerate(_read(folders[0], active[0], manifest["parts"][0], [KEY, VERSION])):
        if position >= skip:
            yield Copy(text, read_key(text), version, following.get(text, Following()))


def _read(folder: Path, active: set[str], part: Any, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for file in part["files"]:
        place = (folder / file["path"]).resolve()
        if str(place) not in active:
            raise ArchiveError(
                f"{place} is no longer a part of the archive",
                "somebody rewrote the archive while a sweep of it was unfinished: restore that version of it, then run again",
            )
        with pq.ParquetFile(place) as opened:
            for batch in opened.iter_batches(_AT_ONCE, columns=list(columns)):
                yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
