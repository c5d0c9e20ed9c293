"""A note for somebody who stops waiting: what happens to the work, and how to return to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from computepool.cli import output
from computepool.sdk.errors import HubUnreachable


@contextmanager
def goes_on(words: str) -> Iterator[None]:
    """Print `words` if the wait inside ends by Ctrl-C, or because the hub stays unreachable."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(f"\n{words}")
        raise typer.Exit(130) from None
    except HubUnreachable:
        output.note(words)
        raise
