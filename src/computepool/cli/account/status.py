"""`pool status`: your account, hub, balance, nodes and unfinished jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from computepool.cli import output
from computepool.cli.options import open_pool
from computepool.core.money.money import format_credits
from computepool.core.words import pluralize

if TYPE_CHECKING:
    from computepool.protocol.jobs.views import JobView
    from computepool.protocol.money.credits import CreditsView

_SHOWN_MAX = 10
_STATES = ("running", "leased", "queued")


def status() -> None:
    """Show your account, hub, balance, nodes and unfinished jobs.

    Examples:
      pool status
      pool status --json
    """
    pool = open_pool()
    hub, account, have = pool.accounts.hub(), pool.whoami(), pool.credits()
    # Only own jobs, also for an administrator; one more than is shown.
    jobs = {state: pool.jobs.list(state=state, all="false", limit=_SHOWN_MAX + 1) for state in _STATES}
    nodes = pool.nodes.list(mine=True)
    listed = [job for state in _STATES for job in jobs[state]]
    document = {
        "account": account.model_dump(mode="json"),
        "hub": {"url": pool.transport.url, **hub.model_dump(mode="json", exclude={"account"})},
        "credits": have.model_dump(mode="json"),
        "jobs": [job.model_dump(mode="json") for job in listed],
        "nodes": [node.model_dump(mode="json") for node in nodes],
    }
    if output.print_json(document):
        return
    counts = ", ".join(f"{_count(jobs[state])} {state}" for state in _STATES if jobs[state])
    output.print_fields(
        [
            ("you", f"{account.name} ({', '.join(account.roles)})"),
            ("hub", f"{hub.name} at {pool.transport.url}, version {hub.version}"),
            ("pool", f"{hub.nodes_online} of {pluralize(hub.nodes, 'node')} online"),
            ("credits", _credits(have)),
            ("your nodes", ", ".join(f"{node.name} ({node.status.label})" for node in nodes) or "none"),
            ("your jobs", counts or "none unfinished"),
        ]
    )
    rows = [(job.id, job.name, job.state, job.node_name, job.status) for job in listed[:_SHOWN_MAX]]
    output.print_table(("ID", "NAME", "STATE", "NODE", "STATUS"), rows)


def _count(jobs: list[JobView]) -> str:
    return f"more than {_SHOWN_MAX}" if len(jobs) > _SHOWN_MAX else str(len(jobs))


def _credits(have: CreditsView) -> str:
    if have.economy == "none":
        return "jobs are free in this pool"
    held = f", {format_credits(have.held)} held for unfinished jobs" if have.held else ""
    return f"{format_credits(have.available)} available{held}"
