"""Findings of Wane as messages of Django's own checks: `manage.py check`, and before `migrate` and `runserver`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.core import checks

from wane._contract.load import load_contract
from wane._findings import Finding, Severity
from wane.contrib.django._settings import _setting, contract_path, database_url, open_keeper
from wane.errors import ContractError, WaneError

_LEVELS = {Severity.ERROR: checks.ERROR, Severity.WARNING: checks.WARNING, Severity.NOTE: checks.INFO}


def check_contract(app_configs: object = None, **options: Any) -> list[checks.CheckMessage]:
    """Check the settings and the contract's file, without a database."""
    try:
        database_url()
        load_contract(contract_path())
    except ContractError as problem:
        return _messages(problem.findings)
    except WaneError as problem:
        return [_unusable(problem)]
    return []


def check_database(
    app_configs: object = None, databases: Collection[str] | None = None, **options: Any
) -> list[checks.CheckMessage]:
    """Compare the contract with the database, where that one is checked: `manage.py check --database default`."""
    try:
        if _setting("database", "default") not in (databases or ()):
            return []
        with open_keeper(read_only=True) as keeper:
            return _messages(keeper.check())
    except ContractError:
        return []  # The other check reports it.
    except WaneError as problem:
        return [_unusable(problem)]


def _messages(findings: Iterable[Finding]) -> list[checks.CheckMessage]:
    return [
        checks.CheckMessage(_LEVELS[one.severity], one.message, hint=one.fix, obj=one.path, id=f"wane.{one.code}")
        for one in findings
    ]


def _unusable(problem: WaneError) -> checks.CheckMessage:
    return checks.Error(problem.message, hint=problem.hint or None, id="wane.unusable")
