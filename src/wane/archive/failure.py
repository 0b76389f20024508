"""Failures of tasks, on their way to whoever started them.

A task that meets what it would meet again (a value that cannot be stored, a full disk) answers with it: Spark tries again
what raises, and tells its reason somewhere in a page of Java.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from wane import errors
from wane.errors import ArchiveError, WaneError


def answering(work: Callable[[], dict[str, Any]]) -> str:
    """What a task answers."""
    try:
        answer = work()
    except WaneError as problem:
        answer = {"error": type(problem).__name__, "message": problem.message, "hint": problem.hint}
    except OSError as problem:
        where = f": {problem.filename}" if problem.filename else ""
        answer = {
            "error": "ArchiveError",
            "message": f"the archive cannot be written: {problem.strerror or problem}{where}",
        }
    except pa.ArrowException as problem:
        answer = {"error": "ArchiveError", "message": f"the rows cannot be stored: {problem}"}
    return json.dumps(answer)


def answers(told: Iterable[str]) -> list[dict[str, Any]]:
    """What tasks answered; raise the first failure among them."""
    read = [json.loads(one) for one in told]
    for answer in read:
        if "error" in answer:
            kind = getattr(errors, answer["error"], ArchiveError)
            raise kind(answer["message"], answer.get("hint", ""))
    return read
