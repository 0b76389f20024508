"""Roles, as a plan of statements. Only PostgreSQL has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoleStatement:
    """One statement, and why it is needed."""

    text: str
    why: str
    done: bool
    """Whether it would change nothing."""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """What has to be run so that every role may do what it needs, and no more."""

    statements: tuple[RoleStatement, ...]
    notes: tuple[str, ...] = ()
    """What no statement can take care of."""

    @property
    def missing(self) -> tuple[RoleStatement, ...]:
        return tuple(one for one in self.statements if not one.done)

    def script(self) -> str:
        """Return what is missing, as an SQL script."""
        lines = [f"-- {note}" for note in self.notes]
        lines += ["BEGIN;", *(f"{one.text};  -- {one.why}" for one in self.missing), "COMMIT;"]
        return "\n".join(lines) + "\n"
