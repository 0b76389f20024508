"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wane.observe._log_options import LogFormat, LogLevel

CONTRACT = Path("wane.toml")

ContractOption = Annotated[Path, typer.Option("--contract", "-c", envvar="WANE_CONTRACT", help="The contract file.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", "-u", envvar="WANE_URL", metavar="URL", help="The database, instead of the one the contract names."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
MetricsFileOption = Annotated[
    Path | None,
    typer.Option("--metrics-file", help="Write metrics of this run there, also after a failure, for Prometheus."),
]
LogFormatOption = Annotated[
    LogFormat | None, typer.Option("--log-format", envvar="WANE_LOG_FORMAT", help="Log lines of key=value, or of JSON.")
]
LogLevelOption = Annotated[
    LogLevel | None, typer.Option("--log-level", envvar="WANE_LOG_LEVEL", help="Minimum log level on stderr.")
]
ActorOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The name in the audit trail; the user and the machine if left out.")
]
PrintOption = Annotated[bool, typer.Option("--print", help="Print the SQL that is missing, and run nothing.")]
FastOption = Annotated[bool, typer.Option("--fast", help="No pauses between batches: for maintenance windows.")]
WhereOption = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION", help="A condition over the row's columns in Spark's SQL, for example \"id < 10\"."
    ),
]
ShownOption = Annotated[int, typer.Option(min=1, max=10_000, help="The most to show.")]
FleetOption = Annotated[
    Path | None,
    typer.Option(
        "--fleet",
        metavar="FILE",
        help="Do it for every member of this fleet file, in one process, instead of for one contract.",
    ),
]
