"""An object store that speaks S3's protocol (moto), in a process of its own, whose connections fail on request.

Run as a script, it serves until its input ends.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from wane._archive.delta.object_store import file_system

FAULTS = "/faults"
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass(frozen=True)
class ObjectServer:
    """A server that runs, and what the environment must say to reach it."""

    address: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.address,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def request(self, method: str, path: str, content: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(self.address + path, content, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return bytes(answer.read())

    def bucket(self) -> str:
        """Create a bucket; return its URL."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        self.request("PUT", f"/{name}")
        return f"s3://{name}"

    @contextmanager
    def failing(self, do: str, *, method: str = "", path: str = "", times: int = 1_000_000) -> Iterator[None]:
        """Let requests fail: `drop` the connection before one is served, `lose` the answer of one that is, `throttle`
        those of a client, or `strip` the condition of a put."""
        fault = {"do": do, "method": method, "path": path, "times": times}
        self.request("POST", FAULTS, json.dumps(fault).encode())
        try:
            yield
        finally:
            self.request("POST", FAULTS, b"{}")

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Accept the keys of known users only, of which there are none."""
        self.request("POST", "/moto-api/reset-auth", b"0")
        try:
            yield
        finally:
            self.request("POST", "/moto-api/reset-auth", b"inf")

    def archived(self, url: str) -> list[dict[str, Any]]:
        """Return what any other reader sees of a table."""
        options = {"allow_http": "true"}
        if not DeltaTable.is_deltatable(url, options):
            return []
        return list(DeltaTable(url, storage_options=options).to_pyarrow_table().to_pylist())


class AzureServer(ObjectServer):
    """Azurite, Microsoft's emulator of Azure Blob Storage, and what the environment must say to reach it."""

    ACCOUNT, KEY = "wanetest", base64.b64encode(b"key of a test").decode()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": self.KEY,
            "AZURE_STORAGE_ENDPOINT": f"{self.address}/{self.ACCOUNT}",
            # Azurite ignores where a list begins (`startFrom`), so that Delta Lake's client must skip names itself.
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self.address,
        }

    def bucket(self) -> str:
        """Create a container; return its URL. The environment has to name the server."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        file_system("az").create_dir(name)
        return f"az://{name}"


@contextmanager
def azure_server(program: str, folder: Path) -> Iterator[AzureServer]:
    """Run Azurite, whose program is named, with an account of its own."""
    words = ["--inMemoryPersistence", "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", "0", "--loose"]
    with subprocess.Popen(
        [program, *words, "--skipApiVersionCheck", "--silent"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "AZURITE_ACCOUNTS": f"{AzureServer.ACCOUNT}:{AzureServer.KEY}"},
    ) as process:
        assert process.stdout is not None
        try:
            found = (re.search(r"successfully listens on (http://\S+)", line) for line in process.stdout)
            yield AzureServer(next(one.group(1) for one in found if one is not None))
        finally:
            process.terminate()


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "inf"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield ObjectServer(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.stdin.close()
            process.wait()


class _Faulty:
    """A WSGI application in front of another one."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._fault: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._conditional = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == FAULTS:
            self._fault = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            start_response("200 OK", [("Content-Length", "0")])
            return [b""]
        do = self._due(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if do == "strip":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if do == "drop":
            return self._hang_up(environ, start_response)
        if do == "throttle":
            start_response("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(_BUSY)))])
            return [_BUSY]
        answer = self._serve(environ, start_response)
        if do != "lose":
            return answer
        for _ in answer:
            pass
        return self._hang_up(environ, start_response)

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environ:
            return self._application(environ, start_response)  # type: ignore[no-any-return]
        # moto checks the condition of a put, and then puts: two threads at once would both succeed, as they never do in
        # S3.
        with self._conditional:
            return self._application(environ, start_response)  # type: ignore[no-any-return]

    def _due(self, method: str, path: str) -> str | None:
        with self._lock:
            fault = self._fault
            if not fault or fault["method"] not in ("", method) or fault["path"] not in path or fault["times"] <= 0:
                return None
            fault["times"] -= 1
            return str(fault["do"])

    def _hang_up(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start_response("200 OK", [("Content-Length", "0")])
        return [b""]


def main() -> None:
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import make_server

    objects, control = create_backend_app("s3"), create_backend_app("moto_api")

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        # moto's own dispatcher looks for the service of every request among all that there are, which takes half of its
        # time.
        chosen = control if environ["PATH_INFO"].startswith("/moto-api") else objects
        return chosen(environ, start_response)

    server = make_server("127.0.0.1", 0, _Faulty(application), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)  # noqa: T201 - how the other process learns it
    sys.stdin.read()


if __name__ == "__main__":
    main()
