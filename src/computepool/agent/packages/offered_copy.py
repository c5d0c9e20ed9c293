"""Run by the Python of an offered environment in the jobs' sandbox: makes byte code of what the worker needs, and loads it.

Uses only the standard library of every version that an environment may have.

    /opt/torch/.venv/bin/python3 -I offered_copy.py SOURCE TARGET MINOR
"""

from __future__ import annotations

import compileall
import py_compile
import shutil
import sys

_NEEDED = ("ctypes", "hashlib", "json", "socket", "zlib", "cloudpickle", "computepool", "computepool_worker")


def main(source: str, target: str, minor: str) -> None:
    actual = f"{sys.version_info.major}.{sys.version_info.minor}"
    if actual != minor:
        sys.exit(f"it is Python {actual}, and its packages are for {minor}")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(target, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    sys.path.insert(0, target)
    for name in _NEEDED:
        __import__(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
