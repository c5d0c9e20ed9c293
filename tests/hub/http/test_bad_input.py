"""Bad requests: each gets a precise problem and changes nothing, on both databases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.hub.db.schema import migrate
from computepool.hub.http.errors import STATUS
from computepool.hub.main import check
from computepool.testing.hub import running_hub
from tests.hub.cast import DATA, DIGEST, Cast, assemble
from tests.hub.poison import POISON
from tests.hub.submitting import COMMAND, body, job, submit
from tests.hub.untouched import untouched

JSON = {"Content-Type": "application/json"}
EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Bad:
    """A request, the status of its answer, and a word that the error must contain."""

    status: int
    word: str
    method: str
    path: str
    by: str = "submitter"
    field: str | None = None
    sent: Any = None  #: JSON, unless `content` is given
    content: bytes | None = None
    params: dict[str, Any] | None = None
    headers: dict[str, str] | None = None


def submission(**spec: Any) -> dict[str, Any]:
    return {"spec": COMMAND | spec}


def spec(word: str, field: str, **fields: Any) -> Bad:
    return Bad(422, word, "POST", "/jobs", field=f"spec.{field}", sent=submission(**fields))


def needs(word: str, name: str, value: Any) -> Bad:
    return Bad(422, word, "POST", "/jobs", field=f"spec.needs.{name}", sent=submission(needs={name: value}))


def raw(word: str, content: bytes, headers: dict[str, str] | None = None) -> Bad:
    return Bad(422, word, "POST", "/jobs", content=content, headers=headers or JSON)


SUBMISSIONS = [
    Bad(422, "Extra", "POST", "/jobs", field="colour", sent=body(colour="red")),
    needs("Extra", "colour", "red"),
    needs("unknown isolation level", "isolation", "castle"),
    needs("greater", "cores", -1),
    needs("greater", "cores", 0),
    needs("less", "cores", 1e300),
    needs("greater", "ram_mb", -1),
    needs("less", "ram_mb", 2**70),
    needs("valid integer", "ram_mb", 1.5),
    needs("less", "gpus", 65),
    needs("not a version of Python", "python", "2.7"),
    needs("pattern", "host", "a\x00b"),
    spec("Extra", "colour", colour="red"),
    spec("pattern", "name", name="tr\x00ue"),
    spec("unicode", "name", name="half \ud800 a pair"),
    spec("at most", "name", name="x" * 201),
    spec("Input should be", "kind", kind="dance"),
    spec("greater", "timeout_s", timeout_s=0),
    spec("less", "timeout_s", timeout_s=1e12),
    *(Bad(422, word, "POST", "/jobs", field="spec", sent=submission(**fields)) for word, fields in POISON),
    Bad(422, "pattern", "POST", "/jobs", field="items.0.key", sent=body() | {"items": [{"key": "a\u202eb"}]}),
    Bad(422, "needs argv", "POST", "/jobs", field="spec", sent=submission(argv=[])),
    Bad(422, "needs its source", "POST", "/jobs", field="spec", sent=submission(kind="script")),
    Bad(422, "needs function", "POST", "/jobs", field="spec", sent=submission(kind="function")),
    Bad(422, "less", "POST", "/jobs", field="priority", sent=body(priority=101)),
    Bad(422, "less", "POST", "/jobs", field="priority", sent=body(priority=10**30)),
    Bad(422, "greater", "POST", "/jobs", field="retries", sent=body(retries=-1)),
    Bad(422, "greater", "POST", "/jobs", field="ttl_s", sent=body(ttl_s=0)),
    Bad(422, "at least 1", "POST", "/jobs", field="items", sent=body(items=0)),
    Bad(422, "at most", "POST", "/jobs", field="items", sent=body(items=1001)),
    Bad(422, "same key", "POST", "/jobs", field="items", sent=body() | {"items": [{"key": "a"}, {"key": "a"}]}),
    Bad(422, "pattern", "POST", "/jobs", field="after.0", sent=body(after=["\x00"])),
    Bad(422, "no job job_none", "POST", "/jobs", field="after", sent=body(after=["job_none"])),
    Bad(404, "group", "POST", "/jobs", sent=body(group_id="grp_none")),
    Bad(422, "upload it first", "POST", "/jobs", field="inputs",
        sent=submission(inputs=[{"name": "in", "digest": EMPTY, "size": 0}])),
    Bad(422, "upload it first", "POST", "/jobs", field="inputs", by="other_submitter",
        sent=submission(inputs=[{"name": "in", "digest": DIGEST, "size": 1}])),
    Bad(422, "upload it first", "POST", "/jobs", field="inputs",
        sent=submission(kind="function", function_artifact=EMPTY)),
    Bad(422, "pattern", "POST", "/jobs", field="spec.inputs.0.digest",
        sent=submission(inputs=[{"name": "in", "digest": "abc", "size": 0}])),
    Bad(422, "at most 200", "POST", "/jobs", field="idempotency-key", sent=body(),
        headers={"Idempotency-Key": "x" * 201}),
    Bad(422, "pattern", "POST", "/jobs", field="idempotency-key", sent=body(), headers={"Idempotency-Key": "\xe9"}),
    raw("not valid JSON", b"{"),
    raw("not valid JSON", b"\x00"),
    raw("not valid JSON", b'{"spec": {"kind": "comm'),
    raw("valid dictionary", b"[]"),
    raw("valid dictionary", b"17"),
    raw("Field required", b""),
    raw("valid dictionary", b"null"),
    raw("not valid JSON", b"\xff\xfe\xfd"),
    raw("error parsing the body", b"[" * 200_000),
    raw("error parsing the body", b'{"priority": ' + b"9" * 5_000 + b"}"),
    raw("valid dictionary", json.dumps(body()).encode(), {"Content-Type": "text/plain"}),
    raw("valid dictionary", json.dumps(body()).encode(), {"Content-Type": "application/octet-stream"}),
    Bad(422, "unicode", "POST", "/jobs", content=json.dumps({"spec": COMMAND, "\ud800": 1}).encode(), headers=JSON),
    Bad(422, "…", "POST", "/jobs", content=json.dumps({"spec": COMMAND, "x" * 9_000: 1}).encode(), headers=JSON),
    *(Bad(422, "greater|less", "POST", "/jobs", field="spec.needs.cores", headers=JSON,
          content=json.dumps(submission(needs={"cores": value})).encode()) for value in (float("nan"), -float("inf"))),
    Bad(422, "less", "POST", "/jobs", field="spec.needs.cores", headers=JSON,
        content=json.dumps(submission(needs={"cores": float("inf")})).encode()),
]  # fmt: skip

QUESTIONS = [
    *(Bad(422, "cursor", "GET", path, field="after", params={"after": after})
      for path in ("/jobs", "/groups", "/nodes", "/artifacts", "/keys")
      for after in ("not a cursor!", "a\x00", "é", "x" * 2_001)),
    *(Bad(422, "cursor", "GET", "/artifacts", field="after", params={"after": after})
      for after in ("abc", "MTIz", "-1", "====", "MTAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMCB4")),
    *(Bad(422, "cursor", "GET", path, field="after", params={"after": after})
      for path in ("/events", "/groups/{group_id}/results", "/jobs/{job_id}/logs")
      for after in (-1, 2**70, "x", "1.5", "\N{SUPERSCRIPT TWO}")),
    *(Bad(422, "", "GET", path, field="limit", params={"limit": limit})
      for path in ("/jobs", "/groups", "/nodes", "/artifacts", "/keys", "/events", "/groups/{group_id}/results")
      for limit in (0, 501, -1, "x", 2**70)),
    *(Bad(422, "", "GET", path, field="wait_ms", params={"wait_ms": wait})
      for path in ("/events", "/jobs/{job_id}", "/jobs/{job_id}/result", "/groups/{group_id}/results")
      for wait in (-1, 60_001, 2**70, "x")),
    Bad(422, "Input should be", "GET", "/jobs", field="state.0", params={"state": "dancing"}),
    Bad(422, "Input should be", "GET", "/jobs/{job_id}", field="seen", params={"seen": "dancing"}),
    Bad(422, "pattern", "GET", "/jobs", field="group_id", params={"group_id": "a\x00b"}),
    Bad(422, "pattern", "GET", "/events", field="node_id", params={"node_id": "a b"}),
    Bad(422, "pattern", "GET", "/jobs/a%00b", field="job_id"),
    Bad(422, "pattern", "GET", "/jobs/%ff%fe", field="job_id"),
    Bad(422, "at most", "GET", f"/jobs/{'x' * 65}", field="job_id"),
    Bad(404, "no such job", "GET", "/jobs/job_none"),
    Bad(404, "no such job", "POST", "/jobs/job_none/cancel"),
    Bad(404, "no such group", "GET", "/groups/grp_none"),
    Bad(404, "no such node", "GET", "/nodes/node_none"),
    Bad(409, "not finished", "GET", "/jobs/{open_job}/result"),
    Bad(404, "nothing at this path", "GET", "/nowhere"),
    Bad(405, "Not Allowed", "DELETE", "/jobs"),
    Bad(405, "Not Allowed", "GET", "/next"),
    Bad(422, "whole number|valid integer", "GET", "/events/stream", field="last-event-id", headers={"Last-Event-ID": "x"}),
    Bad(422, "less", "GET", "/events/stream", field="last-event-id", headers={"Last-Event-ID": str(2**70)}),
]  # fmt: skip

ACCOUNTS = [
    Bad(422, "pattern", "POST", "/accounts", "admin", field="name", sent={"name": "a b"}),
    Bad(422, "pattern", "POST", "/accounts", "admin", field="name", sent={"name": "a\x00"}),
    Bad(422, "at least 1", "POST", "/accounts", "admin", field="roles", sent={"name": "new", "roles": []}),
    Bad(422, "Input should be", "POST", "/accounts", "admin", field="roles.0", sent={"name": "new", "roles": ["king"]}),
    Bad(409, "named sam already", "POST", "/accounts", "admin", field="name", sent={"name": "sam"}),
    Bad(422, "pattern", "POST", "/keys", field="name", sent={"name": "a\x00"}),
    Bad(422, "greater", "POST", "/keys", field="expires_in_s", sent={"name": "k", "expires_in_s": 0}),
    Bad(422, "less", "POST", "/keys", field="expires_in_s", sent={"name": "k", "expires_in_s": 1e300}),
    Bad(404, "account", "POST", "/keys", sent={"name": "k", "account_id": "acc_none"}),
    Bad(404, "account", "POST", "/keys", "admin", field="account_id", sent={"name": "k", "account_id": "acc_none"}),
    Bad(404, "key", "DELETE", "/keys/none"),
    Bad(422, "wrong, used or expired", "POST", "/signin", field="code", sent={"code": "0" * 32}),
    Bad(422, "at least 8", "POST", "/signin", field="code", sent={"code": "short"}),
    Bad(422, "Input should be", "POST", "/signin", field="kind", sent={"code": "0" * 32, "kind": "crown"}),
    Bad(422, "pattern", "POST", "/nodes/{node_id}/state", "provider", field="state", sent={"state": "dancing"}),
    Bad(422, "pattern", "POST", "/groups", field="kind", sent={"name": "g", "kind": "choir"}),
    Bad(422, "less", "POST", "/jobs/preview", field="limit", sent={"needs": {}, "limit": 10**9}),
]  # fmt: skip

ARTIFACTS = [
    Bad(422, "pattern", "PUT", f"/artifacts/{DIGEST.upper()}", field="digest", params={"size": 1}, content=b"x"),
    Bad(422, "required", "PUT", f"/artifacts/{DIGEST}", field="size", content=b"x"),
    Bad(422, "greater", "PUT", f"/artifacts/{EMPTY}", field="size", params={"size": -1}, content=b"x"),
    Bad(422, "less", "PUT", f"/artifacts/{EMPTY}", field="size", params={"size": 2**70}, content=b"x"),
    Bad(413, "at most", "PUT", f"/artifacts/{EMPTY}", field="size", params={"size": 2**53}, content=b"x"),
    Bad(422, "offset", "PUT", f"/artifacts/{EMPTY}", field="offset", params={"size": 1, "offset": 2}, content=b"x"),
    Bad(409, "at byte 0, not 5", "PUT", f"/artifacts/{EMPTY}", field="offset", params={"size": 9, "offset": 5}, content=b"x"),
    Bad(409, "at byte 0, not 5", "PUT", f"/artifacts/{EMPTY}", field="offset", params={"size": 9, "offset": 5}),
    Bad(422, "More bytes", "PUT", f"/artifacts/{EMPTY}", field="size", params={"size": 1}, content=b"xx"),
    Bad(422, "control characters", "PUT", f"/artifacts/{EMPTY}", field="name", params={"size": 0, "name": "a\nb"}),
    Bad(422, "the upload was dropped", "PUT", f"/artifacts/{EMPTY}", field="digest", params={"size": 1}, content=b"x"),
    Bad(404, "artifact", "GET", f"/artifacts/{EMPTY}"),
    Bad(404, "artifact", "DELETE", f"/artifacts/{EMPTY}"),
    *(Bad(416, "17 bytes", "GET", f"/artifacts/{DIGEST}", headers={"Range": value})
      for value in ("bytes=17-", "bytes=99-100", "bytes=5-3", "bytes=-0", "bytes=x-y", "bytes=", "bytes=-", "bytes",
                    "lines=0-1", "bytes=0-1,40-50", f"bytes={'9' * 30}-")),
]  # fmt: skip

NODES = [
    Bad(422, "pattern", "POST", "/next", "node", field="boot_id", sent={"boot_id": "a\x00"}),
    Bad(422, "less", "POST", "/next", "node", field="wait_ms", sent={"boot_id": "b", "wait_ms": 2**70}),
    Bad(422, "Extra", "POST", "/next", "node", field="colour", sent={"boot_id": "b", "colour": 1}),
    Bad(422, "not valid JSON", "POST", "/next", "node", content=b"{"),
    Bad(422, "not valid JSON", "POST", "/next", "node", content=b"\xff\xfe"),
    Bad(422, "not valid JSON", "POST", "/next", "node", content=b"[" * 200_000),
    Bad(422, "not valid JSON", "POST", "/complete", "node", content=b""),
    Bad(422, "pattern", "POST", "/heartbeat", "node", field="boot_id", sent={"boot_id": "a\x00"}),
    Bad(422, "less", "POST", "/heartbeat", "node", field="running.0.progress",
        sent={"boot_id": "b", "running": [{"attempt_id": "x-1", "progress": 7}]}),
    Bad(422, "at least 1", "POST", "/complete", "node", field="reports", sent={"reports": [], "signature": "A" * 86}),
    Bad(422, "pattern", "POST", "/complete", "node", field="signature",
        sent={"reports": [{"attempt_id": "x-1", "outcome": "failed", "reason": "timeout"}], "signature": "A"}),
    Bad(403, "not signed", "POST", "/complete", "node",
        sent={"reports": [{"attempt_id": "x-1", "outcome": "failed", "reason": "timeout"}], "signature": "A" * 86}),
    Bad(422, "Input should be", "POST", "/complete", "node", field="reports.0.reason",
        sent={"reports": [{"attempt_id": "x-1", "outcome": "failed", "reason": "boredom"}], "signature": "A" * 86}),
    Bad(422, "less", "POST", "/complete", "node", field="reports.0.ran_ms",
        sent={"reports": [{"attempt_id": "x-1", "outcome": "failed", "reason": "timeout", "ran_ms": 2**70}],
              "signature": "A" * 86}),
    Bad(422, "pattern", "POST", "/logs", "node", field="chunks.0.stream",
        sent={"chunks": [{"attempt_id": "x-1", "stream": "stdin", "text": ""}]}),
    Bad(422, "at most", "POST", "/logs", "node", field="chunks.0.text",
        sent={"chunks": [{"attempt_id": "x-1", "stream": "stdout", "text": "x" * 70_000}]}),
]  # fmt: skip

#: A key, and a word of the error.
KEYS = {
    "": "Sign in first",
    "cp_": "not a valid key",
    "cp_a_b_c": "not a valid key",
    f"cp_{'0' * 16}_{'0' * 64}_00000000": "not a valid key",
    "cp_é_ü_00000000": "not a valid key",
    "x" * 10_000: "not a valid key",
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def cast(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cast]:
    url = ""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").fresh_database(migrate)
    async with running_hub(tmp_path_factory.mktemp("hub"), database_url=url, lease_min_s=3600) as hub:
        yield await assemble(hub)
        assert check(hub.hub.settings) == []


async def send(cast: Cast, bad: Bad, places: dict[str, str]) -> httpx2.Response:
    path = bad.path
    for name, value in places.items():
        path = path.replace(f"{{{name}}}", value)
    sent: dict[str, Any] = {"params": bad.params, "headers": bad.headers or {}}
    if bad.content is not None or bad.sent is None:
        sent["content"] = bad.content or b""
    else:
        # Encoded here, because the client's own encoder refuses what a hostile client would send.
        sent["content"] = json.dumps(bad.sent).encode()
        sent["headers"] = JSON | sent["headers"]
    sent["headers"] = {name: value.encode("latin-1") for name, value in sent["headers"].items()}
    return await cast.callers[bad.by].request(bad.method, path, **sent)


@pytest.mark.parametrize("kind", ["submissions", "questions", "accounts", "artifacts", "nodes"])
async def test_a_bad_request_is_refused_precisely_and_changes_nothing(cast: Cast, kind: str) -> None:
    corpus = {
        "submissions": SUBMISSIONS,
        "questions": QUESTIONS,
        "accounts": ACCOUNTS,
        "artifacts": ARTIFACTS,
        "nodes": NODES,
    }[kind]
    places = {
        "job_id": cast.done_job,
        "open_job": await cast.new_job(),
        "group_id": await cast.new_group(),
        "node_id": cast.pias_node,
    }
    wrong = []
    async with untouched(cast.hub):
        for bad in corpus:
            answer = await send(cast, bad, places)
            if complaint := _complaint(bad, answer):
                wrong.append(f"{complaint}: {bad!r:.300} -> {answer.status_code} {answer.text[:300]}")
    assert not wrong, "\n".join(wrong)


def _complaint(bad: Bad, answer: httpx2.Response) -> str | None:
    if answer.headers.get("content-type") != "application/problem+json":
        return "not a problem"
    problem = answer.json()
    if (answer.status_code, problem["status"]) != (bad.status, bad.status):
        return "another status"
    if bad.status not in (405, 416) and STATUS[problem["code"]] != bad.status:
        return "another code"
    if bad.field is not None and problem.get("field", "").lower() != bad.field:
        return "another field"
    words = bad.word.split("|")
    return None if any(word in problem["detail"] for word in words) else "another explanation"


@pytest.mark.parametrize("key", list(KEYS), ids=lambda key: str(key)[:20])
async def test_a_malformed_key_is_refused(cast: Cast, key: str) -> None:
    for headers in ({"Authorization": f"Bearer {key}"}, {"Cookie": f"computepool_session={key or '-'}"}):
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        answer = await cast.callers["anonymous"].get("/me", headers=encoded)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        if key:
            assert KEYS[key] in answer.json()["detail"]


async def test_mistyped_foreign_revoked_and_expired_keys_get_different_errors(cast: Cast) -> None:
    _, key = await cast.new_key()
    other_id, other = await cast.new_key()
    swapped = f"cp_{key.split('_')[1]}_{other.split('_')[2]}"
    from zlib import crc32

    said = {}
    for name, text in {
        "mistyped": key[:-1] + ("0" if key[-1] != "0" else "1"),
        "foreign secret": f"{swapped}_{crc32(swapped.encode()):08x}",
        "wrong scheme": "",
    }.items():
        headers = {"Authorization": f"Bearer {text}" if text else f"Basic {key}"}
        said[name] = (await cast.callers["anonymous"].get("/me", headers=headers)).json()["detail"]
    for name in ("revoked_key", "expired_key"):
        said[name] = (await cast.callers[name].get("/me")).json()["detail"]
    assert len(set(said.values())) == 5
    assert "revoked" in said["revoked_key"]
    assert "expired" in said["expired_key"]
    assert (await cast.callers["anonymous"].get("/me", headers={"Authorization": f"bearer {key}"})).status_code == 200
    assert other_id not in str(said)


async def test_a_repeated_key_in_a_group_is_a_conflict_and_submits_nothing(cast: Cast) -> None:
    group = await cast.new_group()
    await submit(cast.sam, group_id=group, needs={"cores": 1000})
    first = body(group_id=group, needs={"cores": 1000}) | {"items": [{"key": "a"}]}
    assert (await cast.sam.post("/jobs", json=first)).status_code == 201
    again = first | {"items": [{"key": "b"}, {"key": "a"}, {"key": "c"}]}
    async with untouched(cast.hub):
        answer = await cast.sam.post("/jobs", json=again)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert (await cast.sam.get(f"/groups/{group}")).json()["total"] == 2
    elsewhere = again | {"group_id": await cast.new_group()}
    assert (await cast.sam.post("/jobs", json=elsewhere)).status_code == 201


async def test_an_idempotency_key_of_another_request_changes_nothing(cast: Cast) -> None:
    headers = {"Idempotency-Key": "once"}
    assert (await cast.sam.post("/groups", json={"name": "one"}, headers=headers)).status_code == 201
    async with untouched(cast.hub):
        answer = await cast.sam.post("/groups", json={"name": "two"}, headers=headers)
        assert (answer.status_code, answer.json()["field"]) == (409, "Idempotency-Key")
        again = await cast.sam.post("/groups", json={"name": "one"}, headers=headers)
        assert again.status_code == 201
    other = await cast.callers["other_submitter"].post("/groups", json={"name": "two"}, headers=headers)
    assert other.status_code == 201


@pytest.mark.parametrize("path", ["/jobs", "/next", "/complete", "/heartbeat", "/accounts", "/signin"])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
async def test_an_oversized_body_is_refused_before_it_is_read_whole(cast: Cast, path: str, declared: bool) -> None:
    settings = cast.hub.hub.settings
    limit = settings.plain_body_max_bytes if path in ("/accounts", "/signin") else settings.body_max_bytes
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 4 * limit:
            sent += 65_536
            yield b" " * 65_536

    client = cast.callers["node" if path in ("/next", "/complete", "/heartbeat") else "admin"]
    headers = {"Content-Type": "application/json"} | ({"Content-Length": str(4 * limit)} if declared else {})
    async with untouched(cast.hub):
        answer = await client.post(path, content=endless(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert str(limit) in answer.json()["detail"]
    assert sent <= (limit + 2 * 65_536)


async def test_a_refused_registration_uses_no_code(cast: Cast) -> None:
    good = await cast.registration()
    other = await cast.registration()
    cases: list[tuple[dict[str, Any], int, str]] = [
        (good | {"proof": other["proof"]}, 403, "proof"),
        (good | {"public_key": other["public_key"]}, 403, "proof"),
        (good | {"code": other["code"]}, 403, "proof"),
        (good | {"protocol": 99}, 422, "the agent 99"),
        (good | {"protocol": 10**40}, 422, "protocol"),
        (good | {"profile": good["profile"] | {"cores": -1}}, 422, "cores"),  # type: ignore[operator]
    ]
    async with untouched(cast.hub):
        for sent, status, word in cases:
            answer = await cast.callers["anonymous"].post("/nodes/register", json=sent)
            assert (answer.status_code, word in answer.json()["detail"]) == (status, True), answer.text
    assert (await cast.callers["anonymous"].post("/nodes/register", json=good)).status_code == 201


async def test_an_enrolled_key_is_refused_and_uses_no_code(cast: Cast) -> None:
    from computepool.protocol.tokens import b64, public_text

    assert cast.node is not None
    fresh = await cast.registration()
    code = str(fresh["code"])
    again = fresh | {"public_key": public_text(cast.node.key), "proof": b64(cast.node.key.sign(code.encode()))}
    async with untouched(cast.hub):
        answer = await cast.callers["anonymous"].post("/nodes/register", json=again)
        assert (answer.status_code, answer.json()["field"]) == (409, "public_key")
    assert (await cast.callers["anonymous"].post("/nodes/register", json=fresh)).status_code == 201


async def test_an_enrolment_code_does_not_sign_anybody_in(cast: Cast) -> None:
    enrol = (await cast.pia.post("/nodes/codes")).json()["code"]
    async with untouched(cast.hub):
        answer = await cast.callers["anonymous"].post("/signin", json={"code": enrol})
        assert (answer.status_code, answer.json()["field"]) == (422, "code")


async def test_a_node_that_lies_about_leases_changes_nothing(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        holder, liar = await hub.node(name="holder"), await hub.node(name="liar", cores=0.001)
        [job_id] = await submit(hub.admin)
        [grant] = await holder.take()
        before = await job(hub.admin, job_id)
        said = {"attempt_id": grant.attempt_id, "progress": 0.9}
        async with untouched(hub):
            for path in ("/next", "/heartbeat"):
                reply = await liar.poll(path=path, wait_ms=0, holding=[grant.attempt_id], running=[said])
                assert reply.grants == []
                assert reply.cancel == [grant.attempt_id], "it is told to stop what is not its own"
            chunk = {"attempt_id": grant.attempt_id, "stream": "stdout", "text": "lies"}
            assert (await liar.client.post("/logs", json={"chunks": [chunk]})).status_code == 204
        assert await liar.report(grant.attempt_id, result="lies") == "foreign"
        assert await job(hub.admin, job_id) == before
        assert (await hub.admin.get(f"/jobs/{job_id}/logs")).json()["chunks"] == []
        [noted] = [e for e in (await hub.admin.get("/events")).json()["events"] if e["action"] == "report.foreign"]
        assert (noted["node_id"], noted["attempt_id"]) == (liar.node_id, grant.attempt_id)
        assert await holder.report(grant.attempt_id, result="truth") == "accepted"


async def test_odd_characters_in_jobs_are_stored_and_nul_is_replaced(cast: Cast) -> None:
    """Output, arguments and errors are stored, with NUL replaced by a character that PostgreSQL can store."""
    odd = "a\u0000b \u2028 \U0001f600 é \x1b[31m"
    given = odd.replace("\x00", "")  # no process can receive NUL
    [job_id] = await submit(cast.sam, spec={"name": "odd 😀 é", "argv": ["echo", given], "env": {"ODD": given}})
    assert cast.node is not None
    [grant] = await cast.node.take()
    log = {"attempt_id": grant.attempt_id, "stream": "stderr", "text": odd}
    report = cast.node.make_report(grant.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1, error=odd)
    assert await cast.node.report_all([report], logs=[log]) == ["accepted"]
    ended = await job(cast.sam, job_id)
    assert ended["spec"]["argv"] == ["echo", given]
    assert ended["error"] == odd.replace("\x00", "\ufffd")
    [chunk] = (await cast.sam.get(f"/jobs/{job_id}/logs")).json()["chunks"]
    assert chunk["text"] == odd.replace("\x00", "\ufffd")


async def test_the_cast_has_its_artifact(cast: Cast) -> None:
    """Or the refusals about it would prove nothing."""
    assert (await cast.sam.get(f"/artifacts/{DIGEST}")).content == DATA
