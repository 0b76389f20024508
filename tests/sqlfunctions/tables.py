"""Tables of every kind that a rule can speak of on PostgreSQL, with rows for each, and the contract for them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from servers import Database

SCHEMA = """
CREATE TYPE phase AS ENUM ('open', 'done', 'void');
CREATE TABLE job (id bigint PRIMARY KEY, status text NOT NULL, finished_ms bigint);
CREATE INDEX job_age ON job (status, finished_ms, id);

CREATE TABLE inbox (id bigint PRIMARY KEY, status phase NOT NULL, received_at timestamptz);
CREATE INDEX inbox_age ON inbox (status, received_at, id);
CREATE TABLE outbox (id bigint PRIMARY KEY, inbox_id bigint);
CREATE INDEX outbox_inbox ON outbox (inbox_id);

CREATE TABLE "odd % name" (tenant text, "the key" text, seen text NOT NULL, PRIMARY KEY (tenant, "the key"));
CREATE INDEX odd_seen ON "odd % name" (seen COLLATE "C", tenant, "the key");

CREATE TABLE post (id bigint PRIMARY KEY, written_at timestamp NOT NULL, kept_at timestamptz);
CREATE INDEX post_age ON post (written_at, id);
CREATE TABLE comment (id bigint PRIMARY KEY, post_id bigint NOT NULL REFERENCES post (id), queue text NOT NULL);
CREATE INDEX comment_post ON comment (post_id);
CREATE TABLE vote (id bigint PRIMARY KEY, comment_id bigint NOT NULL REFERENCES comment (id));
CREATE INDEX vote_comment ON vote (comment_id);

CREATE TABLE presence (id bigint PRIMARY KEY, tenant text, seen_at double precision NOT NULL);
CREATE INDEX presence_seen ON presence (seen_at, id);
CREATE INDEX presence_tenant ON presence (tenant, seen_at, id);

CREATE TABLE lease (name text PRIMARY KEY, expires_us bigint);
CREATE INDEX lease_expiry ON lease (expires_us, name);

CREATE TABLE draft (id bigint PRIMARY KEY, post_id bigint, status text NOT NULL, saved_at timestamptz NOT NULL);
CREATE INDEX draft_age ON draft (post_id, status, saved_at, id);

CREATE TABLE receipt (id bigint PRIMARY KEY, post_id bigint, taken_at timestamptz NOT NULL);
CREATE INDEX receipt_age ON receipt (post_id, taken_at, id);
"""

CONTRACT = """
[table.job]
why   = "Finished jobs are marked, then go."
state = "status"
live  = ["queued"]
time  = { column = "finished_ms", unit = "ms" }
[table.job.rule.marked]
when = ["succeeded", "cancelled"]
keep = "2d"
then = { mark = "cleaned" }
[table.job.rule.gone]
when = ["cleaned"]
keep = "5d"

[table.inbox]
why   = "A message outlives every reply."
state = "status"
live  = ["open"]
time  = { column = "received_at" }
[table.inbox.rule.done]
when   = ["done", "void"]
keep   = "1d"
unless = [{ referenced_by = "outbox.inbox_id" }]

[table."odd % name"]
why  = "Odd names are names too."
time = { column = "seen", unit = "iso" }
[table."odd % name".rule.old]
keep = "3d"

[table.post]
why  = "Comments and their votes leave with their post."
time = { column = "written_at", zone = "UTC" }
[table.post.rule.old]
keep   = "4d"
unless = [{ not_null = "kept_at" }]
with   = [{ table = "comment", columns = ["post_id"], with = ["vote.comment_id"] }]

[table.presence]
why  = "Derived inventory."
time = { column = "seen_at", unit = "s" }
[table.presence.rule.cap]
most = 4
per  = ["tenant"]
[table.presence.rule.all]
most = 30

[table.lease]
why = "Owners renew."
[table.lease.rule.expired]
expires = { column = "expires_us", unit = "us" }

[table.draft]
why   = "A draft that never became a post, unless somebody works on it."
state = "status"
live  = ["open"]
time  = { column = "saved_at" }
[table.draft.rule.orphans]
when    = ["dropped", "sent"]
orphans = "post_id"
keep    = "1d"

[table.receipt]
why  = "A receipt without its post is of no use."
time = { column = "taken_at" }
[table.receipt.rule.orphans]
orphans = "post_id"
keep    = "1d"

[excused]
outbox  = { inline = "the sender deletes them" }
comment = { inline = "with its post" }
vote    = { inline = "with its comment" }
"""

NAMES = ("job", "inbox", "outbox", '"odd % name"', "post", "comment", "vote", "presence", "lease", "draft", "receipt")
RULES = (
    ("job", "marked"),
    ("job", "gone"),
    ("inbox", "done"),
    ("odd % name", "old"),
    ("post", "old"),
    ("presence", "cap"),
    ("presence", "all"),
    ("lease", "expired"),
    ("draft", "orphans"),
    ("receipt", "orphans"),
)


def contract_file(folder: Path, text: str = CONTRACT) -> Path:
    path = folder / "wane.toml"
    scheduled = text.replace("\nwhy", '\nscheduler = "tick"\nwhy')
    path.write_text(f'[scheduler]\ntick = {{ every = "5m" }}\n{scheduled}', encoding="utf-8")
    return path


def fill(database: Database, seed: int, rows: int = 60) -> None:
    """Insert rows of all ages, states and kinds. None is younger or older than a cutoff by less than half an hour."""
    luck = random.Random(seed)
    now = datetime.now(UTC)

    def timestamp() -> datetime:
        return now - timedelta(hours=luck.randrange(-24, 24 * 10) + 0.5, microseconds=luck.randrange(1_000_000))

    def micros(when: datetime) -> int:
        return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def iso(when: datetime) -> str:
        digits = luck.choice(("", f".{when.microsecond:06d}", f".{when.microsecond // 1000:03d}"))
        return when.strftime("%Y-%m-%dT%H:%M:%S") + digits + luck.choice(("Z", "+00:00"))

    def some(*values: object) -> object:
        return luck.choice(values)

    numbers = range(1, rows + 1)
    tables: dict[str, list[tuple[object, ...]]] = {
        "job": [
            (n, some("queued", "succeeded", "cancelled", "cleaned"), some(None, 0, *[micros(timestamp()) // 1000] * 9))
            for n in numbers
        ],
        "inbox": [(n, some("open", "done", "void"), some(None, *[timestamp()] * 9)) for n in numbers],
        "outbox": [(n, some(None, luck.randrange(1, rows + 30))) for n in range(1, rows // 3)],
        '"odd % name"': [
            (some("a", "B", "é"), f"k{n}", some(iso(timestamp()), "soon", iso(timestamp()))) for n in numbers
        ],
        "post": [(n, timestamp().replace(tzinfo=None), some(None, None, now)) for n in numbers],
        "comment": [(n, luck.randrange(1, rows + 1), some("web", "mail")) for n in range(1, rows * 2)],
        "vote": [(n, luck.randrange(1, rows * 2)) for n in numbers],
        "presence": [(n, some(None, "a", "b", "A"), micros(timestamp()) / 1e6) for n in numbers],
        "lease": [(f"l{n}", some(None, micros(timestamp()))) for n in numbers],
        "draft": [(n, some(None, n), some("open", "dropped", "sent"), timestamp()) for n in numbers],
        "receipt": [(n, some(None, n), timestamp()) for n in numbers],
    }
    for name, found in tables.items():
        database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(found[0]))})", found)
