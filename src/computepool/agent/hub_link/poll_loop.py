"""The conversation with the hub: requests work, renews leases, reports what runs, and stops it in time.

Two requests run side by side: the long poll, which is also a heartbeat, and a short heartbeat when something changed
that people wait to see. Reports have a loop of their own (reporter.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar, dataclass

from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import AttemptResult, failed_result, returned_result
from computepool.agent.execution.attempts import Attempt, AttemptTable, Stop
from computepool.agent.execution.executor import Executor
from computepool.agent.hardware.benchmark import Benchmark
from computepool.agent.hub_link.admission import Gatekeeper
from computepool.agent.hub_link.hub_client import IPV4_ONLY, IPV6_ONLY, Backoff
from computepool.agent.hub_link.keyring import Keyring
from computepool.agent.hub_link.reporter import Reporter
from computepool.agent.network.nearby import Nearby
from computepool.agent.owner.manifest import manifest
from computepool.agent.owner.owner_console import Watcher
from computepool.agent.sandbox.fence import Fence
from computepool.agent.storage.result_delivery import ResultDelivery
from computepool.core.backoff import double
from computepool.core.errors import ComputePoolError, Unauthenticated
from computepool.core.jobs.lifecycle import Reason
from computepool.core.resources import NodeState
from computepool.protocol.nodes.nodes import HOLDING_MAX, NextReply, NextRequest
from computepool.protocol.nodes.profile import MESH_FIELD, Profile
from computepool.protocol.nodes.software import Cached

_log = logging.getLogger(__name__)

#: The shortest wait to request: an immediate reply is then early, and delays the next poll a little.
_WAIT_MIN_MS = 250
#: The pause after one early reply without work; it doubles with each further one.
_PAUSE_MIN_S = 0.005

#: One 401 may come from a clock that jumped, which the client corrects. Two in a row are final.
UNAUTHENTICATED_MAX = 2
_IDLE_TICK_S = 1.0
#: How long after a change of the owner's rules forbidden jobs are given back without blame.
RULES_CHANGED_S = 60.0
#: Permissions are logged once per kind of job; after so many kinds, all are logged again.
_LOGGED_MAX = 512


@dataclass(slots=True)
class Lease:
    """The lease as of the hub's last reply. Before the first reply nothing is held and nothing can be lost."""

    interval_ms: int = 10_000
    lease_ms: int = 60_000
    fence_ms: int = 10_000
    renewed_at: float = 0.0  #: boot time at which the last acknowledged renewal was sent

    def timeout_s(self) -> float:
        return max(0, self.lease_ms - self.fence_ms) / 1000

    def deadline(self) -> float:
        """When the launchers end jobs if this loop did not: later than it would, and before the hub does."""
        return self.renewed_at + max(0, self.lease_ms - self.fence_ms / 2) / 1000


@dataclass(eq=False)
class NodeLoop:
    node: Node
    gatekeeper: Gatekeeper
    profile: Profile
    _: KW_ONLY
    table: AttemptTable
    executor: Executor
    reporter: Reporter
    keyring: Keyring
    benchmark: Benchmark
    result_delivery: ResultDelivery
    fence: Fence
    nearby: Nearby
    watcher: Watcher
    paused: InitVar[bool]

    def __post_init__(self, paused: bool) -> None:
        self._boot_id = self.node.clock.entropy(12).hex()
        self._backoff = Backoff(self.node.clock, self.node.limits)
        self._profile_due = True
        self._cached: Cached | None = None  #: as it was sent or is to be sent
        self._cached_due = False
        self._rules_changed_at = -RULES_CHANGED_S
        self._logged: set[tuple[str, str]] = set()
        self._heartbeat_due = asyncio.Event()
        self._work = asyncio.Event()
        self._drained = asyncio.Event()
        self._address_changed = asyncio.Event()
        self._address = ""  #: from which the hub sees this node
        self._poll: asyncio.Task[NextReply] | None = None
        self._refusals = 0  #: replies in a row with grants that were refused
        self._early = 0  #: replies in a row that came early and without work
        self._progress_sent_at = 0.0
        self.lease = Lease()
        self.local_state = NodeState.PAUSED if paused else NodeState.ACTIVE
        self.hub_state = NodeState.ACTIVE
        self.hub_status = ""  #: the node's status in the hub's last reply
        self.last_contact: float | None = None
        self.last_error = ""
        self.table.hold(self.reporter.load())

    # ------------------------------------------------------------ state
    @property
    def state(self) -> NodeState:
        """The stricter of the states set here and at the hub."""
        for state in (NodeState.DRAINING, NodeState.PAUSED):
            if state in (self.local_state, self.hub_state):
                return state
        return NodeState.ACTIVE

    def change_profile(self, fields: Mapping[str, object]) -> None:
        """Describe this node anew to the hub, with the next poll."""
        self.profile = self.profile.model_copy(update=dict(fields))
        self._profile_due = True
        if self._poll is not None:
            self._poll.cancel()

    def change_cached(self, cached: Cached) -> None:
        """Tell the hub with the next poll what is cached."""
        self._cached = cached
        self._cached_due = True

    def set_local_state(self, state: NodeState) -> None:
        before, self.local_state = self.state, state
        self._on_state_change(before)

    def _on_state_change(self, before: NodeState) -> None:
        if self.state is before:
            return
        _log.info("this node is now %s", self.state.value)
        self.watcher.on_state_change(self.state)
        if self.state is NodeState.DRAINING:
            self.executor.give_back(Reason.NODE_DRAINING)
        self._work.set()
        self._heartbeat_due.set()
        # Tell the hub now. Grants on their way are not lost: the hub repeats those that the node does not list.
        if self._poll is not None:
            self._poll.cancel()

    # ------------------------------------------------------------ running
    async def run(self) -> None:
        """Run until drained. Raises Unauthenticated if the hub no longer knows this node."""
        loops = [
            self._poll_loop(),
            self._heartbeat_loop(),
            self._tick_loop(),
            self._address_loop(),
            self._drain_watch(),
        ]
        tasks = [asyncio.create_task(loop) for loop in loops]
        finished = asyncio.create_task(self._drained.wait())
        try:
            done, _ = await asyncio.wait([*tasks, finished], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, finished):
                task.cancel()
            await asyncio.gather(*tasks, finished, return_exceptions=True)

    async def wind_down(self) -> None:
        """Give back what has not started, stop what runs, and report it while there is time."""
        clock, limits, client = self.node.clock, self.node.limits, self.node.client
        self.local_state = NodeState.DRAINING
        self.executor.give_back(Reason.NODE_DRAINING)
        deadline = clock.steady() + limits.checkpoint_grace_s  # for jobs that use checkpoints to make one more
        while clock.steady() < deadline and self.executor.ask_to_save():
            await asyncio.sleep(limits.tick_s)
            self.executor.tick()
        for head in self.executor.heads():
            self.executor.stop(head, Stop.DRAINING)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.stop_flush_s):
                # Receive grants that were in flight when the last poll was cancelled.
                sent_at = clock.boot_time()
                with contextlib.suppress(ComputePoolError):
                    self._handle(await client.next(self._request(wait_ms=0, claim=False)), sent_at)
                await self.executor.wait_until_idle()
                await self.reporter.wait_until_flushed()
        self.reporter.spill()
        # Tell the hub that the node goes offline, so that it need not wait for the lease to end.
        with contextlib.suppress(TimeoutError, ComputePoolError):
            async with asyncio.timeout(limits.goodbye_s):
                await client.next(self._request(wait_ms=0, claim=False, stopping=True))

    async def _drain_watch(self) -> None:
        while True:
            await self.executor.wait_until_idle()
            if self.state is NodeState.DRAINING:
                await self.reporter.wait_until_flushed()
                if not self.table.held:
                    self._drained.set()
                    return
            await asyncio.sleep(self.node.limits.tick_s)

    # ------------------------------------------------------------ the long poll
    async def _poll_loop(self) -> None:
        refusals = 0
        wait_ms = 0  # The first poll returns at once: its reply contains the hub's intervals.
        while True:
            sent_at = self.node.clock.boot_time()
            self._renew_profile()
            request = self._request(wait_ms=wait_ms, claim=self.state is NodeState.ACTIVE)
            try:
                reply = await self._park(request)
            except Unauthenticated as error:
                refusals += 1
                if refusals >= UNAUTHENTICATED_MAX:
                    raise Unauthenticated(
                        f"The hub no longer accepts this node ({error.detail}) If it was removed by mistake, enrol it "
                        "again with a new code: pool node start --code CODE."
                    ) from error
                continue
            except ComputePoolError as error:
                if error.field == MESH_FIELD and self.last_contact is None:
                    raise  # At start-up the owner reads it; later it may pass.
                self.last_error = error.detail
                delay_s = self._backoff.delay_s(error)
                _log.warning("retrying the hub in %.1f s: %s", delay_s, error.detail)
                await asyncio.sleep(delay_s)
                continue
            refusals = 0
            if reply is None:  # cancelled, because the state changed
                continue
            self._backoff.reset()
            if request.profile is self.profile:
                self._profile_due = False
            if request.cached is not None and request.cached is self._cached:
                self._cached_due = False
            await self.keyring.learn_key_of(reply.token)
            if not self._handle(reply, sent_at):
                await asyncio.sleep(self.node.limits.idle_pause_s)
            wait_ms = max(_WAIT_MIN_MS, min(60_000, reply.interval_ms))
            await self._throttle(reply, sent_at, wait_ms=request.wait_ms)

    async def _park(self, request: NextRequest) -> NextReply | None:
        self._poll = asyncio.ensure_future(self.node.client.next(request))
        try:
            return await self._poll
        except asyncio.CancelledError:
            if self._poll.cancelled() and not _is_cancelling():
                return None
            raise
        finally:
            self._poll = None

    async def _throttle(self, reply: NextReply, sent_at: float, *, wait_ms: int) -> None:
        """Wait before the next poll if there is work to do, or if the hub replied early with nothing."""
        if self._refusals:
            delay_s = double(self.node.limits.retry_base_s, self._refusals, most=self.node.limits.retry_max_s)
            await asyncio.sleep(self.node.clock.fraction() * delay_s)
            return
        if reply.grants:
            self._early = 0
            await self._leave_time_to_jobs()
            return
        early = (self.node.clock.boot_time() - sent_at) * 1000 < wait_ms / 4
        if not early or reply.cancel or reply.reregister:
            self._early = 0
            return
        # One early reply brings news, for example a request to measure this machine; many in a row come from a hub that
        # does not wait. The pause delays jobs that are submitted meanwhile, so it begins short.
        pause_s = double(_PAUSE_MIN_S, self._early, most=self.node.limits.idle_pause_s)
        self._early += 1
        await asyncio.sleep(pause_s)

    async def _leave_time_to_jobs(self) -> None:
        """The next request costs agent and hub half a millisecond, in which a short job can run and be reported."""
        if self.executor.waiting:
            await asyncio.sleep(self.node.limits.busy_gap_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.node.limits.short_job_s):
                await self.executor.wait_until_idle()
                await self.reporter.wait_until_flushed()

    def _renew_profile(self) -> None:
        """With the measured speed of the connection, if that has changed."""
        down, up = self.node.client.speed.advertise()
        if (down, up) != (self.profile.down_mbps, self.profile.up_mbps):
            self.profile = self.profile.model_copy(update={"down_mbps": down, "up_mbps": up})
            self._profile_due = True

    def _request(self, *, wait_ms: int, claim: bool, stopping: bool = False) -> NextRequest:
        return NextRequest(
            boot_id=self._boot_id,
            holding=list(self.table.held)[:HOLDING_MAX],
            running=self.executor.running_attempts(),
            wait_ms=wait_ms,
            claim=claim,
            stopping=stopping,
            rules=self.gatekeeper.rules.digest,
            profile=self.profile if self._profile_due else None,
            cached=self._cached if self._profile_due or self._cached_due else None,
        )

    # ------------------------------------------------------------ replies
    def _handle(self, reply: NextReply, sent_at: float) -> bool:
        """Apply a reply; False if that failed. The hub then repeats grants that were not started."""
        fresh = [grant.attempt_id for grant in reply.grants if grant.attempt_id not in self.table.held]
        try:
            self._apply(reply, sent_at)
        except Exception:  # noqa: BLE001 - one reply that cannot be applied must not end the node
            _log.exception("the hub's reply could not be applied")
            for attempt_id in fresh:
                if attempt_id not in self.executor.attempts:
                    self.table.drop(attempt_id)
            return False
        return True

    def _apply(self, reply: NextReply, sent_at: float) -> None:
        self.last_contact = self.node.clock.boot_time()
        if self.last_error:
            self.watcher.show("The hub answers again.")
        self.last_error = ""
        lease = self.lease
        lease.interval_ms, lease.lease_ms, lease.fence_ms = reply.interval_ms, reply.lease_ms, reply.fence_ms
        lease.renewed_at = max(lease.renewed_at, sent_at)
        self.fence.set_deadline(lease.deadline())
        self._profile_due = self._profile_due or reply.reregister
        for attempt_id in reply.cancel:
            attempt = self.executor.attempts.get(attempt_id)
            if attempt is not None:
                self.executor.stop(attempt, Stop.CANCELLED)
        self.hub_status = reply.status
        if reply.state in (NodeState.ACTIVE, NodeState.PAUSED, NodeState.DRAINING):
            before, self.hub_state = self.state, NodeState(reply.state)
            self._on_state_change(before)
        if reply.seen_from is not None and reply.seen_from != self._address:
            self.nearby.note_public_address(reply.seen_from)
            self._address = reply.seen_from
            self._address_changed.set()
        if reply.rules is not None:  # before the jobs that came with them
            self.gatekeeper.update_rules(reply.rules)
            self._rules_changed_at = self.last_contact
        if reply.grants:
            self._admit(reply, sent_at)
        if reply.measure:
            self.benchmark.request(reply.measure)
        if reply.result_deliveries is not None:
            self.result_delivery.request(reply.result_deliveries)

    def _admit(self, reply: NextReply, sent_at: float) -> None:
        # One reply may repeat a grant.
        grants = {grant.attempt_id: grant for grant in reply.grants}
        fresh = [grant for id_, grant in grants.items() if not self.table.is_known(id_)]
        if len(fresh) < len(reply.grants):
            _log.warning("the hub granted %d attempts again", len(reply.grants) - len(fresh))
        admission = self.gatekeeper.admit(
            reply.model_copy(update={"grants": fresh}), hub_now_s=self.node.client.hub_now_s()
        )
        now = self.node.clock.boot_time()
        self.table.hold(grant.attempt_id for grant in fresh)
        self._refusals = self._refusals + 1 if admission.refused else 0
        for attempt_id, why in admission.refused:
            _log.error("refused attempt %s: %s", attempt_id, why)
            self.reporter.add_result(attempt_id, failed_result(Reason.NODE_ERROR, f"not run: {why}"))
        for attempt_id, why in admission.forbidden:
            _log.warning("attempt %s may not run here: %s", attempt_id, why)
            self.reporter.add_result(attempt_id, self._forbidden_result(why))
        attempts = [
            Attempt(grant=grant, spec=spec, sent_at=sent_at, received_at=now) for grant, spec in admission.accepted
        ]
        if self.state is NodeState.ACTIVE:
            for attempt in attempts:
                self._log_manifest(attempt)
                self.watcher.on_start(attempt)
            self.executor.start(attempts)
            self._work.set()
            return
        reason = Reason.NODE_DRAINING if self.state is NodeState.DRAINING else Reason.GIVEN_BACK
        for attempt in attempts:
            self.reporter.add_result(attempt.id, returned_result(reason))

    def _log_manifest(self, attempt: Attempt) -> None:
        """Log whose job runs and what it may do, one line per kind of job."""
        kind = (attempt.spec.digest, attempt.grant.account_id)
        if kind not in self._logged:
            if len(self._logged) >= _LOGGED_MAX:
                self._logged.clear()
            self._logged.add(kind)
            _log.info("running %s", manifest(attempt.grant, attempt.spec).sentence)

    def _forbidden_result(self, why: str) -> AttemptResult:
        """Right after a change of rules the grant may have been on its way, which is nobody's fault."""
        if self.node.clock.boot_time() - self._rules_changed_at < RULES_CHANGED_S:
            return returned_result(Reason.GIVEN_BACK)
        return failed_result(Reason.NODE_ERROR, why)

    # ------------------------------------------------------------ time
    async def _tick_loop(self) -> None:
        while True:
            if self.executor.attempts:
                await asyncio.sleep(self.node.limits.tick_s)
            else:
                self._work.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_IDLE_TICK_S):
                        await self._work.wait()
            try:
                self._stop_unrenewed()
                if self.executor.tick() or self._take_progress_change():
                    self._heartbeat_due.set()
            except Exception:  # noqa: BLE001 - one failed tick must not end the node
                _log.exception("a tick failed")

    def _stop_unrenewed(self) -> None:
        """Stop attempts whose lease was not renewed, before the hub gives them to another node."""
        now = self.node.clock.boot_time()
        timeout_s = self.lease.timeout_s()
        renewed_at = self.lease.renewed_at
        if now - renewed_at < timeout_s / 2:
            return
        for attempt in [one for one in self.executor.attempts.values() if one.stop is None]:
            since = renewed_at if attempt.received_at <= renewed_at else attempt.sent_at
            if now - since > timeout_s:
                _log.error("stopping attempt %s: its lease was not renewed for %.0f s", attempt.id, now - since)
                self.executor.stop(attempt, Stop.LEASE_LOST)

    def _take_progress_change(self) -> bool:
        now = self.node.clock.steady()
        if now - self._progress_sent_at < self.node.limits.progress_gap_s:
            return False
        changed = False
        for head in self.executor.heads():
            if head.announced and head.progress != head.sent_progress:
                head.sent_progress = head.progress
                changed = True
        if changed:
            self._progress_sent_at = now
        return changed

    async def _heartbeat_loop(self) -> None:
        backoff = Backoff(self.node.clock, self.node.limits)
        while True:
            await self._heartbeat_due.wait()
            self._heartbeat_due.clear()
            sent_at = self.node.clock.boot_time()
            try:
                reply = await self.node.client.heartbeat(self._request(wait_ms=0, claim=False))
            except ComputePoolError as error:
                # The poll decides whether a refusal is final.
                self._heartbeat_due.set()
                await asyncio.sleep(backoff.delay_s(error))
                continue
            backoff.reset()
            self._handle(reply, sent_at)
            await asyncio.sleep(self.node.limits.heartbeat_gap_s)

    async def _address_loop(self) -> None:
        """Learn this node's public IPv4 address where polls use IPv6, and the reverse: jobs may reach neither."""
        while True:
            await self._address_changed.wait()
            with contextlib.suppress(ComputePoolError):
                async with self.node.client.over(IPV4_ONLY if ":" in self._address else IPV6_ONLY) as client:
                    reply = await client.heartbeat(self._request(wait_ms=0, claim=False))
                if reply.seen_from is not None:
                    self.nearby.note_public_address(reply.seen_from)
            await asyncio.sleep(self.node.limits.net_address_s)


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
