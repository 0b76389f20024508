"""`wane archive restore`: archived rows, back in the hot table or beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer
from rich.markup import escape

from wane.archive.journal_restore import OnConflict
from wane.archive.model import Restored
from wane.cli.archive import TableArgument, starting
from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import console, counts_text, many, moment_text, print_json, say, table
from wane.cli.prune import ActorOption
from wane.contract.duration import parse_duration
from wane.keeper import open_keeper
from wane.prune.pace import FAST

_SHOWN = 20
_SWEEP = "archive-"
"""How the trail writes the run of an archive's sweep."""


def restore(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose archived rows come back.")],
    where: Annotated[
        str | None, typer.Option(help="A condition over the row's columns in Spark's SQL, for example \"id < 10\".")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="SWEEP", help="Everything that one sweep moved, by its number.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="One row; with commas between the columns of its key. Repeatable."),
    ] = None,
    into: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Copy them into a side table, made if it is not there.")
    ] = None,
    on_conflict: Annotated[
        OnConflict,
        typer.Option("--on-conflict", help="If another row has a key: restore nothing, leave that row, or replace it."),
    ] = OnConflict.REFUSE,
    protect: Annotated[
        str, typer.Option(metavar="DURATION", help="How long no sweep takes them again; 0 for not at all.")
    ] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come back, and change nothing.")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses between batches: for maintenance windows.")] = False,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring archived rows back, with everything that left with them.

    Into the hot table they move: once they are back, their copies leave the archive. Into a side table they are copied. Whatever stops
    it, running it again finishes the job. Exits 1 if rows that were chosen could not come back.
    """
    if (where is not None) + (run is not None) + bool(key) != 1:
        raise typer.BadParameter("say which rows: exactly one of --where, --run and --key")
    with open_keeper(url, contract=contract, actor=actor) as keeper:
        done = keeper.archive.restore(
            name,
            where=where,
            sweep=None if run is None else _sweep(run),
            keys=[_key(one) for one in key or ()],
            into=into,
            on_conflict=on_conflict.value,
            protect=_duration(protect),
            dry_run=dry_run,
            pace=FAST if fast else None,
            starting=starting,
        )
    if as_json:
        print_json(asdict(done))
    else:
        print_restored(done)
    if done.kept and not (on_conflict is OnConflict.SKIP and _only_conflicts(done.reasons)):
        raise typer.Exit(1)


def restores(
    name: TableArgument = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most to show.")] = _SHOWN,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List restores, newest first: what was asked for, how far each came, and what came back."""
    with open_keeper(url, contract=contract) as keeper:
        found = keeper.archive.restores(name, limit=limit)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    heads = ("restore", "table", "asked for", "state", "chosen", "came back", "stayed", "by", "since", "changed")
    shown = table(*heads, right=("restore", "chosen", "stayed"))
    for one in found:
        shown.add_row(
            str(one.id),
            escape(one.table if one.into is None else f"{one.table} into {one.into}"),
            escape(
                ", ".join(f"{key} {value}" for key, value in one.inputs.items() if key not in ("into", "on_conflict"))
            ),
            f"[{'green' if one.state == 'done' else 'yellow'}]{one.state}[/]",
            f"{one.chosen:,}",
            counts_text(one.restored),
            f"{one.kept:,}",
            escape(one.actor),
            moment_text(one.planned_at),
            moment_text(one.changed_at),
        )
    console().print(shown)
    if not found:
        say("nothing was restored, or not lately")


def cancel_restore(
    number: Annotated[int, typer.Argument(metavar="RESTORE", help="The number of a restore that is not finished.")],
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a restore that cannot finish: its schema is gone, say, or its disk is full.

    Rows that are back in the hot table stay there and leave the archive; what was copied into a side table stays there; no other row
    comes back. The audit trail records it.
    """
    with open_keeper(url, contract=contract, actor=actor) as keeper:
        ended = keeper.archive.cancel_restore(number)
    if as_json:
        print_json(asdict(ended))
        return
    came = counts_text(ended.restored) or "no row"
    say(f"restore {ended.id} of {escape(ended.table)} has ended: {came} came back, the rest stays in the archive")


def print_restored(done: Restored) -> None:
    """Print what came back, and what did not."""
    would = "would come back" if done.dry_run else "came back"
    shown = table("table", "chosen", would, right=("chosen", would))
    for name, chosen in done.chosen.items():
        shown.add_row(escape(name), f"{chosen:,}", f"{done.restored.get(name, 0):,}")
    console().print(shown)
    if not any(done.chosen.values()):
        say("the archive has no such row; what was restored has left it: `wane archive restores`")
    if done.there:
        say(f"{many(done.there, 'row')} {'was' if done.there == 1 else 'were'} there already, exactly as archived")
    if done.replaced:
        say(f"{many(done.replaced, 'row')} took the place of others")
    if done.kept:
        say(f"[yellow]{many(done.kept, 'row')}[/] {'stays' if done.kept == 1 else 'stay'} in the archive:")
        for key, reason in done.reasons:
            say(f"  {escape(key)}: {escape(reason)}")
    if done.protected_until is not None:
        say(f"no sweep takes them before {moment_text(done.protected_until)}")
    if done.into is not None and not done.dry_run:
        say(f"they are in [bold]{escape(done.into)}[/], and in the archive still")


def _only_conflicts(reasons: Sequence[tuple[str, str]]) -> bool:
    return all(reason == "another row has its key" for _, reason in reasons)


def _sweep(text: str) -> int:
    try:
        return int(text.removeprefix(_SWEEP))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number of a sweep", param_hint="--run") from None


def _key(text: str) -> dict[str, str]:
    key = {}
    for part in text.split(","):
        column, equals, value = part.partition("=")
        if not equals:
            raise typer.BadParameter(f"{part!r} is not COLUMN=VALUE", param_hint="--key")
        key[column.strip()] = value
    return key


def _duration(text: str) -> timedelta:
    if text.strip() == "0":
        return timedelta(0)
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} is no duration such as 7d: {problem}", param_hint="--protect") from None
