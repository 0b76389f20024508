"""Wane makes operational tables forget on purpose.

import wane

with wane.open("sqlite:///state.db", contract="wane.toml") as keeper:
    for step in keeper.plan().steps:
        print(step.table, step.rule, step.due)
"""

from __future__ import annotations

from wane.async_keeper import AsyncKeeper
from wane.contract.load import load_contract, read_contract
from wane.contract.model import Budget, Contract
from wane.errors import WaneError
from wane.findings import Finding, Severity
from wane.keeper import Keeper
from wane.keeper import open_keeper as open
from wane.plan.model import Plan, Step, read_plan
from wane.prune.pace import FAST, Pace
from wane.prune.primitive import Pruned
from wane.prune.sweep import Outcome, Sweep
from wane.store.own import AuditEntry, Hold

__version__ = "0.1.0"

__all__ = [
    "FAST",
    "AsyncKeeper",
    "AuditEntry",
    "Budget",
    "Contract",
    "Finding",
    "Hold",
    "Keeper",
    "Outcome",
    "Pace",
    "Plan",
    "Pruned",
    "Severity",
    "Step",
    "Sweep",
    "WaneError",
    "__version__",
    "load_contract",
    "open",
    "read_contract",
    "read_plan",
]
