"""Bundles: several items in one call of a worker, each with its own value or traceback."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.jobs import Item
from computepool.sdk.code.functions import pickle_arguments
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, until


def bundle(*items: Any) -> str:
    return base64.b64encode(bundles.pack([pickle_arguments((item,), {}) for item in items])).decode()


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20))
def test_a_packed_bundle_is_recognised_and_unpacked(items: list[bytes]) -> None:
    bundle = bundles.pack(items)
    assert bundles.unpack(bundle) == items
    assert Item(payload=base64.b64encode(bundle).decode()).is_bundle


@pytest.mark.parametrize("payload", [None, "", "*", "KKKK", base64.b64encode(b"[1]").decode(), "\xe9\xe9\xe9\xe9"])
def test_other_payloads_are_not_taken_for_a_bundle(payload: str | None) -> None:
    assert not Item(payload=payload).is_bundle


@given(st.binary(max_size=60))
def test_only_what_pack_makes_is_unpacked(data: bytes) -> None:
    for text in (data, bundles.MARK + data):
        try:
            items = bundles.unpack(text)
        except ValueError:
            continue
        assert bundles.pack(items) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "[[0,1]]", "[[0,1],[0]]", "[[0,1],[1,2]]", '[[0,1],[-1,"x"]]', '{"a":1}'),
        *('[[0,1],{"$tuple":[0,1]},3]', "[[true,1],[0,1]]", "[" * 9000),
    ],
)
def test_a_malformed_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="answer every item"):
        bundles.read(text, 2, allow_pickle=False)


def test_an_unreadable_item_does_not_affect_the_others() -> None:
    first, second, third = bundles.read('[[0,1],[0,{"$pickle":"x"}],[1,"why"]]', 3, allow_pickle=False)
    assert (first, third) == ((bundles.VALUE, 1), (bundles.RAISED, "why"))
    assert second[0] == bundles.UNREADABLE
    assert "pickled" in str(second[1])


async def test_each_item_ends_on_its_own(hub: FakeHub, start_node: StartNode) -> None:
    def misbehaving(what: Any) -> Any:
        import os
        import sys

        if what == "raise":
            raise LookupError(f"no such thing {object()}")
        if what == "exit":
            sys.exit(3)
        if what == "close":
            sys.stdout.close()
            os.chdir("/")
        if what == "fork" and os.fork() == 0:
            return "twice"
        print("item", what)
        return [what, os.getcwd() != "/"]

    await start_node()
    items = ["a", "raise", "exit", "fork", "close", "b", object]
    report = await hub.run(function(misbehaving), bundle(*items))
    assert report.outcome is Outcome.SUCCEEDED, report.error
    answers = json.loads(report.result or "")
    assert [kind for kind, _ in answers] == [0, 1, 1, 0, 1, 0, 1]
    assert [answers[place][1] for place in (0, 3, 5)] == [["a", True], ["fork", True], ["b", True]]
    assert re.search(r"in misbehaving\n.*LookupError: no such thing <object object at 0x…>", answers[1][1], re.DOTALL)
    assert "worker" not in answers[1][1]
    assert "SystemExit: 3" in answers[2][1]
    assert "cannot be sent" in answers[6][1]
    await until(lambda: "item b" in hub.log_texts[report.attempt_id]["stdout"])


async def test_a_bundle_whose_items_leave_files_fails_and_leaves_none_for_the_next_call(
    hub: FakeHub, start_node: StartNode
) -> None:

    def writing(name: str) -> str:
        import os
        from pathlib import Path

        if name:
            Path(os.environ["COMPUTEPOOL_OUTPUTS"], name).write_text(name)
        return name

    await start_node()
    spec = function(writing)
    mixed, clean = await hub.reports_of(hub.submit(spec, [bundle("", "x", ""), bundle("", "")], lane="one"))
    assert (mixed.reason, mixed.error, mixed.outputs) == (Reason.EXCEPTION, bundles.WROTE_OUTPUTS, [])
    assert clean.result == '[[0,""],[0,""]]'
