"""`wane archive repair | adopt`: an archive whose log has lost commits, or whose database is another one by now."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.markup import escape

from wane.cli.archive import starting
from wane.cli.archive_life import TablesArgument
from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import console, many, print_json, say
from wane.cli.prune import ActorOption
from wane.keeper import open_keeper


def archive_repair(
    only: TablesArgument = None,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write back the entries that the log of an archive table has lost, after reading back the files that they name.

    Where the database has no copy of an entry, sweeps, expiries and compactions are committed again from its journal. No hot row changes.
    """
    with open_keeper(url, contract=contract, actor=actor) as keeper:
        done = keeper.archive.repair(*(only or ()), starting=starting)
    if as_json:
        print_json([asdict(one) for one in done])
        return
    for one in done:
        if not one.lost:
            console().print(f"{escape(one.table)}: no commit is missing")
            continue
        again = ", ".join(str(number) for number in one.sweeps) or "none"
        how = "entries of the log written back" if one.written_back else "committed again"
        console().print(
            f"{escape(one.table)}: {many(one.lost, 'commit')} were missing: {how}; sweeps among them: {again}"
        )
        for job in one.given_up:
            say(
                f"{escape(job)} could not be made again: nothing is lost, what it replaced is in the archive as before;"
                " the next expiry or compaction does it anew"
            )
    if any(one.lost for one in done):
        say("read all files back: `wane archive verify`")


def archive_adopt(
    actor: ActorOption = None, contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Make this database the one that writes to the archive, as the archive is now.

    For a database that was restored into another server or copied to another file, and for an archive that was moved away so that a new one
    begins. A database that wrote to the archive before is refused from then on.
    """
    with open_keeper(url, contract=contract, actor=actor) as keeper:
        adopted = keeper.archive.adopt()
    if as_json:
        print_json(asdict(adopted))
        return
    console().print(f"adopted: {escape(', '.join(adopted.tables))}")


def add_to(app: typer.Typer) -> None:
    """Put these commands among the archive's others."""
    app.command("repair")(archive_repair)
    app.command("adopt")(archive_adopt)
