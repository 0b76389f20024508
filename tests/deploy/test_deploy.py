"""What `deploy/` has is valid for the programs that read it, and names options, metrics and files that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from wane._cli import load
from wane._contract.load import load_contract
from wane.observe._alerts import alert_rules, as_yaml, dashboard

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    for one in UNITS:
        text = one.read_text(encoding="utf-8").replace("/opt/wane/bin/wane", sys.executable)
        (tmp_path / one.name).write_text(text, encoding="utf-8")
    if program is None:
        pytest.skip("there is no systemd-analyze")
    done = subprocess.run(
        [program, "verify", str(tmp_path / unit.name)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_kubernetes_accepts_the_resources_and_they_have_no_privileges() -> None:
    resources = documents(DEPLOY / "kubernetes/wane.yaml")
    for resource in resources:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    _, deployment, job = resources
    for pod in (deployment["spec"]["template"]["spec"], job["spec"]["jobTemplate"]["spec"]["template"]["spec"]):
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]
    assert container["readinessProbe"]


def commands() -> list[list[str]]:
    """Return the commands of Wane that the files run."""
    _, deployment, job = documents(DEPLOY / "kubernetes/wane.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (sweep,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    listed = re.findall(r"^(?:CMD|HEALTHCHECK .* CMD) (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    typed = [
        re.findall(r"/opt/wane/bin/wane (.*?)(?: >>.*)?$", file.read_text(encoding="utf-8"), re.MULTILINE)
        for file in (*UNITS, DEPLOY / "cron.d-wane")
    ]
    found = [
        container["args"],
        container["readinessProbe"]["exec"]["command"],
        sweep["args"],
        *(json.loads(one) for one in listed),
        *(line.split() for lines in typed for line in lines),
    ]
    return [words[words[:1] == ["wane"] :] for words in found]


def test_every_command_exists_with_its_options() -> None:
    assert len(commands()) == 8
    for name, *words in commands():
        options = {option for one in load(name).params for option in one.opts}
        assert {word for word in words if word.startswith("-")} <= options


def test_compose_mounts_files_that_exist() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")
    mounted = [one.split(":")[0] for service in compose["services"].values() for one in service.get("volumes", ())]
    assert [one for one in mounted if one.startswith(".") and not (DEPLOY / one).exists()] == []
    assert {one for one in mounted if not one.startswith(".")} == set(compose["volumes"])
    (prometheus,) = documents(DEPLOY / "prometheus/prometheus.yml")
    assert prometheus["rule_files"] == ["wane-rules.yml"]
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.split(":")[0] in compose["services"]


def test_the_rules_are_those_of_the_contract_beside_them() -> None:
    made = as_yaml(alert_rules(load_contract(DEPLOY / "wane.toml"), timedelta(hours=1)))
    assert (DEPLOY / "prometheus/wane-rules.yml").read_text(encoding="utf-8") == made, (
        "run: wane alerts --contract deploy/wane.toml > deploy/prometheus/wane-rules.yml"
    )


def test_the_dashboard_is_the_one_that_wane_writes() -> None:
    written = json.loads((DEPLOY / "grafana/wane.json").read_text(encoding="utf-8"))
    assert written == dashboard(), "run: wane alerts --contract deploy/wane.toml --grafana > deploy/grafana/wane.json"


def test_the_image_can_do_what_every_command_needs() -> None:
    installed = re.findall(r"'\.\[(.*)\]'", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    plain, spark = [set(extras.split(",")) for extras in installed]
    assert plain == {"postgres", "metrics", "otel", "web"}
    assert spark == plain | {"spark"}


@pytest.mark.deploy
def test_the_steps_of_the_image_install_wane(tmp_path: Path) -> None:
    """The commands of the first stage, in an environment of their own, and the command of the last one."""
    source = tmp_path / "source"
    source.mkdir()
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")[1]
    for files in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        *named, _ = files.split()
        for name in named:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
    for command in re.findall(r"^RUN (.*)$", text, re.MULTILINE):
        moved = command.replace("/opt/wane", str(tmp_path / "wane")).replace("python -m", f"{sys.executable} -m")
        subprocess.run(moved, shell=True, cwd=source, check=True, timeout=600)
    done = subprocess.run([tmp_path / "wane/bin/wane", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("wane ")
