"""The endpoints of the API: the routes, the OpenAPI document and the tests of access are made of this one list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wane import __version__
from wane._keeper import Keeper
from wane.claims import WorkState
from wane.queue import MessageState
from wane.web import _actions as act
from wane.web import _archive as archive
from wane.web import _resources as read
from wane.web._access import AccessRole
from wane.web._call import WebCall

PREFIX = "/api/v1"


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the address or of the body."""

    name: str
    description: str
    required: bool = False
    kind: str = "string"
    among: tuple[str, ...] = ()
    inside: str = "query"
    """"query" or "body"."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation: who may call it, what it takes, and what answers it."""

    method: str
    path: str
    role: AccessRole
    description: str
    answer: Callable[[Keeper, WebCall], Any]
    values: tuple[Value, ...] = ()


_LIMIT = Value("limit", "The most items of a page: 1 to 1000, 50 if left out.", kind="integer")
_CURSOR = Value("cursor", "`next` of the page before.")
_TABLE = Value("table", "A table, as the contract names it.")
_THE_TABLE = Value("table", "The table, as the contract names it.", required=True)
_POOL = Value("pool", "The work pool.", required=True)


def _get(path: str, description: str, answer: Callable[[Keeper, WebCall], Any], *values: Value) -> Endpoint:
    return Endpoint("GET", PREFIX + path, AccessRole.VIEWER, description, answer, values)


_ONE = Value("table", "The table, as the contract names it.", required=True, inside="body")
_ANY = Value("table", "One table; all of them if left out.", inside="body")
_CONFIRM = Value("confirm", "The table's name, or `all tables`.", required=True, inside="body")
_MESSAGE = Value("message_id", "The message.", required=True, inside="body")
_RESERVATION = Value("reservation", "What the reservation returned.", required=True, inside="body")


def _post(
    path: str, role: AccessRole, description: str, answer: Callable[[Keeper, WebCall], Any], *values: Value
) -> Endpoint:
    return Endpoint("POST", PREFIX + path, role, description, answer, values)


def _queue(path: str, description: str, answer: Callable[[Keeper, WebCall], Any], *values: Value) -> Endpoint:
    pool = Value("pool", "The work pool.", required=True, inside="body")
    return _post(f"/queue{path}", AccessRole.OPERATOR, description, answer, pool, *values)


ENDPOINTS: tuple[Endpoint, ...] = (
    _get("/health", "Report whether retention works, and every finding with its fix.", read.health),
    _get("/status", "Read flags, schedulers, executors, running sweeps and the queue.", read.status),
    _get("/tables", "List tables by name, with rows, due rows, lag and last sweep.", read.tables, _LIMIT, _CURSOR),
    _get("/table", "Read one table: contract in words, health, ages of its rows, holds.", read.table, _THE_TABLE),
    _get("/plan", "Plan what is due; of one table with statements and query plans.", read.plan, _TABLE),
    _get(
        "/why",
        "Explain one row: what takes it and when, what retains it, or what is known of one that is gone.",
        read.why,
        _THE_TABLE,
        Value("key", "The row's key: its value, or COLUMN=VALUE for each column, separated by commas.", required=True),
    ),
    _get("/growth", "Read how fast tables grow, and their forecasts.", read.growth, _TABLE),
    _get(
        "/audit",
        "List the audit trail, newest first.",
        read.audit,
        _TABLE,
        Value("kind", "prune, mark, archive, restore …"),
        Value("since", "An ISO 8601 time, in UTC if it has no zone."),
        _LIMIT,
        Value("cursor", "`next` of the page before: the number of its last entry.", kind="integer"),
    ),
    _get("/holds", "List the holds in force, newest first.", read.holds, _TABLE, _LIMIT),
    _get("/queue", "Count the messages of every pool of the cleanup queue, by state.", read.queue),
    _get(
        "/queue/messages",
        "List messages of a pool that are neither done nor dead.",
        read.messages,
        _POOL,
        Value("state", "Only in this state.", among=tuple(MessageState)),
        Value("kind", "Only of this kind."),
        _LIMIT,
    ),
    _get(
        "/queue/dead-letters",
        "List dead letters of a pool, newest first.",
        read.dead_letters,
        _POOL,
        _LIMIT,
        Value("cursor", "`next` of the page before.", kind="integer"),
    ),
    _get(
        "/claims",
        "List work claims in a state, oldest first.",
        read.claims,
        Value("state", "The state; `claimed` if left out.", among=tuple(WorkState)),
        _LIMIT,
    ),
    _get("/archive", "Read the archive's tables, sweeps and restores.", read.archive, _LIMIT),
    _get(
        "/archive/query",
        "Query archived rows: begins a job, or returns that of the same question; ask again until it is done.",
        archive.query,
        Value("table", "A table of the archive.", required=True),
        Value("where", "A condition over the row's columns in Spark's SQL; all rows if left out."),
        Value("columns", "Some columns, separated by commas; all if left out."),
        Value("limit", "The most rows: 1 to 1000, 50 if left out.", kind="integer"),
    ),
    _get("/archive/jobs", "List queries and restores that this process began, newest first.", archive.jobs, _LIMIT),
    _get(
        "/archive/job",
        "Read one of them, with its result.",
        archive.job,
        Value("job", "Its id.", required=True),
    ),
    _get("/partitions", "List partitioned tables and their months (PostgreSQL).", read.partitions),
    _get("/contract", "Read the contract in words, its fingerprint, and what does not fit.", read.contract),
    _post("/enable", AccessRole.ADMIN, "Turn sweeps on: one table's, or all of them.", act.enable, _ANY, _CONFIRM),
    _post(
        "/disable", AccessRole.OPERATOR, "Turn sweeps off: one table's, or all of them.", act.disable, _ANY, _CONFIRM
    ),
    _post(
        "/sweep",
        AccessRole.OPERATOR,
        "Take what a plan of one table listed, and no more, for at most a minute.",
        act.sweep,
        _ONE,
        _CONFIRM,
        Value("made_at", "`made_at` of the plan.", required=True, inside="body"),
        Value("rows", "`total` of the plan.", required=True, kind="integer", inside="body"),
    ),
    _post(
        "/approve",
        AccessRole.ADMIN,
        "Approve what the fuse stops of one table, if no more is due than was shown.",
        act.approve,
        _ONE,
        _CONFIRM,
        Value("rows", "The due rows that were shown.", required=True, kind="integer", inside="body"),
    ),
    _post(
        "/hold",
        AccessRole.OPERATOR,
        "Hold a row, or without a key the whole table.",
        act.hold,
        _ONE,
        Value("reason", "Why it must stay.", required=True, inside="body"),
        Value("key", "COLUMN=VALUE for each column of the key, separated by commas.", inside="body"),
        Value(
            "ends_at",
            "When it ends, as an ISO 8601 time, in UTC if it has no zone; never if left out.",
            inside="body",
        ),
    ),
    _post(
        "/release",
        AccessRole.OPERATOR,
        "Release a hold of a table.",
        act.release,
        _ONE,
        _CONFIRM,
        Value("hold", "Its number.", required=True, kind="integer", inside="body"),
    ),
    _post(
        "/archive/plan-restore",
        AccessRole.ADMIN,
        "Begin to plan a restore by key, month or sweep: what would come back. Changes nothing.",
        archive.plan_restore,
        _ONE,
        Value("key", "COLUMN=VALUE for each column of the key, separated by commas.", inside="body"),
        Value("month", "A month of the archive, such as 2026-01.", inside="body"),
        Value("sweep", "The number of the sweep that archived them.", kind="integer", inside="body"),
        Value(
            "on_conflict",
            "If another row has a key: restore nothing, leave that row, or replace it. `refuse` if left out.",
            among=archive.CONFLICTS,
            inside="body",
        ),
    ),
    _post(
        "/archive/restore",
        AccessRole.ADMIN,
        "Begin the restore that a plan showed, and no more rows than it showed.",
        archive.restore,
        _ONE,
        _CONFIRM,
        Value("plan", "The id of the plan's job.", required=True, inside="body"),
    ),
    _post(
        "/archive/cancel-restore",
        AccessRole.ADMIN,
        "Begin to end an unfinished restore where it is.",
        archive.cancel_restore,
        _ONE,
        _CONFIRM,
        Value("restore", "Its number.", required=True, kind="integer", inside="body"),
    ),
    _queue("/requeue", "Deliver a dead letter again.", act.requeue, _MESSAGE),
    _queue("/resolve", "Mark a dead letter as dealt with.", act.resolve, _MESSAGE),
    _queue(
        "/enqueue",
        "Store a message, once: an id or a key that is taken returns that message.",
        act.enqueue,
        Value("kind", "What it is.", required=True, inside="body"),
        Value("message_id", "Its id; a random one if left out.", inside="body"),
        Value("key", "Its idempotency key; the id if left out.", inside="body"),
        Value("target", "What it is about.", kind="object", inside="body"),
        Value("data", "What else it carries.", kind="object", inside="body"),
    ),
    _queue("/reserve", "Reserve the oldest ready message.", act.reserve),
    _queue("/acknowledge", "Complete a message whose work is done.", act.acknowledge, _MESSAGE, _RESERVATION),
    _queue("/renew", "Start the lease of a reservation again.", act.renew, _MESSAGE, _RESERVATION),
    _queue(
        "/give-back",
        "Give a reservation back: the message is delivered again.",
        act.give_back,
        _MESSAGE,
        _RESERVATION,
        Value("reason", "Why.", required=True, inside="body"),
    ),
)
FORMS: dict[str, Endpoint] = {
    one.path.removeprefix(PREFIX): one
    for one in ENDPOINTS
    if one.method == "POST" and one.answer not in (act.enqueue, act.reserve, act.acknowledge, act.renew, act.give_back)
}
"""What the console offers as forms, by the rest of their address below `/do`."""


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the endpoints."""
    paths: dict[str, Any] = {}
    for one in ENDPOINTS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Wane",
            "version": __version__,
            "description": "Retention of operational tables: what the console shows and does.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM},
        },
        "security": [{"token": []}],
    }


_PROBLEM = {
    "type": "object",
    "description": "RFC 9457. `code` is what `wane explain` explains.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
        "findings": {"type": "array", "items": {"type": "object"}},
    },
}


def _operation(one: Endpoint) -> dict[str, Any]:
    problem = {
        "description": "A problem.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    made: dict[str, Any] = {
        "operationId": f"{one.method.lower()}{one.path.removeprefix(PREFIX).replace('/', '_').replace('-', '_')}",
        "summary": one.description,
        "description": f"Needs the role {one.role.value}.",
        "parameters": [_parameter(value) for value in one.values if value.inside == "query"],
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": {"type": "object"}}}},
            **dict.fromkeys(("400", "401", "403", "404", "408", "409", "413", "414", "429", "503"), problem),
        },
    }
    body = [value for value in one.values if value.inside == "body"]
    if body:
        schema = {
            "type": "object",
            "required": [value.name for value in body if value.required],
            "properties": {value.name: _schema(value) for value in body},
        }
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return made


def _parameter(value: Value) -> dict[str, Any]:
    schema = {key: one for key, one in _schema(value).items() if key != "description"}
    return {
        "name": value.name,
        "in": "query",
        "required": value.required,
        "description": value.description,
        "schema": schema,
    }


def _schema(value: Value) -> dict[str, Any]:
    made: dict[str, Any] = {"type": value.kind, "description": value.description}
    return {**made, "enum": [str(one) for one in value.among]} if value.among else made
