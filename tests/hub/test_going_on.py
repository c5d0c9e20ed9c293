"""What a job needs to go on is still there: files of its neighbours, time to wait in, and the host that it named."""

from __future__ import annotations

from typing import Any

import pytest

from computepool.hub.services import leases
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub import test_checkpoints
from tests.hub.cast import upload
from tests.hub.storing import digest_of
from tests.hub.submitting import job, submit
from tests.hub.test_checkpoints import MINUTE, SAVES, crowd, lost, others, placed, saved, wait

hub = test_checkpoints.hub
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


# files


async def saved_as(node: NodeDouble, attempt_id: str, *, seq: int, **files: bytes) -> dict[str, Any]:
    """As agents do: sent under the names that they have in the checkpoint."""
    listed = [
        {"name": name, "digest": await upload(node.client, data, name=name), "size": len(data)}
        for name, data in files.items()
    ]
    answer = await node.checkpoint(attempt_id, seq=seq, files=listed)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("sent", ["before", "between"])
async def test_a_checkpoint_that_is_replaced_takes_no_other_jobs_output_along(
    hub: HubDouble, sent: str
) -> None:
    """Many files are alike, such as all that are empty. What the checkpoint alone needed goes."""
    sam, [node] = await crowd(hub, 1)
    await submit(sam, spec=SAVES)
    [saving] = await node.take()
    [beside] = await submit(sam)
    [grant] = await node.take()
    if sent == "before":
        assert await upload(node.client, b"", name="out") == NOTHING
    wait(hub, MINUTE, node)
    assert (await saved_as(node, saving.attempt_id, seq=1, printed=b"", state=b"one"))["kept"]
    wait(hub, MINUTE, node)
    if sent == "between":
        await upload(node.client, b"", name="printed")  # also where it has the same name
    assert (await saved_as(node, saving.attempt_id, seq=2, printed=b"hello", state=b"two"))["kept"]
    outputs = [{"name": "out", "digest": NOTHING, "size": 0}]
    assert await node.report(grant.attempt_id, outputs=outputs) == "accepted"
    done = await job(sam, beside)
    assert (done["state"], done["error"]) == ("succeeded", None)
    one = [{"name": "state", "digest": digest_of(b"one"), "size": 3}]
    wait(hub, MINUTE, node)
    answer = await node.checkpoint(saving.attempt_id, seq=3, files=one)
    assert answer.json()["reason"] == "Not uploaded: state.", "the first one's own file is not kept for days"
