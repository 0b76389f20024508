"""From the pieces of the files to one Contract: sections are merged, windows and schedulers looked up, defaults filled in.

Nothing here stops at the first mistake. A piece that cannot be read is left out after its mistake is noted, and all
other pieces are still checked. What a later file says about windows, schedulers, budgets and the store replaces what the files it
includes say; tables, excuses, floors and archives are said once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from wane.contract.document import (
    ArchiveTablePiece,
    BudgetPiece,
    ExcusePiece,
    SchedulerPiece,
    StorePiece,
    TablePiece,
    read_window,
)
from wane.contract.lint import lint
from wane.contract.model import (
    ArchiveTable,
    Budget,
    Contract,
    Excuse,
    Forever,
    Scheduler,
    StoreSettings,
    Table,
)
from wane.contract.names import TableName
from wane.contract.pieces import Mistakes, describe
from wane.contract.rules import Surroundings, read_excuse, read_rules, read_table


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the contract, as TOML understands it, with what is wrong with it."""

    path: Path
    data: dict[str, Any]
    mistakes: Mistakes


def resolve(path: Path, files: list[SourceFile]) -> Contract:
    """The contract of these files, included ones first. Mistakes are collected in the files; with any, the result is partial."""
    return _Resolver(files).contract(path)


class _Resolver:
    def __init__(self, files: list[SourceFile]) -> None:
        self.files = files
        self.windows: dict[str, timedelta | Forever] = {}
        self.schedulers: dict[str, Scheduler] = {}
        self.mentioned: set[str] = set()
        self.budget = Budget()
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
        origins: dict[TableName, Mistakes] = {}
        for file in self.files:
            for name, data, place in self._named(file, "table"):
                table = self._table(file, name, data, place, surroundings)
                if _first(file, place, name, tables, origins) and table is not None:
                    tables[name] = table
            for name, data, place in self._named(file, "excused"):
                excuse = file.mistakes.read(ExcusePiece, data, place)
                if _first(file, place, name, excused, origins) and excuse is not None:
                    excused[name] = read_excuse(excuse)
            for name, data, place in self._named(file, "floor"):
                floor = self._duration(file, data, place)
                if _first(file, place, name, floors, {}) and isinstance(floor, timedelta):
                    floors[name] = floor
            for name, data, place in self._named(file, "archive"):
                if place[1] == "url":
                    continue
                kept = file.mistakes.read(ArchiveTablePiece, data, place)
                keep = None if kept is None else surroundings.keep(kept.keep, [*place, "keep"], file.mistakes)
                if _first(file, place, name, archive, {}) and keep is not None:
                    archive[name] = ArchiveTable(name, keep)
        contract = Contract(
            path=path,
            tables=tuple(tables.values()),
            excused=tuple(excused.items()),
            schedulers=tuple(self.schedulers.values()),
            floors=tuple(floors.items()),
            windows=tuple(self.windows.items()),
            archive_url=self.archive_url,
            archive=tuple(archive.values()),
            store=StoreSettings(self.store.url, tuple(self.store.schemas), tuple(self.store.attach.items())),
            strict=self.strict,
        )
        lint(contract, surroundings, origins, self.files[-1].mistakes)
        return contract

    def _settings(self, file: SourceFile) -> None:
        data, mistakes = file.data, file.mistakes
        self.strict = bool(_typed(file, "strict", bool, self.strict))
        for name, value in _typed(file, "window", dict, {}).items():
            window = self._duration(file, value, ["window", name])
            if window is not None:
                self.windows[name] = window
        for name, value in _typed(file, "scheduler", dict, {}).items():
            self.mentioned.add(name)
            scheduler = mistakes.read(SchedulerPiece, value, ["scheduler", name])
            if scheduler is not None:
                self.schedulers[name] = Scheduler(name, scheduler.every)
        if "budget" in data:
            budget = mistakes.read(BudgetPiece, data["budget"], ["budget"])
            if budget is not None:
                self.budget = budget.over(self.budget)
        if "store" in data:
            self.store = mistakes.read(StorePiece, data["store"], ["store"]) or self.store
        archive = _typed(file, "archive", dict, {})
        if "url" in archive:
            if isinstance(archive["url"], str) and archive["url"].strip():
                self.archive_url = archive["url"]
            else:
                mistakes.error(
                    ["archive", "url"], "wrong-type", f"found {describe(archive['url'])}, expected a URL or a path"
                )

    def _named(self, file: SourceFile, section: str) -> Iterator[tuple[TableName, Any, list[object]]]:
        """The entries of a section whose keys are tables."""
        for key, data in _typed(file, section, dict, {}).items():
            place: list[object] = [section, key]
            try:
                yield TableName.parse(key), data, place
            except ValueError as problem:
                file.mistakes.error(place, "wrong-name", str(problem))

    def _table(
        self, file: SourceFile, name: TableName, data: Any, place: list[object], surroundings: Surroundings
    ) -> Table | None:
        rules = data.get("rule", {}) if isinstance(data, dict) else {}
        header = {key: value for key, value in data.items() if key != "rule"} if isinstance(data, dict) else data
        piece = file.mistakes.read(TablePiece, header, place)
        if piece is None:
            # The rules' own mistakes are still told; what they would need of the table is left alone.
            read_rules(rules, None, [*place, "rule"], file.mistakes, surroundings)
            return None
        return read_table(name, piece, rules, place, file.mistakes, surroundings)

    def _duration(self, file: SourceFile, value: object, place: list[object]) -> timedelta | Forever | None:
        try:
            window = read_window(value)
        except ValueError as problem:
            message, _, fix = str(problem).partition(": ")
            file.mistakes.error(place, "wrong-value", message, fix)
            return None
        if place[0] == "floor" and isinstance(window, Forever):
            file.mistakes.error(place, "wrong-value", 'a floor cannot be "forever"', "remove the table's rules instead")
            return None
        return window


def _typed(file: SourceFile, key: str, kind: type, default: Any) -> Any:
    value = file.data.get(key, default)
    if isinstance(value, kind):
        return value
    expected = "true or false" if kind is bool else "a table"
    file.mistakes.error([key], "wrong-type", f"found {describe(value)}, expected {expected}")
    return default


def _first(
    file: SourceFile,
    place: list[object],
    name: TableName,
    known: dict[TableName, Any],
    origins: dict[TableName, Mistakes],
) -> bool:
    """Whether this is the first time the section speaks of the table; a second time is a mistake."""
    origin = origins.get(name)
    origins.setdefault(name, file.mistakes)
    if name not in known:
        return True
    where = "" if origin is None else f" in {origin.file}"
    file.mistakes.error(place, "said-twice", f"{name} is declared already{where}", "keep one of the two")
    return False
