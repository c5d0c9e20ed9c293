"""Versions of volumes without files, for the hub's tests: what the hub keeps are a manifest and packs, whatever is in them."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx2

from computepool.protocol.volumes.volumes import VolumeChange
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload

MOUNTS = {"volumes": [{"volume": "data", "path": "/data"}]}
READS = {"volumes": [{"volume": "data", "path": "/data", "read_only": True}]}


async def sent(client: httpx2.AsyncClient, text: str, *, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """A version whose only new pack is this text. `also`: packs of earlier versions that it keeps."""
    pack = await upload(client, f"pack {text}".encode(), name="volume")
    listed = await upload(client, f"manifest {text} {(pack, *also)}".encode(), name="volume")
    content = hashlib.sha256(text.encode()).hexdigest()
    return {"manifest": listed, "content": content, "packs": [pack, *also], "size": len(text), "files": 1}


async def put(client: httpx2.AsyncClient, text: str, *, parent: int, also: tuple[str, ...] = ()) -> dict[str, Any]:
    answer = await client.post("/volumes/data/versions", json={"parent": parent, **await sent(client, text, also=also)})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def opened(node: NodeDouble, attempt_id: str) -> dict[str, Any]:
    answer = await node.client.post(f"/attempts/{attempt_id}/volumes")
    assert answer.status_code == 200, answer.text
    [volume] = answer.json()["volumes"]
    return dict(volume)


async def change(node: NodeDouble, text: str, *, also: tuple[str, ...] = ()) -> list[VolumeChange]:
    return [VolumeChange(volume="data", **await sent(node.client, text, also=also))]


async def versions(client: httpx2.AsyncClient) -> list[tuple[int, int, bool, str | None]]:
    """Number, parent, whether it is the head, and its conflict."""
    found = (await client.get("/volumes/data/versions")).json()["versions"]
    return [(one["number"], one["parent"], one["is_head"], one["conflict"]) for one in found]
