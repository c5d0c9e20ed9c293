"""Notifications: shown where possible, harmless whatever the text, and never blocking."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from computepool.sdk.jobs import notify

HOSTILE = "--help;$(touch x)`id`\x1b]0;owned\x07\n\x9b31m<b>&\u202e\x00 'q' \"d\""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def fake_desktop(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    program = folder / "notify-send"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":0")


def test_the_desktop_program_receives_the_text_as_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_desktop(monkeypatch, tmp_path, f'for word in "$@"; do echo "$word" >> {tmp_path}/arguments; done')
    terminal = Terminal()
    assert notify.notify(HOSTILE, title="done", terminal=terminal) == "desktop"
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:3] == ["--app-name=ComputePool", "--", "done"]
    assert "&lt;b&gt;&amp;" in arguments[3]
    assert len(arguments) == 4
    assert terminal.getvalue() == ""
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$"])
def test_the_terminal_is_used_if_the_desktop_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    fake_desktop(monkeypatch, tmp_path, script)
    terminal = Terminal()
    assert notify.notify("sweep is complete", terminal=terminal) == "terminal"
    assert terminal.getvalue().startswith("\a\x1b]9;ComputePool: sweep is complete\x1b\\")


def test_a_hanging_desktop_program_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_SECONDS_MAX", 0.2)
    fake_desktop(monkeypatch, tmp_path, "exec sleep 30")
    assert notify.notify("x", terminal=Terminal()) == "terminal"


def test_without_desktop_and_terminal_nothing_is_shown() -> None:
    closed = io.StringIO()
    closed.close()
    assert notify.notify("x", terminal=io.StringIO()) == ""
    assert notify.notify("x", terminal=closed) == ""


@given(st.text(max_size=50), st.text(max_size=50))
def test_no_text_begins_a_control_sequence(title: str, text: str) -> None:
    terminal = Terminal()
    notify.notify(text, title=title, terminal=terminal)
    written = terminal.getvalue()
    assert written.count("\x1b") == 4
    assert written.count("\a") == 1
    assert written.count(";") == 4
    assert not any("\x80" <= character <= "\x9f" or character in "\n\r" for character in written)


def test_hostile_text_becomes_one_visible_line() -> None:
    assert notify.plain(HOSTILE) == "--help;$(touch x)`id`]0;owned 31m<b>& 'q' \"d\""
    assert len(notify.plain("x" * 10_000)) == 200
