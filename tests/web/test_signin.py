"""Signing in: links work once, by a click, and lead only to pages of this hub."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest
from playwright.sync_api import Page, expect

from computepool.testing.processes import RealPool
from tests.web.browsing import axe, settled
from tests.web.conftest import COOKIE, Allow, OpenPage, Web

#: Addresses of other sites, as in the parameter `next`.
ELSEWHERE = (
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example",
    "/\t/evil.example",
    "javascript:alert(1)",
    "/..//evil.example",
)


def link_for(web: Web, name: str) -> str:
    account = web.admin.accounts.create(name)
    made = httpx2.post(
        f"{web.url}/api/v1/accounts/{account.id}/link", headers={"Authorization": f"Bearer {web.key_of['admin']}"}
    )
    return str(made.raise_for_status().json()["link"])


def somebody_signed_in(web: Web, name: str) -> None:
    """Ends the first run of the hub."""
    [code] = parse_qs(urlsplit(link_for(web, name)).query)["code"]
    httpx2.post(f"{web.url}/api/v1/signin", json={"code": code, "kind": "cookie"}).raise_for_status()


def test_a_link_signs_in_once_by_a_click(web: Web, visitor_page: Page, open_page: OpenPage, allow: Allow) -> None:
    link = link_for(web, "signs-in-by-link")
    # A program that previews links does not use up the code.
    assert httpx2.get(link, follow_redirects=True).status_code == 200
    visitor_page.goto(f"{link}&next=%2Fcredits%2F%3Ftab%3Dpayouts")
    expect(visitor_page.get_by_text("works once")).to_be_visible()
    axe(visitor_page)
    visitor_page.get_by_role("button", name="Sign in", exact=True).click()
    expect(visitor_page).to_have_url(re.compile(r"/credits/\?tab=payouts$"))
    expect(visitor_page.get_by_role("tab", name="Payouts", selected=True)).to_be_visible()
    [cookie] = [one for one in visitor_page.context.cookies() if one["name"].endswith(COOKIE)]
    assert cookie["httpOnly"]

    visitor_page.goto(f"{web.url}/signin/")
    expect(visitor_page.get_by_text("signed in as signs-in-by-link")).to_be_visible()

    second = open_page("visitor")
    allow(second, "status of 422")
    second.goto(link)
    second.get_by_role("button", name="Sign in", exact=True).click()
    expect(second.get_by_role("alert").filter(has_text="used or expired")).to_be_visible()
    # One can also paste a link.
    second.get_by_role("button", name="Use another code").click()
    second.get_by_label("Sign-in code or link").fill(link_for(web, "pastes-a-link"))
    second.get_by_role("button", name="Sign in", exact=True).click()
    settled(second)
    expect(second.get_by_role("button", name="Account: pastes-a-link")).to_be_visible()


@pytest.mark.soak
def test_nobody_is_sent_to_another_site(web: Web, provider_page: Page, visitor_page: Page) -> None:
    origin = re.escape(web.url)
    for bad in ELSEWHERE:
        provider_page.goto(f"{web.url}/signin/?next={quote(bad, safe='')}")
        provider_page.get_by_role("button", name="Continue as provider").click()
        expect(provider_page.get_by_role("navigation", name="Pages")).to_be_visible()
        assert re.match(rf"{origin}/", provider_page.url), (bad, provider_page.url)
    visitor_page.goto(f"{link_for(web, 'sent-elsewhere')}&next=%2F%2Fevil.example%2F")
    visitor_page.get_by_role("button", name="Sign in", exact=True).click()
    expect(visitor_page).to_have_url(f"{web.url}/")


@pytest.mark.soak
@pytest.mark.parametrize("path", ["/jobs/?state=failed", "/audit/"])
def test_signing_in_returns_to_the_requested_page(web: Web, visitor_page: Page, *, path: str) -> None:
    somebody_signed_in(web, f"before-{len(path)}")
    visitor_page.goto(f"{web.url}{path}")
    expect(visitor_page.get_by_role("heading", name="Sign in to")).to_be_visible()
    axe(visitor_page)
    visitor_page.get_by_text("How do I get a link?").click()
    expect(visitor_page.get_by_text("pool hub link").first).to_be_visible()
    visitor_page.get_by_label("Sign-in code or link").fill(link_for(web, f"wanted-{len(path)}"))
    visitor_page.get_by_role("button", name="Sign in", exact=True).click()
    expect(visitor_page).to_have_url(f"{web.url}{path}")


@pytest.mark.soak
def test_the_first_run_explains_how_to_sign_in(open_page: OpenPage) -> None:
    with RealPool() as fresh:
        hub = fresh.start_hub()
        page = open_page("visitor", origin=hub.url)
        page.goto(f"{hub.url}/")
        expect(page.get_by_role("heading", name="Welcome to")).to_be_visible()
        expect(page.get_by_label("Command", exact=True)).to_contain_text("pool hub link")
        axe(page)
        page.close()
