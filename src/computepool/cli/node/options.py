"""The options of `pool node start`, which are saved for the next start."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from typer import BadParameter

from computepool.cli import output
from computepool.cli.node import codes
from computepool.cli.node.runtime import Add
from computepool.cli.options import collects, option, pairs, split_list
from computepool.sdk.client.config import load_config, node_folder
from computepool.sdk.client.sizes import megabytes

if TYPE_CHECKING:
    from computepool.agent.config import AgentConfig
    from computepool.agent.hub_link.hub_client import HubClient
    from computepool.agent.hub_link.identity import Identity

T = TypeVar("T")
CODE_ENV = "COMPUTEPOOL_CODE"
#: Options by field of AgentConfig, where the names differ.
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
_RESET = option(
    list[str], "OPTION", "Reset a saved option to its default: cores, tag, … or all; repeatable.", "--reset"
)
_ENROLMENT = {
    "hub": option(str, "URL", "Hub address. Default: where the node is enrolled."),
    "code": option(str, "CODE", "One-time code from `pool node code`.", envvar=CODE_ENV),
    "reset": _RESET,
    "data": option(Path, "DIR", "Base folder for data."),
}


def flag_of(field: str) -> str:
    return _FLAGS.get(field, field.replace("_", "-"))


def _switch(field: str, help_: str) -> Any:
    return option(bool, None, help_, f"--{flag_of(field)}/--no-{flag_of(field)}", show_default=False)


def _several(field: str, metavar: str, help_: str) -> Any:
    return option(list[str], metavar, help_, f"--{flag_of(field)}")


#: By field of AgentConfig.
_OPTIONS = {
    "name": option(str, "NAME", "Node name. Default: the machine's name."),
    "tags": _several("tags", "TAG", "Tag that jobs can require; repeatable."),
    "properties": _several("properties", "NAME=VALUE", "Property that jobs can require; repeatable."),
    "region": option(str, "REGION", "in, eu, us, …"),
    "place": option(str, "LAT,LON", "Location on the map, rounded to 0.1°. Default: its region."),
    "url": option(str, "URL", "URL by which jobs can exclude this node."),
    "mesh_version": option(str, "VERSION", "Mesh version; hubs with a different one refuse the node."),
    "cores": option(float, "N", "Number of cores to offer. Default: all."),
    "elastic": _switch(
        "elastic", "Let running jobs use CPUs that no other job has reserved. Default: only your own jobs."
    ),
    "ram_mb": option(str, "SIZE", "Memory to offer: 8, 8GB.", "--ram"),
    "disk_mb": option(str, "SIZE", "Disk space to offer: 50, 50GB.", "--disk"),
    "gpus": _switch("gpus", "Offer GPUs to everybody, or to nobody. Default: to you and accounts you trust."),
    "sandbox": option(str, "LEVEL", "gvisor, container, namespace or process. Default: auto."),
    "runtime_add": Add,
    "trusted": _several("trusted", "ID", "Account ID whose jobs may run without a sandbox; * for all; repeatable."),
    "network": _switch(
        "network", "Allow jobs to connect to hosts that they list; the traffic comes from your address. Default: no."
    ),
    "net_private": _several(
        "net_private", "CIDR", "Private network that such jobs may also list: 192.168.7.0/24. Default: none."
    ),
    "lan": _switch(
        "lan",
        "Let jobs on several nodes connect directly to those of their other nodes that do the same, in this network. "
        "Default: through the hub.",
    ),
    "package_index": option(str, "URL", "Index for jobs' packages; jobs can read all of it. Default: uv's own index."),
    "package_index_hosts": _several(
        "package_index_hosts",
        "HOST:PORT",
        "Host that serves the index's files; repeatable. Default: the hosts that the index names.",
    ),
    "registries": _several(
        "registries",
        "HOST,…",
        "Registries whose images jobs may use, such as docker.io; * for all public ones. Default: none.",
    ),
    "fetch_python": _switch(
        "fetch_python",
        "Also run functions of other Python versions: uv downloads CPython builds (about 30 MB each, 100 MB on "
        "disk) into the node's folder when a job needs one. Default: no.",
    ),
    "python_mirror": option(
        str, "URL", "Source for uv: a mirror's URL, or a list of downloads (.json). Default: uv's own source."
    ),
}
#: The options that `pool up` and `pool host` also take.
_SHARED = (
    *("tags", "properties", "cores", "elastic", "ram_mb", "sandbox", "network", "lan"),
    *("registries", "fetch_python", "python_mirror"),
)


@collects(_OPTIONS)
def node_fields(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of AgentConfig that the given options set."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    for size in fields.keys() & {"ram_mb", "disk_mb"}:
        fields[size] = megabytes(fields[size], what=flag_of(size))
    if "properties" in fields:
        fields["properties"] = pairs(given["properties"], what="--property")
    if "registries" in fields:
        fields["registries"] = tuple(split_list(given["registries"]))
    if "url" in fields:
        fields["url"] = fields["url"].rstrip("/")
    return fields


@collects({**{field: _OPTIONS[field] for field in _SHARED}, "reset": _RESET})
def start_arguments(given: dict[str, Any]) -> list[str]:
    """Arguments of `pool node start`, for `pool up` and `pool host`. Validates them before anything is started."""
    from computepool.agent.config import AgentConfig

    reset = given.pop("reset", [])
    fields = node_fields(**given)
    AgentConfig(hub_url="http://127.0.0.1", data_dir=Path(), **fields)
    check_reset(reset)
    return [
        *(word for field, value in fields.items() for word in _words(field, value)),
        *(part for word in reset for part in ("--reset", word)),
    ]


enrolment = collects(_ENROLMENT)(dict)


def config_of(
    given: Mapping[str, Any],
    *,
    hub: str | None = None,
    code: str | None = None,
    reset: Sequence[str] = (),
    data: Path | None = None,
) -> AgentConfig:
    """The configuration from the given fields and the saved ones of the last start."""
    from computepool.agent.config import AgentConfig
    from computepool.agent.owner import saved_options

    folder = node_folder(data)
    removed = check_reset(reset)
    kept = {field: value for field, value in saved_options.load(folder).items() if field not in removed}
    known = load_identity(folder)
    address = hub or kept.get("hub_url") or (load_config().hub if known is None else known.hub_url)
    kept = {field: value for field, value in kept.items() if field not in given and field != "hub_url"}
    return AgentConfig(
        **{**kept, **given}, hub_url=address, data_dir=folder, code=codes.check_code(code), kept=tuple(kept)
    )


def check_reset(reset: Sequence[str]) -> set[str]:
    """The fields that belong to the options of --reset."""
    from computepool.agent.owner import saved_options

    known = {flag_of(field): field for field in saved_options.FIELDS}
    words = {word.lstrip("-").removeprefix("no-") for word in reset}
    if unknown := words - {*known, _EVERYTHING}:
        raise BadParameter(
            f"{min(unknown)!r} is not a saved option; choose from {', '.join(known)}, {_EVERYTHING}.",
            param_hint="--reset",
        )
    return set(saved_options.FIELDS) if _EVERYTHING in words else {known[word] for word in words}


def note_saved_options(config: AgentConfig) -> None:
    if config.kept:
        saved = shlex.join(word for field in config.kept for word in _words(field, getattr(config, field)))
        output.note(f"Saved options: {saved} (pass an option to change it; --reset OPTION restores its default)")


def _words(field: str, value: Any) -> list[str]:
    """A field as command-line options, such as `--tag studio --tag linux`."""
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


def load_identity(folder: Path) -> Identity | None:
    """The identity of the node in this folder; None if it is not enrolled."""
    from computepool.agent.hub_link import identity

    return identity.load(folder / "identity.json")


def call_agent(data: Path | None, word: str) -> dict[str, Any]:
    """The reply of the agent that runs on this machine."""
    from computepool.agent.owner import control

    return control.call(node_folder(data), word)


def ask_hub(
    config: AgentConfig, question: Callable[[HubClient], Awaitable[T]], *, identity: Identity | None = None
) -> T:
    """Send one request to the hub, with the node's key if `identity` is given."""
    import asyncio

    from computepool.agent.clock import AgentClock
    from computepool.agent.hub_link.hub_client import HubClient

    async def ask() -> T:
        client = HubClient(config.hub_urls, clock=AgentClock(), limits=config.limits, identity=identity)
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(ask())
