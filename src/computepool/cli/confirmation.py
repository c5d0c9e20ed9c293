"""Questions before what cannot be undone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str) -> None:
    """A script must say --yes: it cannot have read what was shown."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("Nobody is there to confirm it; add --yes.")
    typer.confirm(question, abort=True, err=True)
