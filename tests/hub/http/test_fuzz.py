"""Valid and invalid requests generated from the API's document: the hub never fails, and answers as documented.

It is a real server on a loopback port, so that HTTP parsing is tested as well. The streams are left out: they do not end.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import httpx2
import pytest
import requests  # noqa: TID251 - what schemathesis speaks through
import schemathesis
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, settings
from pydantic import ValidationError
from schemathesis.specs.openapi import checks

from computepool.hub.app import create_api, create_app
from computepool.hub.db.schema import migrate
from computepool.hub.main import bootstrap, check
from computepool.hub.settings import Settings
from computepool.protocol.nodes.nodes import CompleteRequest
from computepool.protocol.tokens import b64, public_text, sign_node_token
from computepool.testing.node import PROFILE

pytestmark = pytest.mark.soak

#: Besides the boundary values of every field, which are always tried. For a longer run: FUZZ_EXAMPLES=200
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "2"))
#: PostgreSQL is stricter; test_bad_input.py tries on both what only SQLite refuses (numbers).
DATABASES = ["postgresql"] if EXAMPLES < 50 else ["postgresql", "sqlite"]
#: Rules between fields (a command needs argv) are not in the schema, so valid data may be refused; a "1" instead of a
#: number is accepted; and /jobs/preview also matches the path of a job, which has other methods.
#: Routes that revoke the caller's own key.
ENDS = {("POST", "/signout"), ("DELETE", "/keys")}
#: Requests of each route that are repeated by callers without permission.
BY_OTHERS = 1
#: Successful requests of each route that are repeated without a key.
WITHOUT_KEY = 5 if EXAMPLES < 50 else 10**6
NOT_MEANT = [checks.positive_data_acceptance, checks.allow_header_conformance]
#: The streams do not end. A heartbeat is handled like a poll, so it is left to long runs.
LEFT_OUT = ["/events/stream", "/events/news"] + ([] if EXAMPLES >= 50 else ["/heartbeat"])
schema = schemathesis.openapi.from_dict(create_api().openapi()).exclude(path=LEFT_OUT)


class Target:
    """A hub that never waits, with an admin and a node."""

    def __init__(self, server: uvicorn.Server, port: int, admin_key: str) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{port}/api/v1"
        self.admin = {"Authorization": f"Bearer {admin_key}"}
        self.node_key = Ed25519PrivateKey.generate()
        self._numbers = itertools.count()
        self.measurement: Counter[str] = Counter()
        self.granted: Counter[str] = Counter()
        self.session = _session()
        self.provider, self.lost = self.throwaway("provider"), self.throwaway()
        self.node_id = self._enrol()

    def _enrol(self) -> str:
        code = httpx2.post(f"{self.url}/nodes/codes", headers=self.admin).json()["code"]
        proof = b64(self.node_key.sign(code.encode()))
        sent = {"code": code, "public_key": public_text(self.node_key), "proof": proof, "protocol": 1}
        answer = httpx2.post(f"{self.url}/nodes/register", json=sent | {"profile": PROFILE})
        return str(answer.json()["node_id"])

    def headers(self, operation: Any) -> dict[str, str]:
        """The headers of a caller with permission."""
        schemes = [name for wanted in operation.definition.raw["security"] for name in wanted]
        if "key" not in schemes:
            return self.node()
        if (operation.method.upper(), operation.path) not in ENDS:
            return self.admin
        if httpx2.get(f"{self.url}/me", headers=self.lost).status_code == 401:
            self.lost = self.throwaway()
        return self.lost

    def others(self, operation: Any) -> list[dict[str, str]]:
        """The headers of callers without permission, and of unknown ones."""
        ends = (operation.method.upper(), operation.path) in ENDS
        provider = self.throwaway("provider") if ends else self.provider
        return [{}, self.node(), provider, {"Authorization": "Bearer cp_1_2_3"}]

    def node(self) -> dict[str, str]:
        now_s = time.time_ns() // 10**9  # noqa: TID251
        token = sign_node_token(self.node_id, key=self.node_key, hub="computepool", now_s=now_s)
        return {"Authorization": f"Bearer {token}"}

    def throwaway(self, role: str = "admin") -> dict[str, str]:
        """A key that may be revoked."""
        name = f"a{next(self._numbers)}"
        made = httpx2.post(f"{self.url}/accounts", json={"name": name, "roles": [role]}, headers=self.admin).json()
        sent = {"name": "k", "account_id": made["id"]}
        key = httpx2.post(f"{self.url}/keys", json=sent, headers=self.admin).json()["key"]
        return {"Authorization": f"Bearer {key}"}

    def signed(self, body: Any) -> Any:
        """A report with a signature, without which nothing else of it would be tested. The body itself may be an example of
        the API's document."""
        try:
            text = CompleteRequest.model_validate(body).signed_text()
        except (ValidationError, UnicodeError):
            return body
        return {**body, "signature": b64(self.node_key.sign(text))}


def _session() -> requests.Session:
    """Persistent connections that carry no cookie, proxy or key from one request to the next."""
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


@pytest.fixture(scope="module", params=DATABASES)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    url = request.getfixturevalue("postgres").fresh_database(migrate) if request.param == "postgresql" else ""
    configured = Settings(
        data_dir=tmp_path_factory.mktemp("hub"),
        DATABASE_URL=url,
        interval_min_s=0.02,
        interval_max_s=0.02,
        wait_max_s=0.02,
        failed_signins_burst=10**6,
    )
    started = bootstrap(configured)
    server = uvicorn.Server(
        uvicorn.Config(create_app(configured), port=0, log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Target(server, _port(server), started.admin_key)
        assert check(configured) == []
    finally:
        server.should_exit = True
        thread.join(60)


def _port(server: uvicorn.Server) -> int:
    deadline = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < deadline, "the hub does not start"
        time.sleep(0.01)
    return int(server.servers[0].sockets[0].getsockname()[1])


@schema.parametrize()
@settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
def test_the_hub_answers_any_request_as_documented(case: Any, target: Target, caplog: pytest.LogCaptureFixture) -> None:
    if case.operation.path == "/complete" and isinstance(case.body, dict):
        case.body = target.signed(case.body)
    label, options = case.operation.label, {"base_url": target.url, "session": target.session}
    excluded = [*NOT_MEANT, checks.negative_data_rejection] if case.operation.body else NOT_MEANT
    if target.granted[label] >= WITHOUT_KEY:
        excluded = [*excluded, checks.ignored_auth]
    with caplog.at_level(logging.ERROR):
        answer = case.call_and_validate(headers=target.headers(case.operation), excluded_checks=excluded, **options)
        target.granted[label] += 200 <= answer.status_code < 300
        if target.measurement[label] < BY_OTHERS:
            target.measurement[label] += 1
            for headers in target.others(case.operation):
                case.call_and_validate(headers=headers, excluded_checks=[*excluded, checks.ignored_auth], **options)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
