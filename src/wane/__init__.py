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
    from wane._async_keeper import AsyncKeeper
    from wane._contract.load import load_contract, read_contract
    from wane._contract.model import Contract
    from wane._contract.settings import Budget
    from wane._findings import Finding, Severity
    from wane._keeper import Keeper
    from wane._keeper import open_keeper as open
    from wane._ledger import AuditEntry, Hold
    from wane._prune.pace import FAST, Pace
    from wane._prune.plan import Plan, Step, read_plan
    from wane._prune.primitive import Pruned
    from wane._prune.sweep import Outcome, Sweep
    from wane.errors import WaneError

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
    "FAST": "_prune.pace",
    "AsyncKeeper": "_async_keeper",
    "AuditEntry": "_ledger",
    "Budget": "_contract.settings",
    "Contract": "_contract.model",
    "Finding": "_findings",
    "Hold": "_ledger",
    "Keeper": "_keeper",
    "Outcome": "_prune.sweep",
    "Pace": "_prune.pace",
    "Plan": "_prune.plan",
    "Pruned": "_prune.primitive",
    "Severity": "_findings",
    "Step": "_prune.plan",
    "Sweep": "_prune.sweep",
    "WaneError": "errors",
    "load_contract": "_contract.load",
    "open": "_keeper",
    "read_contract": "_contract.load",
    "read_plan": "_prune.plan",
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
