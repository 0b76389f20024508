"""A process that reads a SQLite database as Arrow, while the process that started it deletes the same rows.

The process exists because ADBC brings a SQLite of its own: two of them on one file in one process release each other's
locks. It imports nothing of Wane: `python arrow_process.py DATABASE`. Every line with a query (as JSON) is answered by
HEADER (an error or not, and a number of bytes), and that many bytes of an Arrow stream, or of a message. Each query
reads the state that is committed when it begins, and leaves no transaction open.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any, BinaryIO
from urllib.parse import quote

HEADER = struct.Struct(">?q")
_BATCH_ROWS = 8_192


def main(path: str, queries: BinaryIO, answers: BinaryIO) -> None:
    """Answer that it is ready, and then queries until there are no more."""
    # Not their DB-API, which imports pandas and polars.
    import adbc_driver_manager
    import adbc_driver_sqlite
    import pyarrow as pa

    with (
        adbc_driver_sqlite.connect(f"file:{quote(path)}?mode=ro") as database,
        adbc_driver_manager.AdbcConnection(database) as connection,
    ):
        _send(answers, b"", failed=False)
        for line in queries:
            sink = pa.BufferOutputStream()
            try:
                with adbc_driver_manager.AdbcStatement(connection) as statement:
                    statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
                    statement.set_sql_query(json.loads(line))
                    handle, _ = statement.execute_query()
                    with (
                        pa.RecordBatchReader.from_stream(handle) as batches,
                        pa.ipc.new_stream(sink, batches.schema) as stream,
                    ):
                        for batch in batches:
                            stream.write_batch(batch)
            except (adbc_driver_manager.Error, OSError, pa.ArrowException) as problem:
                _send(answers, str(problem).encode(), failed=True)
                continue
            _send(answers, sink.getvalue(), failed=False)


def _send(answers: BinaryIO, answer: Any, *, failed: bool) -> None:
    view = memoryview(answer)
    answers.write(HEADER.pack(failed, view.nbytes))
    answers.write(view)
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
