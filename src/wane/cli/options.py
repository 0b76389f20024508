"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ContractOption = Annotated[
    Path, typer.Option("--contract", "-c", envvar="WANE_CONTRACT", help="The contract file.", show_default=True)
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", "-u", envvar="WANE_URL", help="The database, instead of the one the contract names."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
CONTRACT = Path("wane.toml")
