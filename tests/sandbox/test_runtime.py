"""The jobs' Python: works for a user who cannot enter the agent's own, and survives rough treatment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from computepool.agent.sandbox.base import Sandbox, SandboxError
from computepool.agent.sandbox.runtime import INSIDE, Runtime
from tests.sandbox.running import eventually, run, run_python


def test_jobs_python_is_the_runtime(sandbox: Sandbox, ground: Path, runtime: Runtime) -> None:
    code = "import sys, ssl, sqlite3, ctypes, hashlib; print(sys.prefix, sys.version_info[:2], *sys.path)"
    outcome = run_python(sandbox, code, ground=ground)
    assert outcome.exit.ok, outcome.err
    root = INSIDE if sandbox.level > 0 else str(runtime.path)
    assert outcome.out.startswith(f"{root} {sys.version_info[:2]}")
    assert "/root" not in outcome.out
    assert str(Path(sys.prefix)) not in outcome.out


def test_interpreter_in_a_closed_home_is_copied(runtime: Runtime) -> None:
    """On a machine whose interpreter is in /usr nothing is copied."""
    if Path(sys.base_prefix).is_relative_to("/usr"):
        assert (runtime.path / "pyvenv.cfg").exists()
    else:
        assert not runtime.python.resolve().is_relative_to(sys.base_prefix)
        assert not list(runtime.path.rglob("test_*.py"))


def test_extra_packages_and_modules(ground: Path, sandbox: Sandbox) -> None:
    source = ground / "extra"
    (source / "pack" / "inner").mkdir(parents=True, exist_ok=True)
    (source / "pack" / "__init__.py").write_text("from pack.inner.value import VALUE\n")
    (source / "pack" / "inner" / "__init__.py").write_text("")
    (source / "pack" / "inner" / "value.py").write_text("VALUE = 42\n")
    (source / "single.py").write_text("import pack; print(pack.VALUE)\n")
    made = Runtime.prepare(ground / "cache", {"pack": source / "pack", "single.py": source / "single.py"})
    assert (made.path / "lib").is_dir()
    python = str(made.python)
    ran = subprocess.run([python, "-I", "-c", "import single"], capture_output=True, text=True, check=True)
    assert ran.stdout == "42\n"
    assert list(made.path.rglob("value.*.pyc"))  # The job cannot write byte code there.


@pytest.mark.process
def test_second_call_is_quick_and_the_same(ground: Path, runtime: Runtime) -> None:
    took_s = []
    for _ in range(3):
        began = time.perf_counter()
        assert Runtime.prepare(ground / "cache", {}) == runtime
        took_s.append(time.perf_counter() - began)
    assert min(took_s) < 0.05


def test_content_names_the_runtime(ground: Path, runtime: Runtime) -> None:
    module = ground / "changing.py"
    made = []
    for text in ("A = 1\n", "A = 2\n", "A = 1\n"):
        module.write_text(text)
        made.append(Runtime.prepare(ground / "cache", {"changing.py": module}))
    assert made[0].digest != made[1].digest
    assert made[0].path == made[2].path
    assert runtime.digest not in {one.digest for one in made}


def test_missing_extra_is_named(ground: Path) -> None:
    with pytest.raises(SandboxError, match="nowhere"):
        Runtime.prepare(ground / "cache", {"nowhere": ground / "nowhere"})


def test_everything_is_readable_for_everyone(runtime: Runtime) -> None:
    for folder, folders, files in os.walk(runtime.path):
        for name in (*folders, *files):
            mode = os.stat(Path(folder, name)).st_mode
            assert mode & 0o444 == 0o444, Path(folder, name)
            assert not mode & 0o022, Path(folder, name)


_PREPARE = """
import sys
from pathlib import Path
from computepool.agent.sandbox.runtime import Runtime
print(Runtime.prepare(Path(sys.argv[1]), {}).digest)
"""


def test_concurrent_and_killed_builders(ground: Path, runtime: Runtime) -> None:
    cache = ground / "contested"
    command = [sys.executable, "-c", _PREPARE, str(cache)]
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    assert eventually(lambda: any(cache.glob(".building-*/lib")) if cache.exists() else False)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert not list(cache.glob("runtime-*"))
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    digests = {builder.communicate(timeout=60)[0].strip() for builder in builders}
    assert digests == {runtime.digest}
    assert len(list(cache.glob("runtime-*"))) == 1
    assert not list(cache.glob(".building-*"))
    shutil.rmtree(cache)


def test_job_cannot_change_the_runtime(sandbox: Sandbox, ground: Path, runtime: Runtime) -> None:
    root = INSIDE if sandbox.level > 0 else str(runtime.path)
    outcome = run(
        sandbox, ["sh", "-c", f"echo x > {root}/bin/x; rm -f {root}/bin/python3; true"], ground=ground
    )
    assert outcome.exit.ok
    assert not (runtime.path / "bin" / "x").exists()
    assert runtime.python.exists()
