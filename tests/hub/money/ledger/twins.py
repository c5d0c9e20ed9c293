"""The same hub twice, on SQLite and on PostgreSQL: the real services, given the same requests at the same times.

Clock and randomness are the test's, so both make the same ids, and their ledgers can be compared row by row, hashes
included. No loop runs: what a loop would do, the test does when it wants it done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Row, select

from computepool.core.money.pricing import Zone
from computepool.core.resources import NodeState
from computepool.hub.app import assemble, build_hub, open_store
from computepool.hub.context import Hub
from computepool.hub.db import dialect
from computepool.hub.db.money_tables import balances, transfers
from computepool.hub.db.session import Connection, Tx
from computepool.hub.db.tables import attempts, jobs as job_table
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.identity.idempotency import Remembered
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.queue import Queue
from computepool.hub.money import credits as money, holds, new_accounts
from computepool.hub.money.payouts import payout_rounds, payouts
from computepool.hub.observability.invariants import check_all
from computepool.hub.scheduling import leases
from computepool.hub.scheduling.dispatch import Dispatcher
from computepool.hub.settings import Settings
from computepool.hub.settlement import cancel, settle
from computepool.hub.settlement.verification import recheck_rows
from computepool.hub.submission import submit
from computepool.protocol.accounts import AccountRequest
from computepool.protocol.jobs.jobs import SubmitReply, SubmitRequest
from computepool.protocol.money.credits import TopUpReply, TopUpRequest
from computepool.protocol.money.payouts import PayoutRequest, PayoutView
from computepool.protocol.nodes.nodes import CompleteRequest, Report, signed_text
from computepool.protocol.tokens import b64, public_text
from computepool.testing.clock import FakeClock
from computepool.testing.factories import add_node, profile

T = TypeVar("T")
ADMIN = Principal(account_id="acc_admin", name="admin", roles=frozenset({"admin"}))
#: Enough that no job ever waits for room.
CORES = 10_000


@dataclass(frozen=True)
class Node:
    principal: NodePrincipal
    key: Ed25519PrivateKey
    region: str


class Twin:
    """One hub."""

    def __init__(self, url: str, folder: Path, *, clock: FakeClock | None = None, **settings: Any) -> None:
        self.clock = clock or FakeClock()
        self.settings = Settings(data_dir=folder, DATABASE_URL=url, **{"verify": "none"} | settings)
        self.hub: Hub = build_hub(self.settings, self.clock)
        self.nodes: list[Node] = []
        self._seen = 0
        self._looking = dialect.make_reader(url, 1)  # one for all restarts: an engine remembers its statements

    async def start(self) -> None:
        self.hub.store.start()
        await leases.on_boot(self.hub)

    async def stop(self) -> None:
        await self.hub.store.stop()

    def close(self) -> None:
        self._looking.dispose()

    async def restart(self) -> None:
        """A new hub on the same database; of its memory only the prices remain."""
        await self.stop()
        hub_id = f"{self.hub.process.hub_id}i"  # a hub draws a new one at every start
        store = open_store(self.settings.url, clock=self.clock, hub_id=hub_id)
        market = self.hub.money.market
        self.hub = assemble(self.settings, self.clock, store)
        self.hub.money.market = market
        self.hub.nodes.registry.fleet.set_prices(market)
        await self.start()

    def remembered(self, principal: Principal, route: str, *, key: str, body: object) -> Remembered:
        return Remembered(account_id=principal.account_id, route=route, key=key, request_hash=str(body), credential="c")

    # people and nodes

    async def account(self, name: str) -> Principal:
        request = AccountRequest(name=name, roles=["submitter", "provider"])
        remembered = self.remembered(ADMIN, "accounts", key=name, body=name)
        made = await new_accounts.create(self.hub, ADMIN, request, remembered=remembered)
        return Principal(account_id=made.id, name=name, roles=frozenset(made.roles))

    async def node(self, owner: Principal, *, seed: bytes, region: str) -> Node:
        key = Ed25519PrivateKey.from_private_bytes(seed)
        public = public_text(key)
        account = owner.account_id
        node_id = f"node_{len(self.nodes)}"
        await self.hub.store.write(lambda tx: add_node(tx, id=node_id, account_id=account, public_key=public))
        node = Node(NodePrincipal(node_id=node_id, owner=account, public_key=public), key, region)
        self.nodes.append(node)
        return node

    def set_spot(self, zone: Zone, price: int) -> None:
        self.hub.money.market.spots[zone] = price
        self.hub.nodes.registry.fleet.set_prices(self.hub.money.market)

    # what happens to jobs

    async def submit(self, who: Principal, request: SubmitRequest, *, key: str) -> SubmitReply:
        remembered = self.remembered(who, "jobs", key=key, body=request.model_dump_json())
        return await submit.submit(self.hub, who, request, remembered=remembered)

    async def lease(self, node: Node) -> list[Row[*tuple[Any, ...]]]:
        """The dispatcher's own round, with this node alone in the pool. Returns the new attempts."""
        hub, id_ = self.hub, node.principal.node_id
        hub.jobs.queue = Queue(hub.store, hub.clock, hub.jobs.specs, most=hub.settings.backlog_max)
        described = profile(name=id_, cores=CORES, ram_mb=10**6, disk_mb=10**6, region=node.region)
        session = hub.nodes.registry.on_node_seen(
            described.node_profile(node_id=id_, owner=node.principal.owner),
            boot_id="boot",
            state=NodeState.ACTIVE,
            cool_off_until_ms=0,
            now_ms=hub.now_ms(),
        )
        session.claims, session.polls, session.polled_ms = True, 1, hub.now_ms()
        hub.nodes.registry.refresh(session, hub.now_ms())
        dispatcher = Dispatcher(hub)
        try:
            await hub.jobs.queue.load_all()
            await dispatcher.rounds()
            given = list(session.attempts)
        finally:
            hub.nodes.registry.on_node_lost(id_)
        rows = await hub.store.read(lambda connection: _attempts(connection, given))
        return sorted(rows, key=lambda row: row.id)

    async def report(self, node: Node, *reports: Report) -> list[str]:
        text = signed_text(reports)
        request = CompleteRequest(reports=list(reports), signature=b64(node.key.sign(text)))
        reply = await settle.complete(self.hub, node.principal, request)
        return [answer.verdict.value for answer in reply.answers]

    async def cancel(self, who: Principal, job_id: str) -> str:
        view = await cancel.cancel(self.hub, who, job_id)
        return view.state.value

    async def expire(self) -> None:
        await leases.expire_overdue(self.hub)

    async def prove_wrong(self, job_id: str) -> int:
        """Returns the amount taken back; nothing the second time."""

        def unit(tx: Tx) -> int:
            job = job_rows.lock_jobs(tx, [job_id])[job_id]
            if not recheck_rows.change_verdict(tx, job_id, before=["unchecked"], after="refuted"):
                return 0
            return holds.take_back(tx, job, attempt=recheck_rows.accepted_attempt(tx.connection, job))

        return await self.hub.store.write(unit)

    # what people do with money

    async def top_up(self, who: Principal, amount: int, *, source: str, key: str) -> TopUpReply:
        request = TopUpRequest(account=who.account_id, amount=amount, source=source)
        remembered = self.remembered(ADMIN, "topups", key=key, body=request.model_dump_json())
        return await money.top_up(self.hub, ADMIN, request, remembered=remembered)

    async def mature(self) -> None:
        """Returns nothing, because two at once may share the work in any way."""
        await money.mature(self.hub)

    async def ask_payout(self, who: Principal, amount: int, *, key: str) -> PayoutView:
        request = PayoutRequest(amount=amount, upi="someone@bank")
        remembered = self.remembered(who, "payouts", key=key, body=request.model_dump_json())
        return await payouts.request(self.hub, who, request, remembered=remembered)

    async def send_payouts(self) -> int:
        return await payout_rounds.run(self.hub)

    async def end_payout(self, payout_id: str, how: str, *, key: str) -> str:
        """Advance or end it in one of the operator's ways. Returns the state afterwards."""
        remembered = self.remembered(ADMIN, how, key=key, body=payout_id)
        if how == "approve":
            view = await payouts.approve(self.hub, ADMIN, payout_id, remembered=remembered)
        elif how == "paid":
            view = await payouts.mark_paid(
                self.hub, ADMIN, payout_id, reference=f"utr {payout_id}", remembered=remembered
            )
        elif how == "failed":
            view = await payouts.mark_failed(self.hub, ADMIN, payout_id, detail="no", remembered=remembered)
        else:
            view = await payouts.reject(self.hub, ADMIN, payout_id, detail="no", remembered=remembered)
        return view.state

    # looking

    def job_states(self) -> dict[str, tuple[str, int | None, int | None]]:
        """State, accepted attempt and charge of every job."""
        columns = (job_table.c.id, job_table.c.state, job_table.c.accepted_attempt, job_table.c.charge)
        rows = self.hub.store.read_now(lambda connection: connection.execute(select(*columns)).all())
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def balances(self) -> dict[str, int]:
        """The non-zero balances."""
        rows = self.hub.store.read_now(lambda connection: connection.execute(select(balances)).all())
        return {row.account: row.balance for row in rows if row.balance}

    def new_transfers(self) -> Sequence[Row[*tuple[Any, ...]]]:
        """Those since the last call."""
        wanted = select(transfers).where(transfers.c.seq > self._seen).order_by(transfers.c.seq)
        rows = self.hub.store.read_now(lambda connection: connection.execute(wanted).all())
        self._seen = rows[-1].seq if rows else self._seen
        return rows

    def broken(self) -> list[str]:
        with self._looking.begin() as connection:
            return check_all(connection)


def _attempts(connection: Connection, ids: list[str]) -> Sequence[Row[*tuple[Any, ...]]]:
    return connection.execute(select(attempts).where(attempts.c.id.in_(ids))).all()


class Twins:
    """All hubs, usually two. Each gets every request, and they must answer alike."""

    def __init__(self, both: Sequence[Twin]) -> None:
        self.both = both

    async def do(self, action: Callable[[Twin], Awaitable[T]]) -> T:
        answers: list[Any] = []
        for twin in self.both:
            try:
                answers.append(await action(twin))
            except Exception as error:  # noqa: BLE001 - an answer like any other
                answers.append(error)
        kinds = [repr(answer) if isinstance(answer, Exception) else answer for answer in answers]
        assert all(kind == kinds[0] for kind in kinds), kinds
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def advance(self, ms: int) -> None:
        for twin in self.both:
            twin.clock.advance(ms)

    @property
    def now_ms(self) -> int:
        return self.both[0].clock.now_ms()

    def look(self, *, closely: bool = False) -> Twin:
        """Check that the hubs are alike and break no rule, and return one. `closely`: check the rules on all of them."""
        pictures = [(list(map(tuple, twin.new_transfers())), twin.job_states(), twin.balances()) for twin in self.both]
        for other in pictures[1:]:
            assert other == pictures[0]
        broken = [sentence for twin in self.both[: None if closely else 1] for sentence in twin.broken()]
        assert not broken, broken
        return self.both[0]
