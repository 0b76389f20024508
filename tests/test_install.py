"""`make setup` installs with uv what pip is configured to install, or with pip."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", Path(__file__).parents[1] / ".ci" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_uv_uses_the_indexes_of_pip(install: ModuleType) -> None:
    assert install.uv_environment(
        ":env:.find-links='/one /two'\n"
        "global.cert='/certificates'\n"
        "global.extra-index-url='\\nhttps://a.example/simple\\nhttps://b.example/simple'\n"
        "global.find-links='/three'\n"
        "global.index-url='https://c.example/simple'\n"
        "global.timeout='60'\n"
    ) == {
        "SSL_CERT_FILE": "/certificates",
        "UV_DEFAULT_INDEX": "https://c.example/simple",
        "UV_FIND_LINKS": "/one,/two",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_options_of_another_command_do_not_count(install: ModuleType) -> None:
    assert install.uv_environment("download.no-binary=':all:'\n") == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


@pytest.mark.parametrize("option", ["global.require-hashes='true'", "install.no-binary=':all:'", ":env:.no-index='1'"])
def test_pip_installs_where_uv_has_no_such_option(install: ModuleType, option: str) -> None:
    assert install.uv_environment(f"global.index-url='https://c.example/simple'\n{option}\n") is None
