"""Checkpoints: which ones are kept, how much of the job's time they cover, and what each attempt of a chain is paid.

A run of a job may consist of several attempts, each resuming from a checkpoint of an earlier one. They share the job's
time limit and the money for one run. Each is paid for its own time up to the checkpoint that was used, by the hub's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from computepool.core.money.pricing import affordable_ms, charge_of


class Refusal(StrEnum):
    """Why a checkpoint is not kept. The job continues, and the previous checkpoint stays."""

    NOT_LIVE = "not_live"  #: the attempt is over, or another one has the job
    OLD = "old"  #: a newer checkpoint of the attempt is kept already
    TOO_SOON = "too_soon"
    PROGRESS = "progress"  #: less progress than at the attempt's previous checkpoint
    EMPTY = "empty"  #: it has no files

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Refusal.NOT_LIVE: "This attempt no longer has the job.",
    Refusal.OLD: "A newer checkpoint of this attempt has already been kept.",
    Refusal.TOO_SOON: "The previous checkpoint was kept only a moment ago.",
    Refusal.EMPTY: "The checkpoint has no file to resume from.",
    Refusal.PROGRESS: "The progress is less than at the previous checkpoint; a checkpoint cannot go back.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A kept or reported checkpoint, as far as the rules need it."""

    attempt_no: int
    seq: int
    at_ms: int  #: when the hub received it
    progress: float | None
    last: bool  #: it is the attempt's final checkpoint, before a stop or a move
    files: int = 1


def refusal(kept: Checkpoint | None, reported: Checkpoint, *, gap_ms: int) -> Refusal | None:
    """Why a checkpoint is not kept; None if it is. An attempt's one final checkpoint is never too soon."""
    if not reported.files:
        return Refusal.EMPTY
    if kept is None:
        return None
    same = kept.attempt_no == reported.attempt_no
    if same and reported.seq <= kept.seq:
        return Refusal.OLD
    if reported.at_ms - kept.at_ms < gap_ms and not (reported.last and not (same and kept.last)):
        return Refusal.TOO_SOON
    if same and kept.progress is not None and reported.progress is not None and reported.progress < kept.progress:
        return Refusal.PROGRESS
    return None


def progress_after(kept: float | None, reported: float | None) -> float | None:
    """Never decreases, although a job that resumes may count its remaining work from 0 again."""
    known = [share for share in (kept, reported) if share is not None]
    return max(known, default=None)


def covered_ms(*, reported_ms: int, leased_at_ms: int, now_ms: int, lane_left_ms: int, limit_left_ms: int) -> int:
    """The attempt's own time up to its checkpoint: as reported by the node, but no more than is possible."""
    return max(0, min(reported_ms, now_ms - leased_at_ms, lane_left_ms, limit_left_ms))


def earned_ms(longest_ms: int, progress: float | None) -> int:
    """The most of the job's time limit that all checkpoints so far may cover and be paid for: the share of work done.

    So a checkpoint that claims no progress earns nothing, and costs the attempt that resumes from it no time.
    """
    return 0 if progress is None else int(longest_ms * min(1.0, max(0.0, progress)))


def left_ms(longest_ms: int, covered_before_ms: int) -> int:
    """The part of the job's time limit that earlier attempts have not used."""
    return max(0, longest_ms - covered_before_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One attempt, and the checkpoint that it resumed from."""

    number: int
    price: int
    resumed_no: int | None  #: the attempt that made the checkpoint
    resumed_ms: int  #: that attempt's own time up to the checkpoint


@dataclass(frozen=True, slots=True)
class RunPart:
    number: int
    billed_ms: int
    charge: int


def contributions(links: Mapping[int, Link], last: int, *, money: int, longest_ms: int) -> tuple[RunPart, ...]:
    """The contributions of the attempts before `last` to its run, oldest first, each within the remaining money and time."""
    chain: list[tuple[Link, int]] = []
    link = links[last]
    # An attempt resumes from an earlier one, so numbers only decrease; anything else ends the chain.
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
