"""Install packages into the environment that runs this: `.venv/bin/python .ci/install.py --editable '.[all,dev]' …`.

The arguments are those of `pip install`. uv does it in a fifth of pip's CPU time, but reads none of pip's
configuration, so that is passed on to it. Where uv is not to be had, where it fails, or where pip is configured in a
way that uv has no setting for, pip installs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

UV_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""What an option of pip is called in uv's environment."""
SEPARATORS = {"UV_FIND_LINKS": ","}
SECTIONS = ("global", "install", ":env:")
"""Where pip finds its options; a later one overrides."""
WITHOUT_EFFECT = frozenset(
    [
        *("cache-dir", "default-timeout", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input"),
        *("progress-bar", "quiet", "retries", "root-user-action", "timeout", "verbose"),
    ]
)
"""Options of pip that do not decide what is installed."""
# What is built is unpacked at once: compressing Spark's 500 MB takes longer than all other packages.
BUILD_SETTINGS = "[bdist_wheel]\ncompression = stored\n"


def uv_environment(configuration: str) -> dict[str, str] | None:
    """Return uv's settings for what `pip config list` prints, or None if pip has an option that uv has not."""
    found: dict[str, str] = {}
    lines = [line.partition("=") for line in configuration.splitlines()]
    for section in SECTIONS:
        for name, _, value in lines:
            of, _, option = name.rpartition(".")
            if of != section or option in WITHOUT_EFFECT:
                continue
            if option not in UV_SETTINGS:
                return None
            variable = UV_SETTINGS[option]
            found[variable] = SEPARATORS.get(variable, " ").join(str(ast.literal_eval(value)).split())
    # As pip does: the best version of all indexes, not the first index that has one.
    return found | {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def run(*arguments: str, environment: Mapping[str, str] = os.environ, quiet: bool = False) -> bool:
    errors = subprocess.DEVNULL if quiet else None
    return (
        subprocess.run([sys.executable, "-m", *arguments], env=environment, stderr=errors, check=False).returncode == 0
    )


def with_uv(arguments: list[str]) -> bool:
    """Return whether uv has installed."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    settings = uv_environment(listed.stdout) if listed.returncode == 0 else None
    constraints = str(Path(__file__).parents[1] / "constraints.txt")
    if settings is None or not run("pip", "install", "--quiet", "uv", "--constraint", constraints, quiet=True):
        return False
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as build:
        build.write(BUILD_SETTINGS)
        build.flush()
        environment = {**settings, **os.environ, "DIST_EXTRA_CONFIG": build.name}
        return run(
            *("uv", "pip", "install", "--quiet", "--python", sys.executable, *arguments),
            environment=environment,
            quiet=True,
        )


def main() -> None:
    arguments = sys.argv[1:]
    if not with_uv(arguments):
        sys.exit(not run("pip", "install", "--quiet", "--use-pep517", *arguments))


if __name__ == "__main__":
    main()
