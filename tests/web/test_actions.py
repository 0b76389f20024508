"""Actions: who may, how they are confirmed, what they change, and what the audit trail records."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from prune.keeping import ago, insert
from servers import Database
from wane.queue import RetryPolicy
from wane.web._access import form_key
from wane.web._endpoints import FORMS
from web.conftest import EVIL, Shop, open_shop


@pytest.fixture
def console(database: Database) -> Any:
    """Return a console with authentication, on each store."""
    with open_shop(database, authentication=True) as found:
        yield found


def post(shop: Shop, role: str, path: str, **body: Any) -> Any:
    return shop.client.post(f"/api/v1{path}", json=body, headers=shop.bearer(role))


def recorded(shop: Shop) -> list[tuple[str, str, Any]]:
    """Return what the trail records of actions, oldest first: table, actor, action."""
    return [(one.table, one.actor, one.inputs["action"]) for one in shop.keeper.audit(kind="action")[::-1]]


def test_flags_are_confirmed_by_name_and_recorded(console: Shop) -> None:
    assert post(console, "operator", "/enable", confirm="all tables").status_code == 403
    refused = post(console, "admin", "/enable", confirm="yes")
    assert (refused.status_code, refused.json()["hint"]) == (400, "give `confirm` as 'all tables'")
    assert not console.keeper.status().enabled
    assert post(console, "admin", "/enable", confirm="all tables").json()["enabled"] is True
    assert post(console, "operator", "/disable", table="job", confirm="job").status_code == 200
    status = console.keeper.status()
    assert (status.enabled, status.disabled_tables) == (True, ("job",))
    assert recorded(console) == [("*", "admin (web)", "enable"), ("job", "operator (web)", "disable")]
    assert post(console, "admin", "/enable", table="jop", confirm="jop").status_code == 404


def planned(shop: Shop) -> dict[str, Any]:
    plan = shop.client.get("/api/v1/plan?table=job", headers=shop.bearer("operator")).json()
    return {"table": "job", "made_at": plan["made_at"], "rows": plan["total"]}


def test_a_sweep_takes_what_its_plan_showed(console: Shop, database: Database) -> None:
    console.keeper.enable()
    plan = planned(console)
    assert plan["rows"] == 1
    assert post(console, "operator", "/sweep", **plan).status_code == 400
    done = post(console, "operator", "/sweep", **plan, confirm="job").json()
    assert [(one["rule"], one["rows"], one["outcome"]) for one in done["rules"]] == [("old", 1, "done")]
    assert console.opened.ids() == [2, 3, 4]
    [entry] = console.keeper.audit(table="job", kind="prune")
    assert (entry.actor, entry.counts) == ("operator (web)", {"job": 1})


def test_a_sweep_is_refused_if_more_is_due_than_was_shown(console: Shop, database: Database) -> None:
    console.keeper.enable()
    plan = planned(console)
    insert(database, "job", "id, state, at_ms", (9, "done", ago(20)))
    refused = post(console, "operator", "/sweep", **plan, confirm="job")
    assert (refused.status_code, refused.json()["code"]) == (409, "PlanError")
    assert 9 in console.opened.ids()


def test_a_sweep_cannot_choose_a_time_of_its_own(console: Shop) -> None:
    console.keeper.enable()
    now = console.keeper.store.now()
    for at, status in ((now + timedelta(days=30), 400), (now - timedelta(hours=2), 409), ("soon", 400)):
        made = at if isinstance(at, str) else at.isoformat()
        refused = post(console, "operator", "/sweep", table="job", rows=1000, made_at=made, confirm="job")
        assert refused.status_code == status, made
    assert console.opened.ids() == [1, 2, 3, 4]


def test_what_the_fuse_stops_needs_an_admin(console: Shop, database: Database) -> None:
    insert(database, "job", "id, state, at_ms", *((n, "done", ago(20)) for n in range(100, 2_200)))
    console.keeper.enable()
    plan = planned(console)
    refused = post(console, "admin", "/sweep", **plan, confirm="job")
    assert (refused.status_code, refused.json()["code"]) == (403, "NotAllowed")
    assert post(console, "operator", "/approve", table="job", rows=5_000, confirm="job").status_code == 403
    assert post(console, "admin", "/approve", table="job", rows=10, confirm="job").status_code == 409
    [approved] = post(console, "admin", "/approve", table="job", rows=5_000, confirm="job").json()["approved"]
    assert approved["approved_by"] == "admin (web)"
    insert(database, "job", "id, state, at_ms", *((n, "done", ago(20)) for n in range(3_000, 3_100)))
    assert (
        post(console, "operator", "/sweep", **planned(console), confirm="job").status_code == 403
    )  # More than approved.
    database.execute("DELETE FROM job WHERE id >= 3000")
    assert post(console, "operator", "/sweep", **planned(console), confirm="job").status_code == 200
    assert console.opened.ids() == [2, 3, 4]


def test_rows_are_held_and_released(console: Shop) -> None:
    made = post(console, "operator", "/hold", table="job", key="id=1", reason="dispute").json()["hold"]
    assert (made["author"], made["reason"]) == ("operator (web)", "dispute")
    bare = post(console, "operator", "/hold", table="job", key="2", reason="x").json()["hold"]
    assert bare["key"] == console.keeper.hold("job", {"id": 2}, reason="x").key
    for one in console.keeper.holds("job"):
        if one.id != made["id"]:
            console.keeper.release_hold(one.id or 0)
    assert post(console, "operator", "/hold", table="job", key="other=2", reason="x").status_code == 400
    assert post(console, "operator", "/hold", table="job", reason=" ").status_code == 400
    assert post(console, "operator", "/release", table="job", hold=made["id"]).status_code == 400
    assert post(console, "operator", "/release", table=EVIL, hold=made["id"], confirm=EVIL).status_code == 400
    assert post(console, "operator", "/release", table="job", hold=made["id"], confirm="job").status_code == 200
    assert console.keeper.holds() == []
    assert [one[2] for one in recorded(console)] == ["hold", "hold", "release"]


def test_other_languages_use_the_queue(console: Shop) -> None:
    def queue(path: str, **body: Any) -> Any:
        answer = post(console, "operator", f"/queue/{path}", pool="mail", **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert queue("enqueue", kind="send", message_id="m1", data={"to": "a"})["message"]["state"] == "ready"
    taken = queue("reserve")
    assert (taken["message"]["data"], taken["message"]["message_id"]) == ({"to": "a"}, "m1")
    held = {"message_id": "m1", "reservation": taken["reservation"]}
    assert queue("renew", **held)["answer"] == "accepted"
    assert queue("give-back", **held, reason="busy")["answer"] == "accepted"
    assert queue("acknowledge", **held)["answer"] != "accepted"
    repeated = queue("reserve")
    assert queue("acknowledge", message_id="m1", reservation=repeated["reservation"])["answer"] == "accepted"
    assert queue("reserve") == {"message": None, "reservation": None, "lease_expires_at": None}
    assert post(console, "operator", "/queue/enqueue", pool="mail", kind="x", data=[1]).status_code == 400


def test_dead_letters_are_requeued_and_resolved(console: Shop) -> None:
    queue = console.keeper.queue("mail", policy=RetryPolicy(attempts=1))
    for number in ("m1", "m2"):
        queue.enqueue("send", message_id=number)
        reserved = queue.reserve()
        assert reserved is not None
        queue.release(number, reserved.token, "bounced")
    assert post(console, "operator", "/queue/requeue", pool="mail", message_id="m1").json()["answer"] == "accepted"
    assert post(console, "operator", "/queue/resolve", pool="mail", message_id="m2").json()["answer"] == "accepted"
    assert [one.message_id for one in queue.messages()] == ["m1"]
    letter = queue.read_dead_letter("m2")
    assert letter is not None
    assert letter.resolved_by == "operator (web)"
    assert [one[2] for one in recorded(console)] == ["requeue", "resolve"]


def test_a_form_is_accepted_from_its_own_page_only(guarded: Shop) -> None:
    client, token = guarded.client, guarded.tokens["operator"]
    client.post("/login", data={"token": token})
    opened_page = client.get("/tables/job")
    assert opened_page.status_code == 200, opened_page.text
    page = opened_page.text
    key = form_key(token)
    assert f'name="form_key" value="{key}"' in page
    assert "/do/hold" in page
    assert "/do/enable" not in page
    body = {"table": "job", "reason": "dispute", "key": "id=1"}
    assert client.post("/do/hold", data=body).status_code == 403
    assert client.post("/do/hold", data={**body, "form_key": form_key("another")}).status_code == 403
    other = client.post("/do/hold", data={**body, "form_key": key}, headers={"origin": "http://evil.example"})
    assert other.status_code == 403
    assert client.post("/api/v1/hold", json=body).status_code == 403
    assert guarded.keeper.holds() == []
    done = client.post("/do/hold", data={**body, "form_key": key}, headers={"origin": "http://127.0.0.1"})
    assert (done.status_code, "Back to job" in done.text) == (200, True)
    [hold] = guarded.keeper.holds()
    page = client.get("/tables/job").text
    assert f'name="hold" value="{hold.id}"' in page


def test_every_form_of_the_page_of_a_table_leads_to_a_route(guarded: Shop) -> None:
    guarded.keeper.hold("job", reason="x")
    guarded.client.post("/login", data={"token": guarded.tokens["admin"]})
    found = set()
    for path in ("/tables/job", "/tables", "/queue"):
        found |= set(re.findall(r'action="/do/([^"]+)"', guarded.client.get(path).text))
    assert found <= {one.removeprefix("/") for one in FORMS}
    assert {"hold", "release", "disable"} <= found


def test_a_viewer_sees_no_form_that_changes_something(guarded: Shop) -> None:
    guarded.client.post("/login", data={"token": guarded.tokens["viewer"]})
    for path in ("/", "/tables", "/tables/job", "/queue"):
        assert "/do/" not in guarded.client.get(path).text
