"""Typing into filters and fields, and copying."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import settled
from tests.web.conftest import OpenPage, Web

pytestmark = pytest.mark.soak

#: As on a page over plain HTTP.
_NO_CLIPBOARD = """
window.__clipboard = navigator.clipboard;
Object.defineProperty(navigator, 'clipboard', {value: undefined});
"""


@pytest.mark.parametrize("path", ["nodes/?tab=all", "groups/", "jobs/", "mesh"])
def test_a_search_is_cleared_with_the_filters(web: Web, page: Page, path: str) -> None:
    page.goto(f"{web.url}/{'' if path == 'mesh' else path}")
    settled(page)
    field = page.get_by_role("searchbox").first
    field.fill("zzz")
    expect(page).to_have_url(re.compile("q=zzz"))
    expect(page.get_by_text(re.compile("^No (nodes|groups|jobs) match these filters")).first).to_be_visible()
    page.evaluate("history.replaceState(null, '', location.pathname)")
    expect(field).to_have_value("")
    field.fill("yyy")
    expect(page).to_have_url(re.compile("q=yyy"))


def test_no_choice_is_lost_that_is_faster_than_react(web: Web, page: Page) -> None:
    page.goto(f"{web.url}/jobs/")
    settled(page)
    states = page.get_by_role("group", name="States")
    states.evaluate("""states => {
      for (const name of ['queued', 'failed'])
        [...states.querySelectorAll('button')].find(one => one.textContent === name).click();
    }""")
    for name in ("queued", "failed"):
        expect(states.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
    choice = page.get_by_label("Submitted", exact=True)
    shown = choice.evaluate("""choice => {
      choice.value = '24h';
      choice.dispatchEvent(new Event('change', {bubbles: true}));
      return choice.value;
    }""")
    assert shown == "24h", "it was reset"
    page.get_by_role("button", name="Clear all").first.click()
    expect(choice).to_have_value("")


def test_a_search_survives_slow_typing(web: Web, admin_page: Page) -> None:
    admin_page.goto(f"{web.url}/audit/")
    settled(admin_page)
    field = admin_page.get_by_label("Search")
    field.press_sequentially("disk ")
    expect(admin_page).to_have_url(re.compile("q=disk$"))
    field.press_sequentially("full")
    expect(field).to_have_value("disk full")
    expect(admin_page).to_have_url(re.compile(r"q=disk(\+|%20)full"))


def test_a_year_is_typed_digit_by_digit(web: Web, admin_page: Page) -> None:
    admin_page.goto(f"{web.url}/audit/?time=between&from=1714557600000")
    settled(admin_page)
    field = admin_page.get_by_label("From", exact=True)
    expect(field).to_have_value(re.compile(r"2024-05-01T"))
    field.focus()
    admin_page.keyboard.press("ArrowRight")
    admin_page.keyboard.press("ArrowRight")
    admin_page.keyboard.type("2026", delay=60)
    expect(field).to_have_value(re.compile(r"2026-05-01T"))
    expect(admin_page).to_have_url(re.compile(r"from=17776\d{8}"))


def test_new_events_appear_after_a_filter_was_cleared(web: Web, admin_page: Page) -> None:
    page = admin_page
    page.goto(f"{web.url}/audit/")
    settled(page)
    page.get_by_label("Event", exact=True).fill("account.")
    expect(page).to_have_url(re.compile(r"action=account"))
    settled(page)
    page.get_by_role("button", name="Clear all filters").click()
    expect(page).not_to_have_url(re.compile(r"action="))
    settled(page)
    web.admin.accounts.create("heard-afterwards")
    table = page.get_by_role("table", name="Events")
    expect(table.get_by_role("row", name="heard-afterwards").first).to_be_visible()


def test_a_secret_is_copied_without_the_clipboard_api(web: Web, open_page: OpenPage) -> None:
    page = open_page("provider", clipboard=True)
    page.add_init_script(_NO_CLIPBOARD)
    page.goto(f"{web.url}/account/?tab=keys")
    settled(page)
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("copied")
    dialog.get_by_role("button", name="Create the key").click()
    key = dialog.get_by_label("Key", exact=True).inner_text().strip()
    dialog.get_by_role("button", name="Copy key").click()
    expect(dialog.get_by_role("button", name="Copied", exact=True)).to_be_visible()
    assert page.evaluate("window.__clipboard.readText()") == key
    dialog.get_by_role("button", name="I have copied it").click()
    web.provider.keys.revoke(next(one.id for one in web.provider.keys.list() if one.name == "copied"))
