"""Every error that Wane raises on purpose.

    WaneError
    ├── ContractError        the contract file has mistakes (all of them, in .findings)
    ├── WrongArgument        a value that makes no sense (also a ValueError)
    ├── WrongArgumentType    a value of the wrong type (also a TypeError)
    ├── UnknownTable         a name that the contract does not have
    ├── UnknownRule
    ├── UrlError             a database URL that cannot be used
    ├── StoreError           the database refused, or could not be reached
    │   ├── Unreachable      no connection
    │   ├── TimedOut         a bounded statement took longer than it may
    │   ├── Locked           other connections hold required locks for longer than Wane waits
    │   ├── SchemaChanged    the tables changed since a rule was bound to them
    │   ├── NotMigrated      Wane's own tables are missing or of another version
    │   └── NotInstalled     the tables of work claims are missing, or a part of them
    ├── BindError            the contract does not fit the database (all mismatches, in .findings)
    ├── PlanError            a plan file that cannot be read or does not belong here
    ├── MetricsError         metrics cannot be served or written
    ├── LeaseLost            the right to work was lost to another process
    ├── NotInForce           another contract is in force for this database
    ├── NotAllowed           the connected user lacks the role that sweeps need
    ├── PartitionError       a table cannot be partitioned, or what must be accepted first was not
    │   └── PartitionBusy    another process is changing its partitions
    ├── ClaimLost            a work claim that its holder no longer holds (who does, in .denial)
    └── ArchiveError         the archive cannot be read or written, or does not hold what it must
        ├── ArchiveBusy      another process writes to it
        ├── ArchiveChanged   it is no longer what it was when a change of it was planned
        ├── Unproven         what was read back from it is not what the database holds; nothing left
        └── SparkError       Spark, or the Java it needs, does not run

Each has a message that states what happened and a hint that states what to do. Errors of a database driver appear only
as `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wane._findings import Finding


class WaneError(Exception):
    """The root: catch this to catch everything that Wane raises on purpose."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class _WithFindings(WaneError):
    def __init__(self, message: str, findings: Sequence[Finding], hint: str = "") -> None:
        super().__init__(message, hint)
        self.findings = tuple(findings)

    def __str__(self) -> str:
        return "\n".join([self.message, *(str(finding) for finding in self.findings)])


class ContractError(_WithFindings):
    """The contract file has mistakes."""


class BindError(_WithFindings):
    """The contract does not fit the database."""


class WrongArgument(WaneError, ValueError):
    """A value that makes no sense."""


class WrongArgumentType(WaneError, TypeError):
    """A value of the wrong type."""


class UnknownTable(WaneError):
    """A table that the contract does not have."""


class UnknownRule(WaneError):
    """A rule that the table does not have."""


class UrlError(WaneError):
    """A database URL that cannot be used."""


class StoreError(WaneError):
    """The database refused, or could not be reached."""


class Unreachable(StoreError):
    """No connection to the database."""


class TimedOut(StoreError):
    """A bounded statement took longer than it may."""


class Locked(StoreError):
    """Other connections hold required locks for longer than Wane waits."""


class SchemaChanged(StoreError):
    """The tables changed since a rule was bound to them; nothing was taken."""


class NotMigrated(StoreError):
    """Wane's own tables are missing or of another version."""


class NotInstalled(StoreError):
    """The tables of work claims are missing, or a part of them."""


class PlanError(WaneError):
    """A plan file that cannot be read or does not belong to this database or contract."""


class MetricsError(WaneError):
    """Metrics cannot be served or written."""


class LeaseLost(WaneError):
    """The right to work was lost to another process."""


class ClaimLost(WaneError):
    """A work claim that its holder no longer holds. `denial` has its owner, its state, since when and until when."""

    def __init__(self, message: str, denial: Any) -> None:
        super().__init__(message, "stop working on it: another worker may have begun")
        self.denial = denial


class NotInForce(WaneError):
    """Another contract is in force for this database."""


class ArchiveError(WaneError):
    """The archive cannot be read or written, or does not hold what it must."""


class ArchiveBusy(ArchiveError):
    """Another process writes to the archive of this table."""


class ArchiveChanged(ArchiveError):
    """The archive is no longer what it was when a change of it was planned. Nothing was changed."""


class Unproven(ArchiveError):
    """What was read back from the archive is not what the database holds. Nothing left the hot table."""


class SparkError(ArchiveError):
    """Spark, or the Java it needs, does not run."""


class PartitionError(WaneError):
    """A table cannot be partitioned or reverted, or something would stop working that was not accepted."""


class PartitionBusy(PartitionError):
    """Another process is changing the partitions of this table."""


class NotAllowed(WaneError):
    """The connected user lacks the role that sweeps need."""
