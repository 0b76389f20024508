"""Environment variables inside texts of a contract: `${NAME}`. One that is not set is an error, never an empty text."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def unset_variables(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the variables that a text names and the environment lacks, or has as an empty text."""
    known = os.environ if environ is None else environ
    return [name for name in dict.fromkeys(VARIABLE.findall(text)) if not known.get(name)]


def expand(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the text with the values of its variables; raise KeyError if the environment lacks one."""
    known = os.environ if environ is None else environ
    return VARIABLE.sub(lambda match: known[match[1]], text)
