"""Progress of long work: a line on the terminal that follows its events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from wane._cli.output import console, many
from wane.events import ArchiveMaintained, ArchiveProgress, ArchiveStep, BatchTaken, Event, Listener, SlowedDown


@contextmanager
def show_progress(*, as_json: bool) -> Iterator[Listener]:
    """Yield a listener that shows events as they come; finished steps and delays remain on the screen."""
    out = console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}")
    taken = 0
    with Progress(*columns, console=out, transient=True, disable=as_json or not out.is_terminal) as progress:
        task = progress.add_task("working", total=None)

        def listener(event: Event) -> None:
            nonlocal taken
            match event:
                case BatchTaken():
                    taken += sum(event.counts.values())
                    text = f"{event.table}.{event.rule}: {many(taken, 'row')}, next batch {event.next_batch:,}"
                case ArchiveStep():
                    text = f"{event.table}.{event.rule}: sweep {event.sweep} is {event.state}"
                    if not as_json:
                        progress.console.print(f"[dim]{escape(text)} ({event.seconds:.1f} s)[/]", soft_wrap=True)
                case ArchiveMaintained():
                    rows, files = many(sum(event.rows.values()), "row"), many(event.files, "file")
                    text = f"{event.table}: {event.action}: {rows}, {files}"
                case ArchiveProgress():
                    step = "copied" if event.state == "planned" else "read back"
                    text = f"{event.table}.{event.rule}: {event.done:,} of {event.of:,} pieces {step}"
                case SlowedDown():
                    progress.console.print(f"[yellow]{escape(f'{event.table}.{event.rule}: {event.cause}')}[/]")
                    return
                case _:
                    return
            progress.update(task, description=escape(text))

        yield listener
