"""One table and its rules: from the file's entries to promises, with every mistake visible in the table alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from wane._contract.conditions import Condition, Conditions
from wane._contract.duration import FOREVER, Forever
from wane._contract.entries import (
    EVERY_OTHER,
    ExcuseEntry,
    FollowerEntry,
    GuardEntry,
    OrphansEntry,
    RuleEntry,
    TableEntry,
    WindowName,
)
from wane._contract.mistakes import KINDS, Mistakes, describe
from wane._contract.model import (
    Age,
    Bound,
    Cap,
    Excuse,
    ExcuseKind,
    Expiry,
    Follower,
    Guard,
    Longer,
    Mark,
    MissingParent,
    Orphans,
    Prune,
    ReferencedBy,
    Rule,
    Scheduler,
    Spare,
    State,
    Table,
    Time,
    ToArchive,
    WhileNotNull,
    WhileNull,
)
from wane._contract.names import TableName
from wane._contract.settings import Budget, merged, set_in
from wane._findings import did_you_mean
from wane._frozen import frozen

KeyPath = list[object]
"""The keys that lead to an entry of the file."""


@frozen
class Declarations:
    """What all tables may refer to, and which of it they did."""

    windows: Mapping[str, timedelta | Forever]
    schedulers: Mapping[str, Scheduler]
    budget: Budget
    mentioned: frozenset[str]
    """Schedulers that the files name, even if their sections have mistakes."""
    used: set[str]

    def keep(
        self, keep: timedelta | Forever | WindowName | None, path: KeyPath, mistakes: Mistakes
    ) -> timedelta | Forever | None:
        """Find the window that `keep` names, if it names one; None if there is none of that name."""
        if not isinstance(keep, WindowName):
            return keep
        self.used.add(keep)
        window = self.windows.get(keep)
        if window is None:
            fix = did_you_mean(keep, self.windows) or f'add "{keep}" = "…" to [window]'
            mistakes.error(path, "unknown-window", f"no window is called {str(keep)!r}", fix)
        return window


def read_table(
    name: TableName, entry: TableEntry, rules: object, path: KeyPath, mistakes: Mistakes, declarations: Declarations
) -> Table | None:
    """Read the table's promises; return None if any of it has a mistake."""
    before = len(mistakes.findings)
    excused = _excused_states(entry, _state_type(entry, rules), path, mistakes)
    _check_states(entry, excused, path, mistakes)
    promises = read_rules(rules, entry, [*path, "rule"], mistakes, declarations)
    table = Table(
        name=name,
        why=entry.why,
        rules=tuple(promises),
        scheduler=entry.scheduler,
        key=entry.key or (),
        state=entry.state,
        live=entry.live or (),
        excused=excused,
        append_only=entry.append_only,
        inline=entry.inline,
        observe=entry.observe,
        age=None if entry.age is None else entry.age.as_time(),
    )
    _check_scheduler(table, rules, path, mistakes, declarations)
    return table if len(mistakes.findings) == before else None


def read_excuse(entry: ExcuseEntry) -> Excuse:
    [(kind, reason)] = entry.kinds()
    return Excuse(kind, reason, 1 if kind is ExcuseKind.SINGLETON and entry.rows is None else entry.rows)


def check_name(what: str, name: str, path: KeyPath, mistakes: Mistakes) -> None:
    """Refuse a name that labels (`table.rule`), leases and commands cannot use: a dot or a blank would split it."""
    if not name or not name.isprintable() or any(mark in name for mark in ' ."'):
        mistakes.error(path, "wrong-name", f"{name!r} is no name for a {what}", "use letters, digits, _ and -")


def _state_type(table: TableEntry, rules: object) -> type:
    """Return the type of the table's states: that of the live ones, or else of the first that a rule selects."""
    if table.live:
        return type(table.live[0])
    for rule in rules.values() if isinstance(rules, dict) else ():
        when = rule.get("when") if isinstance(rule, dict) else None
        if isinstance(when, list) and when and isinstance(when[0], str | int | bool):
            return type(when[0])
    return str


def _as_key(state: State) -> str:
    """Write a state as a key of TOML, which is always a text."""
    return str(state).lower() if isinstance(state, bool) else str(state)


def _parsed(text: str, kind: type) -> State:
    """Read the key of an excused state as a state."""
    if kind is bool:
        return text == "true"
    return int(text) if kind is int and re.fullmatch(r"-?[0-9]{1,19}", text) else text


def _excused_states(
    entry: TableEntry, kind: type, path: KeyPath, mistakes: Mistakes
) -> tuple[tuple[State, Excuse], ...]:
    """Read the excused states.

    Keys are texts: a state that is a number or a boolean is parsed from its canonical TOML text.
    """
    excused: list[tuple[State, Excuse]] = []
    for text, excuse in entry.excused.items():
        state = _parsed(text, kind)
        if type(state) is not kind or _as_key(state) != text:
            mistakes.error(
                [*path, "excused", text], "wrong-value", f"{text!r} is not {KINDS[kind]}, as the other states are"
            )
        excused.append((state, read_excuse(excuse)))
    return tuple(excused)


def _check_states(
    entry: TableEntry, excused: tuple[tuple[State, Excuse], ...], path: KeyPath, mistakes: Mistakes
) -> None:
    if entry.state is None:
        if entry.live is not None:
            mistakes.error([*path, "live"], "no-state", "live states, but no state column", 'add `state = "…"`')
        if excused:
            mistakes.error([*path, "excused"], "no-state", "excused states, but no state column", 'add `state = "…"`')
    elif entry.live is None:
        mistakes.error(
            [*path, "live"],
            "missing-key",
            "missing: a table with a state column lists the states that are never selected",
            "add `live = […]`, empty if there are none",
        )
    for state, _ in excused:
        if state in (entry.live or ()):
            mistakes.error(
                [*path, "excused", _as_key(state)],
                "state-twice",
                f"{shown(state)} is live and excused",
                "keep one of the two",
            )


def shown(state: State) -> str:
    """Format a state for a message."""
    return _as_key(state) if isinstance(state, bool) else repr(state)


def _check_scheduler(
    table: Table, rules: object, path: KeyPath, mistakes: Mistakes, declarations: Declarations
) -> None:
    if not rules:
        mistakes.error(
            path, "no-rules", "has no rules", f"add [table.{table.name}.rule.…], or give the reason under [excused]"
        )
    if table.scheduler is not None:
        declarations.used.add(f"scheduler {table.scheduler}")
    if table.append_only:
        if table.scheduler is not None:
            mistakes.error(
                [*path, "scheduler"],
                "append-only-swept",
                "an append-only table is never swept",
                "remove the scheduler; call prune explicitly",
            )
    elif table.scheduler is None:
        if any(rule.active for rule in table.rules):
            mistakes.error(
                [*path, "scheduler"], "missing-key", "missing: its rules would never run", 'add `scheduler = "…"`'
            )
    elif table.scheduler not in declarations.mentioned:
        fix = did_you_mean(table.scheduler, declarations.schedulers)
        fix = fix or f'add `{table.scheduler} = {{ every = "…" }}` to [scheduler]'
        mistakes.error([*path, "scheduler"], "unknown-scheduler", f"no scheduler is called {table.scheduler!r}", fix)


def read_rules(
    rules: object, table: TableEntry | None, path: KeyPath, mistakes: Mistakes, declarations: Declarations
) -> list[Rule]:
    """Read the rules; those with mistakes are left out.

    Without a table (its own entry had mistakes) only each rule's shape is checked.
    """
    if not isinstance(rules, dict):
        mistakes.error(path, "wrong-type", f"found {describe(rules)}, expected [table.….rule.<name>]")
        return []
    found: list[Rule] = []
    for name, data in rules.items():
        check_name("rule", name, [*path, name], mistakes)
        entry = mistakes.read(RuleEntry, data, [*path, name])
        if entry is None or table is None:
            continue
        kind = _state_type(table, rules)
        elsewhere = _named_elsewhere(table, rules, name, kind)
        budget = set_in(entry.budget, data.get("budget", ()))
        rule = _RuleReader(table, kind, elsewhere, entry, budget, [*path, name], mistakes, declarations).rule(name)
        if rule is not None:
            found.append(rule)
    return found


def _named_elsewhere(table: TableEntry, rules: dict[str, object], name: str, kind: type) -> tuple[State, ...]:
    """Return the states that the table or another of its rules names, whatever else is wrong with that rule."""
    listed: list[State] = [
        state
        for other, rule in rules.items()
        if other != name and isinstance(rule, dict) and isinstance(rule.get("when"), list)
        for state in rule["when"]
        if isinstance(state, str | int)
    ]
    excused = [_parsed(text, kind) for text in table.excused]
    named: dict[State, None] = dict.fromkeys([*(table.live or ()), *listed, *excused])
    return tuple(state for state in named if type(state) is kind)


class _RuleReader:
    """Reads one rule in the context of its table."""

    def __init__(
        self,
        table: TableEntry,
        kind: type,
        elsewhere: tuple[State, ...],
        entry: RuleEntry,
        budget: dict[str, int],
        path: KeyPath,
        mistakes: Mistakes,
        declarations: Declarations,
    ) -> None:
        self.table = table
        self.kind = kind
        self.elsewhere = elsewhere
        self.entry = entry
        self.budget = budget
        self.path = path
        self.mistakes = mistakes
        self.declarations = declarations

    def rule(self, name: str) -> Rule | None:
        before = len(self.mistakes.findings)
        bound = self._bound()
        states, all_but = self._states()
        self._check_where()
        self._check_spare(bound)
        self._check_action(bound)
        if bound is None or len(self.mistakes.findings) > before:
            return None
        return Rule(
            name=name,
            bound=bound,
            states=states,
            guards=tuple(_guard(guard) for guard in self.entry.unless),
            followers=tuple(_follower(follower) for follower in self.entry.with_),
            action=self.entry.then,
            budget=merged(self.declarations.budget, self.budget),
            derived=self.entry.derived,
            all_but=all_but,
            conditions=_conditions(self.entry.where),
            spare=self._spare(bound),
            unlinked=tuple(one.as_reference() for one in self.entry.unlinked),
            least_rows=self.entry.least_rows,
            longest_wait=self.entry.longest_wait,
        )

    def _error(self, key: str, code: str, message: str, fix: str = "") -> None:
        self.mistakes.error([*self.path, key] if key else self.path, code, message, fix)

    def _bound(self) -> Bound | None:
        entry = self.entry
        given = [key for key in ("keep", "expires", "most") if getattr(entry, key) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "neither keep, expires nor most"
            self._error("", "no-bound", f"has {found}", "set exactly one of keep, expires and most")
            return None
        self._check_bound_keys()
        if entry.expires is not None:
            if entry.time is not None:
                self._error("time", "wrong-pair", "an expiry column is the rule's time", "remove `time`")
            return Expiry(entry.expires.as_time())
        keep = self.declarations.keep(entry.keep, [*self.path, "keep"], self.mistakes)
        if isinstance(keep, Forever):
            # A window set to "forever" disables the rule as it is written.
            return FOREVER if isinstance(entry.keep, WindowName) else self._forever()
        if entry.most is not None and entry.by is not None:
            return self._cap_by_key(entry.most, entry.by)
        declared = entry.time or self.table.time
        if declared is None:
            or_by = ", or `by` a column of the key that ascends as rows are inserted" if entry.most is not None else ""
            fix = f'add `time = "…"` to the rule or to the table{or_by}'
            self._error("time", "no-time", "no time column", fix)
            return None
        time = declared.as_time()
        if entry.most is not None:
            return self._cap_by_time(entry.most, time)
        return None if keep is None else self._age(keep, time)

    def _check_bound_keys(self) -> None:
        """Check that what goes with another kind of bound is not set."""
        entry = self.entry
        if entry.most is None:
            self._needs_most()
        if entry.longer is not None and (entry.keep is None or isinstance(entry.keep, Forever)):
            message = "`longer` goes with `keep`, the shortest that a row stays"
            self._error("longer", "wrong-pair", message, "add `keep`: the shortest window")
        if entry.orphans is not None and entry.keep is None:
            self._error("orphans", "wrong-pair", "orphans go with keep", "add `keep`: how long orphans stay")

    def _age(self, keep: timedelta, time: Time) -> Age | Orphans:
        orphans, longer = self.entry.orphans, None
        if self.entry.longer is not None:
            longer = self.entry.longer.as_longer()
            self._check_longer(time)
        return Age(time, keep, longer) if orphans is None else _orphans(time, keep, orphans, longer)

    def _check_longer(self, time: Time) -> None:
        """Check that windows of rows can be counted exactly from their times."""
        if time.also:
            message = f"{time.column} writes timestamps in several units, and windows of rows count from one"
            self._error("longer", "several-units", message, "name a column with one unit: `time = …` in the rule")
        if time.zone not in (None, "UTC"):
            message = f"windows of rows are counted in UTC, and {time.column} holds wall-clock times of {time.zone}"
            self._error("longer", "wrong-pair", message, "name a column of instants, or of times in UTC")
        if isinstance(self.entry.then, ToArchive):
            message = "the archive counts its window from the same time as the rule, not from windows of rows"
            self._error("longer", "wrong-pair", message, "prune these rows, or remove `longer`")

    def _cap_by_time(self, most: int, time: Time) -> Cap:
        if time.elsewhere is not None:
            message = f"rows age by {time}, and a cap needs an order of the rows themselves"
            self._error("most", "time-elsewhere", message, "name a column of the table, or `by` a column of the key")
        if time.pick is not None:
            message = "a cap needs one order of all rows, which no index has of several columns"
            self._error("most", "several-times", message, "name one column: `time = …` in the rule")
        if time.also:
            message = f"{time.column} writes timestamps in several units, and a cap needs one order of all rows"
            self._error("most", "several-units", message, "name a column with one unit: `time = …` in the rule")
        return Cap(time, most, self.entry.per or ())

    def _cap_by_key(self, most: int, by: str) -> Cap | None:
        per = self.entry.per or ()
        if self.entry.time is not None:
            self._error("by", "wrong-pair", "the newest rows are found by a time or by a key", "remove `by` or `time`")
        if by in per:
            message = f"all rows of one scope have the same {by}, which does not order them by age"
            self._error("by", "wrong-pair", message, "name another column of the key")
        return Cap(None, most, per, by)

    def _needs_most(self) -> None:
        for key, given in (("per", self.entry.per), ("by", self.entry.by)):
            if given is not None:
                self._error(key, "wrong-pair", f"`{key}` goes with `most`", f"remove `{key}`")
        if self.entry.derived:
            self._error("derived", "wrong-pair", "`derived` goes with `most`", "remove `derived`")

    def _forever(self) -> Bound:
        entry = self.entry
        for key in ("orphans", "unless", "with", "unlinked", "spare"):
            if getattr(entry, "with_" if key == "with" else key):
                self._error(key, "wrong-pair", f"rows that stay forever need no `{key}`", f"remove `{key}`")
        if not isinstance(entry.then, Prune):
            self._error("then", "wrong-pair", "rows that stay forever need no `then`", "remove `then`")
        return FOREVER

    def _states(self) -> tuple[tuple[State, ...], tuple[State, ...] | None]:
        """Return the states that the rule selects, or else those that it does not."""
        when = self.entry.when
        if self.table.state is None or when != EVERY_OTHER:
            listed = when if isinstance(when, tuple) else ()
            self._check_states(listed)
            return listed, None
        if self.kind is not bool or not self.elsewhere:
            return (), self.elsewhere
        rest = tuple(state for state in (False, True) if state not in self.elsewhere)
        if not rest:
            self._error("when", "state-twice", "true and false are both named elsewhere", "remove the rule")
        return rest, None

    def _spare(self, bound: Bound) -> Spare | None:
        spare = self.entry.spare
        if spare is None or isinstance(bound, Forever):
            return None
        return Spare(spare.newest, spare.per or ())

    def _check_spare(self, bound: Bound | None) -> None:
        if self.entry.spare is None:
            return
        if self.entry.most is not None:
            self._error("spare", "wrong-pair", "`most` spares the newest rows already", "remove `spare`, or use `keep`")
        elif self.entry.orphans is not None:
            self._error("spare", "wrong-pair", "orphans are not spared by their age", "remove `spare` or `orphans`")
        elif isinstance(bound, Age | Expiry) and bound.time.elsewhere is not None:
            message = f"rows age by {bound.time}, and the newest rows need an order of the rows themselves"
            self._error("spare", "time-elsewhere", message, "name a column of the table: `time = …` in the rule")
        elif isinstance(bound, Age | Expiry) and bound.time.pick is not None:
            message = "the newest rows need one order of all, which no index has of several columns"
            self._error("spare", "several-times", message, "name one column: `time = …` in the rule")
        elif isinstance(bound, Age | Expiry) and bound.time.also:
            self._error(
                "spare",
                "several-units",
                f"{bound.time.column} writes timestamps in several units, and the newest rows need one order of all",
                "name a column with one unit: `time = …` in the rule",
            )

    def _check_where(self) -> None:
        if "where" in self.entry.model_fields_set and not self.entry.where:
            self._error("where", "wrong-value", "is empty, so the rule selects every row", "remove it, or name columns")
        if self.table.state in self.entry.where:
            self._error(
                "where",
                "wrong-pair",
                f"{self.table.state} is the state column, which has a key of its own",
                'write `when = ["…"]`',
            )
        _check_columns(self.entry.where, [*self.path, "where"], self.mistakes)
        for follower in self.entry.with_:
            _check_follower_columns(follower, [*self.path, "with"], self.mistakes)

    def _check_states(self, when: tuple[State, ...]) -> None:
        table = self.table
        if table.state is None:
            if self.entry.when is not None:
                self._error("when", "no-state", "the table names no state column", 'add `state = "…"` to the table')
            return
        if not when:
            self._error(
                "when",
                "missing-key",
                "missing: the table has states, so the rule must list those that it selects",
                "add `when = […]`",
            )
            return
        if not self._check_type("when", when[0]):
            return
        live = [state for state in when if state in (table.live or ())]
        evicts = self.entry.derived and self.entry.most is not None
        if live and evicts and self.entry.with_:
            self._error(
                "with",
                "live-state",
                f"{shown(live[0])} is a live state, and nothing leaves with a live row",
                "remove it",
            )
        for state in () if evicts else live:
            self._error("when", "live-state", f"{shown(state)} is a live state", "remove it here or from `live`")
        for state in when:
            if _as_key(state) in table.excused:
                self._error("when", "state-twice", f"{shown(state)} is excused", "keep one of the two")

    def _check_type(self, key: str, state: State) -> bool:
        """Check a state's type against the table's states: Python considers 1 and true equal, no state column does."""
        if type(state) is self.kind:
            return True
        found, expected = describe(state), KINDS[self.kind]
        self._error(key, "wrong-type", f"found {found}, expected {expected}, as the other states are")
        return False

    def _check_action(self, bound: Bound | None) -> None:
        then = self.entry.then
        if isinstance(then, Mark):
            self._check_mark(then.state)
        if isinstance(then, ToArchive) and isinstance(bound, Age | Orphans | Expiry):
            self._check_archived_time(bound.time)
        if isinstance(bound, Cap) and not isinstance(then, Prune):
            self._error("then", "wrong-pair", "a cap prunes; it neither marks nor archives", "remove `then`")
        for key in ("least_rows", "longest_wait") if not isinstance(then, ToArchive) else ():
            if getattr(self.entry, key) is not None:
                fix = f'add `then = "archive"`, or remove `{key}`'
                self._error(key, "wrong-pair", "rows wait for others only before they are archived", fix)

    def _check_mark(self, state: State) -> None:
        if self.table.state is None:
            self._error("then", "no-state", "marking needs a state column", 'add `state = "…"` to the table')
        else:
            self._check_type("then", state)
        if state in (self.table.live or ()):
            self._error("then", "live-state", f"{shown(state)} is a live state", "mark rows with a terminal state")
        when = self.entry.when or ()
        if state not in self.elsewhere if when == EVERY_OTHER else state in when:
            fix = "name it in another rule, or excuse it" if when == EVERY_OTHER else "remove it from `when`"
            self._error("then", "mark-cycle", f"rows in {shown(state)} would be marked again", fix)
        if self.entry.with_:
            self._error("with", "wrong-pair", "a marked row stays, so nothing leaves with it", "remove `with`")
        if self.entry.unlinked:
            self._error("unlinked", "wrong-pair", "a marked row stays, so no trigger fires", "remove `unlinked`")

    def _check_archived_time(self, time: Time) -> None:
        if time.also:
            message = f"{time.column} writes timestamps in several units, and the archive is by the month of one"
            self._error("then", "several-units", message, "name a column with one unit: `time = …` in the rule")
        if time.elsewhere:
            message = f"rows age by {time}, and the archive is by the month of a column of their own"
            self._error("then", "time-elsewhere", message, "name a column of the table: `time = …` in the rule")
        if time.pick is not None:
            message = f"rows age by {time}, and the archive is by the month of one column"
            self._error("then", "several-times", message, "name one column: `time = …` in the rule")


def _orphans(time: Time, keep: timedelta, entry: OrphansEntry, longer: Longer | None) -> Orphans:
    missing = None if entry.of is None else MissingParent(entry.columns, entry.of, entry.to or ())
    return Orphans(time, keep, entry.columns[0], missing, longer)


def _guard(entry: GuardEntry) -> Guard:
    if entry.referenced_by is not None:
        return ReferencedBy(entry.referenced_by.as_reference())
    if entry.null is not None:
        return WhileNull(entry.null)
    assert entry.not_null is not None
    return WhileNotNull(entry.not_null)


def _follower(entry: FollowerEntry) -> Follower:
    followers = tuple(_follower(inner) for inner in entry.with_)
    return Follower(entry.as_reference(), _conditions(entry.where), followers, entry.live == "leave")


def _conditions(where: Mapping[str, Condition]) -> Conditions:
    return tuple(sorted(where.items(), key=lambda one: one[0]))


def _check_columns(where: Mapping[str, Condition], path: KeyPath, mistakes: Mistakes) -> None:
    for name, condition in where.items():
        if any(one.column == name for one in condition.comparisons):
            mistakes.error([*path, name], "wrong-value", "compares the column with itself", "name another column")


def _check_follower_columns(follower: FollowerEntry, path: KeyPath, mistakes: Mistakes) -> None:
    _check_columns(follower.where, path, mistakes)
    for inner in follower.with_:
        _check_follower_columns(inner, path, mistakes)
