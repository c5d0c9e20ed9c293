"""The page Nodes: a machine joins with a code, and its owner manages it."""

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
from computepool.testing.waiting import wait_until
from tests.web.browsing import answer, axe, settled
from tests.web.conftest import Allow, Web

#: The states of a node that takes jobs.
_AT_WORK = re.compile("ready|working")

POOL = Path(sys.executable).with_name("pool")
JOINED_MS = 90_000


@contextmanager
def typed(command: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Runs the command as on a new machine, with its own folder; stopped as by Ctrl-C."""
    program, *arguments = shlex.split(command)
    assert program == "pool"
    with tempfile.TemporaryDirectory(prefix="computepool-", dir="/tmp") as folder:
        # Jobs run as other users, who need access to their folders.
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
            output, _ = process.communicate(timeout=60)
            print(output[-2000:])


def step(page: Page, name: str) -> Locator:
    return page.locator(f"[data-step={name}]")


def is_done(page: Page, *names: str) -> None:
    for name in names:
        expect(step(page, name)).to_have_attribute("data-state", "done", timeout=JOINED_MS)


def test_a_machine_joins_with_the_code_of_the_page(web: Web, provider_page: Page) -> None:
    page = provider_page
    page.goto(f"{web.url}/nodes/")
    page.get_by_role("link", name="Add a node").click()
    page.get_by_role("button", name="Create a code").click()
    code = page.get_by_role("region", name="One-time code").inner_text()
    command = page.get_by_role("region", name="Command 2").inner_text()
    assert shlex.split(command)[-1] == code
    assert f"--hub {web.url} " in command
    expect(page.get_by_role("timer")).to_contain_text(re.compile(r"expires in \d+ min"))
    expect(step(page, "code")).to_have_attribute("data-state", "waiting")
    axe(page)

    # The code survives leaving the page, and is never in the address.
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
        page.get_by_role("link", name="Open attic").click()
        expect(page.get_by_role("heading", name="attic")).to_be_visible()
        page.get_by_role("tab", name="Reputation").click()
        expect(page.get_by_role("table", name="Evidence").get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_role("heading", name="attic")).to_contain_text("offline", timeout=JOINED_MS)


@pytest.fixture
def workshop(web: Web) -> Iterator[str]:
    """The shared node, which is reset after the test."""
    node_id = web.agent.node_id
    yield node_id
    web.provider.nodes.resume(node_id)
    web.provider.nodes.set_rules(node_id, NodeRules())
    web.provider.market.set_floor(node_id, None)


@pytest.mark.soak
def test_an_owner_pauses_a_node_and_sets_its_floor(web: Web, workshop: str, provider_page: Page) -> None:
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
    expect(page.get_by_text("Enter an amount such as")).to_be_visible()
    expect(page.get_by_role("button", name="Save the floor")).to_be_disabled()
    page.get_by_label("Floor", exact=True).fill("900")
    page.get_by_role("button", name="Save the floor").click()
    # The hub explains what that means today.
    expect(page.get_by_text("can ever pay").first).to_be_visible()
    expect(page.get_by_text("its floor is above the price")).to_be_visible()
    expect(heading).to_contain_text("floor above price")
    assert web.provider.nodes.get(node_id).floor == 900 * CREDIT
    axe(page)
    page.get_by_role("button", name="Remove the floor").click()
    expect(page.get_by_text("No minimum price set: the node takes any price.").first).to_be_visible()
    wait_until(lambda: web.provider.nodes.get(node_id).floor is None, 60, "the floor is gone")


@pytest.mark.soak
def test_evidence_keeps_its_position_while_more_is_added(web: Web, workshop: str, provider_page: Page) -> None:
    page = provider_page
    row = EvidenceRow(
        at_ms=0, evidence="verified", sentence="", weight=1, success=True, counted=True, verified=True, violation=False,
        own=False,
    )  # fmt: skip
    rows = [row.model_copy(update={"at_ms": n // 2, "sentence": f"outcome {n}"}) for n in range(40, 0, -1)]

    answer(page, "**/evidence?*", lambda: EvidencePage(node_id=workshop, exact=True, rows=rows))
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
def test_the_help_with_joining_is_accessible(web: Web, provider_page: Page) -> None:
    """All steps at once, as if each had a problem."""
    page = provider_page
    code = web.provider.nodes.code()

    def trouble(route: Route) -> None:
        status = route.fetch().json()
        steps = [{**step, "state": "warning"} for step in status["steps"]]
        route.fulfill(json={**status, "steps": steps})

    page.route("**/api/v1/nodes/codes/*", trouble)
    page.goto(f"{web.url}/nodes/add/?code_id={code.id}")
    expect(page.get_by_text("sudo apt install bubblewrap")).to_be_visible()
    expect(page.get_by_text("pool node doctor")).to_be_visible()
    axe(page)
    page.unroute_all(behavior="ignoreErrors")  # the page polls until it closes


@pytest.mark.soak
def test_the_rules_of_a_node_refuse_a_job(web: Web, workshop: str, provider_page: Page, allow: Allow) -> None:
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

    # Leaving the page asks first; another tab loses nothing.
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
def test_the_last_of_two_quick_clicks_on_tabs_wins(web: Web, workshop: str, provider_page: Page) -> None:
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
def test_only_owners_and_administrators_see_controls(web: Web, submitter_page: Page, admin_page: Page) -> None:
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
    admin_page.get_by_role("button", name="Go back").click()
    expect(admin_page.get_by_role("heading", level=1)).to_contain_text(_AT_WORK)
    submitter_page.goto(f"{web.url}/nodes/add/")
    expect(submitter_page.get_by_text("Your account may not lend machines")).to_be_visible()
