"""Images of submitted jobs: tags become digests, and operators and owners say where images may come from."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from tests.hub.cast import upload
from tests.hub.fixtures import hub_fixture
from tests.hub.submitting import job

DIGEST = f"sha256:{'a' * 64}"
#: The operator allows this machine.
hub = hub_fixture(image_private="127.0.0.0/8", image_resolve_s=5)
careful = hub_fixture(image_resolve_s=5)
strict = hub_fixture(image_registries="ghcr.io")
hasty = hub_fixture(image_private="127.0.0.0/8", image_resolve_s=0.2)


@dataclass
class FakeRegistry:
    """Answers every request with this status and digest."""

    status: int | None = 200  #: None: it never answers
    digest: str = DIGEST
    address: str = ""
    requests: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests.append(head.decode().split("\r\n")[0])
                if self.status is None:
                    await reader.read()
                    break
                writer.write(
                    f"HTTP/1.1 {self.status} X\r\nDocker-Content-Digest: {self.digest}\r\nContent-Length: 0\r\n\r\n".encode()
                )
                await writer.drain()
        writer.close()


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    made = FakeRegistry()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


async def submit(client: httpx2.AsyncClient, image: str, **fields: Any) -> httpx2.Response:
    spec = {"kind": "command", "name": "x", "argv": ["x"], "image": image}
    return await client.post("/jobs", json={"spec": spec, **fields})


async def image_of(client: httpx2.AsyncClient, answer: httpx2.Response) -> str:
    assert answer.status_code == 201, answer.text
    return str((await job(client, answer.json()["job_ids"][0]))["spec"]["image"])


async def test_a_tag_becomes_a_digest(hub: HubDouble, registry: FakeRegistry, clock: FakeClock) -> None:
    name = f"{registry.address}/team/app:1"
    for _ in range(2):
        assert await image_of(hub.admin, await submit(hub.admin, name)) == f"{name}@{DIGEST}"
    assert registry.requests == ["HEAD /v2/team/app/manifests/1 HTTP/1.1"], "the second one is answered from memory"
    registry.digest = f"sha256:{'b' * 64}"
    clock.advance(61_000)
    assert await image_of(hub.admin, await submit(hub.admin, name)) == f"{name}@{registry.digest}"
    given = f"{registry.address}/team/app@{DIGEST}"
    assert await image_of(hub.admin, await submit(hub.admin, given)) == given
    assert len(registry.requests) == 2


@pytest.mark.parametrize("status", [404, 401, 403])
async def test_an_unknown_image_is_refused_at_once(hub: HubDouble, registry: FakeRegistry, status: int) -> None:
    registry.status = status
    answer = await submit(hub.admin, f"{registry.address}/team/app:1")
    assert (answer.status_code, answer.json()["field"]) == (422, "spec.image")
    assert "there is no image" in answer.json()["detail"]


@pytest.mark.parametrize("status", [500, 307])
async def test_nodes_look_up_what_the_hub_cannot(hub: HubDouble, registry: FakeRegistry, status: int) -> None:
    """Such a result is not verified: two nodes might see two images under one tag."""
    registry.status = status
    name = f"{registry.address}/team/app:1"
    answer = await submit(hub.admin, name)
    assert await image_of(hub.admin, answer) == name
    assert answer.json()["verify"] == "none"
    for terms in ({"verify": "quorum:2"}, {"confidence": 0.99}):
        refused = await submit(hub.admin, name, **terms)
        assert (refused.status_code, refused.json()["field"]) == (422, "spec.image"), refused.text
    fixed = await submit(hub.admin, f"{name}@{DIGEST}", verify="quorum:2")
    assert (fixed.status_code, fixed.json()["verify"]) == (201, "quorum:2")


async def test_a_registry_that_hangs_delays_a_submission_only_briefly(hasty: HubDouble, registry: FakeRegistry) -> None:
    registry.status = None
    answer = await submit(hasty.admin, f"{registry.address}/team/app:1")
    assert (answer.status_code, answer.json()["verify"]) == (201, "none")


async def test_the_hub_does_not_ask_its_own_network(careful: HubDouble, registry: FakeRegistry) -> None:
    for name in (f"{registry.address}/team/app:1", f"localhost:{registry.address.rpartition(':')[2]}/team/app:1"):
        assert (await submit(careful.admin, name)).status_code == 201
    assert registry.requests == []


async def test_the_operator_may_allow_some_registries_only(strict: HubDouble) -> None:
    refused = await submit(strict.admin, "busybox:1")
    assert (refused.status_code, refused.json()["detail"]) == (422, "This pool does not allow images from docker.io.")
    assert (await submit(strict.admin, f"ghcr.io/a/b@{DIGEST}")).status_code == 201


async def test_an_uploaded_image_belongs_to_its_submitter_and_stays_for_the_job(hub: HubDouble) -> None:
    sam, eve = await hub.account("sam", "submitter"), await hub.account("eve", "submitter")
    digest = await upload(sam, b"an image")
    image = f"artifact:{digest}"
    refused = await submit(eve, image)
    assert (refused.status_code, "is not on the hub" in refused.json()["detail"]) == (422, True)
    answer = await submit(sam, image)
    assert await image_of(sam, answer) == image
    info = (await sam.get(f"/artifacts/{digest}/info")).json()
    assert {ref["role"] for ref in info["refs"]} == {"upload", "image"}
    assert (await sam.delete(f"/artifacts/{digest}")).status_code == 409, "an unfinished job needs it"
    gone = hashlib.sha256(b"nothing").hexdigest()
    assert (await submit(sam, f"artifact:{gone}")).status_code == 422


@pytest.mark.parametrize("image", ["", "a b", "x@sha256:1", "artifact:1", "../x", 3, "a" * 1000])
async def test_what_is_no_image_is_refused(hub: HubDouble, image: Any) -> None:
    answer = await submit(hub.admin, image)
    assert answer.status_code == 422, answer.text
