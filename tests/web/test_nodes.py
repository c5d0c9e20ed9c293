"""The page of nodes: a machine joins with the code that the wizard shows, and its owner steers it from there."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from computepool.core.money.money import CREDIT
from computepool.protocol.nodes.evidence import EvidencePage, EvidenceRow
from computepool.protocol.nodes.rules import NodeRules
from computepool.testing.processes import wait_until
from tests.web.browsing import axe, settled
from tests.web.conftest import Allow, Web

#: What a node is called that takes jobs, whether it has some or not.
_AT_WORK = re.compile("ready|working")

POOL = Path(sys.executable).with_name("pool")
JOINED_MS = 90_000


@contextmanager
def typed(command: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The command as somebody types it on the new machine, with a folder of its own; stopped as by Ctrl-C."""
    program, *arguments = shlex.split(command)
    assert program == "pool"
    with tempfile.TemporaryDirectory(prefix="computepool-", dir="/tmp") as folder:
        # Jobs run as users of their own, who must be able to walk to their folders.
        Path(folder).chmod(0o755)
        process = subprocess.Popen(
            [str(POOL), *arguments, *more, "--data", folder],
            env={**os.environ, "HOME": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
            print(said[-2000:])


def step(page: Page, name: str) -> Locator:
    return page.locator(f"[data-step={name}]")


def is_done(page: Page, *names: str) -> None:
    for name in names:
        expect(step(page, name)).to_have_attribute("data-state", "done", timeout=JOINED_MS)


@pytest.mark.timeout(300)
def test_a_machine_joins_with_the_code_of_the_page(web: Web, provider_page: Page) -> None:
    page = provider_page
    page.goto(f"{web.url}/nodes/")
    page.get_by_role("link", name="Add a node").click()
    page.get_by_role("button", name="Create a code").click()
    code = page.get_by_role("region", name="One-time code").inner_text()
    command = page.get_by_role("region", name="Command 2").inner_text()
    assert shlex.split(command)[-1] == code
    assert f"--hub {web.url} " in command
    expect(page.get_by_role("timer")).to_contain_text(re.compile(r"works for another \d+ min"))
    expect(step(page, "code")).to_have_attribute("data-state", "waiting")
    axe(page)

    # Whoever leaves and comes back finds the code as it was, and it never stood in the address.
    assert code not in page.url
    here = page.url
    page.get_by_role("link", name="Mesh").click()
    page.wait_for_url(f"{web.url}/")
    page.go_back()
    expect(page.get_by_role("region", name="One-time code")).to_have_text(code)

    with typed(command, "--name", "attic", "--cores", "1", "--sandbox", "namespace"):
        is_done(page, "code", "poll", "sandbox", "ready")
        expect(step(page, "sandbox")).to_contain_text("namespace")
        expect(step(page, "hardware")).to_have_attribute("data-state", "skipped")  # this hub measures nothing
        expect(step(page, "job")).to_have_attribute("data-state", "waiting")
        expect(page.get_by_text(code)).to_have_count(0)
        done = web.submitter.command(["echo", "from the attic"], host="attic")
        assert done.output == "from the attic\n"
        is_done(page, "job")
        page.reload()
        is_done(page, "code", "job")
        assert page.url == here
        axe(page)
        page.get_by_role("link", name="To attic").click()
        expect(page.get_by_role("heading", name="attic")).to_be_visible()
        page.get_by_role("tab", name="Reputation").click()
        expect(page.get_by_role("table", name="Evidence").get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_role("heading", name="attic")).to_contain_text("offline", timeout=JOINED_MS)


@pytest.fixture
def workshop(web: Web) -> Iterator[str]:
    """The node that all tests of the dashboard share; as it was when a test is over, however that ends."""
    node_id = web.agent.node_id
    yield node_id
    web.provider.nodes.resume(node_id)
    web.provider.nodes.set_rules(node_id, NodeRules())
    web.provider.market.set_floor(node_id, None)


@pytest.mark.soak
def test_its_owner_pauses_it_and_sets_a_floor(web: Web, workshop: str, provider_page: Page) -> None:
    page, node_id = provider_page, workshop
    page.goto(f"{web.url}/nodes/?q=workshop")
    row = page.get_by_role("table", name="My nodes").get_by_role("row").filter(has_text="workshop")
    expect(row).to_contain_text(_AT_WORK)
    row.get_by_role("link", name="workshop").click()
    heading = page.get_by_role("heading", level=1)
    page.get_by_role("button", name="Pause").click()
    expect(heading).to_contain_text("paused")
    expect(
        page.get_by_text("The node is paused: it takes no new jobs until its owner resumes it.").first
    ).to_be_visible()
    assert web.provider.nodes.get(node_id).state == "paused"
    page.get_by_role("button", name="Resume").click()
    expect(heading).to_contain_text(_AT_WORK)

    page.get_by_role("tab", name="Earnings").click()
    page.get_by_label("Floor", exact=True).fill("much")
    page.get_by_role("button", name="Save the floor").click()
    expect(page.get_by_text("Enter an amount of credits, such as 6.50.")).to_be_visible()
    page.get_by_label("Floor", exact=True).fill("900")
    page.get_by_role("button", name="Save the floor").click()
    # What it means today is the hub's own sentence.
    expect(page.get_by_text("can ever pay").first).to_be_visible()
    expect(page.get_by_text("its floor is above the price")).to_be_visible()
    expect(heading).to_contain_text("floor above price")
    assert web.provider.nodes.get(node_id).floor == 900 * CREDIT
    axe(page)
    page.get_by_role("button", name="Clear", exact=True).click()
    expect(page.get_by_text("No minimum price set: the node takes any price.").first).to_be_visible()
    wait_until(lambda: web.provider.nodes.get(node_id).floor is None, 10, "the floor is gone")


@pytest.mark.soak
def test_evidence_stays_where_it_is_while_more_comes(web: Web, workshop: str, provider_page: Page) -> None:
    page = provider_page
    row = EvidenceRow(
        at_ms=0, evidence="verified", sentence="", weight=1, success=True, counted=True, verified=True, violation=False,
        own=False,
    )  # fmt: skip
    rows = [row.model_copy(update={"at_ms": n // 2, "sentence": f"outcome {n}"}) for n in range(40, 0, -1)]

    def fulfil(route: Route) -> None:
        body = EvidencePage(node_id=workshop, exact=True, rows=rows).model_dump_json()
        route.fulfill(body=body, content_type="application/json")

    page.route("**/evidence?*", fulfil)
    page.goto(f"{web.url}/nodes/?id={workshop}&tab=reputation")
    table = page.get_by_role("table", name="Evidence")
    expect(table).to_have_attribute("aria-rowcount", "41")
    table.evaluate("table => { table.scrollTop = 60 * 20 }")
    seen = table.get_by_text("outcome 20", exact=True)
    expect(seen).to_be_in_viewport()
    down = "seen => Math.round(seen.getBoundingClientRect().top - seen.closest('[role=table]').getBoundingClientRect().top)"
    before = seen.evaluate(down)
    rows.insert(0, row.model_copy(update={"at_ms": 99, "sentence": "outcome 41"}))
    web.provider.nodes.pause(workshop)
    expect(table).to_have_attribute("aria-rowcount", "42")
    assert seen.evaluate(down) == before


@pytest.mark.soak
def test_help_with_joining_is_clean(web: Web, provider_page: Page) -> None:
    """Every step at once, as if each had a trouble."""
    page = provider_page
    code = web.provider.nodes.code()

    def trouble(route: Route) -> None:
        said = route.fetch().json()
        steps = [{**step, "state": "warning"} for step in said["steps"]]
        route.fulfill(json={**said, "steps": steps})

    page.route("**/api/v1/nodes/codes/*", trouble)
    page.goto(f"{web.url}/nodes/add/?code_id={code.id}")
    expect(page.get_by_text("sudo apt install bubblewrap")).to_be_visible()
    expect(page.get_by_text("pool node doctor")).to_be_visible()
    axe(page)
    page.unroute_all(behavior="ignoreErrors")  # it asks again and again, also while the page closes


@pytest.mark.soak
def test_its_rules_refuse_a_job(web: Web, workshop: str, provider_page: Page, allow: Allow) -> None:
    page, node_id = provider_page, workshop
    allow(page, "status of 4(22|04).*/rules")
    page.goto(f"{web.url}/nodes/?id={node_id}&tab=rules")
    expect(page.get_by_text("No rules: the node takes any job that fits.")).to_be_visible()
    longest, denied = page.get_by_label("Maximum duration"), page.get_by_label("No jobs of")
    longest.fill("0")
    denied.fill("nobody-here")
    save = page.get_by_role("button", name="Save the rules")
    save.click()
    expect(longest).to_have_attribute("aria-invalid", "true")
    longest.fill("")
    save.click()
    expect(denied).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_text("There is no account 'nobody-here'")).to_be_visible()

    # Leaving asks first; looking at another tab loses nothing.
    page.get_by_role("link", name="Market").click()
    page.get_by_role("button", name="Stay here").click()
    page.get_by_role("tab", name="Overview").click()
    page.get_by_role("tab", name="Rules (not saved)").click()
    expect(denied).to_have_value("nobody-here")
    denied.fill("")
    page.get_by_label("No jobs labelled").fill("Mining")
    save.click()
    expect(page.get_by_text("No jobs labelled mining.")).to_be_visible()
    axe(page)

    job = web.submitter.command(["true"], host="workshop", labels=["mining"], wait=False)
    page.get_by_role("tab", name="Overview").click()
    expect(page.get_by_text(re.compile("labelled mining|mining")).first).to_be_visible()
    assert "mining" in str(web.submitter.jobs.why(job.job_id))
    job.cancel()
    axe(page)


@pytest.mark.soak
def test_of_two_quick_choices_the_last_one_holds(web: Web, workshop: str, provider_page: Page) -> None:
    provider_page.goto(f"{web.url}/nodes/?id={workshop}&tab=rules")
    rules = provider_page.get_by_role("tab", name="Rules")
    expect(rules).to_have_attribute("aria-selected", "true")
    provider_page.evaluate(
        """() => {
          const press = (name) => {
            const tab = [...document.querySelectorAll("[role=tab]")].find((one) => one.textContent.startsWith(name));
            const options = { bubbles: true, button: 0 };
            for (const kind of ["mousedown", "mouseup", "click"]) tab.dispatchEvent(new MouseEvent(kind, options));
          };
          press("Overview");
          press("Rules");
        }"""
    )
    settled(provider_page)
    expect(provider_page).to_have_url(re.compile("tab=rules"))
    expect(rules).to_have_attribute("aria-selected", "true")


@pytest.mark.soak
def test_anothers_node_shows_no_controls(web: Web, submitter_page: Page, admin_page: Page) -> None:
    for page in (submitter_page, admin_page):
        page.goto(f"{web.url}/nodes/?show=all")
        settled(page)
        page.get_by_role("table", name="All nodes").get_by_role("link", name="workshop").click()
        expect(page.get_by_text("Lent by provider.")).to_be_visible()
        expect(page.get_by_role("tab", name="Reputation")).to_be_visible()
    for name in ("Pause", "Drain", "Revoke", "Pardon"):
        expect(submitter_page.get_by_role("button", name=name)).to_have_count(0)
    for name in ("Earnings", "Rules"):
        expect(submitter_page.get_by_role("tab", name=name)).to_have_count(0)
    axe(submitter_page)
    expect(admin_page.get_by_role("button", name="Revoke")).to_be_visible()
    admin_page.get_by_role("button", name="Revoke").click()
    expect(admin_page.get_by_role("dialog")).to_contain_text("cannot be undone")
    axe(admin_page)
    admin_page.get_by_role("button", name="Keep", exact=True).click()
    expect(admin_page.get_by_role("heading", level=1)).to_contain_text(_AT_WORK)
    # Somebody who may not lend is told so, and led to everybody's nodes.
    submitter_page.goto(f"{web.url}/nodes/add/")
    expect(submitter_page.get_by_text("Your account may not lend machines.")).to_be_visible()
