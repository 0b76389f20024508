"""The archive through the API and the console: queries, and restores that are planned, confirmed, and run as jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from wane._contract.lookup import find_table
from wane._keeper import Keeper
from wane.errors import PlanError, WrongArgument
from wane.web._call import OLDEST_PLAN, WebCall, parse_key_columns, require_confirmed
from wane.web._jobs import ArchiveJob, JobState
from wane.web._plain import as_json, plain
from wane.web._problems import RequestRefused
from wane.web._resources import listed

_QUERY, _PLAN, _RESTORE, _CANCEL = "query", "restore plan", "restore", "cancel restore"
_ROWS, _MOST_ROWS = 50, 1_000
_MOST_BYTES = 1024 * 1024
"""A result has no more than this, as JSON, and one row."""
_WAIT_SECONDS = 0.5
"""A query that is answered in this time needs no second request."""
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
CONFLICTS = ("refuse", "skip", "replace")


def query(keeper: Keeper, call: WebCall) -> Any:
    """Begin a query of the archive, or return what the same one found."""
    return begin_query(keeper, call).document()


def begin_query(keeper: Keeper, call: WebCall) -> ArchiveJob:
    """Begin a query, or join the same one; wait for a short one."""
    if call.cross_site:
        raise RequestRefused(403, "CrossSite", "a query is not begun from another site", "ask from the page itself")
    table, where, columns = call.required("table"), call.text("where"), call.text("columns")
    if keeper.contract.archive_url is None:
        raise WrongArgument("the contract has no archive", "rows that a rule archives need `[archive] url`")
    inputs: dict[str, Any] = {"limit": call.limit(_ROWS, _MOST_ROWS)}
    if where is not None:
        inputs["where"] = where
    if columns is not None:
        inputs["columns"] = [one.strip() for one in columns.split(",")]
    actor, now = call.actor, keeper.store.now()
    job = call.jobs.begin(_QUERY, table, inputs, actor, now, _query(table, inputs), bounded=True)
    job.ended.wait(_WAIT_SECONDS)
    return job


def _query(table: str, inputs: Mapping[str, Any]) -> Any:
    def work(keeper: Keeper, job: ArchiveJob) -> dict[str, Any]:
        limit: int = inputs["limit"]
        # One row more than is shown: whether there are more is cheap to know, how many is not.
        found = keeper.archive.read(table, where=inputs.get("where"), columns=inputs.get("columns"), limit=limit + 1)
        rows: list[Any] = []
        size, more = 0, False
        for row in found:
            job.go_on()
            if len(rows) == limit or size > _MOST_BYTES:
                more = True
                break
            rows.append(plain(row))
            size += len(as_json(rows[-1]))
        return {"columns": found.columns, "rows": rows, "more": more, "files": plain(found.files)}

    return work


def jobs(keeper: Keeper, call: WebCall) -> Any:
    """List the jobs of this process, newest first."""
    return listed([one.summary() for one in call.jobs.newest(call.limit())])


def job(keeper: Keeper, call: WebCall) -> Any:
    """Return one job with its result."""
    return call.jobs.find(call.required("job")).document()


def plan_restore(keeper: Keeper, call: WebCall) -> Any:
    """Begin to plan a restore: what would come back, and what would not. Nothing changes."""
    table = str(find_table(keeper.contract, call.required("table")).name)
    inputs = _chosen(call)

    def work(mine: Keeper, job: ArchiveJob) -> Any:
        del job
        return plain(mine.archive.restore(table, **_options(inputs), dry_run=True))

    return {"job": _begin(keeper, call, _PLAN, table, inputs, work)}


def _chosen(call: WebCall) -> dict[str, Any]:
    """Return which rows a request chooses: by key, by month or by sweep."""
    key, month, sweep = call.text("key"), call.text("month"), call.whole("sweep")
    if (key is not None) + (month is not None) + (sweep is not None) != 1:
        raise WrongArgument("choose rows by exactly one of `key`, `month` and `sweep`")
    if month is not None and not _MONTH.fullmatch(month):
        raise WrongArgument(f"{month[:80]!r} is no month", "write 2026-01")
    conflict = call.text("on_conflict") or CONFLICTS[0]
    if conflict not in CONFLICTS:
        raise WrongArgument(f"on_conflict is {conflict[:80]!r}", f"allowed: {', '.join(CONFLICTS)}")
    which = {"key": None if key is None else parse_key_columns(key), "month": month, "sweep": sweep}
    return {**{name: value for name, value in which.items() if value is not None}, "on_conflict": conflict}


def _options(inputs: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"on_conflict": inputs["on_conflict"]}
    if "key" in inputs:
        return {**options, "keys": [inputs["key"]]}
    return {
        **options,
        **({"where": f"_month = '{inputs['month']}'"} if "month" in inputs else {"sweep": inputs["sweep"]}),
    }


def restore(keeper: Keeper, call: WebCall) -> Any:
    """Begin the restore that a plan showed; the table's name confirms it."""
    table, plan = call.required("table"), call.jobs.find(call.required("plan"))
    require_confirmed(call, table)
    if (plan.kind, plan.table) != (_PLAN, table):
        raise WrongArgument(f"this is no plan of a restore of {table}", "plan the restore first")
    if plan.state is not JobState.DONE:
        raise PlanError(f"the plan is {plan.state.value}", "a restore needs a plan that is done")
    options, most = _options(plan.inputs), plan.result["chosen"]
    if not any(most.values()):
        raise PlanError("the plan has no rows", "choose others")
    if keeper.store.now() - plan.created_at > OLDEST_PLAN:
        raise PlanError("the plan was made more than an hour ago", "plan the restore again")

    def work(mine: Keeper, job: ArchiveJob) -> Any:
        del job
        mine.record_action("restore", table, {**plan.inputs, "chosen": most})
        return plain(mine.archive.restore(table, **options, most=most))

    return {"job": _begin(keeper, call, _RESTORE, table, plan.inputs, work)}


def cancel_restore(keeper: Keeper, call: WebCall) -> Any:
    """Begin to end an unfinished restore where it is; the table's name confirms it."""
    table, number = call.required("table"), call.whole("restore")
    require_confirmed(call, table)
    if number is None or number not in {one.id for one in keeper.archive.restores(table, unfinished=True)}:
        raise WrongArgument(f"{table} has no unfinished restore {number}", "the page of the archive lists restores")

    def work(mine: Keeper, job: ArchiveJob) -> Any:
        del job
        return plain(mine.archive.cancel_restore(number))

    return {"job": _begin(keeper, call, _CANCEL, table, {"restore": number}, work)}


def _begin(
    keeper: Keeper, call: WebCall, kind: str, table: str, inputs: Mapping[str, Any], work: Any
) -> dict[str, Any]:
    begun = call.jobs.begin(kind, table, inputs, call.actor, keeper.store.now(), work, bounded=False)
    begun.ended.wait(_WAIT_SECONDS)
    return begun.summary()
