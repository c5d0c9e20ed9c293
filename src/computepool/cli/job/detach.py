"""Tells a person who stops waiting what becomes of the work, and how to come back to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from computepool.cli import output


@contextmanager
def goes_on(words: str) -> Iterator[None]:
    """Says `words` when the waiting inside ends by Ctrl-C, or because the hub stays away."""
    from computepool.sdk.errors import HubUnreachable

    try:
        yield
    except KeyboardInterrupt:
        output.note(f"\n{words}")
        raise typer.Exit(130) from None
    except HubUnreachable:
        output.note(words)
        raise
