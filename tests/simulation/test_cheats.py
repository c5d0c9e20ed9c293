"""Cheats against the real rules: few wrong results are believed, few jobs run twice, and nobody honest is banned."""

from __future__ import annotations

from statistics import mean

import pytest

from simulation.cheat_report import Cell, table
from simulation.cheats import ATTACKS, CHEATS, RULES, Attack, play

TWICE, UNBANNED, _, THOROUGH, _, PRODUCT, FORGIVING = RULES
BY_NAME = {attack.name: attack for attack in ATTACKS}
#: The most that may be believed for 10 000 jobs, in each of these pools: about three times what was found.
BOUNDS = {"wrong 10 % of the time": 25, "sleeper after 60 jobs": 10, "colluding sleepers": 10, "whitewash": 35}


@pytest.mark.soak
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_the_rule_keeps_wrong_results_out_without_doing_the_work_twice(attack: Attack) -> None:
    found = play(PRODUCT, attack, seed=11)
    assert found.wrong <= BOUNDS[attack.name]
    assert found.executions <= 1.2
    assert found.honest_banned == 0


@pytest.mark.soak
def test_sleepers_are_all_found_and_their_wrong_results_with_them() -> None:
    """Bans alone come too late: what was believed before the first violation has to be looked at again."""
    colluding = BY_NAME["colluding sleepers"]
    found = [play(THOROUGH, colluding, seed=seed) for seed in (11, 15)]
    busy = [play(PRODUCT, colluding, seed=seed, days=20) for seed in (11, 15)]
    forgiving = play(FORGIVING, colluding, seed=11)
    assert [tally.cheats_banned for tally in (*found, *busy, forgiving)] == [CHEATS] * 5
    assert max(tally.executions for tally in (*found, *busy)) <= 1.2
    assert mean(tally.wrong for tally in found) <= 3 < 10 < forgiving.wrong
    assert mean(tally.wrong for tally in busy) <= 3


@pytest.mark.soak
def test_without_bans_collusion_wins_even_where_everything_runs_twice() -> None:
    colluding = BY_NAME["colluding sleepers"]
    twice = play(TWICE, colluding, seed=13, jobs=20_000, nodes=150)
    assert twice.executions >= 2
    assert twice.wrong > 10
    assert play(UNBANNED, colluding, seed=13).wrong > 10


@pytest.mark.soak
def test_a_pool_without_cheats_believes_nothing_wrong_and_bans_nobody_for_accidents() -> None:
    harmless = Attack(name="none", share=0.0)
    assert play(PRODUCT, harmless, seed=14, jobs=10_000).wrong == 0
    accidents = play(PRODUCT, harmless, seed=14, jobs=20_000, honest_faults=0.002)
    assert accidents.honest_banned <= 1
    assert 0 < accidents.wrong <= 30
    assert accidents == play(PRODUCT, harmless, seed=14, jobs=20_000, honest_faults=0.002)


def test_the_tables_have_a_row_for_every_rule_and_attack() -> None:
    small = {
        attack.name: [play(PRODUCT, attack, seed=seed, jobs=600, nodes=60) for seed in (0, 1)] for attack in ATTACKS
    }
    cells = [Cell(rule, attack, small[attack.name]) for attack in ATTACKS for rule in RULES]
    text = table(cells, busy=cells[:1], spread=cells[:1], accidents=cells[:1])
    for name in (*(rule.name for rule in RULES), ATTACKS[0].name):
        assert f"\n| {name} |" in text
