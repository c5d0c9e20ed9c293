"""A whole group into a folder on this machine: for people without a home node. What is there already is not fetched again.

The folder is laid out as a home node's is (protocol/jobs/home_folder.py), but for files that are sealed to a key of the
person's: these are opened. Its manifest, which tells what lies there, is written last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from computepool.protocol import sealing
from computepool.protocol.file_digest import file_digest
from computepool.protocol.jobs import home_folder
from computepool.protocol.jobs.groups import GroupItem, GroupSummary
from computepool.protocol.jobs.home_folder import MANIFEST, RESULTS, SUMMARY, Placed
from computepool.protocol.sealing import About
from computepool.sdk.errors import BadRequest, NotFound
from computepool.sdk.jobs.options import PathLike

#: What the files were sealed as that are opened here: a line for each, with the SHA-256 of both.
_OPENED = ".opened"

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool


@dataclass(slots=True, kw_only=True)
class Fetched:
    """What is in the folder now."""

    folder: Path
    summary: GroupSummary
    items: int = 0
    files: int = 0
    bytes: int = 0
    missing: list[str] = field(default_factory=list)  #: artifacts that the hub does not have any more


def fetch_group(
    pool: Pool, group_id: str, folder: PathLike, *, progress: Callable[[Fetched], object] | None = None
) -> Fetched:
    """Download everything that has arrived so far. Run it again to resume, or when there is more."""
    target = Path(folder).expanduser()
    summary = pool.groups.summary(group_id)
    _check_folder(target, group_id)
    fetched = Fetched(folder=target, summary=summary)
    target.mkdir(parents=True, exist_ok=True)
    (target / SUMMARY).write_text(summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
    manifest: list[tuple[str, str]] = []
    opened = _opened_before(target)
    part = target / f".{RESULTS}.part"
    with part.open("w", encoding="utf-8") as lines:
        for item in pool.groups.items(group_id):
            places = _fetch_files(pool, item, fetched=fetched, manifest=manifest, opened=opened)
            for line in home_folder.lines(item, places):
                lines.write(json.dumps(line) + "\n")
                fetched.items += 1
            if progress is not None:
                progress(fetched)
    part.replace(target / RESULTS)
    own = [(file_digest(target / name), name) for name in (SUMMARY, RESULTS)]
    text = "".join(f"{digest}  {path}\n" for digest, path in [*own, *manifest])
    (target / MANIFEST).write_text(text, encoding="utf-8")
    return fetched


def _check_folder(folder: Path, group_id: str) -> None:
    """Two groups in one folder could not be told apart."""
    known = folder / SUMMARY
    if folder.exists() and not folder.is_dir():
        raise BadRequest(f"{folder} is not a folder.")
    if known.exists():
        try:
            other = json.loads(known.read_text(encoding="utf-8"))["id"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadRequest(f"{known} is not the summary of a group; choose another folder.") from error
        if other != group_id:
            raise BadRequest(f"{folder} contains a different group, {other}; choose another folder.")


def _opened_before(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / _OPENED).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return {sealed: plain for sealed, _, plain in (line.partition("  ") for line in lines)}


def _fetch_files(
    pool: Pool, item: GroupItem, *, fetched: Fetched, manifest: list[tuple[str, str]], opened: dict[str, str]
) -> list[dict[str, Any]]:
    places = []
    for file in home_folder.plan(item):
        place: dict[str, Any] = {"name": file.name, "path": file.path, "sha256": file.digest}
        target = fetched.folder.joinpath(*file.path.split("/"))
        digest = opened.get(file.digest, file.digest)
        try:
            if target.is_symlink() or not target.is_file() or file_digest(target) != digest:
                digest = _fetch_file(pool, file, target, job_id=item.job_id or "")
        except NotFound:
            fetched.missing.append(file.digest)
            places.append(place | {"missing": True})
            continue
        if digest != file.digest:
            place |= {"sha256": digest, "sealed": file.digest}
            if opened.get(file.digest) != digest:
                opened[file.digest] = digest
                with (fetched.folder / _OPENED).open("a", encoding="utf-8") as lines:
                    lines.write(f"{file.digest}  {digest}\n")
        fetched.files += 1
        fetched.bytes += target.stat().st_size
        manifest.append((digest, file.path))
        places.append(place)
    return places


def _fetch_file(pool: Pool, file: Placed, target: Path, *, job_id: str) -> str:
    """The SHA-256 of what lies there then: of a sealed file, which is opened, it is not the hub's."""
    about = About(job_id, sealing.OUTPUT if file.name else sealing.RESULT, file.name)
    pool.artifacts.get(file.digest, target, about=about)
    return file_digest(target)
