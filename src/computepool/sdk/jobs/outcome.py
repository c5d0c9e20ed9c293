"""Outcome of a successful job: a function's value, a program's exit code, and its output files."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol import sealing
from computepool.protocol.files import check_output_name
from computepool.protocol.jobs.views import JobResult, OutputFile
from computepool.protocol.values import values
from computepool.sdk.errors import ResultUnreadable, dropped_result_error
from computepool.sdk.jobs.options import PathLike

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

#: Errors of a file system that cannot store a file under this name.
_BAD_NAME_ERRORS = frozenset(
    (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EILSEQ, errno.EINVAL)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    job_id: str
    exit_code: int | None
    outputs: tuple[OutputFile, ...]
    _pool: Pool = field(repr=False, compare=False)

    @classmethod
    def of(cls, pool: Pool, result: JobResult, **more: Any) -> Self:
        """`more`: the fields that a subclass adds."""
        outputs = tuple(result.outputs)
        return cls(job_id=result.job_id, exit_code=result.exit_code, outputs=outputs, _pool=pool, **more)

    @property
    def output(self) -> str:
        """Everything that it printed."""
        return self._pool.jobs.log_text(self.job_id)

    def download(self, folder: PathLike) -> list[Path]:
        """Download the output files into `folder`. A file whose name is not possible there is skipped with a warning."""
        paths = []
        for _, path, reason in fetch(self._pool, self.outputs, Path(folder), job_id=self.job_id):
            if path is None:
                warnings.warn(reason, stacklevel=2)
            else:
                paths.append(path)
        return paths


def read_value(pool: Pool, result: JobResult, *, allow_pickle: bool) -> Any:
    """What the function returned."""
    if result.dropped:
        raise dropped_result_error(result.job_id)
    text = result.result
    if result.result_artifact is not None:
        text = pool.artifacts.get_result(result.result_artifact, job_id=result.job_id)
    if text is None:
        return None
    try:
        return values.decode(text, allow_pickle=allow_pickle)
    except Exception as error:
        # Loading a pickled value runs its code, which may raise anything.
        raise ResultUnreadable(
            f"The result of job {result.job_id} cannot be read: {error}", job_id=result.job_id
        ) from error


@dataclass(frozen=True, slots=True)
class ResultReader:
    """Turns the result of a job of this kind into what its future returns. Equal readers share a batch."""

    pool: Pool
    kind: JobKind
    allow_pickle: bool

    def __call__(self, result: JobResult) -> Any:
        if self.kind is JobKind.FUNCTION:
            return read_value(self.pool, result, allow_pickle=self.allow_pickle)
        if self.kind is JobKind.CLASS:
            from computepool.sdk.classes.job_classes import JobReport

            return JobReport.read(self.pool, result, allow_pickle=self.allow_pickle)
        return JobOutcome.of(self.pool, result)


def fetch(
    pool: Pool, outputs: Iterable[OutputFile], folder: Path, *, job_id: str
) -> Iterator[tuple[OutputFile, Path | None, str]]:
    """Download the files one by one and yield their paths; for a file with an unusable name, None and the reason."""
    for output in outputs:
        try:
            target = place(output.name, folder)
        except BadRequest as error:
            yield output, None, error.detail
            continue
        try:
            about = sealing.About(job_id, sealing.OUTPUT, output.name)
            path = pool.artifacts.get(output.digest, target, about=about)
        except OSError as error:
            if error.errno not in _BAD_NAME_ERRORS:
                raise
            yield output, None, f"The output {output.name!r} was not fetched: {error.strerror}."
        else:
            yield output, path, ""


def place(name: str, folder: Path) -> Path:
    """The path of an output below `folder`. Its name is untrusted and must not lead out of the folder."""
    try:
        parts = check_output_name(name)
    except ValueError as error:
        raise BadRequest(f"The output {name!r} was not fetched: {error}.") from error
    return folder.expanduser().joinpath(*parts)
