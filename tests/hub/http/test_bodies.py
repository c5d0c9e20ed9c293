"""Limits of request bodies: bytes, and JSON values to parse."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from computepool.hub.http.bodies import count_values
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import body, submit
from tests.hub.untouched import untouched

DIGITS = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=50,
)


def marks(value: Any) -> int:
    """The number of brackets and commas in the JSON text of a value."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(0, len(value) - 1) + sum(map(marks, inner))
    return 0


@pytest.mark.soak
@given(st.lists(DIGITS, max_size=20), st.text())
def test_values_are_counted_and_what_stands_in_strings_is_not(values: list[Any], text: str) -> None:
    # Many values, because a few are not counted exactly.
    sent = [*values, text * 3, ["[{,\\" + '"' * 3 + text] * 400]
    assert count_values(json.dumps(sent).encode()) == marks(sent)


@pytest.mark.soak
@pytest.mark.parametrize("unit", [b'"', b'\\"', b"[", b'"\\', b"[,{", b'"[', b'\\\\"', b"\\"])
def test_counting_takes_linear_time_for_any_input(unit: bytes) -> None:
    text = unit * (8 * 1024 * 1024 // len(unit))
    began = time.process_time()
    for sent in (text, b'"' + text, text + b"\\"):
        count_values(sent)
    assert time.process_time() - began < 10  # 0.2 s; in quadratic time it would be hours


async def test_too_many_values_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    async with running_hub(tmp_path, json_values_max=2_000) as hub:
        bomb = json.dumps(body() | {"x": [[]] * 2_000})
        async with untouched(hub):
            for kind in ("application/json", "application/json; charset=utf-8"):
                answer = await hub.admin.post("/jobs", content=bomb, headers={"Content-Type": kind})
                assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
                assert "2000 JSON values" in answer.json()["detail"]
        printed = body(spec={"argv": ["/bin/echo", "[]," * 2_000]})
        assert (await hub.admin.post("/jobs", json=printed)).status_code == 201


async def test_json_values_are_rate_limited_per_account(tmp_path: Path) -> None:
    clock, limits = FakeClock(), {"json_values_max": 1_000, "json_values_per_s": 1_000}
    async with running_hub(tmp_path, clock=clock, **limits) as hub:
        many = {"name": "g", "x": [1] * 700}
        other = await hub.account("other", "submitter")
        assert (await hub.admin.post("/groups", json=many)).status_code == 422
        refused = await hub.admin.post("/groups", json=many)
        assert (refused.status_code, int(refused.headers["retry-after"])) == (429, 1)
        assert (await other.post("/groups", json=many)).status_code == 422, "that of another is untouched"
        assert await submit(hub.admin), "few values are never counted"
        clock.advance(1_000)
        assert (await hub.admin.post("/groups", json=many)).status_code == 422


@pytest.mark.parametrize("path", ["/jobs", "/groups", "/next", "/complete", "/logs"])
async def test_the_body_of_an_unknown_caller_is_not_read(hub: HubDouble, path: str) -> None:
    """On the fast path and by the routes; tests/attacks/test_unknown_senders.py tests all routes over TCP."""
    read: list[bytes] = []

    async def sent() -> AsyncIterator[bytes]:
        for part in [b"["] * 4:
            read.append(part)
            yield part

    for headers in ({}, {"Authorization": "Bearer cp_0123456789abcdef_nobody"}):
        answer = await hub.client().post(path, content=sent(), headers=headers)
        assert (answer.status_code, read) == (401, [])


async def test_a_request_looks_its_caller_up_once(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    authenticator = hub.hub.identity.authenticator
    real = type(authenticator).person

    async def person(self: Any, key: str) -> Any:
        seen.append(key)
        return await real(self, key)

    monkeypatch.setattr(type(authenticator), "person", person)
    assert (await hub.admin.post("/groups", json={"name": "g"})).status_code == 201
    assert len(seen) == 1
    assert (await hub.admin.post("/jobs", content=b"[]", headers={"Content-Type": "application/json"})).is_error
    assert len(seen) == 2, "not even where the shortcut leaves a request to its twin"


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
async def test_bodies_in_other_encodings_are_refused(tmp_path: Path, coding: str) -> None:
    """In UTF-16, half a letter may look like a quotation mark, and what follows it would not be counted."""
    async with running_hub(tmp_path, json_values_max=2_000) as hub:
        bomb = json.dumps(["\u0122\u2201", *([[]] * 2_000)], ensure_ascii=False).encode(coding)
        kind = {"Content-Type": "application/json"}
        for path in ("/jobs", "/groups", "/next", "/complete"):
            async with untouched(hub):
                answer = await hub.admin.post(path, content=bomb, headers=kind)
            assert answer.status_code in (401, 403, 422), answer.text
            if answer.status_code == 422:
                assert answer.json()["detail"] == "The body is not valid JSON: it must be UTF-8."
