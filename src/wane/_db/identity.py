"""What `Store.identity` returns, compared: equal for the same database only, whatever the URL is."""

from __future__ import annotations


def is_same_database(recorded: str, present: str) -> bool:
    """Check whether an identity recorded earlier is the present one's database, also if that was moved or failed over
    since."""
    if recorded.partition(":")[0] != present.partition(":")[0]:
        return False
    if present.startswith("sqlite:"):
        # A file that was moved is the same file; a file that was restored or vacuumed into another is at the same path.
        (path, *file), (now, *same) = (one.rsplit(":", 2) for one in (recorded, present))
        return path == now or file == same
    # A physical replica that was promoted has the same system identifier and the same database oid.
    (system, number), (own, same_number) = (one.split(":")[1:] for one in (recorded, present))
    return number == same_number and (system == own or not system or not own)
