"""`pool jobs queue` and `pool jobs hosts`: the jobs of every node, and where a new job would run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from computepool.cli import output
from computepool.cli.options import Limit, accepts, open_pool, requirements
from computepool.core.words import pluralize

if TYPE_CHECKING:
    from computepool.protocol.jobs.explanations import NodeVerdictView
    from computepool.protocol.jobs.queueing import LoadView, QueueRow, QueueView
    from computepool.sdk import JobOptions

_NODES = ("NODE", "STATE", "RUNNING", "WAITING", "CORES FREE", "RAM FREE", "LOAD", "TAGS")
_LEASES = ("NODE", "JOB", "KEY OR NAME", "STATE", "AGE", "CORES", "CPUS", "LOAD")

#: Clearer names for two terms of the score, which reward a job for leaving little of a node unused.
_TERMS = {"fit_vram": "wastes no GPU", "fit_cores": "wastes no cores"}


def queue() -> None:
    """Show what each node is running, on which CPUs, and which jobs are waiting.

    CPUS are the node's own CPU numbers. LOAD is CPU use over the last second (100 % is one CPU), memory, and processes.
    Jobs of other accounts are shown as counts only. --json has more detail.

    Examples:
      pool jobs queue
      watch pool jobs queue
      pool jobs queue --json | jq '.nodes[].leases[] | {key, cpu_ids, load}'
    """
    view = open_pool().jobs.queue()
    if output.print_json(view):
        return
    later = f", {view.delayed} more delayed" if view.delayed else ""
    output.write_line(f"{pluralize(view.queued, 'job')} waiting{later}.")
    output.print_table(_NODES, map(_node, view.nodes), empty="No nodes. Add this machine: pool node start")
    output.print_table(_LEASES, _leases(view))
    rows = [(row.queued, row.needs, row.able or "none", row.sentence) for row in view.waiting]
    output.print_table(("JOBS", "REQUIREMENTS", "ELIGIBLE NODES", "REASON"), rows)


def _node(node: QueueRow) -> tuple[output.Cell, ...]:
    return (
        node.name,
        node.status.label,
        node.running,
        node.leased,
        f"{node.cores_free:g} of {node.cores_total:g}",
        output.memory(node.ram_free_mb),
        _load(node.load if node.running else None),
        " ".join(node.tags),
    )


def _leases(view: QueueView) -> Iterator[tuple[output.Cell, ...]]:
    for node in view.nodes:
        for lease in node.leases:
            state = lease.state if lease.progress is None else f"{lease.state} {lease.progress:.0%}"
            yield (
                node.name, lease.job_id, lease.key or lease.name, state, output.span(lease.age_ms),
                f"{lease.cores:g}", output.ranges(lease.cpu_ids), _load(lease.load),
            )  # fmt: skip
        if node.hidden:
            yield (node.name, f"and {node.hidden} more", *[""] * (len(_LEASES) - 2))


def _load(load: LoadView | None) -> str:
    if load is None:
        return ""
    return f"{load.cpu_percent} %, {output.memory(load.rss_mb)}, {load.processes}"


@accepts(needs=requirements)
def hosts(*, limit: Limit = 30, needs: JobOptions) -> None:
    """Preview which nodes would take such a job, in order, and why the others would not.

    The first node listed gets the job. The score is the sum of the terms shown; your own nodes and preferred tags weigh
    most. Required and excluded tags are applied first.

    Examples:
      pool jobs hosts --tag linux --prefer-tag gpu --exclude-host laptop
      pool jobs hosts --vram 16 --exclude-tag shared --property site=lab-7
      pool jobs hosts --mesh-version analysis --json
    """
    from computepool.sdk.jobs import options

    rules = options.rules(needs)
    timeout = rules.pop("timeout_s", None)
    view = open_pool().jobs.preview(options.needs(needs), limit=limit, timeout=timeout, **rules)
    if output.print_json(view):
        return
    output.write_line(view.why.sentence)
    output.print_table(
        ("", "NODE", "FITS", "SCORE", "TAGS", "REASON"),
        (_verdict(place, host) for place, host in enumerate(view.hosts, 1)),
        empty="No nodes. Add this machine: pool node start",
    )


def _verdict(place: int, host: NodeVerdictView) -> tuple[output.Cell, ...]:
    tags = " ".join(host.tags)
    if not host.ok:
        return "", host.name, "when free" if host.busy else "no", "", tags, "; ".join(host.failed)
    terms = sorted(host.terms.items(), key=lambda term: -term[1])
    because = ", ".join(f"{_TERMS.get(name) or name.replace('_', ' ')} {value:.2f}" for name, value in terms if value)
    return place, host.name, "ok", f"{host.score:.2f}", tags, because
