"""Hardware truth: the tier that a node is paid for, from measurements and from the run times of its jobs.

A claim (the name of a GPU, or just "a core") is believed until a measurement contradicts it. Measurements and run times
can lower a tier, but never raise it above the claim. The name of an unknown GPU claims only its family; its tier follows
from the measurement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from computepool.core.resources import CPU_TIER, UNKNOWN_GPU_TIER, Capacity
from computepool.core.trust.relative_speed import NO_SLOWDOWN, RelativeSpeed
from computepool.core.trust.tiers import REFERENCE_SCORE, TIER_GFLOPS, TIER_SPEED, family_of, speed_of

#: No machine is faster. Larger values are clipped and reported.
BOUNDS: Mapping[str, int] = {
    "cpu": 5_000,
    "memory_mb_s": 400_000,
    "disk_mb_s": 30_000,
    "net_mb_s": 12_500,
    "rtt_us": 60_000_000,
}
#: An overclocked or well-cooled card may be faster than the table says, but never by this factor.
GFLOPS_BOUND = 2
#: Per cent of a tier's known performance. A node keeps its tier down to KEEP, and reaches one from REACH on. The distance
#: covers two measurements of one machine that are off by 20 % in either direction, so tiers do not flap.
KEEP, REACH = 40, 60
#: The minimum score of each class of cores, best first.
CPU_CLASSES: tuple[tuple[str, int], ...] = ((CPU_TIER, 500), ("cpu-slow", 150), ("cpu-tiny", 0))


class Standing(StrEnum):
    CLAIMED = "claimed"  #: not measured yet
    CONFIRMED = "confirmed"
    MEASURED = "measured"  #: an unknown card, whose tier follows from the measurement
    LOWERED = "lowered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One measurement. None means not measured."""

    cpu: int | None = None  #: of one core, 1000 = REFERENCE
    memory_mb_s: int | None = None
    disk_mb_s: int | None = None
    net_mb_s: int | None = None
    rtt_us: int | None = None
    gflops: tuple[int | None, ...] = ()  #: of each card, for a product of half-precision matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    cpu_tier: str = CPU_TIER  #: in effect
    gpu_tiers: tuple[str, ...] = ()  #: in effect, by card
    standing: Standing = Standing.CLAIMED
    reason: str = ""  #: why a tier was last lowered or restored, for its owner
    scores: Scores = Scores()
    notes: tuple[str, ...] = ()  #: what could not be measured, or cannot be true
    measured_at_ms: int = 0
    history: tuple[tuple[int, Scores], ...] = ()  #: earlier measurements, newest first
    #: Upper bounds from the run times of its jobs, as a score of a core and as GFLOPS of a card, and their expiry.
    cpu_cap: int | None = None
    gpu_cap: int | None = None
    capped_until_ms: int = 0
    cpu_speed: RelativeSpeed = NO_SLOWDOWN
    gpu_speed: RelativeSpeed = NO_SLOWDOWN
    doubted_at_ms: int = 0  #: since when its run times are too long; 0 if they are not
    due_at_ms: int = 0  #: when to measure again

    def speed(self, *, cards: bool) -> RelativeSpeed:
        return self.gpu_speed if cards else self.cpu_speed

    def with_speed(self, speed: RelativeSpeed, *, cards: bool) -> Truth:
        changed = {"gpu_speed" if cards else "cpu_speed": speed}
        return dataclasses.replace(self, **changed)  # type: ignore[arg-type]


UNKNOWN = Truth()


def clip(scores: Scores, claims: Sequence[str]) -> tuple[Scores, tuple[str, ...]]:
    """The scores clipped to what is possible, and a sentence for each impossible one. Impossible cards become unmeasured."""
    notes = []
    values: dict[str, Any] = {}
    for name, most in BOUNDS.items():
        score = getattr(scores, name)
        values[name] = None if score is None else max(0, min(score, most))
        if score is not None and score > most:
            notes.append(f"{name} of {score} is impossible and counts as {most}")
    cards: list[int | None] = []
    for claim, score in zip(claims, scores.gflops, strict=False):
        most = GFLOPS_BOUND * TIER_GFLOPS.get(claim, max(TIER_GFLOPS.values()))
        impossible = score is not None and score > most
        if impossible:
            notes.append(f"{score} GFLOPS is impossible for {claim} and does not count")
        cards.append(None if score is None or impossible else max(0, score))
    return Scores(**values, gflops=tuple(cards)), tuple(notes)


def cpu_class(score: int | None, before: str = CPU_TIER) -> str:
    """The class of a core by its score. `before` is the current class, which is kept slightly below its threshold."""
    if score is None:
        return CPU_TIER
    for name, least in CPU_CLASSES:
        needed = least * KEEP // REACH if _is_at_most(before, name) else least
        if score >= needed:
            return name
    return CPU_CLASSES[-1][0]


def _is_at_most(before: str, name: str) -> bool:
    """Whether the current class is this one or a better one, so that this one only has to be kept, not reached."""
    names = [known for known, _ in CPU_CLASSES]
    return before in names and names.index(before) <= names.index(name)


def gpu_tier(claim: str, gflops: int | None, before: str | None = None) -> str:
    """The tier that a card with this claim is paid for: never above the claim or, if that is unknown, its family. A slower
    card never gets a higher tier.
    """
    rate, least, is_known = TIER_GFLOPS.get(claim), speed_of(UNKNOWN_GPU_TIER), claim in TIER_SPEED
    if gflops is None or (is_known and (rate is None or speed_of(claim) <= least)):
        return claim  # paid no more than an unknown card, so there is nothing to lower
    held = claim if before is None else before
    if rate is not None and gflops * 100 >= (KEEP if held == claim else REACH) * rate:
        return claim
    found = [
        (speed_of(tier), known, tier)
        for tier, known in TIER_GFLOPS.items()
        if tier != claim
        and least < speed_of(tier)
        and _is_within(tier, claim)
        and gflops * 100 >= (KEEP if tier == held else REACH) * known
    ]
    return max(found)[2] if found else UNKNOWN_GPU_TIER if is_known else claim


def _is_within(tier: str, claim: str) -> bool:
    """Whether a card with this claim may get the tier."""
    if claim not in TIER_SPEED:
        return family_of(tier) == family_of(claim)
    return speed_of(tier) <= speed_of(claim) and TIER_GFLOPS[tier] <= TIER_GFLOPS[claim]


def allowed_score(tier: str, slowdown: float) -> int:
    """The GFLOPS, or score of a core, that run times `slowdown` times longer than on other nodes of the tier allow."""
    classes = dict(CPU_CLASSES)
    if tier in classes:
        # The minimum score of the nodes that a node of this class is compared with.
        return int((REFERENCE_SCORE if tier == CPU_TIER else classes[tier]) / slowdown)
    # As if measured: a card without slowdown must just reach the tier.
    return int(TIER_GFLOPS.get(tier, 0) * REACH / 100 / slowdown)


def decide(truth: Truth, claims: Sequence[str], *, now_ms: int) -> Truth:
    """The tiers that follow from the facts, for cards with these claims."""
    capped = truth.capped_until_ms > now_ms
    cpu_cap, gpu_cap = (truth.cpu_cap, truth.gpu_cap) if capped else (None, None)
    cpu = cpu_class(_least(truth.scores.cpu, cpu_cap), truth.cpu_tier)
    tiers: list[str] = []
    seen = [*truth.scores.gflops, *[None] * len(claims)]
    held = [*truth.gpu_tiers, *[None] * len(claims)]
    for claim, gflops, before in zip(claims, seen, held, strict=False):
        tier = gpu_tier(claim, _least(gflops, gpu_cap), before)
        unknown = claim not in TIER_GFLOPS and speed_of(claim) > speed_of(UNKNOWN_GPU_TIER)
        # Other makers' cards cannot be measured, so only the run times of their jobs are known.
        tiers.append(UNKNOWN_GPU_TIER if unknown and gpu_cap is not None else tier)
    speed, measured = (truth.gpu_speed, seen[: len(claims)]) if claims else (truth.cpu_speed, [truth.scores.cpu])
    standing = Standing.CONFIRMED if None not in measured or speed.keeps_up else Standing.CLAIMED
    changed = [claim for claim, tier in zip(claims, tiers, strict=True) if claim != tier]
    if changed:
        standing = Standing.MEASURED
    if cpu != CPU_TIER or any(claim in TIER_SPEED for claim in changed):
        standing = Standing.LOWERED
    return dataclasses.replace(truth, cpu_tier=cpu, gpu_tiers=tuple(tiers), standing=standing)


def _least(first: int | None, second: int | None) -> int | None:
    return min((value for value in (first, second) if value is not None), default=None)


def truthful(capacity: Capacity, truth: Truth) -> Capacity:
    """The capacity with the tiers in effect instead of the claimed ones."""
    gpus = tuple(
        dataclasses.replace(gpu, tier=truth.gpu_tiers[index]) if index < len(truth.gpu_tiers) else gpu
        for index, gpu in enumerate(capacity.gpus)
    )
    return dataclasses.replace(capacity, gpus=gpus, cpu_tier=truth.cpu_tier)
