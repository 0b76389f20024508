"""A proxy that has authenticated its users: it names them in a header, which is believed from its addresses alone.

A header is a claim that any client can make. So it counts only if the connection comes from a listed address, a request
of any other address that has it is refused, and a user has the roles that were granted, and no role otherwise.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from wane.errors import WrongArgument
from wane.web._access import AccessRole, Identity
from wane.web._problems import RequestRefused

Scope = Mapping[str, Any]
"""A request, as ASGI describes it."""
_TRUSTED = "wane.trusted_peer"
_MOST_NAME = 200
_EVERYONE, _GROUP = "*", "@"


class TrustedProxy:
    """The addresses of a proxy, and the header in which it names the user.

    `grants` maps users, groups as "@group", and "*" for everyone, to roles; the highest one counts. Without
    `user_header` it only reports clients' addresses and whether they use TLS.
    """

    def __init__(
        self,
        addresses: Collection[str],
        *,
        user_header: str | None = None,
        groups_header: str | None = None,
        grants: Mapping[str, AccessRole | str] | None = None,
    ) -> None:
        self._networks = [_network(one) for one in addresses]
        self._user, self._groups = user_header, groups_header
        self._grants = {name: _role(name, role) for name, role in (grants or {}).items()}
        # Other sites cannot know it; it need not outlive the process, because a page can be reloaded.
        self._secret = secrets.token_bytes(32)
        if not self._networks:
            raise WrongArgument("a trusted proxy needs an address", "name the address that it connects from")
        if user_header is not None and not self._grants:
            raise WrongArgument("no user of the proxy has a role", 'grant one, for example {"*": "viewer"}')
        if user_header is None and (groups_header or self._grants):
            raise WrongArgument(
                "roles are granted to users that the proxy names", "name the header that it names them in"
            )

    def seen(self, scope: Scope) -> dict[str, Any]:
        """Return a request as the proxy reports it: from the client's own address, by the client's own scheme."""
        peer = (scope.get("client") or ("",))[0]
        if not self._has(peer):
            return {**scope, _TRUSTED: False}
        # The last one is the proxy's own; those before it are what the client claims.
        address = _values(scope, "x-forwarded-for")[-1:] or [peer]
        [scheme] = _values(scope, "x-forwarded-proto")[-1:] or [scope["scheme"]]
        return {
            **scope,
            _TRUSTED: True,
            "client": (address[0].rpartition(",")[2].strip(), 0),
            "scheme": scheme if scheme in ("http", "https") else scope["scheme"],
        }

    def identify(self, scope: Scope) -> Identity | None:
        """Return the user that the proxy names; None if it names none. Refuse the headers of other peers."""
        names = [] if self._user is None else _values(scope, self._user)
        groups = [] if self._groups is None else _values(scope, self._groups)
        if not names and not groups:
            return None
        if not scope[_TRUSTED]:
            raise RequestRefused(
                403, "UntrustedPeer", "only the proxy may name the user of a request", "send a token instead"
            )
        name = _name(names)
        return None if not name else Identity(name, self._role(name, groups), self._form_key(name), in_browser=True)

    def _has(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def _role(self, name: str, groups: Collection[str]) -> AccessRole:
        known = {one.strip() for each in groups for one in each.split(",")}
        held = [name, _EVERYONE, *(f"{_GROUP}{one}" for one in known if one)]
        roles = [self._grants[one] for one in held if one in self._grants]
        if not roles:
            raise RequestRefused(403, "Forbidden", f"{name} has no role here", "`wane serve --grant` gives one")
        return max(roles, key=list(AccessRole).index)

    def _form_key(self, name: str) -> str:
        return hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()


def _values(scope: Scope, header: str) -> list[str]:
    wanted = header.lower().encode("latin-1")
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _name(values: Collection[str]) -> str:
    """Return the one name that a header has."""
    [first, *others] = values or [""]
    try:
        name = first.encode("latin-1").decode().strip()
    except UnicodeError:
        name = "\0"
    if others or len(name) > _MOST_NAME or not name.isprintable() or name.startswith(_GROUP) or name == _EVERYONE:
        raise RequestRefused(
            403, "WrongUser", "the proxy's header does not name one user", "check what the proxy sends"
        )
    return name


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise WrongArgument(f"{text!r} is no address", "write 10.0.0.2 or 10.0.0.0/24") from None


def _role(name: str, role: str) -> AccessRole:
    if role not in set(AccessRole):
        raise WrongArgument(f"{role!r}, granted to {name}, is no role", f"roles: {', '.join(AccessRole)}")
    return AccessRole(role)
