"""Seven kinds of pools: the true state of their nodes at each moment, independent of any rule. Seeded, equal for all arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.rules import Floats, Mask

SCENARIOS = ("static", "degrade", "recover", "on-off", "whitewash", "churn", "return")
DAYS = 60
NODES = 200
BAD_SHARE = 0.15
LATE_SHARE = 0.2
LATE_DAY = 30
#: Good nodes succeed with Beta(23.5, 1.5), on average 94 %; bad ones with 30 to 80 %.
GOOD = (23.5, 1.5)
BAD = (0.3, 0.8)


@dataclass(frozen=True)
class World:
    """[round, pool, node] unless said otherwise."""

    truth: Floats  #: its probability of success
    here: Mask  #: whether it takes jobs
    luck: Floats  #: a job succeeds if luck < truth
    noise: Floats  #: breaks ties
    chance: Floats  #: standard normal, for exploration
    fresh: Mask  #: a new node has taken this number
    washers: Mask  #: [pool, node]: whitewashers return with a new name when it pays
    late: Mask  #: [pool, node]: joined on LATE_DAY
    broken_from: NDArray[np.int64]  #: [pool, node]: the round in which it broke; the number of rounds if it did not
    days_per_round: float


def make(scenario: str, seeds: range, *, rounds_per_day: int, days: int = DAYS) -> World:
    parts = [_pool(scenario, seed, rounds_per_day * days, rounds_per_day=rounds_per_day) for seed in seeds]
    axis = {"washers": 0, "late": 0, "broken_from": 0}
    stacked = {name: np.stack([part[name] for part in parts], axis=axis.get(name, 1)) for name in parts[0]}
    return World(**stacked, days_per_round=1 / rounds_per_day)


def _pool(scenario: str, seed: int, rounds: int, *, rounds_per_day: int) -> dict[str, NDArray[np.generic]]:
    random = np.random.default_rng([SCENARIOS.index(scenario), seed])
    bad = random.random(NODES) < BAD_SHARE
    truth = np.tile(np.where(bad, random.uniform(*BAD, NODES), random.beta(*GOOD, NODES)), (rounds, 1))
    late = random.random(NODES) < LATE_SHARE
    here = random.random((rounds, NODES)) < 0.5  # owners use their machines half of the time
    day = np.arange(rounds) / rounds_per_day
    here &= ~late | (day[:, None] >= min(LATE_DAY, day[-1] / 2))
    made: dict[str, NDArray[np.generic]] = {
        "fresh": np.zeros((rounds, NODES), bool),
        "washers": np.zeros(NODES, bool),
        "broken_from": np.full(NODES, rounds),
        "luck": random.random((rounds, NODES)),
        "noise": random.random((rounds, NODES)),
        "chance": random.standard_normal((rounds, NODES)),
        "late": late,
        "truth": truth,
        "here": here,
    }
    if scenario != "static":
        _STORIES[scenario](made, random, bad, day)
    return made


def _degrade(made: dict, random: np.random.Generator, bad: Mask, day: Floats) -> None:  # type: ignore[type-arg]
    breaks = ~bad & (random.random(NODES) < 0.2)
    when = random.uniform(0.25, 0.75, NODES) * day[-1]
    broken = breaks & (day[:, None] >= when)
    made["truth"][broken] = 0.5
    made["broken_from"] = np.where(breaks, np.searchsorted(day, when), day.size)


def _recover(made: dict, random: np.random.Generator, bad: Mask, day: Floats) -> None:  # type: ignore[type-arg]
    when = random.uniform(0.25, 0.75, NODES) * day[-1]
    made["truth"][bad & (day[:, None] >= when)] = 0.95


def _on_off(made: dict, random: np.random.Generator, bad: Mask, day: Floats) -> None:  # type: ignore[type-arg]
    phase = random.uniform(0, 12, NODES)
    good_now = ((day[:, None] + phase) // 6) % 2 == 0
    made["truth"][:, bad] = np.where(good_now, 0.97, 0.4)[:, bad]


def _whitewash(made: dict, _random: np.random.Generator, bad: Mask, _day: Floats) -> None:  # type: ignore[type-arg]
    made["washers"] = bad.copy()


def _churn(made: dict, random: np.random.Generator, _bad: Mask, day: Floats) -> None:  # type: ignore[type-arg]
    """Every day, two of a hundred nodes are replaced by others."""
    fresh = random.random((day.size, NODES)) < 0.02 * day[1]
    made["fresh"] = fresh
    for at, node in np.argwhere(fresh):
        lottery = random.random() < BAD_SHARE
        made["truth"][at:, node] = random.uniform(*BAD) if lottery else random.beta(*GOOD)


def _return(made: dict, random: np.random.Generator, _bad: Mask, day: Floats) -> None:  # type: ignore[type-arg]
    """Three of ten nodes are away from one third to three quarters of the time; half of them return as another machine."""
    away = random.random(NODES) < 0.3
    gone, back = day >= day[-1] / 3, day >= 0.75 * day[-1]
    made["here"][np.ix_(gone & ~back, away)] = False
    other = away & (random.random(NODES) < 0.5)
    drawn = np.where(random.random(NODES) < 0.5, random.uniform(*BAD, NODES), random.beta(*GOOD, NODES))
    made["truth"][np.ix_(back, other)] = drawn[other]


_STORIES = {
    "degrade": _degrade,
    "recover": _recover,
    "on-off": _on_off,
    "whitewash": _whitewash,
    "churn": _churn,
    "return": _return,
}
