"""The console in a real browser: every page at two widths, without faults of scripts or layout, and the forms by keyboard.

It needs Debian's `chromium`; where that is not installed, these tests are skipped and say so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from prune.keeping import ago, insert, jobs, keeping, rule, table
from servers import SqliteDatabase
from wane._contract.model import Table
from wane.web import console, create_token
from wane.web._pages import PAGES
from web.serving import served

CHROMIUM = shutil.which("chromium")
WIDTHS = (360, 1440)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="the browser is not installed: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def opened(browser: Browser, width: int, *, scripts: bool = True, scheme: str = "light") -> Iterator[Page]:
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


def fill(database: SqliteDatabase) -> None:
    jobs(database, *((n, "done", ago(1 + n * 0.05)) for n in range(1, 400)), (900, "queued", ago(30)))
    database.execute(
        "CREATE TABLE a_table_with_a_name_that_is_longer_than_a_phone_is_wide (id integer PRIMARY KEY, at_ms bigint)"
    )
    insert(database, "a_table_with_a_name_that_is_longer_than_a_phone_is_wide", "id, at_ms", (1, ago(9)))


def shop(database: SqliteDatabase) -> tuple[Table, Table]:
    fill(database)
    long = table("a_table_with_a_name_that_is_longer_than_a_phone_is_wide", rule("old", when=()), state=None)
    return table(), long


def test_every_page_fits_and_works_at_both_widths(browser: Browser, sqlite_database: SqliteDatabase) -> None:
    with keeping(sqlite_database, *shop(sqlite_database)) as kept:
        kept.keeper.enable()
        kept.keeper.sweep("job", budget=None)
        with served(console(kept.keeper.contract, url=sqlite_database.url)) as base:
            for width in WIDTHS:
                with opened(browser, width, scheme="dark" if width == 360 else "light") as page:
                    for one in (*(each.path for each in PAGES if each.listed), "/tables/job?key=900"):
                        page.goto(base + one)
                        assert page.evaluate("document.documentElement.scrollWidth") <= width, (one, width)
                        assert page.locator("main h1").count() == 1, one
                        assert page.locator("nav a[aria-current]").count() == 1, one


def test_it_works_without_scripts_and_by_keyboard_alone(browser: Browser, sqlite_database: SqliteDatabase) -> None:
    with keeping(sqlite_database, *shop(sqlite_database)) as kept:
        _, token = create_token(kept.keeper, "alice", "viewer")
        app = console(kept.keeper.contract, url=sqlite_database.url, authentication=True)
        with served(app) as base, opened(browser, 1440, scripts=False) as page:
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
    with keeping(sqlite_database, *shop(sqlite_database)) as kept:
        kept.keeper.enable()
        _, token = create_token(kept.keeper, "bob", "operator")
        app = console(kept.keeper.contract, url=sqlite_database.url, authentication=True)
        with served(app) as base, opened(browser, 360) as page:
            page.goto(base)
            page.locator("#token").fill(token)
            page.keyboard.press("Enter")
            page.wait_for_selector("text=bob (operator)")
            page.goto(f"{base}/tables/job")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            before = len(kept.ids())
            sweep = page.locator('form[action="/do/sweep"]')
            sweep.locator("button").click()
            assert len(kept.ids()) == before  # The name is required.
            sweep.locator('input[name="confirm"]').fill("job")
            sweep.locator("button").click()
            page.wait_for_selector("text=Back to job")
            assert len(kept.ids()) < before
            assert kept.keeper.audit()[0].actor == "bob (web)"
