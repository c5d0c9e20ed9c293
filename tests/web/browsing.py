"""What a page did while a test looked at it, and what axe says about it."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / ".make" / "pictures"
_AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: Pages that are loaded, then stay as they are: skeletons are gone and nothing is on its way.
_SETTLED = "() => !document.querySelector('main [role=status][aria-label^=Loading], main .skeleton')"


@dataclass
class Watch:
    """Everything that must not happen in a browser: errors, broken rules of the policy, requests to others."""

    origin: str
    wrong: list[str] = field(default_factory=list)
    allowed: list[re.Pattern[str]] = field(default_factory=list)

    def over(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.wrong.append(f"{page.url}: the page failed: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # A browser says here, too, that its policy forbade something.
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
    """Wait until the page shows its data: a heading, and no skeleton any more."""
    page.locator("h1").first.wait_for(timeout=timeout_s * 1000)
    page.wait_for_function(_SETTLED, timeout=timeout_s * 1000)


@cache
def _axe_source() -> str:
    return _AXE.read_text()


def axe(page: Page, *, without: tuple[str, ...] = ()) -> None:
    """Asserts that axe finds nothing on the page as it is now. `without`: rules that do not apply, with a reason nearby."""
    page.evaluate(_axe_source())
    rules = {rule: {"enabled": False} for rule in without}
    found: dict[str, Any] = page.evaluate(
        "rules => axe.run(document, {resultTypes: ['violations'], rules})", rules
    )
    said = [
        f"{one['id']} ({one['impact']}): {one['help']}\n"
        + "\n".join(_node(node) for node in one["nodes"][:5])
        for one in found["violations"]
    ]
    assert not said, f"{page.url}\n" + "\n".join(said)


def _node(node: dict[str, Any]) -> str:
    return f"    {' '.join(map(str, node['target']))}: {node['html'][:200]}\n      {node['failureSummary'][:300]}"


def shoot(page: Page, name: str, *, full: bool = False) -> Path:
    """A picture in .make/pictures, to be looked at."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path, full_page=full)
    return path
