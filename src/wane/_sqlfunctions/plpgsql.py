"""Statements of the engine as PL/pgSQL: the same text, with literal values and the function's variables in its slots.

Invariant: nothing here decides what is due. `wane._rules` writes every statement over users' rows; this module only
replaces its placeholders.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from wane._contract.model import Time, Unit
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.plpgsql import Variables, dollars, plain
from wane._db.postgres.settings import SEARCH_PATH, function_settings
from wane._db.schema import Column
from wane._db.statement import Slot, Statement, TimeSlot
from wane._db.timestamps import PER_SECOND
from wane.errors import WrongArgument

_ZONES = (None, "UTC", "Etc/UTC")
PINNED = function_settings({"search_path": SEARCH_PATH})
"""The settings that every installed function has at least."""


def bounds(column: Column, time: Time, *, inclusive: bool) -> dict[str, tuple[str, str]]:
    """Return the variables that a column is compared with: their types, and how each follows from `wane_at`.

    They are the bounds of `wane._db.timestamps`, in SQL. Wall-clock times of a zone whose clocks change are refused:
    SQL cannot decide which of two equal hours is meant as that module does.
    """
    if time.zone not in _ZONES:
        raise WrongArgument(
            f"{time.column} holds wall-clock times of {time.zone}, which SQL cannot compare as exactly as Wane does",
            "prune this rule from Python or from the command line",
        )
    if time.unit in PER_SECOND:
        number = f"extract(epoch FROM wane_at) * {PER_SECOND[time.unit]}"
        if column.type in ("smallint", "integer", "bigint") or column.type.startswith(("text", "character varying")):
            return {"cutoff": ("bigint", f"{'floor' if inclusive else 'ceil'}({number})")}
        return {"cutoff": ("numeric", number)}
    wall = "wane_at AT TIME ZONE 'UTC'"
    if time.unit is Unit.NATIVE:
        if time.zone is None:
            return {"cutoff": ("timestamptz", "wane_at")}
        return {"cutoff": ("timestamp", wall)}
    if time.unit is Unit.DATE:
        day = f"({wall})::date - 1" if inclusive else f"({wall} - interval '1 microsecond')::date"
        return {"cutoff": ("date", day) if column.type == "date" else ("text", f"to_char({day}, 'YYYY-MM-DD')")}
    between = "T" if time.unit is Unit.ISO else " "
    written = f"""to_char(%s, 'YYYY-MM-DD"{between}"HH24:MI:SS')"""
    return {
        "cutoff_next_second": ("text", written % f"{wall} + interval '1 second'"),
        "cutoff_second": ("text", written % f"{wall}"),
        "cutoff": ("text", f"""to_char({wall}, 'YYYY-MM-DD"{between}"HH24:MI:SS.US') || '000'"""),
    }


def window_now(time: Time) -> tuple[str, str]:
    """Return the type of the variable that windows of rows count back from, and how it follows from `wane_at`."""
    if time.unit in PER_SECOND:
        return "bigint", "floor(extract(epoch FROM wane_at) * 1000000)"
    return "timestamptz", "wane_at"


def relative_to(now: str) -> Variables:
    """Write the bounds of times as expressions that follow from one for the time at which the statement runs."""

    def write(slot: Slot) -> str:
        assert isinstance(slot, TimeSlot)
        computed = bounds(slot.column, slot.time, inclusive=slot.inclusive) | {"window_now": window_now(slot.time)}
        # A lower bound on texts is compared to the second.
        since = computed.get("cutoff_second", computed["cutoff"])
        kind, text = since if slot.name == "since" else computed[slot.name]
        return f"({text.replace('wane_at', f'({now} + {interval(slot.offset)})')})::{kind}"

    return write


def dynamic(statement: Statement, variables: Variables) -> tuple[str, list[str]]:
    """Return a statement's text for EXECUTE, and the function's variables that `$1` and so on stand for."""
    used: list[str] = []

    def write(slot: Slot) -> str:
        name = variables(slot)
        if name not in used:
            used.append(name)
        return f"${used.index(name) + 1}"

    return plain(statement, write), used


def interval(length: timedelta) -> str:
    # Microseconds only: an interval of days would depend on the session's time zone.
    return f"interval '{length // timedelta(microseconds=1)} microseconds'"


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
