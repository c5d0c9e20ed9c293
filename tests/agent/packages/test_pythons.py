"""Other Pythons than the agent's own: fetched by uv from a mirror on this machine, run in every sandbox."""

from __future__ import annotations

import dataclasses
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.config import MIB, AgentConfig
from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.packages.pythons import LEAST, fetchable
from computepool.agent.sandbox.selftest.selftest import BACKENDS
from computepool.core.errors import BadRequest
from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import JobSpec, Needs
from tests.agent.conftest import QUICK, Node, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, script, until
from tests.agent.packages.test_installs import Index, indexing, wheel
from tests.agent.python_mirror import Mirror, make_mirror

#: Fetching one takes ten seconds, and more where others work beside.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

LEVELS = [
    pytest.param(backend.level.label, marks=() if backend.level is Level.NAMESPACE else pytest.mark.soak)
    for backend in BACKENDS
]
BOXED = sorted(backend.level.label for backend in BACKENDS if backend.level >= Level.NAMESPACE)
#: Also of what it starts itself, by name.
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
    """What one test fetched the next finds: that takes several seconds, and is not what they are about."""
    for folder in (ground / "pythons", data_dir / "cache"):
        folder.mkdir(mode=0o755, exist_ok=True)
    (data_dir / "cache" / "pythons").symlink_to(ground / "pythons")


@pytest.fixture
def index() -> Iterator[Index]:
    with indexing() as found:
        yield found


def calling(mirror: Mirror, folder: Path, source: str = VERSIONS, **fields: Any) -> JobSpec:
    return JobSpec(
        kind=JobKind.FUNCTION,
        name="function",
        function=mirror.other.pickled(source, folder / "pickling"),
        needs=Needs(python=mirror.other.minor),
        timeout_s=60,
        **fields,
    )


async def run(hub: FakeHub, spec: JobSpec) -> str:
    report = await hub.run(spec, timeout_s=200)
    return report.attempt_id


@pytest.mark.soak
@pytest.mark.parametrize("level", LEVELS)
async def test_a_function_runs_in_the_python_that_it_was_pickled_with(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path, level: str
) -> None:
    node = await start_node(
        level=level, fetch_python=True, python_mirror=mirror.listed(tmp_path / "list.json")
    )
    minor = mirror.other.minor
    assert node.machine.profile.fetches_python == [minor]
    first = await run(hub, calling(mirror, tmp_path))
    report = hub.reports[first]
    assert report.outcome is Outcome.SUCCEEDED, report.error
    assert json.loads(report.result or "") == [minor, minor]
    await until(lambda: "".join(hub.log_texts[first].values()) == f"[Fetching Python {minor}]\n")
    told = script("import sys; print('%d.%d' % sys.version_info[:2])", needs=Needs(python=minor))
    second = await run(hub, told)
    assert "".join(hub.log_texts[second].values()) == f"{minor}\n", "it is fetched once"
    other = await run(hub, told.model_copy(update={"needs": Needs(python=f"!={PYTHON}.*")}))
    assert hub.log_texts[other]["stdout"] == f"{minor}\n"
    own = await run(hub, script("import sys; print('%d.%d' % sys.version_info[:2])"))
    assert hub.log_texts[own]["stdout"] == f"{PYTHON}\n"
    await no_job_changes_it(node, hub, minor)


async def no_job_changes_it(node: Node, hub: FakeHub, minor: str) -> None:
    [folder] = (node.config.cache_dir / "pythons").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["python"]
    writing = "import os\ntry: open(os.__file__, 'a')\nexcept OSError: print('refused')\n"
    attempt = await run(hub, script(writing, needs=Needs(python=minor)))
    if os.geteuid() == 0 or node.machine.sandbox.level is not Level.PROCESS:
        assert hub.log_texts[attempt]["stdout"] == "refused\n"
    for path in folder.rglob("*"):
        info = path.lstat()
        assert info.st_uid == os.geteuid()
        assert path.is_symlink() or not info.st_mode & 0o022


@pytest.mark.usefixtures("fetched")
@pytest.mark.parametrize("level", [pytest.param("process", marks=pytest.mark.soak), BOXED[-1]])
async def test_packages_are_those_of_that_python(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, index: Index, tmp_path: Path, level: str
) -> None:
    index.wheels = {name: wheel(name, {f"{name}.py": b"V = 7\n"}) for name in ("always", "older")}
    minor = mirror.other.minor
    node = await start_node(
        level=level,
        fetch_python=True,
        python_mirror=mirror.listed(tmp_path / "list.json"),
        package_index=index.url,
    )
    source = "def function():\n    import always\n    return always.V"
    wanted = ["always", f'older; python_version != "{minor}"']
    attempt = await run(hub, calling(mirror, tmp_path, source, dependencies=wanted))
    assert hub.reports[attempt].result == "7", hub.reports[attempt].error
    [folder] = (node.config.cache_dir / "environments").iterdir()
    tag = minor.replace(".", "")
    assert [path.name for path in folder.rglob("*.pyc")] == [f"always.cpython-{tag}.pyc"]
    spec = script("import older; print(older.V)", dependencies=wanted)
    own = await run(hub, spec)
    assert hub.log_texts[own]["stdout"] == "7\n", hub.reports[own].error


@pytest.mark.soak
@pytest.mark.parametrize("wrong", [{"sha256": "1" * 64}, {"url": "file:///nonexistent/python.tar.gz"}])
async def test_a_download_that_fails_is_not_the_jobs_fault(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path, wrong: dict[str, str]
) -> None:
    node = await start_node(fetch_python=True, python_mirror=mirror.listed(tmp_path / "list.json", **wrong))
    report = hub.reports[await run(hub, calling(mirror, tmp_path))]
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.STAGING_FAILED)
    why = "Hash mismatch" if "sha256" in wrong else "No such file"
    assert (report.error or "").startswith(f"Python {mirror.other.minor} could not be fetched here: error: ")
    assert why in (report.error or "")
    assert not list((node.config.cache_dir / "pythons").iterdir())


async def test_one_that_does_not_run_here_is_not_the_jobs_fault(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path
) -> None:
    """An archive as its list says, with a program in it that is none."""
    name = f"python{mirror.other.minor}"
    (tmp_path / name).write_text("#!/nonexistent/interpreter\n")
    (tmp_path / name).chmod(0o755)
    archive = tmp_path / "broken.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / name, f"python/bin/{name}")
        for data in (mirror.other.prefix / "lib" / name).glob("_sysconfigdata_*.py"):  # uv looks at it
            packed.add(data, f"python/lib/{name}/{data.name}")
    broken = dataclasses.replace(mirror, archive=archive)
    await start_node(level=BOXED[-1], fetch_python=True, python_mirror=broken.listed(tmp_path / "list.json"))
    report = hub.reports[await run(hub, calling(mirror, tmp_path))]
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.STAGING_FAILED)
    assert "it does not run in this node's sandbox" in (report.error or "")


@pytest.mark.parametrize("fetches", [False, True])
async def test_what_was_never_offered_is_refused(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path, fetches: bool
) -> None:
    """By a hub that does not know better; it is not run with another Python than the one asked for."""
    await start_node(fetch_python=fetches, python_mirror=mirror.listed(tmp_path / "list.json"))
    minor = "3.99" if fetches else mirror.other.minor
    for spec in (
        script("print(1)", needs=Needs(python=minor)),
        calling(mirror, tmp_path).model_copy(update={"needs": Needs(python=minor)}),
    ):
        report = hub.reports[await run(hub, spec)]
        assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.STAGING_FAILED)
        assert report.error == f"this node has Python {PYTHON} and does not fetch Python {minor}"


def slow_uv(folder: Path, version: str, then: str) -> tuple[str, Path]:
    """In the place of uv: offers this version, and does something else than getting it. Where its process id will be."""
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
        (
            "head -c 8000000 /dev/zero > file; exec sleep 1000",
            {"python_bytes_max": 4 * MIB},
            "larger than 4 MB",
        ),
        ("exec sleep 1000", {"python_fetch_s": 0.2}, "longer than 0.2 s"),
        ("echo error: no >&2; exit 1", {}, "error: no"),
        ("exit 0", {}, "uv did not install it"),
    ],
)
async def test_a_download_has_a_size_and_a_time(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path, then: str, limits: Any, why: str
) -> None:
    uv, pid = slow_uv(tmp_path, mirror.other.version, then)
    node = await start_node(fetch_python=True, uv=uv, limits=dataclasses.replace(QUICK, **limits))
    report = hub.reports[await run(hub, calling(mirror, tmp_path))]
    assert report.reason is Reason.STAGING_FAILED
    assert why in (report.error or "")
    if pid.exists():  # On a busy machine the time may be over before it begins.
        assert not Path("/proc", pid.read_text().strip()).exists()
    assert not list((node.config.cache_dir / "pythons").iterdir())


async def test_a_cancelled_job_ends_its_download(
    hub: FakeHub, start_node: StartNode, mirror: Mirror, tmp_path: Path
) -> None:
    uv, pid = slow_uv(tmp_path, mirror.other.version, "exec sleep 1000")
    await start_node(fetch_python=True, uv=uv)
    (attempt,) = hub.submit(calling(mirror, tmp_path))
    await until(pid.exists, timeout_s=60)
    hub.stop_attempt(attempt)
    await until(lambda: attempt in hub.reports, timeout_s=60)
    assert hub.reports[attempt].outcome is Outcome.CANCELLED
    assert not Path("/proc", pid.read_text().strip()).exists()


@pytest.mark.soak
@pytest.mark.usefixtures("fetched")
async def test_clearing_leaves_what_is_in_use(
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
    await until(lambda: attempt in hub.reports, timeout_s=60)
    await node.agent.command("clear_cache")
    assert not kept.exists()


def config(data_dir: Path, **fields: Any) -> AgentConfig:
    return AgentConfig(hub_url="http://hub.example", data_dir=data_dir, **fields)


def test_what_is_offered_is_what_uv_can_get(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert fetchable(config(data_dir)) == [], "only where the owner allows it"
    found = [tuple(map(int, minor.split("."))) for minor in fetchable(config(data_dir, fetch_python=True))]
    assert found == sorted(set(found))
    assert len(found) > 1
    assert all(minor >= LEAST for minor in found)
    assert tuple(map(int, PYTHON.split("."))) not in found
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("said", "offered"),
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
def test_what_uv_says_is_checked(data_dir: Path, tmp_path: Path, said: str, offered: list[str]) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\ncat <<'end'\n{said}\nend\n")
    uv.chmod(0o755)
    assert fetchable(config(data_dir, fetch_python=True, uv=str(uv))) == offered


def test_a_node_without_uv_offers_its_own_alone(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert fetchable(config(data_dir, fetch_python=True, uv="/nonexistent/uv")) == []
    assert f"jobs get only Python {PYTHON}" in caplog.text
    assert fetchable(config(data_dir, fetch_python=True, python_mirror="/nonexistent/list.json")) == []


def test_a_mirror_is_an_address_or_a_list(data_dir: Path) -> None:
    for right in ("https://mirror.example/pythons", "http://mirror.example/list.json", "/srv/list.json"):
        assert config(data_dir, python_mirror=right).python_mirror == right
    for wrong in ("mirror", "list.json", "/srv/pythons"):
        with pytest.raises(BadRequest, match="Python mirror"):
            config(data_dir, python_mirror=wrong)
