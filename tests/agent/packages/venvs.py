"""Real virtual environments with small packages, for offers of a node's owner."""

from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path

from computepool.agent.sandbox.runtime.runtime import Runtime
from tests.agent.packages.local_index import wheel


def make_venv(folder: Path, runtime: Runtime, **modules: str) -> Path:
    """A virtual environment of the jobs' Python, which every user can read. `modules`: source by name, each a package 1.0."""
    subprocess.run([runtime.python, "-m", "venv", "--without-pip", folder], check=True, capture_output=True)
    [site] = (folder / "lib").glob("python3.*/site-packages")
    for name, source in modules.items():
        install(site, wheel(name, {f"{name}.py": source}))
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    return folder


def install(site: Path, archive: bytes) -> None:
    """What an installer does with a wheel of pure Python."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        opened.extractall(site)
