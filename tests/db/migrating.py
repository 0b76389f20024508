"""One of several processes that apply the migrations of a database."""

from __future__ import annotations

from together import begin
from wane._db import open_store
from wane._db.url import resolve_url


def main(url: str) -> list[str]:
    """Return the migrations that this one applied."""
    with open_store(resolve_url(url)) as store:
        begin()
        return list(store.migrate())
