"""The picture of which job comes after which, of a job and of a group."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.browsing import axe, settled
from tests.web.conftest import OpenPage, Web


@pytest.fixture(scope="module")
def pipeline(web: Web) -> tuple[str, str]:
    """A group, and its last job."""
    pool = web.submitter
    first = pool.command(["true"], wait=False, name="prepare the data", group="pipeline")
    middle = [
        pool.command(["sleep", "1000"], wait=False, name=f"train {fold}", after=[first], group="pipeline")
        for fold in "ab"
    ]
    pool.command(["true"], wait=False, name="alarm", after=[first], when="failure", group="pipeline")
    last = pool.command(["true"], wait=False, name="report", after=middle, when="always", group="pipeline")
    pool.jobs.wait(first.job_id, timeout=60)
    return pool.groups.find("pipeline").id, last.job_id


@pytest.mark.parametrize("dark", [False, True])
def test_a_graph_shows_states_and_leads_to_the_jobs(
    web: Web, open_page: OpenPage, pipeline: tuple[str, str], dark: bool
) -> None:
    group_id, last = pipeline
    page = open_page("submitter", dark=dark)
    page.goto(f"{web.url}/jobs/?id={last}&tab=graph")
    jobs = page.get_by_role("list", name="5 jobs, each after those that it waits for")
    expect(jobs.get_by_role("link", name="alarm")).to_have_text("alarmskippedon failure")
    expect(jobs.get_by_role("link", name="report")).to_have_attribute("aria-current", "page")
    settled(page)
    axe(page)
    jobs.get_by_role("link", name="prepare the data").press("Enter")
    expect(page.get_by_role("heading", name="prepare the data")).to_be_visible()
    page.goto(f"{web.url}/groups/?id={group_id}")
    expect(page.get_by_role("heading", name="Order of the jobs")).to_be_visible()
    expect(page.get_by_role("link", name="train a").first).to_be_visible()
    settled(page)
    axe(page)
