"""`pool node code` and `pool node codes`: codes for new machines."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from computepool.cli import output
from computepool.cli.options import RETRY_FOR_S, WATCH_RETRY_FOR_S, open_pool
from computepool.core.errors import BadRequest
from computepool.sdk.client.sizes import seconds

if TYPE_CHECKING:
    from computepool.protocol.nodes.joining import JoinStatus
    from computepool.sdk import Pool

_LOOK_S = 1.0
_MARKS = {"done": "[x]", "warning": "[!]", "skipped": "[-]"}
_CODE = re.compile(r"[!-~]{8,128}")


def check_code(given: str | None) -> str | None:
    """Raise BadRequest for a text that cannot be a code, before anything is started with it."""
    if given is not None and not _CODE.fullmatch(given):
        raise BadRequest(f"--code: {given!r} is not a valid code. Create one: pool node code", field="code")
    return given


def code(
    *,
    hosts: Annotated[int, Option(metavar="N", min=1, max=1000, help="Number of machines that may use it.")] = 1,
    life: Annotated[str | None, Option("--for", metavar="TIME", help="Validity: 10m, 2h.")] = None,
    wait: Annotated[bool, Option("--wait", help="Show progress until the machine has joined and is ready.")] = False,
) -> None:
    """Create a code for one or more new machines, and print the command to run there.

    Examples:
      pool node code
      pool node code --wait
      pool node code --hosts 5 --for 1h
    """
    pool = open_pool(retry_for=WATCH_RETRY_FOR_S if wait else RETRY_FOR_S)
    made = pool.nodes.code(hosts=hosts, lifetime=None if life is None else seconds(life, what="--for"))
    if output.print_json(follow_code(pool, made.id) if wait else made):
        return
    output.write_line(made.command)
    often = "one machine" if made.hosts == 1 else f"{made.hosts} machines"
    output.note(
        f"Run this on the new machine, with ComputePool installed. Valid for {often}, until {output.moment(made.expires_at_ms)}."
    )
    if made.warning:
        output.note(f"Warning: {made.warning}")
    if wait:
        follow_code(pool, made.id, verbose=True)


def follow_code(pool: Pool, code_id: str, *, verbose: bool = False) -> JoinStatus:
    """Wait until a machine is ready for its first job, or the code has expired."""
    shown: dict[str, str] = {}
    while True:
        status = pool.nodes.code_status(code_id)
        for step in status.steps:
            if step.state != "waiting" and shown.get(step.name) != step.state:
                shown[step.name] = step.state
                if verbose:
                    output.note(f"{_MARKS[step.state]} {step.title}: {step.detail}")
        left = [step.name for step in status.steps if step.state == "waiting"]
        if left in ([], ["job"]) or status.state == "expired":
            break
        time.sleep(_LOOK_S)
    if verbose:
        output.note(status.sentence)
    if status.state == "expired":
        raise Exit(1)
    return status


def codes(
    *, end: Annotated[list[str] | None, Option(metavar="ID", help="Revoke this code; repeatable.")] = None
) -> None:
    """List or revoke open codes for several machines. Machines that joined stay.

    The codes themselves are shown only at creation.

    Examples:
      pool node codes
      pool node codes --end 3f9c01ab24de
    """
    nodes = open_pool().nodes
    for code_id in end or ():
        nodes.end_code(code_id)
    found = nodes.codes()
    rows = [(c.id, f"{c.used} of {c.hosts}", output.moment(c.expires_at_ms)) for c in found]
    output.show_table(found, ("ID", "JOINED", "VALID UNTIL"), rows, empty="No open codes.")
