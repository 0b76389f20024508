"""What the API answers: each function reads one thing through the public keeper."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from wane._archive.model import VERIFIED
from wane._arguments import parse_iso
from wane._contract.fingerprint import fingerprint
from wane._contract.lookup import find_table
from wane._contract.model import Contract, ToArchive
from wane._contract.names import TableName
from wane._contract.show import ShownRow
from wane._contract.show import rows as contract_rows
from wane._db.schema import Schema
from wane._keeper import Keeper
from wane._ledger import AuditEntry, Hold
from wane.claims import WorkState
from wane.errors import NotInstalled, UnknownTable, WaneError
from wane.web._call import WebCall, parse_key_text

_MOST_ACTIONS = 1_000
"""How many entries of the audit trail are read to find when the archive was last verified."""


def listed(items: Sequence[Any], cursor: object = None) -> dict[str, Any]:
    """Return a page of a list; `next` is the cursor of the page after, None on the last."""
    return {"items": list(items), "next": None if cursor is None else str(cursor)}


def health(keeper: Keeper, call: WebCall) -> Any:
    return keeper.health().as_dict()


def status(keeper: Keeper, call: WebCall) -> Any:
    found = keeper.status()
    return {**asdict(found), "alive": found.alive, "dead_letters": found.dead_letters}


def tables(keeper: Keeper, call: WebCall) -> Any:
    """List the tables of the contract by name, with their pressure and health."""
    found = sorted((one.as_dict() for one in keeper.health().tables), key=lambda one: str(one["table"]))
    after, limit = call.text("cursor"), call.limit()
    rest = [one for one in found if after is None or one["table"] > after]
    return listed(rest[:limit], rest[limit - 1]["table"] if len(rest) > limit else None)


def table(keeper: Keeper, call: WebCall) -> Any:
    """Return one table: its contract in words, its health, its holds, and how old its rows are."""
    name = call.required("table")
    words = words_of(keeper.contract, name)
    found = next((one.as_dict() for one in keeper.health().tables if one.pressure.table == name), None)
    holds = holds_of(keeper, name)
    ages = keeper.ages(name) if any(str(one.name) == name for one in keeper.contract.tables) else None
    return {"table": name, "contract": words, "health": found, "ages": ages, "holds": holds}


def words_of(contract: Contract, name: str) -> ShownRow:
    """Return what the contract declares of a table, with rules or without; raise UnknownTable if it does not name
    it."""
    found = next((one for one in contract_rows(contract) if one.table == name), None)
    if found is None:
        find_table(contract, name)
        raise UnknownTable(f"the contract has no table {name!r}")
    return found


def holds_of(keeper: Keeper, name: str) -> list[dict[str, Any]]:
    """Return the holds on a table of the contract."""
    try:
        return held_rows(keeper, name) if keeper.store.migrated else []
    except UnknownTable:  # An excused table may be missing, or its name a pattern.
        return []


def held_rows(keeper: Keeper, name: str | None, limit: int = 100) -> list[dict[str, Any]]:
    """Return holds in force, each with the row's key by its columns: a hold stores only their values, encoded."""
    found = keeper.holds(name, limit=limit)
    schema = keeper.store.reflect() if any(one.key is not None for one in found) else None
    quoted = keeper.store.kind == "sqlite"
    return [{**asdict(one), "row": None if schema is None else _held_row(schema, one, quoted=quoted)} for one in found]


def _held_row(schema: Schema, hold: Hold, *, quoted: bool) -> dict[str, str] | None:
    if hold.key is None:
        return None
    table = TableName.parse(hold.table)
    info = schema.find(table.schema, table.name)
    values = [_unquoted(str(one)) if quoted else str(one) for one in json.loads(hold.key)]
    names = (
        () if info is None else next((one for one in (info.primary_key, info.row_key) if len(one) == len(values)), ())
    )
    return dict(zip(names or map(str, range(1, len(values) + 1)), values, strict=True))


def _unquoted(literal: str) -> str:
    quoted = len(literal) > 1 and literal[0] == literal[-1] == "'"
    return literal[1:-1].replace("''", "'") if quoted else literal


def plan(keeper: Keeper, call: WebCall) -> Any:
    """Plan what is due: of all tables, or of one, with statements and query plans."""
    name = call.text("table")
    return keeper.plan(*([] if name is None else [name]), explain=name is not None)


def why(keeper: Keeper, call: WebCall) -> Any:
    return keeper.why(call.required("table"), parse_key_text(call.required("key")))


def growth(keeper: Keeper, call: WebCall) -> Any:
    return listed([one.as_json() for one in keeper.growth(call.text("table"))])


def audit(keeper: Keeper, call: WebCall) -> Any:
    """List the audit trail, newest first."""
    limit = call.limit()
    entries = read_trail(keeper, call, limit + 1)
    more = entries[limit - 1].id if len(entries) > limit else None
    return listed([audit_row(one) for one in entries[:limit]], more)


def read_trail(keeper: Keeper, call: WebCall, limit: int) -> list[AuditEntry]:
    """Read the audit entries that the filters of a request choose."""
    return keeper.audit(
        kind=call.text("kind"), table=call.text("table"), since=_since(call), before=call.whole("cursor"), limit=limit
    )


def audit_row(entry: AuditEntry) -> dict[str, Any]:
    """Return an audit entry as JSON and CSV have it."""
    return {**asdict(entry), "rows": entry.rows}


def _since(call: WebCall) -> datetime | None:
    text = call.text("since")
    return None if text is None else parse_iso("since", text)


def holds(keeper: Keeper, call: WebCall) -> Any:
    return listed(held_rows(keeper, call.text("table"), call.limit()))


def queue(keeper: Keeper, call: WebCall) -> Any:
    """Count the messages of every pool by state."""
    return listed(keeper.status().queue)


def messages(keeper: Keeper, call: WebCall) -> Any:
    pool = keeper.queue(call.required("pool"))
    return listed(pool.messages(state=call.text("state"), kind=call.text("kind"), limit=call.limit()))


def dead_letters(keeper: Keeper, call: WebCall) -> Any:
    """List the dead letters of a pool, newest first."""
    limit, pool = call.limit(), keeper.queue(call.required("pool"))
    found = pool.dead_letters(before=call.whole("cursor"), limit=limit + 1)
    more = found[limit - 1].message.seq if len(found) > limit else None
    return listed(found[:limit], more)


def claims(keeper: Keeper, call: WebCall) -> Any:
    """List work claims in a state, oldest first."""
    state = call.text("state") or WorkState.CLAIMED
    return listed(keeper.claims().list_by_state(state, limit=call.limit()))


def archive(keeper: Keeper, call: WebCall) -> Any:
    """Return the archive: its tables as its log has them, sweeps and restores."""
    limit = call.limit()
    if keeper.contract.archive_url is None:
        return {"tables": [], "sweeps": [], "restores": [], "verified": {}, "problem": None}
    found: list[Any] = []
    problem = None
    try:
        found = list(keeper.archive.tables())
    except WaneError as error:  # What cannot be read does not hide what can.
        problem = error.message
    sweeps, restores = keeper.archive.status(limit=limit), keeper.archive.restores(limit=limit)
    verified = _last_verified(keeper)
    return {"tables": found, "sweeps": sweeps, "restores": restores, "verified": verified, "problem": problem}


def _last_verified(keeper: Keeper) -> dict[str, dict[str, Any]]:
    """Return when all files of each table were last read back, by the latest actions in the audit trail."""
    if not keeper.store.migrated:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for one in keeper.audit(kind="action", limit=_MOST_ACTIONS):
        if one.inputs.get("action") == VERIFIED:
            found.setdefault(one.table, {"at": one.executed_at, "problems": one.inputs["problems"], "by": one.actor})
    return found


def restorable(contract: Contract) -> list[str]:
    """Return the tables whose archived rows can be restored: those that a rule archives by itself."""
    return list(
        dict.fromkeys(str(table.name) for table, rule in contract.rules() if isinstance(rule.action, ToArchive))
    )


def archived_names(contract: Contract) -> list[str]:
    """Return the tables that lose rows to the archive, by a rule of their own or with others."""
    following = [
        str(one.reference.table) for _, rule, one in contract.followers() if isinstance(rule.action, ToArchive)
    ]
    return list(dict.fromkeys([*restorable(contract), *following]))


def partitions(keeper: Keeper, call: WebCall) -> Any:
    """List the tables that the contract partitions by month, each with its months and what is next."""
    found = []
    for one in keeper.contract.partitions:
        name = str(one.table)
        try:
            plan = keeper.partition.plan(name)
            found.append({"table": name, "state": plan.state, "partitions": plan.partitions, "problem": None})
        except WaneError as problem:
            found.append({"table": name, "state": None, "partitions": (), "problem": problem.message})
    return listed(found)


def contract(keeper: Keeper, call: WebCall) -> Any:
    """Return the contract in words, its fingerprint, the one in force, and what does not fit the database."""
    in_force = keeper.status().in_force if keeper.store.migrated else None
    return {
        "fingerprint": fingerprint(keeper.contract),
        "in_force": in_force,
        "tables": contract_rows(keeper.contract),
        "findings": keeper.check(),
    }


def installed_claims(keeper: Keeper) -> dict[str, Iterable[Any]] | None:
    """Return some work of each state, for a page; None if the tables of work claims are missing."""
    work = keeper.claims()
    try:
        return {state.value: work.list_by_state(state, limit=50) for state in WorkState}
    except NotInstalled:
        return None
