"""Completing names of tables and rules in a shell. They come from the contract; no database is opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from wane._cli.options import CONTRACT
from wane._contract.load import read_contract
from wane._contract.model import Contract


def complete(info: Any) -> None:
    """Let an argument or option whose placeholder is TABLE complete its values, with rules if it takes those."""
    metavar = getattr(info, "metavar", None) or ""
    if metavar.startswith("TABLE") and info.autocompletion is None:
        info.autocompletion = complete_rules if "RULE" in metavar else complete_tables


def complete_tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables of the contract that begin with what was typed."""
    contract = _contract(ctx)
    names = [] if contract is None else [str(table.name) for table in contract.tables]
    return [name for name in names if name.startswith(incomplete)]


def complete_rules(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables of the contract, and their rules, that begin with what was typed."""
    contract = _contract(ctx)
    rules = [] if contract is None else [f"{table.name}.{rule.name}" for table, rule in contract.rules()]
    return complete_tables(ctx, incomplete) + [name for name in rules if name.startswith(incomplete)]


def _contract(ctx: typer.Context) -> Contract | None:
    named = ctx.params.get("contract") or os.environ.get("WANE_CONTRACT") or CONTRACT
    return read_contract(Path(named)).contract
