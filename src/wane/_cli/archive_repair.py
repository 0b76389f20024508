"""`wane archive repair | adopt`: an archive whose log has lost commits, or whose database is another one by now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from wane._cli.archive import app, starting
from wane._cli.archive_maintenance import TablesArgument
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.output import console, many, print_line

if TYPE_CHECKING:
    from wane._archive.maintenance.repair import Repaired


@command(app, "repair", Services(actor=True))
def archive_repair(call: Call, only: TablesArgument = None) -> CommandResult:
    """Write back entries that the archive's log has lost.

    First the files that they name are read back. Where the database has no copy of an entry, sweeps, expiries and
    compactions are committed again from its journal. No hot row changes.
    """
    done = call.open().archive.repair(*(only or ()), starting=starting)
    return CommandResult(done, lambda: _print_repaired(done))


def _print_repaired(done: Sequence[Repaired]) -> None:
    for one in done:
        if not one.lost:
            console().print(f"{escape(', '.join(one.lost_by_table))}: no commit is missing")
            continue
        tables = ", ".join(name for name, lost in one.lost_by_table.items() if lost)
        missing = f"{many(one.lost, 'commit')} {'was' if one.lost == 1 else 'were'} missing"
        how = "entries of the log written back" if one.written_back else "committed again"
        sweeps = ", ".join(str(number) for number in one.sweeps) or "none"
        console().print(f"{escape(tables)}: {missing}: {how}; sweeps among them: {sweeps}")
        for job in one.given_up:
            print_line(
                f"{escape(job)} could not be made again: nothing is lost, what it replaced is in the archive as before;"
                " the next expiry or compaction does it anew"
            )
    if any(one.lost for one in done):
        print_line("read all files back: `wane archive verify`")


@command(app, "adopt", Services(actor=True))
def archive_adopt(
    call: Call,
    as_new: Annotated[
        bool,
        typer.Option(
            "--as-new", help="For a clone beside its original: begin an archive of its own, and leave the other."
        ),
    ] = False,
) -> CommandResult:
    """Make this database the one that writes to the archive.

    For a database that was restored into another server or copied to another file, and for an archive that was moved
    away so that a new one begins. A database that wrote to the archive before is refused from then on.
    """
    adopted = call.open().archive.adopt(as_new=as_new)
    return CommandResult(adopted, lambda: console().print(f"adopted: {escape(', '.join(adopted.tables))}"))
