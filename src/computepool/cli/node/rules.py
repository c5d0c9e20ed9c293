"""`pool node rules` and `pool node jobs`: what others may run on your node, and what runs there now."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.local.folders import data_folder, node_folder
from computepool.cli.node.nodes import Node, this_node
from computepool.cli.node.options import Data
from computepool.cli.options import accepts, open_pool
from computepool.core.words import short_account
from computepool.sdk.client.sizes import megabytes

_LISTS = ("allow_submitters", "deny_submitters", "allow_labels", "deny_labels")
_Names = list[str] | None


_AllowSubmitter = Annotated[
    _Names, typer.Option(metavar="ACCOUNT", help="Only jobs of this account (ID or name); repeatable.")
]
_DenySubmitter = Annotated[
    _Names, typer.Option(metavar="ACCOUNT", help="No jobs of this account; repeatable.")
]
_AllowLabel = Annotated[
    _Names,
    typer.Option(metavar="LABEL", help="Only jobs with this label, or another allowed one; repeatable."),
]
_DenyLabel = Annotated[
    _Names,
    typer.Option(
        metavar="LABEL",
        help="No jobs with this label; repeatable. Submitters choose the labels, so this is not a protection.",
    ),
]
_Forget = Annotated[
    _Names, typer.Option(metavar="NAME", help="Remove an account ID or a label from all lists; repeatable.")
]
_Net = Annotated[bool | None, typer.Option("--net/--no-net", help="Jobs that connect to listed hosts.")]
_Gpus = Annotated[bool | None, typer.Option("--gpus/--no-gpus", help="Jobs that use a GPU.")]
_Minutes = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Maximum run time of a job in minutes; 0 for no limit.")
]
_Ram = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Maximum memory of a job: 8GB; 0 for no limit.")
]
_Disk = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Maximum disk space of a job: 10GB; 0 for no limit.")
]
_Score = Annotated[
    float | None,
    typer.Option(
        metavar="X", min=0, max=1, help="Minimum submitter score, 0 to 1; new submitters have 0.71."
    ),
]


def changes(
    *,
    allow_submitter: _AllowSubmitter = None,
    deny_submitter: _DenySubmitter = None,
    allow_label: _AllowLabel = None,
    deny_label: _DenyLabel = None,
    forget: _Forget = None,
    net: _Net = None,
    gpus: _Gpus = None,
    max_minutes: _Minutes = None,
    max_ram: _Ram = None,
    max_disk: _Disk = None,
    min_score: _Score = None,
) -> dict[str, Any]:
    return {
        "lists": dict(zip(_LISTS, (allow_submitter, deny_submitter, allow_label, deny_label), strict=True)),
        "forget": forget or [],
        "values": _values(
            network=net,
            gpus=gpus,
            minutes_max=max_minutes,
            ram_mb_max=_megabytes(max_ram, "--max-ram"),
            disk_mb_max=_megabytes(max_disk, "--max-disk"),
            score_min=min_score,
        ),
    }


@accepts(given=changes)
def rules(
    node: Node = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all existing rules first.")] = False,
    data: Data = None,
    given: dict[str, Any],
) -> None:
    """Show or change what others may run on your node. Your own jobs are always accepted.

    Each option changes one rule and leaves the others unchanged. Rules apply to jobs that start from now on. The hub
    respects them, and the node itself enforces them.

    \b
    Examples:
      pool node rules studio-3
      pool node rules studio-3 --no-net --max-minutes 60 --max-disk 10GB
      pool node rules studio-3 --deny-submitter mallory --min-score 0.6
      pool node rules studio-3 --allow-submitter acc_01h…
      pool node rules studio-3 --clear
    """
    from computepool.protocol.nodes.rules import NodeRules

    nodes = open_pool().nodes
    node_id = this_node(data) if node is None else nodes.find(node).id
    view = nodes.rules(node_id)
    known = view.rules.model_dump(exclude_defaults=True)
    changed = _remove(_add({} if clear else known, given["lists"]), given["forget"]) | given["values"]
    if changed != known:
        view = nodes.set_rules(node_id, NodeRules(**changed))
    output.show(view, "\n".join(view.sentences or ["No rules: the node accepts every job that fits."]))


def _add(before: dict[str, Any], lists: dict[str, _Names]) -> dict[str, Any]:
    new = {name: list(dict.fromkeys([*before.get(name, []), *more])) for name, more in lists.items() if more}
    return before | new


def _remove(rules: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {
        rule: [name for name in value if name not in names] if rule in _LISTS else value
        for rule, value in rules.items()
    }


def _values(**given: Any) -> dict[str, Any]:
    """0 takes a limit away; what was not given is left alone."""
    return {
        name: None if name.endswith("_max") and value == 0 else value
        for name, value in given.items()
        if value is not None
    }


def _megabytes(size: str | None, option: str) -> int | None:
    return None if size is None else megabytes(size, what=option)


def _load(load: dict[str, Any] | None) -> tuple[str, str]:
    return ("", "") if load is None else (f"{load['cpu_percent']} %", output.memory(load["rss_mb"]))


def _submitter(job: dict[str, Any], status: dict[str, Any]) -> str:
    own = job["submitter"] == status["owner"]
    return (status.get("owner_name") or "you") if own else short_account(job["submitter"])


def jobs(*, data: Data = None) -> None:
    """Show the jobs running on this machine: submitter, limits and permissions.

    \b
    Examples:
      pool node jobs
      pool node jobs --json
    """
    from computepool.agent.owner import control

    status = control.call(node_folder(data_folder(data)), "status")
    running = status["running"]
    columns = (
        "JOB",
        "NAME",
        "SUBMITTER",
        "LABELS",
        "RAN",
        "MINUTES",
        "CORES",
        "CPUS",
        "CPU",
        "RSS",
        "RAM",
        "DISK",
        "GPUS",
        "NETWORK",
    )
    rows = [
        (
            job["job_id"], job["name"], _submitter(job, status), " ".join(job["labels"]), output.span(job["ran_s"] * 1000),
            job["minutes"], f"{job['cores']:g}", output.ranges(job["cpu_ids"]), *_load(job["load"]),
            output.memory(job["ram_mb"]), output.memory(job["disk_mb"]),
            " ".join(map(str, job["gpus"])) or "none", " ".join(job["network"]) or "none",
        )
        for job in running
    ]  # fmt: skip
    output.show_table(running, columns, rows, empty="No jobs are running.")
