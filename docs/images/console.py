"""Take the screenshots of the console: `python docs/images/console.py http://127.0.0.1:8420`, over a demo's database.

wane demo --rows 20000 && wane serve -c .demo/wane.toml
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
PAGES = {
    "console-overview": "/",
    "console-table": "/tables/channel_inbox?key=1",
    "console-archive": "/archive/query?table=event_outbox&where=id+%3C+12&columns=id,event_type,created_at",
}

if __name__ == "__main__":
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 760})
        for name, path in PAGES.items():
            page.goto(sys.argv[1] + path)
            page.screenshot(path=FOLDER / f"{name}.png", full_page=name != "console-overview")
        browser.close()
