"""The distinct owner rules of a fleet, numbered, so that one small integer column says which rules each node has.

Most nodes have no rules and many share theirs, so a job is checked once against each distinct set, not once per node.
"""

from __future__ import annotations

from collections import Counter

from computepool.core.placement.rules import NONE, Demand, Rules


class RuleBook:
    """Number 0 means no rules. Other numbers are reused once no node has their rules."""

    def __init__(self) -> None:
        self._rules: list[Rules] = [NONE]
        self._numbers: dict[Rules, int] = {NONE: 0}
        self._nodes: Counter[int] = Counter()
        self._free: list[int] = []
        self.scored = False  #: some owner requires a minimum submitter score

    def __getitem__(self, number: int) -> Rules:
        return self._rules[number]

    @property
    def empty(self) -> bool:
        return len(self._numbers) == 1

    def change(self, before: int, rules: Rules) -> int:
        """Replace a node's rules, given the number of its previous ones. Returns the number of the new ones."""
        after = self._numbers.get(rules)
        if after is None:
            if not self._free:
                self._free.append(len(self._rules))
                self._rules.append(rules)
            after = self._numbers[rules] = self._free.pop()
            self._rules[after] = rules
        self._nodes[after] += 1
        self._nodes[before] -= 1
        if before and not self._nodes[before]:
            del self._numbers[self._rules[before]]
            self._free.append(before)
        self.scored = any(known.score_min > 0 for known in self._numbers)
        return after

    def verdicts(self, aspect: str, demand: Demand) -> list[bool]:
        """By number. The entries of free numbers are meaningless."""
        return [rules.admits(aspect, demand) for rules in self._rules]

    def scores_min(self) -> list[float]:
        return [rules.score_min for rules in self._rules]
