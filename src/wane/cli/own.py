"""Commands that speak of Wane's own tables: they need a database, and a contract only to know which one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wane.cli.options import CONTRACT
from wane.contract.model import Contract
from wane.keeper import Keeper, open_keeper


def open_alone(url: str | None, contract: Path, **options: Any) -> Keeper:
    """Open a keeper; of a contract without tables, if a URL is given and no contract file is named or found."""
    alone = url is not None and contract == CONTRACT and not contract.exists()
    return open_keeper(url, contract=Contract(None, ()) if alone else contract, **options)
