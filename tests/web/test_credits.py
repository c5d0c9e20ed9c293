"""The page Credits: the statement, payouts, gifts, and the leaderboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Request, Route, expect

from computepool.core.money.money import format_credits
from tests.web.browsing import axe, downloaded, settled
from tests.web.conftest import Allow, OpenPage, Web


def test_a_payout_is_requested_approved_and_paid(web: Web, provider_page: Page, admin_page: Page) -> None:
    web.earn()
    provider_page.goto(f"{web.url}/credits/?tab=payouts")
    provider_page.get_by_role("button", name="Request a payout").click()
    amount = provider_page.get_by_label("Amount")
    amount.fill("1.234567891")
    expect(provider_page.get_by_text("Enter an amount such as 500")).to_be_visible()
    amount.fill("1")
    expect(provider_page.get_by_text("The minimum is 500.00.", exact=True)).to_be_visible()
    amount.fill("500")
    provider_page.get_by_label("UPI id").fill("provider@upi")
    axe(provider_page)
    provider_page.get_by_role("button", name="Request ₹500.00").click()
    mine = provider_page.get_by_role("table", name="Payouts")
    expect(mine.get_by_text("requested", exact=True)).to_be_visible()

    admin_page.goto(f"{web.url}/admin/?tab=payouts")
    admin_page.get_by_role("button", name="provider").click()
    dialog = admin_page.get_by_role("dialog")
    expect(dialog.get_by_text("provider@upi")).to_be_visible()
    axe(admin_page)
    dialog.get_by_role("button", name="Approve").click()
    # Both pages update without reloading.
    expect(mine.get_by_text("submitted")).to_be_visible()
    admin_page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    bank = admin_page.get_by_role("button", name="At the bank")
    bank.click()
    expect(bank).to_have_attribute("aria-pressed", "true")
    admin_page.get_by_role("button", name="provider").click()
    dialog.get_by_label("The bank's reference, or why it failed").fill("UTR4312001")
    dialog.get_by_role("button", name="Record as paid").click()
    expect(mine.get_by_text("paid", exact=True)).to_be_visible()

    for page in (admin_page, provider_page):
        page.goto(f"{web.url}/audit/?action=payout.")
        for action in ("payout requested", "payout reserved", "payout paid"):
            expect(page.get_by_role("button", name=action)).to_be_visible()


@pytest.mark.soak
def test_a_statement_explains_each_transfer(web: Web, submitter_page: Page) -> None:
    job = web.submitter.command(["sh", "-c", "echo paid-for"], name="paid for")
    submitter_page.goto(f"{web.url}/credits/?job={job.job_id}")
    settled(submitter_page)
    table = submitter_page.get_by_role("table", name="Statement")
    for kind in ("on hold", "paid for jobs", "refunded"):
        expect(table.get_by_text(kind, exact=True).first).to_be_visible()
    axe(submitter_page)
    submitter_page.get_by_label("Kind").select_option("pay")
    expect(submitter_page).to_have_url(re.compile("kind=pay"))
    expect(table.get_by_text("on hold", exact=True)).to_have_count(0)
    table.get_by_role("button").first.click()
    dialog = submitter_page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="How the cost was calculated")).to_be_visible()
    expect(dialog.get_by_text("Spot price", exact=False).first).to_be_visible()
    axe(submitter_page)
    dialog.get_by_role("link", name="Open the job").click()
    expect(submitter_page).to_have_url(re.compile(rf"/jobs/?\?id={job.job_id}"))

    submitter_page.go_back()
    text = downloaded(submitter_page, submitter_page.get_by_role("link", name="CSV")).decode()
    assert job.job_id in text
    assert "hold" not in text.split("\n", 1)[1]

    submitter_page.goto(f"{web.url}/leaderboard/?by=hours")
    settled(submitter_page)
    expect(submitter_page.get_by_role("row", name=re.compile("submitter.*you"))).to_be_visible()
    expect(submitter_page.get_by_role("row", name=re.compile("provider")).first).to_be_visible()
    axe(submitter_page)


@pytest.mark.soak
def test_a_statement_adds_up_on_a_small_screen(web: Web, open_page: OpenPage) -> None:
    """With two decimal places, the amounts of cheap jobs would not add up."""
    job = web.submitter.command(["true"], name="cheap")
    charge = web.submitter.jobs.get(job.job_id).charge
    assert charge
    page = open_page("submitter", width=1280)
    page.goto(f"{web.url}/credits/")
    settled(page)
    table = page.get_by_role("table", name="Statement")
    header = table.get_by_role("columnheader", name="Total")
    expect(header).to_be_in_viewport(ratio=1)
    held = web.submitter.jobs.get(job.job_id).hold
    expect(table.get_by_text(f"+{format_credits(held - charge)}", exact=True).first).to_be_visible()
    have = format_credits(web.submitter.credits().available)
    expect(page.get_by_label("Balances").get_by_text(have, exact=True).first).to_be_visible()


@pytest.mark.soak
def test_an_administrator_gives_credits_once(web: Web, admin_page: Page, allow: Allow) -> None:
    account = web.admin.accounts.create("gets-a-gift")
    before = web.admin.credits(account_id=account.id).available
    admin_page.goto(f"{web.url}/credits/?account={account.id}")
    admin_page.get_by_role("button", name="Give credits").click()
    dialog = admin_page.get_by_role("dialog")
    dialog.get_by_label("Amount").fill("12.5")
    dialog.get_by_label("Note").fill("a <b>gift</b>")
    # The first answer is lost. The repeated request has no further effect.
    lost: list[str] = []

    def lose(route: Route, request: Request) -> None:
        lost.append(request.headers["idempotency-key"])
        if len(lost) == 1:
            route.fetch()
            route.fulfill(status=502, body="")
        else:
            route.continue_()

    allow(admin_page, "status of 502")
    admin_page.route("**/credits/top-ups", lose)
    dialog.get_by_role("button", name="Give 12.50 credits").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_role("button", name="Give 12.50 credits").click()
    expect(dialog).to_have_count(0)
    assert len(lost) == 2
    assert lost[0] == lost[1]
    assert web.admin.credits(account_id=account.id).available == before + 12_500_000
    expect(admin_page.get_by_role("table", name="Statement").get_by_text("a <b>gift</b>")).to_be_visible()
