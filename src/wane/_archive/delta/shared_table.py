"""A Delta Lake table that several databases share: each sees, and changes, its own partition alone.

The table is partitioned by origin, then by month. A handle of one origin lists the files of that origin only, by paths
below the origin's folder, and writes such paths back as the log has them. So everything above works on one database's
table, and cannot reach another's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, DeltaTable
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from wane._archive.rows.types import MONTH, ORIGIN


@dataclass(frozen=True, slots=True)
class _Names:
    names: list[str]


class _OwnActions:
    """The add actions of one origin, with what callers use of Arrow's interface."""

    def __init__(self, actions: Any, origin: str, prefix: str) -> None:
        origins = actions[f"partition.{ORIGIN}"].to_pylist()
        self._actions = actions
        self._own = [number for number, one in enumerate(origins) if one == origin]
        self._prefix = prefix
        self.num_rows = len(self._own)
        self.schema = _Names(list(actions.schema.names))

    def __getitem__(self, name: str) -> _OwnColumn:
        values = self._actions[name].to_pylist()
        found = [values[number] for number in self._own]
        return _OwnColumn([one.removeprefix(self._prefix) for one in found] if name == "path" else found)


@dataclass(frozen=True, slots=True)
class _OwnColumn:
    values: list[Any]

    def __len__(self) -> int:
        return len(self.values)

    def to_pylist(self) -> list[Any]:
        return self.values


class OriginTable(DeltaTable):
    """A handle of a shared table that sees one origin."""

    def __init__(self, uri: str, origin: str, storage_options: dict[str, str] | None) -> None:
        super().__init__(uri, storage_options=storage_options)
        self._origin = origin
        self._prefix = f"{ORIGIN}={origin}/"

    def schema(self) -> Schema:
        """Return the columns without the origin, which no file contains."""
        return Schema([field for field in super().schema().fields if field.name != ORIGIN])

    def get_add_actions(self, flatten: bool = False) -> Any:
        """Return what the log records of the origin's files."""
        return _OwnActions(super().get_add_actions(flatten=flatten), self._origin, self._prefix)

    def file_uris(self, *args: Any, **options: Any) -> list[str]:
        """Return the URIs of the origin's files."""
        return [uri for uri in super().file_uris(*args, **options) if f"/{self._prefix}" in uri]

    def vacuum(self, *args: Any, **options: Any) -> list[str]:
        """Return the origin's files that are part of nothing any more. Only ever dry: it would remove those of all."""
        if options.get("dry_run") is not True:
            raise ValueError("a shared table is tidied by each of its databases")
        found = super().vacuum(*args, **options)
        return [path.removeprefix(self._prefix) for path in found if path.startswith(self._prefix)]

    def create_write_transaction(
        self,
        actions: Sequence[AddAction | RemoveAction],
        mode: str,
        schema: object,
        partition_by: object = None,
        partition_filters: object = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        **options: Any,
    ) -> None:
        """Make a commit that adds and removes files of the origin."""
        super().create_write_transaction(
            [as_logged(one, self._origin) for one in actions],
            mode,
            super().schema(),
            [ORIGIN, MONTH],
            commit_properties=commit_properties,
        )


def as_logged(action: AddAction | RemoveAction, origin: str) -> AddAction | RemoveAction:
    """Return an action on a file of one origin as the log of the shared table has it."""
    path = f"{ORIGIN}={origin}/{action.path}"
    if isinstance(action, AddAction):
        return AddAction(
            path,
            action.size,
            {ORIGIN: origin, **action.partition_values},
            action.modification_time,
            action.data_change,
            action.stats,
        )
    return RemoveAction(
        path,
        action.data_change,
        action.deletion_timestamp,
        action.size,
        {ORIGIN: origin, **(action.partition_values or {})},
    )
