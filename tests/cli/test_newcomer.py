"""First impressions: headers above the right cells, bounded waits, and errors that name what was typed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import computepool.hub.main  # noqa: F401 - its import takes seconds on a busy machine
from computepool.cli import output
from computepool.cli.job import queue
from computepool.core.fleet.node_status import NodeStatus
from computepool.protocol.jobs.queueing import LeaseView, LoadView, QueueRow, QueueView
from computepool.sdk.classes import homes
from computepool.sdk.client.config import Config, save_config
from computepool.testing.processes import free_port
from tests.cli.conftest import Run
from tests.sdk.fake_hub import FakeHub


def test_a_table_row_must_have_as_many_cells_as_headers() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        output.print_table(("A", "B"), [("1", "2", "3")], empty="")


def test_the_cells_of_the_queue_match_its_headers() -> None:
    load = LoadView(cpu_percent=100, rss_mb=20, processes=3)
    lease = LeaseView(
        attempt_id="a", job_id="job_1", state="running", since_ms=0, age_ms=5, lane="cpu", cores=1, load=load
    )
    node = QueueRow(
        node_id="n", name="studio", online=True, state="active", status=NodeStatus.WORKING, running=1, leased=0, cores_free=1,
        cores_total=2, ram_free_mb=10, ram_total_mb=20, jobs=["job_1"], leases=[lease], hidden=2, load=load,
    )  # fmt: skip
    rows = list(queue._leases(QueueView(queued=0, delayed=0, nodes=[node])))
    assert len(rows) == 2
    assert {len(row) for row in rows} == {len(queue._LEASES)}
    assert len(queue._node(node)) == len(queue._NODES)
    assert dict(zip(queue._NODES, queue._node(node), strict=True))["LOAD"] == "100 %, 20 MB, 3"
    assert dict(zip(queue._LEASES, rows[0], strict=True))["STATE"] == "running"


@pytest.mark.parametrize(
    "arguments", [("group", "drain", "sweep", "--timeout", "0.5"), ("artifacts", "put", "--timeout", "0.5")]
)
def test_an_absent_hub_is_reported_within_the_timeout(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    save_config(Config(hub=f"http://127.0.0.1:{free_port()}", key="cp_test"))
    file = tmp_path / "data.csv"
    file.write_text("1")
    begun = time.monotonic()
    done = run(*arguments, *([file] if "put" in arguments else []))
    assert time.monotonic() - begun < 30
    assert (done.code, "Cannot reach the hub" in done.err) == (3, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("artifacts", "keep", "0" * 64, "--for", "banana"),
        ("node", "code", "--for", "1x"),
        ("artifacts", "get", "0" * 64, "--timeout", "x"),
    ],
)
def test_an_error_names_the_option_as_it_was_typed(hub: FakeHub, run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.code, done.err.startswith(f"{arguments[-2]}: ")) == (2, True), done.err


def test_a_local_node_is_found_wherever_its_data_is(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "node"
    folder.mkdir(parents=True)
    (folder / "identity.json").write_text(json.dumps({"node_id": "node_1"}))
    assert list(homes._local_node_ids()) == []
    homes.record_node_folder(folder)
    homes.record_node_folder(folder)
    homes.record_node_folder(tmp_path / "gone" / "node")
    assert list(homes._local_node_ids()) == ["node_1"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("COMPUTEPOOL_WEBHOOK_PRIVATE", "10.0.0.0/8,10.0.0.0/33", "'10.0.0.0/33' is not a network"),
        ("COMPUTEPOOL_JOBS_OPEN_MAX", "many", "valid integer"),
        ("COMPUTEPOOL_BLOBS", "s4://x", "s3://bucket/prefix"),
        ("COMPUTEPOOL_BLOBS", "s3://bucket/x", "artifact store failed"),
        ("COMPUTEPOOL_S3_ENDPOINT", "nonsense", "Invalid endpoint"),
    ],
)
def test_an_invalid_setting_is_reported_by_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    if "S3" in name or value.startswith("s3"):
        # Without credentials and without requests to the outside, the store's own error is reported.
        for variable in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(variable, str(tmp_path / "none"))
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("COMPUTEPOOL_BLOBS", "s3://bucket/x")
        monkeypatch.setenv("COMPUTEPOOL_S3_ENDPOINT", f"http://127.0.0.1:{free_port()}")
        monkeypatch.setenv("COMPUTEPOOL_S3_REGION", "us-east-1")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv(name, value)
    done = run("hub", "start", "--port", free_port())
    message = done.err.splitlines()[-1]
    assert done.code in (2, 3)
    assert words in message
    assert name.partition("_S3_")[0] in message
    assert "pydantic" not in done.err
    assert "Traceback" not in done.err


@pytest.mark.soak
def test_an_invalid_code_or_event_is_refused_at_once(hub: FakeHub, run: Run) -> None:
    done = run("host", "--name", "a", "--peer", hub.url, "--code", "a")
    assert (done.code, done.err) == (2, "--code: 'a' is not a valid code. Create one: pool node code\n")
    done = run("webhooks", "add", "https://example.org/x", "--event", "job.finnished")
    assert (done.code, "did you mean job.finished?" in done.err) == (2, True)


def test_exporting_without_a_key_is_refused(run: Run) -> None:
    done = run("seal", "export")
    assert (done.code, done.out, "pool seal init" in done.err) == (2, "", True)


@pytest.mark.soak
def test_the_dependencies_of_a_script_are_shown_before_submission(
    run: Run, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper.py").write_text("import numpy\n")
    script = tmp_path / "script.py"
    script.write_text("import helper\n")
    for command in (("submit", script), ("submit", script, "--quote"), ("quote", script)):
        printed = run(*command).err
        assert "Sends helper.py" in printed
        assert "Installs numpy==" in printed
    assert "Sends" not in run("submit", script, "--no-autodetect").err
    assert "Installs" not in run("submit", script, "--dep", "numpy").err
