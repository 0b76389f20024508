"""The webhook tables of a contract, and the queue whose live jobs leave with their events."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wane._contract.conditions import equal_to
from wane._contract.lookup import find_unqualified
from wane._contract.model import Contract, Follower, Rule, Table
from wane.errors import UnknownTable, WrongArgument

EVENTS = "knocker_events"
ATTEMPTS = "knocker_attempts"
DELIVERIES = "knocker_deliveries"
LIVE_JOBS = "_honker_live"
"""The queue's own table."""
QUEUE = "queue"
"""Its column that names the queue of a job."""
_COUNTED = {
    "events_pruned": EVENTS,
    "attempts_pruned": ATTEMPTS,
    "deliveries_pruned": DELIVERIES,
    "live_jobs_pruned": LIVE_JOBS,
}


@dataclass(frozen=True, slots=True)
class Family:
    """The names of the tables as the contract writes them, with their schema if it gives one."""

    events: str
    deliveries: str
    queue_name: str | None
    """The queue whose live jobs leave with events, unless a call names another. None: no live jobs leave."""

    def counts(self, counts: dict[str, int]) -> dict[str, int]:
        """Return the counts keyed by the tables' names without schema."""
        return {name.rpartition(".")[2]: rows for name, rows in counts.items()}


def find_family(contract: Contract) -> Family:
    """Find the webhook tables of a contract."""
    return Family(str(_table(contract, EVENTS).name), str(_table(contract, DELIVERIES).name), _queue_name(contract))


def counted_tables(contract: Contract) -> dict[str, str]:
    """Map each count of a summary (`events_pruned` …) to the table as the audit trail names it."""
    names = {one.reference.table.name: str(one.reference.table) for _, _, one in contract.followers()}
    names |= {name: str(_table(contract, name).name) for name in (EVENTS, DELIVERIES)}
    return {count: names.get(name, name) for count, name in _COUNTED.items()}


def with_queue(rule: Rule, queue: str) -> Rule:
    """Return the rule with the live jobs of another queue leaving with its events."""

    def named(follower: Follower) -> Follower:
        where = follower.where
        if follower.reference.table.name == LIVE_JOBS:
            where = tuple((column, equal_to(queue) if column == QUEUE else one) for column, one in where)
        return replace(follower, where=where, followers=tuple(map(named, follower.followers)))

    return replace(rule, followers=tuple(map(named, rule.followers)))


def has_family(contract: Contract) -> bool:
    return {EVENTS, DELIVERIES} <= {table.name.name for table in contract.tables}


def _table(contract: Contract, name: str) -> Table:
    found = find_unqualified((table.name for table in contract.tables), name)
    if found is None:
        raise UnknownTable(f"the contract has no table {name}", 'include = ["reference:webhooks"] adds it')
    return contract.table(found)


def _queue_name(contract: Contract) -> str | None:
    followers = [one for rule in _table(contract, EVENTS).rules for one in _walk(rule.followers)]
    wanted = [dict(one.where).get(QUEUE) for one in followers if one.reference.table.name == LIVE_JOBS]
    names = [None if one is None else one.constant for one in wanted]
    queues = {None if name is None else str(name) for name in names}
    if not queues:
        return None
    if len(queues) > 1 or None in queues:
        raise WrongArgument(
            f"{LIVE_JOBS} must leave with the events of one named queue only",
            f'write where = {{ {QUEUE} = "…" }} in the `with` of every rule of the events',
        )
    return queues.pop()


def _walk(followers: tuple[Follower, ...]) -> list[Follower]:
    return [one for follower in followers for one in (follower, *_walk(follower.followers))]
