"""The fuse in Wane's own tables: the rules that it stopped, and the plan that was approved for each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from wane._db.statement import Dialect, Execute
from wane._frozen import frozen

_APPROVAL = ("plan", "contract", "planned_at", "plan_rows", "approved_at", "approved_by", "expires_at")
_COLUMNS = ("table_name", "rule", "blown_at", "reason", *_APPROVAL)


@frozen
class Approval:
    """A plan of one rule that a user approved: unattended sweeps may take what it lists, whatever its share."""

    table: str
    rule: str
    plan: str
    """The plan's fingerprint."""
    contract: str
    """The fingerprint of its contract; under another contract the approval is void."""
    planned_at: datetime
    """The time that decides which rows are due by the plan."""
    rows: int
    """The rows that are due by it."""
    approved_at: datetime
    approved_by: str
    expires_at: datetime


@frozen
class FuseState:
    """What is recorded about the fuse of one rule."""

    table: str
    rule: str
    blown_at: datetime | None
    """Since when unattended sweeps of the rule take nothing; None: they may."""
    reason: str | None
    approval: Approval | None

    def approved(self, contract: str, now: datetime) -> Approval | None:
        """Return the approval, if it is one for this contract and has not expired."""
        given = self.approval
        return given if given is not None and given.contract == contract and now < given.expires_at else None


class FuseStates:
    """Reads and writes them through a function that runs statements."""

    def __init__(self, dialect: Dialect, run: Execute) -> None:
        self.dialect = dialect
        self._run = run
        self._table = dialect.own_table("fuse")

    def all(self) -> list[FuseState]:
        """Return what is recorded, by the names of rules."""
        found = self._run(f"SELECT {', '.join(_COLUMNS)} FROM {self._table} ORDER BY table_name, rule", {})
        return [self._state(row) for row in found]

    def of(self, table: str, rule: str) -> FuseState | None:
        """Return what is recorded about one rule; None if nothing is."""
        found = self._run(f"SELECT {', '.join(_COLUMNS)} FROM {self._table} WHERE {self._this}", _key(table, rule))
        return self._state(found[0]) if found else None

    def blow(self, table: str, rule: str, reason: str, now: datetime) -> None:
        """Record that the fuse stopped a rule; an earlier time stays, an approval too."""
        self._upsert(
            {**_key(table, rule), "blown_at": self.dialect.encode_time(now), "reason": reason},
            "blown_at = coalesce(was.blown_at, excluded.blown_at), reason = excluded.reason",
        )

    def approve(self, approval: Approval) -> None:
        """Record an approval in place of an earlier one; until the fuse stops the rule again, it may be swept."""
        encode = self.dialect.encode_time
        values: dict[str, object] = {
            **_key(approval.table, approval.rule),
            "plan": approval.plan,
            "contract": approval.contract,
            "planned_at": encode(approval.planned_at),
            "plan_rows": approval.rows,
            "approved_at": encode(approval.approved_at),
            "approved_by": approval.approved_by,
            "expires_at": encode(approval.expires_at),
        }
        self._upsert(values, ", ".join(f"{name} = excluded.{name}" for name in ("blown_at", "reason", *_APPROVAL)))

    def revoke(self, table: str, rule: str) -> None:
        """Remove the approval of a rule."""
        nothing = ", ".join(f"{name} = NULL" for name in _APPROVAL)
        self._run(f"UPDATE {self._table} SET {nothing} WHERE {self._this}", _key(table, rule))

    def close(self, table: str, rule: str) -> None:
        """Record that a rule is swept; an approval stays, since more than one sweep may need it."""
        self._run(f"UPDATE {self._table} SET blown_at = NULL, reason = NULL WHERE {self._this}", _key(table, rule))

    def forget(self, table: str, rule: str) -> None:
        """Remove what is recorded about a rule, its approval included: a sweep of it has completed."""
        self._run(f"DELETE FROM {self._table} WHERE {self._this}", _key(table, rule))

    @property
    def _this(self) -> str:
        placeholder = self.dialect.placeholder
        return f"table_name = {placeholder('table_name')} AND rule = {placeholder('rule')}"

    def _upsert(self, values: dict[str, object], change: str) -> None:
        placeholders = ", ".join(self.dialect.placeholder(name) for name in values)
        self._run(
            f"INSERT INTO {self._table} AS was ({', '.join(values)}) VALUES ({placeholders})"
            f" ON CONFLICT (table_name, rule) DO UPDATE SET {change}",
            values,
        )

    def _state(self, row: tuple[Any, ...]) -> FuseState:
        table, rule, blown_at, reason, plan, contract, planned_at, rows, approved_at, by, expires_at = row
        decode = self.dialect.decode_time
        approval = None
        if plan is not None:
            approval = Approval(
                table, rule, plan, contract, decode(planned_at), rows, decode(approved_at), by, decode(expires_at)
            )
        return FuseState(table, rule, None if blown_at is None else decode(blown_at), reason, approval)


def _key(table: str, rule: str) -> dict[str, object]:
    return {"table_name": table, "rule": rule}
