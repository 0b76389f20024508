"""Pydantic models of the sections [growth], [space], [roles], [events], [upkeep] and [partition]: see `document`."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from wane.contract.document import (
    MOST_ROWS,
    Count,
    Duration,
    Keep,
    NamedTable,
    Piece,
    Share,
    TimeSpec,
    duration_between,
)
from wane.contract.duration import PATTERN
from wane.contract.model import Retired, Unit
from wane.contract.names import TableName
from wane.contract.refused import Refused, told
from wane.contract.settings import (
    OUTBOX_WORDS,
    EventSettings,
    GrowthSettings,
    OutboxSettings,
    RoleSettings,
    SpaceSettings,
    UpkeepSettings,
)
from wane.findings import did_you_mean

_MOST_THRESHOLDS = 10
_LONGEST_NAME = 63
"""PostgreSQL truncates longer names, which would then name another role."""


def _thresholds(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        found = "an empty list" if value == [] else told(value)
        raise Refused(f"{found} is not a list of row counts", "write [1_000_000, 5_000_000]")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int) or not 1 <= one <= MOST_ROWS:
            raise Refused(f"{told(one)} is not a number of rows", "write whole numbers above zero")
    if len(value) > _MOST_THRESHOLDS or value != sorted(set(value)):
        raise Refused("not in order", f"write at most {_MOST_THRESHOLDS} different numbers, the smallest first")
    return tuple(value)


def _role(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise Refused(f"{told(value)} is not a role's name", "write the name in quotes")
    if len(value.encode()) > _LONGEST_NAME:
        raise Refused("a name of more than 63 bytes", "PostgreSQL would cut it off; write a shorter one")
    if value.lower() in ("public", "none", "current_user", "current_role", "session_user") or value.startswith("pg_"):
        raise Refused(f"{value!r} is a name that PostgreSQL keeps for itself", "write another one")
    return value


def _told_tables(value: object) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Refused(f"{told(value)} does not say which events are told", "write true, false, or a list of tables")
    return tuple(sorted({str(TableName.parse(one)) for one in value}))


def _table_name(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(f"{told(value)} is not a table's name", "write the name in quotes")
    return str(TableName.parse(value))


def _filled(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Refused(f"{told(value)} is not what a column can be filled with", 'write a text, for example "{name}"')
    for word in _WORD.findall(value):
        if word not in OUTBOX_WORDS:
            hint = did_you_mean(word, OUTBOX_WORDS) or f"known: {', '.join(OUTBOX_WORDS)}"
            raise Refused(f"nothing is known as {{{word}}}", hint)
    return value


_WORD = re.compile(r"\{([^{}]*)\}")
_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME}
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)
_SCHEMA = {"type": "string", "pattern": PATTERN}
Every = Annotated[
    timedelta,
    duration_between(_MINUTE, 30 * _DAY, 'snapshots are told apart to the minute: "1h" is usual'),
    WithJsonSchema(_SCHEMA),
]
CountWithin = Annotated[
    timedelta,
    duration_between(timedelta(milliseconds=1), _MINUTE, 'every table is counted, one after the other: "1s" is usual'),
    WithJsonSchema(_SCHEMA),
]
Remembered = Annotated[
    timedelta,
    duration_between(_DAY, 3_650 * _DAY, 'a rate needs days of snapshots: "30d" is usual'),
    WithJsonSchema(_SCHEMA),
]
Thresholds = Annotated[
    Any,
    BeforeValidator(_thresholds),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
            "minItems": 1,
            "maxItems": _MOST_THRESHOLDS,
            "uniqueItems": True,
        }
    ),
]
RoleName = Annotated[str, BeforeValidator(_role), WithJsonSchema(_NAME_SCHEMA)]
Upkept = Annotated[
    timedelta,
    duration_between(timedelta(minutes=10), 30 * _DAY, 'months are read and written anew: "1d" is usual'),
    WithJsonSchema(_SCHEMA),
]
TidyAfter = Annotated[
    timedelta,
    duration_between(timedelta(hours=1), 3_650 * _DAY, 'somebody may still read them: "7d" is usual'),
    WithJsonSchema(_SCHEMA),
]
ForgetAfter = Annotated[
    timedelta,
    duration_between(_DAY, 3_650 * _DAY, 'somebody may ask what was restored: "90d" is usual'),
    WithJsonSchema(_SCHEMA),
]
Filled = Annotated[str, BeforeValidator(_filled), WithJsonSchema({"type": "string", "minLength": 1})]
ToldTables = Annotated[
    Any,
    BeforeValidator(_told_tables),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]}),
]


class GrowthPiece(Piece):
    """Snapshots of tables, and forecasts from them."""

    every: Every | None = Field(default=None, description="How often `wane run` measures every table.")
    count_within: CountWithin | None = Field(default=None, description="How long counting one table may take.")
    fine: Remembered | None = Field(default=None, description="How long all snapshots are kept; then one a day.")
    keep: Remembered | None = Field(default=None, description="How long the snapshots that are left are kept.")
    window: Remembered | None = Field(default=None, description="How far back the rate looks.")
    least: Duration | None = Field(default=None, description="No rate from less than that.")
    thresholds: Thresholds | None = Field(default=None, description="Rows at which something should be done.")
    near: Share | None = Field(default=None, description="The share of a threshold from which to warn.")
    warn: Duration | None = Field(default=None, description="How long before a threshold to warn.")

    def over(self, default: GrowthSettings) -> GrowthSettings:
        """Return these settings, with missing values taken from the default."""
        return replace(default, **{key: getattr(self, key) for key in self.model_fields_set})


class SpacePiece(Piece):
    """Room that nobody uses."""

    share: Share | None = Field(default=None, description="The unused share from which advice is given.")
    bytes: Count | None = Field(default=None, description="Less than that is never worth a word.")
    seconds: Count | None = Field(default=None, description="SQLite: the most for one incremental vacuum.")
    pages: Count | None = Field(default=None, description="SQLite: the most for one incremental vacuum.")

    def over(self, default: SpaceSettings) -> SpaceSettings:
        """Return these settings, with missing values taken from the default."""
        return replace(default, **{key: getattr(self, key) for key in self.model_fields_set})


class RolesPiece(Piece):
    """Who may delete and who may read the archive."""

    enabled: bool | None = Field(default=None, strict=True, description="Whether sweeps need the admin role.")
    admin: RoleName | None = Field(default=None, description="Who may sweep.")
    reader: RoleName | None = Field(default=None, description="Who may read the archive.")
    application: RoleName | None = Field(default=None, description="The application's own role.")
    archive_schema: RoleName | None = Field(default=None, description="The schema of archived tables.")

    @model_validator(mode="after")
    def _different(self) -> RolesPiece:
        default = RoleSettings()
        filled = [self.admin or default.admin, self.reader or default.reader]
        filled += [self.application] if self.application else []
        if len(set(filled)) != len(filled):
            raise Refused("one role for two purposes", "give every purpose a role of its own")
        return self

    def over(self, default: RoleSettings) -> RoleSettings:
        """Return these settings, with missing values taken from the default."""
        return replace(default, **{key: getattr(self, key) for key in self.model_fields_set})


class OutboxPiece(Piece):
    """A table of the application's that events are written to."""

    table: Annotated[str, BeforeValidator(_table_name), WithJsonSchema({"type": "string", "minLength": 1})]
    columns: dict[str, Filled] = Field(min_length=1, description="What each column is filled with.")
    prunes: ToldTables = Field(default=False, description="Whether what ordinary prunes delete is written too.")


class EventsPiece(Piece):
    """Which events are told."""

    hard_deleted: ToldTables | None = Field(default=None, description="`system/<table>_hard_deleted`.")
    archived: ToldTables | None = Field(default=None, description="`system/<table>_archived`.")
    outbox: OutboxPiece | None = Field(default=None, description="The application's own table of events.")

    def over(self, default: EventSettings) -> EventSettings:
        """Return these settings, with missing values taken from the default."""
        given = {key: getattr(self, key) for key in self.model_fields_set}
        if isinstance(self.outbox, OutboxPiece):
            outbox = self.outbox
            given["outbox"] = OutboxSettings(outbox.table, tuple(outbox.columns.items()), outbox.prunes)
        return replace(default, **given)


class UpkeepPiece(Piece):
    """How the archive is cared for."""

    every: Upkept | None = Field(default=None, description="How often `wane run` sees to a table's archive.")
    files: Count | None = Field(default=None, description="Small files of one month from which it is compacted.")
    file_bytes: Annotated[int, Field(ge=1_000_000, le=10_000_000_000, strict=True)] | None = Field(
        default=None, description="How large files should be."
    )
    tidy_after: TidyAfter | None = Field(default=None, description="How long a file stays that nothing needs.")
    forget_after: ForgetAfter | None = Field(default=None, description="How long journals keep the details.")

    def over(self, default: UpkeepSettings) -> UpkeepSettings:
        """Return these settings, with missing values taken from the default."""
        return replace(default, **{key: getattr(self, key) for key in self.model_fields_set})


_LONGEST_AHEAD = 24
Lock = Annotated[
    timedelta,
    duration_between(
        timedelta(milliseconds=1), timedelta(seconds=10), 'the application waits as long, at the most: "200ms" is usual'
    ),
    WithJsonSchema(_SCHEMA),
]
Quarantine = Annotated[
    timedelta,
    duration_between(timedelta(seconds=1), 3_650 * _DAY, 'a partition can be put back for as long: "7d" is usual'),
    WithJsonSchema(_SCHEMA),
]


def _retired(value: object) -> Retired:
    if not isinstance(value, str) or value not in list(Retired):
        raise Refused(f"{told(value)} is not what becomes of a partition", 'write "drop", "move" or "archive"')
    return Retired(value)


def require_range(time: Any) -> None:
    """Raise Refused unless a time column can be the key of partitions."""
    if time.also:
        raise Refused(
            "moments in several units have no order that partitions could rely on", "partition by a column with one"
        )
    if time.unit in (Unit.ISO, Unit.TEXT):
        raise Refused(
            "moments that are written as text have no order that partitions could rely on",
            "partition by a column of another type",
        )


class PartitionFollowerPiece(Piece):
    """A table that is partitioned along."""

    table: NamedTable
    time: TimeSpec = Field(description="Its own time column.")

    @model_validator(mode="after")
    def _range(self) -> PartitionFollowerPiece:
        require_range(self.time)
        return self


class PartitionPiece(Piece):
    """A table that is partitioned by months (PostgreSQL)."""

    time: TimeSpec = Field(description="The column that decides the month.")
    keep: Keep = Field(description="How long a month stays after its end.")
    ahead: Annotated[int, Field(ge=1, le=_LONGEST_AHEAD, strict=True)] | None = Field(
        default=None, description="How many months are made ahead."
    )
    quarantine: Quarantine | None = Field(default=None, description="How long a retired month can be put back.")
    then: Annotated[Any, BeforeValidator(_retired), WithJsonSchema({"enum": [one.value for one in Retired]})] | None = (
        Field(default=None, description="What becomes of a month.")
    )
    rows: Count | None = Field(default=None, description="Recommended from so many rows on.")
    lock: Lock | None = Field(default=None, description="The longest wait for a lock that stops the application.")
    with_: list[PartitionFollowerPiece] = Field(
        default_factory=list, alias="with", description="Tables that are partitioned along."
    )

    @model_validator(mode="after")
    def _range(self) -> PartitionPiece:
        require_range(self.time)
        return self
