"""Trimming the log of an archive table: removing entries that only older states need.

An entry that added a file keeps describing it, with the least and greatest values of its columns, after the file itself
is erased. A checkpoint has the present state alone, so entries before it are not needed to read the table as it is now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime

import pyarrow.parquet as pq

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.failure import writing
from wane._archive.delta.object_store import reason
from wane._archive.delta.paths import ColdPath, changed_at, source, sync_folder
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
    young = [version for version, path in _entries(cold) if changed_at(path) >= before]
    end = min([newest, *young])
    old = [(version, path) for version, path in _entries(cold) if version < end]
    if not old:
        return 0
    log = cold.log
    if not any(log.glob(f"{newest:020d}.checkpoint*.parquet")):
        with writing(log):
            handle.create_checkpoint()
            sync_folder(log)
    try:
        # The oldest first: a log that begins later is complete, a log with a gap is not.
        for _, path in sorted(old):
            path.unlink(missing_ok=True)
    except OSError as problem:
        raise ArchiveError(f"{log} cannot be trimmed: {reason(problem)}", "check its permissions") from problem
    return len(old)


def first_entry(cold: ColdTable) -> int:
    """Return the version of the oldest entry that a log still has; 0 if it has none."""
    return min((version for version, path in _entries(cold) if path.suffix == ".json"), default=0)


def mentioned_files(cold: ColdTable) -> set[str]:
    """Return the files that some entry of the log adds, whether they are part of the table or not."""
    found: set[str] = set()
    for _, path in _entries(cold):
        if path.suffix == ".json":
            actions = (json.loads(line) for line in path.read_text().splitlines() if line.strip())
            found |= {action["add"]["path"] for action in actions if "add" in action}
        elif path.suffix == ".parquet":
            with pq.ParquetFile(source(path)) as checkpoint:
                if "add" in checkpoint.schema_arrow.names:
                    added = checkpoint.read(columns=["add.path"])["add"].to_pylist()
                    found |= {one["path"] for one in added if one is not None}
    return {path.removeprefix(cold.prefix) for path in found}


def _entries(cold: ColdTable) -> Iterator[tuple[int, ColdPath]]:
    for path in cold.log.iterdir():
        entry = _ENTRY.fullmatch(path.name)
        if entry is not None and path.is_file():
            yield int(entry["version"]), path
