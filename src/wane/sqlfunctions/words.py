"""Statements of the engine as PL/pgSQL: the same text, with literal values and times that the function computes.

Invariant: nothing here decides what is due. `Rows` and `PostgresTaking` write every statement over users' rows; this
module only replaces their placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from wane.contract.model import Time, Unit
from wane.db.postgres.catalog import OWN_SCHEMA
from wane.db.postgres.dialect import PostgresDialect
from wane.db.postgres.literal import literal
from wane.db.postgres.settings import SEARCH_PATH, function_settings
from wane.db.postgres.transaction import PostgresTransaction
from wane.db.schema import Column, TableInfo
from wane.db.statement import Parameters, Statement
from wane.db.timestamps import LATEST, PER_SECOND
from wane.errors import WrongArgument
from wane.prune.sql_postgres import PostgresTaking
from wane.rules.rows import Rows
from wane.rules.selection import BoundReference

ANY_MOMENT = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
"""The time that is passed to the engine while it writes statements: none of them contains it."""
_ZONES = (None, "UTC", "Etc/UTC")
NUMBERED = re.compile(r"_\d+$")
"""The suffix of a parameter's name that was already in use."""
_PLACEHOLDER = re.compile(r"%\((?P<name>\w+)\)s|%%")
PINNED = function_settings({"search_path": SEARCH_PATH})
"""The settings that every installed function has at least."""


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
    """PostgreSQL's dialect, with a variable of the function as the time to compare with."""

    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        known = set(p.values)
        written = super().before(p, alias, column, time, moment, inclusive=inclusive)
        if moment != LATEST and not time.also:
            # The text is the engine's; the values it just bound are replaced by what the function computes, for each
            # unit.
            for name in set(p.values) - known:
                p.values[name] = Variable(f"wane_{time.unit.value}_{NUMBERED.sub('', name)}")
        return written

    def decode_key(self, p: Parameters, name: str, column: Column, value: object) -> str:
        if not isinstance(value, Variable):
            return super().decode_key(p, name, column, value)
        written = super().decode_key(p, name, column, value.name)
        for bound, text in p.values.items():
            if text == value.name:
                p.values[bound] = value
        return written

    def equal(self, p: Parameters, name: str, expression: str, column: Column, value: object) -> str:
        known = super().equal(p, name, expression, column, value)
        if not isinstance(value, Variable):
            return known
        return f"({known} OR ({value.name} IS NULL AND {expression} IS NULL))"


class _Unrun(PostgresTransaction):
    """A transaction that runs nothing and records every statement."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        self.statements.append(Statement(text, dict(parameters)))
        return [(0, None)]


class Recorder(PostgresTaking):
    """Records the statements that would take rows."""

    def __init__(self, rows: Rows, closed: str = "") -> None:
        """Record into `statements`; `closed` is what a function runs once it has locked a table."""
        unrun = _Unrun()
        super().__init__(unrun, rows)
        self.statements = unrun.statements
        self.closing: list[str] = []
        """The statements that lock tables which no foreign key protects."""
        self._closed = closed

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
    """Return the variables that a column is compared with: their types, and how each follows from `wane_moment`.

    They are the bounds of `wane.db.timestamps`, in SQL. Wall-clock times of a zone whose clocks change are refused: SQL
    cannot decide which of two equal hours is meant as that module does.
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
    """Return a statement's text with its values as literals."""

    def write(match: re.Match[str]) -> str:
        return "%" if match["name"] is None else _value(statement.parameters[match["name"]])

    return _PLACEHOLDER.sub(write, statement.text)


def dynamic(statement: Statement) -> tuple[str, list[str]]:
    """Return a statement's text for EXECUTE, and the function's variables that `$1` and so on stand for.

    Other values are written as literals.
    """
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


def interval(length: timedelta) -> str:
    # Microseconds only: an interval of days would depend on the session's time zone.
    return f"interval '{length // timedelta(microseconds=1)} microseconds'"


def dollars(body: str) -> str:
    """Quote a body with a dollar tag that it does not contain."""
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
    """Write rows as an inline lookup table."""
    if not rows:
        return f"(SELECT {nothing} WHERE false) AS o({columns})"
    return f"(VALUES {', '.join('(' + ', '.join(row) + ')' for row in rows)}) AS o({columns})"
