-- Tables that are partitioned by Wane, or on the way to it or back: what each was like before, and how far it has come.
CREATE TABLE wane.partition_change (
  table_name text PRIMARY KEY,           -- with its schema
  kind       text NOT NULL CHECK (kind IN ('convert', 'split', 'undo')),
  state      text NOT NULL,
  facts      jsonb NOT NULL,
  actor      text NOT NULL,
  began_at   timestamptz NOT NULL,
  changed_at timestamptz NOT NULL
);

-- Partitions that were taken off: where each of them is, until when it can be put back, and what became of it.
CREATE TABLE wane.partition_retired (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  table_name text NOT NULL,              -- with its schema
  partition  text NOT NULL,              -- its name as a partition
  state      text NOT NULL CHECK (state IN ('detaching', 'quarantined', 'attached', 'moved', 'dropped')),
  lower      text NOT NULL,              -- its range, as literals
  upper      text NOT NULL,
  place      text,                       -- where it is now, as SQL writes it; NULL once it is gone
  along      jsonb NOT NULL,             -- what left other tables with it, and where that is
  counts     jsonb NOT NULL,
  actor      text NOT NULL,
  retired_at timestamptz NOT NULL,
  changed_at timestamptz NOT NULL,
  drop_at    timestamptz
);
CREATE INDEX partition_retired_table ON wane.partition_retired (table_name, id);
CREATE UNIQUE INDEX partition_retired_under_way ON wane.partition_retired (table_name, partition)
  WHERE state IN ('detaching', 'quarantined');
