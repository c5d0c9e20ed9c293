"""A mirror of Pythons on this machine: another installed interpreter, packed as uv expects it, and functions that it pickles."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import pytest

from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.packages.pythons import LEAST
from computepool.agent.sandbox.runtime.tree import LEFT_OUT

_ASK = "import sys; print(sys.base_prefix, '.'.join(map(str, sys.version_info[:3])), sys.implementation.name)"


@dataclass(frozen=True)
class Other:
    """A Python other than the tests' own."""

    program: Path
    prefix: Path
    version: str

    @property
    def minor(self) -> str:
        return self.version.rpartition(".")[0]

    def pickled(self, source: str, folder: Path) -> str:
        """The `function` in this source, pickled by this Python, as a spec contains it."""
        (folder / "cloudpickle").mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path(cloudpickle.__file__).parent, folder / "cloudpickle", dirs_exist_ok=True)
        program = f"{source}\nimport base64, cloudpickle\nprint(base64.b64encode(cloudpickle.dumps(function)).decode())"
        env = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(
            [self.program, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=60
        )
        return ran.stdout.strip()


@functools.cache
def other_python() -> Other:
    installed = sorted(Path.home().glob(".pyenv/versions/*/bin"))
    folders = [*map(Path, os.get_exec_path()), *installed, Path("/usr/bin"), Path("/usr/local/bin")]
    for folder in folders:
        for program in sorted(folder.glob("python3.[0-9][0-9]")):
            if (found := _inspect(program)) is not None:
                return found
    pytest.skip(f"there is no CPython of {LEAST[0]}.{LEAST[1]} or newer here besides {PYTHON}")


def _inspect(program: Path) -> Other | None:
    """None if it is the tests' own Python, too old, or no interpreter at all."""
    command = [program, "-I", "-c", _ASK]
    facts = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.split()
    if len(facts) != 3 or facts[2] != "cpython":
        return None
    prefix, minor = Path(facts[0]), facts[1].rpartition(".")[0]
    usable = tuple(map(int, minor.split("."))) >= LEAST and minor != PYTHON
    real = prefix / "bin" / f"python{minor}"
    return Other(real, prefix, facts[1]) if usable and real.is_file() else None


@dataclass(frozen=True)
class Mirror:
    other: Other
    archive: Path

    def listed(self, file: Path, *, url: str = "", sha256: str = "") -> str:
        """A list with only this download. A test may state a wrong address or digest."""
        major, minor, patch = map(int, self.other.version.split("."))
        entry = {
            "name": "cpython",
            "arch": {"family": platform.machine(), "variant": None},
            "os": "linux",
            "libc": "gnu",
            "major": major,
            "minor": minor,
            "patch": patch,
            "prerelease": "",
            "url": url or self.archive.as_uri(),
            "sha256": sha256 or hashlib.sha256(self.archive.read_bytes()).hexdigest(),
            "variant": None,
            "build": None,
        }
        key = f"cpython-{self.other.version}-linux-{platform.machine()}-gnu"
        file.write_text(json.dumps({key: entry}))
        return str(file)


def make_mirror(folder: Path) -> Mirror:
    """Packs it in the layout of the builds that uv downloads: everything below `python`."""
    other = other_python()
    name = f"python{other.minor}"
    archive = folder / f"{name}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(other.program.resolve(), f"python/bin/{name}")
        for library in sorted((other.prefix / "lib").glob("libpython3*.so*")):
            packed.add(library, f"python/lib/{library.name}")
        packed.add(other.prefix / "lib" / name, f"python/lib/{name}", filter=_kept)
    return Mirror(other, archive)


def _kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = info.name.split("/")
    unwanted = any(part in {*LEFT_OUT, "__pycache__"} or part.startswith("config-") for part in parts)
    return None if unwanted or info.name.endswith(".a") else info
