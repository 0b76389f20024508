"""The process from which Spark forks its Python workers, with everything imported that the pipeline's tasks need.

Importing takes longer than most tasks. What is imported is also frozen: a worker collects garbage after every task, and
would examine every object of these modules each time. Spark starts one such process for tasks, and one for each step of
planning a data source, which imports what it needs by itself.

A task allocates as much for one batch as for the one before. The allocator that comes with Arrow gives memory back to
the system in between, which has to clear it every time. The C library's needs less memory at its peak, and retains it,
if it is set to: reading back takes two fifths less processor time then, and copying a tenth.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import sys
from importlib.util import find_spec

from pyspark.daemon import manager

_ALLOCATOR = ("ARROW_DEFAULT_MEMORY_POOL", "system")
_RETAINED = {-3: 32 * 1024 * 1024, -1: 256 * 1024 * 1024}
"""By their numbers in glibc's `malloc.h`, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD: blocks of fewer bytes are reused, and
the process has at most so many bytes that it does not use."""
_TASKS = "pyspark.worker"
"""The module of the workers that run tasks."""
_NEEDED = (
    "adbc_driver_manager.dbapi",
    "adbc_driver_postgresql",
    "adbc_driver_sqlite",
    "pyarrow.compute",
    "pyarrow.parquet",
    "wane._archive.pipeline.evictors",
    "wane._archive.pipeline.extract",
    "wane._archive.pipeline.unique",
    "wane._archive.pipeline.verify",
)


def main() -> None:
    """Import what tasks need, if the workers run tasks, and fork workers until Spark ends."""
    if _TASKS in sys.argv[1:]:
        os.environ.setdefault(*_ALLOCATOR)  # Which Arrow reads when it is imported.
        _retain_memory()
        for module in (_TASKS, *_NEEDED):
            importlib.import_module(module)
        if find_spec("psycopg") is not None:
            importlib.import_module("wane._db.postgres.store")
        gc.freeze()
    manager()


def _retain_memory() -> None:
    """Let the C library retain what a task frees, and the workers inherit that."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # Other libraries than glibc have none.
        for setting, size in _RETAINED.items():
            mallopt(setting, size)


if __name__ == "__main__":
    main()
