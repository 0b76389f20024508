"""Passing failures of tasks to the process that started them.

A task that meets a permanent failure (a value that cannot be stored, a full disk) answers with it: Spark retries what
raises, and buries its reason in a page of Java. A task that meets a transient failure (a lost connection, a lock)
raises it for that very reason, in a form that can be extracted from that page when Spark has given up.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from wane import errors
from wane._archive.delta.object_store import REMEDY, reason
from wane._archive.delta.paths import ColdPath, cold_path
from wane.errors import ArchiveError, Locked, Unreachable, WaneError

_TRANSIENT = (Unreachable, Locked)
ANSWERED = (WaneError, OSError, pa.ArrowException)
"""What a task answers with, if it fails so."""


class TransientFailure(Exception):
    """A failure of a task that another attempt may not meet; its text is what the task would have answered."""


_RAISED = re.compile(rf"{TransientFailure.__name__}: (\{{.*\}})")


def is_full(problem: object) -> bool:
    """Check whether a failure reports, with whatever text around it, that a file system is full."""
    return os.strerror(errno.ENOSPC) in str(problem)


def unwritable(folder: ColdPath | str, why: object) -> ArchiveError:
    """Return the error for a folder that the file system refuses to write to."""
    why = os.strerror(errno.ENOSPC) if is_full(why) else reason(why)
    return ArchiveError(f"{folder} cannot be written: {why}", f"{_remedy(folder)}, and run again; nothing is lost")


def unreadable(folder: ColdPath, why: object) -> ArchiveError:
    """Return the error for a folder that the file system refuses to read."""
    hint = "" if isinstance(folder, Path) else _remedy(folder)
    return ArchiveError(f"{folder} cannot be read: {reason(why)}", hint)


def _remedy(folder: ColdPath | str) -> str:
    if isinstance(cold_path(str(folder)), Path):
        return "free space on its file system, or check its permissions"
    return REMEDY


@contextmanager
def writing(folder: ColdPath) -> Iterator[None]:
    """Raise ArchiveError if the file system refuses what is written below a folder.

    A conflict of two commits is raised unchanged.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as problem:
        if is_full(problem):
            raise unwritable(folder, problem) from problem
        raise
    except (OSError, DeltaError) as problem:
        raise unwritable(folder, problem) from problem


def answering(work: Callable[[], dict[str, Any]], folder: ColdPath | str = "the archive") -> str:
    """Run a task's work, which may write to a folder, and return its answer as JSON.

    Raise TransientFailure if Spark should run it again.
    """
    try:
        return json.dumps(work())
    except ANSWERED as problem:
        return answer_of(problem, folder)


def answer_of(problem: Exception, folder: ColdPath | str) -> str:
    """Return a failure as a task answers it; raise TransientFailure if Spark should run the task again."""
    if isinstance(problem, OSError):
        problem = unwritable(problem.filename or folder, problem)
    if not isinstance(problem, WaneError):
        problem = ArchiveError(f"the rows cannot be stored: {problem}")
    answer = json.dumps({"error": type(problem).__name__, "message": problem.message, "hint": problem.hint})
    if isinstance(problem, _TRANSIENT):
        raise TransientFailure(answer) from None
    return answer


def raised(text: str) -> str | None:
    """Find what a task raised for Spark to retry it in Spark's error text; return None if it failed otherwise."""
    found = _RAISED.findall(text)
    return found[-1] if found else None


def answers(answered: Iterable[str]) -> list[dict[str, Any]]:
    """Read the answers of tasks; raise the first failure among them."""
    return list(arriving(answered))


def arriving(answered: Iterable[str]) -> Generator[dict[str, Any], None, None]:
    """Yield the answers of tasks while others still work; raise the first failure among them after the last answer."""
    failed: dict[str, Any] | None = None
    for one in answered:
        answer = json.loads(one)
        if "error" in answer:
            failed = failed or answer
        else:
            yield answer
    if failed is not None:
        raise error_of(failed)


def error_of(answer: dict[str, Any]) -> WaneError:
    """Return the error that a task answered with."""
    made: WaneError = getattr(errors, answer["error"], ArchiveError)(answer["message"], answer.get("hint", ""))
    return made
