"""Paths of the archive's files, as Delta Lake writes them and as Arrow and Spark read them: in folders, or in an object
store."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from wane._archive.delta.object_store import ObjectPath
from wane._contract.archive_path import OBJECT_STORES
from wane.errors import ArchiveError

ColdPath = Path | ObjectPath


def cold_path(text: str | Path) -> ColdPath:
    """Return the path that a text names."""
    scheme, separator, _ = str(text).partition("://")
    return ObjectPath.read(str(text)) if separator and scheme in OBJECT_STORES else Path(text)


def local_path(uri: str) -> str:
    """Return the path of a file that Delta Lake names by its URI, in which every special character is escaped once."""
    return unquote(uri.removeprefix("file://"))


def source(path: ColdPath) -> Any:
    """Return what Arrow reads a file from."""
    return path if isinstance(path, Path) else path.open("rb")


def sync_file(path: ColdPath, sink: Any) -> None:
    """Make sure that what was written to a file, by this process or another, survives a power cut, and is read from
    the disk next; an object that was closed does and is."""
    if isinstance(path, Path):
        sink.flush()
        os.fsync(sink.fileno())
        if hasattr(os, "posix_fadvise"):  # What is read back comes from the disk then, and not from memory.
            os.posix_fadvise(sink.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: ColdPath) -> None:
    """Make sure that a new name in a folder, or a file that another program wrote, survives a power cut."""
    if isinstance(folder, Path):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def require_writable(folder: ColdPath) -> None:
    """Create a folder; raise OSError unless files can be written to it."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(folder, Path):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return
    probe = folder / f".wane-{uuid.uuid4().hex}"
    probe.touch()
    probe.unlink()


def children(folder: ColdPath, pattern: str = "*") -> list[ColdPath]:
    """List what is directly below a folder and has a name like this, in the order of the names."""
    found: Iterator[ColdPath] = folder.glob(pattern)
    return sorted(found, key=str)


def changed_at(path: ColdPath) -> datetime:
    """Return when a file was last written."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def remove_tree(folder: ColdPath) -> None:
    """Remove everything below a folder, as far as it can be removed."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        folder.remove_all()
    except (OSError, ArchiveError):
        return
