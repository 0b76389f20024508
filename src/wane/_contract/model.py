"""What a contract promises, resolved: windows looked up, defaults filled in, every name parsed.

These are plain values, independent of files, databases and clocks; `load` builds them, every other package reads them.
A value of these types has passed all checks that need no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import date, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from wane._contract.conditions import Conditions, disjoint
from wane._contract.cron import Cron
from wane._contract.duration import Forever, format_duration
from wane._contract.maintenance import Within
from wane._contract.names import AUDIT, TableName
from wane._contract.settings import Budget, Settings
from wane._findings import Finding
from wane._frozen import frozen

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
    DATE = "date"
    """A day without a time of day. It counts as over when the next day begins, in its zone or in UTC."""


@frozen
class Reference:
    """Columns of another table that point at a row's key, or at the columns named in `to`."""

    table: TableName
    columns: tuple[str, ...]
    to: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.table}.{','.join(self.columns)}"


class Pick(StrEnum):
    """Which of several columns holds the time of a row."""

    FIRST = "first"
    """The first that is not NULL."""
    LATEST = "latest"
    """The one with the latest time; columns that are NULL do not count."""


@frozen
class Time:
    """A column that holds timestamps, or several of which one does, and how they encode them.

    With a zone, the values are wall-clock times in that zone, or days of it.
    """

    column: str
    unit: Unit = Unit.NATIVE
    zone: str | None = None
    also: tuple[Unit, ...] = ()
    """Other encodings that the same column uses: each value is in one of them or in `unit`."""
    beside: tuple[str, ...] = ()
    """Further columns with the same encoding, in the order of the contract; `pick` selects the row's time."""
    pick: Pick | None = None
    child: Reference | None = None
    """The rows of another table that hold the time of the row that they refer to: the latest of their times counts."""
    parent: Reference | None = None
    """The row of another table that holds the time of the rows that refer to it. `columns` are those of this table,
    `to` those of the other."""

    @property
    def elsewhere(self) -> Reference | None:
        """Return the reference to the table that holds the time; None: it is in the row itself."""
        return self.child or self.parent

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, *self.beside)

    def __str__(self) -> str:
        if self.pick is Pick.LATEST:
            return f"the latest of {', '.join(self.columns)}"
        if self.elsewhere is not None:
            return f"{'the latest ' if self.child else ''}{self.elsewhere.table}.{self.column}"
        return ", else ".join(self.columns)

    @property
    def each(self) -> tuple[Time, ...]:
        """Return the column once per encoding, each with that encoding alone."""
        return tuple(Time(self.column, unit, self.zone) for unit in (self.unit, *self.also))


class WindowUnit(StrEnum):
    """What a number in a column of windows counts."""

    MILLISECONDS = "ms"
    SECONDS = "s"
    MINUTES = "m"
    HOURS = "h"
    DAYS = "d"

    @property
    def length(self) -> timedelta:
        names = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
        return timedelta(**{names[self.value]: 1})


@frozen
class Longer:
    """A column that holds the window of a row, in the row itself or in the one that it refers to.

    It never shortens the window of the rule. A value that is no window (NULL, 0, negative, too large) keeps the row.
    """

    column: str
    unit: WindowUnit
    parent: Reference | None = None
    """The row of another table that holds the window: `columns` of this table refer to `to` of the other."""

    def __str__(self) -> str:
        return self.column if self.parent is None else f"{self.parent.table}.{self.column}"


@frozen
class Age:
    """Due when the time is strictly before now − keep, and before now − the row's own window, if rows have one."""

    time: Time
    keep: timedelta
    longer: Longer | None = None


@frozen
class MissingParent:
    """A reference without a foreign key: columns, the table they point at, and the columns of it that they name.

    Without those columns, it is the table's key.
    """

    columns: tuple[str, ...]
    table: TableName
    to: tuple[str, ...] = ()


@frozen
class Orphans:
    """Due like Age, but only where the reference to the parent is NULL, or points at a row that does not exist."""

    time: Time
    keep: timedelta
    reference: str
    missing: MissingParent | None = None
    """What the reference points at, if NULL is no orphan, and a reference that points at nothing is."""
    longer: Longer | None = None


@frozen
class Expiry:
    """Due when the timestamp in the column is at or before now."""

    time: Time


@frozen
class Cap:
    """Due when `most` rows of the same scope are newer: by (time, key), or, without a time, by a column of the key."""

    time: Time | None
    most: int
    per: tuple[str, ...] = ()
    by: str | None = None
    """The column of the key whose values ascend as rows are inserted, for tables without a time."""


Bound = Age | Orphans | Expiry | Cap | Forever


@frozen
class Spare:
    """The newest rows of a rule, by (time, key), that stay whatever their age: a number of each scope."""

    newest: int
    per: tuple[str, ...] = ()


@frozen
class Follower:
    """Rows of another table that leave with the row they refer to."""

    reference: Reference
    where: Conditions = ()
    followers: tuple[Follower, ...] = ()
    live_leaves: bool = False
    """Whether rows in a live state of their own table leave, too. If not, such a row protects the one that it
    follows."""


@frozen
class ReferencedBy:
    """Saves a row while any row refers to it."""

    reference: Reference


@frozen
class WhileNull:
    """Saves a row while the column is NULL."""

    column: str


@frozen
class WhileNotNull:
    """Saves a row while the column is not NULL."""

    column: str


Guard = ReferencedBy | WhileNull | WhileNotNull


@frozen
class Prune:
    """The row is deleted."""


@frozen
class ToArchive:
    """The row moves to the archive."""


@frozen
class ToColdTier:
    """The row moves to a table of its month in another schema of the same database (PostgreSQL)."""

    schema: str


@frozen
class Mark:
    """The row stays and its state becomes `state`."""

    state: State


Action = Prune | ToArchive | ToColdTier | Mark


@frozen
class Rule:
    """One named line of promises about a table."""

    name: str
    bound: Bound
    states: tuple[State, ...] = ()
    guards: tuple[Guard, ...] = ()
    followers: tuple[Follower, ...] = ()
    action: Action = Prune()
    budget: Budget = field(default_factory=Budget)
    derived: bool = False
    all_but: tuple[State, ...] | None = None
    """The states that the rule does not select, if it selects every other one (`when = "*"`)."""
    conditions: Conditions = ()
    """What columns of the row must fulfil (`where`)."""
    spare: Spare | None = None
    unlinked: tuple[Reference, ...] = ()
    """References to a row that a trigger of the database removes before the row leaves."""
    least_rows: int | None = None
    longest_wait: timedelta | None = None
    """Of a rule that archives: instead of those of its table (`ArchiveTable`)."""

    @property
    def active(self) -> bool:
        """Return whether the rule can ever select a row."""
        return not isinstance(self.bound, Forever)

    @property
    def by_state(self) -> bool:
        """Return whether the state of a row decides whether the rule is about it."""
        return bool(self.states) or self.all_but is not None

    def selects(self, state: State | None) -> bool:
        """Return whether the rule is about rows in a state, if they fulfil its conditions."""
        if self.all_but is not None:
            return state is not None and state not in self.all_but
        return not self.states or state in self.states

    def may_share_rows(self, other: Rule) -> bool:
        """Return whether a row may be of both rules: by their states and conditions, it is not certain that none is."""
        few, many = (self, other) if self.states else (other, self)
        return (not few.states or any(map(many.selects, few.states))) and not disjoint(
            self.conditions, other.conditions
        )


class ExcuseKind(StrEnum):
    """Why a table, or a state, needs no rule."""

    SINGLETON = "singleton"
    INLINE = "inline"
    IN_PLACE = "in_place"
    CONSTANT = "constant"
    MIRROR = "mirror"
    APPEND_ONLY = "append_only"
    ELSEWHERE = "elsewhere"


@frozen
class Excuse:
    """The written reason, and the most rows it promises."""

    kind: ExcuseKind
    reason: str
    rows: int | None = None


@frozen
class Accepted:
    """A finding that a user has seen and accepts, with the reason."""

    code: str
    at: str
    """The key or the table that it is about, or a key above; "" for findings about neither."""
    reason: str
    until: date | None = None
    """The last day on which it is accepted; None: no end."""
    file: str = ""
    path: str = ""
    line: int | None = None

    def matches(self, finding: Finding) -> bool:
        """Return whether a finding is meant: of this code, and about this table, or this key or one below it."""
        if finding.code != self.code:
            return False
        if not self.at:
            return not finding.path and not finding.table
        return self.at in (finding.table, finding.path) or finding.path.startswith((f"{self.at}.", f"{self.at}["))


@frozen
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

    @property
    def tier_schema(self) -> str | None:
        """Return the schema of the same database that its rows move to; None if they do not."""
        return next((rule.action.schema for rule in self.rules if isinstance(rule.action, ToColdTier)), None)

    def label(self, rule: Rule) -> str:
        """Return the `table` label of metrics: `<table>.<rule>` for rules that select some rows, else `<table>`."""
        return f"{self.name}.{rule.name}" if rule.by_state or rule.conditions else str(self.name)


@frozen
class Scheduler:
    """Who sweeps, and when."""

    name: str
    every: timedelta
    """How often; of a cron expression, the longest interval between two of its times."""
    cron: Cron | None = None
    within: Within | None = None
    """The only hours in which its sweeps run."""

    @property
    def longest(self) -> timedelta:
        """Return the longest time between two of its windows."""
        return self.every if self.within is None else self.every + self.within.closed

    @property
    def when(self) -> str:
        """Describe when it sweeps."""
        when = f"every {format_duration(self.every)}" if self.cron is None else f"at {self.cron}"
        return when if self.within is None else f"{when}, only {self.within}"


@frozen
class Masking:
    """What the archive has instead of a column's values: one text for all of them, or theirs with most of it
    covered."""

    text: str | None = None
    first: int = 0
    """How many of the first characters stay."""
    last: int = 0

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        shown = [f"{what} {count}" for what, count in (("first", self.first), ("last", self.last)) if count]
        return f"all but the {' and the '.join(shown)}"


@frozen
class Transform:
    """What happens to the columns of a table on the way to the archive."""

    drop: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    mask: tuple[tuple[str, Masking], ...] = ()
    select: tuple[str, ...] = ()
    """Every column that the archive has, as Spark's SQL writes it; empty if it has the table's."""

    def columns(self) -> tuple[str, ...]:
        """Return the columns that the archive does not have as the table has them."""
        return (*self.drop, *self.hash, *(name for name, _ in self.mask))

    def described(self) -> dict[str, Any]:
        """Return it as the journal and the audit trail record it."""
        masks = {name: str(mask) for name, mask in sorted(self.mask)}
        every = {"drop": sorted(self.drop), "hash": sorted(self.hash), "mask": masks, "select": list(self.select)}
        return {what: columns for what, columns in every.items() if columns}


FOLLOWING = "with"
"""The key under which a described transformation has those of followers, by their tables."""


def describe_transform(described: Mapping[str, Any]) -> str:
    """Write in words what `Transform.described` or `Contract.described_transform` returned."""
    words = [
        f"{what} {', '.join(columns if what == 'select' else sorted(columns))}"
        for what, columns in sorted(described.items())
        if what != FOLLOWING
    ]
    following = sorted(described.get(FOLLOWING, {}).items())
    return "; ".join([*words, *(f"with {table}: {describe_transform(one)}" for table, one in following)])


@frozen
class ArchiveTable:
    """How long the archive keeps the rows of one table, and what it keeps of them."""

    table: TableName
    keep: timedelta | Forever | None
    """None: the table has no rule that archives, and its rows expire with those that they left with."""
    cast: tuple[tuple[str, str], ...] = ()
    """Columns whose type the archive cannot store, each with the type it is stored as."""
    statistics: tuple[str, ...] = ()
    """Text columns whose minimum and maximum the archive's log stores for each file."""
    least_rows: int = 1
    """A scheduled sweep begins when this number of rows is due, or one has been due for `longest_wait`."""
    longest_wait: timedelta = timedelta(days=1)
    transform: Transform | None = None
    erases_absent: bool = False
    """Whether copies of rows that the application deleted before the sweep came to them are erased."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Columns that were renamed, each with the name under which it was first archived."""


class Retired(StrEnum):
    """What happens to a partition whose rows are all past their window."""

    DROP = "drop"
    MOVE = "move"
    """It moves to the schema of archived tables."""
    ARCHIVE = "archive"
    """Its rows move to the archive, through the pipeline; then it is dropped."""


class MadeBy(StrEnum):
    """What makes the partitions of a table."""

    WANE = "wane"
    """Wane makes one for each month, after it has converted the table."""
    APPLICATION = "application"
    """The application, or an extension such as pg_partman: Wane only retires them."""


@frozen
class Partitioned:
    """How a table is partitioned (PostgreSQL), and when a partition leaves: see `entries.PartitionEntry`."""

    table: TableName
    time: Time
    keep: timedelta | Forever
    ahead: int
    quarantine: timedelta
    then: Retired
    rows: int | None
    lock: timedelta
    followers: tuple[tuple[TableName, Time], ...] = ()
    """Tables that are partitioned along with it, each by its own time column."""
    made_by: MadeBy | None = None
    """None: by Wane."""

    @property
    def by_application(self) -> bool:
        return self.made_by is MadeBy.APPLICATION


@frozen
class Contract(Settings):
    """Everything that is promised about one database, with the settings."""

    path: Path | None
    tables: tuple[Table, ...]
    excused: tuple[tuple[TableName, Excuse], ...] = ()
    schedulers: tuple[Scheduler, ...] = ()
    floors: tuple[tuple[TableName, timedelta], ...] = ()
    windows: tuple[tuple[str, timedelta | Forever], ...] = ()
    archive_url: str | None = field(default=None, repr=False)
    archive_shared: bool = False
    """Whether several databases share the archive's tables."""
    archive: tuple[ArchiveTable, ...] = ()
    partitions: tuple[Partitioned, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    strict: bool = False
    positions: Mapping[str, tuple[str, int]] = field(default_factory=dict, repr=False, compare=False)
    """The file and the line of every key, by its dotted path."""

    def located(self, finding: Finding) -> Finding:
        """Return a finding about one of its keys with the file and the line of that key, or of the nearest above it."""
        path = finding.path
        while path and path not in self.positions:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        if not path:
            return finding
        file, line = self.positions[path]
        return replace(finding, file=file, line=line)

    @property
    def covers_audit(self) -> bool:
        """Return whether one of the tables is Wane's own audit trail."""
        return any(table.name in AUDIT for table in self.tables)

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
        """Return the text columns of a table whose minimum and maximum the archive's log stores, also by the names
        under which they were first archived."""
        found = next((one for one in self.archive if str(one.table) == name), None)
        if found is None:
            return ()
        return (*found.statistics, *(before for now, before in found.renamed if now in found.statistics))

    def described_transform(self, table: str, rule: Rule) -> dict[str, Any] | None:
        """Return what happens to columns of a rule's rows, and of their followers, on the way to the archive; None:
        nothing."""
        transforms = {str(one.table): one.transform.described() for one in self.archive if one.transform is not None}
        followers = sorted({str(one.reference.table) for one in walk_followers(rule.followers)})
        following = {name: transforms[name] for name in followers if name in transforms}
        return {**transforms.get(table, {}), **({FOLLOWING: following} if following else {})} or None

    def archive_wait(self, table: str, rule: str) -> timedelta:
        """Return how long a due row of a rule waits for others at the most, because its archive's sweeps do."""
        if all(str(one.table) != table for one in self.archive):
            return timedelta(0)
        for one in self.tables:
            for declared in one.rules if str(one.name) == table else ():
                if declared.name == rule and isinstance(declared.action, ToArchive):
                    least, longest = self.archive_batch(table, declared)
                    return longest if least > 1 else timedelta(0)
        return timedelta(0)

    def archive_batch(self, table: str, rule: Rule) -> tuple[int, timedelta]:
        """Return how many due rows of a rule that archives begin a scheduled sweep, and for how long one waits."""
        settings = next(one for one in self.archive if str(one.table) == table)
        return rule.least_rows or settings.least_rows, rule.longest_wait or settings.longest_wait

    def followers(self) -> Iterator[tuple[Table, Rule, Follower]]:
        """Yield every follower of every rule, nested ones included."""
        for table in self.tables:
            for rule in table.rules:
                for follower in walk_followers(rule.followers):
                    yield table, rule, follower


def walk_followers(followers: Iterable[Follower]) -> Iterator[Follower]:
    """Yield followers, and what follows them."""
    for follower in followers:
        yield follower
        yield from walk_followers(follower.followers)
