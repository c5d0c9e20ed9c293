"""Recent activity in the pool, anonymised for everybody who is signed in.

It is made from the events while somebody watches, and shows only the kind of a job, the zone of its node and the level of
the price.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from computepool.core.money.pricing import PPM, Zone
from computepool.core.places import region_called
from computepool.core.resources import CPU_TIER
from computepool.core.trust.tiers import region_of
from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.signals import Watch
from computepool.hub.observability.live import rows as mesh_rows
from computepool.hub.observability.live.rows import Arrival, Move
from computepool.protocol.nodes.mesh import Activity, ActivityPage, Happening, PriceLevel

#: Events read at once. If more happened meanwhile, the older ones are left out.
EVENTS_MAX = 2_000
_NEAR_PPM = PPM // 10
_WHAT = {
    "job.queued": Happening.SUBMITTED,
    "job.running": Happening.STARTED,
    "job.succeeded": Happening.SUCCEEDED,
    "job.failed": Happening.FAILED,
    "node.online": Happening.JOINED,
    "node.offline": Happening.LEFT,
}
_KINDS = {
    "script": ("A script", "scripts"),
    "command": ("A command", "commands"),
    "function": ("A function call", "function calls"),
    "class": ("A job of a class", "jobs of classes"),
}
_VERBS = {
    Happening.SUBMITTED: ("was submitted", "were submitted"),
    Happening.STARTED: ("started", "started"),
    Happening.SUCCEEDED: ("finished", "finished"),
    Happening.FAILED: ("failed", "failed"),
    Happening.JOINED: ("came online", "came online"),
    Happening.LEFT: ("went offline", "went offline"),
}


async def page(hub: Hub, *, after: int, limit: int, wait_ms: int) -> ActivityPage:
    deadline_ms = hub.now_ms() + wait_ms
    while True:
        watch = await _refresh(hub)
        found = [item for item in hub.observability.mesh.activity if item.seq > after]
        left_ms = deadline_ms - hub.now_ms()
        if found or left_ms <= 0 or hub.process.stopping:
            break
        await watch.wait(left_ms / 1000)
        # A busy pool has news all the time; once in this time is enough.
        await asyncio.sleep(min(hub.settings.mesh_age_s, max(0, deadline_ms - hub.now_ms()) / 1000))
    cursor = max((item.seq for item in found), default=after)
    return ActivityPage(activity=found[-limit:][::-1], cursor=cursor)


async def _refresh(hub: Hub) -> Watch:
    """Load new activity, once for all who watch. The returned watch began before, so it misses nothing."""
    mesh = hub.observability.mesh
    async with mesh.activity_lock:
        now_ms = hub.now_ms()
        watch = mesh.activity_watch
        if watch is not None and 0 <= now_ms - mesh.activity_ms < hub.settings.mesh_age_s * 1000:
            return watch
        if watch is None or watch.fired:
            watch = hub.signals.watch("events")
        upto = await hub.store.read(event_rows.last_event)
        after = max(mesh.activity_upto, upto - EVENTS_MAX)
        if upto > after:
            jobs = await hub.store.read(mesh_rows.moves, after=after, until=upto)
            nodes = await hub.store.read(mesh_rows.arrivals, after=after, until=upto)
            found = [*(_of_jobs(hub, row) for row in jobs), *_of_nodes(nodes)]
            mesh.activity.extend(sorted(found, key=lambda item: item.seq))
        mesh.activity_upto, mesh.activity_ms, mesh.activity_watch = upto, now_ms, watch
        return watch


def _of_jobs(hub: Hub, row: Move) -> Activity:
    what = _WHAT[row.action]
    placed = what is not Happening.SUBMITTED and row.zone_tier
    zone = Zone(row.zone_tier or "", row.zone_region or "") if placed else None
    one, several = _KINDS.get(row.kind, ("A job", "jobs"))
    who = one if row.alike == 1 else f"{row.alike} {several}"
    verb = _VERBS[what][row.alike > 1]
    where = "" if zone is None else f" on {_where(zone.tier, zone.region)}"
    return Activity.from_attributes(
        row,
        what=what,
        count=row.alike,
        tier=None if zone is None else zone.tier,
        region=None if zone is None else zone.region,
        price_level=None if zone is None else _level(hub, zone, row),
        sentence=f"{who} {verb}{where}",
    )


def _level(hub: Hub, zone: Zone, row: Move) -> PriceLevel:
    if not row.price:
        return PriceLevel.FREE
    usual, spot = hub.money.market.table.reference(zone), row.spot or 0
    if spot * PPM <= usual * (PPM - _NEAR_PPM):
        return PriceLevel.LOW
    return PriceLevel.HIGH if spot * PPM >= usual * (PPM + _NEAR_PPM) else PriceLevel.USUAL


def _of_nodes(rows: Iterable[Arrival]) -> list[Activity]:
    """Nodes of one tier and region that came or went together share a line."""
    alike: dict[tuple[Happening, str, str], list[Arrival]] = {}
    for row in rows:
        profile = json.loads(row.profile)
        cards = [gpu["tier"] for gpu in sorted(profile["gpus"], key=lambda gpu: -gpu["vram_mb"])]
        tier, region = (cards or [CPU_TIER])[0], region_of(profile["region"])
        alike.setdefault((_WHAT[row.action], tier, region), []).append(row)
    found = []
    for (what, tier, region), events in alike.items():
        count, last = len(events), events[-1]
        who = "A node" if count == 1 else f"{count} nodes"
        found.append(
            Activity(
                seq=last.seq,
                at_ms=last.at_ms,
                what=what,
                count=count,
                tier=tier,
                region=region,
                sentence=f"{who} {_VERBS[what][count > 1]}: {_where(tier, region)}",
            )
        )
    return found


def _where(tier: str, region: str) -> str:
    known = region_called(region)
    place = region if known is None else known.name
    return f"{tier}, {place}" if place else tier
