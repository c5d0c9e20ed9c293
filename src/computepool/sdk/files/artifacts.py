"""Files to and from the hub: streamed in chunks, resumed where they broke off, checked by SHA-256.

Memory stays flat whatever the size. A download appears under its name only when it is whole and verified.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

from computepool.protocol.artifacts import (
    ArtifactInfo,
    ArtifactPage,
    ArtifactView,
    KeepRequest,
    StorageView,
    UploadState,
)
from computepool.protocol.jobs.jobs import RESULT_MAX, InputFile
from computepool.protocol.sealing import MAGIC, RESULT, About, is_sealed
from computepool.sdk.client.paging import pages
from computepool.sdk.client.sizes import seconds
from computepool.sdk.client.transport import Transport
from computepool.sdk.errors import (
    BadRequest,
    ChecksumMismatch,
    ComputePoolError,
    Conflict,
    ResultUnreadable,
    TooLarge,
    Unavailable,
)
from computepool.sdk.files import sealing
from computepool.sdk.jobs.options import Inputs, PathLike, readable_file, validate

#: Bytes read and written at a time.
CHUNK_BYTES = 1024 * 1024
#: Bytes sent in one request: what is kept when the connection breaks.
PART_BYTES = 64 * CHUNK_BYTES
#: Breaks in a row, without a byte of progress, before a transfer is given up.
BREAKS_MAX = 20
INPUT_FILES_MAX = 1_000
PARTIAL_CONTENT = 206
#: A longer name leaves no room for what is put around it while the file is on its way.
_NAME_BYTES_MAX = 200

Seen: TypeAlias = Callable[[int, int], None]
Artifacts: TypeAlias = list[ArtifactView]


class ArtifactApi:
    """`pool.artifacts`: put, get, list, info, keep, rm."""

    def __init__(self, transport: Transport, *, max_result_bytes: int | None = None) -> None:
        self._transport = transport
        self._max_result_bytes = RESULT_MAX if max_result_bytes is None else max_result_bytes

    def put(self, path: PathLike, *, name: str | None = None, progress: Seen | None = None) -> InputFile:
        """Upload a file; what the hub has already is not sent again. The reply can be used in `inputs=`."""
        file = readable_file(path)
        with file.open("rb") as source:
            digest, size = _digest_of(source)
            artifact = validate(InputFile, name=name or file.name, digest=digest, size=size)
            self._upload(artifact, source, progress or _ignore)
        return artifact

    def put_bytes(self, data: bytes, *, name: str) -> InputFile:
        artifact = validate(InputFile, name=name, digest=hashlib.sha256(data).hexdigest(), size=len(data))
        self._upload(artifact, _Memory(data), _ignore)
        return artifact

    def get(
        self,
        digest: str,
        path: PathLike,
        *,
        progress: Seen | None = None,
        raw: bool = False,
        about: About | None = None,
    ) -> Path:
        """Download to `path`; in a folder the digest is the name. Resumes what an earlier call left.

        What is sealed to a key of yours is opened, if it was sealed as `about` (default: as any file); `raw` leaves it
        as it is.
        """
        target = Path(path).expanduser()
        if target.is_dir():
            target = target / digest
        target.parent.mkdir(parents=True, exist_ok=True)
        name = target.name
        if len(os.fsencode(name)) > _NAME_BYTES_MAX:
            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        part = target.with_name(f".{name}.{digest[:12]}.part")
        with part.open("a+b") as sink:
            self._download(digest, sink, progress or _ignore)
        if not raw and _starts_sealed(part):
            sealing.open_file(part, target, about=about)
            part.unlink()
        else:
            part.replace(target)
        return target

    def get_bytes(self, digest: str, *, about: About | None = None, max_bytes: int | None = None) -> bytes:
        """Into memory; more than `max_bytes` is refused before it is loaded."""
        sink = _Memory(b"", max_bytes)
        self._download(digest, sink, sink.expect)
        return sealing.open_bytes(bytes(sink.data), about=about)

    def get_result(self, digest: str, *, job_id: str) -> str:
        """What a function returned, encoded. A stranger's machine made it: no more of it is loaded than was agreed to."""
        try:
            about, most = About(job_id, RESULT), self._max_result_bytes
            return self.get_bytes(digest, about=about, max_bytes=most).decode()
        except TooLarge as error:
            raise ResultUnreadable(
                f"The result of job {job_id} is too large to load: {error.detail} Fetch it as a file: "
                f"pool artifacts get {digest[:12]} FILE; or connect(max_result_bytes=…).",
                job_id=job_id,
            ) from error

    def list(self, *, job_id: str | None = None, limit: int = 100) -> Artifacts:
        found = pages(self._transport, "/artifacts", ArtifactPage, limit=limit, params={"job_id": job_id})
        return [artifact for page in found for artifact in page.artifacts][:limit]

    def info(self, digest: str) -> ArtifactInfo:
        """What refers to it, how long it is kept, and whether it is complete."""
        return self._transport.get(f"/artifacts/{digest}/info", ArtifactInfo)

    def storage(self) -> StorageView:
        """Storage used by your account, and its quota."""
        return self._transport.get("/storage", StorageView)

    def keep(self, digest: str, *, duration: float | str | None = None) -> ArtifactInfo:
        """Keep it independently of its jobs: for `duration` (seconds, or "30d"), or until `release`."""
        span_s = None if duration is None else seconds(duration, what="duration")
        request = validate(KeepRequest, duration_s=span_s)
        return self._transport.put(f"/artifacts/{digest}/keep", ArtifactInfo, body=request)

    def release(self, digest: str) -> None:
        """Undo `keep`: it stays only as long as jobs and uploads need it."""
        self._transport.call("DELETE", f"/artifacts/{digest}/keep")

    def rm(self, digest: str) -> None:
        """Delete your references to it; the data is deleted once nothing refers to it."""
        self._transport.call("DELETE", f"/artifacts/{digest}")

    def inputs(self, inputs: Inputs) -> tuple[InputFile, ...]:
        """Upload what a job needs; a folder brings every file in it, under its relative name."""
        pairs = inputs.items() if isinstance(inputs, Mapping) else ((None, item) for item in inputs)
        found: dict[str, InputFile] = {}
        for name, item in pairs:
            for artifact in self._input(name, item):
                if artifact.name in found:
                    raise BadRequest(f"inputs: two files are named {artifact.name!r}; rename one of them.")
                found[artifact.name] = artifact
                if len(found) > INPUT_FILES_MAX:
                    raise BadRequest(f"inputs: more than {INPUT_FILES_MAX} files; send an archive instead.")
        return tuple(found.values())

    def _input(self, name: str | None, item: PathLike | InputFile) -> Iterator[InputFile]:
        if isinstance(item, InputFile):
            yield item if name is None else item.model_copy(update={"name": name})
            return
        path = Path(item).expanduser()
        if not path.is_dir():
            yield self.put(readable_file(path, what="inputs"), name=name)
            return
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            yield self.put(file, name=f"{name or path.resolve().name}/{file.relative_to(path).as_posix()}")

    def _upload(self, artifact: InputFile, source: IO[bytes] | _Memory, seen: Seen) -> None:
        path = f"/artifacts/{artifact.digest}"
        state = self._transport.get(f"{path}/upload", UploadState)
        breaks = 0
        while not state.complete:
            before = state.offset
            seen(before, artifact.size)
            try:
                state = self._send_part(artifact, source, before)
            except (Unavailable, Conflict):
                # The connection broke, or another process of ours sends the same bytes. The hub knows how much
                # arrived; asking it also waits until it is back.
                breaks += 1
                if breaks > BREAKS_MAX:
                    raise
                state = self._transport.get(f"{path}/upload", UploadState)
            if state.offset > before:
                breaks = 0
        seen(artifact.size, artifact.size)

    def _send_part(self, artifact: InputFile, source: IO[bytes] | _Memory, offset: int) -> UploadState:
        size = min(PART_BYTES, artifact.size - offset)
        with self._transport.stream(
            "PUT",
            f"/artifacts/{artifact.digest}",
            params={"offset": offset, "size": artifact.size, "name": artifact.name},
            content=_section(source, offset, size),
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)},
        ) as reply:
            return UploadState.model_validate_json(reply.read())

    def _download(self, digest: str, sink: IO[bytes] | _Memory, seen: Seen) -> None:
        hasher, done = _hash_so_far(sink)
        breaks = 0
        while True:
            before = done
            try:
                for chunk in self._chunks(digest, done, seen):
                    sink.write(chunk)
                    hasher.update(chunk)
                    done += len(chunk)
                break
            except Unavailable:
                breaks = 0 if done > before else breaks + 1
                if breaks > BREAKS_MAX:
                    raise
                self._transport.call("GET", "/hub")  # returns when the hub is back, or says that it is not
            except ComputePoolError:
                sink.truncate(0)  # what lies there may be the cause: the next call starts afresh
                raise
        sink.flush()
        if hasher.hexdigest() != digest:
            sink.truncate(0)
            raise ChecksumMismatch(f"Artifact {digest[:12]}… was damaged in transit; try again.")

    def _chunks(self, digest: str, offset: int, seen: Seen) -> Iterator[bytes]:
        """From `offset` on. The last byte we have is asked for again, so that the range is never empty."""
        headers = {"Range": f"bytes={offset - 1}-"} if offset else {}
        with self._transport.stream("GET", f"/artifacts/{digest}", headers=headers) as reply:
            if offset and reply.status_code != PARTIAL_CONTENT:
                raise ComputePoolError("The hub did not honour the range of a resumed download.")
            again = 1 if offset else 0
            total = offset - again + int(reply.headers.get("content-length", 0))
            for chunk in reply.iter_raw():  # as it arrives: what is here is not lost when the rest breaks
                fresh = chunk[again:]
                again = 0
                offset += len(fresh)
                seen(offset, total)
                yield fresh


class _Memory:
    """Bytes with the few methods of a file that transfers use."""

    def __init__(self, data: bytes, max_bytes: int | None = None) -> None:
        self.data = bytearray(data)
        self._at = 0
        self._max_bytes = max_bytes

    def expect(self, done: int, total: int) -> None:
        size, most = max(done, total), self._max_bytes
        if most is not None and size > most:
            raise TooLarge(f"it has {size} bytes, and the limit is {most}.")

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (len(self.data) if whence == os.SEEK_END else 0)
        return self._at

    def read(self, size: int) -> bytes:
        chunk = bytes(self.data[self._at : self._at + size])
        self._at += len(chunk)
        return chunk

    def write(self, chunk: bytes) -> int:
        self.data += chunk
        return len(chunk)

    def flush(self) -> None:
        return None

    def truncate(self, size: int) -> int:
        del self.data[size:]
        return size


def _starts_sealed(path: Path) -> bool:
    with path.open("rb") as file:
        return is_sealed(file.read(len(MAGIC)))


def _section(source: IO[bytes] | _Memory, offset: int, size: int) -> Iterator[bytes]:
    source.seek(offset)
    while size > 0:
        chunk = source.read(min(CHUNK_BYTES, size))
        if not chunk:
            raise BadRequest("The file shrank during the upload.")
        size -= len(chunk)
        yield chunk


def _digest_of(source: IO[bytes]) -> tuple[str, int]:
    hasher, size = _hash_so_far(source)
    return hasher.hexdigest(), size


def _hash_so_far(source: IO[bytes] | _Memory) -> tuple[Any, int]:
    """The hash over what is there, and how much that is; the position is then at its end."""
    hasher, size = hashlib.sha256(), 0
    source.seek(0)
    while chunk := source.read(CHUNK_BYTES):
        hasher.update(chunk)
        size += len(chunk)
    return hasher, size


def _ignore(done: int, total: int) -> None:
    return None
