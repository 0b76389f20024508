"""Finding tables and rules by the names that users type, with a helpful error for a name that is not found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from wane._contract.model import Contract, Rule, Table
from wane._contract.names import TableName
from wane._contract.refused import Refused
from wane._findings import did_you_mean
from wane.errors import UnknownRule, UnknownTable, WrongArgument

_MOST_LISTED = 20


def parse_table_name(text: str) -> TableName:
    """Return the name of a table that a user typed; raise WrongArgument if it is none."""
    try:
        return TableName.parse(text)
    except Refused as problem:
        raise WrongArgument(problem.message, problem.fix) from None


def find_table(contract: Contract, name: str) -> Table:
    """Return the table with rules of this name; raise UnknownTable if there is none."""
    for table in contract.tables:
        if str(table.name) == name:
            return table
    for excused, excuse in contract.excused:
        if str(excused) == name or (excused.is_pattern and _matches(excused, name)):
            raise UnknownTable(
                f"{name} has no rules: it is excused as {excuse.kind.value} ({excuse.reason})",
                f"to give it rules, declare [table.{name}] instead of the excuse",
            )
    led = (f"{table.name}.{rule.name}" for table, rule, one in contract.followers() if str(one.reference.table) == name)
    if leaders := list(dict.fromkeys(led)):
        raise UnknownTable(
            f"{name} has no rules of its own: its rows leave with those of {', '.join(leaders)}",
            "name a table, or a rule, that its rows follow",
        )
    names = [str(table.name) for table in contract.tables]
    rules = [f"{table.name}.{rule.name}" for table in contract.tables for rule in table.rules]
    raise UnknownTable(f"the contract has no table {name!r}", did_you_mean(name, [*names, *rules]) or _list(names))


def find_unqualified(names: Iterable[TableName], name: str) -> TableName | None:
    """Return the one of these names that is `name` in any schema; None if there is none. Raise if there are several."""
    found = [one for one in names if one.name == name]
    if len(found) > 1:
        raise WrongArgument(f"the contract has {name} in several schemas: {', '.join(map(str, found))}")
    return found[0] if found else None


def _matches(pattern: TableName, name: str) -> bool:
    try:
        return pattern.covers(TableName.parse(name))
    except ValueError:
        return False


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"its tables: {', '.join(names[:_MOST_LISTED])}{more}" if names else ""


def find_rule(table: Table, name: str) -> Rule:
    """Return the table's rule of this name; raise UnknownRule if there is none."""
    for rule in table.rules:
        if rule.name == name:
            return rule
    names = [rule.name for rule in table.rules]
    hint = did_you_mean(name, names) or f"rules: {', '.join(names)}"
    raise UnknownRule(f"{table.name} has no rule {name!r}", hint)


def is_named(names: Collection[str], table: object, rule: str) -> bool:
    """Check whether names of tables (`table`) and rules (`table.rule`) include a rule."""
    return str(table) in names or f"{table}.{rule}" in names


def require_known(contract: Contract, names: Collection[str]) -> None:
    """Raise if a name is neither a `table` nor a `table.rule` of the contract."""
    tables = {str(table.name) for table in contract.tables}
    for name in names:
        head, _, rule = name.rpartition(".")
        if name in tables:
            continue
        if head in tables:
            find_rule(find_table(contract, head), rule)
        else:
            find_table(contract, name)
