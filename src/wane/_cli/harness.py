"""One harness for all commands: common options, opening, printing, exit codes, signals.

A command declares its own options, makes one call on a keeper, and returns a `CommandResult`:

    @command(app, "pressure")
    def pressure(call: Call) -> CommandResult:
        found = call.open(read_only=True).pressure()
        return CommandResult(found, lambda: _print(found))

The options --contract, --url and --json, and on demand --actor, --metrics-file, --log-format and --log-level, are added
to those of its signature. What `Call.open` opened is closed before the result is printed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from wane._cli.completion import complete
from wane._cli.options import (
    CONTRACT,
    ActorOption,
    ContractOption,
    JsonOption,
    LogFormatOption,
    LogLevelOption,
    MetricsFileOption,
    UrlOption,
)
from wane._cli.output import document, print_json, write_lines
from wane._cli.signals import Stop
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._keeper import Keeper, open_keeper
from wane.observe._log_options import LogFormat, LogLevel

if TYPE_CHECKING:
    from wane._fleet.fleet import Fleet
    from wane.events import Event, Listener

WITHOUT_TABLES = Contract(None, ())
"""For commands that need Wane's own tables alone."""
Command = TypeVar("Command", bound=Callable[..., "CommandResult | None"])
_COMMON: dict[str, tuple[Any, object]] = {
    "metrics_file": (MetricsFileOption, None),
    "log_format": (LogFormatOption, None),
    "log_level": (LogLevelOption, None),
    "actor": (ActorOption, None),
    "contract": (ContractOption, CONTRACT),
    "url": (UrlOption, None),
    "as_json": (JsonOption, False),
}
"""Common options in the order in which --help lists them, with their defaults."""


@dataclass(frozen=True)
class CommandResult:
    """What a command found or did: as data for --json, as a function that prints it for people, and as an exit code."""

    data: object
    show: Callable[[], object]
    exit_code: int = 0
    versioned: bool = True
    """Whether the document begins with its format, as all do but those of a standard that has its own."""


@dataclass(frozen=True)
class Services:
    """What a command has beside --contract, --url and --json."""

    database: bool = True
    """The options --contract and --url."""
    actor: bool = False
    metrics: bool = False
    logs: bool = False
    progress: bool = False
    """Show progress on a terminal."""
    stops_after: str = ""
    """The unit of work (batch, step) after which SIGINT and SIGTERM stop a writing command; empty: they end it at
    once."""
    daemon: bool = False
    """It runs until a signal: log lines from the level info on, exit code 0 after a signal, and a second one ends it at
    once."""

    def options(self) -> list[str]:
        chosen = {
            "metrics_file": self.metrics,
            "log_format": self.logs,
            "log_level": self.logs,
            "actor": self.actor,
            "contract": self.database,
            "url": self.database,
            "as_json": True,
        }
        return [name for name in _COMMON if chosen[name]]


_READS = Services()


@dataclass
class Call:
    """One call of a command: its common options, and everything that is closed when it ends."""

    services: Services
    as_json: bool
    contract: Path = CONTRACT
    url: str | None = None
    actor: str | None = None
    metrics_file: Path | None = None
    log_format: LogFormat | None = None
    log_level: LogLevel | None = None
    stop: Stop = field(default_factory=Stop)
    _logging: bool = False
    _work: ExitStack = field(default_factory=ExitStack)
    _metrics: ExitStack = field(default_factory=ExitStack)

    def load(self, *, without_file: Contract | Path | None = None) -> Contract:
        """Load the contract, or `without_file` where a URL is given and no contract file is named or found."""
        if without_file is None or self.url is None or self.contract != CONTRACT or self.contract.exists():
            return load_contract(self.contract)
        return without_file if isinstance(without_file, Contract) else load_contract(without_file)

    def open(
        self, contract: Contract | None = None, *, read_only: bool = False, listeners: Sequence[Listener] = ()
    ) -> Keeper:
        """Open a keeper until the command returns. Metrics, progress and signals apply to the keeper that writes."""
        contract = self.load() if contract is None else contract
        listening = [*listeners]
        if self._logging:
            from wane.observe._logs import log_event

            listening.append(log_event)
        if self.metrics_file is not None and not read_only:
            from wane._cli.metrics_file import measured

            listening.append(self._metrics.enter_context(measured(self.metrics_file, contract, self.url)))
        if self.services.stops_after and not read_only:
            unit, twice = self.services.stops_after, self.services.daemon
            self._work.enter_context(self.stop.catch_signals(unit, twice=twice))
        if self.services.progress and not read_only:
            from wane._cli.progress import show_progress

            shown = show_progress(as_json=self.as_json or self._json_lines, as_log=self._logging)
            listening.append(self._work.enter_context(shown))

        def listener(event: Event) -> None:
            for one in listening:
                one(event)

        return self._work.enter_context(
            open_keeper(self.url, contract=contract, read_only=read_only, actor=self.actor, listener=listener)
        )

    def fleet(self, path: Path) -> Fleet:
        """Read a fleet file. Signals, progress and log lines are those of the whole fleet until the command returns."""
        from wane._fleet.fleet import Fleet
        from wane._fleet.reading import load_fleet

        if self.url is not None:
            raise typer.BadParameter("the fleet file names the databases", param_hint="--url")
        if self.metrics_file is not None:
            raise typer.BadParameter("metrics are those of one database", param_hint="--metrics-file")
        file = load_fleet(path)
        if self.services.stops_after:
            self._work.enter_context(self.stop.catch_signals(self.services.stops_after))
        from wane.events import ignore_event

        listener: Listener = ignore_event
        if self.services.progress:
            from wane._cli.progress import show_progress

            shown = show_progress(as_json=self.as_json or self._json_lines, as_log=self._logging)
            listener = self._work.enter_context(shown)
        return Fleet(file, actor=self.actor, listener=listener, of_members=self._on_member_event, stop=self.stop.event)

    def _on_member_event(self, member: str, event: Event) -> None:
        if self._logging:
            from wane.observe._logs import labelled, log_event

            with labelled(member=member):
                log_event(event)

    def run(self, function: Callable[..., CommandResult | None], arguments: dict[str, Any]) -> int:
        """Run a command, print its result, and return its exit code."""
        self._configure_logging()
        with self._metrics:
            with self._work:
                result = function(self, **arguments)
            if result is not None and (self.as_json or self._json_lines):
                made = document(result.data) if result.versioned else result.data
                print_json(made, indent=2 if self.as_json else None)
            elif result is not None:
                result.show()
        if result is not None and result.exit_code:
            return result.exit_code
        # A command that a signal stopped did not finish, and shells know these codes.
        return 128 + self.stop.signals[0] if self.stop.signals and not self.services.daemon else 0

    @property
    def _json_lines(self) -> bool:
        """Return whether a log reader gets every line: each is a JSON document."""
        return self.log_format is LogFormat.JSON

    def _configure_logging(self) -> None:
        """Write log lines if requested, and with --json; without either, failures are in the printed result, once."""
        wanted = self.log_level is not None or self.log_format is not None or self.as_json or self.services.daemon
        self._logging = self.services.logs and wanted
        if self._logging:
            from wane.observe._logs import configure_logging

            default = LogLevel.INFO if self.services.daemon else LogLevel.WARNING
            configure_logging(self.log_level or default, self.log_format or LogFormat.TEXT)
        write_lines(as_json=self._json_lines)


def command(app: typer.Typer, name: str, services: Services = _READS) -> Callable[[Command], Command]:
    """Add a command to an app, with the common options after its own."""
    common = [_option(one, *_COMMON[one]) for one in services.options()]

    def register(function: Command) -> Command:
        @wraps(function)
        def run(**given: Any) -> None:
            call = Call(services, **{one.name: given.pop(one.name) for one in common})
            code = call.run(function, given)
            if code:
                raise typer.Exit(code)

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]  # Without the call.
        for parameter in own:
            for info in getattr(parameter.annotation, "__metadata__", ()):
                complete(info)
        vars(run)["__signature__"] = inspect.Signature([*own, *common])
        app.command(name)(run)
        return function

    return register


def _option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
