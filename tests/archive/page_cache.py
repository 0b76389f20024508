"""Which pages of a file are in memory, as Linux reports it (`mincore`)."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_MEMORY = ("tmpfs", "ramfs")


def resident_pages(path: Path) -> int:
    """Count the pages of a file that need not be read from the disk."""
    size = path.stat().st_size
    found = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        try:
            if libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), found):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            del first  # Or the map could not be closed.
    return sum(page & 1 for page in found)


@contextmanager
def folder_on_disk(preferred: Path) -> Iterator[Path]:
    """Return a folder whose files are not in memory alone; skip the test where there is none, or where the kernel does
    not drop pages that it is asked to drop."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux reports which pages of a file are in memory")
    found = [(place, _kind(place)) for place in (preferred, Path("/var/tmp"), Path(__file__).parent)]
    place, kind = next((one for one in found if one[1] not in _MEMORY and os.access(one[0], os.W_OK)), (None, ""))
    if place is None:
        pytest.skip("temporary files are in memory here, and nowhere else")
    with TemporaryDirectory(prefix="wane-pages-", dir=place) as name:
        control = Path(name) / "control"
        control.write_bytes(os.urandom(1_000_000))
        with control.open("rb") as file:
            os.fsync(file.fileno())
            assert resident_pages(control) > 0, "a sync alone drops nothing"
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if resident_pages(control):
            pytest.skip(f"the kernel retains pages of {kind} files that it is asked to drop")
        control.unlink()
        yield Path(name)


def _kind(folder: Path) -> str:
    """Return the kind of a folder's file system."""
    if not folder.is_dir():
        return _MEMORY[0]
    requested = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
    return requested.stdout.strip()
