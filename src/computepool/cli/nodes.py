"""`pool nodes` and `pool node …`: the pool's machines, and lending this one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from computepool.cli import nodecodes, output, runtimes
from computepool.cli.children import watch_parent
from computepool.cli.folders import data_folder, node_folder
from computepool.cli.options import Json, Limit, accepts, open_pool, pairs
from computepool.core.money import format_credits

if TYPE_CHECKING:
    from computepool.agent.config import AgentConfig
    from computepool.protocol.nodes import HardwareView, NodeView, ReputationView

app = typer.Typer(no_args_is_help=True, help="Lend this machine, and look after the machines you lend.")
app.add_typer(runtimes.app, name="runtime")
CODE_ENV = "COMPUTEPOOL_CODE"
Data = Annotated[Path | None, typer.Option(metavar="DIR", help="Base folder for data.")]
Node = Annotated[str | None, typer.Argument(help="A node's id or name; default: the one on this machine.")]


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
        node.id, node.name, node.state if node.online else "offline", node.tier, f"{profile.cores:g}",
        output.memory(profile.ram_mb), cards, profile.region, " ".join(profile.tags), node.running,
        "" if node.reliability is None else f"{node.reliability:.2f}",
        "now" if node.online else output.ago(node.last_seen_ms),
    )  # fmt: skip


_Code = Annotated[
    str | None, typer.Option(metavar="CODE", envvar=CODE_ENV, help="One-time code, from `pool node code`.")
]
_Gpus = Annotated[
    bool | None,
    typer.Option(
        "--gpus/--no-gpus",
        help="Lend the graphics cards to everybody, or to nobody; default: to you and accounts you trust.",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None, typer.Option(metavar="TAG", help="A tag jobs may ask for; may be repeated.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="A property jobs may ask for; may be repeated."),
]
Cores = Annotated[float | None, typer.Option(metavar="N", help="How many cores to lend; default: all.")]
Ram = Annotated[str | None, typer.Option(metavar="SIZE", help="How much memory to lend: 8, 8GB.")]
Elastic = Annotated[
    bool | None,
    typer.Option(
        "--elastic/--no-elastic",
        help="Let running jobs use CPUs that no other job has reserved; default: only your own jobs.",
        show_default=False,
    ),
]
_Sandbox = Annotated[str, typer.Option(metavar="LEVEL", help="auto, gvisor, container, namespace, process.")]
_Trust = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Account id whose jobs may run without a sandbox; * for all."),
]
_Place = Annotated[
    str, typer.Option(metavar="LAT,LON", help="Show it there on the map, to 0.1°; default: in its region.")
]
_Net = Annotated[
    bool,
    typer.Option(
        "--net/--no-net", help="Run jobs that list hosts to reach; that traffic comes from your address."
    ),
]
_Private = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CIDR", help="A network of yours that such jobs may list too: 192.168.7.0/24; default: none."
    ),
]


def agent_config(
    *,
    hub: Annotated[
        str | None, typer.Option(metavar="URL", help="The hub's address; default: where it is enrolled.")
    ] = None,
    code: _Code = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to call it; default: the host's name.")
    ] = None,
    tag: Tags = None,
    property_: Properties = None,
    region: Annotated[str, typer.Option(metavar="REGION", help="in, eu, us, …")] = "",
    place: _Place = "",
    url: Annotated[
        str, typer.Option(metavar="URL", help="What else to call it: jobs may exclude it by this.")
    ] = "",
    mesh_version: Annotated[
        str, typer.Option(metavar="VERSION", help="The mesh it belongs to; hubs of another one refuse it.")
    ] = "",
    cores: Cores = None,
    elastic: Elastic = None,
    ram: Ram = None,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="How much disk to lend: 50, 50GB.")] = None,
    gpus: _Gpus = None,
    sandbox: _Sandbox = "auto",
    runtime_add: runtimes.Add = None,
    trust: _Trust = None,
    net: _Net = False,
    net_allow_private: _Private = None,
    data: Data = None,
) -> AgentConfig:
    from computepool.agent.config import AgentConfig
    from computepool.sdk.sizes import megabytes

    folder = node_folder(data_folder(data))
    given: dict[str, Any] = {} if name is None else {"name": name}
    return AgentConfig(
        hub_url=hub or _enrolled_at(folder),
        data_dir=folder,
        code=nodecodes.checked(code),
        tags=tuple(tag or ()),
        properties=pairs(property_, what="--property"),
        region=region,
        place=place,
        url=url.rstrip("/"),
        mesh_version=mesh_version,
        cores=cores,
        elastic=elastic,
        ram_mb=None if ram is None else megabytes(ram, what="ram"),
        disk_mb=None if disk is None else megabytes(disk, what="disk"),
        gpus=gpus,
        sandbox=sandbox,
        runtime_add=tuple(runtime_add or ()),
        trusted=tuple(trust or ()),
        network=net,
        net_private=tuple(net_allow_private or ()),
        **given,
    )


def _enrolled_at(folder: Path) -> str:
    from computepool.agent import identity
    from computepool.sdk.config import load_config

    known = identity.load(folder / "identity.json")
    return load_config().hub if known is None else known.hub_url


@app.command()
@accepts(config=agent_config)
def start(*, config: AgentConfig) -> None:
    """Lend this machine until told to stop (Ctrl-C). The first time it needs a one-time code.

    \b
    Examples:
      pool node start --hub http://pool.example:8000 --code ABCD-…
      pool node start --cores 4 --ram 8GB --no-gpus --tag studio --property site=lab-7
      pool node start --net
    """
    from computepool.agent import main
    from computepool.sdk import homes

    watch_parent()
    homes.remember(config.data_dir)
    main.run(config)


@app.command()
@accepts(config=agent_config)
def enroll(*, json: Json = False, config: AgentConfig) -> None:
    """Make this machine known to a hub with a one-time code, without starting it.

    \b
    Examples:
      pool node enroll --hub http://pool.example:8000 --code ABCD-…
    """
    import asyncio

    from computepool.agent import identity, main
    from computepool.agent.clock import SystemClock
    from computepool.agent.config import prepare_data_dir
    from computepool.agent.hub_client import HubClient
    from computepool.core.errors import BadRequest, Conflict

    if config.code is None:
        raise BadRequest("Give a one-time code: make one with `pool node code`, then --code CODE.")
    prepare_data_dir(config.data_dir)
    if identity.load(config.identity_path) is not None:
        raise Conflict(
            f"This machine is enrolled already ({config.identity_path}). Start it: pool node start"
        )
    machine = main.inspect(config)

    async def exchange() -> identity.Identity:
        clock = SystemClock()
        client = HubClient(config.hub_urls, clock=clock, limits=config.limits)
        try:
            return await main.enrol(config, machine.profile, client, clock=clock)
        finally:
            await client.close()

    made = asyncio.run(exchange())
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
    from computepool.agent.control import call

    reply = call(node_folder(data_folder(data)), "rekey")
    if json:
        output.print_json(reply)
    else:
        output.say(
            f"{reply['node_id']} has a new key; the old one works until "
            f"{output.moment(reply['old_accepted_until_ms'])}."
        )


@app.command()
@accepts(config=agent_config)
def doctor(*, json: Json = False, config: AgentConfig) -> None:
    """Check what keeps this machine from being a good node, and say how to mend it.

    \b
    Examples:
      pool node doctor
    """
    from dataclasses import asdict

    from computepool.agent.doctor import Health, check_all

    checks = check_all(config)
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
        ("state", view.state if view.online else "offline"),
        ("tier", view.tier),
        ("cores", f"{profile.cores:g}"),
        ("ram", output.memory(profile.ram_mb)),
        ("isolation", profile.isolation),
        ("runtime", profile.runtime),
        ("network", "for jobs that list hosts" if profile.network else "none for jobs"),
        ("running", view.running),
        ("faults in a row", view.consecutive_faults),
    ]
    if known is not None:
        fields += _trust_fields(known)
    if view.hardware is not None:
        fields += _hardware_fields(view.hardware)
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
        ("strikes", _strikes(known)),
    ]


def _strikes(known: ReputationView) -> str:
    """Only the last two are remembered by their time; once a node is banned that says nothing any more."""
    if known.banned_at_ms is not None:
        return f"{known.strikes}: banned {output.ago(known.banned_at_ms)}"
    return f"{known.strikes}, {known.strikes_lately} of them towards a ban" if known.strikes else "none"


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
        output.say(f"{view.name} {view.state}")


def _local(word: str, data: Path | None, *, json: bool) -> None:
    from computepool.agent import control

    answer = control.call(node_folder(data_folder(data)), word)
    if json:
        output.print_json(answer)
        return
    output.print_fields(
        [
            (name.replace("_", " "), _shown(name, value))
            for name, value in answer.items()
            if value is not None and not isinstance(value, dict)
        ]
    )


def _shown(name: str, value: Any) -> output.Cell:
    if isinstance(value, list):
        return (output.ranges(value) or "none") if name.startswith("cpus") else len(value)
    return str(value)


def this_node(data: Path | None) -> str:
    from computepool.agent import identity
    from computepool.core.errors import BadRequest

    known = identity.load(node_folder(data_folder(data)) / "identity.json")
    if known is None:
        raise BadRequest("This machine is not enrolled; name a node: pool node why NAME")
    return known.node_id
