"""`pool secrets` and `pool schedule` with a real hub."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from computepool.sdk.client.config import Config, save_config
from tests.cli.conftest import Run, reply
from tests.hub.serving import serving

pytestmark = [pytest.mark.process, pytest.mark.soak]


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_secrets_and_schedules(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nightly.py"
    script.write_text("print('hello')\n")
    with serving(tmp_path / "hub") as hub:
        save_config(Config(hub=f"http://{hub.address[0]}:{hub.address[1]}", key=hub.key))
        type_in(monkeypatch, b"correct horse\r\n")
        assert reply(run("secrets", "set", "TOKEN", "--json"))["size"] == 13
        for data in (b"\xff", b"", b"x" * 70_000):
            type_in(monkeypatch, data)
            assert run("secrets", "set", "TOKEN").code == 2
        assert run("secrets", "set", "TOKEN", "--from-file", tmp_path / "none").code == 2
        assert run("secrets", "set", "a-b", "--from-file", script).code == 2
        assert "TOKEN" in run("secrets", "list").out
        times = ("--cron", "0 3 * * *", "--tz", "Europe/Berlin")
        added = run("schedule", "add", script, *times, "--secret", "TOKEN", "--secret-anywhere", "--slices", 2)
        assert "Next runs: " in added.out
        assert "03:00 Europe/Berlin" in added.out
        assert "can read its secrets" in added.err
        made = reply(run("schedule", "show", "nightly", "--json"))
        assert (made["spec"]["secrets"], made["jobs"], made["runs"]) == ({"TOKEN": "TOKEN"}, 2, [])
        assert run("schedule", "add", script, *times).code == 2
        assert "never fires" in run("schedule", "add", script, "--cron", "0 0 30 2 *", "--name", "x").err
        assert len(run("schedule", "run", "nightly").out.split()) == 2
        shown = run("schedule", "show", "nightly").out
        assert "submitted (by hand)" in shown
        assert "2 queued" in shown
        assert run("schedule", "pause", made["id"]).out == "nightly: paused\n"
        assert "nightly: active. Next run" in run("schedule", "resume", "nightly").out
        assert run("secrets", "remove", "TOKEN").code == 0
        failed = run("schedule", "run", "nightly")
        assert (failed.code, "You have no secret TOKEN" in failed.err) == (2, True)
        assert "You have no secret TOKEN" in run("schedule", "list").out
        assert run("schedule", "remove", "nightly").code == 0
        assert run("schedule", "remove", "nightly").code == 2
        assert run("schedule", "list").out == ""
