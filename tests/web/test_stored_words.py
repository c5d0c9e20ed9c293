"""Every page shows markup and scripts in strangers' texts as plain text.

The texts are those of tests/attacks/test_stored_markup.py, which tests the API.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Dialog, Page, expect

from computepool.hub.clock import SystemClock
from computepool.testing.node import NodeDouble
from tests.attacks.test_stored_markup import PAYLOADS
from tests.web.browsing import settled
from tests.web.conftest import Allow, OpenPage, Web
from tests.web.test_every_page import PAGES

_HIT = "window.hit = 0; window.alert = () => { window.hit += 1 };"
#: Elements that the texts would create if they were taken for markup.
_GROWN = """() => [...document.querySelectorAll(
  'img[src="x"], img[onerror], svg[onload], iframe, object, embed, base, meta[http-equiv=refresh], math, form[action*=evil],' +
  'link[href*=evil], [onmouseover], [onfocus], [onerror], [onload], a[href^="javascript" i], a[href^="data:" i], a[href*=evil],' +
  'main script, textarea + script')].map(found => found.outerHTML.slice(0, 200))"""
#: Prints every payload to both streams, and writes a file of that name if possible.
_JOB = """
import json, pathlib, sys
words = json.loads(sys.argv[1])
pathlib.Path("outputs").mkdir(exist_ok=True)
for number, word in enumerate(words):
    print(word)
    print(word, file=sys.stderr)
    name = word.replace("/", "∕")[:80]
    try:
        pathlib.Path("outputs", f"{number:02d} {name}.txt").write_text(word)
    except (OSError, ValueError):
        pass
if len(sys.argv) > 2:
    raise SystemExit(words[0])
"""


def _in_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """Playwright's loop runs in this thread."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(asyncio.run(work)))
    thread.start()
    thread.join(120)
    assert result, "it failed (see above), or took more than two minutes"
    return result[0]


async def _hostile_nodes(web: Web) -> list[str]:
    """Nodes with such names."""
    found = []
    keys = {"Authorization": f"Bearer {web.key_of['provider']}"}
    for payload in PAYLOADS[:4] + PAYLOADS[7:10]:
        async with httpx2.AsyncClient(base_url=f"{web.url}/api/v1", timeout=30) as client:
            code = (await client.post("/nodes/codes", headers=keys)).json()["code"]
            node = NodeDouble(client, SystemClock())
            await node.register(
                code, name=payload[:60], region=payload[:10] if payload.isalnum() else "eu", cores=0.001
            )
            await node.poll(wait_ms=0)
            found.append(node.node_id)
    return found


@pytest.fixture(scope="module")
def planted(web: Web) -> dict[str, list[str]]:
    """IDs by kind."""
    headers = {"Authorization": f"Bearer {web.key_of['admin']}"}
    with httpx2.Client(base_url=f"{web.url}/api/v1", headers=headers, timeout=60) as client:
        made = _words_everywhere(client)
    for job_id in made["jobs"][-2:]:
        web.admin.jobs.wait(job_id, timeout=90)
    return {**made, "nodes": _in_thread(_hostile_nodes(web))}


def _words_everywhere(client: httpx2.Client) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {"jobs": [], "groups": []}
    me = client.get("/me").json()["id"]
    for payload in PAYLOADS:
        spec = {"kind": "command", "name": payload, "argv": ["echo", payload]}
        # So many jobs raise the price. The two that must run come last, with a high limit.
        made["jobs"] += _made(client, "/jobs", {"spec": spec})["job_ids"]
        made["groups"].append(_made(client, "/groups", {"name": payload})["id"])
        _made(client, "/keys", {"name": payload})
        _made(client, "/credits/top-ups", {"account": me, "amount": 1_000_000, "note": payload})
        client.post("/accounts", json={"name": payload, "roles": ["submitter"]})  # refused, or kept unchanged
    words = json.dumps(PAYLOADS)
    for arguments in ([words], [words, "fail"]):
        spec = {"kind": "script", "name": "planted words", "source": _JOB, "argv": arguments}
        made["jobs"] += _made(client, "/jobs", {"spec": spec, "max_price": 100_000_000, "priority": 5})["job_ids"]
    return made


def _made(client: httpx2.Client, path: str, body: dict[str, Any]) -> Any:
    answer = client.post(path, json=body)
    assert answer.is_success, (path, body, answer.text)
    return answer.json()


def test_strangers_texts_stay_texts(web: Web, open_page: OpenPage, planted: dict[str, list[str]]) -> None:
    page = open_page("admin")
    page.add_init_script(_HIT)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: _note(dialog, dialogs))
    shown = ""
    details = [f"/jobs/?id={job_id}" for job_id in [*planted["jobs"][:8:3], *planted["jobs"][-2:]]]
    details += [f"/groups/?id={planted['groups'][0]}", f"/groups/?id={planted['groups'][7]}"]
    details += [f"/nodes/?id={node_id}" for node_id in planted["nodes"][:2]]
    for path in (*PAGES, *details):
        page.goto(f"{web.url}{path}")
        settled(page)
        if path in details[3:5]:  # their output is loaded separately
            expect(page.get_by_role("log").get_by_text(PAYLOADS[-1], exact=True).first).to_be_visible()
        shown += _look(page, path)
    assert dialogs == []
    missing = [payload for payload in PAYLOADS if " ".join(payload.split()) not in shown]
    assert not missing, "every text is shown somewhere, unchanged"


def _note(dialog: Dialog, dialogs: list[str]) -> None:
    dialogs.append(dialog.message)
    dialog.dismiss()


def _look(page: Page, path: str) -> str:
    """The text of the page, which must contain no such elements."""
    assert page.evaluate(_GROWN) == [], path
    assert page.evaluate("window.hit") == 0, path
    return " ".join(page.locator("body").inner_text().split())


@pytest.mark.soak
def test_markup_that_got_in_would_be_seen_and_would_not_run(web: Web, admin_page: Page, allow: Allow) -> None:
    """The check above works, and the policy is the second defence."""
    allow(admin_page, "Content Security Policy|status of 404")
    admin_page.add_init_script(_HIT)
    admin_page.goto(f"{web.url}/account/")
    settled(admin_page)
    # By the picture's own event: the policy forbids evaluating strings in the page.
    admin_page.evaluate("""() => new Promise(failed => {
      document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(1)>');
      document.body.lastElementChild.addEventListener('error', failed);
    }).then(() => true)""")
    assert len(admin_page.evaluate(_GROWN)) == 1
    assert admin_page.evaluate("window.hit") == 0
