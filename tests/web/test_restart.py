"""The hub is killed while a page is open: the page says so, comes back by itself, and is true again."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import settled
from tests.web.conftest import Allow, Web


@pytest.mark.timeout(120)
def test_a_page_outlives_its_hub(web: Web, submitter_page: Page, allow: Allow) -> None:
    page = submitter_page
    allow(page, r"ERR_CONNECTION|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE|status of 50")
    page.goto(f"{web.url}/jobs/")
    settled(page)
    mark = page.get_by_role("status").filter(has_text="Live").first
    expect(mark).to_be_visible()
    page.evaluate("window.same = true")
    web.hub.kill()
    expect(page.get_by_text("Reconnecting…").first).to_be_visible()
    web.hub.start()
    name = "submitted after the hub was killed"
    job = web.submitter.command(["echo", "back again"], name=name, wait=False)
    expect(page.get_by_text(name).first).to_be_visible(timeout=40_000)
    expect(mark).to_be_visible(timeout=40_000)
    assert page.evaluate("window.same") is True, "it was not loaded anew"
    assert web.submitter.jobs.wait(job.job_id, timeout_s=60).state == "succeeded"
