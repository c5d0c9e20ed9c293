"""The hub's CPU time per job of a stream, by thread: one process with a whole hub and a node that runs nothing.

Requests go directly to the application, without sockets. CPU time is measured instead of elapsed time, and that of client and
node is subtracted. On a busy machine CPU time grows, too, because caches and cores are shared. So a fixed piece of work is
measured between requests, and the figures are scaled to a machine on which it takes `REFERENCE_S`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from bench.table import Figure
from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.core.money.money import CREDIT
from computepool.hub.app import create_app
from computepool.hub.clock import SystemClock
from computepool.hub.identity.authenticator import HUB_AUDIENCE
from computepool.hub.main import bootstrap
from computepool.hub.settings import Settings
from computepool.protocol.base import PROTOCOL
from computepool.protocol.nodes.nodes import CompleteRequest, Report, signed_text
from computepool.protocol.tokens import b64, public_text, sign_node_token
from computepool.testing.node import PROFILE

JOBS = 10_000
WARM = 1_000
ROUNDS = 3
REFERENCE_S = 150e-6
_SUBMITTED = 500  #: jobs in one request, as in the SDK
_REPORTED = 64  #: reports in one request, as from an agent after its pause
_RICH = 1_000_000_000 * CREDIT
_SPEC = {"kind": "function", "name": "noop", "function": "AA==" * 100, "needs": {"python": "3.11"}}


def reference_work() -> None:
    """Typical work of the hub: small dicts and strings."""
    rows = [{"id": f"job-{number}", "number": number, "state": "queued"} for number in range(100)]
    for row in json.loads(json.dumps(rows)):
        row |= {"state": "leased", "key": "-".join((row["id"], str(row["number"])))}


@dataclass(slots=True)
class Caller:
    """Sends requests to the application, and records its own CPU time."""

    app: FastAPI
    spent_s: float = 0.0
    reference_s: list[float] = field(default_factory=list)

    @contextmanager
    def own_time(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.spent_s += time.thread_time() - began

    def reset(self) -> None:
        self.spent_s = 0.0
        self.reference_s.clear()

    @property
    def slowness(self) -> float:
        """The slowness of the machine since the last reset."""
        return statistics.median(self.reference_s) / REFERENCE_S

    def _measure_reference(self) -> None:
        began = time.thread_time()
        reference_work()
        self.reference_s.append(time.thread_time() - began)

    async def call(self, method: str, path: str, credential: str, body: Any = b"", query: str = "") -> Any:
        with self.own_time():
            self._measure_reference()
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
            scope = _scope(method, path, credential, query=query, size=len(sent))
            messages = [{"type": "http.request", "body": sent, "more_body": False}]
            parts: list[bytes] = []
            status = [0]

        async def receive() -> dict[str, Any]:
            return messages.pop()

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self.app(scope, receive, send)  # type: ignore[arg-type]
        with self.own_time():
            answer = b"".join(parts)
            if status[0] >= 300:
                raise RuntimeError(f"{path}: {status[0]} {answer.decode()}")
            return json.loads(answer)


def _scope(method: str, path: str, credential: str, *, query: str, size: int) -> dict[str, Any]:
    headers = [
        (b"host", b"bench"),
        (b"authorization", f"Bearer {credential}".encode()),
        (b"content-type", b"application/json"),
        (b"content-length", str(size).encode()),
        (b"accept-encoding", b"identity"),
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": f"/api/v1{path}",
        "raw_path": f"/api/v1{path}".encode(),
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("bench", 80),
        "root_path": "",
        "state": {},
    }


@dataclass(slots=True)
class Node:
    """Reports everything that it gets as done."""

    caller: Caller
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    token: str = ""
    holding: dict[str, None] = field(default_factory=dict)
    has_work: asyncio.Event = field(default_factory=asyncio.Event)

    async def enrol(self, person: str) -> None:
        code = (await self.caller.call("POST", "/nodes/codes", person))["code"]
        body = {
            "code": code,
            "public_key": public_text(self.key),
            "proof": b64(self.key.sign(code.encode())),
            "protocol": PROTOCOL,
            "profile": PROFILE | {"cores": 2},
        }
        node_id = (await self.caller.call("POST", "/nodes/register", person, body))["node_id"]
        now_s = SystemClock().now_ms() // 1000
        self.token = sign_node_token(node_id, key=self.key, hub=HUB_AUDIENCE, now_s=now_s)
        await self._poll(wait_ms=0, profile=PROFILE | {"cores": 2})

    async def _poll(self, **given: Any) -> None:
        body = {"boot_id": "bench", "holding": list(self.holding), "wait_ms": 10_000, **given}
        reply = await self.caller.call("POST", "/next", self.token, body)
        self.holding |= dict.fromkeys(grant["attempt_id"] for grant in reply.get("grants", ()))
        if self.holding:
            self.has_work.set()

    async def take(self) -> None:
        while True:
            await self._poll()

    async def report(self) -> None:
        while True:
            await self.has_work.wait()
            done = list(self.holding)[:_REPORTED]
            await self.caller.call("POST", "/complete", self.token, self._completion(done))
            for attempt_id in done:
                del self.holding[attempt_id]
            if not self.holding:
                self.has_work.clear()

    def _completion(self, attempts: list[str]) -> bytes:
        with self.caller.own_time():
            reports = [
                Report(
                    attempt_id=attempt,
                    outcome=Outcome.SUCCEEDED,
                    reason=Reason.COMPLETED,
                    exit_code=0,
                    result="AA==" * 4,
                    ran_ms=0,
                )
                for attempt in attempts
            ]
            signature = b64(self.key.sign(signed_text(reports)))
            request = CompleteRequest(reports=reports, signature=signature)
            return request.model_dump_json(exclude_defaults=True).encode()


async def _stream(caller: Caller, person: str, *, jobs: int) -> None:
    """Submit jobs in one session and wait for all results."""
    group = (await caller.call("POST", "/groups", person, {"name": "bench", "kind": "session"}))["id"]
    path, cursor, missing = f"/groups/{group}/results", 0, jobs

    async def submit() -> None:
        for start in range(0, jobs, _SUBMITTED):
            items = [{"payload": "AA==" * 10}] * min(_SUBMITTED, jobs - start)
            await caller.call("POST", "/jobs", person, {"spec": _SPEC, "items": items, "group_id": group})

    submitting = asyncio.create_task(submit())
    while missing:
        page = await caller.call("GET", path, person, query=f"after={cursor}&wait_ms=10000")
        cursor, missing = page["cursor"], missing - len(page["results"])
    await submitting


def _thread_times() -> dict[str, float]:
    found = {"event loop": 0.0, "writer": 0.0, "readers": 0.0, "other threads": 0.0}
    names = {"MainThread": "event loop", "store-write": "writer", "store-read": "readers"}
    for thread in threading.enumerate():
        if thread.ident is None:
            continue
        name = names.get(thread.name.partition("_")[0], "other threads")
        found[name] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return found


async def _rounds(settings: Settings, person: str, *, own: bool) -> list[dict[str, float]]:
    """CPU seconds by thread, for each round."""
    app, found = create_app(settings, SystemClock()), []
    async with app.router.lifespan_context(app):
        caller = Caller(app)
        owner = person if own else await _another_person(caller, person)
        node = Node(caller)
        await node.enrol(owner)
        working = [asyncio.create_task(duty) for duty in (node.take(), node.report())]
        await _stream(caller, person, jobs=WARM)
        for _ in range(ROUNDS):
            caller.reset()
            before = _thread_times()
            await _stream(caller, person, jobs=JOBS)
            after = _thread_times()
            spent = {name: after[name] - before[name] for name in after}
            spent["event loop"] -= caller.spent_s
            found.append({name: cost / caller.slowness for name, cost in spent.items()})
            print(f"slowness {caller.slowness:.2f}", file=sys.stderr)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    return found


async def _another_person(caller: Caller, admin: str) -> str:
    made = await caller.call("POST", "/accounts", admin, {"name": "owner", "roles": ["submitter", "provider"]})
    key: str = (await caller.call("POST", "/keys", admin, {"name": "bench", "account_id": made["id"]}))["key"]
    return key


def _measure(*, own: bool) -> dict[str, float]:
    """CPU µs per job by thread, for the median round."""
    with tempfile.TemporaryDirectory(prefix="computepool-bench-") as folder:
        settings = Settings(
            data_dir=Path(folder), DATABASE_URL="", signup_grant=_RICH, dashboard_dir="none", newcomer_jobs=0
        )
        person = bootstrap(settings).admin_key
        found = asyncio.run(_rounds(settings, person, own=own))
    middle = statistics.median(sum(spent.values()) for spent in found)
    spent = next(spent for spent in found if sum(spent.values()) == middle)
    return {name: cost / JOBS * 1e6 for name, cost in spent.items()}


def run() -> list[Figure]:
    figures = []
    for own, which in ((True, "own node"), (False, "another owner's node, paid")):
        spent = _measure(own=own)
        parts = ", ".join(f"{name} {cost:.0f}" for name, cost in spent.items())
        name = f"CPU of the hub for each job of a stream, {which}"
        note = f"at the speed of reference; {parts}"
        figures.append(Figure(name, sum(spent.values()), "µs", lower_is_better=True, note=note))
    return figures
