"""How the smallest parts of the contract say no: what is wrong, and apart from it what to write instead."""

from __future__ import annotations

import json


class Refused(ValueError):
    """A value that a contract may not have. Message and fix stay apart, because what people wrote may hold any character."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(f"{message}: {fix}" if fix else message)
        self.message = message
        self.fix = fix


def told(value: object) -> str:
    """A value as the file might write it, without what is inside it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else str(value)
