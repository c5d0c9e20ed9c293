"""`make screenshots`: fills a real pool through its API and saves a picture of every page, light and dark.

All of them go to .make/pictures. Those that the documents use are also copied, in reduced size, to docs/pictures.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from scripts.campus import Campus
from tests.web.browsing import PICTURES, ROOT, chromium, settled

USED = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 800
BYTES_MAX = 150_000
#: name → (path, person); fields in braces are replaced by ids from the campus.
PAGES = {
    "mesh": ("/", "ann"),
    "jobs": ("/jobs/", "ann"),
    "job": ("/jobs/?id={running}", "ann"),
    "job-files": ("/jobs/?id={picture}", "ann"),
    "submit": ("/submit/", "ann"),
    "groups": ("/groups/", "ann"),
    "group": ("/groups/?id={group}", "ann"),
    "nodes": ("/nodes/", "bob"),
    "node": ("/nodes/?id={node}", "bob"),
    "add-node": ("/nodes/add/", "bob"),
    "market": ("/market/", "ann"),
    "credits": ("/credits/", "bob"),
    "leaderboard": ("/leaderboard/", "ann"),
    "audit": ("/audit/", "admin"),
    "admin": ("/admin/", "admin"),
    "account": ("/account/", "ann"),
    "signin": ("/signin/", ""),
}
#: Settings that make prices, earnings and usage change while the pictures are taken.
_LIVELY: dict[str, Any] = {
    "tick_s": 1, "mature_s": 1, "holdback_s": 1, "holdback_tenured_s": 1, "payout_round_s": 1,
    "interval_min_s": 2, "lease_min_s": 30, "enrolments_per_day": 10_000, "registrations_per_s": 1_000,
}  # fmt: skip


def main() -> None:
    program = chromium()
    if program is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    wanted = sys.argv[1:] or list(PAGES)
    os.environ["COMPUTEPOOL_NAME"] = "Campus pool"
    PICTURES.mkdir(parents=True, exist_ok=True)
    with RealPool(**_LIVELY) as real, sync_playwright() as playwright:
        real.start_hub()
        campus = Campus(real)
        # This may take a while on a busy machine; the jobs wait.
        real.start_agent(name="workshop", region="in-south", cores=4, sandbox="namespace", online=False)
        with campus.nodes() as nodes:
            ids = {**campus.work(), "node": nodes[0]}
            campus.money()
            _let_run(campus, ids["running"])
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            for name in wanted:
                for dark in (False, True):
                    _picture(browser, campus, name, ids=ids, dark=dark)
            browser.close()
    _keep()


def _let_run(campus: Campus, job_id: str) -> None:
    """Wait until there is something to see: some lines of a log, and prices of as many seconds."""
    path = f"/jobs/{job_id}/logs"
    wait_until(lambda: "step 24" in campus.people["ann"].get(path).text, 60, "the simulation's log")


def _picture(browser: Browser, campus: Campus, name: str, *, ids: dict[str, str], dark: bool) -> None:
    path, who = PAGES[name]
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    if who:
        context.add_cookies([{"name": "computepool_session", "value": campus.keys[who], "url": campus.url}])
    page = context.new_page()
    page.goto(f"{campus.url}{path.format_map(ids)}")
    settled(page, timeout_s=30)
    _quiet(page)
    page.screenshot(path=PICTURES / f"{name}{'-dark' if dark else ''}.png")
    print(f"{name}{' (dark)' if dark else ''}")
    context.close()


def _quiet(page: Page) -> None:
    """Charts and maps are drawn after the data has arrived."""
    page.wait_for_timeout(1500)


def _keep() -> None:
    """Keep the pictures that documents use, with fewer colours so that the repository stays small."""
    text = "".join(path.read_text() for path in (ROOT / "README.md", ROOT / "docs" / "dashboard.md") if path.exists())
    USED.mkdir(parents=True, exist_ok=True)
    for picture in sorted(PICTURES.glob("*.png")):
        if f"pictures/{picture.name}" not in text:
            continue
        kept = USED / picture.name
        _smaller(picture, kept)
        size = kept.stat().st_size
        print(f"{kept.relative_to(ROOT)}: {size / 1000:.0f} kB")
        if size > BYTES_MAX:
            raise SystemExit(f"{kept} has {size} bytes; the maximum is {BYTES_MAX}")


def _smaller(picture: Path, kept: Path) -> None:
    """With sharp, which comes with Next.js."""
    script = (
        "require('sharp')(process.argv[1]).png({palette: true, colours: 160, effort: 10, compressionLevel: 9})"
        ".toFile(process.argv[2])"
    )
    node = shutil.which("node") or "node"
    subprocess.run([node, "-e", script, str(picture), str(kept)], cwd=ROOT / "web", check=True)


if __name__ == "__main__":
    main()
