"""Partitions on PostgreSQL: all steps of partitioning a table, keeping it, letting months go, and going back."""

from __future__ import annotations

from wane.store.postgres.partition_back import GoingBack
from wane.store.postgres.partition_convert import Converting
from wane.store.postgres.partition_months import Months
from wane.store.postgres.partition_retire import Retiring
from wane.store.postgres.partition_split import Splitting


class PostgresPartitions(Converting, GoingBack, Months, Retiring, Splitting):
    """Every step."""
