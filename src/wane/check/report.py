"""Collecting findings about a contract's tables."""

from __future__ import annotations

from wane.contract.model import Contract
from wane.findings import Finding, Severity


class Report:
    """What is found while a contract is compared with a database."""

    def __init__(self, contract: Contract) -> None:
        self.file = "" if contract.path is None else str(contract.path)
        self.findings: list[Finding] = []

    def add(self, severity: Severity, code: str, table: object, place: str, message: str, fix: str = "") -> None:
        """Note a finding once; several rules of a table may run into the same one."""
        path = f"{place.removesuffix('.')}" if place else ""
        finding = Finding(severity, code, message, fix, self.file if path else "", path, str(table))
        if finding not in self.findings:
            self.findings.append(finding)
