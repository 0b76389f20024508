"""Restoring: archived rows are chosen, loaded into their tables, compared, and removed from the archive."""
