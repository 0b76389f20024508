"""Requests that Schemathesis generates from the OpenAPI document: every answer is one that the document describes."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

from web.conftest import Shop

EXAMPLES = max(3, int(os.environ.get("WANE_EXAMPLES", "20")) // 10)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def operations(document: dict[str, Any]) -> list[Any]:
    schema = schemathesis.openapi.from_dict(document)
    return [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]


def ask(shop: Shop, case: Any) -> Any:
    options = case.as_transport_kwargs(base_url="http://127.0.0.1", headers=shop.bearer("admin"))
    allowed = {name: options[name] for name in ("params", "json", "data", "headers") if options.get(name) is not None}
    if "data" in allowed:
        allowed["content"] = allowed.pop("data")
    return shop.ask.ask(options["method"], options["url"], **allowed)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
def test_every_answer_is_one_that_the_document_describes(guarded: Shop, mode: GenerationMode) -> None:
    document = json.loads(guarded.ask.get("/api/v1/openapi.json").text)
    found = operations(document)
    assert len(found) == sum(map(len, document["paths"].values()))
    for operation in found:

        @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.validate_response(ask(guarded, case), checks=CHECKS)

        check()
