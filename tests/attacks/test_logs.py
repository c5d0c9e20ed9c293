"""Hostile text in the logs of hub and agent, and in errors of the SDK: a line stays one line, and no terminal obeys it."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.owner.manifest import Manifest
from computepool.agent.owner.owner_console import OwnerConsole
from computepool.cli.options import confirm
from computepool.core.errors import ComputePoolError
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.plaintext import is_plain
from computepool.protocol.accounts import Problem
from computepool.protocol.jobs.groups import GroupRequest
from computepool.protocol.jobs.jobs import Item
from computepool.protocol.jobs.views import JobResult
from computepool.protocol.nodes.nodes import NextRequest
from computepool.protocol.plain_log import PlainFormatter
from computepool.protocol.values import values
from computepool.sdk.client.transport import Transport
from computepool.sdk.errors import hub_error, job_error, raised_error

HOSTILE = [
    "\x1b[2J\x1b[1;1H", "\x1b]0;title\x07", "\x1b]52;c;aGk=\x1b\\", "\x9b2J", "\x08\x08\x08", "\r99 jobs done", "\u202egpj.exe",
    "\u2066a\u2069", "\u200f", "\u061c", "\x7f", "\x85", "\u2028new line", "name\n2026-01-01 ERROR forged line",
]  # fmt: skip


def logged(text: str) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainFormatter("%(levelname)s %(message)s"))
    record = logging.LogRecord("agent", logging.INFO, __file__, 1, "running %s", (text,), None)
    handler.handle(record)
    return stream.getvalue()


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_line_of_the_log_stays_one_and_commands_nothing(text: str) -> None:
    manifest = Manifest(
        submitter=text, job_id="job_1", name=text, labels=(text,), network=(text,), gpus=(), cores=1, ram_mb=1, disk_mb=1,
        minutes=1,
    )  # fmt: skip
    for said in (text, manifest.sentence):
        line = logged(said)
        assert line.endswith("\n")
        assert is_plain(line[:-1]), ascii(line)


def test_the_agents_own_log_escapes_terminal_commands() -> None:
    """Including tracebacks, which keep their lines."""
    program = (
        "import logging\n"
        "from computepool.protocol import plain_log\n"
        "plain_log.configure(logging.INFO, format='%(levelname)s %(message)s')\n"
        "try:\n    raise ValueError('\\x1b[2J\\u202e')\n"
        "except ValueError:\n    logging.exception('job %s failed', 'a\\nb\\x9b')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, *rest = ran.stderr.splitlines()
    assert first == r"ERROR job a\nb\u009b failed"
    assert rest[-1] == r"ValueError: \u001b[2J\u202e"
    assert all(map(is_plain, rest))


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\n" not in text], ids=ascii)
def test_errors_of_the_sdk_command_no_terminal(text: str) -> None:
    result = JobResult(seq=1, job_id="job_1", state=JobState.FAILED, reason=Reason.NODE_ERROR, error=text)
    failed = job_error(result)
    problem = Problem(title="t", status=422, code="bad_request", detail=f"said: {text}")
    for error in (failed, raised_error("job_1", text), hub_error(problem)):
        assert all(map(is_plain, str(error).split("\n"))), ascii(str(error))


class NoHub(BaseHTTPRequestHandler):
    """A captive portal, or a proxy; it answers 404 for /404."""

    body = b""

    def do_GET(self) -> None:
        self.send_response(404 if self.path.endswith("/404") else 200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        return None


def test_an_answer_that_is_no_hubs_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), NoHub) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with closing(Transport(f"http://127.0.0.1:{server.server_port}", None, retry_for=0)) as hub:
            for text in HOSTILE:
                monkeypatch.setattr(NoHub, "body", text.encode())
                for ask in (partial(hub.request, Problem, "GET"), hub.get_json):
                    for path in ("/200", "/404"):
                        with pytest.raises(ComputePoolError) as refused:
                            ask(path)
                        assert all(map(is_plain, str(refused.value).split("\n"))), ascii(str(refused.value))
        server.shutdown()


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_strangers_value_commands_no_terminal_where_it_is_shown(text: str) -> None:
    named = {"class": text, "fields": {text: text}}
    assert is_plain(repr(values.decode(json.dumps({"$dataclass": named}))))


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_line_of_the_owners_console_stays_one(text: str) -> None:
    out = io.StringIO()
    OwnerConsole(clock=AgentClock(), limits=AgentLimits(), stream=out).show(f"Warning: {text}")
    assert is_plain(out.getvalue()[:-1]), ascii(out.getvalue())


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_question_commands_no_terminal(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question))
    confirm(f"Revoke {text}?")
    assert is_plain(asked[0].replace("\n", "")), ascii(asked[0])


PROFILE = {"name": "n", "cores": 1, "ram_mb": 1, "disk_mb": 1, "python": "3.11"}


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_new_name_may_contain_terminal_commands(text: str) -> None:
    """For names in jobs see tests/hub/poison.py."""
    poll = {"boot_id": "b", "profile": PROFILE}
    assert NextRequest.model_validate(poll).profile is not None
    made: list[tuple[type[BaseModel], dict[str, Any]]] = [
        (GroupRequest, {"name": text}),
        (Item, {"key": text}),
        (NextRequest, poll | {"profile": PROFILE | {"name": text}}),
        (NextRequest, poll | {"profile": PROFILE | {"platform": text}}),
        (NextRequest, poll | {"profile": PROFILE | {"properties": {"a": text}}}),
        (NextRequest, poll | {"profile": PROFILE | {"gpus": [{"name": text, "tier": "t4", "vram_mb": 1}]}}),
    ]
    for model, fields in made:
        with pytest.raises(ValidationError):
            model.model_validate(fields)
