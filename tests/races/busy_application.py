"""An application that writes to a SQLite file without a pause, as it should: WAL, BEGIN IMMEDIATE, a busy timeout of 5
seconds.

It writes until it reads a line, prints what it did, and fails if the database was ever locked for it.
"""

from __future__ import annotations

import json
import select
import sqlite3
import sys
import time


def main(path: str) -> None:
    connection = sqlite3.connect(path, timeout=5, isolation_level=None)
    transactions, longest = 0, 0.0
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO jobs (id, status) VALUES (?, 'open')", (1_000_000 + transactions,))
        connection.execute("UPDATE jobs SET beat = beat + 1 WHERE id = ?", (1_000_000 + transactions,))
        connection.execute("COMMIT")
        transactions += 1
        longest = max(longest, time.monotonic() - began)
        if transactions == 10:
            sys.stdout.write("writing\n")
            sys.stdout.flush()
    sys.stdout.write(json.dumps({"transactions": transactions, "longest_seconds": longest}))


if __name__ == "__main__":
    main(sys.argv[1])
