"""`wane migrate`: Wane's own tables."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import print_json, say
from wane.contract.load import load_contract
from wane.contract.model import StoreSettings
from wane.db import open_store
from wane.db.url import resolve_url
from wane.keeper import database_url


def migrate(
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    print_: Annotated[bool, typer.Option("--print", help="Print the SQL that is missing, and run nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create or update Wane's own tables. Safe to repeat, and safe when several processes start at once."""
    if url is None:
        loaded = load_contract(contract)
        database, settings = database_url(None, loaded), loaded.store
    else:
        database, settings = resolve_url(url), StoreSettings()
    with open_store(database, settings, read_only=print_) as store:
        if print_:
            pending = store.pending_migrations()
            if as_json:
                print_json({"pending": [{"name": one.name, "sql": one.sql} for one in pending]})
            else:
                typer.echo("".join(f"-- {one.name}\n{one.sql}\n" for one in pending), nl=False)
            return
        done = store.migrate()
        if as_json:
            print_json({"applied": done})
        else:
            told = f"applied {', '.join(done)}" if done else "up to date"
            say(f"{escape(store.shown)}: {told}")
