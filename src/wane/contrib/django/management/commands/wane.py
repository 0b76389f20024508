"""`manage.py wane …`: the command line of Wane, on the project's contract and database."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from wane import _cli as cli
from wane.contrib.django._settings import contract_path, database_url
from wane.errors import WaneError


class Command(BaseCommand):
    """Run a command of Wane, for example `manage.py wane plan`; `manage.py wane -- --help` lists them."""

    help = __doc__.strip()
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own declaration

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="A command of Wane, and its options.")

    def handle(self, *, arguments: list[str], **options: Any) -> None:
        """Run it; its exit code is that of `manage.py`."""
        with _project():
            cli.main(arguments=arguments[arguments[:1] == ["--"] :])


@contextmanager
def _project() -> Iterator[None]:
    """Name the project's contract and database as the command line reads them; what was set before stays as it is."""
    before = dict(os.environ)
    try:
        os.environ.setdefault("WANE_CONTRACT", str(contract_path()))
        os.environ.setdefault("WANE_URL", database_url())
        yield
    except WaneError as problem:
        raise CommandError(f"{problem.message}: {problem.hint}") from problem
    finally:
        os.environ.clear()
        os.environ.update(before)
