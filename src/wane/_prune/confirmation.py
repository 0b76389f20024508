"""Why a user should confirm an explicit prune: it takes rows that the contract retains, or more than a sweep may."""

from __future__ import annotations

import math
from dataclasses import replace

from wane._contract.duration import format_duration
from wane._db.counting import count_some_rows
from wane._prune.fuse import COUNT_SECONDS, allowed_share
from wane._prune.primitive import Order, Pruner
from wane._rules.reads import count_due
from wane.errors import TimedOut


def concerns(pruner: Pruner, order: Order, limit: int) -> list[str]:
    """Return why the order needs to be confirmed; an empty list if it takes no more than unattended sweeps may."""
    return [why for why in (_undercut(pruner, order), _large(pruner, order, limit)) if why]


def _undercut(pruner: Pruner, order: Order) -> str:
    if order.older_than is None:
        return ""
    orphans = order.kind == "prune_orphans"
    window = pruner.bindings.longest_window(order.table, order.rule.states, orphans=orphans)
    ends = pruner.store.now() - window
    if order.older_than <= ends:
        return ""
    retained = f"the contract retains them for {format_duration(window)}"
    return f"rows of {order.table.name} from {ends:%Y-%m-%d %H:%M:%S} UTC on would leave, and {retained}"


def _large(pruner: Pruner, order: Order, limit: int) -> str:
    """Return why the fuse would stop an unattended sweep of as many rows."""
    store, settings, name = pruner.store, pruner.contract.sweep, order.table.name
    if order.kind == "mark" or limit < settings.fuse_rows:
        return ""
    selection = pruner.bindings.selection(order.table, order.rule)
    try:
        due = count_due(store, selection, order.older_than or store.now(), COUNT_SECONDS, most=limit)
        if due < settings.fuse_rows:
            return ""
        allowed = replace(allowed_share(store, settings, str(name), order.rule), whose="a sweep")
        rows = count_some_rows(store, selection.table, math.ceil(due / allowed.share), COUNT_SECONDS)
    except TimedOut:
        return f"the rows of {name} that would leave could not be counted in {COUNT_SECONDS:g} seconds"
    if due <= allowed.share * rows:
        return ""
    share = f"{due:,} of {rows:,} rows of {name} would leave ({due / max(rows, 1):.1%})"
    return f"{share}, and {allowed.text}"
