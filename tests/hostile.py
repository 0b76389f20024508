"""A database in which a user shadows PostgreSQL's own functions and operators, and what of it was called.

Every name that Wane's SQL uses gets namesakes in the schema `evil`, for arguments that PostgreSQL's own take only by a
cast: those are the better match, wherever in a search path their schema stands. A call leaves a file beside the
server's data, which no rollback removes and no read-only transaction prevents.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import psycopg

import wane

ONE = (
    "text",
    "integer",
    "bigint",
    "jsonb",
    "json",
    "timestamptz",
    "name",
    "oid",
    "regclass",
    "regproc",
    "boolean",
    "float8",
    "numeric",
    "text[]",
)
TWO = ("text", "integer", "bigint", "jsonb", "timestamptz", "name", "regclass")
THREE = ("text", "integer", "bigint")
OPERATORS = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "~", "!~", "~~", "?"), "boolean"),
    **dict.fromkeys(("||", "->", "->>"), "text"),
    **dict.fromkeys(("+", "-", "*", "/"), "bigint"),
}
OPTIONS = "options=-csearch_path%3Dpublic,evil"
"""What a URL says for a session that finds them."""
_TYPES = {1: ONE, 2: TWO, 3: THREE}
_NAME = re.compile(r"\b([a-z_0-9]+)\(")
_SETUP = r"""
CREATE SCHEMA evil;
CREATE FUNCTION evil.called(what pg_catalog.text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  EXECUTE format('COPY (SELECT %L) TO %L', what, format('%s/hijacked-%s', current_setting('data_directory'), current_database()));
END $$;
"""


def names() -> list[str]:
    """Return every name before a bracket in Wane's sources: the functions that its SQL calls are among them."""
    root = Path(wane.__file__).parent
    sources = [*root.rglob("*.py"), *root.rglob("*.postgres.sql")]
    return sorted({name for source in sources for name in _NAME.findall(source.read_text())})


def shadow(connection: psycopg.Connection[Any]) -> None:
    """Create the namesakes."""
    connection.execute(_SETUP)
    known = connection.execute(
        "SELECT DISTINCT proname::text, CASE WHEN provariadic <> 0 THEN 0 ELSE pronargs END FROM pg_proc"
        " WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (%s)",
        [names()],
    ).fetchall()
    # Those that take any number of arguments get namesakes with one and with two.
    wanted = {(name, arity) for name, given in known for arity in ([given] if given else (1, 2)) if arity in _TYPES}
    statements = [
        _function(name, types, "text")
        for name, arity in sorted(wanted)
        for types in product(_TYPES[arity], repeat=arity)
    ]
    for number, (sign, returns) in enumerate(OPERATORS.items()):
        for left, right in product(ONE, repeat=2):
            statements += [
                _function(f"operator_{number}", (left, right), returns),
                f"CREATE OPERATOR evil.{sign} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = evil.operator_{number})",
            ]
    connection.execute(
        f"SET check_function_bodies = off; {'; '.join(statements)}; RESET check_function_bodies".encode()
    )


def _function(name: str, types: tuple[str, ...], returns: str) -> str:
    return (
        f'CREATE FUNCTION evil."{name}"({", ".join(types)}) RETURNS {returns} LANGUAGE plpgsql AS'
        f" $$ BEGIN PERFORM evil.called('{name}({', '.join(types)})'); RETURN NULL; END $$"
    )


def called(connection: psycopg.Connection[Any]) -> str | None:
    """Return the last of them that was called in this database; None if none was."""
    path = "format('%s/hijacked-%s', current_setting('data_directory'), current_database())"
    [(found,)] = connection.execute(f"SELECT pg_read_file({path}, 0, 1000, true)".encode()).fetchall()
    return None if found is None else str(found).strip()
