"""Trimming the log of an archive table: removing entries that only older states need.

An entry that added a file keeps describing it, with the least and greatest values of its columns, after the file itself
is erased. A checkpoint has the present state alone, so entries before it are not needed to read the table as it is now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from wane.archive.cold_table import LOG, ColdTable
from wane.archive.extract import sync_folder
from wane.archive.failure import writing
from wane.errors import ArchiveError

_ENTRY = re.compile(r"(?P<version>\d{20})\.(json|checkpoint\..*parquet|crc)")


def trim(cold: ColdTable, before: datetime) -> int:
    """Remove the oldest entries of a log, up to the first written since `before`; return how many files.

    A checkpoint is made first.
    """
    handle = cold.open()
    if handle is None:
        return 0
    newest = handle.version()
    young = [version for version, place in _entries(cold) if _written(place) >= before]
    end = min([newest, *young])
    old = [(version, place) for version, place in _entries(cold) if version < end]
    if not old:
        return 0
    log = cold.folder / LOG
    if not any(log.glob(f"{newest:020d}.checkpoint*.parquet")):
        with writing(log):
            handle.create_checkpoint()
            sync_folder(log)
    try:
        # The oldest first: a log that begins later is complete, a log with a gap is not.
        for _, place in sorted(old):
            place.unlink(missing_ok=True)
    except OSError as problem:
        raise ArchiveError(f"{log} cannot be trimmed: {problem.strerror}", "check its permissions") from problem
    return len(old)


def first_entry(cold: ColdTable) -> int:
    """Return the version of the oldest entry that a log still has; 0 if it has none."""
    return min((version for version, place in _entries(cold) if place.suffix == ".json"), default=0)


def told_of(cold: ColdTable) -> set[str]:
    """Return the files that some entry of the log adds, whether they are part of the table or not."""
    found: set[str] = set()
    for _, place in _entries(cold):
        if place.suffix == ".json":
            actions = (json.loads(line) for line in place.read_text().splitlines() if line.strip())
            found |= {action["add"]["path"] for action in actions if "add" in action}
        elif place.suffix == ".parquet":
            with pq.ParquetFile(place) as checkpoint:
                if "add" in checkpoint.schema_arrow.names:
                    added = checkpoint.read(columns=["add.path"])["add"].to_pylist()
                    found |= {one["path"] for one in added if one is not None}
    return found


def _entries(cold: ColdTable) -> Iterator[tuple[int, Path]]:
    for place in (cold.folder / LOG).iterdir():
        entry = _ENTRY.fullmatch(place.name)
        if entry is not None and place.is_file():
            yield int(entry["version"]), place


def _written(place: Path) -> datetime:
    return datetime.fromtimestamp(place.stat().st_mtime, UTC)
