"""What somebody sees who uses it for the first time: headers over the right cells, errors that name what was typed."""

from __future__ import annotations

import pytest

from computepool.cli import output, queues
from computepool.protocol.queueing import LeaseView, LoadView, QueueRow, QueueView


def test_a_row_of_another_length_than_the_headers_is_never_printed() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        output.print_table(("A", "B"), [("1", "2", "3")], empty="")


def test_the_queue_s_headers_stand_over_their_cells() -> None:
    load = LoadView(cpu_percent=100, rss_mb=20, processes=3)
    lease = LeaseView(
        attempt_id="a", job_id="job_1", state="running", since_ms=0, age_ms=5, lane="cpu", cores=1, load=load
    )
    node = QueueRow(
        node_id="n", name="studio", online=True, state="active", running=1, leased=0, cores_free=1,
        cores_total=2, ram_free_mb=10, ram_total_mb=20, jobs=["job_1"], leases=[lease], hidden=2, load=load,
    )  # fmt: skip
    rows = list(queues._leases(QueueView(queued=0, delayed=0, nodes=[node])))
    assert len(rows) == 2
    assert {len(row) for row in rows} == {len(queues._LEASES)}
    assert len(queues._node(node)) == len(queues._NODES)
    assert dict(zip(queues._NODES, queues._node(node), strict=True))["LOAD"] == "100 %, 20 MiB, 3"
    assert dict(zip(queues._LEASES, rows[0], strict=True))["STATE"] == "running"
