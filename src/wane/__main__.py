"""The commands `wane` (also as `python -m wane`) and `coordination`.

This module imports nothing heavy, so that an interrupt is handled from the start: while the commands are being
imported, nothing has begun that would need cleanup, and the process just ends.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Import the commands and run one."""
    _start()


def coordination() -> None:
    """Import the commands and run `coordination`, an alias of `wane claims vacuum`."""
    _start("coordination")


def _start(group: str | None = None) -> None:
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:  # Not where the shell ignores the signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from wane import _cli as cli

    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main(group)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
