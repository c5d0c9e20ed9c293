"""`pool node rules` and `pool node jobs`: what others may run on your node, and what is running there."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from computepool.cli import output
from computepool.cli.node.nodes import Node, id_of
from computepool.cli.node.options import call_agent
from computepool.cli.options import Data, accepts, collects, open_pool, option
from computepool.core.words import short_account
from computepool.sdk.client.sizes import megabytes

_LISTS = ("allow_submitters", "deny_submitters", "allow_labels", "deny_labels")
#: By field of NodeRules.
_CHANGES = {
    "allow_submitters": option(
        list[str], "ACCOUNT", "Only jobs of this account (ID or name); repeatable.", "--allow-submitter"
    ),
    "deny_submitters": option(list[str], "ACCOUNT", "No jobs of this account; repeatable.", "--deny-submitter"),
    "allow_labels": option(
        list[str], "LABEL", "Only jobs with this label, or another allowed one; repeatable.", "--allow-label"
    ),
    "deny_labels": option(
        list[str],
        "LABEL",
        "No jobs with this label; repeatable. Submitters choose the labels, so this does not stop abuse.",
        "--deny-label",
    ),
    "forget": option(list[str], "NAME", "Remove an account ID or a label from all lists; repeatable."),
    "network": option(bool, None, "Jobs that connect to listed hosts.", "--net/--no-net"),
    "gpus": option(bool, None, "Jobs that use a GPU.", "--gpus/--no-gpus"),
    "minutes_max": option(int, "N", "Maximum run time of a job in minutes; 0 for no limit.", "--max-minutes", min=0),
    "ram_mb_max": option(str, "SIZE", "Maximum memory of a job: 8GB; 0 for no limit.", "--max-ram"),
    "disk_mb_max": option(str, "SIZE", "Maximum disk space of a job: 10GB; 0 for no limit.", "--max-disk"),
    "score_min": option(
        float, "X", "Minimum submitter score, 0 to 1; new submitters have 0.71.", "--min-score", min=0, max=1
    ),
}


@collects(_CHANGES)
def changes(given: dict[str, Any]) -> dict[str, Any]:
    """The given changes; a limit of 0 becomes None."""
    for field, flag in (("ram_mb_max", "--max-ram"), ("disk_mb_max", "--max-disk")):
        if field in given:
            given[field] = megabytes(given[field], what=flag)
    return {field: None if field.endswith("_max") and value == 0 else value for field, value in given.items()}


@accepts(given=changes)
def rules(
    node: Node = None,
    *,
    clear: Annotated[bool, Option("--clear", help="Remove all existing rules first.")] = False,
    data: Data = None,
    given: dict[str, Any],
) -> None:
    """Show or change what others may run on your node. Your own jobs are always accepted.

    Each option changes one rule and leaves the others unchanged. Rules apply to jobs that start from now on. The hub
    respects them, and the node itself enforces them.

    Examples:
      pool node rules studio-3
      pool node rules studio-3 --no-net --max-minutes 60 --max-disk 10GB
      pool node rules studio-3 --deny-submitter mallory --min-score 0.6
      pool node rules studio-3 --allow-submitter acc_01h…
      pool node rules studio-3 --clear
    """
    from computepool.protocol.nodes.rules import NodeRules

    nodes = open_pool().nodes
    node_id = id_of(nodes, node, data)
    view = nodes.rules(node_id)
    known = view.rules.model_dump(exclude_defaults=True)
    changed = _change({} if clear else known, given)
    if changed != known:
        view = nodes.set_rules(node_id, NodeRules(**changed))
    output.show(view, "\n".join(view.sentences or ["No rules: the node accepts every job that fits."]))


def _change(rules: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Extends the lists, removes the entries of --forget, and replaces all other rules."""
    forgotten = given.pop("forget", [])
    lists = {name: [*rules.get(name, []), *given.pop(name, [])] for name in _LISTS}
    kept = {name: [word for word in dict.fromkeys(words) if word not in forgotten] for name, words in lists.items()}
    return rules | {name: words for name, words in kept.items() if words or name in rules} | given


def _load(load: dict[str, Any] | None) -> tuple[str, str]:
    return ("", "") if load is None else (f"{load['cpu_percent']} %", output.memory(load["rss_mb"]))


def _submitter(job: dict[str, Any], status: dict[str, Any]) -> str:
    own = job["submitter"] == status["owner"]
    return (status.get("owner_name") or "you") if own else short_account(job["submitter"])


def jobs(*, data: Data = None) -> None:
    """Show the jobs running on this machine: submitter, limits and permissions.

    Examples:
      pool node jobs
      pool node jobs --json
    """
    status = call_agent(data, "status")
    running = status["running"]
    columns = (
        "JOB", "NAME", "SUBMITTER", "LABELS", "RAN", "MINUTES", "CORES", "CPUS", "CPU", "RSS", "RAM", "DISK", "GPUS",
        "NETWORK",
    )  # fmt: skip
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
