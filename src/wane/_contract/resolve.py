"""From the entries of the files to one Contract: sections merged, windows and schedulers looked up, defaults filled in.

Nothing here stops at the first mistake. An entry that cannot be read is left out after its mistake is recorded, and all
other entries are still checked. Entries of a file replace those of the files it includes, one by one: a setting, a
window, a scheduler, a floor, a whole table. Files that do not include each other may not declare the same entry, unless
they agree on a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from wane._contract.duration import FOREVER, Forever
from wane._contract.entries import (
    AcceptEntry,
    ArchiveTableEntry,
    ExcuseEntry,
    PartitionEntry,
    SchedulerEntry,
    TableEntry,
)
from wane._contract.lint import lint
from wane._contract.mistakes import Mistakes, describe, key_path
from wane._contract.model import (
    Accepted,
    ArchiveTable,
    Contract,
    Excuse,
    Partitioned,
    Scheduler,
    Table,
    ToArchive,
    ToColdTier,
)
from wane._contract.names import TableName
from wane._contract.origins import Origins
from wane._contract.positions import nearest_line
from wane._contract.rules import Declarations, KeyPath, check_name, read_excuse, read_rules, read_table
from wane._contract.settings import SECTIONS, merged, set_in
from wane._contract.values import URL, read_window
from wane._findings import did_you_mean, errors_of
from wane._frozen import frozen


@frozen
class SourceFile:
    """A file of the contract, parsed as TOML, with its mistakes."""

    path: Path
    data: dict[str, Any] = field(repr=False)  # It may contain a URL with a password.
    mistakes: Mistakes
    above: tuple[Path, ...] = ()
    """The files that include it, outermost first."""

    def table(self, key: str) -> dict[str, Any]:
        """Return a section, empty if it is missing or has the wrong type."""
        value = self.data.get(key, {})
        if isinstance(value, dict):
            return value
        self.mistakes.error([key], "wrong-type", f"found {describe(value)}, expected a table")
        return {}


def resolve(path: Path, files: list[SourceFile]) -> Contract:
    """Build the contract of these files, included ones first.

    Mistakes are collected in the files; with any, the result is partial.
    """
    return _Resolver(files).contract(path)


@frozen
class _Declaration:
    """An entry of a section whose keys are tables."""

    file: SourceFile
    section: str
    key: str
    name: TableName
    data: Any

    @property
    def path(self) -> KeyPath:
        return [self.section, self.key]


class _Resolver:
    def __init__(self, files: list[SourceFile]) -> None:
        self.files = files
        self.origins = Origins(files[-1].mistakes)
        self.set_by: dict[str, tuple[SourceFile, object]] = {}
        self.declared: dict[tuple[str, TableName], SourceFile] = {}
        self.settings: dict[str, Any] = {name: section() for name, section in SECTIONS.items()}
        self.windows: dict[str, timedelta | Forever] = {}
        self.schedulers: dict[str, Scheduler] = {}
        self.mentioned: set[str] = set()
        self.used: set[str] = set()
        self.tiers: dict[TableName, str] = {}
        self.strict = False
        self.archive_url: str | None = None
        self.archive_shared = False

    @property
    def declarations(self) -> Declarations:
        return Declarations(
            self.windows, self.schedulers, self.settings["budget"], frozenset(self.mentioned), self.used
        )

    def contract(self, path: Path) -> Contract:
        for file in self.files:
            self._read_named(file)
            self._read_settings(file)
        entries = self._entries()
        tables: dict[TableName, Table] = entries["table"]
        self._drop_replaced(tables, entries["excused"])
        contract = Contract(
            path=path,
            tables=tuple(self._with_tier(table) for table in tables.values()),
            excused=tuple(entries["excused"].items()),
            schedulers=tuple(self.schedulers.values()),
            floors=tuple(entries["floor"].items()),
            windows=tuple(self.windows.items()),
            archive_url=self.archive_url,
            archive_shared=self.archive_shared,
            archive=tuple(entries["archive"].values()),
            partitions=tuple(entries["partition"].values()),
            accepted=tuple(one for file in self.files for one in _read_accepted(file)),
            strict=self.strict,
            **self.settings,
        )
        complete = not any(errors_of(file.mistakes.findings) for file in self.files)
        lint(contract, self.used, self.origins, complete=complete)
        return contract

    def _read_named(self, file: SourceFile) -> None:
        """Read the windows and schedulers of a file."""
        for name, value in file.table("window").items():
            window = self._window(file, value, ["window", name])
            self.origins.note("window", name, file.mistakes)
            if window is None:
                # Its mistake is reported; that rules read it is no second one.
                self.windows.setdefault(name, FOREVER)
            else:
                self.windows[name] = window
                self._set(file, ["window", name], window)
        for name, value in file.table("scheduler").items():
            self.mentioned.add(name)
            self.origins.note("scheduler", name, file.mistakes)
            check_name("scheduler", name, ["scheduler", name], file.mistakes)
            scheduler = file.mistakes.read(SchedulerEntry, value, ["scheduler", name])
            if scheduler is not None:
                self.schedulers[name] = scheduler.as_scheduler(name)
                self._set(file, ["scheduler", name], self.schedulers[name])

    def _read_settings(self, file: SourceFile) -> None:
        """Apply what a file sets to the settings of the files before it."""
        for name, section in SECTIONS.items():
            read = file.mistakes.read(section, file.data[name], [name]) if name in file.data else None
            if read is None:
                continue
            overrides = set_in(read, file.data[name])
            for key in sorted(overrides):
                self._set(file, [name, key], overrides[key])
            try:
                self.settings[name] = merged(self.settings[name], overrides)
            except ValueError as problem:
                file.mistakes.refuse([name], "wrong-value", problem)
        strict, archive = file.data.get("strict"), file.data.get("archive")
        if isinstance(strict, bool):
            self.strict = strict
            self._set(file, ["strict"], strict)
        elif strict is not None:
            file.mistakes.error(["strict"], "wrong-type", f"found {describe(strict)}, expected true or false")
        if isinstance(archive, dict) and "url" in archive:
            try:
                self.archive_url = URL.read(archive["url"])
                self._set(file, ["archive", "url"], self.archive_url)
            except ValueError as problem:
                file.mistakes.refuse(["archive", "url"], "wrong-value", problem)
        shared = archive.get("shared") if isinstance(archive, dict) else None
        if isinstance(shared, bool):
            self.archive_shared = shared
            self._set(file, ["archive", "shared"], shared)
        elif shared is not None:
            path = ["archive", "shared"]
            file.mistakes.error(path, "wrong-type", f"found {describe(shared)}, expected true or false")

    def _set(self, file: SourceFile, path: KeyPath, value: object) -> None:
        """Record a setting. A file may override the settings of its own includes, but not those of unrelated files."""
        self.origins.note(str(path[0]), path[-1], file.mistakes)
        earlier, before = self.set_by.get(key_path(path), (file, value))
        self.set_by[key_path(path)] = (file, value)
        if before != value and file.path not in earlier.above:
            file.mistakes.error(
                path,
                "declared-twice",
                f"{earlier.mistakes.file} sets it to something else",
                "files that do not include each other must agree: change one, or give one another name",
            )

    def _entries(self) -> dict[str, dict[TableName, Any]]:
        """Read every entry that is named by a table, by section and table."""
        readers: dict[str, Callable[[_Declaration], Any]] = {
            "table": self._table,
            "excused": self._excuse,
            "floor": self._floor,
            "archive": self._archive,
            "partition": self._partition,
        }
        entries: dict[str, dict[TableName, Any]] = {section: {} for section in readers}
        for file in self.files:
            for section, read in readers.items():
                for one in _declarations(file, section):
                    if section == "excused" and one.data is False:
                        self._remove_excuse(one, entries["excused"])
                        continue
                    entry = read(one)
                    if self._may_declare(one) and entry is not None:
                        entries[section][one.name] = entry
        return entries

    def _table(self, one: _Declaration) -> Table | None:
        rules, header = {}, one.data
        if isinstance(one.data, dict):
            rules = one.data.get("rule", {})
            header = {key: value for key, value in one.data.items() if key != "rule"}
        mistakes, declarations = one.file.mistakes, self.declarations
        entry = mistakes.read(TableEntry, header, one.path)
        if entry is None:
            # The rules' own mistakes are still reported; checks that need the table are skipped.
            read_rules(rules, None, [*one.path, "rule"], mistakes, declarations)
            return None
        return read_table(one.name, entry, rules, one.path, mistakes, declarations)

    def _excuse(self, one: _Declaration) -> Excuse | None:
        entry = one.file.mistakes.read(ExcuseEntry, one.data, one.path)
        return None if entry is None else read_excuse(entry)

    def _floor(self, one: _Declaration) -> timedelta | None:
        floor = self._window(one.file, one.data, one.path)
        if isinstance(floor, Forever):
            one.file.mistakes.error(
                one.path, "wrong-value", 'a floor cannot be "forever"', "remove the table's rules instead"
            )
            return None
        return floor

    def _archive(self, one: _Declaration) -> ArchiveTable | None:
        if not isinstance(one.data, dict):
            fix = did_you_mean(one.name, ("url", "shared")) or (
                "the archive's address is `url`; a table has its own [archive.NAME] with `keep`"
            )
            one.file.mistakes.error(one.path, "wrong-type", f"found {describe(one.data)}, expected a table", fix)
            return None
        entry = one.file.mistakes.read(ArchiveTableEntry, one.data, one.path)
        if entry is None:
            return None
        self.tiers[one.name] = entry.tier
        keep = None
        if entry.keep is not None:
            keep = self.declarations.keep(entry.keep, [*one.path, "keep"], one.file.mistakes)
            if keep is None:
                return None
        columns = tuple(entry.cast.items()), tuple(entry.statistics)
        transform = None if entry.transform is None else entry.transform.read()
        return ArchiveTable(
            one.name,
            keep,
            *columns,
            entry.least_rows,
            entry.longest_wait,
            transform,
            entry.absent == "erase",
            tuple(entry.renamed.items()),
        )

    def _partition(self, one: _Declaration) -> Partitioned | None:
        entry = one.file.mistakes.read(PartitionEntry, one.data, one.path)
        if entry is None:
            return None
        misfits = list(entry.misfits())
        for key, problem in misfits:
            one.file.mistakes.refuse([*one.path, key], "wrong-value", problem)
        keep = self.declarations.keep(entry.keep, [*one.path, "keep"], one.file.mistakes)
        if keep is None or misfits:
            return None
        return Partitioned(
            table=one.name,
            time=entry.time.as_time(),
            keep=keep,
            ahead=entry.ahead,
            quarantine=entry.quarantine,
            then=entry.then,
            rows=entry.rows,
            lock=entry.lock,
            followers=tuple((follower.table, follower.time.as_time()) for follower in entry.with_),
            made_by=entry.made_by,
        )

    def _with_tier(self, table: Table) -> Table:
        """Return the table; one that is archived in its own database moves rows to another schema of it."""
        if self.tiers.get(table.name) != "database":
            return table
        shelve = ToColdTier(self.settings["roles"].archive_schema)
        rules = (replace(one, action=shelve) if isinstance(one.action, ToArchive) else one for one in table.rules)
        return replace(table, rules=tuple(rules))

    def _window(self, file: SourceFile, value: object, path: KeyPath) -> timedelta | Forever | None:
        try:
            return read_window(value)
        except ValueError as problem:
            file.mistakes.refuse(path, "wrong-value", problem)
            return None

    def _may_declare(self, one: _Declaration) -> bool:
        """Check whether a section may declare a table here: for the first time, or overriding an included file."""
        earlier = self.declared.get((one.section, one.name))
        if earlier is not None and one.file.path not in earlier.above:
            one.file.mistakes.error(
                one.path,
                "declared-twice",
                f"{one.name} is declared already in {earlier.mistakes.file}",
                "keep one of the two",
            )
            return False
        self.declared[one.section, one.name] = one.file
        self.origins.note(one.section, one.name, one.file.mistakes)
        return True

    def _remove_excuse(self, one: _Declaration, excused: dict[TableName, Excuse]) -> None:
        """Remove an excuse of a file that this one includes: the table has its rules elsewhere, or is uncovered."""
        if ("excused", one.name) not in self.declared:
            known = [str(name) for section, name in self.declared if section == "excused"]
            fix = did_you_mean(str(one.name), known) or "remove this line"
            one.file.mistakes.error(
                one.path, "unknown-excuse", f"no file that this one includes excuses {one.name}", fix
            )
        elif self._may_declare(one):
            excused.pop(one.name, None)

    def _drop_replaced(self, tables: dict[TableName, Table], excused: dict[TableName, Excuse]) -> None:
        """Drop an excuse that rules in an including file replace, and rules that an excuse replaces."""
        for name in set(tables) & set(excused):
            rules, excuse = self.declared["table", name], self.declared["excused", name]
            if rules.path in excuse.above:
                del excused[name]
            elif excuse.path in rules.above:
                del tables[name]


def _read_accepted(file: SourceFile) -> Iterator[Accepted]:
    """Yield the findings that a file accepts."""
    given, mistakes = file.data.get("accept", []), file.mistakes
    if not isinstance(given, list):
        mistakes.error(["accept"], "wrong-type", f"found {describe(given)}, expected a list", "write [[accept]]")
        return
    for number, data in enumerate(given):
        path: KeyPath = ["accept", number]
        entry = mistakes.read(AcceptEntry, data, path)
        if entry is not None:
            where = (mistakes.file, key_path(path), nearest_line(mistakes.lines, path))
            yield Accepted(entry.code, entry.at or "", entry.reason, entry.until, *where)


def _declarations(file: SourceFile, section: str) -> Iterator[_Declaration]:
    """Yield the entries of a section whose keys are tables."""
    for key, data in file.table(section).items():
        if section == "archive" and key in ("url", "shared"):
            continue
        try:
            yield _Declaration(file, section, key, TableName.parse(key), data)
        except ValueError as problem:
            file.mistakes.refuse([section, key], "wrong-name", problem)
