"""Functions inside a PostgreSQL database for the contract in force: what they offer, installing them, detecting drift.

The functions are written for one contract and one schema. After either changed they have to be installed again;
`installed_fingerprint` shows whether the contract did. A rule that SQL cannot decide as exactly as the engine is not
installed, and calling it raises an error with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import combinations, count
from typing import TYPE_CHECKING

from wane._arguments import MOST_ROWS
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Age, Mark, Orphans, Rule, State, Table, ToArchive, ToColdTier
from wane._contract.names import TableName
from wane._contract.settings import EventSettings
from wane._db import Store
from wane._keeper import Keeper
from wane._prune.gates import flag_name
from wane._prune.sql_outbox import locate
from wane._rules.selection import Selection
from wane.errors import BindError, StoreError, WaneError, WrongArgument
from wane.observe._binding import bind_tables
from wane.observe._sql_installed import functions_fingerprint
from wane.webhooks._family import LIVE_JOBS, QUEUE, counted_tables, find_family, has_family
from wane.webhooks._model import MOST_PRUNED, NEVER, PRUNE_EVENTS, PRUNE_ORPHAN_DELIVERIES, SETTLED
from wane.webhooks._retention import MOST_FOLLOWERS

if TYPE_CHECKING:
    # They need the PostgreSQL driver, which an embedded installation does not have.
    from wane._sqlfunctions.cold_tier import ArchiveSweep
    from wane._sqlfunctions.surface import ByRule, OrphansFunction
    from wane._sqlfunctions.take import TakeFunction
    from wane._sqlfunctions.webhooks import Webhooks

_READ_SECONDS = 10.0
_MOST_MOVED = 10_000
"""The most rows that one call of `fn_<table>_archive_sweep` moves by default: it is one transaction."""
_LONG_AGO = 1
_MOST_STATUSES = 4
"""The most statuses: every combination has a function of its own."""


@dataclass(frozen=True, slots=True)
class RefusedRule:
    """A rule that was not installed, and why."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class SqlSurface:
    """The statements that install the functions, in one transaction, and the rules that are left out."""

    fingerprint: str
    statements: tuple[str, ...]
    refused: tuple[RefusedRule, ...]

    @property
    def text(self) -> str:
        """Return a script for psql."""
        return "BEGIN;\n\n" + "".join(f"{statement};\n\n" for statement in self.statements) + "COMMIT;\n"


def sql_surface(keeper: Keeper) -> SqlSurface:
    """Build everything that would be installed for the keeper's contract. Changes nothing."""
    _require_functions(keeper.store)
    keeper.store.require_migrated()
    return _Offers(keeper).surface()


def install(keeper: Keeper) -> SqlSurface:
    """Install the functions, replacing those of any other contract."""
    surface = sql_surface(keeper)
    _run(keeper.store, surface.statements)
    return surface


def uninstall(store: Store) -> None:
    """Remove the functions."""
    _require_functions(store)
    from wane._sqlfunctions.surface import uninstall_statements

    _run(store, uninstall_statements())


def installed_fingerprint(store: Store) -> str | None:
    """Read the fingerprint of the contract that the functions were installed for; None if there are none.

    They have drifted if it differs from `wane._contract.fingerprint.fingerprint(contract)`. SQLite has no functions of
    its own: a connection registers those of the contract that it is given.
    """
    return functions_fingerprint(store, _READ_SECONDS)


def _run(store: Store, statements: tuple[str, ...] | list[str]) -> None:
    with store.transaction() as transaction:
        for statement in statements:
            transaction.execute(_doubled(statement), {})


def _doubled(text: str) -> str:
    """Double the percent signs, as required where values can be bound."""
    return text.replace("%", "%%")


def _require_functions(store: Store) -> None:
    if not store.has_functions:
        raise StoreError(
            "SQLite keeps no functions in the database",
            "register them on a connection: `wane.sqlite.register(connection)`",
        )


class _Offers:
    """Collects the functions that can be installed, and why the others cannot."""

    def __init__(self, keeper: Keeper) -> None:
        from wane._sqlfunctions.cold_tier import move_function
        from wane._sqlfunctions.surface import ByRule, OrphansFunction
        from wane._sqlfunctions.take import TakeFunction, take_function

        self.keeper = keeper
        self.contract = keeper.contract
        self.bindings = keeper.pruner.bindings
        self.refused: list[RefusedRule] = []
        self.takes: list[TakeFunction] = []
        self._numbers = count(1)
        self._take_function = TakeFunction
        self._write = take_function
        self._write_move = move_function
        self._offer = ByRule
        self._orphans_offer = OrphansFunction

    def surface(self) -> SqlSurface:
        from wane._sqlfunctions.surface import Surface, install_statements

        rules = [self._by_rule(table, rule) for table, rule in self.contract.rules()]
        orphans = [self._orphans(table) for table in self._with_orphans()]
        mark = fingerprint(self.contract)
        surface = Surface(
            mark,
            self.takes,
            rules,
            orphans,
            self._webhooks(),
            bind_tables(self.keeper.store, self.contract).tables,
            self.contract.health.counted_rows,
            self._events(),
            self._sweeps(),
            MOST_ROWS,
        )
        statements = tuple(install_statements(surface))
        return SqlSurface(mark, statements, tuple(self.refused))

    def _events(self) -> EventSettings:
        """Return the contract's event settings with the outbox's full name: functions cannot resolve a bare one."""
        events = self.contract.events
        if events.outbox is None:
            return events
        name = TableName.parse(events.outbox.table)
        return replace(events, outbox=replace(events.outbox, table=str(locate(self.keeper.store, name))))

    def _by_rule(self, table: Table, rule: Rule) -> ByRule:
        kind = "mark" if isinstance(rule.action, Mark) else "prune"
        if isinstance(rule.action, ToArchive | ToColdTier):
            take, reason = None, "the rule moves rows to the archive; it does not prune them"
            if isinstance(rule.action, ToColdTier):
                reason += f": call wane.{self._sweep_name(table)}"
        else:
            take, reason = self._take(table, rule, f"{table.name}.{rule.name}")
        return self._offer(str(table.name), rule.name, kind, take, reason)

    def _sweeps(self) -> list[ArchiveSweep]:
        """Return one function for each table whose rows move to another schema."""
        from wane._sqlfunctions.cold_tier import ArchiveSweep

        found = []
        for table in self.contract.tables:
            moving = [rule for rule in table.rules if rule.active and isinstance(rule.action, ToColdTier)]
            takes = [self._take(table, rule, f"{table.name}.{rule.name}")[0] for rule in moving]
            if not moving or None in takes:
                continue
            found.append(
                ArchiveSweep(
                    self._sweep_name(table),
                    str(table.name),
                    [take for take in takes if take is not None],
                    min(_MOST_MOVED, *(rule.budget.rows for rule in moving)),
                    self.contract.sweep.master_flag,
                    flag_name(table.name, self.contract.sweep),
                    self.contract.roles.admin if self.contract.roles.enabled else None,
                )
            )
        return found

    def _sweep_name(self, table: Table) -> str:
        """Return `fn_<table>_archive_sweep`, with the schema where two such tables share a name."""
        from wane._partition.anatomy import fitted

        alike = [
            one
            for one in self.contract.tables
            if one.name.name == table.name.name and any(isinstance(rule.action, ToColdTier) for rule in one.rules)
        ]
        unambiguous = len(alike) == 1 or table.name.schema is None
        return fitted(
            f"fn_{table.name.name if unambiguous else f'{table.name.schema}_{table.name.name}'}", "_archive_sweep"
        )

    def _with_orphans(self) -> list[Table]:
        return [
            table
            for table in self.contract.tables
            if any(
                isinstance(rule.bound, Orphans) and not isinstance(rule.action, ToArchive | ToColdTier)
                for rule in table.rules
            )
        ]

    def _floor(self, table: Table) -> timedelta:
        return dict(self.contract.floors).get(table.name, timedelta(0))

    def _take(
        self, table: Table, rule: Rule, label: str, adapt: Callable[[Selection], Selection] = lambda one: one
    ) -> tuple[TakeFunction | None, str]:
        """Return the function for a rule, or why there is none."""
        take = None
        try:
            take = self._take_function(next(self._numbers), adapt(self.bindings.selection(table, rule)))
            (self._write_move if isinstance(rule.action, ToColdTier) else self._write)(take)
        except BindError as problem:
            reason = "; ".join([problem.message, *(finding.message for finding in problem.findings)])
        except WaneError as problem:
            reason = f"{problem.message}: {problem.hint}" if problem.hint else problem.message
        else:
            self.takes.append(take)
            return take, ""
        self.refused.append(RefusedRule(label, reason))
        return None, reason

    def _orphans(self, table: Table) -> OrphansFunction:
        rule, take, reason = self._explicit(table, None, f"prune_orphans({table.name})", orphans=True)
        states: tuple[State, ...] = () if rule is None else rule.states
        return self._orphans_offer(str(table.name), states, take, self._floor(table), reason)

    def _explicit(
        self,
        table: Table,
        states: tuple[str, ...] | None,
        label: str,
        *,
        orphans: bool = False,
        adapt: Callable[[Selection], Selection] = lambda one: one,
    ) -> tuple[Rule | None, TakeFunction | None, str]:
        """Return the rule of a call with any cutoff of its own, and its function; or why there is none."""
        try:
            rule = self.keeper.pruner.order(str(table.name), None, states, _LONG_AGO, orphans=orphans).rule
        except WaneError as problem:
            self.refused.append(RefusedRule(label, problem.message))
            return None, None, problem.message
        return rule, *self._take(table, rule, label, adapt)

    def _webhooks(self) -> Webhooks | None:
        from wane._sqlfunctions.webhooks import Webhooks, of_any_queue

        if not has_family(self.contract):
            return None
        family = find_family(self.contract)
        events, deliveries = self.bindings.table(family.events), self.bindings.table(family.deliveries)
        choices = []
        for statuses in self._choices(events):
            rule, take, _ = self._explicit(
                events,
                statuses,
                f"{PRUNE_EVENTS}({', '.join(statuses)})",
                adapt=partial(of_any_queue, table=LIVE_JOBS, column=QUEUE),
            )
            if rule is None:
                continue
            if take is None:
                return None
            choices.append((statuses, take))
        _, orphans, _ = self._explicit(deliveries, None, PRUNE_ORPHAN_DELIVERIES, orphans=True)
        if orphans is None:
            return None
        return Webhooks(
            events=choices,
            orphans=orphans,
            queue_name=family.queue_name,
            counted=tuple(counted_tables(self.contract).items()),
            settled=SETTLED,
            most=MOST_PRUNED,
            most_followers=MOST_FOLLOWERS,
            events_kind=PRUNE_EVENTS,
            orphans_kind=PRUNE_ORPHAN_DELIVERIES,
            floors=(self._floor(events), self._floor(deliveries)),
        )

    def _choices(self, events: Table) -> Iterator[tuple[str, ...]]:
        """Yield every combination of the statuses that some rule deletes by age."""
        found = dict.fromkeys(
            state
            for rule in events.rules
            if isinstance(rule.bound, Age) and not isinstance(rule.action, Mark | ToArchive | ToColdTier)
            for state in rule.states
            if isinstance(state, str) and state not in NEVER and state not in events.live
        )
        if len(found) > _MOST_STATUSES:
            raise WrongArgument(
                f"{events.name} lets {len(found)} statuses go, and SQL offers {_MOST_STATUSES} at the most"
            )
        for size in range(1, len(found) + 1):
            yield from combinations(found, size)
