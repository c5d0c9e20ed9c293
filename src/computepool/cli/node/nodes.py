"""`pool node …`: run a node on this machine, and manage your nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option, Typer

from computepool.cli import output
from computepool.cli.account.market import floor_words
from computepool.cli.lazy import lazy_group
from computepool.cli.local.children import watch_parent
from computepool.cli.node import options as node_options
from computepool.cli.options import Data, LogJson, accepts, open_pool
from computepool.core.errors import BadRequest, Conflict
from computepool.core.isolation import Level
from computepool.core.money.money import format_credits
from computepool.core.words import pluralize, short_account
from computepool.protocol import plain_log
from computepool.sdk.client.config import node_folder

if TYPE_CHECKING:
    from computepool.protocol.nodes.hardware import HardwareView
    from computepool.protocol.nodes.nodes import ReputationView
    from computepool.protocol.nodes.profile import Profile
    from computepool.sdk.resources.nodes import NodeApi

_COMMANDS = """
    code      node.codes:code           Create a code for one or more new machines, and print the command to run there.
    codes     node.codes:codes          List or revoke open codes for several machines.
    earnings  account.market:earnings   Show what your nodes would earn at current prices, and what they were paid.
    rules     node.rules:rules          Show or change what others may run on your node.
    jobs      node.rules:jobs           Show the jobs running on this machine: submitter, limits and permissions.
    pardon    node.reputation:pardon    Lift a node's ban and clear its violations for wrong results (admin only).
    review    node.reputation:review    Ask an administrator to review your node's ban or probation.
    revoke    node.leave:revoke         Revoke a node's key permanently; its jobs run elsewhere (owner and admins only).
    evidence  node.reputation:evidence  List the outcomes behind a node's reputation, newest first, with their weight.
    leave     node.leave:leave          Remove this machine from the pool: finish its jobs, leave the hub, and forget its key.
    cache     node.cache:app            Show what the node on this machine has cached.
    env       node.env:app              Offer environments of this machine, such as one with torch, to jobs.
    runtime   node.runtime:app          Manage the root file system that jobs see instead of your files.
"""
_NOTES = {
    "paused": "takes no new jobs, even after a restart",
    "draining": "takes no new jobs, and stops when the last one finishes",
}
app = Typer(cls=lazy_group(_COMMANDS), no_args_is_help=True)
Node = Annotated[str | None, Argument(help="Node name, ID, or unique ID prefix. Default: the node on this machine.")]


@app.command()
@accepts(given=node_options.node_fields, where=node_options.enrolment)
def start(
    *,
    verbose: Annotated[bool, Option("--verbose", help="Show the full log instead of a summary.")] = False,
    json: LogJson = False,
    given: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Run a node on this machine; Ctrl-C stops it. The first start needs a one-time code.

    Options are saved in the node's folder and apply to later starts. A pause also persists.

    Examples:
      pool node start --hub http://pool.example:8000 --code ABCD-…
      pool node start --cores 4 --ram 8GB --no-gpus --tag studio --property site=lab-7
      pool node start --net
      pool node start                          start again with the saved options
      pool node start --reset cores            offer all cores again
    """
    from computepool.agent import main
    from computepool.sdk.classes import homes

    if json:
        plain_log.configure_json("INFO")
    watch_parent()
    config = node_options.config_of(given, **where)
    node_options.note_saved_options(config)
    homes.record_node_folder(config.data_dir)
    main.run(config, console=sys.stdout.isatty() and sys.stderr.isatty() and not (verbose or json))


@app.command()
@accepts(given=node_options.node_fields, where=node_options.enrolment)
def enroll(*, given: dict[str, Any], where: dict[str, Any]) -> None:
    """Enrol this machine at a hub with a one-time code, without starting the node.

    Examples:
      pool node enroll --hub http://pool.example:8000 --code ABCD-…
    """
    from computepool.agent import main
    from computepool.agent.clock import AgentClock
    from computepool.agent.config import prepare_data_dir
    from computepool.agent.owner import saved_options

    config = node_options.config_of(given, **where)
    if config.code is None:
        raise BadRequest("Pass a one-time code with --code CODE. Create one: pool node code")
    node_options.note_saved_options(config)
    prepare_data_dir(config.data_dir)
    if node_options.load_identity(config.data_dir) is not None:
        raise Conflict(f"This machine is already enrolled ({config.identity_path}). Start it: pool node start")
    machine = main.inspect(config)
    made = node_options.ask_hub(config, lambda client: main.enrol(config, machine.profile, client, clock=AgentClock()))
    saved_options.save(config)
    output.show(
        {"node_id": made.node_id, "owner": made.owner, "hub": made.hub_url},
        made.node_id,
        hint="Enrolled. Start the node: pool node start",
    )


@app.command()
def status(*, data: Data = None) -> None:
    """Show the status of the node on this machine.

    Examples:
      pool node status
    """
    _local("status", data)


@app.command()
def pause(node: Node = None, *, data: Data = None) -> None:
    """Stop taking new jobs. Running jobs continue.

    Examples:
      pool node pause
      pool node pause studio-3
    """
    _change("pause", node, data)


@app.command()
def resume(node: Node = None, *, data: Data = None) -> None:
    """Take jobs again after a pause.

    Examples:
      pool node resume
    """
    _change("resume", node, data)


@app.command()
def drain(node: Node = None, *, data: Data = None) -> None:
    """Stop taking new jobs, and stop the node when the last one finishes.

    Examples:
      pool node drain
    """
    _change("drain", node, data)


@app.command()
def rekey(*, data: Data = None) -> None:
    """Replace the key of the node on this machine. The old key works for one more day.

    If the key may have been stolen, revoke the node (`pool node revoke NODE`) and enrol it again.

    Examples:
      pool node rekey
    """
    reply = node_options.call_agent(data, "rekey")
    output.show(
        reply,
        f"{reply['node_id']} has a new key; the old one works until {output.moment(reply['old_accepted_until_ms'])}.",
    )


@app.command()
@accepts(given=node_options.node_fields, where=node_options.enrolment)
def doctor(*, given: dict[str, Any], where: dict[str, Any]) -> None:
    """Check whether this machine can run a node, and suggest fixes.

    Examples:
      pool node doctor
    """
    from dataclasses import asdict

    from computepool.agent.owner.doctor import Health, check_all
    from computepool.cli.local.local_pool import status_line

    with status_line("Testing this machine and its sandboxes"):
        checks = check_all(node_options.config_of(given, **where))
    if not output.print_json([asdict(check) for check in checks]):
        rows = [(check.health.value, check.name, check.detail, check.fix) for check in checks]
        output.print_table(("", "CHECK", "FOUND", "FIX"), rows)
    if any(check.health is Health.FAIL for check in checks):
        raise Exit(1)


@app.command()
def show(node: Node = None, *, data: Data = None) -> None:
    """Show a node: resources, benchmarks, current work and reputation.

    Examples:
      pool node show
      pool node show studio-3 --json
    """
    nodes = open_pool().nodes
    view = nodes.get(id_of(nodes, node, data))
    if output.print_json(view):
        return
    profile, known = view.profile, view.reputation
    fields: list[tuple[str, output.Cell]] = [
        ("id", view.id),
        ("name", view.name),
        ("owner", view.owner_name),
        ("state", view.status.label),
        ("detail", view.sentence),
        ("tier", view.tier),
        ("cores", f"{profile.cores:g}"),
        ("ram", output.memory(profile.ram_mb)),
        ("isolation", f"{profile.isolation}: {view.sandbox}" if view.sandbox else profile.isolation),
        ("runtime", profile.runtime),
        ("python", profile.python_text),
        ("software", "; ".join(found.sentence for found in profile.environments)),
        ("network", "for jobs that list hosts" if profile.network else "none for jobs"),
        ("speed", _speed_words(profile)),
        ("running", view.running),
        ("faults in a row", view.consecutive_faults),
    ]
    if known is not None:
        fields += _trust_fields(known)
    if view.hardware is not None:
        fields += _hardware_fields(view.hardware)
    if view.can_manage:
        fields.append(("floor", floor_words(view.floor, is_default=view.floor_is_default)))
    output.print_fields(fields)


def _speed_words(profile: Profile) -> str:
    """Of its connection to the hub, as it measured it."""
    known = (("down", profile.down_mbps), ("up", profile.up_mbps))
    return ", ".join(f"{mbps} Mb/s {way}" for way, mbps in known if mbps) or "unknown"


def _hardware_fields(found: HardwareView) -> list[tuple[str, output.Cell]]:
    scores = found.scores
    units = {"core score": scores.cpu, "memory MB/s": scores.memory_mb_s, "disk MB/s": scores.disk_mb_s}
    units |= {"network MB/s": scores.net_mb_s}
    fields: list[tuple[str, output.Cell]] = [
        ("claims", found.claimed),
        ("hardware", f"{found.standing}: {found.sentence}"),
        ("measured", "never" if found.measured_at_ms is None else output.ago(found.measured_at_ms)),
    ]
    fields += [(name, value) for name, value in units.items() if value is not None]
    cards = [f"{gflops / 1000:.3g}" for gflops in scores.gflops if gflops is not None]
    if cards:
        fields.append(("GPU TFLOPS", ", ".join(cards)))
    if found.slowdown is not None:
        fields.append(("jobs take", f"{found.slowdown:.2f} times as long as on its peers ({found.compared_jobs} jobs)"))
    return fields


def _trust_fields(known: ReputationView) -> list[tuple[str, output.Cell]]:
    last = "never" if known.changed_at_ms is None else output.ago(known.changed_at_ms)
    done = f"{known.newcomer_jobs_done} of {known.newcomer_jobs} verified jobs done"
    worth = None if known.exposure_cap is None else format_credits(known.exposure_cap)
    cap = "jobs of any value" if worth is None else f"jobs worth {worth} credits at once"
    return [
        ("reliability", f"{known.score:.3f}"),
        ("successes", f"{known.successes} (weight {known.success_weight:.2f})"),
        ("failures", f"{known.failures} (weight {known.failure_weight:.2f})"),
        ("last outcome", last),
        ("newcomer", f"yes: {done}" if known.newcomer else "no"),
        ("tenure", f"{pluralize(known.tenure_days, 'day')}, {known.verified_days} of them verified"),
        ("trusted with", cap),
        ("streak", f"{known.streak} verified in a row"),
        ("violations", _violations(known)),
    ]


def _violations(known: ReputationView) -> str:
    """Violations, with the number of recent ones unless the node is on probation or banned."""
    if known.banned_at_ms is not None:
        return f"{known.violation_count}: banned {output.ago(known.banned_at_ms)}"
    if known.probation_at_ms is not None:
        return f"{known.violation_count}: on probation since {output.ago(known.probation_at_ms)}"
    return f"{known.violation_count}, {known.recent_violations} of them recent" if known.violation_count else "none"


@app.command()
def why(node: Node = None, *, data: Data = None) -> None:
    """Explain why a node gets no jobs, or which jobs it gets.

    Examples:
      pool node why
      pool node why studio-3
    """
    nodes = open_pool().nodes
    answer = nodes.why(id_of(nodes, node, data))
    if output.print_json(answer):
        return
    for sentence in filter(None, (answer.sentence, answer.reputation, answer.hardware)):
        output.write_line(sentence)
    rows = [(row.shape, row.queued, row.reason) for row in answer.rows]
    output.print_table(("REQUIREMENTS", "WAITING", "WHY NOT HERE"), rows)


def _change(word: str, node: str | None, data: Path | None) -> None:
    if node is None:
        _local(word, data)
        return
    nodes = open_pool().nodes
    view = getattr(nodes, word)(nodes.find(node).id)
    output.show(view, f"{view.name}: {view.sentence}")


def _local(word: str, data: Path | None) -> None:
    answer = node_options.call_agent(data, word)
    output.show_fields(answer, _status_fields(answer))


def _status_fields(status: dict[str, Any]) -> list[tuple[str, output.Cell]]:
    """The agent's status as fields; omits values that are normal."""
    running = [f"{job['name'] or job['job_id']} ({output.span(job['ran_s'] * 1000)})" for job in status["running"]]
    unreported, free = status["unreported"], output.ranges(status["cpus_free"])
    return [
        ("node", f"{status['name']} ({status['node_id']})"),
        ("owner", status.get("owner_name") or short_account(status["owner"])),
        ("state", ": ".join(filter(None, (status["state"], _NOTES.get(status["state"]))))),
        ("now", _activity(status, running)),
        ("hub", _hub(status)),
        ("sandbox", f"{status['level']}: {Level.parse(status['level']).meaning}"),
        ("network", "for jobs that list hosts to reach" if status["network"] else "none for jobs"),
        ("CPUs offered", f"{output.ranges(status['cpus']) or 'none'} (free: {free or 'none'})"),
        ("not yet reported", pluralize(unreported, "result") if unreported else None),
        (
            "results being delivered",
            pluralize(status["result_deliveries"], "group") if status["result_deliveries"] else None,
        ),
        ("hardware", status["hardware"]),
        ("clock", _clock(status["clock_offset_ms"])),
        ("running for", f"{output.span(status['uptime_s'] * 1000)} (process {status['pid']})"),
    ]


def _activity(status: dict[str, Any], running: list[str]) -> str:
    if not running:
        return str(status["why_idle"] or "No jobs are running.")
    waiting = f"; {pluralize(status['waiting'], 'job')} waiting" if status["waiting"] else ""
    return f"running {', '.join(running)}{waiting}"


def _hub(status: dict[str, Any]) -> str:
    silent = status["last_contact_s"]
    contact = "has not answered yet" if silent is None else f"answered {output.span(silent * 1000)} ago"
    lost = "" if status["connected"] or silent is None else ", too long ago: running jobs were stopped"
    error = f" ({status['last_error']})" if status["last_error"] else ""
    return f"{status['hub']} {contact}{lost}{error}"


def _clock(offset_ms: int) -> str | None:
    """The difference to the hub's clock, if it is a second or more."""
    if abs(offset_ms) < 1_000:
        return None
    return f"{output.span(abs(offset_ms))} {'behind' if offset_ms > 0 else 'ahead of'} the hub's"


def id_of(nodes: NodeApi, node: str | None, data: Path | None) -> str:
    """The node that was named, or the one on this machine."""
    if node is not None:
        return nodes.find(node).id
    known = node_options.load_identity(node_folder(data))
    if known is None:
        raise BadRequest("This machine is not enrolled. Specify a node, for example: pool node why NAME")
    return known.node_id
