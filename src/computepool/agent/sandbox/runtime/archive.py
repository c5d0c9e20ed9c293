"""Exports a runtime to a tar file, and imports one, which is verified before use."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from computepool.agent.sandbox.base import SandboxError
from computepool.agent.sandbox.runtime import manifest, runtime
from computepool.agent.sandbox.runtime.runtime import Runtime, RuntimeRecipe
from computepool.agent.sandbox.scratch import NEW_FILE
from computepool.protocol.files import check_name

_DIGEST_LENGTH = 64


def write(made: Runtime, file: Path) -> None:
    """Write a reproducible archive. Everything in it is below one folder, which is named by the digest."""
    made.verify()
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(made.root.rglob("*")):
            member = archive.gettarinfo(str(path), f"{made.digest}/{path.relative_to(made.root)}")
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = int(member.mtime)
            if member.islnk():  # A hard link becomes a file of its own.
                member.type, member.linkname, member.size = tarfile.REGTYPE, "", path.stat().st_size
            if member.isreg():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)


def read(cache_dir: Path, file: Path, recipe: RuntimeRecipe) -> Runtime:
    """Unpack, verify and select a runtime. Raises SandboxError if it is not usable."""
    store = runtime.open_store(cache_dir)
    with runtime.locked_store(store), runtime.building_folder(store) as building:
        try:
            with tarfile.open(file, "r:") as archive:
                claimed = _unpack(archive, building)
        except (tarfile.TarError, ValueError, OSError) as error:
            raise SandboxError(f"{file} is not an exported runtime: {error}") from error
        found = manifest.summarise(building).digest
        if found != claimed:
            raise SandboxError(f"{file} was changed: it claims digest {claimed[:12]} and has {found[:12]}")
        made = runtime.load(store, found) or runtime.adopt(store, building)
        runtime.load_chosen(store, recipe, made.digest)
        (store / runtime.CHOSEN).write_text(f"{made.digest}\n")
    return made


def _unpack(archive: tarfile.TarFile, target: Path) -> str:
    """Unpack only files, folders and links, never through a link; returns the name of the top folder."""
    names = set()
    for member in archive:
        digest, *parts = check_name(member.name)
        names.add(digest)
        if not parts:
            continue
        path = target.joinpath(*parts)
        if any((target / parent).is_symlink() for parent in Path(*parts).parents):
            raise ValueError(f"{member.name} is behind a link")
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if member.isdir():
            path.mkdir(mode=0o755, exist_ok=True)
            path.chmod(member.mode & 0o755)
        elif member.issym():
            path.symlink_to(member.linkname)
        elif member.isreg():
            _unpack_file(archive, member, path)
        else:
            raise ValueError(f"{member.name} is neither a file nor a folder nor a link")
    if len(names) != 1 or len(digest := names.pop()) != _DIGEST_LENGTH:
        raise ValueError("its files are not in one folder named by a digest")
    return digest


def _unpack_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    if content is None:
        raise ValueError(f"{member.name} has no content")
    with os.fdopen(os.open(path, NEW_FILE, 0o600), "wb") as opened:
        shutil.copyfileobj(content, opened)
        os.fchmod(opened.fileno(), member.mode & 0o755)
    os.utime(path, (member.mtime, member.mtime))
