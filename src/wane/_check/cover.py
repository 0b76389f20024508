"""Comparing a contract with a live database: everything that would break a promise, found before anything runs.

It only reads, and each read is bounded. Offline mistakes are checked with the contract; this assumes a contract without
any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.sql import ArchiveRows, bind_archive
from wane._check.bookkeeping import bookkeeping_tool
from wane._check.values import check_done, check_excuse, check_selected, check_states, check_times
from wane._contract.mistakes import key_path
from wane._contract.model import Contract, ToArchive
from wane._contract.names import TableName
from wane._db import Store
from wane._db.counting import count_rows
from wane._db.schema import Schema, TableInfo
from wane._findings import Finding, Severity, many
from wane._rules.access import check_indexes
from wane._rules.excuses import HOLDS_ROWS, ExcusedTable, excused_tables, mentioned_tables
from wane._rules.holds import lost_holds, report_lost_holds
from wane._rules.indexes import check_age_index, observed
from wane._rules.partitions import partition_misfit
from wane._rules.references import check_references
from wane._rules.report import Report, rule_path
from wane._rules.rows import rows_of
from wane._rules.selection import READABLE, Selection, bind_age, bind_contract
from wane.errors import BindError, SparkError

_MONTH = re.compile(r"(?P<table>.+?)_(?:before_)?\d{6}(?:\d{2}(?:\d{6})?)?(?:_with)?")
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
        with report.isolate(selection.name, rule_path(selection)):
            check_indexes(store, selection, lambda table: rows(table.qualified), report)
            check_times(store, selection, now, seconds, report)
            check_done(store, selection, now, seconds, report)
        if isinstance(selection.rule.action, ToArchive):
            report.findings += _unarchivable(store, contract, selection)
    for table in contract.tables:
        ruled = [one for one in selections if one.name == table.name]
        with report.isolate(table.name, key_path(["table", table.name])):
            check_selected(store, ruled, seconds, report)
        age, findings = bind_age(contract, table, schema, store.types)
        report.findings += findings
        if age is not None and ruled:
            check_age_index(store, table, observed(ruled[0], *age), report)
    _check_partitions(store, contract, schema, report)
    _check_tables(store, contract, schema, seconds, Severity.ERROR if strict else Severity.WARNING, report)
    return report.findings


def _unarchivable(store: Store, contract: Contract, selection: Selection) -> Sequence[Finding]:
    """Report what the archive cannot store of a rule's rows."""
    file = "" if contract.path is None else str(contract.path)
    try:
        bound = bind_archive(rows_of(store), archive_dialect(store), selection, contract.archive, file)
    except BindError as problem:
        return [contract.located(one) for one in problem.findings]
    return [contract.located(one) for one in _misprojected(contract, bound, file)] if bound.is_projected else ()


def _misprojected(contract: Contract, bound: ArchiveRows, file: str) -> Iterator[Finding]:
    """Report what Spark refuses of a projection; it is started for that, and nothing runs on it."""
    from wane._archive.query.evaluation import projected_shape
    from wane._archive.rows.projection import UnfitProjection
    from wane._archive.spark import executor
    from wane._archive.spark.session import stopped_when_idle

    row = bound.parts[0]
    path = key_path(["archive", row.name])
    try:
        with stopped_when_idle(contract.spark.idle_stop):
            spark = executor.default(contract.spark, lambda _: None).spark()
            projected_shape(spark, row.name, row.projection, row.hot_shape)
    except UnfitProjection as problem:
        yield Finding(Severity.ERROR, problem.code, problem.message, problem.fix, file, path, row.name)
    except SparkError as problem:
        message = f"the types of `select` were not checked, because Spark does not start: {problem.message}"
        yield Finding(Severity.NOTE, "unchecked-projection", message, problem.hint, file, path, row.name)


def _check_partitions(store: Store, contract: Contract, schema: Schema, report: Report) -> None:
    """Report partitions that the application makes, by the contract, and that can never be retired."""
    for one in contract.partitions:
        for name, time in ((one.table, one.time), *one.followers) if one.by_application else ():
            info = schema.find(name.schema, name.name)
            misfit = None if info is None else partition_misfit(store, info, time)
            if misfit is not None:
                path = key_path(["partition", one.table])
                report.add(Severity.ERROR, "wrong-partitions", name, path, *misfit)


def _check_tables(
    store: Store, contract: Contract, schema: Schema, seconds: float, strictness: Severity, report: Report
) -> None:
    excused = excused_tables(contract, schema)
    _check_named(contract, schema, excused, report)
    for one in excused:
        with report.isolate(one.name, one.path):
            check_excuse(store, one, seconds, report)
    _list_matches(contract, excused, report)
    for table in contract.tables:
        info = schema.find(table.name.schema, table.name.name)
        if info is not None and info.kind in READABLE:
            with report.isolate(table.name, key_path(["table", table.name])):
                check_states(store, table, info, seconds, strictness, report)
    for shown, info in _unmentioned(contract, schema):
        if tool := bookkeeping_tool(info):
            message = f"recognised as {tool}'s record of schema changes: it needs no rule and no excuse"
            report.add(Severity.NOTE, "bookkeeping-table", shown, "", message)
        else:
            fix = f"add [{key_path(['table', shown])}] with a rule, or give the reason under [excused]"
            report.add(strictness, "uncovered-table", shown, "", UNCOVERED, fix)


def _check_named(contract: Contract, schema: Schema, excused: Sequence[ExcusedTable], report: Report) -> None:
    """Check that tables which the contract names are in the database, and are named once."""
    named: dict[tuple[str, str], TableName] = {}
    ruled = [(table.name, key_path(["table", table.name])) for table in contract.tables]
    for name, path in [*ruled, *((one.name, one.path) for one in excused)]:
        info = schema.find(name.schema, name.name)
        if info is None:
            if (name, path) not in ruled or not any(rule.active for rule in contract.table(name).rules):
                # Binding has reported it for all others.
                message = f"the database has no table {name}"
                report.add(Severity.WARNING, "missing-table", name, path, message, "remove it here")
            continue
        other = named.setdefault(info.qualified, name)
        if other != name:
            message = f"{name} and {other} are the same table, {info.schema}.{info.name}"
            report.add(Severity.ERROR, "declared-twice", name, path, message, "keep one of the two")


def _list_matches(contract: Contract, excused: Sequence[ExcusedTable], report: Report) -> None:
    """List the tables that each pattern excuses, so that one that matches later is seen; report one without any."""
    for pattern in [name for name, _ in contract.excused if name.is_pattern]:
        path = key_path(["excused", pattern])
        tables = [str(one.name) for one in excused if one.key == pattern]
        if tables:
            message = f"{pattern} excuses {many(len(tables), 'table')}: {', '.join(tables)}"
            report.add(Severity.NOTE, "excused-by-pattern", pattern, path, message)
        else:
            message = f"the database has no table that matches {pattern} and is not named elsewhere"
            report.add(Severity.WARNING, "missing-table", pattern, path, message, "remove it here")


def uncovered(contract: Contract, schema: Schema) -> list[TableName]:
    """Return the tables that the contract should cover and does not."""
    return [name for name, info in _unmentioned(contract, schema) if not bookkeeping_tool(info)]


def _unmentioned(contract: Contract, schema: Schema) -> list[tuple[TableName, TableInfo]]:
    """Return the tables that are neither ruled nor excused, and follow no other."""
    excused = {one.info.qualified for one in excused_tables(contract, schema) if one.info is not None}
    named = mentioned_tables(contract, schema) | excused
    names = {table.name.name for table in contract.tables} | {name.name for name, _ in contract.excused}
    names |= {follower.reference.table.name for _, _, follower in contract.followers()}
    # References from any schema matter, so all schemas are read; only those that the contract is for must be covered.
    schemas = contract.store.schemas
    return [
        (TableName(info.name, None if info.schema in schema.search_path[:1] else info.schema), info)
        for info in schema.tables
        if (not schemas or info.schema in schemas)
        and info.kind in HOLDS_ROWS
        and info.parent is None
        and not info.is_side_table
        and info.qualified not in named
        and not _archived(contract, info, names)
    ]


def _archived(contract: Contract, info: TableInfo, names: set[str]) -> bool:
    """Check whether a table is a month that was moved to the schema of archived tables: it is retained on purpose."""
    match = _MONTH.fullmatch(info.name)
    return info.schema == contract.roles.archive_schema and match is not None and match["table"] in names
