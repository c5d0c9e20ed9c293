"""The page Market: prices over time, floors and ceilings, and other economies."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import answer, axe, settled
from tests.web.conftest import Web


def test_prices_are_shown_over_time(web: Web, provider_page: Page) -> None:
    page = provider_page
    page.goto(f"{web.url}/market/")
    settled(page)
    expect(page.get_by_label("Tier")).to_have_value("cpu")
    expect(page.get_by_text("Floors and ceilings decide who takes part")).to_be_visible()
    expect(page.get_by_text(re.compile(r"balance point|offered at this price"))).to_be_visible()

    # The policy of the page allows the chart. Its range is in the address.
    expect(page.locator(".uplot canvas")).to_have_count(2)
    hour = page.get_by_role("group", name="Time range").get_by_role("button", name="1 h")
    hour.click()
    expect(page).to_have_url(re.compile(r"range=1h"))
    page.reload()
    expect(hour).to_have_attribute("aria-pressed", "true")
    price = page.get_by_role("group", name=re.compile(r"^Spot price: chart"))
    price.press("Home")
    price.press("ArrowRight")
    figure = page.get_by_role("figure").filter(has_text="Spot price")
    expect(figure.get_by_text(re.compile(r"^\d+ \w+ \d{4}, \d\d:\d\d:\d\d\s*$"))).to_be_visible()
    figure.get_by_text("As a table").click()
    expect(figure.get_by_role("columnheader", name="Spot")).to_be_visible()
    page.get_by_role("button", name="Regions of cpu").click()
    expect(page).to_have_url(re.compile(r"compare=regions"))
    axe(page)


@pytest.mark.soak
def test_a_new_floor_appears_without_reloading(web: Web, provider_page: Page) -> None:
    page = provider_page
    page.goto(f"{web.url}/market/")
    depth = page.locator("section").filter(has=page.get_by_role("heading", name="Floors and ceilings"))
    depth.get_by_text(re.compile(r"As a table")).click()
    web.provider.market.set_default_floor("1.20")
    try:
        # 1.20 after the fee of 20 % is 1.50 before it.
        expect(depth.get_by_role("cell", name="from 1.50", exact=True)).to_be_visible()
    finally:
        web.provider.market.set_default_floor(None)
    page.get_by_role("link", name="Set a floor").click()
    expect(page).to_have_url(re.compile(r"/nodes/"))


@pytest.mark.soak
def test_the_page_keeps_its_zone_when_another_becomes_the_busiest(web: Web, page: Page) -> None:
    market = web.admin.market()
    busy = market.zones[0].model_copy(update={"tier": "cpu", "region": "", "capacity": 1000})
    other = busy.model_copy(update={"tier": "h100", "capacity": 1})
    answers = [market.model_copy(update={"zones": [busy, other]})]

    answer(page, "**/api/v1/market", lambda: answers[-1])
    page.goto(f"{web.url}/market/")
    expect(page.get_by_label("Tier")).to_have_value("cpu")
    other = other.model_copy(update={"capacity": 5_000_000})
    answers.append(market.model_copy(update={"zones": [busy, other], "sentence": "Fetched again."}))
    web.provider.market.set_default_floor("1.20")  # news make the page fetch the market again
    web.provider.market.set_default_floor(None)
    expect(page.get_by_text("Fetched again.")).to_be_visible()
    expect(page.get_by_label("Tier")).to_have_value("cpu")


@pytest.mark.soak
def test_another_economy_is_explained(web: Web, page: Page) -> None:
    sentence = "This pool has no prices: jobs cost nothing, and lending earns nothing."
    free = web.admin.market().model_copy(update={"economy": "none", "zones": [], "sentence": sentence})

    answer(page, "**/api/v1/market", lambda: free)
    page.goto(f"{web.url}/market/")
    expect(page.get_by_text(sentence)).to_be_visible()
    expect(page.get_by_text("its economy is none")).to_be_visible()
    expect(page.get_by_role("link", name="See your credits")).to_be_visible()
    axe(page)
