"""Hardware truth in the hub: asks nodes to measure themselves, compares their run times, and lets the tiers follow.

What decides is core/trust/hardware.py. On the path of reports there is one append; the rest happens every few seconds.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence

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
from computepool.protocol.nodes.nodes import Profile, Report

RETIERED = "node.retiered"
#: Runs that wait to be compared. What comes on top is left out: it is a sample anyway.
RUNS_MAX = 20_000
_RUNS_AT_ONCE = 200
_SAVE_EVERY_MS = 60_000
#: CPU time beyond that of its cores, of which this much is a matter of measuring.
_STRETCHED = 1.2


# ---------------------------------------------------------------- nodes come
def arrive(hub: Hub, session: NodeSession, profile: Profile, *, stored: Truth | None) -> None:
    """A node described itself: what was found out about it holds for what it says now."""
    truth = stored or UNKNOWN
    if not truth.due_at_ms:
        first_ms = hub.now_ms() + round(hub.settings.measure_first_s * 1000)
        truth = dataclasses.replace(truth, due_at_ms=first_ms)
    session.claimed = profile.tiers()
    # A cap that has ended meanwhile is lifted by `lift_caps`, which says so.
    follow(hub, session, rules.decide(truth, session.claimed, now_ms=0))


def known(hub: Hub, node_id: str, profile: Profile, *, stored: Truth | None) -> Truth:
    """Of any node: the memory of the hub that it polls is newest, else the store's word."""
    session = hub.nodes.registry.get(node_id)
    if session is not None:
        return session.truth
    return rules.decide(stored or UNKNOWN, profile.tiers(), now_ms=hub.now_ms())


def follow(hub: Hub, session: NodeSession, truth: Truth) -> None:
    """Into the registry, for placements and prices from now on. Jobs that are leased keep their price."""
    session.truth = truth
    capacity = rules.truthful(session.profile.capacity, truth)
    if capacity != session.profile.capacity:
        session.profile = dataclasses.replace(session.profile, capacity=capacity)
        hub.nodes.registry.fleet.upsert(session.profile)


# ---------------------------------------------------------------- measurements
def ask_due(hub: Hub) -> None:
    """Ask those whose time has come, which they cannot know before: in a while of its own for each."""
    now_ms = hub.now_ms()
    if not hub.settings.measure_every_s:
        return
    for session in hub.nodes.registry.sessions:
        if session.truth.due_at_ms <= now_ms and session.claims:
            waits = now_ms - session.measure_sent_ms < hub.settings.measure_answer_s * 1000
            if not (session.measure and waits):
                ask(hub, session)


def ask(hub: Hub, session: NodeSession) -> None:
    session.measure = hub.clock.entropy(12).hex()
    session.measure_sent_ms = hub.now_ms()
    session.measure_sent = False
    session.wake()


def next_due_ms(hub: Hub) -> int:
    """Half to one and a half of the interval from now."""
    chance = int.from_bytes(hub.clock.entropy(2), "big") / 65_536
    return hub.now_ms() + round(hub.settings.measure_every_s * 1000 * (0.5 + chance))


async def receive(hub: Hub, node: NodePrincipal, report: HardwareReport) -> HardwareView:
    if not authenticator.signed_by_node(node, report.signature, report.signed_text()):
        raise Forbidden("The measurement is not signed with this node's key.")
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
    scores, impossible = rules.bounded(_scores(report), session.claimed)
    history = before.history
    if before.measured_at_ms:
        history = ((before.measured_at_ms, before.scores), *history)
    fresh = dataclasses.replace(
        before,
        scores=scores,
        notes=(*impossible, *report.notes),
        measured_at_ms=now_ms,
        history=history[: max(0, hub.settings.measure_history)],
        due_at_ms=next_due_ms(hub),
    )
    return rules.decide(fresh, session.claimed, now_ms=now_ms)


def _scores(report: HardwareReport) -> Scores:
    return Scores(
        cpu=report.cpu,
        memory_mb_s=report.memory_mb_s,
        disk_mb_s=report.disk_mb_s,
        net_mb_s=report.net_mb_s,
        rtt_us=report.rtt_us,
        gflops=tuple(report.gflops),
    )


# ---------------------------------------------------------------- run times
def observe(hub: Hub, node_id: str, reports: Iterable[Report]) -> None:
    """After the commit, on the path of every report: remember what is worth comparing, nothing more."""
    session, least_ms = hub.nodes.registry.get(node_id), hub.settings.retier_shortest_ms
    if session is None or len(hub.trust.runs) >= RUNS_MAX:
        return
    for report in reports:
        if report.ran_ms < least_ms or report.reason is not Reason.COMPLETED:
            continue
        attempt = session.attempts.get(report.attempt_id)
        # What its owner runs there says nothing: it can be made to look like anything.
        if attempt is not None and attempt.grant.account_id != session.profile.owner:
            grant, cpu_milli = attempt.grant, attempt.lane.shape.requirements.cpu_milli
            used_ms = 0 if report.usage is None else report.usage.cpu_ms
            stretched = used_ms * 1000 > _STRETCHED * report.ran_ms * cpu_milli
            hub.trust.runs.append(
                TimedRun(node_id, grant.spec, grant.account_id, bool(grant.gpus), report.ran_ms, stretched)
            )


async def judge_runs(hub: Hub) -> None:
    """Compare what was remembered, and judge the nodes that it is about."""
    runs, hub.trust.runs = hub.trust.runs, []
    touched: set[str] = set()
    for number, run in enumerate(runs):
        if number % _RUNS_AT_ONCE == _RUNS_AT_ONCE - 1:
            await asyncio.sleep(0)  # polls must not wait for this
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
            continue  # as slow as its class is known for
        if not truth.doubted_at_ms:
            await _doubt(hub, session, cards=cards)
        elif _is_answered(hub, truth) and _is_agreed(hub, session, speed):
            await _record(hub, session, lowered, actor="hub")


def _lower(hub: Hub, session: NodeSession, *, cards: bool, speed: RelativeSpeed) -> Truth | None:
    """What its run times make of it; None if that is no other tier."""
    truth, now_ms, capacity = session.truth, hub.now_ms(), session.profile.capacity
    tier = capacity.tier if cards else capacity.cpu_tier
    until_ms = now_ms + round(hub.settings.retier_keep_s * 1000)
    cap = rules.allowed_by_speed(tier, speed.sure_slowdown)
    caps = {"gpu_cap" if cards else "cpu_cap": cap, "capped_until_ms": until_ms, "doubted_at_ms": 0}
    capped = dataclasses.replace(truth.with_speed(speed.again(), cards=cards), **caps)  # type: ignore[arg-type]
    decided = rules.decide(capped, session.claimed, now_ms=now_ms)
    if (decided.cpu_tier, decided.gpu_tiers) == (truth.cpu_tier, truth.gpu_tiers):
        return None
    reason = hardware_messages.after_comparing(truth, decided, tier=tier, speed=speed)
    return dataclasses.replace(decided, reason=reason)


async def lift_caps(hub: Hub) -> None:
    """What run times took is tried again after a while: machines are repaired, and moved to cooler places."""
    now_ms = hub.now_ms()
    for session in hub.nodes.registry.sessions:
        if 0 < session.truth.capped_until_ms <= now_ms:
            free = dataclasses.replace(session.truth, cpu_cap=None, gpu_cap=None, capped_until_ms=0)
            truth = rules.decide(free, session.claimed, now_ms=now_ms)
            await _record(
                hub, session, dataclasses.replace(truth, reason=hardware_messages.TRIED_AGAIN), actor="hub"
            )


async def _doubt(hub: Hub, session: NodeSession, *, cards: bool) -> None:
    """Once is not enough: it is measured again, and as many jobs again must say the same."""
    truth = dataclasses.replace(session.truth, doubted_at_ms=hub.now_ms(), due_at_ms=hub.now_ms())
    truth = truth.with_speed(truth.speed(cards=cards).again(), cards=cards)
    await _record(hub, session, truth, actor="hub")
    if hub.settings.measure_every_s:
        ask(hub, session)


def _is_answered(hub: Hub, truth: Truth) -> bool:
    """It was measured since it is doubted, or has had time enough to do so."""
    waited_ms = hub.now_ms() - truth.doubted_at_ms
    return truth.measured_at_ms >= truth.doubted_at_ms or waited_ms >= hub.settings.measure_answer_s * 1000


def _is_agreed(hub: Hub, session: NodeSession, speed: RelativeSpeed) -> bool:
    """Against a good measurement one submitter is not enough: he could send jobs that are slow on one node alone."""
    truth = session.truth
    good = truth.standing in (Standing.CONFIRMED, Standing.MEASURED)
    measured = truth.measured_at_ms >= truth.doubted_at_ms and good
    return not measured or len(speed.accounts) >= min(ACCOUNTS_KEPT, hub.settings.retier_accounts)


# ---------------------------------------------------------------- records
async def _record(hub: Hub, session: NodeSession, truth: Truth, *, actor: str) -> None:
    """The row, an event where a tier changed, and then memory: here at once, on the other hubs by notification."""
    before, node_id, owner = session.truth, session.node_id, session.profile.owner
    changes = list(hardware_messages.changes(before, truth, session.claimed))

    def unit(tx: Tx) -> None:
        hardware_rows.save(tx, {node_id: truth})
        for old, new in changes:
            tx.emit(
                actor=actor,
                action=RETIERED,
                account_id=owner,
                node_id=node_id,
                before=old,
                after=new,
                reason=truth.reason,
            )
        if truth.measured_at_ms != before.measured_at_ms:
            tx.emit(
                actor=actor,
                action="node.measured",
                account_id=owner,
                node_id=node_id,
                after=truth.standing.value,
                reason="; ".join(truth.notes)[:1000] or None,
            )
        tx.touch(f"node:{node_id}", "events")

    await hub.store.write(unit)
    follow(hub, session, truth)


async def _save_relative_speeds(hub: Hub, touched: Iterable[str]) -> None:
    """Now and then: a restart may forget a minute of run times."""
    hub.trust.speeds_touched |= set(touched)
    now_ms = hub.now_ms()
    if not hub.trust.speeds_touched or now_ms - hub.trust.speeds_saved_ms < _SAVE_EVERY_MS:
        return
    hub.trust.speeds_saved_ms, node_ids, hub.trust.speeds_touched = now_ms, hub.trust.speeds_touched, set()
    sessions = [session for node_id in node_ids if (session := hub.nodes.registry.get(node_id)) is not None]
    known = {session.node_id: session.truth for session in sessions}
    await hub.store.write(lambda tx: hardware_rows.save(tx, known))


async def refresh(hub: Hub, node_ids: Sequence[str]) -> None:
    """What the store says now: another hub decided something about these nodes."""
    found = await hub.store.read(lambda connection: hardware_rows.load(connection, node_ids))
    for node_id, stored in found.items():
        session = hub.nodes.registry.get(node_id)
        if session is None or stored.measured_at_ms < session.truth.measured_at_ms:
            continue
        # Run times are counted here, where it polls, and stored only now and then.
        mine = session.truth
        truth = dataclasses.replace(stored, cpu_speed=mine.cpu_speed, gpu_speed=mine.gpu_speed)
        follow(hub, session, rules.decide(truth, session.claimed, now_ms=0))
