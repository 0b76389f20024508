"""Callers, and what they may do: tokens with roles, checked in the database with every request.

A browser sends its token in a cookie that scripts cannot read; programs send it as `Authorization: Bearer`. A form is
accepted only with a value that is derived from the token, so that no other site can submit it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from wane._arguments import require_text
from wane._db import Store
from wane._keeper import Keeper
from wane.errors import WrongArgument
from wane.web._sql_tokens import AccessToken, AccessTokens

COOKIE = "wane_token"
_SHAPE = re.compile(r"wane_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_SECONDS = 2.0
_MOST_LISTED = 1_000
_LONGEST = timedelta(days=3_650)


class AccessRole(StrEnum):
    """What a token may do; each role may do what those before it may."""

    VIEWER = "viewer"
    """Read everything that the console shows."""
    OPERATOR = "operator"
    """Hold rows and release holds, settle dead letters, use the queue, sweep what is due, turn sweeps off."""
    ADMIN = "admin"
    """Turn sweeps on, approve what the fuse stops, and restore archived rows."""

    def includes(self, other: AccessRole) -> bool:
        """Return whether this role may do what another may."""
        order = list(AccessRole)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller: the name for the audit trail, the role, and what forms must contain."""

    name: str
    role: AccessRole
    form_key: str = field(default="", repr=False)
    """What a form of this identity must contain; "" if it may submit none."""
    in_browser: bool = False
    """Whether a browser sends what identifies it, also with forms of other sites."""
    signs_out: bool = False
    """Whether it signed in here."""


ANONYMOUS = Identity("anonymous", AccessRole.VIEWER)
"""The caller where no authentication is configured: may read, and nothing else."""


def create_token(
    keeper: Keeper, name: str, role: str, *, expires_after: timedelta | None = None
) -> tuple[AccessToken, str]:
    """Create a token, and return it with its secret, which is stored nowhere."""
    require_text("name", name)
    if role not in set(AccessRole):
        raise WrongArgument(f"{role!r} is no role", f"roles: {', '.join(AccessRole)}")
    if expires_after is not None and not timedelta(0) < expires_after <= _LONGEST:
        raise WrongArgument(f"a token may not last {expires_after}", f"at most {_LONGEST.days} days")
    store = keeper.store
    store.require_migrated()
    number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    with store.transaction() as transaction:
        now = transaction.now()
        ends = None if expires_after is None else now + expires_after
        token = AccessToken(number, name, role, now, keeper.pruner.actor, ends, None)
        AccessTokens(transaction.dialect, transaction.execute).add(token, _hash(secret))
    return token, f"wane_{number}_{secret}"


def list_tokens(keeper: Keeper) -> list[AccessToken]:
    """Return tokens, the newest first, without their secrets."""
    keeper.store.require_migrated()
    return AccessTokens(keeper.store.dialect, keeper.store.reader(_SECONDS)).all(_MOST_LISTED)


def revoke_token(keeper: Keeper, number: str) -> None:
    """Revoke a token: from the next request on it is refused."""
    keeper.store.require_migrated()
    with keeper.store.transaction() as transaction:
        if not AccessTokens(transaction.dialect, transaction.execute).revoke(number, transaction.now()):
            raise WrongArgument(
                f"there is no token {number}, or it was revoked already", "`wane token list` shows them"
            )


def identify(store: Store, text: str, *, by_cookie: bool) -> Identity | None:
    """Return whose token this is; None if it is unknown, expired or revoked."""
    shaped = _SHAPE.fullmatch(text)
    if shaped is None or not store.migrated:
        return None
    found = AccessTokens(store.dialect, store.reader(_SECONDS)).find(shaped[1])
    given = _hash(shaped[2])
    # Compared also where there is no such token, so that the time of the answer reveals nothing.
    token, expected = found if found is not None else (None, _hash(""))
    if not hmac.compare_digest(given, expected) or token is None or not _valid(token, store.now()):
        return None
    return Identity(token.name, AccessRole(token.role), form_key(text), in_browser=by_cookie, signs_out=by_cookie)


def form_key(text: str) -> str:
    """Return what forms of a token's holder must contain."""
    return hmac.new(text.encode(), b"form", hashlib.sha256).hexdigest()


def _valid(token: AccessToken, now: datetime) -> bool:
    return token.revoked_at is None and (token.expires_at is None or now < token.expires_at)


def _hash(secret: str) -> str:
    # The secret has 256 random bits: a slow hash would add nothing.
    return hashlib.sha256(secret.encode()).hexdigest()
