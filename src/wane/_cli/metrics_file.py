"""`--metrics-file`: the counts of a one-shot run, in a file for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape

from wane._cli.output import print_line
from wane._contract.model import Contract
from wane._db import Store, open_store
from wane._keeper import database_url
from wane.errors import MetricsError
from wane.events import Listener


@contextmanager
def measured(file: Path, contract: Contract, url: str | None) -> Iterator[Listener]:
    """Yield a listener whose counts are written to the file at the end, also after a failure."""
    from wane.observe._metrics import Metrics

    _require_writable(file)

    def reopen() -> Store:
        return open_store(database_url(url, contract), contract.store, audit=contract.covers_audit, read_only=True)

    metrics = Metrics(contract)
    metrics.watch(reopen)
    try:
        yield metrics
    except BaseException:
        try:
            metrics.write_textfile(file)
        except MetricsError as problem:  # The first error is the one to raise.
            print_line(f"[red]error:[/] {escape(problem.message)}")
        raise
    else:
        metrics.write_textfile(file)
    finally:
        metrics.close()


def _require_writable(file: Path) -> None:
    """Raise if the file cannot be written, before anything leaves rather than after."""
    if file.is_dir():
        raise MetricsError(f"metrics cannot be written to {file}: it is a directory", "name a file in it")
    if not file.parent.is_dir():
        raise MetricsError(f"metrics cannot be written to {file}: there is no such folder", "create it first")
    if not os.access(file.parent, os.W_OK):
        raise MetricsError(
            f"metrics cannot be written to {file}: its folder cannot be written", "name a file in another folder"
        )
