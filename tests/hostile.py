"""A database in which somebody shadows PostgreSQL's own functions and operators, and what of it was called.

Every name that Wane's SQL uses gets namesakes in the schema `evil`, for arguments that PostgreSQL's own take only by a cast: those are the better
match, wherever in a search path their schema stands. A call leaves a file beside the server's data, which no rollback removes and no read-only
transaction prevents.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

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
_NAME = re.compile(r"\b([a-z_0-9]+)\(")
_SETUP = r"""
CREATE SCHEMA evil;
CREATE FUNCTION evil.called(what pg_catalog.text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  EXECUTE format('COPY (SELECT %L) TO %L', what, format('%s/hijacked-%s', current_setting('data_directory'), current_database()));
END $$;
"""


def names() -> list[str]:
    """Every function that Wane's SQL may call."""
    sources = [*Path(wane.__file__).parent.rglob("*.py"), *Path(wane.__file__).parent.rglob("*.postgres.sql")]
    found = {name for source in sources for name in _NAME.findall(source.read_text())}
    return sorted(found)


def shadow(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Create the namesakes."""
    connection.execute(_SETUP)
    known = connection.execute(
        "SELECT proname::text, CASE WHEN provariadic <> 0 THEN 0 ELSE pronargs END, array_agg(proargtypes::regtype[]::text)"
        " FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (%s) AND prokind IN ('f', 'a', 'w')"
        " GROUP BY 1, 2",
        [names()],
    ).fetchall()
    arguments = {1: ONE, 2: TWO, 3: THREE}
    statements = []
    for name, arity in {(str(name), arity) for name, wide, _ in known for arity in ([wide] if wide else (1, 2))}:
        for types in product(arguments.get(int(str(arity)), ()), repeat=int(str(arity))):
            statements.append(_function(name, types, "text"))
    for number, (sign, returns) in enumerate(OPERATORS.items()):
        for types in product(ONE, repeat=2):
            statements.append(_function(f"operator_{number}", types, returns))
            statements.append(
                f"CREATE OPERATOR evil.{sign} (LEFTARG = {types[0]}, RIGHTARG = {types[1]}, FUNCTION = evil.operator_{number})"
            )
    connection.execute("SET check_function_bodies = off")
    connection.execute(";".join(statements).encode())
    connection.execute("RESET check_function_bodies")


def _function(name: str, types: tuple[str, ...], returns: str) -> str:
    return (
        f'CREATE FUNCTION evil."{name}"({", ".join(types)}) RETURNS {returns} LANGUAGE plpgsql AS'
        f" $$ BEGIN PERFORM evil.called('{name}({', '.join(types)})'); RETURN NULL; END $$"
    )


def called(connection: psycopg.Connection[tuple[object, ...]]) -> str | None:
    """The last of them that was called since the last time that somebody asked; None if none was."""
    path = "format('%s/hijacked-%s', current_setting('data_directory'), current_database())"
    [(found,)] = connection.execute(f"SELECT pg_read_file({path}, 0, 1000, true)").fetchall()
    connection.execute(f"SELECT 1 WHERE EXISTS (SELECT FROM pg_stat_file({path}, true) AS f WHERE f.size > 0)")
    if found:
        connection.execute(f"DO $$ BEGIN EXECUTE format('COPY (SELECT WHERE false) TO %L', {path}); END $$")
    return str(found).strip() if found else None
