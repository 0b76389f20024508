"""The endpoint of an object store that the environment names: that nothing answers there is reported within seconds.

The clients of Arrow and of Delta Lake retry a refused connection as long as a slow answer, each of them anew. Here it
is tried for a few seconds only. A server that accepts connections, however slowly, is left to the clients.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies

from wane._contract.mistakes import mask
from wane.errors import ArchiveError

AZURE_ENDPOINT = "AZURE_STORAGE_ENDPOINT"
_NAMED_BY = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "az": (AZURE_ENDPOINT,),
}
"""The variables that name an endpoint, by scheme: the first one that is set."""
_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0
_CONNECT_SECONDS = 2.0
_VALID_SECONDS = 5.0
_results: dict[str, tuple[float, str]] = {}
"""When each endpoint was last tried, and why nothing answered; empty if something did."""


def endpoint(scheme: str, settings: Mapping[str, str]) -> str | None:
    """Return the URL of the endpoint that the environment names; None for the store's own."""
    return next((settings[name] for name in _NAMED_BY[scheme] if settings.get(name)), None)


def require_endpoint(scheme: str) -> None:
    """Raise ArchiveError if the environment names an endpoint and nothing accepts connections there.

    What was found counts for some seconds. Behind a proxy nothing is tried, because only the proxy can connect.
    """
    url = endpoint(scheme, os.environ)
    if url is None or {"http", "https", "all"} & getproxies().keys():
        return
    tried_at, problem = _results.get(url, (None, ""))
    if tried_at is None or time.monotonic() - tried_at > _VALID_SECONDS:
        problem = _connect(url)
        _results[url] = time.monotonic(), problem
    if problem:
        name = next(one for one in _NAMED_BY[scheme] if os.environ.get(one))
        raise ArchiveError(
            f"the object store at {mask(url)} cannot be reached: {problem}",
            f"start it, or correct {name} in the environment, which names it",
        )


def _connect(url: str) -> str:
    """Return why nothing accepts connections; an empty text if something does, or is only slow."""
    address = urlsplit(url if "://" in url else f"http://{url}")
    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        try:
            port = address.port or (443 if address.scheme == "https" else 80)
            socket.create_connection((address.hostname or "", port), _CONNECT_SECONDS).close()
        except TimeoutError:
            return ""
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        else:
            return ""
    return problem
