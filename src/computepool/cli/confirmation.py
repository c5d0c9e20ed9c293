"""Confirmation prompts before what cannot be undone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]


def confirm(question: str) -> None:
    """A script must say --yes: it cannot have read what was shown."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("There is no terminal to confirm on; pass --yes.")
    typer.confirm(question, abort=True, err=True)
