"""`pool node code` and `pool node codes`: what a machine needs to become a node, once."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, open_pool

_CODE = re.compile(r"[!-~]{8,128}")


def checked(given: str | None) -> str | None:
    """What cannot be a code is said before anything is started with it."""
    from computepool.core.errors import BadRequest

    if given is not None and not _CODE.fullmatch(given):
        raise BadRequest(f"--code: {given!r} is no code; `pool node code` makes one.", field="code")
    return given


def code(
    *,
    hosts: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="How many machines may use it.")
    ] = 1,
    life: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long it works: 10m, 2h.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a code for a new machine, or for several, and print the command to type there.

    \b
    Examples:
      pool node code
      pool node code --hosts 5 --for 1h
    """
    from computepool.sdk.sizes import seconds

    made = open_pool().nodes.code(hosts=hosts, life_s=None if life is None else seconds(life, what="--for"))
    if json:
        output.print_json(made)
        return
    output.say(made.command)
    often = "once" if made.hosts == 1 else f"on {made.hosts} machines"
    output.note(
        f"On the other machine, with ComputePool installed; {often}, before {output.moment(made.expires_at_ms)}."
    )


def codes(
    *,
    end: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Let nobody join with this one any more.")
    ] = None,
    json: Json = False,
) -> None:
    """List your codes that several machines may still join with, or end one. Machines that joined stay.

    The codes themselves are shown only when they are made.

    \b
    Examples:
      pool node codes
      pool node codes --end 3f9c01ab24de
    """
    nodes = open_pool().nodes
    for code_id in end or ():
        nodes.end_code(code_id)
    found = nodes.codes()
    if json:
        output.print_json(found)
        return
    rows = [(c.id, f"{c.used} of {c.hosts}", output.moment(c.expires_at_ms)) for c in found]
    output.print_table(("ID", "JOINED", "WORKS UNTIL"), rows, empty="No code is open.")
