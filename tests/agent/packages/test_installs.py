"""Installations of untrusted packages: within limits, only from the owner's index, and with nothing else of the owner's."""

from __future__ import annotations

import dataclasses
import os
import stat
from pathlib import Path

import httpx2
import pytest

from computepool.agent.config import MIB, AgentConfig
from computepool.agent.packages.builder import TooMuch, take_tree
from computepool.agent.packages.environments import find_uv
from computepool.agent.packages.package_index import PackageIndex
from computepool.core.errors import BadRequest
from computepool.core.isolation import Level
from computepool.core.network import Target, parse_target, target_of
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, script, until
from tests.agent.packages.local_index import Index, indexing, wheel

#: The size of a small tree on the disk: a folder, another in it, a file in that.
BLOCKS = 3 * 4096
BOXED = sorted(level.label for level in Level if level >= Level.NAMESPACE)


def requiring(*names: str, source: str = "print(1)") -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"# /// script\n# dependencies = [{listed}]\n# ///\n{source}"


@pytest.mark.soak
@pytest.mark.parametrize("level", ["process", *BOXED])
async def test_a_wheel_that_unpacks_to_too_much_is_the_jobs_fault(
    hub: FakeHub, start_node: StartNode, index: Index, level: str
) -> None:
    """A small wheel becomes a large folder, which harms neither the disk nor the node's reputation."""
    bomb = {f"bomb/{number}.bin": bytes(64 * MIB) for number in range(4)}
    index.wheels = {"bomb": wheel("bomb", bomb), "good": wheel("good", {"good.py": b"V = 7\n"})}
    assert len(index.wheels["bomb"]) < MIB
    limits = dataclasses.replace(QUICK, environment_bytes_max=64 * MIB)
    node = await start_node(level=level, limits=limits, package_index=index.url)
    report = await hub.run(script(requiring("bomb")))
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.BAD_JOB), report.error
    assert "more than 64 MB" in (report.error or "")
    assert not list((node.config.cache_dir / "environments").iterdir())
    report = await hub.run(script(requiring("good", source="import good; print(good.V)")))
    assert hub.log_texts[report.attempt_id]["stdout"] == "7\n", report.error


@pytest.mark.soak
@pytest.mark.parametrize("level", ["process", BOXED[-1]])
async def test_nothing_of_the_owners_reaches_an_installation(
    hub: FakeHub, start_node: StartNode, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Such as a private index in the owner's variables and files."""
    with indexing() as private:
        private.wheels = {"secret": wheel("secret", {"secret.py": b""})}
        index.wheels = {"good": wheel("good", {"good.py": b"V = 7\n"})}
        for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX"):
            monkeypatch.setenv(name, private.url)
        monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:password@{private.target}")
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".config/uv").mkdir(parents=True)
        (tmp_path / ".config/uv/uv.toml").write_text(f'extra-index-url = ["{private.url}"]\n')
        (tmp_path / "secret-1.0-py3-none-any.whl").write_bytes(private.wheels["secret"])
        await start_node(level=level, package_index=index.url, package_index_hosts=(index.target,))
        (secret,) = hub.submit(script(requiring("secret")))
        (good,) = hub.submit(script(requiring("good", source="import good; print(good.V)")))
        await until(lambda: len(hub.reports) == 2)
        assert hub.reports[secret].reason is Reason.BAD_JOB, hub.reports[secret].error
        assert hub.log_texts[good]["stdout"] == "7\n", hub.reports[good].error
        assert private.requests == []


@pytest.mark.parametrize("level", BOXED)
async def test_an_installation_reaches_the_index_and_nothing_else(
    hub: FakeHub, start_node: StartNode, level: str
) -> None:
    """Not even another port of this machine at which the index says that its files are."""
    with indexing() as elsewhere, indexing(files_at=f"http://{elsewhere.target}") as index:
        index.wheels = elsewhere.wheels = {"good": wheel("good", {"good.py": b""})}
        await start_node(level=level, package_index=index.url, package_index_hosts=(index.target,))
        report = await hub.run(script(requiring("good")))
        assert report.outcome is Outcome.FAILED
        assert elsewhere.requests == []
        assert "/simple/good/" in index.requests


@pytest.mark.soak
@pytest.mark.parametrize("level", ["process", BOXED[-1]])
async def test_installed_packages_belong_to_the_agent_and_no_job_changes_them(
    hub: FakeHub, start_node: StartNode, index: Index, level: str
) -> None:
    index.wheels = {"good": wheel("good", {"good.py": b"V = 7\n", "deep/er/x.py": b""})}
    node = await start_node(level=level, package_index=index.url)
    source = "import good, sys\ntry: open(good.__file__, 'a').write('#')\nexcept OSError: print('refused')\n"
    report = await hub.run(script(requiring("good", source=source)))
    [folder] = (node.config.cache_dir / "environments").iterdir()
    found = {path.relative_to(folder).as_posix(): path.lstat() for path in folder.rglob("*")}
    assert {"good.py", "deep/er/x.py"} <= found.keys()
    for info in found.values():
        assert (info.st_uid, info.st_mode & 0o022) == (os.geteuid(), 0)
        assert stat.S_ISDIR(info.st_mode) or (stat.S_ISREG(info.st_mode) and info.st_nlink == 1)
    if os.geteuid() == 0:  # Otherwise a plain process has the agent's own user.
        assert hub.log_texts[report.attempt_id]["stdout"] == "refused\n", report.error
    [compiled] = (folder / "__pycache__").glob("good.*.pyc")
    stamp = int.from_bytes(compiled.read_bytes()[8:12], "little")
    assert stamp == int((folder / "good.py").stat().st_mtime), "Python accepts the byte code"


def test_only_plain_files_are_taken_from_a_build(tmp_path: Path) -> None:
    made = tmp_path / "made"
    (made / "sub").mkdir(parents=True)
    (made / "sub/file").write_text("text")
    (made / "sub/file").chmod(0o4777)
    (made / "link").symlink_to("/etc/passwd")
    (made / "folder").symlink_to("/etc")
    os.mkfifo(made / "pipe")
    assert take_tree(made, tmp_path / "taken", bytes_max=BLOCKS) == BLOCKS, "two folders, one file"
    assert sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "taken").rglob("*")) == [
        "taken/sub",
        "taken/sub/file",
    ]
    assert (tmp_path / "taken/sub/file").stat().st_mode & 0o7777 == 0o755
    with pytest.raises(TooMuch):
        take_tree(made, tmp_path / "more", bytes_max=BLOCKS - 1)
    deep = made
    for _ in range(150):
        deep /= "d"
        deep.mkdir()
    with pytest.raises(TooMuch, match="deeper"):
        take_tree(made, tmp_path / "deep", bytes_max=1000 * BLOCKS)


def test_files_without_a_byte_are_counted(tmp_path: Path) -> None:
    """Millions of them would fill the disk."""
    made = tmp_path / "made"
    made.mkdir()
    for number in range(100):
        (made / str(number)).touch()
    with pytest.raises(TooMuch):
        take_tree(made, tmp_path / "taken", bytes_max=10 * BLOCKS)


async def test_the_index_names_the_hosts_of_its_files() -> None:
    pages = {
        "/simple/pip/": '{"files": [{"url": "https://files.example.org/a.whl"}, {"url": "http://[::1]:81/b.whl#x"}]}',
        "/html/pip/": '<a href="https://files.example.org/a.whl#sha256=1">a</a> <a href="../b.whl">b</a>',
    }
    requests = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request.url.path)
        found = pages.get(request.url.path)
        return httpx2.Response(404 if found is None else 200, text=found or "")

    def hosts_of(path: str, **given: tuple[str, ...]) -> PackageIndex:
        url = f"https://index.example.org{path}"
        return PackageIndex("uv", url=url, transport=httpx2.MockTransport(answer), **given)

    files, own = parse_target("files.example.org:443"), parse_target("index.example.org:443")
    assert await hosts_of("/simple/").hosts() == (own, files, Target("::1", 81))
    assert await hosts_of("/html").hosts() == (own, files)
    assert await hosts_of("/none").hosts() == (own,)
    requests.clear()
    assert await hosts_of("/simple", hosts=("files.example.org:443",)).hosts() == (own, files)
    assert requests == []


async def test_uv_names_its_default_index() -> None:
    assert target_of(await PackageIndex(find_uv()).url()).port == 443


@pytest.mark.parametrize(
    "fields",
    [
        {"package_index": "file:///opt/wheels"},
        {"package_index": "https://user:password@index.example.org/simple"},
        {"package_index": "index.example.org"},
        {"package_index_hosts": ("files.example.org",)},
    ],
)
def test_an_invalid_index_is_refused_at_the_start(tmp_path: Path, fields: dict[str, str]) -> None:
    with pytest.raises(BadRequest) as refused:
        AgentConfig(hub_url="http://hub", data_dir=tmp_path, **fields)
    assert refused.value.field == "package_index"
