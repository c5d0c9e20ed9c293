"""Queries of the ledger on both databases: statements, periods, maturing, and who lends and borrows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from computepool.core.ids import make_id
from computepool.core.money import ledger as legs
from computepool.core.money.ledger import FEES, PROMO, Kind, Leg, Split
from computepool.hub.app import open_store
from computepool.hub.db.session import Connection, Store, Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.money import booking, ledger_rows
from computepool.protocol.jobs.filters import StatementFilter
from computepool.testing.clock import FakeClock
from computepool.testing.factories import add_account, add_attempt, add_jobs, add_node
from tests.hub.db.test_plans import check, explained

EVERYTHING = StatementFilter()


def give(tx: Tx, account: str, amount: int) -> None:
    booking.post(tx, f"grant:{account}:{amount}", legs.grant(account, amount))


def pay(tx: Tx, key: str, *, payer: str, owner: str, amount: int) -> None:
    """Hold and settle at once, with a fee of a fifth."""
    booking.post(tx, f"hold:{key}", legs.hold(payer, amount=amount, earned=0), job_id=key)
    parts = Split(pay=amount - amount // 5, fee=amount // 5, refund=0)
    booking.post(
        tx, f"settle:{key}", legs.settle(payer, owner_id=owner, parts=parts, earned=0), job_id=key, ref=f"{key}-1"
    )


@pytest.fixture
def store(url: str, clock: FakeClock) -> Iterator[Store]:
    made = open_store(url, clock=clock, hub_id="hub")
    yield made
    made.close()


@pytest.fixture
def history(store: Store, clock: FakeClock) -> Store:
    """10 credits to each of two; then ann pays bob at 1 000, 2 000 … 5 000 ms."""
    for name in ("ann", "bob"):
        store.write_now(lambda tx, name=name: give(tx, name, 10_000))  # type: ignore[misc]
    for number in range(1, 6):
        clock.advance(1_000)
        store.write_now(
            lambda tx, number=number: pay(tx, f"j{number}", payer="ann", owner="bob", amount=100 * number)  # type: ignore[misc]
        )
    return store


def shown(store: Store, account: str, wanted: StatementFilter = EVERYTHING, **page: Any) -> list[tuple[str, int]]:
    options = {"before": None, "limit": 100} | page
    rows = store.read_now(lambda c: ledger_rows.statement(c, account, wanted, **options))
    assert [row.seq for row in rows] == sorted({row.seq for row in rows}, reverse=True)
    return [(row.kind, row.amount) for row in rows]


def test_a_statement_lists_every_transfer_once(history: Store) -> None:
    assert shown(history, "bob") == [*(("pay", 80 * number) for number in range(5, 0, -1)), ("grant", 10_000)]
    mine = shown(history, "ann")
    assert len(mine) == 1 + 5 * 3  # a hold moves between two accounts of hers, and is one transfer
    assert shown(history, "nobody") == []


def test_pages_follow_each_other_without_gap_or_overlap(history: Store) -> None:
    whole = history.read_now(lambda c: ledger_rows.statement(c, "ann", EVERYTHING, before=None, limit=100))
    before: int | None = None
    for start in range(0, len(whole) + 3, 3):
        wanted = {"account_id": "ann", "filters": EVERYTHING, "before": before, "limit": 3}
        page = history.read_now(partial(ledger_rows.statement, **wanted))
        assert [row.seq for row in page] == [row.seq for row in whole[start : start + 3]]
        before = page[-1].seq if page else None


def test_a_statement_can_be_filtered(history: Store, clock: FakeClock) -> None:
    start = clock.now_ms() - 5_000
    assert shown(history, "ann", StatementFilter(kinds=("fee",))) == [("fee", 20 * n) for n in range(5, 0, -1)]
    late = StatementFilter(since_ms=start + 4_000)
    assert shown(history, "bob", late) == [("pay", 400), ("pay", 320)]
    assert shown(history, "bob", StatementFilter(since_ms=start + 2_000, until_ms=start + 4_000)) == [
        ("pay", 240),
        ("pay", 160),
    ]
    assert shown(history, "bob", StatementFilter(since_ms=start + 5_001)) == []
    assert shown(history, "bob", StatementFilter(until_ms=start)) == []


def test_sums_show_gains_and_losses_by_kind(history: Store) -> None:
    totals = history.read_now(lambda c: ledger_rows.sums(c, "ann", EVERYTHING))
    assert [tuple(total.values()) for total in totals] == [
        ("fee", 5, 300, 0, 300),
        ("grant", 1, 10_000, 10_000, 0),
        ("hold", 5, 1_500, 0, 0),
        ("pay", 5, 1_200, 0, 1_200),
    ]


def test_the_first_transfer_at_a_time(history: Store, clock: FakeClock) -> None:
    start = clock.now_ms() - 5_000
    numbers = {
        span: history.read_now(lambda c, span=span: ledger_rows.first_at(c, start + span))  # type: ignore[misc]
        for span in (-1, 0, 1, 1_000, 1_001, 5_000, 5_001)
    }
    assert numbers == {-1: 1, 0: 1, 1: 3, 1_000: 3, 1_001: 6, 5_000: 15, 5_001: 18}


def test_an_empty_ledger_answers_every_query(store: Store) -> None:
    assert store.read_now(lambda c: ledger_rows.first_at(c, 5)) == 1
    assert shown(store, "ann", StatementFilter(since_ms=1, until_ms=2)) == []
    assert store.read_now(lambda c: ledger_rows.get_balances(c, "ann")) == dict.fromkeys(
        ledger_rows.balance_names("ann"), 0
    )
    assert store.read_now(ledger_rows.earners) == []
    assert store.read_now(lambda c: ledger_rows.last_matured(c, "ann")) == 0
    assert store.read_now(lambda c: ledger_rows.next_earned(c, "ann", after=0)) is None


def test_earnings_mature_up_to_a_transfer(history: Store) -> None:
    assert history.read_now(ledger_rows.earners) == ["bob"]
    assert history.read_now(lambda c: ledger_rows.earners_between(c, first=7, before=8)) == ["bob"]
    assert history.read_now(lambda c: ledger_rows.earners_between(c, first=8, before=10)) == []
    amount, last = history.read_now(lambda c: ledger_rows.sum_earned(c, "bob", after=0, before=9))
    assert (amount, last) == (80 + 160, 7)
    history.write_now(lambda tx: booking.post(tx, "mature:bob:0", legs.mature("bob", amount), ref=str(last)))
    assert history.read_now(lambda c: ledger_rows.last_matured(c, "bob")) == 7
    upcoming = history.read_now(lambda c: ledger_rows.next_earned(c, "bob", after=7))
    assert upcoming is not None
    assert (upcoming.seq, upcoming.amount) == (10, 240)
    rest = history.read_now(lambda c: ledger_rows.sum_earned(c, "bob", after=7, before=10**9))
    assert rest == (240 + 320 + 400, 16)
    assert history.read_now(lambda c: ledger_rows.sum_earned(c, "bob", after=16, before=10**9)) == (0, 0)


def test_credits_moved_by_account(history: Store, clock: FakeClock) -> None:
    def since(connection: Connection) -> Any:
        start = ledger_rows.first_at(connection, clock.now_ms() - 1_000)
        return ledger_rows.credits_moved(connection, since=start)

    assert history.read_now(since) == ({"bob": 320 + 400}, {"ann": 400 + 500})


def test_legs_and_links_of_one_event(history: Store) -> None:
    rows = history.read_now(lambda c: ledger_rows.by_keys(c, ["settle:j2", "hold:j2", "settle:none"]))
    assert [(row.kind, row.seq) for row in rows] == [("hold", 6), ("pay", 7), ("fee", 8)]
    found = history.read_now(lambda c: ledger_rows.hashes(c, [row.seq - 1 for row in rows]))
    for row in rows:
        assert legs.chain_hash(found[row.seq - 1], row._asdict()) == row.hash
    assert found[0] == legs.GENESIS


@pytest.fixture
def worked(store: Store, clock: FakeClock) -> dict[str, str]:
    """Jobs of ann: two on bob's node (5 s and 7 s), one on her own, one that waits."""
    names: dict[str, str] = {}

    def unit(tx: Tx) -> None:
        ann, bob = add_account(tx, name="ann"), add_account(tx, name="bob")
        names.update(ann=ann, bob=bob)
        own, lent = add_node(tx, account_id=ann), add_node(tx, account_id=bob)
        ids = add_jobs(tx, 4, account_id=ann)
        for job_id, node_id, owner, ms in zip(ids, (lent, lent, own), (bob, bob, ann), (5_000, 7_000, 1), strict=False):
            attempt = add_attempt(
                tx, job_id, node_id=node_id, owner_id=owner, zone_tier="cpu", zone_region="in",
                leased_at_ms=tx.now_ms + 40, billed_ms=ms, charge=0,
            )  # fmt: skip
            assert attempt.endswith("-1")
            tx.connection.execute(
                job_rows.jobs.update()
                .where(job_rows.jobs.c.id == job_id)
                .values(accepted_attempt=1, state="succeeded", started_at_ms=tx.now_ms, finished_at_ms=tx.now_ms + ms)
            )

    store.write_now(unit)
    return names


def test_hours_lent_and_borrowed(store: Store, worked: dict[str, str]) -> None:
    since_id = make_id("job", 0, bytes(10))
    lent, borrowed = store.read_now(lambda c: ledger_rows.time_moved(c, since_id=since_id))
    assert lent == {worked["bob"]: (12_000, 2)}
    assert borrowed == {worked["ann"]: (12_000, 2)}
    assert store.read_now(lambda c: ledger_rows.time_moved(c, since_id="job_z")) == [{}, {}]
    names = store.read_now(lambda c: account_rows.get_names(c, [worked["ann"], worked["bob"], "gone"]))
    assert names == {worked["ann"]: "ann", worked["bob"]: "bob"}


def test_quotes_use_past_run_and_wait_times(store: Store, worked: dict[str, str]) -> None:
    def times(**by: str | None) -> list[int]:
        asked: dict[str, Any] = {"spec_digest": None, "name": None} | by
        return store.read_now(lambda c: ledger_rows.run_times(c, worked["ann"], among=100, limit=100, **asked))

    assert sorted(times(name="true")) == [1, 5_000, 7_000]
    assert times(name="other") == []
    assert times(spec_digest="0" * 64) == []

    def waits(*zones: tuple[str, str]) -> list[int]:
        return store.read_now(lambda c: ledger_rows.waits(c, zones, since_id="job_", among=100))

    assert waits(("cpu", "in")) == [40, 40, 40]
    assert waits(("cpu", "us")) == []


FILTERED = StatementFilter(kinds=("pay",), since_ms=1, until_ms=2)
PLANS: dict[str, tuple[Callable[[Connection], Any], str]] = {
    "statement": (lambda c: ledger_rows.statement(c, "a", EVERYTHING, before=9, limit=9), "ix_transfers_debit"),
    "its other side": (lambda c: ledger_rows.statement(c, "a", EVERYTHING, before=9, limit=9), "ix_transfers_credit"),
    "filtered": (lambda c: ledger_rows.statement(c, "a", FILTERED, before=None, limit=9), "ix_transfers_credit"),
    "sums": (lambda c: ledger_rows.sums(c, "a", FILTERED), "ix_transfers_debit"),
    "one event": (lambda c: ledger_rows.by_keys(c, ["k"]), "sqlite_autoindex_transfers_2"),
    "balances": (lambda c: ledger_rows.get_balances(c, "a"), "sqlite_autoindex_balances_1"),
    "earners": (lambda c: ledger_rows.earners_between(c, first=1, before=9), "sqlite_autoindex_transfers_1"),
    "matured": (lambda c: ledger_rows.last_matured(c, "a"), "ix_transfers_debit"),
    "earned": (lambda c: ledger_rows.sum_earned(c, "a", after=1, before=9), "ix_transfers_credit"),
    "next to mature": (lambda c: ledger_rows.next_earned(c, "a", after=1), "ix_transfers_credit"),
    "hours": (lambda c: ledger_rows.time_moved(c, since_id="j"), "sqlite_autoindex_"),
    "run times": (
        lambda c: ledger_rows.run_times(c, "a", spec_digest="d", name=None, among=9, limit=9),
        "ix_jobs_account",
    ),
    "waits": (lambda c: ledger_rows.waits(c, [("t", "r")], since_id="j", among=9), "sqlite_autoindex_attempts_1"),
}


@pytest.mark.parametrize("name", PLANS)
def test_questions_use_their_index(sqlite_url: str, name: str) -> None:
    ask, index = PLANS[name]
    with explained(sqlite_url) as (connection, plans):
        ask(connection)
    # Scanning a subquery once, after the indexes selected its rows, is not a table scan.
    check([line for line in plans if "SCAN anon" not in line and "SCAN (subquery" not in line], index)
    assert not any("SCAN transfers" in line for line in plans), plans


def test_credits_moved_reads_only_the_numbers_since(sqlite_url: str) -> None:
    with explained(sqlite_url) as (connection, plans):
        ledger_rows.credits_moved(connection, since=5)
    assert all("(seq>?)" in line for line in plans if "transfers" in line), plans


def test_transfers_between_pool_accounts_are_in_no_statement(store: Store) -> None:
    store.write_now(lambda tx: booking.post(tx, "odd", [Leg(PROMO, FEES, 5, Kind.TOP_UP)]))
    assert shown(store, "ann") == []
