"""Statements of the engine as PL/pgSQL: the same text, with values written out and moments that the function computes itself.

Invariant: nothing here says what is due. `Rows` and `PostgresTransaction` write every statement over users' rows; this module only
replaces their placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql

from wane.contract.model import Time, Unit
from wane.errors import WrongArgument
from wane.store.moments import LATEST, PER_SECOND
from wane.store.postgres.dialect import PostgresDialect
from wane.store.postgres.reflect import OWN_SCHEMA
from wane.store.postgres.settings import SEARCH_PATH, function_settings
from wane.store.postgres.transaction import PostgresTransaction
from wane.store.rows import Rows
from wane.store.schema import Column, TableInfo
from wane.store.selection import BoundReference
from wane.store.statement import Parameters, Statement

ANY_MOMENT = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
"""What the engine is told the time is while it writes statements: none of them contains it."""
_ZONES = (None, "UTC", "Etc/UTC")
NUMBERED = re.compile(r"_\d+$")
"""What a name gets at its end when another value has it already."""
_PLACEHOLDER = re.compile(r"%\((?P<name>\w+)\)s|%%")
PINNED = function_settings({"search_path": SEARCH_PATH})
"""What every function that is installed says, at the least."""


class Variable(int):
    """A PL/pgSQL variable where the engine expects a value: a number, or, alone in a list, an array of texts."""

    name: str

    def __new__(cls, name: str) -> Variable:
        made = super().__new__(cls, 1)
        made.name = name
        return made

    def __repr__(self) -> str:
        return f"<{self.name}>"


class FunctionDialect(PostgresDialect):
    """PostgreSQL's words, where the moment to compare with is a variable of the function."""

    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        known = set(p.values)
        written = super().before(p, alias, column, time, moment, inclusive=inclusive)
        if moment != LATEST and not time.also:
            # The text is the engine's; what it just bound is replaced by what the function computes, for each unit on its own.
            for name in set(p.values) - known:
                p.values[name] = Variable(f"wane_{time.unit.value}_{NUMBERED.sub('', name)}")
        return written

    def back(self, p: Parameters, name: str, column: Column, value: object) -> str:
        if not isinstance(value, Variable):
            return super().back(p, name, column, value)
        written = super().back(p, name, column, value.name)
        for bound, text in p.values.items():
            if text == value.name:
                p.values[bound] = value
        return written

    def equal(self, p: Parameters, name: str, expression: str, column: Column, value: object) -> str:
        known = super().equal(p, name, expression, column, value)
        if not isinstance(value, Variable):
            return known
        return f"({known} OR ({value.name} IS NULL AND {expression} IS NULL))"


class Recorder(PostgresTransaction):
    """A transaction that runs nothing and remembers every statement it was to run."""

    def __init__(self, rows: Rows, closed: str = "") -> None:
        """`closed`: what a function does once it has locked a table."""
        self.rows = rows
        self.statements: list[Statement] = []
        self.closing: list[str] = []
        """What a function does to lock tables that no foreign key protects."""
        self._closed = closed

    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        self.statements.append(Statement(text, dict(parameters)))
        return [(0, None)]

    def close(self, references: Sequence[tuple[TableInfo, BoundReference]], mode: str) -> bool:
        for parent, reference in sorted(references, key=lambda one: one[1].table.qualified):
            table = self.rows.dialect.table(reference.table)
            lock = f"{plain(Statement(f'LOCK TABLE {table} IN {mode} MODE', {}))}; {self._closed}"
            if reference.enforced:
                protection = plain(self.protection(parent, reference))
                lock = f"IF NOT (SELECT c.protected FROM ({protection}) AS c(kept, protected)) THEN {lock} END IF;"
            self.closing.append(lock)
        return bool(references)

    def last(self) -> Statement:
        return self.statements[-1]


def bounds(column: Column, time: Time, *, inclusive: bool) -> dict[str, tuple[str, str]]:
    """The variables that a column is compared with: their types, and how each follows from `wane_moment`.

    They are `wane.store.moments`' bounds, in SQL. Wall-clock times of a zone whose clocks change are refused: which of two equal
    hours is meant cannot be said in SQL as that module says it.
    """
    if time.zone not in _ZONES:
        raise WrongArgument(
            f"{time.column} holds wall-clock times of {time.zone}, which SQL cannot compare as exactly as Wane does",
            "prune this rule from Python or from the command line",
        )
    if time.unit in PER_SECOND:
        number = f"extract(epoch FROM wane_moment) * {PER_SECOND[time.unit]}"
        if column.type in ("smallint", "integer", "bigint") or column.type.startswith(("text", "character varying")):
            return {"cutoff": ("bigint", f"{'floor' if inclusive else 'ceil'}({number})")}
        return {"cutoff": ("numeric", number)}
    wall = "wane_moment AT TIME ZONE 'UTC'"
    if time.unit is Unit.NATIVE:
        if time.zone is None:
            return {"cutoff": ("timestamptz", "wane_moment")}
        return {"cutoff": ("timestamp", wall)}
    between = "T" if time.unit is Unit.ISO else " "
    written = f"""to_char(%s, 'YYYY-MM-DD"{between}"HH24:MI:SS')"""
    return {
        "cutoff_next_second": ("text", written % f"{wall} + interval '1 second'"),
        "cutoff_second": ("text", written % f"{wall}"),
        "cutoff": ("text", f"""to_char({wall}, 'YYYY-MM-DD"{between}"HH24:MI:SS.US') || '000'"""),
    }


def plain(statement: Statement) -> str:
    """A statement's text with its values written out."""

    def write(match: re.Match[str]) -> str:
        return "%" if match["name"] is None else _value(statement.parameters[match["name"]])

    return _PLACEHOLDER.sub(write, statement.text)


def dynamic(statement: Statement) -> tuple[str, list[str]]:
    """A statement's text for EXECUTE, with its values written out and `$1` and so on for the function's variables, and those."""
    variables: list[str] = []

    def write(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "%"
        value = statement.parameters[match["name"]]
        if isinstance(value, list) and len(value) == 1:
            [value] = value if isinstance(value[0], Variable) else [value]
        if not isinstance(value, Variable):
            return literal(value)
        if value.name not in variables:
            variables.append(value.name)
        return f"${variables.index(value.name) + 1}"

    return _PLACEHOLDER.sub(write, statement.text), variables


def _value(value: object) -> str:
    if isinstance(value, Variable):
        return value.name
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Variable):
        return value[0].name
    return literal(value)


def literal(value: object) -> str:
    """A value as SQL writes it."""
    return sql.Literal(value).as_string(None).strip()


def interval(length: timedelta) -> str:
    # Microseconds only: an interval of days would follow the session's zone.
    return f"interval '{length // timedelta(microseconds=1)} microseconds'"


def dollars(body: str) -> str:
    """A body between dollar signs that it does not contain itself."""
    tag, number = "$wane$", 0
    while tag in body:
        number += 1
        tag = f"$wane{number}$"
    return f"{tag}\n{body}\n{tag}"


def plpgsql(name: str, parameters: str, body: str, *, returns: str = "jsonb") -> str:
    return (
        f"CREATE OR REPLACE FUNCTION {OWN_SCHEMA}.{name}({parameters}) RETURNS {returns} LANGUAGE plpgsql\n"
        f"{PINNED}\nAS {dollars(body)}"
    )


def wrong(message: str, hint: str = "''") -> str:
    return f"RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = {message}, HINT = {hint};"


def table_of(rows: Sequence[Sequence[str]], columns: str, nothing: str) -> str:
    """A list of what is offered, as a table to look things up in."""
    if not rows:
        return f"(SELECT {nothing} WHERE false) AS o({columns})"
    return f"(VALUES {', '.join('(' + ', '.join(row) + ')' for row in rows)}) AS o({columns})"
