"""`pool up`: a hub and one node on this machine, stopped together."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.children import Child
from computepool.cli.folders import data_folder
from computepool.cli.hub import check_port
from computepool.cli.nodes import CODE_ENV

if TYPE_CHECKING:
    from rich.status import Status

    from computepool.sdk import Pool

HUB_START_S = 60.0
NODE_START_S = 60.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class _Stopped(Exception):
    """Ctrl-C or SIGTERM."""


def up(
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the hub.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    data: Annotated[Path | None, typer.Option(help="Folder for all data.")] = None,
    node: Annotated[bool, typer.Option("--node/--no-node", help="Also lend this machine.")] = True,
    net: Annotated[bool, typer.Option("--net/--no-net", help="Let jobs reach the hosts they list.")] = False,
) -> None:
    """Start a hub and one node on this machine; Ctrl-C stops both.

    Needs no other service: the data is kept in SQLite, in $COMPUTEPOOL_DATA, /var/lib/computepool or your home.

    \b
    Examples:
      pool up
      pool up --port 9000 --data ./pool-data
      pool up --host 0.0.0.0 --no-node
    """
    base = data_folder(data)
    base.mkdir(mode=0o755, parents=True, exist_ok=True)
    check_port(host, port)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    children: list[Child] = []
    try:
        lent = (["--net"] if net else []) if node else None
        _run(base, host=host, port=port, lent=lent, children=children, stop=stop)
    except _Stopped:
        pass
    finally:
        for child in reversed(children):  # the node first: it gives back what it has not started
            child.stop()
    if stop.is_set():
        output.note("Stopped.")


def _run(
    base: Path, *, host: str, port: int, lent: list[str] | None, children: list[Child], stop: threading.Event
) -> None:
    """`lent`: options of this machine's node; None: it is not lent."""
    shown = host if ":" not in host else f"[{host}]"
    url = f"http://{_WILDCARDS.get(host, shown)}:{port}"
    ready = False
    with _status("Starting the hub") as status:
        words = _start_hub(base, host=host, port=port, children=children, stop=stop)
        if lent is not None:  # at once: it tests its sandbox while the hub is still starting
            _start_node(base, lent, url=url, code=words["enrol_code"], children=children)
        pool = _signed_in(url, words["key"])
        _until(lambda: _healthy(pool), children, stop=stop, timeout_s=HUB_START_S, what="The hub")
        if lent is not None:
            _say(status, "Starting the node (its sandbox is tested first)")
            ready = _until(
                lambda: any(n.online for n in pool.nodes.list(mine=True)),
                children,
                stop=stop,
                timeout_s=NODE_START_S,
                what="The node",
            )
    _welcome(url, words["signin_code"], pool, base=base, with_node=ready)
    while not stop.wait(0.3):
        _check_alive(children)


def _start_hub(
    base: Path, *, host: str, port: int, children: list[Child], stop: threading.Event
) -> dict[str, str]:
    """Returns what the hub's first-run set-up made: a key and one-time codes, through a pipe, never a file."""
    reading, writing = os.pipe()
    arguments = [
        "hub",
        "start",
        "--host",
        host,
        "--port",
        str(port),
        "--data",
        str(base),
        "--announce",
        str(writing),
    ]
    children.append(Child("hub", arguments, log=base / "hub.log", pass_fds=[writing]))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        _until(
            lambda: bool(select.select([pipe], [], [], 0)[0]),
            children,
            stop=stop,
            timeout_s=HUB_START_S,
            what="The hub",
        )
        text = pipe.read()
    if not text:
        children[-1].wait(2)
        _check_alive(children)
    words: dict[str, str] = json.loads(text)
    return words


def _start_node(base: Path, options: list[str], *, url: str, code: str, children: list[Child]) -> None:
    """The code goes by the environment: a command line can be read by everybody on the machine."""
    arguments = ["node", "start", "--hub", url, "--data", str(base), *options]
    children.append(Child("node", arguments, log=base / "node.log", env={CODE_ENV: code}))


def _signed_in(url: str, key: str) -> Pool:
    """The CLI in the next terminal is signed in at once."""
    from computepool.sdk import connect
    from computepool.sdk.config import Config, config_path, load_config, save_config, save_hub_keys

    if config_path().exists() and load_config().hub != url:
        output.note(f"Your CLI now talks to {url} (before: {load_config().hub}).")
    save_config(Config(hub=url, key=key))
    pool = connect(url, key, patience_s=0)
    save_hub_keys(url, pool.accounts.hub_keys())
    return pool


def _healthy(pool: Pool) -> bool:
    from computepool.sdk.errors import Unavailable

    try:
        pool.accounts.hub()
    except Unavailable:
        return False
    return True


def _until(done: Any, children: list[Child], *, stop: threading.Event, timeout_s: float, what: str) -> bool:
    """Wait for a condition while the children live; False when it takes too long."""
    end = time.monotonic() + timeout_s
    while not done():
        if stop.wait(0.05):
            raise _Stopped
        _check_alive(children)
        if time.monotonic() > end:
            output.note(f"{what} is not ready after {timeout_s:.0f} s; still waiting. See {children[-1].log}")
            return False
    return True


def _check_alive(children: list[Child]) -> None:
    for child in children:
        if not child.running:
            from computepool.core.errors import ComputePoolError

            raise ComputePoolError(
                f"The {child.name} stopped by itself. The end of {child.log}:\n{child.last_words()}"
            )


def _welcome(url: str, code: str, pool: Pool, *, base: Path, with_node: bool) -> None:
    program = _program()
    lines = [
        "",
        f"  ComputePool is up at {url}",
        f"  Sign in (once):      {url}/signin?code={code}",
        f"  Everything is kept in {base}",
        "",
        "  Try in another terminal:",
        f"    {program} submit examples/hello.py --wait",
        f"    {program} nodes",
        f"    {program} node code               lend another machine",
        "",
    ]
    if with_node:
        node = next(n for n in pool.nodes.list(mine=True) if n.online)
        profile = node.profile
        lines.insert(3, f"  This machine lends:  {profile.cores:g} cores, {output.memory(profile.ram_mb)}, "
                        f"{len(profile.gpus) or 'no'} GPU, as {node.name} (isolation: {profile.isolation})")  # fmt: skip
    output.say("\n".join(lines) + "  Ctrl-C stops everything.")
    sys.stdout.flush()


def _program() -> str:
    """How to call this program from here: by its bare name only where a shell would find it."""
    here = Path(sys.argv[0])
    if not here.exists() or shutil.which("pool") == str(here.absolute()):
        return "pool"
    try:
        return str(here.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(here.absolute())


@contextmanager
def _status(text: str) -> Iterator[Status | None]:
    if not sys.stderr.isatty():
        output.note(f"{text} …")
        yield None
        return
    with output.console(stderr=True).status(f"{text} …") as status:
        yield status


def _say(status: Status | None, text: str) -> None:
    if status is None:
        output.note(f"{text} …")
    else:
        status.update(f"{text} …")
