"""`wane migrate`: Wane's own tables."""

from __future__ import annotations

import typer
from rich.markup import escape

from wane._cli.fleet import Listed, across
from wane._cli.harness import Call, CommandResult, command
from wane._cli.options import FleetOption, PrintOption
from wane._cli.output import print_line
from wane._contract.settings import StoreSettings
from wane._db import open_store
from wane._db.migrations import pending_script
from wane._db.url import resolve_url
from wane._keeper import database_url

app = typer.Typer()


_APPLIED = Listed(
    ("applied",),
    (),
    lambda applied: [(", ".join(applied) or "up to date",)],
    lambda applied: {"migrated": int(bool(applied))},
)


@command(app, "migrate")
def migrate(call: Call, print_: PrintOption = False, fleet: FleetOption = None) -> CommandResult:
    """Create or update Wane's own tables. Safe to repeat, and safe when several processes start at once.

    With --url no contract is needed.
    """
    if fleet is not None:
        if print_:
            raise typer.BadParameter("SQL is printed for one database", param_hint="--print")
        return across(call, fleet, lambda keeper: keeper.migrate(), _APPLIED, doing="migrate")
    if call.url is None:
        contract = call.load()
        database, settings = database_url(None, contract), contract.store
    else:
        database, settings = resolve_url(call.url), StoreSettings()
    with open_store(database, settings, read_only=print_) as store:
        if print_:
            pending = pending_script(store)
            script = "".join(f"-- {one.name}\n{one.sql}\n" for one in pending)
            data = {"pending": [{"name": one.name, "sql": one.sql} for one in pending]}
            return CommandResult(data, lambda: typer.echo(script, nl=False))
        applied, name = store.migrate(), store.shown
    text = f"applied {', '.join(applied)}" if applied else "up to date"
    return CommandResult({"applied": applied}, lambda: print_line(f"{escape(name)}: {text}"))
