"""The rules in force in a fleet, each kept once: a column of small numbers then says which node has which.

Most nodes have none and many share theirs, so a job is judged by each different set of rules, not by each node.
"""

from __future__ import annotations

from computepool.core.placement.rules import NONE, Demand, Rules


class RuleBook:
    def __init__(self) -> None:
        self._rules: list[Rules] = [NONE]
        self._nodes: list[int] = [0]  # that have them; those of number 0 are not counted
        self._numbers: dict[Rules, int] = {NONE: 0}
        self._free: list[int] = []
        self.ruled = 0  #: nodes that have any
        self._scored = 0  # and those that ask for a submitter's score

    def __getitem__(self, number: int) -> Rules:
        return self._rules[number]

    @property
    def scored(self) -> bool:
        """Whether some owner asks for a submitter's score."""
        return self._scored > 0

    def change(self, before: int, rules: Rules) -> int:
        """The number of `rules`, for a node that had those of `before`."""
        after = self._enter(rules)
        self._leave(before)
        return after

    def verdicts(self, aspect: str, demand: Demand) -> list[bool]:
        """By number. Those of numbers that nobody has mean nothing."""
        return [rules.admits(aspect, demand) for rules in self._rules]

    def scores_min(self) -> list[float]:
        return [rules.score_min for rules in self._rules]

    def _enter(self, rules: Rules) -> int:
        number = self._numbers.get(rules)
        if number is None:
            if not self._free:
                self._free.append(len(self._rules))
                self._rules.append(rules)
                self._nodes.append(0)
            number = self._numbers[rules] = self._free.pop()
            self._rules[number] = rules
        if number:
            self._nodes[number] += 1
            self.ruled += 1
            self._scored += rules.score_min > 0
        return number

    def _leave(self, number: int) -> None:
        if not number:
            return
        self._nodes[number] -= 1
        self.ruled -= 1
        self._scored -= self._rules[number].score_min > 0
        if not self._nodes[number]:
            del self._numbers[self._rules[number]]
            self._free.append(number)
