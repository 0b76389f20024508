"""The front door: a Keeper has a contract and a store, and passes every question on to the room that answers it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from wane.check.cover import cover
from wane.contract.load import load_contract
from wane.contract.model import Contract
from wane.contract.names import TableName
from wane.errors import UnknownRule, UnknownTable, UrlError
from wane.findings import Finding, did_you_mean
from wane.plan.build import READ_SECONDS, Progress, build_plan
from wane.plan.model import Plan
from wane.store import Store, open_store
from wane.store.url import DatabaseUrl, resolve_url


class Keeper:
    """Keeps the promises of one contract on one database. Close it, or use it as a context manager."""

    def __init__(self, contract: Contract, store: Store) -> None:
        self.contract = contract
        self.store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    def check(self, *, strict: bool = False) -> list[Finding]:
        """Everything about the database that the contract gets wrong or leaves out."""
        return cover(self.store, self.contract, strict=strict)

    def plan(
        self,
        *only: str,
        now: datetime | None = None,
        seconds: float = READ_SECONDS,
        explain: bool = False,
        progress: Progress | None = None,
    ) -> Plan:
        """What is due, under every rule or under those named `table` or `table.rule`."""
        require_known(self.contract, only)
        return build_plan(
            self.store, self.contract, now=now, only=only, seconds=seconds, explain=explain, progress=progress
        )


def open_keeper(url: str | None = None, *, contract: Contract | Path | str, read_only: bool = False) -> Keeper:
    """Open a database with its contract. Without a URL the contract's own is used."""
    if not isinstance(contract, Contract):
        contract = load_contract(contract)
    return Keeper(contract, open_store(database_url(url, contract), contract.store, read_only=read_only))


def database_url(url: str | None, contract: Contract) -> DatabaseUrl:
    """The database: the URL given, or the contract's, whose relative paths start at the contract's folder."""
    if url is not None:
        return resolve_url(url)
    if contract.store.url is None:
        raise UrlError("no database is named", 'give a URL, or write `url = "…"` under [store] in the contract')
    return resolve_url(contract.store.url, base=None if contract.path is None else contract.path.parent)


def require_known(contract: Contract, names: Collection[str]) -> None:
    """Raise if a name is neither a `table` nor a `table.rule` of the contract."""
    rules = {f"{table.name}.{rule.name}": rule for table in contract.tables for rule in table.rules}
    tables = {str(table.name) for table in contract.tables}
    for name in names:
        if name in tables or name in rules:
            continue
        head, _, rule = name.rpartition(".")
        if head in tables:
            known = [one.name for one in contract.table(TableName.parse(head)).rules]
            raise UnknownRule(f"{head} has no rule {rule!r}", did_you_mean(rule, known) or f"rules: {', '.join(known)}")
        raise UnknownTable(f"the contract has no table {name!r}", did_you_mean(name, [*tables, *rules]))
