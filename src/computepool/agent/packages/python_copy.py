"""Run by a fetched Python in the jobs' sandbox: makes the copy of itself that jobs get.

If it runs here, it runs for jobs. The copy has what the worker needs and nothing superfluous, and byte code for all of it,
because jobs cannot write any. Uses only the standard library of every version that may be fetched.

    python3.12 -I python_copy.py EXTRAS TARGET [NAME_LEFT_OUT …]
"""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
from pathlib import Path

_NEEDED = "import ctypes, hashlib, json, socket, zlib, cloudpickle, computepool, computepool_worker"


def main(extras: Path, target: Path, left_out: set[str]) -> None:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    home = Path(sys.executable).parents[1]
    library = target / "lib" / name
    (target / "bin").mkdir(parents=True)
    shutil.copy2(home / "bin" / name, target / "bin" / name)

    def ignore(_: str, names: list[str]) -> set[str]:
        return {entry for entry in names if entry in left_out or entry.startswith("config-")}

    shutil.copytree(home / "lib" / name, library, ignore=ignore)
    for path in (home / "lib").glob("*.so*"):
        if not path.is_symlink():
            shutil.copy2(path, target / "lib" / path.name)
    shutil.copytree(extras, library / "site-packages", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(library, quiet=2)
    subprocess.run([target / "bin" / name, "-I", "-c", _NEEDED], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), set(sys.argv[3:]))
