"""Functions for a job to save checkpoints, resume from them, and move to another host.

Placed into every sandbox, next to job_context.py: imports only the standard library. It writes files to a folder that the
agent reads and announces them in a line of output, as any program can (docs/checkpoints.md). The agent trusts none of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NoReturn

#: Marker files that the agent puts into the checkpoint folder: it is too early to save again; the node is about to stop.
WAIT, STOP = "wait", "stop"
#: Where `save` stores the state of a job class, and its registered files.
STATE_FILE, FILES_FOLDER = "computepool-state", "files"
HOST_CHARS_MAX = 200
#: A job must declare at submission that it saves or moves.
_UNDECLARED = (
    "{call}() works only in a job that was submitted as one that {does}: pass {option}=True to pool.submit, map or run,"
    " or --{option} to `pool submit`"
)


class Moved(SystemExit):
    """Ends this run because the job continues on another host. It is not an error, so do not catch it."""

    #: Tells the worker that the function did not fail.
    computepool_moved = True

    def __init__(self, host: str) -> None:
        super().__init__(0)
        self.host = host


def checkpoint(*paths: str | os.PathLike[str], progress: float | None = None) -> bool:
    """Save files and folders, so that the next attempt can resume from here; `restored()` returns their folder.

    The files are copied, so you may change them afterwards. Returns False if nothing was saved, because the last
    checkpoint is very recent (such calls are cheap) or because the program does not run on a node.
    """
    return _may_save() and _publish(_named_files(paths), f"::checkpoint NAME{_fraction(progress)}")


def restored() -> Path | None:
    """The folder with the files of an earlier attempt's last checkpoint; None: start from the beginning."""
    place = os.environ.get("COMPUTEPOOL_RESTORED")
    return Path(place) if place and os.path.isdir(place) else None


def stopping() -> bool:
    """Whether this node is about to stop. Save at once: there is little time, and `checkpoint` always saves now."""
    folder = _folder()
    return folder is not None and (folder / STOP).exists()


def dispatch_to(host: str, *paths: str | os.PathLike[str]) -> NoReturn:
    """Continue on another host (name or ID): save the files, end here, and start there with `restored()`."""
    _move(host, _named_files(paths))


# for job classes


def save(state_text: str, files: Mapping[str, str | os.PathLike[str]], progress: float | None = None) -> bool:
    """Like `checkpoint`, for a state and registered files by name."""
    return _may_save() and _publish(_with_state(state_text, files), f"::checkpoint NAME{_fraction(progress)}")


def move(
    host: str, state_text: str, files: Mapping[str, str | os.PathLike[str]], *, moving: Collection[str] = ()
) -> NoReturn:
    """Like `dispatch_to`. Files named in `moving` are moved instead of copied; the node keeps them until the hub has them."""
    _move(host, _with_state(state_text, files), moving={f"{FILES_FOLDER}/{name}" for name in moving})


def restore_into(folder: str | os.PathLike[str]) -> tuple[str, dict[str, Path]] | None:
    """The state that `save` or `move` stored, and its files, which are copied into `folder` under their names."""
    source = restored()
    if source is None or not (source / STATE_FILE).is_file():
        return None
    placed: dict[str, Path] = {}
    top = source / FILES_FOLDER
    for path in sorted(top.rglob("*")):
        if path.is_file():
            name = path.relative_to(top).as_posix()
            placed[name] = Path(folder, name)
            placed[name].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, placed[name])
    return (source / STATE_FILE).read_text(encoding="utf-8"), placed


def _folder() -> Path | None:
    place = os.environ.get("COMPUTEPOOL_CHECKPOINT")
    return Path(place) if place else None


def _may_save() -> bool:
    folder = _folder()
    if folder is None and "COMPUTEPOOL_JOB_ID" in os.environ:
        raise RuntimeError(_UNDECLARED.format(call="checkpoint", does="saves checkpoints", option="checkpoints"))
    return folder is not None and (not (folder / WAIT).exists() or stopping())


def _move(host: str, files: dict[str, Path | str], moving: Collection[str] = ()) -> NoReturn:
    if not host or len(host) > HOST_CHARS_MAX or not host.isprintable():
        raise ValueError(f"pass a host's name or ID, not {host!r}")
    if "COMPUTEPOOL_JOB_ID" not in os.environ:
        raise RuntimeError("dispatch_to works only inside a job on a node")
    if not os.environ.get("COMPUTEPOOL_MOVES") or not _publish(files, f"::move NAME {host}", moving=moving):
        raise RuntimeError(_UNDECLARED.format(call="dispatch_to", does="moves", option="moves"))
    raise Moved(host)


def _with_state(state_text: str, files: Mapping[str, str | os.PathLike[str]]) -> dict[str, Path | str]:
    return {f"{FILES_FOLDER}/{name}": Path(path) for name, path in files.items()} | {STATE_FILE: state_text}


def _named_files(paths: Collection[str | os.PathLike[str]]) -> dict[str, Path | str]:
    """All files by their names in the checkpoint: relative to the working directory if they are in it."""
    here, found = Path.cwd(), dict[str, Path | str]()
    for given in map(Path, paths):
        top = given.absolute()
        base = here if top.is_relative_to(here) and top != here else top.parent
        if not top.exists():
            raise FileNotFoundError(f"nothing to save: {given} does not exist")
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                found[path.relative_to(base).as_posix()] = path
    return found


def _publish(files: Mapping[str, Path | str], line: str, moving: Collection[str] = ()) -> bool:
    """Write the files, given as paths or texts, and announce them. A hidden name keeps the agent away until then."""
    folder = _folder()
    if folder is None:
        return False
    name = uuid.uuid4().hex
    building = folder / f".{name}"
    building.mkdir(parents=True)
    try:
        for target, source in files.items():
            _write(source, building / target, move=target in moving)
        building.rename(folder / name)
    except BaseException:
        for target in moving:  # the job continues here and needs its files
            with contextlib.suppress(OSError):
                (building / target).rename(files[target])
        shutil.rmtree(building, ignore_errors=True)
        raise
    write_line(line.replace("NAME", name, 1))
    return True


def _write(source: Path | str, target: Path, *, move: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, str):
        target.write_text(source, encoding="utf-8")
        return
    if move:
        with contextlib.suppress(OSError):
            source.rename(target)
            return
    shutil.copyfile(source, target)


def _fraction(progress: float | None) -> str:
    return "" if progress is None else f" {min(1.0, max(0.0, float(progress))):.4f}"


def write_line(line: str) -> None:
    """Write to file descriptor 1, because the job may have replaced sys.stdout."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os.write(1, f"{line}\n".encode())


for _function in (checkpoint, restored, stopping, dispatch_to):
    _function.__module__ = "computepool"
