"""Arguments and options that name a job, a node, a group or an account: an id, the beginning of one, a name, or `last`.

Commands get the whole id: the hub says what is meant while the command line is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from computepool.cli.options import find_id

_JOB = "A job: its id or the beginning of it, its name, or last."


def _finder(kind: str) -> Callable[[str], str]:
    """What typer calls with each word."""

    def find(word: str) -> str:
        return find_id(kind, word)

    find.__name__ = kind
    return find


def _option(name: str, help_: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(
        f"--{name}", metavar=name.upper(), help=help_, parser=_finder(name)
    )
    return found


JobId = Annotated[str, typer.Argument(metavar="JOB", help=_JOB, parser=_finder("job"))]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB…", help="Jobs: ids or beginnings of them, names, or last.", parser=_finder("job")
    ),
]
OfJob = Annotated[str | None, _option("job", f"Of this job. {_JOB}")]
OfNode = Annotated[str | None, _option("node", "Of this node: its name, or its id or the beginning of it.")]
OfGroup = Annotated[
    str | None, _option("group", "Of this group: its name, its id or the beginning of it, or last.")
]
OfAccount = Annotated[str | None, _option("account", "Of this account, by name or id (administrators).")]
