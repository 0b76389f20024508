"""Tokens of the console and the API in Wane's own tables. Only the hash of a secret is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane._db.statement import Dialect, Execute

_COLUMNS = "id, name, role, created_at, created_by, expires_at, revoked_at, secret_hash"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token: whose it is, what it may do, and until when. Its secret is shown once, when it is created."""

    id: str
    name: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


class AccessTokens:
    """Reads and writes tokens through a function that runs statements."""

    def __init__(self, dialect: Dialect, run: Execute) -> None:
        self.dialect = dialect
        self._run = run
        self._table = dialect.own_table("token")

    def add(self, token: AccessToken, secret_hash: str) -> None:
        """Store a new token."""
        encode = self.dialect.encode_time
        values: dict[str, object] = {
            "id": token.id,
            "name": token.name,
            "role": token.role,
            "secret_hash": secret_hash,
            "created_at": encode(token.created_at),
            "created_by": token.created_by,
            "expires_at": None if token.expires_at is None else encode(token.expires_at),
        }
        marks = ", ".join(map(self.dialect.placeholder, values))
        self._run(f"INSERT INTO {self._table} ({', '.join(values)}) VALUES ({marks})", values)

    def find(self, number: str) -> tuple[AccessToken, str] | None:
        """Return a token and the hash of its secret; None if there is none."""
        text = f"SELECT {_COLUMNS} FROM {self._table} WHERE id = {self.dialect.placeholder('id')}"
        found = self._run(text, {"id": number})
        return (self._token(found[0]), str(found[0][7])) if found else None

    def all(self, limit: int) -> list[AccessToken]:
        """Return tokens, the newest first."""
        text = f"SELECT {_COLUMNS} FROM {self._table} ORDER BY created_at DESC, id LIMIT {self.dialect.placeholder('limit')}"
        return [self._token(row) for row in self._run(text, {"limit": limit})]

    def revoke(self, number: str, now: datetime) -> bool:
        """Revoke a token; return whether there was one that was not yet revoked."""
        named = self.dialect.placeholder
        text = (
            f"UPDATE {self._table} SET revoked_at = {named('now')} WHERE id = {named('id')} AND revoked_at IS NULL"
            " RETURNING id"
        )
        return bool(self._run(text, {"now": self.dialect.encode_time(now), "id": number}))

    def _token(self, row: tuple[Any, ...]) -> AccessToken:
        number, name, role, created_at, by, expires_at, revoked_at, _ = row

        def time(stamp: Any) -> datetime | None:
            return None if stamp is None else self.dialect.decode_time(stamp)

        return AccessToken(
            number, name, role, self.dialect.decode_time(created_at), by, time(expires_at), time(revoked_at)
        )
