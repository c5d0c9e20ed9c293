"""`pool host`: a small mesh of machines that trust each other. The first host is also the hub, which others join."""

from __future__ import annotations

import ipaddress
import json as jsonlib
import os
import platform
import re
import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from computepool.cli import output
from computepool.cli.local.hub import check_port
from computepool.cli.local.local_pool import NODE_START_S, LocalPool, program, sign_in, status_line
from computepool.cli.node import codes
from computepool.cli.node.options import CODE_ENV, call_agent, start_arguments
from computepool.cli.options import RETRY_FOR_S, Yes, accepts, collects, confirm, option
from computepool.core.errors import BadRequest, ComputePoolError, Conflict, Unavailable
from computepool.protocol.local_address import outgoing_address, url_of
from computepool.sdk.client.config import data_folder, hub_url, load_config, node_folder, write_private
from computepool.sdk.client.transport import Transport
from computepool.sdk.errors import HubUnreachable

PORT = 8765
LOOPBACK = "127.0.0.1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_VERSION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._:/+-]{0,63})?")
_CONFIG = "host.json"
#: In a mesh, jobs are free and results are not verified. They still run in a sandbox, since any program may have bugs.
#: Environment variables take precedence.
MESH_SETTINGS = {
    "COMPUTEPOOL_ECONOMY": "none",
    "COMPUTEPOOL_VERIFY": "none",
    "COMPUTEPOOL_NEWCOMER_JOBS": "0",
    "COMPUTEPOOL_EXPOSURE": "0",
    "COMPUTEPOOL_EXPLORE_SHARE": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """Settings of a host, stored in its folder for the next start. The options of its node are stored by the node."""

    name: str
    mesh_version: str = ""
    peer: str = ""  #: the hub that it joined; empty: it is the hub itself
    port: int = PORT
    bind_public: str = "no"


#: By the fields of HostConfig; options that are not given keep their stored values.
_OPTIONS = {
    "bind_public": option(
        str,
        "auto|ADDRESS|no",
        "Address at which other machines reach this one; auto detects it. Default: no, local only.",
        "--bind-public",
    ),
    "mesh_version": option(str, "VERSION", "Version of the mesh; hosts with a different one cannot join."),
    "peer": option(str, "URL", "Join the mesh of this host. Default: start a new mesh."),
    "port": option(int, None, f"Port of the hub. Default: {PORT}.", min=1, max=65535),
}


@accepts(given=collects(_OPTIONS)(dict), node=start_arguments)
def host(
    *,
    name: Annotated[str | None, Option(metavar="NAME", help="Host name. Default: the machine's name.")] = None,
    given: dict[str, Any],
    code: Annotated[
        str | None, Option(metavar="CODE", envvar=CODE_ENV, help="Join code printed by the first host; needed once.")
    ] = None,
    data: Annotated[Path | None, Option(metavar="DIR", help="Data folder. Default: one per host name.")] = None,
    yes: Yes = False,
    node: list[str],
) -> None:
    """Run this machine as a host of a small trusted mesh. Ctrl-C stops it.

    Without --peer, starts a new mesh: this host is hub and node, and prints the command that others join with.
    Jobs in a mesh are free and results are not verified, but jobs still run in a sandbox.
    If this machine is signed in to the hub (`pool login`), --peer needs no code and no mesh version.
    A host that was started before keeps its settings and needs no code. --json prints one document when it is ready.

    Examples:
      pool host --name laptop --bind-public auto --mesh-version analysis --tag laptop
      pool host --name linux-a --peer http://laptop:8765 --code CODE --mesh-version analysis \\
        --tag linux --property python=3.12
      pool host --peer http://laptop:8765      if this machine is signed in to that hub
      pool host --name linux-a                 start again with the same settings
      pool host --name two --port 9001         a second host on the same machine
    """
    known = _host_name(name)
    base = (data or data_folder() / "hosts" / known).expanduser().absolute()
    config = _merge(_load(base), known, yes=yes, given=given)
    codes.check_code(code)
    with LocalPool(base) as machine:
        if config.peer:
            _join(machine, config, node, code=code)
        else:
            _start_mesh(machine, config, node)


# ------------------------------------------------------------ start a mesh, or join one
def _start_mesh(machine: LocalPool, config: HostConfig, node: list[str]) -> None:
    address = _address(config.bind_public)
    listen = address if _is_ip(address) else "0.0.0.0"
    check_port(listen, config.port)
    url = url_of(address, config.port)
    env = {name: value for name, value in MESH_SETTINGS.items() if name not in os.environ}
    env["COMPUTEPOOL_MESH_VERSION"] = config.mesh_version
    with status_line("Starting the hub") as update:
        secrets = machine.start_hub(listen, config.port, public_url=url, env=env)
        _save(config, machine.base)
        machine.start_node([*node, *_node_options(config, url)], url=url, code=secrets["enrol_code"])
        pool = sign_in(machine, url, secrets["key"])
        update("Starting the node (testing the sandbox)")
        machine.until(lambda: _is_connected(machine.base), timeout_s=NODE_START_S, what="The node")
    made = pool.nodes.code(hosts=None)
    version = ["--mesh-version", config.mesh_version] if config.mesh_version else []
    public = [] if address == LOOPBACK else ["--bind-public", "auto"]
    join = [program(), "host", "--name", "NAME", *public, "--peer", url, *version, "--code", made.code]
    ready = {
        **_document(config, machine, url=url),
        "code": made.code,
        "code_hosts": made.hosts,
        "code_expires_at_ms": made.expires_at_ms,
        "join": shlex.join(join),
        "signin": f"{url}/signin?code={secrets['signin_code']}",
    }
    _print_ready(ready, _mesh_lines(config, ready, local_only=not public))
    machine.wait()


def _join(machine: LocalPool, config: HostConfig, node: list[str], *, code: str | None) -> None:
    address = _address(config.bind_public)
    own = url_of(address if address != LOOPBACK else config.name, config.port)
    if own == config.peer:  # several hosts on one machine
        own = url_of(config.name, config.port)
    if (node_folder(machine.base) / "identity.json").exists():
        code = None  # an enrolled node needs none, and waits until the hub is there
    else:
        code = code or _request_code(config.peer)
        config = replace(config, mesh_version=config.mesh_version or _probe(config.peer))
    with status_line(f"Joining {config.peer} (testing the sandbox)"):
        machine.start_node([*node, *_node_options(config, own)], url=config.peer, code=code)
        machine.until(lambda: _is_connected(machine.base), timeout_s=NODE_START_S, what="The node")
    _save(config, machine.base)
    lines = [
        f"{config.name} is a host of {config.peer}{_version_text(config)} and takes jobs.",
        f"Jobs can exclude it by its name, or by {own}",
        f"Data folder: {machine.base}",
    ]
    _print_ready(_document(config, machine, url=own), lines)
    machine.wait()


def _node_options(config: HostConfig, url: str) -> list[str]:
    return ["--name", config.name, "--mesh-version", config.mesh_version, "--url", url]


def _request_code(peer: str) -> str:
    """Create a join code with the key that `pool login` stored for this hub; the key is not sent to any other hub."""
    from computepool.sdk import connect

    known = load_config()
    if known.key is None or known.hub != hub_url(peer):
        here = "" if known.key is None else f" (this machine is signed in to {known.hub})"
        raise BadRequest(
            f"To join {peer}, pass the code that its first host printed (--code CODE, or {CODE_ENV}), "
            f"or sign in to it first: pool login {peer}{here}",
            field="code",
        )
    with connect(known.hub, known.key, retry_for=RETRY_FOR_S) as pool:
        return pool.nodes.code().code


def _probe(peer: str) -> str:
    """The mesh version of the hub; raises at once if there is no hub."""
    from computepool.sdk.pool import Pool

    with Pool(Transport(peer, None, retry_for=RETRY_FOR_S)) as pool:
        try:
            return pool.accounts.hub().mesh_version
        except HubUnreachable as error:
            raise Unavailable(f"No host found at {peer}: {error.detail}") from error


def _is_connected(base: Path) -> bool:
    try:
        return bool(call_agent(base, "status")["connected"])
    except ComputePoolError:
        return False


# ------------------------------------------------------------ stored settings
def _load(base: Path) -> HostConfig | None:
    try:
        return HostConfig(**jsonlib.loads((base / _CONFIG).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise BadRequest(f"{base / _CONFIG} is damaged ({error}). Remove it and pass the options again.") from error


def _save(config: HostConfig, base: Path) -> None:
    write_private(base / _CONFIG, jsonlib.dumps(asdict(config), indent=2) + "\n")


def _merge(before: HostConfig | None, name: str, *, yes: bool, given: dict[str, Any]) -> HostConfig:
    """The stored settings with the given changes. Changes that would make it a different host are refused or confirmed."""
    if "peer" in given:
        given["peer"] = hub_url(given["peer"])
    if not _VERSION.fullmatch(given.get("mesh_version", "")):
        raise BadRequest(
            "A mesh version consists of letters, digits and ._:/+- and starts with a letter or digit.",
            field="mesh_version",
        )
    if before is None:
        return HostConfig(name=name, **given)
    if name != before.name:
        raise Conflict(f"This folder belongs to the host {before.name}. Choose a different one with --data.")
    if given.get("peer", before.peer) and not before.peer:
        raise Conflict(f"{name} is the hub of its own mesh. Choose a different --name or --data.")
    config = replace(before, **given)
    if not yes:
        _confirm_changes(before, config)
    return config


def _confirm_changes(before: HostConfig, config: HostConfig) -> None:
    """A user who passes different options may have meant a different host."""
    if config.peer != before.peer:
        output.note(
            f"{config.name} was a host of {before.peer} and would now join {config.peer}. It takes jobs only from the hub "
            "that it is enrolled at. Continue if that hub has a new address; otherwise choose a different --name."
        )
        confirm("Is it the same hub?")
    if config.mesh_version != before.mesh_version:
        others = f"The hub {config.peer}" if config.peer else "The hosts that joined it"
        output.note(
            f"The mesh version of {config.name} would change from {before.mesh_version or '(none)'} to "
            f"{config.mesh_version or '(none)'}. {others} must change too: versions cannot be mixed."
        )
        confirm("Change the mesh version?")


# ------------------------------------------------------------ names and addresses
def _host_name(name: str | None) -> str:
    chosen = name or platform.node().split(".")[0] or "host"
    if not _NAME.fullmatch(chosen):
        raise BadRequest(
            f"{chosen!r} is not a valid host name: use letters, digits, dots and dashes, starting with a letter or digit.",
            field="name",
        )
    return chosen


def _address(bind_public: str) -> str:
    if bind_public == "no":
        return LOOPBACK
    address = outgoing_address() if bind_public == "auto" else bind_public.strip("[]")
    if not address or "/" in address or not (_is_ip(address) or _NAME.fullmatch(address)):
        raise BadRequest(
            f"{bind_public!r} is not an address of this machine. Pass one: --bind-public 192.168.7.3",
            field="bind_public",
        )
    return address


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _version_text(config: HostConfig) -> str:
    return f" (mesh version {config.mesh_version})" if config.mesh_version else ""


def _document(config: HostConfig, machine: LocalPool, *, url: str) -> dict[str, Any]:
    return {
        "name": config.name,
        "url": url,
        "mesh_version": config.mesh_version,
        "data": str(machine.base),
        "peer": config.peer or None,
    }


def _mesh_lines(config: HostConfig, ready: dict[str, Any], *, local_only: bool) -> list[str]:
    until = output.moment(ready["code_expires_at_ms"])
    lines = [
        f"{config.name} is the hub and first host of a mesh at {ready['url']}{_version_text(config)}",
        f"Data folder: {ready['data']}",
        "",
        f"To join from {'this' if local_only else 'another'} machine, with any --name and --tag:",
        f"  {ready['join']}",
        f"The code is valid for {ready['code_hosts']} hosts until {until}. Manage codes: {program()} node codes",
        "",
        f"Sign in (one-time link):  {ready['signin']}",
    ]
    if local_only:
        lines.append("Only this machine can reach it. To let others join, pass --bind-public auto.")
    return lines


def _print_ready(ready: dict[str, Any], lines: list[str]) -> None:
    output.show(ready, "\n".join(["", *(f"  {line}".rstrip() for line in lines), "  Ctrl-C stops everything."]))
    sys.stdout.flush()
