"""`pool mesh`: key figures of the pool; `pool jobs usage`: resource use of a job over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from computepool.cli import output
from computepool.cli.account.market import sparkline
from computepool.cli.options import RETRY_FOR_S, WATCH_RETRY_FOR_S, JobId, open_pool
from computepool.core.money.money import format_credits
from computepool.core.words import pluralize

if TYPE_CHECKING:
    from computepool.protocol.nodes.mesh import Activity, AttemptUsage, MeshView

#: Maximum width of a curve.
_COLUMNS = 60


def mesh(
    *,
    nodes: Annotated[bool, Option("--nodes", help="List online nodes with their location.")] = False,
    follow: Annotated[bool, Option("--follow", "-f", help="Follow anonymised activity.")] = False,
) -> None:
    """Show key figures of the pool, its nodes, or its activity. See --nodes and -f.

    Examples:
      pool mesh
      pool mesh --nodes
      pool mesh -f
    """
    pool = open_pool(retry_for=WATCH_RETRY_FOR_S if follow else RETRY_FOR_S)
    if follow:
        for item in pool.mesh.activity(follow=True):
            output.show_line(item, _line(item))
    elif nodes:
        found = pool.mesh.nodes()
        rows = [(n.name, n.owner_name, n.tier, n.place, n.status.label, n.cores, n.running, n.id) for n in found.nodes]
        columns = ("NAME", "OWNER", "TIER", "PLACE", "STATE", "CORES", "RUNNING", "ID")
        output.show_table(found, columns, rows, empty="No node is online.")
    else:
        view = pool.mesh()
        output.show_fields(view, _numbers(view))


def _line(item: Activity) -> str:
    price = f"  price: {item.price_level}" if item.price_level is not None else ""
    return f"{output.moment(item.at_ms)}  {item.sentence}{price}"


def _numbers(view: MeshView) -> list[tuple[str, output.Cell]]:
    return [
        ("nodes online", f"{view.nodes_online} of {view.nodes}"),
        ("cores busy", f"{view.cores_busy:g} of {view.cores:g}"),
        ("GPUs busy", f"{view.gpus_busy} of {view.gpus}, {output.memory(view.vram_mb)}"),
        ("jobs running", view.running),
        ("jobs waiting", view.queued),
        ("last hour", f"{format_credits(view.settled_hour)} credits for {pluralize(view.jobs_hour, 'job')}"),
    ]


def usage(job_id: JobId) -> None:
    """Show resource use of each attempt over time: CPU, memory, processes, and GPUs.

    Examples:
      pool jobs usage job_01h…
    """
    found = open_pool().jobs.usage(job_id)
    if output.print_json(found):
        return
    seen = [attempt for attempt in found.attempts if attempt.at_ms]
    for attempt in seen:
        _print_attempt(attempt)
    if not seen:
        output.note("No measurements: nodes report two seconds after an attempt starts.")


def _print_attempt(attempt: AttemptUsage) -> None:
    length = output.span(attempt.at_ms[-1] - (attempt.started_at_ms or attempt.at_ms[0]))
    output.write_line(f"attempt {attempt.number} on {attempt.node_name or attempt.node_id}, {attempt.state}, {length}")
    columns = (
        ("CPU", attempt.cpu_percent, " %"),
        ("memory", attempt.rss_mb, " MB"),
        ("processes", attempt.processes, ""),
        ("GPUs", attempt.gpu_percent, " %"),
        ("GPU memory", attempt.vram_mb, " MB"),
    )
    rows = [
        (name, sparkline(_fit(values)), f"{values[-1]}{unit}", f"{max(values)}{unit}")
        for name, values, unit in columns
        if values
    ]
    output.print_table(("", "", "LAST", "PEAK"), rows)


def _fit(values: list[int]) -> list[int]:
    """At most `_COLUMNS` values: the maximum of each run of neighbours."""
    step = -(-len(values) // _COLUMNS)
    return [max(values[start : start + step]) for start in range(0, len(values), step)]
