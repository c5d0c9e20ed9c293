"""Every route of the real application against every kind of caller. A route that is not in the table fails."""

from __future__ import annotations

import hmac
import itertools
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from computepool.hub.app import create_api, create_app
from computepool.hub.http.errors import STATUS
from computepool.hub.http.policy import policies
from computepool.hub.identity.access import Action
from computepool.hub.main import check
from computepool.hub.observability import events
from computepool.hub.settings import Settings
from computepool.testing.hub import running_hub
from tests.hub.cast import DATA, DIGEST, VERSION, Cast, assemble
from tests.hub.money.payouts.earning import LEAST
from tests.hub.streaming import opened
from tests.hub.submitting import body

#: Routes that are called with separate credentials, because these do not work afterwards.
ENDS_SESSIONS = {"/signout", "/api/v1/signout", "/api/v1/keys"}
WEBHOOK_SECRET = "what the bank and the hub share"
_numbers = itertools.count(1000)

#: Requests for an object of another account get a 404, as if it did not exist. The job, the group, the key and
#: the artifact are the submitter's; the node is the provider's. Revoked and expired credentials count as none.
CALLERS = (
    "anonymous", "submitter", "other_submitter", "provider", "other_provider", "admin",
    "node", "other_node", "revoked_key", "expired_key", "revoked_node",
)  # fmt: skip
TABLE = """
                                          anon sub  osub prov opro adm  node onod rkey xkey rnod
GET    /                                  200  200  200  200  200  200  200  200  200  200  200
GET    /signin                            200  200  200  200  200  200  200  200  200  200  200
POST   /signout                           303  303  303  303  303  303  303  303  303  303  303
POST   /signin                            303  303  303  303  303  303  303  303  303  303  303
GET    /healthz                           200  200  200  200  200  200  200  200  200  200  200
GET    /metrics                           200  200  200  200  200  200  200  200  200  200  200
GET    /api/v1/openapi.json               200  200  200  200  200  200  200  200  200  200  200
GET    /api/v1/hub                        200  200  200  200  200  200  200  200  200  200  200
GET    /api/v1/hub/keys                   200  200  200  200  200  200  200  200  200  200  200
GET    /api/v1/hub/health                 401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/hub/check                  401  403  403  403  403  202  401  401  401  401  401
GET    /api/v1/hub/check                  401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/hub/keys/rotate            401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/nodes/rekey                401  401  401  401  401  401  200  200  401  401  401
GET    /api/v1/nodes/self                 401  401  401  401  401  401  200  200  401  401  401
POST   /api/v1/nodes/leave                401  401  401  401  401  401  200  200  401  401  401
POST   /api/v1/signin                     200  200  200  200  200  200  200  200  200  200  200
POST   /api/v1/nodes/register             201  201  201  201  201  201  201  201  201  201  201
GET    /api/v1/me                         401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/accounts                   401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/accounts                   401  403  403  403  403  201  401  401  401  401  401
POST   /api/v1/accounts/{account_id}/link 401  403  403  403  403  201  401  401  401  401  401
PUT    /api/v1/accounts/{account_id}/roles 401 403  403  403  403  200  401  401  401  401  401
GET    /api/v1/approvals                  401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/approvals/{approval_id}/approve 401 403 403 403 403  200  401  401  401  401  401
POST   /api/v1/approvals/{approval_id}/reject 401 403 403 403 403  200  401  401  401  401  401
PUT    /api/v1/accounts/{account_id}/quotas 401 403  403  403  403  200  401  401  401  401  401
GET    /api/v1/keys                       401  200  200  200  200  200  401  401  401  401  401
POST   /api/v1/keys                       401  201  201  201  201  201  401  401  401  401  401
DELETE /api/v1/keys/{key_id}              401  204  404  404  404  204  401  401  401  401  401
POST   /api/v1/keys/{key_id}/rotate       401  201  404  404  404  201  401  401  401  401  401
DELETE /api/v1/keys                       401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/webhooks                   401  200  200  200  200  200  401  401  401  401  401
POST   /api/v1/webhooks                   401  201  201  201  201  201  401  401  401  401  401
DELETE /api/v1/webhooks/{webhook_id}      401  204  404  404  404  404  401  401  401  401  401
POST   /api/v1/webhooks/{webhook_id}/enable 401 200 404  404  404  404  401  401  401  401  401
POST   /api/v1/webhooks/{webhook_id}/test 401  202  404  404  404  404  401  401  401  401  401
GET    /api/v1/secrets                    401  200  200  403  403  200  401  401  401  401  401
PUT    /api/v1/secrets/{name}             401  200  200  403  403  200  401  401  401  401  401
DELETE /api/v1/secrets/{name}             401  204  404  403  403  404  401  401  401  401  401
GET    /api/v1/schedules                  401  200  200  200  200  200  401  401  401  401  401
POST   /api/v1/schedules                  401  201  201  403  403  201  401  401  401  401  401
GET    /api/v1/schedules/{schedule_id}    401  200  404  404  404  200  401  401  401  401  401
DELETE /api/v1/schedules/{schedule_id}    401  204  404  403  403  204  401  401  401  401  401
GET    /api/v1/schedules/{schedule_id}/runs 401 200 404  404  404  200  401  401  401  401  401
POST   /api/v1/schedules/{schedule_id}/pause 401 200 404 403  403  200  401  401  401  401  401
POST   /api/v1/schedules/{schedule_id}/resume 401 200 404 403 403  200  401  401  401  401  401
POST   /api/v1/schedules/{schedule_id}/run 401 200  404  403  403  200  401  401  401  401  401
GET    /api/v1/webhooks/{webhook_id}/deliveries 401 200 404 404 404 404 401  401  401  401  401
GET    /api/v1/volumes                    401  200  200  200  200  200  401  401  401  401  401
POST   /api/v1/volumes                    401  201  201  403  403  201  401  401  401  401  401
GET    /api/v1/volumes/{volume_name}      401  200  404  404  404  404  401  401  401  401  401
DELETE /api/v1/volumes/{volume_name}      401  204  404  404  404  404  401  401  401  401  401
GET    /api/v1/volumes/{volume_name}/versions 401 200 404 404 404  404  401  401  401  401  401
GET    /api/v1/volumes/{volume_name}/versions/{number} 401 200 404 404 404 404 401 401 401 401 401
POST   /api/v1/volumes/{volume_name}/versions 401 201 404 404 404  404  401  401  401  401  401
POST   /api/v1/volumes/{volume_name}/head 401  200  404  404  404  404  401  401  401  401  401
POST   /api/v1/signout                    401  204  204  204  204  204  401  401  401  401  401
POST   /api/v1/jobs                       401  201  201  403  403  201  401  401  401  401  401
GET    /api/v1/jobs                       401  200  200  200  200  200  401  401  401  401  401
POST   /api/v1/jobs/preview               401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/jobs/{job_id}              401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/jobs/{job_id}/result       401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/jobs/{job_id}/logs         401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/jobs/{job_id}/checkpoint   401  404  404  404  404  404  401  401  401  401  401
GET    /api/v1/jobs/{job_id}/graph        401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/jobs/{job_id}/why          401  200  404  404  404  200  401  401  401  401  401
POST   /api/v1/jobs/{job_id}/cancel       401  200  404  404  404  200  401  401  401  401  401
POST   /api/v1/jobs/{job_id}/resubmit        401  201  404  403  403  409  401  401  401  401  401
GET    /api/v1/queue                      401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/jobs/{job_id}/usage        401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/find                       401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/mesh                       401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/mesh/nodes                 401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/mesh/activity              401  200  200  200  200  200  401  401  401  401  401
POST   /api/v1/groups                     401  201  201  403  403  201  401  401  401  401  401
GET    /api/v1/groups                     401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/groups/{group_id}          401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/groups/{group_id}/graph    401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/groups/{group_id}/results  401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/groups/{group_id}/messages 401  200  404  404  404  200  401  401  401  401  401
POST   /api/v1/groups/{group_id}/cancel   401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/groups/{group_id}/summary  401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/groups/{group_id}/items    401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/groups/{group_id}/states   401  200  404  404  404  200  401  401  401  401  401
GET    /api/v1/groups/{group_id}/drain    401  200  404  404  404  200  401  401  401  401  401
POST   /api/v1/groups/{group_id}/keys     401  200  404  404  404  200  401  401  401  401  401
POST   /api/v1/groups/{group_id}/reports  401  200  404  404  404  200  401  401  401  401  401
POST   /api/v1/groups/{group_id}/return-home 401 200 404 404  404  200  401  401  401  401  401
GET    /api/v1/result-deliveries/{group_id}     401  401  401  401  401  401  404  404  401  401  401
GET    /api/v1/result-deliveries/{group_id}/items 401 401 401  401  401  401  404  404  401  401  401
POST   /api/v1/result-deliveries/{group_id}/problem 401 401 401 401 401  401  404  404  401  401  401
POST   /api/v1/result-deliveries/{group_id}/arrival 401 401 401 401 401  401  404  404  401  401  401
GET    /api/v1/nodes                      401  200  200  200  200  200  401  401  401  401  401
POST   /api/v1/nodes/codes                401  403  403  201  201  201  401  401  401  401  401
GET    /api/v1/nodes/codes                401  403  403  200  200  200  401  401  401  401  401
GET    /api/v1/nodes/codes/{code_id}      401  403  403  200  404  200  401  401  401  401  401
DELETE /api/v1/nodes/codes/{code_id}      401  403  403  204  404  204  401  401  401  401  401
GET    /api/v1/nodes/{node_id}            401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/nodes/{node_id}/why        401  404  404  200  404  200  401  401  401  401  401
GET    /api/v1/nodes/{node_id}/evidence   401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/nodes/{node_id}/work       401  404  404  200  404  200  401  401  401  401  401
POST   /api/v1/nodes/{node_id}/state      401  404  404  200  404  200  401  401  401  401  401
POST   /api/v1/nodes/{node_id}/pardon     401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/nodes/{node_id}/review     401  404  404  409  404  409  401  401  401  401  401
POST   /api/v1/nodes/{node_id}/revoke     401  404  404  200  404  200  401  401  401  401  401
GET    /api/v1/nodes/{node_id}/rules      401  404  404  200  404  200  401  401  401  401  401
PUT    /api/v1/nodes/{node_id}/rules      401  404  404  200  404  200  401  401  401  401  401
GET    /api/v1/credits                    401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/credits/statement          401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/credits/statement.csv      401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/credits/leaderboard        401  200  200  200  200  200  401  401  401  401  401
POST   /api/v1/credits/top-ups            401  403  403  403  403  201  401  401  401  401  401
POST   /api/v1/quotes                     401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/jobs/{job_id}/cost         401  200  404  200  404  200  401  401  401  401  401
GET    /api/v1/jobs/{job_id}/receipt      401  200  404  200  404  200  401  401  401  401  401
GET    /api/v1/prices                     401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/prices/versions            401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/prices/{version}           401  200  200  200  200  200  401  401  401  401  401
PUT    /api/v1/prices                     401  403  403  403  403  200  401  401  401  401  401
GET    /api/v1/market                     401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/market/history             401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/market/chart               401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/market/floor               401  403  403  200  200  200  401  401  401  401  401
PUT    /api/v1/market/floor               401  403  403  200  200  200  401  401  401  401  401
PUT    /api/v1/nodes/{node_id}/floor      401  404  404  200  404  200  401  401  401  401  401
GET    /api/v1/nodes/{node_id}/earnings   401  404  404  200  404  200  401  401  401  401  401
POST   /api/v1/payouts                    401  201  201  201  201  201  401  401  401  401  401
GET    /api/v1/payouts                    401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/payouts/export.csv         401  403  403  403  403  200  401  401  401  401  401
GET    /api/v1/payouts/{payout_id}        401  404  404  200  404  200  401  401  401  401  401
POST   /api/v1/payouts/{payout_id}/cancel 401  404  404  200  404  200  401  401  401  401  401
POST   /api/v1/payouts/{payout_id}/approve 401 403  403  403  403  200  401  401  401  401  401
POST   /api/v1/payouts/{payout_id}/reject 401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/payouts/{payout_id}/paid   401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/payouts/{payout_id}/failed 401  403  403  403  403  200  401  401  401  401  401
POST   /api/v1/payouts/webhook/{provider} 204  204  204  204  204  204  204  204  204  204  204
GET    /api/v1/events                     401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/events/news                401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/events/stream              401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/artifacts                  401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/artifacts/{digest}         401  200  404  404  404  200  200  404  401  401  401
HEAD   /api/v1/artifacts/{digest}         401  200  404  404  404  200  200  404  401  401  401
GET    /api/v1/storage                    401  200  200  200  200  200  401  401  401  401  401
GET    /api/v1/artifacts/{digest}/info    401  200  404  404  404  200  401  401  401  401  401
PUT    /api/v1/artifacts/{digest}/keep    401  200  404  404  404  404  401  401  401  401  401
DELETE /api/v1/artifacts/{digest}/keep    401  404  404  404  404  404  401  401  401  401  401
GET    /api/v1/artifacts/{digest}/upload  401  200  200  200  200  200  200  200  401  401  401
PUT    /api/v1/artifacts/{digest}         401  200  200  200  200  200  200  403  401  401  401
DELETE /api/v1/artifacts/{digest}         401  204  404  404  404  404  401  401  401  401  401
POST   /api/v1/next                       401  401  401  401  401  401  200  200  401  401  401
POST   /api/v1/heartbeat                  401  401  401  401  401  401  200  200  401  401  401
POST   /api/v1/complete                   401  401  401  401  401  401  200  200  401  401  401
POST   /api/v1/logs                       401  401  401  401  401  401  204  204  401  401  401
POST   /api/v1/checkpoint                 401  401  401  401  401  401  403  403  401  401  401
POST   /api/v1/nodes/self/speed           401  401  401  401  401  401  200  200  401  401  401
POST   /api/v1/attempts/{attempt_id}/volumes 401 401 401 401  401  401  404  404  401  401  401
POST   /api/v1/attempts/{attempt_id}/jobs 401  401  401  401  401  401  404  404  401  401  401
POST   /api/v1/attempts/{attempt_id}/groups 401  401  401  401  401  401  404  404  401  401  401
POST   /api/v1/attempts/{attempt_id}/gang 401  401  401  401  401  401  404  404  401  401  401
POST   /api/v1/attempts/{attempt_id}/gang/packets 401  401  401  401  401  401  404  404  401  401  401
POST   /api/v1/attempts/{attempt_id}/secrets 401  401  401  401  401  401  403  403  401  401  401
GET    /api/v1/attempts/{attempt_id}/arguments 401  401  401  401  401  401  404  404  401  401  401
POST   /api/v1/attempts/{attempt_id}/messages 401  401  401  401  401  401  404  404  401  401  401
GET    /api/v1/attempts/{attempt_id}/jobs/{job_id}/result 401  401  401  401  401  401  404  404  401  401  401
POST   /api/v1/attempts/{attempt_id}/jobs/{job_id}/cancel 401  401  401  401  401  401  404  404  401  401  401
GET    /api/v1/attempts/{attempt_id}/groups/{group_id}/results 401  401  401  401  401  401  404  404  401  401  401
POST   /api/v1/hardware                   401  401  401  401  401  401  403  403  401  401  401
"""


def rows() -> dict[tuple[str, str], dict[str, int]]:
    lines = [line.split() for line in TABLE.strip().splitlines()[1:]]
    return {(line[0], line[1]): dict(zip(CALLERS, map(int, line[2:]), strict=True)) for line in lines}


@pytest.fixture(scope="module")
async def cast(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cast]:
    # Every payout waits for an administrator, and none is sent to the bank automatically.
    payouts = {"payouts_open_max": 10_000, "payout_approve_above": 0, "payout_round_s": 3600}
    # No lease expires while the table is checked.
    rest = {"razorpayx_webhook_secret": WEBHOOK_SECRET, "lease_min_s": 3600, "schedules_max": 10_000}
    async with running_hub(tmp_path_factory.mktemp("hub"), **payouts, **rest) as hub:
        yield await assemble(hub)
        assert check(hub.hub.settings) == []


async def address(cast: Cast, method: str, path: str) -> str:
    """The path with ids. An object that the request would change or delete is created just for it."""
    changes = method != "GET"
    ids = {
        "{job_id}": lambda: cast.new_job() if changes else _known(cast.done_job),
        "{group_id}": cast.new_group,
        "{account_id}": cast.new_account,
        "{key_id}": lambda: _first(cast.new_key()),
        "{digest}": lambda: cast.new_artifact() if method == "DELETE" else _known(DIGEST),
        "{node_id}": lambda: _idle_node(cast) if changes else _known(cast.pias_node),
        "{payout_id}": lambda: cast.new_payout(listed=path.endswith(("/paid", "/failed"))),
        "{approval_id}": cast.new_approval,
        "{provider}": lambda: _known("razorpayx"),
        "{version}": lambda: _known("1"),
        "{code_id}": lambda: _join_code(cast),
        "{webhook_id}": lambda: _webhook(cast),
        "{name}": lambda: _secret(cast) if method == "DELETE" else _known("TOKEN"),
        "{schedule_id}": lambda: _schedule(cast),
        "{volume_name}": cast.new_volume,
        "{number}": lambda: _known("1"),
        "{attempt_id}": lambda: _known("job_none-1"),
    }
    for name, make in ids.items():
        if name in path:
            path = path.replace(name, await make())
    return path


async def _known(value: str) -> str:
    return value


async def _first(pair: Any) -> str:
    return str((await pair)[0])


async def _join_code(cast: Cast) -> str:
    await cast.pia.post("/nodes/codes", json={"hosts": 2})
    return str((await cast.pia.get("/nodes/codes")).json()["codes"][-1]["id"])


async def _webhook(cast: Cast) -> str:
    """One webhook for all requests, because their number is limited."""
    if not (found := (await cast.sam.get("/webhooks")).json()["webhooks"]):
        found = [(await cast.sam.post("/webhooks", json={"url": "https://example.org/hook"})).json()]
    return str(found[0]["id"])


async def _secret(cast: Cast) -> str:
    name = f"S{next(_numbers)}"
    await cast.sam.put(f"/secrets/{name}", json={"value": "abcd"})
    return name


async def _schedule(cast: Cast) -> str:
    made = await cast.sam.post("/schedules", json=_new_schedule())
    return str(made.json()["id"])


def _new_schedule() -> dict[str, Any]:
    return {"name": f"s{next(_numbers)}", "cron": "0 3 * * *", "request": body(needs={"cores": 1000})}


async def _idle_node(cast: Cast) -> str:
    return (await cast.new_node(cast.pia)).node_id


def _signed_notice() -> dict[str, Any]:
    notice = b'{"event": "payout.processed"}'
    signature = hmac.digest(WEBHOOK_SECRET.encode(), notice, "sha256").hex()
    return {"content": notice, "headers": {"X-Razorpay-Signature": signature}}


@cache
def _examples() -> dict[tuple[str, str], dict[str, Any]]:
    """The first example of each JSON body in the API's document."""
    found = {}
    for path, item in create_api().openapi()["paths"].items():
        for method, operation in item.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for example in body.get("examples", {}).values():
                found.setdefault((method.upper(), f"/api/v1{path}"), example["value"])
    return found


async def content(cast: Cast, method: str, path: str) -> dict[str, Any]:
    """A valid request, so that only the policy decides the answer: the API's own example, unless it needs more."""
    poll = {"boot_id": "b", "wait_ms": 0, "claim": False}
    same_site = {"Sec-Fetch-Site": "same-origin"}
    made: dict[tuple[str, str], Any] = {
        ("GET", "/signin"): {"params": {"code": "x" * 32}},
        ("POST", "/signout"): {"headers": same_site},
        ("POST", "/api/v1/accounts"): {"json": {"name": f"a{cast.hub.hub.clock.entropy(8).hex()}"}},
        ("POST", "/api/v1/jobs"): {"json": body(needs={"cores": 1000})},
        ("GET", "/api/v1/find"): {"params": {"kind": "job", "word": cast.done_job}},
        ("POST", "/api/v1/groups/{group_id}/reports"): {"json": {"reports": [{"key": "k", "outcome": "failed"}]}},
        ("PUT", "/api/v1/artifacts/{digest}"): {"params": {"size": len(DATA)}, "content": DATA},
        ("PUT", "/api/v1/prices"): {"json": _prices(cast)},
        ("POST", "/api/v1/payouts"): {"json": {"amount": LEAST, "upi": "asha@okaxis"}},
        ("POST", "/api/v1/payouts/{payout_id}/paid"): {"json": {"reference": f"utr{next(_numbers)}"}},
        ("POST", "/api/v1/payouts/webhook/{provider}"): _signed_notice(),
        ("POST", "/api/v1/schedules"): {"json": _new_schedule()},
        ("POST", "/api/v1/next"): {"json": poll},
        ("POST", "/api/v1/volumes"): {"json": {"name": f"v{cast.hub.hub.clock.entropy(8).hex()}"}},
        ("POST", "/api/v1/volumes/{volume_name}/versions"): {"json": {"parent": 1, **VERSION}},
        ("POST", "/api/v1/volumes/{volume_name}/head"): {"json": {"version": 1, "expected": 1}},
        ("POST", "/api/v1/heartbeat"): {"json": poll},
    }
    if (method, path) == ("POST", "/signin"):
        return {"data": {"code": await cast.signin_code()}, "headers": same_site}
    if (method, path) == ("POST", "/api/v1/signin"):
        return {"json": {"code": await cast.signin_code()}}
    if (method, path) == ("POST", "/api/v1/nodes/register"):
        return {"json": await cast.registration()}
    example = _examples().get((method, path))
    return made.get((method, path), {} if example is None else {"json": example})


def _prices(cast: Cast) -> dict[str, Any]:
    return {**_examples()["PUT", "/api/v1/prices"], "based_on": cast.hub.hub.money.market.table.version}


async def status_and_code(cast: Cast, caller: str, method: str, path: str) -> tuple[int, str | None]:
    client = await cast.stand_in(caller) if path in ENDS_SESSIONS else cast.callers[caller]
    url = await address(cast, method, path)
    wanted = await content(cast, method, path)
    if path.endswith(("/stream", "/news")):
        async with opened(cast.hub.app, url, dict(client.headers)) as stream:
            return stream.status, "unauthenticated" if stream.status == 401 else None
    if path == "/api/v1/nodes/rekey" and caller in ("node", "other_node"):
        return (await (await cast.new_node(cast.pia)).rekey()).status_code, None
    if path == "/api/v1/nodes/leave" and caller in ("node", "other_node"):
        return (await (await cast.new_node(cast.pia)).client.post("/nodes/leave")).status_code, None
    if path == "/api/v1/complete" and caller in ("node", "other_node"):
        return await _report(cast, caller), None
    before = await events.newest(cast.hub.hub)
    answer = await client.request(method, f"http://hub.test{url}", **wanted)
    client.cookies.clear()
    if path == "/api/v1/hub/check" and answer.is_success:  # it continues in the background
        await client.get("/hub/check", params={"wait_ms": 20_000})
    if answer.status_code >= 400:
        assert await events.newest(cast.hub.hub) == before, "a refused request changed something"
    problem = answer.headers.get("content-type") == "application/problem+json" and method != "HEAD"
    return answer.status_code, answer.json()["code"] if problem else None


async def _report(cast: Cast, caller: str) -> int:
    """A correctly signed report about an attempt that neither node holds, so that nothing changes."""
    assert cast.node is not None
    node = cast.node
    answer = await node.complete([node.make_report("job_none-1")])
    if caller == "node":
        return answer.status_code
    unsigned = await cast.callers[caller].post(
        "/complete", content=answer.request.content, headers={"Content-Type": "application/json"}
    )
    assert unsigned.json()["code"] == "forbidden", "a report that another node signed was taken"
    other = await cast.new_node(cast.callers["other_provider"])
    return (await other.complete([other.make_report("job_none-1")])).status_code


@pytest.mark.parametrize(("method", "path"), list(rows()), ids=str)
async def test_each_caller_gets_the_answer_of_the_table(cast: Cast, method: str, path: str) -> None:
    expected = rows()[method, path]
    found = {caller: await status_and_code(cast, caller, method, path) for caller in CALLERS}
    assert {caller: status for caller, (status, _) in found.items()} == expected
    if method != "HEAD":
        refused = {status: code for status, code in found.values() if status >= 400}
        assert all(code is not None and STATUS[code] == status for status, code in refused.items())


async def test_nobody_submits_into_anothers_group(cast: Cast) -> None:
    """Not even an administrator may: the results of a group are for its owner."""
    group = await cast.new_group()
    for caller in ("other_submitter", "admin"):
        answer = await cast.callers[caller].post("/jobs", json=body(group_id=group))
        assert (answer.status_code, answer.json()["field"]) == (404, "group_id")
    assert (await cast.sam.get(f"/groups/{group}")).json()["total"] == 0


async def test_the_table_holds_exactly_the_routes_of_the_application(cast: Cast) -> None:
    assert set(rows()) == {(route.method, route.path) for route in policies(cast.hub.app.routes)}


async def test_the_table_agrees_with_the_declared_policies(cast: Cast) -> None:
    """The callers admitted by a route's policy are those admitted in the table."""
    doors = {
        Action.ANYONE: set(CALLERS),
        Action.SIGNED_IN: {"submitter", "other_submitter", "provider", "other_provider", "admin"},
        Action.SUBMIT: {"submitter", "other_submitter", "admin"},
        Action.PROVIDE: {"provider", "other_provider", "admin"},
        Action.ADMIN: {"admin"},
        Action.NODE: {"node", "other_node"},
    }
    doors[Action.SIGNED_IN_OR_NODE] = doors[Action.SIGNED_IN] | doors[Action.NODE]
    table = rows()
    for route in policies(cast.hub.app.routes):
        assert route.action is not None
        row = table[route.method, route.path]
        assert {caller for caller, status in row.items() if is_let_in(caller, status)} == doors[route.action], route


def is_let_in(caller: str, status: int) -> bool:
    # A node has no roles. For a node, 403 means a wrong signature, or an attempt that it does not hold.
    return status not in ((401,) if caller in ("node", "other_node") else (401, 403))


async def test_fast_routes_are_documented_and_have_their_twins_policies(cast: Cast) -> None:
    declared = {(route.method, route.path): route for route in policies(cast.hub.app.routes)}
    hot = cast.hub.app.policies  # type: ignore[attr-defined]
    assert hot
    for (method, path), policy in hot.items():
        twin = declared[method, path]
        assert (policy.action, policy.scope(method)) == (twin.action, twin.scope)
        assert twin.documented


def test_a_route_without_a_policy_is_found_wherever_it_hides(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path))
    assert all(route.action is not None for route in policies(app.routes))

    def planted() -> None: ...

    inner = APIRouter(prefix="/inner")
    inner.get("/leaf")(planted)
    outer = APIRouter(prefix="/outer")
    outer.include_router(inner)
    app.include_router(outer)
    app.add_route("/plain", lambda _request: PlainTextResponse("x"))
    mounted = FastAPI()
    mounted.include_router(inner)
    app.mount("/mounted", mounted)
    app.mount("/files", PlainTextResponse("x"))
    app.routes.append(Mount("/more", routes=[Route("/leaf", lambda _request: PlainTextResponse("x"))]))
    bare = {route.path for route in policies(app.routes) if route.action is None}
    assert {"/outer/inner/leaf", "/plain", "/mounted/inner/leaf", "/files", "/more/leaf"} <= bare
