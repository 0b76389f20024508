"""Wane makes operational tables forget on purpose.

import wane

with wane.open("sqlite:///state.db", contract="wane.toml") as keeper:
    for step in keeper.plan().steps:
        print(step.table, step.rule, step.due)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wane.async_keeper import AsyncKeeper
    from wane.contract.load import load_contract, read_contract
    from wane.contract.model import Contract
    from wane.contract.settings import Budget
    from wane.errors import WaneError
    from wane.findings import Finding, Severity
    from wane.keeper import Keeper
    from wane.keeper import open_keeper as open
    from wane.ledger import AuditEntry, Hold
    from wane.prune.pace import FAST, Pace
    from wane.prune.plan import Plan, Step, read_plan
    from wane.prune.primitive import Pruned
    from wane.prune.sweep import Outcome, Sweep

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

_MODULES = {
    "FAST": "prune.pace",
    "AsyncKeeper": "async_keeper",
    "AuditEntry": "ledger",
    "Budget": "contract.model",
    "Contract": "contract.model",
    "Finding": "findings",
    "Hold": "ledger",
    "Keeper": "keeper",
    "Outcome": "prune.sweep",
    "Pace": "prune.pace",
    "Plan": "prune.plan",
    "Pruned": "prune.primitive",
    "Severity": "findings",
    "Step": "prune.plan",
    "Sweep": "prune.sweep",
    "WaneError": "errors",
    "load_contract": "contract.load",
    "open": "keeper",
    "read_contract": "contract.load",
    "read_plan": "prune.plan",
}


def __getattr__(name: str) -> Any:
    """Import a public name, or a module, on first use: the command must respond to an interrupt during its imports."""
    if name in _MODULES:
        value = getattr(import_module(f"wane.{_MODULES[name]}"), "open_keeper" if name == "open" else name)
    elif name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        try:
            value = import_module(f"wane.{name}")
        except ModuleNotFoundError as problem:
            if problem.name != f"wane.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = value
    return value
