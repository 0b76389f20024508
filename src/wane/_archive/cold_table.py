"""The folder, or prefix of an object store, of an archive, with one Delta Lake table for each table whose rows it holds.

Every change is one atomic commit. A sweep commits to a table once: its number is an application transaction, and a
second commit of it is refused, or finds that it is done. Two more application transactions go with every commit: the
number of the commit, by which a log that lost some is recognised, and the fence of each lease, so that the log itself
refuses a writer that was replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane._archive.content import Shape
from wane._archive.failure import unreadable, writing
from wane._archive.object_store import ObjectPath, reason, storage_options
from wane._archive.paths import ColdPath, cold_path, local_path, remove_tree, sync_folder
from wane._archive.types import KEY, MONTH, PARENT, SWEEP, VERSION
from wane._contract.archive_path import archive_location
from wane._contract.model import Contract
from wane._contract.refused import Refused
from wane._leases import Lease
from wane.errors import ArchiveBusy, ArchiveError

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
LOG = "_delta_log"
_FORMAT = 1
_ATTEMPTS = 5
_RACING = 4
_CONFIGURATION = {"delta.dataSkippingStatsColumns": SWEEP}
"""In files that a program of Delta Lake itself writes, the log gets statistics of the sweep column only."""


def root_of(contract: Contract) -> ColdPath:
    """Return the folder or prefix of a contract's archive; raise ArchiveError if it names none."""
    if contract.archive_url is None:
        raise ArchiveError("the contract names no archive", 'add `[archive]` with `url = "./archive"`')
    return folder_of(contract.archive_url, None if contract.path is None else contract.path.parent)


def folder_of(url: str, base: Path | None) -> ColdPath:
    """Return the folder or prefix that an archive's URL means. Relative paths start at the contract's folder."""
    try:
        return cold_path(archive_location(url, base))
    except Refused as problem:
        raise ArchiveError(problem.message, problem.fix) from None


def _log_files(log: ColdPath) -> object:
    """List the files of a log, each with what changes when it is written anew; None if there is no log."""
    try:
        if not isinstance(log, Path):
            return {(path.name, path.stat()) for path in log.iterdir() if path.is_file()} or None
        with os.scandir(log) as entries:
            stats = [(entry.name, entry.stat()) for entry in entries]
    except (OSError, ArchiveError):
        return None  # Opening the table reports what is wrong.
    return {(name, found.st_ino, found.st_size, found.st_mtime_ns) for name, found in stats}


def _folder_name(table: str) -> str:
    """Return a folder name for a table of any name."""
    if _PLAIN_NAME.fullmatch(table):
        return table
    return re.sub(r"[^A-Za-z0-9_.-]", "_", table) + "-" + hashlib.sha256(table.encode()).hexdigest()[:8]


class ColdTable:
    """One table of an archive."""

    def __init__(self, root: ColdPath, name: str, origin: str) -> None:
        self.name = name
        self.folder = root / _folder_name(name)
        self.origin = origin
        self._opened: tuple[object, DeltaTable] | None = None
        """What the log's files were, and the handle that has read them."""

    def open(self) -> DeltaTable | None:
        """Return the table as it is now, to be read; return None if there is none yet.

        The handle is read from the log once and shared until a file of the log changes, because reading it takes
        milliseconds. A commit changes the handle that it is made through: `fresh` opens one for it. Raise ArchiveError
        if something else is in the folder.
        """
        files = _log_files(self.folder / LOG)
        if files is not None and self._opened is not None and self._opened[0] == files:
            return self._opened[1]
        # Files that are listed before they are read are never newer than what the handle has read.
        table = self.fresh()
        self._opened = None if files is None or table is None else (files, table)
        return table

    def fresh(self) -> DeltaTable | None:
        """Open the table as it is now, through a handle that nothing else reads; return None if there is none yet."""
        table = self._handle()
        if table is not None:
            self._require_ours(table)
        return table

    def _handle(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            if not isinstance(self.folder, ObjectPath):
                if not self.folder.is_dir():
                    if self.folder.exists():
                        raise ArchiveError(f"{self.folder} is a file", "name a folder as the archive's url")
                    return None
                if not any(self.folder.iterdir()):
                    return None
            # Before an object store is listed: this fails if there is no bucket, and a listing is empty.
            if DeltaTable.is_deltatable(str(self.folder), storage_options(self.folder)):
                return self._delta()
            if not any(self.folder.iterdir()):
                return None
            raise ArchiveError(
                f"{self.folder} is not a Delta Lake table: it has files, and no {LOG}",
                f"restore {LOG} from a backup if the archive was here; else name another folder, or empty this one",
            )
        except OSError as problem:
            raise unreadable(self.folder, problem) from problem
        except DeltaError as problem:
            raise ArchiveError(
                f"the log of {self.folder} cannot be read: {problem}",
                f"restore {self.folder / LOG} from a backup: it names the files that hold archived rows",
            ) from problem

    def _delta(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(str(self.folder), storage_options=storage_options(self.folder))

    def require(self) -> DeltaTable:
        """Open the table as it is now; raise ArchiveError if there is none yet."""
        table = self.open()
        if table is None:
            raise ArchiveError(f"nothing of {self.name} is archived yet", "`wane archive run` archives what is due")
        return table

    @property
    def _description(self) -> str:
        return json.dumps({"wane": _FORMAT, "origin": self.origin, "table": self.name})

    def _told(self, table: DeltaTable) -> tuple[str, str]:
        """Read the origin and the table name that the table records of itself."""
        try:
            owner = json.loads(table.metadata().description or "")
            return owner["origin"], owner["table"]
        except (ValueError, TypeError, KeyError):
            raise ArchiveError(
                f"{self.folder} was not made by Wane", "name another folder as the archive's url"
            ) from None

    def _require_ours(self, table: DeltaTable) -> None:
        origin, name = self._told(table)
        if (origin, name) != (self.origin, self.name):
            raise ArchiveError(
                f"{self.folder} holds rows of another database or table ({name})",
                "an archive takes rows of one database: name another folder",
            )

    def require_fitting(self, shape: Shape) -> None:
        """Raise unless the table can take rows of these columns: the same ones, or more."""
        table = self.open()
        if table is None:
            return
        known = {field.name: str(field.type.type) for field in table.schema().fields}
        wanted = {one[0]: one[1] for one in shape}
        for name, kind in known.items():
            if name in (KEY, PARENT, VERSION, SWEEP, MONTH):
                continue
            if name not in wanted:
                raise ArchiveError(
                    f"{self.name} has no column {name!r} any more, and its archive has one",
                    "move the archive away (it stays readable) and run `wane archive adopt`, so that a new one begins; or add the column again",
                )
            if wanted[name] != kind:
                raise ArchiveError(
                    f"{self.name}.{name} is now {wanted[name]}, and its archive holds {kind}",
                    "move the archive away (it stays readable) and run `wane archive adopt`, so that a new one begins; or cast it in the contract",
                )

    def require_writable(self) -> None:
        """Raise unless files can be written."""
        probe = self.folder / f".wane-{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as problem:
            raise ArchiveError(
                f"the archive {self.folder} cannot be written: {reason(problem)}",
                "check its permissions and the disk",
            ) from problem

    def ensure(self, shape: Shape, *, follows: bool) -> None:
        """Create the table, or add the columns that it lacks of these."""
        from deltalake import DeltaTable, Field
        from deltalake.schema import PrimitiveType, Schema

        extra = [[KEY, "string"], *([[PARENT, "string"]] if follows else [])]
        extra += [[VERSION, "string"], [SWEEP, "long"], [MONTH, "string"]]
        fields = [Field(name, PrimitiveType(kind), nullable=True) for name, kind in [*shape, *extra]]
        table = self.open()
        with writing(self.folder):
            if table is None:
                require_conditional_puts(self.folder)
                DeltaTable.create(
                    str(self.folder),
                    Schema(fields),
                    partition_by=[MONTH],
                    name=self.name,
                    description=self._description,
                    configuration=_CONFIGURATION,
                    storage_options=storage_options(self.folder),
                )
                return
            known = {field.name for field in table.schema().fields}
            added = [field for field in fields if field.name not in known]
            if not _CONFIGURATION.items() <= table.metadata().configuration.items():
                self._delta().alter.set_table_properties(_CONFIGURATION)
            if added:
                self._delta().alter.add_columns(added)

    def _application(self, writer: str) -> str:
        return f"wane:{self.origin}:{writer}"

    def last_sweep(self, writer: str) -> int:
        """Return the last sweep that a table (this one, or one that it follows) committed here; 0 if none was."""
        table = self.open()
        return 0 if table is None else table.transaction_version(self._application(writer)) or 0

    def commits(self, table: DeltaTable) -> int:
        """Return the number of the last commit that a handle of this table sees."""
        return table.transaction_version(self._counter) or 0

    @property
    def _counter(self) -> str:
        return f"wane-commits:{self.origin}"

    def _fence(self, lease: Lease) -> str:
        return f"wane-fence:{self.origin}:{lease.name}"

    def properties(
        self, table: DeltaTable, leases: Sequence[Lease], done: Mapping[str, int], **metadata: str
    ) -> CommitProperties:
        """Build the properties of a commit from the state that a handle sees: number, fences, and what it has `done`.

        Each is an application transaction: of two commits from one state with the same application, Delta Lake accepts
        one. Raise ArchiveBusy if the log has a later fence of one of the leases.
        """
        from deltalake import CommitProperties, Transaction

        self.require_fences(table, leases)
        fences = [Transaction(self._fence(lease), lease.fence) for lease in leases]
        number = Transaction(self._counter, self.commits(table) + 1)
        return CommitProperties(
            custom_metadata={f"wane.{name}": value for name, value in metadata.items()},
            app_transactions=[number, *fences, *(Transaction(name, version) for name, version in done.items())],
        )

    def require_fences(self, table: DeltaTable, leases: Sequence[Lease]) -> None:
        """Raise ArchiveBusy if the log, as a handle sees it, has a later fence of one of the leases."""
        for lease in leases:
            if (table.transaction_version(self._fence(lease)) or 0) > lease.fence:
                raise ArchiveBusy(
                    f"the archive of {self.name} was written under a later lease of {lease.name!r} than this one",
                    "another process went on with the work: run it again. If there is none, the database was restored from a"
                    " backup: name another folder as the archive's url",
                )

    def write(
        self,
        table: DeltaTable,
        actions: list[AddAction | RemoveAction],
        leases: Sequence[Lease],
        done: Mapping[str, int],
        **metadata: str,
    ) -> None:
        """Make one commit from the state that a handle sees."""
        properties = self.properties(table, leases, done, **metadata)
        with writing(self.folder):
            table.create_write_transaction(actions, "append", table.schema(), [MONTH], commit_properties=properties)
            self.sync()

    def give(self, origin: str, writers: Sequence[str], leases: Sequence[Lease]) -> ColdTable:
        """Transfer the table to the database under its new name `origin`, with what the log records of sweeps and
        jobs."""
        given = ColdTable(self.folder.parent, self.name, origin)
        handle = self._handle()
        if handle is None or self._told(handle) == (origin, self.name):
            return given
        self._require_ours(handle)
        known = {name: handle.transaction_version(self._application(name)) for name in writers}
        done = {given._application(name): version for name, version in known.items() if version is not None}
        given.write(handle, [], leases, done)
        handle = self._handle()
        assert handle is not None
        with writing(self.folder):
            handle.alter.set_table_description(given._description)
            given.sync()
        return given

    def take_over(self, leases: Sequence[Lease]) -> None:
        """Make the log refuse every later commit of a process that held one of these leases before."""
        from deltalake.exceptions import CommitFailedError

        for attempt in range(_ATTEMPTS):
            table = self.fresh()
            if table is None:
                return
            if all(table.transaction_version(self._fence(lease)) == lease.fence for lease in leases):
                return
            try:
                self.write(table, [], leases, {})
                return
            except CommitFailedError:
                if attempt + 1 == _ATTEMPTS:
                    raise

    def commit(self, writer: str, sweep: int, files: Sequence[Any], leases: Sequence[Lease]) -> None:
        """Add a sweep's files, once.

        Every file is checked first: a commit that names a missing one would be accepted.
        """
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        for file in files:
            path = self.folder / file["path"]
            if not path.is_file() or path.stat().st_size != file["bytes"]:
                raise ArchiveError(f"{path} is not what was written", "run again: its rows are copied again")
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                file["path"], file["bytes"], {MONTH: file["month"]}, now, data_change=True, stats=file["statistics"]
            )
            for file in files
        ]
        for attempt in range(_ATTEMPTS):
            table = self.fresh()
            assert table is not None
            if (table.transaction_version(self._application(writer)) or 0) >= sweep:
                return
            try:
                self.write(table, actions, leases, {self._application(writer): sweep}, sweep=str(sweep))
                return
            except CommitFailedError:
                if attempt + 1 == _ATTEMPTS:
                    raise

    def active(self) -> set[str]:
        """Return the paths of the files that make up the table now."""
        table = self.open()
        uris = [] if table is None else table.file_uris()
        return {
            local_path(one) if isinstance(self.folder, ObjectPath) else os.path.realpath(local_path(one))
            for one in uris
        }

    def sync(self) -> None:
        """Make sure that what was committed survives a power cut: hot rows are deleted because of it."""
        log = self.folder / LOG
        if isinstance(log, Path):
            sync_folder(max(log.glob("*.json")))
            sync_folder(log)


def require_conditional_puts(folder: ColdPath) -> None:
    """Raise if an object store lets the second of two writers overwrite the commit of the first.

    Some that speak S3's protocol ignore the condition of a put. Several threads commit from one state, at the same
    time, to a table of no rows: all of their commits must be in its log.
    """
    from deltalake import DeltaTable, Field
    from deltalake.schema import PrimitiveType, Schema

    if isinstance(folder, Path):
        return
    probe = folder.parent / f".wane-{uuid.uuid4().hex}"
    options = storage_options(probe)
    nothing = Schema([Field("nothing", PrimitiveType("long"))])
    try:
        DeltaTable.create(str(probe), nothing, storage_options=options)
        handles = [DeltaTable(str(probe), storage_options=options) for _ in range(_RACING)]
        start = threading.Barrier(_RACING)

        def commit(handle: DeltaTable) -> None:
            start.wait()
            handle.create_write_transaction([], "append", nothing)

        with ThreadPoolExecutor(_RACING) as pool:
            list(pool.map(commit, handles))
        if DeltaTable(str(probe), storage_options=options).version() < _RACING:
            raise ArchiveError(
                f"the object store of {folder.parent} ignores conditional puts, so that writers overwrite each other's commits",
                "use one that honours If-None-Match, or a newer version of this one",
            )
    finally:
        remove_tree(probe)
