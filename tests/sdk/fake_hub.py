"""A hub double with the real wire models. It runs jobs at once, in this process, and injects faults on demand.

For tests that need a lost reply, a broken transfer, or a job that waits at a given moment. The real hub and a real node are
tested in `test_real.py`.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import pickle
import re
import threading
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from computepool.core.jobs.lifecycle import TERMINAL, JobKind, JobState, Reason
from computepool.protocol.accounts import AccountView, HubInfo, Problem, SignInReply, SignInRequest
from computepool.protocol.artifacts import ArtifactPage, ArtifactView, UploadState
from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.explanations import WhyView
from computepool.protocol.jobs.groups import GroupRequest, GroupView
from computepool.protocol.jobs.jobs import RESULT_INLINE_MAX, SubmitReply, SubmitRequest
from computepool.protocol.jobs.views import JobDetail, JobPage, JobResult, JobView, LogChunk, LogPage
from computepool.protocol.money.credits import Estimate, QuoteRequest, QuoteView
from computepool.protocol.nodes.nodes import NodePage
from computepool.protocol.references import Reference, ReferenceKind
from computepool.protocol.values import values

ACCOUNT = AccountView(id="acc_1", name="ann", roles=["submitter"], created_at_ms=0)
SIGNIN_CODE = "one-time-code"
BAD_KEY = "cp_bad"
Query = dict[str, str]


class Refusal(Exception):
    def __init__(self, status: int, code: str, detail: str = "refused") -> None:
        super().__init__(detail)
        self.problem = Problem(title=code, status=status, code=code, detail=detail)


class FakeHub:
    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.numbers = itertools.count(1)
        self.jobs: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, GroupRequest] = {}
        self.results: dict[str, list[JobResult]] = defaultdict(list)
        self.blobs: dict[str, bytes] = {}
        self.partial: dict[str, bytes] = defaultdict(bytes)
        self.replies: dict[str, tuple[int, bytes]] = {}
        self.requests: list[tuple[str, str, Query]] = []
        self.batches: list[int] = []
        self.quotes: list[QuoteRequest] = []
        self.polls_ended = 0
        self.poll_end = ""
        self.ran_ms = 0  #: run time that each job reports
        self.hold = False  #: new jobs wait in the queue until release()
        #: Called before each reply. May raise Refusal, or return "drop" to lose the reply after the work is done, "page" to
        #: send a web page instead, or "reset" to break the connection before the work.
        self.fault: Callable[[str, str], str | None] = lambda method, path: None
        self.break_after: int | None = None  #: bytes of a transfer before it breaks
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end_polls()
        self.server.shutdown()
        self.server.server_close()

    def count(self, method: str, prefix: str) -> int:
        return sum(1 for m, path, _ in self.requests if m == method and path.startswith(prefix))

    # ------------------------------------------------------------ routes
    def route(self, method: str, path: str, query: Query, body: bytes) -> tuple[int, BaseModel | bytes]:
        parts = path.strip("/").split("/")
        match method, parts:
            case "GET", ["hub" | "find" | "me" as what]:
                return 200, self.look(what, query)
            case "POST", ["quotes"]:
                return 200, self.quote(QuoteRequest.model_validate_json(body))
            case "POST", ["signin"]:
                return 200, self.sign_in(SignInRequest.model_validate_json(body))
            case _, ["groups", *rest]:
                return self.group_route(method, rest, query, body)
            case "POST", ["jobs"]:
                return 201, self.submit(SubmitRequest.model_validate_json(body))
            case "GET", ["nodes"]:
                return 200, NodePage(nodes=[])
            case "GET", ["jobs"]:
                jobs = [self.view(job_id) for job_id in reversed(self.jobs)]
                jobs = [job for job in jobs if query.get("group_id") in (None, job.group_id)]
                return 200, JobPage(jobs=[job for job in jobs if query.get("state") in (None, job.state)])
            case _, ["jobs", job_id, *rest]:
                return 200, self.job_route(method, job_id, rest, query)
            case _, ["artifacts", *rest]:
                return self.artifact_route(method, rest, query, body)
        raise Refusal(404, "not_found", f"no route {method} {path}")

    def look(self, what: str, query: Query) -> BaseModel:
        if what == "me":
            return ACCOUNT
        if what == "find":
            return self.find(query["kind"], query["word"])
        numbers = dict.fromkeys(("time_ms", "nodes_online", "nodes", "queued", "running"), 0)
        return HubInfo(name="fake", version="0", protocol=1, account=ACCOUNT, **numbers)

    def find(self, kind: str, word: str) -> Reference:
        known = {"job": self.jobs, "group": self.groups}.get(kind, {})
        if word not in known:
            raise Refusal(404, "not_found", f"There is no {kind} {word!r}.")
        return Reference(kind=ReferenceKind(kind), id=word, name=word)

    def group_route(self, method: str, rest: list[str], query: Query, body: bytes) -> tuple[int, BaseModel | bytes]:
        match method, rest:
            case "POST", []:
                group_id = f"grp_{next(self.numbers)}"
                self.groups[group_id] = GroupRequest.model_validate_json(body)
                return 201, self.group(group_id)
            case "GET", [group_id]:
                return 200, self.group(group_id)
            case "GET", [group_id, "results"]:
                return 200, self.group_results(group_id, query)
            case "POST", [group_id, "cancel"]:
                for job_id, job in list(self.jobs.items()):
                    if job["group_id"] == group_id and job["state"] not in TERMINAL:
                        self.finish(job_id, JobState.CANCELLED, Reason.CANCELLED_BY_USER)
                return 200, self.group(group_id)
        raise Refusal(404, "not_found")

    def job_route(self, method: str, job_id: str, rest: list[str], query: Query) -> BaseModel:
        if job_id not in self.jobs:
            raise Refusal(404, "not_found", f"There is no job {job_id}.")
        job = self.jobs[job_id]
        wait_s = int(query.get("wait_ms", 0)) / 1000
        match method, rest:
            case "GET", []:
                seen = query.get("seen")
                self.lock.wait_for(lambda: job["state"] in TERMINAL or job["state"] != seen, wait_s)
                return self.view(job_id)
            case "GET", ["result"]:
                if not self.lock.wait_for(lambda: job["state"] in TERMINAL, wait_s):
                    raise Refusal(409, "conflict", "not finished")
                return next(r for r in self.results[job["group_id"]] if r.job_id == job_id)
            case "GET", ["logs"]:
                after, ended = int(query.get("after", 0)), job["state"] in TERMINAL
                return LogPage(chunks=job["logs"][after:], cursor=len(job["logs"]), ended=ended)
            case "GET", ["why"]:
                sentence = "Waiting: no node is connected."
                return WhyView(state=job["state"], reason=job["reason"], sentence=sentence, nodes=0, eligible_now=0)
            case "POST", ["cancel"]:
                if job["state"] not in TERMINAL:
                    self.finish(job_id, JobState.CANCELLED, Reason.CANCELLED_BY_USER)
                return self.view(job_id)
        raise Refusal(404, "not_found")

    def quote(self, request: QuoteRequest) -> QuoteView:
        """8 credits per hour, one free node, and no history."""
        self.quotes.append(request)
        price = 8_000_000
        ceiling = 2 * price if request.max_price is None else request.max_price
        each = round(ceiling * request.timeout_s / 3600)
        if request.budget is not None:
            each = min(each, request.budget // request.items)
        unknown = Estimate(text="Unknown: nothing like it was run.")
        return QuoteView(
            economy="market", price_version=1, items=request.items, price_low=price, price_high=price,
            max_price=ceiling, hold_each=each, hold_total=each * request.items, available=10**9, affordable=True,
            lasts_ms=1000, nodes=1, nodes_now=1, nodes_able=1, start=unknown, run=unknown, finish=unknown,
            sentences=["1 node would take it now.", "The current price is 8.00 credits per hour."],
        )  # fmt: skip

    def sign_in(self, request: SignInRequest) -> SignInReply:
        if request.code != SIGNIN_CODE:
            raise Refusal(401, "unauthenticated", "The code was used or has expired.")
        return SignInReply(account=ACCOUNT, key="cp_fresh")

    def artifact_route(self, method: str, parts: list[str], query: Query, body: bytes) -> tuple[int, BaseModel | bytes]:
        if not parts:
            rows = [ArtifactView(digest=d, size=len(data), created_at_ms=0) for d, data in self.blobs.items()]
            return 200, ArtifactPage(artifacts=rows)
        digest, *rest = parts
        have = self.blobs.get(digest, self.partial[digest])
        match method, rest:
            case "PUT", []:
                if int(query["offset"]) != len(self.partial[digest]):
                    raise Refusal(409, "conflict", f"continue from {len(self.partial[digest])}")
                self.partial[digest] += body
                if len(self.partial[digest]) == int(query["size"]):
                    data = self.partial.pop(digest)
                    if hashlib.sha256(data).hexdigest() != digest:
                        raise Refusal(422, "bad_request", "checksum")
                    self.blobs[digest] = data
                    return 200, UploadState(digest=digest, offset=len(data), complete=True)
                return 200, UploadState(digest=digest, offset=len(self.partial[digest]), complete=False)
            case "GET", ["upload"]:
                return 200, UploadState(digest=digest, offset=len(have), complete=digest in self.blobs)
            case "GET", [] if digest in self.blobs:
                return 200, self.blobs[digest]
        raise Refusal(404, "not_found", f"There is no artifact {digest}.")

    # ------------------------------------------------------------ jobs
    def submit(self, request: SubmitRequest) -> SubmitReply:
        ids = []
        self.batches.append(len(request.items))
        for number, item in enumerate(request.items):
            job_id = f"job_{next(self.numbers):06d}"
            ids.append(job_id)
            self.jobs[job_id] = {
                "request": request, "item": item, "number": number, "group_id": request.group_id,
                "state": JobState.QUEUED, "logs": [], "reason": Reason.SUBMITTED, "exit_code": None,
            }  # fmt: skip
        if not self.hold:
            for job_id in ids:
                self.run(job_id)
        return SubmitReply(job_ids=ids, group_id=request.group_id)

    def end_polls(self, how: str = "") -> None:
        """Answer all parked polls with an empty reply, or close their connections ("drop")."""
        with self.lock:
            self.poll_end = how
            self.polls_ended += 1
            self.lock.notify_all()

    def release(self) -> None:
        with self.lock:
            self.hold = False
            for job_id, job in list(self.jobs.items()):
                if job["state"] is JobState.QUEUED:
                    self.run(job_id)

    def run(self, job_id: str) -> None:
        job = self.jobs[job_id]
        spec, item = job["request"].spec, job["item"]
        if spec.kind is not JobKind.FUNCTION:
            text = f"{spec.name} {' '.join(spec.argv)}\n"
            job["logs"].append(LogChunk(seq=1, attempt_id="att_1", stream="stdout", text=text))
            failed = spec.argv[:1] == ["false"]
            state, reason = (JobState.FAILED, Reason.EXIT_NONZERO) if failed else (JobState.SUCCEEDED, Reason.COMPLETED)
            self.finish(job_id, state, reason, exit_code=int(failed))
            return
        try:
            function = pickle.loads(self._bytes(spec.function, spec.function_artifact))
            data = self._bytes(item.payload, item.payload_artifact)
            if data[:1] == bundles.MARK:
                text = self._each(function, bundles.unpack(data), allow_pickle=spec.allow_pickle)
            else:
                args, kwargs = pickle.loads(data)
                text = values.encode(function(*args, **kwargs), allow_pickle=spec.allow_pickle)
        except Exception:  # noqa: BLE001 - whatever the function raised
            self.finish(job_id, JobState.FAILED, Reason.EXCEPTION, error=traceback.format_exc())
            return
        if len(text) <= RESULT_INLINE_MAX:
            self.finish(job_id, JobState.SUCCEEDED, Reason.COMPLETED, result=text)
        else:
            digest = hashlib.sha256(text.encode()).hexdigest()
            self.blobs[digest] = text.encode()
            self.finish(job_id, JobState.SUCCEEDED, Reason.COMPLETED, result_artifact=digest)

    def _each(self, function: Any, items: list[bytes], *, allow_pickle: bool) -> str:
        parts = []
        for item in items:
            args, kwargs = pickle.loads(item)
            try:
                parts.append(bundles.value_answer(values.encode(function(*args, **kwargs), allow_pickle=allow_pickle)))
            except Exception:  # noqa: BLE001 - whatever the function raised
                parts.append(bundles.raised_answer(traceback.format_exc()))
        return bundles.answer(parts)

    def finish(self, job_id: str, state: JobState, reason: Reason, **ending: Any) -> None:
        job = self.jobs[job_id]
        job |= {"state": state, "reason": reason, "exit_code": ending.get("exit_code")}
        results = self.results[job["group_id"]]
        results.append(
            JobResult(
                seq=len(results) + 1,
                job_id=job_id,
                key=job["item"].key,
                item=job["number"],
                state=state,
                reason=reason,
                bundled=job["item"].bundled,
                ran_ms=self.ran_ms,
                **ending,
            )
        )
        self.lock.notify_all()

    def group(self, group_id: str) -> GroupView:
        request = self.groups[group_id]
        states = Counter(job["state"].value for job in self.jobs.values() if job["group_id"] == group_id)
        return GroupView(
            id=group_id,
            name=request.name,
            kind=request.kind,
            account_id="acc_1",
            created_at_ms=0,
            counts=dict(states),
            total=states.total(),
        )

    def group_results(self, group_id: str, query: Query) -> bytes:
        after, results = int(query["after"]), self.results[group_id]
        polls = self.polls_ended
        self.lock.wait_for(
            lambda: len(results) > after or polls != self.polls_ended, int(query.get("wait_ms", 0)) / 1000
        )
        if polls != self.polls_ended and self.poll_end == "drop":
            raise ConnectionAbortedError
        page = results[after : after + int(query["limit"])]
        rows = ",".join([result.model_dump_json(exclude_defaults=True) for result in page])
        unfinished = [j for j in self.jobs.values() if j["group_id"] == group_id and j["state"] not in TERMINAL]
        open_ = "" if page else f',"open":{len(unfinished)}'
        return f'{{"results":[{rows}],"cursor":{after + len(page)}{open_}}}'.encode()

    def view(self, job_id: str) -> JobDetail:
        job = self.jobs[job_id]
        request = job["request"]
        row = JobView(
            id=job_id, name=request.spec.name, kind=request.spec.kind, state=job["state"],
            reason=job["reason"], exit_code=job["exit_code"],
            status="as it is", account_id="acc_1", group_id=job["group_id"], item=job["number"],
            priority=request.priority, retries=request.retries, created_at_ms=0, queued_at_ms=0,
        )  # fmt: skip
        return JobDetail(**row.model_dump(), spec=request.spec)

    def _bytes(self, text: str | None, digest: str | None) -> bytes:
        return base64.b64decode(text) if text is not None else self.blobs[digest or ""]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(_Handler):
            fake = hub

        return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeHub

    def log_message(self, format: str, *args: object) -> None:
        return None

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(6, 1, 1)  # TCP_NODELAY

    def do_POST(self) -> None:
        hub, address = self.fake, urlsplit(self.path)
        path = address.path.removeprefix("/api/v1")
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        body = self._body()
        if body is None:
            return
        with hub.lock:
            hub.requests.append((self.command, path, query))
            hub.lock.notify_all()
        try:
            what = hub.fault(self.command, path)
            if what == "reset":
                self.connection.close()
                self.close_connection = True
                return
            status, content = self._answer(path, query, body)
        except ConnectionAbortedError:
            self.close_connection = True
            return
        except Refusal as refusal:
            status, content, what = refusal.problem.status, refusal.problem.model_dump_json().encode(), None
        if what == "drop":
            self.close_connection = True
            return
        if what == "page":
            content = b"<html>Sign in to the hotel's network</html>"
        self._reply(status, content)

    do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815 - names of the standard library

    def _answer(self, path: str, query: Query, body: bytes) -> tuple[int, bytes]:
        hub, key = self.fake, self.headers.get("Idempotency-Key")
        if self.headers.get("Authorization") == f"Bearer {BAD_KEY}":
            raise Refusal(401, "unauthenticated", "This key is not valid.")
        with hub.lock:
            if self.command == "POST":
                assert key, "every POST carries an idempotency key"
                if key in hub.replies:
                    return hub.replies[key]
            status, model = hub.route(self.command, path, query, body)
            content = model if isinstance(model, bytes) else model.model_dump_json().encode()
            if key:
                hub.replies[key] = (status, content)
            return status, content

    def _body(self) -> bytes | None:
        """The whole body; or None, if the transfer breaks: then its beginning is kept."""
        length = int(self.headers.get("Content-Length", 0))
        limit = self.fake.break_after
        if self.command != "PUT" or limit is None or length <= limit:
            return self.rfile.read(length)
        digest = self.path.partition("/artifacts/")[2].partition("?")[0]
        self.fake.partial[digest] += self.rfile.read(limit)
        self.close_connection = True
        return None

    def _reply(self, status: int, content: bytes) -> None:
        start, wanted = 0, self.headers.get("Range")
        if wanted and status == 200:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        sent = content[start:]
        limit = self.fake.break_after
        if limit is not None and re.search(r"/artifacts/[0-9a-f]+$", self.path) and len(sent) > limit:
            sent, self.close_connection = sent[:limit], True
        self.wfile.write(sent)
