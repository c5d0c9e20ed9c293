"""A desktop notification, or else a terminal notification. It never raises and never blocks for long.

The names of groups and jobs are untrusted: nothing in them may begin a control sequence, an option or a command.
"""

from __future__ import annotations

import contextlib
import html
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TextIO

from computepool.protocol.jobs.groups import GroupView

_CHARS_MAX = 200
_SECONDS_MAX = 5.0
_TITLE = "ComputePool"
_APPLESCRIPT = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")
#: The text is passed in environment variables, so that it is never parsed as a command.
_POWERSHELL = (
    "[void][Windows.UI.Notifications.ToastNotificationManager,Windows.UI.Notifications,ContentType=WindowsRuntime];"
    "$x=[Windows.UI.Notifications.ToastNotificationManager]::GetTemplateContent(1);"
    "$t=$x.GetElementsByTagName('text');"
    "[void]$t.Item(0).AppendChild($x.CreateTextNode($env:COMPUTEPOOL_NOTICE_TITLE));"
    "[void]$t.Item(1).AppendChild($x.CreateTextNode($env:COMPUTEPOOL_NOTICE_TEXT));"
    "[Windows.UI.Notifications.ToastNotificationManager]::CreateToastNotifier('ComputePool').Show("
    "[Windows.UI.Notifications.ToastNotification]::new($x))"
)


def notify(text: str, *, title: str = _TITLE, terminal: TextIO | None = None) -> str:
    """Show the notification. Returns where: "desktop", "terminal", or "" if there is neither."""
    title, text = plain(title), plain(text)
    if _on_desktop(title, text):
        return "desktop"
    return "terminal" if _in_terminal(title, text, terminal or sys.stderr) else ""


def group_text(view: GroupView) -> str:
    failed = f", {view.failed:,} failed" if view.failed else ""
    return f"{view.name} is complete: {view.succeeded:,} of {view.total:,} succeeded{failed}."


def plain(text: str) -> str:
    """One line of visible characters."""
    visible = "".join(
        " " if character.isspace() else character
        for character in text
        if character.isspace() or unicodedata.category(character)[0] != "C"
    )
    return visible[:_CHARS_MAX]


def _on_desktop(title: str, text: str) -> bool:
    if sys.platform == "darwin":
        lines = [part for line in _APPLESCRIPT for part in ("-e", line)]
        return _ran("osascript", [*lines, f"{_TITLE}: {title}", f" {text}"])
    if sys.platform == "win32":
        words = {"COMPUTEPOOL_NOTICE_TITLE": title, "COMPUTEPOOL_NOTICE_TEXT": text}
        return _ran("powershell", ["-NoProfile", "-NonInteractive", "-Command", _POWERSHELL], words)
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS")):
        return False
    # Some desktops read the text as markup.
    return _ran("notify-send", [f"--app-name={_TITLE}", "--", title, html.escape(text)])


def _ran(program: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> bool:
    path = shutil.which(program)
    if path is None:
        return False
    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS_MAX,
            check=False,
            env={**os.environ, **(variables or {})},
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
    return done.returncode == 0


def _in_terminal(title: str, text: str, terminal: TextIO) -> bool:
    """Send the bell and the two notification sequences in use; other terminals ignore them."""
    with contextlib.suppress(OSError, ValueError):
        if terminal.isatty():
            parts = [word.replace(";", ",") for word in (title, text)]
            terminal.write(f"\a\x1b]9;{parts[0]}: {parts[1]}\x1b\\\x1b]777;notify;{parts[0]};{parts[1]}\x1b\\")
            terminal.flush()
            return True
    return False
