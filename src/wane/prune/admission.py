"""Who may sweep: where roles are on, members of the admin role alone. The database has the last word; this says it in time and in words."""

from __future__ import annotations

from wane.contract.model import Contract
from wane.errors import NotAllowed
from wane.store import Store


def require_admin(store: Store, contract: Contract) -> None:
    """Raise NotAllowed if roles are on and whoever is connected is no member of the admin role."""
    roles = contract.roles
    if not roles.enabled:
        return
    barred = store.barred(roles.admin)
    if not barred:
        return
    if store.kind == "postgres":
        hint = f"let an administrator run `wane roles --apply` and GRANT {roles.admin} TO whoever sweeps"
    else:
        hint = "protect the database's file instead, and remove `enabled` under [roles]"
    raise NotAllowed(f"sweeping needs the role {roles.admin}: {barred}", hint)
