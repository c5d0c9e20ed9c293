"""Running pools: in each round, every arm assigns jobs to the nodes with the best scores, and learns the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.rules import Arm, Floats, Mask, State
from simulation.worlds import World

JOBS_PER_ROUND = 20
_NEVER = -1e9
_LOSS_FLOOR = 1e-3


@dataclass(frozen=True)
class Result:
    """[arm, pool]."""

    failed: Floats  #: share of the jobs
    washed: Floats  #: share of the jobs assigned to whitewashers
    late: Floats  #: share of the jobs assigned to late joiners since they joined
    after_break: Floats  #: average number of jobs that a broken node still got
    gini: Floats  #: inequality of the assignment: 0 is equal, 1 is everything to one node


def schedule(arms: Sequence[Arm], world: World) -> Result:
    rounds, pools, nodes = world.truth.shape
    state = State(arms, pools, nodes)
    jobs = np.zeros((len(arms), pools, nodes))
    bad, broken, lately = np.zeros_like(jobs), np.zeros_like(jobs), np.zeros_like(jobs)
    used = np.full(jobs.shape, -1.0)
    bands = np.array([arm.band for arm in arms])[:, None, None]
    explorers = [number for number, arm in enumerate(arms) if arm.explore]
    late_from = int(np.argmax((world.here & world.late).any(axis=(1, 2))))
    for now in range(rounds):
        state.forget(world.fresh[now])
        mean = state.mean()
        deviation = state.deviation(mean)
        score = mean - state.caution * deviation
        key = score + 1e-9 * world.noise[now]
        key = np.where(bands > 0, np.floor(score / np.maximum(bands, 1e-9)) - (used + 1) / (rounds + 2), key)
        key = np.where(world.here[now], key, _NEVER)
        for arm in explorers:
            drawn = _draws(arms[arm], mean[arm], deviation[arm], chance=world.chance[now])
            drawn = np.where(world.here[now], drawn, _NEVER)
            _lift(key[arm], drawn, world.noise[now, :, :JOBS_PER_ROUND] < arms[arm].explore)
        at = _best(key)
        good = world.luck[now][at[1:]] < world.truth[now][at[1:]]
        state.learn(at, good)
        jobs[at] += 1
        bad[at] += ~good
        used[at] = now
        broken[at] += now >= world.broken_from[at[1:]]
        lately[at] += now >= late_from
        state.fade(world.days_per_round)
        if world.washers.any():
            mean = state.mean()
            now_score = mean - state.caution * state.deviation(mean)
            state.forget(world.washers & (now_score < state.newcomer()))
    return _result(world, jobs, bad, extra=(broken, lately))


def _draws(arm: Arm, mean: Floats, deviation: Floats, *, chance: Floats) -> Floats:
    """An EMA explores at random; others draw from the posterior, approximated by a normal distribution."""
    return chance if arm.family == "ema" else mean + deviation * chance


def _lift(key: Floats, drawn: Floats, wanted: Mask) -> None:
    """In each pool, let the drawn values decide the exploring jobs."""
    for pool, count in enumerate(wanted.sum(axis=1).tolist()):
        if count:
            key[pool, np.argpartition(-drawn[pool], count)[:count]] += 10


def _best(key: Floats) -> tuple[NDArray[np.intp], ...]:
    """Indexes [arm, pool, node] of the chosen nodes, without absent ones."""
    chosen = np.argpartition(-key, JOBS_PER_ROUND, axis=2)[:, :, :JOBS_PER_ROUND]
    arm, pool = np.indices(chosen.shape)[:2]
    open_ = key[arm, pool, chosen] > _NEVER / 2
    return arm[open_], pool[open_], chosen[open_]


def _result(world: World, jobs: Floats, bad: Floats, *, extra: tuple[Floats, Floats]) -> Result:
    broken, lately = extra
    total = jobs.sum(axis=2)
    breaks = (world.broken_from < world.truth.shape[0]).sum(axis=1)
    ordered = np.sort(jobs, axis=2)
    ranks = np.arange(1, jobs.shape[2] + 1)
    gini = (2 * (ordered * ranks).sum(axis=2) / (jobs.shape[2] * total)) - (jobs.shape[2] + 1) / jobs.shape[2]
    return Result(
        failed=bad.sum(axis=2) / total,
        washed=(jobs * world.washers).sum(axis=2) / total,
        late=(lately * world.late).sum(axis=2) / np.maximum(1, lately.sum(axis=2)),
        after_break=broken.sum(axis=2) / np.maximum(1, breaks),
        gini=gini,
    )


def predict(arms: Sequence[Arm], world: World) -> Floats:
    """Mean log-loss of the next outcome, [arm, pool], with random assignment: how well each arm knows the nodes."""
    rounds, pools, nodes = world.truth.shape
    state = State(arms, pools, nodes)
    loss, count = np.zeros((len(arms), pools)), 0
    for now in range(rounds):
        state.forget(world.fresh[now])
        mean = np.clip(state.mean(), _LOSS_FLOOR, 1 - _LOSS_FLOOR)
        key = np.where(world.here[now], world.noise[now], _NEVER)
        at = _best(np.broadcast_to(key, mean.shape))
        good = world.luck[now][at[1:]] < world.truth[now][at[1:]]
        predicted = mean[at]
        np.add.at(loss, at[:2], -np.log(np.where(good, predicted, 1 - predicted)))
        count += JOBS_PER_ROUND
        state.learn(at, good)
        state.fade(world.days_per_round)
    return loss / count
