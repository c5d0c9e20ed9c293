"""`pool up`: a hub and one node on this machine, stopped together."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from computepool.cli import output
from computepool.cli.local.hub import check_port
from computepool.cli.local.local_pool import NODE_START_S, LocalPool, program, sign_in, status_line
from computepool.cli.node.options import start_arguments
from computepool.cli.options import accepts
from computepool.core.words import cores, pluralize
from computepool.protocol.local_address import url_of
from computepool.sdk.client.config import data_folder, open_private

if TYPE_CHECKING:
    from computepool.sdk import Pool

_PAGE = """<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}"><title>ComputePool</title><a href="{link}">Open the dashboard</a>
"""
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@accepts(node_options=start_arguments)
def up(
    *,
    port: Annotated[int, Option(min=1, max=65535, help="Port of the hub.")] = 8000,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 accepts other machines.")] = "127.0.0.1",
    data: Annotated[Path | None, Option(help="Data folder.")] = None,
    node: Annotated[bool, Option("--node/--no-node", help="Also start a node on this machine.")] = True,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open the dashboard if there is a display.")] = True,
    node_options: list[str],
) -> None:
    """Start a hub and one node on this machine. Ctrl-C stops both.

    Needs no other service. Data is stored in SQLite, in $COMPUTEPOOL_DATA, /var/lib/computepool or your home folder.

    Examples:
      pool up
      pool up --port 9000 --data ./pool-data
      pool up --host 0.0.0.0 --no-node
      pool up --cores 2 --fetch-python
    """
    base = data_folder(data)
    check_port(host, port)
    with LocalPool(base) as machine:
        link = _start(machine, host=host, port=port, node_options=node_options if node else None)
        with open_browser(link, base) if browser and has_screen() else nullcontext():
            machine.wait()


def _start(machine: LocalPool, *, host: str, port: int, node_options: list[str] | None) -> str:
    """Returns the sign-in link. `node_options`: None starts no node."""
    url = url_of(_WILDCARDS.get(host, host), port)
    ready = False
    with status_line("Starting the hub") as update:
        secrets = machine.start_hub(host, port)
        if node_options is not None:  # it tests its sandbox while the hub is still starting
            machine.start_node(node_options, url=url, code=secrets["enrol_code"])
        pool = sign_in(machine, url, secrets["key"])
        if node_options is not None:
            update("Starting the node (testing the sandbox)")
            ready = machine.until(
                lambda: any(node.online for node in pool.nodes.list(mine=True)),
                timeout_s=NODE_START_S,
                what="The node",
                give_up=True,
            )
    link = f"{url}/signin?code={secrets['signin_code']}"
    if not output.print_json({"url": url, "signin_link": link, "data": str(machine.base), "node": ready}):
        _welcome(url, link, pool, base=machine.base, with_node=ready)
    return link


def _welcome(url: str, link: str, pool: Pool, *, base: Path, with_node: bool) -> None:
    pool_ = program()
    lines = [
        "",
        f"  ComputePool is running at {url}",
        f"  Open the dashboard:  {link}   (one-time sign-in link)",
        f"  Data folder:         {base}",
        "",
        "  Try this in another terminal:",
        f"    {pool_} submit examples/hello.py --wait",
        f"    {pool_} nodes",
        f"    {pool_} node code               add another machine",
        "",
    ]
    if with_node:
        node = next(n for n in pool.nodes.list(mine=True) if n.online)
        profile = node.profile
        gpus = pluralize(len(profile.gpus), "GPU") if profile.gpus else "no GPU"
        network = ", network for jobs that list hosts" if profile.network else ""
        lines.insert(3, f"  This machine offers: {cores(profile.cores)}, {output.memory(profile.ram_mb)}, "
                        f"{gpus}{network}, as {node.name} (isolation: {profile.isolation})")  # fmt: skip
    output.write_line("\n".join(lines) + "  Ctrl-C stops everything.")
    sys.stdout.flush()


def has_screen(env: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> bool:
    """Whether a user sits at a terminal with a display, as opposed to a service, a pipe or an SSH session."""
    env = os.environ if env is None else env
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or env.get("SSH_CONNECTION") or env.get("CI"):
        return False
    return platform == "darwin" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


@contextmanager
def open_browser(link: str, folder: Path) -> Iterator[None]:
    """Open the link, through a private file that exists while the block runs: all users can read a command line."""
    import webbrowser

    page = folder / "dashboard.html"
    page.unlink(missing_ok=True)
    with os.fdopen(open_private(page), "w") as file:
        file.write(_PAGE.format(link=escape(link, quote=True)))
    try:
        webbrowser.open(page.as_uri())
        yield
    finally:
        page.unlink(missing_ok=True)
