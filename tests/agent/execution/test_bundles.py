"""Several items in one call of a worker: each has its own value or traceback, and none disturbs the next."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computepool.protocol.jobs import bundles, packed
from computepool.sdk.code.functions import pickle_arguments
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, until

pytestmark = pytest.mark.anyio


def bundle(*items: Any) -> str:
    return base64.b64encode(bundles.pack([pickle_arguments((item,), {}) for item in items])).decode()


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20))
def test_what_is_packed_is_unpacked(items: list[bytes]) -> None:
    assert bundles.unpack(bundles.pack(items)) == items


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20))
def test_a_hub_knows_a_bundle_when_it_sees_one(items: list[bytes]) -> None:
    assert packed.is_packed(base64.b64encode(bundles.pack(items)).decode())


@pytest.mark.parametrize(
    "payload", [None, "", "*", "KKKK", base64.b64encode(b"[1]").decode(), "\xe9\xe9\xe9\xe9"]
)
def test_nothing_else_is_one(payload: str | None) -> None:
    assert not packed.is_packed(payload)


@given(st.binary(max_size=60))
def test_nothing_else_is_a_bundle(data: bytes) -> None:
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
def test_an_answer_to_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="answer every item"):
        bundles.read(text, 2, allow_pickle=False)


def test_one_that_cannot_be_read_spoils_no_other() -> None:
    first, second, third = bundles.read('[[0,1],[0,{"$pickle":"x"}],[1,"why"]]', 3, allow_pickle=False)
    assert (first, third) == ((bundles.VALUE, 1), (bundles.RAISED, "why"))
    assert second[0] == bundles.UNREADABLE
    assert "pickled" in str(second[1])


async def test_each_item_has_its_own_end(hub: FakeHub, start_node: StartNode) -> None:
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
    assert re.search(
        r"in misbehaving\n.*LookupError: no such thing <object object at 0x…>", answers[1][1], re.DOTALL
    )
    assert "worker" not in answers[1][1]
    assert "SystemExit: 3" in answers[2][1]
    assert "cannot be sent" in answers[6][1]
    await until(lambda: "item b" in hub.log_texts[report.attempt_id]["stdout"])


async def test_files_belong_to_one_item(hub: FakeHub, start_node: StartNode) -> None:
    """A bundle whose items leave files fails as a whole, and nothing of them is left for the next call."""

    def writing(name: str) -> str:
        import os
        from pathlib import Path

        if name:
            Path(os.environ["COMPUTEPOOL_OUTPUTS"], name).write_text(name)
        return name

    await start_node()
    spec = function(writing)
    (mixed,) = hub.submit(spec, [bundle("", "x", "")], lane="one")
    (clean,) = hub.submit(spec, [bundle("", "")], lane="one")
    await until(lambda: len(hub.reports) == 2)
    assert (hub.reports[mixed].reason, hub.reports[mixed].error) == (Reason.EXCEPTION, bundles.WROTE_OUTPUTS)
    assert not hub.reports[mixed].outputs
    assert hub.reports[clean].result == '[[0,""],[0,""]]'
