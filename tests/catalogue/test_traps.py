"""What each contract of the catalogue must leave alone although it is old: the traps that its system's schema has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalogue.test_contracts import build, decided
from servers import Database
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._prune.pace import FAST
from wane._prune.sweep import Sweeper

NOW = datetime.now(UTC).replace(tzinfo=None)
OLD, LATER, NEW, AHEAD = (NOW - timedelta(hours=hours) for hours in (10_000, 9_000, 1, -100))


@dataclass(frozen=True)
class Trap:
    """Rows of which some stay: those of `table` whose keys are in `stays`."""

    system: str
    rows: str
    table: str
    stays: tuple[object, ...]
    key: str = "id"


TRAPS = {
    "airflow-last-run": Trap(
        "airflow",
        """
        INSERT INTO dag_bundle VALUES ('b');
        INSERT INTO dag VALUES ('d', 'b');
        INSERT INTO dag_run (id, dag_id, run_id, run_type, state, start_date) VALUES
          (1, 'd', 'r1', 'scheduled', 'success', '<old>'), (2, 'd', 'r2', 'scheduled', 'failed', '<later>'),
          (3, 'd', 'r3', 'manual', 'success', '<later>'), (4, 'd', 'r4', 'manual', 'running', '<old>'),
          (5, 'e', 'r5', 'backfill', 'success', '<old>'), (6, 'e', 'r6', 'manual', 'success', '<new>');
        """,
        "dag_run",
        (2, 4, 5, 6),
    ),
    "airflow-pending-partition": Trap(
        "airflow",
        """
        INSERT INTO asset_partition_dag_run (id) VALUES (1);
        INSERT INTO partitioned_asset_key_log (id, asset_partition_dag_run_id, created_at) VALUES
          (1, 1, '<old>'), (2, 7, '<old>'), (3, 7, '<new>');
        """,
        "partitioned_asset_key_log",
        (1, 3),
    ),
    "airflow-open-deadline": Trap(
        "airflow",
        """
        INSERT INTO callback (id, state, created_at) VALUES
          ('a', 'scheduled', '<old>'), ('b', 'scheduled', '<old>'), ('c', 'running', '<old>'), ('d', 'failed', '<old>'),
          ('e', NULL, '<old>');
        INSERT INTO deadline (id, deadline_time, callback_id) VALUES ('x', '<ahead>', 'a');
        """,
        "callback",
        ("a", "c"),
    ),
    "prefect-subflow": Trap(
        "prefect",
        """
        INSERT INTO flow VALUES ('f');
        INSERT INTO flow_run (id, flow_id, state_type, end_time) VALUES
          ('parent', 'f', 'COMPLETED', '<new>'), ('old', 'f', 'CRASHED', '<old>'), ('paused', 'f', 'PAUSED', '<old>');
        INSERT INTO task_run (id, flow_run_id, state_type) VALUES ('t', 'parent', 'COMPLETED');
        INSERT INTO flow_run (id, flow_id, state_type, end_time, parent_task_run_id) VALUES
          ('child', 'f', 'COMPLETED', '<old>', 't');
        """,
        "flow_run",
        ("child", "parent", "paused"),
    ),
    "prefect-early-log": Trap(
        "prefect",
        """
        INSERT INTO log (id, level, flow_run_id, "timestamp") VALUES
          ('late', 20, 'none', '<new>'), ('lost', 20, 'none', '<old>'), ('alone', 20, NULL, '<old>');
        """,
        "log",
        ("alone", "late"),
    ),
    "procrastinate-later": Trap(
        "procrastinate",
        """
        INSERT INTO procrastinate_jobs (id, queue_name, task_name, status, attempts) VALUES
          (1, 'q', 't', 'succeeded', 1), (2, 'q', 't', 'succeeded', 1), (3, 'q', 't', 'cancelled', 0),
          (4, 'q', 't', 'doing', 0), (5, 'q', 't', 'failed', 1), (6, 'q', 't', 'failed', 1);
        INSERT INTO procrastinate_events (id, job_id, at) VALUES
          (1, 1, '<old>'), (2, 2, '<old>'), (3, 3, '<old>'), (4, 3, '<ahead>'), (5, 4, '<old>'), (6, 5, '<old>');
        INSERT INTO procrastinate_periodic_defers VALUES (1, 't', 0, 2);
        """,
        "procrastinate_jobs",
        (3, 4, 6),
    ),
    "pgqueuer-uncounted": Trap(
        "pgqueuer",
        """
        INSERT INTO pgqueuer_log (id, created, job_id, status, entrypoint, aggregated) VALUES
          (1, '<old>', 1, 'successful', 'e', true), (2, '<old>', 2, 'successful', 'e', false),
          (3, '<new>', 3, 'successful', 'e', true);
        """,
        "pgqueuer_log",
        (2, 3),
    ),
    "django-celery-beat-used-time": Trap(
        "django-celery-beat",
        """
        INSERT INTO django_celery_beat_clockedschedule VALUES (1, '<old>'), (2, '<old>'), (3, '<old>');
        INSERT INTO django_celery_beat_periodictask (id, task, enabled, one_off, clocked_id, date_changed) VALUES
          (1, 'x', true, true, 1, '<old>'), (2, 'x', false, true, 2, '<old>');
        """,
        "django_celery_beat_clockedschedule",
        (1,),
    ),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
@pytest.mark.parametrize("store_id", ["sqlite"])
def test_what_its_system_still_needs_stays(database: Database, trap: Trap, tmp_path: Path) -> None:
    build(database, trap.system)
    rows = trap.rows
    for word, at in {"<old>": OLD, "<later>": LATER, "<new>": NEW, "<ahead>": AHEAD}.items():
        rows = rows.replace(word, f"{at:%Y-%m-%d %H:%M:%S.%f}")
    database.script(rows)
    contract = decided(tmp_path, trap.system)
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        Keeper(contract, store, actor="test").enable()
        Sweeper(store, contract, pace=FAST, unattended=False).sweep()
    found = database.query(f'SELECT {trap.key} FROM "{trap.table}" ORDER BY 1')
    assert tuple(one for (one,) in found) == trap.stays
