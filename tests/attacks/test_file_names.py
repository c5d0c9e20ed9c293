"""Hostile file names: nothing is written or read outside its folder, and no header contains a name.

There are no archives here: the hub, the clients and the protocol pack and unpack nothing.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from computepool.agent.sandbox.collect import Caps, OutputCollector
from computepool.agent.sandbox.scratch import stage
from computepool.core.errors import ComputePoolError
from computepool.protocol.files import check_name
from computepool.sdk.jobs.outcome import place
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.cast import upload

NAMES = [
    "../x", "../../../../etc/cron.d/x", "/etc/passwd", "//etc/passwd", "a/../../x", "a/./b", "a//b", ".", "..", "...", "",
    "a/", "/", "~/.ssh/authorized_keys", "$HOME/x", "`id`", "$(id)", "a;b", "a|b", "a\nb", "a\r\nSet-Cookie: x=1", "a\x00b",
    "..\\..\\x", "C:\\x", "\\\\host\\share", "con", "nul.txt", "a" * 300, "/".join("a" * 40), "é" * 200, "\u202egnp.exe",
    "..%2f..%2fx", "%2e%2e/x", "a\u2215b", "．．/x", "-rf", "--help", ".outputs", "outputs/x", ".tmp/x", "a\x7fb", "\udc80",
    'a"; filename="b', "a\tb", "\ufeff..", "file:///etc/passwd", "link/x",
]  # fmt: skip
ANY = st.one_of(
    st.sampled_from(NAMES),
    st.text(max_size=80),
    st.lists(st.sampled_from(["..", ".", "", "a", "link", "~", "\x00", "/"]), max_size=6).map("/".join),
)


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in the folder, without following links."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        found[str(path.relative_to(root))] = (stat.S_IFMT(mode), path.read_bytes() if stat.S_ISREG(mode) else b"")
    return found


class Ground:
    """A folder to write into, with links that lead out of it, and neighbours that must not change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inside = root / "inside"
        self.inside.mkdir()
        (root / "x").write_text("mine")
        (root / "secret").mkdir()
        (root / "secret" / "key").write_text("mine")
        (self.inside / "link").symlink_to(root / "secret")
        (self.inside / "file").symlink_to(root / "x")
        self._before = self.outside()

    def outside(self) -> dict[str, tuple[int, bytes]]:
        return {name: what for name, what in tree(self.root).items() if not name.startswith("inside")}

    def untouched(self) -> bool:
        return self.outside() == self._before


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.mark.soak
@given(ANY)
@example("link/x")
@example("file")
def test_inputs_are_placed_in_the_work_folder_or_not_at_all(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        try:
            with stage(ground.inside, name) as file:
                file.write(b"x")
        except (ValueError, OSError):
            assert not any(what == (stat.S_IFREG, b"x") for what in tree(ground.inside).values())
        else:
            written = ground.inside.joinpath(*name.split("/"))
            assert written.read_bytes() == b"x"
            assert written.resolve().is_relative_to(ground.inside.resolve())
        assert ground.untouched()


@given(ANY)
@example("link/x")
def test_a_clients_outputs_land_in_the_folder_it_named(name: str) -> None:
    """Whoever fetches outputs must not trust their names."""
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "out"
        try:
            target = place(name, inside)
        except (ComputePoolError, ValueError, OSError):
            return
        assert os.path.normpath(target) == str(target)
        assert target.is_relative_to(inside)
        assert target != inside
        assert name.isprintable() or not any(ord(char) < 32 for char in name)


def test_outputs_are_collected_without_following_links(ground: Ground) -> None:
    (ground.inside / "fine").write_text("ok")
    os.mkfifo(ground.inside / "pipe")
    os.link(ground.root / "x", ground.inside / "hard")
    os.symlink("/etc/passwd", ground.inside / "absolute")
    odd = os.fsencode(ground.inside) + b"/\xff\xfe"
    Path(os.fsdecode(odd)).write_text("bytes")
    (ground.inside / "new\nline").write_text("x")
    collector = OutputCollector(ground.inside, Caps(files=100, total_bytes=10**6, file_bytes=10**6))
    taken = {output.name for output in collector}
    assert "fine" in taken
    assert not taken & {"link", "file", "pipe", "absolute", "link/key", "new\nline"}
    assert all(name.isprintable() for name in taken)
    assert ground.untouched()


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with running_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_an_artifacts_name_is_no_header_and_no_path(hub: HubDouble, name: str) -> None:
    data = f"{name!a}".encode()
    digest = hashlib.sha256(data).hexdigest()
    before = {path.name for path in hub.hub.settings.data_dir.rglob("*") if path.is_file()}
    sent = {"size": len(data), "name": name.encode(errors="replace").decode()}
    answer = await hub.admin.put(f"/artifacts/{digest}", params=sent, content=data)
    assert answer.status_code in (200, 422)
    if answer.status_code == 422:
        return
    fetched = await hub.admin.get(f"/artifacts/{digest}")
    assert fetched.content == data
    assert fetched.headers["content-disposition"] == "attachment"
    assert fetched.headers["content-type"] == "application/octet-stream"
    assert "set-cookie" not in fetched.headers
    new = {path.name for path in hub.hub.settings.data_dir.rglob("*") if path.is_file()} - before
    named = [file for file in new if not file.startswith("hub.sqlite")]
    assert all(re.fullmatch(rf"{digest}\.[0-9a-f]{{16}}", file) for file in named), "on disk it is called by its digest"


@pytest.mark.parametrize("name", [name for name in NAMES if name], ids=ascii)
async def test_names_in_jobs_have_no_control_characters_and_stay_words(hub: HubDouble, name: str) -> None:
    digest = await upload(hub.admin, b"an input")
    spec = {"kind": "command", "name": "n", "argv": ["x"], "inputs": [{"name": name, "digest": digest, "size": 8}]}
    sent = name.encode(errors="surrogatepass").decode(errors="replace") if "\udc80" in name else name
    spec["inputs"][0]["name"] = sent  # type: ignore[index]
    answer = await hub.admin.post("/jobs", json={"spec": spec, "items": [{}]})
    assert (answer.status_code == 201) == _is_accepted(sent), answer.text


def _is_accepted(name: str) -> bool:
    """The hub refuses the names that a node would refuse."""
    try:
        return bool(check_name(name)) and len(name) <= 255
    except ValueError:
        return False


@pytest.mark.parametrize("path", ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/x", "0" * 63, "A" * 64])
async def test_an_artifacts_address_is_its_digest_and_nothing_else(hub: HubDouble, path: str) -> None:
    answer = await hub.admin.get(f"/artifacts/{path}")
    assert answer.status_code in (404, 405, 422)
    assert b"root:" not in answer.content


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_nothing_that_strangers_reach_unpacks_archives() -> None:
    source = Path(__file__).parents[2] / "src" / "computepool"
    words = {"tarfile", "zipfile", "unpack_archive", "make_archive", "extractall"}
    own = source / "sdk" / "files" / "images.py"  # lists the names in a file that the user uploads
    for package in ("hub", "core", "protocol", "sdk", "cli"):
        for path in (source / package).rglob("*.py"):
            assert not (words - {"tarfile"} if path == own else words) & set(_imports(path)), path
