"""Outcome of a job that ended well: a function's value, a program's exit code, and the files in its outputs."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from computepool.protocol import sealing
from computepool.protocol.filenames import check_output_name
from computepool.protocol.jobs.jobs import JobResult, OutputFile
from computepool.protocol.sealing import About
from computepool.protocol.values import values
from computepool.sdk.errors import BadRequest, ResultUnreadable, no_longer_kept
from computepool.sdk.jobs.options import PathLike

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

#: What a file system says to a name that it cannot hold, or not beside what is there.
_UNFIT = frozenset(
    (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EILSEQ, errno.EINVAL)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    job_id: str
    exit_code: int | None
    outputs: tuple[OutputFile, ...]
    _pool: Pool = field(repr=False, compare=False)

    @classmethod
    def of(cls, pool: Pool, result: JobResult) -> JobOutcome:
        return cls(
            job_id=result.job_id, exit_code=result.exit_code, outputs=tuple(result.outputs), _pool=pool
        )

    @property
    def output(self) -> str:
        """Everything it printed."""
        return self._pool.jobs.log_text(self.job_id)

    def download(self, folder: PathLike) -> list[Path]:
        """Fetch the output files into `folder`, under the names the job gave them.

        One that cannot have its name here is left out, with a warning.
        """
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
        raise no_longer_kept(result.job_id)
    text = result.result
    if result.result_artifact is not None:
        text = pool.artifacts.get_result(result.result_artifact, job_id=result.job_id)
    if text is None:
        return None
    try:
        return values.decode(text, allow_pickle=allow_pickle)
    except Exception as error:
        # A pickled value runs its own code while it loads, and may raise anything.
        raise ResultUnreadable(
            f"The result of job {result.job_id} cannot be read: {error}", job_id=result.job_id
        ) from error


def fetch(
    pool: Pool, outputs: Iterable[OutputFile], folder: Path, *, job_id: str
) -> Iterator[tuple[OutputFile, Path | None, str]]:
    """One by one, where each went; None and a sentence for one with an odd name, which costs the others nothing."""
    for output in outputs:
        try:
            target = place(output.name, folder)
        except BadRequest as error:
            yield output, None, error.detail
            continue
        try:
            about = About(job_id, sealing.OUTPUT, output.name)
            path = pool.artifacts.get(output.digest, target, about=about)
        except OSError as error:
            if error.errno not in _UNFIT:
                raise
            yield output, None, f"The output {output.name!r} was not fetched: {error.strerror}."
        else:
            yield output, path, ""


def place(name: str, folder: Path) -> Path:
    """Where an output goes. Its name was chosen on a stranger's machine: it must not leave the folder."""
    try:
        parts = check_output_name(name)
    except ValueError as error:
        raise BadRequest(f"The output {name!r} was not fetched: {error}.") from error
    return folder.expanduser().joinpath(*parts)
