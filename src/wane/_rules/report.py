"""Collecting findings about a contract's tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wane._contract.mistakes import key_path
from wane._contract.model import Contract
from wane._findings import Finding, Severity
from wane._rules.selection import Selection
from wane.errors import StoreError, Unreachable


def rule_path(selection: Selection) -> str:
    """Return the key path at which the contract states a rule."""
    return key_path(["table", selection.name, "rule", selection.rule.name])


class Report:
    """The findings of comparing a contract with a database."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.file = "" if contract.path is None else str(contract.path)
        self.findings: list[Finding] = []

    def add(self, severity: Severity, code: str, table: object, path: str, message: str, fix: str = "") -> None:
        """Record a finding once; several rules of a table may cause the same one."""
        finding = self.contract.located(
            Finding(severity, code, message, fix, self.file if path else "", path, str(table))
        )
        if finding not in self.findings:
            self.findings.append(finding)

    @contextmanager
    def isolate(self, table: object, path: str) -> Iterator[None]:
        """Let a table that the database refuses to read fail alone: report it, and let the others be checked."""
        try:
            yield
        except Unreachable:
            raise
        except StoreError as problem:
            self.add(Severity.ERROR, "unreadable-table", table, path, problem.message, problem.hint)
