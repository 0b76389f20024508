"""The contract as a table for users: what bounds each table, what prunes it, what may never break, where to observe
it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields

from wane._contract.conditions import described
from wane._contract.duration import Forever, format_duration
from wane._contract.lint import UNTOUCHABLE
from wane._contract.model import (
    Cap,
    Contract,
    Excuse,
    ExcuseKind,
    Expiry,
    Follower,
    Guard,
    Mark,
    Orphans,
    ReferencedBy,
    Retired,
    Rule,
    Table,
    ToArchive,
    ToColdTier,
    WhileNull,
    describe_transform,
)
from wane._contract.names import TableName


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One table of the contract, in words."""

    table: str
    bound: str
    trigger: str
    why: str
    observe: str


def rows(contract: Contract) -> list[ShownRow]:
    """Return one row per table: those with rules in the order of the file, those that only follow, then the excused."""
    follows = _follows(contract)
    ruled = {table.name for table in contract.tables}
    excused = dict(contract.excused)
    return [
        *(_ruled(contract, table, follows) for table in contract.tables),
        *(_following(contract, name, follows) for name in follows if name not in ruled and name not in excused),
        *(_excused(contract, name, excuse, follows) for name, excuse in contract.excused if name not in ruled),
    ]


def markdown(contract: Contract) -> str:
    """Format the rows as a table in Markdown."""
    heads = ("Table", "Bounded by", "Pruned by", "Never broken", "Observed in")
    assert len(heads) == len(fields(ShownRow))
    lines = [heads, ("---",) * len(heads), *(tuple(map(_cell, astuple(row))) for row in rows(contract))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", " ".join(text.split()))


@dataclass(frozen=True, slots=True)
class _Follow:
    """A table whose rows leave with those of another."""

    parent: Table
    """The table whose rule starts it."""
    beside: TableName
    """The table whose rows its columns refer to: the parent, or a follower of it."""
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"follows {self.beside} ({', '.join(self.columns)})"


def _follows(contract: Contract) -> dict[TableName, list[_Follow]]:
    found: dict[TableName, list[_Follow]] = {}

    def walk(table: Table, beside: TableName, followers: tuple[Follower, ...]) -> None:
        for follower in followers:
            name = follower.reference.table
            follow = _Follow(table, beside, follower.reference.columns)
            if follow not in found.setdefault(name, []):
                found[name].append(follow)
            walk(table, name, follower.followers)

    for table, rule in contract.rules():
        walk(table, table.name, rule.followers)
    return found


def _ruled(contract: Contract, table: Table, follows: dict[TableName, list[_Follow]]) -> ShownRow:
    also = follows.get(table.name, [])
    floor = dict(contract.floors).get(table.name)
    return ShownRow(
        table=str(table.name),
        bound=_join(
            *(_rule(contract, table, rule) for rule in table.rules),
            *(f"{_states([state])} excused ({excuse.kind.value}): {excuse.reason}" for state, excuse in table.excused),
            *map(str, also),
            "" if floor is None else f"never under {format_duration(floor)}",
        ),
        trigger=_join(*_triggers(contract, table, also)),
        why=table.why,
        observe=_join(
            *_observed(table),
            "" if table.age is None else f"age by {table.age.column}",
            _audited(also),
            table.observe or "",
        ),
    )


def _following(contract: Contract, name: TableName, follows: dict[TableName, list[_Follow]]) -> ShownRow:
    parents = follows[name]
    return ShownRow(
        table=str(name),
        bound=_join(*map(str, parents)),
        trigger=_join(*_triggers(contract, None, parents)),
        why=f"A row leaves only with its {_or(str(follow.beside) for follow in parents)} row.",
        observe=_audited(parents),
    )


def _excused(contract: Contract, name: TableName, excuse: Excuse, follows: dict[TableName, list[_Follow]]) -> ShownRow:
    also = follows.get(name, [])
    most = "" if excuse.rows is None or excuse.kind is ExcuseKind.SINGLETON else f" (at most {excuse.rows} rows)"
    application = "the application" if excuse.kind is ExcuseKind.INLINE else ""
    return ShownRow(
        table=str(name),
        bound=_join(f"{excuse.kind.value}: {excuse.reason}{most}", *map(str, also)),
        trigger=_join(application, *_triggers(contract, None, also)) or "nothing",
        why="Nothing may delete from it." if excuse.kind in UNTOUCHABLE else "No rule selects its rows.",
        observe=_audited(also),
    )


def _rule(contract: Contract, table: Table, rule: Rule) -> str:
    states = "every other state" if rule.all_but is not None else _states(rule.states)
    where = described(rule.conditions)
    bound = _bound(rule)
    followers = rule.followers if rule.active else ()
    unless = _or([*map(_guard, rule.guards), *_retained_by_followers(contract, followers)]) if rule.active else ""
    companions = ", ".join(
        f"{follower.reference.table}{' (live rows too)' if follower.live_leaves else ''}" for follower in followers
    )
    words = (
        states,
        where and f"where {where}:",
        bound,
        _spared(rule),
        unless and f"unless {unless}",
        companions and f"with {companions}",
        rule.unlinked and f"unlinked from {', '.join(str(one.table) for one in rule.unlinked)}",
    )
    return " ".join(word for word in words if word) + _archived(contract, table, rule)


def _bound(rule: Rule) -> str:
    bound, action = rule.bound, rule.action
    if isinstance(bound, Forever):
        return "kept forever"
    if isinstance(bound, Cap):
        scope = f" per {', '.join(bound.per)}" if bound.per else ""
        newest = bound.by if bound.time is None else bound.time.column
        return f"at most {bound.most}{scope}, newest first by {newest}"
    if isinstance(bound, Expiry):
        due, after = f"{bound.time} passed", f"when {bound.time} passed"
    else:
        window = format_duration(bound.keep) + ("" if bound.longer is None else f" (or {bound.longer}, if longer)")
        due = f"older than {window} by {bound.time}"
        after = f"after {window} by {bound.time}"
    if isinstance(bound, Orphans):
        orphan = f"{bound.reference} is NULL"
        if bound.missing is not None:
            orphan = f"{', '.join(bound.missing.columns)} points at no row of {bound.missing.table}"
        due, after = f"{orphan.replace(' is ', ' ')} and {due}", f"where {orphan} {after}"
    if isinstance(action, Mark):
        return f"become {_states([action.state])} {after}"
    return f"archived {after}" if isinstance(action, ToArchive | ToColdTier) else due


def _spared(rule: Rule) -> str:
    if rule.spare is None:
        return ""
    scope = f" of each {', '.join(rule.spare.per)}" if rule.spare.per else ""
    return f"but the newest{'' if rule.spare.newest == 1 else f' {rule.spare.newest}'}{scope}"


def _archived(contract: Contract, table: Table, rule: Rule) -> str:
    entry = next((one for one in contract.archive if one.table == table.name), None)
    keep = None if entry is None else entry.keep
    if isinstance(rule.action, ToColdTier) and rule.active:
        until = "forever" if keep is None or isinstance(keep, Forever) else f"until {format_duration(keep)}"
        return f", as {rule.action.schema}.{table.name.name}_<yyyymm> {until}"
    if entry is None or keep is None or not rule.active or not isinstance(rule.action, ToArchive):
        return ""
    described = contract.described_transform(str(table.name), rule)
    way = "" if described is None else f" ({describe_transform(described)})"
    return f", in the archive {'forever' if isinstance(keep, Forever) else f'until {format_duration(keep)}'}{way}"


def _guard(guard: Guard) -> str:
    if isinstance(guard, ReferencedBy):
        return f"referenced by {guard.reference}"
    return f"{guard.column} is {'' if isinstance(guard, WhileNull) else 'not '}NULL"


def _retained_by_followers(contract: Contract, followers: Iterable[Follower]) -> Iterator[str]:
    """Yield the followers whose live rows protect the row, nested ones included."""
    live = {table.name for table in contract.tables if table.live}
    for follower in followers:
        if follower.reference.table in live and not follower.live_leaves:
            yield f"followed by live {follower.reference.table}"
        yield from _retained_by_followers(contract, follower.followers)


def _triggers(contract: Contract, table: Table | None, follows: Iterable[_Follow]) -> Iterator[str]:
    if table is not None:
        if table.append_only:
            yield "explicit prune only"
        elif any(rule.active for rule in table.rules):
            yield _scheduled(contract, table)
            yield from _retired(contract, table)
        if table.inline is not None:
            yield f"inline: {table.inline}"
    for follow in follows:
        parent = follow.parent
        yield f"with {parent.name}: {'explicit prune only' if parent.append_only else _scheduled(contract, parent)}"


def _retired(contract: Contract, table: Table) -> Iterator[str]:
    """Yield when whole partitions of a table leave."""
    found = next((one for one in contract.partitions if one.table == table.name), None)
    if found is not None and not isinstance(found.keep, Forever):
        what = "partitions of the application" if found.by_application else "months"
        does = {Retired.DROP: "dropped", Retired.MOVE: "moved", Retired.ARCHIVE: "archived"}[found.then]
        yield f"whole {what}: {does} {format_duration(found.keep)} after their end"


def _scheduled(contract: Contract, table: Table) -> str:
    when = next((one.when for one in contract.schedulers if one.name == table.scheduler), None)
    return f"{table.scheduler}" if when is None else f"{table.scheduler} {when}"


def _observed(table: Table) -> Iterator[str]:
    """Yield where a table's pruning can be observed. A rule that only marks has no count of pruned rows."""
    if table.scheduler is None:
        if table.append_only:
            yield "audit"
        return
    pruning = [rule for rule in table.rules if rule.active and not isinstance(rule.action, Mark)]
    for label in dict.fromkeys(table.label(rule) for rule in pruning):
        labels = ",".join(
            f'{name}="{_label(value)}"' for name, value in (("scheduler", table.scheduler), ("table", label))
        )
        yield f"lifecycle_prune_rows_total{{{labels}}}"
    if pruning:
        yield f"{table.scheduler}.lifecycle_pruned"


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def _audited(follows: Iterable[_Follow]) -> str:
    parents = dict.fromkeys(str(follow.parent.name) for follow in follows)
    return f"audit of {_or(parents)}" if parents else ""


def _states(states: Iterable[object]) -> str:
    return ", ".join(str(state).lower() if isinstance(state, bool) else str(state) for state in states)


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)


def _join(*parts: str) -> str:
    return "; ".join(dict.fromkeys(part for part in parts if part))
