"""Decisions that need two administrators, and pardons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from computepool.core.trust.reputation import PROBE_WRONG_ACTION, REFUTED_ACTION
from computepool.core.trust.violations import PROBES_WRONG, VIOLATIONS_MAX
from computepool.hub.app import open_store
from computepool.hub.clock import SystemClock
from computepool.hub.db.session import Tx
from computepool.hub.settlement.verification import violations
from computepool.sdk.pool import Pool
from computepool.testing.processes import RealPool
from tests.web.browsing import axe, settled
from tests.web.conftest import OpenPage


@dataclass
class Two:
    """A pool in which gifts need the approval of a second administrator."""

    real: RealPool
    url: str
    admin: Pool
    sam_id: str
    second_id: str
    second_key: str


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    with RealPool() as real:
        hub = real.start_hub()
        admin = real.client()
        second = admin.accounts.create("second", roles=("admin",))
        sam = admin.accounts.create("sam", roles=("submitter",))
        key = admin.keys.create("test", account_id=second.id).key
        hub.end()  # afterwards, creating an administrator would need two
        hub.start(two_person="top-ups")
        yield Two(real, hub.url, admin, sam.id, second.id, key)


@pytest.fixture
def asker(two: Two, open_page: OpenPage) -> Iterator[Page]:
    page = open_page(origin=two.url, key=two.real.admin_key)
    yield page
    page.context.close()  # before the pool ends, which would be an error


@pytest.fixture
def second(two: Two, open_page: OpenPage) -> Iterator[Page]:
    page = open_page(origin=two.url, key=two.second_key)
    yield page
    page.context.close()


def _ask(page: Page, two: Two, *, amount: str, note: str) -> None:
    page.goto(f"{two.url}/credits/")
    page.get_by_role("button", name="Give credits").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Account").fill("sam")
    dialog.get_by_label("Amount").fill(amount)
    dialog.get_by_label("Note").fill(note)
    dialog.get_by_role("button", name=f"Give {amount}").click()
    expect(page.get_by_text("Saved: the credits are given once a second administrator approves.")).to_be_visible()


def test_a_gift_waits_for_a_second_administrator(two: Two, asker: Page, second: Page) -> None:
    before = two.admin.credits(account_id=two.sam_id).available
    second.goto(f"{two.url}/admin/?tab=approvals")
    settled(second)
    _ask(asker, two, amount="12.50", note="for the contest")
    asker.goto(f"{two.url}/admin/?tab=approvals")
    expect(asker.get_by_text("for the contest")).to_be_visible()
    expect(asker.get_by_role("button", name="Approve")).to_be_disabled()
    axe(asker)
    assert two.admin.credits(account_id=two.sam_id).available == before

    expect(second.get_by_text("for the contest")).to_be_visible()
    second.get_by_role("button", name="Approve").click()
    expect(second.get_by_text("Approved.")).to_be_visible()
    expect(second.get_by_text("Nothing to approve")).to_be_visible()
    assert two.admin.credits(account_id=two.sam_id).available == before + 12_500_000


@pytest.mark.soak
def test_a_gift_is_rejected_with_a_reason(two: Two, asker: Page, second: Page) -> None:
    before = two.admin.credits(account_id=two.sam_id).available
    _ask(asker, two, amount="900.00", note="too much")
    second.goto(f"{two.url}/admin/?tab=approvals")
    reject = second.get_by_role("button", name="Reject")
    expect(reject).to_be_disabled()
    second.get_by_label("Reason for a rejection").fill("nobody won that much")
    reject.click()
    expect(second.get_by_text("Rejected.")).to_be_visible()
    expect(second.get_by_text("Nothing to approve")).to_be_visible()
    assert two.admin.credits(account_id=two.sam_id).available == before
    asker.goto(f"{two.url}/audit/?text=nobody%20won")
    expect(asker.get_by_role("button", name="approval rejected")).to_be_visible()


@pytest.mark.soak
def test_a_banned_node_is_pardoned(two: Two, asker: Page) -> None:
    node_id = two.real.start_agent(name="wrong-thrice").node_id
    _penalise(two, node_id)
    asker.goto(f"{two.url}/nodes/?id={node_id}")
    expect(asker.get_by_text("The node is banned").first).to_be_visible()
    axe(asker)
    asker.get_by_role("button", name="Pardon").click()
    asker.get_by_role("dialog").get_by_role("button", name="Pardon the node").click()
    expect(asker.get_by_text("wrong-thrice was pardoned.")).to_be_visible()
    expect(asker.get_by_text("The node is banned")).to_have_count(0)
    expect(asker.get_by_role("button", name="Pardon")).to_have_count(0)
    found = two.admin.nodes.get(node_id).reputation
    assert found is not None
    assert (found.banned_at_ms, found.recent_violations) == (None, 0)


def _penalise(two: Two, node_id: str) -> None:
    """Records results that were proven wrong, in jobs of two people, and failed tests."""
    store = open_store(two.real.hubs[0].settings.url, clock=SystemClock(), hub_id="test")

    def wrong(tx: Tx, account_id: str) -> None:
        tx.emit(actor="hub", action=REFUTED_ACTION, node_id=node_id, account_id=account_id)
        violations.notify_owner(tx, node_id)

    try:
        for number in range(VIOLATIONS_MAX):
            account_id = (two.sam_id, two.second_id)[number % 2]
            store.write_now(partial(wrong, account_id=account_id))
        for _ in range(PROBES_WRONG):
            store.write_now(lambda tx: tx.emit(actor="hub", action=PROBE_WRONG_ACTION, node_id=node_id))
    finally:
        store.close()
