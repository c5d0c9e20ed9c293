"""A small hub that speaks the real protocol over real sockets, and misbehaves on request."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email.utils
import hashlib
import itertools
import json
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

import cloudpickle
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from computepool.agent.clock import AgentClock
from computepool.core.errors import ComputePoolError, Unauthenticated
from computepool.core.jobs.lifecycle import JobKind, Outcome, Reason, Verdict
from computepool.protocol.jobs.checkpoints import CheckpointReply, CheckpointReport
from computepool.protocol.jobs.jobs import JobSpec, Needs, spec_digest
from computepool.protocol.nodes.nodes import (
    CompleteReply,
    CompleteRequest,
    Grant,
    LogsRequest,
    NextReply,
    NextRequest,
    RegisterReply,
    RegisterRequest,
    Report,
    ReportAnswer,
)
from computepool.protocol.tokens import (
    ISSUER,
    JobToken,
    is_signed_by,
    node_token_subject,
    public_key,
    public_text,
    sign_job_token,
    verify_node_token,
)

KID = "k1"
OWNER = "acc_owner"
STRANGER = "acc_stranger"
CODE = "ENROL-CODE-1"

#: What something that is no hub answers: status, headers, body.
Foreign = tuple[int, dict[str, str], bytes]
#: Asked before each request: an HTTP status or a foreign answer to give, "drop" to close the connection after handling,
#: or None.
Fault = Callable[[str], int | Foreign | str | None]


def _listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else no TCP_NODELAY
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    return listener


class FakeHub:
    def __init__(self) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.clock = AgentClock()
        self.node_keys: dict[str, Ed25519PublicKey] = {}
        self.codes = {CODE}
        self.interval_ms, self.lease_ms, self.fence_ms = 2_000, 60_000, 10_000
        self.state = "active"
        self.cancel: set[str] = set()
        self.window = 64  #: granted and not reported, in all
        self.reports: dict[str, Report] = {}
        self.order: list[str] = []  #: attempts in the order their reports arrived
        self.repeats: list[str] = []
        self.log_texts: dict[str, dict[str, str]] = defaultdict(lambda: {"stdout": "", "stderr": ""})
        self.log_requests = 0
        self.calls: list[tuple[str, Any]] = []  #: what jobs asked for
        self.calls_answered = asyncio.Event()  #: cleared: they wait
        self.calls_answered.set()
        self.polls: deque[NextRequest] = deque(maxlen=1000)
        self.beats: list[NextRequest] = []
        self.requests: dict[str, int] = defaultdict(int)
        self.granted: set[str] = set()
        self.artifacts: dict[str, bytes] = {}
        self.checkpoints: list[CheckpointReport] = []
        #: For the next checkpoints: why the hub does not keep them, or what it raises.
        self.checkpoint_faults: list[str | ComputePoolError] = []
        self.partial: dict[str, bytes] = {}
        self.early = 0  #: how many polls are answered at once, with nothing
        self.tamper: Callable[[NextReply], NextReply] | None = None
        self.fault: Fault | None = None
        self.revoked = False
        self.reregister = False
        self.seen_from: str | None = None
        self.sees_callers = False  #: it says the address that it really sees
        self.time_offset_ms = 0
        self.specs: dict[str, str] = {}
        self._backlog: deque[Grant] = deque()
        self._open = 0
        self._turn = 0
        self._delivered: dict[str, Grant] = {}
        self._count = 0
        self._lane_turns = itertools.cycle(("lane0", "lane1"))
        self._news = asyncio.Event()
        self._server: uvicorn.Server | None = None
        self.url = ""

    # ------------------------------------------------------------ for tests
    def submit(
        self,
        spec: JobSpec,
        payloads: list[Any] | None = None,
        *,
        account: str = OWNER,
        lane: str | None = None,
        **fields: Any,
    ) -> list[str]:
        """One attempt per payload (arguments of a function); returns their ids. `lane`: None takes turns."""
        body = spec.body()
        digest = spec_digest(body)
        self.specs[digest] = body
        ids = []
        items = payloads if payloads is not None else [None]
        for item, payload in enumerate(items):
            self._count += 1
            job_id = f"job{self._count:06d}"
            grant = Grant(
                attempt_id=f"{job_id}-1",
                attempt_no=1,
                job_id=job_id,
                lane=lane or next(self._lane_turns),
                spec=digest,
                account_id=account,
                payload=payload,
                item=item,
                items=len(items),
                **fields,
            )
            self._backlog.append(grant)
            ids.append(grant.attempt_id)
        self._news.set()
        return ids

    async def run(self, spec: JobSpec, payload: Any = None, *, timeout_s: float = 120, **fields: Any) -> Report:
        """One attempt, from its submission to its report."""
        [attempt_id] = self.submit(spec, [payload], **fields)
        return await self.report(attempt_id, timeout_s=timeout_s)

    async def report(self, attempt_id: str, *, timeout_s: float = 120) -> Report:
        [report] = await self.reports_of([attempt_id], timeout_s=timeout_s)
        return report

    async def reports_of(self, attempts: Iterable[str], *, timeout_s: float = 120) -> list[Report]:
        """The reports of these attempts, in this order, when all have arrived."""
        ids = list(attempts)
        await until(lambda: self.reports.keys() >= set(ids), timeout_s=timeout_s)
        return [self.reports[id_] for id_ in ids]

    def stop_attempt(self, attempt_id: str) -> None:
        self.cancel.add(attempt_id)
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    def grant_again(self, grant: Grant) -> None:
        self._backlog.append(grant)
        self._news.set()

    def add_artifact(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.artifacts[digest] = data
        return digest

    async def start(self, port: int = 0, *, besides: bool = False) -> None:
        """`besides`: over IPv6, too, at the same port."""
        listeners = [_listener(socket.AF_INET, "127.0.0.1", port)]
        self.url = f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
        if besides:
            listeners.append(_listener(socket.AF_INET6, "::1", self.port))
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            log_level="error",
            ws="none",
            lifespan="off",
            access_log=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=listeners))
        await until(lambda: self._server is not None and self._server.started)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
            self._news.set()
            await self._serving
            self._server = None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    # ------------------------------------------------------------ HTTP
    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix("/api/v1")
        self.requests[path] += 1
        fault = self.fault(path) if self.fault is not None else None
        if isinstance(fault, int):
            return await self._reply(send, fault, _problem(fault))
        if isinstance(fault, tuple):
            return await self._reply(send, fault[0], fault[2], fault[1])
        try:
            status, body = await self._route(scope, path, receive)
        except ComputePoolError as error:
            status = 401 if isinstance(error, Unauthenticated) else 400
            body = _problem(status, error.detail, code=error.code)
        if fault == "drop":
            raise ConnectionAbortedError("as the test wished")
        return await self._reply(send, status, body)

    async def _reply(self, send: Any, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        date = email.utils.formatdate((self.clock.now_ms() + self.time_offset_ms) / 1000, usegmt=True)
        head = [(b"content-type", b"application/json"), (b"date", date.encode())]
        head += [(b"content-length", str(len(body)).encode())] if status != 204 else []
        head += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})

    async def _route(self, scope: Any, path: str, receive: Any) -> tuple[int, bytes]:
        method = scope["method"]
        if path == "/nodes/register":
            return self._register(await _body(receive))
        if path == "/hub/keys":
            return 200, json.dumps({"keys": {KID: public_text(self.key)}}).encode()
        node_id = self._authenticate(scope)
        if path.startswith("/artifacts/"):
            return await self._artifact(scope, method, path, receive)
        body = await _body(receive)
        if path == "/next":
            self._see(scope)
            return 200, await self._next(node_id, NextRequest.model_validate_json(body))
        if path == "/heartbeat":
            request = NextRequest.model_validate_json(body)
            self.beats.append(request)
            self._see(scope)
            return 200, self._next_reply(node_id, []).model_dump_json().encode()
        if path == "/complete":
            return 200, self._complete(node_id, CompleteRequest.model_validate_json(body))
        if path == "/checkpoint":
            return 200, self._checkpoint(node_id, CheckpointReport.model_validate_json(body))
        if path == "/logs":
            self._logs(LogsRequest.model_validate_json(body))
            return 204, b""
        return await self._call(path, body)

    def _see(self, scope: Any) -> None:
        if self.sees_callers:
            self.seen_from = scope["client"][0]

    def _logs(self, request: LogsRequest) -> None:
        self.log_requests += 1
        for chunk in request.chunks:
            self.log_texts[chunk.attempt_id][chunk.stream] += chunk.text

    async def _call(self, path: str, body: bytes) -> tuple[int, bytes]:
        if not path.startswith("/attempts/"):
            return 404, _problem(404)
        self.calls.append((path, json.loads(body)))
        await self.calls_answered.wait()
        return 201, json.dumps({"number": len(self.calls)}).encode()

    def _authenticate(self, scope: Any) -> str:
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        node_id = node_token_subject(token)
        now_s = (self.clock.now_ms() + self.time_offset_ms) // 1000
        verify_node_token(token, key=self.node_keys[node_id], hub=ISSUER, now_s=now_s)
        if self.revoked:
            raise Unauthenticated("This node was revoked.")
        return node_id

    def _register(self, body: bytes) -> tuple[int, bytes]:
        request = RegisterRequest.model_validate_json(body)
        if request.code not in self.codes:
            return 400, _problem(400, "The enrolment code is wrong, used or expired.")
        assert is_signed_by(public_key(request.public_key), request.proof, request.code.encode())
        self.codes.discard(request.code)
        node_id = f"node_{len(self.node_keys)}"
        self.node_keys[node_id] = public_key(request.public_key)
        reply = RegisterReply(node_id=node_id, owner=OWNER, hub_keys={KID: public_text(self.key)})
        return 201, reply.model_dump_json().encode()

    async def _next(self, node_id: str, request: NextRequest) -> bytes:
        self.polls.append(request)
        self._turn += 1
        turn = self._turn
        self._news.set()  # an older poll of this node: its connection is gone
        await asyncio.sleep(0)
        for grant in [self._delivered.pop(id_) for id_ in list(self._delivered) if id_ not in request.holding]:
            if grant.attempt_id not in self.reports:  # its reply was lost on the way; say it again
                self._backlog.appendleft(grant)
                self._open -= 1
        deadline = asyncio.get_running_loop().time() + min(request.wait_ms, self.interval_ms) / 1000
        while True:
            self._news.clear()
            if turn != self._turn:
                return self._next_reply(node_id, []).model_dump_json().encode()
            grants = self._take() if request.claim else []
            left_s = deadline - asyncio.get_running_loop().time()
            stopping = self._server is None or self._server.should_exit
            if grants or (self.cancel - self.reports.keys()) or left_s <= 0 or stopping:
                break
            if self.early:
                self.early -= 1
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._news.wait()
        reply = self._next_reply(node_id, grants)
        if self.tamper is not None and reply.grants:
            reply = self.tamper(reply)
        return reply.model_dump_json(exclude_defaults=True).encode()

    def _take(self) -> list[Grant]:
        grants = []
        while self._backlog and self._open < self.window:
            grants.append(self._backlog.popleft())
            self._open += 1
        self.granted.update(grant.attempt_id for grant in grants)
        self._delivered.update((grant.attempt_id, grant) for grant in grants)
        return grants

    def _next_reply(self, node_id: str, grants: list[Grant]) -> NextReply:
        now_ms = self.clock.now_ms() + self.time_offset_ms
        return NextReply(
            interval_ms=self.interval_ms,
            lease_ms=self.lease_ms,
            fence_ms=self.fence_ms,
            hub_time_ms=now_ms,
            grants=grants,
            specs={grant.spec: self.specs[grant.spec] for grant in grants},
            token=self.sign(node_id, grants) if grants else None,
            cancel=sorted(self.cancel - self.reports.keys()),
            state=self.state,
            reregister=self.reregister,
            seen_from=self.seen_from,
        )

    def sign(self, node_id: str, grants: list[Grant], /, **changes: Any) -> str:
        now_s = (self.clock.now_ms() + self.time_offset_ms) // 1000
        token = JobToken(
            node_id=changes.get("node_id", node_id),
            grants={grant.attempt_id: grant.digest() for grant in grants},
            issued_s=changes.get("issued_s", now_s),
            expires_s=changes.get("expires_s", now_s + 3600),
        )
        return sign_job_token(token, key=changes.get("key", self.key), kid=changes.get("kid", KID))

    def _complete(self, node_id: str, request: CompleteRequest) -> bytes:
        assert is_signed_by(self.node_keys[node_id], request.signature, request.signed_text())
        answers = []
        for report in request.reports:
            known = self.reports.get(report.attempt_id)
            if known is None:
                self.reports[report.attempt_id] = report
                self.order.append(report.attempt_id)
                self._open -= report.attempt_id in self.granted
                verdict = Verdict.ACCEPTED
            else:
                self.repeats.append(report.attempt_id)
                verdict = Verdict.REPLAY if known.digest() == report.digest() else Verdict.CONFLICT
            answers.append(ReportAnswer(attempt_id=report.attempt_id, verdict=verdict))
        for chunk in request.logs:
            self.log_texts[chunk.attempt_id][chunk.stream] += chunk.text
        self._news.set()
        return CompleteReply(answers=answers).model_dump_json().encode()

    def _checkpoint(self, node_id: str, report: CheckpointReport) -> bytes:
        assert is_signed_by(self.node_keys[node_id], report.signature, report.signed_text())
        assert all(file.digest in self.artifacts for file in report.files)
        fault = self.checkpoint_faults.pop(0) if self.checkpoint_faults else ""
        if isinstance(fault, ComputePoolError):
            raise fault
        if not fault:
            self.checkpoints.append(report)
        return CheckpointReply(kept=not fault, reason=fault).model_dump_json().encode()

    async def _artifact(self, scope: Any, method: str, path: str, receive: Any) -> tuple[int, bytes]:
        digest = path.split("/")[2]
        if path.endswith("/upload"):
            return 200, self._upload_state(digest)
        if method == "GET":
            if digest not in self.artifacts:
                return 404, _problem(404)
            data = self.artifacts[digest]
            start = dict(scope["headers"]).get(b"range", b"").decode().removeprefix("bytes=").rstrip("-")
            if start and int(start) >= len(data):
                return 416, _problem(416)
            return (206, data[int(start) :]) if start else (200, data)
        query = parse_qs(scope["query_string"].decode())
        offset, size = int(query["offset"][0]), int(query["size"][0])
        have = self.partial.get(digest, b"")
        if offset != len(have):
            return 409, _problem(409)
        self.partial[digest] = have + await _body(receive)
        if len(self.partial[digest]) == size:
            data = self.partial.pop(digest)
            assert hashlib.sha256(data).hexdigest() == digest
            self.artifacts[digest] = data
        return 200, self._upload_state(digest)

    def _upload_state(self, digest: str) -> bytes:
        complete = digest in self.artifacts
        size = len(self.artifacts[digest] if complete else self.partial.get(digest, b""))
        return json.dumps({"digest": digest, "offset": size, "complete": complete}).encode()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _body(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


_CODES = {
    400: "bad_request",
    401: "unauthenticated",
    404: "not_found",
    409: "conflict",
    416: "bad_request",
    429: "rate_limited",
    507: "out_of_space",
}


def _problem(status: int, detail: str = "as the test wished", *, code: str = "") -> bytes:
    code = code or _CODES.get(status, "unavailable")
    return json.dumps({"title": code, "status": status, "code": code, "detail": detail}).encode()


# ---------------------------------------------------------------- specs and payloads
def command(*argv: str, timeout_s: float = 30, **needs: Any) -> JobSpec:
    return JobSpec(kind=JobKind.COMMAND, name="command", argv=list(argv), timeout_s=timeout_s, needs=Needs(**needs))


def script(source: str, *argv: str, name: str = "script", **fields: Any) -> JobSpec:
    return JobSpec(kind=JobKind.SCRIPT, name=name, source=source, argv=list(argv), timeout_s=60, **fields)


def function(target: Callable[..., Any], *, timeout_s: float = 30, **fields: Any) -> JobSpec:
    text = base64.b64encode(cloudpickle.dumps(target)).decode()
    return JobSpec(kind=JobKind.FUNCTION, name="function", function=text, timeout_s=timeout_s, **fields)


def payload(*args: Any, **kwargs: Any) -> str:
    return base64.b64encode(cloudpickle.dumps((args, kwargs))).decode()


async def until(condition: Callable[[], Any], *, timeout_s: float = 120) -> None:
    """Wait for `condition`; fails, naming what was waited for, after a deadline."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - conditions span processes; there is no event to wait for
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited {timeout_s} s in vain") from None


__all__ = [
    "CODE", "KID", "OWNER", "STRANGER", "FakeHub", "Outcome", "Reason",
    "command", "function", "payload", "script", "until",
]  # fmt: skip
