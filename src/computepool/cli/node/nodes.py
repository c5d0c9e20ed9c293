"""`pool node …`: the node on this machine, and your other nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.account.market import floor_words
from computepool.cli.lazy import lazy_group
from computepool.cli.local.children import watch_parent
from computepool.cli.local.folders import data_folder, node_folder
from computepool.cli.node import options as node_options
from computepool.cli.node import status as node_status
from computepool.cli.node.options import Data
from computepool.cli.options import LogJson, accepts, open_pool
from computepool.core.errors import BadRequest, Conflict
from computepool.core.money.money import format_credits
from computepool.core.words import counted
from computepool.protocol import plain_log

if TYPE_CHECKING:
    from computepool.protocol.nodes.hardware import HardwareView
    from computepool.protocol.nodes.nodes import ReputationView

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
    runtime   node.runtime:app          Manage the root file system that jobs see instead of your files.
"""
app = typer.Typer(cls=lazy_group(_COMMANDS), no_args_is_help=True)
Node = Annotated[
    str | None, typer.Argument(help="Node name, ID, or unique ID prefix. Default: the node on this machine.")
]


@app.command()
@accepts(given=node_options.node_fields, where=node_options.enrolment)
def start(
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the full log instead of a summary.")
    ] = False,
    json: LogJson = False,
    given: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Run a node on this machine; Ctrl-C stops it. The first start needs a one-time code.

    Options are saved in the node's folder and apply to later starts. A pause also persists.

    \b
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
    node_options.note_kept(config)
    homes.remember(config.data_dir)
    main.run(config, console=sys.stdout.isatty() and sys.stderr.isatty() and not (verbose or json))


@app.command()
@accepts(given=node_options.node_fields, where=node_options.enrolment)
def enroll(*, given: dict[str, Any], where: dict[str, Any]) -> None:
    """Enrol this machine at a hub with a one-time code, without starting the node.

    \b
    Examples:
      pool node enroll --hub http://pool.example:8000 --code ABCD-…
    """
    import asyncio

    from computepool.agent import main
    from computepool.agent.clock import SystemAgentClock
    from computepool.agent.config import prepare_data_dir
    from computepool.agent.hub_link import identity
    from computepool.agent.hub_link.hub_client import HubClient
    from computepool.agent.owner import saved_options

    config = node_options.config_of(given, **where)
    if config.code is None:
        raise BadRequest("Pass a one-time code with --code CODE. Create one: pool node code")
    node_options.note_kept(config)
    prepare_data_dir(config.data_dir)
    if identity.load(config.identity_path) is not None:
        raise Conflict(
            f"This machine is already enrolled ({config.identity_path}). Start it: pool node start"
        )
    machine = main.inspect(config)

    async def exchange() -> identity.Identity:
        clock = SystemAgentClock()
        client = HubClient(config.hub_urls, clock=clock, limits=config.limits)
        try:
            return await main.enrol(config, machine.profile, client, clock=clock)
        finally:
            await client.close()

    made = asyncio.run(exchange())
    saved_options.save(config)
    output.show(
        {"node_id": made.node_id, "owner": made.owner, "hub": made.hub_url},
        made.node_id,
        hint="Enrolled. Start the node: pool node start",
    )


@app.command()
def status(*, data: Data = None) -> None:
    """Show the status of the node on this machine.

    \b
    Examples:
      pool node status
    """
    _local("status", data)


@app.command()
def pause(node: Node = None, *, data: Data = None) -> None:
    """Stop taking new jobs. Running jobs continue.

    \b
    Examples:
      pool node pause
      pool node pause studio-3
    """
    _change("pause", node, data)


@app.command()
def resume(node: Node = None, *, data: Data = None) -> None:
    """Take jobs again after a pause.

    \b
    Examples:
      pool node resume
    """
    _change("resume", node, data)


@app.command()
def drain(node: Node = None, *, data: Data = None) -> None:
    """Stop taking new jobs, and stop the node when the last one finishes.

    \b
    Examples:
      pool node drain
    """
    _change("drain", node, data)


@app.command()
def rekey(*, data: Data = None) -> None:
    """Replace the key of the node on this machine. The old key works for one more day.

    If the key may have been stolen, revoke the node (`pool node revoke NODE`) and enrol it again.

    \b
    Examples:
      pool node rekey
    """
    from computepool.agent.owner.control import call

    reply = call(node_folder(data_folder(data)), "rekey")
    output.show(
        reply,
        f"{reply['node_id']} has a new key; the old one works until "
        f"{output.moment(reply['old_accepted_until_ms'])}.",
    )


@app.command()
@accepts(given=node_options.node_fields, where=node_options.enrolment)
def doctor(*, given: dict[str, Any], where: dict[str, Any]) -> None:
    """Diagnose problems of this machine as a node, and suggest fixes.

    \b
    Examples:
      pool node doctor
    """
    from dataclasses import asdict

    from computepool.agent.owner.doctor import Health, check_all

    checks = check_all(node_options.config_of(given, **where))
    if not output.printed_json([asdict(check) for check in checks]):
        rows = [(check.health.value, check.name, check.detail, check.fix) for check in checks]
        output.print_table(("", "CHECK", "FOUND", "FIX"), rows, empty="")
    if any(check.health is Health.FAIL for check in checks):
        raise typer.Exit(1)


@app.command()
def show(node: Node = None, *, data: Data = None) -> None:
    """Show a node: resources, benchmarks, current work and reputation.

    \b
    Examples:
      pool node show
      pool node show studio-3 --json
    """
    pool = open_pool()
    view = pool.nodes.get(this_node(data)) if node is None else pool.nodes.find(node)
    if output.printed_json(view):
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
        ("python", profile.python_words),
        ("network", "for jobs that list hosts" if profile.network else "none for jobs"),
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
        fields.append(
            ("jobs take", f"{found.slowdown:.2f} times as long as on its peers ({found.compared_jobs} jobs)")
        )
    return fields


def _trust_fields(known: ReputationView) -> list[tuple[str, output.Cell]]:
    last = "never" if known.changed_at_ms is None else output.ago(known.changed_at_ms)
    newcomer = (
        f"yes: {known.newcomer_jobs_done} of {known.newcomer_jobs} verified jobs done"
        if known.newcomer
        else "no"
    )
    worth = None if known.exposure_cap is None else format_credits(known.exposure_cap)
    cap = "jobs of any value" if worth is None else f"jobs worth {worth} credits at once"
    return [
        ("reliability", f"{known.score:.3f}"),
        ("successes", f"{known.successes} (weight {known.success_weight:.2f})"),
        ("failures", f"{known.failures} (weight {known.failure_weight:.2f})"),
        ("last outcome", last),
        ("newcomer", newcomer),
        ("tenure", f"{counted(known.tenure_days, 'day')}, {known.verified_days} of them verified"),
        ("trusted with", cap),
        ("streak", f"{known.streak} verified in a row"),
        ("violations", _violations(known)),
    ]


def _violations(known: ReputationView) -> str:
    """Only the last few are remembered by their time; once a node is banned that says nothing any more."""
    if known.banned_at_ms is not None:
        return f"{known.violation_count}: banned {output.ago(known.banned_at_ms)}"
    if known.probation_at_ms is not None:
        return f"{known.violation_count}: on probation since {output.ago(known.probation_at_ms)}"
    return (
        f"{known.violation_count}, {known.recent_violations} of them recent"
        if known.violation_count
        else "none"
    )


@app.command()
def why(node: Node = None, *, data: Data = None) -> None:
    """Explain why a node gets no jobs, or which jobs it gets.

    \b
    Examples:
      pool node why
      pool node why studio-3
    """
    pool = open_pool()
    node_id = this_node(data) if node is None else pool.nodes.find(node).id
    answer = pool.nodes.why(node_id)
    if output.printed_json(answer):
        return
    output.write_line(answer.sentence)
    if answer.reputation:
        output.write_line(answer.reputation)
    if answer.hardware:
        output.write_line(answer.hardware)
    rows = [(row.shape, row.queued, row.reason) for row in answer.rows]
    if rows:
        output.print_table(("REQUIREMENTS", "WAITING", "WHY NOT HERE"), rows, empty="")


def _change(word: str, node: str | None, data: Path | None) -> None:
    if node is None:
        _local(word, data)
        return
    nodes = open_pool().nodes
    view = getattr(nodes, word)(nodes.find(node).id)
    output.show(view, f"{view.name}: {view.sentence}")


def _local(word: str, data: Path | None) -> None:
    from computepool.agent.owner import control

    answer = control.call(node_folder(data_folder(data)), word)
    output.show_fields(answer, node_status.fields_of(answer))


def this_node(data: Path | None) -> str:
    from computepool.agent.hub_link import identity

    known = identity.load(node_folder(data_folder(data)) / "identity.json")
    if known is None:
        raise BadRequest("This machine is not enrolled. Specify a node, for example: pool node why NAME")
    return known.node_id
