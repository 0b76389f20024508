"""Comparing a contract with a live database: everything that would break a promise, found before anything runs.

It only reads, and each read is bounded. Offline mistakes are checked with the contract; this assumes a contract without
any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from wane._archive.dialects import archive_dialect
from wane._archive.sql import bind_archive
from wane._check.values import check_done, check_excuse, check_states, check_times
from wane._contract.mistakes import key_path
from wane._contract.model import Contract, Excuse, ToArchive
from wane._contract.names import TableName
from wane._db import Store
from wane._db.counting import count_rows
from wane._db.schema import Kind, Schema, TableInfo
from wane._findings import Finding, Severity
from wane._rules.access import check_indexes
from wane._rules.holds import lost_holds, report_lost_holds
from wane._rules.indexes import check_age_index, observed
from wane._rules.references import check_references
from wane._rules.report import Report, rule_path
from wane._rules.rows import rows_of
from wane._rules.selection import READABLE, Selection, bind_age, bind_contract
from wane.errors import BindError

HOLDS_ROWS = (Kind.TABLE, Kind.PARTITIONED, Kind.VIRTUAL)
"""Tables that can grow: views hold no rows, foreign tables are bounded elsewhere, partitions belong to their parent."""

_MONTH = re.compile(r"(?P<table>.+?)_(?:before_)?\d{6}(?:_with)?")
READ_SECONDS = 2.0
UNCOVERED = "the contract does not name this table, so its rows never leave"


def cover(store: Store, contract: Contract, *, strict: bool = False, seconds: float = READ_SECONDS) -> list[Finding]:
    """Report everything that the contract gets wrong or leaves out about the database, in the contract's order."""
    strict = strict or contract.strict
    schema = store.reflect()
    report = Report(contract)
    selections, findings = bind_contract(contract, schema, store.types)
    report.findings += findings
    report_lost_holds(lost_holds(store, schema), report)
    now = store.now()

    @cache
    def rows(qualified: tuple[str, str]) -> int | None:
        table = schema.find(*qualified)
        count = None if table is None else count_rows(store, table, seconds)
        return None if count is None else count.rows

    for selection in selections:
        check_references(contract, schema, selection, report)
        with report.alone(selection.name, rule_path(selection)):
            check_indexes(store, selection, lambda table: rows(table.qualified), report)
            check_times(store, selection, now, seconds, report)
            check_done(store, selection, now, seconds, report)
        if isinstance(selection.rule.action, ToArchive):
            report.findings += _unarchivable(store, contract, selection)
    for table in contract.tables:
        age, findings = bind_age(contract, table, schema, store.types)
        report.findings += findings
        mine = next((one for one in selections if one.name == table.name), None)
        if age is not None and mine is not None:
            check_age_index(store, table, observed(mine, *age), report)
    _check_tables(store, contract, schema, seconds, Severity.ERROR if strict else Severity.WARNING, report)
    return report.findings


def _unarchivable(store: Store, contract: Contract, selection: Selection) -> Sequence[Finding]:
    """Report what the archive cannot store of a rule's rows."""
    settings = next(one for one in contract.archive if one.table == selection.name)
    try:
        bind_archive(
            rows_of(store),
            archive_dialect(store),
            selection,
            settings,
            "" if contract.path is None else str(contract.path),
        )
    except BindError as problem:
        return [contract.located(one) for one in problem.findings]
    return ()


def _check_tables(
    store: Store, contract: Contract, schema: Schema, seconds: float, strictness: Severity, report: Report
) -> None:
    named: dict[tuple[str, str], TableName] = {}
    for name, path, excuse in _named(contract):
        info = schema.find(name.schema, name.name)
        if info is None:
            if excuse is not None or not any(rule.active for rule in contract.table(name).rules):
                # Binding has reported it for all others.
                message = f"the database has no table {name}"
                report.add(Severity.WARNING, "missing-table", name, path, message, "remove it here")
            continue
        other = named.setdefault(info.qualified, name)
        if other != name:
            message = f"{name} and {other} are the same table, {info.schema}.{info.name}"
            report.add(Severity.ERROR, "said-twice", name, path, message, "keep one of the two")
        if excuse is not None:
            with report.alone(name, path):
                check_excuse(store, name, info, excuse, seconds, report)
    for table in contract.tables:
        info = schema.find(table.name.schema, table.name.name)
        if info is not None and info.kind in READABLE:
            with report.alone(table.name, key_path(["table", table.name])):
                check_states(store, table, info, seconds, strictness, report)
    for shown in uncovered(contract, schema):
        fix = f"add [{key_path(['table', shown])}] with a rule, or give the reason under [excused]"
        report.add(strictness, "uncovered-table", shown, "", UNCOVERED, fix)


def uncovered(contract: Contract, schema: Schema) -> list[TableName]:
    """Return the tables that the contract should cover and does not."""
    names = [name for name, _, _ in _named(contract)]
    names += [follower.reference.table for _, _, follower in contract.followers()]
    named = {info.qualified for name in names if (info := schema.find(name.schema, name.name)) is not None}
    # References from any schema matter, so all schemas are read; only those that the contract is for must be covered.
    schemas = contract.store.schemas
    return [
        TableName(info.name, None if info.schema in schema.search_path[:1] else info.schema)
        for info in schema.tables
        if (not schemas or info.schema in schemas)
        and info.kind in HOLDS_ROWS
        and info.parent is None
        and not info.is_side_table
        and info.qualified not in named
        and not _archived(contract, info, {name.name for name in names})
    ]


def _archived(contract: Contract, info: TableInfo, names: set[str]) -> bool:
    """Check whether a table is a month that was moved to the schema of archived tables: it is retained on purpose."""
    match = _MONTH.fullmatch(info.name)
    return info.schema == contract.roles.archive_schema and match is not None and match["table"] in names


def _named(contract: Contract) -> Iterator[tuple[TableName, str, Excuse | None]]:
    """Yield every table that the contract rules or excuses, with its key path and its excuse."""
    for table in contract.tables:
        yield table.name, key_path(["table", table.name]), None
    for name, excuse in contract.excused:
        yield name, key_path(["excused", name]), excuse
