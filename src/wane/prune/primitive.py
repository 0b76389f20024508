"""The prune primitives: one call, one transaction, one audit row. Everything that ever deletes a hot row comes through here."""

from __future__ import annotations

import getpass
import os
import socket
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from wane.contract.model import Archive, Cap, Contract, Mark, Rule, Table
from wane.errors import Locked, WrongArgument
from wane.events import Listener, RowsPruned, nobody
from wane.prune.arguments import require_limit, require_moment, require_states
from wane.prune.binding import Bindings
from wane.store import Store
from wane.store.own import AuditEntry
from wane.store.rows import cutoff
from wane.store.selection import Selection
from wane.store.transaction import Batch, Taken, Transaction, gated

_MOST_SCOPES = 1_000
"""How many scopes beyond their cap one call looks at."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one call took: a count per table, and its row in the trail."""

    table: str
    rule: str | None
    kind: str
    counts: dict[str, int]
    cutoff: datetime | None
    audit_id: int

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


class Pruner:
    """Prunes by the rules of one contract, on one store."""

    def __init__(
        self, store: Store, contract: Contract, *, actor: str | None = None, listener: Listener = nobody
    ) -> None:
        self.store = store
        self.contract = contract
        self.bindings = Bindings(store, contract)
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

        Either by a rule of the contract, or by `states` and a cutoff of one's own (`older_than`, strict), with the guards and
        followers that the contract gives those states. With a connection, inside its transaction.
        """
        limit = require_limit(limit)
        declared = self.bindings.table(table)
        if (rule is None) == (older_than is None):
            raise WrongArgument("say either `rule`, or `older_than` (with `states` where the table has states)")
        if rule is not None:
            if states is not None:
                raise WrongArgument("a rule has its own states", "leave `states` out")
            chosen = self._by_rule(declared, rule)
            inputs: dict[str, Any] = {"rule": rule, "limit": limit}
            moment = None
        else:
            given = () if states is None and declared.state is None else require_states(states)
            moment = self._explicit_moment(declared, older_than)
            chosen = self.bindings.explicit(declared, given)
            inputs = {"states": list(given), "older_than": moment.isoformat(), "limit": limit}
        if scope is not None:
            inputs["scope"] = scope
        kind = "mark" if isinstance(chosen.action, Mark) else "prune"
        return self.take(declared, chosen, kind, inputs, limit, limit, moment, scope, actor, connection)

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
        declared = self.bindings.table(table)
        given = () if states is None and declared.state is None else require_states(states)
        moment = self._explicit_moment(declared, older_than)
        chosen = self.bindings.explicit(declared, given, orphans=True)
        inputs = {"states": list(given), "older_than": moment.isoformat(), "limit": limit}
        return self.take(declared, chosen, "prune_orphans", inputs, limit, limit, moment, None, actor, connection)

    def _by_rule(self, table: Table, name: str) -> Rule:
        rule = self.bindings.rule(table, name)
        if not rule.active:
            raise WrongArgument(f"{table.name}.{name} keeps its rows forever")
        if isinstance(rule.action, Archive):
            raise WrongArgument(
                f"{table.name}.{name} moves rows to the archive; it does not prune them", "run the archive"
            )
        return rule

    def _explicit_moment(self, table: Table, older_than: object) -> datetime:
        """The caller's cutoff, which no floor of the contract may be above."""
        moment = require_moment(older_than)
        floor = dict(self.contract.floors).get(table.name, timedelta(0))
        if moment > self.store.now() - floor and floor:
            raise WrongArgument(f"older_than is under the floor of {floor.days} days for {table.name}")
        return moment

    def take(
        self,
        table: Table,
        rule: Rule,
        kind: str,
        inputs: dict[str, Any],
        limit: int,
        most: int,
        moment: datetime | None,
        scope: dict[str, Any] | None,
        actor: str | None,
        connection: object | None,
    ) -> Pruned:
        """One transaction that takes rows and tells the trail. If others hold rows locked, those are left for the next time."""
        self.store.require_migrated()
        selection = self._scoped(self.bindings.selection(table, rule), scope)
        explicit = rule.name if moment is None else None

        def attempt(*, skip_locked: bool) -> Pruned:
            began = time.monotonic()
            with self.store.transaction(connection) as transaction:
                transaction.enter(gated(selection))
                clock = transaction.now()
                now = moment or clock
                taken = take_all_scopes(transaction, Batch(selection, now, limit, most, skip_locked=skip_locked))
                counts = {str(table.name): 0, **taken.counts}
                ending = cutoff(rule, now)
                entry = AuditEntry(
                    kind=kind,
                    table=str(table.name),
                    actor=actor or self.actor,
                    inputs=inputs,
                    counts=counts,
                    executed_at=clock,
                    rule=explicit,
                    cutoff=ending,
                    seconds=round(time.monotonic() - began, 6),
                )
                number = transaction.own.record(entry)
            return Pruned(str(table.name), explicit, kind, counts, ending, number)

        try:
            pruned = attempt(skip_locked=False)
        except Locked:
            if isinstance(rule.bound, Cap):
                raise  # Which rows are beyond a cap depends on all of them; none may be skipped.
            pruned = attempt(skip_locked=True)
        self.listener(RowsPruned(pruned.table, pruned.rule, kind, pruned.counts))
        return pruned

    def _scoped(self, selection: Selection, scope: dict[str, Any] | None) -> Selection:
        if scope is None:
            return selection
        names = [column.name for column in selection.per]
        if sorted(scope) != sorted(names):
            wanted = ", ".join(names) or "no columns: its rule has no `per`"
            raise WrongArgument(f"scope names {', '.join(scope)}, and {selection.label} counts per {wanted}")
        return replace(selection, scope=tuple(scope[name] for name in names))


def take_all_scopes(transaction: Transaction, batch: Batch) -> Taken:
    """Take a batch; for a cap per scope, scope after scope until the batch is full."""
    selection = batch.selection
    if not selection.per or selection.scope is not None:
        return transaction.take(batch)
    statement = transaction.rows.scopes_beyond_cap(selection, _MOST_SCOPES)
    scopes = transaction.execute(statement.text, statement.parameters)
    counts: dict[str, int] = {}
    room = batch.most
    for scope in scopes:
        one = replace(batch, selection=replace(selection, scope=scope), limit=min(batch.limit, room), most=room)
        taken = transaction.take(one)
        for name, rows in taken.counts.items():
            counts[name] = counts.get(name, 0) + rows
        room = batch.most - sum(counts.values())
        if room <= 0:
            return Taken(counts, None, done=False)
    return Taken(counts, None, done=len(scopes) < _MOST_SCOPES)


def whoami() -> str:
    """Who runs this process, for the trail."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
