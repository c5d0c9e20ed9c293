"""Under a path prefix of a proxy, everything works: pages, sign-in, news, the SDK, the command line and a node."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from computepool.hub.main import signin_link
from computepool.sdk.pool import connect
from computepool.testing.processes import RealPool
from tests.web.browsing import settled
from tests.web.conftest import OpenPage
from tests.web.proxy import PrefixProxy
from tests.web.test_every_page import PAGES


@pytest.mark.soak
@pytest.mark.parametrize("strip", [False, True])
def test_the_hub_works_under_a_prefix(open_page: OpenPage, *, strip: bool) -> None:
    with PrefixProxy("/team/pool", strip=strip) as proxy, RealPool(public_url=proxy.url) as real:
        hub = real.start_hub()
        proxy.to = hub.port
        real.start_agent(url=proxy.url)
        with connect(proxy.url, real.admin_key, retry_for=30) as pool:
            done = pool.command(["echo", "through the proxy"])
            assert pool.jobs.log_text(done.job_id) == "through the proxy\n"
            _cli(proxy.url, real.admin_key)
            link = signin_link(hub.settings)
            assert link.startswith(f"{proxy.url}/signin?code=")
            parts = urlsplit(proxy.url)
            page = open_page("visitor", origin=f"{parts.scheme}://{parts.netloc}")
            page.goto(f"{proxy.url}/jobs?state=queued")
            page.wait_for_url(f"{proxy.url}/signin/?next=*")
            code = link.partition("code=")[2]
            answer = page.request.post(f"{proxy.url}/api/v1/signin", data={"code": code, "kind": "cookie"})
            assert "Path=/team/pool" in answer.headers["set-cookie"]
            for path in PAGES if not strip else PAGES[:2]:
                page.goto(f"{proxy.url}{path}")
                settled(page)
            page.goto(f"{proxy.url}/")
            settled(page)
            # By links, without a reload: Next loads its files under the prefix, too.
            page.evaluate("window.same = true")
            page.get_by_role("link", name="Jobs", exact=True).first.click()
            page.wait_for_url(f"{proxy.url}/jobs/")
            settled(page)
            name = "seen as it happens"
            pool.command(["true"], name=name, wait=False)
            expect(page.get_by_text(name).first).to_be_visible()
            assert page.evaluate("window.same") is True
            page.context.close()  # before the hub ends, which would be an error
        assert proxy.elsewhere == []


def _cli(url: str, key: str) -> None:
    env = {**os.environ, "COMPUTEPOOL_HUB": f"{url}/", "COMPUTEPOOL_KEY": key}
    done = subprocess.run(
        [sys.executable, "-m", "computepool.cli", "submit", "--wait", "--", "echo", "hello"],
        env=env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
