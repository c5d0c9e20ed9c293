"""Pythons other than the agent's own: fetched by uv from a mirror on this machine, and run in every sandbox."""

from __future__ import annotations

import dataclasses
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.config import MIB, AgentConfig
from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.packages.pythons import LEAST, fetchable
from computepool.core.errors import BadRequest
from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import JobSpec, Needs
from tests.agent.conftest import QUICK, Node, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, script, until
from tests.agent.packages.local_index import Index, wheel
from tests.agent.python_mirror import Mirror, make_mirror

#: Fetching one takes ten seconds, and more on a busy machine.
FETCH_S = 200

BOXED = sorted(level.label for level in Level if level >= Level.NAMESPACE)
#: The version of the job's own Python, and of the one that it starts by name.
VERSIONS = """
def function():
    import subprocess, sys, computepool
    asked = "import sys, computepool, cloudpickle; print('%d.%d' % sys.version_info[:2])"
    named = subprocess.run(["python3", "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    return ["%d.%d" % sys.version_info[:2], named]
"""


@pytest.fixture(scope="session")
def mirror(ground: Path) -> Mirror:
    folder = ground / "mirror"
    folder.mkdir()
    return make_mirror(folder)


@pytest.fixture
def fetched(ground: Path, data_dir: Path) -> None:
    """Tests share what they fetch: that takes several seconds, and is not their subject."""
    for folder in (ground / "pythons", data_dir / "cache"):
        folder.mkdir(mode=0o755, exist_ok=True)
    (data_dir / "cache" / "pythons").symlink_to(ground / "pythons")


def calling(mirror: Mirror, folder: Path, source: str = VERSIONS, **fields: Any) -> JobSpec:
    return JobSpec(
        kind=JobKind.FUNCTION,
        name="function",
        function=mirror.other.pickled(source, folder / "pickling"),
        needs=Needs(python=mirror.other.minor),
        timeout_s=60,
        **fields,
    )


@pytest.mark.soak
@pytest.mark.parametrize("level", [level.label for level in Level])
async def test_a_function_runs_in_the_python_that_pickled_it(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path, level: str
) -> None:
    node = await start_node(level=level, fetch_python=True, python_mirror=mirror.listed(tmp_path / "list.json"))
    minor = mirror.other.minor
    assert node.machine.profile.fetches_python == [minor]
    first = await hub.run(calling(mirror, tmp_path), timeout_s=FETCH_S)
    assert first.outcome is Outcome.SUCCEEDED, first.error
    assert json.loads(first.result) == [minor, minor]
    await until(lambda: "".join(hub.log_texts[first.attempt_id].values()) == f"[Fetching Python {minor}]\n")
    printing = script("import sys; print('%d.%d' % sys.version_info[:2])", needs=Needs(python=minor))
    second = await hub.run(printing, timeout_s=FETCH_S)
    assert "".join(hub.log_texts[second.attempt_id].values()) == f"{minor}\n", "it is fetched once"
    other = await hub.run(printing.model_copy(update={"needs": Needs(python=f"!={PYTHON}.*")}), timeout_s=FETCH_S)
    assert hub.log_texts[other.attempt_id]["stdout"] == f"{minor}\n"
    own = await hub.run(script("import sys; print('%d.%d' % sys.version_info[:2])"), timeout_s=FETCH_S)
    assert hub.log_texts[own.attempt_id]["stdout"] == f"{PYTHON}\n"
    await no_job_changes_it(node, hub, minor)


async def no_job_changes_it(node: Node, hub: FakeHub, minor: str) -> None:
    [folder] = (node.config.cache_dir / "pythons").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["python"]
    writing = "import os\ntry: open(os.__file__, 'a')\nexcept OSError: print('refused')\n"
    report = await hub.run(script(writing, needs=Needs(python=minor)), timeout_s=FETCH_S)
    if os.geteuid() == 0 or node.machine.sandbox.level is not Level.PROCESS:
        assert hub.log_texts[report.attempt_id]["stdout"] == "refused\n"
    for path in folder.rglob("*"):
        info = path.lstat()
        assert info.st_uid == os.geteuid()
        assert path.is_symlink() or not info.st_mode & 0o022


@pytest.mark.usefixtures("fetched")
@pytest.mark.parametrize("level", [pytest.param("process", marks=pytest.mark.soak), BOXED[-1]])
async def test_packages_are_installed_for_the_jobs_python(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, index: Index, tmp_path: Path, level: str
) -> None:
    index.wheels = {name: wheel(name, {f"{name}.py": b"V = 7\n"}) for name in ("always", "older")}
    minor = mirror.other.minor
    node = await start_node(
        level=level, fetch_python=True, python_mirror=mirror.listed(tmp_path / "list.json"), package_index=index.url
    )
    source = "def function():\n    import always\n    return always.V"
    wanted = ["always", f'older; python_version != "{minor}"']
    report = await hub.run(calling(mirror, tmp_path, source, dependencies=wanted), timeout_s=FETCH_S)
    assert report.result == "7", report.error
    [folder] = (node.config.cache_dir / "environments").iterdir()
    tag = minor.replace(".", "")
    assert [path.name for path in folder.rglob("*.pyc")] == [f"always.cpython-{tag}.pyc"]
    spec = script("import older; print(older.V)", dependencies=wanted)
    own = await hub.run(spec, timeout_s=FETCH_S)
    assert hub.log_texts[own.attempt_id]["stdout"] == "7\n", own.error


@pytest.mark.soak
@pytest.mark.parametrize("wrong", [{"sha256": "1" * 64}, {"url": "file:///nonexistent/python.tar.gz"}])
async def test_a_download_that_fails_is_not_the_jobs_fault(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path, wrong: dict[str, str]
) -> None:
    node = await start_node(fetch_python=True, python_mirror=mirror.listed(tmp_path / "list.json", **wrong))
    report = await hub.run(calling(mirror, tmp_path), timeout_s=FETCH_S)
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.STAGING_FAILED)
    why = "Hash mismatch" if "sha256" in wrong else "No such file"
    assert (report.error or "").startswith(f"Python {mirror.other.minor} could not be fetched here: error: ")
    assert why in (report.error or "")
    assert not list((node.config.cache_dir / "pythons").iterdir())


async def test_a_python_that_does_not_run_here_is_not_the_jobs_fault(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path
) -> None:
    """The archive matches its digest, but the program in it is not one."""
    name = f"python{mirror.other.minor}"
    (tmp_path / name).write_text("#!/nonexistent/interpreter\n")
    (tmp_path / name).chmod(0o755)
    archive = tmp_path / "broken.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / name, f"python/bin/{name}")
        for data in (mirror.other.prefix / "lib" / name).glob("_sysconfigdata_*.py"):  # uv reads it.
            packed.add(data, f"python/lib/{name}/{data.name}")
    broken = dataclasses.replace(mirror, archive=archive)
    await start_node(level=BOXED[-1], fetch_python=True, python_mirror=broken.listed(tmp_path / "list.json"))
    report = await hub.run(calling(mirror, tmp_path), timeout_s=FETCH_S)
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.STAGING_FAILED)
    assert "it does not run in this node's sandbox" in (report.error or "")


@pytest.mark.parametrize("fetches", [False, True])
async def test_a_python_that_was_not_offered_is_refused(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path, fetches: bool
) -> None:
    """Even if the hub sends such a job: it must not run with another Python."""
    await start_node(fetch_python=fetches, python_mirror=mirror.listed(tmp_path / "list.json"))
    minor = "3.99" if fetches else mirror.other.minor
    for spec in (
        script("print(1)", needs=Needs(python=minor)),
        calling(mirror, tmp_path).model_copy(update={"needs": Needs(python=minor)}),
    ):
        report = await hub.run(spec, timeout_s=FETCH_S)
        assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.STAGING_FAILED)
        assert report.error == f"this node has Python {PYTHON} and does not fetch Python {minor}"


def slow_uv(folder: Path, version: str, then: str) -> tuple[str, Path]:
    """A program in place of uv, which offers this version and then runs `then`; and the file with its process id."""
    listed = json.dumps([{"version": version, "implementation": "cpython", "variant": "default"}])
    uv, pid = folder / "uv", folder / "pid"
    uv.write_text(
        f"#!/bin/sh\n[ $2 = list ] && echo '{listed}' && exit\necho $$ > {pid}.new; mv {pid}.new {pid}\n{then}\n"
    )
    uv.chmod(0o755)
    return str(uv), pid


@pytest.mark.parametrize(
    ("then", "limits", "why"),
    [
        ("head -c 8000000 /dev/zero > file; exec sleep 1000", {"python_bytes_max": 4 * MIB}, "larger than 4 MB"),
        ("exec sleep 1000", {"python_fetch_s": 0.2}, "longer than 0.2 s"),
        ("echo error: no >&2; exit 1", {}, "error: no"),
        ("exit 0", {}, "uv did not install it"),
    ],
)
async def test_a_download_that_fails_or_exceeds_its_limits_is_ended(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path, then: str, limits: Any, why: str
) -> None:
    uv, pid = slow_uv(tmp_path, mirror.other.version, then)
    node = await start_node(fetch_python=True, uv=uv, limits=dataclasses.replace(QUICK, **limits))
    report = await hub.run(calling(mirror, tmp_path), timeout_s=FETCH_S)
    assert report.reason is Reason.STAGING_FAILED
    assert why in (report.error or "")
    if pid.exists():  # On a busy machine the time may be over before the program starts.
        assert not Path("/proc", pid.read_text().strip()).exists()
    assert not list((node.config.cache_dir / "pythons").iterdir())


async def test_a_cancelled_job_ends_its_download(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path
) -> None:
    uv, pid = slow_uv(tmp_path, mirror.other.version, "exec sleep 1000")
    await start_node(fetch_python=True, uv=uv)
    (attempt,) = hub.submit(calling(mirror, tmp_path))
    await until(pid.exists)
    hub.stop_attempt(attempt)
    await until(lambda: attempt in hub.reports)
    assert hub.reports[attempt].outcome is Outcome.CANCELLED
    assert not Path("/proc", pid.read_text().strip()).exists()


@pytest.mark.soak
@pytest.mark.usefixtures("fetched")
async def test_clearing_the_cache_keeps_a_python_in_use(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, data_dir: Path, tmp_path: Path
) -> None:
    node = await start_node(fetch_python=True, python_mirror=mirror.listed(tmp_path / "list.json"))
    marker = data_dir / "work" / "go"
    waiting = f"import os, time\nprint('here', flush=True)\nwhile not os.path.exists({str(marker)!r}): time.sleep(0.01)"
    (attempt,) = hub.submit(script(waiting, needs=Needs(python=mirror.other.minor)))
    await until(lambda: hub.log_texts[attempt]["stdout"] == "here\n", timeout_s=200)
    await node.agent.command("clear_cache")
    [kept] = (node.config.cache_dir / "pythons").iterdir()
    marker.touch()
    await until(lambda: attempt in hub.reports)
    await node.agent.command("clear_cache")
    assert not kept.exists()


def config(data_dir: Path, **fields: Any) -> AgentConfig:
    return AgentConfig(hub_url="http://hub.example", data_dir=data_dir, **fields)


def test_a_node_offers_what_uv_can_fetch(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert fetchable(config(data_dir)) == [], "only if the owner allows it"
    found = [tuple(map(int, minor.split("."))) for minor in fetchable(config(data_dir, fetch_python=True))]
    assert found == sorted(set(found))
    assert len(found) > 1
    assert all(minor >= LEAST for minor in found)
    assert tuple(map(int, PYTHON.split("."))) not in found
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("listed", "offered"),
    [
        ("[]", []),
        ("nonsense", []),
        ('[{"version": 3}]', []),
        ('[{"version":"3.98.0a1","implementation":"cpython","variant":"default"}]', []),
        ('[{"version":"3.98.0","implementation":"cpython","variant":"freethreaded"}]', []),
        ('[{"version":"3.98.0","implementation":"pypy","variant":"default"}]', []),
        ('[{"version":"3.8.20","implementation":"cpython","variant":"default"}]', []),
        ('[{"version":"2.7.18","implementation":"cpython","variant":"default"}]', []),
        ('[{"version":"3.98.1","implementation":"cpython","variant":"default","more":1}]', ["3.98"]),
    ],
)
def test_uvs_list_is_checked(data_dir: Path, tmp_path: Path, listed: str, offered: list[str]) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\ncat <<'end'\n{listed}\nend\n")
    uv.chmod(0o755)
    assert fetchable(config(data_dir, fetch_python=True, uv=str(uv))) == offered


def test_a_node_without_uv_offers_no_other_python(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert fetchable(config(data_dir, fetch_python=True, uv="/nonexistent/uv")) == []
    assert f"jobs get only Python {PYTHON}" in caplog.text
    assert fetchable(config(data_dir, fetch_python=True, python_mirror="/nonexistent/list.json")) == []


def test_a_mirror_is_an_address_or_a_list(data_dir: Path) -> None:
    for valid in ("https://mirror.example/pythons", "http://mirror.example/list.json", "/srv/list.json"):
        assert config(data_dir, python_mirror=valid).python_mirror == valid
    for invalid in ("mirror", "list.json", "/srv/pythons"):
        with pytest.raises(BadRequest, match="Python mirror"):
            config(data_dir, python_mirror=invalid)
