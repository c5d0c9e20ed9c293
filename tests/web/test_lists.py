"""Long lists that change: they are complete, and a click hits the row one sees."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from computepool.protocol.jobs.jobs import Item, JobSpec, Needs
from tests.web.browsing import hold, settled
from tests.web.conftest import Allow, Web

_HIDDEN = """hidden => {
    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


@pytest.fixture
def crowd(web: Web) -> Iterator[str]:
    """A group for jobs that no node can run. They are cancelled after the test."""
    group = web.submitter.groups.create("crowd")
    yield group.id
    web.submitter.groups.collector(group.id).cancel()


def add(web: Web, group_id: str, name: str, count: int) -> None:
    spec = JobSpec(kind="command", name=name, argv=["true"], needs=Needs(cores=1000))
    web.submitter.jobs.submit(spec, items=[Item()] * count, group_id=group_id, max_price=0)


def rows_of(page: Page) -> int:
    return int(page.get_by_role("table", name="Jobs").get_attribute("aria-rowcount") or 0) - 1


def to_the_end(page: Page, expected: int) -> None:
    """Scrolls until the list has so many rows."""
    page.wait_for_function(
        """expected => {
            const table = document.querySelector('[role=table][aria-label=Jobs]');
            table.scrollTop = table.scrollHeight;
            return Number(table.getAttribute('aria-rowcount')) - 1 >= expected;
        }""",
        arg=expected,
        polling=100,
    )


@pytest.mark.soak
def test_a_burst_leaves_no_gap_in_a_scrolled_list(web: Web, page: Page, crowd: str) -> None:
    add(web, crowd, "before", 300)
    page.goto(f"{web.url}/jobs/?group={crowd}")
    settled(page)
    to_the_end(page, 300)
    page.evaluate(_HIDDEN, True)
    add(web, crowd, "after", 1000)
    # When it is visible again, the newest page is answered before the older ones.
    older = re.compile(r"/api/v1/jobs\?.*after=")
    held = hold(page, older)
    with page.expect_response(lambda answer: "/api/v1/jobs?" in answer.url and "after=" not in answer.url):
        page.evaluate(_HIDDEN, False)
    expect(page.get_by_role("table", name="Jobs").get_by_text("after").first).to_be_visible()
    assert held
    for route in held:
        route.continue_()
    page.unroute(older)
    to_the_end(page, 1300)
    assert rows_of(page) == 1300


def test_rows_keep_their_positions_while_others_are_inserted(web: Web, page: Page, crowd: str) -> None:
    add(web, crowd, "earlier", 80)
    page.goto(f"{web.url}/jobs/?group={crowd}")
    settled(page)
    table = page.get_by_role("table", name="Jobs")
    table.evaluate("table => { table.scrollTop = 58 * 40 }")
    top = """table => [...table.querySelectorAll('a[href*="id=job_"]')]
        .map(link => [link.getAttribute('href'), link.getBoundingClientRect().top - table.getBoundingClientRect().top])
        .filter(([, down]) => down > 60)
        .map(([href, down]) => [href, Math.round(down)])
        .sort((one, other) => one[1] - other[1])[0]"""
    page.wait_for_function(f"table => ({top})(table)", arg=table.element_handle())
    expect(table.locator("[role=row][aria-rowindex='42']")).to_be_visible()
    before = table.evaluate(top)
    add(web, crowd, "later", 3)
    expect(table).to_have_attribute("aria-rowcount", "84")
    assert table.evaluate(top) == before
    # Rows move without a transition, which would show the old position for a frame.
    moved = """row => {
        const from = row.getBoundingClientRect().top;
        row.style.transform += ' translateY(58px)';
        return Math.round(row.getBoundingClientRect().top - from);
    }"""
    assert table.locator("[role=row][aria-rowindex='46']").evaluate(moved) == 58


@pytest.mark.soak
def test_refused_cancellations_are_reported(web: Web, page: Page, crowd: str, allow: Allow) -> None:
    allow(page, "status of 503")
    add(web, crowd, "stubborn", 2)
    page.goto(f"{web.url}/jobs/?group={crowd}")
    refused: list[str] = []

    def refuse_one(route: Route) -> None:
        if refused:
            route.continue_()
            return
        refused.append(route.request.url)
        problem = '{"type": "about:blank", "title": "Unavailable", "status": 503, "code": "unavailable", "detail": "Not now."}'
        route.fulfill(status=503, body=problem, content_type="application/problem+json")

    page.route(re.compile(r"/jobs/job_\w+/cancel$"), refuse_one)
    page.get_by_role("button", name="Select 2 that can be cancelled").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_text("1 of 2 jobs not cancelled. Not now.")).to_be_visible()
