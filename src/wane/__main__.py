"""`python -m wane` is `wane`."""

from __future__ import annotations

from wane.cli import main

main()
