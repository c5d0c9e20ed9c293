"""Giving queued jobs to nodes: memory proposes, the store disposes.

The backlog (soft) says which job is next and the allocator where it fits; a guarded update in the store then leases
it, or not, if another hub was faster. Very short jobs are given to a node several at a time: they share one
reservation, a *lane*, and run on it one after the other, so that the trip to the hub is paid once for many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.core.money.market import Offer
from computepool.core.placement.choice import chosen_by_pool
from computepool.core.placement.exploration import Explorer
from computepool.core.placement.gates import could_run, still_agreed
from computepool.core.resources import Shape
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import Lane
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import LeasedJob
from computepool.hub.jobs.running import checkpoints
from computepool.hub.jobs.running.checkpoint_rows import CheckpointRow
from computepool.hub.scheduling.grants import grant_of

#: With more shapes than this in the queue, one of them surely wants the node: not worth finding out which.
_SHAPES_COMPARED_MAX = 32


@dataclass(frozen=True, slots=True)
class _Place:
    """One job on its way to a lane."""

    job_id: str
    lane: Lane
    offer: Offer

    def attempt(self) -> dict[str, Any]:
        """The columns that are known before it is leased."""
        return {
            "job_id": self.job_id,
            "node_id": self.lane.node_id,
            "owner_id": self.lane.owner,
            "lane": self.lane.id,
            "gpus": ",".join(map(str, self.lane.gpus)),
            "lane_since_ms": self.lane.since_ms,
            "price": self.offer.price,
            "spot": self.offer.spot,
            "units": self.offer.units,
            "zone_tier": self.offer.zone.tier,
            "zone_region": self.offer.zone.region,
            "price_version": self.offer.version,
            "narrow": self.lane.narrow,
        }


class Dispatcher:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._queue, self._backlog = hub.jobs.queue, hub.jobs.queue.backlog
        self._lanes: dict[str, Lane] = {}  #: short-job lanes that may be topped up
        share = hub.settings.explore_share
        seed = int.from_bytes(hub.clock.entropy(8), "big")
        self._explorer = Explorer(Random(seed), share) if share else None

    def _depth(self, digest: str) -> int:
        """How many such jobs one lane may hold: one until we know them, then as many as fit the named amount of work."""
        known_ms = self._hub.jobs.run_lengths.of(digest)
        if known_ms is None:
            return 1
        settings = self._hub.settings
        return max(1, min(settings.lane_depth_max, int(settings.lane_work_ms / max(known_ms, 0.1))))

    async def rounds(self) -> None:
        more = True
        while more:
            more = await self.round()
            await asyncio.sleep(0)  # many shapes that fit nowhere must not keep polls waiting

    async def round(self) -> bool:
        """Place what can be placed. True when another round may place more."""
        async with self._queue.placing:
            return await self._place()

    async def _place(self) -> bool:
        hub = self._hub
        self._backlog.release_due(hub.now_ms())
        places = self._new_lanes() + self._top_up()
        if not places:
            return self._backlog.unfinished(hub.nodes.registry.fleet)
        try:
            leased, kept = await hub.store.write(
                partial(
                    _lease,
                    attempts={place.job_id: place.attempt() for place in places},
                    lease_ms=hub.nodes.registry.lease_ms,
                )
            )
        except Exception:
            self._undo(places)
            raise
        self._hand_over(places, leased, kept)
        return len(self._backlog) > 0

    def _new_lanes(self) -> list[_Place]:
        places: list[_Place] = []
        for job_id, placement in self._backlog.take(
            self._hub.nodes.registry.fleet, self._hub.settings.dispatch_batch_max, self._explorer
        ):
            lane = Lane(
                id=f"{self._hub.process.hub_id}-{next(self._hub.nodes.registry.lane_numbers)}",
                node_id=placement.node_id,
                owner=self._hub.nodes.registry.fleet.profile(placement.node_id).owner,
                shape=self._backlog.shape_of(job_id),
                reservation=placement.reservation,
                since_ms=self._hub.now_ms(),
            )
            offer, newcomer = self._offer(lane), self._is_newcomer(lane)
            if newcomer or lane.shape.avoid_owners:  # these make a record: a newcomer's jobs, and checks
                lane.narrow = not chosen_by_pool(self._hub.nodes.registry.fleet, lane.shape)
            places.append(_Place(job_id, lane, offer))
            # A lane counts as one job in what its owner may hold: all of it together is paid for its time alone.
            depth = 1 if newcomer else self._depth(self._queue.spec_of(job_id))
            if depth > 1:
                self._lanes[lane.id] = lane
                more = self._backlog.take_like(lane.shape, depth - 1)
                places += [_Place(like, lane, offer) for like in more]
        return places

    def _top_up(self) -> list[_Place]:
        """Refill half-empty lanes, unless another shape waits for their nodes: a lane must not hold a node for ever."""
        places: list[_Place] = []
        waiting = self._backlog.shapes() if self._lanes else {}
        for lane in list(self._lanes.values()):
            if not lane.attempts and lane.reservation is None:
                del self._lanes[lane.id]
                continue
            if not lane.attempts:
                continue  # just opened in this round
            depth = self._depth(self._recent_spec(lane))
            if len(lane.attempts) * 2 > depth or self._needed_by_others(lane, waiting):
                continue
            if not self._still_agreed(lane):
                continue  # the price, or the owner's mind, changed since the lane was opened
            offer = self._offer(lane)
            more = self._backlog.take_like(lane.shape, depth - len(lane.attempts))
            places += [_Place(job_id, lane, offer) for job_id in more]
        return places

    def _is_newcomer(self, lane: Lane) -> bool:
        """A newcomer gets the jobs of others one by one, however short they are: it may lose all that it holds."""
        fleet = self._hub.nodes.registry.fleet
        return fleet.is_newcomer(lane.node_id) and fleet.profile(lane.node_id).owner != lane.shape.account

    def _offer(self, lane: Lane) -> Offer:
        """The price of this moment, fixed for the attempts that are leased at it."""
        return self._hub.money.market.offer(lane.shape, self._hub.nodes.registry.fleet.profile(lane.node_id))

    def _still_agreed(self, lane: Lane) -> bool:
        fleet = self._hub.nodes.registry.fleet
        row = fleet.row_of(lane.node_id)
        return row is None or still_agreed(fleet, lane.shape, row)

    def _recent_spec(self, lane: Lane) -> str:
        session = self._hub.nodes.registry.get(lane.node_id)
        attempt_id = next(iter(lane.attempts))
        attempt = session.attempts.get(attempt_id) if session is not None else None
        return attempt.grant.spec if attempt is not None else ""

    def _needed_by_others(self, lane: Lane, waiting: Mapping[Shape, int]) -> bool:
        if len(waiting) > _SHAPES_COMPARED_MAX:
            return True
        fleet = self._hub.nodes.registry.fleet
        row = fleet.row_of(lane.node_id)
        if row is None or not fleet.is_available(lane.node_id):
            return True
        return any(
            shape != lane.shape and bool(could_run(fleet, shape, slice(row, row + 1)).any())
            for shape in waiting
        )

    def _hand_over(
        self, places: Sequence[_Place], leased: dict[str, LeasedJob], kept: dict[str, CheckpointRow]
    ) -> None:
        """Leased attempts go to their nodes; a job that another hub took simply leaves our backlog."""
        registry, now_ms = self._hub.nodes.registry, self._hub.now_ms()
        woken = set()
        for place in places:
            self._queue.placed(place.job_id)
            job, session = leased.get(place.job_id), registry.get(place.lane.node_id)
            if job is None or session is None:
                continue  # lost to another hub; or the node left this instant, and its lease will run out
            grant = grant_of(
                job,
                job_id=job.id,
                attempt_no=job.attempt_no,
                lane=place.lane.id,
                gpus=place.lane.gpus,
                price=place.offer.price,
                kept=kept.get(job.id),
            )
            registry.hold(session, place.lane, grant, since_ms=now_ms, hub_job=job.hub_job is not None)
            woken.add(session.node_id)
        self._close_unused(places)
        for node_id in woken:
            if (session := registry.get(node_id)) is not None:
                session.wake()

    def _undo(self, places: Sequence[_Place]) -> None:
        for place in places:
            self._backlog.restore(place.job_id)
        self._close_unused(places)

    def _close_unused(self, places: Sequence[_Place]) -> None:
        for lane in {place.lane.id: place.lane for place in places}.values():
            if not lane.attempts:
                self._hub.nodes.registry.close_lane(lane)
                self._lanes.pop(lane.id, None)


def _lease(
    tx: Tx, *, attempts: Mapping[str, dict[str, Any]], lease_ms: int
) -> tuple[dict[str, LeasedJob], dict[str, CheckpointRow]]:
    """Queued → leased for those that are still queued, with an attempt row each; and what they go on from."""
    leased = job_rows.lease_jobs(tx, list(attempts))
    queued, placed, live = JobState.QUEUED.value, Reason.PLACED.value, JobState.LEASED.value
    shared = {
        "state": AttemptState.LEASED.value,
        "reason": placed,
        "lease_until_ms": tx.now_ms + lease_ms,
        "leased_at_ms": tx.now_ms,
    }
    rows: list[dict[str, Any]] = []
    for job_id, attempt in attempts.items():
        job = leased.get(job_id)
        if job is None:
            continue
        attempt_id = attempt_rows.attempt_id(job.id, job.attempt_no)
        rows.append({**attempt, **shared, "id": attempt_id, "number": job.attempt_no})
        tx.emit(
            actor="hub",
            action="job.leased",
            account_id=job.account_id,
            job_id=job.id,
            attempt_id=attempt_id,
            node_id=attempt["node_id"],
            group_id=job.group_id,
            before=queued,
            after=live,
            reason=placed,
        )
        tx.touch(f"job:{job.id}")
    if rows:
        attempt_rows.insert_attempts(tx, rows)
    return leased, checkpoints.resume(tx, leased.values())
