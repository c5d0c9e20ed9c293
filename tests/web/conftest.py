"""A real pool and a real browser for the tests of the dashboard.

Tests use Playwright's sync API::

    def test_a_job_shows_its_log(web: Web, submitter_page: Page) -> None:
        job_id = web.submitter.command(["echo", "hello"]).job_id     # the SDK, as that person
        submitter_page.goto(f"{web.url}/jobs/?id={job_id}")
        expect(submitter_page.get_by_text("hello")).to_be_visible()    # waits by itself: never sleep
        axe(submitter_page)

- `web`: one pool for all tests of a worker: a hub (SQLite), one node, three people. Give what a test creates a unique
  name, and wait only for that.
- `page` and `submitter_page`, `admin_page`, `provider_page`, `visitor_page` (not signed in); `open_page(role, …)` for other sizes
  and several pages.
- After each test, no page may have failed, violated its Content-Security-Policy, written an error to the console, or
  sent a request to another server. A test that provokes a refusal allows it: `allow(page, "status of 422")`.

They need web/out (`make web`) and Debian's chromium, and run file by file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from computepool.hub.app import open_store
from computepool.hub.clock import SystemClock
from computepool.sdk.pool import Pool, connect
from computepool.testing.processes import AgentProcess, HubProcess, RealPool
from tests.hub.money.payouts.earning import LEAST, earn_now
from tests.web.browsing import ROOT, Watch, chromium

Role = Literal["admin", "submitter", "provider", "visitor"]
OpenPage = Callable[..., Page]
Allow = Callable[[Page, str], None]
COOKIE = "computepool_session"
#: Prices and earnings move within a test, not within a day.
SETTINGS: dict[str, str | float] = {
    "tick_s": 3,
    "mature_s": 1,
    "holdback_s": 1,
    "holdback_tenured_s": 1,
    "failed_signins_burst": 1000,
    "lease_min_s": 6,  # a test waits until a node is offline
}


@dataclass
class Web:
    real: RealPool
    hub: HubProcess
    agent: AgentProcess
    admin: Pool
    submitter: Pool
    provider: Pool
    key_of: dict[str, str]

    @property
    def url(self) -> str:
        return self.hub.url

    def earn(self, amount: int = LEAST, *, account_id: str | None = None) -> None:
        """Gives the provider, or another account, matured earnings."""
        hub = self.hub.settings
        store = open_store(hub.url, clock=SystemClock(), hub_id="test")
        try:
            earn_now(store, account_id or self.provider.whoami().id, amount)
        finally:
            store.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "web"):
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One chromium. Of the package, not the session: while it is open, no asyncio test can run on this worker."""
    program = chromium()
    if program is None:
        pytest.skip("no chromium: apt-get install chromium")
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def web() -> Iterator[Web]:
    if not (ROOT / "web" / "out" / "index.html").exists():
        pytest.skip("no web/out: make web")
    with RealPool(**SETTINGS) as real:
        hub = real.start_hub()
        keys = {"admin": real.admin_key}
        people = {"admin": real.client()}
        for name in ("submitter", "provider"):
            made = people["admin"].accounts.create(name, roles=(name,))
            keys[name] = people["admin"].keys.create("test", account_id=made.id).key
            people[name] = connect(hub.url, keys[name], retry_for=60)
        # In a real sandbox, because the submitter is not its owner.
        agent = real.start_agent(owner=people["provider"], name="workshop", sandbox="namespace", cores=4)
        yield Web(real, hub, agent, people["admin"], people["submitter"], people["provider"], keys)
        people["submitter"].close()
        people["provider"].close()


@dataclass
class _Opened:
    context: BrowserContext
    watch: Watch


@pytest.fixture
def _opened() -> Iterator[list[_Opened]]:
    """Every context of the test; closed and checked at its end."""
    opened: list[_Opened] = []
    yield opened
    with ExitStack() as ends:
        for one in opened:
            ends.callback(one.watch.check)
        for one in opened:
            ends.callback(one.context.close)


@pytest.fixture
def open_page(web: Web, browser: Browser, _opened: list[_Opened]) -> OpenPage:
    def open_one(
        role: Role = "admin",
        *,
        width: int = 1440,
        height: int = 900,
        dark: bool = False,
        origin: str = "",
        key: str = "",
        clipboard: bool = False,
        touch: bool = False,
    ) -> Page:
        """`origin`: of a proxy, or of another pool with its `key`."""
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            has_touch=touch,
            permissions=["clipboard-read", "clipboard-write"] if clipboard else [],
        )
        at = origin or web.url
        if role != "visitor":
            # A key works as a cookie, too.
            context.add_cookies([{"name": COOKIE, "value": key or web.key_of[role], "url": at}])
        watch = Watch(at)
        context.on("page", watch.over)
        _opened.append(_Opened(context, watch))
        return context.new_page()

    return open_one


@pytest.fixture
def allow(_opened: list[_Opened]) -> Allow:
    """Allows errors that a test provokes, by a pattern in the browser's message."""

    def allow_errors(page: Page, pattern: str) -> None:
        next(one for one in _opened if one.context is page.context).watch.allow(pattern)

    return allow_errors


@pytest.fixture
def admin_page(open_page: OpenPage) -> Page:
    return open_page("admin")


@pytest.fixture
def submitter_page(open_page: OpenPage) -> Page:
    return open_page("submitter")


@pytest.fixture
def page(submitter_page: Page) -> Page:
    return submitter_page


@pytest.fixture
def provider_page(open_page: OpenPage) -> Page:
    return open_page("provider")


@pytest.fixture
def visitor_page(open_page: OpenPage) -> Page:
    return open_page("visitor")
