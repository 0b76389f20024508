"""Deletions by an application, on its own connection: consume a one-time row, or delete one whose work is done.

These are the application's own actions: counted, not audited. Holds are honoured all the same, and what follows the row
leaves with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wane._contract.model import Expiry, Rule, Table
from wane._contract.names import AUDIT
from wane._db import Store
from wane._prune.binding import Bindings
from wane._prune.dialects import row_taker
from wane._prune.take import deletion_prevented, gated
from wane._rules.queries import Queries
from wane._rules.selection import Selection
from wane.errors import WrongArgument, WrongArgumentType
from wane.events import Listener, RowConsumed


class InlineDeletion:
    """Deletes single rows by the rules of a contract, in the caller's transaction if there is one."""

    def __init__(self, store: Store, bindings: Bindings, listener: Listener) -> None:
        self.store = store
        self.bindings = bindings
        self.listener = listener

    def consume(self, table: str, key: Mapping[str, object], connection: object | None) -> dict[str, Any] | None:
        """Delete a one-time row and return it, once, only while it has not expired; None if there is none."""
        declared = self.bindings.table(table)
        rule = next((rule for rule in declared.rules if isinstance(rule.bound, Expiry)), None)
        if rule is None:
            raise WrongArgument(f"{table} has no rule with `expires`, so nothing states how long its rows are live")
        assert isinstance(rule.bound, Expiry)
        if rule.bound.time.elsewhere is not None:
            raise WrongArgument(
                f"rows of {table} expire by {rule.bound.time}, and only a time of its own states whether a row is live",
                "name a column of the table: `expires = …`",
            )
        return self._remove(declared, rule, key, connection, "consume")

    def discard(self, table: str, key: Mapping[str, object], connection: object | None) -> bool:
        """Delete a row whose work succeeded; False if there is none, or it is held."""
        declared = self.bindings.table(table)
        rule = next((rule for rule in declared.rules if rule.active), None)
        if rule is None:
            raise WrongArgument(f"{table} has no rule that lets rows go")
        return self._remove(declared, rule, key, connection, "discard") is not None

    def _remove(
        self, declared: Table, rule: Rule, key: Mapping[str, object], connection: object | None, kind: str
    ) -> dict[str, Any] | None:
        if declared.name in AUDIT:
            raise WrongArgument(
                f"{declared.name} is the audit trail: its rows leave through the archive and in no other way"
            )
        if declared.append_only:
            raise WrongArgument(f"{declared.name} is append-only: only an explicit, audited prune deletes from it")
        if not isinstance(key, Mapping):
            raise WrongArgumentType(f"key must map columns to values, not {key!r}", 'write {"id": …}')
        selection = self.bindings.selection(declared, rule)
        names = [column.name for column in selection.key]
        if set(key) != set(names):
            raise WrongArgument(
                f"the key of {declared.name} is {', '.join(names)}, not {', '.join(map(str, key)) or 'nothing'}"
            )
        self.store.require_migrated()

        def remove() -> dict[str, Any] | None:
            return _remove_row(self.store, self.bindings.selection(declared, rule), declared, key, connection, kind)

        found = self.bindings.rebinding(remove)
        if found is not None:
            self.listener(RowConsumed(str(declared.name), kind))
        return found


def _remove_row(
    store: Store,
    selection: Selection,
    declared: Table,
    key: Mapping[str, object],
    connection: object | None,
    kind: str,
) -> dict[str, Any] | None:
    with store.transaction(connection) as transaction:
        taker = row_taker(transaction)
        transaction.enter(gated(selection))
        alive = transaction.now() if kind == "consume" else None
        queries = Queries(taker.rows)
        removable = queries.removable(selection, key, alive, declared.live)
        going = bool(selection.followers) and taker.take_followers(selection, removable)
        statement = queries.remove(selection, key, alive, declared.live)
        found = transaction.execute(statement.text, statement.parameters)
        if going and not found:
            raise deletion_prevented(
                f"{declared.name}: the row was to leave with its followers, but the database kept it"
            )
        if found:
            taker.require_bound(selection)
    if not found:
        return None
    return dict(zip((column.name for column in selection.table.columns), found[0], strict=True))
