"""The options of a node: what `pool node start` takes, what it keeps for the next start, and how that is shown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.local.folders import data_folder, node_folder
from computepool.cli.node import codes, runtime
from computepool.cli.options import pairs
from computepool.sdk.client.config import load_config
from computepool.sdk.client.sizes import megabytes

if TYPE_CHECKING:
    from computepool.agent.config import AgentConfig

CODE_ENV = "COMPUTEPOOL_CODE"
#: Fields of AgentConfig whose option has another name than the field.
_FLAGS = {
    "hub_url": "hub",
    "tags": "tag",
    "properties": "property",
    "ram_mb": "ram",
    "disk_mb": "disk",
    "trusted": "trust",
    "network": "net",
    "net_private": "net-allow-private",
    "package_index_hosts": "package-index-host",
}
_EVERYTHING = "all"
Data = runtime.Data
_Code = Annotated[
    str | None, typer.Option(metavar="CODE", envvar=CODE_ENV, help="One-time code from `pool node code`.")
]
_Gpus = Annotated[
    bool | None,
    typer.Option(
        "--gpus/--no-gpus",
        help="Offer GPUs to everybody, or to nobody. Default: to you and accounts you trust.",
        show_default=False,
    ),
]
Tags = Annotated[list[str] | None, typer.Option(metavar="TAG", help="Tag that jobs can require; repeatable.")]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="Property that jobs can require; repeatable."),
]
Cores = Annotated[float | None, typer.Option(metavar="N", help="Number of cores to offer. Default: all.")]
Ram = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory to offer: 8, 8GB.")]
Elastic = Annotated[
    bool | None,
    typer.Option(
        "--elastic/--no-elastic",
        help="Let running jobs use CPUs that no other job has reserved. Default: only your own jobs.",
        show_default=False,
    ),
]
_Name = Annotated[str | None, typer.Option(metavar="NAME", help="Node name. Default: the machine's name.")]
_Sandbox = Annotated[
    str | None, typer.Option(metavar="LEVEL", help="gvisor, container, namespace or process. Default: auto.")
]
_Trust = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID", help="Account ID whose jobs may run without a sandbox; * for all; repeatable."
    ),
]
_Place = Annotated[
    str | None,
    typer.Option(metavar="LAT,LON", help="Location on the map, rounded to 0.1°. Default: its region."),
]
Net = Annotated[
    bool | None,
    typer.Option(
        "--net/--no-net",
        help="Allow jobs to connect to hosts that they list; the traffic comes from your address. Default: no.",
        show_default=False,
    ),
]
_Private = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CIDR", help="Private network that such jobs may also list: 192.168.7.0/24. Default: none."
    ),
]


Reset = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTION", help="Reset a saved option to its default: cores, tag, … or all; repeatable."
    ),
]


def node_fields(
    *,
    name: _Name = None,
    tag: Tags = None,
    property_: Properties = None,
    region: Annotated[str | None, typer.Option(metavar="REGION", help="in, eu, us, …")] = None,
    place: _Place = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="URL by which jobs can exclude this node.")
    ] = None,
    mesh_version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Mesh version; hubs with a different one refuse the node."),
    ] = None,
    cores: Cores = None,
    elastic: Elastic = None,
    ram: Ram = None,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="Disk space to offer: 50, 50GB.")] = None,
    gpus: _Gpus = None,
    sandbox: _Sandbox = None,
    runtime_add: runtime.Add = None,
    trust: _Trust = None,
    net: Net = None,
    net_allow_private: _Private = None,
    package_index: runtime.Index = None,
    package_index_host: runtime.IndexHosts = None,
    fetch_python: runtime.FetchPython = None,
    python_mirror: runtime.PythonMirror = None,
) -> dict[str, Any]:
    """The fields of AgentConfig that were given; what was not is kept as it was."""
    given = {
        "name": name,
        "tags": tuple(tag or ()) or None,
        "properties": pairs(property_, what="--property") or None,
        "region": region,
        "place": place,
        "url": None if url is None else url.rstrip("/"),
        "mesh_version": mesh_version,
        "cores": cores,
        "elastic": elastic,
        "ram_mb": None if ram is None else megabytes(ram, what="ram"),
        "disk_mb": None if disk is None else megabytes(disk, what="disk"),
        "gpus": gpus,
        "sandbox": sandbox,
        "runtime_add": tuple(runtime_add or ()) or None,
        "trusted": tuple(trust or ()) or None,
        "network": net,
        "net_private": tuple(net_allow_private or ()) or None,
        "package_index": package_index,
        "package_index_hosts": tuple(package_index_host or ()) or None,
        "fetch_python": fetch_python,
        "python_mirror": python_mirror,
    }
    return {field: value for field, value in given.items() if value is not None}


def start_arguments(
    *,
    tag: Tags = None,
    property_: Properties = None,
    cores: Cores = None,
    elastic: Elastic = None,
    ram: Ram = None,
    sandbox: _Sandbox = None,
    net: Net = None,
    fetch_python: runtime.FetchPython = None,
    python_mirror: runtime.PythonMirror = None,
    reset: Reset = None,
) -> list[str]:
    """Arguments of `pool node start`, for `pool up` and `pool host`. Wrong ones are refused before anything is started."""
    from computepool.agent.config import AgentConfig

    given = node_fields(
        tag=tag,
        property_=property_,
        cores=cores,
        elastic=elastic,
        ram=ram,
        sandbox=sandbox,
        net=net,
        fetch_python=fetch_python,
        python_mirror=python_mirror,
    )
    AgentConfig(hub_url="http://127.0.0.1", data_dir=Path(), **given)
    check_reset(reset or ())
    return [
        *(word for field, value in given.items() for word in _words(field, value)),
        *(part for word in reset or () for part in ("--reset", word)),
    ]


def enrolment(
    *,
    hub: Annotated[
        str | None, typer.Option(metavar="URL", help="Hub address. Default: where the node is enrolled.")
    ] = None,
    code: _Code = None,
    reset: Reset = None,
    data: Data = None,
) -> dict[str, Any]:
    return {"hub": hub, "code": code, "reset": reset or [], "data": data}


def config_of(
    given: Mapping[str, Any], *, hub: str | None, code: str | None, reset: Sequence[str], data: Path | None
) -> AgentConfig:
    """What was given, and for the rest what the last start had."""
    from computepool.agent.config import AgentConfig
    from computepool.agent.owner import saved_options

    folder = node_folder(data_folder(data))
    gone = check_reset(reset)
    kept = {field: value for field, value in saved_options.load(folder).items() if field not in gone}
    address = hub or kept.get("hub_url") or _enrolled_at(folder)
    kept = {field: value for field, value in kept.items() if field not in given and field != "hub_url"}
    return AgentConfig(
        **{**kept, **given}, hub_url=address, data_dir=folder, code=codes.check_code(code), kept=tuple(kept)
    )


def check_reset(reset: Sequence[str]) -> set[str]:
    """The fields that these options set."""
    from computepool.agent.owner import saved_options

    known = {flag_of(field): field for field in saved_options.FIELDS}
    words = {word.lstrip("-").removeprefix("no-") for word in reset}
    if unknown := words - {*known, _EVERYTHING}:
        raise typer.BadParameter(
            f"{min(unknown)!r} is not a saved option; choose from {', '.join(known)}, {_EVERYTHING}.",
            param_hint="--reset",
        )
    return set(saved_options.FIELDS) if _EVERYTHING in words else {known[word] for word in words}


def flag_of(field: str) -> str:
    return _FLAGS.get(field, field.replace("_", "-"))


def note_kept(config: AgentConfig) -> None:
    if config.kept:
        output.note(
            f"Saved options: {as_options(config, config.kept)} "
            "(pass an option to change it; --reset OPTION restores its default)"
        )


def as_options(config: AgentConfig, fields: tuple[str, ...]) -> str:
    """As they would be typed: `--cores 2 --tag studio`."""
    return shlex.join(word for field in fields for word in _words(field, getattr(config, field)))


def _words(field: str, value: Any) -> list[str]:
    flag = flag_of(field)
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, Mapping):
        value = tuple(f"{name}={of_it}" for name, of_it in value.items())
    if isinstance(value, tuple):
        return [word for item in value for word in (f"--{flag}", item)]
    if field.endswith("_mb"):
        return [f"--{flag}", f"{value}MB"]
    return [f"--{flag}", f"{value:g}" if isinstance(value, float) else str(value)]


def _enrolled_at(folder: Path) -> str:
    from computepool.agent.hub_link import identity

    known = identity.load(folder / "identity.json")
    return load_config().hub if known is None else known.hub_url
