"""The comparison: every family is tuned on some pools, then the winners and predefined arms run on fresh ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from simulation.rules import Arm, Floats
from simulation.running import Result, predict, schedule
from simulation.worlds import DAYS, SCENARIOS, make

STARTS = (0.5, 0.8, 0.95)
SPARSE, DENSE = 3, 15  #: rounds per day: 18 and 90 jobs per node in total


@dataclass(frozen=True)
class Size:
    """The size of the study."""

    tuning: range = range(6)  #: seeds
    fresh: range = range(1_000, 1_024)  #: used only once, after all decisions
    days: int = DAYS
    rounds_per_day: int = 5  #: 30 jobs per node in total
    scenarios: tuple[str, ...] = SCENARIOS


QUICK = Size(tuning=range(1), fresh=range(100, 102), days=12, scenarios=("static", "degrade", "whitewash"))


def grids() -> dict[str, list[Arm]]:
    """24 configurations for each family."""
    return {
        "ema": [
            Arm(name=f"EMA α {1 - k:.2g}, start {m}, random {e:.0%}", family="ema", keep=k, start=m, explore=e)
            for k, m, e in product((0.98, 0.95, 0.9, 0.8), STARTS, (0.0, 0.05))
        ],
        "plain": [
            Arm(
                name=f"plain Beta m0 {m}, n0 {n}, z {z}, Thompson {e:.0%}",
                family="plain",
                keep=1.0,
                start=m,
                prior=n,
                caution=z,
                explore=e,
            )
            for m, n, z, e in product(STARTS, (2.0, 4.0), (0.0, 0.5), (0.0, 0.05))
        ],
        "discounted": [
            Arm(
                name=f"disc. Beta λ {k}, m0 {m}, n0 {n}, z {z}",
                family="discounted",
                keep=k,
                start=m,
                prior=n,
                caution=z,
            )
            for k, m, n, z in product((0.9, 0.95), STARTS, (2.0, 4.0), (0.0, 0.5))
        ],
    }


_BETA = Arm(name="", family="discounted")
_PRODUCT = replace(_BETA, name="disc. Beta, z .5, fading", caution=0.5, fades=True)
FIXED = (
    Arm(name="EMA α .1, start .8", family="ema", keep=0.9),
    Arm(name="EMA α .1, start .8, random 5 %", family="ema", keep=0.9, explore=0.05),
    Arm(name="EMA α .1, start .5", family="ema", keep=0.9, start=0.5),
    Arm(name="EMA α .1, start .95", family="ema", keep=0.9, start=0.95),
    Arm(name="plain Beta", family="plain", keep=1.0),
    replace(_BETA, name="disc. Beta"),
    replace(_BETA, name="disc. Beta, z .5", caution=0.5),
    replace(_BETA, name="disc. Beta, z 1", caution=1.0),
    replace(_BETA, name="disc. Beta, z 1, Thompson 5 %", caution=1.0, explore=0.05),
    replace(_BETA, name="disc. Beta, m0 .95, z 1", start=0.95, caution=1.0),
    _PRODUCT,
    replace(_PRODUCT, name="… and bands of .083 (all verified)", band=0.5 / 6),
    replace(_PRODUCT, name="disc. Beta, z .5, fading, success ¼", success_weight=0.25),
    replace(_PRODUCT, name="… and bands of .083 (as now)", band=0.5 / 6, success_weight=0.25),
)


@dataclass(frozen=True)
class Line:
    """One arm, over all scenarios and fresh pools. Shares are from 0 to 1."""

    name: str
    failed: float
    difference: float  #: of the failures from those of the tuned EMA in the same pools
    margin: float  #: two standard errors of the difference
    washed: float
    late: float
    after_break: float
    gini: float
    by_scenario: dict[str, float] = field(default_factory=dict)

    @property
    def tie(self) -> bool:
        return abs(self.difference) <= self.margin


@dataclass(frozen=True)
class Study:
    lines: list[Line]
    tuned: dict[str, str]  #: family → its best configuration
    regret: dict[str, tuple[float, float]]  #: arm → worst excess of log-loss over the best arm, sparse and dense
    size: Size


def run(size: Size) -> Study:
    winners = {family: _tune(arms, size) for family, arms in grids().items()}
    tuned = [replace(arm, name=f"tuned: {arm.name}") for arm in winners.values()]
    arms = [*tuned, *FIXED]
    results = {
        name: schedule(arms, make(name, size.fresh, rounds_per_day=size.rounds_per_day, days=size.days))
        for name in size.scenarios
    }
    return Study(
        lines=[_line(number, arm.name, results) for number, arm in enumerate(arms)],  # the first is the tuned EMA
        tuned={family: arm.name for family, arm in winners.items()},
        regret=_regrets(size),
        size=size,
    )


def _tune(arms: Sequence[Arm], size: Size) -> Arm:
    """The arm with the fewest failures on the tuning pools, with equal weight for all scenarios."""
    failed = [
        schedule(arms, make(name, size.tuning, rounds_per_day=size.rounds_per_day, days=size.days)).failed.mean(axis=1)
        for name in size.scenarios
    ]
    return arms[int(np.argmin(np.mean(failed, axis=0)))]


def _line(number: int, name: str, results: dict[str, Result]) -> Line:
    differences = np.concatenate([result.failed[number] - result.failed[0] for result in results.values()])

    def of(what: str, scenario: str) -> float:
        return float(getattr(results[scenario], what)[number].mean()) if scenario in results else float("nan")

    return Line(
        name=name,
        failed=float(np.mean([result.failed[number].mean() for result in results.values()])),
        difference=float(differences.mean()),
        margin=float(2 * differences.std(ddof=1) / np.sqrt(differences.size)),
        washed=of("washed", "whitewash"),
        late=float(np.mean([result.late[number].mean() for result in results.values()])),
        after_break=of("after_break", "degrade"),
        gini=float(np.mean([result.gini[number].mean() for result in results.values()])),
        by_scenario={name: float(result.failed[number].mean()) for name, result in results.items()},
    )


PREDICTORS = (
    FIXED[0],
    Arm(name="EMA α .05, start .8", family="ema", keep=0.95),
    Arm(name="plain Beta", family="plain", keep=1.0),
    replace(_BETA, name="disc. Beta"),
    replace(_PRODUCT, name="disc. Beta, fading"),
)


def _regrets(size: Size) -> dict[str, tuple[float, float]]:
    """The worst over all scenarios, relative to the arm that predicts best in each."""
    found: list[Floats] = []
    for rounds_per_day in (SPARSE, DENSE):
        losses = np.array(
            [
                predict(PREDICTORS, make(name, size.tuning, rounds_per_day=rounds_per_day, days=size.days)).mean(axis=1)
                for name in size.scenarios
            ]
        )
        found.append((losses / losses.min(axis=1, keepdims=True) - 1).max(axis=0))
    return {arm.name: (float(found[0][number]), float(found[1][number])) for number, arm in enumerate(PREDICTORS)}
