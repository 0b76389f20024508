"""Statements inside PL/pgSQL functions: the same text, with literal values, and the function's variables in its
slots."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from psycopg import sql

from wane._db.statement import Slot, Statement

Variables = Callable[[Slot], str]
"""Writes what fills a slot inside a function."""
_PLACEHOLDER = re.compile(r"%\((?P<name>\w+)\)s|%%")


def literal(value: object) -> str:
    """Write a value as a SQL literal."""
    return sql.Literal(value).as_string(None).strip()


def no_slots(slot: Slot) -> str:
    """Refuse a statement whose values are not all known."""
    raise TypeError(f"no variable fills {slot}")


def plain(statement: Statement, variables: Variables = no_slots) -> str:
    """Return a statement's text with its values as literals, and its slots as a function writes them."""

    def write(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "%"
        value = statement.parameters[match["name"]]
        return variables(value) if isinstance(value, Slot) else literal(value)

    return _PLACEHOLDER.sub(write, statement.text)


def dollars(body: str) -> str:
    """Quote a body with a dollar tag that it does not contain."""
    tag, number = "$wane$", 0
    while tag in body:
        number += 1
        tag = f"$wane{number}$"
    return f"{tag}\n{body}\n{tag}"


@dataclass(frozen=True, slots=True)
class SessionFunction:
    """A function or a procedure that belongs to one session, and the statement that calls it."""

    name: str
    definition: str
    call: str
    """With the values of its parameters, in their order, as PostgreSQL's own placeholders."""


def session_function(parameters: Mapping[str, str], outputs: Mapping[str, str], body: str) -> SessionFunction:
    """Write a function of a session from the types of its parameters and outputs; its name follows from its text."""
    name, definition = _define("FUNCTION", parameters, outputs, body)
    return SessionFunction(name, definition, f"SELECT * FROM {name}({_values(parameters)})")


def session_procedure(parameters: Mapping[str, str], outputs: Mapping[str, str], body: str) -> SessionFunction:
    """Write a procedure of a session: like a function, but it may commit."""
    name, definition = _define("PROCEDURE", parameters, outputs, body)
    return SessionFunction(name, definition, f"CALL {name}({_values(parameters)}{', NULL' * len(outputs)})")


def _define(what: str, parameters: Mapping[str, str], outputs: Mapping[str, str], body: str) -> tuple[str, str]:
    declared = [*(f"{name} {kind}" for name, kind in parameters.items())]
    declared += [f"OUT {name} {kind}" for name, kind in outputs.items()]
    text = f"({', '.join(declared)}) LANGUAGE plpgsql\nAS {dollars(body)}"
    name = f"pg_temp.wane_{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}"
    return name, f"CREATE OR REPLACE {what} {name}{text}"


def _values(parameters: Mapping[str, str]) -> str:
    return ", ".join(f"${number}::{kind}" for number, kind in enumerate(parameters.values(), start=1))
