"""Observing a page in a test: its errors, its accessibility, and the answers it gets."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, Route
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / ".make" / "pictures"
_AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: The page is loaded: it has no skeleton any more.
_SETTLED = "() => !document.querySelector('main [role=status][aria-label^=Loading], main .skeleton')"


@dataclass
class Watch:
    """Collects what must not happen: errors, violations of the Content-Security-Policy, requests to other servers."""

    origin: str
    wrong: list[str] = field(default_factory=list)
    allowed: list[re.Pattern[str]] = field(default_factory=list)

    def over(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.wrong.append(f"{page.url}: the page failed: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # Violations of the policy are console messages, too.
        if message.type == "error" or "Content Security Policy" in message.text:
            where = message.location.get("url", "")
            self.wrong.append(f"console: {message.text} ({where})")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.wrong.append(f"a request to another server: {request.url}")

    def allow(self, pattern: str) -> None:
        self.allowed.append(re.compile(pattern))

    def check(self) -> None:
        wrong = [text for text in self.wrong if not any(one.search(text) for one in self.allowed)]
        assert not wrong, "\n".join(wrong)


def chromium() -> str | None:
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in _PROGRAMS if (path := shutil.which(name))), None)


def settled(page: Page, *, timeout_s: float = 30) -> None:
    """Waits until the page shows its data."""
    page.locator("h1").first.wait_for(timeout=timeout_s * 1000)
    page.wait_for_function(_SETTLED, timeout=timeout_s * 1000)


@cache
def _axe_source() -> str:
    return _AXE.read_text()


def axe(page: Page) -> None:
    """Asserts that axe finds no violations on the page as it is now."""
    page.evaluate(_axe_source())
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    violations = [
        f"{one['id']} ({one['impact']}): {one['help']}\n" + "\n".join(_node(node) for node in one["nodes"][:5])
        for one in found["violations"]
    ]
    assert not violations, f"{page.url}\n" + "\n".join(violations)


def _node(node: dict[str, Any]) -> str:
    return f"    {' '.join(map(str, node['target']))}: {node['html'][:200]}\n      {node['failureSummary'][:300]}"


def hold(page: Page, pattern: str | re.Pattern[str]) -> list[Route]:
    """Holds such requests back until the test continues them."""
    held: list[Route] = []

    def keep(route: Route) -> None:  # Playwright sets an attribute on it, which a list's own method does not allow
        held.append(route)

    page.route(pattern, keep)
    return held


def answer(page: Page, pattern: str, body: Callable[[], BaseModel]) -> None:
    """Answers such requests in place of the hub."""

    def fulfil(route: Route) -> None:
        route.fulfill(body=body().model_dump_json(), content_type="application/json")

    page.route(pattern, fulfil)


def downloaded(page: Page, button: Locator) -> bytes:
    with page.expect_download() as download:
        button.click()
    return Path(download.value.path()).read_bytes()
