"""The study as a table and as a figure, whose SVG needs only lines, circles and text."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from simulation.study import Line, Study

_WIDTH, _ROW, _TOP, _LABEL = 1080, 26, 64, 370
_INK, _PALE, _BLUE, _GREY = "#1f2328", "#d0d7de", "#0969da", "#6e7781"


def table(study: Study) -> str:
    """In Markdown."""
    rows = [
        "| rule | failed | difference ± 2se | | whitewashers' share | late joiners' share | jobs after a break | Gini |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    rows += [_row(line, first=not number) for number, line in enumerate(study.lines)]
    rows += ["", "Failures by scenario, in percent:", ""]
    names = list(study.lines[0].by_scenario)
    rows += [f"| rule | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    rows += [
        f"| {line.name} | {' | '.join(f'{100 * line.by_scenario[name]:.2f}' for name in names)} |"
        for line in study.lines
    ]
    rows += ["", "Worst excess of log-loss over the best of these rules, jobs given at random:", ""]
    rows += ["| rule | sparse | dense |", "|---|---:|---:|"]
    rows += [f"| {name} | {100 * few:.1f} % | {100 * many:.1f} % |" for name, (few, many) in study.regret.items()]
    return "\n".join(rows)


def _row(line: Line, *, first: bool) -> str:
    sign = "" if first else f"{100 * line.difference:+.2f} ± {100 * line.margin:.2f}"
    verdict = "" if first else "tie" if line.tie else "worse" if line.difference > 0 else "better"
    return (
        f"| {line.name} | {100 * line.failed:.2f} % | {sign} | {verdict} | {100 * line.washed:.1f} % "
        f"| {100 * line.late:.1f} % | {line.after_break:.1f} | {line.gini:.2f} |"
    )


def figure(study: Study) -> str:
    """The differences with their margins, and who gets the jobs, as SVG."""
    lines = study.lines
    height = _TOP + _ROW * len(lines) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _words(12, 24, "Rules of reputation: job failures beside a tuned EMA, and who gets the work", size=15),
        *_differences(lines, left=_LABEL, right=_LABEL + 340),
        *_bars("whitewashers' share", [line.washed for line in lines], left=_LABEL + 370),
        *_bars("late joiners' share", [line.late for line in lines], left=_LABEL + 530),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _differences(lines: list[Line], *, left: int, right: int) -> Iterator[str]:
    low = min(line.difference - line.margin for line in lines)
    high = max(line.difference + line.margin for line in lines)

    def x(value: float) -> float:
        return left + (value - low) / max(high - low, 1e-12) * (right - left)

    bottom = _TOP + _ROW * len(lines)
    yield _words(
        left, _TOP - 12, "failures: percentage points more than the tuned EMA (± 2 standard errors)", colour=_GREY
    )
    yield f'<line x1="{x(0):.1f}" y1="{_TOP}" x2="{x(0):.1f}" y2="{bottom}" stroke="{_PALE}"/>'
    for number, line in enumerate(lines):
        y = _TOP + _ROW * number + _ROW / 2
        colour = _GREY if line.tie else _BLUE
        yield _words(12, y + 4, line.name)
        yield (
            f'<line x1="{x(line.difference - line.margin):.1f}" y1="{y}" x2="{x(line.difference + line.margin):.1f}" '
            f'y2="{y}" stroke="{colour}" stroke-width="2"/>'
        )
        yield f'<circle cx="{x(line.difference):.1f}" cy="{y}" r="4" fill="{colour}"/>'
    for value in (low, 0.0, high):
        yield _words(x(value), bottom + 18, f"{100 * value:+.2f}", colour=_GREY, anchor="middle")
    yield _words(12, bottom + 38, "grey: a tie with the tuned EMA within the margin; blue: a difference", colour=_GREY)


def _bars(title: str, values: list[float], *, left: int) -> Iterator[str]:
    most = max([*values, 1e-9])
    yield _words(left, _TOP - 12, title, colour=_GREY)
    for number, value in enumerate(values):
        y = _TOP + _ROW * number
        length = 90 * (value / most if value == value else 0)
        yield f'<rect x="{left}" y="{y + 7}" width="{length:.1f}" height="12" fill="{_BLUE}" opacity="0.6"/>'
        yield _words(left + length + 5, y + 17, f"{100 * value:.1f} %")


def _words(x: float, y: float, text: str, *, size: int = 12, colour: str = _INK, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
    )
