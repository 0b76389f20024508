"""Airflow 3: an operator that sweeps, and a sensor that waits until nothing is overdue.

Both take the contract's path, and the database's URL or the name of an environment variable that holds it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

from wane._keeper import open_keeper
from wane.contrib._sweeping import sweep_or_raise


class WaneSweepOperator(BaseOperator):
    """Sweep what is due, and return the rows that left, by table. The task fails if a rule failed or waits for
    approval."""

    template_fields = ("contract", "url", "only")

    def __init__(self, *, contract: str, url: str | None = None, only: Collection[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self.contract = contract
        self.url = url
        self.only = list(only)

    def execute(self, context: Any) -> dict[str, int]:
        return sweep_or_raise(self.contract, url=self.url, only=self.only, actor=f"airflow {self.task_id}")


class WaneHealthSensor(BaseSensorOperator):
    """Wait until retention is healthy, as `wane health` judges it; `allow` names findings that do not matter here."""

    template_fields = ("contract", "url")

    def __init__(self, *, contract: str, url: str | None = None, allow: Collection[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self.contract = contract
        self.url = url
        self.allow = frozenset(allow)

    def poke(self, context: Any) -> bool:
        with open_keeper(self.url, contract=self.contract, read_only=True) as keeper:
            health = keeper.health()
        self.log.info("%s", health.verdict)
        return all(finding.code in self.allow for finding in health.findings if finding.severity == "error")
