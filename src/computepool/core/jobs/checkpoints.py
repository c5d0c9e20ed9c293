"""Checkpoints: when one may be kept, how much of the job's time it covers, and what each attempt of a chain is paid.

Pure rules. A run of a job may be made by several attempts, each going on from a checkpoint of the one before. All of
them share the job's time limit and the money for one run; each is paid for its own time up to the checkpoint that
was really used, as the hub's clock saw it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from computepool.core.money.pricing import affordable_ms, charge_of


class Refusal(StrEnum):
    """Why a checkpoint is not kept. The job runs on, and the one before stays."""

    NOT_LIVE = "not_live"  #: the attempt is over, or another has the job
    OLD = "old"  #: a newer one of the attempt is there
    TOO_SOON = "too_soon"
    PROGRESS = "progress"  #: less was done than at the attempt's one before
    EMPTY = "empty"  #: there is nothing in it to go on from

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Refusal.NOT_LIVE: "This attempt no longer has the job.",
    Refusal.OLD: "A newer checkpoint of this attempt is there already.",
    Refusal.TOO_SOON: "The checkpoint before this one was kept a moment ago.",
    Refusal.EMPTY: "There is no file in it to go on from.",
    Refusal.PROGRESS: "The progress is less than at the checkpoint before; a checkpoint cannot go back.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """The job's checkpoint of this moment, as far as the rules need it."""

    attempt_no: int
    seq: int
    at_ms: int
    progress: float | None
    last: bool  #: it was the attempt's last word: before a stop, or a move


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCheckpoint:
    """What a node says of a new one."""

    attempt_no: int
    seq: int
    progress: float | None
    last: bool
    files: int = 1


def refusal(
    kept: StoredCheckpoint | None, reported: ReportedCheckpoint, *, now_ms: int, gap_ms: int
) -> Refusal | None:
    """None: it may be kept. The last word of an attempt is never too soon, but there is only one."""
    if not reported.files:
        return Refusal.EMPTY
    if kept is None:
        return None
    same = kept.attempt_no == reported.attempt_no
    if same and reported.seq <= kept.seq:
        return Refusal.OLD
    if now_ms - kept.at_ms < gap_ms and not (reported.last and not (same and kept.last)):
        return Refusal.TOO_SOON
    if (
        same
        and kept.progress is not None
        and reported.progress is not None
        and reported.progress < kept.progress
    ):
        return Refusal.PROGRESS
    return None


def progress_after(kept: float | None, reported: float | None) -> float | None:
    """Never goes back: a job that goes on from a checkpoint may count what is left of it from 0 again."""
    known = [share for share in (kept, reported) if share is not None]
    return max(known, default=None)


def covered_ms(
    *, reported_ms: int, leased_at_ms: int, now_ms: int, lane_left_ms: int, limit_left_ms: int
) -> int:
    """The attempt's own time up to its checkpoint: what the node says, within what anybody can have worked."""
    return max(0, min(reported_ms, now_ms - leased_at_ms, lane_left_ms, limit_left_ms))


def earned_ms(longest_ms: int, progress: float | None) -> int:
    """Of the job's time limit, the most that all checkpoints up to here may take, and be paid for: its share of the work.

    So one that claims no progress is worth nothing to who made it, and costs who goes on from it no time.
    """
    return 0 if progress is None else int(longest_ms * min(1.0, max(0.0, progress)))


def left_ms(longest_ms: int, covered_before_ms: int) -> int:
    """Of the job's time limit, what the attempts before have not used."""
    return max(0, longest_ms - covered_before_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One attempt, and where it went on from: an earlier attempt, at a checkpoint after so much of its time."""

    number: int
    price: int
    resumed_no: int | None
    resumed_ms: int


@dataclass(frozen=True, slots=True)
class RunPart:
    """What an attempt contributed to a run."""

    number: int
    billed_ms: int
    charge: int


def contributions(
    links: Mapping[int, Link], last: int, *, money: int, longest_ms: int
) -> tuple[RunPart, ...]:
    """What the attempts before `last` contributed to its run, oldest first; each within what money and time are left."""
    chain: list[tuple[Link, int]] = []
    link = links[last]
    # Numbers only go down: an attempt goes on from an earlier one. What says otherwise ends the chain.
    while link.resumed_no is not None and link.resumed_no < link.number and link.resumed_no in links:
        before = links[link.resumed_no]
        chain.append((before, link.resumed_ms))
        link = before
    parts: list[RunPart] = []
    for each, ms in reversed(chain):
        affordable = affordable_ms(each.price, money)
        billed = max(0, min(ms, longest_ms, ms if affordable is None else affordable))
        parts.append(RunPart(each.number, billed, charge_of(each.price, billed)))
        money -= parts[-1].charge
        longest_ms -= billed
    return tuple(parts)
