"""`wane alerts`."""

from __future__ import annotations

import json
from pathlib import Path

from cli.conftest import Wane
from cli.running import write_contract


def test_it_prints_rules_and_a_dashboard_without_a_database(folder: Path, wane: Wane) -> None:
    write_contract(folder, "sqlite:///missing.db")
    rules = wane("alerts")
    assert (rules.code, rules.out.startswith("groups:\n  - name: wane\n")) == (0, True)
    assert 'expr: "wane_overdue_seconds{table=\\"inbox\\", rule=\\"failed\\"} > 4200"' in rules.out
    assert wane("alerts", "--lag", "2h", "--json").json[-1]["expression"].endswith("> 7800")
    assert json.loads(wane("alerts", "--grafana").out)["uid"] == "wane"
    assert wane("alerts", "--lag", "soon").code == 2
