"""Dispatch: gives queued jobs to nodes. Memory proposes, and the store decides.

The backlog in memory says which job is next, and the allocator where it fits. A guarded update in the store then leases the
job, unless another hub was faster. Very short jobs are given to a node several at a time: they share one reservation, a *lane*,
and run in it one after the other, so that many of them cost one exchange with the hub.

Rounds place jobs that are in the store. A small submission that arrives while no round is under way is placed before it is
written: one transaction writes and leases its jobs, so that a job for an idle node waits for one commit instead of two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeAlias, TypeVar

from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.core.money.market import Offer
from computepool.core.placement.allocator import Placement
from computepool.core.placement.choice import is_chosen_by_pool
from computepool.core.placement.exploration import Explorer
from computepool.core.placement.gangs import WaitingGang
from computepool.core.placement.gates import could_run, still_agreed
from computepool.core.resources import Shape
from computepool.hub.clock import Clock
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import Lane, LiveAttempt
from computepool.hub.jobs import attempt_rows, gang_rows, rows as job_rows
from computepool.hub.jobs.queue import NewJobs
from computepool.hub.jobs.rows import LeasedJob
from computepool.hub.jobs.running import checkpoints
from computepool.hub.jobs.running.checkpoint_rows import CheckpointRow
from computepool.hub.scheduling.grants import grant_of
from computepool.hub.settings import Settings

T = TypeVar("T")
#: How many jobs of one submission may be leased in its transaction; larger submissions gain little.
_SUBMITTED_MAX = 16
#: If more shapes than this are queued, one of them surely needs the node.
_SHAPES_COMPARED_MAX = 32
#: By id, jobs that were leased, with the checkpoints from which they resume.
_Leased: TypeAlias = dict[str, tuple[LeasedJob, CheckpointRow | None]]


@dataclass(frozen=True, slots=True)
class _Place:
    """One job on its way to a lane."""

    job_id: str
    lane: Lane
    offer: Offer
    gang: str = ""  #: placed with others, or not at all

    def attempt(self) -> dict[str, Any]:
        """The columns of its attempt that are known before it is leased."""
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


def explorer_of(settings: Settings, clock: Clock) -> Explorer | None:
    seed = int.from_bytes(clock.entropy(8), "big")
    return Explorer(Random(seed), settings.explore_share) if settings.explore_share else None


class Dispatcher:
    def __init__(self, hub: Hub) -> None:
        self._hub, self._registry, self._fleet = hub, hub.nodes.registry, hub.nodes.registry.fleet
        self._queue, self._backlog = hub.jobs.queue, hub.jobs.queue.backlog
        self._lanes = hub.scheduling.lanes

    async def rounds(self) -> None:
        more = True
        while more:
            async with self._queue.placing:
                more = await self._round()
            await asyncio.sleep(0)  # many shapes that fit nowhere must not keep polls waiting

    async def _round(self) -> bool:
        """Place what can be placed. True if another round may place more."""
        places = self._choose()
        if not places:
            return self._backlog.can_take_more(self._fleet)
        try:
            leased = await self._hub.store.write(self._lease_of(places))
        except Exception:
            self._undo(places)
            raise
        self._hand_over(places, leased)
        return len(self._backlog) > 0

    async def submit(self, new: NewJobs, insert: Callable[[Tx], tuple[T, bool]]) -> tuple[T, bool] | None:
        """Insert these jobs, and in the same transaction lease those that fit somewhere now; the others are queued.

        `insert` returns its reply, and whether that is about these jobs or an earlier request. None: nothing was done, so the
        jobs are to be inserted first and placed by a round. Not to be cancelled: what is committed must reach its node.
        """
        busy = self._queue.placing.locked() or self._hub.process.stopping
        if busy or len(new.job_ids) > _SUBMITTED_MAX:
            return None
        async with self._queue.placing:
            self._queue.add_submitted(new)
            places = self._choose()
            if not places:
                self._forget(new)
                return None
            fresh = False
            try:
                reply, fresh, leased = await self._hub.store.write(
                    partial(_insert_and_lease, insert=insert, lease=self._lease_of(places))
                )
            finally:
                if not fresh:
                    self._undo(places)
                    self._forget(new)
                    self._queue.wake()  # for other jobs that were chosen with these
            if fresh:
                self._hand_over(places, leased)
        if len(self._backlog):
            self._queue.wake()
        return reply, fresh

    def _forget(self, new: NewJobs) -> None:
        for job_id in new.job_ids:
            self._queue.forget(job_id)

    def _choose(self) -> list[_Place]:
        self._backlog.release_due(self._hub.now_ms())
        if self._queue.gangs or self._fleet.withheld is not None:
            self._keep_nodes_for_gangs()
        return self._new_lanes() + self._top_up()

    def _keep_nodes_for_gangs(self) -> None:
        waiting = [
            WaitingGang(job_id, self._backlog.shape_of(job_id), gang.since_ms)
            for job_id, gang in self._queue.gangs.items()
            if job_id in self._backlog and self._backlog.ready_at_ms(job_id) is None
        ]
        self._hub.scheduling.gang_hold.update(self._fleet, waiting, self._hub.now_ms())

    def _lease_of(self, places: Sequence[_Place]) -> Callable[[Tx], _Leased]:
        attempts = {place.job_id: place.attempt() for place in places}
        gangs: dict[str, list[str]] = {}
        for place in places:
            if place.gang:
                gangs.setdefault(place.gang, []).append(place.job_id)
        return partial(_lease, attempts=attempts, gangs=gangs, lease_ms=self._registry.lease_ms)

    def _new_lanes(self) -> list[_Place]:
        places: list[_Place] = []
        limit, explorer = self._hub.settings.dispatch_batch_max, self._hub.scheduling.explorer
        for job_id, placement in self._backlog.take(self._fleet, limit, explorer):
            if placement.others:
                places += self._gang(job_id, placement)
                continue
            node = self._fleet[placement.node_id]
            lane = self._lane(job_id, placement)
            offer = self._offer(lane)
            # A newcomer gets the jobs of others one by one, however short they are: it may lose all that it holds.
            newcomer = node.is_newcomer and lane.owner != lane.shape.account
            if newcomer or lane.shape.avoid_owners:  # results of newcomers, and checks, count for records
                lane.narrow = not is_chosen_by_pool(self._fleet, lane.shape)
            places.append(_Place(job_id, lane, offer))
            # A lane counts as one job of those that its node may hold, because it is paid for its time as a whole.
            depth = 1 if newcomer else self._depth(self._queue.spec_of(job_id))
            if depth > 1:
                self._lanes[lane.id] = lane
                more = self._backlog.take_like(lane.shape, depth - 1)
                places += [_Place(like, lane, offer) for like in more]
        return places

    def _lane(self, job_id: str, placement: Placement) -> Lane:
        return Lane(
            id=f"{self._hub.process.hub_id}-{next(self._registry.lane_numbers)}",
            node_id=placement.node_id,
            owner=self._fleet[placement.node_id].profile.owner,
            shape=self._backlog.shape_of(job_id),
            reservation=placement.reservation,
            since_ms=self._hub.now_ms(),
        )

    def _gang(self, first: str, placement: Placement) -> list[_Place]:
        """A lane for each member: the backlog knows a gang by its first."""
        lanes = [self._lane(first, each) for each in (placement, *placement.others)]
        members = self._queue.gangs[first].members
        pairs = zip(members, lanes, strict=True)
        return [_Place(job_id, lane, self._offer(lane), gang=first) for job_id, lane in pairs]

    def _depth(self, digest: str) -> int:
        """How many jobs of this spec one lane may hold: one while their run time is unknown, then what fits `lane_work_ms`."""
        known_ms = self._hub.jobs.run_lengths.of(digest)
        if known_ms is None:
            return 1
        settings = self._hub.settings
        return max(1, min(settings.lane_depth_max, int(settings.lane_work_ms / max(known_ms, 0.1))))

    def _offer(self, lane: Lane) -> Offer:
        """The current price, which stays fixed for the attempts that are leased now."""
        return self._hub.money.market.offer(lane.shape, self._fleet[lane.node_id].profile)

    def _top_up(self) -> list[_Place]:
        """Refill half-empty lanes, unless another shape waits for their nodes: a lane must not occupy a node for ever."""
        places: list[_Place] = []
        waiting = self._backlog.shapes() if self._lanes else {}
        for lane in list(self._lanes.values()):
            if not lane.attempts and lane.reservation is None:
                del self._lanes[lane.id]
            if not lane.attempts:
                continue  # closed, or opened in this round
            depth = self._depth(self._recent_spec(lane))
            if len(lane.attempts) * 2 > depth or self._is_needed_by_others(lane, waiting):
                continue
            node = self._fleet.get(lane.node_id)
            if node is not None and not still_agreed(self._fleet, lane.shape, node.row):
                continue  # the price or the owner's floor has changed since the lane was opened
            offer = self._offer(lane)
            more = self._backlog.take_like(lane.shape, depth - len(lane.attempts))
            places += [_Place(job_id, lane, offer) for job_id in more]
        return places

    def _recent_spec(self, lane: Lane) -> str:
        session = self._registry.get(lane.node_id)
        attempt_id = next(iter(lane.attempts))
        attempt = session.attempts.get(attempt_id) if session is not None else None
        return attempt.grant.spec if attempt is not None else ""

    def _is_needed_by_others(self, lane: Lane, waiting: Mapping[Shape, int]) -> bool:
        if len(waiting) > _SHAPES_COMPARED_MAX or not self._fleet.is_available(lane.node_id):
            return True
        row = self._fleet[lane.node_id].row
        return any(
            shape != lane.shape and bool(could_run(self._fleet, shape, slice(row, row + 1)).any()) for shape in waiting
        )

    def _hand_over(self, places: Sequence[_Place], leased: _Leased) -> None:
        """Give leased attempts to their nodes. Jobs that another hub has taken leave the backlog."""
        now_ms, woken = self._hub.now_ms(), {}
        for place in places:
            self._queue.forget_placed(place.job_id)
            session = self._registry.get(place.lane.node_id)
            if place.job_id not in leased or session is None:
                continue  # another hub has taken it; or the node has just left, and the lease will run out
            job, checkpoint = leased[place.job_id]
            grant = grant_of(
                job,
                job_id=job.id,
                attempt_no=job.attempt_no,
                lane=place.lane.id,
                gpus=place.lane.gpus,
                price=place.offer.price,
                checkpoint=checkpoint,
                settings=self._hub.settings,
            )
            self._registry.hold(session, LiveAttempt(place.lane, grant, now_ms, hub_job=job.hub_job is not None))
            woken[session.node_id] = session
        self._close_unused(places)
        for session in woken.values():
            session.wake()

    def _undo(self, places: Sequence[_Place]) -> None:
        for place in places:
            self._backlog.restore(place.job_id)
        self._close_unused(places)

    def _close_unused(self, places: Sequence[_Place]) -> None:
        for lane in {place.lane.id: place.lane for place in places}.values():
            if not lane.attempts:
                self._registry.close_lane(lane)
                self._lanes.pop(lane.id, None)


def _insert_and_lease(
    tx: Tx, *, insert: Callable[[Tx], tuple[T, bool]], lease: Callable[[Tx], _Leased]
) -> tuple[T, bool, _Leased]:
    reply, fresh = insert(tx)
    return reply, fresh, lease(tx) if fresh else {}


def _lease(
    tx: Tx, *, attempts: Mapping[str, dict[str, Any]], gangs: Mapping[str, Sequence[str]], lease_ms: int
) -> _Leased:
    """Lease the jobs that are still queued, with an attempt each; of a gang all members, or none."""
    if gangs:
        whole = gang_rows.whole(tx, gangs)
        left_out = {job_id for gang, job_ids in gangs.items() if gang not in whole for job_id in job_ids}
        attempts = {job_id: attempt for job_id, attempt in attempts.items() if job_id not in left_out}
        if not attempts:
            return {}
    nodes = {job_id: attempt["node_id"] for job_id, attempt in attempts.items()}
    only = next(iter(nodes.values())) if len(set(nodes.values())) == 1 else None
    leased = job_rows.lease_jobs(tx, list(attempts), node_id=only)
    if only is None:
        job_rows.set_nodes(tx, {job_id: nodes[job_id] for job_id in leased})
    shared = {
        "state": AttemptState.LEASED.value,
        "reason": Reason.PLACED.value,
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
            before=JobState.QUEUED.value,
            after=JobState.LEASED.value,
            reason=Reason.PLACED.value,
        )
        tx.touch(f"job:{job.id}")
    attempt_rows.insert_attempts(tx, rows)
    resumed = checkpoints.resume(tx, leased.values())
    return {job_id: (job, resumed.get(job_id)) for job_id, job in leased.items()}
