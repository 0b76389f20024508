"""Where archived rows come back to: the hot table and those whose rows left with it, or side tables beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from wane.archive.place import ColdTable, place_of
from wane.archive.staging import StagedPart
from wane.contract.model import Archive, Contract, Table
from wane.contract.names import TableName
from wane.errors import ArchiveError, WrongArgument
from wane.prune.binding import Bindings
from wane.store import Store
from wane.store.archive_journal import Journal
from wane.store.archive_restore import RestoreRows, Target
from wane.store.archive_rows import Part, bind_archive
from wane.store.archive_types import RESERVED
from wane.store.schema import Schema, TableInfo
from wane.store.selection import BoundFollower

_MOST_SWEEPS = 100_000


@dataclass(frozen=True, slots=True)
class Places:
    """What a restore reads from and writes to: the row's own table first, then what left with it, nearest first."""

    root: Path
    parts: tuple[StagedPart, ...]
    targets: tuple[Target, ...]


def find_places(store: Store, contract: Contract, table: Table, origin: str) -> Places:
    """The archive of a table and its hot tables; raise if they no longer fit each other."""
    assert contract.archive_url is not None
    root = place_of(contract.archive_url, None if contract.path is None else contract.path.parent)
    bindings = Bindings(store, contract)
    kept = next(one for one in contract.archive if one.table == table.name)
    declared = _declared(contract, store.reflect())
    parts: dict[str, Target] = {}
    for rule in table.rules:
        if isinstance(rule.action, Archive):
            selection = bindings.selection(table, rule)
            above: dict[tuple[BoundFollower, ...], Target] = {}
            for part in bind_archive(store.rows, store.archive, selection, kept).parts:
                above[part.path] = _target(store, part, declared.get(part.table.qualified), above.get(part.path[:-1]))
                parts.setdefault(part.name, above[part.path])
    colds = [ColdTable(root, name, origin) for name in parts]
    targets = [_fitted(cold, target) for cold, target in zip(colds, parts.values(), strict=True)]
    lacking = _lacking(store, table, targets)
    staged = [
        StagedPart(cold, [[one.name, one.kind] for one in target.columns], missing)
        for cold, target, missing in zip(colds, targets, lacking, strict=True)
    ]
    return Places(root, tuple(staged), tuple(targets))


def _declared(contract: Contract, schema: Schema) -> dict[tuple[str, str], Table]:
    """The tables of a contract by the database's names of them."""
    found = ((schema.find(table.name.schema, table.name.name), table) for table in contract.tables)
    return {info.qualified: table for info, table in found if info is not None}


def _target(store: Store, part: Part, declared: Table | None, above: Target | None) -> Target:
    """Where a part comes back to; which of the rows there are live is what the contract says of that very table."""
    target = Target(part.name, part.table, part.key, part.columns)
    if part.path:
        target = replace(target, reference=part.path[-1].reference, above=above)
    if declared is None or declared.state is None:
        return target
    state = part.table.column(declared.state)
    states = dict.fromkeys(one for rule in declared.rules if rule.active for one in rule.states)
    finished = tuple(one for one in states if state is not None and not store.types.state(state, one))
    return replace(target, state=state, finished=finished)


def _fitted(cold: ColdTable, target: Target) -> Target:
    """A target with the columns that the archive has; raise if the archive has one that the table cannot take."""
    table = cold.open()
    if table is None:
        return target
    known = {one.name: one for one in target.columns}
    archived = {field.name: str(field.type.type) for field in table.schema().fields if field.name not in RESERVED}
    for name, kind in archived.items():
        if name not in known or known[name].kind != kind:
            what = f"is now {known[name].kind}" if name in known else "is gone"
            raise ArchiveError(
                f"{target.name}.{name} {what}, and its archive holds {kind}",
                "bring the column back for as long as the restore takes, or read the rows with `wane archive query`",
            )
    return replace(target, columns=tuple(one for one in target.columns if one.name in archived))


def _lacking(store: Store, table: Table, targets: list[Target]) -> list[dict[int, frozenset[str]]]:
    """The columns that rows of older sweeps did not have yet, by target and sweep: they get what new rows get."""
    lacking: list[dict[int, frozenset[str]]] = [{} for _ in targets]
    with store.transaction() as transaction:
        sweeps = Journal(transaction, store.timetable).sweeps(str(table.name), _MOST_SWEEPS)
    for sweep in sweeps:
        for number, (target, shape) in enumerate(zip(targets, sweep.columns, strict=False)):
            if number and len(sweep.columns) != len(targets):
                break  # Other tables followed at that time, and which ones nobody wrote down.
            missing = frozenset(one.name for one in target.columns) - {name for name, _ in shape}
            if missing:
                lacking[number][sweep.id] = missing
    return lacking


def beside(store: Store, contract: Contract, places: Places, into: str) -> tuple[Places | None, dict[str, Target]]:
    """The same with side tables as targets, or None if some of them are missing; and the targets by their side tables' names."""
    names = dict(zip(_names(places, into), places.targets, strict=True))
    declared = {str(table.name) for table in contract.tables}
    for name in names:
        if name in declared:
            raise WrongArgument(
                f"{name} is a table of the contract", "name another table, which is made if it is not there"
            )
    schema = store.reflect()
    found: list[Target] = []
    for name, target in names.items():
        parsed = TableName.parse(name)
        info = schema.find(parsed.schema, parsed.name)
        if info is None:
            return None, names
        found.append(_beside(target, info))
    return replace(places, targets=tuple(found)), names


def _names(places: Places, into: str) -> Iterator[str]:
    yield into
    for target in places.targets[1:]:
        yield f"{into}_{target.table.name}"


def _beside(target: Target, info: TableInfo) -> Target:
    missing = [one.name for one in target.columns if info.column(one.name) is None]
    if missing:
        raise WrongArgument(
            f"{info.name} has no column {missing[0]!r}, which archived rows of {target.name} have",
            "name another side table: one that does not exist is made",
        )
    key = tuple(found for column in target.key if (found := info.column(column.name)) is not None)
    return replace(target, table=info, key=key, state=None, finished=None, reference=None, above=None)


def make_beside(store: Store, names: dict[str, Target]) -> None:
    """Make the side tables that are missing."""
    statements = RestoreRows(store.rows, store.archive, store.restore)
    quote = store.rows.dialect.quote
    with store.transaction() as transaction:
        for name, target in names.items():
            parsed = TableName.parse(name)
            place = ".".join(quote(one) for one in (parsed.schema, parsed.name) if one is not None)
            made = statements.side_table(place, target.table, target.key, target.columns)
            transaction.execute(made.text, made.parameters)
