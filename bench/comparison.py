"""Our figures compared with those of the peers and the floors: ratios, verdicts, and the printed table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bench.peers.measure import Measured
from bench.table import Figure

#: Numbers of one run that differ by less than this are equal, because the machine itself drifts by as much.
TIE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One measurement of our system and the others alike."""

    title: str
    ours: str  #: the name of our figure
    theirs: str  #: the field of the peers


QUESTIONS = (
    Question(title="no-op calls, 2 slots", ours="no-op functions, durable, end to end", theirs="calls_per_s"),
    Question(
        title="items of a map, 2 slots: ours several to a job, theirs one task each",
        ours="tiny items of a map, several to a job, durable",
        theirs="calls_per_s",
    ),
    Question(title="one call on an idle system, p50", ours="one function on an idle pool, p50", theirs="call_p50_ms"),
    Question(
        title="one process per task", ours="commands (/bin/true) as plain processes, durable", theirs="processes_per_s"
    ),
    Question(
        title="one sandboxed process per task", ours="commands (/bin/true) in bubblewrap, durable", theirs="boxed_per_s"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    question: str
    system: str
    ours: float | None
    theirs: float
    low: float
    high: float
    verdict: str  #: better, tie or worse; for a floor, the meaning of the ratio; empty if ours was not measured

    @property
    def value(self) -> float | None:
        return None if self.ours is None else self.ours / self.theirs


def merged(runs: Iterable[Sequence[Figure]]) -> list[Figure]:
    """Combine equal figures of several runs: the median, with the range in the note."""
    by_name: dict[str, list[Figure]] = {}
    for figures in runs:
        for figure in figures:
            by_name.setdefault(figure.name, []).append(figure)
    return [_median(same) for same in by_name.values()]


def _median(same: list[Figure]) -> Figure:
    if len(same) == 1:
        return same[0]
    values = [figure.value for figure in same]
    span = f"{len(values)} runs: {min(values):,.1f}–{max(values):,.1f}"
    note = "; ".join(part for part in (span, same[0].note) if part)
    return replace(same[0], value=statistics.median(values), note=note)


def verdict(ours: float, theirs: float, *, lower_is_better: bool) -> str:
    advantage = theirs / ours if lower_is_better else ours / theirs
    # Symmetric: if one is 25 % faster, it is better and the other one is worse.
    if advantage >= 1 + TIE:
        return "better"
    return "worse" if advantage <= 1 / (1 + TIE) else "tie"


def ratios(figures: Sequence[Figure], systems: Sequence[Measured]) -> list[Ratio]:
    named = {figure.name: figure for figure in figures}
    return [
        _ratio(question, named.get(question.ours), system, values=values)
        for question in QUESTIONS
        for system in systems
        if (values := _values(system, question.theirs))
    ]


def _values(system: Measured, field: str) -> list[float]:
    found = getattr(system, field)
    if found is None:
        return []
    return list(found) if isinstance(found, list) else [found]


def _ratio(question: Question, ours: Figure | None, system: Measured, *, values: list[float]) -> Ratio:
    theirs = statistics.median(values)
    comparison = ""
    if ours is not None and system.floor:
        comparison = "× the floor"
    elif ours is not None:
        comparison = verdict(ours.value, theirs, lower_is_better=ours.lower_is_better)
    return Ratio(
        question=question.title,
        system=system.name + (" *" if system.on_disk else ""),
        ours=None if ours is None else ours.value,
        theirs=theirs,
        low=min(values),
        high=max(values),
        verdict=comparison,
    )


def table(figures: Sequence[Figure], systems: Sequence[Measured]) -> list[str]:
    """Every figure with its target, then the comparisons."""
    lines = [str(figure) for figure in figures]
    named = {figure.name: figure for figure in figures}
    found = ratios(figures, systems)
    for question in QUESTIONS:
        rows = [ratio for ratio in found if ratio.question == question.title]
        if not rows:
            continue
        unit = "ms" if question.theirs.endswith("_ms") else "/s"
        lines += ["", _heading(question, named.get(question.ours))]
        lines += [_row(ratio, unit) for ratio in rows]
    spent = [(system.name, system.cpu_us_per_call) for system in systems if system.cpu_us_per_call]
    if spent:
        each = ", ".join(f"{name} {cost:,.0f}" for name, cost in spent)
        lines += ["", f"CPU µs per no-op call, whole process tree: {each}"]
    return lines


def _heading(question: Question, ours: Figure | None) -> str:
    if ours is None:
        return f"{question.title}: ours was not measured"
    target = f"; {ours.target_text}" if ours.target_text else ""
    better = "less" if ours.lower_is_better else "more"
    return f"{question.title} ({better} is better): ours {ours.value:,.1f} {ours.unit}{target}"


def _row(ratio: Ratio, unit: str) -> str:
    span = f"({ratio.low:,.0f}–{ratio.high:,.0f})" if ratio.low != ratio.high else ""
    comparison = "" if ratio.value is None else f"ours/this {ratio.value:6.2f}  {ratio.verdict}"
    return f"    {ratio.system:<40} {ratio.theirs:>10,.1f} {unit:<3}{span:<18} {comparison}".rstrip()
