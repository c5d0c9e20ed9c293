"""Staging: fills a work folder before a job and collects its results afterwards."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from computepool.agent.config import MIB
from computepool.agent.execution.attempt_result import AttemptResult, BadJob, FolderFull, StagingFailed, is_folder_full
from computepool.agent.execution.logs import STDERR
from computepool.agent.sandbox.base import OUTPUTS
from computepool.agent.sandbox.collect import Caps, Output, OutputCollector
from computepool.agent.sandbox.scratch import stage
from computepool.agent.storage.artifacts import ArtifactCache, Uploader, digest_of, sha256_of
from computepool.agent.storage.sealing import FileSection, sealed_copy
from computepool.core.errors import BadRequest, ComputePoolError, NotFound, QuotaExceeded
from computepool.core.jobs.lifecycle import Outcome
from computepool.protocol.files import check_name
from computepool.protocol.nodes.nodes import OUTPUTS_MAX, OutputRef
from computepool.protocol.sealing import OUTPUT, Seal

#: Larger files are read and hashed in a thread, so that other attempts are not held up.
_THREAD_ABOVE = 1 * MIB
_RESERVED = (OUTPUTS, ".tmp", ".checkpoint", ".restored", ".calls", ".volumes")


async def place_inputs(cache: ArtifactCache, inputs: Sequence[tuple[str, str]], workdir: Path) -> None:
    """`inputs` are names and digests."""
    for name, digest in inputs:
        try:
            top = check_name(name)[0]
        except ValueError as error:
            raise BadJob(f"input name: {error}") from error
        if top in _RESERVED:
            raise BadJob(f"an input cannot be called {name!r}: the name is reserved")
        await place_artifact(cache, digest, workdir, name=name)


async def place_artifact(cache: ArtifactCache, digest: str, workdir: Path, *, name: str) -> None:
    """Copy an artifact into a work folder. Through a link, a job of level `process` could write into the cache."""
    try:
        source = await cache.open(digest)
    except NotFound as error:
        raise BadJob(f"the artifact {digest[:12]}… for {name!r} is gone") from error
    except ComputePoolError as error:
        raise StagingFailed(f"cannot fetch the artifact {digest[:12]}… for {name!r}: {error.detail}") from error
    with _input_errors(workdir, name):
        await _copy_and_close(source, workdir, name)


@contextmanager
def _input_errors(workdir: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise BadJob(f"two inputs are called {name!r}, or one is a folder of another") from error
    except OSError as error:
        if is_folder_full(error, workdir):
            raise FolderFull(f"the work folder is too small for {name!r}") from error
        raise StagingFailed(f"cannot write the input {name!r}: {error.strerror}") from error


def place_text(text: str, workdir: Path, *, name: str) -> None:
    with _input_errors(workdir, name):
        place_bytes(text.encode(), workdir, name=name)


def place_bytes(data: bytes, workdir: Path, *, name: str, executable: bool = False) -> None:
    with stage(workdir, name, executable=executable) as file:
        file.write(data)


async def _copy_and_close(source: int, workdir: Path, name: str) -> None:
    """If the caller is cancelled, `source` stays open until the copy ends: its number must not be reused before."""
    if os.fstat(source).st_size <= _THREAD_ABOVE:
        try:
            _copy(source, workdir, name)
        finally:
            os.close(source)
        return
    copied = asyncio.get_running_loop().run_in_executor(None, _copy, source, workdir, name)
    copied.add_done_callback(partial(_close, source))
    await asyncio.shield(copied)


def _close(source: int, copied: asyncio.Future[None]) -> None:
    os.close(source)
    copied.exception()  # Retrieved, so that asyncio does not warn about it.


def _copy(source: int, workdir: Path, name: str) -> None:
    with stage(workdir, name) as target:
        offset, size = 0, os.fstat(source).st_size
        while offset < size:
            sent = os.sendfile(target.fileno(), source, offset, size - offset)
            if sent == 0:
                raise OSError(5, "the cached file was truncated")
            offset += sent
        os.fchmod(target.fileno(), 0o444)


class OutputRejected(Exception):
    """An output or a result cannot be taken; the message, for the submitter, says why."""


async def take_outputs(
    folder: Path, result: AttemptResult, write: Callable[[str, bytes], None], *, uploader: Uploader, seal: Seal | None
) -> None:
    """Upload the files in `folder` and name them in `result`; `write` takes notes about those that are left out.

    A job that succeeded but exceeded a limit has failed; a job that failed keeps its reason.
    """
    limits = uploader.node.limits
    refs: list[OutputRef] = []
    excess = ""
    total = 0
    files_max = min(limits.outputs_max, OUTPUTS_MAX)
    # The collector's own caps are a second barrier: exceeding the limits below must fail the job.
    collector = OutputCollector(folder, Caps(files=files_max + 1, total_bytes=2**62, file_bytes=2**62))
    for output in collector:
        total += output.size
        if len(refs) >= files_max:
            excess = f"wrote more than {files_max} output files"
        elif total > limits.outputs_bytes_max:
            excess = f"wrote more than {limits.outputs_bytes_max} bytes of output files"
        if excess:
            break
        try:
            async with open_for_upload(output, folder, seal=seal, about=(OUTPUT, output.name)) as (fd, size):
                digest = await send_file(fd, size, output.name, uploader=uploader)
            refs.append(OutputRef(name=output.name, digest=digest, size=size))
        except OutputRejected as error:
            excess = str(error)
            break
    result.outputs = refs
    if excess and result.outcome is Outcome.SUCCEEDED:
        result.exceed_output_limit(excess)
    for refused in collector.refused:
        write(STDERR, f"[output not taken: {refused.name}: {refused.reason}]\n".encode())


@asynccontextmanager
async def open_for_upload(
    output: Output, folder: Path, *, seal: Seal | None, about: Sequence[str]
) -> AsyncIterator[tuple[int, int]]:
    """Descriptor and size of a sealed copy of an output in `folder`, or of the output itself if there is no seal."""
    if seal is None:
        yield output.fd, output.size
        return
    section = FileSection(output.fd, output.size)
    # Out of the job's reach: in the folder that holds the work folders.
    try:
        async with sealed_copy(section.read, seal=seal, about=about, folder=folder.parents[1]) as file:
            yield file
    except BadRequest as error:
        if os.fstat(output.fd).st_size >= output.size:
            raise
        raise OutputRejected("an output was changed while it was sealed") from error


async def send_file(fd: int, size: int, name: str, *, uploader: Uploader) -> str:
    digest = None
    try:
        digest = await digest_of(fd, size)
        await uploader.send(fd, digest, size=size, name=name)
    except QuotaExceeded as error:  # the submitter's quota
        raise OutputRejected(f"its outputs cannot be stored: {error.detail}") from error
    except BadRequest as error:
        if digest is not None and await asyncio.to_thread(_is_unchanged, fd, size, digest):
            raise
        raise OutputRejected(f"{name!r} was changed while it was collected") from error
    return digest


def _is_unchanged(fd: int, size: int, digest: str) -> bool:
    try:
        return sha256_of(fd, size) == digest
    except BadRequest:
        return False
