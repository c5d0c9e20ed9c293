"""Downloads a whole group into a local folder, for users without a home node. Existing files are not fetched again.

The layout is that of a home node's folder (protocol/jobs/home_folder.py), except that files sealed to one of the user's
keys are decrypted. The manifest, which lists the files, is written last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from computepool.core.errors import BadRequest, NotFound
from computepool.protocol import sealing
from computepool.protocol.files import file_digest
from computepool.protocol.jobs import home_folder
from computepool.protocol.jobs.groups import GroupItem, GroupSummary
from computepool.protocol.jobs.home_folder import MANIFEST, RESULTS, SUMMARY
from computepool.sdk.jobs.options import PathLike

#: A line for each decrypted file, with the SHA-256 of its sealed and its plain content.
_OPENED = ".opened"

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool


@dataclass(slots=True, kw_only=True)
class Fetched:
    """The content of the folder after a download."""

    folder: Path
    summary: GroupSummary
    items: int = 0
    files: int = 0
    bytes: int = 0
    missing: list[str] = field(default_factory=list)  #: digests of artifacts that the hub no longer has


def fetch_group(
    pool: Pool, group_id: str, folder: PathLike, *, progress: Callable[[Fetched], object] | None = None
) -> Fetched:
    """Download everything that has arrived at the hub. Call it again to resume, or to fetch more."""
    target = Path(folder).expanduser()
    summary = pool.groups.summary(group_id)
    _check_folder(target, group_id)
    fetched = Fetched(folder=target, summary=summary)
    target.mkdir(parents=True, exist_ok=True)
    (target / SUMMARY).write_text(summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
    manifest: list[tuple[str, str]] = []
    opened = _read_opened_files(target)
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
    """Refuse a folder that contains a different group."""
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


def _read_opened_files(folder: Path) -> dict[str, str]:
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
                about = sealing.About(item.job_id or "", sealing.OUTPUT if file.name else sealing.RESULT, file.name)
                digest = file_digest(pool.artifacts.get(file.digest, target, about=about))  # of the decrypted content
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
