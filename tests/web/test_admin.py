"""The page Admin: accounts, prices and the health of the hub."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import axe, settled
from tests.web.conftest import Allow, OpenPage, Web

#: The position of the first field in its form.
_FORM_TOP = """() => {
  const field = document.querySelector('main input[inputmode=decimal]');
  return Math.round(field.getBoundingClientRect().top - field.closest('section').getBoundingClientRect().top);
}"""


def test_an_account_is_created_and_signs_in_by_a_link(
    web: Web, admin_page: Page, visitor_page: Page, allow: Allow
) -> None:
    admin_page.goto(f"{web.url}/admin/")
    settled(admin_page)
    admin_page.get_by_role("button", name="New account").click()
    dialog = admin_page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("made-by-admin")
    dialog.get_by_label("provider", exact=True).uncheck()
    axe(admin_page)
    dialog.get_by_role("button", name="Create the account").click()
    dialog.get_by_role("button", name="Create a sign-in link").click()
    link = dialog.get_by_label("Sign-in link", exact=True).inner_text().strip()
    visitor_page.goto(link)
    visitor_page.get_by_role("button", name="Sign in", exact=True).click()
    expect(visitor_page.get_by_role("button", name="Account: made-by-admin")).to_be_visible()
    dialog.get_by_role("button", name="Done").click()

    admin_page.get_by_role("button", name="made-by-admin").click()
    dialog.get_by_label("provider", exact=True).check()
    dialog.get_by_role("button", name="Save the roles").click()
    expect(admin_page.get_by_text("made-by-admin is now")).to_be_visible()
    dialog.get_by_role("tab", name="Limits").click()
    dialog.get_by_label("Unfinished jobs at once").fill("7")
    dialog.get_by_label("Credits spent per day").fill("12.5")
    dialog.get_by_role("button", name="Save the limits").click()
    expect(admin_page.get_by_text("Limits saved")).to_be_visible()
    account = web.admin.accounts.find("made-by-admin")
    assert set(account.roles) == {"submitter", "provider"}
    assert (account.jobs_open_max, account.spend_per_day_max) == (7, 12_500_000)

    dialog.get_by_role("tab", name="Keys").click()
    expect(dialog.get_by_role("row", name="browser")).to_be_visible()
    axe(admin_page)
    allow(visitor_page, "status of 401")  # until it knows of the sign-out
    dialog.get_by_role("button", name="Revoke browser").click()
    admin_page.get_by_role("button", name="Revoke the session").click()
    # The stream of news ends with the session, so the page checks who is signed in.
    expect(visitor_page.get_by_role("heading", name="Sign in to")).to_be_visible()


@pytest.mark.soak
def test_prices_change_by_versions_and_nobody_overwrites_anothers(
    web: Web, admin_page: Page, open_page: OpenPage, allow: Allow
) -> None:
    first = web.admin.prices.show()
    other = open_page("admin")
    for page in (admin_page, other):
        page.goto(f"{web.url}/admin/?tab=prices")
        page.get_by_role("button", name="Change the prices").click()
        expect(page.get_by_role("heading", name="Changes")).to_be_visible()
    top = other.evaluate(_FORM_TOP)
    fee = admin_page.get_by_label("Fee", exact=True)
    fee.fill("90")
    expect(admin_page.get_by_text("At most 20 %.")).to_be_visible()
    expect(admin_page.get_by_role("button", name="Apply the prices")).to_be_disabled()
    fee.fill("20")
    admin_page.get_by_label("Rate of h100").fill("6.25")
    expect(admin_page.get_by_role("row", name="tier h100 6.00 6.25")).to_be_visible()
    axe(admin_page)
    admin_page.get_by_role("button", name="Apply the prices").click()
    expect(admin_page.get_by_role("heading", name=f"Prices, version {first.version + 1}")).to_be_visible()
    assert web.admin.prices.show().tiers["h100"] == 625

    # The other administrator is told, without anything moving, and keeps what was typed.
    allow(other, "status of 409")
    expect(other.get_by_role("status").filter(has_text="has applied version")).to_be_visible()
    assert other.evaluate(_FORM_TOP) == top
    other.get_by_label("Rate of cpu", exact=True).fill("0.81")
    other.get_by_role("button", name="Apply the prices").click()
    expect(other.get_by_role("alert").filter(has_text="is the newest")).to_be_visible()
    other.get_by_role("button", name=re.compile("Apply my changes to version")).click()
    other.get_by_role("button", name="Apply the prices").click()
    expect(other.get_by_role("heading", name=f"Prices, version {first.version + 2}")).to_be_visible()
    now = web.admin.prices.show()
    assert (now.tiers["h100"], now.tiers["cpu"]) == (625, 81)
    newest = other.get_by_role("listitem").filter(has_text=f"Version {first.version + 2}")
    newest.get_by_role("button", name="Show changes").click()
    expect(other.get_by_role("dialog").get_by_role("row", name="tier cpu 0.80 0.81")).to_be_visible()


@pytest.mark.soak
def test_health_invariants_and_keys_of_the_hub(web: Web, admin_page: Page, submitter_page: Page) -> None:
    admin_page.goto(f"{web.url}/admin/?tab=health")
    settled(admin_page)
    expect(admin_page.get_by_role("heading", name="Database")).to_be_visible()
    axe(admin_page)
    admin_page.get_by_role("tab", name="Invariants").click()
    admin_page.get_by_role("button", name="Check now").click()
    expect(admin_page.get_by_text("holds", exact=True).first).to_be_visible()
    expect(admin_page.get_by_text("waiting", exact=True)).to_have_count(0)
    expect(admin_page.get_by_text("broken", exact=True)).to_have_count(0)
    axe(admin_page)
    admin_page.get_by_role("tab", name="Hub keys").click()
    admin_page.get_by_role("button", name="Change the key").click()
    admin_page.get_by_role("dialog").get_by_role("button", name="Change the key").click()
    expect(admin_page.get_by_text("is now the signing key")).to_be_visible()
    admin_page.get_by_role("tab", name="Approvals").click()
    expect(admin_page.get_by_text("Nothing to approve")).to_be_visible()
    axe(admin_page)

    submitter_page.goto(f"{web.url}/admin/")
    expect(submitter_page.get_by_text("This page is for administrators")).to_be_visible()
    axe(submitter_page)
