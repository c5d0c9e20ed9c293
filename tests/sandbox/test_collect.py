"""Results from, and inputs into, a folder that an untrusted program writes to."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from computepool.agent.sandbox.base import OUTPUTS, SandboxError
from computepool.agent.sandbox.collect import Caps, OutputCollector
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import give, make_workdir, remove_tree, require_reachable, stage, unreachable
from computepool.core.isolation import Level
from computepool.protocol.files import check_name
from tests.sandbox.running import started_attack


@pytest.fixture
def workdir(ground: Path) -> Iterator[Path]:
    folder = make_workdir(ground / "work", f"folder-{secrets.token_hex(6)}")
    yield folder
    remove_tree(folder)


def contents(collector: OutputCollector) -> dict[str, bytes]:
    return {output.name: os.pread(output.fd, output.size, 0) for output in collector}


def test_only_plain_files_come_back(sandbox: Sandbox, ground: Path) -> None:
    secret = ground / "collect-secret"
    secret.write_text("secret")
    with started_attack(sandbox, "evil_outputs", str(secret)) as job:
        ended = job.end()
        assert ended.exit.ok, ended.err
        collector = OutputCollector(job.workdir / OUTPUTS, Caps(file_bytes=1 << 20))
        found = contents(collector)
    locked = {"locked": b"locked"} if os.geteuid() == 0 else {}
    assert found == {"plain": b"fine", "setuid": b"#!/bin/sh\n", "a/b/c/deep": b"deep"} | locked
    reasons = {refused.name: refused.reason for refused in collector.refused}
    # gVisor keeps pipes and sockets in its own memory.
    special = {"pipe", "socket"} if sandbox.level is not Level.GVISOR else set()
    assert {"pipe", "socket"} & set(reasons) == special
    assert {reasons[name] for name in {"link", "folder_link"} | special} == {"not a regular file"}
    assert reasons["secret_twin"] == reasons["secret_twin_2"] == "has more than one hard link"
    assert "larger" in reasons["sparse"]
    assert {"bad\\udcffname", "new\\nline", "bell\\x07"} <= set(reasons)


def test_an_outputs_folder_that_became_a_link_is_refused(sandbox: Sandbox, ground: Path) -> None:
    (ground / "elsewhere").mkdir(exist_ok=True)
    (ground / "elsewhere" / "file").write_text("secret")
    with started_attack(sandbox, "replace_outputs", f"{ground}/elsewhere") as job:
        assert job.end().exit.ok
        collector = OutputCollector(job.workdir / OUTPUTS)
        assert contents(collector) == {}
        assert [refused.name for refused in collector.refused] == [OUTPUTS]
    assert (ground / "elsewhere" / "file").exists()


def test_number_size_depth_and_entries_are_capped(workdir: Path) -> None:
    outputs = workdir / OUTPUTS
    for number in range(10):
        (outputs / f"f{number}").write_bytes(b"x" * 100)
    (outputs / "a" / "b" / "c").mkdir(parents=True)
    (outputs / "a" / "b" / "c" / "deep").write_text("x")
    few = OutputCollector(outputs, Caps(files=3))
    assert len(contents(few)) == 3
    assert "more than 3 files" in few.refused[-1].reason
    small = OutputCollector(outputs, Caps(total_bytes=350))
    assert len(contents(small)) == 4  # three of 100 bytes, and the one of 1 byte
    flat = OutputCollector(outputs, Caps(depth=2))
    assert "a/b/c/deep" not in contents(flat)
    assert "nested deeper" in flat.refused[0].reason
    crowded = OutputCollector(outputs, Caps(entries=5))
    assert len(contents(crowded)) == 0
    assert "more than 5 entries" in crowded.refused[-1].reason


def test_an_iteration_that_stops_early_closes_its_descriptors(workdir: Path) -> None:
    (workdir / OUTPUTS / "a").mkdir()
    (workdir / OUTPUTS / "a" / "one").write_text("1")
    before = set(os.listdir("/proc/self/fd"))
    iterator = iter(OutputCollector(workdir / OUTPUTS))
    next(iterator)
    iterator.close()
    assert set(os.listdir("/proc/self/fd")) <= before, "the garbage collector may close others meanwhile"


def test_a_missing_outputs_folder_is_no_error(workdir: Path) -> None:
    (workdir / OUTPUTS).rmdir()
    assert contents(OutputCollector(workdir / OUTPUTS)) == {}


def test_an_input_is_never_written_outside_the_folder(workdir: Path, ground: Path) -> None:
    with stage(workdir, "data/input.txt") as file:
        file.write(b"input")
    with stage(workdir, "run.sh", executable=True) as file:
        file.write(b"#!/bin/sh\n")
    assert (workdir / "data" / "input.txt").read_bytes() == b"input"
    assert (workdir / "run.sh").stat().st_mode & 0o777 == 0o755
    os.symlink(ground, workdir / "out")
    for name in ("../x", "/etc/x", "a/../../x", "", "a//b", ".", "a/.", "nul\0", "line\n", "out/x", "data"):
        with pytest.raises((ValueError, OSError)):
            stage(workdir, name)
    with pytest.raises(FileExistsError):
        stage(workdir, "run.sh")
    assert not (ground / "x").exists()


@given(st.text(max_size=40))
def test_accepted_names_stay_below_the_folder(name: str) -> None:
    try:
        parts = check_name(name)
    except ValueError:
        return
    assert os.path.normpath(f"/base/{name}") == f"/base/{name}"
    assert "/".join(parts) == name
    assert name.isascii() or name.encode()


def test_deep_and_locked_trees_can_be_removed(sandbox: Sandbox) -> None:
    """Deeper than Python's stack, and longer than any path that the kernel takes."""
    with started_attack(sandbox, "deep_tree", 1500) as job:
        ended = job.end().exit
        assert ended.ok or "nested too deep" in ended.detail
    assert not job.workdir.exists()


def test_removing_a_tree_follows_no_link(ground: Path, workdir: Path) -> None:
    keep = ground / "keep"
    keep.mkdir(exist_ok=True)
    (keep / "file").write_text("x")
    os.symlink(keep, workdir / "link")
    os.symlink(keep / "file", workdir / "file_link")
    inner = make_workdir(workdir, "inner")
    os.symlink(keep, inner / "link")
    remove_tree(inner)
    remove_tree(workdir / "missing")
    assert (keep / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_changing_the_owner_follows_no_link(ground: Path, workdir: Path) -> None:
    target = ground / "owned-by-root"
    target.write_text("x")
    os.symlink(target, workdir / "link")
    give(workdir, 200_777)
    assert target.stat().st_uid == 0
    assert os.lstat(workdir / "link").st_uid == 200_777
    assert workdir.stat().st_uid == 200_777


@pytest.mark.skipif(os.geteuid() != 0, reason="jobs of an ordinary user's agent have its own uid")
def test_an_unreachable_folder_is_named(ground: Path) -> None:
    closed = ground / "closed"
    closed.mkdir(mode=0o700)
    (closed / "work").mkdir()
    assert unreachable(closed / "work") == closed
    assert unreachable(ground) is None
    with pytest.raises(SandboxError, match=str(closed)):
        require_reachable(closed / "work")


def test_a_work_folder_is_private(workdir: Path) -> None:
    assert stat.S_IMODE(workdir.stat().st_mode) == 0o700
    assert stat.S_IMODE(workdir.parent.stat().st_mode) & 0o011 == 0o011
