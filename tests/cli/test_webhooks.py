"""`pool webhooks` against a real hub and a real receiver; `pool seal` with real files; `--notify`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import computepool
from computepool.protocol import sealing
from computepool.sdk.client.config import Config, save_config
from computepool.sdk.files import sealing as keys
from computepool.testing.processes import wait_until
from tests.cli.conftest import Run
from tests.hub.serving import serving


@pytest.fixture
def heard() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    found: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.append((dict(self.headers.items()), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", found
        server.shutdown()
        thread.join()


@pytest.mark.soak
@pytest.mark.process
def test_a_webhook_from_the_command_line_to_the_receiver(
    tmp_path: Path, run: Run, heard: tuple[str, list[tuple[dict[str, str], bytes]]]
) -> None:
    url, messages = heard
    with serving(tmp_path / "hub", webhook_private="127.0.0.0/8", webhook_round_s=0.1) as hub:
        save_config(Config(hub=f"http://{hub.address[0]}:{hub.address[1]}", key=hub.key))
        assert "begins with" not in run("webhooks", "add", url).err
        made = json.loads(run("webhooks", "add", url, "--event", "job.finished", "--json").out)
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
        wait_until(lambda: messages, 20, "the test message")
        headers, body = messages[0]
        assert computepool.verify_webhook(headers, body, made["secret"])["type"] == "webhook.test"
        wait_until(lambda: "delivered" in run("webhooks", "deliveries", made["id"]).out, 20, "its state")
        assert run("webhooks", "enable", made["id"]).out.strip() == f"{made['id']}: works"
        assert run("webhooks", "rm", made["id"]).code == 0
        assert run("webhooks", "rm", made["id"]).code == 2


@pytest.mark.soak
def test_keys_and_sealed_files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(run("seal", "show", "--json").out) == {"keys": [], "always": False}
    made = json.loads(run("seal", "init", "--json").out)
    assert run("seal", "init").code == 2
    file, about = tmp_path / "sealed.bin", sealing.About("job_1", sealing.OUTPUT, "a\u202eb")
    file.write_bytes(sealing.seal_bytes(b"treasure", to=sealing.public_bytes(made["public"]), about=about))
    opened = run("seal", "open", file, "--out", tmp_path / "plain.bin")
    assert (opened.code, opened.err) == (0, "sealed.bin was the output ab of job job_1\n")
    assert (tmp_path / "plain.bin").read_bytes() == b"treasure"
    document = json.loads(run("seal", "open", file, "--out", tmp_path / "plain.bin", "--json").out)
    assert [one["was"] for one in document] == ["the output a\u202eb of job job_1"]
    exported = tmp_path / "keys.json"
    exported.write_text(run("seal", "export").out)
    run("seal", "always", "on")
    assert json.loads(run("seal", "show", "--json").out)["always"] is True
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
