"""Short forms to submit and read jobs, for the hub's tests."""

from __future__ import annotations

from typing import Any

import httpx2

COMMAND = {"kind": "command", "name": "true", "argv": ["/bin/true"]}


def body(
    *, items: int = 1, needs: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    full = COMMAND | (spec or {})
    if needs is not None:
        full = full | {"needs": needs}
    return {"spec": full, "items": [{} for _ in range(items)], **rest}


async def submit(client: httpx2.AsyncClient, **fields: Any) -> list[str]:
    answer = await client.post("/jobs", json=body(**fields))
    assert answer.status_code == 201, answer.text
    return answer.json()["job_ids"]


async def job(client: httpx2.AsyncClient, job_id: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(f"/jobs/{job_id}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def state(client: httpx2.AsyncClient, job_id: str) -> str:
    return str((await job(client, job_id))["state"])
