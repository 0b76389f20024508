"""A sweep as a task of another scheduler: it succeeds with the rows that left, or it fails with the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from wane._contract.model import Contract
from wane._keeper import open_keeper
from wane.errors import WaneError


def sweep_or_raise(
    contract: Contract | Path | str, *, url: str | None, only: Collection[str], actor: str
) -> dict[str, int]:
    """Sweep, and return the rows that left, by table; raise if a rule failed or waits for approval.

    Rows that other rules took have left all the same: each batch is its own transaction.
    """
    with open_keeper(url, contract=contract, actor=actor) as keeper:
        swept = keeper.sweep(*only)
    failed = [f"{one.table}.{one.rule}: {one.message or one.outcome}" for one in swept.rules if one.failed]
    if failed:
        raise WaneError("; ".join(failed), "run `wane health` for what to do")
    left: Counter[str] = Counter()
    for rule in swept.rules:
        left.update(rule.counts)
    return dict(left)
