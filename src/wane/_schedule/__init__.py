"""Schedulers, workers and the runner: which process sweeps, when, and only once."""

from __future__ import annotations

from wane._schedule.runner import Chore, Ran, Runner
from wane._schedule.status import Status, read_status

__all__ = ["Chore", "Ran", "Runner", "Status", "read_status"]
