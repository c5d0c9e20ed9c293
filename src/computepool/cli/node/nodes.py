"""`pool nodes` and `pool node …`: the pool's machines, and lending this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.account.market import floor_words
from computepool.cli.local.children import watch_parent
from computepool.cli.local.folders import data_folder, node_folder
from computepool.cli.node import options as node_options
from computepool.cli.node import runtime
from computepool.cli.node import status as node_status
from computepool.cli.node.options import Data
from computepool.cli.options import Json, Limit, LogJson, accepts, log_as_json, open_pool
from computepool.core.money.money import format_credits

if TYPE_CHECKING:
    from computepool.protocol.nodes.hardware import HardwareView
    from computepool.protocol.nodes.nodes import NodeView, ReputationView

app = typer.Typer(no_args_is_help=True, help="Lend this machine, and look after the machines you lend.")
app.add_typer(runtime.app, name="runtime")
Node = Annotated[
    str | None,
    typer.Argument(help="A node's name, its id or the beginning of it; default: the one on this machine."),
]


def list_nodes(
    *,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own.")] = False,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """List the pool's nodes.

    \b
    Examples:
      pool nodes
      pool nodes --mine --json
    """
    nodes = open_pool().nodes.list(mine=mine, limit=limit)
    if json:
        output.print_json(nodes)
        return
    columns = (
        "ID",
        "NAME",
        "STATE",
        "TIER",
        "CORES",
        "RAM",
        "GPUS",
        "REGION",
        "TAGS",
        "RUNNING",
        "RELIABILITY",
        "SEEN",
    )
    output.print_table(columns, map(_row, nodes), empty="No nodes. Lend this machine: pool node start")


def _row(node: NodeView) -> tuple[output.Cell, ...]:
    profile = node.profile
    cards = ", ".join(f"{gpu.name} {output.memory(gpu.vram_mb)}" for gpu in profile.gpus)
    return (
        node.id, node.name, node.status.label, node.tier, f"{profile.cores:g}",
        output.memory(profile.ram_mb), cards, profile.region, " ".join(profile.tags), node.running,
        "" if node.reliability is None else f"{node.reliability:.2f}",
        output.ago(node.last_seen_ms),
    )  # fmt: skip


@app.command()
@accepts(given=node_options.lending, where=node_options.whereabouts)
def start(
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the log, as where the output is no terminal.")
    ] = False,
    json: LogJson = False,
    given: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Lend this machine until told to stop (Ctrl-C). The first time it needs a one-time code.

    Its options are kept in its folder, and hold for the next start, too. So does a pause.

    \b
    Examples:
      pool node start --hub http://pool.example:8000 --code ABCD-…
      pool node start --cores 4 --ram 8GB --no-gpus --tag studio --property site=lab-7
      pool node start --net
      pool node start                          again, with the options that it had
      pool node start --reset cores            as many cores as there are
    """
    from computepool.agent import main
    from computepool.sdk.classes import homes

    if json:
        log_as_json("INFO")
    watch_parent()
    config = node_options.config_of(given, **where)
    node_options.note_kept(config)
    homes.remember(config.data_dir)
    main.run(config, console=sys.stdout.isatty() and sys.stderr.isatty() and not (verbose or json))


@app.command()
@accepts(given=node_options.lending, where=node_options.whereabouts)
def enroll(*, json: Json = False, given: dict[str, Any], where: dict[str, Any]) -> None:
    """Make this machine known to a hub with a one-time code, without starting it.

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
    from computepool.core.errors import BadRequest, Conflict

    config = node_options.config_of(given, **where)
    if config.code is None:
        raise BadRequest("Give a one-time code: make one with `pool node code`, then --code CODE.")
    node_options.note_kept(config)
    prepare_data_dir(config.data_dir)
    if identity.load(config.identity_path) is not None:
        raise Conflict(
            f"This machine is enrolled already ({config.identity_path}). Start it: pool node start"
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
    if json:
        output.print_json({"node_id": made.node_id, "owner": made.owner, "hub": made.hub_url})
    else:
        output.say(made.node_id)
        output.note("Enrolled. Lend it with: pool node start")


@app.command()
def status(*, data: Data = None, json: Json = False) -> None:
    """Show what the node on this machine is doing.

    \b
    Examples:
      pool node status
    """
    _local("status", data, json=json)


@app.command()
def pause(node: Node = None, *, data: Data = None, json: Json = False) -> None:
    """Take no new jobs; running ones go on.

    \b
    Examples:
      pool node pause
      pool node pause studio-3
    """
    _change("pause", node, data, json=json)


@app.command()
def resume(node: Node = None, *, data: Data = None, json: Json = False) -> None:
    """Take jobs again.

    \b
    Examples:
      pool node resume
    """
    _change("resume", node, data, json=json)


@app.command()
def drain(node: Node = None, *, data: Data = None, json: Json = False) -> None:
    """Take no new jobs, and stop the node when the last one ends.

    \b
    Examples:
      pool node drain
    """
    _change("drain", node, data, json=json)


@app.command()
def rekey(*, data: Data = None, json: Json = False) -> None:
    """Give this machine's node a new key; the old one signs it, and works for another day.

    Where the key may have been stolen, this is not enough: `pool node revoke NODE`, and enrol it again.

    \b
    Examples:
      pool node rekey
    """
    from computepool.agent.owner.control import call

    reply = call(node_folder(data_folder(data)), "rekey")
    if json:
        output.print_json(reply)
    else:
        output.say(
            f"{reply['node_id']} has a new key; the old one works until "
            f"{output.moment(reply['old_accepted_until_ms'])}."
        )


@app.command()
@accepts(given=node_options.lending, where=node_options.whereabouts)
def doctor(*, json: Json = False, given: dict[str, Any], where: dict[str, Any]) -> None:
    """Check what keeps this machine from being a good node, and say how to mend it.

    \b
    Examples:
      pool node doctor
    """
    from dataclasses import asdict

    from computepool.agent.owner.doctor import Health, check_all

    checks = check_all(node_options.config_of(given, **where))
    if json:
        output.print_json([asdict(check) for check in checks])
    else:
        rows = [(check.health.value, check.name, check.detail, check.fix) for check in checks]
        output.print_table(("", "CHECK", "FOUND", "MEND IT"), rows, empty="")
    if any(check.health is Health.FAIL for check in checks):
        raise typer.Exit(1)


@app.command()
def show(node: Node = None, *, data: Data = None, json: Json = False) -> None:
    """Show a node: what it has, what was measured of it, what it does, and how far the pool relies on it.

    \b
    Examples:
      pool node show
      pool node show studio-3 --json
    """
    pool = open_pool()
    view = pool.nodes.get(this_node(data)) if node is None else pool.nodes.find(node)
    if json:
        output.print_json(view)
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
    dues = f"{known.dues_paid} of {known.dues} verified jobs" if known.newcomer else "paid"
    worth = None if known.exposure_cap is None else format_credits(known.exposure_cap)
    cap = "jobs of any value" if worth is None else f"jobs worth {worth} credits at once"
    return [
        ("reliability", f"{known.score:.3f}"),
        ("successes", f"{known.successes} (count {known.success_weight:.2f})"),
        ("failures", f"{known.failures} (count {known.failure_weight:.2f})"),
        ("last outcome", last),
        ("dues", dues),
        ("tenure", f"{known.tenure_days} days, {known.verified_days} of them verified"),
        ("trusted with", cap),
        ("streak", f"{known.streak} verified in a row"),
        ("strikes", _violations(known)),
    ]


def _violations(known: ReputationView) -> str:
    """Only the last few are remembered by their time; once a node is banned that says nothing any more."""
    if known.banned_at_ms is not None:
        return f"{known.strikes}: banned {output.ago(known.banned_at_ms)}"
    if known.probation_at_ms is not None:
        return f"{known.strikes}: on probation since {output.ago(known.probation_at_ms)}"
    return f"{known.strikes}, {known.strikes_lately} of them towards a probation" if known.strikes else "none"


@app.command()
def why(node: Node = None, *, data: Data = None, json: Json = False) -> None:
    """Explain why a node gets no work, or which work it gets.

    \b
    Examples:
      pool node why
      pool node why studio-3
    """
    pool = open_pool()
    node_id = this_node(data) if node is None else pool.nodes.find(node).id
    answer = pool.nodes.why(node_id)
    if json:
        output.print_json(answer)
        return
    output.say(answer.sentence)
    if answer.reputation:
        output.say(answer.reputation)
    if answer.hardware:
        output.say(answer.hardware)
    rows = [(row.shape, row.queued, row.reason) for row in answer.rows]
    if rows:
        output.print_table(("JOBS THAT NEED", "WAITING", "WHY NOT HERE"), rows, empty="")


def _change(word: str, node: str | None, data: Path | None, *, json: bool) -> None:
    if node is None:
        _local(word, data, json=json)
        return
    nodes = open_pool().nodes
    view = getattr(nodes, word)(nodes.find(node).id)
    if json:
        output.print_json(view)
    else:
        output.say(f"{view.name}: {view.sentence}")


def _local(word: str, data: Path | None, *, json: bool) -> None:
    from computepool.agent.owner import control

    answer = control.call(node_folder(data_folder(data)), word)
    if json:
        output.print_json(answer)
        return
    output.print_fields(node_status.fields_of(answer))


def this_node(data: Path | None) -> str:
    from computepool.agent.hub_link import identity
    from computepool.core.errors import BadRequest

    known = identity.load(node_folder(data_folder(data)) / "identity.json")
    if known is None:
        raise BadRequest("This machine is not enrolled; name a node: pool node why NAME")
    return known.node_id
