"""How long a write-ahead log is, read from its file, as https://www.sqlite.org/fileformat2.html describes it.

SQLite itself states it only to a connection that moves the log into the database. No lock is on this file: a process
that closes the database file, or the index of the log, would lose the locks of its connections on them.
"""

from __future__ import annotations

import os
from pathlib import Path

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_SALTS = slice(16, 24)
_FRAME_SALTS = slice(8, 16)
"""Numbers that are others whenever the log begins anew: what is left of an older log has older ones."""
_PAGE_SIZE = slice(8, 12)


def pages_in_log(path: Path) -> int:
    """Count the pages in the write-ahead log of a database since it began anew; 0 if it has none.

    Pages that are in the database already count until the next commit, with which the log begins anew.
    """
    try:
        file = os.open(f"{os.path.realpath(path)}-wal", os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        header = os.pread(file, _HEADER_BYTES, 0)
        frame_bytes = _FRAME_HEADER_BYTES + int.from_bytes(header[_PAGE_SIZE], "big")
        pages, beyond = 0, max(os.fstat(file).st_size - _HEADER_BYTES, 0) // frame_bytes + 1
        while pages + 1 < beyond:
            middle = (pages + beyond) // 2
            frame = os.pread(file, _FRAME_HEADER_BYTES, _HEADER_BYTES + (middle - 1) * frame_bytes)
            if frame[_FRAME_SALTS] == header[_SALTS]:
                pages = middle
            else:
                beyond = middle
        return pages
    finally:
        os.close(file)
