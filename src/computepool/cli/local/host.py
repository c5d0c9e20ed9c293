"""`pool host`: a small mesh of machines that trust each other. The first host is also the hub; others join it."""

from __future__ import annotations

import json as jsonlib
import os
import re
import shlex
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.local.folders import data_folder, node_folder
from computepool.cli.local.hub import check_port
from computepool.cli.local.local_pool import NODE_START_S, LocalPool, program, sign_in, status_line
from computepool.cli.node import codes
from computepool.cli.node.options import CODE_ENV, start_arguments
from computepool.cli.options import RETRY_FOR_S, Yes, accepts, confirm
from computepool.core.errors import BadRequest, ComputePoolError, Conflict
from computepool.protocol.local_address import outgoing_address, url_of
from computepool.sdk.client.config import hub_url, load_config
from computepool.sdk.client.transport import Transport
from computepool.sdk.errors import HubUnreachable, Unavailable

PORT = 8765
LOOPBACK = "127.0.0.1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_VERSION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._:/+-]{0,63})?")
_MEMORY = "host.json"
#: A mesh of people who trust each other: nobody pays, nobody proves anything. The sandbox stays on: what runs is still
#: somebody's program, with all the mistakes that programs have. What the environment says wins.
MESH_SETTINGS = {
    "COMPUTEPOOL_ECONOMY": "none",
    "COMPUTEPOOL_VERIFY": "none",
    "COMPUTEPOOL_NEWCOMER_JOBS": "0",
    "COMPUTEPOOL_EXPOSURE": "0",
    "COMPUTEPOOL_EXPLORE_SHARE": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """What a host is, kept in its folder, so that the next start needs its name alone. The node keeps what it lends."""

    name: str
    mesh_version: str = ""
    peer: str = ""  #: the hub it joined; empty: it is the hub
    port: int = PORT
    bind_public: str = "no"


_FIELDS = {field.name for field in fields(HostConfig)}


_Name = Annotated[str | None, typer.Option(metavar="NAME", help="Host name. Default: the machine's name.")]
_Public = Annotated[
    str | None,
    typer.Option(
        "--bind-public",
        metavar="auto|ADDRESS|no",
        help="Address at which other machines reach this one; auto detects it. Default: no, local only.",
    ),
]
_Version = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="Version of the mesh; hosts with a different one cannot join."),
]
_Peer = Annotated[
    str | None, typer.Option(metavar="URL", help="Join the mesh of this host. Default: start a new mesh.")
]
_Code = Annotated[
    str | None,
    typer.Option(metavar="CODE", envvar=CODE_ENV, help="Join code printed by the first host; needed once."),
]
_Port = Annotated[int | None, typer.Option(min=1, max=65535, help=f"Port of the hub. Default: {PORT}.")]
_Data = Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder. Default: one per host name.")]


@accepts(lent=start_arguments)
def host(
    *,
    name: _Name = None,
    bind_public: _Public = None,
    mesh_version: _Version = None,
    peer: _Peer = None,
    code: _Code = None,
    port: _Port = None,
    data: _Data = None,
    yes: Yes = False,
    lent: list[str],
) -> None:
    """Run this machine as a host of a small mesh whose members trust each other. Ctrl-C stops it.

    Without --peer, starts a new mesh: this host is hub and node, and prints the command that others join with.
    Jobs in a mesh are free and results are not verified, but jobs still run in a sandbox.
    If this machine is signed in to the hub (`pool login`), --peer needs no code and no mesh version.
    A host that was started before keeps its settings and needs no code. --json prints one document when it is ready.

    \b
    Examples:
      pool host --name laptop --bind-public auto --mesh-version analysis --tag laptop
      pool host --name linux-a --peer http://laptop:8765 --code CODE --mesh-version analysis \\
        --tag linux --property python=3.12
      pool host --peer http://laptop:8765      if this machine is signed in to that hub
      pool host --name linux-a                 start again with the same settings
      pool host --name two --port 9001         a second host on the same machine
    """
    chosen = _host_name(name)
    base = (data or data_folder() / "hosts" / chosen).expanduser().absolute()
    given = {"mesh_version": mesh_version, "peer": peer, "port": port, "bind_public": bind_public}
    me = _merge(_load(base), chosen, yes=yes, given=given)
    codes.check_code(code)
    run = _join if me.peer else _begin
    with LocalPool(base) as machine:
        run(machine, me, lent, code=code)


# ------------------------------------------------------------ the two ways to be a host
def _begin(machine: LocalPool, me: HostConfig, lent: list[str], *, code: str | None) -> None:
    """Hub and node."""
    address = _address(me.bind_public)
    listen = address if _is_ip(address) else "0.0.0.0"
    check_port(listen, me.port)
    url = url_of(address, me.port)
    env = {name: value for name, value in MESH_SETTINGS.items() if name not in os.environ}
    env["COMPUTEPOOL_MESH_VERSION"] = me.mesh_version
    with status_line("Starting the hub") as update:
        words = machine.start_hub(listen, me.port, public_url=url, env=env)
        _remember(me, machine.base)
        machine.start_node([*lent, *_options(me, url)], url=url, code=words["enrol_code"])
        pool = sign_in(machine, url, words["key"])
        update("Starting the node (testing the sandbox)")
        machine.until_ready(lambda: _is_connected(machine.base), timeout_s=NODE_START_S, what="The node")
    made = pool.nodes.code(hosts=None)
    version = ["--mesh-version", me.mesh_version] if me.mesh_version else []
    public = [] if address == LOOPBACK else ["--bind-public", "auto"]
    join = [program(), "host", "--name", "NAME", *public, "--peer", url, *version, "--code", made.code]
    ready = {
        **_facts(me, machine, url=url),
        "code": made.code,
        "code_hosts": made.hosts,
        "code_expires_at_ms": made.expires_at_ms,
        "join": shlex.join(join),
        "signin": f"{url}/signin?code={words['signin_code']}",
    }
    _print_ready(ready, _begin_lines(me, ready, alone=not public))
    machine.wait()


def _join(machine: LocalPool, me: HostConfig, lent: list[str], *, code: str | None) -> None:
    address = _address(me.bind_public)
    own = url_of(address if address != LOOPBACK else me.name, me.port)
    if own == me.peer:  # several hosts on one machine
        own = url_of(me.name, me.port)
    fresh = not (node_folder(machine.base) / "identity.json").exists()
    if fresh and code is None:
        code = _own_code(me.peer)
    if fresh:  # one that belongs to it waits for it
        version = _probe(me.peer)
        me = replace(me, mesh_version=me.mesh_version or version)
    with status_line(f"Joining {me.peer} (testing the sandbox)"):
        machine.start_node([*lent, *_options(me, own)], url=me.peer, code=code if fresh else None)
        machine.until_ready(lambda: _is_connected(machine.base), timeout_s=NODE_START_S, what="The node")
    _remember(me, machine.base)
    lines = [
        f"{me.name} is a host of {me.peer}{_of_version(me)} and takes jobs.",
        f"Jobs can exclude it by its name, or by {own}",
        f"Data folder: {machine.base}",
    ]
    _print_ready(_facts(me, machine, url=own), lines)
    machine.wait()


def _options(me: HostConfig, url: str) -> list[str]:
    return ["--name", me.name, "--mesh-version", me.mesh_version, "--url", url]


def _own_code(peer: str) -> str:
    """With the key that `pool login` stored for that hub; it is never sent to another one."""
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
    """The mesh version there. Says at once that nobody is, before a minute of trying."""
    from computepool.sdk.pool import Pool

    with Pool(Transport(peer, None, retry_for=RETRY_FOR_S)) as pool:
        try:
            return pool.accounts.hub().mesh_version
        except HubUnreachable as error:
            raise Unavailable(f"No host found at {peer}: {error.detail}") from error


def _is_connected(base: Path) -> bool:
    from computepool.agent.owner import control

    try:
        return bool(control.call(node_folder(base), "status")["connected"])
    except ComputePoolError:
        return False


# ------------------------------------------------------------ what it was before
def _load(base: Path) -> HostConfig | None:
    try:
        kept: dict[str, Any] = jsonlib.loads((base / _MEMORY).read_text())
        return HostConfig(**{name: value for name, value in kept.items() if name in _FIELDS})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise BadRequest(
            f"{base / _MEMORY} is damaged ({error}). Remove it and pass the options again."
        ) from error


def _remember(me: HostConfig, base: Path) -> None:
    fresh = base / f".{_MEMORY}.{os.getpid()}"
    fresh.write_text(jsonlib.dumps(asdict(me), indent=2) + "\n")
    fresh.replace(base / _MEMORY)


def _merge(before: HostConfig | None, name: str, *, yes: bool, given: dict[str, Any]) -> HostConfig:
    """What was asked for, and for the rest what it was; what would make it another host is refused or asked about."""
    given = {field: value for field, value in given.items() if value is not None}
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
    me = replace(before, **given)
    if not yes:
        _ask(before, me)
    return me


def _ask(before: HostConfig, me: HostConfig) -> None:
    """Somebody who starts it with other words than before may have meant another host."""
    if me.peer != before.peer:
        output.note(
            f"{me.name} was a host of {before.peer} and would now join {me.peer}. It takes jobs only from the hub that it "
            "is enrolled at. Continue if that hub has a new address; otherwise choose a different --name."
        )
        confirm("Is it the same hub?")
    if me.mesh_version != before.mesh_version:
        others = f"The hub {me.peer}" if me.peer else "The hosts that joined it"
        output.note(
            f"The mesh version of {me.name} would change from {before.mesh_version or '(none)'} to "
            f"{me.mesh_version or '(none)'}. {others} must change too: versions cannot be mixed."
        )
        confirm("Change the mesh version?")


# ------------------------------------------------------------ names and addresses
def _host_name(name: str | None) -> str:
    import platform

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
    import ipaddress

    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------ what it says
def _of_version(me: HostConfig) -> str:
    return f" (mesh version {me.mesh_version})" if me.mesh_version else ""


def _facts(me: HostConfig, machine: LocalPool, *, url: str) -> dict[str, Any]:
    kept = {"name": me.name, "url": url, "mesh_version": me.mesh_version, "data": str(machine.base)}
    return {**kept, "peer": me.peer or None}


def _begin_lines(me: HostConfig, ready: dict[str, Any], *, alone: bool) -> list[str]:
    until = output.moment(ready["code_expires_at_ms"])
    lines = [
        f"{me.name} is the hub and first host of a mesh at {ready['url']}{_of_version(me)}",
        f"Data folder: {ready['data']}",
        "",
        f"To join from {'this' if alone else 'another'} machine, with any --name and --tag:",
        f"  {ready['join']}",
        f"The code is valid for {ready['code_hosts']} hosts until {until}. Manage codes: {program()} node codes",
        "",
        f"Sign in (one-time link):  {ready['signin']}",
    ]
    return (
        [*lines, "Only this machine can reach it. To let others join, pass --bind-public auto."]
        if alone
        else lines
    )


def _print_ready(ready: dict[str, Any], lines: list[str]) -> None:
    output.show(
        ready, "\n".join(["", *(f"  {line}".rstrip() for line in lines), "  Ctrl-C stops everything."])
    )
    sys.stdout.flush()
