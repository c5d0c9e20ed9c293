"""Periodic tasks: renew leases, take jobs back from silent nodes, move prices, pay out, measure, prune."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from functools import partial
from typing import Any

from computepool.hub.context import Hub
from computepool.hub.identity.signing import rotation
from computepool.hub.jobs.running import usage
from computepool.hub.loops.runner import every
from computepool.hub.money import credits as credit_service
from computepool.hub.money.market import spot_prices
from computepool.hub.money.payouts import payout_rounds
from computepool.hub.nodes import known_nodes, uptime
from computepool.hub.notifications import deliveries
from computepool.hub.schedules import rounds
from computepool.hub.scheduling import housekeeping, leases
from computepool.hub.secrets import encryption
from computepool.hub.settings import Settings
from computepool.hub.settlement.verification import probes, unconfirmed
from computepool.hub.trust import hardware as hardware_service, reputation, submitter_reputation
from computepool.hub.volumes import volumes

_PRUNE_S = 600.0


def duties(hub: Hub) -> list[Coroutine[Any, Any, None]]:
    settings = hub.settings

    async def beat() -> None:
        await asyncio.gather(leases.beat(hub), housekeeping.note_key_use(hub), rotation.tend(hub))

    async def prune() -> None:
        await volumes.prune(hub)
        await housekeeping.prune(hub)
        await spot_prices.prune(hub)
        await usage.prune(hub)
        await uptime.prune(hub)
        await encryption.renew(hub)
        await reputation.refresh_all(hub)
        await submitter_reputation.refresh(hub)

    async def price() -> None:
        await spot_prices.tick(hub)
        hub.jobs.queue.wake()  # jobs that waited for another price may start now

    async def measure() -> None:
        hardware_service.request_due_measurements(hub)
        await hardware_service.lift_caps(hub)
        await hardware_service.judge_runs(hub)

    async def mature() -> None:
        await credit_service.mature(hub)
        await unconfirmed.start_checks(hub)

    repeat = partial(every, health=hub.observability.loop_health)
    return [
        _notify(hub),
        repeat(settings.tick_s, "market", price),
        repeat(settings.mature_s, "mature", mature),
        repeat(settings.probe_round_s, "probes", partial(probes.send_due, hub)),
        repeat(settings.verify_known_round_s, "known_nodes", partial(known_nodes.refresh, hub)),
        repeat(settings.retier_round_s, "hardware", measure),
        repeat(settings.payout_round_s, "payouts", partial(payout_rounds.run, hub)),
        repeat(settings.schedule_round_s, "schedules", partial(rounds.run, hub)),
        repeat(settings.sweep_s, "sweep", Sweep(hub)),
        repeat(renew_s(settings), "renew", partial(leases.renew, hub)),
        repeat(settings.lease_min_s / 2, "note_seen", partial(leases.note_seen, hub)),
        repeat(leases.HUB_BEAT_MS / 1000, "beat", beat),
        repeat(settings.usage_round_s, "usage", partial(usage.save, hub)),
        repeat(_PRUNE_S, "prune", prune),
    ]


def renew_s(settings: Settings) -> float:
    return min(settings.interval_min_s, settings.lease_min_s / 4)


class Sweep:
    """Takes jobs back from silent nodes. After an outage of the store, in which no lease could be renewed, it first gives
    all nodes time to renew theirs."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._grace = 0  #: rounds without a failure that are still needed
        self._grace_after_failure = math.ceil(2 * renew_s(hub.settings) / hub.settings.sweep_s)

    async def __call__(self) -> None:
        # Set before the round, so that the grace begins anew if the round fails.
        grace, self._grace = self._grace, self._grace_after_failure
        if grace > 0:
            await leases.beat(self._hub)
        else:
            await self._round()
        self._grace = max(0, grace - 1)

    async def _round(self) -> None:
        await housekeeping.drop_silent(self._hub)
        await leases.expire_overdue(self._hub)
        await unconfirmed.accept(self._hub)


async def _notify(hub: Hub) -> None:
    async with deliveries.Courier(hub) as courier:
        await every(hub.settings.webhook_round_s, "webhooks", courier.round, health=hub.observability.loop_health)
