"""Hardware truth: nodes measure themselves, their run times are compared, and their tiers follow from both.

core/trust/hardware.py decides. A report only appends its run to a list; the rest happens every few seconds.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial

from computepool.core.errors import Conflict, Forbidden
from computepool.core.jobs.lifecycle import Reason
from computepool.core.trust import hardware as rules
from computepool.core.trust.hardware import UNKNOWN, Scores, Standing, Truth
from computepool.core.trust.relative_speed import ACCOUNTS_KEPT, RelativeSpeed, TimedRun
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity import authenticator
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.trust import hardware_messages, hardware_rows
from computepool.protocol.nodes.hardware import HardwareReport, HardwareView
from computepool.protocol.nodes.nodes import Report
from computepool.protocol.nodes.profile import Profile

RETIERED = "node.retiered"
#: Runs waiting to be compared. Further ones are dropped: it is a sample anyway.
RUNS_MAX = 20_000
_RUNS_AT_ONCE = 200
_SAVE_EVERY_MS = 60_000
#: A run stretched itself if it used this much more CPU time than its cores have; less is imprecision.
_STRETCHED = 1.2


# arrivals


def on_node_described(hub: Hub, session: NodeSession, profile: Profile, *, stored: Truth | None) -> None:
    """Apply what is known about the node to what it claims now."""
    truth = stored or UNKNOWN
    if not truth.due_at_ms:
        first_ms = hub.now_ms() + round(hub.settings.measure_first_s * 1000)
        truth = dataclasses.replace(truth, due_at_ms=first_ms)
    session.claimed = profile.tiers()
    # `lift_caps` lifts a cap that has ended meanwhile, and records that.
    _adopt(hub, session, rules.decide(truth, session.claimed, now_ms=0))


def current_truth(hub: Hub, node_id: str, profile: Profile, *, stored: Truth | None) -> Truth:
    """The newest: from memory if the node polls this hub, otherwise as stored."""
    session = hub.nodes.registry.get(node_id)
    if session is not None:
        return session.truth
    return rules.decide(stored or UNKNOWN, profile.tiers(), now_ms=hub.now_ms())


def _adopt(hub: Hub, session: NodeSession, truth: Truth) -> None:
    """Use it for placements and prices from now on. Leased jobs keep their price."""
    session.truth = truth
    capacity = rules.truthful(session.profile.capacity, truth)
    if capacity != session.profile.capacity:
        session.profile = dataclasses.replace(session.profile, capacity=capacity)
        hub.nodes.registry.fleet.upsert(session.profile)


# measurements


def request_due_measurements(hub: Hub) -> None:
    """Each node has its own time, drawn at random, so that it cannot foresee the request."""
    now_ms = hub.now_ms()
    if not hub.settings.measure_every_s:
        return
    for session in hub.nodes.registry.sessions:
        if session.truth.due_at_ms <= now_ms and session.claims:
            waits = now_ms - session.measure_sent_ms < hub.settings.measure_answer_s * 1000
            if not (session.measure and waits):
                _request_measurement(hub, session)


def _request_measurement(hub: Hub, session: NodeSession) -> None:
    session.measure = hub.clock.entropy(12).hex()
    session.measure_sent_ms = hub.now_ms()
    session.measure_sent = False
    session.wake()


def _next_due_ms(hub: Hub) -> int:
    """Half to one and a half intervals from now."""
    chance = int.from_bytes(hub.clock.entropy(2), "big") / 65_536
    return hub.now_ms() + round(hub.settings.measure_every_s * 1000 * (0.5 + chance))


async def receive(hub: Hub, node: NodePrincipal, report: HardwareReport) -> HardwareView:
    if not authenticator.is_signed_by_node(node, report.signature, report.signed_text()):
        raise Forbidden("The measurement is not signed with this node's key.")
    async with hub.trust.deciding:
        return await _receive(hub, node, report)


async def _receive(hub: Hub, node: NodePrincipal, report: HardwareReport) -> HardwareView:
    session = hub.nodes.registry.get(node.node_id)
    if session is None or not session.measure or report.id != session.measure:
        raise Conflict("This measurement was not requested, so it does not count.", field="id")
    session.measure = ""
    before = session.truth
    truth = _measure(hub, session, report)
    reason = hardware_messages.after_measuring(before, truth, session.claimed)
    if reason:
        truth = dataclasses.replace(truth, reason=reason)
    await _record(hub, session, truth, actor=node.node_id)
    return hardware_messages.view(session.truth, session.claimed)


def _measure(hub: Hub, session: NodeSession, report: HardwareReport) -> Truth:
    before, now_ms = session.truth, hub.now_ms()
    measured = Scores(
        cpu=report.cpu,
        memory_mb_s=report.memory_mb_s,
        disk_mb_s=report.disk_mb_s,
        net_mb_s=report.net_mb_s,
        rtt_us=report.rtt_us,
        gflops=tuple(report.gflops),
    )
    scores, impossible = rules.clip(measured, session.claimed)
    history = before.history
    if before.measured_at_ms:
        history = ((before.measured_at_ms, before.scores), *history)
    fresh = dataclasses.replace(
        before,
        scores=scores,
        notes=(*impossible, *report.notes),
        measured_at_ms=now_ms,
        history=history[: max(0, hub.settings.measure_history)],
        due_at_ms=_next_due_ms(hub),
    )
    return rules.decide(fresh, session.claimed, now_ms=now_ms)


# run times


def observe(hub: Hub, node_id: str, reports: Iterable[Report]) -> None:
    """After the commit of every report, so it does no more than note the runs that are worth comparing."""
    session, least_ms = hub.nodes.registry.get(node_id), hub.settings.retier_shortest_ms
    if session is None or len(hub.trust.runs) >= RUNS_MAX:
        return
    for report in reports:
        if report.ran_ms < least_ms or report.reason is not Reason.COMPLETED:
            continue
        attempt = session.attempts.get(report.attempt_id)
        # The owner's own jobs prove nothing: they can be made to take any time.
        if attempt is not None and attempt.grant.account_id != session.profile.owner:
            grant, cpu_milli = attempt.grant, attempt.lane.shape.requirements.cpu_milli
            used_ms = 0 if report.usage is None else report.usage.cpu_ms
            stretched = used_ms * 1000 > _STRETCHED * report.ran_ms * cpu_milli
            hub.trust.runs.append(
                TimedRun(node_id, grant.spec, grant.account_id, bool(grant.gpus), report.ran_ms, stretched)
            )


async def judge_runs(hub: Hub) -> None:
    """Compare the noted runs, and judge their nodes."""
    runs, hub.trust.runs = hub.trust.runs, []
    touched: set[str] = set()
    async with hub.trust.deciding:
        for number, run in enumerate(runs):
            if number % _RUNS_AT_ONCE == _RUNS_AT_ONCE - 1:
                await asyncio.sleep(0)  # let polls run
            if _compare(hub, run):
                touched.add(run.node_id)
        for node_id in sorted(touched):
            if (session := hub.nodes.registry.get(node_id)) is not None:
                await _judge(hub, session)
        await _save_relative_speeds(hub, touched)


def _compare(hub: Hub, run: TimedRun) -> bool:
    session = hub.nodes.registry.get(run.node_id)
    if session is None:
        return False
    capacity = session.profile.capacity
    slower = hub.trust.peers.compare(
        run.spec,
        capacity.tier if run.cards else capacity.cpu_tier,
        node_id=run.node_id,
        owner=session.profile.owner,
        ran_ms=run.ran_ms,
        peers_min=hub.settings.retier_peers,
        alone=run.stretched,
    )
    if slower is None:
        return False
    speed = session.truth.speed(cards=run.cards).add(slower, run.account)
    session.truth = session.truth.with_speed(speed, cards=run.cards)
    return True


async def _judge(hub: Hub, session: NodeSession) -> None:
    for cards in (True, False):
        truth = session.truth
        speed = truth.speed(cards=cards)
        if speed.jobs < hub.settings.retier_jobs:
            continue
        if speed.sure_slowdown < hub.settings.retier_factor:
            settled = rules.decide(truth, session.claimed, now_ms=0)
            session.truth = dataclasses.replace(settled, doubted_at_ms=0)
            continue
        lowered = _lower(hub, session, cards=cards, speed=speed)
        if lowered is None:
            continue  # it is slow, but within its tier
        if not truth.doubted_at_ms:
            await _doubt(hub, session, cards=cards)
        elif _had_second_measurement(hub, truth) and _has_enough_accounts(hub, session, speed):
            await _record(hub, session, lowered, actor="hub")


def _lower(hub: Hub, session: NodeSession, *, cards: bool, speed: RelativeSpeed) -> Truth | None:
    """The truth with the tier that its run times allow; None if the tier stays."""
    truth, now_ms, capacity = session.truth, hub.now_ms(), session.profile.capacity
    tier = capacity.tier if cards else capacity.cpu_tier
    until_ms = now_ms + round(hub.settings.retier_keep_s * 1000)
    cap = rules.allowed_score(tier, speed.sure_slowdown)
    caps = {"gpu_cap" if cards else "cpu_cap": cap, "capped_until_ms": until_ms, "doubted_at_ms": 0}
    capped = dataclasses.replace(truth.with_speed(speed.reset(), cards=cards), **caps)  # type: ignore[arg-type]
    decided = rules.decide(capped, session.claimed, now_ms=now_ms)
    if (decided.cpu_tier, decided.gpu_tiers) == (truth.cpu_tier, truth.gpu_tiers):
        return None
    reason = hardware_messages.after_comparing(truth, decided, tier=tier, speed=speed)
    return dataclasses.replace(decided, reason=reason)


async def lift_caps(hub: Hub) -> None:
    """Try the claim again some time after run times lowered a tier: machines are repaired, or cooled better."""
    now_ms = hub.now_ms()
    async with hub.trust.deciding:
        for session in hub.nodes.registry.sessions:
            if 0 < session.truth.capped_until_ms <= now_ms:
                free = dataclasses.replace(session.truth, cpu_cap=None, gpu_cap=None, capped_until_ms=0)
                truth = dataclasses.replace(
                    rules.decide(free, session.claimed, now_ms=now_ms), reason=hardware_messages.TRIED_AGAIN
                )
                await _record(hub, session, truth, actor="hub")


async def _doubt(hub: Hub, session: NodeSession, *, cards: bool) -> None:
    """Slow runs alone are not enough: the node is measured again, and as many further jobs must confirm them."""
    truth = dataclasses.replace(session.truth, doubted_at_ms=hub.now_ms(), due_at_ms=hub.now_ms())
    truth = truth.with_speed(truth.speed(cards=cards).reset(), cards=cards)
    await _record(hub, session, truth, actor="hub")
    if hub.settings.measure_every_s:
        _request_measurement(hub, session)


def _had_second_measurement(hub: Hub, truth: Truth) -> bool:
    """Whether the node has measured itself since it was doubted, or has had enough time to."""
    waited_ms = hub.now_ms() - truth.doubted_at_ms
    return truth.measured_at_ms >= truth.doubted_at_ms or waited_ms >= hub.settings.measure_answer_s * 1000


def _has_enough_accounts(hub: Hub, session: NodeSession, speed: RelativeSpeed) -> bool:
    """Against a good measurement one submitter is not enough, who could send jobs that are slow on one node only."""
    truth = session.truth
    good = truth.standing in (Standing.CONFIRMED, Standing.MEASURED)
    measured = truth.measured_at_ms >= truth.doubted_at_ms and good
    return not measured or len(speed.accounts) >= min(ACCOUNTS_KEPT, hub.settings.retier_accounts)


# records


async def _record(hub: Hub, session: NodeSession, truth: Truth, *, actor: str) -> None:
    """Store it, with an event for every changed tier, and update memory: here at once, on other hubs by notification."""
    before, node_id, owner = session.truth, session.node_id, session.profile.owner
    changes = list(hardware_messages.changes(before, truth, session.claimed))

    def unit(tx: Tx) -> None:
        hardware_rows.save(tx, {node_id: truth})
        emit = partial(tx.emit, actor=actor, account_id=owner, node_id=node_id)
        for old, new in changes:
            emit(action=RETIERED, before=old, after=new, reason=truth.reason)
        if truth.measured_at_ms != before.measured_at_ms:
            notes = "; ".join(truth.notes)[:1000] or None
            emit(action="node.measured", after=truth.standing.value, reason=notes)
        tx.touch(f"node:{node_id}")

    await hub.store.write(unit)
    if hub.nodes.registry.get(node_id) is session:  # it may have left meanwhile, or arrived again
        _adopt(hub, session, truth)


async def _save_relative_speeds(hub: Hub, touched: Iterable[str]) -> None:
    """Once a minute: a restart may lose a minute of run times."""
    hub.trust.speeds_touched |= set(touched)
    now_ms = hub.now_ms()
    if not hub.trust.speeds_touched or now_ms - hub.trust.speeds_saved_ms < _SAVE_EVERY_MS:
        return
    hub.trust.speeds_saved_ms, node_ids, hub.trust.speeds_touched = now_ms, hub.trust.speeds_touched, set()
    sessions = [session for node_id in node_ids if (session := hub.nodes.registry.get(node_id)) is not None]
    known = {session.node_id: session.truth for session in sessions}
    await hub.store.write(hardware_rows.save, known)


async def refresh(hub: Hub, node_ids: Sequence[str]) -> None:
    """Read the stored truth again: another hub decided something about these nodes."""
    async with hub.trust.deciding:
        found = await hub.store.read(hardware_rows.load, node_ids)
        for node_id, stored in found.items():
            session = hub.nodes.registry.get(node_id)
            if session is None or stored.measured_at_ms < session.truth.measured_at_ms:
                continue
            # The hub that a node polls counts its run times, and stores them only once a minute.
            mine = session.truth
            truth = dataclasses.replace(stored, cpu_speed=mine.cpu_speed, gpu_speed=mine.gpu_speed)
            _adopt(hub, session, rules.decide(truth, session.claimed, now_ms=0))
