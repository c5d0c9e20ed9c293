"""The study of cheats as tables."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median, stdev

from simulation.cheats import ATTACKS, DAYS, RULES, Attack, Rule, Tally, play

SEEDS = range(4)
HUBS = RULES[5]
#: More pools for the hub's rule, because a sleeper that is lucky for long decides the result of a few.
MORE_SEEDS = range(100, 120)
#: The same jobs in a third of the time: a week then has more results of a node than are checked again.
BUSY_DAYS = 20
#: In the last table, the share of honest nodes' results that are wrong by accident.
ACCIDENTS = 0.002


@dataclass(frozen=True)
class Cell:
    rule: Rule
    attack: Attack
    tallies: list[Tally]

    @property
    def text(self) -> str:
        wrong = [tally.wrong for tally in self.tallies]
        executions = mean(tally.executions for tally in self.tallies)
        return f"{mean(wrong):.1f} ± {stdev(wrong):.1f} @ {executions:.2f}"


def study(
    seeds: range = SEEDS, *, honest_faults: float = 0.0, days: int = DAYS, rules: tuple[Rule, ...] = RULES
) -> list[Cell]:
    return [
        Cell(rule, attack, [play(rule, attack, seed=seed, days=days, honest_faults=honest_faults) for seed in seeds])
        for attack in ATTACKS
        for rule in rules
    ]


def table(cells: list[Cell], *, busy: list[Cell], spread: list[Cell], accidents: list[Cell]) -> str:
    """In Markdown."""
    attacks = [attack.name for attack in ATTACKS]
    rows = [
        f"Wrong results accepted per 10 000 jobs @ executions per job ({len(cells[0].tallies)} seeds, ± standard deviation):",
        "",
        f"| rule | {' | '.join(attacks)} |",
        f"|---|{'---:|' * len(attacks)}",
    ]
    rows += [f"| {rule.name} | {' | '.join(c.text for c in cells if c.rule == rule)} |" for rule in RULES]
    banned = sum(tally.honest_banned for cell in cells for tally in cell.tallies)
    rows += ["", f"Honest nodes banned in all of these {len(cells) * len(cells[0].tallies)} pools: {banned}.", ""]
    rows += [
        f"The hub's rule if the same jobs come in {BUSY_DAYS} days, seven per day and node:",
        "",
        f"| rule | {' | '.join(attacks)} |",
        f"|---|{'---:|' * len(attacks)}",
        f"| {busy[0].rule.name} | {' | '.join(cell.text for cell in busy)} |",
        "",
        f"The hub's rule in {len(spread[0].tallies)} other pools with two jobs per day and node:",
        "",
        "| attack | wrong @ executions | median | worst |",
        "|---|---:|---:|---:|",
        *(_spread_row(cell) for cell in spread),
        "",
        f"The same with accidents: honest nodes are wrong {100 * ACCIDENTS:.1f} % of the time.",
        "",
        "| attack | wrong @ executions | honest nodes banned, of 285 |",
        "|---|---:|---:|",
        *(_accident_row(cell) for cell in accidents),
    ]
    return "\n".join(rows)


def _spread_row(cell: Cell) -> str:
    wrong = [tally.wrong for tally in cell.tallies]
    return f"| {cell.attack.name} | {cell.text} | {median(wrong):.1f} | {max(wrong):.1f} |"


def _accident_row(cell: Cell) -> str:
    banned = [tally.honest_banned for tally in cell.tallies]
    return f"| {cell.attack.name} | {cell.text} | {mean(banned):.1f} (at most {max(banned)}) |"


def run() -> str:
    product = (HUBS,)
    return table(
        study(),
        busy=study(days=BUSY_DAYS, rules=product),
        spread=study(MORE_SEEDS, rules=product),
        accidents=study(honest_faults=ACCIDENTS, rules=product),
    )
