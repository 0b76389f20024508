"""The console in a real browser: every page at two widths, without faults of scripts, layout or accessibility, and the
forms by keyboard.

It needs Debian's `chromium`; where that is not installed, these tests are skipped and say so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from prune.keeping import ago, insert, jobs, keeping, rule, table
from servers import Database, SqliteDatabase
from wane._contract.model import Table
from wane.queue import RetryPolicy
from wane.web import LOOPBACK, console, create_token
from wane.web._pages import PAGES
from wane.web._shield import Rates
from web.serving import served
from web.test_archive import shelf

CHROMIUM = shutil.which("chromium")
WIDTHS = (360, 1440)
LISTED = [one.path for one in PAGES if one.listed]

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="the browser is not installed: apt-get install chromium"),
    pytest.mark.group("browser"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def open_page(browser: Browser, width: int, *, scripts: bool = True, scheme: str = "light") -> Iterator[Page]:
    """Open a page; whatever its scripts report makes the test fail."""
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        java_script_enabled=scripts,
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    context.close()
    assert faults == []


LONG = "a_table_with_a_name_that_is_longer_than_a_phone_is_wide"
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()


def shop(database: Database, others: int = 0) -> tuple[Table, ...]:
    """Fill some tables, one of them with a long name, and `others`; return what a contract says of them."""
    jobs(database, *((n, "done", ago(1 + n * 0.05)) for n in range(1, 400)), (900, "queued", ago(30)))
    names = [LONG, *(f"queue_{n:03d}" for n in range(others))]
    for name in names:
        database.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, at_ms bigint)")
        insert(database, name, "id, at_ms", (1, ago(9)), (2, ago(1)))
    return (table(), *(table(name, rule("old", when=()), state=None) for name in names))


def faults(page: Page) -> list[Any]:
    """Return what axe-core finds to be a serious or critical fault."""
    page.evaluate(AXE)  # Not as an element: the page allows no scripts but its own.
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def walk(page: Page, base: str, paths: Iterable[str], width: int) -> None:
    """Open pages, and require that each fits, has one title, and is named in the navigation."""
    for path in paths:
        page.goto(base + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        assert page.locator("main h1").count() == 1, path
        assert page.locator("nav a[aria-current]").count() == 1, path


def sign_in(page: Page, base: str, token: str, name: str) -> None:
    page.goto(base)
    page.locator("#token").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"text={name} (")


def test_every_page_fits_and_works_at_both_widths(browser: Browser, sqlite_database: SqliteDatabase) -> None:
    with keeping(sqlite_database, *shop(sqlite_database)) as opened:
        opened.keeper.enable()
        opened.keeper.sweep("job", budget=None)
        with served(console(opened.keeper.contract, url=sqlite_database.url)) as base:
            for width in WIDTHS:
                with open_page(browser, width, scheme="dark" if width == 360 else "light") as page:
                    walk(page, base, (*LISTED, "/tables/job?key=900"), width)


@pytest.mark.sampled
def test_every_page_fits_with_a_hundred_tables(browser: Browser, database: Database) -> None:
    with keeping(database, *shop(database, others=98)) as opened:
        opened.keeper.enable()
        for name in ("job", LONG):
            opened.keeper.sweep(name, budget=None)
        with served(console(opened.keeper.contract, url=database.url)) as base:
            for width in WIDTHS:
                with open_page(browser, width) as page:
                    paths = (*LISTED, "/tables?sort=due&find=queue_09", f"/tables/{LONG}", "/tables/queue_097?key=1")
                    walk(page, base, paths, width)
                    page.goto(f"{base}/tables")
                    assert page.locator("main table >> nth=0 >> tbody tr").count() == 100


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.sampled("dark")
def test_no_page_has_a_serious_fault_of_accessibility(
    browser: Browser, sqlite_database: SqliteDatabase, tmp_path: Path, scheme: str
) -> None:
    with shelf(sqlite_database, tmp_path) as found:
        keeper = found.cold.keeper
        keeper.claims().install()
        keeper.claims().claim("task-1", owner="me", ttl=timedelta(hours=1))
        keeper.hold("event", reason="dispute")
        queue = keeper.queue("mail", policy=RetryPolicy(attempts=1))
        for number in ("m1", "m2"):
            queue.enqueue("send", message_id=number)
        reserved = queue.reserve()
        assert reserved is not None
        queue.release(reserved.message.message_id, reserved.token, "bounced")
        with served(found.web.app(LOOPBACK, Rates())) as base, open_page(browser, 1440, scheme=scheme) as page:
            page.goto(f"{base}/login")
            assert faults(page) == []
            sign_in(page, base, found.tokens["admin"], "admin")
            page.goto(f"{base}/archive")
            planning = page.locator('form[action="/do/archive/plan-restore"]')
            planning.locator('input[name="key"]').fill("id=7")
            planning.locator("button").click()
            page.wait_for_selector("text=What would come back")
            planned = page.url.removeprefix(base)
            for path in (*LISTED, planned, "/tables/event?key=10002", "/archive/query?table=event&limit=3"):
                page.goto(base + path)
                page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
                assert faults(page) == [], path


def test_it_works_without_scripts_and_by_keyboard_only(browser: Browser, sqlite_database: SqliteDatabase) -> None:
    with keeping(sqlite_database, *shop(sqlite_database)) as opened:
        _, token = create_token(opened.keeper, "alice", "viewer")
        app = console(opened.keeper.contract, url=sqlite_database.url, authentication=True)
        with served(app) as base, open_page(browser, 1440, scripts=False) as page:
            page.goto(base)
            assert page.url.endswith("/login")
            page.locator("#token").focus()
            page.keyboard.type(token)
            page.keyboard.press("Enter")
            page.wait_for_selector("text=alice (viewer)")
            page.goto(f"{base}/tables/job")
            page.locator("#key").focus()
            page.keyboard.type("900")
            page.keyboard.press("Enter")
            page.wait_for_selector("#why >> text=is a live state: no rule takes such a row")


def test_a_sweep_is_confirmed_by_typing_the_name(browser: Browser, sqlite_database: SqliteDatabase) -> None:
    with keeping(sqlite_database, *shop(sqlite_database)) as opened:
        opened.keeper.enable()
        _, token = create_token(opened.keeper, "bob", "operator")
        app = console(opened.keeper.contract, url=sqlite_database.url, authentication=True)
        with served(app) as base, open_page(browser, 360) as page:
            sign_in(page, base, token, "bob")
            page.goto(f"{base}/tables/job")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            before = len(opened.ids())
            sweep = page.locator('form[action="/do/sweep"]')
            sweep.locator("button").click()
            assert len(opened.ids()) == before  # The name is required.
            sweep.locator('input[name="confirm"]').fill("job")
            sweep.locator("button").click()
            page.wait_for_selector("text=Back to job")
            assert len(opened.ids()) < before
            assert opened.keeper.audit()[0].actor == "bob (web)"


def test_a_keyboard_reaches_everything_and_shows_where_it_is(browser: Browser, sqlite_database: SqliteDatabase) -> None:
    with keeping(sqlite_database, *shop(sqlite_database)) as opened:
        opened.keeper.enable()
        _, token = create_token(opened.keeper, "bob", "operator")
        app = console(opened.keeper.contract, url=sqlite_database.url, authentication=True)
        with served(app) as base, open_page(browser, 1440) as page:
            sign_in(page, base, token, "bob")
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.className") == "skip"
            page.keyboard.press("Enter")
            assert page.url.endswith("#content")
            page.goto(f"{base}/tables/job")
            wanted = 'form[action="/do/sweep"] input[name="confirm"]'
            reached = set()
            while not page.evaluate(f"document.activeElement.matches('{wanted}')"):
                page.keyboard.press("Tab")
                style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                reached.add(page.evaluate("document.activeElement.tagName"))
                assert style != "none", page.evaluate("document.activeElement.outerHTML.slice(0, 100)")
            assert {"A", "INPUT", "BUTTON", "SUMMARY"} <= reached
            before = len(opened.ids())
            page.keyboard.type("job")
            page.keyboard.press("Enter")
            page.wait_for_selector("text=Back to job")
            assert len(opened.ids()) < before


def test_archived_rows_are_found_and_restored(
    browser: Browser, sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    with (
        shelf(sqlite_database, tmp_path) as found,
        served(found.web.app(LOOPBACK, Rates())) as base,
        open_page(browser, 360) as page,
    ):
        sign_in(page, base, found.tokens["admin"], "admin")
        page.goto(f"{base}/archive")
        page.locator("#where").fill("id = 7")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Files read")
        assert "body 7" in page.locator("main").inner_text()
        page.goto(f"{base}/archive")
        planning = page.locator('form[action="/do/archive/plan-restore"]')
        planning.locator('input[name="key"]').fill("id=7")
        planning.locator("button").click()
        restoring = page.locator('form[action="/do/archive/restore"]')
        restoring.wait_for()  # The page refreshes until the plan is done.
        assert 7 not in found.cold.hot()
        restoring.locator('input[name="confirm"]').fill("event")
        restoring.locator("button").click()
        page.wait_for_selector("text=What came back")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert 7 in found.cold.hot()
