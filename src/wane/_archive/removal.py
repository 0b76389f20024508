"""Removing copies from the archive whose rows are back in the hot table: by sweep and key, so that no later copy of the
same row is affected."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from wane._archive.cold_table import ColdTable
from wane._archive.failure import writing
from wane._archive.types import KEY, PARENT, SWEEP
from wane._leases import Lease

_ATTEMPTS = 5


def remove_copies(
    cold: ColdTable, copies: Sequence[tuple[int, str]], leases: Sequence[Lease], *, follows: bool, why: str
) -> None:
    """Remove copies of rows, or what left with them. Idempotent."""
    from deltalake.exceptions import CommitFailedError

    chosen = pa.table(
        {
            "sweep": pa.array([sweep for sweep, _ in copies], pa.int64()),
            "key": pa.array([key for _, key in copies], pa.string()),
        }
    )
    column = PARENT if follows else KEY
    for attempt in range(_ATTEMPTS):
        table = cold.fresh()
        if table is None or column not in {field.name for field in table.schema().fields}:
            return  # Nothing of it ever left, or ever left with another row.
        try:
            properties = cold.properties(table, leases, {}, removed=why)
            with writing(cold.folder):
                table.merge(
                    chosen,
                    f"cold.{SWEEP} = gone.sweep AND cold.{column} = gone.key",
                    source_alias="gone",
                    target_alias="cold",
                    commit_properties=properties,
                ).when_matched_delete().execute()
                cold.sync()
            break
        except CommitFailedError:
            # Another process committed to the same files; the next attempt reads the table anew.
            if attempt + 1 == _ATTEMPTS:
                raise
