"""A pool like that of a campus, created through the real API: people, nodes on all continents, all kinds of jobs, and money.

Most nodes are simulated and only poll; one is real and runs the jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from computepool.hub.app import open_store
from computepool.hub.clock import SystemClock
from computepool.testing.node import NodeDouble
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.hub.money.payouts.earning import LEAST, earn_now

NODES = 64
_REGIONS = (
    "in-south", "in-west", "de", "fr", "gb", "nl", "se", "pl", "es", "it", "us-east", "us-west", "ca", "mx", "br", "ar",
    "za", "ke", "ng", "jp", "kr", "sg", "au", "nz",
)  # fmt: skip
_CARDS = (
    ("NVIDIA GeForce RTX 4090", "rtx-4090", 24_564),
    ("NVIDIA GeForce RTX 3060", "rtx-3060", 12_288),
    ("NVIDIA H100", "h100", 81_559),
    ("NVIDIA GeForce GTX 1080", "gtx-1080", 8_192),
)
_ROOMS = ("attic", "lab", "garage", "studio", "rack", "office", "library")
_POLL_S = 1.0
_PYTHON = f"3.{sys.version_info.minor}"  #: of the real node; jobs require it

SIMULATION = """import math, sys, time
for step in range(600):
    residual = sum(math.sqrt(i) for i in range(40_000)) / (step + 1) ** 2
    print(f"step {step}: residual {residual:.4f}", flush=True)
    if step % 9 == 4:
        print("warning: the residual is still large", file=sys.stderr, flush=True)
    time.sleep(0.5)
"""
PICTURE = """import json, struct, zlib
side = 240
def colour(x, y):
    return bytes((x * 255 // side, 90 + y * 120 // side, 220 - x * 90 // side))
rows = b"".join(b"\\0" + b"".join(colour(x, y) for x in range(side)) for y in range(side))
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
with open("outputs/gradient.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
with open("outputs/points.csv", "w") as file:
    file.write("x,y\\n1,2\\n3,4\\n")
with open("outputs/result.json", "w") as file:
    json.dump({"answer": 42}, file)
print("wrote three files")
"""
SWEEP = """import random, sys, time
time.sleep(1.5)
print("loss", random.random())
sys.exit(1 if random.random() < 0.06 else 0)
"""


class Campus:
    def __init__(self, real: RealPool) -> None:
        self.real, self.url = real, real.hubs[0].url
        self._chance = random.Random(7)
        self.keys = {"admin": real.admin_key}
        self.people = {"admin": self._client(real.admin_key)}
        self.ids = {"admin": self.people["admin"].get("/me").json()["id"]}
        for name in ("ann", "bob"):
            self._invite(name)

    def _client(self, key: str) -> httpx2.Client:
        return httpx2.Client(base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=60)

    def _invite(self, name: str) -> None:
        admin = self.people["admin"]
        made = _ok(admin.post("/accounts", json={"name": name, "roles": ["submitter", "provider"]}))
        self.ids[name] = made["id"]
        key = {"name": f"{name}'s laptop", "account_id": made["id"]}
        self.keys[name] = _ok(admin.post("/keys", json=key))["key"]
        self.people[name] = self._client(self.keys[name])
        top_up = {"account": made["id"], "amount": 500_000_000_000, "source": "promo", "note": "welcome"}
        _ok(admin.post("/credits/top-ups", json=top_up))

    def submit(self, who: str, name: str, source: str, **more: Any) -> list[str]:
        needs = {"python": _PYTHON, **more.pop("needs", {"cores": 0.2, "ram_mb": 64})}
        spec = {"kind": "script", "name": name, "source": source, "needs": needs, "timeout_s": 3600}
        spec["timeout_s"] = more.pop("timeout_s", 3600)
        # High enough to run at any price.
        terms = {"max_price": 100_000_000, **more}
        made = _ok(self.people[who].post("/jobs", json={"spec": spec, **terms}))
        return list(made["job_ids"])

    def work(self) -> dict[str, str]:
        """Submit jobs that reach every state. Returns the ids of those with their own picture."""
        found = {}
        [found["picture"]] = self.submit("ann", "draw a gradient", PICTURE)
        self.submit("ann", "hello", "print('hello from the pool')")
        self.submit("ann", "invert a matrix", "raise ValueError('the matrix is singular')")
        self.submit("ann", "sleeps too long", "import time; time.sleep(60)", timeout_s=1)
        group = _ok(self.people["ann"].post("/groups", json={"name": "parameter sweep"}))
        items = [{"key": f"alpha={number / 100:.2f}"} for number in range(240)]
        self.submit("ann", "sweep", SWEEP, group_id=group["id"], items=items)
        found["group"] = group["id"]
        [found["running"]] = self.submit("ann", "residuals of a long simulation", SIMULATION)
        [cancelled] = self.submit("ann", "started by mistake", SIMULATION)
        _ok(self.people["ann"].post(f"/jobs/{cancelled}/cancel"))
        self.submit("ann", "train on eight cards", "print(1)", needs={"cores": 1, "gpus": 8, "vram_mb": 140_000})
        render = _ok(self.people["bob"].post("/groups", json={"name": "render, waiting for cards"}))
        frames = [{"key": f"frame {number:04d}"} for number in range(200)]
        needs = {"cores": 1, "gpus": 2, "vram_mb": 22_000}
        self.submit("bob", "frame", "print(1)", needs=needs, group_id=render["id"], items=frames)
        self.until(found["picture"], "succeeded")
        self.until(found["running"], "running")
        return found

    def until(self, job_id: str, state: str) -> None:
        path = f"/jobs/{job_id}"
        try:
            wait_until(lambda: self.people["ann"].get(path).json()["state"] == state, 180, f"{job_id} {state}")
        except TimeoutError:
            print(self.people["ann"].get(path).text, self.people["ann"].get(f"{path}/why").text)
            raise

    def money(self) -> None:
        """Bob has earnings, one completed payout, and one that waits for an administrator."""
        settings = self.real.hubs[0].settings
        store = open_store(settings.url, clock=SystemClock(), hub_id="campus")
        try:
            for _ in range(4):
                earn_now(store, self.ids["bob"], LEAST)
        finally:
            store.close()
        payout = {"amount": LEAST, "upi": "bob@okbank"}
        first = _ok(self.people["bob"].post("/payouts", json=payout))
        _ok(self.people["admin"].post(f"/payouts/{first['id']}/approve"))
        _ok(self.people["bob"].post("/payouts", json=payout))

    @contextmanager
    def nodes(self) -> Iterator[list[str]]:
        """Bob's machines all over the world, online while the block runs."""
        ready, ending = threading.Event(), threading.Event()
        found: list[str] = []
        thread = threading.Thread(target=lambda: asyncio.run(self._lend(found, ready, ending)), daemon=True)
        thread.start()
        try:
            assert ready.wait(120), "the nodes did not arrive"
            yield found
        finally:
            ending.set()
            thread.join(20)

    async def _lend(self, found: list[str], ready: threading.Event, ending: threading.Event) -> None:
        made = [await self._node(number) for number in range(NODES)]
        found += [node.node_id for node in made]
        ready.set()
        while not ending.is_set():
            for node in made:
                with contextlib.suppress(httpx2.HTTPError):
                    await node.poll(wait_ms=0)
            await asyncio.sleep(_POLL_S)
        for node in made:
            await node.client.aclose()

    async def _node(self, number: int) -> NodeDouble:
        chance = self._chance
        cards: list[dict[str, Any]] = []
        if chance.random() < 0.6:
            name, tier, vram_mb = chance.choice(_CARDS)
            cards = [{"name": name, "tier": tier, "vram_mb": vram_mb}] * chance.choice((1, 1, 1, 2, 8))
        code = _ok(self.people["bob"].post("/nodes/codes", json={}))["code"]
        client = httpx2.AsyncClient(base_url=f"{self.url}/api/v1", timeout=60)
        node = NodeDouble(client, SystemClock())
        await node.register(
            code, name=f"{chance.choice(_ROOMS)}-{number:02d}", cores=chance.choice((2, 4, 8, 16, 64)),
            ram_mb=chance.choice((8_192, 16_384, 65_536)), disk_mb=200_000, gpus=cards,
            region=chance.choice(_REGIONS), tags=["nvme"], isolation=chance.choice(("namespace", "gvisor")),
            python="3.9", version="0.1.0", platform="Linux",  # not the Python of the jobs, so they run nothing
        )  # fmt: skip
        await node.poll(wait_ms=0)
        return node


def _ok(answer: httpx2.Response) -> Any:
    if not answer.is_success:
        raise SystemExit(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}")
    return answer.json()
