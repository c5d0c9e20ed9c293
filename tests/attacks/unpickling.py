"""A guard around the hub's work: while it is up, unpickling fails anywhere in the process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_up = 0
_installed = False


def _audit(event: str, _arguments: tuple[object, ...]) -> None:
    if _up and event == "pickle.find_class":
        raise RuntimeError("something was unpickled where the hub works")


@contextmanager
def forbidden() -> Iterator[None]:
    global _up, _installed  # noqa: PLW0603 - an audit hook cannot be taken away again, only be quiet
    if not _installed:
        sys.addaudithook(_audit)
        _installed = True
    _up += 1
    try:
        yield
    finally:
        _up -= 1
