"""The comparison of rules runs, compares what it says it does, and the product's rule in it is the product's rule."""

from __future__ import annotations

import math
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import Evidence, Reputation, ReputationEvent, update
from simulation.report import figure, table
from simulation.rules import Arm, State
from simulation.running import schedule
from simulation.study import FIXED, QUICK, grids, run
from simulation.worlds import SCENARIOS, make


@pytest.mark.parametrize(("weight", "evidence"), [(1.0, Evidence.VERIFIED), (0.25, Evidence.UNVERIFIED)])
def test_the_simulated_rule_is_the_real_one(weight: float, evidence: Evidence) -> None:
    arm = replace(next(arm for arm in FIXED if arm.name == "disc. Beta, z .5, fading"), success_weight=weight)
    state, real = State([arm], 1, 1), Reputation()
    random, at = np.random.default_rng(7), (np.array([0]), np.array([0]), np.array([0]))
    for day in range(120):
        good = bool(random.random() < 0.8)
        state.learn(at, np.array([good]))
        real = update(real, ReputationEvent("n", evidence if good else Evidence.NODE_FAULT, day * DAY_MS))
        mean = state.mean()
        simulated = float((mean - state.caution * state.deviation(mean))[0, 0, 0])
        assert math.isclose(simulated, real.score(day * DAY_MS), abs_tol=1e-9)
        state.fade(1)


def test_an_ema_is_what_everybody_calls_one() -> None:
    state = State([Arm(name="", family="ema", keep=0.9)], 1, 1)
    at = (np.array([0]), np.array([0]), np.array([0]))
    for good, expected in [(True, 0.82), (False, 0.738)]:
        state.learn(at, np.array([good]))
        assert math.isclose(float(state.mean()[0, 0, 0]), expected)


def test_all_families_are_tuned_alike() -> None:
    sizes = {family: len({arm.name for arm in arms}) for family, arms in grids().items()}
    assert sizes == {"ema": 24, "plain": 24, "discounted": 24}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_world_is_the_same_twice_and_not_the_next(scenario: str) -> None:
    first, again, other = (make(scenario, range(s, s + 1), rounds_per_day=2, days=9) for s in (3, 3, 4))
    assert np.array_equal(first.truth, again.truth)
    assert not np.array_equal(first.truth, other.truth)
    assert (first.truth >= 0).all()
    assert (first.truth <= 1).all()


def test_an_arm_that_knows_nothing_gets_the_average_and_a_good_one_less_failures() -> None:
    world = make("static", range(4), rounds_per_day=5, days=20)
    blind = Arm(name="blind", family="ema", keep=1.0)
    failed = schedule([blind, FIXED[0]], world).failed.mean(axis=1)
    assert abs(failed[0] - (1 - world.truth[0].mean())) < 0.02
    assert failed[1] < failed[0] / 1.5


def test_the_whole_study_runs_small() -> None:
    study = run(QUICK)
    assert len(study.lines) == len(FIXED) + 3
    assert study.lines[0].difference == 0
    assert all(0 < line.failed < 0.5 for line in study.lines)
    again = run(QUICK)
    assert again.lines == study.lines
    assert study.lines[0].name in table(study)
    drawn = ElementTree.fromstring(figure(study))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == len(study.lines)
