"""Paths in an object store, with the operations of `pathlib.Path` that an archive needs.

An object appears whole, under its final name, when its writer closes it, and is durable from then on: there is nothing
to rename, to lock or to sync. Commits rely on the store alone: Delta Lake creates each entry of a log by a conditional
put, which only one of several writers can succeed with. Credentials come from the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from wane._archive.delta.endpoint import AZURE_ENDPOINT, endpoint, require_endpoint
from wane.errors import ArchiveError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_", "STORAGE_EMULATOR_HOST")
"""Prefixes of the variables that hold an object store's address and credentials."""
_ATTEMPTS = 5
_RETRIES = {"max_retries": str(_ATTEMPTS), "retry_timeout": "60s"}
_CONNECT_SECONDS = 10
_REQUEST_SECONDS = 60
_UNSAFE = "AWS_S3_ALLOW_UNSAFE_RENAME"

REMEDY = "check the bucket, the credentials in the environment and the network"
_ANSWER = re.compile(r"<Code>(\w+)</Code>\s*<Message>(.*?)</Message>", re.DOTALL)
"""What an object store answers, which stands in the middle of what its client reports."""
_COLOUR = re.compile(r"\x1b\[\d+m")


def reason(problem: object) -> str:
    """Return why the file system, or the object store, refused something: in one line."""
    text = getattr(problem, "strerror", None) or str(problem)
    answer = _ANSWER.search(text)
    if answer is not None:
        return " ".join(": ".join(answer.groups()).split())
    # Delta Lake's client lists its causes, the last one being that of all others.
    return ": ".join(" ".join(one.split()) for one in _COLOUR.sub("", text).split("\u21b3")[-2:])


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """The size of an object, and when it was written, in seconds since 1970."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """The path of an object, or of all objects below a prefix."""

    scheme: str
    key: str
    """The bucket and the object's name in it."""
    _info: FileInfo | None = field(default=None, compare=False, repr=False)
    """What the listing that found it reported of it."""

    @classmethod
    def read(cls, url: str) -> ObjectPath:
        """Parse the URL of an object or a prefix, without a slash at its end."""
        scheme, _, key = url.partition("://")
        return cls(scheme, key)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.scheme, f"{self.key}/{name}")

    def as_posix(self) -> str:
        return str(self)

    def resolve(self) -> ObjectPath:
        return self

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        stem, dot, last = self.name.rpartition(".")
        return dot + last if stem else ""

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.scheme, self.key.rpartition("/")[0])

    def is_file(self) -> bool:
        return bool(self._found().is_file)

    def is_dir(self) -> bool:
        """Check whether there are objects below it."""
        from pyarrow.fs import FileType

        return bool(self._found().type == FileType.Directory)

    def is_symlink(self) -> bool:
        return False

    def stat(self) -> ObjectStat:
        """Return size and time of an object; raise FileNotFoundError if there is none."""
        found = self._found()
        if not found.is_file:
            raise FileNotFoundError(f"there is no object {self}")
        written: datetime = found.mtime
        return ObjectStat(found.size, written.astimezone(UTC).timestamp())

    def _found(self) -> FileInfo:
        if self._info is not None:
            return self._info
        with self._access("read") as files:
            return files.get_file_info(self.key)

    @contextmanager
    def _access(self, what: str) -> Iterator[FileSystem]:
        """Yield the client; raise ArchiveError if the store refuses or cannot be reached, FileNotFoundError as it
        is."""
        require_endpoint(self.scheme)
        try:
            yield file_system(self.scheme)
        except FileNotFoundError:
            raise
        except OSError as problem:
            raise ArchiveError(f"{self} cannot be {what}: {reason(problem)}", REMEDY) from problem

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield what is directly below it, as it is now; nothing if there is nothing."""
        from pyarrow.fs import FileSelector

        with self._access("read") as files:
            listed = files.get_file_info(FileSelector(self.key, allow_not_found=True))
        return (replace(self / info.base_name, _info=info) for info in listed)

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield what is directly below it and has a name like this."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: an object needs no folder."""

    def open(self, mode: str) -> Any:
        """Open an object for random reads (rb), or a new one that appears when it is closed (xb).

        Names of new objects are unique, so that none is overwritten.
        """
        with self._access("read" if mode == "rb" else "written") as files:
            return files.open_input_file(self.key) if mode == "rb" else files.open_output_stream(self.key)

    def read_bytes(self) -> bytes:
        with self._access("read"), self.open("rb") as source:
            return bytes(source.read())

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        with self._access("written"), self.open("xb") as sink:
            sink.write(content)

    def touch(self) -> None:
        self.write_bytes(b"")

    def unlink(self, *, missing_ok: bool = False) -> None:
        try:
            with self._access("removed") as files:
                files.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_all(self) -> None:
        """Remove every object below it."""
        if self.is_dir():
            with self._access("removed") as files:
                files.delete_dir(self.key)


def file_system(scheme: str) -> FileSystem:
    """Return the client of an object store for what the environment specifies now."""
    settings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES)))
    return _file_system(scheme, settings)


@lru_cache(maxsize=8)
def _file_system(scheme: str, settings: tuple[tuple[str, str], ...]) -> FileSystem:
    from pyarrow import fs

    named = dict(settings)
    if scheme == "s3":
        return fs.S3FileSystem(
            region=_region(named),
            endpoint_override=endpoint(scheme, named),
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_REQUEST_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            check_directory_existence_before_creation=True,
            allow_delayed_open=True,
        )
    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=_REQUEST_SECONDS))
    account = named.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ArchiveError(
            "AZURE_STORAGE_ACCOUNT_NAME is not set",
            "an archive at az:// needs the name of its storage account in the environment",
        )
    key = named.get("AZURE_STORAGE_ACCOUNT_KEY")
    return fs.AzureFileSystem(account_name=account, account_key=key, **azure_hosts(endpoint(scheme, named), account))


def azure_hosts(url: str | None, account: str) -> dict[str, str]:
    """Return how Arrow names the hosts of an Azure endpoint: of another cloud, of a private network, or of an emulator.

    Delta Lake reads the same variable. An account is the first label of a host, or the first part of a path.
    """
    if not url:
        return {}
    scheme, _, rest = url.rstrip("/").partition("://")
    if rest.startswith(f"{account}.blob."):
        blob = rest.removeprefix(account)
        names = {"blob_storage_authority": blob, "dfs_storage_authority": blob.replace(".blob.", ".dfs.", 1)}
    elif rest.endswith(f"/{account}"):
        host = rest.removesuffix(f"/{account}")
        names = {"blob_storage_authority": host, "dfs_storage_authority": host}
    else:
        raise ArchiveError(
            f"{AZURE_ENDPOINT}={url} does not name the account {account}",
            f"write https://{account}.blob.core.windows.net with the cloud's own suffix, or http://host:port/{account}",
        )
    return {**names, "blob_storage_scheme": scheme, "dfs_storage_scheme": scheme}


def storage_options(path: object) -> dict[str, str] | None:
    """Return what Delta Lake needs to know of an object store besides the environment; None for a folder.

    Raise ArchiveError if the environment turns conditional puts off, or names an endpoint where nothing answers.
    """
    if not isinstance(path, ObjectPath):
        return None
    require_endpoint(path.scheme)
    url = endpoint(path.scheme, os.environ)
    if path.scheme != "s3":
        plain = path.scheme == "az" and (url or "").startswith("http://")
        return {**_RETRIES, "allow_http": "true"} if plain else dict(_RETRIES)
    if os.environ.get(_UNSAFE, "").lower() not in ("", "false", "0"):
        raise ArchiveError(
            f"{_UNSAFE} is set, with which two writers overwrite each other's commits", "remove it from the environment"
        )
    options = {**_RETRIES, "aws_conditional_put": "etag"}
    region = _region(os.environ)
    if url is not None:
        options["aws_endpoint"] = url
        if url.startswith("http://"):
            options["aws_allow_http"] = "true"
    if region is not None:
        options["aws_region"] = region
    return options


def _region(settings: Any) -> str | None:
    return settings.get("AWS_REGION") or settings.get("AWS_DEFAULT_REGION") or None
