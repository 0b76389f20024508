"""Resolving an archive's URL to a folder, or to a prefix of an object store.

Delta Lake and Spark read paths as URLs and as glob patterns. A path that either of them would resolve to a different
one is refused before anything is written there.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from wane._contract.refused import Refused
from wane._contract.variables import expand, unset_variables

OBJECT_STORES = ("s3", "gs", "az")
"""Schemes of object stores: Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\[\]{}*?\\^|\ud800-\udfff]|%[0-9A-Fa-f]{2}")
"""Characters and escapes that Delta Lake or Spark misread or reject anywhere in a path. Of several paths with a
wildcard character, Spark reads each several times, even if it is asked to take them literally."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_PART = re.compile(r"[A-Za-z0-9_.=-]+")
"""What a part of a prefix consists of: characters that need no escape in a URL."""


class UnsetVariable(Refused):
    """An archive's URL uses a variable that is not set."""


def archive_location(url: str, base: Path | None) -> Path | str:
    """Return the folder that an archive's URL names, or the URL of a prefix of an object store.

    Relative paths are resolved against `base`. Raise Refused if the URL names neither.
    """
    unset = unset_variables(url)
    if unset:
        raise UnsetVariable(
            f"the environment variable {unset[0]}, which the archive's url uses, is not set",
            f"set {unset[0]} to a text that is not empty, or write the path itself",
        )
    text = expand(url)
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[0].lower() in [f"{one}://" for one in OBJECT_STORES]:
        return _object_url(scheme[1].lower(), text[len(scheme[0]) :])
    if scheme is not None and scheme[1].lower() != "file":
        raise Refused(
            f"an archive at {scheme[1]}:// is not supported",
            'write a path, for example `url = "./archive"`, file:///…, or an object store: s3://, gs:// or az://',
        )
    return _folder(text if scheme is None else unquote(text[len(scheme[0]) :]), base)


def _object_url(scheme: str, text: str) -> str:
    if "@" in text or "?" in text:
        # The text is not repeated: it may be a secret.
        raise Refused(
            f"the archive's url ({scheme}://…) has more than a bucket and a prefix in it",
            "credentials and settings of an object store come from the environment, not from the contract",
        )
    bucket, *parts = text.rstrip("/").split("/")
    if not _BUCKET.fullmatch(bucket):
        raise Refused(
            f"the archive's url names no bucket: {scheme}://{text}", f'write `url = "{scheme}://bucket/prefix"`'
        )
    wrong = [part for part in parts if not _PART.fullmatch(part) or part in (".", "..")]
    if wrong:
        raise Refused(
            f"the archive's url has {wrong[0]!r} as a part of its prefix: {scheme}://{text}",
            "use letters, digits and _ . = - in the parts of a prefix, with one slash between them",
        )
    return f"{scheme}://" + "/".join([bucket, *parts])


def _folder(text: str, base: Path | None) -> Path:
    try:
        folder = ((base or Path()) / text).resolve()
    except (OSError, RuntimeError, ValueError) as problem:
        raise Refused(f"the archive's url names no folder: {problem}", "write another path") from None
    unusable = _UNUSABLE.search(str(folder))
    if unusable is not None:
        raise Refused(
            f"the archive's path has {unusable[0]!r} in it, which Delta Lake and Spark cannot have in a path: {str(folder)!r}",
            "name a folder without control characters, [ ] { } * ? \\ ^ | and without % before two hexadecimal digits;"
            " an archive that is there already can be moved",
        )
    return folder
