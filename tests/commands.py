"""The command as a process that need not import anything: a fork of this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from wane._cli import commands, main

list(commands())  # They are imported when they are called: here once, not in each child.


def run_forked(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], *, merge: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `wane` in a folder and return its exit code and output; `merge` adds what goes to stderr to stdout, in
    order."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os._exit(_command(words, folder, environment, out.fileno(), (out if merge else err).fileno()))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(list(words), code, *texts)


def _command(words: Sequence[str], folder: Path, environment: Mapping[str, str], out: int, err: int) -> int:
    code: object = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = list(words)
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
    return code if isinstance(code, int) else 1
