"""Cheating nodes: how many wrong results a pool accepts under the real rules, and how many executions it pays for.

Checks, decisions, violations and bans come from core/trust/verification.py and core/trust/reputation.py; this module only
adds nodes and chance. Every node has its own owner, jobs go to random nodes, and wrong answers all differ unless the cheats
collude.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from computepool.core.money.pricing import PPM
from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import NEWCOMER, Evidence, Reputation, ReputationEvent, update
from computepool.core.trust.verification import (
    CHECK_FLOOR_PPM,
    Mode,
    Result,
    Ruling,
    VerificationPolicy,
    check_chance,
    judge,
)

NODES, CHEATS, JOBS, DAYS = 300, 15, 40_000, 60
#: The latest unchecked results, which are checked after a violation.
RECHECKED_MAX = 40
_RIGHT = 0


@dataclass(frozen=True, kw_only=True)
class Attack:
    name: str
    share: float = 1.0  #: share of its results that are wrong
    wakes_after: int = 0  #: number of honest jobs before that
    colludes: bool = False  #: all cheats give the same wrong answer to a job
    washes: bool = False  #: after a violation it returns as an unknown node


@dataclass(frozen=True, kw_only=True)
class Rule:
    name: str
    policy: VerificationPolicy = field(default_factory=lambda: VerificationPolicy(Mode.ADAPTIVE))
    floor_ppm: int = 0
    bans: bool = True
    recheck_days: int = DAYS  #: maximum age of results that are checked after a violation; 0: none are


ATTACKS = (
    Attack(name="wrong 10 % of the time", share=0.1),
    Attack(name="sleeper after 60 jobs", wakes_after=60),
    Attack(name="colluding sleepers", wakes_after=60, colludes=True),
    Attack(name="whitewash", wakes_after=20, colludes=True, washes=True),
)
RULES = (
    Rule(name="always two", policy=VerificationPolicy(Mode.QUORUM, quorum=2), bans=False, recheck_days=0),
    Rule(name="by streak, no ban", bans=False, recheck_days=0),
    Rule(name="with violations, ban and re-checks"),
    Rule(name="… and a floor of 5 %", floor_ppm=CHECK_FLOOR_PPM),
    Rule(name="… and a floor of 10 %", floor_ppm=2 * CHECK_FLOOR_PPM),
    Rule(name="floor 5 %, re-checks of 7 days (the hub's)", floor_ppm=CHECK_FLOOR_PPM, recheck_days=7),
    Rule(name="floor 5 %, no re-checks", floor_ppm=CHECK_FLOOR_PPM, recheck_days=0),
)


@dataclass(slots=True)
class Unchecked:
    """A result that was accepted without a check."""

    at_ms: int
    job: int
    answer: int


@dataclass(slots=True)
class Node:
    number: int
    cheat: bool
    known: Reputation = NEWCOMER
    done: int = 0
    unchecked: deque[Unchecked] = field(default_factory=lambda: deque(maxlen=RECHECKED_MAX))

    @property
    def banned(self) -> bool:
        return self.known.banned_at_ms > 0


@dataclass(frozen=True)
class Tally:
    wrong: float  #: wrong results accepted and never corrected, per 10 000 jobs
    executions: float  #: per job
    honest_banned: int
    cheats_banned: int


class Pool:
    def __init__(self, rule: Rule, attack: Attack, *, seed: int, nodes: int, days: int, honest_faults: float) -> None:
        self.rule, self.attack, self.days, self.honest_faults = rule, attack, days, honest_faults
        self.random = Random(f"{attack.name} {seed}")
        self.nodes = [Node(number, cheat=number < nodes * CHEATS // NODES) for number in range(nodes)]
        self.now_ms = self.executions = self.wrong = self.answers = 0
        self.washed = 0

    def run(self, jobs: int) -> Tally:
        for job in range(jobs):
            self.now_ms = 1 + job * self.days * DAY_MS // jobs
            self._one(job)
        return Tally(
            wrong=self.wrong * 10_000 / jobs,
            executions=self.executions / jobs,
            honest_banned=sum(node.banned for node in self.nodes if not node.cheat),
            cheats_banned=sum(node.banned for node in self.nodes if node.cheat) + self.washed,
        )

    def _one(self, job: int) -> None:
        first = self._somebody([])
        answer = self._execute(first, job)
        chance = check_chance(first.known.streak, floor_ppm=self.rule.floor_ppm)
        if self.rule.policy.mode is Mode.ADAPTIVE and self.random.randrange(PPM) >= chance:
            first.unchecked.append(Unchecked(self.now_ms, job, answer))
            self.wrong += answer != _RIGHT
            return
        decided = self._compare(job, [(first, answer)], accepted=False)
        self.wrong += decided != _RIGHT  # a statement of its own, because `_compare` changes the count, too

    def _compare(self, job: int, found: list[tuple[Node, int]], *, accepted: bool) -> int:
        """Run the job on other nodes until the rule decides which answer counts. `accepted`: the first one was before."""
        while True:
            streaks = [node.known.streak for node, _ in found]
            results = [Result(kind=kind, streak=streak) for (_, kind), streak in zip(found, streaks, strict=True)]
            decision = judge(self.rule.policy, results)
            if decision.ruling is Ruling.DIFFER:  # strict policies get no result, the others the first one
                return _RIGHT if self.rule.policy.strict else found[0][1]
            if decision.ruling is Ruling.ACCEPT:
                break
            other = self._somebody([node for node, _ in found])
            found.append((other, self._execute(other, job)))
        # A later check confirms a result that was accepted before.
        right = Evidence.CONFIRMED if accepted else Evidence.VERIFIED
        for place in decision.agreeing:
            self._learn(found[place][0], right)
        refuters = tuple(1 + found[place][0].number for place in decision.agreeing)
        for place in decision.wrong:
            self._penalise(found[place][0], job, refuters=refuters)
        return found[decision.agreeing[0]][1]

    def _penalise(self, node: Node, job: int, *, refuters: tuple[int, ...]) -> None:
        """Every job has its own, established submitter."""
        wrong = ReputationEvent("", Evidence.REFUTED, self.now_ms, by=1 + job, old=True, refuters=refuters)
        node.known = update(node.known, wrong)
        if not self.rule.bans and (node.banned or node.known.probation_at_ms):
            node.known = update(NEWCOMER, wrong)
        self._probe(node, job)
        pending = list(node.unchecked)
        node.unchecked.clear()
        for past in pending:
            if self.now_ms - past.at_ms < self.rule.recheck_days * DAY_MS:
                believed = self._compare(past.job, [(node, past.answer)], accepted=True)
                self.wrong += (believed != _RIGHT) - (past.answer != _RIGHT)
        if node.cheat and self.attack.washes:
            self.washed += node.banned
            node.known, node.done = NEWCOMER, 0

    def _probe(self, node: Node, job: int) -> None:
        """The hub's tests, which a cheat cannot distinguish from jobs."""
        while node.known.probation_at_ms:
            right = self._execute(node, job) == _RIGHT
            self._learn(node, Evidence.PROBE_RIGHT if right else Evidence.PROBE_WRONG)

    def _learn(self, node: Node, evidence: Evidence) -> None:
        node.known = update(node.known, ReputationEvent("", evidence, self.now_ms))

    def _somebody(self, busy: list[Node]) -> Node:
        while True:
            node = self.random.choice(self.nodes)
            if not node.banned and node not in busy:
                return node

    def _execute(self, node: Node, job: int) -> int:
        """The answer: 0 is right, all other numbers are wrong."""
        self.executions += 1
        node.done += 1
        if node.cheat:
            wrong = node.done > self.attack.wakes_after and self.random.random() < self.attack.share
        else:
            wrong = self.random.random() < self.honest_faults
        if not wrong:
            return _RIGHT
        if node.cheat and self.attack.colludes:
            return -1 - job
        self.answers += 1
        return self.answers


def play(
    rule: Rule,
    attack: Attack,
    *,
    seed: int,
    nodes: int = NODES,
    jobs: int = JOBS,
    days: int = DAYS,
    honest_faults: float = 0.0,
) -> Tally:
    return Pool(rule, attack, seed=seed, nodes=nodes, days=days, honest_faults=honest_faults).run(jobs)
