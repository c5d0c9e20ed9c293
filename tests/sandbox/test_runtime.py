"""What jobs see instead of the host's files: it has what they need and nothing else, and is repaired if it is damaged."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.base import SandboxError, Status
from computepool.agent.sandbox.runtime import runtime as runtimes, tree
from computepool.agent.sandbox.runtime.runtime import INSIDE, Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.slots import SandboxConfig
from tests.sandbox.running import eventually, run, run_python


def test_a_jobs_python_is_the_runtimes(sandbox: Sandbox, runtime: Runtime) -> None:
    code = "import sys, ssl, sqlite3, ctypes, hashlib; print(sys.prefix, sys.version_info[:2], *sys.path)"
    outcome = run_python(sandbox, code)
    assert outcome.exit.ok, outcome.err
    root = INSIDE if sandbox.level > 0 else str(runtime.path)
    assert outcome.out.startswith(f"{root} {sys.version_info[:2]}")
    assert "/root" not in outcome.out
    assert str(Path(sys.prefix)) not in outcome.out


def test_no_link_of_the_runtime_leads_out_of_it(runtime: Runtime) -> None:
    assert runtime.python.resolve().is_relative_to(runtime.root)
    assert not list(runtime.path.rglob("test_*.py"))
    for path in runtime.root.rglob("*"):
        if path.is_symlink():
            target = os.readlink(path)
            inside = runtime.root / target.lstrip("/") if target.startswith("/") else path.parent / target
            assert inside.exists(), path
            assert inside.resolve().is_relative_to(runtime.root), path


_TOP = {"bin", "dev", "etc", "job", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var"}
_PROGRAMS = "sh bash env cat ls grep sed awk tar gzip find xargs sort head tail date id ps timeout sha256sum"
_SURVEY = f"""
import json, locale, os, shutil, ssl, subprocess, time, zoneinfo, ctypes, ctypes.util
print(json.dumps({{
    "missing": [name for name in {_PROGRAMS!r}.split() if shutil.which(name) is None],
    "script": subprocess.getoutput("/usr/bin/env bash -c 'echo x | grep x | sed s/x/y/'"),
    "python": subprocess.getoutput("/usr/bin/python3 -c 'import sys; print(sys.prefix)'"),
    "certificates": len(ssl.create_default_context().get_ca_certs()) > 50,
    "zone": str(zoneinfo.ZoneInfo("Asia/Kolkata")),
    "locale": locale.setlocale(locale.LC_ALL, "C.UTF-8"),
    "local time": time.tzname[0],
    "libraries": [bool(ctypes.CDLL(name)) for name in ("libstdc++.so.6", "libgomp.so.1", "libgcc_s.so.1")],
    "top": sorted(os.listdir("/")),
    "local": os.path.exists("/usr/local"),
    "readable": os.access("/usr/share/doc", os.R_OK),
}}))
"""


def test_jobs_have_what_they_need(boxed: Sandbox) -> None:
    outcome = run_python(boxed, _SURVEY)
    assert outcome.exit.ok, outcome.err
    found = outcome.got
    assert set(found.pop("top")) <= _TOP
    assert found == {
        "missing": [],
        "script": "y",
        "python": "/opt/python",
        "certificates": True,
        "zone": "Asia/Kolkata",
        "locale": "C.UTF-8",
        "local time": "UTC",
        "libraries": [True, True, True],
        "local": False,
        "readable": False,
    }


def test_a_missing_program_is_explained(boxed: Sandbox, runtime: Runtime) -> None:
    for command in ("mount", "/usr/bin/mount"):
        ended = run(boxed, [command]).exit
        assert (ended.status, ended.code) == (Status.EXIT, 127)
        assert f"not in this node's runtime ({runtime.short})" in ended.detail
        assert f"pool node start --runtime-add {command}" in ended.detail
    own = run(boxed, ["./nothing"]).exit
    assert (own.code, own.detail) == (127, "./nothing: not found")


@pytest.mark.soak
def test_the_runtime_has_the_agents_packages_and_the_owners_additions(ground: Path) -> None:
    source = ground / "extra"
    (source / "pack" / "inner").mkdir(parents=True, exist_ok=True)
    (source / "pack" / "__init__.py").write_text("from pack.inner.value import VALUE\n")
    (source / "pack" / "inner" / "__init__.py").write_text("")
    (source / "pack" / "inner" / "value.py").write_text("VALUE = 42\n")
    (source / "single.py").write_text("import pack; print(pack.VALUE)\n")
    added = Path("/usr/share/misc")
    made = Runtime.prepare(
        ground / "cache", {"pack": source / "pack", "single.py": source / "single.py"}, add=["mount", str(added)]
    )
    ran = subprocess.run([made.python, "-I", "-c", "import single"], capture_output=True, text=True, check=True)
    assert ran.stdout == "42\n"
    assert list(made.path.rglob("value.*.pyc")), "a job cannot write byte code there"
    assert os.access(made.root / "usr/bin/mount", os.X_OK)
    assert not (made.root / "usr/bin/mount").stat().st_mode & 0o7022
    inside = made.root / str(added)[1:]
    assert _files(inside) == _files(added) != set()
    config = SandboxConfig(cache_dir=ground / "cache", runtime=made)
    with contextlib.closing(BubblewrapSandbox(config)) as sandbox:
        assert "mount from util-linux" in run(sandbox, ["mount", "--version"]).out


def _files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("path", ["/etc", "/home", "/opt/python", "/usr/../etc/shadow", "/usr/no-such", "no-such"])
def test_an_owner_cannot_add_every_path(ground: Path, path: str) -> None:
    with pytest.raises(SandboxError, match="runtime"):
        Runtime.prepare(ground / "elsewhere", {}, add=[path])


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees without Python's own library, for tests of their digests."""
    monkeypatch.setattr(tree, "_FOLDERS", ())
    monkeypatch.setattr(tree, "_PROGRAMS", ("sh",))
    monkeypatch.setattr(runtimes, "_check", lambda *_, **__: None)
    monkeypatch.setattr(tree.sysconfig, "get_path", lambda _: str(Path(json.__file__).parent))


def test_a_changed_file_is_noticed_and_repaired(ground: Path, light: None) -> None:
    module = ground / "changing.py"
    module.write_text("A = 1\n")
    made = Runtime.prepare(ground / "cache", {"changing.py": module})
    victim = made.path / tree.SITE / "changing.py"
    info = victim.stat()
    victim.write_text("A = 2\n")  # It has the same size, and gets the old time.
    os.utime(victim, ns=(info.st_atime_ns, info.st_mtime_ns))
    with pytest.raises(SandboxError, match="changed on disk"):
        made.verify()
    assert Runtime.prepare(ground / "cache", {"changing.py": module}) == made
    assert victim.read_text() == "A = 1\n"
    made.verify()


@pytest.mark.process
def test_an_unchanged_runtime_is_found_quickly(ground: Path, runtime: Runtime) -> None:
    took_s = []
    for _ in range(5):
        began = time.process_time()
        assert Runtime.prepare(ground / "cache", {}) == runtime
        took_s.append(time.process_time() - began)
    assert min(took_s) < 0.1


def test_the_digest_depends_on_the_content_alone(ground: Path, runtime: Runtime, light: None) -> None:
    module = ground / "changing.py"
    made = []
    for text in ("A = 1\n", "A = 2\n", "A = 1\n"):
        module.write_text(text)
        made.append(Runtime.prepare(ground / "cache", {"changing.py": module}))
    assert made[0].digest != made[1].digest
    assert made[0].path == made[2].path
    assert runtime.digest not in {one.digest for one in made}


def test_a_missing_package_is_named(ground: Path) -> None:
    with pytest.raises(SandboxError, match="nowhere"):
        Runtime.prepare(ground / "cache", {"nowhere": ground / "nowhere"})


def test_a_plain_process_cannot_change_the_runtime(process: Sandbox, runtime: Runtime) -> None:
    script = f"echo x > {runtime.path}/bin/x; rm -f {runtime.path}/bin/python3; true"
    assert run(process, ["sh", "-c", script]).exit.ok
    assert not (runtime.path / "bin" / "x").exists()
    assert runtime.python.exists()


def test_everybody_can_read_the_runtime_and_nobody_write_it(runtime: Runtime) -> None:
    for folder, folders, files in os.walk(runtime.path):
        for name in (*folders, *files):
            mode = os.stat(Path(folder, name)).st_mode
            assert mode & 0o444 == 0o444, Path(folder, name)
            assert not mode & 0o022, Path(folder, name)


_PREPARE = """
import sys
from pathlib import Path
from computepool.agent.sandbox.runtime.runtime import Runtime
print(Runtime.prepare(Path(sys.argv[1]), {}).digest)
"""


def _trees(cache: Path) -> list[str]:
    return [path.name for path in (cache / "runtimes").iterdir() if path.is_dir() and path.name[0] != "."]


@pytest.mark.soak
def test_builders_may_be_killed_or_run_at_the_same_time(ground: Path, runtime: Runtime) -> None:
    cache = ground / "contested"
    command = [sys.executable, "-c", _PREPARE, str(cache)]
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    assert eventually(lambda: any((cache / "runtimes").glob(".building-*/opt/python/lib")) if cache.exists() else False)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert not _trees(cache)
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    digests = {builder.communicate(timeout=60)[0].strip() for builder in builders}
    assert digests == {runtime.digest}
    assert _trees(cache) == [runtime.digest]
    assert not list((cache / "runtimes").glob(".building-*"))
    shutil.rmtree(cache)
