"""Digests of rows, computed inside SQLite: functions on a connection, and a process that has such a connection.

The process exists because a task reads through ADBC, which brings a SQLite of its own: two of them on one file in one
process release each other's locks. It imports nothing but the standard library: `python digests.py URI`. It blocks
writers until its caller has begun to read, so that both see the same state; then every line with a query (as JSON) is
answered by a line with the row that it reads, or with {"error": …}; so is a beginning that fails.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import sys
import time

BUSY_SECONDS = 10.0
READY, GO = "ready", "go"
_ADDED_AT_ONCE = 8_192


def register(connection: sqlite3.Connection) -> None:
    """Register the functions that digest rows on a connection."""
    connection.create_function("wane_digest", 1, _digest, deterministic=True)
    connection.create_function("wane_real_text", 1, _real_text, deterministic=True)
    connection.create_function("wane_sha256", 1, _sha256, deterministic=True)
    connection.create_aggregate("wane_digest_sums", 2, _DigestSums)  # type: ignore[arg-type]


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _real_text(value: float | None) -> str | None:
    return None if value is None else struct.pack(">d", value).hex()


def _sha256(value: str | bytes | int | None) -> str | None:
    if value is None:
        return None
    return hashlib.sha256(value if isinstance(value, bytes) else str(value).encode()).hexdigest()


class _DigestSums:
    """Adds up the halves of digests, or their first halves only; the order of rows does not matter.

    Some thousand at once: reading the numbers of each by itself takes longer than its digest.
    """

    def __init__(self) -> None:
        self.sums = [0, 0]
        self.halves = 2
        self.digests: list[str] = []

    def step(self, digest: str | None, halves: int) -> None:
        if digest is not None:
            self.halves = halves
            self.digests.append(digest)
            if len(self.digests) == _ADDED_AT_ONCE:
                self._add()

    def _add(self) -> None:
        numbers = struct.unpack(f">{2 * len(self.digests)}q", bytes.fromhex("".join(self.digests)))
        self.sums = [one + sum(numbers[half::2]) for half, one in enumerate(self.sums)]
        self.digests.clear()

    def finalize(self) -> str:
        self._add()
        return " ".join(map(str, self.sums[: self.halves]))


def main(uri: str) -> None:
    """Answer queries about one state of a database."""
    try:
        reading = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        register(reading)
        gate = sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=0, isolation_level=None)
        _begin(gate)
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except sqlite3.Error as problem:
        _send({"error": str(problem)})
        return
    _send(READY)
    assert sys.stdin.readline().strip() == GO
    gate.execute("ROLLBACK")
    gate.close()
    for line in sys.stdin:
        try:
            [row] = reading.execute(json.loads(line)).fetchall()
            _send(list(row))
        except sqlite3.Error as problem:
            _send({"error": str(problem)})


def _begin(gate: sqlite3.Connection) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            gate.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(0.002)


def _send(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
