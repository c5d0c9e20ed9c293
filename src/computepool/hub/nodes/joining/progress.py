"""Progress of an enrolment code: which machines joined with it, and how far each is from its first job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Literal

from computepool.core.errors import NotFound
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.isolation import Level
from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.session import Connection
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.rows import CodeRow
from computepool.hub.nodes import nodes, rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.protocol.local_address import is_loopback, is_wildcard
from computepool.protocol.nodes.joining import JoinCommand, JoinedNode, JoinStatus, JoinStep
from computepool.protocol.nodes.nodes import NodeView

ENROL, JOIN = "enrol", "join"  #: purposes of codes: for one node, for several
CODE_ID = 12  #: characters of a code's hash that identify it without revealing it
_NODES_SHOWN = 20
_Name = Literal["code", "poll", "sandbox", "hardware", "ready", "job"]
_TITLES: dict[_Name, str] = {
    "code": "The code was used",
    "poll": "The node polls for work",
    "sandbox": "Its sandbox was tested",
    "hardware": "Its hardware was measured",
    "ready": "It takes jobs",
    "job": "It finished its first job",
}
_EXPIRED = "The code expired before anybody used it; create a new one."
_LATER = "Waits for the steps before it."
_State = Literal["waiting", "done", "warning", "skipped"]


def start_command(hub: Hub, code: str) -> str:
    settings = hub.settings
    mesh = f" --mesh-version {settings.mesh_version}" if settings.mesh_version else ""
    return f"pool node start --hub {settings.address}{mesh} --code {code}"


def unreachable(hub: Hub) -> str:
    """Why no other machine can reach the address in the command, and what to do; empty if some may."""
    address = hub.settings.address
    if not is_loopback(address):
        return ""
    if hub.settings.public_url or is_wildcard(hub.settings.host):
        return (
            f"Only the hub's own machine can reach {address}. Restart the hub with --public-url and an address that other "
            "machines can reach."
        )
    return (
        f"Only the hub's own machine can reach {address}. To let other machines join, restart the hub with "
        "`pool up --host 0.0.0.0` or `pool hub start --host 0.0.0.0`. On the internet, put it behind a TLS proxy and "
        "pass --public-url https://…"
    )


def commands(hub: Hub, code: str) -> list[JoinCommand]:
    """All commands for the machine that joins. It needs outgoing connections only."""
    wheel = f"computepool-{version('computepool')}-py3-none-any.whl"
    return [
        JoinCommand(
            title="Install ComputePool (Linux, Python 3.11 or newer) from the project's folder or its wheel; "
            "`apt install pipx` installs pipx, and `uv tool install` works as well",
            command=f"pipx install {wheel}",
        ),
        JoinCommand(title="Join the pool, and lend the machine while this runs", command=start_command(hub, code)),
        JoinCommand(title="Later, after a restart of the machine, without the code", command="pool node start"),
        JoinCommand(title="If something does not work, find out what is missing", command="pool node doctor"),
    ]


@dataclass(frozen=True, slots=True)
class _Joined:
    row: NodeRow
    polled_ms: int | None
    worked_ms: int | None


async def status(hub: Hub, principal: Principal, code_id: str) -> JoinStatus:
    """The progress of a code for nodes, for the account that created it."""
    owner = access.scope(principal)

    def load(connection: Connection) -> tuple[CodeRow | None, list[_Joined]]:
        code = account_rows.find_code(connection, code_id, account_id=owner, purposes=(ENROL, JOIN))
        if len(code_id) != CODE_ID or code is None:
            return None, []
        rows = node_rows.nodes_of_code(connection, account_id=code.account_id, code_id=code_id, limit=_NODES_SHOWN)
        first = partial(event_rows.first_of_node, connection)
        return code, [
            _Joined(row, first(row.id, action="node.online"), first(row.id, action="job.succeeded")) for row in rows
        ]

    code, found = await hub.store.read(load)
    if code is None:
        raise NotFound("You have no such code; codes are deleted a week after they expire.")
    joined = [await _node(hub, principal, known) for known in found]
    used = code.uses if code.uses_max is not None else int(code.used_at_ms is not None)
    hosts = code.uses_max or 1
    open_ = used < hosts and code.expires_at_ms > hub.now_ms()
    state: Literal["waiting", "used", "expired"] = "used" if used else "waiting" if open_ else "expired"
    return JoinStatus(
        id=code_id,
        state=state,
        sentence=_sentence(state, joined, hosts=hosts, used=used),
        expires_at_ms=code.expires_at_ms,
        open=open_,
        used=used,
        hosts=hosts,
        nodes=joined,
        steps=joined[0].steps if joined else _before(open_=open_),
    )


def _sentence(state: str, joined: Sequence[JoinedNode], *, hosts: int, used: int) -> str:
    if state == "waiting":
        return "Nobody has used the code yet."
    if state == "expired":
        return _EXPIRED
    if not joined:
        return "The code was used."
    newest = joined[0]
    left = next((step for step in newest.steps if step.state == "waiting"), None)
    many = f"{used} of {hosts} machines joined; the newest is {newest.name}." if hosts > 1 else ""
    now = f"{newest.name} is ready and has finished a job." if left is None else left.detail
    return f"{many} {now}".strip()


def _before(*, open_: bool) -> list[JoinStep]:
    """The steps before any machine has joined."""
    first = "Run the command on the new machine." if open_ else _EXPIRED
    return [_step("code", first), *(_step(name, _LATER) for name in _TITLES if name != "code")]


def _step(name: _Name, detail: str, *, state: _State = "waiting", at_ms: int | None = None) -> JoinStep:
    return JoinStep(name=name, title=_TITLES[name], state=state, at_ms=at_ms, detail=detail)


async def _node(hub: Hub, principal: Principal, known: _Joined) -> JoinedNode:
    view = await nodes.get(hub, principal, known.row.id)
    steps = [
        _step("code", f"{view.name} joined the pool.", state="done", at_ms=view.enrolled_at_ms),
        _poll(view, known),
        _sandbox(view, known),
        _hardware(hub, view),
        _ready(view, known),
        _job(view, known),
    ]
    complete = all(step.state != "waiting" for step in steps)
    return JoinedNode(node_id=view.id, name=view.name, online=view.online, steps=steps, complete=complete)


def _poll(view: NodeView, known: _Joined) -> JoinStep:
    if known.polled_ms is None:
        return _step("poll", "The node has joined but has not polled since: is `pool node start` still running?")
    return _step("poll", "The node polls the hub.", state="done", at_ms=known.polled_ms)


def _sandbox(view: NodeView, known: _Joined) -> JoinStep:
    if known.polled_ms is None:
        return _step("sandbox", "The agent attacks its own sandbox before it polls for work.")
    level = view.profile.isolation
    if Level.parse(level) < Level.NAMESPACE:
        detail = (
            f"Level {level}: no sandbox passed, so it runs only your own jobs and those of accounts it trusts. "
            "`pool node doctor` on that machine shows what is missing."
        )
        return _step("sandbox", detail, state="warning", at_ms=known.polled_ms)
    return _step("sandbox", f"Level {level}: it passed.", state="done", at_ms=known.polled_ms)


def _hardware(hub: Hub, view: NodeView) -> JoinStep:
    found = view.hardware
    if found is not None and found.measured_at_ms is not None:
        return _step("hardware", found.sentence, state="done", at_ms=found.measured_at_ms)
    if not hub.settings.measure_every_s:
        return _step("hardware", "This hub does not measure nodes; the node's own claims apply.", state="skipped")
    if not view.online:
        return _step("hardware", "The hub requests it when the node is online and idle.")
    return _step("hardware", "The hub requests it within seconds; it takes a moment on an idle machine.")


def _ready(view: NodeView, known: _Joined) -> JoinStep:
    if known.polled_ms is None:
        return _step("ready", _LATER)
    if view.status is NodeStatus.OWNER_ONLY:
        banned = "It takes your own jobs only: an earlier node of yours was banned for wrong results."
        return _step("ready", banned, state="warning", at_ms=known.polled_ms)
    if view.status is NodeStatus.FLOOR_ABOVE_PRICE:
        return _step("ready", view.sentence, state="warning", at_ms=known.polled_ms)
    if not view.status.takes_jobs:
        return _step("ready", view.sentence)
    return _step("ready", "It takes jobs that it can run.", state="done", at_ms=known.polled_ms)


def _job(view: NodeView, known: _Joined) -> JoinStep:
    if known.worked_ms is not None:
        return _step("job", "A job succeeded there.", state="done", at_ms=known.worked_ms)
    return _step("job", f"No job has succeeded there yet. To try it: pool submit --host {view.id} --wait -- echo hello")
