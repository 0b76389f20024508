"""A Spark cluster of one's own, a master and workers, and a server of Spark Connect, started from the package that Wane
runs on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from wane._archive.spark.java import java_home

START_SECONDS = 240.0


@contextmanager
def cluster(folder: Path, workers: int, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the master's URL. Only the workers have `environ`."""
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        log = stack.enter_context(_started(folder / "master", ["master.Master", "--port", str(port)], {}))
        _await(log, "I have been elected leader")
        for number in range(workers):
            words = [
                "worker.Worker",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / f"work-{number}"),
                url,
            ]
            log = stack.enter_context(_started(folder / f"worker-{number}", words, environ))
            _await(log, "Successfully registered with master")
        yield url


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Yield the URL of a server that runs its tasks itself, two at a time."""
    port = _free_port()
    home = Path(pyspark.__file__).parent
    log = folder / "connect.log"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.artifact.isolation.enabled": "false",
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2,4]", *words]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"],
            env={**_plain(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=folder,
            stdout=output,
            stderr=output,
        )
        try:
            _await(log, "Spark Connect server started")
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def _plain() -> dict[str, str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    return {**others, "SPARK_HOME": str(Path(pyspark.__file__).parent), "JAVA_HOME": java_home()}


@contextmanager
def _started(path: Path, words: list[str], environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(pyspark.__file__).parent
    log = path.with_suffix(".log")
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{words[0]}"]
    given = {
        **_plain(),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        **environ,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--webui-port", "0", *words[1:]], env=given, stdout=output, stderr=output
        )
        try:
            yield log
        finally:
            process.terminate()
            process.wait(timeout=30)


def _await(log: Path, words: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while words not in (text := log.read_text(errors="replace")):
        assert time.monotonic() < deadline, text[-2000:]
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def environment(folder: Path) -> Path:
    """Return an environment to be shipped: a Python of its own that finds this one's packages."""
    inside = folder / "shipped"
    packages = inside / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (inside / "bin").mkdir()
    (inside / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (inside / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    (packages / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith(("site-packages", "src"))))
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for one in inside.iterdir():
            packed.add(one, one.name)
    return archive


def spark_of(master: str, folder: Path) -> str:
    """Return the settings of a contract whose tasks run on a cluster, in an environment that is shipped there; the end
    of its section `spark`."""
    return f"""
master = "{master}"
url_variable = "WANE_TASK_URL"
[spark.settings]
"spark.archives" = "{environment(folder)}#env"
"spark.pyspark.python" = "./env/bin/python"
"spark.driver.host" = "127.0.0.1"
"spark.executor.memory" = "512m"
"""
