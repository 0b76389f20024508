"""Approving what the fuse stopped: one plan per rule, reviewed together, and stored in the database.

An approval names a plan: the rows that were due under a rule at one time, counted. Unattended sweeps may take those
rows and no more, whatever their share: the time is frozen, so neither a clock that is wrong later nor a column that is
filled later makes other rows leave. It ends with the rule's first sweep that completes, when it expires, when it is
revoked, or when the contract changes. The audit trail records every approval and every revocation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from wane._contract.fingerprint import fingerprint
from wane._contract.lookup import is_named, require_known
from wane._contract.model import Contract, Mark, Rule, Table
from wane._db import Store
from wane._db.counting import READ_SECONDS, REVIEW_SECONDS, Count, count_rows
from wane._db.transaction import Transaction
from wane._findings import Finding, pasted
from wane._ledger import Ledger
from wane._prune import fuse
from wane._prune.admission import require_admin
from wane._prune.binding import Bindings
from wane._prune.build_plan import plan_step
from wane._prune.fuse import PROBE_SECONDS, Fuse
from wane._prune.plan import Step
from wane._prune.sql_fuse import Approval, FuseStates
from wane._rules.reads import count_due
from wane._rules.selection import Selection
from wane.errors import BindError, PlanError, TimedOut, WaneError, WrongArgument

RECOUNT_SECONDS = 30.0
"""The time limit of counting what is due by an approved plan, before a sweep takes it."""
LONGEST = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class FusedRule:
    """A rule that the fuse stops, and the plan that can be approved."""

    step: Step
    """What is due, counted."""
    reason: str
    plan: str | None
    """The plan's fingerprint; None: its rows were not counted in time, and it cannot be approved."""
    approval: Approval | None
    """The approval in force, if there is one."""

    @property
    def name(self) -> str:
        return f"{self.step.table}.{self.step.rule}"


@dataclass(frozen=True, slots=True)
class FuseReview:
    """The rules that the fuse stops now, with their plans."""

    made_at: datetime
    contract: str
    """The contract's fingerprint."""
    database: str
    """The database's identity."""
    rules: tuple[FusedRule, ...]
    problems: tuple[Finding, ...] = ()
    """Rules that do not fit the database and so were not reviewed."""


class Approver:
    """Reviews, approves and revokes for one contract on one store."""

    def __init__(self, store: Store, contract: Contract, *, actor: str) -> None:
        self.store = store
        self.contract = contract
        self.actor = actor

    def review(self, only: Collection[str] = (), *, seconds: float = REVIEW_SECONDS) -> FuseReview:
        """Find the rules that the fuse stops now, of all or of those named `table` or `table.rule`. Changes nothing."""
        self.store.require_migrated()
        require_known(self.contract, only)
        now, bindings = self.store.now(), Bindings(self.store, self.contract)
        rules: list[FusedRule] = []
        problems: list[Finding] = []
        for table, rule in self._rules(only):
            try:
                selection = bindings.selection(table, rule)
            except BindError as problem:
                problems += problem.findings
                continue
            found = fuse.probe(self.store, self.contract.sweep, selection, now, seconds)
            if found.blown:
                rules.append(self._fused(selection, found, now, seconds))
        return FuseReview(now, fingerprint(self.contract), self.store.identity(), tuple(rules), tuple(problems))

    def _rules(self, only: Collection[str]) -> list[tuple[Table, Rule]]:
        """Return the rules that the fuse may stop: those that unattended sweeps take rows by."""
        return [
            (table, rule)
            for table, rule in self.contract.rules()
            if not table.append_only
            and not isinstance(rule.action, Mark)
            and (not only or is_named(only, table.name, rule.name))
        ]

    def _fused(self, selection: Selection, found: Fuse, now: datetime, seconds: float) -> FusedRule:
        step = self._step(selection, found, now, seconds)
        state = FuseStates(self.store.dialect, self.store.reader(PROBE_SECONDS)).of(step.table, step.rule)
        approval = None if state is None else state.approved(fingerprint(self.contract), now)
        if found.due is None or found.rows is None:
            return FusedRule(step, found.blown, None, approval)
        counted = replace(step, share=found.due / max(found.rows, 1))
        return FusedRule(counted, found.blown, self._fingerprint(step, found.due, now), approval)

    def _step(self, selection: Selection, found: Fuse, now: datetime, seconds: float) -> Step:
        """Plan a rule by what the fuse counted; what it could not count in time is estimated."""
        known = None if found.due is None else Count(found.due)
        seconds = READ_SECONDS if known is None else seconds
        rows = count_rows(self.store, selection.table, seconds) if found.rows is None else Count(found.rows)
        return plan_step(self.store, selection, now, seconds, rows, swept=True, explain=False, known=known)

    def _fingerprint(self, step: Step, rows: int, now: datetime) -> str:
        promised = [fingerprint(self.contract), self.store.identity(), step.table, step.rule, now.isoformat(), rows]
        return hashlib.sha256(json.dumps(promised).encode()).hexdigest()[:16]

    def approve(self, review: FuseReview, *, expires_after: timedelta) -> list[Approval]:
        """Approve every plan of a review, together; rules whose rows were not counted are left out."""
        if not timedelta(0) < expires_after <= LONGEST:
            raise WrongArgument(f"an approval may not last {expires_after}", f"at most {LONGEST.days} days, usually 7")
        require_admin(self.store, self.contract)
        if (review.contract, review.database) != (fingerprint(self.contract), self.store.identity()):
            raise PlanError("the review is of another contract or another database", "review again")
        with self.store.transaction() as transaction:
            now = transaction.now()
            given = [
                Approval(
                    one.step.table,
                    one.step.rule,
                    one.plan,
                    review.contract,
                    review.made_at,
                    one.step.due.rows,
                    now,
                    self.actor,
                    now + expires_after,
                )
                for one in review.rules
                if one.plan is not None and one.step.due is not None
            ]
            for approval in given:
                FuseStates(transaction.dialect, transaction.execute).approve(approval)
                self._record(transaction, "approve", approval, now)
        return given

    def approvals(self, only: Collection[str] = ()) -> list[Approval]:
        """List the approvals in force, of all rules or of those named `table` or `table.rule`."""
        self.store.require_migrated()
        require_known(self.contract, only)
        now, promised = self.store.now(), fingerprint(self.contract)
        states = FuseStates(self.store.dialect, self.store.reader(PROBE_SECONDS)).all()
        given = [one for state in states if (one := state.approved(promised, now)) is not None]
        return [one for one in given if not only or is_named(only, one.table, one.rule)]

    def revoke(self, only: Collection[str] = ()) -> list[Approval]:
        """Revoke the approvals in force, all or those of rules named `table` or `table.rule`; return them."""
        require_admin(self.store, self.contract)
        chosen = self.approvals(only)
        with self.store.transaction() as transaction:
            for approval in chosen:
                FuseStates(transaction.dialect, transaction.execute).revoke(approval.table, approval.rule)
                self._record(transaction, "revoke", approval, transaction.now())
        return chosen

    def _record(self, transaction: Transaction, kind: str, approval: Approval, now: datetime) -> None:
        inputs = {
            # Not in the column of rules: whatever has a rule there is a sweep or a prune of it.
            "rule": approval.rule,
            "plan": approval.plan,
            "contract": approval.contract,
            "rows": approval.rows,
            "planned_at": approval.planned_at.isoformat(),
            "expires_at": approval.expires_at.isoformat(),
        }
        Ledger.of(transaction).note(kind, approval.table, self.actor, inputs, now, counts={}, batches=0)


def check_fuse(store: Store, contract: Contract, selection: Selection, now: datetime) -> tuple[Fuse, Approval | None]:
    """Check whether a rule may be swept unattended; where the fuse stops it, an approval lets it take the approved
    plan.

    A rule that stays stopped is recorded, so that health reports it.
    """
    found = fuse.probe(store, contract.sweep, selection, now)
    if not found.blown:
        return found, None
    state = FuseStates(store.dialect, store.reader(PROBE_SECONDS)).of(str(selection.name), selection.rule.name)
    given = None if state is None else state.approved(fingerprint(contract), store.now())
    exceeded = "" if given is None else _exceeded(store, selection, given)
    if given is None or exceeded:
        why = f"{found.blown}{exceeded}"
        _record_blown(store, selection, why)
        return Fuse(f"{why}: review and approve it with {pasted('approve', selection.label)}"), None
    return Fuse(), given


def _exceeded(store: Store, selection: Selection, given: Approval) -> str:
    """Return why the approved plan is not what would leave; "" if no more is due by it than was approved."""
    try:
        due = count_due(store, selection, given.planned_at, RECOUNT_SECONDS, most=given.rows + 1)
    except TimedOut:
        return f"; counting what is due by the approved plan {given.plan} did not finish in {RECOUNT_SECONDS:g} seconds"
    if due > given.rows:
        return f"; the approved plan {given.plan} has {given.rows:,} rows, and more are due by it now"
    return ""


def _record_blown(store: Store, selection: Selection, why: str) -> None:
    with suppress(WaneError), store.transaction() as transaction:  # The next sweep records it if this one cannot.
        states = FuseStates(transaction.dialect, transaction.execute)
        states.blow(str(selection.name), selection.rule.name, why, transaction.now())


def record_swept(store: Store, table: str, rule: str, *, completed: bool) -> None:
    """Record that a rule was swept: it is no longer stopped, and a completed sweep ends its approval.

    The next sweep does it if this fails: until then the approval is for rows that are gone.
    """
    with suppress(WaneError):
        if FuseStates(store.dialect, store.reader(PROBE_SECONDS)).of(table, rule) is None:
            return
        with store.transaction() as transaction:
            states = FuseStates(transaction.dialect, transaction.execute)
            (states.forget if completed else states.close)(table, rule)
