"""The settings of a contract: one class per section of the file, each setting with its default, bounds and description.

This is their only declaration. Reading, merging, the JSON Schema, the fingerprint and the tables in
docs/reference/contract.md derive from it. A new section is a class here and a field of `Settings`. No setting decides
which rows leave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from datetime import timedelta
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field

from wane._contract.names import TableName
from wane._contract.refused import Refused, written
from wane._contract.values import (
    MOST_ROWS,
    Between,
    Boolean,
    Count,
    Duration,
    PairsOf,
    ReadBy,
    Share,
    Text,
    Url,
    Window,
    read_table_name,
    require_decided,
)
from wane._contract.variables import VARIABLE
from wane._findings import did_you_mean
from wane._frozen import frozen

T = TypeVar("T")
S = TypeVar("S", bound="Section")

OUTBOX_WORDS = ("name", "domain", "event", "table", "rows", "audit", "now", "now_s", "now_ms", "uuid", "payload")
"""The placeholders in the template of an outbox's column."""

_MILLISECOND, _SECOND, _MINUTE = timedelta(milliseconds=1), timedelta(seconds=1), timedelta(minutes=1)
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_TEN_YEARS = 3_650 * _DAY
_MOST_THRESHOLDS = 10
_LONGEST_ROLE = 63
"""PostgreSQL truncates longer names, which would then name another role."""
_REMOTE = r"sc://[^/;?#@\s]+(:[0-9]+)?(/(;[^;=\s]+=[^;=\s]*)*)?"
_MASTER = r"local(\[.*\])?|(spark|k8s)://.+|yarn"
_WORD = re.compile(r"\{([^{}]*)\}")
_FLAG = Text("a flag's name", "write a text in quotes")
_ROLE = Text("a role's name", most_bytes=_LONGEST_ROLE)


class Section:
    """The settings of one section. Constructed without a value, a setting has its default."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


def setting(default: T, description: str, *, by_key: bool = False, repr: bool = True) -> T:
    """Declare a setting; `by_key` merges a table of an including file into it key by key, instead of replacing it."""
    return field(default=default, repr=repr, metadata={"description": description, "by_key": by_key})


def merged(settings: S, overrides: Mapping[str, Any]) -> S:
    """Return the settings with those that a file sets; raise Refused if they do not go together."""
    update = dict(overrides)
    for one in fields(settings):  # type: ignore[arg-type]
        if one.metadata["by_key"] and one.name in update:
            update[one.name] = tuple({**dict(getattr(settings, one.name)), **dict(update[one.name])}.items())
    return replace(settings, **update)  # type: ignore[type-var]


def set_in(settings: Section, data: Iterable[str]) -> dict[str, Any]:
    """Return the settings that the data of a section sets, read."""
    return {key: getattr(settings, key) for key in data}


@frozen
class StoreSettings(Section):
    """The database."""

    url: Url | None = setting(None, "A URL, or the name of an environment variable that holds one.", repr=False)
    schemas: tuple[str, ...] = setting((), "PostgreSQL: the schemas to cover.")
    attach: Annotated[tuple[tuple[str, str], ...], PairsOf(str)] = setting((), "SQLite: databases to attach.")


@frozen
class Budget(Section):
    """The most that one sweep of one rule may do."""

    rows: Count = setting(100_000, "Rows that one sweep of a rule may take.")
    seconds: Count = setting(60, "Seconds that it may last.")
    batches: Count = setting(1_000, "Batches that it may run.")


def _table_flag(value: object) -> str:
    name = _FLAG.read(value)
    if name.count("{table}") != 1 or name.replace("{table}", "").count("{"):
        raise Refused("not a name for every table's flag", 'write {table} once in it: "retention.{table}.enabled"')
    return name


@frozen
class SweepSettings(Section):
    """How sweeps run: how fast, how much without confirmation, and behind which flags."""

    batch_ms: Count = setting(
        5,
        "The target duration of one batch, in milliseconds, or twice what a batch costs without rows if that is longer. While others use PostgreSQL, a fifth of it.",
    )
    duty: Share = setting(
        0.1,
        "Sets the share of the time that sweeps work: a fifth of it while others use PostgreSQL, a fortieth while others write to a SQLite file, and nine times it (SQLite: eight) while no one else does; the rest is pauses. At 1 there are none.",
    )
    fuse: Share = setting(0.9, "The largest share of a table that an unattended sweep of one rule may take.")
    first_fuse: Share = setting(
        0.5, "The same for the first sweep of a rule that takes rows, and the first since the rule was changed."
    )
    fuse_rows: Count = setting(1_000, "The fuse ignores rules with fewer due rows than this.")
    master_flag: Annotated[str, _FLAG] = setting("retention.enabled", "Sweeps are off until this flag is on.")
    table_flag: Annotated[str, ReadBy(_table_flag, {"type": "string", "pattern": r"\{table\}"})] = setting(
        "retention.{table}.enabled", "A table's sweeps are on until this flag is off."
    )


@frozen
class QueueSettings(Section):
    """How sweeps travel from schedulers to workers, and how long finished messages and dead letters are retained."""

    pool: Annotated[str, Text("a pool's name", "write a text in quotes, without a NUL character", 1_000)] = setting(
        "retention", "The work pool of the messages."
    )
    lease: Annotated[
        timedelta,
        Between(
            _SECOND,
            _DAY,
            'time limits inside the database are derived from it, and no other worker takes over before it ends: "30s" is usual',
        ),
    ] = setting(timedelta(seconds=30), "How long a worker without a heartbeat blocks others from its sweep.")
    attempts: Annotated[int, Field(ge=1, le=1_000, strict=True)] = setting(
        3, "How often a sweep is tried before it becomes a dead letter."
    )
    backoff: Annotated[timedelta, Between(_MILLISECOND, _DAY, 'it doubles with every attempt: "10s" is usual')] = (
        setting(
            timedelta(seconds=10),
            "The delay before the second attempt; it doubles, up to 10 minutes or this, whichever is longer.",
        )
    )
    remember: Annotated[
        timedelta,
        Between(
            _SECOND, _TEN_YEARS, 'retain finished messages for as long as you may want to read them: "7d" is usual'
        ),
    ] = setting(timedelta(days=7), "How long a finished message, and with it its key, is retained.")
    dead_letters: Window = setting(
        timedelta(days=365), "How long a resolved dead letter is retained; an unresolved one is never deleted."
    )


@frozen
class HealthSettings(Section):
    """The thresholds at which a table is unhealthy, and the precision of the pressure and health probes."""

    grace: Duration = setting(
        timedelta(minutes=5), "How long a due row may wait beyond its window and one sweep interval."
    )
    partition_rows: Count = setting(
        5_000_000, "The number of rows from which partitions are recommended; never below it."
    )
    partition_finished_rows: Count = setting(1_000_000, "The same for the finished rows of a table with states.")
    hot_read_ms: Annotated[float, Field(gt=0, le=60_000)] = setting(
        1.0, "How long a read through a rule's index may take, in milliseconds."
    )
    counted_rows: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] = setting(
        1_000, "A probe counts up to here; beyond, rows are estimated, or counted for a fraction of a second."
    )
    forget_silent: Annotated[
        timedelta, Between(_MINUTE, 365 * _DAY, 'executors write a heartbeat every ten seconds: "1d" is usual')
    ] = setting(timedelta(days=1), "How long an executor without a heartbeat is still reported.")
    every: Annotated[timedelta, Between(_SECOND, _DAY, 'a report costs what `wane health` costs: "1m" is usual')] = (
        setting(timedelta(minutes=1), "How often `wane run` records a health report, for SQL.")
    )


def _thresholds(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        found = "an empty list" if value == [] else written(value)
        raise Refused(f"{found} is not a list of row counts", "write [1_000_000, 5_000_000]")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int) or not 1 <= one <= MOST_ROWS:
            raise Refused(f"{written(one)} is not a number of rows", "write whole numbers above zero")
    if len(value) > _MOST_THRESHOLDS or value != sorted(set(value)):
        raise Refused("not in order", f"write at most {_MOST_THRESHOLDS} different numbers, the smallest first")
    return tuple(value)


_THRESHOLDS_SCHEMA = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1},
    "minItems": 1,
    "maxItems": _MOST_THRESHOLDS,
    "uniqueItems": True,
}
_Snapshots = Annotated[timedelta, Between(_DAY, _TEN_YEARS, 'a rate needs days of snapshots: "30d" is usual')]


@frozen
class GrowthSettings(Section):
    """How often tables are measured, how long snapshots are retained, and when to warn."""

    every: Annotated[
        timedelta, Between(_MINUTE, 30 * _DAY, 'snapshots are distinguished by the minute: "1h" is usual')
    ] = setting(timedelta(hours=1), "How often `wane run` takes a snapshot of every table.")
    count_within: Annotated[
        timedelta, Between(_MILLISECOND, _MINUTE, 'every table is counted, one after the other: "1s" is usual')
    ] = setting(timedelta(seconds=1), "How long counting one table may take; after that its rows are estimated.")
    fine: _Snapshots = setting(timedelta(days=14), "How long all snapshots are retained; after that one a day.")
    keep: _Snapshots = setting(timedelta(days=400), "How long the remaining snapshots are retained.")
    window: _Snapshots = setting(timedelta(days=30), "The period before now that the rate is computed over.")
    least: Duration = setting(timedelta(days=1), "The shortest span of snapshots that gives a rate.")
    thresholds: Annotated[tuple[int, ...], ReadBy(_thresholds, _THRESHOLDS_SCHEMA)] = setting(
        (1_000_000, 5_000_000), "Numbers of rows at which action is due: inspect the table, partition it."
    )
    near: Share = setting(0.8, "The share of a threshold from which to warn, whatever the rate.")
    warn: Duration = setting(timedelta(days=30), "How long before the forecast reaches a threshold to warn.")


@frozen
class SpaceSettings(Section):
    """When unused space is reported, and how much of it may be reclaimed at a time."""

    share: Share = setting(0.3, "The unused share of a table, an index or a file from which advice is given.")
    bytes: Count = setting(10_000_000, "Less unused space is never reported.")
    seconds: Count = setting(10, "SQLite: how long one `wane space --vacuum` may take.")
    pages: Count = setting(100_000, "SQLite: how many pages it may free.")


def _role(name: str) -> str:
    if not name.isprintable():
        raise Refused(f"{written(name)} is not a role's name", _ROLE.fix)
    if name.lower() in ("public", "none", "current_user", "current_role", "session_user") or name.startswith("pg_"):
        raise Refused(f"{name!r} is a name that PostgreSQL reserves", "write another one")
    return name


_RoleName = Annotated[str, _ROLE, AfterValidator(_role)]


@frozen
class RoleSettings(Section):
    """Who may delete, and who may read the archive (PostgreSQL)."""

    enabled: Boolean = setting(default=False, description="Whether sweeps need membership in the admin role.")
    admin: _RoleName = setting("workflow_admin", "The role that may sweep.")
    reader: _RoleName = setting("analytics_reader", "The role that may read the archive.")
    application: _RoleName | None = setting(None, "The application's own role, if it prunes inline.")
    archive_schema: _RoleName = setting("archive", "The schema of archived tables.")

    def __post_init__(self) -> None:
        names = [name for name in (self.admin, self.reader, self.application) if name]
        if len(set(names)) != len(names):
            raise Refused("one role for two purposes", "give every purpose a role of its own")


def _tables(value: object) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Refused(
            f"{written(value)} does not select tables whose events are emitted",
            "write true, false, or a list of tables",
        )
    return tuple(sorted({str(TableName.parse(one)) for one in value}))


def _template(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Refused(f"{written(value)} is not what a column can be filled with", 'write a text, for example "{name}"')
    for word in _WORD.findall(value):
        if word not in OUTBOX_WORDS:
            hint = did_you_mean(word, OUTBOX_WORDS) or f"known: {', '.join(OUTBOX_WORDS)}"
            raise Refused(f"unknown placeholder {{{word}}}", hint)
    return value


_Tables = Annotated[
    bool | tuple[str, ...],
    ReadBy(_tables, {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]}),
]
_TEXT = {"type": "string", "minLength": 1}
_TableText = Annotated[str, ReadBy(lambda value: str(read_table_name(value)), _TEXT)]
_Template = Annotated[str, ReadBy(_template, _TEXT)]


@frozen
class OutboxSettings(Section):
    """The application's own table of events, and what Wane writes into which of its columns."""

    table: _TableText = field(metadata={"description": "The table."})
    columns: Annotated[tuple[tuple[str, str], ...], PairsOf(_Template, least=1)] = field(
        metadata={"description": "Its columns and their templates, with placeholders such as `{name}`."}
    )
    prunes: _Tables = setting(
        default=False,
        description="Whether rows that ordinary prunes delete are recorded, too: of all tables, of none, or of a list.",
    )


@frozen
class EventSettings(Section):
    """Which of the events `system/<table>_…` are emitted: all, none, or those of a list of tables."""

    hard_deleted: _Tables = setting(default=True, description="`system/<table>_hard_deleted`.")
    archived: _Tables = setting(default=True, description="`system/<table>_archived`.")
    outbox: OutboxSettings | None = setting(
        None, "The application's own table of events, written in the same transaction as the change."
    )

    def emits_hard_deleted(self, table: str) -> bool:
        return _selects(self.hard_deleted, table)

    def writes_pruned(self, table: str) -> bool:
        """Return whether rows of a table that an ordinary prune deletes are recorded in the outbox."""
        return self.outbox is not None and _selects(self.outbox.prunes, table) and self.emits_hard_deleted(table)

    def emits_archived(self, table: str) -> bool:
        return _selects(self.archived, table)


def _selects(tables: bool | tuple[str, ...], table: str) -> bool:
    return tables if isinstance(tables, bool) else table in tables


@frozen
class UpkeepSettings(Section):
    """How the archive is maintained."""

    every: Annotated[timedelta, Between(10 * _MINUTE, 30 * _DAY, 'months are read and written anew: "1d" is usual')] = (
        setting(
            timedelta(days=1),
            "How often `wane run` expires a table's archive, and checks whether it needs compacting and tidying.",
        )
    )
    files: Count = setting(20, "The number of small files of one month from which `wane run` compacts it.")
    file_bytes: Annotated[int, Field(ge=1_000_000, le=10_000_000_000, strict=True)] = setting(
        128_000_000, "The target size of files; one below half of it is small."
    )
    tidy_after: Annotated[timedelta, Between(_HOUR, _TEN_YEARS, 'readers may still need them: "7d" is usual')] = (
        setting(
            timedelta(days=7),
            "How long a file that is no longer part of the archive stays on disk: readers of an older snapshot need it.",
        )
    )
    forget_after: Annotated[
        timedelta, Between(_DAY, _TEN_YEARS, 'an operator may ask what was restored: "90d" is usual')
    ] = setting(
        timedelta(days=90),
        "How long the journals retain the details of finished work: restores, ranges of sweeps, compactions.",
    )


def _master(value: object) -> str:
    require_decided(value)
    _require_no_variable(value)
    if not isinstance(value, str) or not re.fullmatch(_MASTER, value):
        raise Refused(
            f"{written(value)} is no master of Spark", 'write "local[*,4]", "spark://host:7077", "yarn" or "k8s://…"'
        )
    return value


def _remote(value: object) -> str:
    require_decided(value)
    _require_no_variable(value)
    if not isinstance(value, str) or not re.fullmatch(_REMOTE, value):
        raise Refused(f"{written(value)} is no server of Spark Connect", 'write "sc://host:15002"')
    if re.search(r";token=", value, re.IGNORECASE):
        raise Refused(
            "a token does not belong into a contract", "set SPARK_CONNECT_AUTHENTICATE_TOKEN in the environment instead"
        )
    return value


def _spark_setting(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise Refused(f"{written(value)} is not a setting", "write a text, a number, true or false")
    _require_no_variable(value)
    return str(value)


def _require_no_variable(value: object) -> None:
    """Refuse `${NAME}` where it is not expanded: only the URLs of [store] and [archive] expand variables."""
    found = VARIABLE.search(value) if isinstance(value, str) else None
    if found is not None:
        raise Refused(f"{found[0]} is not replaced by a variable's value here", "write the value itself")


_SparkSetting = Annotated[str, ReadBy(_spark_setting, {"type": ["string", "number", "boolean"]})]


@frozen
class SparkSettings(Section):
    """How the archive's pipeline runs."""

    master: Annotated[str, ReadBy(_master, {"type": "string", "pattern": f"^({_MASTER})$"})] = setting(
        "local[*,4]", "Where Spark runs. The 4 is the number of attempts for each task; without it, there is one."
    )
    remote: Annotated[str, ReadBy(_remote, {"type": "string", "pattern": f"^{_REMOTE}$"})] | None = setting(
        None, "A server of Spark Connect to use instead of `master`: no Java runs in this process."
    )
    idle_stop: Annotated[timedelta, Between(_SECOND, _DAY, 'a Spark takes seconds to start: "10m" is usual')] = setting(
        timedelta(minutes=10),
        "How long `wane run` and `wane serve` leave a Spark that they started without work before they stop it.",
    )
    range_rows: Count = setting(200_000, "The number of the table's rows that one task reads.")
    sweep_rows: Count = setting(
        2_000_000, "The number of the table's rows that one sweep moves; the rest moves with the next one."
    )
    evictors: Annotated[int, Field(ge=1, le=8, strict=True)] = setting(
        2,
        "PostgreSQL: the most tasks in which a sweep evicts, or a restore that pauses loads, at a time; beside other users they share the time that `duty` allows.",
    )
    lease_seconds: Annotated[int, Field(ge=5, le=86_400, strict=True)] = setting(
        60, "How long a dead writer blocks others from the same table's archive."
    )
    url_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", strict=True)] | None = setting(
        None, "On a cluster: the environment variable of its workers that holds the database's URL."
    )
    settings: Annotated[tuple[tuple[str, str], ...], PairsOf(_SparkSetting)] = setting(
        (), "Any of Spark's own settings, by their names.", by_key=True
    )

    @property
    def where(self) -> str:
        """Return where Spark runs, for messages."""
        return self.master if self.remote is None else self.remote


@frozen(kw_only=True)
class Settings:
    """Every section of settings, in the order of the reference."""

    store: StoreSettings = StoreSettings()
    budget: Budget = Budget()
    """The budget of rules that set none; a rule has its own with these values filled in."""
    sweep: SweepSettings = SweepSettings()
    queue: QueueSettings = QueueSettings()
    health: HealthSettings = HealthSettings()
    growth: GrowthSettings = GrowthSettings()
    space: SpaceSettings = SpaceSettings()
    roles: RoleSettings = RoleSettings()
    events: EventSettings = EventSettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    spark: SparkSettings = SparkSettings()


SECTIONS: dict[str, type[Section]] = get_type_hints(Settings)
"""The class of each section, by its name in the file."""
