"""A DAG as a team would write it. `airflow dags test retention` runs it once."""

from __future__ import annotations

import os

from airflow.sdk import DAG

from wane.contrib.airflow import WaneHealthSensor, WaneSweepOperator

CONTRACT = os.environ["SHOP_CONTRACT"]

with DAG("retention", schedule=None, catchup=False):
    WaneSweepOperator(task_id="sweep", contract=CONTRACT, url="SHOP_URL") >> WaneHealthSensor(
        task_id="healthy", contract=CONTRACT, url="SHOP_URL", allow=["no-executor"], poke_interval=0.1, timeout=5
    )
