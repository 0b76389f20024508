"""Maintenance of the archive: compaction, expiry, holds, absent rows, tidying, repair; journaled and audited."""
