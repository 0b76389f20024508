"""What the API and the forms of the console change: each function makes one call on the keeper of the caller.

What takes rows, or lets sweeps take them, is confirmed by the table's name, and recorded with the actor.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from wane._arguments import parse_iso, require_text
from wane._contract.lookup import find_table, parse_table_name
from wane._keeper import Keeper
from wane.errors import NotAllowed, PlanError, WrongArgument
from wane.queue import Answered
from wane.web._call import OLDEST_PLAN, WebCall, parse_key_columns, require_confirmed

_SWEEP_SECONDS = 60.0
"""A sweep stops after its batch when it has taken this long; the rest leaves with the next one."""
_FUSE_SECONDS = 10.0


def enable(keeper: Keeper, call: WebCall) -> Any:
    """Turn sweeps on: one table's, or all of them."""
    return _set_flag(keeper, call, enabled=True)


def disable(keeper: Keeper, call: WebCall) -> Any:
    """Turn sweeps off: one table's, or all of them."""
    return _set_flag(keeper, call, enabled=False)


def _set_flag(keeper: Keeper, call: WebCall, *, enabled: bool) -> Any:
    table = call.text("table")
    require_confirmed(call, table)
    mine = call.as_actor(keeper)
    flag = mine.enable(table) if enabled else mine.disable(table)
    mine.record_action("enable" if enabled else "disable", table, {"flag": flag})
    return {"flag": flag, "enabled": enabled}


def sweep(keeper: Keeper, call: WebCall) -> Any:
    """Take what a plan of one table lists, as it was shown."""
    table = call.required("table")
    find_table(keeper.contract, table)
    require_confirmed(call, table)
    mine = call.as_actor(keeper)
    made_at, shown = _made_at(mine, call), call.whole("rows")
    if shown is None:
        raise WrongArgument("rows is missing", "give the number of rows that the plan listed")
    _require_no_fuse(mine, table)
    plan = mine.plan(table, now=made_at)
    if plan.total.rows > shown:
        raise PlanError(
            f"{plan.total.rows:,} rows are due by this plan, and {shown:,} were shown", "show the plan again"
        )
    stop = threading.Event()
    timer = threading.Timer(_SWEEP_SECONDS, stop.set)
    timer.start()
    try:
        done = mine.apply(plan, stop=stop)
    finally:
        timer.cancel()
    return {"run": done.run, "rules": [{**asdict(one), "rows": one.rows} for one in done.rules]}


def _made_at(keeper: Keeper, call: WebCall) -> datetime:
    """Return the time of the plan that was shown. A later one than now would make rows due that are not."""
    at, now = parse_iso("made_at", call.required("made_at")), keeper.store.now()
    if at > now:
        raise WrongArgument("made_at is in the future", "give the time of the plan that was shown")
    if now - at > OLDEST_PLAN:
        raise PlanError("the plan was made more than an hour ago", "show the plan again")
    return at


def _require_no_fuse(keeper: Keeper, table: str) -> None:
    """Raise if the fuse stops a rule of the table: a large share of it needs an approval first."""
    for rule in keeper.review(table, seconds=_FUSE_SECONDS).rules:
        given, due = rule.approval, rule.step.due
        if given is None or due is None or due.rows > given.rows:
            raise NotAllowed(f"{rule.name}: {rule.reason}", "an admin may approve it")


def approve(keeper: Keeper, call: WebCall) -> Any:
    """Approve what the fuse stops of one table, if no more is due than was shown."""
    table, shown = call.required("table"), call.whole("rows")
    find_table(keeper.contract, table)
    require_confirmed(call, table)
    mine = call.as_actor(keeper)
    review = mine.review(table, seconds=_FUSE_SECONDS)
    due = sum(one.step.due.rows for one in review.rules if one.step.due is not None)
    if shown is None or due > shown:
        raise PlanError(f"{due:,} rows are due, and {shown or 0:,} were shown", "show the plan again")
    return {"approved": mine.approve(review)}


def _own_key(keeper: Keeper, table: str) -> Sequence[str]:
    name = parse_table_name(table)
    info = keeper.store.reflect().find(name.schema, name.name)
    return () if info is None else info.primary_key


def hold(keeper: Keeper, call: WebCall) -> Any:
    """Hold a row, or without a key the whole table."""
    table, reason, key = call.required("table"), call.required("reason"), call.text("key")
    parsed = None if key is None else parse_key_columns(key, _own_key(keeper, table))
    ends = call.text("ends_at")
    mine = call.as_actor(keeper)
    made = mine.hold(table, parsed, reason=reason, ends_at=None if ends is None else parse_iso("ends_at", ends))
    mine.record_action("hold", table, {"hold": made.id})
    return {"hold": made}


def release(keeper: Keeper, call: WebCall) -> Any:
    """Release a hold by its number; the table's name confirms it."""
    number, table = call.whole("hold"), call.required("table")
    require_confirmed(call, table)
    if number is None or number not in {one.id for one in keeper.holds(table, limit=10_000)}:
        raise WrongArgument(f"{table} has no hold {number}", "the page of the table lists its holds")
    mine = call.as_actor(keeper)
    mine.release_hold(number)
    mine.record_action("release", table, {"hold": number})
    return {"released": number}


# The queue


def requeue(keeper: Keeper, call: WebCall) -> Any:
    """Deliver a dead letter again."""
    return _settle(keeper, call, "requeue")


def resolve(keeper: Keeper, call: WebCall) -> Any:
    """Mark a dead letter as dealt with."""
    return _settle(keeper, call, "resolve")


def _settle(keeper: Keeper, call: WebCall, action: str) -> Any:
    pool, number = call.required("pool"), call.required("message_id")
    mine = call.as_actor(keeper)
    queue = mine.queue(pool)
    answer = queue.requeue(number) if action == "requeue" else queue.resolve(number, by=mine.pruner.actor)
    if answer.accepted:
        mine.record_action(action, None, {"pool": pool, "message": number})
    return _answered(answer)


def _answered(answer: Answered) -> dict[str, Any]:
    return {"answer": answer.answer, "reason": answer.reason, "lease_expires_at": answer.lease_expires_at}


def enqueue(keeper: Keeper, call: WebCall) -> Any:
    """Store a message; one with a key or an id that is taken is returned as it is."""
    data, target = call.body.get("data") or {}, call.body.get("target") or {}
    if not isinstance(data, dict) or not isinstance(target, dict):
        raise WrongArgument("data and target must be JSON objects")
    made = keeper.queue(call.required("pool")).enqueue(
        call.required("kind"), message_id=call.text("message_id"), key=call.text("key"), target=target, data=data
    )
    return {"message": made}


def reserve(keeper: Keeper, call: WebCall) -> Any:
    """Reserve one message; what is returned as `reservation` is needed to answer for it."""
    found = keeper.queue(call.required("pool")).reserve()
    if found is None:
        return {"message": None, "reservation": None, "lease_expires_at": None}
    return {"message": found.message, "reservation": found.token, "lease_expires_at": found.lease_expires_at}


def acknowledge(keeper: Keeper, call: WebCall) -> Any:
    """Complete a message whose work is done."""
    return _answered(keeper.queue(call.required("pool")).ack(call.required("message_id"), _reservation(call)))


def renew(keeper: Keeper, call: WebCall) -> Any:
    """Start the lease of a reservation again."""
    return _answered(keeper.queue(call.required("pool")).renew(call.required("message_id"), _reservation(call)))


def give_back(keeper: Keeper, call: WebCall) -> Any:
    """Give a reservation back with a reason."""
    queue, number = keeper.queue(call.required("pool")), call.required("message_id")
    return _answered(queue.release(number, _reservation(call), call.required("reason")))


def _reservation(call: WebCall) -> str:
    return require_text("reservation", call.body.get("reservation"))
