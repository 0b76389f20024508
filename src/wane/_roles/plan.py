"""The contract's roles in the database: planning statements, running them, and checking whether the connected role is a
member of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wane._contract.model import Contract
from wane._db.statement import Statement
from wane._db.store import Store
from wane._roles.model import RolePlan
from wane._roles.sql import MEMBERSHIP, RolePlanner
from wane.errors import StoreError

_READ_SECONDS = 10.0


def barred(store: Store, role: str) -> str:
    """Return why the connected role cannot act as a member of a role; "" if it can."""
    if not store.has_roles:
        return f"SQLite has no roles, so no user can be a member of {role}"
    found = store.read(Statement(MEMBERSHIP, {"role": role}), _READ_SECONDS)
    if not found:
        return f"the database has no role {role}"
    [(user, usable, member)] = found
    if usable:
        return ""
    return f"{user} is {'a member of' if member else 'not a member of'} {role}" + (
        ", but does not inherit its rights" if member else ""
    )


def plan_roles(store: Store, contract: Contract) -> RolePlan:
    """Plan what has to be run for the contract's roles."""
    _require_roles(store)
    store.require_migrated()
    schema = store.reflect()
    with store.transaction() as transaction:
        planner = RolePlanner(transaction.execute, contract, schema, store.types)
        return RolePlan(tuple(planner.plan()), tuple(planner.notes()))


def apply_roles(store: Store, contract: Contract) -> RolePlan:
    """Run what is missing for the contract's roles, in one transaction; return what was run."""
    _require_roles(store)
    store.require_migrated()
    schema = store.reflect()
    hint = "let a superuser, or who owns the tables, Wane's own too, and may create roles, run what `wane roles --print` prints"
    with _explained(hint), store.transaction() as transaction:
        planner = RolePlanner(transaction.execute, contract, schema, store.types)
        before = planner.plan()
        for statement in before:
            if not statement.done:
                transaction.execute(statement.text.replace("%", "%%"), {})
        # A GRANT that the grantor may not give is a warning, not an error.
        left = [one for one in planner.plan() if not one.done]
        if left:
            raise StoreError(f"{left[0].text} had no effect")
        return RolePlan(tuple(one for one in before if not one.done), tuple(planner.notes()))


@contextmanager
def _explained(hint: str) -> Iterator[None]:
    try:
        yield
    except StoreError as problem:
        raise type(problem)(f"roles cannot be set up: {problem.message}", hint) from problem


def _require_roles(store: Store) -> None:
    if not store.has_roles:
        raise StoreError(
            "SQLite has no roles: write access to the database's file is the right to delete from it, and read access is the right to read all of it",
            f"let one account own {store.url.path} and its folder (chown, chmod 640 and 750), run Wane and the application as that"
            " account, and give readers its group",
        )
