"""`wane archive restore | restores | cancel-restore`: archived rows, back in the hot table or beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer
from rich.markup import escape

from wane._archive.model import DIFFERENT, OLDER, Restored, RestoreStatus
from wane._archive.restore.journal import OnConflict
from wane._cli.archive import TableArgument, app, starting
from wane._cli.confirm import NOTHING_DONE
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.options import FastOption, ShownOption, WhereOption
from wane._cli.output import console, counts_text, many, print_line, table
from wane._cli.values import parse_key, parse_length
from wane._formats import time_text
from wane._prune.pace import FAST

_SWEEP = re.compile(r"(?:archive-)?(\d+)(?:-[0-9a-f]+)?", re.ASCII)
"""A sweep's number, or the run of one of its ranges in the audit trail."""


@command(app, "restore", Services(actor=True, logs=True, progress=True, stops_after="batch"))
def restore(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose archived rows come back.")],
    where: WhereOption = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="SWEEP",
            help="Everything that one sweep moved: its number (`wane archive status`), or its run in the audit trail (archive-7).",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="One row; with commas between the columns of its key. Repeatable."),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Copy them into a side table, made if it is not there; what left with them goes to `<TABLE>_<follower>`.",
        ),
    ] = None,
    on_conflict: Annotated[
        OnConflict,
        typer.Option("--on-conflict", help="If another row has a key: restore nothing, leave that row, or replace it."),
    ] = OnConflict.REFUSE,
    protect: Annotated[
        str, typer.Option(metavar="DURATION", help="How long no sweep takes them again; 0 for not at all.")
    ] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come back, and change nothing.")] = False,
    fast: FastOption = False,
) -> CommandResult:
    """Restore archived rows, with everything that left with them.

    Into the hot table they move: once they are back, their copies leave the archive. Into a side table they are copied.
    After any interruption, running it again finishes the job. Ctrl-C and SIGTERM stop between two batches. Exits 1 if
    rows that were chosen could not come back, or if a key has no row; 4 if no row was chosen at all.
    """
    if (where is not None) + (run is not None) + bool(key) != 1:
        raise typer.BadParameter("choose the rows: exactly one of --where, --run and --key")
    keys = [dict(parse_key(part) for part in text.split(",")) for text in dict.fromkeys(key or ())]
    done = call.open().archive.restore(
        name,
        where=where,
        sweep=None if run is None else _sweep(run),
        keys=keys,
        into=into,
        on_conflict=on_conflict.value,
        protect=timedelta(0) if protect.strip() == "0" else parse_length(protect, "--protect"),
        dry_run=dry_run,
        pace=FAST if fast else None,
        stop=call.stop.event,
        starting=starting,
    )
    if done.stopped:
        return CommandResult(done, lambda: _print_stopped(done))
    missing = max(0, len(keys) - done.chosen.get(name, 0))
    expected = {OLDER, DIFFERENT} if on_conflict is OnConflict.SKIP else {OLDER}
    failed = missing or (done.unrestored and not {reason for _, reason in done.reasons} <= expected)
    nothing = not any(done.chosen.values())
    code = 1 if failed else NOTHING_DONE if nothing else 0
    return CommandResult(done, lambda: print_restored(done, missing), code)


def _print_stopped(done: Restored) -> None:
    came = counts_text(done.restored) or "no row"
    if done.id is None:
        print_line(f"stopped: {came} came back; run it again for the rest")
        return
    print_line(f"restore {done.id} was stopped: {came} came back so far")
    print_line(f"run it again to finish it, or end it where it is: `wane archive cancel-restore {done.id}`")


@command(app, "restores")
def restores(call: Call, name: TableArgument = None, limit: ShownOption = 20) -> CommandResult:
    """List restores, newest first: what was requested, how far each came, and what came back."""
    found = call.open().archive.restores(name, limit=limit)
    return CommandResult(found, lambda: _print_restores(found))


def _print_restores(found: Sequence[RestoreStatus]) -> None:
    heads = ("restore", "table", "requested", "state", "chosen", "came back", "stayed", "by", "since", "changed")
    shown = table(*heads, right=("restore", "chosen", "stayed"))
    for one in found:
        inputs = [f"{key} {value}" for key, value in one.inputs.items() if key not in ("into", "on_conflict")]
        shown.add_row(
            str(one.id),
            escape(one.table if one.into is None else f"{one.table} into {one.into}"),
            escape(", ".join(inputs)),
            f"[{'green' if one.state == 'done' else 'yellow'}]{one.state}[/]",
            f"{one.chosen:,}",
            counts_text(one.restored),
            f"{one.unrestored:,}",
            escape(one.actor),
            time_text(one.planned_at),
            time_text(one.changed_at),
        )
    console().print(shown)
    if not found:
        print_line("nothing was restored, or not lately")


@command(app, "cancel-restore", Services(actor=True))
def cancel_restore(
    call: Call,
    number: Annotated[int, typer.Argument(metavar="RESTORE", help="The number of a restore that is not finished.")],
) -> CommandResult:
    """End a restore that cannot finish: its schema is gone, for example, or its disk is full.

    Rows that are back in the hot table stay there and leave the archive; what was copied into a side table stays there;
    no other row comes back. The audit trail records it.
    """
    ended = call.open().archive.cancel_restore(number)
    came = counts_text(ended.restored) or "no row"
    text = f"restore {ended.id} of {escape(ended.table)} has ended: {came} came back, the rest stays in the archive"
    return CommandResult(ended, lambda: print_line(text))


def print_restored(done: Restored, missing: int = 0) -> None:
    """Print what came back, and what did not; `missing` keys have no row in the archive."""
    would = "would come back" if done.dry_run else "came back"
    shown = table("table", "chosen", would, right=("chosen", would))
    for name, chosen in done.chosen.items():
        shown.add_row(escape(name), f"{chosen:,}", f"{done.restored.get(name, 0):,}")
    console().print(shown)
    if not any(done.chosen.values()):
        print_line("the archive has no such row; what was restored has left it: `wane archive restores`")
    elif missing:
        print_line(
            f"the archive has no row for {many(missing, 'key')}; what was restored has left it: `wane archive restores`"
        )
    if done.existing:
        print_line(
            f"{many(done.existing, 'row')} {'was' if done.existing == 1 else 'were'} there already, exactly as archived"
        )
    if done.replaced:
        print_line(f"{many(done.replaced, 'row')} replaced others")
    if done.unrestored:
        print_line(
            f"[yellow]{many(done.unrestored, 'row')}[/] {'stays' if done.unrestored == 1 else 'stay'} in the archive:"
        )
        for key, reason in done.reasons:
            print_line(f"  {escape(key)}: {escape(reason)}")
    for name, rows in done.left_out.items():
        stay = "its copy stays" if rows == 1 else "their copies stay"
        print_line(
            f"[yellow]{escape(name)} is gone from the table:[/] {many(rows, 'row')} had a value, and {stay} in the archive"
        )
    if done.protected_until is not None:
        print_line(f"no sweep takes them before {time_text(done.protected_until)}")
    if done.into is not None and not done.dry_run:
        print_line(f"they are in [bold]{escape(done.into)}[/], and in the archive still")
    if done.dry_run:
        print_line(f"a dry run: {many(sum(done.restored.values()), 'row')} would come back, nothing was changed")


def _sweep(text: str) -> int:
    if found := _SWEEP.fullmatch(text):
        return int(found[1])
    raise typer.BadParameter(f"{text!r} is no number of a sweep", param_hint="--run")
