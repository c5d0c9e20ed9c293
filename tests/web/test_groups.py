"""The page Groups: thousands of items live, failures, downloads, and the delivery of results."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

from computepool.protocol.jobs.groups import ExpectedKey, RegisterKeysReply, RegisterKeysRequest
from computepool.testing.waiting import wait_until
from tests.web.browsing import axe, downloaded, settled
from tests.web.conftest import OpenPage, Web

SCRIPT = """
import os, pathlib, sys
mine = int(os.environ["COMPUTEPOOL_SLICE"])
if mine == 2:
    sys.exit("the third one does not like its number")
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/number.txt").write_text(str(mine * mine))
"""
MANY = 10_000


@pytest.fixture(scope="module")
def squares(web: Web, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Five runs of a script, of which one fails."""
    script = tmp_path_factory.mktemp("squares") / "squares.py"
    script.write_text(SCRIPT)
    futures = web.submitter.run(script, slices=5, wait=False, name="five squares")
    web.submitter.flush()
    return web.submitter.jobs.get(futures[0].job_id).group_id or ""


def saved(page: Page, item: str) -> bytes:
    page.get_by_role("button", name="Download").click()
    return downloaded(page, page.get_by_role("button", name=item))


def test_a_group_completes_live_and_is_downloaded(web: Web, page: Page, squares: str) -> None:
    page.goto(f"{web.url}/groups/")
    settled(page)
    page.get_by_label("Search").fill("FIVE squ")
    expect(page.get_by_role("img", name=re.compile("Progress of five squares"))).to_be_visible()
    axe(page)
    page.get_by_role("link", name="five squares").click()
    expect(page.get_by_text("Complete: nothing is pending.")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("list", name="Items by state")).to_have_text(re.compile("4.*succeeded.*1.*failed"))
    expect(page.get_by_role("link", name="number.txt")).to_have_count(4)
    page.get_by_role("tab", name="Failures 1").click()
    expect(page.get_by_text("the third one does not like its number")).to_be_visible()
    grid = page.get_by_role("application")
    grid.focus()
    for _ in range(3):
        grid.press("ArrowRight")
    expect(page.locator("p[aria-live=polite]", has_text="failed")).to_be_visible()
    axe(page)

    archive = zipfile.ZipFile(io.BytesIO(saved(page, "All files")))
    assert archive.testzip() is None
    texts = {archive.read(name).decode() for name in archive.namelist() if name.endswith("number.txt")}
    assert texts == {"0", "1", "9", "16"}
    assert len(json.loads(archive.read("results.json"))) == 4
    rows = list(csv.DictReader(io.StringIO(saved(page, "CSV").decode())))
    assert sorted(row["state"] for row in rows) == ["failed", *["succeeded"] * 4]
    assert len(json.loads(saved(page, "JSON"))) == 5
    expect(page.get_by_role("dialog")).to_have_count(0)  # it returns the focus
    grid.focus()
    for _ in range(3):
        grid.press("ArrowRight")
    grid.press("Enter")
    page.wait_for_url(re.compile("/jobs/?[?]id=job_"))


@pytest.mark.soak
def test_ten_thousand_items_are_shown_and_cancelled(web: Web, open_page: OpenPage) -> None:
    pool = web.submitter
    group = pool.groups.create("ten thousand seeds")
    for first in range(0, MANY, 1000):
        keys = [ExpectedKey(key=f"seed-{number:05}") for number in range(first, first + 1000)]
        body = RegisterKeysRequest(keys=keys)
        pool.transport.post(f"/groups/{group.id}/keys", RegisterKeysReply, body=body)
    page = open_page("submitter", dark=True)
    page.goto(f"{web.url}/groups/?id={group.id}&tab=all")
    settled(page)
    grid = page.get_by_role("application", name=re.compile("10,000 items"))
    expect(page.get_by_text("10,000 of 10,000 remaining")).to_be_visible()
    grid.focus()
    grid.press("End")
    expect(page.get_by_text("seed-09999")).to_be_visible()
    box = grid.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    expect(page.locator("p", has_text=re.compile("seed-0[0-9]+ expected"))).to_be_visible()
    # A result that is reported from outside appears without a reload.
    pool.groups.collector(group.id).job_result("seed-00000", 0.93)
    expect(page.get_by_role("list", name="Items by state")).to_have_text(re.compile("1succeeded9,999expected"))
    table = page.get_by_role("table", name="Items: all")
    for rows in ("401", "601"):  # scrolling loads more
        table.evaluate("table => { table.scrollTop = table.scrollHeight }")
        expect(table).to_have_attribute("aria-rowcount", rows)
    page.get_by_role("button", name="Cancel the rest").click()
    page.get_by_role("button", name="Cancel the rest").click()
    expect(page.get_by_text("Complete: nothing is pending.")).to_be_visible()
    assert pool.groups.get(group.id).failed == MANY - 1


@pytest.mark.soak
def test_results_are_delivered_on_request(web: Web, open_page: OpenPage) -> None:
    pool = web.admin
    node = web.real.start_agent(owner=pool, name="desk of the admin")
    try:
        group = pool.groups.create("for the desk")
        pool.groups.collector(group.id).register_jobs(["early", "only"])
        page = open_page("admin", width=390)
        page.goto(f"{web.url}/groups/?id={group.id}")
        settled(page)
        its_own = re.compile(rf"/api/v1/groups/{group.id}$")
        held: list[tuple[Route, APIResponse]] = []
        page.route(its_own, lambda route: held.append((route, route.fetch())))
        with page.expect_request(its_own):
            pool.groups.collector(group.id).job_result("early", 1)
        page.get_by_role("button", name="Deliver to a node").click()
        page.get_by_label("Node", exact=True).select_option(label="desk of the admin")
        page.get_by_role("dialog").get_by_role("button", name="Deliver to a node").click()
        asked = page.get_by_text("when complete", exact=True)
        expect(asked).to_be_visible()
        # A late answer to an earlier request does not restore the old state.
        late, before = held.pop(0)
        late.fulfill(response=before)
        page.evaluate("() => fetch('/api/v1/hub').then(() => new Promise(requestAnimationFrame)).then(() => true)")
        assert asked.is_visible()
        for later, answer in held:
            later.fulfill(response=answer)
        page.unroute(its_own)
        page.get_by_role("button", name="Cancel the delivery").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel the delivery").click()
        expect(page.get_by_text("not requested", exact=True)).to_be_visible()
        page.get_by_role("button", name="Deliver to a node").click()
        page.get_by_role("dialog").get_by_role("button", name="Deliver to a node").click()
        pool.groups.collector(group.id).job_result("only", 1)
        expect(page.get_by_text("delivered", exact=True)).to_be_visible(timeout=30_000)
        expect(page.get_by_text("for-the-desk-")).to_be_visible()
        assert wait_until(lambda: pool.groups.get(group.id).home.state == "arrived", 60)
    finally:
        node.stop()
