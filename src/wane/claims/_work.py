"""Work claims: who works on what. A claim is granted to one worker, for a while, and its fence is never reused.

Every call is one transaction, on the store's own connection or inside the caller's. The conditions of a call are
checked in the statement that changes something, by the database's clock; earlier reads only decide what to try.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Self

from wane._arguments import require_limit
from wane._closable import Closable
from wane._contract.load import load_contract
from wane._db import Store, open_store
from wane._db.statement import Statement
from wane._db.transaction import Transaction
from wane._db.url import resolve_url
from wane._prune.plan import Step
from wane._prune.primitive import Pruner
from wane.claims._arguments import (
    MOST_LISTED,
    require_holding,
    require_id,
    require_reason,
    require_state,
    require_ttl,
)
from wane.claims._model import Claim, Denial, Finished, Holding, Vacuumed, Why, Work, WorkState
from wane.claims._reclaim import Reclaim
from wane.claims._schema import CLAIMS_TABLE, claim_schema
from wane.claims._sql import CLAIMS, ClaimRow, ClaimStatements, TombstoneRow, claim_statements
from wane.claims._vacuum import Vacuum, claims_pruner, claims_schema_name
from wane.errors import ClaimLost, Locked, NotInstalled, SchemaChanged, StoreError, WrongArgumentType
from wane.events import Listener, ignore_event
from wane.reference import contract_path

_ATTEMPTS = 10
"""Attempts at a task under contention: every retry means that another worker made progress."""
_READ_SECONDS = 10.0
_MOST_RETURNED = 10_000


class WorkClaims(Closable):
    """The work claims of one database, under a policy on reclaiming finished work. Obtained as `keeper.claims(…)`."""

    def __init__(
        self, pruner: Pruner, *, reclaim: Reclaim | None = None, reclaim_abandoned: Reclaim | None = None
    ) -> None:
        self.reclaim = _require_policy(reclaim) or Reclaim.never()
        self.reclaim_abandoned = _require_policy(reclaim_abandoned) or self.reclaim
        self.pruner = claims_pruner(pruner)
        self.store: Store = pruner.store
        self._schema = claim_schema(self.store, claims_schema_name(self.pruner.contract))
        self._statements: ClaimStatements | None = None

    @classmethod
    def open(
        cls,
        url: str,
        *,
        reclaim: Reclaim | None = None,
        reclaim_abandoned: Reclaim | None = None,
        actor: str | None = None,
        listener: Listener = ignore_event,
    ) -> Self:
        """Open the work claims of a database, by the reference contract.

        Close them, or use them as a context manager.
        """
        contract = load_contract(contract_path("claims"))
        store = open_store(resolve_url(url), contract.store, audit=contract.covers_audit)
        try:
            pruner = Pruner(store, contract, actor=actor, listener=listener)
            return cls(pruner, reclaim=reclaim, reclaim_abandoned=reclaim_abandoned)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Close the connection; it is the keeper's, if these are a keeper's claims."""
        self.store.close()

    # The tables

    def install(self) -> list[str]:
        """Create what is missing of the tables, all or nothing; return what was created.

        It is safe to repeat, and safe for several processes.
        """
        return self._schema.install()

    def missing(self) -> list[str]:
        """Return what `install` would create."""
        return [one.what for one in self._schema.missing()]

    def missing_sql(self) -> list[tuple[str, str]]:
        """Return what `install` would create, each with its SQL for a user to run."""
        return self._schema.printed()

    # Working

    def submit(self, task_id: str, *, connection: object | None = None) -> Work | Denial:
        """Make work available.

        Work that is already available or claimed stays as it is; finished work follows the policy.
        """
        task = require_id("task_id", task_id)
        with self._transaction(connection) as (transaction, rows):
            for _ in range(_ATTEMPTS):
                found = self._open(transaction, rows, task)
                if found is not None:
                    return found
        raise _too_busy(task)

    def claim(
        self, task_id: str, owner: str, ttl: timedelta | float, *, connection: object | None = None
    ) -> Claim | Denial:
        """Claim work for a while (a timedelta, or seconds), if it is available, unknown, or its claim has expired.

        Of several callers, one is granted the claim; the others get a Denial with the holder. Finished work follows the
        policy.
        """
        task, holder, lasting = require_id("task_id", task_id), require_id("owner", owner), require_ttl(ttl)
        with self._transaction(connection) as (transaction, rows):
            for _ in range(_ATTEMPTS):
                taken = self._one(transaction, rows, rows.take(task, holder, self._now(transaction), lasting))
                if taken is not None:
                    for statement in rows.fence_given(taken.fence):
                        transaction.execute(statement.text, statement.parameters)
                    return _claim(taken)
                found = self._open(transaction, rows, task)
                if isinstance(found, Denial):
                    return found
                if found is not None and found.state is WorkState.CLAIMED and not found.expired:
                    return _denial_of(found)
        raise _too_busy(task)

    def extend(self, claim: Holding, ttl: timedelta | float, *, connection: object | None = None) -> Claim:
        """Extend a claim to at least `ttl` from now. Raise ClaimLost if it is no longer held."""
        held, lasting = require_holding(claim), require_ttl(ttl)
        with self._transaction(connection) as (transaction, rows):
            now = self._now(transaction)
            row = self._one(transaction, rows, rows.extend(held.task_id, held.owner, held.fence, now=now, ttl=lasting))
            if row is None:
                raise self._lost(transaction, rows, held)
            return _claim(row)

    def complete(self, claim: Holding, *, connection: object | None = None) -> Work:
        """Complete the work.

        Raise ClaimLost if the claim is no longer held; repeating the call has no further effect.
        """
        return self._finish(claim, WorkState.COMPLETED, None, connection)

    def abandon(self, claim: Holding, *, reason: str | None = None, connection: object | None = None) -> Work:
        """Abandon the work.

        Raise ClaimLost if the claim is no longer held; repeating the call has no further effect.
        """
        return self._finish(claim, WorkState.ABANDONED, require_reason(reason), connection)

    def return_expired(self, *, limit: int = 100, connection: object | None = None) -> list[Work]:
        """Make expired claims available, the earliest first; return them as they were. Their holders have lost them."""
        many = require_limit(limit, _MOST_RETURNED)
        with self._transaction(connection) as (transaction, rows):
            first, *others = rows.return_expired(self._now(transaction), many)
            found = transaction.execute(first.text, first.parameters)
            for statement in others:
                transaction.execute(statement.text, statement.parameters)
            returned = [_work(rows.row(values)) for values in found]
        return sorted(returned, key=lambda work: (work.expires_at is None, work.expires_at, work.task_id))

    # Reading

    def get(self, task_id: str, *, connection: object | None = None) -> Work | None:
        """Read a piece of work; None if it has no row."""
        task = require_id("task_id", task_id)
        with self._reading(connection) as (now, rows, read):
            found = read(rows.find(task, now))
            return _work(rows.row(found[0])) if found else None

    def remembered(self, task_id: str, *, connection: object | None = None) -> Finished | None:
        """Read the record of finished work, also after its row was pruned; None if it is not remembered."""
        task = require_id("task_id", task_id)
        with self._reading(connection) as (now, rows, read):
            memory, row = read(rows.remembered(task, now)), read(rows.find(task, now))
            return _memory(rows.tombstone(memory[0]), pruned=not row) if memory else None

    def list_by_state(self, state: str, *, limit: int = 100, connection: object | None = None) -> list[Work]:
        """List work in a state, oldest first: by submission, by the end of its claim, by completion, by abandonment."""
        wanted, many = require_state(state), require_limit(limit, MOST_LISTED)
        with self._reading(connection) as (now, rows, read):
            return [_work(rows.row(values)) for values in read(rows.in_state(wanted.value, now, many))]

    def list_expired(self, *, limit: int = 100, connection: object | None = None) -> list[Work]:
        """List expired claims that no one has taken over, the earliest first."""
        many = require_limit(limit, MOST_LISTED)
        with self._reading(connection) as (now, rows, read):
            return [_work(rows.row(values)) for values in read(rows.expired(now, many))]

    # Forgetting

    def vacuum(
        self,
        *,
        completed_age_hours: float | None = None,
        abandoned_age_hours: float | None = None,
        limit: int = 10_000,
        connection: object | None = None,
    ) -> Vacuumed:
        """Prune work completed, or abandoned, longer ago than the given age: at most `limit` rows, in audited batches.

        A state without a threshold is not touched; without any threshold, WrongArgument is raised and nothing happens.
        Available and claimed work always stays, including expired claims. Pruned work is still remembered as the policy
        requires.
        """
        work = Vacuum(self.pruner, completed_age_hours, abandoned_age_hours)
        self._ready()
        return work.take(limit, connection)

    vacuum_expired = vacuum

    def preview_vacuum(
        self, *, completed_age_hours: float | None = None, abandoned_age_hours: float | None = None
    ) -> dict[WorkState, Step]:
        """Preview `vacuum`: return what would leave now, by state, with the statement and its plan. Changes nothing."""
        work = Vacuum(self.pruner, completed_age_hours, abandoned_age_hours)
        self._ready()
        return work.preview()

    # Internals

    def _open(self, transaction: Transaction, rows: ClaimStatements, task: str) -> Work | Denial | None:
        """Return unfinished work, or why it stays finished; None if something was changed, and the caller must
        retry."""
        now = self._now(transaction)
        row = self._one(transaction, rows, rows.find(task, now))
        if row is not None and WorkState(row.state).finished:
            work = _work(row)
            denial = self._finished(_finished(work), now)
            if denial is None:
                statement = rows.reopen(task, row.state, row.fence, now)
                transaction.execute(statement.text, statement.parameters)
            return denial
        memory = self._remembered(transaction, rows, task, now)
        if memory is not None:
            denial = self._finished(_memory(memory, pruned=True), now)
            if denial is not None:
                return denial
            statement = rows.forget(task, memory.fence)
            transaction.execute(statement.text, statement.parameters)
        if row is not None:
            return None if memory is not None else _work(row)
        statement = rows.submit(task, now)
        transaction.execute(statement.text, statement.parameters)
        return None

    def _finished(self, finished: Finished, now: datetime) -> Denial | None:
        policy = self._policy(finished.outcome)
        return None if policy.allows(finished, now) else _denied(finished, policy.until(finished))

    def _policy(self, outcome: WorkState) -> Reclaim:
        return self.reclaim_abandoned if outcome is WorkState.ABANDONED else self.reclaim

    def _finish(self, claim: Holding, state: WorkState, reason: str | None, connection: object | None) -> Work:
        held = require_holding(claim)
        with self._transaction(connection) as (transaction, rows):
            now = self._now(transaction)
            until = self._policy(state).remembered_until(now)
            statement = rows.finish(
                held.task_id,
                held.owner,
                held.fence,
                state=state.value,
                now=now,
                remembered_until=until,
                reason=reason,
            )
            row = self._one(transaction, rows, statement)
            if row is not None and (until is None or until > now):
                self._require_memory(transaction, rows, held)
            if row is None:
                row = self._one(transaction, rows, rows.find(held.task_id, now))
                recorded = None if row is None else (row.state, row.owner, row.fence)
                # A caller that lost the connection during the commit repeats the call.
                if row is None or recorded != (state.value, held.owner, held.fence):
                    raise self._lost(transaction, rows, held)
            return _work(row)

    def _require_memory(self, transaction: Transaction, rows: ClaimStatements, held: Holding) -> None:
        """Raise unless finishing wrote a tombstone: without its triggers, the work would be forgotten with its row."""
        statement = rows.written(held.task_id, held.fence)
        if not transaction.execute(statement.text, statement.parameters):
            raise StoreError(
                f"{held.task_id} would not be remembered: the triggers of {CLAIMS} did not fire",
                "switch them on again: ALTER TABLE … ENABLE TRIGGER, session_replication_role = origin",
            )

    def _lost(self, transaction: Transaction, rows: ClaimStatements, held: Holding) -> ClaimLost:
        now = self._now(transaction)
        row = self._one(transaction, rows, rows.find(held.task_id, now))
        if row is not None:
            denial = _denial_of(_work(row))
        else:
            memory = self._remembered(transaction, rows, held.task_id, now)
            if memory is None:
                denial = Denial(held.task_id, Why.UNKNOWN, None, None, 0, None, None)
            else:
                denial = _denied(_memory(memory, pruned=True), memory.remembered_until)
        return ClaimLost(f"{held.owner} does not hold {held.task_id} by the fence {held.fence}: {denial}", denial)

    def _remembered(
        self, transaction: Transaction, rows: ClaimStatements, task: str, now: datetime
    ) -> TombstoneRow | None:
        statement = rows.remembered(task, now)
        found = transaction.execute(statement.text, statement.parameters)
        return rows.tombstone(found[0]) if found else None

    def _one(self, transaction: Transaction, rows: ClaimStatements, statement: Statement) -> ClaimRow | None:
        found = transaction.execute(statement.text, statement.parameters)
        return rows.row(found[0]) if found else None

    def _now(self, transaction: Transaction) -> datetime:
        """Read the database's clock; on SQLite with Wane's own tables, one that never runs backwards."""
        steady = transaction.clock() if self.store.migrated else None
        return steady or transaction.now()

    @contextmanager
    def _transaction(self, connection: object | None) -> Iterator[tuple[Transaction, ClaimStatements]]:
        rows = self._ready()
        with self._explained(), self.store.transaction(connection) as transaction:
            rows.wait_patiently(transaction)
            yield transaction, rows

    @contextmanager
    def _reading(self, connection: object | None) -> Iterator[tuple[datetime, ClaimStatements, Any]]:
        """Open a read that waits for no writer and needs no write access, except inside the caller's transaction."""
        rows = self._ready()
        with self._explained():
            if connection is None:
                yield self.store.now(), rows, lambda statement: self.store.read(statement, _READ_SECONDS)
                return
            with self.store.transaction(connection) as transaction:
                yield (
                    self._now(transaction),
                    rows,
                    lambda statement: transaction.execute(statement.text, statement.parameters),
                )

    def _ready(self) -> ClaimStatements:
        if self._statements is None:
            self._require_installed()
            self._statements = claim_statements(self.store, self._schema.schema_name())
        return self._statements

    def _require_installed(self) -> None:
        lacking = [one.what for one in self._schema.missing() if one.needed]
        if not lacking:
            return
        shown, hint = self.store.shown, "run `wane claims install`"
        if str(CLAIMS_TABLE) in lacking:
            raise NotInstalled(f"{shown} does not have the tables of work claims", hint)
        raise NotInstalled(f"{shown} has the tables of work claims, but not {', '.join(lacking)}", hint)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Explain an error whose cause is that a part of the tables was removed."""
        try:
            yield
        except StoreError as problem:
            if type(problem) in (StoreError, SchemaChanged) and self._statements is not None:
                self._statements = None
                self._ready()
            raise


def _require_policy(policy: object) -> Reclaim | None:
    if policy is not None and not isinstance(policy, Reclaim):
        raise WrongArgumentType(
            f"a policy is needed, not {policy!r}", "Reclaim.never(), .always(), .after(timedelta) or .by(function)"
        )
    return policy


def _too_busy(task: str) -> Locked:
    return Locked(f"others changed {task} at every attempt", "try again")


def _work(row: ClaimRow) -> Work:
    return Work(
        task_id=row.task_id,
        state=WorkState(row.state),
        owner=row.owner,
        fence=row.fence,
        created_at=row.created_at,
        claimed_at=row.claimed_at,
        expires_at=row.expires_at,
        completed_at=row.completed_at,
        abandoned_at=row.abandoned_at,
        reason=row.reason,
        remembered_until=row.remembered_until,
        expired=row.expired,
    )


def _claim(row: ClaimRow) -> Claim:
    assert row.owner is not None
    assert row.claimed_at is not None
    assert row.expires_at is not None
    return Claim(row.task_id, row.owner, row.fence, row.claimed_at, row.expires_at)


def _finished(work: Work) -> Finished:
    return Finished(
        work.task_id, work.state, work.owner, work.fence, work.finished_at, work.remembered_until, pruned=False
    )


def _memory(row: TombstoneRow, *, pruned: bool) -> Finished:
    return Finished(
        row.task_id, WorkState(row.outcome), row.owner, row.fence, row.finished_at, row.remembered_until, pruned
    )


def _denied(finished: Finished, until: datetime | None) -> Denial:
    return Denial(
        finished.task_id,
        Why.FINISHED,
        finished.outcome,
        finished.owner,
        finished.fence,
        finished.finished_at,
        until,
        finished.pruned,
    )


def _denial_of(work: Work) -> Denial:
    """Return why a caller other than the holder is denied, or why the former holder lost the claim."""
    if work.state.finished:
        return _denied(_finished(work), work.remembered_until)
    if work.state is WorkState.AVAILABLE:
        return Denial(work.task_id, Why.RETURNED, work.state, None, work.fence, None, None)
    why = Why.EXPIRED if work.expired else Why.LIVE
    return Denial(work.task_id, why, work.state, work.owner, work.fence, work.claimed_at, work.expires_at)


WorkClaimManager = WorkClaims
"""The name that scripts of an earlier system use."""
