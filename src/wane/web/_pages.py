"""The pages of the console: what each reads through the public keeper, for its template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wane._contract.model import Contract, Table
from wane._contract.show import rows as contract_rows
from wane._findings import Finding, Severity
from wane._keeper import Keeper
from wane.errors import UnknownTable, WaneError
from wane.observe._growth import TableGrowth
from wane.observe._health import TableHealth
from wane.web import _resources as read
from wane.web._access import AccessRole
from wane.web._archive import begin_query
from wane.web._call import WebCall, parse_key_text
from wane.web._charts import age_chart, growth_chart
from wane.web._jobs import ArchiveJob

_RUNS = 50
_JOB_SECONDS = 2
"""How often the page of an unfinished job refreshes."""
_PLAN_SECONDS = 0.5
"""How long the page of a table counts the due rows of each rule, and their ages."""
_COUNTED_SECONDS = 10.0
_FUSE_SECONDS = 2.0
_SEVERITIES = list(Severity)
_UNKNOWN = -1.0


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page: its address, its name in the navigation, who may see it, and what it shows."""

    path: str
    title: str
    template: str
    read: Callable[[Keeper, WebCall], dict[str, Any]]
    role: AccessRole = AccessRole.VIEWER
    refreshes: bool = False
    listed: bool = True


def overview(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    health = call.health.read(keeper)
    runs = keeper.audit(limit=8) if health.migrated else []
    alerts = [one for one in _growth(keeper).values() if one.alert is not None]
    findings = sorted(health.findings, key=_by_severity)
    late = sorted((one for one in health.tables if one.late_seconds), key=_lag, reverse=True)
    return {"health": health, "runs": runs, "alerts": alerts, "findings": findings, "late": late[:8]}


def _by_severity(finding: Finding) -> int:
    return _SEVERITIES.index(finding.severity)


def _lag(table: TableHealth) -> float:
    return _UNKNOWN if table.late_seconds is None else table.late_seconds


_SORTS: dict[str, Callable[[TableHealth], Any]] = {
    "table": lambda one: one.pressure.table,
    "rows": lambda one: -(_UNKNOWN if one.pressure.rows is None else one.pressure.rows.rows),
    "due": lambda one: -(_UNKNOWN if one.pressure.due is None else one.pressure.due.rows),
    "lag": lambda one: -_lag(one),
    "sweep": lambda one: "" if one.last_sweep is None else one.last_sweep.isoformat(),
}


def tables(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    health = call.health.read(keeper)
    wanted = (call.text("find") or "").lower()
    sort = call.text("sort") or "table"
    found = [one for one in health.tables if wanted in one.pressure.table.lower()]
    found.sort(key=_SORTS.get(sort, _SORTS["table"]))
    words = {one.table: one for one in contract_rows(keeper.contract)}
    return {
        "health": health,
        "found": found,
        "words": words,
        "ruled": {str(one.name) for one in keeper.contract.tables},
        "growth": _growth(keeper),
        "sort": sort,
        "find": wanted,
        "excused": [one for one in words.values() if one.table not in {each.pressure.table for each in health.tables}],
    }


def _growth(keeper: Keeper) -> dict[str, TableGrowth]:
    return {one.table: one for one in keeper.growth()} if keeper.store.migrated else {}


def table(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    """Read a table with rules, one whose rows leave with others, or an excused one."""
    name = call.path["table"]
    words = read.words_of(keeper.contract, name)
    health = call.health.read(keeper)
    growth = next(iter(_growth_of(keeper, name)), None)
    key = call.text("key")
    found: dict[str, Any] = {
        "name": name,
        "words": words,
        "one": next((one for one in health.tables if one.pressure.table == name), None),
        "health": health,
        "growth": growth,
        "chart": None if growth is None else growth_chart(growth, _next_threshold(growth)),
        "runs": keeper.audit(table=name, limit=20) if health.migrated else [],
        "holds": read.holds_of(keeper, name),
        "key": key or "",
        "why": None,
        "why_problem": None,
        "declared": None,
    }
    declared = next((one for one in keeper.contract.tables if str(one.name) == name), None)
    if declared is not None:
        found.update(_ruled(keeper, call, declared, migrated=health.migrated))
    if declared is not None and key is not None:
        try:
            found["why"] = keeper.why(name, parse_key_text(key))
        except WaneError as problem:
            found["why_problem"] = problem
    return found


def _growth_of(keeper: Keeper, name: str) -> list[TableGrowth]:
    try:
        return keeper.growth(name) if keeper.store.migrated else []
    except UnknownTable:  # No snapshot of it is taken.
        return []


def _ruled(keeper: Keeper, call: WebCall, declared: Table, *, migrated: bool) -> dict[str, Any]:
    """Read what only a table with rules has. Counts that take long are bounds or estimates, unless they are asked
    for."""
    name, counted = str(declared.name), call.text("count") == "all"
    ages = keeper.ages(name, seconds=_PLAN_SECONDS)
    return {
        "declared": declared,
        "counted": counted,
        "ages": ages,
        "age_chart": None if ages is None else age_chart(ages),
        "plan": keeper.plan(name, seconds=_COUNTED_SECONDS if counted else _PLAN_SECONDS, explain=True),
        "fused": keeper.review(name, seconds=_FUSE_SECONDS).rules if migrated and call.identity.form_key else (),
    }


def _next_threshold(growth: TableGrowth) -> int | None:
    ahead = [one.threshold for one in growth.days if growth.rows is None or one.threshold > growth.rows]
    return min(ahead, default=None)


def runs(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    limit = call.limit(_RUNS, 500)
    entries = read.read_trail(keeper, call, limit + 1)
    filters = {name: call.text(name) or "" for name in ("table", "kind", "since")}
    more = entries[limit - 1].id if len(entries) > limit else None
    names = [str(one.name) for one in keeper.contract.tables]
    return {"runs": entries[:limit], "more": more, "filters": filters, "names": names}


def queue(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    status = keeper.status()
    pools = sorted({one.pool for one in status.queue})
    pool = call.text("pool") or (pools[0] if pools else None)
    opened = None if pool is None else keeper.queue(pool)
    return {
        "status": status,
        "pools": pools,
        "pool": pool,
        "messages": [] if opened is None else opened.messages(limit=50),
        "dead": [] if opened is None else opened.dead_letters(limit=50),
    }


def claims(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    return {"states": read.installed_claims(keeper)}


def archive(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    found = read.archive(keeper, call)
    return {
        "archive": found,
        "declared": keeper.contract.archive_url is not None,
        "requested": _requested(call),
        "names": read.archived_names(keeper.contract) if found["tables"] else [],
        "restorable": read.restorable(keeper.contract),
        "jobs": [one.summary() for one in call.jobs.newest(10)],
    }


def _requested(call: WebCall) -> dict[str, str]:
    return {name: call.text(name) or "" for name in ("table", "where", "columns", "limit")}


def archive_query(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    job = begin_query(keeper, call)
    names = dict.fromkeys([*read.archived_names(keeper.contract), job.table])
    return {**_job_page(job), "requested": _requested(call), "names": list(names)}


def archive_job(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    return _job_page(call.jobs.find(call.path["job"]))


def _job_page(job: ArchiveJob) -> dict[str, Any]:
    return {"job": job.document(), "refresh_seconds": _JOB_SECONDS if job.unfinished else None}


def partitions(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    return {"tables": read.partitions(keeper, call)["items"], "store": keeper.store.kind}


def executors(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    return {"status": keeper.status()}


def contract(keeper: Keeper, call: WebCall) -> dict[str, Any]:
    found = read.contract(keeper, call)
    return {**found, "file": _file(keeper.contract)}


def _file(contract: Contract) -> str:
    return "" if contract.path is None else contract.path.name


PAGES: tuple[ConsolePage, ...] = (
    ConsolePage("/", "Overview", "overview.html", overview, refreshes=True),
    ConsolePage("/tables", "Tables", "tables.html", tables),
    ConsolePage("/tables/{table:path}", "Table", "table.html", table, listed=False),
    ConsolePage("/runs", "Runs", "runs.html", runs),
    ConsolePage("/queue", "Queue", "queue.html", queue),
    ConsolePage("/claims", "Claims", "claims.html", claims),
    ConsolePage("/archive", "Archive", "archive.html", archive),
    ConsolePage("/archive/query", "Query", "archive_job.html", archive_query, listed=False),
    ConsolePage("/archive/jobs/{job}", "Job", "archive_job.html", archive_job, listed=False),
    ConsolePage("/partitions", "Partitions", "partitions.html", partitions),
    ConsolePage("/executors", "Executors", "executors.html", executors, refreshes=True),
    ConsolePage("/contract", "Contract", "contract.html", contract),
)
