"""How a script or command ended well: its exit code, and the files it left in its outputs folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from computepool.protocol.jobs import JobResult, OutputFile
from computepool.sdk.errors import BadRequest
from computepool.sdk.options import PathLike

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool


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
        """Fetch the output files into `folder`, under the names the job gave them."""
        return [
            self._pool.artifacts.get(output.digest, place(output.name, Path(folder)))
            for output in self.outputs
        ]


def place(name: str, folder: Path) -> Path:
    """Where an output goes. Its name was chosen on a stranger's machine: it must not leave the folder."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name:
        raise BadRequest(f"The job named an output {name!r}, which would leave {folder}; it was not fetched.")
    if any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in name):
        raise BadRequest(f"The job named an output {name!r}, with control characters; it was not fetched.")
    return folder.expanduser().joinpath(*parts)
