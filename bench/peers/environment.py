"""A virtual environment per peer under .make/peers, created when it is first needed and when its lock file changes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from uv import find_uv_bin

from bench.children import ROOT, NotMeasured

HOME = ROOT / ".make" / "peers"
REQUIREMENTS = Path(__file__).parent / "requirements"
INSTALL_S = 120.0
_STAMP = ".requirements.sha256"


def python_with(requirements: str, *, limit_s: float = INSTALL_S) -> Path:
    """The Python of the environment with the packages in requirements/<name>.txt."""
    lock = REQUIREMENTS / f"{requirements}.txt"
    folder = HOME / requirements
    python, stamp = folder / "bin" / "python", folder / _STAMP
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    deadline = time.monotonic() + limit_s
    shutil.rmtree(folder, ignore_errors=True)
    uv = find_uv_bin()
    # Compile everything, so that the first measurement does not include it.
    options = ["--require-hashes", "--only-binary", ":all:", "--compile-bytecode", "--requirement", str(lock)]
    run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], deadline=deadline)
    run([uv, "pip", "install", "--quiet", "--python", str(python), *options], deadline=deadline)
    stamp.write_text(digest)
    return python


def run(command: Sequence[str], *, deadline: float, cwd: Path = ROOT) -> None:
    limit_s = max(deadline - time.monotonic(), 0.1)
    try:
        done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, timeout=limit_s)
    except FileNotFoundError:
        raise NotMeasured(f"could not be installed: there is no {command[0]}") from None
    except subprocess.TimeoutExpired:
        raise NotMeasured("could not be installed in the remaining time") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"{command[0]} failed").splitlines()[-1]
        raise NotMeasured(f"could not be installed: {last.strip()}")
