"""Ctrl-C and SIGTERM are acknowledged at once, however long the current step takes."""

from __future__ import annotations

import os
import signal

import pytest

from wane._cli.signals import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_acknowledged_before_the_step_ends(capsys: pytest.CaptureFixture[str], number: int) -> None:
    stop, before = Stop(), signal.getsignal(number)
    with stop.catch_signals("step"):
        os.kill(os.getpid(), number)
        assert capsys.readouterr().err == "stopping after the current step\n"
        os.kill(os.getpid(), number)
        assert capsys.readouterr().err == ""
    assert stop.event.is_set()
    assert stop.signals == [number, number]
    assert signal.getsignal(number) is before
