"""Jobs in images, at each level that has them: uploaded images, the image's own command, scripts and functions."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest

from computepool.core.jobs.lifecycle import JobKind, Outcome, Reason
from computepool.protocol.jobs.jobs import JobSpec
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, function, payload, script, until
from tests.agent.images.image_files import ImageFile, busybox, entry, folder, layer

LEVELS = ["namespace", "container", "gvisor"]


def upload(hub: FakeHub, image: ImageFile, folder: Path) -> str:
    data = image.save_oci(folder / "image.tar").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    hub.artifacts[digest] = data
    return f"artifact:{digest}"


def in_image(image: str, *argv: str, **fields: Any) -> JobSpec:
    return JobSpec(kind=JobKind.COMMAND, name="job", argv=list(argv), image=image, timeout_s=60, **fields)


@pytest.mark.parametrize("level", LEVELS)
async def test_jobs_see_the_image_and_their_own_folders(
    hub: FakeHub, start_node: StartNode, tmp_path: Path, level: str
) -> None:
    def from_image(number: int) -> tuple[int, str]:
        import sys

        with open("/app/data") as file:
            return number * 2, file.read() + str(sys.version_info[0])

    lower = busybox(compress="gzip")
    upper = layer(
        {"app/run.sh": 'echo "$GREETING from $(pwd)"; cat data', "app/data": "data", "bin/.wh.id": ""}, [folder("app")]
    )
    config = {
        "Env": ["PATH=/bin", "GREETING=hello", "HOME=/root"],
        "Entrypoint": ["sh"],
        "Cmd": ["run.sh"],
        "WorkingDir": "/app",
    }
    image = upload(hub, ImageFile([lower, upper], config), tmp_path)
    await start_node(level=level)
    check = (
        "pwd; echo $HOME; test -e /bin/id && echo lower; test -e /etc/hostname && echo host; "
        "echo x > /app/data 2>/dev/null && echo writable; "
        "for at in /tmp /run /var/tmp /dev/shm outputs; do echo y > $at/y || echo cannot write $at; done"
    )
    jobs = {
        "own": in_image(image),
        "given": in_image(image, "sh", "-c", check),
        "missing": in_image(image, "nosuch"),
        "script": script("#!/usr/bin/env python3\nprint(open('/app/data').read())", image=image),
        "shell": script("#!/bin/sh\npwd", image=image),
        "function": function(from_image, image=image),
    }
    ids = {name: hub.submit(spec, [payload(21)] if name == "function" else None)[0] for name, spec in jobs.items()}
    await until(lambda: len(hub.reports) == len(jobs))
    reports = {name: hub.reports[attempt] for name, attempt in ids.items()}
    logs = {name: hub.log_texts[attempt] for name, attempt in ids.items()}
    assert logs["own"]["stdout"] == "hello from /app\ndata", logs["own"]
    assert logs["given"]["stdout"] == "/job\n/job\n", logs["given"]
    assert [output.name for output in reports["given"].outputs or ()] == ["y"]
    assert reports["missing"].reason is Reason.BAD_JOB
    assert "nosuch" in (reports["missing"].error or "")
    assert logs["script"]["stdout"] == "data\n", logs["script"]
    assert logs["shell"]["stdout"] == "/job\n", logs["shell"]
    assert reports["function"].outcome is Outcome.SUCCEEDED, reports["function"].error
    assert "data3" in (reports["function"].result or "")
    assert sum("Unpacking image" in log["stderr"] for log in logs.values()) == 1
    key = image.replace("artifact:", "image:")
    await until(lambda: any(poll.cached and key in {item.key for item in poll.cached.items} for poll in hub.polls))


BAD = [
    (
        "other architecture",
        ImageFile([layer({"a": ""})], architecture="s390x"),
        "it is made for s390x, and this node is",
    ),
    ("climbs out", ImageFile([layer({}, [entry("../../evil", size=0)])]), "which leads out of it"),
    ("no layer", ImageFile([b"BZh" + b"x" * 600]), "only gzip and zstd"),
    (
        "long variables",
        ImageFile([busybox()], {"Env": [f"{name}={100_000 * name}" for name in "AB"], "Cmd": ["true"]}),
        "and environment take",
    ),
    ("a strange command", ImageFile([busybox()], {"Cmd": ["a\0b"]}), "has a NUL character"),
    ("no command", ImageFile([layer({"a": ""})]), "has no command of its own"),
]


async def test_a_bad_image_is_the_jobs_fault(hub: FakeHub, start_node: StartNode, tmp_path: Path) -> None:
    await start_node(level="namespace")
    attempts = [hub.submit(in_image(upload(hub, image, tmp_path)))[0] for _, image, _ in BAD]
    await until(lambda: len(hub.reports) == len(BAD))
    for attempt, (name, _, why) in zip(attempts, BAD, strict=True):
        report = hub.reports[attempt]
        assert (report.reason, why in (report.error or "")) == (Reason.BAD_JOB, True), f"{name}: {report.error}"


async def test_an_image_that_is_too_large(hub: FakeHub, start_node: StartNode, tmp_path: Path) -> None:
    limits = dataclasses.replace(QUICK, image_bytes_max=1_000_000)
    node = await start_node(level="namespace", limits=limits)
    bomb = ImageFile([layer({"zeros": bytes(30_000_000)}, compress="gzip")], {"Cmd": ["a"]})
    (attempt,) = hub.submit(in_image(upload(hub, bomb, tmp_path)))
    await until(lambda: hub.reports)
    report = hub.reports[attempt]
    assert (report.reason, "it takes more than 0 MB" in (report.error or "")) == (Reason.BAD_JOB, True), report.error
    left = node.config.cache_dir / "images"
    assert [list((left / name).iterdir()) for name in ("layers", "roots", "incoming")] == [[], [], []]


async def test_a_node_without_a_sandbox_refuses_images(hub: FakeHub, start_node: StartNode, tmp_path: Path) -> None:
    image = ImageFile([busybox()], {"Cmd": ["true"]})
    await start_node(level="process")
    (attempt,) = hub.submit(in_image(upload(hub, image, tmp_path)))
    await until(lambda: hub.reports)
    report = hub.reports[attempt]
    assert "which this node does not use" in (report.error or ""), report
