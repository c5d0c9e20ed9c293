"""A page stays open while the hub is killed, hangs or restarts, and is up to date afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, Request, expect

from tests.web.browsing import hold, settled
from tests.web.conftest import Allow, Web

#: Console messages about requests that a dead hub did not answer.
_AWAY = r"net::ERR_|status of 50"


def _loaded(page: Page, url: str) -> None:
    """Including all scripts and the stream of news."""
    page.goto(url)
    settled(page)
    page.wait_for_load_state("load")
    expect(_live(page)).to_be_visible()


def _live(page: Page) -> Locator:
    return page.get_by_role("status").filter(has_text="Live").first


@pytest.fixture
def page(submitter_page: Page, allow: Allow) -> Iterator[Page]:
    """May lose the hub, but is never reloaded."""
    loads: list[Page] = []
    submitter_page.on("load", lambda _: loads.append(submitter_page))
    allow(submitter_page, _AWAY)
    yield submitter_page
    assert len(loads) == 1, "the page was reloaded"


def _is_chunk(request: Request) -> bool:
    return "/_next/static/chunks/" in request.url


def test_a_page_survives_the_death_of_the_hub(web: Web, page: Page) -> None:
    _loaded(page, f"{web.url}/jobs/")
    web.hub.kill()
    expect(page.get_by_text("Reconnecting…").first).to_be_visible()
    web.hub.start()
    name = "submitted after the hub was killed"
    job = web.submitter.command(["echo", "back again"], name=name, wait=False)
    expect(page.get_by_text(name).first).to_be_visible(timeout=40_000)
    expect(_live(page)).to_be_visible(timeout=40_000)
    assert web.submitter.jobs.wait(job.job_id, timeout=60).state == "succeeded"


def test_a_hub_that_hangs_is_not_shown_as_live(web: Web, page: Page) -> None:
    _loaded(page, f"{web.url}/jobs/")
    web.hub.freeze()
    try:
        expect(page.get_by_text("Reconnecting…").first).to_be_visible()
        expect(page.get_by_text("The hub does not answer.").first).to_be_visible()
        expect(_live(page)).to_have_count(0)
    finally:
        web.hub.thaw()
    expect(_live(page)).to_be_visible(timeout=40_000)
    expect(page.get_by_text("The hub does not answer.")).to_have_count(0)


def test_a_click_is_acknowledged_while_the_page_loads(web: Web, page: Page) -> None:
    held = hold(page, "**/audit/index.txt*")
    _loaded(page, f"{web.url}/jobs/")
    loading = page.get_by_role("progressbar", name="Loading the page")
    expect(loading).to_have_count(0)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Audit").click()
    expect(loading).to_be_visible()
    for route in held:
        route.continue_()
    expect(page.get_by_role("heading", name="Audit", level=1)).to_be_visible()
    expect(loading).to_have_count(0)


@pytest.mark.soak
def test_a_page_that_was_never_visited_opens_while_the_hub_is_away(web: Web, page: Page) -> None:
    with page.expect_response("**/account/index.txt*", timeout=60_000):  # the last one that is prefetched
        _loaded(page, f"{web.url}/jobs/")
    page.wait_for_load_state("networkidle")
    web.hub.kill()
    expect(page.get_by_text("Reconnecting…").first).to_be_visible()
    pages = page.get_by_role("navigation", name="Pages")
    for name in ("Leaderboard", "Market", "Nodes"):
        pages.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    expect(page.get_by_text("The hub does not answer.").first).to_be_visible()
    web.hub.start()
    expect(page.get_by_text("workshop").first).to_be_visible(timeout=40_000)


@pytest.mark.soak
def test_a_click_waits_for_a_page_that_fails_to_load(web: Web, page: Page) -> None:
    page.route("**/audit/index.txt*", lambda route: route.abort())
    _loaded(page, f"{web.url}/jobs/")
    with page.expect_event("requestfailed", lambda request: "/audit/index.txt" in request.url):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Audit").click()
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    page.unroute("**/audit/index.txt*")
    expect(page.get_by_role("heading", name="Audit", level=1)).to_be_visible()


@pytest.mark.soak
def test_a_part_that_failed_to_load_loads_when_the_hub_is_back(web: Web, page: Page) -> None:
    """The map is loaded once there are nodes to draw. Here the hub dies in between."""
    held = hold(page, "**/api/v1/mesh/nodes")
    with page.expect_request("**/api/v1/mesh/nodes"):
        page.goto(f"{web.url}/")
    page.wait_for_load_state("load")
    expect(_live(page)).to_be_visible()
    [first] = held
    answer = first.fetch()
    web.hub.kill()
    with page.expect_event("requestfailed", _is_chunk):
        first.fulfill(response=answer)
    page.unroute("**/api/v1/mesh/nodes")
    expect(page.get_by_text("Reconnecting…").first).to_be_visible()
    with page.expect_response(re.compile(r"/atlas\..*\.json"), timeout=60_000) as atlas:
        web.hub.start()
    assert atlas.value.ok
    expect(page.get_by_role("application", name="World map")).to_be_visible()


@pytest.mark.soak
def test_what_happened_while_the_stream_was_broken_is_shown(web: Web, page: Page) -> None:
    group = web.submitter.groups.create("in a tunnel")
    collector = web.submitter.groups.collector(group.id)
    collector.register_jobs(["only"])
    _loaded(page, f"{web.url}/groups/?id={group.id}")
    grid = page.get_by_role("application", name="Grid of 1 items")
    expect(page.get_by_text("No results yet")).to_be_visible()
    page.route("**/api/v1/events/news", lambda route: route.abort())
    web.hub.kill()
    expect(page.get_by_text("Reconnecting…").first).to_be_visible()
    web.hub.start()
    collector.job_result("only", 1)
    page.unroute("**/api/v1/events/news")
    expect(page.get_by_text("Complete: nothing is pending.")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("row", name="only")).to_be_visible()
    grid.focus()
    grid.press("ArrowRight")
    expect(page.locator("p[aria-live=polite]", has_text="succeeded")).to_be_visible()


@pytest.mark.soak
def test_what_happened_before_the_stream_opened_is_shown(web: Web, page: Page) -> None:
    group = web.submitter.groups.create("early birds")
    collector = web.submitter.groups.collector(group.id)
    collector.register_jobs(["only"])
    held = hold(page, "**/api/v1/events/news")
    with page.expect_request("**/api/v1/events/news"):
        page.goto(f"{web.url}/groups/?id={group.id}")
    expect(page.get_by_text("No results yet")).to_be_visible()
    collector.job_result("only", 1)
    held[0].continue_()
    expect(page.get_by_text("Complete: nothing is pending.")).to_be_visible()
    expect(page.get_by_role("row", name="only")).to_be_visible()


@pytest.mark.soak
def test_a_page_whose_script_failed_to_load_can_be_retried(web: Web, submitter_page: Page, allow: Allow) -> None:
    page = submitter_page
    allow(page, "net::ERR_FAILED|ChunkLoadError|Failed to load chunk")
    _loaded(page, f"{web.url}/jobs/")
    page.route("**/_next/static/chunks/**", lambda route: route.abort())
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Leaderboard").click()
    expect(page.get_by_role("heading", name="This page failed")).to_be_visible()
    page.unroute("**/_next/static/chunks/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Leaderboard", level=1)).to_be_visible()


@pytest.mark.soak
def test_repeated_failures_are_shown_until_they_end(web: Web, page: Page) -> None:
    page.route("**/api/v1/market", lambda route: route.fulfill(status=500, body="{}"))
    page.goto(f"{web.url}/market/")
    expect(page.get_by_role("alert").get_by_role("button", name="Try again")).to_be_visible()
    page.unroute("**/api/v1/market")
    expect(page.get_by_label("Tier")).to_be_visible()
