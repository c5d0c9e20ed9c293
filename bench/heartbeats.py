"""What a parked node costs the hub: CPU per poll and memory per connection."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.processes import RunningHub, cpu_s, hub_process, rss_bytes
from bench.table import Figure
from computepool.hub.clock import SystemClock
from computepool.hub.identity.authenticator import HUB_AUDIENCE
from computepool.protocol.tokens import b64, public_text, sign_node_token
from computepool.protocol.version import PROTOCOL
from computepool.testing.node import PROFILE

NODES = 2_000
INTERVAL_S = 1.0
MEASURE_S = 8.0


async def _enrol(hub: RunningHub, client: httpx2.AsyncClient, number: int) -> bytes:
    code = (await client.post("/nodes/codes")).json()["code"]
    key = Ed25519PrivateKey.generate()
    profile = PROFILE | {"name": f"bench-{number}"}
    body = {
        "code": code,
        "public_key": public_text(key),
        "proof": b64(key.sign(code.encode())),
        "protocol": PROTOCOL,
    }
    answer = await client.post("/nodes/register", json=body | {"profile": profile})
    answer.raise_for_status()
    node_id = answer.json()["node_id"]
    token = sign_node_token(node_id, key=key, hub=HUB_AUDIENCE, now_s=SystemClock().now_ms() // 1000)
    first = {"boot_id": f"boot{number}", "wait_ms": 0, "profile": profile}
    (await client.post("/next", json=first, headers={"Authorization": f"Bearer {token}"})).raise_for_status()
    poll = json.dumps({"boot_id": f"boot{number}", "wait_ms": 60_000}).encode()
    head = f"POST /api/v1/next HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(poll)}\r\n\r\n".encode() + poll


async def _node(hub: RunningHub, request: bytes, polls: list[int], stop: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    while not stop.is_set():
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        polls[0] += 1
    writer.close()


async def _measure() -> list[Figure]:
    settings = {"interval_min_s": INTERVAL_S, "registrations_per_s": 100_000, "log_level": "warning"}
    with hub_process(**settings) as hub:
        headers = {"Authorization": f"Bearer {hub.first.admin_key}"}
        async with httpx2.AsyncClient(base_url=f"{hub.url}/api/v1", headers=headers, timeout=60) as client:
            requests = []
            for start in range(0, NODES, 50):
                part = range(start, min(NODES, start + 50))
                requests += await asyncio.gather(*(_enrol(hub, client, number) for number in part))
        await asyncio.sleep(1)
        before = rss_bytes(hub.pid)
        polls, stop = [0], asyncio.Event()
        tasks = [asyncio.create_task(_node(hub, request, polls, stop)) for request in requests]
        await asyncio.sleep(2 * INTERVAL_S)
        grown = rss_bytes(hub.pid) - before
        cpu, seen, began = cpu_s(hub.pid), polls[0], time.perf_counter()
        await asyncio.sleep(MEASURE_S)
        spent, answered, took = cpu_s(hub.pid) - cpu, polls[0] - seen, time.perf_counter() - began
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [
        Figure("hub CPU per parked poll", spent / answered * 1e6, "µs", target=60, lower_is_better=True),
        Figure("hub memory per parked node", grown / NODES / 1024, "KB", target=25, lower_is_better=True),
        Figure(f"polls answered, {NODES} nodes", answered / took, "/s"),
    ]


def run() -> list[Figure]:
    return asyncio.run(_measure())


if __name__ == "__main__":
    for figure in run():
        print(figure)
    sys.exit(0)
