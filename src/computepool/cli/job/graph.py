"""`pool jobs graph`: which job comes after which, as a tree, for Graphviz, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from typer import Argument, BadParameter, Option

from computepool.cli import options, output
from computepool.core.jobs.lifecycle import When
from computepool.core.words import pluralize

if TYPE_CHECKING:
    from computepool.protocol.jobs.views import GraphJob, GraphView

_COLOURS = {"succeeded": "palegreen", "failed": "salmon", "expired": "salmon", "running": "lightblue"}
_CONDITIONS = {When.FAILURE: "on failure", When.ALWAYS: "always"}


def graph(
    job_id: Annotated[
        str | None, Argument(metavar="JOB", help="ID, unique ID prefix, name, or `last`.", parser=options.find_job)
    ] = None,
    *,
    group: options.OfGroup = None,
    dot: Annotated[bool, Option("--dot", help="Print it for Graphviz.")] = False,
) -> None:
    """Show which job comes after which, with their states: around one job, or in a group.

    Examples:
      pool jobs graph last
      pool jobs graph --group pipeline
      pool jobs graph job_01h… --dot | dot -Tsvg > graph.svg
      pool jobs graph job_01h… --json
    """
    pool = options.open_pool()
    if job_id is not None and group is None:
        found = pool.jobs.graph(job_id)
    elif group is not None and job_id is None:
        found = pool.groups.graph(group)
    else:
        raise BadParameter("name either a job or --group.", param_hint="JOB")
    if dot:
        for line in _dot(found):
            output.write_line(line)
    elif not output.print_json(found):
        for line in _tree(found):
            output.write_line(line)
        if not found.jobs:
            output.note("No job of this group comes after another.")
    if found.more:
        output.note(f"There are more jobs than these {len(found.jobs)}.")


def _tree(found: GraphView) -> Iterator[str]:
    """Each job below the last of those that it comes after, so that it is shown once and after all of them."""
    place = {job.id: number for number, job in enumerate(found.jobs)}
    before: dict[str, list[str]] = {job.id: [] for job in found.jobs}
    for edge in found.edges:
        before[edge.job_id].append(edge.after_id)
    below: dict[str, list[GraphJob]] = {job.id: [] for job in found.jobs}
    for job in found.jobs:
        if above := before[job.id]:
            below[max(above, key=place.__getitem__)].append(job)
    todo = [(job, "", "") for job in reversed(found.jobs) if not before[job.id]]
    while todo:
        job, line, indent = todo.pop()
        yield f"{line}{_label(job, others=max(0, len(before[job.id]) - 1))}"
        children = below[job.id]
        for number, child in reversed(list(enumerate(children, start=1))):
            last = number == len(children)
            todo.append((child, f"{indent}{'└─ ' if last else '├─ '}", f"{indent}{'   ' if last else '│  '}"))


def _label(job: GraphJob, *, others: int) -> str:
    words = [job.name if job.key is None else f"{job.name} {job.key}", _state(job), job.id]
    if job.when in _CONDITIONS:
        words.append(_CONDITIONS[job.when])
    if others:
        words.append(f"also after {pluralize(others, 'other job')}")
    return "  ".join(words)


def _state(job: GraphJob) -> str:
    return "skipped" if job.reason == "skipped" else job.state.value


def _dot(found: GraphView) -> Iterator[str]:
    yield "digraph jobs {"
    yield '  node [shape=box, style="rounded,filled", fillcolor=white];'
    for job in found.jobs:
        colour = _COLOURS.get(job.state.value, "white")
        yield f"  {_quote(job.id)} [label={_quote(job.name, _state(job))}, fillcolor={colour}];"
    when = {job.id: job.when for job in found.jobs}
    for edge in found.edges:
        condition = _CONDITIONS.get(when[edge.job_id])
        look = f" [style=dashed, label={_quote(condition)}]" if condition else ""
        yield f"  {_quote(edge.after_id)} -> {_quote(edge.job_id)}{look};"
    yield "}"


def _quote(*lines: str) -> str:
    text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{text}"'
