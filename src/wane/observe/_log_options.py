"""How log lines are written, and from which level on."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    """How lines are written."""

    TEXT = "text"
    """key=value"""
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
