"""What a contract promises, resolved: windows looked up, defaults filled in, every name parsed.

These are plain values, independent of files, databases and clocks; `load` builds them, every other package reads them.
A value of these types has passed all checks that need no database.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from wane.contract.names import TableName
from wane.contract.settings import EventSettings, GrowthSettings, RoleSettings, SpaceSettings, UpkeepSettings

State = str | int | bool
"""A value of a state column."""


class Unit(StrEnum):
    """How a column encodes a timestamp."""

    NATIVE = "native"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    ISO = "iso"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Time:
    """A column that holds timestamps, and how it encodes them.

    With a zone, the values are wall-clock times in that zone.
    """

    column: str
    unit: Unit = Unit.NATIVE
    zone: str | None = None
    also: tuple[Unit, ...] = ()
    """Other encodings that the same column uses: each value is in one of them or in `unit`."""

    @property
    def each(self) -> tuple[Time, ...]:
        """Return the column once per encoding, each with that encoding alone."""
        return tuple(Time(self.column, unit, self.zone) for unit in (self.unit, *self.also))


@dataclass(frozen=True, slots=True)
class Forever:
    """Rows that stay, on purpose."""


FOREVER = Forever()


@dataclass(frozen=True, slots=True)
class Age:
    """Due when the time is strictly before now − keep."""

    time: Time
    keep: timedelta


@dataclass(frozen=True, slots=True)
class Orphans:
    """Due like Age, but only where the reference to the parent is NULL."""

    time: Time
    keep: timedelta
    reference: str


@dataclass(frozen=True, slots=True)
class Expiry:
    """Due when the timestamp in the column is at or before now."""

    time: Time


@dataclass(frozen=True, slots=True)
class Cap:
    """Due when `most` rows of the same scope are newer, by (time, key)."""

    time: Time
    most: int
    per: tuple[str, ...] = ()


Bound = Age | Orphans | Expiry | Cap | Forever


@dataclass(frozen=True, slots=True)
class Reference:
    """Columns of another table that point at a row's key, or at the columns named in `to`."""

    table: TableName
    columns: tuple[str, ...]
    to: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.table}.{','.join(self.columns)}"


@dataclass(frozen=True, slots=True)
class Follower:
    """Rows of another table that leave with the row they refer to."""

    reference: Reference
    where: tuple[tuple[str, State], ...] = ()
    followers: tuple[Follower, ...] = ()
    live_leaves: bool = False
    """Whether rows in a live state of their own table leave, too. If not, such a row protects the one that it
    follows."""


@dataclass(frozen=True, slots=True)
class ReferencedBy:
    """Saves a row while any row refers to it."""

    reference: Reference


@dataclass(frozen=True, slots=True)
class WhileNull:
    """Saves a row while the column is NULL."""

    column: str


@dataclass(frozen=True, slots=True)
class WhileNotNull:
    """Saves a row while the column is not NULL."""

    column: str


Guard = ReferencedBy | WhileNull | WhileNotNull


@dataclass(frozen=True, slots=True)
class Prune:
    """The row is deleted."""


@dataclass(frozen=True, slots=True)
class ToArchive:
    """The row moves to the archive."""


@dataclass(frozen=True, slots=True)
class Shelve:
    """The row moves to a table of its month in another schema of the same database (PostgreSQL)."""

    schema: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The row stays and its state becomes `state`."""

    state: State


Action = Prune | ToArchive | Shelve | Mark


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that one sweep of one rule may do."""

    rows: int = 100_000
    seconds: int = 60
    batches: int = 1_000


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """How sweeps run: how fast, how much without confirmation, and behind which flags."""

    batch_ms: int = 5
    """The target duration of one batch; its size adapts."""
    duty: float = 0.1
    """The share of time spent working; the rest is pauses."""
    fuse: float = 0.9
    """The largest share of a table that an unattended sweep of one rule may take."""
    first_fuse: float = 0.5
    """The same for the first sweep of a rule: its author may have meant something else."""
    fuse_rows: int = 1_000
    """The fuse never blows for fewer rows."""
    master_flag: str = "iu_core.retention_enabled"
    """Sweeps are off until this flag is on."""
    table_flag: str = "queue.retention.{table}.enabled"
    """A table's sweeps are on until this flag is off."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How sweeps travel from schedulers to workers, and how long finished messages and dead letters are retained."""

    pool: str = "retention"
    lease: timedelta = timedelta(seconds=30)
    """How long a worker without a heartbeat blocks others from its sweep."""
    attempts: int = 3
    backoff: timedelta = timedelta(seconds=10)
    """The delay before the first retry of a failed sweep; it doubles with each attempt."""
    remember: timedelta = timedelta(days=7)
    """How long a finished message, and with it its key, is retained."""
    dead_letters: timedelta | Forever = timedelta(days=365)
    """How long a resolved dead letter is retained; an unresolved one is never deleted."""


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """The thresholds at which a table is unhealthy, and the precision of the pressure and health probes."""

    grace: timedelta = timedelta(minutes=5)
    """How long a due row may wait beyond its window and one sweep interval."""
    partition_rows: int = 5_000_000
    """The number of rows from which a table should be partitioned; never below it."""
    partition_finished_rows: int = 1_000_000
    """The same for the finished rows of a table with states."""
    hot_read_ms: float = 1.0
    """How long a read through a rule's index may take."""
    counted_rows: int = 1_000
    """Rows are counted up to here; beyond, they are estimated."""
    forget_silent: timedelta = timedelta(days=1)
    """How long an executor without a heartbeat is still reported."""
    every: timedelta = timedelta(minutes=1)
    """How often `wane run` records a health report."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One named line of promises about a table."""

    name: str
    bound: Bound
    states: tuple[State, ...] = ()
    guards: tuple[Guard, ...] = ()
    followers: tuple[Follower, ...] = ()
    action: Action = Prune()
    budget: Budget = Budget()
    derived: bool = False

    @property
    def active(self) -> bool:
        """Return whether the rule can ever select a row."""
        return not isinstance(self.bound, Forever)


class ExcuseKind(StrEnum):
    """Why a table, or a state, needs no rule."""

    SINGLETON = "singleton"
    INLINE = "inline"
    IN_PLACE = "in_place"
    CONSTANT = "constant"
    MIRROR = "mirror"
    APPEND_ONLY = "append_only"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Excuse:
    """The written reason, and the most rows it promises."""

    kind: ExcuseKind
    reason: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The life of one table."""

    name: TableName
    why: str
    rules: tuple[Rule, ...]
    scheduler: str | None = None
    key: tuple[str, ...] = ()
    state: str | None = None
    live: tuple[State, ...] = ()
    excused: tuple[tuple[State, Excuse], ...] = ()
    append_only: bool = False
    inline: str | None = None
    observe: str | None = None
    age: Time | None = None
    """The column that pressure and health read the age of rows from; None: the one that rules age by."""

    def rule(self, name: str) -> Rule:
        for rule in self.rules:
            if rule.name == name:
                return rule
        raise KeyError(name)

    def label(self, rule: Rule) -> str:
        """Return the `table` label of metrics: `<table>.<rule>` for rules that select states, else `<table>`."""
        return f"{self.name}.{rule.name}" if rule.states else str(self.name)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Who sweeps, and how often."""

    name: str
    every: timedelta


@dataclass(frozen=True, slots=True)
class ArchiveTable:
    """How long the archive keeps the rows of one table."""

    table: TableName
    keep: timedelta | Forever
    cast: tuple[tuple[str, str], ...] = ()
    """Columns whose type the archive cannot store, each with the type it is stored as."""
    statistics: tuple[str, ...] = ()
    """Text columns whose minimum and maximum the archive's log stores for each file."""


class Retired(StrEnum):
    """What happens to a partition whose rows are all past their window."""

    DROP = "drop"
    MOVE = "move"
    """It moves to the schema of archived tables."""
    ARCHIVE = "archive"
    """Its rows move to the archive, through the pipeline; then it is dropped."""


@dataclass(frozen=True, slots=True)
class Partitioned:
    """How a table is partitioned by months (PostgreSQL), and when a month leaves."""

    table: TableName
    time: Time
    keep: timedelta | Forever
    ahead: int = 3
    """The number of months created ahead."""
    quarantine: timedelta = timedelta(days=7)
    """How long a detached partition can be re-attached before it is dropped."""
    then: Retired = Retired.DROP
    rows: int | None = None
    """The number of rows from which partitioning is recommended; None: the value in [health]."""
    lock: timedelta = timedelta(milliseconds=200)
    """How long a statement may wait for a lock behind which the application's statements queue."""
    followers: tuple[tuple[TableName, Time], ...] = ()
    """Tables that are partitioned along with it, each by its own time column."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How the archive's pipeline runs."""

    master: str = "local[*,4]"
    """Where Spark runs. The 4 is the number of attempts for each task; without it, there is one."""
    range_rows: int = 200_000
    """The number of the table's rows that one task reads."""
    sweep_rows: int = 2_000_000
    """The number of the table's rows that one sweep moves; the rest moves with the next one."""
    lease_seconds: int = 60
    """How long a dead writer blocks others from the same table's archive."""
    url_variable: str | None = None
    """On a cluster: the environment variable of its workers that holds the database's URL."""
    settings: tuple[tuple[str, str], ...] = ()
    """Any of Spark's own settings."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the database is. The URL may contain a secret: `wane.db.url` masks it before it is shown."""

    url: str | None = field(default=None, repr=False)
    schemas: tuple[str, ...] = ()
    attach: tuple[tuple[str, str], ...] = ()
    audit: bool = False
    """Whether the contract covers Wane's own audit trail."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Everything that is promised about one database."""

    path: Path | None
    tables: tuple[Table, ...]
    excused: tuple[tuple[TableName, Excuse], ...] = ()
    schedulers: tuple[Scheduler, ...] = ()
    floors: tuple[tuple[TableName, timedelta], ...] = ()
    windows: tuple[tuple[str, timedelta | Forever], ...] = ()
    archive_url: str | None = field(default=None, repr=False)
    archive: tuple[ArchiveTable, ...] = ()
    partitions: tuple[Partitioned, ...] = ()
    store: StoreSettings = StoreSettings()
    sweep: SweepSettings = SweepSettings()
    queue: QueueSettings = QueueSettings()
    spark: SparkSettings = SparkSettings()
    health: HealthSettings = HealthSettings()
    growth: GrowthSettings = field(default_factory=GrowthSettings)
    space: SpaceSettings = field(default_factory=SpaceSettings)
    roles: RoleSettings = field(default_factory=RoleSettings)
    events: EventSettings = field(default_factory=EventSettings)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    strict: bool = False

    def table(self, name: TableName) -> Table:
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(str(name))

    def partitioned(self, name: TableName) -> Partitioned | None:
        """Return how a table is partitioned, on its own or along with another; None if it is not."""
        for one in self.partitions:
            if one.table == name:
                return one
            for table, time in one.followers:
                if table == name:
                    return replace(one, table=table, time=time, followers=())
        return None

    def rules(self) -> Iterator[tuple[Table, Rule]]:
        """Yield every rule that can select rows, in the order of the file."""
        for table in self.tables:
            for rule in table.rules:
                if rule.active:
                    yield table, rule

    def archive_statistics(self, name: str) -> tuple[str, ...]:
        """Return the text columns of a table whose minimum and maximum the archive's log stores."""
        return next((one.statistics for one in self.archive if str(one.table) == name), ())

    def followers(self) -> Iterator[tuple[Table, Rule, Follower]]:
        """Yield every follower of every rule, nested ones included."""

        def walk(followers: tuple[Follower, ...]) -> Iterator[Follower]:
            for follower in followers:
                yield follower
                yield from walk(follower.followers)

        for table in self.tables:
            for rule in table.rules:
                for follower in walk(rule.followers):
                    yield table, rule, follower
