"""The cost of money: settlements per second alone, and the same jobs end to end with and without a ledger."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.processes import agent_process, hub_process
from bench.table import Figure
from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import Economy
from computepool.hub.app import build_hub
from computepool.hub.clock import SystemClock
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.identity.idempotency import Remembered
from computepool.hub.main import check
from computepool.hub.money import new_accounts
from computepool.hub.settings import Settings
from computepool.hub.settlement import settle
from computepool.hub.submission import submit
from computepool.protocol.jobs.jobs import Item, SubmitRequest
from computepool.protocol.nodes.nodes import CompleteRequest, Report, signed_text
from computepool.protocol.tokens import b64, public_text
from computepool.sdk import connect
from computepool.testing import factories

FUNCTIONS = 5_000
SETTLEMENTS = 20_000
#: Alternating with and without money, so that other load affects both.
ROUNDS = 2
_NODES = 8
_REPORTS = 100  #: in one request, as from a node with short jobs
_ITEMS = 1_000
_RICH = 1_000_000_000 * CREDIT
_RUNTIME_MS = 1_000


def noop(_number: int) -> None:
    return None


# settlements


class _Node:
    def __init__(self, tx: Tx) -> None:
        self.key = Ed25519PrivateKey.generate()
        public, owner = public_text(self.key), factories.add_account(tx)
        node_id = factories.add_node(tx, account_id=owner, public_key=public)
        self.principal = NodePrincipal(node_id=node_id, owner=owner, public_key=public)

    def request(self, attempts: list[str]) -> CompleteRequest:
        reports = [
            Report(
                attempt_id=attempt,
                outcome=Outcome.SUCCEEDED,
                reason=Reason.COMPLETED,
                result="null",
                ran_ms=_RUNTIME_MS,
            )
            for attempt in attempts
        ]
        text = signed_text(reports)
        return CompleteRequest(reports=reports, signature=b64(self.key.sign(text)))


def _submitter(hub: Hub, tx: Tx) -> Principal:
    account = factories.add_account(tx)
    new_accounts.grant_credits(tx, account, amount=hub.settings.signup_grant, table=hub.money.market.table)
    return Principal(account_id=account, name=account, roles=frozenset({"submitter"}))


def _lease(hub: Hub, tx: Tx, job_id: str, *, node: _Node) -> str:
    attempt = factories.add_attempt(
        tx,
        job_id,
        node_id=node.principal.node_id,
        owner_id=node.principal.owner,
        price=8 * CREDIT,
        price_version=hub.money.market.table.version,
        leased_at_ms=tx.now_ms - 2 * _RUNTIME_MS,
    )
    tx.emit(actor="hub", action="job.leased", job_id=job_id, before="queued", after="leased")
    return attempt


async def _leased(hub: Hub, submitter: Principal, nodes: list[_Node]) -> list[CompleteRequest]:
    """Jobs with a hold, leased at a price and ready to be reported: everything but the settlement."""
    requests: list[CompleteRequest] = []
    for start in range(0, SETTLEMENTS, _ITEMS):
        items = [Item()] * min(_ITEMS, SETTLEMENTS - start)
        request = SubmitRequest(spec=factories.spec(), items=items, verify="none")
        nobody = Remembered(account_id=submitter.account_id, route="/jobs", key="", request_hash="")
        reply = await submit.submit(hub, submitter, request, remembered=nobody)
        for number in range(0, len(items), _REPORTS):
            node = nodes[len(requests) % len(nodes)]
            chosen = reply.job_ids[number : number + _REPORTS]

            def lease(tx: Tx, chosen: list[str] = chosen, node: _Node = node) -> list[str]:
                return [_lease(hub, tx, job_id, node=node) for job_id in chosen]

            requests.append(node.request(await hub.store.write(lease)))
    return requests


async def _settle() -> float:
    with tempfile.TemporaryDirectory(prefix="computepool-bench-") as folder:
        settings = Settings(data_dir=Path(folder), DATABASE_URL="", signup_grant=_RICH)
        hub = build_hub(settings, SystemClock())
        nodes, submitter = hub.store.write_now(lambda tx: ([_Node(tx) for _ in range(_NODES)], _submitter(hub, tx)))
        hub.store.start()
        requests = await _leased(hub, submitter, nodes)
        began = time.perf_counter()
        await asyncio.gather(
            *(
                settle.complete(hub, nodes[number % _NODES].principal, request)
                for number, request in enumerate(requests)
            )
        )
        took = time.perf_counter() - began
        await hub.store.stop()
        assert not (broken := check(settings)), broken
        return SETTLEMENTS / took


# end to end


def _functions(economy: Economy) -> float:
    """Runs on another account's node, so that with a market every job has a hold, a payment and a refund."""
    with (
        hub_process(log_level="warning", economy=economy.value, signup_grant=_RICH) as hub,
        agent_process(hub),
        connect(hub.url, hub.first.admin_key) as admin,
    ):
        account = admin.accounts.create("bench")
        key = admin.keys.create("bench", account_id=account.id).key
        with connect(hub.url, key) as pool:
            list(pool.map(noop, range(min(500, FUNCTIONS)), progress=False, chunksize=1))
            began = time.perf_counter()
            results = list(pool.map(noop, range(FUNCTIONS), progress=False, chunksize=1))
            assert results == [None] * FUNCTIONS
            return FUNCTIONS / (time.perf_counter() - began)


def run() -> list[Figure]:
    settled = asyncio.run(_settle())
    rates: dict[Economy, list[float]] = {Economy.NONE: [], Economy.MARKET: []}
    for _ in range(ROUNDS):
        for economy, found in rates.items():
            found.append(_functions(economy))
    without, with_money = (statistics.median(rates[economy]) for economy in (Economy.NONE, Economy.MARKET))
    return [
        Figure("settlements, batched, durable on SQLite", settled, "/s", target=3_000),
        Figure("no-op functions on another account's node, free", without, "/s"),
        Figure("no-op functions on another account's node, paid", with_money, "/s"),
        Figure("… as a share of the rate without money", 100 * with_money / without, "%", target=80),
    ]
