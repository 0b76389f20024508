"""What must hold between the tables of a contract: floors, stages, followers, cycles, archives, excuses.

Runs over the resolved contract, so it sees the included files as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wane.contract.duration import format_duration
from wane.contract.model import (
    Age,
    Archive,
    Cap,
    Contract,
    ExcuseKind,
    Expiry,
    Follower,
    Forever,
    Mark,
    Orphans,
    ReferencedBy,
    Rule,
    State,
    Table,
)
from wane.contract.names import TableName
from wane.contract.pieces import Mistakes
from wane.contract.rules import Surroundings
from wane.findings import did_you_mean

UNTOUCHABLE = (ExcuseKind.MIRROR, ExcuseKind.APPEND_ONLY, ExcuseKind.ELSEWHERE)
"""Excuses which promise that nothing of Wane ever deletes a row."""


def lint(contract: Contract, surroundings: Surroundings, origins: Mapping[TableName, Mistakes], last: Mistakes) -> None:
    """Note every mistake between tables in the file that declares the table; what belongs to no table goes to the last file."""
    _Lint(contract, origins, last).run(surroundings)


class _Lint:
    def __init__(self, contract: Contract, origins: Mapping[TableName, Mistakes], last: Mistakes) -> None:
        self.contract = contract
        self.origins = origins
        self.last = last
        self.excused = dict(contract.excused)

    def run(self, surroundings: Surroundings) -> None:
        for table in self.contract.tables:
            mistakes = self.origins.get(table.name, self.last)
            if table.name in self.excused:
                mistakes.error(_place(table), "said-twice", "has rules and is excused", "keep one of the two")
            self._marked_states(table, mistakes)
            self._stages(table, mistakes)
            for rule in table.rules:
                self._floor(table, rule, mistakes)
                self._followers(table, rule, rule.followers, mistakes, (table.name,))
                self._archive(table, rule, mistakes)
        self._guard_cycles()
        self._strays()
        self._unused(surroundings)
        self._password()

    def _marked_states(self, table: Table, mistakes: Mistakes) -> None:
        """A state that a rule writes must itself have a rule or an excuse, or marked rows would stay unbounded."""
        covered = {state for rule in table.rules for state in rule.states} | {state for state, _ in table.excused}
        marks = {rule: rule.action.state for rule in table.rules if isinstance(rule.action, Mark)}
        for rule, state in marks.items():
            if state not in covered:
                mistakes.error(
                    [*_place(table, rule), "then"],
                    "unbounded-mark",
                    f"rows marked {state!r} would stay unbounded",
                    f"add a rule with `when = [{state!r}]`, or excuse the state",
                )
        for rule in marks:
            if _comes_back(rule, marks):
                mistakes.error(
                    [*_place(table, rule), "then"], "mark-cycle", "marking leads back to a state that this rule marks"
                )

    def _stages(self, table: Table, mistakes: Mistakes) -> None:
        """Windows of one row count from one moment, so a later stage needs a longer window."""
        for earlier in table.rules:
            if not isinstance(earlier.action, Mark) or not isinstance(earlier.bound, Age):
                continue
            for later in table.rules:
                if earlier.action.state not in later.states or not isinstance(later.bound, Age):
                    continue
                if later.bound.time == earlier.bound.time and later.bound.keep <= earlier.bound.keep:
                    mistakes.error(
                        [*_place(table, later), "keep"],
                        "stage-order",
                        f"{format_duration(later.bound.keep)} is not longer than the {format_duration(earlier.bound.keep)} "
                        f"of rule {earlier.name!r}, which comes before it",
                        "both count from the same moment: make this window longer",
                    )

    def _floor(self, table: Table, rule: Rule, mistakes: Mistakes) -> None:
        floor = dict(self.contract.floors).get(table.name)
        if floor is None or isinstance(rule.action, Mark):
            return
        if isinstance(rule.bound, Expiry | Cap):
            word = "expires" if isinstance(rule.bound, Expiry) else "most"
            mistakes.error(
                [*_place(table, rule), word],
                "under-floor",
                f"`{word}` cannot promise the floor of {format_duration(floor)}",
                "use `keep`, or remove the floor",
            )
        elif isinstance(rule.bound, Age | Orphans) and rule.bound.keep < floor:
            mistakes.error(
                [*_place(table, rule), "keep"],
                "under-floor",
                f"{format_duration(rule.bound.keep)} is under the floor of {format_duration(floor)}",
                f'keep at least "{format_duration(floor)}"',
            )

    def _followers(
        self, table: Table, rule: Rule, followers: Iterable[Follower], mistakes: Mistakes, above: tuple[TableName, ...]
    ) -> None:
        place = [*_place(table, rule), "with"]
        for follower in followers:
            name = follower.reference.table
            excuse = self.excused.get(name)
            declared = next((one for one in self.contract.tables if one.name == name), None)
            if name in above:
                mistakes.error(place, "follow-cycle", f"{name} would follow itself", "remove it")
                continue
            if excuse is not None and excuse.kind in UNTOUCHABLE:
                mistakes.error(
                    place, "untouchable", f"{name} is excused as {excuse.kind.value}: nothing may delete from it"
                )
            if declared is not None and declared.append_only and not table.append_only:
                mistakes.error(
                    place,
                    "append-only-swept",
                    f"{name} is append-only: only an explicit prune may delete from it",
                    f"make {table.name} append_only too, or do not let {name} follow it",
                )
            self._followers(table, rule, follower.followers, mistakes, (*above, name))

    def _archive(self, table: Table, rule: Rule, mistakes: Mistakes) -> None:
        if not isinstance(rule.action, Archive):
            return
        place = [*_place(table, rule), "then"]
        if self.contract.archive_url is None:
            mistakes.error(place, "no-archive", "there is no archive", 'add `[archive]` with `url = "./archive"`')
        kept = next((one.keep for one in self.contract.archive if one.table == table.name), None)
        if kept is None:
            mistakes.error(
                place,
                "no-archive",
                "the archive does not say how long it keeps these rows",
                f'add `[archive.{table.name}]` with `keep = "forever"` or a duration',
            )
        elif isinstance(rule.bound, Age) and not isinstance(kept, Forever) and kept <= rule.bound.keep:
            mistakes.error(
                place,
                "stage-order",
                f"the archive keeps rows for {format_duration(kept)}, the hot table for {format_duration(rule.bound.keep)}",
                "both count from the same moment: let the archive keep them longer",
            )

    def _guard_cycles(self) -> None:
        """Two tables that each wait for the other's rows to leave wait forever."""
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
            if _reaches(waits, table.name):
                self.origins.get(table.name, self.last).error(
                    _place(table),
                    "guard-cycle",
                    "its guards wait for a table whose guards wait for this one",
                    "remove one of the guards, or let one table follow the other",
                )

    def _strays(self) -> None:
        """Sections that speak of a table which has no rules they could apply to."""
        ruled = {table.name: table for table in self.contract.tables}
        for name, _ in self.contract.floors:
            if name not in ruled and (name not in self.origins or name in self.excused):
                self.last.error(["floor", name], "stray", f"no rules for {name}", did_you_mean(name, ruled))
        for entry in self.contract.archive:
            table = ruled.get(entry.table)
            if table is None and entry.table in self.origins:
                continue  # Its own mistakes are told already.
            if table is None or not any(isinstance(rule.action, Archive) for rule in table.rules):
                self.last.error(
                    ["archive", entry.table],
                    "stray",
                    f"no rule archives {entry.table}",
                    'add a rule with `then = "archive"`',
                )

    def _unused(self, surroundings: Surroundings) -> None:
        for name, _ in self.contract.windows:
            if name not in surroundings.used:
                self.last.warning(["window", name], "unused", "no rule reads this window", "remove it, or use it")
        for scheduler in self.contract.schedulers:
            if f"scheduler {scheduler.name}" not in surroundings.used:
                self.last.warning(["scheduler", scheduler.name], "unused", "no table uses this scheduler", "remove it")

    def _password(self) -> None:
        url = self.contract.store.url or ""
        userinfo = url.partition("://")[2].rpartition("@")[0]
        secret = userinfo.partition(":")[2]
        if secret and "${" not in secret:
            self.last.warning(
                ["store", "url"],
                "password-in-file",
                "a password stands in the file",
                'write `url = "DATABASE_URL"` and set that environment variable',
            )


def _place(table: Table, rule: Rule | None = None) -> list[object]:
    place: list[object] = ["table", table.name]
    return place if rule is None else [*place, "rule", rule.name]


def _comes_back(start: Rule, marks: Mapping[Rule, State]) -> bool:
    state, seen = marks[start], {start}
    while True:
        following = next((rule for rule in marks if state in rule.states), None)
        if following is None:
            return False
        if following in seen:
            return following is start
        seen.add(following)
        state = marks[following]


def _reaches(waits: Mapping[TableName, set[TableName]], start: TableName) -> bool:
    seen: set[TableName] = set()
    ahead = list(waits.get(start, ()))
    while ahead:
        name = ahead.pop()
        if name == start:
            return True
        if name not in seen:
            seen.add(name)
            ahead.extend(waits.get(name, ()))
    return False
