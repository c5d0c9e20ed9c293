"""The page Audit: filters, live events and exports."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import axe, downloaded, hold, settled
from tests.web.conftest import Web


def test_events_are_filtered_live_and_exported(web: Web, admin_page: Page) -> None:
    made = web.admin.accounts.create("audited-one")
    admin_page.goto(f"{web.url}/audit/")
    settled(admin_page)
    admin_page.get_by_label("Event", exact=True).fill("account.created")
    expect(admin_page).to_have_url(re.compile(r"action=account\.created"))
    table = admin_page.get_by_role("table", name="Events")
    expect(table.get_by_role("row", name="audited-one")).to_be_visible()
    # The filter applies to new events, too.
    web.admin.accounts.create("audited-two")
    expect(table.get_by_role("row", name="audited-two")).to_be_visible()
    admin_page.get_by_role("button", name="Pause").click()
    web.admin.accounts.create("audited-three")
    expect(admin_page.get_by_text(re.compile(r"paused, [1-9]\d* new since then"))).to_be_visible()
    expect(table.get_by_role("row", name="audited-three")).to_have_count(0)
    admin_page.get_by_role("button", name="Resume").click()
    expect(table.get_by_role("row", name="audited-three")).to_be_visible()
    expect(table.get_by_role("row", name="job queued")).to_have_count(0)

    table.get_by_role("row", name="audited-one").get_by_role("button").click()
    dialog = admin_page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Account created")).to_be_visible()
    expect(dialog.get_by_text("account.created", exact=True)).to_be_visible()
    axe(admin_page)
    dialog.get_by_role("button", name="filter").last.click()
    expect(admin_page).to_have_url(re.compile(f"account={made.id}"))
    expect(table.get_by_role("row", name="audited-two")).to_have_count(0)

    events = json.loads(downloaded(admin_page, admin_page.get_by_role("button", name="JSON")))
    assert [event["account_id"] for event in events] == [made.id]

    admin_page.get_by_role("button", name="Clear all filters").click()
    admin_page.get_by_label("Search").fill("no such words anywhere")
    expect(admin_page.get_by_text("No events match these filters")).to_be_visible()


@pytest.mark.soak
def test_a_paused_trail_does_not_change_even_by_an_answer_on_its_way(web: Web, admin_page: Page) -> None:
    page = admin_page
    table = page.get_by_role("table", name="Events")
    newer = re.compile(r"/api/v1/events\?.*after=")
    held = hold(page, newer)
    with page.expect_request(newer):  # its first request for new events
        page.goto(f"{web.url}/audit/?action=account.created")
    expect(table.get_by_role("row", name="submitter")).to_be_visible()
    web.admin.accounts.create("while-it-asked")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    with page.expect_response(newer) as answer:
        held[0].continue_()
    page.unroute(newer)
    assert "while-it-asked" in answer.value.text()
    page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    expect(table.get_by_role("row", name="while-it-asked")).to_have_count(0)
    page.get_by_role("button", name="Resume").click()
    expect(table.get_by_role("row", name="while-it-asked")).to_be_visible()


@pytest.mark.soak
def test_people_see_only_their_own_events(web: Web, submitter_page: Page) -> None:
    submitter_page.goto(f"{web.url}/audit/?action=account.created")
    settled(submitter_page)
    table = submitter_page.get_by_role("table", name="Events")
    expect(table.get_by_role("row", name="submitter")).to_be_visible()
    expect(table.get_by_role("row", name="provider")).to_have_count(0)
