"""The folder, or prefix of an object store, of an archive, with one Delta Lake table for each table whose rows it
holds.

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
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane._archive.delta.evolution import wider
from wane._archive.delta.failure import unreadable, writing
from wane._archive.delta.log_entry import LOG, is_written, sync_log, write_entry
from wane._archive.delta.object_store import ObjectPath, reason, storage_options
from wane._archive.delta.paths import ColdPath, cold_path, local_path, remove_tree
from wane._archive.rows.content import Shape, arrow_type
from wane._archive.rows.names import archived_name
from wane._archive.rows.types import KEY, MONTH, ORIGIN, PARENT, SWEEP, VERSION
from wane._contract.archive_path import archive_location
from wane._contract.model import Contract
from wane._contract.refused import Refused
from wane._leases import Lease
from wane.errors import ArchiveBusy, ArchiveError

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field
    from deltalake.transaction import AddAction, RemoveAction

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FORMAT = 1
ATTEMPTS = 20
"""How often a commit, or a change of columns, is tried, while other databases commit to the same table."""
_RACING = 4
_conditional: set[tuple[str, str]] = set()
"""The folders of archives, and how they were reached, of object stores that honour conditional puts."""
_PROBE = ".wane-"
"""Begins the name of a file that only shows whether a folder can be written."""
_ADOPTED = "."
"""Stands in an origin before the mark of the database that adopted it."""
_LOGGED = ("short", "integer", "long", "date", "timestamp", "timestamp_ntz")
"""Kinds of columns whose minima and maxima the log has."""


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


def _configuration(shape: Shape, texts: Collection[str]) -> dict[str, str]:
    """Return the properties of a table of these columns: of which ones the log has minima and maxima.

    delta-rs reads those of no others, and a program of Delta Lake that rewrites files writes those of no others: none
    of texts, but for those that the contract asks for.
    """
    logged = [name for name, kind in shape if kind in _LOGGED or (kind == "string" and name in texts)]
    quoted = ("`" + name.replace("`", "``") + "`" for name in logged)
    return {"delta.dataSkippingStatsColumns": ",".join(quoted)}


def _folder_name(table: str) -> str:
    """Return a folder name for a table of any name."""
    if _PLAIN_NAME.fullmatch(table):
        return table
    return re.sub(r"[^A-Za-z0-9_.-]", "_", table) + "-" + hashlib.sha256(table.encode()).hexdigest()[:8]


def adopted_origin(origin: str, identity: str, *, shared: bool) -> str:
    """Return the origin of a database that adopts what another one archived.

    Always the same for the same database, so that an interrupted adoption can be repeated. In a shared table the
    partition remains, with the mark of the database that adopted it.
    """
    mark = hashlib.sha256(f"{origin} {identity}".encode()).hexdigest()
    return f"{origin.partition(_ADOPTED)[0]}{_ADOPTED}{mark[:16]}" if shared else mark[:32]


class ColdTable:
    """One table of an archive."""

    def __init__(self, root: ColdPath, name: str, origin: str, *, shared: bool = False) -> None:
        self.name = name
        self.origin = origin
        self.shared = shared
        """Whether other databases have rows in the same Delta Lake table."""
        self.root = root / _folder_name(name)
        """The folder of the Delta Lake table."""
        self.prefix = f"{ORIGIN}={self.partition}/" if shared else ""
        self.folder = self.root / self.prefix.rstrip("/") if shared else self.root
        """The folder of this database's files. Their paths are relative to it."""
        self._opened: tuple[object, DeltaTable] | None = None
        """What the log's files were, and the handle that has read them."""

    @property
    def log(self) -> ColdPath:
        """Return the folder of the table's log."""
        return self.root / LOG

    @property
    def partition(self) -> str:
        """Return the value of the origin's partition, which remains when another database adopts it."""
        return self.origin.partition(_ADOPTED)[0]

    def open(self) -> DeltaTable | None:
        """Return the table as it is now, to be read; return None if there is none yet.

        The handle is read from the log once and shared until a file of the log changes, because reading it takes
        milliseconds. A commit changes the handle that it is made through: `fresh` opens one for it. Raise ArchiveError
        if something else is in the folder.
        """
        files = _log_files(self.log)
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
            self.require_ours(table)
        return table

    def _handle(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            if not isinstance(self.root, ObjectPath):
                if not self.root.exists():
                    return None
                if not self.root.is_dir():
                    raise ArchiveError(f"{self.root} is a file", "name a folder as the archive's url")
                if self._is_empty():
                    return None
            # Before an object store is listed: this fails if there is no bucket, and a listing is empty.
            if DeltaTable.is_deltatable(str(self.root), storage_options(self.root)):
                return self._delta()
            if self._is_empty():
                return None
            if self.shared and DeltaTable.is_deltatable(str(self.root), storage_options(self.root)):
                return self._delta()  # Another database has created it since.
            raise ArchiveError(
                f"{self.root} is not a Delta Lake table: it has files, and no {LOG}",
                f"if the archive was here: `wane archive repair`, or restore {LOG} from a backup; else name another folder, or"
                " empty this one",
            )
        except OSError as problem:
            raise unreadable(self.root, problem) from problem
        except DeltaError as problem:
            raise ArchiveError(
                f"the log of {self.root} cannot be read: {problem}",
                "`wane archive repair` writes it anew if the database has copies of its entries; else restore"
                f" {self.log} from a backup: it names the files that hold archived rows",
            ) from problem

    def _is_empty(self) -> bool:
        """Check whether nothing is in the table's folder, but for what other databases try before they create it, and
        a log without an entry, which one of them creates at this time."""
        for child in self.root.iterdir():
            if self.shared and child.name == LOG and not any(child.glob("*.json")):
                continue
            if not (self.shared and child.name.startswith(f"{ORIGIN}=") and child.is_dir()):
                return False
            if any(not one.name.startswith(_PROBE) for one in child.iterdir()):
                return False
        return True

    def _delta(self) -> DeltaTable:
        if self.shared:
            from wane._archive.delta.shared_table import OriginTable

            return OriginTable(str(self.root), self.partition, storage_options(self.root))
        from deltalake import DeltaTable

        return DeltaTable(str(self.root), storage_options=storage_options(self.root))

    def exists(self) -> bool:
        """Check whether there is a table, whosever it is."""
        return self._handle() is not None

    def require(self) -> DeltaTable:
        """Open the table as it is now; raise ArchiveError if there is none yet."""
        table = self.open()
        if table is None:
            raise ArchiveError(f"nothing of {self.name} is archived yet", "`wane archive run` archives what is due")
        return table

    @property
    def _description(self) -> str:
        whose = {"shared": True} if self.shared else {"origin": self.origin}
        return json.dumps({"wane": _FORMAT, **whose, "table": self.name})

    def _recorded_origin(self, table: DeltaTable) -> tuple[str | None, str]:
        """Read the origin and the table name that the table records of itself; no origin if it is shared."""
        try:
            owner = json.loads(table.metadata().description or "")
            return None if owner.get("shared") is True else owner["origin"], owner["table"]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ArchiveError(
                f"{self.root} was not made by Wane", "name another folder as the archive's url"
            ) from None

    def require_ours(self, table: DeltaTable) -> None:
        """Raise ArchiveError unless the table is this database's, or shared, and its partition is this database's."""
        origin, name = self._recorded_origin(table)
        if name != self.name or (origin is not None and not self.shared and origin != self.origin):
            raise ArchiveError(
                f"{self.root} holds rows of another database or table ({name})",
                "an archive takes rows of one database: name another folder, or let databases share one by `shared = true`"
                " under [archive] of all their contracts",
            )
        if (origin is None) != self.shared:
            raise ArchiveError(
                f"{self.root} is {'shared by several databases' if origin is None else 'the archive of one database'}, and the"
                " contract declares the opposite",
                f"write `shared = {'true' if origin is None else 'false'}` under [archive], or name another folder",
            )
        if self.shared and not self._is_owner(table):
            raise ArchiveError(
                f"{self.folder} holds rows of another database, which has adopted them",
                "if this one is to go on beside it, `wane archive adopt --as-new` gives it a partition of its own",
            )

    @property
    def _owner(self) -> str:
        return f"wane-owner:{self.partition}"

    def _adoptions(self, table: DeltaTable) -> int:
        """Return how often the origin's partition was adopted."""
        return table.transaction_version(self._owner) or 0

    def _is_owner(self, table: DeltaTable) -> bool:
        """Check whether no other database adopted the origin's partition since this one did, or began it."""
        adoptions = self._adoptions(table)
        return not adoptions or table.transaction_version(f"wane-adopter:{self.origin}") == adoptions

    def _is_marked(self, table: DeltaTable) -> bool:
        """Check whether the log records already that the table, or the partition, is this database's."""
        origin, name = self._recorded_origin(table)
        if not self.shared:
            return (origin, name) == (self.origin, self.name)
        return _ADOPTED not in self.origin or (bool(self._adoptions(table)) and self._is_owner(table))

    def require_fitting(self, shape: Shape) -> None:
        """Raise unless the table can take rows of these columns, as it is or with columns that are wider."""
        table = self.open()
        if table is None:
            return
        known = {field.name: str(field.type.type) for field in table.schema().fields}
        folded = {name.lower(): name for name in known}
        for name, kind in shape:
            if name in known and wider(known[name], kind) is None:
                raise ArchiveError(
                    f"{self.name}.{name} is now {kind}, and its archive holds {known[name]}: no column holds both",
                    f"give the column another name, and the archive gets a new one; or change its type back to one that is"
                    f" archived as {known[name]}; or move the archive away (it stays readable) and run `wane archive adopt`",
                )
            if name not in known and name.lower() in folded:
                raise ArchiveError(
                    f"{self.name}.{name} differs from {folded[name.lower()]}, which its archive has, by case only",
                    "readers of the archive would confuse them: give the column another name",
                )

    def require_one_name(self, renamed: Mapping[str, str]) -> None:
        """Raise if rows were archived under the new name of a column that was renamed: no reader would find both."""
        table = self.open()
        known = set() if table is None else {field.name for field in table.schema().fields}
        for now, before in renamed.items():
            if archived_name(now) in known and archived_name(now) not in map(archived_name, renamed.values()):
                raise ArchiveError(
                    f"rows of {self.name} were archived with {now} before `renamed` named its earlier name, {before}",
                    f"remove {now} from `renamed`: values stay where they are, some under {before} and some under {now}",
                )

    def require_writable(self) -> None:
        """Raise unless files can be written."""
        probe = self.folder / f"{_PROBE}{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as problem:
            raise ArchiveError(
                f"the archive {self.folder} cannot be written: {reason(problem)}",
                "check its permissions and the disk",
            ) from problem

    def ensure(self, shape: Shape, *, follows: bool, texts: Collection[str] = ()) -> None:
        """Create the table, or add the columns that it lacks of these, and widen those that are too narrow.

        `texts`: text columns whose minima and maxima are written to the archive's log.
        """
        from deltalake import CommitProperties, DeltaTable, Field
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.schema import PrimitiveType, Schema

        extra = [[KEY, "string"], *([[PARENT, "string"]] if follows else [])]
        extra += [[VERSION, "string"], [SWEEP, "long"], [MONTH, "string"]]
        if self.shared:
            extra.append([ORIGIN, "string"])
            self._require_free_name(shape)
        fields = [Field(name, PrimitiveType(kind), nullable=True) for name, kind in [*shape, *extra]]
        # Databases that share a table may ask for different ones: each would change what another asked for.
        requested = set() if self.shared else {archived_name(name) for name in texts}
        table = self.open()
        with writing(self.root):
            if table is None:
                require_conditional_puts(self.root)
                try:
                    DeltaTable.create(
                        str(self.root),
                        Schema(fields),
                        partition_by=[ORIGIN, MONTH] if self.shared else [MONTH],
                        name=self.name,
                        description=self._description,
                        configuration=_configuration([*shape, *extra], requested),
                        storage_options=storage_options(self.root),
                        # With retries, the second of two that create it would replace its schema.
                        commit_properties=CommitProperties(max_commit_retries=0),
                    )
                    return
                except DeltaError:
                    if not self.shared or self.fresh() is None:
                        raise
                # Another database has created it at the same time.
                table = self.require()
                self.require_fitting(shape)
            for _ in range(ATTEMPTS):
                lacking = self._lacking(table, fields, shape, requested)
                if not any(lacking):
                    return
                # A commit changes its handle, so it is not the one that others read.
                table = self.fresh() or table
                self.require_fitting(shape)
                try:
                    self._change(table, *self._lacking(table, fields, shape, requested))
                except CommitFailedError:
                    # Another database has committed meanwhile, perhaps the same change.
                    table = self.fresh() or table
        raise ArchiveBusy(
            f"other writers changed the columns of the archive of {self.name} at every attempt", "run it again"
        )

    def _lacking(
        self, table: DeltaTable, fields: Sequence[Field], shape: Shape, texts: Collection[str]
    ) -> tuple[list[Field], dict[str, str], dict[str, str]]:
        """Return what a table lacks for rows of a shape: columns, wider kinds of columns, and properties."""
        known = {field.name: str(field.type.type) for field in table.schema().fields}
        added = [field for field in fields if field.name not in known and not (self.shared and field.name == ORIGIN)]
        fitting = {name: wider(known[name], kind) or kind for name, kind in shape if name in known}
        widened = {name: kind for name, kind in fitting.items() if kind != known[name]}
        wanted = _configuration(list({**known, **widened}.items()), texts)
        configured = table.metadata().configuration
        return added, widened, {} if wanted.items() <= configured.items() else wanted

    def _change(
        self, table: DeltaTable, added: list[Field], widened: Mapping[str, str], configuration: dict[str, str]
    ) -> None:
        """Make the first of some changes, as one commit of metadata.

        Delta Lake refuses it if the metadata changed since the handle was read, so that no change of another database
        is undone, and refuses commits of files from before it, which are then repeated from the state after it.
        """
        if added:
            table.alter.add_columns(added)
        elif widened:
            self._widen(table, widened)
        elif configuration:
            table.alter.set_table_properties(configuration)

    def _widen(self, table: DeltaTable, kinds: Mapping[str, str]) -> None:
        """Give columns wider types, in the log alone: files stay as they are, and readers cast what they read.

        As the replacement of a month that no row has, because delta-rs changes the type of a column in no other way.
        """
        import pyarrow as pa
        from deltalake import DeltaTable, write_deltalake

        # All columns: a handle of a shared table does not show the origin.
        names = [(field.name, str(field.type.type)) for field in DeltaTable.schema(table).fields]
        schema = pa.schema([(name, arrow_type(kinds.get(name, kind))) for name, kind in names])
        write_deltalake(
            table, schema.empty_table(), mode="overwrite", schema_mode="overwrite", predicate=f"{MONTH} = ''"
        )

    def _require_free_name(self, shape: Shape) -> None:
        if ORIGIN in [name for name, _ in shape]:
            raise ArchiveError(
                f"{self.name} has a column {ORIGIN!r}, which names the database in an archive that several share",
                "rename the column, or archive without `shared`",
            )

    def _application(self, writer: str) -> str:
        return f"wane:{self.origin}:{writer}"

    def last_sweep(self, writer: str) -> int:
        """Return the last sweep that a table (this one, or one that it follows) committed here; 0 if none was."""
        table = self.open()
        return 0 if table is None else table.transaction_version(self._application(writer)) or 0

    def has_sweep(self, table: DeltaTable, writer: str, sweep: int) -> bool:
        """Check whether a handle sees that a sweep, or a later one of the same table, was committed here."""
        return (table.transaction_version(self._application(writer)) or 0) >= sweep

    def application(self, writer: str, sweep: int) -> dict[str, int]:
        """Return the application transaction by which the log accepts a sweep once."""
        return {self._application(writer): sweep}

    def commits(self, table: DeltaTable) -> int:
        """Return the number of the last commit that a handle of this table sees."""
        return table.transaction_version(self._counter) or 0

    @property
    def _counter(self) -> str:
        return f"wane-commits:{self.origin}"

    def _fence(self, lease: Lease) -> str:
        return f"wane-fence:{self.origin}:{lease.name}"

    def versions(self, table: DeltaTable, leases: Sequence[Lease], done: Mapping[str, int]) -> dict[str, int]:
        """Return what a commit from the state that a handle sees records: its number, fences, and what it has `done`.

        Raise ArchiveBusy if the log has a later fence of one of the leases.
        """
        self.require_fences(table, leases)
        versions = {self._counter: self.commits(table) + 1}
        versions |= {self._fence(lease): lease.fence for lease in leases}
        if self.shared:
            # So that a commit from before an adoption of the partition conflicts with it.
            versions[self._owner] = self._adoptions(table)
        return versions | dict(done)

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
        """Make one commit from the state that a handle sees: see `versions`."""
        if self.shared:
            metadata["origin"] = self.partition
        named = {f"wane.{name}": value for name, value in metadata.items()}
        write_entry(table, self.root, actions, [MONTH], self.versions(table, leases, done), named)

    def give(self, origin: str, writers: Sequence[str], leases: Sequence[Lease]) -> ColdTable:
        """Transfer the table to the database under its new name `origin`, with what the log records of sweeps and
        jobs."""
        given = ColdTable(self.root.parent, self.name, origin, shared=self.shared)
        handle = self._handle()
        if handle is None or given._is_marked(handle):
            return given
        self.require_ours(handle)
        known = {name: handle.transaction_version(self._application(name)) for name in writers}
        done = {given._application(name): version for name, version in known.items() if version is not None}
        if self.shared:
            adoptions = self._adoptions(handle) + 1
            done |= {given._owner: adoptions, f"wane-adopter:{given.origin}": adoptions}
        given.write(handle, [], leases, done)
        if self.shared:
            return given
        handle = self._handle()
        assert handle is not None
        with writing(self.root):
            handle.alter.set_table_description(given._description)
            sync_log(self.root)
        return given

    def take_over(self, leases: Sequence[Lease]) -> None:
        """Make the log refuse every later commit of a process that held one of these leases before."""
        from deltalake.exceptions import CommitFailedError

        for attempt in range(ATTEMPTS):
            table = self.fresh()
            if table is None:
                return
            if all(table.transaction_version(self._fence(lease)) == lease.fence for lease in leases):
                return
            try:
                self.write(table, [], leases, {})
                return
            except CommitFailedError:
                if attempt + 1 == ATTEMPTS:
                    raise

    def commit(self, writer: str, sweep: int, files: Sequence[Any], leases: Sequence[Lease]) -> None:
        """Add a sweep's files, once."""
        from deltalake.exceptions import CommitFailedError

        actions = self.additions(files)
        for attempt in range(ATTEMPTS):
            table = self.fresh()
            assert table is not None
            if self.has_sweep(table, writer, sweep):
                return
            try:
                self.write(table, actions, leases, self.application(writer, sweep), sweep=str(sweep))
                return
            except CommitFailedError:
                if attempt + 1 == ATTEMPTS:
                    raise

    def additions(self, files: Sequence[Any]) -> list[AddAction | RemoveAction]:
        """Return the actions that add files, each of which is checked."""
        from deltalake.transaction import AddAction

        for file in files:
            path = self.folder / file["path"]
            if not is_written(path, file["bytes"]):
                raise ArchiveError(f"{path} is not what was written", "run again: its rows are copied again")
        now = int(time.time() * 1000)
        return [
            AddAction(
                file["path"], file["bytes"], {MONTH: file["month"]}, now, data_change=True, stats=file["statistics"]
            )
            for file in files
        ]

    def made(self, entry: Mapping[str, Any]) -> bool:
        """Check whether an entry of a shared table's log is this database's, or one of several databases with it."""
        return self.partition in str(entry.get("wane.origin", "")).split(",")

    def active(self) -> set[str]:
        """Return the paths of the files that make up the table now."""
        table = self.open()
        uris = [] if table is None else table.file_uris()
        return {
            local_path(one) if isinstance(self.root, ObjectPath) else os.path.realpath(local_path(one)) for one in uris
        }


def require_conditional_puts(folder: ColdPath) -> None:
    """Raise if an object store lets the second of two writers overwrite the commit of the first.

    Some that speak S3's protocol ignore the condition of a put. Several threads commit from one state, at the same
    time, to a table of no rows: all of their commits must be in its log. A process asks once for all tables of an
    archive.
    """
    from deltalake import DeltaTable, Field
    from deltalake.schema import PrimitiveType, Schema

    if isinstance(folder, Path):
        return
    probe = folder.parent / f".wane-{uuid.uuid4().hex}"
    options = storage_options(probe)
    requested = str(folder.parent), json.dumps(options, sort_keys=True)
    if requested in _conditional:
        return
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
        _conditional.add(requested)
    finally:
        remove_tree(probe)
