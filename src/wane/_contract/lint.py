"""Constraints between the tables of a contract: floors, stages, followers, cycles, archives, excuses.

The checks run over the resolved contract, so included files count as one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from wane._contract.archive_path import UnsetVariable, archive_location
from wane._contract.conditions import disjoint
from wane._contract.duration import Forever, format_duration
from wane._contract.mistakes import Mistakes
from wane._contract.model import (
    Age,
    ArchiveTable,
    Cap,
    Contract,
    ExcuseKind,
    Expiry,
    Follower,
    Mark,
    Orphans,
    Prune,
    ReferencedBy,
    Retired,
    Rule,
    Table,
    Time,
    ToArchive,
    ToColdTier,
)
from wane._contract.names import AUDIT, TableName
from wane._contract.origins import Origins
from wane._contract.refused import Refused
from wane._contract.rules import KeyPath, shown
from wane._findings import did_you_mean

N = TypeVar("N")

UNTOUCHABLE = (ExcuseKind.MIRROR, ExcuseKind.APPEND_ONLY, ExcuseKind.ELSEWHERE)
"""Excuses which promise that Wane never deletes a row."""


def lint(contract: Contract, used: Collection[str], origins: Origins, *, complete: bool) -> None:
    """Record every mistake between tables in the file that makes it.

    Windows and schedulers that are not among the used ones are reported only for a complete contract.
    """
    _Lint(contract, origins).run(complete=complete)
    if complete:
        _unused(contract, used, origins)


class _Lint:
    def __init__(self, contract: Contract, origins: Origins) -> None:
        self.contract = contract
        self.origins = origins
        self.ruled = {table.name: table for table in contract.tables}
        self.excused = dict(contract.excused)
        self.floors = dict(contract.floors)
        self.archived = {entry.table: entry.keep for entry in contract.archive}

    def run(self, *, complete: bool) -> None:
        for table in self.contract.tables:
            mistakes = self.origins.of("table", table.name)
            if table.name in self.excused:
                mistakes.error(_path(table), "declared-twice", "has rules and is excused", "keep one of the two")
            self._marked_states(table, mistakes)
            self._stages(table, mistakes)
            self._retained_forever(table, mistakes)
            self._undercut(table, mistakes)
            for rule in table.rules:
                self._floor(table, rule, mistakes)
                self._aged_elsewhere(table, rule, mistakes)
                self._followers(table, rule, rule.followers, mistakes, (table.name,))
                self._archive(table, rule, mistakes)
                self._audit(table, rule, mistakes)
        self._guard_cycles()
        self._partitions(complete=complete)
        self._strays()
        self._ambiguous()
        self._archive_url()
        self._transformed_followers()
        self._passwords()

    def _partitions(self, *, complete: bool) -> None:
        """Check that partitions obey the rules and floors of the same table."""
        for one in self.contract.partitions:
            mistakes, path = self.origins.of("partition", one.table), ["partition", one.table]
            table = self.ruled.get(one.table)
            if table is None:
                if complete:  # Otherwise the table may be missing because of its own mistakes.
                    fix = did_you_mean(str(one.table), map(str, self.ruled)) or "add the table with its rules"
                    message = f"no rule selects rows of {one.table}"
                    mistakes.error(path, "partition-without-rules", message, fix)
                continue
            for rule in table.rules:
                self._partitioned_rule(table, rule)
            floor = self.floors.get(one.table)
            if floor is not None and not isinstance(one.keep, Forever) and one.keep < floor:
                message = f"{format_duration(one.keep)} is under the floor of {format_duration(floor)}"
                mistakes.error([*path, "keep"], "under-floor", message, "keep rows longer, or lower the floor")
            if one.then is Retired.ARCHIVE and not any(isinstance(rule.action, ToArchive) for rule in table.rules):
                message = f"no rule of {one.table} archives"
                mistakes.error([*path, "then"], "partition-not-archived", message, 'add a rule with `then = "archive"`')
            follow = {f.reference.table for t, _, f in self.contract.followers() if t.name == one.table}
            for name, _ in one.followers:
                if name not in follow:
                    message = f"{name} does not follow {one.table}"
                    fix = did_you_mean(str(name), map(str, follow)) or "name a table that a rule's `with` names"
                    mistakes.error([*path, "with"], "partition-not-followed", message, fix)

    def _partitioned_rule(self, table: Table, rule: Rule) -> None:
        """Check that whole months can leave by a rule."""
        mistakes, path = self.origins.of("table", table.name), _path(table, rule)
        fix = "name a column of the table, or do not partition it"
        if rule.active and (time := getattr(rule.bound, "time", None)) is not None and time.elsewhere:
            message = f"rows age by {time}, and months of {table.name} leave by a column of their own"
            mistakes.error([*path, "time"], "time-elsewhere", message, fix)
        longer = getattr(rule.bound, "longer", None)
        if longer is not None and longer.parent is not None:
            message = f"windows of rows are in {longer}, and months of {table.name} leave by the table's own columns"
            mistakes.error([*path, "longer"], "time-elsewhere", message, fix)
        if rule.unlinked:
            message = "a month leaves without firing triggers, so nothing unlinks its rows"
            mistakes.error([*path, "unlinked"], "wrong-pair", message, "remove `unlinked`, or the partition")
        if rule.spare is not None:
            message = "a month leaves as a whole, and may have rows that the rule spares"
            mistakes.error([*path, "spare"], "wrong-pair", message, "remove `spare`, or the partition")

    def _marked_states(self, table: Table, mistakes: Mistakes) -> None:
        """Check that every state a rule writes has a rule or an excuse, or marked rows would stay unbounded.

        Marking may not lead back to a state that the same rule marks.
        """
        excused = {state for state, _ in table.excused}
        marks = {rule: rule.action.state for rule in table.rules if isinstance(rule.action, Mark)}
        for rule, state in marks.items():
            if state not in excused and not any(one.selects(state) for one in table.rules):
                mistakes.error(
                    [*_path(table, rule), "then"],
                    "unbounded-mark",
                    f"rows marked {shown(state)} would stay unbounded",
                    f"add a rule with `when = [{shown(state)}]`, or excuse the state",
                )
        leads = {state: {marks[rule] for rule in marks if rule.selects(state)} for state in marks.values()}
        for rule in marks:
            if any(map(rule.selects, _reached(leads, marks[rule]))):
                mistakes.error(
                    [*_path(table, rule), "then"],
                    "mark-cycle",
                    "marking leads back to a state that this rule marks",
                    "let the last stage prune",
                )

    def _stages(self, table: Table, mistakes: Mistakes) -> None:
        """Check that a later stage has a longer window: all windows of a row count from the same timestamp."""
        for earlier in table.rules:
            if not isinstance(earlier.action, Mark) or not isinstance(earlier.bound, Age | Orphans):
                continue
            for later in table.rules:
                if not isinstance(later.bound, Age | Orphans) or not _leads_to(earlier, later):
                    continue
                if later.bound.time == earlier.bound.time and later.bound.keep <= earlier.bound.keep:
                    mistakes.error(
                        [*_path(table, later), "keep"],
                        "stage-order",
                        f"{format_duration(later.bound.keep)} is not longer than the {format_duration(earlier.bound.keep)} "
                        f"of rule {earlier.name!r}, which comes before it",
                        "both count from the same time: make this window longer",
                    )

    def _retained_forever(self, table: Table, mistakes: Mistakes) -> None:
        """Check that no other rule deletes rows that a rule keeps forever."""
        for forever in table.rules:
            for other in table.rules if not forever.active else ():
                shared = [state for state in other.states if forever.selects(state)]
                if other.active and other.may_share_rows(forever):
                    rows = f"{shown(shared[0])} rows" if shared else "the table's rows"
                    mistakes.error(
                        _path(table, other),
                        "kept-forever",
                        f"rule {forever.name!r} keeps {rows} forever",
                        "exclude them here: `where`" if forever.conditions else "remove one of the two rules",
                    )

    def _undercut(self, table: Table, mistakes: Mistakes) -> None:
        """Report rules that never take a row, because another one takes all of their rows after a shorter window."""
        for rule in table.rules:
            for shorter in table.rules:
                if _undercuts(shorter, rule):
                    assert isinstance(shorter.bound, Age)
                    mistakes.warning(
                        [*_path(table, rule), "keep"],
                        "undercut-rule",
                        f"rule {shorter.name!r} takes the same rows after {format_duration(shorter.bound.keep)}",
                        f"exclude these rows in {shorter.name!r}: `where`",
                    )

    def _aged_elsewhere(self, table: Table, rule: Rule, mistakes: Mistakes) -> None:
        """Report rows that age by a row of another table that may leave before them: without its time they stay."""
        time: Time | None = getattr(rule.bound, "time", None)
        if time is None or time.elsewhere is None:
            return
        other = self.ruled.get(time.elsewhere.table)
        if other is None or any(_takes_orphans(one, other) for one in table.rules):
            return
        for first in other.rules:
            if first.active and not isinstance(first.action, Mark) and not (time.parent and _waits_for(first, table)):
                name = f"{other.name}.{first.name}"
                leave = f'let them leave with it: `with = ["{table.name}.{time.elsewhere.columns[0]}"]` in {name}'
                mistakes.warning(
                    [*_path(table, rule), "time"],
                    "time-leaves-first",
                    f"{name} may take rows of {other.name} before; without their time these rows never leave",
                    leave if time.parent else f"remove {name}: rows of {other.name} leave with these (`with`)",
                )

    def _floor(self, table: Table, rule: Rule, mistakes: Mistakes) -> None:
        floor = self.floors.get(table.name)
        if floor is None or isinstance(rule.action, Mark):
            return
        if isinstance(rule.bound, Expiry | Cap):
            word = "expires" if isinstance(rule.bound, Expiry) else "most"
            mistakes.error(
                [*_path(table, rule), word],
                "under-floor",
                f"`{word}` cannot promise the floor of {format_duration(floor)}",
                "use `keep`, or remove the floor",
            )
        elif isinstance(rule.bound, Age | Orphans) and rule.bound.keep < floor:
            mistakes.error(
                [*_path(table, rule), "keep"],
                "under-floor",
                f"{format_duration(rule.bound.keep)} is under the floor of {format_duration(floor)}",
                f'keep at least "{format_duration(floor)}"',
            )

    def _followers(
        self,
        table: Table,
        rule: Rule,
        followers: tuple[Follower, ...],
        mistakes: Mistakes,
        above: tuple[TableName, ...],
    ) -> None:
        path = [*_path(table, rule), "with"]
        if len(set(followers)) != len(followers):
            mistakes.error(path, "declared-twice", "a follower is named twice", "keep one of the two")
        for follower in followers:
            name = follower.reference.table
            excuse = self.excused.get(name)
            declared = self.ruled.get(name)
            if name in above:
                mistakes.error(
                    path,
                    "follow-cycle",
                    f"{name} would follow itself",
                    "guard the row instead: `unless = [{ referenced_by = … }]`",
                )
                continue
            if excuse is not None and excuse.kind in UNTOUCHABLE:
                mistakes.error(
                    path,
                    "untouchable",
                    f"{name} is excused as {excuse.kind.value}: nothing may delete from it",
                    "remove it",
                )
            for state, why in () if declared is None else declared.excused:
                if why.kind in UNTOUCHABLE:
                    mistakes.error(
                        path,
                        "untouchable",
                        f"{shown(state)} rows of {name} are excused as {why.kind.value}: nothing may delete them",
                        "remove it",
                    )
            if name in self.floors:
                mistakes.error(
                    path,
                    "under-floor",
                    f"a follower leaves whatever its age, and {name} has a floor of {format_duration(self.floors[name])}",
                    f'guard with `unless = [{{ referenced_by = "{follower.reference}" }}]` instead, or remove the floor',
                )
            if declared is not None and declared.append_only and not table.append_only:
                mistakes.error(
                    path,
                    "append-only-swept",
                    f"{name} is append-only: only an explicit prune may delete from it",
                    f"make {table.name} append_only too, or do not let {name} follow it",
                )
            self._followers(table, rule, follower.followers, mistakes, (*above, name))

    def _audit(self, table: Table, rule: Rule, mistakes: Mistakes) -> None:
        if table.name in AUDIT and rule.active and (not isinstance(rule.action, ToArchive) or table.append_only):
            mistakes.error(
                [*_path(table, rule), "then"],
                "audit-trail",
                "rows of the audit trail leave through the archive and in no other way",
                'write `then = "archive"`, without append_only',
            )

    def _archive(self, table: Table, rule: Rule, mistakes: Mistakes) -> None:
        if not isinstance(rule.action, ToArchive | ToColdTier):
            return
        path = [*_path(table, rule), "then"]
        if isinstance(rule.action, ToArchive) and self.contract.archive_url is None:
            mistakes.error(path, "no-archive", "there is no archive", 'add `[archive]` with `url = "./archive"`')
        keep = self.archived.get(table.name)
        if keep is None:
            # A section whose own mistakes are reported already is not also reported as missing.
            if table.name in self.archived or not self.origins.has("archive", table.name):
                mistakes.error(
                    path,
                    "no-archive",
                    "the archive has no window for these rows",
                    f'add `[archive.{table.name}]` with `keep = "forever"` or a duration',
                )
        elif isinstance(rule.bound, Age | Orphans) and not isinstance(keep, Forever) and keep <= rule.bound.keep:
            mistakes.error(
                path,
                "stage-order",
                f"the archive keeps rows for {format_duration(keep)}, the hot table for {format_duration(rule.bound.keep)}",
                "both count from the same time: let the archive keep them longer",
            )

        self._wait(table, rule, mistakes)
        for other in table.rules:
            if _forestalls(other, rule):
                mistakes.error(
                    [*_path(table, other), "keep"],
                    "stage-order",
                    f"these rows leave before rule {rule.name!r} archives them",
                    f"keep them longer than {rule.name!r} does, or remove this rule",
                )

    def _wait(self, table: Table, rule: Rule, mistakes: Mistakes) -> None:
        """Check that rows wait for others where a rule that archives declares that they do."""
        own = {"least_rows": rule.least_rows, "longest_wait": rule.longest_wait}
        key = next((one for one, value in own.items() if value is not None), None)
        if key is None:
            return
        if isinstance(rule.action, ToColdTier):
            message, fix = "rows do not wait where they stay in the database", f"remove `{key}`"
        elif any(one.table == table.name for one in self.contract.archive) and (
            rule.longest_wait is not None and self.contract.archive_batch(str(table.name), rule)[0] == 1
        ):
            key, message, fix = "longest_wait", "`longest_wait` without `least_rows`: no row waits", "add `least_rows`"
        else:
            return
        mistakes.error([*_path(table, rule), key], "wrong-pair", message, fix)

    def _guard_cycles(self) -> None:
        """Check that no guards form a cycle: two tables that each wait for the other's rows to leave wait forever."""
        waits = {
            table.name: {
                guard.reference.table
                for rule in table.rules
                for guard in rule.guards
                if isinstance(guard, ReferencedBy) and guard.reference.table != table.name
            }
            for table in self.contract.tables
        }
        for table in self.contract.tables:
            if table.name in _reached(waits, table.name):
                self.origins.of("table", table.name).error(
                    _path(table),
                    "guard-cycle",
                    "its guards wait for a table whose guards wait for this one",
                    "remove one of the guards, or let one table follow the other",
                )

    def _strays(self) -> None:
        """Report floors and archive sections of a table that has no rules they could apply to."""
        for name in self.floors:
            # A table whose own mistakes are reported already is not also reported as missing.
            if name not in self.ruled and (name in self.excused or not self.origins.has("table", name)):
                fix = did_you_mean(name, self.ruled) or "add rules for it, or remove the floor"
                self.origins.of("floor", name).error(["floor", name], "stray", f"no rules for {name}", fix)
        for archived in self.contract.archive:
            table = self.ruled.get(archived.table)
            if table is None and self.origins.has("table", archived.table):
                continue
            if table is None or not any(isinstance(rule.action, ToArchive | ToColdTier) for rule in table.rules):
                self._archived_with_others(archived)

    def _archived_with_others(self, archived: ArchiveTable) -> None:
        """Report an archive section of a table that no rule archives, or what it declares in vain if its rows follow
        others to the archive."""
        name = archived.table
        mistakes, path = self.origins.of("archive", name), ["archive", name]
        if not any(
            isinstance(rule.action, ToArchive) and follower.reference.table == name
            for _, rule, follower in self.contract.followers()
        ):
            fix = did_you_mean(name, self._unarchived()) or 'add a rule with `then = "archive"`'
            mistakes.error(path, "stray", f"no rule archives {name}", fix)
            return
        declared = {
            "keep": archived.keep is not None,
            "least_rows": archived.least_rows > 1,
            "absent": archived.erases_absent,
        }
        for key in (one for one, is_declared in declared.items() if is_declared):
            message = f"no rule archives {name}: its rows leave and expire with those that they follow"
            mistakes.error([*path, key], "stray", message, f'remove `{key}`, or add a rule with `then = "archive"`')

    def _unarchived(self) -> list[TableName]:
        """Return the tables with a rule that archives that have no archive section."""
        moving = (table for table, rule in self.contract.rules() if isinstance(rule.action, ToArchive | ToColdTier))
        return [table.name for table in moving if table.name not in self.archived]

    def _transformed_followers(self) -> None:
        """Report transformations of tables whose rows follow others to where they cannot be applied."""
        transforms = {one.table: one.transform for one in self.contract.archive if one.transform is not None}
        for table, rule, follower in self.contract.followers():
            name = follower.reference.table
            transform = transforms.get(name)
            if transform is None:
                continue
            if isinstance(rule.action, ToColdTier):
                message = f"rows of {name} move inside the database with rows of {table.name}, as they are"
                fix = f"remove {name} from `with` of {table.name}.{rule.name}, or archive {table.name} to `url`"
            elif isinstance(rule.action, ToArchive) and transform.select:
                message = (
                    f"rows of {name} follow rows of {table.name} to the archive, and `select` is for rows of a rule"
                )
                fix = f"use `drop`, `hash` and `mask`, or remove {name} from `with` of {table.name}.{rule.name}"
            else:
                continue
            self.origins.of("archive", name).error(
                ["archive", name, "transform"], "untransformed-follower", message, fix
            )

    def _ambiguous(self) -> None:
        """Report a table named both with and without its schema: it could be one table with two sets of promises."""
        uses = list(self._uses())
        qualified = {name.name: name for name, _, _ in uses if name.schema is not None}
        for name, path, mistakes in uses:
            if name.schema is None and name.name in qualified:
                message = f"{name} could be the same table as {qualified[name.name]}"
                mistakes.error(path, "ambiguous-name", message, "write the schema of both")

    def _uses(self) -> Iterator[tuple[TableName, KeyPath, Mistakes]]:
        """Yield every mention of a table, with its key path and the file's mistakes."""
        sections: dict[str, Iterable[TableName]] = {
            "table": self.ruled,
            "excused": self.excused,
            "floor": self.floors,
            "archive": self.archived,
        }
        for section, names in sections.items():
            for name in names:
                yield name, [section, name], self.origins.of(section, name)
        for table, rule, follower in self.contract.followers():
            yield follower.reference.table, [*_path(table, rule), "with"], self.origins.of("table", table.name)
        for table in self.contract.tables:
            for rule in table.rules:
                if isinstance(rule.bound, Age | Orphans | Expiry) and rule.bound.time.elsewhere is not None:
                    path = [*_path(table, rule), "time"]
                    yield rule.bound.time.elsewhere.table, path, self.origins.of("table", table.name)
                if isinstance(rule.bound, Orphans) and rule.bound.missing is not None:
                    path = [*_path(table, rule), "orphans"]
                    yield rule.bound.missing.table, path, self.origins.of("table", table.name)
                longer = getattr(rule.bound, "longer", None)
                if longer is not None and longer.parent is not None:
                    yield longer.parent.table, [*_path(table, rule), "longer"], self.origins.of("table", table.name)
                for guard in rule.guards:
                    if isinstance(guard, ReferencedBy):
                        path = [*_path(table, rule), "unless"]
                        yield guard.reference.table, path, self.origins.of("table", table.name)

    def _archive_url(self) -> None:
        if self.contract.archive_url is None:
            return
        try:
            archive_location(
                self.contract.archive_url, None if self.contract.path is None else self.contract.path.parent
            )
        except UnsetVariable as problem:
            self.origins.of("archive", "url").refuse(["archive", "url"], "unset-variable", problem)
        except Refused as problem:
            self.origins.of("archive", "url").refuse(["archive", "url"], "unsupported-archive", problem)

    def _passwords(self) -> None:
        for section, url in (("store", self.contract.store.url), ("archive", self.contract.archive_url)):
            if url is not None and _has_password(url):
                self.origins.of(section, "url").warning(
                    [section, "url"],
                    "password-in-file",
                    "a password is in the file",
                    'write `url = "DATABASE_URL"`, or `${NAME}` in its place, and set that environment variable',
                )


def _unused(contract: Contract, used: Collection[str], origins: Origins) -> None:
    for name, _ in contract.windows:
        if name not in used:
            origins.of("window", name).warning(
                ["window", name], "unused", "no rule reads this window", "remove it, or use it"
            )
    for scheduler in contract.schedulers:
        if f"scheduler {scheduler.name}" not in used:
            origins.of("scheduler", scheduler.name).warning(
                ["scheduler", scheduler.name], "unused", "no table uses this scheduler", "remove it"
            )


def _has_password(url: str) -> bool:
    if url.lower().startswith("sqlite:"):
        return False
    rest = url.partition("://")[2]
    secrets = [rest.rpartition("@")[0].partition(":")[2], *re.findall(r"(?i)\b(?:ssl)?password=([^&]*)", rest)]
    return any(secret and "${" not in secret for secret in secrets)


def _forestalls(other: Rule, archive: Rule) -> bool:
    """Check whether a rule deletes, without exception, rows before the other one archives them."""
    return (
        isinstance(other.action, Prune)
        and isinstance(other.bound, Age)
        and isinstance(archive.bound, Age | Orphans)
        and not other.guards
        and other.spare is None
        and other.bound.time == archive.bound.time
        and other.bound.keep <= archive.bound.keep
        and other.may_share_rows(archive)
        and set(other.conditions) <= set(archive.conditions)
    )


def _leads_to(marking: Rule, later: Rule) -> bool:
    """Check whether rows that a rule marks may be those of a later one."""
    assert isinstance(marking.action, Mark)
    return later.selects(marking.action.state) and not disjoint(marking.conditions, later.conditions)


def _path(table: Table, rule: Rule | None = None) -> KeyPath:
    path: KeyPath = ["table", table.name]
    return path if rule is None else [*path, "rule", rule.name]


def _reached(arrows: Mapping[N, set[N]], start: N) -> set[N]:
    """Return every node reachable along the arrows; the start is included only if they lead back to it."""
    seen: set[N] = set()
    ahead = list(arrows.get(start, ()))
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead.extend(arrows.get(name, ()))
    return seen


def _takes_orphans(rule: Rule, parent: Table) -> bool:
    bound = rule.bound
    return isinstance(bound, Orphans) and bound.missing is not None and bound.missing.table == parent.name


def _waits_for(rule: Rule, child: Table) -> bool:
    """Return whether rows of a table that refer to a row leave with it, or retain it."""
    guards = (one.reference for one in rule.guards if isinstance(one, ReferencedBy))
    return any(one.table == child.name for one in (*guards, *(one.reference for one in rule.followers)))


def _undercuts(shorter: Rule, longer: Rule) -> bool:
    """Return whether a rule takes every row of another one that nothing else retains, and sooner."""
    one, other = shorter.bound, longer.bound
    if not isinstance(one, Age) or not isinstance(other, Age) or one.longer is not None:
        return False
    if one.time != other.time or one.keep >= other.keep or not isinstance(shorter.action, Prune | ToArchive):
        return False
    if isinstance(longer.action, Mark) or shorter.guards or shorter.spare is not None:
        return False
    all_states = not shorter.by_state or (bool(longer.states) and set(longer.states) <= set(shorter.states))
    return all_states and set(shorter.conditions) <= set(longer.conditions)
