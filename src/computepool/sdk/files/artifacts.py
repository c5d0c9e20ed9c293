"""File transfers: streamed in chunks, resumed after a break, and verified by SHA-256.

Memory use does not depend on the size. A download appears under its name only when it is complete and verified.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeAlias

from computepool.core.errors import BadRequest, ComputePoolError, Conflict, TooLarge, Unavailable
from computepool.protocol import artifacts as wire
from computepool.protocol.jobs.jobs import RESULT_MAX, InputFile
from computepool.protocol.sealing import MAGIC, RESULT, About, is_sealed
from computepool.sdk.client.config import readable_file, replaceable
from computepool.sdk.client.resource import Resource, validate
from computepool.sdk.client.sizes import seconds
from computepool.sdk.client.transport import Transport
from computepool.sdk.errors import ChecksumMismatch, ResultUnreadable
from computepool.sdk.files import sealing
from computepool.sdk.jobs.options import Inputs, PathLike

#: Bytes read and written at a time.
CHUNK_BYTES = 1024 * 1024
#: Bytes sent in one request.
PART_BYTES = 64 * CHUNK_BYTES
#: Consecutive breaks without progress before a transfer is given up.
BREAKS_MAX = 20
INPUT_FILES_MAX = 1_000
PARTIAL_CONTENT = 206
#: Longer names leave no room for the prefix and suffix of a partial download.
_NAME_BYTES_MAX = 200

#: Called with the bytes transferred and the total.
Progress: TypeAlias = Callable[[int, int], None]
Artifacts: TypeAlias = list[wire.ArtifactView]


class ArtifactApi(Resource):
    """`pool.artifacts`: put, get, list, info, keep, rm."""

    def __init__(self, transport: Transport, *, max_result_bytes: int | None = None) -> None:
        super().__init__(transport)
        self._max_result_bytes = RESULT_MAX if max_result_bytes is None else max_result_bytes

    def put(self, path: PathLike, *, name: str | None = None, progress: Progress | None = None) -> InputFile:
        """Upload a file, unless the hub has it already. Pass the result in `inputs=`."""
        file = readable_file(path)
        with file.open("rb") as source:
            hasher, size = _hash_content(source)
            artifact = validate(InputFile, name=name or file.name, digest=hasher.hexdigest(), size=size)
            self._upload(artifact, source, progress or _ignore)
        return artifact

    def put_verified(self, path: Path, *, name: str, digest: str, size: int) -> None:
        """Upload a file whose digest is known."""
        with path.open("rb") as source:
            self._upload(validate(InputFile, name=name, digest=digest, size=size), source, _ignore)

    def put_bytes(self, data: bytes, *, name: str) -> InputFile:
        artifact = validate(InputFile, name=name, digest=hashlib.sha256(data).hexdigest(), size=len(data))
        self._upload(artifact, BytesIO(data), _ignore)
        return artifact

    def inline_or_put(self, data: bytes, field: str, *, name: str, most: int) -> dict[str, str]:
        """The request field with the data in base64; data longer than `most` is uploaded, and the field has its digest."""
        if len(data) <= most:
            return {field: b64encode(data).decode("ascii")}
        return {f"{field}_artifact": self.put_bytes(data, name=name).digest}

    def get(
        self,
        digest: str,
        path: PathLike,
        *,
        progress: Progress | None = None,
        raw: bool = False,
        about: About | None = None,
    ) -> Path:
        """Download to `path`, or, if that is a folder, to a file in it named by the digest. Resumes an earlier download.

        A file sealed to one of your keys is decrypted unless `raw` is set. `about`: what it must have been sealed as; the
        default is any file.
        """
        target = Path(path).expanduser()
        if target.is_dir():
            target = target / digest
        final = replaceable(target)
        final.parent.mkdir(parents=True, exist_ok=True)
        name = final.name
        if len(os.fsencode(name)) > _NAME_BYTES_MAX:
            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        part = final.with_name(f".{name}.{digest[:12]}.part")
        with part.open("a+b") as sink:
            self._download(digest, sink, progress or _ignore)
        with part.open("rb") as file:
            sealed = is_sealed(file.read(len(MAGIC)))
        if sealed and not raw:
            sealing.open_file(part, final, about=about)
            part.unlink()
        else:
            part.replace(final)
        return target

    def get_bytes(self, digest: str, *, about: About | None = None, max_bytes: int | None = None) -> bytes:
        """Download into memory; raises TooLarge beyond `max_bytes`."""

        def check_size(done: int, total: int) -> None:
            if max_bytes is not None and (size := max(done, total)) > max_bytes:
                raise TooLarge(f"it has {size} bytes, and the limit is {max_bytes}.")

        sink = BytesIO()
        self._download(digest, sink, check_size)
        return sealing.open_bytes(sink.getvalue(), about=about)

    def get_result(self, digest: str, *, job_id: str) -> str:
        """A function's encoded result. It comes from an untrusted machine, so its size is limited."""
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
        params = {"job_id": job_id}
        return list(
            self._each("/artifacts", wire.ArtifactPage, lambda page: page.artifacts, limit=limit, params=params)
        )

    def info(self, digest: str) -> wire.ArtifactInfo:
        """References to the file, how long it is kept, and whether it is complete."""
        return self._transport.get(f"/artifacts/{digest}/info", wire.ArtifactInfo)

    def storage(self) -> wire.StorageView:
        """Storage used by your account, and its quota."""
        return self._transport.get("/storage", wire.StorageView)

    def keep(self, digest: str, *, duration: float | str | None = None) -> wire.ArtifactInfo:
        """Keep a file independently of its jobs: for `duration` (seconds, or "30d"), or until `release`."""
        span_s = None if duration is None else seconds(duration, what="duration")
        return self._put(f"/artifacts/{digest}/keep", wire.ArtifactInfo, wire.KeepRequest, duration_s=span_s)

    def release(self, digest: str) -> None:
        """Undo `keep`: the file stays only as long as jobs and uploads need it."""
        self._transport.call("DELETE", f"/artifacts/{digest}/keep")

    def rm(self, digest: str) -> None:
        """Delete your references to the file; the data is deleted once nothing refers to it."""
        self._transport.call("DELETE", f"/artifacts/{digest}")

    def inputs(self, inputs: Inputs) -> tuple[InputFile, ...]:
        """Upload the inputs of a job; a folder stands for all files in it, under their relative names."""
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

    def _upload(self, artifact: InputFile, source: IO[bytes], progress: Progress) -> None:
        path = f"/artifacts/{artifact.digest}"
        state = self._transport.get(f"{path}/upload", wire.UploadState)
        breaks = 0
        while not state.complete:
            before = state.offset
            progress(before, artifact.size)
            try:
                state = self._send_part(artifact, source, before)
            except (Unavailable, Conflict):
                # The connection broke, or another process uploads the same file. The hub knows how much has arrived;
                # this request also waits until the hub is back.
                breaks += 1
                if breaks > BREAKS_MAX:
                    raise
                state = self._transport.get(f"{path}/upload", wire.UploadState)
            if state.offset > before:
                breaks = 0
        progress(artifact.size, artifact.size)

    def _send_part(self, artifact: InputFile, source: IO[bytes], offset: int) -> wire.UploadState:
        size = min(PART_BYTES, artifact.size - offset)
        with self._transport.stream(
            "PUT",
            f"/artifacts/{artifact.digest}",
            params={"offset": offset, "size": artifact.size, "name": artifact.name},
            content=_section(source, offset, size),
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)},
        ) as reply:
            return wire.UploadState.model_validate_json(reply.read())

    def _download(self, digest: str, sink: IO[bytes], progress: Progress) -> None:
        hasher, done = _hash_content(sink)
        breaks = 0
        while True:
            before = done
            try:
                for chunk in self._chunks(digest, done, progress):
                    sink.write(chunk)
                    hasher.update(chunk)
                    done += len(chunk)
                break
            except Unavailable:
                breaks = 0 if done > before else breaks + 1
                if breaks > BREAKS_MAX:
                    raise
                self._transport.call("GET", "/hub")  # waits until the hub is back, or raises
            except ComputePoolError:
                sink.truncate(0)  # the partial file may be the cause, so the next call starts anew
                raise
        sink.flush()
        if hasher.hexdigest() != digest:
            sink.truncate(0)
            raise ChecksumMismatch(f"Artifact {digest[:12]}… was damaged in transit; try again.")

    def _chunks(self, digest: str, offset: int, progress: Progress) -> Iterator[bytes]:
        """The content from `offset` on. Requests the byte before it as well, so that the range is never empty."""
        headers = {"Range": f"bytes={offset - 1}-"} if offset else {}
        with self._transport.stream("GET", f"/artifacts/{digest}", headers=headers) as reply:
            if offset and reply.status_code != PARTIAL_CONTENT:
                raise ComputePoolError("The hub did not honour the range of a resumed download.")
            overlap = 1 if offset else 0
            total = offset - overlap + int(reply.headers.get("content-length", 0))
            for chunk in reply.iter_raw():  # unbuffered, so that a break loses nothing that has arrived
                fresh = chunk[overlap:]
                overlap = 0
                offset += len(fresh)
                progress(offset, total)
                yield fresh


def _section(source: IO[bytes], offset: int, size: int) -> Iterator[bytes]:
    source.seek(offset)
    while size > 0:
        chunk = source.read(min(CHUNK_BYTES, size))
        if not chunk:
            raise BadRequest("The file shrank during the upload; try again.")
        size -= len(chunk)
        yield chunk


def _hash_content(source: IO[bytes]) -> tuple[Any, int]:
    """The hash and size of the content; leaves the position at its end."""
    hasher, size = hashlib.sha256(), 0
    source.seek(0)
    while chunk := source.read(CHUNK_BYTES):
        hasher.update(chunk)
        size += len(chunk)
    return hasher, size


def _ignore(done: int, total: int) -> None:
    return None
