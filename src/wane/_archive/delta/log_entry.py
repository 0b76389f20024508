"""Writing one entry of a table's log: the commit of sweeps, of maintenance and of jobs of others.

What a commit may not repeat, and who may make it, are application transactions of the entry: of two commits that were
made from one state with the same application, Delta Lake refuses the second, which reads the log anew. So neither a
writer that was replaced after it had read the log, nor one that runs twice, adds anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wane._archive.delta.failure import writing
from wane._archive.delta.paths import ColdPath, sync_folder

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

LOG = "_delta_log"


def write_entry(
    table: DeltaTable,
    root: ColdPath,
    actions: Sequence[AddAction | RemoveAction],
    partitions: Sequence[str],
    versions: Mapping[str, int],
    metadata: Mapping[str, str],
) -> None:
    """Make one commit from the state that a handle sees, and make sure that it survives a power cut.

    `versions`: the version of each application that commits. Raise CommitFailedError if another process committed
    meanwhile what conflicts with it.
    """
    from deltalake import CommitProperties, Transaction

    properties = CommitProperties(
        custom_metadata=dict(metadata),
        app_transactions=[Transaction(name, version) for name, version in versions.items()],
    )
    with writing(root):
        table.create_write_transaction(
            list(actions), "append", table.schema(), list(partitions), commit_properties=properties
        )
        sync_log(root)


def sync_log(root: ColdPath) -> None:
    """Make sure that what was committed survives a power cut: rows are deleted elsewhere because of it."""
    log = root / LOG
    if isinstance(log, Path):
        sync_folder(max(log.glob("*.json")))
        sync_folder(log)


def is_written(path: ColdPath, size: int) -> bool:
    """Check whether a file is there, with its size: a commit that names a missing one would be accepted."""
    return path.is_file() and path.stat().st_size == size
