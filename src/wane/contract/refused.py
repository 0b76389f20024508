"""How the smallest parts of the contract say no: what is wrong, and apart from it what to write instead."""

from __future__ import annotations


class Refused(ValueError):
    """A value that a contract may not have. Message and fix stay apart, because what people wrote may hold any character."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(f"{message}: {fix}" if fix else message)
        self.message = message
        self.fix = fix
