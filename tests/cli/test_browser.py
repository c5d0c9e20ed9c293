"""When `pool up` opens a browser, and what other users of the machine see of it."""

from __future__ import annotations

import stat
import sys
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from computepool.cli.local.up import has_screen, open_browser


@pytest.mark.parametrize(
    ("env", "platform", "terminal", "expected"),
    [
        ({"DISPLAY": ":0"}, "linux", True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True, True),
        ({}, "darwin", True, True),
        ({}, "linux", True, False),
        ({"DISPLAY": ":0"}, "linux", False, False),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "a b"}, "linux", True, False),
        ({"DISPLAY": ":0", "CI": "true"}, "linux", True, False),
    ],
)
def test_a_browser_is_opened_only_for_a_user_with_a_display(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], platform: str, *, terminal: bool, expected: bool
) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
    assert has_screen(env, platform=platform) is expected


def test_the_link_is_in_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)))
    link = 'http://127.0.0.1:8000/signin?code=secret&x="<'
    with open_browser(link, tmp_path):
        [address] = opened
        assert "secret" not in address
        page = Path(unquote(urlsplit(address).path))
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert "code=secret&amp;x=&quot;&lt;" in page.read_text()
    assert not page.exists()
