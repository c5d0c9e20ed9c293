"""Arguments and options that name a job, a node, a group or an account: an id, the beginning of one, a name, or `last`.

Commands get the whole id: the hub says what is meant while the command line is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from computepool.cli.options import find_id

_JOB = "ID, unique ID prefix, name, or `last`."


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


JobId = Annotated[str, typer.Argument(metavar="JOB", help=f"Job: {_JOB}", parser=_finder("job"))]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB…", help="Jobs: IDs, unique ID prefixes, names, or `last`.", parser=_finder("job")
    ),
]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Node name or ID.")]
AccountName = Annotated[str, typer.Argument(metavar="NAME", help="Account name or ID.")]
OfJob = Annotated[str | None, _option("job", f"Filter by job: {_JOB}")]
OfNode = Annotated[str | None, _option("node", "Filter by node: name, ID, or unique ID prefix.")]
OfGroup = Annotated[str | None, _option("group", "Filter by group: name, ID, unique ID prefix, or `last`.")]
OfAccount = Annotated[str | None, _option("account", "Account, by name or ID (admin only).")]
