"""An archive in Azure Blob Storage: tests of object stores run against its emulator, Azurite (`npm install azurite`).

They are skipped unless `WANE_AZURITE` names its program `azurite-blob`, or it is on the path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from archive import test_object_store as buckets
from archive.cold import cold_keeper, events
from archive.object_server import AzureServer, azure_server
from archive.oracle import KINDS, live
from archive.test_conservation import keeping
from servers import Database, SqliteDatabase
from wane._archive.delta.object_store import azure_hosts
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError

AZURITE = os.environ.get("WANE_AZURITE") or shutil.which("azurite-blob")

url = buckets.url
test_racing_writers_all_commit_and_each_once = buckets.test_racing_writers_all_commit_and_each_once
test_a_sweep_that_was_killed_is_finished = buckets.test_a_sweep_that_was_killed_at_any_step_is_finished_in_a_bucket
test_an_expiry_that_was_killed_is_finished = buckets.test_an_expiry_that_was_killed_at_any_step_is_finished_in_a_bucket
test_a_restore_that_was_killed_is_finished = buckets.test_a_restore_that_was_killed_at_any_step_is_finished_in_a_bucket
test_a_container_that_vanished_is_no_empty_archive = buckets.test_a_bucket_that_vanished_is_no_empty_archive
test_an_object_that_was_written_by_half_is_never_proof = buckets.test_an_object_that_was_written_by_half_is_never_proof
test_a_log_that_lost_a_commit_is_written_back = (
    buckets.test_a_log_that_lost_its_newest_commit_is_written_back_in_a_bucket
)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    if AZURITE is None:
        pytest.skip("azurite-blob is not on the path: `npm install azurite`, and name it in WANE_AZURITE")
    with azure_server(AZURITE, tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def server(emulator: AzureServer, monkeypatch: pytest.MonkeyPatch) -> AzureServer:
    for name, value in emulator.environment.items():
        monkeypatch.setenv(name, value)
    return emulator


@pytest.mark.sampled("sqlite-plain", "postgres-followers")
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_hot_or_cold_in_a_container(
    database: Database, tmp_path: Path, server: AzureServer, kind: str
) -> None:
    with keeping(database, tmp_path, KINDS[kind], server) as cold:
        live(cold, KINDS[kind], frames=False)


def test_a_wrong_key_is_reported_without_it(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: AzureServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 5)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold:
        refused = cold.one()
        assert refused.outcome is Outcome.FAILED
        assert url in refused.message
        assert "d3Jvbmc=" not in refused.message
        assert len(cold.hot()) == 8


@pytest.mark.parametrize(
    ("endpoint", "blob", "dfs"),
    [
        ("https://shop.blob.core.chinacloudapi.cn/", ".blob.core.chinacloudapi.cn", ".dfs.core.chinacloudapi.cn"),
        ("http://127.0.0.1:10000/shop", "127.0.0.1:10000", "127.0.0.1:10000"),
    ],
)
def test_an_endpoint_names_the_hosts_of_an_account(endpoint: str, blob: str, dfs: str) -> None:
    scheme = endpoint.partition(":")[0]
    assert azure_hosts(endpoint, "shop") == {
        "blob_storage_authority": blob,
        "dfs_storage_authority": dfs,
        "blob_storage_scheme": scheme,
        "dfs_storage_scheme": scheme,
    }


@pytest.mark.parametrize("endpoint", ["https://other.blob.core.windows.net", "shop", "https://example.com"])
def test_an_endpoint_of_another_account_is_refused(endpoint: str) -> None:
    """Arrow and Delta Lake would write to different accounts."""
    with pytest.raises(ArchiveError, match="does not name the account shop"):
        azure_hosts(endpoint, "shop")
