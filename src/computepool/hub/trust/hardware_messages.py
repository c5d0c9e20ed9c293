"""Hardware truth for people: what a node claims, what was found, and why it is paid by another tier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from computepool.core.resources import CPU_TIER
from computepool.core.trust.hardware import Standing, Truth
from computepool.core.trust.relative_speed import RelativeSpeed
from computepool.core.trust.tiers import REFERENCE_SCORE, TIER_GFLOPS, speed_of
from computepool.protocol.nodes.hardware import HardwareView, MeasuredView, ScoresView

TRIED_AGAIN = "Its jobs were too slow some time ago; its claim is being tried again."
_GFLOPS_PER_TFLOPS = 1000


def changes(before: Truth, after: Truth, claimed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Tiers that changed: before and after."""
    if before.cpu_tier != after.cpu_tier:
        yield before.cpu_tier, after.cpu_tier
    held = before.gpu_tiers or tuple(claimed)
    for old, new in dict.fromkeys(zip(held, after.gpu_tiers, strict=False)):
        if old != new:
            yield old, new


def after_measuring(before: Truth, after: Truth, claimed: Sequence[str]) -> str:
    """Why a measurement changed a tier; empty if it did not."""
    sentences = []
    if before.cpu_tier != after.cpu_tier:
        sentences.append(
            f"A core scored {after.scores.cpu} ({REFERENCE_SCORE} is the reference): its cores count as {after.cpu_tier}."
        )
    held = before.gpu_tiers or tuple(claimed)
    for index, (old, new) in enumerate(zip(held, after.gpu_tiers, strict=False)):
        if old == new:
            continue
        claim = claimed[index]
        gflops = after.scores.gflops[index] if index < len(after.scores.gflops) else None
        if new == claim:
            sentences.append(f"GPU {index} counts as {claim} again, as it claims.")
        elif gflops is not None and claim not in TIER_GFLOPS:
            sentences.append(
                f"GPU {index} ({claim}) is in no price table and reached {_tflops(gflops)} TFLOPS: it counts as {new}, the "
                "best of its family that it matches."
            )
        elif gflops is not None:
            sentences.append(
                f"GPU {index} claims {claim}, which reaches {_tflops(TIER_GFLOPS[claim])} TFLOPS, and reached "
                f"{_tflops(gflops)}: it counts as {new}."
            )
    return " ".join(sentences)


def after_comparing(before: Truth, after: Truth, *, tier: str, speed: RelativeSpeed) -> str:
    counts = after.cpu_tier if before.cpu_tier != after.cpu_tier else ", ".join(dict.fromkeys(after.gpu_tiers))
    return (
        f"Its last {speed.jobs} jobs took {speed.slowdown:.1f} times as long as the same jobs on other nodes of {tier}: "
        f"it counts as {counts}."
    )


def _tflops(gflops: int) -> str:
    return f"{gflops / _GFLOPS_PER_TFLOPS:.3g}"


def view(truth: Truth, claimed: Sequence[str]) -> HardwareView:
    """`claimed`: the tiers that the node claims for its cards."""
    claim = max(claimed, key=speed_of, default=CPU_TIER)
    speed = truth.gpu_speed if claimed else truth.cpu_speed
    return HardwareView(
        claimed=claim,
        tier=max(truth.gpu_tiers or tuple(claimed), key=speed_of, default=truth.cpu_tier),
        cpu_tier=truth.cpu_tier,
        standing=truth.standing.value,
        sentence=sentence(truth, claimed),
        scores=ScoresView.from_attributes(truth.scores),
        notes=list(truth.notes),
        measured_at_ms=truth.measured_at_ms or None,
        slowdown=round(speed.slowdown, 2) if speed.weight else None,
        compared_jobs=speed.jobs,
        history=[
            MeasuredView(at_ms=at_ms, scores=ScoresView.from_attributes(scores)) for at_ms, scores in truth.history
        ],
    )


def sentence(truth: Truth, claimed: Sequence[str]) -> str:
    """For the node's owner: whether the claim holds."""
    claim = ", ".join(dict.fromkeys(claimed)) or CPU_TIER
    if truth.standing is Standing.LOWERED:
        return truth.reason or f"It claims {claim} and counts as less."
    if truth.standing is Standing.MEASURED:
        return truth.reason or f"No price table lists {claim}; it counts as what it was measured to reach."
    if truth.standing is Standing.CONFIRMED:
        return f"The measurements confirm its claim ({claim})."
    why = f" ({truth.notes[0]})" if truth.notes else ""
    return f"It claims {claim}; this has not been measured{why}."
