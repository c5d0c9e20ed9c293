"""Security headers of every kind of response and refusal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from computepool.testing.hub import ORIGIN, HubDouble, running_hub

WANTED = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
ROOT = Path(__file__).parents[2]


async def answers(hub: HubDouble) -> list[tuple[str, dict[str, str]]]:
    client = hub.client()
    asked = [
        await client.get(f"{ORIGIN}/"),
        await client.get(f"{ORIGIN}/signin", params={"code": "x"}),
        await client.get(f"{ORIGIN}/healthz"),
        await client.get(f"{ORIGIN}/nowhere"),
        await client.get("/hub"),
        await client.get("/jobs"),
        await client.delete("/hub"),
        await client.post("/signin", content=b"x" * (9 * 1024 * 1024)),
        await client.post("/next", json={}),
        await hub.admin.get("/jobs/none"),
        await hub.admin.get("/credits/statement.csv"),
        await hub.client((await hub.node()).client.headers["Authorization"][7:]).post("/next", json={"boot_id": 1}),
    ]
    return [
        (f"{answer.request.method} {answer.request.url.path} {answer.status_code}", dict(answer.headers))
        for answer in asked
    ]


@pytest.mark.parametrize("public_url", ["http://hub.test", "https://hub.test"])
async def test_every_answer_is_safe_to_show(tmp_path: Path, public_url: str) -> None:
    async with running_hub(tmp_path, public_url=public_url) as hub:
        for what, headers in await answers(hub):
            assert WANTED.items() <= headers.items(), what
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'"), what
            assert "frame-ancestors 'none'" in policy, what
            assert headers.get("cache-control"), what
            assert "access-control-allow-origin" not in headers, what
            assert ("strict-transport-security" in headers) == public_url.startswith("https"), what
            assert "server" not in headers, what


async def test_a_reply_with_a_secret_is_not_kept(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        answer = await hub.admin.post("/keys", json={"name": "k"})
        assert answer.headers["cache-control"] == "no-store"


def test_the_list_of_requirements_names_tests_that_are_there() -> None:
    text = (ROOT / "docs" / "asvs.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    for path, test in named:
        found = (ROOT / path).read_text()
        assert not test or f"def {test}(" in found, (path, test)
