"""The study of cheats as tables, beside the figures that the rule was chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median, stdev

from simulation.cheats import ATTACKS, DAYS, RULES, Attack, Rule, Tally, play

SEEDS = range(4)
HUBS = RULES[5]
#: For the rule as it is, because few pools decide: a sleeper that is lucky for long.
MORE_SEEDS = range(100, 120)
#: The same jobs in a third of the time: a week then holds more of a node's results than are looked at again.
BUSY_DAYS = 20
#: The share of an honest node's results that are wrong by accident, in the last table.
ACCIDENTS = 0.002
#: Wrong results for 10 000 jobs @ executions a job, in a study made before the rule was built; in the order of RULES.
EARLIER: dict[str, tuple[str, ...]] = {
    "wrong 10 % of the time": (
        "0 @ 2.01",
        "30.6 ± 7.4 @ 1.10",
        "10.4 ± 5.2 @ 1.10",
        "10.6 ± 5.4 @ 1.11",
        "3.4 ± 1.8 @ 1.15",
    ),
    "sleeper after 60 jobs": (
        "0 @ 2.07",
        "21.0 ± 7.3 @ 1.14",
        "3.3 ± 4.8 @ 1.11",
        "0.0 @ 1.11",
        "0.0 @ 1.15",
    ),
    "colluding sleepers": (
        "39.1 ± 13.9 @ 2.07",
        "42.6 ± 10.8 @ 1.15",
        "0.6 ± 0.7 @ 1.11",
        "0.9 ± 1.2 @ 1.11",
        "0.1 @ 1.15",
    ),
}


@dataclass(frozen=True)
class Cell:
    rule: Rule
    attack: Attack
    tallies: list[Tally]

    @property
    def words(self) -> str:
        wrong = [tally.wrong for tally in self.tallies]
        executions = mean(tally.executions for tally in self.tallies)
        return f"{mean(wrong):.1f} ± {stdev(wrong):.1f} @ {executions:.2f}"


def study(
    seeds: range = SEEDS, *, honest_faults: float = 0.0, days: int = DAYS, rules: tuple[Rule, ...] = RULES
) -> list[Cell]:
    return [
        Cell(
            rule,
            attack,
            [play(rule, attack, seed=seed, days=days, honest_faults=honest_faults) for seed in seeds],
        )
        for attack in ATTACKS
        for rule in rules
    ]


def table(cells: list[Cell], *, busy: list[Cell], spread: list[Cell], accidents: list[Cell]) -> str:
    """In Markdown."""
    attacks = [attack.name for attack in ATTACKS]
    rows = [
        f"Wrong results believed for 10 000 jobs @ executions a job ({len(cells[0].tallies)} seeds, ± standard deviation):",
        "",
        f"| rule | {' | '.join(attacks)} |",
        f"|---|{'---:|' * len(attacks)}",
    ]
    rows += [f"| {rule.name} | {' | '.join(c.words for c in cells if c.rule == rule)} |" for rule in RULES]
    rows += ["", "The same in the study that the rule was chosen by:", ""]
    rows += [f"| rule | {' | '.join(EARLIER)} |", f"|---|{'---:|' * len(EARLIER)}"]
    rows += [
        f"| {rule.name} | {' | '.join(said[number] for said in EARLIER.values())} |"
        for number, rule in enumerate(RULES[: len(EARLIER["colluding sleepers"])])
    ]
    banned = sum(tally.honest_banned for cell in cells for tally in cell.tallies)
    rows += [
        "",
        f"Honest nodes banned in all of these {len(cells) * len(cells[0].tallies)} pools: {banned}.",
        "",
    ]
    rows += [
        f"The hub's rule where the same jobs come in {BUSY_DAYS} days, seven a day for each node:",
        "",
        f"| rule | {' | '.join(attacks)} |",
        f"|---|{'---:|' * len(attacks)}",
        f"| {busy[0].rule.name} | {' | '.join(cell.words for cell in busy)} |",
        "",
        f"The hub's rule in {len(spread[0].tallies)} other pools of two jobs a day:",
        "",
        "| attack | wrong @ executions | median | worst |",
        "|---|---:|---:|---:|",
        *(_spread_row(cell) for cell in spread),
        "",
        f"The same with accidents: honest nodes, too, are wrong {100 * ACCIDENTS:.1f} % of the time.",
        "",
        "| attack | wrong @ executions | honest nodes banned, of 285 |",
        "|---|---:|---:|",
        *(_accident_row(cell) for cell in accidents),
    ]
    return "\n".join(rows)


def _spread_row(cell: Cell) -> str:
    wrong = [tally.wrong for tally in cell.tallies]
    return f"| {cell.attack.name} | {cell.words} | {median(wrong):.1f} | {max(wrong):.1f} |"


def _accident_row(cell: Cell) -> str:
    banned = [tally.honest_banned for tally in cell.tallies]
    return f"| {cell.attack.name} | {cell.words} | {mean(banned):.1f} (at most {max(banned)}) |"


def run() -> str:
    product = (HUBS,)
    return table(
        study(),
        busy=study(days=BUSY_DAYS, rules=product),
        spread=study(MORE_SEEDS, rules=product),
        accidents=study(honest_faults=ACCIDENTS, rules=product),
    )
