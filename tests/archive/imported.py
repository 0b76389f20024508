"""What a task of the archive imports when it needs it, imported here, before processes are forked: it takes longer than
most tasks."""

from __future__ import annotations

import adbc_driver_postgresql.dbapi
import adbc_driver_sqlite.dbapi
import pandas
import pyarrow.dataset
import pyarrow.pandas_compat

__all__ = ["adbc_driver_postgresql", "adbc_driver_sqlite", "pandas", "pyarrow"]
