"""Installing a stranger's packages: within limits, from the owner's index alone, with nothing else of the owner's."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import io
import os
import stat
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from computepool.agent.config import MIB, AgentConfig
from computepool.agent.packages.builder import TooMuch, take_tree
from computepool.agent.packages.package_index import PackageIndex
from computepool.agent.sandbox.selftest.selftest import BACKENDS
from computepool.core.errors import BadRequest
from computepool.core.isolation import Level
from computepool.core.network import Target, parse_target, target_of
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, script, until

pytestmark = pytest.mark.anyio

#: What a small tree takes on the disk: a folder, another in it, a file in that.
BLOCKS = 3 * 4096
BOXED = sorted(backend.level.label for backend in BACKENDS if backend.level >= Level.NAMESPACE)


def wheel(name: str, files: dict[str, bytes]) -> bytes:
    """As small as zip can make it."""
    info = f"{name}-1.0.dist-info"
    written = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in written.items()
    )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, data in {**written, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(path, data)
    return made.getvalue()


class Index:
    """A package index on this machine's loopback: pages and wheels, and what was asked for."""

    def __init__(self, files_at: str = "") -> None:
        self.wheels: dict[str, bytes] = {}
        self.announced: list[str] = []
        self.files_at = files_at
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.announced.append(self.path)
                status, body = index.answer(self.path)
                self.send_response(status)
                page = self.path.endswith("/")
                self.send_header("Content-Type", "text/html" if page else "application/octet-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body if self.command == "GET" else b"")

            do_HEAD = do_GET  # noqa: N815 - the name is the library's

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple"

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer(self, path: str) -> tuple[int, bytes]:
        name = path.removeprefix("/simple/").strip("/")
        if path.startswith("/simple/") and name in self.wheels:
            file = f"{name}-1.0-py3-none-any.whl"
            return 200, f'<a href="{self.files_at}/files/{file}">{file}</a>'.encode()
        found = self.wheels.get(path.rpartition("/")[2].partition("-")[0])
        return (404, b"") if found is None else (200, found)


def indexing(files_at: str = "") -> contextlib.closing[Index]:
    return contextlib.closing(Index(files_at))


@pytest.fixture
def index() -> Iterator[Index]:
    with indexing() as found:
        yield found


def requiring(*names: str, source: str = "print(1)") -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"# /// script\n# dependencies = [{listed}]\n# ///\n{source}"


@pytest.mark.soak
@pytest.mark.parametrize("level", ["process", *BOXED])
async def test_an_archive_that_unpacks_to_more_than_it_may_is_the_jobs_fault(
    hub: FakeHub, start_node: StartNode, index: Index, level: str
) -> None:
    """A small wheel becomes a large folder: neither the disk nor the node's record suffers."""
    bomb = {f"bomb/{number}.bin": bytes(64 * MIB) for number in range(4)}
    index.wheels = {"bomb": wheel("bomb", bomb), "good": wheel("good", {"good.py": b"V = 7\n"})}
    assert len(index.wheels["bomb"]) < MIB
    limits = dataclasses.replace(QUICK, environment_bytes_max=64 * MIB)
    node = await start_node(level=level, limits=limits, package_index=index.url)
    report = await hub.run(script(requiring("bomb")), timeout_s=90)
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.BAD_JOB), report.error
    assert "more than 64 MB" in (report.error or "")
    assert not list((node.config.cache_dir / "environments").iterdir())
    report = await hub.run(script(requiring("good", source="import good; print(good.V)")), timeout_s=60)
    assert hub.log_texts[report.attempt_id]["stdout"] == "7\n", report.error


@pytest.mark.soak
@pytest.mark.parametrize("level", ["process", BOXED[-1]])
async def test_nothing_of_the_owners_reaches_an_installation(
    hub: FakeHub,
    start_node: StartNode,
    index: Index,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
) -> None:
    """Neither private indexes in variables and files of the owner's, nor what else is in them."""
    with indexing() as private:
        private.wheels = {"secret": wheel("secret", {"secret.py": b""})}
        index.wheels = {"good": wheel("good", {"good.py": b"V = 7\n"})}
        for name in (
            "UV_DEFAULT_INDEX",
            "UV_INDEX_URL",
            "UV_EXTRA_INDEX_URL",
            "PIP_EXTRA_INDEX_URL",
            "UV_INDEX",
        ):
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
        await until(lambda: len(hub.reports) == 2, timeout_s=90)
        assert hub.reports[secret].reason is Reason.BAD_JOB, hub.reports[secret].error
        assert hub.log_texts[good]["stdout"] == "7\n", hub.reports[good].error
        assert private.announced == []


@pytest.mark.parametrize("level", BOXED)
async def test_an_installation_reaches_the_index_and_nothing_else(
    hub: FakeHub, start_node: StartNode, level: str
) -> None:
    """Nor another port of this machine, where an index says that its files are."""
    with indexing() as elsewhere, indexing(files_at=f"http://{elsewhere.target}") as index:
        index.wheels = elsewhere.wheels = {"good": wheel("good", {"good.py": b""})}
        await start_node(level=level, package_index=index.url, package_index_hosts=(index.target,))
        report = await hub.run(script(requiring("good")), timeout_s=90)
        assert report.outcome is Outcome.FAILED
        assert elsewhere.announced == []
        assert "/simple/good/" in index.announced


@pytest.mark.soak
@pytest.mark.parametrize("level", ["process", BOXED[-1]])
async def test_what_was_installed_is_the_agents_and_no_job_changes_it(
    hub: FakeHub, start_node: StartNode, index: Index, level: str
) -> None:
    index.wheels = {"good": wheel("good", {"good.py": b"V = 7\n", "deep/er/x.py": b""})}
    node = await start_node(level=level, package_index=index.url)
    source = "import good, sys\ntry: open(good.__file__, 'a').write('#')\nexcept OSError: print('refused')\n"
    report = await hub.run(script(requiring("good", source=source)), timeout_s=60)
    [folder] = (node.config.cache_dir / "environments").iterdir()
    found = {path.relative_to(folder).as_posix(): path.lstat() for path in folder.rglob("*")}
    assert {"good.py", "deep/er/x.py"} <= found.keys()
    for info in found.values():
        assert (info.st_uid, info.st_mode & 0o022) == (os.geteuid(), 0)
        assert stat.S_ISDIR(info.st_mode) or (stat.S_ISREG(info.st_mode) and info.st_nlink == 1)
    if os.geteuid() == 0:  # else a plain process is the agent's own user
        assert hub.log_texts[report.attempt_id]["stdout"] == "refused\n", report.error
    [compiled] = (folder / "__pycache__").glob("good.*.pyc")
    stamp = int.from_bytes(compiled.read_bytes()[8:12], "little")
    assert stamp == int((folder / "good.py").stat().st_mtime), "Python uses it as it is"


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
    """Millions of them would leave the machine no room for others."""
    made = tmp_path / "made"
    made.mkdir()
    for number in range(100):
        (made / str(number)).touch()
    with pytest.raises(TooMuch):
        take_tree(made, tmp_path / "taken", bytes_max=10 * BLOCKS)


async def test_the_index_says_where_its_files_are() -> None:
    pages = {
        "/simple/pip/": '{"files": [{"url": "https://files.example.org/a.whl"}, {"url": "http://[::1]:81/b.whl#x"}]}',
        "/html/pip/": '<a href="https://files.example.org/a.whl#sha256=1">a</a> <a href="../b.whl">b</a>',
    }
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        found = pages.get(request.url.path)
        return httpx2.Response(404 if found is None else 200, text=found or "")

    def hosts_of(path: str, **given: tuple[str, ...]) -> PackageIndex:
        url = f"https://index.example.org{path}"
        return PackageIndex("uv", url=url, transport=httpx2.MockTransport(answer), **given)

    files, own = parse_target("files.example.org:443"), parse_target("index.example.org:443")
    assert await hosts_of("/simple/").hosts() == (own, files, Target("::1", 81))
    assert await hosts_of("/html").hosts() == (own, files)
    assert await hosts_of("/none").hosts() == (own,)
    asked.clear()
    assert await hosts_of("/simple", hosts=("files.example.org:443",)).hosts() == (own, files)
    assert asked == []


async def test_uv_says_which_index_is_its_own() -> None:
    from computepool.agent.packages.environments import find_uv

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
def test_an_index_that_cannot_be_is_refused_at_the_start(tmp_path: Path, fields: dict[str, str]) -> None:
    with pytest.raises(BadRequest) as refused:
        AgentConfig(hub_url="http://hub", data_dir=tmp_path, **fields)  # type: ignore[arg-type]
    assert refused.value.field == "package_index"
