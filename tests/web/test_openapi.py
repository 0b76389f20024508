"""Requests that Schemathesis generates from the OpenAPI document: every answer is one that the document describes."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from web.conftest import Shop

EXAMPLES = max(3, int(os.environ.get("WANE_EXAMPLES", "20")) // 10)


def operations(document: dict[str, Any]) -> list[Any]:
    import schemathesis  # Not above: importing it takes seconds, in every process that collects tests.
    from schemathesis.core.result import Ok

    schema = schemathesis.openapi.from_dict(document)
    return [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]


def checks() -> list[Any]:
    from schemathesis import checks

    return [
        checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]


def send(shop: Shop, case: Any) -> Any:
    options = case.as_transport_kwargs(base_url="http://127.0.0.1", headers=shop.bearer("admin"))
    allowed = {name: options[name] for name in ("params", "json", "data", "headers") if options.get(name) is not None}
    if "data" in allowed:
        allowed["content"] = allowed.pop("data")
    return shop.client.request(options["method"], options["url"], **allowed)


@pytest.mark.parametrize("mode", ["valid", "invalid"])
def test_every_answer_is_one_that_the_document_describes(guarded: Shop, mode: str) -> None:
    from schemathesis import GenerationMode

    generated = {"valid": GenerationMode.POSITIVE, "invalid": GenerationMode.NEGATIVE}[mode]
    document = json.loads(guarded.client.get("/api/v1/openapi.json").text)
    found = operations(document)
    assert len(found) == sum(map(len, document["paths"].values()))
    for operation in found:

        @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=generated))
        def check(case: Any) -> None:
            case.validate_response(send(guarded, case), checks=checks())

        check()
