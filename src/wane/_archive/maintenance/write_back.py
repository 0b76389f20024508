"""Writing entries back that a log of the archive has lost, from the copies that the database has of them.

The log becomes what it was before the loss: whatever the lost commits added or removed, by sweeps, restores, expiries
or compactions, applies again. It is first rebuilt outside the archive. Nothing is written unless the result can be
read, has every recorded commit, and every file that it names exists.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.commits import entry_file
from wane._archive.delta.comparison import checks, shape_of
from wane._archive.delta.files import listing
from wane._archive.delta.object_store import reason
from wane._archive.delta.paths import ColdPath, sync_file, sync_folder
from wane._archive.spark.executor import ArchiveExecutor
from wane.errors import ArchiveError, Unproven

if TYPE_CHECKING:
    from deltalake import DeltaTable

_CHECKPOINT = re.compile(r"(?P<version>\d{20})\.checkpoint\..*parquet")
_SHOWN = 5


def find_missing(cold: ColdTable, copies: Mapping[int, str], commits: int) -> dict[int, str]:
    """Return the entries whose copies make a log whole again that has had `commits` commits.

    Return none if the copies cannot do that, or if a file is gone that the log would name.
    """
    log = cold.log
    first = max(
        (int(made["version"]) for path in _files(log) if (made := _CHECKPOINT.fullmatch(path.name))), default=-1
    )
    missing = {}
    for version in range(first + 1, max(copies, default=-1) + 1):
        found, copy = _read(entry_file(log, version)), copies.get(version)
        if found is None and copy is not None:
            missing[version] = copy
        elif found is None or copy not in (None, found):
            return {}  # Neither the log nor the database has the entry, or the log has had another one since.
    with _rebuilt(cold, missing) as whole:
        try:
            table = whole.open()
        except ArchiveError:
            return {}
        if table is None or whole.commits(table) < commits or _missing_files(cold, table):
            return {}
        return missing


def require_sound(cold: ColdTable, missing: Mapping[int, str], executor: ArchiveExecutor) -> None:
    """Raise unless the files that the entries add, and that are still part of the table, can be read as written."""
    with _rebuilt(cold, missing) as whole:
        table = whole.require()
        added = {
            action["add"]["path"]
            for entry in missing.values()
            for action in map(json.loads, entry.splitlines())
            if "add" in action
        }
        files = [file for file in listing(table) if file.path in added]
        if checks(executor, cold.folder, [file.path for file in files], shape_of(table)).rows != sum(
            file.rows for file in files
        ):
            raise Unproven(
                f"files of {cold.name} that its log has lost cannot be trusted: they have other rows than were written",
                "nothing was changed; restore them from a backup",
            )


def require_files(cold: ColdTable, table: DeltaTable) -> None:
    """Raise if a log names files that do not exist: they were removed, or the log is older than their removal."""
    missing = _missing_files(cold, table)
    if missing:
        raise ArchiveError(
            f"{len(missing)} files that the log of {cold.name} names are missing or not what was written:"
            f" {', '.join(missing[:_SHOWN])}",
            f"restore them, or the log that no longer names them ({cold.log}), from a backup",
        )


def write_back(cold: ColdTable, missing: Mapping[int, str]) -> None:
    """Write lost entries, the oldest first: a log that ends early is complete, a log with a gap is not."""
    log = cold.log
    try:
        log.mkdir(exist_ok=True)
        for version in sorted(missing):
            _write(entry_file(log, version), missing[version].encode())
        sync_folder(log)
    except OSError as problem:
        raise ArchiveError(
            f"{log} cannot be written: {reason(problem)}", "check its permissions and the disk, and run it again"
        ) from problem


def _write(entry: ColdPath, content: bytes) -> None:
    """Write an entry, of which readers see nothing or all."""
    if not isinstance(entry, Path):
        entry.write_bytes(content)
        return
    written = entry.with_name(f".wane-{uuid.uuid4().hex}")
    try:
        with written.open("xb") as out:
            out.write(content)
            sync_file(written, out)
        written.replace(entry)
    finally:
        written.unlink(missing_ok=True)


def _missing_files(cold: ColdTable, table: DeltaTable) -> list[str]:
    files = [(cold.folder / file.path, file.bytes) for file in listing(table)]
    return [str(path) for path, size in files if not path.is_file() or path.stat().st_size != size]


@contextmanager
def _rebuilt(cold: ColdTable, missing: Mapping[int, str]) -> Iterator[ColdTable]:
    """Yield the table as its log would be with the missing entries, without its files."""
    with TemporaryDirectory(prefix="wane-") as root:
        whole = ColdTable(Path(root), cold.name, cold.origin)
        log = whole.log
        log.mkdir(parents=True)
        for path in _files(cold.log):
            (log / path.name).write_bytes(path.read_bytes())
        for version, entry in missing.items():
            entry_file(log, version).write_bytes(entry.encode())
        yield whole


def _files(log: ColdPath) -> list[ColdPath]:
    return [path for path in log.iterdir() if path.is_file()] if log.is_dir() else []


def _read(path: ColdPath) -> str | None:
    """Read an entry; return None if there is none, or the file is not a valid entry."""
    try:
        entry = path.read_bytes().decode()
        for line in entry.splitlines():
            json.loads(line)
    except (FileNotFoundError, ValueError):
        return None
    return entry or None
