"""Rules for every page: it is accessible and fits, light or dark, narrow or wide, and nothing moves while it loads."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Response, expect

from tests.web.browsing import axe, hold, settled
from tests.web.conftest import Allow, OpenPage, Web

PAGES = (
    "/", "/jobs/", "/submit/", "/groups/", "/nodes/", "/nodes/add/", "/market/", "/credits/", "/leaderboard/",
    "/audit/", "/admin/", "/account/",
)  # fmt: skip
#: (width, dark): of a phone and of a desktop.
LOOKS = [
    (390, True),
    (1440, False),
    pytest.param(390, False, marks=pytest.mark.soak),
    pytest.param(1440, True, marks=pytest.mark.soak),
]
FIRST_PAGE_MAX = 250_000
SHIFT_MAX = 0.05
_SHIFTS = """
window.shifts = {sum: 0, moved: []};
new PerformanceObserver(list => {
  for (const entry of list.getEntries().filter(one => !one.hadRecentInput)) {
    window.shifts.sum += entry.value;
    for (const {node, previousRect, currentRect} of entry.sources)
      window.shifts.moved.push([(node?.outerHTML ?? String(node)).slice(0, 160), previousRect.y, currentRect.y]);
  }
}).observe({type: 'layout-shift', buffered: true});
"""
_HEADINGS = """() => {
  window.headings = new Set();
  const look = () => window.headings.add(document.querySelector('h1')?.textContent ?? 'none');
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
}"""


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_every_page_is_accessible_and_does_not_shift(web: Web, open_page: OpenPage, *, width: int, dark: bool) -> None:
    page = open_page("admin", width=width, dark=dark)
    page.add_init_script(_SHIFTS)
    titles = set()
    for path in PAGES:
        page.goto(f"{web.url}{path}")
        settled(page)
        axe(page)
        shifts = page.evaluate("window.shifts")
        assert shifts["sum"] < SHIFT_MAX, (path, shifts)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{path} is {over} px wider than a screen of {width} px"
        titles.add(page.title())
    assert len(titles) == len(PAGES), titles


@pytest.mark.soak
@pytest.mark.parametrize("path", ["/", "/nodes/?show=all", "/market/"])
def test_no_column_is_cut_off(web: Web, open_page: OpenPage, path: str) -> None:
    page = open_page("admin", width=1600)
    page.goto(f"{web.url}{path}")
    settled(page)
    for width in (640, 768, 1024, 1160, 1280, 1360, 1440, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("width => window.innerWidth === width", arg=width)
        for table in page.get_by_role("table").all():
            over = table.evaluate("table => table.scrollWidth - table.clientWidth")
            assert over <= 0, f"{table.get_attribute('aria-label')} is {over} px too wide at {width} px"


#: Times and these words, which are cut off, and headings.
_CUT = """words => [...document.querySelectorAll('[role=table] :is([role=cell], [role=columnheader])')].filter(cell => {
  for (const time of cell.querySelectorAll('time')) time.textContent = '59 min ago';
  const isChecked = cell.role === 'columnheader' || cell.querySelector('time') || words.includes(cell.textContent);
  return isChecked && [...cell.querySelectorAll('*')].some(part => part.clientWidth > 0 && part.scrollWidth > part.clientWidth);
}).map(cell => cell.textContent)"""


@pytest.mark.soak
@pytest.mark.parametrize("width", [1280, 1440, 1600])
def test_no_heading_time_or_level_is_cut_off(web: Web, open_page: OpenPage, width: int) -> None:
    page = open_page("admin", width=width)
    for path in ("/credits/", "/nodes/?show=all", "/audit/", "/admin/"):
        page.goto(f"{web.url}{path}")
        settled(page)
        expect(page.locator("[role=table] [role=cell] time").first).to_be_visible()
        assert page.evaluate(_CUT, ["namespace", "container"]) == [], path
    page.goto(web.url)
    settled(page)
    expect(page.get_by_role("cell", name="place not stated").first).to_be_visible()
    assert page.evaluate(_CUT, ["place not stated"]) == []


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["job", "group", "node"])
def test_a_missing_job_group_or_node_is_explained(web: Web, submitter_page: Page, allow: Allow, kind: str) -> None:
    allow(submitter_page, "status of 404")
    submitter_page.goto(f"{web.url}/{kind}s/?id={kind}_nothing")
    heading = submitter_page.get_by_role("heading", level=1)
    expect(heading).to_have_text(f"No such {kind}")
    expect(submitter_page.get_by_text(re.compile(f"^There is no such {kind}"))).to_be_visible()
    axe(submitter_page)
    expect(submitter_page.get_by_role("link", name=f"All {kind}s")).to_be_visible()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["job", "node"])
def test_a_refusal_stays_while_it_is_fetched_again(web: Web, submitter_page: Page, allow: Allow, kind: str) -> None:
    allow(submitter_page, "status of 404")
    submitter_page.goto(f"{web.url}/{kind}s/?id={kind}_nothing")
    expect(submitter_page.get_by_role("heading", level=1)).to_have_text(f"No such {kind}")
    submitter_page.evaluate(_HEADINGS)
    for _ in range(2):
        with submitter_page.expect_response(re.compile(f"/{kind}s/{kind}_nothing$")):
            pass
    assert submitter_page.evaluate("[...window.headings]") in ([], [f"No such {kind}"])


@pytest.mark.soak
def test_a_loading_page_is_accessible(web: Web, page: Page) -> None:
    node = "**/api/v1/nodes/node_*"
    held = hold(page, node)
    page.goto(f"{web.url}/nodes/?id={web.agent.node_id}")
    expect(page.locator("main").get_by_role("status", name="Loading")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Node")
    axe(page)
    for route in held:
        route.continue_()
    page.unroute(node)
    expect(page.get_by_role("heading", level=1)).to_contain_text("workshop")


def _is_prefetched(answer: Response) -> bool:
    """Only other pages are loaded by fetch."""
    return answer.request.resource_type == "fetch" and (
        "/_next/static/chunks/" in answer.url or answer.url.endswith("/index.txt")
    )


@pytest.mark.soak
def test_the_first_page_is_small(web: Web, visitor_page: Page, submitter_page: Page) -> None:
    """All compressed bytes but the API's answers and prefetched pages."""
    for page, path in ((visitor_page, "/signin/"), (submitter_page, "/")):
        answers: list[Response] = []
        page.on("response", lambda answer, answers=answers: answers.append(answer))
        page.goto(f"{web.url}{path}")
        settled(page)
        page.wait_for_load_state("load")
        if path == "/":  # the map is loaded last
            page.wait_for_function("() => performance.getEntriesByName('mesh-draw').length > 0")
        files = [answer for answer in answers if "/api/" not in answer.url and not _is_prefetched(answer)]
        sizes = {answer.url: answer.request.sizes()["responseBodySize"] for answer in files}
        total = sum(sizes.values())
        assert sizes
        assert not [url for url in sizes if "_rsc=" in url]
        assert total <= FIRST_PAGE_MAX, (path, total, sorted(sizes.items(), key=lambda item: -item[1]))
        print(path, total)


@pytest.mark.soak
def test_an_unknown_address_is_explained(web: Web, submitter_page: Page, allow: Allow) -> None:
    allow(submitter_page, "status of 404.*no/such/page")
    answer = submitter_page.goto(f"{web.url}/no/such/page")
    assert answer is not None
    assert answer.status == 404
    settled(submitter_page)
    axe(submitter_page)


@pytest.mark.soak
def test_a_narrow_screen_has_a_drawer(web: Web, open_page: OpenPage) -> None:
    page = open_page("submitter", width=390)
    page.goto(f"{web.url}/jobs/")
    settled(page)
    page.get_by_role("button", name="Menu").click()
    drawer = page.get_by_role("dialog")
    expect(drawer).to_be_visible()
    axe(page)
    drawer.get_by_role("link", name="Nodes", exact=True).click()
    page.wait_for_url(f"{web.url}/nodes/")
    expect(drawer).to_be_hidden()
