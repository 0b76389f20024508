"""The operator and the sensor in a DAG that Airflow runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from contrib.shop import left_over, make_shop
from servers import Database
from wane import open as open_keeper

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
AIRFLOW = ROOT / ".venv-airflow/bin/airflow"


def airflow(home: Path, *arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
    if not AIRFLOW.exists():
        pytest.fail("there is no environment with Airflow: run `make airflow`", pytrace=False)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "WANE_", "PYTEST_"))},
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "in_airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(ROOT / "src"),
        **given,
    }
    return subprocess.run([AIRFLOW, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_a_dag_sweeps_and_waits_for_health(database: Database, tmp_path: Path) -> None:
    contract = make_shop(database, tmp_path)
    with open_keeper(database.url, contract=contract) as keeper:
        keeper.migrate()
        keeper.enable()
    shop = {"SHOP_CONTRACT": str(contract), "SHOP_URL": database.url}
    migrated = airflow(tmp_path, "db", "migrate", **shop)
    assert migrated.returncode == 0, migrated.stderr
    run = airflow(tmp_path, "dags", "test", "retention", **shop)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "state=success" in run.stdout + run.stderr
    assert left_over(database) == [100, 101]
    with open_keeper(database.url, contract=contract) as keeper:
        assert [entry.actor for entry in keeper.audit(table="jobs")] == ["airflow sweep"]
    # A rule that does not fit any more fails the task, and with it the run.
    database.execute("ALTER TABLE jobs RENAME COLUMN status TO state")
    failed = airflow(tmp_path, "dags", "test", "retention", **shop)
    assert "state=failed" in failed.stdout + failed.stderr
