"""From the pieces of the files to one Contract: sections merged, windows and schedulers looked up, defaults filled in.

Nothing here stops at the first mistake. A piece that cannot be read is left out after its mistake is recorded, and all
other pieces are still checked. Entries of a file replace those of the files it includes, one by one: a window, a
scheduler, a floor, a whole table. Files that do not include each other may not declare the same entry, unless they
agree on a setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from wane.contract.document import (
    ArchiveTablePiece,
    BudgetPiece,
    ExcusePiece,
    HealthPiece,
    Piece,
    QueuePiece,
    SchedulerPiece,
    SparkPiece,
    StorePiece,
    SweepPiece,
    TablePiece,
    read_url,
    read_window,
)
from wane.contract.lint import lint
from wane.contract.model import (
    ArchiveTable,
    Budget,
    Contract,
    Excuse,
    Forever,
    HealthSettings,
    Partitioned,
    QueueSettings,
    Scheduler,
    Shelve,
    SparkSettings,
    StoreSettings,
    SweepSettings,
    Table,
    ToArchive,
)
from wane.contract.names import AUDIT, TableName
from wane.contract.origins import Origins
from wane.contract.pieces import Mistakes, describe, key_path
from wane.contract.rules import Surroundings, check_name, read_excuse, read_rules, read_table
from wane.contract.sections import EventsPiece, GrowthPiece, PartitionPiece, RolesPiece, SpacePiece, UpkeepPiece
from wane.contract.settings import EventSettings, GrowthSettings, RoleSettings, SpaceSettings, UpkeepSettings
from wane.findings import did_you_mean, errors_of

P = TypeVar("P", bound=Piece)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the contract, parsed as TOML, with its mistakes."""

    path: Path
    data: dict[str, Any] = field(repr=False)  # It may contain a URL with a password.
    mistakes: Mistakes
    above: tuple[Path, ...] = ()
    """The files that include it, outermost first."""


def resolve(path: Path, files: list[SourceFile]) -> Contract:
    """Build the contract of these files, included ones first.

    Mistakes are collected in the files; with any, the result is partial.
    """
    return _Resolver(files).contract(path)


class _Resolver:
    def __init__(self, files: list[SourceFile]) -> None:
        self.files = files
        self.origins = Origins(files[-1].mistakes)
        self.said: dict[str, tuple[SourceFile, object]] = {}
        self.declared: dict[tuple[str, TableName], SourceFile] = {}
        self.windows: dict[str, timedelta | Forever] = {}
        self.schedulers: dict[str, Scheduler] = {}
        self.mentioned: set[str] = set()
        self.budget = Budget()
        self.sweep = SweepSettings()
        self.queue = QueueSettings()
        self.spark = SparkSettings()
        self.health = HealthSettings()
        self.growth = GrowthSettings()
        self.space = SpaceSettings()
        self.roles = RoleSettings()
        self.events = EventSettings()
        self.upkeep = UpkeepSettings()
        self.store = StorePiece()
        self.strict = False
        self.archive_url: str | None = None

    def contract(self, path: Path) -> Contract:
        for file in self.files:
            self._settings(file)
        surroundings = Surroundings(self.windows, self.schedulers, self.budget, frozenset(self.mentioned), set())
        tables: dict[TableName, Table] = {}
        excused: dict[TableName, Excuse] = {}
        floors: dict[TableName, timedelta] = {}
        archive: dict[TableName, ArchiveTable] = {}
        shelved: set[TableName] = set()
        partitions: dict[TableName, Partitioned] = {}
        for file in self.files:
            for name, data, place in self._named(file, "table"):
                table = self._table(file, name, data, place, surroundings)
                if self._may_declare(file, place, name) and table is not None:
                    tables[name] = table
            for name, data, place in self._named(file, "excused"):
                if data is False:
                    self._remove_excuse(file, place, name, excused)
                    continue
                excuse = file.mistakes.read(ExcusePiece, data, place)
                if self._may_declare(file, place, name) and excuse is not None:
                    excused[name] = read_excuse(excuse)
            for name, data, place in self._named(file, "floor"):
                floor = self._duration(file, data, place)
                if self._may_declare(file, place, name) and isinstance(floor, timedelta):
                    floors[name] = floor
            for name, data, place in self._named(file, "archive"):
                kept = file.mistakes.read(ArchiveTablePiece, data, place)
                keep = None if kept is None else surroundings.keep(kept.keep, [*place, "keep"], file.mistakes)
                if self._may_declare(file, place, name) and keep is not None:
                    assert kept is not None
                    archive[name] = ArchiveTable(name, keep, tuple(kept.cast.items()), tuple(kept.statistics))
                    if kept.tier == "database":
                        shelved.add(name)
            for name, data, place in self._named(file, "partition"):
                partitioned = self._partition(file, name, data, place, surroundings)
                if self._may_declare(file, place, name) and partitioned is not None:
                    partitions[name] = partitioned
        self._drop_replaced(tables, excused)
        tables = {name: self._shelving(table) if name in shelved else table for name, table in tables.items()}
        contract = Contract(
            path=path,
            tables=tuple(tables.values()),
            excused=tuple(excused.items()),
            schedulers=tuple(self.schedulers.values()),
            floors=tuple(floors.items()),
            windows=tuple(self.windows.items()),
            archive_url=self.archive_url,
            archive=tuple(archive.values()),
            partitions=tuple(partitions.values()),
            store=StoreSettings(
                self.store.url,
                tuple(self.store.schemas),
                tuple(self.store.attach.items()),
                audit=any(name in AUDIT for name in tables),
            ),
            sweep=self.sweep,
            queue=self.queue,
            spark=self.spark,
            health=self.health,
            growth=self.growth,
            space=self.space,
            roles=self.roles,
            events=self.events,
            upkeep=self.upkeep,
            strict=self.strict,
        )
        complete = not any(errors_of(file.mistakes.findings) for file in self.files)
        lint(contract, surroundings, self.origins, complete=complete)
        return contract

    def _settings(self, file: SourceFile) -> None:
        data, mistakes = file.data, file.mistakes
        if "strict" in data:
            self.strict = bool(_typed(file, "strict", bool, self.strict))
            self._say(file, ["strict"], self.strict)
        for name, value in _typed(file, "window", dict, {}).items():
            window = self._duration(file, value, ["window", name])
            self.origins.note("window", name, mistakes)
            if window is not None:
                self.windows[name] = window
                self._say(file, ["window", name], window)
        for name, value in _typed(file, "scheduler", dict, {}).items():
            self.mentioned.add(name)
            self.origins.note("scheduler", name, mistakes)
            check_name("scheduler", name, ["scheduler", name], mistakes)
            scheduler = mistakes.read(SchedulerPiece, value, ["scheduler", name])
            if scheduler is not None:
                self.schedulers[name] = Scheduler(name, scheduler.every)
                self._say(file, ["scheduler", name], scheduler.every)
        if "budget" in data:
            budget = mistakes.read(BudgetPiece, data["budget"], ["budget"])
            if budget is not None:
                self.budget = budget.over(self.budget)
                self._say_each(file, "budget", budget)
        if "sweep" in data:
            sweep = mistakes.read(SweepPiece, data["sweep"], ["sweep"])
            if sweep is not None:
                self.sweep = sweep.over(self.sweep)
                self._say_each(file, "sweep", sweep)
        if "queue" in data:
            queue = mistakes.read(QueuePiece, data["queue"], ["queue"])
            if queue is not None:
                self.queue = queue.over(self.queue)
                self._say_each(file, "queue", queue)
        if "spark" in data:
            spark = mistakes.read(SparkPiece, data["spark"], ["spark"])
            if spark is not None:
                self.spark = spark.over(self.spark)
                self._say_each(file, "spark", spark)
        if "health" in data:
            health = mistakes.read(HealthPiece, data["health"], ["health"])
            if health is not None:
                self.health = health.over(self.health)
                self._say_each(file, "health", health)
        self._watching(file)
        if "store" in data:
            store = mistakes.read(StorePiece, data["store"], ["store"])
            if store is not None:
                self.store = self.store.model_copy(update={key: getattr(store, key) for key in store.model_fields_set})
                self._say_each(file, "store", store)
        archive = data.get("archive")
        if isinstance(archive, dict) and "url" in archive:
            try:
                self.archive_url = read_url(archive["url"])
            except ValueError as problem:
                mistakes.refuse(["archive", "url"], "wrong-value", problem)
            else:
                self._say(file, ["archive", "url"], self.archive_url)

    def _watching(self, file: SourceFile) -> None:
        growth = self._section(file, "growth", GrowthPiece)
        self.growth = self.growth if growth is None else growth.over(self.growth)
        space = self._section(file, "space", SpacePiece)
        self.space = self.space if space is None else space.over(self.space)
        roles = self._section(file, "roles", RolesPiece)
        self.roles = self.roles if roles is None else roles.over(self.roles)
        events = self._section(file, "events", EventsPiece)
        self.events = self.events if events is None else events.over(self.events)
        upkeep = self._section(file, "upkeep", UpkeepPiece)
        self.upkeep = self.upkeep if upkeep is None else upkeep.over(self.upkeep)

    def _section(self, file: SourceFile, name: str, kind: type[P]) -> P | None:
        piece = file.mistakes.read(kind, file.data[name], [name]) if name in file.data else None
        if piece is not None:
            self._say_each(file, name, piece)
        return piece

    def _say_each(self, file: SourceFile, section: str, piece: Piece) -> None:
        for key in sorted(piece.model_fields_set):
            self._say(file, [section, key], getattr(piece, key))

    def _say(self, file: SourceFile, place: list[object], value: object) -> None:
        """Record a setting. A file may override the settings of its own includes, but not those of unrelated files."""
        self.origins.note(str(place[0]), place[-1], file.mistakes)
        earlier, before = self.said.get(key_path(place), (file, value))
        self.said[key_path(place)] = (file, value)
        if before != value and file.path not in earlier.above:
            file.mistakes.error(
                place,
                "said-twice",
                f"{earlier.mistakes.file} sets it to something else",
                "files that do not include each other must agree: change one, or give one another name",
            )

    def _shelving(self, table: Table) -> Table:
        """Return the table with its archive rules moving rows to another schema of the same database."""
        shelve = Shelve(self.roles.archive_schema)
        rules = (replace(one, action=shelve) if isinstance(one.action, ToArchive) else one for one in table.rules)
        return replace(table, rules=tuple(rules))

    def _named(self, file: SourceFile, section: str) -> Iterator[tuple[TableName, Any, list[object]]]:
        """Yield the entries of a section whose keys are tables."""
        for key, data in _typed(file, section, dict, {}).items():
            place: list[object] = [section, key]
            if place == ["archive", "url"]:
                continue
            try:
                yield TableName.parse(key), data, place
            except ValueError as problem:
                file.mistakes.refuse(place, "wrong-name", problem)

    def _table(
        self, file: SourceFile, name: TableName, data: Any, place: list[object], surroundings: Surroundings
    ) -> Table | None:
        rules = data.get("rule", {}) if isinstance(data, dict) else {}
        header = {key: value for key, value in data.items() if key != "rule"} if isinstance(data, dict) else data
        piece = file.mistakes.read(TablePiece, header, place)
        if piece is None:
            # The rules' own mistakes are still reported; checks that need the table are skipped.
            read_rules(rules, None, [*place, "rule"], file.mistakes, surroundings)
            return None
        return read_table(name, piece, rules, place, file.mistakes, surroundings)

    def _partition(
        self, file: SourceFile, name: TableName, data: Any, place: list[object], surroundings: Surroundings
    ) -> Partitioned | None:
        piece = file.mistakes.read(PartitionPiece, data, place)
        keep = None if piece is None else surroundings.keep(piece.keep, [*place, "keep"], file.mistakes)
        if piece is None or keep is None:
            return None
        plain = ("ahead", "quarantine", "then", "rows", "lock")
        given = {key: getattr(piece, key) for key in plain if key in piece.model_fields_set}
        followers = tuple((one.table, one.time) for one in piece.with_)
        return Partitioned(name, piece.time, keep, followers=followers, **given)

    def _duration(self, file: SourceFile, value: object, place: list[object]) -> timedelta | Forever | None:
        try:
            window = read_window(value)
        except ValueError as problem:
            file.mistakes.refuse(place, "wrong-value", problem)
            return None
        if place[0] == "floor" and isinstance(window, Forever):
            file.mistakes.error(place, "wrong-value", 'a floor cannot be "forever"', "remove the table's rules instead")
            return None
        return window

    def _may_declare(self, file: SourceFile, place: list[object], name: TableName) -> bool:
        """Check whether a section may declare a table here: for the first time, or overriding an included file."""
        section = str(place[0])
        earlier = self.declared.get((section, name))
        if earlier is not None and file.path not in earlier.above:
            where = earlier.mistakes.file
            file.mistakes.error(place, "said-twice", f"{name} is declared already in {where}", "keep one of the two")
            return False
        self.declared[section, name] = file
        self.origins.note(section, name, file.mistakes)
        return True

    def _remove_excuse(
        self, file: SourceFile, place: list[object], name: TableName, excused: dict[TableName, Excuse]
    ) -> None:
        """Remove an excuse of a file that this one includes: the table has its rules elsewhere, or is uncovered."""
        if ("excused", name) not in self.declared:
            known = [str(one) for section, one in self.declared if section == "excused"]
            fix = did_you_mean(str(name), known) or "remove this line"
            file.mistakes.error(place, "unknown-excuse", f"no file that this one includes excuses {name}", fix)
        elif self._may_declare(file, place, name):
            excused.pop(name, None)

    def _drop_replaced(self, tables: dict[TableName, Table], excused: dict[TableName, Excuse]) -> None:
        """Drop an excuse that rules in an including file replace, and rules that an excuse replaces."""
        for name in set(tables) & set(excused):
            rules, excuse = self.declared["table", name], self.declared["excused", name]
            if rules.path in excuse.above:
                del excused[name]
            elif excuse.path in rules.above:
                del tables[name]


def _typed(file: SourceFile, key: str, kind: type, default: Any) -> Any:
    value = file.data.get(key, default)
    if isinstance(value, kind):
        return value
    expected = "true or false" if kind is bool else "a table"
    file.mistakes.error([key], "wrong-type", f"found {describe(value)}, expected {expected}")
    return default
