"""Resolving an archive's URL to a folder.

Delta Lake and Spark read paths as URLs and as glob patterns. A path that either of them would resolve to a different
one is refused before anything is written there.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from wane._contract.refused import Refused
from wane._contract.variables import expand, unset_variables

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\[\]\\^|\ud800-\udfff]|%[0-9A-Fa-f]{2}")
"""Characters and escapes that Delta Lake misreads or rejects anywhere in a path."""


class UnsetVariable(Refused):
    """An archive's URL uses a variable that is not set."""


def archive_folder(url: str, base: Path | None) -> Path:
    """Return the folder that an archive's URL names.

    Relative paths are resolved against `base`. Raise Refused if the URL names no usable folder.
    """
    unset = unset_variables(url)
    if unset:
        raise UnsetVariable(
            f"the environment variable {unset[0]}, which the archive's url uses, is not set",
            f"set {unset[0]} to a text that is not empty, or write the path itself",
        )
    text = expand(url)
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() != "file":
        raise Refused(
            f"an archive at {scheme[1]}:// is not supported",
            'write a path, for example `url = "./archive"`, or file:///…',
        )
    if scheme is not None:
        text = unquote(text[len(scheme[0]) :])
    try:
        folder = ((base or Path()) / text).resolve()
    except (OSError, RuntimeError, ValueError) as problem:
        raise Refused(f"the archive's url names no folder: {problem}", "write another path") from None
    unusable = _UNUSABLE.search(str(folder))
    if unusable is not None:
        raise Refused(
            f"the archive's path has {unusable[0]!r} in it, which Delta Lake cannot have in a path: {str(folder)!r}",
            "name a folder without control characters, [ ] \\ ^ | and without % before two hexadecimal digits;"
            " an archive that is there already can be moved",
        )
    return folder
