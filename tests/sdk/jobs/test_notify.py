"""Notices: seen where there is somebody to see them, harmless whatever the words are, and never in the way."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_the_desktop_gets_the_words_as_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_desktop(monkeypatch, tmp_path, f'for word in "$@"; do echo "$word" >> {tmp_path}/said; done')
    terminal = Terminal()
    assert notify.notify(HOSTILE, title="done", terminal=terminal) == "desktop"
    said = (tmp_path / "said").read_text().splitlines()
    assert said[:3] == ["--app-name=ComputePool", "--", "done"]
    assert "&lt;b&gt;&amp;" in said[3]
    assert len(said) == 4
    assert terminal.getvalue() == ""
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$"])
def test_a_desktop_that_fails_leaves_it_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    fake_desktop(monkeypatch, tmp_path, script)
    terminal = Terminal()
    assert notify.notify("sweep is complete", terminal=terminal) == "terminal"
    assert terminal.getvalue().startswith("\a\x1b]9;ComputePool: sweep is complete\x1b\\")


def test_a_desktop_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_SECONDS_MAX", 0.2)
    fake_desktop(monkeypatch, tmp_path, "exec sleep 30")
    assert notify.notify("x", terminal=Terminal()) == "terminal"


def test_nobody_is_there() -> None:
    closed = io.StringIO()
    closed.close()
    assert notify.notify("x", terminal=io.StringIO()) == ""
    assert notify.notify("x", terminal=closed) == ""


@given(st.text(max_size=50), st.text(max_size=50))
def test_no_words_begin_a_sequence_of_their_own(title: str, text: str) -> None:
    terminal = Terminal()
    notify.notify(text, title=title, terminal=terminal)
    written = terminal.getvalue()
    assert written.count("\x1b") == 4
    assert written.count("\a") == 1
    assert written.count(";") == 4
    assert not any("\x80" <= character <= "\x9f" or character in "\n\r" for character in written)


def test_hostile_words_are_one_visible_line() -> None:
    assert notify.plain(HOSTILE) == "--help;$(touch x)`id`]0;owned 31m<b>& 'q' \"d\""
    assert len(notify.plain("x" * 10_000)) == 200
