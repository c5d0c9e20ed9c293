"""`pool up`: a hub and one node on this machine, stopped together."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.local.browser import has_screen, open_browser
from computepool.cli.local.folders import data_folder
from computepool.cli.local.hub import check_port
from computepool.cli.local.local_pool import NODE_START_S, LocalPool, program, sign_in, status_line
from computepool.cli.node.options import start_arguments
from computepool.cli.options import accepts
from computepool.core.words import cores

if TYPE_CHECKING:
    from computepool.sdk import Pool

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


@accepts(lent=start_arguments)
def up(
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the hub.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 accepts other machines.")
    ] = "127.0.0.1",
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    node: Annotated[bool, typer.Option("--node/--no-node", help="Also start a node on this machine.")] = True,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the dashboard if there is a display.")
    ] = True,
    lent: list[str],
) -> None:
    """Start a hub and one node on this machine. Ctrl-C stops both.

    Needs no other service. Data is stored in SQLite, in $COMPUTEPOOL_DATA, /var/lib/computepool or your home folder.

    \b
    Examples:
      pool up
      pool up --port 9000 --data ./pool-data
      pool up --host 0.0.0.0 --no-node
      pool up --cores 2 --fetch-python
    """
    base = data_folder(data)
    check_port(host, port)
    with LocalPool(base) as machine:
        link = _run(machine, host=host, port=port, lent=lent if node else None)
        with open_browser(link, base) if browser and has_screen() else nullcontext():
            machine.wait()


def _run(machine: LocalPool, *, host: str, port: int, lent: list[str] | None) -> str:
    """`lent`: options of this machine's node; None: it is not lent. Gives the link that signs in."""
    shown = host if ":" not in host else f"[{host}]"
    url = f"http://{_WILDCARDS.get(host, shown)}:{port}"
    ready = False
    with status_line("Starting the hub") as update:
        words = machine.start_hub(host, port)
        if lent is not None:  # at once: it tests its sandbox while the hub is still starting
            machine.start_node(lent, url=url, code=words["enrol_code"])
        pool = sign_in(machine, url, words["key"])
        if lent is not None:
            update("Starting the node (testing the sandbox)")
            ready = machine.until(
                lambda: any(n.online for n in pool.nodes.list(mine=True)),
                timeout_s=NODE_START_S,
                what="The node",
            )
    link = f"{url}/signin?code={words['signin_code']}"
    if not output.printed_json({"url": url, "signin_link": link, "data": str(machine.base), "node": ready}):
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
        network = ", network for jobs that list hosts" if profile.network else ""
        lines.insert(3, f"  This machine offers: {cores(profile.cores)}, {output.memory(profile.ram_mb)}, "
                        f"{len(profile.gpus) or 'no'} GPU{network}, as {node.name} (isolation: {profile.isolation})")  # fmt: skip
    output.write_line("\n".join(lines) + "  Ctrl-C stops everything.")
    sys.stdout.flush()
