"""A sign-in link made beside a running hub leads to that hub."""

from __future__ import annotations

from pathlib import Path

from computepool.hub.main import signin_link
from computepool.hub.settings import Settings
from computepool.testing.hub import running_hub


async def test_the_link_names_the_hub_that_serves_and_works_once(tmp_path: Path) -> None:
    async with running_hub(tmp_path, port=8401) as hub:
        link = signin_link(Settings(data_dir=tmp_path))
        address, code = link.split("/signin?code=")
        assert address == "http://127.0.0.1:8401"
        assert (await hub.admin.get("/me")).status_code == 200  # the key that `pool up` made still works
        answers = [await hub.client().post("/signin", json={"code": code}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 422]


def test_without_a_hub_the_link_names_the_settings_address(tmp_path: Path) -> None:
    assert signin_link(Settings(data_dir=tmp_path, port=9000)).startswith(
        "http://127.0.0.1:9000/signin?code="
    )
