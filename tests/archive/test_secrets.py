"""The database's password reaches the tasks, and nothing that anybody can read."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path

import pytest

from archive.cold import cold_keeper, events
from wane._archive.spark import session
from wane._archive.spark.reader import Source, fetch, open_reader
from wane._archive.spark.secret import task_source
from wane._contract.settings import SparkSettings
from wane._prune.sweep import Outcome
from wane.errors import Unreachable

SECRET = "sekret-41f7"


@pytest.mark.on_spark
def test_the_password_is_in_no_setting_plan_log_manifest_or_process(
    clusters: object, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with clusters["postgres"].database() as database:  # type: ignore[index]
        events(database, 20)
        database.url = re.sub(r"//([^@/]*)@", rf"//\1:{SECRET}@", database.url)
        assert SECRET in database.url
        with cold_keeper(database, tmp_path) as cold:
            (tmp_path / "wane.toml").unlink()
            assert cold.one().outcome is Outcome.DONE
            spark = session.session(cold.keeper.contract.spark)
            assert not [pair for pair in spark.sparkContext.getConf().getAll() if SECRET in str(pair)]
            [journal] = database.query("SELECT string_agg(manifest::text, '') FROM wane.archive_range")
            assert SECRET not in str(journal)
            assert not any(SECRET in str(event) for event in cold.events)
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(written) > 4
    assert not [file for file in written if SECRET.encode() in file.read_bytes()]
    for stated in session._output:
        stated.seek(0)
        assert SECRET.encode() not in stated.read()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid():
            try:
                assert SECRET.encode() not in (process / "cmdline").read_bytes()
            except OSError:
                continue
    out, err = capfd.readouterr()
    assert SECRET not in out + err


def test_only_the_same_user_can_request_and_only_while_it_is_reported() -> None:
    source = Source("postgres", secret=f"postgresql://me:{SECRET}@nowhere/db")
    assert SECRET not in repr(source)
    with task_source(source, SparkSettings()) as known:
        assert known.secret is None
        assert known.at is not None
        folder = Path(known.at).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert fetch(known.at) == source.secret
        assert fetch(known.at) == source.secret
    assert not folder.exists()
    with pytest.raises(OSError, match="No such file"):
        fetch(known.at)


def test_files_that_other_threads_create_meanwhile_have_the_rights_that_they_always_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has one umask for all threads, and a fleet has several sweeps at a time: two that set it and set it
    back in turns would leave it changed."""
    bind, before, during = socket.socket.bind, tmp_path / "before", tmp_path / "during"

    def bind_beside_others(this: socket.socket, address: str) -> None:
        during.touch()
        bind(this, address)

    before.touch()
    monkeypatch.setattr(socket.socket, "bind", bind_beside_others)
    with task_source(Source("postgres", secret="postgresql://nowhere/db"), SparkSettings()):
        assert during.stat().st_mode == before.stat().st_mode


def test_a_database_that_cannot_be_reached_reports_it_without_the_password() -> None:
    with (
        pytest.raises(Unreachable, match="cannot be reached") as problem,
        open_reader(Source("postgres", secret=f"postgresql://me:{SECRET}@127.0.0.1:1/db")),
    ):
        pass
    assert SECRET not in str(problem.value)
    assert problem.value.__cause__ is None
