"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wane.observe.logs import LogFormat, LogLevel

ContractOption = Annotated[
    Path, typer.Option("--contract", "-c", envvar="WANE_CONTRACT", help="The contract file.", show_default=True)
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", "-u", envvar="WANE_URL", help="The database, instead of the one the contract names."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
MetricsFileOption = Annotated[
    Path | None,
    typer.Option("--metrics-file", metavar="FILE", help="Write metrics of this run there, for Prometheus to collect."),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", envvar="WANE_LOG_FORMAT", help="Lines of key=value, or of JSON.")
]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", envvar="WANE_LOG_LEVEL", help="Minimum log level on stderr.")
]
CONTRACT = Path("wane.toml")
