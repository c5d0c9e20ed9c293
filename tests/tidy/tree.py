"""The files that the tidy tests check: tracked, or about to be."""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "computepool"


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file that git tracks or would track, as it is on disk now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = {name for name in listed.stdout.split("\0") if name}
    return tuple(path for name in sorted(names) if (path := ROOT / name).is_file())


def sources() -> list[Path]:
    """The Python files that are shipped."""
    return [path for path in files() if path.is_relative_to(SRC) and path.suffix == ".py"]


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def name(path: Path) -> str:
    """A path as a reader knows it."""
    return str(path.relative_to(ROOT))


def text(path: Path) -> str | None:
    """A file's text, or None where it is not text."""
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None
