"""Who may sweep: where roles are on, members of the admin role alone.

The database enforces it; this check fails earlier, and with an explanation.
"""

from __future__ import annotations

from wane._contract.model import Contract
from wane._db import Store
from wane._roles.plan import barred
from wane.errors import NotAllowed


def require_admin(store: Store, contract: Contract) -> None:
    """Raise NotAllowed if roles are on and the connected role is no member of the admin role."""
    roles = contract.roles
    if not roles.enabled:
        return
    reason = barred(store, roles.admin)
    if not reason:
        return
    if store.has_roles:
        hint = f"let an administrator run `wane roles --apply` and GRANT {roles.admin} TO the role that sweeps"
    else:
        hint = "protect the database's file instead, and remove `enabled` under [roles]"
    raise NotAllowed(f"sweeping needs the role {roles.admin}: {reason}", hint)
