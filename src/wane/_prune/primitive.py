"""The prune primitives: one call, one transaction, one audit row. Sweeps take their rows through `take_all_scopes`."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from wane._arguments import require_limit, require_states, require_time
from wane._contract.duration import format_duration
from wane._contract.model import Cap, Contract, Mark, Rule, Table, ToArchive, ToColdTier
from wane._db import Store
from wane._db.counting import count_rows
from wane._db.transaction import Transaction
from wane._ledger import AuditEntry, Ledger
from wane._prune.binding import Bindings
from wane._prune.build_plan import BATCH_ROWS, plan_step
from wane._prune.dialects import row_taker
from wane._prune.plan import Step
from wane._prune.sql_outbox import write_taken_event
from wane._prune.take import Batch, CapEdge, RowTaker, Taken, gated
from wane._rules.rows import cutoff
from wane._rules.scopes import MOST_SCOPES, Scope
from wane._rules.selection import Selection
from wane.errors import Locked, WrongArgument
from wane.events import Listener, RowsPruned, hard_deleted, ignore_event

_KINDS: dict[type[object], str] = {Mark: "mark", ToColdTier: "shelve"}
"""The kind that the audit trail records for a call, by its rule's action."""


_CLOCKS_DIFFER = timedelta(minutes=1)
"""How far a caller's "now" may be ahead of the database's."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one call took: a count per table, and its row in the audit trail."""

    table: str
    rule: str | None
    kind: str
    counts: dict[str, int]
    cutoff: datetime | None
    audit_id: int
    skipped_locked: bool = False
    """Other transactions hold locks: rows that they have locked were skipped until the next time."""

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Order:
    """What a caller requests to be taken."""

    table: Table
    rule: Rule
    kind: str
    older_than: datetime | None = None
    """The caller's own cutoff; None for a rule of the contract."""
    limit: int = 1
    """Rows of the table, at the most."""
    most: int = 1
    """Rows in all, followers included, at the most."""
    scope: dict[str, Any] | None = None
    requested: dict[str, Any] | None = None
    """What the operator requested, where an interface has its own form for it."""

    def inputs(self) -> dict[str, Any]:
        """Return what the operator requested, for the audit trail."""
        if self.requested is not None:
            return self.requested
        inputs: dict[str, Any] = {"rule": self.rule.name}
        if self.older_than is not None:
            inputs = {"states": list(self.rule.states), "older_than": self.older_than.isoformat()}
        return {**inputs, "limit": self.limit, **({} if self.scope is None else {"scope": self.scope})}


class Pruner:
    """Prunes by the rules of one contract, on one store."""

    def __init__(
        self,
        store: Store,
        contract: Contract,
        *,
        actor: str | None = None,
        listener: Listener = ignore_event,
        own: bool = False,
    ) -> None:
        """Prepare to prune; `own`: the contract covers Wane's own tables."""
        self.store = store
        self.contract = contract
        self.bindings = Bindings(store, contract, own=own)
        self.actor = actor or whoami()
        self.listener = listener

    def prune(
        self,
        table: str,
        *,
        rule: str | None = None,
        states: object = None,
        older_than: object = None,
        limit: int,
        scope: dict[str, Any] | None = None,
        actor: str | None = None,
        connection: object | None = None,
    ) -> Pruned:
        """Take at most `limit` rows, followers included, oldest first, all or nothing.

        Either by a rule of the contract, or by `states` and a cutoff of the caller's own (`older_than`, strict), with
        the guards and followers that the contract gives those states. With a connection, inside its transaction.
        """
        limit = require_limit(limit)
        order = self.order(table, rule, states, older_than)
        return self.take(replace(order, scope=scope, limit=limit, most=limit), actor, connection)

    def prune_orphans(
        self,
        table: str,
        *,
        older_than: object,
        limit: int,
        states: object = None,
        actor: str | None = None,
        connection: object | None = None,
    ) -> Pruned:
        """Take at most `limit` rows whose reference to their parent is NULL, oldest first, all or nothing."""
        limit = require_limit(limit)
        order = self.order(table, None, states, older_than, orphans=True)
        return self.take(replace(order, limit=limit, most=limit), actor, connection)

    def preview(
        self,
        table: str,
        *,
        rule: str | None,
        states: object,
        older_than: object,
        orphans: bool,
        seconds: float,
        limit: int = BATCH_ROWS,
    ) -> Step:
        """Preview what the same call would take: counts, edges, the statement and its query plan. Reads only."""
        order = self.order(table, rule, states, older_than, orphans=orphans)
        selection = self.bindings.selection(order.table, order.rule)
        now = order.older_than or self.store.now()
        rows = count_rows(self.store, selection.table, seconds)
        return plan_step(
            self.store, selection, now, seconds, rows, swept=not order.table.append_only, explain=True, limit=limit
        )

    def order(
        self, table: str, rule: str | None, states: object, older_than: object, *, orphans: bool = False
    ) -> Order:
        """Check what a caller requests, and return it as an order whose limits are still to be set."""
        declared = self.bindings.table(table)
        if (rule is None) == (older_than is None):
            raise WrongArgument("pass either `rule`, or `older_than` (with `states` where the table has states)")
        if rule is not None:
            if states is not None:
                raise WrongArgument("a rule has its own states", "leave `states` out")
            chosen = self._by_rule(declared, rule)
            return Order(declared, chosen, _KINDS.get(type(chosen.action), "prune"))
        if states is None and orphans:
            given = self.bindings.orphan_states(declared)
        elif states is None and declared.state is not None:
            known = ", ".join(repr(state) for rule in declared.rules for state in rule.states)
            raise WrongArgument(f"{table} has states: pass those that may leave", f"states with rules: {known}")
        else:
            given = () if states is None else require_states(states)
        before = self._explicit_cutoff(declared, older_than)
        chosen = self.bindings.explicit(declared, given, orphans=orphans)
        return Order(declared, chosen, "prune_orphans" if orphans else "prune", before)

    def _by_rule(self, table: Table, name: str) -> Rule:
        rule = self.bindings.rule(table, name)
        if not rule.active:
            raise WrongArgument(f"{table.name}.{name} keeps its rows forever")
        if isinstance(rule.action, ToArchive):
            raise WrongArgument(
                f"{table.name}.{name} moves rows to the archive; it does not prune them", "run the archive"
            )
        return rule

    def _explicit_cutoff(self, table: Table, older_than: object) -> datetime:
        """Return the caller's cutoff; raise if it is in the future or under the contract's floor."""
        before, now = require_time("older_than", older_than), self.store.now()
        if before > now + _CLOCKS_DIFFER:
            raise WrongArgument(
                f"older_than is in the future: {before.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
                "no row can be that old yet",
            )
        floor = dict(self.contract.floors).get(table.name, timedelta(0))
        if before > now - floor and floor:
            raise WrongArgument(f"older_than is under the floor of {format_duration(floor)} for {table.name}")
        return before

    def take(self, order: Order, actor: str | None, connection: object | None) -> Pruned:
        """Take rows in one transaction and record them in the audit trail.

        Rows that other transactions have locked are skipped until the next time.
        """
        [pruned] = self.take_together([order], actor, connection)
        return pruned

    def take_together(
        self,
        orders: Sequence[Order],
        actor: str | None,
        connection: object | None,
        *,
        wanted: Callable[[Transaction], bool] = lambda _: True,
    ) -> list[Pruned]:
        """Take several orders in one transaction, each with its row in the audit trail, all or nothing.

        `wanted` is called first, inside the transaction; if it returns False, nothing happens and nothing is recorded.
        """
        self.store.require_migrated()
        taken = self.bindings.rebinding(lambda: self._attempt(orders, actor, connection, wanted))
        for order, pruned in zip(orders, taken, strict=False):
            label = order.table.label(order.rule)
            self.listener(
                RowsPruned(
                    order.table.scheduler,
                    pruned.table,
                    pruned.rule,
                    label,
                    pruned.kind,
                    pruned.counts,
                    committed=connection is None,
                )
            )
            # Inside a caller's transaction nothing is deleted yet, and there is no way to know whether it gets
            # committed.
            for table, rows in (
                pruned.counts.items() if connection is None and pruned.kind not in ("mark", "shelve") else ()
            ):
                if rows and self.contract.events.emits_hard_deleted(table):
                    self.listener(hard_deleted(table, pruned.rule, rows, pruned.audit_id))
        return taken

    def _attempt(
        self,
        orders: Sequence[Order],
        actor: str | None,
        connection: object | None,
        wanted: Callable[[Transaction], bool],
    ) -> list[Pruned]:
        bound = [
            (order, self._scoped(self.bindings.selection(order.table, order.rule), order.scope)) for order in orders
        ]

        def attempt(*, skip_locked: bool) -> list[Pruned]:
            with self.store.transaction(connection) as transaction:
                if not wanted(transaction):
                    return []
                transaction.enter(gated(*(selection for _, selection in bound)))
                return [self._take(transaction, *one, actor, skip_locked=skip_locked) for one in bound]

        try:
            return attempt(skip_locked=False)
        except Locked:
            if any(isinstance(order.rule.bound, Cap) for order in orders):
                raise  # Which rows are beyond a cap depends on all of them; none may be skipped.
            return attempt(skip_locked=True)

    def _take(
        self, transaction: Transaction, order: Order, selection: Selection, actor: str | None, *, skip_locked: bool
    ) -> Pruned:
        began = time.monotonic()
        name = str(order.table.name)
        rule = order.rule.name if order.older_than is None else None
        clock = transaction.now()
        now = order.older_than or clock
        taken = take_all_scopes(transaction, Batch(selection, now, order.limit, order.most, skip_locked=skip_locked))
        counts = {name: 0, **taken.counts}
        ending = cutoff(order.rule, now)
        entry = AuditEntry.begun(
            order.kind, name, actor or self.actor, order.inputs(), clock, rule=rule, cutoff=ending
        ).changed(None, counts, clock, round(time.monotonic() - began, 6))
        number = Ledger.of(transaction).record(entry)
        write_taken_event(self.store, transaction, self.contract.events, replace(entry, id=number))
        return Pruned(name, rule, order.kind, counts, ending, number, skip_locked)

    def _scoped(self, selection: Selection, scope: dict[str, Any] | None) -> Selection:
        if scope is None:
            return selection
        names = [column.name for column in selection.per]
        if sorted(scope) != sorted(names):
            wanted = ", ".join(names) or "no columns: its rule has no `per`"
            raise WrongArgument(f"scope names {', '.join(scope)}, and {selection.label} counts per {wanted}")
        return selection.in_scope(tuple(scope[name] for name in names))


def take_all_scopes(transaction: Transaction, batch: Batch) -> Taken:
    """Take a batch; for a cap per scope, scope after scope until the batch is full."""
    taker = row_taker(transaction)
    taken = _take_all_scopes(taker, batch)
    taker.conclude(batch.selection, taken.counts)
    return taken


def _take_all_scopes(taker: RowTaker, batch: Batch) -> Taken:
    selection = batch.selection
    if not selection.per or selection.scope is not None:
        return taker.take(batch)
    found: dict[Scope, tuple[Any, ...]] = {}
    scopes = taker.scopes(selection, batch.now, batch.floor, found if batch.swept else None)
    counts, passed, edges = _take_scopes(taker, batch, scopes, found)
    if len(passed) >= MOST_SCOPES and not counts.total():
        # All of them beyond their cap, and nothing in them may leave; one that is further down may have something.
        counts, passed, edges = _take_scopes(taker, batch, taker.scopes_due(selection, batch.now), {})
    # The next batch goes on in the first scope that has more, which may not have fit into this one.
    unfinished = [scope for scope, done in passed if not done] or [scope for scope, _ in passed[-1:]]
    floor = unfinished[0] if unfinished and taker.statements(selection).scopes_behind else None
    return Taken(dict(counts), floor, done=not counts.total(), edge=edges.get(floor))


def _take_scopes(
    taker: RowTaker, batch: Batch, scopes: Iterable[Scope], known_edges: Mapping[Scope, tuple[Any, ...]]
) -> tuple[Counter[str], list[tuple[Scope, bool]], dict[Scope | None, CapEdge | None]]:
    """Take a batch, scope after scope.

    Return what was taken, each scope with whether nothing is left in it, and the edges of their caps.
    """
    counts: Counter[str] = Counter()
    passed: list[tuple[Scope, bool]] = []
    edges: dict[Scope | None, CapEdge | None] = {}
    own, name = batch.limit, str(batch.selection.name)
    limit, most = own, batch.most
    # The next scope is not read before it is wanted.
    found = iter(scopes)
    while limit > 0 and most > 0 and (scope := next(found, None)) is not None:
        known = batch.edge if scope == batch.floor else None
        if known is None and scope in known_edges:
            *position, version = known_edges[scope]
            known = CapEdge(tuple(position), version)
        one = replace(
            batch,
            selection=batch.selection.in_scope(scope),
            limit=min(limit, most),
            most=most,
            floor=None if known is None else known.floor,
            whole=bool(counts.total()),
            swept=batch.swept and not counts.total(),
            edge=known,
        )
        taken = taker.take(one)
        counts.update(taken.counts)
        passed.append((scope, taken.done))
        edges[scope] = taken.edge
        limit, most = own - counts[name], batch.most - counts.total()
    return counts, passed, edges


def whoami() -> str:
    """Return the user and host that run this process, for the audit trail."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
