"""`pool webhooks` with a real hub and receiver; `pool seal` with real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import computepool
from computepool.protocol import sealing
from computepool.sdk.client.config import Config, save_config
from computepool.sdk.files import sealing as keys
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Run, reply
from tests.hub.serving import serving
from tests.sdk import http_server
from tests.sdk.http_server import QuietHandler


@pytest.mark.soak
@pytest.mark.process
def test_a_webhook_is_added_tested_and_removed(tmp_path: Path, run: Run) -> None:
    messages: list[tuple[dict[str, str], bytes]] = []

    class Receiver(QuietHandler):
        def answer(self, body: bytes) -> None:
            messages.append((dict(self.headers.items()), body))
            self.reply(b"")

    settings: dict[str, Any] = {"webhook_private": "127.0.0.0/8", "webhook_round_s": 0.1}
    with http_server.serving(Receiver) as url, serving(tmp_path / "hub", **settings) as hub:
        save_config(Config(hub=f"http://{hub.address[0]}:{hub.address[1]}", key=hub.key))
        assert "begins with" not in run("webhooks", "add", url).err
        made = reply(run("webhooks", "add", url, "--event", "job.finished", "--json"))
        refused = run("webhooks", "add", "https://10.0.0.1/")
        assert refused.code == 2
        assert "private network" in refused.err
        half = run("webhooks", "add", "example.org/computepool")
        assert (half.code, "pass a complete URL, such as https://" in half.err) == (2, True)
        assert run("webhooks", "add", url, "--event", "job.exploded").code == 2
        shown = run("webhooks", "list").out
        assert made["id"] in shown
        assert made["secret"] not in shown
        assert "Sent msg_" in run("webhooks", "test", made["id"]).out
        wait_until(lambda: messages, 60, "the test message")
        headers, body = messages[0]
        assert computepool.verify_webhook(headers, body, made["secret"])["type"] == "webhook.test"
        wait_until(lambda: "delivered" in run("webhooks", "deliveries", made["id"]).out, 60, "its state")
        assert run("webhooks", "enable", made["id"]).out.strip() == f"{made['id']}: works"
        assert run("webhooks", "rm", made["id"]).code == 0
        assert run("webhooks", "rm", made["id"]).code == 2


@pytest.mark.soak
def test_sealing_keys_are_created_exported_and_used(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reply(run("seal", "show", "--json")) == {"keys": [], "always": False}
    made = reply(run("seal", "init", "--json"))
    assert run("seal", "init").code == 2
    file, about = tmp_path / "sealed.bin", sealing.About("job_1", sealing.OUTPUT, "a\u202eb")
    file.write_bytes(sealing.seal_bytes(b"treasure", to=sealing.public_bytes(made["public"]), about=about))
    opened = run("seal", "open", file, "--out", tmp_path / "plain.bin")
    assert (opened.code, opened.err) == (0, "sealed.bin was the output ab of job job_1\n")
    assert (tmp_path / "plain.bin").read_bytes() == b"treasure"
    document = reply(run("seal", "open", file, "--out", tmp_path / "plain.bin", "--json"))
    assert [one["was"] for one in document] == ["the output a\u202eb of job job_1"]
    exported = tmp_path / "keys.json"
    exported.write_text(run("seal", "export").out)
    run("seal", "always", "on")
    assert reply(run("seal", "show", "--json"))["always"] is True
    monkeypatch.setenv("COMPUTEPOOL_CONFIG", str(tmp_path / "other" / "config.json"))
    missing = run("seal", "open", file, "--in-place")
    assert missing.code == 2
    assert "pool seal import" in missing.err
    assert run("seal", "import", exported).code == 0
    assert run("seal", "open", file, "--in-place").code == 0
    assert file.read_bytes() == b"treasure"
    damaged = run("seal", "open", file, "--in-place")
    assert damaged.code == 2
    assert file.read_bytes() == b"treasure"
    assert keys.load().always is False
