"""The asyncio facade of the archive.

Every call runs on the keeper's own thread, after its earlier calls and never concurrently with one.
"""

from __future__ import annotations

from wane._aio import Awaited, awaited
from wane._archive.facade import Archive


class AsyncArchive(Awaited[Archive]):
    """An Archive whose calls are awaited: `keeper.archive` of an AsyncKeeper. Stop events are `threading.Event`s."""

    absent = awaited(Archive.absent)
    adopt = awaited(Archive.adopt)
    cancel_restore = awaited(Archive.cancel_restore)
    compact = awaited(Archive.compact)
    due = awaited(Archive.due)
    expire = awaited(Archive.expire)
    findings = awaited(Archive.findings)
    has_work = awaited(Archive.has_work)
    query = awaited(Archive.query)
    read = awaited(Archive.read)
    repair = awaited(Archive.repair)
    restore = awaited(Archive.restore)
    restores = awaited(Archive.restores)
    run = awaited(Archive.run)
    status = awaited(Archive.status)
    survey = awaited(Archive.survey)
    tables = awaited(Archive.tables)
    tidy = awaited(Archive.tidy)
    verify = awaited(Archive.verify)
