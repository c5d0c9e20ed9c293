"""Markup, formulas and terminal commands in names, notes, errors and logs come back as plain text."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from computepool.cli import output
from computepool.core.plaintext import printable
from computepool.protocol.nodes.hardware import HardwareReport
from computepool.protocol.nodes.nodes import CompleteRequest
from computepool.protocol.tokens import b64
from computepool.testing.hub import ORIGIN, HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.attacks.requestfields import DOCUMENT, Operation, Place, operations, places, planted
from tests.hub.cast import Cast
from tests.hub.identity.test_signing_in import SAME
from tests.hub.money.payouts.earning import LEAST, earn

SCRIPT = "<script>alert(1)</script>"
PAYLOADS = [
    SCRIPT,
    "<ScRiPt>alert(1)</sCrIpT>",
    "<scr<script>ipt>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "` onfocus=alert(1) `",
    "<svg><script>alert(1)</script></svg>",
    "<math><mi xlink:href='data:x,<script>alert(1)</script>'>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<object data='data:text/html,x'></object>",
    "<base href='https://evil.test/'>",
    "<meta http-equiv=refresh content='0;url=//evil.test'>",
    "<link rel=stylesheet href=//evil.test/x.css>",
    "<form action=//evil.test><button>Sign in</button>",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "<!--><script>alert(1)</script>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}#{7*7}<%= 7*7 %>",
    "&lt;script&gt;&#60;b&#62;",
    "＜script＞alert(1)＜/script＞",
    "[bold red]x[/] [link=https://evil.test]y[/link]",
    "=HYPERLINK(\"https://evil.test\",\"x\")",
    "+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
]  # fmt: skip
#: Control characters are not allowed in names at all; errors and logs are what a job printed, and may hold anything.
ANSI = [
    "\x1b[2J\x1b[1;1H",
    "\x1b]0;title\x07",
    "\x1b]8;;https://evil.test\x07x\x1b]8;;\x07",
    "\x9b31m",
    "a\rb\x08c",
    "\u202egnp.exe",
]
#: What must be among those that take any words, or the walk through the fields has gone astray.
KNOWN = {
    ("submit", ("spec", "name")), ("submit", ("spec", "argv", 0)), ("submit", ("spec", "source")),
    ("create_group", ("name",)), ("create_key", ("name",)), ("top_up", ("note",)),
    ("next", ("profile", "name")), ("next", ("profile", "platform")), ("next", ("profile", "gpus", 0, "name")),
    ("register", ("profile", "name")), ("complete", ("reports", 0, "error")), ("complete", ("logs", 0, "text")),
    ("complete", ("reports", 0, "outputs", 0, "name")), ("receive_logs", ("chunks", 0, "text")),
    ("reject_payout", ("reason",)),
}  # fmt: skip


@dataclass
class Attack:
    hub: HubDouble
    cast: Cast
    worker: NodeDouble
    open: set[tuple[str, Place]] = field(default_factory=set)

    async def send(self, operation: Operation, body: Any) -> httpx2.Response:
        """Send it as a caller who may, about an existing object, and signed if necessary."""
        client, path = self.hub.admin, operation.path
        if operation.by_node and operation.name != "register":
            client = (await self._node(operation)).client
        if operation.name == "register":
            fresh = await self.cast.registration()
            body = {**body, **{name: fresh[name] for name in ("code", "public_key", "proof")}}
        if "{payout_id}" in path:
            path = path.replace("{payout_id}", await self.cast.new_payout(listed="reject" not in path))
        if "{approval_id}" in path:
            path = path.replace("{approval_id}", await self.cast.new_approval())
        if "{node_id}" in path:
            path = path.replace("{node_id}", self.cast.pias_node)
        if "{key_id}" in path:
            path = path.replace("{key_id}", (await self.cast.new_key())[0])
        if "{account_id}" in path:
            path = path.replace("{account_id}", await self.cast.new_account())
        if operation.by_node:
            body = await self._bound(operation, body)
        return await client.request(operation.method, path, json=body)

    async def _node(self, operation: Operation) -> NodeDouble:
        assert self.cast.node is not None
        return self.worker if operation.name in ("complete", "receive_logs") else self.cast.node

    async def _bound(self, operation: Operation, body: Any) -> Any:
        """Let the node name an attempt that it holds, and sign."""
        node = await self._node(operation)
        if operation.name in ("next", "heartbeat"):
            return {**body, "boot_id": node.boot_id, "wait_ms": 0, "claim": False, "holding": sorted(node.holding)}
        if operation.name not in ("complete", "receive_logs", "receive_hardware"):
            return body
        attempt_id = await self._held(node) if operation.name != "receive_hardware" else ""
        body = json.loads(json.dumps(body))
        for item in [*body.get("reports", []), *body.get("logs", []), *body.get("chunks", [])]:
            item["attempt_id"] = attempt_id
        model = {"complete": CompleteRequest, "receive_hardware": HardwareReport}.get(operation.name)
        if model is not None:
            with contextlib.suppress(ValidationError, AttributeError):
                text = model.model_validate(body | {"signature": "A" * 86}).signed_text()
                body["signature"] = b64(node.key.sign(text))
        return body

    async def _held(self, node: NodeDouble) -> str:
        while not node.holding:
            await node.poll(wait_ms=1_000)
        return node.holding.popitem()[0]


@pytest.fixture(scope="module")
async def attack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Attack]:
    chosen = {
        "failed_signins_burst": 10**6,
        "payouts_open_max": 10**6,
        "payout_approve_above": 0,
        "payout_round_s": 3600,
        "breaker_faults": 10**6,
        "lease_min_s": 3600,
    }
    async with running_hub(tmp_path_factory.mktemp("hub"), **chosen) as hub:
        node = await hub.node(cores=0.001)
        cast = Cast(hub, {"submitter": hub.admin, "provider": hub.admin}, node=node, pias_node=node.node_id)
        await earn(hub, (await hub.admin.get("/me")).json()["id"], 1_000 * LEAST)
        made = Attack(hub, cast, await hub.node(cores=10_000, ram_mb=10**8, name="worker"))
        job = {"kind": "command", "name": "n", "argv": ["x"]}
        (await hub.admin.post("/jobs", json={"spec": job, "items": [{}] * 300})).raise_for_status()
        await _fill(made)
        yield made


async def _fill(attack: Attack) -> None:
    """Find the places that accept such text, one by one, and then send every payload in all of them."""
    for operation in operations():
        where = []
        for at in dict.fromkeys(places(operation.schema)):
            answer = await attack.send(operation, planted(operation, at, SCRIPT))
            assert answer.status_code < 500, (operation.name, at, answer.text)
            if answer.is_success:
                where.append(at)
        attack.open |= {(operation.name, at) for at in where}
        for payload in PAYLOADS if where else []:
            body = operation.example
            for at in where:
                body = planted(operation, at, payload, into=body)
            answer = await attack.send(operation, body)
            assert answer.status_code < 500, (operation.name, payload, answer.text)


@pytest.mark.soak
async def test_words_reach_every_field_that_takes_any(attack: Attack) -> None:
    missed = KNOWN - attack.open
    assert not missed
    assert len(attack.open) >= 40
    assert len(PAYLOADS) >= 25


async def everything(attack: Attack) -> list[httpx2.Response]:
    """Every list and every object that the API shows an administrator."""
    client, found = attack.hub.admin, []
    for path, methods in DOCUMENT["paths"].items():
        if "get" in methods and "{" not in path and not path.endswith(("/stream", "/news")):
            found.append(await client.get(path, params={"limit": 500} if path in LISTS else None))
    jobs = [job["id"] for job in (await client.get("/jobs", params={"limit": 500})).json()["jobs"]]
    for job_id in jobs[:150]:
        parts = ("", "/logs", "/why", "/cost", "/result")
        found += [await client.get(f"/jobs/{job_id}{part}") for part in parts]
    for kind, name in (("nodes", "nodes"), ("groups", "groups"), ("payouts", "payouts")):
        rows = (await client.get(f"/{kind}", params={"limit": 500})).json()[name]
        found += [await client.get(f"/{kind}/{row['id']}") for row in rows[:60]]
    return found


LISTS = {
    path
    for path, methods in DOCUMENT["paths"].items()
    if any(parameter["name"] == "limit" for parameter in methods.get("get", {}).get("parameters", []))
}


@pytest.mark.soak
async def test_what_comes_back_is_data_that_no_browser_runs(attack: Attack) -> None:
    seen = set()
    for answer in await everything(attack):
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in ("application/json", "application/problem+json", "text/csv"), answer.url
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        if kind == "text/csv":
            assert answer.headers["content-disposition"].startswith("attachment")
        else:
            seen |= {payload for payload in PAYLOADS if payload in set(_strings(answer.json()))}
    assert seen == set(PAYLOADS), "what was sent is kept as it is, and made harmless where it is shown"


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _strings(part)]
    return [text for item in value for text in _strings(item)] if isinstance(value, list) else []


async def test_refusals_repeat_markup_only_as_data(attack: Attack) -> None:
    for answer in (
        await attack.hub.admin.get(f"/jobs/{SCRIPT}"),
        await attack.hub.admin.post("/groups", json={SCRIPT: 1}),
        await attack.hub.admin.get("/jobs", params={"after": SCRIPT}),
        await attack.hub.client().get(f"{ORIGIN}/{SCRIPT}"),
        await attack.hub.client(SCRIPT).post("/next", json={}),
    ):
        assert answer.status_code >= 400
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["x-content-type-options"] == "nosniff"


# pages


class Shape(HTMLParser):
    """The elements of a page with the names of their attributes: what a browser makes of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))

    def handle_decl(self, decl: str) -> None:
        self.found.append(("!", decl))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment",))


async def pages_of(hub: HubDouble, words: str) -> list[httpx2.Response]:
    client = hub.client()
    return [
        await client.get(f"{ORIGIN}/"),
        await hub.admin.get(f"{ORIGIN}/"),
        await client.get(f"{ORIGIN}/signin", params={"code": words}),
        await client.post(f"{ORIGIN}/signin", data={"code": words}, headers=SAME),
    ]


@pytest.mark.parametrize("payload", PAYLOADS + ANSI)
async def test_no_page_grows_an_element_or_attribute(attack: Attack, payload: str) -> None:
    hub, plain = attack.hub, "x" * 32
    before = [Shape(page.text).found for page in await pages_of(hub, plain)]
    kept, hub.hub.settings.name = hub.hub.settings.name, payload
    try:
        after = await pages_of(hub, payload)
    finally:
        hub.hub.settings.name = kept
    assert [Shape(page.text).found for page in after] == before
    for page in after:
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert "script-src" not in policy, "none at all, then"
        assert page.headers["x-content-type-options"] == "nosniff"


# spreadsheets


async def test_no_cell_of_an_export_is_a_formula(attack: Attack) -> None:
    for path in ("/credits/statement.csv", "/payouts/export.csv"):
        text = (await attack.hub.admin.get(path)).text
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert len(rows) > 1
        for cell in (cell for row in rows for cell in row):
            number = re.fullmatch(r"-?\d+(\.\d+)?", cell)
            assert number or not cell.lstrip(" ").startswith(
                ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
            ), cell
    assert (
        any("calc" in cell for row in rows for cell in row)
        or "calc" in (await attack.hub.admin.get("/credits/statement.csv")).text
    ), "the words of top-ups are in the statement"


# terminals


HARMLESS = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]*")


@given(
    st.text()
    | st.sampled_from(ANSI)
    | st.lists(st.sampled_from([*ANSI, *"\x1b[mx\x9b\u061c\u2028\u2029\u200f"])).map("".join)
)
def test_nothing_that_commands_a_terminal_is_printed(text: str) -> None:
    assert HARMLESS.fullmatch(printable(text))
    coloured = re.sub(r"\x1b\[[0-9;]*m|\r", "", printable(text, colours=True))
    assert HARMLESS.fullmatch(coloured)


@pytest.mark.parametrize("text", PAYLOADS)
def test_text_without_terminal_commands_is_printed_unchanged(text: str) -> None:
    assert printable(text) == text
    assert printable(f"\x1b[31m{text}\x1b[0m", colours=True) == f"\x1b[31m{text}\x1b[0m"


@pytest.mark.parametrize("text", ANSI)
def test_tables_fields_notes_and_json_are_harmless(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output.print_table(("NAME", "WORDS"), [(text, f"a\tb\nc{text}")], empty="")
    output.print_fields([("name", text)])
    output.write_line(text)
    output.note(text)
    monkeypatch.setattr(output, "_as_json", True)
    assert output.print_json({"name": text})
    written = capsys.readouterr()
    assert HARMLESS.fullmatch(written.out + written.err)
    assert len(written.out.splitlines()[0].split("\t")) == 2, "one row of two columns"


def test_commands_print_through_one_door() -> None:
    """Exports write what the hub sent, for files and pipes; everything else goes through output.py."""
    folder = Path(output.__file__).parent
    direct = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo"))
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout.write", "sys.stderr.write"))
    }
    assert direct <= {"output.py", "payouts.py"}
