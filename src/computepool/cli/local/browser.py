"""Opening the browser at a sign-in link, without showing the link to other users of the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path

_PAGE = """<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}"><title>ComputePool</title><a href="{link}">Open the dashboard</a>
"""


def has_screen(env: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> bool:
    """A person at a terminal, with a screen beside it; not a service, a pipe or a session over SSH."""
    env = os.environ if env is None else env
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or env.get("SSH_CONNECTION") or env.get("CI"):
        return False
    return platform == "darwin" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


@contextmanager
def open_browser(link: str, folder: Path) -> Iterator[None]:
    """While the block runs. A command line can be read by everybody, so the browser is given a file of ours instead."""
    import webbrowser

    page = folder / "dashboard.html"
    page.unlink(missing_ok=True)
    with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(_PAGE.format(link=escape(link, quote=True)))
    try:
        webbrowser.open(page.as_uri())
        yield
    finally:
        page.unlink(missing_ok=True)
