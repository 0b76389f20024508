"""Several databases of one store with the tables of `archive.cold`, and a fleet file that names them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archive.cloning import cloned
from archive.cold import CONTRACT, events
from servers import Database
from wane._archive.model import ArchiveRun
from wane._fleet.fleet import Fleet, MemberResult
from wane._fleet.reading import load_fleet
from wane._keeper import Keeper, open_keeper
from wane.events import Event


@dataclass
class Ships:
    """Databases by their members' names, and what the members reported."""

    folder: Path
    databases: dict[str, Database]
    received: list[tuple[str, Event]] = field(default_factory=list)
    progress: list[Event] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / "fleet.toml"

    def fleet(self, **options: Any) -> Fleet:
        return Fleet(
            load_fleet(self.path),
            actor="tester",
            listener=self.progress.append,
            of_members=lambda name, event: self.received.append((name, event)),
            **options,
        )

    def run(self, **options: Any) -> dict[str, MemberResult[ArchiveRun]]:
        results = self.fleet(**options).each(lambda keeper: keeper.archive.run(), doing="archive")
        return {one.member: one for one in results}

    @contextmanager
    def keeper(self, name: str) -> Iterator[Keeper]:
        [member] = [one for one in load_fleet(self.path).members if one.name == name]
        with open_keeper(member.url, contract=member.require_contract(), actor="tester") as keeper:
            yield keeper

    def hot(self, name: str, table: str = "event") -> list[int]:
        return [one for (one,) in self.databases[name].query(f"SELECT id FROM {table} ORDER BY id")]


@contextmanager
def ships(
    database: Database, folder: Path, *, rows: int = 6, contract: str = CONTRACT, ready: bool = True
) -> Iterator[Ships]:
    """Yield three databases, each with some rows due, and a member of the fleet for each."""
    with ExitStack() as stack:
        events(database, rows)
        found = {name: stack.enter_context(cloned(database, folder, name)) for name in ("ada", "bob", "cyd")}
        members = ["parallel = 2\n"]
        for name, one in found.items():
            (folder / name).mkdir()
            (folder / name / "wane.toml").write_text(contract.format(url=json.dumps(one.url)))
            members.append(f'[member.{name}]\ncontract = "{name}/wane.toml"\n')
        (folder / "fleet.toml").write_text("".join(members))
        fleet = Ships(folder, found)
        for name in found if ready else ():
            with fleet.keeper(name) as keeper:
                keeper.migrate()
                keeper.enable()
        yield fleet
