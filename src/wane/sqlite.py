"""The prune primitives, pressure and health as SQL functions on a connection of the standard library's sqlite3.

import sqlite3
import wane.sqlite

connection = sqlite3.connect("state.db")
wane.sqlite.register(connection, contract="wane.toml")
connection.execute("SELECT wane_prune('channel_inbox', 'failed', 100)")

Each function is one call of the same primitive as in Python: one audit row, in the caller's transaction if there is
one. All return their summary as JSON. If one fails, SQLite reports only that a function raised;
`SELECT wane_last_error()` returns the reason.
"""

from __future__ import annotations

import functools
import json
import weakref
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec
from urllib.parse import quote

from wane._arguments import parse_iso, require_time
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract
from wane._db.sqlite.functions import (
    Connection,
    add_functions,
    add_pressure_view,
    add_view,
    database_file,
    require_reading,
)
from wane._keeper import Keeper, open_keeper
from wane._prune.primitive import Pruned
from wane.errors import WaneError, WrongArgumentType
from wane.events import Listener, ignore_event
from wane.webhooks._family import counted_tables, has_family
from wane.webhooks._model import AUDITS_VIEW, SETTLED
from wane.webhooks._retention import WebhookRetention
from wane.webhooks._sql_sqlite import audits_query

_P = ParamSpec("_P")


def register(
    connection: Connection,
    *,
    contract: Contract | Path | str,
    actor: str | None = None,
    listener: Listener = ignore_event,
) -> Registration:
    """Register the functions on a connection to a database file, until it is closed.

    They have to be registered again after a change of the contract.
    """
    url = f"sqlite:///{quote(str(database_file(connection)))}"
    keeper = open_keeper(url, contract=contract, actor=actor, listener=listener)
    try:
        keeper.store.require_migrated()
        registration = Registration(connection, keeper)
        registration.add()
    except BaseException:
        keeper.close()
        raise
    return registration


class Registration:
    """The functions of one connection. `last_error` is the error of the last call; None if it succeeded."""

    def __init__(self, connection: Connection, keeper: Keeper) -> None:
        self._connection = connection
        self._keeper = keeper
        self.last_error: str | None = None
        # The functions are released with the connection, and with them the keeper's own connection.
        weakref.finalize(self, keeper.close)

    def add(self) -> None:
        functions: dict[str, tuple[int, Callable[..., Any]]] = {
            "wane_prune": (3, self._answer(self._prune)),
            "wane_prune_orphans": (3, self._answer(self._prune_orphans)),
            "wane_pressure": (0, self._reading(self._pressure)),
            "wane_health": (0, self._reading(self._health)),
            "wane_contract_fingerprint": (0, lambda: fingerprint(self._keeper.contract)),
            "wane_last_error": (0, lambda: self.last_error),
        }
        if has_family(self._keeper.contract):
            webhooks = _WebhookFunctions(WebhookRetention(self._keeper), self._connection)
            functions |= {
                "knocker_prune_events": (4, self._answer(webhooks.prune_events)),
                "knocker_prune_orphan_deliveries": (3, self._answer(webhooks.prune_orphan_deliveries)),
                "knocker_run_retention_pass": (6, self._answer(webhooks.run_retention_pass)),
            }
            add_view(self._connection, AUDITS_VIEW, audits_query(counted_tables(self._keeper.contract)))
        add_functions(self._connection, functions)
        add_pressure_view(self._connection)

    def _answer(self, function: Callable[_P, dict[str, Any]]) -> Callable[_P, str]:
        """Wrap a function so that it returns JSON, and its errors can be read from `last_error`."""

        @functools.wraps(function)
        def call(*arguments: _P.args, **options: _P.kwargs) -> str:
            try:
                require_reading(self._connection)
                answer = function(*arguments, **options)
            except WaneError as problem:
                self.last_error = str(problem)
                raise
            except BaseException as problem:
                self.last_error = f"{type(problem).__name__}: {problem}"
                raise
            self.last_error = None
            return json.dumps(answer, ensure_ascii=False)

        return call

    def _reading(self, function: Callable[[], Any]) -> Callable[[], str]:
        """Wrap a read-only function so that it uses its own connection.

        It sees what is committed, and can be called in any statement.
        """

        def call() -> str:
            try:
                answer = json.dumps(function(), ensure_ascii=False, default=_iso)
            except BaseException as problem:
                self.last_error = str(problem)
                raise
            self.last_error = None
            return answer

        return call

    def _pressure(self) -> list[dict[str, Any]]:
        return [one.as_dict() for one in self._keeper.pressure()]

    def _health(self) -> dict[str, Any]:
        return self._keeper.health().as_dict()

    def _prune(self, table: object, rule: object, limit: Any) -> dict[str, Any]:
        return _summary(
            self._keeper.prune(
                _text(table, "table"), rule=_text(rule, "rule"), limit=limit, connection=self._connection
            )
        )

    def _prune_orphans(self, table: object, older_than: object, limit: Any) -> dict[str, Any]:
        return _summary(
            self._keeper.prune_orphans(
                _text(table, "table"), older_than=_time(older_than), limit=limit, connection=self._connection
            )
        )


class _WebhookFunctions:
    """The webhook functions. Statuses are a JSON array, NULL means the settled ones.

    Cutoffs are unix seconds; a queue that is NULL is the one that the contract names.
    """

    def __init__(self, retention: WebhookRetention, connection: Connection) -> None:
        self._retention = retention
        self._connection = connection

    def prune_events(self, statuses: object, older_than: Any, limit: Any, queue: Any) -> dict[str, Any]:
        return asdict(
            self._retention.prune_events(
                statuses=_statuses(statuses),
                older_than=older_than,
                limit=limit,
                queue=queue,
                connection=self._connection,
            )
        )

    def prune_orphan_deliveries(self, older_than: Any, limit: Any, queue: Any) -> dict[str, Any]:
        return asdict(
            self._retention.prune_orphan_deliveries(
                older_than=older_than, limit=limit, queue=queue, connection=self._connection
            )
        )

    def run_retention_pass(
        self,
        statuses: object,
        events_older_than: Any,
        events_limit: Any,
        orphans_older_than: Any,
        orphans_limit: Any,
        queue: Any,
    ) -> dict[str, Any]:
        done = self._retention.run_retention_pass_before(
            statuses=_statuses(statuses),
            events_older_than=events_older_than,
            events_limit=events_limit,
            orphans_older_than=orphans_older_than,
            orphans_limit=orphans_limit,
            queue=queue,
            connection=self._connection,
        )
        return {
            "event_result": None if done.events is None else asdict(done.events),
            "orphan_result": None if done.orphan_deliveries is None else asdict(done.orphan_deliveries),
        }


def _summary(pruned: Pruned) -> dict[str, Any]:
    cutoff = None if pruned.cutoff is None else pruned.cutoff.isoformat()
    return {**asdict(pruned), "rows": pruned.rows, "cutoff": cutoff}


def _iso(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise WrongArgumentType(f"{name} must be a text, not {value!r}")
    return value


def _time(value: object) -> datetime:
    """Read unix seconds, or an ISO 8601 text; raise WrongArgument if it is neither."""
    return parse_iso("older_than", value, zoned=True) if isinstance(value, str) else require_time("older_than", value)


def _statuses(value: object) -> Any:
    if value is None:
        return SETTLED
    try:
        return json.loads(_text(value, "statuses"))
    except ValueError as problem:
        if isinstance(problem, WaneError):
            raise
        hint = 'write \'["handled", "ignored"]\''
        raise WrongArgumentType(f"statuses must be a JSON array, not {value!r}", hint) from None
