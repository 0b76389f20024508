"""The error of the contract's smallest parts: what is wrong, and separately what to write instead."""

from __future__ import annotations

import json


class Refused(ValueError):
    """A value that a contract may not have.

    Message and fix are separate, because user text may contain any character.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(f"{message}: {fix}" if fix else message)
        self.message = message
        self.fix = fix


def written(value: object) -> str:
    """Format a value as the file would write it; lists and tables are only named, without their contents."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else str(value)
