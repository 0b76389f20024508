"""Partitions that an application makes: whether they are ranges of time, so that each is past its time at some
point."""

from __future__ import annotations

from wane._contract.model import Time
from wane._db.schema import Kind, TableInfo
from wane._db.store import Store

_BY_RULES = "remove it from [partition]: rows leave by the rules of the table"


def partition_misfit(store: Store, info: TableInfo, time: Time) -> tuple[str, str] | None:
    """Return why partitions that the application makes of a table can never be retired, and what to do instead.

    None if they are ranges of the time column alone: then every row of a partition is older than the partition's end.
    """
    if not store.has_partitions:
        return "SQLite has no partitions", _BY_RULES
    if info.kind is Kind.PARTITION:
        return f"{info.name} is a partition itself", "name the table that it belongs to"
    if info.partitioning is None:
        return f"{info.name} is not partitioned", f"{_BY_RULES}; or remove `made_by`, and let Wane convert it"
    column = info.column(time.column)
    if column is None:
        return f"{info.name} has no column {time.column!r}", f"it is partitioned by {info.partitioning}"
    kind, _, key = info.partitioning.partition(" ")
    if kind != "RANGE":
        return f"{info.name} is partitioned by {info.partitioning}: such a partition never ends", _BY_RULES
    if info.partition_key != (time.column,) or key not in (f"({time.column})", f"({store.dialect.quote(time.column)})"):
        return (
            f"{info.name} is partitioned by {info.partitioning}, and not by ranges of {time.column} alone",
            f"name that column if it holds times; otherwise {_BY_RULES}",
        )
    problem = store.types.time(column, time)
    return (problem, "correct `time`: its unit and its zone decide when a partition ends") if problem else None
