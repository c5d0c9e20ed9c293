"""The page Account: keys, sessions and webhooks."""

from __future__ import annotations

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import axe, settled
from tests.web.conftest import Web


def status_with(web: Web, key: str, path: str = "/me") -> int:
    return httpx2.get(f"{web.url}/api/v1{path}", headers={"Authorization": f"Bearer {key}"}).status_code


@pytest.mark.soak
def test_a_key_works_until_it_is_revoked(web: Web, provider_page: Page) -> None:
    provider_page.goto(f"{web.url}/account/?tab=keys")
    settled(provider_page)
    provider_page.get_by_role("button", name="New key").click()
    dialog = provider_page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("made on the page")
    dialog.get_by_label("read", exact=True).check()
    axe(provider_page)
    dialog.get_by_role("button", name="Create the key").click()
    key = dialog.get_by_label("Key", exact=True).inner_text().strip()
    assert key.startswith("cp_")
    assert status_with(web, key) == 200
    refused = httpx2.post(f"{web.url}/api/v1/nodes/codes", headers={"Authorization": f"Bearer {key}"}, json={})
    assert refused.status_code == 403, "a key for reading enrols no nodes"
    dialog.get_by_role("button", name="I have copied it").click()
    assert key not in provider_page.content()

    row = provider_page.get_by_role("row", name="made on the page")
    row.get_by_role("button", name="Replace").click()
    dialog.get_by_label("The old key expires").select_option("0")
    dialog.get_by_role("button", name="Replace the key").click()
    newer = dialog.get_by_label("New key", exact=True).inner_text().strip()
    dialog.get_by_role("button", name="I have copied it").click()
    assert status_with(web, newer) == 200
    assert status_with(web, key) == 401
    expect(row).to_have_count(2)  # the newer one is first

    provider_page.get_by_role("button", name="Revoke made on the page").first.click()
    dialog.get_by_role("button", name="Revoke the key").click()
    expect(dialog).to_have_count(0)
    assert status_with(web, newer) == 401


@pytest.mark.soak
def test_a_webhook_is_created_tested_and_deleted(web: Web, submitter_page: Page) -> None:
    submitter_page.goto(f"{web.url}/account/?tab=webhooks")
    settled(submitter_page)
    expect(submitter_page.get_by_text("No webhooks yet")).to_be_visible()
    submitter_page.get_by_role("button", name="New webhook").click()
    dialog = submitter_page.get_by_role("dialog")
    dialog.get_by_label("Address").fill("https://hooks.example.org/<i>told</i>")
    dialog.get_by_role("button", name="Create the webhook").click()
    expect(dialog.get_by_label("Secret of the webhook", exact=True)).to_contain_text("whsec_")
    dialog.get_by_role("button", name="I have copied it").click()
    expect(submitter_page.get_by_text("https://hooks.example.org/<i>told</i>")).to_be_visible()
    submitter_page.get_by_role("button", name="Test", exact=True).click()
    expect(dialog.get_by_text("webhook.test")).to_be_visible()
    axe(submitter_page)
    submitter_page.keyboard.press("Escape")
    submitter_page.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(submitter_page.get_by_text("No webhooks yet")).to_be_visible()
    submitter_page.get_by_role("tab", name="About you").click()
    expect(submitter_page.get_by_role("heading", name="Storage")).to_be_visible()
    axe(submitter_page)
