"""`pool host`: three hosts of a mesh on one machine, a refused one, and a clean end; and the checks of its options."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from computepool.cli.local.children import _LOG_KEPT_BYTES, Child, _open_log
from computepool.cli.local.host import MESH_SETTINGS, HostConfig, _address, _host_name, _merge
from computepool.cli.local.local_pool import LocalPool, sign_in
from computepool.core.errors import BadRequest, ComputePoolError, Conflict
from computepool.hub.settings import Settings
from computepool.protocol.jobs.jobs import Needs
from computepool.sdk import Pool, connect
from computepool.sdk.client.config import config_path, load_config
from computepool.testing.processes import free_port
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Run
from tests.sdk.fake_hub import FakeHub, Refusal

READY_S = 90


@dataclass
class Mesh:
    """Hosts on one machine that share a home folder."""

    folder: Path
    env: dict[str, str]
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, name: str, *arguments: object, **env: str) -> None:
        command = [sys.executable, "-m", "computepool.cli", "host", "--name", name, "--json"]
        with (self.folder / f"{name}.out").open("w") as out, (self.folder / f"{name}.err").open("w") as err:
            self.running[name] = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdout=out,
                stderr=err,
                env=self.env | env,
                text=True,
                stdin=subprocess.DEVNULL,
            )

    def ready(self, name: str) -> dict[str, Any]:
        """Wait for the document that it prints when it is ready."""
        path, process = self.folder / f"{name}.out", self.running[name]
        wait_until(lambda: path.read_text().endswith("}\n") or process.poll() is not None, READY_S, name)
        assert process.poll() is None, (self.folder / f"{name}.err").read_text()
        document: dict[str, Any] = json.loads(path.read_text())
        return document

    def refused(self, name: str) -> tuple[int, str]:
        code = self.running[name].wait(READY_S)
        return code, (self.folder / f"{name}.err").read_text()

    def stop(self, name: str) -> list[psutil.Process]:
        """Press Ctrl-C. Returns its child processes."""
        process = self.running.pop(name)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, (self.folder / f"{name}.err").read_text()
        return children

    def connect(self) -> Pool:
        """Connect like a terminal in the same home folder."""
        kept = json.loads(Path(self.env["COMPUTEPOOL_CONFIG"]).read_text())
        return connect(kept["hub"], kept["key"])


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    """A short path that other users may enter, because jobs run under their own uid if the tests run as root."""
    folder = Path(tempfile.mkdtemp(prefix="computepool-mesh-"))
    folder.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("COMPUTEPOOL_")}
    env |= {"COMPUTEPOOL_CONFIG": str(folder / "config.json"), "COMPUTEPOOL_DATA": str(folder / "data")}
    made = Mesh(folder, env)
    yield made
    for process in made.running.values():
        process.terminate()
    for process in made.running.values():
        process.wait(30)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.process
def test_three_hosts_join_a_fourth_is_refused_and_all_stop_cleanly(mesh: Mesh) -> None:
    port = free_port()
    small = ("--mesh-version", "analysis", "--cores", "1", "--ram", "1GB", "--sandbox", "process")
    mesh.start("laptop", "--port", port, *small, "--tag", "laptop")
    first = mesh.ready("laptop")
    assert first["url"] == f"http://127.0.0.1:{port}"
    assert f"--peer {first['url']} --mesh-version analysis --code {first['code']}" in first["join"]

    # One joins with the code, one with the key of this home folder, and one has another mesh version.
    mesh.start("linux-a", "--peer", first["url"], "--code", first["code"], *small, "--tag", "linux",
               "--property", "python=3.12")  # fmt: skip
    mesh.start("gpu-a", "--peer", first["url"], *small[2:], "--tag", "linux", "--tag", "gpu")
    mesh.start("odd", "--peer", first["url"], "--mesh-version", "other", COMPUTEPOOL_CODE=first["code"])
    code, words = mesh.refused("odd")
    assert (code, "mesh version analysis" in words, "mesh version other" in words) == (2, True, True), words
    linux, gpu = mesh.ready("linux-a"), mesh.ready("gpu-a")
    assert linux["url"] == "http://linux-a:8765"
    with mesh.connect() as pool:
        nodes = {node.name: node for node in pool.nodes.list()}
        assert {name: node.online for name, node in nodes.items()} == dict.fromkeys(
            ("laptop", "linux-a", "gpu-a"), True
        )
        assert {node.profile.mesh_version for node in nodes.values()} == {"analysis"}
        assert nodes["linux-a"].profile.properties == {"python": "3.12"}
        assert not (Path(gpu["data"]) / "hub").exists()
        assert [code.used for code in pool.nodes.codes()] == [1]
        _places_by_tags_and_urls(pool)
        job = pool.command(["sleep", "60"], wait=False, tags=["linux"], exclude_tags=["gpu"]).job_id
        wait_until(lambda: pool.jobs.get(job).state == "running", 60)
        [lease] = next(row.leases for row in pool.jobs.queue().nodes if row.name == "linux-a")
        assert (lease.job_id, len(lease.cpu_ids)) == (job, 1)

        # It returns its job when it stops, and its name alone starts it again with the same identity.
        children = mesh.stop("linux-a")
        wait_until(lambda: pool.jobs.get(job).state == "queued", 60)
        mesh.start("linux-a", "--mesh-version", "other")
        code, words = mesh.refused("linux-a")
        assert (code, "would change from analysis to other" in words) == (2, True), words
        mesh.start("linux-a")
        assert mesh.ready("linux-a") == linux
        wait_until(lambda: pool.jobs.get(job).state == "running", 60)
        again = pool.nodes.get(nodes["linux-a"].id)
        assert again.profile.model_copy(update={"disk_mb": 0}) == nodes["linux-a"].profile.model_copy(
            update={"disk_mb": 0}
        )
        pool.jobs.cancel(job)
    for name in ("linux-a", "gpu-a", "laptop"):
        children += mesh.stop(name)
    wait_until(lambda: not any(child.is_running() for child in children), 30, "the end of all processes")


def _places_by_tags_and_urls(pool: Pool) -> None:
    needs = Needs(tags=["linux"], prefer_tags=["gpu"], exclude_hosts=["http://linux-a:8765/"])
    hosts = {host.name: host for host in pool.jobs.preview(needs).hosts}
    assert [name for name, host in hosts.items() if host.ok] == ["gpu-a"]
    assert any("http://linux-a:8765" in reason for reason in hosts["linux-a"].failed)
    assert any("tag linux" in reason for reason in hosts["laptop"].failed)
    quote = pool.quote(["true"])
    assert (quote.economy, quote.hold_total, quote.verify) == ("none", 0, "none")


# ------------------------------------------------------------ without processes
def merged(before: HostConfig | None, name: str = "a", *, yes: bool = False, **given: Any) -> HostConfig:
    return _merge(before, name, yes=yes, given=given)


def test_a_host_keeps_its_settings() -> None:
    first = merged(None, mesh_version="v", peer="laptop:8765")
    assert first == HostConfig(name="a", mesh_version="v", peer="http://laptop:8765")
    assert merged(first) == first


@pytest.mark.parametrize(
    ("before", "given", "refused"),
    [
        (HostConfig(name="a"), {"peer": "http://other:1"}, "is the hub of its own mesh"),
        (HostConfig(name="b"), {}, "belongs to the host b"),
    ],
)
def test_a_host_cannot_become_a_different_one(before: HostConfig, given: dict[str, Any], refused: str) -> None:
    with pytest.raises(Conflict, match=refused):
        merged(before, yes=True, **given)


def test_a_new_version_or_hub_must_be_confirmed() -> None:
    before = HostConfig(name="a", mesh_version="v", peer="http://laptop:1")
    changes: list[dict[str, Any]] = [{"mesh_version": "w"}, {"peer": "http://laptop:2"}]
    for given in changes:
        with pytest.raises(Exception, match="--yes"):
            merged(before, **given)
        changed = merged(before, yes=True, **given)
        assert (changed.mesh_version, changed.peer) != (before.mesh_version, before.peer)


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "a b", "-x", "x" * 64, "a\n"])
def test_a_host_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        _host_name(name)


@pytest.mark.parametrize("address", ["http://x", "a/b", "x y", "[", "no@where"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(BadRequest):
        _address(address)


@pytest.mark.parametrize(
    ("given", "address"), [("no", "127.0.0.1"), ("[fe80::1]", "fe80::1"), ("laptop.local", "laptop.local")]
)
def test_an_address_may_be_an_ip_address_or_a_name(given: str, address: str) -> None:
    assert _address(given) == address


def test_an_invalid_mesh_version_is_refused(run: Run) -> None:
    done = run("host", "--name", "a", "--mesh-version", "two words")
    assert (done.code, "A mesh version consists of" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("--property", "python", "NAME=VALUE"), ("--ram", "lots", "is not valid"), ("--sandbox", "no", "one of")],
)
def test_an_invalid_node_option_is_refused_before_anything_starts(
    run: Run, option: str, value: str, words: str
) -> None:
    """A hub that was started in vain would leave the command line signed in to nothing."""
    done = run("host", "--name", "a", option, value)
    assert (done.code, words in done.err, "Starting" in done.err) == (2, True, False)
    assert not config_path().exists()


def test_joining_requires_a_code_or_a_key(run: Run) -> None:
    done = run("host", "--name", "a", "--peer", "http://127.0.0.1:1")
    assert (done.code, "--code CODE" in done.err, "pool login" in done.err) == (2, True, True)


@pytest.mark.soak
def test_joining_an_absent_hub_fails_at_once(run: Run) -> None:
    done = run("host", "--name", "a", "--peer", f"http://127.0.0.1:{free_port()}", "--code", "0" * 32)
    assert (done.code, "No host found at" in done.err, done.out) == (3, True, "")


def test_a_data_folder_is_used_by_one_process(tmp_path: Path) -> None:
    with LocalPool(tmp_path), pytest.raises(Conflict, match="Already running"), LocalPool(tmp_path):
        pass
    with LocalPool(tmp_path):
        pass


def test_a_key_is_stored_only_if_the_hub_accepts_it(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another hub may have got the port first."""
    before, requests = load_config(), []

    def route(*request: Any) -> Any:
        requests.append(request)
        raise Refusal(401, "unauthenticated")

    def check_alive() -> None:
        if requests:
            raise ComputePoolError("the hub is gone")

    machine = LocalPool(tmp_path)
    monkeypatch.setattr(hub, "route", route)
    monkeypatch.setattr(machine, "_check_alive", check_alive)
    with pytest.raises(ComputePoolError, match="the hub is gone"):
        sign_in(machine, hub.url, "cp_of_the_loser")
    assert load_config() == before


def test_only_its_owner_reads_the_log_of_a_child(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    log.touch(mode=0o644)
    with _open_log(log) as sink:
        sink.write(b"x" * 100)
    assert log.stat().st_mode & 0o777 == 0o600
    with _open_log(log) as sink:
        assert sink.seek(0, os.SEEK_END) == 100


def test_a_long_log_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    with log.open("wb") as sink:
        sink.truncate(_LOG_KEPT_BYTES)
    with _open_log(log) as sink:
        assert sink.seek(0, os.SEEK_END) == 0
        sink.write(b"new")
    assert log.read_bytes() == b"new"


@pytest.mark.soak
def test_the_last_output_excludes_earlier_starts(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    log.write_text("an error of yesterday\n")
    child = Child("hub", ["no-such-command"], log=log)
    child.wait(30)
    assert child.last_output()
    assert "yesterday" not in child.last_output()
    assert "yesterday" in log.read_text()
    child.stop()


def test_the_settings_of_a_mesh_exist() -> None:
    known = {f"COMPUTEPOOL_{name.upper()}" for name in Settings.model_fields}
    assert known >= MESH_SETTINGS.keys()
